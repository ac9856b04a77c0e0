/* Graphs of imported models for training and for evaluation: batch normalisation with its running
 * statistics, and dropout. */
#include "onnx_writer.h"
#include "tests.h"

#include <weft/op.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 4, CHANNELS = 2 };
static const float x[ROWS][CHANNELS] = {{1, 10}, {2, -4}, {4, 6}, {-3, 0}};
static const float scale[CHANNELS] = {2, -1}, bias[CHANNELS] = {0.5f, 3};
static const float mean[CHANNELS] = {1, -2}, variance[CHANNELS] = {4, 0.25f};

/* Writes a model, and reads it. */
static weft_onnx *load(arena *memory, written_graph *g)
{
    weft_onnx *m = must_load_written(memory, g, 15, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    return m;
}

/* A weight: an initializer, or, as paddle2onnx writes it, a node Constant. */
static void write_weight(arena *p, written_graph *g, const char *name, const float *data,
                         bool in_node)
{
    const weft_shape shape = WEFT_SHAPE(CHANNELS);
    written_graph *of = in_node ? write_graph(p) : g;
    write_floats(p, of, in_node ? "" : name, shape, data);
    if (in_node)
        write_attribute(p, write_node(p, g, "Constant", "", name), "value")->t =
            of->initializers[0];
}

/* y = BatchNormalization(x). */
static written_graph *normalisation(arena *p, bool training_mode, bool in_nodes)
{
    written_graph *g = write_graph(p);
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(-1, CHANNELS));
    write_weight(p, g, "s", scale, in_nodes);
    write_weight(p, g, "b", bias, in_nodes);
    write_weight(p, g, "m", mean, in_nodes);
    write_weight(p, g, "v", variance, in_nodes);
    WeftOnnx__NodeProto *node = write_node(p, g, "BatchNormalization", "x s b m v", "y");
    WeftOnnx__AttributeProto *mode = write_attribute(p, node, "training_mode");
    mode->has_i = true;
    mode->i = training_mode;
    write_output(p, g, "y");
    return g;
}

/* Builds the model by its builder. */
static weft_graph *build(const weft_onnx *m, bool training, weft_built *built)
{
    weft_graph *g = weft_graph_new();
    const weft_builder b = weft_onnx_builder(m);
    const weft_build_options o = {.shape = {.rows = ROWS}, .training = training};
    b.build(b.context, g, &o, built);
    return g;
}

/* Runs targets on x once; y becomes the first one's contents. */
static void run(const weft_onnx *m, weft_graph *g, const weft_value *targets, size_t n,
                weft_value input, weft_params *params, float y[ROWS][CHANNELS])
{
    weft_error error = {0};
    weft_plan *plan = weft_plan_new(g, targets, n, NULL, &error);
    CU_ASSERT_EQUAL(weft_onnx_copy_weights(m, params, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_init(params, g, 1, &error), WEFT_OK);
    weft_session *s = plan ? weft_session_new(plan, params, NULL, &error) : NULL;
    if (!s) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_session_feed(s, input, x, sizeof x, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    weft_session_fetch(s, targets[0], y, ROWS * sizeof *y, NULL);
    weft_session_free(s);
    weft_plan_free(plan);
}

/* Whether y is x normalised by these statistics, but for six roundings of f32 of numbers up to 27:
 * 6 * 27 * 2^-24 = 1e-5. */
static bool is_normalised(float y[ROWS][CHANNELS], const double *m, const double *v)
{
    bool same = true;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < CHANNELS; c++)
            same &=
                fabs((x[r][c] - m[c]) / sqrt(v[c] + 1e-5) * scale[c] + bias[c] - y[r][c]) < 1e-5;
    return same;
}

static void batch_statistics(double m[CHANNELS], double v[CHANNELS])
{
    for (int c = 0; c < CHANNELS; c++) {
        m[c] = v[c] = 0;
        for (int r = 0; r < ROWS; r++) m[c] += x[r][c] / (double)ROWS;
        for (int r = 0; r < ROWS; r++) v[c] += (x[r][c] - m[c]) * (x[r][c] - m[c]) / ROWS;
    }
}

static double state(const weft_params *params, const char *name, int c)
{
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_params_find(params, name, &t));
    return weft_tensor_element(&t, c);
}

