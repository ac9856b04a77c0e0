/* If. The branch of a known condition replaces the node. Where data choose, both branches are
 * computed, and each output is selected; so their types must agree, and the gradient passes through
 * the chosen branch. A branch that does not fit the sizes of the inputs is left out, and a run that
 * chooses it fails (see leave_out in model.c). */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <string.h>

static const char *const names[2] = {"else_branch", "then_branch"};

/* Maps the nodes of a body. NULL after a failure. */
static onnx_scope *map_body(onnx_node *n, const WeftOnnx__GraphProto *body)
{
    onnx_scope *scope = body ? weft__body_scope(n) : NULL;
    return scope && weft__import_graph(n->import, scope, body) ? scope : NULL;
}

static void take_branch(onnx_node *n, const WeftOnnx__GraphProto *body)
{
    const onnx_scope *scope = map_body(n, body);
    for (size_t i = 0; scope && i < n->n_out; i++) {
        const onnx_value *v = weft__body_output(n, scope, body, i);
        if (!v) return;
        weft__copy_value(&n->out[i], v);
    }
}

/* ---- Branches that data choose ---- */

static bool is_left_out(const weft_onnx *m, const WeftOnnx__GraphProto *body)
{
    for (size_t i = 0; i < m->n_left_out; i++)
        if (m->left_out[i] == body) return true;
    return false;
}

/* The condition as a value of one element without dimensions. */
static weft_value condition(onnx_node *n)
{
    const weft_value value = weft__in_value(n, 0);
    if (weft__node_failed(n)) return WEFT_NO_VALUE;
    if (weft_dtype_of(n->graph, value) == WEFT_BOOL &&
        weft_shape_numel(weft_shape_of(n->graph, value)) == 1)
        return weft_reshape(n->graph, value, WEFT_SCALAR);
    return weft__node_fail(n, WEFT_BAD_ARGUMENT, "its condition must be one bool");
}

/* Outputs of both branches; those of a branch that is left out are NULL. */
typedef struct choice {
    onnx_scope *scope[2];
    const WeftOnnx__GraphProto *body[2];
    weft_value condition;
    weft_value present; /* true; a run that chooses a branch that is left out fails in it */
} choice;

static bool map_choice(onnx_node *n, choice *c)
{
    onnx_import *import = n->import;
    for (int k = 1; k >= 0; k--) {
        c->body[k] = weft__body_of(n, names[k]);
        if (!c->body[k]) return false;
        if (is_left_out(import->model, c->body[k])) continue;
        import->choices++;
        c->scope[k] = map_body(n, c->body[k]);
        import->choices--;
        if (c->scope[k]) continue;
        if (!import->failed_branch) {
            import->failed_branch = c->body[k];
            import->failed_choice = n->proto;
        }
        return false;
    }
    if (c->scope[0] || c->scope[1]) return true;
    weft__node_fail(n, WEFT_BAD_SHAPE, "neither of its branches fits the sizes of the inputs");
    return false;
}

/* Output i of a branch in the graph; none if the branch is left out. */
static weft_value output_of(onnx_node *n, const choice *c, int k, size_t i, int *type)
{
    onnx_value *v = c->scope[k] ? weft__body_output(n, c->scope[k], c->body[k], i) : NULL;
    if (v) *type = v->type;
    if (v && weft_is_value(v->size))
        return weft__node_fail(n, WEFT_NO_KERNEL,
                               "data choose its branch, and also the size of output %zu", i);
    return v ? weft__import_value(n->import, v) : WEFT_NO_VALUE;
}

static weft_value select_output(onnx_node *n, const choice *c, size_t i, int *type)
{
    weft_graph *g = n->graph;
    char text[2][128];
    const weft_value no = output_of(n, c, 0, i, type), yes = output_of(n, c, 1, i, type);
    if (weft__node_failed(n)) return WEFT_NO_VALUE;
    if (!c->scope[0] || !c->scope[1]) {
        const weft_value only = c->scope[1] ? yes : no;
        const weft_value nothing =
            weft_cast(g, weft_scalar(g, WEFT_I32, 0), weft_dtype_of(g, only));
        return weft_where(g, c->present, only, nothing);
    }
    const weft_shape a = weft_shape_of(g, yes), b = weft_shape_of(g, no);
    if (weft_dtype_of(g, yes) == weft_dtype_of(g, no) && weft_shape_equal(a, b))
        return weft_where(g, c->condition, yes, no);
    return weft__node_fail(
        n, WEFT_BAD_SHAPE,
        "data choose its branch, so output %zu must have one type, but it is %s %s or %s %s; fix "
        "the "
        "input that the condition depends on (--constant NAME=FILE)",
        i, weft_dtype_name(weft_dtype_of(g, yes)), weft_shape_text(a, text[0], sizeof text[0]),
        weft_dtype_name(weft_dtype_of(g, no)), weft_shape_text(b, text[1], sizeof text[1]));
}

static void choose(onnx_node *n)
{
    choice c = {.condition = condition(n)};
    char label[ONNX_SCOPE_BYTES], own[ONNX_SCOPE_BYTES];
    if (weft__node_failed(n) || !map_choice(n, &c)) return;
    memcpy(label, n->import->label, sizeof label);
    weft__onnx_node_scope(n->import->model, n->proto, own);
    weft__import_label(n->import, own);
    if (!c.scope[1]) c.present = weft__unless(n->graph, c.condition);
    if (!c.scope[0]) c.present = weft__unless(n->graph, weft_logical_not(n->graph, c.condition));
    for (size_t i = 0; i < n->n_out && !weft__node_failed(n); i++) {
        int type = ONNX_UNTYPED;
        if (has_out(n, i)) weft__set_typed(n, i, select_output(n, &c, i, &type), type);
    }
    weft__import_label(n->import, label);
}

void weft__map_If(onnx_node *n)
{
    const onnx_value *v = n->in[0];
    if (!weft__import_contents(n->import, n->in[0])) return;
    if (!v->known) {
        choose(n);
        return;
    }
    if (v->tensor.dtype != WEFT_BOOL || weft_shape_numel(v->tensor.shape) != 1) {
        weft__node_fail(n, WEFT_BAD_ARGUMENT, "its condition must be one bool");
        return;
    }
    take_branch(n, weft__body_of(n, names[*(const uint8_t *)v->tensor.data != 0]));
}
