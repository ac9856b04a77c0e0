/* The kernels of the elementary functions, of each instruction set that runs here, against libm
 * in the next wider type: a quarter of the points lie evenly among all bit patterns, so that every
 * exponent, subnormal numbers and NaNs come up, and the others where the functions bend. Every
 * second call has only the latter: sin and cos take another path if there is a huge number. */
#include "tests.h"

#include "base/fma.h"
#include "base/vmath_pow.h"
#include "ir/isa.h"

#include <weft/op.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Points of one call of a kernel: odd, so that vectorised loops have a rest. */
#define CHUNK  4097
#define CHUNKS 512

static long double sigmoid_exact(long double x)
{
    return 1 / (1 + expl(-x));
}
/* f32 is held against double: long double would be slower, not stricter. */
static double sigmoid_exact_f32(double x)
{
    return 1 / (1 + exp(-x));
}

static long double softplus_exact(long double x)
{
    return (x > 0 ? x : 0) + log1pl(expl(-fabsl(x)));
}
static double softplus_exact_f32(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

/* The errors that graph/base/vmath.h states, in units in the last place. */
static const struct function {
    const char *op;
    double (*exact_f32)(double);
    long double (*exact_f64)(long double);
    double ulp[WEFT_DTYPES];
} functions[] = {
    {"exp", exp, expl, {[WEFT_F32] = 1.2, [WEFT_F64] = 1.2}},
    {"log", log, logl, {[WEFT_F32] = 2, [WEFT_F64] = 2}},
    {"expm1", expm1, expm1l, {[WEFT_F32] = 2, [WEFT_F64] = 2}},
    {"log1p", log1p, log1pl, {[WEFT_F32] = 1.5, [WEFT_F64] = 1.5}},
    {"tanh", tanh, tanhl, {[WEFT_F32] = 3, [WEFT_F64] = 3}},
    {"sigmoid", sigmoid_exact_f32, sigmoid_exact, {[WEFT_F32] = 2.5, [WEFT_F64] = 2.5}},
    {"softplus", softplus_exact_f32, softplus_exact, {[WEFT_F32] = 3, [WEFT_F64] = 3}},
    {"erf", erf, erfl, {[WEFT_F32] = 1.3, [WEFT_F64] = 1.3}},
    {"sin", sin, sinl, {[WEFT_F32] = 2.5, [WEFT_F64] = 2.5}},
    {"cos", cos, cosl, {[WEFT_F32] = 2.5, [WEFT_F64] = 2.5}},
    {"atan", atan, atanl, {[WEFT_F32] = 1, [WEFT_F64] = 3}},
};

static const double specials[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 1e5, -1e5};
#define SPECIALS (sizeof specials / sizeof *specials)

/* Point `i` of f32 (exact in f64 too) or of f64. */
static double point(weft_dtype dtype, uint64_t i, uint64_t *random)
{
    static const double range[] = {1e6, 1000, 100, 10, 4, 2};
    if (i < SPECIALS) return specials[i];
    if (i % 2 || i / CHUNK % 2) {
        double x = test_uniform(random, -range[i / 2 % 6], range[i / 2 % 6]);
        return dtype == WEFT_F32 ? (double)(float)x : x;
    }
    if (dtype == WEFT_F32) {
        uint32_t bits = (uint32_t)(i / 2 * 0x9E3779B1);
        float x;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    uint64_t bits = i / 2 * 0x9E3779B97F4A7C15;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The distance of a result from the exact value, in units in the last place of the exact value's
 * exponent; infinite where one is NaN, infinite or zero (of either sign) and the other is not. An
 * exact value too large for the dtype counts as the power of two above its largest number. */
static double error_ulp(weft_dtype dtype, double got, long double exact)
{
    const int digits = dtype == WEFT_F32 ? 24 : 53, top = dtype == WEFT_F32 ? 128 : 1024;
    if (isnan(exact) || isnan(got)) return isnan(exact) && isnan(got) ? 0 : INFINITY;
    if (isinf(exact) || exact == 0)
        return got == (double)exact && !signbit(got) == !signbit(exact) ? 0 : INFINITY;
    const long double limit = ldexpl(1, top), a = fminl(fmaxl(got, -limit), limit);
    exact = fminl(fmaxl(exact, -limit), limit);
    int exponent = ilogbl(exact);
    if (exponent > top - 1) exponent = top - 1;
    if (exponent < 2 - top) exponent = 2 - top;
    return (double)(fabsl(a - exact) / ldexpl(1, exponent - (digits - 1)));
}

typedef struct buffers {
    double x[CHUNK];
    long double exact[CHUNK];
    union {
        float f32[CHUNK];
        double f64[CHUNK];
    } in, out;
} buffers;

static void fill(buffers *b, const struct function *f, weft_dtype dtype, uint64_t first,
                 uint64_t *random)
{
    for (uint64_t i = 0; i < CHUNK; i++) {
        double x = b->x[i] = point(dtype, first + i, random);
        if (dtype == WEFT_F32) {
            b->in.f32[i] = (float)x;
            b->exact[i] = f->exact_f32(x);
        } else {
            b->in.f64[i] = x;
            b->exact[i] = f->exact_f64(x);
        }
    }
}

static double result(const buffers *b, weft_dtype dtype, int i)
{
    return dtype == WEFT_F32 ? (double)b->out.f32[i] : b->out.f64[i];
}

static void check(const struct function *f, weft_dtype dtype)
{
    static buffers b;
    const weft_op *op = weft_op_find(f->op);
    CU_ASSERT_PTR_NOT_NULL_FATAL(op);
    weft_tensor in = weft_tensor_dense(&b.in, dtype, WEFT_SHAPE(CHUNK));
    weft_tensor out = weft_tensor_dense(&b.out, dtype, WEFT_SHAPE(CHUNK));
    weft_call call = {.in = &in, .out = &out, .n_in = 1, .n_out = 1, .tiles = 1};
    double worst[WEFT_ISAS] = {0}, where[WEFT_ISAS] = {0};
    uint64_t random = 1;
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
        fill(&b, f, dtype, chunk * CHUNK, &random);
        for (int isa = 0; isa <= (int)weft__isa_best(); isa++) {
            if (!op->kernel[isa][dtype]) continue;
            op->kernel[isa][dtype](&call, 0);
            for (int i = 0; i < CHUNK; i++) {
                double error = error_ulp(dtype, result(&b, dtype, i), b.exact[i]);
                if (error <= worst[isa]) continue;
                worst[isa] = error;
                where[isa] = b.x[i];
            }
        }
    }
    for (int isa = 0; isa <= (int)weft__isa_best(); isa++) {
        if (worst[isa] > f->ulp[dtype])
            printf("\n    %s %s %s: %.3g ulp at %.17g (%a), %g allowed\n", f->op,
                   weft_dtype_name(dtype), weft__isa_name((weft_isa)isa), worst[isa], where[isa],
                   where[isa], f->ulp[dtype]);
        CU_ASSERT_TRUE(worst[isa] <= f->ulp[dtype]);
    }
}

static void test_f32(void)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        check(&functions[i], WEFT_F32);
}

static void test_f64(void)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        check(&functions[i], WEFT_F64);
}

