/* Ops of ONNX that write elements at indices. Negative indices count from the end. Whole rows are
 * replaced by rows that are gathered; everything else is sums at indices. */
#include "onnx/index.h"

#include "onnx/ops.h"

#include <weft/op.h>

#include <math.h>
#include <string.h>

/* ---- Elements ---- */

/* The maximum number of pairs of updates that a reduction of updates at equal indices compares. */
#define MAX_PAIRS ((int64_t)1 << 26)

static const char *const reductions[] = {"none", "add", "mul", "min", "max"};
typedef enum reduction { REDUCE_NONE, REDUCE_ADD, REDUCE_MUL, REDUCE_MIN, REDUCE_MAX } reduction;

static reduction reduction_of(onnx_node *n)
{
    for (int i = 0; i < (int)(sizeof reductions / sizeof *reductions); i++)
        if (weft__attr_is(n, "reduction", reductions[i], "none")) return (reduction)i;
    weft__node_fail(n, WEFT_BAD_FILE, "has an unknown reduction");
    return REDUCE_NONE;
}

/* Each update joined with those at the same index along an axis, by comparing all pairs; *first is
 * true at the first of them. */
static weft_value join_updates(onnx_node *n, weft_value indices, weft_value updates, int axis,
                               reduction how, weft_value *first)
{
    static const double neutral[] = {
        [REDUCE_MUL] = 1, [REDUCE_MIN] = INFINITY, [REDUCE_MAX] = -INFINITY};
    weft_graph *g = n->graph;
    const weft_shape s = weft_shape_of(g, updates);
    const int64_t count = s.dim[axis];
    if (s.rank == WEFT_MAX_RANK || weft_shape_numel(s) > MAX_PAIRS / (count + 1))
        return weft__node_fail(n, WEFT_TOO_LARGE, "joins too many updates");
    /* [..., i, j, ...]: whether updates i and j have the same index. */
    weft_value of_i = weft_expand_dims(g, indices, axis + 1);
    weft_value same = weft_equal(g, of_i, weft_expand_dims(g, indices, axis));
    weft_shape square = {.rank = s.rank + 1};
    for (int i = 0; i <= s.rank; i++) square.dim[i] = i == axis || i == axis + 1 ? count : 1;
    weft_value before = weft_reshape(g, weft_tril_mask(g, count, count, -1), square);
    weft_value earlier = weft_cast(g, weft_logical_and(g, same, before), WEFT_F32);
    earlier = weft_sum(g, earlier, WEFT_AXES(axis + 1), false);
    *first = weft_equal(g, earlier, weft_scalar(g, WEFT_F32, 0));
    weft_value joined = weft_expand_dims(g, updates, axis);
    weft_value others = weft_scalar(g, weft_dtype_of(g, updates), neutral[how]);
    weft_value x = weft_where(g, same, joined, others);
    return how == REDUCE_MUL   ? weft_prod(g, x, WEFT_AXES(axis + 1), false)
           : how == REDUCE_MIN ? weft_min(g, x, WEFT_AXES(axis + 1), false)
                               : weft_max(g, x, WEFT_AXES(axis + 1), false);
}

/* Joins updates with elements of x along an axis, or replaces the elements by them. Those that do
 * not count change nothing; without a value `counts`, all count. */
static weft_value scatter(onnx_node *n, weft_value x, weft_value indices, weft_value updates,
                          weft_value counts, int axis)
{
    weft_graph *g = n->graph;
    const weft_dtype dtype = weft_dtype_of(g, x);
    const reduction how = reduction_of(n);
    x = weft__widen(n, x);
    updates = weft__widen(n, updates);
    if (weft__node_failed(n)) return WEFT_NO_VALUE;
    const weft_dtype wide = weft_dtype_of(g, x);
    weft_value y, one = weft_fill(g, wide, weft_shape_of(g, updates), 1);
    if (weft_is_value(counts)) {
        if (how != REDUCE_NONE && how != REDUCE_ADD)
            return weft__node_fail(n, WEFT_NO_KERNEL, "reduces updates whose number data decide");
        updates = weft_where(g, counts, updates, weft_scalar(g, wide, 0));
        one = weft_where(g, counts, one, weft_scalar(g, wide, 0));
    }
    if (how == REDUCE_ADD) {
        y = weft_scatter_add(g, x, indices, updates, axis);
    } else {
        weft_value zeros = weft_fill(g, wide, weft_shape_of(g, x), 0);
        weft_value counted = one, first;
        if (how != REDUCE_NONE && weft_shape_numel(weft_shape_of(g, updates)) > 0) {
            updates = join_updates(n, indices, updates, axis, how, &first);
            if (weft__node_failed(n)) return WEFT_NO_VALUE;
            counted = weft_cast(g, first, wide);
            updates = weft_where(g, first, updates, weft_scalar(g, wide, 0));
        }
        weft_value times = weft_scatter_add(g, zeros, indices, counted, axis);
        weft_value placed = weft_scatter_add(g, zeros, indices, updates, axis);
        if (how == REDUCE_MUL) placed = weft_mul(g, x, placed);
        if (how == REDUCE_MIN) placed = weft_minimum(g, x, placed);
        if (how == REDUCE_MAX) placed = weft_maximum(g, x, placed);
        y = weft_where(g, weft_greater(g, times, weft_scalar(g, wide, 0)), placed, x);
    }
    return dtype == WEFT_I32 ? weft__narrow(n, y, weft__in_type(n, 0)) : weft_cast(g, y, dtype);
}

