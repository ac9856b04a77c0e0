/* The buffers of a plan: their lifetimes in intervals, their offsets, and the place of every
 * operand. O(operands), but for the packing (pack.c). */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* What only the first step of a loop computes stays in the arena. */
static void keep_fixed(weft_plan *plan)
{
    for (uint32_t g = 0; g < plan->fixed_intervals; g++)
        for (uint32_t i = 0; i < plan->intervals[g].n_steps; i++) {
            const plan_step *step = &plan->steps[plan->intervals[g].first_step + i];
            const node_record *node = &plan->graph->nodes[step->node];
            for (uint32_t k = 0; k < node->op->n_out; k++)
                plan->given[plan->buffer_of[node->first_out + k] - 1] = 0;
        }
}

/* Makes one buffer for each storage in the arena. Those that live throughout have their lifetimes;
 * the others have none until extend_lifetimes. */
static void make_buffers(weft_plan *plan, const uint32_t *storage, bool no_reuse)
{
    const weft_graph *g = plan->graph;
    const uint32_t last_interval = (uint32_t)plan->n_intervals;
    for (uint32_t v = 1; v < g->n_values; v++) {
        uint32_t s = storage[v];
        const weft_op *op = g->nodes[g->values[s].node].op;
        if (op == &weft_op_state || op == &weft_op_constant || op == &weft_op_group) continue;
        if (!plan->buffer_of[s]) {
            plan->buffers[plan->n_buffers++] =
                (weft_plan_buffer){0, weft__storage_bytes(g, s), last_interval, 0};
            plan->buffer_of[s] = (uint32_t)plan->n_buffers;
        }
        plan->buffer_of[v] = plan->buffer_of[s];
        weft_plan_buffer *b = &plan->buffers[plan->buffer_of[s] - 1];
        if (op == &weft_op_input && plan->body) plan->given[plan->buffer_of[s] - 1] = 1;
        if (op == &weft_op_input) plan->readable[v] = g->nodes[g->values[v].node].op == op;
        if (op == &weft_op_input || no_reuse)
            *b = (weft_plan_buffer){0, b->bytes, 0, last_interval};
    }
    for (size_t i = 0; i < plan->n_targets; i++) {
        uint32_t v = plan->targets[i].value.id;
        plan->readable[v] = 1;
        if (!plan->buffer_of[v]) continue;
        plan->buffers[plan->buffer_of[v] - 1].last = last_interval;
        if (plan->body && weft__loop_covers(plan->graph, v))
            plan->given[plan->buffer_of[v] - 1] = 1;
    }
    if (plan->body) keep_fixed(plan);
}

static void touch(weft_plan *plan, uint32_t value, uint32_t interval)
{
    if (!plan->buffer_of[value]) return;
    weft_plan_buffer *b = &plan->buffers[plan->buffer_of[value] - 1];
    if (interval < b->first) b->first = interval;
    if (interval > b->last) b->last = interval;
}

/* Makes each buffer live from the first to the last interval that touches it, and one more buffer
 * for each scratch. */
static void extend_lifetimes(weft_plan *plan, bool no_reuse)
{
    const weft_graph *g = plan->graph;
    const uint32_t last_interval = (uint32_t)plan->n_intervals;
    for (uint32_t interval = 0; interval < plan->n_intervals; interval++) {
        plan_step *step = &plan->steps[plan->intervals[interval].first_step];
        for (uint32_t k = 0; k < plan->intervals[interval].n_steps; k++, step++) {
            const node_record *node = &g->nodes[step->node];
            for (size_t i = 0; i < node->n_in; i++) touch(plan, node->in[i], interval);
            for (uint32_t i = 0; i < node->op->n_out; i++)
                touch(plan, node->first_out + i, interval);
            if (!step->scratch) continue;
            plan->buffers[plan->n_buffers++] =
                (weft_plan_buffer){0, (step->scratch + 63) / 64 * 64, no_reuse ? 0 : interval,
                                   no_reuse ? last_interval : interval};
            step->scratch_buffer = (uint32_t)plan->n_buffers;
        }
    }
    /* What later runs read is never overwritten. */
    for (size_t i = 0; i < plan->n_buffers; i++) {
        weft_plan_buffer *b = &plan->buffers[i];
        if (b->first < plan->fixed_intervals && b->last >= plan->fixed_intervals)
            b->last = last_interval;
    }
}

bool weft__buffers_make(weft_plan *plan, const uint32_t *storage, bool no_reuse, weft_error *error)
{
    const size_t n_values = plan->graph->n_values;
    if (!plan->buffers) {
        plan->buffers =
            weft__arena_alloc(&plan->arena, (n_values + plan->n_steps) * sizeof *plan->buffers);
        plan->buffer_of = weft__arena_alloc(&plan->arena, n_values * sizeof *plan->buffer_of);
        plan->readable = weft__arena_alloc(&plan->arena, n_values);
        plan->given = weft__arena_alloc(&plan->arena, n_values + plan->n_steps);
    }
    if (!plan->given || !plan->buffers || !plan->buffer_of || !plan->readable)
        return plan_no_memory(error);
    plan->n_buffers = 0;
    memset(plan->buffer_of, 0, n_values * sizeof *plan->buffer_of);
    memset(plan->given, 0, n_values + plan->n_steps);
    make_buffers(plan, storage, no_reuse);
    extend_lifetimes(plan, no_reuse);
    return true;
}

