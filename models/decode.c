/* The decoder: plans of one step for a few lengths, over states that they share.
 *
 * The states have room for the most positions. A plan looks at the first 32, 48, 64, 96, 128, ...
 * of them, so that a step costs what its position needs, half as much again at most. Sessions of
 * all plans share one arena: what a step leaves behind lies in the states. */
#include <weft/decode.h>

#include <weft/ops.h>

#include <stdlib.h>
#include <string.h>

#define LEAST_BUCKET 32

/* A graph of one length, planned. */
typedef struct stage {
    int64_t source_len, key_len; /* key_len 0: the encoder */
    weft_plan *plan;
    weft_session *session; /* NULL until it runs */
    weft_value source, token, position, parents, encoded, logits, log_probs;
    struct stage *next;
} stage;

struct weft_decoder {
    const weft_model *model;
    double values[WEFT_MODEL_OPTIONS];
    weft_decoder_options o;
    int64_t rows, vocab, position, source_len; /* source_len 0: not started */
    bool has_source, has_steps;
    weft_params *store; /* the model's parameters, shared, and our states */
    stage *stages, *last;
    size_t n_stages;
    void *arena;
    size_t arena_bytes;
    int32_t *source;  /* [sentences or, recomputing, rows][most_source] */
    int32_t *parents; /* [rows] */
    int32_t *tokens;  /* recomputing: [rows][most_len], then as much again to reorder into */
    int32_t *fed;     /* recomputing: [rows][most_len], as fed */
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

int64_t weft_model_most_positions(const weft_model *model, const double *values)
{
    if (!model || !values) return INT64_MAX;
    if ((weft_positions)option(model, values, "positions", WEFT_POSITIONS_NONE) !=
        WEFT_POSITIONS_LEARNED)
        return INT64_MAX;
    return (int64_t)option(model, values, "most_positions", 0);
}

/* ---- Lengths ---- */

/* The least of 32, 48, 64, 96, ... that holds `length`, or `most`. */
static int64_t bucket(int64_t length, int64_t most)
{
    int64_t size = LEAST_BUCKET;
    while (size < length && size < most) {
        if (size + size / 2 >= length)
            size += size / 2;
        else
            size *= 2;
    }
    return size < most ? size : most;
}

int64_t weft_decoder_padded(const weft_decoder *decoder, int64_t length)
{
    if (!decoder || !decoder->has_source) return 0;
    return bucket(length, decoder->o.most_source);
}

/* ---- Graphs ---- */

static weft_decode_io sizes(const weft_decoder *d, const stage *s)
{
    return (weft_decode_io){.sentences = d->o.sentences,
                            .beams = d->o.beams,
                            .most_len = d->o.most_len,
                            .key_len = s->key_len,
                            .most_source = d->has_source ? d->o.most_source : 0,
                            .source_len = s->source_len};
}

/* The graph of a model that has steps. */
static void build_steps(weft_decoder *d, weft_graph *g, stage *s)
{
    weft_decode_io io = sizes(d, s);
    if (!s->key_len) {
        d->model->encode(g, d->values, &io);
        s->source = io.source;
        s->encoded = io.encoded;
        return;
    }
    d->model->step(g, d->values, &io);
    s->token = io.token;
    s->position = io.position;
    s->parents = io.parents;
    s->logits = io.logits;
}

/* The whole model over the first key_len tokens, of which one position's logits are wanted: the
 * rows `position` of [rows * key_len, vocab]. */
static void build_whole(weft_decoder *d, weft_graph *g, stage *s)
{
    weft_model_io io = {.vocab = 0};
    set_option(d, "batch", d->rows);
    set_option(d, "length", s->key_len);
    set_option(d, "target_len", s->key_len);
    set_option(d, "source_len", s->source_len);
    d->model->build(g, d->values, false, &io);
    s->source = io.source;
    s->token = io.target_in;
    s->position = weft_input(g, "position", WEFT_I32, WEFT_SHAPE(d->rows));
    int64_t vocab = weft_dim(g, io.output, -1);
    weft_value all = weft_reshape(g, io.output, WEFT_SHAPE(d->rows * s->key_len, vocab));
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
    weft_value targets[2] = {s->encoded, WEFT_NO_VALUE};
    if (s->key_len) {
        s->log_probs = weft_name(g, weft_log_softmax(g, s->logits, -1), "log_probs");
        targets[0] = s->logits;
        targets[1] = s->log_probs;
        d->vocab = weft_dim(g, s->logits, -1);
    }
    const weft_error *e = weft_graph_error(g);
    if (e->status != WEFT_OK)
        fail(d, e->status, e->where, e->message);
    else if (weft_params_init(d->store, g, 0, &d->error) == WEFT_OK)
        s->plan = weft_plan_new(g, targets, s->key_len ? 2 : 1, NULL, &d->error);
    weft_graph_free(g);
    return s->plan != NULL;
}

/* One arena for all sessions: if a plan needs a larger one, all are opened anew. */
static bool open_stage(weft_decoder *d, stage *s)
{
    size_t bytes = weft_plan_get_stats(s->plan).arena_bytes;
    if (bytes > d->arena_bytes) {
        close_sessions(d);
        free(d->arena);
        d->arena_bytes = bytes;
        d->arena = weft_alloc(bytes);
        if (!d->arena) {
            d->arena_bytes = 0;
            return fail(d, WEFT_NO_MEMORY, "decoder", "no memory for the arena");
        }
    }
    if (s->session) return true;
    weft_session_options o = {
        .threads = d->o.threads, .arena = d->arena, .arena_bytes = d->arena_bytes};
    s->session = weft_session_new(s->plan, d->store, d->arena ? &o : NULL, &d->error);
    return s->session != NULL;
}

/* The stage of these lengths, ready to be fed; NULL on failure. */
static stage *stage_for(weft_decoder *d, int64_t source_len, int64_t key_len)
{
    stage *s = d->stages;
    while (s && (s->source_len != source_len || s->key_len != key_len)) s = s->next;
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s) {
            fail(d, WEFT_NO_MEMORY, "decoder", "no memory for a plan");
            return NULL;
        }
        s->source_len = source_len;
        s->key_len = key_len;
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

static weft_status check_options(const weft_model *model, const double *values,
                                 const weft_decoder_options *o, weft_error *error)
{
    bool has_source = option_at(model, "source_len") < model->n_options;
    bool has_length = option_at(model, has_source ? "target_len" : "length") < model->n_options &&
                      option_at(model, "batch") < model->n_options;
    int64_t most = weft_model_most_positions(model, values);
    if (option_at(model, "vocab") == model->n_options || model->looks_ahead || !has_length)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, model->name,
                              "is no model that says one token after another");
    if (o->sentences < 1 || o->beams < 1 || o->most_len < 1 ||
        o->sentences > INT32_MAX / o->beams ||
        o->most_len > INT32_MAX / (o->sentences * o->beams) ||
        (has_source && (o->most_source < 1 || o->most_source > INT32_MAX)))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "decoder",
                              "needs sentences, beams and lengths of at least 1 and not too many, "
                              "got %lld, %lld, %lld positions, %lld of a source",
                              (long long)o->sentences, (long long)o->beams, (long long)o->most_len,
                              (long long)o->most_source);
    if (o->most_len > most || (has_source && o->most_source > most))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, model->name,
                              "has learned %lld positions, asked for %lld and %lld of a source",
                              (long long)most, (long long)o->most_len,
                              (long long)(has_source ? o->most_source : 0));
    return WEFT_OK;
}

