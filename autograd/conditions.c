/* Loops and branches that depend on data, as scans some of whose steps do not run. O(operands). */
#include "scan.h"

#include <stdlib.h>
#include <string.h>

static bool fail(weft_graph *g, const char *where, weft_status status, const char *message)
{
    weft_graph_fail_in(g, where, status, "%s", message);
    return false;
}

static bool is_bool_scalar(const weft_graph *g, weft_value v)
{
    return weft__graph_owns(g, v) && g->values[v.id].type.dtype == WEFT_BOOL &&
           g->values[v.id].type.shape.rank == 0;
}

/* ---- While ---- */

/* The carries that weft_while adds. */
enum { GO_ON, COUNT, ADDED };

/* A loop, and what the scan gets: its own carries, and then those that are added. */
typedef struct repetition {
    weft_graph *graph;
    const weft_scan_body *body;
    const weft_while_steps *steps;
    weft_value *carry_in, *carry_out, *carry, *last; /* [body->n_carry + ADDED] */
    size_t n_added;
} repetition;

static bool check_while(weft_graph *g, const weft_scan_body *b, const weft_while_steps *steps,
                        const weft_scan_inputs *in)
{
    if (!b || !steps || !in)
        return fail(g, "weft_while", WEFT_BAD_ARGUMENT,
                    "the body, the steps or the inputs are NULL");
    if (weft_is_value(b->when))
        return fail(g, "weft_while", WEFT_BAD_ARGUMENT,
                    "the body has `when`, which weft_while sets itself");
    if (b->n_carry && (!b->carry_in || !b->carry_out || !in->carry))
        return fail(g, "weft_while", WEFT_BAD_ARGUMENT, "a list of carries is NULL");
    if (!scan_is_good(g, b->graph)) return false;
    if (!is_bool_scalar(b->graph, steps->go_on))
        return fail(g, "weft_while", WEFT_BAD_ARGUMENT,
                    "go_on is not a bool scalar of the body's graph");
    if (weft_is_value(steps->first) && !is_bool_scalar(g, steps->first))
        return fail(g, "weft_while", WEFT_BAD_ARGUMENT, "first is not a bool scalar of the graph");
    return true;
}

/* Lists the carries; with `counts` also the number of steps, in f64, which has an addition. */
static void list_carries(repetition *r, const weft_scan_inputs *in, bool counts)
{
    static const weft_type types[ADDED] = {{WEFT_BOOL, {0, {0}}}, {WEFT_F64, {0, {0}}}};
    const size_t n = r->body->n_carry;
    weft_graph *body = r->body->graph;
    for (size_t i = 0; i < n; i++) {
        r->carry_in[i] = r->body->carry_in[i];
        r->carry_out[i] = r->body->carry_out[i];
        r->carry[i] = in->carry[i];
    }
    r->n_added = counts ? ADDED : COUNT;
    for (size_t k = 0; k < r->n_added; k++) r->carry_in[n + k] = weft__scan_input(body, &types[k]);
    r->carry_out[n + GO_ON] = r->steps->go_on;
    r->carry[n + GO_ON] =
        weft_is_value(r->steps->first) ? r->steps->first : weft_scalar(r->graph, WEFT_BOOL, 1);
    if (!counts) return;
    r->carry_out[n + COUNT] = weft_add_scalar(body, r->carry_in[n + COUNT], 1);
    r->carry[n + COUNT] = weft_scalar(r->graph, WEFT_F64, 0);
}

static void repeat(repetition *r, const weft_scan_inputs *inputs, weft_value *stacked, bool counts)
{
    const size_t n = r->body->n_carry, room = n + ADDED;
    r->carry_out = r->carry_in + room;
    r->carry = r->carry_out + room;
    r->last = r->carry + room;
    list_carries(r, inputs, counts);
    weft_scan_body own = *r->body;
    own.n_carry = n + r->n_added;
    own.carry_in = r->carry_in;
    own.carry_out = r->carry_out;
    own.when = r->carry_in[n + GO_ON];
    const weft_scan_inputs all = {r->carry, inputs->each, inputs->shared};
    weft_scan(r->graph, &own, r->steps->most, &all, r->last, stacked);
}

void weft_while(weft_graph *graph, const weft_scan_body *body, const weft_while_steps *steps,
                const weft_scan_inputs *inputs, weft_value *last, weft_value *stacked,
                weft_value *count)
{
    const size_t n = body ? body->n_carry : 0;
    repetition r = {.graph = graph, .body = body, .steps = steps};
    if (weft_graph_status(graph) == WEFT_OK && check_while(graph, body, steps, inputs)) {
        r.carry_in = calloc(4 * (n + ADDED), sizeof *r.carry_in);
        if (!r.carry_in) scan_no_memory(graph);
    }
    if (r.carry_in)
        repeat(&r, inputs, stacked, count != NULL);
    else
        for (size_t i = 0; body && stacked && i < body->n_out; i++) stacked[i] = WEFT_NO_VALUE;
    for (size_t i = 0; last && i < n; i++) last[i] = r.carry_in ? r.last[i] : WEFT_NO_VALUE;
    if (count) *count = r.carry_in ? weft_cast(graph, r.last[n + COUNT], WEFT_I32) : WEFT_NO_VALUE;
    free(r.carry_in);
}

