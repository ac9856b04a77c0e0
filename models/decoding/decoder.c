/* The decoder: plans of one step for a few lengths and numbers of rows, over states that they
 * share.
 *
 * The states have room for the most positions and rows. A plan looks at the first 32, 48, 64, ...
 * positions and has rows for 1 to 8, 10, 12, 14, 16, 20, ... sentences, so that a step costs little
 * more than its position and the sentences that are left need. Sessions of all plans share one
 * arena: what a step leaves behind lies in the states.
 *
 * As long as the rows of a sentence have read the same, its first row is enough: then the rows of
 * the states are narrow, row i is sentence i, and the step that makes them differ spreads them. */
#include <weft/decode.h>
#include <weft/session.h>

#include "zoo/text.h"

#include <weft/ops.h>

#include <stdlib.h>
#include <string.h>

#define MIN_KEYS   32
#define MIN_SOURCE 8
/* Tokens that are read at once, where so many are known. */
static const int64_t chunks[] = {64, 16, 4, 1};

/* What a plan is made for. */
typedef struct sizes {
    int64_t source_len, key_len; /* key_len 0: the encoder; both 0: what the parameters tell */
    int64_t sentences, beams;
    int64_t reads; /* tokens of each row to read only; 0: a step with logits */
} sizes;

/* A graph of some sizes, planned. */
typedef struct stage {
    sizes z;
    weft_plan *plan;
    weft_session *session; /* NULL until it runs */
    weft_value source, token, position, parents, updated, logits, log_probs;
    struct stage *next;
} stage;

struct weft_decoder {
    const weft_model *model;
    double values[WEFT_MODEL_OPTIONS];
    weft_decoder_options o;
    int64_t rows, vocab, position, source_len; /* source_len 0: not started */
    int64_t live;                              /* sentences, the first of the states */
    bool has_source, has_steps;
    bool narrow;        /* the rows of the states are sentences */
    weft_params *store; /* the model's parameters, shared, and our states */
    size_t n_kept;      /* of the store, those that do not belong to sentences: they come first */
    stage *stages, *last;
    size_t n_stages;
    void *arena, *workspace; /* of all sessions */
    size_t arena_bytes, workspace_bytes;
    int32_t *source;  /* [sentences or, recomputing, rows][max_source] */
    int32_t *parents; /* [rows], of the states' rows */
    int32_t *few;     /* [rows], tokens: of a narrow step, or with those of idle rows */
    int32_t *tokens;  /* recomputing: [rows][max_len], then as much again to reorder into */
    int32_t *fed;     /* recomputing: [rows][max_len], as fed */
    weft_error error;
};

/* ---- Options of the model ---- */

static size_t option_at(const weft_model *model, const char *name)
{
    size_t i = 0;
    while (i < model->n_options && strcmp(model->options[i].name, name) != 0) i++;
    return i;
}

static double option(const weft_model *model, const double *values, const char *name, double absent)
{
    size_t i = option_at(model, name);
    return i < model->n_options ? values[i] : absent;
}

static void set_option(weft_decoder *d, const char *name, int64_t value)
{
    size_t i = option_at(d->model, name);
    if (i < d->model->n_options) d->values[i] = (double)value;
}

int64_t weft_model_max_positions(const weft_model *model, const double *values)
{
    if (!model || !values) return INT64_MAX;
    if ((weft_positions)option(model, values, "positions", WEFT_POSITIONS_NONE) !=
        WEFT_POSITIONS_LEARNED)
        return INT64_MAX;
    return (int64_t)option(model, values, "max_positions", 0);
}

/* ---- Lengths ---- */

static int64_t keys_for(const weft_decoder *d, int64_t length)
{
    return text_bucket(MIN_KEYS, length, d->o.max_len);
}

static int64_t source_for(const weft_decoder *d, int64_t length)
{
    return d->has_source ? text_bucket(MIN_SOURCE, length, d->o.max_source) : 0;
}

