/* Memory for tensors, and arenas. An arena is a bump allocator over a list of blocks,
 * each twice as large as the one before; all are freed together. O(bytes), to zero them. */
#include "base/arena.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/platform.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#define ALIGNMENT 64u
#define HUGE_PAGE ((size_t)2 << 20)
#define MAX_BLOCK ((size_t)32 << 20)
/* Under AddressSanitizer each allocation has a block of its own, so that overruns are found. */
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define FIRST_BLOCK ((size_t)1)
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define FIRST_BLOCK ((size_t)1)
#endif
#ifndef FIRST_BLOCK
#define FIRST_BLOCK ((size_t)4096)
#endif

struct arena_block {
    arena_block *next;
    size_t used, bytes; /* `used` counts from the start of the block */
};

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static void report_small_pages(int problem)
{
    static atomic_bool done;
    if (weft__log_first(&done))
        weft__log(WEFT_LOG_INFO, "weft_alloc", "the system does not grant huge pages: %s",
                  strerror(problem));
}

void *weft__arena_memory(size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t unit = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    void *memory = weft__os_memory(unit, round_up(bytes + !bytes, unit));
    /* Only advice: if it fails, the memory has small pages. */
    if (memory && unit == HUGE_PAGE && !weft__os_huge_pages(memory, bytes / HUGE_PAGE * HUGE_PAGE))
        report_small_pages(errno);
    return memory;
}

bool weft__allocator_valid(const weft_allocator *from)
{
    return !from || !from->allocate == !from->release;
}

void *weft__allocator_take(const weft_allocator *from, size_t bytes, bool *misaligned)
{
    *misaligned = false;
    if (!from->allocate) return weft__arena_memory(bytes);
    bytes += !bytes;
    void *memory = from->allocate(from->context, bytes);
    *misaligned = (uintptr_t)memory % ALIGNMENT != 0;
    if (!*misaligned) return memory;
    from->release(from->context, memory, bytes);
    return NULL;
}

void *weft__allocator_take_zeros(const weft_allocator *from, size_t bytes, bool lazily,
                                 const char *where, const char *what, weft_error *error)
{
    bool misaligned = false;
    void *memory = bytes <= SIZE_MAX / 2 ? weft__allocator_take(from, bytes, &misaligned) : NULL;
    if (memory && lazily && !from->allocate)
        weft__os_zero(memory, bytes);
    else if (memory)
        memset(memory, 0, bytes);
    if (memory) return memory;
    if (misaligned)
        weft_error_set(error, WEFT_BAD_ARGUMENT, where,
                       "the allocator's memory for %s is not 64-byte aligned", what);
    else
        weft_error_set(error, WEFT_NO_MEMORY, where, "no memory for %s of %zu bytes", what, bytes);
    return NULL;
}

void weft__allocator_give(const weft_allocator *from, void *memory, size_t bytes)
{
    if (!from->release)
        weft__os_memory_free(memory);
    else if (memory)
        from->release(from->context, memory, bytes + !bytes);
}

static size_t header_bytes(void)
{
    return round_up(sizeof(arena_block), ALIGNMENT);
}

bool weft__arena_count(arena *a, size_t bytes)
{
    const bool fits = !a->limit || bytes <= a->limit - a->counted;
    if (a->limit) a->counted = fits ? a->counted + bytes : a->limit;
    return fits;
}

void *weft__arena_alloc(arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 4 || !weft__arena_count(a, bytes)) return NULL;
    size_t need = round_up(bytes + !bytes, ALIGNMENT);
    if (!a->blocks || a->blocks->bytes - a->blocks->used < need) {
        size_t size = a->blocks ? 2 * a->blocks->bytes : FIRST_BLOCK;
        if (size > MAX_BLOCK) size = MAX_BLOCK;
        if (FIRST_BLOCK == 1 || size < header_bytes() + need) size = header_bytes() + need;
        arena_block *block = weft__allocator_take(&a->from, size, &a->misaligned);
        if (!block) return NULL;
        *block = (arena_block){a->blocks, header_bytes(), size};
        a->blocks = block;
    }
    void *memory = (char *)a->blocks + a->blocks->used;
    a->blocks->used += need;
    return memset(memory, 0, bytes);
}

/* Frees the newest block. */
static void free_block(arena *a)
{
    arena_block *block = a->blocks;
    a->blocks = block->next;
    weft__allocator_give(&a->from, block, block->bytes);
}

void weft__arena_truncate(arena *a, const void *memory)
{
    const char *at = memory, *begin;
    while ((begin = (const char *)a->blocks, at < begin || at >= begin + a->blocks->bytes))
        free_block(a);
    a->blocks->used = (size_t)(at - begin);
}

char *weft__arena_text(arena *a, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = weft__arena_alloc(a, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

void weft__arena_free(arena *a)
{
    while (a->blocks) free_block(a);
}
