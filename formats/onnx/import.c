/* The walk through the nodes of a graph. Nodes whose inputs are known run at once, on a graph of
 * their own; all others are added to the model's graph. O(nodes), apart from what they compute. */
#include "onnx/import.h"

#include "base/text.h"

#include <weft/pass.h>

#include <string.h>

/* The maximum depth of nested bodies, and the maximum number of nodes that are computed again for
 * one value. */
#define MAX_DEPTH 64

/* ---- Values ---- */

void weft__set_tensor(onnx_import *import, onnx_value *value, const WeftOnnx__TensorProto *proto)
{
    value->type = proto->data_type;
    value->weight = weft__onnx_weight(import->model, value->name, proto);
    if (!value->weight) {
        value->initializer = proto;
        return;
    }
    value->tensor = value->weight->tensor;
    value->known = value->trainable = true;
}

bool weft__import_contents(onnx_import *import, onnx_value *value)
{
    if (!value->initializer) return true;
    const WeftOnnx__TensorProto *proto = value->initializer;
    value->initializer = NULL;
    value->known = weft__onnx_tensor_read(proto, value->name, &import->memory,
                                          (onnx_files *)(uintptr_t)&import->model->files,
                                          &value->tensor, &import->error) == WEFT_OK;
    return value->known || !weft__import_failed(import);
}

/* Declares a parameter in the scope of its name or, without one, in that of the node that reads it.
 */
static weft_value declare(onnx_import *import, onnx_value *value)
{
    char label[ONNX_SCOPE_BYTES], own[ONNX_SCOPE_BYTES];
    onnx_weight *w = value->weight;
    memcpy(label, import->label, sizeof label);
    weft__onnx_weight_scope(value->name, own);
    if (own[0]) weft__import_label(import, own);
    /* Each pass through the body of a loop declares the weights of the body. */
    const bool shared = weft_graph_share(import->graph, true);
    value->value = weft_state_named(import->graph, w->name, w->tensor.dtype, w->tensor.shape,
                                    WEFT_INIT_ZEROS, !w->statistic);
    weft_graph_share(import->graph, shared);
    w->used = true;
    weft__import_label(import, label);
    return value->value;
}

static bool map_in_graph(onnx_import *import, onnx_node *n);
static bool start_node(onnx_import *import, onnx_scope *scope, const WeftOnnx__NodeProto *proto,
                       onnx_node *n);

/* Gives a value, and all other outputs of its node, what the node computed. */
static void take_values(onnx_value *value, const onnx_node *n)
{
    for (size_t i = 0; i < n->n_out; i++) {
        onnx_value *own = n->out[i].name[0] ? weft__scope_find(value->scope, n->out[i].name) : NULL;
        if (!strcmp(n->out[i].name, value->output)) value->value = n->out[i].value;
        if (own && own->node == n->proto && own->scope == n->scope && !weft_is_value(own->value))
            own->value = n->out[i].value;
    }
}

/* Computes the node of a value that follows from parameters in the model's graph. */
static weft_value compute_again(onnx_import *import, onnx_value *value)
{
    onnx_node n;
    if (import->depth == MAX_DEPTH) {
        weft__import_fail(import, WEFT_TOO_LARGE, value->name,
                          "follows from parameters in more than %d steps", MAX_DEPTH);
        return WEFT_NO_VALUE;
    }
    import->depth++;
    if (start_node(import, value->scope, value->node, &n)) {
        n.n_out = n.proto->n_output;
        n.out = weft__arena_alloc(&import->memory, (n.n_out + 1) * sizeof *n.out);
        for (size_t i = 0; n.out && i < n.n_out; i++) n.out[i].name = n.proto->output[i];
        if (n.out && map_in_graph(import, &n)) take_values(value, &n);
        if (!n.out) weft__import_fail(import, WEFT_NO_MEMORY, value->name, "no memory for a node");
    }
    import->depth--;
    return value->value;
}

/* The maximum number of elements of a constant that a body gets a copy of. */
#define MAX_COPIED 64

