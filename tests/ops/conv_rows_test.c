/* conv_rows, conv_rows_depthwise and matmul_panels have the bits of conv and matmul, at shapes
 * below and above a tile in each direction, in f32 and f64, on every instruction set, on one and
 * two threads, and with nodes fused to them. */
#include "reference.h"
#include "tests.h"

#include "base/platform.h"
#include "ir/isa.h"

#include <weft/op.h>

#include <stdlib.h>
#include <string.h>

/* As in ops/matmul/panels.c. */
typedef struct panels_attr {
    int64_t columns;
} panels_attr;

typedef struct layer {
    int64_t images, in[2], channels, columns; /* columns 0: depthwise */
    int64_t kernel[2], stride[2], dilation[2], begin[2], end[2];
    bool bias;
} layer;

#define MAX_INPUTS 4
/* A graph whose two targets are to have the same bits. */
typedef struct pair {
    weft_graph *g;
    weft_value in[MAX_INPUTS], target[2];
    size_t n_in;
} pair;

static weft_value add_input(pair *p, weft_dtype dtype, weft_shape shape)
{
    char name[8];
    snprintf(name, sizeof name, "x%zu", p->n_in);
    return p->in[p->n_in++] = weft_input(p->g, name, dtype, shape);
}

static weft_value apply(weft_graph *g, const char *op, const void *attr, weft_value a, weft_value b,
                        weft_value c)
{
    const size_t n = !weft_is_value(b) ? 1 : !weft_is_value(c) ? 2 : 3;
    return weft_apply(g, weft_op_find(op), attr, (weft_value[]){a, b, c}, n, NULL);
}

static weft_value panels_of(weft_graph *g, weft_value w)
{
    return apply(g, "panels", NULL, w, WEFT_NO_VALUE, WEFT_NO_VALUE);
}

static weft_shape two(const int64_t *x)
{
    return WEFT_SHAPE(x[0], x[1]);
}

static conv_rows_attr attr_of(const layer *l)
{
    conv_rows_attr a;
    memset(&a, 0, sizeof a);
    a.kernel = two(l->kernel);
    a.stride = two(l->stride);
    a.dilation = two(l->dilation);
    a.pad_begin = two(l->begin);
    a.pad_end = two(l->end);
    a.columns = l->columns ? l->columns : l->channels;
    return a;
}

/* y by conv_rows, and by conv on permuted operands; bounded, by a clamp. */
static pair build(const layer *l, weft_dtype dtype, bool bounded)
{
    pair p = {.g = weft_graph_new()};
    weft_graph *g = p.g;
    conv_rows_attr a = attr_of(l);
    if (bounded) {
        a.bounded = true;
        a.low = -0.3;
        a.high = 0.4;
    }
    const int64_t h = l->kernel[0], w = l->kernel[1], c = l->channels;
    weft_conv_options o = {.groups = l->columns ? 1 : c};
    for (int d = 0; d < 2; d++) {
        o.stride[d] = l->stride[d];
        o.dilation[d] = l->dilation[d];
        o.pad_begin[d] = l->begin[d];
        o.pad_end[d] = l->end[d];
    }
    weft_value x = add_input(&p, dtype, WEFT_SHAPE(l->images, l->in[0], l->in[1], c)), weights;
    weft_value bias = WEFT_NO_VALUE, image = weft_permute(g, x, WEFT_AXES(0, 3, 1, 2));
    if (l->columns) {
        weights = add_input(&p, dtype, WEFT_SHAPE(h * w * c, l->columns));
        if (l->bias) bias = add_input(&p, dtype, WEFT_SHAPE(l->columns));
        p.target[0] = apply(g, "conv_rows", &a, x, panels_of(g, weights), bias);
        weights = weft_reshape(g, weights, WEFT_SHAPE(h, w, c, l->columns));
        weights = weft_permute(g, weights, WEFT_AXES(3, 2, 0, 1));
    } else {
        weights = add_input(&p, dtype, WEFT_SHAPE(h, w, c));
        if (l->bias) bias = add_input(&p, dtype, WEFT_SHAPE(c));
        p.target[0] = apply(g, "conv_rows_depthwise", &a, x, weights, bias);
        weights = weft_permute(g, weights, WEFT_AXES(2, 0, 1));
        weights = weft_reshape(g, weft_contiguous(g, weights), WEFT_SHAPE(c, 1, h, w));
    }
    weft_value y = weft_conv(g, image, weights, bias, &o);
    if (bounded) y = weft_clamp(g, y, a.low, a.high);
    p.target[1] = weft_permute(g, y, WEFT_AXES(0, 2, 3, 1));
    return p;
}

