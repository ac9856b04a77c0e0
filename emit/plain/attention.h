/* Scaled dot-product attention: queries [batch, queries, heads, dim] in blocks, keys in blocks of 64 with
 * a running maximum and sum. The backward pass computes the weights again. */

/* Sizes, and strides in elements. */
typedef struct attention_sizes {
    int batch, queries, keys, heads, kv_heads, dim, columns, causal, window;
    int q[3], k[3], v[3]; /* of the batch, a position, a head */
    int mask[4],
        mask_is_row; /* of the batch, a head, a query, a key; it is one row for all queries */
    int out[3], dout[3], lse[3], lse_low[3], dlse[3];
    int chunk; /* keys whose dq is added up on its own */
    int pairs; /* of halves: bit 0: q and k are multiplied by pairs; bit 1: v and dout */
} attention_sizes;

/* A block of queries of one head, and the keys that they attend to. */
typedef struct attention_block {
    int batch, head, kv_head, first, n, first_key, last_key;
} attention_block;

/* Random numbers of dropout. */
typedef struct attention_dropout {
    uint64_t key, seed, number, limit;
} attention_dropout;

static attention_dropout attention_dropout_of(uint64_t key, uint64_t seed, uint64_t number,
                                              uint64_t limit)
{
    attention_dropout d;
    d.key = key;
    d.seed = seed;
    d.number = number;
    d.limit = limit;
    return d;
}

enum { attention_queries = 256 / sizeof(T) };

static int attention_masked(const attention_sizes *z, const attention_block *b, const uint8_t *mask,
                            int i, int key)
{
    return mask && mask[b->batch * z->mask[0] + b->head * z->mask[1] + (b->first + i) * z->mask[2] +
                        key * z->mask[3]];
}

static int attention_hidden(const attention_sizes *z, const attention_block *b, const uint8_t *mask,
                            int i, int key)
{
    const int own = b->first + i + z->keys - z->queries;
    return attention_masked(z, b, mask, i, key) || (z->causal && key > own) ||
           (z->window && key <= own - z->window);
}

/* Whether the mask hides n keys from all queries of the block. */
static int attention_all_masked(const attention_sizes *z, const attention_block *b,
                                const uint8_t *mask, int key, int n)
{
    int i, j;
    if (!mask) return 0;
    for (i = 0; i < b->n; i++)
        for (j = 0; j < n; j++)
            if (!attention_masked(z, b, mask, i, key + j)) return 0;
    return 1;
}

static attention_block attention_block_at(const attention_sizes *z, const uint8_t *mask, int batch,
                                          int head, int index, int each)
{
    attention_block b;
    int start;
    b.batch = batch;
    b.head = head;
    b.kv_head = head / (z->heads / z->kv_heads);
    b.first = index * each;
    b.n = z->queries - b.first < each ? z->queries - b.first : each;
    b.last_key = z->keys;
    if (z->causal && b.first + b.n + z->keys - z->queries < z->keys)
        b.last_key = b.first + b.n + z->keys - z->queries;
    if (b.last_key < 0) b.last_key = 0;
    if (mask && z->mask_is_row)
        while (b.last_key > 0 && attention_masked(z, &b, mask, 0, b.last_key - 1)) b.last_key--;
    start = b.first + z->keys - z->queries - z->window + 1;
    b.first_key = z->window && start > 0 ? start / 64 * 64 : 0;
    return b;
}

/* Whether dropout keeps the weight of a query at a key. */
static int attention_kept(const attention_sizes *z, const attention_block *b,
                          const attention_dropout *d, int i, int key)
{
    uint32_t words[4];
    uint64_t w;
    if (!d->limit) return 1;
    w = (uint64_t)((b->batch * z->heads + b->head) * z->queries + b->first + i) *
            (uint64_t)z->keys +
        (uint64_t)key;
    random_words(d->key, d->seed, d->number, w / 4 * 4, words);
    return words[w % 4] >= d->limit;
}

/* Chains over each 128 elements of a, times a factor, and b. */
static T attention_dot(const T *a, T factor, const T *b, int n)
{
    T total = 0;
    int from, i;
    for (from = 0; from < n; from += 128) {
        T sum = 0;
        for (i = from; i < n && i < from + 128; i++) sum = fma(a[i] * factor, b[i], sum);
        total = from ? total + sum : sum;
    }
    return total;
}

