/* quantize_bytes and dequantize_bytes: floats as bytes of one scale and zero point, and back;
 * add_bytes: the sum of two such tensors. O(elements).
 *
 * A division costs no more than what surrounds it: a product with the reciprocal, corrected by fused
 * multiply-adds to the same bits, takes as long. */
#include "bytes.h"
#include "kernels/byte_pack.h"
#include "kernels/kernel.h"

typedef struct bytes_attr {
    double scale;
    int32_t zero;
    int32_t none; /* instead of padding: attributes are compared byte by byte */
} bytes_attr;

#ifdef WEFT_KERNEL_ISA

/* One byte of a sum; reads the attributes. */
#define ADDED(x, y)                                                                                \
    added((float)((x)-zero[0]) * by[0] + (float)((y)-zero[1]) * by[1], by[2], low, high, zero[2])
static inline uint8_t added(float sum, float scale, float low, float high, int32_t zero)
{
    const float rounder = 0x1.8p23f;
    float x = sum / scale;
    x = x > low ? x : low; /* also for a NaN */
    x = x < high ? x : high;
    return (uint8_t)((int32_t)((x + rounder) - rounder) + zero);
}

/* Sums of neighbours. */
static void add_neighbours(const bytes_sum *s, const uint8_t *a, const uint8_t *b, int64_t n,
                           uint8_t *out)
{
    const float by[3] = {(float)s->scale[0], (float)s->scale[1], (float)s->scale[2]};
    const int32_t zero[3] = {s->zero[0], s->zero[1], s->zero[2]};
    const float low = (float)(s->low - zero[2]), high = (float)(s->high - zero[2]);
    int64_t i = 0;
#if defined(__AVX512F__)
    const byte_pack pack = byte_pack_of(zero[2], s->low, s->high);
    const __m512i zeros[2] = {_mm512_set1_epi32(zero[0]), _mm512_set1_epi32(zero[1])};
    for (; i + 64 <= n; i += 64) {
        __m512i q[4];
        SIMD_UNROLL(4)
        for (int k = 0; k < 4; k++) {
            const __m512i x = _mm512_sub_epi32(byte_lanes(a + i + 16 * k), zeros[0]);
            const __m512i y = _mm512_sub_epi32(byte_lanes(b + i + 16 * k), zeros[1]);
            const __m512 sum = _mm512_cvtepi32_ps(x) * by[0] + _mm512_cvtepi32_ps(y) * by[1];
            /* Of a NaN the minimum is the NaN, and the number the least. */
            q[k] = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_set1_ps(high), sum / by[2]));
        }
        _mm512_storeu_si512(out + i, byte_packed(&pack, q));
    }
#endif
    SIMD_FOR (k, n - i) out[i + k] = ADDED(a[i + k], b[i + k]);
}

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

