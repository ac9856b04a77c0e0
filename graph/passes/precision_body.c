/* How the operands of a scan are stored if its plan stores values as bf16: as those of the same steps
 * without a loop. A carry is stored as bf16 if the node of the body that computes it can write that,
 * and a node of this step or of the next one, or a stack, can read it. So the bits are those of the
 * steps as nodes, except where these round less: the first carries if they are not rounded, and the
 * last ones if they are results of the plan. O(nodes of the body). */
#include "precision.h"

#include "base/text.h"

#include <stdlib.h>

/* Marks in read[], by value that owns storage, what some node of the body can read as bf16, or a stack.
 * False if out of memory. */
static bool mark_read(const scan_body *b, const weft_plan_options *options, uint8_t *read)
{
    const weft_graph *g = b->graph;
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const node_record *node = &g->nodes[n];
        uint8_t *inner = NULL;
        if (node->op->alias) continue;
        if (scan_of(node->op, node->attr) && !(inner = weft__precision_scan_forms(g, n, options)))
            return false;
        for (size_t i = 0; i < node->n_in; i++)
            if (inner ? inner[i] : weft__precision_can_read(g, n, i))
                read[g->values[node->in[i]].root] = 1;
        free(inner);
    }
    for (uint32_t k = b->n_carry; k < b->n_carry + b->n_out; k++)
        read[g->values[b->out[k]].root] = 1;
    return true;
}

static bool is_carry_narrow(const scan_body *b, uint32_t carry, const uint8_t *read,
                            const weft_plan_options *options)
{
    const value_record *v = &b->graph->values[b->out[carry]];
    return weft_shape_numel(v->type.shape) >= precision_least(options) &&
           weft__precision_may_compute(b->graph, v->root, options) &&
           (read[v->root] || read[b->in[carry]]);
}

/* A stack has the storage of the values that it consists of. */
static bool is_stack_narrow(const scan_body *b, uint32_t k, const uint8_t *carries,
                            const weft_plan_options *options)
{
    const uint32_t root = b->graph->values[b->out[k]].root;
    for (uint32_t c = 0; c < b->n_carry; c++)
        if (b->out[c] == b->out[k] || b->in[c] == root) return carries[c];
    return weft__precision_may_compute(b->graph, root, options);
}

uint8_t *weft__precision_scan_forms(const weft_graph *graph, size_t node,
                                    const weft_plan_options *options)
{
    const node_record *record = &graph->nodes[node];
    const scan_body *b = scan_of(record->op, record->attr)->body;
    const uint32_t n_in = scan_inputs(b);
    uint8_t *read = calloc(b->graph->n_values, 1);
    uint8_t *narrow = calloc((size_t)n_in + b->n_carry + b->n_out, 1);
    const bool kept = weft__text_in_scopes(options->keep_f32, record->scope);
    const bool good = read && narrow && mark_read(b, options, read);
    for (uint32_t i = b->n_carry; good && !kept && i < n_in; i++) narrow[i] = read[b->in[i]];
    for (uint32_t c = 0; good && !kept && c < b->n_carry; c++)
        narrow[c] = narrow[n_in + c] = is_carry_narrow(b, c, read, options);
    for (uint32_t k = b->n_carry; good && !kept && k < b->n_carry + b->n_out; k++)
        narrow[n_in + k] = is_stack_narrow(b, k, narrow, options);
    free(read);
    if (good) return narrow;
    free(narrow);
    return NULL;
}
