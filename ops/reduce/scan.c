/* Along one axis, O(elements): argmax, argmin and cumsum. A tile is some lines. */
#include "kernels/extreme.h"
#include "kernels/lines.h"

typedef struct scan_attr {
    int32_t axis;
    bool keepdims, reverse;
} scan_attr;

static inline lines lines_of_scan(const weft_call *call)
{
    const weft_tensor *x = &call->in[0], *all[] = {x, &call->out[0]};
    const bool same_rank = x->shape.rank == call->out[0].shape.rank;
    return lines_along(all, same_rank ? 2 : 1, ((const scan_attr *)call->attr)->axis);
}

#ifdef WEFT_KERNEL_ISA

#define PRAGMA(text) _Pragma(#text)

/* name, OpenMP's reduction, what beats the best so far, what loses against everything. A NaN beats
 * all numbers.
 *
 * In a row: the first position of the best element, which is searched block by block once it is
 * known. Neighbours have a loop of their own, which can be vectorised. Then n neighbouring columns,
 * their elements `step` apart. */
#define BEST_OF(name, kind, beats, worst)                                                          \
    static inline __attribute__((always_inline))                                                   \
    int32_t name##_any(const T *x, int64_t length, int64_t step)                                   \
    {                                                                                              \
        T best = worst;                                                                            \
        int nan = 0;                                                                               \
        int64_t at = 0;                                                                            \
        PRAGMA(omp simd reduction(kind : best) reduction(| : nan))                                 \
        for (int64_t i = 0; i < length; i++) {                                                     \
            const T v = x[i * step];                                                               \
            best = v beats best ? v : best;                                                        \
            nan |= v != v;                                                                         \
        }                                                                                          \
        best = extreme_of(best, worst, x, length, step);                                           \
        for (int64_t from = 0, hits = 0; from < length && !hits; from += 64) {                     \
            const int64_t to = from + 64 < length ? from + 64 : length;                            \
            PRAGMA(omp simd reduction(+ : hits))                                                   \
            for (int64_t i = from; i < to; i++) {                                                  \
                const T v = x[i * step];                                                           \
                hits += nan ? v != v : v == best;                                                  \
            }                                                                                      \
            at = from;                                                                             \
        }                                                                                          \
        while (nan ? x[at * step] == x[at * step] : x[at * step] != best) at++;                    \
        return (int32_t)at;                                                                        \
    }                                                                                              \
    static inline int32_t name##_row(const T *x, int64_t length, int64_t step)                     \
    {                                                                                              \
        return step == 1 ? name##_any(x, length, 1) : name##_any(x, length, step);                 \
    }                                                                                              \
    static inline void name##_columns(const T *x, int64_t length, int64_t step, int64_t n,         \
                                      int32_t *index)                                              \
    {                                                                                              \
        T best[MAX_COLUMNS];                                                                       \
        for (int64_t c = 0; c < n; c++) {                                                          \
            best[c] = x[c];                                                                        \
            index[c] = 0;                                                                          \
        }                                                                                          \
        for (int32_t i = 1; i < length; i++) {                                                     \
            const T *row = x + i * step;                                                           \
            PRAGMA(omp simd)                                                                       \
            for (int64_t c = 0; c < n; c++) {                                                      \
                const T v = row[c];                                                                \
                const bool wins = (v beats best[c]) | ((v != v) & (best[c] == best[c]));           \
                best[c] = wins ? v : best[c];                                                      \
                index[c] = wins ? i : index[c];                                                    \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static inline void name##_short(const weft_call *call, const lines *l, int64_t tile)           \
    {                                                                                              \
        T packed[SHORT_LINE * SHORT_LINES];                                                        \
        EACH_SHORT_LINES(*l, tile, line, n)                                                        \
        {                                                                                          \
            lines_pack(&call->in[0], l, line, n, packed);                                          \
            name##_columns(packed, l->length, n, n, (int32_t *)call->out[0].data + line);          \
        }                                                                                          \
    }                                                                                              \
    KERNEL(name)                                                                                   \
    {                                                                                              \
        const lines l = lines_of_scan(call);                                                       \
        const weft_tensor *x = &call->in[0];                                                       \
        const int64_t step = x->stride[l.axis];                                                    \
        if (lines_are_short(&l)) {                                                                 \
            name##_short(call, &l, tile);                                                          \
            return;                                                                                \
        }                                                                                          \
        EACH_LINES(l, tile, line, n)                                                               \
        {                                                                                          \
            const T *in = (const T *)x->data + line_offset(x, l.axis, line);                       \
            int32_t *out = (int32_t *)call->out[0].data + line;                                    \
            if (l.columns)                                                                         \
                name##_columns(in, l.length, step, n, out);                                        \
            else                                                                                   \
                *out = name##_row(in, l.length, step);                                             \
        }                                                                                          \
    }
BEST_OF(argmax, max, >, (T)-INFINITY)
BEST_OF(argmin, min, <, (T)INFINITY)

static inline void cumsum_row(const T *x, T *y, int64_t length, int64_t step, int64_t out_step)
{
    double total = 0;
    for (int64_t i = 0; i < length; i++) {
        total += (double)x[i * step];
        y[i * out_step] = (T)total;
    }
}

static inline void cumsum_columns(const T *x, T *y, int64_t length, int64_t step, int64_t out_step,
                                  int64_t n)
{
    double total[MAX_COLUMNS] = {0};
    for (int64_t i = 0; i < length; i++) {
        _Pragma("omp simd") for (int64_t c = 0; c < n; c++)
        {
            total[c] += (double)x[i * step + c];
            y[i * out_step + c] = (T)total[c];
        }
    }
}

static inline void cumsum_short(const weft_call *call, const lines *l, int64_t tile, int64_t first,
                                int64_t sign)
{
    T packed[SHORT_LINE * SHORT_LINES];
    EACH_SHORT_LINES(*l, tile, line, n)
    {
        lines_pack(&call->in[0], l, line, n, packed);
        cumsum_columns(packed + first * n, packed + first * n, l->length, sign * n, sign * n, n);
        lines_unpack(packed, &call->out[0], l, line, n);
    }
}

KERNEL(cumsum)
{
    const lines l = lines_of_scan(call);
    const weft_tensor *x = &call->in[0], *y = &call->out[0];
    const bool reverse = ((const scan_attr *)call->attr)->reverse;
    const int64_t first = reverse && l.length ? l.length - 1 : 0, sign = reverse ? -1 : 1;
    const int64_t step = x->stride[l.axis], out_step = y->stride[l.axis];
    if (lines_are_short(&l)) {
        cumsum_short(call, &l, tile, first, sign);
        return;
    }
    EACH_LINES(l, tile, line, n)
    {
        const T *in = (const T *)x->data + line_offset(x, l.axis, line) + first * step;
        T *out = (T *)y->data + line_offset(y, l.axis, line) + first * out_step;
        if (l.columns)
            cumsum_columns(in, out, l.length, sign * step, sign * out_step, n);
        else
            cumsum_row(in, out, l.length, sign * step, sign * out_step);
    }
}

#else

#include "batch.h"

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

static bool infer_cumsum(weft_infer *infer)
{
    int ignored;
    infer->out[0] = infer->in[0];
    return weft_infer_float(infer, 0) &&
           weft_infer_axis(infer, infer->in[0].shape.rank, ((const scan_attr *)infer->attr)->axis,
                           &ignored);
}

static bool infer_index(weft_infer *infer)
{
    const scan_attr *attr = infer->attr;
    weft_shape in = infer->in[0].shape, out = {0, {0}};
    if (!infer_cumsum(infer)) return false;
    if (in.dim[attr->axis] == 0)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "axis %d is empty", attr->axis);
    if (in.dim[attr->axis] > INT32_MAX)
        return weft_infer_fail(infer, WEFT_TOO_LARGE,
                               "axis %d has %lld elements, more than an i32 index can count",
                               attr->axis, (long long)in.dim[attr->axis]);
    for (int d = 0; d < in.rank; d++)
        if (d != attr->axis || attr->keepdims)
            out.dim[out.rank++] = d == attr->axis ? 1 : in.dim[d];
    infer->out[0] = (weft_type){WEFT_I32, out};
    return true;
}

static int64_t tiles_scan(const weft_call *call)
{
    const lines l = lines_of_scan(call);
    return lines_tiles(&l);
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
static void onnx_index(weft_export *e, const char *type)
{
    const scan_attr *attr = e->attr;
    weft_operand index = weft_export_unary(e, type, e->in[0]);
    weft_export_int(e, "axis", attr->axis);
    weft_export_int(e, "keepdims", attr->keepdims);
    e->out[0] = weft_export_unary(e, "Cast", index);
    weft_export_int(e, "to", WEFT_ONNX_INT32);
}

static void onnx_argmax(weft_export *e)
{
    onnx_index(e, "ArgMax");
}

static void onnx_argmin(weft_export *e)
{
    onnx_index(e, "ArgMin");
}

static void onnx_cumsum(weft_export *e)
{
    const scan_attr *attr = e->attr;
    const weft_operand axis = weft_export_scalar(e, WEFT_I32, attr->axis);
    e->out[0] = weft_export_binary(e, "CumSum", e->in[0], axis);
    if (attr->reverse) weft_export_int(e, "reverse", 1);
}

/* ---- C ---- */

/* The dimensions without the axis; the strides of y if it is not NULL. */
static size_t source_dims(const weft_tensor *x, const weft_tensor *y, int axis, int64_t *size,
                          int64_t *x_stride, int64_t *y_stride)
{
    size_t rank = 0;
    for (int d = 0; d < x->shape.rank; d++) {
        if (d == axis) continue;
        size[rank] = x->shape.dim[d];
        x_stride[rank] = x->stride[d];
        if (y) y_stride[rank] = y->stride[d];
        rank++;
    }
    return rank;
}

static void source_index(weft_source *s, bool largest)
{
    const int axis = ((const scan_attr *)s->attr)->axis;
    int64_t size[WEFT_MAX_RANK], stride[WEFT_MAX_RANK];
    const size_t rank = source_dims(&s->in[0], NULL, axis, size, stride, NULL);
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    WEFT_ARG_OUT(0),
                                    WEFT_ARG_INT(weft_shape_numel(s->out[0].shape)),
                                    WEFT_ARG_INT(s->in[0].shape.dim[axis]),
                                    WEFT_ARG_INT(s->in[0].stride[axis]),
                                    WEFT_ARG_INT(largest),
                                    WEFT_ARG_INT(rank),
                                    WEFT_ARG_INTS(size, rank),
                                    WEFT_ARG_INTS(stride, rank)};
    weft_source_call_of(s, "arg_extreme", args, sizeof args / sizeof *args);
}

static void source_argmax(weft_source *s)
{
    source_index(s, true);
}

static void source_argmin(weft_source *s)
{
    source_index(s, false);
}

static void source_cumsum(weft_source *s)
{
    const scan_attr *attr = s->attr;
    const weft_tensor *x = &s->in[0], *y = &s->out[0];
    const int64_t length = x->shape.dim[attr->axis], n = weft_shape_numel(x->shape);
    int64_t size[WEFT_MAX_RANK], x_stride[WEFT_MAX_RANK], y_stride[WEFT_MAX_RANK];
    const size_t rank = source_dims(x, y, attr->axis, size, x_stride, y_stride);
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    WEFT_ARG_OUT(0),
                                    WEFT_ARG_INT(length ? n / length : 0),
                                    WEFT_ARG_INT(length),
                                    WEFT_ARG_INT(x->stride[attr->axis]),
                                    WEFT_ARG_INT(y->stride[attr->axis]),
                                    WEFT_ARG_INT(attr->reverse),
                                    WEFT_ARG_INT(rank),
                                    WEFT_ARG_INTS(size, rank),
                                    WEFT_ARG_INTS(x_stride, rank),
                                    WEFT_ARG_INTS(y_stride, rank)};
    weft_source_call_of(s, "cumsum", args, sizeof args / sizeof *args);
}

static const weft_attr_field scan_fields[] = {
    {"axis", WEFT_ATTR_INT, offsetof(scan_attr, axis)},
    {"keepdims", WEFT_ATTR_BOOL, offsetof(scan_attr, keepdims)},
    {"reverse", WEFT_ATTR_BOOL, offsetof(scan_attr, reverse)},
    {NULL, WEFT_ATTR_INT, 0},
};

#define SCAN_OP(op, text, shape_rule, ...)                                                         \
    DECLARE_KERNELS(op);                                                                           \
    extern const weft_op weft_op_##op;                                                             \
    const weft_op weft_op_##op = {.name = #op,                                                     \
                                  .doc = text,                                                     \
                                  .min_in = 1,                                                     \
                                  .max_in = 1,                                                     \
                                  .n_out = 1,                                                      \
                                  .attr_size = sizeof(scan_attr),                                  \
                                  .attrs = scan_fields,                                            \
                                  .infer = shape_rule,                                             \
                                  .kernel = FLOAT_KERNELS(op),                                     \
                                  .takes = WEFT_TAKES_ANY,                                         \
                                  .tiles = tiles_scan,                                             \
                                  .source = source_##op,                                           \
                                  .batch = weft__batch_axis,                                       \
                                  .samples = samples_scan,                                         \
                                  .n_samples = sizeof samples_scan / sizeof *samples_scan,         \
                                  __VA_ARGS__};
