/* The kernel of sdpa: scaled dot-product attention without storing the scores. The formulas are in
 * sdpa.c.
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
    for (int64_t j = 0; j < n; j++)
        VM_EACH (i, width) {
            const vm_lanes e = vm_lanes_exp(VM_AT(s + j * LANES + i) - VM_AT(shift + i));
            VM_AT(s + j * LANES + i) = e;
            VM_AT(sum + i) += e;
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

/* Writes lse and lse_low of the block's query i; returns what its sums are multiplied by. A query
 * that attends to no key gets zero, even if the value of a masked key is not finite. */
static inline T finish_row(const weft_call *call, const block *b, int64_t i, const running *r)
{
    const int64_t query = (b->batch * b->z.heads + b->head) * b->z.queries + b->first + i;
    const double top = (double)r->top[i], logarithm = vm_log_f64((double)r->sum[i]);
    T *lse = (T *)call->out[1].data + query, *low = (T *)call->out[2].data + query;
    *lse = (T)(top + logarithm);
    *low = r->sum[i] == 0 ? 0 : (T)((top - (double)*lse) + logarithm);
    return r->sum[i] == 0 ? 0 : (T)(1 / (1 - b->attr->p)) / r->sum[i];
}

static inline void finish(const weft_call *call, const block *b, running *r)
{
    const int64_t columns = b->z.value_dim;
    const weft_tensor *out = &call->out[0];
    for (int64_t i = b->n; i < b->width; i++) r->factor[i] = 0;
    for (int64_t i = 0; i < b->n; i++) r->factor[i] = finish_row(call, b, i, r);
    for (int64_t c = 0; c < columns; c++)
        for (int64_t i = 0; i < b->width; i++)
            r->out[c * LANES + i] = r->factor[i] == 0 ? 0 : r->out[c * LANES + i] * r->factor[i];
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
    if (b->product != TILE_PAIRS)
        x = rows_from(&call->in[Q], b->batch, b->head, b->first, b->n, wide_queries(b));
    load_queries(call, b, x, q);
    for (int64_t i = 0; i < LANES; i++) {
        r->top[i] = (T)-INFINITY;
        r->sum[i] = 0;
    }
    memset(r->out, 0, (size_t)(b->z.value_dim * LANES) * sizeof(T));
}

/* Keys [key, key + n); `hidden` is hidden_places of a block. */
typedef struct key_range {
    int64_t key, n;
    int hidden;
} key_range;

static inline void add_keys(const block *b, key_range range, rows k, rows v, const T *q, T *s,
                            running *r)
{
    const int64_t key = range.key, n = range.n;
    scores(b, key, n, range.hidden, k, q, s);
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
                if (b->product != TILE_PAIRS) k = keys_from(b, key, keys);
                v = values_from(b, key, keys);
                read = true;
            }
            add_keys(b + i, (key_range){key, n, hidden}, k, v, q[i], s, r + i);
        }
    }
    for (int64_t i = 0; i < count; i++) finish(call, b + i, r + i);
}

/* ---- Few queries ----
 *
 * The same sums in the same order, so the same bits, with keys in the lanes of vectors: k is
 * transposed block by block, and rows of v are added up as they lie. */

/* The last columns of v would be summed without vectors, one by one. */
static inline bool are_few(const block *b)
{
    return b->n <= SIMD_LANES / 2 && b->z.value_dim % SIMD_LANES == 0 && b->product != TILE_PAIRS &&
           b->attr->p == 0;
}

/* Writes -inf to scores [n queries, KEY_BLOCK] of the keys that attention leaves out. */
static inline void hide_few(const block *b, int64_t key, int64_t n, int hidden, T *s)
{
    const int64_t before = key - b->first - b->z.keys + b->z.queries;
    for (int64_t i = 0; i < b->n; i++) {
        T *row = s + i * KEY_BLOCK;
        const uint8_t *hide = hidden ? b->hide + i * b->hide_query + key * b->hide_key : NULL;
        const int64_t end = b->attr->causal ? i - before + 1 : n;
        const int64_t begin = b->attr->window ? i - before - b->attr->window + 1 : 0;
        for (int64_t j = 0; j < n; j++)
            if (j >= end || j < begin || (hide && hide[j * b->hide_key])) row[j] = (T)-INFINITY;
    }
}

/* weigh() for query i. */
static inline void weigh_few(const block *b, int64_t i, int64_t n, T *s, running *r)
{
    T top = r->top[i], sum = 0, *out = r->out + i * b->z.value_dim;
    _Pragma("omp simd reduction(max : top)") for (int64_t j = 0; j < n; j++) top =
        s[j] > top ? s[j] : top;
    const T shift = top == (T)-INFINITY ? 0 : top;
    const int64_t whole = n - n % VM_STEP;
    VM_EACH (j, whole) VM_AT(s + j) = vm_lanes_exp(VM_AT(s + j) - shift);
    for (int64_t j = whole; j < n; j++) s[j] = vm_exp(s[j] - shift);
    for (int64_t j = 0; j < n; j++) sum += s[j];
    if (top == r->top[i]) {
        r->sum[i] += sum;
        return;
    }
    const T factor = vm_exp(r->top[i] - shift);
    r->sum[i] = r->sum[i] * factor + sum;
    r->top[i] = top;
    for (int64_t c = 0; c < b->z.value_dim; c++) out[c] *= factor;
}

