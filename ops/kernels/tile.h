/* Matrix products of small blocks that stay in the cache, for kernels that do more to a block than
 * multiply it.
 *
 * C [m, n] = A [m, depth] B [depth, n]: elements of A are broadcast one by one and may lie at any
 * strides, so that a transposed A costs nothing; rows of B and C are dense. A block of TILE_ROWS by
 * TILE_VECTORS sums stays in registers over the depth, up to SIMD_CHAIN of it (Goto & van de Geijn
 * 2008, the inner kernel), and is then added to C, so that rounding errors do not pile up. Time
 * O(m n depth), no memory. */
#ifndef WEFT_OPS_KERNELS_TILE_H
#define WEFT_OPS_KERNELS_TILE_H

#include "pairs.h"

#ifdef WEFT_KERNEL_ISA

#define TILE_ROWS    6
#define TILE_VECTORS (SIMD_REGISTERS / 8) /* vectors in a row of the block of sums */

/* Element (i, k) of A lies at a[i * a_row + k * a_step]; rows of B at b_row, rows of C at c_row. */
typedef struct tile_operands {
    int64_t m, n, depth;
    const T *a;
    int64_t a_row, a_step;
    const T *b;
    int64_t b_row;
    T *c;
    int64_t c_row;
    bool add; /* to what C holds */
} tile_operands;

/* What the elements of A and B are: T, f32 that hold bf16, or pairs of bf16, each as one T. */
typedef enum tile_kind { TILE_PLAIN, TILE_BF16, TILE_PAIRS } tile_kind;

/* Kind, rows and vectors are constants at every call. */
SIMD_INLINE void tile_block(const tile_kind kind, const int rows, const int vectors,
                            tile_operands o)
{
    simd_vector sum[TILE_ROWS * TILE_VECTORS];
    for (int r = 0; r < rows; r++) {
        if (o.add) __builtin_prefetch(o.c + r * o.c_row, 1);
        for (int v = 0; v < vectors; v++) sum[r * vectors + v] = (simd_vector){0};
    }
    const int64_t a_step = kind == TILE_PLAIN ? o.a_step : 1;
    const simd_operands operands = {o.a, o.b, o.a_row, a_step, o.b_row, o.depth};
    if (kind == TILE_PLAIN) simd_add_product(rows, vectors, 0, operands, sum);
    if (kind == TILE_BF16) pairs_add_numbers(rows, vectors, 0, operands, sum);
#ifdef __AVX512BF16__
    if (kind == TILE_PAIRS) pairs_add_pairs(rows, vectors, 0, operands, sum);
#endif
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            simd_vector *out = (simd_vector *)(o.c + r * o.c_row + v * SIMD_LANES);
            if (o.add) sum[r * vectors + v] += *out;
            if (kind != TILE_PLAIN) sum[r * vectors + v] = simd_flush(sum[r * vectors + v]);
            *out = sum[r * vectors + v];
        }
}

/* A strip of `vectors` vectors of columns from column j on, all m rows. */
SIMD_INLINE void tile_strip(const tile_kind kind, const int vectors, int64_t j, tile_operands o)
{
    o.b += j;
    o.c += j;
    for (; o.m >= TILE_ROWS; o.m -= TILE_ROWS) {
        tile_block(kind, TILE_ROWS, vectors, o);
        o.a += TILE_ROWS * o.a_row;
        o.c += TILE_ROWS * o.c_row;
    }
    switch (o.m) {
    case 5:
        tile_block(kind, 5, vectors, o);
        break;
    case 4:
        tile_block(kind, 4, vectors, o);
        break;
    case 3:
        tile_block(kind, 3, vectors, o);
        break;
    case 2:
        tile_block(kind, 2, vectors, o);
        break;
    case 1:
        tile_block(kind, 1, vectors, o);
        break;
    default:
        break;
    }
}

/* The product for a depth of at most one chain. */
SIMD_INLINE void tile_piece(const tile_kind kind, tile_operands o)
{
    int64_t j = 0;
    for (; o.n - j >= TILE_VECTORS * SIMD_LANES; j += TILE_VECTORS * SIMD_LANES)
        tile_strip(kind, TILE_VECTORS, j, o);
#if SIMD_REGISTERS == 32
    if (o.n - j >= 3 * SIMD_LANES) {
        tile_strip(kind, 3, j, o);
        j += 3 * SIMD_LANES;
    } else if (o.n - j >= 2 * SIMD_LANES) {
        tile_strip(kind, 2, j, o);
        j += 2 * SIMD_LANES;
    }
#endif
    if (o.n - j >= SIMD_LANES) {
        tile_strip(kind, 1, j, o);
        j += SIMD_LANES;
    }
    for (int64_t i = 0; kind == TILE_PLAIN && i < o.m && j < o.n; i++)
        for (int64_t x = j; x < o.n; x++) {
            T sum = 0;
            for (int64_t k = 0; k < o.depth; k++)
                sum = FMA(o.a[i * o.a_row + k * o.a_step], o.b[k * o.b_row + x], sum);
            o.c[i * o.c_row + x] = o.add ? o.c[i * o.c_row + x] + sum : sum;
        }
}

SIMD_INLINE void tile_chains(const tile_kind kind, tile_operands o)
{
    const int64_t chain = kind == TILE_BF16 ? PAIRS_CHAIN : SIMD_CHAIN;
    int64_t rest = o.depth;
    do {
        o.depth = rest < chain ? rest : chain;
        tile_piece(kind, o);
        o.a += o.depth * o.a_step;
        o.b += o.depth * o.b_row;
        o.add = true;
        rest -= o.depth;
    } while (rest > 0);
}

static inline void tile_product(tile_operands o)
{
    tile_chains(TILE_PLAIN, o);
}

/* Products of bf16, whose n is a multiple of SIMD_LANES, and whose a_step is 1. Not inlined: see float_env_flush. */
static __attribute__((noinline, unused)) void tile_product_bf16(tile_operands o)
{
    tile_chains(TILE_BF16, o);
}

#ifdef __AVX512BF16__
static __attribute__((noinline, unused)) void tile_product_pairs(tile_operands o)
{
    tile_chains(TILE_PAIRS, o);
}
#endif

#endif
#endif
