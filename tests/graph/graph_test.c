/* The builder: names, scopes, sticky errors, and what it says to bad input. */
#include "tests.h"

#include <weft/pass.h>

#include <math.h>
#include <string.h>

static void expect_error(weft_graph *g, weft_status status, const char *where, const char *part)
{
    const weft_error *e = weft_graph_error(g);
    CU_ASSERT_EQUAL(e->status, status);
    if (!strstr(e->where, where) || !strstr(e->message, part)) {
        fprintf(stderr, "\n    got \"%s: %s\", expected \"%s\" and \"%s\"\n", e->where, e->message,
                where, part);
        CU_FAIL("another message");
    }
    weft_graph_free(g);
}

static void test_names(void)
{
    weft_graph *g = weft_graph_new();
    weft_graph_push_scope(g, "enc.%d", 0);
    weft_graph_push_scope(g, "attn");
    weft_value w = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(2, 3), WEFT_INIT_ZEROS);
    CU_ASSERT_STRING_EQUAL(weft_name_of(g, w), "enc.0.attn.weight");
    weft_graph_share(g, true);
    weft_value again = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(2, 3), WEFT_INIT_ZEROS);
    weft_graph_share(g, false);
    CU_ASSERT_EQUAL(w.id, again.id);
    weft_graph_pop_scope(g);
    weft_graph_pop_scope(g);
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3));
    CU_ASSERT_STRING_EQUAL(weft_name_of(g, x), "x");
    CU_ASSERT_EQUAL(weft_graph_find(g, "enc.0.attn.weight").id, w.id);
    CU_ASSERT_FALSE(weft_is_value(weft_graph_find(g, "nothing")));
    weft_value sum = weft_name(g, weft_add(g, x, w), "sum");
    CU_ASSERT_EQUAL(weft_graph_find(g, "sum").id, sum.id);
    CU_ASSERT_EQUAL(test_count_params(g), 1);
    weft_error error = {0};
    CU_ASSERT_EQUAL(weft_graph_verify(g, &error), WEFT_OK);
    weft_graph_free(g);
}

/* A list has what is declared so far, and later declarations do not change it. */
static void test_lists(void)
{
    weft_graph *g = weft_graph_new();
    size_t n, more;
    CU_ASSERT_PTR_NULL(weft_graph_params(g, &n));
    CU_ASSERT_EQUAL(n, 0);
    const weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SCALAR, WEFT_INIT_ONES);
    const weft_value s = weft_state(g, "s", WEFT_F32, WEFT_SCALAR, WEFT_INIT_ZEROS);
    const weft_value *params = weft_graph_params(g, &n), *states = weft_graph_states(g, &more);
    CU_ASSERT_TRUE_FATAL(n == 1 && more == 2);
    for (int i = 0; i < 100; i++) {
        char name[8];
        snprintf(name, sizeof name, "p%d", i);
        weft_param(g, name, WEFT_F32, WEFT_SCALAR, WEFT_INIT_ONES);
    }
    CU_ASSERT_EQUAL(params[0].id, w.id);
    CU_ASSERT_TRUE(states[0].id == w.id && states[1].id == s.id);
    CU_ASSERT_TRUE(test_count_params(g) == 101 && test_count_states(g) == 102);
    CU_ASSERT_EQUAL(weft_graph_params(g, NULL)[100].id, weft_graph_find(g, "p99").id);
    CU_ASSERT_PTR_NULL(weft_graph_params(NULL, &n));
    CU_ASSERT_EQUAL(n, 0);
    weft_graph_free(g);
}

/* A state by its whole name lies in the scope where it is declared. Names have any length. */
static void test_whole_names(void)
{
    char name[2000];
    weft_graph *g = weft_graph_new();
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    weft_graph_push_scope(g, "layer");
    weft_value w = weft_state_named(g, "other.w", WEFT_F32, WEFT_SHAPE(2), WEFT_INIT_ZEROS, true);
    CU_ASSERT_STRING_EQUAL(weft_name_of(g, w), "other.w");
    CU_ASSERT_STRING_EQUAL(weft_graph_node(g, weft_producer_of(g, w)).scope, "layer");
    CU_ASSERT_EQUAL(test_count_params(g), 1);
    weft_value s = weft_state_named(g, "s", WEFT_F32, WEFT_SHAPE(2), WEFT_INIT_ZEROS, false);
    CU_ASSERT_EQUAL(weft_graph_find(g, "s").id, s.id);
    weft_value x = weft_param(g, name, WEFT_F32, WEFT_SHAPE(2), WEFT_INIT_ZEROS);
    CU_ASSERT_EQUAL(strlen(weft_name_of(g, x)), sizeof name - 1 + strlen("layer."));
    CU_ASSERT_EQUAL(weft_graph_find(g, weft_name_of(g, x)).id, x.id);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
    weft_state_named(g, "", WEFT_F32, WEFT_SHAPE(2), WEFT_INIT_ZEROS, true);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
    weft_graph_free(g);
}

