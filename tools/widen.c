/* A graph in f64, for checks of gradients. The nodes of a graph are copied one by one; their dtypes
 * follow from their inputs. Values that still have f32, such as constants, are cast. O(nodes). */
#include "tool.h"

#include <stdlib.h>

static weft_dtype wide(weft_dtype dtype)
{
    return dtype == WEFT_F32 ? WEFT_F64 : dtype;
}

/* Copies node `index`. map[] holds the new values by the ids of the old ones; in[] is scratch. */
static void widen_node(const weft_graph *from, size_t index, weft_graph *to, weft_value *map,
                       weft_value *in)
{
    const weft_node_info node = weft_graph_node(from, index);
    const weft_value old = weft_value_from_id(from, node.first_out);
    const weft_dtype dtype = wide(weft_dtype_of(from, old));
    const weft_shape shape = weft_shape_of(from, old);
    weft_value *out = &map[node.first_out];
    if (node.op == &weft_op_input) {
        out[0] = weft_input(to, weft_name_of(from, old), dtype, shape);
    } else if (node.op == &weft_op_state) {
        out[0] = weft_param(to, weft_name_of(from, old), dtype, shape, WEFT_INIT_ZEROS);
    } else if (node.op == weft_op_find("cast") && dtype == WEFT_F64) {
        out[0] = weft_cast(to, map[node.in[0]], WEFT_F64);
    } else {
        for (size_t i = 0; i < node.n_in; i++) in[i] = map[node.in[i]];
        weft_graph_copy_node(to, from, index, in, out);
        for (size_t i = 0; i < node.n_out; i++)
            if (weft_dtype_of(to, out[i]) == WEFT_F32) out[i] = weft_cast(to, out[i], WEFT_F64);
    }
}

static weft_status widen_graph(const weft_graph *from, weft_graph *to, weft_value **map,
                               weft_error *error)
{
    size_t n_values = 1, max_in = 0;
    const size_t n = weft_graph_node_count(from);
    for (size_t i = 0; i < n; i++) {
        const weft_node_info node = weft_graph_node(from, i);
        n_values += node.n_out;
        if (node.n_in > max_in) max_in = node.n_in;
    }
    weft_value *in = calloc(max_in + 1, sizeof *in);
    *map = calloc(n_values, sizeof **map);
    weft_status status = WEFT_OK;
    if (!in || !*map || !to)
        status = weft_error_set(error, WEFT_NO_MEMORY, "model", "no memory for it in f64");
    for (size_t i = 0; i < n && status == WEFT_OK; i++) {
        widen_node(from, i, to, *map, in);
        status = tool_take_error(weft_graph_error(to), error);
    }
    free(in);
    return status;
}

static weft_status widen_tensor(const weft_tensor *t, const char *name, weft_params *into,
                                weft_error *error)
{
    weft_tensor copy;
    const int64_t n = weft_shape_numel(t->shape);
    const weft_status status = weft_params_add(into, name, wide(t->dtype), t->shape, &copy, error);
    for (int64_t i = 0; status == WEFT_OK && i < n; i++)
        ((double *)copy.data)[i] = t->dtype == WEFT_F32 ? (double)((const float *)t->data)[i]
                                                        : ((const double *)t->data)[i];
    return status;
}

static weft_status widen_weights(weft_onnx *file, weft_params *into, weft_error *error)
{
    weft_params *weights = weft_params_new();
    weft_status status = weights ? weft_onnx_share_weights(file, weights, error)
                                 : weft_error_set(error, WEFT_NO_MEMORY, "weights", "no memory");
    for (size_t i = 0; status == WEFT_OK && i < weft_params_count(weights); i++) {
        weft_tensor t;
        const char *name = weft_params_name(weights, i);
        if (weft_params_find(weights, name, &t)) status = widen_tensor(&t, name, into, error);
    }
    weft_params_free(weights);
    return status;
}

weft_status tool_widen(const built_model *m, built_model *out, weft_params *weights,
                       weft_error *error)
{
    weft_value *map = NULL;
    *out = (built_model){.graph = weft_graph_new(), .built.vocab = m->built.vocab};
    weft_status status = widen_graph(m->graph, out->graph, &map, error);
    if (status == WEFT_OK) status = widen_weights(m->file, weights, error);
    if (status == WEFT_OK) {
        out->built.outputs[out->built.n_outputs++] = map[m->built.outputs[0].id];
        out->built.loss = map[m->built.loss.id];
    }
    free(map);
    return status;
}