/* In a region: a value from outside, which becomes an input of the body, or a small constant. */
static weft_value value_from_outside(onnx_import *import, onnx_value *value)
{
    onnx_region *region = import->region;
    if (weft__import_failed(import) || !weft__import_contents(import, value)) return WEFT_NO_VALUE;
    if (value->known && !value->weight && !value->trainable &&
        weft_shape_numel(value->tensor.shape) <= MAX_COPIED)
        return weft_constant(import->graph, value->tensor.dtype, value->tensor.shape,
                             value->tensor.data);
    char label[ONNX_SCOPE_BYTES];
    memcpy(label, import->label, sizeof label);
    weft__region_leave(import, region);
    const weft_value from = weft__import_value(import, value);
    weft__region_resume(import, region);
    weft__import_label(import, label);
    return weft__import_failed(import) ? WEFT_NO_VALUE : weft__region_capture(import, from);
}

/* Input i of a node from outside of a region. What was computed from it or for it there, such as its
 * bytes, is not its own in the body, where a node may compute the same. NULL after a failure. */
static onnx_value *operand_from_outside(onnx_import *import, onnx_value *value)
{
    onnx_value size = {.name = value->name, .value = value->size, .region = value->region};
    const bool is_byte = value->type == ONNX_UINT8 || value->type == ONNX_INT8;
    if (value->known || value->initializer || value->weight ||
        (!is_byte && !weft_is_value(value->size) && !weft_is_value(value->whole) &&
         !weft_is_value(value->exact) && !value->quantized && !value->byte_op))
        return value;
    onnx_value *own = weft__arena_alloc(&import->memory, sizeof *own);
    if (!own) {
        weft__import_fail(import, WEFT_NO_MEMORY, value->name, "no memory for a value");
        return NULL;
    }
    *own = *value;
    own->whole = own->exact = own->bytes = WEFT_NO_VALUE;
    own->quantized = own->scale = own->zero = NULL;
    own->byte_op = NULL;
    if (weft_is_value(value->size)) own->size = value_from_outside(import, &size);
    return own;
}

weft_value weft__import_value(onnx_import *import, onnx_value *value)
{
    if (import->region && value->region != import->region) return value_from_outside(import, value);
    if (weft_is_value(value->value) || weft__import_failed(import)) return value->value;
    if (value->weight) return declare(import, value);
    if (!weft__import_contents(import, value)) return WEFT_NO_VALUE;
    if (value->trainable) return compute_again(import, value);
    if (value->known && !weft__arena_count(&import->memory, weft_tensor_bytes(value->tensor.dtype,
                                                                              value->tensor.shape)))
        weft__import_fail(import, WEFT_NO_MEMORY, value->name, "no memory for a constant");
    else if (value->known)
        value->value = weft_constant(import->graph, value->tensor.dtype, value->tensor.shape,
                                     value->tensor.data);
    else if (value->sequence || value->absent)
        weft__import_fail(import, WEFT_BAD_DTYPE, value->name,
                          "is used as a tensor, but it is a sequence or an absent value");
    else
        weft__import_fail(import, WEFT_BAD_FILE, value->name, "is used, but no node computes it");
    return value->value;
}

/* ---- Nodes ---- */

static bool find_inputs(onnx_import *import, onnx_node *n)
{
    n->n_in = n->proto->n_input;
    n->in = weft__arena_alloc(&import->memory, (n->n_in + 1) * sizeof *n->in);
    if (!n->in) return weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a node"), false;
    for (size_t i = 0; i < n->n_in; i++) {
        if (!n->proto->input[i][0]) continue;
        n->in[i] = weft__scope_find(n->scope, n->proto->input[i]);
        if (!n->in[i])
            return weft__node_fail(n, WEFT_BAD_FILE,
                                   "reads \"%s\", which no node before it computes",
                                   n->proto->input[i]),
                   false;
        if (n->in[i]->absent) n->in[i] = NULL;
        if (n->in[i] && import->region && n->in[i]->region != import->region)
            n->in[i] = operand_from_outside(import, n->in[i]);
        if (weft__import_failed(import)) return false;
        if (n->in[i] && n->in[i]->type == ONNX_STRING && !n->op->controls &&
            !weft__texts_allowed(n->op->name))
            return weft__node_fail(n, WEFT_BAD_DTYPE, "does not work on strings"), false;
    }
    return true;
}