/* Sentences of a plan that n of them run on. Models without steps always take all. */
static int64_t sentences_for(const weft_decoder *d, int64_t n)
{
    n = text_rows(n);
    return d->has_steps && n < d->o.sentences ? n : d->o.sentences;
}

int64_t weft_decoder_padded(const weft_decoder *decoder, int64_t length)
{
    if (!decoder || !decoder->has_source) return 0;
    return source_for(decoder, length);
}

/* ---- Graphs ---- */

static weft_decode_io decode_io(const weft_decoder *d, const sizes *z)
{
    return (weft_decode_io){.sentences = z->sentences,
                            .beams = z->beams,
                            .max_sentences = d->o.sentences,
                            .max_beams = d->o.beams,
                            .count = z->reads ? z->reads : 1,
                            .max_len = d->o.max_len,
                            .key_len = z->key_len,
                            .max_source = d->has_source ? d->o.max_source : 0,
                            .source_len = z->source_len};
}

/* The graph of a model that has steps. */
static void build_steps(weft_decoder *d, weft_graph *g, stage *s)
{
    weft_decode_io io = decode_io(d, &s->z);
    if (s->z.key_len)
        d->model->step(g, d->values, &io);
    else if (s->z.source_len)
        d->model->encode(g, d->values, &io);
    else
        d->model->prepare(g, d->values, &io);
    s->source = io.source;
    s->token = io.token;
    s->position = io.position;
    s->parents = io.parents;
    s->updated = io.updated;
    s->logits = io.logits;
}

/* The whole model over the first key_len tokens, of which one position's logits are wanted: the
 * rows `position` of [rows * key_len, vocab]. */
static void build_whole(weft_decoder *d, weft_graph *g, stage *s)
{
    weft_model_io io = {.vocab = 0};
    set_option(d, "batch", d->rows);
    set_option(d, "length", s->z.key_len);
    set_option(d, "target_len", s->z.key_len);
    set_option(d, "source_len", s->z.source_len);
    d->model->build(g, d->values, false, &io);
    s->source = io.source;
    s->token = io.target_in;
    s->position = weft_input(g, "position", WEFT_I32, WEFT_SHAPE(d->rows));
    int64_t vocab = weft_dim(g, io.output, -1);
    weft_value all = weft_reshape(g, io.output, WEFT_SHAPE(d->rows * s->z.key_len, vocab));
    s->logits = weft_embedding(g, all, s->position, -1);
}

static void close_sessions(weft_decoder *d)
{
    for (stage *s = d->stages; s; s = s->next) {
        weft_session_free(s->session);
        s->session = NULL;
    }
    d->last = NULL;
}

static bool fail(weft_decoder *d, weft_status status, const char *where, const char *message)
{
    weft_error_set(&d->error, status, where, "%s", message);
    return false;
}

static bool plan_stage(weft_decoder *d, stage *s)
{
    weft_graph *g = weft_graph_new();
    if (!g) return fail(d, WEFT_NO_MEMORY, "decoder", "no memory for a graph");
    if (d->has_steps)
        build_steps(d, g, s);
    else
        build_whole(d, g, s);
    bool steps = s->z.key_len && !s->z.reads;
    weft_value targets[3];
    size_t n = 0;
    if (weft_is_value(s->updated)) targets[n++] = s->updated;
    if (steps) {
        s->log_probs = weft_name(g, weft_log_softmax(g, s->logits, -1), "log_probs");
        targets[n++] = s->logits;
        targets[n++] = s->log_probs;
        d->vocab = weft_dim(g, s->logits, -1);
    }
    const weft_error *e = weft_graph_error(g);
    if (e->status != WEFT_OK)
        fail(d, e->status, e->where, e->message);
    else if (weft_params_init(d->store, g, 0, &d->error) == WEFT_OK)
        s->plan = weft_plan_new(g, targets, n, NULL, &d->error);
    weft_graph_free(g);
    return s->plan != NULL;
}

/* Makes memory that all sessions share hold `bytes`. If it was too small, all are opened anew; so
 * it grows by half at least. */
