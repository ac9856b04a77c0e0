/* Compares the arithmetic of emit/plain/wide.h, in integers, with that of this processor's doubles, bit for bit: sums,
 * quotients, fused multiply-adds and conversions of random and of hand-chosen floats, and of sums of them.
 * Compile with -DWEFT_OWN_DOUBLES=1 and -lm, with the root of the sources and its folder graph to include from. */
#include "base/vmath.h"
#include "base/vmath_pow.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

typedef float T;
#define fma_f32 own_fma_f32
#define fma_f64 own_fma_f64
#include "emit/plain/math.h"
#include "emit/plain/wide.h"
#undef fma_f64

#include "emit/plain/wide_math.h"
#include "emit/plain/wide_power.h"

enum { OPERANDS = 3 };

static int failed;

/* A wide_float and the double that it stands for. */
typedef struct pair {
    wide_float own;
    double real;
} pair;

static double double_of(wide_float x)
{
    return x.special != 0 ? x.special : ldexp((double)x.mantissa, x.exponent - 443);
}

static bool same(double a, double b)
{
    return a != a ? b != b : vm_bits_f64(a) == vm_bits_f64(b);
}

/* The zeros of a wide_float have no sign. */
static void expect(const char *what, const float *x, double got, double expected)
{
    if (same(got, expected) || same(got, expected + 0) || failed++ >= 20) return;
    printf("%s of %a, %a, %a is %a, expected %a\n", what, x[0], x[1], x[2], got, expected);
}

static void expect_float(const char *what, const float *x, float got, float expected)
{
    if (same(got, expected) || failed++ >= 20) return;
    printf("%s of %a, %a, %a is %a, expected %a\n", what, x[0], x[1], x[2], got, expected);
}

static pair sum_of(const float *x, int n)
{
    pair sum = {WIDE_ZERO, 0};
    for (int i = 0; i < n; i++) {
        wide_add(&sum.own, x[i]);
        sum.real += (double)x[i];
    }
    return sum;
}

static wide_float quotient(wide_float x, wide_float y)
{
    wide_divide(&x, &y);
    return x;
}

/* The absolute value, by which may be divided. */
static pair size_of(const pair *x)
{
    pair size = {x->own, x->real + 0};
    if (x->real < 0) {
        size = (pair){WIDE_ZERO, -x->real};
        wide_subtract(&size.own, &x->own);
    }
    return size;
}

static void check(const float *x, uint64_t random)
{
    const pair a = sum_of(x, 2), b = sum_of(x + 2, 1), c = sum_of(x, 3);
    const pair b_size = size_of(&b), c_size = size_of(&c);
    const int count = (int)(random >> 33 >> (random & 31));
    wide_float both = a.own;
    expect("the sum", x, double_of(c.own), c.real);
    wide_add_wide(&both, &b.own);
    expect("the sum of sums", x, double_of(both), a.real + b.real);
    expect("the quotient", x, double_of(quotient(c.own, b_size.own)), c.real / b_size.real);
    expect("the quotient by a sum", x, double_of(quotient(b.own, c_size.own)),
           (b.real + 0) / c_size.real);
    both = c_size.own;
    wide_invert(&both);
    expect("1 / x", x, double_of(both), 1 / c_size.real);
    expect("x y + z", x, double_of(wide_fma(a.own, b.own, c.own)), fma(a.real, b.real, c.real));
    expect("the product", x, double_of(wide_product(a.own, c.own)), a.real * c.real);
    both = c.own;
    wide_root(&both);
    if (!(c.real < 0)) expect("the root", x, double_of(both), sqrt(c.real));
    expect_float("the float of a sum", x, wide_value(&c.own), (float)c.real);
    both = c.own;
    expect_float("the mean", x, wide_mean(&both, count), (float)(c.real / count));
    expect_float("fmaf", x, own_fma_f32(x[0], x[1], x[2]), fmaf(x[0], x[1], x[2]));
    if (random % 8 == 0) expect_float("exp", x, wide_exp(x[0]), (float)vm_exp_f64(x[0]));
    /* What Adam needs: powers of factors below 1. */
    if (random % 8 == 0 && c.real > 0 && c.real < 1) {
        const float power = (float)(1 + count % 100000);
        const double expected = vm_pow_f64(c.real, (double)power);
        if (expected == 0 || expected > 1e-300)
            expect("the power", x, double_of(wide_power(c.own, power)), expected);
    }
    /* The results of softmax, which these functions are for. */
    if (c.real != 0 && (c.real < 1 || c.real > 0x1p64)) return;
    if (random % 8 == 0) expect("log", x, double_of(wide_log(c.own)), vm_log_f64(c.real));
    if (c.real != 0) expect_float("the inverse", x, wide_inverse(&c.own), (float)(1 / c.real));
}

