/* Runs the first run's intervals in pieces, each of which ends where a state was read for the last
 * time. O(operands) to list the states. */
#include "release.h"

#include "store/params.h"

#include <stdlib.h>

/* Sets last[value id of a state] to the position + 1 of the last interval that reads it; n_intervals +
 * 1 of a target. */
static void find_last_reads(const weft_plan *plan, uint32_t *last)
{
    for (uint32_t g = 0; g < plan->n_intervals; g++) {
        const plan_interval *interval = &plan->intervals[g];
        for (uint32_t i = interval->first_step; i < interval->first_step + interval->n_steps; i++) {
            const node_record *node = &plan->graph->nodes[plan->steps[i].node];
            const place *at = &plan->places[plan->steps[i].first_operand];
            for (size_t k = 0; k < node->n_in + node->op->n_out; k++)
                if (at[k].kind == STORAGE_STATE) last[at[k].root] = g + 1;
        }
    }
    for (size_t i = 0; i < plan->n_targets; i++)
        last[plan->graph->values[plan->targets[i].value.id].root] = (uint32_t)plan->n_intervals + 1;
}

static int by_interval(const void *a, const void *b)
{
    const released_state *x = a, *y = b;
    if (x->interval != y->interval) return x->interval < y->interval ? -1 : 1;
    return x->root < y->root ? -1 : 1;
}

bool weft__releases_init(releases *r, const weft_plan *plan)
{
    const size_t n_values = plan->graph->n_values;
    uint32_t *last = calloc(n_values + 1, sizeof *last);
    if (last) find_last_reads(plan, last);
    size_t n = 0;
    for (size_t id = 0; last && id < n_values; id++)
        n += last[id] && last[id] <= plan->fixed_intervals;
    r->list = last ? malloc((n + 1) * sizeof *r->list) : NULL;
    for (uint32_t id = 0; r->list && id < n_values; id++)
        if (last[id] && last[id] <= plan->fixed_intervals)
            r->list[r->n++] = (released_state){last[id] - 1, id};
    if (r->list) qsort(r->list, r->n, sizeof *r->list, by_interval);
    free(last);
    return r->list;
}

void weft__releases_free(releases *r)
{
    free(r->list);
    *r = (releases){0};
}

weft_status weft__releases_run(releases *r, weft_params *params, executor *e, int team,
                               weft_profile *profile, weft_error *error)
{
    const weft_plan *plan = e->plan;
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < r->n;) {
        const uint32_t interval = r->list[i].interval;
        status = weft__executor_run(e, interval + 1, team, profile, error);
        for (; status == WEFT_OK && i < r->n && r->list[i].interval == interval; i++)
            r->begun |= weft__params_release(params, plan->graph->values[r->list[i].root].name);
    }
    if (status == WEFT_OK && e->end < plan->fixed_intervals)
        status = weft__executor_run(e, plan->fixed_intervals, team, profile, error);
    return status;
}
