/* Ops of ONNX that read elements at indices, and what those share that write them (scatter.c). Negative
 * indices count from the end. */
#include "onnx/index.h"

#include "onnx/ops.h"

#include <math.h>
#include <string.h>

/* ---- Shapes ---- */

int64_t weft__size_of(weft_shape shape, int begin, int end)
{
    int64_t size = 1;
    for (int i = begin; i < end; i++) size *= shape.dim[i];
    return size;
}

/* Appends the dimensions [begin, end) of a shape to those of another; false above the largest
 * rank. */
static bool append(onnx_node *n, weft_shape *to, weft_shape from, int begin, int end)
{
    for (int i = begin; i < end; i++) {
        if (to->rank == WEFT_MAX_RANK) {
            weft__node_fail(n, WEFT_BAD_SHAPE, "its result has a rank above %d", WEFT_MAX_RANK);
            return false;
        }
        to->dim[to->rank++] = from.dim[i];
    }
    return true;
}

weft_value weft__move_axis(weft_graph *g, weft_value x, int from, int to)
{
    weft_axes axes = {.count = weft_rank_of(g, x)};
    for (int i = 0, next = 0; i < axes.count; i++) {
        if (next == from) next++;
        axes.axis[i] = i == to ? from : next++;
    }
    return from == to ? x : weft_permute(g, x, axes);
}

/* ---- Gather ---- */

/* The index, if there is only one and it is known. */
static bool single_index(const onnx_node *n, int64_t size, int64_t *index)
{
    const onnx_value *v = n->in[1];
    if (!v->known || v->least || v->tensor.dtype != WEFT_I32 ||
        weft_shape_numel(v->tensor.shape) != 1)
        return false;
    *index = *(const int32_t *)v->tensor.data;
    if (*index < 0) *index += size;
    return *index >= 0 && *index < size;
}

weft_value weft__gather_rows(onnx_node *n, weft_value x, weft_value indices, int axis)
{
    weft_graph *g = n->graph;
    const weft_shape s = weft_shape_of(g, x), t = weft_shape_of(g, indices);
    const int64_t before = weft__size_of(s, 0, axis), after = weft__size_of(s, axis + 1, s.rank);
    const int64_t count = weft__size_of(t, 0, t.rank);
    weft_shape shape = {.rank = 0};
    if (weft__node_failed(n) || !append(n, &shape, s, 0, axis) ||
        !append(n, &shape, t, 0, t.rank) || !append(n, &shape, s, axis + 1, s.rank))
        return WEFT_NO_VALUE;
    x = weft_reshape(g, weft__move_axis(g, x, axis, 0), WEFT_SHAPE(s.dim[axis], before * after));
    x = weft_embedding(g, x, weft_reshape(g, indices, WEFT_SHAPE(count)), -1);
    x = weft_reshape(g, x, WEFT_SHAPE(count, before, after));
    return weft_reshape(g, weft_permute(g, x, WEFT_AXES(1, 0, 2)), shape);
}

static bool sized_along(const onnx_node *n, size_t i, int axis)
{
    return has_size(n, i) && n->in[i]->sized_axis == axis;
}

weft_value weft__wrap_along(onnx_node *n, weft_value index, int axis)
{
    weft_graph *g = n->graph;
    const int64_t dim = weft__in_shape(n, 0).dim[axis];
    if (!sized_along(n, 0, axis)) return weft__wrap_index(n, index, dim);
    const weft_value size = n->in[0]->size, zero = weft_scalar(g, WEFT_I32, 0);
    weft_value from_end = weft_cast(g, size, WEFT_F64);
    from_end = weft_cast(g, weft_add(g, from_end, weft_cast(g, index, WEFT_F64)), WEFT_I32);
    weft_value wrapped = weft_where(g, weft_less(g, index, zero), from_end, index);
    if (has_size(n, 1)) return wrapped;
    weft_value beyond = weft_fill(g, WEFT_I32, WEFT_SCALAR, (double)dim);
    return weft_where(g, weft_less(g, wrapped, size), wrapped, beyond);
}

weft_value weft__indices_along(onnx_node *n, int axis)
{
    return weft__wrap_along(n, weft__in_filled(n, 1, 0), axis);
}