/* In f32, as dequantize_bytes, add and quantize_bytes compute it. */
KERNEL(add_bytes)
{
    const bytes_sum *s = call->attr;
    const float by[3] = {(float)s->scale[0], (float)s->scale[1], (float)s->scale[2]};
    const int32_t zero[3] = {s->zero[0], s->zero[1], s->zero[2]};
    const float low = (float)(s->low - zero[2]), high = (float)(s->high - zero[2]);
    for (weft_iterator w = weft_iterator_begin(call, tile); weft_iterator_next(&w);) {
        const uint8_t *a = (const uint8_t *)call->in[0].data + w.offset[1];
        const uint8_t *b = (const uint8_t *)call->in[1].data + w.offset[2];
        uint8_t *out = (uint8_t *)call->out[0].data + w.offset[0];
        const int64_t steps[2] = {w.step[1], w.step[2]};
        if (steps[0] == 1 && steps[1] == 1) {
            add_neighbours(s, a, b, w.count, out);
        } else {
            for (int64_t i = 0; i < w.count; i++) out[i] = ADDED(a[i * steps[0]], b[i * steps[1]]);
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

static bool infer_add_bytes(weft_infer *infer)
{
    char a[128], b[128];
    const bytes_sum *s = infer->attr;
    bool good = 0 <= s->low && s->low <= s->high && s->high <= 255;
    for (int i = 0; i < 3; i++)
        good = good && s->scale[i] > 0 && s->zero[i] >= 0 && s->zero[i] <= 255;
    if (!good)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                               "scales %g, %g and %g, zero points %d, %d and %d, bounds %d and %d: "
                               "expected scales above 0, and bytes in order",
                               s->scale[0], s->scale[1], s->scale[2], s->zero[0], s->zero[1],
                               s->zero[2], s->low, s->high);
    for (size_t i = 0; i < 3; i++)
        if (!weft_infer_scalar(infer, "scale", s->scale[i], WEFT_F32)) return false;
    if (!weft_infer_dtype(infer, 0, WEFT_U8) || !weft_infer_dtype(infer, 1, WEFT_U8)) return false;
    infer->out[0].dtype = WEFT_U8;
    return weft_shape_broadcast(infer->in[0].shape, infer->in[1].shape, &infer->out[0].shape) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s and %s do not broadcast",
                           weft_shape_text(infer->in[0].shape, a, sizeof a),
                           weft_shape_text(infer->in[1].shape, b, sizeof b));
}

static void source_add_bytes(weft_source *s)
{
    const bytes_sum *a = s->attr;
    const weft_source_arg args[] = {WEFT_ARG_DOUBLE(a->scale[0]), WEFT_ARG_DOUBLE(a->scale[1]),
                                    WEFT_ARG_DOUBLE(a->scale[2]), WEFT_ARG_INT(a->zero[0]),
                                    WEFT_ARG_INT(a->zero[1]),     WEFT_ARG_INT(a->zero[2]),
                                    WEFT_ARG_INT(a->low),         WEFT_ARG_INT(a->high)};
    weft_source_each(s, NULL, "byte_of_sum", args, 8);
}

static const bytes_sum sample_sum = {{0.015625, 0.02, 0.03125}, {100, 128, 30}, 30, 250, 0};
static const weft_sample samples_add[] = {
    {&sample_sum, 2, {BYTES({3, {2, 3, 35}}), BYTES({3, {2, 3, 35}})}},
    {&sample_sum, 2, {BYTES({3, {2, 3, 1}}), BYTES({2, {3, 35}})}},
    {&sample_sum, 2, {BYTES({1, {0}}), BYTES({1, {0}})}},
};
static const weft_attr_field sum_fields[] = {
    {"a_scale", WEFT_ATTR_DOUBLE, offsetof(bytes_sum, scale[0])},
    {"b_scale", WEFT_ATTR_DOUBLE, offsetof(bytes_sum, scale[1])},
    {"scale", WEFT_ATTR_DOUBLE, offsetof(bytes_sum, scale[2])},
    {"a_zero", WEFT_ATTR_INT, offsetof(bytes_sum, zero[0])},
    {"b_zero", WEFT_ATTR_INT, offsetof(bytes_sum, zero[1])},
    {"zero", WEFT_ATTR_INT, offsetof(bytes_sum, zero[2])},
    {"low", WEFT_ATTR_INT, offsetof(bytes_sum, low)},
    {"high", WEFT_ATTR_INT, offsetof(bytes_sum, high)},
    {NULL, WEFT_ATTR_INT, 0},
};

/* The kernels, compiled for f32, of an op whose kernel is chosen by a dtype. */
#ifdef WEFT_KERNEL_X86
#define KERNELS_OF(name, DTYPE)                                                                    \
    {                                                                                              \
        {KERNEL_ROW_(name, base, DTYPE, f32)}, {KERNEL_ROW_(name, v3, DTYPE, f32)},                \
            {KERNEL_ROW_(name, v4, DTYPE, f32)},                                                   \
    }
#else
#define KERNELS_OF(name, DTYPE)                                                                    \
    {                                                                                              \
        {KERNEL_ROW_(name, base, DTYPE, f32)},                                                     \
    }
#endif

DECLARE_KERNEL_(quantize_bytes, f32);
DECLARE_KERNEL_(dequantize_bytes, f32);
DECLARE_KERNEL_(add_bytes, f32);
extern const weft_op weft_op_quantize_bytes, weft_op_dequantize_bytes, weft_op_add_bytes;
const weft_op weft_op_quantize_bytes = {
    .name = "quantize_bytes",
    .doc = "y = round(x / scale) + zero as a byte, within 0 to 255; ties to even, NaN is 0.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_size = sizeof(bytes_attr),
    .attrs = bytes_fields,
    .infer = infer_quantize_bytes,
    .kernel = KERNELS_OF(quantize_bytes, WEFT_F32),
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
    .kernel = KERNELS_OF(dequantize_bytes, WEFT_F32),
    .key_output = true,
    .elementwise = true,
    .takes = WEFT_TAKES_ANY,
    .gradient = WEFT_GRADIENT_ZERO,
    .source = source_dequantize_bytes,
    .samples = samples_dequantize,
    .n_samples = sizeof samples_dequantize / sizeof *samples_dequantize,
};

const weft_op weft_op_add_bytes = {
    .name = "add_bytes",
    .doc = "y = round((a_scale (a - a_zero) + b_scale (b - b_zero)) / scale) + zero of bytes, as a "
           "byte "
           "within bounds; in f32, ties to even.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_size = sizeof(bytes_sum),
    .attrs = sum_fields,
    .infer = infer_add_bytes,
    .kernel = KERNELS_OF(add_bytes, WEFT_U8),
    .elementwise = true,
    .broadcasts = true,
    .takes = WEFT_TAKES_ANY,
    .inplace = 3,
    .gradient = WEFT_GRADIENT_ZERO,
    .source = source_add_bytes,
    .samples = samples_add,
    .n_samples = sizeof samples_add / sizeof *samples_add,
};

weft_value weft__quantize_bytes(weft_graph *graph, weft_value x, double scale, int zero)
{
    return weft_apply(graph, &weft_op_quantize_bytes, &(bytes_attr){scale, zero, 0}, &x, 1, NULL);
}

weft_value weft__dequantize_bytes(weft_graph *graph, weft_value x, double scale, int zero)
{
    return weft_apply(graph, &weft_op_dequantize_bytes, &(bytes_attr){scale, zero, 0}, &x, 1, NULL);
}

weft_value weft__add_bytes(weft_graph *graph, weft_value a, weft_value b, const bytes_sum *sum)
{
    return weft_apply(graph, &weft_op_add_bytes, sum, (weft_value[]){a, b}, 2, NULL);
}

#endif
