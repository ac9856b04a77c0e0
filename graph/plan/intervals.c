/* Which nodes run side by side. An interval is a run of consecutive nodes that may run in parallel,
 * because none touches a storage that another one writes; fused nodes count as one. A
 * superstep is one or more intervals between two barriers (Valiant 1990): neighbouring intervals
 * that one thread runs need no barrier between them. O(n) for n operands. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* An interval with less work, in bytes plus flops, runs on one thread. Such small intervals run
 * from the cache at some 20 bytes and 30 flops a nanosecond, so this is about half a microsecond:
 * not more than waking the other threads and a barrier take. */
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

/* Sorts the steps of an interval, which do not depend on each other, by falling length of their
 * tiles: a long tile at the end would leave the other threads waiting. */
static bool sort_interval(weft_plan *plan, const plan_interval *interval)
{
    plan_step *steps = plan->steps + interval->first_step;
    unit *units = malloc((interval->n_steps + 1) * sizeof *units);
    plan_step *sorted = malloc((interval->n_steps + 1) * sizeof *sorted);
    uint32_t n = 0, at = 0;
    for (uint32_t i = 0; units && sorted && i < interval->n_steps; i += steps[i].n_fused + 1) {
        const plan_step *s = &steps[i];
        unit u = {i, s->n_fused + 1, s->tile_work[s->phases - 1]};
        uint32_t k = n++;
        for (; k > 0 && units[k - 1].tile_work < u.tile_work; k--) units[k] = units[k - 1];
        units[k] = u;
    }
    for (uint32_t k = 0; k < n; at += units[k++].n)
        memcpy(sorted + at, steps + units[k].first, units[k].n * sizeof *sorted);
    bool good = units && sorted;
    if (good) memcpy(steps, sorted, interval->n_steps * sizeof *sorted);
    free(units);
    free(sorted);
    return good;
}

/* The maximum nanoseconds of an interval that the executor can count (36 years), with room for a
 * sum of two intervals. */
#define MAX_WORK 0x1p60

/* Adds up an interval's work, phase by phase. False if a node would take longer than can be
 * counted, as one can whose operands are small and broadcast. */
static bool weigh_interval(weft_plan *plan, plan_interval *interval, weft_error *error)
{
    double total = 0;
    for (uint32_t i = interval->first_step; i < interval->first_step + interval->n_steps; i++) {
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
                           "would take about %.0g years on one core, more than a run can count",
                           total / 3.2e16);
            return false;
        }
        /* The last phase is the main one; one before it prepares. */
        for (int phase = step->phases - 1; phase >= 0; phase--, ns /= 8) {
            if (!step->tiles[phase]) continue;
            step->tile_work[phase] = 1 + (int64_t)(ns / (double)step->tiles[phase]);
            interval->work[phase] += step->tile_work[phase] * step->tiles[phase];
        }
    }
    return true;
}

/* May the step, and all that are fused with it, join the interval that began at `since`? written[]
 * and read[] hold, by storage, the position + 1 of the last step that wrote or read it;
 * `exchanges`: the interval exchanges data with other processes already. */
