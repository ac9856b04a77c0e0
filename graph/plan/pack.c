/* Offsets for buffers with lifetimes: dynamic storage allocation with all lifetimes known. It is
 * NP-hard: rectangles that may only slide up and down are packed into a strip.
 *
 * Time is first cut into sections. Only those instants matter whose set of alive items is not
 * contained in another one's: the maximal cliques of the lifetimes.
 *
 *     lifetimes   aaaaaaaa              sections   0: a b c      (b starts, c starts | b ends)
 *                  bbbb                            1: a c d
 *                    cccccccc
 *                        dddd
 *
 * Three methods follow, until one reaches the wanted height:
 * 1. an allocator's offsets, O(n log n) (pack_online.c);
 * 2. best fit in up to five orders, O(n^2) each; in fewer or none if n is large;
 * 3. while there is budget, a search for a packing of a given height (pack_search.c): first of the
 *    wanted height, with most of the budget, then by bisection.
 * Ties are broken by index, so the offsets are the same on every machine. */
#include "pack.h"

#include "base/platform.h"
#include "base/number.h"

#include <stdlib.h>
#include <string.h>

/* ---- Sections ---- */

typedef struct event {
    int64_t time;
    uint32_t item;
    bool birth;
} event;

static int compare_events(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    if (x->birth != y->birth) return x->birth ? 1 : -1;
    return x->item < y->item ? -1 : x->item > y->item;
}

/* Sets the first and last section of each item. A section ends where a death follows a birth.
 * events[] has room for 2 n. Returns the number of sections. */
static uint32_t cut_time(const weft_pack_item *items, pack_item *packed, size_t n, event *events)
{
    uint32_t sections = 0;
    bool births = false;
    for (uint32_t i = 0; i < n; i++) {
        events[2 * (size_t)i] = (event){items[packed[i].id].lower, i, true};
        events[2 * (size_t)i + 1] = (event){items[packed[i].id].upper, i, false};
    }
    qsort(events, 2 * n, sizeof *events, compare_events);
    for (size_t k = 0; k < 2 * n; k++) {
        pack_item *item = &packed[events[k].item];
        if (events[k].birth) {
            item->first = sections;
        } else {
            sections += births;
            item->last = sections - 1;
        }
        births = events[k].birth;
    }
    return sections;
}

/* The largest sum of the sizes alive in one section; loads[] has room for sections + 1. */
static size_t peak_load(const pack_item *items, size_t n, size_t *loads, uint32_t sections)
{
    size_t live = 0, peak = 0;
    memset(loads, 0, (sections + 1) * sizeof *loads);
    for (size_t i = 0; i < n; i++) { /* differences may wrap; their sums do not */
        loads[items[i].first] += items[i].size;
        loads[items[i].last + 1] -= items[i].size;
    }
    for (uint32_t s = 0; s < sections; s++) {
        live += loads[s];
        if (live > peak) peak = live;
    }
    return peak;
}

/* ---- Best fit ---- */

typedef enum order_kind { BY_SIZE, BY_AREA, BY_LENGTH, BY_START, BY_END, ORDERS } order_kind;

typedef struct entry {
    double key, second;
    uint32_t index;
} entry;

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    if (x->second != y->second) return x->second > y->second ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void sort_entries(entry *entries, const pack_item *b, size_t n, order_kind kind)
{
    for (size_t i = 0; i < n; i++) {
        double size = (double)b[i].size, length = (double)(b[i].last - b[i].first) + 1;
        double keys[ORDERS] = {size, size * length, length, -(double)b[i].first, (double)b[i].last};
        entries[i] = (entry){keys[kind], kind == BY_SIZE ? length : size, (uint32_t)i};
    }
    qsort(entries, n, sizeof *entries, compare_entries);
}

/* Places item i in the smallest gap that holds it between those of the `n` placed items that are
 * alive with it. placed[] is sorted by offset, and stays so. */
