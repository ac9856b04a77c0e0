/* How a batch of matrix products is cut into tiles: from shapes alone, so that the planner and the
 * kernels agree. For the kernels of matmul in f32, f64 and bf16.
 *
 * Packing is limited by memory bandwidth. So a large product packs its smaller operand once for all
 * tiles, in a phase of its own. If that is B, the rows of A stay packed in a thread's workspace for
 * its next tile of the same rows; weft_call_panel_tag records which panel is there. If it is A,
 * tiles have most of its rows, so each column of B is packed once or twice. The next data to pack
 * are prefetched while sums are computed. With few rows, nothing is packed if the columns of B are
 * dense: elements are dot products (product_by_dots). */
#ifndef WEFT_OPS_PRODUCT_H
#define WEFT_OPS_PRODUCT_H

#include "gemm.h"
#include "kernels/gemm_kernel.h"

/* Tiles for a library have about LIBRARY_TILE_FLOPS flops each, which outweigh the packing of each
 * call; there are at most LIBRARY_TILES. */
#define LIBRARY_TILE_FLOPS 8e6
#define LIBRARY_TILES      32
/* Tiles for weft's own kernels have at least MIN_TILE_FLOPS flops each; WANTED_TILES is the number
 * to aim for. Where k is above GEMM_DEPTH, the sums of DEEP_COLUMNS columns stay in the
 * second-level cache. */
#define MIN_TILE_FLOPS 1e6
/* Fewer than FEW_ROWS rows take no less time: that of reading B, FEW_COLUMNS columns at a time. */
#define FEW_ROWS     8
#define FEW_COLUMNS  128
#define WANTED_TILES 20
#define DEEP_COLUMNS 512
/* The smaller operand is packed once for all tiles, in a phase of its own, if it has at most
 * MAX_SHARED elements and the product has enough flops to pay for the barrier. A tile of that phase
 * packs SHARED_WIDTH columns of B or SHARED_ROWS rows of A. */
#define MAX_SHARED       (4 << 20)
#define MIN_SHARED_FLOPS 5e7
#define SHARED_WIDTH     128
#define SHARED_ROWS      84
/* Where A is packed once, tiles are tall: at most MAX_TILE_ROWS rows and MAX_TILE_SUMS sums. */
#define MAX_TILE_ROWS 588
#define MAX_TILE_SUMS (1 << 17)
/* With fewer rows, packing B costs more than it gains. */
#define PACKING_ROWS 48
/* In shorter dot products, adding up the lanes of the sums takes longer than packing. With fewer
 * than DOT_COLUMNS columns, which do not fill a panel, dot products pay from MIN_FEW_DOT on. */
#define MIN_DOT     128
#define MIN_FEW_DOT 48
#define DOT_COLUMNS 16

/* The operand that is packed in the first phase, for all tiles. */
typedef enum product_shared { SHARED_NONE, SHARED_A, SHARED_B } product_shared;

typedef struct product {
    int64_t m, n, k, batches;
    int64_t tile_m, tile_n, tiles_m, tiles_n;
    bool rows_joined; /* the batch of a is part of m */
    product_shared shared;
} product;

/* Whether the batch of a can be read as rows: b has no batch, the rows of a are dense, and its
 * leading dimensions continue the stride from row to row. */
static inline bool rows_join(const weft_tensor *a, const weft_tensor *b)
{
    if (b->shape.rank != 2) return false;
    const int rank = a->shape.rank;
    const int64_t k = a->shape.dim[rank - 1];
    int64_t expected = 0; /* 0: any, as dimensions of size 1 have any stride */
    if (k != 1 && a->stride[rank - 1] != 1) return false;
    for (int d = rank - 2; d >= 0; d--) {
        const int64_t size = a->shape.dim[d], stride = a->stride[d];
        if (size == 1) continue;
        if (d < rank - 2 && (stride < k || (expected && stride != expected))) return false;
        expected = size * stride;
    }
    return true;
}

