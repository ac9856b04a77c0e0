/* concat and pad: copies of contiguous ranges, of any dtype. */
#include "kernels/kernel.h"

#include "base/half.h"

typedef struct concat_attr {
    int32_t axis;
} concat_attr;
typedef struct pad_attr {
    weft_shape before, after; /* elements before and after each dimension */
    double value;
} pad_attr;

#ifdef WEFT_KERNEL_ISA

/* Copies n elements, which may be stored as bf16 or not. */
static void copy_elements(const weft_tensor *x, int64_t from, const weft_tensor *y, int64_t to,
                          int64_t n)
{
    const size_t size = x->dtype == WEFT_BF16 ? sizeof(uint16_t) : sizeof(T);
#if KERNEL_IS(f32)
    if (x->dtype == WEFT_BF16 && y->dtype == WEFT_F32) {
        half_widen((const uint16_t *)x->data + from, (float *)y->data + to, n);
        return;
    }
    if (x->dtype == WEFT_F32 && y->dtype == WEFT_BF16) {
        half_narrow((const float *)x->data + from, (uint16_t *)y->data + to, n);
        return;
    }
#endif
    memcpy((char *)y->data + (size_t)to * size, (const char *)x->data + (size_t)from * size,
           (size_t)n * size);
}

/* A tile copies a part of every input's contiguous ranges: outer index by outer index. */
KERNEL(concat)
{
    const int axis = ((const concat_attr *)call->attr)->axis;
    const weft_tensor *y = &call->out[0];
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < axis; d++) outer *= y->shape.dim[d];
    for (int d = axis + 1; d < y->shape.rank; d++) inner *= y->shape.dim[d];
    int64_t row = y->shape.dim[axis] * inner;
    int64_t begin = tile * TILE, total = outer * row;
    int64_t end = begin + TILE < total ? begin + TILE : total;
    int64_t before = 0; /* elements of a row of y before input i */
    for (size_t i = 0; i < call->n_in; i++) {
        const weft_tensor *x = &call->in[i];
        int64_t width = x->shape.dim[axis] * inner;
        for (int64_t o = begin / row; width && o * row < end; o++) {
            int64_t from = o * row + before, to = from + width;
            int64_t low = from > begin ? from : begin, high = to < end ? to : end;
            if (low < high) copy_elements(x, o * width + (low - from), y, low, high - low);
        }
        before += width;
    }
}

/* A row of y: its index in the dimensions before the last, and where x has it. */
typedef struct pad_row {
    int64_t index[WEFT_MAX_RANK], from;
    int outside; /* indices that lie in the padding */
} pad_row;

/* Sets index d, of a row whose other indices stay. */
static inline void pad_set(const weft_call *call, pad_row *r, int d, int64_t index)
{
    const weft_tensor *x = &call->in[0];
    const int64_t before = ((const pad_attr *)call->attr)->before.dim[d], size = x->shape.dim[d];
    const int64_t old = r->index[d] - before, new = index - before;
    r->from += (new - old) * x->stride[d];
    r->outside += (new < 0 || new >= size) - (old < 0 || old >= size);
    r->index[d] = index;
}

static inline pad_row pad_first(const weft_call *call, int64_t row)
{
    pad_row r = {.from = 0};
    for (int d = call->out[0].shape.rank - 2; d >= 0; d--) {
        const int64_t size = call->out[0].shape.dim[d];
        const int64_t before = ((const pad_attr *)call->attr)->before.dim[d];
        r.index[d] = before; /* the first element of x, which is inside unless x is empty */
        r.outside += call->in[0].shape.dim[d] == 0;
        pad_set(call, &r, d, row % size);
        row /= size;
    }
    return r;
}

static inline void pad_next(const weft_call *call, pad_row *r)
{
    for (int d = call->out[0].shape.rank - 2; d >= 0; d--) {
        const int64_t next = r->index[d] + 1;
        const bool carries = next == call->out[0].shape.dim[d];
        pad_set(call, r, d, carries ? 0 : next);
        if (!carries) return;
    }
}

