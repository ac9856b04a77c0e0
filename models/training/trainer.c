/* The trainer: a model's steps over batches of several shapes.
 *
 * Each shape of batch has a graph, plan and session of its own, made when it is first met; all are
 * bound to one parameter store and one arena, which is made anew when a plan needs a larger one. A
 * step's only inputs are its feeds and the states, the number of the step and the seed, all of
 * which a checkpoint keeps: so a resumed training computes the same bits. */
#include <weft/session.h>
#include <weft/train.h>

#include "base/hash.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum plan_kind {
    PLAN_STEP,    /* gradients and update at once */
    PLAN_SUM,     /* adds a batch's gradients to the sums */
    PLAN_APPLY,   /* an update by the sums; of no shape */
    PLAN_EVALUATE /* nll without dropout */
} plan_kind;

typedef struct planned {
    plan_kind kind;
    weft_batch_shape shape;
    weft_graph *graph;
    weft_model_io io;
    weft_plan *plan;
    weft_session *session;
    /* step and apply: lr, ema_keep; sum: keep, share; apply: inverse */
    weft_value lr, ema_keep, keep, share, inverse, norm, target;
} planned;

struct weft_trainer {
    weft_trainer_options o;
    double values[WEFT_MODEL_OPTIONS]; /* of the model's options */
    weft_param_group *groups;          /* of the optimiser, and behind them its texts */
    weft_batches *batches;
    size_t n_batches;
    weft_data_hashes data;
    weft_params *params;
    weft_params *averaged; /* the model's states as evaluated; NULL without an average */
    planned **plans;
    size_t n_plans;
    bool planned; /* since the step began */
    char *arena;
    size_t arena_bytes;
    int32_t *ids[3]; /* source, target_in, target_out */
    size_t id_capacity;
    weft_trainer_state state;
    weft_error error;
};

/* ---- Errors ---- */

static weft_status fail(weft_trainer *t, weft_status status, const char *where, const char *what)
{
    return weft_error_set(&t->error, status, where, "%s", what);
}

static weft_status out_of_memory(weft_trainer *t)
{
    return fail(t, WEFT_NO_MEMORY, "trainer", "out of memory");
}

static weft_status take_error(weft_trainer *t, const weft_error *e)
{
    return weft_error_set(&t->error, e->status, e->where, "%s", e->message);
}

/* ---- Graphs ---- */

static void set_option(const weft_model *model, double *values, const char *name, int64_t value)
{
    for (size_t i = 0; i < model->n_options; i++)
        if (!strcmp(model->options[i].name, name)) values[i] = (double)value;
}

/* A state beside a parameter: PREFIX.NAME. */
static weft_value beside(weft_graph *g, const char *prefix, weft_value param)
{
    char name[512];
    snprintf(name, sizeof name, "%s.%s", prefix, weft_name_of(g, param));
    return weft_state(g, name, weft_dtype_of(g, param), weft_shape_of(g, param), WEFT_INIT_ZEROS);
}

/* Lists of one value a parameter: the gradients, the new contents, and updates to be grouped. */
typedef struct lists {
    weft_value *params, *grads, *updated, *group;
    size_t n;
} lists;

static void add_update(weft_trainer *t, planned *p, lists *l, weft_value loss, weft_dtype dtype)
{
    weft_graph *g = p->graph;
    p->lr = weft_input(g, "lr", dtype, WEFT_SCALAR);
    l->group[0] = weft_apply_gradients(g, l->params, l->grads, l->n, loss, p->lr, &t->o.optimizer,
                                       &p->norm, l->updated);
    if (!(t->o.ema > 0)) {
        p->target = l->group[0];
        return;
    }
    p->ema_keep = weft_input(g, "ema_keep", dtype, WEFT_SCALAR);
    weft_value share = weft_sub(g, weft_scalar(g, dtype, 1), p->ema_keep);
    for (size_t i = 0; i < l->n; i++)
        l->group[i + 1] =
            weft_blend(g, beside(g, "ema", l->params[i]), l->updated[i], p->ema_keep, share);
    p->target = weft_group(g, l->group, l->n + 1);
}

static void add_sum(planned *p, lists *l, weft_dtype dtype)
{
    weft_graph *g = p->graph;
    weft_value watched[2] = {weft_global_norm(g, l->grads, l->n), p->io.loss};
    weft_name(g, watched[0], "gradient_norm");
    p->keep = weft_input(g, "keep", dtype, WEFT_SCALAR);
    p->share = weft_input(g, "share", dtype, WEFT_SCALAR);
    weft_value share = weft_require_finite(g, p->share, watched, 2);
    for (size_t i = 0; i < l->n; i++)
        l->group[i] = weft_blend(g, beside(g, "sum", l->params[i]), l->grads[i], p->keep, share);
    p->target = weft_group(g, l->group, l->n);
}

static void add_apply(weft_trainer *t, planned *p, lists *l, weft_dtype dtype)
{
    weft_graph *g = p->graph;
    p->inverse = weft_input(g, "inverse", dtype, WEFT_SCALAR);
    for (size_t i = 0; i < l->n; i++)
        l->grads[i] = weft_mul(g, beside(g, "sum", l->params[i]), p->inverse);
    add_update(t, p, l, WEFT_NO_VALUE, dtype);
}

