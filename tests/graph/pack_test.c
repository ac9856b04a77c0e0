/* Packing: random small lists against an exhaustive optimum, limits and errors, and eleven lists of
 * buffers that are known to be hard. */
#include "tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ITEMS 512
#define SMALL     10 /* items, of lists whose optimum is found by trying all orders */

#define SLOW TEST_SANITIZED

static size_t rounded(size_t size, size_t alignment)
{
    return size % alignment ? size + alignment - size % alignment : size;
}

/* Pair by pair: no overlap, aligned, and the arena is where the highest item ends. */
static bool is_packing(const weft_pack_item *items, size_t n, size_t alignment,
                       const weft_pack_result *result)
{
    size_t end = 0;
    for (size_t i = 0; i < n; i++) {
        const weft_pack_item *a = &items[i];
        if (a->offset % alignment) return false;
        if (a->size && a->offset + rounded(a->size, alignment) > end)
            end = a->offset + rounded(a->size, alignment);
        for (size_t k = 0; k < i; k++) {
            const weft_pack_item *b = &items[k];
            bool apart_in_time = a->upper <= b->lower || b->upper <= a->lower;
            bool apart = a->offset + a->size <= b->offset || b->offset + b->size <= a->offset;
            if (!apart_in_time && !apart && a->size && b->size) return false;
        }
    }
    return end == result->arena_bytes && result->lower_bound_bytes <= end;
}

static size_t peak(const weft_pack_item *items, size_t n, size_t alignment)
{
    size_t peak = 0;
    for (size_t i = 0; i < n; i++) { /* a peak is reached at some item's beginning */
        size_t live = 0;
        for (size_t k = 0; k < n; k++)
            if (items[k].lower <= items[i].lower && items[i].lower < items[k].upper)
                live += rounded(items[k].size, alignment);
        if (live > peak) peak = live;
    }
    return peak;
}

static size_t random_items(uint64_t *seed, weft_pack_item *items, size_t max_items, size_t sizes,
                           int64_t times)
{
    size_t n = 1 + test_random(seed) % max_items;
    for (size_t i = 0; i < n; i++) {
        int64_t a = (int64_t)(test_random(seed) % (uint64_t)times) - times / 2;
        int64_t length = 1 + (int64_t)(test_random(seed) % (uint64_t)(times / 2));
        items[i] = (weft_pack_item){a, a + length, 1 + test_random(seed) % sizes, 0};
    }
    return n;
}

/* Items of which `total` bytes are alive at all times: at each step some end, and others of the
 * same sum begin. */
static size_t tight_items(uint64_t *seed, weft_pack_item *items, size_t max_items)
{
    size_t n = 0, freed = 6 + test_random(seed) % 6;
    for (int64_t t = 0; n < max_items; t++) {
        while (freed && n < max_items) {
            size_t size =
                n + 1 == max_items ? freed : 1 + test_random(seed) % (freed < 4 ? freed : 4);
            items[n++] = (weft_pack_item){t, INT64_MAX, size, 0};
            freed -= size;
        }
        for (size_t i = 0; i < n; i++) {
            if (items[i].upper != INT64_MAX || test_random(seed) % 3) continue;
            items[i].upper = t + 1;
            freed += items[i].size;
        }
    }
    return n;
}

/* Seven items with a peak of 4 that need 5, some more, sizes scaled, time reversed, shuffled.
 */
static size_t gap_items(uint64_t *seed, weft_pack_item *items)
{
    static const weft_pack_item base[7] = {{0, 3, 2, 0}, {0, 1, 2, 0},  {1, 9, 1, 0}, {2, 7, 1, 0},
                                           {3, 9, 1, 0}, {7, 11, 2, 0}, {9, 13, 2, 0}};
    size_t n = 7 + test_random(seed) % 4, scale = 1 + test_random(seed) % 4;
    for (size_t i = 0; i < n; i++) {
        int64_t a = (int64_t)(test_random(seed) % 13), b = (int64_t)(test_random(seed) % 13);
        items[i] = i < 7 ? base[i] : (weft_pack_item){a < b ? a : b, (a < b ? b : a) + 1, 1, 0};
        items[i].size *= scale;
    }
    bool reversed = test_random(seed) % 2;
    for (size_t i = 0; i < n; i++) {
        size_t k = test_random(seed) % (i + 1);
        weft_pack_item item = items[i];
        if (reversed) item = (weft_pack_item){-item.upper, -item.lower, item.size, 0};
        items[i] = items[k];
        items[k] = item;
    }
    return n;
}

