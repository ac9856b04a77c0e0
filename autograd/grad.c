/* Reverse-mode differentiation: walks the nodes between the wanted values and the outputs backwards
 * and asks each op for its vector-Jacobian product, which it builds as nodes of the same graph.
 * The contributions of several readers to one value are summed by weft_add_n, in the order of the
 * readers. O(nodes between). (Griewank & Walther, "Evaluating Derivatives", ch. 3.) */
#include "grad.h"

#include <stdlib.h>
#include <string.h>

/* One contribution to a value's gradient; lists by value, latest reader first. */
typedef struct contribution {
    weft_value gradient;
    uint32_t next; /* index + 1 */
} contribution;

/* What calls `ready` as soon as a wanted gradient is complete; lists by node of its producer. */
typedef struct ready_lists {
    weft_grad_hooks ready;
    uint32_t *first, *next; /* index + 1 */
} ready_lists;

typedef struct walk {
    weft_graph *graph;
    grad_purpose *purpose;
    const weft_grad_hooks *ready; /* may be NULL */
    size_t first_node;            /* no node before it is differentiated; 0: not an expansion */
    size_t n_nodes, n_values;     /* before any node of the backward pass */
    uint8_t *from_wrt;            /* by value: depends on a wanted value */
    uint8_t *to_output;           /* by node: an output depends on it */
    uint32_t *first;              /* by value: its contributions */
    contribution *list;
    size_t n_list, list_capacity;
    weft_value *sums; /* room for the terms of one value */
    size_t sum_capacity;
} walk;

static bool failed(const walk *w)
{
    return weft_graph_status(w->graph) != WEFT_OK;
}

static void no_memory(walk *w)
{
    weft_graph_fail_in(w->graph, w->purpose->function, WEFT_NO_MEMORY, "no memory");
}

static void contribute(walk *w, uint32_t value, weft_value gradient)
{
    if (w->n_list == w->list_capacity) {
        size_t capacity = w->list_capacity ? 2 * w->list_capacity : 64;
        contribution *list = realloc(w->list, capacity * sizeof *list);
        if (!list) {
            no_memory(w);
            return;
        }
        w->list = list;
        w->list_capacity = capacity;
    }
    w->list[w->n_list] = (contribution){gradient, w->first[value]};
    w->first[value] = (uint32_t)++w->n_list;
}

/* The gradient of a value: none, its one contribution, or the sum of them. */
static weft_value collected(walk *w, uint32_t value)
{
    size_t n = 0;
    for (uint32_t at = w->first[value]; at; at = w->list[at - 1].next) {
        if (n == w->sum_capacity) {
            size_t capacity = n ? 2 * n : 8;
            weft_value *sums = realloc(w->sums, capacity * sizeof *sums);
            if (!sums) {
                no_memory(w);
                return WEFT_NO_VALUE;
            }
            w->sums = sums;
            w->sum_capacity = capacity;
        }
        w->sums[n++] = w->list[at - 1].gradient;
    }
    if (n < 2) return n ? w->sums[0] : WEFT_NO_VALUE;
    weft_value sum = weft_add_n(w->graph, w->sums, n);
    contribution *only = &w->list[w->first[value] - 1];
    *only = (contribution){sum, 0};
    return sum;
}

/* Adds the gradient of one input to its contributions: summed back from a broadcast, and checked.
 */
static void accept(walk *w, const weft_op *op, uint32_t input, weft_value gradient)
{
    char have[128], want[128];
    weft_value value = weft_value_from_id(w->graph, input);
    weft_shape shape = weft_shape_of(w->graph, value);
    if (op->broadcasts) gradient = weft_sum_to(w->graph, gradient, shape);
    if (failed(w)) return;
    if (weft_shape_equal(weft_shape_of(w->graph, gradient), shape) &&
        weft_dtype_of(w->graph, gradient) == weft_dtype_of(w->graph, value)) {
        contribute(w, input, gradient);
        return;
    }
    weft_graph_fail_in(w->graph, op->name, WEFT_INTERNAL,
                       "the gradient rule (vjp) returns %s %s for an input of %s %s",
                       weft_dtype_name(weft_dtype_of(w->graph, gradient)),
                       weft_shape_text(weft_shape_of(w->graph, gradient), have, sizeof have),
                       weft_dtype_name(weft_dtype_of(w->graph, value)),
                       weft_shape_text(shape, want, sizeof want));
}

