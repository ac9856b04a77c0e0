/* The pieces of parameters: see sharding.h. */
#include "shards.h"

#include "ir/state_key.h"

#include <stdlib.h>
#include <string.h>

/* ---- Buckets ---- */

#define BUCKET_BYTES ((int64_t)4 << 20)

/* The parameters that the optimiser trains, the last declared first. */
static bool collect_params(weft_shards *s, const weft_graph *g, const weft_value *params,
                           const bool *alone, size_t n, const weft_optimizer *optimizer)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += strlen(weft_name_of(g, params[i])) + 1;
    s->params = calloc(n + 1, sizeof *s->params);
    s->names = malloc(bytes + 1);
    if (!s->params || !s->names) return false;
    char *at = s->names;
    for (size_t i = n; i-- > 0;) {
        const char *name = weft_name_of(g, params[i]);
        if (weft_optimizer_freezes(optimizer, name)) continue;
        const size_t length = strlen(name) + 1;
        memcpy(at, name, length);
        shard_param *p = &s->params[s->n++];
        *p = (shard_param){
            .name = at,
            .key = weft_state_key_read(at),
            .elements = weft_shape_numel(weft_shape_of(g, params[i])),
            .alone = alone && alone[i],
        };
        p->key.piece = weft__piece_of(g, params[i]);
        at += length;
    }
    return true;
}

/* Groups the parameters into buckets of one dtype. */
static bool make_buckets(weft_shards *s, const weft_graph *g, size_t bucket_bytes)
{
    /* With a few tiles for each rank, the ranks own about the same. */
    const int64_t enough = 4 * (int64_t)s->ranks.size * WEFT_TILE * (int64_t)sizeof(float);
    int64_t limit = (int64_t)bucket_bytes;
    if (!limit) limit = enough > BUCKET_BYTES ? enough : BUCKET_BYTES;
    s->buckets = calloc(s->n + 1, sizeof *s->buckets);
    if (!s->buckets) return false;
    shard_bucket *b = NULL;
    for (size_t i = 0; i < s->n; i++) {
        shard_param *p = &s->params[i];
        const weft_dtype dtype = weft_dtype_of(g, weft_graph_find(g, p->name));
        const int64_t each = (int64_t)weft_dtype_bytes(dtype);
        if (!b || b->dtype != dtype || b->elements * each >= limit || p->alone || p[-1].alone) {
            b = &s->buckets[s->n_buckets++];
            *b = (shard_bucket){.first = i, .dtype = dtype};
        }
        p->bucket = s->n_buckets - 1;
        p->offset = b->elements;
        b->elements += p->elements;
        b->n++;
    }
    return true;
}

/* The place nearest to `at` in a bucket where a piece may begin. */
static int64_t nearest_cut(const weft_shards *s, const shard_bucket *b, int64_t at)
{
    size_t i = b->first;
    while (i + 1 < b->first + b->n && s->params[i + 1].offset <= at) i++;
    const shard_param *p = &s->params[i];
    const int64_t low = (at - p->offset) / WEFT_TILE * WEFT_TILE;
    const int64_t high = low + WEFT_TILE < p->elements ? low + WEFT_TILE : p->elements;
    return p->offset + (at - p->offset - low <= p->offset + high - at ? low : high);
}

static bool make_cuts(weft_shards *s)
{
    const int64_t size = s->ranks.size;
    s->cuts = calloc(s->n_buckets * ((size_t)size + 1) + 1, sizeof *s->cuts);
    if (!s->cuts) return false;
    for (size_t i = 0; i < s->n_buckets; i++) {
        shard_bucket *b = &s->buckets[i];
        b->cuts = s->cuts + i * ((size_t)size + 1);
        for (int64_t r = 1; r < size; r++)
            b->cuts[r] = nearest_cut(s, b, b->elements / size * r + b->elements % size * r / size);
        b->cuts[size] = b->elements;
    }
    return true;
}

