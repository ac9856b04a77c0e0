/* Requests of OpenAI's API as jobs: reads and checks the parameters. Those that weft does not have
 * are refused if they would change the answer, and ignored otherwise (docs/serve.md). */
#include "server.h"

#include "json/tree.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_STOPS 16

bool answer_fail(answer_error *e, unsigned status, const char *param, const char *format, ...)
{
    va_list arguments;
    if (e->status) return false;
    e->status = status;
    e->param = param;
    va_start(arguments, format);
    vsnprintf(e->message, sizeof e->message, format, arguments);
    va_end(arguments);
    return false;
}

static bool no_memory(job *j)
{
    return answer_fail(&j->error, 500, NULL, "out of memory");
}

/* ---- Values ---- */

/* A member; NULL if it is missing or null. */
static const cJSON *member(const cJSON *json, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    return cJSON_IsNull(item) ? NULL : item;
}

typedef struct number_row {
    const char *name;
    double min, max;
    bool whole;
} number_row;

/* Reads a number into *value, which stays as it is without one. */
static bool read_number(job *j, const cJSON *json, const number_row *row, double *value)
{
    const cJSON *item = member(json, row->name);
    if (!item) return true;
    const double x = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    if (!(x >= row->min && x <= row->max) || (row->whole && x != floor(x)))
        return answer_fail(&j->error, 400, row->name, "%s must be a%s number from %g to %g",
                           row->name, row->whole ? " whole" : "", row->min, row->max);
    *value = x;
    return true;
}

static bool read_flag(job *j, const cJSON *json, const char *name, bool *value)
{
    const cJSON *item = member(json, name);
    if (item && !cJSON_IsBool(item))
        return answer_fail(&j->error, 400, name, "%s must be true or false", name);
    if (item) *value = cJSON_IsTrue(item);
    return true;
}

/* ---- Parameters ---- */

static bool add_stop(job *j, const cJSON *item)
{
    if (!cJSON_IsString(item) || !*item->valuestring || j->stops.n == MAX_STOPS)
        return answer_fail(&j->error, 400, "stop",
                           "stop must be a text that is not empty, or a list of at most %d",
                           MAX_STOPS);
    j->stops.text[j->stops.n] = strdup(item->valuestring);
    return j->stops.text[j->stops.n++] || no_memory(j);
}

static bool read_stops(job *j, const cJSON *json)
{
    const cJSON *item, *stop = member(json, "stop");
    if (!stop) return true;
    j->stops.text = calloc(MAX_STOPS, sizeof *j->stops.text);
    if (!j->stops.text) return no_memory(j);
    if (!cJSON_IsArray(stop)) return add_stop(j, stop);
    cJSON_ArrayForEach(item, stop) if (!add_stop(j, item)) return false;
    return true;
}

/* Refuses what would change the answer. */
static bool check_unsupported(job *j, const cJSON *json)
{
    static const struct {
        const char *name;
        double neutral;
    } numbers[] = {{"frequency_penalty", 0}, {"presence_penalty", 0}};
    static const char *const others[] = {"logit_bias", "suffix",     "functions", "function_call",
                                         "audio",      "prediction", "grammar"};
    const cJSON *best = member(json, "best_of");
    bool echo = false;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double x = numbers[i].neutral;
        const number_row row = {numbers[i].name, -2, 2, false};
        if (!read_number(j, json, &row, &x)) return false;
        if (x != numbers[i].neutral)
            return answer_fail(&j->error, 400, row.name,
                               "%s is not supported; there is repetition_penalty", row.name);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const cJSON *item = member(json, others[i]);
        if (item && !((cJSON_IsObject(item) || cJSON_IsArray(item)) && !item->child))
            return answer_fail(&j->error, 400, others[i], "%s is not supported", others[i]);
    }
    if (best && !(cJSON_IsNumber(best) && best->valuedouble == (double)j->n))
        return answer_fail(&j->error, 400, "best_of", "best_of must be n");
    if (!read_flag(j, json, "echo", &echo)) return false;
    return !echo || answer_fail(&j->error, 400, "echo", "echo is not supported");
}

/* logprobs: of completions a number of alternatives; of chats a flag, with top_logprobs. */
static bool read_scores(job *j, const cJSON *json)
{
    static const number_row row = {"logprobs", 0, SERVER_TOP, true},
                            top = {"top_logprobs", 0, SERVER_TOP, true};
    double n = -1;
    if (j->kind == JOB_COMPLETION) {
        if (!read_number(j, json, &row, &n)) return false;
        j->wants_scores = n >= 0;
    } else {
        n = 0;
        if (!read_flag(j, json, "logprobs", &j->wants_scores) || !read_number(j, json, &top, &n))
            return false;
    }
    j->top = j->wants_scores ? (int)n : 0;
    return true;
}

