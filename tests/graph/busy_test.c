/* Busy machines: threads that the system puts aside delay a run only by the tiles that they are
 * computing, waiting threads sleep, and runs that gain nothing from a team are made alone. */
#include "tests.h"

#include "run/pace.h"
#include "run/progress.h"

#include <omp.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- A thread that is put aside ---- */

#define SECONDS 10 /* after which a thread is released in any case */
#define N_OPS   3
#define HALF    8192

static struct {
    pthread_t thread[2];
    atomic_int arrived, tiles;
    atomic_bool meet, aside, in_time;
    int released[2]; /* a pipe */
} scene;

static bool infer_same(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return true;
}

static int64_t two_tiles(const weft_call *call)
{
    (void)call;
    return 2;
}

/* Copies half of x. If it is to meet the other tile, it waits until both have begun, so that two
 * threads run them. */
static void kernel_copy(const weft_call *call, int64_t tile)
{
    const float *x = (const float *)call->in[0].data + tile * HALF;
    if (atomic_load(&scene.meet)) {
        const time_t end = time(NULL) + SECONDS;
        scene.thread[omp_get_thread_num() & 1] = pthread_self();
        const int goal = (atomic_fetch_add(&scene.arrived, 1) / 2 + 1) * 2;
        while (atomic_load(&scene.arrived) < goal && time(NULL) < end) usleep(10);
    }
    memcpy((float *)call->out[0].data + tile * HALF, x, HALF * sizeof *x);
    atomic_fetch_add(&scene.tiles, 1);
}

static const weft_op op_copy = {.name = "copy_halves",
                                .doc = "y = x",
                                .min_in = 1,
                                .max_in = 1,
                                .n_out = 1,
                                .infer = infer_same,
                                .kernel = {{kernel_copy}},
                                .tiles = two_tiles,
                                .gradient = WEFT_GRADIENT_NONE};

/* Puts the thread that gets the signal aside until a byte comes by the pipe. */
static void put_aside(int number)
{
    char byte;
    (void)number;
    atomic_store(&scene.aside, true);
    while (read(scene.released[0], &byte, 1) < 0) {
    }
}

/* Releases the thread once the run has computed everything. */
static void *release(void *data)
{
    const time_t end = time(NULL) + SECONDS;
    while (atomic_load(&scene.tiles) < 2 * N_OPS && time(NULL) < end) usleep(100);
    atomic_store(&scene.in_time, atomic_load(&scene.tiles) == 2 * N_OPS);
    if (write(scene.released[1], "", 1) != 1) atomic_store(&scene.in_time, false);
    return data;
}

/* A run while thread 1 is put aside. */
static void run_without(weft_session *s)
{
    pthread_t releaser;
    const struct sigaction action = {.sa_handler = put_aside};
    struct sigaction before;
    CU_ASSERT_EQUAL_FATAL(pipe(scene.released), 0);
    sigaction(SIGUSR1, &action, &before);
    CU_ASSERT_EQUAL_FATAL(pthread_kill(scene.thread[1], SIGUSR1), 0);
    while (!atomic_load(&scene.aside)) usleep(10);
    atomic_store(&scene.aside, false);
    atomic_store(&scene.tiles, 0);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&releaser, NULL, release, NULL), 0);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    pthread_join(releaser, NULL);
    sigaction(SIGUSR1, &before, NULL);
    close(scene.released[0]);
    close(scene.released[1]);
}

