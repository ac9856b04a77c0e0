/* A block of queries of one head against a block of keys: its scores, what the causal bound and the
 * mask hide from it, and the random words of its dropout. For the kernels of attention, forward and
 * backward. */
#ifndef WEFT_OPS_KERNELS_ATTENTION_BLOCK_H
#define WEFT_OPS_KERNELS_ATTENTION_BLOCK_H

#include "attention.h"
#include "random/dropout.h"
#include "base/half.h"
#include "kernels/vmath_lanes.h"
#include "kernels/tile.h"

#ifdef WEFT_KERNEL_ISA

#define LANES ((int64_t)(LANE_BYTES / sizeof(T)))
#define SIMD  _Pragma("omp simd")

/* How the rows of two operands are multiplied: kernels/pairs.h has what is special about two that
 * are stored as bf16. On AVX512_BF16 they are read as pairs, each moved as a T, if all of them lie
 * at even places. The bits are the same. */
#ifdef __AVX512BF16__
#define MULTIPLIES_PAIRS true
#else
#define MULTIPLIES_PAIRS   false
#define tile_product_pairs tile_product_bf16 /* not called */
#endif

/* A block of queries of one head under way. */
typedef struct block {
    const sdpa_attr *attr;
    sizes z;
    int64_t batch, head, kv_head;
    int64_t first, n;  /* queries */
    int64_t width;     /* n rounded up to whole vectors: the lanes in use */
    int64_t last_key;  /* no query of the block attends to a key from here on */
    int64_t first_key; /* nor to one before this one, a multiple of KEY_BLOCK */
    const weft_tensor *keys, *values;
    tile_kind product;   /* of q k^T */
    T *wide;             /* wide_rows: blocks of q and dout, k and v in f32 */
    const uint8_t *hide; /* the mask of the block's first query, or NULL */
    int64_t hide_query, hide_key;
    uint64_t stream, run; /* of dropout */
    uint32_t *words;
} block;

/* Row 0 of a head in a tensor [batch, len, heads, dim]. */
static inline T *head_of(const weft_tensor *t, int64_t batch, int64_t head)
{
    return (T *)t->data + batch * t->stride[0] + head * t->stride[2];
}

/* Rows of a block as T: of dimension `dim`, `row` elements apart. */
typedef struct rows {
    const T *at;
    int64_t row;
} rows;

/* At least this many rows are copied together: where they lie, many of them share the same few sets
 * of the first-level cache. */
#define MIN_COPIED 16

/* n rows of a head from `first` on: where they lie, or in `space`, if they are stored as bf16 or
 * u8, or lie apart. */
static inline rows rows_from(const weft_tensor *t, int64_t batch, int64_t head, int64_t first,
                             int64_t n, T *space)
{
    const int64_t row = t->stride[1];
#if KERNEL_IS(f32)
    const int64_t dim = t->shape.dim[3];
    if (t->dtype == WEFT_F32 && row > dim && n >= MIN_COPIED) {
        const T *x = head_of(t, batch, head) + first * row;
        for (int64_t i = 0; i < n; i++) {
            for (int64_t c = 0; c < dim; c += 16) __builtin_prefetch(x + (n + i) * row + c, 0, 2);
            memcpy(space + i * dim, x + i * row, (size_t)dim * sizeof *x);
        }
        return (rows){space, dim};
    }
    if (t->dtype == WEFT_BF16) {
        const uint16_t *x = (const uint16_t *)t->data + batch * t->stride[0] + head * t->stride[2];
        for (int64_t i = 0; i < n; i++) {
            /* The following rows are likely to be read next, and too far apart for the hardware
             * prefetcher. */
            const uint16_t *ahead = x + (first + n + i) * row;
            for (int64_t c = 0; c < dim; c += 32) __builtin_prefetch(ahead + c, 0, 2);
            half_widen(x + (first + i) * row, space + i * dim, dim);
        }
        return (rows){space, dim};
    }
    if (t->dtype == WEFT_U8) {
        const uint8_t *x = (const uint8_t *)t->data + batch * t->stride[0] + head * t->stride[2];
        const int64_t elements = dim - NARROW_SCALE;
        for (int64_t i = 0; i < n; i++) {
            const uint8_t *at = x + (first + i) * row, *ahead = at + n * row;
            for (int64_t c = 0; c < dim; c += 64) __builtin_prefetch(ahead + c, 0, 2);
            const float scale = narrow_scale(at);
            SIMD for (int64_t c = 0; c < elements; c++) space[i * elements + c] =
                scale * (float)(at[NARROW_SCALE + c] - NARROW_ZERO);
        }
        return (rows){space, elements};
    }
#endif
    (void)n;
    (void)space;
    return (rows){head_of(t, batch, head) + first * row, row};
}

