/* quantized: products with matrices whose quantised forms a store has read these. O(nodes). */
#include "../quantize.h"

#include <weft/ops.h>

/* Declares one of the three tensors of a quantised form in the new graph; fails the graph if the
 * store lacks it. */
static weft_value declare(weft_rewrite *r, const char *state, bool transposed, const char *tensor,
                          weft_tensor *t)
{
    char name[QUANTIZED_NAME];
    if (!quantized_name(name, state, transposed, tensor) || !weft_params_get(r->context, name, t)) {
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
    if (!quantized_use_of(r->source, &r->node, &use)) return false;
    const char *state = weft_name_of(r->source, use.state);
    if (!quantized_name(name, state, use.transposed, "q") ||
        !weft_params_get(r->context, name, NULL))
        return false;
    const weft_value weight = declare(r, state, use.transposed, "q", &q);
    const weft_value scales = declare(r, state, use.transposed, "scale", &scale);
    const weft_value zeros = declare(r, state, use.transposed, "zero", &zero);
    if (weft_graph_status(r->graph) != WEFT_OK) return true;
    /* What the shapes do not say right, the op refuses. */
    const int64_t width = q.shape.rank == 2 ? q.shape.dim[1] : 0;
    const int64_t groups = scale.shape.rank == 2 ? scale.shape.dim[1] : 0;
    r->out[0] = weft_matmul_quantized(r->graph, r->in[0], weight, scales, zeros,
                                      width == use.k ? 8 : 4, groups ? (int)(use.k / groups) : 0);
    return true;
}

weft_pass weft_quantized_pass(const weft_params *params)
{
    return (weft_pass){.name = "quantized",
                       .doc = "products with matrices that the store has in 8 or 4 bits",
                       .visit = visit,
                       .context = (void *)(uintptr_t)params};
}
