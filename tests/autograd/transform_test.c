/* weft/transform.h by hand-computed cases: forward mode, products with Hessians, Jacobians; what a
 * plan of them computes, and in which order. */
#include "tests.h"

#include <weft/transform.h>

#include <stdlib.h>
#include <string.h>

/* Feeds x = data (f64 [n]), runs once and fetches `count` targets, one after another. */
static bool evaluate(weft_graph *g, weft_value x, const double *data, size_t n,
                     const weft_value *targets, size_t count, double *out)
{
    weft_error error = {0};
    weft_plan *plan =
        weft_plan_new(g, targets, count, &(weft_plan_options){.verify = true}, &error);
    weft_session *s = plan ? weft_session_new(plan, NULL, NULL, &error) : NULL;
    if (s) weft_session_feed(s, x, data, n * sizeof *data, NULL); /* a result may be constant */
    bool good = s && weft_session_run(s, &error) == WEFT_OK;
    for (size_t i = 0; good && i < count; i++) {
        const size_t numel = (size_t)weft_shape_numel(weft_shape_of(g, targets[i]));
        good = weft_session_fetch(s, targets[i], out, numel * sizeof *out, &error) == WEFT_OK;
        out += numel;
    }
    if (!good) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_TRUE(good);
    weft_session_free(s);
    weft_plan_free(plan);
    return good;
}

static void expect_numbers(const double *got, const double *expected, size_t n)
{
    for (size_t i = 0; i < n; i++) CU_ASSERT_DOUBLE_EQUAL(got[i], expected[i], ROUNDING_F64);
}

/* ---- Forward mode ---- */

/* x^3 along 1: first, second and third derivative, each the JVP of the one before. */
static void test_orders(void)
{
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SCALAR);
    const weft_value one = weft_scalar(g, WEFT_F64, 1);
    weft_value d[4];
    d[0] = weft_mul(g, weft_mul(g, x, x), x);
    for (int i = 0; i < 3; i++) weft_jvp(g, &d[i], 1, &x, &one, 1, &d[i + 1]);
    const double at = 1.5, expected[] = {at * at * at, 3 * at * at, 6 * at, 6};
    double got[4] = {0};
    if (evaluate(g, x, &at, 1, d, 4, got)) expect_numbers(got, expected, 4);
    weft_graph_free(g);
}

/* Outputs that depend on both inputs, on one and on none, that are an input, and that are named
 * twice; inputs in the middle of the graph. x = 0.3, y = e^x along 2 and 5. */
static void test_values(void)
{
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SCALAR), y = weft_exp(g, x);
    const weft_value product = weft_mul(g, x, y), alone = weft_scalar(g, WEFT_F64, 7);
    const weft_value wrt[2] = {x, y}, outputs[5] = {product, y, alone, x, product};
    const weft_value two = weft_scalar(g, WEFT_F64, 2), five = weft_scalar(g, WEFT_F64, 5);
    const weft_value tangents[2] = {two, five};
    weft_value derivatives[5];
    weft_jvp(g, outputs, 5, wrt, tangents, 2, derivatives);
    /* y moves along its own tangent and with x. */
    const double at = 0.3, dy = 5 + 2 * exp(at);
    const double expected[5] = {2 * exp(at) + at * dy, dy, 0, 2, 2 * exp(at) + at * dy};
    double got[5] = {0};
    if (evaluate(g, x, &at, 1, derivatives, 5, got)) expect_numbers(got, expected, 5);
    weft_jvp(g, NULL, 0, wrt, tangents, 2, NULL);
    weft_jvp(g, outputs, 5, NULL, NULL, 0, derivatives);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
    if (evaluate(g, x, &at, 1, derivatives, 5, got)) expect_numbers(got, (double[5]){0}, 5);
    weft_graph_free(g);
}

/* f32 from f64: the derivative has the dtype of the output. */
static void test_dtypes(void)
{
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(2));
    const weft_value y = weft_square(g, weft_cast(g, x, WEFT_F32));
    const weft_value v = weft_constant(g, WEFT_F64, WEFT_SHAPE(2), (double[]){1, -3});
    weft_value dy;
    weft_jvp(g, &y, 1, &x, &v, 1, &dy);
    CU_ASSERT_EQUAL(weft_dtype_of(g, dy), WEFT_F32);
    dy = weft_cast(g, dy, WEFT_F64);
    double got[2] = {0};
    if (evaluate(g, x, (double[]){0.5, 2}, 2, &dy, 1, got))
        expect_numbers(got, (double[]){1, -12}, 2);
    weft_graph_free(g);
}

