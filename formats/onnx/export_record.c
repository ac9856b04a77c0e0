/* What an export records: nodes of ONNX, their operands, constants and bodies. O(bytes recorded). */
#include "onnx/export.h"

#include <stdlib.h>
#include <string.h>

/* ---- Errors and memory ---- */

weft_status weft__export_no_memory(export_record *r)
{
    return weft_error_set(r->error, WEFT_NO_MEMORY, "export", "no memory for the nodes");
}

void weft__export_fail(export_record *r, weft_status status, const char *reason)
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
    weft_error_set(r->error, status, where, "cannot be exported to ONNX: %s%s%s",
                   r->inner ? r->inner : "", r->inner ? " in its body: " : "", reason);
}

/* Makes room for one more element of an array in the record's memory. */
static void *grown(export_record *r, void *array, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity) return array;
    const size_t more = *capacity ? 2 * *capacity : 64;
    void *larger = weft__arena_alloc(&r->memory, more * size);
    if (!larger) {
        weft__export_no_memory(r);
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
        weft__export_no_memory(r);
    else if (bytes)
        memcpy(copy, data, bytes);
    return copy;
}

static const char *copied_text(export_record *r, const char *text)
{
    return text ? copied(r, text, strlen(text) + 1) : NULL;
}

/* ---- Operands, nodes and constants ---- */

weft_operand weft__export_add_operand(export_record *r, export_operand operand)
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
    if (export_failed(r)) return WEFT_NO_OPERAND;
    export_node *all = grown(r, r->nodes, r->n_nodes, &r->node_capacity, sizeof *r->nodes);
    if (!all) return WEFT_NO_OPERAND;
    r->nodes = all;
    export_node node = {.n_in = n_in, .n_out = n_out, .body = r->body, .label = r->label};
    node.number = r->label ? r->label->n_nodes++ : 0;
    node.type = copied_text(r, type);
    node.in = copied(r, in, n_in * sizeof *in);
    if (export_failed(r)) return WEFT_NO_OPERAND;
    for (size_t k = 0; k < n_out; k++) {
        const weft_operand out = weft__export_add_operand(
            r, (export_operand){EXPORT_OUTPUT, (uint32_t)r->n_nodes, (uint32_t)k, false, NULL});
        if (k == 0) node.first_out = out;
    }
    if (export_failed(r)) return WEFT_NO_OPERAND;
    r->nodes[r->n_nodes++] = node;
    return node.first_out;
}

static weft_operand receive_node(weft_export *e, const char *type, const weft_operand *in,
                                 size_t n_in, size_t n_out)
{
    return weft__export_add_node(e->context, type, in, n_in, n_out);
}

static void add_attribute(export_record *r, const weft_onnx_attr *attr)
{
    if (export_failed(r) || !r->n_nodes) return;
    export_node *node = &r->nodes[r->n_nodes - 1];
    weft_onnx_attr *more = weft__arena_alloc(&r->memory, (node->n_attrs + 1) * sizeof *more);
    if (!more) {
        weft__export_no_memory(r);
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

static void receive_attribute(weft_export *e, const weft_onnx_attr *attr)
{
    add_attribute(e->context, attr);
}

void weft__export_add_int(export_record *r, const char *name, int64_t value)
{
    add_attribute(r, &(weft_onnx_attr){.name = name, .kind = WEFT_ONNX_ATTR_INT, .integer = value});
}

void weft__export_add_ints(export_record *r, const char *name, const int64_t *values, size_t n)
{
    add_attribute(
        r, &(weft_onnx_attr){
               .name = name, .kind = WEFT_ONNX_ATTR_INTS, .integers = values, .n_integers = n});
}

static void receive_failure(weft_export *e, const char *reason)
{
    weft__export_fail(e->context, WEFT_NO_KERNEL, reason);
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
    if (!slots) return weft__export_no_memory(r), false;
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

weft_operand weft__export_add_constant(export_record *r, weft_onnx_type type, weft_shape shape,
                                       const void *data)
{
    if (export_failed(r) || !grow_slots(r)) return WEFT_NO_OPERAND;
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
    c.operand = weft__export_add_operand(
        r, (export_operand){.kind = EXPORT_CONSTANT, .index = (uint32_t)r->n_constants});
    r->constants = all;
    r->constants[r->n_constants++] = c;
    r->slots[i] = (uint32_t)r->n_constants;
    return c.operand;
}

static weft_operand receive_constant(weft_export *e, weft_onnx_type type, weft_shape shape,
                                     const void *data)
{
    return weft__export_add_constant(e->context, type, shape, data);
}

const weft_export_receiver weft__export_receiver = {receive_node, receive_attribute,
                                                    receive_constant, receive_failure};

/* ---- Bodies ---- */

uint32_t weft__export_begin_body(export_record *r, size_t max_in, size_t max_out)
{
    if (export_failed(r)) return 0;
    export_body body = {.outer = r->body, .first = r->n_nodes};
    body.in = weft__arena_alloc(&r->memory, (max_in + 1) * sizeof *body.in);
    body.out = weft__arena_alloc(&r->memory, (max_out + 1) * sizeof *body.out);
    export_body *all = grown(r, r->bodies, r->n_bodies, &r->body_capacity, sizeof *r->bodies);
    if (!all) return 0;
    r->bodies = all;
    if (!body.in || !body.out) return weft__export_no_memory(r), 0;
    r->bodies[r->n_bodies] = body;
    r->body = (uint32_t)r->n_bodies++;
    return r->body;
}

weft_operand weft__export_body_in(export_record *r, weft_onnx_type type, weft_shape shape,
                                  const char *name)
{
    if (export_failed(r)) return WEFT_NO_OPERAND;
    export_body *body = &r->bodies[r->body];
    const weft_operand in = weft__export_add_operand(
        r, (export_operand){EXPORT_BODY_IN, r->body, 0, true, copied_text(r, name)});
    body->in[body->n_in++] = (export_tensor){type, shape, in};
    return in;
}

void weft__export_body_out(export_record *r, weft_onnx_type type, weft_shape shape,
                           weft_operand operand)
{
    if (export_failed(r)) return;
    const export_operand *o = &r->operands[operand.id];
    bool own = o->kind == EXPORT_OUTPUT && r->nodes[o->index].body == r->body;
    const export_body *body = &r->bodies[r->body];
    for (size_t i = 0; i < body->n_out; i++) own &= body->out[i].operand.id != operand.id;
    if (!own) operand = weft__export_add_node(r, "Identity", &operand, 1, 1);
    export_body *now = &r->bodies[r->body];
    now->out[now->n_out++] = (export_tensor){type, shape, operand};
}

void weft__export_end_body(export_record *r)
{
    export_body *body = &r->bodies[r->body];
    if (!r->body) return; /* it never began */
    body->end = r->n_nodes;
    r->body = body->outer;
}
