/* The messages of an ONNX file: tensors, nodes, and the graphs that contain them. O(nodes). */
#include "onnx/export_file.h"

#include "base/file.h"
#include "base/platform.h"

#include <string.h>

enum { INT_ATTRIBUTE = 2, INTS_ATTRIBUTE = 7, FLOAT_ATTRIBUTE = 1, STRING_ATTRIBUTE = 3 };
enum { TENSOR_ATTRIBUTE = 4, GRAPH_ATTRIBUTE = 5, EXTERNAL = 1 };

void *weft__export_room(export_saving *s, size_t bytes)
{
    void *memory = weft__arena_alloc(&s->record.memory, bytes + 1);
    if (!memory) weft_error_set(s->error, WEFT_NO_MEMORY, s->path, "no memory for its messages");
    return memory;
}

static bool failed(const export_saving *s)
{
    return s->error->status != WEFT_OK;
}

/* A message in the arena, initialised; NULL if out of memory. */
#define MESSAGE(s, type, name)                                                                     \
    type *name = weft__export_room(s, sizeof *name);                                               \
    if (!name) return NULL;

/* ---- Tensors ---- */

static WeftOnnx__TensorProto *make_tensor(export_saving *s, int type, weft_shape shape,
                                          const void *data, size_t bytes)
{
    MESSAGE(s, WeftOnnx__TensorProto, t)
    weft_onnx__tensor_proto__init(t);
    t->has_data_type = true;
    t->data_type = type;
    t->n_dims = (size_t)shape.rank;
    t->dims = weft__export_room(s, (size_t)shape.rank * sizeof *t->dims);
    if (!t->dims) return NULL;
    for (int i = 0; i < shape.rank; i++) t->dims[i] = shape.dim[i];
    t->has_raw_data = true;
    t->raw_data.len = bytes;
    t->raw_data.data = (uint8_t *)(uintptr_t)data;
    return t;
}

static bool add_entry(export_saving *s, WeftOnnx__TensorProto *t, const char *key,
                      const char *value)
{
    WeftOnnx__StringStringEntryProto *entry = weft__export_room(s, sizeof *entry);
    if (!entry) return false;
    weft_onnx__string_string_entry_proto__init(entry);
    entry->key = export_text(key);
    entry->value = weft__arena_text(&s->record.memory, value);
    t->external_data[t->n_external_data++] = entry;
    return entry->value != NULL;
}

/* Moves the contents of a tensor to the external data file. */
static bool place_outside(export_saving *s, WeftOnnx__TensorProto *t)
{
    char location[FILE_PATH_BYTES + 8], number[24];
    snprintf(location, sizeof location, "%.*s.data", FILE_PATH_BYTES, weft__os_name(s->path));
    t->external_data = weft__export_room(s, 3 * sizeof *t->external_data);
    if (!t->external_data || !add_entry(s, t, "location", location)) return false;
    snprintf(number, sizeof number, "%llu", (unsigned long long)s->offset);
    if (!add_entry(s, t, "offset", number)) return false;
    snprintf(number, sizeof number, "%zu", t->raw_data.len);
    if (!add_entry(s, t, "length", number)) return false;
    s->offset =
        (s->offset + t->raw_data.len + EXPORT_ALIGNMENT - 1) / EXPORT_ALIGNMENT * EXPORT_ALIGNMENT;
    t->has_raw_data = false;
    t->has_data_location = true;
    t->data_location = EXTERNAL;
    return true;
}

/* The store's tensor of a state. */
static bool find_state(export_saving *s, weft_value v, weft_tensor *tensor)
{
    const char *name = weft_name_of(s->graph, v);
    if (weft_part_of(s->graph, v).whole)
        weft_error_set(s->error, WEFT_BAD_ARGUMENT, name,
                       "is a part of a parameter: join the parts to export the model");
    else if (!s->params || !weft_params_find(s->params, name, tensor))
        weft_error_set(s->error, WEFT_NOT_FOUND, name, "is not in the parameter store");
    else if (tensor->dtype != weft_dtype_of(s->graph, v) ||
             !weft_shape_equal(tensor->shape, weft_shape_of(s->graph, v)))
        weft_error_set(s->error, WEFT_BAD_SHAPE, name,
                       "has a different dtype or shape in the parameter store");
    return !failed(s);
}

static WeftOnnx__TensorProto *make_initializer(export_saving *s, weft_value v)
{
    weft_tensor tensor;
    if (!find_state(s, v, &tensor)) return NULL;
    WeftOnnx__TensorProto *t =
        make_tensor(s, (int)weft_export_type(tensor.dtype), tensor.shape, tensor.data,
                    weft_tensor_bytes(tensor.dtype, tensor.shape));
    if (t) t->name = export_text(weft_name_of(s->graph, v));
    return t && (!s->external || place_outside(s, t)) ? t : NULL;
}

/* ---- Inputs and outputs ---- */

