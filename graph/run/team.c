/* Teams: how many threads a parallel region may have.
 *
 * OpenMP ends the process when it cannot make a thread. A region waits for ever if a fork has taken
 * away the threads that OpenMP keeps for it. A kernel overruns a stack that is too small. So a
 * region is opened only after weft_team has made sure that none of this happens:
 *
 * - Threads that OpenMP lacks are made as a trial, all at once and with as much stack, and ended.
 *   If the system refuses one, the region gets fewer. The results do not depend on it.
 * - The first of OpenMP's threads measures its stack before any kernel runs on one.
 * - libgomp keeps a pool of threads for each thread that opens regions; a fork copies the calling
 *   thread alone. In the child, that thread opens regions of one thread, which need no pool; other
 *   threads of the child begin with pools of their own. */
#include "team.h"

#include <weft/op.h>
#include <weft/session.h>

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__has_include)
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define SINGLE_THREADED (__libc_single_threaded != 0)
#endif
#endif
#ifndef SINGLE_THREADED
#define SINGLE_THREADED false
#endif

/* Twice what kernels and the executor above them need: they pass every test with 16 KiB. */
#define KERNEL_STACK 32768

static _Thread_local int pool = 1; /* OpenMP's threads for regions of the calling thread */
static _Thread_local int most = WEFT_MAX_THREADS; /* that it may have: more were refused */
static atomic_bool stacks_measured;

int weft_default_threads(void)
{
    int threads = omp_get_max_threads(), processors = omp_get_num_procs();
    if (threads > processors) threads = processors;
    if (threads > WEFT_MAX_THREADS) threads = WEFT_MAX_THREADS;
    return threads > 1 ? threads : 1;
}

/* ---- Forks ---- */

static bool forks_watched;
static atomic_bool alone; /* at the fork, the process had one thread: no pool can have been lost */

static void before_fork(void)
{
    atomic_store(&alone, SINGLE_THREADED);
}

static void in_child(void)
{
    if (!atomic_load(&alone)) most = 1;
}

/* When the library is loaded: the program may use OpenMP, and fork, before it calls weft. */
__attribute__((constructor)) static void watch_forks(void)
{
    forks_watched = pthread_atfork(before_fork, NULL, in_child) == 0;
}

/* ---- Trials ---- */

/* The stack that OpenMP gives its threads, as the environment has it: KiB, or a number with a unit.
 * 0: the system's default. */
static size_t stack_asked_for(void)
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

/* Threads of clang's OpenMP allocate memory when they begin, for which malloc reserves up to 128
 * MiB of address space for each, until there is enough for all processors. Those of GNU's allocate
 * nothing. */
#ifdef __clang__
#define RESERVED ((size_t)128 << 20)
#else
#define RESERVED ((size_t)0)
#endif

/* The system keeps stacks that are free, and reuses one for a thread that needs no larger one.
 * clang's OpenMP asks for a little more than was set. */
#define MORE_STACK 16384

typedef struct trial {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int begun;
    bool over;
} trial;

static void *wait_for_end(void *arg)
{
    trial *t = arg;
    void *volatile memory = RESERVED ? malloc(1) : NULL;
    free(memory);
    pthread_mutex_lock(&t->lock);
    t->begun++;
    pthread_cond_broadcast(&t->changed);
    while (!t->over) pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* Whether malloc could reserve more: if so, it could for every thread so far, and what it reserved
 * stays, for OpenMP's threads to use. */
static bool can_reserve(void)
{
    if (!RESERVED) return true;
    void *space =
        mmap(NULL, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) return false;
    munmap(space, RESERVED);
    return true;
}

/* How many of so many threads can be made now; 0 if that cannot be known. */
static int try_threads(int threads)
{
    pthread_t thread[WEFT_MAX_THREADS];
    trial t = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, false};
    pthread_attr_t attr;
    size_t stack = stack_asked_for();
    int made = 0;
    if (pthread_attr_init(&attr) != 0) return 0;
    if (!stack) pthread_attr_getstacksize(&attr, &stack);
    pthread_attr_setstacksize(&attr, stack + MORE_STACK);
    pthread_mutex_lock(&t.lock);
    while (made < threads && pthread_create(&thread[made], &attr, wait_for_end, &t) == 0) {
        made++;
        while (RESERVED && t.begun < made) pthread_cond_wait(&t.changed, &t.lock);
    }
    bool known = can_reserve();
    t.over = true;
    pthread_cond_broadcast(&t.changed);
    pthread_mutex_unlock(&t.lock);
    for (int i = 0; i < made; i++) pthread_join(thread[i], NULL);
    pthread_attr_destroy(&attr);
    return known ? made : 0;
}

/* ---- Teams ---- */

/* Bytes of stack below the caller's frame. */
static size_t stack_left(void)
{
    pthread_attr_t attr;
    void *begin = NULL;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attr) != 0) return SIZE_MAX;
    pthread_attr_getstack(&attr, &begin, &size);
    pthread_attr_destroy(&attr);
    return (uintptr_t)__builtin_frame_address(0) - (uintptr_t)begin;
}

/* Has OpenMP make the threads. Returns what one of them has of stack, if that was not known to be
 * enough. */
static size_t open_team(int threads)
{
    size_t left = SIZE_MAX;
    bool measure = !atomic_load(&stacks_measured);
#pragma omp parallel num_threads(threads)
    {
        /* All have been made when the first allocates memory. */
#pragma omp barrier
        if (measure && omp_get_thread_num() == 1) left = stack_left();
    }
    if (left != SIZE_MAX && left >= KERNEL_STACK) atomic_store(&stacks_measured, true);
    return left;
}

weft_status weft_team(int threads, int *team, weft_error *error)
{
    bool nested = omp_get_level() > 0;
    *team = 1;
    if (threads > most) threads = most;
    if (threads <= 1 || !forks_watched) return WEFT_OK;
    if (nested && omp_get_active_level() >= omp_get_max_active_levels()) return WEFT_OK;
    if (threads > omp_get_thread_limit()) threads = omp_get_thread_limit();
    int have = nested ? 1 : pool;
    if (threads > have) {
        /* One more: OpenMP allocates memory of its own. */
        int made = try_threads(threads - have + 1);
        /* Half of them, so that the program keeps room for itself. */
        if (made <= threads - have) threads = most = have + made / 2;
        size_t left = threads > 1 ? open_team(threads) : SIZE_MAX;
        if (left < KERNEL_STACK)
            return weft_error_set(error, WEFT_NO_MEMORY, "weft_team",
                                  "OpenMP's threads have %zu KiB of stack left; %d KiB are needed: "
                                  "set OMP_STACKSIZE to %d KiB or more, or ask for one thread",
                                  left >> 10, KERNEL_STACK >> 10, WEFT_STACK_BYTES >> 10);
    }
    /* A smaller region ends the threads of the pool that it does not need. */
    if (!nested) pool = threads;
    *team = threads;
    return WEFT_OK;
}

void team_alone(void (*run)(void *), void *data)
{
#pragma omp parallel num_threads(1)
    {
        /* A BLAS asks whether it is called from a parallel region, and one of a single thread does
         * not count as such; this setting ends with the region. */
        omp_set_num_threads(1);
        run(data);
    }
}
