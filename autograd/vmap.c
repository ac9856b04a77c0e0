/* A batch of a graph: the nodes between the batched inputs and the outputs are built once more, each
 * by the batching rule of its op (weft_op.batch). Nodes that no batched input reaches are shared by
 * all examples. Without a rule, an elementwise op broadcasts, and another op is expanded, whose
 * nodes are batched in its place. O(nodes between). (Frostig, Johnson and Leary 2018, "Compiling
 * machine learning programs via high-level tracing".) */
#include "transform.h"

#include <stdlib.h>

typedef struct vmap {
    weft_graph *graph;
    const weft_value *outputs, *inputs, *batches;
    size_t n_outputs, n;
    int64_t size;
    weft_value *batched; /* by value: its batch; WEFT_NO_VALUE: all examples share the value */
    size_t n_values;     /* of batched */
    uint32_t *copies;    /* by origin: that of the batched node; 0: none */
    size_t n_origins;
} vmap;

static bool failed(const vmap *v)
{
    return weft_graph_status(v->graph) != WEFT_OK;
}

static void no_memory(const vmap *v)
{
    weft_graph_fail_in(v->graph, "weft_vmap", WEFT_NO_MEMORY, "no memory");
}

/* Makes room for the values of the graph. */
static bool cover_values(vmap *v)
{
    const size_t n = weft_graph_node_count(v->graph);
    const weft_node_info last = weft_graph_node(v->graph, n ? n - 1 : 0);
    const size_t n_values = last.first_out + last.n_out;
    if (n_values <= v->n_values) return true;
    weft_value *batched = realloc(v->batched, n_values * sizeof *batched);
    if (!batched) {
        no_memory(v);
        return false;
    }
    for (size_t i = v->n_values; i < n_values; i++) batched[i] = WEFT_NO_VALUE;
    v->batched = batched;
    v->n_values = n_values;
    return true;
}

static bool is_batched(const vmap *v, uint32_t id)
{
    return id < v->n_values && weft_is_value(v->batched[id]);
}

/* The shape of the batch of a value. */
static weft_shape whole_shape(const vmap *v, weft_value one)
{
    const weft_shape shape = weft_shape_of(v->graph, one);
    weft_shape whole = {shape.rank + 1, {v->size}};
    for (int d = 1; d < whole.rank && d < WEFT_MAX_RANK; d++) whole.dim[d] = shape.dim[d - 1];
    return whole;
}

/* Whether the value has room for one dimension more. */
static bool check_rank(const vmap *v, const char *where, weft_value one)
{
    if (weft_rank_of(v->graph, one) < WEFT_MAX_RANK) return true;
    weft_graph_fail_in(v->graph, where, WEFT_BAD_SHAPE,
                       "a batch of a value of rank %d would have more than %d dimensions",
                       WEFT_MAX_RANK, WEFT_MAX_RANK);
    return false;
}

/* The batch of a value, repeated if all examples share it. */
static weft_value whole_of(const vmap *v, weft_value one)
{
    if (is_batched(v, one.id)) return v->batched[one.id];
    if (!check_rank(v, "weft_vmap", one)) return WEFT_NO_VALUE;
    return weft_broadcast_to(v->graph, one, whole_shape(v, one));
}

/* ---- One node ---- */

static bool batch_nodes(vmap *v, size_t first, size_t end, const uint8_t *to_output);

/* x of [size, ...] with dimensions of size 1 after the batch: `rank` in each example. */
static weft_value aligned(weft_graph *g, weft_value x, int rank)
{
    const weft_shape from = weft_shape_of(g, x);
    const int ones = rank + 1 - from.rank;
    weft_shape to = {rank + 1, {from.dim[0]}};
    for (int d = 1; d < to.rank; d++) to.dim[d] = d <= ones ? 1 : from.dim[d - ones];
    return weft_reshape(g, x, to);
}

/* The rule of an elementwise op. If it does not broadcast all inputs, as the mask of masked_fill
 * broadcasts to x, those of the shape of the output must have that of its batch. */
static void batch_elementwise(const vmap *v, weft_batch *b)
{
    const weft_shape out = weft_shape_of(b->graph, b->one_out[0]);
    weft_value *in = malloc((b->n_in + 1) * sizeof *in);
    if (!in) {
        no_memory(v);
        return;
    }
    for (size_t i = 0; i < b->n_in; i++) {
        in[i] = b->in[i];
        if (b->batched[i])
            in[i] = aligned(b->graph, in[i], out.rank);
        else if (!b->op->broadcasts && weft_shape_equal(weft_shape_of(b->graph, b->one_in[i]), out))
            in[i] = whole_of(v, in[i]);
    }
    weft_apply(b->graph, b->op, b->attr, in, b->n_in, b->out);
    free(in);
}

/* Expands the op on the values of one example, and batches the nodes of that. */
static void batch_expansion(vmap *v, weft_batch *b)
{
    weft_value one[WEFT_MAX_OUTPUTS] = {{0, 0}};
    weft_expand expand = {b->graph, b->attr, b->n_in, b->n_out, b->one_in, one};
    const size_t first = weft_graph_node_count(b->graph);
    b->op->expand(&expand);
    if (failed(v) || !cover_values(v) ||
        !batch_nodes(v, first, weft_graph_node_count(b->graph), NULL))
        return;
    for (size_t k = 0; k < b->n_out; k++) b->out[k] = whole_of(v, one[k]);
}

