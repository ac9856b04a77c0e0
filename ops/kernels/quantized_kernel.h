/* Products of rows of floats with a quantised matrix, by one thread. Time O(m n k).
 *
 * Rows of x are quantised first, 32 elements (a block) at a time, to whole numbers in [-127, 127].
 * Then each block of an inner product is a sum of whole numbers, which is exact. Only the sum over
 * blocks rounds, in this order: lane l of 8 adds up the blocks l, l + 8, l + 16, ..., and lanes are
 * added in halves. So every instruction set computes the same bits, if the compiler does not
 * fuse multiplications and additions (-ffp-contract=off in ops/meson.build), and a row has the same
 * bits whatever the other rows are.
 *
 * Weights lie in rows of k elements, in 4 bits the even one of a pair in the low half of its byte.
 * The sums read a chunk of 8 blocks of one row at a time, once for up to eight rows of x. With many
 * rows of x and AVX512_VNNI, 16 rows of weights are packed into a panel first, so that each of the
 * lanes of a vector has a row of its own and nothing is added across lanes. */
#ifndef WEFT_OPS_KERNELS_QUANTIZED_KERNEL_H
#define WEFT_OPS_KERNELS_QUANTIZED_KERNEL_H

#include "simd.h"

#define QUANTIZED_BLOCK 32                       /* elements */
#define QUANTIZED_LANES 8                        /* blocks of a chunk */
#define QUANTIZED_CHUNK (32 * (QUANTIZED_LANES)) /* elements */
#define QUANTIZED_ROWS  8                        /* the most rows of x at once */

/* Rows of weights of a panel, and the fewest rows of x that pay for packing it. */
#define QUANTIZED_COLUMNS  16
#define QUANTIZED_MIN_ROWS 32

/* Bytes of weights that are prefetched before their use: rows follow each other. */
#define QUANTIZED_AHEAD 4096

/* The largest number that a row of x is quantised to. */
#define QUANTIZED_MAX 127

static inline int64_t quantized_chunks(int64_t k)
{
    return ceil_div(k, QUANTIZED_CHUNK);
}

/* Bytes of the scales and zero points of a row of weights, one for each block. */
static inline int64_t quantized_row_bytes(int64_t k, int64_t element)
{
    return ceil_div(quantized_chunks(k) * QUANTIZED_LANES * (element + 1), 64) * 64;
}

/* Bytes of a panel: for each block the weights, their scales and their zero points. */
static inline int64_t quantized_panel_bytes(int64_t k, int64_t element)
{
    return quantized_chunks(k) * QUANTIZED_LANES * QUANTIZED_COLUMNS *
           (QUANTIZED_BLOCK + element + (int64_t)sizeof(int32_t));
}

#ifdef WEFT_KERNEL_ISA

#if defined(__AVX2__)
#include <immintrin.h>
#endif

typedef int32_t quantized_ints
    __attribute__((vector_size(4 * QUANTIZED_LANES), aligned(4), may_alias));
typedef T quantized_floats
    __attribute__((vector_size(sizeof(T) * QUANTIZED_LANES), aligned(sizeof(T)), may_alias));

/* ---- Rows of x ---- */

/* Rows of x, quantised and padded with zeros to whole chunks. In 4 bits, four blocks have their
 * even elements first and then their odd ones, as masks and shifts unpack the weights. */
typedef struct quantized_rows {
    int8_t *q;    /* [rows, chunks * QUANTIZED_CHUNK] */
    T *scale;     /* [rows, chunks * QUANTIZED_LANES]: x = scale q */
    int32_t *sum; /* likewise: of q */
    int64_t chunks;
} quantized_rows;

static inline void quantized_place(const int8_t *block, int64_t b, int bits, int8_t *q)
{
    if (bits == 8) {
        memcpy(q + b * QUANTIZED_BLOCK, block, QUANTIZED_BLOCK);
        return;
    }
    int8_t *even = q + b / 4 * 4 * QUANTIZED_BLOCK + b % 4 * QUANTIZED_BLOCK / 2, *odd = even + 64;
    for (int i = 0; i < QUANTIZED_BLOCK / 2; i++) {
        even[i] = block[2 * i];
        odd[i] = block[2 * i + 1];
    }
}

