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

/* Whether some query of these attends to only some of n keys. */
static int simd_hides(const attention_sizes *z, const attention_block *b, const uint8_t *mask,
                      const simd_queries *s, int key, int n)
{
    const int own = b->first + s->first + z->keys - z->queries;
    return mask || (z->causal && key + n - 1 > own) ||
           (z->window && key <= own + s->n - 1 - z->window);
}

static void simd_scores(const attention_sizes *z, const attention_block *b, const T *q, const T *k,
                        const uint8_t *mask, T scale, const int *at, int key, int n,
                        simd_queries *s)
{
    const T *rows = k + b->batch * z->k[0] + key * z->k[1] + b->kv_head * z->k[2];
    int from = 0, i, j;
    do {
        const int depth = z->dim - from < 128 ? z->dim - from : 128;
        if (z->dim > 128) simd_pack_queries(z, b, q, scale, from, depth, s);
        for (j = 0; j < n; j += 4) {
            T sum[4 * simd_width] = {0};
            const int some = n - j < 4 ? n - j : 4;
            simd_block(rows + j * z->k[1] + from, z->k[1], at, s->panel, simd_width, some, depth,
                       sum);
            simd_store(sum, s->scores + j * simd_width, simd_width, 1, some, simd_width, from);
        }
        from += 128;
    } while (from < z->dim);
    if (simd_hides(z, b, mask, s, key, n))
        for (j = 0; j < n; j++)
            for (i = 0; i < s->n; i++)
                if (attention_hidden(z, b, mask, s->first + i, key + j))
                    s->scores[j * simd_width + i] = (T)-INFINITY;
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
static void simd_add_values(const T *v, int v_step, int columns, int n, simd_queries *s, T *y,
                            int step)
{
    int at[64], c, i, r, j;
    for (j = 0; j < n; j++) at[j] = j * simd_width;
    for (c = 0; c < columns; c += simd_width) {
        const int width = columns - c < simd_width ? columns - c : simd_width;
        const int packs = width < simd_width;
        T panel[64 * simd_width];
        if (packs) simd_pack(v + c, v_step, 1, panel, n, width);
        for (i = 0; i < s->n; i += 4) {
            const int rows = s->n - i < 4 ? s->n - i : 4;
            T sum[4 * simd_width] = {0};
            simd_block(s->scores + i, 1, at, packs ? panel : v + c, packs ? simd_width : v_step,
                       rows, n, sum);
            for (r = 0; r < rows; r++) {
                T *own = y + (i + r) * step + c;
                for (j = 0; j < width; j++)
                    own[j] = own[j] * s->factor[i + r] + sum[r * simd_width + j];
            }
        }
    }
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
        for (j = 0; j < n && d->limit; j++)
            for (i = 0; i < s->n; i++)
                if (!attention_kept(z, b, d, s->first + i, key + j))
                    s->scores[j * simd_width + i] = 0;
        simd_add_values(v + b->batch * z->v[0] + key * z->v[1] + b->kv_head * z->v[2], z->v[1],
                        z->columns, n, s, y, step);
    }
    for (i = 0; i < s->n; i++) {
        const T sum = s->sum[i], factor = sum == 0 ? 0 : keep / sum;
        const double logarithm = vm_log_f64((double)sum), top = (double)s->top[i];
        lse[i] = (T)(top + logarithm);
        lse_low[i] = sum == 0 ? 0 : (T)((top - (double)lse[i]) + logarithm);
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
        simd_attend(z, b, q, k, v, mask, scale, keep, d, &s, y + s.first * step, step,
                    lse + s.first, lse_low + s.first);
    }
}
