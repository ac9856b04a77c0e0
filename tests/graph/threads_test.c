/* Threads: bounds of their number, children of a fork, parallel regions of the program, and stacks
 * of WEFT_STACK_BYTES. An alarm ends a child that hangs. */
#include "tests.h"

#include <weft/measure.h>

#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS 120 /* after which a child counts as hanging */
#define ROWS    1200
#define COLUMNS 200

/* Two matrix products, one of constants, with work for several threads. It asserts nothing, because
 * children use it. */
typedef struct rig {
    weft_graph *graph;
    weft_params *params;
    weft_plan *plan;
    weft_session *session;
    weft_value y;
    weft_error error;
} rig;

static float constants[64 * COLUMNS], expected[ROWS * COLUMNS];

static bool rig_open(rig *r, int threads)
{
    *r = (rig){.graph = weft_graph_new(), .params = weft_params_new()};
    weft_graph *g = r->graph;
    weft_value x = weft_param(g, "x", WEFT_F32, WEFT_SHAPE(ROWS, 64), WEFT_INIT_XAVIER);
    weft_value left = weft_constant(g, WEFT_F32, WEFT_SHAPE(64, 64), constants);
    weft_value right = weft_constant(g, WEFT_F32, WEFT_SHAPE(64, COLUMNS), constants);
    r->y = weft_softmax(g, weft_matmul(g, weft_gelu(g, x), weft_matmul(g, left, right)), -1);
    r->plan = weft_plan_new(g, &r->y, 1, NULL, &r->error);
    if (r->plan && weft_params_init(r->params, g, 1, &r->error) == WEFT_OK)
        r->session = weft_session_new(r->plan, r->params,
                                      &(weft_session_options){.threads = threads}, &r->error);
    return r->session && weft_session_profile(r->session, true, NULL, NULL) == WEFT_OK;
}

static void rig_close(rig *r)
{
    weft_session_free(r->session);
    weft_plan_free(r->plan);
    weft_params_free(r->params);
    weft_graph_free(r->graph);
}

static int rig_threads(const rig *r)
{
    return weft_profile_totals_of(weft_profile_of(r->session)).threads;
}

/* Runs it; true if it ran on that many threads and the results are those of one thread. */
static bool rig_runs(rig *r, int threads)
{
    weft_tensor t;
    if (weft_session_run(r->session, NULL) != WEFT_OK ||
        weft_session_tensor(r->session, r->y, &t, NULL) != WEFT_OK)
        return false;
    return rig_threads(r) == threads && !memcmp(expected, t.data, sizeof expected);
}

static int make_expected(void)
{
    rig r;
    for (size_t i = 0; i < 64 * COLUMNS; i++) constants[i] = 1 + (float)(i % 3);
    bool good = rig_open(&r, 1) && weft_session_run(r.session, NULL) == WEFT_OK &&
                weft_session_fetch(r.session, r.y, expected, sizeof expected, NULL) == WEFT_OK;
    rig_close(&r);
    return !good;
}

static bool new_rig_runs(int asked, int threads)
{
    rig r;
    bool good = rig_open(&r, asked) && rig_runs(&r, threads);
    rig_close(&r);
    return good;
}

/* ---- Bounds ---- */

static void test_bounds(void)
{
    int before = omp_get_max_threads(), processors = omp_get_num_procs();
    omp_set_num_threads(100000);
    CU_ASSERT_EQUAL(weft_default_threads(),
                    processors < WEFT_MAX_THREADS ? processors : WEFT_MAX_THREADS);
    CU_ASSERT_TRUE(new_rig_runs(0, weft_default_threads()));
    omp_set_num_threads(1);
    CU_ASSERT_EQUAL(weft_default_threads(), 1);
    omp_set_num_threads(before);

    rig r;
    CU_ASSERT_TRUE(rig_open(&r, 4) && rig_runs(&r, 4));
    size_t each = weft_plan_stats_of(r.plan).workspace_bytes;
    CU_ASSERT_EQUAL(weft_plan_workspace_bytes(r.plan, 4), 4 * each);
    /* There are only a few tiles, so there are no more threads. */
    CU_ASSERT_TRUE(weft_plan_workspace_bytes(r.plan, WEFT_MAX_THREADS) <
                   WEFT_MAX_THREADS / 2 * each);
    static const int wrong[] = {-1, WEFT_MAX_THREADS + 1, 2147483647};
    for (int i = 0; i < 3; i++) {
        double rate;
        weft_error error = {0};
        weft_session_options o = {.threads = wrong[i]};
        CU_ASSERT_PTR_NULL(weft_session_new(r.plan, r.params, &o, &error));
        CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "expected 0 (the default) to 1024"));
        CU_ASSERT_EQUAL(weft_measure_triad(wrong[i], &rate, NULL), WEFT_BAD_ARGUMENT);
        CU_ASSERT_EQUAL(weft_measure_gemm(WEFT_F32, wrong[i], &rate, NULL), WEFT_BAD_ARGUMENT);
    }
    rig_close(&r);
}

