/* What a scan stores for its gradient: the carries that came into each step, and the values of the
 * steps that take long to compute again. They are outputs of the scan; a plan leaves out what
 * nothing reads (graph/passes/prune.c). O(nodes of the body). */
#include "scan.h"

#include <stdlib.h>

static bool is_cheap(const weft_op *op)
{
    return op->elementwise || op->alias;
}

void weft__scan_mark_stored(const scan_body *b, uint8_t *stored)
{
    const weft_graph *g = b->graph;
    enum { VARIES = 1, COSTLY = 2, VIEW = 4 };
    for (uint32_t i = 0; i < b->n_carry + b->n_each; i++) stored[b->in[i]] = VARIES;
    for (size_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node_info node = weft_graph_node(g, n);
        uint8_t kind = 0;
        for (size_t i = 0; i < node.n_in; i++) kind |= stored[node.in[i]] & (VARIES | COSTLY);
        if (node.n_in && !is_cheap(node.op)) kind |= COSTLY;
        if (node.op->alias) kind |= VIEW;
        for (size_t k = 0; node.n_in && k < node.n_out; k++) stored[node.first_out + k] = kind;
    }
    for (size_t i = 0; i < g->n_values; i++)
        stored[i] = stored[i] == (VARIES | COSTLY) && g->values[i].type.shape.rank < WEFT_MAX_RANK;
}

/* Leaves in stored[] only what the results of the body need and do not list. */
static bool mark_needed(const scan_body *b, uint8_t *stored)
{
    const weft_graph *g = b->graph;
    uint8_t *alive = calloc(weft_graph_node_count(g) + 1, 1);
    if (!alive) return false;
    for (uint32_t k = 0; k < b->n_carry + b->n_out; k++) alive[g->values[b->out[k]].node] = 1;
    for (size_t n = weft_graph_node_count(g); n-- > 0;)
        for (size_t i = 0; alive[n] && i < g->nodes[n].n_in; i++)
            alive[g->values[g->nodes[n].in[i]].node] = 1;
    for (size_t i = 0; i < g->n_values; i++) stored[i] &= alive[g->values[i].node];
    for (uint32_t k = b->n_carry; k < b->n_carry + b->n_out; k++) stored[b->out[k]] = 0;
    free(alive);
    return true;
}

/* Appends the values to the outputs if all of them fit; without `cheap`, those that elementwise
 * nodes compute are left out. */
static bool append(scan_body *b, const uint8_t *stored, bool cheap)
{
    const weft_graph *g = b->graph;
    const uint32_t n_out = b->n_out;
    for (size_t i = 0; i < g->n_values; i++) {
        if (!stored[i] || (!cheap && is_cheap(g->nodes[g->values[i].node].op))) continue;
        if (b->n_carry + b->n_out == WEFT_MAX_OUTPUTS) {
            b->n_out = n_out;
            return false;
        }
        b->out[b->n_carry + b->n_out++] = (uint32_t)i;
    }
    return true;
}

/* Whether a stack of n values of this type is possible. */
static bool can_stack(const weft_type *type, int64_t n)
{
    return weft_shape_numel(scan_stack_shape(type->shape, n)) >= 0;
}

bool weft__scan_list_stored(scan_body *b, int64_t n, bool recompute)
{
    bool fits = 2 * b->n_carry + b->n_out <= WEFT_MAX_OUTPUTS;
    for (uint32_t i = 0; i < b->n_carry; i++)
        fits &= can_stack(&b->graph->values[b->in[i]].type, n);
    if (!fits) return true;
    for (uint32_t i = 0; i < b->n_carry; i++) b->out[b->n_carry + b->n_out++] = b->in[i];
    if (recompute) return true;
    uint8_t *stored = calloc(b->graph->n_values + 1, 1);
    if (!stored) return false;
    weft__scan_mark_stored(b, stored);
    for (size_t i = 0; i < b->graph->n_values; i++)
        stored[i] = stored[i] && can_stack(&b->graph->values[i].type, n);
    const bool good = mark_needed(b, stored);
    if (good && !append(b, stored, true)) append(b, stored, false);
    free(stored);
    return good;
}
