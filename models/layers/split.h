/* Random numbers of layers that are split among ranks. */
#ifndef WEFT_MODELS_SPLIT_H
#define WEFT_MODELS_SPLIT_H

#include <weft/op.h>
#include <weft/parallel.h>

/* Called before and after a random op on a rank's own values. Each rank skips the keys of the
 * others, so the ranks' keys differ here and are equal again for the ops that follow. */
static inline void split_keys_before(weft_graph *g, weft_ranks ranks)
{
    for (int32_t r = 0; r < ranks.rank; r++) weft_graph_random_key(g);
}
static inline void split_keys_after(weft_graph *g, weft_ranks ranks)
{
    for (int32_t r = ranks.rank + 1; r < ranks.size; r++) weft_graph_random_key(g);
}

#endif
