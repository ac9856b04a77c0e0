/* Loops as one node (weft_scan): the bits of bodies applied by hand, forwards and in reverse, within each
 * other, by several threads and unrolled; gradients; plans whose size does not depend on the number of
 * steps; and what cannot be in a body. */
#include "value_pairs.h"
#include "tests.h"

#include <weft/scan.h>
#include <weft/transform.h>

#include <stdlib.h>
#include <string.h>

/* A body: in[] are carries, slices and shared values, out[] the next carries, then what is stacked. */
typedef struct cell {
    const char *name;
    void (*build)(weft_graph *g, const weft_value *in, weft_value *out);
    size_t n_carry, n_each, n_shared, n_out;
    weft_shape shape[6]; /* of in[] */
    bool reverse;
} cell;
#define MAX_IN  6
#define MAX_OUT 5

/* h = tanh(x wx + h wh + b), stacked. */
static void build_rnn(weft_graph *g, const weft_value *in, weft_value *out)
{
    const weft_value x = weft_matmul(g, in[1], in[2]), h = weft_matmul(g, in[0], in[3]);
    const weft_value sum = weft_add(g, x, h);
    out[0] = out[1] = weft_tanh(g, weft_add(g, sum, in[4]));
}

/* An LSTM whose gates are in one product: carries h and c; h is stacked. */
static void build_lstm(weft_graph *g, const weft_value *in, weft_value *out)
{
    weft_value gates[4];
    const weft_value x = weft_matmul(g, in[2], in[3]), h = weft_matmul(g, in[0], in[4]);
    weft_chunk(g, weft_add(g, x, h), -1, 4, gates);
    const weft_value i = weft_sigmoid(g, gates[0]), f = weft_sigmoid(g, gates[1]);
    const weft_value o = weft_sigmoid(g, gates[2]), kept = weft_mul(g, f, in[1]);
    out[1] = weft_add(g, kept, weft_mul(g, i, weft_tanh(g, gates[3])));
    out[0] = out[2] = weft_mul(g, o, weft_tanh(g, out[1]));
}

/* A cumulative sum. */
static void build_sum(weft_graph *g, const weft_value *in, weft_value *out)
{
    out[0] = out[1] = weft_add(g, in[0], in[1]);
}

/* Carries that change places, one that stays, and stacks of a carry, a constant, a view and an
 * input. */
static void build_moves(weft_graph *g, const weft_value *in, weft_value *out)
{
    out[0] = in[1];
    out[1] = weft_add(g, in[0], in[3]);
    out[2] = in[2];
    out[3] = in[0];
    out[4] = weft_transpose(g, weft_mul(g, in[3], in[1]), 0, 1);
}

/* No carry: each step on its own. */
static void build_map(weft_graph *g, const weft_value *in, weft_value *out)
{
    const float two[3] = {2, 3, 4};
    const weft_dtype dtype = weft_dtype_of(g, in[0]);
    const weft_value c = weft_cast(g, weft_constant(g, WEFT_F32, WEFT_SHAPE(3), two), dtype);
    out[0] = weft_mul(g, in[0], c);
    out[1] = c;
}

static const cell cells[] = {
    {"rnn",
     build_rnn,
     1,
     1,
     3,
     1,
     {{2, {3, 5}}, {2, {3, 4}}, {2, {4, 5}}, {2, {5, 5}}, {1, {5}}},
     false},
    {"rnn in reverse",
     build_rnn,
     1,
     1,
     3,
     1,
     {{2, {3, 5}}, {2, {3, 4}}, {2, {4, 5}}, {2, {5, 5}}, {1, {5}}},
     true},
    {"lstm",
     build_lstm,
     2,
     1,
     2,
     1,
     {{2, {2, 6}}, {2, {2, 6}}, {2, {2, 3}}, {2, {3, 24}}, {2, {6, 24}}},
     false},
    {"wide rnn",
     build_rnn,
     1,
     1,
     3,
     1,
     {{2, {64, 96}}, {2, {64, 48}}, {2, {48, 96}}, {2, {96, 96}}, {1, {96}}},
     false},
    {"sum", build_sum, 1, 1, 0, 1, {{1, {7}}, {1, {7}}}, false},
    {"scalar sum", build_sum, 1, 1, 0, 1, {{0, {0}}, {0, {0}}}, true},
    {"moves", build_moves, 3, 1, 0, 2, {{2, {2, 3}}, {2, {2, 3}}, {2, {2, 3}}, {2, {2, 3}}}, false},
    {"map", build_map, 0, 1, 0, 2, {{1, {3}}}, false},
};
#define N_CELLS (sizeof cells / sizeof *cells)

