/* Loop and Scan as one node: their bodies become graphs of their own (region.c). A loop whose end depends on
 * data is weft_while, any other weft_scan. */
#include "onnx/import.h"

#include <weft/scan.h>

/* A loop while its body is mapped. Lists of carries begin with the number of the iteration, in f64. */
typedef struct kept {
    onnx_node *n;
    const WeftOnnx__GraphProto *body;
    onnx_region region;
    onnx_scope *scope;
    size_t n_carry, n_each, n_out;
    weft_value *first, *carry_in, *carry_out; /* [n_carry] */
    weft_value *sequences, *each;             /* [n_each] */
    weft_value *out, *stacked;                /* [n_out] */
    int *types;   /* [n_carry + n_out] of ONNX, of what the body computes */
    int64_t most; /* iterations */
    /* Of a Loop: */
    weft_value number; /* of the iteration, an i32 scalar of the body */
    weft_value trips;  /* an i32 scalar of the graph around; none: `most` */
    weft_value go_on;  /* of the body: whether another iteration follows */
    bool by_data;      /* data decide the end */
} kept;

static void *list(onnx_node *n, size_t count, size_t size)
{
    void *memory = weft__arena_alloc(&n->import->memory, (count + 1) * size);
    if (!memory) weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a loop");
    return memory;
}

static bool open_lists(kept *k)
{
    onnx_node *n = k->n;
    const size_t size = sizeof(weft_value);
    k->first = list(n, k->n_carry, size);
    k->carry_in = list(n, k->n_carry, size);
    k->carry_out = list(n, k->n_carry, size);
    k->sequences = list(n, k->n_each, size);
    k->each = list(n, k->n_each, size);
    k->out = list(n, k->n_out, size);
    k->stacked = list(n, k->n_out, size);
    k->types = list(n, k->n_carry + k->n_out, sizeof *k->types);
    return !weft__node_failed(n);
}

/* ---- What the body reads ---- */

/* Adds an input of the body; NULL after a failure. */
static onnx_value *add_input(kept *k, size_t i, int type)
{
    onnx_value *v = weft__scope_add(k->n->import, k->scope, onnx_text(k->body->input[i]->name));
    if (v) v->type = type;
    return v;
}

/* Carry `at`, which is input `from` of the node and input `i` of the body. */
static bool add_carry(kept *k, size_t at, size_t from, size_t i)
{
    const weft_graph *g = k->region.around;
    const onnx_value *given = k->n->in[from];
    onnx_value *v = add_input(k, i, given->type);
    if (!v) return false;
    k->carry_in[at] = weft__region_input(&k->region, weft_dtype_of(g, k->first[at]),
                                         weft_shape_of(g, k->first[at]));
    v->value = k->carry_in[at];
    k->types[at] = given->type;
    return true;
}

/* Input `from` of the node in the graph around. */
static weft_value operand(kept *k, size_t from)
{
    onnx_node *n = k->n;
    if (!has_in(n, from)) return weft__node_fail(n, WEFT_BAD_FILE, "has no input %zu", from);
    if (has_size(n, from))
        return weft__node_fail(n, WEFT_NO_KERNEL, "data decide the size of input %zu", from);
    return weft__in_value(n, from);
}

/* ---- What it computes ---- */

/* Output i of the body; none after a failure. */
static weft_value result(kept *k, size_t i, int *type)
{
    onnx_node *n = k->n;
    onnx_value *v = weft__body_output(n, k->scope, k->body, i);
    if (!v) return WEFT_NO_VALUE;
    if (weft_is_value(v->size))
        return weft__node_fail(n, WEFT_NO_KERNEL, "data decide the size of output %zu of its body",
                               i);
    *type = v->type;
    return weft__import_value(n->import, v);
}

/* Takes the next carries from output `i` of the body on, from carry `at` on, and then what is stacked. */
static bool take_results(kept *k, size_t at, size_t i)
{
    weft_graph *b = k->region.graph;
    for (; at < k->n_carry; at++, i++) {
        char text[2][128];
        const weft_value next = result(k, i, &k->types[at]), now = k->carry_in[at];
        const weft_shape from = weft_shape_of(b, now), to = weft_shape_of(b, next);
        if (weft__node_failed(k->n) || weft_graph_status(b) != WEFT_OK) return false;
        if (weft_dtype_of(b, now) != weft_dtype_of(b, next) || !weft_shape_equal(from, to)) {
            weft__node_fail(k->n, WEFT_BAD_SHAPE,
                            "output %zu of its body is %s %s, and the input that it becomes is %s "
                            "%s: expected one type",
                            i, weft_dtype_name(weft_dtype_of(b, next)),
                            weft_shape_text(to, text[0], sizeof text[0]),
                            weft_dtype_name(weft_dtype_of(b, now)),
                            weft_shape_text(from, text[1], sizeof text[1]));
            return false;
        }
        k->carry_out[at] = next;
    }
    for (size_t out = 0; out < k->n_out; out++, i++)
        k->out[out] = result(k, i, &k->types[k->n_carry + out]);
    return !weft__import_failed(k->n->import);
}

