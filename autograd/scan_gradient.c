/* The gradient of a scan: a scan in the other direction. Its body computes the gradients of a step. It reads
 * the carries that came into the step and the values that the scan stored (scan_stored.c), and
 * computes what else it needs of the forward pass again. It carries the gradients of the carries,
 * and of those of the shared inputs the sums that are not left to nodes after it (scan_lift.c).
 * O(nodes of the body). */
#include "scan_lift.h"

#include <stdlib.h>

typedef struct reversal {
    weft_vjp *v;
    const scan_attr *scan;
    weft_graph *g;   /* of the new body */
    weft_value *map; /* by value of the body: its copy */
    /* The new body and what it reads. */
    weft_value *carry_in, *carry_out, *each, *shared, *out, *carry, *sequences;
    size_t n_carry, n_each;
    weft_value when; /* of the new body: whether the step has run; none: all have */
    /* For weft_grad_of: */
    weft_value *ends, *starts, *wrt, *grads;
    size_t n_ends, n_wrt;
    weft_value *left; /* by shared input: what its gradient's sum in the loop consists of, if any */
    scan_lift lift;
} reversal;

static bool is_float(const reversal *r, uint32_t id)
{
    const weft_graph *body = r->scan->body->graph;
    return weft_dtype_is_float(weft_dtype_of(body, weft_value_from_id(body, id)));
}

/* An input of the new body of the type of a value of the old one. */
static weft_value new_input(reversal *r, uint32_t like)
{
    return weft__scan_input(r->g, &r->scan->body->graph->values[like].type);
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

/* Copies the nodes of a graph. map[], by value, has the copies; those that it has already stay. */
static void copy_nodes(weft_graph *to, const weft_graph *from, weft_value *map)
{
    weft_value *in = calloc(scan_max_inputs(from), sizeof *in);
    if (!in) scan_no_memory(to);
    for (size_t k = 0; in && k < weft_graph_node_count(from); k++) {
        const weft_node_info node = weft_graph_node(from, k);
        weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}};
        for (size_t i = 0; i < node.n_in; i++) in[i] = map[node.in[i]];
        weft_graph_copy_node(to, from, k, in, out);
        for (size_t i = 0; i < node.n_out; i++)
            if (!weft_is_value(map[node.first_out + i])) map[node.first_out + i] = out[i];
    }
    free(in);
}

/* The stack of a carry that came in: an output of the scan. WEFT_NO_VALUE if it has none (see
 * weft__scan_list_stored). */