/* Row by row of y: the elements before x, those of x, and those after. */
KERNEL(pad)
{
    const pad_attr *attr = call->attr;
    const weft_tensor *x = &call->in[0], *y = &call->out[0];
    const T value = (T)attr->value;
    const int last = y->shape.rank - 1;
    const int64_t row = last < 0 ? 1 : y->shape.dim[last],
                  width = last < 0 ? 1 : x->shape.dim[last];
    const int64_t before = last < 0 ? 0 : attr->before.dim[last],
                  step = last < 0 ? 1 : x->stride[last];
    const int64_t n = numel_of(&y->shape), begin = tile * TILE;
    const int64_t end = begin + TILE < n ? begin + TILE : n;
    pad_row r = pad_first(call, begin / row);
    for (int64_t at = begin, low = begin % row; at < end; low = 0, pad_next(call, &r)) {
        /* Elements [low, high) of the row, of which those in [first, past) are x's. */
        const int64_t high = row - low < end - at ? row : low + end - at;
        int64_t first = before > low ? before : low;
        int64_t past = before + width < high ? before + width : high;
        if (r.outside || first >= past) first = past = high;
        T *to = (T *)y->data + (at - low);
        for (int64_t i = low; i < first; i++) to[i] = value;
        for (int64_t i = first; i < past; i++)
            to[i] = ((const T *)x->data)[r.from + (i - before) * step];
        for (int64_t i = past; i < high; i++) to[i] = value;
        at += high - low;
    }
}

#else

#include "batch.h"
#include "samples.h"

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

#include <stdlib.h>

static bool infer_concat(weft_infer *infer)
{
    char a[128], b[128];
    weft_shape out = infer->in[0].shape;
    int axis;
    if (!weft_infer_axis(infer, out.rank, ((const concat_attr *)infer->attr)->axis, &axis))
        return false;
    for (size_t i = 1; i < infer->n_in; i++) {
        weft_shape s = infer->in[i].shape, joined = s;
        if (!weft_infer_same_dtype(infer, 0, i)) return false;
        if (s.rank == out.rank) joined.dim[axis] = out.dim[axis];
        if (!weft_shape_equal(joined, out) || out.dim[axis] > INT64_MAX - s.dim[axis])
            return weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s and %s differ outside axis %d",
                                   weft_shape_text(infer->in[0].shape, a, sizeof a),
                                   weft_shape_text(s, b, sizeof b), axis);
        out.dim[axis] += s.dim[axis];
    }
    infer->out[0] = (weft_type){infer->in[0].dtype, out};
    return true;
}

static void vjp_concat(weft_vjp *v)
{
    int axis = ((const concat_attr *)v->attr)->axis;
    int64_t begin = 0;
    for (size_t i = 0; i < v->n_in; i++) {
        int64_t size = weft_dim_of(v->graph, v->in[i], axis);
        if (v->wanted[i])
            v->grad_in[i] = weft_slice(v->graph, v->grad_out[0], axis, begin, begin + size, 1);
        begin += size;
    }
}

static void onnx_concat(weft_export *e)
{
    weft_export_same(e, "Concat");
    weft_export_int(e, "axis", ((const concat_attr *)e->attr)->axis);
}

/* Input by input. */
static void source_concat(weft_source *s)
{
    const int axis = ((const concat_attr *)s->attr)->axis;
    const weft_shape *y = &s->out[0].shape;
    int64_t outer = 1, inner = 1, before = 0;
    for (int d = 0; d < axis; d++) outer *= y->dim[d];
    for (int d = axis + 1; d < y->rank; d++) inner *= y->dim[d];
    for (size_t i = 0; i < s->n_in; i++) {
        const int64_t width = s->in[i].shape.dim[axis] * inner;
        const weft_source_arg args[] = {WEFT_ARG_IN(i), WEFT_ARG_OUT_AT(0, before),
                                        WEFT_ARG_INT(outer), WEFT_ARG_INT(width),
                                        WEFT_ARG_INT(y->dim[axis] * inner)};
        weft_source_call_of(s, "copy_rows", args, 5);
        before += width;
    }
}

