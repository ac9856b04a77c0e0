/* Means and variances of numbers that lie far from zero, compared with their distances from each
 * other: equal numbers, and numbers around 1e5. Each case runs in f32, and its exact result is
 * computed here in f64 by two passes. */
#include "tests.h"

#include <weft/autograd.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs y of x, both of f32; the caller frees the elements of y. */
static float *run(weft_graph *g, weft_value x, const float *data, weft_value y)
{
    weft_error error = {0};
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    if (!s) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    const size_t bytes = weft_tensor_bytes(WEFT_F32, weft_shape_of(g, y));
    float *out = malloc(bytes + 1);
    CU_ASSERT_EQUAL(
        weft_session_feed(s, x, data, weft_tensor_bytes(WEFT_F32, weft_shape_of(g, x)), NULL),
        WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, y, out, bytes, NULL), WEFT_OK);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    return out;
}

static const weft_value none = {0};

/* ---- Equal numbers ---- */

static const float numbers[] = {37.8368f, -0.1f, 1e5f / 3, 1e-20f, 16777215, 0};
static const double small_eps[] = {1e-5, 1e-12, 1e-30};
enum { N_NUMBERS = 6, N_EPS = 3, MAX_LENGTH = 300 };

static void expect_zeros(const char *what, float number, int n, const float *y, int count)
{
    int bad = 0;
    while (bad < count && y[bad] == 0) bad++;
    if (bad < count)
        fprintf(stderr, "\n    %s of %d times %.9g: element %d is %g, expected 0\n", what, n,
                (double)number, bad, (double)y[bad]);
    CU_ASSERT_EQUAL(bad, count);
}

/* Layer norm of rows, in f64 of numbers whose bits f32 does not have. */
static void check_rows(int n, float number, double eps, const float *x, bool wide)
{
    weft_graph *g = weft_graph_new();
    weft_value in = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, n));
    weft_value third = weft_mul_scalar(g, weft_cast(g, in, WEFT_F64), 1 / 3.0);
    weft_value y = weft_layer_norm(g, wide ? third : in, none, none, eps);
    float *got = run(g, in, x, weft_cast(g, y, WEFT_F32));
    expect_zeros(wide ? "layer_norm in f64" : "layer_norm", number, n, got, 2 * n);
    free(got);
}

/* Layer norm of a row; batch norm of a channel that is a row or, `columns`, one of two pixels. */
static void check_equal(int n, float number, double eps)
{
    float x[2 * MAX_LENGTH], *y;
    for (int i = 0; i < 2 * n; i++) x[i] = number;
    for (int wide = 0; wide < 2; wide++) check_rows(n, number, eps, x, wide);
    weft_graph *g;
    weft_value in;
    for (int columns = 0; columns < 2; columns++) {
        g = weft_graph_new();
        in = weft_input(g, "x", WEFT_F32, columns ? WEFT_SHAPE(n, 2) : WEFT_SHAPE(1, 2, n));
        weft_value ones = weft_fill(g, WEFT_F32, WEFT_SHAPE(2), 1);
        weft_value zeros = weft_fill(g, WEFT_F32, WEFT_SHAPE(2), 0);
        y = run(g, in, x, weft_batch_norm(g, in, ones, zeros, eps, NULL, NULL));
        expect_zeros(columns ? "batch_norm of columns" : "batch_norm", number, n, y, 2 * n);
        free(y);
        g = weft_graph_new();
        in = weft_input(g, "x", WEFT_F32, columns ? WEFT_SHAPE(n, 2) : WEFT_SHAPE(2, n));
        y = run(g, in, x, weft_variance(g, in, WEFT_AXES(columns ? 0 : 1), false, 0));
        expect_zeros(columns ? "variance of columns" : "variance", number, n, y, 2);
        free(y);
    }
}

static void test_equal(void)
{
    static const int lengths[] = {1, 2, 3, 7, 13, 31, 100, 300};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int k = 0; k < N_NUMBERS * N_EPS; k++)
            check_equal(lengths[i], numbers[k % N_NUMBERS], small_eps[k / N_NUMBERS]);
}

/* ---- Numbers around a mean ---- */

enum { ROWS = 3, LENGTH = 777, COUNT = ROWS * LENGTH };

static void fill(float *x, float *dy, double mean)
{
    uint64_t random = 5;
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)(mean + test_uniform(&random, -1.7, 1.7));
        dy[i] = (float)test_uniform(&random, -1, 1.5);
    }
}

typedef struct moments {
    double mean, variance;
} moments;

