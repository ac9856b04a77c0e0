/* Profiles: what the executor records, and its totals. Each thread sums nanoseconds by step and by
 * superstep (profile.h); the totals are added up on request, O(threads x steps). Rows are made in
 * profile_rows.c, the trace and the picture in profile_export.c. */
#include "profile.h"

#include <stdlib.h>

/* ---- Recording ---- */

static size_t padded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* One block of memory: the record, then its arrays, each on a cache-line boundary. */
static profile_thread *thread_new(const profile_plan *p, size_t trace_runs)
{
    const weft_plan *plan = p->plan;
    size_t n_events = 0;
    for (size_t i = 0; i < plan->n_steps; i++) n_events += plan->steps[i].phases;
    size_t head = padded(sizeof(profile_thread)), compute = padded(8 * plan->n_steps);
    size_t waiting = padded(8 * p->n_supersteps), bodies = padded(sizeof(void *) * plan->n_loops);
    size_t fixed = head + compute + waiting + bodies;
    size_t ring = padded(sizeof(profile_run)), events = padded(n_events * sizeof(profile_event));
    if (trace_runs > (SIZE_MAX / 2 - fixed) / (ring + events)) return NULL;
    char *memory = weft_alloc(fixed + trace_runs * (ring + events));
    if (!memory) return NULL;
    profile_thread *t = (profile_thread *)memory;
    t->compute_ns = (uint64_t *)(memory + head);
    t->waiting_ns = (uint64_t *)(memory + head + compute);
    t->bodies = (profile_thread **)(memory + head + compute + waiting);
    t->runs = (profile_run *)(memory + fixed);
    for (size_t r = 0; r < trace_runs; r++)
        t->runs[r] = (profile_run){
            (profile_event *)(memory + fixed + trace_runs * ring + r * events), 0, n_events};
    return t;
}

/* Makes the records of a plan, and of the bodies of its loops, which have no trace. */
static bool make_records(profile_plan *p, const weft_plan *plan, int threads, size_t trace_runs)
{
    p->plan = plan;
    p->n_supersteps =
        plan->n_intervals ? (size_t)plan->intervals[plan->n_intervals - 1].superstep + 1 : 0;
    p->threads = calloc((size_t)threads, sizeof *p->threads);
    p->bodies = calloc(plan->n_loops + 1, sizeof *p->bodies);
    bool good = p->threads && p->bodies;
    for (int t = 0; t < threads && good; t++) {
        p->threads[t] = thread_new(p, trace_runs);
        good = p->threads[t] != NULL;
    }
    for (size_t i = 0; i < plan->n_loops && good; i++) {
        good = make_records(&p->bodies[i], plan->loops[i].body, threads, 0);
        for (int t = 0; t < threads && good; t++)
            p->threads[t]->bodies[i] = p->bodies[i].threads[t];
    }
    return good;
}

static void free_records(profile_plan *p, int threads)
{
    for (size_t i = 0; p->bodies && i < p->plan->n_loops; i++)
        if (p->bodies[i].plan) free_records(&p->bodies[i], threads);
    for (int t = 0; p->threads && t < threads; t++) weft_free(p->threads[t]);
    free(p->threads);
    free(p->bodies);
}

weft_profile *weft__profile_new(const weft_plan *plan, int threads, size_t trace_runs)
{
    weft_profile *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->trace_runs = trace_runs;
    p->capacity = threads;
    p->interval_runs = calloc(plan->n_intervals + 1, sizeof *p->interval_runs);
    if (make_records(&p->all, plan, threads, trace_runs) && p->interval_runs) return p;
    weft__profile_free(p);
    return NULL;
}

void weft__profile_free(weft_profile *profile)
{
    if (!profile) return;
    free_records(&profile->all, profile->capacity);
    free(profile->interval_runs);
    free(profile);
}

void weft__profile_run_begin(weft_profile *p)
{
    p->begin_ns = clock_ns();
}

profile_thread *weft__profile_thread_begin(weft_profile *p, int thread, int team)
{
    profile_thread *t = p->all.threads[thread];
    if (thread == 0) p->team = team;
    t->now_ns = p->begin_ns;
    t->superstep = PROFILE_START;
    t->run = p->trace_runs ? &t->runs[p->runs % p->trace_runs] : NULL;
    if (t->run) t->run->n = 0;
    profile_waited(t);
    return t;
}