static bool check_counts(onnx_node *n, size_t n_in, size_t n_out)
{
    bool complete =
        n_in >= n->op->min_in && n_in <= n->op->max_in && n_out >= 1 && n_out <= n->op->max_out;
    for (size_t i = 0; complete && i < n->op->min_in; i++) complete = n->in[i] != NULL;
    if (!complete)
        weft__node_fail(n, WEFT_BAD_FILE,
                        "has %zu inputs and %zu outputs, expected %zu to %zu and 1 to %zu", n_in,
                        n_out, n->op->min_in, n->op->max_in, n->op->max_out);
    return complete;
}

/* Finds the mapping of a node, and its inputs in the scope. */
static bool start_node(onnx_import *import, onnx_scope *scope, const WeftOnnx__NodeProto *proto,
                       onnx_node *n)
{
    const char *domain = weft__onnx_domain(proto->domain);
    *n = (onnx_node){.import = import, .scope = scope, .proto = proto, .graph = import->graph};
    n->op = import->mappings->find(domain, onnx_text(proto->op_type));
    n->opset = weft__import_opset(import, scope, domain);
    if (!n->op) {
        n->function = weft__import_function(import, domain, onnx_text(proto->op_type));
        if (n->function) n->op = import->mappings->call;
    }
    if (!n->op && weft__import_failed(import)) return false;
    if (!n->op)
        return weft__node_fail(n, WEFT_NO_KERNEL, "unsupported op \"%s\" of the domain \"%s\"",
                               onnx_text(proto->op_type), domain[0] ? domain : "ai.onnx"),
               false;
    if (++import->nodes > ONNX_MAX_NODES ||
        weft_graph_node_count(import->graph) > ONNX_MAX_GRAPH_NODES)
        return weft__node_fail(n, WEFT_TOO_LARGE, "the model has more than %d nodes",
                               ONNX_MAX_NODES),
               false;
    return find_inputs(import, n);
}

static bool map_in_graph(onnx_import *import, onnx_node *n)
{
    char label[ONNX_SCOPE_BYTES], own[ONNX_SCOPE_BYTES] = "";
    memcpy(label, import->label, sizeof label);
    if (!n->op->controls) weft__onnx_node_scope(import->model, n->proto, own);
    n->graph = import->graph;
    n->folding = false;
    weft__import_label(import, own);
    n->read_open = false;
    n->op->map(n);
    import->mappings->sizes(n);
    weft__import_label(import, label);
    return !weft__import_failed(import);
}

/* Whether the contents of all inputs are known and few. */
static bool can_fold(onnx_import *import, onnx_node *n)
{
    bool known = n->n_in > 0 && !n->op->controls;
    for (size_t i = 0; known && i < n->n_in; i++) {
        onnx_value *v = n->in[i];
        if (!v) continue;
        known = weft__import_contents(import, v) && v->known &&
                weft_shape_numel(v->tensor.shape) <= ONNX_MAX_FOLDED;
    }
    return known;
}

static bool has_trainable(const onnx_node *n)
{
    for (size_t i = 0; i < n->n_in; i++)
        if (n->in[i] && n->in[i]->trainable) return true;
    return false;
}

/* Cuts a folded value to its size. */
static void cut_folded(weft_session *s, onnx_value *out, char *data, weft_error *error)
{
    int32_t size;
    weft_shape *shape = &out->tensor.shape;
    const weft_shape old = *shape;
    size_t after = weft_dtype_bytes(out->tensor.dtype), before = 1;
    if (weft_session_fetch(s, out->size, &size, sizeof size, error) != WEFT_OK) return;
    for (int i = 0; i < old.rank; i++) {
        if (i < out->sized_axis) before *= (size_t)old.dim[i];
        if (i > out->sized_axis) after *= (size_t)old.dim[i];
    }
    shape->dim[out->sized_axis] = size;
    for (size_t i = 0; i < before; i++)
        memmove(data + i * (size_t)size * after,
                data + i * (size_t)old.dim[out->sized_axis] * after, (size_t)size * after);
}

