/* When nodes run.
 *
 * Order: topological by id, updates after every reader of the old state (a heap of ready nodes).
 * Groups: neighbours in the order that touch no storage that another of the group writes run side
 * by side; a barrier stands between groups, except between those that one thread runs.
 * O(nodes log nodes). */
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

/* For each value that an update overwrites: the update's node, in overwriter[version]. Then every
 * node that reads the version goes before it. */
static bool collect_edges(const weft_graph *g, edges *e, weft_error *error)
{
    uint32_t *overwriter = calloc(g->n_values, sizeof *overwriter);
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
            /* A view reads nothing itself, and a group only waits. */
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

/* ---- Groups ---- */

/* Work below which waking the other threads costs more than it gains: in bytes, of which about 20
 * pass in a nanosecond, and flops, of which 30 do; a barrier costs about a third of a microsecond.
 */
#define SERIAL_WORK 16384.0

/* What a core does in a nanosecond, so that threads can share out tiles of different nodes evenly.
 */
#define FLOPS_PER_NS 150.0
#define BYTES_PER_NS 15.0

static double step_work(weft_plan *plan, const plan_step *step)
{
    weft_cost cost = plan_step_cost(plan, step);
    plan->stats.flops += cost.flops;
    plan->stats.bytes += cost.bytes;
    return cost.bytes + cost.flops;
}

/* A step with all that are fused with it, and the nanoseconds of one of its tiles. */
typedef struct unit {
    uint32_t first, n;
    int64_t tile_work;
} unit;

/* Puts the steps with the longest tiles first, so that a group does not end in one of them while
 * the other threads wait. The steps of a group do not depend on each other. */
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

/* The nanoseconds of a group that the executor can count (36 years), with room for sums of two. */
#define MAX_WORK 0x1p60

/* Adds up a group's work, phase by phase. False if a node, whose shape broadcasting has made of
 * next to nothing, would take longer than can be counted. */
static bool weigh_group(weft_plan *plan, plan_group *group, weft_error *error)
{
    double total = 0;
    for (uint32_t i = group->first_step; i < group->first_step + group->n_steps; i++) {
        plan_step *step = &plan->steps[i];
        double ns = 0;
        if (step->fused) continue;
        for (uint32_t k = 0; k <= step->n_fused; k++) {
            weft_cost cost = plan_step_cost(plan, step + k);
            ns += cost.flops / FLOPS_PER_NS + cost.bytes / BYTES_PER_NS;
        }
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
 * read[] hold, by storage, the position + 1 of the last step that did so. */
static bool joins_group(const weft_plan *plan, const uint32_t *storage, const plan_step *step,
                        uint32_t since, const uint32_t *written, const uint32_t *read)
{
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

bool groups_make(weft_plan *plan, const uint32_t *storage, weft_error *error)
{
    uint32_t *written = calloc(plan->graph->n_values, 4), *read = calloc(plan->graph->n_values, 4),
             since = 0;
    plan->groups = arena_alloc(&plan->arena, (plan->n_steps + 1) * sizeof *plan->groups);
    if (!written || !read || !plan->groups) {
        free(written);
        free(read);
        return plan_no_memory(error);
    }
    double work = 0;
    bool updates = false;
    plan_group *group = NULL;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const plan_step *step = &plan->steps[i];
        const node_record *node = &plan->graph->nodes[step->node];
        bool is_update = node->op->updates > 0;
        if (!group || (!step->fused && (is_update != updates ||
                                        !joins_group(plan, storage, step, since, written, read)))) {
            group = &plan->groups[plan->n_groups++];
            *group = (plan_group){.first_step = i};
            since = i;
            work = 0;
            updates = is_update;
        }
        group->n_steps++;
        if (step->phases > group->phases) group->phases = step->phases;
        work += step_work(plan, step);
        /* Updates start behind a barrier: there the run stops if an earlier node failed. */
        group->serial = work < SERIAL_WORK && !is_update;
        for (size_t k = 0; k < node->n_in; k++) read[storage[node->in[k]]] = i + 1;
        for (size_t k = 0; k < node->op->n_out; k++) written[storage[node->first_out + k]] = i + 1;
    }
    uint32_t segment = 0;
    bool good = true;
    for (size_t g = 0; g < plan->n_groups; g++) {
        if (g && !(plan->groups[g].serial && plan->groups[g - 1].serial)) segment++;
        plan->groups[g].segment = segment;
        for (uint32_t k = 0; k < plan->groups[g].n_steps; k++)
            plan->steps[plan->groups[g].first_step + k].segment = segment;
        plan_group *now = &plan->groups[g];
        good = good && weigh_group(plan, now, error);
        /* Insertion sort: for updates, of which there are many all alike, it is not worth it. */
        if (now->n_steps > 1 && now->n_steps < 256) good = good && sort_group(plan, now);
        if (!now->serial && now->work[0] && now->work[1]) plan->stats.barriers++;
    }
    plan->stats.barriers += segment;
    free(written);
    free(read);
    return good || plan_no_memory(error);
}