static bool share_memory(weft_decoder *d, void **memory, size_t *have, size_t bytes)
{
    if (bytes <= *have) return true;
    close_sessions(d);
    free(*memory);
    *have = bytes > *have / 2 * 3 ? bytes : *have / 2 * 3;
    *memory = weft_alloc(*have);
    if (*memory) return true;
    *have = 0;
    return fail(d, WEFT_NO_MEMORY, "decoder", "no memory for a session");
}

static bool open_stage(weft_decoder *d, stage *s)
{
    size_t arena = weft_plan_get_stats(s->plan).arena_bytes;
    size_t workspace = weft_session_workspace(s->plan, d->o.threads);
    if (!share_memory(d, &d->arena, &d->arena_bytes, arena) ||
        !share_memory(d, &d->workspace, &d->workspace_bytes, workspace))
        return false;
    if (s->session) return true;
    weft_session_options o = {.threads = d->o.threads,
                              .arena = d->arena,
                              .arena_bytes = d->arena_bytes,
                              .workspace = d->workspace,
                              .workspace_bytes = d->workspace_bytes};
    s->session = weft_session_new(s->plan, d->store, &o, &d->error);
    return s->session != NULL;
}

static bool same_sizes(const sizes *a, const sizes *b)
{
    return a->source_len == b->source_len && a->key_len == b->key_len &&
           a->sentences == b->sentences && a->beams == b->beams && a->reads == b->reads;
}

/* The stage of these sizes, ready to be fed; NULL on failure. */
static stage *stage_for(weft_decoder *d, sizes z)
{
    stage *s = d->stages;
    while (s && !same_sizes(&s->z, &z)) s = s->next;
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s) {
            fail(d, WEFT_NO_MEMORY, "decoder", "no memory for a plan");
            return NULL;
        }
        s->z = z;
        if (!plan_stage(d, s)) {
            free(s);
            return NULL;
        }
        s->next = d->stages;
        d->stages = s;
        d->n_stages++;
    }
    return open_stage(d, s) ? s : NULL;
}

/* ---- The decoder ---- */

/* The options with what zeros stand for. */
static weft_decoder_options filled(const weft_model *model, const double *values,
                                   const weft_decoder_options *options)
{
    weft_decoder_options o = options ? *options : (weft_decoder_options){0};
    int64_t most = weft_model_max_positions(model, values);
    if (most > WEFT_DECODER_LEN) most = WEFT_DECODER_LEN;
    if (!o.sentences) o.sentences = 1;
    if (!o.beams) o.beams = 1;
    if (!o.max_len) o.max_len = most;
    if (!o.max_source) o.max_source = most;
    return o;
}

static weft_status check_options(const weft_model *model, const double *values,
                                 const weft_decoder_options *o, weft_error *error)
{
    bool has_source = option_at(model, "source_len") < model->n_options;
    bool has_length = option_at(model, has_source ? "target_len" : "length") < model->n_options &&
                      option_at(model, "batch") < model->n_options;
    int64_t most = weft_model_max_positions(model, values);
    if (option_at(model, "vocab") == model->n_options || model->looks_ahead || !has_length)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, model->name,
                              "is no model that says one token after another");
    if (o->sentences < 1 || o->beams < 1 || o->max_len < 1 || o->sentences > INT32_MAX / o->beams ||
        o->max_len > INT32_MAX / (o->sentences * o->beams) ||
        (has_source && (o->max_source < 1 || o->max_source > INT32_MAX)))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "decoder",
                              "needs sentences, beams and lengths of at least 1 and not too many, "
                              "got %lld, %lld, %lld positions, %lld of a source",
                              (long long)o->sentences, (long long)o->beams, (long long)o->max_len,
                              (long long)o->max_source);
    if (o->max_len > most || (has_source && o->max_source > most))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, model->name,
                              "has learned %lld positions, asked for %lld and %lld of a source",
                              (long long)most, (long long)o->max_len,
                              (long long)(has_source ? o->max_source : 0));
    return WEFT_OK;
}

