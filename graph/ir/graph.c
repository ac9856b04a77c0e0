/* The builder: weft_apply checks a node, infers its types, and appends it. Nodes and values lie in
 * arrays that double, attributes in the arena; errors are sticky. O(inputs) a node. */
#include "ir/scan.h"

#include "base/text.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const weft_error no_graph_error = {
    WEFT_BAD_ARGUMENT, "graph", "the graph is NULL: out of memory, or no graph was passed"};

/* Tags come from a counter, so that no graph of the process had the same before, until it wraps
 * after 2^32 graphs. Never 0, the tag of WEFT_NO_VALUE. */
static uint32_t new_tag(void)
{
    static atomic_uint last;
    uint32_t tag;
    do tag = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
    while (tag == 0);
    return tag;
}

weft_graph *weft_graph_new(void)
{
    weft_graph *graph = calloc(1, sizeof *graph);
    if (!graph) return NULL;
    graph->tag = new_tag();
    graph->n_values = 1;
    return graph;
}

void weft__scan_body_release(scan_body *body)
{
    if (!body || atomic_fetch_sub(&body->references, 1) > 1) return;
    weft_graph_free(body->graph);
    free(body->in);
    free(body->out);
    free(body);
}

void weft_graph_free(weft_graph *graph)
{
    if (!graph) return;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        const scan_attr *scan = scan_of(graph->nodes[n].op, graph->nodes[n].attr);
        if (scan) weft__scan_body_release(scan->body);
    }
    weft__arena_free(&graph->arena);
    free(graph->nodes);
    free(graph->values);
    weft__name_table_free(&graph->names);
    free(graph->types);
    free(graph->type_names);
    free(graph);
}

const weft_error *weft_graph_error(const weft_graph *graph)
{
    return graph ? &graph->error : &no_graph_error;
}

weft_status weft_graph_status(const weft_graph *graph)
{
    return weft_graph_error(graph)->status;
}

/* Records an error at the scope and `name`, that of an op or function, or "". */
static void fail_with(weft_graph *graph, const char *name, weft_status status, const char *format,
                      va_list arguments)
{
    if (!graph || graph->error.status != WEFT_OK) return;
    const char *slash = graph->scope[0] && name[0] ? "/" : "";
    char where[SCOPE_BYTES + 64], message[sizeof graph->error.message];
    snprintf(where, sizeof where, "%s%s%s", graph->scope, slash, name);
    weft__text_vformat(message, sizeof message, format, arguments);
    weft_error_set(&graph->error, status == WEFT_OK ? WEFT_INTERNAL : status,
                   where[0] ? where : "graph", "%s", message);
}

void weft_graph_fail_in(weft_graph *graph, const char *name, weft_status status, const char *format,
                        ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail_with(graph, name ? name : "", status, format, arguments);
    va_end(arguments);
}

void weft_graph_fail(weft_graph *graph, weft_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail_with(graph, "", status, format, arguments);
    va_end(arguments);
}

/* ---- Values ---- */

weft_value weft__graph_value(const weft_graph *graph, uint32_t id)
{
    return id && id < graph->n_values ? (weft_value){id, graph->tag} : WEFT_NO_VALUE;
}

bool weft__graph_owns(const weft_graph *graph, weft_value value)
{
    return graph && value.id && value.graph == graph->tag && value.id < graph->n_values;
}

weft_shape weft_shape_of(const weft_graph *graph, weft_value value)
{
    return weft__graph_owns(graph, value) ? graph->values[value.id].type.shape : WEFT_SCALAR;
}

weft_dtype weft_dtype_of(const weft_graph *graph, weft_value value)
{
    return weft__graph_owns(graph, value) ? graph->values[value.id].type.dtype : WEFT_F32;
}

int weft_rank_of(const weft_graph *graph, weft_value value)
{
    return weft_shape_of(graph, value).rank;
}