static bool read_sampling(job *j, const cJSON *json)
{
    enum { TEMPERATURE, TOP_P, TOP_K, MIN_P, PENALTY, MIN_TOKENS, SEED, N, ROWS };
    static const number_row rows[] = {
        [TEMPERATURE] = {"temperature", 0, 100, false},
        [TOP_P] = {"top_p", 0, 1, false},
        [TOP_K] = {"top_k", -1, 1e9, true},
        [MIN_P] = {"min_p", 0, 1, false},
        [PENALTY] = {"repetition_penalty", 1e-3, 1e3, false},
        [MIN_TOKENS] = {"min_tokens", 0, 1e9, true},
        [SEED] = {"seed", -0x1p53, 0x1p53, true},
        [N] = {"n", 1, SERVER_CHOICES, true},
    };
    double x[ROWS] = {[TEMPERATURE] = 1, [TOP_P] = 1, [PENALTY] = 1, [SEED] = NAN, [N] = 1};
    weft_sampling_options *o = &j->options;
    for (size_t i = 0; i < ROWS; i++)
        if (!read_number(j, json, &rows[i], &x[i])) return false;
    j->n = (size_t)x[N];
    o->greedy = x[TEMPERATURE] == 0;
    o->temperature = x[TEMPERATURE];
    o->top_p = x[TOP_P];
    o->top_k = x[TOP_K] > 0 ? (int64_t)x[TOP_K] : 0;
    /* The smallest set that reaches 0 is the most likely token. */
    if (o->top_p == 0) o->top_k = 1;
    o->min_p = x[MIN_P];
    o->repetition_penalty = x[PENALTY];
    o->min_len = (int64_t)x[MIN_TOKENS];
    o->seed =
        isnan(x[SEED]) ? ((uint64_t)j->created << 20) + j->number : (uint64_t)(int64_t)x[SEED];
    return true;
}

static bool read_length(job *j, const cJSON *json)
{
    static const number_row newer = {"max_completion_tokens", 1, 1e9, true},
                            older = {"max_tokens", 1, 1e9, true};
    double n = j->kind == JOB_CHAT ? 1e9 : 16;
    if (!read_number(j, json, &older, &n) || !read_number(j, json, &newer, &n)) return false;
    const long most = j->server->a->max_tokens;
    j->max_tokens = most && n > (double)most ? most : (int64_t)n;
    return true;
}

static bool read_stream(job *j, const cJSON *json)
{
    const cJSON *options = member(json, "stream_options");
    return read_flag(j, json, "stream", &j->stream) &&
           (!options || read_flag(j, options, "include_usage", &j->wants_usage));
}

static bool read_model(job *j, const cJSON *json)
{
    const cJSON *model = member(json, "model");
    const char *name = j->server->name;
    if (!model || (cJSON_IsString(model) && !strcmp(model->valuestring, name))) return true;
    answer_fail(&j->error, 404, "model", "the model is not served here: expected \"%s\"", name);
    j->error.code = "model_not_found";
    return false;
}

/* ---- Jobs ---- */

/* Checks the prompts and limits the answers to the positions that are left. */
static bool fit(job *j)
{
    const int64_t context = j->server->context;
    int64_t longest = 0;
    for (size_t i = 0; i < j->n_prompts; i++)
        if ((int64_t)j->prompts[i].n > longest) longest = (int64_t)j->prompts[i].n;
    if (longest > context) {
        answer_fail(&j->error, 400, j->kind == JOB_CHAT ? "messages" : "prompt",
                    "the prompt has %lld tokens, at most %lld fit", (long long)longest,
                    (long long)context);
        j->error.code = "context_length_exceeded";
        return false;
    }
    if (j->max_tokens > context - longest + 1) j->max_tokens = context - longest + 1;
    return true;
}

