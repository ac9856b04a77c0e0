/* Workspaces of threads: as large as the shapes of a plan need, and never exceeded. The suite
 * `exact` checks the latter for the kernels of f32 and f64 alone. */
#include "random_cases.h"
#include "tests.h"

#include "base/platform.h"

#include <weft/ops.h>

#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 4096, GUARD = 0x5A };

/* A product [m, k] [k, n], or a convolution of images. */
typedef struct work {
    weft_graph *graph;
    weft_value in[2], out;
} work;

static weft_plan *planned(const work *w, bool narrow)
{
    const weft_plan_options options = {
        .precision = narrow ? WEFT_PRECISION_BF16 : WEFT_PRECISION_F32, .min_narrow = 1};
    weft_error error = WEFT_NO_ERROR;
    weft_plan *plan = weft_plan_new(w->graph, &w->out, 1, &options, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    return plan;
}

static work product(weft_dtype dtype, int64_t m, int64_t k, int64_t n, bool transposed)
{
    work w = {.graph = weft_graph_new()};
    w.in[0] = weft_input(w.graph, "a", dtype, WEFT_SHAPE(m, k));
    w.in[1] = weft_input(w.graph, "b", dtype, transposed ? WEFT_SHAPE(n, k) : WEFT_SHAPE(k, n));
    /* Nodes between the product and the program's values may be stored as bf16. */
    weft_value b = weft_neg(w.graph, w.in[1]);
    if (transposed) b = weft_transpose(w.graph, b, 0, 1);
    w.out = weft_neg(w.graph, weft_matmul(w.graph, weft_neg(w.graph, w.in[0]), b));
    return w;
}

static size_t product_workspace(weft_dtype dtype, int64_t m, int64_t k, int64_t n)
{
    const work w = product(dtype, m, k, n, false);
    weft_plan *plan = planned(&w, false);
    const size_t bytes = weft_plan_workspace_bytes(plan, 1);
    weft_plan_free(plan);
    weft_graph_free(w.graph);
    return bytes;
}

/* ---- Sizes ---- */

static void test_small(void)
{
    CU_ASSERT_TRUE(product_workspace(WEFT_F32, 4, 2, 8) < 4096);
    CU_ASSERT_TRUE(product_workspace(WEFT_F64, 4, 8, 1) < 8192);
    for (int64_t n = 16; n <= 128; n *= 2) {
        const size_t operands = (size_t)(3 * n * n) * sizeof(float);
        CU_ASSERT_TRUE(product_workspace(WEFT_F32, n, n, n) < 2 * operands);
        CU_ASSERT_TRUE(product_workspace(WEFT_F64, n, n, n) < 4 * operands);
    }
}

/* They grow up to the sizes of blocks, which bound them. */
static void test_growth(void)
{
    size_t before = 0;
    for (int64_t n = 4; n <= 64; n *= 2) {
        const size_t bytes = product_workspace(WEFT_F32, n, n, n);
        CU_ASSERT_TRUE(bytes > before);
        before = bytes;
    }
    for (int64_t n = 100; n <= 3200; n *= 2)
        for (int64_t k = 100; k <= 3200; k *= 2)
            CU_ASSERT_TRUE(product_workspace(WEFT_F32, n, k, 300) < 1200000);
}

/* ---- Bounds ---- */

static void fill(weft_session *s, const work *w, int i, uint64_t *state)
{
    const weft_dtype dtype = weft_dtype_of(w->graph, w->in[i]);
    const size_t n = (size_t)weft_shape_numel(weft_shape_of(w->graph, w->in[i]));
    const size_t bytes = n * weft_dtype_bytes(dtype);
    char *x = malloc(bytes + 1);
    for (size_t k = 0; k < n; k++) {
        const double value = test_uniform(state, -1, 1);
        if (dtype == WEFT_F64)
            ((double *)(void *)x)[k] = value;
        else
            ((float *)(void *)x)[k] = (float)value;
    }
    CU_ASSERT_EQUAL(weft_session_feed(s, w->in[i], x, bytes, NULL), WEFT_OK);
    free(x);
}

/* Runs the plan in a workspace of the program, filled with NaN or zeros, and copies the result.
 * Returns whether the bytes after the workspace are as they were. */
static bool run(const work *w, const weft_plan *plan, int filling, void *result, size_t bytes)
{
    const size_t size = weft_plan_workspace_bytes(plan, 1);
    char *workspace = weft__os_memory(64, (size + 63) / 64 * 64 + GUARD_BYTES);
    memset(workspace, filling, size);
    memset(workspace + size, GUARD, GUARD_BYTES);
    const weft_session_options options = {
        .threads = 1, .workspace = workspace, .workspace_bytes = size};
    weft_error error = WEFT_NO_ERROR;
    weft_session *s = weft_session_new(plan, NULL, &options, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    uint64_t state = 5;
    fill(s, w, 0, &state);
    fill(s, w, 1, &state);
    bool good = weft_session_run(s, NULL) == WEFT_OK &&
                weft_session_fetch(s, w->out, result, bytes, NULL) == WEFT_OK;
    weft_session_free(s);
    for (size_t i = 0; i < GUARD_BYTES; i++) good = good && workspace[size + i] == GUARD;
    weft__os_memory_free(workspace);
    return good;
}

static bool stays_inside(const work *w, bool narrow)
{
    weft_plan *plan = planned(w, narrow);
    const weft_dtype dtype = weft_dtype_of(w->graph, w->out);
    const size_t n = (size_t)weft_shape_numel(weft_shape_of(w->graph, w->out));
    const size_t bytes = n * weft_dtype_bytes(dtype);
    void *a = malloc(bytes + 1), *b = malloc(bytes + 1);
    const bool good = run(w, plan, 0xFF, a, bytes) && run(w, plan, 0, b, bytes) &&
                      test_same_bits("a workspace of NaN", dtype, a, b, (int64_t)n);
    free(a);
    free(b);
    weft_plan_free(plan);
    weft_graph_free(w->graph);
    return good;
}

/* Some small dimensions, and some about as large as blocks. */
static int64_t dimension(uint64_t *state)
{
    static const double most[] = {4, 20, 100, 800};
    return 1 + (int64_t)test_uniform(state, 0, most[test_random(state) % 4]);
}

static bool product_holds(const random_case *c)
{
    uint64_t state = c->seed;
    const int64_t m = dimension(&state), k = dimension(&state), n = dimension(&state);
    const bool narrow = test_random(&state) % 3 == 0, wide = test_random(&state) % 3 == 0;
    const work w = product(wide && !narrow ? WEFT_F64 : WEFT_F32, m, k, n, test_random(&state) % 2);
    if (c->show) test_show_graph(w.graph);
    return stays_inside(&w, narrow);
}

static void test_products(void)
{
    CU_ASSERT_TRUE(test_random_cases("products in their workspaces", 60, product_holds, NULL));
}

static bool conv_holds(const random_case *c)
{
    uint64_t state = c->seed;
    const int64_t channels = 1 + (int64_t)test_uniform(&state, 0, 40);
    const int64_t filters = 1 + (int64_t)test_uniform(&state, 0, 40);
    const int64_t height = 3 + (int64_t)test_uniform(&state, 0, 12);
    const int64_t width = 3 + (int64_t)test_uniform(&state, 0, 20);
    const int64_t kernel = 1 + (int64_t)test_uniform(&state, 0, 3);
    work w = {.graph = weft_graph_new()};
    w.in[0] = weft_input(w.graph, "x", WEFT_F32, WEFT_SHAPE(2, channels, height, width));
    w.in[1] = weft_input(w.graph, "w", WEFT_F32, WEFT_SHAPE(filters, channels, kernel, kernel));
    const weft_value y = weft_conv(w.graph, w.in[0], w.in[1], WEFT_NO_VALUE, NULL);
    const weft_value loss = weft_sum(w.graph, weft_square(w.graph, y), WEFT_ALL_AXES, false);
    weft_value grads[2];
    weft_grad(w.graph, loss, w.in, 2, grads);
    w.out = grads[test_random(&state) % 2];
    if (c->show) test_show_graph(w.graph);
    return stays_inside(&w, false);
}

static void test_convolutions(void)
{
    CU_ASSERT_TRUE(test_random_cases("convolutions in their workspaces", 40, conv_holds, NULL));
}

void workspace_tests(void)
{
    CU_pSuite suite = CU_add_suite("workspace", NULL, NULL);
    CU_add_test(suite, "small workspaces", test_small);
    CU_add_test(suite, "workspaces grow with shapes", test_growth);
    CU_add_test(suite, "products in their workspaces", test_products);
    CU_add_test(suite, "convolutions in their workspaces", test_convolutions);
}
