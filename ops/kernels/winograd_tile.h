/* The transforms of Winograd's method for 3 x 3 taps (conv/winograd.h), of a vector of channels. No
 * operation is fused. m, the side of a tile of the result, is a constant at every call: 2 or 4. */
#ifndef WEFT_OPS_KERNELS_WINOGRAD_TILE_H
#define WEFT_OPS_KERNELS_WINOGRAD_TILE_H

#include "simd.h"

#define WINOGRAD_SIDE 6                   /* of a transformed tile, at most */
#define WINOGRAD_ROOT 0.70710678118654752 /* sqrt(1/2) */

#ifdef WEFT_KERNEL_ISA

/* ---- One line ---- */

/* v = Bt d; elements lie `step` apart. */
SIMD_INLINE void winograd_input_line(const int m, const simd_vector *d, int step, simd_vector *v,
                                     int v_step)
{
    if (m == 2) {
        v[0] = d[0] - d[2 * step];
        v[v_step] = d[step] + d[2 * step];
        v[2 * v_step] = d[2 * step] - d[step];
        v[3 * v_step] = d[step] - d[3 * step];
        return;
    }
    const T a = (T)WINOGRAD_ROOT, b = (T)(2 * WINOGRAD_ROOT);
    const simd_vector even_a = d[4 * step] - 2 * d[2 * step];
    const simd_vector odd_a = a * (d[3 * step] - 2 * d[step]);
    const simd_vector even_b = d[4 * step] - (T)0.5 * d[2 * step];
    const simd_vector odd_b = b * (d[3 * step] - (T)0.5 * d[step]);
    v[0] = (d[0] - (T)2.5 * d[2 * step]) + d[4 * step];
    v[v_step] = even_a + odd_a;
    v[2 * v_step] = even_a - odd_a;
    v[3 * v_step] = even_b + odd_b;
    v[4 * v_step] = even_b - odd_b;
    v[5 * v_step] = (d[step] - (T)2.5 * d[3 * step]) + d[5 * step];
}

/* y = At s. */
SIMD_INLINE void winograd_output_line(const int m, const simd_vector *s, int step, simd_vector *y,
                                      int y_step)
{
    if (m == 2) {
        y[0] = (s[0] + s[step]) + s[2 * step];
        y[y_step] = (s[step] - s[2 * step]) - s[3 * step];
        return;
    }
    const T a = (T)WINOGRAD_ROOT, b = (T)(2 * WINOGRAD_ROOT);
    const simd_vector even_a = s[step] + s[2 * step], odd_a = s[step] - s[2 * step];
    const simd_vector even_b = s[3 * step] + s[4 * step], odd_b = s[3 * step] - s[4 * step];
    y[0] = (s[0] + even_a) + even_b;
    y[y_step] = a * odd_a + b * odd_b;
    y[2 * y_step] = (T)0.5 * even_a + 2 * even_b;
    y[3 * y_step] = ((T)0.5 * a * odd_a + 2 * b * odd_b) + s[5 * step];
}

/* ---- A tile ---- */

/* A vector of channels of one tile, whose pixels lie at x: columns first, then lines. Position p
 * goes to out[p * step]. */
SIMD_INLINE void winograd_input_tile(const int m, const T *x, int64_t line, int64_t pixel, T *out,
                                     int64_t step)
{
    const int n = m + 2;
    simd_vector down[WINOGRAD_SIDE * WINOGRAD_SIDE];
    SIMD_UNROLL(6)
    for (int j = 0; j < n; j++) {
        simd_vector d[WINOGRAD_SIDE];
        SIMD_UNROLL(6)
        for (int i = 0; i < n; i++) d[i] = *(const simd_vector *)(x + i * line + j * pixel);
        winograd_input_line(m, d, 1, down + j, n);
    }
    SIMD_UNROLL(6)
    for (int i = 0; i < n; i++) {
        simd_vector v[WINOGRAD_SIDE];
        winograd_input_line(m, down + i * n, 1, v, 1);
        SIMD_UNROLL(6)
        for (int j = 0; j < n; j++, out += step) *(simd_vector *)out = v[j];
    }
}

/* A vector of columns of one tile: columns first, then lines. */
SIMD_INLINE void winograd_output_tile(const int m, const T *sums, int64_t step, simd_vector *y)
{
    const int n = m + 2;
    simd_vector down[4 * WINOGRAD_SIDE];
    SIMD_UNROLL(6)
    for (int j = 0; j < n; j++) {
        simd_vector s[WINOGRAD_SIDE];
        SIMD_UNROLL(6)
        for (int i = 0; i < n; i++) s[i] = *(const simd_vector *)(sums + (i * n + j) * step);
        winograd_output_line(m, s, 1, down + j, n);
    }
    SIMD_UNROLL(4)
    for (int i = 0; i < m; i++) winograd_output_line(m, down + i * n, 1, y + i * m, 1);
}

#endif
#endif