/* Fails if a node of the body cannot be repeated. */
static bool check_nodes(kept *k)
{
    if (weft__region_is_random(&k->region)) {
        weft__node_fail(k->n, WEFT_NO_KERNEL,
                        "data decide how often its body draws random numbers");
        return false;
    }
    if (k->n_carry + k->n_out <= WEFT_MAX_OUTPUTS) return true;
    weft__node_fail(k->n, WEFT_NO_KERNEL, "has %zu values, expected at most %d",
                    k->n_carry + k->n_out, WEFT_MAX_OUTPUTS);
    return false;
}

/* The body as weft_scan and weft_while take it. */
static weft_scan_body body_of(const kept *k)
{
    return (weft_scan_body){.graph = k->region.graph,
                            .n_carry = k->n_carry,
                            .carry_in = k->carry_in,
                            .carry_out = k->carry_out,
                            .n_each = k->n_each,
                            .each = k->each,
                            .n_shared = k->region.n,
                            .shared = k->region.captures,
                            .n_out = k->n_out,
                            .out = k->out};
}

/* Ends the region and, if the body is good, adds the node by `add`, in the scope of the file's node. */
static void close_region(kept *k, bool good, void (*add)(kept *k))
{
    onnx_import *import = k->n->import;
    char label[ONNX_SCOPE_BYTES], own[ONNX_SCOPE_BYTES];
    weft__region_leave(import, &k->region);
    memcpy(label, import->label, sizeof label);
    weft__onnx_node_scope(import->model, k->n->proto, own);
    if (good) weft__import_label(import, own);
    if (good) add(k);
    if (good) weft__import_label(import, label);
    weft_graph_free(k->region.graph);
}

/* ---- Loop ---- */

/* A bool or an i32 of one element without dimensions. */
static weft_value one_element(onnx_node *n, weft_value v, weft_dtype dtype, const char *what)
{
    const weft_graph *g = n->import->graph;
    if (weft__node_failed(n)) return WEFT_NO_VALUE;
    if (weft_dtype_of(g, v) == dtype && weft_shape_numel(weft_shape_of(g, v)) == 1)
        return weft_reshape(n->import->graph, v, WEFT_SCALAR);
    return weft__node_fail(n, WEFT_BAD_ARGUMENT, "its %s must be one %s", what,
                           dtype == WEFT_BOOL ? "bool" : "integer");
}

/* Whether the body's condition is known, and true. */
static bool is_always_true(kept *k)
{
    onnx_value *v = weft__body_output(k->n, k->scope, k->body, 0);
    return v && weft__import_contents(k->n->import, v) && v->known &&
           v->tensor.dtype == WEFT_BOOL && weft_shape_numel(v->tensor.shape) == 1 &&
           *(const uint8_t *)v->tensor.data;
}

/* In the region: whether another iteration follows. */
static weft_value goes_on(kept *k)
{
    onnx_node *n = k->n;
    weft_graph *b = k->region.graph;
    int type;
    const bool always = is_always_true(k);
    weft_value next =
        always ? WEFT_NO_VALUE : one_element(n, result(k, 0, &type), WEFT_BOOL, "condition");
    k->by_data = !always || weft_is_value(k->trips);
    if (!weft_is_value(k->trips)) return always ? weft_scalar(b, WEFT_BOOL, 1) : next;
    const weft_value trips =
        one_element(n, weft__import_value(n->import, n->in[0]), WEFT_I32, "trip count");
    const weft_value left = weft_less(b, weft_cast(b, k->carry_out[0], WEFT_I32), trips);
    return always ? left : weft_logical_and(b, next, left);
}

/* Outside: whether the first iteration runs; none if it does. */
static weft_value begins(const kept *k)
{
    onnx_node *n = k->n;
    weft_graph *g = n->graph;
    const onnx_value *given = has_in(n, 1) ? n->in[1] : NULL;
    weft_value first = WEFT_NO_VALUE;
    if (given && !given->known)
        first = one_element(n, weft__in_value(n, 1), WEFT_BOOL, "condition");
    if (!weft_is_value(k->trips)) return first;
    const weft_value some = weft_greater(g, k->trips, weft_scalar(g, WEFT_I32, 0));
    return weft_is_value(first) ? weft_logical_and(g, first, some) : some;
}

