/* Layers and models of images: shapes and formulas of the layers, running statistics as PyTorch has
 * them, training and evaluation of a listed model, refusals. golden_models_test.c has the values
 * and gradients of whole models. */
#include "golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Layers ---- */

enum { IMAGES = 3, CHANNELS = 4, SIDE = 5, AREA = SIDE * SIDE, NUMBERS = IMAGES * CHANNELS * AREA };

static double image[NUMBERS], result[NUMBERS];

static void fill_image(void)
{
    uint64_t state = 9;
    for (int i = 0; i < NUMBERS; i++) image[i] = test_uniform(&state, -1, 3);
}

static weft_value constant_image(weft_graph *g)
{
    return weft_constant(g, WEFT_F64, WEFT_SHAPE(IMAGES, CHANNELS, SIDE, SIDE), image);
}

static double *numbers_of(weft_params *store, const char *name, int64_t n)
{
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_params_find(store, name, &t) && t.dtype == WEFT_F64);
    CU_ASSERT_EQUAL_FATAL(weft_shape_numel(t.shape), n);
    return t.data;
}

/* Mean and variance of `channels` channels of images first .. end - 1, from channel `at` on. */
static void moments(int first, int end, int at, int channels, double *mean, double *variance)
{
    double sum = 0, squares = 0;
    const int n = (end - first) * channels * AREA;
    for (int pass = 0; pass < 2; pass++)
        for (int i = first; i < end; i++)
            for (int k = at * AREA; k < (at + channels) * AREA; k++) {
                const double x = image[i * CHANNELS * AREA + k];
                if (pass == 0) sum += x;
                if (pass == 1) squares += (x - sum / n) * (x - sum / n);
            }
    *mean = sum / n;
    *variance = squares / n;
}

/* Is `result` the image normalised by these moments, of `group` channels each, scaled by 1 + c and
 * shifted by c / 2 in channel c? `by_image`: each image has moments of its own. */
static void check_normalised(int group, bool by_image, double eps)
{
    for (int i = 0; i < NUMBERS; i++) {
        const int n = i / (CHANNELS * AREA), c = i / AREA % CHANNELS;
        double mean, variance;
        moments(by_image ? n : 0, by_image ? n + 1 : IMAGES, c / group * group, group, &mean,
                &variance);
        const double y = (image[i] - mean) / sqrt(variance + eps) * (1 + c) + 0.5 * c;
        CU_ASSERT_DOUBLE_EQUAL(result[i], y, ROUNDING_F64);
    }
}

static void set_affine(weft_params *store, const char *name)
{
    char full[32];
    snprintf(full, sizeof full, "%s.weight", name);
    for (int c = 0; c < CHANNELS; c++) numbers_of(store, full, CHANNELS)[c] = 1 + c;
    snprintf(full, sizeof full, "%s.bias", name);
    for (int c = 0; c < CHANNELS; c++) numbers_of(store, full, CHANNELS)[c] = 0.5 * c;
}

