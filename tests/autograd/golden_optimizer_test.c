/* Holds ten steps of every optimiser against torch.optim, and LAMB against its formula
 * (golden/make_golden.py): w and b of a small regression after each step, in f32 and in f64. */
#include "golden.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 10 };

/* As OPTIMIZERS of make_golden.py. */
static const struct {
    const char *name;
    weft_optimizer optimizer;
} cases[] = {
    {"sgd", {.kind = WEFT_SGD, .sgd = {.weight_decay = 0.01}}},
    {"momentum", {.kind = WEFT_SGD, .sgd = {.momentum = 0.9, .weight_decay = 0.01}}},
    {"nesterov", {.kind = WEFT_SGD, .sgd = {.momentum = 0.9, .nesterov = true}}},
    {"dampened",
     {.kind = WEFT_SGD, .sgd = {.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01}}},
    {"adam", {.kind = WEFT_ADAM, .adam = {.weight_decay = 0.01}}},
    {"adamw", {.kind = WEFT_ADAMW, .adam = {.weight_decay = 0.1}}},
    {"adagrad", {.kind = WEFT_ADAGRAD, .rms = {.weight_decay = 0.01}}},
    {"rmsprop", {.kind = WEFT_RMSPROP, .rms = {.weight_decay = 0.01}}},
    {"rmsprop_momentum", {.kind = WEFT_RMSPROP, .rms = {.alpha = 0.9, .momentum = 0.5}}},
    {"rmsprop_centered",
     {.kind = WEFT_RMSPROP, .rms = {.alpha = 0.9, .eps = 1e-2, .centered = true}}},
    {"rmsprop_all",
     {.kind = WEFT_RMSPROP,
      .rms = {.alpha = 0.9, .eps = 1e-2, .momentum = 0.5, .weight_decay = 0.01, .centered = true}}},
    {"lamb", {.kind = WEFT_LAMB, .adam = {.weight_decay = 0.1}}},
};

/* Element block `step` of the file's NAME.PARAM is the parameter after that step. */
static void compare(const weft_params *store, const char *name, const char *param, int step,
                    double limit)
{
    char key[64];
    weft_tensor got, all;
    snprintf(key, sizeof key, "%s.%s", name, param);
    CU_ASSERT_TRUE_FATAL(weft_params_find(store, param, &got) &&
                         weft_params_find(store, key, &all));
    const size_t bytes = weft_tensor_bytes(got.dtype, got.shape);
    const weft_tensor wanted =
        weft_tensor_dense((char *)all.data + (size_t)step * bytes, got.dtype, got.shape);
    snprintf(key, sizeof key, "%s.%s after step %d", name, param, step + 1);
    CU_ASSERT_TRUE(golden_agrees(key, &got, &wanted, limit, 0));
}

static void check_optimizer(const char *name, const weft_optimizer *o, weft_dtype dtype,
                            double limit)
{
    weft_error error = {0};
    weft_params *store = golden_load(GOLDEN("optimizers.safetensors"), "", dtype);
    CU_ASSERT_PTR_NOT_NULL_FATAL(store);
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_state(g, "x", dtype, WEFT_SHAPE(6, 4), WEFT_INIT_ZEROS);
    const weft_value y = weft_state(g, "y", dtype, WEFT_SHAPE(6, 3), WEFT_INIT_ZEROS);
    const weft_value w = weft_param(g, "w", dtype, WEFT_SHAPE(4, 3), WEFT_INIT_ZEROS);
    const weft_value b = weft_param(g, "b", dtype, WEFT_SHAPE(3), WEFT_INIT_ZEROS);
    const weft_value loss = weft_mean(
        g, weft_square(g, weft_sub(g, weft_tanh(g, weft_add(g, weft_matmul(g, x, w), b)), y)),
        WEFT_ALL_AXES, false);
    const weft_value step =
        weft_train_update(g, loss, NULL, 0, weft_scalar(g, dtype, 0.05), o, NULL);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(store, g, 1, &error), WEFT_OK);
    weft_plan *plan = weft_plan_new(g, &step, 1, &(weft_plan_options){.verify = true}, &error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, &error) : NULL;
    if (!s) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (int k = 0; k < STEPS; k++) {
        CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
        compare(store, name, "w", k, limit);
        compare(store, name, "b", k, limit);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    weft_params_free(store);
}

/* The file has f32. A step of an adaptive optimiser divides by the root of its moments, so errors
 * of the gradient grow: ten times the limits of single ops. */
static void test_ten_steps(void)
{
    for (size_t p = 0; p < GOLDEN_PRECISIONS; p++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            weft_optimizer guarded = cases[i].optimizer;
            guarded.guard = true;
            check_optimizer(cases[i].name, &cases[i].optimizer, golden_precisions[p].dtype,
                            10 * golden_precisions[p].limit);
            check_optimizer(cases[i].name, &guarded, golden_precisions[p].dtype,
                            10 * golden_precisions[p].limit);
        }
}

/* A gradient of zero: no optimiser divides by 0, and LAMB's ratio is 1. */
static void test_no_gradient(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_optimizer o = cases[i].optimizer;
        weft_error error = {0};
        weft_graph *g = weft_graph_new();
        const weft_value w = weft_param(g, "w", WEFT_F64, WEFT_SHAPE(3), WEFT_INIT_ZEROS);
        const weft_value loss = weft_sum(g, weft_square(g, w), WEFT_ALL_AXES, false);
        const weft_value step =
            weft_train_update(g, loss, NULL, 0, weft_scalar(g, WEFT_F64, 0.1), &o, NULL);
        weft_params *store = weft_params_new();
        weft_tensor t;
        CU_ASSERT_EQUAL_FATAL(weft_params_init(store, g, 1, &error), WEFT_OK);
        weft_plan *plan = weft_plan_new(g, &step, 1, NULL, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
        weft_session *s = weft_session_new(plan, store, NULL, &error);
        for (int k = 0; k < 2; k++) CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        CU_ASSERT_TRUE_FATAL(weft_params_find(store, "w", &t));
        for (int k = 0; k < 3; k++) CU_ASSERT_EQUAL(((double *)t.data)[k], 0);
        weft_session_free(s);
        weft_plan_free(plan);
        weft_params_free(store);
        weft_graph_free(g);
    }
}

static void test_refused(void)
{
    const weft_optimizer bad[] = {
        {.kind = WEFT_RMSPROP, .rms = {.alpha = 1}},
        {.kind = WEFT_RMSPROP, .rms = {.eps = -2}},
        {.kind = WEFT_ADAGRAD, .rms = {.eps = -2}},
        {.kind = WEFT_ADAGRAD, .rms = {.weight_decay = -2}},
        {.kind = WEFT_LAMB, .adam = {.beta1 = 1}},
        {.kind = WEFT_SGD, .sgd = {.momentum = 0.5, .dampening = 1}},
        {.kind = (weft_optimizer_kind)(WEFT_LAMB + 1)},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weft_graph *g = weft_graph_new();
        const weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ZEROS);
        const weft_value loss = weft_sum(g, w, WEFT_ALL_AXES, false);
        weft_train_update(g, loss, NULL, 0, weft_scalar(g, WEFT_F32, 0.1), &bad[i], NULL);
        CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
        weft_graph_free(g);
    }
}

void golden_optimizer_tests(void)
{
    CU_pSuite suite = CU_add_suite("golden optimizers", NULL, NULL);
    CU_add_test(suite, "ten steps as torch.optim", test_ten_steps);
    CU_add_test(suite, "a gradient of zero", test_no_gradient);
    CU_add_test(suite, "options out of range", test_refused);
}
