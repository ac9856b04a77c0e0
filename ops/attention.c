/* Scaled dot-product attention that never stores the score matrix, and its backward pass.
 *
 *     S = scale Q K^T, hidden places -inf;  lse = ln sum e^S over keys;  P = e^(S - lse - lse_low)
 *     O = drop(P) V
 *     D = rowsum(dO O) - dlse;  dS = P (drop(dO V^T) - D)
 *     dQ = scale dS K,  dK = scale dS^T Q,  dV = drop(P)^T dO
 *
 * Forward walks the keys in blocks for each block of queries, with a running maximum and sum
 * (Milakov & Gimelshein 2018); backward recomputes the weights from lse (Dao et al. 2022) and, so
 * that a large offset of all scores costs no digits, from what rounding took from it, which is
 * lse_low = ln sum e^(S - lse), as good as constant and without a gradient (as cross_entropy). A
 * block of scores is held transposed, [keys, queries]: queries lie in the lanes of vectors, so that
 * maxima, sums and the causal bound need no step across lanes, and every product reads K and V as
 * they lie (ops/kernels/tile.h). Time O(queries keys), memory O(queries + keys). */
#include "attention.h"
#include "kernels/sums.h"

#ifdef WEFT_KERNEL_ISA

/* ---- Forward ---- */

typedef struct running {
    T *top, *sum, *factor; /* [LANES]: maximum, sum of e^(s - maximum), e^(old - new maximum) */
    T *out;                /* [value_dim, LANES] */
} running;

/* s becomes e^(s - maximum); what was summed before is brought to the new maximum. */
static inline void weigh(const block *b, int64_t n, T *s, running *r)
{
    const int64_t width = b->width;
    T shift[LANES], sum[LANES], top[LANES];
    bool moved = false;
    for (int64_t i = 0; i < width; i++) top[i] = r->top[i];
    for (int64_t j = 0; j < n; j++)
        SIMD for (int64_t i = 0; i < width; i++) top[i] =
            s[j * LANES + i] > top[i] ? s[j * LANES + i] : top[i];
    for (int64_t i = 0; i < width; i++) {
        /* Nothing seen yet: e^(-inf - 0) = 0. */
        shift[i] = top[i] == (T)-INFINITY ? 0 : top[i];
        moved |= top[i] != r->top[i];
        sum[i] = 0;
    }
    for (int64_t j = 0; j < n; j++) SIMD for (int64_t i = 0; i < width; i++)
        {
            const T e = vm_exp(s[j * LANES + i] - shift[i]);
            s[j * LANES + i] = e;
            sum[i] += e;
        }
    if (!moved) {
        for (int64_t i = 0; i < width; i++) r->sum[i] += sum[i];
        return;
    }
    SIMD for (int64_t i = 0; i < width; i++)
    {
        r->factor[i] = vm_exp(r->top[i] - shift[i]);
        r->sum[i] = r->sum[i] * r->factor[i] + sum[i];
        r->top[i] = top[i];
    }
    for (int64_t c = 0; c < b->z.value_dim; c++)
        for (int64_t i = 0; i < width; i++) r->out[c * LANES + i] *= r->factor[i];
}

/* Dropped weights become zero; the others are scaled when the sum divides. */
static inline void drop_weights(const block *b, int64_t key, int64_t n, T *s)
{
    draws d;
    begin_draws(b, &d);
    for (int64_t j = 0; j < n; j++) {
        if (j % DRAW_KEYS == 0) draw(b, &d, key + j, least(DRAW_KEYS, n - j));
        const uint32_t *w = words_of(b, &d, j % DRAW_KEYS);
        T *x = s + j * LANES;
        SIMD for (int64_t i = 0; i < b->width; i++) x[i] = w[i] >= d.limit ? x[i] : 0;
    }
}

static inline void finish(const weft_call *call, const block *b, running *r)
{
    const T keep = (T)(1 / (1 - b->attr->p));
    const int64_t width = b->width, columns = b->z.value_dim;
    const int64_t query = (b->batch * b->z.heads + b->head) * b->z.queries + b->first;
    T *lse = (T *)call->out[1].data + query, *low = (T *)call->out[2].data + query;
    for (int64_t i = 0; i < width; i++) r->factor[i] = r->sum[i] == 0 ? 0 : keep / r->sum[i];
    for (int64_t i = 0; i < b->n; i++) {
        const double top = (double)r->top[i], logarithm = vm_log_f64((double)r->sum[i]);
        lse[i] = (T)(top + logarithm);
        low[i] = r->sum[i] == 0 ? 0 : (T)((top - (double)lse[i]) + logarithm);
    }
    /* A query that saw nothing is zero, also where the value of a hidden key was not finite. */
    for (int64_t c = 0; c < columns; c++)
        for (int64_t i = 0; i < width; i++)
            r->out[c * LANES + i] = r->factor[i] == 0 ? 0 : r->out[c * LANES + i] * r->factor[i];
    const weft_tensor *out = &call->out[0];
    simd_transpose(columns, b->n, r->out, LANES,
                   head_of(out, b->batch, b->head) + b->first * out->stride[1], out->stride[1]);
}

