/* The kernel of sdpa: scaled dot-product attention without storing the scores. The formulas are in
 * attention.c.
 *
 * Each block of queries goes through the keys block by block, with a running maximum and sum
 * (Milakov & Gimelshein 2018). Time O(queries keys), memory O(queries + keys). */
#include "attention_block.h"

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
        /* No key attended to yet: e^(-inf - 0) = 0. */
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
        if (j % DRAW_KEYS == 0) draw(b, &d, key + j, min_of(DRAW_KEYS, n - j));
        const uint32_t *w = words_of(b, &d, j % DRAW_KEYS);
        T *x = s + j * LANES;
        SIMD for (int64_t i = 0; i < b->width; i++) x[i] = w[i] >= d.limit ? x[i] : 0;
    }
}

static inline void finish(const weft_call *call, const block *b, running *r)
{
    const T scale = (T)(1 / (1 - b->attr->p));
    const int64_t width = b->width, columns = b->z.value_dim;
    const int64_t query = (b->batch * b->z.heads + b->head) * b->z.queries + b->first;
    T *lse = (T *)call->out[1].data + query, *low = (T *)call->out[2].data + query;
    for (int64_t i = 0; i < width; i++) r->factor[i] = r->sum[i] == 0 ? 0 : scale / r->sum[i];
    for (int64_t i = 0; i < b->n; i++) {
        const double top = (double)r->top[i], logarithm = vm_log_f64((double)r->sum[i]);
        lse[i] = (T)(top + logarithm);
        low[i] = r->sum[i] == 0 ? 0 : (T)((top - (double)lse[i]) + logarithm);
    }
    /* A query that attends to no key is zero, also where the value of a masked key is not finite.
     */
    for (int64_t c = 0; c < columns; c++)
        for (int64_t i = 0; i < width; i++)
            r->out[c * LANES + i] = r->factor[i] == 0 ? 0 : r->out[c * LANES + i] * r->factor[i];
    const weft_tensor *out = &call->out[0];
    simd_transpose(columns, b->n, r->out, LANES,
                   head_of(out, b->batch, b->head) + b->first * out->stride[1], out->stride[1]);
}

/* Where the parts of a tile lie in the workspace. */
static inline void place(const sizes *z, T *space, T **s, running *r, T **q)
{
    *s = space;
    T *at = space + KEY_BLOCK * LANES;
    for (int64_t i = 0; i < z->group; i++) {
        q[i] = at;
        r[i].top = q[i] + z->dim * LANES;
        r[i].sum = r[i].top + LANES;
        r[i].factor = r[i].sum + LANES;
        r[i].out = r[i].factor + LANES;
        at = r[i].out + z->value_dim * LANES;
    }
}

static inline void begin(const weft_call *call, const block *b, T *q, running *r)
{
    rows x = {NULL, 0};
    if (!b->paired) x = rows_from(&call->in[Q], b->batch, b->head, b->first, b->n, wide_queries(b));
    load_queries(call, b, x, q);
    for (int64_t i = 0; i < LANES; i++) {
        r->top[i] = (T)-INFINITY;
        r->sum[i] = 0;
    }
    memset(r->out, 0, (size_t)(b->z.value_dim * LANES) * sizeof(T));
}

/* Keys [key, key + n) for one block. */
static inline void add_keys(const block *b, int64_t key, int64_t n, int hidden, rows k, rows v,
                            const T *q, T *s, running *r)
{
    scores(b, key, n, hidden, k, q, s);
    weigh(b, n, s, r);
    if (b->attr->p > 0) drop_weights(b, key, n, s);
    tile_product((tile_operands){.m = b->z.value_dim,
                                 .n = b->width,
                                 .depth = n,
                                 .a = v.at,
                                 .a_row = 1,
                                 .a_step = v.row,
                                 .b = s,
                                 .b_row = LANES,
                                 .c = r->out,
                                 .c_row = LANES,
                                 .add = true});
}

/* The blocks of a tile go through the keys together, so that these are read from memory once. */
static inline void forward_group(const weft_call *call, const sizes *z, const block *b,
                                 int64_t count, T *space)
{
    T *s, *q[MAX_GROUP];
    running r[MAX_GROUP];
    int64_t last_key = 0, first_key = z->keys;
    place(z, space, &s, r, q);
    for (int64_t i = 0; i < count; i++) {
        begin(call, b + i, q[i], r + i);
        if (b[i].last_key > last_key) last_key = b[i].last_key;
        if (b[i].first_key < first_key) first_key = b[i].first_key;
    }
    for (int64_t key = first_key; key < last_key; key += KEY_BLOCK) {
        const int64_t keys = min_of(KEY_BLOCK, z->keys - key);
        bool read = false;
        rows k = {NULL, 0}, v = k;
        for (int64_t i = 0; i < count; i++) {
            const int64_t n = min_of(keys, b[i].last_key - key);
            const bool seen = n > 0 && key >= b[i].first_key;
            const int hidden = seen ? hidden_places(b + i, key, n) : 2;
            if (hidden == 2) continue;
            if (!read) {
                if (!b->paired) k = keys_from(b, key, keys);
                v = values_from(b, key, keys);
                read = true;
            }
            add_keys(b + i, key, n, hidden, k, v, q[i], s, r + i);
        }
    }
    for (int64_t i = 0; i < count; i++) finish(call, b + i, r + i);
}

KERNEL(sdpa)
{
    const sdpa_attr *attr = call->attr;
    const sizes z = sizes_of(call);
    T *space = weft_call_workspace(call);
    uint32_t *words =
        (uint32_t *)(void *)(space + (rows_of_work(&z, attr, false) - WORD_ROWS) * LANES);
    const int64_t groups = ceil_div(z.blocks, z.group), row = tile / groups, at = tile % groups;
    /* Later blocks attend to more keys: groups from both ends alternate, so that neighbours cost
     * about the same. */
    const int64_t index = !attr->causal ? at : at % 2 ? groups - 1 - at / 2 : at / 2;
    const int64_t count = min_of(z.group, z.blocks - index * z.group);
    block b[MAX_GROUP];
    for (int64_t i = 0; i < count; i++)
        b[i] = block_at(call, &z, row / z.heads, row % z.heads, index * z.group + i,
                        attr->mask ? &call->in[3] : NULL, words);
    forward_group(call, &z, b, count, space);
}
