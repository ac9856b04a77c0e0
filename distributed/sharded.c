/* The nodes of a training update on several processes: gradients to the owners of their pieces,
 * updated pieces to everyone. A group of one process has nothing to exchange, and adds no such
 * nodes. */
#include "shards.h"

#include <stdlib.h>
#include <string.h>

/* At most this many buckets travel at a time; before the next one, the first must have arrived.
 * This bounds the memory of exchanges. */
#define BUCKETS_UNDER_WAY 4

/* A bucket's exchanges under way. Ranks may have several sums, each with an exchange of its own. */
struct weft_reducer {
    weft_graph *g;
    const weft_shards *s;
    uint32_t batches;
    size_t n_own, n_most; /* sums of this rank; the most of any rank */
    weft_value *sums;     /* [params of the shards][n_own] */
    size_t *added;        /* by bucket: parameters whose gradient is known */
    weft_flight *flights; /* [buckets][n_most] */
    int64_t *counts;      /* [2][size], of one exchange */
    weft_value *list;     /* [params of the shards] */
    weft_value *reduced;  /* by bucket: the sum of this rank's piece */
    size_t *order;        /* the buckets in the order in which they were sent */
    size_t n_sent, n_received;
};

static bool is_alone(const weft_shards *s)
{
    return s->ranks.size == 1;
}

static size_t sums_of(const weft_reducer *r, int rank, weft_sum_node nodes[WEFT_SUM_NODES])
{
    return weft__sum_nodes(r->batches, weft__rank_batches(r->batches, rank, r->s->ranks.size),
                           nodes);
}

weft_reducer *weft__reducer_new(weft_graph *graph, const weft_shards *shards, uint32_t batches)
{
    weft_sum_node nodes[WEFT_SUM_NODES];
    const int processes = shards ? shards->ranks.size : 0;
    if (!processes || batches < (uint32_t)processes) {
        weft_graph_fail_in(graph, "weft__reducer_new", WEFT_BAD_ARGUMENT,
                           "%u batches are too few for %d processes", batches, processes);
        return NULL;
    }
    weft_reducer *r = calloc(1, sizeof *r);
    if (!r) {
        weft_graph_fail_in(graph, "weft__reducer_new", WEFT_NO_MEMORY, "out of memory");
        return NULL;
    }
    r->g = graph;
    r->s = shards;
    r->batches = batches;
    for (int k = 0; k < processes; k++) {
        const size_t n = sums_of(r, k, nodes);
        if (n > r->n_most) r->n_most = n;
        if (k == shards->ranks.rank) r->n_own = n;
    }
    r->sums = calloc(shards->n * r->n_own + 1, sizeof *r->sums);
    r->added = calloc(shards->n_buckets + 1, sizeof *r->added);
    r->flights = calloc(shards->n_buckets * r->n_most + 1, sizeof *r->flights);
    r->counts = calloc(2 * (size_t)processes, sizeof *r->counts);
    r->list = calloc(shards->n + 1, sizeof *r->list);
    r->reduced = calloc(shards->n_buckets + 1, sizeof *r->reduced);
    r->order = calloc(shards->n_buckets + 1, sizeof *r->order);
    if (r->sums && r->added && r->flights && r->counts && r->list && r->reduced && r->order)
        return r;
    weft_graph_fail_in(graph, "weft__reducer_new", WEFT_NO_MEMORY, "out of memory");
    weft__reducer_free(r);
    return NULL;
}

void weft__reducer_free(weft_reducer *reducer)
{
    if (!reducer) return;
    free(reducer->sums);
    free(reducer->added);
    free(reducer->flights);
    free(reducer->counts);
    free(reducer->list);
    free(reducer->reduced);
    free(reducer->order);
    free(reducer);
}

/* Sends the pieces of sum k of a bucket to their owners. A rank with fewer sums sends nothing. */
static weft_flight send_bucket(weft_reducer *r, const shard_bucket *b, size_t k)
{
    const weft_ranks ranks = r->s->ranks;
    weft_sum_node nodes[WEFT_SUM_NODES];
    int64_t *send = r->counts, *receive = send + ranks.size;
    const bool sends = k < r->n_own;
    for (int rank = 0; rank < ranks.size; rank++) {
        send[rank] = sends ? b->cuts[rank + 1] - b->cuts[rank] : 0;
        receive[rank] =
            k < sums_of(r, rank, nodes) ? b->cuts[ranks.rank + 1] - b->cuts[ranks.rank] : 0;
    }
    size_t n = 0;
    for (size_t i = 0; sends && i < b->n; i++)
        r->list[n++] = r->sums[(b->first + i) * r->n_own + k];
    if (!n) r->list[n++] = weft_fill(r->g, b->dtype, WEFT_SHAPE(0), 0);
    const weft_exchange_sizes sizes = {.send = send, .receive = receive};
    return weft_exchange_begin(r->g, ranks, WEFT_ALL_TO_ALL, &sizes, r->list, n);
}