/* Block b of a row. One with an element that is not finite has the scale NaN, so the whole row of
 * the product is NaN. */
static inline void quantized_block(const T *x, int64_t b, int bits, int8_t *q, T *scale,
                                   int32_t *sum)
{
    /* Adding and subtracting it rounds a small number to the nearest whole one, of two the even. */
    const T rounder = sizeof(T) == 4 ? (T)0x1.8p23 : (T)0x1.8p52;
    int8_t block[QUANTIZED_BLOCK];
    int32_t whole[QUANTIZED_BLOCK];
    T max = 0, bad = 0;
    int32_t total = 0;
#pragma omp simd reduction(max : max) reduction(+ : bad)
    for (int i = 0; i < QUANTIZED_BLOCK; i++) {
        const T size = x[i] < 0 ? -x[i] : x[i];
        max = size > max ? size : max;
        bad += x[i] * 0;
    }
    const T to_whole = QUANTIZED_MAX / max;
    const bool zero = bad != 0 || !(to_whole <= (sizeof(T) == 4 ? (T)0x1p126 : (T)0x1p1022));
    const T by = zero ? 0 : to_whole;
    for (int i = 0; i < QUANTIZED_BLOCK; i++)
        whole[i] = (int32_t)(((zero ? 0 : x[i]) * by + rounder) - rounder);
    for (int i = 0; i < QUANTIZED_BLOCK; i++) {
        block[i] = (int8_t)whole[i];
        total += whole[i];
    }
    quantized_place(block, b, bits, q);
    scale[b] = bad != 0 ? bad : zero ? 0 : max / QUANTIZED_MAX;
    sum[b] = total;
}

/* The same of a block of whole numbers in [-128, 127], which stay as they are. Others are rounded
 * to the nearest of these. */
static inline void quantized_whole(const T *x, int64_t b, int bits, int8_t *q, T *scale,
                                   int32_t *sum)
{
    const T rounder = sizeof(T) == 4 ? (T)0x1.8p23 : (T)0x1.8p52;
    int8_t block[QUANTIZED_BLOCK];
    int32_t whole[QUANTIZED_BLOCK];
    int32_t total = 0;
    for (int i = 0; i < QUANTIZED_BLOCK; i++) {
        const T above = x[i] > -128 ? x[i] : -128, bounded = above < 127 ? above : 127;
        whole[i] = (int32_t)((bounded + rounder) - rounder);
    }
    for (int i = 0; i < QUANTIZED_BLOCK; i++) {
        block[i] = (int8_t)whole[i];
        total += whole[i];
    }
    quantized_place(block, b, bits, q);
    scale[b] = 1;
    sum[b] = total;
}

/* Quantises row `row` of r from x [k]. */
static inline void quantized_row(const T *x, int64_t k, int bits, bool whole,
                                 const quantized_rows *r, int64_t row)
{
    const int64_t blocks = r->chunks * QUANTIZED_LANES, used = k / QUANTIZED_BLOCK;
    int8_t *q = r->q + row * blocks * QUANTIZED_BLOCK;
    T *scale = r->scale + row * blocks;
    int32_t *sum = r->sum + row * blocks;
    memset(q, 0, (size_t)(blocks * QUANTIZED_BLOCK));
    for (int64_t b = 0; b < used; b++)
        (whole ? quantized_whole : quantized_block)(x + b * QUANTIZED_BLOCK, b, bits, q, scale,
                                                    sum);
    for (int64_t b = used; b < blocks; b++) {
        scale[b] = 0;
        sum[b] = 0;
    }
}

/* ---- Sums of a chunk ----
 *
 * quantized_load reads a chunk of a row of weights; quantized_dots sets dot[b] to the sum of block
 * b with a row of x. `bits` and `vnni` are constants at every call. */

