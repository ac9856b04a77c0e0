/* Teams: how many threads a parallel region may have.
 *
 * OpenMP ends the process if it cannot create a thread. In a child process it waits forever for
 * pooled threads that the fork did not copy. And a kernel overruns a stack that is too small.
 * weft__team rules all of this out before a region begins:
 *
 * - It creates the threads that OpenMP lacks as a trial, all at once and with as much stack, and
 *   ends them again. If the system refuses some, the region has fewer threads; the results do not
 *   depend on their number.
 * - One of OpenMP's threads measures its stack before any kernel runs.
 * - libgomp has a pool of threads for each thread that opens regions, and a fork copies only the
 *   calling thread. In the child, that thread opens regions of one thread, which need no pool.
 * Other threads of the child start with pools of their own. */
#include "team.h"

#include "base/log.h"
#include "base/openmp.h"
#include "base/platform.h"
#include "ir/call.h"

#include <weft/op.h>
#include <weft/session.h>

#include <stdatomic.h>
#include <stdlib.h>

/* Stack of a thread, in bytes: twice what the executor and kernels need. They pass every test with
 * 16 KiB. */
#define KERNEL_STACK 32768

/* Of the calling thread: the size of OpenMP's pool for its regions, and the threads that it may
 * have, which is fewer once the system has refused more, and why. */
static _Thread_local int pool_size = 1;
static _Thread_local int max_threads = WEFT_MAX_THREADS;
static _Thread_local const char *max_reason;
static _Thread_local int reported_team; /* the smaller number of threads that was last reported */
static atomic_bool stacks_measured;

int weft_default_threads(void)
{
    int threads = omp_get_max_threads(), processors = omp_get_num_procs();
    if (threads > processors) threads = processors;
    if (threads > WEFT_MAX_THREADS) threads = WEFT_MAX_THREADS;
    return threads > 1 ? threads : 1;
}

bool weft__team_has_openmp(void)
{
    return OPENMP_FOUND;
}

/* ---- Forks ---- */

static bool forks_watched;
static atomic_bool alone; /* at the fork the process had one thread, so no pool was lost */

static void before_fork(void)
{
    atomic_store(&alone, weft__os_is_single_threaded());
}

static void in_child(void)
{
    if (atomic_load(&alone)) return;
    max_threads = 1;
    max_reason = "a fork left this thread without its pool";
}

/* Runs when the library is loaded, because the program may use OpenMP, and fork, before it calls
 * weft. */
__attribute__((constructor)) static void watch_forks(void)
{
    forks_watched = weft__os_watch_forks(before_fork, NULL, in_child);
}

/* ---- Stacks ---- */

/* Bytes of stack of OpenMP's threads, from the environment: a number of KiB, or with a unit of its
 * own. 0: the system's default. */
static size_t stack_setting(void)
{
    static const char units[] = "BKMG";
    const char *text = getenv("OMP_STACKSIZE");
    if (!text) text = getenv("GOMP_STACKSIZE");
    if (!text) return 0;
    char *end;
    unsigned long long bytes = strtoull(text, &end, 10);
    int unit = 1;
    while (*end == ' ') end++;
    for (int i = 0; units[i]; i++)
        if ((*end & ~0x20) == units[i]) unit = i;
    return bytes > SIZE_MAX >> (10 * unit + 1) ? 0 : (size_t)bytes << 10 * unit;
}

/* ---- Teams ---- */

/* Opens a region, so that OpenMP creates its threads. Returns the bytes of stack that one of them
 * has, or SIZE_MAX if an earlier call has found them sufficient. */
static size_t open_team(int threads)
{
    size_t bytes = SIZE_MAX;
    bool measure = !atomic_load(&stacks_measured);
    (void)threads; /* without OpenMP */
#pragma omp parallel num_threads(threads)
    {
        /* All threads exist before the first allocates memory. */
#pragma omp barrier
        if (measure && omp_get_thread_num() == 1) bytes = weft__os_stack_left();
    }
    if (bytes != SIZE_MAX && bytes >= KERNEL_STACK) atomic_store(&stacks_measured, true);
    return bytes;
}

/* Whether the caller is in regions of the program that may not contain another. */
static bool is_too_deep(void)
{
    return omp_get_level() > 0 && omp_get_active_level() >= omp_get_max_active_levels();
}

/* Why a region has fewer threads than requested. */
static const char *fewer_reason(int team)
{
    if (!OPENMP_FOUND) return "weft was built without OpenMP";
    if (!forks_watched) return "forks cannot be watched";
    if (max_threads == team && max_reason) return max_reason;
    if (is_too_deep()) return "OpenMP allows no nested region here (OMP_MAX_ACTIVE_LEVELS)";
    return "the limit of OpenMP's threads (OMP_THREAD_LIMIT)";
}

static void report_fewer(int threads, int team)
{
    if (threads <= team || reported_team == team) return;
    if (weft__log(WEFT_LOG_WARNING, "threads", "%d of %d threads: %s", team, threads,
                  fewer_reason(team)))
        reported_team = team;
}

