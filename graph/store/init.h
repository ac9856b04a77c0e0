/* First contents of states. */
#ifndef WEFT_GRAPH_INIT_H
#define WEFT_GRAPH_INIT_H

#include "ir/ir.h"

#include <weft/store.h>

/* Fills `data`, dense, as an init says; `name` and the seed choose the random numbers. */
void weft_init_fill(const weft_init *init, weft_dtype dtype, weft_shape shape, uint64_t seed,
                    const char *name, void *data);

#endif