static void add_training(weft_trainer *t, planned *p)
{
    weft_graph *g = p->graph;
    weft_dtype dtype = weft_dtype_of(g, p->io.loss);
    lists l = {.n = weft_graph_params(g, NULL, 0)};
    l.params = calloc(4 * l.n + 2, sizeof *l.params);
    if (!l.params || !l.n) {
        weft_graph_fail_in(g, "trainer", l.params ? WEFT_BAD_ARGUMENT : WEFT_NO_MEMORY, "%s",
                           l.params ? "the model has no parameters" : "no memory");
        free(l.params);
        return;
    }
    l.grads = l.params + l.n;
    l.updated = l.grads + l.n;
    l.group = l.updated + l.n;
    weft_graph_params(g, l.params, l.n);
    if (p->kind != PLAN_APPLY) weft_grad(g, p->io.loss, l.params, l.n, l.grads);
    if (p->kind == PLAN_STEP) add_update(t, p, &l, p->io.loss, dtype);
    if (p->kind == PLAN_SUM) add_sum(p, &l, dtype);
    if (p->kind == PLAN_APPLY) add_apply(t, p, &l, dtype);
    free(l.params);
}

static weft_status build(weft_trainer *t, planned *p)
{
    const weft_model *model = t->o.model;
    double values[WEFT_MODEL_OPTIONS];
    memcpy(values, t->values, sizeof values);
    set_option(model, values, "batch", p->shape.rows);
    set_option(model, values, "length", p->shape.target_len);
    set_option(model, values, "target_len", p->shape.target_len);
    if (p->shape.source_len) set_option(model, values, "source_len", p->shape.source_len);
    p->graph = weft_graph_new();
    if (!p->graph) return out_of_memory(t);
    model->build(p->graph, values, p->kind != PLAN_EVALUATE, &p->io);
    if (weft_graph_status(p->graph) == WEFT_OK) {
        if (!weft_is_value(p->io.target_in) || !weft_is_value(p->io.target_out))
            return fail(t, WEFT_BAD_ARGUMENT, model->name, "is no model of tokens");
        if (weft_is_value(p->io.source) != (p->shape.source_len != 0))
            return fail(t, WEFT_BAD_ARGUMENT, model->name,
                        p->shape.source_len ? "has no source, the batches have"
                                            : "has a source, the batches have none");
        if (p->kind == PLAN_EVALUATE)
            p->target = p->io.nll;
        else
            add_training(t, p);
    }
    const weft_error *e = weft_graph_error(p->graph);
    return e->status == WEFT_OK ? WEFT_OK : take_error(t, e);
}

/* ---- Plans and sessions ---- */

static void free_planned(planned *p)
{
    if (!p) return;
    weft_session_free(p->session);
    weft_plan_free(p->plan);
    weft_graph_free(p->graph);
    free(p);
}

/* The store that an evaluation reads: the averaged one if there is one. */
static weft_params *store_of(const weft_trainer *t, const planned *p)
{
    return p->kind == PLAN_EVALUATE && t->averaged ? t->averaged : t->params;
}

static weft_status open_session(weft_trainer *t, planned *p)
{
    weft_session_options o = {.threads = t->o.threads,
                              .seed = t->o.seed,
                              .arena = t->arena,
                              .arena_bytes = t->arena_bytes};
    p->session = weft_session_new(p->plan, store_of(t, p), &o, &t->error);
    return p->session ? WEFT_OK : t->error.status;
}

/* Makes the arena large enough for a plan; sessions on a smaller one are opened again. */
static weft_status grow_arena(weft_trainer *t, size_t bytes)
{
    if (t->arena && bytes <= t->arena_bytes) return WEFT_OK;
    for (size_t i = 0; i < t->n_plans; i++) {
        weft_session_free(t->plans[i]->session);
        t->plans[i]->session = NULL;
    }
    free(t->arena);
    t->arena = weft_alloc(bytes);
    t->arena_bytes = t->arena ? bytes : 0;
    if (!t->arena)
        return weft_error_set(&t->error, WEFT_NO_MEMORY, "trainer",
                              "no memory for an arena of %zu bytes", bytes);
    for (size_t i = 0; i < t->n_plans; i++)
        if (open_session(t, t->plans[i]) != WEFT_OK) return t->error.status;
    return WEFT_OK;
}

static weft_status make_plan(weft_trainer *t, planned *p)
{
    weft_value targets[3] = {p->target, p->io.loss};
    size_t n = p->kind == PLAN_STEP || p->kind == PLAN_SUM ? 2 : 1;
    if (p->kind == PLAN_STEP || p->kind == PLAN_APPLY) targets[n++] = p->norm;
    p->plan = weft_plan_new(p->graph, targets, n, NULL, &t->error);
    return p->plan ? WEFT_OK : t->error.status;
}

static weft_status plan(weft_trainer *t, planned *p)
{
    if (make_plan(t, p) != WEFT_OK) return t->error.status;
    weft_params *store = store_of(t, p);
    weft_status status = weft_params_init(store, p->graph, t->o.seed, &t->error);
    if (status == WEFT_OK) status = grow_arena(t, weft_plan_get_stats(p->plan).arena_bytes);
    return status == WEFT_OK ? open_session(t, p) : status;
}

