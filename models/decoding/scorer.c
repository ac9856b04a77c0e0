/* Scores of tokens that are known: their log probabilities, or the attention weights by which a
 * model reads a source for them.
 *
 * The whole model runs over rows of tokens; a row that is longer than the context is read in
 * windows. Rows and windows are sorted by their padded lengths, which depend on the row alone, and
 * run so many at a time; so a row gets the same bits in any company. Each shape has a plan of its
 * own, made when it is first needed; the sessions of all share one arena. */
#include <weft/decode.h>
#include <weft/session.h>

#include "zoo/text.h"

#include <weft/ops.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN_LENGTH 8
/* Positions of a pass, rows times length, idle rows included; one row there always is. A product
 * with a tied table adds its terms in another order where a tile of it has fewer than 48 rows;
 * within these bounds no tile has, so that the bits do not depend on how many texts run at once. */
#define MIN_POSITIONS 48
#define MAX_POSITIONS 1536
#define DEFAULT_ROWS  16

/* A planned graph of one shape. */
typedef struct pass {
    int64_t rows, source_len, target_len;
    weft_plan *plan;
    weft_session *session; /* NULL until it runs */
    weft_value source, target_in, target_out, result;
    struct pass *next;
} pass;

/* A row, or a window of one: reads tokens first .. first + count - 1 and gives the outputs of those
 * from first + skip on. */
typedef struct window {
    size_t row, first, count, skip;
    int64_t source_len, target_len; /* padded */
} window;

struct weft_scorer {
    const weft_model *model;
    double values[WEFT_MODEL_OPTIONS];
    weft_scorer_options o;
    bool has_source;
    int32_t pad;
    weft_params *store; /* the model's parameters, shared */
    pass *passes;
    void *arena, *workspace; /* of all sessions */
    size_t arena_bytes, workspace_bytes;
    int32_t *ids[3]; /* source, target_in, target_out */
    size_t id_capacity;
    weft_error error;
};

static bool fail(weft_scorer *s, weft_status status, const char *where, const char *message)
{
    weft_error_set(&s->error, status, where, "%s", message);
    return false;
}

static bool no_memory(weft_scorer *s)
{
    return fail(s, WEFT_NO_MEMORY, "scorer", "out of memory");
}

static bool take_error(weft_scorer *s, const weft_error *e)
{
    return fail(s, e->status, e->where, e->message);
}

/* ---- Options of the model ---- */

static size_t option_at(const weft_model *model, const char *name)
{
    size_t i = 0;
    while (i < model->n_options && strcmp(model->options[i].name, name) != 0) i++;
    return i;
}

static bool has_option(const weft_model *model, const char *name)
{
    return option_at(model, name) < model->n_options;
}

static void set_option(weft_scorer *s, const char *name, int64_t value)
{
    size_t i = option_at(s->model, name);
    if (i < s->model->n_options) s->values[i] = (double)value;
}

/* ---- Graphs ---- */

/* The log probability of each target, [rows, target_len]. */
static weft_value add_log_probs(weft_graph *g, const weft_model_io *io)
{
    weft_value all = weft_log_softmax(g, io->output, -1);
    return weft_squeeze(g, weft_gather(g, all, weft_expand_dims(g, io->target_out, -1), -1), -1);
}

/* The attention weights of the layer, [rows, heads, target_len, source_len] of a stack or [rows,
 * target_len, source_len] of a model with one attention. */
static weft_value find_weights(const weft_scorer *s, const weft_graph *g)
{
    char name[64];
    weft_value found = weft_find(g, "attention");
    if (weft_is_value(found)) return s->o.layer <= 1 ? found : WEFT_NO_VALUE;
    for (int64_t layer = s->o.layer ? s->o.layer : 1;; layer++) {
        snprintf(name, sizeof name, "dec.%lld.cross.weights", (long long)layer - 1);
        weft_value here = weft_find(g, name);
        if (!weft_is_value(here)) return found;
        found = here;
        if (s->o.layer) return found;
    }
}

