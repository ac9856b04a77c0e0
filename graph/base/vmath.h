/* base/vmath.h - elementary functions that compilers vectorise: no branches, no tables, no calls.
 * They have the same bits on every processor, so nothing asks libm for them. Not installed.
 *
 * exp: x = n ln 2 + r, |r| <= ln(2)/2 (Cody & Waite), a Taylor polynomial in r, and 2^n in two
 * factors, so that results below the smallest normal number come out too.
 * log: x = 2^n m with m in [sqrt(1/2), sqrt 2), log m = 2 artanh((m-1)/(m+1)) by its series.
 * expm1: 2^n (e^r - 1) + (2^n - 1). tanh: from e^2|x| - 1. So small arguments stay exact.
 * log1p: the logarithm of u = 1 + x, corrected by what rounding removed from u, divided by u; with
 * f = m - 1 (x itself where n is 0) it is f - s (f - 2 (artanh(s) - s) / s), whose f is exact.
 * log1p_unit, of [0, 1] only, for softplus: the series of log, from 1 + x or (1 + x) / 2.
 * erf: x + x P(x^2) up to 1, and 1 - e^Q(|x| - 1) beyond, Q approximating ln erfc; P and Q are
 * minimax polynomials found by Remez exchange, their errors in erf below 2e-9 (f32), 1e-17 (f64).
 * atan: see there; sin and cos: base/vmath_sin.h; powers: base/vmath_pow.h.
 * tests/ops/vmath_test.c compares each with libm over the whole range; the errors it allows, in
 * units in the last place of f32 and f64 alike: exp 1.2, log 2, expm1 2, log1p 1.5, tanh 3,
 * sigmoid 2.5, erf 1.3, softplus by exp and log1p_unit 3, sin and cos 2.5, atan 3, powers of f64
 * 2. Infinities, NaN, overflow and subnormal results behave as in libm. */
#ifndef WEFT_BASE_VMATH_H
#define WEFT_BASE_VMATH_H

#include "base/fma.h"

#include <stdbool.h>

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
    p = fma_f32(p, r, 1.0f / 720);
    p = fma_f32(p, r, 1.0f / 120);
    p = fma_f32(p, r, 1.0f / 24);
    p = fma_f32(p, r, 1.0f / 6);
    p = fma_f32(p, r, 0.5f);
    return fma_f32(p * r, r, r);
}
static inline double vm_expm1_poly_f64(double r)
{
    double p = 1.0 / 6227020800.0;
    p = fma_f64(p, r, 1.0 / 479001600.0);
    p = fma_f64(p, r, 1.0 / 39916800.0);
    p = fma_f64(p, r, 1.0 / 3628800.0);
    p = fma_f64(p, r, 1.0 / 362880.0);
    p = fma_f64(p, r, 1.0 / 40320.0);
    p = fma_f64(p, r, 1.0 / 5040.0);
    p = fma_f64(p, r, 1.0 / 720.0);
    p = fma_f64(p, r, 1.0 / 120.0);
    p = fma_f64(p, r, 1.0 / 24.0);
    p = fma_f64(p, r, 1.0 / 6.0);
    p = fma_f64(p, r, 0.5);
    return fma_f64(p * r, r, r);
}

/* The integer nearest to x / ln 2, in the low bits of x / ln 2 + 1.5 * 2^23 (2^52). */
#define VM_MAGIC_F32 12582912.0f
#define VM_MAGIC_F64 6755399441055744.0

/* That integer; where x is not finite, any. */
static inline int32_t vm_integer_f32(float k)
{
    return (int32_t)((uint32_t)vm_bits_f32(k) - (uint32_t)vm_bits_f32(VM_MAGIC_F32));
}
static inline int64_t vm_integer_f64(double k)
{
    return (int64_t)((uint64_t)vm_bits_f64(k) - (uint64_t)vm_bits_f64(VM_MAGIC_F64));
}

/* 2^e, a normal number. */
static inline float vm_power_f32(int32_t e)
{
    return vm_from_bits_f32((int32_t)(((uint32_t)e + 127) << 23));
}
static inline double vm_power_f64(int64_t e)
{
    return vm_from_bits_f64((int64_t)(((uint64_t)e + 1023) << 52));
}

