/* Panels of quantised weights (quantized_panel.h) on AVX2, which multiplies pairs of numbers of 16
 * bits, or of bytes without a sign and with one, whose sum saturates in 16 bits. Weights of 8 bits
 * are therefore packed in 16, less their zero point. Weights of 4 bits stay bytes: the sum of a
 * block is at most 16 x 15 x 128 in each of two places, which 16 bits hold. */
#ifndef WEFT_OPS_KERNELS_QUANTIZED_PANEL_AVX2_H
#define WEFT_OPS_KERNELS_QUANTIZED_PANEL_AVX2_H

#include "quantized_panel.h"

#if defined(WEFT_KERNEL_ISA) && defined(__AVX2__)

/* Rows of x at once, and the halves of a panel, one vector each. */
#define QUANTIZED_AVX2_ROWS 4
#define QUANTIZED_HALVES    (QUANTIZED_COLUMNS / QUANTIZED_LANES)

/* Bytes of a packed chunk. */
#define QUANTIZED_AVX2_BYTES(bits) (QUANTIZED_CHUNK * QUANTIZED_COLUMNS * ((bits) == 8 ? 2 : 1))

/* Half of a panel, in 8 bits: vector v of a half block has elements 2 v and 2 v + 1 of each row. */
SIMD_INLINE void quantized_pack_words(const uint8_t *const *rows, const int32_t *zero, uint8_t *to)
{
    for (int at = 0; at < QUANTIZED_CHUNK; at += 8) {
        const int32_t *const zeros = zero ? zero + at / QUANTIZED_BLOCK * QUANTIZED_COLUMNS : NULL;
        __m256i part[4];
        SIMD_UNROLL(4)
        for (int n = 0; n < 4; n++) {
            const __m128i bytes =
                _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i_u *)(rows[n] + at)),
                                   _mm_loadl_epi64((const __m128i_u *)(rows[n + 4] + at)));
            const __m256i less = _mm256_set_m128i(_mm_set1_epi16(zeros ? (short)zeros[n + 4] : 0),
                                                  _mm_set1_epi16(zeros ? (short)zeros[n] : 0));
            part[n] = _mm256_sub_epi16(_mm256_cvtepu8_epi16(bytes), less);
        }
        quantized_transpose_4(part);
        SIMD_UNROLL(4)
        for (int v = 0; v < 4; v++)
            _mm256_storeu_si256((__m256i_u *)(to + (at / 2 + v) * 4 * QUANTIZED_COLUMNS), part[v]);
    }
}

/* In 4 bits: vectors 0 to 3 of a block have its even elements, four of each row, and the others the
 * odd ones. */
SIMD_INLINE void quantized_pack_nibbles(const uint8_t *const *rows, uint8_t *to)
{
    const __m256i low = _mm256_set1_epi8(15);
    for (int at = 0; at < QUANTIZED_CHUNK / 2; at += 16) {
        __m256i part[4];
        SIMD_UNROLL(4)
        for (int n = 0; n < 4; n++) part[n] = quantized_pair(rows[n] + at, rows[n + 4] + at);
        quantized_transpose_4(part);
        SIMD_UNROLL(4)
        for (int v = 0; v < 4; v++) {
            uint8_t *even = to + (at / 2 + v) * 4 * QUANTIZED_COLUMNS;
            _mm256_storeu_si256((__m256i_u *)even, _mm256_and_si256(part[v], low));
            _mm256_storeu_si256((__m256i_u *)(even + 16 * QUANTIZED_COLUMNS),
                                _mm256_and_si256(_mm256_srli_epi16(part[v], 4), low));
        }
    }
}

static inline void quantized_pack_avx2(int bits, const uint8_t *const *rows, const int32_t *zero,
                                       uint8_t *to)
{
    for (int n = 0; n < QUANTIZED_COLUMNS; n += QUANTIZED_LANES) {
        if (bits == 8)
            quantized_pack_words(rows + n, zero ? zero + n : NULL, to + 4 * n);
        else
            quantized_pack_nibbles(rows + n, to + 4 * n);
    }
}

