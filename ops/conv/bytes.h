/* What kernels of convolutions of bytes share (conv_bytes.h): the results of sums, and products
 * of four bytes. */
#ifndef WEFT_OPS_BYTES_OF_CONV_H
#define WEFT_OPS_BYTES_OF_CONV_H

#include "kernels/simd.h"

#include "conv_bytes.h"

/* Bytes of a panel for four bytes of a row. */
#define BYTES_STEP (BYTES_PANEL * BYTES_EACH)

#ifdef WEFT_KERNEL_ISA

/* What becomes of sums: columns [0, n) of the operands begin at a tile's first one. */
typedef struct bytes_result {
    const int32_t *bias;
    const float *scale;
    weft_dtype dtype;
    bool bounded;
    float low, high; /* of a u8: less its zero */
    int32_t zero;
} bytes_result;

static inline bytes_result bytes_result_of(const weft_call *call)
{
    const conv_bytes_attr *a = call->attr;
    bytes_result r = {.bias = call->in[2].data,
                      .scale = call->n_in > 3 ? call->in[3].data : NULL,
                      .dtype = a->dtype,
                      .bounded = a->rows.bounded,
                      .low = (float)a->rows.low,
                      .high = (float)a->rows.high,
                      .zero = a->y_zero};
    if (a->dtype == WEFT_U8) {
        r.low = (float)((r.bounded ? (int32_t)a->rows.low : 0) - r.zero);
        r.high = (float)((r.bounded ? (int32_t)a->rows.high : 255) - r.zero);
    }
    return r;
}

static inline int32_t bytes_add(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}

/* Writes the results of `n` sums, columns from `first` on, to y. */
static inline void bytes_write(const bytes_result *r, const int32_t *sum, int64_t first, int64_t n,
                               void *y)
{
    const int32_t *bias = r->bias + first, zero = r->zero;
    if (r->dtype == WEFT_I32) {
        int32_t *out = y;
        SIMD_FOR (i, n) out[i] = bytes_add(sum[i], bias[i]);
        return;
    }
    const float *scale = r->scale + first;
    const float low = r->low, high = r->high;
    const bool bounded = r->bounded;
    if (r->dtype == WEFT_F32) {
        float *out = y;
        SIMD_FOR (i, n) {
            const float x = (float)bytes_add(sum[i], bias[i]) * scale[i];
            const float least = x < low ? low : x;
            out[i] = !bounded ? x : least > high ? high : least;
        }
        return;
    }
    const float rounder = 0x1.8p23f; /* adding and subtracting it rounds to a whole number */
    uint8_t *out = y;
    SIMD_FOR (i, n) {
        float x = (float)bytes_add(sum[i], bias[i]) * scale[i];
        x = x > low ? x : low; /* also for a NaN */
        x = x < high ? x : high;
        out[i] = (uint8_t)((int32_t)((x + rounder) - rounder) + zero);
    }
}

static inline int64_t bytes_size(weft_dtype dtype)
{
    return dtype == WEFT_U8 ? 1 : 4;
}

static inline bool bytes_has_vnni(void)
{
#if defined(__AVX512F__)
    return __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

#if defined(__AVX512F__)

/* sum += products of four bytes of a row, in all lanes of x, with those of each lane of w. */
SIMD_INLINE __m512i bytes_dot(__m512i sum, __m512i x, __m512i w)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
    return sum;
}

#endif

#else

/* Inputs of samples. */
#define IMAGE(...) BYTES({4, {__VA_ARGS__}})
#define BIAS(n)                                                                                    \
    {                                                                                              \
        WEFT_I32, {1, {n}}, -5000, 5000, false                                                     \
    }
#define SCALE(n)                                                                                   \
    {                                                                                              \
        WEFT_F32, {1, {n}}, 0.0005, 0.01, false                                                    \
    }

/* The kernels of an op on u8, compiled for f32; what follows are rows of other instruction sets. */
#ifdef WEFT_KERNEL_X86
#define BYTES_KERNELS(name, ...)                                                                   \
    {                                                                                              \
        {KERNEL_ROW_(name, base, WEFT_U8, f32)}, {KERNEL_ROW_(name, v3, WEFT_U8, f32)},            \
            {KERNEL_ROW_(name, v4, WEFT_U8, f32)} __VA_ARGS__                                      \
    }
#else
#define BYTES_KERNELS(name, ...)                                                                   \
    {                                                                                              \
        {KERNEL_ROW_(name, base, WEFT_U8, f32)},                                                   \
    }
#endif

#endif
#endif