/* The weights of one head or the mean of all, [rows, target_len, source_len]. */
static weft_value add_weights(const weft_scorer *s, weft_graph *g)
{
    weft_value weights = find_weights(s, g);
    if (!weft_is_value(weights)) {
        weft_graph_fail_in(g, "attention", WEFT_NOT_FOUND,
                           "the model has no such layer that looks at a source");
        return weights;
    }
    bool by_heads = weft_shape_of(g, weights).rank == 4;
    if (s->o.head > (by_heads ? weft_dim(g, weights, 1) : 1))
        weft_graph_fail_in(g, "attention", WEFT_BAD_ARGUMENT, "no such head");
    if (!by_heads) return weights;
    if (!s->o.head) return weft_mean(g, weights, WEFT_AXES(1), false);
    return weft_squeeze(g, weft_slice(g, weights, 1, s->o.head - 1, s->o.head, 1), 1);
}

static bool plan_pass(weft_scorer *s, pass *p)
{
    weft_model_io io = {.vocab = 0};
    weft_graph *g = weft_graph_new();
    if (!g) return no_memory(s);
    set_option(s, "batch", p->rows);
    set_option(s, "length", p->target_len);
    set_option(s, "target_len", p->target_len);
    set_option(s, "source_len", p->source_len);
    if (s->o.weights) set_option(s, "keep_weights", 1);
    if (s->model->build(g, s->values, false, &io) == WEFT_OK)
        p->result = s->o.weights ? add_weights(s, g) : add_log_probs(g, &io);
    p->source = io.source;
    p->target_in = io.target_in;
    p->target_out = io.target_out;
    const weft_error *e = weft_graph_error(g);
    if (e->status != WEFT_OK)
        take_error(s, e);
    else
        p->plan = weft_plan_new(g, &p->result, 1, NULL, &s->error);
    weft_graph_free(g);
    return p->plan != NULL;
}

/* ---- Sessions ---- */

static void close_sessions(weft_scorer *s)
{
    for (pass *p = s->passes; p; p = p->next) {
        weft_session_free(p->session);
        p->session = NULL;
    }
}

/* Makes memory that all sessions share hold `bytes`; if it was too small, all are opened anew. */
static bool share_memory(weft_scorer *s, void **memory, size_t *have, size_t bytes)
{
    if (*memory && bytes <= *have) return true;
    close_sessions(s);
    free(*memory);
    *memory = weft_alloc(bytes);
    *have = *memory ? bytes : 0;
    return *memory || no_memory(s);
}

static bool open_pass(weft_scorer *s, pass *p)
{
    size_t arena = weft_plan_get_stats(p->plan).arena_bytes;
    size_t workspace = weft_session_workspace(p->plan, s->o.threads);
    if (!share_memory(s, &s->arena, &s->arena_bytes, arena) ||
        !share_memory(s, &s->workspace, &s->workspace_bytes, workspace))
        return false;
    if (p->session) return true;
    weft_session_options o = {.threads = s->o.threads,
                              .arena = s->arena,
                              .arena_bytes = s->arena_bytes,
                              .workspace = s->workspace,
                              .workspace_bytes = s->workspace_bytes};
    p->session = weft_session_new(p->plan, s->store, &o, &s->error);
    return p->session != NULL;
}

/* The pass of this shape, ready to be fed; NULL on failure. */
static pass *pass_for(weft_scorer *s, int64_t rows, int64_t source_len, int64_t target_len)
{
    pass *p = s->passes;
    while (p && (p->rows != rows || p->source_len != source_len || p->target_len != target_len))
        p = p->next;
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p) {
            no_memory(s);
            return NULL;
        }
        *p = (pass){.rows = rows, .source_len = source_len, .target_len = target_len};
        if (!plan_pass(s, p)) {
            free(p);
            return NULL;
        }
        p->next = s->passes;
        s->passes = p;
    }
    return open_pass(s, p) ? p : NULL;
}

