/* fold: a node whose inputs are all constants is computed when planning, unless it can fail,
 * updates a state or is random. O(nodes), and the work of the nodes that are folded. */
#include "rewrite.h"

#include "ir/call.h"
#include "ir/isa.h"

#include <stdlib.h>

/* The maximum bytes of a folded output, unless its inputs have as many. */
#define MAX_BYTES ((size_t)1 << 20)
/* The maximum work of a folded node, in flops and bytes: a few seconds. Broadcasting can turn one
 * element into a year's work. */
#define MAX_WORK 4e9
/* The most inputs and outputs of a folded node. */
#define MAX_OPERANDS 12

typedef struct folding {
    weft_tensor t[MAX_OPERANDS]; /* inputs, then outputs */
    size_t n_in, n_out;
} folding;

static bool is_constant(const weft_graph *g, uint32_t id, const weft_op *op)
{
    const value_record *v = &g->values[id];
    return g->nodes[g->values[v->root].node].op == &weft_op_constant &&
           weft__layout_taken(op->takes, v->type.shape, &v->layout);
}

static bool may_fold(const weft_graph *g, const weft_op *op, const weft_value *in, size_t n_in,
                     const weft_type *out)
{
    size_t bytes_in = 0, bytes_out = 0;
    if (op->alias || op->can_fail || op->random || op->updates || n_in + op->n_out > MAX_OPERANDS)
        return false;
    for (size_t i = 0; i < n_in; i++) {
        if (!weft__graph_owns(g, in[i]) || !is_constant(g, in[i].id, op)) return false;
        const weft_type *root = &g->values[g->values[in[i].id].root].type;
        bytes_in += weft_tensor_bytes(root->dtype, root->shape);
    }
    for (size_t k = 0; k < op->n_out; k++)
        bytes_out += weft_tensor_bytes(out[k].dtype, out[k].shape);
    return bytes_out <= MAX_BYTES || bytes_out <= bytes_in;
}

/* The operands of a node whose inputs in[] are constants and whose outputs have these types. */
static void find_operands(folding *f, const weft_graph *g, const weft_value *in,
                          const weft_type *types)
{
    for (size_t i = 0; i < f->n_in; i++) {
        const value_record *v = &g->values[in[i].id];
        const weft_constant_attr *c = g->nodes[g->values[v->root].node].attr;
        f->t[i] = weft__graph_tensor(g, in[i].id);
        f->t[i].data = (char *)(uintptr_t)c->data +
                       v->layout.offset * (int64_t)weft_dtype_bytes(v->type.dtype);
    }
    for (size_t k = 0; k < f->n_out; k++)
        f->t[f->n_in + k] = weft_tensor_dense(NULL, types[k].dtype, types[k].shape);
}

/* Allocates the outputs and computes them. WEFT_BAD_INDEX if the kernel reports a fault although
 * its op does not declare can_fail: the node stays, and the run reports the fault. */
static weft_status compute(folding *f, const weft_op *op, weft_kernel kernel, const weft_call *call)
{
    for (size_t k = 0; k < f->n_out; k++) {
        weft_tensor *t = &f->t[f->n_in + k];
        t->data = weft_alloc(weft_tensor_bytes(t->dtype, t->shape));
        if (!t->data) return WEFT_NO_MEMORY;
    }
    return weft__call_run_alone(op, kernel, call);
}

/* Computes a node whose inputs in[] are constants, and sets out[] to constants of these types.
 * False if the node cannot be folded. */
static bool fold_node(weft_graph *g, const node_record *node, const weft_type *types,
                      const weft_value *in, weft_value *out)
{
    const weft_op *op = node->op;
    folding f = {.n_in = node->n_in, .n_out = op->n_out};
    if (!may_fold(g, op, in, node->n_in, types)) return false;
    weft_dtype key =
        op->key_output || !node->n_in ? types[0].dtype : g->values[in[0].id].type.dtype;
    weft_kernel kernel = weft__op_kernel(op, weft__isa_best(), key);
    if (!kernel) return false;
    find_operands(&f, g, in, types);
    const weft_call call = {
        .attr = node->attr, .in = f.t, .out = f.t + f.n_in, .n_in = f.n_in, .n_out = f.n_out};
    const weft_cost cost = weft__op_cost(op, &call);
    if (!(cost.flops + cost.bytes <= MAX_WORK)) return false;
    const weft_status status = compute(&f, op, kernel, &call);
    if (status == WEFT_NO_MEMORY)
        weft_graph_fail_in(g, op->name, WEFT_NO_MEMORY, "no memory to fold a constant");
    for (size_t k = 0; k < f.n_out; k++) {
        const weft_tensor *t = &f.t[f.n_in + k];
        if (status == WEFT_OK) out[k] = weft_constant(g, t->dtype, t->shape, t->data);
        weft_free(t->data);
    }
    return status != WEFT_BAD_INDEX;
}

static bool visit(weft_rewrite *r)
{
    const node_record *node = &r->source->nodes[r->index];
    weft_type types[WEFT_MAX_OUTPUTS];
    for (size_t i = 0; i < node->op->n_out; i++)
        types[i] = r->source->values[node->first_out + i].type;
    return fold_node(r->graph, node, types, r->in, r->out);
}

const pass weft__pass_fold = {
    .rule = {.name = "fold",
             .doc = "values that depend only on constants are computed at plan time",
             .visit = visit}};
