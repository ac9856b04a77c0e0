/* Passes of a program's own: what they replace, how they are skipped, and what is refused. */
#include "tests.h"

#include "base/platform.h"

#include <stdlib.h>
#include <string.h>

/* ---- What passes replace ---- */

/* neg(neg(x)) becomes x. */
static bool drop_double_neg(weft_rewrite *r)
{
    if (r->node.op != weft_op_find("neg")) return false;
    const weft_node_info inner = weft_graph_node(r->graph, weft_producer_of(r->graph, r->in[0]));
    if (inner.op != r->node.op) return false;
    r->out[0] = weft_value_from_id(r->graph, inner.in[0]);
    return true;
}
static const weft_pass double_neg = {
    .name = "double_neg", .doc = "neg(neg(x)) becomes x", .visit = drop_double_neg};

static weft_value twice_negated(weft_graph *g)
{
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(3));
    return weft_name(g, weft_neg(g, weft_neg(g, weft_tanh(g, x))), "y");
}

static size_t negs_with(const weft_graph *g, weft_value y, const char *skip)
{
    weft_error error = {0};
    const weft_plan_options options = {
        .skip = skip, .verify = true, .passes = &double_neg, .n_passes = 1};
    weft_plan *plan = weft_plan_new(g, &y, 1, &options, &error);
    if (!plan) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    size_t n = test_count_nodes(plan, "neg");
    weft_plan_free(plan);
    return n;
}

static void test_replace(void)
{
    weft_graph *g = weft_graph_new();
    weft_value y = twice_negated(g);
    CU_ASSERT_EQUAL(negs_with(g, y, NULL), test_skips_pass("all") ? 2 : 0);
    CU_ASSERT_EQUAL(negs_with(g, y, "double_neg"), 2);
    CU_ASSERT_EQUAL(negs_with(g, y, "cse,double_neg"), 2);
    CU_ASSERT_EQUAL(negs_with(g, y, "all"), 2);
    weft_graph_free(g);
}

static void test_replace_env(void)
{
    char *old = getenv("WEFT_SKIP"), *copy = old ? strdup(old) : NULL;
    weft_graph *g = weft_graph_new();
    weft_value y = twice_negated(g);
    weft__os_set_variable("WEFT_SKIP", NULL);
    CU_ASSERT_EQUAL(negs_with(g, y, NULL), 0);
    weft__os_set_variable("WEFT_SKIP", "double_neg");
    CU_ASSERT_EQUAL(negs_with(g, y, NULL), 2);
    /* A plan without the pass does not know its name. */
    weft_error error = {0};
    CU_ASSERT_PTR_NULL(weft_plan_new(g, &y, 1, NULL, &error));
    CU_ASSERT_STRING_EQUAL(error.where, "WEFT_SKIP");
    weft__os_set_variable("WEFT_SKIP", NULL);
    if (copy) weft__os_set_variable("WEFT_SKIP", copy);
    free(copy);
    weft_graph_free(g);
}

/* Every add reads its first input twice: the copy takes the inputs that the pass has put there. */
static bool double_first(weft_rewrite *r)
{
    if (r->node.op == weft_op_find("add")) r->in[1] = r->in[0];
    return false;
}

static void test_other_inputs(void)
{
    weft_error error = {0};
    const weft_pass pass = {.name = "double_first", .visit = double_first};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2));
    weft_value y = weft_add(g, x, weft_scalar(g, WEFT_F32, 100));
    weft_plan *plan = weft_plan_new(
        g, &y, 1, &(weft_plan_options){.verify = true, .passes = &pass, .n_passes = 1}, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    const float in[2] = {1, -3};
    float out[2];
    CU_ASSERT_TRUE_FATAL(s && weft_session_feed(s, x, in, sizeof in, NULL) == WEFT_OK &&
                         weft_session_run(s, NULL) == WEFT_OK &&
                         weft_session_fetch(s, y, out, sizeof out, NULL) == WEFT_OK);
    CU_ASSERT_EQUAL(out[0], test_skips_pass("all") ? 101 : 2);
    CU_ASSERT_EQUAL(out[1], test_skips_pass("all") ? 97 : -6);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* A required pass ignores the options and the environment. Its state has the name that it gives,
 * whatever the scope of the node. */
static bool put_scale(weft_rewrite *r)
{
    if (r->node.op != weft_op_find("mul")) return false;
    weft_value scale =
        weft_rewrite_state(r, "other.scale", WEFT_F32, WEFT_SHAPE(2), WEFT_INIT_ONES);
    r->out[0] = weft_add(r->graph, r->in[0], scale);
    return true;
}

static void test_required(void)
{
    weft_error error = {0};
    const weft_pass pass = {.name = "scale", .visit = put_scale, .required = true};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2));
    weft_graph_push_scope(g, "layer");
    weft_value y = weft_mul(g, x, x);
    weft_graph_pop_scope(g);
    weft_plan_options options = {.verify = true, .passes = &pass, .n_passes = 1, .skip = "all"};
    weft_plan *plan = weft_plan_new(g, &y, 1, &options, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    CU_ASSERT_TRUE(weft_is_value(weft_graph_find(weft_plan_graph(plan), "other.scale")));
    CU_ASSERT_FALSE(weft_is_value(weft_graph_find(weft_plan_graph(plan), "layer.other.scale")));
    weft_plan_free(plan);
    options.skip = "scale";
    CU_ASSERT_PTR_NULL(weft_plan_new(g, &y, 1, &options, &error));
    CU_ASSERT_STRING_EQUAL(error.where, "weft_plan_options.skip");
    CU_ASSERT_FALSE(
        weft_is_value(weft_rewrite_state(NULL, "x", WEFT_F32, WEFT_SHAPE(2), WEFT_INIT_ONES)));
    weft_graph_free(g);
}