static const concat_attr concat_0 = {0}, concat_1 = {1};
static const weft_sample samples_concat[] = {
    {&concat_1, 3, {FLOATS({2, {3, 2}}), FLOATS({2, {3, 1}}), FLOATS({2, {3, 4}})}},
    {&concat_0, 2, {FLOATS({3, {1, 2, 2}}), FLOATS({3, {2, 2, 2}})}},
    {&concat_0, 2, {FLOATS({2, {0, 3}}), FLOATS({2, {2, 3}})}},
    {&concat_0, 2, {{WEFT_I32, {1, {3}}, 0, 9, false}, {WEFT_I32, {1, {2}}, 0, 9, false}}},
};
static const weft_attr_field concat_fields[] = {
    {"axis", WEFT_ATTR_INT, offsetof(concat_attr, axis)},
    {NULL, WEFT_ATTR_INT, 0},
};
DECLARE_ANY_KERNELS(concat);
extern const weft_op weft_op_concat;
const weft_op weft_op_concat = {
    .name = "concat",
    .doc = "The inputs concatenated along an axis.",
    .min_in = 1,
    .max_in = WEFT_VARIADIC,
    .n_out = 1,
    .attr_size = sizeof(concat_attr),
    .attrs = concat_fields,
    .infer = infer_concat,
    .kernel = ANY_NARROW_KERNELS(concat),
    .takes = WEFT_TAKES_DENSE,
    .narrow_in = WEFT_NARROW_ALL,
    .narrow_out = 1,
    .onnx = onnx_concat,
    .source = source_concat,
    .batch = weft__batch_axis,
    .vjp = vjp_concat,
    .samples = samples_concat,
    .n_samples = sizeof samples_concat / sizeof *samples_concat,
};

weft_value weft_concat(weft_graph *graph, const weft_value *x, size_t n, int axis)
{
    concat_attr attr = {axis};
    if (x && n) attr.axis = axis_from_front(axis, weft_rank_of(graph, x[0]));
    return weft_apply(graph, &weft_op_concat, &attr, x, n, NULL);
}

/* Along the new axis each value is one element, so concat checks that all shapes are equal. */
weft_value weft_stack(weft_graph *graph, const weft_value *x, size_t n, int axis)
{
    if (!x || !n) {
        weft_graph_fail_in(graph, "stack", WEFT_BAD_ARGUMENT,
                           "there are no values, expected at least one");
        return WEFT_NO_VALUE;
    }
    weft_value *layers = calloc(n, sizeof *layers);
    if (!layers) {
        weft_graph_fail_in(graph, "stack", WEFT_NO_MEMORY, "no memory for %zu values", n);
        return WEFT_NO_VALUE;
    }
    for (size_t i = 0; i < n; i++) layers[i] = weft_expand_dims(graph, x[i], axis);
    weft_value stacked = weft_concat(graph, layers, n, axis);
    free(layers);
    return stacked;
}

/* ---- pad ---- */

static bool infer_pad(weft_infer *infer)
{
    const pad_attr *attr = infer->attr;
    weft_shape out = infer->in[0].shape;
    if (attr->before.rank != out.rank || attr->after.rank != out.rank)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "padding of %d and %d axes for rank %d",
                               attr->before.rank, attr->after.rank, out.rank);
    for (int d = 0; d < out.rank; d++) {
        if (attr->before.dim[d] < 0 || attr->after.dim[d] < 0 || attr->before.dim[d] > INT32_MAX ||
            attr->after.dim[d] > INT32_MAX)
            return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "padding of axis %d is out of range",
                                   d);
        out.dim[d] += attr->before.dim[d] + attr->after.dim[d];
    }
    infer->out[0] = (weft_type){infer->in[0].dtype, out};
    return weft_infer_scalar(infer, "value", attr->value, infer->in[0].dtype);
}

static void vjp_pad(weft_vjp *v)
{
    const pad_attr *attr = v->attr;
    weft_value g = v->grad_out[0];
    for (int d = 0; d < weft_rank_of(v->graph, v->in[0]); d++)
        g = weft_slice(v->graph, g, d, attr->before.dim[d],
                       attr->before.dim[d] + weft_dim_of(v->graph, v->in[0], d), 1);
    v->grad_in[0] = g;
}

