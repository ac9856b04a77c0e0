/* Writes a record as an ONNX file. Messages are packed straight into the file: the contents of
 * parameters are not copied. O(bytes of the file). */
#include "onnx/export_file.h"

#include <weft/onnx.h>
#include <weft/version.h>

#include "base/file.h"

#include <errno.h>
#include <string.h>

/* A message of protobuf has less than 2 GiB; this many bytes of contents leave room for the rest.
 */
#define MAX_CONTENTS ((uint64_t)1900 << 20)

/* Bytes of all initializers and constants. */
static uint64_t content_bytes(const export_saving *s, uint64_t *constants)
{
    uint64_t states = 0;
    *constants = 0;
    for (size_t i = 0; i < s->record.n_constants; i++) *constants += s->record.constants[i].bytes;
    for (size_t i = 1; i < s->record.n_operands; i++) {
        if (s->record.operands[i].kind != EXPORT_LEAF) continue;
        const weft_value v = weft_value_from_id(s->graph, s->record.operands[i].index);
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

static weft_status io_error(export_saving *s, const char *path)
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

static weft_status write_model(export_saving *s, const WeftOnnx__ModelProto *model)
{
    piece_buffer *b = weft__export_room(s, sizeof *b);
    if (!b) return s->error->status;
    b->to.base.append = gather;
    if (!weft__file_begin(&b->to.file, s->path)) return io_error(s, s->path);
    weft_onnx__model_proto__pack_to_buffer(model, &b->to.base);
    flush(b);
    return weft__file_commit(&b->to.file) ? WEFT_OK : io_error(s, s->path);
}

/* The contents of the initializers, at their offsets. */
static weft_status write_data(export_saving *s, const WeftOnnx__GraphProto *g)
{
    static const char zeros[EXPORT_ALIGNMENT];
    char path[FILE_PATH_BYTES + 8];
    file_writer w;
    snprintf(path, sizeof path, "%.*s.data", FILE_PATH_BYTES, s->path);
    if (!weft__file_begin(&w, path)) return io_error(s, path);
    for (size_t i = 0; i < g->n_initializer; i++) {
        const ProtobufCBinaryData *data = &g->initializer[i]->raw_data;
        weft__file_write(&w, data->data, data->len);
        if (data->len % EXPORT_ALIGNMENT)
            weft__file_write(&w, zeros, EXPORT_ALIGNMENT - data->len % EXPORT_ALIGNMENT);
    }
    return weft__file_commit(&w) ? WEFT_OK : io_error(s, path);
}

static weft_status write_files(export_saving *s, const weft_value *outputs)
{
    WeftOnnx__ModelProto model;
    WeftOnnx__GraphProto graph;
    WeftOnnx__OperatorSetIdProto opset, *opsets[1] = {&opset};
    weft_onnx__model_proto__init(&model);
    weft_onnx__graph_proto__init(&graph);
    weft_onnx__operator_set_id_proto__init(&opset);
    model.has_ir_version = opset.has_version = true;
    model.ir_version = weft__export_ir_version(s->record.opset);
    opset.domain = export_text("");
    opset.version = s->record.opset;
    model.producer_name = export_text("weft");
    model.producer_version = export_text(WEFT_VERSION);
    model.n_opset_import = 1;
    model.opset_import = opsets;
    model.graph = &graph;
    graph.name = export_text("weft");
    if (!weft__export_fill_graph(s, &graph, outputs)) return s->error->status;
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
    export_saving s = {.path = path, .graph = graph, .params = params, .n_outputs = n_outputs};
    s.error = error;
    if (weft__export_graph(&s.record, graph, outputs, n_outputs, opset, MAX_CONTENTS, error) ==
        WEFT_OK)
        s.outputs = weft__export_room(&s, n_outputs * sizeof *s.outputs);
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
