/* See forest.h. */
#include "onnx/forest.h"
#include "onnx/classic.h"
#include "onnx/import.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define MAX_LEVELS 256

double *weft__forest_numbers(onnx_node *n, int64_t count, double value)
{
    double *numbers =
        count >= 0 && count < INT32_MAX
            ? weft__arena_alloc(&n->import->memory, (size_t)(count + 1) * sizeof *numbers)
            : NULL;
    if (!numbers)
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for %lld numbers", (long long)count);
    for (int64_t i = 0; numbers && i < count; i++) numbers[i] = value;
    return numbers;
}

bool weft__forest_start(onnx_node *n, forest *f)
{
    const double none = f->aggregate == SMALLEST ? 1 : f->aggregate == LARGEST ? -1 : 0;
    const bool wide = weft__in_type(n, 0) == ONNX_DOUBLE;
    if (f->targets < 1 || f->targets > INT32_MAX || f->nodes < 1 || f->nodes > INT32_MAX ||
        f->nodes * f->targets > INT32_MAX) {
        weft__node_fail(n, WEFT_BAD_FILE, "has no nodes or targets, or more than 2^31");
        return false;
    }
    f->whole = weft__forest_numbers(n, f->nodes * COLUMNS, 0);
    f->values = weft__forest_numbers(n, f->nodes * f->members, NAN);
    f->weights =
        weft__forest_numbers(n, f->nodes * f->targets, none * (wide ? DBL_MAX : (double)FLT_MAX));
    for (int64_t i = 0; f->whole && i < f->nodes; i++)
        f->whole[i * COLUMNS + IF_TRUE] = f->whole[i * COLUMNS + IF_FALSE] = (double)i;
    return !weft__node_failed(n);
}

bool weft__forest_node(onnx_node *n, forest *f, int64_t i, const double columns[COLUMNS])
{
    const double *c = columns;
    const bool good = c[FEATURE] >= 0 && c[FEATURE] < (double)f->features && c[IF_TRUE] >= 0 &&
                      c[IF_TRUE] < (double)f->nodes && c[IF_FALSE] >= 0 &&
                      c[IF_FALSE] < (double)f->nodes && c[MODE] >= 0 && c[MODE] < MODES;
    if (!good) {
        weft__node_fail(n, WEFT_BAD_FILE,
                        "node %lld has a feature, a child or a mode that is out of range",
                        (long long)i);
        return false;
    }
    for (int k = 0; k < COLUMNS; k++) f->whole[i * COLUMNS + k] = c[k];
    f->used[(int)c[MODE]] = true;
    f->missing |= c[IF_MISSING] != 0 || c[MODE] == NOT_EQUAL;
    return true;
}

bool weft__forest_leaf(onnx_node *n, forest *f, int64_t leaf, double target, double weight)
{
    if (!(target >= 0 && target < (double)f->targets) || leaf < 0 || leaf >= f->nodes) {
        weft__node_fail(n, WEFT_BAD_FILE, "a leaf has a target or a node that is out of range");
        return false;
    }
    double *w = &f->weights[leaf * f->targets + (int64_t)target];
    *w = f->aggregate == SMALLEST  ? fmin(*w, weight)
         : f->aggregate == LARGEST ? fmax(*w, weight)
                                   : *w + weight;
    return true;
}

bool weft__forest_finish(onnx_node *n, forest *f)
{
    uint8_t *now = weft__arena_alloc(&n->import->memory, 2 * (size_t)f->nodes);
    if (!now) return weft__node_fail(n, WEFT_NO_MEMORY, "no memory for levels"), false;
    uint8_t *next = now + f->nodes;
    memset(now, 0, (size_t)f->nodes);
    for (int64_t i = 0; i < f->trees; i++) now[(int64_t)f->roots[i]] = 1;
    for (f->levels = 0; f->levels <= MAX_LEVELS; f->levels++) {
        bool inner = false;
        memset(next, 0, (size_t)f->nodes);
        for (int64_t i = 0; i < f->nodes; i++) {
            const double *c = &f->whole[i * COLUMNS];
            const bool leaf = c[IF_TRUE] == (double)i && c[IF_FALSE] == (double)i;
            if (!now[i] || leaf) continue;
            next[(int64_t)c[IF_TRUE]] = next[(int64_t)c[IF_FALSE]] = 1;
            inner = true;
        }
        if (!inner) return true;
        uint8_t *const last = now;
        now = next;
        next = last;
    }
    weft__node_fail(n, WEFT_TOO_LARGE, "a tree has more than %d levels, or a cycle", MAX_LEVELS);
    return false;
}

