/* Graphs whose parameters are in pieces: each bucket of them is gathered before its first reader,
 * and again in the backward pass (ZeRO, stage 3). */
#include "shards.h"

#include <weft/op.h>

#include "ir/state_key.h"

#include <stdlib.h>
#include <string.h>

/* A bucket and the exchange that gathers it. */
typedef struct fetch {
    size_t place;       /* in the order of first readers */
    bool begun;         /* an exchange is under way */
    weft_flight flight; /* valid if it is */
    weft_value all;     /* what the last one received; none: no longer available */
} fetch;

struct weft_gathered {
    weft_graph *g;
    bool taken; /* the graph, by the caller */
    const weft_shards *s;
    weft_value *map; /* by value of the other graph */
    size_t n_map;
    weft_value *pieces;     /* by parameter of the shards: this rank's piece, a state */
    weft_value *whole;      /* by parameter: what the forward pass reads */
    weft_value *declared;   /* the same in order of declaration */
    fetch *fetches;         /* by bucket */
    size_t *order, n_order; /* the buckets by first reader */
    size_t at_hand;         /* the bucket that the backward pass gathered last; n_buckets: none */
    int64_t *counts;        /* by rank */
};

/* ---- Exchanges ---- */

static void begin_fetch(weft_gathered *x, size_t b)
{
    const shard_bucket *bucket = &x->s->buckets[b];
    const weft_ranks ranks = x->s->ranks;
    if (x->fetches[b].begun) return;
    x->fetches[b].begun = true;
    for (int r = 0; r < ranks.size; r++) x->counts[r] = bucket->cuts[r + 1] - bucket->cuts[r];
    const weft_exchange_sizes sizes = {.receive = x->counts};
    x->fetches[b].flight = weft_exchange_begin(x->g, ranks, WEFT_ALL_GATHER, &sizes,
                                               &x->pieces[bucket->first], bucket->n);
}

/* Gathers a bucket, and begins to gather its neighbour, `step` places on in the order, so that it
 * travels meanwhile. */
static void end_fetch(weft_gathered *x, size_t b, int step)
{
    fetch *f = &x->fetches[b];
    const size_t next = f->place + (size_t)step; /* wraps below 0 */
    weft_graph_push_scope(x->g, "fetch.%zu", b);
    begin_fetch(x, b);
    if (f->place < x->n_order && next < x->n_order) begin_fetch(x, x->order[next]);
    f->all = weft_exchange_end(x->g, f->flight);
    f->begun = false;
    weft_graph_pop_scope(x->g);
}

/* A parameter out of its gathered bucket. */
static weft_value take(const weft_gathered *x, size_t param, weft_shape shape)
{
    const shard_param *p = &x->s->params[param];
    const weft_value flat =
        weft_slice(x->g, x->fetches[p->bucket].all, 0, p->offset, p->offset + p->elements, 1);
    return weft_reshape(x->g, flat, shape);
}

/* ---- Copying ---- */

/* The index among the shards' parameters of a value of the whole graph; -1 if it is not one. */
static ptrdiff_t param_of(const weft_gathered *x, const weft_graph *whole, uint32_t id)
{
    const weft_value value = weft_value_from_id(whole, id);
    const size_t node = weft_producer_of(whole, value);
    if (weft_graph_node(whole, node).op != &weft_op_state) return -1;
    const shard_param *p = weft__shards_find(x->s, weft_name_of(whole, value));
    return p ? p - x->s->params : -1;
}

/* Lists the buckets in the order of their first readers. */
static void find_order(weft_gathered *x, const weft_graph *whole)
{
    for (size_t b = 0; b < x->s->n_buckets; b++) x->fetches[b].place = SIZE_MAX;
    for (size_t k = 0; k < weft_graph_node_count(whole); k++) {
        const weft_node_info node = weft_graph_node(whole, k);
        for (size_t i = 0; i < node.n_in; i++) {
            const ptrdiff_t p = param_of(x, whole, node.in[i]);
            fetch *f = p < 0 ? NULL : &x->fetches[x->s->params[p].bucket];
            if (!f || f->place != SIZE_MAX) continue;
            f->place = x->n_order;
            x->order[x->n_order++] = x->s->params[p].bucket;
        }
    }
}

static void declare_pieces(weft_gathered *x)
{
    for (size_t i = 0; i < x->s->n; i++) {
        const shard_param *p = &x->s->params[i];
        const weft_state_key key = weft__shards_key(x->s, p->name);
        x->pieces[i] = weft__state_of_key(x->g, &key, x->s->buckets[p->bucket].dtype,
                                          WEFT_SHAPE(key.piece.end - key.piece.first));
    }
}

/* The whole of a parameter of the other graph, whose bucket is gathered at its first reader. */
static weft_value gather_param(weft_gathered *x, const weft_graph *whole, size_t i, uint32_t id)
{
    const shard_param *p = &x->s->params[i];
    if (!weft_is_value(x->fetches[p->bucket].all)) end_fetch(x, p->bucket, 1);
    x->whole[i] = take(x, i, weft_shape_of(whole, weft_value_from_id(whole, id)));
    weft_name(x->g, x->whole[i], p->name);
    return x->map[id] = x->whole[i];
}

