/* Synthetic data for the inputs of any model, to check, profile and time it. */
#include "tool.h"

#include "zoo/bits.h"

#include <stdlib.h>

weft_status tool_sample_inputs(const built_model *m, sample_inputs *out, weft_error *error)
{
    const weft_graph *g = m->graph;
    *out = (sample_inputs){calloc(weft_graph_node_count(g) + 1, sizeof *out->feed), 0};
    if (!out->feed) return weft_error_set(error, WEFT_NO_MEMORY, "inputs", "no memory");
    for (size_t i = 0; i < weft_graph_node_count(g); i++) {
        weft_node_info node = weft_graph_node(g, i);
        if (node.op != &weft_op_input) continue;
        weft_value input = weft_value_from_id(g, node.first_out);
        weft_type type = {weft_dtype_of(g, input), weft_shape_of(g, input)};
        size_t bytes = weft_tensor_bytes(type.dtype, type.shape);
        void *data = calloc(1, bytes + 1);
        if (!data) {
            sample_inputs_free(out);
            return weft_error_set(error, WEFT_NO_MEMORY, "inputs", "no memory for %zu bytes",
                                  bytes);
        }
        weft__synthetic_input(type, m->built.vocab, i + 1, data);
        out->feed[out->n++] = (weft_check_feed){input, data, bytes};
    }
    return WEFT_OK;
}

weft_status sample_inputs_feed(const sample_inputs *e, weft_session *session, weft_error *error)
{
    for (size_t i = 0; i < e->n; i++)
        if (weft_session_feed(session, e->feed[i].input, e->feed[i].data, e->feed[i].bytes,
                              error) != WEFT_OK)
            return error->status;
    return WEFT_OK;
}

void sample_inputs_free(sample_inputs *e)
{
    for (size_t i = 0; i < e->n; i++) free((void *)(uintptr_t)e->feed[i].data);
    free(e->feed);
    *e = (sample_inputs){NULL, 0};
}
