/* Control flow of ONNX: loops, and functions that are replaced by their nodes during the import. A loop of
 * few iterations is unrolled, as is one whose body cannot be a graph of its own; others are one
 * node (loop.c). Branches are in branch.c. */
#include "onnx/import.h"
#include "onnx/ops.h"
#include "onnx/sequence.h"

#include <string.h>

/* The truth of a value that must be known. */
static bool known_truth(onnx_node *n, onnx_value *value, const char *what)
{
    if (!weft__import_contents(n->import, value)) return false;
    const bool good = value->known && value->tensor.dtype == WEFT_BOOL &&
                      weft_shape_numel(value->tensor.shape) == 1;
    if (!good)
        weft__node_fail(n, WEFT_BAD_ARGUMENT,
                        "needs its %s during the import, but it depends on data or is not a bool",
                        what);
    return good && *(const uint8_t *)value->tensor.data;
}

/* ---- Functions ---- */

/* A node whose op the model defines: its nodes, on the inputs of this one. */
void weft__map_function(onnx_node *n)
{
    const WeftOnnx__FunctionProto *f = n->function->proto;
    onnx_scope *scope = weft__body_scope(n);
    if (!scope) return;
    *scope = (onnx_scope){.function = n->function, .caller = n->scope};
    if (!weft__onnx_add_attributes(&n->import->memory, &scope->attributes, n->proto->attribute,
                                   n->proto->n_attribute)) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a function");
        return;
    }
    if (n->n_in > f->n_input || n->n_out > f->n_output) {
        weft__node_fail(n, WEFT_BAD_FILE,
                        "has %zu inputs and %zu outputs, its function %zu and %zu", n->n_in,
                        n->n_out, f->n_input, f->n_output);
        return;
    }
    static const onnx_value absent = {.absent = true};
    for (size_t i = 0; i < f->n_input; i++) {
        onnx_value *v = weft__scope_add(n->import, scope, onnx_text(f->input[i]));
        if (!v) return;
        weft__copy_value(v, has_in(n, i) ? n->in[i] : &absent);
    }
    if (!weft__import_nodes(n->import, scope, f->node, f->n_node)) return;
    for (size_t i = 0; i < n->n_out; i++) {
        const onnx_value *v = weft__scope_find(scope, onnx_text(f->output[i]));
        if (has_out(n, i) && (!v || v->absent)) {
            weft__node_fail(n, WEFT_BAD_FILE, "no node of its function computes output %zu", i);
            return;
        }
        if (v && !v->absent) weft__copy_value(&n->out[i], v);
    }
}

/* ---- Lists of values ---- */

bool weft__apply_axis(onnx_node *n, const char *domain, const char *op, int64_t axis,
                      onnx_value **in, size_t n_in, onnx_value *out)
{
    WeftOnnx__AttributeProto a = WEFT_ONNX__ATTRIBUTE_PROTO__INIT;
    WeftOnnx__AttributeProto *list = &a;
    WeftOnnx__NodeProto node = WEFT_ONNX__NODE_PROTO__INIT;
    a.name = (char *)(uintptr_t) "axis";
    a.has_i = true;
    a.i = axis;
    node.domain = (char *)(uintptr_t)domain;
    node.op_type = (char *)(uintptr_t)op;
    node.name = n->proto->name;
    node.attribute = &list;
    node.n_attribute = 1;
    return weft__import_node(n->import, n->scope, &node, in, n_in, out, 1);
}

bool weft__sequence_push(onnx_node *n, onnx_sequence *s, onnx_value *value)
{
    if (s->count == s->capacity) {
        const size_t capacity = s->capacity ? 2 * s->capacity : 16;
        onnx_value **grown = weft__arena_alloc(&n->import->memory, capacity * sizeof *grown);
        if (!grown) return weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a list"), false;
        if (s->count) memcpy(grown, s->values, s->count * sizeof *grown);
        s->values = grown;
        s->capacity = capacity;
    }
    s->values[s->count++] = value;
    return true;
}