#if defined(__AVX512F__)

/* 8 bits: a vector for each two blocks. 4 bits: the even elements of four blocks in each of the
 * first two vectors, the odd ones in the others. */
typedef struct quantized_weights {
    const uint8_t *at;
    __m512i part[4];
} quantized_weights;

SIMD_INLINE void quantized_load(const int bits, const bool vnni, const uint8_t *w,
                                quantized_weights *out)
{
    out->at = w;
    if (!vnni) return;
    SIMD_UNROLL(4)
    for (int i = 0; i < 4; i++) {
        if (bits == 8) {
            out->part[i] = _mm512_loadu_si512(w + 64 * i);
        } else {
            const __m512i pairs = _mm512_loadu_si512(w + i % 2 * 64), low = _mm512_set1_epi8(15);
            out->part[i] = _mm512_and_si512(i < 2 ? pairs : _mm512_srli_epi16(pairs, 4), low);
        }
    }
}

/* sum += four products each, of unsigned and signed bytes. Written in assembly because the kernels'
 * own instruction set, v4, does not have it. */
SIMD_INLINE __m512i quantized_vnni(__m512i sum, __m512i w, const int8_t *x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const __m512i_u *)(const void *)x));
    return sum;
}

/* Sums of blocks 4 j .. 4 j + 3, of a quarter of the vector each. */
SIMD_INLINE __m512i quantized_four(const int bits, const quantized_weights *w, const int8_t *x,
                                   const int j)
{
    const __m512i zero = _mm512_setzero_si512();
    const int8_t *at = x + 4 * QUANTIZED_BLOCK * j;
    if (bits == 4)
        return quantized_vnni(quantized_vnni(zero, w->part[j], at), w->part[j + 2], at + 64);
    const __m512i a = quantized_vnni(zero, w->part[2 * j], at);
    const __m512i b = quantized_vnni(zero, w->part[2 * j + 1], at + 64);
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

SIMD_INLINE void quantized_dots_vnni(const int bits, const quantized_weights *w, const int8_t *x,
                                     quantized_ints *dot)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i a = quantized_four(bits, w, x, 0), b = quantized_four(bits, w, x, 1);
    const __m512i pairs =
        _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i all = _mm512_add_epi32(pairs, _mm512_shuffle_epi32(pairs, _MM_PERM_BADC));
    *dot = (quantized_ints)_mm512_castsi512_si256(_mm512_permutexvar_epi32(order, all));
}

#else

typedef struct quantized_weights {
    const uint8_t *at;
} quantized_weights;

SIMD_INLINE void quantized_load(const int bits, const bool vnni, const uint8_t *w,
                                quantized_weights *out)
{
    (void)bits;
    (void)vnni;
    out->at = w;
}

#endif

#if defined(__AVX2__)

/* The sums of a block of 8 bits. Bytes are widened: the product of pairs of bytes would saturate.
 */
SIMD_INLINE __m256i quantized_bytes(const uint8_t *w, const int8_t *x)
{
    __m256i sum = _mm256_setzero_si256();
    SIMD_UNROLL(2)
    for (int i = 0; i < QUANTIZED_BLOCK; i += 16) {
        const __m256i a = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i_u *)(w + i)));
        const __m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i_u *)(x + i)));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    }
    return sum;
}

/* The sums of blocks b and b + 1 of 4 bits, in a half of the vector each. A sum of four products is
 * at most 4 x 15 x 127, so nothing saturates. */
SIMD_INLINE __m256i quantized_nibbles(const uint8_t *w, const int8_t *x, const int b)
{
    const __m256i pairs = _mm256_loadu_si256((const __m256i_u *)(w + 16 * b));
    const __m256i low = _mm256_set1_epi8(15);
    const int8_t *even = x + 4 * QUANTIZED_BLOCK * (b / 4) + 16 * (b % 4);
    const __m256i x0 = _mm256_loadu_si256((const __m256i_u *)even);
    const __m256i x1 = _mm256_loadu_si256((const __m256i_u *)(even + 64));
    const __m256i sums = _mm256_add_epi16(
        _mm256_maddubs_epi16(_mm256_and_si256(pairs, low), x0),
        _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(pairs, 4), low), x1));
    return _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
}

