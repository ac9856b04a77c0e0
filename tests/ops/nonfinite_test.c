/* NaN, infinities and signed zeros: the results and gradients of ops, in f32 and f64, with and
 * without fusion. */
#include "tests.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TARGETS 6

/* A graph over one input x: fills y with its targets. */
typedef struct subject {
    weft_shape shape;
    void (*build)(weft_graph *g, weft_value x, weft_value *y);
    size_t n_targets;
} subject;

static void feed(weft_session *s, weft_value x, weft_dtype dtype, const double *data, size_t n)
{
    float *narrow = calloc(n + 1, sizeof *narrow);
    for (size_t i = 0; i < n; i++) narrow[i] = (float)data[i];
    CU_ASSERT_EQUAL(dtype == WEFT_F64 ? weft_session_feed(s, x, data, n * sizeof *data, NULL)
                                      : weft_session_feed(s, x, narrow, n * sizeof *narrow, NULL),
                    WEFT_OK);
    free(narrow);
}

static double element(const weft_tensor *t, int64_t i)
{
    return t->dtype == WEFT_F64 ? ((double *)t->data)[i] : (double)((float *)t->data)[i];
}

/* Runs it and returns the elements of all targets, one after the other. */
static double *evaluate(const subject *c, weft_dtype dtype, const char *skip, int threads,
                        const double *data, size_t *n)
{
    weft_graph *g = weft_graph_new();
    weft_error error = {0};
    weft_value x = weft_input(g, "x", dtype, c->shape), y[MAX_TARGETS];
    c->build(g, x, y);
    weft_plan *plan = weft_plan_new(g, y, c->n_targets,
                                    &(weft_plan_options){.skip = skip, .verify = true}, &error);
    if (!plan) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    weft_session *s =
        weft_session_new(plan, NULL, &(weft_session_options){.threads = threads}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    feed(s, x, dtype, data, (size_t)weft_shape_numel(c->shape));
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    double *out = NULL;
    *n = 0;
    for (size_t k = 0; k < c->n_targets; k++) {
        weft_tensor t;
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, y[k], &t, NULL) == WEFT_OK);
        const size_t more = (size_t)weft_shape_numel(t.shape);
        out = realloc(out, (*n + more + 1) * sizeof *out);
        for (size_t i = 0; i < more; i++) out[(*n)++] = element(&t, (int64_t)i);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    return out;
}

static const char *const skips[] = {NULL, "fuse", "fuse,cse,fold"};

/* Sixteen roundings. */
static double rounding(weft_dtype dtype)
{
    return 16 * (dtype == WEFT_F64 ? 0x1p-53 : 0x1p-24);
}

/* Whether two numbers are equal up to rounding, or both the same infinity, or both NaN; with
 * `signs`, zeros must have the same sign. */
static bool same(double got, double want, double limit, bool signs)
{
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got)) return got == want;
    if (signs && want == 0 && got == 0) return !signbit(got) == !signbit(want);
    return fabs(got - want) <= limit * fmax(1, fabs(want));
}

static void expect_as(const char *what, const subject *c, weft_dtype dtype, const double *data,
                      const double *expected, size_t n_expected, bool signs)
{
    for (size_t k = 0; k < sizeof skips / sizeof *skips; k++) {
        size_t n;
        double *got = evaluate(c, dtype, skips[k], 2, data, &n);
        CU_ASSERT_EQUAL_FATAL(n, n_expected);
        size_t at = 0;
        while (at < n && same(got[at], expected[at], rounding(dtype), signs)) at++;
        if (at < n)
            fprintf(stderr, "\n    %s, %s, without %s: element %zu is %g, expected %g\n", what,
                    weft_dtype_name(dtype), skips[k] ? skips[k] : "nothing", at, got[at],
                    expected[at]);
        CU_ASSERT_EQUAL(at, n);
        free(got);
    }
}