void weft__map_Gather(onnx_node *n)
{
    weft_graph *g = n->graph;
    weft_value x = weft__in_value(n, 0);
    const weft_shape s = weft__in_shape(n, 0), t = weft__in_shape(n, 1);
    const int axis = weft__attr_axis(n, "axis", 0, s.rank);
    int64_t index;
    if (weft__node_failed(n)) return;
    const bool along = sized_along(n, 0, axis);
    if (!along && single_index(n, s.dim[axis], &index)) {
        x = weft_slice(g, x, axis, index, index + 1, 1);
        if (!t.rank) x = weft_squeeze(g, x, axis);
        for (int i = 1; i < t.rank; i++) x = weft_expand_dims(g, x, axis);
    } else {
        x = weft__gather_rows(n, x, weft__indices_along(n, axis), axis);
    }
    weft__set_typed(n, 0, x, weft__in_type(n, 0));
    if (has_size(n, 1)) weft__add_size(n, 0, axis + n->in[1]->sized_axis, n->in[1]->size);
    if (!has_size(n, 0) || along) return;
    const int sized = n->in[0]->sized_axis;
    weft__add_size(n, 0, sized < axis ? sized : sized - 1 + t.rank, n->in[0]->size);
}

/* Cuts x to the shape of the indices outside the axis. */
static weft_value cut_to(weft_graph *g, weft_value x, weft_shape shape, int axis)
{
    for (int i = 0; i < shape.rank; i++)
        if (i != axis && shape.dim[i] < weft_dim_of(g, x, i))
            x = weft_slice(g, x, i, 0, shape.dim[i], 1);
    return x;
}

void weft__map_GatherElements(onnx_node *n)
{
    const weft_value x = weft__in_value(n, 0);
    const weft_shape s = weft__in_shape(n, 0), t = weft__in_shape(n, 1);
    const int axis = weft__attr_axis(n, "axis", 0, s.rank);
    if (weft__node_failed(n)) return;
    if (s.rank != t.rank) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "indices of rank %d for an input of rank %d", t.rank,
                        s.rank);
        return;
    }
    const weft_value indices = weft__indices_along(n, axis);
    weft__set_typed(n, 0, weft_gather(n->graph, cut_to(n->graph, x, t, axis), indices, axis),
                    weft__in_type(n, 0));
    if (has_size(n, 1)) weft__add_size(n, 0, n->in[1]->sized_axis, n->in[1]->size);
}

weft_value weft__row_positions(onnx_node *n, int batch, int k)
{
    const weft_value indices = weft__in_filled(n, 1, 0);
    const weft_shape s = weft__in_shape(n, 0);
    weft_graph *g = n->graph;
    double dims[WEFT_MAX_RANK], strides[WEFT_MAX_RANK], stride = 1;
    for (int i = k - 1; i >= 0; i--) {
        dims[i] = (double)s.dim[batch + i];
        strides[i] = stride;
        stride *= dims[i];
    }
    const int last = weft_rank_of(g, indices) - 1;
    weft_value zero = weft_scalar(g, WEFT_F64, 0), x = weft_cast(g, indices, WEFT_F64);
    weft_value size = weft__doubles_value(n, dims, WEFT_SHAPE(k), WEFT_F64);
    if (has_size(n, 0) && !has_size(n, 1)) {
        weft_value at = weft_scalar(g, WEFT_I32, n->in[0]->sized_axis - batch);
        at = weft_equal(g, weft_arange(g, WEFT_I32, k, 0, 1), at);
        size = weft_where(g, at, weft_cast(g, n->in[0]->size, WEFT_F64), size);
    }
    x = weft_add(g, x, weft_where(g, weft_less(g, x, zero), size, zero));
    weft_value not_low = weft_logical_not(g, weft_less(g, x, zero));
    weft_value good = weft_logical_and(g, not_low, weft_less(g, x, size));
    weft_value bad = weft_cast(g, weft_logical_not(g, good), WEFT_F64);
    bad = weft_sum(g, bad, WEFT_AXES(last), false);
    x = weft_mul(g, x, weft__doubles_value(n, strides, WEFT_SHAPE(k), WEFT_F64));
    x = weft_sum(g, x, WEFT_AXES(last), false);
    if (batch > 0) { /* each batch has `stride` rows */
        weft_shape per_batch = weft_shape_of(g, x);
        const int64_t batches = weft__size_of(s, 0, batch);
        for (int i = batch; i < per_batch.rank; i++) per_batch.dim[i] = 1;
        x = weft_add(g, x,
                     weft_reshape(g, weft_arange(g, WEFT_F64, batches, 0, stride), per_batch));
    }
    weft_value outside = weft_greater(g, bad, zero);
    x = weft_where(g, outside, weft_scalar(g, WEFT_F64, -1), x);
    return weft_cast(g, x, WEFT_I32);
}

