/* Norms over several processes: of gradients in pieces, and of models whose parameters are divided
 * among processes. Sums of squares in f64 are gathered and added in one order. */
#include "shards.h"

#include <stdlib.h>

static int64_t tiles_of(int64_t elements)
{
    return (elements + WEFT_TILE - 1) / WEFT_TILE;
}

/* What ranks gather: the tiles of their pieces, in the order of params, and a loss. */
typedef struct gathered {
    weft_graph *g;
    const weft_shards *s;
    const weft_value *params;
    size_t n;
    int64_t tiles;
    int64_t *counts, *at; /* by rank: elements; the next to be read */
    int32_t *order;       /* of the tiles of whole parameters */
} gathered;

static void count_tiles(gathered *w)
{
    int64_t first, end;
    for (size_t i = 0; i < w->n; i++) {
        const shard_param *p = weft__shards_find(w->s, weft_name_of(w->g, w->params[i]));
        for (int r = 0; r < w->s->ranks.size; r++) {
            weft__shards_range(w->s, p, r, &first, &end);
            w->counts[r] += tiles_of(end - first);
            w->tiles += tiles_of(end - first);
        }
    }
}

static void order_tiles(gathered *w)
{
    size_t k = 0;
    int64_t first, end;
    for (size_t i = 0; i < w->n; i++) {
        const shard_param *p = weft__shards_find(w->s, weft_name_of(w->g, w->params[i]));
        for (int r = 0; r < w->s->ranks.size; r++) {
            weft__shards_range(w->s, p, r, &first, &end);
            for (int64_t t = tiles_of(end - first); t > 0; t--) w->order[k++] = (int32_t)w->at[r]++;
        }
    }
}

/* The loss as one element in f64. */
static weft_value loss_element(weft_graph *g, weft_value loss)
{
    return weft_reshape(g, weft_cast(g, loss, WEFT_F64), WEFT_SHAPE(1));
}

/* Element i of x, as a scalar. */
static weft_value element(weft_graph *g, weft_value x, int64_t i)
{
    return weft_squeeze(g, weft_slice(g, x, 0, i, i + 1, 1), 0);
}

/* Gathers the sums of all ranks' tiles and their losses, and sets *order to where the tiles are. */
static weft_value gather_tiles(gathered *w, const weft_value *pieces, weft_value loss,
                               weft_value *order, weft_value *losses)
{
    weft_graph *g = w->g;
    const int size = w->s->ranks.size;
    const bool has_loss = weft_is_value(loss);
    weft_value x[2];
    size_t n = 0;
    for (int r = 0; r < size; r++) w->counts[r] += has_loss;
    for (int r = 1; r < size; r++) w->at[r] = w->at[r - 1] + w->counts[r - 1];
    order_tiles(w);
    if (w->n) x[n++] = weft_square_sums(g, pieces, w->n);
    if (has_loss) x[n++] = loss_element(g, loss);
    const weft_exchange_sizes sizes = {.receive = w->counts};
    weft_flight flight = weft_exchange_begin(g, w->s->ranks, WEFT_ALL_GATHER, &sizes, x, n);
    weft_value all = weft_exchange_end(g, flight);
    *order = weft_constant(g, WEFT_I32, WEFT_SHAPE(w->tiles), w->order);
    *losses = WEFT_NO_VALUE;
    for (int r = 0; has_loss && r < size; r++) {
        /* at[r] is now past the rank's tiles, at its loss. */
        const weft_value one = element(g, all, w->at[r]);
        *losses = r ? weft_add(g, *losses, one) : one;
    }
    return all;
}

/* Sums of squares of pieces of gradients, of which those at `order` count, once each. */
static weft_value shared_sums(weft_graph *g, const weft_shards *s, const weft_gradients *x,
                              weft_value *order, weft_value *losses)
{
    gathered w = {.g = g, .s = s, .params = x->params, .n = x->n};
    weft_value all = WEFT_NO_VALUE;
    *order = WEFT_NO_VALUE;
    w.counts = calloc(2 * (size_t)s->ranks.size, sizeof *w.counts);
    if (w.counts) {
        w.at = w.counts + s->ranks.size;
        count_tiles(&w);
        w.order = malloc(((size_t)w.tiles + 1) * sizeof *w.order);
    }
    if (w.order)
        all = gather_tiles(&w, x->grads, x->loss, order, losses);
    else
        weft_graph_fail_in(g, "weft_apply_gradients", WEFT_NO_MEMORY, "out of memory");
    free(w.counts);
    free(w.order);
    return all;
}

