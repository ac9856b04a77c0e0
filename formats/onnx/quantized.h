/* Quantized numbers, whole numbers of few bits with scales and zero points: what their mappings
 * share. */
#ifndef WEFT_ONNX_QUANTIZED_H
#define WEFT_ONNX_QUANTIZED_H

#include "onnx/import.h"

/* Whether numbers of a type of ONNX are bytes. */
static inline bool bytes_listed(int type)
{
    return type == ONNX_UINT8 || type == ONNX_INT8;
}

/* What is added to a number or zero point of a type to get that of its byte. */
static inline int bytes_lift(int type)
{
    return type == ONNX_INT8 ? 128 : 0;
}

/* Quantized numbers of input i, in floats or in i32. */
weft_value weft__quantized_whole(onnx_node *n, size_t i);
/* A value of a type of few bits in floats, or in i32. */
weft_value weft__whole_of(onnx_node *n, onnx_value *value);
/* A number, or a vector along an axis of `rank` dimensions, in f64. */
weft_value weft__along(weft_graph *g, weft_value x, int axis, int rank);
/* Rounds x, adds the zero point and clips to the type; in the dtype of x. */
weft_value weft__quantized_clip(onnx_node *n, weft_value x, weft_value zero, int type);
/* Sets output 0 to quantized numbers, given in f32. */
static inline void weft__set_quantized(onnx_node *n, weft_value whole, int type)
{
    weft__set_typed(n, 0, weft_cast(n->graph, whole, WEFT_I32), type);
    if (n->n_out && !n->folding) n->out[0].whole = whole;
}

/* Input i in f32, of which inputs i + 1 and i + 2 are a scale and a zero point (qlinear.c). */
weft_value weft__quantized_real(onnx_node *n, size_t i);
/* Output 0, quantized by scale and zero point of inputs `scale` and `scale` + 1, in the type of the
 * latter, or else of input `like`. */
void weft__set_quantized_real(onnx_node *n, weft_value y, size_t scale, size_t like);

/* Whole numbers of x in 0 to 255, with the scale and zero point that map [min(x, 0), max(x, 0)]
 * to them; all in f32. */
typedef struct dynamic_quantized {
    weft_value whole, scale, zero;
} dynamic_quantized;
dynamic_quantized weft__quantize_dynamically(weft_graph *g, weft_value x);

/* As NumPy's matmul, in which a vector is a row on the left and a column on the right. */
weft_value weft__matrix_product(weft_graph *g, weft_value a, weft_value b);
/* A matrix among the inputs of a node, and its zero point, which may be absent. */
typedef struct byte_factor {
    size_t index, zero;
    bool transposed;
} byte_factor;
/* The left factor of a product: whole numbers of a type, and their zero point, a number or a vector
 * along the rows, in f64. `value` is the value of the file that has these numbers, or NULL. */
typedef struct byte_rows {
    const onnx_value *value;
    weft_value a, zero;
    int type;
} byte_rows;
/* Input a, and its zero point, which may be absent. */
byte_rows weft__byte_rows(onnx_node *n, size_t a, size_t zero);
/* The exact product of two inputs less their zero points, in i32 or f64. A matrix of bytes that the file
 * has is multiplied in bytes. */
weft_value weft__integer_product(onnx_node *n, size_t a, size_t a_zero, const byte_factor *b);
/* The product of rows with input b, less zero points and scaled, in f32. The scale is a number, or a
 * vector along columns or rows, in f64. */
weft_value weft__scaled_product(onnx_node *n, const byte_rows *rows, const byte_factor *b,
                                weft_value scale);
/* The product of inputs 0 and 1 if both were dequantized: of a tensor of bytes with one scale, and
 * of a known matrix of bytes with a scale for each column or for all. It is computed in whole
 * numbers, and then scaled. WEFT_NO_VALUE for other inputs, or if it is to be differentiated. */
weft_value weft__dequantized_product(onnx_node *n, bool transposed);

/* ---- Images of bytes (byte_conv.c) ---- */

/* A convolution of an image of bytes by weights of the file, before its sums are scaled; the sum of two
 * tensors of bytes; or a tensor of bytes itself. */
typedef struct onnx_byte_op onnx_byte_op;
/* The inputs of one: numbers of the inputs of a node, or of those of DequantizeLinear. */
typedef struct byte_conv_inputs {
    onnx_value *x, *x_scale, *x_zero, *w, *w_scale, *w_zero, *bias; /* NULL: absent */
} byte_conv_inputs;
/* The convolution that a node computes; NULL if there is none: of other dtypes, ranks or groups, of
 * values that are not known, or with weights beyond an i8 after their zero point is subtracted. The
 * scales may be absent, both of them, for sums of i32. */
const onnx_byte_op *weft__byte_conv(onnx_node *n, const byte_conv_inputs *in,
                                    const weft_conv_options *options);
/* The convolution of a Conv whose image, weights and bias come from DequantizeLinear. */
const onnx_byte_op *weft__dequantized_conv(onnx_node *n, const weft_conv_options *options);
/* The sums as i32, or scaled as f32. */
weft_value weft__byte_conv_sums(onnx_node *n, const onnx_byte_op *c, weft_dtype dtype);
/* The sum of two inputs that come from DequantizeLinear, each with one scale and in bytes; or NULL. */
const onnx_byte_op *weft__dequantized_sum(onnx_node *n);
/* The sum of inputs 0 and 3, bytes whose scales and zero points follow them; or NULL. */
const onnx_byte_op *weft__byte_sum(onnx_node *n);
/* Sets output 0 to the maxima of the windows of input 0, an image of bytes with two spatial dimensions,
 * or what DequantizeLinear made of one; false if input 0 is another value. The padding is not read
 * (byte_pool.c). */
bool weft__byte_pool(onnx_node *n, const weft_conv_options *window, const int64_t *kernel);
/* Sets output 0 to the results, quantized by scale and zero point of inputs `scale` and `scale` + 1;
 * false if these are not numbers, or the type is not of bytes. */
bool weft__set_byte_op(onnx_node *n, const onnx_byte_op *c, size_t scale, int type);
/* After a mapping of an op that bounds input 0: output 0 is the same op with bounds. */
void weft__bound_byte_op(onnx_node *n, double low, double high);

/* Whether images of bytes stay in bytes between their ops: the model has convolutions, and is not to
 * be differentiated. */
bool weft__keeps_bytes(const onnx_node *n, weft_value image);
/* x in f32 as bytes, and back, with a scale and a zero point of the type. */
weft_value weft__bytes_of(weft_graph *g, weft_value x, double scale, double zero, int type);
weft_value weft__bytes_real(weft_graph *g, weft_value bytes, double scale, double zero, int type);
/* Sets output 0 to quantized numbers in bytes. */
void weft__set_bytes(onnx_node *n, weft_value bytes, int type);

#endif
