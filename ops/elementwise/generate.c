/* Values made from attributes alone: scalars, ranges, triangular masks. */
#include "kernels/kernel.h"

typedef struct generate_attr {
    weft_dtype dtype;
    weft_shape shape;
    double start, step;
} generate_attr;

#ifdef WEFT_KERNEL_ISA

/* fill is arange of one element. Every number fits T: infer_range checks that. */
KERNEL(arange)
{
    const generate_attr *attr = call->attr;
    int64_t n = numel_of(&call->out[0].shape), end = (tile + 1) * TILE < n ? (tile + 1) * TILE : n;
    for (int64_t i = tile * TILE; i < end; i++)
        ((T *)call->out[0].data)[i] = (T)(attr->start + (double)i * attr->step);
}

#if KERNEL_IS(b8)
KERNEL(tril_mask)
{
    const generate_attr *attr = call->attr;
    const int64_t columns = call->out[0].shape.dim[1], n = numel_of(&call->out[0].shape);
    const int64_t begin = tile * TILE, end = begin + TILE < n ? begin + TILE : n;
    for (int64_t at = begin, low = begin % columns; at < end; low = 0) {
        /* Columns [low, high) of a row, true before the edge. */
        const int64_t high = columns - low < end - at ? columns : low + end - at;
        const int64_t row = at / columns, trues = row + (int64_t)attr->start + 1;
        const int64_t edge = trues < low ? low : trues < high ? trues : high;
        T *y = (T *)call->out[0].data + at;
        memset(y, 1, (size_t)(edge - low));
        memset(y + (edge - low), 0, (size_t)(high - edge));
        at += high - low;
    }
}
#endif

#else

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

static bool infer_mask(weft_infer *infer)
{
    const generate_attr *attr = infer->attr;
    infer->out[0] = (weft_type){attr->dtype, attr->shape};
    return true;
}

static bool infer_fill(weft_infer *infer)
{
    const generate_attr *attr = infer->attr;
    return infer_mask(infer) && weft_infer_scalar(infer, "value", attr->start, attr->dtype);
}

/* All numbers lie between the first and the last, and are whole if the first two are. */
static bool infer_range(weft_infer *infer)
{
    const generate_attr *attr = infer->attr;
    const int64_t count = weft_shape_numel(attr->shape);
    if (!infer_mask(infer) || !weft_infer_scalar(infer, "start", attr->start, attr->dtype))
        return false;
    if (count < 2) return true;
    return weft_infer_scalar(infer, "start + step", attr->start + attr->step, attr->dtype) &&
           weft_infer_scalar(infer, "the last number",
                             attr->start + (double)(count - 1) * attr->step, attr->dtype);
}

static const generate_attr fill_f64 = {WEFT_F64, {0, {0}}, 2.5, 0},
                           fill_int = {WEFT_I32, {0, {0}}, 7, 0},
                           range_f64 = {WEFT_F64, {1, {5}}, 1.0, 0.5},
                           fill_bool = {WEFT_BOOL, {0, {0}}, 1, 0},
                           range_int = {WEFT_I32, {1, {4}}, 3, -1},
                           range_empty = {WEFT_F64, {1, {0}}, 3, -1},
                           tril_empty = {WEFT_BOOL, {2, {0, 4}}, 0, 0},
                           tril_wide = {WEFT_BOOL, {2, {3, 5}}, 1, 0},
                           tril_tall = {WEFT_BOOL, {2, {4, 2}}, -1, 0};
static const weft_sample samples_fill[] = {
    {&fill_f64, 0, {{0}}},
    {&fill_int, 0, {{0}}},
    {&fill_bool, 0, {{0}}},
};
static const weft_sample samples_arange[] = {
    {&range_f64, 0, {{0}}},
    {&range_int, 0, {{0}}},
    {&range_empty, 0, {{0}}},
};
static const weft_sample samples_tril_mask[] = {
    {&tril_wide, 0, {{0}}},
    {&tril_tall, 0, {{0}}},
    {&tril_empty, 0, {{0}}},
};
static const weft_attr_field generate_fields[] = {
    {"dtype", WEFT_ATTR_DTYPE, offsetof(generate_attr, dtype)},
    {"shape", WEFT_ATTR_SHAPE, offsetof(generate_attr, shape)},
    {"start", WEFT_ATTR_DOUBLE, offsetof(generate_attr, start)},
    {"step", WEFT_ATTR_DOUBLE, offsetof(generate_attr, step)},
    {NULL, WEFT_ATTR_INT, 0},
};

static void onnx_fill(weft_export *e)
{
    const generate_attr *attr = e->attr;
    e->out[0] = weft_export_scalar(e, attr->dtype, attr->start);
}

static void source_fill(weft_source *s)
{
    const generate_attr *a = s->attr;
    /* As the kernel computes it: -0 becomes 0. */
    weft_source_each(s, NULL, "full_of", &WEFT_ARG_NUMBER(a->start + 0 * a->step), 1);
}