/* ---- Models of several processes ---- */

/* The sum of squares of gradients that this process counts, and the loss of its shards' ranks. */
static weft_value own_sum(weft_graph *g, const weft_shards *s, const weft_gradients *x,
                          weft_value *losses)
{
    weft_value sums, order;
    *losses = x->loss;
    if (s && s->ranks.size > 1 && (x->n || weft_is_value(x->loss))) {
        sums = shared_sums(g, s, x, &order, losses);
        if (x->n) sums = weft_gather(g, sums, order, 0);
    } else if (x->n) {
        sums = weft_square_sums(g, x->grads, x->n);
    }
    return x->n ? weft_sum(g, sums, WEFT_ALL_AXES, true) : weft_fill(g, WEFT_F64, WEFT_SHAPE(1), 0);
}

/* The norm of all processes' gradients, from the sum of this one, and the sum of their losses. */
static weft_value split_norm(weft_graph *g, weft_ranks ranks, weft_dtype dtype, weft_value sum,
                             weft_value loss, weft_value *losses)
{
    const size_t size = (size_t)ranks.size;
    int64_t *counts = malloc(size * sizeof *counts);
    int32_t *order = malloc(size * sizeof *order);
    weft_value norm = WEFT_NO_VALUE;
    for (size_t r = 0; counts && order && r < size; r++) {
        counts[r] = 2;
        order[r] = (int32_t)(2 * r);
    }
    if (counts && order) {
        const weft_value x[2] = {sum, weft_is_value(loss)
                                          ? loss_element(g, loss)
                                          : weft_fill(g, WEFT_F64, WEFT_SHAPE(1), 0)};
        const weft_exchange_sizes sizes = {.receive = counts};
        const weft_flight flight = weft_exchange_begin(g, ranks, WEFT_ALL_GATHER, &sizes, x, 2);
        const weft_value all = weft_exchange_end(g, flight);
        for (int64_t r = 0; r < ranks.size; r++) {
            const weft_value one = element(g, all, 2 * r + 1);
            *losses = r ? weft_add(g, *losses, one) : one;
        }
        norm = weft_root_of_sum(g, all, weft_constant(g, WEFT_I32, WEFT_SHAPE(ranks.size), order),
                                dtype);
    } else {
        weft_graph_fail_in(g, "weft_apply_gradients", WEFT_NO_MEMORY, "out of memory");
    }
    free(counts);
    free(order);
    return norm;
}

/* The same of the gradients that this process counts. */
static weft_value model_norm(weft_graph *g, const update_gradients *all, weft_value *losses)
{
    const size_t n = all->of.n;
    weft_value *lists = malloc(2 * n * sizeof *lists);
    size_t k = 0;
    if (!lists) {
        weft_graph_fail_in(g, "weft_apply_gradients", WEFT_NO_MEMORY, "out of memory");
        return WEFT_NO_VALUE;
    }
    for (size_t i = 0; i < n; i++) {
        if (!all->counted[i]) continue;
        lists[k] = all->of.params[i];
        lists[n + k++] = all->of.grads[i];
    }
    const weft_gradients own = {lists, lists + n, k, all->of.loss};
    const weft_value sum = own_sum(g, all->shards, &own, losses);
    free(lists);
    return split_norm(g, all->model->ranks, weft_dtype_of(g, all->of.params[0]), sum, *losses,
                      losses);
}

weft_value weft__shards_norm(weft_graph *g, const update_gradients *all, weft_value *losses)
{
    const weft_shards *s = all->shards;
    weft_value norm = WEFT_NO_VALUE, order;
    weft_graph_push_scope(g, "norm");
    if (all->model) {
        norm = model_norm(g, all, losses);
    } else if (s->ranks.size == 1) {
        norm = weft_global_norm(g, all->of.grads, all->of.n);
        *losses = all->of.loss;
    } else {
        const weft_value sums = shared_sums(g, s, &all->of, &order, losses);
        if (weft_is_value(sums))
            norm = weft_root_of_sum(g, sums, order, weft_dtype_of(g, all->of.params[0]));
    }
    weft_graph_pop_scope(g);
    return norm;
}
