/* The pass `attention`: attention as models from files write it becomes sdpa and computes the same;
 * what only looks like it is left alone. */
#include "tests.h"

#include <string.h>

enum {
    BATCH = 2,
    HEADS = 3,
    QUERIES = 5,
    KEYS = 7,
    WIDTH = 4,
    NUMBERS = BATCH * HEADS * QUERIES * WIDTH
};

/* How the attention is written. */
typedef enum form {
    PLAIN,
    SCALED_PRODUCT,   /* a number multiplies the scores */
    SCALED_OPERANDS,  /* numbers multiply q and k */
    SCALED_BY_STATE,  /* a parameter of one element multiplies q */
    SEEN,             /* + where(seen, 0, -inf), with a row that sees nothing, without NaNs */
    UNSEEN_FIRST,     /* where(unseen, -inf, 0) + */
    CONSTANT,         /* + a constant of zeros and -1e38 */
    ZEROS,            /* + a constant of zeros */
    SINGLE_HEAD_MASK, /* the mask broadcasts */
    /* These are none. */
    OTHER_AXIS,
    SMALL_NUMBERS, /* + a constant whose numbers are not that large */
    ROW_UNSEEN,    /* + a constant with a row of -1e38 */
    SOFT,          /* + where(seen, 0, -5) */
    UNLIKE,        /* zeros where the weights differ from the scores: this does not look for NaNs */
    UNLIKE_FIRST,  /* the same, the scores first */
    SHARED_KEYS,   /* one head of keys and values */
    SHARED_VALUES, /* one head of values */
    FORMS
} form;

static weft_value constant_mask(weft_graph *g, double unseen, bool whole_row)
{
    double numbers[QUERIES * KEYS] = {0};
    for (int i = 0; i < QUERIES * KEYS; i++)
        if (i % 3 == 1 || (whole_row && i < KEYS)) numbers[i] = unseen;
    return weft_constant(g, WEFT_F64, WEFT_SHAPE(QUERIES, KEYS), numbers);
}

static weft_value number(weft_graph *g, double value)
{
    return weft_scalar(g, WEFT_F64, value);
}

static weft_value where_mask(weft_graph *g, form f, weft_value seen)
{
    const double low = f == SOFT ? -5 : -INFINITY;
    if (f == UNSEEN_FIRST)
        return weft_where(g, weft_logical_not(g, seen), number(g, low), number(g, 0));
    return weft_where(g, seen, number(g, 0), number(g, low));
}

static weft_value attention(weft_graph *g, form f, weft_value q, weft_value k, weft_value v,
                            weft_value seen)
{
    k = weft_transpose(g, k, 2, 3);
    if (f == SCALED_OPERANDS) {
        q = weft_mul(g, q, number(g, 0.7));
        k = weft_mul(g, number(g, 0.9), k);
    }
    if (f == SCALED_BY_STATE)
        q = weft_mul(g, q, weft_param(g, "c", WEFT_F64, WEFT_SHAPE(1), WEFT_INIT_ONES));
    weft_value s = weft_matmul(g, q, k);
    if (f == SCALED_PRODUCT) s = weft_mul(g, s, number(g, 0.3));
    if (f == SEEN || f == SINGLE_HEAD_MASK || f == SOFT) s = weft_add(g, s, where_mask(g, f, seen));
    if (f == UNSEEN_FIRST) s = weft_add(g, where_mask(g, f, seen), s);
    if (f == CONSTANT) s = weft_add(g, s, constant_mask(g, -1e38, false));
    if (f == ZEROS) s = weft_add(g, s, constant_mask(g, 0, false));
    if (f == SMALL_NUMBERS) s = weft_add(g, s, constant_mask(g, -2, false));
    if (f == ROW_UNSEEN) s = weft_add(g, s, constant_mask(g, -1e38, true));
    weft_value weights = weft_softmax(g, s, f == OTHER_AXIS ? 2 : 3);
    if (f == SEEN || f == UNSEEN_FIRST) {
        const weft_value nan = weft_logical_not(g, weft_equal(g, weights, weights));
        weights = weft_where(g, nan, number(g, 0), weights);
    }
    if (f == UNLIKE || f == UNLIKE_FIRST) {
        const weft_value same = f == UNLIKE ? weft_equal(g, weights, s) : weft_equal(g, s, weights);
        weights = weft_where(g, weft_logical_not(g, same), number(g, 0), weights);
    }
    return weft_matmul(g, weights, v);
}

