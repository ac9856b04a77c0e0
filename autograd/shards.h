/* The pieces of parameters inside: see weft/sharding.h. */
#ifndef WEFT_AUTOGRAD_SHARDS_H
#define WEFT_AUTOGRAD_SHARDS_H

#include <weft/sharding.h>

typedef struct shard_param {
    const char *name;
    int64_t elements;
    size_t bucket;
    int64_t offset; /* in its bucket */
    bool alone;     /* in its bucket */
    weft_piece own; /* the whole of it, or the part that it is */
} shard_param;

typedef struct shard_bucket {
    size_t first, n; /* of weft_shards.params */
    int64_t elements;
    weft_dtype dtype;
    int64_t *cuts; /* [size + 1]: rank r owns the elements [cuts[r], cuts[r + 1]) */
} shard_bucket;

struct weft_shards {
    weft_ranks ranks;
    shard_param *params;
    size_t n;
    shard_bucket *buckets;
    size_t n_buckets;
    int64_t *cuts;
    char *names;
};

/* NULL if it is not cut. The name may be that of a piece, PARAM[first:end]. */
const shard_param *weft__shards_find(const weft_shards *s, const char *param);
/* Whether these are all parameters that are cut, or this rank's pieces of them. */
bool weft__shards_match(const weft_shards *s, const weft_graph *g, const weft_value *params,
                        size_t n);
/* The elements of a parameter that a rank owns. */
void weft__shards_range(const weft_shards *s, const shard_param *p, int rank, int64_t *first,
                        int64_t *end);

/* The norm of gradients, and *losses, the sum of all losses in f64 (norm.c). With shards the
 * gradients are in pieces: the same bits as weft_global_norm of the whole gradients. With a split
 * model, counted[i] says whether the norm has grads[i]. Either may be NULL, but not both. *losses
 * is WEFT_NO_VALUE if `loss` is and the model is whole, and `loss` itself if no other process has
 * one. */
weft_value weft__shards_norm(weft_graph *g, const weft_shards *s, const weft_model_split *model,
                             const bool *counted, const weft_value *params, const weft_value *grads,
                             size_t n, weft_value loss, weft_value *losses);
/* Distributes the updated pieces to all ranks: replaces updated[i], of which this rank's piece is
 * new, by the whole new parameter. */
void weft__shards_gather(weft_graph *g, const weft_shards *s, const weft_value *params,
                         weft_value *updated, size_t n);

#endif
