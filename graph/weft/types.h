/* weft/types.h - the small types that everything shares: dtypes, shapes, tensors, values of graphs,
 * first contents of parameters, statuses and errors. Functions of shapes take O(rank).
 *
 * Strides and offsets count elements, sizes named `bytes` count bytes.
 */
#ifndef WEFT_TYPES_H
#define WEFT_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>

#ifdef __cplusplus
#include <initializer_list>
extern "C" {
#endif

#if defined(__MINGW32__) /* whose "printf" stands for the formats of Windows, not those of C */
#define WEFT_API
#define WEFT_PRINTF(f, a) __attribute__((format(gnu_printf, f, a)))
#elif defined(__GNUC__)
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
 * numbers in: kernels compute in f32, and round to the nearest bf16, ties to even. u8 holds
 * the bytes of quantised weights.
 *
 * A bool is a byte, 0 or 1. weft_session_feed, weft_constant and weft_params_load convert any other
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

/* ---- Values of graphs ------------------------------------------------------------------------ */

/* A value of a graph: the output of a node. Pass it by value. The tag of its graph lets other
 * graphs refuse it, even those created after its own was freed. Tags repeat after 2^32 graphs of a
 * process; each plan creates about five. */
typedef struct weft_value {
    uint32_t id;    /* 0: no value */
    uint32_t graph; /* the tag */
} weft_value;

#define WEFT_NO_VALUE (WEFT_LITERAL(weft_value){0, 0})
static inline bool weft_is_value(weft_value v)
{
    return v.id != 0;
}

/* Expands to two arguments, a list of values and their number, for functions that take `const
 * weft_value *values, size_t count`: weft_plan_new(graph, WEFT_VALUES(loss, update), NULL, &error).
 * The list lives until the end of the call. */
#ifdef __cplusplus
#define WEFT_VALUES(...) weft_value_list({__VA_ARGS__}), sizeof(weft_value_count(__VA_ARGS__))
extern "C++" {
inline const weft_value *weft_value_list(std::initializer_list<weft_value> values)
{
    return values.begin();
}
template <typename... Value> char (&weft_value_count(Value...))[sizeof...(Value)];
}
#else
#define WEFT_VALUES(...)                                                                           \
    (const weft_value[]){__VA_ARGS__}, sizeof((weft_value[]){__VA_ARGS__}) / sizeof(weft_value)
#endif

/* ---- Axes ----------------------------------------------------------------------------------- */

typedef struct weft_axes {
    int32_t count;
    int32_t axis[WEFT_MAX_RANK];
} weft_axes;
/* WEFT_AXES(-1), WEFT_AXES(0, 1); WEFT_ALL_AXES, whose count is 0, reduces to a scalar. */
#ifdef __cplusplus
#define WEFT_AXES(...) weft_axes_from(__VA_ARGS__)
extern "C++" {
template <typename... Axis> inline weft_axes weft_axes_from(Axis... axis)
{
    static_assert(sizeof...(axis) <= WEFT_MAX_RANK, "there are at most 8 axes");
    return weft_axes{static_cast<int32_t>(sizeof...(axis)), {static_cast<int32_t>(axis)...}};
}
}
#else
#define WEFT_AXES(...)                                                                             \
    ((weft_axes){(int32_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)), {__VA_ARGS__}})
#endif
#define WEFT_ALL_AXES (WEFT_LITERAL(weft_axes){0, {0}})

/* ---- Options --------------------------------------------------------------------------------- */

/* Sets a field to zero whose default is another number: `options.beta1 = WEFT_ZERO`. It is the
 * negative zero, which no field needs for itself. */
#define WEFT_ZERO (-0.0)
/* The number that such a field means: the default for 0, 0 for WEFT_ZERO, else its own value. */
static inline double weft_option(double value, double default_value)
{
    return value != 0.0 ? value : copysign(1.0, value) < 0 ? 0.0 : default_value;
}

/* ---- Status and errors ---------------------------------------------------------------------- */