/* Every parameter of a step must be there: a wrong store is told of here, not filled up. */
static bool check_params(weft_decoder *d, const weft_params *params)
{
    weft_graph *g = weft_graph_new();
    stage s = {.z = {.source_len = d->has_source ? 1 : 0, .key_len = 1}};
    bool good = g != NULL;
    if (g) build_whole(d, g, &s);
    size_t n = g ? weft_graph_params(g, NULL, 0) : 0;
    weft_value *values = calloc(n + 1, sizeof *values);
    if (values && g) weft_graph_params(g, values, n);
    if (!g || !values)
        good = fail(d, WEFT_NO_MEMORY, "decoder", "no memory");
    else if (weft_graph_status(g) != WEFT_OK)
        good = fail(d, weft_graph_error(g)->status, weft_graph_error(g)->where,
                    weft_graph_error(g)->message);
    for (size_t i = 0; good && i < n; i++) {
        const char *name = weft_name_of(g, values[i]);
        if (!weft_params_get(params, name, NULL))
            good = fail(d, WEFT_NOT_FOUND, name, "is not in the parameter store");
    }
    free(values);
    weft_graph_free(g);
    return good;
}

static bool run(weft_decoder *d, stage *s)
{
    if (weft_run(s->session) == WEFT_OK) return true;
    const weft_error *e = weft_session_error(s->session);
    return fail(d, e->status, e->where, e->message);
}

/* What follows from the parameters is computed once. */
static bool prepare(weft_decoder *d)
{
    weft_graph *g = weft_graph_new();
    stage s = {.z = {.sentences = 1}};
    bool good = g != NULL || fail(d, WEFT_NO_MEMORY, "decoder", "no memory for a graph");
    if (good) build_steps(d, g, &s);
    bool empty = !weft_is_value(s.updated) && weft_graph_status(g) == WEFT_OK;
    weft_graph_free(g);
    stage *made = good && !empty ? stage_for(d, s.z) : NULL;
    return good && (empty || (made && run(d, made)));
}

static bool make(weft_decoder *d, const weft_params *params)
{
    int64_t rows = d->rows, sources = d->has_steps ? d->o.sentences : rows;
    d->store = weft_params_new();
    d->parents = calloc((size_t)rows, sizeof *d->parents);
    d->few = calloc((size_t)rows, sizeof *d->few);
    if (d->has_source) d->source = calloc((size_t)(sources * d->o.max_source), sizeof *d->source);
    if (!d->has_steps) {
        d->tokens = calloc((size_t)(2 * rows * d->o.max_len), sizeof *d->tokens);
        d->fed = calloc((size_t)(rows * d->o.max_len), sizeof *d->fed);
    }
    if (!d->store || !d->parents || !d->few || (d->has_source && !d->source) ||
        (!d->has_steps && (!d->tokens || !d->fed)))
        return fail(d, WEFT_NO_MEMORY, "decoder", "no memory");
    if (!check_params(d, params)) return false;
    if (weft_params_share(d->store, params, &d->error) != WEFT_OK) return false;
    if (d->has_steps && d->model->prepare && !prepare(d)) return false;
    d->n_kept = weft_params_count(d->store);
    sizes first = {.source_len = source_for(d, 1),
                   .key_len = keys_for(d, 1),
                   .sentences = d->o.sentences,
                   .beams = d->o.beams};
    return stage_for(d, first) != NULL;
}

weft_decoder *weft_decoder_new(const weft_model *model, const double *values,
                               const weft_params *params, const weft_decoder_options *options,
                               weft_error *error)
{
    if (!model || !values || !params) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "decoder",
                       "the model, its values or the parameters are NULL");
        return NULL;
    }
    const weft_decoder_options o = filled(model, values, options);
    if (check_options(model, values, &o, error) != WEFT_OK) return NULL;
    weft_decoder *d = calloc(1, sizeof *d);
    if (!d) {
        weft_error_set(error, WEFT_NO_MEMORY, "decoder", "no memory");
        return NULL;
    }
    d->model = model;
    memcpy(d->values, values, model->n_options * sizeof *values);
    d->o = o;
    d->rows = o.sentences * o.beams;
    d->live = o.sentences;
    d->has_source = option_at(model, "source_len") < model->n_options;
    d->has_steps = !o.recompute && model->step && (!d->has_source || model->encode);
    if (make(d, params)) return d;
    weft_error_set(error, d->error.status, d->error.where, "%s", d->error.message);
    weft_decoder_free(d);
    return NULL;
}