/* A session has as many threads as requested if there is work for them. */
#define MANY 1000000
static void test_many(void)
{
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(MANY));
    weft_value y = weft_exp(g, weft_broadcast_to(g, x, WEFT_SHAPE(4, MANY)));
    float *zeros = calloc(MANY, sizeof *zeros);
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, &error);
    CU_ASSERT_FATAL(plan && zeros);
    for (int threads = 100; threads <= 200; threads += 100) {
        weft_session_options o = {.threads = threads};
        weft_session *s = weft_session_new(plan, NULL, &o, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        CU_ASSERT_EQUAL(weft_session_feed(s, x, zeros, MANY * sizeof *zeros, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_profile(s, true, NULL, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_profile_totals_of(weft_profile_of(s)).threads, threads);
        weft_session_free(s);
    }
    free(zeros);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* ---- Forks ---- */

/* Threads of this process; 0 where the system does not tell. */
static int count_threads(void)
{
    char line[256];
    int n = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && !n && fgets(line, sizeof line, file)) sscanf(line, "Threads: %d", &n);
    if (file) fclose(file);
    return n;
}

/* Waits until OpenMP's pool has ended the threads that it no longer needs, or, as clang's does not end them, until
 * their number has been the same for two seconds. At a fork, a thread that ends could hold a lock of ASan's allocator,
 * and nobody would give it back in the child. */
static void wait_for_threads(int threads)
{
    int before = 0;
    for (int same = 0; same < 2000 && count_threads() > threads; same++) {
        const int now = count_threads();
        if (now != before) same = 0;
        before = now;
        usleep(1000);
    }
}

/* Forks a child that calls `action`; true if it ends with success. */
static bool in_child(bool (*action)(rig *r), rig *r)
{
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        alarm(SECONDS);
        test_exit(!action(r));
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static bool runs_again(rig *r)
{
    return rig_runs(r, 1) && rig_runs(r, 1);
}

static bool runs_anew(rig *r)
{
    return r && new_rig_runs(2, 1) && new_rig_runs(0, 1);
}

static bool forks_again(rig *r)
{
    return in_child(runs_again, r) && rig_runs(r, 1);
}

static bool finds_nothing(rig *r)
{
    weft_error found;
    return weft_session_find_nonfinite(r->session, &found) == WEFT_OK;
}

static bool measures(rig *r)
{
    double rate = 0;
    return r && weft_measure_triad(2, &rate, NULL) == WEFT_OK && rate > 0;
}

typedef struct call {
    bool (*action)(rig *r);
    rig *r;
    bool good;
} call;

static void *make_call(void *data)
{
    call *c = data;
    c->good = c->action(c->r);
    return NULL;
}

static bool in_thread(bool (*action)(rig *r), rig *r)
{
    call c = {action, r, false};
    pthread_t thread;
    if (pthread_create(&thread, NULL, make_call, &c) != 0) return false;
    pthread_join(thread, NULL);
    return c.good;
}

static bool runs_on_two(rig *r)
{
    return rig_runs(r, 2);
}

/* A new thread of the child can use several OpenMP threads; the one that forked cannot. */
static bool runs_in_thread(rig *r)
{
    return in_thread(runs_on_two, r) && rig_runs(r, 1);
}

static bool forks_in_thread(rig *r)
{
    return rig_runs(r, 2) && in_child(runs_again, r) && rig_runs(r, 2);
}

static void test_fork(void)
{
    static bool (*const actions[])(rig *) = {runs_again,    runs_anew, forks_again,
                                             finds_nothing, measures,  runs_in_thread};
    rig r;
    CU_ASSERT_TRUE_FATAL(rig_open(&r, 2));
    CU_ASSERT_TRUE(rig_runs(&r, 2));
    wait_for_threads(2);
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        CU_ASSERT_TRUE(in_child(actions[i], &r));
        CU_ASSERT_TRUE(rig_runs(&r, 2)); /* the parent is not affected */
    }
    CU_ASSERT_TRUE(in_thread(forks_in_thread, &r));
    CU_ASSERT_TRUE(rig_runs(&r, 2));
    rig_close(&r);
}

/* ---- Parallel regions of the program ---- */

static void test_regions(void)
{
    int levels = omp_get_max_active_levels();
    for (int depth = 1; depth <= 2; depth++) {
        bool good[3] = {false, false, false};
        omp_set_max_active_levels(depth);
#pragma omp parallel num_threads(3)
        for (int i = 0; i < 3; i++)
            if (omp_get_thread_num() == i) good[i] = new_rig_runs(2, depth);
        CU_ASSERT_TRUE(good[0] && good[1] && good[2]);
    }
    omp_set_max_active_levels(levels);
    CU_ASSERT_TRUE(new_rig_runs(2, 2));
}

/* ---- Small stacks ---- */

typedef struct training {
    weft_built built;
    weft_graph *graph;
    weft_params *params;
    weft_plan *plan;
    weft_session *session;
    FILE *nothing;
    weft_error error;
} training;

static bool plan_training(training *t, const char *text)
{
    test_build_model(t->graph, text, true, &t->built);
    size_t n;
    const weft_value *params = weft_graph_params(t->graph, &n);
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value lr = weft_scalar(t->graph, WEFT_F32, 1e-3);
    weft_value targets[2] = {
        t->built.loss, weft_train_update(t->graph, t->built.loss, params, n, lr, &adam, NULL)};
    t->plan = weft_plan_new(t->graph, targets, 2, &(weft_plan_options){.verify = true}, &t->error);
    return t->plan && weft_graph_write_dot(t->graph, NULL, t->nothing, &t->error) == WEFT_OK;
}

static bool run_training(training *t)
{
    char path[64];
    int32_t ids[4 * 9];
    weft_error *e = &t->error;
    weft_session_options o = {.threads = 2};
    snprintf(path, sizeof path, "/tmp/weft-threads-%ld.safetensors", (long)getpid());
    for (size_t i = 0; i < 4 * 9; i++) ids[i] = 3 + (int32_t)i % 5;
    if (weft_params_init(t->params, t->graph, 1, e) == WEFT_OK)
        t->session = weft_session_new(t->plan, t->params, &o, e);
    weft_session *s = t->session;
    bool good = s &&
                weft_session_feed(s, weft_built_input(&t->built, "source"), ids, sizeof ids,
                                  NULL) == WEFT_OK &&
                weft_session_feed(s, weft_built_input(&t->built, "target_in"), ids,
                                  4 * 8 * sizeof ids[0], NULL) == WEFT_OK &&
                weft_session_feed(s, weft_built_input(&t->built, "target_out"), ids,
                                  4 * 8 * sizeof ids[0], NULL) == WEFT_OK &&
                weft_session_profile(s, true, &(weft_profile_options){1}, NULL) == WEFT_OK &&
                weft_session_run(s, NULL) == WEFT_OK &&
                weft_session_find_nonfinite(s, e) == WEFT_OK &&
                weft_profile_write_trace(weft_profile_of(s), t->nothing, e) == WEFT_OK &&
                weft_profile_write_dot(weft_profile_of(s), t->nothing, e) == WEFT_OK &&
                weft_params_save(t->params, path, NULL, e) == WEFT_OK &&
                weft_params_load(t->params, path, e) == WEFT_OK;
    unlink(path);
    return good;
}

/* Plans a training step of every listed model, and runs one of a small model. */
static void train_models(void *data)
{
    bool *good = data;
    *good = true;
    for (size_t i = 0; i <= weft_model_count() && *good; i++) {
        const weft_model *model = weft_model_at(i);
        training t = {.graph = weft_graph_new(),
                      .params = weft_params_new(),
                      .nothing = fopen("/dev/null", "w")};
        *good = t.nothing && plan_training(&t, model ? model->name
                                                     : "transformer d_model=32 heads=2 d_ff=64 "
                                                       "vocab=50 source_len=9 target_len=8 batch=4 "
                                                       "encoder_layers=1 decoder_layers=1");
        if (!model) *good = *good && run_training(&t);
        if (!*good) fprintf(stderr, "\n    %s: %s\n", t.error.where, t.error.message);
        if (t.nothing) fclose(t.nothing);
        weft_session_free(t.session);
        weft_plan_free(t.plan);
        weft_params_free(t.params);
        weft_graph_free(t.graph);
    }
}

static void test_small_stack(void)
{
    bool good = false;
    CU_ASSERT_TRUE(test_with_stack(WEFT_STACK_BYTES, train_models, &good));
    CU_ASSERT_TRUE(good);
}

void threads_tests(void)
{
    CU_pSuite suite = CU_add_suite("threads", make_expected, NULL);
    CU_add_test(suite, "bounds", test_bounds);
    CU_add_test(suite, "hundreds", test_many);
    CU_add_test(suite, "after a fork", test_fork);
    CU_add_test(suite, "in parallel regions", test_regions);
    CU_add_test(suite, "models on a small stack", test_small_stack);
}
