/* If. The branch of a known condition replaces the node. Where data choose, the branches become graphs of
 * their own, of which a run computes the chosen one (weft_cond). This holds for small branches as well:
 * what the other one would do, such as reading an index out of range, must not matter, and neither must
 * a division by zero in its derivative. The types of their outputs must agree. If a branch cannot be
 * such a graph, both are computed and each output is selected. A branch that does not fit the sizes of the inputs is
 * left out, and a run that chooses it fails (see leave_out in model.c). */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <weft/scan.h>

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

/* ---- Branches that are graphs ---- */

/* A branch, and what it computes. */
typedef struct branch {
    onnx_region region;
    weft_value out[WEFT_MAX_OUTPUTS];
    int type[WEFT_MAX_OUTPUTS];
} branch;

/* Maps the nodes of a body in a graph of its own, which the caller frees. */
static bool map_branch(onnx_node *n, const WeftOnnx__GraphProto *body, branch *b)
{
    onnx_import *import = n->import;
    if (!body || !weft__region_enter(import, &b->region)) return false;
    import->choices++;
    onnx_scope *scope = map_body(n, body);
    import->choices--;
    bool good = scope != NULL;
    for (size_t i = 0; good && i < n->n_out; i++) {
        onnx_value *v = weft__body_output(n, scope, body, i);
        good = v && !weft_is_value(v->size);
        if (!good) continue;
        b->out[i] = weft__import_value(import, v);
        b->type[i] = v->type;
        good = !weft__import_failed(import) &&
               weft_rank_of(b->region.graph, b->out[i]) < WEFT_MAX_RANK;
    }
    weft__region_leave(import, &b->region);
    return good && !weft__region_is_random(&b->region);
}

static bool same_types(const branch *a, const branch *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (weft_dtype_of(a->region.graph, a->out[i]) !=
                weft_dtype_of(b->region.graph, b->out[i]) ||
            !weft_shape_equal(weft_shape_of(a->region.graph, a->out[i]),
                              weft_shape_of(b->region.graph, b->out[i])))
            return false;
    return true;
}

static void add_choice(onnx_node *n, weft_value condition, const branch *yes, const branch *no)
{
    const onnx_region *a = &yes->region, *b = &no->region;
    const weft_branch branches[2] = {{a->graph, a->n, a->captures, a->captured, yes->out},
                                     {b->graph, b->n, b->captures, b->captured, no->out}};
    weft_value out[WEFT_MAX_OUTPUTS];
    char label[ONNX_SCOPE_BYTES], own[ONNX_SCOPE_BYTES];
    memcpy(label, n->import->label, sizeof label);
    weft__onnx_node_scope(n->import->model, n->proto, own);
    weft__import_label(n->import, own);
    weft_cond(n->graph, condition, &branches[0], &branches[1], n->n_out, out);
    weft__import_label(n->import, label);
    for (size_t i = 0; i < n->n_out; i++) weft__set_typed(n, i, out[i], yes->type[i]);
}

/* False, without an error, if a branch cannot be a graph of its own. Half of the outputs of a scan are
 * for its gradient. */
static bool choose_graph(onnx_node *n, weft_value condition)
{
    onnx_import *import = n->import;
    const WeftOnnx__GraphProto *bodies[2];
    branch branches[2] = {{.out = {{0, 0}}}, {.out = {{0, 0}}}};
    if (n->n_out > WEFT_MAX_OUTPUTS / 2) return false;
    bool good = true;
    for (int k = 1; k >= 0 && good; k--) {
        bodies[k] = weft__body_of(n, names[k]);
        good = bodies[k] && !is_left_out(import->model, bodies[k]) &&
               map_branch(n, bodies[k], &branches[k]);
    }
    if (good && same_types(&branches[0], &branches[1], n->n_out))
        add_choice(n, condition, &branches[1], &branches[0]);
    else
        good = false;
    for (int k = 0; k < 2; k++) weft_graph_free(branches[k].region.graph);
    /* An error of a branch, whose graph is gone. */
    const weft_status status = import->error.status;
    if (!good && status != WEFT_NO_MEMORY && status != WEFT_TOO_LARGE &&
        weft_graph_status(import->graph) == WEFT_OK) {
        import->error = (weft_error){.status = WEFT_OK};
        import->failed_branch = NULL;
    }
    return good || weft__node_failed(n);
}

/* ---- The node ---- */

static void choose(onnx_node *n)
{
    choice c = {.condition = condition(n)};
    char label[ONNX_SCOPE_BYTES], own[ONNX_SCOPE_BYTES];
    if (weft__node_failed(n) || choose_graph(n, c.condition) || !map_choice(n, &c)) return;
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