static void source_arange(weft_source *s)
{
    const generate_attr *a = s->attr;
    const weft_source_arg args[] = {WEFT_ARG_OUT(0), WEFT_ARG_DOUBLE(a->start),
                                    WEFT_ARG_DOUBLE(a->step),
                                    WEFT_ARG_INT(weft_shape_numel(a->shape))};
    weft_source_call_of(s, "arange", args, 4);
}

static void source_tril_mask(weft_source *s)
{
    const generate_attr *a = s->attr;
    const weft_source_arg args[] = {WEFT_ARG_OUT(0), WEFT_ARG_INT(a->start),
                                    WEFT_ARG_INT(a->shape.dim[0]), WEFT_ARG_INT(a->shape.dim[1])};
    weft_source_call_of(s, "tril_mask", args, 4);
}

#define GENERATE_OP(op, text, shape_rule, kernels, ...)                                            \
    extern const weft_op weft_op_##op;                                                             \
    const weft_op weft_op_##op = {.name = #op,                                                     \
                                  .doc = text,                                                     \
                                  .n_out = 1,                                                      \
                                  .attr_size = sizeof(generate_attr),                              \
                                  .attrs = generate_fields,                                        \
                                  .infer = shape_rule,                                             \
                                  .kernel = kernels,                                               \
                                  .key_output = true,                                              \
                                  .source = source_##op,                                           \
                                  .gradient = WEFT_GRADIENT_ZERO,                                  \
                                  .samples = samples_##op,                                         \
                                  .n_samples = sizeof samples_##op / sizeof *samples_##op,         \
                                  __VA_ARGS__};
DECLARE_ANY_KERNELS(arange);
void WEFT_JOIN(tril_mask, b8, base)(const weft_call *, int64_t);
#define TRIL_KERNELS                                                                               \
    {                                                                                              \
        {                                                                                          \
            [WEFT_BOOL] = WEFT_JOIN(tril_mask, b8, base)                                           \
        }                                                                                          \
    }
GENERATE_OP(fill, "A scalar of the given value; as a tensor it is broadcast and takes no memory.",
            infer_fill, ANY_KERNELS(arange), .onnx = onnx_fill)
GENERATE_OP(arange, "y[i] = start + i step.", infer_range, ANY_KERNELS(arange), .onnx = NULL)
GENERATE_OP(tril_mask, "y[row, column] = column <= row + start: true on and below a diagonal.",
            infer_mask, TRIL_KERNELS, .onnx = NULL)

static weft_value generate(weft_graph *graph, const weft_op *op, weft_dtype dtype, weft_shape shape,
                           double start, double step)
{
    generate_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = dtype;
    attr.shape.rank = shape.rank; /* field by field: equal nodes have equal bytes, gaps too */
    memcpy(attr.shape.dim, shape.dim, sizeof shape.dim);
    attr.start = start;
    attr.step = step;
    return weft_apply(graph, op, &attr, NULL, 0, NULL);
}

weft_value weft_scalar(weft_graph *graph, weft_dtype dtype, double value)
{
    return generate(graph, &weft_op_fill, dtype, WEFT_SCALAR, value, 0);
}

weft_value weft_fill(weft_graph *graph, weft_dtype dtype, weft_shape shape, double value)
{
    return weft_broadcast_to(graph, weft_scalar(graph, dtype, value), shape);
}

weft_value weft_arange(weft_graph *graph, weft_dtype dtype, int64_t count, double start,
                       double step)
{
    return generate(graph, &weft_op_arange, dtype, WEFT_SHAPE(count), start, step);
}

weft_value weft_tril_mask(weft_graph *graph, int64_t rows, int64_t columns, int64_t diagonal)
{
    /* All diagonals beyond the corners are equivalent; these are exact as double. */
    if (rows >= 0 && diagonal < -rows) diagonal = -rows;
    if (columns >= 0 && diagonal > columns) diagonal = columns;
    return generate(graph, &weft_op_tril_mask, WEFT_BOOL, WEFT_SHAPE(rows, columns),
                    (double)diagonal, 0);
}

weft_value weft_causal_mask(weft_graph *graph, int64_t query_len, int64_t key_len)
{
    const bool good = query_len >= 0 && key_len >= 0;
    return weft_logical_not(
        graph, weft_tril_mask(graph, query_len, key_len, good ? key_len - query_len : 0));
}

weft_value weft_tril(weft_graph *graph, weft_value x, int64_t diagonal)
{
    if (weft_is_value(x) && weft_rank_of(graph, x) < 2) {
        weft_graph_fail_in(graph, "tril", WEFT_BAD_SHAPE, "x needs rank 2 or more, got rank %d",
                           weft_rank_of(graph, x));
        return WEFT_NO_VALUE;
    }
    weft_value keep =
        weft_tril_mask(graph, weft_dim_of(graph, x, -2), weft_dim_of(graph, x, -1), diagonal);
    return weft_masked_fill(graph, x, weft_logical_not(graph, keep), 0.0);
}

#endif