static void test_sticky(void)
{
    weft_graph *g = weft_graph_new();
    weft_value a = weft_input(g, "a", WEFT_F32, WEFT_SHAPE(2, 3));
    weft_value b = weft_input(g, "b", WEFT_F32, WEFT_SHAPE(4));
    weft_graph_push_scope(g, "layer");
    weft_value c = weft_add(g, a, b);
    CU_ASSERT_FALSE(weft_is_value(c));
    size_t nodes = weft_graph_node_count(g);
    CU_ASSERT_FALSE(weft_is_value(weft_relu(g, c)));
    CU_ASSERT_FALSE(weft_is_value(weft_input(g, "late", WEFT_F32, WEFT_SCALAR)));
    CU_ASSERT_EQUAL(weft_graph_node_count(g), nodes);
    weft_error error = {0};
    CU_ASSERT_PTR_NULL(weft_plan_new(g, &a, 1, NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_SHAPE);
    expect_error(g, WEFT_BAD_SHAPE, "layer/add", "[2, 3]");
}

static void test_bad_input(void)
{
    weft_graph *g = weft_graph_new(), *other = weft_graph_new();
    weft_value mine = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2));
    weft_value theirs = weft_input(other, "x", WEFT_F32, WEFT_SHAPE(2));
    weft_add(g, mine, theirs);
    expect_error(g, WEFT_BAD_ARGUMENT, "add", "another graph");
    weft_add(other, theirs, WEFT_NO_VALUE);
    expect_error(other, WEFT_BAD_ARGUMENT, "add", "WEFT_NO_VALUE");

    g = weft_graph_new();
    weft_input(g, "x", WEFT_F32, WEFT_SHAPE(INT64_MAX / 2, 4));
    expect_error(g, WEFT_TOO_LARGE, "input", "overflow");
    g = weft_graph_new();
    weft_input(g, NULL, WEFT_F32, WEFT_SCALAR);
    expect_error(g, WEFT_BAD_ARGUMENT, "weft_input", "name");
    g = weft_graph_new();
    weft_input(g, "x", (weft_dtype)77, WEFT_SCALAR);
    expect_error(g, WEFT_BAD_DTYPE, "input", "dtype 77");
    g = weft_graph_new();
    weft_input(g, "x", WEFT_F32, (weft_shape){9, {1, 1, 1, 1, 1, 1, 1, 1}});
    expect_error(g, WEFT_TOO_LARGE, "input", "");
    g = weft_graph_new();
    weft_param(g, "w", WEFT_F32, WEFT_SHAPE(2), WEFT_INIT_ZEROS);
    weft_param(g, "w", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ZEROS);
    expect_error(g, WEFT_BAD_ARGUMENT, "weft_param", "\"w\"");
    g = weft_graph_new();
    weft_graph_pop_scope(g);
    expect_error(g, WEFT_BAD_ARGUMENT, "weft_graph_pop_scope", "no scope is open");
    g = weft_graph_new();
    weft_apply(g, NULL, NULL, NULL, 0, NULL);
    expect_error(g, WEFT_BAD_ARGUMENT, "weft_apply", "descriptor");

    CU_ASSERT_EQUAL(weft_graph_status(NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_FALSE(weft_is_value(weft_add(NULL, mine, mine)));
    weft_graph_push_scope(NULL, "x");
    weft_graph_free(NULL);
    weft_plan_free(NULL);
    weft_session_free(NULL);
    CU_ASSERT_EQUAL(weft_session_run(NULL, NULL), WEFT_BAD_ARGUMENT);
}

/* A graph takes no value of one that was freed, wherever in memory it lies itself. */
static void test_stale_values(void)
{
    int refused = 0;
    for (int i = 0; i < 200; i++) {
        weft_graph *g = weft_graph_new();
        weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2));
        weft_graph_free(g);
        g = weft_graph_new();
        weft_input(g, "y", WEFT_F32, WEFT_SHAPE(2));
        weft_add(g, x, x);
        refused += strstr(weft_graph_error(g)->message, "another graph") != NULL;
        weft_graph_free(g);
    }
    CU_ASSERT_EQUAL(refused, 200);
}