/* Each instruction set computes the bits of the baseline, whatever vectors it has functions for. */
static void check_bits(const weft_op *op, weft_dtype dtype)
{
    static buffers b, base;
    CU_ASSERT_PTR_NOT_NULL_FATAL(op);
    weft_tensor in = weft_tensor_dense(&b.in, dtype, WEFT_SHAPE(CHUNK));
    weft_tensor out = weft_tensor_dense(&b.out, dtype, WEFT_SHAPE(CHUNK));
    weft_call call = {.in = &in, .out = &out, .n_in = 1, .n_out = 1, .tiles = 1};
    uint64_t random = 4;
    int differ = 0;
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++)
        for (int isa = 0; isa <= (int)weft__isa_best(); isa++) {
            if (!op->kernel[isa][dtype]) continue;
            for (uint64_t i = 0; i < CHUNK && isa == 0; i++) {
                const double x = point(dtype, chunk * CHUNK + i, &random);
                if (dtype == WEFT_F32)
                    b.in.f32[i] = (float)x;
                else
                    b.in.f64[i] = x;
            }
            op->kernel[isa][dtype](&call, 0);
            if (isa == 0) base.out = b.out;
            for (int i = 0; i < CHUNK; i++) {
                const double x = result(&b, dtype, i), y = result(&base, dtype, i);
                differ += isnan(y) ? !isnan(x) : memcmp(&x, &y, sizeof x) != 0;
            }
        }
    CU_ASSERT_EQUAL(differ, 0);
    if (differ) printf("\n    %s %s: %d results\n", op->name, weft_dtype_name(dtype), differ);
}

static void test_bits(void)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        check_bits(weft_op_find(functions[i].op), WEFT_F32);
        check_bits(weft_op_find(functions[i].op), WEFT_F64);
    }
    check_bits(weft_op_find("gelu"), WEFT_F32);
    check_bits(weft_op_find("gelu"), WEFT_F64);
}