/* ---- Branches ---- */

static bool check_branch(weft_graph *g, const weft_branch *b, size_t n_out)
{
    if (!b || (b->n_in && (!b->in || !b->from)) || !b->out)
        return fail(g, "weft_cond", WEFT_BAD_ARGUMENT, "a branch or a list is NULL");
    if (!scan_is_good(g, b->graph)) return false;
    for (size_t i = 0; i < n_out; i++)
        if (!weft__graph_owns(b->graph, b->out[i]))
            return fail(g, "weft_cond", WEFT_BAD_ARGUMENT,
                        "an output of a branch does not belong to its graph");
    return true;
}

static bool check_types(weft_graph *g, const weft_branch *yes, const weft_branch *no, size_t n_out)
{
    for (size_t i = 0; i < n_out; i++) {
        const weft_type *a = &yes->graph->values[yes->out[i].id].type;
        const weft_type *b = &no->graph->values[no->out[i].id].type;
        char text[2][128];
        if (a->dtype == b->dtype && weft_shape_equal(a->shape, b->shape)) continue;
        weft_graph_fail_in(
            g, "weft_cond", a->dtype == b->dtype ? WEFT_BAD_SHAPE : WEFT_BAD_DTYPE,
            "output %zu of the branches is %s %s or %s %s: expected one type", i,
            weft_dtype_name(a->dtype), weft_shape_text(a->shape, text[0], sizeof text[0]),
            weft_dtype_name(b->dtype), weft_shape_text(b->shape, text[1], sizeof text[1]));
        return false;
    }
    return true;
}

/* A scan of one step, which runs if `when` [1] is true: out[] become those of the branch, or stay as they
 * are. */
static void add_branch(weft_graph *g, const weft_branch *b, weft_value when, size_t n_out,
                       weft_value *out)
{
    static const weft_type truth = {WEFT_BOOL, {0, {0}}};
    weft_value carry_in[WEFT_MAX_OUTPUTS], last[WEFT_MAX_OUTPUTS];
    for (size_t i = 0; i < n_out; i++)
        carry_in[i] = weft__scan_input(b->graph, &b->graph->values[b->out[i].id].type);
    const weft_value runs = weft__scan_input(b->graph, &truth);
    const weft_scan_body body = {.graph = b->graph,
                                 .n_carry = n_out,
                                 .carry_in = carry_in,
                                 .carry_out = b->out,
                                 .n_each = 1,
                                 .each = &runs,
                                 .n_shared = b->n_in,
                                 .shared = b->in,
                                 .when = runs};
    const weft_scan_inputs inputs = {out, &when, b->from};
    weft_scan(g, &body, 1, &inputs, last, NULL);
    memcpy(out, last, n_out * sizeof *out);
}

static bool check_cond(weft_graph *g, weft_value condition, const weft_branch *yes,
                       const weft_branch *no, size_t n_out)
{
    if (n_out < 1 || n_out > WEFT_MAX_OUTPUTS) {
        weft_graph_fail_in(g, "weft_cond", WEFT_BAD_ARGUMENT, "%zu outputs, expected 1 to %d",
                           n_out, WEFT_MAX_OUTPUTS);
        return false;
    }
    if (!is_bool_scalar(g, condition))
        return fail(g, "weft_cond", WEFT_BAD_ARGUMENT,
                    "the condition is not a bool scalar of the graph");
    return check_branch(g, yes, n_out) && check_branch(g, no, n_out) &&
           check_types(g, yes, no, n_out);
}

void weft_cond(weft_graph *graph, weft_value condition, const weft_branch *yes,
               const weft_branch *no, size_t n_out, weft_value *out)
{
    weft_value results[WEFT_MAX_OUTPUTS] = {{0, 0}};
    if (weft_graph_status(graph) == WEFT_OK && check_cond(graph, condition, yes, no, n_out)) {
        for (size_t i = 0; i < n_out; i++) {
            const weft_type *type = &yes->graph->values[yes->out[i].id].type;
            results[i] = weft_fill(graph, type->dtype, type->shape, 0);
        }
        const weft_value other = weft_logical_not(graph, condition);
        add_branch(graph, yes, weft_reshape(graph, condition, WEFT_SHAPE(1)), n_out, results);
        add_branch(graph, no, weft_reshape(graph, other, WEFT_SHAPE(1)), n_out, results);
    }
    const bool good = weft_graph_status(graph) == WEFT_OK;
    for (size_t i = 0; out && i < n_out; i++) out[i] = good ? results[i] : WEFT_NO_VALUE;
}