int64_t weft_dim_of(const weft_graph *graph, weft_value value, int axis)
{
    weft_shape shape = weft_shape_of(graph, value);
    if (axis < 0) axis += shape.rank;
    return axis >= 0 && axis < shape.rank ? shape.dim[axis] : 0;
}

const char *weft_name_of(const weft_graph *graph, weft_value value)
{
    const char *name = weft__graph_owns(graph, value) ? graph->values[value.id].name : NULL;
    return name ? name : "";
}

weft_layout weft_layout_of(const weft_graph *graph, weft_value value)
{
    return weft__graph_owns(graph, value) ? graph->values[value.id].layout : (weft_layout){{0}, 0};
}

bool weft_constant_of(const weft_graph *graph, weft_value value, weft_tensor *tensor)
{
    if (!weft__graph_owns(graph, value)) return false;
    const node_record *node = &graph->nodes[graph->values[value.id].node];
    const weft_constant_attr *c = node->attr;
    if (node->op != &weft_op_constant) return false;
    *tensor = weft_tensor_dense((void *)(uintptr_t)c->data, c->dtype, c->shape);
    return true;
}

weft_value weft_value_from_id(const weft_graph *graph, uint32_t id)
{
    return graph ? weft__graph_value(graph, id) : WEFT_NO_VALUE;
}

size_t weft_producer_of(const weft_graph *graph, weft_value value)
{
    return weft__graph_owns(graph, value) ? graph->values[value.id].node : 0;
}

size_t weft_graph_node_count(const weft_graph *graph)
{
    return graph ? graph->n_nodes : 0;
}

weft_node_info weft_graph_node(const weft_graph *graph, size_t index)
{
    if (!graph || index >= graph->n_nodes) return (weft_node_info){0};
    const node_record *n = &graph->nodes[index];
    return (weft_node_info){.op = n->op,
                            .attr = n->attr,
                            .in = n->in,
                            .n_in = n->n_in,
                            .first_out = n->first_out,
                            .n_out = n->op->n_out,
                            .scope = n->scope,
                            .role = n->role,
                            .origin = n->origin};
}

weft_role weft_graph_set_role(weft_graph *graph, weft_role role)
{
    if (!graph) return (weft_role){WEFT_FORWARD, 0};
    const weft_role before = graph->role;
    graph->role = role;
    return before;
}

void weft__graph_set_origin(weft_graph *graph, const node_record *node)
{
    graph->copied = node ? node->origin : 0;
    if (!node) return;
    graph->role = node->role;
    weft__graph_set_scope(graph, node->scope);
}

void weft__graph_count_on(weft_graph *graph, const weft_graph *other)
{
    if (graph->random_keys < other->random_keys) graph->random_keys = other->random_keys;
    if (graph->origins < other->origins) graph->origins = other->origins;
}

const char *weft__graph_node_where(const weft_graph *graph, size_t node, char *buffer, size_t size)
{
    const node_record *n = &graph->nodes[node];
    const char *name = n->op->n_out ? graph->values[n->first_out].name : NULL;
    if (name)
        snprintf(buffer, size, "%s (%s)", name, n->op->name);
    else
        snprintf(buffer, size, "%s%s%s", n->scope, n->scope[0] ? "/" : "", n->op->name);
    return buffer;
}

size_t weft__graph_value_bytes(const weft_graph *graph, uint32_t id)
{
    const value_record *v = &graph->values[id];
    return weft_tensor_bytes(v->stored, v->type.shape);
}

static bool is_narrow(const value_record *v)
{
    return v->stored != v->type.dtype;
}

bool weft__graph_node_is_narrow(const weft_graph *graph, const node_record *node)
{
    for (size_t i = 0; i < node->n_in; i++)
        if (is_narrow(&graph->values[node->in[i]])) return true;
    for (size_t i = 0; i < node->op->n_out; i++)
        if (is_narrow(&graph->values[node->first_out + i])) return true;
    return false;
}

weft_dtype weft__graph_key_dtype(const weft_graph *graph, const node_record *node)
{
    uint32_t id = node->op->key_output || !node->n_in ? node->first_out : node->in[0];
    return graph->values[id].type.dtype;
}

