/* Sums of products of bf16 (docs/arithmetic.md): the dot product of the processor, vdpbf16ps, or the
 * same bits from fused multiply-adds of f32. Numbers of k come in pairs, the second one of each
 * first; after an odd number of them a zero follows. Subnormal numbers are flushed to zero. The
 * caller has set float_env_flush. */
#ifndef WEFT_OPS_KERNELS_PAIRS_H
#define WEFT_OPS_KERNELS_PAIRS_H

#include "simd.h"

#ifdef WEFT_KERNEL_ISA

/* Numbers of k in a chain: SIMD_CHAIN pairs. */
#define PAIRS_CHAIN (2 * SIMD_CHAIN)

/* As simd_add_product, of f32 that hold bf16. It is faster where the steps of A and B are constants.
 */
SIMD_INLINE void pairs_add_numbers(const int rows, const int vectors, const int ahead,
                                   simd_operands o, simd_vector *sum)
{
    const int64_t even = o.depth / 2 * 2;
    for (int64_t k = 0; k < even; k++) {
        simd_operands at = o;
        at.a += (k ^ 1) * o.a_step;
        at.b += (k ^ 1) * o.b_step;
        simd_add_step(rows, vectors, ahead, true, at, sum);
    }
    if (even == o.depth) return;
    o.a += even * o.a_step;
    o.b += even * o.b_step;
    SIMD_UNROLL(32)
    for (int i = 0; i < rows * vectors; i++) sum[i] += (simd_vector){0};
    simd_add_step(rows, vectors, ahead, true, o, sum);
}

#ifdef __AVX512BF16__

/* The same, where an element of A and of B is a pair, and the depth counts pairs. */
SIMD_INLINE void pairs_add_pairs(const int rows, const int vectors, const int ahead,
                                 simd_operands o, simd_vector *sum)
{
    for (int64_t k = 0; k < o.depth; k++) {
        __m512bh row[4];
        SIMD_UNROLL(4)
        for (int v = 0; v < vectors; v++) row[v] = (__m512bh)_mm512_loadu_ps(o.b + v * SIMD_LANES);
        SIMD_UNROLL(4)
        for (int v = 0; v < vectors; v++)
            if (ahead) __builtin_prefetch(o.b + ahead * o.b_step + v * SIMD_LANES);
        SIMD_UNROLL(16)
        for (int r = 0; r < rows; r++) {
            const __m512bh x = (__m512bh)_mm512_set1_ps(o.a[r * o.a_row]);
            SIMD_UNROLL(4)
            for (int v = 0; v < vectors; v++) {
                simd_vector *s = sum + r * vectors + v;
                *s = (simd_vector)_mm512_dpbf16_ps((__m512)*s, row[v], x);
            }
        }
        o.a += o.a_step;
        o.b += o.b_step;
    }
}

#endif
#endif
#endif
