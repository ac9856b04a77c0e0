/* Loops that end by their data (weft_while), branches (weft_cond) and steps that do not run
 * (weft_scan_body.when): values, derivatives and batches next to the same by hand, and what is refused. */
#include "loops.h"
#include "tests.h"
#include "value_pairs.h"

#include <weft/transform.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A session of a plan, which is verified unless options are given. */
static weft_session *open_session(weft_graph *g, const weft_value *targets, size_t n,
                                  const weft_plan_options *plan_options,
                                  const weft_session_options *options, weft_plan **plan)
{
    static const weft_plan_options verify = {.verify = true};
    weft_error e = {.status = WEFT_OK};
    *plan = weft_plan_new(g, targets, n, plan_options ? plan_options : &verify, &e);
    weft_session *s = *plan ? weft_session_new(*plan, NULL, options, &e) : NULL;
    if (!s) fprintf(stderr, "\n    %s: %s\n", e.where, e.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    return s;
}

/* ---- Steps that do not run ---- */

/* The bodies of `loops` with one more sequence, of bools. */
static void guarded_scan(weft_graph *g, const loop_cell *c, int64_t n, const weft_value *in,
                         weft_value runs, weft_value *out)
{
    weft_graph *b = weft_graph_new();
    weft_value body_in[LOOP_MAX_IN + 1], body_out[LOOP_MAX_OUT], sequences[LOOP_MAX_IN];
    const weft_dtype dtype = weft_dtype_of(g, in[0]);
    const size_t before = c->n_carry + c->n_each;
    for (size_t i = 0, k = 0; i < loop_inputs(c); i++, k++) {
        char name[32];
        if (i == before) k++;
        snprintf(name, sizeof name, "x%zu", i);
        body_in[k] = weft_input(b, name, dtype, c->shape[i]);
    }
    body_in[before] = weft_input(b, "runs", WEFT_BOOL, WEFT_SCALAR);
    weft_value plain[LOOP_MAX_IN];
    memcpy(plain, body_in, before * sizeof *plain);
    memcpy(plain + before, body_in + before + 1, c->n_shared * sizeof *plain);
    c->build(b, plain, body_out);
    memcpy(sequences, in + c->n_carry, c->n_each * sizeof *sequences);
    sequences[c->n_each] = runs;
    const weft_scan_body body = {.graph = b,
                                 .n_carry = c->n_carry,
                                 .carry_in = body_in,
                                 .carry_out = body_out,
                                 .n_each = c->n_each + 1,
                                 .each = body_in + c->n_carry,
                                 .n_shared = c->n_shared,
                                 .shared = body_in + before + 1,
                                 .n_out = c->n_out,
                                 .out = body_out + c->n_carry,
                                 .reverse = c->reverse,
                                 .when = body_in[before]};
    const weft_scan_inputs inputs = {in, sequences, in + before};
    weft_scan(g, &body, n, &inputs, out, out + c->n_carry);
    weft_graph_free(b);
}

/* The steps for which `pattern` has a bit, by hand. */
static void chosen_steps(weft_graph *g, const loop_cell *c, int64_t n, unsigned pattern,
                         const weft_value *in, weft_value *out)
{
    weft_value now[LOOP_MAX_IN], next[LOOP_MAX_OUT], rows[LOOP_MAX_OUT][8];
    memcpy(now, in, loop_inputs(c) * sizeof *now);
    for (int64_t step = 0; step < n; step++) {
        const int64_t t = c->reverse ? n - 1 - step : step;
        const bool runs = pattern >> t & 1;
        for (size_t i = c->n_carry; i < c->n_carry + c->n_each; i++)
            now[i] = weft_reshape(g, weft_slice(g, in[i], 0, t, t + 1, 1), c->shape[i]);
        c->build(g, now, next);
        if (runs) memcpy(now, next, c->n_carry * sizeof *now);
        for (size_t k = 0; k < c->n_out; k++) {
            const weft_value row = next[c->n_carry + k];
            rows[k][t] = runs ? row : weft_fill(g, weft_dtype_of(g, row), weft_shape_of(g, row), 0);
        }
    }
    memcpy(out, now, c->n_carry * sizeof *out);
    for (size_t k = 0; k < c->n_out; k++)
        out[c->n_carry + k] = weft_stack(g, rows[k], (size_t)n, 0);
}

static weft_value pattern_value(weft_graph *g, int64_t n, unsigned pattern)
{
    uint8_t bits[8];
    for (int64_t t = 0; t < n; t++) bits[t] = pattern >> t & 1;
    return weft_constant(g, WEFT_BOOL, WEFT_SHAPE(n), bits);
}

/* What is compared: values, or derivatives of their squares. */
enum { VALUES, GRADIENTS, HESSIAN_PRODUCTS, FORWARD_MODE, KINDS };

static size_t derive(weft_graph *g, const loop_cell *c, int kind, const weft_value *in,
                     const weft_value *out, weft_value *results)
{
    const size_t n_in = loop_inputs(c), n_out = loop_outputs(c);
    weft_value vectors[LOOP_MAX_IN];
    for (size_t i = 0; i < n_in; i++) vectors[i] = random_like(g, in[i], 30 + i);
    const weft_value loss = kind == VALUES ? in[0] : loop_loss(g, out, n_out, true);
    if (kind == VALUES) memcpy(results, out, n_out * sizeof *out);
    if (kind == GRADIENTS) weft_grad(g, loss, in, n_in, results);
    if (kind == HESSIAN_PRODUCTS) weft_hvp(g, loss, in, vectors, n_in, results);
    if (kind == FORWARD_MODE) weft_jvp(g, out, n_out, in, vectors, n_in, results);
    return kind == VALUES || kind == FORWARD_MODE ? n_out : n_in;
}

static double compare_chosen(const loop_cell *c, int64_t n, unsigned pattern, int kind,
                             const weft_plan_options *options, int threads)
{
    weft_graph *g = weft_graph_new();
    weft_value in[LOOP_MAX_IN], out[2][LOOP_MAX_OUT], results[2][LOOP_MAX_IN],
        targets[2 * LOOP_MAX_IN];
    size_t count = 0;
    loop_declare(g, c, WEFT_F64, n, in);
    guarded_scan(g, c, n, in, pattern_value(g, n, pattern), out[0]);
    chosen_steps(g, c, n, pattern, in, out[1]);
    for (int i = 0; i < 2; i++) count = derive(g, c, kind, in, out[i], results[i]);
    for (size_t k = 0; k < count; k++) {
        targets[2 * k] = results[0][k];
        targets[2 * k + 1] = results[1][k];
    }
    const weft_session_options o = {.threads = threads, .poison = true};
    const double off = loop_run_pairs(g, c, in, targets, count, options, &o);
    weft_graph_free(g);
    return off;
}

static void test_steps(void)
{
    static const unsigned patterns[] = {0x1f, 0x0b, 0x15, 0x0a, 0x10, 0x01, 0x00};
    const weft_plan_options options[] = {
        {.verify = true}, {.passes = &weft_pass_unroll, .n_passes = 1, .verify = true}};
    for (size_t i = 0; i < LOOP_CELLS; i++)
        for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++)
            for (int kind = VALUES; kind < KINDS; kind++) {
                const double off = compare_chosen(&loop_cells[i], 5, patterns[p], kind,
                                                  &options[p % 2], p % 3 ? 4 : 1);
                const double bound = kind == VALUES ? 0 : ROUNDING_F64;
                if (!(off <= bound))
                    fprintf(stderr, "\n    %s, pattern %x, %d: off by %g\n", loop_cells[i].name,
                            patterns[p], kind, off);
                CU_ASSERT_TRUE(off <= bound);
            }
}

