/* Convolution and pooling on chosen inputs: equal maxima and NaN, a transposed convolution by hand,
 * and the calls that the builders refuse. */
#include "tests.h"

#include <math.h>
#include <string.h>

typedef struct evaluation {
    weft_plan *plan;
    weft_session *session;
    weft_tensor out[3]; /* the targets */
} evaluation;

/* Runs a graph of one f32 input. */
static bool evaluate(weft_graph *g, weft_value x, const float *data, size_t n,
                     const weft_value *target, size_t n_targets, evaluation *e)
{
    weft_error error;
    e->plan = weft_plan_new(g, target, n_targets, NULL, &error);
    e->session = e->plan ? weft_session_new(e->plan, NULL, NULL, &error) : NULL;
    bool good = e->session &&
                weft_session_feed(e->session, x, data, n * sizeof *data, NULL) == WEFT_OK &&
                weft_session_run(e->session, NULL) == WEFT_OK;
    for (size_t t = 0; good && t < n_targets; t++)
        good = weft_session_tensor(e->session, target[t], &e->out[t], NULL) == WEFT_OK;
    return good;
}

static void evaluation_free(evaluation *e)
{
    weft_session_free(e->session);
    weft_plan_free(e->plan);
}

/* Of equal maxima the first gets the gradient; a NaN wins. */
static void test_ties(void)
{
    static const float data[8] = {2, 2, 1, NAN, 2, 2, 5, 5};
    static const float expected_dx[8] = {1, 0, 0, 1, 0, 0, 0, 0};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, 1, 2, 4)), index, target[3];
    target[0] = weft_max_pool(g, x, &(weft_pool_options){.kernel = {2, 2}}, &index);
    target[1] = index;
    weft_value ones = weft_fill(g, WEFT_F32, weft_shape_of(g, target[0]), 1);
    weft_grad_of(g, target, &ones, 1, &x, 1, &target[2]);
    evaluation e;
    CU_ASSERT_TRUE_FATAL(evaluate(g, x, data, 8, target, 3, &e));
    const float *y = e.out[0].data, *dx = e.out[2].data;
    const int32_t *i = e.out[1].data;
    CU_ASSERT_TRUE(y[0] == 2 && isnan(y[1]));
    CU_ASSERT_TRUE(i[0] == 0 && i[1] == 3);
    CU_ASSERT_EQUAL(memcmp(dx, expected_dx, sizeof expected_dx), 0);
    evaluation_free(&e);
    weft_graph_free(g);
}

/* A transposed convolution of one pixel is the kernel; with stride and output padding. */
static void test_transpose(void)
{
    static const float data[2] = {1, 10};
    static const float expected_y[6] = {1.5f, 2.5f, 13.5f, 20.5f, 30.5f, 0.5f};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, 1, 2));
    weft_value w = weft_add_scalar(
        g, weft_reshape(g, weft_arange(g, WEFT_F32, 3, 0, 1), WEFT_SHAPE(1, 1, 3)), 1);
    weft_value bias = weft_fill(g, WEFT_F32, WEFT_SHAPE(1), 0.5);
    weft_value y =
        weft_conv_transpose(g, x, w, bias, &(weft_conv_options){.stride = {2}, .output_pad = {1}});
    evaluation e;
    CU_ASSERT_TRUE_FATAL(evaluate(g, x, data, 2, &y, 1, &e));
    CU_ASSERT_TRUE(weft_shape_equal(e.out[0].shape, WEFT_SHAPE(1, 1, 6)));
    CU_ASSERT_EQUAL(memcmp(e.out[0].data, expected_y, sizeof expected_y), 0);
    evaluation_free(&e);
    weft_graph_free(g);
}

/* ---- The choice between a matrix product, which packs its weights into scratch memory, and sums
 * plane by plane, which need none ---- */

static size_t scratch_of(weft_shape x, weft_shape w, weft_conv_options o)
{
    weft_graph *g = weft_graph_new();
    const weft_value in[2] = {weft_input(g, "x", WEFT_F32, x), weft_input(g, "w", WEFT_F32, w)};
    const weft_value y = weft_conv(g, in[0], in[1], WEFT_NO_VALUE, &o);
    const weft_node_info node = weft_graph_node(g, weft_producer_of(g, y));
    const weft_tensor operands[2] = {weft_tensor_dense(NULL, WEFT_F32, x),
                                     weft_tensor_dense(NULL, WEFT_F32, w)};
    weft_tensor result = weft_tensor_dense(NULL, WEFT_F32, weft_shape_of(g, y));
    const weft_call call = {.attr = node.attr, .in = operands, .n_in = 2, .out = &result};
    const size_t scratch = node.op->scratch(&call);
    weft_graph_free(g);
    return scratch;
}

static bool is_product(weft_shape x, weft_shape w, weft_conv_options o)
{
    return scratch_of(x, w, o) > 0;
}