/* Which updates count: bool that broadcasts to `shape`, or no value. Data decide the size of the
 * indices or of the updates, inputs 1 and 2, along the same axis. */
static weft_value counted_updates(onnx_node *n, weft_shape shape)
{
    const size_t i = has_size(n, 1) ? 1 : 2;
    if (!has_size(n, i)) return WEFT_NO_VALUE;
    const int axis = n->in[i]->sized_axis;
    if (axis < shape.rank)
        return weft__counted(n->graph, n->in[i]->size, shape.dim[axis], axis, shape.rank);
    return weft__node_fail(n, WEFT_NO_KERNEL, "data decide the size of a part of its updates");
}

/* ---- Rows ---- */

/* Rows [count, rest] that replace those of x [size, rest] at positions [count], of which negative
 * ones are out of range. Of `counts` [count], or no value, those that are true replace. */
static weft_value replace_rows(onnx_node *n, weft_value x, weft_value at, weft_value rows,
                               weft_value counts)
{
    weft_graph *g = n->graph;
    const int64_t size = weft_dim_of(g, x, 0), count = weft_dim_of(g, rows, 0);
    if (!size || !count) return x;
    /* Which row each position takes, from 1 on; 0: none. */
    weft_value number = weft_arange(g, WEFT_F64, count, 1, 1);
    if (weft_is_value(counts)) number = weft_mul(g, number, weft_cast(g, counts, WEFT_F64));
    weft_value taken = weft_fill(g, WEFT_F64, WEFT_SHAPE(size), 0);
    taken = weft_scatter_add(g, taken, at, number, 0);
    weft_value from = weft_clamp(g, weft_add_scalar(g, taken, -1), 0, (double)(count - 1));
    from = weft_cast(g, from, WEFT_I32);
    taken = weft_greater(g, taken, weft_scalar(g, WEFT_F64, 0));
    taken = weft_reshape(g, taken, WEFT_SHAPE(size, 1));
    return weft_where(g, taken, weft__gather_rows(n, rows, from, 0), x);
}

/* The positions [count] along an axis that indices repeat along all others, as an Expand does; no
 * value if they may differ. */
static weft_value repeated_indices(onnx_node *n, int axis)
{
    weft_graph *g = n->graph;
    const weft_value index = weft__in_value(n, 1);
    const weft_shape s = weft_shape_of(g, index);
    const weft_node_info node = weft_graph_node(g, weft_producer_of(g, index));
    if (!node.op || strcmp(node.op->name, "broadcast_to") != 0) return WEFT_NO_VALUE;
    const weft_value rows = weft_value_from_id(g, node.in[0]);
    const weft_shape from = weft_shape_of(g, rows);
    const int first = s.rank - from.rank;
    if (axis < first || from.dim[axis - first] != s.dim[axis] ||
        weft_shape_numel(from) != s.dim[axis])
        return WEFT_NO_VALUE;
    return weft_reshape(g, rows, WEFT_SHAPE(s.dim[axis]));
}

/* ScatterElements as rows, where it can be; else no value. */
static weft_value scatter_rows(onnx_node *n, int axis)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0), updates = weft__in_value(n, 2);
    const weft_shape s = weft__in_shape(n, 0), t = weft__in_shape(n, 2);
    weft_value at = repeated_indices(n, axis), counts = WEFT_NO_VALUE;
    weft_shape rows = s;
    rows.dim[axis] = t.dim[axis];
    if (!weft_is_value(at) || reduction_of(n) != REDUCE_NONE || !weft_shape_equal(rows, t))
        return WEFT_NO_VALUE;
    for (size_t i = 1; i < 3; i++) {
        if (!has_size(n, i)) continue;
        if (n->in[i]->sized_axis != axis) return WEFT_NO_VALUE;
        counts = weft__counted(g, n->in[i]->size, t.dim[axis], 0, 1);
    }
    if (has_size(n, 1)) at = weft_masked_fill(g, at, weft_logical_not(g, counts), 0);
    at = weft__wrap_along(n, at, axis);
    const weft_value front = weft__move_axis(g, x, axis, 0);
    const weft_value to = weft_reshape(g, front, WEFT_SHAPE(s.dim[axis], -1));
    const weft_value from = weft__move_axis(g, updates, axis, 0);
    weft_value y =
        replace_rows(n, to, at, weft_reshape(g, from, WEFT_SHAPE(t.dim[axis], -1)), counts);
    return weft__move_axis(g, weft_reshape(g, y, weft_shape_of(g, front)), 0, axis);
}

