/* Which nodes run side by side. A group is a run of consecutive nodes that may run in parallel,
 * because none touches a storage that another one writes; fused nodes count as one. A barrier
 * interval is one or more groups between two barriers: neighbouring groups that one thread runs
 * need no barrier between them. O(n) for n operands. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* A group with less work, in bytes plus flops, runs on one thread. Such small groups run from the
 * cache at some 20 bytes and 30 flops a nanosecond, so this is about half a microsecond: no more
 * than waking the other threads and a barrier take. */
#define SERIAL_WORK 16384.0

/* Adds a step to the plan's totals, unless only the first run computes it; returns its bytes plus
 * flops. */
static double count_work(weft_plan *plan, const plan_step *step, bool fixed)
{
    weft_cost cost = weft__plan_step_cost(plan, step);
    plan->stats.flops += fixed ? 0 : cost.flops;
    plan->stats.bytes += fixed ? 0 : cost.bytes;
    return cost.bytes + cost.flops;
}

/* A step with all that are fused with it, and the nanoseconds of one of its tiles. */
typedef struct unit {
    uint32_t first, n;
    int64_t tile_work;
} unit;

/* Sorts the steps of a group, which do not depend on each other, by falling length of their tiles:
 * a long tile at the end would leave the other threads waiting. */
static bool sort_group(weft_plan *plan, const plan_group *group)
{
    plan_step *steps = plan->steps + group->first_step;
    unit *units = malloc((group->n_steps + 1) * sizeof *units);
    plan_step *sorted = malloc((group->n_steps + 1) * sizeof *sorted);
    uint32_t n = 0, at = 0;
    for (uint32_t i = 0; units && sorted && i < group->n_steps; i += steps[i].n_fused + 1) {
        const plan_step *s = &steps[i];
        unit u = {i, s->n_fused + 1, s->tile_work[s->phases - 1]};
        uint32_t k = n++;
        for (; k > 0 && units[k - 1].tile_work < u.tile_work; k--) units[k] = units[k - 1];
        units[k] = u;
    }
    for (uint32_t k = 0; k < n; at += units[k++].n)
        memcpy(sorted + at, steps + units[k].first, units[k].n * sizeof *sorted);
    bool good = units && sorted;
    if (good) memcpy(steps, sorted, group->n_steps * sizeof *sorted);
    free(units);
    free(sorted);
    return good;
}

/* The most nanoseconds of a group that the executor can count (36 years), with room for a sum of
 * two groups. */
#define MAX_WORK 0x1p60

/* Adds up a group's work, phase by phase. False if a node would take longer than can be counted, as
 * one can whose operands are small and broadcast. */
static bool weigh_group(weft_plan *plan, plan_group *group, weft_error *error)
{
    double total = 0;
    for (uint32_t i = group->first_step; i < group->first_step + group->n_steps; i++) {
        plan_step *step = &plan->steps[i];
        double ns = 0;
        if (step->fused) continue;
        for (uint32_t k = 0; k <= step->n_fused; k++)
            ns += passes_nanoseconds(weft__plan_step_cost(plan, step + k));
        total += ns + (double)step->tiles[0] + (double)step->tiles[1];
        if (!(total <= MAX_WORK)) {
            char where[256];
            weft_error_set(error, WEFT_TOO_LARGE,
                           weft__graph_node_where(plan->graph, step->node, where, sizeof where),
                           "would take some %.0g years of one core: more than a run can count",
                           total / 3.2e16);
            return false;
        }
        /* The last phase is the main one; one before it prepares. */
        for (int phase = step->phases - 1; phase >= 0; phase--, ns /= 8) {
            if (!step->tiles[phase]) continue;
            step->tile_work[phase] = 1 + (int64_t)(ns / (double)step->tiles[phase]);
            group->work[phase] += step->tile_work[phase] * step->tiles[phase];
        }
    }
    return true;
}

/* May the step, and all that are fused with it, join the group that began at `since`? written[] and
 * read[] hold, by storage, the position + 1 of the last step that wrote or read it; `exchanges`:
 * the group exchanges data with other processes already. */
