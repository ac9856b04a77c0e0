/* Scaled dot-product attention and its backward pass. See exact.h.
 *
 * Queries come in blocks of 64 (f32) or 32 (f64), keys in blocks of 64. A block of keys that none
 * of the block's queries may attend to is left out. Dot products over a head are chains of fused
 * multiply-adds over 128 terms. */
#include "exact_math.h"

typedef struct sdpa_attr {
    double scale, p;
    uint64_t key;
    int64_t window;
    bool causal, mask, dlse;
} sdpa_attr;

#define QUERIES ((int64_t)(256 / sizeof(T)))
#define KEYS    64
#define CHAIN   128

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static T dot(line a, line b, int64_t n)
{
    T total = 0;
    for (int64_t from = 0; from < n; from += CHAIN) {
        T sum = 0;
        for (int64_t i = from; i < least(n, from + CHAIN); i++) sum = FMA(of(a, i), of(b, i), sum);
        total = from ? total + sum : sum;
    }
    return total;
}

static bool are_bf16(const weft_tensor *a, const weft_tensor *b)
{
    return a->dtype == WEFT_BF16 && b->dtype == WEFT_BF16;
}

/* A row of [batch, len, heads, dim]. */
static line row_of(const weft_tensor *t, int64_t batch, int64_t i, int64_t head)
{
    return (line){data(t) + batch * t->stride[0] + i * t->stride[1] + head * t->stride[2], 1};
}

/* A block of queries of one head. */
typedef struct block {
    const sdpa_attr *attr;
    const weft_tensor *q, *k, *mask; /* mask: NULL if there is none */
    int64_t batch, head, kv_head, first, n;
    int64_t first_key, last_key; /* queries attend to keys of [first_key, last_key) only */
} block;

static bool is_masked(const block *b, int64_t i, int64_t key)
{
    const weft_shape all = {
        4, {b->q->shape.dim[0], b->q->shape.dim[2], b->q->shape.dim[1], b->k->shape.dim[1]}};
    if (!b->mask) return false;
    const int64_t row = (b->batch * all.dim[1] + b->head) * all.dim[2] + b->first + i;
    return ((const uint8_t *)b->mask->data)[offset_in(b->mask, &all, row * all.dim[3] + key)];
}

/* Whether query i of the block does not attend to the key. */
static bool is_hidden(const block *b, int64_t i, int64_t key)
{
    const int64_t own = b->first + i + b->k->shape.dim[1] - b->q->shape.dim[1]; /* the last key */
    return is_masked(b, i, key) || (b->attr->causal && key > own) ||
           (b->attr->window && key <= own - b->attr->window);
}

/* Whether dropout keeps the weight of query i of the block at the key. */
static bool is_weight_kept(const block *b, int64_t i, int64_t key)
{
    const int64_t heads = b->q->shape.dim[2], queries = b->q->shape.dim[1];
    const int64_t row = (b->batch * heads + b->head) * queries + b->first + i;
    return is_kept(b->attr->p, b->attr->key, row * b->k->shape.dim[1] + key);
}

static block block_at(const sdpa_attr *attr, const weft_tensor *in, const weft_tensor *mask,
                      const int64_t *place)
{
    const int64_t queries = in[0].shape.dim[1], keys = in[1].shape.dim[1];
    block b = {
        .attr = attr, .q = &in[0], .k = &in[1], .mask = mask, .batch = place[0], .head = place[1]};
    b.kv_head = b.head / (in[0].shape.dim[2] / in[1].shape.dim[2]);
    b.first = place[2] * QUERIES;
    b.n = least(QUERIES, queries - b.first);
    b.last_key = attr->causal ? least(keys, b.first + b.n + keys - queries) : keys;
    if (b.last_key < 0) b.last_key = 0;
    /* A mask that is the same for all queries may hide the last keys. */
    const int axis = mask ? 2 - (4 - mask->shape.rank) : -1;
    if (mask && (axis < 0 || mask->shape.dim[axis] == 1 || mask->stride[axis] == 0))
        while (b.last_key > 0 && is_masked(&b, 0, b.last_key - 1)) b.last_key--;
    const int64_t start = b.first + keys - queries - attr->window + 1;
    b.first_key = attr->window && start > 0 ? start / KEYS * KEYS : 0;
    return b;
}

/* Whether the mask hides all of these keys from all of the block's queries. */
static bool all_masked(const block *b, int64_t key, int64_t n)
{
    for (int64_t i = 0; i < b->n; i++)
        for (int64_t j = 0; j < n; j++)
            if (!is_masked(b, i, key + j)) return false;
    return b->mask != NULL;
}

/* The scores of query i at keys [key, key + n). */
static void scores(const block *b, int64_t i, int64_t key, int64_t n, T *s)
{
    const int64_t dim = b->q->shape.dim[3];
    const line q = row_of(b->q, b->batch, b->first + i, b->head);
    const T scale = (T)b->attr->scale;
    T *scaled = malloc((size_t)(dim + 1) * sizeof *scaled);
    for (int64_t c = 0; c < dim; c++) scaled[c] = of(q, c) * scale;
    for (int64_t j = 0; j < n; j++) {
        const line k = row_of(b->k, b->batch, key + j, b->kv_head);
        s[j] =
            are_bf16(b->q, b->k) ? dot_of_bf16(q, k, dim) * scale : dot((line){scaled, 1}, k, dim);
        if (is_hidden(b, i, key + j)) s[j] = (T)-INFINITY;
    }
    free(scaled);
}

