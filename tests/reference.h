/* Naive f64 references: each op computed again from its formula, with libm and plain loops, sharing
 * no code with the kernels. The generated tests compare every sample's kernels with them. */
#ifndef WEFT_TESTS_REFERENCE_H
#define WEFT_TESTS_REFERENCE_H

#include <weft/op.h>

/* Inputs and outputs are contiguous; floating ones are f64. Output shapes are set, data are zero. */
typedef struct reference {
    const char *op;
    void (*compute)(const void *attr, const weft_tensor *in, size_t n_in, weft_tensor *out);
} reference;

/* One table a family, each ended by a NULL op. */
extern const reference reference_elementwise[], reference_reduce[], reference_product[],
    reference_index[];

#endif
