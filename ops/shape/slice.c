/* slice: every step-th element of a range along one axis, a view; slice_scatter, its gradient,
 * writes the slice's elements back among zeros. Splitting and flipping are slices. */
#include "kernels/kernel.h"
#include "slice.h"

#ifdef WEFT_KERNEL_ISA

/* Copies elements [from, to) of a row, laid out in runs of `inner`, from the slice's row. */
static inline void put_ranges(const slice_attr *attr, int64_t inner, const T *dy, T *row,
                              int64_t from, int64_t to)
{
    if (attr->step == 1) { /* one run */
        int64_t low = attr->begin * inner, high = low + attr->count * inner;
        low = from > low ? from : low;
        high = to < high ? to : high;
        if (low < high)
            memcpy(row + low, dy + (low - attr->begin * inner), (size_t)(high - low) * sizeof *row);
        return;
    }
    for (int64_t k = 0; k < attr->count; k++) {
        int64_t start = (attr->begin + k * attr->step) * inner;
        int64_t low = from > start ? from : start, high = to < start + inner ? to : start + inner;
        for (int64_t i = low; i < high; i++) row[i] = dy[k * inner + (i - start)];
    }
}

/* Row by row (an index of the dimensions before the axis): zeros, then the slice's elements. */
KERNEL(slice_scatter)
{
    const slice_attr *attr = call->attr;
    const weft_tensor *dx = &call->out[0];
    int64_t n = numel_of(&dx->shape), end = (tile + 1) * TILE < n ? (tile + 1) * TILE : n;
    int64_t inner = 1;
    for (int d = attr->axis + 1; d < dx->shape.rank; d++) inner *= dx->shape.dim[d];
    const int64_t row = attr->size * inner, dy_row = attr->count * inner;
    memset((T *)dx->data + tile * TILE, 0, (size_t)(end - tile * TILE) * sizeof(T));
    for (int64_t at = tile * TILE; at < end;) {
        const int64_t r = at / row, from = at % row, to = row < end - r * row ? row : end - r * row;
        put_ranges(attr, inner, (const T *)call->in[0].data + r * dy_row, (T *)dx->data + r * row,
                   from, to);
        at = r * row + to;
    }
}

#else

#include "batch.h"
#include "passes.h"
#include "samples.h"

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

#include <stdlib.h>

extern const weft_op weft_op_slice, weft_op_slice_scatter;

/* Whether the first and the last element lie in the axis, without overflow for any attribute. */
static bool slice_fits(const slice_attr *attr)
{
    if (attr->step == 0 || attr->count < 0) return false;
    if (attr->count == 0) return true;
    if (attr->begin < 0 || attr->begin >= attr->size) return false;
    int64_t more = attr->count - 1;
    if (attr->step > 0) return more <= (attr->size - 1 - attr->begin) / attr->step;
    return attr->step == INT64_MIN ? more == 0 : more <= attr->begin / -attr->step;
}

static bool infer_slice(weft_infer *infer)
{
    const slice_attr *attr = infer->attr;
    weft_shape shape = infer->in[0].shape;
    int axis;
    if (!weft_infer_axis(infer, shape.rank, attr->axis, &axis)) return false;
    if (attr->size != shape.dim[axis] || !slice_fits(attr))
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                               "%lld elements from %lld with step %lld exceed axis %d of size %lld",
                               (long long)attr->count, (long long)attr->begin,
                               (long long)attr->step, axis, (long long)shape.dim[axis]);
    shape.dim[axis] = attr->count;
    infer->out[0] = (weft_type){infer->in[0].dtype, shape};
    return true;
}

static bool alias_slice(const void *attribute, const weft_type *in, const weft_layout *in_layout,
                        const weft_type *out, weft_layout *out_layout)
{
    const slice_attr *attr = attribute;
    (void)in;
    *out_layout = *in_layout;
    /* An empty tensor has no first element, and a step that is never taken, of any size, must not
     * become a stride. */
    if (weft_shape_numel(out->shape) > 0)
        out_layout->offset += attr->begin * in_layout->stride[attr->axis];
    if (attr->count > 1) out_layout->stride[attr->axis] *= attr->step;
    return true;
}

static void vjp_slice(weft_vjp *v)
{
    v->grad_in[0] = weft_apply(v->graph, &weft_op_slice_scatter, v->attr, v->grad_out, 1, NULL);
}

static bool infer_slice_scatter(weft_infer *infer)
{
    const slice_attr *attr = infer->attr;
    weft_shape shape = infer->in[0].shape;
    int axis;
    if (!weft_infer_axis(infer, shape.rank, attr->axis, &axis)) return false;
    if (shape.dim[axis] != attr->count)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "axis %d has %lld elements, the slice %lld",
                               axis, (long long)shape.dim[axis], (long long)attr->count);
    if (attr->size < 0 || !slice_fits(attr))
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                               "%lld elements from %lld with step %lld exceed an axis of size %lld",
                               (long long)attr->count, (long long)attr->begin,
                               (long long)attr->step, (long long)attr->size);
    shape.dim[axis] = attr->size;
    infer->out[0] = (weft_type){infer->in[0].dtype, shape};
    return true;
}

