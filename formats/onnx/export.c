/* Records a graph as nodes of ONNX: see export.h. O(nodes), and the bytes of constants. */
#include "onnx/export.h"

#include <weft/ops.h>
#include <weft/session.h>

#include <stdlib.h>
#include <string.h>

/* The most expansions within each other. */
#define MAX_DEPTH 16

/* A graph whose nodes are recorded: the exported one, or an expansion. */
typedef struct frame {
    const weft_graph *graph;
    weft_operand *of_value;
    bool *needed; /* by value */
} frame;

/* ---- Errors and memory ---- */

static weft_status no_memory(export_record *r)
{
    return weft_error_set(r->error, WEFT_NO_MEMORY, "export", "no memory for the nodes");
}

static bool failed(const export_record *r)
{
    return r->error->status != WEFT_OK;
}

/* The node's name, scope and op, for errors. */
static void set_error(export_record *r, weft_status status, const char *reason)
{
    char where[sizeof r->error->where];
    const weft_node_info node = weft_graph_node(r->graph, r->source);
    const weft_value out = weft_value_from_id(r->graph, node.first_out);
    const char *name = weft_name_of(r->graph, out);
    if (name[0])
        snprintf(where, sizeof where, "%s (%s)", name, node.op->name);
    else
        snprintf(where, sizeof where, "%s%s%s", node.scope, node.scope[0] ? "/" : "",
                 node.op->name);
    weft_error_set(r->error, status, where, "cannot be exported to ONNX: %s", reason);
}

/* Makes room for one more element of an array in the record's memory. */
static void *grown(export_record *r, void *array, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity) return array;
    const size_t more = *capacity ? 2 * *capacity : 64;
    void *larger = weft__arena_alloc(&r->memory, more * size);
    if (!larger) {
        no_memory(r);
        return NULL;
    }
    if (n) memcpy(larger, array, n * size);
    *capacity = more;
    return larger;
}

static void *copied(export_record *r, const void *data, size_t bytes)
{
    void *copy = weft__arena_alloc(&r->memory, bytes + 1);
    if (!copy)
        no_memory(r);
    else if (bytes)
        memcpy(copy, data, bytes);
    return copy;
}

static const char *copied_text(export_record *r, const char *text)
{
    return text ? copied(r, text, strlen(text) + 1) : NULL;
}

/* ---- Operands, nodes and constants ---- */

static weft_operand add_operand(export_record *r, export_operand operand)
{
    export_operand *all =
        grown(r, r->operands, r->n_operands, &r->operand_capacity, sizeof *r->operands);
    if (!all) return WEFT_NO_OPERAND;
    r->operands = all;
    r->operands[r->n_operands] = operand;
    return (weft_operand){(uint32_t)r->n_operands++};
}

weft_operand weft__export_add_node(export_record *r, const char *type, const weft_operand *in,
                                   size_t n_in, size_t n_out)
{
    if (failed(r)) return WEFT_NO_OPERAND;
    export_node *all = grown(r, r->nodes, r->n_nodes, &r->node_capacity, sizeof *r->nodes);
    if (!all) return WEFT_NO_OPERAND;
    r->nodes = all;
    export_node node = {.n_in = n_in, .n_out = n_out, .source = r->source};
    node.type = copied_text(r, type);
    node.in = copied(r, in, n_in * sizeof *in);
    if (failed(r)) return WEFT_NO_OPERAND;
    for (size_t k = 0; k < n_out; k++) {
        const weft_operand out =
            add_operand(r, (export_operand){EXPORT_OUTPUT, (uint32_t)r->n_nodes, (uint32_t)k, 0});
        if (k == 0) node.first_out = out;
    }
    if (failed(r)) return WEFT_NO_OPERAND;
    r->nodes[r->n_nodes++] = node;
    return node.first_out;
}

static weft_operand receive_node(weft_export *e, const char *type, const weft_operand *in,
                                 size_t n_in, size_t n_out)
{
    return weft__export_add_node(e->context, type, in, n_in, n_out);
}

static void receive_attribute(weft_export *e, const weft_onnx_attr *attr)
{
    export_record *r = e->context;
    if (failed(r) || !r->n_nodes) return;
    export_node *node = &r->nodes[r->n_nodes - 1];
    weft_onnx_attr *more = weft__arena_alloc(&r->memory, (node->n_attrs + 1) * sizeof *more);
    if (!more) {
        no_memory(r);
        return;
    }
    if (node->n_attrs) memcpy(more, node->attrs, node->n_attrs * sizeof *more);
    weft_onnx_attr *a = &more[node->n_attrs];
    *a = *attr;
    a->name = copied_text(r, attr->name);
    a->text = copied_text(r, attr->text);
    a->integers = copied(r, attr->integers, attr->n_integers * sizeof *attr->integers);
    node->attrs = more;
    node->n_attrs++;
}