/* gelu in f32 tends to 0 on the left, where no error in units in the last place is promised. */
static void test_gelu(void)
{
    const weft_op *op = weft_op_find("gelu");
    static float x[CHUNK], y[CHUNK];
    weft_tensor in = weft_tensor_dense(x, WEFT_F32, WEFT_SHAPE(CHUNK));
    weft_tensor out = weft_tensor_dense(y, WEFT_F32, WEFT_SHAPE(CHUNK));
    weft_call call = {.in = &in, .out = &out, .n_in = 1, .n_out = 1, .tiles = 1};
    static const float far[] = {-1e6f, -100, -14, 0, 14, 100, 1e6f, INFINITY};
    for (int isa = 0; isa <= (int)weft__isa_best(); isa++) {
        if (!op->kernel[isa][WEFT_F32]) continue;
        uint64_t random = 2;
        double worst = 0;
        for (int chunk = 0; chunk < 64; chunk++) {
            for (int i = 0; i < CHUNK; i++) x[i] = (float)test_uniform(&random, -12, 12);
            op->kernel[isa][WEFT_F32](&call, 0);
            for (int i = 0; i < CHUNK; i++) {
                const double v = (double)x[i], exact = v / 2 * erfc(-v / sqrt(2));
                worst = fmax(worst, fabs((double)y[i] - exact) / fmax(1, fabs(exact)));
            }
        }
        const double limit = 1.2e-7; /* two roundings of f32, of 2^-24 each */
        CU_ASSERT_TRUE(worst <= limit);
        if (worst > limit)
            printf("\n    gelu %s: an error of %g\n", weft__isa_name((weft_isa)isa), worst);
        for (size_t i = 0; i < CHUNK; i++) x[i] = i < 8 ? far[i] : NAN;
        op->kernel[isa][WEFT_F32](&call, 0);
        for (size_t i = 0; i < 8; i++) CU_ASSERT_EQUAL(y[i], far[i] < 0 ? 0 : far[i]);
        CU_ASSERT_TRUE(isnan(y[8]) && isnan(y[CHUNK - 1]));
    }
}

/* Powers of f64 against powl: x near 1 and far from it, results over the whole range, and every
 * pair of special values. Those of f32 are the same, rounded. */
static void test_pow(void)
{
    static const double values[] = {0,
                                    -0.0,
                                    1,
                                    -1,
                                    2,
                                    -2,
                                    3,
                                    -3,
                                    0.5,
                                    -0.5,
                                    1.5,
                                    -1.5,
                                    1e300,
                                    -7e9,
                                    NAN,
                                    INFINITY,
                                    5e-324,
                                    -1e-310,
                                    9007199254740991,
                                    -INFINITY};
    const int n = (int)(sizeof values / sizeof *values);
    uint64_t random = 3;
    double worst = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            const double got = vm_pow_f64(values[i], values[j]), want = pow(values[i], values[j]);
            worst = fmax(worst, error_ulp(WEFT_F64, got, want));
        }
    CU_ASSERT_TRUE(worst <= 2);
    for (int i = 0; i < 1000000; i++) {
        const double wide = exp(test_uniform(&random, -20, 20)),
                     near = 1 + test_uniform(&random, -0.5, 0.5), x = i % 2 ? wide : near,
                     y = test_uniform(&random, -708, 708) / fmax(fabs(log(x)), 1e-9);
        worst = fmax(worst, error_ulp(WEFT_F64, vm_pow_f64(x, y), powl(x, y)));
    }
    CU_ASSERT_TRUE(worst <= 2);
    if (worst > 2) printf("\n    pow f64: %.3g ulp, 2 allowed\n", worst);
}

/* A double of all bits, or with the exponent field e and a few bits or all of the mantissa. */
static double draw_double(uint64_t *random, int e)
{
    const uint64_t few =
        test_random(random) % 3 ? UINT64_MAX : UINT64_MAX << test_random(random) % 52;
    uint64_t bits = test_random(random) & few;
    if (e >= 0) bits = (bits & 0x800FFFFFFFFFFFFF) | (uint64_t)e << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Against the C library's: any bits; sums that cancel; products far above and below the third
 * number; subnormal numbers. */
static void test_fma(void)
{
#ifdef __SIZEOF_INT128__
    uint64_t random = 3;
    const double near = 0x1.0000000000001p0;
    if (fma(near, near, -0x1.0000000000002p0) != 0x1p-104) {
        test_skip("fma", "the C library's rounds twice");
        return;
    }
    long wrong = 0;
    for (int i = 0; i < 400000; i++) {
        const int kind = i % 4, e = (int)(test_random(&random) % 140), at = kind == 2 ? 500 : 1023;
        double x = draw_double(&random, kind ? at : -1), y = draw_double(&random, kind ? at : -1);
        double z = draw_double(&random, kind == 1 ? 953 + e : kind == 2 ? e % 40 : -1);
        if (kind == 3) z = -(x * y) * (1 + (int)(test_random(&random) % 5 - 2) * 0x1p-52);
        const double got = weft__fma_f64(x, y, z), wanted = fma(x, y, z);
        wrong += isnan(wanted) ? !isnan(got) : memcmp(&got, &wanted, sizeof got) != 0;
    }
    CU_ASSERT_EQUAL(wrong, 0);
#endif
}

void vmath_tests(void)
{
    CU_pSuite suite = CU_add_suite("vmath", NULL, NULL);
    CU_add_test(suite, "f32 functions over the whole range", test_f32);
    CU_add_test(suite, "f64 functions over the whole range", test_f64);
    CU_add_test(suite, "bits on every instruction set", test_bits);
    CU_add_test(suite, "gelu of f32", test_gelu);
    CU_add_test(suite, "powers of f64", test_pow);
    CU_add_test(suite, "fused multiply-add of f64 in software", test_fma);
}
