/* Scans: the builder, and the gradient. The planner runs a scan as a loop over one plan of the body
 * (graph/plan/loop.c, graph/run/loop.c). O(nodes of the body). */
#include "scan.h"

#include <stdlib.h>
#include <string.h>

static void vjp(weft_vjp *v);

/* An op has a fixed number of outputs, so scans of k outputs are the k-th of these. */
#define SCAN(k)                                                                                    \
    {                                                                                              \
        .name = "scan", .doc = "a body graph, applied n times: carries go from step to step",      \
        .min_in = 1, .max_in = WEFT_VARIADIC, .n_out = (k), .attr_size = sizeof(scan_attr),        \
        .attrs = weft__scan_attrs, .infer = weft__scan_infer, .cost = weft__scan_cost,             \
        .can_fail = true, .vjp = vjp, .expand = weft__scan_expand                                  \
    }
#define SCANS(k) SCAN(k), SCAN((k) + 1), SCAN((k) + 2), SCAN((k) + 3)
static const weft_op scans[] = {SCANS(1),  SCANS(5),  SCANS(9),  SCANS(13),
                                SCANS(17), SCANS(21), SCANS(25), SCANS(29)};
_Static_assert(sizeof scans / sizeof *scans == WEFT_MAX_OUTPUTS, "a scan for each number");

/* ---- The builder ---- */

static bool refuse(weft_graph *g, const char *what, size_t i, const char *why)
{
    weft_graph_fail_in(g, "weft_scan", WEFT_BAD_ARGUMENT, "%s %zu of the body %s", what, i, why);
    return false;
}

/* Adds the ids of inputs of the body, each of which must be new. */
static bool add_inputs(weft_graph *g, const weft_graph *body, const char *what,
                       const weft_value *values, size_t n, uint32_t *ids, size_t *n_ids)
{
    for (size_t i = 0; i < n; i++) {
        if (!weft__graph_owns(body, values[i]))
            return refuse(g, what, i, "does not belong to the body's graph");
        if (weft_graph_node(body, weft_producer_of(body, values[i])).op != &weft_op_input)
            return refuse(g, what, i, "is not an input: declare it by weft_input");
        for (size_t k = 0; k < *n_ids; k++)
            if (ids[k] == values[i].id) return refuse(g, what, i, "is listed twice");
        ids[(*n_ids)++] = values[i].id;
    }
    return true;
}

static bool add_outputs(weft_graph *g, const weft_graph *body, const char *what,
                        const weft_value *values, size_t n, uint32_t *ids)
{
    for (size_t i = 0; i < n; i++) {
        if (!weft__graph_owns(body, values[i]))
            return refuse(g, what, i, "does not belong to the body's graph");
        ids[i] = values[i].id;
    }
    return true;
}

static bool check_carries(weft_graph *g, const weft_scan_body *body)
{
    for (size_t i = 0; i < body->n_carry; i++) {
        const weft_value in = body->carry_in[i], out = body->carry_out[i];
        const weft_shape from = weft_shape_of(body->graph, in),
                         to = weft_shape_of(body->graph, out);
        const weft_dtype from_dtype = weft_dtype_of(body->graph, in),
                         to_dtype = weft_dtype_of(body->graph, out);
        char a[128], b[128];
        if (from_dtype == to_dtype && weft_shape_equal(from, to)) continue;
        weft_graph_fail_in(g, "weft_scan", from_dtype == to_dtype ? WEFT_BAD_SHAPE : WEFT_BAD_DTYPE,
                           "carry %zu comes in as %s %s and goes out as %s %s: expected one type",
                           i, weft_dtype_name(from_dtype), weft_shape_text(from, a, sizeof a),
                           weft_dtype_name(to_dtype), weft_shape_text(to, b, sizeof b));
        return false;
    }
    return true;
}

/* Whether lists that have elements are there, and the numbers are possible. */
static bool check_lists(weft_graph *g, const weft_scan_body *b, const weft_scan_inputs *in)
{
    const char *wrong = NULL;
    if (!b || !b->graph || !in)
        wrong = "the body, its graph or the inputs are NULL";
    else if (b->graph == g)
        wrong =
            "the body's graph is the one that the scan is added to: expected a graph of its own";
    else if ((b->n_carry && (!b->carry_in || !b->carry_out || !in->carry)) ||
             (b->n_each && (!b->each || !in->each)) ||
             (b->n_shared && (!b->shared || !in->shared)) || (b->n_out && !b->out))
        wrong = "a list of the body or of the inputs is NULL";
    else if (b->n_carry + b->n_each < 1)
        wrong = "the body has no carry and no sequence: expected at least one";
    if (wrong) {
        weft_graph_fail_in(g, "weft_scan", WEFT_BAD_ARGUMENT, "%s", wrong);
        return false;
    }
    if (b->n_carry + b->n_out >= 1 && b->n_carry <= WEFT_MAX_OUTPUTS &&
        b->n_out <= WEFT_MAX_OUTPUTS - b->n_carry)
        return true;
    weft_graph_fail_in(g, "weft_scan", WEFT_BAD_ARGUMENT,
                       "%zu carries and %zu values in out, expected 1 to %d together", b->n_carry,
                       b->n_out, WEFT_MAX_OUTPUTS);
    return false;
}