static inline void forward_block(const weft_call *call, const block *b, T *room)
{
    T *q = room, *s = q + b->z.dim * LANES;
    running r = {.top = s + KEY_BLOCK * LANES};
    r.sum = r.top + LANES;
    r.factor = r.sum + LANES;
    r.out = r.factor + LANES;
    load_transposed(b, &call->in[Q], (T)b->attr->scale, q);
    for (int64_t i = 0; i < LANES; i++) {
        r.top[i] = (T)-INFINITY;
        r.sum[i] = 0;
    }
    memset(r.out, 0, (size_t)(b->z.value_dim * LANES) * sizeof(T));
    for (int64_t key = 0; key < b->last_key; key += KEY_BLOCK) {
        const int64_t n = least(KEY_BLOCK, b->last_key - key);
        if (!scores(b, key, n, q, s)) continue;
        weigh(b, n, s, &r);
        if (b->attr->p > 0) drop_weights(b, key, n, s);
        tile_product((tile_operands){.m = b->z.value_dim,
                                     .n = b->width,
                                     .depth = n,
                                     .a = b->v + key * b->v_row,
                                     .a_row = 1,
                                     .a_step = b->v_row,
                                     .b = s,
                                     .b_row = LANES,
                                     .c = r.out,
                                     .c_row = LANES,
                                     .add = true});
    }
    finish(call, b, &r);
}

KERNEL(sdpa)
{
    const sdpa_attr *attr = call->attr;
    const sizes z = sizes_of(call);
    T *room = weft_call_workspace(call);
    uint32_t *words =
        (uint32_t *)(void *)(room + (rows_of_work(&z, attr, false) - WORD_ROWS) * LANES);
    const int64_t row = tile / z.blocks, at = tile % z.blocks;
    /* Later blocks see more: from both ends in turn, neighbours weigh about the same. */
    const int64_t index = !attr->causal ? at : at % 2 ? z.blocks - 1 - at / 2 : at / 2;
    const block b = block_at(call, &z, row / z.heads, row % z.heads, index,
                             attr->mask ? &call->in[3] : NULL, words);
    forward_block(call, &b, room);
}

/* ---- Backward ---- */

typedef struct gradients {
    T *q, *dout, *dq;             /* transposed: [dim, LANES], [value_dim, LANES], [dim, LANES] */
    T *s, *ds;                    /* [KEY_BLOCK, LANES] */
    T *lse, *low, *delta;         /* [LANES] */
    bool any_blind, blind[LANES]; /* queries that see nothing */
    const T *x, *dy;              /* the block's rows of q and dout as they lie */
    int64_t x_row, dy_row;
    T *dk, *dv; /* of the head */
    int64_t dk_row, dv_row;
} gradients;

static inline T lane_at(const weft_tensor *t, const block *b, int64_t i)
{
    return ((const T *)t->data)[b->batch * t->stride[0] + b->head * t->stride[1] +
                                (b->first + i) * t->stride[2]];
}

