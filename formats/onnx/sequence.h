/* Lists of values that are known during the import: what the iterations of a loop make (control.c),
 * and sequences of the model (sequence.c). */
#ifndef WEFT_ONNX_SEQUENCE_H
#define WEFT_ONNX_SEQUENCE_H

#include "onnx/import.h"

typedef struct onnx_sequence {
    onnx_value **values;
    size_t count, capacity;
} onnx_sequence;

/* Appends a value. False if out of memory. */
bool weft__sequence_push(onnx_node *n, onnx_sequence *s, onnx_value *value);
/* Joins the values along a new axis. */
bool weft__sequence_join(onnx_node *n, const onnx_sequence *s, int64_t axis, bool reverse,
                         onnx_value *out);
/* Applies an op with an attribute "axis" to values, as a node of the model would. */
bool weft__apply_axis(onnx_node *n, const char *domain, const char *op, int64_t axis,
                      onnx_value **in, size_t n_in, onnx_value *out);

#endif
