/* Threads, by those of POSIX: see platform.h. */
#include "platform.h"

#include <stdlib.h>

#include <weft/session.h>

bool weft__os_mutex_init(os_mutex *mutex)
{
    return pthread_mutex_init(mutex, NULL) == 0;
}

void weft__os_mutex_free(os_mutex *mutex)
{
    pthread_mutex_destroy(mutex);
}

void weft__os_lock(os_mutex *mutex)
{
    pthread_mutex_lock(mutex);
}

bool weft__os_try_lock(os_mutex *mutex)
{
    return pthread_mutex_trylock(mutex) == 0;
}

void weft__os_unlock(os_mutex *mutex)
{
    pthread_mutex_unlock(mutex);
}

bool weft__os_condition_init(os_condition *condition)
{
    return pthread_cond_init(condition, NULL) == 0;
}

void weft__os_condition_free(os_condition *condition)
{
    pthread_cond_destroy(condition);
}

void weft__os_wait(os_condition *condition, os_mutex *mutex)
{
    pthread_cond_wait(condition, mutex);
}

void weft__os_signal(os_condition *condition)
{
    pthread_cond_broadcast(condition);
}

void weft__os_run_once(os_once *once, void (*run)(void))
{
    pthread_once(once, run);
}

/* ---- Trials ---- */

/* Threads of clang's OpenMP allocate memory when they start. malloc then reserves up to 128 MiB of
 * address space for each, until there are enough arenas for all processors. Threads of GNU's OpenMP
 * allocate nothing. */
#ifdef __clang__
#define RESERVED ((size_t)128 << 20)
#else
#define RESERVED ((size_t)0)
#endif

/* Added to the stack of trial threads: clang's OpenMP asks for a little more than was set. The
 * system caches free stacks, and reuses them for threads that need no larger one. */
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

/* Whether malloc could reserve address space for one more thread. If so, it could for all threads
 * so far, and OpenMP's threads will use what it has reserved. */
static bool can_reserve(void)
{
    return !RESERVED || weft__os_has_space(RESERVED, false);
}

int weft__os_try_threads(int wanted, size_t stack)
{
    pthread_t thread[WEFT_MAX_THREADS];
    trial t = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, false};
    pthread_attr_t attr;
    int made = 0;
    if (pthread_attr_init(&attr) != 0) return 0;
    if (!stack) pthread_attr_getstacksize(&attr, &stack);
    pthread_attr_setstacksize(&attr, stack + MORE_STACK);
    pthread_mutex_lock(&t.lock);
    while (made < wanted && pthread_create(&thread[made], &attr, wait_for_end, &t) == 0) {
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
