/* What the executor notes down while a profile is on, and how. */
#ifndef WEFT_GRAPH_PROFILE_H
#define WEFT_GRAPH_PROFILE_H

#include "plan/plan.h"

#include <weft/session.h>

#include <time.h>

/* A stretch of one phase of a step on one thread. */
typedef struct profile_event {
    uint64_t begin_ns, end_ns;
    uint32_t step;
    uint8_t phase;
} profile_event;

/* The events of one run on one thread. */
typedef struct profile_run {
    profile_event *events;
    size_t n;
} profile_run;

/* What one thread notes. Each reading of the clock ends one stretch of time and begins the next, so
 * that none is left out. Threads' notes lie on cache lines of their own. */
typedef struct profile_thread {
    uint64_t now_ns; /* the last reading */
    uint64_t start_ns;
    uint64_t *compute_ns; /* by step */
    uint64_t *waiting_ns; /* by segment, at the barriers in it and behind it */
    profile_run *runs;    /* a ring of the runs kept for the trace */
    profile_run *run;     /* of now; NULL if none is kept */
    uint32_t segment;     /* that it is in, PROFILE_START before the first */
} profile_thread;

#define PROFILE_START UINT32_MAX

struct weft_profile {
    const weft_plan *plan;
    profile_thread **threads; /* [capacity] */
    int capacity, team;       /* team: of the last run */
    size_t n_segments, trace_runs, runs;
    uint64_t *group_runs; /* by group: how often it was run */
    uint64_t wall_ns, thread_ns, begin_ns;
};

weft_profile *profile_new(const weft_plan *plan, int threads, size_t trace_runs);
void profile_free(weft_profile *profile);
/* Around the parallel region, and in it on each thread. */
void profile_run_begin(weft_profile *profile);
void profile_run_end(weft_profile *profile);
profile_thread *profile_thread_begin(weft_profile *profile, int thread, int team);

static inline uint64_t profile_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* On each thread, when it comes to a group. */
static inline void profile_enter(profile_thread *t, weft_profile *p, uint32_t group)
{
    t->segment = p->plan->groups[group].interval;
    if (t == p->threads[0]) p->group_runs[group]++;
}

/* A thread that comes back to a step goes on with its event. */
static inline void profile_note(profile_thread *t, uint64_t begin, uint32_t step, int phase)
{
    profile_run *run = t->run;
    if (!run) return;
    profile_event *last = run->n ? &run->events[run->n - 1] : NULL;
    if (last && last->step == step && last->phase == phase)
        last->end_ns = t->now_ns;
    else
        run->events[run->n++] = (profile_event){begin, t->now_ns, step, (uint8_t)phase};
}

static inline void profile_computed(profile_thread *t, uint32_t step, int phase)
{
    uint64_t now = profile_clock();
    t->compute_ns[step] += now - t->now_ns;
    const uint64_t begin = t->now_ns;
    t->now_ns = now;
    profile_note(t, begin, step, phase);
}

/* The same for one of the steps of a fused group, without an event of its own... */
static inline void profile_took_turn(profile_thread *t, uint32_t step)
{
    uint64_t now = profile_clock();
    t->compute_ns[step] += now - t->now_ns;
    t->now_ns = now;
}

/* ... and the event of the fused group, which began at `begin`. */
static inline void profile_fused(profile_thread *t, uint32_t head, int phase, uint64_t begin)
{
    if (begin < t->now_ns) profile_note(t, begin, head, phase);
}

/* Charges the time since the last reading to the barrier of the segment that the thread is in. */
static inline void profile_waited_until(profile_thread *t, uint64_t now)
{
    if (t->segment == PROFILE_START)
        t->start_ns += now - t->now_ns;
    else
        t->waiting_ns[t->segment] += now - t->now_ns;
    t->now_ns = now;
}

static inline void profile_waited(profile_thread *t)
{
    profile_waited_until(t, profile_clock());
}

#endif
