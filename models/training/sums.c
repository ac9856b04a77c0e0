/* The order of a process's sums: see sums.h. O(batches). */
#include "sums.h"

#include <stdlib.h>

bool weft__sums_schedule(sum_schedule *s, uint32_t total, weft_sum_node own)
{
    weft_sum_node stack[WEFT_SUM_NODES];
    int n = 0;
    s->n = own.end - own.first;
    s->actions = calloc((size_t)s->n + 1, sizeof *s->actions);
    if (!s->actions) return false;
    for (uint32_t i = own.first; i < own.end; i++) {
        sum_action *a = &s->actions[i - own.first];
        const weft_sum_node leaf = {i, i + 1};
        *a = (sum_action){.store = -1};
        a->adds = n && weft_sum_joins(total, stack[n - 1], leaf);
        if (a->adds) {
            stack[n - 1].end = leaf.end;
        } else {
            a->store = n - 1;
            stack[n++] = leaf;
        }
        a->slots = n - 1;
        for (; n > 1 && weft_sum_joins(total, stack[n - 2], stack[n - 1]); n--, a->pops++)
            stack[n - 2].end = stack[n - 1].end;
    }
    return true;
}

void weft__sums_free(sum_schedule *s)
{
    free(s->actions);
}