/* lse and D of each query. Where a query sees nothing, e^(-inf - 0) = 0. */
static inline void load_statistics(const weft_call *call, const block *b, gradients *g)
{
    const weft_tensor *out = &call->in[OUT];
    const weft_tensor *dlse = b->attr->dlse ? &call->in[REST + b->attr->mask] : NULL;
    const T *y = head_of(out, b->batch, b->head) + b->first * out->stride[1];
    g->any_blind = false;
    for (int64_t i = 0; i < LANES; i++) g->lse[i] = g->low[i] = g->delta[i] = 0;
    for (int64_t i = 0; i < b->n; i++) {
        const T *a = y + i * out->stride[1], *c = g->dy + i * g->dy_row;
        const T lse = lane_at(&call->in[LSE], b, i);
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

/* No gradient reaches them, whatever the keys hold. */
static inline void clear_blind(const block *b, gradients *g)
{
    for (int64_t i = 0; g->any_blind && i < b->n; i++)
        for (int64_t c = 0; g->blind[i] && c < b->z.dim; c++) g->dq[c * LANES + i] = 0;
}

/* s: scores become drop(P). ds: drop(dO V^T) becomes scale dS, 0 at hidden places, where V may hold
 * anything. */
static inline void weigh_back(const block *b, int64_t n, const gradients *g)
{
    const T scale = (T)b->attr->scale;
    for (int64_t j = 0; j < n; j++) {
        T *s = g->s + j * LANES, *ds = g->ds + j * LANES;
        SIMD for (int64_t i = 0; i < b->width; i++)
        {
            const T p = vm_exp((s[i] - g->lse[i]) - g->low[i]);
            s[i] = p;
            const T x = scale * p * (ds[i] - g->delta[i]);
            ds[i] = p > 0 ? x : p;
        }
    }
}

static inline void weigh_back_dropped(const block *b, int64_t key, int64_t n, const gradients *g)
{
    const T scale = (T)b->attr->scale, keep = (T)(1 / (1 - b->attr->p));
    draws d;
    begin_draws(b, &d);
    for (int64_t j = 0; j < n; j++) {
        if (j % DRAW_KEYS == 0) draw(b, &d, key + j, least(DRAW_KEYS, n - j));
        const uint32_t *w = words_of(b, &d, j % DRAW_KEYS);
        T *s = g->s + j * LANES, *ds = g->ds + j * LANES;
        SIMD for (int64_t i = 0; i < b->width; i++)
        {
            const T p = vm_exp((s[i] - g->lse[i]) - g->low[i]), kept = w[i] >= d.limit ? keep : 0;
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
    if (!scores(b, key, n, g->q, g->s)) return;
    tile_product((tile_operands){.m = n,
                                 .n = b->width,
                                 .depth = z->value_dim,
                                 .a = b->v + key * b->v_row,
                                 .a_row = b->v_row,
                                 .a_step = 1,
                                 .b = g->dout,
                                 .b_row = LANES,
                                 .c = g->ds,
                                 .c_row = LANES});
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
                                 .b = g->dy,
                                 .b_row = g->dy_row,
                                 .c = g->dv + key * g->dv_row,
                                 .c_row = g->dv_row,
                                 .add = true});
    tile_product((tile_operands){.m = n,
                                 .n = z->dim,
                                 .depth = b->n,
                                 .a = g->ds,
                                 .a_row = LANES,
                                 .a_step = 1,
                                 .b = g->x,
                                 .b_row = g->x_row,
                                 .c = g->dk + key * g->dk_row,
                                 .c_row = g->dk_row,
                                 .add = true});
    tile_product((tile_operands){.m = z->dim,
                                 .n = b->width,
                                 .depth = n,
                                 .a = b->k + key * b->k_row,
                                 .a_row = 1,
                                 .a_step = b->k_row,
                                 .b = g->ds,
                                 .b_row = LANES,
                                 .c = g->dq,
                                 .c_row = LANES,
                                 .add = true});
}

/* Adds the block's share to dk and dv of keys [begin, end), and writes its dq over those keys. */
static inline void backward_block(const weft_call *call, const block *b, gradients *g,
                                  int64_t begin, int64_t end, T *dq)
{
    const weft_tensor *x = &call->in[Q], *dy = &call->in[DOUT];
    g->x_row = x->stride[1];
    g->x = head_of(x, b->batch, b->head) + b->first * g->x_row;
    g->dy_row = dy->stride[1];
    g->dy = head_of(dy, b->batch, b->head) + b->first * g->dy_row;
    memset(g->dq, 0, (size_t)(b->z.dim * LANES) * sizeof(T));
    end = least(end, b->last_key);
    if (begin < end) {
        load_transposed(b, x, (T)b->attr->scale, g->q);
        load_transposed(b, dy, 1, g->dout);
        load_statistics(call, b, g);
    }
    for (int64_t key = begin; key < end; key += KEY_BLOCK)
        backward_tile(b, key, least(KEY_BLOCK, end - key), g);
    if (begin < end) clear_blind(b, g);
    const int64_t row = b->z.heads * b->z.dim;
    simd_transpose(b->z.dim, b->n, g->dq, LANES,
                   dq + (b->batch * b->z.queries + b->first) * row + b->head * b->z.dim, row);
}

/* dk and dv of keys [begin, end) of one head of keys, over all heads and queries that read it. */
static inline void backward_chunk(const weft_call *call, const sizes *z, int64_t batch,
                                  int64_t kv_head, int64_t chunk, gradients *g, uint32_t *words)
{
    const sdpa_attr *attr = call->attr;
    const int64_t begin = chunk * z->chunk, end = least(begin + z->chunk, z->keys);
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
    for (int64_t h = kv_head * repeat; h < (kv_head + 1) * repeat; h++)
        for (int64_t index = 0; index < z->blocks; index++) {
            block b = block_at(call, z, batch, h, index, mask, words);
            backward_block(call, &b, g, begin, end, dq);
        }
}

/* Phase 1: dq is the sum over the chunks, in their order. */
static inline void add_chunks(const weft_call *call, const sizes *z, int64_t tile)
{
    const int64_t n = z->batch * z->queries * z->heads * z->dim;
    const int64_t begin = tile * TILE, end = least(begin + TILE, n);
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
    T *room = weft_call_workspace(call);
    uint32_t *words =
        (uint32_t *)(void *)(room + (rows_of_work(&z, attr, true) - WORD_ROWS) * LANES);
    gradients g = {.q = room};
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

#else

#include <weft/ops.h>

#include <math.h>

extern const weft_op weft_op_sdpa, weft_op_sdpa_grad, weft_op_dropout;

/* ---- Shapes and sizes ---- */

static bool check_shape(weft_infer *infer, size_t i, const char *what, weft_shape want)
{
    char a[128], b[128];
    if (!weft_infer_same_dtype(infer, 0, i)) return false;
    return weft_shape_equal(infer->in[i].shape, want) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s must be %s, got %s", what,
                           weft_shape_text(want, a, sizeof a),
                           weft_shape_text(infer->in[i].shape, b, sizeof b));
}

static bool check_mask(weft_infer *infer, size_t i, weft_shape full)
{
    char a[128], b[128];
    weft_shape joint;
    if (!weft_infer_dtype(infer, i, WEFT_BOOL)) return false;
    return (weft_shape_broadcast(infer->in[i].shape, full, &joint) &&
            weft_shape_equal(joint, full)) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "the mask %s does not broadcast to %s",
                           weft_shape_text(infer->in[i].shape, b, sizeof b),
                           weft_shape_text(full, a, sizeof a));
}

/* The scores are never stored, but places in them are counted, and so are those of the dq of all
 * chunks. */
static bool check_sizes(weft_infer *infer, weft_shape q, int64_t keys, int64_t value_dim)
{
    char text[128];
    const weft_shape all = WEFT_SHAPE(q.dim[0], q.dim[2], q.dim[1], keys);
    const weft_shape partial = WEFT_SHAPE(CHUNK_PARTS, q.dim[0], q.dim[1], q.dim[2], q.dim[3]);
    if (q.dim[3] > INT32_MAX || value_dim > INT32_MAX)
        return weft_infer_fail(infer, WEFT_TOO_LARGE, "head_dim or value_dim is over 2^31 - 1");
    return (weft_shape_numel(all) >= 0 && weft_shape_numel(partial) >= 0) ||
           weft_infer_fail(infer, WEFT_TOO_LARGE, "scores of %s are too many",
                           weft_shape_text(all, text, sizeof text));
}

/* q, k, v, and the mask at input `mask`; gives the shapes of out and lse. */
static bool check_inputs(weft_infer *infer, size_t mask, weft_shape *out, weft_shape *lse)
{
    const sdpa_attr *attr = infer->attr;
    char a[128], b[128], c[128];
    if (!weft_infer_float(infer, Q)) return false;
    for (size_t i = Q; i <= V; i++)
        if (!weft_infer_same_dtype(infer, Q, i)) return false;
    weft_shape q = infer->in[Q].shape, k = infer->in[K].shape, v = infer->in[V].shape;
    const bool fits = q.rank == 4 && k.rank == 4 && v.rank == 4 && q.dim[0] == k.dim[0] &&
                      k.dim[0] == v.dim[0] && k.dim[1] == v.dim[1] && k.dim[2] == v.dim[2] &&
                      q.dim[3] == k.dim[3] && k.dim[2] > 0 && q.dim[2] % k.dim[2] == 0;
    if (!fits)
        return weft_infer_fail(
            infer, WEFT_BAD_SHAPE,
            "q %s, k %s, v %s are not [batch, query_len, heads, head_dim], [batch, key_len, "
            "kv_heads, head_dim], [batch, key_len, kv_heads, value_dim] with kv_heads dividing "
            "heads",
            weft_shape_text(q, a, sizeof a), weft_shape_text(k, b, sizeof b),
            weft_shape_text(v, c, sizeof c));
    if (!(attr->p >= 0 && attr->p < 1) || !isfinite(attr->scale))
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                               "dropout must be in [0, 1) and scale finite, got %g and %g", attr->p,
                               attr->scale);
    if (!weft_infer_scalar(infer, "scale", attr->scale, infer->in[Q].dtype) ||
        !check_sizes(infer, q, k.dim[1], v.dim[3]))
        return false;
    if (attr->mask && !check_mask(infer, mask, WEFT_SHAPE(q.dim[0], q.dim[2], q.dim[1], k.dim[1])))
        return false;
    *out = WEFT_SHAPE(q.dim[0], q.dim[1], q.dim[2], v.dim[3]);
    *lse = WEFT_SHAPE(q.dim[0], q.dim[2], q.dim[1]);
    return true;
}

