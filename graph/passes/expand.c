/* expand: an op without a kernel, or without one for the dtype, becomes simpler ops. An expansion
 * may hold others, so the pass repeats until there are none. O(nodes) each time. */
#include "rewrite.h"

static bool is_expanded(const weft_graph *graph, const node_record *node)
{
    return node->op->expand && !node->op->alias && !weft__graph_node_runs(graph, node);
}

static bool visit(weft_rewrite *r)
{
    const weft_op *op = r->node.op;
    if (!is_expanded(r->source, &r->source->nodes[r->index])) return false;
    weft_expand expand = {r->graph, r->node.attr, r->node.n_in, op->n_out, r->in, r->out};
    op->expand(&expand);
    for (size_t i = 0; i < op->n_out; i++) {
        const value_record *old = &r->source->values[r->node.first_out + i];
        if (weft_graph_status(r->graph) != WEFT_OK) break;
        if (!weft__graph_owns(r->graph, r->out[i]) ||
            !weft_shape_equal(weft_shape_of(r->graph, r->out[i]), old->type.shape) ||
            weft_dtype_of(r->graph, r->out[i]) != old->type.dtype)
            weft_graph_fail_in(r->graph, op->name, WEFT_INTERNAL,
                               "the type of the expansion differs from the op's");
    }
    return true;
}

static bool needed(const weft_graph *graph)
{
    for (size_t i = 0; i < graph->n_nodes; i++)
        if (is_expanded(graph, &graph->nodes[i])) return true;
    return false;
}

const pass weft__pass_expand = {.rule = {.name = "expand",
                                         .doc = "ops without a kernel are replaced by simpler ones",
                                         .visit = visit,
                                         .needed = needed,
                                         .required = true},
                                .repeats = true};
