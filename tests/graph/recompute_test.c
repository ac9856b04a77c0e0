/* Recomputation under a budget of memory: the arena fits, the results have the same bits, and on
 * small graphs the choice costs about as little as the best of all choices. */
#include "tests.h"

#include "passes/recompute.h"

#include <stdlib.h>
#include <string.h>

/* ---- Budgets and bits ---- */

typedef struct trained {
    weft_graph *g;
    weft_built built;
    weft_value lr, step;
} trained;

static void build(trained *t, const char *model, const char *const *options, size_t n)
{
    const weft_optimizer adam = {.kind = WEFT_ADAM, .max_norm = 1};
    weft_error error = WEFT_NO_ERROR;
    t->g = weft_graph_new();
    CU_ASSERT_EQUAL_FATAL(
        weft_model_build_text(t->g, weft_model_find(model), options, n, true, &t->built, &error),
        WEFT_OK);
    t->lr = weft_input(t->g, "rate", WEFT_F32, WEFT_SCALAR);
    t->step = weft_train_update(t->g, t->built.loss, NULL, 0, t->lr, &adam, NULL);
}

static weft_plan *plan(const trained *t, size_t budget, const char *skip, weft_error *error)
{
    const weft_plan_options o = {.memory_budget = budget, .skip = skip, .verify = true};
    return weft_plan_new(t->g, WEFT_VALUES(t->built.loss, t->step), &o, error);
}

/* Trains for a few steps; returns a hash of all states and losses. */
static uint64_t train(const trained *t, const weft_plan *p, int threads)
{
    weft_error error = WEFT_NO_ERROR;
    weft_params *store = weft_params_new();
    const weft_session_options o = {.threads = threads, .seed = 5, .poison = true};
    CU_ASSERT_EQUAL(weft_params_init(store, t->g, 3, &error), WEFT_OK);
    weft_session *s = weft_session_new(p, store, &o, &error);
    uint64_t hash = 14695981039346656037u;
    const float rate = 0.01f;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_session_feed(s, t->lr, &rate, sizeof rate, NULL);
    const weft_value *inputs = t->built.inputs;
    for (size_t i = 0; i < t->built.n_inputs; i++) {
        weft_tensor x;
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, inputs[i], &x, NULL) == WEFT_OK);
        for (int64_t k = 0; k < weft_shape_numel(x.shape); k++)
            ((int32_t *)x.data)[k] = (int32_t)(1 + (k * 7 + 3) % 11);
    }
    for (int step = 0; step < 3; step++) {
        float loss = 0;
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        weft_session_fetch(s, t->built.loss, &loss, sizeof loss, NULL);
        CU_ASSERT_TRUE(isfinite(loss) && loss > 0);
        hash = (hash ^ (uint64_t)(1e6f * loss)) * 1099511628211u;
    }
    for (size_t i = 0; i < weft_params_count(store); i++) {
        weft_tensor x;
        CU_ASSERT_TRUE(weft_params_find(store, weft_params_name(store, i), &x));
        const unsigned char *data = x.data;
        for (size_t k = 0; k < weft_tensor_bytes(x.dtype, x.shape); k++)
            hash = (hash ^ data[k]) * 1099511628211u;
    }
    weft_session_free(s);
    weft_params_free(store);
    return hash;
}