/* ---- The scorer ---- */

static weft_status check_options(const weft_model *m, const double *values,
                                 const weft_scorer_options *o, weft_error *error)
{
    bool has_source = has_option(m, "source_len");
    int64_t most = weft_model_max_positions(m, values);
    if (!has_option(m, "vocab") || !has_option(m, "batch") ||
        !has_option(m, has_source ? "target_len" : "length") || m->looks_ahead)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, m->name,
                              "is no model that says one token after another");
    if (o->rows < 0 || o->context < 0 || o->layer < 0 || o->head < 0)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "scorer", "an option is below 0");
    if (o->weights && !has_source)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, m->name,
                              "has no source, and no weights of one");
    if (!has_source && o->context > most)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, m->name,
                              "has learned %lld positions, asked for %lld", (long long)most,
                              (long long)o->context);
    return WEFT_OK;
}

weft_scorer *weft_scorer_new(const weft_model *model, const double *values,
                             const weft_params *params, const weft_scorer_options *options,
                             weft_error *error)
{
    static const weft_scorer_options none = {.rows = 0};
    const weft_scorer_options *o = options ? options : &none;
    if (!model || !values || !params) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "scorer",
                       "the model, its values or the parameters are NULL");
        return NULL;
    }
    if (check_options(model, values, o, error) != WEFT_OK) return NULL;
    weft_scorer *s = calloc(1, sizeof *s);
    if (s) s->store = weft_params_new();
    if (!s || !s->store) {
        weft_error_set(error, WEFT_NO_MEMORY, "scorer", "out of memory");
        weft_scorer_free(s);
        return NULL;
    }
    s->model = model;
    memcpy(s->values, values, model->n_options * sizeof *values);
    s->o = *o;
    if (!s->o.rows) s->o.rows = DEFAULT_ROWS;
    s->has_source = has_option(model, "source_len");
    int64_t most = weft_model_max_positions(model, values);
    if (!s->o.context || s->has_source) s->o.context = most;
    if (has_option(model, "pad_id")) s->pad = (int32_t)values[option_at(model, "pad_id")];
    if (weft_params_share(s->store, params, error) == WEFT_OK) return s;
    weft_scorer_free(s);
    return NULL;
}

void weft_scorer_free(weft_scorer *scorer)
{
    if (!scorer) return;
    close_sessions(scorer);
    for (pass *p = scorer->passes, *next; p; p = next) {
        next = p->next;
        weft_plan_free(p->plan);
        free(p);
    }
    weft_params_free(scorer->store);
    free(scorer->arena);
    free(scorer->workspace);
    for (int i = 0; i < 3; i++) free(scorer->ids[i]);
    free(scorer);
}

/* ---- Windows ---- */

/* Tokens of a row that are read: all but the last. */
static size_t inputs_of(const weft_scorer_row *row)
{
    return row->length ? row->length - 1 : 0;
}

/* Tokens that a later window reads only to go on from. */
static size_t prefix_of(const weft_scorer *s)
{
    return s->o.context > 1 ? (size_t)s->o.context / 2 : 1;
}

static size_t count_windows(const weft_scorer *s, size_t inputs)
{
    size_t context = (size_t)s->o.context;
    if (!inputs) return 0;
    if (inputs <= context) return 1;
    size_t each = context + 1 - prefix_of(s);
    return 1 + (inputs - context + each - 1) / each;
}

/* The windows of a row, as those that a text is generated in: the first is full; the next begin
 * with the last half of a context of the tokens before. */
static size_t cut_windows(const weft_scorer *s, const weft_scorer_row *rows, size_t row,
                          window *windows)
{
    const size_t inputs = inputs_of(&rows[row]), prefix = prefix_of(s);
    const size_t context = (size_t)s->o.context;
    int64_t source_len = s->has_source ? text_bucket(MIN_LENGTH, (int64_t)rows[row].source_len,
                                                     weft_model_max_positions(s->model, s->values))
                                       : 0;
    size_t n = 0;
    for (size_t done = 0; done < inputs; n++) {
        size_t skip = done ? prefix - 1 : 0, first = done - skip;
        size_t count = inputs - first < context ? inputs - first : context;
        windows[n] =
            (window){row,  first,      count,
                     skip, source_len, text_bucket(MIN_LENGTH, (int64_t)count, s->o.context)};
        done = first + count;
    }
    return n;
}