static T attention_value_dot(const attention_sizes *z, const T *v, const T *dout)
{
    return attention_dot(v, 1, dout, z->columns);
}

static T attention_score(const attention_sizes *z, const attention_block *b, const T *q, const T *k,
                         const uint8_t *mask, T scale, int i, int key)
{
    if (attention_hidden(z, b, mask, i, key)) return (T)-INFINITY;
    return attention_dot(q + b->batch * z->q[0] + (b->first + i) * z->q[1] + b->head * z->q[2],
                         scale, k + b->batch * z->k[0] + key * z->k[1] + b->kv_head * z->k[2],
                         z->dim);
}

/* lse of a query, and what rounding removed from it, for its largest score and its sum. Both may be NULL. */
static void attention_logarithm(T top, T sum, int i, T *lse, T *low)
{
    wide_float logarithm, high = wide_of(top), rest = high, rounded;
    T nearest;
    if (!lse && !low) return;
    logarithm = wide_log(wide_of(sum));
    wide_add_wide(&high, &logarithm);
    nearest = wide_value(&high);
    if (lse) lse[i] = nearest;
    rounded = wide_of(nearest);
    wide_subtract(&rest, &rounded);
    wide_add_wide(&rest, &logarithm);
    if (low) low[i] = sum == 0 ? 0 : wide_value(&rest);
}

/* Query i of the block: y [columns]. */
static void attention_query(const attention_sizes *z, const attention_block *b, const T *q,
                            const T *k, const T *v, const uint8_t *mask, T scale, T keep,
                            const attention_dropout *d, int i, T *y, T *lse, T *lse_low)
{
    T top = (T)-INFINITY, sum = 0, factor;
    int key, j, c, begun = 0;
    for (key = b->first_key; key < b->last_key; key += 64) {
        const int n = b->last_key - key < 64 ? b->last_key - key : 64;
        T s[64], next = top, more = 0, shift;
        if (attention_all_masked(z, b, mask, key, n)) continue;
        for (j = 0; j < n; j++) s[j] = attention_score(z, b, q, k, mask, scale, i, key + j);
        for (j = 0; j < n; j++) next = s[j] > next ? s[j] : next;
        shift = next == (T)-INFINITY ? 0 : next;
        for (j = 0; j < n; j++) {
            s[j] = vm_exp(s[j] - shift);
            more += s[j];
        }
        factor = key == b->first_key || next == top ? 1 : vm_exp(top - shift);
        sum = begun ? sum * factor + more : more;
        top = next;
        for (j = 0; j < n; j++)
            if (!attention_kept(z, b, d, i, key + j)) s[j] = 0;
        for (c = 0; c < z->columns; c++) {
            const T *column = v + b->batch * z->v[0] + key * z->v[1] + b->kv_head * z->v[2] + c;
            T product = 0;
            for (j = 0; j < n; j++) product = fma(column[j * z->v[1]], s[j], product);
            y[c] = (begun ? y[c] * factor : 0) + product;
        }
        begun = 1;
    }
    attention_logarithm(top, sum, i, lse, lse_low);
    factor = sum == 0 ? 0 : keep / sum;
    for (c = 0; c < z->columns; c++) y[c] = factor == 0 ? 0 : y[c] * factor;
}

/* All queries of the block, which are `step` apart in y. */
static void attention_queries_of(const attention_sizes *z, const attention_block *b, const T *q,
                                 const T *k, const T *v, const uint8_t *mask, T scale, T keep,
                                 const attention_dropout *d, T *y, int step, T *lse, T *lse_low)
{
    int i;
    for (i = 0; i < b->n; i++)
        attention_query(z, b, q, k, v, mask, scale, keep, d, i, y + i * step, lse, lse_low);
}

static void sdpa(const T *q, const T *k, const T *v, const uint8_t *mask, T *out, T *lse,
                 T *lse_low, const void *sizes, T scale, T keep, uint64_t key, uint64_t seed,
                 uint64_t number, uint64_t limit)
{
    const attention_sizes *z = (const attention_sizes *)(const void *)sizes;
    const int step = z->heads * z->columns;
    const attention_dropout d = attention_dropout_of(key, seed, number, limit);
    int batch, head, index;
    for (batch = 0; batch < z->batch; batch++)
        for (head = 0; head < z->heads; head++)
            for (index = 0; index * attention_queries < z->queries; index++) {
                const attention_block b =
                    attention_block_at(z, mask, batch, head, index, attention_queries);
                const int at = (batch * z->heads + head) * z->queries + b.first;
                attention_queries_of(z, &b, q, k, v, mask, scale, keep, &d,
                                     out + (batch * z->queries + b.first) * step +
                                         head * z->columns,
                                     step, lse ? lse + at : 0, lse_low ? lse_low + at : 0);
            }
}

