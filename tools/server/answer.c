/* Answers as OpenAI's JSON: whole ones, events of streams, errors, the list of models, and metrics. */
#include "answer.h"

#include "json/tree.h"

#include <stdlib.h>
#include <string.h>

/* The text of a tree, which is freed; NULL if memory is out. */
char *answer_print(json_maker *m, cJSON *json)
{
    char *text = m->no_memory ? NULL : weft__json_print(json, false);
    cJSON_Delete(json);
    return text;
}

void answer_null(json_maker *m, cJSON *to, const char *name)
{
    weft__json_add(m, to, name, cJSON_CreateNull());
}

char *answer_error_json(const answer_error *e)
{
    json_maker m = {false};
    cJSON *json = cJSON_CreateObject(), *error = json_add_object(&m, json, "error");
    const char *type = e->status == 401   ? "authentication_error"
                       : e->status == 429 ? "rate_limit_error"
                       : e->status >= 500 ? "server_error"
                                          : "invalid_request_error";
    json_add_text(&m, error, "message", e->message);
    json_add_text(&m, error, "type", type);
    if (e->param)
        json_add_text(&m, error, "param", e->param);
    else
        answer_null(&m, error, "param");
    if (e->code)
        json_add_text(&m, error, "code", e->code);
    else
        answer_null(&m, error, "code");
    return answer_print(&m, json);
}

/* ---- Log probabilities ---- */

/* The text of a token alone; NULL if memory is out. */
static char *token_text(const server *s, int32_t id)
{
    char *text = NULL;
    weft_tokenizer_decode(s->run.target, &id, 1, &text, NULL, NULL);
    if (text && !*text) {
        free(text);
        text = strdup(weft_tokenizer_piece(s->run.target, id));
    }
    return text;
}

/* JSON has no infinity: the smallest number that OpenAI's API writes. */
static double clamped(double x)
{
    return x < -9999 ? -9999 : x;
}

static void add_token(const server *s, json_maker *m, cJSON *to, int32_t id, double log_prob)
{
    char *text = token_text(s, id);
    json_add_text(m, to, "token", text ? text : "");
    m->no_memory |= !text;
    json_add_number(m, to, "logprob", clamped(log_prob));
    cJSON *bytes = json_add_array(m, to, "bytes");
    for (const char *at = text; at && *at; at++)
        weft__json_add(m, bytes, NULL, cJSON_CreateNumber((unsigned char)*at));
    free(text);
}

/* Of a chat: {"content": [{token, logprob, bytes, top_logprobs}]}. */
static void add_chat_scores(const job *j, json_maker *m, cJSON *to, const token_score *scores,
                            size_t n)
{
    cJSON *list = json_add_array(m, json_add_object(m, to, "logprobs"), "content");
    for (size_t i = 0; i < n; i++) {
        cJSON *item = json_add_object(m, list, NULL);
        add_token(j->server, m, item, scores[i].token, scores[i].log_prob);
        cJSON *top = json_add_array(m, item, "top_logprobs");
        for (int k = 0; k < j->top && scores[i].top[k] >= 0; k++)
            add_token(j->server, m, json_add_object(m, top, NULL), scores[i].top[k],
                      scores[i].top_log_probs[k]);
    }
}

/* Of a completion: lists of tokens, log probabilities, alternatives and places in the text. */
static void add_completion_scores(const job_choice *c, json_maker *m, cJSON *to, size_t first,
                                  size_t n)
{
    const job *j = c->job;
    cJSON *all = json_add_object(m, to, "logprobs");
    cJSON *tokens = json_add_array(m, all, "tokens");
    cJSON *log_probs = json_add_array(m, all, "token_logprobs");
    cJSON *tops = json_add_array(m, all, "top_logprobs");
    cJSON *offsets = json_add_array(m, all, "text_offset");
    for (size_t i = first; i < first + n; i++) {
        const token_score *score = &c->scores[i];
        char *text = token_text(j->server, score->token);
        weft__json_add(m, tokens, NULL, text ? cJSON_CreateString(text) : NULL);
        free(text);
        weft__json_add(m, log_probs, NULL, cJSON_CreateNumber(clamped(score->log_prob)));
        weft__json_add(m, offsets, NULL, cJSON_CreateNumber(i ? (double)c->scores[i - 1].end : 0));
        cJSON *top = json_add_object(m, tops, NULL);
        for (int k = 0; k < j->top && score->top[k] >= 0; k++) {
            text = token_text(j->server, score->top[k]);
            if (text) json_add_number(m, top, text, clamped(score->top_log_probs[k]));
            m->no_memory |= !text;
            free(text);
        }
    }
}

