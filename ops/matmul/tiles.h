/* How products of matmul_tiles are cut: from shapes alone, so that the planner and the kernels agree.
 *
 * A task computes a block of C. It packs its rows of A and multiplies them by panels of B, whose sums,
 * strips, it then writes, some side by side, so that lines of C are written whole. If several tasks
 * share the columns, B is packed for all of them in a phase of its own. The packed rows stay in a
 * thread's workspace for its next task, if that has the same. Where k is above TILES_KEPT, a task
 * packs a piece of k at a time and has all its strips. */
#ifndef WEFT_OPS_MATMUL_TILES_H
#define WEFT_OPS_MATMUL_TILES_H

#include "kernels/tiles.h"
#include "product.h"

/* Numbers of k that are multiplied before the next panel's; those of the rows of A that a workspace
 * holds at once. */
#define TILES_DEPTH 512
#define TILES_KEPT  2048
/* Rows of a task, at most; columns of a group of panels, which a task of the first phase packs. */
#define TILES_ROWS  256
#define TILES_GROUP 64
/* Columns of strips that are written together; columns of a task with all its strips, which stay in
 * the second-level cache. */
#define TILES_WRITTEN 128
#define TILES_DEEP    512
/* A product is cut into as many tasks, if each then has TILES_FLOPS flops. */
#define TILES_FLOPS 4e6
#define TILES_TASKS 20
/* Elements after a packed row, so that rows do not lie a power of two apart. */
#define TILES_APART 16

/* A product: m, n and k, and its tasks, of tile_m rows and tile_n columns. */
static inline product tiles_product(const weft_call *call)
{
    product p = product_sizes(call);
    if (p.m == 0 || p.n == 0 || p.batches == 0) return p;
    p.tiles_m = ceil_div(p.m, TILES_ROWS);
    p.tile_m = ceil_div(ceil_div(p.m, p.tiles_m), TILES_EVEN) * TILES_EVEN;
    p.tiles_m = ceil_div(p.m, p.tile_m);
    const double flops = 2.0 * (double)p.m * (double)p.n * (double)p.k / TILES_FLOPS;
    const int64_t rows = p.tiles_m * p.batches, most = ceil_div(p.n, TILES_GROUP);
    int64_t columns = ceil_div(TILES_TASKS, rows);
    if ((double)columns > flops / (double)p.tiles_m) columns = (int64_t)(flops / (double)p.tiles_m);
    if (columns > most) columns = most;
    if (columns < 1) columns = 1;
    if (p.k > TILES_KEPT && columns < ceil_div(p.n, TILES_DEEP))
        columns = ceil_div(p.n, TILES_DEEP);
    p.tile_n = ceil_div(ceil_div(p.n, columns), TILES_GROUP) * TILES_GROUP;
    p.tiles_n = ceil_div(p.n, p.tile_n);
    p.shared = p.tiles_m > 1 ? SHARED_B : SHARED_NONE;
    return p;
}

/* From one packed row to the next. */
static inline int64_t tiles_row(int64_t k, bool pairs)
{
    const int64_t words = tiles_words(k < TILES_KEPT ? k : TILES_KEPT, pairs);
    return ceil_div(words, TILES_APART) * TILES_APART + TILES_APART;
}

/* Columns of the strips that a task of n columns has at a time. */
static inline int64_t tiles_columns(int64_t n, int64_t k)
{
    return k <= TILES_KEPT && n > TILES_WRITTEN ? TILES_WRITTEN : n;
}

/* Elements of a task's workspace, with any instruction set: a panel, packed rows, and strips. */
static inline int64_t tiles_workspace(const product *p, bool pairs)
{
    const int64_t rows = p->m < p->tile_m ? p->m : p->tile_m;
    const int64_t depth = p->k < TILES_DEPTH ? p->k : TILES_DEPTH;
    const int64_t even = ceil_div(rows, TILES_EVEN) * TILES_EVEN;
    return even * tiles_columns(p->tile_n, p->k) + tiles_words(depth, pairs) * GEMM_MAX_WIDTH +
           (pairs ? even : rows) * tiles_row(p->k, pairs);
}

/* Elements of all B, packed, with the columns of the last panel. */
static inline int64_t tiles_packed_columns(const product *p, bool pairs)
{
    return ceil_div(p->n, TILES_GROUP) * TILES_GROUP * tiles_words(p->k, pairs);
}

#endif