static weft_value carry_stack(const reversal *r, uint32_t carry)
{
    const scan_body *b = r->scan->body;
    for (uint32_t k = b->n_carry; k < b->n_carry + b->n_out; k++)
        if (b->out[k] == b->in[carry]) return r->v->out[k];
    weft_graph_fail_in(r->v->graph, "scan", WEFT_BAD_ARGUMENT,
                       "%u carries, %u values in out and %lld steps: a gradient needs twice the "
                       "carries and the values to be at most %d, and a stack of each carry",
                       b->n_carry, b->n_out, (long long)r->scan->n, WEFT_MAX_OUTPUTS);
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

static void differentiate(reversal *r)
{
    const scan_body *b = r->scan->body;
    for (uint32_t i = 0; i < scan_inputs(b); i++)
        if (has_gradient(r, i)) r->wrt[r->n_wrt++] = r->map[b->in[i]];
    weft_grad_of(r->g, r->ends, r->starts, r->n_ends, r->wrt, r->n_wrt, r->grads);
}

/* Lets the new body read values of the forward pass that the scan stacks. */
static void read_stored(reversal *r)
{
    const scan_body *b = r->scan->body;
    weft_graph *computed = r->g;
    uint8_t *stored = calloc(b->graph->n_values, 1);
    weft_value *map = calloc(computed->n_values, sizeof *map);
    r->g = weft_graph_new();
    if (stored && map && r->g) {
        const size_t n_each = r->n_each;
        weft__scan_mark_stored(b, stored);
        for (uint32_t k = b->n_carry; k < b->n_carry + b->n_out; k++) {
            weft_value *copy = &map[r->map[b->out[k]].id];
            if (!stored[b->out[k]] || weft_is_value(*copy)) continue;
            *copy = new_input(r, b->out[k]);
            add_each(r, *copy, r->v->out[k]);
        }
        copy_nodes(r->g, computed, map);
        if (b->when) r->when = map[r->map[b->in[b->when - 1]].id];
        for (size_t i = 0; i < n_each; i++) r->each[i] = map[r->each[i].id];
        for (size_t i = 0; i < r->n_carry; i++) r->carry_in[i] = map[r->carry_in[i].id];
        for (size_t i = 0; i < r->n_wrt; i++) r->grads[i] = map[r->grads[i].id];
        for (uint32_t i = b->n_carry + b->n_each; i < scan_inputs(b); i++)
            r->map[b->in[i]] = map[r->map[b->in[i]].id];
    } else {
        scan_no_memory(r->v->graph);
    }
    weft_graph_free(computed);
    free(stored);
    free(map);
}

/* Prepares the sums of n gradients of shared inputs, some of which the loop may have to carry. */
static void open_lift(reversal *r, size_t n_sums)
{
    const size_t n_carry = r->n_carry + n_sums;
    const bool room = !r->scan->recompute && !r->scan->body->when && n_carry < WEFT_MAX_OUTPUTS;
    r->lift = (scan_lift){.graph = r->v->graph,
                          .body = r->g,
                          .n = r->scan->n,
                          .each = r->each,
                          .sequences = r->sequences,
                          .shared = r->shared,
                          .n_each = r->n_each,
                          .n_shared = r->scan->body->n_shared,
                          .out = r->out,
                          .max_out = room ? WEFT_MAX_OUTPUTS - n_carry : 0,
                          .lifted = calloc(r->g->n_values, 1)};
    if (!r->lift.lifted) scan_no_memory(r->v->graph);
}

/* Lists what each step computes. */
static void list_outputs(reversal *r)
{
    const scan_body *b = r->scan->body;
    const uint32_t first_shared = b->n_carry + b->n_each;
    size_t n = 0, n_carry = 0;
    for (uint32_t i = 0; i < b->n_shared; i++) r->shared[i] = r->map[b->in[first_shared + i]];
    open_lift(r, r->n_wrt - r->n_carry);
    for (uint32_t i = 0; r->lift.lifted && i < scan_inputs(b); i++) {
        if (!has_gradient(r, i)) continue;
        const weft_value gradient = r->grads[n++];
        if (i < b->n_carry) {
            r->carry_out[n_carry++] = gradient;
        } else if (i < first_shared) {
            r->out[r->lift.n_out++] = gradient;
        } else {
            const weft_value left = weft__scan_lift_plan(&r->lift, r->g, gradient);
            r->left[i - first_shared] = left;
            if (!weft_is_value(left)) continue;
            const weft_value sum = new_input(r, b->in[i]);
            r->carry[r->n_carry] = zeros_like(r, b->in[i]);
            r->carry_in[r->n_carry] = sum;
            r->carry_out[r->n_carry++] = weft_add(r->g, sum, left);
        }
    }
}

/* Hands out the gradients, from the last carries and the stacks of the scan in reverse. */
static void list_gradients(reversal *r, const weft_value *last, const weft_value *stacked)
{
    const scan_body *b = r->scan->body;
    const uint32_t first_shared = b->n_carry + b->n_each;
    weft_vjp *v = r->v;
    size_t n = 0;
    r->lift.stacks = stacked;
    for (uint32_t i = 0; i < scan_inputs(b); i++) {
        if (!has_gradient(r, i)) continue;
        const weft_value gradient = r->grads[n++];
        weft_value result = WEFT_NO_VALUE;
        if (i < b->n_carry)
            result = *last++;
        else if (i < first_shared)
            result = *stacked++;
        else
            result = weft__scan_lift_sum(
                &r->lift, gradient, weft_is_value(r->left[i - first_shared]) ? *last++ : result);
        if (v->wanted[i]) v->grad_in[i] = result;
    }
}

/* Adds the scan in reverse. */
static void add_reverse(reversal *r)
{
    const scan_body *b = r->scan->body;
    weft_graph *g = r->v->graph;
    weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}};
    const weft_scan_inputs inputs = {r->carry, r->sequences, r->v->in + b->n_carry + b->n_each};
    const weft_scan_body body = {.graph = r->g,
                                 .n_carry = r->n_carry,
                                 .carry_in = r->carry_in,
                                 .carry_out = r->carry_out,
                                 .n_each = r->n_each,
                                 .each = r->each,
                                 .n_shared = b->n_shared,
                                 .shared = r->shared,
                                 .n_out = r->lift.n_out,
                                 .out = r->out,
                                 .reverse = !r->scan->reverse,
                                 .segment = r->scan->recompute,
                                 .when = r->when};
    if (body.n_carry + body.n_out > 0 && weft__scan_check(g, &body, &inputs))
        weft__scan_build(g, r->scan->ops, &body, r->scan->n, &inputs, out);
    if (weft_graph_status(g) == WEFT_OK) list_gradients(r, out, out + body.n_carry);
}

/* Whether no error has come up, also in the new body. */
static bool passed(const reversal *r)
{
    return scan_is_good(r->v->graph, r->g) && weft_graph_status(r->v->graph) == WEFT_OK;
}

void weft__scan_vjp(weft_vjp *v)
{
    const scan_attr *a = v->attr;
    const scan_body *b = a->body;
    const size_t room = scan_inputs(b) + 2 * (size_t)(b->n_carry + b->n_out) + WEFT_MAX_OUTPUTS;
    reversal r = {.v = v, .scan = a, .g = weft_graph_new()};
    weft_value **lists[] = {&r.carry_in,  &r.carry_out, &r.each,   &r.shared, &r.out,   &r.carry,
                            &r.sequences, &r.ends,      &r.starts, &r.wrt,    &r.grads, &r.left};
    const size_t n_lists = sizeof lists / sizeof *lists;
    weft_value *all = calloc(n_lists * room, sizeof *all);
    r.map = calloc(b->graph->n_values, sizeof *r.map);
    if (!r.g || !all || !r.map) {
        scan_no_memory(v->graph);
    } else {
        for (size_t i = 0; i < n_lists; i++) *lists[i] = all + i * room;
        copy_nodes(r.g, b->graph, r.map);
        list_inputs(&r);
        if (passed(&r)) differentiate(&r);
        if (passed(&r)) read_stored(&r);
        if (passed(&r)) list_outputs(&r);
        if (passed(&r)) add_reverse(&r);
    }
    weft_graph_free(r.g);
    free(r.lift.lifted);
    free(all);
    free(r.map);
}
