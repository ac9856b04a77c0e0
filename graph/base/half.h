/* base/half.h - numbers of 16 bits as floats, which is exact, and back. Not installed. */
#ifndef WEFT_BASE_HALF_H
#define WEFT_BASE_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* IEEE 754 binary16: 5 bits of exponent, 10 of fraction. */
static inline float half_from_f16(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float x;
    if (exponent == 31)
        x = fraction ? NAN : INFINITY;
    else
        x = exponent ? ldexpf((float)(1024 + fraction), exponent - 25)
                     : ldexpf((float)fraction, -24);
    return bits & 0x8000 ? -x : x;
}

/* The nearest binary16, ties to even; beyond 65504, infinity. A NaN stays a NaN. */
static inline uint16_t half_to_f16(float x)
{
    uint32_t wide;
    memcpy(&wide, &x, sizeof x);
    const uint16_t sign = (uint16_t)(wide >> 16 & 0x8000);
    const uint32_t size = wide & 0x7fffffff;
    if (size > 0x7f800000) return sign | 0x7e00;
    if (size >= 0x47800000) return sign | 0x7c00; /* 65536 and more */
    if (size < 0x38800000)                        /* below 2^-14: multiples of 2^-24 */
        return (uint16_t)(sign | lrintf(ldexpf(fabsf(x), 24)));
    const uint32_t bits = size - 0x38000000; /* the exponent's bias of 127 becomes 15 */
    return (uint16_t)(sign | (bits + 0xfff + (bits >> 13 & 1)) >> 13);
}

/* bfloat16: the upper half of a binary32. */
static inline float half_from_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

/* The nearest bfloat16, ties to even. A NaN stays a NaN. */
static inline uint16_t half_to_bf16(float x)
{
    uint32_t wide;
    memcpy(&wide, &x, sizeof x);
    const uint32_t nearest = (wide + 0x7fff + (wide >> 16 & 1)) >> 16, nan = wide >> 16 | 64;
    return (uint16_t)((wide & 0x7fffffff) > 0x7f800000 ? nan : nearest);
}

/* Rows of n bfloat16 as floats, and back. */
static inline void half_widen(const uint16_t *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = half_from_bf16(x[i]);
}

static inline void half_narrow(const float *x, uint16_t *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = half_to_bf16(x[i]);
}

#endif
