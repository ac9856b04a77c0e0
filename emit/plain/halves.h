/* Functions for operands that are stored as bf16, the upper halves of floats. NAME_halves replaces NAME
 * where an operand of the call is: those that may be are void pointers, and bit i of `halves` says that
 * operand i is. They compute in float, and round what they store. */

static void bf16_widen_row(const uint16_t *x, int step, float *y, int n)
{
    int i;
    for (i = 0; i < n; i++) y[i] = half_from_bf16(x[i * step]);
}

static void bf16_round_row(const float *x, uint16_t *y, int n)
{
    int i;
    for (i = 0; i < n; i++) y[i] = half_to_bf16(x[i]);
}

static float operand_at(const void *x, int half, int i)
{
    return half ? half_from_bf16(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

static void operand_put(void *y, int half, int i, float value)
{
    if (half)
        ((uint16_t *)y)[i] = half_to_bf16(value);
    else
        ((float *)y)[i] = value;
}

/* ---- Elements ---- */

static void copy_rows_halves(const void *x, void *y, int rows, int n, int row, int halves)
{
    int r, i;
    for (r = 0; r < rows; r++)
        for (i = 0; i < n; i++)
            operand_put(y, halves >> 1 & 1, r * row + i, operand_at(x, halves & 1, r * n + i));
}

static void dropout_halves(const void *x, void *y, int n, uint64_t key, uint64_t seed,
                           uint64_t number, uint64_t limit, float scale, int halves)
{
    uint32_t words[4] = {0};
    int i;
    for (i = 0; i < n; i++) {
        const float value = operand_at(x, halves & 1, i);
        if (i % 4 == 0) random_words(key, seed, number, (uint64_t)i, words);
        operand_put(y, halves >> 1 & 1, i, words[i % 4] >= limit ? value * scale : 0);
    }
}

static void bernoulli_halves(const void *p, void *y, int n, uint64_t key, uint64_t seed,
                             uint64_t number, int halves)
{
    uint32_t words[4] = {0};
    int i;
    for (i = 0; i < n; i++) {
        const float x = operand_at(p, halves & 1, i);
        if (i % 4 == 0) random_words(key, seed, number, (uint64_t)i, words);
        operand_put(y, halves >> 1 & 1, i,
                    x != x ? x
                           : (float)((double)words[i % 4] * 2.3283064365386963e-10 < (double)x));
    }
}

/* Bit 1 + j of `halves`: input j, of at most 7. */
static void add_n_halves(void *y, const void *const *x, int inputs, int n, int halves)
{
    int i, j;
    for (i = 0; i < n; i++) {
        float sum = operand_at(x[0], halves >> 1 & 1, i);
        for (j = 1; j < inputs; j++) sum += operand_at(x[j], halves >> (1 + j) & 1, i);
        operand_put(y, halves & 1, i, sum);
    }
}

/* ---- Products ---- */

/* A subnormal number becomes a zero of its sign. */
static float bf16_flush(float x)
{
    return x < 1.17549435e-38f && x > -1.17549435e-38f ? x * 0 : x;
}

/* x y + sum with one rounding, to 24 bits whatever the exponent, and then flushed. A result that an fma
 * of floats rounds up to the smallest normal number may be below it. */
static float bf16_step(float x, float y, float sum)
{
    const float smallest = 1.17549435e-38f, near = fma(x, y, sum);
    double exact;
    if (!(near <= smallest && near >= -smallest)) return near;
    exact = (double)x * (double)y + (double)sum;
    if (exact < 1.1754943157898259e-38 && exact > -1.1754943157898259e-38) return near * 0;
    return exact < 0 ? -smallest : smallest;
}

/* A number of an operand of a product, which is rounded if it is a float. */
static float bf16_factor(const void *x, int half, int i)
{
    return bf16_flush(
        half_from_bf16(half ? ((const uint16_t *)x)[i] : half_to_bf16(((const float *)x)[i])));
}

/* The sum of products of k pairs of neighbours, from a[first] and b[first] on: the second one of each
 * pair first. Each 128 pairs are a chain. */
static float bf16_dot(const void *a, int a_half, int a_first, int a_step, const void *b, int b_half,
                      int b_first, int b_step, int k)
{
    float total = 0;
    int from, l, i;
    for (from = 0; from < k; from += 256) {
        float sum = 0;
        for (l = from; l < k && l < from + 256; l += 2)
            for (i = l + 1; i >= l; i--) {
                const float x = i < k ? bf16_factor(a, a_half, a_first + i * a_step) : 0;
                const float y = i < k ? bf16_factor(b, b_half, b_first + i * b_step) : 0;
                sum = bf16_step(x, y, sum);
            }
        total = from ? bf16_flush(sum + total) : sum;
    }
    return total;
}

/* The same by parts of 32 terms: the first numbers of pairs and the second ones have a chain each. */
static float bf16_tiles(const void *a, int a_half, int a_first, int a_step, const void *b,
                        int b_half, int b_first, int b_step, int k)
{
    float total = 0;
    int from, l;
    for (from = 0; from < k; from += 32) {
        float sum[2] = {0, 0};
        for (l = from; l < k && l < from + 32; l++)
            sum[l % 2] = bf16_step(bf16_factor(a, a_half, a_first + l * a_step),
                                   bf16_factor(b, b_half, b_first + l * b_step), sum[l % 2]);
        for (l = 0; l < 2 && k - from < 32; l++) sum[l] += 0; /* zeros follow */
        total = bf16_flush(total + bf16_flush(sum[0] + sum[1]));
    }
    return total;
}

/* The product of a batch whose operands begin at a_first and so on; `dot` sums an element. */
static void
bf16_elements(float (*dot)(const void *, int, int, int, const void *, int, int, int, int),
              const void *a, int a_first, int ai, int ak, const void *b, int b_first, int bk,
              int bj, void *c, int c_first, int ci, int m, int n, int k, int halves)
{
    int i, j;
    for (i = 0; i < m; i++)
        for (j = 0; j < n; j++)
            operand_put(c, halves >> 2 & 1, c_first + i * ci + j,
                        dot(a, halves & 1, a_first + i * ai, ak, b, halves >> 1 & 1,
                            b_first + j * bj, bk, k));
}

static void bf16_product(const void *a, int a_first, int ai, int ak, const void *b, int b_first,
                         int bk, int bj, void *c, int c_first, int ci, int m, int n, int k,
                         int halves)
{
    bf16_elements(bf16_dot, a, a_first, ai, ak, b, b_first, bk, bj, c, c_first, ci, m, n, k,
                  halves);
}

static void matmul_chain_halves(const void *a, int ai, int ak, const void *b, int bk, int bj,
                                void *c, int ci, int m, int n, int k, int halves)
{
    bf16_product(a, 0, ai, ak, b, 0, bk, bj, c, 0, ci, m, n, k, halves);
}

static void matmul_batch_halves(const void *a, int ai, int ak, const void *b, int bk, int bj,
                                void *c, int c_step, int m, int n, int k, int rank, const int *size,
                                const int *a_stride, const int *b_stride, int halves)
{
    int d, batches = 1, i;
    for (d = 0; d < rank; d++) batches *= size[d];
    for (i = 0; i < batches; i++)
        bf16_product(a, offset_of(size, a_stride, rank, i), ai, ak, b,
                     offset_of(size, b_stride, rank, i), bk, bj, c, i * c_step, n, m, n, k, halves);
}

static void matmul_tiles_halves(const void *a, int ai, int ak, const void *b, int bk, int bj,
                                void *c, int ci, int m, int n, int k, int halves)
{
    bf16_elements(bf16_tiles, a, 0, ai, ak, b, 0, bk, bj, c, 0, ci, m, n, k, halves);
}

static void matmul_batch_tiles_halves(const void *a, int ai, int ak, const void *b, int bk, int bj,
                                      void *c, int c_step, int m, int n, int k, int rank,
                                      const int *size, const int *a_stride, const int *b_stride,
                                      int halves)
{
    int d, batches = 1, i;
    for (d = 0; d < rank; d++) batches *= size[d];
    for (i = 0; i < batches; i++)
        bf16_elements(bf16_tiles, a, offset_of(size, a_stride, rank, i), ai, ak, b,
                      offset_of(size, b_stride, rank, i), bk, bj, c, i * c_step, n, m, n, k,
                      halves);
}

static void matmul_tiles(const float *a, int ai, int ak, const float *b, int bk, int bj, float *c,
                         int ci, int m, int n, int k)
{
    matmul_tiles_halves(a, ai, ak, b, bk, bj, c, ci, m, n, k, 0);
}

static void matmul_batch_tiles(const float *a, int ai, int ak, const float *b, int bk, int bj,
                               float *c, int c_step, int m, int n, int k, int rank, const int *size,
                               const int *a_stride, const int *b_stride)
{
    matmul_batch_tiles_halves(a, ai, ak, b, bk, bj, c, c_step, m, n, k, rank, size, a_stride,
                              b_stride, 0);
}

/* ---- Reductions: x is stored as bf16. `space` has room for the elements of an output. ---- */

static void reduce_from_halves(const void *x, float *y, const void *cut, int correction,
                               float *space,
                               void (*reduce)(const float *, float *, const void *, int))
{
    const reduce_cut *c = (const reduce_cut *)(const void *)cut;
    reduce_cut one = *c;
    int o, i;
    one.outputs = 1;
    one.n_kept = 0;
    one.n_folded = 1;
    one.dims[0] = c->count;
    one.dims[1] = 1;
    for (o = 0; o < c->outputs; o++) {
        const int first = offset_of(c->dims, c->dims + c->n_kept, c->n_kept, o);
        for (i = 0; i < c->count; i++) space[i] = operand_at(x, 1, first + folded_offset(c, i));
        reduce(space, y + o, &one, correction);
    }
}

static void reduce_sum_halves(const void *x, float *y, const void *cut, int correction,
                              float *space, int halves)
{
    (void)halves;
    reduce_from_halves(x, y, cut, correction, space, reduce_sum);
}

static void reduce_mean_halves(const void *x, float *y, const void *cut, int correction,
                               float *space, int halves)
{
    (void)halves;
    reduce_from_halves(x, y, cut, correction, space, reduce_mean);
}

static void reduce_prod_halves(const void *x, float *y, const void *cut, int correction,
                               float *space, int halves)
{
    (void)halves;
    reduce_from_halves(x, y, cut, correction, space, reduce_prod);
}

static void reduce_max_halves(const void *x, float *y, const void *cut, int correction,
                              float *space, int halves)
{
    (void)halves;
    reduce_from_halves(x, y, cut, correction, space, reduce_max);
}

static void reduce_min_halves(const void *x, float *y, const void *cut, int correction,
                              float *space, int halves)
{
    (void)halves;
    reduce_from_halves(x, y, cut, correction, space, reduce_min);
}

static void reduce_variance_halves(const void *x, float *y, const void *cut, int correction,
                                   float *space, int halves)
{
    (void)halves;
    reduce_from_halves(x, y, cut, correction, space, reduce_variance);
}

static void reduce_logsumexp_halves(const void *x, float *y, const void *cut, int correction,
                                    float *space, int halves)
{
    (void)halves;
    reduce_from_halves(x, y, cut, correction, space, reduce_logsumexp);
}

/* ---- Rows: `space` has room for those of a loop ---- */

static int cross_entropy_halves(const void *x, const int32_t *target, float *loss, float *lse,
                                float *lse_low, int rows, int n, uint64_t ignored, uint64_t kept,
                                uint64_t even, int mean, float *space, int halves)
{
    const int counted = mean ? targets_counted(target, rows, ignored) : 0;
    wide_float total = WIDE_ZERO;
    int r, bad = 0;
    (void)halves;
    for (r = 0; r < rows; r++) {
        bf16_widen_row((const uint16_t *)x + r * n, 1, space, n);
        bad |= cross_entropy_row(space, target[r], lse + r, lse_low + r, n, ignored, kept, even,
                                 &total);
    }
    *loss = counted ? wide_mean(&total, counted) : wide_value(&total);
    return bad;
}

static void cross_entropy_grad_halves(const void *x, const int32_t *target, const float *lse,
                                      const float *lse_low, const float *dloss, void *dx, int rows,
                                      int n, uint64_t ignored, float kept, float even, int mean,
                                      float *space, int halves)
{
    const int counted = mean ? targets_counted(target, rows, ignored) : 0;
    const float scale = counted ? *dloss / (float)counted : *dloss;
    int r, i;
    for (r = 0; r < rows; r++) {
        for (i = 0; i < n; i++) space[i] = operand_at(x, halves & 1, r * n + i);
        cross_entropy_grad_row(space, target[r], lse[r], lse_low[r], scale, space, n, ignored, kept,
                               even);
        for (i = 0; i < n; i++) operand_put(dx, halves >> 5 & 1, r * n + i, space[i]);
    }
}

/* See norm_rows_grad; `space` has rows of x, dy, dx and of two sums. */
static void norm_rows_grad_halves(const void *x, const float *mean, const float *rstd,
                                  const void *dy, const float *gamma, void *dx, float *dgamma,
                                  float *dbeta, void *sums, int rows, int n, int each, float *space,
                                  int halves)
{
    float *xs = space, *dys = xs + n, *dxs = dys + n, *some = dxs + n, *other = some + n;
    const int tiles = (rows + each - 1) / each;
    int tile, r, i;
    for (tile = 0; tile < tiles; tile++) {
        const int first = tile * each, end = rows - first < each ? rows : first + each;
        uint64_t *total = (uint64_t *)sums + (size_t)tile * 2 * (size_t)n;
        memset(total, 0, 2 * (size_t)n * sizeof *total);
        for (r = first; r < end; r++) {
            const float *centre = mean ? mean + r : 0;
            float low;
            for (i = 0; i < n; i++) {
                xs[i] = operand_at(x, halves & 1, r * n + i);
                dys[i] = operand_at(dy, halves >> 3 & 1, r * n + i);
            }
            low = row_low(xs, n, centre, rstd[r]);
            norm_row_grad(xs, centre, rstd[r], low, dys, gamma, dxs, n);
            for (i = 0; i < n; i++) {
                const int begins = (r - first) % 32 == 0;
                operand_put(dx, halves >> 5 & 1, r * n + i, dxs[i]);
                some[i] = (begins ? 0 : some[i]) +
                          dys[i] * (((xs[i] - (centre ? *centre : 0)) - low) * rstd[r]);
                other[i] = (begins ? 0 : other[i]) + dys[i];
                if ((r - first) % 32 != 31 && r + 1 < end) continue;
                add_to_bits(&total[i], some[i]);
                add_to_bits(&total[n + i], other[i]);
            }
        }
    }
    norm_add_tiles((const uint64_t *)sums, tiles, n, dgamma, dbeta);
}