/* The plan of a kind and shape; NULL on failure. */
static planned *need(weft_trainer *t, plan_kind kind, weft_batch_shape shape)
{
    for (size_t i = 0; i < t->n_plans; i++) {
        planned *p = t->plans[i];
        if (p->kind != kind) continue;
        if (kind == PLAN_APPLY || !memcmp(&p->shape, &shape, sizeof shape)) {
            if (p->session || open_session(t, p) == WEFT_OK) return p;
            return NULL;
        }
    }
    planned **grown = realloc(t->plans, (t->n_plans + 1) * sizeof *grown);
    planned *p = grown ? calloc(1, sizeof *p) : NULL;
    if (grown) t->plans = grown;
    if (!p) {
        out_of_memory(t);
        return NULL;
    }
    p->kind = kind;
    p->shape = shape;
    if (build(t, p) != WEFT_OK || plan(t, p) != WEFT_OK) {
        free_planned(p);
        return NULL;
    }
    t->planned = true;
    return t->plans[t->n_plans++] = p;
}

/* ---- Feeding and running ---- */

static weft_status feed_scalar(weft_trainer *t, planned *p, weft_value input, double x)
{
    float narrow = (float)x;
    bool wide = weft_dtype_of(p->graph, input) == WEFT_F64;
    if (!weft_is_value(input)) return WEFT_OK;
    weft_status status = wide ? weft_feed(p->session, input, &x, sizeof x)
                              : weft_feed(p->session, input, &narrow, sizeof narrow);
    return status == WEFT_OK ? WEFT_OK : take_error(t, weft_session_error(p->session));
}

static double fetch_scalar(const planned *p, weft_value value)
{
    float narrow = 0;
    double x = 0;
    if (weft_dtype_of(p->graph, value) == WEFT_F64)
        weft_fetch(p->session, value, &x, sizeof x);
    else if (weft_fetch(p->session, value, &narrow, sizeof narrow) == WEFT_OK)
        x = (double)narrow;
    return x;
}

static weft_status reserve_ids(weft_trainer *t, size_t n)
{
    if (n <= t->id_capacity) return WEFT_OK;
    t->id_capacity = 0;
    for (int i = 0; i < 3; i++) {
        free(t->ids[i]);
        t->ids[i] = malloc(n * sizeof *t->ids[i]);
    }
    if (!t->ids[0] || !t->ids[1] || !t->ids[2]) return out_of_memory(t);
    t->id_capacity = n;
    return WEFT_OK;
}

static weft_status feed_batch(weft_trainer *t, planned *p, const weft_batches *b, size_t index,
                              size_t *tokens)
{
    size_t n = (size_t)(p->shape.rows * p->shape.target_len);
    weft_value inputs[3] = {p->io.source, p->io.target_in, p->io.target_out};
    if (reserve_ids(t, n) != WEFT_OK) return t->error.status;
    *tokens = weft_batches_fill(b, index, t->ids[0], t->ids[1], t->ids[2]);
    for (int i = 0; i < 3; i++)
        if (weft_is_value(inputs[i]) &&
            weft_feed(p->session, inputs[i], t->ids[i], n * sizeof **t->ids) != WEFT_OK)
            return take_error(t, weft_session_error(p->session));
    return WEFT_OK;
}

/* Runs, and says of a result that is not finite where it came from. */
static weft_status run(weft_trainer *t, planned *p, uint64_t number)
{
    weft_error first;
    weft_session_set_step(p->session, number);
    if (weft_run(p->session) == WEFT_OK) return WEFT_OK;
    weft_error e = *weft_session_error(p->session);
    if (e.status != WEFT_NOT_FINITE ||
        weft_session_find_nonfinite(p->session, &first) != WEFT_NOT_FINITE)
        return take_error(t, &e);
    return weft_error_set(&t->error, WEFT_NOT_FINITE, first.where,
                          "%s, and step %" PRIu64 " was not made: %s", first.message,
                          t->state.step + 1, e.message);
}

/* ---- Options, checkpoints ---- */

static bool is_size(const char *option)
{
    static const char *const sizes[] = {"batch", "length", "source_len", "target_len"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(option, sizes[i])) return true;
    return false;
}

#define OPTIONS_TEXT (WEFT_MODEL_OPTIONS * 64)

/* Every option by name and value, so that a checkpoint does not depend on defaults. */
static bool options_text(const weft_model *m, const double *values, char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < m->n_options; i++) {
        char value[64];
        int n = snprintf(text + used, capacity - used, "%s%s=%s", i ? " " : "", m->options[i].name,
                         weft_model_value_text(m, i, values[i], value, sizeof value));
        if (n < 0 || (size_t)n >= capacity - used) return false;
        used += (size_t)n;
    }
    return true;
}

