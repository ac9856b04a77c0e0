/* Ops of ONNX that pad: with a value, or with elements of the tensor. */
#include "onnx/import.h"
#include "onnx/ops.h"

/* `count` elements of an axis from `begin` on, in order or reversed. */
static weft_value border(weft_graph *g, weft_value x, int axis, int64_t begin, int64_t count,
                         bool reversed)
{
    weft_value y = weft_slice(g, x, axis, begin, begin + count, 1);
    return reversed ? weft_flip(g, y, axis) : y;
}

static weft_value repeat_edge(weft_graph *g, weft_value x, int axis, int64_t at, int64_t count)
{
    weft_value edge = weft_slice(g, x, axis, at, at + 1, 1);
    weft_shape shape = weft_shape_of(g, edge);
    shape.dim[axis] = count;
    return weft_broadcast_to(g, edge, shape);
}

/* Pads one axis with elements of x: mirrored, the edge's, or from the other end. */
static weft_value pad_axis(onnx_node *n, weft_value x, int axis, int64_t before, int64_t after)
{
    weft_graph *g = n->graph;
    const int64_t size = weft_dim_of(g, x, axis);
    const bool edge = weft__attr_is(n, "mode", "edge", "constant");
    const bool wrap = weft__attr_is(n, "mode", "wrap", "constant"), reflect = !edge && !wrap;
    const int64_t most = edge ? INT32_MAX : reflect ? size - 1 : size;
    if (before > most || after > most || size == 0)
        return weft__node_fail(n, WEFT_BAD_SHAPE, "pads axis %d by more elements than it has",
                               axis);
    weft_value parts[3];
    size_t count = 0;
    if (before > 0)
        parts[count++] = edge ? repeat_edge(g, x, axis, 0, before)
                              : border(g, x, axis, reflect ? 1 : size - before, before, reflect);
    parts[count++] = x;
    if (after > 0)
        parts[count++] = edge ? repeat_edge(g, x, axis, size - 1, after)
                              : border(g, x, axis, reflect ? size - 1 - after : 0, after, reflect);
    return weft_concat(g, parts, count, axis);
}

/* Fills before[rank] and after[rank]. */
static bool read_pads(onnx_node *n, int rank, int64_t *before, int64_t *after)
{
    int64_t pads[2 * WEFT_MAX_RANK], axes[WEFT_MAX_RANK];
    int count = n->opset >= 2 ? weft__in_or_attr_ints(n, 11, 1, "pads", pads, 2 * WEFT_MAX_RANK)
                              : weft__attr_ints(n, "paddings", pads, 2 * WEFT_MAX_RANK);
    const int n_axes = n->opset >= 18 ? weft__in_ints(n, 3, "axes", axes, WEFT_MAX_RANK) : 0;
    const int padded = n_axes > 0 ? n_axes : rank;
    if (weft__node_failed(n)) return false;
    if (count != 2 * padded) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "has %d pads, expected %d", count, 2 * padded);
        return false;
    }
    for (int i = 0; i < rank; i++) before[i] = after[i] = 0;
    for (int i = 0; i < padded; i++) {
        const int axis = weft__node_axis(n, n_axes > 0 ? axes[i] : i, rank);
        before[axis] = pads[i];
        after[axis] = pads[padded + i];
    }
    return !weft__node_failed(n);
}

/* Pads a tensor whose size data decide, if what is added after it makes up a size that is known. A run in
 * which it does not ends with an error. */
