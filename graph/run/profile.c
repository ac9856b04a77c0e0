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
static profile_thread *thread_new(const weft_profile *p)
{
    const weft_plan *plan = p->plan;
    size_t n_events = 0;
    for (size_t i = 0; i < plan->n_steps; i++) n_events += plan->steps[i].phases;
    size_t head = padded(sizeof(profile_thread)), compute = padded(8 * plan->n_steps);
    size_t fixed = head + compute + padded(8 * p->n_supersteps);
    size_t ring = padded(sizeof(profile_run)), events = padded(n_events * sizeof(profile_event));
    if (p->trace_runs > (SIZE_MAX / 2 - fixed) / (ring + events)) return NULL;
    size_t bytes = fixed + p->trace_runs * (ring + events);
    char *memory = weft_alloc(bytes);
    if (!memory) return NULL;
    profile_thread *t = (profile_thread *)memory;
    t->compute_ns = (uint64_t *)(memory + head);
    t->waiting_ns = (uint64_t *)(memory + head + compute);
    t->runs = (profile_run *)(memory + fixed);
    for (size_t r = 0; r < p->trace_runs; r++)
        t->runs[r] = (profile_run){
            (profile_event *)(memory + fixed + p->trace_runs * ring + r * events), 0, n_events};
    return t;
}

weft_profile *weft__profile_new(const weft_plan *plan, int threads, size_t trace_runs)
{
    weft_profile *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->plan = plan;
    p->trace_runs = trace_runs;
    p->n_supersteps =
        plan->n_intervals ? (size_t)plan->intervals[plan->n_intervals - 1].superstep + 1 : 0;
    p->threads = calloc((size_t)threads, sizeof(profile_thread *));
    p->interval_runs = calloc(plan->n_intervals + 1, sizeof *p->interval_runs);
    bool good = p->threads && p->interval_runs;
    for (int t = 0; t < threads && good; t++) {
        p->threads[t] = thread_new(p);
        p->capacity = t + 1;
        good = p->threads[t] != NULL;
    }
    if (good) return p;
    weft__profile_free(p);
    return NULL;
}

void weft__profile_free(weft_profile *profile)
{
    if (!profile) return;
    for (int t = 0; t < profile->capacity; t++) weft_free(profile->threads[t]);
    free(profile->threads);
    free(profile->interval_runs);
    free(profile);
}

void weft__profile_run_begin(weft_profile *p)
{
    p->begin_ns = clock_ns();
}

profile_thread *weft__profile_thread_begin(weft_profile *p, int thread, int team)
{
    profile_thread *t = p->threads[thread];
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
    for (int t = 0; t < p->team; t++) profile_waited_until(p->threads[t], now);
    /* Threads that did not take part still have the events of an older run in this slot. */
    for (int t = p->team; t < p->capacity && p->trace_runs; t++)
        p->threads[t]->runs[p->runs % p->trace_runs].n = 0;
    p->wall_ns += now - p->begin_ns;
    p->thread_ns += (now - p->begin_ns) * (uint64_t)p->team;
    p->runs++;
}

/* ---- Sums ---- */

uint64_t weft__profile_step_exchange(const weft_profile *p, size_t step)
{
    return p->exchange_ns ? p->exchange_ns[step] : 0;
}

uint64_t weft__profile_step_compute(const weft_profile *p, size_t step)
{
    uint64_t sum = 0;
    for (int t = 0; t < p->capacity; t++) sum += p->threads[t]->compute_ns[step];
    return sum - weft__profile_step_exchange(p, step);
}

uint64_t weft__profile_superstep_waiting(const weft_profile *p, size_t superstep)
{
    uint64_t sum = 0;
    for (int t = 0; t < p->capacity; t++) sum += p->threads[t]->waiting_ns[superstep];
    return sum;
}

weft_profile_totals weft_profile_totals_of(const weft_profile *p)
{
    weft_profile_totals total = {0};
    if (!p) return total;
    uint64_t compute = 0, waiting = 0, start = 0;
    for (size_t i = 0; i < p->plan->n_steps; i++) {
        compute += weft__profile_step_compute(p, i);
        waiting += weft__profile_step_exchange(p, i);
    }
    for (size_t i = 0; i < p->n_supersteps; i++) waiting += weft__profile_superstep_waiting(p, i);
    for (int t = 0; t < p->capacity; t++) start += p->threads[t]->start_ns;
    for (size_t g = 0; g < p->plan->n_intervals; g++) {
        const plan_interval *interval = &p->plan->intervals[g];
        for (uint32_t i = interval->first_step; i < interval->first_step + interval->n_steps; i++) {
            weft_cost cost = weft__plan_step_cost(p->plan, &p->plan->steps[i]);
            total.flops += cost.flops * (double)p->interval_runs[g];
            total.bytes += cost.bytes * (double)p->interval_runs[g];
        }
    }
    total.runs = p->runs;
    total.threads = p->team;
    total.wall_seconds = PROFILE_NS * (double)p->wall_ns;
    total.thread_seconds = PROFILE_NS * (double)p->thread_ns;
    total.compute_seconds = PROFILE_NS * (double)compute;
    total.waiting_seconds = PROFILE_NS * (double)waiting;
    total.start_seconds = PROFILE_NS * (double)start;
    return total;
}
