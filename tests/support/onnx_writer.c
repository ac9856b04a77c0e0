/* See onnx_writer.h. */
#include "onnx_writer.h"

#include <weft/autograd.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Protobuf-c takes texts and lists that are not const. */
static char *text(arena *memory, const char *from)
{
    return weft__arena_text(memory, from);
}

written_graph *write_graph(arena *memory)
{
    written_graph *g = weft__arena_alloc(memory, sizeof *g);
    weft_onnx__graph_proto__init(&g->proto);
    g->proto.node = g->nodes;
    g->proto.input = g->inputs;
    g->proto.output = g->outputs;
    g->proto.initializer = g->initializers;
    return g;
}

static WeftOnnx__TensorShapeProto *shape_proto(arena *memory, weft_shape shape)
{
    WeftOnnx__TensorShapeProto *s = weft__arena_alloc(memory, sizeof *s);
    weft_onnx__tensor_shape_proto__init(s);
    s->dim = weft__arena_alloc(memory, WEFT_MAX_RANK * sizeof *s->dim);
    for (; s->n_dim < (size_t)shape.rank; s->n_dim++) {
        WeftOnnx__TensorShapeProto__Dimension *d = weft__arena_alloc(memory, sizeof *d);
        weft_onnx__tensor_shape_proto__dimension__init(d);
        if (shape.dim[s->n_dim] < 0) d->dim_param = text(memory, "N");
        d->has_dim_value = shape.dim[s->n_dim] >= 0;
        d->dim_value = shape.dim[s->n_dim];
        s->dim[s->n_dim] = d;
    }
    return s;
}

void write_input(arena *memory, written_graph *g, const char *name, int type, weft_shape shape)
{
    WeftOnnx__ValueInfoProto *v = weft__arena_alloc(memory, sizeof *v);
    weft_onnx__value_info_proto__init(v);
    v->name = text(memory, name);
    v->type = weft__arena_alloc(memory, sizeof *v->type);
    weft_onnx__type_proto__init(v->type);
    v->type->tensor_type = weft__arena_alloc(memory, sizeof *v->type->tensor_type);
    weft_onnx__type_proto__tensor__init(v->type->tensor_type);
    v->type->tensor_type->has_elem_type = true;
    v->type->tensor_type->elem_type = type;
    v->type->tensor_type->shape = shape_proto(memory, shape);
    if (g->proto.n_input < WRITER_LIST) g->inputs[g->proto.n_input++] = v;
}

void write_output(arena *memory, written_graph *g, const char *name)
{
    WeftOnnx__ValueInfoProto *v = weft__arena_alloc(memory, sizeof *v);
    weft_onnx__value_info_proto__init(v);
    v->name = text(memory, name);
    if (g->proto.n_output < WRITER_LIST) g->outputs[g->proto.n_output++] = v;
}

WeftOnnx__TensorProto *write_initializer(arena *memory, written_graph *g, const char *name,
                                         int type, weft_shape shape)
{
    WeftOnnx__TensorProto *t = weft__arena_alloc(memory, sizeof *t);
    weft_onnx__tensor_proto__init(t);
    t->name = text(memory, name);
    t->has_data_type = true;
    t->data_type = type;
    t->dims = weft__arena_alloc(memory, sizeof shape.dim);
    memcpy(t->dims, shape.dim, sizeof shape.dim);
    t->n_dims = (size_t)shape.rank;
    if (g->proto.n_initializer < WRITER_LIST) g->initializers[g->proto.n_initializer++] = t;
    return t;
}

void write_external(arena *p, WeftOnnx__TensorProto *t, const char *location, const char *offset)
{
    const char *const keys[] = {"location", "offset"}, *const values[] = {location, offset};
    t->has_data_location = true;
    t->data_location = 1;
    t->external_data = weft__arena_alloc(p, 2 * sizeof *t->external_data);
    for (t->n_external_data = 0; t->n_external_data < 2; t->n_external_data++) {
        WeftOnnx__StringStringEntryProto *e = weft__arena_alloc(p, sizeof *e);
        weft_onnx__string_string_entry_proto__init(e);
        e->key = weft__arena_text(p, keys[t->n_external_data]);
        e->value = weft__arena_text(p, values[t->n_external_data]);
        t->external_data[t->n_external_data] = e;
    }
}

