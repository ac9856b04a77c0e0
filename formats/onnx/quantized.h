/* Quantized numbers, whole numbers of few bits with scales and zero points: what their mappings
 * share. */
#ifndef WEFT_ONNX_QUANTIZED_H
#define WEFT_ONNX_QUANTIZED_H

#include "onnx/import.h"

/* Quantized numbers of input i, in floats or in i32. */
weft_value weft__quantized_whole(onnx_node *n, size_t i);
/* Rounds x, adds the zero point and clips to the type; in the dtype of x. */
weft_value weft__quantized_clip(onnx_node *n, weft_value x, weft_value zero, int type);
/* Sets output 0 to quantized numbers, given in f32. */
void weft__set_quantized(onnx_node *n, weft_value whole, int type);

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
/* The exact product of a, whole numbers of a type, and an input, both less their zero points, in
 * f64; that of a is a number, or a vector along its rows, in f64. A matrix of bytes is multiplied
 * as it lies. */
weft_value weft__whole_product(onnx_node *n, weft_value a, int type, weft_value zero,
                               const byte_factor *b);
/* The same of two inputs. */
weft_value weft__integer_product(onnx_node *n, size_t a, size_t a_zero, const byte_factor *b);
/* The product of inputs 0 and 1 if both were dequantized: of a tensor of bytes with one scale, and
 * of a known matrix of bytes with a scale for each column or for all. It is computed in whole
 * numbers, and then scaled. WEFT_NO_VALUE for other inputs, or if it is to be differentiated. */
weft_value weft__dequantized_product(onnx_node *n, bool transposed);

#endif