/* The 32 bits at `at`, in each lane. */
SIMD_INLINE __m256i quantized_each(const void *at)
{
    typedef int32_t four __attribute__((aligned(1), may_alias));
    return _mm256_set1_epi32(*(const four *)at);
}

/* dot[r][h] = the sums of a block of 8 bits and half h of a panel, for each row r of x in 16 bits. */
SIMD_INLINE void quantized_dots_words(const uint8_t *w, const int16_t *const *x,
                                      __m256i dot[QUANTIZED_AVX2_ROWS][QUANTIZED_HALVES])
{
    for (int v = 0; v < QUANTIZED_BLOCK / 2; v++) {
        const __m256i w0 = _mm256_loadu_si256((const __m256i_u *)(w + 64 * v));
        const __m256i w1 = _mm256_loadu_si256((const __m256i_u *)(w + 64 * v + 32));
        SIMD_UNROLL(QUANTIZED_AVX2_ROWS)
        for (int r = 0; r < QUANTIZED_AVX2_ROWS; r++) {
            const __m256i pair = quantized_each(x[r] + 2 * v);
            dot[r][0] = _mm256_add_epi32(dot[r][0], _mm256_madd_epi16(w0, pair));
            dot[r][1] = _mm256_add_epi32(dot[r][1], _mm256_madd_epi16(w1, pair));
        }
    }
}

/* The same for 4 bits, and rows of x as quantized_place leaves them: even elements first. */
SIMD_INLINE void quantized_dots_nibbles(const uint8_t *w, const int8_t *const *x,
                                        __m256i dot[QUANTIZED_AVX2_ROWS][QUANTIZED_HALVES])
{
    const __m256i ones = _mm256_set1_epi16(1);
    for (int v = 0; v < QUANTIZED_BLOCK / 4; v++) {
        const __m256i w0 = _mm256_loadu_si256((const __m256i_u *)(w + 64 * v));
        const __m256i w1 = _mm256_loadu_si256((const __m256i_u *)(w + 64 * v + 32));
        SIMD_UNROLL(QUANTIZED_AVX2_ROWS)
        for (int r = 0; r < QUANTIZED_AVX2_ROWS; r++) {
            const __m256i four = quantized_each(x[r] + (v < 4 ? 4 * v : 48 + 4 * v));
            dot[r][0] = _mm256_add_epi16(dot[r][0], _mm256_maddubs_epi16(w0, four));
            dot[r][1] = _mm256_add_epi16(dot[r][1], _mm256_maddubs_epi16(w1, four));
        }
    }
    SIMD_UNROLL(QUANTIZED_AVX2_ROWS)
    for (int r = 0; r < QUANTIZED_AVX2_ROWS; r++) {
        dot[r][0] = _mm256_madd_epi16(dot[r][0], ones);
        dot[r][1] = _mm256_madd_epi16(dot[r][1], ones);
    }
}

/* y[r * y_row + j] = x[r] w[j] for QUANTIZED_AVX2_ROWS rows of x from `first` on and all rows of the
 * panel: the sums of quantized_products in the same order. */