/* Holds the model of a checkpoint against the one asked for. */
static weft_status compare_model(weft_trainer *t, const char *name, const char *stored)
{
    const weft_model *m = t->o.model;
    char text[OPTIONS_TEXT], *rest = NULL, was_text[64], is_text[64];
    const char *texts[WEFT_MODEL_OPTIONS];
    double was[WEFT_MODEL_OPTIONS];
    size_t n = 0;
    if (strcmp(name, m->name) != 0)
        return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "checkpoint", "is of %s, not of %s",
                              name, m->name);
    if (!stored || strlen(stored) >= sizeof text) return WEFT_OK;
    strcpy(text, stored);
    for (char *o = strtok_r(text, " ", &rest); o && n < WEFT_MODEL_OPTIONS;
         o = strtok_r(NULL, " ", &rest))
        texts[n++] = o;
    weft_status status = weft_model_parse(m, texts, n, was, &t->error);
    for (size_t i = 0; status == WEFT_OK && i < m->n_options; i++)
        if (was[i] != t->values[i] && !is_size(m->options[i].name))
            status = weft_error_set(
                &t->error, WEFT_BAD_ARGUMENT, "checkpoint", "was made with %s=%s, not %s",
                m->options[i].name, weft_model_value_text(m, i, was[i], was_text, sizeof was_text),
                weft_model_value_text(m, i, t->values[i], is_text, sizeof is_text));
    return status;
}

#define STATE_FORMAT                                                                               \
    "epoch=%" PRIu64 " batch=%" PRIu64 " smoothed=%a best=%a best_step=%" PRIu64 " stale=%" PRIu64 \
    " judged_step=%" PRIu64 " seed=%" PRIu64 " batches=%" PRIu64 " accumulate=%" PRIu64

#define DATA_FORMAT "source=%016" PRIx64 " target=%016" PRIx64 " batches=%016" PRIx64

/* Reads the whole number that `text` begins with and returns where it ends; NULL if there is none
 * or it overflows. */
static const char *read_whole(const char *text, int base, uint64_t *value)
{
    char *end;
    const char *digits = base == 16 ? "0123456789abcdef" : "0123456789";
    errno = 0;
    *value = strtoull(text, &end, base);
    return !errno && end > text && (size_t)(end - text) == strspn(text, digits) ? end : NULL;
}

/* The value behind "key=" in a text of "key=value key=value ..."; NULL if there is none. */
static const char *find_field(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *at = text; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, key, length) == 0 && at[length] == '=') return at + length + 1;
    }
    return NULL;
}

static bool ends_field(const char *end)
{
    return end && (!*end || *end == ' ');
}

static bool read_number(const char *text, const char *key, int base, uint64_t *value)
{
    const char *at = find_field(text, key);
    return at && ends_field(read_whole(at, base, value));
}

static bool read_real(const char *text, const char *key, double *value)
{
    const char *at = find_field(text, key);
    return at && ends_field(text_read_double(at, value));
}

/* Holds the data against those that the metadata name; old checkpoints name none. */
static weft_status check_data(weft_trainer *t)
{
    const char *text = weft_params_meta(t->params, "train.data");
    const weft_trainer_options *o = &t->o;
    weft_data_hashes was;
    const char *other = NULL;
    if (!text) return WEFT_OK;
    if (!read_number(text, "source", 16, &was.source) ||
        !read_number(text, "target", 16, &was.target) ||
        !read_number(text, "batches", 16, &was.batches))
        return fail(t, WEFT_BAD_FILE, "checkpoint", "\"train.data\" is damaged");
    if (was.target != t->data.target) other = o->target_name ? o->target_name : "these targets";
    if (was.source != t->data.source) other = o->source_name ? o->source_name : "these sources";
    if (!other) return WEFT_OK;
    return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "checkpoint",
                          "was trained on other text than %s", other);
}

static weft_status check_batches(weft_trainer *t)
{
    const char *text = weft_params_meta(t->params, "train.data");
    uint64_t was;
    if (!text || !read_number(text, "batches", 16, &was) || was == t->data.batches) return WEFT_OK;
    return fail(
        t, WEFT_BAD_ARGUMENT, "checkpoint",
        "was trained with other batches: mode, tokens, lengths, truncation, special tokens, "
        "share of masks or seed differ");
}

/* One number for what checkpoints of one run have in common: all that a resumed training must not
 * change. */
static uint64_t run_hash(const weft_trainer *t)
{
    const weft_model *m = t->o.model;
    const uint64_t numbers[] = {t->o.seed, t->o.accumulate, t->data.source, t->data.target,
                                t->data.batches};
    uint64_t hash = hash_bytes(HASH_START, m->name, strlen(m->name) + 1);
    for (size_t i = 0; i < m->n_options; i++) {
        uint64_t value;
        if (is_size(m->options[i].name)) continue;
        memcpy(&value, &t->values[i], sizeof value);
        hash = hash_bytes(hash, m->options[i].name, strlen(m->options[i].name) + 1);
        hash = hash_number(hash, value);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        hash = hash_number(hash, numbers[i]);
    return hash;
}

static weft_status check_same(weft_trainer *t, const char *what, uint64_t was, uint64_t is)
{
    if (was == is) return WEFT_OK;
    return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "checkpoint",
                          "was trained with %s %" PRIu64 ", not %" PRIu64, what, was, is);
}