static WeftOnnx__TensorShapeProto *make_shape(export_saving *s, weft_shape shape)
{
    MESSAGE(s, WeftOnnx__TensorShapeProto, proto)
    weft_onnx__tensor_shape_proto__init(proto);
    proto->dim = weft__export_room(s, (size_t)shape.rank * sizeof *proto->dim);
    if (!proto->dim) return NULL;
    for (int i = 0; i < shape.rank; i++) {
        WeftOnnx__TensorShapeProto__Dimension *d = weft__export_room(s, sizeof *d);
        if (!d) return NULL;
        weft_onnx__tensor_shape_proto__dimension__init(d);
        d->has_dim_value = true;
        d->dim_value = shape.dim[i];
        proto->dim[proto->n_dim++] = d;
    }
    return proto;
}

static WeftOnnx__ValueInfoProto *make_value(export_saving *s, const char *name, weft_onnx_type type,
                                            weft_shape shape)
{
    MESSAGE(s, WeftOnnx__ValueInfoProto, info)
    MESSAGE(s, WeftOnnx__TypeProto, proto)
    MESSAGE(s, WeftOnnx__TypeProto__Tensor, tensor)
    weft_onnx__value_info_proto__init(info);
    weft_onnx__type_proto__init(proto);
    weft_onnx__type_proto__tensor__init(tensor);
    info->name = export_text(name);
    info->type = proto;
    proto->tensor_type = tensor;
    tensor->has_elem_type = true;
    tensor->elem_type = (int)type;
    tensor->shape = make_shape(s, shape);
    return tensor->shape ? info : NULL;
}

/* ---- Nodes ---- */

static WeftOnnx__AttributeProto *make_attribute(export_saving *s, const weft_onnx_attr *a)
{
    MESSAGE(s, WeftOnnx__AttributeProto, proto)
    weft_onnx__attribute_proto__init(proto);
    proto->name = export_text(a->name);
    proto->has_type = true;
    switch (a->kind) {
    case WEFT_ONNX_ATTR_FLOAT:
        proto->type = FLOAT_ATTRIBUTE;
        proto->has_f = true;
        proto->f = a->number;
        break;
    case WEFT_ONNX_ATTR_INT:
        proto->type = INT_ATTRIBUTE;
        proto->has_i = true;
        proto->i = a->integer;
        break;
    case WEFT_ONNX_ATTR_INTS:
        proto->type = INTS_ATTRIBUTE;
        proto->n_ints = a->n_integers;
        proto->ints = (int64_t *)(uintptr_t)a->integers;
        break;
    default:
        proto->type = STRING_ATTRIBUTE;
        proto->has_s = true;
        proto->s.len = strlen(a->text);
        proto->s.data = (uint8_t *)(uintptr_t)a->text;
    }
    return proto;
}

static WeftOnnx__GraphProto *make_body(export_saving *s, uint32_t index, const char *name);

/* Adds the bodies of a node as attributes. */
static bool add_bodies(export_saving *s, const export_node *node, WeftOnnx__NodeProto *proto)
{
    static const char *const branches[2] = {"then_branch", "else_branch"};
    for (int k = 0; k < 2 && node->bodies[k]; k++) {
        WeftOnnx__AttributeProto *a = weft__export_room(s, sizeof *a);
        if (!a) return false;
        const char *name = node->bodies[1] ? branches[k] : "body";
        weft_onnx__attribute_proto__init(a);
        a->name = export_text(name);
        a->has_type = true;
        a->type = GRAPH_ATTRIBUTE;
        a->g = make_body(s, node->bodies[k], name);
        if (!a->g) return false;
        proto->attribute[proto->n_attribute++] = a;
    }
    return true;
}

static WeftOnnx__NodeProto *make_node(export_saving *s, const export_node *node, const char *name)
{
    MESSAGE(s, WeftOnnx__NodeProto, proto)
    weft_onnx__node_proto__init(proto);
    proto->op_type = export_text(node->type);
    proto->name = export_text(name);
    proto->doc_string = export_text(node->note);
    proto->input = weft__export_room(s, node->n_in * sizeof *proto->input);
    proto->output = weft__export_room(s, node->n_out * sizeof *proto->output);
    proto->attribute = weft__export_room(s, (node->n_attrs + 2) * sizeof *proto->attribute);
    if (!proto->input || !proto->output || !proto->attribute) return NULL;
    for (size_t i = 0; i < node->n_in; i++)
        proto->input[proto->n_input++] =
            export_text(node->in[i].id ? s->names.operand[node->in[i].id] : "");
    for (size_t k = 0; k < node->n_out; k++)
        proto->output[proto->n_output++] = export_text(s->names.operand[node->first_out.id + k]);
    for (size_t i = 0; i < node->n_attrs; i++) {
        proto->attribute[i] = make_attribute(s, &node->attrs[i]);
        if (!proto->attribute[i]) return NULL;
        proto->n_attribute++;
    }
    return add_bodies(s, node, proto) ? proto : NULL;
}

