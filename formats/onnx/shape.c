/* Ops of ONNX on shapes: views, joining and cutting, and values that follow from shapes. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <math.h>
#include <stdlib.h>

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
    weft__set_typed(n, 0, weft_broadcast_to(n->graph, x, shape), weft__in_type(n, 0));
}

/* ---- Joining and cutting ---- */

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
    for (int i = 0; i < count && !weft__node_failed(n); i++)
        x = slice_axis(n->graph, x, weft__node_axis(n, n_axes ? axes[i] : i, rank), starts[i],
                       ends[i], n_steps ? steps[i] : 1);
    weft__set_typed(n, 0, x, weft__in_type(n, 0));
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

/* ---- Values from shapes ---- */

void weft__map_Shape(onnx_node *n)
{
    const weft_shape s = weft__in_shape(n, 0);
    int64_t begin = weft__attr_int(n, "start", 0), end = weft__attr_int(n, "end", s.rank);
    int32_t dims[WEFT_MAX_RANK];
    if (begin < 0) begin += s.rank;
    if (end < 0) end += s.rank;
    if (begin < 0) begin = 0;
    if (end > s.rank) end = s.rank;
    int count = 0;
    for (int64_t i = begin; i < end; i++) {
        dims[count++] = (int32_t)s.dim[i];
        if (s.dim[i] > INT32_MAX)
            weft__node_fail(n, WEFT_TOO_LARGE, "a dimension does not fit i32");
    }
    weft__set_known(n, 0, ONNX_INT64, WEFT_SHAPE(count), dims);
}

void weft__map_Size(onnx_node *n)
{
    const int64_t numel = weft_shape_numel(weft__in_shape(n, 0));
    const int32_t size = (int32_t)numel;
    if (size != numel)
        weft__node_fail(n, WEFT_TOO_LARGE, "the number of elements does not fit i32");
    weft__set_known(n, 0, ONNX_INT64, WEFT_SCALAR, &size);
}

/* A constant of the attribute "value" and its relatives. */
void weft__map_Constant(onnx_node *n)
{
    static const char *const names[] = {"value", "value_float", "value_floats", "value_int",
                                        "value_ints"};
    const WeftOnnx__AttributeProto *a = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !a; i++)
        a = weft__attr_find(n, names[i]);
    if (a && a->t) {
        weft__set_tensor(n->import, &n->out[0], a->t);
        return;
    }
    const bool is_float = a && (a->has_f || a->n_floats), is_int = a && (a->has_i || a->n_ints);
    if (!is_float && !is_int && !(a && !a->has_s && !a->n_strings)) {
        weft__node_fail(n, WEFT_BAD_DTYPE, "has a value that is not a dense tensor of numbers");
        return;
    }
    const bool list = a->n_floats || a->n_ints || (!a->has_f && !a->has_i);
    const size_t count = list ? a->n_floats + a->n_ints : 1;
    const weft_shape shape = list ? WEFT_SHAPE((int64_t)count) : WEFT_SCALAR;
    if (is_float) {
        weft__set_known(n, 0, ONNX_FLOAT, shape, list ? a->floats : &a->f);
        return;
    }
    int32_t *ints = weft__arena_alloc(&n->import->memory, (count + 1) * sizeof *ints);
    if (!ints) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a constant");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const int64_t value = list ? a->ints[i] : a->i;
        ints[i] = value >= INT64_MAX ? INT32_MAX : value <= -INT64_MAX ? INT32_MIN : (int32_t)value;
        if (ints[i] != value && value != INT64_MAX && value > -INT64_MAX)
            weft__node_fail(n, WEFT_BAD_DTYPE, "%lld does not fit i32", (long long)value);
    }
    weft__set_known(n, 0, ONNX_INT64, shape, ints);
}

void weft__map_ConstantOfShape(onnx_node *n)
{
    const WeftOnnx__AttributeProto *a = weft__attr_find(n, "value");
    weft_shape shape = {.rank = 0};
    onnx_tensor value = {.dtype = WEFT_F32, .shape = {1, {1}}, .data = &(const float){0}};
    shape.rank = weft__in_ints(n, 0, "shape", shape.dim, WEFT_MAX_RANK);
    if (a && a->t &&
        weft__onnx_tensor_read(a->t, "value", &n->import->memory,
                               (onnx_files *)(uintptr_t)&n->import->model->files, &value,
                               &n->import->error) != WEFT_OK)
        return;
    if (shape.rank < 0) return;
    if (weft_shape_numel(value.shape) != 1) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "its value must have one element");
        return;
    }
    weft_value one = weft_constant(n->graph, value.dtype, WEFT_SCALAR, value.data);
    weft__set_typed(n, 0, weft_broadcast_to(n->graph, one, shape),
                    a && a->t ? a->t->data_type : ONNX_FLOAT);
}

void weft__map_Range(onnx_node *n)
{
    const double start = weft__in_number(n, 0, "start", 0),
                 limit = weft__in_number(n, 1, "limit", 0);
    const double step = weft__in_number(n, 2, "delta", 0), count = ceil((limit - start) / step);
    weft_dtype dtype;
    if (weft__node_failed(n) ||
        weft__onnx_type_dtype(weft__in_type(n, 0), "Range", &dtype, &n->import->error))
        return;
    if (step == 0 || !(count < INT32_MAX)) {
        weft__node_fail(n, WEFT_BAD_ARGUMENT, "has a step of 0, or too many elements");
        return;
    }
    weft__set_typed(n, 0, weft_arange(n->graph, dtype, count > 0 ? (int64_t)count : 0, start, step),
                    weft__in_type(n, 0));
}

/* Ones on a diagonal of a matrix. */
void weft__map_EyeLike(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_shape s = weft__in_shape(n, 0);
    const int type = (int)weft__attr_int(n, "dtype", weft__in_type(n, 0));
    const int64_t k = weft__attr_int(n, "k", 0);
    weft_dtype dtype;
    if (weft__node_failed(n) || weft__onnx_type_dtype(type, "EyeLike", &dtype, &n->import->error))
        return;
    if (s.rank != 2) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "needs a matrix");
        return;
    }
    weft_value below = weft_tril_mask(g, s.dim[0], s.dim[1], k - 1);
    weft_value up_to = weft_tril_mask(g, s.dim[0], s.dim[1], k);
    weft_value on = weft_logical_and(g, up_to, weft_logical_not(g, below));
    weft__set_typed(n, 0, weft_cast(g, on, dtype), type);
}

void weft__map_Trilu(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    const weft_shape s = weft__in_shape(n, 0);
    const bool upper = weft__attr_int(n, "upper", 1);
    const int64_t k = (int64_t)weft__in_number(n, 1, "k", 0);
    if (weft__node_failed(n)) return;
    if (s.rank < 2) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "needs matrices");
        return;
    }
    weft_value mask = weft_tril_mask(g, s.dim[s.rank - 2], s.dim[s.rank - 1], upper ? k - 1 : k);
    weft_value hidden = upper ? mask : weft_logical_not(g, mask);
    weft__set_typed(n, 0, weft_masked_fill(g, x, hidden, 0), weft__in_type(n, 0));
}
