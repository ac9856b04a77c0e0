/* Writing an ONNX file: what its messages and files share. */
#ifndef WEFT_ONNX_EXPORT_FILE_H
#define WEFT_ONNX_EXPORT_FILE_H

#include "onnx/export.h"

#include "onnx.pb-c.h"

/* Tensors in the external data file begin at multiples of this. */
#define EXPORT_ALIGNMENT 64

typedef struct export_saving {
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
} export_saving;

/* Memory of the record; the sticky error when it is out. (export_messages.c) */
void *weft__export_room(export_saving *s, size_t bytes);
/* Protobuf-c takes texts that are not const, but does not change them. */
static inline char *export_text(const char *constant)
{
    return (char *)(uintptr_t)constant;
}
/* Fills the message of the graph, which is initialised. False after a failure. (export_messages.c) */
bool weft__export_fill_graph(export_saving *s, WeftOnnx__GraphProto *g, const weft_value *outputs);

#endif