void write_floats(arena *memory, written_graph *g, const char *name, weft_shape shape,
                  const float *data)
{
    const size_t n = (size_t)weft_shape_numel(shape);
    WeftOnnx__TensorProto *t = write_initializer(memory, g, name, ONNX_FLOAT, shape);
    t->has_raw_data = true;
    t->raw_data.len = n * sizeof *data;
    t->raw_data.data = weft__arena_alloc(memory, t->raw_data.len);
    memcpy(t->raw_data.data, data, t->raw_data.len);
}

void write_random(arena *memory, written_graph *g, const char *name, weft_shape shape, double limit,
                  uint64_t seed)
{
    const size_t n = (size_t)weft_shape_numel(shape);
    float *data = weft__arena_alloc(memory, n * sizeof *data);
    const weft_sample_input like = {WEFT_F32, shape, -1, 1, false};
    weft_sample_input_fill(&like, WEFT_F32, seed, data);
    for (size_t i = 0; i < n; i++) data[i] *= (float)limit;
    write_floats(memory, g, name, shape, data);
}

void write_bytes(arena *memory, written_graph *g, const char *name, int type, weft_shape shape,
                 const void *data)
{
    WeftOnnx__TensorProto *t = write_initializer(memory, g, name, type, shape);
    t->has_raw_data = true;
    t->raw_data.len = (size_t)weft_shape_numel(shape) * (type == ONNX_UINT16 ? 2 : 1);
    t->raw_data.data = weft__arena_alloc(memory, t->raw_data.len);
    memcpy(t->raw_data.data, data, t->raw_data.len);
}

void write_longs(arena *memory, written_graph *g, const char *name, weft_shape shape,
                 const int64_t *data)
{
    const size_t n = (size_t)weft_shape_numel(shape);
    WeftOnnx__TensorProto *t = write_initializer(memory, g, name, ONNX_INT64, shape);
    t->n_int64_data = n;
    t->int64_data = weft__arena_alloc(memory, n * sizeof *data);
    if (n) memcpy(t->int64_data, data, n * sizeof *data);
}

/* The words of a list. */
static char **words(arena *memory, const char *list, size_t *n)
{
    char **all = weft__arena_alloc(memory, WRITER_LIST * sizeof *all), *rest = NULL;
    for (char *word = strtok_r(text(memory, list), " ", &rest); word && *n < WRITER_LIST;
         word = strtok_r(NULL, " ", &rest))
        all[(*n)++] = strcmp(word, "-") ? word : word + 1;
    return all;
}

WeftOnnx__NodeProto *write_node(arena *memory, written_graph *g, const char *op, const char *inputs,
                                const char *outputs)
{
    WeftOnnx__NodeProto *node = weft__arena_alloc(memory, sizeof *node);
    weft_onnx__node_proto__init(node);
    node->op_type = text(memory, op);
    node->input = words(memory, inputs, &node->n_input);
    node->output = words(memory, outputs, &node->n_output);
    node->attribute = weft__arena_alloc(memory, WRITER_LIST * sizeof *node->attribute);
    if (g->proto.n_node < WRITER_LIST) g->nodes[g->proto.n_node++] = node;
    return node;
}

WeftOnnx__AttributeProto *write_attribute(arena *memory, WeftOnnx__NodeProto *node,
                                          const char *name)
{
    WeftOnnx__AttributeProto *a = weft__arena_alloc(memory, sizeof *a);
    weft_onnx__attribute_proto__init(a);
    a->name = text(memory, name);
    node->attribute[node->n_attribute++] = a;
    return a;
}

