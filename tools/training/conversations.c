/* Conversations as examples. The chat template renders a whole conversation, whose text is encoded
 * as `weft chat` does it. See examples.h.
 *
 * Answers are found by rendering growing beginnings of the conversation. An answer begins where the
 * messages before it end, rendered so that the model continues. It ends with the first token that
 * ends a text, or where the text of the messages up to it ends. Templates that write older messages
 * in another way than the last one need the former. */
#include "examples.h"

#include "decoding/special.h"
#include "json/tree.h"

#include "base/file.h"

#ifdef WEFT_HAVE_TOKENIZERS
#include <weft/chat.h>
#endif

#include <stdlib.h>
#include <string.h>

static bool fail(weft_error *error, weft_status status, const char *message)
{
    weft_error_set(error, status, "conversation", "%s", message);
    return false;
}

#ifdef WEFT_HAVE_TOKENIZERS

/* What templates that print the date get, so that the ids do not depend on the day. */
#define TEMPLATE_DATE "2024-07-26"

/* Where an answer is in the text of the conversation. */
typedef struct answer {
    size_t message;
    size_t begin, end; /* bytes */
    bool ends;         /* `end` is known */
} answer;

typedef struct conversation {
    const conversation_reader *reader;
    weft_chat_message *messages; /* [n] */
    char **members;              /* [n] as JSON; NULL: none */
    size_t n;
    char *tools; /* as JSON; NULL: none */
    char *text;
    answer *answers; /* [n_answers] */
    size_t n_answers;
} conversation;

static bool fail_template(const weft_error *why, weft_error *error)
{
    weft_error_set(error, why->status, "conversation", "the chat template: %s", why->message);
    return false;
}

bool conversation_reader_open(conversation_reader *c, const training *t, weft_error *error)
{
    char folder[FILE_PATH_BYTES];
    *c = (conversation_reader){.tokenizer = t->vocabulary[1]};
    if (!t->published)
        return fail(error, WEFT_NOT_FOUND,
                    "conversations need a chat template, which only models with a tokenizer.json "
                    "have");
    c->run = (trained_run){.published = true, .target = t->vocabulary[1]};
    c->run.vocabulary_path[1] = t->vocabulary_path[1];
    c->run.traits.vocab = training_vocab_size(t);
    if (t->lora.rank) { /* the configuration of its base also names ends of a text */
        c->run.saved = t->from->saved;
        c->run.params = t->from->params;
    }
    weft_error why = WEFT_NO_ERROR;
    if (!trained_folder(&c->run, folder, error)) return false;
    c->chat = weft_chat_template_load(folder, &why);
    if (!c->chat && why.status == WEFT_NOT_FOUND)
        return fail(error, WEFT_NOT_FOUND,
                    "conversations need a chat template, which the model does not have");
    if (!c->chat) return fail_template(&why, error);
    return special_find(&c->run, error);
}

void conversation_reader_close(conversation_reader *c)
{
    weft_chat_template_free(c->chat);
}

/* ---- Messages ---- */

/* The members of a message besides role and content as JSON; NULL if there are none. */
static bool take_members(const cJSON *message, char **members, weft_error *error)
{
    cJSON *copy = cJSON_Duplicate(message, true);
    cJSON_DeleteItemFromObjectCaseSensitive(copy, "role");
    cJSON_DeleteItemFromObjectCaseSensitive(copy, "content");
    const bool any = copy && copy->child;
    *members = any ? weft__json_print(copy, false) : NULL;
    cJSON_Delete(copy);
    return (copy && (!any || *members)) || fail(error, WEFT_NO_MEMORY, "out of memory");
}

static bool take_message(conversation *c, const cJSON *json, weft_error *error)
{
    const cJSON *role = cJSON_GetObjectItemCaseSensitive(json, "role");
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(json, "content");
    if (!cJSON_IsString(role) || !(cJSON_IsString(content) || cJSON_IsNull(content) || !content)) {
        weft_error_set(error, WEFT_BAD_FILE, "conversation",
                       "message %zu: expected {\"role\": \"...\", \"content\": \"...\"}", c->n + 1);
        return false;
    }
    if (!take_members(json, &c->members[c->n], error)) return false;
    c->messages[c->n] =
        (weft_chat_message){role->valuestring, cJSON_GetStringValue(content), c->members[c->n]};
    c->n_answers += !strcmp(role->valuestring, "assistant");
    c->n++;
    return true;
}

static bool take_messages(conversation *c, const cJSON *json, weft_error *error)
{
    const cJSON *messages = cJSON_GetObjectItemCaseSensitive(json, "messages"), *message;
    const cJSON *tools = cJSON_GetObjectItemCaseSensitive(json, "tools");
    const size_t n = (size_t)cJSON_GetArraySize(messages) + 1;
    c->messages = calloc(n, sizeof *c->messages);
    c->members = calloc(n, sizeof *c->members);
    c->answers = calloc(n, sizeof *c->answers);
    const bool has_tools = tools && !cJSON_IsNull(tools);
    if (has_tools) c->tools = weft__json_print(tools, false);
    if (!c->messages || !c->members || !c->answers || (has_tools && !c->tools))
        return fail(error, WEFT_NO_MEMORY, "out of memory");
    cJSON_ArrayForEach(message, messages)
    {
        if (!take_message(c, message, error)) return false;
    }
    return c->n_answers ||
           fail(error, WEFT_BAD_FILE, "expected an answer: a message whose role is \"assistant\"");
}

