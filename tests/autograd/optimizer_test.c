/* Training steps: which parameters they take, groups, frozen ones, several steps in one graph. */
#include "tests.h"

#include <math.h>
#include <string.h>

/* Nine roundings of 2^-53 of a number near 1: a step computes 1 - lr (1 + decay) in up to four
 * operations, and so does the test. */
#define STEP_ROUNDING 1e-15

/* ---- A network ---- */

/* Layers NAME.0, NAME.1, ... over x, and the mean square of the result. */
static weft_value network(weft_graph *g, const char *name, weft_value x, int layers)
{
    for (int i = 0; i < layers; i++) {
        char layer[32];
        snprintf(layer, sizeof layer, "%s.%d", name, i);
        x = weft_tanh(g, weft_nn_linear(g, layer, x, 4, true));
    }
    return weft_mean(g, weft_square(g, weft_add_scalar(g, x, -0.3)), WEFT_ALL_AXES, false);
}

static weft_value ones(weft_graph *g)
{
    return weft_fill(g, WEFT_F64, WEFT_SHAPE(2, 3), 0.5);
}

static weft_value rate(weft_graph *g, double lr)
{
    return weft_scalar(g, WEFT_F64, lr);
}

/* Runs the targets n times on a store. */
static void run(weft_graph *g, const weft_value *targets, size_t n_targets, weft_params *store,
                int n)
{
    weft_error error = {0};
    weft_plan *plan =
        weft_plan_new(g, targets, n_targets, &(weft_plan_options){.verify = true}, &error);
    weft_session *s = NULL;
    if (plan && weft_params_init(store, g, 1, &error) == WEFT_OK)
        s = weft_session_new(plan, store, NULL, &error);
    if (!s) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (int i = 0; i < n; i++) CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    weft_session_free(s);
    weft_plan_free(plan);
}

static bool same_stores(const weft_params *a, const weft_params *b)
{
    bool same = weft_params_count(a) == weft_params_count(b);
    for (size_t i = 0; same && i < weft_params_count(a); i++) {
        weft_tensor x, y;
        weft_params_find(a, weft_params_name(a, i), &x);
        same = weft_params_find(b, weft_params_name(a, i), &y) &&
               weft_shape_equal(x.shape, y.shape) &&
               !memcmp(x.data, y.data, (size_t)weft_shape_numel(x.shape) * sizeof(double));
    }
    return same;
}

static double first_of(const weft_params *store, const char *name)
{
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_params_find(store, name, &t));
    return *(const double *)t.data;
}

/* The graph holds an error of that text. */
static void refused(weft_graph *g, const char *message)
{
    CU_ASSERT_NOT_EQUAL(weft_graph_status(g), WEFT_OK);
    if (!strstr(weft_graph_error(g)->message, message))
        printf("\n    \"%s\", not \"%s\"\n", weft_graph_error(g)->message, message);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, message));
    weft_graph_free(g);
}

/* ---- Which parameters ---- */

/* No list: all twelve parameters, with the bits of a list of them. */
static void test_all(void)
{
    weft_params *stores[2] = {weft_params_new(), weft_params_new()};
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    for (int listed = 0; listed < 2; listed++) {
        weft_value params[12];
        weft_graph *g = weft_graph_new();
        weft_value loss = network(g, "layer", ones(g), 6);
        CU_ASSERT_EQUAL_FATAL(test_params(g, params, 12), 12);
        weft_value step = weft_train_update(g, loss, listed ? params : NULL, listed ? 12 : 0,
                                            rate(g, 0.1), &adam, NULL);
        run(g, &step, 1, stores[listed], 3);
        weft_graph_free(g);
    }
    CU_ASSERT_EQUAL(weft_params_count(stores[0]), 3 * 12 + 1);
    CU_ASSERT_TRUE(same_stores(stores[0], stores[1]));
    for (int i = 0; i < 2; i++) weft_params_free(stores[i]);
}