/* Every parameter of a step must be there: a wrong store is told of here, not filled up. */
static bool check_params(weft_decoder *d, const weft_params *params)
{
    weft_graph *g = weft_graph_new();
    stage s = {.source_len = d->has_source ? 1 : 0, .key_len = 1};
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

static bool make(weft_decoder *d, const weft_params *params)
{
    int64_t rows = d->rows, sources = d->has_steps ? d->o.sentences : rows;
    d->store = weft_params_new();
    d->parents = calloc((size_t)rows, sizeof *d->parents);
    if (d->has_source) d->source = calloc((size_t)(sources * d->o.most_source), sizeof *d->source);
    if (!d->has_steps) {
        d->tokens = calloc((size_t)(2 * rows * d->o.most_len), sizeof *d->tokens);
        d->fed = calloc((size_t)(rows * d->o.most_len), sizeof *d->fed);
    }
    if (!d->store || !d->parents || (d->has_source && !d->source) ||
        (!d->has_steps && (!d->tokens || !d->fed)))
        return fail(d, WEFT_NO_MEMORY, "decoder", "no memory");
    if (!check_params(d, params)) return false;
    if (weft_params_share(d->store, params, &d->error) != WEFT_OK) return false;
    int64_t source_len = d->has_source ? bucket(1, d->o.most_source) : 0;
    return stage_for(d, source_len, bucket(1, d->o.most_len)) != NULL;
}

weft_decoder *weft_decoder_new(const weft_model *model, const double *values,
                               const weft_params *params, const weft_decoder_options *options,
                               weft_error *error)
{
    if (!model || !values || !params || !options) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "decoder",
                       "the model, its values, the parameters or the options are NULL");
        return NULL;
    }
    if (check_options(model, values, options, error) != WEFT_OK) return NULL;
    weft_decoder *d = calloc(1, sizeof *d);
    if (!d) {
        weft_error_set(error, WEFT_NO_MEMORY, "decoder", "no memory");
        return NULL;
    }
    d->model = model;
    memcpy(d->values, values, model->n_options * sizeof *values);
    d->o = *options;
    d->rows = options->sentences * options->beams;
    d->has_source = option_at(model, "source_len") < model->n_options;
    d->has_steps = !options->recompute && model->step && (!d->has_source || model->encode);
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
    free(decoder->source);
    free(decoder->parents);
    free(decoder->tokens);
    free(decoder->fed);
    free(decoder);
}