static void free_conversation(conversation *c)
{
    for (size_t i = 0; i < c->n; i++) cJSON_free(c->members[i]);
    free(c->messages);
    free(c->members);
    free(c->answers);
    cJSON_free(c->tools);
    weft_free(c->text);
}

/* ---- Answers ---- */

/* The text of the first n messages; `prompt`: up to where an answer begins. */
static char *render(const conversation *c, size_t n, bool prompt, weft_error *error)
{
    const weft_chat_options o = {
        .add_generation_prompt = prompt, .tools = c->tools, .date = TEMPLATE_DATE};
    weft_error why = WEFT_NO_ERROR;
    char *text = weft_chat_template_render(c->reader->chat, c->messages, n, &o, &why);
    if (!text) fail_template(&why, error);
    return text;
}

/* Whether the text of the first n messages begins that of all, and its bytes. */
static bool measure(const conversation *c, size_t n, bool prompt, bool *begins, size_t *bytes,
                    weft_error *error)
{
    char *text = render(c, n, prompt, error);
    if (!text) return false;
    *bytes = strlen(text);
    *begins = !strncmp(text, c->text, *bytes);
    weft_free(text);
    return true;
}

static bool cannot_divide(const answer *a, weft_error *error)
{
    weft_error_set(error, WEFT_BAD_FILE, "conversation",
                   "cannot find where message %zu, an answer, begins or ends in the text of the "
                   "chat template",
                   a->message + 1);
    return false;
}

static bool find_answers(conversation *c, weft_error *error)
{
    answer *a = c->answers;
    c->text = render(c, c->n, false, error);
    if (!c->text) return false;
    for (size_t i = 0; i < c->n; i++) {
        bool begins;
        if (strcmp(c->messages[i].role, "assistant") != 0) continue;
        a->message = i;
        if (!measure(c, i, true, &begins, &a->begin, error) ||
            !measure(c, i + 1, false, &a->ends, &a->end, error))
            return false;
        if (!begins) return cannot_divide(a, error);
        a++;
    }
    return true;
}

/* Makes the tokens of an answer predicted. A token that begins before the answer is not. */
static bool mark_answer(const conversation *c, size_t index, const weft_encoding *e, int32_t *ids,
                        weft_error *error)
{
    const answer *a = &c->answers[index];
    const bool last = index + 1 == c->n_answers;
    const size_t limit = a->ends ? a->end : last ? strlen(c->text) : a[1].begin;
    bool ended = false;
    for (size_t i = 0; i < e->n && !ended; i++) {
        if (e->spans[i].begin < a->begin || e->spans[i].begin >= limit) continue;
        ids[i] = e->ids[i];
        ended = trained_ends_with(&c->reader->run, ids[i]);
    }
    return ended || a->ends || cannot_divide(a, error);
}

static bool encode(const conversation *c, example *out, weft_error *error)
{
    const weft_encode_input input = {.text = c->text, .parse_special = true};
    weft_encoding e;
    if (weft_tokenizer_encode_input(c->reader->tokenizer, &input, &e, error) != WEFT_OK)
        return false;
    out->n = e.n;
    out->ids = malloc((e.n + 1) * sizeof *out->ids);
    bool good = out->ids || fail(error, WEFT_NO_MEMORY, "out of memory");
    for (size_t i = 0; good && i < e.n; i++) out->ids[i] = -1 - e.ids[i];
    for (size_t i = 0; good && i < c->n_answers; i++) good = mark_answer(c, i, &e, out->ids, error);
    weft_encoding_free(&e);
    return good;
}

bool conversation_reader_encode(const conversation_reader *r, const cJSON *json, example *out,
                                weft_error *error)
{
    conversation c = {.reader = r};
    const bool good =
        take_messages(&c, json, error) && find_answers(&c, error) && encode(&c, out, error);
    free_conversation(&c);
    return good;
}

#else

bool conversation_reader_open(conversation_reader *c, const training *t, weft_error *error)
{
    (void)t;
    *c = (conversation_reader){.tokenizer = NULL};
    return fail(
        error, WEFT_BAD_ARGUMENT,
        "conversations need a chat template, but weft was built without PCRE2 and utf8proc");
}

void conversation_reader_close(conversation_reader *c)
{
    (void)c;
}

bool conversation_reader_encode(const conversation_reader *r, const cJSON *json, example *out,
                                weft_error *error)
{
    (void)r;
    (void)json;
    (void)out;
    return fail(error, WEFT_BAD_ARGUMENT, "no chat template");
}

#endif
