/* Reductions of ONNX, and ops that rank or sum along an axis. Integers are reduced in f64. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <math.h>

/* ---- Reductions ---- */

typedef weft_value reduction(weft_graph *g, weft_value x, weft_axes axes, bool keepdims);

/* What a reduction does not see. */
static double neutral_of(reduction *reduce)
{
    if (reduce == weft_max || reduce == weft_logsumexp) return -INFINITY;
    return reduce == weft_min ? INFINITY : reduce == weft_prod ? 1 : 0;
}

static weft_value reduce_l1(weft_graph *g, weft_value x, weft_axes axes, bool keepdims)
{
    return weft_sum(g, weft_abs(g, x), axes, keepdims);
}

static weft_value reduce_square(weft_graph *g, weft_value x, weft_axes axes, bool keepdims)
{
    return weft_sum(g, weft_square(g, x), axes, keepdims);
}

static weft_value reduce_l2(weft_graph *g, weft_value x, weft_axes axes, bool keepdims)
{
    return weft_sqrt(g, reduce_square(g, x, axes, keepdims));
}

static weft_value reduce_log_sum(weft_graph *g, weft_value x, weft_axes axes, bool keepdims)
{
    return weft_log(g, weft_sum(g, x, axes, keepdims));
}

/* A reduction, what it does to a single element (NULL: nothing), and the opset since which the axes
 * are an input. */
typedef struct reduction_row {
    reduction *reduce;
    weft_value (*single)(weft_graph *g, weft_value x);
    int64_t input_since;
} reduction_row;

static bool reduces(weft_axes axes, int axis)
{
    for (int i = 0; i < axes.count; i++)
        if (axes.axis[i] == axis) return true;
    return axes.count == 0;
}

/* The reduction of x, of which data decide a size. */
static weft_value reduce_sized(onnx_node *n, const reduction_row *row, weft_value x, weft_axes axes,
                               bool keepdims)
{
    weft_graph *g = n->graph;
    const weft_shape s = weft_shape_of(g, x);
    const int sized = n->in[0]->sized_axis;
    const weft_value size = n->in[0]->size;
    double others = 1;
    if (!reduces(axes, sized)) {
        int axis = sized;
        for (int i = 0; i < axes.count && !keepdims; i++) axis -= axes.axis[i] < sized;
        n->out[0].value = row->reduce(g, x, axes, keepdims);
        weft__add_size(n, 0, axis, size);
        return n->out[0].value;
    }
    x = weft__filled(n, 0, x, neutral_of(row->reduce));
    if (row->reduce != weft_mean) return row->reduce(g, x, axes, keepdims);
    for (int i = 0; i < s.rank; i++)
        if (i != sized && reduces(axes, i)) others *= (double)s.dim[i];
    weft_value count = weft_mul_scalar(g, weft_cast(g, size, weft_dtype_of(g, x)), others);
    return weft_div(g, weft_sum(g, x, axes, keepdims), count);
}

/* The reduced input, in f64 if it has no floats. Without axes all are reduced, or none. */
static weft_value reduce(onnx_node *n, const reduction_row *row)
{
    weft_value x = weft__in_value(n, 0);
    int64_t list[WEFT_MAX_RANK];
    const int count = weft__in_or_attr_ints(n, row->input_since, 1, "axes", list, WEFT_MAX_RANK);
    weft_axes axes = {.count = count > 0 ? count : 0};
    for (int i = 0; i < axes.count; i++)
        axes.axis[i] = weft__node_axis(n, list[i], weft__in_shape(n, 0).rank);
    if (count < 0 || weft__node_failed(n)) return WEFT_NO_VALUE;
    x = weft__widen(n, x);
    if (count == 0 && weft__attr_int(n, "noop_with_empty_axes", 0)) {
        n->out[0].value = row->single ? row->single(n->graph, x) : x;
        if (has_size(n, 0)) weft__add_size(n, 0, n->in[0]->sized_axis, n->in[0]->size);
        return n->out[0].value;
    }
    if (has_size(n, 0)) return reduce_sized(n, row, x, axes, weft__attr_int(n, "keepdims", 1));
    return row->reduce(n->graph, x, axes, weft__attr_int(n, "keepdims", 1));
}

