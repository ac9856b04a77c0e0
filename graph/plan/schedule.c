/* When nodes run.
 *
 * Order: topological, by id among the nodes that are ready (a heap); an update of a state comes
 * after every reader of the old version. A group is a stretch of the order whose nodes run side by
 * side, because none touches a storage that another one writes; fused nodes count as one. A barrier
 * interval is one or more groups between two barriers: neighbouring groups that one thread runs
 * need no barrier between them. O(n log n) for n operands. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- Order ---- */

typedef struct edges {
    uint32_t *first, *next, *to; /* lists by node; entries from 1 */
    uint32_t *waits;             /* by node: edges that come in */
    uint32_t n, capacity;
} edges;

static void add_edge(edges *e, uint32_t from, uint32_t to)
{
    if (from == to || e->n + 1 >= e->capacity) return;
    uint32_t k = ++e->n;
    e->to[k] = to;
    e->next[k] = e->first[from];
    e->first[from] = k;
    e->waits[to]++;
}

/* Adds an edge from each producer to its readers, and one from each reader of a version of a state
 * to the update that overwrites it. */
static bool collect_edges(const weft_graph *g, edges *e, weft_error *error)
{
    uint32_t *overwriter = /* by version: node + 1 of the update */
        calloc(g->n_values, sizeof *overwriter);
    if (!overwriter) return plan_no_memory(error);
    bool good = true;
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const node_record *node = &g->nodes[n];
        for (size_t i = 0; i < node->op->updates && i < node->n_in; i++) {
            uint32_t version = g->values[node->in[i]].version;
            if (overwriter[version]) {
                char where[256];
                weft_error_set(error, WEFT_BAD_ARGUMENT,
                               graph_node_where(g, n, where, sizeof where),
                               "two updates of the same state \"%s\" in one plan",
                               weft_name_of(g, graph_value(g, g->values[version].root)));
                good = false;
            }
            overwriter[version] = n + 1;
        }
    }
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const node_record *node = &g->nodes[n];
        for (size_t i = 0; i < node->n_in; i++) {
            const value_record *in = &g->values[node->in[i]];
            add_edge(e, in->node, n);
            /* A view reads nothing itself, and a node "group" only waits. */
            bool reads = !node->op->alias && node->op != &weft_op_group;
            if (reads && overwriter[in->version]) add_edge(e, n, overwriter[in->version] - 1);
        }
    }
    free(overwriter);
    return good;
}

static void heap_push(uint32_t *heap, size_t *n, uint32_t item)
{
    size_t i = (*n)++;
    while (i && heap[(i - 1) / 2] > item) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = item;
}

static uint32_t heap_pop(uint32_t *heap, size_t *n)
{
    uint32_t top = heap[0], item = heap[--*n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *n) break;
        if (child + 1 < *n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= item) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = item;
    return top;
}

static bool topological_order(const weft_graph *g, edges *e, uint32_t *heap, schedule *s,
                              weft_error *error)
{
    size_t in_heap = 0, done = 0;
    for (uint32_t n = 0; n < g->n_nodes; n++)
        if (!e->waits[n]) heap_push(heap, &in_heap, n);
    while (in_heap) {
        uint32_t n = heap_pop(heap, &in_heap);
        done++;
        if (graph_node_runs(g, &g->nodes[n])) s->order[s->n++] = n;
        for (uint32_t k = e->first[n]; k; k = e->next[k])
            if (!--e->waits[e->to[k]]) heap_push(heap, &in_heap, e->to[k]);
    }
    if (done == g->n_nodes) return true;
    weft_error_set(error, WEFT_BAD_ARGUMENT, "plan",
                   "a node reads both the old and the new contents of a state; copy the old "
                   "(weft_contiguous) first");
    return false;
}

