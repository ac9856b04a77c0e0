/* top_k, sort and argsort against a stable sort by comparisons, on lines of all lengths, with ties,
 * zeros of both signs, infinities and NaN; argmin, comparisons, and products at zeros. */
#include "tests.h"

#include <weft/autograd.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* a before b? NaN is the largest number. */
static bool precedes(double a, double b, bool largest)
{
    if (isnan(a) || isnan(b)) return isnan(a) != isnan(b) && isnan(a) == largest;
    return largest ? a > b : a < b;
}

static double number_at(const void *data, weft_dtype dtype, int64_t i)
{
    return dtype == WEFT_F32 ? (double)((const float *)data)[i] : ((const double *)data)[i];
}

/* The indices of a line in order, by insertion. */
static void order_line(const void *x, weft_dtype dtype, int64_t first, int64_t step, int64_t n,
                       bool largest, int32_t *order)
{
    for (int64_t i = 0; i < n; i++) {
        const double v = number_at(x, dtype, first + i * step);
        int64_t at = i;
        for (; at && precedes(v, number_at(x, dtype, first + order[at - 1] * step), largest); at--)
            order[at] = order[at - 1];
        order[at] = (int32_t)i;
    }
}

#define MAX_LENGTH 700
static void check_top(weft_dtype dtype, int64_t n, int64_t k, int axis, bool largest)
{
    static double space[3 * MAX_LENGTH];
    static int32_t order[MAX_LENGTH];
    static const double special[] = {0, -0.0, NAN, -NAN, INFINITY, -INFINITY, 1, -1};
    const weft_shape shape = axis ? WEFT_SHAPE(3, n) : WEFT_SHAPE(n, 3);
    const int64_t step = axis ? 1 : 3, line = axis ? n : 1, out_line = axis ? k : 1;
    uint64_t random = (uint64_t)(n * 8 + k);
    for (int64_t i = 0; i < 3 * n; i++) {
        const uint64_t pick = test_random(&random);
        const double v = pick % 5 ? test_uniform(&random, -3, 3) : special[pick / 5 % 8];
        if (dtype == WEFT_F32)
            ((float *)space)[i] = (float)(pick % 3 ? v : rint(v));
        else
            space[i] = pick % 3 ? v : rint(v);
    }
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", dtype, shape), out[2];
    out[0] = weft_top_k(g, x, k, axis, largest, &out[1]);
    weft_plan *plan = weft_plan_new(g, out, 2, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_session_feed(s, x, space, (size_t)(3 * n) * weft_dtype_bytes(dtype), NULL);
    CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
    weft_tensor values, indices;
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, out[0], &values, NULL) == WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, out[1], &indices, NULL) == WEFT_OK);
    for (int64_t r = 0; r < 3; r++) {
        order_line(space, dtype, r * line, step, n, largest, order);
        for (int64_t i = 0; i < k; i++) {
            const int64_t at = r * out_line + i * step;
            const double v = number_at(space, dtype, r * line + order[i] * step);
            const double y = number_at(values.data, dtype, at);
            CU_ASSERT_EQUAL(((const int32_t *)indices.data)[at], order[i]);
            CU_ASSERT_TRUE((v == y && !signbit(v) == !signbit(y)) || (isnan(v) && isnan(y)));
        }
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* Insertion, the radix sort and the heap; a k of none and of all. */
static void test_top(void)
{
    static const int64_t sizes[][2] = {{1, 1},    {5, 2},    {32, 32}, {33, 33},  {33, 4},
                                       {100, 12}, {100, 13}, {7, 0},   {700, 87}, {700, 700}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int way = 0; way < 8; way++)
            check_top(way & 1 ? WEFT_F32 : WEFT_F64, sizes[i][0], sizes[i][1], way >> 1 & 1,
                      way & 4);
}

/* Numbers of one kind of value each: their gradients and the builders over top_k. */
static void test_sort(void)
{
    static const double x[6] = {2, 1, 2, -1, 3, 1};
    static const int32_t ascending[6] = {3, 1, 5, 0, 2, 4}, descending[6] = {4, 0, 2, 1, 5, 3};
    int32_t got[2][6];
    double dx[6], sorted[6];
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    weft_value in = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(6)), grad;
    weft_value y = weft_sort(g, in, 0, false, NULL);
    weft_value weights = weft_arange(g, WEFT_F64, 6, 1, 1);
    weft_grad(g, weft_sum(g, weft_mul(g, y, weights), WEFT_ALL_AXES, false), &in, 1, &grad);
    const weft_value targets[4] = {weft_argsort(g, in, -1, false), weft_argsort(g, in, -1, true), y,
                                   weft_contiguous(g, grad)};
    weft_plan *plan = weft_plan_new(g, targets, 4, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_feed(s, in, x, sizeof x, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, targets[0], got[0], sizeof got[0], NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, targets[1], got[1], sizeof got[1], NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, y, sorted, sizeof sorted, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, targets[3], dx, sizeof dx, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(memcmp(got[0], ascending, sizeof ascending), 0);
    CU_ASSERT_EQUAL(memcmp(got[1], descending, sizeof descending), 0);
    for (int i = 0; i < 6; i++) {
        CU_ASSERT_EQUAL(sorted[i], x[ascending[i]]);
        CU_ASSERT_EQUAL(dx[ascending[i]], i + 1);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_refused(void)
{
    for (int i = 0; i < 3; i++) {
        weft_graph *g = weft_graph_new();
        weft_value x = weft_input(g, "x", i < 2 ? WEFT_F32 : WEFT_I32, WEFT_SHAPE(2, 3));
        weft_top_k(g, x, i ? 4 : 2, i ? 1 : 2, true, NULL);
        CU_ASSERT_EQUAL(weft_graph_status(g), i < 2 ? WEFT_BAD_ARGUMENT : WEFT_BAD_DTYPE);
        weft_graph_free(g);
    }
}

/* The first smallest element, or the first NaN, along both axes. */
static void test_argmin(void)
{
    static const float x[2][4] = {{2, -1, NAN, -1}, {3, -INFINITY, NAN, 7}};
    static const int32_t columns[4] = {0, 1, 0, 0}, rows[2] = {2, 2};
    int32_t got[6];
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    weft_value in = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 4));
    const weft_value y[2] = {weft_argmin(g, in, 0, false), weft_argmin(g, in, 1, true)};
    weft_plan *plan = weft_plan_new(g, y, 2, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_feed(s, in, x, sizeof x, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, y[0], got, sizeof columns, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, y[1], got + 4, sizeof rows, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(memcmp(got, columns, sizeof columns), 0);
    CU_ASSERT_EQUAL(memcmp(got + 4, rows, sizeof rows), 0);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* Comparisons of pairs, NaN and zeros of both signs among them, and not_equal of bools. */
static void test_comparisons(void)
{
    static const float a[5] = {1, 2, NAN, 0.0f, -INFINITY}, b[5] = {2, 2, 1, -0.0f, INFINITY};
    static const uint8_t expected[3][5] = {{1, 0, 1, 0, 1}, {1, 1, 0, 1, 1}, {0, 1, 0, 1, 0}};
    uint8_t got[5];
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "a", WEFT_F32, WEFT_SHAPE(5));
    weft_value y = weft_input(g, "b", WEFT_F32, WEFT_SHAPE(5));
    weft_value out[4] = {weft_not_equal(g, x, y), weft_less_equal(g, x, y),
                         weft_greater_equal(g, x, y)};
    out[3] = weft_not_equal(g, out[1], weft_not_equal(g, out[0], weft_equal(g, x, x)));
    weft_plan *plan = weft_plan_new(g, out, 4, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_feed(s, x, a, sizeof a, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(s, y, b, sizeof b, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    for (int i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(weft_session_fetch(s, out[i], got, sizeof got, NULL), WEFT_OK);
        for (int k = 0; i < 3 && k < 5; k++) CU_ASSERT_EQUAL(got[k], expected[i][k]);
        /* less_equal != (not_equal != (a == a)): bit by bit, 1^(1^1), 1^(0^1), 0^(1^0), ... */
        for (int k = 0; i == 3 && k < 5; k++)
            CU_ASSERT_EQUAL(got[k], expected[1][k] ^ expected[0][k] ^ (k != 2));
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* First and second derivatives of products with no, one and two zeros against differences, which
 * are exact for products but for rounding. */
static void test_products(void)
{
    static const double x[3][4] = {{2, -1, 0.5, 3}, {2, 0, 0.5, 3}, {0, -1, 0, 3}};
    for (int order = 1; order < 3; order++) {
        weft_error error = WEFT_NO_ERROR;
        weft_check_result result;
        weft_graph *g = weft_graph_new();
        weft_value in = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(3, 4)), grad;
        weft_value loss = weft_sum(g, weft_prod(g, in, WEFT_AXES(1), false), WEFT_ALL_AXES, false);
        if (order == 2) {
            weft_grad(g, loss, &in, 1, &grad);
            weft_value weights = weft_arange(g, WEFT_F64, 4, 1, 0.5);
            loss = weft_sum(g, weft_mul(g, grad, weights), WEFT_ALL_AXES, false);
        }
        const weft_check_feed feed = {in, x, sizeof x};
        CU_ASSERT_EQUAL(
            weft_check_gradient(
                g,
                &(weft_gradient_check){
                    .loss = loss, .wrt = &in, .n = 1, .feeds = &feed, .n_feeds = 1, .seed = 1},
                &result, &error),
            WEFT_OK);
        CU_ASSERT_EQUAL(result.checked, 12);
        CU_ASSERT_TRUE(result.worst_error < SMOOTH_DIFFERENCES);
        weft_graph_free(g);
    }
}

/* Boxes of which the first removes the second, which does not remove the third: it does not stay. */
static void test_boxes(void)
{
    static const double boxes[2][3][4] = {
        {{0, 0, 1, 4}, {0, 1, 1, 5}, {0, 2, 1, 6}}, /* areas in common: 3 of 5, 2 of 6, 3 of 5 */
        {{1, 5, 0, 1}, {3, 3, 4, 4}, {NAN, 0, 1, 1}},
    };
    static const uint8_t wanted[3][2][3] = {
        {{1, 0, 1}, {1, 1, 1}}, {{1, 1, 1}, {1, 1, 1}}, {{1, 0, 0}, {1, 1, 1}}};
    static const double thresholds[3] = {0.5, 0.6, 0};
    for (int i = 0; i < 3; i++) {
        uint8_t stays[2][3];
        weft_error error = WEFT_NO_ERROR;
        weft_graph *g = weft_graph_new();
        weft_value x = weft_input(g, "boxes", WEFT_F64, WEFT_SHAPE(2, 3, 4));
        weft_value y = weft_suppress(g, x, thresholds[i]);
        weft_plan *plan = weft_plan_new(g, &y, 1, NULL, &error);
        weft_session *s = weft_session_new(plan, NULL, NULL, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        CU_ASSERT_EQUAL(weft_session_feed(s, x, boxes, sizeof boxes, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_fetch(s, y, stays, sizeof stays, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(memcmp(stays, wanted[i], sizeof stays), 0);
        weft_session_free(s);
        weft_plan_free(plan);
        weft_graph_free(g);
    }
    weft_graph *g = weft_graph_new();
    weft_suppress(g, weft_input(g, "x", WEFT_F32, WEFT_SHAPE(3, 5)), 0.5);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_SHAPE);
    weft_graph_free(g);
}

void sort_tests(void)
{
    CU_pSuite suite = CU_add_suite("sort", NULL, NULL);
    CU_add_test(suite, "top_k", test_top);
    CU_add_test(suite, "sort and argsort", test_sort);
    CU_add_test(suite, "what is refused", test_refused);
    CU_add_test(suite, "argmin", test_argmin);
    CU_add_test(suite, "comparisons", test_comparisons);
    CU_add_test(suite, "products at zeros", test_products);
    CU_add_test(suite, "boxes that overlap", test_boxes);
}