static size_t inputs_of(const cell *c)
{
    return c->n_carry + c->n_each + c->n_shared;
}

static size_t outputs_of(const cell *c)
{
    return c->n_carry + c->n_out;
}

static weft_shape stack_shape(weft_shape one, int64_t n)
{
    weft_shape all = {one.rank + 1, {n}};
    for (int d = 0; d < one.rank; d++) all.dim[d + 1] = one.dim[d];
    return all;
}

static weft_value numbered_input(weft_graph *g, size_t i, weft_dtype dtype, weft_shape shape)
{
    char name[16];
    snprintf(name, sizeof name, "in%zu", i);
    return weft_input(g, name, dtype, shape);
}

/* Declares what the loop reads. */
static void declare(weft_graph *g, const cell *c, weft_dtype dtype, int64_t n, weft_value *in)
{
    for (size_t i = 0; i < inputs_of(c); i++) {
        const bool each = i >= c->n_carry && i < c->n_carry + c->n_each;
        in[i] = numbered_input(g, i, dtype, each ? stack_shape(c->shape[i], n) : c->shape[i]);
    }
}

static void fill(weft_session *s, weft_graph *g, const weft_value *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        weft_tensor t;
        if (weft_session_tensor(s, in[i], &t, NULL) != WEFT_OK) continue; /* no target reads it */
        const weft_sample_input numbers = {t.dtype, weft_shape_of(g, in[i]), -1, 1, false};
        weft_sample_input_fill(&numbers, t.dtype, 100 + i, t.data);
    }
}

/* A body of the cell in a graph that the caller frees. in[] and out[] have room for it. */
static weft_scan_body make_body(const cell *c, weft_dtype dtype, weft_value *in, weft_value *out)
{
    weft_graph *g = weft_graph_new();
    for (size_t i = 0; i < inputs_of(c); i++) in[i] = numbered_input(g, i, dtype, c->shape[i]);
    c->build(g, in, out);
    const weft_scan_body body = {.graph = g,
                                 .n_carry = c->n_carry,
                                 .carry_in = in,
                                 .carry_out = out,
                                 .n_each = c->n_each,
                                 .each = in + c->n_carry,
                                 .n_shared = c->n_shared,
                                 .shared = in + c->n_carry + c->n_each,
                                 .n_out = c->n_out,
                                 .out = out + c->n_carry,
                                 .reverse = c->reverse};
    return body;
}

static void by_scan(weft_graph *g, const cell *c, int64_t n, const weft_value *in, weft_value *out)
{
    weft_value body_in[MAX_IN], body_out[MAX_OUT];
    const weft_scan_body body = make_body(c, weft_dtype_of(g, in[0]), body_in, body_out);
    const weft_scan_inputs inputs = {in, in + c->n_carry, in + c->n_carry + c->n_each};
    weft_scan(g, &body, n, &inputs, out, out + c->n_carry);
    weft_graph_free(body.graph);
}

static void by_hand(weft_graph *g, const cell *c, int64_t n, const weft_value *in, weft_value *out)
{
    weft_value now[MAX_IN], next[MAX_OUT];
    weft_value *rows[MAX_OUT] = {NULL};
    for (size_t k = 0; k < c->n_out; k++) rows[k] = calloc((size_t)n, sizeof **rows);
    memcpy(now, in, inputs_of(c) * sizeof *now);
    for (int64_t step = 0; step < n; step++) {
        const int64_t t = c->reverse ? n - 1 - step : step;
        for (size_t i = c->n_carry; i < c->n_carry + c->n_each; i++) {
            const weft_value row = weft_slice(g, in[i], 0, t, t + 1, 1);
            now[i] = weft_reshape(g, row, c->shape[i]);
        }
        c->build(g, now, next);
        memcpy(now, next, c->n_carry * sizeof *now);
        for (size_t k = 0; k < c->n_out; k++) rows[k][t] = next[c->n_carry + k];
    }
    memcpy(out, now, c->n_carry * sizeof *out);
    for (size_t k = 0; k < c->n_out; k++) {
        out[c->n_carry + k] = weft_stack(g, rows[k], (size_t)n, 0);
        free(rows[k]);
    }
}

