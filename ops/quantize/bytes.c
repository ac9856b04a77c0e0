/* quantize_bytes and dequantize_bytes: floats as bytes of one scale and zero point, and back.
 * O(elements). */
#include "kernels/kernel.h"

typedef struct bytes_attr {
    double scale;
    int32_t zero;
    int32_t none; /* instead of padding: attributes are compared byte by byte */
} bytes_attr;

#ifdef WEFT_KERNEL_ISA

KERNEL(quantize_bytes)
{
    const bytes_attr *a = call->attr;
    const float rounder = 0x1.8p23f; /* adding and subtracting it rounds to a whole number */
    const float scale = (float)a->scale, low = (float)-a->zero, high = (float)(255 - a->zero);
    const int32_t zero = a->zero;
    for (weft_iterator w = weft_iterator_begin(call, tile); weft_iterator_next(&w);) {
        const float *in = (const float *)call->in[0].data + w.offset[1];
        uint8_t *out = (uint8_t *)call->out[0].data + w.offset[0];
        const int64_t step = w.step[1];
        SIMD_FOR (i, w.count) {
            float x = in[i * step] / scale;
            x = x > low ? x : low; /* also for a NaN */
            x = x < high ? x : high;
            out[i] = (uint8_t)((int32_t)((x + rounder) - rounder) + zero);
        }
    }
}

KERNEL(dequantize_bytes)
{
    const bytes_attr *a = call->attr;
    const float scale = (float)a->scale;
    const int32_t zero = a->zero;
    for (weft_iterator w = weft_iterator_begin(call, tile); weft_iterator_next(&w);) {
        const uint8_t *in = (const uint8_t *)call->in[0].data + w.offset[1];
        float *out = (float *)call->out[0].data + w.offset[0];
        const int64_t step = w.step[1];
        SIMD_FOR (i, w.count) out[i] = scale * (float)(in[i * step] - zero);
    }
}

#else

#include "bytes.h"
#include "samples.h"

#include <weft/source.h>

static bool check_attr(weft_infer *infer)
{
    const bytes_attr *a = infer->attr;
    if (!(a->scale > 0) || a->zero < 0 || a->zero > 255)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                               "scale %g and zero point %d, expected above 0 and 0 to 255",
                               a->scale, a->zero);
    return weft_infer_scalar(infer, "scale", a->scale, WEFT_F32);
}

static bool infer_quantize_bytes(weft_infer *infer)
{
    infer->out[0] = (weft_type){WEFT_U8, infer->in[0].shape};
    return weft_infer_dtype(infer, 0, WEFT_F32) && check_attr(infer);
}

static bool infer_dequantize_bytes(weft_infer *infer)
{
    infer->out[0] = (weft_type){WEFT_F32, infer->in[0].shape};
    return weft_infer_dtype(infer, 0, WEFT_U8) && check_attr(infer);
}

static void source_bytes(weft_source *s, const char *function)
{
    const bytes_attr *a = s->attr;
    const weft_source_arg args[] = {WEFT_ARG_NUMBER(a->scale), WEFT_ARG_INT(a->zero)};
    weft_source_each(s, NULL, function, args, 2);
}

static void source_quantize_bytes(weft_source *s)
{
    source_bytes(s, "byte_of");
}

static void source_dequantize_bytes(weft_source *s)
{
    source_bytes(s, "number_of_byte");
}

static const bytes_attr sample_attr = {.scale = 0.015625, .zero = 100};
static const weft_sample samples_quantize[] = {
    {&sample_attr, 1, {{WEFT_F32, {3, {2, 3, 35}}, -3, 3, false}}},
    {&sample_attr, 1, {{WEFT_F32, {1, {0}}, -3, 3, false}}},
};
static const weft_sample samples_dequantize[] = {
    {&sample_attr, 1, {BYTES({3, {2, 3, 35}})}},
    {&sample_attr, 1, {BYTES({1, {0}})}},
};
static const weft_attr_field bytes_fields[] = {
    {"scale", WEFT_ATTR_DOUBLE, offsetof(bytes_attr, scale)},
    {"zero", WEFT_ATTR_INT, offsetof(bytes_attr, zero)},
    {NULL, WEFT_ATTR_INT, 0},
};

/* The kernels, compiled for f32, of an op whose kernel is chosen by f32. */
#ifdef WEFT_KERNEL_X86
#define F32_KERNELS(name)                                                                          \
    {                                                                                              \
        {KERNEL_ROW_(name, base, WEFT_F32, f32)}, {KERNEL_ROW_(name, v3, WEFT_F32, f32)},          \
            {KERNEL_ROW_(name, v4, WEFT_F32, f32)},                                                \
    }
#else
#define F32_KERNELS(name)                                                                          \
    {                                                                                              \
        {KERNEL_ROW_(name, base, WEFT_F32, f32)},                                                  \
    }
#endif

DECLARE_KERNEL_(quantize_bytes, f32);
DECLARE_KERNEL_(dequantize_bytes, f32);
extern const weft_op weft_op_quantize_bytes, weft_op_dequantize_bytes;
const weft_op weft_op_quantize_bytes = {
    .name = "quantize_bytes",
    .doc = "y = round(x / scale) + zero as a byte, within 0 to 255; ties to even, NaN is 0.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(bytes_attr),
    .attrs = bytes_fields,
    .infer = infer_quantize_bytes,
    .kernel = F32_KERNELS(quantize_bytes),
    .elementwise = true,
    .takes = WEFT_TAKES_ANY,
    .gradient = WEFT_GRADIENT_ZERO,
    .source = source_quantize_bytes,
    .samples = samples_quantize,
    .n_samples = sizeof samples_quantize / sizeof *samples_quantize,
};
const weft_op weft_op_dequantize_bytes = {
    .name = "dequantize_bytes",
    .doc = "y = scale (x - zero) of bytes, in f32.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(bytes_attr),
    .attrs = bytes_fields,
    .infer = infer_dequantize_bytes,
    .kernel = F32_KERNELS(dequantize_bytes),
    .key_output = true,
    .elementwise = true,
    .takes = WEFT_TAKES_ANY,
    .gradient = WEFT_GRADIENT_ZERO,
    .source = source_dequantize_bytes,
    .samples = samples_dequantize,
    .n_samples = sizeof samples_dequantize / sizeof *samples_dequantize,
};

weft_value weft__quantize_bytes(weft_graph *graph, weft_value x, double scale, int zero)
{
    return weft_apply(graph, &weft_op_quantize_bytes, &(bytes_attr){scale, zero, 0}, &x, 1, NULL);
}

weft_value weft__dequantize_bytes(weft_graph *graph, weft_value x, double scale, int zero)
{
    return weft_apply(graph, &weft_op_dequantize_bytes, &(bytes_attr){scale, zero, 0}, &x, 1, NULL);
}

#endif
