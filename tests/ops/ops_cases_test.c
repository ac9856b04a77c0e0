/* Ops on chosen inputs: copies in another order, narrow rows, infinities and NaN, empty tensors,
 * the builders that are made of other ops, and calls that builders refuse. */
#include "tests.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Infinities and NaN in the last of many pieces and rows, of which x has 3000. */
static void test_far_specials(void)
{
    enum { ROWS = 3000, COLUMNS = 300, CASES = 10 };
    static float data[ROWS * COLUMNS];
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(ROWS, COLUMNS)), last[CASES];
    const weft_axes first = WEFT_AXES(0), all = {0, {0}};
    /* Column 0 is -inf but for a 3 in the last row, the last column has one NaN, the others +inf.
     */
    for (int64_t i = 0; i < ROWS * COLUMNS; i++) data[i] = i % COLUMNS ? 1 : -INFINITY;
    data[(ROWS - 1) * COLUMNS] = 3;
    data[ROWS * COLUMNS - 1] = NAN;
    data[(ROWS - 1) * COLUMNS + 1] = INFINITY;
    weft_value columns[5] = {weft_max(g, x, first, false), weft_logsumexp(g, x, first, false),
                             weft_min(g, x, first, false), weft_variance(g, x, first, false, 1),
                             weft_cast(g, weft_argmax(g, x, 0, false), WEFT_F32)};
    static const float expected[5][3] = {{3, INFINITY, NAN},
                                         {3, INFINITY, NAN},
                                         {-INFINITY, 1, NAN},
                                         {NAN, NAN, NAN},
                                         {ROWS - 1, ROWS - 1, ROWS - 1}};
    memcpy(last, columns, sizeof columns);
    last[5] = weft_max(g, x, all, false);
    last[6] = weft_min(g, x, all, false);
    last[7] = weft_logsumexp(g, x, all, false);
    last[8] = weft_sum(g, x, all, false);
    last[9] = weft_variance(g, x, all, false, 0);
    weft_error error;
    weft_plan *plan = weft_plan_new(g, last, CASES, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_EQUAL_FATAL(weft_session_feed(s, x, data, sizeof data, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    for (int i = 0; i < CASES; i++) {
        weft_tensor t;
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, last[i], &t, NULL) == WEFT_OK);
        const float *y = t.data;
        for (int k = 0; k < (i < 5 ? 3 : 1); k++) {
            const float want = i < 5 ? expected[i][k] : NAN, got = y[k == 2 ? COLUMNS - 1 : k];
            CU_ASSERT_TRUE(got == want || (isnan(got) && isnan(want)));
        }
        if (i < 2)
            CU_ASSERT_TRUE(i ? fabs((double)y[2] - log(ROWS) - 1) < ROUNDING_F32 : y[2] == 1);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* A dense copy of x with its axes in another order, or of every second row, element by element. */
static void check_copy(weft_dtype dtype, weft_shape shape, weft_axes order, bool halve)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", dtype, shape);
    weft_value view = weft_permute(g, x, order);
    if (halve) view = weft_slice(g, view, 0, 0, weft_dim_of(g, view, 0), 2);
    weft_value y = weft_contiguous(g, view);
    const weft_shape to = weft_shape_of(g, y);
    const size_t each = weft_dtype_bytes(dtype), n = (size_t)weft_shape_numel(shape);
    unsigned char *data = malloc(n * each + 1);
    for (size_t i = 0; i < n; i++) {
        const double number = (double)i;
        if (dtype == WEFT_BOOL)
            data[i] = i % 251 % 2;
        else
            memcpy(data + i * each, dtype == WEFT_F64 ? (void *)&number : (void *)&i, each);
    }
    weft_error error;
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_EQUAL_FATAL(weft_session_feed(s, x, data, n * each, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, y, &t, NULL) == WEFT_OK);
    int64_t wrong = 0;
    for (int64_t i = 0; i < weft_shape_numel(to); i++) {
        int64_t index[WEFT_MAX_RANK], from = 0, rest = i;
        for (int d = to.rank - 1; d >= 0; d--) {
            index[order.axis[d]] = rest % to.dim[d] * (halve && d == 0 ? 2 : 1);
            rest /= to.dim[d];
        }
        for (int d = 0; d < shape.rank; d++) from = from * shape.dim[d] + index[d];
        wrong += memcmp((char *)t.data + (size_t)i * each, data + (size_t)from * each, each) != 0;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    free(data);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* Sizes around those of blocks and tiles. */
static void test_copies(void)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F64, WEFT_I32, WEFT_BOOL};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (int halve = 0; halve < 2; halve++) {
            check_copy(dtypes[i], WEFT_SHAPE(19, 37), WEFT_AXES(1, 0), halve);
            check_copy(dtypes[i], WEFT_SHAPE(70, 1100), WEFT_AXES(1, 0), halve);
            check_copy(dtypes[i], WEFT_SHAPE(1100, 70), WEFT_AXES(1, 0), halve);
            check_copy(dtypes[i], WEFT_SHAPE(3, 50, 34), WEFT_AXES(0, 2, 1), halve);
            check_copy(dtypes[i], WEFT_SHAPE(5, 18, 33), WEFT_AXES(2, 0, 1), halve);
            check_copy(dtypes[i], WEFT_SHAPE(5, 18, 33), WEFT_AXES(1, 0, 2), halve);
            check_copy(dtypes[i], WEFT_SHAPE(3, 17, 4, 20), WEFT_AXES(2, 3, 1, 0), halve);
            check_copy(dtypes[i], WEFT_SHAPE(2, 3, 1, 40), WEFT_AXES(3, 2, 0, 1), halve);
        }
}

/* x - z of rows of `row` elements, z a row, a column or a transposed matrix, over several tiles. */
static void check_narrow(int64_t rows, int64_t row)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(rows, row));
    weft_value other[3] = {weft_slice(g, x, 0, 1, 2, 1), weft_slice(g, x, 1, 0, 1, 1),
                           weft_transpose(g, weft_reshape(g, x, WEFT_SHAPE(row, rows)), 0, 1)};
    weft_value y[4];
    for (int k = 0; k < 3; k++) y[k] = weft_sub(g, x, other[k]);
    y[3] = weft_less(g, other[0], x);
    const size_t n = (size_t)(rows * row);
    float *data = malloc(n * sizeof *data);
    for (size_t i = 0; i < n; i++) data[i] = (float)(i * 7919 % 104729);
    weft_error error;
    weft_plan *plan = weft_plan_new(g, y, 4, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_EQUAL_FATAL(weft_session_feed(s, x, data, n * sizeof *data, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    weft_tensor t[4];
    for (int k = 0; k < 4; k++)
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, y[k], &t[k], NULL) == WEFT_OK);
    int64_t wrong = 0;
    for (int64_t i = 0; i < rows * row; i++) {
        const int64_t r = i / row, c = i % row;
        const float z[3] = {data[row + c], data[r * row], data[c * rows + r]};
        for (int k = 0; k < 3; k++) wrong += ((float *)t[k].data)[i] != data[i] - z[k];
        wrong += ((uint8_t *)t[3].data)[i] != (z[0] < data[i]);
    }
    CU_ASSERT_EQUAL(wrong, 0);
    free(data);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_narrow(void)
{
    static const int64_t row[] = {1, 2, 7, 8, 31, 32, 33};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        check_narrow(3, row[i]);
        check_narrow(6001, row[i]);
    }
}