/* ---- In the graph ---- */

static weft_value column(weft_graph *g, weft_value rows, int i)
{
    return weft_squeeze(g, weft_slice(g, rows, -1, i, i + 1, 1), -1);
}

/* x compared with values [..., members] as a mode does. */
static weft_value compared(weft_graph *g, enum mode mode, weft_value x, weft_value values)
{
    const weft_value first = column(g, values, 0);
    switch (mode) {
    case LEQ:
        return weft_less_equal(g, x, first);
    case LESS:
        return weft_less(g, x, first);
    case GEQ:
        return weft_greater_equal(g, x, first);
    case GREATER:
        return weft_greater(g, x, first);
    case EQUAL:
        return weft_equal(g, x, first);
    case NOT_EQUAL:
        return weft_not_equal(g, x, first);
    default:
        break;
    }
    weft_value same = weft_equal(g, weft_expand_dims(g, x, -1), values);
    same = weft_max(g, weft_cast(g, same, WEFT_F32), WEFT_AXES(2), false);
    return weft_cast(g, same, WEFT_BOOL);
}

/* The places one level below places [rows, trees]. */
static weft_value descend(weft_graph *g, const forest *f, weft_value x, const weft_value tables[2],
                          weft_value at)
{
    const weft_value whole = weft_embedding(g, tables[0], at, -1);
    const weft_value values = weft_embedding(g, tables[1], at, -1);
    const weft_value number = weft_gather(g, x, column(g, whole, FEATURE), 1);
    weft_value truth = WEFT_NO_VALUE;
    int modes = 0;
    for (int m = 0; m < MODES; m++) modes += f->used[m];
    for (int m = 0; m < MODES; m++) {
        if (!f->used[m]) continue;
        weft_value one = compared(g, m, number, values);
        if (modes > 1) {
            const weft_value mode = weft_scalar(g, WEFT_I32, m);
            one = weft_logical_and(g, weft_equal(g, column(g, whole, MODE), mode), one);
        }
        truth = weft_is_value(truth) ? weft_logical_or(g, truth, one) : one;
    }
    if (f->missing) {
        const weft_value is_nan = weft_not_equal(g, number, number);
        const weft_value then = weft_cast(g, column(g, whole, IF_MISSING), WEFT_BOOL);
        truth = weft_where(g, is_nan, then, truth);
    }
    const weft_value yes = column(g, whole, IF_TRUE);
    return weft_where(g, truth, yes, column(g, whole, IF_FALSE));
}

weft_value weft__forest_score(onnx_node *n, const forest *f, weft_value x)
{
    weft_graph *g = n->graph;
    const weft_dtype dtype = weft_dtype_of(g, x);
    const weft_shape places = WEFT_SHAPE(weft_dim_of(g, x, 0), f->trees);
    weft_value tables[2];
    tables[0] = weft__doubles_value(n, f->whole, WEFT_SHAPE(f->nodes, COLUMNS), WEFT_I32);
    tables[1] = weft__doubles_value(n, f->values, WEFT_SHAPE(f->nodes, f->members), dtype);
    weft_value at = weft__doubles_value(n, f->roots, WEFT_SHAPE(1, f->trees), WEFT_I32);
    at = weft_broadcast_to(g, at, places);
    for (int i = 0; i < f->levels; i++) at = descend(g, f, x, tables, at);
    const weft_value weights =
        weft__doubles_value(n, f->weights, WEFT_SHAPE(f->nodes, f->targets), dtype);
    const weft_value y = weft_embedding(g, weights, at, -1);
    switch (f->aggregate) {
    case AVERAGE:
        return weft_mean(g, y, WEFT_AXES(1), false);
    case SMALLEST:
        return weft_min(g, y, WEFT_AXES(1), false);
    case LARGEST:
        return weft_max(g, y, WEFT_AXES(1), false);
    default:
        return weft_sum(g, y, WEFT_AXES(1), false);
    }
}

bool weft__forest_lists(onnx_node *n, const char *const *names, size_t n_lists, double **lists,
                        int64_t *count)
{
    for (size_t i = 0; i < n_lists; i++) {
        int64_t length;
        const bool optional = names[i][0] == '?';
        lists[i] = weft__attr_numbers(n, names[i] + optional, &length);
        if (weft__node_failed(n)) return false;
        if (!lists[i] && optional) continue;
        if (*count < 0) *count = length;
        if (length == *count) continue;
        weft__node_fail(n, WEFT_BAD_FILE, "%s has %lld numbers, expected %lld", names[i] + optional,
                        (long long)length, (long long)*count);
        return false;
    }
    return true;
}