/* ---- While ---- */

enum { MOST = 40, SIZE = 3, WIDE = 40000 };

/* x = (x + a / x) / 2 for each element until x^2 is near a: square roots. */
typedef struct roots {
    weft_graph *g;
    weft_value a, first, last, path, steps;
} roots;

static weft_value newton_step(weft_graph *g, weft_value x, weft_value a)
{
    return weft_mul_scalar(g, weft_add(g, x, weft_div(g, a, x)), 0.5);
}

/* Some x^2 is not near a. */
static weft_value newton_goes_on(weft_graph *g, weft_value x, weft_value a)
{
    const weft_value off = weft_abs(g, weft_sub(g, weft_square(g, x), a));
    const weft_value worst = weft_max(g, off, WEFT_ALL_AXES, false);
    return weft_greater(g, worst, weft_scalar(g, WEFT_F64, 1e-9));
}

static roots declare_roots(int64_t most, int64_t segment)
{
    roots r = {.g = weft_graph_new()};
    weft_graph *b = weft_graph_new();
    const weft_shape shape = WEFT_SHAPE(SIZE);
    const weft_value x = weft_input(b, "x", WEFT_F64, shape);
    const weft_value a = weft_input(b, "a", WEFT_F64, shape);
    const weft_value next = newton_step(b, x, a);
    r.a = weft_input(r.g, "a", WEFT_F64, shape);
    r.first = weft_input(r.g, "first", WEFT_BOOL, WEFT_SCALAR);
    const weft_scan_body body = {.graph = b,
                                 .n_carry = 1,
                                 .carry_in = &x,
                                 .carry_out = &next,
                                 .n_shared = 1,
                                 .shared = &a,
                                 .n_out = 1,
                                 .out = &next,
                                 .segment = segment};
    const weft_scan_inputs inputs = {.carry = &r.a, .shared = &r.a};
    const weft_while_steps steps = {most, r.first, newton_goes_on(b, next, a)};
    weft_while(r.g, &body, &steps, &inputs, &r.last, &r.path, &r.steps);
    weft_graph_free(b);
    return r;
}