/* The generator splitmix64. */
static uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void check_special(void)
{
    static const uint32_t bits[] = {
        0,          1,          2,          0x7fffff,   0x800000,   0x800001,   0x33800000,
        0x34000000, 0x3effffff, 0x3f000000, 0x3f7fffff, 0x3f800000, 0x3f800001, 0x3fb504f3,
        0x40000000, 0x4b000000, 0x4b800001, 0x7effffff, 0x7f7fffff, 0x7f800000, 0x7fc00000};
    enum { N = 2 * sizeof bits / sizeof *bits };
    float x[OPERANDS];
    for (int i = 0; i < N * N * N; i++) {
        const int at[OPERANDS] = {i % N, i / N % N, i / N / N};
        for (int k = 0; k < OPERANDS; k++)
            x[k] = vm_from_bits_f32((int32_t)(bits[at[k] / 2] | (uint32_t)(at[k] % 2) << 31));
        check(x, (uint64_t)i << 40);
    }
}

static void check_random(long n)
{
    uint64_t state = 1;
    float x[OPERANDS];
    for (long i = 0; i < n; i++) {
        const uint64_t kind = draw(&state);
        uint32_t bits[OPERANDS];
        for (int k = 0; k < OPERANDS; k++) {
            bits[k] = (uint32_t)(draw(&state) >> 32);
            /* Few bits; the exponents of numbers near 1. */
            if (kind >> (8 + k) & 1) bits[k] &= 0xfff00000u >> (kind >> 16 & 15);
            if (kind & 1) bits[k] = (bits[k] & 0x807fffffu) | (100 + bits[k] % 53) << 23;
        }
        /* A number close to the other with the opposite sign; one close to the product. */
        if ((kind & 6) == 2) bits[1] = (bits[0] ^ 0x80000000u) + (uint32_t)(kind >> 20) % 4;
        for (int k = 0; k < OPERANDS; k++) x[k] = vm_from_bits_f32((int32_t)bits[k]);
        if ((kind & 6) == 4) {
            bits[2] = (uint32_t)vm_bits_f32(-(x[0] * x[1])) + (uint32_t)(kind >> 20) % 3;
            x[2] = vm_from_bits_f32((int32_t)bits[2]);
        }
        check(x, draw(&state));
    }
}

/* Long sums, whose roundings add up, as those of a softmax. */
static void check_long(long n)
{
    uint64_t state = 2;
    wide_float own = WIDE_ZERO;
    double real = 0;
    float x[OPERANDS] = {0};
    for (long i = 0; i < n; i++) {
        const uint64_t random = draw(&state);
        const int32_t exponent = 127 - (int32_t)(random >> 40) % (1 << (random >> 24 & 6));
        if (random % 64 == 0) {
            own = wide_of(x[0]);
            real = x[0];
        }
        x[0] = vm_from_bits_f32((int32_t)(exponent << 23 | (int32_t)(random & 0x7fffff)));
        if (random >> 32 & 1 && i & 64) x[0] = -x[0];
        wide_add(&own, x[0]);
        real += x[0];
        expect("the long sum", x, double_of(own), real);
        if (real >= 1)
            expect_float("the inverse of a sum", x, wide_inverse(&own), (float)(1 / real));
    }
}

int main(void)
{
    check_special();
    check_random(4000000);
    check_long(8000000);
    printf("%d differ\n", failed);
    return failed != 0;
}
