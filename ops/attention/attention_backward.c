/* The kernel of sdpa_grad. It computes the weights again from lse (Dao et al. 2022); the formulas
 * are in sdpa.c.
 *
 * A tile is a chunk of the keys of one head. It goes through all blocks of queries of the heads
 * that read it, once for each piece of the chunk that stays in the second-level cache. With few
 * heads the keys are cut into several chunks, each with a dQ of its own, and a second phase adds
 * these in order. Time O(queries keys), memory O(queries chunks + keys). */
#include "attention_block.h"
#include "kernels/sums.h"

typedef struct gradients {
    T *q, *dout, *dq;             /* transposed: [dim, LANES], [value_dim, LANES], [dim, LANES] */
    T *s, *ds;                    /* [KEY_BLOCK, LANES] */
    T *lse, *low, *delta;         /* [LANES] */
    bool any_blind, blind[LANES]; /* queries that attend to no key */
    tile_kind product;            /* of dout v^T; dout is as it reads it */
    rows x, dy;                   /* the block's rows of q and dout */
    rows k, v;                    /* of the piece */
    int64_t piece;                /* its first key */
    T *dk, *dv;                   /* of the head */
    int64_t dk_row, dv_row;
} gradients;

static inline T lane_at(const weft_tensor *t, const block *b, int64_t i)
{
    return ((const T *)t->data)[b->batch * t->stride[0] + b->head * t->stride[1] +
                                (b->first + i) * t->stride[2]];
}

/* lse and D of each query. Where a query attends to no key, e^(-inf - 0) = 0. */
static inline void load_statistics(const weft_call *call, const block *b, gradients *g)
{
    const weft_tensor *out = &call->in[OUT];
    const weft_tensor *dlse = b->attr->dlse ? &call->in[REST + b->attr->mask] : NULL;
    const T *y = head_of(out, b->batch, b->head) + b->first * out->stride[1];
    g->any_blind = false;
    for (int64_t i = 0; i < LANES; i++) g->lse[i] = g->low[i] = g->delta[i] = 0;
    for (int64_t i = 0; i < b->n; i++) {
        const T *a = y + i * out->stride[1], *c = g->dy.at + i * g->dy.row;
        const T lse = lane_at(&call->in[LSE], b, i);
        double sum = 0;
#define TERM(x) (a[x] * c[x])
        SUM_ROW(sum, b->z.value_dim, TERM)
#undef TERM
        g->delta[i] = (T)(dlse ? sum - (double)lane_at(dlse, b, i) : sum);
        g->blind[i] = lse == (T)-INFINITY;
        g->any_blind |= g->blind[i];
        g->lse[i] = g->blind[i] ? 0 : lse;
        g->low[i] = lane_at(&call->in[LSE_LOW], b, i);
    }
}

/* Queries that attend to no key get no gradient, whatever the keys hold. */
static inline void clear_blind(const block *b, gradients *g)
{
    for (int64_t i = 0; g->any_blind && i < b->n; i++)
        for (int64_t c = 0; g->blind[i] && c < b->z.dim; c++) g->dq[c * LANES + i] = 0;
}

/* s: scores become drop(P). ds: drop(dO V^T) becomes scale dS, 0 where masked out, whatever V
 * holds there. */
static inline void weigh_back(const block *b, int64_t n, const gradients *g)
{
    const T scale = (T)b->attr->scale;
    for (int64_t j = 0; j < n; j++) {
        T *s = g->s + j * LANES, *ds = g->ds + j * LANES;
        VM_EACH (i, b->width) {
            const vm_lanes p = vm_lanes_exp((VM_AT(s + i) - VM_AT(g->lse + i)) - VM_AT(g->low + i));
            const vm_lanes x = scale * p * (VM_AT(ds + i) - VM_AT(g->delta + i));
            VM_AT(s + i) = p;
            VM_AT(ds + i) = vm_lanes_if_positive(p, x);
        }
    }
}