static bool make_choices(job *j)
{
    const server *s = j->server;
    weft_error error = WEFT_NO_ERROR;
    j->n_choices = j->n * j->n_prompts;
    if (j->n_choices > SERVER_CHOICES)
        return answer_fail(&j->error, 400, "n", "n times the prompts is over %d", SERVER_CHOICES);
    j->choices = calloc(j->n_choices, sizeof *j->choices);
    if (!j->choices) return no_memory(j);
    for (size_t i = 0; i < j->n_choices; i++) {
        job_choice *c = &j->choices[i];
        c->job = j;
        c->prompt = i / j->n;
        const encoded_text *p = &j->prompts[c->prompt];
        const char *given = j->texts[c->prompt] ? j->texts[c->prompt] : "";
        if (growing_open(&c->growing, s->run.target, &j->stops, given, p->ids, p->n, &error) !=
            WEFT_OK)
            return answer_fail(&j->error, 500, NULL, "%s", error.message);
        if (j->constraint && !format_begin(c)) return false;
        if (!j->wants_scores) continue;
        c->scores = calloc((size_t)j->max_tokens, sizeof *c->scores);
        if (!c->scores) return no_memory(j);
    }
    return true;
}

static bool read_generation(job *j, const cJSON *json)
{
    server *s = j->server;
    j->options.ends = s->run.ends;
    j->options.n_ends = s->run.n_ends;
    j->options.banned = s->banned;
    j->options.n_banned = s->n_banned;
    return read_stream(j, json) && read_sampling(j, json) && read_length(j, json) &&
           read_scores(j, json) && read_stops(j, json) && check_unsupported(j, json) &&
           format_read(j, json) && prompt_read(j, json) && fit(j) && make_choices(j);
}

static bool read_embedding(job *j, const cJSON *json)
{
    const cJSON *format = member(json, "encoding_format"), *size = member(json, "dimensions");
    const size_t width = (size_t)weft_embedder_width(j->server->embedder);
    if (format && !(cJSON_IsString(format) && (!strcmp(format->valuestring, "float") ||
                                               !strcmp(format->valuestring, "base64"))))
        return answer_fail(&j->error, 400, "encoding_format", "expected \"float\" or \"base64\"");
    j->base64 = format && format->valuestring[0] == 'b';
    if (size && !(cJSON_IsNumber(size) && size->valuedouble == (double)width))
        return answer_fail(&j->error, 400, "dimensions", "embeddings have %zu dimensions", width);
    if (!prompt_read(j, json)) return false;
    j->vectors = calloc(j->n_prompts * width + 1, sizeof *j->vectors);
    return j->vectors || no_memory(j);
}

static bool read_body(job *j, const char *body, size_t bytes)
{
    json_failure why;
    if (!weft_text_is_utf8(body, bytes))
        return answer_fail(&j->error, 400, NULL, "the body is not UTF-8");
    cJSON *json = weft__json_parse(body, bytes, &why);
    if (!json && why.no_memory) return no_memory(j);
    bool good = json || answer_fail(&j->error, 400, NULL,
                                    "the body is not JSON, near byte %zu, or nested too deeply",
                                    why.position);
    if (good && !cJSON_IsObject(json))
        good = answer_fail(&j->error, 400, NULL, "the body must be a JSON object");
    good = good && read_model(j, json) &&
           (j->kind == JOB_EMBEDDING ? read_embedding(j, json) : read_generation(j, json));
    cJSON_Delete(json);
    return good;
}

job *request_read(server *s, job_kind kind, const char *body, size_t bytes)
{
    static const char *const prefixes[] = {"cmpl", "chatcmpl", "embd"};
    job *j = calloc(1, sizeof *j);
    if (!j) return NULL;
    if (pthread_cond_init(&j->changed, NULL) != 0) {
        free(j);
        return NULL;
    }
    j->server = s;
    j->kind = kind;
    j->created = (long long)time(NULL);
    j->deadline = tool_seconds() + s->a->timeout;
    pthread_mutex_lock(&s->lock);
    j->number = ++s->jobs;
    pthread_mutex_unlock(&s->lock);
    snprintf(j->id, sizeof j->id, "%s-%llx-%llu", prefixes[kind], (unsigned long long)j->created,
             (unsigned long long)j->number);
    /* A tree takes many times the memory of its text: there is one at a time. */
    pthread_mutex_lock(&s->reading);
    read_body(j, body, bytes);
    pthread_mutex_unlock(&s->reading);
    return j;
}

void job_free(job *j)
{
    if (!j) return;
    for (size_t i = 0; j->choices && i < j->n_choices; i++) {
        growing_close(&j->choices[i].growing);
        free(j->choices[i].scores);
    }
    format_free(j);
    for (size_t i = 0; i < j->n_prompts; i++) {
        if (j->prompts) free(j->prompts[i].ids);
        if (j->texts) free(j->texts[i]);
    }
    for (size_t i = 0; i < j->stops.n; i++) free(j->stops.text[i]);
    free(j->stops.text);
    free(j->prompts);
    free(j->texts);
    free(j->choices);
    free(j->vectors);
    pthread_cond_destroy(&j->changed);
    free(j);
}
