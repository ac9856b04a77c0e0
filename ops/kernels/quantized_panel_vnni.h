/* Panels of quantised weights (quantized_panel.h) on AVX512_VNNI. */
#ifndef WEFT_OPS_KERNELS_QUANTIZED_PANEL_VNNI_H
#define WEFT_OPS_KERNELS_QUANTIZED_PANEL_VNNI_H

#include "quantized_panel.h"

#if defined(WEFT_KERNEL_ISA) && defined(__AVX512F__)

/* Bytes of a packed chunk. */
#define QUANTIZED_VNNI_BYTES (QUANTIZED_CHUNK * QUANTIZED_COLUMNS)

typedef int32_t quantized_wide_ints
    __attribute__((vector_size(4 * QUANTIZED_COLUMNS), aligned(4), may_alias));
typedef T quantized_wide_floats
    __attribute__((vector_size(sizeof(T) * QUANTIZED_COLUMNS), aligned(sizeof(T)), may_alias));

/* The 16 x 16 ints of x, transposed: pairs, fours, and then quarters of vectors change places. */
SIMD_INLINE void quantized_transpose(__m512i *x)
{
    __m512i y[16];
    SIMD_UNROLL(8)
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    SIMD_UNROLL(4)
    for (int i = 0; i < 16; i += 4) {
        x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
    SIMD_UNROLL(4)
    for (int i = 0; i < 4; i++) {
        y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
        y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
        y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
        y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
    }
    SIMD_UNROLL(8)
    for (int i = 0; i < 8; i++) {
        x[i] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88);
        x[i + 8] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd);
    }
}

/* Of a block, vector v has four elements of each row: those that four bytes of x, from 4 v on, are
 * multiplied with. */
SIMD_INLINE void quantized_pack_vnni_bits(const int bits, const uint8_t *const *rows, uint8_t *to)
{
    const __m512i low = _mm512_set1_epi8(15);
    for (int at = 0; at < QUANTIZED_CHUNK * bits / 8; at += 64) {
        __m512i part[16];
        SIMD_UNROLL(16)
        for (int n = 0; n < 16; n++) part[n] = _mm512_loadu_si512(rows[n] + at);
        quantized_transpose(part);
        SIMD_UNROLL(16)
        for (int v = 0; v < 16; v++) {
            if (bits == 8) {
                _mm512_storeu_si512(to + 64 * v, part[v]);
                continue;
            }
            /* Four ints of a block: the low halves of their bytes, then the high ones. */
            uint8_t *block = to + 64 * (v / 4 * 8 + v % 4);
            _mm512_storeu_si512(block, _mm512_and_si512(part[v], low));
            _mm512_storeu_si512(block + 256, _mm512_and_si512(_mm512_srli_epi16(part[v], 4), low));
        }
        to += 64 * 16 * 8 / bits;
    }
}

static inline void quantized_pack_vnni(int bits, const uint8_t *const *rows, const int32_t *zero,
                                       uint8_t *to)
{
    (void)zero;
    if (bits == 8)
        quantized_pack_vnni_bits(8, rows, to);
    else
        quantized_pack_vnni_bits(4, rows, to);
}

/* sum += products of four bytes of each lane of w with the same four bytes of x. */
SIMD_INLINE __m512i quantized_vnni_four(__m512i sum, __m512i w, const int8_t *x)
{
    typedef int32_t four __attribute__((aligned(1), may_alias));
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(w), "m"(*(const four *)(const void *)x));
    return sum;
}

/* y[r * y_row + j] = x[r] w[j] for `rows` rows of x from `first` on and all rows of the panel: the
 * sums of quantized_products in the same order, one of their lanes after another. */