void weft__profile_run_end(weft_profile *p)
{
    uint64_t now = clock_ns();
    for (int t = 0; t < p->team; t++) profile_waited_until(p->all.threads[t], now);
    /* Threads that did not take part still have the events of an older run in this slot. */
    for (int t = p->team; t < p->capacity && p->trace_runs; t++)
        p->all.threads[t]->runs[p->runs % p->trace_runs].n = 0;
    p->wall_ns += now - p->begin_ns;
    p->thread_ns += (now - p->begin_ns) * (uint64_t)p->team;
    p->runs++;
}

/* ---- Sums ---- */

uint64_t weft__profile_step_exchange(const weft_profile *p, const profile_plan *plan, size_t step)
{
    return p->exchange_ns && plan == &p->all ? p->exchange_ns[step] : 0;
}

uint64_t weft__profile_step_compute(const weft_profile *p, const profile_plan *plan, size_t step)
{
    uint64_t sum = 0;
    for (int t = 0; t < p->capacity; t++) sum += plan->threads[t]->compute_ns[step];
    return sum - weft__profile_step_exchange(p, plan, step);
}

uint64_t weft__profile_superstep_waiting(const weft_profile *p, const profile_plan *plan,
                                         size_t superstep)
{
    uint64_t sum = 0;
    for (int t = 0; t < p->capacity; t++) sum += plan->threads[t]->waiting_ns[superstep];
    return sum;
}

uint64_t weft__profile_interval_runs(const weft_profile *p, const profile_plan *plan,
                                     size_t interval)
{
    uint64_t sum = 0;
    if (plan == &p->all) return p->interval_runs[interval];
    const bool once = interval < plan->plan->fixed_intervals; /* in each run of the loop */
    for (int t = 0; t < p->capacity; t++)
        sum += once ? plan->threads[t]->first_turns : plan->threads[t]->turns;
    return sum;
}

weft_cost weft__profile_step_cost(const profile_plan *plan, size_t step)
{
    const plan_step *s = &plan->plan->steps[step];
    return s->loop ? (weft_cost){0, 0} : weft__plan_step_cost(plan->plan, s);
}

/* Nanoseconds over all threads. */
typedef struct sums {
    uint64_t compute, waiting;
} sums;

static sums add_plan(const weft_profile *p, const profile_plan *plan, weft_profile_totals *total)
{
    sums s = {0, 0};
    for (size_t i = 0; i < plan->plan->n_steps; i++) {
        s.compute += weft__profile_step_compute(p, plan, i);
        s.waiting += weft__profile_step_exchange(p, plan, i);
    }
    for (size_t i = 0; i < plan->n_supersteps; i++)
        s.waiting += weft__profile_superstep_waiting(p, plan, i);
    for (size_t g = 0; g < plan->plan->n_intervals; g++) {
        const plan_interval *interval = &plan->plan->intervals[g];
        const double runs = (double)weft__profile_interval_runs(p, plan, g);
        for (uint32_t i = interval->first_step; i < interval->first_step + interval->n_steps; i++) {
            const weft_cost cost = weft__profile_step_cost(plan, i);
            total->flops += cost.flops * runs;
            total->bytes += cost.bytes * runs;
        }
    }
    for (size_t i = 0; i < plan->plan->n_loops; i++) {
        const sums body = add_plan(p, &plan->bodies[i], total);
        s.compute += body.compute;
        s.waiting += body.waiting;
    }
    return s;
}

weft_profile_totals weft_profile_totals_of(const weft_profile *p)
{
    weft_profile_totals total = {0};
    if (!p) return total;
    uint64_t start = 0;
    const sums s = add_plan(p, &p->all, &total);
    for (int t = 0; t < p->capacity; t++) start += p->all.threads[t]->start_ns;
    total.runs = p->runs;
    total.threads = p->team;
    total.wall_seconds = PROFILE_NS * (double)p->wall_ns;
    total.thread_seconds = PROFILE_NS * (double)p->thread_ns;
    total.compute_seconds = PROFILE_NS * (double)s.compute;
    total.waiting_seconds = PROFILE_NS * (double)s.waiting;
    total.start_seconds = PROFILE_NS * (double)start;
    return total;
}
