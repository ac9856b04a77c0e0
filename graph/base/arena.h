/* base/arena.h - memory that lives as long as its owner. Not installed. */
#ifndef WEFT_BASE_ARENA_H
#define WEFT_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "private.h"

typedef struct arena_block arena_block;
typedef struct arena {
    arena_block *blocks;
    size_t limit, counted; /* bytes; with a limit of 0 nothing is counted */
} arena;

/* Zeroed, 64-byte aligned memory; NULL when memory is out, or the limit is reached. */
WEFT_PRIVATE_API void *weft__arena_alloc(arena *a, size_t bytes);
/* Counts memory that the owner takes elsewhere. Once this returns false, the limit is reached for
 * good: `counted` equals it. */
WEFT_PRIVATE_API bool weft__arena_count(arena *a, size_t bytes);
WEFT_PRIVATE_API char *weft__arena_text(arena *a, const char *text);
/* Frees `memory` and everything that was allocated after it. */
void weft__arena_truncate(arena *a, const void *memory);
WEFT_PRIVATE_API void weft__arena_free(arena *a);

/* A separate allocation with undefined contents, 64-byte aligned, in huge pages if it is large;
 * NULL when memory is out. */
void *weft__arena_memory(size_t bytes);

#endif
