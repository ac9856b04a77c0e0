/* Products of many rows of floats with a quantised matrix: 16 rows of weights are packed into a panel
 * first, so that each of the lanes of a vector has a row of its own and nothing is added across
 * lanes. The bits are those of quantized_kernel.h. On AVX2 (quantized_panel_avx2.h), and on
 * AVX512_VNNI (quantized_panel_vnni.h). */
#ifndef WEFT_OPS_KERNELS_QUANTIZED_PANEL_H
#define WEFT_OPS_KERNELS_QUANTIZED_PANEL_H

#include "quantized_kernel.h"

/* Rows of weights of a panel. */
#define QUANTIZED_COLUMNS 16

/* The fewest rows of x that pay for packing a panel, on AVX512_VNNI and on AVX2 alone. */
#define QUANTIZED_VNNI_ROWS 32
#define QUANTIZED_MIN_ROWS  16

/* Bytes of a panel: for each block the weights, in at most 16 bits, their scales and their zero
 * points or minima. */
static inline int64_t quantized_panel_bytes(int64_t k, int64_t element)
{
    return quantized_chunks(k) * QUANTIZED_LANES * QUANTIZED_COLUMNS *
           (2 * QUANTIZED_BLOCK + 2 * element);
}

#ifdef WEFT_KERNEL_ISA

/* Blocks of QUANTIZED_COLUMNS rows. */
typedef struct quantized_panel {
    int64_t blocks; /* of a row */
    T *scale;       /* [blocks, QUANTIZED_COLUMNS] */
    T *minimum;     /* likewise; or, in the same place, */
    int32_t *zero;  /* likewise */
    uint8_t *q;     /* the weights, as the functions below pack them */
} quantized_panel;

/* y[r * y_row + j] = x[r] w[j] for QUANTIZED_ROWS rows of x from `first` on. */
typedef void quantized_panel_function(const quantized_rows *x, int64_t first,
                                      const quantized_panel *p, T *y, int64_t y_row);

/* Packs a chunk of QUANTIZED_COLUMNS rows, whose zero points, one for each block of each row, are in
 * `zero`, or are NULL. */
typedef void quantized_pack_function(int bits, const uint8_t *const *rows, const int32_t *zero,
                                     uint8_t *to);

static inline quantized_panel quantized_panel_at(void *space, int64_t blocks, int64_t chunks)
{
    const int64_t n = chunks * QUANTIZED_LANES * QUANTIZED_COLUMNS;
    quantized_panel p = {.blocks = blocks, .scale = space};
    p.minimum = p.scale + n;
    p.zero = (int32_t *)(void *)p.minimum;
    p.q = (uint8_t *)(p.minimum + n);
    return p;
}

#if defined(__AVX2__)

/* 16 bytes each, in a half of the vector. */
SIMD_INLINE __m256i quantized_pair(const void *low, const void *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i_u *)low)),
                                   _mm_loadu_si128((const __m128i_u *)high), 1);
}

/* The 4 x 4 ints in each half of x, transposed. */
SIMD_INLINE void quantized_transpose_4(__m256i *x)
{
    const __m256i a = _mm256_unpacklo_epi32(x[0], x[1]), b = _mm256_unpackhi_epi32(x[0], x[1]);
    const __m256i c = _mm256_unpacklo_epi32(x[2], x[3]), d = _mm256_unpackhi_epi32(x[2], x[3]);
    x[0] = _mm256_unpacklo_epi64(a, c);
    x[1] = _mm256_unpackhi_epi64(a, c);
    x[2] = _mm256_unpacklo_epi64(b, d);
    x[3] = _mm256_unpackhi_epi64(b, d);
}

/* to[i * QUANTIZED_COLUMNS + n] = rows[n][i] for 8 numbers of 32 bits of all rows. */
SIMD_INLINE void quantized_columns(const void *const *rows, void *to)
{
    for (int n = 0; n < QUANTIZED_COLUMNS; n += 8)
        for (int i = 0; i < QUANTIZED_LANES; i += 4) {
            __m256i part[4];
            SIMD_UNROLL(4)
            for (int r = 0; r < 4; r++)
                part[r] = quantized_pair((const int32_t *)rows[n + r] + i,
                                         (const int32_t *)rows[n + r + 4] + i);
            quantized_transpose_4(part);
            SIMD_UNROLL(4)
            for (int r = 0; r < 4; r++)
                _mm256_storeu_si256(
                    (__m256i_u *)(void *)((int32_t *)to + (i + r) * QUANTIZED_COLUMNS + n),
                    part[r]);
        }
}

