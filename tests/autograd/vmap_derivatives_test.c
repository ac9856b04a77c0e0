/* Batches of derivatives, derivatives of batches, and batches of batches (weft_vmap) of a small network
 * in f64, against a loop over the examples; and what weft_vmap refuses. */
#include "value_pairs.h"
#include "tests.h"

#include <weft/transform.h>

#include <string.h>

enum { IN = 3, HIDDEN = 5, OUT = 2, BATCH = 4, WEIGHTS = 3 };

/* A network of one hidden layer, its parameters and the loss of one example. */
typedef struct net {
    weft_graph *g;
    weft_value w[WEIGHTS]; /* weights, bias, weights */
    weft_value x, t, xs, ts;
    weft_value loss, losses[BATCH];
} net;

static weft_value loss_of(const net *n, const weft_value *w, weft_value x, weft_value t)
{
    weft_graph *g = n->g;
    const weft_value row = weft_reshape(g, x, WEFT_SHAPE(1, IN));
    weft_value h = weft_tanh(g, weft_add(g, weft_matmul(g, row, w[0]), w[1]));
    h = weft_reshape(g, weft_matmul(g, h, w[2]), WEFT_SHAPE(OUT));
    return weft_sum(g, weft_square(g, weft_sub(g, h, t)), WEFT_ALL_AXES, false);
}

static weft_value constant_of(weft_graph *g, weft_shape shape, uint64_t seed)
{
    return random_like(g, weft_fill(g, WEFT_F64, shape, 0), seed);
}

static weft_value row_of(const net *n, weft_value batch, int64_t e)
{
    const weft_value row = weft_slice(n->g, batch, 0, e, e + 1, 1);
    return weft_squeeze(n->g, row, 0);
}

static net open_net(void)
{
    net n = {.g = weft_graph_new()};
    n.w[0] = constant_of(n.g, WEFT_SHAPE(IN, HIDDEN), 1);
    n.w[1] = constant_of(n.g, WEFT_SHAPE(HIDDEN), 2);
    n.w[2] = constant_of(n.g, WEFT_SHAPE(HIDDEN, OUT), 3);
    n.xs = constant_of(n.g, WEFT_SHAPE(BATCH, IN), 4);
    n.ts = constant_of(n.g, WEFT_SHAPE(BATCH, OUT), 5);
    n.x = weft_input(n.g, "x", WEFT_F64, WEFT_SHAPE(IN));
    n.t = weft_input(n.g, "t", WEFT_F64, WEFT_SHAPE(OUT));
    n.loss = loss_of(&n, n.w, n.x, n.t);
    for (int e = 0; e < BATCH; e++) {
        const weft_value x = row_of(&n, n.xs, e), t = row_of(&n, n.ts, e);
        n.losses[e] = loss_of(&n, n.w, x, t);
    }
    return n;
}

/* Runs pairs of targets, and closes the network. */
static void expect_pairs(net *n, const weft_value *targets, size_t n_pairs)
{
    weft_error error = WEFT_NO_ERROR;
    if (weft_graph_status(n->g))
        fprintf(stderr, "\n    %s: %s\n", weft_graph_error(n->g)->where,
                weft_graph_error(n->g)->message);
    CU_ASSERT_EQUAL(weft_graph_verify(n->g, &error), WEFT_OK);
    weft_plan *plan = weft_plan_new(n->g, targets, 2 * n_pairs, NULL, &error);
    weft_session *s = plan ? weft_session_new(plan, NULL, NULL, &error) : NULL;
    CU_ASSERT_TRUE(s && weft_session_run(s, &error) == WEFT_OK);
    const double off = s ? pairs_off(n->g, s, targets, n_pairs) : INFINITY;
    if (!(off < 1e-13)) fprintf(stderr, "\n    off by %.3g; %s\n", off, error.message);
    CU_ASSERT_TRUE(off < 1e-13);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(n->g);
}

static void over_examples(net *n, const weft_value *one, size_t count, weft_value *whole)
{
    weft_vmap(n->g, one, count, (weft_value[]){n->x, n->t}, (weft_value[]){n->xs, n->ts}, 2, whole);
}

