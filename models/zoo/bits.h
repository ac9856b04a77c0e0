/* Synthetic data, for models whose inputs nobody knows. Not installed. */
#ifndef WEFT_ZOO_BITS_H
#define WEFT_ZOO_BITS_H

#include "base/private.h"

#include <weft/op.h>

/* Fills an input: ids are in [1, vocab) and the last one is 0, the padding; an eighth of truth values
 * is true; numbers are in [-1, 1); a scalar (a learning rate) is 1e-4. */
WEFT_PRIVATE_API void weft__synthetic_input(weft_type type, int64_t vocab, uint64_t seed,
                                            void *data);

#endif