/* Takes up a training where the store's metadata say it stood; from the start if they do not. */
static weft_status resume(weft_trainer *t)
{
    const char *model = weft_params_meta(t->params, "model");
    const char *text = weft_params_meta(t->params, "train.state");
    const char *step = weft_params_meta(t->params, "step");
    weft_trainer_state *s = &t->state;
    uint64_t seed, batches, accumulate;
    *s = (weft_trainer_state){.smoothed = NAN, .best = NAN};
    weft_status status = WEFT_OK;
    if (model) status = compare_model(t, model, weft_params_meta(t->params, "model_options"));
    if (status != WEFT_OK || !text || !step) return status;
    if (!read_number(text, "epoch", 10, &s->epoch) || !read_number(text, "batch", 10, &s->batch) ||
        !read_real(text, "smoothed", &s->smoothed) || !read_real(text, "best", &s->best) ||
        !read_number(text, "best_step", 10, &s->best_step) ||
        !read_number(text, "stale", 10, &s->stale) ||
        !read_number(text, "judged_step", 10, &s->judged_step) ||
        !read_number(text, "seed", 10, &seed) || !read_number(text, "batches", 10, &batches) ||
        !read_number(text, "accumulate", 10, &accumulate))
        return fail(t, WEFT_BAD_FILE, "checkpoint", "\"train.state\" is incomplete or damaged");
    const char *end = read_whole(step, 10, &s->step);
    if (!end || *end) return fail(t, WEFT_BAD_FILE, "checkpoint", "\"step\" is no whole number");
    status = check_same(t, "seed", seed, t->o.seed);
    if (status == WEFT_OK) status = check_data(t);
    if (status == WEFT_OK)
        status = check_same(t, "batches an epoch (which texts, lengths and tokens a batch give):",
                            batches, t->n_batches);
    if (status == WEFT_OK) status = check_batches(t);
    if (status == WEFT_OK) status = check_same(t, "accumulate", accumulate, t->o.accumulate);
    return status;
}

static weft_status write_meta(weft_trainer *t)
{
    const weft_trainer_state *s = &t->state;
    char step[32], text[512], longest[32], data[128], run[32], options[OPTIONS_TEXT];
    snprintf(step, sizeof step, "%" PRIu64, s->step);
    text_format(text, sizeof text, STATE_FORMAT, s->epoch, s->batch, s->smoothed, s->best,
                s->best_step, s->stale, s->judged_step, t->o.seed, (uint64_t)t->n_batches,
                (uint64_t)t->o.accumulate);
    if (!options_text(t->o.model, t->values, options, sizeof options))
        return fail(t, WEFT_TOO_LARGE, t->o.model->name, "its options are too long");
    snprintf(data, sizeof data, DATA_FORMAT, t->data.source, t->data.target, t->data.batches);
    snprintf(run, sizeof run, "%016" PRIx64, run_hash(t));
    snprintf(longest, sizeof longest, "%zu", weft_batches_counts(t->batches).longest);
    const char *metas[][2] = {
        {"model", t->o.model->name}, {"model_options", options}, {"step", step},
        {"train.state", text},       {"train.data", data},       {"run", run},
        {"trained_length", longest}};
    for (size_t i = 0; i < sizeof metas / sizeof *metas; i++)
        if (weft_params_set_meta(t->params, metas[i][0], metas[i][1]) != WEFT_OK)
            return out_of_memory(t);
    return WEFT_OK;
}

weft_status weft_trainer_save(weft_trainer *trainer, const char *path)
{
    if (!trainer) return WEFT_BAD_ARGUMENT;
    memset(&trainer->error, 0, sizeof trainer->error);
    weft_status status = write_meta(trainer);
    return status == WEFT_OK ? weft_params_save(trainer->params, path, &trainer->error) : status;
}

/* Copies the model's states into a store that has them: averaged ones if there are. */
static void copy_model(const weft_trainer *t, weft_params *to)
{
    for (size_t i = 0; i < weft_params_count(to); i++) {
        const char *name = weft_params_name(to, i);
        char averaged[512];
        weft_tensor from, into;
        snprintf(averaged, sizeof averaged, "ema.%s", name);
        weft_params_get(to, name, &into);
        /* Before the first update there is no average. */
        if (!(t->o.ema > 0 && t->state.step && weft_params_get(t->params, averaged, &from)) &&
            !weft_params_get(t->params, name, &from))
            continue;
        memcpy(into.data, from.data,
               (size_t)weft_shape_numel(from.shape) * weft_dtype_bytes(from.dtype));
    }
}

weft_status weft_trainer_save_model(weft_trainer *trainer, const char *path)
{
    static const char *const metas[] = {"model",  "model_options", "step",          "run",
                                        "recipe", "vocabulary",    "trained_length"};
    weft_trainer *t = trainer;
    if (!t) return WEFT_BAD_ARGUMENT;
    memset(&t->error, 0, sizeof t->error);
    planned *p = need(t, PLAN_EVALUATE, weft_batches_shape(t->batches, 0));
    weft_status status = p ? write_meta(t) : t->error.status;
    weft_params *copy = status == WEFT_OK ? weft_params_new() : NULL;
    if (status == WEFT_OK && !copy) status = out_of_memory(t);
    if (status == WEFT_OK) status = weft_params_init(copy, p->graph, t->o.seed, &t->error);
    for (size_t i = 0; status == WEFT_OK && i < sizeof metas / sizeof *metas; i++) {
        const char *text = weft_params_meta(t->params, metas[i]);
        if (text && weft_params_set_meta(copy, metas[i], text) != WEFT_OK)
            status = out_of_memory(t);
    }
    if (status == WEFT_OK) {
        copy_model(t, copy);
        status = weft_params_save(copy, path, &t->error);
    }
    weft_params_free(copy);
    return status;
}

/* ---- The trainer ---- */