/* A constant of the graph is a node, so that an import does not take it for a parameter. */
static WeftOnnx__NodeProto *make_constant(export_saving *s, const export_constant *c)
{
    const char *name = s->names.operand[c->operand.id];
    MESSAGE(s, WeftOnnx__NodeProto, proto)
    MESSAGE(s, WeftOnnx__AttributeProto, value)
    weft_onnx__node_proto__init(proto);
    weft_onnx__attribute_proto__init(value);
    proto->op_type = export_text("Constant");
    proto->name = export_text(name);
    proto->output = weft__export_room(s, sizeof *proto->output);
    proto->attribute = weft__export_room(s, sizeof *proto->attribute);
    if (!proto->output || !proto->attribute) return NULL;
    proto->output[proto->n_output++] = export_text(name);
    proto->attribute[proto->n_attribute++] = value;
    value->name = export_text("value");
    value->has_type = true;
    value->type = TENSOR_ATTRIBUTE;
    value->t = make_tensor(s, (int)c->type, c->shape, c->data, c->bytes);
    return value->t ? proto : NULL;
}

/* ---- Graphs ---- */

static bool add_leaf(export_saving *s, WeftOnnx__GraphProto *g, const export_operand *operand)
{
    const weft_value v = weft_value_from_id(s->graph, operand->index);
    const weft_node_info node = weft_graph_node(s->graph, weft_producer_of(s->graph, v));
    if (node.op == &weft_op_state) {
        g->initializer[g->n_initializer] = make_initializer(s, v);
        return g->initializer[g->n_initializer++] != NULL;
    }
    g->input[g->n_input] =
        make_value(s, weft_name_of(s->graph, v), weft_export_type(weft_dtype_of(s->graph, v)),
                   weft_shape_of(s->graph, v));
    return g->input[g->n_input++] != NULL;
}

/* Adds those of nodes[first..end) that lie in a body. */
static bool add_nodes(export_saving *s, WeftOnnx__GraphProto *g, uint32_t body, size_t first,
                      size_t end)
{
    const export_node *nodes = s->record.nodes;
    for (size_t i = first; i < end; i++) {
        if (nodes[i].body != body) continue;
        g->node[g->n_node] = make_node(s, &nodes[i], s->names.node[i]);
        if (!g->node[g->n_node++]) return false;
    }
    return true;
}

/* The messages of inputs or outputs of a body; NULL after a failure. */
static WeftOnnx__ValueInfoProto **make_values(export_saving *s, const export_tensor *list, size_t n)
{
    WeftOnnx__ValueInfoProto **values = weft__export_room(s, n * sizeof *values);
    for (size_t i = 0; values && i < n; i++) {
        const char *name = s->names.operand[list[i].operand.id];
        values[i] = make_value(s, name, list[i].type, list[i].shape);
        if (!values[i]) return NULL;
    }
    return values;
}

static WeftOnnx__GraphProto *make_body(export_saving *s, uint32_t index, const char *name)
{
    const export_body *b = &s->record.bodies[index];
    MESSAGE(s, WeftOnnx__GraphProto, g)
    weft_onnx__graph_proto__init(g);
    g->name = export_text(name);
    g->node = weft__export_room(s, (b->end - b->first) * sizeof *g->node);
    g->input = make_values(s, b->in, b->n_in);
    g->output = make_values(s, b->out, b->n_out);
    if (!g->node || !g->input || !g->output) return NULL;
    g->n_input = b->n_in;
    g->n_output = b->n_out;
    return add_nodes(s, g, index, b->first, b->end) ? g : NULL;
}

bool weft__export_fill_graph(export_saving *s, WeftOnnx__GraphProto *g, const weft_value *outputs)
{
    const export_record *r = &s->record;
    g->node = weft__export_room(s, (r->n_constants + r->n_nodes) * sizeof *g->node);
    g->input = weft__export_room(s, r->n_operands * sizeof *g->input);
    g->initializer = weft__export_room(s, r->n_operands * sizeof *g->initializer);
    g->output = weft__export_room(s, s->n_outputs * sizeof *g->output);
    bool good = g->node && g->input && g->initializer && g->output;
    for (size_t i = 1; good && i < r->n_operands; i++)
        if (r->operands[i].kind == EXPORT_LEAF) good = add_leaf(s, g, &r->operands[i]);
    for (size_t i = 0; good && i < r->n_constants; i++)
        good = (g->node[g->n_node++] = make_constant(s, &r->constants[i])) != NULL;
    good = good && add_nodes(s, g, 0, 0, r->n_nodes);
    for (size_t i = 0; good && i < s->n_outputs; i++) {
        const char *name = s->names.operand[s->outputs[i].id];
        good = (g->output[g->n_output++] =
                    make_value(s, name, weft_export_type(weft_dtype_of(s->graph, outputs[i])),
                               weft_shape_of(s->graph, outputs[i]))) != NULL;
    }
    return good;
}