/* A parameter that the loss does not reach has a gradient of zeros: decay acts on it. */
static void test_unreached(void)
{
    weft_params *store = weft_params_new();
    weft_graph *g = weft_graph_new();
    weft_param(g, "apart", WEFT_F64, WEFT_SHAPE(2), WEFT_INIT_ONES);
    weft_optimizer sgd = {.sgd = {.weight_decay = 0.5}};
    weft_value step =
        weft_train_update(g, network(g, "layer", ones(g), 1), NULL, 0, rate(g, 0.1), &sgd, NULL);
    run(g, &step, 1, store, 1);
    CU_ASSERT_DOUBLE_EQUAL(first_of(store, "apart"), 1 - 0.1 * 0.5, STEP_ROUNDING);
    weft_params_free(store);
    weft_graph_free(g);
}

static void test_lists(void)
{
    weft_value params[4];
    weft_graph *g = weft_graph_new();
    weft_train_update(g, weft_sum(g, ones(g), WEFT_ALL_AXES, false), NULL, 0, rate(g, 1), NULL,
                      NULL);
    refused(g, "there are no parameters: the graph has none");
    g = weft_graph_new();
    weft_value loss = network(g, "layer", ones(g), 2);
    weft_train_update(g, loss, params, 0, rate(g, 1), NULL, NULL);
    refused(g, "there are no parameters: the list is empty");
    g = weft_graph_new();
    weft_train_update(g, network(g, "layer", ones(g), 2), NULL, 3, rate(g, 1), NULL, NULL);
    refused(g, "there are no parameters: the list is NULL");
    g = weft_graph_new();
    loss = network(g, "layer", ones(g), 2);
    test_params(g, params, 4);
    params[3] = params[0];
    weft_train_update(g, loss, params, 4, rate(g, 1), NULL, NULL);
    refused(g, "the graph already updates layer.0.weight");
    g = weft_graph_new();
    loss = network(g, "layer", ones(g), 2);
    weft_train_update(g, loss, NULL, 0, weft_scalar(g, WEFT_F32, 1), NULL, NULL);
    refused(g, "the learning rate is f32 [], expected f64 [] for the parameter layer.0.weight");
    g = weft_graph_new();
    weft_train_update(g, network(g, "layer", ones(g), 2), NULL, 0, WEFT_NO_VALUE, NULL, NULL);
    refused(g, "the learning rate does not belong to this graph");
}

/* ---- Groups ---- */

/* One step from 1 on the loss sum w over each of three parameters, whose gradients are 1. */
static void step_of_three(const weft_optimizer *o, double after[3])
{
    static const char *const names[3] = {"enc.weight", "enc.bias", "dec.weight"};
    weft_params *store = weft_params_new();
    weft_graph *g = weft_graph_new();
    weft_value loss = rate(g, 0);
    for (int i = 0; i < 3; i++)
        loss = weft_add(g, loss, weft_param(g, names[i], WEFT_F64, WEFT_SCALAR, WEFT_INIT_ONES));
    weft_value step = weft_train_update(g, loss, NULL, 0, rate(g, 0.1), o, NULL);
    run(g, &step, 1, store, 1);
    for (int i = 0; i < 3; i++) after[i] = first_of(store, names[i]);
    weft_params_free(store);
    weft_graph_free(g);
}

static void check_three(const weft_optimizer *o, double a, double b, double c)
{
    double after[3];
    step_of_three(o, after);
    CU_ASSERT_DOUBLE_EQUAL(after[0], a, STEP_ROUNDING);
    CU_ASSERT_DOUBLE_EQUAL(after[1], b, STEP_ROUNDING);
    CU_ASSERT_DOUBLE_EQUAL(after[2], c, STEP_ROUNDING);
}

static void test_groups(void)
{
    weft_param_group groups[3] = {{.names = "nothing,*.bias", .weight_decay = WEFT_ZERO},
                                  {.names = "enc.*", .lr_scale = 0.5},
                                  {.names = "?ec.*", .weight_decay = 0.25}};
    weft_optimizer sgd = {.sgd = {.weight_decay = 0.5}, .groups = groups, .n_groups = 3};
    /* enc.bias takes the first group only, and with it the whole rate. */
    check_three(&sgd, 1 - 0.05 * 1.5, 1 - 0.1, 1 - 0.1 * 1.25);
    /* no_decay is the optimiser's, where a group says nothing. */
    sgd.no_decay = "*";
    check_three(&sgd, 1 - 0.05, 1 - 0.1, 1 - 0.1 * 1.25);
    sgd.no_decay = NULL;
    groups[1].lr_scale = WEFT_ZERO;
    check_three(&sgd, 1, 1 - 0.1, 1 - 0.1 * 1.25);
    groups[1] = (weft_param_group){.names = "*", .frozen = true};
    sgd.n_groups = 2;
    check_three(&sgd, 1, 1 - 0.1, 1);
    /* Adam's first step is the rate, whatever the gradient; AdamW's decay stands apart. */
    weft_optimizer adamw = {.kind = WEFT_ADAMW, .adam = {.weight_decay = 0.5, .eps = WEFT_ZERO}};
    adamw.groups = groups;
    adamw.n_groups = 2;
    groups[1] = (weft_param_group){.names = "dec*", .lr_scale = 2};
    check_three(&adamw, (1 - 0.1 * 0.5) - 0.1, 1 - 0.1, (1 - 0.2 * 0.5) - 0.2);
}

