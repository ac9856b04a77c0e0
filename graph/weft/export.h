/* weft/export.h - how an op writes itself as nodes of ONNX, for authors of ops.
 *
 * An op's function weft_op.onnx receives a weft_export: its attribute, and its inputs as operands.
 * It adds nodes of ONNX's default domain and constants, and fills out[]. An operand is a tensor of
 * the file: an input of the op, a constant, or an output of a node. Errors are sticky as in a
 * graph: after the first one, functions return WEFT_NO_OPERAND. An op that adds and fills nothing,
 * for example because it needs a later opset, is exported as its expansion.
 *
 *     static void onnx_silu(weft_export *e)
 *     {
 *         e->out[0] = weft_export_binary(e, "Mul", e->in[0],
 *                                        weft_export_unary(e, "Sigmoid", e->in[0]));
 *     }
 *
 * weft's f32, f64, i32 and bool are ONNX's float, double, int32 and bool. An op that writes more
 * than one node, or that has an attribute of type double, is noted on its first node, so that an
 * import finds the op again (see <weft/onnx.h>); its attribute table (weft_op.attrs) must then list
 * all fields that count.
 */
#ifndef WEFT_EXPORT_H
#define WEFT_EXPORT_H

#include <weft/op.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_operand {
    uint32_t id; /* 0: none, also as an input that a node does not have */
} weft_operand;
#define WEFT_NO_OPERAND (WEFT_LITERAL(weft_operand){0})

/* Element types of constants and casts, with ONNX's numbers. */
typedef enum weft_onnx_type {
    WEFT_ONNX_FLOAT = 1,
    WEFT_ONNX_UINT8 = 2,
    WEFT_ONNX_INT32 = 6,
    WEFT_ONNX_INT64 = 7,
    WEFT_ONNX_BOOL = 9,
    WEFT_ONNX_DOUBLE = 11,
    WEFT_ONNX_BFLOAT16 = 16
} weft_onnx_type;

typedef enum weft_onnx_attr_kind {
    WEFT_ONNX_ATTR_FLOAT,
    WEFT_ONNX_ATTR_INT,
    WEFT_ONNX_ATTR_INTS,
    WEFT_ONNX_ATTR_TEXT
} weft_onnx_attr_kind;

/* An attribute of a node: its kind says which fields count. Names and lists are copied. */
typedef struct weft_onnx_attr {
    const char *name;
    weft_onnx_attr_kind kind;
    float number;
    int64_t integer;
    const int64_t *integers;
    size_t n_integers;
    const char *text;
} weft_onnx_attr;

/* Who receives the nodes. */
typedef struct weft_export_receiver {
    /* Adds a node; its outputs have consecutive ids, of which it returns the first. */
    weft_operand (*node)(weft_export *e, const char *type, const weft_operand *in, size_t n_in,
                         size_t n_out);
    /* Adds an attribute to the last node. */
    void (*attribute)(weft_export *e, const weft_onnx_attr *attr);
    /* Adds a constant; the contiguous data are copied. */
    weft_operand (*constant)(weft_export *e, weft_onnx_type type, weft_shape shape,
                             const void *data);
    /* Refuses the op, for this reason: "its indices have no counterpart". */
    void (*fail)(weft_export *e, const char *reason);
} weft_export_receiver;

struct weft_export {
    const weft_export_receiver *receiver;
    void *context; /* the receiver's */
    const void *attr;
    int opset; /* of the file, 17 or later */
    size_t n_in, n_out;
    const weft_operand *in;             /* [n_in] */
    const weft_type *in_type;           /* [n_in] */
    const weft_type *out_type;          /* [n_out] */
    const bool *wanted;                 /* [n_out] the outputs that something reads */
    weft_operand out[WEFT_MAX_OUTPUTS]; /* to be filled where wanted */
    /* Set by the op: note it on its node although it writes only one. */
    bool note;
    /* Set by the op: do not note it, because the nodes compute something else, as those of dropout
     * compute the identity. */
    bool inexact;
};

/* A node with n_out outputs; `in` has n_in operands. Output k has the id of the result plus k. */
static inline weft_operand weft_export_node(weft_export *e, const char *type,
                                            const weft_operand *in, size_t n_in, size_t n_out)
{
    return e->receiver->node(e, type, in, n_in, n_out);
}

