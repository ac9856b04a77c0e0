/* cast and bitcast: elements, or their bits, as another dtype. */
#include "kernels/kernel.h"

typedef struct cast_attr {
    weft_dtype dtype;
} cast_attr;

#ifdef WEFT_KERNEL_ISA

/* Rounds towards zero and saturates; NaN becomes 0. */
static inline int32_t to_i32(double x)
{
    return x != x ? 0 : x >= 2147483647.0 ? INT32_MAX : x <= -2147483648.0 ? INT32_MIN : (int32_t)x;
}

/* A case of the switch over the result's dtype: writes the run of w and leaves the switch. Declares
 * x, an element, for the expression. */
#define CAST_TO(type, expression)                                                                  \
    {                                                                                              \
        type *out = (type *)call->out[0].data + w.offset[0];                                       \
        const int64_t step = w.step[1];                                                            \
        if (step == 1) {                                                                           \
            _Pragma("omp simd") for (int64_t i = 0; i < w.count; i++)                              \
            {                                                                                      \
                const T x = in[i];                                                                 \
                out[i] = expression;                                                               \
            }                                                                                      \
            break;                                                                                 \
        }                                                                                          \
        for (int64_t i = 0; i < w.count; i++) {                                                    \
            const T x = in[i * step];                                                              \
            out[i] = expression;                                                                   \
        }                                                                                          \
        break;                                                                                     \
    }

KERNEL(cast)
{
    for (weft_iterator w = weft_iterator_begin(call, tile); weft_iterator_next(&w);) {
        const T *in = (const T *)call->in[0].data + w.offset[1];
        switch (call->out[0].dtype) {
        case WEFT_F32:
            CAST_TO(float, (float)x)
        case WEFT_F64:
            CAST_TO(double, (double)x)
        case WEFT_I32:
            CAST_TO(int32_t, to_i32((double)x))
        default:
            CAST_TO(uint8_t, x != 0)
        }
    }
}

/* Bits of 4 bytes; infer_bitcast takes no other dtypes. */
KERNEL(bitcast)
{
    for (weft_iterator w = weft_iterator_begin(call, tile); weft_iterator_next(&w);) {
        const uint32_t *in = (const uint32_t *)call->in[0].data + w.offset[1];
        uint32_t *out = (uint32_t *)call->out[0].data + w.offset[0];
        for (int64_t i = 0; i < w.count; i++) out[i] = in[i * w.step[1]];
    }
}

#else

#include <weft/export.h>
#include <weft/ops.h>
#include <weft/source.h>

static void source_cast(weft_source *s)
{
    static const char *const functions[WEFT_DTYPES] = {[WEFT_F32] = "to_float",
                                                       [WEFT_F64] = "to_double",
                                                       [WEFT_I32] = "to_int",
                                                       [WEFT_BOOL] = "to_bool"};
    weft_source_each(s, NULL, functions[s->out[0].dtype], NULL, 0);
}

static void source_bitcast(weft_source *s)
{
    weft_source_each(s, NULL, s->out[0].dtype == WEFT_F32 ? "bits_to_float" : "bits_to_int", NULL,
                     0);
}

static bool infer_cast(weft_infer *infer)
{
    const cast_attr *attr = infer->attr;
    infer->out[0] = (weft_type){attr->dtype, infer->in[0].shape};
    if ((size_t)attr->dtype >= WEFT_DTYPES)
        return weft_infer_fail(infer, WEFT_BAD_DTYPE, "invalid dtype %d; expected a weft_dtype",
                               (int)attr->dtype);
    return (attr->dtype != WEFT_BF16 && attr->dtype != WEFT_U8) ||
           weft_infer_fail(infer, WEFT_BAD_DTYPE,
                           "%s is for storing only (see narrow_rows): expected f32, f64, i32 or "
                           "bool",
                           weft_dtype_name(attr->dtype));
}

