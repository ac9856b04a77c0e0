/* What an executor needs for its runs, and how many threads have work in them. */
#include "loop.h"
#include "team.h"

#include "base/openmp.h"

#include "ir/isa.h"

#include <stdlib.h>

/* False if out of memory; weft__executor_free frees what there is. */
static bool init_loops(executor *e)
{
    const weft_plan *plan = e->plan;
    bool good = true;
    if (!plan->n_loops) return true;
    e->loops = calloc(plan->n_loops, sizeof *e->loops);
    for (size_t i = 0; e->loops && i < plan->n_loops; i++) {
        /* Each is initialised, so that all can be freed. */
        good = weft__executor_init(&e->loops[i].body, plan->loops[i].body) && good;
        good = weft__loop_init(&e->loops[i], &plan->loops[i]) && good;
    }
    return e->loops && good;
}

bool weft__executor_init(executor *e, const weft_plan *plan)
{
    *e = (executor){
        .plan = plan, .run = {.fault = &e->fault}, .convert = weft__convert_for(weft__isa_best())};
    e->calls = calloc(2 * plan->n_steps + 1, sizeof *e->calls);
    e->progress = calloc(N_PHASES * plan->n_intervals + 1, sizeof *e->progress);
    e->can_sleep = weft__sleepers_init(&e->sleepers);
    return e->calls && e->progress && e->can_sleep && init_loops(e) &&
           weft__exchanges_init(&e->exchanges, plan);
}

void weft__executor_free(executor *e)
{
    free(e->calls);
    free(e->progress);
    if (e->can_sleep) weft__sleepers_free(&e->sleepers);
    weft__exchanges_free(&e->exchanges);
    for (size_t i = 0; e->loops && i < e->plan->n_loops; i++) {
        weft__executor_free(&e->loops[i].body);
        weft__loop_free(&e->loops[i]);
    }
    free(e->loops);
}

/* ---- How many threads have work ---- */

static int64_t interval_tiles(const weft_plan *plan, const plan_interval *interval, int phase)
{
    int64_t tiles = 0;
    for (uint32_t i = 0; i < interval->n_steps; i++) {
        const plan_step *step = &plan->steps[interval->first_step + i];
        if (phase < step->phases && !step->fused) tiles += step->tiles[phase];
    }
    return tiles;
}

/* One thread if every interval is serial: waking the others would take longer than the plan. More
 * threads than processors only if some phase has a tile for each. */
int weft__executor_threads(const weft_plan *plan, int threads)
{
    int64_t useful = 1, processors = omp_get_num_procs();
    if (threads <= 0) threads = weft_default_threads();
    for (size_t g = 0; g < plan->n_intervals; g++) {
        const plan_interval *interval = &plan->intervals[g];
        if (interval->serial) continue;
        if (interval->loop) {
            const plan_loop *loop = plan->steps[interval->loop - 1].loop;
            const int inside = weft__executor_threads(loop->body, threads);
            if (useful < inside) useful = inside;
        }
        if (useful < processors) useful = processors;
        for (int phase = 0; phase < interval->phases && useful < threads; phase++) {
            int64_t tiles = interval_tiles(plan, interval, phase);
            if (useful < tiles) useful = tiles;
        }
    }
    return threads < useful ? threads : (int)useful;
}