/* e^x where it is a normal number: f32 from -87 to 88, f64 from -708 to 709. */
static inline float vm_exp_normal_f32(float x)
{
    float k = fma_f32(x, 1.44269504f, VM_MAGIC_F32), n = k - VM_MAGIC_F32;
    float r = fma_f32(-n, 1.42860677e-6f, fma_f32(-n, 0.693145752f, x));
    int32_t e = vm_integer_f32(k);
    return (1.0f + vm_expm1_poly_f32(r)) * vm_power_f32(e);
}
static inline double vm_exp_normal_f64(double x)
{
    double k = fma_f64(x, 1.4426950408889634, VM_MAGIC_F64), n = k - VM_MAGIC_F64;
    double r = fma_f64(-n, 1.90821492927058770002e-10, fma_f64(-n, 6.93147180369123816490e-01, x));
    int64_t e = vm_integer_f64(k);
    return (1.0 + vm_expm1_poly_f64(r)) * vm_power_f64(e);
}

static inline float vm_exp_f32(float x)
{
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float k = fma_f32(x, 1.44269504f, VM_MAGIC_F32), n = k - VM_MAGIC_F32;
    float r = fma_f32(-n, 1.42860677e-6f, fma_f32(-n, 0.693145752f, x));
    float p = 1.0f + vm_expm1_poly_f32(r);
    int32_t e = vm_integer_f32(k), half = e >> 1;
    return p * vm_power_f32(half) * vm_power_f32((int32_t)((uint32_t)e - (uint32_t)half));
}
static inline double vm_exp_f64(double x)
{
    x = x < -746.0 ? -746.0 : x;
    x = x > 710.0 ? 710.0 : x;
    double k = fma_f64(x, 1.4426950408889634, VM_MAGIC_F64), n = k - VM_MAGIC_F64;
    double r = fma_f64(-n, 1.90821492927058770002e-10, fma_f64(-n, 6.93147180369123816490e-01, x));
    double p = 1.0 + vm_expm1_poly_f64(r);
    int64_t e = vm_integer_f64(k), half = e >> 1;
    return p * vm_power_f64(half) * vm_power_f64((int64_t)((uint64_t)e - (uint64_t)half));
}

/* e^x for x <= 0; 0 where that is less than the smallest normal number. */
static inline float vm_exp_down_f32(float x)
{
    float y = vm_exp_normal_f32(x);
    return x < -87.0f ? 0.0f : y;
}
static inline double vm_exp_down_f64(double x)
{
    double y = vm_exp_normal_f64(x);
    return x < -708.0 ? 0.0 : y;
}

/* artanh(s) / s - 1 with z = s^2, |s| <= 3 - 2 sqrt 2. */
static inline float vm_artanh_poly_f32(float z)
{
    float p = 1.0f / 9;
    p = fma_f32(p, z, 1.0f / 7);
    p = fma_f32(p, z, 1.0f / 5);
    p = fma_f32(p, z, 1.0f / 3);
    return p * z;
}
static inline double vm_artanh_poly_f64(double z)
{
    double p = 1.0 / 23;
    p = fma_f64(p, z, 1.0 / 21);
    p = fma_f64(p, z, 1.0 / 19);
    p = fma_f64(p, z, 1.0 / 17);
    p = fma_f64(p, z, 1.0 / 15);
    p = fma_f64(p, z, 1.0 / 13);
    p = fma_f64(p, z, 1.0 / 11);
    p = fma_f64(p, z, 1.0 / 9);
    p = fma_f64(p, z, 1.0 / 7);
    p = fma_f64(p, z, 1.0 / 5);
    p = fma_f64(p, z, 1.0 / 3);
    return p * z;
}

static inline float vm_log_f32(float x)
{
    float scaled = x < 1.17549435e-38f ? x * 33554432.0f : x;
    int32_t bits = vm_bits_f32(scaled);
    /* The exponent of x / sqrt(1/2): the mantissa then lies around 1. */
    int32_t e = (int32_t)((uint32_t)bits - 0x3f3504f3u) >> 23;
    float m = vm_from_bits_f32((int32_t)((uint32_t)bits - ((uint32_t)e << 23)));
    float n = (float)e - (x < 1.17549435e-38f ? 25.0f : 0.0f);
    float s = (m - 1.0f) / (m + 1.0f), p = vm_artanh_poly_f32(s * s);
    float y = fma_f32(n, 0.693145752f, fma_f32(n, 1.42860677e-6f, 2.0f * fma_f32(s, p, s)));
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
    double s = (m - 1.0) / (m + 1.0), p = vm_artanh_poly_f64(s * s);
    double y = fma_f64(n, 6.93147180369123816490e-01,
                       fma_f64(n, 1.90821492927058770002e-10, 2.0 * fma_f64(s, p, s)));
    y = x == 0.0 ? -INFINITY : y;
    y = x < 0.0 ? NAN : y;
    return x > 1.7976931348623157e308 || x != x ? x + x : y;
}