static void put_one_aside(void)
{
    static float numbers[2 * HALF], y[2 * HALF];
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    weft_value v = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, HALF));
    const weft_value x = v;
    for (int i = 0; i < 2 * HALF; i++) numbers[i] = (float)i;
    for (int i = 0; i < N_OPS; i++) v = weft_apply(g, &op_copy, NULL, &v, 1, NULL);
    weft_plan *plan = weft_plan_new(g, &v, 1, NULL, &error);
    const weft_session_options two = {.threads = 2};
    weft_session *s = weft_session_new(plan, NULL, &two, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_feed(s, x, numbers, sizeof numbers, NULL), WEFT_OK);
    /* On a busy machine the signal may reach thread 1 before it has left the first run, where
     * OpenMP waits for it. */
    for (int i = 0; i < 3; i++) {
        atomic_store(&scene.meet, true);
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        atomic_store(&scene.meet, false);
        usleep(100000);
        run_without(s);
    }
    CU_ASSERT_TRUE(atomic_load(&scene.in_time));
    CU_ASSERT_EQUAL(weft_session_fetch(s, v, y, sizeof y, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(memcmp(y, numbers, sizeof y), 0);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_put_aside(void)
{
    /* On a busy machine the signal may reach thread 1 before it has left the first run, where
     * OpenMP waits for it. */
    for (int i = 0; i < 3 && !atomic_load(&scene.in_time); i++) put_one_aside();
    CU_ASSERT_TRUE(atomic_load(&scene.in_time));
}

/* ---- Waiting ---- */

typedef struct meeting {
    sleepers sleepers;
    atomic_ullong value;
} meeting;

static void *reach(void *data)
{
    meeting *m = data;
    while (!atomic_load(&m->sleepers.count)) usleep(10);
    for (int i = 0; i < 3; i++) weft__progress_add(&m->sleepers, &m->value, 1, 3);
    return data;
}

static void test_waiting(void)
{
    static meeting m;
    pthread_t other;
    uint64_t spin_ns = SPIN_NS;
    CU_ASSERT_TRUE_FATAL(weft__sleepers_init(&m.sleepers));
    for (int i = 0; i < 20; i++) CU_ASSERT_FALSE(weft__progress_spin(&m.value, 3, &spin_ns));
    CU_ASSERT_TRUE(spin_ns <= MIN_SPIN_NS);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&other, NULL, reach, &m), 0);
    weft__progress_sleep(&m.sleepers, &m.value, 3);
    CU_ASSERT_EQUAL(atomic_load(&m.value), 3);
    pthread_join(other, NULL);
    CU_ASSERT_TRUE(weft__progress_spin(&m.value, 3, &spin_ns));
    CU_ASSERT_EQUAL(spin_ns, SPIN_NS);
    CU_ASSERT_EQUAL(atomic_load(&m.sleepers.count), 0);
    weft__sleepers_free(&m.sleepers);
}

/* A chunk has one taker. */
static void test_chunks(void)
{
    phase_progress p = {0};
    CU_ASSERT_TRUE(progress_take(&p, 0) && progress_take(&p, MAX_CHUNKS - 1));
    CU_ASSERT_FALSE(progress_take(&p, 0) || progress_take(&p, MAX_CHUNKS - 1));
    CU_ASSERT_TRUE(progress_take(&p, 1));
}

/* ---- Runs on one thread ---- */

/* The runs of a session whose team takes team_ns, and sleeps for slept_ns of them: 't' and 'a'. */
static void runs(char *text, size_t n, uint64_t team_ns, uint64_t slept_ns, uint64_t alone_ns)
{
    pace p = {0};
    for (size_t i = 0; i < n; i++) {
        const bool alone = pace_team(&p, 2) == 1;
        text[i] = alone ? 'a' : 't';
        weft__pace_record(&p, alone, alone ? alone_ns : team_ns, alone ? 0 : slept_ns);
    }
    text[n] = 0;
}

static void test_pace(void)
{
    char text[512];
    runs(text, 20, 100, 10, 50); /* the team hardly waits */
    CU_ASSERT_STRING_EQUAL(text, "tttttttttttttttttttt");
    runs(text, 22, 100, 50, 120); /* it waits, but is faster */
    CU_ASSERT_STRING_EQUAL(text, "tatttttttttttttttttatt");
    runs(text, 18, 100, 50, 60);
    CU_ASSERT_STRING_EQUAL(text, "taataaataaaaaaataa");
    runs(text, 500, 100, 50, 60);
    size_t team = 0;
    for (const char *c = text + 127; *c; c++) team += *c == 't';
    CU_ASSERT_EQUAL(team, 6); /* one of 64 */
}

void busy_tests(void)
{
    CU_pSuite suite = CU_add_suite("busy", NULL, NULL);
    CU_add_test(suite, "a suspended thread", test_put_aside);
    CU_add_test(suite, "waiting", test_waiting);
    CU_add_test(suite, "chunks", test_chunks);
    CU_add_test(suite, "runs on one thread", test_pace);
}