/* ---- What a plan of a JVP computes ---- */

enum { WIDTH = 64 };

static weft_value network(weft_graph *g, weft_value x, size_t layers)
{
    for (size_t i = 0; i < layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "w%zu", i);
        const weft_value w =
            weft_param(g, name, WEFT_F32, WEFT_SHAPE(WIDTH, WIDTH), WEFT_INIT_XAVIER);
        x = weft_tanh(g, weft_matmul(g, x, w));
    }
    return x;
}

/* The arena of a network and its derivative along the input, and in *forward that of the network.
 * Two matrix products a layer: the first transposition, whose products go backwards, is not
 * computed. */
static size_t arena_of(size_t layers, size_t *forward)
{
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(4 * WIDTH, WIDTH));
    const weft_value v = weft_input(g, "v", WEFT_F32, WEFT_SHAPE(4 * WIDTH, WIDTH));
    weft_value targets[2] = {network(g, x, layers)};
    weft_plan *alone = weft_plan_new(g, targets, 1, NULL, NULL);
    weft_jvp(g, targets, 1, &x, &v, 1, &targets[1]);
    weft_plan *both = weft_plan_new(g, targets, 2, &(weft_plan_options){.verify = true}, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(alone);
    CU_ASSERT_PTR_NOT_NULL_FATAL(both);
    CU_ASSERT_EQUAL(test_count_nodes(alone, "matmul"), layers);
    CU_ASSERT_EQUAL(test_count_nodes(both, "matmul"), 2 * layers);
    CU_ASSERT_EQUAL(test_count_nodes(both, "fill"), 0);
    const size_t arena = weft_plan_stats_of(both).arena_bytes;
    *forward = weft_plan_stats_of(alone).arena_bytes;
    weft_plan_free(alone);
    weft_plan_free(both);
    weft_graph_free(g);
    return arena;
}

/* Each derivative follows its node, so values of earlier layers are not retained: the arena does
 * not grow with the layers. It has 7 tensors instead of 3: x, v, a layer's input and output, their
 * derivatives, and y^2 of tanh's slope. */
static void test_plan(void)
{
    size_t forward, deep;
    const size_t six = arena_of(6, &forward), twelve = arena_of(12, &deep);
    CU_ASSERT_EQUAL(six, twelve);
    CU_ASSERT_EQUAL(forward, deep);
    CU_ASSERT_TRUE(3 * six <= 7 * forward);
}

/* Names and roles of the nodes that a JVP adds. */
static void test_roles(void)
{
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(3));
    const weft_value v = weft_input(g, "v", WEFT_F64, WEFT_SHAPE(3));
    weft_graph_push_scope(g, "layer");
    weft_value targets[2] = {weft_exp(g, x)};
    weft_graph_pop_scope(g);
    const uint32_t origin = weft_graph_node(g, weft_producer_of(g, targets[0])).origin;
    weft_jvp(g, targets, 1, &x, &v, 1, &targets[1]);
    const weft_node_info node = weft_graph_node(g, weft_producer_of(g, targets[1]));
    CU_ASSERT_STRING_EQUAL(node.scope, "jvp.layer");
    CU_ASSERT_EQUAL(node.role.direction, WEFT_FORWARD);
    CU_ASSERT_EQUAL(node.role.gradient_of, origin);
    CU_ASSERT_EQUAL(weft_graph_set_role(g, (weft_role){WEFT_FORWARD, 0}).gradient_of, 0);
    weft_graph_free(g);
}

/* ---- An op whose rule is not linear: it clips the gradient ---- */

static bool infer_same(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return true;
}

static void clip_gradient(weft_vjp *v)
{
    v->grad_in[0] = weft_clamp(v->graph, v->grad_out[0], -1, 1);
}

static void expand_same(weft_expand *e)
{
    e->out[0] = e->in[0];
}

static const weft_op clipped = {.name = "clipped",
                                .doc = "x, with a clipped gradient",
                                .min_in = 1,
                                .max_in = 1,
                                .n_out = 1,
                                .infer = infer_same,
                                .vjp = clip_gradient,
                                .expand = expand_same};