static inline float vm_tanh_f32(float x)
{
    float a = x < 0 ? -x : x, t = 2.0f * (a > 10.0f ? 10.0f : a);
    float k = fma_f32(t, 1.44269504f, VM_MAGIC_F32), n = k - VM_MAGIC_F32;
    float p = vm_expm1_poly_f32(fma_f32(-n, 1.42860677e-6f, fma_f32(-n, 0.693145752f, t)));
    int32_t e = vm_integer_f32(k);
    float two_n = vm_power_f32(e);
    float em1 = fma_f32(two_n, p, two_n - 1.0f), y = em1 / (em1 + 2.0f);
    return x < 0 ? -y : x == 0 ? x : y;
}
static inline double vm_tanh_f64(double x)
{
    double a = x < 0 ? -x : x, t = 2.0 * (a > 20.0 ? 20.0 : a);
    double k = fma_f64(t, 1.4426950408889634, VM_MAGIC_F64), n = k - VM_MAGIC_F64;
    double r = fma_f64(-n, 1.90821492927058770002e-10, fma_f64(-n, 6.93147180369123816490e-01, t));
    double p = vm_expm1_poly_f64(r);
    int64_t e = vm_integer_f64(k);
    double two_n = vm_power_f64(e);
    double em1 = fma_f64(two_n, p, two_n - 1.0), y = em1 / (em1 + 2.0);
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

/* e^x - 1. 2^n is halved, since 2^n - 1 may be too large where the result is not; numbers that are
 * too small to be halved are the result. */
static inline float vm_expm1_f32(float x)
{
    float a = x < -20.0f ? -20.0f : x;
    a = a > 89.0f ? 89.0f : a;
    float k = fma_f32(a, 1.44269504f, VM_MAGIC_F32), n = k - VM_MAGIC_F32;
    float p = vm_expm1_poly_f32(fma_f32(-n, 1.42860677e-6f, fma_f32(-n, 0.693145752f, a)));
    int32_t e = vm_integer_f32(k);
    float half = vm_power_f32((int32_t)((uint32_t)e - 1));
    float y = fma_f32(half, p, half - 0.5f) * 2.0f;
    return (x < 0 ? -x : x) < 1e-30f ? x : y;
}
static inline double vm_expm1_f64(double x)
{
    double a = x < -40.0 ? -40.0 : x;
    a = a > 710.0 ? 710.0 : a;
    double k = fma_f64(a, 1.4426950408889634, VM_MAGIC_F64), n = k - VM_MAGIC_F64;
    double r = fma_f64(-n, 1.90821492927058770002e-10, fma_f64(-n, 6.93147180369123816490e-01, a));
    double p = vm_expm1_poly_f64(r);
    int64_t e = vm_integer_f64(k);
    double half = vm_power_f64((int64_t)((uint64_t)e - 1));
    double y = fma_f64(half, p, half - 0.5) * 2.0;
    return (x < 0 ? -x : x) < 1e-300 ? x : y;
}

/* ln(1 + x). */
static inline float vm_log1p_f32(float x)
{
    float u = 1.0f + x, lost = x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x);
    int32_t bits = vm_bits_f32(u);
    int32_t e = (int32_t)((uint32_t)bits - 0x3f3504f3u) >> 23;
    float f = vm_from_bits_f32((int32_t)((uint32_t)bits - ((uint32_t)e << 23))) - 1.0f;
    float n = (float)e, c = e ? lost / u : 0.0f;
    f = e ? f : x;
    float s = f / (f + 2.0f), p = 2.0f * vm_artanh_poly_f32(s * s);
    float low = fma_f32(s, f - p, -fma_f32(n, 1.42860677e-6f, c));
    float y = fma_f32(n, 0.693145752f, f - low);
    y = x == 0.0f ? x : x == -1.0f ? -INFINITY : y;
    y = x < -1.0f ? NAN : y;
    return x > 3.40282347e38f || x != x ? x + x : y;
}
static inline double vm_log1p_f64(double x)
{
    double u = 1.0 + x, lost = x < 1.0 ? x - (u - 1.0) : 1.0 - (u - x);
    int64_t bits = vm_bits_f64(u);
    int64_t e = (int64_t)((uint64_t)bits - 0x3fe6a09e667f3bcdu) >> 52;
    double f = vm_from_bits_f64((int64_t)((uint64_t)bits - ((uint64_t)e << 52))) - 1.0;
    double n = (double)e, c = e ? lost / u : 0.0;
    f = e ? f : x;
    double s = f / (f + 2.0), p = 2.0 * vm_artanh_poly_f64(s * s);
    double low = fma_f64(s, f - p, -fma_f64(n, 1.90821492927058770002e-10, c));
    double y = fma_f64(n, 6.93147180369123816490e-01, f - low);
    y = x == 0.0 ? x : x == -1.0 ? -INFINITY : y;
    y = x < -1.0 ? NAN : y;
    return x > 1.7976931348623157e308 || x != x ? x + x : y;
}

