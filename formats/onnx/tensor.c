/* Tensors of ONNX files: types, and contents as raw bytes or as lists of numbers. Floats of raw
 * bytes stay where they are; everything else is converted. O(elements). */
#include "onnx/tensor.h"

#include "base/half.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- Types ---- */

typedef struct type_row {
    const char *name;
    size_t bits;
    weft_dtype dtype;
    double low, high;
} type_row;

static const type_row types[] = {{"?", 0, WEFT_DTYPES, 0, 0},
#define ROW(name, number, bits, dtype, low, high) {#name, bits, dtype, low, high},
                                 ONNX_TYPES(ROW)
#undef ROW
};
enum { N_TYPES = sizeof types / sizeof *types };

static const type_row *type_of(int type)
{
    return &types[type > 0 && type < N_TYPES ? type : 0];
}

/* Numbers of less than 8 bits share bytes, the first in the lowest bits. */
static size_t bytes_of(int type, size_t n)
{
    const size_t bits = type_of(type)->bits, each = bits && bits < 8 ? 8 / bits : 1;
    return bits < 8 ? n / each + (n % each != 0) : n * (bits / 8);
}

size_t weft__onnx_type_bits(int type)
{
    return type_of(type)->bits;
}

const char *weft__onnx_type_name(int type)
{
    return type_of(type)->name;
}

bool weft__onnx_type_bounds(int type, double *low, double *high)
{
    *low = type_of(type)->low;
    *high = type_of(type)->high;
    return *low < *high;
}

weft_status weft__onnx_type_dtype(int type, const char *where, weft_dtype *dtype, weft_error *error)
{
    *dtype = type == ONNX_STRING ? WEFT_DTYPES : type_of(type)->dtype;
    if (*dtype != WEFT_DTYPES) return WEFT_OK;
    return weft_error_set(error, WEFT_BAD_DTYPE, where, "unsupported element type %s (%d)",
                          weft__onnx_type_name(type), type);
}

weft_status weft__onnx_value_dtype(int type, const char *where, weft_dtype *dtype,
                                   weft_error *error)
{
    if (type != ONNX_STRING) return weft__onnx_type_dtype(type, where, dtype, error);
    *dtype = type_of(type)->dtype;
    return WEFT_OK;
}

weft_status weft__onnx_tensor_type(const WeftOnnx__TensorProto *proto, const char *where,
                                   onnx_tensor *tensor, weft_error *error)
{
    *tensor = (onnx_tensor){.shape.rank = 0};
    const weft_status status =
        weft__onnx_value_dtype(proto->data_type, where, &tensor->dtype, error);
    if (status != WEFT_OK) return status;
    if (proto->n_dims > WEFT_MAX_RANK)
        return weft_error_set(error, WEFT_BAD_SHAPE, where, "has rank %zu, weft has at most %d",
                              proto->n_dims, WEFT_MAX_RANK);
    tensor->shape.rank = (int32_t)proto->n_dims;
    for (size_t i = 0; i < proto->n_dims; i++) tensor->shape.dim[i] = proto->dims[i];
    if (weft_shape_numel(tensor->shape) >= 0) return WEFT_OK;
    return weft_error_set(error, WEFT_BAD_FILE, where,
                          "has a negative dimension, or too many elements");
}

/* ---- Contents ---- */

/* Element i of raw little-endian integers. */
static int64_t raw_integer(int type, const uint8_t *at, size_t i)
{
#define CASE(name, c_type)                                                                         \
    case ONNX_##name: {                                                                            \
        c_type value;                                                                              \
        memcpy(&value, at + i * sizeof value, sizeof value);                                       \
        return (int64_t)value;                                                                     \
    }
    switch (type) {
        CASE(UINT8, uint8_t)
        CASE(INT8, int8_t)
        CASE(UINT16, uint16_t)
        CASE(INT16, int16_t)
        CASE(INT32, int32_t)
        CASE(UINT32, uint32_t)
        CASE(BOOL, uint8_t)
        CASE(UINT64, uint64_t)
        CASE(INT64, int64_t)
    default:
        return 0;
    }
#undef CASE
}

typedef struct source {
    const void *raw; /* NULL: one of the lists */
    const int32_t *ints;
    const int64_t *longs;
    const uint64_t *unsigned_longs;
} source;