static inline void weigh_back_dropped(const block *b, int64_t key, int64_t n, const gradients *g)
{
    const T scale = (T)b->attr->scale, inverse = (T)(1 / (1 - b->attr->p));
    draws d;
    begin_draws(b, &d);
    for (int64_t j = 0; j < n; j++) {
        if (j % DRAW_KEYS == 0) draw(b, &d, key + j, min_of(DRAW_KEYS, n - j));
        const uint32_t *w = words_of(b, &d, j % DRAW_KEYS);
        T *s = g->s + j * LANES, *ds = g->ds + j * LANES;
        SIMD for (int64_t i = 0; i < b->width; i++)
        {
            const T p = vm_exp((s[i] - g->lse[i]) - g->low[i]),
                    kept = w[i] >= d.limit ? inverse : 0;
            s[i] = kept * p;
            const T x = scale * p * (kept * ds[i] - g->delta[i]);
            ds[i] = p > 0 ? x : p;
        }
    }
}

/* One block of keys against one of queries: the five products. */
static inline void backward_tile(const block *b, int64_t key, int64_t n, const gradients *g)
{
    const sizes *z = &b->z;
    const int hidden = hidden_places(b, key, n);
    if (hidden == 2) return;
    const rows k = {g->k.at + (key - g->piece) * g->k.row, g->k.row};
    scores(b, key, n, hidden, k, g->q, g->s);
    const rows v = g->product == TILE_PAIRS
                       ? pairs_from(b->values, b->batch, b->kv_head, key)
                       : (rows){g->v.at + (key - g->piece) * g->v.row, g->v.row};
    multiply_rows(b, g->product, z->value_dim, n, v, g->dout, g->ds);
    if (b->attr->p > 0)
        weigh_back_dropped(b, key, n, g);
    else
        weigh_back(b, n, g);
    tile_product((tile_operands){.m = n,
                                 .n = z->value_dim,
                                 .depth = b->n,
                                 .a = g->s,
                                 .a_row = LANES,
                                 .a_step = 1,
                                 .b = g->dy.at,
                                 .b_row = g->dy.row,
                                 .c = g->dv + key * g->dv_row,
                                 .c_row = g->dv_row,
                                 .add = true});
    tile_product((tile_operands){.m = n,
                                 .n = z->dim,
                                 .depth = b->n,
                                 .a = g->ds,
                                 .a_row = LANES,
                                 .a_step = 1,
                                 .b = g->x.at,
                                 .b_row = g->x.row,
                                 .c = g->dk + key * g->dk_row,
                                 .c_row = g->dk_row,
                                 .add = true});
    tile_product((tile_operands){.m = z->dim,
                                 .n = b->width,
                                 .depth = n,
                                 .a = k.at,
                                 .a_row = 1,
                                 .a_step = k.row,
                                 .b = g->ds,
                                 .b_row = LANES,
                                 .c = g->dq,
                                 .c_row = LANES,
                                 .add = true});
}

/* Adds the block's terms to dk and dv of the piece, which ends before key `end`, and its dq over
 * those keys to `dq`, or writes it there if `first`. */
static inline void backward_block(const weft_call *call, const block *b, gradients *g, int64_t end,
                                  bool first, T *dq)
{
    int64_t begin = g->piece;
    const int64_t row = b->z.heads * b->z.dim;
    T *own = dq + (b->batch * b->z.queries + b->first) * row + b->head * b->z.dim;
    end = min_of(end, b->last_key);
    if (begin < b->first_key) begin = b->first_key;
    if (begin >= end && !first) return;
    if (first)
        memset(g->dq, 0, (size_t)(b->z.dim * LANES) * sizeof(T));
    else
        load_transposed(b, (rows){own, row}, b->z.dim, 1, g->dq);
    if (begin < end) {
        g->x = rows_from(&call->in[Q], b->batch, b->head, b->first, b->n, wide_queries(b));
        g->dy = rows_from(&call->in[DOUT], b->batch, b->head, b->first, b->n, wide_gradients(b));
        load_queries(call, b, g->x, g->q);
        if (g->product == TILE_PAIRS)
            load_pairs(b, &call->in[DOUT], b->z.value_dim, g->dout);
        else
            load_transposed(b, g->dy, b->z.value_dim, 1, g->dout);
        load_statistics(call, b, g);
    }
    for (int64_t key = begin; key < end; key += KEY_BLOCK)
        backward_tile(b, key, min_of(KEY_BLOCK, end - key), g);
    if (begin < end) clear_blind(b, g);
    simd_transpose(b->z.dim, b->n, g->dq, LANES, own, row);
}