#define WEFT_STATUS_MAP(X)                                                                         \
    X(OK, "success")                                                                               \
    X(BAD_ARGUMENT, "bad argument")                                                                \
    X(BAD_SHAPE, "shapes do not fit")                                                              \
    X(BAD_DTYPE, "dtypes do not fit")                                                              \
    X(TOO_LARGE, "a size overflows")                                                               \
    X(NO_MEMORY, "out of memory")                                                                  \
    X(NO_GRADIENT, "no gradient exists")                                                           \
    X(NO_KERNEL, "no kernel")                                                                      \
    X(NO_BACKEND, "a shared library could not be loaded")                                          \
    X(BAD_INDEX, "an index is out of range")                                                       \
    X(CANCELLED, "stopped on request")                                                             \
    X(NOT_FINITE, "a number is not finite")                                                        \
    X(NOT_FOUND, "not found")                                                                      \
    X(BAD_FILE, "malformed file")                                                                  \
    X(IO, "input or output failed")                                                                \
    X(PEER, "another process failed or does not answer")                                           \
    X(INTERNAL, "weft's own check failed")

typedef enum weft_status {
#define WEFT_STATUS_ENUM(name, text) WEFT_##name,
    WEFT_STATUS_MAP(WEFT_STATUS_ENUM)
#undef WEFT_STATUS_ENUM
} weft_status;

/* The text of a status from WEFT_STATUS_MAP; "unknown status" for any other number. */
WEFT_API const char *weft_status_text(weft_status status);

/* What went wrong, and where. `where` names the node (scope and op), the file, or the function, and
 * is never empty. `message` is one line, without a newline, that says what was found and what was
 * expected. A record of zeros holds no error. */
typedef struct weft_error {
    weft_status status;
    char where[128];
    char message[384];
} weft_error;

#define WEFT_NO_ERROR (WEFT_LITERAL(weft_error){WEFT_OK, "", ""})

/* ---- First contents of parameters ------------------------------------------------------------ */

/* The initial contents of a state. The kind says how the weights lie, from which the fans follow:
 *
 *   XAVIER_*, KAIMING_*            [in, out], as of weft_nn_linear: fan_in = in, fan_out = out.
 *                                  A vector [n] counts as [1, n]; a rank above 2 is WEFT_BAD_SHAPE
 *   CONV_XAVIER_*, CONV_KAIMING_*  [out, in / groups, kernel...], as of weft_conv:
 *                                  fan_in = in / groups x kernel, fan_out = out x kernel, where
 *                                  `kernel` is the number of its elements. A rank below 2 is
 *                                  WEFT_BAD_SHAPE
 *
 * The second row has the fans of PyTorch, also for matrices [out, in], embeddings [vocabulary,
 * features], and weights [in, out / groups, kernel...] of weft_conv_transpose: PyTorch too computes
 * fan_in from dimension 1 of any weight, and fan_out from dimension 0. */
typedef enum weft_init_kind {
    WEFT_INIT_CONSTANT,            /* a, which the dtype must be able to represent */
    WEFT_INIT_UNIFORM,             /* U[a, b) */
    WEFT_INIT_NORMAL,              /* N(mean a, standard deviation b) */
    WEFT_INIT_XAVIER_UNIFORM,      /* U(+-a sqrt(6 / (fan_in + fan_out))), Glorot & Bengio 2010 */
    WEFT_INIT_XAVIER_NORMAL,       /* N(0, a sqrt(2 / (fan_in + fan_out))) */
    WEFT_INIT_KAIMING_UNIFORM,     /* U(+-a sqrt(3 / fan_in)), gain a, He et al. 2015 */
    WEFT_INIT_KAIMING_NORMAL,      /* N(0, a / sqrt(fan_in)) */
    WEFT_INIT_CONV_XAVIER_UNIFORM, /* the same four of weights [out, in / groups, kernel...] */
    WEFT_INIT_CONV_XAVIER_NORMAL,
    WEFT_INIT_CONV_KAIMING_UNIFORM,
    WEFT_INIT_CONV_KAIMING_NORMAL
} weft_init_kind;

typedef struct weft_init {
    weft_init_kind kind;
    double a, b;
} weft_init;

#define WEFT_INIT_ZEROS  (WEFT_LITERAL(weft_init){WEFT_INIT_CONSTANT, 0, 0})
#define WEFT_INIT_ONES   (WEFT_LITERAL(weft_init){WEFT_INIT_CONSTANT, 1, 0})
#define WEFT_INIT_XAVIER (WEFT_LITERAL(weft_init){WEFT_INIT_XAVIER_UNIFORM, 1, 0})

#ifdef __cplusplus
}
#endif
#endif