static void test_not_linear(void)
{
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(3));
    weft_graph_push_scope(g, "enc");
    const weft_value y = weft_apply(g, &clipped, NULL, &x, 1, NULL);
    weft_graph_pop_scope(g);
    const weft_value z = weft_exp(g, y);
    weft_value dz;
    weft_jvp(g, &z, 1, &x, &x, 1, &dz);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_NO_GRADIENT);
    CU_ASSERT_STRING_EQUAL(weft_graph_error(g)->where, "jvp.enc/clipped");
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, "not linear"));
    CU_ASSERT_FALSE(weft_is_value(dz));
    weft_graph_free(g);
}

/* ---- Gradients of a program's choice ---- */

/* Runs on x = 1.75 and compares value, gradient and derivative along 1 with those expected. */
static void expect_derivatives(weft_graph *g, weft_value x, weft_value y, const double expected[3])
{
    const double at = 1.75;
    const weft_value one = weft_scalar(g, WEFT_F64, 1);
    weft_value targets[3] = {y};
    double got[3] = {0};
    weft_grad(g, y, &x, 1, &targets[1]);
    weft_jvp(g, &y, 1, &x, &one, 1, &targets[2]);
    if (evaluate(g, x, &at, 1, targets, 3, got)) expect_numbers(got, expected, 3);
    weft_graph_free(g);
}

/* x round(x), where rounding has the derivative 1; and x stop(x^2). */
static void test_custom(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SCALAR);
    weft_value y = weft_custom_gradient(g, weft_round(g, x), x);
    expect_derivatives(g, x, weft_mul(g, x, y), (double[]){3.5, 3.75, 3.75});
    g = weft_graph_new();
    x = weft_input(g, "x", WEFT_F64, WEFT_SCALAR);
    y = weft_stop_gradient(g, weft_square(g, x));
    expect_derivatives(g, x, weft_mul(g, x, y), (double[]){5.359375, 3.0625, 3.0625});
}

/* y = sqrt(x), differentiated as the root of y^2 - x that a step of Newton's method improves: the
 * derivative of an implicit function. */
static void test_implicit(void)
{
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SCALAR);
    const weft_value root = weft_stop_gradient(g, weft_sqrt(g, x));
    const weft_value off = weft_sub(g, weft_square(g, root), x);
    const weft_value step = weft_div(g, off, weft_mul_scalar(g, root, 2));
    const weft_value y = weft_custom_gradient(g, root, weft_sub(g, root, step));
    const double slope = 0.5 / sqrt(1.75);
    expect_derivatives(g, x, y, (double[]){sqrt(1.75), slope, slope});
}

/* A plan without gradients computes no surrogate, and has no node for either call; integers pass
 * through. */
static void test_custom_plan(void)
{
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(3));
    const weft_value y = weft_custom_gradient(g, weft_sign(g, x), weft_tanh(g, x));
    const weft_value ids = weft_stop_gradient(g, weft_cast(g, x, WEFT_I32));
    weft_plan *plan = weft_plan_new(g, WEFT_VALUES(y, ids), NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    CU_ASSERT_EQUAL(test_count_nodes(plan, "sign"), 1);
    CU_ASSERT_EQUAL(test_count_nodes(plan, "tanh"), 0);
    CU_ASSERT_EQUAL(test_count_nodes(plan, "custom_gradient"), 0);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* ---- Hessians ---- */

/* loss = x0^2 x1 + 3 x1 x2 + sum e^y, of x [3] and y [2], which is exp(x[:2]). */
static weft_value small_loss(weft_graph *g, weft_value x, weft_value *y)
{
    weft_value part[3];
    weft_chunk(g, x, 0, 3, part);
    *y = weft_exp(g, weft_slice(g, x, 0, 0, 2, 1));
    const weft_value a = weft_mul(g, weft_square(g, part[0]), part[1]);
    const weft_value b = weft_mul_scalar(g, weft_mul(g, part[1], part[2]), 3);
    const weft_value c = weft_sum(g, weft_exp(g, *y), WEFT_ALL_AXES, false);
    return weft_add(g, weft_sum(g, weft_add(g, a, b), WEFT_ALL_AXES, false), c);
}

static void test_hessian(void)
{
    const double at[3] = {0.5, -0.25, 2};
    weft_graph *g = weft_graph_new();
    weft_value y, hessian, product, forward, grad;
    const weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(3));
    const weft_value loss = small_loss(g, x, &y);
    const weft_value v = weft_constant(g, WEFT_F64, WEFT_SHAPE(3), (double[]){1, -2, 3});
    weft_hessian(g, loss, &x, 1, &hessian);
    weft_hvp(g, loss, &x, &v, 1, &product);
    weft_grad(g, loss, &x, 1, &grad);
    weft_jvp(g, &grad, 1, &x, &v, 1, &forward);
    double expected[9] = {2 * at[1], 2 * at[0], 0, 2 * at[0], 0, 3, 0, 3, 0}, got[15] = {0};
    for (int i = 0; i < 2; i++) { /* of e^(e^x) */
        const double e = exp(at[i]);
        expected[4 * i] += exp(e) * (e * e + e);
    }
    double of_v[3];
    for (int i = 0; i < 3; i++)
        of_v[i] = expected[3 * i] - 2 * expected[3 * i + 1] + 3 * expected[3 * i + 2];
    const weft_value targets[3] = {hessian, product, forward};
    if (evaluate(g, x, at, 3, targets, 3, got)) {
        expect_numbers(got, expected, 9);
        expect_numbers(got + 9, of_v, 3);
        expect_numbers(got + 12, of_v, 3);
    }
    weft_graph_free(g);
}