static bool check_count(weft_infer *infer, size_t want)
{
    return infer->n_in == want || weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                                                  "takes %zu inputs, got %zu", want, infer->n_in);
}

static bool infer_sdpa(weft_infer *infer)
{
    const sdpa_attr *attr = infer->attr;
    weft_shape out, lse;
    if (!check_count(infer, 3u + attr->mask) || !check_inputs(infer, 3, &out, &lse)) return false;
    infer->out[0] = (weft_type){infer->in[Q].dtype, out};
    infer->out[1] = infer->out[2] = (weft_type){infer->in[Q].dtype, lse};
    return true;
}

static bool infer_sdpa_grad(weft_infer *infer)
{
    const sdpa_attr *attr = infer->attr;
    weft_shape out, lse;
    if (!check_count(infer, (size_t)REST + attr->mask + attr->dlse) ||
        !check_inputs(infer, REST, &out, &lse) || !check_shape(infer, OUT, "out", out) ||
        !check_shape(infer, LSE, "lse", lse) || !check_shape(infer, LSE_LOW, "lse_low", lse) ||
        !check_shape(infer, DOUT, "dout", out) ||
        (attr->dlse && !check_shape(infer, (size_t)REST + attr->mask, "dlse", lse)))
        return false;
    for (size_t i = Q; i <= V; i++) infer->out[i] = infer->in[i];
    return true;
}

