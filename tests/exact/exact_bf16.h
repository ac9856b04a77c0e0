/* What products of bf16 compute (docs/arithmetic.md): the references' form of the step of the processor's
 * dot product, vdpbf16ps, and of its tiles. For files of references, whose T it converts, and for tests. */
#ifndef WEFT_TESTS_EXACT_BF16_H
#define WEFT_TESTS_EXACT_BF16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define BF16_CHAIN 256 /* numbers of k: 128 pairs */

/* A zero instead of a subnormal number. */
static inline float bf16_flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

/* The nearest bf16, ties to even. */
static inline float bf16_round(float x)
{
    uint32_t bits;
    if (isnan(x)) return x;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* x y + sum, rounded once, and a zero of its sign if it is subnormal when rounded to 24 bits. The
 * product is exact in double, and the sum is rounded to odd there, so that rounding it again is the
 * same as rounding once, and no rounding crosses the bound. */
static inline float bf16_step(float x, float y, float sum)
{
    const double product = (double)bf16_flush(x) * (double)bf16_flush(y);
    const double old = (double)bf16_flush(sum), part = product + old, added = part - product;
    const double lost = (product - (part - added)) + (old - added);
    double odd = part;
    uint64_t bits;
    memcpy(&bits, &part, sizeof bits);
    if (isfinite(part) && lost != 0 && bits % 2 == 0)
        odd = nextafter(part, lost > 0 ? (double)INFINITY : (double)-INFINITY);
    /* Between the largest subnormal number of 24 bits and the smallest normal one. */
    return fabs(odd) < 0x1p-126 - 0x1p-151 ? (float)copysign(0, odd) : (float)odd;
}

/* vdpbf16ps: a pair's second numbers first. */
static inline float bf16_pair(const float x[2], const float y[2], float sum)
{
    return bf16_step(x[0], y[0], bf16_step(x[1], y[1], sum));
}

#endif