weft_decoder_info weft_decoder_get_info(const weft_decoder *decoder)
{
    weft_decoder_info info = {.rows = 0};
    if (!decoder) return info;
    info.rows = decoder->rows;
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

static bool run(weft_decoder *d, stage *s)
{
    if (weft_run(s->session) == WEFT_OK) return true;
    const weft_error *e = weft_session_error(s->session);
    return fail(d, e->status, e->where, e->message);
}

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
    d->last = NULL;
    if (!d->has_source) return WEFT_OK;
    size_t longest = 1;
    if (n > (size_t)d->o.sentences || (n && (!sources || !lengths)))
        return weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                              "%zu sources for %lld sentences, or none at all", n,
                              (long long)d->o.sentences);
    for (size_t i = 0; i < n; i++) {
        if (lengths[i] > longest) longest = lengths[i];
        if (lengths[i] > (size_t)d->o.most_source)
            return weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                                  "source %zu has %zu tokens, at most %lld fit", i, lengths[i],
                                  (long long)d->o.most_source);
    }
    d->source_len = bucket((int64_t)longest, d->o.most_source);
    lay_sources(d, sources, lengths, n);
    if (!d->has_steps) return WEFT_OK;
    stage *s = stage_for(d, d->source_len, 0);
    if (s && feed(d, s, s->source, d->source, d->o.sentences * d->source_len)) run(d, s);
    return d->error.status;
}

/* Reorders the tokens so far, adds those of this position and feeds the first key_len. */
static bool feed_whole(weft_decoder *d, stage *s, const int32_t *tokens)
{
    int64_t most = d->o.most_len, rows = d->rows;
    int32_t *old = d->tokens + rows * most;
    memcpy(old, d->tokens, (size_t)(rows * most) * sizeof *old);
    for (int64_t i = 0; i < rows; i++) {
        int32_t *row = d->tokens + i * most, *to = d->fed + i * s->key_len;
        memcpy(row, old + d->parents[i] * most, (size_t)d->position * sizeof *row);
        row[d->position] = tokens[i];
        for (int64_t j = 0; j < s->key_len; j++) to[j] = j <= d->position ? row[j] : 0;
    }
    if (!feed(d, s, s->token, d->fed, rows * s->key_len)) return false;
    for (int64_t i = 0; i < rows; i++) d->fed[i] = (int32_t)(i * s->key_len + d->position);
    if (!feed(d, s, s->position, d->fed, rows)) return false;
    return !d->has_source || feed(d, s, s->source, d->source, rows * d->source_len);
}

static bool feed_step(weft_decoder *d, stage *s, const int32_t *tokens)
{
    int32_t position = (int32_t)d->position;
    return feed(d, s, s->token, tokens, d->rows) && feed(d, s, s->position, &position, 1) &&
           feed(d, s, s->parents, d->parents, d->rows);
}

static bool take_parents(weft_decoder *d, const int32_t *parents)
{
    for (int64_t i = 0; i < d->rows; i++) {
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

weft_status weft_decoder_step(weft_decoder *decoder, const int32_t *tokens, const int32_t *parents)
{
    weft_decoder *d = decoder;
    if (!d) return WEFT_BAD_ARGUMENT;
    if (d->error.status != WEFT_OK) return d->error.status;
    if (!tokens || d->position >= d->o.most_len || (d->has_source && !d->source_len))
        return weft_error_set(&d->error, WEFT_BAD_ARGUMENT, "decoder",
                              "no tokens, not started, or all %lld positions are taken",
                              (long long)d->o.most_len);
    if (!take_parents(d, parents)) return d->error.status;
    stage *s = stage_for(d, d->source_len, bucket(d->position + 1, d->o.most_len));
    if (!s || !(d->has_steps ? feed_step(d, s, tokens) : feed_whole(d, s, tokens)) || !run(d, s))
        return d->error.status;
    d->last = s;
    d->position++;
    return WEFT_OK;
}

static bool result(const weft_decoder *d, bool log_probs, weft_tensor *tensor)
{
    if (!d || !d->last || !tensor) return false;
    return weft_session_tensor(d->last->session, log_probs ? d->last->log_probs : d->last->logits,
                               tensor);
}

bool weft_decoder_logits(const weft_decoder *decoder, weft_tensor *logits)
{
    return result(decoder, false, logits);
}

bool weft_decoder_log_probs(const weft_decoder *decoder, weft_tensor *log_probs)
{
    return result(decoder, true, log_probs);
}

static weft_status search_step(void *context, const int32_t *tokens, const int32_t *parents,
                               weft_tensor *log_probs, weft_error *error)
{
    weft_decoder *d = context;
    if (weft_decoder_step(d, tokens, parents) == WEFT_OK && weft_decoder_log_probs(d, log_probs))
        return WEFT_OK;
    return weft_error_set(error, d->error.status ? d->error.status : WEFT_INTERNAL, d->error.where,
                          "%s", d->error.message);
}

weft_search_model weft_decoder_search_model(weft_decoder *decoder)
{
    weft_search_model model = {.step = search_step, .context = decoder};
    if (!decoder) return model;
    model.sentences = decoder->o.sentences;
    model.beams = decoder->o.beams;
    model.vocab = decoder->vocab;
    model.most_len = decoder->o.most_len;
    return model;
}