static bool has_averages(const weft_params *params)
{
    for (size_t i = 0; i < weft_params_count(params); i++)
        if (!strncmp(weft_params_name(params, i), "ema.", 4)) return true;
    return false;
}

/* Of a training that went on without averages so far, they begin with the parameters. */
static void begin_averages(weft_trainer *t)
{
    for (size_t i = 0; i < weft_params_count(t->params); i++) {
        const char *name = weft_params_name(t->params, i);
        weft_tensor from, into;
        if (strncmp(name, "ema.", 4) != 0 || !weft_params_get(t->params, name + 4, &from)) continue;
        weft_params_get(t->params, name, &into);
        memcpy(into.data, from.data,
               (size_t)weft_shape_numel(from.shape) * weft_dtype_bytes(from.dtype));
    }
}

static weft_status plan_first(weft_trainer *t)
{
    weft_batch_shape shape = weft_batches_shape(t->batches, 0);
    if (t->o.accumulate == 1) return need(t, PLAN_STEP, shape) ? WEFT_OK : t->error.status;
    return need(t, PLAN_SUM, shape) && need(t, PLAN_APPLY, shape) ? WEFT_OK : t->error.status;
}

/* Copies the optimiser's groups and texts, which every graph reads. */
static weft_status keep_optimizer(weft_trainer *t)
{
    weft_optimizer *o = &t->o.optimizer;
    size_t n = o->groups ? o->n_groups : 0, bytes = o->no_decay ? strlen(o->no_decay) + 1 : 0;
    for (size_t i = 0; i < n; i++) bytes += o->groups[i].names ? strlen(o->groups[i].names) + 1 : 0;
    t->groups = malloc(n * sizeof *t->groups + bytes + 1);
    if (!t->groups) return out_of_memory(t);
    char *text = (char *)(t->groups + n);
    if (o->no_decay) {
        size_t length = strlen(o->no_decay) + 1;
        o->no_decay = memcpy(text, o->no_decay, length);
        text += length;
    }
    for (size_t i = 0; i < n; i++) {
        t->groups[i] = o->groups[i];
        if (!t->groups[i].names) continue;
        size_t length = strlen(t->groups[i].names) + 1;
        t->groups[i].names = memcpy(text, t->groups[i].names, length);
        text += length;
    }
    if (o->groups) o->groups = t->groups;
    o->name = NULL; /* its states are known by the prefix "opt" */
    o->guard = true;
    return WEFT_OK;
}

/* Checks the options and takes those of the model. */
static weft_status take_options(weft_trainer *t)
{
    weft_trainer_options *o = &t->o;
    if (!o->accumulate) o->accumulate = 1;
    if (keep_optimizer(t) != WEFT_OK) return t->error.status;
    if (!(o->schedule.peak > 0))
        return fail(t, WEFT_BAD_ARGUMENT, "trainer",
                    "schedule.peak, the learning rate, is required");
    if (!(o->ema >= 0 && o->ema < 1))
        return fail(t, WEFT_BAD_ARGUMENT, "trainer", "the decay of the average is 0 up to below 1");
    weft_status status =
        weft_model_parse(o->model, o->model_options, o->n_model_options, t->values, &t->error);
    o->model_options = NULL;
    return status;
}

static weft_status set_up(weft_trainer *t)
{
    weft_trainer_options *o = &t->o;
    weft_status status = take_options(t);
    if (status == WEFT_OK) status = resume(t);
    o->source_name = o->target_name = NULL;
    if (status != WEFT_OK) return status;
    if (o->ema > 0 && !(t->averaged = weft_params_new())) return out_of_memory(t);
    weft_batches_start(t->batches, t->state.epoch);
    bool begins = t->state.step && !has_averages(t->params);
    status = plan_first(t); /* what is wrong with a model shows before the first step */
    if (status == WEFT_OK && begins) begin_averages(t);
    return status;
}

weft_trainer *weft_trainer_new(const weft_trainer_options *options, weft_batches *batches,
                               weft_params *params, weft_error *error)
{
    if (error) memset(error, 0, sizeof *error);
    if (!options || !options->model || !batches || !params || options->threads < 0) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "trainer",
                       "a trainer needs a model, batches and a parameter store");
        return NULL;
    }
    weft_trainer *t = calloc(1, sizeof *t);
    if (!t) {
        weft_error_set(error, WEFT_NO_MEMORY, "trainer", "out of memory");
        return NULL;
    }
    t->o = *options;
    t->batches = batches;
    t->n_batches = weft_batches_counts(batches).batches;
    t->data = weft_batches_hashes(batches);
    t->params = params;
    if (set_up(t) == WEFT_OK) return t;
    weft_error_set(error, t->error.status, t->error.where, "%s", t->error.message);
    weft_trainer_free(t);
    return NULL;
}

/* Adds a plan of a kind to the estimate. */
static weft_status estimate_kind(weft_trainer *t, plan_kind kind, weft_batch_shape shape,
                                 double times, weft_trainer_estimate *e)
{
    planned *p = calloc(1, sizeof *p);
    if (!p) return out_of_memory(t);
    p->kind = kind;
    p->shape = shape;
    weft_status status = build(t, p);
    if (status == WEFT_OK) status = make_plan(t, p);
    if (status == WEFT_OK) {
        weft_plan_stats s = weft_plan_get_stats(p->plan);
        size_t workspace = weft_session_workspace(p->plan, t->o.threads);
        if (s.state_bytes > e->state_bytes) e->state_bytes = s.state_bytes;
        if (s.arena_bytes > e->arena_bytes) e->arena_bytes = s.arena_bytes;
        if (workspace > e->workspace_bytes) e->workspace_bytes = workspace;
        e->flops += times * s.flops;
    }
    free_planned(p);
    return status;
}