static void map_reduction(onnx_node *n, const reduction_row *row)
{
    const weft_dtype dtype = weft_dtype_of(n->graph, weft__in_value(n, 0));
    const int type = weft__in_type(n, 0);
    weft_value x = reduce(n, row);
    if (row->reduce == weft_max || row->reduce == weft_min) /* of nothing, an infinity */
        x = weft__saturate(n, x, type);
    if (dtype == WEFT_I32) x = weft__narrow(n, x, type);
    if (dtype == WEFT_BOOL) x = weft_greater(n->graph, x, weft_scalar(n->graph, WEFT_F64, 0));
    weft__set_typed(n, 0, x, type);
}

#define REDUCTION(op, function, single, since)                                                     \
    void weft__map_##op(onnx_node *n)                                                              \
    {                                                                                              \
        map_reduction(n, &(reduction_row){function, single, since});                               \
    }
REDUCTION(ReduceSum, weft_sum, NULL, 13)
REDUCTION(ReduceMean, weft_mean, NULL, 18)
REDUCTION(ReduceMax, weft_max, NULL, 18)
REDUCTION(ReduceMin, weft_min, NULL, 18)
REDUCTION(ReduceProd, weft_prod, NULL, 18)
REDUCTION(ReduceL1, reduce_l1, weft_abs, 18)
REDUCTION(ReduceL2, reduce_l2, weft_abs, 18)
REDUCTION(ReduceSumSquare, reduce_square, weft_square, 18)
REDUCTION(ReduceLogSum, reduce_log_sum, weft_log, 18)
REDUCTION(ReduceLogSumExp, weft_logsumexp, NULL, 18)

/* ---- The largest elements ---- */

typedef weft_value search(weft_graph *g, weft_value x, int axis, bool keepdims);

/* The first index of the best element, or the last with select_last_index. */
static void map_search(onnx_node *n, search *f)
{
    weft_graph *g = n->graph;
    weft_value x = weft__widen(n, weft__in_value(n, 0));
    const int rank = weft__in_shape(n, 0).rank, axis = weft__attr_axis(n, "axis", 0, rank);
    const bool last = weft__attr_int(n, "select_last_index", 0),
               keepdims = weft__attr_int(n, "keepdims", 1);
    if (weft__node_failed(n)) return;
    weft_value index = f(g, last ? weft_flip(g, x, axis) : x, axis, keepdims);
    if (last) {
        weft_value from_end = weft_neg(g, weft_cast(g, index, WEFT_F64));
        from_end = weft_add_scalar(g, from_end, (double)weft_dim_of(g, x, axis) - 1);
        index = weft_cast(g, from_end, WEFT_I32);
    }
    weft__set_typed(n, 0, index, ONNX_INT64);
}

void weft__map_ArgMax(onnx_node *n)
{
    map_search(n, weft_argmax);
}

void weft__map_ArgMin(onnx_node *n)
{
    map_search(n, weft_argmin);
}

/* True where an index along the axis, whose size it has, is `index`. */
static weft_value at_index(weft_graph *g, weft_value index, int axis, int64_t size)
{
    weft_shape shape = {.rank = weft_rank_of(g, index)};
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = i == axis ? size : 1;
    weft_value all = weft_reshape(g, weft_arange(g, WEFT_I32, size, 0, 1), shape);
    return weft_equal(g, all, index);
}

void weft__map_Hardmax(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    const int rank = weft__in_shape(n, 0).rank;
    const int axis = weft__attr_axis(n, "axis", n->opset >= 13 ? -1 : 1, rank);
    if (weft__node_failed(n)) return;
    weft_value flat = x;
    if (n->opset < 13) { /* the axes from `axis` on are one */
        int64_t rows = 1;
        for (int i = 0; i < axis; i++) rows *= weft__in_shape(n, 0).dim[i];
        flat = weft_reshape(g, x, WEFT_SHAPE(rows, -1));
    }
    const int along = n->opset < 13 ? 1 : axis;
    weft_value index = weft_argmax(g, flat, along, true);
    weft_value y = at_index(g, index, along, weft_dim_of(g, flat, along));
    y = weft_cast(g, y, weft_dtype_of(g, x));
    weft__set_out(n, 0, weft_reshape(g, y, weft__in_shape(n, 0)));
}

/* The number of elements that TopK takes of `dim`, where data decide it the largest; *size: how many
 * of them count, or no value. More than there are end a run. */
