/* The verifier: derives types, storage and versions of all values again from the descriptors, and
 * compares them with the graph. O(nodes). */
#include "ir/ir.h"

#include <stdlib.h>
#include <string.h>

static weft_status broken(weft_error *error, const weft_graph *graph, size_t node, const char *what)
{
    char where[256];
    return weft_error_set(error, WEFT_INTERNAL,
                          weft__graph_node_where(graph, node, where, sizeof where), "node %zu: %s",
                          node, what);
}

/* Compares root, version and layout of an output with what its op declares: storage of its own, the
 * same version of the storage that it views, or a new version of the state that it updates. Returns
 * what is wrong, or NULL. */
static const char *check_storage(const weft_graph *graph, const node_record *node, uint32_t i)
{
    const uint32_t id = node->first_out + i;
    const value_record *out = &graph->values[id];
    const value_record *in = &graph->values[i < node->n_in ? node->in[i] : 0];
    weft_layout layout = weft__layout_dense(out->type.shape), viewed = {{0}, 0};
    uint32_t root = id, version = id;
    if (node->op->alias &&
        node->op->alias(node->attr, &in->type, &in->layout, &out->type, &viewed)) {
        layout = viewed;
        root = in->root;
        version = in->version;
    } else if (i < node->op->updates) {
        root = in->root;
        if (graph->nodes[graph->values[root].node].op != &weft_op_state) return "updates no state";
    }
    if (out->root != root) return "the storage of an output is not the one that its op declares";
    if (out->version != version) return "an output has the wrong version of its storage";
    const size_t used = (size_t)out->type.shape.rank * sizeof *layout.stride;
    if (out->layout.offset != layout.offset || memcmp(out->layout.stride, layout.stride, used) != 0)
        return "the layout of an output is not the one that its op declares";
    return NULL;
}

/* What is wrong with a node, or NULL. `types` has room for the types of its inputs. */
static const char *check_node(const weft_graph *graph, size_t index, weft_type *types)
{
    const node_record *node = &graph->nodes[index];
    const weft_op *op = node->op;
    char text[256];
    if (weft__op_check(op, text, sizeof text) != WEFT_OK) return "its descriptor is incomplete";
    if (node->n_in < op->min_in || (op->max_in != WEFT_VARIADIC && node->n_in > op->max_in))
        return "wrong number of inputs";
    for (size_t i = 0; i < node->n_in; i++) {
        if (node->in[i] == 0 || node->in[i] >= node->first_out) return "an input comes later";
        types[i] = graph->values[node->in[i]].type;
    }
    weft_type out[WEFT_MAX_OUTPUTS] = {{0}};
    weft_error ignored = {0};
    weft_infer infer = {op, node->attr, node->n_in, op->n_out, types, out, &ignored, NULL};
    if (!op->infer(&infer)) return "its shape rule fails";
    for (size_t i = 0; i < op->n_out; i++) {
        const value_record *value = &graph->values[node->first_out + i];
        if (value->node != index) return "an output belongs to another node";
        if (value->type.dtype != out[i].dtype || !weft_shape_equal(value->type.shape, out[i].shape))
            return "an output's type is not what the shape rule returns";
    }
    if (weft__op_check_dtype(op, weft__graph_key_dtype(graph, node), text, sizeof text) != WEFT_OK)
        return "it has no kernel";
    for (uint32_t i = 0; i < op->n_out; i++) {
        const char *wrong = check_storage(graph, node, i);
        if (wrong) return wrong;
    }
    return NULL;
}

weft_status weft_graph_verify(const weft_graph *graph, weft_error *error)
{
    weft_error_clear(error);
    if (weft_graph_status(graph) != WEFT_OK) return weft_error_copy(error, weft_graph_error(graph));
    size_t max_in = 1;
    for (size_t i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i].n_in > max_in) max_in = graph->nodes[i].n_in;
    weft_type *types = calloc(max_in, sizeof *types);
    if (!types) return weft_error_set(error, WEFT_NO_MEMORY, "verify", "no memory");
    weft_status status = WEFT_OK;
    uint32_t next = 1;
    for (size_t i = 0; i < graph->n_nodes && status == WEFT_OK; i++) {
        const char *what = graph->nodes[i].first_out != next ? "its outputs are not the next values"
                                                             : check_node(graph, i, types);
        if (what) status = broken(error, graph, i, what);
        next += graph->nodes[i].op->n_out;
    }
    if (status == WEFT_OK && next != graph->n_values)
        status = weft_error_set(error, WEFT_INTERNAL, "verify", "values without a node");
    free(types);
    return status;
}
