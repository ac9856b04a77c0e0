/* Reductions of ONNX, and what ranks or sums along an axis. Integers are reduced in f64. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <math.h>

/* ---- Reductions ---- */

typedef weft_value reduction(weft_graph *g, weft_value x, weft_axes axes, bool keepdims);

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

weft_value multiply_axis(weft_graph *g, weft_value x, int axis)
{
    for (int64_t n = weft_dim(g, x, axis); n > 1;) {
        const int64_t half = n / 2;
        weft_value low = weft_slice(g, x, axis, 0, half, 1);
        weft_value parts[2] = {
            weft_mul(g, low, weft_slice(g, x, axis, half, 2 * half, 1)),
            weft_slice(g, x, axis, 2 * half, n, 1),
        };
        x = n % 2 ? weft_concat(g, parts, 2, axis) : parts[0];
        n = n % 2 ? half + 1 : half;
    }
    return x;
}

static weft_value reduce_prod(weft_graph *g, weft_value x, weft_axes axes, bool keepdims)
{
    const weft_shape s = weft_shape_of(g, x);
    bool reduced[WEFT_MAX_RANK] = {false};
    weft_shape shape = {.rank = 0};
    for (int i = 0; i < s.rank; i++) reduced[i] = axes.count == 0;
    for (int i = 0; i < axes.count; i++) reduced[axes.axis[i]] = true;
    for (int i = 0; i < s.rank; i++) {
        if (!reduced[i]) {
            shape.dim[shape.rank++] = s.dim[i];
            continue;
        }
        if (keepdims) shape.dim[shape.rank++] = 1;
        weft_shape one = weft_shape_of(g, x);
        one.dim[i] = 1;
        x = s.dim[i] ? multiply_axis(g, x, i) : weft_fill(g, weft_dtype_of(g, x), one, 1);
    }
    return weft_reshape(g, x, shape);
}

static void map_reduction(onnx_node *n, reduction *f, int64_t input_since)
{
    weft_value x = in_value(n, 0);
    const int rank = in_shape(n, 0).rank;
    const weft_dtype dtype = weft_dtype_of(n->graph, x);
    int64_t list[WEFT_MAX_RANK];
    const int count = in_or_attr_ints(n, input_since, 1, "axes", list, WEFT_MAX_RANK);
    weft_axes axes = {.count = count > 0 ? count : 0};
    for (int i = 0; i < axes.count; i++) axes.axis[i] = node_axis(n, list[i], rank);
    if (count < 0 || node_failed(n)) return;
    if (count > 0 || !attr_int(n, "noop_with_empty_axes", 0))
        x = f(n->graph, widen(n, x), axes, attr_int(n, "keepdims", 1));
    if (dtype == WEFT_I32) x = narrow(n, widen(n, x), in_type(n, 0));
    if (dtype == WEFT_BOOL) /* the largest of no bools is -inf */
        x = weft_greater(n->graph, widen(n, x), weft_scalar(n->graph, WEFT_F64, 0));
    set_typed(n, 0, x, in_type(n, 0));
}

#define REDUCTION(op, function, since)                                                             \
    void map_##op(onnx_node *n)                                                                    \
    {                                                                                              \
        map_reduction(n, function, since);                                                         \
    }
REDUCTION(ReduceSum, weft_sum, 13)
REDUCTION(ReduceMean, weft_mean, 18)
REDUCTION(ReduceMax, weft_max, 18)
REDUCTION(ReduceMin, weft_min, 18)
REDUCTION(ReduceProd, reduce_prod, 18)
REDUCTION(ReduceL1, reduce_l1, 18)
REDUCTION(ReduceL2, reduce_l2, 18)
REDUCTION(ReduceSumSquare, reduce_square, 18)
REDUCTION(ReduceLogSum, reduce_log_sum, 18)
REDUCTION(ReduceLogSumExp, weft_logsumexp, 18)

/* ---- The largest elements ---- */

/* The first or last index of the largest element. */
static weft_value index_of_largest(onnx_node *n, weft_value x, bool last)
{
    weft_graph *g = n->graph;
    const int rank = weft_rank(g, x), axis = attr_axis(n, "axis", 0, rank);
    const bool keepdims = attr_int(n, "keepdims", 1);
    if (!last) return weft_argmax(g, x, axis, keepdims);
    weft_value index = weft_argmax(g, weft_flip(g, x, axis), axis, keepdims);
    weft_value from_end = weft_neg(g, weft_cast(g, index, WEFT_F64));
    return weft_cast(g, weft_add_scalar(g, from_end, (double)weft_dim(g, x, axis) - 1), WEFT_I32);
}

void map_ArgMax(onnx_node *n)
{
    const weft_value x = widen(n, in_value(n, 0));
    set_typed(n, 0, index_of_largest(n, x, attr_int(n, "select_last_index", 0)), ONNX_INT64);
}

