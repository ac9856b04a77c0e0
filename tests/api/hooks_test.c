/* What a program may replace or see: where memory comes from, what weft decides on its own, and
 * whose threads run a session. */
#include "lent.h"
#include "tests.h"

#include "base/file.h"
#include "base/log.h"
#include "ir/isa.h"
#include "run/pace.h"
#include "run/team.h"

#include <weft/measure.h>

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Allocators ---- */

/* y = dropout(x w) w, of parameters that need more than one block of a store. */
typedef struct network {
    weft_graph *g;
    weft_value x, y;
    weft_plan *plan;
} network;

/* Several products, so that there is work for several threads whatever the tiles of one are. */
enum { PRODUCTS = 4, ROWS = 100, COLUMNS = 100, SIZE = PRODUCTS * ROWS * COLUMNS };

static network network_new(void)
{
    network n = {.g = weft_graph_new()};
    const weft_init scale = {WEFT_INIT_NORMAL, 0, 0.1};
    const weft_shape squares = WEFT_SHAPE(PRODUCTS, COLUMNS, COLUMNS);
    n.x = weft_input(n.g, "x", WEFT_F32, WEFT_SHAPE(PRODUCTS, ROWS, COLUMNS));
    weft_value w = weft_param(n.g, "w", WEFT_F32, squares, scale);
    weft_value v = weft_param(n.g, "v", WEFT_F32, squares, scale);
    n.y = weft_matmul(n.g, weft_dropout(n.g, weft_matmul(n.g, n.x, w), 0.5), v);
    n.plan = weft_plan_new(n.g, &n.y, 1, &(weft_plan_options){.verify = true}, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(n.plan);
    return n;
}

static void network_free(network *n)
{
    weft_plan_free(n->plan);
    weft_graph_free(n->g);
}

static weft_status run(const network *n, weft_session *s, float *y)
{
    const size_t bytes = SIZE * sizeof(float);
    float *x = malloc(bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(x);
    for (int i = 0; i < SIZE; i++) x[i] = (float)(i % 17) - 8;
    weft_status status = weft_session_feed(s, n->x, x, bytes, NULL);
    free(x);
    if (status == WEFT_OK) status = weft_session_run(s, NULL);
    return status == WEFT_OK ? weft_session_fetch(s, n->y, y, bytes, NULL) : status;
}

/* Makes a store and a session, runs, and frees both. */
static weft_status run_with(const network *n, const weft_allocator *from, float *y,
                            weft_error *error)
{
    const weft_session_options so = {.threads = 2, .seed = 7, .allocator = from};
    const weft_params_options po = {.allocator = from};
    weft_params *store = weft_params_new_with(&po, error);
    weft_status status = store ? weft_params_init(store, n->g, 1, error) : error->status;
    weft_session *s = status == WEFT_OK ? weft_session_new(n->plan, store, &so, error) : NULL;
    if (status == WEFT_OK) status = s ? run(n, s, y) : error->status;
    weft_session_free(s);
    weft_params_free(store);
    return status;
}

static void test_counting(void)
{
    static float want[SIZE], got[SIZE];
    weft_error error = WEFT_NO_ERROR;
    lent_counter c = {0};
    const weft_allocator from = lent_allocator(&c), none = {.context = &c};
    network n = network_new();
    CU_ASSERT_EQUAL(run_with(&n, NULL, want, &error), WEFT_OK);
    CU_ASSERT_EQUAL(run_with(&n, &from, got, &error), WEFT_OK);
    CU_ASSERT_EQUAL(memcmp(want, got, sizeof want), 0);
    CU_ASSERT_TRUE(c.calls >= 4); /* two parameters, the arena and the workspace */
    CU_ASSERT_TRUE(c.live == 0 && c.live_bytes == 0);
    /* Zeros are weft's own allocator. */
    c.calls = 0;
    CU_ASSERT_EQUAL(run_with(&n, &none, got, &error), WEFT_OK);
    CU_ASSERT_EQUAL(c.calls, 0);
    network_free(&n);
}

static weft_status run_network(const weft_allocator *from, weft_error *error)
{
    static float y[SIZE];
    network n = network_new();
    const weft_status status = run_with(&n, from, y, error);
    network_free(&n);
    return status;
}

static void test_failing(void)
{
    test_each_lent_fails(run_network, 4);
}

static void test_misaligned(void)
{
    static float y[SIZE];
    weft_error error = WEFT_NO_ERROR;
    lent_counter c = {.misaligned = true};
    const weft_allocator from = lent_allocator(&c);
    const weft_session_options so = {.allocator = &from};
    network n = network_new();
    CU_ASSERT_EQUAL(run_with(&n, &from, y, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.where, "w");
    CU_ASSERT_STRING_EQUAL(error.message, "the allocator's memory is not 64-byte aligned");
    weft_params *store = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_init(store, n.g, 1, NULL), WEFT_OK);
    CU_ASSERT_PTR_NULL(weft_session_new(n.plan, store, &so, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.message,
                           "the allocator's memory for an arena is not 64-byte aligned");
    CU_ASSERT_TRUE(c.calls == 2 && c.live == 0 && c.live_bytes == 0);
    weft_params_free(store);
    network_free(&n);
}

static void test_half_allocator(void)
{
    const weft_allocator from = lent_allocator(NULL);
    weft_error error = WEFT_NO_ERROR;
    const weft_allocator halves[] = {{.allocate = from.allocate}, {.release = from.release}};
    network n = network_new();
    for (int i = 0; i < 2; i++) {
        const weft_session_options so = {.allocator = &halves[i]};
        const weft_params_options po = {.allocator = &halves[i]};
        CU_ASSERT_PTR_NULL(weft_params_new_with(&po, &error));
        CU_ASSERT_STRING_EQUAL(error.message, "the allocator needs both allocate and release");
        CU_ASSERT_PTR_NULL(weft_session_new(n.plan, NULL, &so, &error));
        CU_ASSERT_STRING_EQUAL(error.message, "the allocator needs both allocate and release");
        CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    }
    network_free(&n);
}

/* A file that replaces tensors, and parts that replace a store, use its allocator too. */
static void test_store(void)
{
    char path[64];
    weft_tensor t;
    lent_counter c = {0};
    const weft_allocator from = lent_allocator(&c);
    const weft_params_options po = {.allocator = &from};
    snprintf(path, sizeof path, "/tmp/weft-hooks-%ld.safetensors", (long)getpid());
    network n = network_new();
    weft_params *store = weft_params_new_with(&po, NULL);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(store, n.g, 1, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_save(store, path, NULL, NULL), WEFT_OK);
    const long before = c.live;
    CU_ASSERT_EQUAL(weft_params_load(store, path, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(c.live, before);
    c.fail_at = c.calls + 1;
    CU_ASSERT_EQUAL(weft_params_load(store, path, NULL), WEFT_NO_MEMORY);
    CU_ASSERT_EQUAL(c.live, before);
    CU_ASSERT_EQUAL(weft_params_keep_parts(store, n.g, NULL, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(c.live, before);
    CU_ASSERT_TRUE(weft_params_find(store, "w", &t) && (uintptr_t)t.data % 64 == 0);
    weft_params_free(store);
    CU_ASSERT_TRUE(c.live == 0 && c.live_bytes == 0);
    unlink(path);
    network_free(&n);
}

/* ---- Reports ---- */

static void expect_log(const test_log *log, const char *text)
{
    if (strcmp(log->text, text) != 0) printf("\n    expected \"%s\", got \"%s\"", text, log->text);
    CU_ASSERT_STRING_EQUAL(log->text, text);
}

/* A program that sets no function, or removes it, hears nothing. */
static void test_log_function(void)
{
    static test_log log, other;
    test_log_to(&log);
    weft__log(WEFT_LOG_WARNING, "a\nb", "%d\n%s", 3, "x\x1b");
    test_log_to(&other);
    weft__log(WEFT_LOG_INFO, "c", "%s", "second");
    test_log_to(NULL);
    weft__log(WEFT_LOG_WARNING, "d", "third");
    expect_log(&log, "warning: a\\nb: 3\\nx\\x1b\n");
    expect_log(&other, "info: c: second\n");
}

/* What is reported once waits for a function. */
static void test_log_once(void)
{
    static test_log log;
    atomic_bool done = false;
    CU_ASSERT_FALSE(weft__log_first(&done));
    test_log_to(&log);
    CU_ASSERT_TRUE(weft__log_first(&done));
    CU_ASSERT_FALSE(weft__log_first(&done));
    test_log_to(NULL);
}

/* Calls weft, which would report, and removes itself. */
static void call_weft(void *context, weft_log_level level, const char *where, const char *text)
{
    int *calls = context;
    (void)level, (void)where, (void)text;
    ++*calls;
    weft__log(WEFT_LOG_INFO, "inner", "is not reported");
    weft_log_set(NULL, NULL);
}

static void test_log_inside(void)
{
    int calls = 0;
    weft_log_set(call_weft, &calls);
    weft__log(WEFT_LOG_INFO, "outer", "first");
    weft__log(WEFT_LOG_INFO, "outer", "second");
    CU_ASSERT_EQUAL(calls, 1);
}

/* Lines of several threads do not mix. */
static void test_log_threads(void)
{
    enum { LINES = 64 };
    static test_log log;
    test_log_to(&log);
#pragma omp parallel for num_threads(4)
    for (int i = 0; i < LINES; i++) weft__log(WEFT_LOG_INFO, "thread", "a line");
    test_log_to(NULL);
    CU_ASSERT_EQUAL(log.n, LINES);
    CU_ASSERT_EQUAL(strlen(log.text), LINES * strlen("info: thread: a line\n"));
}

/* ---- Threads ---- */

/* A session of one node without work for threads. */
static void small_session(int threads)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2));
    weft_value y = weft_square(g, x);
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, NULL);
    weft_session *s =
        weft_session_new(plan, NULL, &(weft_session_options){.threads = threads}, NULL);
    CU_ASSERT_PTR_NOT_NULL(s);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_log_work(void)
{
    static test_log log;
    test_log_to(&log);
    small_session(1);
    small_session(0);
    if (!getenv("WEFT_SKIP")) CU_ASSERT_EQUAL(log.n, 0);
    small_session(3);
    test_log_to(NULL);
    CU_ASSERT_PTR_NOT_NULL(strstr(
        log.text, "info: weft_session_new: 1 of 3 threads: the plan has no work for more\n"));
}

static void test_log_nested(void)
{
    static test_log log;
    int team = 0;
    test_log_to(&log);
    const int levels = omp_get_max_active_levels();
    omp_set_max_active_levels(1);
#pragma omp parallel num_threads(2)
    if (omp_get_thread_num() == 1)
        for (int i = 0; i < 2; i++) weft__team(3, &team, NULL);
    omp_set_max_active_levels(levels);
    test_log_to(NULL);
    CU_ASSERT_EQUAL(team, 1);
    expect_log(&log, "warning: threads: 1 of 3 threads: OpenMP allows no nested region "
                     "here (OMP_MAX_ACTIVE_LEVELS)\n");
}

/* A child whose thread is left without its pool, reported once. */
static int log_in_child(void)
{
    static test_log log;
    int team;
    alarm(20);
    test_log_to(&log);
    for (int i = 0; i < 2; i++) weft__team(2, &team, NULL);
    const char *want = "warning: threads: 1 of 2 threads: a fork left this thread without its "
                       "pool\n";
    return team == 1 && !strcmp(log.text, want) ? 0 : 1;
}

static void test_log_fork(void)
{
    int team, end = -1;
    CU_ASSERT_EQUAL_FATAL(weft__team(2, &team, NULL), WEFT_OK);
    if (team < 2) {
        test_skip("hooks: a fork", "OpenMP allows one thread");
        return;
    }
    const pid_t child = fork();
    if (!child) test_exit(log_in_child());
    CU_ASSERT_TRUE(child > 0 && waitpid(child, &end, 0) == child);
    CU_ASSERT_TRUE(WIFEXITED(end) && WEXITSTATUS(end) == 0);
}

/* The first trial that was faster is reported, for each session. */
static void test_log_pace(void)
{
    static test_log log;
    pace p = {0};
    test_log_to(&log);
    for (int i = 0; i < 3; i++) {
        weft__pace_record(&p, false, 1000, 900);
        CU_ASSERT_TRUE(p.alone > 0);
        while (p.alone) weft__pace_record(&p, true, 500, 0);
    }
    test_log_to(NULL);
    expect_log(
        &log,
        "info: weft_session_run: the machine is busy: runs use one thread while that is faster\n");
}

/* ---- The environment ---- */

static void test_log_skip(void)
{
    static test_log log;
    const char *was = getenv("WEFT_SKIP");
    char *copy = was ? strdup(was) : NULL;
    setenv("WEFT_SKIP", "cse,fold", 1);
    test_log_to(&log);
    small_session(1);
    test_log_to(NULL);
    if (copy)
        setenv("WEFT_SKIP", copy, 1);
    else
        unsetenv("WEFT_SKIP");
    free(copy);
    expect_log(&log, "info: weft_plan_new: WEFT_SKIP is set: these passes do not run: cse,fold\n");
}

/* An instruction set that the processor, or the build, lacks. */
static void test_log_isa(void)
{
    static test_log log;
    const char *was = getenv("WEFT_ISA");
    char *copy = was ? strdup(was) : NULL;
    test_log_to(&log);
    setenv("WEFT_ISA", "v4_bf16", 1);
    const weft_isa best = weft__isa_best();
    weft__isa_best();
    if (copy)
        setenv("WEFT_ISA", copy, 1);
    else
        unsetenv("WEFT_ISA");
    test_log_to(NULL);
    free(copy);
    CU_ASSERT_EQUAL(log.n, best < WEFT_ISA_V4_BF16);
    if (log.n) CU_ASSERT_PTR_NOT_NULL(strstr(log.text, "lacks v4_bf16: kernels are those of "));
}

/* With a library that has no kernel for a dtype: tests/ops/backends_test.sh. */
static void test_log_gemm(void)
{
    static test_log log;
    weft_gemm_backend backend = WEFT_GEMM_WEFT;
    const char *wanted = getenv("WEFT_GEMM");
    const bool openblas = wanted && !strcmp(wanted, "openblas");
    const bool onednn = wanted && !strcmp(wanted, "onednn");
    const weft_dtype dtype = openblas ? WEFT_BF16 : WEFT_F64;
    test_log_to(&log);
    for (int i = 0; i < 2; i++) weft_gemm_chosen(dtype, &backend, NULL);
    test_log_to(NULL);
    CU_ASSERT_EQUAL(backend, WEFT_GEMM_WEFT);
    expect_log(&log, openblas ? "info: WEFT_GEMM: openblas does not multiply bf16 here: weft's "
                                "kernels do\n"
                     : onednn ? "info: WEFT_GEMM: onednn does not multiply f64 here: weft's "
                                "kernels do\n"
                              : "");
}

/* ---- Files ---- */

/* A folder that may be written but not read cannot be synced. Root may read everything. */
static int write_in_child(void)
{
    static test_log log;
    char folder[] = "/tmp/weft-hooks-XXXXXX", path[64];
    if (geteuid() == 0 && setuid(65534) != 0) return 1;
    if (!mkdtemp(folder) || chmod(folder, 0300) != 0) return 2;
    snprintf(path, sizeof path, "%s/file", folder);
    test_log_to(&log);
    const bool written = weft__file_replace(path, "text", 4);
    test_log_to(NULL);
    unlink(path);
    rmdir(folder);
    return written && log.n == 1 && strstr(log.text, "its folder cannot be synced") ? 0 : 3;
}

static void test_log_sync(void)
{
    int end = -1;
    const pid_t child = fork();
    if (!child) test_exit(write_in_child());
    CU_ASSERT_TRUE(child > 0 && waitpid(child, &end, 0) == child);
    CU_ASSERT_TRUE(WIFEXITED(end));
    CU_ASSERT_EQUAL(WEXITSTATUS(end), 0);
}

/* ---- Pools of threads ---- */

/* Runs the network three times; the dropout of each run differs. */
static weft_status run_in(const network *n, int threads, const weft_thread_pool *pool, bool profile,
                          float *y)
{
    const weft_session_options o = {.threads = threads, .seed = 7, .pool = pool, .poison = true};
    weft_params *store = weft_params_new();
    CU_ASSERT_EQUAL_FATAL(weft_params_init(store, n->g, 1, NULL), WEFT_OK);
    weft_session *s = weft_session_new(n->plan, store, &o, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    if (profile) weft_session_profile(s, true, &(weft_profile_options){2}, NULL);
    weft_status status = WEFT_OK;
    for (int i = 0; i < 3 && status == WEFT_OK; i++) status = run(n, s, y + i * SIZE);
    if (profile) {
        const weft_profile_totals t = weft_profile_totals_of(weft_profile_of(s));
        CU_ASSERT_EQUAL(t.threads, threads);
        CU_ASSERT_DOUBLE_EQUAL(t.compute_seconds + t.waiting_seconds + t.start_seconds,
                               t.thread_seconds, 1e-9 * t.thread_seconds + 1e-8);
    }
    weft_session_free(s);
    weft_params_free(store);
    return status;
}

static float pool_want[3 * SIZE], pool_got[3 * SIZE];

/* The bits of OpenMP's threads, at any number of both. With fewer workers than calls, the first
 * calls return before the last begin. */
static void test_pool(void)
{
    network n = network_new();
    for (int threads = 1; threads <= 3; threads++) {
        CU_ASSERT_EQUAL(run_in(&n, threads, NULL, false, pool_want), WEFT_OK);
        for (int count = 1; count <= LENT_WORKERS; count++)
            for (int profile = 0; profile < 2; profile++) {
                lent_workers w;
                lent_workers_begin(&w, count);
                const weft_thread_pool pool = lent_pool(&w);
                memset(pool_got, 0, sizeof pool_got);
                CU_ASSERT_EQUAL(run_in(&n, threads, &pool, profile, pool_got), WEFT_OK);
                CU_ASSERT_EQUAL(memcmp(pool_want, pool_got, sizeof pool_want), 0);
                /* A profile shows the team; else a run may be tried on one thread. */
                CU_ASSERT_TRUE(threads == 1 ? w.runs == 0 : profile ? w.runs == 3 : w.runs >= 1);
                lent_workers_end(&w);
            }
    }
    network_free(&n);
}

/* Sessions run on one pool from inside a region of the program, whose threads have numbers. */
static void test_pool_nested(void)
{
    static float got[2][3 * SIZE];
    weft_status status[2];
    network n = network_new();
    CU_ASSERT_EQUAL(run_in(&n, 2, NULL, false, pool_want), WEFT_OK);
#pragma omp parallel for num_threads(2)
    for (int i = 0; i < 2; i++) {
        lent_workers w;
        lent_workers_begin(&w, 2);
        const weft_thread_pool pool = lent_pool(&w);
        status[i] = run_in(&n, 2, &pool, false, got[i]);
        lent_workers_end(&w);
    }
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(status[i], WEFT_OK);
        CU_ASSERT_EQUAL(memcmp(pool_want, got[i], sizeof got[i]), 0);
    }
    network_free(&n);
}

/* Calls that a pool makes: the given ones, one after another. */
typedef struct calls {
    int n;
    int index[4];
} calls;

static void run_calls(void *context, int n, void (*function)(void *argument, int index),
                      void *argument)
{
    const calls *c = context;
    (void)n;
    for (int i = 0; i < c->n; i++) function(argument, c->index[i]);
}

/* None, some, or all in another order: the caller does the rest, and the bits are the same. */
static void test_pool_orders(void)
{
    static test_log log;
    calls orders[] = {{3, {0, 1, 2}}, {3, {2, 1, 0}}, {0, {0}}, {1, {1}}, {2, {2, 0}}};
    network n = network_new();
    CU_ASSERT_EQUAL(run_in(&n, 3, NULL, false, pool_want), WEFT_OK);
    test_log_to(&log);
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        for (int profile = 0; profile < 2; profile++) {
            const weft_thread_pool pool = {run_calls, &orders[i]};
            CU_ASSERT_EQUAL(run_in(&n, 3, &pool, profile, pool_got), WEFT_OK);
            CU_ASSERT_EQUAL(memcmp(pool_want, pool_got, sizeof pool_want), 0);
        }
    test_log_to(NULL);
    CU_ASSERT_PTR_NOT_NULL(strstr(log.text, "weft_thread_pool: the pool made 0 of 3 calls"));
    network_free(&n);
}

static void test_pool_misused(void)
{
    calls wrong[] = {{3, {0, 1, 1}}, {2, {0, 3}}, {2, {0, -1}}};
    network n = network_new();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const weft_thread_pool pool = {run_calls, &wrong[i]};
        CU_ASSERT_EQUAL(run_in(&n, 3, &pool, false, pool_got), WEFT_BAD_ARGUMENT);
    }
    network_free(&n);
}

/* A pool without a function is none. */
static void test_no_pool(void)
{
    const weft_thread_pool none = {NULL, NULL};
    network n = network_new();
    CU_ASSERT_EQUAL(run_in(&n, 2, &none, false, pool_got), WEFT_OK);
    network_free(&n);
}

void hooks_tests(void)
{
    CU_pSuite suite = CU_add_suite("hooks", NULL, NULL);
    CU_add_test(suite, "an allocator that counts", test_counting);
    CU_add_test(suite, "an allocator that fails", test_failing);
    CU_add_test(suite, "an allocator without alignment", test_misaligned);
    CU_add_test(suite, "half an allocator", test_half_allocator);
    CU_add_test(suite, "an allocator of a store's changes", test_store);
    CU_add_test(suite, "a pool of threads", test_pool);
    CU_add_test(suite, "pools inside a region", test_pool_nested);
    CU_add_test(suite, "calls of a pool in any order", test_pool_orders);
    CU_add_test(suite, "wrong calls of a pool", test_pool_misused);
    CU_add_test(suite, "a pool of nothing", test_no_pool);
    CU_add_test(suite, "reports", test_log_function);
    CU_add_test(suite, "reports that are made once", test_log_once);
    CU_add_test(suite, "reports from inside a report", test_log_inside);
    CU_add_test(suite, "reports of several threads", test_log_threads);
    CU_add_test(suite, "reports: no work for more threads", test_log_work);
    CU_add_test(suite, "reports: a region inside a region", test_log_nested);
    CU_add_test(suite, "reports: a fork", test_log_fork);
    CU_add_test(suite, "reports: a busy machine", test_log_pace);
    CU_add_test(suite, "reports: passes that are skipped", test_log_skip);
    CU_add_test(suite, "reports: an instruction set", test_log_isa);
    CU_add_test(suite, "reports: a library's products", test_log_gemm);
    CU_add_test(suite, "reports: a folder that cannot be synced", test_log_sync);
}