/* What an input of a copied node becomes. */
static weft_value input_of(weft_gathered *x, const weft_graph *whole, uint32_t id)
{
    if (weft_is_value(x->map[id])) return x->map[id];
    const ptrdiff_t i = param_of(x, whole, id);
    return i < 0 ? WEFT_NO_VALUE : gather_param(x, whole, (size_t)i, id);
}

static void copy_nodes(weft_gathered *x, const weft_graph *whole, weft_value *in)
{
    for (size_t k = 0; k < weft_graph_node_count(whole) && weft_graph_status(x->g) == WEFT_OK;
         k++) {
        const weft_node_info node = weft_graph_node(whole, k);
        weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}};
        if (param_of(x, whole, node.first_out) >= 0) continue;
        for (size_t i = 0; i < node.n_in; i++) in[i] = input_of(x, whole, node.in[i]);
        weft_graph_copy_node(x->g, whole, k, in, out);
        for (size_t i = 0; i < node.n_out; i++) x->map[node.first_out + i] = out[i];
    }
    /* Parameters without a reader are also gathered: their gradients, zeros, have the shape of the
     * whole. */
    for (size_t k = 0; k < weft_graph_node_count(whole); k++) {
        const uint32_t id = weft_graph_node(whole, k).first_out;
        const ptrdiff_t i = param_of(x, whole, id);
        if (i >= 0) input_of(x, whole, id);
    }
}

static size_t count_values(const weft_graph *whole, size_t *max_in)
{
    size_t n = 1;
    for (size_t k = 0; k < weft_graph_node_count(whole); k++) {
        const weft_node_info node = weft_graph_node(whole, k);
        if (node.n_in > *max_in) *max_in = node.n_in;
        n = node.first_out + node.n_out;
    }
    return n;
}

weft_gathered *weft__gathered_new(const weft_graph *whole, const weft_shards *shards,
                                  weft_error *error)
{
    weft_error_clear(error);
    size_t max_in = 1;
    if (!whole || !shards) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft__gathered_new",
                       "the graph or the shards are NULL");
        return NULL;
    }
    if (weft_graph_status(whole) != WEFT_OK) {
        weft_error_copy(error, weft_graph_error(whole));
        return NULL;
    }
    weft_gathered *x = calloc(1, sizeof *x);
    weft_value *in = NULL;
    bool good = false;
    if (x) {
        x->s = shards;
        x->n_map = count_values(whole, &max_in);
        x->g = weft_graph_new();
        x->map = calloc(x->n_map, sizeof *x->map);
        x->pieces = calloc(3 * shards->n + 1, sizeof *x->pieces);
        x->fetches = calloc(shards->n_buckets + 1, sizeof *x->fetches);
        x->order = calloc(shards->n_buckets + 1, sizeof *x->order);
        x->counts = calloc((size_t)shards->ranks.size, sizeof *x->counts);
        in = calloc(max_in, sizeof *in);
    }
    if (!x || !x->g || !x->map || !x->pieces || !x->fetches || !x->order || !x->counts || !in) {
        weft_error_set(error, WEFT_NO_MEMORY, "weft__gathered_new", "out of memory");
    } else {
        x->whole = x->pieces + shards->n;
        x->declared = x->whole + shards->n;
        x->at_hand = shards->n_buckets;
        find_order(x, whole);
        declare_pieces(x);
        copy_nodes(x, whole, in);
        for (size_t i = 0; i < shards->n; i++) x->declared[i] = x->whole[shards->n - 1 - i];
        good = weft_error_copy(error, weft_graph_error(x->g)) == WEFT_OK;
    }
    free(in);
    if (good) return x;
    weft__gathered_free(x);
    return NULL;
}

void weft__gathered_free(weft_gathered *gathered)
{
    if (!gathered) return;
    if (!gathered->taken) weft_graph_free(gathered->g);
    free(gathered->map);
    free(gathered->pieces);
    free(gathered->fetches);
    free(gathered->order);
    free(gathered->counts);
    free(gathered);
}

weft_graph *weft__gathered_graph(weft_gathered *gathered)
{
    if (!gathered) return NULL;
    gathered->taken = true;
    return gathered->g;
}

weft_value weft__gathered_value(const weft_gathered *gathered, weft_value value)
{
    return gathered && value.id < gathered->n_map ? gathered->map[value.id] : WEFT_NO_VALUE;
}

const weft_value *weft__gathered_params(const weft_gathered *gathered, size_t *count)
{
    if (count) *count = gathered ? gathered->s->n : 0;
    return gathered ? gathered->declared : NULL;
}

weft_value weft__gathered_piece(const weft_gathered *gathered, const char *param)
{
    const shard_param *p = gathered && param ? weft__shards_find(gathered->s, param) : NULL;
    return p ? gathered->pieces[p - gathered->s->params] : WEFT_NO_VALUE;
}

/* ---- The backward pass ---- */

weft_value weft__gathered_again(weft_gathered *gathered, weft_value value)
{
    weft_gathered *x = gathered;
    for (size_t i = 0; x && i < x->s->n; i++) {
        if (x->whole[i].id != value.id || !value.id) continue;
        const size_t b = x->s->params[i].bucket;
        if (x->at_hand != b) end_fetch(x, b, -1);
        x->at_hand = b;
        return take(x, i, weft_shape_of(x->g, value));
    }
    return value;
}