bool weft__sequence_join(onnx_node *n, const onnx_sequence *s, int64_t axis, bool reverse,
                         onnx_value *out)
{
    onnx_sequence joined = {.values = NULL};
    if (!s->count)
        return weft__node_fail(n, WEFT_BAD_SHAPE,
                               "has no iterations, so the shape of an output is open"),
               false;
    for (size_t i = 0; i < s->count; i++) {
        onnx_value *one = weft__arena_alloc(&n->import->memory, sizeof *one);
        onnx_value *from = s->values[reverse ? s->count - 1 - i : i];
        if (!one) return weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a list"), false;
        one->name = "";
        if (!weft__apply_axis(n, "weft", "ExpandDims", axis, &from, 1, one) ||
            !weft__sequence_push(n, &joined, one))
            return false;
    }
    return weft__apply_axis(n, "", "Concat", axis, joined.values, joined.count, out);
}

/* ---- Loop ---- */

/* The number of iterations, INT32_MAX without a limit; -1 if data decide it. */
static int64_t trip_count(onnx_node *n)
{
    if (!has_in(n, 0)) return INT32_MAX;
    if (!weft__import_contents(n->import, n->in[0]) || !n->in[0]->known) return -1;
    const double number = weft__in_number(n, 0, "trip count", 0);
    return number < 0 ? 0 : number > INT32_MAX ? INT32_MAX : (int64_t)number;
}

/* Whether an input is a tensor whose size is known. */
static bool is_plain(const onnx_node *n, size_t i)
{
    return has_in(n, i) && !n->in[i]->sequence && n->in[i]->type != ONNX_STRING && !has_size(n, i);
}

/* Whether a loop without data that decide its end may be one node. weft wrote only those that were one. */
static bool may_keep(const onnx_node *n, size_t first, bool stacks, int64_t trips)
{
    const int64_t unrolled = onnx_is_own(n->import->model) ? 0 : ONNX_UNROLLED;
    bool good = trips > unrolled && (!stacks || trips < INT32_MAX);
    for (size_t i = first; i < n->n_in; i++) good = good && is_plain(n, i);
    return good;
}

/* A Loop that is unrolled, after some of its iterations. */
typedef struct unrolled {
    const WeftOnnx__GraphProto *body;
    bool condition; /* of the next iteration */
    bool by_data;   /* that of the body depends on data */
    size_t n_carried;
    onnx_value *carried;
    onnx_sequence *stacks;
} unrolled;

/* Adds an iteration. False after a failure, or if data decide its condition. */
static bool iterate(onnx_node *n, unrolled *u, int64_t iteration)
{
    onnx_scope *scope = weft__body_scope(n);
    const onnx_value number = weft__known_number(n, WEFT_I32, iteration);
    const onnx_value truth = weft__known_number(n, WEFT_BOOL, 1);
    if (!scope || weft__node_failed(n) || !weft__body_input(n, scope, u->body, 0, &number) ||
        !weft__body_input(n, scope, u->body, 1, &truth))
        return false;
    for (size_t i = 0; i < u->n_carried; i++)
        if (!weft__body_input(n, scope, u->body, 2 + i, &u->carried[i])) return false;
    if (!weft__import_graph(n->import, scope, u->body)) return false;
    onnx_value *next = weft__body_output(n, scope, u->body, 0);
    if (!next || !weft__import_contents(n->import, next)) return false;
    u->by_data = !next->known;
    if (u->by_data) return false;
    u->condition = known_truth(n, next, "condition");
    for (size_t i = 1; i < u->body->n_output; i++) {
        onnx_value *v = weft__body_output(n, scope, u->body, i);
        if (!v || weft__node_failed(n)) return false;
        if (i <= u->n_carried)
            weft__copy_value(&u->carried[i - 1], v);
        else if (!weft__sequence_push(n, &u->stacks[i - 1 - u->n_carried], v))
            return false;
    }
    return true;
}

