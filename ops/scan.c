/* Along one axis: argmax and cumsum. A part is a stretch of lines, one line at a time. */
#include "kernel.h"

typedef struct scan_attr {
    int32_t axis;
    bool keepdims, reverse;
} scan_attr;

/* Lines of one part. */
static inline int64_t lines_per_part(const weft_call *call)
{
    int64_t length = call->in[0].shape.dim[((const scan_attr *)call->attr)->axis];
    int64_t n = TILE / (length ? length : 1);
    return n ? n : 1;
}

static inline int64_t count_lines(const weft_call *call)
{
    int64_t n = 1;
    for (int d = 0; d < call->in[0].shape.rank; d++)
        if (d != ((const scan_attr *)call->attr)->axis) n *= call->in[0].shape.dim[d];
    return n;
}

#ifdef WEFT_KERNEL_ISA

/* Offset of the first element of line `index` of t. */
static inline int64_t line_of(const weft_tensor *t, int axis, int64_t index)
{
    int64_t offset = 0;
    for (int d = t->shape.rank - 1; d >= 0; d--) {
        if (d == axis) continue;
        offset += index % t->shape.dim[d] * t->stride[d];
        index /= t->shape.dim[d];
    }
    return offset;
}

#define EACH_LINE                                                                                  \
    const scan_attr *attr = call->attr;                                                            \
    const weft_tensor *x = &call->in[0];                                                           \
    const int64_t length = x->shape.dim[attr->axis], step = x->stride[attr->axis];                 \
    const int64_t each = lines_per_part(call), lines = count_lines(call);                          \
    for (int64_t line = part * each; line < lines && line < (part + 1) * each; line++)

KERNEL(argmax)
{
    EACH_LINE
    {
        const T *in = (const T *)x->data + line_of(x, attr->axis, line);
        int32_t best = 0;
        for (int64_t i = 1; i < length; i++)
            if (in[i * step] > in[best * step] ||
                (in[i * step] != in[i * step] && in[best * step] == in[best * step]))
                best = (int32_t)i;
        ((int32_t *)call->out[0].data)[line] = best;
    }
}

KERNEL(cumsum)
{
    const weft_tensor *y = &call->out[0];
    EACH_LINE
    {
        const T *in = (const T *)x->data + line_of(x, attr->axis, line);
        T *out = (T *)y->data + line_of(y, attr->axis, line);
        const int64_t out_step = y->stride[attr->axis];
        double total = 0;
        for (int64_t k = 0; k < length; k++) {
            int64_t i = attr->reverse ? length - 1 - k : k;
            total += (double)in[i * step];
            out[i * out_step] = (T)total;
        }
    }
}

#else

#include <weft/ops.h>

static bool infer_cumsum(weft_infer *infer)
{
    int ignored;
    infer->out[0] = infer->in[0];
    return weft_infer_float(infer, 0) &&
           weft_infer_axis(infer, infer->in[0].shape.rank, ((const scan_attr *)infer->attr)->axis,
                           &ignored);
}

static bool infer_argmax(weft_infer *infer)
{
    const scan_attr *attr = infer->attr;
    weft_shape in = infer->in[0].shape, out = {0, {0}};
    if (!infer_cumsum(infer)) return false;
    if (in.dim[attr->axis] == 0)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "axis %d is empty", attr->axis);
    for (int d = 0; d < in.rank; d++)
        if (d != attr->axis || attr->keepdims)
            out.dim[out.rank++] = d == attr->axis ? 1 : in.dim[d];
    infer->out[0] = (weft_type){WEFT_I32, out};
    return true;
}

static int64_t parts_scan(const weft_call *call)
{
    return ceil_div(count_lines(call), lines_per_part(call));
}

static void vjp_cumsum(weft_vjp *v)
{
    const scan_attr *attr = v->attr;
    v->grad_in[0] = weft_cumsum(v->graph, v->grad_out[0], attr->axis, !attr->reverse);
}

static const scan_attr scan_last = {1, false, false}, scan_first = {0, true, true};
static const weft_sample samples_scan[] = {
    {&scan_last, 1, {{WEFT_FLOAT, {2, {3, 6}}, -2, 2, true}}},
    {&scan_first, 1, {{WEFT_FLOAT, {3, {4, 2, 3}}, -2, 2, true}}},
    {&scan_last, 1, {{WEFT_FLOAT, {2, {0, 2}}, -2, 2, true}}},
};
static const weft_attr_field scan_fields[] = {
    {"axis", WEFT_ATTR_INT, offsetof(scan_attr, axis)},
    {"keepdims", WEFT_ATTR_BOOL, offsetof(scan_attr, keepdims)},
    {"reverse", WEFT_ATTR_BOOL, offsetof(scan_attr, reverse)},
    {NULL, WEFT_ATTR_INT, 0},
};

#define SCAN_OP(op, text, ...)                                                                     \
    DECLARE_KERNELS(op);                                                                           \
    extern const weft_op weft_op_##op;                                                             \
    const weft_op weft_op_##op = {.name = #op,                                                     \
                                  .doc = text,                                                     \
                                  .min_in = 1,                                                     \
                                  .max_in = 1,                                                     \
                                  .n_out = 1,                                                      \
                                  .attr_size = sizeof(scan_attr),                                  \
                                  .attrs = scan_fields,                                            \
                                  .infer = infer_##op,                                             \
                                  .kernel = FLOAT_KERNELS(op),                                     \
                                  .takes = WEFT_TAKES_ANY,                                         \
                                  .parts = parts_scan,                                             \
                                  .samples = samples_scan,                                         \
                                  .n_samples = sizeof samples_scan / sizeof *samples_scan,         \
                                  __VA_ARGS__};
SCAN_OP(argmax, "y = index of the first largest x along the axis (the first NaN, if there is one).",
        .gradient = WEFT_GRADIENT_ZERO)
SCAN_OP(cumsum, "y[i] = x[0] + ... + x[i] along the axis, or from the end (reverse).",
        .vjp = vjp_cumsum)

static weft_value scan(weft_graph *graph, const weft_op *op, weft_value x, int axis, bool keepdims,
                       bool reverse)
{
    scan_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = axis_from_front(axis, weft_rank(graph, x));
    attr.keepdims = keepdims;
    attr.reverse = reverse;
    return weft_apply(graph, op, &attr, &x, 1, NULL);
}

weft_value weft_argmax(weft_graph *graph, weft_value x, int axis, bool keepdims)
{
    return scan(graph, &weft_op_argmax, x, axis, keepdims, false);
}

weft_value weft_cumsum(weft_graph *graph, weft_value x, int axis, bool reverse)
{
    return scan(graph, &weft_op_cumsum, x, axis, false, reverse);
}

#endif