/* What the backward pass reads. */
typedef struct attention_inputs {
    const T *q, *k, *v, *out, *lse, *lse_low, *dout, *dlse;
    const void *stored; /* of halves: q, k, v and dout as they are stored */
    const uint8_t *mask;
    T scale, keep;
    attention_dropout d;
} attention_inputs;

static T attention_lane(const T *x, const int *stride, const attention_block *b, int i)
{
    return x[b->batch * stride[0] + b->head * stride[1] + (b->first + i) * stride[2]];
}

/* The sum of dout out of a query, less the gradient of lse. */
static T attention_delta(const attention_sizes *z, const attention_block *b,
                         const attention_inputs *in, int i)
{
    const T *dout =
        in->dout + b->batch * z->dout[0] + (b->first + i) * z->dout[1] + b->head * z->dout[2];
    moment_terms t = terms_of(dout, z->columns, 1);
    wide_float sum;
    t.dy = in->out + b->batch * z->out[0] + (b->first + i) * z->out[1] + b->head * z->out[2];
    sum = sum_of_terms(&t, z->columns, 0);
    if (in->dlse) wide_add(&sum, -attention_lane(in->dlse, z->dlse, b, i));
    return wide_value(&sum);
}

/* The weight of query i at a key as dropout leaves it, and the gradient of its score. */
static void attention_weigh(const attention_sizes *z, const attention_block *b,
                            const attention_inputs *in, T delta, int i, int key, T *p, T *ds)
{
    const T lse = attention_lane(in->lse, z->lse, b, i);
    const T low = attention_lane(in->lse_low, z->lse_low, b, i);
    const T score = attention_score(z, b, in->q, in->k, in->mask, in->scale, i, key);
    const T product = attention_value_dot(
        z, in->v + b->batch * z->v[0] + key * z->v[1] + b->kv_head * z->v[2],
        in->dout + b->batch * z->dout[0] + (b->first + i) * z->dout[1] + b->head * z->dout[2]);
    const T kept = attention_kept(z, b, &in->d, i, key) ? in->keep : 0;
    const T weight = vm_exp((score - (lse == (T)-INFINITY ? 0 : lse)) - low);
    const T x = in->scale * weight * (kept * product - delta);
    *p = kept * weight;
    *ds = weight > 0 ? x : weight;
}

/* n keys of one block: each key's rows of dk and dv, then each query's row of dq. */
static void attention_back_keys(const attention_sizes *z, const attention_block *b,
                                const attention_inputs *in, const T *delta, int key, int n, T *dq,
                                T *dk, T *dv)
{
    int i, j, c;
    T p[attention_queries], ds[64];
    for (j = 0; j < n; j++) {
        const int row = (b->batch * z->keys + key + j) * z->kv_heads + b->kv_head;
        const T *dout =
            in->dout + b->batch * z->dout[0] + b->first * z->dout[1] + b->head * z->dout[2];
        const T *q = in->q + b->batch * z->q[0] + b->first * z->q[1] + b->head * z->q[2];
        for (i = 0; i < b->n; i++) attention_weigh(z, b, in, delta[i], i, key + j, &p[i], &ds[i]);
        for (c = 0; c < z->columns; c++) {
            T sum = 0;
            for (i = 0; i < b->n; i++) sum = fma(p[i], dout[i * z->dout[1] + c], sum);
            dv[row * z->columns + c] += sum;
        }
        for (c = 0; c < z->dim; c++) {
            T sum = 0;
            for (i = 0; i < b->n; i++) sum = fma(ds[i], q[i * z->q[1] + c], sum);
            dk[row * z->dim + c] += sum;
        }
    }
    for (i = 0; i < b->n; i++) {
        const int row = (b->batch * z->queries + b->first + i) * z->heads + b->head;
        const T *k = in->k + b->batch * z->k[0] + key * z->k[1] + b->kv_head * z->k[2];
        for (j = 0; j < n; j++) attention_weigh(z, b, in, delta[i], i, key + j, &p[0], &ds[j]);
        for (c = 0; c < z->dim; c++) {
            T sum = 0;
            for (j = 0; j < n; j++) sum = fma(k[j * z->k[1] + c], ds[j], sum);
            dq[row * z->dim + c] += sum;
        }
    }
}

