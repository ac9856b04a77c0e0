/* An offset common to all logits changes no probability, and must cost no digits: values and
 * gradients in f32 at growing offsets, against naive formulas in f64 on the same f32 numbers. */
#include "tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3, CLASSES = 7, N = ROWS * CLASSES };
static const double offsets[] = {0, 10, 1000, 1e4, -1e4, 1e8};

/* What a test is done on, row by row: x, a weight for each element, softmax of x. */
typedef struct problem {
    float x[N], w[N];
    double p[N], log_p[N];
} problem;

/* The logits of f32 nearest to the offset plus numbers in [-4, 4). */
static void make(problem *t, double offset, uint64_t seed)
{
    for (int i = 0; i < N; i++) {
        t->x[i] = (float)(offset + test_uniform(&seed, -4, 4));
        t->w[i] = (float)test_uniform(&seed, -1, 1);
    }
    for (int r = 0; r < ROWS; r++) {
        double top = -INFINITY, sum = 0;
        for (int c = 0; c < CLASSES; c++) top = fmax(top, (double)t->x[r * CLASSES + c]);
        for (int c = 0; c < CLASSES; c++) sum += exp((double)t->x[r * CLASSES + c] - top);
        for (int c = 0; c < CLASSES; c++) {
            const int i = r * CLASSES + c;
            t->log_p[i] = (double)t->x[i] - top - log(sum);
            t->p[i] = exp(t->log_p[i]);
        }
    }
}

/* The sum of a row's x y. */
static double dot(const double *x, const float *y, int row)
{
    double sum = 0;
    for (int c = 0; c < CLASSES; c++) sum += x[row * CLASSES + c] * (double)y[row * CLASSES + c];
    return sum;
}

static const double ones[N] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

typedef struct graph {
    weft_graph *g;
    weft_value x, w;
} graph;

static graph begin(weft_shape shape)
{
    weft_graph *g = weft_graph_new();
    return (graph){g, weft_input(g, "x", WEFT_F32, shape), weft_input(g, "w", WEFT_F32, shape)};
}

/* Runs the graph on the problem (transposed, if its inputs are [CLASSES, ROWS]) and frees it; the
 * results, which are [N] or [], come back as rows. */
