/* Building scans: checks of a body and its inputs, and the node. O(nodes of the body). */
#include "scan.h"

#include <stdlib.h>
#include <string.h>

weft_value weft__scan_input(weft_graph *body, const weft_type *type)
{
    weft_input_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = type->dtype;
    attr.shape = type->shape;
    return weft_apply(body, &weft_op_input, &attr, NULL, 0, NULL);
}

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
bool weft__scan_check(weft_graph *g, const weft_scan_body *b, const weft_scan_inputs *in)
{
    const char *wrong = NULL;
    if (!b || !in)
        wrong = "the body or the inputs are NULL";
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
    if (!scan_is_good(g, b->graph)) return false;
    if (b->n_carry + b->n_out >= 1 && b->n_carry <= WEFT_MAX_OUTPUTS &&
        b->n_out <= WEFT_MAX_OUTPUTS - b->n_carry)
        return true;
    weft_graph_fail_in(g, "weft_scan", WEFT_BAD_ARGUMENT,
                       "%zu carries and %zu values in out, expected 1 to %d together", b->n_carry,
                       b->n_out, WEFT_MAX_OUTPUTS);
    return false;
}

/* Finds the input that says whether a step runs. */
static bool find_when(weft_graph *g, const weft_scan_body *b, scan_body *like)
{
    if (!weft_is_value(b->when)) return true;
    for (uint32_t i = 0; i < like->n_carry + like->n_each; i++)
        if (weft__graph_owns(b->graph, b->when) && like->in[i] == b->when.id) like->when = i + 1;
    const weft_type *type = like->when ? &b->graph->values[b->when.id].type : NULL;
    if (type && type->dtype == WEFT_BOOL && type->shape.rank == 0) return true;
    weft_graph_fail_in(g, "weft_scan", type ? WEFT_BAD_DTYPE : WEFT_BAD_ARGUMENT,
                       "when is not %s of the body",
                       type ? "a bool scalar" : "a carry or sequence");
    return false;
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
           check_carries(g, b) && find_when(g, b, like);
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
    weft_apply(g, &attr->ops[attr->body->n_carry + attr->body->n_out - 1], attr, in, n, out);
    free(in);
}

static void build(weft_graph *g, const weft_op *ops, const weft_scan_body *b, int64_t n,
                  const weft_value *in, weft_value *out)
{
    const size_t n_in = b->n_carry + b->n_each + b->n_shared;
    scan_body like = {.in = calloc(n_in + 1, sizeof *like.in),
                      .out = calloc(WEFT_MAX_OUTPUTS, sizeof *like.out)};
    bool *used = calloc(n_in + 1, sizeof *used);
    if (!like.in || !like.out || !used) {
        scan_no_memory(g);
    } else if (list_ids(g, b, &like)) {
        scan_attr attr;
        if (!weft__scan_list_stored(&like, n, b->segment == 1)) scan_no_memory(g);
        memset(&attr, 0, sizeof attr);
        attr.ops = ops;
        attr.n = n;
        attr.reverse = b->reverse;
        attr.recompute = b->segment == 1;
        attr.conditional = like.when != 0;
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

void weft__scan_build(weft_graph *g, const weft_op *ops, const weft_scan_body *b, int64_t n,
                      const weft_scan_inputs *inputs, weft_value *out)
{
    const size_t n_carry = b->n_carry, n_in = n_carry + b->n_each + b->n_shared;
    weft_value *in = calloc(n_in + 1, sizeof *in);
    if (!in) {
        scan_no_memory(g);
        return;
    }
    for (size_t i = 0; i < n_carry; i++) in[i] = inputs->carry[i];
    for (size_t i = 0; i < b->n_each; i++) in[n_carry + i] = inputs->each[i];
    for (size_t i = 0; i < b->n_shared; i++) in[n_carry + b->n_each + i] = inputs->shared[i];
    build(g, ops, b, n, in, out);
    free(in);
}