static bool joins_interval(const weft_plan *plan, const uint32_t *storage, const plan_step *step,
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

/* Whether a step is to share no interval: see weft__intervals_cut. */
static bool is_alone(const plan_step *step, const uint8_t *alone)
{
    return (step->loop && step->loop->shared) || (alone && alone[step->node]);
}

/* Bytes of states that an interval of the first run may read, and more by one node at most: a session
 * gives their memory back at its end (run/release.c). */
#define FIXED_BYTES ((size_t)4 << 20)

static size_t bytes_of_states(const weft_graph *g, const node_record *node)
{
    size_t bytes = 0;
    for (size_t i = 0; i < node->n_in; i++) {
        const value_record *root = &g->values[g->values[node->in[i]].root];
        if (g->nodes[root->node].op == &weft_op_state)
            bytes += weft_tensor_bytes(root->type.dtype, root->type.shape);
    }
    return bytes;
}

bool weft__intervals_cut(weft_plan *plan, const uint32_t *storage, size_t n_fixed,
                         const uint8_t *alone, weft_error *error)
{
    uint32_t *written = calloc(plan->graph->n_values, sizeof *written);
    uint32_t *read = calloc(plan->graph->n_values, sizeof *read), since = 0;
    const bool good = written && read;
    double work = 0;
    bool updates = false, exchanges = false, last_alone = false;
    plan_interval *interval = NULL;
    size_t states = 0; /* bytes that the interval reads of them */
    if (!plan->intervals)
        plan->intervals =
            weft__arena_alloc(&plan->arena, (plan->n_steps + 1) * sizeof *plan->intervals);
    if (!good || !plan->intervals) {
        free(written);
        free(read);
        return plan_no_memory(error);
    }
    plan->n_intervals = 0;
    plan->stats.flops = plan->stats.bytes = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const plan_step *step = &plan->steps[i];
        const node_record *node = &plan->graph->nodes[step->node];
        bool is_update = node->op->updates > 0;
        if (i == n_fixed) plan->fixed_intervals = (uint32_t)plan->n_intervals;
        if (!interval || i == n_fixed ||
            (!step->fused &&
             (is_update != updates || last_alone || is_alone(step, alone) ||
              (i < n_fixed && states > FIXED_BYTES) ||
              !joins_interval(plan, storage, step, since, written, read, exchanges)))) {
            interval = &plan->intervals[plan->n_intervals++];
            *interval = (plan_interval){.first_step = i};
            since = i;
            work = 0;
            states = 0;
            updates = is_update;
            exchanges = false;
        }
        exchanges |= node->op->exchanges;
        if (!step->fused) last_alone = is_alone(step, alone);
        interval->n_steps++;
        if (step->phases > interval->phases) interval->phases = step->phases;
        work += count_work(plan, step, i < n_fixed);
        states += bytes_of_states(plan->graph, node);
        /* A barrier goes before updates: there a run stops if an earlier node failed. */
        interval->serial = work < SERIAL_WORK && !is_update;
        for (size_t k = 0; k < node->n_in; k++) read[storage[node->in[k]]] = i + 1;
        for (size_t k = 0; k < node->op->n_out; k++) written[storage[node->first_out + k]] = i + 1;
    }
    if (n_fixed == plan->n_steps) plan->fixed_intervals = (uint32_t)plan->n_intervals;
    free(written);
    free(read);
    return true;
}

/* Numbers the supersteps, and counts the barriers between them and between phases. */
static void number_supersteps(weft_plan *plan)
{
    uint32_t superstep = 0;
    for (size_t g = 0; g < plan->n_intervals; g++) {
        plan_interval *interval = &plan->intervals[g];
        if (g && !(interval->serial && plan->intervals[g - 1].serial)) superstep++;
        interval->superstep = superstep;
        for (uint32_t k = 0; k < interval->n_steps; k++)
            plan->steps[interval->first_step + k].superstep = superstep;
        if (!interval->serial && interval->work[0] && interval->work[1]) plan->stats.barriers++;
    }
    plan->stats.barriers += superstep;
}

/* sort_interval is an insertion sort. Larger intervals are many similar updates, for which sorting
 * does not pay. */
#define MAX_SORTED 255

bool weft__intervals_finish(weft_plan *plan, weft_error *error)
{
    for (size_t g = 0; g < plan->n_intervals; g++) {
        plan_interval *interval = &plan->intervals[g];
        const plan_step *first = &plan->steps[interval->first_step];
        if (!weigh_interval(plan, interval, error)) return false;
        if (first->loop && first->loop->shared) {
            interval->loop = interval->first_step + 1;
            interval->phases = 0;
        }
        if (interval->n_steps > 1 && interval->n_steps <= MAX_SORTED &&
            !sort_interval(plan, interval))
            return plan_no_memory(error);
    }
    number_supersteps(plan);
    return true;
}