/* Axes outside [-rank, rank) are refused by every builder that takes one. */
static void test_bad_axes(void)
{
    static const int axes[] = {3, 7, -4, -5, -6, -7};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        for (int op = 0; op < 9; op++) {
            weft_graph *g = weft_graph_new();
            const int axis = axes[i];
            weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3, 4)), y = WEFT_NO_VALUE;
            weft_value ids = weft_input(g, "ids", WEFT_I32, WEFT_SHAPE(2, 3, 4));
            switch (op) {
            case 0:
                y = weft_sum(g, x, WEFT_AXES(axis), false);
                break;
            case 1:
                y = weft_argmax(g, x, axis, false);
                break;
            case 2:
                y = weft_cumsum(g, x, axis, false);
                break;
            case 3:
                y = weft_gather(g, x, ids, axis);
                break;
            case 4:
                y = weft_scatter_add(g, x, ids, x, axis);
                break;
            case 5:
                y = weft_slice(g, x, axis, 0, 1, 1);
                break;
            case 6:
                y = weft_concat(g, &x, 1, axis);
                break;
            case 7:
                y = weft_softmax(g, x, axis);
                break;
            default:
                y = weft_transpose(g, x, axis, 0);
                break;
            }
            CU_ASSERT_FALSE(weft_is_value(y));
            CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
            weft_graph_free(g);
        }
}

/* y = x * x + 1 in a session, fed, run and fetched; and what feeds and fetches refuse. */
static void test_session(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(4));
    weft_value y = weft_add_scalar(g, weft_mul(g, x, x), 1.0);
    weft_error error;
    weft_plan *plan = weft_plan_new(g, &y, 1, &(weft_plan_options){.verify = true}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    float in[4] = {1, -2, 3, 0.5f}, out[4] = {0};
    CU_ASSERT_EQUAL(weft_session_feed(s, x, in, sizeof in, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, y, out, sizeof out, NULL), WEFT_OK);
    for (int i = 0; i < 4; i++) CU_ASSERT_EQUAL(out[i], in[i] * in[i] + 1);
    CU_ASSERT_EQUAL(weft_session_feed(s, x, in, 3, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "16 bytes; got 3"));
    CU_ASSERT_EQUAL(weft_session_feed(s, y, in, sizeof in, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_session_feed(s, (weft_value){3, 12345}, in, sizeof in, NULL),
                    WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_session_fetch(s, y, out, 1, NULL), WEFT_BAD_ARGUMENT);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* A state is read by all who mean its old contents before the update writes the new. */
static void test_update_order(void)
{
    weft_graph *g = weft_graph_new();
    weft_value w = weft_param(g, "w", WEFT_F64, WEFT_SHAPE(3), WEFT_INIT_ONES);
    weft_value next = weft_assign(g, w, weft_add_scalar(g, w, 1.0));
    weft_value after = weft_mul_scalar(g, next, 10.0);
    weft_value before = weft_mul_scalar(g, w, 10.0);
    weft_value targets[] = {after, before};
    weft_error error;
    weft_params *params = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_init(params, g, 1, &error), WEFT_OK);
    weft_plan *plan = weft_plan_new(g, targets, 2, &(weft_plan_options){.verify = true}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    weft_session *s = weft_session_new(plan, params, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (int run = 0; run < 3; run++) {
        double a[3], b[3];
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_fetch(s, after, a, sizeof a, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_fetch(s, before, b, sizeof b, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(b[2], 10.0 * (run + 1));
        CU_ASSERT_EQUAL(a[2], 10.0 * (run + 2));
    }
    weft_session_free(s);
    weft_plan_free(plan);

    weft_value both = weft_sub(g, next, w);
    CU_ASSERT_PTR_NULL(weft_plan_new(g, &both, 1, NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "old and the new"));
    weft_params_free(params);
    weft_graph_free(g);
}

/* An index out of range ends the run with the node's name, before any update. */
static void test_fault(void)
{
    weft_graph *g = weft_graph_new();
    weft_value table = weft_param(g, "table", WEFT_F32, WEFT_SHAPE(5, 2), WEFT_INIT_ONES);
    weft_value ids = weft_input(g, "ids", WEFT_I32, WEFT_SHAPE(3));
    weft_graph_push_scope(g, "embed");
    weft_value rows = weft_embedding(g, table, ids, -1);
    weft_graph_pop_scope(g);
    weft_value loss = weft_sum(g, rows, WEFT_ALL_AXES, false);
    weft_value lr = weft_scalar(g, WEFT_F32, 0.5);
    weft_optimizer sgd = {.kind = WEFT_SGD};
    weft_value step = weft_train_update(g, loss, &table, 1, lr, &sgd, NULL);
    weft_error error;
    weft_params *params = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_init(params, g, 1, &error), WEFT_OK);
    weft_plan *plan = weft_plan_new(g, &step, 1, &(weft_plan_options){.verify = true}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    weft_session *s = weft_session_new(plan, params, NULL, &error);
    int32_t bad[3] = {0, 7, 2}, good[3] = {0, 1, 1};
    weft_tensor t;
    CU_ASSERT_TRUE(weft_params_find(params, "table", &t));
    weft_session_feed(s, ids, bad, sizeof bad, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, &error), WEFT_BAD_INDEX);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.where, "embed/embedding"));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "index 7 is outside [0, 5)"));
    CU_ASSERT_EQUAL(((float *)t.data)[0], 1.0f);
    weft_session_feed(s, ids, good, sizeof good, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(((float *)t.data)[0], 0.5f);
    CU_ASSERT_EQUAL(((float *)t.data)[2], 0.0f);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
}

/* A program's own op, registered by nothing but its descriptor. */
static bool infer_double(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return weft_infer_float(infer, 0);
}
static void kernel_double(const weft_call *call, int64_t tile)
{
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    int64_t n = weft_shape_numel(call->out[0].shape);
    for (int64_t i = tile * 16384; i < n && i < (tile + 1) * 16384; i++) y[i] = 2 * x[i];
}
static const weft_op op_double = {.name = "double",
                                  .doc = "2 x",
                                  .min_in = 1,
                                  .max_in = 1,
                                  .n_out = 1,
                                  .infer = infer_double,
                                  .kernel = {{kernel_double}},
                                  .gradient = WEFT_GRADIENT_NONE};

static void test_own_op(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_fill(g, WEFT_F32, WEFT_SHAPE(20000), 3.0);
    weft_value y = weft_apply(g, &op_double, NULL, &x, 1, NULL);
    weft_error error;
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, y, &t, NULL) == WEFT_OK);
    CU_ASSERT_EQUAL(((float *)t.data)[19999], 6.0f);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* A copy has the scope and the names of its node, and leaves the open scope alone. */