static void grad_from(weft_graph *graph, size_t first_node, const weft_grad_values *values,
                      weft_value *grads, const weft_grad_hooks *ready, grad_purpose *purpose);

typedef struct node_lists {
    weft_value *in, *grad_in;
    bool *wanted;
} node_lists;

/* Differentiates an op without a rule by its expansion into simpler ops, and no node before that:
 * the inputs of the op may depend on each other. */
static void differentiate_expansion(walk *w, const weft_op *op, const void *attr, size_t n_in,
                                    const weft_value *grad_out, node_lists *l)
{
    weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}}, ends[WEFT_MAX_OUTPUTS], starts[WEFT_MAX_OUTPUTS];
    weft_expand expand = {w->graph, attr, n_in, op->n_out, l->in, out};
    size_t first_node = weft_graph_node_count(w->graph);
    op->expand(&expand);
    size_t n_ends = 0, n_wrt = 0;
    for (size_t i = 0; i < op->n_out; i++) {
        if (!weft_is_value(grad_out[i])) continue;
        ends[n_ends] = out[i];
        starts[n_ends++] = grad_out[i];
    }
    weft_value *wrt = malloc((2 * n_in + 1) * sizeof *wrt);
    if (!wrt) {
        no_memory(w);
        return;
    }
    for (size_t i = 0; i < n_in; i++)
        if (l->wanted[i]) wrt[n_wrt++] = l->in[i];
    grad_from(w->graph, first_node, &(weft_grad_values){ends, starts, n_ends, wrt, n_wrt},
              wrt + n_wrt, NULL, w->purpose);
    for (size_t i = 0, k = 0; i < n_in; i++)
        if (l->wanted[i]) l->grad_in[i] = wrt[n_wrt + k++];
    /* A value at two inputs has its whole gradient at each of them, and must count once. */
    for (size_t i = 0; i < n_in; i++)
        for (size_t k = 0; k < i; k++)
            if (l->wanted[i] && l->wanted[k] && l->in[i].id == l->in[k].id)
                l->grad_in[i] = WEFT_NO_VALUE;
    free(wrt);
}

/* A value of the forward pass as the backward pass reads it: the same, or computed again. */
static weft_value read_again(const walk *w, weft_value value)
{
    const weft_grad_hooks *r = w->ready;
    if (!r || !r->again) return value;
    const weft_value other = r->again(r->context, value);
    if (other.id != value.id) return other;
    const weft_node_info node = weft_graph_node(w->graph, weft_producer_of(w->graph, value));
    if (!node.op->alias || node.n_in != 1 || node.n_out != 1) return value;
    const weft_value from = weft_value_from_id(w->graph, node.in[0]), in = read_again(w, from);
    return in.id == from.id ? value : weft_apply(w->graph, node.op, node.attr, &in, 1, NULL);
}

/* The nodes that are added from now on belong to the derivative of node `index`, which must not be
 * one of an expansion: those belong to the node that is expanded. Returns its scope. */
static const char *begin_node(walk *w, size_t index)
{
    grad_purpose *p = w->purpose;
    p->current = p->made_by ? p->made_by[index] : index;
    const weft_node_info node = weft_graph_node(w->graph, p->current);
    weft_graph_set_role(w->graph, (weft_role){p->direction, node.origin});
    return node.scope ? node.scope : "";
}

static void refuse(const walk *w, const weft_op *op)
{
    const weft_op *first = weft_graph_node(w->graph, w->purpose->current).op;
    if (w->purpose->made_by && first)
        weft_graph_fail_in(w->graph, first->name, WEFT_NO_GRADIENT,
                           "the op has no forward mode: its gradient uses %s, which has no "
                           "gradient",
                           op->name);
    else if (op->gradient == WEFT_GRADIENT_NONE)
        weft_graph_fail_in(w->graph, op->name, WEFT_NO_GRADIENT,
                           "the op has no gradient by design, but the loss depends on it");
    else
        weft_graph_fail_in(
            w->graph, op->name, WEFT_NO_GRADIENT,
            "the op has no gradient rule: give its descriptor a vjp or an expand, or "
            "declare that its gradient is zero (WEFT_GRADIENT_ZERO) or that there "
            "is none (WEFT_GRADIENT_NONE)");
}