static int64_t tiles_sdpa(const weft_call *call)
{
    sizes z = sizes_of(call);
    return tiles_forward(&z);
}

static int64_t tiles_sdpa_grad(const weft_call *call)
{
    sizes z = sizes_of(call);
    if (call->phase == 1)
        return z.chunks > 1 ? ceil_div(z.batch * z.queries * z.heads * z.dim, TILE) : 0;
    return tiles_backward(&z);
}

static size_t scratch_sdpa_grad(const weft_call *call)
{
    sizes z = sizes_of(call);
    return (size_t)partial_elements(&z) * weft_dtype_bytes(call->in[Q].dtype);
}

static size_t workspace_sdpa(const weft_call *call)
{
    sizes z = sizes_of(call);
    return (size_t)rows_of_work(&z, call->attr, call->n_in >= REST) * LANE_BYTES;
}

static void cost_sdpa(const weft_call *call, weft_cost *cost)
{
    sizes z = sizes_of(call);
    const bool backward = call->n_in >= REST;
    double places = (double)z.batch * (double)z.heads * (double)z.queries * (double)z.keys;
    if (((const sdpa_attr *)call->attr)->causal) places /= 2;
    cost->flops = places * (backward ? 6.0 * (double)z.dim + 4.0 * (double)z.value_dim + 18
                                     : 2.0 * (double)z.dim + 2.0 * (double)z.value_dim + 14);
    for (size_t i = 0; i < call->n_in + call->n_out; i++) {
        const weft_tensor *t = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
        cost->bytes += (double)numel_of(&t->shape) * (double)weft_dtype_bytes(t->dtype);
    }
}

/* ---- The same in plain ops ---- */

/* [batch, len, heads, dim] as [batch, kv_heads, heads / kv_heads, len, dim]. */
static weft_value grouped(weft_graph *g, weft_value x, int64_t kv_heads)
{
    weft_shape s = weft_shape_of(g, x);
    if (s.rank != 4 || kv_heads < 1) return WEFT_NO_VALUE;
    x = weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1], kv_heads, s.dim[2] / kv_heads, s.dim[3]));
    return weft_permute(g, x, WEFT_AXES(0, 2, 3, 1, 4));
}

/* And back; sums over the group if that many heads read one head of keys. */
static weft_value ungrouped(weft_graph *g, weft_value x, weft_shape shape)
{
    if (shape.rank == 4 && weft_dim(g, x, 1) == shape.dim[2] && weft_dim(g, x, 2) != 1)
        x = weft_sum(g, x, WEFT_AXES(2), true);
    return weft_reshape(g, weft_permute(g, x, WEFT_AXES(0, 3, 1, 2, 4)), shape);
}

/* [batch, heads, ...] as [batch, kv_heads, heads / kv_heads, ...], or the reverse. */
static weft_value split(weft_graph *g, weft_value x, weft_value like)
{
    weft_shape s = weft_shape_of(g, x), l = weft_shape_of(g, like);
    if (s.rank != 4 || l.rank != 5) return WEFT_NO_VALUE;
    return weft_reshape(g, x, WEFT_SHAPE(l.dim[0], l.dim[1], l.dim[2], s.dim[2], s.dim[3]));
}

static weft_value joined(weft_graph *g, weft_value x)
{
    weft_shape s = weft_shape_of(g, x);
    if (s.rank != 5) return WEFT_NO_VALUE;
    return weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1] * s.dim[2], s.dim[3], s.dim[4]));
}

/* A dropout of the op's own key. */
static weft_value dropped(weft_graph *g, weft_value x, const sdpa_attr *attr)
{
    dropout_attr drop;
    if (attr->p == 0) return x;
    memset(&drop, 0, sizeof drop);
    drop.p = attr->p;
    drop.key = attr->key;
    return weft_apply(g, &weft_op_dropout, &drop, &x, 1, NULL);
}