/* ln(1 + x) for 0 <= x <= 1. */
static inline float vm_log1p_unit_f32(float x)
{
    const float n = x > 0.41421356f ? 1.0f : 0.0f;
    const float s = (x - n) / (x + 2.0f + n);
    return fma_f32(n, 0.693147181f, 2.0f * fma_f32(s, vm_artanh_poly_f32(s * s), s));
}
static inline double vm_log1p_unit_f64(double x)
{
    const double n = x > 0.41421356237309505 ? 1.0 : 0.0;
    const double s = (x - n) / (x + 2.0 + n);
    return fma_f64(n, 0.69314718055994531, 2.0 * fma_f64(s, vm_artanh_poly_f64(s * s), s));
}

static inline float vm_erf_f32(float x)
{
    float a = x < 0 ? -x : x, z = x * x, p = 7.853852147e-5f;
    p = fma_f32(p, z, -8.010191758e-4f);
    p = fma_f32(p, z, 0.005188327606f);
    p = fma_f32(p, z, -0.02685381199f);
    p = fma_f32(p, z, 0.1128358515f);
    p = fma_f32(p, z, -0.3761262583f);
    p = fma_f32(p, z, 0.128379166f);
    float t = (a > 4.0f ? 4.0f : a) - 1.0f, q = 1.863753204e-4f;
    q = fma_f32(q, t, -0.001829370219f);
    q = fma_f32(q, t, 0.009895443476f);
    q = fma_f32(q, t, -0.04150348725f);
    q = fma_f32(q, t, -0.8431176105f);
    q = fma_f32(q, t, -2.63896688f);
    q = fma_f32(q, t, -1.849605516f);
    float far = 1.0f - vm_exp_normal_f32(q);
    return a < 1.0f ? fma_f32(x, p, x) : x < 0 ? -far : far;
}
static inline double vm_erf_f64(double x)
{
    double a = x < 0 ? -x : x, z = x * x, p = -7.779448129042074014e-10;
    p = fma_f64(p, z, 1.371096948098857979e-8);
    p = fma_f64(p, z, -1.620631124155474378e-7);
    p = fma_f64(p, z, 1.644713124501019136e-6);
    p = fma_f64(p, z, -1.492471227590706209e-5);
    p = fma_f64(p, z, 1.205529357556957217e-4);
    p = fma_f64(p, z, -8.548325929271419381e-4);
    p = fma_f64(p, z, 0.005223977606117625411);
    p = fma_f64(p, z, -0.02686617064311137612);
    p = fma_f64(p, z, 0.1128379167094418434);
    p = fma_f64(p, z, -0.3761263890318351954);
    p = fma_f64(p, z, 0.128379167095512566);
    double t = (a > 6.0 ? 6.0 : a) - 1.0, q = -4.926802613790786655e-12;
    q = fma_f64(q, t, 1.206720383359281574e-10);
    q = fma_f64(q, t, -1.332266208544315835e-9);
    q = fma_f64(q, t, 8.595216309981137607e-9);
    q = fma_f64(q, t, -3.368532600334118662e-8);
    q = fma_f64(q, t, 5.880294584536022707e-8);
    q = fma_f64(q, t, 2.032781228203285985e-7);
    q = fma_f64(q, t, -2.129767735232083442e-6);
    q = fma_f64(q, t, 9.66912056563203532e-6);
    q = fma_f64(q, t, -2.719726116790327328e-5);
    q = fma_f64(q, t, 2.629539129857262764e-5);
    q = fma_f64(q, t, 2.373167951645423076e-4);
    q = fma_f64(q, t, -0.001977901310248889428);
    q = fma_f64(q, t, 0.01003382519508501828);
    q = fma_f64(q, t, -0.04156109802667997602);
    q = fma_f64(q, t, -0.8431072563593302407);
    q = fma_f64(q, t, -2.638967514234777416);
    q = fma_f64(q, t, -1.849605509933248285);
    double far = 1.0 - vm_exp_normal_f64(q);
    return a < 1.0 ? fma_f64(x, p, x) : x < 0 ? -far : far;
}