static void expect(const char *what, const subject *c, const double *data, const double *expected,
                   size_t n, bool signs)
{
    expect_as(what, c, WEFT_F32, data, expected, n, signs);
    expect_as(what, c, WEFT_F64, data, expected, n, signs);
}

/* ---- One operand ---- */

typedef weft_value unary(weft_graph *g, weft_value x);

static weft_value on_grid(weft_graph *g, weft_value x)
{
    return weft_fake_quantize(g, x, 0.5, -2, 3);
}

static weft_value clamped(weft_graph *g, weft_value x)
{
    return weft_clamp(g, x, -1, 1);
}

static weft_value leaky(weft_graph *g, weft_value x)
{
    return weft_leaky_relu(g, x, 0.25);
}

/* y and its gradient, for a cotangent of 1, at x. With `signs`, the sign of a zero y is compared.
 */
typedef struct point {
    const char *name;
    unary *build;
    double x, y, gradient;
    bool signs;
} point;

static const point points[] = {
    {"abs", weft_abs, -0.0, 0.0, 0, true},
    {"abs", weft_abs, 0.0, 0.0, 0, true},
    {"abs", weft_abs, -INFINITY, INFINITY, -1, true},
    {"abs", weft_abs, NAN, NAN, 0, false},
    {"sign", weft_sign, NAN, 0, 0, false},
    {"relu", weft_relu, NAN, NAN, 1, false},
    {"relu", weft_relu, 0, 0, 0, false},
    {"relu", weft_relu, -0.0, 0, 0, false},
    {"relu", weft_relu, INFINITY, INFINITY, 1, false},
    {"relu", weft_relu, -INFINITY, 0, 0, false},
    {"leaky_relu", leaky, NAN, NAN, 0.25, false},
    {"fake_quantize", on_grid, NAN, NAN, 0, false},
    {"fake_quantize", on_grid, -INFINITY, -1, 0, false},
    {"fake_quantize", on_grid, -1.375, -1, 0, false},
    {"fake_quantize", on_grid, -1.125, -1, 1, false},
    {"fake_quantize", on_grid, 0.25, 0, 1, false},
    {"fake_quantize", on_grid, 0.75, 1, 1, false},
    {"fake_quantize", on_grid, 1.625, 1.5, 1, false},
    {"fake_quantize", on_grid, 1.875, 1.5, 0, false},
    {"clamp", clamped, NAN, NAN, 0, false},
    {"clamp", clamped, 1, 1, 1, false},
    {"clamp", clamped, -1, -1, 1, false},
    {"clamp", clamped, 1.5, 1, 0, false},
    {"clamp", clamped, INFINITY, 1, 0, false},
    {"clamp", clamped, -INFINITY, -1, 0, false},
    {"gelu", weft_gelu, -INFINITY, 0, NAN, false},
    {"gelu", weft_gelu, INFINITY, INFINITY, NAN, false},
    {"gelu", weft_gelu, NAN, NAN, NAN, false},
    {"gelu", weft_gelu, -50, 0, 0, false},
    {"gelu_tanh", weft_gelu_tanh, -INFINITY, NAN, NAN, false},
    {"gelu_tanh", weft_gelu_tanh, INFINITY, INFINITY, NAN, false},
    {"gelu_tanh", weft_gelu_tanh, NAN, NAN, NAN, false},
    {"silu", weft_silu, -INFINITY, NAN, NAN, false},
    {"silu", weft_silu, INFINITY, INFINITY, NAN, false},
    {"silu", weft_silu, NAN, NAN, NAN, false},
    {"softplus", weft_softplus, -INFINITY, 0, 0, false},
    {"softplus", weft_softplus, INFINITY, INFINITY, 1, false},
};

static unary *under_test;

static void build_unary(weft_graph *g, weft_value x, weft_value *y)
{
    y[0] = under_test(g, x);
    weft_value ones = weft_fill(g, weft_dtype_of(g, x), weft_shape_of(g, x), 1);
    weft_grad_of(g, y, &ones, 1, &x, 1, &y[1]);
}