/* Runs a graph of pairs of targets and returns how far they are apart. */
static double run_pairs(weft_graph *g, const cell *c, const weft_value *in,
                        const weft_value *targets, size_t n_pairs,
                        const weft_plan_options *plan_options,
                        const weft_session_options *session_options)
{
    weft_error e = {.status = WEFT_OK};
    double off = INFINITY;
    weft_plan *plan = weft_plan_new(g, targets, 2 * n_pairs, plan_options, &e);
    weft_session *s = plan ? weft_session_new(plan, NULL, session_options, &e) : NULL;
    if (s) {
        fill(s, g, in, inputs_of(c));
        for (int run = 0; run < 2 && e.status == WEFT_OK; run++) weft_session_run(s, &e);
        if (e.status == WEFT_OK) off = pairs_off(g, s, targets, n_pairs);
    }
    if (e.status != WEFT_OK) fprintf(stderr, "\n    %s: %s: %s\n", c->name, e.where, e.message);
    CU_ASSERT_EQUAL(e.status, WEFT_OK);
    weft_session_free(s);
    weft_plan_free(plan);
    return off;
}

/* How far a scan is from its steps by hand. */
static double compare(const cell *c, weft_dtype dtype, int64_t n,
                      const weft_plan_options *plan_options,
                      const weft_session_options *session_options)
{
    weft_graph *g = weft_graph_new();
    weft_value in[MAX_IN], scan[MAX_OUT], hand[MAX_OUT], targets[2 * MAX_OUT];
    declare(g, c, dtype, n, in);
    by_scan(g, c, n, in, scan);
    by_hand(g, c, n, in, hand);
    for (size_t k = 0; k < outputs_of(c); k++) {
        targets[2 * k] = scan[k];
        targets[2 * k + 1] = hand[k];
    }
    CU_ASSERT_EQUAL(weft_graph_verify(g, NULL), WEFT_OK);
    const double off = run_pairs(g, c, in, targets, outputs_of(c), plan_options, session_options);
    weft_graph_free(g);
    return off;
}

static void test_values(void)
{
    static const int64_t steps[] = {1, 2, 3, 8};
    const weft_plan_options verify = {.verify = true};
    for (size_t i = 0; i < N_CELLS; i++)
        for (int d = 0; d < 2; d++)
            for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
                for (int threads = 1; threads <= 4; threads += 3) {
                    const weft_session_options o = {.threads = threads, .poison = true};
                    const double off =
                        compare(&cells[i], d ? WEFT_F64 : WEFT_F32, steps[k], &verify, &o);
                    if (off != 0)
                        fprintf(stderr, "\n    %s, %d steps, %d threads: off by %g\n",
                                cells[i].name, (int)steps[k], threads, off);
                    CU_ASSERT_EQUAL(off, 0);
                }
}

/* The pass `unroll`, and plans without reuse or without optional passes. */
static void test_plans(void)
{
    const weft_plan_options options[] = {
        {.passes = &weft_pass_unroll, .n_passes = 1, .verify = true},
        {.no_reuse = true, .verify = true},
        {.skip = "all", .verify = true},
    };
    for (size_t i = 0; i < N_CELLS; i++)
        for (size_t k = 0; k < sizeof options / sizeof *options; k++)
            CU_ASSERT_EQUAL(compare(&cells[i], WEFT_F32, 5, &options[k], NULL), 0);
}

/* ---- Scans within scans ---- */

#define INNER 3