/* Groups without settings change no bit, and no name of a state. */
static void test_group_bits(void)
{
    weft_params *stores[2] = {weft_params_new(), weft_params_new()};
    const weft_param_group groups[2] = {{.names = "*.bias"}, {.names = "*", .lr_scale = 1}};
    for (int grouped = 0; grouped < 2; grouped++) {
        weft_optimizer adamw = WEFT_ADAMW_DEFAULT;
        adamw.groups = grouped ? groups : NULL;
        adamw.n_groups = grouped ? 2 : 0;
        adamw.name = grouped ? "opt" : NULL;
        weft_graph *g = weft_graph_new();
        weft_value loss = network(g, "layer", ones(g), 2);
        weft_value step = weft_train_update(g, loss, NULL, 0, rate(g, 0.1), &adamw, NULL);
        run(g, &step, 1, stores[grouped], 4);
        weft_graph_free(g);
    }
    CU_ASSERT_TRUE(same_stores(stores[0], stores[1]));
    CU_ASSERT_TRUE(weft_params_find(stores[0], "opt.step", NULL));
    CU_ASSERT_TRUE(weft_params_find(stores[0], "opt.m.layer.1.bias", NULL));
    for (int i = 0; i < 2; i++) weft_params_free(stores[i]);
}

/* A frozen parameter has no moments and no share of the norm. */
static void test_frozen(void)
{
    weft_params *store = weft_params_new();
    const weft_param_group group = {.names = "a", .frozen = true};
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    adam.groups = &group;
    adam.n_groups = 1;
    weft_graph *g = weft_graph_new();
    weft_value a = weft_param(g, "a", WEFT_F64, WEFT_SCALAR, WEFT_INIT_ONES), norm, updated[2];
    weft_value b = weft_param(g, "b", WEFT_F64, WEFT_SCALAR, WEFT_INIT_ONES);
    weft_value params[2] = {a, b}, grads[2] = {rate(g, 4), rate(g, 3)};
    weft_value step = weft_apply_gradients(g, &(weft_gradients){params, grads, 2, WEFT_NO_VALUE},
                                           rate(g, 0.1), &adam, &norm, updated);
    CU_ASSERT_EQUAL(updated[0].id, a.id);
    CU_ASSERT_NOT_EQUAL(updated[1].id, b.id);
    norm = weft_assign(g, weft_state(g, "norm", WEFT_F64, WEFT_SCALAR, WEFT_INIT_ZEROS), norm);
    const weft_value targets[2] = {step, norm};
    run(g, targets, 2, store, 1);
    CU_ASSERT_EQUAL(first_of(store, "norm"), 3);
    CU_ASSERT_EQUAL(first_of(store, "a"), 1);
    CU_ASSERT_FALSE(weft_params_find(store, "opt.m.a", NULL));
    CU_ASSERT_TRUE(weft_params_find(store, "opt.m.b", NULL));
    weft_params_free(store);
    weft_graph_free(g);
}

static void refuse_group(const weft_param_group *groups, size_t n, const char *message)
{
    weft_graph *g = weft_graph_new();
    weft_optimizer sgd = {.groups = groups, .n_groups = n};
    weft_value loss = network(g, "layer", ones(g), 2);
    CU_ASSERT_FALSE(weft_is_value(weft_train_update(g, loss, NULL, 0, rate(g, 0.1), &sgd, NULL)));
    refused(g, message);
}