/* Packs the scales and minima of all chunks; those of the last one, unless it is whole, are in `last`. */
static inline void quantized_pack_minima(const quantized_matrix *m, int64_t begin, int64_t chunks,
                                         const T last[2][QUANTIZED_COLUMNS][QUANTIZED_LANES],
                                         const quantized_panel *p)
{
    const int64_t whole = m->blocks / QUANTIZED_LANES;
    for (int64_t c = 0; c < chunks; c++) {
        const void *scales[QUANTIZED_COLUMNS], *minima[QUANTIZED_COLUMNS];
        const int64_t to = c * QUANTIZED_LANES * QUANTIZED_COLUMNS;
        for (int64_t n = 0; n < QUANTIZED_COLUMNS; n++) {
            const int64_t at = (begin + n) * m->blocks + c * QUANTIZED_LANES;
            scales[n] = c < whole ? m->scale + at : last[0][n];
            minima[n] = c < whole ? m->minimum + at : last[1][n];
        }
        quantized_columns(scales, p->scale + to);
        quantized_columns(minima, p->minimum + to);
    }
}

/* Whether it can: every block has its own scale, in f32. */
static inline bool quantized_packs_minima(const quantized_matrix *m)
{
    return sizeof(T) == 4 && m->each == 1 && m->minimum;
}

#else

static inline void quantized_pack_minima(const quantized_matrix *m, int64_t begin, int64_t chunks,
                                         const T last[2][QUANTIZED_COLUMNS][QUANTIZED_LANES],
                                         const quantized_panel *p)
{
    (void)m, (void)begin, (void)chunks, (void)last, (void)p;
}

static inline bool quantized_packs_minima(const quantized_matrix *m)
{
    (void)m;
    return false;
}

#endif

/* Packs rows [begin, begin + QUANTIZED_COLUMNS) of m, whose chunks take `chunk_bytes` in a panel. */
static inline void quantized_pack(int bits, const quantized_matrix *m, int64_t begin,
                                  int64_t chunks, const quantized_panel *p,
                                  quantized_pack_function *pack, int64_t chunk_bytes)
{
    const int64_t whole = m->blocks / QUANTIZED_LANES, bytes = QUANTIZED_CHUNK * bits / 8;
    const uint8_t *rows[QUANTIZED_COLUMNS];
    uint8_t last[QUANTIZED_COLUMNS][QUANTIZED_CHUNK];
    T last_minima[2][QUANTIZED_COLUMNS][QUANTIZED_LANES];
    const bool minima = quantized_packs_minima(m);
    quantized_weight_row w;
    memset(&w, 0, sizeof w);
    for (int64_t n = 0; n < QUANTIZED_COLUMNS; n++) {
        quantized_open(bits, m->minimum, m, begin + n, &w);
        rows[n] = w.q;
        if (m->blocks % QUANTIZED_LANES) memcpy(last[n], w.last_q, sizeof last[n]);
        if (minima && m->blocks % QUANTIZED_LANES) {
            memcpy(last_minima[0][n], w.last_scale, sizeof w.last_scale);
            memcpy(last_minima[1][n], w.last_minimum, sizeof w.last_minimum);
        }
        for (int64_t b = 0; !minima && b < chunks * QUANTIZED_LANES; b++) {
            const bool end = b >= whole * QUANTIZED_LANES;
            const int64_t at = end ? b - whole * QUANTIZED_LANES : b;
            p->scale[b * QUANTIZED_COLUMNS + n] = (end ? w.last_scale : w.scale)[at];
            if (m->minimum)
                p->minimum[b * QUANTIZED_COLUMNS + n] = (end ? w.last_minimum : w.minimum)[at];
            else
                p->zero[b * QUANTIZED_COLUMNS + n] = (end ? w.last_zero : w.zero)[at];
        }
    }
    if (minima)
        quantized_pack_minima(m, begin, chunks,
                              (const T(*)[QUANTIZED_COLUMNS][QUANTIZED_LANES])last_minima, p);
    for (int64_t c = 0; c < chunks; c++) {
        for (int n = 0; c == whole && n < QUANTIZED_COLUMNS; n++) rows[n] = last[n];
        const int64_t block = c * QUANTIZED_LANES * QUANTIZED_COLUMNS;
        pack(bits, rows, m->minimum ? NULL : p->zero + block, p->q + c * chunk_bytes);
        for (int n = 0; n < QUANTIZED_COLUMNS; n++) rows[n] += bytes;
    }
}

#endif
#endif