void weft_decoder_free(weft_decoder *decoder)
{
    if (!decoder) return;
    close_sessions(decoder);
    for (stage *s = decoder->stages, *next; s; s = next) {
        next = s->next;
        weft_plan_free(s->plan);
        free(s);
    }
    weft_params_free(decoder->store);
    free(decoder->arena);
    free(decoder->workspace);
    free(decoder->source);
    free(decoder->parents);
    free(decoder->few);
    free(decoder->tokens);
    free(decoder->fed);
    free(decoder);
}

weft_decoder_info weft_decoder_get_info(const weft_decoder *decoder)
{
    weft_decoder_info info = {.rows = 0};
    if (!decoder) return info;
    info.rows = decoder->live * decoder->o.beams;
    info.vocab = decoder->vocab;
    info.has_source = decoder->has_source;
    info.has_steps = decoder->has_steps;
    info.position = decoder->position;
    info.plans = decoder->n_stages;
    info.arena_bytes = decoder->arena_bytes;
    if (decoder->last) info.step = weft_plan_get_stats(decoder->last->plan);
    info.state_bytes = info.step.state_bytes;
    return info;
}

const weft_error *weft_decoder_error(const weft_decoder *decoder)
{
    static const weft_error none = {WEFT_BAD_ARGUMENT, "decoder", "the decoder is NULL"};
    return decoder ? &decoder->error : &none;
}

/* ---- Running ---- */

static bool feed(weft_decoder *d, stage *s, weft_value input, const int32_t *data, int64_t n)
{
    if (weft_feed(s->session, input, data, (size_t)n * sizeof *data) == WEFT_OK) return true;
    const weft_error *e = weft_session_error(s->session);
    return fail(d, e->status, e->where, e->message);
}

/* Lays sources into d->source, source_len apart; a sentence's rows repeat it if there are no
 * steps. */
static void lay_sources(weft_decoder *d, const int32_t *const *sources, const size_t *lengths,
                        size_t n)
{
    int32_t pad = (int32_t)option(d->model, d->values, "pad_id", 0);
    int64_t repeat = d->has_steps ? 1 : d->o.beams;
    for (int64_t row = 0; row < d->o.sentences * repeat; row++) {
        size_t i = (size_t)(row / repeat), length = i < n ? lengths[i] : 0;
        int32_t *to = d->source + row * d->source_len;
        if (length) memcpy(to, sources[i], length * sizeof *to);
        for (int64_t j = (int64_t)length; j < d->source_len; j++) to[j] = pad;
    }
}

weft_status weft_decoder_start(weft_decoder *decoder, const int32_t *const *sources,
                               const size_t *lengths, size_t n)
{
    weft_decoder *d = decoder;
    if (!d) return WEFT_BAD_ARGUMENT;
    d->error = (weft_error){.status = WEFT_OK};
    d->position = 0;
    d->live = d->o.sentences;
    d->narrow = d->has_steps;
    d->last = NULL;
    if (!d->has_source) return WEFT_OK;
    size_t longest = 1;
    if (n > (size_t)d->o.sentences || (n && (!sources || !lengths)))
        return weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                              "%zu sources for %lld sentences, or none at all", n,
                              (long long)d->o.sentences);
    for (size_t i = 0; i < n; i++) {
        if (lengths[i] > longest) longest = lengths[i];
        if (lengths[i] > (size_t)d->o.max_source)
            return weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                                  "source %zu has %zu tokens, at most %lld fit", i, lengths[i],
                                  (long long)d->o.max_source);
    }
    d->source_len = source_for(d, (int64_t)longest);
    lay_sources(d, sources, lengths, n);
    if (!d->has_steps) return WEFT_OK;
    int64_t sentences = sentences_for(d, n ? (int64_t)n : 1);
    stage *s =
        stage_for(d, (sizes){.source_len = d->source_len, .sentences = sentences, .beams = 1});
    if (s && feed(d, s, s->source, d->source, sentences * d->source_len)) run(d, s);
    return d->error.status;
}