static void feed(weft_session *s, const pair *p, size_t i)
{
    const int64_t n = weft_shape_numel(weft_shape_of(p->g, p->in[i]));
    const size_t size = weft_dtype_bytes(weft_dtype_of(p->g, p->in[i]));
    uint64_t seed = 17 + i;
    void *data = malloc((size_t)(n + 1) * size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(data);
    for (int64_t k = 0; k < n; k++) {
        const double x = test_uniform(&seed, -1, 1);
        if (size == 4)
            ((float *)data)[k] = (float)x;
        else
            ((double *)data)[k] = x;
    }
    CU_ASSERT_EQUAL(weft_session_feed(s, p->in[i], data, (size_t)n * size, NULL), WEFT_OK);
    free(data);
}

/* Runs the graph and compares its targets. */
static void compare(const pair *p, int threads, const char *skip, const char *what)
{
    weft_error error = {0};
    weft_tensor out[2];
    weft_plan *plan = weft_plan_new(p->g, p->target, 2,
                                    &(weft_plan_options){.verify = true, .skip = skip}, &error);
    weft_session *s = NULL;
    if (plan)
        s = weft_session_new(plan, NULL,
                             &(weft_session_options){.threads = threads, .poison = true}, &error);
    if (!s) fprintf(stderr, "\n    %s: %s: %s\n", what, error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (size_t i = 0; i < p->n_in; i++) feed(s, p, i);
    CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, p->target[0], &out[0], NULL) == WEFT_OK &&
                         weft_session_tensor(s, p->target[1], &out[1], NULL) == WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_shape_equal(out[0].shape, out[1].shape));
    const bool equal = test_same_tensors("out[0]", &out[0], &out[1]);
    if (!equal) fprintf(stderr, "\n    %s, %d threads: other bits\n", what, threads);
    CU_ASSERT_TRUE(equal);
    weft_session_free(s);
    weft_plan_free(plan);
}

/* Calls a check for every instruction set, dtype and number of threads. */
static void each_kernel(void (*check)(const void *what, weft_dtype dtype, int threads),
                        const void *what)
{
    static const char *const isas[] = {"base", "v3", "v4", "v4_bf16", "v4_amx"};
    const char *old = getenv("WEFT_ISA");
    char *before = old ? strdup(old) : NULL;
    for (int i = 0; i < WEFT_ISAS; i++)
        for (int threads = 1; threads <= 2; threads++) {
            weft__os_set_variable("WEFT_ISA", isas[i]);
            check(what, WEFT_F32, threads);
            check(what, WEFT_F64, threads);
        }
    weft__os_set_variable("WEFT_ISA", NULL);
    if (before) weft__os_set_variable("WEFT_ISA", before);
    free(before);
}

static void check_bounds(const layer *l, weft_dtype dtype, int threads, bool bounded)
{
    char text[160];
    pair p = build(l, dtype, bounded);
    snprintf(text, sizeof text, "%s%s on %s, image %d %d %d %d, %d columns, kernel %d %d",
             bounded ? "bounded " : "", weft_dtype_name(dtype), weft__isa_name(weft__isa_best()),
             (int)l->images, (int)l->in[0], (int)l->in[1], (int)l->channels, (int)l->columns,
             (int)l->kernel[0], (int)l->kernel[1]);
    if (weft_graph_status(p.g) != WEFT_OK)
        fprintf(stderr, "\n    %s: %s\n", text, weft_graph_error(p.g)->message);
    CU_ASSERT_EQUAL_FATAL(weft_graph_status(p.g), WEFT_OK);
    compare(&p, threads, NULL, text);
    weft_graph_free(p.g);
}

static void check_layer(const void *what, weft_dtype dtype, int threads)
{
    check_bounds(what, dtype, threads, false);
    check_bounds(what, dtype, threads, true);
}

#define SAME_SIZE                                                                                  \
    .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .begin = {1, 1}, .end = {1, 1}
#define ONE_TAP .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}