/* One carry, a sequence of INNER slices and a weight: h = tanh(h w + x), INNER times. */
static void build_nested(weft_graph *g, const weft_value *in, weft_value *out)
{
    static const cell inner = {"inner",
                               build_rnn,
                               1,
                               1,
                               3,
                               1,
                               {{2, {2, 3}}, {2, {2, 3}}, {2, {3, 3}}, {2, {3, 3}}, {1, {3}}},
                               true};
    const weft_value values[] = {in[0], in[1], in[2], in[2], in[3]};
    by_scan(g, &inner, INNER, values, out);
}

static const cell nested = {
    "nested", build_nested, 1, 1, 2, 1, {{2, {2, 3}}, {3, {INNER, 2, 3}}, {2, {3, 3}}, {1, {3}}},
    false};

static void test_nested(void)
{
    const weft_plan_options verify = {.verify = true};
    const weft_plan_options unrolled = {.passes = &weft_pass_unroll, .n_passes = 1, .verify = true};
    const weft_session_options o = {.threads = 3, .poison = true};
    CU_ASSERT_EQUAL(compare(&nested, WEFT_F32, 4, &verify, &o), 0);
    CU_ASSERT_EQUAL(compare(&nested, WEFT_F64, 4, &unrolled, &o), 0);
}

/* ---- Threads ---- */

/* A pool that makes its calls one after another: the first runs the whole loop, and the others come when
 * it is over. */
static void run_in_turn(void *context, int threads, void (*call)(void *argument, int index),
                        void *argument)
{
    int *calls = context;
    for (int i = 0; i < threads; i++) call(argument, i);
    *calls += threads;
}

/* A pool that leaves out all calls but one. */
static void run_last(void *context, int threads, void (*call)(void *argument, int index),
                     void *argument)
{
    ++*(int *)context;
    call(argument, threads - 1);
}

static void test_pools(void)
{
    int calls = 0;
    const weft_thread_pool pools[] = {{.run = run_in_turn, .context = &calls},
                                      {.run = run_last, .context = &calls}};
    for (size_t i = 0; i < N_CELLS; i++)
        for (int k = 0; k < 2; k++) {
            const weft_session_options o = {.threads = 4, .pool = &pools[k], .poison = true};
            CU_ASSERT_EQUAL(compare(&cells[i], WEFT_F32, 7, NULL, &o), 0);
        }
    CU_ASSERT_TRUE(calls > 0);
}

/* Many short steps with more threads than processors. */
static void test_many_steps(void)
{
    const int64_t n = TEST_SANITIZED ? 50 : 300;
    for (size_t i = 0; i < N_CELLS; i++)
        for (int threads = 1; threads <= 4; threads++) {
            const weft_session_options o = {.threads = threads};
            CU_ASSERT_EQUAL(compare(&cells[i], WEFT_F32, n, NULL, &o), 0);
        }
}

/* ---- Plans ---- */

/* A scalar that depends on all outputs: a sum of sums or means of squares. */
static weft_value loss_of(weft_graph *g, const weft_value *out, size_t n, bool mean)
{
    weft_value terms[MAX_OUT];
    for (size_t k = 0; k < n; k++) {
        const weft_value square = weft_square(g, out[k]);
        terms[k] = mean ? weft_mean(g, square, WEFT_ALL_AXES, false)
                        : weft_sum(g, square, WEFT_ALL_AXES, false);
    }
    return weft_add_n(g, terms, n);
}

/* The statistics of a plan of n steps, or of their gradients. */
static weft_plan_stats plan_of(const cell *c, int64_t n, bool gradients)
{
    weft_error e = {.status = WEFT_OK};
    weft_graph *g = weft_graph_new();
    weft_value in[MAX_IN], out[MAX_OUT], grads[MAX_IN];
    declare(g, c, WEFT_F32, n, in);
    by_scan(g, c, n, in, out);
    if (gradients) weft_grad(g, loss_of(g, out, outputs_of(c), false), in, inputs_of(c), grads);
    weft_plan *plan = weft_plan_new(g, gradients ? grads : out,
                                    gradients ? inputs_of(c) : outputs_of(c), NULL, &e);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    const weft_plan_stats stats = weft_plan_stats_of(plan);
    weft_plan_free(plan);
    weft_graph_free(g);
    return stats;
}