/* On 37 elements, so that kernels have a remainder after the last whole vector. */
static void test_unary(void)
{
    enum { N = 37 };
    for (size_t k = 0; k < sizeof points / sizeof *points; k++) {
        double x[N], expected[2 * N];
        const subject c = {WEFT_SHAPE(N), build_unary, 2};
        for (int i = 0; i < N; i++) {
            x[i] = points[k].x;
            expected[i] = points[k].y;
            expected[N + i] = points[k].gradient;
        }
        under_test = points[k].build;
        expect(points[k].name, &c, x, expected, 2 * N, points[k].signs);
    }
}

/* ---- Two operands ---- */

typedef weft_value binary(weft_graph *g, weft_value a, weft_value b);
static binary *pair_under_test;

/* The operands are rows 0 and 1 of x; the targets are y and the gradient of x. */
static void build_pair(weft_graph *g, weft_value x, weft_value *y)
{
    y[0] = pair_under_test(g, weft_slice(g, x, 0, 0, 1, 1), weft_slice(g, x, 0, 1, 2, 1));
    weft_value ones = weft_fill(g, weft_dtype_of(g, x), weft_shape_of(g, y[0]), 1);
    weft_grad_of(g, y, &ones, 1, &x, 1, &y[1]);
}

static void test_extremes(void)
{
    const subject c = {WEFT_SHAPE(2, 6), build_pair, 2};
    const double x[] = {NAN, 1, NAN, 2, 1, INFINITY, 1, NAN, NAN, 2, 3, 0};
    const double maxima[] = {NAN, NAN, NAN, 2, 3, INFINITY, 1, 1, 1, .5, 0, 1, 1, 1, 1, .5, 1, 0};
    const double minima[] = {NAN, NAN, NAN, 2, 1, 0, 1, 1, 1, .5, 1, 0, 1, 1, 1, .5, 0, 1};
    pair_under_test = weft_maximum;
    expect("maximum", &c, x, maxima, 18, false);
    pair_under_test = weft_minimum;
    expect("minimum", &c, x, minima, 18, false);
}

/* The gradient is -(a / b) / b, so for a = 0 and a b so small that 1 / b is infinite it is zero,
 * not NaN. */
static void test_division(void)
{
    const subject c = {WEFT_SHAPE(2, 4), build_pair, 2};
    pair_under_test = weft_div;
    for (int wide = 0; wide < 2; wide++) {
        const double tiny = wide ? 1e-310 : 1e-40;
        const double x[] = {0, tiny, 1, -3, tiny, tiny, 2, INFINITY};
        const double expected[] = {0,   1, 0.5, -0.0,      INFINITY, INFINITY,
                                   0.5, 0, 0,   -INFINITY, -0.25,    0};
        expect_as("div", &c, wide ? WEFT_F64 : WEFT_F32, x, expected, 12, false);
    }
}

/* ---- Reductions ---- */

static void build_logsumexp(weft_graph *g, weft_value x, weft_value *y)
{
    y[0] = weft_logsumexp(g, x, WEFT_AXES(-1), false);
    weft_value ones = weft_fill(g, weft_dtype_of(g, x), weft_shape_of(g, y[0]), 1);
    weft_grad_of(g, y, &ones, 1, &x, 1, &y[1]);
}

static void test_logsumexp(void)
{
    const subject c = {WEFT_SHAPE(6, 2), build_logsumexp, 2};
    const double low = -INFINITY, high = INFINITY;
    const double x[] = {low, low, NAN, 0, low, 4, high, 1, high, high, low, high};
    const double expected[] = {low, NAN, 4, high, high, high, 0,   0, NAN,
                               NAN, 0,   1, NAN,  0,    NAN,  NAN, 0, NAN};
    expect("logsumexp", &c, x, expected, 18, false);
}

/* ---- Cross entropy ---- */

#define CLASSES 37

static weft_cross_entropy_loss_options loss_options;