void map_ArgMin(onnx_node *n)
{
    const weft_value x = weft_neg(n->graph, widen(n, in_value(n, 0)));
    set_typed(n, 0, index_of_largest(n, x, attr_int(n, "select_last_index", 0)), ONNX_INT64);
}

/* True where an index along the axis, whose size it has, is `index`. */
static weft_value at_index(weft_graph *g, weft_value index, int axis, int64_t size)
{
    weft_shape shape = {.rank = weft_rank(g, index)};
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = i == axis ? size : 1;
    weft_value all = weft_reshape(g, weft_arange(g, WEFT_I32, size, 0, 1), shape);
    return weft_equal(g, all, index);
}

void map_Hardmax(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = in_value(n, 0);
    const int rank = in_shape(n, 0).rank;
    const int axis = attr_axis(n, "axis", n->opset >= 13 ? -1 : 1, rank);
    if (node_failed(n)) return;
    weft_value flat = x;
    if (n->opset < 13) { /* the axes from `axis` on are one */
        int64_t rows = 1;
        for (int i = 0; i < axis; i++) rows *= in_shape(n, 0).dim[i];
        flat = weft_reshape(g, x, WEFT_SHAPE(rows, -1));
    }
    const int along = n->opset < 13 ? 1 : axis;
    weft_value index = weft_argmax(g, flat, along, true);
    weft_value y = at_index(g, index, along, weft_dim(g, flat, along));
    set_out(n, 0, weft_reshape(g, weft_cast(g, y, weft_dtype_of(g, x)), in_shape(n, 0)));
}

/* The most elements that TopK takes: it takes them one by one. */
#define MAX_TOP 256

void map_TopK(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value input = in_value(n, 0);
    const int rank = in_shape(n, 0).rank, axis = attr_axis(n, "axis", -1, rank);
    const bool largest = attr_int(n, "largest", 1);
    const int64_t k = n->opset >= 10 ? (int64_t)in_number(n, 1, "k", 0) : attr_int(n, "k", 0);
    weft_value indices[MAX_TOP], x = widen(n, input);
    if (node_failed(n)) return;
    if (k < 1 || k > MAX_TOP || k > in_shape(n, 0).dim[axis]) {
        node_fail(n, WEFT_TOO_LARGE,
                  "takes %lld elements, expected 1 to %d and no more than the "
                  "axis has",
                  (long long)k, MAX_TOP);
        return;
    }
    if (!largest) x = weft_neg(g, x);
    for (int64_t i = 0; i < k; i++) {
        indices[i] = weft_argmax(g, x, axis, true);
        weft_value taken = at_index(g, indices[i], axis, weft_dim(g, x, axis));
        x = weft_masked_fill(g, x, taken, -INFINITY);
    }
    weft_value all = weft_concat(g, indices, (size_t)k, axis);
    set_typed(n, 0, weft_gather(g, input, all, axis), in_type(n, 0));
    set_typed(n, 1, all, ONNX_INT64);
}

/* ---- Running sums and products ---- */

/* x without its last elements along an axis (the first, if `reverse`), behind as many of `value`.
 */
static weft_value shift(weft_graph *g, weft_value x, int axis, int64_t by, bool reverse,
                        double value)
{
    const int64_t size = weft_dim(g, x, axis);
    int64_t before[WEFT_MAX_RANK] = {0}, after[WEFT_MAX_RANK] = {0};
    if (by > size) by = size;
    (reverse ? after : before)[axis] = by;
    x = reverse ? weft_slice(g, x, axis, by, size, 1) : weft_slice(g, x, axis, 0, size - by, 1);
    return weft_pad(g, x, before, after, value);
}

/* The products of all elements up to each one: log n multiplications by shifted products. */
static weft_value running_product(weft_graph *g, weft_value x, int axis, bool reverse)
{
    const int64_t size = weft_dim(g, x, axis);
    for (int64_t by = 1; by < size; by *= 2) x = weft_mul(g, x, shift(g, x, axis, by, reverse, 1));
    return x;
}

static void map_running(onnx_node *n, weft_value (*f)(weft_graph *, weft_value, int, bool),
                        double neutral)
{
    weft_graph *g = n->graph;
    const weft_value input = in_value(n, 0);
    const int axis = node_axis(n, (int64_t)in_number(n, 1, "axis", 0), in_shape(n, 0).rank);
    const bool reverse = attr_int(n, "reverse", 0);
    weft_value x = widen(n, input);
    if (node_failed(n)) return;
    if (attr_int(n, "exclusive", 0)) x = shift(g, x, axis, 1, reverse, neutral);
    x = f(g, x, axis, reverse);
    if (weft_dtype_of(g, input) == WEFT_I32) x = narrow(n, x, in_type(n, 0));
    set_typed(n, 0, x, in_type(n, 0));
}

void map_CumSum(onnx_node *n)
{
    map_running(n, weft_cumsum, 0);
}

void map_CumProd(onnx_node *n)
{
    map_running(n, running_product, 1);
}