void answer_scores(const job_choice *c, json_maker *m, cJSON *to, size_t first, size_t n)
{
    if (!c->scores)
        answer_null(m, to, "logprobs");
    else if (c->job->kind == JOB_CHAT)
        add_chat_scores(c->job, m, to, c->scores + first, n);
    else
        add_completion_scores(c, m, to, first, n);
}

/* ---- Whole answers ---- */

cJSON *answer_begin(const job *j, json_maker *m, const char *object)
{
    cJSON *json = cJSON_CreateObject();
    json_add_text(m, json, "id", j->id);
    json_add_text(m, json, "object", object);
    json_add_number(m, json, "created", (double)j->created);
    json_add_text(m, json, "model", j->server->name);
    return json;
}

void answer_usage(const job *j, json_maker *m, cJSON *to)
{
    size_t read = 0, found = 0;
    cJSON *usage = json_add_object(m, to, "usage");
    for (size_t i = 0; i < j->n_prompts; i++) read += j->prompts[i].n;
    for (size_t i = 0; i < j->n_choices; i++) found += j->choices[i].n_tokens;
    json_add_number(m, usage, "prompt_tokens", (double)read);
    if (j->kind != JOB_EMBEDDING) json_add_number(m, usage, "completion_tokens", (double)found);
    json_add_number(m, usage, "total_tokens", (double)(read + found));
}

/* Adds bytes [from, to) of the text of an answer. */
void answer_text(json_maker *m, cJSON *json, const char *name, const job_choice *c, size_t from,
                 size_t to)
{
    char *text = malloc(to - from + 1);
    m->no_memory |= !text;
    if (!text) return;
    memcpy(text, c->growing.text + from, to - from);
    text[to - from] = 0;
    json_add_text(m, json, name, text);
    free(text);
}

static char *embeddings(const job *j)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t width = (size_t)weft_embedder_width(j->server->embedder);
    json_maker m = {false};
    cJSON *json = cJSON_CreateObject();
    json_add_text(&m, json, "object", "list");
    cJSON *data = json_add_array(&m, json, "data");
    for (size_t i = 0; i < j->n_prompts; i++) {
        const float *vector = j->vectors + i * width;
        cJSON *item = json_add_object(&m, data, NULL);
        json_add_text(&m, item, "object", "embedding");
        json_add_number(&m, item, "index", (double)i);
        if (!j->base64) {
            cJSON *list = json_add_array(&m, item, "embedding");
            for (size_t k = 0; k < width; k++)
                weft__json_add(&m, list, NULL, cJSON_CreateNumber((double)vector[k]));
            continue;
        }
        const size_t bytes = width * sizeof *vector;
        const unsigned char *from = (const unsigned char *)vector;
        char *text = calloc(bytes / 3 * 4 + 8, 1), *to = text;
        for (size_t k = 0; text && k < bytes; k += 3) {
            const unsigned b = k + 1 < bytes ? from[k + 1] : 0, c = k + 2 < bytes ? from[k + 2] : 0;
            *to++ = digits[from[k] >> 2];
            *to++ = digits[(from[k] & 3) << 4 | b >> 4];
            *to++ = k + 1 < bytes ? digits[(b & 15) << 2 | c >> 6] : '=';
            *to++ = k + 2 < bytes ? digits[c & 63] : '=';
        }
        json_add_text(&m, item, "embedding", text ? text : "");
        m.no_memory |= !text;
        free(text);
    }
    json_add_text(&m, json, "model", j->server->name);
    answer_usage(j, &m, json);
    return answer_print(&m, json);
}