static void receive_failure(weft_export *e, const char *reason)
{
    set_error(e->context, WEFT_NO_KERNEL, reason);
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_constant(const export_constant *c)
{
    uint64_t hash = 0xcbf29ce484222325u ^ (uint64_t)c->type;
    hash = hash_bytes(hash, c->shape.dim, (size_t)c->shape.rank * sizeof *c->shape.dim);
    return hash_bytes(hash, c->data, c->bytes);
}

static bool grow_slots(export_record *r)
{
    if (4 * (r->n_constants + 1) <= 3 * r->n_slots) return true;
    const size_t n = r->n_slots ? 2 * r->n_slots : 64;
    uint32_t *slots = weft__arena_alloc(&r->memory, n * sizeof *slots);
    if (!slots) return no_memory(r), false;
    for (size_t k = 0; k < r->n_constants; k++) {
        size_t i = hash_constant(&r->constants[k]) & (n - 1);
        while (slots[i]) i = (i + 1) & (n - 1);
        slots[i] = (uint32_t)k + 1;
    }
    r->slots = slots;
    r->n_slots = n;
    return true;
}

static size_t type_bytes(weft_onnx_type type)
{
    return type == WEFT_ONNX_INT64 || type == WEFT_ONNX_DOUBLE ? 8 : type == WEFT_ONNX_BOOL ? 1 : 4;
}

/* Equal constants are one. */
static weft_operand add_constant(export_record *r, weft_onnx_type type, weft_shape shape,
                                 const void *data)
{
    if (failed(r) || !grow_slots(r)) return WEFT_NO_OPERAND;
    export_constant c = {type, shape, data, 0, WEFT_NO_OPERAND};
    c.bytes = (size_t)weft_shape_numel(shape) * type_bytes(type);
    size_t i = hash_constant(&c) & (r->n_slots - 1);
    for (; r->slots[i]; i = (i + 1) & (r->n_slots - 1)) {
        const export_constant *old = &r->constants[r->slots[i] - 1];
        if (old->type == type && weft_shape_equal(old->shape, shape) &&
            !memcmp(old->data, data, c.bytes))
            return old->operand;
    }
    export_constant *all =
        grown(r, r->constants, r->n_constants, &r->constant_capacity, sizeof *r->constants);
    c.data = all ? copied(r, data, c.bytes) : NULL;
    if (!c.data) return WEFT_NO_OPERAND;
    c.operand = add_operand(r, (export_operand){EXPORT_CONSTANT, (uint32_t)r->n_constants, 0, 0});
    r->constants = all;
    r->constants[r->n_constants++] = c;
    r->slots[i] = (uint32_t)r->n_constants;
    return c.operand;
}

static weft_operand receive_constant(weft_export *e, weft_onnx_type type, weft_shape shape,
                                     const void *data)
{
    return add_constant(e->context, type, shape, data);
}

static const weft_export_receiver receiver = {receive_node, receive_attribute, receive_constant,
                                              receive_failure};

/* ---- Nodes of the graph ---- */

static size_t value_count(const weft_graph *g)
{
    const size_t n = weft_graph_node_count(g);
    const weft_node_info last = weft_graph_node(g, n ? n - 1 : 0);
    return n ? last.first_out + last.n_out : 1;
}

/* Marks the values that the outputs need. False if out of memory. */
static bool open_frame(export_record *r, frame *f, const weft_graph *g, const weft_value *outputs,
                       size_t n_outputs)
{
    const size_t n = value_count(g);
    *f = (frame){.graph = g};
    f->of_value = weft__arena_alloc(&r->memory, n * sizeof *f->of_value);
    f->needed = weft__arena_alloc(&r->memory, n * sizeof *f->needed);
    if (!f->of_value || !f->needed) return no_memory(r), false;
    for (size_t i = 0; i < n_outputs; i++)
        if (weft_is_value(outputs[i])) f->needed[outputs[i].id] = true;
    for (size_t i = weft_graph_node_count(g); i-- > 0;) {
        const weft_node_info node = weft_graph_node(g, i);
        bool needed = false;
        for (size_t k = 0; k < node.n_out; k++) needed |= f->needed[node.first_out + k];
        for (size_t k = 0; needed && k < node.n_in; k++) f->needed[node.in[k]] = true;
    }
    return true;
}

static bool record_nodes(export_record *r, frame *f);

/* Records the expansion of a node as nodes of a graph of its own. */
static bool record_expansion(export_record *r, const weft_node_info *node, const weft_type *in_type,
                             weft_export *e)
{
    weft_graph *g = weft_graph_new();
    weft_value *in = weft__arena_alloc(&r->memory, (node->n_in + 1) * sizeof *in);
    weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}}, wanted[WEFT_MAX_OUTPUTS];
    frame f;
    char name[24];
    size_t n_wanted = 0;
    if (!g || !in) return weft_graph_free(g), no_memory(r), false;
    for (size_t i = 0; i < node->n_in; i++) {
        snprintf(name, sizeof name, "%zu", i);
        in[i] = weft_input(g, name, in_type[i].dtype, in_type[i].shape);
    }
    node->op->expand(&(weft_expand){g, node->attr, node->n_in, node->n_out, in, out});
    for (size_t k = 0; k < node->n_out; k++)
        if (e->wanted[k]) wanted[n_wanted++] = out[k];
    if (weft_graph_status(g) != WEFT_OK)
        set_error(r, weft_graph_status(g), weft_graph_error(g)->message);
    else if (++r->depth > MAX_DEPTH)
        set_error(r, WEFT_TOO_LARGE, "its expansions never end");
    else if (open_frame(r, &f, g, wanted, n_wanted)) {
        for (size_t i = 0; i < node->n_in; i++) f.of_value[in[i].id] = e->in[i];
        if (record_nodes(r, &f))
            for (size_t k = 0; k < node->n_out; k++)
                if (e->wanted[k]) e->out[k] = f.of_value[out[k].id];
    }
    r->depth--;
    weft_graph_free(g);
    return !failed(r);
}

