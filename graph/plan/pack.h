/* Offsets for items with lifetimes: the parts of weft_pack. */
#ifndef WEFT_GRAPH_PACK_H
#define WEFT_GRAPH_PACK_H

#include "ir/ir.h"

#include <weft/plan.h>

/* An item of a size above 0, alive in sections first..last. */
typedef struct pack_item {
    size_t size, offset;
    uint32_t first, last;
    uint32_t id; /* among the caller's */
} pack_item;

typedef enum pack_outcome { PACK_FOUND, PACK_IMPOSSIBLE, PACK_SPENT, PACK_NO_MEMORY } pack_outcome;

typedef struct pack_limits {
    uint64_t nodes;
    double deadline; /* in seconds of clock_seconds(), or 0 */
} pack_limits;

/* Sets offsets in the order of birth (pack_online.c). False if out of memory. */
bool weft__pack_online(pack_item *items, size_t n);
/* Searches for offsets with which no item ends above `height`, and sets them if it finds some.
 * *nodes becomes the number of nodes that it has visited. */
pack_outcome weft__pack_search(pack_item *items, size_t n, uint32_t sections, size_t height,
                               const pack_limits *limits, uint64_t *nodes);

#endif