static void expect_roots(const roots *r, weft_session *s, const double *a, bool first, int most)
{
    double x[SIZE], got[SIZE], path[MOST][SIZE];
    int32_t steps = 0, counted;
    const uint8_t begins = first;
    bool runs = first;
    weft_session_feed(s, r->a, a, SIZE * sizeof *a, NULL);
    weft_session_feed(s, r->first, &begins, 1, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    weft_session_fetch(s, r->last, got, sizeof got, NULL);
    weft_session_fetch(s, r->path, path, (size_t)most * sizeof *path, NULL);
    weft_session_fetch(s, r->steps, &counted, sizeof counted, NULL);
    memcpy(x, a, sizeof x);
    for (; runs && steps < most; steps++) {
        runs = false;
        for (int i = 0; i < SIZE; i++) {
            x[i] = (x[i] + a[i] / x[i]) * 0.5;
            runs |= fabs(x[i] * x[i] - a[i]) > 1e-9;
        }
        CU_ASSERT_EQUAL(memcmp(path[steps], x, sizeof x), 0);
    }
    CU_ASSERT_EQUAL(counted, steps);
    CU_ASSERT_EQUAL(memcmp(got, x, sizeof x), 0);
    for (int t = steps; t < most; t++)
        for (int i = 0; i < SIZE; i++) CU_ASSERT_EQUAL(path[t][i], 0);
}

static void test_while(void)
{
    static const double numbers[][SIZE] = {{2, 3, 5}, {1e-6, 1e6, 4}, {1, 1, 1}};
    const weft_plan_options options[] = {
        {.verify = true}, {.passes = &weft_pass_unroll, .n_passes = 1, .verify = true}};
    for (int i = 0; i < 4; i++) {
        const int most = i % 2 ? 3 : MOST;
        const roots r = declare_roots(most, i % 2 ? 2 : i ? 7 : 0);
        const weft_session_options o = {.threads = 1 + i, .poison = true};
        weft_plan *plan;
        weft_session *s =
            open_session(r.g, WEFT_VALUES(r.last, r.path, r.steps), &options[i / 2], &o, &plan);
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            expect_roots(&r, s, numbers[k], true, most);
            expect_roots(&r, s, numbers[k], false, most);
        }
        weft_session_free(s);
        weft_plan_free(plan);
        weft_graph_free(r.g);
    }
}

