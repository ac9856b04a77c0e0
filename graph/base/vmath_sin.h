/* base/vmath_sin.h - sine and cosine. Not installed.
 *
 * Near: x = n pi/2 + r, |r| <= pi/4 (Cody & Waite; f32 in double), Taylor polynomials in r, which
 * compilers vectorise; up to VM_SIN_LIMIT. Far: the bits of x 2/pi that matter, in integers (Payne
 * & Hanek 1983, "Radian reduction for trigonometric functions"), and the same polynomials. */
#ifndef WEFT_BASE_VMATH_SIN_H
#define WEFT_BASE_VMATH_SIN_H

#include "base/vmath.h"

#include <stdbool.h>

/* Up to here n below takes at most 20 bits, so that its product with a piece of pi/2 is exact. */
#define VM_SIN_LIMIT 1e6

/* sin(x + quarters pi/2) for |x| <= VM_SIN_LIMIT. */
static inline float vm_sin_quarters_f32(float x, int32_t quarters)
{
    double k = (double)x * 0.63661977236758134 + VM_MAGIC_F64, n = k - VM_MAGIC_F64;
    float r = (float)(((double)x - n * 1.570796326734125614166) - n * 6.077100506506192e-11);
    int32_t quadrant = (int32_t)n + quarters;
    float z = r * r, s = 1.0f / 362880, c = -1.0f / 3628800;
    s = fma_f32(s, z, -1.0f / 5040);
    s = fma_f32(s, z, 1.0f / 120);
    s = fma_f32(s, z, -1.0f / 6);
    c = fma_f32(c, z, 1.0f / 40320);
    c = fma_f32(c, z, -1.0f / 720);
    c = fma_f32(c, z, 1.0f / 24);
    s = fma_f32(s * z, r, r);
    c = fma_f32(c * z, z, fma_f32(-0.5f, z, 1.0f));
    float y = quadrant & 1 ? c : s;
    return quadrant & 2 ? -y : y;
}
static inline double vm_sin_quarters_f64(double x, int64_t quarters)
{
    double k = x * 0.63661977236758134 + VM_MAGIC_F64, n = k - VM_MAGIC_F64;
    double r = ((x - n * 1.570796326734125614166) - n * 6.077100506303965976596e-11) -
               n * 2.0222662487959507324e-21;
    int64_t quadrant = (int64_t)((uint64_t)vm_integer_f64(k) + (uint64_t)quarters);
    double z = r * r, s = 1.0 / 355687428096000.0, c = 1.0 / 20922789888000.0;
    s = fma_f64(s, z, -1.0 / 1307674368000.0);
    s = fma_f64(s, z, 1.0 / 6227020800.0);
    s = fma_f64(s, z, -1.0 / 39916800.0);
    s = fma_f64(s, z, 1.0 / 362880.0);
    s = fma_f64(s, z, -1.0 / 5040.0);
    s = fma_f64(s, z, 1.0 / 120.0);
    s = fma_f64(s, z, -1.0 / 6.0);
    c = fma_f64(c, z, -1.0 / 87178291200.0);
    c = fma_f64(c, z, 1.0 / 479001600.0);
    c = fma_f64(c, z, -1.0 / 3628800.0);
    c = fma_f64(c, z, 1.0 / 40320.0);
    c = fma_f64(c, z, -1.0 / 720.0);
    c = fma_f64(c, z, 1.0 / 24.0);
    s = fma_f64(s * z, r, r);
    c = fma_f64(c * z, z, fma_f64(-0.5, z, 1.0));
    double y = quadrant & 1 ? c : s;
    return quadrant & 2 ? -y : y;
}

/* ---- Far from zero ---- */

/* The numbers below are 32-bit digits, so that products fit 64 bits. */