/* Appends the stacks of the carries that come in, which the gradient reads, to the outputs. A plan
 * leaves out what nothing reads (passes/prune.c). */
static void stack_carries(scan_body *like)
{
    bool fits = 2 * like->n_carry + like->n_out <= WEFT_MAX_OUTPUTS;
    for (uint32_t i = 0; i < like->n_carry; i++)
        fits &= like->graph->values[like->in[i]].type.shape.rank < WEFT_MAX_RANK;
    for (uint32_t i = 0; fits && i < like->n_carry; i++)
        like->out[like->n_carry + like->n_out++] = like->in[i];
}

/* Fills the ids of a body as its graph has them. */
static bool list_ids(weft_graph *g, const weft_scan_body *b, scan_body *like)
{
    size_t n = 0;
    *like = (scan_body){.graph = b->graph,
                        .n_carry = (uint32_t)b->n_carry,
                        .n_each = (uint32_t)b->n_each,
                        .n_shared = (uint32_t)b->n_shared,
                        .n_out = (uint32_t)b->n_out,
                        .in = like->in,
                        .out = like->out};
    return add_inputs(g, b->graph, "carry_in", b->carry_in, b->n_carry, like->in, &n) &&
           add_inputs(g, b->graph, "each", b->each, b->n_each, like->in, &n) &&
           add_inputs(g, b->graph, "shared", b->shared, b->n_shared, like->in, &n) &&
           add_outputs(g, b->graph, "carry_out", b->carry_out, b->n_carry, like->out) &&
           add_outputs(g, b->graph, "out", b->out, b->n_out, like->out + b->n_carry) &&
           check_carries(g, b);
}

/* Adds the node on the inputs that the body reads. */
static void add_scan(weft_graph *g, const scan_attr *attr, const weft_value *all, const bool *used,
                     size_t n_all, weft_value *out)
{
    weft_value *in = calloc(n_all + 1, sizeof *in);
    size_t n = 0;
    if (!in) {
        scan_no_memory(g);
        return;
    }
    for (size_t i = 0; i < n_all; i++)
        if (used[i]) in[n++] = all[i];
    weft_apply(g, &scans[attr->body->n_carry + attr->body->n_out - 1], attr, in, n, out);
    free(in);
}

static void build(weft_graph *g, const weft_scan_body *b, int64_t n, const weft_value *in,
                  weft_value *out)
{
    const size_t n_in = b->n_carry + b->n_each + b->n_shared;
    scan_body like = {.in = calloc(n_in + 1, sizeof *like.in),
                      .out = calloc(2 * b->n_carry + b->n_out + 1, sizeof *like.out)};
    bool *used = calloc(n_in + 1, sizeof *used);
    if (!like.in || !like.out || !used) {
        scan_no_memory(g);
    } else if (list_ids(g, b, &like)) {
        scan_attr attr;
        stack_carries(&like);
        memset(&attr, 0, sizeof attr);
        attr.n = n;
        attr.reverse = b->reverse;
        attr.body = weft__scan_body_new(g, b->graph, &like, used);
        if (attr.body) {
            attr.nodes = (int64_t)weft_graph_node_count(attr.body->graph);
            add_scan(g, &attr, in, used, n_in, out);
        }
        weft__scan_body_release(attr.body);
    }
    free(like.in);
    free(like.out);
    free(used);
}

