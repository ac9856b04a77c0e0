/* What another graph needs of a node: a copy of it, and how much work it is. O(operands). */
#include "ir/call.h"

#include <stdlib.h>
#include <string.h>

void weft__graph_copy_node(weft_graph *graph, const weft_node_info *node, const weft_value *in,
                           weft_value *out)
{
    if (node->op == &weft_op_constant) { /* its data are in the arena of its graph */
        const weft_constant_attr *attr = node->attr;
        out[0] = weft_constant(graph, attr->dtype, attr->shape, attr->data);
        return;
    }
    const weft_value first = weft_apply(graph, node->op, node->attr, in, node->n_in, out);
    if (node->op == &weft_op_track && weft_is_value(first)) weft__graph_list_tracked(graph, first);
}

weft_value weft_graph_copy_node(weft_graph *graph, const weft_graph *other, size_t index,
                                const weft_value *in, weft_value *outputs)
{
    char scope[SCOPE_BYTES];
    weft_value own[WEFT_MAX_OUTPUTS] = {{0, 0}}, *out = outputs ? outputs : own;
    const weft_node_info node = weft_graph_node(other, index);
    if (!graph || graph->error.status != WEFT_OK) return WEFT_NO_VALUE;
    if (!node.op) {
        weft_graph_fail_in(graph, "weft_graph_copy_node", WEFT_BAD_ARGUMENT,
                           "the other graph has no node %zu", index);
        return WEFT_NO_VALUE;
    }
    memcpy(scope, graph->scope, sizeof scope);
    const weft_role role = graph->role;
    weft__graph_set_origin(graph, &other->nodes[index]);
    weft__graph_copy_node(graph, &node, in, out);
    for (size_t i = 0; i < node.n_out && graph->error.status == WEFT_OK; i++) {
        const char *name = other->values[node.first_out + i].name;
        if (name) weft__graph_name_value(graph, out[i].id, name, "weft_graph_copy_node");
    }
    weft__graph_set_origin(graph, NULL);
    weft__graph_set_scope(graph, scope);
    graph->role = role;
    weft__graph_count_on(graph, other);
    return graph->error.status == WEFT_OK ? out[0] : WEFT_NO_VALUE;
}

weft_status weft_graph_node_cost(const weft_graph *graph, size_t index, weft_cost *cost,
                                 weft_error *error)
{
    weft_error_clear(error);
    const weft_node_info node = weft_graph_node(graph, index);
    if (!graph || !cost)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_graph_node_cost",
                              "the graph or the cost is NULL");
    *cost = (weft_cost){0, 0};
    if (!node.op || weft__op_is_leaf(node.op) || node.op->alias || node.op == &weft_op_group)
        return WEFT_OK;
    weft_tensor *tensors = malloc((node.n_in + node.n_out) * sizeof *tensors);
    if (!tensors) return weft_error_set(error, WEFT_NO_MEMORY, "weft_graph_node_cost", "no memory");
    for (size_t i = 0; i < node.n_in + node.n_out; i++) {
        const uint32_t id = i < node.n_in ? node.in[i] : node.first_out + (uint32_t)(i - node.n_in);
        const value_record *value = &graph->values[id];
        tensors[i] = weft_tensor_dense(NULL, value->stored, value->type.shape);
    }
    const weft_call call = {.attr = node.attr,
                            .in = tensors,
                            .out = tensors + node.n_in,
                            .n_in = node.n_in,
                            .n_out = node.n_out};
    *cost = weft__op_cost(node.op, &call);
    free(tensors);
    return WEFT_OK;
}