/* n rows from `first` on. Each is read once, so that rows of T need not be copied together. */
static inline rows rows_once(const block *b, const weft_tensor *t, int64_t first, int64_t n,
                             T *space)
{
    if (t->dtype == WEFT_BF16 || t->dtype == WEFT_U8)
        return rows_from(t, b->batch, b->kv_head, first, n, space);
    const int64_t row = t->stride[1];
    const T *x = head_of(t, b->batch, b->kv_head) + first * row;
    for (int64_t i = n; i < 2 * n; i++)
        for (int64_t c = 0; c < t->shape.dim[3]; c += LINE) __builtin_prefetch(x + i * row + c);
    return (rows){x, row};
}

/* kt and q are room for transposed keys and the block's queries, as load_queries has them. */
static inline void add_keys_few(const block *b, key_range range, T *kt, const T *q, T *s,
                                running *r)
{
    const int64_t key = range.key, n = range.n;
    const int hidden = range.hidden;
    const int64_t dim = b->z.dim, values = b->z.value_dim;
    const rows k = rows_once(b, b->keys, key, n, b->wide + dim * LANES);
    for (int64_t j = 0; j < n; j += LANES) {
        const int64_t some = min_of(LANES, n - j), width = ceil_div(some, SIMD_LANES) * SIMD_LANES;
        simd_transpose(some, dim, k.at + j * k.row, k.row, kt, LANES);
        for (int64_t c = 0; c < dim; c++)
            for (int64_t l = some; l < width; l++) kt[c * LANES + l] = 0;
        const tile_operands o = {.m = b->n,
                                 .n = width,
                                 .depth = dim,
                                 .a = q,
                                 .a_row = dim,
                                 .a_step = 1,
                                 .b = kt,
                                 .b_row = LANES,
                                 .c = s + j,
                                 .c_row = KEY_BLOCK};
        if (b->product == TILE_PLAIN)
            tile_product(o);
        else
            product_of_bf16(TILE_BF16, o);
    }
    if (b->product != TILE_PLAIN) scale_rows(b, b->n, n, s, KEY_BLOCK);
    if (hidden || b->attr->causal || b->attr->window) hide_few(b, key, n, hidden, s);
    for (int64_t i = 0; i < b->n; i++) weigh_few(b, i, n, s + i * KEY_BLOCK, r);
    const rows v = rows_once(b, b->values, key, n, b->wide + 2 * dim * LANES);
    tile_product((tile_operands){.m = b->n,
                                 .n = values,
                                 .depth = n,
                                 .a = s,
                                 .a_row = KEY_BLOCK,
                                 .a_step = 1,
                                 .b = v.at,
                                 .b_row = v.row,
                                 .c = r->out,
                                 .c_row = values,
                                 .add = true});
}

static inline void finish_few(const weft_call *call, const block *b, const running *r)
{
    const weft_tensor *out = &call->out[0];
    for (int64_t i = 0; i < b->n; i++) {
        const T factor = finish_row(call, b, i, r);
        const T *from = r->out + i * b->z.value_dim;
        T *to = head_of(out, b->batch, b->head) + (b->first + i) * out->stride[1];
        for (int64_t c = 0; c < b->z.value_dim; c++) to[c] = factor == 0 ? 0 : from[c] * factor;
    }
}

static inline void forward_few(const weft_call *call, const sizes *z, const block *b, T *space)
{
    T *s, *kt[MAX_GROUP], *q = space + (KEY_BLOCK + z->dim + z->value_dim + 3) * LANES;
    running r[MAX_GROUP];
    place(z, space, &s, r, kt);
    const rows x = rows_from(&call->in[Q], b->batch, b->head, b->first, b->n, wide_queries(b));
    const T scale = b->product == TILE_BF16 ? 1 : (T)b->attr->scale;
    for (int64_t i = 0; i < b->n; i++) {
        for (int64_t c = 0; c < z->dim; c++) q[i * z->dim + c] = x.at[i * x.row + c] * scale;
        r->top[i] = (T)-INFINITY;
        r->sum[i] = 0;
    }
    memset(r->out, 0, (size_t)(b->n * z->value_dim) * sizeof(T));
    for (int64_t key = b->first_key; key < b->last_key; key += KEY_BLOCK) {
        const int64_t n = min_of(KEY_BLOCK, b->last_key - key);
        const int hidden = hidden_places(b, key, n);
        if (hidden != 2) add_keys_few(b, (key_range){key, n, hidden}, kt[0], q, s, r);
    }
    finish_few(call, b, r);
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
    if (count == 1 && are_few(b))
        forward_few(call, &z, b, space);
    else
        forward_group(call, &z, b, count, space);
}