/* Fails if a parameter is called like a state of another kind, or like a piece. */
static bool check_names(const weft_graph *g, const weft_value *params, size_t n, weft_error *error)
{
    for (size_t i = 0; i < n; i++) {
        const char *name = weft_name_of(g, params[i]);
        if (weft__names_model_state(name)) continue;
        weft_error_set(error, WEFT_BAD_ARGUMENT, name,
                       "is the name of a state of training or of a piece, not of a parameter");
        return false;
    }
    return true;
}

weft_shards *weft__shards_new(const weft_graph *graph, const weft_value *params, size_t n,
                              weft_ranks ranks, const weft_shards_options *options,
                              weft_error *error)
{
    static const weft_shards_options defaults = {0};
    const weft_shards_options *o = options ? options : &defaults;
    weft_error_clear(error);
    if (!graph || !params || ranks.size < 1 || ranks.rank < 0 || ranks.rank >= ranks.size) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft__shards_new",
                       "a pointer is NULL, or rank %d is outside [0, %d)", ranks.rank, ranks.size);
        return NULL;
    }
    if (!check_names(graph, params, n, error)) return NULL;
    weft_shards *s = calloc(1, sizeof *s);
    if (s) {
        s->functions = &weft__shards_update;
        s->ranks = ranks;
        if (collect_params(s, graph, params, o->alone, n, o->optimizer) &&
            make_buckets(s, graph, o->bucket_bytes) && make_cuts(s))
            return s;
    }
    weft__shards_free(s);
    weft_error_set(error, WEFT_NO_MEMORY, "weft__shards_new", "out of memory");
    return NULL;
}

void weft__shards_free(weft_shards *shards)
{
    if (!shards) return;
    free(shards->params);
    free(shards->buckets);
    free(shards->cuts);
    free(shards->names);
    free(shards);
}

/* ---- Pieces ---- */

weft_ranks weft__shards_ranks(const weft_shards *shards)
{
    return shards ? shards->ranks : (weft_ranks){0, 0, 1};
}

const shard_param *weft__shards_find(const weft_shards *s, const char *param)
{
    const weft_state_key wanted = weft_state_key_read(param);
    for (size_t i = 0; i < s->n; i++)
        if (weft_state_key_same(&s->params[i].key, &wanted)) return &s->params[i];
    return NULL;
}

bool weft__shards_match(const weft_shards *s, const weft_graph *g, const weft_value *params,
                        size_t n)
{
    bool match = n == s->n;
    for (size_t i = 0; i < n && match; i++) {
        const shard_param *p = weft__shards_find(s, weft_name_of(g, params[i]));
        const int64_t elements = weft_shape_numel(weft_shape_of(g, params[i]));
        int64_t first, end;
        if (p) weft__shards_range(s, p, s->ranks.rank, &first, &end);
        match = p && (elements == p->elements || elements == end - first);
    }
    return match;
}

void weft__shards_range(const weft_shards *s, const shard_param *p, int rank, int64_t *first,
                        int64_t *end)
{
    const int64_t *cuts = s->buckets[p->bucket].cuts;
    const int64_t low = cuts[rank] - p->offset, high = cuts[rank + 1] - p->offset;
    *first = low < 0 ? 0 : low < p->elements ? low : p->elements;
    *end = high < 0 ? 0 : high < p->elements ? high : p->elements;
}

bool weft__shards_piece(const weft_shards *shards, const char *param, int rank, int64_t *first,
                        int64_t *end)
{
    const shard_param *p = shards && param ? weft__shards_find(shards, param) : NULL;
    if (!p || rank < 0 || rank >= shards->ranks.size) return false;
    weft__shards_range(shards, p, rank, first, end);
    return true;
}

weft_state_key weft__shards_key(const weft_shards *shards, const char *param)
{
    const shard_param *p = shards && param ? weft__shards_find(shards, param) : NULL;
    if (!p) return weft_state_key_read(param);
    weft_state_key key = p->key;
    key.is_piece = true;
    weft__shards_range(shards, p, shards->ranks.rank, &key.piece.first, &key.piece.end);
    return key;
}
