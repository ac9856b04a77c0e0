/* Matrix products. See exact.h.
 *
 * An element is a chain of fused multiply-adds over each 128 steps of k, which begins with 0;
 * chains are added in order. Where rows of a and columns of b are dense and rows are few,
 * it is a dot product instead, whose terms have lanes. */
#include "exact_math.h"

#define CHAIN 128
#define DEPTH 768                       /* of a lane of a dot product */
#define SPAN  (64 / (int64_t)sizeof(T)) /* lanes of a dot product */

/* A product of a batch as the kernel sees it. */
typedef struct product {
    int64_t m, n, k;
    int64_t tile_rows; /* rows that one tile computes: dot products are chosen for each tile */
    bool dots;         /* rows of a and columns of b are dense and long enough */
    bool packed_once;  /* an operand is packed once for all tiles: there are no dot products */
    bool plain_b;      /* rows of b are dense */
} product;

/* Whether the batch of a is part of its rows. */
static bool rows_join(const weft_tensor *a, const weft_tensor *b)
{
    const int rank = a->shape.rank;
    const int64_t k = a->shape.dim[rank - 1];
    int64_t expected = 0;
    if (b->shape.rank != 2 || (k != 1 && a->stride[rank - 1] != 1)) return false;
    for (int d = rank - 2; d >= 0; d--) {
        if (a->shape.dim[d] == 1) continue;
        if (d < rank - 2 && (a->stride[d] < k || (expected && a->stride[d] != expected)))
            return false;
        expected = a->shape.dim[d] * a->stride[d];
    }
    return true;
}

/* Whether the rows of a matrix are dense; else its columns are. */
static bool rows_are_dense(const weft_tensor *t)
{
    const int rank = t->shape.rank;
    const int64_t m = t->shape.dim[rank - 2], n = t->shape.dim[rank - 1];
    return (n == 1 || t->stride[rank - 1] == 1) && (m == 1 || t->stride[rank - 2] >= n);
}

static product product_of(const weft_tensor *a, const weft_tensor *b, const weft_tensor *c)
{
    const int rank = c->shape.rank;
    const bool join = rows_join(a, b);
    product p = {.m = c->shape.dim[rank - 2], .n = c->shape.dim[rank - 1], .k = last_dim(a)};
    int64_t batches = 1;
    for (int d = 0; d < rank - 2; d++) *(join ? &p.m : &batches) *= c->shape.dim[d];
    p.plain_b = rows_are_dense(b);
    /* A column of b that is alone is dense whatever its stride. A row of a that has a stride of 1
     * is dense; so is what b's rows have if that stride is 1. */
    const bool dense_a = join || rows_are_dense(a);
    const bool dense_b =
        !p.plain_b ||
        (p.n == 1 && (b->shape.dim[b->shape.rank - 2] == 1 || b->stride[b->shape.rank - 2] == 1));
    p.dots = dense_a && dense_b && p.k >= (p.n < 16 ? 48 : 128);
    const int64_t smaller = p.m < p.n ? p.m : p.n;
    p.packed_once = batches == 1 && p.m > 84 && smaller && p.k <= (4 << 20) / smaller &&
                    2.0 * (double)p.m * (double)p.n * (double)p.k >= 5e7;
    const int64_t tiles = p.m > 168 ? (p.m + 84) / 168 : 1;
    p.tile_rows = round_up(round_up(p.m, tiles) / tiles, 14);
    return p;
}

/* Whether row i is computed as dot products. */
static bool row_by_dots(const product *p, int64_t i)
{
    const int64_t first = i / p->tile_rows * p->tile_rows, left = p->m - first;
    if (!p->dots || p->packed_once) return false;
    return p->n == 1 || ((left < p->tile_rows ? left : p->tile_rows) < 48 && !p->plain_b);
}

