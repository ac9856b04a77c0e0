/* Prompts of requests as ids: conversations by the model's chat template, texts, lists of ids. */
#include "server.h"

#include "json/tree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool no_memory(job *j)
{
    return answer_fail(&j->error, 500, NULL, "out of memory");
}

static bool fail_by(job *j, const char *param, const weft_error *error)
{
    return answer_fail(&j->error, error->status == WEFT_NO_MEMORY ? 500 : 400, param, "%s: %s",
                       error->where, error->message);
}

/* ---- Conversations ---- */

/* The text of a message: a string, or a list of parts of type "text". NULL with j->error. */
static char *content_of(job *j, const cJSON *content)
{
    const cJSON *part;
    size_t bytes = 1;
    if (cJSON_IsString(content)) {
        char *copy = strdup(content->valuestring);
        if (!copy) no_memory(j);
        return copy;
    }
    cJSON_ArrayForEach(part, content)
    {
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(part, "text");
        if (!cJSON_IsString(text)) {
            answer_fail(&j->error, 400, "messages",
                        "only parts of the type \"text\" are supported");
            return NULL;
        }
        bytes += strlen(text->valuestring);
    }
    char *all = calloc(bytes, 1), *end = all;
    if (!all) no_memory(j);
    cJSON_ArrayForEach(part, content)
    {
        const char *text = cJSON_GetObjectItemCaseSensitive(part, "text")->valuestring;
        if (end) end = stpcpy(end, text);
    }
    return all;
}

/* The other members of a message, such as tool_calls, as JSON; "" if there are none. */
static char *members_of(job *j, const cJSON *message)
{
    cJSON *copy = cJSON_Duplicate(message, true);
    cJSON_DeleteItemFromObjectCaseSensitive(copy, "role");
    cJSON_DeleteItemFromObjectCaseSensitive(copy, "content");
    char *text = copy && copy->child ? weft__json_print(copy, false) : cJSON_malloc(1);
    if (text && !(copy && copy->child)) *text = 0;
    if (!text || !copy) no_memory(j);
    cJSON_Delete(copy);
    return text;
}

typedef struct conversation {
    weft_chat_message *messages; /* [n] */
    char **contents, **members;  /* [n] */
    size_t n;
} conversation;

static bool add_message(job *j, conversation *c, const cJSON *message)
{
    const cJSON *role = cJSON_GetObjectItemCaseSensitive(message, "role");
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(message, "content");
    if (!cJSON_IsString(role))
        return answer_fail(&j->error, 400, "messages", "message %zu has no role", c->n);
    if (content && !cJSON_IsString(content) && !cJSON_IsNull(content) && !cJSON_IsArray(content))
        return answer_fail(&j->error, 400, "messages",
                           "the content of message %zu is neither a text nor a list", c->n);
    const bool none = !content || cJSON_IsNull(content);
    const size_t at = c->n++;
    if (!none) c->contents[at] = content_of(j, content);
    c->members[at] = members_of(j, message);
    if (j->error.status) return false;
    c->messages[at] = (weft_chat_message){role->valuestring, c->contents[at],
                                          *c->members[at] ? c->members[at] : NULL};
    return true;
}

static void free_conversation(conversation *c)
{
    for (size_t i = 0; i < c->n; i++) {
        if (c->contents) free(c->contents[i]);
        if (c->members) cJSON_free(c->members[i]);
    }
    free(c->messages);
    free(c->contents);
    free(c->members);
}

/* A member as JSON, or NULL; cJSON_free frees it. */
static char *print_member(job *j, const cJSON *json, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    if (!item || cJSON_IsNull(item)) return NULL;
    char *text = weft__json_print(item, false);
    if (!text) no_memory(j);
    return text;
}

static char *render(job *j, const cJSON *json, const conversation *c)
{
    weft_error error = WEFT_NO_ERROR;
    char *tools = print_member(j, json, "tools");
    char *variables = print_member(j, json, "chat_template_kwargs");
    const weft_chat_options o = {
        .add_generation_prompt = true, .tools = tools, .variables = variables};
    char *text = j->error.status
                     ? NULL
                     : weft_chat_template_render(j->server->chat, c->messages, c->n, &o, &error);
    if (!text && !j->error.status) fail_by(j, "messages", &error);
    cJSON_free(tools);
    cJSON_free(variables);
    return text;
}

/* Fails for an id that the model lacks. */
static bool check_ids(job *j, const int32_t *ids, size_t n)
{
    const int64_t vocab = j->server->run.traits.vocab;
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return answer_fail(&j->error, 400, "prompt", "the id %d is not one of the model's %lld",
                               (int)ids[i], (long long)vocab);
    return true;
}