/* Every row has target 1, except for the last, which is ignored. The values are the loss, its
 * gradient, and the gradient of the sum of that gradient's squares, which is built from plain ops.
 */
static void build_loss(weft_graph *g, weft_value x, weft_value *y)
{
    int32_t at[8];
    const int64_t rows = weft_dim_of(g, x, 0);
    for (int64_t i = 0; i < rows; i++) at[i] = i < rows - 1 ? 1 : 7;
    weft_value targets = weft_constant(g, WEFT_I32, WEFT_SHAPE(rows), at);
    y[0] = weft_cross_entropy_loss(g, x, targets, &loss_options);
    weft_grad(g, y[0], &x, 1, &y[1]);
    weft_grad(g, weft_sum(g, weft_square(g, y[1]), WEFT_ALL_AXES, false), &x, 1, &y[2]);
}

enum row_kind { ZEROS, ALL_NAN, ONE_NAN, ALL_LOW, NAN_AMONG_LOW, ONE_HIGH };

static void fill_row(double *x, enum row_kind kind)
{
    static const double rest[] = {0, NAN, 0, -INFINITY, -INFINITY, 0};
    static const double odd[] = {0, NAN, NAN, -INFINITY, NAN, INFINITY};
    for (int i = 0; i < CLASSES; i++) x[i] = i == CLASSES - 2 ? odd[kind] : rest[kind];
}

/* One row of a kind, and an ignored row of NaN. */
static void check_loss(const char *what, enum row_kind kind, double loss, double gradient)
{
    const subject c = {WEFT_SHAPE(2, CLASSES), build_loss, 3};
    double x[2 * CLASSES], expected[1 + 4 * CLASSES] = {loss};
    const double e = loss_options.label_smoothing;
    fill_row(x, kind);
    fill_row(x + CLASSES, ALL_NAN);
    for (int i = 0; i < CLASSES; i++) {
        const double even = (1 - e) / CLASSES;
        expected[1 + i] = kind == ZEROS ? (i == 1 ? even - 1 + e : even) : gradient;
    }
    for (int i = 0; i < CLASSES; i++) { /* 2 H g, where H = diag p - p p^T with equal p */
        double sum = 0;
        for (int k = 0; k < CLASSES; k++) sum += expected[1 + k];
        const double of = (expected[1 + i] - sum / CLASSES) / CLASSES * 2;
        expected[1 + 2 * CLASSES + i] = kind == ZEROS ? of : gradient;
    }
    expect(what, &c, x, expected, 1 + 4 * CLASSES, false);
}

static void test_cross_entropy(void)
{
    for (int smooth = 0; smooth < 2; smooth++) {
        loss_options = (weft_cross_entropy_loss_options){.ignore_index = 7,
                                                         .has_ignore_index = true,
                                                         .label_smoothing = smooth ? 0.125 : 0,
                                                         .reduction = WEFT_REDUCE_SUM};
        check_loss("zeros", ZEROS, log(CLASSES), 0);
        check_loss("a row of NaN", ALL_NAN, NAN, NAN);
        check_loss("a row with one NaN", ONE_NAN, NAN, NAN);
        check_loss("a row of -inf", ALL_LOW, INFINITY, 0);
        check_loss("a NaN among -inf", NAN_AMONG_LOW, NAN, NAN);
        check_loss("a row with +inf", ONE_HIGH, NAN, NAN);
    }
}

/* ---- Attention ---- */

enum { QUERIES = 70, KEYS = 130, DIM = 4, LAST_SEEN = 20, DEAD = 5 };

/* Keys from LAST_SEEN on hold NaN and infinities in k and v, and are masked out for every query.
 * For query DEAD all keys are masked out. */
static uint8_t hidden[QUERIES][KEYS];

