/* What the executor records while a profile is on.
 *
 * A thread reads the clock when it leaves a step and after each barrier. Each reading ends one
 * event and begins the next, so compute, waiting and start-up add up to threads times duration, to
 * the nanosecond. The waiting time at a barrier is charged to the steps since the barrier before,
 * in proportion to their compute time. The nodes of a loop's body have records of their own; the
 * loop's is what remains: moving from step to step. Without a profile, the executor runs a version of its
 * functions without these readings (execute.c). All memory is allocated when profiling is switched
 * on. */
#ifndef WEFT_GRAPH_PROFILE_H
#define WEFT_GRAPH_PROFILE_H

#include "base/platform.h"
#include "plan/plan.h"

#include <weft/session.h>

#include "base/private.h"

/* The time that one thread spent on one phase of a step. */
typedef struct profile_event {
    uint64_t begin_ns, end_ns;
    uint32_t step;
    uint8_t phase;
} profile_event;

/* The events of one run on one thread. */
typedef struct profile_run {
    profile_event *events;
    size_t n, capacity;
} profile_run;

/* The record of one thread, on cache lines of its own. */
typedef struct profile_thread {
    uint64_t now_ns; /* the last reading */
    uint64_t start_ns;
    uint64_t *compute_ns;           /* by step */
    uint64_t *waiting_ns;           /* by superstep: at the barriers inside it and after it */
    profile_run *runs;              /* a ring of [trace_runs], for the trace */
    profile_run *run;               /* the current one; NULL without a trace */
    uint32_t superstep;             /* the current one; PROFILE_START before the first */
    struct profile_thread **bodies; /* by loop of the plan */
    uint64_t turns, first_turns;    /* of a body: steps of the loop that this thread has begun */
} profile_thread;

/* The records of a plan, or of the body of a loop. */
typedef struct profile_plan {
    const weft_plan *plan;
    profile_thread **threads; /* [capacity] */
    size_t n_supersteps;
    struct profile_plan *bodies; /* by loop of the plan */
} profile_plan;

#define PROFILE_START UINT32_MAX
#define PROFILE_NS    1e-9 /* in seconds */

struct weft_profile {
    profile_plan all;
    int capacity, team; /* team: threads of the last run */
    size_t trace_runs, runs;
    uint64_t *interval_runs;     /* by interval: how often it ran */
    const uint64_t *exchange_ns; /* by step: waiting for other processes; NULL: there are none */
    uint64_t wall_ns, thread_ns, begin_ns;
};

/* Allocates everything that measuring needs; NULL if out of memory. */
weft_profile *weft__profile_new(const weft_plan *plan, int threads, size_t trace_runs);
void weft__profile_free(weft_profile *profile);

/* Before and after the parallel region. */
void weft__profile_run_begin(weft_profile *profile);
void weft__profile_run_end(weft_profile *profile);
/* On each thread, at the beginning of the region. */
profile_thread *weft__profile_thread_begin(weft_profile *profile, int thread, int team);

/* Sums over all threads, in nanoseconds. What a step waited for other processes is not computing.
 */
WEFT_PRIVATE_API uint64_t weft__profile_step_compute(const weft_profile *profile,
                                                     const profile_plan *plan, size_t step);
WEFT_PRIVATE_API uint64_t weft__profile_step_exchange(const weft_profile *profile,
                                                      const profile_plan *plan, size_t step);
WEFT_PRIVATE_API uint64_t weft__profile_superstep_waiting(const weft_profile *profile,
                                                          const profile_plan *plan,
                                                          size_t superstep);
/* How often an interval has run, in the steps of a loop if it is one of a body. */
WEFT_PRIVATE_API uint64_t weft__profile_interval_runs(const weft_profile *profile,
                                                      const profile_plan *plan, size_t interval);
/* The work of one call of a step; nothing for a loop, whose body has it. */
WEFT_PRIVATE_API weft_cost weft__profile_step_cost(const profile_plan *plan, size_t step);

/* On each thread, when it reaches an interval. */
static inline void profile_enter_interval(profile_thread *t, weft_profile *p, uint32_t interval)
{
    t->superstep = p->all.plan->intervals[interval].superstep;
    if (t == p->all.threads[0]) p->interval_runs[interval]++;
}

/* Adds the event [begin, now), or extends the last event if it is of the same phase of the step. A
 * thread of a pool that does the work of others may have more events than there is room for. */
static inline void profile_add_event(profile_thread *t, uint64_t begin, uint32_t step, int phase)
{
    profile_run *run = t->run;
    if (!run) return;
    profile_event *last = run->n ? &run->events[run->n - 1] : NULL;
    if (last && last->step == step && last->phase == phase)
        last->end_ns = t->now_ns;
    else if (run->n < run->capacity)
        run->events[run->n++] = (profile_event){begin, t->now_ns, step, (uint8_t)phase};
}

/* Charges the time since the last reading to a step. */
static inline void profile_charge(profile_thread *t, uint32_t step)
{
    uint64_t now = clock_ns();
    t->compute_ns[step] += now - t->now_ns;
    t->now_ns = now;
}

/* The same, with an event. */
static inline void profile_computed(profile_thread *t, uint32_t step, int phase)
{
    const uint64_t begin = t->now_ns;
    profile_charge(t, step);
    profile_add_event(t, begin, step, phase);
}

/* The event of a fused group that began at `begin`; its steps are charged one by one. */
static inline void profile_fused(profile_thread *t, uint32_t head, int phase, uint64_t begin)
{
    if (begin < t->now_ns) profile_add_event(t, begin, head, phase);
}

/* Charges the time since the last reading to the barriers of the current superstep. */
static inline void profile_waited_until(profile_thread *t, uint64_t now)
{
    if (t->superstep == PROFILE_START)
        t->start_ns += now - t->now_ns;
    else
        t->waiting_ns[t->superstep] += now - t->now_ns;
    t->now_ns = now;
}

static inline void profile_waited(profile_thread *t)
{
    profile_waited_until(t, clock_ns());
}

/* ---- Loops ---- */

/* The record of a loop's body, which begins at the last reading; NULL without a profile. */
static inline profile_thread *profile_enter_body(profile_thread *t, size_t loop)
{
    profile_thread *body = t ? t->bodies[loop] : NULL;
    if (body) body->now_ns = t->now_ns;
    return body;
}

/* Counts a step of the loop, which the thread begins. */
static inline void profile_turn(profile_thread *body, bool first)
{
    body->turns++;
    body->first_turns += first;
}

/* Charges the time since the last reading of the body to the loop, which is a step of t. */
static inline void profile_loop(profile_thread *t, profile_thread *body, uint32_t loop)
{
    t->now_ns = body->now_ns;
    profile_charge(t, loop);
    body->now_ns = t->now_ns;
}

#endif