/* Maps the body on its inputs: the number of the iteration, a condition that is true, and the carries. */
static bool map_loop_body(kept *k)
{
    onnx_node *n = k->n;
    weft_graph *b = k->region.graph;
    k->scope = weft__body_scope(n);
    onnx_value *number = k->scope ? add_input(k, 0, ONNX_INT64) : NULL;
    onnx_value *truth = number ? add_input(k, 1, ONNX_BOOL) : NULL;
    if (!truth) return false;
    k->carry_in[0] = weft__region_input(&k->region, WEFT_F64, WEFT_SCALAR);
    k->carry_out[0] = weft_add_scalar(b, k->carry_in[0], 1);
    number->value = k->number = weft_cast(b, k->carry_in[0], WEFT_I32);
    const onnx_value known = weft__known_number(n, WEFT_BOOL, 1);
    weft__copy_value(truth, &known);
    for (size_t i = 1; i < k->n_carry; i++)
        if (!add_carry(k, i, i + 1, i + 1)) return false;
    return weft__import_graph(n->import, k->scope, k->body) && take_results(k, 1, 1);
}

/* Hands out the last carries and the stacks, of which as many rows count as there were iterations. */
static void set_loop_results(kept *k, const weft_value *last)
{
    onnx_node *n = k->n;
    const bool sized = k->by_data && k->n_out;
    const weft_value count = sized ? weft_cast(n->graph, last[0], WEFT_I32) : WEFT_NO_VALUE;
    for (size_t i = 0; i < n->n_out; i++) {
        const bool carried = i < k->n_carry - 1;
        const size_t at = carried ? i + 1 : i - (k->n_carry - 1);
        weft__set_typed(n, i, carried ? last[at] : k->stacked[at],
                        k->types[carried ? at : k->n_carry + at]);
        if (!carried && sized) weft__add_size(n, i, 0, count);
    }
}

/* Whether the body reads the number of the iteration: only then is it a carry. */
static bool reads_number(const kept *k)
{
    const weft_graph *b = k->region.graph;
    bool reads = weft_is_value(k->go_on) && k->go_on.id == k->number.id;
    for (size_t i = 0; i < k->n_carry; i++) reads |= k->carry_out[i].id == k->number.id;
    for (size_t i = 0; i < k->n_out; i++) reads |= k->out[i].id == k->number.id;
    for (size_t i = 0; i < weft_graph_node_count(b) && !reads; i++) {
        const weft_node_info node = weft_graph_node(b, i);
        for (size_t in = 0; in < node.n_in; in++) reads |= node.in[in] == k->number.id;
    }
    return reads;
}

static void add_loop(kept *k)
{
    onnx_node *n = k->n;
    weft_value last[WEFT_MAX_OUTPUTS];
    weft_scan_body body = body_of(k);
    weft_scan_inputs inputs = {k->first, NULL, k->region.captured};
    const weft_while_steps steps = {k->most, begins(k), k->go_on};
    if (weft__node_failed(n)) return;
    k->by_data |= weft_is_value(steps.first);
    const bool counts =
        k->n_carry == 1 || reads_number(k) || weft_is_value(k->trips) || (k->by_data && k->n_out);
    body.n_carry -= !counts;
    body.carry_in += !counts;
    body.carry_out += !counts;
    inputs.carry += !counts;
    if (k->by_data)
        weft_while(n->graph, &body, &steps, &inputs, last + !counts, k->stacked, NULL);
    else
        weft_scan(n->graph, &body, k->most, &inputs, last + !counts, k->stacked);
    set_loop_results(k, last);
}

void weft__keep_loop(onnx_node *n, int64_t trips)
{
    const size_t n_carried = n->n_in > 2 ? n->n_in - 2 : 0;
    kept k = {.n = n,
              .body = weft__body_of(n, "body"),
              .n_carry = 1 + n_carried,
              .n_out = n->n_out > n_carried ? n->n_out - n_carried : 0,
              .most = trips < 0 ? INT32_MAX : trips};
    if (k.n_out && k.most == INT32_MAX) {
        weft__node_fail(n, WEFT_BAD_ARGUMENT,
                        "needs its trip count during the import, which decides the size of output "
                        "%zu, but it depends on data",
                        n_carried);
        return;
    }
    if (!k.body || !open_lists(&k)) return;
    k.first[0] = weft_scalar(n->graph, WEFT_F64, 0);
    for (size_t i = 1; i < k.n_carry; i++) k.first[i] = operand(&k, i + 1);
    if (trips < 0) k.trips = one_element(n, weft__in_value(n, 0), WEFT_I32, "trip count");
    if (weft__node_failed(n) || !weft__region_enter(n->import, &k.region)) return;
    const bool mapped = map_loop_body(&k);
    if (mapped) k.go_on = goes_on(&k);
    close_region(&k, mapped && !weft__import_failed(n->import) && check_nodes(&k), add_loop);
}

/* ---- Scan ---- */

