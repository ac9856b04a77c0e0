/* Recurrent layers with many steps are loops: they have the bits of their steps, and a size that does not depend on
 * their number. */
#include "tests.h"
#include "value_pairs.h"

/* The layer `l` with the steps as nodes; `state` becomes the last one. */
static weft_value by_steps(weft_graph *g, weft_recurrent_kind kind, weft_value x, int64_t hidden,
                           const weft_nn_recurrent_options *o, weft_recurrent_state *state)
{
    enum { MAX_STEPS = 32 };
    weft_value all[MAX_STEPS];
    const int64_t batch = weft_dim_of(g, x, 0), len = weft_dim_of(g, x, 1);
    const weft_dtype dtype = weft_dtype_of(g, x);
    const weft_recurrent l =
        weft_nn_recurrent_declare(g, "l", kind, dtype, weft_dim_of(g, x, 2), hidden);
    const weft_value projected = weft_nn_recurrent_project(g, &l, x);
    *state = weft_nn_recurrent_zeros(g, kind, dtype, batch, hidden);
    CU_ASSERT_TRUE_FATAL(len <= MAX_STEPS);
    for (int64_t step = 0; step < len; step++) {
        const int64_t t = o->reverse ? len - 1 - step : step;
        const weft_value row = weft_squeeze(g, weft_slice(g, projected, 1, t, t + 1, 1), 1);
        weft_recurrent_state next = weft_nn_recurrent_step(g, &l, row, *state);
        if (weft_is_value(o->mask)) {
            const weft_value masked = weft_slice(g, o->mask, 1, t, t + 1, 1);
            next.h = weft_where(g, masked, state->h, next.h);
            if (kind == WEFT_LSTM) next.c = weft_where(g, masked, state->c, next.c);
        }
        *state = next;
        all[t] = next.h;
    }
    return weft_stack(g, all, (size_t)len, 1);
}

/* Builds a layer over `len` steps and the same by steps, and compares values and gradients. Returns the nodes of
 * a plan of the layer. */