static void run(graph *t, const problem *p, weft_value *targets, size_t n, float (*out)[N])
{
    const bool transposed = weft_dim_of(t->g, t->x, 0) == CLASSES;
    weft_error error = {0};
    weft_plan *plan = weft_plan_new(t->g, targets, n, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    if (!s) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    float fed[2][N], got[N];
    for (int i = 0; i < N; i++) {
        const int at = transposed ? i % CLASSES * ROWS + i / CLASSES : i;
        fed[0][at] = p->x[i];
        fed[1][at] = p->w[i];
    }
    CU_ASSERT_EQUAL(weft_session_feed(s, t->x, fed[0], sizeof fed[0], NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(s, t->w, fed[1], sizeof fed[1], NULL), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
    for (size_t k = 0; k < n; k++) {
        const size_t count = (size_t)weft_shape_numel(weft_shape_of(t->g, targets[k]));
        CU_ASSERT_EQUAL(weft_session_fetch(s, targets[k], got, count * sizeof *got, NULL), WEFT_OK);
        for (size_t i = 0; i < count; i++)
            out[k][i] = got[transposed && count == N ? i % CLASSES * ROWS + i / CLASSES : i];
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(t->g);
}

static void expect(const char *what, double offset, const float *got, const double *want, int n)
{
    double worst = 0;
    for (int i = 0; i < n; i++) {
        const double off = fabs((double)got[i] - want[i]) / fmax(1, fabs(want[i]));
        if (!(off <= worst)) worst = isnan(off) ? INFINITY : off;
    }
    const double limit = 5e-7; /* eight roundings of f32, of 2^-24 each */
    if (worst > limit) printf("\n    %s at offset %g is off by %g", what, offset, worst);
    CU_ASSERT_TRUE(worst <= limit);
}

/* ---- softmax and log_softmax ---- */

/* Values and gradients along the last axis and the first, by the kernels and by the expansion. */
static void check_softmax(double offset, bool logarithm, bool transposed, bool expanded)
{
    problem t;
    float got[2][N];
    double dx[N];
    make(&t, offset, 1);
    graph b = begin(transposed ? WEFT_SHAPE(CLASSES, ROWS) : WEFT_SHAPE(ROWS, CLASSES));
    const int axis = transposed ? 0 : 1;
    weft_value y[2];
    y[0] = logarithm ? weft_log_softmax(b.g, b.x, axis) : weft_softmax(b.g, b.x, axis);
    if (expanded) {
        const weft_op *op = weft_op_find(logarithm ? "log_softmax_grad" : "softmax_grad");
        weft_expand e = {b.g, &(int32_t){1 - axis}, 2, 1, (weft_value[]){y[0], b.w}, &y[1]};
        op->expand(&e);
    } else {
        weft_grad_of(b.g, y, &b.w, 1, &b.x, 1, &y[1]);
    }
    run(&b, &t, y, 2, got);
    for (int i = 0; i < N; i++) {
        const double w = (double)t.w[i];
        dx[i] = logarithm ? w - t.p[i] * dot(ones, t.w, i / CLASSES)
                          : t.p[i] * (w - dot(t.p, t.w, i / CLASSES));
    }
    expect(logarithm ? "log_softmax" : "softmax", offset, got[0], logarithm ? t.log_p : t.p, N);
    expect(logarithm ? "log_softmax's gradient" : "softmax's gradient", offset, got[1], dx, N);
}

static void test_softmax(void)
{
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
        for (int kind = 0; kind < 8; kind++)
            check_softmax(offsets[i], kind & 1, kind & 2, kind & 4);
}

/* ---- logsumexp: its value must be rounded, its gradient need not ---- */

static void check_logsumexp(double offset, bool all)
{
    problem t;
    float got[1][N];
    double dx[N], sum = 0;
    make(&t, offset, 2);
    graph b = begin(WEFT_SHAPE(ROWS, CLASSES));
    weft_value y = weft_logsumexp(b.g, b.x, all ? WEFT_ALL_AXES : WEFT_AXES(1), true), dy, d;
    dy = weft_slice(b.g, weft_slice(b.g, b.w, 1, 0, 1, 1), 0, 0, all ? 1 : ROWS, 1);
    weft_grad_of(b.g, &y, &dy, 1, &b.x, 1, &d);
    run(&b, &t, &d, 1, got);
    for (int i = 0; i < N; i++) sum += exp((double)t.x[i] - (double)t.x[0]);
    for (int i = 0; i < N; i++)
        dx[i] = all ? (double)t.w[0] * exp((double)t.x[i] - (double)t.x[0]) / sum
                    : (double)t.w[i / CLASSES * CLASSES] * t.p[i];
    expect("logsumexp's gradient", offset, got[0], dx, N);
}

static void test_logsumexp(void)
{
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
        for (int all = 0; all < 2; all++) check_logsumexp(offsets[i], all);
}

/* ---- cross_entropy ---- */

static const int32_t targets[ROWS] = {2, 0, 6};

/* Loss, gradient, and the gradient of the sum of the gradient's elements times w. */
static void check_cross_entropy(double offset, double smoothing, bool sum)
{
    problem t;
    float got[3][N];
    double loss = 0, dx[N], second[N];
    const double share = sum ? 1 : 1.0 / ROWS;
    weft_cross_entropy_loss_options o = {.label_smoothing = smoothing,
                                         .reduction = sum ? WEFT_REDUCE_SUM : WEFT_REDUCE_MEAN};
    make(&t, offset, 3);
    graph b = begin(WEFT_SHAPE(ROWS, CLASSES));
    weft_value parts[ROWS], y[3];
    for (int r = 0; r < ROWS; r++) parts[r] = weft_fill(b.g, WEFT_I32, WEFT_SHAPE(1), targets[r]);
    y[0] = weft_cross_entropy_loss(b.g, b.x, weft_concat(b.g, parts, ROWS, 0), &o);
    weft_grad(b.g, y[0], &b.x, 1, &y[1]);
    weft_value weighed = weft_sum(b.g, weft_mul(b.g, y[1], b.w), WEFT_ALL_AXES, false);
    weft_grad(b.g, weighed, &b.x, 1, &y[2]);
    run(&b, &t, y, 3, got);
    for (int i = 0; i < N; i++) {
        const int r = i / CLASSES;
        const double q = (1 - smoothing) * (i % CLASSES == targets[r]) + smoothing / CLASSES;
        loss -= share * q * t.log_p[i];
        dx[i] = share * (t.p[i] - q);
        second[i] = share * t.p[i] * ((double)t.w[i] - dot(t.p, t.w, r));
    }
    expect("cross_entropy", offset, got[0], &loss, 1);
    expect("cross_entropy's gradient", offset, got[1], dx, N);
    expect("cross_entropy's second derivative", offset, got[2], second, N);
}

static void test_cross_entropy(void)
{
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
        for (int kind = 0; kind < 4; kind++)
            check_cross_entropy(offsets[i], kind & 1 ? 0.1 : 0, kind & 2);
}

/* What the reviewers of an earlier version found: 0.3132324, -0.268920 and 0.268949, and 0. */
static void test_pairs(void)
{
    static const float pairs[2][2] = {{1000, 999}, {1e8f, 1e8f}};
    static const double losses[2] = {0.31326168751822286, 0.69314718055994531};
    static const double slopes[2] = {0.26894142136999512, 0.5};
    for (int i = 0; i < 2; i++) {
        weft_graph *g = weft_graph_new();
        weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, 2)), y[2];
        weft_value target = weft_fill(g, WEFT_I32, WEFT_SHAPE(1), 0);
        y[0] = weft_cross_entropy_loss(g, x, target,
                                       &(weft_cross_entropy_loss_options){.ignore_index = -1});
        weft_grad(g, y[0], &x, 1, &y[1]);
        weft_error error;
        weft_plan *plan = weft_plan_new(g, y, 2, NULL, &error);
        weft_session *s = weft_session_new(plan, NULL, NULL, &error);
        float loss, dx[2];
        CU_ASSERT_EQUAL(weft_session_feed(s, x, pairs[i], sizeof pairs[i], NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_fetch(s, y[0], &loss, sizeof loss, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_fetch(s, y[1], dx, sizeof dx, NULL), WEFT_OK);
        /* Three roundings of numbers below 1: 3 * 2^-25 = 9e-8. */
        CU_ASSERT_DOUBLE_EQUAL(loss, losses[i], 1e-7);
        CU_ASSERT_DOUBLE_EQUAL(dx[0], -slopes[i], 1e-7);
        CU_ASSERT_DOUBLE_EQUAL(dx[1], slopes[i], 1e-7);
        weft_session_free(s);
        weft_plan_free(plan);
        weft_graph_free(g);
    }
}

/* ---- Attention: scores offset + s_j that f32 represents ---- */

enum { QUERIES = 3, KEYS = 5, VALUES = 2 };

static void check_attention(double offset, bool expanded)
{
    const double step = fmax(0.125, offset * 0x1p-23);
    float q[QUERIES][2], k[KEYS][2], v[KEYS][VALUES], dy[QUERIES][VALUES];
    double y[QUERIES][VALUES] = {{0}}, dq[QUERIES][2] = {{0}}, dk[KEYS][2] = {{0}};
    double dv[KEYS][VALUES] = {{0}};
    uint64_t seed = 4;
    for (int i = 0; i < QUERIES; i++) {
        q[i][0] = (float)offset;
        q[i][1] = (float)(i + 1);
        for (int c = 0; c < VALUES; c++) dy[i][c] = (float)test_uniform(&seed, -1, 1);
    }
    for (int j = 0; j < KEYS; j++) {
        k[j][0] = 1;
        k[j][1] = (float)(step * (double)(test_random(&seed) % 6));
        for (int c = 0; c < VALUES; c++) v[j][c] = (float)test_uniform(&seed, -1, 1);
    }
    for (int i = 0; i < QUERIES; i++) {
        double p[KEYS], sum = 0, d = 0;
        for (int j = 0; j < KEYS; j++)
            sum += p[j] = exp((double)q[i][1] * (double)k[j][1] - 15 * step);
        for (int j = 0; j < KEYS; j++)
            for (int c = 0; c < VALUES; c++) y[i][c] += p[j] / sum * (double)v[j][c];
        for (int c = 0; c < VALUES; c++) d += (double)dy[i][c] * y[i][c];
        for (int j = 0; j < KEYS; j++) {
            double dp = 0;
            for (int c = 0; c < VALUES; c++) {
                dp += (double)dy[i][c] * (double)v[j][c];
                dv[j][c] += p[j] / sum * (double)dy[i][c];
            }
            const double ds = p[j] / sum * (dp - d);
            for (int c = 0; c < 2; c++) {
                dq[i][c] += ds * (double)k[j][c] / step;
                dk[j][c] += ds * (double)q[i][c] / fmax(1, offset);
            }
        }
    }
    weft_graph *g = weft_graph_new();
    weft_value in[4] = {weft_input(g, "q", WEFT_F32, WEFT_SHAPE(1, QUERIES, 1, 2)),
                        weft_input(g, "k", WEFT_F32, WEFT_SHAPE(1, KEYS, 1, 2)),
                        weft_input(g, "v", WEFT_F32, WEFT_SHAPE(1, KEYS, 1, VALUES)),
                        weft_input(g, "dy", WEFT_F32, WEFT_SHAPE(1, QUERIES, 1, VALUES))};
    weft_value out[4];
    out[0] = weft_sdpa(g, in[0], in[1], in[2], &(weft_sdpa_options){.scale = 1});
    weft_grad_of(g, out, &in[3], 1, in, 3, out + 1);
    if (expanded) {
        weft_node_info node = weft_graph_node(g, weft_producer_of(g, out[1]));
        weft_value again[8];
        for (size_t i = 0; i < node.n_in; i++) again[i] = weft_value_from_id(g, node.in[i]);
        weft_expand e = {g, node.attr, node.n_in, node.n_out, again, out + 1};
        node.op->expand(&e);
    }
    out[1] = weft_mul_scalar(g, out[1], 1 / step);
    out[2] = weft_mul_scalar(g, out[2], 1 / fmax(1, offset));
    weft_error error = {0};
    weft_plan *plan = weft_plan_new(g, out, 4, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_session_feed(s, in[0], q, sizeof q, NULL);
    weft_session_feed(s, in[1], k, sizeof k, NULL);
    weft_session_feed(s, in[2], v, sizeof v, NULL);
    weft_session_feed(s, in[3], dy, sizeof dy, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    static const char *const names[4] = {"attention", "attention's dq", "attention's dk",
                                         "attention's dv"};
    const double *const want[4] = {y[0], dq[0], dk[0], dv[0]};
    static const int counts[4] = {QUERIES * VALUES, QUERIES * 2, KEYS * 2, KEYS * VALUES};
    for (int i = 0; i < 4; i++) {
        float got[N];
        CU_ASSERT_EQUAL(weft_session_fetch(s, out[i], got, (size_t)counts[i] * sizeof *got, NULL),
                        WEFT_OK);
        expect(names[i], offset, got, want[i], counts[i]);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_attention(void)
{
    static const double steps[] = {0, 10, 1000, 1e4, 1e8};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        for (int expanded = 0; expanded < 2; expanded++) check_attention(steps[i], expanded);
}

void offsets_tests(void)
{
    CU_pSuite suite = CU_add_suite("offsets", NULL, NULL);
    CU_add_test(suite, "softmax and log_softmax", test_softmax);
    CU_add_test(suite, "the gradient of logsumexp", test_logsumexp);
    CU_add_test(suite, "cross_entropy, to the second order", test_cross_entropy);
    CU_add_test(suite, "cross_entropy of pairs", test_pairs);
    CU_add_test(suite, "attention", test_attention);
}