int weft__index_depth(onnx_node *n, weft_shape s, weft_shape t, int batch)
{
    const int64_t k = t.rank ? t.dim[t.rank - 1] : 0;
    if (k >= 1 && batch >= 0 && batch + k <= s.rank && batch < t.rank) return (int)k;
    weft__node_fail(n, WEFT_BAD_SHAPE, "indices of %lld dimensions for an input of rank %d",
                    (long long)k, s.rank);
    return -1;
}

void weft__map_GatherND(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_shape s = weft__in_shape(n, 0), t = weft__in_shape(n, 1);
    const int batch = (int)weft__attr_int(n, "batch_dims", 0),
              k = weft__index_depth(n, s, t, batch);
    weft_shape shape = {.rank = 0};
    if (k < 0 || !append(n, &shape, t, 0, t.rank - 1) || !append(n, &shape, s, batch + k, s.rank))
        return;
    weft_value rows = weft__row_positions(n, batch, k);
    weft_value table = weft_reshape(
        g, weft__in_value(n, 0),
        WEFT_SHAPE(weft__size_of(s, 0, batch + k), weft__size_of(s, batch + k, s.rank)));
    weft__set_typed(n, 0, weft_reshape(g, weft_embedding(g, table, rows, -1), shape),
                    weft__in_type(n, 0));
    if (has_size(n, 1)) weft__add_size(n, 0, n->in[1]->sized_axis, n->in[1]->size);
    if (has_size(n, 0) && n->in[0]->sized_axis >= batch + k)
        weft__add_size(n, 0, n->in[0]->sized_axis - batch - k + t.rank - 1, n->in[0]->size);
}

/* ---- Others ---- */

void weft__map_OneHot(onnx_node *n)
{
    weft_graph *g = n->graph;
    const int64_t depth = (int64_t)weft__in_number(n, 1, "depth", 0);
    const int rank = weft__in_shape(n, 0).rank, axis = weft__attr_axis(n, "axis", -1, rank + 1);
    if (weft__node_failed(n)) return;
    weft_value indices = weft_cast(g, weft__in_value(n, 0), WEFT_I32),
               values = weft__in_value(n, 2);
    weft_value hot = weft_one_hot(g, weft__wrap_index(n, indices, depth), depth, WEFT_BOOL);
    weft_value off = weft_squeeze(g, weft_slice(g, values, 0, 0, 1, 1), 0);
    weft_value on = weft_squeeze(g, weft_slice(g, values, 0, 1, 2, 1), 0);
    weft__set_typed(n, 0, weft_where(g, weft__move_axis(g, hot, rank, axis), on, off),
                    weft__in_type(n, 2));
}

/* Reverses the first elements of each row, as many as the row's length. */
void weft__map_ReverseSequence(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    const weft_shape s = weft__in_shape(n, 0);
    const int batch = weft__attr_axis(n, "batch_axis", 1, s.rank);
    const int time = weft__attr_axis(n, "time_axis", 0, s.rank);
    if (weft__node_failed(n)) return;
    weft_shape along_batch = {.rank = s.rank}, along_time = {.rank = s.rank};
    for (int i = 0; i < s.rank; i++) {
        along_batch.dim[i] = i == batch ? s.dim[i] : 1;
        along_time.dim[i] = i == time ? s.dim[i] : 1;
    }
    weft_value at = weft_reshape(g, weft_arange(g, WEFT_F64, s.dim[time], 0, 1), along_time);
    weft_value length = weft_reshape(g, weft_cast(g, weft__in_value(n, 1), WEFT_F64), along_batch);
    weft_value back = weft_add_scalar(g, weft_sub(g, length, at), -1);
    weft_value index = weft_where(g, weft_less(g, at, length), back, at);
    index = weft_broadcast_to(g, weft_cast(g, index, WEFT_I32), s);
    weft__set_typed(n, 0, weft_gather(g, x, index, time), weft__in_type(n, 0));
}
