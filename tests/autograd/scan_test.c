/* Loops as one node (weft_scan): the bits of bodies applied by hand, forwards and in reverse, within
 * each other, by several threads and unrolled; plans whose size does not depend on the number of
 * steps; faults; and what cannot be in a body. */
#include "loops.h"
#include "tests.h"
#include "value_pairs.h"

#include <weft/inspect.h>
#include <weft/session.h>

#include <stdlib.h>
#include <string.h>

static void test_values(void)
{
    static const int64_t steps[] = {1, 2, 3, 8};
    const weft_plan_options verify = {.verify = true};
    for (size_t i = 0; i < LOOP_CELLS; i++)
        for (int d = 0; d < 2; d++)
            for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
                for (int threads = 1; threads <= 4; threads += 3) {
                    const weft_session_options o = {.threads = threads, .poison = true};
                    const double off = loop_compare(&loop_cells[i], d ? WEFT_F64 : WEFT_F32,
                                                    steps[k], &verify, &o);
                    if (off != 0)
                        fprintf(stderr, "\n    %s, %d steps, %d threads: off by %g\n",
                                loop_cells[i].name, (int)steps[k], threads, off);
                    CU_ASSERT_EQUAL(off, 0);
                }
}

/* One result alone: what it does not need is left out of the loop. */
static void test_single_results(void)
{
    const weft_plan_options verify = {.verify = true};
    for (size_t i = 0; i < LOOP_CELLS; i++) {
        const loop_cell *c = &loop_cells[i];
        for (size_t k = 0; k < loop_outputs(c); k++) {
            weft_graph *g = weft_graph_new();
            weft_value in[LOOP_MAX_IN], scan[LOOP_MAX_OUT], hand[LOOP_MAX_OUT];
            loop_declare(g, c, WEFT_F32, 4, in);
            loop_by_scan(g, c, 4, in, scan);
            loop_by_hand(g, c, 4, in, hand);
            const weft_value targets[] = {scan[k], hand[k]};
            CU_ASSERT_EQUAL(loop_run_pairs(g, c, in, targets, 1, &verify, NULL), 0);
            weft_graph_free(g);
        }
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
    for (size_t i = 0; i < LOOP_CELLS; i++)
        for (size_t k = 0; k < sizeof options / sizeof *options; k++)
            CU_ASSERT_EQUAL(loop_compare(&loop_cells[i], WEFT_F32, 5, &options[k], NULL), 0);
}

static void test_nested(void)
{
    const weft_plan_options verify = {.verify = true};
    const weft_plan_options unrolled = {.passes = &weft_pass_unroll, .n_passes = 1, .verify = true};
    const weft_session_options o = {.threads = 3, .poison = true};
    CU_ASSERT_EQUAL(loop_compare(&loop_nested, WEFT_F32, 4, &verify, &o), 0);
    CU_ASSERT_EQUAL(loop_compare(&loop_nested, WEFT_F64, 4, &unrolled, &o), 0);
}

/* In segments, with steps left over or not, the bits are the same. */
static void test_segments(void)
{
    const weft_plan_options verify = {.verify = true};
    for (size_t i = 0; i < LOOP_CELLS; i++)
        for (int64_t segment = 2; segment < 4; segment++)
            for (int64_t n = 4; n < 8; n++) {
                const weft_session_options o = {.threads = 1 + (int)(n % 2), .poison = true};
                loop_cell c = loop_cells[i];
                c.segment = segment;
                CU_ASSERT_EQUAL(loop_compare(&c, WEFT_F32, n, &verify, &o), 0);
            }
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
    for (size_t i = 0; i < LOOP_CELLS; i++)
        for (int k = 0; k < 2; k++) {
            const weft_session_options o = {.threads = 4, .pool = &pools[k], .poison = true};
            CU_ASSERT_EQUAL(loop_compare(&loop_cells[i], WEFT_F32, 7, NULL, &o), 0);
        }
    CU_ASSERT_TRUE(calls > 0);
}

/* Many short steps with more threads than processors. */
static void test_many_steps(void)
{
    const int64_t n = TEST_SANITIZED ? 50 : 300;
    for (size_t i = 0; i < LOOP_CELLS; i++)
        for (int threads = 1; threads <= 4; threads++) {
            const weft_session_options o = {.threads = threads};
            CU_ASSERT_EQUAL(loop_compare(&loop_cells[i], WEFT_F32, n, NULL, &o), 0);
        }
}

/* ---- Plans ---- */

/* The statistics of a plan of n steps, or of their gradients. */
static weft_plan_stats plan_of(const loop_cell *c, int64_t n, bool gradients)
{
    weft_error e = {.status = WEFT_OK};
    weft_graph *g = weft_graph_new();
    weft_value in[LOOP_MAX_IN], out[LOOP_MAX_OUT], grads[LOOP_MAX_IN];
    loop_declare(g, c, WEFT_F32, n, in);
    loop_by_scan(g, c, n, in, out);
    if (gradients)
        weft_grad(g, loop_loss(g, out, loop_outputs(c), false), in, loop_inputs(c), grads);
    weft_plan *plan = weft_plan_new(g, gradients ? grads : out,
                                    gradients ? loop_inputs(c) : loop_outputs(c), NULL, &e);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    const weft_plan_stats stats = weft_plan_stats_of(plan);
    weft_plan_free(plan);
    weft_graph_free(g);
    return stats;
}

/* The number of steps changes neither the nodes nor the buffers, and of the arena only the sequences. */
static void test_sizes(void)
{
    for (size_t i = 0; i < 2 * LOOP_CELLS; i++) {
        const loop_cell *one = &loop_cells[i / 2];
        const bool gradients = i % 2;
        const weft_plan_stats a = plan_of(one, 1000, gradients), b = plan_of(one, 10000, gradients),
                              c = plan_of(one, 100000, gradients);
        CU_ASSERT_EQUAL(a.nodes, b.nodes);
        CU_ASSERT_EQUAL(a.nodes, c.nodes);
        CU_ASSERT_EQUAL(a.intervals, c.intervals);
        CU_ASSERT_TRUE(c.buffers <= 2 * a.buffers); /* a long sum may need scratch */
        /* Sequences begin at multiples of 64 bytes, and sums have scratch. */
        const double small = (double)(b.arena_bytes - a.arena_bytes) / 9000;
        const double large = (double)(c.arena_bytes - b.arena_bytes) / 90000;
        CU_ASSERT_DOUBLE_EQUAL(small, large, 0.01 * large);
    }
}

/* The arena of a gradient beyond the sequences and their gradients: n carries, or two times its root. */
static void test_segment_sizes(void)
{
    loop_cell c = loop_cells[LOOP_RNN];
    const size_t all = plan_of(&c, 10000, true).arena_bytes;
    c.segment = 100;
    const size_t some = plan_of(&c, 10000, true).arena_bytes;
    const size_t carry = 3 * 5 * sizeof(float);
    CU_ASSERT_TRUE(some < all);
    CU_ASSERT_TRUE(all - some > 9500 * carry);
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
    const loop_cell *c = &loop_cells[LOOP_WIDE_RNN];
    weft_error e = {.status = WEFT_OK};
    weft_graph *g = weft_graph_new();
    weft_value in[LOOP_MAX_IN], out[LOOP_MAX_OUT], targets[2];
    loop_declare(g, c, WEFT_F32, 4, in);
    loop_by_scan(g, c, 4, in, targets);
    loop_by_hand(g, c, 4, in, out);
    targets[1] = out[0];
    weft_plan *plan = weft_plan_new(g, targets, 2, NULL, &e);
    weft_session *s = weft_session_new(plan, NULL, &(weft_session_options){.threads = 3}, &e);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    loop_fill(s, g, in, loop_inputs(c));
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

/* Profiles have rows for the nodes of bodies, called once a step, and the times of all rows add up. */
static void expect_profile(const loop_cell *c, int64_t n, int threads, const weft_thread_pool *pool,
                           const char *inner, uint64_t calls)
{
    weft_error e = {.status = WEFT_OK};
    const weft_session_options o = {.threads = threads, .pool = pool};
    weft_graph *g = weft_graph_new();
    weft_value in[LOOP_MAX_IN], out[LOOP_MAX_OUT];
    loop_declare(g, c, WEFT_F32, n, in);
    loop_by_scan(g, c, n, in, out);
    weft_plan *plan = weft_plan_new(g, out, loop_outputs(c), NULL, &e);
    weft_session *s = weft_session_new(plan, NULL, &o, &e);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    loop_fill(s, g, in, loop_inputs(c));
    CU_ASSERT_EQUAL(weft_session_profile(s, true, NULL, &e), WEFT_OK);
    for (int run = 0; run < 2; run++) CU_ASSERT_EQUAL(weft_session_run(s, &e), WEFT_OK);
    const weft_profile_totals total = weft_profile_totals_of(weft_profile_of(s));
    const double all = total.compute_seconds + total.waiting_seconds + total.start_seconds;
    CU_ASSERT_DOUBLE_EQUAL(all, total.thread_seconds, 1e-9);
    size_t rows, found = 0;
    weft_profile_table *t =
        weft_profile_table_new(weft_profile_of(s), WEFT_PROFILE_BY_NODE, 0, NULL, &e);
    const weft_profile_row *row = weft_profile_table_rows(t, &rows);
    double sum = total.start_seconds, flops = 0;
    for (size_t i = 0; i < rows; i++) {
        sum += row[i].compute_seconds + row[i].waiting_seconds;
        flops += row[i].flops;
        if (strcmp(row[i].name, inner) != 0) continue;
        CU_ASSERT_EQUAL(row[i].calls, 2 * calls);
        CU_ASSERT_STRING_EQUAL(weft_graph_node(weft_plan_graph(plan), row[i].node).op->name,
                               "scan");
        CU_ASSERT_TRUE(row[i].compute_seconds > 0 && row[i].flops > 0);
        found++;
    }
    CU_ASSERT_EQUAL(found, 1);
    CU_ASSERT_DOUBLE_EQUAL(sum, total.thread_seconds, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(flops, total.flops, 1e-9 * flops);
    weft_profile_table_free(t);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_profiles(void)
{
    int calls = 0;
    const weft_thread_pool pool = {.run = run_in_turn, .context = &calls};
    for (int threads = 1; threads <= 3; threads++) {
        expect_profile(&loop_cells[LOOP_LSTM], 7, threads, NULL, "scan/matmul", 7);
        expect_profile(&loop_cells[LOOP_WIDE_RNN], 9, threads, NULL, "scan/matmul", 9);
        expect_profile(&loop_cells[LOOP_WIDE_RNN], 9, threads, &pool, "scan/matmul", 9);
        expect_profile(&loop_nested, 5, threads, NULL, "scan/scan/matmul", 15);
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
    CU_add_test(suite, "one result alone", test_single_results);
    CU_add_test(suite, "plans without loops, reuse or passes", test_plans);
    CU_add_test(suite, "scans within scans", test_nested);
    CU_add_test(suite, "scans in segments", test_segments);
    CU_add_test(suite, "the memory of gradients in segments", test_segment_sizes);
    CU_add_test(suite, "pools whose threads come late, or never", test_pools);
    CU_add_test(suite, "many steps on several threads", test_many_steps);
    CU_add_test(suite, "the size of plans", test_sizes);
    CU_add_test(suite, "a fault in a step", test_fault);
    CU_add_test(suite, "profiles and the search for NaN", test_tools);
    CU_add_test(suite, "profiles of bodies", test_profiles);
    CU_add_test(suite, "bodies that are refused", test_refusals);
    CU_add_test(suite, "wrong arguments", test_arguments);
}