/* Computes an output of a node without inputs. */
static weft_operand compute(export_record *r, const weft_graph *from, size_t index, size_t k)
{
    weft_session_options one = {.threads = 1};
    weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}};
    weft_operand operand = WEFT_NO_OPERAND;
    weft_tensor t;
    weft_graph *g = weft_graph_new();
    if (!g) return no_memory(r), operand;
    weft_graph_copy_node(g, from, index, NULL, out);
    const size_t bytes = weft_tensor_bytes(weft_dtype_of(g, out[k]), weft_shape_of(g, out[k]));
    if (bytes > r->max_bytes - r->computed) {
        set_error(r, WEFT_TOO_LARGE, "its contents are too large");
        return weft_graph_free(g), operand;
    }
    r->computed += bytes;
    weft_plan *plan = weft_plan_new(g, &out[k], 1, NULL, r->error);
    weft_session *s = plan ? weft_session_new(plan, NULL, &one, r->error) : NULL;
    if (s) weft_session_run(s, r->error);
    if (s && !failed(r) && weft_session_tensor(s, out[k], &t, NULL) == WEFT_OK)
        operand = add_constant(r, weft_export_type(t.dtype), t.shape, t.data);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    return operand;
}

/* Whether the op wrote its own nodes; an op that adds none is written as its expansion. */
static bool wrote_itself(const export_record *r, const weft_op *op, weft_export *e)
{
    const size_t before = r->n_nodes;
    if (!op->onnx) return false;
    op->onnx(e);
    bool some = failed(r) || r->n_nodes != before;
    for (size_t k = 0; k < e->n_out; k++) some |= e->out[k].id != 0;
    return some;
}

/* An operand for each wanted output of a node, in e->out. */
static bool record_op(export_record *r, const frame *f, size_t index, const weft_node_info *node,
                      weft_export *e)
{
    const weft_op *op = node->op;
    if (op->updates) {
        set_error(r, WEFT_NO_KERNEL, "it updates a state");
    } else if (!wrote_itself(r, op, e)) {
        if (op->expand)
            record_expansion(r, node, e->in_type, e);
        else if (!node->n_in && !op->random && !op->can_fail)
            for (size_t k = 0; k < node->n_out; k++)
                e->out[k] = e->wanted[k] ? compute(r, f->graph, index, k) : WEFT_NO_OPERAND;
        else
            set_error(r, WEFT_NO_KERNEL, "the op has no form in ONNX");
    }
    for (size_t k = 0; !failed(r) && k < node->n_out; k++)
        if (e->wanted[k] && !e->out[k].id)
            set_error(r, WEFT_NO_KERNEL, "one of its outputs has no form in ONNX");
    r->inexact |= e->inexact;
    r->noted |= e->note;
    return !failed(r);
}