static void test_bad_groups(void)
{
    refuse_group(NULL, 1, "the groups are NULL");
    refuse_group(&(weft_param_group){.lr_scale = 2}, 1, "a group needs patterns of names");
    refuse_group(&(weft_param_group){.names = "layers.*"}, 1,
                 "no parameter matches the group layers.*");
    refuse_group(&(weft_param_group){.names = "*", .frozen = true}, 1, "every parameter is frozen");
    refuse_group(&(weft_param_group){.names = "*", .lr_scale = -2}, 1, "must not be negative");
    refuse_group(&(weft_param_group){.names = "*", .weight_decay = -2}, 1, "weight_decay is -2");
}

/* Many stars and no match take no longer than the name times the pattern. */
static void test_patterns(void)
{
    char pattern[200] = "", name[200] = "";
    for (int i = 0; i < 30; i++) {
        strcat(pattern, "*a");
        strcat(name, "aaaa");
    }
    strcat(pattern, "b");
    CU_ASSERT_FALSE(weft_name_matches(pattern, name));
    CU_ASSERT_TRUE(weft_name_matches("x,*.bias,*.gamma", "enc.0.norm.gamma"));
    CU_ASSERT_FALSE(weft_name_matches("x,*.bias,*.gamma", "enc.0.norm.beta"));
    CU_ASSERT_FALSE(weft_name_matches("", "x"));
    CU_ASSERT_FALSE(weft_name_matches(NULL, "x"));
    CU_ASSERT_FALSE(weft_name_matches("*", NULL));
}

/* ---- Several steps ---- */

/* A second step of the same name, or of the same parameters, is refused when it is built. */
static void test_second_step(void)
{
    for (int disjoint = 0; disjoint < 2; disjoint++) {
        weft_graph *g = weft_graph_new();
        weft_optimizer adam = WEFT_ADAM_DEFAULT;
        weft_value params[4], loss = network(g, "layer", ones(g), 2);
        CU_ASSERT_EQUAL(test_params(g, params, 4), 4);
        weft_train_update(g, loss, params, 2, rate(g, 0.1), &adam, NULL);
        CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
        if (!disjoint) adam.name = "other";
        weft_train_update(g, loss, params + 1 + disjoint, 2, rate(g, 0.1), &adam, NULL);
        refused(g, disjoint
                       ? "the graph already has an update of this name; set weft_optimizer.name"
                       : "the graph already updates layer.0.bias");
    }
    /* Plain steps have no counter, so that only their parameters count. */
    weft_graph *g = weft_graph_new();
    weft_value loss = network(g, "layer", ones(g), 2);
    weft_train_update(g, loss, NULL, 0, rate(g, 0.1), NULL, NULL);
    weft_train_update(g, loss, NULL, 0, rate(g, 0.1), NULL, NULL);
    refused(g, "the graph already updates layer.0.weight");
}

/* The two sides of a game: one maximises what the other minimises. */
typedef struct game {
    weft_graph *g;
    weft_value step[2];
} game;

/* With both steps, or with the one of that side only. */
static game make_game(int only)
{
    game m = {.g = weft_graph_new(), .step = {WEFT_NO_VALUE, WEFT_NO_VALUE}};
    weft_graph *g = m.g;
    weft_value made = weft_tanh(g, weft_nn_linear(g, "generator", ones(g), 3, true));
    weft_value loss = network(g, "critic", made, 2), params[6];
    CU_ASSERT_EQUAL_FATAL(test_params(g, params, 6), 6);
    weft_optimizer adam = WEFT_ADAM_DEFAULT, momentum = {.sgd = {.momentum = 0.5}, .guard = true};
    adam.name = "generator";
    momentum.name = "critic";
    if (only != 1) m.step[0] = weft_train_update(g, loss, params, 2, rate(g, 0.1), &adam, NULL);
    if (only != 0)
        m.step[1] =
            weft_train_update(g, weft_neg(g, loss), params + 2, 4, rate(g, 0.05), &momentum, NULL);
    CU_ASSERT_EQUAL_FATAL(weft_graph_status(g), WEFT_OK);
    return m;
}