SIMD_INLINE void quantized_avx2_products(const int bits, const bool minima, const quantized_rows *x,
                                         int64_t first, const quantized_panel *p, T *y,
                                         int64_t y_row)
{
    quantized_floats lane[QUANTIZED_LANES][QUANTIZED_AVX2_ROWS][QUANTIZED_HALVES];
    int16_t words[QUANTIZED_AVX2_ROWS][QUANTIZED_CHUNK];
    memset(lane, 0, sizeof lane);
    for (int64_t c = 0; c < x->chunks; c++) {
        for (int r = 0; bits == 8 && r < QUANTIZED_AVX2_ROWS; r++) {
            const int8_t *q = x->q + ((first + r) * x->chunks + c) * QUANTIZED_CHUNK;
            for (int i = 0; i < QUANTIZED_CHUNK; i += 16)
                _mm256_storeu_si256(
                    (__m256i_u *)(void *)(words[r] + i),
                    _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i_u *)(q + i))));
        }
        const int64_t left = p->blocks - c * QUANTIZED_LANES;
        for (int l = 0; l < QUANTIZED_LANES && l < left; l++) {
            const int64_t b = c * QUANTIZED_LANES + l, column = b * QUANTIZED_COLUMNS;
            const int16_t *wide[QUANTIZED_AVX2_ROWS];
            const int8_t *narrow[QUANTIZED_AVX2_ROWS];
            __m256i dot[QUANTIZED_AVX2_ROWS][QUANTIZED_HALVES];
            SIMD_UNROLL(QUANTIZED_AVX2_ROWS)
            for (int r = 0; r < QUANTIZED_AVX2_ROWS; r++) {
                dot[r][0] = dot[r][1] = _mm256_setzero_si256();
                wide[r] = words[r] + l * QUANTIZED_BLOCK;
                narrow[r] = x->q + ((first + r) * x->chunks + c) * QUANTIZED_CHUNK +
                            l / 4 * 4 * QUANTIZED_BLOCK + l % 4 * (QUANTIZED_BLOCK / 2);
            }
            const uint8_t *w = p->q + b * (QUANTIZED_AVX2_BYTES(bits) / QUANTIZED_LANES);
            if (bits == 8)
                quantized_dots_words(w, wide, dot);
            else
                quantized_dots_nibbles(w, narrow, dot);
            SIMD_UNROLL(QUANTIZED_AVX2_ROWS)
            for (int r = 0; r < QUANTIZED_AVX2_ROWS; r++) {
                const int64_t at = ((first + r) * x->chunks + c) * QUANTIZED_LANES + l;
                const T of_x = x->scale[at];
                const int32_t total = x->sum[at];
                SIMD_UNROLL(QUANTIZED_HALVES)
                for (int h = 0; h < QUANTIZED_HALVES; h++) {
                    const int64_t from = column + h * QUANTIZED_LANES;
                    quantized_ints whole = (quantized_ints)dot[r][h];
                    if (bits == 4 && !minima)
                        whole -= *(const quantized_ints *)(p->zero + from) * total;
                    quantized_floats term = of_x * *(const quantized_floats *)(p->scale + from) *
                                            __builtin_convertvector(whole, quantized_floats);
                    if (minima)
                        term += of_x * *(const quantized_floats *)(p->minimum + from) * (T)total;
                    lane[l][r][h] += term;
                }
            }
        }
    }
    for (int r = 0; r < QUANTIZED_AVX2_ROWS; r++)
        for (int h = 0; h < QUANTIZED_HALVES; h++)
            *(quantized_floats *)(y + r * y_row + h * QUANTIZED_LANES) =
                ((lane[0][r][h] + lane[4][r][h]) + (lane[2][r][h] + lane[6][r][h])) +
                ((lane[1][r][h] + lane[5][r][h]) + (lane[3][r][h] + lane[7][r][h]));
}

#define QUANTIZED_PANEL(bits, minima)                                                              \
    static __attribute__((noinline)) void quantized_avx2_##bits##_##minima(                        \
        const quantized_rows *x, int64_t first, const quantized_panel *p, T *y, int64_t y_row)     \
    {                                                                                              \
        for (int r = 0; r < QUANTIZED_ROWS; r += QUANTIZED_AVX2_ROWS)                              \
            quantized_avx2_products(bits, minima, x, first + r, p, y + r * y_row, y_row);          \
    }
QUANTIZED_PANEL(8, 0)
QUANTIZED_PANEL(8, 1)
QUANTIZED_PANEL(4, 0)
QUANTIZED_PANEL(4, 1)
#undef QUANTIZED_PANEL

#endif
#endif