/* Runs a plan of y, with inputs that depend on their names only; returns how many sdpa it has. */
static size_t run(weft_graph *g, weft_value y, const char *skip, double *out)
{
    static const char *const names[] = {"q", "k", "v", "seen"};
    weft_error error = {0};
    const weft_plan_options options = {.skip = skip, .verify = true};
    weft_plan *plan = weft_plan_new(g, &y, 1, &options, &error);
    weft_params *params = weft_params_new();
    CU_ASSERT_EQUAL_FATAL(weft_params_init(params, g, 1, &error), WEFT_OK);
    weft_session *s = weft_session_new(plan, params, NULL, &error);
    if (!s) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (size_t i = 0; i < 4; i++) {
        weft_tensor t;
        const weft_value x = weft_graph_find(g, names[i]);
        if (!weft_is_value(x) || weft_session_tensor(s, x, &t, NULL) != WEFT_OK) continue;
        uint64_t seed = 11 + i;
        const int64_t n = weft_shape_numel(t.shape);
        for (int64_t e = 0; e < n; e++) {
            const double number = test_uniform(&seed, -1, 1);
            if (t.dtype == WEFT_F64)
                ((double *)t.data)[e] = number;
            else /* the first query sees nothing */
                ((bool *)t.data)[e] = number < 0.3 && e % (QUERIES * KEYS) >= KEYS;
        }
    }
    CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_session_fetch(s, y, out, NUMBERS * sizeof *out, NULL), WEFT_OK);
    const size_t count = test_count_nodes(plan, "sdpa");
    weft_session_free(s);
    weft_params_free(params);
    weft_plan_free(plan);
    return count;
}

static void inputs(weft_graph *g, form f, weft_value in[4])
{
    const int64_t heads = f == SINGLE_HEAD_MASK ? 1 : HEADS;
    in[0] = weft_input(g, "q", WEFT_F64, WEFT_SHAPE(BATCH, HEADS, QUERIES, WIDTH));
    in[1] =
        weft_input(g, "k", WEFT_F64, WEFT_SHAPE(BATCH, f == SHARED_KEYS ? 1 : HEADS, KEYS, WIDTH));
    in[2] =
        weft_input(g, "v", WEFT_F64, WEFT_SHAPE(BATCH, f >= SHARED_KEYS ? 1 : HEADS, KEYS, WIDTH));
    in[3] = weft_input(g, "seen", WEFT_BOOL, WEFT_SHAPE(1, heads, QUERIES, KEYS));
}

static void test_forms(void)
{
    for (form f = PLAIN; f < FORMS; f++) {
        double expected[NUMBERS], got[NUMBERS], worst = 0;
        weft_value in[4];
        weft_graph *g = weft_graph_new();
        inputs(g, f, in);
        const weft_value y = attention(g, f, in[0], in[1], in[2], in[3]);
        CU_ASSERT_EQUAL(run(g, y, "attention", expected), 0);
        const size_t count = run(g, y, NULL, got);
        if (!test_skips_pass("attention")) CU_ASSERT_EQUAL(count, f < OTHER_AXIS);
        for (int i = 0; i < NUMBERS; i++) {
            const bool both_nan = isnan(expected[i]) && f == SINGLE_HEAD_MASK;
            worst = fmax(worst, both_nan ? fabs(got[i]) : fabs(got[i] - expected[i]));
        }
        if (!(worst < ROUNDING_F64)) printf("\n    form %d: %g\n", (int)f, worst);
        CU_ASSERT_TRUE(worst < ROUNDING_F64);
        weft_graph_free(g);
    }
}

/* A training graph needs the weights of its attention. */
static void test_gradient(void)
{
    double expected[NUMBERS], got[NUMBERS];
    weft_value in[4], dq;
    weft_graph *g = weft_graph_new();
    inputs(g, PLAIN, in);
    const weft_value y = attention(g, PLAIN, in[0], in[1], in[2], in[3]);
    const weft_value loss = weft_sum(g, weft_square(g, y), WEFT_ALL_AXES, false);
    weft_grad(g, loss, in, 1, &dq);
    run(g, dq, "attention", expected);
    CU_ASSERT_EQUAL(run(g, dq, NULL, got), 0);
    CU_ASSERT_EQUAL(memcmp(expected, got, sizeof got), 0);
    weft_graph_free(g);
}

void attention_pass_tests(void)
{
    CU_pSuite suite = CU_add_suite("attention_pass", NULL, NULL);
    CU_add_test(suite, "forms of attention, and others", test_forms);
    CU_add_test(suite, "not in a training graph", test_gradient);
}