/* The derivative of the root of the sum is that of x = sqrt(a), and that of a carry that did not change. */
static void expect_slopes(int64_t segment)
{
    weft_error e = {.status = WEFT_OK};
    const roots r = declare_roots(MOST, segment);
    weft_value slope;
    weft_grad(r.g, weft_sum(r.g, r.last, WEFT_ALL_AXES, false), &r.a, 1, &slope);
    weft_plan *plan;
    weft_session *s = open_session(r.g, &slope, 1, NULL, NULL, &plan);
    const double a[SIZE] = {2, 3, 5};
    weft_session_feed(s, r.a, a, sizeof a, NULL);
    for (uint8_t first = 0; first < 2; first++) {
        double got[SIZE];
        weft_session_feed(s, r.first, &first, 1, NULL);
        CU_ASSERT_EQUAL(weft_session_run(s, &e), WEFT_OK);
        weft_session_fetch(s, slope, got, sizeof got, NULL);
        for (int i = 0; i < SIZE; i++)
            CU_ASSERT_DOUBLE_EQUAL(got[i], first ? 0.5 / sqrt(a[i]) : 1, 1e-7);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(r.g);
}

static void test_while_gradient(void)
{
    expect_slopes(0);
    expect_slopes(7);
}

/* Elements of a batch stop after numbers of steps of their own. */
static void test_while_batch(void)
{
    static const double a[2][SIZE] = {{2, 3, 5}, {1e-6, 1e6, 4}};
    weft_error e = {.status = WEFT_OK};
    const roots r = declare_roots(MOST, 0);
    const weft_value both = weft_constant(r.g, WEFT_F64, WEFT_SHAPE(2, SIZE), a);
    weft_value steps, last, results[2];
    weft_vmap(r.g, WEFT_VALUES(r.last, r.steps), &r.a, &both, 1, results);
    last = results[0];
    steps = results[1];
    weft_plan *plan;
    weft_session *s = open_session(r.g, WEFT_VALUES(last, steps), NULL, NULL, &plan);
    const uint8_t first = 1;
    double got[2][SIZE];
    int32_t counts[2];
    weft_session_feed(s, r.first, &first, 1, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, &e), WEFT_OK);
    weft_session_fetch(s, last, got, sizeof got, NULL);
    weft_session_fetch(s, steps, counts, sizeof counts, NULL);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < SIZE; i++) CU_ASSERT_DOUBLE_EQUAL(got[k][i], sqrt(a[k][i]), 1e-6);
    CU_ASSERT_TRUE(counts[0] > 0 && counts[0] < counts[1] && counts[1] < MOST);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(r.g);
}