/* The number of steps changes neither the nodes nor the buffers, and of the arena only the sequences. */
static void test_sizes(void)
{
    for (size_t i = 0; i < 2 * N_CELLS; i++) {
        const cell *one = &cells[i / 2];
        const bool gradients = i % 2;
        const weft_plan_stats a = plan_of(one, 1000, gradients), b = plan_of(one, 10000, gradients),
                              c = plan_of(one, 100000, gradients);
        CU_ASSERT_EQUAL(a.nodes, b.nodes);
        CU_ASSERT_EQUAL(a.nodes, c.nodes);
        CU_ASSERT_EQUAL(a.intervals, c.intervals);
        CU_ASSERT_EQUAL(a.buffers, c.buffers);
        /* Sequences begin at multiples of 64 bytes, and sums have scratch. */
        const double small = (double)(b.arena_bytes - a.arena_bytes) / 9000;
        const double large = (double)(c.arena_bytes - b.arena_bytes) / 90000;
        CU_ASSERT_DOUBLE_EQUAL(small, large, 0.01 * large);
    }
}

/* ---- Faults ---- */

/* The row of a table that the slice names. */
static void build_lookup(weft_graph *g, const weft_value *in, weft_value *out)
{
    out[0] = weft_add(g, in[0], weft_embedding(g, in[2], in[1], -1));
}

static void test_fault(void)
{
    for (int wide = 0; wide < 2; wide++) {
        weft_graph *g = weft_graph_new(), *b = weft_graph_new();
        weft_error e = {.status = WEFT_OK};
        const int64_t size = wide ? 40000 : 4;
        const weft_value body_in[] = {weft_input(b, "h", WEFT_F32, WEFT_SHAPE(size)),
                                      weft_input(b, "i", WEFT_I32, WEFT_SCALAR),
                                      weft_input(b, "table", WEFT_F32, WEFT_SHAPE(3, size))};
        const weft_value in[] = {weft_input(g, "start", WEFT_F32, WEFT_SHAPE(size)),
                                 weft_input(g, "indices", WEFT_I32, WEFT_SHAPE(6)),
                                 weft_input(g, "rows", WEFT_F32, WEFT_SHAPE(3, size))};
        weft_value next, last;
        build_lookup(b, body_in, &next);
        const weft_scan_body body = {.graph = b,
                                     .n_carry = 1,
                                     .carry_in = body_in,
                                     .carry_out = &next,
                                     .n_each = 1,
                                     .each = &body_in[1],
                                     .n_shared = 1,
                                     .shared = &body_in[2]};
        const weft_scan_inputs inputs = {in, &in[1], &in[2]};
        weft_graph_push_scope(g, "loop");
        weft_scan(g, &body, 6, &inputs, &last, NULL);
        weft_graph_pop_scope(g);
        weft_plan *plan = weft_plan_new(g, &last, 1, NULL, &e);
        weft_session *s = weft_session_new(plan, NULL, &(weft_session_options){.threads = 3}, &e);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        float *zeros = calloc(3 * (size_t)size, sizeof *zeros);
        weft_session_feed(s, in[0], zeros, (size_t)size * 4, NULL);
        weft_session_feed(s, in[2], zeros, 3 * (size_t)size * 4, NULL);
        for (int run = 0; run < 3; run++) {
            const int32_t indices[6] = {0, 1, 2, run == 1 ? 7 : 0, 1, run == 1 ? 8 : 1};
            weft_session_feed(s, in[1], indices, sizeof indices, NULL);
            const weft_status status = weft_session_run(s, &e);
            CU_ASSERT_EQUAL(status, run == 1 ? WEFT_BAD_INDEX : WEFT_OK);
            if (run != 1) continue;
            CU_ASSERT_STRING_EQUAL(e.where, "loop/scan");
            CU_ASSERT_STRING_EQUAL(e.message, "step 3, embedding: index 7 is outside [0, 3)");
        }
        free(zeros);
        weft_session_free(s);
        weft_plan_free(plan);
        weft_graph_free(b);
        weft_graph_free(g);
    }
}