/* S [batch, heads, query_len, key_len], -inf where a query may not look. */
static weft_value masked_scores(weft_graph *g, const sdpa_attr *attr, weft_value q5, weft_value k5,
                                weft_value mask)
{
    weft_value s = weft_matmul(g, weft_scale(g, q5, attr->scale), weft_transpose(g, k5, -1, -2));
    s = joined(g, s);
    if (attr->mask) s = weft_masked_fill(g, s, mask, -INFINITY);
    if (!attr->causal) return s;
    int64_t queries = weft_dim(g, s, 2), keys = weft_dim(g, s, 3);
    weft_value seen = weft_tril_mask(g, queries, keys, keys - queries);
    return weft_masked_fill(g, s, weft_logical_not(g, seen), -INFINITY);
}

/* x [batch, query_len, heads, ...] with zeros for the queries whose lse [batch, heads, query_len]
 * is -inf: those that see nothing. */
static weft_value without_blind(weft_graph *g, const sdpa_attr *attr, weft_value x, weft_value lse)
{
    if (!attr->mask && !attr->causal) return x;
    weft_value none = weft_scalar(g, weft_dtype_of(g, lse), -INFINITY);
    weft_value blind = weft_transpose(g, weft_equal(g, lse, none), 1, 2);
    return weft_masked_fill(g, x, weft_expand_dims(g, blind, -1), 0.0);
}

/* e^(S - lse - lse_low), zero in a row that is hidden everywhere (lse -inf). */
static weft_value weights_from(weft_graph *g, weft_value s, weft_value lse, weft_value low)
{
    weft_value none = weft_scalar(g, weft_dtype_of(g, lse), -INFINITY);
    lse = weft_masked_fill(g, lse, weft_equal(g, lse, none), 0.0);
    s = weft_sub(g, s, weft_expand_dims(g, lse, -1));
    return weft_exp(g, weft_is_value(low) ? weft_sub(g, s, weft_expand_dims(g, low, -1)) : s);
}

/* ln sum e^(S - lse), zero in a row that is hidden everywhere. */
static weft_value low_of(weft_graph *g, weft_value s, weft_value lse)
{
    weft_value sum = weft_sum(g, weights_from(g, s, lse, WEFT_NO_VALUE), WEFT_AXES(-1), false);
    weft_value none = weft_scalar(g, weft_dtype_of(g, lse), 0.0);
    return weft_log(g, weft_masked_fill(g, sum, weft_equal(g, sum, none), 1.0));
}

static void expand_sdpa(weft_expand *e)
{
    const sdpa_attr *attr = e->attr;
    weft_graph *g = e->graph;
    weft_shape q = weft_shape_of(g, e->in[Q]), k = weft_shape_of(g, e->in[K]);
    weft_value q5 = grouped(g, e->in[Q], k.dim[2]), k5 = grouped(g, e->in[K], k.dim[2]);
    weft_value v5 = grouped(g, e->in[V], k.dim[2]);
    weft_value s = masked_scores(g, attr, q5, k5, attr->mask ? e->in[3] : WEFT_NO_VALUE);
    weft_value p = dropped(g, weft_softmax(g, s, -1), attr);
    weft_shape out = q;
    out.dim[3] = weft_dim(g, e->in[V], -1);
    weft_value y = weft_matmul(g, split(g, p, q5), v5);
    y = weft_reshape(g, weft_permute(g, y, WEFT_AXES(0, 3, 1, 2, 4)), out);
    e->out[1] = weft_logsumexp(g, s, WEFT_AXES(-1), false);
    e->out[2] = low_of(g, s, e->out[1]);
    e->out[0] = without_blind(g, attr, y, e->out[1]);
}

static void expand_sdpa_grad(weft_expand *e)
{
    const sdpa_attr *attr = e->attr;
    weft_graph *g = e->graph;
    weft_shape q = weft_shape_of(g, e->in[Q]), k = weft_shape_of(g, e->in[K]);
    weft_value q5 = grouped(g, e->in[Q], k.dim[2]), k5 = grouped(g, e->in[K], k.dim[2]);
    weft_value v5 = grouped(g, e->in[V], k.dim[2]), dy5 = grouped(g, e->in[DOUT], k.dim[2]);
    weft_value s = masked_scores(g, attr, q5, k5, attr->mask ? e->in[REST] : WEFT_NO_VALUE);
    weft_value p = weights_from(g, s, e->in[LSE], e->in[LSE_LOW]);
    weft_value d = weft_sum(g, weft_mul(g, e->in[DOUT], e->in[OUT]), WEFT_AXES(-1), false);
    d = weft_transpose(g, d, 1, 2); /* [batch, heads, query_len] */
    if (attr->dlse) d = weft_sub(g, d, e->in[REST + attr->mask]);
    weft_value dp = joined(g, weft_matmul(g, dy5, weft_transpose(g, v5, -1, -2)));
    dp = weft_sub(g, dropped(g, dp, attr), weft_expand_dims(g, d, -1));
    weft_value ds = weft_scale(g, weft_mul(g, p, dp), attr->scale);
    if (attr->mask || attr->causal) /* V may hold anything at hidden places */
        ds = weft_masked_fill(g, ds, weft_equal(g, p, weft_scalar(g, weft_dtype_of(g, p), 0.0)),
                              0.0);
    ds = split(g, ds, q5);
    weft_value weights = split(g, dropped(g, p, attr), q5);
    weft_value dq = weft_permute(g, weft_matmul(g, ds, k5), WEFT_AXES(0, 3, 1, 2, 4));
    e->out[0] = without_blind(g, attr, weft_reshape(g, dq, q), e->in[LSE]);
    e->out[1] = ungrouped(g, weft_matmul(g, weft_transpose(g, ds, -1, -2), q5), k);
    e->out[2] = ungrouped(g, weft_matmul(g, weft_transpose(g, weights, -1, -2), dy5),
                          weft_shape_of(g, e->in[V]));
}