static int64_t top_count(onnx_node *n, int axis, int64_t dim, weft_value *size)
{
    weft_graph *g = n->graph;
    const bool sized = has_size(n, 0) && n->in[0]->sized_axis == axis;
    *size = WEFT_NO_VALUE;
    if (n->opset >= 10 && !has_in(n, 1)) weft__node_fail(n, WEFT_BAD_FILE, "has no input 1 (k)");
    if (weft__node_failed(n)) return 0;
    if (n->opset >= 10 && !weft__import_contents(n->import, n->in[1])) return 0;
    const bool given = n->opset < 10 || n->in[1]->known;
    const int64_t k = n->opset < 10 ? weft__attr_int(n, "k", 0)
                      : given       ? (int64_t)weft__in_number(n, 1, "k", 0)
                                    : dim;
    if (given && !sized && !weft__is_open(n, 1, 0)) return k;
    const weft_value fixed = weft_scalar(g, WEFT_I32, (double)k);
    const weft_value wanted = given && !weft__is_open(n, 1, 0) ? fixed : weft__in_element(n, 1, 0);
    const weft_value there = sized ? n->in[0]->size : weft_scalar(g, WEFT_I32, (double)dim);
    *size = weft__size_checked(g, wanted, there);
    return k;
}

/* Values and indices in their order, which `sorted` = 0 does not rule out. */
void weft__map_TopK(onnx_node *n)
{
    const int axis = weft__attr_axis(n, "axis", -1, weft__in_shape(n, 0).rank);
    const bool largest = weft__attr_int(n, "largest", 1);
    weft_value size;
    if (weft__node_failed(n)) return;
    const int64_t k = top_count(n, axis, weft__in_shape(n, 0).dim[axis], &size);
    weft_value indices, x = weft__widen(n, weft__in_value(n, 0));
    x = weft__filled(n, 0, x, largest ? -INFINITY : INFINITY);
    weft_value values = weft_top_k(n->graph, x, k, axis, largest, &indices);
    if (weft_dtype_of(n->graph, weft__in_value(n, 0)) == WEFT_I32)
        values = weft__narrow(n, values, weft__in_type(n, 0));
    weft__set_typed(n, 0, values, weft__in_type(n, 0));
    weft__set_typed(n, 1, indices, ONNX_INT64);
    for (size_t i = 0; i < 2; i++) {
        if (weft_is_value(size)) weft__add_size(n, i, axis, size);
        if (has_size(n, 0) && n->in[0]->sized_axis != axis)
            weft__add_size(n, i, n->in[0]->sized_axis, n->in[0]->size);
    }
}

/* ---- Running sums and products ---- */

/* x shifted along an axis: its last elements (the first, if `reverse`) are dropped and as many of
 * `value` enter. */
static weft_value shift(weft_graph *g, weft_value x, int axis, int64_t by, bool reverse,
                        double value)
{
    const int64_t size = weft_dim_of(g, x, axis);
    int64_t before[WEFT_MAX_RANK] = {0}, after[WEFT_MAX_RANK] = {0};
    if (by > size) by = size;
    (reverse ? after : before)[axis] = by;
    x = reverse ? weft_slice(g, x, axis, by, size, 1) : weft_slice(g, x, axis, 0, size - by, 1);
    return weft_pad(g, x, before, after, value);
}

/* The products of all elements up to each one: log n multiplications by shifted products. */
static weft_value running_product(weft_graph *g, weft_value x, int axis, bool reverse)
{
    const int64_t size = weft_dim_of(g, x, axis);
    for (int64_t by = 1; by < size; by *= 2) x = weft_mul(g, x, shift(g, x, axis, by, reverse, 1));
    return x;
}

static void map_running(onnx_node *n, weft_value (*f)(weft_graph *, weft_value, int, bool),
                        double neutral)
{
    weft_graph *g = n->graph;
    const weft_value input = weft__in_value(n, 0);
    const int axis =
        weft__node_axis(n, (int64_t)weft__in_number(n, 1, "axis", 0), weft__in_shape(n, 0).rank);
    const bool reverse = weft__attr_int(n, "reverse", 0);
    weft_value x = weft__widen(n, input);
    if (weft__node_failed(n)) return;
    if (weft__attr_int(n, "exclusive", 0)) x = shift(g, x, axis, 1, reverse, neutral);
    x = f(g, x, axis, reverse);
    if (weft_dtype_of(g, input) == WEFT_I32) x = weft__narrow(n, x, weft__in_type(n, 0));
    weft__set_typed(n, 0, x, weft__in_type(n, 0));
}

void weft__map_CumSum(onnx_node *n)
{
    map_running(n, weft_cumsum, 0);
}

void weft__map_CumProd(onnx_node *n)
{
    map_running(n, running_product, 1);
}