/* The smallest arena over all orders in which items are laid, each as low as it can go and no lower
 * than the one before. Some order does it: that of the offsets of a best packing whose sum of
 * offsets is the smallest. */
typedef struct exhaustive {
    weft_pack_item *items;
    size_t n, placed[SMALL], peak, best;
    bool used[SMALL];
} exhaustive;

/* The lowest offset that does not overlap the `depth` placed items. */
static size_t lowest(const exhaustive *e, size_t depth, const weft_pack_item *item)
{
    size_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t k = 0; k < depth; k++) {
            const weft_pack_item *o = &e->items[e->placed[k]];
            if (o->upper <= item->lower || item->upper <= o->lower) continue;
            if (o->offset + o->size <= offset || offset + item->size <= o->offset) continue;
            offset = o->offset + o->size;
            moved = true;
        }
    }
    return offset;
}

static void lay(exhaustive *e, size_t depth, size_t before, size_t end)
{
    if (end >= e->best || e->best == e->peak) return;
    if (depth == e->n || depth == SMALL) {
        e->best = end;
        return;
    }
    for (size_t i = 0; i < e->n && i < SMALL; i++) {
        weft_pack_item *item = &e->items[i];
        if (e->used[i]) continue;
        size_t offset = lowest(e, depth, item);
        if (offset < before) continue;
        item->offset = offset;
        e->used[i] = true;
        e->placed[depth] = i;
        lay(e, depth + 1, offset, offset + item->size > end ? offset + item->size : end);
        e->used[i] = false;
    }
}