SIMD_INLINE void quantized_vnni_products(const int rows, const quantized_form form,
                                         const quantized_rows *x, int64_t first,
                                         const quantized_panel *p, T *y, int64_t y_row)
{
    quantized_wide_floats lane[QUANTIZED_LANES][QUANTIZED_ROWS];
    for (int l = 0; l < QUANTIZED_LANES; l++) {
        const int from =
            form.bits == 8 ? l * QUANTIZED_BLOCK : l / 4 * 4 * QUANTIZED_BLOCK + l % 4 * 16;
        quantized_wide_floats sum[QUANTIZED_ROWS];
        SIMD_UNROLL(QUANTIZED_ROWS)
        for (int r = 0; r < rows; r++) sum[r] = (quantized_wide_floats){0};
        for (int64_t c = 0; c < x->chunks; c++) {
            const int64_t b = c * QUANTIZED_LANES + l;
            const uint8_t *w = p->q + b * QUANTIZED_BLOCK * QUANTIZED_COLUMNS;
            const quantized_wide_floats scale =
                *(const quantized_wide_floats *)(p->scale + b * QUANTIZED_COLUMNS);
            quantized_wide_floats minimum = {0};
            quantized_wide_ints zero = {0};
            if (form.minima)
                minimum = *(const quantized_wide_floats *)(p->minimum + b * QUANTIZED_COLUMNS);
            else
                zero = *(const quantized_wide_ints *)(p->zero + b * QUANTIZED_COLUMNS);
            __m512i part[8];
            SIMD_UNROLL(8)
            for (int v = 0; v < 8; v++) part[v] = _mm512_loadu_si512(w + 64 * v);
            SIMD_UNROLL(QUANTIZED_ROWS)
            for (int r = 0; r < rows; r++) {
                const int64_t at = (first + r) * x->chunks + c;
                const int8_t *q = x->q + at * QUANTIZED_CHUNK + from;
                __m512i dot = _mm512_setzero_si512();
                SIMD_UNROLL(8)
                for (int v = 0; v < 8; v++)
                    dot = quantized_vnni_four(dot, part[v],
                                              q + (form.bits == 4 && v >= 4 ? 48 + 4 * v : 4 * v));
                /* Not by way of a variable, which gcc 12 cannot convert to f64 without optimisation. */
                const T of_x = x->scale[at * QUANTIZED_LANES + l];
                const int32_t total = x->sum[at * QUANTIZED_LANES + l];
                quantized_wide_floats term =
                    of_x * scale *
                    __builtin_convertvector((quantized_wide_ints)dot - zero * total,
                                            quantized_wide_floats);
                if (form.minima) term += of_x * minimum * (T)total;
                sum[r] += term;
            }
        }
        SIMD_UNROLL(QUANTIZED_ROWS)
        for (int r = 0; r < rows; r++) lane[l][r] = sum[r];
    }
    for (int r = 0; r < rows; r++)
        *(quantized_wide_floats *)(y + r * y_row) =
            ((lane[0][r] + lane[4][r]) + (lane[2][r] + lane[6][r])) +
            ((lane[1][r] + lane[5][r]) + (lane[3][r] + lane[7][r]));
}

/* The same in 8 bits, for scales of 1, a zero point for each row of the panel, and sums that an int
 * can hold: they are exact, so their order does not matter. */
static __attribute__((noinline)) void quantized_vnni_whole(const quantized_rows *x, int64_t first,
                                                           const quantized_panel *p, T *y,
                                                           int64_t y_row)
{
    const int64_t blocks = x->chunks * QUANTIZED_LANES;
    const int8_t *q = x->q + first * blocks * QUANTIZED_BLOCK;
    const quantized_wide_ints zero = *(const quantized_wide_ints *)p->zero;
    __m512i sum[QUANTIZED_ROWS];
    SIMD_UNROLL(QUANTIZED_ROWS)
    for (int r = 0; r < QUANTIZED_ROWS; r++) sum[r] = _mm512_setzero_si512();
    for (int64_t at = 0; at < blocks * QUANTIZED_BLOCK; at += 4) {
        const __m512i w = _mm512_loadu_si512(p->q + at * QUANTIZED_COLUMNS);
        SIMD_UNROLL(QUANTIZED_ROWS)
        for (int r = 0; r < QUANTIZED_ROWS; r++)
            sum[r] = quantized_vnni_four(sum[r], w, q + r * blocks * QUANTIZED_BLOCK + at);
    }
    SIMD_UNROLL(QUANTIZED_ROWS)
    for (int r = 0; r < QUANTIZED_ROWS; r++) {
        int32_t total = 0;
        for (int64_t b = 0; b < blocks; b++) total += x->sum[(first + r) * blocks + b];
        *(quantized_wide_floats *)(y + r * y_row) = __builtin_convertvector(
            (quantized_wide_ints)sum[r] - zero * total, quantized_wide_floats);
    }
}

#define QUANTIZED_PANEL(bits, minima)                                                              \
    static __attribute__((noinline)) void quantized_vnni_##bits##_##minima(                        \
        const quantized_rows *x, int64_t first, const quantized_panel *p, T *y, int64_t y_row)     \
    {                                                                                              \
        quantized_vnni_products(QUANTIZED_ROWS, (quantized_form){bits, true, minima}, x, first, p, \
                                y, y_row);                                                         \
    }
QUANTIZED_PANEL(8, 0)
QUANTIZED_PANEL(8, 1)
QUANTIZED_PANEL(4, 0)
QUANTIZED_PANEL(4, 1)
#undef QUANTIZED_PANEL

#endif
#endif