SIMD_INLINE __m256i quantized_add_four(const __m256i *part)
{
    return _mm256_hadd_epi32(_mm256_hadd_epi32(part[0], part[1]),
                             _mm256_hadd_epi32(part[2], part[3]));
}

SIMD_INLINE __m256i quantized_eight(const int bits, const uint8_t *w, const int8_t *x)
{
    __m256i part[8];
    if (bits == 4) {
        SIMD_UNROLL(4)
        for (int i = 0; i < 4; i++) part[i] = quantized_nibbles(w, x, 2 * i);
        return _mm256_permutevar8x32_epi32(quantized_add_four(part),
                                           _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
    SIMD_UNROLL(8)
    for (int i = 0; i < 8; i++)
        part[i] = quantized_bytes(w + QUANTIZED_BLOCK * i, x + QUANTIZED_BLOCK * i);
    const __m256i low = quantized_add_four(part), high = quantized_add_four(part + 4);
    return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                            _mm256_permute2x128_si256(low, high, 0x31));
}

SIMD_INLINE void quantized_dots(const int bits, const bool vnni, const quantized_weights *w,
                                const int8_t *x, quantized_ints *dot)
{
#if defined(__AVX512F__)
    if (vnni) {
        quantized_dots_vnni(bits, w, x, dot);
        return;
    }
#else
    (void)vnni;
#endif
    *dot = (quantized_ints)quantized_eight(bits, w->at, x);
}

#else

SIMD_INLINE void quantized_dots(const int bits, const bool vnni, const quantized_weights *given,
                                const int8_t *x, quantized_ints *dot)
{
    (void)vnni;
    for (int b = 0; b < QUANTIZED_LANES; b++) {
        const uint8_t *w = given->at + b * QUANTIZED_BLOCK * bits / 8;
        const int8_t *even = x + b * QUANTIZED_BLOCK;
        int32_t sum = 0;
        if (bits == 8) {
#pragma omp simd reduction(+ : sum)
            for (int i = 0; i < QUANTIZED_BLOCK; i++) sum += w[i] * even[i];
        } else {
            even = x + 4 * QUANTIZED_BLOCK * (b / 4) + 16 * (b % 4);
#pragma omp simd reduction(+ : sum)
            for (int i = 0; i < QUANTIZED_BLOCK / 2; i++)
                sum += (w[i] & 15) * even[i] + (w[i] >> 4) * even[i + 64];
        }
        (*dot)[b] = sum;
    }
}

#endif

/* ---- Rows of weights ---- */

typedef uint8_t quantized_zeros
    __attribute__((vector_size(QUANTIZED_LANES), aligned(1), may_alias));

typedef struct quantized_matrix {
    const uint8_t *q;     /* [n, blocks * QUANTIZED_BLOCK * bits / 8] */
    const T *scale;       /* [n, blocks / each] */
    const uint8_t *zero;  /* likewise */
    int64_t blocks, each; /* of a row; of a group */
    /* Room for a row's scales and zero points, one for each block, with those of one chunk more. */
    T *scales;
    uint8_t *zeros;
} quantized_matrix;

/* A row of weights, with a scale and a zero point for each block. The last chunk, unless it is
 * whole, lies elsewhere and is padded with zeros. */
typedef struct quantized_weight_row {
    const uint8_t *q, *zero;
    const T *scale;
    uint8_t last_q[QUANTIZED_CHUNK], last_zero[QUANTIZED_LANES];
    T last_scale[QUANTIZED_LANES];
} quantized_weight_row;

SIMD_INLINE void quantized_open(const int bits, const quantized_matrix *m, int64_t row,
                                quantized_weight_row *w)
{
    const int64_t groups = m->blocks / m->each, rest = m->blocks % QUANTIZED_LANES;
    const int64_t whole = m->blocks - rest, bytes = QUANTIZED_BLOCK * bits / 8;
    w->q = m->q + row * m->blocks * bytes;
    w->scale = m->scale + row * groups;
    w->zero = m->zero + row * groups;
    if (m->each > 1) {
        for (int64_t g = 0, b = 0; g < groups; g++)
            for (int64_t i = 0; i < m->each; i++, b++) {
                m->scales[b] = w->scale[g];
                m->zeros[b] = w->zero[g];
            }
        w->scale = m->scales;
        w->zero = m->zeros;
    }
    if (!rest) return;
    memset(w->last_q, 0, sizeof w->last_q);
    memcpy(w->last_q, w->q + whole * bytes, (size_t)(rest * bytes));
    for (int64_t i = 0; i < QUANTIZED_LANES; i++) {
        w->last_scale[i] = i < rest ? w->scale[whole + i] : 0;
        w->last_zero[i] = i < rest ? w->zero[whole + i] : 0;
    }
}

/* sum[r] += the products of a chunk with rows of x from `first` on. */
SIMD_INLINE void quantized_chunk(const int rows, const int bits, const bool vnni,
                                 const quantized_rows *x, int64_t first, int64_t chunk,
                                 const uint8_t *w, const T *scales, const uint8_t *zeros,
                                 quantized_floats *sum)
{
    const quantized_floats scale = *(const quantized_floats *)scales;
    const quantized_ints zero =
        __builtin_convertvector(*(const quantized_zeros *)zeros, quantized_ints);
    quantized_weights part;
    quantized_load(bits, vnni, w, &part);
    SIMD_UNROLL(QUANTIZED_ROWS)
    for (int r = 0; r < rows; r++) {
        const int64_t at = (first + r) * x->chunks + chunk;
        quantized_ints dot;
        quantized_dots(bits, vnni, &part, x->q + at * QUANTIZED_CHUNK, &dot);
        dot -= zero * *(const quantized_ints *)(x->sum + at * QUANTIZED_LANES);
        sum[r] += *(const quantized_floats *)(x->scale + at * QUANTIZED_LANES) * scale *
                  __builtin_convertvector(dot, quantized_floats);
    }
}

/* y[r * y_row + j] = x[r] w[j] for rows of x from `first` on and the rows of `m` in
 * [begin, begin + count). */
SIMD_INLINE void quantized_products(const int rows, const int bits, const bool vnni,
                                    const quantized_rows *x, int64_t first,
                                    const quantized_matrix *m, int64_t begin, int64_t count, T *y,
                                    int64_t y_row)
{
    const int64_t whole = m->blocks / QUANTIZED_LANES, bytes = QUANTIZED_CHUNK * bits / 8;
    for (int64_t j = 0; j < count; j++) {
        quantized_weight_row w;
        quantized_floats sum[QUANTIZED_ROWS];
        quantized_open(bits, m, begin + j, &w);
        SIMD_UNROLL(QUANTIZED_ROWS)
        for (int r = 0; r < rows; r++) sum[r] = (quantized_floats){0};
        for (int64_t c = 0; c < x->chunks; c++) {
            const bool last = c == whole;
            const uint8_t *q = last ? w.last_q : w.q + c * bytes;
            for (int i = 0; i < bytes; i += 64)
                __builtin_prefetch(w.q + c * bytes + i + QUANTIZED_AHEAD);
            quantized_chunk(rows, bits, vnni, x, first, c, q,
                            last ? w.last_scale : w.scale + c * QUANTIZED_LANES,
                            last ? w.last_zero : w.zero + c * QUANTIZED_LANES, sum);
        }
        SIMD_UNROLL(QUANTIZED_ROWS)
        for (int r = 0; r < rows; r++) {
            const quantized_floats l = sum[r];
            y[r * y_row + j] = ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
        }
    }
}

typedef void quantized_function(const quantized_rows *x, int64_t first, const quantized_matrix *m,
                                int64_t begin, int64_t count, T *y, int64_t y_row);

#define QUANTIZED_EACH_ROWS(X, bits, vnni)                                                         \
    X(1, bits, vnni) X(2, bits, vnni) X(4, bits, vnni) X(8, bits, vnni)
#if defined(__AVX512F__)
#define QUANTIZED_EACH(X)                                                                          \
    QUANTIZED_EACH_ROWS(X, 8, 0)                                                                   \
    QUANTIZED_EACH_ROWS(X, 4, 0) QUANTIZED_EACH_ROWS(X, 8, 1) QUANTIZED_EACH_ROWS(X, 4, 1)
#else
#define QUANTIZED_EACH(X) QUANTIZED_EACH_ROWS(X, 8, 0) QUANTIZED_EACH_ROWS(X, 4, 0)
#endif

#define QUANTIZED_DEFINE(rows, bits, vnni)                                                         \
    static __attribute__((noinline)) void quantized_##rows##_##bits##_##vnni(                      \
        const quantized_rows *x, int64_t first, const quantized_matrix *m, int64_t begin,          \
        int64_t count, T *y, int64_t y_row)                                                        \
    {                                                                                              \
        quantized_products(rows, bits, vnni, x, first, m, begin, count, y, y_row);                 \
    }
