/* Naive f64 references: each op computed again from its formula, with libm and plain loops, sharing
 * no code with the kernels. The generated tests compare every sample's kernels with them. */
#ifndef WEFT_TESTS_REFERENCE_H
#define WEFT_TESTS_REFERENCE_H

#include <weft/op.h>

/* Inputs and outputs are contiguous; floating ones are f64. Output shapes are set, data are zero.
 */
typedef void reference_function(const void *attr, const weft_tensor *in, size_t n_in,
                                weft_tensor *out);

/* NULL if there is none. */
reference_function *reference_find(const char *op);

#endif
