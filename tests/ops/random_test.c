/* Random tensors: the moments of their distributions, new numbers in each step, the same bits for
 * any number of threads, and their gradients. The suite of ops compares the bits with a reference.
 */
#include "tests.h"

#include <weft/autograd.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N 100000

/* Copies what two runs of y compute, [N] each, to `first` and `second`. */
static void run_twice(weft_graph *g, weft_value y, int threads, uint64_t seed, void *first,
                      void *second)
{
    weft_error error = WEFT_NO_ERROR;
    const size_t bytes = N * weft_dtype_bytes(weft_dtype_of(g, y));
    weft_plan *plan = weft_plan_new(g, &y, 1, &(weft_plan_options){.verify = true}, &error);
    const weft_session_options o = {.threads = threads, .seed = seed};
    weft_session *s = weft_session_new(plan, NULL, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, y, first, bytes, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, y, second, bytes, NULL), WEFT_OK);
    weft_session_free(s);
    weft_plan_free(plan);
}

typedef struct moments {
    double mean, variance, neighbours, min, max; /* neighbours: correlation of i and i + 1 */
} moments;

static moments moments_of(const double *x)
{
    moments m = {.min = INFINITY, .max = -INFINITY};
    for (int i = 0; i < N; i++) {
        m.mean += x[i] / N;
        m.min = fmin(m.min, x[i]);
        m.max = fmax(m.max, x[i]);
    }
    for (int i = 0; i < N; i++) {
        m.variance += (x[i] - m.mean) * (x[i] - m.mean) / N;
        if (i) m.neighbours += (x[i] - m.mean) * (x[i - 1] - m.mean) / N;
    }
    m.neighbours /= m.variance;
    return m;
}

static weft_value draw(weft_graph *g, int kind, weft_dtype dtype)
{
    const weft_shape shape = WEFT_SHAPE(N);
    if (kind == 0) return weft_random_uniform(g, dtype, shape, -1, 3);
    if (kind == 1) return weft_random_normal(g, dtype, shape, 2, 0.5);
    return weft_bernoulli(g, weft_fill(g, dtype, shape, 0.3));
}

/* Limits: five standard errors of a mean of N numbers, 5 / sqrt(N) = 0.016 of the deviation, and of
 * a variance, for whose fourth moment 3 is enough: 5 sqrt(2 / N) = 0.022 of it. */
static void check_moments(const double *x, double mean, double variance)
{
    const moments m = moments_of(x);
    CU_ASSERT_TRUE(fabs(m.mean - mean) < 0.016 * sqrt(variance));
    CU_ASSERT_TRUE(fabs(m.variance / variance - 1) < 0.022);
    CU_ASSERT_TRUE(fabs(m.neighbours) < 0.016);
}

static void test_moments(void)
{
    static const double expected[3][2] = {{1, 16.0 / 12}, {2, 0.25}, {0.3, 0.21}};
    static double x[N], y[N];
    static float x32[N], y32[N];
    for (int kind = 0; kind < 3; kind++) {
        weft_graph *g = weft_graph_new();
        run_twice(g, draw(g, kind, WEFT_F64), 1, 5, x, y);
        check_moments(x, expected[kind][0], expected[kind][1]);
        check_moments(y, expected[kind][0], expected[kind][1]);
        CU_ASSERT_TRUE(memcmp(x, y, sizeof x) != 0);
        if (kind == 0) CU_ASSERT_TRUE(moments_of(x).min >= -1 && moments_of(x).max < 3);
        run_twice(g, draw(g, kind, WEFT_F32), 1, 5, x32, y32);
        for (int i = 0; i < N; i++) x[i] = (double)x32[i];
        check_moments(x, expected[kind][0], expected[kind][1]);
        weft_graph_free(g);
    }
}

/* Bits depend on seed, step and node, and not on threads. */
static void test_bits(void)
{
    static float one[N], next[N], four[N], more[N];
    for (int kind = 0; kind < 3; kind++) {
        weft_graph *g = weft_graph_new();
        weft_value y = draw(g, kind, WEFT_F32), z = draw(g, kind, WEFT_F32);
        run_twice(g, y, 1, 7, one, next);
        run_twice(g, y, 4, 7, four, more);
        CU_ASSERT_EQUAL(memcmp(one, four, sizeof one), 0);
        CU_ASSERT_EQUAL(memcmp(next, more, sizeof next), 0);
        CU_ASSERT_NOT_EQUAL(memcmp(one, next, sizeof one), 0);
        run_twice(g, y, 1, 8, four, more);
        CU_ASSERT_NOT_EQUAL(memcmp(one, four, sizeof one), 0);
        run_twice(g, z, 1, 7, four, more);
        CU_ASSERT_NOT_EQUAL(memcmp(one, four, sizeof one), 0);
        weft_graph_free(g);
    }
}