/* ---- Ops ---- */

void weft__map_ScatterElements(onnx_node *n)
{
    const weft_shape s = weft__in_shape(n, 0);
    const int axis = weft__attr_axis(n, "axis", 0, s.rank);
    if (weft__node_failed(n)) return;
    weft_value y = scatter_rows(n, axis);
    if (!weft_is_value(y)) {
        const weft_value indices = weft__indices_along(n, axis), updates = weft__in_value(n, 2);
        const weft_value counts = counted_updates(n, weft__in_shape(n, 1));
        y = scatter(n, weft__in_value(n, 0), indices, updates, counts, axis);
    }
    weft__set_typed(n, 0, y, weft__in_type(n, 0));
    if (has_size(n, 0)) weft__add_size(n, 0, n->in[0]->sized_axis, n->in[0]->size);
}

void weft__map_ScatterND(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_shape s = weft__in_shape(n, 0), t = weft__in_shape(n, 1);
    const int k = weft__index_depth(n, s, t, 0);
    if (k < 0) return;
    const int64_t count = weft__size_of(t, 0, t.rank - 1), rest = weft__size_of(s, k, s.rank);
    const weft_value rows = weft_reshape(g, weft__row_positions(n, 0, k), WEFT_SHAPE(count));
    weft_shape places = t;
    places.rank--;
    weft_value counts = counted_updates(n, places);
    if (weft_is_value(counts))
        counts = weft_reshape(g, weft_broadcast_to(g, counts, places), WEFT_SHAPE(count));
    const weft_value x =
        weft_reshape(g, weft__in_value(n, 0), WEFT_SHAPE(weft__size_of(s, 0, k), rest));
    const weft_value updates = weft_reshape(g, weft__in_value(n, 2), WEFT_SHAPE(count, rest));
    weft_value y;
    if (reduction_of(n) == REDUCE_NONE) {
        y = replace_rows(n, x, rows, updates, counts);
    } else {
        weft_value at = weft_reshape(g, rows, WEFT_SHAPE(count, 1));
        at = weft_broadcast_to(g, at, WEFT_SHAPE(count, rest));
        if (weft_is_value(counts)) counts = weft_reshape(g, counts, WEFT_SHAPE(count, 1));
        y = scatter(n, x, at, updates, counts, 0);
    }
    weft__set_typed(n, 0, weft_reshape(g, y, s), weft__in_type(n, 0));
    if (has_size(n, 0)) weft__add_size(n, 0, n->in[0]->sized_axis, n->in[0]->size);
}

/* Writes updates into a cache along an axis, starting at the position in input 2 for each row. */
void weft__map_TensorScatter(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value cache = weft__in_value(n, 0);
    const weft_shape s = weft__in_shape(n, 0), t = weft__in_shape(n, 1);
    const int axis = weft__attr_axis(n, "axis", -2, s.rank);
    if (weft__node_failed(n)) return;
    if (s.rank < 2 || t.rank != s.rank || axis < 1 ||
        (has_in(n, 2) && !weft_shape_equal(weft__in_shape(n, 2), WEFT_SHAPE(s.dim[0])))) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "its updates or positions do not fit the cache");
        return;
    }
    weft_shape rows = {.rank = s.rank}, along = {.rank = s.rank};
    for (int i = 0; i < s.rank; i++) {
        rows.dim[i] = i ? 1 : s.dim[0];
        along.dim[i] = i == axis ? t.dim[axis] : 1;
    }
    weft_value first = has_in(n, 2) ? weft_cast(g, weft__in_value(n, 2), WEFT_F64)
                                    : weft_fill(g, WEFT_F64, WEFT_SHAPE(s.dim[0]), 0);
    weft_value at = weft_reshape(g, weft_arange(g, WEFT_F64, t.dim[axis], 0, 1), along);
    at = weft_add(g, weft_reshape(g, first, rows), at);
    if (weft__attr_is(n, "mode", "circular", "linear") && s.dim[axis] > 0) {
        const double size = (double)s.dim[axis];
        weft_value turns = weft_floor(g, weft_mul_scalar(g, weft_add_scalar(g, at, 0.5), 1 / size));
        at = weft_sub(g, at, weft_mul_scalar(g, turns, size));
    }
    at = weft_broadcast_to(g, weft_cast(g, at, WEFT_I32), t);
    weft__set_typed(n, 0, scatter(n, cache, at, weft__in_value(n, 1), WEFT_NO_VALUE, axis),
                    weft__in_type(n, 0));
}