weft_tensor weft__graph_tensor(const weft_graph *g, uint32_t id)
{
    const value_record *v = &g->values[id];
    weft_tensor t = {NULL, v->stored, v->type.shape, {0}};
    memcpy(t.stride, v->layout.stride, sizeof t.stride);
    return t;
}

bool weft__graph_node_runs(const weft_graph *graph, const node_record *node)
{
    return !node->op->alias && (scan_of(node->op, node->attr) ||
                                weft__op_has_kernel(node->op, weft__graph_key_dtype(graph, node)));
}

uint64_t weft_graph_random_key(weft_graph *graph)
{
    return graph ? ++graph->random_keys * 0x9E3779B97F4A7C15u : 0;
}

/* ---- Lists ---- */

bool weft__graph_reserve(weft_graph *graph, graph_list *list, size_t size)
{
    if (list->n < list->capacity) return true;
    const size_t capacity = list->capacity ? 2 * list->capacity : 16;
    void *grown = weft__arena_alloc(&graph->arena, capacity * size);
    if (!grown) return false;
    if (list->n) memcpy(grown, list->at, list->n * size);
    list->at = grown;
    list->capacity = capacity;
    return true;
}

static bool reserve_lists(weft_graph *graph, const weft_op *op)
{
    return op != &weft_op_state ||
           (weft__graph_reserve(graph, &graph->states, sizeof(weft_value)) &&
            weft__graph_reserve(graph, &graph->params, sizeof(weft_value)));
}

/* Adds a state to its lists, which have room. */
static void list_state(weft_graph *graph, const node_record *node)
{
    if (node->op != &weft_op_state) return;
    const weft_value value = weft__graph_value(graph, node->first_out);
    ((weft_value *)graph->states.at)[graph->states.n++] = value;
    if (((const weft_state_attr *)node->attr)->trainable)
        ((weft_value *)graph->params.at)[graph->params.n++] = value;
}

/* The array of a list, which may be NULL, and its length. */
static const void *list_of(const graph_list *list, size_t *count)
{
    if (count) *count = list ? list->n : 0;
    return list ? list->at : NULL;
}

const weft_value *weft_graph_params(const weft_graph *graph, size_t *count)
{
    return list_of(graph ? &graph->params : NULL, count);
}

const weft_value *weft_graph_states(const weft_graph *graph, size_t *count)
{
    return list_of(graph ? &graph->states : NULL, count);
}

/* ---- Nodes ---- */

/* Makes room for one more node with its values and inputs; false if out of memory. */
static bool reserve(weft_graph *graph, size_t n_in, size_t n_out)
{
    if (graph->n_nodes == graph->node_capacity) {
        size_t capacity = graph->node_capacity ? 2 * graph->node_capacity : 64;
        node_record *nodes = realloc(graph->nodes, capacity * sizeof *nodes);
        if (!nodes) return false;
        graph->nodes = nodes;
        graph->node_capacity = capacity;
    }
    if (graph->n_values + n_out > graph->value_capacity) {
        size_t capacity = graph->value_capacity ? 2 * graph->value_capacity : 64;
        value_record *values = realloc(graph->values, capacity * sizeof *values);
        if (!values) return false;
        memset(&values[0], 0, sizeof values[0]);
        graph->values = values;
        graph->value_capacity = capacity;
    }
    if (n_in > graph->type_capacity) {
        weft_type *types = realloc(graph->types, (n_in + 8) * sizeof *types);
        if (types) graph->types = types;
        const char **names = realloc(graph->type_names, (n_in + 8) * sizeof *names);
        if (names) graph->type_names = names;
        if (!types || !names) return false;
        graph->type_capacity = n_in + 8;
    }
    return graph->n_values + n_out < UINT32_MAX / 2;
}