/* The ids of a rendered conversation, which has its special pieces as text. */
static bool encode_conversation(job *j, const char *text)
{
    const weft_encode_input input = {.text = text, .parse_special = true};
    weft_encoding e;
    weft_error error = WEFT_NO_ERROR;
    if (weft_tokenizer_encode_input(j->server->run.target, &input, &e, &error) != WEFT_OK)
        return fail_by(j, "messages", &error);
    j->prompts[0] = (encoded_text){.ids = e.ids, .n = e.n};
    e.ids = NULL;
    weft_encoding_free(&e);
    if (!j->prompts[0].n)
        return answer_fail(&j->error, 400, "messages", "the conversation has no text");
    return check_ids(j, j->prompts[0].ids, j->prompts[0].n);
}

static bool make_prompts(job *j, size_t n)
{
    j->prompts = calloc(n, sizeof *j->prompts);
    j->texts = calloc(n, sizeof *j->texts);
    if (!j->prompts || !j->texts) return no_memory(j);
    j->n_prompts = n;
    return true;
}

static bool read_messages(job *j, const cJSON *json)
{
    const cJSON *message, *messages = cJSON_GetObjectItemCaseSensitive(json, "messages");
    const size_t n = (size_t)cJSON_GetArraySize(messages);
    conversation c = {.n = 0};
    if (!j->server->chat)
        return answer_fail(&j->error, 400, "messages", "the model has no chat template: %s",
                           j->server->chat_problem);
    if (!cJSON_IsArray(messages) || !n)
        return answer_fail(&j->error, 400, "messages", "messages must be a list with a message");
    c.messages = calloc(n, sizeof *c.messages);
    c.contents = calloc(n, sizeof *c.contents);
    c.members = calloc(n, sizeof *c.members);
    bool good = (c.messages && c.contents && c.members) || no_memory(j);
    cJSON_ArrayForEach(message, messages) good = good && add_message(j, &c, message);
    char *text = good ? render(j, json, &c) : NULL;
    free_conversation(&c);
    good = text && make_prompts(j, 1);
    if (good) good = encode_conversation(j, text);
    weft_free(text);
    return good;
}

/* ---- Texts and ids ---- */

/* Cuts the end of a text to embed that is too long, but not what surrounds it. */
static void cut(encoded_text *t, size_t most)
{
    const size_t around = t->before + t->after;
    if (t->n <= most || around > most) return;
    memmove(t->ids + most - t->after, t->ids + t->n - t->after, t->after * sizeof *t->ids);
    t->n = most;
}

static bool add_text(job *j, size_t at, const cJSON *item, const char *param)
{
    const bool embeds = j->kind == JOB_EMBEDDING;
    weft_error error = WEFT_NO_ERROR;
    j->texts[at] = strdup(item->valuestring);
    if (!j->texts[at]) return no_memory(j);
    if (!trained_encode(&j->server->run, embeds ? TEXT_TARGET : TEXT_PROMPT, item->valuestring,
                        &j->prompts[at], &error))
        return fail_by(j, param, &error);
    if (embeds) cut(&j->prompts[at], (size_t)weft_embedder_max_len(j->server->embedder));
    return true;
}

static bool add_ids(job *j, size_t at, const cJSON *list, const char *param)
{
    const size_t n = (size_t)cJSON_GetArraySize(list);
    const cJSON *item;
    int32_t *ids = calloc(n + 1, sizeof *ids);
    if (!ids) return no_memory(j);
    j->prompts[at].ids = ids;
    cJSON_ArrayForEach(item, list)
    {
        const double x = cJSON_IsNumber(item) ? item->valuedouble : NAN;
        if (!(x >= 0 && x <= INT32_MAX) || x != floor(x))
            return answer_fail(&j->error, 400, param,
                               "an id is not a whole number of the vocabulary");
        ids[j->prompts[at].n++] = (int32_t)x;
    }
    return n ? check_ids(j, ids, n) : answer_fail(&j->error, 400, param, "a list of ids is empty");
}

/* A text, ids, or a list of either. */
static bool read_texts(job *j, const cJSON *json, const char *param)
{
    const cJSON *item, *all = cJSON_GetObjectItemCaseSensitive(json, param);
    const bool one = cJSON_IsString(all) || (cJSON_IsArray(all) && cJSON_IsNumber(all->child));
    const size_t most = j->kind == JOB_EMBEDDING ? 2048 : SERVER_CHOICES;
    const size_t n = one ? 1 : (size_t)cJSON_GetArraySize(all);
    size_t at = 0;
    if (!one && (!cJSON_IsArray(all) || !n || n > most))
        return answer_fail(&j->error, 400, param,
                           "%s must be a text, a list of ids, or a list of at most %zu of them",
                           param, most);
    if (!make_prompts(j, n)) return false;
    for (item = one ? all : all->child; item && at < n; item = item->next, at++) {
        if (!cJSON_IsString(item) && !cJSON_IsArray(item))
            return answer_fail(&j->error, 400, param, "%s %zu is neither a text nor ids", param,
                               at);
        if (!(cJSON_IsString(item) ? add_text : add_ids)(j, at, item, param)) return false;
    }
    return true;
}

bool prompt_read(job *j, const cJSON *json)
{
    if (j->kind == JOB_CHAT) return read_messages(j, json);
    return read_texts(j, json, j->kind == JOB_EMBEDDING ? "input" : "prompt");
}
