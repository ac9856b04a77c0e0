/* Heapsort, bottom up (Wegener 1993): an item that leaves the root follows the larger children to a
 * leaf, and climbs from there to its place, which costs half the comparisons of a test on the way
 * down. It takes as long as the merge sort of glibc's qsort_r. */
#include "sort.h"

#include <string.h>

typedef struct heap {
    char *items;
    size_t bytes; /* of an item */
    sort_order *order;
    void *context;
} heap;

static char *item(const heap *h, size_t i)
{
    return h->items + i * h->bytes;
}

static void move(const heap *h, size_t to, const void *from)
{
    memcpy(item(h, to), from, h->bytes);
}

static bool is_before(const heap *h, const void *first, const void *second)
{
    return h->order(first, second, h->context) < 0;
}

/* Puts `moved` into the heap of items [root, count), whose root is free. */
static void fill_root(const heap *h, size_t root, size_t count, const void *moved)
{
    size_t at = root;
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && is_before(h, item(h, child), item(h, child + 1))) child++;
        move(h, at, item(h, child));
    }
    for (size_t parent; at > root; at = parent) {
        parent = (at - 1) / 2;
        if (!is_before(h, item(h, parent), moved)) break;
        move(h, at, item(h, parent));
    }
    move(h, at, moved);
}

void weft__sort(void *items, size_t count, size_t bytes, sort_order *order, void *context)
{
    const heap h = {items, bytes, order, context};
    _Alignas(max_align_t) char moved[SORT_MAX_BYTES];
    for (size_t root = count / 2; root-- > 0;) {
        memcpy(moved, item(&h, root), bytes);
        fill_root(&h, root, count, moved);
    }
    /* The first item of the heap, its last, follows the heap. */
    for (size_t n = count; n-- > 1;) {
        memcpy(moved, item(&h, n), bytes);
        move(&h, n, items);
        fill_root(&h, 0, n, moved);
    }
}