static inline tile_kind product_of(const weft_tensor *a, const weft_tensor *b)
{
    const weft_tensor *const both[2] = {a, b};
    tile_kind kind = MULTIPLIES_PAIRS ? TILE_PAIRS : TILE_BF16;
    for (int i = 0; i < 2; i++) {
        const weft_tensor *t = both[i];
        int64_t odd = (int64_t)((uintptr_t)t->data / sizeof(uint16_t)) | t->shape.dim[3];
        for (int d = 0; d < 3; d++) odd |= t->stride[d];
        if (t->dtype != WEFT_BF16) return TILE_PLAIN;
        if (odd % 2) kind = TILE_BF16;
    }
    return kind;
}

/* The rows of a head from `first` on, as pairs. */
static inline rows pairs_from(const weft_tensor *t, int64_t batch, int64_t head, int64_t first)
{
    const uint16_t *x = (const uint16_t *)t->data + batch * t->stride[0] + head * t->stride[2] +
                        first * t->stride[1];
    return (rows){(const T *)(const void *)x, t->stride[1] / 2};
}

static inline int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t mask_stride(const weft_tensor *mask, int axis)
{
    axis -= 4 - mask->shape.rank;
    return axis < 0 || mask->shape.dim[axis] == 1 ? 0 : mask->stride[axis];
}

/* The last key that some query of the block attends to, + 1. */
static inline int64_t end_of_keys(const block *b)
{
    int64_t end = b->z.keys;
    if (b->attr->causal) end = min_of(end, b->first + b->n + b->z.keys - b->z.queries);
    if (end < 0) end = 0;
    /* Padding that hides the same keys from every query needs no work. */
    if (b->hide && !b->hide_query)
        while (end > 0 && b->hide[(end - 1) * b->hide_key]) end--;
    return end;
}

/* The first key that some query of the block attends to, ignoring the mask. */
static inline int64_t start_of_keys(const block *b)
{
    const int64_t first = b->first + b->z.keys - b->z.queries - b->attr->window + 1;
    return b->attr->window && first > 0 ? first / KEY_BLOCK * KEY_BLOCK : 0;
}

static inline block block_at(const weft_call *call, const sizes *z, int64_t batch, int64_t head,
                             int64_t index, const weft_tensor *mask, uint32_t *words)
{
    block b = {.attr = call->attr,
               .z = *z,
               .batch = batch,
               .head = head,
               .kv_head = head / (z->heads / z->kv_heads),
               .first = index * LANES,
               .keys = &call->in[K],
               .values = &call->in[V],
               .product = product_of(&call->in[Q], &call->in[K]),
               .wide = (T *)(void *)words + WORD_ROWS * LANES,
               .words = words};
    b.n = min_of(LANES, z->queries - b.first);
    b.width = ceil_div(b.n, SIMD_LANES) * SIMD_LANES;
    if (mask) {
        b.hide_query = mask_stride(mask, 2);
        b.hide_key = mask_stride(mask, 3);
        b.hide = (const uint8_t *)mask->data + batch * mask_stride(mask, 0) +
                 head * mask_stride(mask, 1) + b.first * b.hide_query;
    }
    b.last_key = end_of_keys(&b);
    b.first_key = start_of_keys(&b);
    if (b.attr->p > 0) {
        b.stream = dropout_stream(b.attr->key, call->run);
        b.run = call->run->number;
    }
    return b;
}

/* The parts of b->wide. */
static inline T *wide_queries(const block *b)
{
    return b->wide;
}

static inline T *wide_gradients(const block *b)
{
    return b->wide + b->z.dim * LANES;
}

/* n rows of keys, and of values after them. */
static inline rows keys_from(const block *b, int64_t key, int64_t n)
{
    T *space = b->wide + (b->z.dim + b->z.value_dim) * LANES;
    return rows_from(b->keys, b->batch, b->kv_head, key, n, space);
}

static inline rows values_from(const block *b, int64_t key, int64_t n)
{
    T *space = b->wide + (b->z.dim + b->z.value_dim) * LANES + b->z.dim * n;
    return rows_from(b->values, b->batch, b->kv_head, key, n, space);
}

