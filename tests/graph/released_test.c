/* Sessions that give back the memory of states that only their first run reads: results stay the same,
 * what is gone is not read by mistake, and what other runs need is retained. */
#include "tests.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, N = 256 };

/* y = x tanh(w) tanh(u) + b with w and u [N, N], which only the first run reads; z = w, if it is a
 * target. */
typedef struct model {
    weft_graph *g;
    weft_value x, middle, y, w;
    weft_params *params;
    weft_plan *plan;
} model;

static model model_new(weft_params *params, bool state_is_target)
{
    const weft_plan_options fixed = {.verify = true, .fixed_states = true};
    weft_error error = WEFT_NO_ERROR;
    model m = {.g = weft_graph_new(), .params = params};
    const weft_init init = {WEFT_INIT_NORMAL, 0, 0.1};
    m.x = weft_input(m.g, "x", WEFT_F32, WEFT_SHAPE(ROWS, N));
    m.w = weft_param(m.g, "w", WEFT_F32, WEFT_SHAPE(N, N), init);
    const weft_value u = weft_param(m.g, "u", WEFT_F32, WEFT_SHAPE(N, N), init);
    const weft_value b = weft_param(m.g, "b", WEFT_F32, WEFT_SHAPE(N), init);
    m.middle = weft_matmul(m.g, m.x, weft_tanh(m.g, m.w));
    m.y = weft_add(m.g, weft_matmul(m.g, m.middle, weft_tanh(m.g, u)), b);
    const weft_value targets[] = {m.y, m.w};
    m.plan = weft_plan_new(m.g, targets, state_is_target ? 2 : 1, &fixed, &error);
    CU_ASSERT_EQUAL_FATAL(error.status, WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(m.params, m.g, 1, &error), WEFT_OK);
    return m;
}

static void model_free(model *m)
{
    weft_plan_free(m->plan);
    weft_params_free(m->params);
    weft_graph_free(m->g);
}

static void feed(weft_session *s, const model *m, int run)
{
    float x[ROWS * N];
    for (int i = 0; i < ROWS * N; i++) x[i] = (float)((i * 7 + run * 31) % 23 - 11) / 16;
    CU_ASSERT_EQUAL(weft_session_feed(s, m->x, x, sizeof x, NULL), WEFT_OK);
}

static void fetch(weft_session *s, const model *m, float *y)
{
    CU_ASSERT_EQUAL(weft_session_fetch(s, m->y, y, ROWS * N * sizeof *y, NULL), WEFT_OK);
}

/* What a session that releases nothing computes in one run. */
static void expect_results(int run, float *y)
{
    model m = model_new(weft_params_new(), false);
    weft_session *s = weft_session_new(m.plan, m.params, NULL, NULL);
    feed(s, &m, run);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    fetch(s, &m, y);
    weft_session_free(s);
    model_free(&m);
}

static void check_runs(weft_session *s, const model *m, int runs)
{
    float got[ROWS * N], expected[ROWS * N];
    for (int run = 0; run < runs; run++) {
        feed(s, m, run);
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        fetch(s, m, got);
        expect_results(run, expected);
        CU_ASSERT_EQUAL(memcmp(got, expected, sizeof got), 0);
    }
}

