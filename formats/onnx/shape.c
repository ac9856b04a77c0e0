/* Ops of ONNX on shapes: views, joining and cutting. */
#include "onnx/import.h"
#include "onnx/ops.h"

/* ---- Views ---- */

void weft__map_Reshape(onnx_node *n)
{
    weft_shape shape = {.rank = 0}, old = weft__in_shape(n, 0);
    shape.rank = weft__in_or_attr_ints(n, 5, 1, "shape", shape.dim, WEFT_MAX_RANK);
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dim[i] || weft__attr_int(n, "allowzero", 0)) continue;
        if (i >= old.rank) {
            weft__node_fail(n, WEFT_BAD_SHAPE, "copies dimension %d of an input of rank %d", i,
                            old.rank);
            return;
        }
        shape.dim[i] = old.dim[i];
    }
    if (shape.rank >= 0)
        weft__set_typed(n, 0, weft_reshape(n->graph, weft__in_value(n, 0), shape),
                        weft__in_type(n, 0));
}

static int64_t product(weft_shape shape, int begin, int end)
{
    int64_t size = 1;
    for (int i = begin; i < end; i++) size *= shape.dim[i];
    return size;
}

void weft__map_Flatten(onnx_node *n)
{
    const weft_value x = weft__in_value(n, 0);
    const weft_shape s = weft__in_shape(n, 0);
    const int64_t axis = weft__attr_int(n, "axis", 1);
    const int at = axis == s.rank ? s.rank : weft__node_axis(n, axis, s.rank);
    weft__set_typed(
        n, 0, weft_reshape(n->graph, x, WEFT_SHAPE(product(s, 0, at), product(s, at, s.rank))),
        weft__in_type(n, 0));
}

void weft__map_Transpose(onnx_node *n)
{
    const weft_value x = weft__in_value(n, 0);
    const int rank = weft__in_shape(n, 0).rank;
    int64_t perm[WEFT_MAX_RANK];
    const int count = weft__attr_ints(n, "perm", perm, WEFT_MAX_RANK);
    weft_axes axes = {.count = rank};
    for (int i = 0; i < rank; i++) axes.axis[i] = rank - 1 - i;
    if (count > 0 && count != rank) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "permutes %d axes of an input of rank %d", count, rank);
        return;
    }
    for (int i = 0; i < count; i++) axes.axis[i] = weft__node_axis(n, perm[i], rank);
    weft__set_typed(n, 0, rank ? weft_permute(n->graph, x, axes) : x, weft__in_type(n, 0));
}

/* Marks the axes of a list; false after a failure. */
static bool mark_axes(onnx_node *n, const int64_t *axes, int count, int rank, bool *marked)
{
    for (int i = 0; i < rank; i++) marked[i] = false;
    for (int i = 0; i < count; i++) marked[weft__node_axis(n, axes[i], rank)] = true;
    return count >= 0 && !weft__node_failed(n);
}

void weft__map_Squeeze(onnx_node *n)
{
    const weft_shape s = weft__in_shape(n, 0);
    const weft_value x = weft__in_value(n, 0);
    weft_shape shape = {.rank = 0};
    bool marked[WEFT_MAX_RANK];
    int64_t axes[WEFT_MAX_RANK];
    const bool given = n->opset >= 13 ? has_in(n, 1) : weft__has_attr(n, "axes");
    const int count = weft__in_or_attr_ints(n, 13, 1, "axes", axes, WEFT_MAX_RANK);
    if (!mark_axes(n, axes, count, s.rank, marked)) return;
    for (int i = 0; i < s.rank; i++) {
        if (marked[i] && s.dim[i] != 1) {
            weft__node_fail(n, WEFT_BAD_SHAPE, "removes axis %d of size %lld", i,
                            (long long)s.dim[i]);
            return;
        }
        if (given ? !marked[i] : s.dim[i] != 1) shape.dim[shape.rank++] = s.dim[i];
    }
    weft__set_typed(n, 0, weft_reshape(n->graph, x, shape), weft__in_type(n, 0));
}