static void vjp_slice_scatter(weft_vjp *v)
{
    v->grad_in[0] = weft_apply(v->graph, &weft_op_slice, v->attr, v->grad_out, 1, NULL);
}

/* An end before element 0 is written as -size - 1, since -1 would be the last element. */
static void onnx_slice(weft_export *e)
{
    const slice_attr *attr = e->attr;
    const int64_t begin = attr->count ? attr->begin : 0, axis = attr->axis;
    const int64_t step = attr->count > 1 ? attr->step : 1;
    const int64_t last = begin + (attr->count - 1) * step;
    int64_t end = attr->count == 0 ? 0 : step > 0 ? last + 1 : last - 1;
    if (end < 0) end = -attr->size - 1;
    const weft_operand in[] = {e->in[0], weft_export_int64s(e, &begin, 1),
                               weft_export_int64s(e, &end, 1), weft_export_int64s(e, &axis, 1),
                               weft_export_int64s(e, &step, 1)};
    e->out[0] = weft_export_node(e, "Slice", in, 5, 1);
}

/* Zeros around y; with another step than 1, those after it are read where y has no element. */
static void onnx_slice_scatter(weft_export *e)
{
    const slice_attr *attr = e->attr;
    const bool whole = attr->step == 1 || attr->count <= 1;
    const int rank = e->in_type[0].shape.rank;
    int64_t pads[2 * WEFT_MAX_RANK] = {0};
    pads[attr->axis] = whole && attr->count ? attr->begin : 0;
    pads[rank + attr->axis] = whole ? attr->size - attr->count - pads[attr->axis] : 1;
    const weft_operand in[] = {e->in[0], weft_export_int64s(e, pads, 2 * (size_t)rank),
                               weft_export_scalar(e, e->in_type[0].dtype, 0)};
    e->out[0] = weft_export_node(e, "Pad", in, 3, 1);
    int64_t *at = whole ? NULL : malloc((size_t)attr->size * sizeof *at);
    if (whole) return;
    if (!at) {
        weft_export_fail(e, "no memory");
        return;
    }
    for (int64_t i = 0; i < attr->size; i++) at[i] = attr->count;
    for (int64_t i = 0; i < attr->count; i++) at[attr->begin + i * attr->step] = i;
    const weft_operand gather[] = {e->out[0], weft_export_int64s(e, at, (size_t)attr->size)};
    e->out[0] = weft_export_node(e, "Gather", gather, 2, 1);
    weft_export_int(e, "axis", attr->axis);
    free(at);
}

static void source_slice_scatter(weft_source *s)
{
    const slice_attr *attr = s->attr;
    const weft_shape *shape = &s->out[0].shape;
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < shape->rank; d++) {
        if (d < attr->axis) outer *= shape->dim[d];
        if (d > attr->axis) inner *= shape->dim[d];
    }
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    WEFT_ARG_OUT(0),
                                    WEFT_ARG_INT(outer),
                                    WEFT_ARG_INT(attr->size),
                                    WEFT_ARG_INT(inner),
                                    WEFT_ARG_INT(attr->count ? attr->begin : 0),
                                    WEFT_ARG_INT(attr->count > 1 ? attr->step : 1),
                                    WEFT_ARG_INT(attr->count)};
    weft_source_call_of(s, "slice_scatter", args, sizeof args / sizeof *args);
}

static const slice_attr slice_a = {1, 1, 2, 3, 7}, slice_b = {0, 3, -1, 4, 4},
                        slice_c = {1, 2, 1, 0, 5};
