/* Profiles as files: the trace and the picture. */
#include "profile_bench.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

/* ---- The trace ---- */

static cJSON *trace_of(const weft_profile *p)
{
    char *text = NULL;
    size_t bytes = 0;
    weft_error error = {0};
    FILE *file = open_memstream(&text, &bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(weft_profile_write_trace(p, file, &error), WEFT_OK);
    fclose(file);
    cJSON *json = cJSON_Parse(text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(json);
    free(text);
    return json;
}

static double number(const cJSON *item, const char *name)
{
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(item, name);
    CU_ASSERT_TRUE(cJSON_IsNumber(found));
    return cJSON_GetNumberValue(found);
}

static const char *text_of(const cJSON *item, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, name));
    return text ? text : "";
}

#define THREADS 3

/* The trace has the last two of five runs. In each, every phase of every step has at most one event
 * on each thread, and a thread's events do not overlap. */
static void test_trace(void)
{
    bench b = bench_open(THREADS);
    const weft_profile *p = profiled_runs(&b, 2);
    cJSON *json = trace_of(p);
    const cJSON *event;
    double end[THREADS] = {0};
    size_t named[THREADS] = {0}, processes = 0, events = 0, nodes = 0, later = 0;
    cJSON_ArrayForEach(event, cJSON_GetObjectItemCaseSensitive(json, "traceEvents"))
    {
        const cJSON *args = cJSON_GetObjectItemCaseSensitive(event, "args");
        if (!strcmp(text_of(event, "name"), "process_name")) {
            processes++;
            continue;
        }
        int thread = (int)number(event, "tid");
        CU_ASSERT_FATAL(thread >= 0 && thread < THREADS);
        if (!strcmp(text_of(event, "ph"), "M")) {
            CU_ASSERT_STRING_EQUAL(text_of(event, "name"), "thread_name");
            CU_ASSERT_TRUE(strlen(text_of(args, "name")) > 0);
            named[thread]++;
            continue;
        }
        CU_ASSERT_STRING_EQUAL(text_of(event, "ph"), "X");
        CU_ASSERT_PTR_NOT_NULL(weft_op_find(text_of(event, "name")));
        /* Times are whole nanoseconds, as microseconds with three decimals; a tenth of the last one
         * is room for the rounding of sums in f64. */
        CU_ASSERT_TRUE(number(event, "ts") >= end[thread] - 1e-4 && number(event, "dur") >= 0);
        end[thread] = number(event, "ts") + number(event, "dur");
        CU_ASSERT_TRUE(number(args, "run") == RUNS - 2 || number(args, "run") == RUNS - 1);
        later += number(args, "run") == RUNS - 1;
        events++;
    }
    CU_ASSERT_EQUAL(processes, 1);
    for (int t = 0; t < THREADS; t++) CU_ASSERT_EQUAL(named[t], 1);
    nodes = computing_nodes(weft_plan_graph(b.plan));
    /* The events of a fused group are its head's. */
    nodes -= weft_plan_stats_of(b.plan).fused;
    CU_ASSERT_TRUE(later >= nodes && later <= 2 * THREADS * nodes);
    CU_ASSERT_EQUAL(events, 2 * later); /* tiles go to the same threads in each run */
    cJSON_Delete(json);
    bench_close(&b);
}