/* A profile, and the search for numbers that are not finite, run loops as well. */
static void test_tools(void)
{
    const cell *c = &cells[3];
    weft_error e = {.status = WEFT_OK};
    weft_graph *g = weft_graph_new();
    weft_value in[MAX_IN], out[MAX_OUT], targets[2];
    declare(g, c, WEFT_F32, 4, in);
    by_scan(g, c, 4, in, targets);
    by_hand(g, c, 4, in, out);
    targets[1] = out[0];
    weft_plan *plan = weft_plan_new(g, targets, 2, NULL, &e);
    weft_session *s = weft_session_new(plan, NULL, &(weft_session_options){.threads = 3}, &e);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    fill(s, g, in, inputs_of(c));
    CU_ASSERT_EQUAL(weft_session_profile(s, true, NULL, &e), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, &e), WEFT_OK);
    CU_ASSERT_EQUAL(pairs_off(g, s, targets, 1), 0);
    CU_ASSERT_EQUAL(weft_session_find_nonfinite(s, &e), WEFT_OK);
    weft_tensor t;
    weft_session_tensor(s, in[1], &t, NULL);
    ((float *)t.data)[64 * 48 * 2] = NAN;
    CU_ASSERT_EQUAL(weft_session_run(s, &e), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_find_nonfinite(s, &e), WEFT_NOT_FINITE);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* ---- Gradients ---- */

/* Derivatives of a scan and of its steps by hand. */
typedef enum derivative { GRADIENT, HESSIAN_PRODUCT, FORWARD_MODE, BATCH } derivative;

/* Fills results[] with a derivative of outputs[], and returns how many there are. */
static size_t derive(weft_graph *g, const cell *c, derivative kind, const weft_value *in,
                     const weft_value *out, weft_value *results)
{
    const size_t n_in = inputs_of(c), n_out = outputs_of(c);
    weft_value vectors[MAX_IN];
    for (size_t i = 0; i < n_in; i++) vectors[i] = random_like(g, in[i], 70 + i);
    switch (kind) {
    case GRADIENT:
        weft_grad(g, loss_of(g, out, n_out, true), in, n_in, results);
        return n_in;
    case HESSIAN_PRODUCT:
        weft_hvp(g, loss_of(g, out, n_out, true), in, vectors, n_in, results);
        return n_in;
    case FORWARD_MODE:
        weft_jvp(g, out, n_out, in, vectors, n_in, results);
        return n_out;
    default: /* two examples, with another in[0] */
        weft_vmap(g, out, n_out, in,
                  (weft_value[]){weft_stack(g, (weft_value[]){vectors[0], in[0]}, 2, 0)}, 1,
                  results);
        return n_out;
    }
}

/* How far the derivatives of a scan are from those of its steps by hand. */
static double compare_derivatives(const cell *c, derivative kind, int64_t n)
{
    weft_graph *g = weft_graph_new();
    weft_value in[MAX_IN], out[2][MAX_OUT], results[2][MAX_IN], targets[2 * MAX_IN];
    size_t n_results = 0;
    declare(g, c, WEFT_F64, n, in);
    by_scan(g, c, n, in, out[0]);
    by_hand(g, c, n, in, out[1]);
    for (int i = 0; i < 2; i++) n_results = derive(g, c, kind, in, out[i], results[i]);
    for (size_t k = 0; k < n_results; k++) {
        targets[2 * k] = results[0][k];
        targets[2 * k + 1] = results[1][k];
    }
    const weft_plan_options verify = {.verify = true};
    const weft_session_options o = {.threads = 2, .poison = true};
    const double off = run_pairs(g, c, in, targets, n_results, &verify, &o);
    weft_graph_free(g);
    return off;
}

static void expect_derivatives(const cell *c, int64_t n)
{
    static const char *const names[] = {"gradients", "products with the Hessian", "forward mode",
                                        "batch"};
    for (int kind = GRADIENT; kind <= BATCH; kind++) {
        const double off = compare_derivatives(c, (derivative)kind, n);
        if (!(off < ROUNDING_F64))
            fprintf(stderr, "\n    %s, %d steps, %s: off by %g\n", c->name, (int)n, names[kind],
                    off);
        CU_ASSERT_TRUE(off < ROUNDING_F64);
    }
}

