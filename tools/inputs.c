/* Data for the inputs of any model, so that it can be checked, profiled and timed. */
#include "tool.h"

#include <stdlib.h>
#include <string.h>

/* Ids are of [1, vocab), the last one is padding; truth values are seldom true; numbers are of
 * [-1, 1), scalars (a learning rate) 1e-4. */
static void fill(void *data, weft_dtype dtype, int64_t n, int64_t vocab, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), 0, 0};
        uint32_t r[4];
        weft_philox(counter, seed, r);
        double x = n == 1 ? 1e-4 : (double)r[0] / 2147483648.0 - 1;
        switch (dtype) {
        case WEFT_F32:
            ((float *)data)[i] = (float)x;
            break;
        case WEFT_F64:
            ((double *)data)[i] = x;
            break;
        case WEFT_I32:
            ((int32_t *)data)[i] = i == n - 1 || vocab < 2 ? 0 : 1 + (int32_t)(r[0] % (vocab - 1));
            break;
        default:
            ((bool *)data)[i] = r[0] % 8 == 0;
        }
    }
}

weft_status tool_examples(const built_model *m, examples *out, weft_error *error)
{
    const weft_graph *g = m->graph;
    *out = (examples){calloc(weft_graph_node_count(g) + 1, sizeof *out->feed), 0};
    if (!out->feed) return weft_error_set(error, WEFT_NO_MEMORY, "inputs", "no memory");
    for (size_t i = 0; i < weft_graph_node_count(g); i++) {
        weft_node_info node = weft_graph_node(g, i);
        if (node.op != &weft_op_input) continue;
        weft_value input = weft_value_from_id(g, node.first_out);
        weft_dtype dtype = weft_dtype_of(g, input);
        int64_t n = weft_shape_numel(weft_shape_of(g, input));
        size_t bytes = (size_t)n * weft_dtype_bytes(dtype);
        void *data = calloc(1, bytes + 1);
        if (!data) {
            examples_free(out);
            return weft_error_set(error, WEFT_NO_MEMORY, "inputs", "no memory for %zu bytes",
                                  bytes);
        }
        fill(data, dtype, n, m->io.vocab, i + 1);
        out->feed[out->n++] = (weft_check_feed){input, data, bytes};
    }
    return WEFT_OK;
}

weft_status examples_feed(const examples *e, weft_session *session, weft_error *error)
{
    for (size_t i = 0; i < e->n; i++)
        if (weft_feed(session, e->feed[i].input, e->feed[i].data, e->feed[i].bytes) != WEFT_OK) {
            const weft_error *why = weft_session_error(session);
            return weft_error_set(error, why->status, why->where, "%s", why->message);
        }
    return WEFT_OK;
}

void examples_free(examples *e)
{
    for (size_t i = 0; i < e->n; i++) free((void *)(uintptr_t)e->feed[i].data);
    free(e->feed);
    *e = (examples){NULL, 0};
}