static void differentiate_node(walk *w, size_t index, node_lists *l)
{
    weft_node_info node = weft_graph_node(w->graph, index);
    const char *scope = w->first_node ? "" : begin_node(w, index);
    const weft_op *op = node.op;
    weft_value out[WEFT_MAX_OUTPUTS], grad_out[WEFT_MAX_OUTPUTS] = {{0, 0}};
    bool arrives = false, any = false;
    for (size_t i = 0; i < op->n_out; i++) {
        uint32_t id = node.first_out + (uint32_t)i;
        out[i] = weft_value_from_id(w->graph, id);
        if (w->first[id]) grad_out[i] = collected(w, id);
        arrives |= weft_is_value(grad_out[i]);
    }
    for (size_t i = 0; i < node.n_in; i++) {
        l->wanted[i] = w->from_wrt[node.in[i]];
        l->grad_in[i] = WEFT_NO_VALUE;
        any |= l->wanted[i];
    }
    if (!arrives || !any || failed(w)) return;
    if (op->gradient == WEFT_GRADIENT_ZERO) return;
    for (size_t i = 0; i < node.n_in; i++)
        l->in[i] = read_again(w, weft_value_from_id(w->graph, node.in[i]));
    if (!w->first_node)
        weft_graph_push_scope(w->graph, "%s%s%s", w->purpose->prefix, scope[0] ? "." : "", scope);
    if (op->gradient == WEFT_GRADIENT_NONE || (!op->vjp && !op->expand)) {
        refuse(w, op);
    } else if (op->vjp) {
        weft_vjp vjp = {w->graph, node.attr, node.n_in, op->n_out, l->in,
                        out,      grad_out,  l->wanted, l->grad_in};
        op->vjp(&vjp);
    } else {
        differentiate_expansion(w, op, node.attr, node.n_in, grad_out, l);
    }
    for (size_t i = 0; i < node.n_in && !failed(w); i++)
        if (l->wanted[i] && weft_is_value(l->grad_in[i])) accept(w, op, node.in[i], l->grad_in[i]);
    if (!w->first_node) weft_graph_pop_scope(w->graph);
}

/* Marks the values that depend on a wanted one, and the nodes that an output depends on. */
static void mark(walk *w, const weft_grad_values *values)
{
    for (size_t i = 0; i < values->n; i++) w->from_wrt[values->wrt[i].id] = 1;
    for (size_t k = w->first_node; k < w->n_nodes; k++) {
        weft_node_info node = weft_graph_node(w->graph, k);
        bool depends = false;
        for (size_t i = 0; i < node.n_in; i++) depends |= w->from_wrt[node.in[i]];
        for (size_t i = 0; depends && i < node.n_out; i++) {
            weft_value out = weft_value_from_id(w->graph, node.first_out + (uint32_t)i);
            if (weft_dtype_is_float(weft_dtype_of(w->graph, out))) w->from_wrt[out.id] = 1;
        }
    }
    for (size_t i = 0; i < values->n_outputs; i++)
        w->to_output[weft_producer_of(w->graph, values->outputs[i])] = 1;
    for (size_t k = w->n_nodes; k-- > w->first_node;) {
        weft_node_info node = weft_graph_node(w->graph, k);
        for (size_t i = 0; w->to_output[k] && i < node.n_in; i++)
            w->to_output[weft_producer_of(w->graph, weft_value_from_id(w->graph, node.in[i]))] = 1;
    }
}

bool weft__grad_check_floats(weft_graph *graph, const char *function, const char *word,
                             const weft_value *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const weft_value v = values[i];
        if (v.id && weft_value_from_id(graph, v.id).graph == v.graph &&
            weft_dtype_is_float(weft_dtype_of(graph, v)))
            continue;
        weft_graph_fail_in(graph, function, WEFT_BAD_ARGUMENT,
                           "%s %zu must be an f32 or f64 value of this graph", word, i);
        return false;
    }
    return true;
}