QUANTIZED_EACH(QUANTIZED_DEFINE)
#undef QUANTIZED_DEFINE

/* The function for `rows` rows, 1, 2, 4 or 8. `vnni`: the processor has AVX512_VNNI. */
static inline quantized_function *quantized_function_of(int rows, int bits, bool vnni)
{
    static quantized_function *const functions[2][2][QUANTIZED_ROWS + 1] = {
#define QUANTIZED_ROW(rows, bits, vnni)                                                            \
    [vnni][bits == 8][rows] = quantized_##rows##_##bits##_##vnni,
        QUANTIZED_EACH(QUANTIZED_ROW)
#undef QUANTIZED_ROW
    };
    return functions[vnni][bits == 8][rows];
}

/* ---- Panels of weights ---- */

#if defined(__AVX512F__)

typedef int32_t quantized_wide_ints
    __attribute__((vector_size(4 * QUANTIZED_COLUMNS), aligned(4), may_alias));
typedef T quantized_wide_floats
    __attribute__((vector_size(sizeof(T) * QUANTIZED_COLUMNS), aligned(sizeof(T)), may_alias));

/* Blocks of QUANTIZED_COLUMNS rows. Of a block, vector v has four elements of each row: those that
 * four bytes of x, from 4 v on, are multiplied with. */