bool weft__buffers_peak(const weft_plan *plan, uint32_t *interval, size_t *bytes)
{
    const uint32_t n = (uint32_t)plan->n_intervals;
    size_t *born = calloc(2 * ((size_t)n + 2), sizeof *born), alive = 0;
    if (!born) return false;
    size_t *gone = born + n + 2;
    for (size_t i = 0; i < plan->n_buffers; i++) {
        const weft_plan_buffer *b = &plan->buffers[i];
        if (b->first > b->last) continue; /* no step touches it */
        born[b->first] += b->bytes;
        gone[b->last + 1] += b->bytes;
    }
    *interval = 0;
    *bytes = 0;
    for (uint32_t g = 0; g < n; g++) {
        alive += born[g];
        alive -= gone[g];
        if (alive <= *bytes) continue;
        *bytes = alive;
        *interval = g;
    }
    free(born);
    return true;
}

place weft__plan_place(const weft_plan *plan, uint32_t id)
{
    const weft_graph *g = plan->graph;
    const value_record *v = &g->values[id];
    const weft_op *op = g->nodes[g->values[v->root].node].op;
    size_t offset = (size_t)v->layout.offset * weft_dtype_bytes(v->stored);
    if (op == &weft_op_state) return (place){STORAGE_STATE, v->root, offset};
    if (op == &weft_op_constant) return (place){STORAGE_CONSTANT, v->root, offset};
    size_t base = plan->buffer_of[id] ? plan->buffers[plan->buffer_of[id] - 1].offset : 0;
    return (place){STORAGE_ARENA, v->root, base + offset};
}

/* Limits of the search for offsets. A node of it takes about a quarter of a nanosecond for each
 * pair of a buffer and an interval in which it is alive, and at least about a microsecond. */
#define PACK_WORK  200e6 /* pairs, over all nodes */
#define PACK_NODES 20000

/* The nodes that the search may visit; 0 if they are too few to complete one packing. */
static uint64_t pack_nodes(const weft_plan *plan)
{
    double alive = 1;
    for (size_t i = 0; i < plan->n_buffers; i++)
        alive += plan->buffers[i].last - plan->buffers[i].first + 1;
    double nodes = PACK_WORK / alive < PACK_NODES ? PACK_WORK / alive : PACK_NODES;
    return nodes < 1.5 * (double)plan->n_buffers ? 0 : (uint64_t)nodes;
}

/* Sets the offsets of packed buffers, and those of given ones beyond the arena. */
static void set_offsets(weft_plan *plan, const weft_pack_item *items)
{
    size_t end = plan->stats.arena_bytes;
    for (size_t i = 0, k = 0; i < plan->n_buffers; i++) {
        weft_plan_buffer *b = &plan->buffers[i];
        b->offset = plan->given[i] ? end : items[k++].offset;
        if (plan->given[i]) end += b->bytes;
    }
    plan->given_bytes = end - plan->stats.arena_bytes;
}

static bool pack_buffers(weft_plan *plan, weft_error *error)
{
    weft_plan_stats *stats = &plan->stats;
    weft_pack_item *items = calloc(plan->n_buffers + 1, sizeof *items);
    if (!items) return plan_no_memory(error);
    size_t n = 0;
    for (size_t i = 0; i < plan->n_buffers; i++) {
        const weft_plan_buffer *b = &plan->buffers[i];
        if (!plan->given[i])
            items[n++] = (weft_pack_item){b->first, (int64_t)b->last + 1, b->bytes, 0};
    }
    /* No limit in seconds, so that a plan is the same on every machine. */
    const uint64_t nodes = pack_nodes(plan);
    const weft_pack_options options = {
        .alignment = 64, .node_budget = nodes, .best_fit_only = !nodes};
    weft_pack_result result;
    bool good = weft_pack(items, n, &options, &result, error) == WEFT_OK;
    stats->arena_bytes = result.arena_bytes;
    stats->lower_bound_bytes = result.lower_bound_bytes;
    stats->packed = result.end;
    if (good) set_offsets(plan, items);
    free(items);
    return good;
}

bool weft__buffers_place(weft_plan *plan, weft_error *error)
{
    weft_plan_stats *stats = &plan->stats;
    for (size_t i = 0; i < plan->n_buffers; i++) {
        if (stats->sum_bytes > SIZE_MAX / 4 - plan->buffers[i].bytes) {
            weft_error_set(error, WEFT_TOO_LARGE, "plan", "the buffers overflow a size");
            return false;
        }
        stats->sum_bytes += plan->buffers[i].bytes;
    }
    if (!pack_buffers(plan, error)) return false;
    for (size_t i = 0; i < plan->n_steps; i++) {
        plan_step *step = &plan->steps[i];
        const node_record *node = &plan->graph->nodes[step->node];
        if (step->scratch) step->scratch = plan->buffers[step->scratch_buffer - 1].offset;
        place *at = plan->places + step->first_operand;
        for (size_t k = 0; k < node->n_in; k++) *at++ = weft__plan_place(plan, node->in[k]);
        for (size_t k = 0; k < node->op->n_out; k++)
            *at++ = weft__plan_place(plan, node->first_out + (uint32_t)k);
    }
    return true;
}