/* dk and dv of keys [begin, end) of one head of keys, over all heads and queries that read it. */
static inline void backward_chunk(const weft_call *call, const sizes *z, int64_t batch,
                                  int64_t kv_head, int64_t chunk, gradients *g, uint32_t *words)
{
    const sdpa_attr *attr = call->attr;
    const int64_t begin = chunk * z->chunk, end = min_of(begin + z->chunk, z->keys);
    const int64_t repeat = z->heads / z->kv_heads;
    const weft_tensor *mask = attr->mask ? &call->in[REST] : NULL;
    T *dq = z->chunks > 1 ? (T *)call->scratch + chunk * z->batch * z->queries * z->heads * z->dim
                          : call->out[0].data;
    g->dk = head_of(&call->out[1], batch, kv_head);
    g->dk_row = call->out[1].stride[1];
    g->dv = head_of(&call->out[2], batch, kv_head);
    g->dv_row = call->out[2].stride[1];
    for (int64_t j = begin; j < end; j++) {
        memset(g->dk + j * g->dk_row, 0, (size_t)z->dim * sizeof(T));
        memset(g->dv + j * g->dv_row, 0, (size_t)z->value_dim * sizeof(T));
    }
    for (g->piece = begin; g->piece < end || g->piece == begin; g->piece += PIECE) {
        const int64_t to = min_of(g->piece + PIECE, end);
        const block any = block_at(call, z, batch, kv_head * repeat, 0, mask, words);
        g->k = keys_from(&any, g->piece, to - g->piece);
        if (g->product != TILE_PAIRS) g->v = values_from(&any, g->piece, to - g->piece);
        for (int64_t h = kv_head * repeat; h < (kv_head + 1) * repeat; h++)
            for (int64_t index = 0; index < z->blocks; index++) {
                block b = block_at(call, z, batch, h, index, mask, words);
                backward_block(call, &b, g, to, g->piece == begin, dq);
            }
    }
}

/* Phase 1: dq is the sum over the chunks, in their order. */
static inline void add_chunks(const weft_call *call, const sizes *z, int64_t tile)
{
    const int64_t n = z->batch * z->queries * z->heads * z->dim;
    const int64_t begin = tile * TILE, end = min_of(begin + TILE, n);
    T *dq = call->out[0].data;
    const T *partial = call->scratch;
    for (int64_t i = begin; i < end; i++) dq[i] = partial[i];
    for (int64_t c = 1; c < z->chunks; c++)
        for (int64_t i = begin; i < end; i++) dq[i] += partial[c * n + i];
}

KERNEL(sdpa_grad)
{
    const sdpa_attr *attr = call->attr;
    const sizes z = sizes_of(call);
    if (call->phase == 1) {
        add_chunks(call, &z, tile);
        return;
    }
    T *space = weft_call_workspace(call);
    uint32_t *words =
        (uint32_t *)(void *)(space + (rows_of_work(&z, attr, true) - WORD_ROWS) * LANES);
    gradients g = {.q = space, .product = product_of(&call->in[V], &call->in[DOUT])};
    g.dq = g.q + z.dim * LANES;
    g.dout = g.dq + z.dim * LANES;
    g.s = g.dout + z.value_dim * LANES;
    g.ds = g.s + KEY_BLOCK * LANES;
    g.lse = g.ds + KEY_BLOCK * LANES;
    g.low = g.lse + LANES;
    g.delta = g.low + LANES;
    const int64_t row = tile / z.chunks;
    backward_chunk(call, &z, row / z.kv_heads, row % z.kv_heads, tile % z.chunks, &g, words);
}
