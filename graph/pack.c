/* Offsets for buffers with lifetimes: the static form of dynamic storage allocation, which is
 * NP-hard. Buffers are placed one by one in several orders, each in the smallest gap between those
 * already placed that live at the same time (best fit); the order with the smallest arena wins.
 * O(orders x n^2). Ties are broken by index, so that a plan is the same everywhere. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

typedef enum order_kind { BY_SIZE, BY_AREA, BY_LENGTH, BY_START, BY_END, ORDERS } order_kind;

typedef struct entry {
    double key, second;
    uint32_t index;
} entry;

static int compare(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    if (x->second != y->second) return x->second > y->second ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void sort_entries(entry *entries, const weft_plan_buffer *b, size_t n, order_kind kind)
{
    for (size_t i = 0; i < n; i++) {
        double bytes = (double)b[i].bytes, length = (double)(b[i].last - b[i].first) + 1;
        double keys[ORDERS] = {bytes, bytes * length, length, -(double)b[i].first,
                               (double)b[i].last};
        entries[i] = (entry){keys[kind], kind == BY_SIZE ? length : bytes, (uint32_t)i};
    }
    qsort(entries, n, sizeof *entries, compare);
}

/* Places buffer i among the `n` placed ones, which are sorted by offset; keeps them sorted. */
static size_t place_one(weft_plan_buffer *b, uint32_t *placed, size_t n, uint32_t i)
{
    size_t end = 0, best = SIZE_MAX, best_gap = SIZE_MAX;
    for (size_t k = 0; k < n; k++) {
        const weft_plan_buffer *other = &b[placed[k]];
        if (other->last < b[i].first || other->first > b[i].last) continue;
        if (other->offset > end) {
            size_t gap = other->offset - end;
            if (gap >= b[i].bytes && gap < best_gap) {
                best = end;
                best_gap = gap;
            }
        }
        if (other->offset + other->bytes > end) end = other->offset + other->bytes;
    }
    b[i].offset = best == SIZE_MAX ? end : best;
    size_t at = n;
    while (at > 0 && b[placed[at - 1]].offset > b[i].offset) {
        placed[at] = placed[at - 1];
        at--;
    }
    placed[at] = i;
    return b[i].offset + b[i].bytes;
}

size_t pack_offsets(weft_plan_buffer *buffers, size_t n, size_t lower_bound)
{
    entry *entries = calloc(n + 1, sizeof *entries);
    uint32_t *placed = calloc(n + 1, sizeof *placed);
    size_t *best_offsets = calloc(n + 1, sizeof *best_offsets), best = SIZE_MAX;
    for (int kind = 0; entries && placed && best_offsets && kind < ORDERS; kind++) {
        sort_entries(entries, buffers, n, (order_kind)kind);
        size_t arena_bytes = 0;
        for (size_t i = 0; i < n; i++) {
            size_t end = place_one(buffers, placed, i, entries[i].index);
            if (end > arena_bytes) arena_bytes = end;
        }
        if (arena_bytes < best) {
            best = arena_bytes;
            for (size_t i = 0; i < n; i++) best_offsets[i] = buffers[i].offset;
        }
        if (best <= lower_bound) break;
    }
    for (size_t i = 0; best != SIZE_MAX && i < n; i++) buffers[i].offset = best_offsets[i];
    free(entries);
    free(placed);
    free(best_offsets);
    return best;
}

size_t pack_lower_bound(const weft_plan_buffer *buffers, size_t n, uint32_t n_groups)
{
    size_t *born = calloc((size_t)n_groups + 1, sizeof *born);
    size_t *dead = calloc((size_t)n_groups + 1, sizeof *dead);
    size_t live = 0, peak = 0;
    if (!born || !dead) {
        free(born);
        free(dead);
        return SIZE_MAX;
    }
    for (size_t i = 0; i < n; i++) {
        born[buffers[i].first] += buffers[i].bytes;
        dead[buffers[i].last] += buffers[i].bytes;
    }
    for (uint32_t g = 0; g <= n_groups; g++) {
        live += born[g];
        if (live > peak) peak = live;
        live -= dead[g];
    }
    free(born);
    free(dead);
    return peak;
}