static void build_attention(weft_graph *g, weft_value x, weft_value *y, bool expanded)
{
    const weft_dtype dtype = weft_dtype_of(g, x);
    for (int i = 0; i < QUERIES; i++)
        for (int j = 0; j < KEYS; j++) hidden[i][j] = i == DEAD || j >= LAST_SEEN;
    weft_value mask = weft_constant(g, WEFT_BOOL, WEFT_SHAPE(QUERIES, KEYS), hidden);
    weft_value q =
        weft_reshape(g, weft_slice(g, x, 0, 0, QUERIES, 1), WEFT_SHAPE(1, QUERIES, 1, DIM));
    weft_value k =
        weft_reshape(g, weft_slice(g, x, 0, QUERIES, WEFT_END, 1), WEFT_SHAPE(1, KEYS, 1, DIM));
    weft_value in[9] = {q, k, k, mask}, out[3], grads[3];
    y[0] = weft_sdpa(g, q, k, k, &(weft_sdpa_options){.mask = mask});
    weft_node_info node = weft_graph_node(g, weft_producer_of(g, y[0]));
    if (expanded) node.op->expand(&(weft_expand){g, node.attr, 4, 3, in, out});
    weft_value lse = weft_value_from_id(g, node.first_out + 1);
    weft_value low = weft_value_from_id(g, node.first_out + 2);
    weft_value y0 = y[0], dy = weft_fill(g, dtype, weft_shape_of(g, y[0]), 1);
    if (expanded) y[0] = out[0];
    const weft_value all[8] = {q, k, k, y0, lse, low, dy, mask};
    const weft_op *grad = weft_op_find("sdpa_grad");
    if (expanded) {
        memcpy(in, all, sizeof all);
        grad->expand(&(weft_expand){g, node.attr, 8, 3, in, grads});
    } else {
        weft_apply(g, grad, node.attr, all, 8, grads);
    }
    /* The result and gradient of query DEAD, then the gradients of all masked keys. */
    y[0] = weft_slice(g, y[0], 1, DEAD, DEAD + 1, 1);
    y[1] = weft_slice(g, grads[0], 1, DEAD, DEAD + 1, 1);
    y[2] = weft_slice(g, grads[1], 1, LAST_SEEN, WEFT_END, 1);
    y[3] = weft_slice(g, grads[2], 1, LAST_SEEN, WEFT_END, 1);
}

static void build_fused(weft_graph *g, weft_value x, weft_value *y)
{
    build_attention(g, x, y, false);
}

static void build_expanded(weft_graph *g, weft_value x, weft_value *y)
{
    build_attention(g, x, y, true);
}

static void check_hidden(double odd)
{
    static double x[(QUERIES + KEYS) * DIM], expected[2 * DIM + 2 * (KEYS - LAST_SEEN) * DIM];
    const size_t n = sizeof expected / sizeof *expected;
    uint64_t seed = 4;
    for (int i = 0; i < (QUERIES + KEYS) * DIM; i++)
        x[i] = i < (QUERIES + LAST_SEEN) * DIM ? test_uniform(&seed, -1, 1) : i % 7 ? 1 : odd;
    const subject fused = {WEFT_SHAPE(QUERIES + KEYS, DIM), build_fused, 4};
    const subject expanded = {WEFT_SHAPE(QUERIES + KEYS, DIM), build_expanded, 4};
    expect("attention", &fused, x, expected, n, false);
    expect("expanded attention", &expanded, x, expected, n, false);
}

static void test_hidden(void)
{
    check_hidden(NAN);
    check_hidden(INFINITY);
    check_hidden(-INFINITY);
}

/* Causal attention with more queries than keys: the first queries attend to nothing. */
static void build_causal(weft_graph *g, weft_value x, weft_value *y)
{
    weft_value q = weft_fill(g, weft_dtype_of(g, x), WEFT_SHAPE(1, 5, 1, 2), 0.5);
    weft_value grads[2], in[2] = {q, x};
    weft_value z = weft_sdpa(g, q, x, x, &(weft_sdpa_options){.causal = true});
    weft_value ones = weft_fill(g, weft_dtype_of(g, x), weft_shape_of(g, z), 1);
    weft_grad_of(g, &z, &ones, 1, in, 2, grads);
    y[0] = weft_slice(g, z, 1, 0, 3, 1);
    y[1] = weft_slice(g, grads[0], 1, 0, 3, 1);
}

