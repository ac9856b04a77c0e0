/* Attention with operands that are stored as bf16: heads are widened one at a time. See halves.h. */

/* The rows of a head, widened into `space` if they are stored as bf16; *to are their strides. */
static const float *head_rows(const void *x, int half, const int *stride, int *to, int batch,
                              int head, int n, int columns, float *space)
{
    const int first = batch * stride[0] + head * stride[2];
    int i;
    memcpy(to, stride, 3 * sizeof *to);
    if (!half) return (const float *)x;
    for (i = 0; i < n; i++)
        bf16_widen_row((const uint16_t *)x + first + i * stride[1], 1, space + i * columns,
                       columns);
    to[0] = to[2] = 0;
    to[1] = columns;
    return space;
}

static float attention_score_halves(const attention_sizes *z, const attention_block *b,
                                    const float *q, const float *k, const uint8_t *mask,
                                    float scale, int i, int key)
{
    const float *query = q + b->batch * z->q[0] + (b->first + i) * z->q[1] + b->head * z->q[2];
    const float *row = k + b->batch * z->k[0] + key * z->k[1] + b->kv_head * z->k[2];
    if (attention_hidden(z, b, mask, i, key)) return -INFINITY;
    if (!(z->pairs & 1)) return attention_dot(query, scale, row, z->dim);
    return bf16_dot(query, 0, 0, 1, row, 0, 0, 1, z->dim) * scale;
}

static float attention_value_dot_halves(const attention_sizes *z, const float *v, const float *dout)
{
    if (!(z->pairs & 2)) return attention_dot(v, 1, dout, z->columns);
    return bf16_dot(v, 0, 0, 1, dout, 0, 0, 1, z->columns);
}

/* `space` has room for the queries of a head, its keys and its values. */
static void sdpa_halves(const void *q, const void *k, const void *v, const uint8_t *mask,
                        float *out, float *lse, float *lse_low, const void *sizes, float scale,
                        float keep, uint64_t key, uint64_t seed, uint64_t number, uint64_t limit,
                        float *space, int halves)
{
    const attention_sizes *all = (const attention_sizes *)(const void *)sizes;
    const int step = all->heads * all->columns;
    float *own_k = space + all->queries * all->dim, *own_v = own_k + all->keys * all->dim;
    attention_sizes z = *all;
    const attention_dropout d = attention_dropout_of(key, seed, number, limit);
    int batch, head, first;
    for (batch = 0; batch < z.batch; batch++)
        for (head = 0; head < z.heads; head++) {
            const int kv_head = head / (z.heads / z.kv_heads);
            const float *queries =
                head_rows(q, halves & 1, all->q, z.q, batch, head, z.queries, z.dim, space);
            const float *keys =
                head_rows(k, halves >> 1 & 1, all->k, z.k, batch, kv_head, z.keys, z.dim, own_k);
            const float *values = head_rows(v, halves >> 2 & 1, all->v, z.v, batch, kv_head, z.keys,
                                            z.columns, own_v);
            for (first = 0; first < z.queries; first += attention_queries) {
                const attention_block b = attention_block_at(
                    &z, mask, batch, head, first / attention_queries, attention_queries);
                const int at = (batch * z.heads + head) * z.queries + first;
                attention_queries_of(&z, &b, queries, keys, values, mask, scale, keep, &d,
                                     out + (batch * z.queries + first) * step + head * z.columns,
                                     step, lse ? lse + at : 0, lse_low ? lse_low + at : 0);
            }
        }
}

/* What the backward pass reads, as it is stored. */
typedef struct attention_stored {
    const void *q, *k, *v, *dout;
    float *space; /* for the queries of a head, their gradients, its keys and its values */
    int halves;
} attention_stored;

static void attention_back_chunk_halves(const attention_sizes *all, attention_inputs *in, int batch,
                                        int kv_head, int begin, int end, float *dq, float *dk,
                                        float *dv)
{
    const attention_stored *from = (const attention_stored *)in->stored;
    attention_sizes z = *all;
    const int repeat = z.heads / z.kv_heads;
    float *dout = from->space + z.queries * z.dim, *k = dout + z.queries * z.columns;
    float *v = k + z.keys * z.dim;
    int piece, h, index;
    in->k =
        head_rows(from->k, from->halves >> 1 & 1, all->k, z.k, batch, kv_head, z.keys, z.dim, k);
    in->v = head_rows(from->v, from->halves >> 2 & 1, all->v, z.v, batch, kv_head, z.keys,
                      z.columns, v);
    for (piece = begin; piece < end; piece += 512)
        for (h = kv_head * repeat; h < (kv_head + 1) * repeat; h++) {
            in->q = head_rows(from->q, from->halves & 1, all->q, z.q, batch, h, z.queries, z.dim,
                              from->space);
            in->dout = head_rows(from->dout, from->halves >> 6 & 1, all->dout, z.dout, batch, h,
                                 z.queries, z.columns, dout);
            for (index = 0; index * attention_queries < z.queries; index++) {
                const attention_block b =
                    attention_block_at(&z, in->mask, batch, h, index, attention_queries);
                attention_back_block(&z, &b, in, piece, piece + 512 < end ? piece + 512 : end, dq,
                                     dk, dv);
            }
        }
}

static void sdpa_grad_halves(const void *q, const void *k, const void *v, const float *out,
                             const float *lse, const float *lse_low, const void *dout,
                             const uint8_t *mask, const float *dlse, float *dq, float *dk,
                             float *dv, void *partial, const void *sizes, float scale, float keep,
                             uint64_t key, uint64_t seed, uint64_t number, uint64_t limit,
                             float *space, int halves)
{
    attention_stored from;
    attention_inputs in;
    from.q = q;
    from.k = k;
    from.v = v;
    from.dout = dout;
    from.space = space;
    from.halves = halves;
    in.out = out;
    in.lse = lse;
    in.lse_low = lse_low;
    in.dlse = dlse;
    in.stored = &from;
    in.mask = mask;
    in.scale = scale;
    in.keep = keep;
    in.d = attention_dropout_of(key, seed, number, limit);
    attention_back((const attention_sizes *)(const void *)sizes, &in, dq, dk, dv, partial);
}
