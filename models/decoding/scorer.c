/* Scores of given tokens: their log probabilities, or the attention weights over the source for
 * each.
 *
 * The whole model runs over rows of tokens; a row longer than the context is split into windows.
 * Windows are sorted by padded length, O(n log n), and run in small batches. The padded length
 * depends on the row only, so its scores are bit-identical whatever the other rows are. */
#include <weft/decode.h>

#include "run/built.h"
#include "zoo/text.h"

#include <weft/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIN_LENGTH 8
/* Bounds of rows * length of a pass, idle rows included; a pass has at least one row. The matrix
 * product with a tied embedding matrix sums in another order if a tile has fewer than 48 rows.
 * Within these bounds no tile has, so the bits do not depend on the number of texts. */
#define MIN_POSITIONS 48
#define MAX_POSITIONS 1536
#define DEFAULT_ROWS  16

/* A window of a row: reads tokens first .. first + count - 1, and scores the predictions of all but
 * the first `skip`. */
typedef struct window {
    size_t row, first, count, skip;
    int64_t source_len, target_len; /* padded */
} window;

struct weft_scorer {
    weft_model_config config;
    weft_model_traits traits;
    weft_scorer_options o;
    bool has_source;
    weft_forward *forward;
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

/* ---- Graphs ---- */

/* Returns the log probability of each target, [rows, target_len]. */
static weft_value add_log_probs(weft_graph *g, weft_value logits, weft_value targets)
{
    weft_value all = weft_log_softmax(g, logits, -1);
    return weft_squeeze(g, weft_gather(g, all, weft_expand_dims(g, targets, -1), -1), -1);
}

/* Returns the weights of one head, or the mean over heads, [rows, target_len, source_len]. */
static weft_value add_weights(const weft_scorer *s, weft_graph *g, weft_value weights)
{
    if (!weft_is_value(weights)) {
        weft_graph_fail_in(g, "attention", WEFT_NOT_FOUND,
                           "the model has no such layer that attends to a source");
        return weights;
    }
    bool by_heads = weft_rank_of(g, weights) == 4;
    if (s->o.head > (by_heads ? weft_dim_of(g, weights, 1) : 1))
        weft_graph_fail_in(g, "attention", WEFT_BAD_ARGUMENT, "no such head");
    if (!by_heads) return weights;
    if (!s->o.head) return weft_mean(g, weights, WEFT_AXES(1), false);
    return weft_squeeze(g, weft_slice(g, weights, 1, s->o.head - 1, s->o.head, 1), 1);
}

/* Inputs: source, if there is one, target_in, target_out. Output: the scores. */
static weft_status build_scores(void *context, weft_graph *g, const weft_build_options *options,
                                weft_built *built)
{
    const weft_scorer *s = context;
    weft_model_config config = s->config;
    config.build = *options;
    *built = (weft_built){.n_inputs = 0};
    const weft_built model = weft_model_build(g, &config);
    if (weft_graph_status(g) != WEFT_OK) return weft_graph_status(g);
    const weft_value targets = weft_built_input(&model, "target_out");
    if (s->has_source) weft__built_add_input(built, "source", weft_built_input(&model, "source"));
    weft__built_add_input(built, "target_in", weft_built_input(&model, "target_in"));
    weft__built_add_input(built, "target_out", targets);
    weft__built_add_output(built, "scores",
                           s->o.weights ? add_weights(s, g, weft_built_output(&model, "weights"))
                                        : add_log_probs(g, model.outputs[0], targets));
    return weft_graph_status(g);
}

/* ---- The scorer ---- */

static weft_status check_options(const weft_model *m, const weft_model_traits *traits,
                                 const weft_scorer_options *o, weft_error *error)
{
    const bool has_source = traits->source_vocab > 0;
    if (!traits->decodable)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, m->name,
                              "is not autoregressive: it does not predict the next token");
    if (o->rows < 0 || o->context < 0 || o->layer < 0 || o->head < 0)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "scorer", "an option is below 0");
    if (o->weights && !has_source)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, m->name,
                              "has no source, so no attention weights over a source");
    if (!has_source && o->context > traits->max_positions)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, m->name,
                              "has %lld learned positions, fewer than %lld",
                              (long long)traits->max_positions, (long long)o->context);
    return WEFT_OK;
}

weft_scorer *weft_scorer_new(const weft_model_config *config, const weft_params *params,
                             const weft_scorer_options *options, weft_error *error)
{
    weft_error_clear(error);
    static const weft_scorer_options none = {.rows = 0};
    const weft_scorer_options *o = options ? options : &none;
    if (!config || !config->model || !params) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "scorer",
                       "the model's configuration or the parameters are NULL");
        return NULL;
    }
    const weft_model_traits traits = weft_model_traits_of(config);
    if (check_options(config->model, &traits, o, error) != WEFT_OK) return NULL;
    weft_scorer *s = calloc(1, sizeof *s);
    if (!s) {
        weft_error_set(error, WEFT_NO_MEMORY, "scorer", "out of memory");
        return NULL;
    }
    s->config = *config;
    s->traits = traits;
    s->o = *o;
    if (!s->o.rows) s->o.rows = DEFAULT_ROWS;
    s->has_source = traits.source_vocab > 0;
    if (!s->o.context || s->has_source) s->o.context = traits.max_positions;
    const weft_builder builder = {.name = config->model->name, .build = build_scores, .context = s};
    s->forward = weft_forward_new(&builder, params, &o->session, error);
    if (s->forward) return s;
    weft_scorer_free(s);
    return NULL;
}

