/* Gradients of models that PyTorch exported, against PyTorch's (golden/make_gradients.py): each
 * file is imported and differentiated, and its output, the loss mean(output^2) and the gradient of
 * every parameter are compared in f32, with the same bits at 1 and 2 threads. */
#include "golden.h"

#include <weft/onnx.h>

#include <stdlib.h>
#include <string.h>

/* Norm-wise, in f32: 170 roundings of 2^-24 = 6e-8 each. Gradients that are zero but for rounding
 * may be off by FLOOR of the norm of all, two roundings. */
#define LIMIT      1e-5
#define FLOOR      1e-7
#define MAX_INPUTS 4
#define MAX_PARAMS 128
#define PATH       512

/* An imported model. Targets are the gradients, the output and the loss. */
typedef struct imported {
    const char *name;
    weft_onnx *model;
    weft_params *golden, *weights;
    weft_graph *g;
    weft_value inputs[MAX_INPUTS], params[MAX_PARAMS], targets[MAX_PARAMS + 2];
    size_t n_inputs, n_params;
    weft_plan *plan;
} imported;

static const char *path_of(const char *name, const char *suffix, char path[PATH])
{
    CU_ASSERT_TRUE_FATAL(snprintf(path, PATH, GOLDEN("gradients/%s%s"), name, suffix) < PATH);
    return path;
}

static const char *joined(const char *prefix, const char *name, char text[PATH])
{
    CU_ASSERT_TRUE_FATAL(snprintf(text, PATH, "%s%s", prefix, name) < PATH);
    return text;
}

/* The parameters of the graph whose gradients the golden file has. An initializer that is a
 * constant of PyTorch's model, such as the frequencies of rotary positions, is a parameter too. */
static void choose_params(imported *m)
{
    char text[PATH];
    weft_value all[MAX_PARAMS];
    const size_t n = test_params(m->g, all, MAX_PARAMS);
    CU_ASSERT_TRUE_FATAL(n <= MAX_PARAMS);
    for (size_t i = 0; i < n; i++)
        if (weft_params_find(m->golden, joined("grad.", weft_name_of(m->g, all[i]), text), NULL))
            m->params[m->n_params++] = all[i];
}

/* Reads the model, and adds the loss and its gradients. */
static void import(imported *m, const char *name)
{
    char path[PATH];
    weft_error error = {0};
    size_t n_outputs;
    weft_value output, loss, grads[MAX_PARAMS];
    *m = (imported){.name = name};
    m->model = weft_onnx_load(path_of(name, ".onnx", path), NULL, &error);
    if (!m->model) printf("\n    %s: %s: %s\n", name, error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m->model);
    m->golden = golden_load(path_of(name, ".safetensors", path), "", WEFT_F32);
    m->weights = weft_params_new();
    CU_ASSERT_EQUAL_FATAL(weft_onnx_copy_weights(m->model, m->weights, &error), WEFT_OK);
    weft_onnx_inputs(m->model, &m->n_inputs);
    weft_onnx_outputs(m->model, &n_outputs);
    CU_ASSERT_TRUE_FATAL(m->n_inputs <= MAX_INPUTS && n_outputs == 1);
    m->g = weft_graph_new();
    CU_ASSERT_EQUAL_FATAL(weft_onnx_build(m->g, m->model, 0, m->inputs, &output), WEFT_OK);
    loss = weft_mean(m->g, weft_square(m->g, output), WEFT_ALL_AXES, false);
    choose_params(m);
    weft_grad(m->g, loss, m->params, m->n_params, grads);
    for (size_t i = 0; i < m->n_params; i++) m->targets[i] = weft_contiguous(m->g, grads[i]);
    m->targets[m->n_params] = weft_contiguous(m->g, output);
    m->targets[m->n_params + 1] = loss;
    const weft_plan_options verify = {.verify = true};
    m->plan = weft_plan_new(m->g, m->targets, m->n_params + 2, &verify, &error);
    if (!m->plan) printf("\n    %s: %s: %s\n", name, error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m->plan);
}

static void release(imported *m)
{
    weft_plan_free(m->plan);
    weft_graph_free(m->g);
    weft_params_free(m->weights);
    weft_params_free(m->golden);
    weft_onnx_free(m->model);
}

/* A session that has run once. */
static weft_session *run_model(imported *m, int threads)
{
    char text[PATH];
    weft_error error = {0};
    size_t n;
    const weft_onnx_value *inputs = weft_onnx_inputs(m->model, &n);
    const weft_session_options options = {.threads = threads};
    weft_session *s = weft_session_new(m->plan, m->weights, &options, &error);
    if (!s) printf("\n    %s: %s: %s\n", m->name, error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (size_t i = 0; i < n; i++) {
        weft_tensor t;
        const bool found = weft_params_find(m->golden, joined("input.", inputs[i].name, text), &t);
        CU_ASSERT_TRUE_FATAL(found && t.dtype == inputs[i].dtype);
        CU_ASSERT_EQUAL(
            weft_session_feed(s, m->inputs[i], t.data, weft_tensor_bytes(t.dtype, t.shape), NULL),
            WEFT_OK);
    }
    CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
    return s;
}

/* Compares all targets with the golden file. Gradients that are zero but for rounding, such as
 * those of biases of attention's keys, may be off by FLOOR. */
static void check_values(const imported *m, weft_session *s)
{
    char text[PATH];
    const double floor = FLOOR * golden_gradient_norm(m->golden, m->n_params);
    CU_ASSERT_TRUE(floor > 0);
    for (size_t i = 0; i < m->n_params; i++)
        golden_target(s, m->golden, m->targets[i],
                      joined("grad.", weft_name_of(m->g, m->params[i]), text), LIMIT, floor);
    golden_target(s, m->golden, m->targets[m->n_params], "output", LIMIT, 0);
    golden_target(s, m->golden, m->targets[m->n_params + 1], "loss", LIMIT, 0);
}

static void check_same_bits(const imported *m, weft_session *a, weft_session *b)
{
    for (size_t i = 0; i < m->n_params + 2; i++) {
        weft_tensor x, y;
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(a, m->targets[i], &x, NULL) == WEFT_OK);
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(b, m->targets[i], &y, NULL) == WEFT_OK);
        CU_ASSERT_TRUE(test_same_tensors("x", &x, &y));
    }
}

static void check_model(const char *name)
{
    imported m;
    const unsigned failures = CU_get_number_of_failures();
    import(&m, name);
    weft_session *alone = run_model(&m, 1), *both = run_model(&m, 2);
    check_values(&m, alone);
    check_same_bits(&m, alone, both);
    if (CU_get_number_of_failures() != failures) printf("    in %s\n", name);
    weft_session_free(alone);
    weft_session_free(both);
    release(&m);
}

/* The models, by the names of their files. */
// clang-format off
#define MODELS(X) \
    X(resnet) X(mobilenet_v3) X(shufflenet_v2) X(densenet) X(efficientnet) X(convnext) X(swin) \
    X(vit) X(bert) X(gpt2) X(llama) X(t5)
// clang-format on
#define TEST(name)                                                                                 \
    static void test_##name(void)                                                                  \
    {                                                                                              \
        check_model(#name);                                                                        \
    }
MODELS(TEST)
#undef TEST

void onnx_gradients_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_gradients", NULL, NULL);
#define ADD(name) CU_add_test(suite, #name, test_##name);
    MODELS(ADD)
#undef ADD
}