/* x with axis `from` moved to `to`. */
static weft_value move_axis(weft_graph *g, weft_value x, int from, int to)
{
    weft_axes order = {.count = 0};
    const int rank = weft_shape_of(g, x).rank;
    if (from == to) return x;
    for (int d = 0, next = 0; d < rank; d++) {
        if (next == from) next++;
        order.axis[order.count++] = d == to ? from : next++;
    }
    return weft_permute(g, x, order);
}

static bool is_reverse(const onnx_node *n, size_t i)
{
    return weft__attr_listed(n, "scan_input_directions", i) != 0;
}

/* Sequence i with its scanned axis in front; all run in the direction of the first. */
static weft_value sequence(kept *k, size_t i)
{
    onnx_node *n = k->n;
    weft_value x = operand(k, k->n_carry + i);
    const int rank = weft_shape_of(n->graph, x).rank;
    const int axis = weft__node_axis(n, weft__attr_listed(n, "scan_input_axes", i), rank);
    if (weft__node_failed(n)) return WEFT_NO_VALUE;
    x = move_axis(n->graph, x, axis, 0);
    return is_reverse(n, i) == is_reverse(n, 0) ? x : weft_flip(n->graph, x, 0);
}

static bool map_scan_body(kept *k)
{
    onnx_node *n = k->n;
    k->scope = weft__body_scope(n);
    for (size_t i = 0; k->scope && i < k->n_carry; i++)
        if (!add_carry(k, i, i, i)) return false;
    for (size_t i = 0; k->scope && i < k->n_each; i++) {
        const weft_shape all = weft_shape_of(k->region.around, k->sequences[i]);
        weft_shape one = {all.rank - 1, {0}};
        for (int d = 1; d < all.rank; d++) one.dim[d - 1] = all.dim[d];
        onnx_value *v = add_input(k, k->n_carry + i, weft__in_type(n, k->n_carry + i));
        if (!v) return false;
        k->each[i] =
            weft__region_input(&k->region, weft_dtype_of(k->region.around, k->sequences[i]), one);
        v->value = k->each[i];
    }
    return k->scope && weft__import_graph(n->import, k->scope, k->body) && take_results(k, 0, 0);
}

static void add_scan(kept *k)
{
    onnx_node *n = k->n;
    weft_graph *g = n->graph;
    weft_value last[WEFT_MAX_OUTPUTS];
    weft_scan_body body = body_of(k);
    const weft_scan_inputs inputs = {k->first, k->sequences, k->region.captured};
    body.reverse = is_reverse(n, 0);
    weft_scan(g, &body, k->most, &inputs, last, k->stacked);
    for (size_t i = 0; i < n->n_out; i++) {
        const size_t at = i - k->n_carry;
        if (i < k->n_carry) {
            weft__set_typed(n, i, last[i], k->types[i]);
            continue;
        }
        weft_value x = k->stacked[at];
        const int rank = weft_shape_of(g, x).rank;
        const int axis = weft__node_axis(n, weft__attr_listed(n, "scan_output_axes", at), rank);
        const bool prepended = weft__attr_listed(n, "scan_output_directions", at) != 0;
        if (prepended != body.reverse) x = weft_flip(g, x, 0);
        weft__set_typed(n, i, move_axis(g, x, 0, axis), k->types[i]);
    }
}

void weft__keep_scan(onnx_node *n, size_t n_states, int64_t length)
{
    kept k = {.n = n,
              .body = weft__body_of(n, "body"),
              .n_carry = n_states,
              .n_each = n->n_in - n_states,
              .n_out = n->n_out - n_states,
              .most = length};
    if (!k.body || !open_lists(&k)) return;
    for (size_t i = 0; i < n_states; i++) k.first[i] = operand(&k, i);
    for (size_t i = 0; i < k.n_each; i++) k.sequences[i] = sequence(&k, i);
    if (weft__node_failed(n) || !weft__region_enter(n->import, &k.region)) return;
    const bool mapped = map_scan_body(&k);
    close_region(&k, mapped && !weft__import_failed(n->import) && check_nodes(&k), add_scan);
}

/* ---- Trials ---- */

bool weft__try_kept(onnx_node *n, bool scan, size_t n_states, int64_t trips)
{
    onnx_import *import = n->import;
    const WeftOnnx__GraphProto *failed_branch = import->failed_branch;
    if (scan)
        weft__keep_scan(n, n_states, trips);
    else
        weft__keep_loop(n, trips);
    if (import->error.status == WEFT_OK && weft_graph_status(import->graph) == WEFT_OK) return true;
    /* An error of the body, whose graph is gone. */
    if (weft_graph_status(import->graph) == WEFT_OK && !failed_branch) {
        import->error = (weft_error){.status = WEFT_OK};
        import->failed_branch = NULL;
        for (size_t i = 0; i < n->n_out; i++) n->out[i] = (onnx_value){.name = n->out[i].name};
    }
    return false;
}