/* Of LENGTH numbers, `step` apart. */
static moments exact(const float *x, int step)
{
    moments m = {0, 0};
    for (int i = 0; i < LENGTH; i++) m.mean += (double)x[i * step] / LENGTH;
    double rest = 0;
    for (int i = 0; i < LENGTH; i++) rest += ((double)x[i * step] - m.mean) / LENGTH;
    m.mean += rest;
    for (int i = 0; i < LENGTH; i++) m.variance += pow((double)x[i * step] - m.mean, 2) / LENGTH;
    return m;
}

static void expect_near(const char *what, double mean, const float *got, const double *want,
                        int count, double limit)
{
    double worst = 0;
    for (int i = 0; i < count; i++) worst = fmax(worst, fabs((double)got[i] - want[i]));
    if (!(worst <= limit))
        fprintf(stderr, "\n    %s around %g is off by %.2g, at most %.2g was expected\n", what,
                mean, worst, limit);
    CU_ASSERT_TRUE(worst <= limit);
}

/* Eight roundings of f32, of 2^-24 = 6e-8 each, of a number near 1. */
#define LIMIT 5e-7

/* Of rows, and of columns side by side. */
static void check_variance(double mean)
{
    float x[COUNT], dy[COUNT];
    double want[ROWS], slope[COUNT];
    fill(x, dy, mean);
    for (int columns = 0; columns < 2; columns++) {
        const int step = columns ? ROWS : 1, apart = columns ? 1 : LENGTH;
        for (int r = 0; r < ROWS; r++) {
            const moments m = exact(x + r * apart, step);
            want[r] = m.variance;
            for (int i = 0; i < LENGTH; i++)
                slope[r * apart + i * step] = 2 * ((double)x[r * apart + i * step] - m.mean);
        }
        for (int gradient = 0; gradient < 2; gradient++) {
            weft_graph *g = weft_graph_new();
            weft_value in = weft_input(
                g, "x", WEFT_F32, columns ? WEFT_SHAPE(LENGTH, ROWS) : WEFT_SHAPE(ROWS, LENGTH));
            weft_value y = weft_variance(g, in, WEFT_AXES(columns ? 0 : 1), false, 0);
            weft_value sum = weft_sum(g, y, WEFT_ALL_AXES, false), dx;
            weft_grad(g, sum, &in, 1, &dx);
            dx = weft_mul_scalar(g, dx, LENGTH);
            float *got = run(g, in, x, gradient ? dx : y);
            expect_near(gradient ? "the gradient of variance" : "variance", mean, got,
                        gradient ? slope : want, gradient ? COUNT : ROWS, LIMIT);
            free(got);
        }
    }
}

/* y and dx of a row, from the formula of weft/ops.h. */
static void normalise(const float *x, const float *dy, int step, double *y, double *dx)
{
    const moments m = exact(x, step);
    const double rstd = 1 / sqrt(m.variance + 1e-5);
    double sum = 0, along = 0;
    for (int i = 0; i < LENGTH; i++) {
        y[i * step] = ((double)x[i * step] - m.mean) * rstd;
        sum += (double)dy[i * step] / LENGTH;
        along += (double)dy[i * step] * y[i * step] / LENGTH;
    }
    for (int i = 0; i < LENGTH; i++)
        dx[i * step] = rstd * ((double)dy[i * step] - sum - y[i * step] * along);
}

static void check_norm(double mean, bool batch)
{
    float x[COUNT], dy[COUNT];
    double y[COUNT], dx[COUNT];
    fill(x, dy, mean);
    for (int r = 0; r < ROWS; r++) {
        const int at = batch ? r : r * LENGTH;
        normalise(x + at, dy + at, batch ? ROWS : 1, y + at, dx + at);
    }
    for (int gradient = 0; gradient < 2; gradient++) {
        const weft_shape shape = batch ? WEFT_SHAPE(LENGTH, ROWS) : WEFT_SHAPE(ROWS, LENGTH);
        weft_graph *g = weft_graph_new();
        weft_value in = weft_input(g, "x", WEFT_F32, shape), out, d;
        if (batch)
            out = weft_batch_norm(g, in, weft_fill(g, WEFT_F32, WEFT_SHAPE(ROWS), 1),
                                  weft_fill(g, WEFT_F32, WEFT_SHAPE(ROWS), 0), 1e-5, NULL, NULL);
        else
            out = weft_layer_norm(g, in, none, none, 1e-5);
        weft_value cotangent = weft_constant(g, WEFT_F32, shape, dy);
        weft_grad_of(g, &out, &cotangent, 1, &in, 1, &d);
        float *got = run(g, in, x, gradient ? d : out);
        expect_near(batch      ? (gradient ? "batch_norm_grad" : "batch_norm")
                    : gradient ? "layer_norm_grad"
                               : "layer_norm",
                    mean, got, gradient ? dx : y, COUNT, LIMIT);
        free(got);
    }
}