/* t [columns, LANES] = factor x^T for the n rows of x; the lanes beyond them are zero. */
static inline void load_transposed(const block *b, rows x, int64_t columns, T factor, T *t)
{
    simd_transpose(b->n, columns, x.at, x.row, t, LANES);
    for (int64_t c = 0; c < columns; c++) {
        if (factor != 1)
            for (int64_t i = 0; i < b->n; i++) t[c * LANES + i] *= factor;
        for (int64_t i = b->n; i < b->width; i++) t[c * LANES + i] = 0;
    }
}

/* t [columns / 2, LANES] = x^T for the block's rows of a tensor, as pairs. */
static inline void load_pairs(const block *b, const weft_tensor *tensor, int64_t columns, T *t)
{
    const rows x = pairs_from(tensor, b->batch, b->head, b->first);
    simd_transpose(b->n, columns / 2, x.at, x.row, t, LANES);
    for (int64_t c = 0; c < columns / 2; c++)
        for (int64_t i = b->n; i < b->width; i++) t[c * LANES + i] = 0;
}

/* C = A B by rows of two operands stored as bf16; n is a multiple of SIMD_LANES, and the depth
 * counts elements of the kind. */
static inline void product_of_bf16(tile_kind kind, tile_operands o)
{
#if KERNEL_IS(f32)
    const float_env env = float_env_flush();
    if (kind == TILE_PAIRS)
        tile_product_pairs(o);
    else
        tile_product_bf16(o);
    float_env_restore(env);
#else
    (void)kind, (void)o;
#endif
}

/* ---- The mask and the causal bound ---- */

/* How many of the block's scores at keys [key, key + n) the mask hides: 0 none, 1 some, 2 all. */
static inline int hidden_places(const block *b, int64_t key, int64_t n)
{
    if (!b->hide) return 0;
    const int64_t step = b->hide_key;
    uint8_t any = 0, all = 1;
    for (int64_t i = 0; i < (b->hide_query ? b->n : 1); i++) {
        const uint8_t *row = b->hide + i * b->hide_query + key * step;
        if (step == 1)
            _Pragma("omp simd reduction(| : any) reduction(& : all)") for (int64_t j = 0; j < n;
                                                                           j++)
            {
                any |= row[j];
                all &= row[j];
            }
        else
            for (int64_t j = 0; j < n; j++) {
                any |= row[j * step];
                all &= row[j * step];
            }
    }
    return all ? 2 : any;
}

static inline void hide_row(T *s, int64_t width)
{
    for (int64_t i = 0; i < width; i++) s[i] = (T)-INFINITY;
}

/* Writes -inf to the scores of keys [key, key + n) that the mask hides. */
static inline void hide_places(const block *b, int64_t key, int64_t n, T *s)
{
    const uint8_t *hide = b->hide + key * b->hide_key;
    uint8_t transposed[KEY_BLOCK * LANES];
    if (!b->hide_query) {
        for (int64_t j = 0; j < n; j++)
            if (hide[j * b->hide_key]) hide_row(s + j * LANES, b->width);
        return;
    }
    if (b->hide_key == 1)
        simd_transpose_bytes(b->n, n, hide, b->hide_query, transposed, LANES);
    else
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < b->n; i++)
                transposed[j * LANES + i] = hide[i * b->hide_query + j * b->hide_key];
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < b->n; i++)
            s[j * LANES + i] = transposed[j * LANES + i] ? (T)-INFINITY : s[j * LANES + i];
}

/* Query i sees keys up to i + keys - queries. */
static inline void hide_later(const block *b, int64_t key, int64_t n, T *s)
{
    const int64_t before = key - b->first - b->z.keys + b->z.queries;
    for (int64_t j = 0; j < n; j++)
        if (before + j > 0) hide_row(s + j * LANES, min_of(before + j, b->width));
}

/* Nor keys up to that of its own position - window. */
static inline void hide_earlier(const block *b, int64_t key, int64_t n, T *s)
{
    const int64_t before = key - b->first - b->z.keys + b->z.queries + b->attr->window;
    for (int64_t j = 0; j < n && before + j < b->width; j++) {
        const int64_t from = before + j > 0 ? before + j : 0;
        hide_row(s + j * LANES + from, b->width - from);
    }
}

/* The block's queries as scores() reads them: [dim, LANES], or as pairs. They are multiplied by the
 * scale, unless the product is one of bf16, which is multiplied itself. */