SCAN_OP(argmax, "y = index of the first largest x along the axis (the first NaN, if there is one).",
        infer_index, .gradient = WEFT_GRADIENT_ZERO, .onnx = onnx_argmax)
SCAN_OP(argmin,
        "y = index of the first smallest x along the axis (the first NaN, if there is one).",
        infer_index, .gradient = WEFT_GRADIENT_ZERO, .onnx = onnx_argmin)
SCAN_OP(cumsum, "y[i] = x[0] + ... + x[i] along the axis, or from the end (reverse).", infer_cumsum,
        .vjp = vjp_cumsum, .onnx = onnx_cumsum)

static weft_value scan(weft_graph *graph, const weft_op *op, weft_value x, int axis, bool keepdims,
                       bool reverse)
{
    scan_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = axis_from_front(axis, weft_rank_of(graph, x));
    attr.keepdims = keepdims;
    attr.reverse = reverse;
    return weft_apply(graph, op, &attr, &x, 1, NULL);
}

weft_value weft_argmax(weft_graph *graph, weft_value x, int axis, bool keepdims)
{
    return scan(graph, &weft_op_argmax, x, axis, keepdims, false);
}

weft_value weft_argmin(weft_graph *graph, weft_value x, int axis, bool keepdims)
{
    return scan(graph, &weft_op_argmin, x, axis, keepdims, false);
}

weft_value weft_cumsum(weft_graph *graph, weft_value x, int axis, bool reverse)
{
    return scan(graph, &weft_op_cumsum, x, axis, false, reverse);
}

#endif
