/* Checks the error bounds that weft/ops.h states for sums. Each case runs in f32 and in f64 on the
 * same numbers; the bounds count units of 2^-24 times the sum of the terms'
 * magnitudes. ops_test.c compares the f64 kernels with naive references. */
#include "sums_cases.h"
#include "tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNIT 0x1p-24 /* half the distance from 1 to the next f32 */

/* The numbers of input `index` in f32, whatever the dtype of the run: 0.1, or random in [0, 1). */
static bool feed(weft_session *s, weft_graph *g, weft_value x, uint64_t index, bool random)
{
    const size_t n = (size_t)weft_shape_numel(weft_shape_of(g, x));
    const weft_dtype dtype = weft_dtype_of(g, x);
    float *narrow = malloc(n * sizeof *narrow);
    double *wide = malloc(n * sizeof *wide);
    uint64_t state = index + 1;
    for (size_t i = 0; i < n; i++)
        wide[i] = (double)(narrow[i] = random ? (float)test_uniform(&state, 0, 1) : 0.1f);
    const weft_status status = dtype == WEFT_F32
                                   ? weft_session_feed(s, x, narrow, n * sizeof *narrow, NULL)
                                   : weft_session_feed(s, x, wide, n * sizeof *wide, NULL);
    free(narrow);
    free(wide);
    return status == WEFT_OK;
}

/* Runs case `index`; the result as f64, and the magnitudes. */
static size_t run(size_t index, weft_dtype dtype, bool random, double **y, double **magnitude)
{
    weft_graph *g = weft_graph_new();
    outcome o = sums_cases[index].build(g, dtype);
    weft_value targets[2] = {o.y, weft_is_value(o.magnitude) ? o.magnitude : o.y};
    weft_error error = {0};
    weft_plan *plan = weft_plan_new(g, targets, 2, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    if (!s) printf("\n    %s: %s: %s\n", sums_cases[index].name, error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (size_t i = 0; i < weft_graph_node_count(g); i++) {
        weft_node_info node = weft_graph_node(g, i);
        if (node.op == &weft_op_input)
            CU_ASSERT_TRUE(feed(s, g, weft_value_from_id(g, node.first_out), i, random));
    }
    CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
    double **const to[2] = {y, magnitude};
    size_t n = 0;
    for (int k = 0; k < 2; k++) {
        weft_tensor t;
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, targets[k], &t, NULL) == WEFT_OK);
        n = (size_t)weft_shape_numel(t.shape);
        *to[k] = malloc(n * sizeof **to[k]);
        for (size_t i = 0; i < n; i++)
            (*to[k])[i] = dtype == WEFT_F32 ? (double)((float *)t.data)[i] : ((double *)t.data)[i];
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    return n;
}

static void check(size_t index, bool random)
{
    double *y, *exact, *ignored, *magnitude, worst = 0;
    size_t n = run(index, WEFT_F32, random, &y, &ignored);
    CU_ASSERT_EQUAL_FATAL(run(index, WEFT_F64, random, &exact, &magnitude), n);
    for (size_t i = 0; i < n; i++) {
        const double off = fabs(y[i] - exact[i]);
        const double units = off == 0 ? 0 : off / (UNIT * fabs(magnitude[i]));
        if (!(units <= worst)) worst = isnan(units) ? INFINITY : units;
    }
    if (worst > sums_cases[index].bound)
        printf("\n    %s of %s is off by %.1f units, the bound is %g", sums_cases[index].name,
               random ? "random numbers" : "0.1", worst, sums_cases[index].bound);
    CU_ASSERT_TRUE(worst <= sums_cases[index].bound);
    free(y);
    free(exact);
    free(ignored);
    free(magnitude);
}

static void test_bounds(void)
{
    for (size_t i = 0; i < sums_n_cases; i++)
        for (int random = 0; random < 2; random++) check(i, random);
}

/* Variance where the correction leaves nothing to divide by, as PyTorch has it. */
static void test_variance(void)
{
    static const float pair[2] = {1, 3};
    static const struct {
        int64_t n;
        int correction;
        float expected;
    } rows[] = {{0, 0, NAN}, {0, 1, NAN},      {1, 0, 0},        {1, 1, NAN},
                {2, 1, 2},   {2, 2, INFINITY}, {2, 3, INFINITY}, {2, -2, 0.5f}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int columns = 0; columns < 2; columns++) {
            weft_graph *g = weft_graph_new();
            weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2)), y;
            weft_value some = weft_slice(g, x, 0, 0, rows[i].n, 1);
            if (columns) /* two, side by side */
                some = weft_stack(g, (weft_value[]){some, some}, 2, 1);
            y = weft_variance(g, some, WEFT_AXES(0), false, rows[i].correction);
            weft_error error;
            weft_plan *plan = weft_plan_new(g, &y, 1, NULL, &error);
            weft_session *s = weft_session_new(plan, NULL, NULL, &error);
            weft_tensor t;
            CU_ASSERT_PTR_NOT_NULL_FATAL(s);
            CU_ASSERT_EQUAL(weft_session_feed(s, x, pair, sizeof pair, NULL), WEFT_OK);
            CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
            CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, y, &t, NULL) == WEFT_OK);
            const float got = *(const float *)t.data, want = rows[i].expected;
            if (!(got == want || (isnan(got) && isnan(want))))
                printf("\n    variance of %d, correction %d: %g", (int)rows[i].n,
                       rows[i].correction, (double)got);
            CU_ASSERT_TRUE(got == want || (isnan(got) && isnan(want)));
            weft_session_free(s);
            weft_plan_free(plan);
            weft_graph_free(g);
        }
}

/* The gradient of an embedding sums the rows of each index in order; a tile has 64 columns. */
static void test_wide_embedding(void)
{
    enum { N = 5, ROWS = 4, WIDTH = 150 };
    static const int32_t at[N] = {2, 0, 2, 3, 2};
    double weights[N * WIDTH], got[ROWS * WIDTH] = {0}, want[ROWS * WIDTH] = {0};
    weft_error error = {0};
    uint64_t state = 3;
    for (int i = 0; i < N * WIDTH; i++) {
        weights[i] = test_uniform(&state, -1, 1);
        want[at[i / WIDTH] * WIDTH + i % WIDTH] += weights[i];
    }
    weft_graph *g = weft_graph_new();
    weft_value table = weft_input(g, "t", WEFT_F64, WEFT_SHAPE(ROWS, WIDTH)), gradient;
    weft_value y = weft_embedding(g, table, weft_constant(g, WEFT_I32, WEFT_SHAPE(N), at), -1);
    y = weft_mul(g, y, weft_constant(g, WEFT_F64, WEFT_SHAPE(N, WIDTH), weights));
    weft_grad(g, weft_sum(g, y, WEFT_ALL_AXES, false), &table, 1, &gradient);
    weft_plan *plan = weft_plan_new(g, &gradient, 1, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_feed(s, table, got, sizeof got, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, gradient, got, sizeof got, NULL), WEFT_OK);
    for (int i = 0; i < ROWS * WIDTH; i++) CU_ASSERT_DOUBLE_EQUAL(got[i], want[i], ROUNDING_F64);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

void sums_tests(void)
{
    CU_pSuite suite = CU_add_suite("sums", NULL, NULL);
    CU_add_test(suite, "the error of sums keeps within its bound", test_bounds);
    CU_add_test(suite, "variance with too few elements", test_variance);
    CU_add_test(suite, "gradients of wide embeddings", test_wide_embedding);
}