/* Runs a graph of constants and reads the outputs that are not known. */
static weft_status run_folded(onnx_node *n, const weft_value *targets, size_t n_targets,
                              weft_error *error)
{
    weft_session_options one = {.threads = 1};
    weft_plan *plan = weft_plan_new(n->graph, targets, n_targets, NULL, error);
    weft_session *s = plan ? weft_session_new(plan, NULL, &one, error) : NULL;
    if (s) weft_session_run(s, error);
    for (size_t i = 0; s && error->status == WEFT_OK && i < n->n_out; i++) {
        onnx_value *out = &n->out[i];
        if (!weft_is_value(out->value)) continue;
        const weft_dtype dtype = weft_dtype_of(n->graph, out->value);
        const weft_shape shape = weft_shape_of(n->graph, out->value);
        const size_t bytes = weft_tensor_bytes(dtype, shape);
        char *data = weft__arena_alloc(&n->import->memory, bytes);
        if (!data)
            weft_error_set(error, WEFT_NO_MEMORY, out->name, "no memory for %zu bytes", bytes);
        else
            weft_session_fetch(s, out->value, data, bytes, error);
        out->tensor = (onnx_tensor){dtype, shape, data};
        out->known = true;
        if (weft_is_value(out->size) && error->status == WEFT_OK) cut_folded(s, out, data, error);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    return error->status;
}

/* Builds and runs the node on constants. False if it failed, or if it is not to be folded
 * (*unfolded): its outputs are too large, or different in each run. */
static bool fold(onnx_import *import, onnx_node *n, bool *unfolded)
{
    weft_error error = {0};
    weft_value *targets = weft__arena_alloc(&import->memory, (2 * n->n_out + 1) * sizeof *targets);
    size_t n_targets = 0;
    n->graph = weft_graph_new();
    n->folding = true;
    *unfolded = false;
    if (!n->graph || !targets) {
        weft_graph_free(n->graph);
        n->graph = import->graph;
        return weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a graph"), false;
    }
    n->op->map(n);
    weft_error_copy(&error, weft_graph_error(n->graph));
    *unfolded = n->random;
    for (size_t i = 0; i < n->n_out; i++) {
        if (!weft_is_value(n->out[i].value)) continue;
        targets[n_targets++] = n->out[i].value;
        if (weft_is_value(n->out[i].size)) targets[n_targets++] = n->out[i].size;
        *unfolded |= weft_shape_numel(weft_shape_of(n->graph, n->out[i].value)) > ONNX_MAX_FOLDED;
    }
    if (n_targets && !*unfolded && error.status == WEFT_OK && !weft__import_failed(import))
        run_folded(n, targets, n_targets, &error);
    if (error.status != WEFT_OK)
        weft__node_fail(n, error.status, "%s: %s", error.where, error.message);
    for (size_t i = 0; i < n->n_out; i++) n->out[i].value = n->out[i].size = WEFT_NO_VALUE;
    weft_graph_free(n->graph);
    n->graph = import->graph;
    return !*unfolded && import->error.status == WEFT_OK;
}

/* Whether data decide elements of an input. */
static bool has_open(const onnx_node *n)
{
    for (size_t i = 0; i < n->n_in; i++)
        if (n->in[i] && n->in[i]->least) return true;
    return false;
}

/* Computes a folded node once more, from sizes of 0. False if it failed, or if the shape of
 * a result differs (*unfolded): it is to be mapped in the graph. */
static bool fold_least(onnx_import *import, onnx_node *n, bool *unfolded)
{
    onnx_node again = *n;
    onnx_value *in = weft__arena_alloc(&import->memory, n->n_in * sizeof *in);
    again.in = weft__arena_alloc(&import->memory, n->n_in * sizeof(onnx_value *));
    again.out = weft__arena_alloc(&import->memory, n->n_out * sizeof *again.out);
    *unfolded = false;
    if (!in || !again.in || !again.out)
        return weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a node"), false;
    for (size_t i = 0; i < n->n_in; i++) {
        if (!n->in[i]) continue;
        in[i] = *n->in[i];
        if (in[i].least) in[i].tensor.data = in[i].least;
        again.in[i] = &in[i];
    }
    for (size_t i = 0; i < n->n_out; i++) again.out[i].name = n->out[i].name;
    if (!fold(import, &again, unfolded)) return false;
    for (size_t i = 0; i < n->n_out && !*unfolded; i++) {
        const onnx_tensor a = n->out[i].tensor, b = again.out[i].tensor;
        *unfolded = n->out[i].known && !weft_shape_equal(a.shape, b.shape);
        if (n->out[i].known && !*unfolded &&
            memcmp(a.data, b.data, weft_tensor_bytes(a.dtype, a.shape)) != 0)
            n->out[i].least = b.data;
    }
    return !*unfolded;
}

static bool run_node(onnx_import *import, onnx_node *n)
{
    bool unfolded;
    if (!can_fold(import, n)) return !weft__import_failed(import) && map_in_graph(import, n);
    if (!fold(import, n, &unfolded)) return unfolded && map_in_graph(import, n);
    if (has_open(n) && !fold_least(import, n, &unfolded)) {
        for (size_t i = 0; i < n->n_out; i++) n->out[i] = (onnx_value){.name = n->out[i].name};
        return unfolded && map_in_graph(import, n);
    }
    for (size_t i = 0; i < n->n_out; i++) {
        n->out[i].trainable = n->trainable;
        n->out[i].output = n->out[i].name;
        n->out[i].node = n->proto;
        n->out[i].scope = n->scope;
        n->out[i].region = import->region;
    }
    return true;
}

bool weft__import_node(onnx_import *import, onnx_scope *scope, const WeftOnnx__NodeProto *proto,
                       onnx_value **in, size_t n_in, onnx_value *out, size_t n_out)
{
    onnx_node n;
    WeftOnnx__NodeProto bare = *proto;
    bare.n_input = 0;
    if (!start_node(import, scope, &bare, &n)) return false;
    n.proto = proto;
    n.in = in;
    n.n_in = n_in;
    n.out = out;
    n.n_out = n_out;
    bool unfolded;
    if (!check_counts(&n, n_in, n_out)) return false;
    if (!has_trainable(&n) && can_fold(import, &n))
        return fold(import, &n, &unfolded) || (unfolded && map_in_graph(import, &n));
    return !weft__import_failed(import) && map_in_graph(import, &n);
}

/* Adds the outputs of a mapped node to its scope. */
static bool add_outputs(onnx_import *import, onnx_node *n)
{
    for (size_t i = 0; i < n->n_out; i++) {
        const onnx_value *out = &n->out[i];
        if (!out->name[0]) continue;
        if (!weft_is_value(out->value) && !out->known && !out->initializer && !out->weight &&
            !out->sequence && !out->absent)
            return weft__node_fail(n, WEFT_NO_KERNEL, "its output %zu is not supported", i), false;
        onnx_value *value = weft__scope_add(import, n->scope, out->name);
        if (!value) return false;
        const char *name = value->name;
        *value = *out;
        value->name = name;
    }
    return true;
}

static bool map_node(onnx_import *import, onnx_scope *scope, const WeftOnnx__NodeProto *proto)
{
    onnx_node n;
    if (!start_node(import, scope, proto, &n)) return false;
    if (!check_counts(&n, n.n_in, proto->n_output)) return false;
    n.n_out = proto->n_output;
    n.out = weft__arena_alloc(&import->memory, (n.n_out + 1) * sizeof *n.out);
    if (!n.out) return weft__node_fail(&n, WEFT_NO_MEMORY, "no memory for a node"), false;
    for (size_t i = 0; i < n.n_out; i++) n.out[i].name = proto->output[i];
    return run_node(import, &n) && add_outputs(import, &n);
}

/* ---- Graphs ---- */

static bool add_initializers(onnx_import *import, onnx_scope *scope,
                             const WeftOnnx__GraphProto *graph)
{
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const WeftOnnx__TensorProto *proto = graph->initializer[i];
        onnx_value *v = weft__scope_add(import, scope, onnx_text(proto->name));
        if (!v) return false;
        weft__set_tensor(import, v, proto);
    }
    return true;
}

bool weft__import_nodes(onnx_import *import, onnx_scope *scope, WeftOnnx__NodeProto *const *nodes,
                        size_t count)
{
    if (import->depth == MAX_DEPTH) {
        weft__import_fail(import, WEFT_TOO_LARGE, count ? onnx_text(nodes[0]->name) : "",
                          "bodies are more than %d deep", MAX_DEPTH);
        return false;
    }
    bool good = true;
    import->depth++;
    for (size_t i = 0; good && i < count;) {
        const size_t noted = import->mappings->noted(import, scope, nodes + i, count - i);
        if (!noted) good = map_node(import, scope, nodes[i]);
        i += noted ? noted : 1;
        good = good && !weft__import_failed(import);
    }
    import->depth--;
    return good;
}

bool weft__import_graph(onnx_import *import, onnx_scope *scope, const WeftOnnx__GraphProto *graph)
{
    return add_initializers(import, scope, graph) &&
           weft__import_nodes(import, scope, graph->node, graph->n_node);
}