/* x = digits[0] 2^32 + digits[1] times 2^(the result), for a normal x. */
static inline int vm_digits(double x, uint32_t digits[2])
{
    const uint64_t bits = (uint64_t)vm_bits_f64(x);
    digits[0] = (uint32_t)(bits >> 32 & 0xfffff) | 0x100000;
    digits[1] = (uint32_t)bits;
    return (int)(bits >> 52 & 0x7ff) - 1075;
}

/* The 32 bits of 2/pi = 0.b1 b2 b3 ... from b_first on; those before b1 are zero. */
static inline uint32_t vm_two_over_pi(int first)
{
    static const uint64_t words[] = {
        0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
        0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484,
        0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
        0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b,
        0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d};
    const int word = (first - 1) >> 6, shift = (first - 1) & 63;
    const int n = (int)(sizeof words / sizeof *words);
    const uint64_t high = word >= 0 && word < n ? words[word] : 0;
    const uint64_t low = word + 1 >= 0 && word + 1 < n ? words[word + 1] : 0;
    return (uint32_t)((shift ? high << shift | low >> (64 - shift) : high) >> 32);
}

/* sin x, or cos x, for a finite |x| of 1 or more. x 2/pi modulo 4 is a number of 256 bits, of
 * which two are the quadrant; double precision needs 53 of the others after at most 62 zeros. */
static inline double vm_sin_far(double x, bool cosine)
{
    enum { DIGITS = 8 };
    uint32_t factor[2], turns[DIGITS] = {0}; /* the first digit is the highest */
    const int exponent = vm_digits(x, factor);
    for (int d = DIGITS - 1; d >= 0; d--) {
        /* The first bit of the product weighs 2. */
        const uint64_t bits = vm_two_over_pi(exponent - 1 + 32 * d);
        for (int f = 1, at = d; f >= 0 && at >= 0; f--, at--) {
            uint64_t sum = bits * factor[f];
            for (int to = at; to >= 0 && sum; to--) {
                sum += turns[to];
                turns[to] = (uint32_t)sum;
                sum >>= 32;
            }
        }
    }
    int64_t quadrant = turns[0] >> 30;
    /* The fraction of a quadrant, and if it is over a half, what it lacks of one. */
    const bool over = turns[0] >> 29 & 1;
    uint64_t part[3];
    for (int i = 0; i < 3; i++) {
        part[i] = (uint64_t)turns[2 * i] << 32 | turns[2 * i + 1];
        if (over) part[i] = ~part[i];
    }
    part[0] &= 0x3fffffffffffffff;
    if (over) quadrant++;
    /* In two doubles, so that r is rounded once. */
    double fraction = 0, rest = 0, unit = 0x1p-30;
    for (int i = 0; i < 6; i++, unit *= 0x1p-32) {
        const double digit = (double)(uint32_t)(part[i / 2] >> (i % 2 ? 0 : 32)) * unit;
        const double sum = fraction + digit;
        rest += digit - (sum - fraction);
        fraction = sum;
    }
    const double high = fraction * 1.5707963267948966;
    const double low = fma_f64(fraction, 1.5707963267948966, -high) +
                       fma_f64(fraction, 6.123233995736766e-17, rest * 1.5707963267948966);
    const double r = high + low;
    const double y = vm_sin_quarters_f64(over ? -r : r, quadrant + cosine);
    return x < 0 && !cosine ? -y : y;
}

static inline double vm_sin_any(double x, bool cosine)
{
    if (x >= -VM_SIN_LIMIT && x <= VM_SIN_LIMIT)
        return x == 0 && !cosine ? x : vm_sin_quarters_f64(x, cosine);
    return x - x == 0 ? vm_sin_far(x, cosine) : x - x; /* NaN */
}
static inline double vm_sin_f64(double x)
{
    return vm_sin_any(x, false);
}
static inline double vm_cos_f64(double x)
{
    return vm_sin_any(x, true);
}

/* The function of the dtype under way. */
#define vm_sin_quarters VM_JOIN_(vm_sin_quarters, WEFT_KERNEL_DTYPE)

#endif
