/* See conversation.h. The messages are rendered by the model's chat template, and the text is
 * encoded as a whole. The tokens that the decoder has read and the new ones have a common beginning:
 * the decoder is rewound to its end and reads the rest. So an answer depends on the text alone, and
 * has the bits of a run that reads the whole text. */
#include "conversation.h"
#include "tool.h"

#include "base/file.h"

#ifdef WEFT_HAVE_TOKENIZERS
#include <weft/chat.h>
#endif

#include <stdlib.h>
#include <string.h>

/* Tokens that are read between two looks at the user's interrupt. */
#define READ_CHUNK 256

static bool fail(conversation *c, weft_status status, const char *where, const char *message)
{
    weft_error_set(&c->error, status, where, "%s", message);
    return false;
}

static bool no_memory(conversation *c)
{
    return fail(c, WEFT_NO_MEMORY, "conversation", "out of memory");
}

/* ---- Opening ---- */

#ifdef WEFT_HAVE_TOKENIZERS
static bool load_template(conversation *c)
{
    const conversation_args *a = c->a;
    char folder[FILE_PATH_BYTES];
    if (a->chat_template && strlen(a->chat_template) >= FILE_PATH_BYTES)
        return fail(c, WEFT_TOO_LARGE, a->chat_template, "the path is too long");
    if (!trained_folder(&c->run, folder, &c->error)) return false;
    c->chat = weft_chat_template_load(a->chat_template ? a->chat_template : folder, &c->error);
    if (c->chat || a->chat_template || c->error.status != WEFT_NOT_FOUND) return c->chat != NULL;
    weft_error_clear(&c->error);
    return fail(c, WEFT_NOT_FOUND, a->folder,
                "has no chat template: the model was not made for conversations, or its template "
                "is in a file of its own (--template FILE)");
}

static void free_template(conversation *c)
{
    weft_chat_template_free(c->chat);
}

/* The text of the messages that are part of the context, up to where an answer begins. */
static char *render(conversation *c)
{
    const weft_tokenizer_info info = weft_tokenizer_info_of(c->run.target);
    weft_chat_options options = {.add_generation_prompt = true};
    weft_chat_message *messages = calloc(c->n - c->first + 1, sizeof *messages);
    size_t n = 0;
    if (!messages) {
        no_memory(c);
        return NULL;
    }
    if (c->a->chat_template && info.bos >= 0)
        options.bos_token = weft_tokenizer_piece(c->run.target, info.bos);
    if (c->a->chat_template && info.eos >= 0)
        options.eos_token = weft_tokenizer_piece(c->run.target, info.eos);
    if (c->system) messages[n++] = (weft_chat_message){"system", c->system, NULL};
    for (size_t i = c->first; i < c->n; i++)
        messages[n++] = (weft_chat_message){c->messages[i].role, c->messages[i].content, NULL};
    char *text = weft_chat_template_render(c->chat, messages, n, &options, &c->error);
    free(messages);
    return text;
}
#else
static bool load_template(conversation *c)
{
    return fail(c, WEFT_BAD_ARGUMENT, c->a->folder,
                "has a chat template, but weft was built without PCRE2 and utf8proc");
}

static void free_template(conversation *c)
{
    (void)c;
}

static char *render(conversation *c)
{
    no_memory(c);
    return NULL;
}
#endif

static bool set_sampling(conversation *c)
{
    const sampling_args *a = &c->a->sampling;
    c->sampling = (weft_sampling_options){.greedy = a->temperature == 0,
                                          .temperature = a->temperature,
                                          .top_k = a->top_k,
                                          .top_p = a->top_p,
                                          .min_p = a->min_p,
                                          .seed = (uint64_t)a->seed,
                                          .repetition_penalty = a->repetition_penalty,
                                          .no_repeat_ngram = a->no_repeat,
                                          .min_len = a->min_length,
                                          .ends = c->run.ends,
                                          .n_ends = c->run.n_ends};
    c->banned = trained_banned(&c->run, &c->sampling.n_banned);
    c->sampling.banned = c->banned;
    return c->banned || no_memory(c);
}

bool conversation_open(conversation *c, const conversation_args *a, volatile bool *interrupted)
{
    *c = (conversation){.a = a, .interrupted = interrupted};
    if (!trained_open(&c->run, a->folder, a->checkpoint, &c->error)) return false;
    if (c->run.traits.source_vocab)
        return fail(c, WEFT_BAD_ARGUMENT, c->run.model->name,
                    "translates, and cannot converse (see `weft translate`)");
    if (!c->run.published)
        return fail(c, WEFT_NOT_FOUND, a->folder,
                    "has no tokenizer.json: the model was not made for conversations");
    c->context = trained_context(&c->run, a->context, CONVERSATION_LEN, &c->error);
    if (!c->context || !load_template(c) || !set_sampling(c) ||
        !answer_rule_open(&c->rule, &a->rule, &c->run, &c->error))
        return false;
    const weft_decoder_options o = {
        .max_len = c->context, .cache = a->cache, .session.threads = a->threads};
    c->decoder = weft_decoder_new(&c->run.config, c->run.params, &o, &c->error);
    c->sampler = c->decoder ? weft_sampler_new(c->run.traits.vocab, &c->error) : NULL;
    c->read = calloc((size_t)c->context, sizeof *c->read);
    return c->sampler && (c->read || no_memory(c));
}