void weft_scan(weft_graph *graph, const weft_scan_body *body, int64_t n,
               const weft_scan_inputs *inputs, weft_value *last, weft_value *stacked)
{
    for (size_t i = 0; body && last && i < body->n_carry; i++) last[i] = WEFT_NO_VALUE;
    for (size_t i = 0; body && stacked && i < body->n_out; i++) stacked[i] = WEFT_NO_VALUE;
    if (weft_graph_status(graph) != WEFT_OK || !check_lists(graph, body, inputs)) return;
    const weft_error *error = weft_graph_error(body->graph);
    if (error->status != WEFT_OK) {
        weft_graph_fail_in(graph, error->where, error->status, "%s", error->message);
        return;
    }
    weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}};
    weft_value *in = calloc(body->n_carry + body->n_each + body->n_shared + 1, sizeof *in);
    if (!in) {
        scan_no_memory(graph);
        return;
    }
    for (size_t i = 0; i < body->n_carry; i++) in[i] = inputs->carry[i];
    for (size_t i = 0; i < body->n_each; i++) in[body->n_carry + i] = inputs->each[i];
    for (size_t i = 0; i < body->n_shared; i++)
        in[body->n_carry + body->n_each + i] = inputs->shared[i];
    build(graph, body, n, in, out);
    free(in);
    for (size_t i = 0; last && i < body->n_carry; i++) last[i] = out[i];
    for (size_t i = 0; stacked && i < body->n_out; i++) stacked[i] = out[body->n_carry + i];
}

/* ---- The gradient ---- */

/* The gradient of a scan is a scan in reverse. Its body computes the body's forward pass again, from the
 * carries that came into each step, and then its gradients. It carries the gradients of the
 * carries, and the sums of those of the shared inputs. */
typedef struct reversal {
    weft_vjp *v;
    const scan_attr *scan;
    weft_graph *g;   /* of the new body */
    weft_value *map; /* by value of the body: its copy */
    /* The new body and what it reads. */
    weft_value *carry_in, *carry_out, *each, *out, *carry, *sequences;
    size_t n_carry, n_each, n_out;
    /* For weft_grad_of: */
    weft_value *ends, *starts, *wrt, *grads;
    size_t n_ends, n_wrt;
} reversal;

static bool is_float(const reversal *r, uint32_t id)
{
    const weft_graph *body = r->scan->body->graph;
    return weft_dtype_is_float(weft_dtype_of(body, weft_value_from_id(body, id)));
}

/* An input of the new body of the type of a value of the old one. */
static weft_value new_input(reversal *r, uint32_t like)
{
    const weft_type *type = &r->scan->body->graph->values[like].type;
    weft_input_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = type->dtype;
    attr.shape = type->shape;
    return weft_apply(r->g, &weft_op_input, &attr, NULL, 0, NULL);
}

static weft_value zeros_like(const reversal *r, uint32_t id)
{
    const weft_type *type = &r->scan->body->graph->values[id].type;
    return weft_fill(r->v->graph, type->dtype, type->shape, 0.0);
}

static void add_each(reversal *r, weft_value input, weft_value sequence)
{
    r->each[r->n_each] = input;
    r->sequences[r->n_each++] = sequence;
}

static void copy_body(reversal *r)
{
    const weft_graph *body = r->scan->body->graph;
    weft_value *in = calloc(scan_max_inputs(body), sizeof *in);
    if (!in) {
        scan_no_memory(r->g);
        return;
    }
    for (size_t k = 0; k < weft_graph_node_count(body); k++) {
        const weft_node_info node = weft_graph_node(body, k);
        for (size_t i = 0; i < node.n_in; i++) in[i] = r->map[node.in[i]];
        weft_graph_copy_node(r->g, body, k, in, &r->map[node.first_out]);
    }
    free(in);
}

/* The stack of a carry that came in: an output of the scan. WEFT_NO_VALUE if there is none. */
static weft_value carry_stack(const reversal *r, uint32_t carry)
{
    const scan_body *b = r->scan->body;
    for (uint32_t k = b->n_carry; k < b->n_carry + b->n_out; k++)
        if (b->out[k] == b->in[carry]) return r->v->out[k];
    weft_graph_fail_in(r->v->graph, "scan", WEFT_BAD_ARGUMENT,
                       "%u carries and %u values in out: a gradient needs twice the carries and "
                       "the values to be at most %d",
                       b->n_carry, b->n_out, WEFT_MAX_OUTPUTS);
    return WEFT_NO_VALUE;
}

/* Lists what the forward pass reads in each step, and the gradients that arrive. */
static void list_inputs(reversal *r)
{
    const scan_body *b = r->scan->body;
    const weft_vjp *v = r->v;
    for (uint32_t i = 0; i < b->n_carry; i++) add_each(r, r->map[b->in[i]], carry_stack(r, i));
    for (uint32_t i = b->n_carry; i < b->n_carry + b->n_each; i++)
        add_each(r, r->map[b->in[i]], v->in[i]);
    for (uint32_t k = 0; k < b->n_carry + b->n_out; k++) {
        const bool is_carry = k < b->n_carry, arrives = weft_is_value(v->grad_out[k]);
        if (!is_float(r, b->out[k]) || (!is_carry && !arrives)) continue;
        const weft_value gradient = new_input(r, b->out[k]);
        r->ends[r->n_ends] = r->map[b->out[k]];
        r->starts[r->n_ends++] = gradient;
        if (!is_carry) {
            add_each(r, gradient, v->grad_out[k]);
            continue;
        }
        r->carry[r->n_carry] = arrives ? v->grad_out[k] : zeros_like(r, b->in[k]);
        r->carry_in[r->n_carry++] = gradient;
    }
}