/* Keys [begin, end) of one block. */
static void attention_back_block(const attention_sizes *z, const attention_block *b,
                                 const attention_inputs *in, int begin, int end, T *dq, T *dk,
                                 T *dv)
{
    T delta[attention_queries];
    int key, i, c;
    if (end > b->last_key) end = b->last_key;
    if (begin < b->first_key) begin = b->first_key;
    if (begin >= end) return;
    for (i = 0; i < b->n; i++) delta[i] = attention_delta(z, b, in, i);
    for (key = begin; key < end; key += 64) {
        const int n = end - key < 64 ? end - key : 64;
        if (!attention_all_masked(z, b, in->mask, key, n))
            attention_back_keys(z, b, in, delta, key, n, dq, dk, dv);
    }
    for (i = 0; i < b->n; i++) {
        const int row = (b->batch * z->queries + b->first + i) * z->heads + b->head;
        if (attention_lane(in->lse, z->lse, b, i) != (T)-INFINITY) continue;
        for (c = 0; c < z->dim; c++) dq[row * z->dim + c] = 0;
    }
}

/* A chunk of keys of one head of the keys: 512 at a time go through all queries that read them. */
static void attention_back_chunk(const attention_sizes *z, const attention_inputs *in, int batch,
                                 int kv_head, int begin, int end, T *dq, T *dk, T *dv)
{
    const int repeat = z->heads / z->kv_heads;
    int piece, h, index;
    for (piece = begin; piece < end; piece += 512)
        for (h = kv_head * repeat; h < (kv_head + 1) * repeat; h++)
            for (index = 0; index * attention_queries < z->queries; index++) {
                const attention_block b =
                    attention_block_at(z, in->mask, batch, h, index, attention_queries);
                attention_back_block(z, &b, in, piece, piece + 512 < end ? piece + 512 : end, dq,
                                     dk, dv);
            }
}

/* `partial` has room for a dq, where there are several chunks; else it is not read. */
static void attention_back(const attention_sizes *z, attention_inputs *in, T *dq, T *dk, T *dv,
                           void *partial)
{
    const int n = z->batch * z->queries * z->heads * z->dim;
    const int n_keys = z->batch * z->keys * z->kv_heads;
    int begin, batch, head, i;
    for (i = 0; i < n; i++) dq[i] = 0;
    for (i = 0; i < n_keys * z->dim; i++) dk[i] = 0;
    for (i = 0; i < n_keys * z->columns; i++) dv[i] = 0;
    for (begin = 0; begin < z->keys; begin += z->chunk) {
        const int end = begin + z->chunk < z->keys ? begin + z->chunk : z->keys;
        T *to = begin ? (T *)partial : dq;
        for (i = 0; begin && i < n; i++) to[i] = 0;
        for (batch = 0; batch < z->batch; batch++)
            for (head = 0; head < z->kv_heads; head++)
                attention_back_chunk(z, in, batch, head, begin, end, to, dk, dv);
        for (i = 0; begin && i < n; i++) dq[i] += to[i];
    }
}

static void sdpa_grad(const T *q, const T *k, const T *v, const T *out, const T *lse,
                      const T *lse_low, const T *dout, const uint8_t *mask, const T *dlse, T *dq,
                      T *dk, T *dv, void *partial, const void *sizes, T scale, T keep, uint64_t key,
                      uint64_t seed, uint64_t number, uint64_t limit)
{
    attention_inputs in;
    in.q = q;
    in.k = k;
    in.v = v;
    in.out = out;
    in.lse = lse;
    in.lse_low = lse_low;
    in.dout = dout;
    in.dlse = dlse;
    in.stored = 0;
    in.mask = mask;
    in.scale = scale;
    in.keep = keep;
    in.d = attention_dropout_of(key, seed, number, limit);
    attention_back((const attention_sizes *)(const void *)sizes, &in, dq, dk, dv, partial);
}