void weft_scorer_free(weft_scorer *scorer)
{
    if (!scorer) return;
    weft_forward_free(scorer->forward);
    for (int i = 0; i < 3; i++) free(scorer->ids[i]);
    free(scorer);
}

/* ---- Windows ---- */

/* The number of tokens that the model reads of a row: all but the last. */
static size_t inputs_of(const weft_scorer_row *row)
{
    return row->length ? row->length - 1 : 0;
}

/* The number of tokens that a window repeats from the previous one, as context. */
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

/* Writes the windows of a row and returns their number. The windows are those of generation: the
 * first is full, and each other one begins with the last half context of its predecessor. */
static size_t cut_windows(const weft_scorer *s, const weft_scorer_row *rows, size_t row,
                          window *windows)
{
    const size_t inputs = inputs_of(&rows[row]), prefix = prefix_of(s);
    const size_t context = (size_t)s->o.context;
    int64_t source_len =
        s->has_source
            ? weft__text_bucket(MIN_LENGTH, (int64_t)rows[row].source_len, s->traits.max_positions)
            : 0;
    size_t n = 0;
    for (size_t done = 0; done < inputs; n++) {
        size_t skip = done ? prefix - 1 : 0, first = done - skip;
        size_t count = inputs - first < context ? inputs - first : context;
        windows[n] =
            (window){row,  first,      count,
                     skip, source_len, weft__text_bucket(MIN_LENGTH, (int64_t)count, s->o.context)};
        done = first + count;
    }
    return n;
}

/* By shape, then by row. */
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
    const size_t limit = (size_t)s->traits.max_positions;
    for (size_t i = 0; i < n; i++) {
        const weft_scorer_row *r = &rows[i];
        if (inputs_of(r) == 0) continue;
        bool given = r->tokens && r->scores && (!s->has_source || (r->source && r->source_len));
        bool fits = r->length <= INT32_MAX && r->source_len <= INT32_MAX &&
                    (!s->has_source || (inputs_of(r) <= limit && r->source_len <= limit));
        if (given && fits) continue;
        if (!given)
            weft_error_set(&s->error, WEFT_BAD_ARGUMENT, "scorer",
                           "row %zu lacks tokens, a source or room for the scores", i);
        else
            weft_error_set(
                &s->error, WEFT_TOO_LARGE, "scorer",
                "row %zu has %zu tokens and %zu of a source, the model has %zu positions", i,
                inputs_of(r), r->source_len, limit < INT32_MAX ? limit : INT32_MAX);
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

static void pad(const weft_scorer *s, int32_t *to, const int32_t *ids, size_t n, int64_t length)
{
    if (n) memcpy(to, ids, n * sizeof *to);
    for (int64_t i = (int64_t)n; i < length; i++) to[i] = s->traits.pad_id;
}

/* Fills s->ids with the rows of n windows, and the remaining rows with padding. */
static bool fill_ids(weft_scorer *s, const weft_batch_shape *z, const weft_scorer_row *rows,
                     const window *windows, size_t n)
{
    int64_t longest = z->source_len > z->target_len ? z->source_len : z->target_len;
    if (!reserve_ids(s, (size_t)(z->rows * longest))) return false;
    for (int64_t i = 0; i < z->rows; i++) {
        const window *w = i < (int64_t)n ? &windows[i] : NULL;
        const weft_scorer_row *r = w ? &rows[w->row] : NULL;
        pad(s, s->ids[0] + i * z->source_len, w ? r->source : NULL,
            w && s->has_source ? r->source_len : 0, z->source_len);
        pad(s, s->ids[1] + i * z->target_len, w ? r->tokens + w->first : NULL, w ? w->count : 0,
            z->target_len);
        pad(s, s->ids[2] + i * z->target_len, w ? r->tokens + w->first + 1 : NULL, w ? w->count : 0,
            z->target_len);
    }
    return true;
}

static double number_at(const weft_tensor *t, int64_t row, int64_t position, int64_t column)
{
    int64_t at = row * t->stride[0] + position * t->stride[1] +
                 (t->shape.rank > 2 ? column * t->stride[2] : 0);
    return t->dtype == WEFT_F64 ? ((const double *)t->data)[at] : ((const float *)t->data)[at];
}

/* Copies the results of a window into the scores of its row. */
static bool copy_scores(weft_scorer *s, const weft_tensor *t, int64_t at, const window *w,
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
    int64_t min_rows = (MIN_POSITIONS + windows->target_len - 1) / windows->target_len;
    weft_build_options options = {
        .shape = {weft__text_rows((int64_t)n), windows->source_len, windows->target_len},
        .expose_weights = s->o.weights,
        .layer = s->o.layer};
    weft_batch_shape *z = &options.shape;
    weft_tensor t;
    if (z->rows > limit) z->rows = limit;
    if (z->rows < min_rows) z->rows = min_rows;
    if (!fill_ids(s, z, rows, windows, n)) return false;
    const void *inputs[] = {s->ids[0], s->ids[1], s->ids[2]};
    if (weft_forward_run(s->forward, &options, inputs + !s->has_source, &s->error) != WEFT_OK)
        return false;
    if (!weft_forward_output(s->forward, 0, &t))
        return fail(s, WEFT_INTERNAL, "scorer", "a pass has no result");
    for (size_t i = 0; i < n; i++)
        if (!copy_scores(s, &t, (int64_t)i, &windows[i], &rows[windows[i].row])) return false;
    return true;
}

/* Runs the sorted windows in batches of equal shape, as large as the options and MAX_POSITIONS
 * allow. */
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
    weft_error_clear(error);
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
