/* A bump allocator: blocks in a list, freed together. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT   64u
#define BLOCK_BYTES 65536u

struct arena_block {
    arena_block *next;
    size_t used, bytes; /* `used` counts from the start of the block */
};

static size_t round_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void *arena_alloc(arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t need = round_up(bytes ? bytes : 1), header = round_up(sizeof(arena_block));
    if (!a->blocks || a->blocks->bytes - a->blocks->used < need) {
        size_t size = header + (need > BLOCK_BYTES ? need : BLOCK_BYTES);
        arena_block *block = aligned_alloc(ALIGNMENT, size);
        if (!block) return NULL;
        *block = (arena_block){a->blocks, header, size};
        a->blocks = block;
    }
    void *memory = (char *)a->blocks + a->blocks->used;
    a->blocks->used += need;
    return memset(memory, 0, need);
}

char *arena_text(arena *a, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = arena_alloc(a, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

void arena_free(arena *a)
{
    while (a->blocks) {
        arena_block *block = a->blocks;
        a->blocks = block->next;
        free(block);
    }
}