/* ---- Fewer sentences ---- */

/* Moves what the states have of sentence `from` to sentence `to`, as far as it is in use. */
static void move_sentence(weft_decoder *d, int64_t from, int64_t to)
{
    int64_t used = d->position > d->source_len ? d->position : d->source_len;
    for (size_t i = d->n_kept; i < weft_params_count(d->store); i++) {
        weft_tensor t;
        weft_params_get(d->store, weft_params_name(d->store, i), &t);
        int64_t rows = d->narrow ? 1 : t.shape.dim[0] / d->o.sentences, all = 1;
        for (int k = 1; k < t.shape.rank; k++) all *= t.shape.dim[k];
        int64_t part =
            t.shape.rank < 3 || t.shape.dim[1] <= used ? all : all / t.shape.dim[1] * used;
        size_t bytes = weft_dtype_bytes(t.dtype);
        for (int64_t row = 0; row < rows; row++)
            memcpy((char *)t.data + (size_t)((to * rows + row) * all) * bytes,
                   (const char *)t.data + (size_t)((from * rows + row) * all) * bytes,
                   (size_t)part * bytes);
    }
}

weft_status weft_decoder_keep(weft_decoder *decoder, const int32_t *sentences, size_t n)
{
    weft_decoder *d = decoder;
    if (!d) return WEFT_BAD_ARGUMENT;
    if (d->error.status != WEFT_OK) return d->error.status;
    bool good = sentences && n >= 1 && n <= (size_t)d->live;
    for (size_t i = 0; good && i < n; i++)
        good = sentences[i] >= (int32_t)i && sentences[i] < d->live;
    if (!good || !d->has_steps)
        return weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                              "keeps 1 to %lld sentences, each in its place or from a later one, "
                              "if the model has steps",
                              (long long)d->live);
    for (size_t i = 0; i < n; i++)
        if (sentences[i] != (int32_t)i) move_sentence(d, sentences[i], (int64_t)i);
    d->live = (int64_t)n;
    return WEFT_OK;
}

/* ---- Steps ---- */

/* Reorders the tokens so far, adds those of this position and feeds the first key_len. */
static bool feed_whole(weft_decoder *d, stage *s, const int32_t *tokens)
{
    int64_t most = d->o.max_len, rows = d->rows;
    int32_t *old = d->tokens + rows * most;
    memcpy(old, d->tokens, (size_t)(rows * most) * sizeof *old);
    for (int64_t i = 0; i < rows; i++) {
        int32_t *row = d->tokens + i * most, *to = d->fed + i * s->z.key_len;
        memcpy(row, old + d->parents[i] * most, (size_t)d->position * sizeof *row);
        row[d->position] = tokens[i];
        for (int64_t j = 0; j < s->z.key_len; j++) to[j] = j <= d->position ? row[j] : 0;
    }
    if (!feed(d, s, s->token, d->fed, rows * s->z.key_len)) return false;
    for (int64_t i = 0; i < rows; i++) d->fed[i] = (int32_t)(i * s->z.key_len + d->position);
    if (!feed(d, s, s->position, d->fed, rows)) return false;
    return !d->has_source || feed(d, s, s->source, d->source, rows * d->source_len);
}

/* Feeds tokens[rows of the stage][count] and d->parents. */
static bool feed_step(weft_decoder *d, stage *s, const int32_t *tokens, int64_t count)
{
    int32_t position = (int32_t)d->position;
    int64_t rows = s->z.sentences * s->z.beams;
    return feed(d, s, s->token, tokens, rows * count) && feed(d, s, s->position, &position, 1) &&
           feed(d, s, s->parents, d->parents, rows);
}