void conversation_close(conversation *c)
{
    conversation_cut(c, 0);
    free(c->messages);
    free(c->system);
    free(c->read);
    free(c->banned);
    weft_sampler_free(c->sampler);
    weft_decoder_free(c->decoder);
    free_template(c);
    answer_rule_close(&c->rule);
    trained_close(&c->run);
}

/* ---- Messages ---- */

bool conversation_set_system(conversation *c, const char *text)
{
    char *copy = text && *text ? strdup(text) : NULL;
    if (text && *text && !copy) return no_memory(c);
    free(c->system);
    c->system = copy;
    return true;
}

bool conversation_add(conversation *c, const char *role, const char *content)
{
    if (c->n == c->capacity) {
        const size_t capacity = c->capacity ? 2 * c->capacity : 16;
        conversation_message *grown = realloc(c->messages, capacity * sizeof *grown);
        if (!grown) return no_memory(c);
        c->messages = grown;
        c->capacity = capacity;
    }
    const conversation_message m = {strdup(role), strdup(content)};
    c->messages[c->n++] = m;
    if (m.role && m.content) return true;
    conversation_cut(c, c->n - 1);
    return no_memory(c);
}

void conversation_cut(conversation *c, size_t n)
{
    while (c->n > n) {
        c->n--;
        free(c->messages[c->n].role);
        free(c->messages[c->n].content);
    }
    if (c->first > c->n) c->first = 0;
}

/* ---- What the decoder reads ---- */

/* Leaves out the oldest turn: a message of the user, and those after it up to the next one. False
 * if only one is left. */
static bool drop_turn(conversation *c)
{
    size_t next = c->first + 1;
    while (next < c->n && strcmp(c->messages[next].role, "user") != 0) next++;
    if (next >= c->n) return false;
    c->first = next;
    return true;
}

static bool encode(conversation *c, encoded_text *ids)
{
    char *text = render(c);
    const bool good = text && trained_encode(&c->run, TEXT_CHAT, text, ids, &c->error);
    weft_free(text);
    return good;
}

/* Encodes the conversation. If an answer does not fit, the oldest turns are left out until
 * the rest takes half of the context. */
static bool encode_fitting(conversation *c, encoded_text *ids)
{
    const int64_t quarter = c->context / 4, room = c->a->tokens < quarter ? c->a->tokens : quarter;
    const size_t before = c->first;
    if (!encode(c, ids)) return false;
    if ((int64_t)ids->n + room > c->context)
        while ((int64_t)ids->n > c->context / 2 && drop_turn(c)) {
            free(ids->ids);
            if (!encode(c, ids)) return false;
        }
    if (c->first > before)
        fprintf(stderr,
                "weft: the context of %lld tokens is full: the model no longer sees the first %zu "
                "messages\n",
                (long long)c->context, c->first);
    if (ids->n && (int64_t)ids->n <= c->context) return true;
    weft_error_set(&c->error, WEFT_TOO_LARGE, "conversation",
                   "the message has %zu tokens with what surrounds it, but the context has %lld",
                   ids->n, (long long)c->context);
    free(ids->ids);
    return false;
}

/* Rewinds the decoder to what it has in common with the ids, or starts it anew. */
static bool rewind_to_common(conversation *c, const encoded_text *ids)
{
    size_t common = 0;
    while (common < c->n_read && common + 1 < ids->n && c->read[common] == ids->ids[common])
        common++;
    const bool start = !c->n_read || (c->run.traits.recurrent && common < c->n_read);
    if (start) common = 0;
    c->n_read = c->stats.reused = common;
    return (start ? weft_decoder_start(c->decoder, NULL, NULL, 1, &c->error)
                  : weft_decoder_rewind(c->decoder, (int64_t)common, &c->error)) == WEFT_OK;
}

/* Reads all ids but the last. */
static bool read_ids(conversation *c, const encoded_text *ids)
{
    const double started = tool_seconds();
    if (!rewind_to_common(c, ids)) return false;
    while (c->n_read + 1 < ids->n && !*c->interrupted) {
        const size_t left = ids->n - 1 - c->n_read, n = left < READ_CHUNK ? left : READ_CHUNK;
        if (weft_decoder_read(c->decoder, ids->ids + c->n_read, n, &c->error) != WEFT_OK)
            return false;
        memcpy(c->read + c->n_read, ids->ids + c->n_read, n * sizeof *c->read);
        c->n_read += n;
    }
    c->stats.read = c->n_read - c->stats.reused;
    c->stats.read_seconds = tool_seconds() - started;
    return true;
}