static void test_batch_norm(void)
{
    fill_image();
    for (int training = 0; training < 2; training++) {
        const weft_nn_batch_norm_options o = {.eps = 1e-3, .training = training == 1};
        weft_graph *g = weft_graph_new();
        weft_params *store = weft_params_new();
        weft_value y = weft_nn_batch_norm(g, "bn", constant_image(g), &o);
        CU_ASSERT_EQUAL_FATAL(weft_params_init(store, g, 1, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(test_count_params(g), 2);
        CU_ASSERT_EQUAL(test_count_states(g), 4);
        set_affine(store, "bn");
        /* Evaluation has the moments from the running statistics. */
        double *mean = numbers_of(store, "bn.running_mean", CHANNELS);
        double *variance = numbers_of(store, "bn.running_var", CHANNELS);
        for (int c = 0; c < CHANNELS; c++)
            if (training)
                mean[c] = variance[c] = 77;
            else
                moments(0, IMAGES, c, 1, &mean[c], &variance[c]);
        test_numbers_of(g, y, store, result, NUMBERS);
        check_normalised(1, false, 1e-3);
        weft_params_free(store);
        weft_graph_free(g);
    }
}

static void test_group_norm(void)
{
    fill_image();
    for (int groups = 1; groups <= CHANNELS; groups *= 2) {
        weft_graph *g = weft_graph_new();
        weft_params *store = weft_params_new();
        weft_value y = weft_nn_group_norm(g, "gn", constant_image(g), groups, 1e-2);
        CU_ASSERT_EQUAL_FATAL(weft_params_init(store, g, 1, NULL), WEFT_OK);
        set_affine(store, "gn");
        test_numbers_of(g, y, store, result, NUMBERS);
        check_normalised(CHANNELS / groups, true, 1e-2);
        weft_params_free(store);
        weft_graph_free(g);
    }
}

/* Means of channels; and a linear layer whose weight lies as PyTorch's does. */
static void test_head(void)
{
    double means[IMAGES * CHANNELS], logits[IMAGES * 2];
    fill_image();
    weft_graph *g = weft_graph_new();
    weft_params *store = weft_params_new();
    weft_value pooled = weft_nn_global_average_pool(g, constant_image(g));
    weft_value y = weft_nn_linear_transposed(g, "fc", pooled, 2, true);
    test_numbers_of(g, pooled, store, means, IMAGES * CHANNELS);
    test_numbers_of(g, y, store, logits, IMAGES * 2);
    const double *w = numbers_of(store, "fc.weight", 2 * CHANNELS);
    const double *b = numbers_of(store, "fc.bias", 2);
    CU_ASSERT_TRUE(w[0] != 0 && b[0] != 0);
    for (int i = 0; i < IMAGES; i++) {
        for (int c = 0; c < CHANNELS; c++) {
            double sum = 0;
            for (int k = 0; k < AREA; k++) sum += image[(i * CHANNELS + c) * AREA + k];
            CU_ASSERT_TRUE(test_near(means[i * CHANNELS + c], sum / AREA));
        }
        for (int f = 0; f < 2; f++) {
            double sum = b[f];
            for (int c = 0; c < CHANNELS; c++) sum += w[f * CHANNELS + c] * means[i * CHANNELS + c];
            CU_ASSERT_DOUBLE_EQUAL(logits[i * 2 + f], sum, ROUNDING_F64);
        }
    }
    weft_params_free(store);
    weft_graph_free(g);
}

/* Convolutions of one to three dimensions: shapes, and the deviation of the first weights. */
static void test_conv(void)
{
    for (int rank = 1; rank <= 3; rank++) {
        weft_graph *g = weft_graph_new();
        weft_params *store = weft_params_new();
        weft_shape shape = {.rank = rank + 2, .dim = {2, 64, 9, 9, 9}};
        weft_nn_conv_options o = {.channels = 96, .bias = true, .conv = {.groups = 32}};
        int64_t taps = 1;
        for (int d = 0; d < rank; d++) {
            o.kernel[d] = d + 2;
            o.conv.stride[d] = 2;
            taps *= d + 2;
        }
        weft_value y = weft_nn_conv(g, "conv", weft_fill(g, WEFT_F64, shape, 1), &o);
        CU_ASSERT_EQUAL_FATAL(weft_graph_status(g), WEFT_OK);
        CU_ASSERT_TRUE(weft_dim_of(g, y, 1) == 96 && weft_dim_of(g, y, 2) == 4);
        CU_ASSERT_EQUAL_FATAL(weft_params_init(store, g, 1, NULL), WEFT_OK);
        const int64_t n = (int64_t)96 * 2 * taps;
        const double *w = numbers_of(store, "conv.weight", n);
        double squares = 0;
        for (int64_t i = 0; i < n; i++) squares += w[i] * w[i];
        const double wanted = 2.0 / (3 * (double)taps);
        /* The mean square of n normal numbers has a standard error of sqrt(2 / n) of it. Four times
         * that is 0.29 for the 384 weights of rank 1. */
        CU_ASSERT_DOUBLE_EQUAL(squares / (double)n, wanted, 0.3 * wanted);
        CU_ASSERT_EQUAL(numbers_of(store, "conv.bias", 96)[0], 0);
        weft_params_free(store);
        weft_graph_free(g);
    }
}

/* A batch of one number a channel has no sample variance: the running variance takes a zero. */
static void test_vectors(void)
{
    for (int rows = 1; rows <= 2; rows++) {
        const weft_nn_batch_norm_options o = {.training = true, .momentum = 1};
        weft_graph *g = weft_graph_new();
        weft_params *store = weft_params_new();
        weft_error error = {0};
        const double x[4] = {1, 4, 3, 8};
        weft_value y =
            weft_nn_batch_norm(g, "bn", weft_constant(g, WEFT_F64, WEFT_SHAPE(rows, 2), x), &o);
        weft_value loss = weft_sum(g, y, WEFT_ALL_AXES, false);
        weft_optimizer sgd = {.kind = WEFT_SGD};
        weft_value lr = weft_scalar(g, WEFT_F64, 0);
        weft_value step = weft_train_update(g, loss, NULL, 0, lr, &sgd, NULL);
        weft_plan *plan = weft_plan_new(g, &step, 1, NULL, &error);
        CU_ASSERT_EQUAL_FATAL(weft_params_init(store, g, 1, &error), WEFT_OK);
        weft_session *s = weft_session_new(plan, store, NULL, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        const double *mean = numbers_of(store, "bn.running_mean", 2);
        const double *variance = numbers_of(store, "bn.running_var", 2);
        CU_ASSERT_TRUE(test_near(mean[0], rows == 1 ? 1 : 2));
        CU_ASSERT_TRUE(test_near(variance[1], rows == 1 ? 0 : 8));
        weft_session_free(s);
        weft_plan_free(plan);
        weft_params_free(store);
        weft_graph_free(g);
    }
}

/* ---- Running statistics ---- */

static bool freeze_all(void *context, const char *name)
{
    (void)context;
    return strstr(name, "running_") != NULL;
}

/* One step without a learning rate on a case of the golden file: the running statistics become
 * PyTorch's. Frozen ones stay, and then training computes what evaluation does. */
static void check_statistics(const char *name, const char *what, bool frozen)
{
    char prefix[64], text[160];
    weft_error error = {0};
    weft_built built;
    weft_optimizer sgd = {.kind = WEFT_SGD};
    size_t n;
    weft_graph *g = weft_graph_new();
    snprintf(prefix, sizeof prefix, "%s/", name);
    weft_params *store = golden_load(GOLDEN("vision.safetensors"), prefix, WEFT_F64);
    if (frozen) weft_graph_freeze(g, freeze_all, NULL);
    test_build_model(g, what, true, &built);
    const weft_tracked *tracked = weft_graph_tracked(g, &n);
    CU_ASSERT_EQUAL(n > 0, !frozen);
    weft_value lr = weft_scalar(g, WEFT_F64, 0);
    weft_value step = weft_train_update(g, built.loss, NULL, 0, lr, &sgd, NULL);
    weft_plan *plan = weft_plan_new(g, WEFT_VALUES(step, built.loss), NULL, &error);
    weft_session *s = NULL;
    if (plan && weft_params_init(store, g, 1, &error) == WEFT_OK)
        s = weft_session_new(plan, store, NULL, &error);
    if (!s) printf("\n    %s: %s: %s\n", name, error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_tensor pixels, labels, wanted;
    CU_ASSERT_TRUE_FATAL(weft_params_find(store, "input", &pixels) &&
                         weft_params_find(store, "labels", &labels));
    CU_ASSERT_EQUAL(weft_session_feed(s, weft_built_input(&built, "input"), pixels.data,
                                      weft_tensor_bytes(WEFT_F64, pixels.shape), NULL),
                    WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(s, weft_built_input(&built, "labels"), labels.data,
                                      weft_tensor_bytes(WEFT_I32, labels.shape), NULL),
                    WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    for (size_t i = 0; i < n; i++) {
        weft_tensor got;
        snprintf(text, sizeof text, "after.%s", weft_name_of(g, tracked[i].state));
        CU_ASSERT_TRUE_FATAL(weft_params_find(store, weft_name_of(g, tracked[i].state), &got) &&
                             weft_params_find(store, text, &wanted));
        CU_ASSERT_TRUE(golden_agrees(text, &got, &wanted, golden_precisions[1].limit, 0));
    }
    if (frozen) {
        double loss;
        CU_ASSERT_EQUAL(weft_session_fetch(s, built.loss, &loss, sizeof loss, NULL), WEFT_OK);
        CU_ASSERT_TRUE(weft_params_find(store, "loss", &wanted));
        /* A loss below 4, which the file rounds to f32: 4 * 2^-24 = 2.4e-7. */
        CU_ASSERT_DOUBLE_EQUAL(loss, *(const double *)wanted.data, 5e-7);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(store);
    weft_graph_free(g);
}

static void test_statistics(void)
{
    weft_params *file = weft_params_new();
    static const char *const trained[] = {"resnet14_training", "mobilenet_training"};
    char what[256];
    CU_ASSERT_EQUAL_FATAL(weft_params_load(file, GOLDEN("vision.safetensors"), NULL), WEFT_OK);
    for (int i = 0; i < 2; i++) {
        snprintf(what, sizeof what, "%s f64=1", weft_params_meta(file, trained[i]));
        check_statistics(trained[i], what, false);
    }
    snprintf(what, sizeof what, "%s f64=1", weft_params_meta(file, "resnet18"));
    check_statistics("resnet18", what, true);
    weft_params_free(file);
}

/* ---- Training ---- */

/* Synthetic images of two classes: the brighter half is the left or the right one. */
enum { BATCHES = 8, ROWS = 16, PIXELS = 16 };

static weft_batch_shape batch_shape(void *context, size_t index)
{
    (void)context;
    (void)index;
    return (weft_batch_shape){.rows = ROWS};
}

static weft_status batch_fill(void *context, size_t index, void *const *inputs, size_t *weight,
                              weft_error *error)
{
    uint64_t state = *(const uint64_t *)context + index;
    float *pixels = inputs[0];
    int32_t *labels = inputs[1];
    (void)error;
    for (int i = 0; i < ROWS; i++) {
        labels[i] = (int32_t)(test_random(&state) % 2);
        for (int k = 0; k < PIXELS * PIXELS; k++) {
            const bool left = k % PIXELS < PIXELS / 2, bright = left == (labels[i] == 0);
            pixels[i * PIXELS * PIXELS + k] = (float)test_uniform(&state, 0, 1) + (bright ? 2 : 0);
        }
    }
    *weight = ROWS;
    return WEFT_OK;
}

static weft_batch_source source_of(uint64_t *seed)
{
    return (weft_batch_source){.batches = BATCHES,
                               .n_inputs = 2,
                               .input_dtypes = {WEFT_F32, WEFT_I32},
                               .shape = batch_shape,
                               .fill = batch_fill,
                               .context = seed};
}

/* Trains some steps and evaluates on other images. Evaluation reads the running statistics, so it
 * is right only if training moved them. */
static void check_training(const char *model, const char *const *texts, size_t n)
{
    uint64_t seed = 1, other = 1000;
    const weft_batch_source source = source_of(&seed), held_out = source_of(&other);
    weft_error error = {0};
    double before = 0, after = 0;
    size_t weight = 0;
    weft_params *params = weft_params_new();
    const weft_trainer_options o = {.builder = test_builder(model, texts, n),
                                    .optimizer = WEFT_ADAM_DEFAULT,
                                    .schedule = {WEFT_SCHEDULE_CONSTANT, 1e-2, 0, 0, 0},
                                    .seed = 3};
    weft_trainer *t = weft_trainer_new(&o, &source, params, &error);
    if (!t) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT_EQUAL(weft_trainer_evaluate(t, &held_out, 0, &before, &weight, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weight, BATCHES * ROWS);
    for (int i = 0; i < 60; i++)
        CU_ASSERT_EQUAL_FATAL(weft_trainer_update(t, 0, NULL, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_trainer_evaluate(t, &held_out, 0, &after, NULL, NULL), WEFT_OK);
    if (!(after < 0.3)) printf("\n    %s: from %g to %g\n", model, before, after);
    CU_ASSERT_TRUE(before > 0.4 && after < 0.3);
    weft_trainer_free(t);
    weft_params_free(params);
}

static void test_training(void)
{
    static const char *const resnet[] = {"depth=10", "width=4", "classes=2", "image_size=16",
                                         "channels=1"};
    static const char *const mobilenet[] = {"width=0.1", "depth=0.25",    "round=2",   "last=16",
                                            "classes=2", "image_size=16", "channels=1"};
    static const char *const vit[] = {"patch=4",  "d_model=16", "heads=2",       "d_ff=16",
                                      "layers=1", "classes=2",  "image_size=16", "channels=1"};
    check_training("resnet", resnet, 5);
    check_training("mobilenet", mobilenet, 7);
    check_training("vit", vit, 8);
}

/* ---- Refusals ---- */

static void refuse(const char *model, const char *option, weft_status wanted, const char *said)
{
    weft_graph *g = weft_graph_new();
    weft_built built;
    weft_error error = {0};
    CU_ASSERT_EQUAL(
        weft_model_build_text(g, weft_model_find(model), &option, 1, true, &built, &error), wanted);
    if (!strstr(error.message, said)) printf("\n    %s %s: %s\n", model, option, error.message);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, said));
    weft_graph_free(g);
}

static void test_refusals(void)
{
    refuse("resnet", "depth=19", WEFT_BAD_ARGUMENT, "one of 10|14|18|34|50|101|152");
    refuse("resnet", "width=0", WEFT_BAD_ARGUMENT, "width must be 1 to");
    refuse("resnet", "image_size=0", WEFT_BAD_SHAPE, "the kernel reaches over 7");
    refuse("mobilenet", "depth=1000", WEFT_TOO_LARGE, "a stage of 2000 blocks, at most 1000");
    refuse("vit", "patch=15", WEFT_BAD_ARGUMENT, "patches of 15 must divide images of 224");
    refuse("vit", "patch=0", WEFT_BAD_ARGUMENT, "patches of 0");
    refuse("vit", "d_model=0", WEFT_BAD_ARGUMENT, "d_model must be 1 or more");
    refuse("vit", "layers=1001", WEFT_TOO_LARGE, "1001 layers, expected at most 1000");
    refuse("vit", "length=3", WEFT_NOT_FOUND, "no option");

    const weft_build_options build = {.shape = {1, 0, 0}};
    const weft_resnet_config odd = {.depth = 20, .width = 1};
    const weft_mobilenet_config wide = {.width = INFINITY};
    for (int i = 0; i < 8; i++) {
        weft_graph *g = weft_graph_new();
        const weft_nn_conv_options none = {.channels = 0}, three = {.channels = 3};
        const weft_nn_conv_options groups = {.channels = 4, .conv = {.groups = 3}};
        weft_value flat = weft_fill(g, WEFT_F32, WEFT_SHAPE(4, 4), 1);
        weft_value x = weft_fill(g, WEFT_F32, WEFT_SHAPE(1, 4, 5, 5), 1);
        if (i == 0) weft_nn_conv(g, "a", x, NULL);
        if (i == 1) weft_nn_conv(g, "a", x, &none);
        if (i == 2) weft_nn_conv(g, "a", x, &groups);
        if (i == 3) weft_nn_group_norm(g, "a", x, 3, 1e-5);
        if (i == 4) weft_resnet_build(g, NULL, &build);
        if (i == 5) weft_resnet_build(g, &odd, &build);
        if (i == 6) weft_mobilenet_build(g, &wide, &build);
        if (i < 7) CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
        if (i == 7) {
            weft_nn_conv(g, "a", flat, &three);
            CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_SHAPE);
        }
        weft_graph_free(g);
    }
}

/* The layer has PyTorch's names, layout and initialisation, and the values of the op. */
static void test_conv_transpose(void)
{
    double x[2 * 4 * 3 * 3], got[2][2 * 6 * 7 * 7], most = 0;
    const weft_nn_conv_options o = {
        .channels = 6, .kernel = {3, 3}, .bias = true, .conv = {.stride = {2, 2}, .groups = 2}};
    weft_error error = WEFT_NO_ERROR;
    weft_tensor weight, bias;
    weft_params *params = weft_params_new();
    weft_graph *g = weft_graph_new();
    weft_value in = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(2, 4, 3, 3)), y[2];
    y[0] = weft_nn_conv_transpose(g, "up", in, &o);
    y[1] = weft_conv_transpose(g, in, weft_graph_find(g, "up.weight"),
                               weft_graph_find(g, "up.bias"), &o.conv);
    CU_ASSERT_TRUE_FATAL(weft_shape_equal(weft_shape_of(g, y[0]), WEFT_SHAPE(2, 6, 7, 7)));
    CU_ASSERT_EQUAL(weft_params_init(params, g, 1, &error), WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_params_find(params, "up.weight", &weight));
    CU_ASSERT_TRUE_FATAL(weft_params_find(params, "up.bias", &bias));
    CU_ASSERT_TRUE(weft_shape_equal(weight.shape, WEFT_SHAPE(4, 3, 3, 3)));
    CU_ASSERT_TRUE(weft_shape_equal(bias.shape, WEFT_SHAPE(6)));
    for (int64_t i = 0; i < 108; i++) most = fmax(most, fabs(weft_tensor_element(&weight, i)));
    /* Of 108 numbers that are uniform up to b, the largest is below 0.9 b once in 10^5 draws. */
    const double bound = 1 / sqrt(27);
    CU_ASSERT_TRUE(most <= bound && most > 0.9 * bound);
    CU_ASSERT_TRUE(weft_tensor_element(&bias, 0) != 0);
    for (int i = 0; i < 72; i++) x[i] = (i % 7) - 3;
    weft_plan *plan = weft_plan_new(g, y, 2, NULL, &error);
    weft_session *s = weft_session_new(plan, params, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_feed(s, in, x, sizeof x, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    for (int i = 0; i < 2; i++)
        CU_ASSERT_EQUAL(weft_session_fetch(s, y[i], got[i], sizeof got[i], NULL), WEFT_OK);
    CU_ASSERT_EQUAL(memcmp(got[0], got[1], sizeof got[0]), 0);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    g = weft_graph_new();
    weft_nn_conv_transpose(g, "up", weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 4)), &o);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_SHAPE);
    weft_graph_free(g);
    weft_params_free(params);
}

void vision_tests(void)
{
    CU_pSuite suite = CU_add_suite("images", NULL, NULL);
    CU_add_test(suite, "transposed convolution as a layer", test_conv_transpose);
    CU_add_test(suite, "batch norm", test_batch_norm);
    CU_add_test(suite, "group norm", test_group_norm);
    CU_add_test(suite, "pooling and a linear layer", test_head);
    CU_add_test(suite, "convolutions", test_conv);
    CU_add_test(suite, "batch norm of vectors", test_vectors);
    CU_add_test(suite, "running statistics", test_statistics);
    CU_add_test(suite, "models learn and are evaluated", test_training);
    CU_add_test(suite, "refusals", test_refusals);
}
