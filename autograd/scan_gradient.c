/* The gradient of a scan: a scan in the other direction. Its body computes the body's forward pass again, from
 * the carries that came into each step, and then its gradients. It carries the gradients of the
 * carries, and the sums of those of the shared inputs. O(nodes of the body). */
#include "scan.h"

#include <stdlib.h>

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

/* The stack of a carry that came in: an output of the scan. WEFT_NO_VALUE if there is none (see
 * stack_carries in scan.c). */
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
    weft_scan_body body = {.graph = r->g,
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
    if (b->when) body.when = r->map[b->in[b->when - 1]];
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

void weft__scan_vjp(weft_vjp *v)
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