void weft__map_Unsqueeze(onnx_node *n)
{
    const weft_shape s = weft__in_shape(n, 0);
    const weft_value x = weft__in_value(n, 0);
    bool marked[WEFT_MAX_RANK];
    int64_t axes[WEFT_MAX_RANK];
    const int count = weft__in_or_attr_ints(n, 13, 1, "axes", axes, WEFT_MAX_RANK);
    weft_shape shape = {.rank = s.rank + (count > 0 ? count : 0)};
    if (shape.rank > WEFT_MAX_RANK) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "makes a tensor of rank %d, weft has at most %d",
                        shape.rank, WEFT_MAX_RANK);
        return;
    }
    if (!mark_axes(n, axes, count, shape.rank, marked)) return;
    for (int i = 0, from = 0; i < shape.rank; i++)
        shape.dim[i] = marked[i] || from >= s.rank ? 1 : s.dim[from++];
    weft__set_typed(n, 0, weft_reshape(n->graph, x, shape), weft__in_type(n, 0));
}

void weft__map_Expand(onnx_node *n)
{
    weft_shape wanted = {.rank = 0}, shape;
    const weft_value x = weft__in_value(n, 0);
    wanted.rank = weft__in_ints(n, 1, "shape", wanted.dim, WEFT_MAX_RANK);
    if (wanted.rank < 0) return;
    if (!weft_shape_broadcast(weft__in_shape(n, 0), wanted, &shape)) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "the input does not broadcast to the shape");
        return;
    }
    weft__set_shaped(n, weft_broadcast_to(n->graph, x, shape), weft__in_type(n, 0), 1);
    if (has_size(n, 0))
        weft__add_size(n, 0, n->in[0]->sized_axis + shape.rank - weft__in_shape(n, 0).rank,
                       n->in[0]->size);
}

/* ---- Joining and cutting ---- */

/* Moves the positions of output 0 that count to the front: its inputs are joined along an axis whose
 * sizes data decide. */
static void close_up(onnx_node *n, int axis)
{
    weft_graph *g = n->graph;
    onnx_value *out = &n->out[0];
    weft_value size, *counted = weft__arena_alloc(&n->import->memory, n->n_in * sizeof *counted);
    if (!counted) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a list");
        return;
    }
    for (size_t i = 0; i < n->n_in; i++) {
        const int64_t dim = weft__in_shape(n, i).dim[axis];
        counted[i] = has_size(n, i) ? weft__counted(g, n->in[i]->size, dim, 0, 1)
                                    : weft_fill(g, WEFT_BOOL, WEFT_SHAPE(dim), 1);
    }
    weft_value from = weft__true_positions(g, weft_concat(g, counted, n->n_in, 0), &size);
    out->value = weft__gather_rows(n, out->value, from, axis);
    weft__add_size(n, 0, axis, size);
}

void weft__map_Concat(onnx_node *n)
{
    weft_value *x = weft__arena_alloc(&n->import->memory, n->n_in * sizeof *x);
    if (!x) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a list");
        return;
    }
    for (size_t i = 0; i < n->n_in; i++) {
        if (!has_in(n, i)) {
            weft__node_fail(n, WEFT_BAD_FILE, "has no input %zu", i);
            return;
        }
        x[i] = weft__in_value(n, i);
    }
    const int axis = weft__attr_axis(n, "axis", 1, weft__in_shape(n, 0).rank);
    weft__set_typed(n, 0, weft_concat(n->graph, x, n->n_in, axis), weft__in_type(n, 0));
    bool close = false;
    for (size_t i = 0; i < n->n_in; i++) {
        if (!has_size(n, i)) continue;
        if (n->in[i]->sized_axis == axis)
            close = true;
        else
            weft__add_size(n, 0, n->in[i]->sized_axis, n->in[i]->size);
    }
    if (close && !weft__node_failed(n)) close_up(n, axis);
}