bool weft__grad_same_types(weft_graph *graph, const char *function, const char *const words[2],
                           const weft_value *vectors, const weft_value *likes, size_t n)
{
    char want[128], have[128];
    for (size_t i = 0; i < n; i++) {
        const weft_value v = vectors[i], like = likes[i];
        const weft_shape shape = weft_shape_of(graph, v), wanted = weft_shape_of(graph, like);
        const weft_dtype dtype = weft_dtype_of(graph, v), wanted_dtype = weft_dtype_of(graph, like);
        if (weft_shape_equal(shape, wanted) && dtype == wanted_dtype) continue;
        weft_graph_fail_in(
            graph, function, WEFT_BAD_SHAPE, "%s %zu is %s %s, its %s %s %s", words[0], i,
            weft_dtype_name(dtype), weft_shape_text(shape, have, sizeof have), words[1],
            weft_dtype_name(wanted_dtype), weft_shape_text(wanted, want, sizeof want));
        return false;
    }
    return true;
}

static bool check_arguments(weft_graph *g, const weft_grad_values *values, const weft_value *grads,
                            const char *function)
{
    static const char *const words[] = {"cotangent", "output"};
    const weft_value *outputs = values->outputs, *cotangents = values->cotangents;
    const weft_value *wrt = values->wrt;
    const size_t n_outputs = values->n_outputs, n = values->n;
    if ((n_outputs && (!outputs || !cotangents)) || (n && (!wrt || !grads))) {
        weft_graph_fail_in(g, function, WEFT_BAD_ARGUMENT,
                           "the list of outputs, cotangents, wrt or grads is NULL");
        return false;
    }
    return weft__grad_check_floats(g, function, "output", outputs, n_outputs) &&
           weft__grad_check_floats(g, function, "wrt", wrt, n) &&
           weft__grad_same_types(g, function, words, cotangents, outputs, n_outputs);
}

/* The whole gradient of a wanted value; zeros if nothing contributes. */
static weft_value final_gradient(walk *w, weft_value wrt)
{
    if (!w->first_node) begin_node(w, weft_producer_of(w->graph, wrt));
    const weft_value gradient = collected(w, wrt.id);
    if (weft_is_value(gradient) || failed(w)) return gradient;
    return weft_fill(w->graph, weft_dtype_of(w->graph, wrt), weft_shape_of(w->graph, wrt), 0.0);
}

static bool make_lists(walk *w, const weft_value *wrt, size_t n, ready_lists *l)
{
    l->first = calloc(w->n_nodes + 1, sizeof *l->first);
    l->next = calloc(n + 1, sizeof *l->next);
    if (!l->first || !l->next) {
        no_memory(w);
        return false;
    }
    for (size_t i = n; i-- > 0;) {
        const size_t node = weft_producer_of(w->graph, wrt[i]);
        l->next[i] = l->first[node];
        l->first[node] = (uint32_t)i + 1;
    }
    return true;
}

/* Node k is next, so every reader of its outputs is differentiated. */
static void report_ready(walk *w, const ready_lists *l, size_t k, const weft_value *wrt,
                         weft_value *grads)
{
    for (uint32_t at = l->first[k]; at && !failed(w); at = l->next[at - 1]) {
        const size_t i = at - 1;
        grads[i] = final_gradient(w, wrt[i]);
        weft_graph_set_role(w->graph, (weft_role){WEFT_UPDATE, 0});
        if (!failed(w)) l->ready.ready(l->ready.context, i, grads[i]);
    }
}

static void backward(walk *w, const weft_grad_values *values, node_lists *lists, weft_value *grads)
{
    const weft_grad_hooks *ready = w->ready;
    const weft_value *wrt = values->wrt;
    const size_t n = values->n;
    ready_lists l = {.first = NULL};
    if (ready) l.ready = *ready;
    mark(w, values);
    for (size_t i = 0; i < values->n_outputs; i++)
        contribute(w, values->outputs[i].id, values->cotangents[i]);
    const weft_role role = weft_graph_set_role(w->graph, (weft_role){w->purpose->direction, 0});
    if (w->first_node) weft_graph_set_role(w->graph, role);
    bool reports = ready && ready->ready && make_lists(w, wrt, n, &l);
    for (size_t k = w->n_nodes; k-- > w->first_node && !failed(w);) {
        if (reports) report_ready(w, &l, k, wrt, grads);
        if (w->to_output[k]) differentiate_node(w, k, lists);
    }
    for (size_t i = 0; !reports && i < n && !failed(w); i++) grads[i] = final_gradient(w, wrt[i]);
    weft_graph_set_role(w->graph, role);
    free(l.first);
    free(l.next);
}