char *answer_json(server *s, job *j)
{
    const bool chat = j->kind == JOB_CHAT;
    json_maker m = {false};
    (void)s;
    if (j->kind == JOB_EMBEDDING) return embeddings(j);
    cJSON *json = answer_begin(j, &m, chat ? "chat.completion" : "text_completion");
    cJSON *choices = json_add_array(&m, json, "choices");
    for (size_t i = 0; i < j->n_choices; i++) {
        const job_choice *c = &j->choices[i];
        cJSON *item = json_add_object(&m, choices, NULL);
        json_add_number(&m, item, "index", (double)i);
        if (chat) {
            cJSON *message = json_add_object(&m, item, "message");
            json_add_text(&m, message, "role", "assistant");
            answer_text(&m, message, "content", c, 0, c->growing.clear);
        } else {
            answer_text(&m, item, "text", c, 0, c->growing.clear);
        }
        answer_scores(c, &m, item, 0, c->n_tokens);
        json_add_text(&m, item, "finish_reason", c->finish ? c->finish : "stop");
    }
    answer_usage(j, &m, json);
    return answer_print(&m, json);
}

/* ---- Models and metrics ---- */

char *answer_models(const server *s, const char *id)
{
    json_maker m = {false};
    cJSON *json = cJSON_CreateObject(), *model = json;
    if (!id) {
        json_add_text(&m, json, "object", "list");
        model = json_add_object(&m, json_add_array(&m, json, "data"), NULL);
    }
    json_add_text(&m, model, "id", s->name);
    json_add_text(&m, model, "object", "model");
    json_add_number(&m, model, "created", (double)s->started);
    json_add_text(&m, model, "owned_by", "weft");
    return answer_print(&m, json);
}

char *answer_metrics(server *s)
{
    pthread_mutex_lock(&s->lock);
    const server_counts c = s->counts;
    const weft_batcher_info b = s->info;
    const double pending = (double)s->pending;
    pthread_mutex_unlock(&s->lock);
    const struct {
        const char *name, *type, *help;
        double value;
    } rows[] = {
        {"requests_answered_total", "counter", "Requests that were answered.", (double)c.answered},
        {"requests_refused_total", "counter", "Requests with an error of the client.",
         (double)c.refused},
        {"requests_failed_total", "counter", "Requests with an error of the server.",
         (double)c.failed},
        {"requests_aborted_total", "counter", "Requests whose client went away.",
         (double)c.aborted},
        {"generated_tokens_total", "counter", "Tokens of answers.", (double)c.new_tokens},
        {"prompt_tokens_read_total", "counter", "Tokens of prompts that were computed.",
         (double)b.read_tokens},
        {"prompt_tokens_reused_total", "counter",
         "Tokens of prompts whose keys and values were there.", (double)b.reused_tokens},
        {"steps_total", "counter", "Token steps.", (double)b.steps},
        {"answers_pending", "gauge", "Answers that are not finished.", pending},
        {"slots_used", "gauge", "Answers with a slot.", (double)b.live},
        {"slots", "gauge", "Slots.", (double)b.slots},
        {"prefix_cache_bytes", "gauge", "Bytes of keys and values of earlier requests.",
         (double)b.prefix_bytes},
    };
    char *text = cJSON_malloc(sizeof rows / sizeof *rows * 256), *end = text;
    for (size_t i = 0; text && i < sizeof rows / sizeof *rows; i++)
        end += sprintf(end, "# HELP weft_%s %s\n# TYPE weft_%s %s\nweft_%s %.17g\n", rows[i].name,
                       rows[i].help, rows[i].name, rows[i].type, rows[i].name, rows[i].value);
    return text;
}