static T chain(line a, line b, int64_t k)
{
    T total = 0;
    for (int64_t from = 0; from < k; from += CHAIN) {
        T sum = 0;
        for (int64_t i = from; i < k && i < from + CHAIN; i++) sum = FMA(of(a, i), of(b, i), sum);
        total = from ? total + sum : sum;
    }
    return total;
}

static T dot(line a, line b, int64_t k)
{
    const int64_t whole = k / SPAN * SPAN;
    T total[LANES] = {0};
    for (int64_t from = 0; from < whole; from += DEPTH) {
        T sum[LANES] = {0};
        for (int64_t i = from; i < whole && i < from + DEPTH; i++)
            sum[i % SPAN] = FMA(of(a, i), of(b, i), sum[i % SPAN]);
        for (int64_t c = 0; c < SPAN; c++) total[c] += sum[c];
    }
    for (int64_t half = SPAN / 2; half; half /= 2)
        for (int64_t c = 0; c < half; c++) total[c] += total[c + half];
    T result = total[0];
    for (int64_t i = whole; i < k; i++) result = FMA(of(a, i), of(b, i), result);
    return result;
}

/* The matrix of t in the batch of c's element `first`, as the offset of its first element. */
static int64_t matrix_at(const weft_tensor *t, const weft_tensor *c, int64_t first)
{
    weft_shape batch = c->shape;
    weft_tensor matrices = *t;
    batch.rank -= 2;
    matrices.shape.rank -= 2;
    return offset_in(&matrices, &batch, first);
}

/* Sets each element of the product to a sum of row i and column j. */
static void multiply(const weft_tensor *in, const weft_tensor *out, bool tiles)
{
    const weft_tensor *a = &in[0], *b = &in[1];
    const int ra = a->shape.rank, rb = b->shape.rank;
    const product p = product_of(a, b, out);
    const bool bf16 = a->dtype == WEFT_BF16 || b->dtype == WEFT_BF16 || out->dtype == WEFT_BF16;
    const int64_t m = out->shape.dim[out->shape.rank - 2], elements = numel(out);
    for (int64_t o = 0; o < elements; o++) {
        const int64_t row = o / p.n, j = o % p.n, batch = row / m, i = row % m;
        const line x = {data(a) + matrix_at(a, out, batch) + i * a->stride[ra - 2],
                        a->stride[ra - 1]};
        const line y = {data(b) + matrix_at(b, out, batch) + j * b->stride[rb - 1],
                        b->stride[rb - 2]};
        data(out)[o] = tiles                        ? dot_of_tiles(x, y, p.k)
                       : bf16                       ? dot_of_bf16(x, y, p.k)
                       : row_by_dots(&p, row % p.m) ? dot(x, y, p.k)
                                                    : chain(x, y, p.k);
    }
}

EXACT(matmul)
{
    UNUSED;
    multiply(in, out, false);
}

EXACT(matmul_tiles)
{
    UNUSED;
    multiply(in, out, true);
}

/* ---- Products with panels ---- */

#define PANEL 32

EXACT(panels)
{
    UNUSED;
    const int64_t k = in->shape.dim[0], n = in->shape.dim[1];
    for (int64_t o = 0; o < numel(out); o++) {
        const int64_t i = o / PANEL % k, j = o / PANEL / k * PANEL + o % PANEL;
        data(out)[o] = j < n ? data(in)[i * in->stride[0] + j * in->stride[1]] : 0;
    }
}

EXACT(matmul_panels)
{
    UNUSED;
    const int64_t k = in->shape.dim[1], n = out->shape.dim[1];
    for (int64_t o = 0; o < numel(out); o++) {
        const int64_t j = o % n;
        const line a = {data(in) + o / n * in->stride[0], 1};
        const line b = {data(&in[1]) + j / PANEL * k * PANEL + j % PANEL, PANEL};
        data(out)[o] = chain(a, b, k);
    }
}

EXACT_TABLE(matmul) = {
    ROW(matmul), ROW(matmul_tiles), ROW(panels), ROW(matmul_panels), {NULL, NULL}};
