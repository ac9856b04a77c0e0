/* base/vmath_pow.h - powers. Not installed.
 *
 * x^y = e^(y ln x) with ln x as the sum of two doubles, whose error is below 2^-64 of it: |x| = 2^n
 * m, s = (m - 1) / (m + 1), ln m = 2 s + 2/3 s^3 + 2/5 s^5 + ... (see base/vmath.h), with the first
 * two terms in two doubles each. Special values are those of C's pow. */
#ifndef WEFT_BASE_VMATH_POW_H
#define WEFT_BASE_VMATH_POW_H

#include "base/vmath.h"

/* A number as the sum of two doubles, the second one at most half a unit of the first. */
typedef struct vm_pair {
    double high, low;
} vm_pair;

static inline vm_pair vm_two_sum(double a, double b)
{
    const double sum = a + b, added = sum - a;
    const vm_pair pair = {sum, (a - (sum - added)) + (b - added)};
    return pair;
}

/* ln x for a finite x > 0. */
static inline vm_pair vm_log_pair(double x)
{
    const bool small = x < 2.2250738585072014e-308;
    const int64_t bits = vm_bits_f64(small ? x * 18014398509481984.0 : x);
    const int64_t e = (int64_t)((uint64_t)bits - 0x3fe6a09e667f3bcdu) >> 52;
    const double m = vm_from_bits_f64((int64_t)((uint64_t)bits - ((uint64_t)e << 52)));
    const double n = (double)e - (small ? 54.0 : 0.0);
    const double f = m - 1, g = m + 1, g_low = m - (g - 1);
    const double s = f / g, s_low = (fma_f64(-s, g, f) - s * g_low) / g;
    const double z = s * s, z_low = fma_f64(s, s, -z) + 2 * s * s_low;
    double q = 2.0 / 25;
    q = fma_f64(q, z, 2.0 / 23);
    q = fma_f64(q, z, 2.0 / 21);
    q = fma_f64(q, z, 2.0 / 19);
    q = fma_f64(q, z, 2.0 / 17);
    q = fma_f64(q, z, 2.0 / 15);
    q = fma_f64(q, z, 2.0 / 13);
    q = fma_f64(q, z, 2.0 / 11);
    q = fma_f64(q, z, 2.0 / 9);
    q = fma_f64(q, z, 2.0 / 7);
    q = fma_f64(q, z, 2.0 / 5);
    /* t = 2/3 z + q z^2; r = s t */
    const double third = 0.66666666666666663, third_low = 3.7007434154171886e-17;
    const double t = third * z;
    const double t_low = fma_f64(third, z, -t) + fma_f64(q * z, z, third * z_low + third_low * z);
    const double r = s * t, r_low = fma_f64(s, t, -r) + fma_f64(s, t_low, s_low * t);
    const vm_pair a = vm_two_sum(n * 6.93147180369123816490e-01, 2 * s);
    const vm_pair b = vm_two_sum(a.high, r);
    const double low = fma_f64(n, 1.90821492927058770002e-10, 2 * s_low + r_low);
    return vm_two_sum(b.high, (a.low + b.low) + low);
}

/* e^(high + low). */
static inline double vm_exp_pair(vm_pair x)
{
    double high = x.high < -746.0 ? -746.0 : x.high;
    high = high > 710.0 ? 710.0 : high;
    const double low = high == x.high ? x.low : 0;
    double k = fma_f64(high, 1.4426950408889634, VM_MAGIC_F64), n = k - VM_MAGIC_F64;
    double r = fma_f64(-n, 6.93147180369123816490e-01, high);
    r = fma_f64(-n, 1.90821492927058770002e-10, r) + low;
    const double p = 1.0 + vm_expm1_poly_f64(r);
    const int64_t e = vm_integer_f64(k), half = e >> 1;
    return p * vm_power_f64(half) * vm_power_f64((int64_t)((uint64_t)e - (uint64_t)half));
}

static inline double vm_pow_f64(double x, double y)
{
    const double a = x < 0 ? -x : x, half = 0.5 * y;
    const bool whole = rint(y) == y, odd = whole && rint(half) != half;
    const bool finite = a <= 1.7976931348623157e308 && a > 0;
    const vm_pair l = vm_log_pair(finite ? a : 1);
    const double high = a == 0 ? -INFINITY : finite ? l.high : a;
    vm_pair p = {y * high, 0};
    p.low = fma_f64(y, high, -p.high);
    p.low = finite && a != 1 ? fma_f64(y, l.low, p.low) : 0;
    p.high = a == 1 ? 0 : p.high;
    const double size = vm_exp_pair(p);
    double result = (x < 0 || (x == 0 && 1 / x < 0)) && odd ? -size : size;
    result = x < 0 && finite && !whole ? NAN : result;
    result = x != x || y != y ? x + y : result;
    return y == 0 || x == 1 ? 1 : result;
}

#endif