/* The gradients of each example, from one gradient. */
static void test_per_example_gradients(void)
{
    net n = open_net();
    weft_value one[WEIGHTS], whole[WEIGHTS], each[BATCH][WEIGHTS], targets[2 * WEIGHTS];
    weft_grad(n.g, n.loss, n.w, WEIGHTS, one);
    over_examples(&n, one, WEIGHTS, whole);
    for (int e = 0; e < BATCH; e++) weft_grad(n.g, n.losses[e], n.w, WEIGHTS, each[e]);
    for (int k = 0; k < WEIGHTS; k++) {
        weft_value list[BATCH];
        for (int e = 0; e < BATCH; e++) list[e] = each[e][k];
        targets[2 * k] = whole[k];
        targets[2 * k + 1] = weft_stack(n.g, list, BATCH, 0);
    }
    expect_pairs(&n, targets, WEIGHTS);
}

/* The gradient, forward mode, and products with the Hessian of the sum of a batch. */
static void test_derivatives_of_a_batch(void)
{
    net n = open_net();
    weft_value whole, targets[6 * WEIGHTS + 2], v[WEIGHTS], a[WEIGHTS], b[WEIGHTS];
    size_t k = 0;
    over_examples(&n, &n.loss, 1, &whole);
    const weft_value sum = weft_sum(n.g, whole, WEFT_ALL_AXES, false);
    const weft_value loop = weft_add_n(n.g, n.losses, BATCH);
    for (int i = 0; i < WEIGHTS; i++) v[i] = random_like(n.g, n.w[i], 20 + (uint64_t)i);
    weft_grad(n.g, sum, n.w, WEIGHTS, a);
    weft_grad(n.g, loop, n.w, WEIGHTS, b);
    for (int i = 0; i < WEIGHTS; i++) targets[k++] = a[i], targets[k++] = b[i];
    weft_hvp(n.g, sum, n.w, v, WEIGHTS, a);
    weft_hvp(n.g, loop, n.w, v, WEIGHTS, b);
    for (int i = 0; i < WEIGHTS; i++) targets[k++] = a[i], targets[k++] = b[i];
    weft_jvp(n.g, &sum, 1, n.w, v, WEIGHTS, &targets[k]);
    weft_jvp(n.g, &loop, 1, n.w, v, WEIGHTS, &targets[k + 1]);
    expect_pairs(&n, targets, k / 2 + 1);
}

/* Forward mode, a product with the Hessian, and the whole Hessian of each example. */
static void test_batches_of_derivatives(void)
{
    net n = open_net();
    const weft_value v = constant_of(n.g, WEFT_SHAPE(IN), 9);
    weft_value one[3], whole[3], list[3][BATCH], targets[6];
    weft_jvp(n.g, &n.loss, 1, &n.x, &v, 1, &one[0]);
    weft_hvp(n.g, n.loss, &n.x, &v, 1, &one[1]);
    weft_hessian(n.g, n.loss, &n.x, 1, &one[2]);
    over_examples(&n, one, 3, whole);
    for (int e = 0; e < BATCH; e++) {
        const weft_value x = row_of(&n, n.xs, e), t = row_of(&n, n.ts, e);
        const weft_value loss = loss_of(&n, n.w, x, t);
        weft_jvp(n.g, &loss, 1, &x, &v, 1, &list[0][e]);
        weft_hvp(n.g, loss, &x, &v, 1, &list[1][e]);
        weft_hessian(n.g, loss, &x, 1, &list[2][e]);
    }
    for (int k = 0; k < 3; k++) {
        targets[2 * k] = whole[k];
        targets[2 * k + 1] = weft_stack(n.g, list[k], BATCH, 0);
    }
    expect_pairs(&n, targets, 3);
}