/* Checks the number of inputs, that they belong to the graph, and that updated ones are states. */
static bool check_inputs(weft_graph *graph, const weft_op *op, const weft_value *inputs,
                         size_t count)
{
    char name[128];
    const bool variadic = op->max_in == WEFT_VARIADIC;
    if (count < op->min_in || (!variadic && count > op->max_in) || (count && !inputs)) {
        if (op->min_in == op->max_in)
            snprintf(name, sizeof name, "%d", op->min_in);
        else if (variadic)
            snprintf(name, sizeof name, "at least %d", op->min_in);
        else
            snprintf(name, sizeof name, "%d to %d", op->min_in, op->max_in);
        weft_graph_fail_in(graph, op->name, WEFT_BAD_ARGUMENT, "takes %s inputs, got %zu%s", name,
                           count, count && !inputs ? " at NULL" : "");
        return false;
    }
    const weft_infer names = {.op = op};
    for (size_t i = 0; i < count; i++) {
        if (weft__graph_owns(graph, inputs[i])) continue;
        weft_graph_fail_in(graph, op->name, WEFT_BAD_ARGUMENT, "%s %s",
                           weft_infer_input(&names, i, name, sizeof name),
                           !inputs[i].id                   ? "is WEFT_NO_VALUE, expected a value"
                           : inputs[i].graph != graph->tag ? "belongs to another graph"
                                                           : "is an unknown value");
        return false;
    }
    for (size_t i = 0; i < op->updates && i < count; i++) {
        uint32_t root = graph->values[inputs[i].id].root;
        if (graph->nodes[graph->values[root].node].op == &weft_op_state &&
            weft_shape_equal(graph->values[root].type.shape,
                             graph->values[inputs[i].id].type.shape) &&
            weft__layout_taken(WEFT_TAKES_DENSE, graph->values[inputs[i].id].type.shape,
                               &graph->values[inputs[i].id].layout))
            continue;
        weft_graph_fail_in(graph, op->name, WEFT_BAD_ARGUMENT,
                           "%s is updated: it must be a whole state",
                           weft_infer_input(&names, i, name, sizeof name));
        return false;
    }
    return true;
}

/* Fills the types of the outputs by the op's shape rule, and checks them. */
static bool run_infer(weft_graph *graph, const weft_op *op, const void *attr,
                      const weft_value *inputs, size_t count, weft_type *out)
{
    for (size_t i = 0; i < count; i++) {
        graph->types[i] = graph->values[inputs[i].id].type;
        graph->type_names[i] = graph->values[inputs[i].id].name;
    }
    for (size_t i = 0; i < op->n_out; i++) out[i].dtype = WEFT_DTYPES;
    weft_error error = {0};
    weft_infer infer = {op, attr, count, op->n_out, graph->types, out, &error, graph->type_names};
    if (!op->infer(&infer)) {
        char text[192];
        const char *attributes = weft__attr_text(op, attr, text, sizeof text);
        weft_graph_fail_in(graph, op->name, error.status ? error.status : WEFT_INTERNAL, "%s%s%s%s",
                           error.status ? error.message : "the shape rule failed without a message",
                           attributes[0] ? " (" : "", attributes, attributes[0] ? ")" : "");
        return false;
    }
    for (size_t i = 0; i < op->n_out; i++) {
        char text[160];
        if ((size_t)out[i].dtype >= WEFT_DTYPES) {
            weft_graph_fail_in(graph, op->name, WEFT_BAD_DTYPE,
                               "output %zu would be of dtype %d, expected f32, f64, i32 or bool", i,
                               (int)out[i].dtype);
            return false;
        }
        if (weft_shape_numel(out[i].shape) >= 0) continue;
        weft_graph_fail_in(graph, op->name, WEFT_TOO_LARGE,
                           "output %zu would be %s: a size overflows, is negative, or has more "
                           "than %d dimensions",
                           i, weft_shape_text(out[i].shape, text, sizeof text), WEFT_MAX_RANK);
        return false;
    }
    char text[160];
    const weft_dtype key = op->key_output || !count ? out[0].dtype : graph->types[0].dtype;
    weft_status status = weft__op_check_dtype(op, key, text, sizeof text);
    if (status != WEFT_OK) weft_graph_fail_in(graph, op->name, status, "%s", text);
    return status == WEFT_OK;
}

