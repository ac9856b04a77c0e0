/* layout: inserts a dense copy before an op that cannot take a view, and after a target that cannot
 * be read where it lies. O(nodes). */
#include "rewrite.h"

#include <stdlib.h>

static weft_value dense(weft_graph *graph, weft_value value)
{
    return weft_apply(graph, &weft_op_contiguous, NULL, &value, 1, NULL);
}

static bool visit(weft_rewrite *r)
{
    const weft_op *op = r->node.op;
    if (op->alias) {
        const value_record *in = &r->graph->values[r->in[0].id];
        weft_layout layout = {{0}, 0};
        const weft_type *type = &r->source->values[r->node.first_out].type;
        if (!op->alias(r->node.attr, &in->type, &in->layout, type, &layout))
            r->in[0] = dense(r->graph, r->in[0]);
    } else if (op != &weft_op_group) {
        for (size_t i = 0; i < r->node.n_in; i++) {
            const value_record *in = &r->graph->values[r->in[i].id];
            if (!weft__layout_taken(op->takes, in->type.shape, &in->layout))
                r->in[i] = dense(r->graph, r->in[i]);
            if (!weft__graph_owns(r->graph, r->in[i])) break;
        }
    }
    return false;
}

/* Copies each target that is not dense, or is a view of a state or a constant, which have no
 * buffer. After a run a state holds only the version that no update overwrites: a target of another
 * version is also copied, unless the program asked for the state itself. overwritten[] is by
 * version. */
static void settle_targets(weft_graph *graph, plan_target *targets, size_t n_targets,
                           const uint8_t *overwritten)
{
    for (size_t i = 0; i < n_targets && weft_graph_status(graph) == WEFT_OK; i++) {
        const value_record *v = &graph->values[targets[i].value.id];
        const node_record *node = &graph->nodes[v->node];
        const weft_op *root = graph->nodes[graph->values[v->root].node].op;
        bool outside = root == &weft_op_state || root == &weft_op_constant;
        weft__graph_set_origin(graph, node);
        if (!weft_layout_is_dense(&v->layout, v->type.shape) || (outside && node->op->alias) ||
            (overwritten[v->version] && !targets[i].is_state))
            targets[i].value = dense(graph, targets[i].value);
    }
}

/* Marks the versions of states that an update of the graph overwrites. */
static void mark_overwritten(const weft_graph *graph, uint8_t *overwritten)
{
    for (size_t n = 0; n < graph->n_nodes; n++)
        for (size_t i = 0; i < graph->nodes[n].op->updates; i++)
            overwritten[graph->values[graph->nodes[n].in[i]].version] = 1;
}

static void finish(weft_graph *graph, plan_target *targets, size_t n_targets, const void *context)
{
    (void)context;
    uint8_t *overwritten = calloc(graph->n_values, 1);
    if (!overwritten) {
        weft_graph_fail_in(graph, "weft_plan_new", WEFT_NO_MEMORY, "no memory for a pass");
        return;
    }
    mark_overwritten(graph, overwritten);
    settle_targets(graph, targets, n_targets, overwritten);
    free(overwritten);
}

const pass weft__pass_layout = {.rule = {.name = "layout",
                                         .doc = "dense copies before ops that cannot take a view",
                                         .visit = visit,
                                         .required = true},
                                .finish = finish};
