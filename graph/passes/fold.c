/* fold: a node whose inputs are all constants is computed when planning, unless it can fail,
 * updates a state or is random. O(nodes), and the work of the nodes that are folded. */
#include "rewrite.h"

#include <stdlib.h>
#include <string.h>

/* The most bytes of a folded output, unless its inputs have as many. */
#define MAX_BYTES ((size_t)1 << 20)
/* The most work of a folded node, in flops and bytes: a few seconds. Broadcasting can make a year's
 * work of one element. */
#define MAX_WORK 4e9
/* The most inputs and outputs of a folded node. */
#define MAX_OPERANDS 12

typedef struct folding {
    weft_tensor t[MAX_OPERANDS]; /* inputs, then outputs */
    size_t n_in, n_out;
    void *memory[WEFT_MAX_OUTPUTS]; /* of the outputs */
    void *scratch, *workspace;
} folding;

static size_t type_bytes(const weft_type *type)
{
    return (size_t)weft_shape_numel(type->shape) * weft_dtype_bytes(type->dtype);
}

static bool is_constant(const weft_graph *g, uint32_t id, const weft_op *op)
{
    const value_record *v = &g->values[id];
    return g->nodes[g->values[v->root].node].op == &weft_op_constant &&
           layout_taken(op->takes, v->type.shape, &v->layout);
}

static bool may_fold(const weft_graph *g, const weft_op *op, const weft_value *in, size_t n_in,
                     const weft_type *out)
{
    size_t bytes_in = 0, bytes_out = 0;
    if (op->alias || op->can_fail || op->random || op->updates || n_in + op->n_out > MAX_OPERANDS)
        return false;
    for (size_t i = 0; i < n_in; i++) {
        if (!graph_owns(g, in[i]) || !is_constant(g, in[i].id, op)) return false;
        bytes_in += type_bytes(&g->values[g->values[in[i].id].root].type);
    }
    for (size_t k = 0; k < op->n_out; k++) bytes_out += type_bytes(&out[k]);
    return bytes_out <= MAX_BYTES || bytes_out <= bytes_in;
}

static bool take_memory(folding *f, const weft_op *op, weft_call *call)
{
    size_t scratch = op->scratch ? op->scratch(call) : 0;
    size_t workspace = op->workspace ? op->workspace(call) : 0;
    workspace += PANEL_TAG_BYTES;
    f->scratch = weft_alloc(scratch);
    f->workspace = weft_alloc(workspace);
    bool good = f->scratch && f->workspace;
    for (size_t k = 0; k < f->n_out; k++) {
        weft_tensor *t = &f->t[f->n_in + k];
        size_t bytes = (size_t)weft_shape_numel(t->shape) * weft_dtype_bytes(t->dtype);
        t->data = f->memory[k] = weft_alloc(bytes);
        good = good && t->data;
    }
    call->scratch = f->scratch;
    return good;
}

/* False if the kernel reports a fault, although its op does not declare that it can: then the run
 * will report it. */
static bool compute(folding *f, const weft_op *op, const void *attr, weft_kernel kernel)
{
    fault failed = {.lock = ATOMIC_FLAG_INIT, .step = NO_FAULT};
    /* One workspace, whichever thread this is. */
    weft_run_state run = {.fault = &failed, .workspace = f->workspace, .workspace_bytes = 0};
    weft_call call = {.attr = attr,
                      .in = f->t,
                      .out = f->t + f->n_in,
                      .n_in = f->n_in,
                      .n_out = f->n_out,
                      .scratch = f->scratch,
                      .run = &run};
    int phases = op->phases ? op->phases : 1;
    for (call.phase = 0; call.phase < phases; call.phase++) {
        call.tiles = op_tiles(op, &call);
        *weft_call_panel_tag(&call) = 0;
        for (int64_t tile = 0; tile < call.tiles; tile++) kernel(&call, tile);
    }
    return atomic_load(&failed.step) == NO_FAULT;
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
    weft_kernel kernel = weft_op_kernel(op, weft_isa_best(), key);
    for (size_t i = 0; i < f.n_in; i++) {
        const value_record *v = &g->values[in[i].id];
        const weft_constant_attr *c = g->nodes[g->values[v->root].node].attr;
        f.t[i] = graph_tensor(g, in[i].id);
        f.t[i].data = (char *)(uintptr_t)c->data +
                      v->layout.offset * (int64_t)weft_dtype_bytes(v->type.dtype);
    }
    for (size_t k = 0; k < f.n_out; k++)
        f.t[f.n_in + k] = weft_tensor_dense(NULL, types[k].dtype, types[k].shape);
    weft_call sizes = {
        .attr = node->attr, .in = f.t, .out = f.t + f.n_in, .n_in = f.n_in, .n_out = f.n_out};
    if (!kernel) return false;
    weft_cost cost = op_cost(op, &sizes);
    if (!(cost.flops + cost.bytes <= MAX_WORK)) return false;
    bool good = take_memory(&f, op, &sizes);
    if (!good) weft_graph_fail_in(g, op->name, WEFT_NO_MEMORY, "no memory to fold a constant");
    const bool folded = !good || compute(&f, op, node->attr, kernel);
    for (size_t k = 0; good && folded && k < f.n_out; k++)
        out[k] = weft_constant_data(g, types[k].dtype, types[k].shape, f.memory[k]);
    for (size_t k = 0; k < f.n_out; k++) free(f.memory[k]);
    free(f.scratch);
    free(f.workspace);
    return folded;
}

static bool visit(weft_rewrite *r)
{
    const node_record *node = &r->source->nodes[r->index];
    weft_type types[WEFT_MAX_OUTPUTS];
    for (size_t i = 0; i < node->op->n_out; i++)
        types[i] = r->source->values[node->first_out + i].type;
    return fold_node(r->graph, node, types, r->in, r->out);
}

const weft_pass pass_fold = {.name = "fold",
                             .doc = "what depends on constants only is computed when planning",
                             .visit = visit};
