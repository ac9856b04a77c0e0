/* quantized: matrix products and embedding lookups read the quantised forms that a store has.
 * O(nodes). */
#include "lora.h"

#include <weft/ops.h>

/* The quantised form of a state that a node uses. */
typedef struct form {
    const weft_params *params;
    const char *state;
    bool by_rows;
} form;

/* Declares one of the three tensors of a quantised form in the new graph; fails the graph if the
 * store lacks it. */
static weft_value declare(weft_rewrite *r, const form *f, const char *tensor, weft_tensor *t)
{
    char name[QUANTIZED_NAME];
    const char *state = f->state;
    if (!weft__quantized_name(name, state, f->by_rows, tensor) ||
        !weft_params_find(f->params, name, t)) {
        weft_graph_fail_in(r->graph, name, WEFT_NOT_FOUND,
                           "is not in the parameter store, which has the quantised \"%s\"", state);
        return WEFT_NO_VALUE;
    }
    return weft_rewrite_state(r, name, t->dtype, t->shape, WEFT_INIT_ZEROS);
}

bool weft__quantized_replace(weft_rewrite *r, const weft_params *params)
{
    char name[QUANTIZED_NAME];
    quantized_use use;
    weft_tensor q, scale, zero;
    if (!weft__quantized_use_of(r->source, &r->node, &use)) return false;
    const form f = {params, weft_name_of(r->source, use.state), use.by_rows};
    if (!weft__quantized_name(name, f.state, use.by_rows, "q") ||
        !weft_params_find(params, name, NULL))
        return false;
    const weft_value weight = declare(r, &f, "q", &q);
    const weft_value scales = declare(r, &f, "scale", &scale);
    const bool minima = weft__quantized_name(name, f.state, use.by_rows, "min") &&
                        weft_params_find(params, name, NULL);
    const weft_value zeros = declare(r, &f, minima ? "min" : "zero", &zero);
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

/* Declares the two matrices of an adapter that the store has (weft/lora.h); false if it has none. */
static bool declare_adapter(weft_rewrite *r, const char *state, weft_value ab[2])
{
    static const char *const matrices[] = {"a", "b"};
    for (int i = 0; i < 2; i++) {
        char name[QUANTIZED_NAME];
        weft_tensor t;
        if (!weft__lora_name(name, state, matrices[i]) || !weft_params_find(r->context, name, &t))
            return false;
        ab[i] = weft_rewrite_state(r, name, t.dtype, t.shape, WEFT_INIT_ZEROS);
    }
    return true;
}

static bool visit(weft_rewrite *r)
{
    quantized_use use;
    weft_value ab[2];
    if (!weft__quantized_replace(r, r->context)) return false;
    weft__quantized_use_of(r->source, &r->node, &use);
    if (!use.lookup && declare_adapter(r, weft_name_of(r->source, use.state), ab))
        r->out[0] = weft__lora_add(r->graph, r->in[0], r->out[0], ab, 1);
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
        .required = true,
        .unrolls = true};
}