/* The parameters; where there is an average they are kept once more, to evaluate with. */
static weft_status estimate_parameters(weft_trainer *t, weft_batch_shape shape,
                                       weft_trainer_estimate *e)
{
    planned p = {.kind = PLAN_EVALUATE, .shape = shape};
    weft_status status = build(t, &p);
    size_t n = status == WEFT_OK ? weft_graph_params(p.graph, NULL, 0) : 0;
    weft_value *params = calloc(n + 1, sizeof *params);
    if (status == WEFT_OK && !params) status = out_of_memory(t);
    if (status == WEFT_OK) weft_graph_params(p.graph, params, n);
    for (size_t i = 0; status == WEFT_OK && i < n; i++) {
        size_t count = (size_t)weft_shape_numel(weft_shape_of(p.graph, params[i]));
        e->parameters += count;
        if (t->o.ema > 0)
            e->state_bytes += count * weft_dtype_bytes(weft_dtype_of(p.graph, params[i]));
    }
    free(params);
    weft_graph_free(p.graph);
    return status;
}

weft_status weft_trainer_get_estimate(const weft_trainer_options *options, weft_batch_shape shape,
                                      weft_trainer_estimate *estimate, weft_error *error)
{
    if (error) memset(error, 0, sizeof *error);
    if (!options || !options->model || !estimate || options->threads < 0)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "trainer",
                              "an estimate needs a model and room for the result");
    *estimate = (weft_trainer_estimate){0};
    weft_trainer *t = calloc(1, sizeof *t);
    if (!t) return weft_error_set(error, WEFT_NO_MEMORY, "trainer", "out of memory");
    t->o = *options;
    weft_status status = take_options(t);
    if (status == WEFT_OK && t->o.accumulate > 1) {
        status = estimate_kind(t, PLAN_SUM, shape, t->o.accumulate, estimate);
        if (status == WEFT_OK) status = estimate_kind(t, PLAN_APPLY, shape, 1, estimate);
    } else if (status == WEFT_OK) {
        status = estimate_kind(t, PLAN_STEP, shape, 1, estimate);
    }
    if (status == WEFT_OK) status = estimate_parameters(t, shape, estimate);
    if (status != WEFT_OK) weft_error_set(error, status, t->error.where, "%s", t->error.message);
    weft_trainer_free(t);
    return status;
}

void weft_trainer_free(weft_trainer *trainer)
{
    if (!trainer) return;
    for (size_t i = 0; i < trainer->n_plans; i++) free_planned(trainer->plans[i]);
    free(trainer->plans);
    for (int i = 0; i < 3; i++) free(trainer->ids[i]);
    free(trainer->arena);
    free(trainer->groups);
    weft_params_free(trainer->averaged);
    free(trainer);
}

const weft_error *weft_trainer_error(const weft_trainer *trainer)
{
    static const weft_error none = {WEFT_BAD_ARGUMENT, "trainer", "the trainer is NULL"};
    return trainer ? &trainer->error : &none;
}

weft_trainer_state weft_trainer_get_state(const weft_trainer *trainer)
{
    return trainer ? trainer->state : (weft_trainer_state){0};
}

/* The number of the next batch; starts the next epoch after the last. */
static size_t next_batch(weft_trainer *t, weft_trainer_state *s)
{
    if (s->batch >= t->n_batches) {
        s->batch = 0;
        weft_batches_start(t->batches, ++s->epoch);
    }
    return (size_t)s->batch++;
}

static weft_status feed_rates(weft_trainer *t, planned *p, double share, weft_step_report *report)
{
    double steps = (double)t->state.step;
    report->lr = weft_schedule_rate(&t->o.schedule, t->state.step, share);
    weft_status status = feed_scalar(t, p, p->lr, report->lr);
    if (status == WEFT_OK)
        status = feed_scalar(t, p, p->ema_keep, fmin(t->o.ema, steps / (steps + 10)));
    return status;
}

/* Whether the program wants the call to end. */
static bool stopped(weft_trainer *t)
{
    if (!t->o.stop || !t->o.stop(t->o.stop_context)) return false;
    fail(t, WEFT_CANCELLED, "trainer", "stopped on request");
    return true;
}

/* Adds batch `part` of an update to the sums. */
static weft_status sum_batch(weft_trainer *t, weft_trainer_state *s, uint32_t part,
                             weft_step_report *report)
{
    size_t index = next_batch(t, s), tokens;
    planned *p = need(t, PLAN_SUM, weft_batches_shape(t->batches, index));
    if (!p) return t->error.status;
    weft_status status = feed_batch(t, p, t->batches, index, &tokens);
    if (status == WEFT_OK) status = feed_scalar(t, p, p->keep, part ? 1 : 0);
    if (status == WEFT_OK) status = feed_scalar(t, p, p->share, (double)tokens);
    if (status == WEFT_OK) status = run(t, p, s->step * t->o.accumulate + part);
    if (status != WEFT_OK) return status;
    report->loss += fetch_scalar(p, p->io.loss) * (double)tokens;
    report->tokens += tokens;
    report->flops += weft_plan_get_stats(p->plan).flops;
    return WEFT_OK;
}