static const double means[] = {0, 1, 30, -1e3, 1e5, 1e6};

static void test_variance(void)
{
    for (size_t i = 0; i < sizeof means / sizeof *means; i++) check_variance(means[i]);
}

static void test_layer_norm(void)
{
    for (size_t i = 0; i < sizeof means / sizeof *means; i++) check_norm(means[i], false);
}

static void test_batch_norm(void)
{
    for (size_t i = 0; i < sizeof means / sizeof *means; i++) check_norm(means[i], true);
}

/* Gradients through the statistics that batch norm returns, each with its own weights. */
static void test_statistics(void)
{
    double x[2 * 3 * 4];
    uint64_t seed = 9;
    for (int i = 0; i < 2 * 3 * 4; i++) x[i] = test_uniform(&seed, -1, 1);
    weft_graph *g = weft_graph_new();
    const weft_shape channels = WEFT_SHAPE(3);
    const weft_value in = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(2, 3, 4));
    weft_value mean, variance;
    weft_batch_norm(g, in, weft_fill(g, WEFT_F64, channels, 1), weft_fill(g, WEFT_F64, channels, 0),
                    1e-5, &mean, &variance);
    const double rows[2][3] = {{1, -2, 3}, {-0.5, 4, 2}};
    const weft_value loss =
        weft_add(g,
                 weft_sum(g, weft_mul(g, mean, weft_constant(g, WEFT_F64, channels, rows[0])),
                          WEFT_ALL_AXES, false),
                 weft_sum(g, weft_mul(g, variance, weft_constant(g, WEFT_F64, channels, rows[1])),
                          WEFT_ALL_AXES, false));
    const weft_check_feed feed = {in, x, sizeof x};
    weft_check_result result = {0};
    CU_ASSERT_EQUAL(
        weft_check_gradient(
            g,
            &(weft_gradient_check){
                .loss = loss, .wrt = &in, .n = 1, .feeds = &feed, .n_feeds = 1, .seed = 1},
            &result, NULL),
        WEFT_OK);
    CU_ASSERT_EQUAL(result.checked, 2 * 3 * 4);
    CU_ASSERT_TRUE(result.worst_error < SMOOTH_DIFFERENCES);
    weft_graph_free(g);
}

/* The cost of an op does not depend on the rank of x: one row costs what it costs among others. */
static void test_cost(void)
{
    enum { N = 12 };
    static const struct {
        const char *op;
        double flops, tensors; /* of each element; as large as x */
    } expected[] = {{"layer_norm", 8, 2}, {"layer_norm_grad", 16, 3}};
    for (int rank = 1; rank <= 2; rank++) {
        int found = 0;
        weft_graph *g = weft_graph_new();
        const weft_shape shape = rank == 1 ? WEFT_SHAPE(N) : WEFT_SHAPE(3, N / 3);
        weft_value x = weft_input(g, "x", WEFT_F32, shape), dx;
        const weft_value gamma = weft_fill(g, WEFT_F32, WEFT_SHAPE(rank == 1 ? N : N / 3), 2);
        const weft_value y = weft_layer_norm(g, x, gamma, WEFT_NO_VALUE, 1e-5);
        weft_grad(g, weft_sum(g, y, WEFT_ALL_AXES, false), &x, 1, &dx);
        for (size_t k = 0; k < weft_graph_node_count(g); k++)
            for (int i = 0; i < 2; i++) {
                weft_cost cost;
                if (strcmp(weft_graph_node(g, k).op->name, expected[i].op) != 0) continue;
                CU_ASSERT_EQUAL(weft_graph_node_cost(g, k, &cost, NULL), WEFT_OK);
                CU_ASSERT_EQUAL(cost.flops, expected[i].flops * N);
                CU_ASSERT_EQUAL(cost.bytes, expected[i].tensors * N * 4);
                found++;
            }
        CU_ASSERT_EQUAL(found, 2);
        weft_graph_free(g);
    }
}

void moments_tests(void)
{
    CU_pSuite suite = CU_add_suite("moments", NULL, NULL);
    CU_add_test(suite, "equal numbers deviate by nothing", test_equal);
    CU_add_test(suite, "variance far from zero", test_variance);
    CU_add_test(suite, "layer norm far from zero", test_layer_norm);
    CU_add_test(suite, "batch norm far from zero", test_batch_norm);
    CU_add_test(suite, "gradients of batch norm's statistics", test_statistics);
    CU_add_test(suite, "cost of layer norm", test_cost);
}
