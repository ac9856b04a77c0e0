/* Offsets in the order of birth, as an allocator would choose them. An item takes the smallest free
 * gap that holds it, or the end of the arena. When it dies, its bytes are merged with the adjacent
 * gaps.
 *
 * Gaps are in lists by size class, eight to each power of two (Masmano et al. 2004, "TLSF"),
 * so that n items take O(n log n), and O(n) memory. */
#include "pack.h"

#include <stdlib.h>

#define SUB_BITS 3
#define CLASSES  (64 << SUB_BITS)
#define NONE     UINT32_MAX

/* A piece of the arena, free or held by an item. */
typedef struct chunk {
    size_t offset, size;
    uint32_t before, after;  /* adjacent chunks */
    uint32_t previous, next; /* free chunks of its class */
    bool free;
} chunk;

typedef struct arena_map {
    chunk *chunks;
    uint32_t n_chunks, spare; /* spare: a list of unused chunks, linked by `after` */
    uint32_t last;            /* the highest one */
    uint32_t classes[CLASSES];
    uint64_t filled[CLASSES / 64];
} arena_map;

static uint32_t class_of(size_t size)
{
    int power = 63 - __builtin_clzll(size);
    if (power <= SUB_BITS) return (uint32_t)size;
    return (uint32_t)((power - SUB_BITS + 1) << SUB_BITS) +
           (uint32_t)(size >> (power - SUB_BITS) & ((1 << SUB_BITS) - 1));
}

static void add_gap(arena_map *m, uint32_t at)
{
    uint32_t class = class_of(m->chunks[at].size), first = m->classes[class];
    m->chunks[at].free = true;
    m->chunks[at].previous = NONE;
    m->chunks[at].next = first;
    if (first != NONE) m->chunks[first].previous = at;
    m->classes[class] = at;
    m->filled[class / 64] |= (uint64_t)1 << class % 64;
}

static void remove_gap(arena_map *m, uint32_t at)
{
    const chunk *c = &m->chunks[at];
    uint32_t class = class_of(c->size);
    if (c->previous != NONE)
        m->chunks[c->previous].next = c->next;
    else
        m->classes[class] = c->next;
    if (c->next != NONE) m->chunks[c->next].previous = c->previous;
    if (m->classes[class] == NONE) m->filled[class / 64] &= ~((uint64_t)1 << class % 64);
    m->chunks[at].free = false;
}

/* The most gaps of one class that are compared. */
#define CANDIDATES 16

/* The smallest of the first gaps of a class that holds `size`; NONE if none does. */
static uint32_t best_of(const arena_map *m, uint32_t class, size_t size)
{
    uint32_t best = NONE, left = CANDIDATES;
    for (uint32_t i = m->classes[class]; i != NONE && left; i = m->chunks[i].next, left--)
        if (m->chunks[i].size >= size && (best == NONE || m->chunks[i].size < m->chunks[best].size))
            best = i;
    return best;
}

static uint32_t find_gap(const arena_map *m, size_t size)
{
    uint32_t class = class_of(size), best = best_of(m, class, size);
    if (best != NONE) return best;
    class ++;
    for (uint32_t word = class / 64; word < CLASSES / 64; word++, class = word * 64) {
        uint64_t later = m->filled[word] >> class % 64;
        if (later) return best_of(m, class + (uint32_t)__builtin_ctzll(later), size);
    }
    return NONE;
}

static uint32_t new_chunk(arena_map *m, size_t offset, size_t size, uint32_t before, uint32_t after)
{
    uint32_t at = m->spare;
    if (at != NONE)
        m->spare = m->chunks[at].after;
    else
        at = m->n_chunks++;
    m->chunks[at] = (chunk){offset, size, before, after, NONE, NONE, false};
    if (before != NONE) m->chunks[before].after = at;
    if (after != NONE)
        m->chunks[after].before = at;
    else
        m->last = at;
    return at;
}

static void drop_chunk(arena_map *m, uint32_t at)
{
    const chunk *c = &m->chunks[at];
    if (c->before != NONE) m->chunks[c->before].after = c->after;
    if (c->after != NONE)
        m->chunks[c->after].before = c->before;
    else
        m->last = c->before;
    m->chunks[at].after = m->spare;
    m->spare = at;
}

/* Adds a chunk of `size` bytes at the end of the arena, in place of a gap there. */
static uint32_t extend(arena_map *m, size_t size)
{
    uint32_t last = m->last;
    if (last == NONE) return new_chunk(m, 0, size, NONE, NONE);
    if (!m->chunks[last].free)
        return new_chunk(m, m->chunks[last].offset + m->chunks[last].size, size, last, NONE);
    remove_gap(m, last);
    m->chunks[last].size = size;
    return last;
}

static uint32_t allocate(arena_map *m, size_t size)
{
    uint32_t at = find_gap(m, size);
    if (at == NONE) return extend(m, size);
    remove_gap(m, at);
    size_t rest = m->chunks[at].size - size;
    m->chunks[at].size = size;
    if (rest) add_gap(m, new_chunk(m, m->chunks[at].offset + size, rest, at, m->chunks[at].after));
    return at;
}

static void release(arena_map *m, uint32_t at)
{
    chunk *c = &m->chunks[at];
    uint32_t before = c->before, after = c->after;
    if (after != NONE && m->chunks[after].free) {
        remove_gap(m, after);
        c->size += m->chunks[after].size;
        drop_chunk(m, after);
    }
    if (before != NONE && m->chunks[before].free) {
        remove_gap(m, before);
        m->chunks[before].size += c->size;
        drop_chunk(m, at);
        at = before;
    }
    add_gap(m, at);
}

typedef struct entry {
    uint32_t section, item;
    size_t size;
} entry;

/* By section; within one, larger items first, then those of lower index. */
static int compare(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->section != y->section) return x->section < y->section ? -1 : 1;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

bool weft__pack_online(pack_item *items, size_t n)
{
    arena_map m = {.spare = NONE, .last = NONE, .chunks = calloc(2 * n + 2, sizeof *m.chunks)};
    entry *births = calloc(2 * n + 1, sizeof *births), *deaths = births ? births + n : NULL;
    uint32_t *chunks = calloc(n + 1, sizeof *chunks);
    bool good = m.chunks && births && chunks;
    for (int i = 0; i < CLASSES; i++) m.classes[i] = NONE;
    for (uint32_t i = 0; good && i < n; i++) {
        births[i] = (entry){items[i].first, i, items[i].size};
        deaths[i] = (entry){items[i].last, i, items[i].size};
    }
    if (good) {
        qsort(births, n, sizeof *births, compare);
        qsort(deaths, n, sizeof *deaths, compare);
    }
    for (size_t i = 0, dead = 0; good && i < n; i++) {
        for (; dead < n && deaths[dead].section < births[i].section; dead++)
            release(&m, chunks[deaths[dead].item]);
        uint32_t item = births[i].item, at = allocate(&m, births[i].size);
        chunks[item] = at;
        items[item].offset = m.chunks[at].offset;
    }
    free(m.chunks);
    free(births);
    free(chunks);
    return good;
}
