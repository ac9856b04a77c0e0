/* Reads a case of ONNX's test data: a folder with model.onnx and test_data_set_*, as Debian's
 * libonnx-testdata and the Python package onnx have them.
 *
 * Some models need the contents of an input when their graph is built, such as the shape of a
 * Reshape. So a model that is refused is tried with its integer and bool inputs as constants, then
 * with all of them. */
#ifndef WEFT_TESTS_ONNX_CASE_H
#define WEFT_TESTS_ONNX_CASE_H

#include <weft/onnx.h>
#include <weft/session.h>

#include "onnx/tensor.h"

#define ONNX_CASE_DATA    "/usr/share/libonnx-testdata/data"
#define ONNX_CASE_TENSORS 64
#define ONNX_CASE_PATH    1024

typedef struct onnx_case {
    char folder[ONNX_CASE_PATH];
    WeftOnnx__ModelProto *proto; /* for the names of inputs; NULL: the file is not a model */
    WeftOnnx__TensorProto *messages[2 * ONNX_CASE_TENSORS];
    size_t n_messages;
    const char *names[ONNX_CASE_TENSORS]; /* of the inputs */
    onnx_tensor inputs[ONNX_CASE_TENSORS], outputs[ONNX_CASE_TENSORS];
    const char **input_texts[ONNX_CASE_TENSORS]; /* of strings, else NULL */
    const char **output_texts[ONNX_CASE_TENSORS];
    size_t n_inputs, n_outputs;
    arena memory;
    weft_error error;
    int constants; /* 0: none, 1: integers and bools, 2: all */
    weft_onnx *model;
} onnx_case;

/* Reads the model's file and its data of number `set` into *c, whose bytes are all zero; false if there
 * are no data of this number. c->error is set if they cannot be read. The caller frees *c in any case. */
bool onnx_case_read(onnx_case *c, const char *folder, int set);
/* Loads the model, with as few constants as it needs; false: c->error is set. */
bool onnx_case_load(onnx_case *c);
/* Whether input i is a constant of the model, which has no value in the graph then. */
bool onnx_case_is_constant(const onnx_case *c, size_t i);
/* Feeds the inputs that are not constants; `inputs` are those of weft_onnx_build. */
weft_status onnx_case_feed(onnx_case *c, weft_session *session, const weft_value *inputs);
void onnx_case_free(onnx_case *c);
/* Calls `each` for all cases in ROOT/NAME, by name; returns how many there are. */
int onnx_case_each(const char *root, const char *name,
                   void (*each)(void *context, const char *path), void *context);

static inline size_t onnx_case_bytes(const onnx_tensor *t)
{
    return weft_tensor_bytes(t->dtype, t->shape);
}

/* Copies a tensor, which need not be contiguous. */
void onnx_case_copy(char *to, const weft_tensor *from);

#endif
