/* Profiles: the sums that must hold whatever the clock says, the counts, and the bits of the
 * results. No test expects a duration. */
#include "profile_bench.h"

#include "base/platform.h"

#include <weft/measure.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Times are whole nanoseconds and work whole numbers, so only their sums in f64 round. */
static bool near(double a, double b)
{
    return fabs(a - b) <= ROUNDING_F64 * fmax(fabs(a), fabs(b));
}

/* ---- Sums and counts ---- */

static weft_profile_row sum_rows(const weft_profile_row *rows, size_t n)
{
    weft_profile_row sum = {.name = ""};
    for (size_t i = 0; i < n; i++) {
        sum.nodes += rows[i].nodes;
        sum.calls += rows[i].calls;
        sum.compute_seconds += rows[i].compute_seconds;
        sum.waiting_seconds += rows[i].waiting_seconds;
        sum.flops += rows[i].flops;
        sum.bytes += rows[i].bytes;
        sum.roofline_seconds += rows[i].roofline_seconds;
    }
    return sum;
}

/* Does a node's row belong to the scope row of that name, of `depth` components? */
static bool in_scope(const char *scope, const char *name, int depth)
{
    size_t n = strlen(name);
    int dots = 0;
    if (strncmp(scope, name, n) != 0 || (scope[n] && scope[n] != '.' && n)) return false;
    for (const char *c = name; *c; c++) dots += *c == '.';
    return !scope[n] || (n && depth && dots + 1 == depth);
}

/* Each row by op or scope is the sum of its nodes' rows. */
static void expect_sums(const weft_profile *p, weft_profile_by by, int depth)
{
    size_t n_nodes, n;
    weft_profile_table *by_node = weft_profile_table_new(p, WEFT_PROFILE_BY_NODE, 0, NULL, NULL);
    weft_profile_table *table = weft_profile_table_new(p, by, depth, NULL, NULL);
    const weft_profile_row *nodes = weft_profile_table_rows(by_node, &n_nodes);
    const weft_profile_row *rows = weft_profile_table_rows(table, &n);
    CU_ASSERT_TRUE_FATAL(nodes && rows);
    for (size_t i = 0; i < n; i++) {
        double compute = 0, waiting = 0, flops = 0;
        size_t count = 0;
        for (size_t k = 0; k < n_nodes; k++) {
            if (by == WEFT_PROFILE_BY_OP ? strcmp(nodes[k].op, rows[i].name) != 0
                                         : !in_scope(nodes[k].scope, rows[i].name, depth))
                continue;
            compute += nodes[k].compute_seconds;
            waiting += nodes[k].waiting_seconds;
            flops += nodes[k].flops;
            count++;
        }
        CU_ASSERT_EQUAL(rows[i].nodes, count);
        CU_ASSERT_TRUE(near(rows[i].compute_seconds, compute));
        CU_ASSERT_TRUE(near(rows[i].waiting_seconds, waiting));
        CU_ASSERT_TRUE(near(rows[i].flops, flops));
    }
    weft_profile_table_free(by_node);
    weft_profile_table_free(table);
}

static void test_sums(void)
{
    for (int threads = 1; threads <= 3; threads++) {
        bench b = bench_open(threads);
        double begin = clock_seconds();
        const weft_profile *p = profiled_runs(&b, 0);
        double outside = clock_seconds() - begin;
        weft_profile_totals t = weft_profile_totals_of(p);
        weft_plan_stats stats = weft_plan_stats_of(b.plan);
        CU_ASSERT_EQUAL(t.runs, RUNS);
        CU_ASSERT_EQUAL(t.threads, threads);
        CU_ASSERT_TRUE(t.wall_seconds > 0 && t.wall_seconds <= outside);
        CU_ASSERT_TRUE(near(t.thread_seconds, threads * t.wall_seconds));
        CU_ASSERT_TRUE(
            near(t.compute_seconds + t.waiting_seconds + t.start_seconds, t.thread_seconds));
        CU_ASSERT_TRUE(t.compute_seconds > 0 && t.waiting_seconds >= 0 && t.start_seconds >= 0);
        CU_ASSERT_TRUE(near(t.flops, RUNS * stats.flops));
        CU_ASSERT_TRUE(near(t.bytes, RUNS * stats.bytes));
        size_t nodes = computing_nodes(weft_plan_graph(b.plan));
        for (int by = 0; by < 3; by++) {
            size_t n;
            weft_profile_table *table =
                weft_profile_table_new(p, (weft_profile_by)by, 0, NULL, NULL);
            const weft_profile_row *rows = weft_profile_table_rows(table, &n);
            CU_ASSERT_PTR_NOT_NULL_FATAL(rows);
            weft_profile_row sum = sum_rows(rows, n);
            CU_ASSERT_EQUAL(sum.nodes, nodes);
            CU_ASSERT_EQUAL(sum.calls, RUNS * nodes);
            CU_ASSERT_TRUE(near(sum.compute_seconds, t.compute_seconds));
            CU_ASSERT_TRUE(near(sum.waiting_seconds, t.waiting_seconds));
            CU_ASSERT_TRUE(near(sum.flops, t.flops));
            CU_ASSERT_TRUE(near(sum.bytes, t.bytes));
            CU_ASSERT_EQUAL(sum.roofline_seconds, 0);
            weft_profile_table_free(table);
        }
        bench_close(&b);
    }
}

