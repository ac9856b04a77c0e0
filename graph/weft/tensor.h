/* weft/tensor.h - dtypes, shapes and tensors: what graphs, stores and kernels share. O(rank) each.
 *
 * Strides and offsets count elements, sizes named `bytes` count bytes.
 */
#ifndef WEFT_TENSOR_H
#define WEFT_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WEFT_API          __attribute__((visibility("default")))
#define WEFT_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define WEFT_API
#define WEFT_PRINTF(f, a)
#endif

/* WEFT_LITERAL(weft_init){WEFT_INIT_CONSTANT, 1, 0} is a struct as an expression, with all fields
 * in order. WEFT_DEFAULTS(weft_plan_options) is a struct of zeros. */
#ifdef __cplusplus
#define WEFT_LITERAL(type)  type
#define WEFT_DEFAULTS(type) (type{})
#else
#define WEFT_LITERAL(type)  (type)
#define WEFT_DEFAULTS(type) ((type){0})
#endif

/* Columns: constant, name, bytes per element, name in safetensors files.
 *
 * bf16 is the upper half of an f32: its exponent, and 8 bits of precision. It is a dtype to store
 * numbers in: kernels compute in f32, and round to the nearest bf16, of two the even one. u8 holds
 * the bytes of quantised weights.
 *
 * A bool is a byte, 0 or 1. weft_feed, weft_constant_data and weft_params_load convert any other
 * byte to 1. A program that writes through a tensor's pointer must write 0 or 1. */
#define WEFT_DTYPE_MAP(X)                                                                          \
    X(F32, f32, 4, "F32")                                                                          \
    X(F64, f64, 8, "F64")                                                                          \
    X(I32, i32, 4, "I32")                                                                          \
    X(BOOL, bool, 1, "BOOL")                                                                       \
    X(BF16, bf16, 2, "BF16")                                                                       \
    X(U8, u8, 1, "U8")

typedef enum weft_dtype {
#define WEFT_DTYPE_ENUM(upper, lower, bytes, file) WEFT_##upper,
    WEFT_DTYPE_MAP(WEFT_DTYPE_ENUM)
#undef WEFT_DTYPE_ENUM
        WEFT_DTYPES
} weft_dtype;

WEFT_API const char *weft_dtype_name(weft_dtype dtype); /* "f32"; "?" if invalid */
WEFT_API size_t weft_dtype_bytes(weft_dtype dtype);     /* per element; 0 if invalid */
static inline bool weft_dtype_is_float(weft_dtype d)
{
    return d == WEFT_F32 || d == WEFT_F64;
}

#define WEFT_MAX_RANK 8

typedef struct weft_shape {
    int32_t rank; /* 0: a scalar */
    int64_t dim[WEFT_MAX_RANK];
} weft_shape;

/* WEFT_SHAPE(30, 200, 512) is a shape of rank 3; WEFT_SCALAR has rank 0. */
#ifdef __cplusplus
#define WEFT_SHAPE(...) weft_shape_from(__VA_ARGS__)
extern "C++" {
template <typename... Dim> inline weft_shape weft_shape_from(Dim... dim)
{
    static_assert(sizeof...(dim) <= WEFT_MAX_RANK, "a shape has at most 8 dimensions");
    return weft_shape{static_cast<int32_t>(sizeof...(dim)), {static_cast<int64_t>(dim)...}};
}
}
#else
#define WEFT_SHAPE(...)                                                                            \
    ((weft_shape){(int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#endif
#define WEFT_SCALAR (WEFT_LITERAL(weft_shape){0, {0}})

WEFT_API bool weft_shape_equal(weft_shape a, weft_shape b);
/* The number of elements; -1 if the rank or a dimension is invalid, or if the size in bytes could
 * overflow. All of weft checks products of dimensions here. */
WEFT_API int64_t weft_shape_numel(weft_shape shape);
/* Writes a shape as "[2, 3]" to `buffer`, truncated if it does not fit, and returns `buffer`. */
WEFT_API const char *weft_shape_text(weft_shape shape, char *buffer, size_t size);
/* Broadcasts two shapes as NumPy does; false if they are incompatible. */
WEFT_API bool weft_shape_broadcast(weft_shape a, weft_shape b, weft_shape *out);

/* A tensor in memory, as kernels, sessions and the parameter store use it. It does not own data. */
typedef struct weft_tensor {
    void *data; /* points to element [0, ..., 0] */
    weft_dtype dtype;
    weft_shape shape;
    int64_t stride[WEFT_MAX_RANK]; /* in elements: 0 repeats an element, < 0 runs backwards */
} weft_tensor;

/* A contiguous row-major tensor over `data`. */
WEFT_API weft_tensor weft_tensor_dense(void *data, weft_dtype dtype, weft_shape shape);
/* Element i of a contiguous tensor, in row-major order, as a double. */
WEFT_API double weft_tensor_element(const weft_tensor *tensor, int64_t i);
/* Bytes of a contiguous tensor; 0 if the dtype or the shape is invalid. */
WEFT_API size_t weft_tensor_bytes(weft_dtype dtype, weft_shape shape);

#ifdef __cplusplus
}
#endif
#endif