typedef struct quantized_panel {
    T *scale;      /* [blocks, QUANTIZED_COLUMNS] */
    int32_t *zero; /* likewise */
    uint8_t *q;    /* [blocks, 8, QUANTIZED_COLUMNS, 4] */
} quantized_panel;

/* y[r * y_row + j] = x[r] w[j] for QUANTIZED_ROWS rows of x from `first` on. */
typedef void quantized_panel_function(const quantized_rows *x, int64_t first,
                                      const quantized_panel *p, T *y, int64_t y_row);

static inline quantized_panel quantized_panel_at(void *space, int64_t chunks)
{
    const int64_t n = chunks * QUANTIZED_LANES * QUANTIZED_COLUMNS;
    quantized_panel p = {.scale = space};
    p.zero = (int32_t *)(void *)(p.scale + n);
    p.q = (uint8_t *)(p.zero + n);
    return p;
}

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

/* Packs a chunk of QUANTIZED_COLUMNS rows. */
SIMD_INLINE void quantized_pack_chunk(const int bits, const uint8_t *const *rows, uint8_t *to)
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

/* Packs rows [begin, begin + QUANTIZED_COLUMNS) of m. */
static inline void quantized_pack(int bits, const quantized_matrix *m, int64_t begin,
                                  int64_t chunks, const quantized_panel *p)
{
    const int64_t whole = m->blocks / QUANTIZED_LANES, bytes = QUANTIZED_CHUNK * bits / 8;
    const uint8_t *rows[QUANTIZED_COLUMNS];
    uint8_t last[QUANTIZED_COLUMNS][QUANTIZED_CHUNK];
    for (int64_t n = 0; n < QUANTIZED_COLUMNS; n++) {
        quantized_weight_row w;
        quantized_open(bits, m, begin + n, &w);
        rows[n] = w.q;
        if (m->blocks % QUANTIZED_LANES) memcpy(last[n], w.last_q, sizeof last[n]);
        for (int64_t b = 0; b < chunks * QUANTIZED_LANES; b++) {
            const bool end = b >= whole * QUANTIZED_LANES;
            const int64_t at = end ? b - whole * QUANTIZED_LANES : b;
            p->scale[b * QUANTIZED_COLUMNS + n] = (end ? w.last_scale : w.scale)[at];
            p->zero[b * QUANTIZED_COLUMNS + n] = (end ? w.last_zero : w.zero)[at];
        }
    }
    for (int64_t c = 0; c < chunks; c++) {
        uint8_t *to = p->q + c * QUANTIZED_CHUNK * QUANTIZED_COLUMNS;
        for (int n = 0; c == whole && n < QUANTIZED_COLUMNS; n++) rows[n] = last[n];
        if (bits == 8)
            quantized_pack_chunk(8, rows, to);
        else
            quantized_pack_chunk(4, rows, to);
        for (int n = 0; n < QUANTIZED_COLUMNS; n++) rows[n] += bytes;
    }
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
SIMD_INLINE void quantized_panel_products(const int rows, const int bits, const quantized_rows *x,
                                          int64_t first, const quantized_panel *p, T *y,
                                          int64_t y_row)
{
    quantized_wide_floats lane[QUANTIZED_LANES][QUANTIZED_ROWS];
    for (int l = 0; l < QUANTIZED_LANES; l++) {
        const int from = bits == 8 ? l * QUANTIZED_BLOCK : l / 4 * 4 * QUANTIZED_BLOCK + l % 4 * 16;
        quantized_wide_floats sum[QUANTIZED_ROWS];
        SIMD_UNROLL(QUANTIZED_ROWS)
        for (int r = 0; r < rows; r++) sum[r] = (quantized_wide_floats){0};
        for (int64_t c = 0; c < x->chunks; c++) {
            const int64_t b = c * QUANTIZED_LANES + l;
            const uint8_t *w = p->q + b * QUANTIZED_BLOCK * QUANTIZED_COLUMNS;
            const quantized_wide_floats scale =
                *(const quantized_wide_floats *)(p->scale + b * QUANTIZED_COLUMNS);
            const quantized_wide_ints zero =
                *(const quantized_wide_ints *)(p->zero + b * QUANTIZED_COLUMNS);
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
                                              q + (bits == 4 && v >= 4 ? 48 + 4 * v : 4 * v));
                const quantized_wide_ints exact =
                    (quantized_wide_ints)dot - zero * x->sum[at * QUANTIZED_LANES + l];
                sum[r] += x->scale[at * QUANTIZED_LANES + l] * scale *
                          __builtin_convertvector(exact, quantized_wide_floats);
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
static __attribute__((noinline)) void quantized_panel_whole(const quantized_rows *x, int64_t first,
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

static __attribute__((noinline)) void quantized_panel_8(const quantized_rows *x, int64_t first,
                                                        const quantized_panel *p, T *y,
                                                        int64_t y_row)
{
    quantized_panel_products(QUANTIZED_ROWS, 8, x, first, p, y, y_row);
}

static __attribute__((noinline)) void quantized_panel_4(const quantized_rows *x, int64_t first,
                                                        const quantized_panel *p, T *y,
                                                        int64_t y_row)
{
    quantized_panel_products(QUANTIZED_ROWS, 4, x, first, p, y, y_row);
}

#endif

#endif
#endif