/* Halves the larger of rows and columns until there are enough tiles. Edges at multiples of 32 do
 * not split the library's own blocks. */
static inline void cut_for_library(product *p)
{
    double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    double wanted = flops / LIBRARY_TILE_FLOPS;
    int64_t max_tiles =
        ceil_div(LIBRARY_TILES, p->batches < LIBRARY_TILES ? p->batches : LIBRARY_TILES);
    int64_t tiles = wanted < 1 ? 1 : wanted > (double)max_tiles ? max_tiles : (int64_t)wanted;
    p->tiles_m = p->tiles_n = 1;
    while (p->tiles_m * p->tiles_n * 2 <= tiles) {
        int64_t rows = p->m / p->tiles_m, columns = p->n / p->tiles_n;
        if (rows < 128 && columns < 128) break;
        if (rows >= columns)
            p->tiles_m *= 2;
        else
            p->tiles_n *= 2;
    }
    p->tile_m = ceil_div(ceil_div(p->m, p->tiles_m), 32) * 32;
    p->tile_n = ceil_div(ceil_div(p->n, p->tiles_n), 32) * 32;
}

static inline product_shared shared_of(const product *p)
{
    const double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    const int64_t least = p->m < p->n ? p->m : p->n;
    if (p->batches != 1 || p->m <= GEMM_TILE_ROWS || p->k > MAX_SHARED / least ||
        flops < MIN_SHARED_FLOPS)
        return SHARED_NONE;
    return p->m < p->n ? SHARED_A : SHARED_B;
}

/* Each tile packs its own columns of B: if it has all rows, B is also packed only once. */
static inline void cut_for_shared_rows(product *p)
{
    const int64_t rows = ceil_div(p->m, MAX_TILE_ROWS);
    p->tile_m = ceil_div(ceil_div(p->m, rows), SHARED_ROWS) * SHARED_ROWS;
    const int64_t wanted = ceil_div(WANTED_TILES, rows);
    const int64_t columns = ceil_div(p->n * p->tile_m, MAX_TILE_SUMS);
    p->tile_n = ceil_div(ceil_div(p->n, columns > wanted ? columns : wanted), 32) * 32;
}

static inline void cut_for_kernels(product *p)
{
    p->shared = shared_of(p);
    if (p->shared == SHARED_A) {
        cut_for_shared_rows(p);
        return;
    }
    /* Where each tile packs its own columns of B, taller tiles share the cost. */
    int64_t max_rows = p->shared ? GEMM_TILE_ROWS : GEMM_DEEP_ROWS;
    int64_t rows = p->m > max_rows ? (p->m + max_rows / 2) / max_rows : 1;
    const int64_t paid = p->m < FEW_ROWS ? FEW_ROWS : p->m;
    double affordable =
        2.0 * (double)paid * (double)p->n * (double)p->k / MIN_TILE_FLOPS / (double)rows;
    int64_t wanted = ceil_div(p->shared ? WANTED_TILES : WANTED_TILES / 2, rows * p->batches);
    int64_t columns = p->k > GEMM_DEPTH ? ceil_div(p->n, DEEP_COLUMNS) : 1;
    /* Here each tile packs both operands again: small tiles would cost more than balance gains. */
    if (!p->shared && p->k > GEMM_DEPTH && rows > 1 && wanted > ceil_div(p->n, DEEP_COLUMNS / 2))
        wanted = ceil_div(p->n, DEEP_COLUMNS / 2);
    if ((double)wanted > affordable) wanted = (int64_t)affordable;
    if (columns < wanted) columns = wanted;
    p->tile_m = ceil_div(ceil_div(p->m, rows), GEMM_EVEN_ROWS) * GEMM_EVEN_ROWS;
    const int64_t even = p->m < FEW_ROWS ? FEW_COLUMNS : 32;
    p->tile_n = ceil_div(ceil_div(p->n, columns), even) * even;
}

