/* Converts tensors of ONNX files: dtypes, and contents inside the file or in external data. */
#ifndef WEFT_ONNX_TENSOR_H
#define WEFT_ONNX_TENSOR_H

#include <weft/graph.h>

#include "base/arena.h"
#include "base/name_table.h"

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

/* ONNX's element types. Columns: name, number, bits, weft's dtype (WEFT_DTYPES: none), and the
 * smallest and the largest integer of the type that weft has; 0 and 0 for all others. */
#define ONNX_TYPES(X)                                                                              \
    X(FLOAT, 1, 32, WEFT_F32, 0, 0)                                                                \
    X(UINT8, 2, 8, WEFT_I32, 0, UINT8_MAX)                                                         \
    X(INT8, 3, 8, WEFT_I32, INT8_MIN, INT8_MAX)                                                    \
    X(UINT16, 4, 16, WEFT_I32, 0, UINT16_MAX)                                                      \
    X(INT16, 5, 16, WEFT_I32, INT16_MIN, INT16_MAX)                                                \
    X(INT32, 6, 32, WEFT_I32, INT32_MIN, INT32_MAX)                                                \
    X(INT64, 7, 64, WEFT_I32, INT32_MIN, INT32_MAX)                                                \
    X(STRING, 8, 0, WEFT_I32, 0, 0)                                                                \
    X(BOOL, 9, 8, WEFT_BOOL, 0, 1)                                                                 \
    X(FLOAT16, 10, 16, WEFT_F32, 0, 0)                                                             \
    X(DOUBLE, 11, 64, WEFT_F64, 0, 0)                                                              \
    X(UINT32, 12, 32, WEFT_I32, 0, INT32_MAX)                                                      \
    X(UINT64, 13, 64, WEFT_I32, 0, INT32_MAX)                                                      \
    X(COMPLEX64, 14, 64, WEFT_DTYPES, 0, 0)                                                        \
    X(COMPLEX128, 15, 128, WEFT_DTYPES, 0, 0)                                                      \
    X(BFLOAT16, 16, 16, WEFT_F32, 0, 0)                                                            \
    X(FLOAT8E4M3FN, 17, 8, WEFT_F32, 0, 0)                                                         \
    X(FLOAT8E4M3FNUZ, 18, 8, WEFT_F32, 0, 0)                                                       \
    X(FLOAT8E5M2, 19, 8, WEFT_F32, 0, 0)                                                           \
    X(FLOAT8E5M2FNUZ, 20, 8, WEFT_F32, 0, 0)                                                       \
    X(UINT4, 21, 4, WEFT_I32, 0, 15)                                                               \
    X(INT4, 22, 4, WEFT_I32, -8, 7)                                                                \
    X(FLOAT4E2M1, 23, 4, WEFT_F32, 0, 0)                                                           \
    X(FLOAT8E8M0, 24, 8, WEFT_F32, 0, 0)                                                           \
    X(UINT2, 25, 2, WEFT_I32, 0, 3)                                                                \
    X(INT2, 26, 2, WEFT_I32, -2, 1)

enum onnx_type {
    ONNX_UNTYPED,
#define ONNX_TYPE_ENUM(name, number, bits, dtype, low, high) ONNX_##name = number,
    ONNX_TYPES(ONNX_TYPE_ENUM)
#undef ONNX_TYPE_ENUM
};

const char *weft__onnx_type_name(int type); /* "int64"; "?" if unknown */
size_t weft__onnx_type_bits(int type);      /* of an element; 0 if unknown */
/* The bounds of an integer type; false for a type of floats. */
bool weft__onnx_type_bounds(int type, double *low, double *high);
/* Sets *dtype to weft's; fails with WEFT_BAD_DTYPE if there is none. weft__onnx_value_dtype also
 * accepts strings: i32, the dtype of their numbers. */
weft_status weft__onnx_type_dtype(int type, const char *where, weft_dtype *dtype,
                                  weft_error *error);
weft_status weft__onnx_value_dtype(int type, const char *where, weft_dtype *dtype,
                                   weft_error *error);

/* A float of at most 8 bits: a sign, unless it is E8M0; exponent; mantissa. Its numbers are exact in
 * f32. */
typedef struct onnx_minifloat {
    int type;
    int exponent_bits, mantissa_bits, bias;
    int max_code;  /* of the largest number; larger ones are infinite, as the next may be, or NaN */
    bool has_sign; /* E8M0 has neither a sign nor a zero */
    bool infinite;
    bool negative_zero; /* else its code is the only NaN */
    bool has_nan;
} onnx_minifloat;
/* That of a type; NULL if the type is none. */
const onnx_minifloat *weft__onnx_minifloat(int type);
/* The number of a code. */
double weft__onnx_minifloat_decode(const onnx_minifloat *m, int code);

/* The texts of a model. A string is its number in this table, and "" is number 0. */
typedef struct onnx_texts {
    arena *memory;
    name_table numbers;
    const char **texts;
    size_t n, capacity;
} onnx_texts;
/* The number of a text, which is copied if it is new; -1 if out of memory, or if it has a NUL. */
int32_t weft__texts_number(onnx_texts *t, const char *text, size_t bytes);
const char *weft__texts_at(const onnx_texts *t, int64_t number); /* NULL: there is none */

/* What the contents of tensors refer to: external data files, and texts. */
typedef struct onnx_files {
    const char *folder;
    struct mapped_file *first;
    onnx_texts *texts; /* NULL: strings are not read */
} onnx_files;
void weft__files_close(onnx_files *files);
size_t weft__files_bytes(const onnx_files *files);
/* The path of a mapped file in the folder; NULL past the last one. */
const char *weft__files_location(const onnx_files *files, size_t index);

/* Reads dtype and shape of a tensor. */
weft_status weft__onnx_tensor_type(const WeftOnnx__TensorProto *proto, const char *where,
                                   onnx_tensor *tensor, weft_error *error);
/* Reads its contents too. They lie in the message, in a mapped file or, converted, in `memory`. */
weft_status weft__onnx_tensor_read(const WeftOnnx__TensorProto *proto, const char *where,
                                   arena *memory, onnx_files *files, onnx_tensor *tensor,
                                   weft_error *error);
/* Maps the bytes that a tensor has in an external data file, which must be `bytes` long. */
weft_status weft__files_map(onnx_files *files, const WeftOnnx__TensorProto *proto,
                            const char *where, size_t bytes, const void **data, weft_error *error);

/* A text of a message, which may be absent. */
static inline const char *onnx_text(const char *text)
{
    return text ? text : "";
}

#endif