void weft__map_Split(onnx_node *n)
{
    const weft_value x = weft__in_value(n, 0);
    const weft_shape s = weft__in_shape(n, 0);
    const int axis = weft__attr_axis(n, "axis", 0, s.rank), count = (int)n->n_out;
    int64_t *sizes = weft__arena_alloc(&n->import->memory, n->n_out * sizeof *sizes), begin = 0;
    if (!sizes || weft__node_failed(n)) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a list");
        return;
    }
    const int given = weft__in_or_attr_ints(n, 13, 1, "split", sizes, count);
    const int64_t each = (s.dim[axis] + count - 1) / count;
    if (given < 0) return;
    for (int i = 0; i < count; i++) {
        const int64_t rest = s.dim[axis] - begin, size = given ? sizes[i] : each;
        const int64_t taken = size < rest ? size : rest;
        if ((given && given != count) || taken < 0 || (given && taken != size)) {
            weft__node_fail(n, WEFT_BAD_SHAPE, "the sizes of its pieces do not add up to %lld",
                            (long long)s.dim[axis]);
            return;
        }
        weft__set_typed(n, (size_t)i, weft_slice(n->graph, x, axis, begin, begin + taken, 1),
                        weft__in_type(n, 0));
        begin += taken;
    }
}

/* One axis of a slice. ONNX cuts bounds as Python does; a bound of INT32_MIN means the beginning of
 * a reversed axis. */
static weft_value slice_axis(weft_graph *g, weft_value x, int axis, int64_t begin, int64_t end,
                             int64_t step)
{
    const int64_t size = weft_dim_of(g, x, axis);
    if (begin >= INT32_MAX) begin = WEFT_END;
    if (end >= INT32_MAX) end = WEFT_END;
    if (step < 0) {
        if (begin >= size) begin = size - 1;
        if (end < -size) end = WEFT_END;
    }
    return weft_slice(g, x, axis, begin, end, step);
}

/* How many of `dim` positions from `begin` on, up to element i of the ends, count. */
static weft_value cut_size(onnx_node *n, int axis, int64_t begin, int64_t i, int64_t dim)
{
    weft_graph *g = n->graph;
    weft_value size = WEFT_NO_VALUE;
    if (has_size(n, 0) && axis == n->in[0]->sized_axis)
        size = weft__size_plus(g, n->in[0]->size, (double)-begin);
    if (weft__is_open(n, 2, i)) {
        const weft_value to = weft__size_plus(g, weft__in_element(n, 2, i), (double)-begin);
        size = weft_is_value(size) ? weft_where(g, weft_less(g, to, size), to, size) : to;
    }
    return weft__size_between(g, size, 0, (double)dim);
}

void weft__map_Slice(onnx_node *n)
{
    int64_t starts[WEFT_MAX_RANK], ends[WEFT_MAX_RANK], axes[WEFT_MAX_RANK], steps[WEFT_MAX_RANK];
    weft_value x = weft__in_value(n, 0);
    const int rank = weft__in_shape(n, 0).rank;
    const int count = weft__in_or_attr_ints(n, 10, 1, "starts", starts, WEFT_MAX_RANK);
    const int n_ends = weft__in_or_attr_ints(n, 10, 2, "ends", ends, WEFT_MAX_RANK);
    const int n_axes = weft__in_or_attr_ints(n, 10, 3, "axes", axes, WEFT_MAX_RANK);
    const int n_steps = weft__in_or_attr_ints(n, 10, 4, "steps", steps, WEFT_MAX_RANK);
    if (weft__node_failed(n)) return;
    if (n_ends != count || (n_axes && n_axes != count) || (n_steps && n_steps != count)) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "starts, ends, axes and steps differ in length");
        return;
    }
    for (int i = 0; i < count && !weft__node_failed(n); i++) {
        const int axis = weft__node_axis(n, n_axes ? axes[i] : i, rank);
        const int64_t step = n_steps ? steps[i] : 1;
        x = slice_axis(n->graph, x, axis, starts[i], ends[i], step);
        if (!weft__is_open(n, 2, i) && !(has_size(n, 0) && axis == n->in[0]->sized_axis)) continue;
        if (step != 1 || starts[i] < 0 || ends[i] < 0 || weft__is_open(n, 1, i)) {
            weft__node_fail(n, WEFT_NO_KERNEL,
                            "needs a step of 1 and bounds from 0 along dimension %d, whose size "
                            "data decide",
                            axis);
            return;
        }
        n->out[0].value = x;
        weft__add_size(n, 0, axis, cut_size(n, axis, starts[i], i, weft_dim_of(n->graph, x, axis)));
    }
    weft__set_typed(n, 0, x, weft__in_type(n, 0));
    if (has_size(n, 0)) weft__add_size(n, 0, n->in[0]->sized_axis, n->in[0]->size);
}

