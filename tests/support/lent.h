/* What a program lends to weft, for tests: memory that is counted, and threads. */
#ifndef WEFT_TESTS_LENT_H
#define WEFT_TESTS_LENT_H

#include <weft/session.h>

#include <pthread.h>

/* ---- Memory ---- */

/* Counts what it allocates; can fail, and return memory that is not aligned. */
typedef struct lent_counter {
    long live, calls, fail_at; /* call fail_at fails; 0: none */
    size_t live_bytes;
    bool misaligned;
} lent_counter;

/* The allocator that counts in *counter. */
weft_allocator lent_allocator(lent_counter *counter);
/* Calls `run` again and again, while each allocation that it makes from `from` fails once, in turn:
 * such a call must be WEFT_NO_MEMORY, and every call must give back all that it was lent. It makes
 * at least `least`. */
void test_each_lent_fails(weft_status (*run)(const weft_allocator *from, weft_error *error),
                          long least);

/* ---- Threads ---- */

enum { LENT_WORKERS = 4 };

/* Threads that wait for calls. */
typedef struct lent_workers {
    pthread_t thread[LENT_WORKERS];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n, next, n_calls, running; /* threads; the next index; of how many; calls under way */
    void (*function)(void *argument, int index);
    void *argument;
    bool over;
    long runs;
} lent_workers;

void lent_workers_begin(lent_workers *w, int n);
void lent_workers_end(lent_workers *w);
/* The pool that makes all calls on the workers, however many there are, and none on the caller's
 * thread. */
weft_thread_pool lent_pool(lent_workers *w);

#endif
