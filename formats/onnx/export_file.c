/* Writes a record as an ONNX file. Messages are packed straight into the file: the contents of
 * parameters are not copied. O(bytes of the file). */
#include "onnx/export.h"

#include <weft/onnx.h>
#include <weft/version.h>

#include "base/file.h"
#include "base/platform.h"

#include "onnx.pb-c.h"

#include <errno.h>
#include <string.h>

/* A message of protobuf has less than 2 GiB; this many bytes of contents leave room for the rest.
 */
#define MAX_CONTENTS ((uint64_t)1900 << 20)
/* Tensors in the external data file begin at multiples of this. */
#define ALIGNMENT 64

enum { INT_ATTRIBUTE = 2, INTS_ATTRIBUTE = 7, FLOAT_ATTRIBUTE = 1, STRING_ATTRIBUTE = 3 };
enum { TENSOR_ATTRIBUTE = 4, EXTERNAL = 1 };

typedef struct saving {
    const char *path;
    const weft_graph *graph;
    const weft_params *params;
    export_record record;
    export_names names;
    weft_operand *outputs; /* [n_outputs] */
    size_t n_outputs;
    bool external;
    uint64_t offset; /* of the next tensor in the external data file */
    weft_error *error;
} saving;

/* Memory of the record; the sticky error when it is out. */
static void *room(saving *s, size_t bytes)
{
    void *memory = weft__arena_alloc(&s->record.memory, bytes + 1);
    if (!memory) weft_error_set(s->error, WEFT_NO_MEMORY, s->path, "no memory for its messages");
    return memory;
}

static bool failed(const saving *s)
{
    return s->error->status != WEFT_OK;
}

/* A message in the arena, initialised; NULL if out of memory. */
#define MESSAGE(s, type, name)                                                                     \
    type *name = room(s, sizeof *name);                                                            \
    if (!name) return NULL;