/* Adds the sums of all ranks, which received[k] has by rank, in the order of the tree. */
static weft_value add_sums(const weft_reducer *r, const weft_value *received, int64_t piece)
{
    weft_value values[2 * WEFT_SUM_NODES];
    weft_sum_node nodes[2 * WEFT_SUM_NODES], own[WEFT_SUM_NODES];
    size_t top = 0;
    int64_t at[WEFT_SUM_NODES] = {0};
    for (int rank = 0; rank < r->s->ranks.size; rank++) {
        const size_t n = sums_of(r, rank, own);
        for (size_t k = 0; k < n; k++) {
            nodes[top] = own[k];
            values[top++] = weft_slice(r->g, received[k], 0, at[k], at[k] + piece, 1);
            at[k] += piece;
            for (; top > 1 && weft__sum_joins(r->batches, nodes[top - 2], nodes[top - 1]); top--) {
                nodes[top - 2].end = nodes[top - 1].end;
                values[top - 2] = weft_add(r->g, values[top - 2], values[top - 1]);
            }
        }
    }
    return values[0];
}

/* Ends the exchanges of a bucket: list[b] becomes the sum of this rank's piece. */
static void receive_bucket(weft_reducer *r, size_t b)
{
    const shard_bucket *bucket = &r->s->buckets[b];
    const int rank = r->s->ranks.rank;
    weft_value received[WEFT_SUM_NODES];
    weft_graph_push_scope(r->g, "reduce.%zu", b);
    for (size_t k = 0; k < r->n_most; k++)
        received[k] = weft_exchange_end(r->g, r->flights[b * r->n_most + k]);
    r->reduced[b] = add_sums(r, received, bucket->cuts[rank + 1] - bucket->cuts[rank]);
    weft_graph_pop_scope(r->g);
}

void weft__reducer_add(weft_reducer *reducer, weft_value param, const weft_value *sums)
{
    weft_reducer *r = reducer;
    const shard_param *p = r ? weft__shards_find(r->s, weft_name_of(r->g, param)) : NULL;
    if (!p) return;
    memcpy(r->sums + (size_t)(p - r->s->params) * r->n_own, sums, r->n_own * sizeof *sums);
    const shard_bucket *b = &r->s->buckets[p->bucket];
    if (++r->added[p->bucket] < b->n) return;
    r->order[r->n_sent++] = p->bucket;
    if (is_alone(r->s)) return;
    weft_graph_push_scope(r->g, "reduce.%zu", p->bucket);
    for (size_t k = 0; k < r->n_most; k++)
        r->flights[p->bucket * r->n_most + k] = send_bucket(r, b, k);
    weft_graph_pop_scope(r->g);
    if (r->n_sent > BUCKETS_UNDER_WAY) receive_bucket(r, r->order[r->n_received++]);
}

/* This rank's piece of the gradient of a parameter. */
static weft_value piece_of(const weft_reducer *r, const shard_param *p)
{
    const int rank = r->s->ranks.rank;
    int64_t first, end;
    /* A single rank has one sum of each gradient, the whole. */
    if (is_alone(r->s))
        return weft_reshape(r->g, r->sums[p - r->s->params], WEFT_SHAPE(p->elements));
    weft__shards_range(r->s, p, rank, &first, &end);
    if (first == end) return weft_slice(r->g, r->reduced[p->bucket], 0, 0, 0, 1);
    const int64_t from = p->offset + first - r->s->buckets[p->bucket].cuts[rank];
    return weft_slice(r->g, r->reduced[p->bucket], 0, from, from + end - first, 1);
}