/* 2^31 - 1 steps at most: the time is that of those that run, which three threads share. */
static void test_unbounded(void)
{
    weft_error e = {.status = WEFT_OK};
    weft_graph *g = weft_graph_new(), *b = weft_graph_new();
    const weft_value x = weft_input(b, "x", WEFT_F64, WEFT_SHAPE(WIDE));
    const weft_value start = weft_input(g, "start", WEFT_F64, WEFT_SHAPE(WIDE));
    weft_input_default(g, start, 1);
    const weft_value half = weft_mul_scalar(b, x, 0.5);
    const weft_value all = weft_sum(b, half, WEFT_ALL_AXES, false);
    const weft_value go_on = weft_greater(b, all, weft_scalar(b, WEFT_F64, 1e-30));
    const weft_scan_body body = {.graph = b, .n_carry = 1, .carry_in = &x, .carry_out = &half};
    const weft_scan_inputs inputs = {.carry = &start};
    weft_value last, steps;
    const weft_while_steps until = {.most = INT32_MAX, .go_on = go_on};
    weft_while(g, &body, &until, &inputs, &last, NULL, &steps);
    const weft_session_options o = {.threads = 3, .poison = true};
    weft_plan *plan;
    weft_session *s = open_session(g, WEFT_VALUES(last, steps), NULL, &o, &plan);
    int32_t counted;
    for (int run = 0; run < 3; run++) {
        CU_ASSERT_EQUAL(weft_session_run(s, &e), WEFT_OK);
        weft_session_fetch(s, steps, &counted, sizeof counted, NULL);
        CU_ASSERT_EQUAL(counted, 115); /* 40,000 / 2^115 < 1e-30 */
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(b);
    weft_graph_free(g);
}

/* ---- Branches ---- */

/* yes: rows of a table at an index, which may be outside; no: -x. */
typedef struct choice {
    weft_graph *g;
    weft_value condition, x, table, index, out;
} choice;

static choice declare_choice(void)
{
    choice c = {.g = weft_graph_new()};
    weft_graph *yes = weft_graph_new(), *no = weft_graph_new();
    const weft_shape shape = WEFT_SHAPE(SIZE), rows = WEFT_SHAPE(2, SIZE);
    c.condition = weft_input(c.g, "condition", WEFT_BOOL, WEFT_SCALAR);
    c.x = weft_input(c.g, "x", WEFT_F64, shape);
    c.table = weft_input(c.g, "table", WEFT_F64, rows);
    c.index = weft_input(c.g, "index", WEFT_I32, WEFT_SCALAR);
    const weft_value in[] = {weft_input(yes, "x", WEFT_F64, shape),
                             weft_input(yes, "table", WEFT_F64, rows),
                             weft_input(yes, "index", WEFT_I32, WEFT_SCALAR)};
    const weft_value row = weft_embedding(yes, in[1], in[2], -1);
    const weft_value sum = weft_add(yes, row, weft_log(yes, in[0]));
    const weft_value x = weft_input(no, "x", WEFT_F64, shape), minus = weft_neg(no, x);
    const weft_value from[] = {c.x, c.table, c.index};
    const weft_branch branches[2] = {{yes, 3, in, from, &sum}, {no, 1, &x, &c.x, &minus}};
    weft_cond(c.g, c.condition, &branches[0], &branches[1], 1, &c.out);
    weft_graph_free(yes);
    weft_graph_free(no);
    return c;
}

static void test_branches(void)
{
    weft_error e = {.status = WEFT_OK};
    const choice c = declare_choice();
    weft_value slopes[2];
    weft_grad(c.g, weft_sum(c.g, c.out, WEFT_ALL_AXES, false), WEFT_VALUES(c.x, c.table), slopes);
    const weft_session_options o = {.poison = true};
    weft_plan *plan;
    weft_session *s = open_session(c.g, WEFT_VALUES(c.out, slopes[0], slopes[1]), NULL, &o, &plan);
    const double x[2][SIZE] = {{1, 2, 4}, {0, -1, NAN}}, table[2][SIZE] = {{1, 2, 3}, {4, 5, 6}};
    for (int run = 0; run < 6; run++) {
        const uint8_t yes = run % 2;
        const int32_t index = yes && run < 5 ? 1 : 7; /* of which the table has no row */
        double out[SIZE], by_x[SIZE], by_table[2][SIZE];
        weft_session_feed(s, c.condition, &yes, 1, NULL);
        weft_session_feed(s, c.x, x[!yes], sizeof x[0], NULL);
        weft_session_feed(s, c.table, table, sizeof table, NULL);
        weft_session_feed(s, c.index, &index, sizeof index, NULL);
        const weft_status status = weft_session_run(s, &e);
        CU_ASSERT_EQUAL(status, run == 5 ? WEFT_BAD_INDEX : WEFT_OK);
        if (status != WEFT_OK) continue;
        weft_session_fetch(s, c.out, out, sizeof out, NULL);
        weft_session_fetch(s, slopes[0], by_x, sizeof by_x, NULL);
        weft_session_fetch(s, slopes[1], by_table, sizeof by_table, NULL);
        for (int i = 0; i < SIZE; i++) {
            if (!yes && i == 2)
                CU_ASSERT_TRUE(isnan(out[i]))
            else
                CU_ASSERT_DOUBLE_EQUAL(out[i], yes ? table[1][i] + log(x[0][i]) : -x[1][i], 1e-15);
            CU_ASSERT_DOUBLE_EQUAL(by_x[i], yes ? 1 / x[0][i] : -1, 1e-15);
            CU_ASSERT_EQUAL(by_table[0][i], 0);
            CU_ASSERT_EQUAL(by_table[1][i], yes);
        }
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(c.g);
}

/* Products with the Hessian, forward mode, and a batch whose examples take different branches, next to
 * the same by weft_where: x^3 if the sum of x is positive, and otherwise sin(x). */
static void test_branch_derivatives(void)
{
    weft_graph *g = weft_graph_new(), *yes = weft_graph_new(), *no = weft_graph_new();
    const weft_shape shape = WEFT_SHAPE(SIZE);
    const weft_value x = weft_input(g, "x", WEFT_F64, shape);
    const weft_value a = weft_input(yes, "a", WEFT_F64, shape);
    const weft_value b = weft_input(no, "b", WEFT_F64, shape);
    const weft_value cube = weft_mul(yes, a, weft_square(yes, a)), sine = weft_sin(no, b);
    const weft_value zero = weft_scalar(g, WEFT_F64, 0), v = random_like(g, x, 5);
    const weft_value positive = weft_greater(g, weft_sum(g, x, WEFT_ALL_AXES, false), zero);
    const weft_branch branches[2] = {{yes, 1, &a, &x, &cube}, {no, 1, &b, &x, &sine}};
    weft_value out[2], targets[8];
    weft_cond(g, positive, &branches[0], &branches[1], 1, &out[0]);
    const weft_value other = weft_mul(g, x, weft_square(g, x));
    out[1] = weft_where(g, positive, other, weft_sin(g, x));
    const double batch[2][SIZE] = {{0.5, -0.25, 1}, {-0.5, 0.25, -1}};
    const weft_value xs = weft_constant(g, WEFT_F64, WEFT_SHAPE(2, SIZE), batch);
    for (int i = 0; i < 2; i++) {
        const weft_value loss = weft_sum(g, weft_square(g, out[i]), WEFT_ALL_AXES, false);
        weft_grad(g, loss, &x, 1, &targets[i]);
        weft_hvp(g, loss, &x, &v, 1, &targets[2 + i]);
        weft_jvp(g, &out[i], 1, &x, &v, 1, &targets[4 + i]);
        weft_vmap(g, &out[i], 1, &x, &xs, 1, &targets[6 + i]);
    }
    weft_plan *plan;
    weft_session *s = open_session(g, targets, 8, NULL, NULL, &plan);
    for (int k = 0; k < 2; k++) {
        weft_session_feed(s, x, batch[k], sizeof batch[k], NULL);
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        CU_ASSERT_TRUE(pairs_off(g, s, targets, 4) < ROUNDING_F64);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    weft_graph_free(yes);
    weft_graph_free(no);
}

/* The Collatz sequence: a branch in the body of a while. */
static weft_value collatz_next(weft_graph *body, weft_value x)
{
    weft_graph *odd = weft_graph_new(), *even = weft_graph_new();
    const weft_value o = weft_input(odd, "x", WEFT_F64, WEFT_SCALAR);
    const weft_value e = weft_input(even, "x", WEFT_F64, WEFT_SCALAR);
    const weft_value tripled = weft_add_scalar(odd, weft_mul_scalar(odd, o, 3), 1);
    const weft_value halved = weft_mul_scalar(even, e, 0.5);
    const weft_value half = weft_mul_scalar(body, x, 0.5);
    const weft_branch yes = {odd, 1, &o, &x, &tripled}, no = {even, 1, &e, &x, &halved};
    weft_value next;
    weft_cond(body, weft_not_equal(body, weft_floor(body, half), half), &yes, &no, 1, &next);
    weft_graph_free(odd);
    weft_graph_free(even);
    return next;
}

static void test_nested(void)
{
    weft_error error = {.status = WEFT_OK};
    weft_graph *g = weft_graph_new(), *b = weft_graph_new();
    const weft_value x = weft_input(b, "x", WEFT_F64, WEFT_SCALAR);
    const weft_value start = weft_input(g, "start", WEFT_F64, WEFT_SCALAR);
    const weft_value next = collatz_next(b, x), one = weft_scalar(g, WEFT_F64, 1);
    const weft_value go_on = weft_greater(b, next, weft_scalar(b, WEFT_F64, 1));
    const weft_scan_body body = {.graph = b, .n_carry = 1, .carry_in = &x, .carry_out = &next};
    const weft_scan_inputs inputs = {.carry = &start};
    weft_value last, steps;
    const weft_while_steps until = {1000, weft_greater(g, start, one), go_on};
    weft_while(g, &body, &until, &inputs, &last, NULL, &steps);
    weft_plan *plan;
    weft_session *s = open_session(g, WEFT_VALUES(last, steps), NULL, NULL, &plan);
    static const int32_t known[][2] = {{1, 0}, {6, 8}, {27, 111}, {97, 118}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const double from = known[i][0];
        double to;
        int32_t counted;
        weft_session_feed(s, start, &from, sizeof from, NULL);
        CU_ASSERT_EQUAL(weft_session_run(s, &error), WEFT_OK);
        weft_session_fetch(s, last, &to, sizeof to, NULL);
        weft_session_fetch(s, steps, &counted, sizeof counted, NULL);
        CU_ASSERT_EQUAL(to, 1);
        CU_ASSERT_EQUAL(counted, known[i][1]);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(b);
    weft_graph_free(g);
}

/* ---- What is refused ---- */

static const char *const refused[] = {
    "when is not a carry or sequence of the body",
    "when is not a bool scalar of the body",
    "go_on is not a bool scalar of the body's graph",
    "first is not a bool scalar of the graph",
    "the body has `when`",
    "the body, the steps or the inputs are NULL",
    "the condition is not a bool scalar of the graph",
    "output 0 of the branches is f64 [3] or f64 []: expected one type",
    "output 0 of the branches is f64 [3] or f32 [3]: expected one type",
    "0 outputs, expected 1 to 32",
    "a branch or a list is NULL",
    "an output of a branch does not belong to its graph",
    "shared input 0 is bool [], the body needs f64 [3]",
};

/* Calls one of the functions with the mistake that has this message. */
static void call_wrongly(weft_graph *g, weft_graph *b, size_t mistake)
{
    const weft_shape shape = WEFT_SHAPE(SIZE);
    const weft_value x = weft_input(b, "x", WEFT_F64, shape), next = weft_neg(b, x);
    const weft_value flag = weft_input(b, "flag", WEFT_BOOL, WEFT_SCALAR);
    const weft_value start = weft_input(g, "start", WEFT_F64, shape);
    const weft_value truth = weft_input(g, "truth", WEFT_BOOL, WEFT_SCALAR);
    const weft_value sum = weft_sum(b, x, WEFT_ALL_AXES, false), narrow = weft_cast(b, x, WEFT_F32);
    weft_scan_body body = {.graph = b, .n_carry = 1, .carry_in = &x, .carry_out = &next};
    const weft_scan_inputs inputs = {.carry = &start};
    weft_value last = start, steps, out = start;
    if (mistake == 0) body.when = flag;
    if (mistake == 1) body.when = x;
    if (mistake == 4) body.when = flag;
    if (mistake < 2) weft_scan(g, &body, 3, &inputs, &last, NULL);
    const weft_while_steps until = {3, mistake == 3 ? start : truth, mistake == 2 ? next : flag};
    if (mistake >= 2 && mistake < 6)
        weft_while(g, mistake == 5 ? NULL : &body, &until, &inputs, &last, NULL, &steps);
    const weft_branch yes = {b, 1, &x, mistake == 12 ? &truth : &start, &next};
    weft_branch no = yes;
    if (mistake == 7) no.out = &sum;
    if (mistake == 8) no.out = &narrow;
    if (mistake == 10) no.from = NULL;
    if (mistake == 11) no.out = &start;
    if (mistake >= 6) weft_cond(g, mistake == 6 ? start : truth, &yes, &no, mistake != 9, &out);
    CU_ASSERT_FALSE(mistake < 6 && mistake != 5 && weft_is_value(last));
    CU_ASSERT_FALSE(mistake >= 6 && mistake != 9 && weft_is_value(out));
}

static void test_refusals(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        weft_graph *g = weft_graph_new(), *b = weft_graph_new();
        call_wrongly(g, b, i);
        const weft_error *e = weft_graph_error(g);
        if (!strstr(e->message, refused[i]))
            fprintf(stderr, "\n    %zu: %s: %s\n", i, e->where, e->message);
        CU_ASSERT_PTR_NOT_NULL(strstr(e->message, refused[i]));
        weft_graph_free(b);
        weft_graph_free(g);
    }
}

/* A graph that there was no memory for is NULL: what gets it reports that. */
static void test_no_graph(void)
{
    const weft_value none = WEFT_NO_VALUE;
    const weft_scan_body body = {.n_carry = 1, .carry_in = &none, .carry_out = &none};
    for (int i = 0; i < 3; i++) {
        weft_graph *g = weft_graph_new();
        const weft_value start = weft_input(g, "start", WEFT_F64, WEFT_SHAPE(SIZE));
        const weft_scan_inputs inputs = {.carry = &start};
        const weft_branch branch = {.n_in = 1, .in = &none, .from = &start, .out = &none};
        weft_value last = start;
        if (i == 0) weft_scan(g, &body, 3, &inputs, &last, NULL);
        if (i == 1)
            weft_while(g, &body, &(weft_while_steps){3, none, none}, &inputs, &last, NULL, NULL);
        if (i == 2) weft_cond(g, weft_scalar(g, WEFT_BOOL, 1), &branch, &branch, 1, &last);
        CU_ASSERT_FALSE(weft_is_value(last));
        CU_ASSERT_PTR_NOT_NULL(
            strstr(weft_graph_error(g)->message, "the graph is NULL: out of memory"));
        weft_graph_free(g);
    }
}

void conditions_tests(void)
{
    CU_pSuite suite = CU_add_suite("conditions", NULL, NULL);
    CU_add_test(suite, "steps that do not run, and their derivatives", test_steps);
    CU_add_test(suite, "while, with any number of steps", test_while);
    CU_add_test(suite, "gradients of while", test_while_gradient);
    CU_add_test(suite, "a batch of whiles", test_while_batch);
    CU_add_test(suite, "while without a bound", test_unbounded);
    CU_add_test(suite, "only the chosen branch runs", test_branches);
    CU_add_test(suite, "derivatives and batches of branches", test_branch_derivatives);
    CU_add_test(suite, "a branch in a while", test_nested);
    CU_add_test(suite, "what is refused", test_refusals);
    CU_add_test(suite, "a graph that could not be made", test_no_graph);
}