/* ---- Answers ---- */

/* Reads one token and chooses the next. */
static bool next_token(conversation *c, int32_t *token, size_t found)
{
    weft_tensor logs;
    weft_sampled_token chosen;
    if (weft_decoder_step(c->decoder, token, NULL, &c->error) != WEFT_OK) return false;
    c->read[c->n_read++] = *token;
    if (!weft_decoder_log_probs(c->decoder, &logs))
        return fail(c, WEFT_INTERNAL, "conversation", "the token step has no result");
    const weft_sampling_row row = {.log_probs = &logs,
                                   .tokens = c->read,
                                   .length = c->n_read,
                                   .found = found,
                                   .key = c->answers};
    if (weft_sampler_choose(c->sampler, &c->sampling, &row, &chosen, &c->error) != WEFT_OK)
        return false;
    *token = chosen.id;
    c->stats.log_prob += chosen.log_prob;
    return true;
}

/* Reports an answer that does not match its rule yet; fails if it could not go on. */
static bool check_answer(conversation *c, const int32_t *tokens, bool stuck)
{
    bool whole;
    if (!answer_rule_check(c->sampling.allows_context, tokens, c->stats.found, stuck, &whole,
                           &c->error))
        return false;
    if (!whole)
        fprintf(stderr, "weft: the answer ends before it matches, with the last of its tokens "
                        "(--tokens)\n");
    return true;
}

/* Finds the tokens of an answer after the last of the ids, and prints what is certain of their text.
 */
static bool find_tokens(conversation *c, const encoded_text *ids, growing_text *text,
                        int32_t *tokens)
{
    const double started = tool_seconds();
    const int64_t room = c->context + 1 - (int64_t)ids->n;
    const size_t max = (size_t)(c->a->tokens < room ? c->a->tokens : room);
    int32_t token = ids->ids[ids->n - 1];
    c->stats.found = 0;
    while (c->stats.found < max && !*c->interrupted) {
        if (!next_token(c, &token, c->stats.found)) return false;
        if (token < 0 || trained_ends_with(&c->run, token)) break;
        tokens[c->stats.found++] = token;
        if (growing_add(text, token, &c->error) != WEFT_OK ||
            growing_print(text, true, &c->error) != WEFT_OK)
            return false;
    }
    c->stats.found_seconds = tool_seconds() - started;
    return *c->interrupted || check_answer(c, tokens, token < 0);
}

/* Prints the rest of the text, which waited for more tokens, and a line end; adds the message. */
static bool finish(conversation *c, const growing_text *text, const int32_t *tokens)
{
    char *answer;
    if (weft_tokenizer_decode(c->run.target, tokens, c->stats.found, &answer, NULL, &c->error) !=
        WEFT_OK)
        return false;
    const bool empty = *c->interrupted && !*answer;
    bool good = empty || conversation_add(c, "assistant", answer);
    weft_text_clean(answer, true);
    const size_t bytes = strlen(answer), printed = text->printed < bytes ? text->printed : bytes;
    if (good && (printf("%s\n", answer + printed) < 0 || fflush(stdout) != 0))
        good = fail(c, WEFT_IO, "output", "cannot be written");
    free(answer);
    return good;
}

static bool answer(conversation *c, const encoded_text *ids)
{
    static const stop_texts no_stops = {0};
    growing_text text = {0};
    int32_t *tokens = calloc((size_t)c->context + 1, sizeof *tokens);
    weft_constrained_text *ruled = NULL;
    c->stats = (conversation_stats){0};
    c->sampling.allows = answer_rule_allows(&c->rule);
    if (c->sampling.allows) ruled = answer_rule_begin(&c->rule, &c->run, false, &c->error);
    c->sampling.allows_context = ruled;
    bool good = (tokens || no_memory(c)) && (ruled || !c->sampling.allows) &&
                growing_open(&text, c->run.target, &no_stops, "", NULL, 0, &c->error) == WEFT_OK &&
                read_ids(c, ids) && find_tokens(c, ids, &text, tokens);
    if (!good && text.printed) printf("\n");
    good = good && finish(c, &text, tokens);
    if (!good) c->n_read = 0; /* the decoder may have failed: start anew */
    c->answers++;
    answer_rule_end(ruled);
    growing_close(&text);
    free(tokens);
    return good;
}

bool conversation_answer(conversation *c)
{
    encoded_text ids;
    weft_error_clear(&c->error);
    if (!encode_fitting(c, &ids)) return false;
    const bool good = answer(c, &ids);
    free(ids.ids);
    return good;
}