static void place_one(pack_item *b, uint32_t *placed, size_t n, uint32_t i)
{
    size_t end = 0, best = SIZE_MAX, best_gap = SIZE_MAX;
    for (size_t k = 0; k < n; k++) {
        const pack_item *other = &b[placed[k]];
        if (other->last < b[i].first || other->first > b[i].last) continue;
        if (other->offset > end) {
            size_t gap = other->offset - end;
            if (gap >= b[i].size && gap < best_gap) {
                best = end;
                best_gap = gap;
            }
        }
        if (other->offset + other->size > end) end = other->offset + other->size;
    }
    b[i].offset = best == SIZE_MAX ? end : best;
    size_t at = n;
    while (at > 0 && b[placed[at - 1]].offset > b[i].offset) {
        placed[at] = placed[at - 1];
        at--;
    }
    placed[at] = i;
}

/* ---- Packing ---- */

typedef struct packing {
    weft_pack_item *items; /* the caller's */
    pack_item *packed;     /* those of a size above 0 */
    size_t n;
    uint32_t sections;
    event *events;
    size_t *loads;
    entry *entries;
    uint32_t *placed;
    size_t unit;     /* greatest common divisor of the sizes: every end is a multiple of it */
    size_t possible; /* no smaller arena can hold the items */
    double deadline; /* in seconds of clock_seconds(), or 0 */
    uint64_t nodes_left;
    weft_pack_result *result;
} packing;

/* Retains the offsets of `packed` if they end lower than the best so far. */
static void retain(packing *p)
{
    size_t end = 0;
    for (size_t i = 0; i < p->n; i++)
        if (p->packed[i].offset + p->packed[i].size > end)
            end = p->packed[i].offset + p->packed[i].size;
    if (end >= p->result->arena_bytes) return;
    p->result->arena_bytes = end;
    for (size_t i = 0; i < p->n; i++) p->items[p->packed[i].id].offset = p->packed[i].offset;
}

/* The maximum comparisons of best fit, in all orders together: enough for one order of 20,000
 * items, or five of 9,000. */
#define BEST_FIT_STEPS 2e8

static void best_fit(packing *p, size_t wanted)
{
    const double steps = 0.5 * (double)p->n * (double)p->n; /* of one order */
    for (int kind = 0; kind < ORDERS && p->result->arena_bytes > wanted; kind++) {
        if (steps * (kind + 1) > BEST_FIT_STEPS) break;
        sort_entries(p->entries, p->packed, p->n, (order_kind)kind);
        for (size_t i = 0; i < p->n; i++) place_one(p->packed, p->placed, i, p->entries[i].index);
        retain(p);
    }
}

/* Searches for a packing no higher than `height`, with a fraction of the remaining budget. */
static pack_outcome try_height(packing *p, size_t height, double fraction)
{
    pack_limits limits = {.nodes = p->nodes_left};
    if (fraction < 1) limits.nodes = (uint64_t)((double)p->nodes_left * fraction);
    if (p->deadline > 0) {
        double now = clock_seconds();
        limits.deadline = now + (p->deadline - now) * fraction;
    }
    uint64_t nodes = 0;
    pack_outcome outcome = weft__pack_search(p->packed, p->n, p->sections, height, &limits, &nodes);
    p->result->nodes += nodes;
    p->nodes_left -= nodes < p->nodes_left ? nodes : p->nodes_left;
    if (outcome == PACK_FOUND) retain(p);
    if (outcome == PACK_IMPOSSIBLE) p->possible = height + p->unit;
    return outcome;
}

/* Tries the wanted height, then bisects between `low`, below which nothing was found, and the best
 * so far. The rest of the budget goes to the height just below the best. False if there is no
 * memory. */
static bool search(packing *p, size_t wanted)
{
    const weft_pack_result *best = p->result;
    size_t low = wanted / p->unit * p->unit, height = low;
    double fraction = 0.75;
    while (best->arena_bytes > wanted && best->arena_bytes > p->possible && p->nodes_left > 0) {
        if (p->deadline > 0 && clock_seconds() >= p->deadline) break;
        pack_outcome outcome = try_height(p, height, fraction);
        if (outcome == PACK_NO_MEMORY) return false;
        if (outcome != PACK_FOUND) low = height + p->unit;
        if (outcome == PACK_SPENT && fraction == 1) break;
        bool hope = low < best->arena_bytes;
        fraction = hope ? 0.25 : 1;
        height = best->arena_bytes - p->unit;
        if (hope) height = low + (height - low) / p->unit / 2 * p->unit;
    }
    return true;
}