static void test_copy(void)
{
    weft_graph *g = weft_graph_new(), *copy = weft_graph_new();
    const float data[2] = {3, 4};
    weft_graph_push_scope(g, "enc");
    weft_value in[2] = {weft_constant(g, WEFT_F32, WEFT_SHAPE(2), data),
                        weft_param(g, "w", WEFT_F32, WEFT_SHAPE(2), WEFT_INIT_ONES)};
    weft_value y = weft_name(g, weft_mul(g, in[0], in[1]), "y"), own[2], out;
    const uint64_t key = weft_graph_random_key(g);
    weft_graph_pop_scope(g);
    weft_graph_push_scope(copy, "mine");
    for (int i = 0; i < 2; i++)
        own[i] = weft_graph_copy_node(copy, g, weft_producer_of(g, in[i]), NULL, NULL);
    weft_graph_copy_node(copy, g, weft_producer_of(g, y), own, &out);
    CU_ASSERT_EQUAL(weft_graph_find(copy, "enc.y").id, out.id);
    CU_ASSERT_EQUAL(weft_graph_find(copy, "enc.w").id, own[1].id);
    CU_ASSERT_STRING_EQUAL(weft_graph_node(copy, weft_producer_of(copy, out)).scope, "enc");
    weft_value later = weft_name(copy, weft_exp(copy, out), "z");
    CU_ASSERT_STRING_EQUAL(weft_name_of(copy, later), "mine.z");
    CU_ASSERT_NOT_EQUAL(weft_graph_random_key(copy), key);
    weft_graph_free(g); /* the constant's data are also copied */
    CU_ASSERT_EQUAL(test_count_params(copy), 1);
    CU_ASSERT_EQUAL(weft_graph_verify(copy, NULL), WEFT_OK);
    float got[2] = {0, 0};
    weft_params *params = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_init(params, copy, 1, NULL), WEFT_OK);
    weft_plan *plan = weft_plan_new(copy, &out, 1, NULL, NULL);
    weft_session *s = weft_session_new(plan, params, NULL, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, out, got, sizeof got, NULL), WEFT_OK);
    CU_ASSERT_TRUE(got[0] == 3 && got[1] == 4);
    CU_ASSERT_FALSE(weft_is_value(weft_graph_copy_node(copy, copy, 99, NULL, NULL)));
    CU_ASSERT_EQUAL(weft_graph_status(copy), WEFT_BAD_ARGUMENT);
    CU_ASSERT_FALSE(weft_is_value(weft_graph_copy_node(NULL, copy, 0, NULL, NULL)));
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(copy);
}