/* False if data decide the end of the loop, in which case nothing has been handed out. */
static bool unroll(onnx_node *n, unrolled *u, int64_t trips)
{
    u->carried = weft__arena_alloc(&n->import->memory, (u->n_carried + 1) * sizeof *u->carried);
    u->stacks = weft__arena_alloc(&n->import->memory, u->body->n_output * sizeof *u->stacks);
    if (!u->carried || !u->stacks) weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a loop");
    for (size_t i = 0; i < u->n_carried && !weft__node_failed(n); i++) {
        if (!has_in(n, 2 + i)) weft__node_fail(n, WEFT_BAD_FILE, "has no input %zu", 2 + i);
        if (has_in(n, 2 + i)) u->carried[i] = *n->in[2 + i];
    }
    for (int64_t i = 0; i < trips && u->condition && !weft__node_failed(n); i++) {
        if (++n->import->nodes > ONNX_MAX_NODES)
            weft__node_fail(n, WEFT_TOO_LARGE, "the model has more than %d nodes", ONNX_MAX_NODES);
        else if (!iterate(n, u, i))
            return !u->by_data;
    }
    for (size_t i = 0; i < n->n_out && !weft__node_failed(n); i++) {
        if (i < u->n_carried)
            weft__copy_value(&n->out[i], &u->carried[i]);
        else if (has_out(n, i))
            weft__sequence_join(n, &u->stacks[i - u->n_carried], 0, false, &n->out[i]);
    }
    return true;
}

void weft__map_Loop(onnx_node *n)
{
    const WeftOnnx__GraphProto *body = weft__body_of(n, "body");
    unrolled u = {.body = body, .condition = true, .n_carried = n->n_in > 2 ? n->n_in - 2 : 0};
    const int64_t trips = trip_count(n);
    if (!body || weft__node_failed(n)) return;
    if (body->n_input != 2 + u.n_carried || body->n_output < 1 + u.n_carried ||
        n->n_out > body->n_output - 1) {
        weft__node_fail(n, WEFT_BAD_FILE, "its body has %zu inputs and %zu outputs for %zu values",
                        body->n_input, body->n_output, u.n_carried);
        return;
    }
    bool by_data = trips < 0;
    if (has_in(n, 1) && weft__import_contents(n->import, n->in[1])) {
        by_data |= !n->in[1]->known;
        if (n->in[1]->known) u.condition = known_truth(n, n->in[1], "condition");
    }
    if (weft__node_failed(n)) return;
    if (!by_data && u.condition && may_keep(n, 2, n->n_out > u.n_carried, trips) &&
        weft__try_kept(n, false, 0, trips))
        return;
    if (!weft__import_failed(n->import) && (by_data || !unroll(n, &u, trips)))
        weft__keep_loop(n, trips);
    weft__import_failed(n->import);
}

/* ---- Scan ---- */

/* Inputs of the body: states, then one element of each scanned input; likewise its outputs. */
typedef struct scan {
    const WeftOnnx__GraphProto *body;
    size_t first, n_states, n_scanned, n_stacked; /* first: the node's input of state 0 */
    int64_t length;
    onnx_value *states;
    onnx_sequence *stacks;
} scan;