/* The first row and column of tile `index` of a product. Tiles that share the larger operand are
 * neighbours, so that it is read from memory once. */
static inline void tile_at(const product *p, int64_t index, int64_t *row, int64_t *column)
{
    const bool by_columns = p->shared != SHARED_B && p->n > p->m;
    int64_t i = by_columns ? index % p->tiles_m : index / p->tiles_n;
    int64_t j = by_columns ? index / p->tiles_m : index % p->tiles_n;
    *row = i * p->tile_m;
    *column = j * p->tile_n;
}

/* The block of C of tile `index` of all batches, whose first row and column in its product are given. */
static inline weft_block product_block(const product *p, int64_t index, int64_t row, int64_t column)
{
    return (weft_block){.row = index / (p->tiles_m * p->tiles_n) * p->m + row,
                        .rows = row + p->tile_m < p->m ? p->tile_m : p->m - row,
                        .column = column,
                        .columns = column + p->tile_n < p->n ? p->tile_n : p->n - column};
}

/* Whether an operand is bf16, so that the product is one of bf16. */
static inline bool product_is_narrow(const weft_call *call)
{
    return call->in[0].dtype == WEFT_BF16 || call->in[1].dtype == WEFT_BF16 ||
           call->out[0].dtype == WEFT_BF16;
}

/* Whether weft's own kernels compute the product. */
static inline bool product_is_own(const weft_call *call)
{
    return weft__gemm_is_own(product_is_narrow(call) ? WEFT_BF16 : call->out[0].dtype);
}

/* The product, not yet cut. */
static inline product product_sizes(const weft_call *call)
{
    const weft_tensor *a = &call->in[0], *b = &call->in[1], *c = &call->out[0];
    const int rank = c->shape.rank;
    product p = {.m = c->shape.dim[rank - 2],
                 .n = c->shape.dim[rank - 1],
                 .k = a->shape.dim[a->shape.rank - 1],
                 .batches = 1};
    p.rows_joined = rows_join(a, b);
    for (int d = 0; d < rank - 2; d++) *(p.rows_joined ? &p.m : &p.batches) *= c->shape.dim[d];
    return p;
}

static inline product product_of(const weft_call *call)
{
    product p = product_sizes(call);
    if (p.m == 0 || p.n == 0 || p.batches == 0) return p;
    if (product_is_own(call))
        cut_for_kernels(&p);
    else
        cut_for_library(&p);
    p.tiles_m = ceil_div(p.m, p.tile_m);
    p.tiles_n = ceil_div(p.n, p.tile_n);
    return p;
}

/* Elements of the packed operand, for `steps` elements of a packed row. */
static inline int64_t shared_elements(const product *p, int64_t steps)
{
    switch (p->shared) {
    case SHARED_A:
        return gemm_packed_rows(p->m) * steps;
    case SHARED_B:
        return ceil_div(p->n, SHARED_WIDTH) * SHARED_WIDTH * steps;
    default:
        return 0;
    }
}

static inline int64_t shared_tiles(const product *p)
{
    switch (p->shared) {
    case SHARED_A:
        return ceil_div(p->m, SHARED_ROWS);
    case SHARED_B:
        return ceil_div(p->n, SHARED_WIDTH);
    default:
        return 0;
    }
}

#ifdef WEFT_KERNEL_ISA

/* The strides of a matrix, one of which is 1. A dimension of size 1 may have any stride. */
static inline gemm_matrix matrix_of(const weft_tensor *t)
{
    int rank = t->shape.rank;
    int64_t m = t->shape.dim[rank - 2], n = t->shape.dim[rank - 1];
    int64_t row = t->stride[rank - 2], column = t->stride[rank - 1];
    bool plain = (n == 1 || column == 1) && (m == 1 || row >= n);
    if (plain) return (gemm_matrix){t->data, m == 1 ? n : row, 1};
    return (gemm_matrix){t->data, 1, n == 1 ? m : column};
}