/* Each node, op and scope has one row, and the texts are those of the graph. */
static void test_rows(void)
{
    bench b = bench_open(2);
    const weft_profile *p = profiled_runs(&b, 0);
    const weft_graph *g = weft_plan_graph(b.plan);
    const weft_peaks peaks = {1e9, 2e9};
    size_t n;
    weft_profile_table *table = weft_profile_table_new(p, WEFT_PROFILE_BY_NODE, 0, &peaks, NULL);
    const weft_profile_row *rows = weft_profile_table_rows(table, &n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(rows);
    uint8_t *seen = calloc(weft_graph_node_count(g), 1);
    for (size_t i = 0; i < n; i++) {
        weft_node_info node = weft_graph_node(g, rows[i].node);
        char shape[128];
        weft_value out = weft_value_from_id(g, node.first_out);
        CU_ASSERT_FALSE(seen[rows[i].node]++);
        CU_ASSERT_EQUAL(rows[i].calls, RUNS);
        CU_ASSERT_STRING_EQUAL(rows[i].op, node.op->name);
        CU_ASSERT_STRING_EQUAL(rows[i].scope, node.scope);
        CU_ASSERT_PTR_NOT_NULL(
            strstr(rows[i].shape, weft_shape_text(weft_shape_of(g, out), shape, sizeof shape)));
        CU_ASSERT_TRUE(
            near(rows[i].roofline_seconds, fmax(rows[i].flops / 1e9, rows[i].bytes / 2e9)));
        if (rows[i].node == weft_producer_of(g, weft_graph_find(g, "logits")))
            CU_ASSERT_STRING_EQUAL(rows[i].name, "logits");
    }
    free(seen);
    weft_profile_table_free(table);
    expect_sums(p, WEFT_PROFILE_BY_OP, 0);
    for (int depth = 0; depth < 4; depth++) expect_sums(p, WEFT_PROFILE_BY_SCOPE, depth);
    for (int by = WEFT_PROFILE_BY_OP; by <= WEFT_PROFILE_BY_SCOPE; by++) {
        table = weft_profile_table_new(p, (weft_profile_by)by, 2, NULL, NULL);
        rows = weft_profile_table_rows(table, &n);
        CU_ASSERT_PTR_NOT_NULL_FATAL(rows);
        size_t dots = 0, matmuls = 0, enc = 0;
        for (size_t i = 0; i < n; i++) {
            size_t here = 0;
            for (const char *c = rows[i].name; *c; c++) here += *c == '.';
            if (here > dots) dots = here;
            matmuls += !strcmp(rows[i].name, "matmul");
            enc += !strcmp(rows[i].name, "enc.0");
            for (size_t k = 0; k < i; k++) CU_ASSERT_STRING_NOT_EQUAL(rows[i].name, rows[k].name);
        }
        CU_ASSERT_EQUAL(dots, by == WEFT_PROFILE_BY_SCOPE);
        CU_ASSERT_EQUAL(matmuls, by == WEFT_PROFILE_BY_OP);
        CU_ASSERT_EQUAL(enc, by == WEFT_PROFILE_BY_SCOPE);
        weft_profile_table_free(table);
    }
    bench_close(&b);
}

/* ---- Results ---- */

static void test_profiled_bits(void)
{
    bench on = bench_open(2), off = bench_open(2);
    CU_ASSERT_EQUAL(weft_session_profile(on.session, true, NULL, NULL), WEFT_OK);
    for (int i = 0; i < 4; i++) {
        float a = 1, b = 2;
        /* The third run is without. */
        CU_ASSERT_EQUAL(weft_session_profile(on.session, i != 2, NULL, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_run(on.session, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_run(off.session, NULL), WEFT_OK);
        weft_session_fetch(on.session, on.loss, &a, sizeof a, NULL);
        weft_session_fetch(off.session, off.loss, &b, sizeof b, NULL);
        CU_ASSERT_EQUAL(memcmp(&a, &b, sizeof a), 0);
    }
    CU_ASSERT_TRUE(weft_params_count(on.params) > 10);
    for (size_t i = 0; i < weft_params_count(on.params); i++) {
        weft_tensor x, y;
        const char *name = weft_params_name(on.params, i);
        CU_ASSERT_FATAL(weft_params_find(on.params, name, &x) &&
                        weft_params_find(off.params, name, &y));
        CU_ASSERT_TRUE(test_same_tensors("x", &x, &y));
    }
    CU_ASSERT_PTR_NULL(weft_profile_of(off.session));
    bench_close(&on);
    bench_close(&off);
}

/* Switching off retains what was measured; switching on starts from zero. */
static void test_switching(void)
{
    bench b = bench_open(2);
    CU_ASSERT_EQUAL(weft_profile_totals_of(profiled_runs(&b, 3)).runs, RUNS);
    CU_ASSERT_EQUAL(weft_session_profile(b.session, false, NULL, NULL), WEFT_OK);
    weft_session_run(b.session, NULL);
    CU_ASSERT_EQUAL(weft_profile_totals_of(weft_profile_of(b.session)).runs, RUNS);
    CU_ASSERT_EQUAL(weft_session_profile(b.session, true, NULL, NULL), WEFT_OK);
    weft_profile_totals t = weft_profile_totals_of(weft_profile_of(b.session));
    CU_ASSERT_TRUE(t.runs == 0 && t.thread_seconds == 0 && t.compute_seconds == 0);
    weft_session_run(b.session, NULL);
    CU_ASSERT_EQUAL(weft_profile_totals_of(weft_profile_of(b.session)).runs, 1);
    bench_close(&b);
}

static void test_compute(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(8));
    weft_input_default(g, x, 1);
    /* Two nodes that run side by side, and one after them. */
    weft_value fast = weft_abs(g, x), y = weft_apply(g, &slow, NULL, &x, 1, NULL);
    weft_value z = weft_add(g, fast, y);
    weft_plan *plan = weft_plan_new(g, &z, 1, NULL, NULL);
    weft_session *s = weft_session_new(plan, NULL, &(weft_session_options){.threads = 2}, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_profile(s, true, NULL, NULL), WEFT_OK);
    for (int i = 0; i < 2; i++) CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    const weft_profile *p = weft_profile_of(s);
    size_t n;
    weft_profile_table *table = weft_profile_table_new(p, WEFT_PROFILE_BY_OP, 0, NULL, NULL);
    const weft_profile_row *rows = weft_profile_table_rows(table, &n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(rows);
    CU_ASSERT_EQUAL_FATAL(n, 3);
    /* The longest tiles of an interval come first. */
    CU_ASSERT_STRING_EQUAL(rows[0].name, slow.name);
    CU_ASSERT_STRING_EQUAL(rows[1].name, "abs");
    CU_ASSERT_STRING_EQUAL(rows[2].name, "add");
    /* The op reads the clock as seconds in f64: 2^-53 of a year's uptime is 4e-9, for two readings
     * in each of two runs. */
    const double clock_error = 1e-7;
    CU_ASSERT_TRUE(rows[0].compute_seconds >= 2 * SLOW_SECONDS - clock_error);
    /* Two threads, whatever the other one did in that time. */
    CU_ASSERT_TRUE(weft_profile_totals_of(p).thread_seconds >= 4 * SLOW_SECONDS - 2 * clock_error);
    weft_profile_table_free(table);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* A run that fails ends at the next barrier: the intervals after it have no calls. */
static void test_failed_run(void)
{
    weft_graph *g = weft_graph_new();
    weft_value ids = weft_input(g, "ids", WEFT_I32, WEFT_SHAPE(2000));
    weft_value table = weft_fill(g, WEFT_F32, WEFT_SHAPE(7, 64), 1);
    weft_value rows_of = weft_embedding(g, table, ids, -1), last = weft_exp(g, rows_of);
    weft_plan *plan = weft_plan_new(g, &last, 1, NULL, NULL);
    weft_session *s = weft_session_new(plan, NULL, &(weft_session_options){.threads = 2}, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_profile(s, true, NULL, NULL), WEFT_OK);
    static int32_t data[2000];
    for (int i = 0; i < 3; i++) {
        data[1234] = i == 1 ? 7 : 6;
        weft_session_feed(s, ids, data, sizeof data, NULL);
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), i == 1 ? WEFT_BAD_INDEX : WEFT_OK);
    }
    weft_profile_totals t = weft_profile_totals_of(weft_profile_of(s));
    CU_ASSERT_EQUAL(t.runs, 3);
    CU_ASSERT_TRUE(near(t.compute_seconds + t.waiting_seconds + t.start_seconds, t.thread_seconds));
    size_t n;
    weft_profile_table *summed =
        weft_profile_table_new(weft_profile_of(s), WEFT_PROFILE_BY_OP, 0, NULL, NULL);
    const weft_profile_row *rows = weft_profile_table_rows(summed, &n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(rows);
    for (size_t i = 0; i < n; i++)
        CU_ASSERT_EQUAL(rows[i].calls, strcmp(rows[i].name, "exp") == 0 ? 2 : 3);
    weft_profile_table_free(summed);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* ---- Misuse ---- */

static void test_misuse(void)
{
    bench b = bench_open(2);
    weft_error error = {0};
    size_t n = 7;
    const weft_profile_options too_many = {.trace_runs = SIZE_MAX / 4};
    CU_ASSERT_EQUAL(weft_session_profile(NULL, true, NULL, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NULL(weft_profile_of(NULL));
    CU_ASSERT_PTR_NULL(weft_profile_of(b.session));
    CU_ASSERT_EQUAL(weft_session_profile(b.session, false, NULL, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_profile(b.session, true, &too_many, &error), WEFT_NO_MEMORY);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "no memory"));
    CU_ASSERT_PTR_NULL(weft_profile_of(b.session));
    CU_ASSERT_EQUAL(weft_profile_totals_of(NULL).runs, 0);
    CU_ASSERT_PTR_NULL(weft_profile_table_new(NULL, WEFT_PROFILE_BY_OP, 0, NULL, &error));
    CU_ASSERT_TRUE(error.status == WEFT_BAD_ARGUMENT && error.message[0]);
    CU_ASSERT_PTR_NULL(weft_profile_table_rows(NULL, &n));
    CU_ASSERT_EQUAL(n, 0);
    weft_profile_table_free(NULL);

    CU_ASSERT_EQUAL(weft_session_profile(b.session, true, NULL, NULL), WEFT_OK);
    const weft_profile *p = weft_profile_of(b.session);
    const weft_peaks none = {0, 1};
    CU_ASSERT_PTR_NULL(weft_profile_table_new(p, (weft_profile_by)3, 0, NULL, NULL));
    CU_ASSERT_PTR_NULL(weft_profile_table_new(p, WEFT_PROFILE_BY_SCOPE, -1, NULL, NULL));
    CU_ASSERT_PTR_NULL(weft_profile_table_new(p, WEFT_PROFILE_BY_OP, 0, &none, NULL));
    /* Before any run all rows are zero. */
    weft_profile_table *table = weft_profile_table_new(p, WEFT_PROFILE_BY_NODE, 0, NULL, NULL);
    const weft_profile_row *rows = weft_profile_table_rows(table, &n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(rows);
    CU_ASSERT_TRUE(n > 0 && rows[0].calls == 0 && rows[0].compute_seconds == 0);
    weft_profile_table_free(table);
    bench_close(&b);
}

/* ---- Peaks ---- */

static void test_peaks(void)
{
    weft_peaks peaks = {-1, -1};
    weft_error error = {0};
    double rate = -1;
    CU_ASSERT_EQUAL(weft_measure_gemm(WEFT_I32, 1, &rate, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_measure_gemm(WEFT_F32, -1, &rate, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_measure_gemm(WEFT_F32, 1, NULL, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_measure_triad(-1, &rate, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_measure_triad(1, NULL, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_measure_peaks(WEFT_F32, 1, NULL, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_measure_peaks(WEFT_BOOL, 1, &peaks, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_TRUE(rate == -1 && peaks.flops_per_second == -1);
    memset(&error, 0, sizeof error);
    CU_ASSERT_EQUAL(weft_measure_peaks(WEFT_F64, 2, &peaks, &error), WEFT_OK);
    CU_ASSERT_TRUE(peaks.flops_per_second > 0 && peaks.bytes_per_second > 0);
}

void profile_tests(void)
{
    CU_pSuite suite = CU_add_suite("profile", NULL, NULL);
    CU_add_test(suite, "sums", test_sums);
    CU_add_test(suite, "rows", test_rows);
    CU_add_test(suite, "same bits", test_profiled_bits);
    CU_add_test(suite, "switching", test_switching);
    CU_add_test(suite, "compute", test_compute);
    CU_add_test(suite, "failed run", test_failed_run);
    CU_add_test(suite, "misuse", test_misuse);
    CU_add_test(suite, "peaks", test_peaks);
}
