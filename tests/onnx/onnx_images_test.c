/* Ops of ONNX for images: LpPool where a window passes the padding, and Resize, whose values and
 * gradients are those of a plain sum over all elements, and whose work does not grow with the
 * square of the size. */
#include "onnx_writer.h"
#include "tests.h"

#include <weft/autograd.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Builds the model, of one input of doubles and an output y. */
static weft_graph *build(arena *p, written_graph *g, weft_value *x, weft_value *y)
{
    write_output(p, g, "y");
    weft_onnx *m = must_load_written(p, g, 18, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    weft_graph *graph = weft_graph_new();
    CU_ASSERT_EQUAL_FATAL(weft_onnx_build(graph, m, 0, x, y), WEFT_OK);
    weft_onnx_free(m);
    return graph;
}

/* Computes some values; the results are in the session. */
static weft_session *compute(weft_graph *g, weft_value x, const double *data,
                             const weft_value *target, size_t n, weft_plan **plan)
{
    weft_error error = {0};
    *plan = weft_plan_new(g, target, n, NULL, &error);
    weft_session *s = *plan ? weft_session_new(*plan, NULL, NULL, &error) : NULL;
    if (!s) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    const size_t bytes = (size_t)weft_shape_numel(weft_shape_of(g, x)) * sizeof *data;
    CU_ASSERT_EQUAL_FATAL(weft_session_feed(s, x, data, bytes, NULL), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
    return s;
}

/* ---- LpPool ---- */

/* x = 1 2 3 4 5, windows of 3 taps, 3 apart; the last one reaches beyond the padding. */
static void check_lp(int64_t p_norm, int64_t dilation, int64_t begin, int64_t end, size_t n,
                     const double *expected)
{
    static const double data[5] = {1, 2, 3, 4, 5};
    int64_t kernel[1] = {3}, stride[1] = {3}, dilations[1] = {dilation}, pads[2] = {begin, end};
    arena p = {.blocks = NULL};
    weft_value x, y;
    weft_plan *plan;
    weft_tensor out;
    written_graph *g = write_graph(&p);
    write_input(&p, g, "x", ONNX_DOUBLE, WEFT_SHAPE(1, 1, 5));
    WeftOnnx__NodeProto *node = write_node(&p, g, "LpPool", "x", "y");
    write_int(&p, node, "p", p_norm);
    write_int(&p, node, "ceil_mode", 1);
    write_ints(&p, node, "kernel_shape", kernel, 1);
    write_ints(&p, node, "strides", stride, 1);
    write_ints(&p, node, "dilations", dilations, 1);
    write_ints(&p, node, "pads", pads, 2);
    weft_graph *graph = build(&p, g, &x, &y);
    weft_session *s = compute(graph, x, data, &y, 1, &plan);
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, y, &out, NULL) == WEFT_OK);
    CU_ASSERT_EQUAL_FATAL((size_t)weft_shape_numel(out.shape), n);
    for (size_t i = 0; i < n; i++) {
        const double got = ((const double *)out.data)[i];
        if (!test_near(got, expected[i]))
            fprintf(stderr, "\n    p %d, dilation %d, pads %d %d: element %zu is %g, not %g\n",
                    (int)p_norm, (int)dilation, (int)begin, (int)end, i, got, expected[i]);
        CU_ASSERT_TRUE(test_near(got, expected[i]));
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(graph);
    weft__arena_free(&p);
}

static void test_lp_pool(void)
{
    check_lp(1, 1, 0, 0, 2, (double[]){6, 9});
    check_lp(2, 1, 0, 0, 2, (double[]){sqrt(14), sqrt(41)});
    check_lp(2, 1, 1, 0, 2, (double[]){sqrt(5), sqrt(50)});
    check_lp(1, 1, 2, 1, 3, (double[]){1, 9, 5});
    check_lp(1, 2, 0, 1, 2, (double[]){9, 4});
    check_lp(1, 1, 1, 1, 2, (double[]){3, 12});
}

/* ---- Resize ---- */

static double at_distance(bool cubic, double t)
{
    const double a = -0.75;
    t = fabs(t);
    if (!cubic) return t < 1 ? 1 - t : 0;
    if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

/* weight[o, i]: of element i in output o, with pixels at half coordinates; elements beyond the edge
 * are the edge's. */
static double *weights_of(bool cubic, int64_t in, int64_t out)
{
    double *w = calloc((size_t)(in * out), sizeof *w);
    CU_ASSERT_PTR_NOT_NULL_FATAL(w);
    for (int64_t o = 0; o < out; o++) {
        const double x = ((double)o + 0.5) * (double)in / (double)out - 0.5;
        for (int64_t i = -3; i < in + 3; i++)
            w[o * in + (i < 0 ? 0 : i >= in ? in - 1 : i)] += at_distance(cubic, (double)i - x);
    }
    return w;
}

static weft_graph *build_resize(arena *p, bool cubic, weft_shape shape, const int64_t size[2],
                                weft_value *x, weft_value *y)
{
    written_graph *g = write_graph(p);
    const int64_t sizes[4] = {shape.dim[0], shape.dim[1], size[0], size[1]};
    write_input(p, g, "x", ONNX_DOUBLE, shape);
    write_longs(p, g, "sizes", WEFT_SHAPE(4), sizes);
    WeftOnnx__NodeProto *node = write_node(p, g, "Resize", "x - - sizes", "y");
    write_text(p, node, "mode", cubic ? "cubic" : "linear");
    return build(p, g, x, y);
}

/* Each addition of a term rounds a sum that is at most about as large as the largest element. */
static void expect_all(const char *what, const double *got, const double *want, int64_t n,
                       int64_t terms)
{
    double worst = 0, largest = 1;
    for (int64_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs(got[i] - want[i]));
        largest = fmax(largest, fabs(want[i]));
    }
    const double limit = DBL_EPSILON * (double)(16 + terms) * largest;
    if (!(worst <= limit)) fprintf(stderr, "\n    %s: off by %g\n", what, worst);
    CU_ASSERT_TRUE(worst <= limit);
}

/* y and dx, for a cotangent y, of images [IMAGES, in...]: sums over all elements. */
enum { IMAGES = 2 };
static void check_resize(bool cubic, const int64_t in[2], const int64_t size[2])
{
    arena p = {.blocks = NULL};
    weft_value x, target[2];
    weft_plan *plan;
    weft_tensor out[2];
    uint64_t state = 3;
    const int64_t n = in[0] * in[1], m = size[0] * size[1];
    weft_graph *g = build_resize(&p, cubic, WEFT_SHAPE(IMAGES, 1, in[0], in[1]), size, &x, target);
    weft_grad_of(g, target, target, 1, &x, 1, target + 1);
    double *data = malloc((size_t)(IMAGES * n) * sizeof *data);
    double *down = weights_of(cubic, in[0], size[0]), *across = weights_of(cubic, in[1], size[1]);
    double *y = calloc((size_t)(IMAGES * m), sizeof *y), *dx = calloc((size_t)(IMAGES * n), 8);
    for (int64_t i = 0; i < IMAGES * n; i++) data[i] = test_uniform(&state, -1, 1);
    for (int back = 0; back < 2; back++)
        for (int64_t k = 0; k < IMAGES * m; k++)
            for (int64_t i = 0; i < n; i++) {
                const double w = down[k % m / size[1] * in[0] + i / in[1]] *
                                 across[k % size[1] * in[1] + i % in[1]];
                if (back)
                    dx[k / m * n + i] += w * y[k];
                else
                    y[k] += w * data[k / m * n + i];
            }
    weft_session *s = compute(g, x, data, target, 2, &plan);
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, target[0], &out[0], NULL) == WEFT_OK &&
                         weft_session_tensor(s, target[1], &out[1], NULL) == WEFT_OK);
    expect_all("resized", out[0].data, y, IMAGES * m, n);
    expect_all("gradient", out[1].data, dx, IMAGES * n, m);
    double *const all[] = {data, down, across, y, dx};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    weft__arena_free(&p);
}

