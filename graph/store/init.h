/* Initial contents of states. */
#ifndef WEFT_GRAPH_INIT_H
#define WEFT_GRAPH_INIT_H

#include "ir/ir.h"

#include <weft/store.h>

#include "base/private.h"

/* How the elements of a part lie in the whole: in `rows` runs of `length` elements, run i from
 * element i * stride + offset of the whole on. */
typedef struct part_runs {
    int64_t rows, length, stride, offset;
} part_runs;
WEFT_PRIVATE_API part_runs weft__part_runs_of(const weft_part *part, weft_shape shape);
/* The shape of the whole. */
WEFT_PRIVATE_API weft_shape weft__part_whole(const weft_part *part, weft_shape shape);

/* Fills dense `data` of `shape` as `init` describes; `part` NULL: it is a whole. Random numbers
 * depend on `name`, the seed and the element of the whole. */
void weft_init_fill(const weft_init *init, weft_dtype dtype, weft_shape shape,
                    const weft_part *part, uint64_t seed, const char *name, void *data);

#endif