static void test_derivatives(void)
{
    for (size_t i = 0; i < N_CELLS; i++)
        for (int64_t n = 1; n <= 6; n += 5) expect_derivatives(&cells[i], n);
    expect_derivatives(&nested, 3);
}

/* Central differences of all inputs. */
static void test_differences(void)
{
    for (size_t i = 0; i < N_CELLS; i++) {
        const cell *c = &cells[i];
        weft_graph *g = weft_graph_new();
        weft_value in[MAX_IN], out[MAX_OUT];
        weft_check_feed feeds[MAX_IN];
        weft_check_result result;
        declare(g, c, WEFT_F64, 4, in);
        by_scan(g, c, 4, in, out);
        for (size_t k = 0; k < inputs_of(c); k++) {
            const weft_shape shape = weft_shape_of(g, in[k]);
            const size_t bytes = weft_tensor_bytes(WEFT_F64, shape);
            const weft_sample_input numbers = {WEFT_F64, shape, -0.5, 0.5, false};
            void *data = malloc(bytes);
            weft_sample_input_fill(&numbers, WEFT_F64, 20 + k, data);
            feeds[k] = (weft_check_feed){in[k], data, bytes};
        }
        const weft_value loss = loss_of(g, out, outputs_of(c), true);
        const weft_gradient_check check = {.loss = loss,
                                           .wrt = in,
                                           .n = inputs_of(c),
                                           .feeds = feeds,
                                           .n_feeds = inputs_of(c),
                                           .per_value = 6};
        CU_ASSERT_EQUAL(weft_check_gradient(g, &check, &result, NULL), WEFT_OK);
        if (!(result.worst_error < SMOOTH_DIFFERENCES))
            fprintf(stderr, "\n    %s: off by %g\n", c->name, result.worst_error);
        CU_ASSERT_TRUE(result.worst_error < SMOOTH_DIFFERENCES);
        for (size_t k = 0; k < inputs_of(c); k++) free((void *)(uintptr_t)feeds[k].data);
        weft_graph_free(g);
    }
}

/* ---- Bodies that are refused ---- */

typedef struct refusal {
    const char *text; /* of the message */
    void (*build)(weft_graph *g, weft_value x, weft_value *out);
    weft_status status;
} refusal;

static void use_dropout(weft_graph *g, weft_value x, weft_value *out)
{
    *out = weft_dropout(g, x, 0.5);
}

static void use_param(weft_graph *g, weft_value x, weft_value *out)
{
    const weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(2),
                                    WEFT_LITERAL(weft_init){WEFT_INIT_CONSTANT, 0, 0});
    *out = weft_add(g, x, w);
}

static void use_input(weft_graph *g, weft_value x, weft_value *out)
{
    *out = weft_add(g, x, weft_input(g, "stray", WEFT_F32, WEFT_SHAPE(2)));
}

static void use_cast(weft_graph *g, weft_value x, weft_value *out)
{
    *out = weft_cast(g, x, WEFT_F64);
}

static void use_sum(weft_graph *g, weft_value x, weft_value *out)
{
    *out = weft_sum(g, x, WEFT_ALL_AXES, false);
}

static void use_error(weft_graph *g, weft_value x, weft_value *out)
{
    *out = weft_reshape(g, x, WEFT_SHAPE(5));
}