/* Empty tensors and rows of infinities, as weft/ops.h documents them. */
static void test_edges(void)
{
    weft_graph *g = weft_graph_new();
    weft_value low = weft_fill(g, WEFT_F32, WEFT_SHAPE(2, 3), -INFINITY);
    weft_value none = weft_fill(g, WEFT_F32, WEFT_SHAPE(0, 3), 1);
    weft_value targets[] = {weft_softmax(g, low, -1),
                            weft_logsumexp(g, low, WEFT_AXES(1), false),
                            weft_sum(g, none, WEFT_AXES(0), false),
                            weft_max(g, none, WEFT_AXES(0), false),
                            weft_mean(g, none, WEFT_AXES(0), false),
                            WEFT_NO_VALUE,
                            WEFT_NO_VALUE};
    static const float expected[] = {0, -INFINITY, 0, -INFINITY, NAN, INFINITY, 0};
    /* A row without probabilities: an infinite loss, but no gradient. */
    weft_value p = weft_input(g, "p", WEFT_F32, WEFT_SHAPE(2, 3));
    weft_value first = weft_fill(g, WEFT_I32, WEFT_SHAPE(2), 0);
    targets[5] = weft_cross_entropy_loss(g, p, first, NULL);
    weft_grad(g, targets[5], &p, 1, &targets[6]);
    static const float dead[6] = {-INFINITY, -INFINITY, -INFINITY, 0, -INFINITY, -INFINITY};
    weft_error error;
    weft_plan *plan = weft_plan_new(g, targets, 7, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_EQUAL(weft_session_feed(s, p, dead, sizeof dead, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    for (size_t i = 0; i < 7; i++) {
        weft_tensor t;
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, targets[i], &t, NULL) == WEFT_OK);
        float x = *(float *)t.data;
        CU_ASSERT_TRUE(x == expected[i] || (isnan(x) && isnan(expected[i])));
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* The extremes of rows that hold nothing finite, or only the largest finite number. */
static void test_outermost(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(3, 40));
    weft_value low = weft_max(g, x, WEFT_AXES(1), false), position = weft_argmax(g, x, 1, false);
    weft_value high = weft_min(g, weft_neg(g, x), WEFT_AXES(1), false);
    weft_value soft = weft_log_softmax(g, x, 1), targets[] = {low, position, high, soft};
    float in[3][40], largest[3], smallest[3], logs[3][40];
    int32_t at[3];
    for (int c = 0; c < 40; c++) {
        in[0][c] = -INFINITY;
        in[1][c] = c == 37 ? -FLT_MAX : -INFINITY;
        in[2][c] = -FLT_MAX;
    }
    weft_error error;
    weft_plan *plan = weft_plan_new(g, targets, 4, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_EQUAL(weft_session_feed(s, x, in, sizeof in, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, low, largest, sizeof largest, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, position, at, sizeof at, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, high, smallest, sizeof smallest, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, soft, logs, sizeof logs, NULL), WEFT_OK);
    static const float expected[] = {-INFINITY, -FLT_MAX, -FLT_MAX};
    static const int32_t positions[] = {0, 37, 0};
    for (int r = 0; r < 3; r++) {
        CU_ASSERT_EQUAL(largest[r], expected[r]);
        CU_ASSERT_EQUAL(smallest[r], -expected[r]);
        CU_ASSERT_EQUAL(at[r], positions[r]);
    }
    CU_ASSERT_EQUAL(logs[1][37], 0.0f);
    CU_ASSERT_EQUAL(logs[1][0], -INFINITY);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* The builders that are made of other ops, on 0, 1, 2, ... */
static void test_composites(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_reshape(g, weft_arange(g, WEFT_F32, 6, 0, 1), WEFT_SHAPE(2, 3)), piece[3];
    weft_value chunk[2], pair[2] = {x, weft_neg(g, x)};
    weft_split(g, x, 1, (const int64_t[]){1, 0, 2}, 3, piece);
    weft_chunk(g, x, 0, 2, chunk);
    const struct {
        weft_value value;
        weft_shape shape;
        float first[6];
    } rows[] = {
        {piece[0], {2, {2, 1}}, {0, 3}},
        {piece[1], {2, {2, 0}}, {0}},
        {piece[2], {2, {2, 2}}, {1, 2, 4, 5}},
        {chunk[1], {2, {1, 3}}, {3, 4, 5}},
        {weft_flip(g, x, -1), {2, {2, 3}}, {2, 1, 0, 5, 4, 3}},
        {weft_slice(g, x, 1, -1, 0, -2), {2, {2, 1}}, {2, 5}},
        {weft_slice(g, x, 1, 1, 100, 1), {2, {2, 2}}, {1, 2, 4, 5}},
        {weft_stack(g, pair, 2, 1), {3, {2, 2, 3}}, {0, 1, 2, 0, -1, -2}},
        {weft_stack(g, pair, 2, -1), {3, {2, 3, 2}}, {0, 0, 1, -1, 2, -2}},
        {weft_squeeze(g, weft_expand_dims(g, x, 0), 0), {2, {2, 3}}, {0, 1, 2, 3, 4, 5}},
        {weft_transpose(g, x, 0, 1), {2, {3, 2}}, {0, 3, 1, 4, 2, 5}},
        {weft_tril(g, x, 0), {2, {2, 3}}, {0, 0, 0, 3, 4, 0}},
        {weft_cast(g, weft_causal_mask(g, 2, 3), WEFT_F32), {2, {2, 3}}, {0, 0, 1, 0, 0, 0}},
        {weft_cast(g, weft_fill(g, WEFT_I32, WEFT_SHAPE(1), 1e9), WEFT_F32), {1, {1}}, {1e9f}},
        {weft_cast(g, weft_fill(g, WEFT_BOOL, WEFT_SHAPE(2), 1), WEFT_F32), {1, {2}}, {1, 1}},
        {weft_cast(g, weft_tril_mask(g, 2, 3, INT64_MAX), WEFT_F32),
         {2, {2, 3}},
         {1, 1, 1, 1, 1, 1}},
        {weft_cast(g, weft_tril_mask(g, 2, 3, INT64_MIN), WEFT_F32), {2, {2, 3}}, {0}},
        {weft_sum_to(g, x, WEFT_SHAPE(1, 3)), {2, {1, 3}}, {3, 5, 7}},
        {weft_pow_scalar(g, x, 2), {2, {2, 3}}, {0, 1, 4, 9, 16, 25}},
        {weft_softmax(g, weft_fill(g, WEFT_F32, WEFT_SHAPE(2, 3), 7), 0), {2, {2, 3}}, {.5f, .5f}},
    };
    const size_t n = sizeof rows / sizeof *rows;
    weft_value targets[32];
    weft_error error = {0};
    for (size_t i = 0; i < n; i++) targets[i] = rows[i].value;
    weft_plan *plan = weft_plan_new(g, targets, n, &(weft_plan_options){.verify = true}, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    for (size_t i = 0; i < n; i++) {
        weft_tensor t;
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, targets[i], &t, NULL) == WEFT_OK);
        CU_ASSERT_TRUE(weft_shape_equal(t.shape, rows[i].shape));
        int64_t count = weft_shape_numel(t.shape) < 6 ? weft_shape_numel(t.shape) : 6;
        if (i == n - 1) count = 2;
        for (int64_t k = 0; k < count; k++) CU_ASSERT_EQUAL(((float *)t.data)[k], rows[i].first[k]);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* Shape rules name the shapes that they refuse. */
static void test_refused_shapes(void)
{
    weft_graph *g = weft_graph_new();
    weft_widen_rows(g, weft_input(g, "x", WEFT_U8, WEFT_SHAPE(2, 3)), WEFT_F32);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(weft_graph_error(g)->message, "rows of 3 bytes, expected 4 or more"));
    weft_graph_free(g);
    g = weft_graph_new();
    weft_value in[2] = {weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3)),
                        weft_input(g, "dy", WEFT_F32, WEFT_SHAPE(5))};
    weft_apply(g, weft_op_find("prod_grad"), NULL, in, 2, NULL);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(weft_graph_error(g)->message, "expected [rows, n] and [rows], got [2, 3] and [5]"));
    weft_graph_free(g);
}

/* Builders refuse arguments that their shape rules cannot check, or would check too late. */
static void test_refusals(void)
{
    enum { ARGMAX, CUMSUM, SUM, CONCAT, STACK, SLICE, GATHER, SCATTER, TRIL, MOMENTUM, CASES };
    static const int axes[] = {-4, -3, 3, INT32_MIN, INT32_MAX};
    for (size_t k = 0; k < sizeof axes / sizeof *axes; k++)
        for (int i = 0; i < CASES; i++) {
            weft_graph *g = weft_graph_new();
            const int axis = i == STACK && axes[k] == -3 ? -5 : axes[k];
            weft_value x = weft_fill(g, WEFT_F32, WEFT_SHAPE(2, 3), 1), y = WEFT_NO_VALUE;
            weft_value at = weft_fill(g, WEFT_I32, WEFT_SHAPE(2, 3), 1), one[2] = {x, x};
            weft_value p = weft_param(g, "p", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ONES);
            weft_value lr = weft_scalar(g, WEFT_F32, 1);
            switch (i) {
            case ARGMAX:
                y = weft_argmax(g, x, axis, false);
                break;
            case CUMSUM:
                y = weft_cumsum(g, x, axis, false);
                break;
            case SUM:
                y = weft_sum(g, x, WEFT_AXES(axis), false);
                break;
            case CONCAT:
                y = weft_concat(g, one, 2, axis);
                break;
            case STACK:
                y = weft_stack(g, one, 2, axis);
                break;
            case SLICE:
                y = weft_slice(g, x, axis, 0, 1, 1);
                break;
            case GATHER:
                y = weft_gather(g, x, at, axis);
                break;
            case SCATTER:
                y = weft_scatter_add(g, x, at, x, axis);
                break;
            case TRIL:
                y = weft_tril(g, p, 0);
                break;
            default:
                y = weft_sgd_update(g, p, WEFT_NO_VALUE, p, lr, WEFT_NO_VALUE,
                                    &(weft_sgd_options){.momentum = 0.9});
            }
            CU_ASSERT_FALSE(weft_is_value(y));
            CU_ASSERT_NOT_EQUAL(weft_graph_status(g), WEFT_OK);
            weft_graph_free(g);
        }
}

/* Sums of rows with weights, their gradients, and an index out of range. */
static void test_embedding_bag(void)
{
    static const float rows[] = {1, 2, 10, 20, 100, 200}, factors[] = {1, 2, -1, 0.5f};
    static const int32_t at[] = {2, 0, 1, 1}, outside[] = {2, 0, 3, 1};
    static const float expected[] = {102, 204, -5, -10};
    static const float expected_rows[] = {2, 2, -0.5f, -0.5f, 1, 1},
                       expected_factors[] = {300, 3, 30, 30};
    weft_graph *g = weft_graph_new();
    weft_value table = weft_input(g, "table", WEFT_F32, WEFT_SHAPE(3, 2)), index, weights, wrt[2],
               grads[2];
    index = weft_input(g, "index", WEFT_I32, WEFT_SHAPE(2, 2));
    weights = weft_input(g, "weights", WEFT_F32, WEFT_SHAPE(2, 2));
    const weft_value y = weft_embedding_bag(g, table, index, weights);
    const weft_value loss = weft_sum(g, y, WEFT_ALL_AXES, false);
    wrt[0] = table;
    wrt[1] = weights;
    weft_grad(g, loss, wrt, 2, grads);
    const weft_value targets[] = {y, grads[0], grads[1]};
    const float *const want[] = {expected, expected_rows, expected_factors};
    const size_t n[] = {4, 6, 4};
    weft_error error = WEFT_NO_ERROR;
    weft_plan *plan = weft_plan_new(g, targets, 3, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_session_feed(s, table, rows, sizeof rows, NULL);
    weft_session_feed(s, index, at, sizeof at, NULL);
    weft_session_feed(s, weights, factors, sizeof factors, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    for (int k = 0; k < 3; k++) {
        float got[6];
        weft_session_fetch(s, targets[k], got, n[k] * sizeof *got, NULL);
        CU_ASSERT_EQUAL(memcmp(got, want[k], n[k] * sizeof *got), 0);
    }
    weft_session_feed(s, index, outside, sizeof outside, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, &error), WEFT_BAD_INDEX);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "3"));
    weft_session_free(s);
    weft_plan_free(plan);
    CU_ASSERT_FALSE(weft_is_value(weft_embedding_bag(g, table, index, table)));
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_SHAPE);
    weft_graph_free(g);
}

void ops_cases_tests(void)
{
    CU_pSuite suite = CU_add_suite("ops_cases", NULL, NULL);
    CU_add_test(suite, "copies in another order", test_copies);
    CU_add_test(suite, "narrow rows", test_narrow);
    CU_add_test(suite, "infinities and NaN in the last tiles", test_far_specials);
    CU_add_test(suite, "edges", test_edges);
    CU_add_test(suite, "weighted sums of rows", test_embedding_bag);
    CU_add_test(suite, "the outermost numbers of rows", test_outermost);
    CU_add_test(suite, "builders made of other ops", test_composites);
    CU_add_test(suite, "messages name refused shapes", test_refused_shapes);
    CU_add_test(suite, "builders refuse axes outside the rank", test_refusals);
}