/* tanh becomes a leaf of the new graph: its input, a constant, or a state. */
static bool put_leaf(weft_rewrite *r)
{
    static const float ones[3] = {1, 1, 1};
    const int kind = *(const int *)r->context;
    if (r->node.op != weft_op_find("tanh")) return false;
    if (kind == 0) r->out[0] = r->in[0];
    if (kind == 1) r->out[0] = weft_constant(r->graph, WEFT_F32, WEFT_SHAPE(3), ones);
    if (kind == 2)
        r->out[0] = weft_state(r->graph, "ones", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ONES);
    return true;
}

/* A target can be read whatever a pass has put in its place. */
static void test_leaf_targets(void)
{
    for (int kind = 0; kind < 3 && !test_skips_pass("all"); kind++) {
        weft_error error = {0};
        const weft_pass pass = {.name = "leaf", .visit = put_leaf, .context = &kind};
        const weft_plan_options options = {.verify = true, .passes = &pass, .n_passes = 1};
        weft_graph *g = weft_graph_new();
        weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(3)), y = weft_tanh(g, x);
        weft_state(g, "ones", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ONES);
        weft_params *store = weft_params_new();
        CU_ASSERT_EQUAL(weft_params_init(store, g, 1, &error), WEFT_OK);
        weft_plan *plan = weft_plan_new(g, &y, 1, &options, &error);
        weft_session *s = weft_session_new(plan, store, NULL, &error);
        const float in[3] = {1, 1, 1};
        float out[3] = {0};
        if (!s) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        if (kind == 0) CU_ASSERT_EQUAL(weft_session_feed(s, x, in, sizeof in, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_fetch(s, y, out, sizeof out, NULL), WEFT_OK);
        for (int i = 0; i < 3; i++) CU_ASSERT_EQUAL(out[i], 1);
        weft_session_free(s);
        weft_plan_free(plan);
        weft_params_free(store);
        weft_graph_free(g);
    }
}

/* ---- State and context ---- */

typedef struct tally {
    size_t visits, leaves, updates, last_state;
} tally;

static size_t state_bytes(const weft_graph *source)
{
    (void)source;
    return sizeof(size_t);
}

static bool count_visit(weft_rewrite *r)
{
    tally *t = r->context;
    size_t *seen = r->memory;
    t->visits++;
    t->leaves += r->node.op == &weft_op_state || r->node.op == &weft_op_group;
    t->updates += r->node.op->updates;
    t->last_state = ++*seen;
    return false;
}

/* The state is new and zero in each plan; leaves, groups and updates are not shown. */
static void test_state(void)
{
    tally t = {0};
    const weft_pass pass = {
        .name = "count", .visit = count_visit, .context = &t, .memory_bytes = state_bytes};
    const weft_plan_options options = {.verify = true, .passes = &pass, .n_passes = 1};
    if (test_skips_pass("all")) return;
    weft_graph *g = weft_graph_new();
    weft_value w = weft_state(g, "w", WEFT_F32, WEFT_SHAPE(2), WEFT_INIT_ONES);
    weft_value next = weft_assign(g, w, weft_tanh(g, weft_mul_scalar(g, w, 2)));
    weft_value step = weft_group(g, &next, 1);
    for (size_t plans = 1; plans <= 2; plans++) {
        weft_plan *plan = weft_plan_new(g, &step, 1, &options, NULL);
        CU_ASSERT_PTR_NOT_NULL(plan);
        CU_ASSERT_EQUAL(t.visits, 3 * plans); /* fill, mul and tanh */
        CU_ASSERT_EQUAL(t.last_state, 3);
        weft_plan_free(plan);
    }
    CU_ASSERT_EQUAL(t.leaves, 0);
    CU_ASSERT_EQUAL(t.updates, 0);
    weft_graph_free(g);
}