static size_t compare_with_steps(weft_recurrent_kind kind, weft_dtype dtype, int64_t len,
                                 bool reverse, bool masked)
{
    enum { BATCH = 3, IN = 4, HIDDEN = 5, MAX_TARGETS = 16 };
    weft_error error = WEFT_NO_ERROR;
    weft_nn_recurrent_options o = {.reverse = reverse};
    weft_graph *g = weft_graph_new();
    weft_params *store = weft_params_new();
    const weft_init spread = {WEFT_INIT_NORMAL, 0, 1};
    weft_value x = weft_param(g, "x", dtype, WEFT_SHAPE(BATCH, len, IN), spread), y[2], wrt[8];
    weft_value grads[2][8], targets[2 * MAX_TARGETS];
    weft_recurrent_state last[2];
    size_t n = 0, n_values;
    if (masked) /* the places of negative numbers */
        o.mask = weft_less(g, weft_squeeze(g, weft_slice(g, x, 2, 0, 1, 1), 2),
                           weft_scalar(g, dtype, 0));
    y[0] = weft_nn_recurrent(g, "l", kind, x, HIDDEN, &o, &last[0]);
    weft_graph_share(g, true);
    y[1] = by_steps(g, kind, x, HIDDEN, &o, &last[1]);
    const size_t n_wrt = test_params(g, wrt, 8);
    for (int i = 0; i < 2; i++) {
        const weft_value square = weft_square(g, y[i]);
        weft_grad(g, weft_sum(g, square, WEFT_ALL_AXES, false), wrt, n_wrt, grads[i]);
    }
    for (int i = 0; i < 2; i++) targets[n++] = weft_contiguous(g, y[i]);
    for (int i = 0; i < 2; i++) targets[n++] = last[i].h;
    for (int i = 0; i < 2 && kind == WEFT_LSTM; i++) targets[n++] = last[i].c;
    n_values = n;
    for (size_t k = 0; k < n_wrt; k++)
        for (int i = 0; i < 2; i++) targets[n++] = weft_contiguous(g, grads[i][k]);
    const weft_plan_options check = {.verify = true};
    weft_plan *plan = weft_plan_new(g, targets, n, &check, &error);
    weft_params_init(store, g, 5, &error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, &error) : NULL;
    if (!s) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_TRUE_FATAL(s && weft_session_run(s, NULL) == WEFT_OK);
    const double limit = dtype == WEFT_F64 ? 1e-12 : 1e-4; /* of sums in another order */
    for (size_t i = 0; i < n; i += 2) {
        const double off = pairs_off(g, s, targets + i, 1);
        CU_ASSERT_TRUE(i < n_values ? off == 0 : off < limit);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    plan = weft_plan_new(g, grads[0], n_wrt, NULL, &error);
    const size_t nodes = weft_plan_stats_of(plan).nodes;
    weft_plan_free(plan);
    weft_params_free(store);
    weft_graph_free(g);
    return nodes;
}

/* Layers with many steps have the bits of their steps, and a plan of one size. */
static void test_loops(void)
{
    for (int kind = WEFT_RNN; kind <= WEFT_GRU; kind++)
        for (int i = 0; i < 8; i++) {
            const weft_dtype dtype = i & 1 ? WEFT_F64 : WEFT_F32;
            const weft_recurrent_kind k = (weft_recurrent_kind)kind;
            compare_with_steps(k, dtype, 15, i & 2, i & 4);
            const size_t nodes = compare_with_steps(k, dtype, 16, i & 2, i & 4);
            CU_ASSERT_EQUAL(compare_with_steps(k, dtype, 31, i & 2, i & 4), nodes);
            CU_ASSERT_TRUE(nodes < 100);
        }
}

/* A graph of a billion steps is as small as one of a hundred. */
static void test_giant_loops(void)
{
    static const char *const lengths[] = {"length=100", "length=1000000000"};
    size_t nodes[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        weft_error error = {0};
        weft_built built;
        weft_graph *g = weft_graph_new();
        CU_ASSERT_EQUAL(
            weft_model_build_text(g, weft_model_find("lstm"), &lengths[i], 1, true, &built, &error),
            WEFT_OK);
        nodes[i] = weft_graph_node_count(g);
        weft_graph_free(g);
    }
    CU_ASSERT_EQUAL(nodes[0], nodes[1]);
}

/* The flops of a plan of a layer, as a loop or as nodes. */
static double flops_of_layer(bool loop)
{
    enum { BATCH = 8, LEN = 20, IN = 16, HIDDEN = 32 };
    weft_error error = WEFT_NO_ERROR;
    const weft_nn_recurrent_options o = {.reverse = false};
    weft_recurrent_state last;
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(BATCH, LEN, IN));
    const weft_value y = loop ? weft_nn_recurrent(g, "l", WEFT_LSTM, x, HIDDEN, &o, &last)
                              : by_steps(g, WEFT_LSTM, x, HIDDEN, &o, &last);
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    const double flops = weft_plan_stats_of(plan).flops;
    CU_ASSERT_TRUE(flops >= 2.0 * BATCH * LEN * (IN + HIDDEN) * 4 * HIDDEN); /* the products */
    weft_plan_free(plan);
    weft_graph_free(g);
    return flops;
}

static void test_work(void)
{
    const double loop = flops_of_layer(true), steps = flops_of_layer(false);
    CU_ASSERT_TRUE(loop > 0.95 * steps && loop < 1.05 * steps);
}

void recurrent_loops_tests(void)
{
    CU_pSuite suite = CU_add_suite("recurrent_loops", NULL, NULL);
    CU_add_test(suite, "the bits of the steps, and plans of one size", test_loops);
    CU_add_test(suite, "a billion steps", test_giant_loops);
    CU_add_test(suite, "the work of a loop is that of its steps", test_work);
}