void weft__reducer_finish(weft_reducer *reducer, const weft_value *params, size_t n,
                          weft_value *pieces)
{
    weft_reducer *r = reducer;
    if (!r || weft_graph_status(r->g) != WEFT_OK) return;
    if (r->n_sent != r->s->n_buckets)
        weft_graph_fail_in(r->g, "weft__reducer_finish", WEFT_BAD_ARGUMENT,
                           "%zu of %zu buckets are complete: the graph lacks parameters that were "
                           "cut",
                           r->n_sent, r->s->n_buckets);
    while (!is_alone(r->s) && r->n_received < r->n_sent)
        receive_bucket(r, r->order[r->n_received++]);
    for (size_t i = 0; i < n; i++) {
        const shard_param *p = weft__shards_find(r->s, weft_name_of(r->g, params[i]));
        pieces[i] = p ? piece_of(r, p) : WEFT_NO_VALUE;
    }
}

/* ---- Updated pieces ---- */

static weft_value slice_of(weft_graph *g, const weft_shards *s, const shard_param *p,
                           weft_value value)
{
    int64_t first, end;
    weft__shards_range(s, p, s->ranks.rank, &first, &end);
    return weft_slice(g, weft_reshape(g, value, WEFT_SHAPE(p->elements)), 0, first, end, 1);
}

weft_value weft__shards_slice(weft_graph *graph, const weft_shards *shards, const char *param,
                              weft_value value)
{
    const shard_param *p = shards && param ? weft__shards_find(shards, param) : NULL;
    return p ? slice_of(graph, shards, p, value) : WEFT_NO_VALUE;
}

/* The exchanges of updated pieces, while the graph is built. */
typedef struct gathering {
    weft_graph *g;
    const weft_shards *s;
    weft_value *updated;
    size_t *index;        /* by parameter of the shards: of `updated` */
    weft_value *list;     /* [params of the shards] */
    weft_flight *flights; /* by bucket */
    int64_t *counts;      /* by rank */
} gathering;

static void send_pieces(gathering *w, size_t b)
{
    const shard_bucket *bucket = &w->s->buckets[b];
    for (int r = 0; r < w->s->ranks.size; r++) w->counts[r] = bucket->cuts[r + 1] - bucket->cuts[r];
    for (size_t k = 0; k < bucket->n; k++) {
        const shard_param *p = &w->s->params[bucket->first + k];
        w->list[k] = slice_of(w->g, w->s, p, w->updated[w->index[bucket->first + k]]);
    }
    const weft_exchange_sizes sizes = {.receive = w->counts};
    weft_graph_push_scope(w->g, "gather.%zu", b);
    w->flights[b] =
        weft_exchange_begin(w->g, w->s->ranks, WEFT_ALL_GATHER, &sizes, w->list, bucket->n);
    weft_graph_pop_scope(w->g);
}

static void receive_pieces(gathering *w, size_t b)
{
    const shard_bucket *bucket = &w->s->buckets[b];
    weft_graph_push_scope(w->g, "gather.%zu", b);
    const weft_value all = weft_exchange_end(w->g, w->flights[b]);
    for (size_t k = 0; k < bucket->n; k++) {
        const shard_param *p = &w->s->params[bucket->first + k];
        weft_value *to = &w->updated[w->index[bucket->first + k]];
        const weft_value whole = weft_slice(w->g, all, 0, p->offset, p->offset + p->elements, 1);
        *to = weft_assign(w->g, *to, weft_reshape(w->g, whole, weft_shape_of(w->g, *to)));
    }
    weft_graph_pop_scope(w->g);
}

void weft__shards_gather(weft_graph *g, const weft_shards *s, const weft_value *params,
                         weft_value *updated, size_t n)
{
    if (is_alone(s)) return;
    gathering w = {g,
                   s,
                   updated,
                   calloc(s->n + 1, sizeof *w.index),
                   calloc(s->n + 1, sizeof *w.list),
                   calloc(s->n_buckets + 1, sizeof *w.flights),
                   calloc((size_t)s->ranks.size, sizeof *w.counts)};
    if (w.index && w.list && w.flights && w.counts) {
        for (size_t i = 0; i < n; i++)
            w.index[weft__shards_find(s, weft_name_of(g, params[i])) - s->params] = i;
        for (size_t b = 0; b < s->n_buckets + BUCKETS_UNDER_WAY; b++) {
            if (b >= BUCKETS_UNDER_WAY) receive_pieces(&w, b - BUCKETS_UNDER_WAY);
            if (b < s->n_buckets) send_pieces(&w, b);
        }
    } else {
        weft_graph_fail_in(g, "weft_apply_gradients", WEFT_NO_MEMORY, "out of memory");
    }
    free(w.index);
    free(w.list);
    free(w.flights);
    free(w.counts);
}