/* Element i of numbers of less than 8 bits; a list has a byte in each of its integers. */
static int64_t part_of_byte(const source *from, int type, size_t i)
{
    const size_t bits = type_of(type)->bits, each = 8 / bits, at = i / each;
    const int range = 1 << bits;
    const int byte = from->raw ? ((const uint8_t *)from->raw)[at] : from->ints[at] & 255;
    const int value = byte >> (i % each * bits) & (range - 1);
    return value > type_of(type)->high ? value - range : value;
}

static int64_t integer_at(const source *from, int type, size_t i)
{
    if (type_of(type)->bits < 8) return part_of_byte(from, type, i);
    if (from->raw) return raw_integer(type, from->raw, i);
    if (from->ints) return from->ints[i];
    return from->longs ? from->longs[i] : (int64_t)from->unsigned_longs[i];
}

/* False if the number is outside i32, and not an absent bound. */
static bool to_i32(int64_t value, int type, int32_t *out)
{
    const bool is_unsigned = type == ONNX_UINT64 && value < 0;
    if (type == ONNX_INT64 && (value == INT64_MAX || value <= -INT64_MAX))
        *out = value > 0 ? INT32_MAX : INT32_MIN;
    else
        *out = (int32_t)value;
    return !is_unsigned &&
           (*out == value || (type == ONNX_INT64 && (value == INT64_MAX || value <= -INT64_MAX)));
}

static weft_status convert(const source *from, int type, size_t n, const char *where, arena *memory,
                           onnx_tensor *tensor, weft_error *error)
{
    const bool is_bool = tensor->dtype == WEFT_BOOL;
    void *data = weft__arena_alloc(memory, n * weft_dtype_bytes(tensor->dtype));
    if (!data) return weft_error_set(error, WEFT_NO_MEMORY, where, "no memory for %zu elements", n);
    for (size_t i = 0; i < n; i++) {
        const int64_t value = integer_at(from, type, i);
        if (is_bool)
            ((uint8_t *)data)[i] = value != 0;
        else if (!to_i32(value, type, (int32_t *)data + i))
            return weft_error_set(error, WEFT_BAD_DTYPE, where,
                                  "element %zu of type %s is %lld, which does not fit i32", i,
                                  weft__onnx_type_name(type), (long long)value);
    }
    tensor->data = data;
    return WEFT_OK;
}

static bool is_half(int type)
{
    return type == ONNX_FLOAT16 || type == ONNX_BFLOAT16;
}

static weft_status convert_halves(const source *from, int type, size_t n, const char *where,
                                  arena *memory, onnx_tensor *tensor, weft_error *error)
{
    float *data = weft__arena_alloc(memory, n * sizeof *data);
    if (!data) return weft_error_set(error, WEFT_NO_MEMORY, where, "no memory for %zu elements", n);
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = from->raw ? 0 : (uint16_t)from->ints[i];
        if (from->raw) memcpy(&bits, (const char *)from->raw + i * sizeof bits, sizeof bits);
        data[i] = type == ONNX_FLOAT16 ? half_from_f16(bits) : half_from_bf16(bits);
    }
    tensor->data = data;
    return WEFT_OK;
}

static weft_status convert_minifloats(const source *from, int type, size_t n, const char *where,
                                      arena *memory, onnx_tensor *tensor, weft_error *error)
{
    float *data = weft__arena_alloc(memory, n * sizeof *data);
    if (!data) return weft_error_set(error, WEFT_NO_MEMORY, where, "no memory for %zu elements", n);
    const size_t bits = type_of(type)->bits, each = 8 / bits;
    float numbers[256];
    for (int code = 0; code < 1 << bits; code++)
        numbers[code] = (float)weft__onnx_minifloat_decode(weft__onnx_minifloat(type), code);
    for (size_t i = 0; i < n; i++) {
        const int byte = from->raw ? ((const uint8_t *)from->raw)[i / each] : from->ints[i / each];
        data[i] = numbers[byte >> (i % each * bits) & ((1 << bits) - 1)];
    }
    tensor->data = data;
    return WEFT_OK;
}

