/* Which values may be stored as bf16: what nodes can write and read, and what is large enough. */
#include "precision.h"

#include "base/text.h"

bool weft__precision_can_write(const weft_graph *g, uint32_t node, size_t output)
{
    const weft_op *op = g->nodes[node].op;
    const bool allowed = op->narrow_out >> output & 1;
    if (weft__op_has_kernel(op, WEFT_BF16)) return allowed;
    return (op->elementwise || allowed) && weft__fuse_runs_by_blocks(g, node);
}

bool weft__precision_can_read(const weft_graph *g, uint32_t node, size_t input)
{
    const node_record *n = &g->nodes[node];
    if (weft__op_has_kernel(n->op, WEFT_BF16))
        return n->op->narrow_in == WEFT_NARROW_ALL || (input < 8 && n->op->narrow_in >> input & 1);
    return (n->op->elementwise || node_rows(n) >> input & 1) && weft__fuse_runs_by_blocks(g, node);
}

bool weft__precision_may_narrow(const weft_graph *g, uint32_t id, const weft_plan_options *options)
{
    const value_record *v = &g->values[id];
    const node_record *node = &g->nodes[v->node];
    return v->root == id && v->type.dtype == WEFT_F32 &&
           weft_shape_numel(v->type.shape) >= precision_least(options) &&
           weft__graph_node_runs(g, node) && node->role.direction != WEFT_UPDATE &&
           !weft__text_in_scopes(options->keep_f32, node->scope);
}

bool weft__precision_may_compute(const weft_graph *g, uint32_t id, const weft_plan_options *options)
{
    const uint32_t node = g->values[id].node;
    return weft__precision_may_narrow(g, id, options) &&
           weft__precision_can_write(g, node, id - g->nodes[node].first_out);
}
