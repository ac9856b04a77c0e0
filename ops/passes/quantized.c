/* quantized: matrix products and embedding lookups read the quantised forms that a store has.
 * O(nodes). */
#include "quantize/quantize.h"

#include <weft/ops.h>

/* Declares one of the three tensors of a quantised form in the new graph; fails the graph if the
 * store lacks it. */
static weft_value declare(weft_rewrite *r, const char *state, bool by_rows, const char *tensor,
                          weft_tensor *t)
{
    char name[QUANTIZED_NAME];
    if (!weft__quantized_name(name, state, by_rows, tensor) ||
        !weft_params_find(r->context, name, t)) {
        weft_graph_fail_in(r->graph, name, WEFT_NOT_FOUND,
                           "is not in the parameter store, which has the quantised \"%s\"", state);
        return WEFT_NO_VALUE;
    }
    return weft_rewrite_state(r, name, t->dtype, t->shape, WEFT_INIT_ZEROS);
}

static bool visit(weft_rewrite *r)
{
    char name[QUANTIZED_NAME];
    quantized_use use;
    weft_tensor q, scale, zero;
    if (!weft__quantized_use_of(r->source, &r->node, &use)) return false;
    const char *state = weft_name_of(r->source, use.state);
    if (!weft__quantized_name(name, state, use.by_rows, "q") ||
        !weft_params_find(r->context, name, NULL))
        return false;
    const weft_value weight = declare(r, state, use.by_rows, "q", &q);
    const weft_value scales = declare(r, state, use.by_rows, "scale", &scale);
    const bool minima = weft__quantized_name(name, state, use.by_rows, "min") &&
                        weft_params_find(r->context, name, NULL);
    const weft_value zeros = declare(r, state, use.by_rows, minima ? "min" : "zero", &zero);
    if (weft_graph_status(r->graph) != WEFT_OK) return true;
    /* The op refuses shapes that do not fit. */
    const int64_t width = q.shape.rank == 2 ? q.shape.dim[1] : 0;
    const int64_t groups = scale.shape.rank == 2 ? scale.shape.dim[1] : 0;
    const int bits = width == use.k ? 8 : 4, group = groups ? (int)(use.k / groups) : 0;
    if (use.lookup)
        r->out[0] =
            weft_embedding_quantized(r->graph, weight, scales, zeros, r->in[1], bits, group);
    else
        r->out[0] = weft_matmul_quantized(r->graph, r->in[0], weight, scales, zeros, bits, group);
    return true;
}

weft_pass weft_quantized_pass(const weft_params *params)
{
    return (weft_pass){
        .name = "quantized",
        .doc =
            "matrix products and embedding lookups with matrices that the store has in 8 or 4 bits",
        .visit = visit,
        .context = (void *)(uintptr_t)params,
        .required = true};
}