/* A thread that ran no tile of a step has no event of it; names may hold any bytes. */
static void test_trace_escapes(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(8));
    weft_graph_push_scope(g, "a\"\\\t");
    weft_value y = weft_name(g, weft_apply(g, &slow, NULL, &x, 1, NULL), "\"}\x01");
    weft_graph_pop_scope(g);
    weft_value other = weft_input(g, "other", WEFT_F32, WEFT_SHAPE(8));
    weft_input_default(g, x, 1);
    weft_input_default(g, other, 1);
    const weft_value targets[2] = {y, weft_apply(g, &slow, NULL, &other, 1, NULL)};
    weft_plan *plan = weft_plan_new(g, targets, 2, NULL, NULL);
    weft_session *s =
        weft_session_new(plan, NULL, &(weft_session_options){.threads = THREADS}, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_session_profile(s, true, &(weft_profile_options){.trace_runs = 4}, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    /* There are two tiles, so two threads have work, or as many as there are processors. */
    int threads = weft_profile_totals_of(weft_profile_of(s)).threads;
    cJSON *json = trace_of(weft_profile_of(s));
    const cJSON *events = cJSON_GetObjectItemCaseSensitive(json, "traceEvents");
    CU_ASSERT_EQUAL_FATAL(cJSON_GetArraySize(events), 1 + threads + 2);
    const cJSON *event = cJSON_GetArrayItem(events, 1 + threads);
    CU_ASSERT_STRING_EQUAL(text_of(event, "name"), slow.name);
    CU_ASSERT_STRING_EQUAL(text_of(cJSON_GetObjectItemCaseSensitive(event, "args"), "node"),
                           "a\"\\\t.\"}\x01");
    cJSON_Delete(json);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* ---- The picture ---- */

static void test_picture(void)
{
    bench b = bench_open(2);
    const weft_profile *p = profiled_runs(&b, 0);
    char *text = NULL;
    size_t bytes = 0, marked = 0;
    FILE *file = open_memstream(&text, &bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(weft_profile_write_dot(p, file, NULL), WEFT_OK);
    fclose(file);
    double printed = 0, measured = 0;
    for (const char *at = text; (at = strstr(at, " ms, ")); at++) {
        const char *number = at;
        while (number > text && strchr("0123456789.e+-", number[-1])) number--;
        printed += strtod(number, NULL);
        marked++;
    }
    CU_ASSERT_EQUAL(marked, computing_nodes(weft_plan_graph(b.plan)));
    size_t n;
    weft_profile_table *table = weft_profile_table_new(p, WEFT_PROFILE_BY_NODE, 0, NULL, NULL);
    const weft_profile_row *rows = weft_profile_table_rows(table, &n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(rows);
    for (size_t i = 0; i < n; i++) measured += rows[i].compute_seconds + rows[i].waiting_seconds;
    weft_profile_table_free(table);
    const weft_profile_totals total = weft_profile_totals_of(p);
    measured *= 1e3 / ((double)total.runs * total.threads);
    /* Each is printed with four digits. */
    CU_ASSERT_DOUBLE_EQUAL(printed, measured, 1e-3 * measured);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "fillcolor=\"#ff4141\"")); /* the longest */
    free(text);
    bench_close(&b);
}

/* ---- Misuse ---- */

typedef struct event_list {
    const weft_graph *graph;
    size_t n;
    uint64_t first_ns, end_ns[THREADS];
} event_list;

static void take_event(event_list *l, const weft_profile_event *e)
{
    CU_ASSERT_FATAL(e->thread >= 0 && e->thread < THREADS);
    CU_ASSERT_TRUE(e->run == 3 || e->run == 4);
    CU_ASSERT_TRUE(e->node < weft_graph_node_count(l->graph));
    CU_ASSERT_TRUE(l->end_ns[e->thread] <= e->begin_ns && e->begin_ns <= e->end_ns);
    l->end_ns[e->thread] = e->end_ns;
    if (e->begin_ns < l->first_ns) l->first_ns = e->begin_ns;
    l->n++;
}

/* The events of the last two of five runs, which count from the first of them. */
static void test_events(void)
{
    bench b = bench_open(THREADS);
    const weft_profile *p = profiled_runs(&b, 2);
    event_list l = {.graph = weft_plan_graph(b.plan), .first_ns = UINT64_MAX};
    size_t n;
    weft_profile_events *events = weft_profile_events_new(p, NULL);
    const weft_profile_event *list = weft_profile_events_list(events, &n);
    CU_ASSERT_TRUE_FATAL(list && n > 0);
    for (size_t i = 0; i < n; i++) take_event(&l, &list[i]);
    CU_ASSERT_EQUAL(l.n, n);
    CU_ASSERT_EQUAL(l.first_ns, 0);
    weft_profile_events_free(events);
    CU_ASSERT_PTR_NULL(weft_profile_events_new(NULL, NULL));
    CU_ASSERT_PTR_NULL(weft_profile_events_list(NULL, &n));
    CU_ASSERT_EQUAL(n, 0);
    bench_close(&b);
}

static void test_misuse(void)
{
    bench b = bench_open(2);
    weft_error error = {0};
    CU_ASSERT_EQUAL(weft_profile_write_trace(NULL, stdout, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_profile_write_dot(NULL, stdout, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_session_profile(b.session, true, NULL, NULL), WEFT_OK);
    const weft_profile *p = weft_profile_of(b.session);
    CU_ASSERT_EQUAL(weft_profile_write_trace(p, stdout, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "trace_runs"));
    CU_ASSERT_EQUAL(weft_profile_write_dot(p, NULL, NULL), WEFT_BAD_ARGUMENT);
    bench_close(&b);
}

/* Before any run, the trace is empty and the picture has no times. */
static void test_full_disk(void)
{
    bench b = bench_open(2);
    weft_error error = {0};
    CU_ASSERT_EQUAL(weft_session_profile(b.session, true, &(weft_profile_options){1}, NULL),
                    WEFT_OK);
    const weft_profile *p = weft_profile_of(b.session);
    cJSON_Delete(trace_of(p));
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        CU_ASSERT_EQUAL(weft_profile_write_trace(p, full, &error), WEFT_IO);
        CU_ASSERT_EQUAL(weft_profile_write_dot(p, full, NULL), WEFT_IO);
        fclose(full);
    } else {
        test_skip("trace to a full disk", "there is no /dev/full");
    }
    bench_close(&b);
}

void profile_export_tests(void)
{
    CU_pSuite suite = CU_add_suite("profile_export", NULL, NULL);
    CU_add_test(suite, "trace", test_trace);
    CU_add_test(suite, "trace escapes", test_trace_escapes);
    CU_add_test(suite, "picture", test_picture);
    CU_add_test(suite, "events", test_events);
    CU_add_test(suite, "misuse", test_misuse);
    CU_add_test(suite, "a full disk", test_full_disk);
}
