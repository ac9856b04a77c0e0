/* Products of numbers stored as bf16: simd_rows rows of A times two vectors of B at a time. Each element is the sum that
 * plain C computes, in its order. See plain/halves.h. */

/* Rows, columns and terms of a block of a product. */
enum { bf16_rows = 32, bf16_columns = 64, bf16_terms = 64 };

/* A block under way: sums are [columns / simd_width, rows, simd_width]. */
typedef struct bf16_block {
    int rows, columns, depth;
    int a_step,
        at[bf16_terms]; /* places in a: from row to row, and of terms, second ones of pairs first */
    float a[bf16_rows * bf16_terms], panel[bf16_terms * simd_width];
    float sum[bf16_rows * bf16_columns], total[bf16_rows * bf16_columns];
} bf16_block;

/* y = n numbers of an operand, `step` apart. */
static void bf16_factors(const void *x, int half, int first, int step, int n, float *y)
{
    int i;
    for (i = 0; i < n; i++) y[i] = bf16_factor(x, half, first + i * step);
}

/* Rows of A, of which `n` terms are left; an odd number of them is followed by a zero. */
static void bf16_pack_rows(const void *a, int half, int first, int ai, int ak, int n, bf16_block *s)
{
    const int some = n < bf16_terms ? n : bf16_terms, apart = ai == 1 && ak != 1;
    int r, l;
    s->depth = (some + 1) / 2 * 2;
    s->a_step = apart ? 1 : bf16_terms;
    for (l = 0; l < s->depth; l++) s->at[l] = (l ^ 1) * (apart ? bf16_rows : 1);
    for (l = 0; apart && l < some; l++)
        bf16_factors(a, half, first + l * ak, 1, s->rows, s->a + l * bf16_rows);
    for (r = 0; !apart && r < s->rows; r++)
        bf16_factors(a, half, first + r * ai, ak, some, s->a + r * bf16_terms);
    for (r = 0; some < s->depth && r < s->rows; r++)
        s->a[apart ? some * bf16_rows + r : r * bf16_terms + some] = 0;
}

/* Columns of B, then zeros: rows of the panel are terms, second ones of pairs first. */
static void bf16_pack_panel(const void *b, int half, int first, int bk, int bj, int n, int columns,
                            bf16_block *s)
{
    const int some = n < s->depth ? n : s->depth;
    int j, l;
    if (columns < simd_width || some < s->depth)
        for (l = 0; l < s->depth * simd_width; l++) s->panel[l] = 0;
    for (l = 0; bk != 1 && l < some; l++)
        bf16_factors(b, half, first + l * bk, bj, columns, s->panel + (l ^ 1) * simd_width);
    for (j = 0; bk == 1 && j < columns; j++) {
        float column[bf16_terms];
        bf16_factors(b, half, first + j * bj, 1, some, column);
        for (l = 0; l < some; l++) s->panel[(l ^ 1) * simd_width + j] = column[l];
    }
}

/* At most the least exponent, as it is stored, of n numbers that are not 0; 255 if all are. */
static int bf16_least(const float *x, int n)
{
    uint32_t least = 0xffffffffu, bits;
    int i;
    for (i = 0; i < n; i++) {
        memcpy(&bits, x + i, sizeof bits);
        bits = (bits << 1) - 1;
        least = bits < least ? bits : least;
    }
    return (int)(least >> 24);
}

/* The terms of the panel one by one, with results that are subnormal. */
static void bf16_add_steps(const bf16_block *s, const float *a, int rows, float *sum)
{
    const float smallest = 1.17549435e-38f;
    int r, l, j;
    for (r = 0; r < rows; r++, a += s->a_step, sum += simd_width)
        for (l = 0; l < s->depth; l++) {
            const float x = a[s->at[l]], *y = s->panel + l * simd_width;
            float near[simd_width];
            int least = 0;
            for (j = 0; j < simd_width; j++) {
                near[j] = fma(x, y[j], sum[j]);
                least |= (near[j] == smallest) | (near[j] == -smallest);
            }
            for (j = 0; j < simd_width && !least; j++) sum[j] = bf16_flush(near[j]);
            for (j = 0; j < simd_width && least; j++) sum[j] = bf16_step(x, y[j], sum[j]);
        }
}

/* Adds up to 256 terms to the sums. All factors and so all sums are multiples of powers of 2; where those of
 * a term are above 2^-126, no sum is subnormal. */