/* Taps that lie in the padding in all windows are neither packed nor multiplied. */
static void test_unused_taps(void)
{
    const weft_conv_options wide = {.dilation = {8, 8}, .pad_begin = {8, 8}, .pad_end = {8, 8}};
    const weft_conv_options none = {0};
    const weft_shape x = WEFT_SHAPE(1, 32, 7, 7);
    CU_ASSERT_EQUAL(scratch_of(x, WEFT_SHAPE(32, 32, 3, 3), wide),
                    scratch_of(x, WEFT_SHAPE(32, 32, 1, 1), none));
}

/* Tiles of the gradient of x: the product of patches has at least one for each remainder of the
 * stride, and for each 128 pixels of x; the one that is added to x has CONV_TILES at most, rounded
 * up to whole images. */
static int64_t gradient_tiles(weft_shape x, weft_shape w, weft_conv_options o)
{
    weft_graph *g = weft_graph_new();
    const weft_value image = weft_input(g, "x", WEFT_F32, x);
    weft_value y = weft_conv(g, image, weft_input(g, "w", WEFT_F32, w), WEFT_NO_VALUE, &o);
    const weft_shape shape = weft_shape_of(g, y);
    weft_value dy = weft_input(g, "dy", WEFT_F32, shape), dx;
    weft_grad_of(g, &y, &dy, 1, &image, 1, &dx);
    const weft_node_info node = weft_graph_node(g, weft_producer_of(g, dx));
    const weft_tensor operands[2] = {weft_tensor_dense(NULL, WEFT_F32, shape),
                                     weft_tensor_dense(NULL, WEFT_F32, w)};
    weft_tensor result = weft_tensor_dense(NULL, WEFT_F32, x);
    const weft_call call = {
        .attr = node.attr, .in = operands, .n_in = 2, .out = &result, .phase = 1};
    const int64_t tiles = node.op->tiles(&call);
    weft_graph_free(g);
    return tiles;
}

/* A gradient of few channels does not pack patches of dy for each of them. */
static void test_gradient_paths(void)
{
    const weft_conv_options none = {0}, padded = {.pad_begin = {1, 1}, .pad_end = {1, 1}};
    const weft_conv_options steps = {.stride = {128}}, twice = {.stride = {2, 2}};
    CU_ASSERT_TRUE(gradient_tiles(WEFT_SHAPE(1, 1, 16000), WEFT_SHAPE(258, 1, 256), steps) <= 16);
    CU_ASSERT_TRUE(gradient_tiles(WEFT_SHAPE(1, 1, 1600), WEFT_SHAPE(258, 1, 256), steps) <= 16);
    CU_ASSERT_TRUE(gradient_tiles(WEFT_SHAPE(8, 1, 28, 28), WEFT_SHAPE(64, 1, 5, 5), none) <= 16);
    CU_ASSERT_TRUE(gradient_tiles(WEFT_SHAPE(1, 3, 64, 64), WEFT_SHAPE(64, 3, 4, 4), twice) <= 16);
    CU_ASSERT_TRUE(gradient_tiles(WEFT_SHAPE(1, 64, 56, 56), WEFT_SHAPE(64, 64, 3, 3), padded) >=
                   56 * 56 / 128);
}

/* One channel of the image does not make a depthwise convolution. */
static void test_paths(void)
{
    const weft_conv_options none = {0}, depthwise = {.groups = 32};
    CU_ASSERT_TRUE(is_product(WEFT_SHAPE(1, 1, 16000), WEFT_SHAPE(258, 1, 256),
                              (weft_conv_options){.stride = {128}}));
    CU_ASSERT_TRUE(is_product(WEFT_SHAPE(8, 1, 28, 28), WEFT_SHAPE(64, 1, 5, 5), none));
    CU_ASSERT_FALSE(is_product(WEFT_SHAPE(8, 1, 28, 28), WEFT_SHAPE(8, 1, 5, 5), none));
    CU_ASSERT_FALSE(is_product(WEFT_SHAPE(1, 32, 56, 56), WEFT_SHAPE(32, 1, 3, 3), depthwise));
    CU_ASSERT_FALSE(is_product(WEFT_SHAPE(1, 32, 56, 56), WEFT_SHAPE(64, 1, 3, 3), depthwise));
    CU_ASSERT_TRUE(is_product(WEFT_SHAPE(1, 64, 56, 56), WEFT_SHAPE(64, 2, 3, 3), depthwise));
}

/* ---- Errors ---- */

static void expect_error(weft_graph *g, weft_status status, const char *message)
{
    const weft_error *e = weft_graph_error(g);
    if (e->status != status || !strstr(e->message, message))
        fprintf(stderr, "\n    expected \"%s\", got: %s: %s\n", message, e->where, e->message);
    CU_ASSERT_EQUAL(e->status, status);
    CU_ASSERT_PTR_NOT_NULL(strstr(e->message, message));
    weft_graph_free(g);
}

static weft_value image(weft_graph *g, weft_shape shape)
{
    return weft_input(g, "x", WEFT_F32, shape);
}

static void refuse_conv(weft_shape x, weft_shape w, weft_conv_options o, weft_status status,
                        const char *message)
{
    weft_graph *g = weft_graph_new();
    weft_conv(g, image(g, x), weft_input(g, "w", WEFT_F32, w), WEFT_NO_VALUE, &o);
    expect_error(g, status, message);
}

