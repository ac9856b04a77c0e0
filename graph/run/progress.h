/* How far the threads of a run are in each phase of an interval, and how they wait for each other.
 *
 * A phase is finished when its work is done, whichever threads did it. So a preempted thread delays
 * the others only if it is in the middle of a tile: they run what it has not begun. A thread spins
 * for a short time, in which most waits end on an idle machine, and then sleeps: on a busy one,
 * spinning would take the processor from the thread that it waits for. */
#ifndef WEFT_GRAPH_PROGRESS_H
#define WEFT_GRAPH_PROGRESS_H

#include "base/platform.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Chunks of a short phase: one for each thread, up to the number of bits. */
#define MAX_CHUNKS 64
/* The same of the body of a loop, whose phases run again and again: of `taken`, the upper half is the
 * turn to which the bits belong. */
#define MAX_TURN_CHUNKS 32

/* Of a loop both grow over all turns, so that a late thread finds the phases of an earlier turn
 * finished. */
typedef struct phase_progress {
    atomic_ullong taken; /* of a long phase: nanoseconds of work; of a short one: a bit a chunk */
    atomic_ullong finished; /* nanoseconds of work */
} phase_progress;

/* Threads that sleep until some progress is made. */
typedef struct sleepers {
    os_mutex lock;
    os_condition changed;
    atomic_int count;
} sleepers;

/* False if the system has no more of them. */
bool weft__sleepers_init(sleepers *s);
void weft__sleepers_free(sleepers *s);

/* Adds `amount` to *value and wakes the sleepers if it has reached `target`. What the calling
 * thread wrote before is visible to threads that see the target reached. */
void weft__progress_add(sleepers *s, atomic_ullong *value, uint64_t amount, uint64_t target);

static inline bool progress_reached(const atomic_ullong *value, uint64_t target)
{
    return atomic_load_explicit(value, memory_order_acquire) >= target;
}

/* How long a thread spins: the first wait of a run, and the shortest one. On an idle machine waking
 * a thread takes about 15 us, and a thread that is late by more than that is late by milliseconds.
 */
#define SPIN_NS     50000
#define MIN_SPIN_NS 1000

/* Spins until *value reaches `target`; false if it has not after *spin_ns. A wait without success
 * shortens the next ones, because the awaited thread may stay preempted for long. */
bool weft__progress_spin(const atomic_ullong *value, uint64_t target, uint64_t *spin_ns);
/* Sleeps until *value reaches `target`. Returns for how long, in nanoseconds. */
uint64_t weft__progress_sleep(sleepers *s, const atomic_ullong *value, uint64_t target);

/* Takes chunk `chunk` of a short phase. False if another thread has taken it. */
static inline bool progress_take(phase_progress *p, int chunk)
{
    const unsigned long long bit = 1ull << chunk;
    if (atomic_load_explicit(&p->taken, memory_order_relaxed) & bit) return false;
    return !(atomic_fetch_or_explicit(&p->taken, bit, memory_order_relaxed) & bit);
}

/* The same in a turn of a loop. False also if that turn is over. */
static inline bool progress_take_in(phase_progress *p, int chunk, uint64_t turn)
{
    const unsigned long long bit = 1ull << chunk;
    unsigned long long seen = atomic_load_explicit(&p->taken, memory_order_relaxed), next;
    do {
        const uint64_t at = seen >> MAX_TURN_CHUNKS;
        if (at > turn || (at == turn && seen & bit)) return false;
        next = (at == turn ? seen : (unsigned long long)turn << MAX_TURN_CHUNKS) | bit;
    } while (!atomic_compare_exchange_weak_explicit(&p->taken, &seen, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

#endif