static inline weft_operand weft_export_unary(weft_export *e, const char *type, weft_operand a)
{
    return weft_export_node(e, type, &a, 1, 1);
}

static inline weft_operand weft_export_binary(weft_export *e, const char *type, weft_operand a,
                                              weft_operand b)
{
    weft_operand in[2];
    in[0] = a;
    in[1] = b;
    return weft_export_node(e, type, in, 2, 1);
}

/* Attributes of the last node. */
static inline void weft_export_float(weft_export *e, const char *name, double value)
{
    weft_onnx_attr attr = WEFT_DEFAULTS(weft_onnx_attr);
    attr.name = name;
    attr.kind = WEFT_ONNX_ATTR_FLOAT;
    attr.number = (float)value;
    e->receiver->attribute(e, &attr);
}

static inline void weft_export_int(weft_export *e, const char *name, int64_t value)
{
    weft_onnx_attr attr = WEFT_DEFAULTS(weft_onnx_attr);
    attr.name = name;
    attr.kind = WEFT_ONNX_ATTR_INT;
    attr.integer = value;
    e->receiver->attribute(e, &attr);
}

static inline void weft_export_ints(weft_export *e, const char *name, const int64_t *values,
                                    size_t n)
{
    weft_onnx_attr attr = WEFT_DEFAULTS(weft_onnx_attr);
    attr.name = name;
    attr.kind = WEFT_ONNX_ATTR_INTS;
    attr.integers = values;
    attr.n_integers = n;
    e->receiver->attribute(e, &attr);
}

static inline void weft_export_text(weft_export *e, const char *name, const char *text)
{
    weft_onnx_attr attr = WEFT_DEFAULTS(weft_onnx_attr);
    attr.name = name;
    attr.kind = WEFT_ONNX_ATTR_TEXT;
    attr.text = text;
    e->receiver->attribute(e, &attr);
}

/* Constants: any; a scalar of a dtype of weft, which must be able to represent the value; integers
 * [n] of type int64, as shapes and axes are. */
static inline weft_operand weft_export_constant(weft_export *e, weft_onnx_type type,
                                                weft_shape shape, const void *data)
{
    return e->receiver->constant(e, type, shape, data);
}

static inline weft_onnx_type weft_export_type(weft_dtype dtype)
{
    return dtype == WEFT_F32    ? WEFT_ONNX_FLOAT
           : dtype == WEFT_F64  ? WEFT_ONNX_DOUBLE
           : dtype == WEFT_I32  ? WEFT_ONNX_INT32
           : dtype == WEFT_BF16 ? WEFT_ONNX_BFLOAT16
           : dtype == WEFT_U8   ? WEFT_ONNX_UINT8
                                : WEFT_ONNX_BOOL;
}

static inline weft_operand weft_export_scalar(weft_export *e, weft_dtype dtype, double value)
{
    const float as_f32 = (float)value;
    const int32_t as_i32 = dtype == WEFT_I32 ? (int32_t)value : 0;
    const uint8_t as_bool = value != 0;
    const void *data = dtype == WEFT_F32   ? (const void *)&as_f32
                       : dtype == WEFT_F64 ? (const void *)&value
                       : dtype == WEFT_I32 ? (const void *)&as_i32
                                           : (const void *)&as_bool;
    return weft_export_constant(e, weft_export_type(dtype), WEFT_SCALAR, data);
}

static inline weft_operand weft_export_int64s(weft_export *e, const int64_t *values, size_t n)
{
    weft_shape shape = WEFT_DEFAULTS(weft_shape);
    shape.rank = 1;
    shape.dim[0] = (int64_t)n;
    return weft_export_constant(e, WEFT_ONNX_INT64, shape, values);
}

/* The op's inputs as those of one node, whose only output is the op's. */
static inline void weft_export_same(weft_export *e, const char *type)
{
    e->out[0] = weft_export_node(e, type, e->in, e->n_in, 1);
}

static inline void weft_export_fail(weft_export *e, const char *reason)
{
    e->receiver->fail(e, reason);
}

#ifdef __cplusplus
}
#endif
#endif
