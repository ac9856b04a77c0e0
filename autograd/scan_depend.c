/* Which results of a node depend on which of its inputs; those of a scan only by what its body computes.
 * O(nodes of the body), once more for each carry. */
#include "scan.h"

#include <stdlib.h>

/* Marks what depends on the inputs of a scan that are marked; false if out of memory. If some steps do not
 * run, all results depend on what says so, and a last carry on the first one. */
static bool mark_outputs(const scan_attr *a, const weft_node_info *node, uint8_t *depends)
{
    const scan_body *b = a->body;
    uint8_t *inner = calloc(b->graph->n_values, 1);
    bool good = inner, again = true;
    for (uint32_t i = 0; good && i < scan_inputs(b); i++) inner[b->in[i]] = depends[node->in[i]];
    while (good && again) {
        again = false;
        for (size_t n = 0; good && n < b->graph->n_nodes; n++)
            good = weft__scan_mark_dependent(b->graph, n, inner);
        for (uint32_t i = 0; good && i < b->n_carry; i++) {
            again |= inner[b->out[i]] > inner[b->in[i]];
            inner[b->in[i]] |= inner[b->out[i]];
        }
    }
    const uint8_t runs = good && b->when ? inner[b->in[b->when - 1]] : 0;
    for (size_t k = 0; good && k < node->n_out; k++) {
        const bool passes = b->when && k < b->n_carry;
        depends[node->first_out + k] = inner[b->out[k]] | runs | (passes ? inner[b->in[k]] : 0);
    }
    free(inner);
    return good;
}

bool weft__scan_mark_dependent(const weft_graph *g, size_t index, uint8_t *depends)
{
    const weft_node_info node = weft_graph_node(g, index);
    const scan_attr *scan = scan_of(node.op, node.attr);
    bool any = false;
    for (size_t i = 0; i < node.n_in; i++) any |= depends[node.in[i]];
    if (any && scan) return mark_outputs(scan, &node, depends);
    for (size_t i = 0; any && i < node.n_out; i++) depends[node.first_out + i] = 1;
    return true;
}