/* In training, the batch's statistics, which move the running ones; these in evaluation. */
static void test_normalisation(void)
{
    const double running[2][CHANNELS] = {{1, -2}, {4, 0.25}};
    double batch[2][CHANNELS];
    batch_statistics(batch[0], batch[1]);
    for (int i = 0; i < 4; i++) {
        const bool mode = i % 2;
        arena memory = {.blocks = NULL};
        weft_built built;
        float y[ROWS][CHANNELS];
        weft_onnx *m = load(&memory, normalisation(&memory, mode, i / 2));
        weft_params *params = weft_params_new(), *trained = weft_params_new();
        weft_graph *g = build(m, false, &built);
        CU_ASSERT_EQUAL(test_count_params(g), 2);
        CU_ASSERT_EQUAL(test_count_states(g), 4);
        CU_ASSERT_EQUAL(test_count_tracked(g), 0);
        run(m, g, built.outputs, 1, built.inputs[0], params, y);
        CU_ASSERT_TRUE(is_normalised(y, running[0], running[1]));
        weft_graph_free(g);
        g = build(m, true, &built);
        CU_ASSERT_EQUAL(test_count_tracked(g), 2);
        const weft_value loss = weft_mean(g, built.outputs[0], WEFT_ALL_AXES, false);
        const weft_value rate = weft_scalar(g, WEFT_F32, 0.1);
        const weft_value step = weft_train_update(g, loss, NULL, 0, rate, NULL, NULL);
        run(m, g, (weft_value[2]){built.outputs[0], step}, 2, built.inputs[0], trained, y);
        CU_ASSERT_TRUE(is_normalised(y, batch[0], batch[1]));
        for (int c = 0; c < CHANNELS; c++) {
            CU_ASSERT_DOUBLE_EQUAL(state(trained, "m", c), 0.9 * mean[c] + 0.1 * batch[0][c],
                                   ROUNDING_F32);
            CU_ASSERT_DOUBLE_EQUAL(state(trained, "v", c), 0.9 * variance[c] + 0.1 * batch[1][c],
                                   ROUNDING_F32);
        }
        CU_ASSERT_NOT_EQUAL(state(trained, "b", 0), bias[0]);
        weft_graph_free(g);
        /* Without a builder the file decides. */
        weft_value in, out;
        g = weft_graph_new();
        CU_ASSERT_EQUAL(weft_onnx_build(g, m, ROWS, &in, &out), WEFT_OK);
        run(m, g, &out, 1, in, params, y);
        CU_ASSERT_TRUE(
            is_normalised(y, mode ? batch[0] : running[0], mode ? batch[1] : running[1]));
        weft_graph_free(g);
        weft_params_free(params);
        weft_params_free(trained);
        weft_onnx_free(m);
        weft__arena_free(&memory);
    }
}

static void refused(arena *memory, written_graph *written, const char *message)
{
    weft_built built;
    weft_onnx *m = load(memory, written);
    weft_graph *g = build(m, true, &built);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
    if (!strstr(weft_graph_error(g)->message, message))
        printf("\n    \"%s\", not \"%s\"\n", weft_graph_error(g)->message, message);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, message));
    weft_graph_free(g);
    g = build(m, false, &built);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
    weft_graph_free(g);
    weft_onnx_free(m);
    weft__arena_free(memory);
}

/* Statistics that training cannot update. */
static void test_refused(void)
{
    arena memory = {.blocks = NULL};
    written_graph *g = normalisation(&memory, false, false);
    write_node(&memory, g, "BatchNormalization", "y s b m v", "z");
    refused(&memory, g, "the state is tracked already");
    memory = (arena){.blocks = NULL};
    g = normalisation(&memory, false, false);
    write_node(&memory, g, "Neg", "m", "other");
    write_node(&memory, g, "BatchNormalization", "y s b other v", "z");
    write_output(&memory, g, "z");
    refused(&memory, g, "training can only update initializers");
}

static size_t count_dropouts(const weft_graph *g)
{
    size_t n = 0;
    for (size_t k = 0; k < weft_graph_node_count(g); k++)
        n += !strcmp(weft_graph_node(g, k).op->name, "dropout");
    return n;
}

static void test_dropout(void)
{
    static const float ratio = 0.25f;
    arena memory = {.blocks = NULL};
    written_graph *written = write_graph(&memory);
    weft_built built;
    write_input(&memory, written, "x", ONNX_FLOAT, WEFT_SHAPE(-1, CHANNELS));
    write_floats(&memory, written, "ratio", WEFT_SCALAR, &ratio);
    write_node(&memory, written, "Dropout", "x ratio", "y");
    write_output(&memory, written, "y");
    weft_onnx *m = load(&memory, written);
    for (int training = 0; training < 2; training++) {
        weft_graph *g = build(m, training, &built);
        CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
        CU_ASSERT_EQUAL(count_dropouts(g), (size_t)training);
        weft_graph_free(g);
    }
    weft_onnx_free(m);
    weft__arena_free(&memory);
}

void onnx_training_tests(void)
{
    CU_pSuite s = CU_add_suite("onnx_training", NULL, NULL);
    CU_add_test(s, "batch normalisation", test_normalisation);
    CU_add_test(s, "statistics that cannot be updated", test_refused);
    CU_add_test(s, "dropout", test_dropout);
}