static void test_layers(void)
{
    static const layer layers[] = {
        {2, {9, 11}, 5, 7, SAME_SIZE, .bias = true},
        {1, {30, 31}, 40, 70, SAME_SIZE, .bias = true}, /* tiles of lines */
        {1, {7, 7}, 130, 100, SAME_SIZE},               /* tiles of columns; two pieces */
        {40, {5, 4}, 90, 33, SAME_SIZE, .bias = true},  /* tiles of images */
        {1, {2, 700}, 6, 48, SAME_SIZE},                /* parts of a line */
        {3, {6, 5}, 1, 1, SAME_SIZE, .bias = true},
        {2,
         {15, 17},
         3,
         32,
         .kernel = {7, 7},
         .stride = {2, 2},
         .dilation = {1, 1},
         .begin = {3, 3},
         .end = {3, 3},
         .bias = true},
        {2,
         {15, 17},
         260,
         20,
         .kernel = {3, 2},
         .stride = {2, 3},
         .dilation = {2, 3},
         .begin = {1, 4},
         .end = {0, 3}},
        {2, {12, 13}, 33, 40, .kernel = {2, 3}, .stride = {1, 1}, .dilation = {1, 1}},
        {2, {12, 13}, 33, 40, .kernel = {3, 2}, .stride = {1, 2}, .dilation = {3, 2}},
        {3, {14, 14}, 100, 129, ONE_TAP, .bias = true},
        {1, {7, 7}, 1600, 65, ONE_TAP, .bias = true}, /* three pieces */
        {1, {40, 40}, 24, 96, ONE_TAP},
        {2, {14, 15}, 64, 40, .kernel = {1, 1}, .stride = {2, 2}, .dilation = {1, 1}},
        {1,
         {3, 3},
         4,
         5,
         .kernel = {1, 1},
         .stride = {1, 1},
         .dilation = {1, 1},
         .begin = {2, 3},
         .end = {1, 4},
         .bias = true}, /* windows in the padding alone */
        {1, {1, 1}, 3, 9, ONE_TAP},
        /* Strides of 256 elements, between which the copies of images have gaps. */
        {2, {5, 6}, 256, 9, SAME_SIZE, .bias = true},
        {1,
         {7, 9},
         128,
         20,
         .kernel = {3, 3},
         .stride = {2, 2},
         .dilation = {1, 1},
         .begin = {1, 1},
         .end = {1, 1}},
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        each_kernel(check_layer, &layers[i]);
}

static void test_depthwise(void)
{
    static const layer layers[] = {
        {2, {9, 11}, 5, 0, SAME_SIZE, .bias = true},
        {1, {56, 57}, 40, 0, SAME_SIZE, .bias = true},
        {3, {7, 7}, 1100, 0, SAME_SIZE},
        {2,
         {28, 29},
         48,
         0,
         .kernel = {3, 3},
         .stride = {2, 2},
         .dilation = {1, 1},
         .begin = {1, 1},
         .end = {1, 1},
         .bias = true},
        {2,
         {15, 17},
         19,
         0,
         .kernel = {5, 4},
         .stride = {2, 3},
         .dilation = {2, 3},
         .begin = {1, 5},
         .end = {3, 2}},
        {1,
         {3, 3},
         33,
         0,
         .kernel = {1, 1},
         .stride = {1, 1},
         .dilation = {1, 1},
         .begin = {2, 3},
         .end = {1, 4},
         .bias = true},
        {1,
         {4, 2000},
         3,
         0,
         .kernel = {2, 9},
         .stride = {1, 1},
         .dilation = {1, 1},
         .begin = {0, 20},
         .end = {0, 4}},
        {2, {6, 6}, 1, 0, SAME_SIZE, .bias = true},
        /* One pixel of a line, where without the stride several would fit. */
        {1, {6, 7}, 23, 0, .kernel = {3, 3}, .stride = {1, 5}, .dilation = {1, 1}},
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        each_kernel(check_layer, &layers[i]);
}

/* ---- Products ---- */

typedef struct product {
    int64_t m, k, n;
    bool columns; /* matmul reads a matrix whose columns are dense */
} product;

static void check_product(const void *what, weft_dtype dtype, int threads)
{
    const product *o = what;
    char text[96];
    pair p = {.g = weft_graph_new()};
    weft_value a = add_input(&p, dtype, WEFT_SHAPE(o->m, o->k));
    weft_value w = add_input(&p, dtype, WEFT_SHAPE(o->k, o->n));
    p.target[0] =
        apply(p.g, "matmul_panels", &(panels_attr){o->n}, a, panels_of(p.g, w), WEFT_NO_VALUE);
    if (o->columns)
        a = weft_transpose(p.g, weft_contiguous(p.g, weft_transpose(p.g, a, 0, 1)), 0, 1);
    p.target[1] = weft_matmul(p.g, a, w);
    snprintf(text, sizeof text, "%s on %s, %d x %d x %d", weft_dtype_name(dtype),
             weft__isa_name(weft__isa_best()), (int)o->m, (int)o->k, (int)o->n);
    compare(&p, threads, NULL, text);
    weft_graph_free(p.g);
}

static void test_products(void)
{
    static const product products[] = {
        {.m = 1, .k = 40, .n = 50},
        {.m = 3, .k = 900, .n = 70},
        {.m = 49, .k = 1700, .n = 33},
        {.m = 128, .k = 768, .n = 96},
        {.m = 197, .k = 100, .n = 17}, /* a single column is dot products in matmul */
        {.m = 512, .k = 800, .n = 40},
        {.m = 900, .k = 30, .n = 200},
        {.m = 5, .k = 0, .n = 3},
        /* The rows are packed once for all tiles. */
        {.m = 90, .k = 1600, .n = 210},
        {.m = 251, .k = 800, .n = 300, .columns = true},
        {.m = 601, .k = 70, .n = 701},
        {.m = 601, .k = 70, .n = 701, .columns = true},
    };
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        each_kernel(check_product, &products[i]);
}

/* ---- Fusion ---- */

/* Elementwise nodes run on the tiles, with the bits of those that run after conv. */
static void test_fusion(void)
{
    static const layer layers[] = {
        {1, {30, 31}, 40, 70, SAME_SIZE, .bias = true},
        {2, {7, 7}, 130, 100, SAME_SIZE},
        {40, {5, 4}, 30, 33, SAME_SIZE},
        {1, {40, 40}, 24, 96, ONE_TAP},
        {1, {2, 700}, 6, 48, SAME_SIZE},
        {3, {30, 30}, 33, 0, SAME_SIZE},
        {3, {7, 7}, 1100, 0, SAME_SIZE, .bias = true},
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        weft_error error;
        pair p = build(&layers[i], WEFT_F32, false);
        weft_value residual = add_input(&p, WEFT_F32, weft_shape_of(p.g, p.target[0]));
        for (int t = 0; t < 2; t++)
            p.target[t] = weft_relu(p.g, weft_add(p.g, p.target[t], residual));
        weft_plan *plan = weft_plan_new(p.g, p.target, 1, NULL, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
        CU_ASSERT_EQUAL(weft_plan_stats_of(plan).fused, 2);
        weft_plan_free(plan);
        compare(&p, 2, NULL, "fused");
        compare(&p, 2, "fuse", "not fused");
        weft_graph_free(p.g);
    }
}

/* ---- Errors ---- */

static void refuse(const char *op, const conv_rows_attr *a, weft_shape x, weft_shape w,
                   weft_shape bias, const char *message)
{
    weft_graph *g = weft_graph_new();
    apply(g, op, a, weft_input(g, "x", WEFT_F32, x), weft_input(g, "w", WEFT_F32, w),
          weft_input(g, "b", WEFT_F32, bias));
    const weft_error *e = weft_graph_error(g);
    if (!strstr(e->message, message))
        fprintf(stderr, "\n    expected \"%s\", got: %s\n", message, e->message);
    CU_ASSERT_EQUAL(e->status, WEFT_BAD_SHAPE);
    CU_ASSERT_PTR_NOT_NULL(strstr(e->message, message));
    weft_graph_free(g);
}

static void test_errors(void)
{
    const conv_rows_attr a = attr_of(&(layer){.columns = 5, SAME_SIZE});
    const conv_rows_attr d = attr_of(&(layer){.columns = 4, SAME_SIZE});
    conv_rows_attr line = a;
    line.kernel.rank = 1;
    const weft_shape x = WEFT_SHAPE(1, 6, 6, 4), panels = WEFT_SHAPE(1, 36, 32);
    const weft_shape five = WEFT_SHAPE(5), four = WEFT_SHAPE(4);
    refuse("conv_rows", &a, WEFT_SHAPE(1, 6, 4), panels, five, "expected [images, height");
    refuse("conv_rows", &line, x, panels, five, "rank 1");
    refuse("conv_rows", &a, x, WEFT_SHAPE(1, 35, 32), five, "expected [1, 36, 32]");
    refuse("conv_rows", &a, x, panels, four, "bias [4], expected [5]");
    refuse("conv_rows", &a, WEFT_SHAPE(1, 6, 0, 4), panels, five, "the kernel reaches over 3");
    refuse("conv_rows_depthwise", &a, x, WEFT_SHAPE(3, 3, 4), four,
           "columns is 5, expected the number of channels, 4");
    refuse("conv_rows_depthwise", &d, x, WEFT_SHAPE(3, 3, 5), four, "expected [3, 3, 4]");
    refuse("conv_rows_depthwise", &d, x, WEFT_SHAPE(3, 3, 4), five, "bias [5], expected [4]");
}

void conv_rows_tests(void)
{
    CU_pSuite suite = CU_add_suite("conv_rows", NULL, NULL);
    CU_add_test(suite, "the bits of conv", test_layers);
    CU_add_test(suite, "depthwise", test_depthwise);
    CU_add_test(suite, "products", test_products);
    CU_add_test(suite, "fusion", test_fusion);
    CU_add_test(suite, "errors", test_errors);
}