static weft_operand record_leaf(export_record *r, const frame *f, size_t index,
                                const weft_node_info *node)
{
    if (node->op == &weft_op_constant) return compute(r, f->graph, index, 0);
    return add_operand(r, (export_operand){EXPORT_LEAF, node->first_out, 0, node->first_out});
}

static bool has_double(const weft_op *op)
{
    for (const weft_attr_field *field = op->attrs; field && field->name; field++)
        if (field->kind == WEFT_ATTR_DOUBLE) return true;
    return false;
}

static bool record_node(export_record *r, frame *f, size_t index)
{
    const weft_node_info node = weft_graph_node(f->graph, index);
    const bool top = f->graph == r->graph;
    const size_t first = r->n_nodes;
    weft_type *types = weft__arena_alloc(&r->memory, (node.n_in + node.n_out) * sizeof *types);
    weft_operand *in = weft__arena_alloc(&r->memory, (node.n_in + 1) * sizeof *in);
    if (!types || !in) return no_memory(r), false;
    for (size_t i = 0; i < node.n_in + node.n_out; i++) {
        const uint32_t id = i < node.n_in ? node.in[i] : node.first_out + (uint32_t)(i - node.n_in);
        const weft_value v = weft_value_from_id(f->graph, id);
        types[i] = (weft_type){weft_dtype_of(f->graph, v), weft_shape_of(f->graph, v)};
        if (i < node.n_in) in[i] = f->of_value[id];
    }
    weft_export e = {.receiver = &receiver, .context = r, .attr = node.attr, .opset = r->opset};
    e.n_in = node.n_in;
    e.n_out = node.n_out;
    e.in = in;
    e.in_type = types;
    e.out_type = types + node.n_in;
    e.wanted = f->needed + node.first_out;
    if (top) {
        r->source = index;
        r->inexact = r->noted = false;
    }
    if (!record_op(r, f, index, &node, &e)) return false;
    for (size_t k = 0; k < node.n_out; k++) {
        f->of_value[node.first_out + k] = e.out[k];
        export_operand *operand = &r->operands[e.out[k].id];
        if (top && e.wanted[k] && operand->kind == EXPORT_OUTPUT && !operand->value)
            operand->value = node.first_out + (uint32_t)k;
    }
    const size_t n = r->n_nodes - first;
    if (!top || r->inexact || n == 0 || (n == 1 && !has_double(node.op) && !r->noted)) return true;
    return weft__export_write_note(r, first, &node, in, e.wanted);
}

static bool record_nodes(export_record *r, frame *f)
{
    const size_t n = weft_graph_node_count(f->graph);
    for (size_t i = 0; i < n && !failed(r); i++) {
        const weft_node_info node = weft_graph_node(f->graph, i);
        const bool leaf =
            node.op == &weft_op_input || node.op == &weft_op_state || node.op == &weft_op_constant;
        bool needed = false;
        for (size_t k = 0; k < node.n_out; k++) needed |= f->needed[node.first_out + k];
        if (!needed || f->of_value[node.first_out].id) continue; /* or an expansion's input */
        if (f->graph == r->graph) r->source = i;
        if (leaf)
            f->of_value[node.first_out] = record_leaf(r, f, i, &node);
        else
            record_node(r, f, i);
    }
    return !failed(r);
}

/* ---- Graphs ---- */

int weft__export_ir_version(int opset)
{
    return opset < 19 ? 8 : opset < 21 ? 9 : opset < 23 ? 10 : 11;
}

weft_status weft__export_graph(export_record *r, const weft_graph *graph, const weft_value *outputs,
                               size_t n_outputs, int opset, size_t max_bytes, weft_error *error)
{
    frame f;
    *r = (export_record){.graph = graph, .opset = opset, .max_bytes = max_bytes, .error = error};
    add_operand(r, (export_operand){EXPORT_LEAF, 0, 0, 0});
    if (!failed(r) && open_frame(r, &f, graph, outputs, n_outputs) && record_nodes(r, &f)) {
        r->of_value = f.of_value;
        r->n_values = value_count(graph);
    }
    return error->status;
}

void weft__export_free(export_record *r)
{
    weft__arena_free(&r->memory);
    *r = (export_record){.graph = NULL};
}