/* Checks the items, and copies those of a size above 0. */
static weft_status take_items(packing *p, size_t n, size_t alignment, weft_error *error)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        weft_pack_item *item = &p->items[i];
        if (item->lower >= item->upper)
            return weft_error_set(error, WEFT_BAD_ARGUMENT, "pack",
                                  "item %zu lives from %lld to %lld: the end must come later", i,
                                  (long long)item->lower, (long long)item->upper);
        size_t room = SIZE_MAX / 4 - sum;
        if (item->size > room || alignment - 1 > room - item->size)
            return weft_error_set(error, WEFT_TOO_LARGE, "pack",
                                  "the sum of the sizes overflows at item %zu", i);
        size_t size = (item->size + alignment - 1) / alignment * alignment;
        sum += size;
        item->offset = 0;
        if (!size) continue;
        p->packed[p->n++] = (pack_item){.id = (uint32_t)i, .size = size};
        p->unit = (size_t)number_gcd(p->unit, size);
    }
    return WEFT_OK;
}

/* The default of weft_pack_options.node_budget. */
#define NODE_BUDGET 100000

static weft_status pack(packing *p, size_t n, const weft_pack_options *options, weft_error *error)
{
    weft_pack_result *result = p->result;
    size_t alignment = options->alignment ? options->alignment : 1;
    weft_status status = take_items(p, n, alignment, error);
    if (status != WEFT_OK || !p->n) return status;
    p->sections = cut_time(p->items, p->packed, p->n, p->events);
    p->possible = peak_load(p->packed, p->n, p->loads, p->sections);
    result->lower_bound_bytes = p->possible;
    result->arena_bytes = SIZE_MAX;
    size_t wanted = options->capacity > p->possible ? options->capacity : p->possible;
    if (!weft__pack_online(p->packed, p->n))
        return weft_error_set(error, WEFT_NO_MEMORY, "pack", "no memory for %zu items", p->n);
    retain(p);
    best_fit(p, wanted);
    p->nodes_left = options->node_budget ? options->node_budget : NODE_BUDGET;
    if (options->best_fit_only) p->nodes_left = 0;
    if (options->seconds > 0) p->deadline = clock_seconds() + options->seconds;
    if (!search(p, wanted))
        return weft_error_set(error, WEFT_NO_MEMORY, "pack", "no memory for the search");
    if (result->arena_bytes <= p->possible)
        result->end = WEFT_PACK_OPTIMAL;
    else
        result->end = result->arena_bytes <= wanted ? WEFT_PACK_CAPACITY : WEFT_PACK_BUDGET;
    return WEFT_OK;
}

weft_status weft_pack(weft_pack_item *items, size_t n, const weft_pack_options *options,
                      weft_pack_result *result, weft_error *error)
{
    static const weft_pack_options defaults = {0};
    weft_error_clear(error);
    if (!result || (!items && n))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "pack", "%s is NULL",
                              result ? "the array of items" : "the result");
    *result = (weft_pack_result){0};
    if (n > UINT32_MAX / 4)
        return weft_error_set(error, WEFT_TOO_LARGE, "pack", "%zu items are too many", n);
    packing p = {.items = items,
                 .packed = calloc(n + 1, sizeof *p.packed),
                 .events = calloc(2 * n + 1, sizeof *p.events),
                 .loads = calloc(n + 2, sizeof *p.loads),
                 .entries = calloc(n + 1, sizeof *p.entries),
                 .placed = calloc(n + 1, sizeof *p.placed),
                 .result = result};
    weft_status status = WEFT_NO_MEMORY;
    if (p.packed && p.events && p.loads && p.entries && p.placed)
        status = pack(&p, n, options ? options : &defaults, error);
    else
        weft_error_set(error, status, "pack", "no memory for %zu items", n);
    free(p.packed);
    free(p.events);
    free(p.loads);
    free(p.entries);
    free(p.placed);
    return status;
}

const char *weft_pack_end_text(weft_pack_end end)
{
    static const char *const texts[] = {
#define TEXT(name, text) text,
        WEFT_PACK_END_MAP(TEXT)
#undef TEXT
    };
    return (size_t)end < sizeof texts / sizeof *texts ? texts[end] : "unknown end";
}