void write_int(arena *memory, WeftOnnx__NodeProto *node, const char *name, int64_t value)
{
    WeftOnnx__AttributeProto *a = write_attribute(memory, node, name);
    a->has_i = true;
    a->i = value;
}

void write_float(arena *memory, WeftOnnx__NodeProto *node, const char *name, double value)
{
    WeftOnnx__AttributeProto *a = write_attribute(memory, node, name);
    a->has_f = true;
    a->f = (float)value;
}

void write_ints(arena *memory, WeftOnnx__NodeProto *node, const char *name, const int64_t *values,
                size_t n)
{
    WeftOnnx__AttributeProto *a = write_attribute(memory, node, name);
    a->n_ints = n;
    a->ints = weft__arena_alloc(memory, n * sizeof *a->ints);
    memcpy(a->ints, values, n * sizeof *a->ints);
}

void write_text(arena *memory, WeftOnnx__NodeProto *node, const char *name, const char *value)
{
    WeftOnnx__AttributeProto *a = write_attribute(memory, node, name);
    a->has_s = true;
    a->s = (ProtobufCBinaryData){strlen(value), (uint8_t *)text(memory, value)};
}

void write_metadata(arena *memory, WeftOnnx__NodeProto *node, const char *key, const char *value)
{
    WeftOnnx__StringStringEntryProto *e = weft__arena_alloc(memory, sizeof *e);
    weft_onnx__string_string_entry_proto__init(e);
    e->key = text(memory, key);
    e->value = text(memory, value);
    if (!node->n_metadata_props)
        node->metadata_props =
            weft__arena_alloc(memory, WRITER_LIST * sizeof *node->metadata_props);
    if (node->n_metadata_props < WRITER_LIST) node->metadata_props[node->n_metadata_props++] = e;
}

WeftOnnx__FunctionProto *write_function(arena *memory, written_graph *g, const char *name,
                                        const char *inputs, const char *outputs,
                                        written_graph *body)
{
    WeftOnnx__FunctionProto *f = g->function = weft__arena_alloc(memory, sizeof *f);
    weft_onnx__function_proto__init(f);
    f->name = text(memory, name);
    f->domain = text(memory, "own");
    f->input = words(memory, inputs, &f->n_input);
    f->output = words(memory, outputs, &f->n_output);
    f->node = body->proto.node;
    f->n_node = body->proto.n_node;
    return f;
}

uint8_t *write_model(arena *memory, written_graph *g, int64_t opset, size_t *bytes)
{
    WeftOnnx__ModelProto model = WEFT_ONNX__MODEL_PROTO__INIT;
    WeftOnnx__OperatorSetIdProto set = WEFT_ONNX__OPERATOR_SET_ID_PROTO__INIT, *sets = &set;
    set.has_version = true;
    set.version = opset;
    model.graph = &g->proto;
    model.opset_import = &sets;
    model.n_opset_import = 1;
    model.functions = &g->function;
    model.n_functions = g->function != NULL;
    if (g->function) {
        g->function->opset_import = &sets;
        g->function->n_opset_import = 1;
    }
    *bytes = weft_onnx__model_proto__get_packed_size(&model);
    uint8_t *data = weft__arena_alloc(memory, *bytes);
    weft_onnx__model_proto__pack(&model, data);
    return data;
}

bool write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    const bool good = file && fwrite(data, 1, bytes, file) == bytes;
    return file && fclose(file) == 0 && good;
}

weft_onnx *load_written(arena *memory, written_graph *g, int64_t opset,
                        const weft_onnx_options *options, weft_error *error)
{
    size_t bytes;
    const uint8_t *data = write_model(memory, g, opset, &bytes);
    return weft_onnx_load_from_memory((weft_memory_file){data, bytes, "written"}, options, error);
}

weft_onnx *must_load_written(arena *memory, written_graph *g, int64_t opset,
                             const weft_onnx_options *options)
{
    weft_error error = {0};
    weft_onnx *m = load_written(memory, g, opset, options, &error);
    if (!m) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    return m;
}
