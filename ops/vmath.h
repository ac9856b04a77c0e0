/* Elementary functions that compilers vectorise: no branches, no tables, no calls.
 *
 * exp: x = n ln 2 + r, |r| <= ln(2)/2 (Cody & Waite), a Taylor polynomial in r, and 2^n in two
 * factors, so that results below the smallest normal number come out too.
 * log: x = 2^n m with m in [sqrt(1/2), sqrt 2), log m = 2 artanh((m-1)/(m+1)) by its series.
 * tanh: from e^2|x| - 1, which keeps small arguments exact.
 * tests/vmath_test.c holds each against libm over the whole range; the errors it allows, in units
 * in the last place of f32 and f64 alike: exp 1.2, log 2, tanh 3, sigmoid 2.5 (the largest
 * found: 1.05, 1.92, 2.46, 2.34). Infinities, NaN, overflow and subnormal results behave as in
 * libm. */
#ifndef WEFT_OPS_VMATH_H
#define WEFT_OPS_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float vm_from_bits_f32(int32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline int32_t vm_bits_f32(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline double vm_from_bits_f64(int64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline int64_t vm_bits_f64(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* e^r - 1 on the reduced range. */
static inline float vm_expm1_poly_f32(float r)
{
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    return p * r * r + r;
}
static inline double vm_expm1_poly_f64(double r)
{
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    return p * r * r + r;
}

/* The integer nearest to x / ln 2, in the low bits of x / ln 2 + 1.5 * 2^23 (2^52). */
#define VM_MAGIC_F32 12582912.0f
#define VM_MAGIC_F64 6755399441055744.0

static inline float vm_exp_f32(float x)
{
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float k = x * 1.44269504f + VM_MAGIC_F32, n = k - VM_MAGIC_F32;
    float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 1.0f + vm_expm1_poly_f32(r);
    int32_t e = vm_bits_f32(k) - vm_bits_f32(VM_MAGIC_F32), half = e >> 1;
    return p * vm_from_bits_f32((int32_t)((uint32_t)(half + 127) << 23)) *
           vm_from_bits_f32((int32_t)((uint32_t)(e - half + 127) << 23));
}
static inline double vm_exp_f64(double x)
{
    x = x < -746.0 ? -746.0 : x;
    x = x > 710.0 ? 710.0 : x;
    double k = x * 1.4426950408889634 + VM_MAGIC_F64, n = k - VM_MAGIC_F64;
    double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    double p = 1.0 + vm_expm1_poly_f64(r);
    int64_t e = vm_bits_f64(k) - vm_bits_f64(VM_MAGIC_F64), half = e >> 1;
    return p * vm_from_bits_f64((int64_t)((uint64_t)(half + 1023) << 52)) *
           vm_from_bits_f64((int64_t)((uint64_t)(e - half + 1023) << 52));
}

static inline float vm_log_f32(float x)
{
    float scaled = x < 1.17549435e-38f ? x * 33554432.0f : x;
    int32_t bits = vm_bits_f32(scaled);
    /* The exponent of x / sqrt(1/2): the mantissa then lies around 1. */
    int32_t e = (int32_t)((uint32_t)bits - 0x3f3504f3u) >> 23;
    float m = vm_from_bits_f32((int32_t)((uint32_t)bits - ((uint32_t)e << 23)));
    float n = (float)e - (x < 1.17549435e-38f ? 25.0f : 0.0f);
    float s = (m - 1.0f) / (m + 1.0f), z = s * s;
    float p = ((((z / 9 + 1.0f / 7) * z + 1.0f / 5) * z) + 1.0f / 3) * z;
    float y = 2.0f * (s + s * p) + n * 1.42860677e-6f + n * 0.693145752f;
    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    return x > 3.40282347e38f || x != x ? x + x : y;
}
static inline double vm_log_f64(double x)
{
    double scaled = x < 2.2250738585072014e-308 ? x * 18014398509481984.0 : x;
    int64_t bits = vm_bits_f64(scaled);
    int64_t e = (int64_t)((uint64_t)bits - 0x3fe6a09e667f3bcdu) >> 52;
    double m = vm_from_bits_f64((int64_t)((uint64_t)bits - ((uint64_t)e << 52)));
    double n = (double)e - (x < 2.2250738585072014e-308 ? 54.0 : 0.0);
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 1.0 / 23;
    p = p * z + 1.0 / 21;
    p = p * z + 1.0 / 19;
    p = p * z + 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    double y =
        2.0 * (s + s * (p * z)) + n * 1.90821492927058770002e-10 + n * 6.93147180369123816490e-01;
    y = x == 0.0 ? -INFINITY : y;
    y = x < 0.0 ? NAN : y;
    return x > 1.7976931348623157e308 || x != x ? x + x : y;
}

static inline float vm_tanh_f32(float x)
{
    float a = x < 0 ? -x : x, t = 2.0f * (a > 10.0f ? 10.0f : a);
    float k = t * 1.44269504f + VM_MAGIC_F32, n = k - VM_MAGIC_F32;
    float p = vm_expm1_poly_f32((t - n * 0.693145752f) - n * 1.42860677e-6f);
    int32_t e = vm_bits_f32(k) - vm_bits_f32(VM_MAGIC_F32);
    float two_n = vm_from_bits_f32((int32_t)((uint32_t)(e + 127) << 23));
    float em1 = two_n * p + (two_n - 1.0f), y = em1 / (em1 + 2.0f);
    return x < 0 ? -y : x == 0 ? x : y;
}
static inline double vm_tanh_f64(double x)
{
    double a = x < 0 ? -x : x, t = 2.0 * (a > 20.0 ? 20.0 : a);
    double k = t * 1.4426950408889634 + VM_MAGIC_F64, n = k - VM_MAGIC_F64;
    double r = (t - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    double p = vm_expm1_poly_f64(r);
    int64_t e = vm_bits_f64(k) - vm_bits_f64(VM_MAGIC_F64);
    double two_n = vm_from_bits_f64((int64_t)((uint64_t)(e + 1023) << 52));
    double em1 = two_n * p + (two_n - 1.0), y = em1 / (em1 + 2.0);
    return x < 0 ? -y : x == 0 ? x : y;
}

/* From e^-|x|, which cannot overflow: the far left, where the result is subnormal, stays exact. */
static inline float vm_sigmoid_f32(float x)
{
    float e = vm_exp_f32(x < 0 ? x : -x);
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}
static inline double vm_sigmoid_f64(double x)
{
    double e = vm_exp_f64(x < 0 ? x : -x);
    return (x < 0 ? e : 1.0) / (1.0 + e);
}

/* The functions of the dtype under way. */
#define VM_JOIN__(name, dtype) name##_##dtype
#define VM_JOIN_(name, dtype)  VM_JOIN__(name, dtype)
#define vm_exp                 VM_JOIN_(vm_exp, WEFT_KERNEL_DTYPE)
#define vm_log                 VM_JOIN_(vm_log, WEFT_KERNEL_DTYPE)
#define vm_tanh                VM_JOIN_(vm_tanh, WEFT_KERNEL_DTYPE)
#define vm_sigmoid             VM_JOIN_(vm_sigmoid, WEFT_KERNEL_DTYPE)

#endif
