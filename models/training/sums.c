/* Which batches a process has, and the order of its sums: see sums.h. O(batches). */
#include "trainer.h"

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
        a->adds = n && weft__sum_joins(total, stack[n - 1], leaf);
        if (a->adds) {
            stack[n - 1].end = leaf.end;
        } else {
            a->store = n - 1;
            stack[n++] = leaf;
        }
        a->slots = n - 1;
        for (; n > 1 && weft__sum_joins(total, stack[n - 2], stack[n - 1]); n--, a->pops++)
            stack[n - 2].end = stack[n - 1].end;
    }
    return true;
}

void weft__sums_free(sum_schedule *s)
{
    free(s->actions);
}

rank_batches weft__ranks_batches(const weft_trainer *t)
{
    return (rank_batches){t->o.accumulate, t->place.in_turn};
}

uint32_t weft__ranks_count(const weft_trainer *t, rank_batches dealt, int rank)
{
    const weft_sum_node own = weft__rank_batches(dealt.total, rank, t->place.size);
    return dealt.in_turn ? dealt.total / (uint32_t)t->place.size : own.end - own.first;
}

uint32_t weft__ranks_batch(const weft_trainer *t, rank_batches dealt, int rank, uint32_t k)
{
    return dealt.in_turn ? k * (uint32_t)t->place.size + (uint32_t)rank
                         : weft__rank_batches(dealt.total, rank, t->place.size).first + k;
}