static void refuse(const vmap *v, const weft_op *op)
{
    weft_graph_fail_in(
        v->graph, op->name, WEFT_BAD_ARGUMENT, "the op cannot be batched (weft_vmap): %s",
        op->updates     ? "it writes a state, which all examples share"
        : op->exchanges ? "it exchanges data with other processes"
        : op->random    ? "its random numbers would differ from those of the examples: draw them "
                          "outside, as a batched input"
                        : "it has no batching rule (weft_op.batch)");
}

/* The nodes that are added from now on are for this one. */
static void begin_node(const vmap *v, const weft_node_info *node)
{
    weft_role role = node->role;
    if (role.gradient_of < v->n_origins && v->copies[role.gradient_of])
        role.gradient_of = v->copies[role.gradient_of];
    weft_graph_set_role(v->graph, role);
}

static void check_result(const vmap *v, const weft_op *op, weft_value result, weft_value one)
{
    char have[128], want[128];
    const weft_shape to = whole_shape(v, one), got = weft_shape_of(v->graph, result);
    if (weft_shape_equal(got, to) &&
        weft_dtype_of(v->graph, result) == weft_dtype_of(v->graph, one))
        return;
    weft_graph_fail_in(
        v->graph, op->name, WEFT_INTERNAL, "the batching rule returns %s, expected %s",
        weft_shape_text(got, have, sizeof have), weft_shape_text(to, want, sizeof want));
}

static void apply_rule(vmap *v, weft_batch *b)
{
    if (b->op->updates || b->op->exchanges)
        refuse(v, b->op);
    else if (b->op->batch)
        b->op->batch(b);
    else if (b->op->elementwise && !b->op->random)
        batch_elementwise(v, b);
    else if (b->op->expand)
        batch_expansion(v, b);
    else
        refuse(v, b->op);
}

/* Reads the operands of node `index` into room for twice its inputs. */
static void batch_operands(vmap *v, size_t index, weft_value *in, bool *batched)
{
    const weft_node_info node = weft_graph_node(v->graph, index);
    weft_value one_out[WEFT_MAX_OUTPUTS], out[WEFT_MAX_OUTPUTS] = {{0, 0}};
    weft_value *one_in = in + node.n_in;
    for (size_t i = 0; i < node.n_in; i++) {
        one_in[i] = weft_value_from_id(v->graph, node.in[i]);
        batched[i] = is_batched(v, node.in[i]);
        in[i] = batched[i] ? v->batched[node.in[i]] : one_in[i];
    }
    for (size_t k = 0; k < node.n_out; k++) {
        one_out[k] = weft_value_from_id(v->graph, node.first_out + (uint32_t)k);
        if (!check_rank(v, node.op->name, one_out[k])) return;
    }
    weft_batch b = {v->graph, node.op, node.attr, node.n_in, node.n_out, v->size,
                    in,       one_in,  one_out,   batched,   out};
    apply_rule(v, &b);
    for (size_t k = 0; k < node.n_out && !failed(v); k++) {
        check_result(v, node.op, out[k], one_out[k]);
        if (!is_batched(v, one_out[k].id)) v->batched[one_out[k].id] = out[k];
    }
    if (failed(v) || !node.n_out || node.origin >= v->n_origins) return;
    const size_t made = weft_producer_of(v->graph, out[0]);
    v->copies[node.origin] = weft_graph_node(v->graph, made).origin;
}

static void batch_node(vmap *v, size_t index, bool inside)
{
    const weft_node_info node = weft_graph_node(v->graph, index);
    weft_value *in = malloc((2 * node.n_in + 1) * sizeof *in);
    bool *batched = malloc((node.n_in + 1) * sizeof *batched);
    if (in && batched) {
        if (!inside) {
            begin_node(v, &node);
            weft_graph_push_scope(v->graph, "vmap%s%s", node.scope[0] ? "." : "", node.scope);
        }
        batch_operands(v, index, in, batched);
        if (!inside) weft_graph_pop_scope(v->graph);
    } else {
        no_memory(v);
    }
    free(in);
    free(batched);
}

/* Batches the nodes of [first, end) that read a batched value. `to_output`, by node: whether it is
 * needed; NULL: an expansion, all of whose nodes may be. */
static bool batch_nodes(vmap *v, size_t first, size_t end, const uint8_t *to_output)
{
    for (size_t k = first; k < end && !failed(v); k++) {
        const weft_node_info node = weft_graph_node(v->graph, k);
        bool depends = false, done = node.n_out > 0;
        for (size_t i = 0; i < node.n_in; i++) depends |= is_batched(v, node.in[i]);
        for (size_t i = 0; i < node.n_out; i++) done &= is_batched(v, node.first_out + (uint32_t)i);
        if (depends && !done && (!to_output || to_output[k])) batch_node(v, k, !to_output);
    }
    return !failed(v);
}

