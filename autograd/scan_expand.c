/* The expansion of a scan, n copies of its body, which defines it. For what has no loops of its own, such as
 * weft_vmap. O(n times the nodes of the body). */
#include "scan.h"

#include "passes/unroll.h"

#include <stdlib.h>

typedef struct unrolling {
    weft_graph *graph;
    const scan_attr *scan;
    const weft_value *in; /* of the node */
    weft_value *map;      /* by value of the body: that of the current step */
    weft_value *operands; /* room for the inputs of one node */
    weft_value *rows;     /* [n_out][n]: the values of out in all steps */
} unrolling;

static void copy_node(unrolling *u, size_t index)
{
    const weft_graph *body = u->scan->body->graph;
    const weft_node_info node = weft_graph_node(body, index);
    weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}};
    weft_tensor constant;
    for (size_t i = 0; i < node.n_in; i++) u->operands[i] = u->map[node.in[i]];
    if (weft_constant_of(body, weft_value_from_id(body, node.first_out), &constant)) {
        if (weft_is_value(u->map[node.first_out])) return; /* the same in all steps */
        out[0] = weft_constant(u->graph, constant.dtype, constant.shape, constant.data);
    } else if (scan_of(node.op, node.attr)) {
        weft_expand inner = {u->graph, node.attr, node.n_in, node.n_out, u->operands, out};
        weft__scan_expand(&inner);
    } else {
        weft_apply(u->graph, node.op, node.attr, u->operands, node.n_in, out);
    }
    for (size_t k = 0; k < node.n_out; k++) u->map[node.first_out + k] = out[k];
}

/* What a step computes, or, if `when` is false, `otherwise`; none: zeros. */
static weft_value guarded(weft_graph *g, weft_value when, weft_value computed, weft_value otherwise)
{
    if (!weft_is_value(when)) return computed;
    if (!weft_is_value(otherwise)) otherwise = weft_scalar(g, weft_dtype_of(g, computed), 0);
    return weft_where(g, when, computed, otherwise);
}

/* Adds step t, which reads carry[] and then replaces it. */
static void unroll_step(unrolling *u, int64_t t, weft_value *carry)
{
    const scan_body *b = u->scan->body;
    weft_graph *g = u->graph;
    for (uint32_t i = 0; i < b->n_carry; i++) u->map[b->in[i]] = carry[i];
    for (uint32_t i = b->n_carry; i < scan_inputs(b); i++) {
        u->map[b->in[i]] = u->in[i];
        if (i >= b->n_carry + b->n_each) continue;
        const weft_value one = weft_value_from_id(b->graph, b->in[i]);
        const weft_value row = weft_slice(g, u->in[i], 0, t, t + 1, 1);
        u->map[b->in[i]] = weft_reshape(g, row, weft_shape_of(b->graph, one));
    }
    const size_t n_nodes = weft_graph_node_count(b->graph);
    for (size_t k = 0; k < n_nodes && weft_graph_status(g) == WEFT_OK; k++)
        if (weft_graph_node(b->graph, k).op != &weft_op_input) copy_node(u, k);
    const weft_value when = b->when ? u->map[b->in[b->when - 1]] : WEFT_NO_VALUE;
    for (uint32_t k = 0; k < b->n_out; k++)
        u->rows[k * u->scan->n + t] =
            guarded(g, when, u->map[b->out[b->n_carry + k]], WEFT_NO_VALUE);
    for (uint32_t i = 0; i < b->n_carry; i++)
        carry[i] = guarded(g, when, u->map[b->out[i]], carry[i]);
}

/* Stacks the values of all steps: by two nodes where weft_stack would add one for each of them. */
static weft_value stack_rows(weft_graph *g, const weft_value *rows, int64_t n)
{
    const weft_shape one = weft_shape_of(g, rows[0]);
    if (!one.rank) return weft_stack(g, rows, (size_t)n, 0);
    return weft_reshape(g, weft_concat(g, rows, (size_t)n, 0), scan_stack_shape(one, n));
}

void weft__scan_expand(weft_expand *e)
{
    const scan_attr *a = e->attr;
    const scan_body *b = a->body;
    unrolling u = {.graph = e->graph, .scan = a, .in = e->in};
    weft_value *carry = calloc((size_t)b->n_carry + 1, sizeof *carry);
    u.map = calloc(b->graph->n_values, sizeof *u.map);
    u.operands = calloc(scan_max_inputs(b->graph), sizeof *u.operands);
    if ((uint64_t)a->n <= WEFT_MAX_NODES)
        u.rows = calloc(b->n_out * (size_t)a->n + 1, sizeof *u.rows);
    if ((uint64_t)a->n > WEFT_MAX_NODES) {
        weft_graph_fail_in(e->graph, "scan", WEFT_TOO_LARGE,
                           "%lld copies of its body are more than a graph may have",
                           (long long)a->n);
    } else if (!carry || !u.map || !u.operands || !u.rows) {
        scan_no_memory(e->graph);
    } else {
        for (uint32_t i = 0; i < b->n_carry; i++) carry[i] = e->in[i];
        for (int64_t t = 0; t < a->n && weft_graph_status(e->graph) == WEFT_OK; t++)
            unroll_step(&u, a->reverse ? a->n - 1 - t : t, carry);
        for (uint32_t i = 0; i < b->n_carry; i++) e->out[i] = carry[i];
        for (uint32_t k = 0; k < b->n_out; k++)
            e->out[b->n_carry + k] = stack_rows(e->graph, u.rows + k * a->n, a->n);
    }
    free(carry);
    free(u.map);
    free(u.operands);
    free(u.rows);
}

const weft_pass weft_pass_unroll = {.name = "unroll",
                                    .doc = "scans are replaced by copies of their bodies",
                                    .visit = weft__unroll_visit,
                                    .needed = weft__unroll_needed,
                                    .required = true};