static weft_session *open_session(const model *m)
{
    const weft_session_options o = {.threads = 2, .release_states = true};
    weft_session *s = weft_session_new(m->plan, m->params, &o, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    return s;
}

static bool has(const model *m, const char *name)
{
    return weft_params_find(m->params, name, NULL);
}

static void test_released(void)
{
    model m = model_new(weft_params_new(), false);
    weft_tensor w;
    weft_session *s = open_session(&m);
    CU_ASSERT_TRUE_FATAL(weft_params_find(m.params, "w", &w));
    CU_ASSERT_EQUAL(weft_plan_check(m.plan, NULL), WEFT_OK);
    check_runs(s, &m, 3);
    CU_ASSERT_FALSE(has(&m, "w"));
    CU_ASSERT_FALSE(has(&m, "u"));
    CU_ASSERT_TRUE(has(&m, "b"));
#ifdef __linux__ /* the pages are gone: they read as zeros */
    CU_ASSERT_EQUAL(((const float *)w.data)[N * N / 2], 0);
#endif
    weft_session_free(s);
    model_free(&m);
}

static void expect_lost(weft_status status, const weft_error *error)
{
    CU_ASSERT_EQUAL(status, WEFT_NOT_FOUND);
    CU_ASSERT_PTR_NOT_NULL(strstr(error->message, "release_states"));
}

/* Everything that would read the numbers fails, and says why. */
static void test_lost(void)
{
    model m = model_new(weft_params_new(), false);
    weft_error error = WEFT_NO_ERROR;
    weft_params *other = weft_params_new();
    float numbers[N * N];
    weft_session *s = open_session(&m);
    check_runs(s, &m, 1);
    expect_lost(weft_params_save(m.params, "/nonexistent/released.safetensors", NULL, &error),
                &error);
    expect_lost(weft_params_add(m.params, "w", WEFT_F32, WEFT_SHAPE(N, N), NULL, &error), &error);
    expect_lost(weft_params_init(m.params, m.g, 1, &error), &error);
    expect_lost(weft_params_share(other, m.params, &error), &error);
    CU_ASSERT_EQUAL(weft_params_count(other), 0);
    CU_ASSERT_PTR_NULL(weft_session_new(m.plan, m.params, NULL, &error));
    expect_lost(error.status, &error);
    expect_lost(weft_session_find_nonfinite(s, &error), &error);
    CU_ASSERT_EQUAL(weft_session_fetch(s, m.w, numbers, sizeof numbers, &error), WEFT_NOT_FOUND);
    check_runs(s, &m, 2);
    weft_session_renew(s);
    expect_lost(weft_session_run(s, &error), &error);
    expect_lost(weft_session_run(s, &error), &error);
    weft_session_free(s);
    weft_params_free(other);
    model_free(&m);
}

/* Runs that stop in the middle, and fail before. */
static void test_stopped(void)
{
    model m = model_new(weft_params_new(), false);
    weft_session *s = open_session(&m);
    float got[ROWS * N], expected[ROWS * N];
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_NOT_FOUND); /* not fed */
    CU_ASSERT_TRUE(has(&m, "w"));
    for (int run = 0; run < 2; run++) {
        feed(s, &m, run);
        CU_ASSERT_EQUAL(weft_session_run_before(s, m.y, NULL), WEFT_OK);
        CU_ASSERT_FALSE(has(&m, "w"));
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        fetch(s, &m, got);
        expect_results(run, expected);
        CU_ASSERT_EQUAL(memcmp(got, expected, sizeof got), 0);
    }
    weft_session_free(s);
    model_free(&m);
}

/* A state that is a target, one of another store, and those of an allocator. */
static void *take(void *context, size_t bytes)
{
    (void)context;
    return weft_alloc(bytes);
}

static void give(void *context, void *memory, size_t bytes)
{
    (void)context;
    (void)bytes;
    weft_free(memory);
}

static void test_retained(void)
{
    model m = model_new(weft_params_new(), true);
    weft_session *s = open_session(&m);
    check_runs(s, &m, 2);
    CU_ASSERT_TRUE(has(&m, "w"));
    CU_ASSERT_FALSE(has(&m, "u"));
    weft_session_free(s);
    model_free(&m);

    model owner = model_new(weft_params_new(), false);
    weft_params *shared = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_share(shared, owner.params, NULL), WEFT_OK);
    m = model_new(shared, false);
    s = open_session(&m);
    check_runs(s, &m, 2);
    CU_ASSERT_TRUE(has(&m, "w") && has(&owner, "w"));
    weft_session_free(s);
    model_free(&m);
    model_free(&owner);

    const weft_allocator allocator = {take, give, NULL};
    m = model_new(weft_params_new_with(&(weft_params_options){&allocator}, NULL), false);
    s = open_session(&m);
    check_runs(s, &m, 2);
    CU_ASSERT_TRUE(has(&m, "w"));
    weft_session_free(s);
    model_free(&m);
}

static bool seen(void *context, const weft_watched *watched)
{
    (void)watched;
    ++*(int *)context;
    return true;
}

/* A session with a watch, and one in the program's arena. */
static void test_other_sessions(void)
{
    model m = model_new(weft_params_new(), false);
    weft_session *s = open_session(&m);
    int calls = 0;
    CU_ASSERT_EQUAL(weft_session_watch(s, m.middle, seen, &calls, NULL), WEFT_OK);
    check_runs(s, &m, 2);
    CU_ASSERT_EQUAL(calls, 2);
    CU_ASSERT_TRUE(has(&m, "w"));
    weft_session_free(s);

    const size_t bytes = weft_plan_stats_of(m.plan).arena_bytes;
    void *memory = weft_alloc(bytes);
    const weft_session_options o = {.arena = memory, .arena_bytes = bytes, .release_states = true};
    s = weft_session_new(m.plan, m.params, &o, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    check_runs(s, &m, 2);
    CU_ASSERT_TRUE(has(&m, "w"));
    weft_session_free(s);
    weft_free(memory);
    model_free(&m);
}

void released_tests(void)
{
    CU_pSuite suite = CU_add_suite("released", NULL, NULL);
    CU_add_test(suite, "the first run releases states", test_released);
    CU_add_test(suite, "what needs their numbers fails", test_lost);
    CU_add_test(suite, "runs that stop in the middle", test_stopped);
    CU_add_test(suite, "states that are retained", test_retained);
    CU_add_test(suite, "sessions that release nothing", test_other_sessions);
}
