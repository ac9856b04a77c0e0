/* Restarts of the search for a packing of a given height (pack_tree.c).
 *
 * A search that has met no solution within a number of nodes restarts (Luby's sequence). It retains
 * the weights of sections, and tries candidates in another order: by area, by lifetime or by size,
 * later with some randomness, which comes from constants. */
#include "pack_tree.h"

#include "base/platform.h"

#include <stdlib.h>

#define RESTART_NODES 500
#define MAX_CELLS     (1u << 24) /* of items x the sections in which they are alive */

/* Luby's sequence 1 1 2 1 1 2 4 1 1 2 ... of run 1, 2, ... */
static uint64_t luby(uint64_t run)
{
    uint64_t size = 1;
    while (size < run) size = 2 * size + 1;
    while (size != run) {
        size /= 2;
        if (run > size) run -= size;
    }
    return (size + 1) / 2;
}

static double random_unit(uint64_t *state) /* splitmix64 */
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Sets the order in which a run tries candidates. */
static void set_keys(search *s, uint64_t run, uint64_t *random)
{
    for (uint32_t i = 0; i < s->n_items; i++) {
        double size = (double)s->packed[i].size / (double)s->height;
        double length =
            (double)(s->packed[i].last - s->packed[i].first + 1) / (double)s->n_sections;
        const double keys[] = {size * length, length + size * 1e-6, size + length * 1e-6};
        double noise = run <= 3 ? 0 : 0.5 * (double)(run % 5) * random_unit(random);
        s->items[i].key = keys[(run - 1) % 3] * (1 + noise);
    }
}

static pack_outcome run_all(search *s)
{
    uint64_t random = 0;
    for (uint64_t run = 1;; run++) {
        set_keys(s, run, &random);
        uint64_t nodes = (RESTART_NODES + s->n_items) * luby(run);
        uint64_t left = s->limits->nodes - s->nodes;
        s->run_end = s->nodes + (nodes < left ? nodes : left);
        s->stopped = false;
        s->top = 0;
        for (uint32_t t = 0; t < s->n_sections; t++) weft__tree_enqueue(s, t);
        if (weft__tree_solve(s, 0, s->n_sections - 1)) return PACK_FOUND;
        if (!s->stopped) return PACK_IMPOSSIBLE;
        if (s->why == PACK_NO_MEMORY) return s->why;
        if (s->nodes >= s->limits->nodes) return PACK_SPENT;
        if (s->limits->deadline > 0 && clock_seconds() >= s->limits->deadline) return PACK_SPENT;
        weft__tree_undo(s, 0);
    }
}

typedef struct shape {
    pack_item item;
    uint32_t index;
} shape;

static int compare_shapes(const void *a, const void *b)
{
    const shape *x = a, *y = b;
    if (x->item.first != y->item.first) return x->item.first < y->item.first ? -1 : 1;
    if (x->item.last != y->item.last) return x->item.last < y->item.last ? -1 : 1;
    if (x->item.size != y->item.size) return x->item.size < y->item.size ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Links each item with the equal item before it, its twin. */
static bool find_twins(search *s)
{
    shape *shapes = calloc(s->n_items, sizeof *shapes);
    if (!shapes) return false;
    for (uint32_t i = 0; i < s->n_items; i++) shapes[i] = (shape){s->packed[i], i};
    qsort(shapes, s->n_items, sizeof *shapes, compare_shapes);
    for (uint32_t i = 0; i < s->n_items; i++) {
        const shape *a = &shapes[i ? i - 1 : 0], *b = &shapes[i];
        bool twins = i && a->item.first == b->item.first && a->item.last == b->item.last &&
                     a->item.size == b->item.size;
        s->items[b->index].twin = twins ? a->index : NONE;
    }
    free(shapes);
    return true;
}

static void fill_sections(search *s)
{
    for (uint32_t i = 0; i < s->n_items; i++)
        for (uint32_t t = s->packed[i].first; t <= s->packed[i].last; t++) s->sections[t].waiting++;
    uint32_t *cells = s->cells;
    for (uint32_t t = 0; t < s->n_sections; t++) {
        section *c = &s->sections[t];
        uint32_t n = c->waiting;
        *c = (section){.items = cells, .solid = true, .weight = 1, .firsts = NONE, .lasts = NONE};
        cells += n;
    }
    for (uint32_t i = 0; i < s->n_items; i++) {
        const pack_item *item = &s->packed[i];
        section *first = &s->sections[item->first], *last = &s->sections[item->last];
        s->items[i].next_first = first->firsts;
        s->items[i].next_last = last->lasts;
        first->firsts = last->lasts = i;
        for (section *c = first; c <= last; c++) {
            c->items[c->waiting++] = i;
            c->waiting_bytes += item->size;
            c->crossing += c < last;
        }
    }
}

pack_outcome weft__pack_search(pack_item *items, size_t n, uint32_t sections, size_t height,
                               const pack_limits *limits, uint64_t *nodes)
{
    size_t cells = 0;
    for (size_t i = 0; i < n; i++) cells += items[i].last - items[i].first + 1;
    *nodes = 0;
    if (cells > MAX_CELLS) return PACK_SPENT;
    search s = {.packed = items,
                .items = calloc(n + 1, sizeof *s.items),
                .n_items = (uint32_t)n,
                .sections = calloc(sections + 1, sizeof *s.sections),
                .n_sections = sections,
                .cells = calloc(cells + 1, sizeof *s.cells),
                .queue = calloc(sections + 1, sizeof *s.queue),
                .before = calloc(sections + 1, sizeof *s.before),
                .after = calloc(sections + 1, sizeof *s.after),
                .height = height,
                .limits = limits};
    pack_outcome outcome = PACK_NO_MEMORY;
    if (s.items && s.sections && s.cells && s.queue && s.before && s.after && find_twins(&s)) {
        fill_sections(&s);
        outcome = run_all(&s);
    }
    *nodes = s.nodes;
    free(s.items);
    free(s.sections);
    free(s.cells);
    free(s.queue);
    free(s.before);
    free(s.after);
    free(s.trail);
    free(s.frames);
    return outcome;
}