/* What lies in scopes is computed again, with the same bits, and no more than that. */
static void test_scopes(void)
{
    static const char *const options[] = {"layers=3",   "batch=4", "length=64", "vocab=64",
                                          "d_model=32", "heads=2", "d_ff=64"};
    static const char *const scopes[] = {"layer.0", "layer.0,layer.1"};
    trained t;
    weft_error error = WEFT_NO_ERROR;
    build(&t, "gpt", options, 7);
    weft_plan *whole = plan(&t, 0, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(whole);
    const uint64_t hash = train(&t, whole, 2);
    size_t bytes = weft_plan_stats_of(whole).arena_bytes, nodes = 0;
    for (size_t i = 0; i < 2; i++) {
        const weft_plan_options o = {.recompute = scopes[i], .verify = true};
        weft_plan *p = weft_plan_new(t.g, WEFT_VALUES(t.built.loss, t.step), &o, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        const weft_plan_stats stats = weft_plan_stats_of(p);
        CU_ASSERT_TRUE(stats.recomputed > nodes && stats.recomputed_time < 0.5);
        CU_ASSERT_TRUE(stats.arena_bytes < bytes);
        CU_ASSERT_EQUAL(train(&t, p, 2), hash);
        bytes = stats.arena_bytes;
        nodes = stats.recomputed;
        weft_plan_free(p);
    }
    weft_plan_free(whole);
    weft_graph_free(t.g);
}

static void check_budgets(const char *model, const char *const *options, size_t n, double least)
{
    trained t;
    weft_error error = WEFT_NO_ERROR;
    build(&t, model, options, n);
    weft_plan *whole = plan(&t, 0, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(whole);
    const size_t bytes = weft_plan_stats_of(whole).arena_bytes;
    CU_ASSERT_EQUAL(weft_plan_stats_of(whole).recomputed, 0);
    const uint64_t expected = train(&t, whole, 2);
    size_t before = 0;
    for (double share = 1; share >= least; share -= 0.15) {
        const size_t budget = (size_t)(share * (double)bytes);
        weft_plan *p = plan(&t, budget, NULL, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        const weft_plan_stats s = weft_plan_stats_of(p);
        CU_ASSERT_TRUE(s.arena_bytes <= budget);
        CU_ASSERT_TRUE(s.recomputed >= before && (s.recomputed > 0) == (budget < bytes));
        CU_ASSERT_EQUAL(train(&t, p, 2), expected);
        CU_ASSERT_EQUAL(train(&t, p, 1), expected);
        CU_ASSERT_EQUAL(s.recomputed_time > 0, s.recomputed > 0);
        CU_ASSERT_TRUE(s.recomputed_time < 1);
        before = s.recomputed / 2; /* fewer nodes may save more */
        weft_plan_free(p);
    }
    weft_plan_free(whole);
    weft_graph_free(t.g);
}

static void test_budgets(void)
{
    static const char *const gpt[] = {"layers=4",    "d_model=32", "heads=2",  "vocab=50",
                                      "dropout=0.2", "batch=32",   "length=64"};
    static const char *const transformer[] = {"encoder_layers=2", "decoder_layers=2", "d_model=32",
                                              "heads=2",          "d_ff=64",          "vocab=50",
                                              "batch=8"};
    static const char *const lstm[] = {"vocab=50", "width=32", "hidden=32", "length=40",
                                       "batch=64"};
    check_budgets("gpt", gpt, sizeof gpt / sizeof *gpt, 0.5);
    check_budgets("transformer", transformer, sizeof transformer / sizeof *transformer, 0.6);
    check_budgets("lstm", lstm, sizeof lstm / sizeof *lstm, 0.8);
}

/* What cannot be met is an error that names the bytes. */
static void test_errors(void)
{
    trained t;
    weft_error error = WEFT_NO_ERROR;
    build(&t, "gpt", (const char *[]){"layers=2", "d_model=32"}, 2);
    CU_ASSERT_PTR_NULL(plan(&t, 1000, NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_TOO_LARGE);
    CU_ASSERT_STRING_EQUAL(error.where, "weft_plan_options.memory_budget");
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "the budget is 1000"));
    weft_plan *whole = plan(&t, 0, NULL, &error);
    const size_t bytes = weft_plan_stats_of(whole).arena_bytes;
    weft_plan_free(whole);
    CU_ASSERT_PTR_NULL(plan(&t, bytes - bytes / 10, "recompute", &error));
    CU_ASSERT_EQUAL(error.status, WEFT_TOO_LARGE);
    weft_plan *same = plan(&t, bytes, "recompute", &error);
    CU_ASSERT_PTR_NOT_NULL(same);
    weft_plan_free(same);
    /* Without a backward pass there is nothing to recompute. */
    const weft_plan_options o = {.memory_budget = 64};
    CU_ASSERT_PTR_NULL(weft_plan_new(t.g, WEFT_VALUES(t.built.loss), &o, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_TOO_LARGE);
    weft_graph_free(t.g);
}

/* ---- The best of all choices ---- */

/* A network of layers of different widths; its loss is the only target besides the gradients. */
static weft_graph *network(const int64_t *widths, int n, plan_target *targets, size_t *n_targets)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(4096, 8)), params[16], grads[16];
    for (int i = 0; i < n; i++) {
        weft_graph_push_scope(g, "%d", i);
        x = weft_tanh(g, weft_nn_linear(g, "l", x, widths[i], false));
        weft_graph_pop_scope(g);
    }
    const weft_value loss = weft_mean(g, weft_square(g, x), WEFT_ALL_AXES, false);
    const size_t count = test_params(g, params, 16);
    weft_grad(g, loss, params, count, grads);
    *n_targets = 0;
    targets[(*n_targets)++] = (plan_target){.value = loss};
    for (size_t i = 0; i < count; i++) targets[(*n_targets)++] = (plan_target){.value = grads[i]};
    CU_ASSERT_EQUAL_FATAL(weft_graph_status(g), WEFT_OK);
    return g;
}

static void open_recompute(recompute *r, const weft_graph *g)
{
    *r = (recompute){.graph = g,
                     .retained = calloc(g->n_values, 1),
                     .fixed = calloc(g->n_values, 1),
                     .dropped = calloc(g->n_values, 1),
                     .done = calloc(g->n_nodes + 1, 1),
                     .list = calloc(g->n_nodes + 1, sizeof(uint32_t))};
}

static void close_recompute(recompute *r)
{
    free(r->retained);
    free(r->fixed);
    free(r->dropped);
    free(r->done);
    free(r->list);
}

/* The least time of any choice of at most 14 values that meets the target; infinite if none does.
 */
static double best_time(recompute *r, const plan_target *targets, size_t n_targets, size_t target)
{
    const weft_graph *g = r->graph;
    uint32_t free_roots[32];
    size_t n = 0;
    double best = INFINITY;
    for (uint32_t v = 1; v < g->n_values && n < 32; v++)
        if (g->values[v].root == v && !r->fixed[v]) free_roots[n++] = v;
    CU_ASSERT_TRUE_FATAL(n > 4 && n <= 14);
    for (uint32_t set = 0; set < 1u << n; set++) {
        double excess, time;
        for (size_t i = 0; i < n; i++) r->retained[free_roots[i]] = set >> i & 1;
        CU_ASSERT_TRUE_FATAL(
            weft__recompute_measure(r, targets, n_targets, target, &excess, &time));
        if (excess <= 0) best = fmin(best, time);
    }
    return best;
}

static void test_best_choice(void)
{
    static const int64_t nets[][5] = {
        {64, 64, 64, 64, 64}, {8, 128, 8, 128, 8}, {256, 128, 64, 32, 16}, {16, 32, 64, 128, 256}};
    double sum = 0, sum_best = 0;
    int met = 0;
    for (size_t k = 0; k < sizeof nets / sizeof *nets; k++) {
        plan_target targets[17];
        size_t n_targets;
        recompute r;
        double all, excess, time, best;
        weft_graph *g = network(nets[k], 5, targets, &n_targets);
        open_recompute(&r, g);
        CU_ASSERT_TRUE(weft__recompute_choose(&r, targets, n_targets, SIZE_MAX / 2, NULL));
        CU_ASSERT_TRUE(
            weft__recompute_measure(&r, targets, n_targets, SIZE_MAX / 2, &excess, &time));
        CU_ASSERT_EQUAL(time, 0);
        for (all = 1 << 25; excess <= 0 && all > 0;
             all -= 16384) /* the peak without recomputation */
            weft__recompute_measure(&r, targets, n_targets, (size_t)all, &excess, &time);
        for (double share = 0.95; share > 0.3; share -= 0.1) {
            const size_t target = (size_t)(share * all);
            memset(r.retained, 0, g->n_values);
            CU_ASSERT_TRUE(weft__recompute_choose(&r, targets, n_targets, target, NULL));
            CU_ASSERT_TRUE(weft__recompute_measure(&r, targets, n_targets, target, &excess, &time));
            best = best_time(&r, targets, n_targets, target);
            CU_ASSERT_EQUAL(excess <= 0, isfinite(best));
            if (!isfinite(best)) break;
            met++;
            sum += time;
            sum_best += best;
        }
        close_recompute(&r);
        weft_graph_free(g);
    }
    CU_ASSERT_TRUE(sum <= 1.1 * sum_best);
    CU_ASSERT_TRUE(met > 5);
}

void recompute_tests(void)
{
    CU_pSuite suite = CU_add_suite("recompute", NULL, NULL);
    CU_add_test(suite, "scopes that are computed again", test_scopes);
    CU_add_test(suite, "budgets, and the same bits", test_budgets);
    CU_add_test(suite, "budgets that cannot be met", test_errors);
    CU_add_test(suite, "compared with the best of all choices", test_best_choice);
}