static void vjp_sdpa(weft_vjp *v)
{
    weft_graph *g = v->graph;
    sdpa_attr attr = *(const sdpa_attr *)v->attr;
    weft_value in[REST + 2], out[3] = {WEFT_NO_VALUE, WEFT_NO_VALUE, WEFT_NO_VALUE};
    weft_value dout = v->grad_out[0], dlse = v->grad_out[1];
    size_t n = REST;
    for (int i = Q; i <= V; i++) in[i] = v->in[i];
    in[OUT] = v->out[0];
    in[LSE] = v->out[1];
    in[LSE_LOW] = v->out[2];
    in[DOUT] = weft_is_value(dout)
                   ? dout
                   : weft_fill(g, weft_dtype_of(g, v->out[0]), weft_shape_of(g, v->out[0]), 0.0);
    if (attr.mask) in[n++] = v->in[3];
    attr.dlse = weft_is_value(dlse);
    if (attr.dlse) in[n++] = dlse;
    weft_apply(g, &weft_op_sdpa_grad, &attr, in, n, out);
    for (int i = Q; i <= V; i++) v->grad_in[i] = out[i];
}

/* ---- Descriptors and builder ---- */

#define F(...)                                                                                     \
    {                                                                                              \
        WEFT_FLOAT, {4, {__VA_ARGS__}}, -1, 1, false                                               \
    }
#define ROWS(...)                                                                                  \
    {                                                                                              \
        WEFT_FLOAT, {3, {__VA_ARGS__}}, 0.5, 1.5, false                                            \
    }
#define MASK(rank, chance, ...)                                                                    \
    {                                                                                              \
        WEFT_BOOL, {rank, {__VA_ARGS__}}, 0, chance, false                                         \
    }
#define STATISTICS(...)                                                                            \
    ROWS(__VA_ARGS__),                                                                             \
    {                                                                                              \
        WEFT_FLOAT, {3, {__VA_ARGS__}}, -0.1, 0.1, false                                           \
    }
static const sdpa_attr plain = {.scale = 0.7}, causal = {.scale = 0.5, .causal = true},
                       masked = {.scale = 0.8, .mask = true},
                       dropping = {.scale = 0.6, .p = 0.4, .key = 21},
                       everything = {.scale = -0.6,
                                     .p = 0.3,
                                     .key = 22,
                                     .causal = true,
                                     .mask = true},
                       with_dlse = {.scale = 0.7, .dlse = true};