/* By shape, then in the order of rows. */
static int by_shape(const void *a, const void *b)
{
    const window *x = a, *y = b;
    if (x->target_len != y->target_len) return x->target_len < y->target_len ? -1 : 1;
    if (x->source_len != y->source_len) return x->source_len < y->source_len ? -1 : 1;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static bool check_rows(weft_scorer *s, const weft_scorer_row *rows, size_t n)
{
    const size_t most = (size_t)weft_model_max_positions(s->model, s->values);
    for (size_t i = 0; i < n; i++) {
        const weft_scorer_row *r = &rows[i];
        if (inputs_of(r) == 0) continue;
        bool given = r->tokens && r->scores && (!s->has_source || (r->source && r->source_len));
        bool fits = r->length <= INT32_MAX && r->source_len <= INT32_MAX &&
                    (!s->has_source || (inputs_of(r) <= most && r->source_len <= most));
        if (given && fits) continue;
        if (!given)
            weft_error_set(&s->error, WEFT_BAD_ARGUMENT, "scorer",
                           "row %zu lacks tokens, a source or room for the scores", i);
        else
            weft_error_set(
                &s->error, WEFT_TOO_LARGE, "scorer",
                "row %zu has %zu tokens and %zu of a source, the model has %zu positions", i,
                inputs_of(r), r->source_len, most < INT32_MAX ? most : INT32_MAX);
        return false;
    }
    return true;
}

/* ---- Running ---- */

static bool reserve_ids(weft_scorer *s, size_t n)
{
    if (n <= s->id_capacity) return true;
    s->id_capacity = 0;
    for (int i = 0; i < 3; i++) {
        free(s->ids[i]);
        s->ids[i] = malloc(n * sizeof *s->ids[i]);
    }
    if (!s->ids[0] || !s->ids[1] || !s->ids[2]) return no_memory(s);
    s->id_capacity = n;
    return true;
}

static void lay(const weft_scorer *s, int32_t *to, const int32_t *ids, size_t n, int64_t length)
{
    if (n) memcpy(to, ids, n * sizeof *to);
    for (int64_t i = (int64_t)n; i < length; i++) to[i] = s->pad;
}

/* Rows of windows, and rows of padding behind them. */
static bool feed(weft_scorer *s, const pass *p, const weft_scorer_row *rows, const window *windows,
                 size_t n)
{
    const weft_value inputs[3] = {p->source, p->target_in, p->target_out};
    const int64_t lengths[3] = {p->source_len, p->target_len, p->target_len};
    int64_t longest = p->source_len > p->target_len ? p->source_len : p->target_len;
    if (!reserve_ids(s, (size_t)(p->rows * longest))) return false;
    for (int64_t i = 0; i < p->rows; i++) {
        const window *w = i < (int64_t)n ? &windows[i] : NULL;
        const weft_scorer_row *r = w ? &rows[w->row] : NULL;
        lay(s, s->ids[0] + i * p->source_len, w ? r->source : NULL,
            w && s->has_source ? r->source_len : 0, p->source_len);
        lay(s, s->ids[1] + i * p->target_len, w ? r->tokens + w->first : NULL, w ? w->count : 0,
            p->target_len);
        lay(s, s->ids[2] + i * p->target_len, w ? r->tokens + w->first + 1 : NULL, w ? w->count : 0,
            p->target_len);
    }
    for (int k = 0; k < 3; k++)
        if (weft_is_value(inputs[k]) &&
            weft_feed(p->session, inputs[k], s->ids[k],
                      (size_t)(p->rows * lengths[k]) * sizeof **s->ids) != WEFT_OK)
            return take_error(s, weft_session_error(p->session));
    return true;
}

static double number_at(const weft_tensor *t, int64_t row, int64_t position, int64_t column)
{
    int64_t at = row * t->stride[0] + position * t->stride[1] +
                 (t->shape.rank > 2 ? column * t->stride[2] : 0);
    return t->dtype == WEFT_F64 ? ((const double *)t->data)[at] : ((const float *)t->data)[at];
}

/* Copies what the pass gave for a window into the scores of its row. */
static bool take_scores(weft_scorer *s, const weft_tensor *t, int64_t at, const window *w,
                        const weft_scorer_row *row)
{
    size_t width = s->o.weights ? row->source_len : 1;
    for (size_t i = w->skip; i < w->count; i++)
        for (size_t k = 0; k < width; k++) {
            double x = number_at(t, at, (int64_t)i, (int64_t)k);
            if (isnan(x))
                return fail(s, WEFT_NOT_FINITE, "scorer", "a score of the model is not a number");
            row->scores[(w->first + i) * width + k] = x;
        }
    return true;
}

static bool run_pass(weft_scorer *s, const weft_scorer_row *rows, const window *windows, size_t n,
                     int64_t limit)
{
    int64_t least = (MIN_POSITIONS + windows->target_len - 1) / windows->target_len;
    int64_t all = text_rows((int64_t)n);
    if (all > limit) all = limit;
    if (all < least) all = least;
    pass *p = pass_for(s, all, windows->source_len, windows->target_len);
    weft_tensor t;
    if (!p || !feed(s, p, rows, windows, n)) return false;
    if (weft_run(p->session) != WEFT_OK) return take_error(s, weft_session_error(p->session));
    if (!weft_session_tensor(p->session, p->result, &t))
        return fail(s, WEFT_INTERNAL, "scorer", "a pass has no result");
    for (size_t i = 0; i < n; i++)
        if (!take_scores(s, &t, (int64_t)i, &windows[i], &rows[windows[i].row])) return false;
    return true;
}

/* Sorted windows of equal shapes, as many at a time as options and MAX_POSITIONS allow. */
static bool run_windows(weft_scorer *s, const weft_scorer_row *rows, const window *windows,
                        size_t n)
{
    for (size_t i = 0, end; i < n; i = end) {
        const window *w = &windows[i];
        int64_t longest = w->source_len > w->target_len ? w->source_len : w->target_len;
        int64_t limit = MAX_POSITIONS / longest < s->o.rows ? MAX_POSITIONS / longest : s->o.rows;
        if (limit < 1) limit = 1;
        for (end = i + 1; end < n && end - i < (size_t)limit; end++)
            if (windows[end].source_len != w->source_len ||
                windows[end].target_len != w->target_len)
                break;
        if (!run_pass(s, rows, w, end - i, limit)) return false;
    }
    return true;
}

weft_status weft_scorer_run(weft_scorer *scorer, const weft_scorer_row *rows, size_t n,
                            weft_error *error)
{
    weft_scorer *s = scorer;
    if (!s || (n && !rows))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "scorer", "the scorer or rows are NULL");
    s->error = (weft_error){.status = WEFT_OK};
    size_t n_windows = 0, at = 0;
    window *windows = NULL;
    bool good = check_rows(s, rows, n);
    for (size_t i = 0; good && i < n; i++) n_windows += count_windows(s, inputs_of(&rows[i]));
    if (good) windows = calloc(n_windows + 1, sizeof *windows);
    good = good && (windows || no_memory(s));
    for (size_t i = 0; good && i < n; i++) at += cut_windows(s, rows, i, windows + at);
    if (good) qsort(windows, at, sizeof *windows, by_shape);
    good = good && run_windows(s, rows, windows, at);
    free(windows);
    if (good) return WEFT_OK;
    return weft_error_set(error, s->error.status ? s->error.status : WEFT_INTERNAL, s->error.where,
                          "%s", s->error.message);
}