static void test_optimum(void)
{
    uint64_t seed = 1;
    int searched = 0, above = 0, wrong = 0;
    for (int round = 0; round < (SLOW ? 300 : 3000); round++) {
        weft_pack_item items[SMALL], copy[SMALL];
        weft_pack_result result;
        size_t n = round % 3 == 0   ? random_items(&seed, items, SMALL, 40, 4 + round % 12)
                   : round % 3 == 1 ? tight_items(&seed, items, SMALL)
                                    : gap_items(&seed, items);
        memcpy(copy, items, sizeof copy);
        exhaustive e = {.items = copy, .n = n, .peak = peak(items, n, 1), .best = SIZE_MAX};
        lay(&e, 0, 0, 0);
        CU_ASSERT_EQUAL_FATAL(weft_pack(items, n, NULL, &result, NULL), WEFT_OK);
        searched += result.nodes > 0;
        above += e.best > result.lower_bound_bytes;
        if (!is_packing(items, n, 1, &result) || result.arena_bytes != e.best ||
            result.end != WEFT_PACK_OPTIMAL)
            wrong++;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT_TRUE(searched > (SLOW ? 5 : 50));
    CU_ASSERT_TRUE(above > (SLOW ? 2 : 20)); /* optima above the bound, to be proved */
}

/* Larger lists, any alignment and capacity: a packing, never worse than best fit, twice the same.
 */
static void test_random_lists(void)
{
    uint64_t seed = 9;
    int better = 0;
    for (int round = 0; round < 300; round++) {
        weft_pack_item items[60], again[60], plain[60];
        weft_pack_result a, b, c;
        size_t n = random_items(&seed, items, 60, 5000, 40), alignment = 1u << round % 8;
        if (round % 5 == 0) items[n / 2].size = 0;
        memcpy(again, items, sizeof items);
        memcpy(plain, items, sizeof items);
        size_t bound = peak(items, n, alignment);
        weft_pack_options options = {.alignment = alignment, .node_budget = 1000};
        if (round % 3 == 0) options.capacity = bound + bound / 50;
        CU_ASSERT_EQUAL(weft_pack(items, n, &options, &a, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_pack(again, n, &options, &b, NULL), WEFT_OK);
        options.best_fit_only = true;
        CU_ASSERT_EQUAL(weft_pack(plain, n, &options, &c, NULL), WEFT_OK);
        CU_ASSERT_TRUE(is_packing(items, n, alignment, &a));
        CU_ASSERT_TRUE(is_packing(plain, n, alignment, &c));
        CU_ASSERT_EQUAL(a.lower_bound_bytes, bound);
        CU_ASSERT_TRUE(a.nodes <= 1000 && c.nodes == 0);
        CU_ASSERT_TRUE(a.arena_bytes <= c.arena_bytes);
        CU_ASSERT_TRUE(a.end != WEFT_PACK_CAPACITY || a.arena_bytes <= options.capacity);
        CU_ASSERT_EQUAL(a.nodes, b.nodes);
        bool same = true;
        for (size_t i = 0; i < n; i++) same &= items[i].offset == again[i].offset;
        CU_ASSERT_TRUE(same);
        better += a.arena_bytes < c.arena_bytes;
    }
    CU_ASSERT_TRUE(better > 20);
}

/* Lists that best fit is too slow for: short lives, long ones and nested ones, mixed. */
static void test_many_items(void)
{
    enum { N = 21000 };
    uint64_t seed = 77;
    weft_pack_item *items = calloc(N, sizeof *items);
    CU_ASSERT_PTR_NOT_NULL_FATAL(items);
    for (int kind = 0; kind < 2; kind++) {
        weft_pack_result result;
        for (int64_t i = 0; i < N; i++) {
            int64_t length = i % 3 ? 1 + (int64_t)(test_random(&seed) % 50) : 2 * (N - i);
            size_t size =
                kind ? 1 + test_random(&seed) % 100000 : (size_t)4096 << test_random(&seed) % 4;
            items[i] = (weft_pack_item){i, i + length, size, 0};
        }
        CU_ASSERT_EQUAL(
            weft_pack(items, N, &(weft_pack_options){.best_fit_only = true}, &result, NULL),
            WEFT_OK);
        CU_ASSERT_TRUE(is_packing(items, N, 1, &result));
        CU_ASSERT_TRUE((double)result.arena_bytes < 1.05 * (double)result.lower_bound_bytes);
    }
    free(items);
}

static void test_edges(void)
{
    weft_error error;
    weft_pack_result result;
    CU_ASSERT_EQUAL(weft_pack(NULL, 0, NULL, &result, &error), WEFT_OK);
    CU_ASSERT_TRUE(result.arena_bytes == 0 && result.lower_bound_bytes == 0);
    CU_ASSERT_EQUAL(result.end, WEFT_PACK_OPTIMAL);

    weft_pack_item items[3] = {{-5, 7, 100, 1}, {0, 1, 0, 1}, {INT64_MIN, INT64_MAX, 0, 1}};
    CU_ASSERT_EQUAL(weft_pack(items, 3, NULL, &result, &error), WEFT_OK);
    CU_ASSERT_TRUE(result.arena_bytes == 100 && result.end == WEFT_PACK_OPTIMAL);
    CU_ASSERT_TRUE(items[0].offset == 0 && items[1].offset == 0 && items[2].offset == 0);

    /* One ends when the next begins: they share their place. */
    weft_pack_item line[2] = {{0, 4, 10, 0}, {4, 8, 10, 0}};
    CU_ASSERT_EQUAL(weft_pack(line, 2, NULL, &result, &error), WEFT_OK);
    CU_ASSERT_EQUAL(result.arena_bytes, 10);

    weft_pack_options aligned = {.alignment = 48};
    weft_pack_item both[2] = {{0, 4, 1, 0}, {0, 8, 49, 0}};
    CU_ASSERT_EQUAL(weft_pack(both, 2, &aligned, &result, &error), WEFT_OK);
    CU_ASSERT_EQUAL(result.arena_bytes, 144);
    CU_ASSERT_TRUE(is_packing(both, 2, 48, &result));

    /* Nothing fits below the peak: that is proved, whatever the capacity. */
    weft_pack_options small = {.capacity = 5, .node_budget = 10};
    CU_ASSERT_EQUAL(weft_pack(both, 2, &small, &result, &error), WEFT_OK);
    CU_ASSERT_TRUE(result.arena_bytes == 50 && result.end == WEFT_PACK_OPTIMAL);

    both[1].upper = 0;
    CU_ASSERT_EQUAL(weft_pack(both, 2, NULL, &result, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "item 1 lives from 0 to 0"));
    both[1] = (weft_pack_item){0, 1, SIZE_MAX / 2, 0};
    CU_ASSERT_EQUAL(weft_pack(both, 2, NULL, &result, &error), WEFT_TOO_LARGE);
    both[1].size = 8;
    aligned.alignment = SIZE_MAX / 2;
    CU_ASSERT_EQUAL(weft_pack(both, 2, &aligned, &result, &error), WEFT_TOO_LARGE);
    CU_ASSERT_EQUAL(weft_pack(both, 2, NULL, NULL, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_pack(NULL, 2, NULL, &result, &error), WEFT_BAD_ARGUMENT);
}

static size_t read_items(const char *path, weft_pack_item *items)
{
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t n = 0;
    long long lower, upper;
    int matched = fscanf(file, "id,lower,upper,size");
    while (matched == 0 && n < MAX_ITEMS &&
           fscanf(file, "%*d,%lld,%lld,%zu", &lower, &upper, &items[n].size) == 3) {
        items[n].lower = lower;
        items[n++].upper = upper;
    }
    fclose(file);
    return n;
}

/* Each fits its capacity, and best fit alone finds that for none of them. */
static void test_instances(void)
{
    static const size_t counts[] = {154, 170, 203, 213, 215, 296, 308, 316, 374, 409, 454};
    const char *names = SLOW ? "AFGH" : "ABCDEFGHIJK";
    if (SLOW) test_skip("seven of the eleven hard lists", "they take too long under a sanitizer");
    for (const char *name = names; *name; name++) {
        char path[512];
        weft_pack_item items[MAX_ITEMS];
        snprintf(path, sizeof path, "%s/minimalloc/%c.1048576.csv", WEFT_DATA_DIR, *name);
        size_t n = read_items(path, items);
        CU_ASSERT_EQUAL_FATAL(n, counts[*name - 'A']);
        weft_pack_options options = {.capacity = 1048576, .best_fit_only = true};
        weft_pack_result result;
        CU_ASSERT_EQUAL(weft_pack(items, n, &options, &result, NULL), WEFT_OK);
        CU_ASSERT_TRUE(result.arena_bytes > options.capacity && result.end == WEFT_PACK_BUDGET);
        options.best_fit_only = false;
        options.node_budget = 1000000;
        CU_ASSERT_EQUAL(weft_pack(items, n, &options, &result, NULL), WEFT_OK);
        CU_ASSERT_TRUE(is_packing(items, n, 1, &result));
        CU_ASSERT_EQUAL(result.lower_bound_bytes, peak(items, n, 1));
        if (result.arena_bytes > options.capacity) {
            fprintf(stderr, "\n    %s takes %zu bytes\n", path, result.arena_bytes);
            CU_FAIL("an instance does not fit");
        }
    }
}

/* Thousands of items, each within the one before; then, later, a list whose peak is as high but
 * cannot be reached, so that there is a search, which goes as deep as there are items. */
#define NESTED 3000

typedef struct nested {
    weft_pack_item items[NESTED + 7];
    weft_pack_result result;
    weft_status status;
} nested;

static void pack_nested(void *data)
{
    static const weft_pack_item gap[7] = {{0, 3, 2, 0}, {0, 1, 2, 0},  {1, 9, 1, 0}, {2, 7, 1, 0},
                                          {3, 9, 1, 0}, {7, 11, 2, 0}, {9, 13, 2, 0}};
    nested *p = data;
    for (int i = 0; i < NESTED; i++) p->items[i] = (weft_pack_item){i, 2 * NESTED - i, 4, 0};
    for (int i = 0; i < 7; i++) {
        p->items[NESTED + i] = gap[i];
        p->items[NESTED + i].lower += 3 * NESTED;
        p->items[NESTED + i].upper += 3 * NESTED;
        p->items[NESTED + i].size *= NESTED;
    }
    p->status = weft_pack(p->items, NESTED + 7, NULL, &p->result, NULL);
}

static void test_small_stack(void)
{
    nested *p = calloc(1, sizeof *p);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    CU_ASSERT_TRUE(test_with_stack(WEFT_STACK_BYTES, pack_nested, p));
    CU_ASSERT_EQUAL(p->status, WEFT_OK);
    CU_ASSERT_TRUE(p->result.nodes > NESTED);
    CU_ASSERT_EQUAL(p->result.lower_bound_bytes, 4 * NESTED);
    CU_ASSERT_EQUAL(p->result.arena_bytes, 5 * NESTED);
    CU_ASSERT_EQUAL(p->result.end, WEFT_PACK_OPTIMAL);
    free(p);
}

void pack_tests(void)
{
    CU_pSuite suite = CU_add_suite("pack", NULL, NULL);
    CU_add_test(suite, "small lists, exhaustive optimum", test_optimum);
    CU_add_test(suite, "random lists", test_random_lists);
    CU_add_test(suite, "lists too long for best fit", test_many_items);
    CU_add_test(suite, "empty, aligned, too large", test_edges);
    CU_add_test(suite, "eleven hard lists fit", test_instances);
    CU_add_test(suite, "nested items on a small stack", test_small_stack);
}