/* weft__team, but for the report. */
static weft_status make_team(int threads, int *team, weft_error *error)
{
    bool nested = omp_get_level() > 0;
    *team = 1;
    if (threads > max_threads) threads = max_threads;
    if (threads <= 1 || !forks_watched) return WEFT_OK;
    if (is_too_deep()) return WEFT_OK;
    if (threads > omp_get_thread_limit()) threads = omp_get_thread_limit();
    int have = nested ? 1 : pool_size;
    if (threads > have) {
        /* One more than needed, because OpenMP allocates memory of its own. */
        int made = weft__os_try_threads(threads - have + 1, stack_setting());
        /* Take half of them, so that the program can create some itself. */
        if (made <= threads - have) {
            threads = max_threads = have + made / 2;
            max_reason = "the system refused to create more";
        }
        size_t stack = threads > 1 ? open_team(threads) : SIZE_MAX;
        if (stack < KERNEL_STACK)
            return weft_error_set(error, WEFT_NO_MEMORY, "threads",
                                  "OpenMP's threads have %zu KiB of stack left; %d KiB are needed: "
                                  "set OMP_STACKSIZE to %d KiB or more, or ask for one thread",
                                  stack >> 10, KERNEL_STACK >> 10, WEFT_STACK_BYTES >> 10);
    }
    /* A smaller region ends those threads of the pool that it does not need. */
    if (!nested) pool_size = threads;
    *team = threads;
    return WEFT_OK;
}

weft_status weft__team(int threads, int *team, weft_error *error)
{
    weft_error_clear(error);
    if (!team) return weft_error_set(error, WEFT_BAD_ARGUMENT, "threads", "the result is NULL");
    const weft_status status = make_team(threads, team, error);
    if (status == WEFT_OK) report_fewer(threads, *team);
    return status;
}

void weft__team_alone(void (*run)(void *), void *data)
{
#pragma omp parallel num_threads(1)
    {
        /* A BLAS creates threads unless it is called from a parallel region; a region of a single
         * thread does not count. The setting ends with the region. */
        omp_set_num_threads(1);
        run(data);
    }
}

/* ---- Regions ---- */

/* A region of a pool's threads. */
typedef struct pool_region {
    team_function run;
    void *data;
    int threads;
    atomic_bool misused;
    atomic_bool begun[WEFT_MAX_THREADS];
} pool_region;

/* A call on a thread of the pool. */
typedef struct pool_call {
    const pool_region *region;
    int index;
} pool_call;

static void run_call(void *data)
{
    const pool_call *c = data;
    const int before = weft__call_set_thread(c->index);
    c->region->run(c->region->data, c->index, c->region->threads);
    weft__call_set_thread(before);
}

/* Libraries create no threads outside of regions (gemm.c), nor in one of a single thread. */
static void call_from_pool(void *argument, int index)
{
    pool_region *r = argument;
    pool_call c = {r, index};
    if (index < 0 || index >= r->threads || atomic_exchange(&r->begun[index], true))
        atomic_store(&r->misused, true);
    else if (omp_get_level() == 0)
        run_call(&c);
    else
        weft__team_alone(run_call, &c);
}

/* Makes the calls that the pool has left out. If it made any, the work is done already. */
static void call_the_rest(pool_region *r)
{
    static atomic_bool reported;
    int left_out = 0;
    for (int i = 0; i < r->threads; i++) {
        if (atomic_load(&r->begun[i])) continue;
        call_from_pool(r, i);
        left_out++;
    }
    if (left_out && weft__log_first(&reported))
        weft__log(WEFT_LOG_WARNING, "weft_thread_pool", "the pool made %d of %d calls",
                  r->threads - left_out, r->threads);
}

static weft_status run_in_pool(const weft_thread_pool *pool, int threads, team_function run,
                               void *data, weft_error *error)
{
    pool_region r = {.run = run, .data = data, .threads = threads};
    pool->run(pool->context, threads, call_from_pool, &r);
    call_the_rest(&r);
    return atomic_load(&r.misused)
               ? weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_thread_pool",
                                "the pool made a call that is not one of %d, or made it twice",
                                threads)
               : WEFT_OK;
}

/* One thread needs no region, for which clang's OpenMP allocates memory, except within a region of
 * the program, where it may not be number 0. */
weft_status weft__team_run(const weft_thread_pool *pool, int threads, team_function run, void *data,
                           weft_error *error)
{
    if (pool->run && threads > 1) return run_in_pool(pool, threads, run, data, error);
    const int before = weft__call_set_thread(0);
    if (threads == 1 && omp_get_level() == 0) {
        run(data, 0, 1);
    } else {
#pragma omp parallel num_threads(threads)
        {
            const int own = weft__call_set_thread(0);
            if (omp_get_num_threads() == 1) omp_set_num_threads(1); /* see weft__team_alone */
            run(data, omp_get_thread_num(), omp_get_num_threads());
            weft__call_set_thread(own);
        }
    }
    weft__call_set_thread(before);
    return WEFT_OK;
}
