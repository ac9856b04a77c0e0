/* base/fma.h - fused multiply-add: x y + z with one rounding. Weft is compiled with
 * -ffp-contract=off, so an operation is fused where its formula says so and nowhere else
 * (docs/arithmetic.md). Not installed. */
#ifndef WEFT_BASE_FMA_H
#define WEFT_BASE_FMA_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__FMA__) || defined(__FP_FAST_FMAF) || defined(__aarch64__) || defined(__riscv_flen)

static inline float fma_f32(float x, float y, float z)
{
    return __builtin_fmaf(x, y, z);
}

#else

/* The product is exact in double. The sum is rounded to odd there: where it is inexact, it is
 * rounded towards zero, and its last bit is set. So rounding it again, to float, has the result of
 * one rounding (Boldo & Melquiond 2008, "Emulation of a FMA and correctly rounded sums"). */
static inline float fma_f32(float x, float y, float z)
{
    const double product = (double)x * (double)y, sum = product + (double)z;
    const double added = sum - product;
    const double lost = (product - (sum - added)) + ((double)z - added);
    const uint64_t inexact = (lost > 0) | (lost < 0), smaller = (lost < 0) != (sum < 0);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    bits = (bits - (inexact & smaller)) | inexact;
    double odd;
    memcpy(&odd, &bits, sizeof odd);
    return (float)odd;
}

#endif

/* In software, for MinGW-w64, whose fma rounds twice. Compilers for 64 bits have it. */
double weft__fma_f64(double x, double y, double z);

static inline double fma_f64(double x, double y, double z)
{
#if defined(__MINGW32__) && !defined(__FMA__)
    return weft__fma_f64(x, y, z);
#else
    return __builtin_fma(x, y, z);
#endif
}

#endif
