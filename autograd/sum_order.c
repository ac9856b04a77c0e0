/* The order in which the gradients of an update are added: see pieces.h. */
#include "pieces.h"

weft_sum_node weft__rank_batches(uint32_t n, int rank, int size)
{
    if (size < 1 || rank < 0 || rank >= size) return (weft_sum_node){0, 0};
    return (weft_sum_node){(uint32_t)((uint64_t)n * (uint64_t)rank / (uint64_t)size),
                           (uint32_t)((uint64_t)n * ((uint64_t)rank + 1) / (uint64_t)size)};
}

/* The end of the node that begins at `first` on the level of 2^level batches. */
static uint32_t node_end(uint32_t n, uint32_t first, int level)
{
    const uint64_t end = (uint64_t)first + ((uint64_t)1 << level);
    return end < n ? (uint32_t)end : n;
}

size_t weft__sum_nodes(uint32_t n, weft_sum_node batches, weft_sum_node nodes[WEFT_SUM_NODES])
{
    size_t count = 0;
    for (uint32_t at = batches.first; at < batches.end && count < WEFT_SUM_NODES;) {
        int level = 0;
        while (level < 32 && at % ((uint64_t)2 << level) == 0 &&
               node_end(n, at, level + 1) <= batches.end)
            level++;
        nodes[count++] = (weft_sum_node){at, node_end(n, at, level)};
        at = nodes[count - 1].end;
    }
    return count;
}

bool weft__sum_joins(uint32_t n, weft_sum_node a, weft_sum_node b)
{
    const uint64_t half = a.end - a.first;
    if (!half || (half & (half - 1)) || a.first % (2 * half) || b.first != a.end) return false;
    const uint64_t end = a.first + 2 * half;
    return b.end == (end < n ? end : n);
}
