/* What the ops of the domain ai.onnx.ml share (classic.c). */
#ifndef WEFT_ONNX_CLASSIC_H
#define WEFT_ONNX_CLASSIC_H

#include "onnx/import.h"

/* The numbers of an attribute of floats, integers or a tensor, and their count; NULL and 0 without
 * it, or after a failure. */
double *weft__attr_numbers(onnx_node *n, const char *name, int64_t *count);
/* The attribute post_transform as ops before version 5 have it. */
const char *weft__classic_transform_name(onnx_node *n);
/* Scores [rows, classes] after a transform of that name; fails if it is not supported. */
weft_value weft__classic_transform(onnx_node *n, weft_value y, const char *name);
/* The label [rows] of the largest score of each row, one of `count` whole numbers. */
weft_value weft__classic_label(onnx_node *n, weft_value y, const double *labels, int64_t count);

#endif
