/* base/sort.h - sorting with a context, which the C library does not have everywhere. Not
 * installed. */
#ifndef WEFT_BASE_SORT_H
#define WEFT_BASE_SORT_H

#include "private.h"

/* Bytes of the largest item. */
#define SORT_MAX_BYTES 16

/* Below 0 if the first item comes before the second, above 0 if after it; 0: in either order. */
typedef int sort_order(const void *first, const void *second, void *context);

/* Sorts `count` items of `bytes` each. Allocates nothing; O(count log count) comparisons. */
WEFT_PRIVATE_API void weft__sort(void *items, size_t count, size_t bytes, sort_order *order,
                                 void *context);

#endif
