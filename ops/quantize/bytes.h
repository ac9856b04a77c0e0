/* Floats as bytes, and back, for ops on quantised numbers (bytes.c). */
#ifndef WEFT_OPS_BYTES_H
#define WEFT_OPS_BYTES_H

#include <weft/op.h>

#include "base/private.h"

/* y = round(x / scale) + zero, within [0, 255]; x is f32, scale positive. NaN becomes 0. */
WEFT_PRIVATE_API weft_value weft__quantize_bytes(weft_graph *graph, weft_value x, double scale,
                                                 int zero);
/* y = scale (x - zero) in f32, of u8. */
WEFT_PRIVATE_API weft_value weft__dequantize_bytes(weft_graph *graph, weft_value x, double scale,
                                                   int zero);

/* y = round((scale[0] (a - zero[0]) + scale[1] (b - zero[1])) / scale[2]) + zero[2], within
 * [low, high]. */
typedef struct bytes_sum {
    double scale[3]; /* of a, b and y; f32, positive */
    int32_t zero[3];
    int32_t low, high; /* within [0, 255] */
    int32_t none;      /* instead of padding: attributes are compared byte by byte */
} bytes_sum;
/* Of two tensors of u8, which broadcast, as u8. */
WEFT_PRIVATE_API weft_value weft__add_bytes(weft_graph *graph, weft_value a, weft_value b,
                                            const bytes_sum *sum);

#endif