/* Whether the gradient of input i of the scan is computed: every carry has one, for the step before. */
static bool has_gradient(const reversal *r, uint32_t i)
{
    return is_float(r, r->scan->body->in[i]) && (i < r->scan->body->n_carry || r->v->wanted[i]);
}

/* Differentiates the copy of the body, and lists what each step computes. */
static void list_outputs(reversal *r)
{
    const scan_body *b = r->scan->body;
    size_t n = 0;
    for (uint32_t i = 0; i < scan_inputs(b); i++)
        if (has_gradient(r, i)) r->wrt[r->n_wrt++] = r->map[b->in[i]];
    weft_grad_of(r->g, r->ends, r->starts, r->n_ends, r->wrt, r->n_wrt, r->grads);
    for (uint32_t i = 0; i < scan_inputs(b); i++) {
        if (!has_gradient(r, i)) continue;
        const weft_value gradient = r->grads[n++];
        if (i < b->n_carry) {
            r->carry_out[n - 1] = gradient;
        } else if (i < b->n_carry + b->n_each) {
            r->out[r->n_out++] = gradient;
        } else {
            const weft_value sum = new_input(r, b->in[i]);
            r->carry[r->n_carry] = zeros_like(r, b->in[i]);
            r->carry_in[r->n_carry] = sum;
            r->carry_out[r->n_carry++] = weft_add(r->g, sum, gradient);
        }
    }
}

/* Adds the scan in reverse, and hands out its results. */
static void add_reverse(reversal *r)
{
    const scan_body *b = r->scan->body;
    weft_vjp *v = r->v;
    weft_value last[WEFT_MAX_OUTPUTS] = {{0, 0}}, stacked[WEFT_MAX_OUTPUTS] = {{0, 0}};
    const weft_scan_inputs inputs = {r->carry, r->sequences, v->in + b->n_carry + b->n_each};
    weft_value *shared = r->wrt; /* no longer needed */
    for (uint32_t i = 0; i < b->n_shared; i++)
        shared[i] = r->map[b->in[b->n_carry + b->n_each + i]];
    const weft_scan_body body = {.graph = r->g,
                                 .n_carry = r->n_carry,
                                 .carry_in = r->carry_in,
                                 .carry_out = r->carry_out,
                                 .n_each = r->n_each,
                                 .each = r->each,
                                 .n_shared = b->n_shared,
                                 .shared = shared,
                                 .n_out = r->n_out,
                                 .out = r->out,
                                 .reverse = !r->scan->reverse};
    if (!r->n_carry && !r->n_out) return;
    weft_scan(v->graph, &body, r->scan->n, &inputs, last, stacked);
    size_t carries = 0, stacks = 0;
    for (uint32_t i = 0; i < scan_inputs(b); i++) {
        if (!has_gradient(r, i)) continue;
        const bool each = i >= b->n_carry && i < b->n_carry + b->n_each;
        const weft_value gradient = each ? stacked[stacks++] : last[carries++];
        if (v->wanted[i]) v->grad_in[i] = gradient;
    }
}

static void vjp(weft_vjp *v)
{
    const scan_attr *a = v->attr;
    const scan_body *b = a->body;
    const size_t room = scan_inputs(b) + 2 * (size_t)(b->n_carry + b->n_out) + 1;
    reversal r = {.v = v, .scan = a, .g = weft_graph_new()};
    weft_value *all = calloc(10 * room, sizeof *all);
    r.map = calloc(b->graph->n_values, sizeof *r.map);
    if (!r.g || !all || !r.map) {
        scan_no_memory(v->graph);
    } else {
        weft_value **lists[] = {&r.carry_in,  &r.carry_out, &r.each,   &r.out, &r.carry,
                                &r.sequences, &r.ends,      &r.starts, &r.wrt, &r.grads};
        for (size_t i = 0; i < 10; i++) *lists[i] = all + i * room;
        copy_body(&r);
        list_inputs(&r);
        list_outputs(&r);
        add_reverse(&r);
    }
    weft_graph_free(r.g);
    free(all);
    free(r.map);
}