/* An ensemble of networks on each example: losses [networks, examples]. */
static void test_nested(void)
{
    enum { NETS = 3 };
    net n = open_net();
    weft_value whole, nested, many[WEIGHTS], rows[NETS];
    for (int i = 0; i < WEIGHTS; i++) {
        weft_shape shape = weft_shape_of(n.g, n.w[i]), all = {shape.rank + 1, {NETS}};
        for (int d = 0; d < shape.rank; d++) all.dim[d + 1] = shape.dim[d];
        many[i] = constant_of(n.g, all, 30 + (uint64_t)i);
    }
    over_examples(&n, &n.loss, 1, &whole);
    weft_vmap(n.g, &whole, 1, n.w, many, WEIGHTS, &nested);
    for (int m = 0; m < NETS; m++) {
        weft_value w[WEIGHTS], losses[BATCH];
        for (int i = 0; i < WEIGHTS; i++) w[i] = row_of(&n, many[i], m);
        for (int e = 0; e < BATCH; e++) {
            const weft_value x = row_of(&n, n.xs, e), t = row_of(&n, n.ts, e);
            losses[e] = loss_of(&n, w, x, t);
        }
        rows[m] = weft_stack(n.g, losses, BATCH, 0);
    }
    const weft_value stack = weft_stack(n.g, rows, NETS, 0);
    expect_pairs(&n, (weft_value[]){nested, stack}, 1);
}

/* Stopped gradients stay stopped, outputs that depend on no batched input are repeated, an input may
 * be in the middle of the graph, and may be an output. */
static void test_edges(void)
{
    net n = open_net();
    weft_graph *g = n.g;
    const weft_value middle = weft_square(g, n.x),
                     y = weft_mul(g, weft_stop_gradient(g, middle), middle);
    const weft_value s = weft_sum(g, n.w[1], WEFT_ALL_AXES, false);
    weft_value whole[3], grad;
    weft_vmap(g, (weft_value[]){y, s, middle}, 3, &middle, &n.xs, 1, whole);
    const weft_value total = weft_sum(g, whole[0], WEFT_ALL_AXES, false);
    weft_grad(g, total, &n.xs, 1, &grad); /* of the factor that is not stopped */
    CU_ASSERT_EQUAL(whole[2].id, n.xs.id);
    const weft_value square = weft_square(g, n.xs);
    const weft_value repeated = weft_broadcast_to(g, s, WEFT_SHAPE(BATCH));
    expect_pairs(&n, (weft_value[]){whole[0], square, whole[1], repeated, grad, n.xs}, 3);
}

/* A program's own op without a rule is refused by its name, and so is a value of the highest rank. */
static bool infer_same(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return true;
}

static bool alias_same(const void *attr, const weft_type *in, const weft_layout *in_layout,
                       const weft_type *out, weft_layout *out_layout)
{
    (void)attr, (void)in, (void)out;
    *out_layout = *in_layout;
    return true;
}

static void test_refused(void)
{
    static const weft_op own = {.name = "own",
                                .doc = "y = x",
                                .min_in = 1,
                                .max_in = 1,
                                .n_out = 1,
                                .infer = infer_same,
                                .takes = WEFT_TAKES_ANY,
                                .alias = alias_same};
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2));
    const weft_value xs = weft_input(g, "xs", WEFT_F32, WEFT_SHAPE(3, 2));
    const weft_value y = weft_apply(g, &own, NULL, &x, 1, NULL);
    weft_value whole;
    weft_vmap(g, &y, 1, &x, &xs, 1, &whole);
    CU_ASSERT_FALSE(weft_is_value(whole));
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->where, "own"));
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, "no batching rule"));
    weft_graph_free(g);

    g = weft_graph_new();
    const weft_value a = weft_input(g, "a", WEFT_F32, WEFT_SHAPE(2));
    const weft_value as = weft_input(g, "as", WEFT_F32, WEFT_SHAPE(3, 2));
    const weft_value high = weft_reshape(g, a, WEFT_SHAPE(1, 1, 1, 1, 1, 1, 1, 2));
    weft_vmap(g, &high, 1, &a, &as, 1, &whole);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_SHAPE);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, "more than 8 dimensions"));
    weft_graph_free(g);
}

void vmap_derivatives_tests(void)
{
    CU_pSuite suite = CU_add_suite("vmap_derivatives", NULL, NULL);
    CU_add_test(suite, "the gradient of each example", test_per_example_gradients);
    CU_add_test(suite, "derivatives of a batch", test_derivatives_of_a_batch);
    CU_add_test(suite, "a batch of derivatives", test_batches_of_derivatives);
    CU_add_test(suite, "a batch of a batch", test_nested);
    CU_add_test(suite, "shared outputs, stopped gradients, inputs in the middle", test_edges);
    CU_add_test(suite, "what is refused", test_refused);
}