static void refuse_pool(weft_shape x, weft_pool_options o, weft_status status, const char *message)
{
    weft_graph *g = weft_graph_new();
    weft_max_pool(g, image(g, x), &o, NULL);
    expect_error(g, status, message);
    g = weft_graph_new();
    weft_average_pool(g, image(g, x), &o);
    expect_error(g, status, message);
}

static void test_errors(void)
{
    const weft_shape x = WEFT_SHAPE(1, 4, 5, 5), w = WEFT_SHAPE(6, 4, 3, 3);
    const weft_conv_options none = {0};
    refuse_conv(WEFT_SHAPE(4, 5), w, none, WEFT_BAD_SHAPE, "1 to 3 spatial dimensions");
    refuse_conv(x, WEFT_SHAPE(6, 4, 3), none, WEFT_BAD_SHAPE, "1 to 3 spatial dimensions");
    refuse_conv(x, WEFT_SHAPE(6, 3, 3, 3), none, WEFT_BAD_SHAPE, "do not fit 1 groups");
    refuse_conv(x, WEFT_SHAPE(5, 2, 3, 3), (weft_conv_options){.groups = 2}, WEFT_BAD_SHAPE,
                "do not fit 2 groups");
    refuse_conv(x, w, (weft_conv_options){.groups = -1}, WEFT_BAD_ARGUMENT, "groups is -1");
    refuse_conv(x, w, (weft_conv_options){.stride = {1, -1}}, WEFT_BAD_ARGUMENT, "stride is -1");
    refuse_conv(x, w, (weft_conv_options){.dilation = {-2}}, WEFT_BAD_ARGUMENT, "dilation is -2");
    refuse_conv(x, w, (weft_conv_options){.pad_end = {0, -1}}, WEFT_BAD_ARGUMENT, "pad_end is -1");
    refuse_conv(x, w, (weft_conv_options){.pad_begin = {INT64_MAX}}, WEFT_TOO_LARGE,
                "pad_begin is");
    refuse_conv(x, w, (weft_conv_options){.dilation = {3, 3}}, WEFT_BAD_SHAPE, "reaches over 7");
    refuse_conv(x, WEFT_SHAPE(6, 4, 0, 3), none, WEFT_BAD_SHAPE, "the kernel");

    weft_graph *g = weft_graph_new();
    weft_value bias = weft_input(g, "bias", WEFT_F32, WEFT_SHAPE(5));
    weft_conv(g, image(g, x), weft_input(g, "w", WEFT_F32, w), bias, NULL);
    expect_error(g, WEFT_BAD_SHAPE, "expected [6]");
    g = weft_graph_new();
    weft_conv(g, image(g, x), weft_input(g, "w", WEFT_F64, w), WEFT_NO_VALUE, NULL);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_DTYPE);
    weft_graph_free(g);
    g = weft_graph_new();
    weft_conv_transpose(g, image(g, x), weft_input(g, "w", WEFT_F32, WEFT_SHAPE(4, 2, 3, 3)),
                        WEFT_NO_VALUE, &(weft_conv_options){.stride = {2, 2}, .output_pad = {2}});
    expect_error(g, WEFT_BAD_ARGUMENT, "output_pad is 2, expected 0 to 1");
    g = weft_graph_new();
    weft_conv_transpose(g, image(g, x), weft_input(g, "w", WEFT_F32, WEFT_SHAPE(4, 2, 3, 3)),
                        WEFT_NO_VALUE, &(weft_conv_options){.pad_begin = {9, 9}});
    expect_error(g, WEFT_BAD_SHAPE, "dimension 0 of the image would be -2");

    refuse_pool(WEFT_SHAPE(4, 5), (weft_pool_options){.kernel = {2}}, WEFT_BAD_SHAPE,
                "1 to 3 spatial dimensions");
    refuse_pool(x, (weft_pool_options){.kernel = {-1, 2}}, WEFT_BAD_ARGUMENT, "kernel is -1");
    refuse_pool(x, (weft_pool_options){.kernel = {6, 2}}, WEFT_BAD_SHAPE, "reaches over 6");
    refuse_pool(x, (weft_pool_options){.kernel = {2, 2}, .pad_begin = {2}}, WEFT_BAD_SHAPE,
                "in the padding alone");
    refuse_pool(x, (weft_pool_options){.kernel = {2, 2}, .stride = {1, 1}, .pad_end = {0, 2}},
                WEFT_BAD_SHAPE, "in the padding alone");
}

void conv_cases_tests(void)
{
    CU_pSuite suite = CU_add_suite("conv_cases", NULL, NULL);
    CU_add_test(suite, "equal maxima and NaN", test_ties);
    CU_add_test(suite, "transposed convolution", test_transpose);
    CU_add_test(suite, "the path follows the work", test_paths);
    CU_add_test(suite, "taps in the padding alone", test_unused_taps);
    CU_add_test(suite, "the path of gradients follows the work", test_gradient_paths);
    CU_add_test(suite, "errors", test_errors);
}