void weft__map_Tile(onnx_node *n)
{
    weft_graph *g = n->graph;
    weft_value x = weft__in_value(n, 0);
    const weft_shape s = weft__in_shape(n, 0);
    int64_t repeats[WEFT_MAX_RANK];
    if (weft__in_ints(n, 1, "repeats", repeats, WEFT_MAX_RANK) != s.rank) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "needs %d repeats", s.rank);
        return;
    }
    for (int i = 0; i < s.rank; i++) {
        if (repeats[i] == 1) continue;
        const weft_shape now = weft_shape_of(g, x);
        const int64_t before = product(now, 0, i), rest = product(now, i, s.rank);
        weft_shape tiled = now;
        tiled.dim[i] *= repeats[i];
        x = weft_reshape(g, x, WEFT_SHAPE(before, 1, rest));
        x = weft_broadcast_to(g, x, WEFT_SHAPE(before, repeats[i], rest));
        x = weft_reshape(g, x, tiled);
    }
    weft__set_typed(n, 0, x, weft__in_type(n, 0));
}

/* [a, b, c..] of the blocks of space and depth, permuted and joined again. */
static void move_blocks(onnx_node *n, weft_shape split, weft_axes order, weft_shape joined)
{
    weft_value x = weft_reshape(n->graph, weft__in_value(n, 0), split);
    weft__set_typed(n, 0, weft_reshape(n->graph, weft_permute(n->graph, x, order), joined),
                    weft__in_type(n, 0));
}

static bool check_image(onnx_node *n, int64_t *block)
{
    *block = weft__attr_int(n, "blocksize", 0);
    if (weft__in_shape(n, 0).rank == 4 && *block > 0 && *block < 65536) return true;
    weft__node_fail(n, WEFT_BAD_SHAPE, "needs an input of rank 4 and a blocksize");
    return false;
}

void weft__map_DepthToSpace(onnx_node *n)
{
    const weft_shape s = weft__in_shape(n, 0);
    int64_t b;
    if (!check_image(n, &b)) return;
    const int64_t depth = s.dim[1] / (b * b);
    const weft_shape joined = WEFT_SHAPE(s.dim[0], depth, s.dim[2] * b, s.dim[3] * b);
    if (weft__attr_is(n, "mode", "CRD", "DCR"))
        move_blocks(n, WEFT_SHAPE(s.dim[0], depth, b, b, s.dim[2], s.dim[3]),
                    WEFT_AXES(0, 1, 4, 2, 5, 3), joined);
    else
        move_blocks(n, WEFT_SHAPE(s.dim[0], b, b, depth, s.dim[2], s.dim[3]),
                    WEFT_AXES(0, 3, 4, 1, 5, 2), joined);
}

void weft__map_SpaceToDepth(onnx_node *n)
{
    const weft_shape s = weft__in_shape(n, 0);
    int64_t b;
    if (!check_image(n, &b)) return;
    const int64_t rows = s.dim[2] / b, columns = s.dim[3] / b;
    const bool depth_first = weft__attr_is(n, "mode", "CRD", "DCR");
    move_blocks(n, WEFT_SHAPE(s.dim[0], s.dim[1], rows, b, columns, b),
                depth_first ? WEFT_AXES(0, 1, 3, 5, 2, 4) : WEFT_AXES(0, 3, 5, 1, 2, 4),
                WEFT_SHAPE(s.dim[0], s.dim[1] * b * b, rows, columns));
}
