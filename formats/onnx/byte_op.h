/* Ops on quantized images in bytes (byte_conv.c, byte_pool.c). Bytes are those of a u8; 128 is added to
 * numbers and zero points of an i8. */
#ifndef WEFT_ONNX_BYTE_OP_H
#define WEFT_ONNX_BYTE_OP_H

#include "onnx/quantized.h"

#include "conv/conv_bytes.h"

/* A tensor of bytes: scale (byte - zero). */
typedef struct byte_term {
    weft_value bytes;
    double scale;
    int zero;
} byte_term;

typedef enum byte_op_kind { BYTES_CONVOLVED, BYTES_ADDED, BYTES_KEPT } byte_op_kind;

struct onnx_byte_op {
    byte_op_kind kind;
    weft_value x;       /* [images, height, width, channels] */
    weft_value weights; /* of conv_bytes or conv_bytes_depthwise */
    weft_value bias;    /* i32 [columns] */
    bool depthwise;
    conv_bytes_attr attr; /* without the result's fields */
    float *scale;         /* [columns] of the sums, or NULL */
    bool bounded;         /* the scaled sums */
    double low, high;
    byte_term term[2]; /* [images, channels, ...]: what is added; or what is kept */
};

/* An image [images, channels, height, width] with its channels innermost, and back; others stay. */
static inline weft_value bytes_to_last(weft_graph *g, weft_value x)
{
    return weft_rank_of(g, x) == 4 ? weft_permute(g, x, (weft_axes){4, {0, 2, 3, 1}}) : x;
}

static inline weft_value bytes_to_first(weft_graph *g, weft_value x)
{
    return weft_rank_of(g, x) == 4 ? weft_permute(g, x, (weft_axes){4, {0, 3, 1, 2}}) : x;
}

/* Whether a value is in bytes, and its scale and zero point are numbers. */
bool weft__byte_term(onnx_node *n, const onnx_value *q, onnx_value *scale, onnx_value *zero,
                     byte_term *term);
/* The same of an input that comes from DequantizeLinear. */
bool weft__dequantized_term(onnx_node *n, size_t i, byte_term *term);
/* Sets the window of an image, of two dimensions. */
void weft__set_byte_window(const weft_conv_options *o, const int64_t *kernel, conv_rows_attr *a);
/* A new op; NULL after a failure. */
onnx_byte_op *weft__new_byte_op(onnx_node *n);

#endif