/* Blocks of two values, one of which depends on the other, and a scalar. */
static void test_blocks(void)
{
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(2, 1));
    const weft_value a = weft_scalar(g, WEFT_F64, 3), wrt[2] = {x, a};
    /* a^2 sum x^3: blocks 6 a^2 x, 6 a x^2, 2 sum x^3 */
    const weft_value cube = weft_mul(g, weft_square(g, x), x);
    const weft_value sum = weft_sum(g, cube, WEFT_ALL_AXES, false);
    weft_value blocks[4];
    weft_hessian(g, weft_mul(g, weft_square(g, a), sum), wrt, 2, blocks);
    CU_ASSERT_TRUE(weft_shape_equal(weft_shape_of(g, blocks[0]), WEFT_SHAPE(2, 1, 2, 1)));
    CU_ASSERT_TRUE(weft_shape_equal(weft_shape_of(g, blocks[1]), WEFT_SHAPE(2, 1)));
    CU_ASSERT_TRUE(weft_shape_equal(weft_shape_of(g, blocks[2]), WEFT_SHAPE(2, 1)));
    CU_ASSERT_TRUE(weft_shape_equal(weft_shape_of(g, blocks[3]), WEFT_SCALAR));
    const double at[2] = {0.5, -1};
    const double expected[9] = {27, 0, 0, -54, 4.5, 18, 4.5, 18, 2 * (0.125 - 1)};
    double got[9] = {0};
    if (evaluate(g, x, at, 2, blocks, 4, got)) expect_numbers(got, expected, 9);
    weft_graph_free(g);
}

/* ---- Jacobians ---- */

/* y[i] = sin(i + 1) x[i % n_x]^2 with n_y rows and n_x columns, by rows or by columns. */
static void check_jacobian(int64_t n_y, int64_t n_x)
{
    double at[8], factors[8], expected[64] = {0}, got[64] = {1};
    int32_t from[8];
    for (int i = 0; i < n_x; i++) at[i] = 0.25 * i - 0.5;
    for (int i = 0; i < n_y; i++) {
        factors[i] = sin(i + 1.0);
        from[i] = i % (int32_t)n_x;
        expected[i * n_x + from[i]] = 2 * factors[i] * at[from[i]];
    }
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(n_x));
    const weft_value squares = weft_reshape(g, weft_square(g, x), WEFT_SHAPE(n_x, 1));
    const weft_value index = weft_constant(g, WEFT_I32, WEFT_SHAPE(n_y), from);
    const weft_value rows = weft_embedding(g, squares, index, -1);
    const weft_value factor = weft_constant(g, WEFT_F64, WEFT_SHAPE(n_y, 1), factors);
    const weft_value y = weft_mul(g, rows, factor);
    weft_value jacobian;
    weft_jacobian(g, &y, 1, &x, 1, &jacobian);
    CU_ASSERT_TRUE(weft_shape_equal(weft_shape_of(g, jacobian), WEFT_SHAPE(n_y, 1, n_x)));
    if (evaluate(g, x, at, (size_t)n_x, &jacobian, 1, got))
        expect_numbers(got, expected, (size_t)(n_y * n_x));
    weft_graph_free(g);
}

static void test_jacobians(void)
{
    check_jacobian(2, 5);
    check_jacobian(5, 2);
    check_jacobian(4, 4);
    check_jacobian(1, 8);
    check_jacobian(8, 1);
}

