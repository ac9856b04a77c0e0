/* What ops share that read or write elements at indices. */
#ifndef WEFT_ONNX_INDEX_H
#define WEFT_ONNX_INDEX_H

#include "onnx/import.h"

/* The product of the dimensions [begin, end). */
int64_t weft__size_of(weft_shape shape, int begin, int end);
/* Moves an axis to another place. */
weft_value weft__move_axis(weft_graph *g, weft_value x, int from, int to);
/* Indices, input 1 or a view of it, along an axis of input 0 without negative ones. Data may decide
 * the size of the axis: an index beyond it is out of range. */
weft_value weft__wrap_along(onnx_node *n, weft_value index, int axis);
/* Input 1 as such indices. */
weft_value weft__indices_along(onnx_node *n, int axis);
/* Indices [..., k], input 1, into the dimensions [batch, batch + k) of input 0 as positions [...] in
 * the rows of a table; -1, which the kernels refuse, for an index out of range. */
weft_value weft__row_positions(onnx_node *n, int batch, int k);
/* Checks the last dimension of the indices; returns it, or -1. */
int weft__index_depth(onnx_node *n, weft_shape s, weft_shape t, int batch);

#endif