static bool joins_group(const weft_plan *plan, const uint32_t *storage, const plan_step *step,
                        uint32_t since, const uint32_t *written, const uint32_t *read,
                        bool exchanges)
{
    if (exchanges && plan->graph->nodes[step->node].op->exchanges) return false;
    for (uint32_t k = 0; k <= step->n_fused; k++) {
        const node_record *node = &plan->graph->nodes[step[k].node];
        for (size_t i = 0; i < node->n_in; i++)
            if (written[storage[node->in[i]]] > since) return false;
        for (size_t i = 0; i < node->op->n_out; i++) {
            uint32_t s = storage[node->first_out + i];
            if (written[s] > since || read[s] > since) return false;
        }
    }
    return true;
}

bool weft__groups_cut(weft_plan *plan, const uint32_t *storage, size_t n_fixed,
                      const uint8_t *alone, weft_error *error)
{
    uint32_t *written = calloc(plan->graph->n_values, sizeof *written);
    uint32_t *read = calloc(plan->graph->n_values, sizeof *read), since = 0;
    const bool good = written && read;
    double work = 0;
    bool updates = false, exchanges = false, last_alone = false;
    plan_group *group = NULL;
    if (!plan->groups)
        plan->groups = weft__arena_alloc(&plan->arena, (plan->n_steps + 1) * sizeof *plan->groups);
    if (!good || !plan->groups) {
        free(written);
        free(read);
        return plan_no_memory(error);
    }
    plan->n_groups = 0;
    plan->stats.flops = plan->stats.bytes = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const plan_step *step = &plan->steps[i];
        const node_record *node = &plan->graph->nodes[step->node];
        bool is_update = node->op->updates > 0;
        if (i == n_fixed) plan->fixed_groups = (uint32_t)plan->n_groups;
        if (!group || i == n_fixed ||
            (!step->fused &&
             (is_update != updates || last_alone || (alone && alone[step->node]) ||
              !joins_group(plan, storage, step, since, written, read, exchanges)))) {
            group = &plan->groups[plan->n_groups++];
            *group = (plan_group){.first_step = i};
            since = i;
            work = 0;
            updates = is_update;
            exchanges = false;
        }
        exchanges |= node->op->exchanges;
        if (!step->fused) last_alone = alone && alone[step->node];
        group->n_steps++;
        if (step->phases > group->phases) group->phases = step->phases;
        work += count_work(plan, step, i < n_fixed);
        /* A barrier goes before updates: there a run stops if an earlier node failed. */
        group->serial = work < SERIAL_WORK && !is_update;
        for (size_t k = 0; k < node->n_in; k++) read[storage[node->in[k]]] = i + 1;
        for (size_t k = 0; k < node->op->n_out; k++) written[storage[node->first_out + k]] = i + 1;
    }
    if (n_fixed == plan->n_steps) plan->fixed_groups = (uint32_t)plan->n_groups;
    free(written);
    free(read);
    return true;
}

/* Numbers the barrier intervals, and counts the barriers between them and between phases. */
static void number_intervals(weft_plan *plan)
{
    uint32_t interval = 0;
    for (size_t g = 0; g < plan->n_groups; g++) {
        plan_group *group = &plan->groups[g];
        if (g && !(group->serial && plan->groups[g - 1].serial)) interval++;
        group->interval = interval;
        for (uint32_t k = 0; k < group->n_steps; k++)
            plan->steps[group->first_step + k].interval = interval;
        if (!group->serial && group->work[0] && group->work[1]) plan->stats.barriers++;
    }
    plan->stats.barriers += interval;
}

/* sort_group is an insertion sort. Larger groups are many similar updates, for which sorting does
 * not pay. */
#define MAX_SORTED 255

bool weft__groups_finish(weft_plan *plan, weft_error *error)
{
    for (size_t g = 0; g < plan->n_groups; g++) {
        plan_group *group = &plan->groups[g];
        if (!weigh_group(plan, group, error)) return false;
        if (group->n_steps > 1 && group->n_steps <= MAX_SORTED && !sort_group(plan, group))
            return plan_no_memory(error);
    }
    number_intervals(plan);
    return true;
}