/* Protobuf-c takes texts that are not const, but does not change them. */
static char *text(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

/* ---- Tensors ---- */

static WeftOnnx__TensorProto *make_tensor(saving *s, int type, weft_shape shape, const void *data,
                                          size_t bytes)
{
    MESSAGE(s, WeftOnnx__TensorProto, t)
    weft_onnx__tensor_proto__init(t);
    t->has_data_type = true;
    t->data_type = type;
    t->n_dims = (size_t)shape.rank;
    t->dims = room(s, (size_t)shape.rank * sizeof *t->dims);
    if (!t->dims) return NULL;
    for (int i = 0; i < shape.rank; i++) t->dims[i] = shape.dim[i];
    t->has_raw_data = true;
    t->raw_data.len = bytes;
    t->raw_data.data = (uint8_t *)(uintptr_t)data;
    return t;
}

static bool add_entry(saving *s, WeftOnnx__TensorProto *t, const char *key, const char *value)
{
    WeftOnnx__StringStringEntryProto *entry = room(s, sizeof *entry);
    if (!entry) return false;
    weft_onnx__string_string_entry_proto__init(entry);
    entry->key = text(key);
    entry->value = weft__arena_text(&s->record.memory, value);
    t->external_data[t->n_external_data++] = entry;
    return entry->value != NULL;
}

/* Moves the contents of a tensor to the external data file. */
static bool place_outside(saving *s, WeftOnnx__TensorProto *t)
{
    char location[FILE_PATH_BYTES + 8], number[24];
    snprintf(location, sizeof location, "%.*s.data", FILE_PATH_BYTES, weft__os_name(s->path));
    t->external_data = room(s, 3 * sizeof *t->external_data);
    if (!t->external_data || !add_entry(s, t, "location", location)) return false;
    snprintf(number, sizeof number, "%llu", (unsigned long long)s->offset);
    if (!add_entry(s, t, "offset", number)) return false;
    snprintf(number, sizeof number, "%zu", t->raw_data.len);
    if (!add_entry(s, t, "length", number)) return false;
    s->offset = (s->offset + t->raw_data.len + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    t->has_raw_data = false;
    t->has_data_location = true;
    t->data_location = EXTERNAL;
    return true;
}

/* The store's tensor of a state. */
static bool find_state(saving *s, weft_value v, weft_tensor *tensor)
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

static WeftOnnx__TensorProto *make_initializer(saving *s, weft_value v)
{
    weft_tensor tensor;
    if (!find_state(s, v, &tensor)) return NULL;
    WeftOnnx__TensorProto *t =
        make_tensor(s, (int)weft_export_type(tensor.dtype), tensor.shape, tensor.data,
                    weft_tensor_bytes(tensor.dtype, tensor.shape));
    if (t) t->name = text(weft_name_of(s->graph, v));
    return t && (!s->external || place_outside(s, t)) ? t : NULL;
}

/* ---- Inputs and outputs ---- */

static WeftOnnx__TensorShapeProto *make_shape(saving *s, weft_shape shape)
{
    MESSAGE(s, WeftOnnx__TensorShapeProto, proto)
    weft_onnx__tensor_shape_proto__init(proto);
    proto->dim = room(s, (size_t)shape.rank * sizeof *proto->dim);
    if (!proto->dim) return NULL;
    for (int i = 0; i < shape.rank; i++) {
        WeftOnnx__TensorShapeProto__Dimension *d = room(s, sizeof *d);
        if (!d) return NULL;
        weft_onnx__tensor_shape_proto__dimension__init(d);
        d->has_dim_value = true;
        d->dim_value = shape.dim[i];
        proto->dim[proto->n_dim++] = d;
    }
    return proto;
}

static WeftOnnx__ValueInfoProto *make_value(saving *s, const char *name, weft_value v)
{
    MESSAGE(s, WeftOnnx__ValueInfoProto, info)
    MESSAGE(s, WeftOnnx__TypeProto, type)
    MESSAGE(s, WeftOnnx__TypeProto__Tensor, tensor)
    weft_onnx__value_info_proto__init(info);
    weft_onnx__type_proto__init(type);
    weft_onnx__type_proto__tensor__init(tensor);
    info->name = text(name);
    info->type = type;
    type->tensor_type = tensor;
    tensor->has_elem_type = true;
    tensor->elem_type = (int)weft_export_type(weft_dtype_of(s->graph, v));
    tensor->shape = make_shape(s, weft_shape_of(s->graph, v));
    return tensor->shape ? info : NULL;
}

/* ---- Nodes ---- */

static WeftOnnx__AttributeProto *make_attribute(saving *s, const weft_onnx_attr *a)
{
    MESSAGE(s, WeftOnnx__AttributeProto, proto)
    weft_onnx__attribute_proto__init(proto);
    proto->name = text(a->name);
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

static WeftOnnx__NodeProto *make_node(saving *s, const export_node *node, const char *name)
{
    MESSAGE(s, WeftOnnx__NodeProto, proto)
    weft_onnx__node_proto__init(proto);
    proto->op_type = text(node->type);
    proto->name = text(name);
    proto->doc_string = text(node->note);
    proto->input = room(s, node->n_in * sizeof *proto->input);
    proto->output = room(s, node->n_out * sizeof *proto->output);
    proto->attribute = room(s, node->n_attrs * sizeof *proto->attribute);
    if (!proto->input || !proto->output || !proto->attribute) return NULL;
    for (size_t i = 0; i < node->n_in; i++)
        proto->input[proto->n_input++] =
            text(node->in[i].id ? s->names.operand[node->in[i].id] : "");
    for (size_t k = 0; k < node->n_out; k++)
        proto->output[proto->n_output++] = text(s->names.operand[node->first_out.id + k]);
    for (size_t i = 0; i < node->n_attrs; i++) {
        proto->attribute[i] = make_attribute(s, &node->attrs[i]);
        if (!proto->attribute[i]) return NULL;
        proto->n_attribute++;
    }
    return proto;
}

/* A constant of the graph is a node, so that an import does not take it for a parameter. */
static WeftOnnx__NodeProto *make_constant(saving *s, const export_constant *c)
{
    const char *name = s->names.operand[c->operand.id];
    MESSAGE(s, WeftOnnx__NodeProto, proto)
    MESSAGE(s, WeftOnnx__AttributeProto, value)
    weft_onnx__node_proto__init(proto);
    weft_onnx__attribute_proto__init(value);
    proto->op_type = text("Constant");
    proto->name = text(name);
    proto->output = room(s, sizeof *proto->output);
    proto->attribute = room(s, sizeof *proto->attribute);
    if (!proto->output || !proto->attribute) return NULL;
    proto->output[proto->n_output++] = text(name);
    proto->attribute[proto->n_attribute++] = value;
    value->name = text("value");
    value->has_type = true;
    value->type = TENSOR_ATTRIBUTE;
    value->t = make_tensor(s, (int)c->type, c->shape, c->data, c->bytes);
    return value->t ? proto : NULL;
}

/* ---- The model ---- */

static bool add_leaf(saving *s, WeftOnnx__GraphProto *g, const export_operand *operand)
{
    const weft_value v = weft_value_from_id(s->graph, operand->value);
    const weft_node_info node = weft_graph_node(s->graph, weft_producer_of(s->graph, v));
    if (node.op == &weft_op_state) {
        g->initializer[g->n_initializer] = make_initializer(s, v);
        return g->initializer[g->n_initializer++] != NULL;
    }
    g->input[g->n_input] = make_value(s, weft_name_of(s->graph, v), v);
    return g->input[g->n_input++] != NULL;
}

static bool fill_graph(saving *s, WeftOnnx__GraphProto *g, const weft_value *outputs)
{
    const export_record *r = &s->record;
    g->node = room(s, (r->n_constants + r->n_nodes) * sizeof *g->node);
    g->input = room(s, r->n_operands * sizeof *g->input);
    g->initializer = room(s, r->n_operands * sizeof *g->initializer);
    g->output = room(s, s->n_outputs * sizeof *g->output);
    bool good = g->node && g->input && g->initializer && g->output;
    for (size_t i = 1; good && i < r->n_operands; i++)
        if (r->operands[i].kind == EXPORT_LEAF) good = add_leaf(s, g, &r->operands[i]);
    for (size_t i = 0; good && i < r->n_constants; i++)
        good = (g->node[g->n_node++] = make_constant(s, &r->constants[i])) != NULL;
    for (size_t i = 0; good && i < r->n_nodes; i++)
        good = (g->node[g->n_node++] = make_node(s, &r->nodes[i], s->names.node[i])) != NULL;
    for (size_t i = 0; good && i < s->n_outputs; i++) {
        const char *name = s->names.operand[s->outputs[i].id];
        good = (g->output[g->n_output++] = make_value(s, name, outputs[i])) != NULL;
    }
    return good;
}

/* Bytes of all initializers and constants. */
static uint64_t content_bytes(const saving *s, uint64_t *constants)
{
    uint64_t states = 0;
    *constants = 0;
    for (size_t i = 0; i < s->record.n_constants; i++) *constants += s->record.constants[i].bytes;
    for (size_t i = 1; i < s->record.n_operands; i++) {
        if (s->record.operands[i].kind != EXPORT_LEAF) continue;
        const weft_value v = weft_value_from_id(s->graph, s->record.operands[i].value);
        if (weft_graph_node(s->graph, weft_producer_of(s->graph, v)).op == &weft_op_state)
            states += weft_tensor_bytes(weft_dtype_of(s->graph, v), weft_shape_of(s->graph, v));
    }
    return states;
}

/* ---- Files ---- */

typedef struct file_buffer {
    ProtobufCBuffer base;
    file_writer file;
} file_buffer;

static void append(ProtobufCBuffer *buffer, size_t bytes, const uint8_t *data)
{
    weft__file_write(&((file_buffer *)(void *)buffer)->file, data, bytes);
}

static weft_status io_error(saving *s, const char *path)
{
    return weft_error_set(s->error, WEFT_IO, path, "cannot be written: %s",
                          weft__file_error(errno));
}

/* Packed messages come in pieces of a few bytes, which are gathered here. */
typedef struct piece_buffer {
    file_buffer to;
    size_t n;
    uint8_t bytes[1 << 16];
} piece_buffer;

static void flush(piece_buffer *b)
{
    append(&b->to.base, b->n, b->bytes);
    b->n = 0;
}

static void gather(ProtobufCBuffer *buffer, size_t bytes, const uint8_t *data)
{
    piece_buffer *b = (piece_buffer *)(void *)buffer;
    if (bytes > sizeof b->bytes - b->n) flush(b);
    if (bytes > sizeof b->bytes) {
        append(buffer, bytes, data);
    } else if (bytes) {
        memcpy(b->bytes + b->n, data, bytes);
        b->n += bytes;
    }
}

static weft_status write_model(saving *s, const WeftOnnx__ModelProto *model)
{
    piece_buffer *b = room(s, sizeof *b);
    if (!b) return s->error->status;
    b->to.base.append = gather;
    if (!weft__file_begin(&b->to.file, s->path)) return io_error(s, s->path);
    weft_onnx__model_proto__pack_to_buffer(model, &b->to.base);
    flush(b);
    return weft__file_commit(&b->to.file) ? WEFT_OK : io_error(s, s->path);
}

/* The contents of the initializers, at their offsets. */
static weft_status write_data(saving *s, const WeftOnnx__GraphProto *g)
{
    static const char zeros[ALIGNMENT];
    char path[FILE_PATH_BYTES + 8];
    file_writer w;
    snprintf(path, sizeof path, "%.*s.data", FILE_PATH_BYTES, s->path);
    if (!weft__file_begin(&w, path)) return io_error(s, path);
    for (size_t i = 0; i < g->n_initializer; i++) {
        const ProtobufCBinaryData *data = &g->initializer[i]->raw_data;
        weft__file_write(&w, data->data, data->len);
        if (data->len % ALIGNMENT) weft__file_write(&w, zeros, ALIGNMENT - data->len % ALIGNMENT);
    }
    return weft__file_commit(&w) ? WEFT_OK : io_error(s, path);
}

static weft_status write_files(saving *s, const weft_value *outputs)
{
    WeftOnnx__ModelProto model;
    WeftOnnx__GraphProto graph;
    WeftOnnx__OperatorSetIdProto opset, *opsets[1] = {&opset};
    weft_onnx__model_proto__init(&model);
    weft_onnx__graph_proto__init(&graph);
    weft_onnx__operator_set_id_proto__init(&opset);
    model.has_ir_version = opset.has_version = true;
    model.ir_version = weft__export_ir_version(s->record.opset);
    opset.domain = text("");
    opset.version = s->record.opset;
    model.producer_name = text("weft");
    model.producer_version = text(WEFT_VERSION);
    model.n_opset_import = 1;
    model.opset_import = opsets;
    model.graph = &graph;
    graph.name = text("weft");
    if (!fill_graph(s, &graph, outputs)) return s->error->status;
    if (s->external && write_data(s, &graph) != WEFT_OK) return s->error->status;
    return write_model(s, &model);
}

/* ---- The function ---- */

static weft_status check(const char *path, const weft_graph *graph, const weft_value *outputs,
                         size_t n_outputs, int opset, weft_error *error)
{
    const char *name = "weft_onnx_save";
    if (!path || !graph || !outputs || !n_outputs)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, name,
                              "the path or the graph is NULL, or there are no outputs");
    if (weft_graph_status(graph) != WEFT_OK) return weft_error_copy(error, weft_graph_error(graph));
    if (opset < EXPORT_MIN_OPSET || opset > EXPORT_MAX_OPSET)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, name, "opset is %d, expected %d to %d",
                              opset, EXPORT_MIN_OPSET, EXPORT_MAX_OPSET);
    for (size_t i = 0; i < n_outputs; i++)
        if (!weft_is_value(outputs[i]) ||
            weft_value_from_id(graph, outputs[i].id).graph != outputs[i].graph)
            return weft_error_set(error, WEFT_BAD_ARGUMENT, name,
                                  "output %zu is not a value of the graph", i);
    return WEFT_OK;
}

weft_status weft_onnx_save(const weft_graph *graph, const weft_value *outputs, size_t n_outputs,
                           const weft_params *params, const char *path,
                           const weft_onnx_save_options *options, weft_error *error)
{
    weft_error local;
    const weft_onnx_save_options defaults = {0}, *o = options ? options : &defaults;
    const int opset = o->opset ? o->opset : EXPORT_MIN_OPSET;
    uint64_t constants;
    if (!error) error = &local;
    memset(error, 0, sizeof *error);
    if (check(path, graph, outputs, n_outputs, opset, error) != WEFT_OK) return error->status;
    saving s = {.path = path, .graph = graph, .params = params, .n_outputs = n_outputs};
    s.error = error;
    if (weft__export_graph(&s.record, graph, outputs, n_outputs, opset, MAX_CONTENTS, error) ==
        WEFT_OK)
        s.outputs = room(&s, n_outputs * sizeof *s.outputs);
    if (s.outputs && weft__export_name(&s.record, outputs, n_outputs, o->output_names, s.outputs,
                                       &s.names) == WEFT_OK) {
        const uint64_t states = content_bytes(&s, &constants);
        s.external = o->external || states + constants > MAX_CONTENTS;
        if (constants > MAX_CONTENTS)
            weft_error_set(error, WEFT_TOO_LARGE, path,
                           "has %llu bytes of constants, expected %llu",
                           (unsigned long long)constants, (unsigned long long)MAX_CONTENTS);
        else
            write_files(&s, outputs);
    }
    weft__export_free(&s.record);
    return error->status;
}