bool order_nodes(const weft_graph *g, schedule *s, weft_error *error)
{
    size_t capacity = 2;
    for (size_t n = 0; n < g->n_nodes; n++) capacity += 2 * g->nodes[n].n_in;
    edges e = {calloc(g->n_nodes + 1, 4),
               calloc(capacity, 4),
               calloc(capacity, 4),
               calloc(g->n_nodes + 1, 4),
               0,
               (uint32_t)capacity};
    uint32_t *heap = calloc(g->n_nodes + 1, sizeof *heap);
    bool good = e.first && e.next && e.to && e.waits && heap ? true : plan_no_memory(error);
    good = good && collect_edges(g, &e, error) && topological_order(g, &e, heap, s, error);
    free(e.first);
    free(e.next);
    free(e.to);
    free(e.waits);
    free(heap);
    return good;
}

bool order_fixed(const weft_graph *g, schedule *s)
{
    uint8_t *fixed = calloc(g->n_nodes + 1, 1);
    uint32_t *order = malloc((s->n + 1) * sizeof *order);
    const bool good = fixed && order;
    if (good) {
        passes_mark_fixed(g, fixed);
        memcpy(order, s->order, s->n * sizeof *order);
        for (size_t i = 0; i < s->n; i++)
            if (fixed[order[i]]) s->order[s->n_fixed++] = order[i];
        for (size_t i = 0, at = s->n_fixed; i < s->n; i++)
            if (!fixed[order[i]]) s->order[at++] = order[i];
    }
    free(fixed);
    free(order);
    return good;
}

/* ---- Groups ---- */

/* A group with less work, in bytes plus flops, runs on one thread. Such small groups run from the
 * cache at some 20 bytes and 30 flops a nanosecond, so this is about half a microsecond: no more
 * than waking the other threads and a barrier take. */
#define SERIAL_WORK 16384.0

/* Adds a step to the plan's totals, unless only the first run computes it; returns its bytes plus
 * flops. */
static double count_work(weft_plan *plan, const plan_step *step, bool fixed)
{
    weft_cost cost = plan_step_cost(plan, step);
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
            ns += passes_nanoseconds(plan_step_cost(plan, step + k));
        total += ns + (double)step->tiles[0] + (double)step->tiles[1];
        if (!(total <= MAX_WORK)) {
            char where[256];
            weft_error_set(error, WEFT_TOO_LARGE,
                           graph_node_where(plan->graph, step->node, where, sizeof where),
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

/* Cuts the steps into groups: the longest stretches of steps that may run side by side. */
static bool cut_groups(weft_plan *plan, const uint32_t *storage, size_t n_fixed)
{
    uint32_t *written = calloc(plan->graph->n_values, sizeof *written);
    uint32_t *read = calloc(plan->graph->n_values, sizeof *read), since = 0;
    const bool good = written && read;
    double work = 0;
    bool updates = false, exchanges = false;
    plan_group *group = NULL;
    for (uint32_t i = 0; good && i < plan->n_steps; i++) {
        const plan_step *step = &plan->steps[i];
        const node_record *node = &plan->graph->nodes[step->node];
        bool is_update = node->op->updates > 0;
        if (i == n_fixed) plan->fixed_groups = (uint32_t)plan->n_groups;
        if (!group || i == n_fixed ||
            (!step->fused && (is_update != updates || !joins_group(plan, storage, step, since,
                                                                   written, read, exchanges)))) {
            group = &plan->groups[plan->n_groups++];
            *group = (plan_group){.first_step = i};
            since = i;
            work = 0;
            updates = is_update;
            exchanges = false;
        }
        exchanges |= node->op->exchanges;
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
    return good;
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

/* sort_group is an insertion sort. Larger groups are updates, many and alike: not worth sorting. */
#define MAX_SORTED 255

bool groups_make(weft_plan *plan, const uint32_t *storage, size_t n_fixed, weft_error *error)
{
    plan->groups = arena_alloc(&plan->arena, (plan->n_steps + 1) * sizeof *plan->groups);
    if (!plan->groups || !cut_groups(plan, storage, n_fixed)) return plan_no_memory(error);
    for (size_t g = 0; g < plan->n_groups; g++) {
        plan_group *group = &plan->groups[g];
        if (!weigh_group(plan, group, error)) return false;
        if (group->n_steps > 1 && group->n_steps <= MAX_SORTED && !sort_group(plan, group))
            return plan_no_memory(error);
    }
    number_intervals(plan);
    return true;
}