static weft_status convert_texts(const WeftOnnx__TensorProto *proto, size_t n, const char *where,
                                 arena *memory, onnx_texts *texts, onnx_tensor *tensor,
                                 weft_error *error)
{
    if (!texts || proto->n_string_data != n || proto->data_location == 1)
        return weft_error_set(
            error, texts ? WEFT_BAD_FILE : WEFT_BAD_DTYPE, where,
            texts ? "does not have the %zu strings of its shape" : "is a tensor of %zu strings", n);
    int32_t *data = weft__arena_alloc(memory, n * sizeof *data);
    bool good = data != NULL;
    for (size_t i = 0; good && i < n; i++) {
        const ProtobufCBinaryData *text = &proto->string_data[i];
        if (text->len && memchr(text->data, 0, text->len))
            return weft_error_set(error, WEFT_BAD_FILE, where, "has a string with a NUL");
        data[i] = weft__texts_number(texts, (const char *)text->data, text->len);
        good = data[i] >= 0;
    }
    tensor->data = data;
    return good ? WEFT_OK : weft_error_set(error, WEFT_NO_MEMORY, where, "no memory for strings");
}

/* The list of numbers that the type uses, if it has n of them. */
static bool take_list(const WeftOnnx__TensorProto *proto, size_t n, size_t bytes, source *from,
                      const void **floats)
{
    switch (proto->data_type) {
    case ONNX_FLOAT:
        *floats = proto->float_data;
        return proto->n_float_data == n;
    case ONNX_DOUBLE:
        *floats = proto->double_data;
        return proto->n_double_data == n;
    case ONNX_INT64:
        from->longs = proto->int64_data;
        return proto->n_int64_data == n;
    case ONNX_UINT32:
    case ONNX_UINT64:
        from->unsigned_longs = proto->uint64_data;
        return proto->n_uint64_data == n;
    default:
        from->ints = proto->int32_data;
        return proto->n_int32_data == (type_of(proto->data_type)->bits < 8 ? bytes : n);
    }
}

weft_status weft__onnx_tensor_read(const WeftOnnx__TensorProto *proto, const char *where,
                                   arena *memory, onnx_files *files, onnx_tensor *tensor,
                                   weft_error *error)
{
    static const double nothing; /* the address of tensors without elements */
    weft_status status = weft__onnx_tensor_type(proto, where, tensor, error);
    if (status != WEFT_OK) return status;
    const size_t n = (size_t)weft_shape_numel(tensor->shape);
    if (proto->data_type == ONNX_STRING)
        return convert_texts(proto, n, where, memory, files->texts, tensor, error);
    const size_t bytes = bytes_of(proto->data_type, n);
    source from = {.raw = NULL};
    tensor->data = &nothing;
    if (proto->data_location == 1) {
        status = weft__files_map(files, proto, where, bytes, &from.raw, error);
        if (status != WEFT_OK) return status;
    } else if (proto->has_raw_data) {
        if (proto->raw_data.len != bytes)
            return weft_error_set(error, WEFT_BAD_FILE, where,
                                  "has %zu bytes of raw data, its type and shape need %zu",
                                  proto->raw_data.len, bytes);
        from.raw = proto->raw_data.data;
    }
    const void *floats = from.raw;
    if (!from.raw && !(n == 0 && proto->has_raw_data) &&
        !take_list(proto, n, bytes, &from, &floats))
        return weft_error_set(error, WEFT_BAD_FILE, where,
                              "its data do not have the %zu elements of its shape", n);
    if (n == 0) return WEFT_OK;
    if (is_half(proto->data_type))
        return convert_halves(&from, proto->data_type, n, where, memory, tensor, error);
    if (weft__onnx_minifloat(proto->data_type))
        return convert_minifloats(&from, proto->data_type, n, where, memory, tensor, error);
    if (!weft_dtype_is_float(tensor->dtype))
        return convert(&from, proto->data_type, n, where, memory, tensor, error);
    if ((uintptr_t)floats % weft_dtype_bytes(tensor->dtype) == 0) {
        tensor->data = floats;
        return WEFT_OK;
    }
    void *copy = weft__arena_alloc(memory, bytes);
    if (!copy)
        return weft_error_set(error, WEFT_NO_MEMORY, where, "no memory for %zu bytes", bytes);
    tensor->data = memcpy(copy, floats, bytes);
    return WEFT_OK;
}
