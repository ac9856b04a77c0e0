/* base/arena.h - memory that lives as long as its owner. Not installed. */
#ifndef WEFT_BASE_ARENA_H
#define WEFT_BASE_ARENA_H

#include <weft/graph.h>

#include <stdbool.h>
#include <stddef.h>

#include "private.h"

typedef struct arena_block arena_block;
typedef struct arena {
    arena_block *blocks;
    size_t limit, counted; /* bytes; with a limit of 0 nothing is counted */
    weft_allocator from;   /* of the blocks */
    bool misaligned;       /* an allocation failed because the allocator's memory was */
} arena;

/* Zeroed, 64-byte aligned memory; NULL if out of memory, or if the limit is reached. */
WEFT_PRIVATE_API void *weft__arena_alloc(arena *a, size_t bytes);
/* Counts memory that the owner takes elsewhere. Once this returns false, the limit is reached for
 * good: `counted` equals it. */
WEFT_PRIVATE_API bool weft__arena_count(arena *a, size_t bytes);
WEFT_PRIVATE_API char *weft__arena_text(arena *a, const char *text);
/* Frees `memory` and everything that was allocated after it. */
void weft__arena_truncate(arena *a, const void *memory);
WEFT_PRIVATE_API void weft__arena_free(arena *a);

/* A separate allocation with undefined contents, 64-byte aligned, in huge pages if it is large;
 * NULL if out of memory. */
void *weft__arena_memory(size_t bytes);

/* Whether the allocator (NULL: weft's own) has both functions or none. */
WEFT_PRIVATE_API bool weft__allocator_valid(const weft_allocator *from);
/* Memory of an allocator, with undefined contents. NULL if out of memory or, which then sets
 * *misaligned, if the memory is not 64-byte aligned. */
void *weft__allocator_take(const weft_allocator *from, size_t bytes, bool *misaligned);
/* Zeroed memory of an allocator; NULL on failure, with an error of `where` about `what`. `lazily`: pages
 * of weft's own memory may come when they are used. */
WEFT_PRIVATE_API void *weft__allocator_take_zeros(const weft_allocator *from, size_t bytes,
                                                  bool lazily, const char *where, const char *what,
                                                  weft_error *error);
/* Releases memory of that many bytes; NULL is accepted. */
WEFT_PRIVATE_API void weft__allocator_give(const weft_allocator *from, void *memory, size_t bytes);

#endif
