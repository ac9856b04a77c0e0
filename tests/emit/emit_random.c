/* Random calls of ops, as the suite exact draws them, as nodes of a graph. See emit_random.h. */
#include "emit_random.h"

#include "exact_case.h"

#include <weft/ops.h>

#include <stdlib.h>
#include <string.h>

#define MAX_ELEMENTS 30000 /* of a call's inputs, so that its file stays small */

static const exact_op *const lists[] = {
    exact_elementwise_ops, exact_reduction_ops, exact_row_ops,    exact_matmul_ops,
    exact_norm_ops,        exact_loss_ops,      exact_update_ops, exact_attention_ops,
    exact_conv_ops,        exact_move_ops,      exact_drawn_ops,  exact_packed_ops};

static const exact_op *find(const weft_op *op)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const exact_op *o = lists[i]; o->name; o++)
            if (weft_op_find(o->name) == op) return o;
    return NULL;
}

/* The dimensions of a tensor by falling strides. */
static void by_strides(const weft_tensor *t, int order[WEFT_MAX_RANK])
{
    for (int d = 0; d < t->shape.rank; d++) {
        int k = d;
        for (; k > 0 && llabs(t->stride[order[k - 1]]) < llabs(t->stride[d]); k--)
            order[k] = order[k - 1];
        order[k] = d;
    }
}

/* A dense tensor of the elements in the order of `order`, without repeated ones. */
static void *gather(const weft_tensor *t, const int *order, weft_shape *shape)
{
    const size_t each = weft_dtype_bytes(t->dtype);
    *shape = t->shape;
    for (int k = 0; k < t->shape.rank; k++)
        shape->dim[k] = t->stride[order[k]] ? t->shape.dim[order[k]] : t->shape.dim[order[k]] > 0;
    const int64_t n = weft_shape_numel(*shape);
    char *data = malloc((size_t)n * each + 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, offset = 0;
        for (int k = shape->rank - 1; k >= 0; k--) {
            offset += rest % shape->dim[k] * t->stride[order[k]];
            rest /= shape->dim[k];
        }
        memcpy(data + (size_t)i * each, (const char *)t->data + offset * (int64_t)each, each);
    }
    return data;
}

weft_value emit_between(weft_graph *g, weft_value x, bool bf16)
{
    return bf16 && weft_dtype_of(g, x) == WEFT_F32 ? weft_neg(g, x) : x;
}

/* An input of the call with its layout: a dense input of the graph, broadcast and permuted. */
static weft_value add_input(emit_random *r, const weft_tensor *t, const char *name)
{
    int order[WEFT_MAX_RANK];
    weft_shape dense, full = t->shape;
    weft_axes back = {t->shape.rank, {0}};
    by_strides(t, order);
    r->data[r->n_inputs] = gather(t, order, &dense);
    const weft_value input = weft_input(r->g, name, t->dtype, dense);
    r->input[r->n_inputs++] = input;
    const weft_value x = emit_between(r->g, input, r->bf16);
    for (int k = 0; k < t->shape.rank; k++) {
        full.dim[k] = t->shape.dim[order[k]];
        back.axis[order[k]] = k;
    }
    weft_value v = weft_shape_equal(full, dense) ? x : weft_broadcast_to(r->g, x, full);
    bool in_order = true;
    for (int k = 0; k < t->shape.rank; k++) in_order = in_order && order[k] == k;
    return in_order ? v : weft_permute(r->g, v, back);
}

bool emit_random_add(emit_random *r, const weft_op *op, weft_dtype dtype, uint64_t seed)
{
    const exact_op *drawn = find(op);
    weft_value in[EXACT_INPUTS], out[EXACT_OUTPUTS];
    int64_t elements = 0;
    if (!drawn || !exact_compares(op, dtype)) return false;
    exact_case *c = calloc(1, sizeof *c);
    c->state = seed;
    c->size = 1200;
    exact_draw_case(c, drawn, dtype);
    for (size_t i = 0; i < c->n_in; i++) elements += weft_shape_numel(c->in[i].shape);
    const bool fits = elements <= MAX_ELEMENTS && r->n_inputs + c->n_in <= EMIT_RANDOM_INPUTS &&
                      r->n_targets + op->n_out <= EMIT_RANDOM_TARGETS;
    for (size_t i = 0; fits && i < c->n_in; i++) {
        char name[32];
        weft_tensor state;
        snprintf(name, sizeof name, "x%zu_%zu", r->n_calls, i);
        if (i >= op->updates) {
            in[i] = add_input(r, &c->in[i], name);
            continue;
        }
        in[i] = weft_state(r->g, name, c->in[i].dtype, c->in[i].shape, WEFT_INIT_ZEROS);
        if (weft_params_add(r->params, name, c->in[i].dtype, c->in[i].shape, &state, NULL) ==
            WEFT_OK)
            memcpy(state.data, c->in[i].data, weft_tensor_bytes(state.dtype, state.shape));
    }
    if (fits) {
        weft_apply(r->g, op, c->attr.bytes, in, c->n_in, out);
        for (size_t k = 0; k < op->n_out; k++)
            r->target[r->n_targets++] = emit_between(r->g, out[k], r->bf16);
        r->n_calls++;
    }
    exact_free(c);
    return fits && weft_graph_status(r->g) == WEFT_OK;
}
