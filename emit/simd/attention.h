/* Attention: simd_width queries of a block side by side. See plain/attention.h. */

/* Queries of a block, and what is known of each of them so far. */
typedef struct simd_queries {
    int first, n; /* of the block */
    T top[simd_width], sum[simd_width], factor[simd_width];
    T scores[64 * simd_width]; /* [keys, queries] */
    T panel[128 * simd_width]; /* up to 128 elements of each query, times the scale */
} simd_queries;

static void simd_pack_queries(const attention_sizes *z, const attention_block *b, const T *q,
                              T scale, int from, int depth, simd_queries *s)
{
    const T *first = q + b->batch * z->q[0] + (b->first + s->first) * z->q[1] + b->head * z->q[2];
    int i, l;
    for (l = 0; l < depth; l++)
        for (i = 0; i < simd_width; i++)
            s->panel[l * simd_width + i] = i < s->n ? first[i * z->q[1] + from + l] * scale : 0;
}

/* Whether some of these queries attends to only some of n keys. */
static int simd_hides(const attention_sizes *z, const attention_block *b, const uint8_t *mask,
                      int first, int queries, int key, int n)
{
    const int own = b->first + first + z->keys - z->queries;
    return mask || (z->causal && key + n - 1 > own) ||
           (z->window && key <= own + queries - 1 - z->window);
}

/* The scores [n, queries] of keys that a query does not attend to become -infinity; rows are `step`
 * apart. */
static void simd_hide(const attention_sizes *z, const attention_block *b, const uint8_t *mask,
                      int first, int queries, int key, int n, T *scores, int step)
{
    int i, j;
    if (!simd_hides(z, b, mask, first, queries, key, n)) return;
    for (j = 0; j < n; j++)
        for (i = 0; i < queries; i++)
            if (attention_hidden(z, b, mask, first + i, key + j))
                scores[j * step + i] = (T)-INFINITY;
}

static void simd_scores(const attention_sizes *z, const attention_block *b, const T *q, const T *k,
                        const uint8_t *mask, T scale, const int *at, int key, int n,
                        simd_queries *s)
{
    const T *rows = k + b->batch * z->k[0] + key * z->k[1] + b->kv_head * z->k[2];
    int from = 0, j;
    do {
        const int depth = z->dim - from < 128 ? z->dim - from : 128;
        if (z->dim > 128) simd_pack_queries(z, b, q, scale, from, depth, s);
        for (j = 0; j < n; j += simd_rows) {
            T sum[simd_rows * simd_width] = {0};
            const int some = n - j < simd_rows ? n - j : simd_rows;
            simd_block(rows + j * z->k[1] + from, z->k[1], at, s->panel, simd_width, some, depth,
                       sum);
            simd_store(sum, s->scores + j * simd_width, simd_width, 1, some, simd_width, from);
        }
        from += 128;
    } while (from < z->dim);
    simd_hide(z, b, mask, s->first, s->n, key, n, s->scores, simd_width);
}

/* Scores become weights; the factors are of what was added up before. */
static void simd_weigh(int n, simd_queries *s)
{
    T shift[simd_width], next[simd_width], more[simd_width] = {0};
    int i, j;
    memcpy(next, s->top, sizeof next);
    for (j = 0; j < n; j++)
        for (i = 0; i < simd_width; i++) {
            const T x = s->scores[j * simd_width + i];
            next[i] = x > next[i] ? x : next[i];
        }
    for (i = 0; i < simd_width; i++) shift[i] = next[i] == (T)-INFINITY ? 0 : next[i];
    for (j = 0; j < n; j++)
        for (i = 0; i < simd_width; i++) {
            const T x = vm_exp(s->scores[j * simd_width + i] - shift[i]);
            s->scores[j * simd_width + i] = x;
            more[i] += x;
        }
    for (i = 0; i < simd_width; i++) {
        const T factor = vm_exp(s->top[i] - shift[i]);
        s->factor[i] = next[i] == s->top[i] ? 1 : factor;
        s->sum[i] = s->sum[i] * s->factor[i] + more[i];
        s->top[i] = next[i];
    }
}

/* Rows of y, `step` apart, = themselves times the factors, plus weights times n rows of v. */
static void simd_add_values(const T *v, int v_step, int columns, int n, const simd_queries *s, T *y,
                            int step)
{
    int c, i;
    for (i = 0; i < s->n; i++)
        for (c = 0; s->factor[i] != 1 && c < columns; c++) y[i * step + c] *= s->factor[i];
    simd_chain(s->scores, 1, simd_width, v, v_step, 1, 1, y, step, 1, s->n, columns, n, 1);
}

/* See attention_query; queries are `step` apart in y. */
static void simd_attend(const attention_sizes *z, const attention_block *b, const T *q, const T *k,
                        const T *v, const uint8_t *mask, T scale, T keep,
                        const attention_dropout *d, simd_queries *s, T *y, int step, T *lse,
                        T *lse_low)
{
    int at[128], key, i, j, c;
    for (i = 0; i < 128; i++) at[i] = i;
    for (i = 0; i < simd_width; i++) {
        s->top[i] = (T)-INFINITY;
        s->sum[i] = 0;
        for (c = 0; i < s->n && c < z->columns; c++) y[i * step + c] = 0;
    }
    if (z->dim <= 128) simd_pack_queries(z, b, q, scale, 0, z->dim, s);
    for (key = b->first_key; key < b->last_key; key += 64) {
        const int n = b->last_key - key < 64 ? b->last_key - key : 64;
        if (attention_all_masked(z, b, mask, key, n)) continue;
        simd_scores(z, b, q, k, mask, scale, at, key, n, s);
        simd_weigh(n, s);
        for (i = 0; d->limit && i < s->n; i++) {
            uint8_t kept[64];
            simd_kept(z, b, d, s->first + i, key, n, kept, 1);
            for (j = 0; j < n; j++)
                if (!kept[j]) s->scores[j * simd_width + i] = 0;
        }
        simd_add_values(v + b->batch * z->v[0] + key * z->v[1] + b->kv_head * z->v[2], z->v[1],
                        z->columns, n, s, y, step);
    }
    for (i = 0; i < s->n; i++) {
        const T sum = s->sum[i], factor = sum == 0 ? 0 : keep / sum;
        attention_logarithm(s->top[i], sum, s->first + i, lse, lse_low);
        for (c = 0; c < z->columns; c++)
            y[i * step + c] = factor == 0 ? 0 : y[i * step + c] * factor;
    }
}