static void bf16_add_chain(const void *a, int a_first, int ai, int ak, const void *b, int b_first,
                           int bk, int bj, int n, int halves, bf16_block *s)
{
    int from, j, r, small = 0;
    for (from = 0; from < n; from += bf16_terms) {
        int least;
        bf16_pack_rows(a, halves & 1, a_first + from * ak, ai, ak, n - from, s);
        least = bf16_least(s->a, s->a_step == 1 ? s->depth * bf16_rows : s->rows * bf16_terms);
        for (j = 0; j < s->columns; j += simd_width) {
            const int columns = s->columns - j < simd_width ? s->columns - j : simd_width;
            bf16_pack_panel(b, halves >> 1 & 1, b_first + from * bk + j * bj, bk, bj, n - from,
                            columns, s);
            small |= least + bf16_least(s->panel, s->depth * simd_width) < 143;
            for (r = 0; r < s->rows; r += simd_rows) {
                const int rows = s->rows - r < simd_rows ? s->rows - r : simd_rows;
                const float *own = s->a + r * s->a_step;
                float *sum = s->sum + j * bf16_rows + r * simd_width;
                if (small)
                    bf16_add_steps(s, own, rows, sum);
                else
                    simd_block(own, s->a_step, s->at, s->panel, simd_width, rows, s->depth, sum);
            }
        }
    }
}

/* See plain/halves.h; columns of C are `cj` apart. */
static void bf16_blocks(const void *a, int a_first, int ai, int ak, const void *b, int b_first,
                        int bk, int bj, void *c, int c_first, int ci, int cj, int m, int n, int k,
                        int halves)
{
    bf16_block s;
    int i, j, r, l, from;
    memset(s.a, 0, sizeof s.a); /* of which bf16_least reads all */
    for (i = 0; i < m; i += bf16_rows)
        for (j = 0; j < n; j += bf16_columns) {
            s.rows = m - i < bf16_rows ? m - i : bf16_rows;
            s.columns = n - j < bf16_columns ? n - j : bf16_columns;
            memset(s.total, 0, sizeof s.total);
            for (from = 0; from < k; from += 256) {
                memset(s.sum, 0, sizeof s.sum);
                bf16_add_chain(a, a_first + i * ai + from * ak, ai, ak, b,
                               b_first + j * bj + from * bk, bk, bj,
                               k - from < 256 ? k - from : 256, halves, &s);
                for (l = 0; l < bf16_rows * bf16_columns; l++)
                    s.total[l] = from ? bf16_flush(s.sum[l] + s.total[l]) : s.sum[l];
            }
            for (r = 0; r < s.rows; r++)
                for (l = 0; l < s.columns; l++)
                    operand_put(
                        c, halves >> 2 & 1, c_first + (i + r) * ci + (j + l) * cj,
                        s.total[(l / simd_width * bf16_rows + r) * simd_width + l % simd_width]);
        }
}

static void bf16_product(const void *a, int a_first, int ai, int ak, const void *b, int b_first,
                         int bk, int bj, void *c, int c_first, int ci, int m, int n, int k,
                         int halves)
{
    const int swapped = (halves & 4) | (halves & 1) << 1 | (halves >> 1 & 1);
    if (n < 4 && m > n) /* lanes are rows */
        bf16_blocks(b, b_first, bj, bk, a, a_first, ak, ai, c, c_first, 1, ci, n, m, k, swapped);
    else
        bf16_blocks(a, a_first, ai, ak, b, b_first, bk, bj, c, c_first, ci, 1, m, n, k, halves);
}

/* ---- Attention: see simd/attention.h ---- */

/* p = the products [n, queries] of rows, which are `step` apart, times the scale. */
static void bf16_row_products(const float *a, int ai, const float *b, int bj, int n, int queries,
                              int k, float scale, float *p, int step)
{
    int i, j;
    bf16_blocks(a, 0, ai, 1, b, 0, 1, bj, p, 0, step, 1, n, queries, k, 0);
    for (i = 0; i < n; i++)
        for (j = 0; j < queries; j++) p[i * step + j] *= scale;
}

static void simd_scores_halves(const attention_sizes *z, const attention_block *b, const float *q,
                               const float *k, const uint8_t *mask, float scale, const int *at,
                               int key, int n, simd_queries *s)
{
    const float *rows = k + b->batch * z->k[0] + key * z->k[1] + b->kv_head * z->k[2];
    const float *first =
        q + b->batch * z->q[0] + (b->first + s->first) * z->q[1] + b->head * z->q[2];
    if (!(z->pairs & 1)) {
        simd_scores(z, b, q, k, mask, scale, at, key, n, s);
        return;
    }
    memset(s->scores, 0, sizeof s->scores);
    bf16_row_products(rows, z->k[1], first, z->q[1], n, s->n, z->dim, scale, s->scores, simd_width);
    simd_hide(z, b, mask, s->first, s->n, key, n, s->scores, simd_width);
}

static void simd_query_products_halves(const attention_sizes *z, const float *k, const float *q,
                                       float scale, int n, int queries, float *p)
{
    if (z->pairs & 1)
        bf16_row_products(k, z->k[1], q, z->q[1], n, queries, z->dim, scale, p, attention_queries);
    else
        simd_query_products(z, k, q, scale, n, queries, p);
}

static void simd_value_products_halves(const attention_sizes *z, const float *v, const float *dout,
                                       int n, int queries, float *ds)
{
    if (z->pairs & 2)
        bf16_row_products(v, z->v[1], dout, z->dout[1], n, queries, z->columns, 1, ds,
                          attention_queries);
    else
        simd_value_products(z, v, dout, n, queries, ds);
}