static weft_status step_by_sums(weft_trainer *t, weft_trainer_state *s, double share,
                                weft_step_report *report)
{
    for (uint32_t i = 0; i < t->o.accumulate; i++)
        if (stopped(t) || sum_batch(t, s, i, report) != WEFT_OK) return t->error.status;
    planned *p = need(t, PLAN_APPLY, (weft_batch_shape){0});
    if (!p) return t->error.status;
    double targets = report->tokens ? (double)report->tokens : 1;
    weft_status status = feed_rates(t, p, share, report);
    if (status == WEFT_OK) status = feed_scalar(t, p, p->inverse, 1 / targets);
    if (status == WEFT_OK) status = run(t, p, s->step);
    if (status != WEFT_OK) return status;
    report->loss /= targets;
    report->norm = fetch_scalar(p, p->norm);
    report->flops += weft_plan_get_stats(p->plan).flops;
    return WEFT_OK;
}

static weft_status step_at_once(weft_trainer *t, weft_trainer_state *s, double share,
                                weft_step_report *report)
{
    size_t index = next_batch(t, s);
    planned *p = need(t, PLAN_STEP, weft_batches_shape(t->batches, index));
    if (!p) return t->error.status;
    weft_status status = feed_batch(t, p, t->batches, index, &report->tokens);
    if (status == WEFT_OK) status = feed_rates(t, p, share, report);
    if (status == WEFT_OK) status = run(t, p, s->step);
    if (status != WEFT_OK) return status;
    report->loss = fetch_scalar(p, p->io.loss);
    report->norm = fetch_scalar(p, p->norm);
    report->flops = weft_plan_get_stats(p->plan).flops;
    return WEFT_OK;
}

weft_status weft_trainer_step(weft_trainer *trainer, double share, weft_step_report *report)
{
    weft_trainer *t = trainer;
    if (!t) return WEFT_BAD_ARGUMENT;
    weft_step_report r = {0};
    weft_trainer_state s = t->state;
    memset(&t->error, 0, sizeof t->error);
    t->planned = false;
    weft_status status =
        t->o.accumulate > 1 ? step_by_sums(t, &s, share, &r) : step_at_once(t, &s, share, &r);
    r.planned = t->planned;
    if (report) *report = r;
    if (status != WEFT_OK) {
        if (s.epoch != t->state.epoch) weft_batches_start(t->batches, t->state.epoch);
        return status;
    }
    s.step++;
    s.smoothed = isnan(s.smoothed) ? r.loss : 0.98 * s.smoothed + 0.02 * r.loss;
    t->state = s;
    return WEFT_OK;
}

static weft_status evaluate_all(weft_trainer *t, weft_batches *batches, size_t most, double *nll,
                                size_t *tokens)
{
    size_t count = weft_batches_counts(batches).batches, n;
    double sum = 0;
    *tokens = 0;
    for (size_t i = 0; i < count && (i < most || !most); i++) {
        planned *p = stopped(t) ? NULL : need(t, PLAN_EVALUATE, weft_batches_shape(batches, i));
        if (!p) return t->error.status;
        if (!i && t->averaged) copy_model(t, t->averaged);
        weft_status status = feed_batch(t, p, batches, i, &n);
        if (status == WEFT_OK) status = run(t, p, 0);
        if (status != WEFT_OK) return status;
        sum += (double)n * fetch_scalar(p, p->io.nll);
        *tokens += n;
    }
    *nll = *tokens ? sum / (double)*tokens : NAN;
    return WEFT_OK;
}

weft_status weft_trainer_evaluate(weft_trainer *trainer, weft_batches *batches, size_t most,
                                  double *nll, size_t *tokens)
{
    weft_trainer *t = trainer;
    double mean = NAN;
    size_t n = 0;
    if (!t) return WEFT_BAD_ARGUMENT;
    memset(&t->error, 0, sizeof t->error);
    if (!batches || !nll)
        return fail(t, WEFT_BAD_ARGUMENT, "weft_trainer_evaluate",
                    "the batches or the nll are NULL");
    weft_batches_start(batches, 0);
    weft_status status = evaluate_all(t, batches, most, &mean, &n);
    if (batches == t->batches) weft_batches_start(batches, t->state.epoch);
    *nll = mean;
    if (tokens) *tokens = n;
    return status;
}

const weft_params *weft_trainer_model(weft_trainer *trainer)
{
    weft_trainer *t = trainer;
    if (!t) return NULL;
    memset(&t->error, 0, sizeof t->error);
    if (!t->averaged) return t->params;
    if (!need(t, PLAN_EVALUATE, weft_batches_shape(t->batches, 0))) return NULL;
    copy_model(t, t->averaged);
    return t->averaged;
}

bool weft_trainer_judge(weft_trainer *trainer, double nll)
{
    if (!trainer) return false;
    weft_trainer_state *s = &trainer->state;
    s->judged_step = s->step;
    bool best = nll < s->best || (isnan(s->best) && !isnan(nll));
    if (best) {
        s->best = nll;
        s->best_step = s->step;
        s->stale = 0;
    } else {
        s->stale++;
    }
    return best;
}