static void test_refusals(void)
{
    static const refusal refusals[] = {
        {"random numbers would repeat", use_dropout, WEFT_BAD_ARGUMENT},
        {"w (state) in the body: a body declares no parameters", use_param, WEFT_BAD_ARGUMENT},
        {"stray (input) in the body", use_input, WEFT_BAD_ARGUMENT},
        {"carry 0 comes in as f32 [2] and goes out as f64 [2]", use_cast, WEFT_BAD_DTYPE},
        {"carry 0 comes in as f32 [2] and goes out as f32 []", use_sum, WEFT_BAD_SHAPE},
        {"", use_error, WEFT_BAD_SHAPE},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        weft_graph *g = weft_graph_new(), *b = weft_graph_new();
        weft_value x = weft_input(b, "x", WEFT_F32, WEFT_SHAPE(2)), y, last = x;
        refusals[i].build(b, x, &y);
        const weft_value start = weft_input(g, "start", WEFT_F32, WEFT_SHAPE(2));
        const weft_scan_body body = {.graph = b, .n_carry = 1, .carry_in = &x, .carry_out = &y};
        const weft_scan_inputs inputs = {.carry = &start};
        weft_scan(g, &body, 4, &inputs, &last, NULL);
        const weft_error *e = weft_graph_error(g);
        if (!strstr(e->message, refusals[i].text))
            fprintf(stderr, "\n    %s: %s\n", e->where, e->message);
        CU_ASSERT_EQUAL(e->status, refusals[i].status);
        CU_ASSERT_PTR_NOT_NULL(strstr(e->message, refusals[i].text));
        CU_ASSERT_FALSE(weft_is_value(last));
        weft_graph_free(b);
        weft_graph_free(g);
    }
}

/* Lists and numbers that do not fit a good body. */
static void test_arguments(void)
{
    static const char *const texts[] = {"0 steps, expected 1 to 2147483647",
                                        "carry 0 is f32 [3], the body needs f32 [2]",
                                        "carry_in 0 of the body is not an input",
                                        "each 0 of the body is listed twice",
                                        "sequence 0 is f32 [4, 3], the body needs f32 [4, 2]",
                                        "expected a graph of its own",
                                        "no carry and no sequence",
                                        "0 carries and 0 values in out"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        weft_graph *g = weft_graph_new(), *b = weft_graph_new();
        const weft_value h = weft_input(b, "h", WEFT_F32, WEFT_SHAPE(2));
        const weft_value x = weft_input(b, "x", WEFT_F32, WEFT_SHAPE(2)), y = weft_add(b, h, x);
        const weft_value start = weft_input(g, "start", WEFT_F32, WEFT_SHAPE(i == 1 ? 3 : 2));
        const weft_value xs = weft_input(g, "xs", WEFT_F32, WEFT_SHAPE(4, i == 4 ? 3 : 2));
        weft_scan_body body = {
            .graph = b, .n_carry = 1, .carry_in = &h, .carry_out = &y, .n_each = 1, .each = &x};
        const weft_scan_inputs inputs = {.carry = &start, .each = &xs};
        weft_value last;
        if (i == 2) body.carry_in = &y;
        if (i == 3) body.each = &h;
        if (i == 5) body.graph = g;
        if (i == 6) body.n_carry = body.n_each = 0;
        if (i == 7) body.n_carry = 0;
        weft_scan(g, &body, i ? 4 : 0, &inputs, &last, NULL);
        const weft_error *e = weft_graph_error(g);
        if (!strstr(e->message, texts[i])) fprintf(stderr, "\n    %s: %s\n", e->where, e->message);
        CU_ASSERT_PTR_NOT_NULL(strstr(e->message, texts[i]));
        weft_graph_free(b);
        weft_graph_free(g);
    }
}

void scan_tests(void)
{
    CU_pSuite suite = CU_add_suite("scan", NULL, NULL);
    CU_add_test(suite, "the bits of the steps by hand", test_values);
    CU_add_test(suite, "plans without loops, reuse or passes", test_plans);
    CU_add_test(suite, "scans within scans", test_nested);
    CU_add_test(suite, "pools whose threads come late, or never", test_pools);
    CU_add_test(suite, "many steps on several threads", test_many_steps);
    CU_add_test(suite, "the size of plans", test_sizes);
    CU_add_test(suite, "a fault in a step", test_fault);
    CU_add_test(suite, "profiles and the search for NaN", test_tools);
    CU_add_test(suite, "derivatives and batches", test_derivatives);
    CU_add_test(suite, "central differences", test_differences);
    CU_add_test(suite, "bodies that are refused", test_refusals);
    CU_add_test(suite, "wrong arguments", test_arguments);
}