static inline void load_queries(const weft_call *call, const block *b, rows x, T *q)
{
    if (b->product == TILE_PAIRS)
        load_pairs(b, &call->in[Q], b->z.dim, q);
    else
        load_transposed(b, x, b->z.dim, b->product == TILE_BF16 ? 1 : (T)b->attr->scale, q);
}

/* s [n, LANES] = X Q^T for n rows of keys or values, of `dim` elements, and a transposed block of
 * queries or dout. Both are pairs if the kind is TILE_PAIRS. */
static inline void multiply_rows(const block *b, tile_kind kind, int64_t dim, int64_t n, rows x,
                                 const T *q, T *s)
{
    const tile_operands o = {.m = n,
                             .n = b->width,
                             .depth = kind == TILE_PAIRS ? dim / 2 : dim,
                             .a = x.at,
                             .a_row = x.row,
                             .a_step = 1,
                             .b = q,
                             .b_row = LANES,
                             .c = s,
                             .c_row = LANES};
    if (kind == TILE_PLAIN)
        tile_product(o);
    else
        product_of_bf16(kind, o);
}

/* s [m, n] times the scale, after a product of bf16. */
static inline void scale_rows(const block *b, int64_t m, int64_t n, T *s, int64_t row)
{
    const T scale = (T)b->attr->scale;
    for (int64_t i = 0; i < m; i++) SIMD for (int64_t j = 0; j < n; j++) s[i * row + j] *= scale;
}

/* s [n, LANES] = scale K Q^T for keys [key, key + n), whose rows are k, -inf where attention is
 * masked out. k is not read if the product is one of pairs. `hidden` is hidden_places, but not 2.
 */
static inline void scores(const block *b, int64_t key, int64_t n, int hidden, rows k, const T *q,
                          T *s)
{
    if (b->product == TILE_PAIRS) k = pairs_from(b->keys, b->batch, b->kv_head, key);
    multiply_rows(b, b->product, b->z.dim, n, k, q, s);
    if (b->product != TILE_PLAIN) scale_rows(b, n, b->width, s, LANES);
    if (hidden) hide_places(b, key, n, s);
    if (b->attr->causal) hide_later(b, key, n, s);
    if (b->attr->window) hide_earlier(b, key, n, s);
}

/* ---- Dropout ---- */

/* Where the words of the block's queries begin. The plain op draws four words at a time, for the
 * places of [batch, heads, queries, keys] in order; a row of keys may begin within a group of
 * four. */
typedef struct draws {
    uint64_t four[LANES];               /* of key 0 */
    uint32_t odd[LANES], second[LANES]; /* all ones where it is word 1 or 3, word 2 or 3 */
    bool even;                          /* word 0 everywhere */
    uint32_t limit;
    uint32_t row[LANES];
} draws;

static inline void begin_draws(const block *b, draws *d)
{
    const uint64_t row = (uint64_t)((b->batch * b->z.heads + b->head) * b->z.queries + b->first);
    d->even = b->z.keys % 4 == 0;
    d->limit = dropout_limit(b->attr->p);
    for (int64_t i = 0; i < LANES; i++) {
        const uint64_t first = (row + (uint64_t)i) * (uint64_t)b->z.keys;
        d->four[i] = first / 4;
        d->odd[i] = first & 1 ? UINT32_MAX : 0;
        d->second[i] = first & 2 ? UINT32_MAX : 0;
    }
}

/* Draws for n keys from `key`, a multiple of 4. */
static inline void draw(const block *b, const draws *d, int64_t key, int64_t n)
{
    for (int64_t f = 0; 4 * f < (d->even ? n : n + 3); f++)
        for (int64_t i = 0; i < b->width; i += DROPOUT_LANES) {
            const dropout_wide four = *(const dropout_wide *)(d->four + i);
            dropout_words_wide(four + (uint64_t)(key / 4 + f), b->stream, b->run,
                               b->words + 4 * f * LANES + i, LANES);
        }
}

/* The words of key j of those drawn: a row as it lies, or put together. */
static inline const uint32_t *words_of(const block *b, draws *d, int64_t j)
{
    const uint32_t *w = b->words + j * LANES;
    if (d->even) return w;
    SIMD for (int64_t i = 0; i < b->width; i++)
    {
        const uint32_t odd = d->odd[i], second = d->second[i];
        const uint32_t low = (w[i] & ~odd) | (w[LANES + i] & odd);
        const uint32_t high = (w[2 * LANES + i] & ~odd) | (w[3 * LANES + i] & odd);
        d->row[i] = (low & ~second) | (high & second);
    }
    return d->row;
}

#endif
#endif