static void attention_queries_of(const attention_sizes *z, const attention_block *b, const T *q,
                                 const T *k, const T *v, const uint8_t *mask, T scale, T keep,
                                 const attention_dropout *d, T *y, int step, T *lse, T *lse_low)
{
    simd_queries s;
    for (s.first = 0; s.first < b->n; s.first += simd_width) {
        s.n = b->n - s.first < simd_width ? b->n - s.first : simd_width;
        simd_attend(z, b, q, k, v, mask, scale, keep, d, &s, y + s.first * step, step, lse,
                    lse_low);
    }
}

/* ---- The backward pass ---- */

/* Of n keys and the block's queries: scores become weights as dropout leaves them, and the products of
 * v and dout the gradients of scores. Rows of keys are attention_queries apart. */
static void simd_weigh_back(const attention_sizes *z, const attention_block *b,
                            const attention_inputs *in, const T *delta, int key, int n, T *p, T *ds)
{
    const T scale = in->scale, keep = in->keep, minus_infinity = (T)-INFINITY;
    T lse[attention_queries], low[attention_queries], kept[attention_queries];
    uint8_t keeps[64 * attention_queries];
    int i, j;
    for (i = 0; i < b->n; i++) {
        const T x = attention_lane(in->lse, z->lse, b, i);
        lse[i] = x == minus_infinity ? 0 : x;
        low[i] = attention_lane(in->lse_low, z->lse_low, b, i);
        kept[i] = keep;
    }
    for (i = 0; in->d.limit && i < b->n; i++)
        simd_kept(z, b, &in->d, i, key, n, keeps + i, attention_queries);
    for (j = 0; j < n; j++, p += attention_queries, ds += attention_queries) {
        for (i = 0; in->d.limit && i < b->n; i++)
            kept[i] = keeps[j * attention_queries + i] ? keep : 0;
        SIMD_LOOP
        for (i = 0; i < b->n; i++) {
            const T weight = vm_exp((p[i] - lse[i]) - low[i]);
            const T x = scale * weight * (kept[i] * ds[i] - delta[i]);
            p[i] = kept[i] * weight;
            ds[i] = weight > 0 ? x : weight;
        }
    }
}

/* The products [n, attention_queries] of keys and queries, times the scale. */
static void simd_query_products(const attention_sizes *z, const T *k, const T *q, T scale, int n,
                                int queries, T *p)
{
    simd_chain(k, z->k[1], 1, q, 1, z->q[1], scale, p, attention_queries, 1, n, queries, z->dim, 0);
}

/* The products [n, attention_queries] of values and the queries' dout. */
static void simd_value_products(const attention_sizes *z, const T *v, const T *dout, int n,
                                int queries, T *ds)
{
    simd_chain(v, z->v[1], 1, dout, 1, z->dout[1], 1, ds, attention_queries, 1, n, queries,
               z->columns, 0);
}

/* n keys of one block: five products. */
static void attention_back_keys(const attention_sizes *z, const attention_block *b,
                                const attention_inputs *in, const T *delta, int key, int n, T *dq,
                                T *dk, T *dv)
{
    const T *q = in->q + b->batch * z->q[0] + b->first * z->q[1] + b->head * z->q[2];
    const T *k = in->k + b->batch * z->k[0] + key * z->k[1] + b->kv_head * z->k[2];
    const T *v = in->v + b->batch * z->v[0] + key * z->v[1] + b->kv_head * z->v[2];
    const T *dout = in->dout + b->batch * z->dout[0] + b->first * z->dout[1] + b->head * z->dout[2];
    const int query_row = (b->batch * z->queries + b->first) * z->heads + b->head;
    const int key_row = (b->batch * z->keys + key) * z->kv_heads + b->kv_head;
    const int each = attention_queries;
    T p[64 * attention_queries], ds[64 * attention_queries];
    simd_query_products(z, k, q, in->scale, n, b->n, p);
    simd_value_products(z, v, dout, n, b->n, ds);
    simd_hide(z, b, in->mask, 0, b->n, key, n, p, each);
    simd_weigh_back(z, b, in, delta, key, n, p, ds);
    simd_chain(p, each, 1, dout, z->dout[1], 1, 1, dv + key_row * z->columns,
               z->kv_heads * z->columns, 1, n, z->columns, b->n, 1);
    simd_chain(ds, each, 1, q, z->q[1], 1, 1, dk + key_row * z->dim, z->kv_heads * z->dim, 1, n,
               z->dim, b->n, 1);
    simd_chain(ds, 1, each, k, z->k[1], 1, 1, dq + query_row * z->dim, z->heads * z->dim, 1, b->n,
               z->dim, n, 1);
}