/* ---- What is refused ---- */

static bool put_shape(weft_rewrite *r)
{
    r->out[0] = weft_fill(r->graph, WEFT_F32, WEFT_SHAPE(3, 1), 1);
    return true;
}
static bool put_dtype(weft_rewrite *r)
{
    r->out[0] = weft_fill(r->graph, WEFT_F64, WEFT_SHAPE(3), 1);
    return true;
}
static bool put_nothing(weft_rewrite *r)
{
    (void)r;
    return true;
}
static bool put_old(weft_rewrite *r)
{
    r->out[0] = weft_value_from_id(r->source, r->node.first_out);
    return true;
}
static bool put_error(weft_rewrite *r)
{
    weft_graph_fail(r->graph, WEFT_TOO_LARGE, "no %s today", r->node.op->name);
    return true;
}
static bool copy_wrong(weft_rewrite *r)
{
    r->in[0] = weft_fill(r->graph, WEFT_F32, WEFT_SHAPE(5), 1);
    return false;
}

static void expect_refused(const weft_plan_options *options, weft_status status, const char *text)
{
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    weft_value y = twice_negated(g);
    weft_plan *plan = weft_plan_new(g, &y, 1, options, &error);
    CU_ASSERT_PTR_NULL(plan);
    CU_ASSERT_EQUAL(error.status, status);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, text));
    if (!strstr(error.message, text)) fprintf(stderr, "\n    %s\n", error.message);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_wrong_results(void)
{
    static const struct {
        bool (*visit)(weft_rewrite *);
        weft_status status;
        const char *text;
    } cases[] = {
        {put_shape, WEFT_BAD_SHAPE,
         "the pass \"bad\" returned f32 [3, 1] for output 0, expected f32 [3]"},
        {put_dtype, WEFT_BAD_DTYPE,
         "the pass \"bad\" returned f64 [3] for output 0, expected f32 [3]"},
        {put_nothing, WEFT_BAD_ARGUMENT,
         "the pass \"bad\" returned a value for output 0 that does not belong"},
        {put_old, WEFT_BAD_ARGUMENT,
         "the pass \"bad\" returned a value for output 0 that does not belong"},
        {put_error, WEFT_TOO_LARGE, "no tanh today"},
        {copy_wrong, WEFT_BAD_SHAPE, "expected f32 [3]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !test_skips_pass("all"); i++) {
        const weft_pass pass = {.name = "bad", .visit = cases[i].visit};
        expect_refused(&(weft_plan_options){.passes = &pass, .n_passes = 1}, cases[i].status,
                       cases[i].text);
    }
}

static void test_bad_passes(void)
{
    const struct {
        weft_pass passes[2];
        const char *text;
    } cases[] = {
        {{double_neg, {.visit = put_shape}}, "pass 1 needs a name"},
        {{double_neg, {.name = "", .visit = put_shape}}, "pass 1 \"\" needs a name"},
        {{double_neg, {.name = "x"}}, "pass 1 \"x\" needs a visit function"},
        {{double_neg, double_neg}, "pass 1 \"double_neg\" has a name that is taken"},
        {{{.name = "cse", .visit = put_shape}, double_neg}, "pass 0 \"cse\" has a name"},
        {{{.name = "layout", .visit = put_shape}, double_neg}, "pass 0 \"layout\" has a name"},
        {{{.name = "all", .visit = put_shape}, double_neg}, "pass 0 \"all\" has a name"},
        {{{.name = "a,b", .visit = put_shape}, double_neg}, "pass 0 \"a,b\" has a name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(&(weft_plan_options){.passes = cases[i].passes, .n_passes = 2},
                       WEFT_BAD_ARGUMENT, cases[i].text);
    expect_refused(&(weft_plan_options){.n_passes = 1}, WEFT_BAD_ARGUMENT, "the list is NULL");
    expect_refused(&(weft_plan_options){.skip = "folds", .passes = &double_neg, .n_passes = 1},
                   WEFT_BAD_ARGUMENT, "double_neg, all");
}

void pass_tests(void)
{
    CU_pSuite suite = CU_add_suite("pass", NULL, NULL);
    CU_add_test(suite, "a pass replaces nodes, and is skipped by its name", test_replace);
    CU_add_test(suite, "the same by the environment", test_replace_env);
    CU_add_test(suite, "a copy on other inputs", test_other_inputs);
    CU_add_test(suite, "a required pass, and a state of its own", test_required);
    CU_add_test(suite, "a leaf instead of a target", test_leaf_targets);
    CU_add_test(suite, "state, context and what is shown", test_state);
    CU_add_test(suite, "results of another type", test_wrong_results);
    CU_add_test(suite, "passes that are incomplete or have a name that is taken", test_bad_passes);
}