static void pad_to_known(onnx_node *n, weft_value x, const int64_t *before, const int64_t *after)
{
    weft_graph *g = n->graph;
    const int rank = weft__in_shape(n, 0).rank, axis = n->in[0]->sized_axis;
    const onnx_value *pads = has_in(n, 1) ? n->in[1] : NULL;
    bool good = has_size(n, 0) && pads && pads->least && !has_in(n, 3) && before[axis] == 0 &&
                weft__attr_is(n, "mode", "constant", "constant");
    for (int i = 0; good && i < 2 * rank; i++) good = weft__is_open(n, 1, i) == (i == rank + axis);
    const int64_t total = weft_dim_of(g, x, axis) + after[axis];
    if (good) {
        const onnx_tensor least = {pads->tensor.dtype, pads->tensor.shape, pads->least};
        good = after[axis] >= 0 && onnx_tensor_element(&least, rank + axis) == (double)total;
    }
    if (!good) {
        weft__node_fail(n, WEFT_NO_KERNEL,
                        "pads \"%s\", whose size data decide: the sum of both must be known",
                        n->in[0]->name);
        return;
    }
    const double value = weft__in_number(n, 2, "value", 0);
    const weft_value size = weft_cast(g, n->in[0]->size, WEFT_F64);
    const weft_value rest = weft_cast(g, weft__in_element(n, 1, rank + axis), WEFT_F64);
    const weft_value sum = weft_add(g, size, rest), known = weft_scalar(g, WEFT_F64, (double)total);
    const weft_value other = weft_not_equal(g, sum, known);
    x = weft_pad(g, weft__filled(n, 0, x, value), before, after, value);
    weft__set_typed(n, 0, weft_where(g, weft__unless(g, other), x, x), weft__in_type(n, 0));
}

void weft__map_Pad(onnx_node *n)
{
    weft_value x = weft__in_value(n, 0);
    const int rank = weft__in_shape(n, 0).rank;
    int64_t before[WEFT_MAX_RANK], after[WEFT_MAX_RANK];
    if (!read_pads(n, rank, before, after)) return;
    if (has_size(n, 0) || n->read_open) {
        pad_to_known(n, x, before, after);
        return;
    }
    for (int i = 0; i < rank; i++) {
        const int64_t size = weft_dim_of(n->graph, x, i);
        const int64_t begin = before[i] < 0 ? -before[i] : 0, end = after[i] < 0 ? after[i] : 0;
        if (begin || end) x = weft_slice(n->graph, x, i, begin, size + end, 1);
        if (before[i] < 0) before[i] = 0;
        if (after[i] < 0) after[i] = 0;
    }
    if (weft__attr_is(n, "mode", "constant", "constant")) {
        const double value =
            n->opset >= 11 ? weft__in_number(n, 2, "value", 0) : weft__attr_float(n, "value", 0);
        x = weft_pad(n->graph, x, before, after, value);
    } else {
        for (int i = 0; i < rank; i++)
            if (before[i] || after[i]) x = pad_axis(n, x, i, before[i], after[i]);
    }
    weft__set_typed(n, 0, x, weft__in_type(n, 0));
}

/* Cuts or pads axes with zeros to a size, evenly at both ends, the end first. */
void weft__map_CenterCropPad(onnx_node *n)
{
    weft_value x = weft__in_value(n, 0);
    const int rank = weft__in_shape(n, 0).rank;
    int64_t sizes[WEFT_MAX_RANK], axes[WEFT_MAX_RANK];
    int64_t before[WEFT_MAX_RANK] = {0}, after[WEFT_MAX_RANK] = {0};
    const int count = weft__in_ints(n, 1, "shape", sizes, WEFT_MAX_RANK);
    const int n_axes = weft__attr_ints(n, "axes", axes, WEFT_MAX_RANK);
    if (weft__node_failed(n)) return;
    if (count != (n_axes ? n_axes : rank)) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "has %d sizes for %d axes", count,
                        n_axes ? n_axes : rank);
        return;
    }
    for (int i = 0; i < count && !weft__node_failed(n); i++) {
        const int axis = n_axes ? weft__node_axis(n, axes[i], rank) : i;
        const int64_t size = weft_dim_of(n->graph, x, axis), less = size - sizes[i];
        if (sizes[i] < 0) weft__node_fail(n, WEFT_BAD_SHAPE, "has a negative size");
        if (less > 0) x = weft_slice(n->graph, x, axis, less / 2, less / 2 + sizes[i], 1);
        before[axis] = less < 0 ? -less / 2 : 0;
        after[axis] = less < 0 ? -less - before[axis] : 0;
    }
    weft__set_typed(n, 0, weft_pad(n->graph, x, before, after, 0), weft__in_type(n, 0));
}