/* Rows of states that the rows of a narrow stage go on from: themselves. */
static void stay(weft_decoder *d)
{
    for (int64_t i = 0; i < d->rows; i++) d->parents[i] = (int32_t)i;
}

static bool same_tokens(const weft_decoder *d, const int32_t *tokens)
{
    for (int64_t i = 0; i < d->live * d->o.beams; i++)
        if (tokens[i] != tokens[i / d->o.beams * d->o.beams]) return false;
    return true;
}

/* Feeds one token of each row; idle rows read 0. A narrow step needs one row of each sentence;
 * after narrow ones, the others go on from the rows of their sentences. */
static bool feed_tokens(weft_decoder *d, stage *s, const int32_t *tokens)
{
    const int64_t beams = d->o.beams, step = s->z.beams == beams ? 1 : beams;
    const int64_t rows = d->live * s->z.beams;
    for (int64_t i = 0; i < s->z.sentences * s->z.beams; i++)
        d->few[i] = i < rows ? tokens[i * step] : 0;
    if (step > 1)
        stay(d);
    else if (d->narrow)
        for (int64_t i = 0; i < d->rows; i++) d->parents[i] /= (int32_t)beams;
    return feed_step(d, s, d->few, 1);
}

static bool take_parents(weft_decoder *d, const int32_t *parents)
{
    for (int64_t i = 0; i < d->rows; i++) {
        if (i >= d->live * d->o.beams) {
            d->parents[i] = (int32_t)i;
            continue;
        }
        d->parents[i] = parents ? parents[i] : (int32_t)i;
        int64_t first = i / d->o.beams * d->o.beams;
        if (d->parents[i] >= first && d->parents[i] < first + d->o.beams) continue;
        weft_error_set(&d->error, WEFT_BAD_INDEX, "decoder",
                       "row %lld cannot go on from row %d: rows of its sentence are %lld to %lld",
                       (long long)i, d->parents[i], (long long)first,
                       (long long)(first + d->o.beams - 1));
        return false;
    }
    return true;
}

static bool has_room(weft_decoder *d, const int32_t *tokens, size_t length)
{
    if (d->error.status != WEFT_OK) return false;
    if (tokens && length <= (size_t)(d->o.max_len - d->position) &&
        (!d->has_source || d->source_len))
        return true;
    weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                   "no tokens, not started, or all %lld positions are taken",
                   (long long)d->o.max_len);
    return false;
}

/* A step of all rows, or, if that is allowed and does, of one for each sentence. */
static weft_status step(weft_decoder *d, const int32_t *tokens, const int32_t *parents, bool narrow)
{
    if (!has_room(d, tokens, 1) || !take_parents(d, parents)) return d->error.status;
    narrow = narrow && d->narrow && same_tokens(d, tokens);
    stage *s = stage_for(d, (sizes){.source_len = d->source_len,
                                    .key_len = keys_for(d, d->position + 1),
                                    .sentences = sentences_for(d, d->live),
                                    .beams = narrow ? 1 : d->o.beams});
    if (!s || !(d->has_steps ? feed_tokens(d, s, tokens) : feed_whole(d, s, tokens)) || !run(d, s))
        return d->error.status;
    d->last = s;
    d->narrow = narrow;
    d->position++;
    return WEFT_OK;
}

weft_status weft_decoder_step(weft_decoder *decoder, const int32_t *tokens, const int32_t *parents)
{
    return decoder ? step(decoder, tokens, parents, false) : WEFT_BAD_ARGUMENT;
}