/* Probabilities beyond [0, 1] and NaN, element by element, after a sum with which it is fused. */
static void test_certain(void)
{
    static const float p[6] = {0, 1, -3, 2, NAN, INFINITY};
    float y[6];
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(6));
    weft_value z = weft_add_scalar(g, weft_bernoulli(g, weft_add_scalar(g, x, 0)), 1);
    weft_plan *plan = weft_plan_new(g, &z, 1, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_feed(s, x, p, sizeof p, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, z, y, sizeof y, NULL), WEFT_OK);
    CU_ASSERT_TRUE(y[0] == 1 && y[1] == 2 && y[2] == 1 && y[3] == 2 && isnan(y[4]) && y[5] == 2);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* The gradient of sum(mean + deviation normal) is N and the sum of the numbers; that of bernoulli
 * 0.
 */
static void test_gradients(void)
{
    static double noise[N];
    double grads[3], sum = 0;
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    weft_value in[3], dx[3], targets[4];
    for (int i = 0; i < 3; i++)
        in[i] = weft_input(g, (const char *[]){"m", "s", "p"}[i], WEFT_F64, WEFT_SCALAR);
    weft_value e = weft_random_normal(g, WEFT_F64, WEFT_SHAPE(N), 0, 1);
    weft_value y = weft_add(g, in[0], weft_mul(g, in[1], e));
    y = weft_add(g, y, weft_bernoulli(g, in[2]));
    weft_grad(g, weft_sum(g, y, WEFT_ALL_AXES, false), in, 3, dx);
    for (int i = 0; i < 3; i++) targets[i] = weft_contiguous(g, dx[i]);
    targets[3] = e;
    weft_plan *plan = weft_plan_new(g, targets, 4, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    const double half = 0.5;
    for (int i = 0; i < 3; i++) weft_session_feed(s, in[i], &half, sizeof half, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    for (int i = 0; i < 3; i++) weft_session_fetch(s, targets[i], &grads[i], sizeof *grads, NULL);
    CU_ASSERT_EQUAL(weft_session_fetch(s, e, noise, sizeof noise, NULL), WEFT_OK);
    for (int i = 0; i < N; i++) sum += noise[i];
    CU_ASSERT_EQUAL(grads[0], N);
    /* Sums of N terms stay below 1500, five standard deviations. Their N roundings of 2^-53 of that
     * are at most 2e-8; they have either sign, so some sqrt(N) of them remain, 5e-11. */
    CU_ASSERT_TRUE(fabs(grads[1] - sum) < 1e-10);
    CU_ASSERT_EQUAL(grads[2], 0);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_refused(void)
{
    const weft_shape shape = WEFT_SHAPE(3);
    for (int i = 0; i < 5; i++) {
        weft_graph *g = weft_graph_new();
        if (i == 0) weft_random_uniform(g, WEFT_F32, shape, 2, 1);
        if (i == 1) weft_random_uniform(g, WEFT_F32, shape, 0, INFINITY);
        if (i == 2) weft_random_normal(g, WEFT_F32, shape, 0, -1);
        if (i == 3) weft_random_normal(g, WEFT_I32, shape, 0, 1);
        if (i == 4) weft_bernoulli(g, weft_arange(g, WEFT_I32, 2, 0, 1));
        CU_ASSERT_EQUAL(weft_graph_status(g), i < 3 ? WEFT_BAD_ARGUMENT : WEFT_BAD_DTYPE);
        weft_graph_free(g);
    }
}

void random_tests(void)
{
    CU_pSuite suite = CU_add_suite("random", NULL, NULL);
    CU_add_test(suite, "moments", test_moments);
    CU_add_test(suite, "bits", test_bits);
    CU_add_test(suite, "certain and impossible", test_certain);
    CU_add_test(suite, "gradients", test_gradients);
    CU_add_test(suite, "what is refused", test_refused);
}