static void onnx_pad(weft_export *e)
{
    const pad_attr *attr = e->attr;
    const int rank = attr->before.rank;
    int64_t pads[2 * WEFT_MAX_RANK];
    for (int d = 0; d < rank; d++) {
        pads[d] = attr->before.dim[d];
        pads[rank + d] = attr->after.dim[d];
    }
    const weft_operand in[] = {e->in[0], weft_export_int64s(e, pads, 2 * (size_t)rank),
                               weft_export_scalar(e, e->in_type[0].dtype, attr->value)};
    e->out[0] = weft_export_node(e, "Pad", in, 3, 1);
}

static void source_pad(weft_source *s)
{
    const pad_attr *attr = s->attr;
    const weft_tensor *x = &s->in[0], *y = &s->out[0];
    const size_t rank = (size_t)y->shape.rank;
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    WEFT_ARG_OUT(0),
                                    WEFT_ARG_DOUBLE(attr->value),
                                    WEFT_ARG_INT(weft_shape_numel(y->shape)),
                                    WEFT_ARG_INT(rank),
                                    WEFT_ARG_INTS(y->shape.dim, rank),
                                    WEFT_ARG_INTS(x->shape.dim, rank),
                                    WEFT_ARG_INTS(x->stride, rank),
                                    WEFT_ARG_INTS(attr->before.dim, rank)};
    weft_source_call_of(s, "pad_elements", args, sizeof args / sizeof *args);
}

static void batch_pad(weft_batch *b)
{
    const pad_attr *one = b->attr;
    pad_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.before.rank = attr.after.rank = one->before.rank + 1;
    for (int d = 1; d < attr.before.rank; d++) {
        attr.before.dim[d] = one->before.dim[d - 1];
        attr.after.dim[d] = one->after.dim[d - 1];
    }
    attr.value = one->value;
    weft__batch_with(b, &attr);
}

static const pad_attr pad_a = {{2, {1, 0}}, {2, {0, 2}}, 0.5}, pad_b = {{1, {2}}, {1, {1}}, 3};
static const weft_sample samples_pad[] = {
    {&pad_a, 1, {FLOATS({2, {3, 2}})}},
    {&pad_a, 1, {FLOATS({2, {0, 2}})}},
    {&pad_b, 1, {{WEFT_I32, {1, {3}}, 0, 9, false}}},
};
static const weft_attr_field pad_fields[] = {
    {"before", WEFT_ATTR_INT64S, offsetof(pad_attr, before)},
    {"after", WEFT_ATTR_INT64S, offsetof(pad_attr, after)},
    {"value", WEFT_ATTR_DOUBLE, offsetof(pad_attr, value)},
    {NULL, WEFT_ATTR_INT, 0},
};
DECLARE_ANY_KERNELS(pad);
extern const weft_op weft_op_pad;
const weft_op weft_op_pad = {
    .name = "pad",
    .doc = "x with before[d] and after[d] elements of a value around dimension d.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(pad_attr),
    .attrs = pad_fields,
    .infer = infer_pad,
    .kernel = ANY_KERNELS(pad),
    .takes = WEFT_TAKES_ANY,
    .onnx = onnx_pad,
    .source = source_pad,
    .batch = batch_pad,
    .vjp = vjp_pad,
    .samples = samples_pad,
    .n_samples = sizeof samples_pad / sizeof *samples_pad,
};

weft_value weft_pad(weft_graph *graph, weft_value x, const int64_t *before, const int64_t *after,
                    double value)
{
    pad_attr attr;
    memset(&attr, 0, sizeof attr);
    if (!before || !after) {
        weft_graph_fail_in(graph, "pad", WEFT_BAD_ARGUMENT, "before or after is NULL");
        return WEFT_NO_VALUE;
    }
    attr.before.rank = attr.after.rank = weft_rank_of(graph, x);
    for (int d = 0; d < weft_rank_of(graph, x); d++) {
        attr.before.dim[d] = before[d];
        attr.after.dim[d] = after[d];
    }
    attr.value = value;
    return weft_apply(graph, &weft_op_pad, &attr, &x, 1, NULL);
}

#endif
