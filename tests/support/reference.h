/* Naive f64 references: each op computed again from its formula, with libm and plain loops, sharing
 * no code with the kernels. The generated tests compare every sample's kernels with them. Ops that
 * move or make elements have the references of their bits instead (exact/exact_move.c). */
#ifndef WEFT_TESTS_REFERENCE_H
#define WEFT_TESTS_REFERENCE_H

#include <weft/op.h>

/* Inputs and outputs are contiguous; floating ones are f64. Output shapes are set, data are zero.
 */
typedef void reference_function(const void *attr, const weft_tensor *in, size_t n_in,
                                weft_tensor *out);

/* As in ops/conv/conv_rows.h: the attribute of conv_rows and conv_rows_depthwise. */
typedef struct conv_rows_attr {
    weft_shape kernel, stride, dilation, pad_begin, pad_end;
    int64_t columns;
    bool bounded;
    double low, high;
} conv_rows_attr;

/* NULL if there is none. */
reference_function *reference_find(const char *op);

/* Calls the builder of an elementwise op without attributes, of one operand or two; false if the op
 * is another. */
bool reference_build(weft_graph *graph, const char *op, weft_value x, weft_value y,
                     weft_value *result);

#endif