static void test_causal(void)
{
    const subject c = {WEFT_SHAPE(1, 2, 1, 2), build_causal, 2};
    expect("causal attention", &c, (double[]){NAN, INFINITY, -INFINITY, NAN}, (double[12]){0}, 12,
           false);
}

/* ---- Fusion ---- */

/* Ops that are fused on blocks of many shapes, in which NaN arises in several ways. */
static void build_fusable(weft_graph *g, weft_value x, weft_value *y)
{
    weft_value w = weft_slice(g, x, 0, 0, 65, 1), row = weft_slice(g, x, 0, 3, 4, 1);
    weft_value column = weft_slice(g, x, 1, 0, 1, 1);
    weft_value product = weft_matmul(g, x, w);
    weft_value a = weft_add(g, product, row), b = weft_sub(g, column, a);
    weft_value c = weft_mul(g, weft_relu(g, b), weft_gelu(g, a));
    weft_value d = weft_maximum(g, weft_minimum(g, c, row), weft_silu(g, x));
    y[0] = weft_add(g, d, weft_div(g, a, b));
    y[1] = weft_softmax(g, weft_add(g, y[0], x), -1);
    y[2] = weft_layer_norm(g, weft_tanh(g, c), WEFT_NO_VALUE, WEFT_NO_VALUE, 1e-5);
    weft_grad(g, weft_sum(g, y[0], WEFT_ALL_AXES, false), &x, 1, &y[3]);
}

/* Fused or not, NaN are in the same elements, and all other elements have the same bits. The bits
 * of NaN itself are unspecified. */
static void test_fusion(void)
{
    enum { ROWS = 150, COLUMNS = 65 };
    static const double odd[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 1e300};
    static double x[ROWS * COLUMNS];
    const subject c = {WEFT_SHAPE(ROWS, COLUMNS), build_fusable, 4};
    uint64_t seed = 9;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const bool rare = i / COLUMNS >= 65 && test_random(&seed) % 40 == 0;
        x[i] = rare ? odd[test_random(&seed) % 6] : test_uniform(&seed, -1, 1);
    }
    for (int dtype = WEFT_F32; dtype <= WEFT_F64; dtype++) {
        size_t n, m, nans = 0, wrong = 0;
        double *fused = evaluate(&c, (weft_dtype)dtype, NULL, 1, x, &n);
        for (int k = 0; k < 4; k++) {
            double *other =
                evaluate(&c, (weft_dtype)dtype, k % 2 ? "fuse" : NULL, k < 2 ? 1 : 3, x, &m);
            CU_ASSERT_EQUAL_FATAL(m, n);
            for (size_t i = 0; i < n; i++) {
                nans += isnan(fused[i]);
                wrong += !(isnan(fused[i]) ? isnan(other[i])
                                           : !memcmp(&fused[i], &other[i], sizeof *other));
            }
            free(other);
        }
        CU_ASSERT_EQUAL(wrong, 0);
        CU_ASSERT_TRUE(nans > 1000 && nans < 3 * n);
        free(fused);
    }
}

void nonfinite_tests(void)
{
    CU_pSuite suite = CU_add_suite("nonfinite", NULL, NULL);
    CU_add_test(suite, "elementwise ops, with gradients", test_unary);
    CU_add_test(suite, "maximum and minimum, with gradients", test_extremes);
    CU_add_test(suite, "division by subnormal numbers, with gradients", test_division);
    CU_add_test(suite, "logsumexp, with gradients", test_logsumexp);
    CU_add_test(suite, "cross entropy, with gradients of two orders", test_cross_entropy);
    CU_add_test(suite, "attention: masked keys and values", test_hidden);
    CU_add_test(suite, "attention: queries before the first key", test_causal);
    CU_add_test(suite, "NaN in the same elements with and without fusion", test_fusion);
}
