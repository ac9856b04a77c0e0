/* Memory and threads that a program lends: see lent.h. */
#include "lent.h"
#include "tests.h"

#include "base/platform.h"

#include <stdlib.h>
#include <string.h>

static void *take(void *context, size_t bytes)
{
    lent_counter *c = context;
    if (++c->calls == c->fail_at) return NULL;
    char *memory = weft__os_memory(64, (bytes + 127) / 64 * 64);
    if (!memory) return NULL;
    c->live++;
    c->live_bytes += bytes;
    memset(memory, 0xA5, bytes); /* the contents may be anything */
    return memory + (c->misaligned ? 8 : 0);
}

static void give(void *context, void *memory, size_t bytes)
{
    lent_counter *c = context;
    c->live--;
    c->live_bytes -= bytes;
    weft__os_memory_free((char *)memory - (c->misaligned ? 8 : 0));
}

weft_allocator lent_allocator(lent_counter *counter)
{
    return (weft_allocator){take, give, counter};
}

void test_each_lent_fails(weft_status (*run)(const weft_allocator *from, weft_error *error),
                          long least)
{
    long failed = 0;
    for (long i = 1;; i++) {
        weft_error error = WEFT_NO_ERROR;
        lent_counter c = {.fail_at = i};
        const weft_allocator from = lent_allocator(&c);
        const weft_status status = run(&from, &error);
        const bool fails = c.calls >= i;
        CU_ASSERT_TRUE(c.live == 0 && c.live_bytes == 0);
        CU_ASSERT_EQUAL(status, fails ? WEFT_NO_MEMORY : WEFT_OK);
        CU_ASSERT_EQUAL(error.status, status);
        if (!fails) break;
        failed++;
        if (!strstr(error.message, "no memory for")) printf("\n    call %ld: %s", i, error.message);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "no memory for"));
    }
    CU_ASSERT_TRUE(failed >= least);
}

static void *work(void *data)
{
    lent_workers *w = data;
    pthread_mutex_lock(&w->lock);
    while (!w->over) {
        if (w->next >= w->n_calls) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        const int index = w->next++;
        w->running++;
        pthread_mutex_unlock(&w->lock);
        w->function(w->argument, index);
        pthread_mutex_lock(&w->lock);
        w->running--;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void run_on_workers(void *context, int n, void (*function)(void *argument, int index),
                           void *argument)
{
    lent_workers *w = context;
    pthread_mutex_lock(&w->lock);
    w->function = function;
    w->argument = argument;
    w->next = 0;
    w->n_calls = n;
    w->runs++;
    pthread_cond_broadcast(&w->changed);
    while (w->next < n || w->running) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

void lent_workers_begin(lent_workers *w, int n)
{
    *w = (lent_workers){.n = n};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    for (int i = 0; i < n; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&w->thread[i], NULL, work, w), 0);
}

void lent_workers_end(lent_workers *w)
{
    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->n; i++) pthread_join(w->thread[i], NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
}

weft_thread_pool lent_pool(lent_workers *w)
{
    return (weft_thread_pool){run_on_workers, w};
}