/* x Phi(x), Phi the normal distribution: max(x, 0) - |x| / 2 erfc(|x| / sqrt 2), with a minimax
 * polynomial for the logarithm of erfc, whose error in the result is below 4e-8. */
static inline float vm_gelu_f32(float x)
{
    float a = x < 0 ? -x : x, q = -1.42752784e-6f;
    a = a > 20.0f ? 20.0f : a;
    q = fma_f32(q, a, 2.091454329e-5f);
    q = fma_f32(q, a, -9.905843535e-5f);
    q = fma_f32(q, a, -1.664464051e-4f);
    q = fma_f32(q, a, 0.004988019095f);
    q = fma_f32(q, a, -0.03645014391f);
    q = fma_f32(q, a, -0.3182785744f);
    q = fma_f32(q, a, -0.797887758f);
    q = fma_f32(q, a, 5.136382963e-8f);
    return fma_f32(-0.5f * a, vm_exp_down_f32(q), x < 0 ? 0.0f : x);
}
static inline double vm_gelu_f64(double x)
{
    /* Where the second factor is 0 the first must be finite. */
    return 0.5 * (x < -1e30 ? -1e30 : x) * (1 + vm_erf_f64(x * 0.70710678118654752));
}

/* arctan x: |x| > 1 from pi/2 - arctan 1/|x|; then t > tan(pi/12) from pi/6 + arctan of
 * (sqrt 3 t - 1) / (t + sqrt 3); the Taylor series of the rest, |t| <= tan(pi/12). */
static inline double vm_atan_f64(double x)
{
    const double a = x < 0 ? -x : x, root = 1.7320508075688772;
    double t = a > 1 ? 1 / a : a;
    const bool far = t > 0.2679491924311227;
    t = far ? fma_f64(t, root, -1) / (t + root) : t;
    double z = t * t, p = 1.0 / 29;
    p = fma_f64(p, z, -1.0 / 27);
    p = fma_f64(p, z, 1.0 / 25);
    p = fma_f64(p, z, -1.0 / 23);
    p = fma_f64(p, z, 1.0 / 21);
    p = fma_f64(p, z, -1.0 / 19);
    p = fma_f64(p, z, 1.0 / 17);
    p = fma_f64(p, z, -1.0 / 15);
    p = fma_f64(p, z, 1.0 / 13);
    p = fma_f64(p, z, -1.0 / 11);
    p = fma_f64(p, z, 1.0 / 9);
    p = fma_f64(p, z, -1.0 / 7);
    p = fma_f64(p, z, 1.0 / 5);
    p = fma_f64(p, z, -1.0 / 3);
    double y = fma_f64(t * z, p, t);
    y = far ? 0.52359877559829887 + y : y;
    y = a > 1 ? 1.5707963267948966 - (y - 6.123233995736766e-17) : y;
    return x < 0 ? -y : x == 0 ? x : y;
}

/* The functions of the dtype under way. */
#define VM_JOIN__(name, dtype) name##_##dtype
#define VM_JOIN_(name, dtype)  VM_JOIN__(name, dtype)
#define vm_exp                 VM_JOIN_(vm_exp, WEFT_KERNEL_DTYPE)
#define vm_exp_down            VM_JOIN_(vm_exp_down, WEFT_KERNEL_DTYPE)
#define vm_gelu                VM_JOIN_(vm_gelu, WEFT_KERNEL_DTYPE)
#define vm_log                 VM_JOIN_(vm_log, WEFT_KERNEL_DTYPE)
#define vm_tanh                VM_JOIN_(vm_tanh, WEFT_KERNEL_DTYPE)
#define vm_sigmoid             VM_JOIN_(vm_sigmoid, WEFT_KERNEL_DTYPE)
#define vm_expm1               VM_JOIN_(vm_expm1, WEFT_KERNEL_DTYPE)
#define vm_log1p               VM_JOIN_(vm_log1p, WEFT_KERNEL_DTYPE)
#define vm_log1p_unit          VM_JOIN_(vm_log1p_unit, WEFT_KERNEL_DTYPE)
#define vm_erf                 VM_JOIN_(vm_erf, WEFT_KERNEL_DTYPE)

#endif