/* A step on two parameters whose names of n bytes differ in the last one. */
static weft_graph *two_of_length(size_t n)
{
    char name[2048];
    weft_graph *g = weft_graph_new();
    weft_value sum = WEFT_NO_VALUE;
    memset(name, 'a', n);
    name[n] = 0;
    for (char last = '1'; last <= '2'; last++) {
        name[n - 1] = last;
        weft_value x = weft_param(g, name, WEFT_F64, WEFT_SHAPE(3), WEFT_INIT_ZEROS);
        sum = weft_is_value(sum) ? weft_add(g, sum, x) : x;
    }
    weft_value loss = weft_mean(g, weft_square(g, sum), WEFT_ALL_AXES, false);
    weft_train_update(g, loss, NULL, 0, rate(g, 0.1), &WEFT_ADAM_DEFAULT, NULL);
    return g;
}

/* Names of states are never cut: two parameters would share one. */
static void test_long_names(void)
{
    weft_graph *g = two_of_length(WEFT_MAX_TRAINED_NAME);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
    CU_ASSERT_EQUAL(test_count_states(g), 2 + 4 + 1);
    weft_graph_free(g);
    for (size_t n = WEFT_MAX_TRAINED_NAME + 1; n < 2000; n += 1000) {
        g = two_of_length(n);
        CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_TOO_LARGE);
        CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, "WEFT_MAX_TRAINED_NAME"));
        weft_graph_free(g);
    }
}

static void test_game(void)
{
    weft_params *stores[4];
    game both = make_game(-1), sides[2] = {make_game(0), make_game(1)};
    for (int i = 0; i < 4; i++) stores[i] = weft_params_new();
    /* Alternating, from one graph and from two. */
    for (int i = 0; i < 3; i++)
        for (int side = 0; side < 2; side++) {
            run(both.g, &both.step[side], 1, stores[0], 1);
            run(sides[side].g, &sides[side].step[side], 1, stores[1], 1);
        }
    CU_ASSERT_TRUE(weft_params_find(stores[0], "generator.step", NULL));
    CU_ASSERT_TRUE(weft_params_find(stores[0], "generator.v.generator.bias", NULL));
    CU_ASSERT_TRUE(weft_params_find(stores[0], "critic.buf.critic.1.weight", NULL));
    CU_ASSERT_TRUE(weft_is_value(weft_graph_find(both.g, "critic.gradient_norm")));
    for (size_t i = 0; i < weft_params_count(stores[1]); i++)
        CU_ASSERT_EQUAL(first_of(stores[0], weft_params_name(stores[1], i)),
                        first_of(stores[1], weft_params_name(stores[1], i)));
    /* At once: each side's first step is that from the old parameters of the other. */
    run(both.g, both.step, 2, stores[2], 1);
    run(sides[0].g, &sides[0].step[0], 1, stores[3], 1);
    CU_ASSERT_EQUAL(first_of(stores[2], "generator.weight"),
                    first_of(stores[3], "generator.weight"));
    weft_params *other = weft_params_new();
    run(sides[1].g, &sides[1].step[1], 1, other, 1);
    CU_ASSERT_EQUAL(first_of(stores[2], "critic.0.weight"), first_of(other, "critic.0.weight"));
    CU_ASSERT_NOT_EQUAL(first_of(stores[2], "critic.0.weight"),
                        first_of(stores[3], "critic.0.weight"));
    weft_params_free(other);
    for (int i = 0; i < 4; i++) weft_params_free(stores[i]);
    weft_graph_free(both.g);
    for (int side = 0; side < 2; side++) weft_graph_free(sides[side].g);
}

void optimizer_tests(void)
{
    CU_pSuite suite = CU_add_suite("optimizer", NULL, NULL);
    CU_add_test(suite, "without a list: all parameters", test_all);
    CU_add_test(suite, "a parameter apart from the loss", test_unreached);
    CU_add_test(suite, "lists and rates that do not fit", test_lists);
    CU_add_test(suite, "groups", test_groups);
    CU_add_test(suite, "groups that change nothing", test_group_bits);
    CU_add_test(suite, "frozen parameters", test_frozen);
    CU_add_test(suite, "groups that do not fit", test_bad_groups);
    CU_add_test(suite, "patterns with many stars", test_patterns);
    CU_add_test(suite, "a second step is refused when built", test_second_step);
    CU_add_test(suite, "two steps of one graph", test_game);
    CU_add_test(suite, "names of any length", test_long_names);
}