static void grad_from(weft_graph *graph, size_t first_node, const weft_grad_values *values,
                      weft_value *grads, const weft_grad_hooks *ready, grad_purpose *purpose)
{
    for (size_t i = 0; grads && i < values->n; i++) grads[i] = WEFT_NO_VALUE;
    if (weft_graph_status(graph) != WEFT_OK ||
        !check_arguments(graph, values, grads, purpose->function))
        return;
    walk w = {.graph = graph,
              .purpose = purpose,
              .ready = ready,
              .first_node = first_node,
              .n_nodes = weft_graph_node_count(graph)};
    size_t max_in = 1;
    for (size_t k = 0; k < w.n_nodes; k++) {
        weft_node_info node = weft_graph_node(graph, k);
        if (node.n_in > max_in) max_in = node.n_in;
        w.n_values = node.first_out + node.n_out;
    }
    w.from_wrt = calloc(w.n_values + 1, 1);
    w.to_output = calloc(w.n_nodes + 1, 1);
    w.first = calloc(w.n_values + 1, sizeof *w.first);
    node_lists lists = {calloc(max_in, sizeof(weft_value)), calloc(max_in, sizeof(weft_value)),
                        calloc(max_in, sizeof(bool))};
    if (w.from_wrt && w.to_output && w.first && lists.in && lists.grad_in && lists.wanted)
        backward(&w, values, &lists, grads);
    else
        no_memory(&w);
    free(w.from_wrt);
    free(w.to_output);
    free(w.first);
    free(w.list);
    free(w.sums);
    free(lists.in);
    free(lists.grad_in);
    free(lists.wanted);
}

void weft__grad_walk(weft_graph *graph, const weft_grad_values *values, weft_value *grads,
                     grad_purpose *purpose)
{
    grad_from(graph, 0, values, grads, NULL, purpose);
}

void weft_grad_of(weft_graph *graph, const weft_value *outputs, const weft_value *cotangents,
                  size_t n_outputs, const weft_value *wrt, size_t n, weft_value *grads)
{
    const weft_grad_values values = {outputs, cotangents, n_outputs, wrt, n};
    weft__grad_walk(graph, &values, grads, &GRAD_REVERSE("weft_grad"));
}

void weft_grad_each(weft_graph *graph, const weft_grad_values *values, weft_value *grads,
                    const weft_grad_hooks *ready)
{
    grad_from(graph, 0, values ? values : &(weft_grad_values){.n = 0}, grads, ready,
              &GRAD_REVERSE("weft_grad"));
}

void weft__grad_of_loss(weft_graph *graph, const char *function, weft_value loss,
                        const weft_value *wrt, size_t n, weft_value *grads)
{
    for (size_t i = 0; grads && i < n; i++) grads[i] = WEFT_NO_VALUE;
    if (weft_graph_status(graph) != WEFT_OK) return;
    char text[128];
    weft_shape shape = weft_shape_of(graph, loss);
    if (weft_is_value(loss) && shape.rank != 0) {
        weft_graph_fail_in(graph, function, WEFT_BAD_SHAPE, "the loss must be a scalar, got %s",
                           weft_shape_text(shape, text, sizeof text));
        return;
    }
    const weft_role role = weft_graph_set_role(graph, (weft_role){WEFT_BACKWARD, 0});
    weft_value one = weft_scalar(graph, weft_dtype_of(graph, loss), 1.0);
    weft_graph_set_role(graph, role);
    weft__grad_walk(graph, &(weft_grad_values){&loss, &one, 1, wrt, n}, grads,
                    &GRAD_REVERSE(function));
}

void weft_grad(weft_graph *graph, weft_value loss, const weft_value *wrt, size_t n,
               weft_value *grads)
{
    weft__grad_of_loss(graph, "weft_grad", loss, wrt, n, grads);
}
