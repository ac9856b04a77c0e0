/* Which values share storage. A view lies in its root's storage. An op may compute in place: its
 * output takes over the storage of an input, if the op is the last to read it. O(nodes). */
#include "plan/plan.h"

#include <stdlib.h>

typedef struct planner {
    const weft_graph *g;
    const schedule *schedule;
    uint32_t *storage;   /* by value: see weft__storage_assign */
    uint32_t *last_read; /* by storage: position + 1 of its last reader so far */
    uint8_t *pinned;     /* by storage: it must not be taken over */
} planner;

/* The storage of a value before all are settled: a view's is its root's. */
static uint32_t storage_of(const planner *p, uint32_t id)
{
    return p->storage[p->g->values[id].root];
}

size_t weft__storage_bytes(const weft_graph *g, uint32_t id)
{
    return (weft__graph_value_bytes(g, id) + 63) / 64 * 64;
}

/* May output 0 of a node take over the storage of input i? */
static bool fits_in_place(const planner *p, const node_record *node, size_t i)
{
    const weft_graph *g = p->g;
    const value_record *in = &g->values[node->in[i]], *out = &g->values[node->first_out];
    const uint32_t s = storage_of(p, node->in[i]);
    if (in->type.dtype != out->type.dtype || in->stored != out->stored || in->layout.offset != 0 ||
        !weft_shape_equal(in->type.shape, out->type.shape) ||
        !weft_layout_is_dense(&in->layout, in->type.shape) ||
        weft__storage_bytes(g, s) != weft__storage_bytes(g, node->first_out))
        return false;
    for (size_t k = 0; k < node->n_in; k++) /* another input may read the same storage */
        if (k != i && storage_of(p, node->in[k]) == s) return false;
    return true;
}

/* The input whose storage output 0 takes over, or -1. `head` is the position of the head of the
 * node's fused group, or the node's own. */
static int inplace_input(const planner *p, uint32_t head, uint32_t position)
{
    const node_record *node = &p->g->nodes[p->schedule->order[position]];
    if (node->op->updates) return -1;
    for (size_t i = 0; i < node->n_in && i < 8; i++) {
        uint32_t s = storage_of(p, node->in[i]);
        if (node->op->inplace >> i & 1 && !p->pinned[s] && p->last_read[s] <= position + 1 &&
            fits_in_place(p, node, i) &&
            weft__fused_may_overwrite(p->g, p->schedule, head, position, p->storage, s))
            return (int)i;
    }
    return -1;
}

/* Inputs, states, constants and targets are never taken over. */
static void pin_storages(planner *p, const plan_target *targets, size_t n_targets)
{
    const weft_graph *g = p->g;
    for (uint32_t v = 1; v < g->n_values; v++) {
        p->storage[v] = g->values[v].root;
        if (weft__op_is_leaf(g->nodes[g->values[g->values[v].root].node].op))
            p->pinned[p->storage[v]] = 1;
    }
    for (size_t i = 0; i < n_targets; i++) p->pinned[g->values[targets[i].value.id].root] = 1;
}

/* No run overwrites what the first one has computed for all. */
static void pin_fixed(planner *p)
{
    for (size_t at = 0; at < p->schedule->n_fixed; at++) {
        const node_record *node = &p->g->nodes[p->schedule->order[at]];
        for (uint32_t k = 0; k < node->op->n_out; k++)
            p->pinned[storage_of(p, node->first_out + k)] = 1;
    }
}

static void take_over(planner *p)
{
    const weft_graph *g = p->g;
    const schedule *order = p->schedule;
    for (uint32_t at = 0; at < order->n; at++) {
        const node_record *node = &g->nodes[order->order[at]];
        for (size_t i = 0; i < node->n_in; i++) p->last_read[g->values[node->in[i]].root] = at + 1;
    }
    for (uint32_t at = 0, head = 0; at < order->n; at++) {
        const node_record *node = &g->nodes[order->order[at]];
        if (at > head + order->n_fused[head]) head = at;
        if (at == order->n_fixed) pin_fixed(p);
        int i = inplace_input(p, head, at);
        if (i < 0) continue;
        uint32_t out = node->first_out, s = storage_of(p, node->in[i]);
        /* A target pins its storage before its contents are there, so that no later node takes it
         * over either. */
        if (p->pinned[out]) p->pinned[s] = 1;
        p->last_read[s] = p->last_read[out];
        p->storage[out] = s; /* and with it all views of the output */
    }
}

bool weft__storage_assign(const weft_graph *g, const schedule *order, const plan_target *targets,
                          size_t n_targets, bool no_reuse, uint32_t *storage)
{
    planner p = {.g = g,
                 .schedule = order,
                 .storage = storage,
                 .last_read = calloc(g->n_values, sizeof(uint32_t)),
                 .pinned = calloc(g->n_values, 1)};
    const bool good = p.last_read && p.pinned;
    if (good) {
        pin_storages(&p, targets, n_targets);
        if (!no_reuse) take_over(&p);
        for (uint32_t v = 1; v < g->n_values; v++) storage[v] = storage_of(&p, v);
    }
    free(p.last_read);
    free(p.pinned);
    return good;
}
