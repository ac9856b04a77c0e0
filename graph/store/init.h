/* Initial contents of states. */
#ifndef WEFT_GRAPH_INIT_H
#define WEFT_GRAPH_INIT_H

#include "ir/ir.h"

#include <weft/store.h>

/* Fills dense `data` as `init` describes. Random numbers depend on `name`, the seed and the
 * element. */
void weft_init_fill(const weft_init *init, weft_dtype dtype, weft_shape shape, uint64_t seed,
                    const char *name, void *data);

#endif
