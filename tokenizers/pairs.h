/* pairs.h - which pairs of symbols BPE merges. Not installed. */
#ifndef WEFT_TOKENIZERS_PAIRS_H
#define WEFT_TOKENIZERS_PAIRS_H

#include "state.h"

typedef struct tk_pair {
    uint64_t key; /* of both ids, plus 1; 0: empty */
    uint32_t rank;
    int32_t id; /* of the merged piece */
} tk_pair;

/* Makes room for n pairs; false if out of memory. */
bool weft__tk_pairs_new(tk_model *m, size_t n);
/* Adds a pair, in place of an older one. */
void weft__tk_pairs_add(tk_model *m, int32_t left, int32_t right, uint32_t rank, int32_t id);

static inline uint64_t weft__tk_pair_key(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

static inline size_t weft__tk_pair_slot(const tk_model *m, uint64_t key)
{
    const uint64_t h = (key ^ key >> 29) * 0x9E3779B97F4A7C15u;
    return (size_t)(h >> 32) & (m->n_pairs - 1);
}

/* A pair; NULL if it is not merged. */
static inline const tk_pair *weft__tk_pair_find(const tk_model *m, int32_t left, int32_t right)
{
    const uint64_t key = weft__tk_pair_key(left, right);
    for (size_t at = weft__tk_pair_slot(m, key);; at = (at + 1) & (m->n_pairs - 1)) {
        if (m->pairs[at].key == key) return &m->pairs[at];
        if (!m->pairs[at].key) return NULL;
    }
}

#endif