static void vjp_cast(weft_vjp *v)
{
    weft_dtype from = weft_dtype_of(v->graph, v->in[0]), to = weft_dtype_of(v->graph, v->out[0]);
    if (weft_dtype_is_float(from) && weft_dtype_is_float(to))
        v->grad_in[0] = weft_cast(v->graph, v->grad_out[0], from);
}

static void onnx_cast(weft_export *e)
{
    weft_export_same(e, "Cast");
    weft_export_int(e, "to", weft_export_type(e->out_type[0].dtype));
}

static bool infer_bitcast(weft_infer *infer)
{
    const cast_attr *attr = infer->attr;
    const weft_dtype from = infer->in[0].dtype, to = attr->dtype;
    infer->out[0] = (weft_type){to, infer->in[0].shape};
    return (from == WEFT_F32 && to == WEFT_I32) || (from == WEFT_I32 && to == WEFT_F32) ||
           weft_infer_fail(infer, WEFT_BAD_DTYPE,
                           "the bits of %s are not those of %s; expected f32 and i32",
                           weft_dtype_name(from), weft_dtype_name(to));
}

DECLARE_ANY_KERNELS(cast);
DECLARE_ANY_KERNELS(bitcast);
static const cast_attr to_f64 = {WEFT_F64}, to_int = {WEFT_I32}, to_bool = {WEFT_BOOL},
                       to_f32 = {WEFT_F32};
static const weft_sample samples_cast[] = {
    {&to_f64, 1, {{WEFT_FLOAT, {2, {3, 5}}, -2, 2, false}}},
    {&to_int, 1, {{WEFT_FLOAT, {1, {9}}, -5, 5, false}}},
    {&to_bool, 1, {{WEFT_I32, {1, {9}}, 0, 2, false}}},
    {&to_f32, 1, {{WEFT_BOOL, {2, {3, 2}}, 0, 0.5, false}}},
};
static const weft_sample samples_bitcast[] = {
    {&to_int, 1, {{WEFT_F32, {2, {3, 5}}, -2, 2, false}}},
    {&to_f32, 1, {{WEFT_I32, {1, {9}}, 1000000000, 1100000000, false}}},
};
static const weft_attr_field cast_fields[] = {
    {"dtype", WEFT_ATTR_DTYPE, offsetof(cast_attr, dtype)},
    {NULL, WEFT_ATTR_INT, 0},
};
extern const weft_op weft_op_cast, weft_op_bitcast;
const weft_op weft_op_cast = {
    .name = "cast",
    .doc = "y = x as another dtype: towards zero and saturating for integers, x != 0 for bool.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(cast_attr),
    .attrs = cast_fields,
    .infer = infer_cast,
    .kernel = ANY_KERNELS(cast),
    .elementwise = true,
    .takes = WEFT_TAKES_ANY,
    .onnx = onnx_cast,
    .source = source_cast,
    .vjp = vjp_cast,
    .samples = samples_cast,
    .n_samples = sizeof samples_cast / sizeof *samples_cast,
};

weft_value weft_cast(weft_graph *graph, weft_value x, weft_dtype dtype)
{
    if (weft_is_value(x) && weft_dtype_of(graph, x) == dtype) return x;
    return weft_apply(graph, &weft_op_cast, &(cast_attr){dtype}, &x, 1, NULL);
}

const weft_op weft_op_bitcast = {
    .name = "bitcast",
    .doc = "y has the bits of x: f32 as i32, or i32 as f32.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(cast_attr),
    .attrs = cast_fields,
    .source = source_bitcast,
    .infer = infer_bitcast,
    .kernel = ANY_KERNELS(bitcast),
    .elementwise = true,
    .takes = WEFT_TAKES_ANY,
    .gradient = WEFT_GRADIENT_ZERO,
    .samples = samples_bitcast,
    .n_samples = sizeof samples_bitcast / sizeof *samples_bitcast,
};

weft_value weft_bitcast(weft_graph *graph, weft_value x, weft_dtype dtype)
{
    return weft_apply(graph, &weft_op_bitcast, &(cast_attr){dtype}, &x, 1, NULL);
}

#endif
