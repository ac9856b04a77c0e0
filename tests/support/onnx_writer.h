/* Writes small ONNX models for tests. Nothing is checked: a test may write what is wrong. */
#ifndef WEFT_TESTS_ONNX_WRITER_H
#define WEFT_TESTS_ONNX_WRITER_H

#include "onnx/tensor.h"

#include <weft/onnx.h>

#define WRITER_LIST 64

/* A graph, or a body. Lists end silently when they are full. */
typedef struct written_graph {
    WeftOnnx__GraphProto proto;
    WeftOnnx__NodeProto *nodes[WRITER_LIST];
    WeftOnnx__ValueInfoProto *inputs[WRITER_LIST], *outputs[WRITER_LIST];
    WeftOnnx__TensorProto *initializers[WRITER_LIST];
    WeftOnnx__FunctionProto *function; /* of the model, or NULL */
} written_graph;

/* All memory is the memory's. */
written_graph *write_graph(arena *memory);
/* A value of the given type; a dimension of -1 is open and called "N". */
void write_input(arena *memory, written_graph *g, const char *name, int type, weft_shape shape);
void write_output(arena *memory, written_graph *g, const char *name);
/* An initializer without contents. */
WeftOnnx__TensorProto *write_initializer(arena *memory, written_graph *g, const char *name,
                                         int type, weft_shape shape);
/* Moves its contents to a file next to the model, from a byte on. */
void write_external(arena *memory, WeftOnnx__TensorProto *tensor, const char *location,
                    const char *offset);
void write_floats(arena *memory, written_graph *g, const char *name, weft_shape shape,
                  const float *data);
/* Random numbers in [-limit, limit) that the seed determines. */
void write_random(arena *memory, written_graph *g, const char *name, weft_shape shape, double limit,
                  uint64_t seed);
/* Of ONNX_UINT8 or ONNX_INT8. */
void write_bytes(arena *memory, written_graph *g, const char *name, int type, weft_shape shape,
                 const void *data);
void write_longs(arena *memory, written_graph *g, const char *name, weft_shape shape,
                 const int64_t *data);
/* A node of inputs and outputs that are separated by spaces; "-" is an absent input. */
WeftOnnx__NodeProto *write_node(arena *memory, written_graph *g, const char *op, const char *inputs,
                                const char *outputs);
WeftOnnx__AttributeProto *write_attribute(arena *memory, WeftOnnx__NodeProto *node,
                                          const char *name);
void write_int(arena *memory, WeftOnnx__NodeProto *node, const char *name, int64_t value);
void write_float(arena *memory, WeftOnnx__NodeProto *node, const char *name, double value);
void write_ints(arena *memory, WeftOnnx__NodeProto *node, const char *name, const int64_t *values,
                size_t n);
void write_text(arena *memory, WeftOnnx__NodeProto *node, const char *name, const char *value);
/* Adds metadata. */
void write_metadata(arena *memory, WeftOnnx__NodeProto *node, const char *key, const char *value);
/* Makes the nodes of a body the function of the model, of the domain "own". */
WeftOnnx__FunctionProto *write_function(arena *memory, written_graph *g, const char *name,
                                        const char *inputs, const char *outputs,
                                        written_graph *body);
/* The model as bytes of the memory. */
uint8_t *write_model(arena *memory, written_graph *g, int64_t opset, size_t *bytes);
bool write_file(const char *path, const void *data, size_t bytes);
/* Loads the model from memory. NULL after an error. */
weft_onnx *load_written(arena *memory, written_graph *g, int64_t opset,
                        const weft_onnx_options *options, weft_error *error);
/* The same for a model that must load; prints the error. */
weft_onnx *must_load_written(arena *memory, written_graph *g, int64_t opset,
                             const weft_onnx_options *options);

#endif