/* The call of a library for A [m, k] and B [k, n], whose strides it takes. */
static inline gemm_call library_call(int64_t m, int64_t n, int64_t k, const gemm_matrix *a,
                                     const gemm_matrix *b)
{
    const bool trans_a = a->column != 1, trans_b = b->column != 1;
    return (gemm_call){.trans_a = trans_a,
                       .trans_b = trans_b,
                       .m = m,
                       .n = n,
                       .k = k,
                       .a = a->data,
                       .lda = trans_a ? a->column : a->row,
                       .b = b->data,
                       .ldb = trans_b ? b->column : b->row};
}

/* Whether elements of a tile of m rows are dot products of the rows of A and columns of B, which
 * lie dense. A single column is dense whatever its stride. */
static inline bool product_by_dots(const product *p, int64_t m, const gemm_matrix *a,
                                   const gemm_matrix *b)
{
    const bool long_enough = p->k >= (p->n < DOT_COLUMNS ? MIN_FEW_DOT : MIN_DOT);
    if (p->shared || !long_enough || a->column != 1 || b->row != 1) return false;
    return p->n == 1 || (m < PACKING_ROWS && b->column != 1);
}

/* Offset of batch `index` of c's batch dimensions in operand t, which broadcasts to them. */
static inline int64_t batch_offset(const weft_tensor *t, const weft_tensor *c, int64_t index)
{
    int64_t offset = 0;
    for (int d = c->shape.rank - 3; d >= 0; d--) {
        int axis = d - (c->shape.rank - t->shape.rank);
        int64_t i = index % c->shape.dim[d];
        index /= c->shape.dim[d];
        if (axis >= 0 && t->shape.dim[axis] != 1) offset += i * t->stride[axis];
    }
    return offset;
}

/* The stride that all rows share. */
static inline int64_t joined_stride(const weft_tensor *a, int64_t k)
{
    int64_t stride = k;
    for (int d = a->shape.rank - 2; d >= 0; d--)
        if (a->shape.dim[d] != 1) return a->stride[d] < k ? k : a->stride[d];
    return stride;
}

#ifdef GEMM_BF16
#include "kernels/bf16_kernel.h"

/* The operands of the product of a batch, stored as bf16 or f32. */
static inline void bf16_operands(const weft_call *call, const product *p, int64_t batch,
                                 bf16_matrix *a, bf16_matrix *b)
{
    const weft_tensor *ta = &call->in[0], *tb = &call->in[1], *tc = &call->out[0];
    const gemm_matrix ma = matrix_of(ta), mb = matrix_of(tb);
    *a = (bf16_matrix){ta->data, ta->dtype == WEFT_F32, ma.row, ma.column};
    *b = (bf16_matrix){tb->data, tb->dtype == WEFT_F32, mb.row, mb.column};
    if (p->rows_joined) {
        a->row = joined_stride(ta, p->k);
        a->column = 1;
        return;
    }
    a->data = (const char *)a->data + batch_offset(ta, tc, batch) * (a->wide ? 4 : 2);
    b->data = (const char *)b->data + batch_offset(tb, tc, batch) * (b->wide ? 4 : 2);
}

#endif

#else

#include "batch.h"

#include <weft/source.h>

/* ---- What matmul and matmul_tiles share ---- */

bool weft__product_infer(weft_infer *infer);
void weft__product_cost(const weft_call *call, weft_cost *cost);

typedef weft_value product_builder(weft_graph *graph, weft_value a, weft_value b);
void weft__product_vjp(weft_vjp *vjp, product_builder *multiply);
void weft__product_batch(weft_batch *batch, product_builder *multiply);

/* How elements are summed: by chains, by dots, or as matmul_tiles has it. */
typedef enum product_form { PRODUCT_CHAINS, PRODUCT_DOTS, PRODUCT_TILES } product_form;
/* Writes rows [first, first + m) of every product of the batch as C. */
void weft__product_source(weft_source *source, const product *p, int64_t first, int64_t m,
                          product_form form);

#endif
#endif
