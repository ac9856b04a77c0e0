/* What the ops of the domain ai.onnx.ml share (classic.c). */
#ifndef WEFT_ONNX_CLASSIC_H
#define WEFT_ONNX_CLASSIC_H

#include "onnx/import.h"

/* The numbers of an attribute of floats, integers or a tensor, and their count; NULL and 0 without
 * it, or after a failure. */
double *weft__attr_numbers(onnx_node *n, const char *name, int64_t *count);
/* Input 0 [rows, features] as floats. */
weft_value weft__classic_rows(onnx_node *n);
/* The names of transforms, in the order of TreeEnsemble's numbers. */
#define CLASSIC_TRANSFORMS 5
extern const char *const weft__classic_transforms[CLASSIC_TRANSFORMS];
/* The attribute post_transform as ops before version 5 have it. */
const char *weft__classic_transform_name(onnx_node *n);
/* Scores [rows, classes] after a transform of that name; fails if it is not supported. */
weft_value weft__classic_transform(onnx_node *n, weft_value y, const char *name);
/* The label [rows] of the largest score of each row, one of `count` whole numbers. */
weft_value weft__classic_label(onnx_node *n, weft_value y, const double *labels, int64_t count);

#endif