static void test_cost(void)
{
    weft_graph *g = weft_graph_new();
    weft_cost cost = {-1, -1};
    weft_value a = weft_input(g, "a", WEFT_F32, WEFT_SHAPE(2, 3));
    weft_value b = weft_input(g, "b", WEFT_F32, WEFT_SHAPE(3, 5)), c = weft_matmul(g, a, b);
    weft_value view = weft_reshape(g, c, WEFT_SHAPE(10));
    CU_ASSERT_EQUAL(weft_graph_node_cost(g, weft_producer_of(g, c), &cost, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(cost.flops, 2 * 2 * 3 * 5);
    CU_ASSERT_EQUAL(cost.bytes, 4 * (2 * 3 + 3 * 5 + 2 * 5));
    CU_ASSERT_EQUAL(weft_graph_node_cost(g, weft_producer_of(g, view), &cost, NULL), WEFT_OK);
    CU_ASSERT_TRUE(cost.flops == 0 && cost.bytes == 0);
    cost.flops = 1;
    CU_ASSERT_EQUAL(weft_graph_node_cost(g, weft_producer_of(g, a), &cost, NULL), WEFT_OK);
    CU_ASSERT_TRUE(cost.flops == 0 && cost.bytes == 0);
    weft_graph_free(g);
}

/* A layer that is built twice under its name has the same weights only if the program says so. */
static void test_declared_twice(void)
{
    for (int shared = 0; shared < 2; shared++) {
        weft_graph *g = weft_graph_new();
        weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3));
        if (shared) CU_ASSERT_FALSE(weft_graph_share(g, true));
        for (int i = 0; i < 3; i++) x = weft_nn_linear(g, "hidden", x, 3, true);
        if (shared) {
            CU_ASSERT_TRUE(weft_graph_share(g, false));
            CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
            CU_ASSERT_EQUAL(test_count_params(g), 2);
        } else {
            const weft_error *e = weft_graph_error(g);
            CU_ASSERT_EQUAL(e->status, WEFT_BAD_ARGUMENT);
            CU_ASSERT_PTR_NOT_NULL(strstr(e->where, "hidden"));
            CU_ASSERT_PTR_NOT_NULL(strstr(e->message, "\"hidden.weight\" is declared again"));
            CU_ASSERT_PTR_NOT_NULL(strstr(e->message, "it is node 1, read by hidden/matmul"));
            CU_ASSERT_PTR_NOT_NULL(strstr(e->message, "weft_graph_share"));
        }
        weft_graph_free(g);
    }
}

void graph_tests(void)
{
    CU_pSuite suite = CU_add_suite("graph", NULL, NULL);
    CU_add_test(suite, "names, scopes, shared parameters", test_names);
    CU_add_test(suite, "lists of parameters and states", test_lists);
    CU_add_test(suite, "whole names", test_whole_names);
    CU_add_test(suite, "a parameter that is declared twice", test_declared_twice);
    CU_add_test(suite, "errors are sticky", test_sticky);
    CU_add_test(suite, "bad input", test_bad_input);
    CU_add_test(suite, "values of a freed graph", test_stale_values);
    CU_add_test(suite, "axes out of range", test_bad_axes);
    CU_add_test(suite, "feed, run, fetch", test_session);
    CU_add_test(suite, "updates come after readers", test_update_order);
    CU_add_test(suite, "a fault in the data stops the run", test_fault);
    CU_add_test(suite, "an op from outside the library", test_own_op);
    CU_add_test(suite, "copies of nodes", test_copy);
    CU_add_test(suite, "the work of nodes", test_cost);
}