static bool scan_step(onnx_node *n, scan *s, int64_t step)
{
    onnx_scope *scope = weft__body_scope(n);
    if (!scope) return false;
    for (size_t i = 0; i < s->n_states; i++)
        if (!weft__body_input(n, scope, s->body, i, &s->states[i])) return false;
    for (size_t i = 0; i < s->n_scanned; i++) {
        const bool reverse = weft__attr_listed(n, "scan_input_directions", i) ||
                             (n->opset < 9 && weft__attr_listed(n, "directions", i));
        const int64_t axis = weft__attr_listed(n, "scan_input_axes", i);
        onnx_value at = weft__known_number(n, WEFT_I32, reverse ? s->length - 1 - step : step);
        onnx_value *in[2] = {n->in[s->first + s->n_states + i], &at};
        onnx_value element = {.name = ""};
        if (weft__node_failed(n) || !weft__apply_axis(n, "", "Gather", axis, in, 2, &element) ||
            !weft__body_input(n, scope, s->body, s->n_states + i, &element))
            return false;
    }
    if (!weft__import_graph(n->import, scope, s->body)) return false;
    for (size_t i = 0; i < s->body->n_output; i++) {
        onnx_value *v = weft__body_output(n, scope, s->body, i);
        if (!v) return false;
        if (i < s->n_states)
            weft__copy_value(&s->states[i], v);
        else if (!weft__sequence_push(n, &s->stacks[i - s->n_states], v))
            return false;
    }
    return true;
}

static bool scan_start(onnx_node *n, scan *s)
{
    const int64_t scanned = weft__attr_int(n, "num_scan_inputs", 0);
    s->body = weft__body_of(n, "body");
    if (!s->body) return false;
    if (n->opset < 9)
        return weft__node_fail(n, WEFT_NO_KERNEL, "Scan is supported from opset 9 on"), false;
    if (scanned < 1 || (size_t)scanned > n->n_in || s->body->n_input != n->n_in ||
        s->body->n_output != n->n_out)
        return weft__node_fail(n, WEFT_BAD_FILE, "its inputs and outputs do not fit its body"),
               false;
    s->n_scanned = (size_t)scanned;
    s->n_states = n->n_in - s->n_scanned;
    for (size_t i = 0; i < n->n_in; i++)
        if (!has_in(n, i)) return weft__node_fail(n, WEFT_BAD_FILE, "has no input %zu", i), false;
    if (s->n_states > n->n_out)
        return weft__node_fail(n, WEFT_BAD_FILE, "has fewer outputs than states"), false;
    const weft_shape shape = weft__in_shape(n, s->n_states);
    s->length =
        shape.dim[weft__node_axis(n, weft__attr_listed(n, "scan_input_axes", 0), shape.rank)];
    s->states = weft__arena_alloc(&n->import->memory, (s->n_states + 1) * sizeof *s->states);
    s->stacks = weft__arena_alloc(&n->import->memory, (n->n_out + 1) * sizeof *s->stacks);
    if (!s->states || !s->stacks)
        return weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a scan"), false;
    for (size_t i = 0; i < s->n_states; i++) s->states[i] = *n->in[i];
    return !weft__node_failed(n);
}

void weft__map_Scan(onnx_node *n)
{
    scan s = {.first = 0};
    if (!scan_start(n, &s)) return;
    if (may_keep(n, 0, true, s.length) && weft__try_kept(n, true, s.n_states, s.length)) return;
    if (weft__import_failed(n->import)) return;
    for (int64_t step = 0; step < s.length; step++)
        if (!scan_step(n, &s, step)) return;
    for (size_t i = 0; i < n->n_out; i++) {
        if (i < s.n_states) {
            weft__copy_value(&n->out[i], &s.states[i]);
            continue;
        }
        const size_t k = i - s.n_states;
        if (has_out(n, i) &&
            !weft__sequence_join(n, &s.stacks[k], weft__attr_listed(n, "scan_output_axes", k),
                                 weft__attr_listed(n, "scan_output_directions", k), &n->out[i]))
            return;
    }
}

/* The op that joins iterations: a new axis of size 1. Not part of ONNX. */
void weft__map_ExpandDims(onnx_node *n)
{
    const weft_value x = weft__in_value(n, 0);
    const int axis = weft__attr_axis(n, "axis", 0, weft__in_shape(n, 0).rank + 1);
    if (weft__node_failed(n)) return;
    weft__set_typed(n, 0, weft_expand_dims(n->graph, x, axis), weft__in_type(n, 0));
}
