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

#endif