/* Sets layout, root and version of a new output. */
static void place_output(weft_graph *graph, const node_record *node, size_t index,
                         value_record *value, uint32_t id)
{
    value->layout = weft__layout_dense(value->type.shape);
    value->root = value->version = id;
    if (node->op->alias && index == 0) {
        const value_record *in = &graph->values[node->in[0]];
        weft_layout layout = {{0}, 0};
        if (node->op->alias(node->attr, &in->type, &in->layout, &value->type, &layout)) {
            value->layout = layout;
            value->root = in->root;
            value->version = in->version;
        }
    } else if (index < node->op->updates) {
        value->root = graph->values[node->in[index]].root;
    }
}

weft_value weft_apply(weft_graph *graph, const weft_op *op, const void *attr,
                      const weft_value *inputs, size_t count, weft_value *outputs)
{
    for (size_t i = 0; outputs && op && i < op->n_out && i < WEFT_MAX_OUTPUTS; i++)
        outputs[i] = WEFT_NO_VALUE;
    if (!graph || graph->error.status != WEFT_OK) return WEFT_NO_VALUE;
    char wrong[256];
    weft_status status = weft__op_check(op, wrong, sizeof wrong);
    if (status != WEFT_OK) {
        weft_graph_fail_in(graph, op && op->name && op->name[0] ? op->name : "weft_apply", status,
                           "%s", wrong);
        return WEFT_NO_VALUE;
    }
    if (graph->n_nodes == WEFT_MAX_NODES) {
        weft_graph_fail_in(graph, op->name, WEFT_TOO_LARGE, "the graph has %d nodes, the maximum",
                           WEFT_MAX_NODES);
        return WEFT_NO_VALUE;
    }
    if (!check_inputs(graph, op, inputs, count)) return WEFT_NO_VALUE;
    const char *scope = weft__graph_scope(graph);
    void *attr_copy = weft__arena_alloc(&graph->arena, op->attr_size);
    uint32_t *in = weft__arena_alloc(&graph->arena, count * sizeof *in);
    if (!scope || !attr_copy || !in || !reserve(graph, count, op->n_out) ||
        !reserve_lists(graph, op)) {
        weft_graph_fail_in(graph, op->name, WEFT_NO_MEMORY, "no memory for the node");
        return WEFT_NO_VALUE;
    }
    if (attr && op->attr_size) memcpy(attr_copy, attr, op->attr_size);
    weft_type types[WEFT_MAX_OUTPUTS] = {{0}};
    if (!run_infer(graph, op, attr_copy, inputs, count, types)) return WEFT_NO_VALUE;
    for (size_t i = 0; i < count; i++) in[i] = inputs[i].id;

    uint32_t node_index = (uint32_t)graph->n_nodes, first = (uint32_t)graph->n_values;
    node_record *node = &graph->nodes[graph->n_nodes++];
    *node = (node_record){.op = op,
                          .attr = attr_copy,
                          .in = in,
                          .n_in = (uint32_t)count,
                          .first_out = first,
                          .origin = graph->copied ? graph->copied : ++graph->origins,
                          .role = graph->role,
                          .scope = scope};
    for (size_t i = 0; i < op->n_out; i++) {
        uint32_t id = first + (uint32_t)i;
        value_record *value = &graph->values[id];
        *value = (value_record){.type = types[i], .node = node_index, .stored = types[i].dtype};
        graph->n_values++;
        place_output(graph, node, i, value, id);
        if (outputs) outputs[i] = weft__graph_value(graph, id);
    }
    list_state(graph, node);
    const scan_attr *scan = scan_of(op, attr_copy);
    if (scan) atomic_fetch_add(&scan->body->references, 1);
    return weft__graph_value(graph, first);
}