static const weft_sample samples_slice[] = {
    {&slice_a, 1, {FLOATS({2, {3, 7}})}},
    {&slice_b, 1, {FLOATS({3, {4, 2, 2}})}},
    {&slice_c, 1, {FLOATS({2, {2, 5}})}},
    {&slice_b, 1, {{WEFT_I32, {2, {4, 2}}, 0, 9, false}}},
};
static const weft_sample samples_slice_scatter[] = {
    {&slice_a, 1, {FLOATS({2, {3, 3}})}},
    {&slice_b, 1, {FLOATS({3, {4, 2, 2}})}},
    {&slice_c, 1, {FLOATS({2, {2, 0}})}},
};
static const weft_attr_field slice_fields[] = {
    {"axis", WEFT_ATTR_INT, offsetof(slice_attr, axis)},
    {"begin", WEFT_ATTR_INT64, offsetof(slice_attr, begin)},
    {"step", WEFT_ATTR_INT64, offsetof(slice_attr, step)},
    {"count", WEFT_ATTR_INT64, offsetof(slice_attr, count)},
    {"size", WEFT_ATTR_INT64, offsetof(slice_attr, size)}, /* of the axis that is cut */
    {NULL, WEFT_ATTR_INT, 0},
};
const weft_op weft_op_slice = {
    .name = "slice",
    .doc = "y[i] = x[begin + i step] along one axis.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(slice_attr),
    .attrs = slice_fields,
    .infer = infer_slice,
    .takes = WEFT_TAKES_ANY,
    .alias = alias_slice,
    .onnx = onnx_slice,
    .batch = weft__batch_axis,
    .vjp = vjp_slice,
    .samples = samples_slice,
    .n_samples = sizeof samples_slice / sizeof *samples_slice,
};
DECLARE_ANY_KERNELS(slice_scatter);
const weft_op weft_op_slice_scatter = {
    .name = "slice_scatter",
    .doc = "x[begin + i step] = y[i] along one axis, zero elsewhere: slice backward.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(slice_attr),
    .attrs = slice_fields,
    .infer = infer_slice_scatter,
    .kernel = ANY_KERNELS(slice_scatter),
    .takes = WEFT_TAKES_DENSE,
    .source = source_slice_scatter,
    .onnx = onnx_slice_scatter,
    .batch = weft__batch_axis,
    .vjp = vjp_slice_scatter,
    PASSES(&weft__pass_join_slices),
    .samples = samples_slice_scatter,
    .n_samples = sizeof samples_slice_scatter / sizeof *samples_slice_scatter,
};

/* Python's rule for one bound. */
static int64_t clip(int64_t at, int64_t size, int64_t step)
{
    if (at < 0) at += size;
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? size - 1 : size;
    return at < low ? low : at > high ? high : at;
}

weft_value weft_slice(weft_graph *graph, weft_value x, int axis, int64_t begin, int64_t end,
                      int64_t step)
{
    int rank = weft_rank_of(graph, x);
    slice_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = axis_from_front(axis, rank);
    attr.size = weft_dim_of(graph, x, attr.axis);
    attr.step = step;
    if (step > 0) {
        attr.begin = begin == WEFT_END ? 0 : clip(begin, attr.size, step);
        end = end == WEFT_END ? attr.size : clip(end, attr.size, step);
        attr.count = end > attr.begin ? (end - attr.begin - 1) / step + 1 : 0;
    } else if (step < 0) {
        if (step == INT64_MIN) attr.step = step = -INT64_MAX; /* as far, and can be negated */
        attr.begin = begin == WEFT_END ? attr.size - 1 : clip(begin, attr.size, step);
        end = end == WEFT_END ? -1 : clip(end, attr.size, step);
        attr.count = attr.begin > end ? (attr.begin - end - 1) / -step + 1 : 0;
    } else {
        weft_graph_fail_in(graph, "slice", WEFT_BAD_ARGUMENT, "the step is 0");
        return WEFT_NO_VALUE;
    }
    return weft_apply(graph, &weft_op_slice, &attr, &x, 1, NULL);
}

weft_value weft_flip(weft_graph *graph, weft_value x, int axis)
{
    return weft_slice(graph, x, axis, WEFT_END, WEFT_END, -1);
}

void weft_split(weft_graph *graph, weft_value x, int axis, const int64_t *sizes, size_t count,
                weft_value *pieces)
{
    int64_t begin = 0, size = weft_dim_of(graph, x, axis);
    for (size_t i = 0; pieces && i < count; i++) pieces[i] = WEFT_NO_VALUE;
    if (!sizes || !pieces) {
        weft_graph_fail_in(graph, "split", WEFT_BAD_ARGUMENT, "sizes or pieces are NULL");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (sizes[i] < 0 || sizes[i] > size - begin) break;
        pieces[i] = weft_slice(graph, x, axis, begin, begin + sizes[i], 1);
        begin += sizes[i];
    }
    if (begin != size)
        weft_graph_fail_in(graph, "split", WEFT_BAD_SHAPE, "the sizes do not sum to %lld",
                           (long long)size);
}

void weft_chunk(weft_graph *graph, weft_value x, int axis, size_t count, weft_value *pieces)
{
    int64_t size = weft_dim_of(graph, x, axis);
    for (size_t i = 0; pieces && i < count; i++) pieces[i] = WEFT_NO_VALUE;
    if (!pieces || count == 0 || (uint64_t)count > INT64_MAX || size % (int64_t)count) {
        weft_graph_fail_in(graph, "chunk", WEFT_BAD_SHAPE,
                           "%lld elements cannot be split into %zu equal pieces", (long long)size,
                           count);
        return;
    }
    int64_t each = size / (int64_t)count;
    for (size_t i = 0; i < count; i++)
        pieces[i] = weft_slice(graph, x, axis, (int64_t)i * each, (int64_t)(i + 1) * each, 1);
}

#endif