/* ---- The call ---- */

static void mark(const weft_graph *g, const weft_value *outputs, size_t n_outputs,
                 uint8_t *to_output)
{
    for (size_t k = 0; k < n_outputs; k++) to_output[weft_producer_of(g, outputs[k])] = 1;
    for (size_t k = weft_graph_node_count(g); k-- > 0;) {
        const weft_node_info node = weft_graph_node(g, k);
        for (size_t i = 0; to_output[k] && i < node.n_in; i++)
            to_output[weft_producer_of(g, weft_value_from_id(g, node.in[i]))] = 1;
    }
}

static bool check_values(weft_graph *g, const char *word, const weft_value *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (values[i].id && weft_value_from_id(g, values[i].id).graph == values[i].graph) continue;
        weft_graph_fail_in(g, "weft_vmap", WEFT_BAD_ARGUMENT, "%s %zu is not a value of this graph",
                           word, i);
        return false;
    }
    return true;
}

/* Whether batch i is [size, the shape of input i]. Input 0 sets the size. */
static bool check_batch(vmap *v, weft_value input, weft_value batch, size_t i)
{
    char a[128], b[128];
    weft_shape one = weft_shape_of(v->graph, input), whole = weft_shape_of(v->graph, batch);
    weft_shape rest = {whole.rank - 1, {0}};
    for (int d = 1; d < whole.rank; d++) rest.dim[d - 1] = whole.dim[d];
    const bool fits = whole.rank > 0 && weft_shape_equal(rest, one) &&
                      weft_dtype_of(v->graph, input) == weft_dtype_of(v->graph, batch);
    if (!fits)
        weft_graph_fail_in(
            v->graph, "weft_vmap", WEFT_BAD_SHAPE,
            "batch %zu is %s %s, input %zu %s %s: expected that shape with the "
            "examples as a dimension in front",
            i, weft_dtype_name(weft_dtype_of(v->graph, batch)), weft_shape_text(whole, b, sizeof b),
            i, weft_dtype_name(weft_dtype_of(v->graph, input)), weft_shape_text(one, a, sizeof a));
    else if (whole.dim[0] < 1 || (i && whole.dim[0] != v->size))
        weft_graph_fail_in(v->graph, "weft_vmap", WEFT_BAD_SHAPE,
                           "batch %zu has %lld examples, expected %s", i, (long long)whole.dim[0],
                           whole.dim[0] < 1 ? "at least one" : "as many as batch 0");
    v->size = whole.rank > 0 ? whole.dim[0] : 0;
    return !failed(v);
}

static bool check_arguments(vmap *v, const weft_value *results)
{
    if ((v->n_outputs && (!v->outputs || !results)) || !v->n || !v->inputs || !v->batches) {
        weft_graph_fail_in(v->graph, "weft_vmap", WEFT_BAD_ARGUMENT,
                           v->n ? "the list of outputs, inputs, batches or results is NULL"
                                : "there are no inputs, expected at least one");
        return false;
    }
    if (!check_values(v->graph, "output", v->outputs, v->n_outputs) ||
        !check_values(v->graph, "input", v->inputs, v->n) ||
        !check_values(v->graph, "batch", v->batches, v->n))
        return false;
    for (size_t i = 0; i < v->n; i++)
        if (!check_batch(v, v->inputs[i], v->batches[i], i)) return false;
    return true;
}

static void build(vmap *v, weft_value *results)
{
    const size_t n_nodes = weft_graph_node_count(v->graph);
    for (size_t k = 0; k < n_nodes; k++) {
        const size_t origin = weft_graph_node(v->graph, k).origin;
        if (v->n_origins <= origin) v->n_origins = origin + 1;
    }
    uint8_t *to_output = calloc(n_nodes + 1, 1);
    v->copies = calloc(v->n_origins + 1, sizeof *v->copies);
    if (!to_output || !v->copies)
        no_memory(v);
    else if (cover_values(v)) {
        const weft_role role = weft_graph_set_role(v->graph, (weft_role){WEFT_FORWARD, 0});
        mark(v->graph, v->outputs, v->n_outputs, to_output);
        for (size_t i = 0; i < v->n; i++) v->batched[v->inputs[i].id] = v->batches[i];
        batch_nodes(v, 0, n_nodes, to_output);
        weft_graph_set_role(v->graph, role);
        for (size_t k = 0; k < v->n_outputs && !failed(v); k++)
            results[k] = whole_of(v, v->outputs[k]);
    }
    free(to_output);
}

void weft_vmap(weft_graph *graph, const weft_value *outputs, size_t n_outputs,
               const weft_value *inputs, const weft_value *batches, size_t n, weft_value *results)
{
    vmap v = {.graph = graph,
              .outputs = outputs,
              .inputs = inputs,
              .batches = batches,
              .n_outputs = n_outputs,
              .n = n};
    clear_values(results, n_outputs);
    if (weft_graph_status(graph) != WEFT_OK) return;
    if (check_arguments(&v, results)) build(&v, results);
    free(v.batched);
    free(v.copies);
    if (failed(&v)) clear_values(results, n_outputs);
}