/* Two outputs of two inputs: the order of the list. */
static void test_several(void)
{
    for (int by_rows = 0; by_rows < 2; by_rows++) {
        weft_graph *g = weft_graph_new();
        const int64_t n = by_rows ? 3 : 1;
        const weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(n));
        const weft_value a = weft_scalar(g, WEFT_F64, 5), wrt[2] = {x, a};
        const weft_value sum = weft_sum(g, x, WEFT_ALL_AXES, false);
        const weft_value pair =
            weft_mul(g, weft_constant(g, WEFT_F64, WEFT_SHAPE(2, 2), (double[]){1, 2, 3, 4}), sum);
        const weft_value outputs[2] = {weft_mul(g, a, sum), by_rows ? sum : pair};
        weft_value jacobians[4];
        weft_jacobian(g, outputs, 2, wrt, 2, jacobians);
        const double at[3] = {2, -1, 0.5}, total = by_rows ? 1.5 : 2;
        const double rows[] = {5, 5, 5, total, 1, 1, 1, 0},
                     columns[] = {5, total, 1, 2, 3, 4, 0, 0, 0, 0};
        double got[10] = {0};
        if (evaluate(g, x, at, (size_t)n, jacobians, 4, got))
            expect_numbers(got, by_rows ? rows : columns, by_rows ? 8 : 10);
        weft_graph_free(g);
    }
}

/* Values without elements, and the largest number of rows. */
static void test_sizes(void)
{
    weft_graph *g = weft_graph_new();
    weft_value jacobian;
    const weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(0, 2)), y = weft_square(g, x);
    weft_jacobian(g, &y, 1, &x, 1, &jacobian);
    CU_ASSERT_TRUE(weft_shape_equal(weft_shape_of(g, jacobian), WEFT_SHAPE(0, 2, 0, 2)));
    weft_jacobian(g, NULL, 0, &x, 1, NULL);
    weft_hessian(g, weft_scalar(g, WEFT_F64, 1), NULL, 0, NULL);
    weft_hvp(g, weft_scalar(g, WEFT_F64, 1), NULL, NULL, 0, NULL);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
    const weft_value big = weft_input(g, "big", WEFT_F64, WEFT_SHAPE(WEFT_MAX_JACOBIAN + 1));
    const weft_value cube = weft_mul(g, weft_square(g, big), big);
    weft_jacobian(g, &cube, 1, &big, 1, &jacobian);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_TOO_LARGE);
    CU_ASSERT_FALSE(weft_is_value(jacobian));
    weft_graph_free(g);
}

/* A Jacobian whose size overflows, and one of too many dimensions. */
static void test_large_jacobians(void)
{
    weft_graph *g = weft_graph_new();
    weft_value jacobian;
    weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE((int64_t)1 << 56));
    weft_value y = weft_slice(g, x, 0, 0, 1024, 1);
    weft_jacobian(g, &y, 1, &x, 1, &jacobian);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_TOO_LARGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, "Jacobian is too large"));
    weft_graph_free(g);
    g = weft_graph_new();
    x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(1, 1, 1, 1, 2));
    y = weft_square(g, x);
    weft_jacobian(g, &y, 1, &x, 1, &jacobian);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_SHAPE);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, "ranks add up to more than 8"));
    CU_ASSERT_FALSE(weft_is_value(jacobian));
    weft_graph_free(g);
}

void transform_tests(void)
{
    CU_pSuite suite = CU_add_suite("transform", NULL, NULL);
    CU_add_test(suite, "JVPs: three orders of x^3", test_orders);
    CU_add_test(suite, "JVPs: several, unrelated, intermediate and equal values", test_values);
    CU_add_test(suite, "JVPs: dtypes", test_dtypes);
    CU_add_test(suite, "JVPs: nodes and memory of a plan", test_plan);
    CU_add_test(suite, "JVPs: scopes and roles", test_roles);
    CU_add_test(suite, "JVPs: a gradient that is not linear", test_not_linear);
    CU_add_test(suite, "gradients of surrogates, and none", test_custom);
    CU_add_test(suite, "the gradient of an implicit function", test_implicit);
    CU_add_test(suite, "a plan without surrogates", test_custom_plan);
    CU_add_test(suite, "Hessians and their products", test_hessian);
    CU_add_test(suite, "Hessians: blocks", test_blocks);
    CU_add_test(suite, "Jacobians by rows and by columns", test_jacobians);
    CU_add_test(suite, "Jacobians of several values", test_several);
    CU_add_test(suite, "Jacobians: no elements, and too many", test_sizes);
    CU_add_test(suite, "Jacobians that are too large", test_large_jacobians);
}
