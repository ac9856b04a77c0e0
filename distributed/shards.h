/* The pieces of parameters inside: see sharding.h. */
#ifndef WEFT_AUTOGRAD_SHARDS_H
#define WEFT_AUTOGRAD_SHARDS_H

#include "sharding.h"

#include "processes.h"

typedef struct shard_param {
    const char *name;
    weft_state_key key; /* of the name; its piece is the whole, or the part that it is */
    int64_t elements;
    size_t bucket;
    int64_t offset; /* in its bucket */
    bool alone;     /* in its bucket */
} shard_param;

typedef struct shard_bucket {
    size_t first, n; /* of weft_shards.params */
    int64_t elements;
    weft_dtype dtype;
    int64_t *cuts; /* [size + 1]: rank r owns the elements [cuts[r], cuts[r + 1]) */
} shard_bucket;

struct weft_shards {
    const update_processes *functions; /* first member: see processes.h */
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

/* Functions of update_processes: norm.c and sharded.c. */
weft_value weft__shards_norm(weft_graph *g, const update_gradients *all, weft_value *losses);
void weft__shards_gather(weft_graph *g, const weft_shards *s, const weft_value *params,
                         weft_value *updated, size_t n);
/* What an update calls (update.c). */
extern const update_processes weft__shards_update;

#endif