/* ---- Forward ---- */

/* Query i: a running maximum, sum and output. */
static void attend(const block *b, const weft_tensor *v, int64_t i, weft_tensor *out)
{
    const int64_t columns = v->shape.dim[3], query = b->first + i;
    const int64_t heads = b->q->shape.dim[2], queries = b->q->shape.dim[1];
    T top = (T)-INFINITY, sum = 0;
    T *y = data(out) + ((b->batch * queries + query) * heads + b->head) * columns;
    for (int64_t c = 0; c < columns; c++) y[c] = 0;
    for (int64_t key = b->first_key; key < b->last_key; key += KEYS) {
        const int64_t n = least(KEYS, b->last_key - key);
        T s[KEYS], next = top, more = 0;
        if (all_masked(b, key, n)) continue;
        scores(b, i, key, n, s);
        for (int64_t j = 0; j < n; j++) next = s[j] > next ? s[j] : next;
        const T shift = next == (T)-INFINITY ? 0 : next;
        for (int64_t j = 0; j < n; j++) {
            s[j] = vm_exp(s[j] - shift);
            more += s[j];
        }
        const T factor = next == top ? 1 : vm_exp(top - shift);
        sum = sum * factor + more;
        top = next;
        for (int64_t j = 0; j < n; j++)
            if (!is_weight_kept(b, i, key + j)) s[j] = 0;
        for (int64_t c = 0; c < columns; c++) {
            T product = 0;
            for (int64_t j = 0; j < n; j++)
                product = FMA(of(row_of(v, b->batch, key + j, b->kv_head), c), s[j], product);
            y[c] = y[c] * factor + product;
        }
    }
    const double logarithm = vm_log_f64((double)sum);
    const int64_t at = (b->batch * heads + b->head) * queries + query;
    T *lse = data(&out[1]) + at;
    *lse = (T)((double)top + logarithm);
    data(&out[2])[at] = sum == 0 ? 0 : (T)(((double)top - (double)*lse) + logarithm);
    const T factor = sum == 0 ? 0 : (T)(1 / (1 - b->attr->p)) / sum;
    for (int64_t c = 0; c < columns; c++) y[c] = factor == 0 ? 0 : y[c] * factor;
}

EXACT(sdpa)
{
    UNUSED;
    const sdpa_attr *a = attr;
    const int64_t *size = in[0].shape.dim;
    for (int64_t batch = 0; batch < size[0]; batch++)
        for (int64_t head = 0; head < size[2]; head++)
            for (int64_t index = 0; index * QUERIES < size[1]; index++) {
                const block b =
                    block_at(a, in, a->mask ? &in[3] : NULL, (int64_t[]){batch, head, index});
                for (int64_t i = 0; i < b.n; i++) attend(&b, &in[2], i, out);
            }
}

/* ---- Backward ---- */

enum { Q, K, V, OUT, LSE, LSE_LOW, DOUT, REST };

static T lane_at(const weft_tensor *t, const block *b, int64_t i)
{
    return data(
        t)[b->batch * t->stride[0] + b->head * t->stride[1] + (b->first + i) * t->stride[2]];
}

/* The sum of dout out of a query, less the gradient of lse. */
static T delta_of(const block *b, const weft_tensor *in, int64_t i)
{
    const int64_t n = in[V].shape.dim[3];
    const line y = row_of(&in[OUT], b->batch, b->first + i, b->head);
    const line dy = row_of(&in[DOUT], b->batch, b->first + i, b->head);
    T *term = malloc((size_t)(n + 1) * sizeof *term);
    for (int64_t c = 0; c < n; c++) term[c] = of(y, c) * of(dy, c);
    const double sum = add_row(0, term, n);
    free(term);
    return (T)(b->attr->dlse ? sum - (double)lane_at(&in[REST + b->attr->mask], b, i) : sum);
}

/* p as dropout leaves it, and dS, of the block's queries at n keys: [queries, KEYS]. */
static void weigh_back(const block *b, const weft_tensor *in, int64_t key, int64_t n, T (*p)[KEYS],
                       T (*ds)[KEYS])
{
    const T scale = (T)b->attr->scale;
    for (int64_t i = 0; i < b->n; i++) {
        const T lse = lane_at(&in[LSE], b, i), low = lane_at(&in[LSE_LOW], b, i),
                delta = delta_of(b, in, i);
        scores(b, i, key, n, p[i]);
        for (int64_t j = 0; j < n; j++) {
            const line v = row_of(&in[V], b->batch, key + j, b->kv_head);
            const line dy = row_of(&in[DOUT], b->batch, b->first + i, b->head);
            const T product = are_bf16(&in[V], &in[DOUT]) ? dot_of_bf16(v, dy, in[V].shape.dim[3])
                                                          : dot(v, dy, in[V].shape.dim[3]);
            const T kept = is_weight_kept(b, i, key + j) ? (T)(1 / (1 - b->attr->p)) : 0;
            const T weight = vm_exp((p[i][j] - (lse == (T)-INFINITY ? 0 : lse)) - low);
            const T x = scale * weight * (kept * product - delta);
            p[i][j] = kept * weight;
            ds[i][j] = weight > 0 ? x : weight;
        }
    }
}