static const weft_sample samples_sdpa[] = {
    {&plain, 3, {F(2, 3, 2, 4), F(2, 5, 2, 4), F(2, 5, 2, 3)}},
    {&masked, 4, {F(2, 3, 2, 2), F(2, 6, 2, 2), F(2, 6, 2, 2), MASK(4, 0.2, 2, 1, 1, 6)}},
    {&masked, 4, {F(1, 4, 2, 3), F(1, 6, 1, 3), F(1, 6, 1, 2), MASK(4, 0.2, 1, 2, 4, 6)}},
    {&masked, 4, {F(2, 3, 1, 2), F(2, 5, 1, 2), F(2, 5, 1, 2), MASK(2, 0.2, 3, 5)}},
    {&causal, 3, {F(1, 4, 2, 3), F(1, 4, 2, 3), F(1, 4, 2, 3)}},
    {&causal, 3, {F(1, 3, 1, 2), F(1, 5, 1, 2), F(1, 5, 1, 2)}},
    {&dropping, 3, {F(1, 3, 4, 3), F(1, 5, 2, 3), F(1, 5, 2, 2)}},
    {&dropping, 3, {F(1, 3, 2, 2), F(1, 8, 2, 2), F(1, 8, 2, 2)}},
    {&everything, 4, {F(1, 3, 2, 2), F(1, 8, 1, 2), F(1, 8, 1, 2), MASK(4, 0.2, 1, 1, 3, 8)}},
    {&plain, 3, {F(0, 3, 1, 2), F(0, 2, 1, 2), F(0, 2, 1, 2)}},
    {&plain, 3, {F(1, 0, 1, 2), F(1, 2, 1, 2), F(1, 2, 1, 2)}},
};
static const weft_sample samples_sdpa_grad[] = {
    {&plain,
     7,
     {F(2, 3, 2, 4), F(2, 5, 2, 4), F(2, 5, 2, 3), F(2, 3, 2, 3), STATISTICS(2, 2, 3),
      F(2, 3, 2, 3)}},
    {&masked,
     8,
     {F(1, 3, 2, 2), F(1, 6, 1, 2), F(1, 6, 1, 2), F(1, 3, 2, 2), STATISTICS(1, 2, 3),
      F(1, 3, 2, 2), MASK(4, 0.2, 1, 1, 1, 6)}},
    {&causal,
     7,
     {F(1, 3, 1, 2), F(1, 5, 1, 2), F(1, 5, 1, 2), F(1, 3, 1, 2), STATISTICS(1, 1, 3),
      F(1, 3, 1, 2)}},
    {&everything,
     8,
     {F(1, 3, 2, 2), F(1, 5, 1, 2), F(1, 5, 1, 2), F(1, 3, 2, 2), STATISTICS(1, 2, 3),
      F(1, 3, 2, 2), MASK(4, 0.2, 1, 2, 3, 5)}},
    {&dropping,
     7,
     {F(1, 3, 1, 2), F(1, 5, 1, 2), F(1, 5, 1, 2), F(1, 3, 1, 2), STATISTICS(1, 1, 3),
      F(1, 3, 1, 2)}},
    {&with_dlse,
     8,
     {F(1, 3, 1, 2), F(1, 4, 1, 2), F(1, 4, 1, 2), F(1, 3, 1, 2), STATISTICS(1, 1, 3),
      F(1, 3, 1, 2), ROWS(1, 1, 3)}},
};
static const weft_attr_field sdpa_fields[] = {
    {"scale", WEFT_ATTR_DOUBLE, offsetof(sdpa_attr, scale)},
    {"dropout", WEFT_ATTR_DOUBLE, offsetof(sdpa_attr, p)},
    {"causal", WEFT_ATTR_BOOL, offsetof(sdpa_attr, causal)},
    {"mask", WEFT_ATTR_BOOL, offsetof(sdpa_attr, mask)},
    {NULL, WEFT_ATTR_INT, 0},
};

#define SDPA_OP(op, text, least, most, outputs, ...)                                               \
    DECLARE_KERNELS(op);                                                                           \
    const weft_op weft_op_##op = {.name = #op,                                                     \
                                  .doc = text,                                                     \
                                  .min_in = least,                                                 \
                                  .max_in = most,                                                  \
                                  .n_out = outputs,                                                \
                                  .attr_size = sizeof(sdpa_attr),                                  \
                                  .attrs = sdpa_fields,                                            \
                                  .infer = infer_##op,                                             \
                                  .kernel = FLOAT_KERNELS(op),                                     \
                                  .takes = WEFT_TAKES_ROWS,                                        \
                                  .tiles = tiles_##op,                                             \
                                  .workspace = workspace_sdpa,                                     \
                                  .cost = cost_sdpa,                                               \
                                  .random = true,                                                  \
                                  .expand = expand_##op,                                           \
                                  .samples = samples_##op,                                         \
                                  .n_samples = sizeof samples_##op / sizeof *samples_##op,         \
                                  __VA_ARGS__};
SDPA_OP(
    sdpa,
    "out = dropout(softmax(scale q k^T)) v for each head, hidden places left out; also gives "
    "lse = ln sum e^(scale q k^T) of each query, and lse_low, what rounding took from it. Scores "
    "are never stored.",
    3, 4, 3, .vjp = vjp_sdpa, .inputs = "query key value mask")
SDPA_OP(
    sdpa_grad,
    "dq, dk, dv from q, k, v, out, lse, lse_low, dout, the mask and dlse, the weights recomputed: "
    "sdpa backward.",
    7, 9, 3, .phases = 2, .scratch = scratch_sdpa_grad)

weft_value weft_sdpa(weft_graph *graph, weft_value q, weft_value k, weft_value v,
                     const weft_sdpa_options *options)
{
    static const weft_sdpa_options defaults = {0};
    const weft_sdpa_options *o = options ? options : &defaults;
    weft_value in[4] = {q, k, v, o->mask};
    sdpa_attr attr;
    memset(&attr, 0, sizeof attr);
    int64_t dim = weft_rank(graph, q) == 4 ? weft_dim(graph, q, 3) : 1;
    attr.scale = o->scale != 0 ? o->scale : 1 / sqrt(dim > 0 ? (double)dim : 1);
    attr.p = o->dropout;
    if (attr.p != 0) attr.key = weft_random_key(graph);
    attr.causal = o->causal;
    attr.mask = weft_is_value(o->mask);
    return weft_apply(graph, &weft_op_sdpa, &attr, in, 3u + attr.mask, NULL);
}

#endif
