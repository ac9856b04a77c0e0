/* Tensors of ONNX files as weft's: dtypes, and contents inside the file or beside it. */
#ifndef WEFT_ONNX_TENSOR_H
#define WEFT_ONNX_TENSOR_H

#include <weft/graph.h>

#include "base/arena.h"

#include "onnx.pb-c.h"

/* Contents that are known during the import, contiguous. */
typedef struct onnx_tensor {
    weft_dtype dtype;
    weft_shape shape;
    const void *data;
} onnx_tensor;

/* Element i as a double. */
static inline double onnx_tensor_element(const onnx_tensor *tensor, int64_t i)
{
    const weft_tensor dense =
        weft_tensor_dense((void *)(uintptr_t)tensor->data, tensor->dtype, tensor->shape);
    return weft_tensor_element(&dense, i);
}

/* ONNX's element types. Columns: name, number, bytes, weft's dtype (WEFT_DTYPES: none). */
#define ONNX_TYPES(X)                                                                              \
    X(FLOAT, 1, 4, WEFT_F32)                                                                       \
    X(UINT8, 2, 1, WEFT_I32)                                                                       \
    X(INT8, 3, 1, WEFT_I32)                                                                        \
    X(UINT16, 4, 2, WEFT_I32)                                                                      \
    X(INT16, 5, 2, WEFT_I32)                                                                       \
    X(INT32, 6, 4, WEFT_I32)                                                                       \
    X(INT64, 7, 8, WEFT_I32)                                                                       \
    X(STRING, 8, 0, WEFT_DTYPES)                                                                   \
    X(BOOL, 9, 1, WEFT_BOOL)                                                                       \
    X(FLOAT16, 10, 2, WEFT_F32)                                                                    \
    X(DOUBLE, 11, 8, WEFT_F64)                                                                     \
    X(UINT32, 12, 4, WEFT_I32)                                                                     \
    X(UINT64, 13, 8, WEFT_I32)                                                                     \
    X(COMPLEX64, 14, 8, WEFT_DTYPES)                                                               \
    X(COMPLEX128, 15, 16, WEFT_DTYPES)                                                             \
    X(BFLOAT16, 16, 2, WEFT_F32)

enum onnx_type {
    ONNX_UNTYPED,
#define ONNX_TYPE_ENUM(name, number, bytes, dtype) ONNX_##name = number,
    ONNX_TYPES(ONNX_TYPE_ENUM)
#undef ONNX_TYPE_ENUM
};

const char *onnx_type_name(int type); /* "int64"; "?" if unknown */
/* Sets *dtype to weft's; fails with WEFT_BAD_DTYPE if there is none. */
weft_status onnx_type_dtype(int type, const char *where, weft_dtype *dtype, weft_error *error);

/* Files beside the model, for tensors whose contents are in one. */
typedef struct onnx_files {
    const char *folder;
    struct mapped_file *first;
} onnx_files;
void files_close(onnx_files *files);
size_t files_bytes(const onnx_files *files);
/* The path of a mapped file in the folder; NULL past the last one. */
const char *files_location(const onnx_files *files, size_t index);

/* Reads dtype and shape of a tensor. */
weft_status onnx_tensor_type(const WeftOnnx__TensorProto *proto, const char *where,
                             onnx_tensor *tensor, weft_error *error);
/* Reads its contents too. They lie in the message, in a mapped file or, converted, in `memory`. */
weft_status onnx_tensor_read(const WeftOnnx__TensorProto *proto, const char *where, arena *memory,
                             onnx_files *files, onnx_tensor *tensor, weft_error *error);
/* Maps the bytes that a tensor has in a file beside the model, which must be `bytes` long. */
weft_status files_map(onnx_files *files, const WeftOnnx__TensorProto *proto, const char *where,
                      size_t bytes, const void **data, weft_error *error);

/* A text of a message, which may be absent. */
static inline const char *onnx_text(const char *text)
{
    return text ? text : "";
}

#endif