/* Reads tokens[live][length] from `at` on, `count` of them. */
static bool read_chunk(weft_decoder *d, const int32_t *tokens, size_t length, size_t at,
                       int64_t count)
{
    const int64_t sentences = sentences_for(d, d->live);
    int32_t *part = calloc((size_t)(sentences * count), sizeof *part);
    if (!part) return fail(d, WEFT_NO_MEMORY, "decoder", "no memory");
    for (int64_t i = 0; i < d->live; i++)
        memcpy(part + i * count, tokens + (size_t)i * length + at, (size_t)count * sizeof *part);
    stay(d);
    stage *s = stage_for(d, (sizes){.source_len = d->source_len,
                                    .key_len = keys_for(d, d->position + count),
                                    .sentences = sentences,
                                    .beams = 1,
                                    .reads = count});
    bool good = s && feed_step(d, s, part, count) && run(d, s);
    free(part);
    if (good) d->position += count;
    return good;
}

/* Without steps, tokens only wait for the next whole pass. */
static void note_tokens(weft_decoder *d, const int32_t *tokens, size_t length)
{
    for (int64_t row = 0; row < d->rows; row++)
        memcpy(d->tokens + row * d->o.max_len + d->position,
               tokens + (size_t)(row / d->o.beams) * length, length * sizeof *tokens);
    d->position += (int64_t)length;
}

weft_status weft_decoder_read(weft_decoder *decoder, const int32_t *tokens, size_t length)
{
    weft_decoder *d = decoder;
    if (!d) return WEFT_BAD_ARGUMENT;
    if (!has_room(d, tokens, length)) return d->error.status;
    if (d->has_steps ? !d->narrow : d->last != NULL)
        return weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                              "reads ahead only before the first step");
    if (!d->has_steps) note_tokens(d, tokens, length);
    for (size_t at = 0, i = 0; d->has_steps && at < length;) {
        while (chunks[i] > (int64_t)(length - at)) i++;
        if (!read_chunk(d, tokens, length, at, chunks[i])) return d->error.status;
        at += (size_t)chunks[i];
    }
    return WEFT_OK;
}

/* The rows of the last step that are in use. */
static bool result(const weft_decoder *d, bool log_probs, weft_tensor *tensor)
{
    if (!d || !d->last || !tensor ||
        !weft_session_tensor(d->last->session, log_probs ? d->last->log_probs : d->last->logits,
                             tensor))
        return false;
    tensor->shape.dim[0] = d->live * (d->has_steps ? d->last->z.beams : d->o.beams);
    return true;
}

bool weft_decoder_logits(const weft_decoder *decoder, weft_tensor *logits)
{
    return result(decoder, false, logits);
}

bool weft_decoder_log_probs(const weft_decoder *decoder, weft_tensor *log_probs)
{
    return result(decoder, true, log_probs);
}

static weft_status tell(const weft_decoder *d, weft_error *error)
{
    return weft_error_set(error, d->error.status ? d->error.status : WEFT_INTERNAL, d->error.where,
                          "%s", d->error.message);
}

static weft_status search_step(void *context, const int32_t *tokens, const int32_t *parents,
                               weft_tensor *log_probs, weft_error *error)
{
    weft_decoder *d = context;
    if (step(d, tokens, parents, true) == WEFT_OK && weft_decoder_log_probs(d, log_probs))
        return WEFT_OK;
    return tell(d, error);
}

static weft_status search_keep(void *context, const int32_t *sentences, size_t n, weft_error *error)
{
    return weft_decoder_keep(context, sentences, n) == WEFT_OK ? WEFT_OK : tell(context, error);
}

static weft_status search_read(void *context, const int32_t *tokens, size_t length,
                               weft_error *error)
{
    return weft_decoder_read(context, tokens, length) == WEFT_OK ? WEFT_OK : tell(context, error);
}

weft_search_model weft_decoder_search_model(weft_decoder *decoder)
{
    weft_search_model model = {.step = search_step, .read = search_read, .context = decoder};
    if (!decoder) return model;
    if (decoder->has_steps) model.keep = search_keep;
    model.sentences = decoder->o.sentences;
    model.beams = decoder->o.beams;
    model.vocab = decoder->vocab;
    model.max_len = decoder->o.max_len;
    return model;
}