/* to [columns] += sum over the block's queries of weight x, for key `key + j`. */
static void add_queries(const block *b, T (*weight)[KEYS], int64_t j, const weft_tensor *x, T *to)
{
    for (int64_t c = 0; c < x->shape.dim[3]; c++) {
        T sum = 0;
        for (int64_t i = 0; i < b->n; i++)
            sum = FMA(weight[i][j], of(row_of(x, b->batch, b->first + i, b->head), c), sum);
        to[c] += sum;
    }
}

/* Where row i of a head lies in an output, and in `dq`, the elements of one. */
static T *dense_row(const weft_shape *shape, T *dq, int64_t batch, int64_t i, int64_t head)
{
    return dq + ((batch * shape->dim[1] + i) * shape->dim[2] + head) * shape->dim[3];
}

/* Keys [begin, end) of one block. */
static void back_block(const block *b, const weft_tensor *in, int64_t begin, int64_t end, T *dq,
                       weft_tensor *out)
{
    T p[QUERIES][KEYS], ds[QUERIES][KEYS];
    const int64_t dim = in[Q].shape.dim[3];
    end = least(end, b->last_key);
    if (begin < b->first_key) begin = b->first_key;
    if (begin >= end) return;
    for (int64_t key = begin; key < end; key += KEYS) {
        const int64_t n = least(KEYS, end - key);
        if (all_masked(b, key, n)) continue;
        weigh_back(b, in, key, n, p, ds);
        for (int64_t j = 0; j < n; j++) {
            add_queries(b, p, j, &in[DOUT],
                        dense_row(&out[2].shape, data(&out[2]), b->batch, key + j, b->kv_head));
            add_queries(b, ds, j, &in[Q],
                        dense_row(&out[1].shape, data(&out[1]), b->batch, key + j, b->kv_head));
        }
        for (int64_t i = 0; i < b->n; i++)
            for (int64_t c = 0; c < dim; c++) {
                T sum = 0;
                for (int64_t j = 0; j < n; j++)
                    sum = FMA(of(row_of(&in[K], b->batch, key + j, b->kv_head), c), ds[i][j], sum);
                dense_row(&in[Q].shape, dq, b->batch, b->first + i, b->head)[c] += sum;
            }
    }
    for (int64_t i = 0; i < b->n; i++)
        for (int64_t c = 0; c < dim && lane_at(&in[LSE], b, i) == (T)-INFINITY; c++)
            dense_row(&in[Q].shape, dq, b->batch, b->first + i, b->head)[c] = 0;
}

/* A chunk of keys of one head: 512 at a time go through all queries that read them. */
static void back_chunk(const sdpa_attr *a, const weft_tensor *in, const int64_t *place,
                       int64_t begin, int64_t end, T *dq, weft_tensor *out)
{
    const int64_t repeat = in[Q].shape.dim[2] / in[K].shape.dim[2];
    for (int64_t piece = begin; piece < end; piece += 512)
        for (int64_t h = place[1] * repeat; h < (place[1] + 1) * repeat; h++)
            for (int64_t index = 0; index * QUERIES < in[Q].shape.dim[1]; index++) {
                const block b =
                    block_at(a, in, a->mask ? &in[REST] : NULL, (int64_t[]){place[0], h, index});
                back_block(&b, in, piece, least(piece + 512, end), dq, out);
            }
}

EXACT(sdpa_grad)
{
    UNUSED;
    const int64_t batch = in[Q].shape.dim[0], keys = in[K].shape.dim[1], heads = in[K].shape.dim[2];
    const int64_t pairs = batch * heads, elements = numel(out);
    int64_t chunks = 1;
    if (pairs && pairs < 16 && keys >= 1024) chunks = least((32 + pairs - 1) / pairs, keys / 512);
    const int64_t chunk = round_up(round_up(keys, chunks) / chunks, KEYS);
    T *dq = malloc((size_t)(elements + 1) * sizeof *dq);
    for (int k = 0; k < 3; k++) memset(out[k].data, 0, (size_t)numel(&out[k]) * sizeof *dq);
    for (int64_t begin = 0; begin < keys; begin += chunk) {
        memset(dq, 0, (size_t)elements * sizeof *dq);
        for (int64_t i = 0; i < pairs; i++)
            back_chunk(attr, in, (int64_t[]){i / heads, i % heads}, begin,
                       least(begin + chunk, keys), dq, out);
        for (int64_t i = 0; i < elements; i++) data(out)[i] = begin ? data(out)[i] + dq[i] : dq[i];
    }
    free(dq);
}

EXACT_TABLE(attention) = {ROW(sdpa), ROW(sdpa_grad), {NULL, NULL}};
