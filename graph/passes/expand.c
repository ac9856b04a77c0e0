/* expand: ops without kernels of their own, or none for the dtype, become plainer ones. An
 * expansion may hold others, so the pass runs until there are none. O(nodes) each time. */
#include "rewrite.h"

static bool is_expanded(const weft_graph *graph, const node_record *node)
{
    return node->op->expand && !node->op->alias && !graph_node_runs(graph, node);
}

static bool visit_expand(rewrite *r, const node_record *node, weft_value *out)
{
    const weft_op *op = node->op;
    if (!is_expanded(r->src, node)) return false;
    weft_expand expand = {r->dst, node->attr, node->n_in, op->n_out, r->in, out};
    op->expand(&expand);
    for (size_t i = 0; i < op->n_out; i++) {
        const value_record *old = &r->src->values[node->first_out + i];
        if (weft_graph_status(r->dst) != WEFT_OK) break;
        if (!graph_owns(r->dst, out[i]) ||
            !weft_shape_equal(weft_shape_of(r->dst, out[i]), old->type.shape) ||
            weft_dtype_of(r->dst, out[i]) != old->type.dtype)
            weft_graph_fail_in(r->dst, op->name, WEFT_INTERNAL,
                               "the expansion has another type than the op");
    }
    return true;
}

static bool needs_expansion(const weft_graph *graph)
{
    for (size_t i = 0; i < graph->n_nodes; i++)
        if (is_expanded(graph, &graph->nodes[i])) return true;
    return false;
}

const pass pass_expand = {.name = "expand",
                          .doc = "ops without a kernel become plainer ones",
                          .required = true,
                          .visit = visit_expand,
                          .needed = needs_expansion};