/* Axes of one block of weights and of several, made larger and smaller, down to one element. */
static void test_resize(void)
{
    for (int cubic = 0; cubic < 2; cubic++) {
        check_resize(cubic, (const int64_t[]){13, 9}, (const int64_t[]){20, 31});
        check_resize(cubic, (const int64_t[]){7, 40}, (const int64_t[]){71, 33});
        check_resize(cubic, (const int64_t[]){50, 3}, (const int64_t[]){37, 100});
        check_resize(cubic, (const int64_t[]){1, 12}, (const int64_t[]){40, 1});
        check_resize(cubic, (const int64_t[]){4, 1}, (const int64_t[]){3, 70});
    }
    check_resize(false, (const int64_t[]){1, 3}, (const int64_t[]){1, 2100}); /* wider blocks */
}

/* The work for an element does not depend on the size. */
static void test_work(void)
{
    double flops[2];
    for (int k = 0; k < 2; k++) {
        arena p = {.blocks = NULL};
        weft_value x, y;
        weft_error error = {0};
        const int64_t n = 256 << k;
        weft_graph *g =
            build_resize(&p, false, WEFT_SHAPE(1, 1, n, n), (int64_t[]){2 * n, 2 * n}, &x, &y);
        weft_plan *plan = weft_plan_new(g, &y, 1, NULL, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
        flops[k] = weft_plan_stats_of(plan).flops / (double)(n * n);
        weft_plan_free(plan);
        weft_graph_free(g);
        weft__arena_free(&p);
    }
    if (!(flops[1] < 1.1 * flops[0]))
        fprintf(stderr, "\n    %g operations for an element, then %g\n", flops[0], flops[1]);
    CU_ASSERT_TRUE(flops[1] < 1.1 * flops[0]);
}

void onnx_images_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_images", NULL, NULL);
    CU_add_test(suite, "LpPool with ceil_mode", test_lp_pool);
    CU_add_test(suite, "Resize equals a sum over all elements", test_resize);
    CU_add_test(suite, "the work of Resize is that of its result", test_work);
}
