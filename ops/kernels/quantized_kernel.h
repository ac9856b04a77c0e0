/* Products of rows of floats with a quantised matrix, by one thread. Time O(m n k).
 *
 * Rows of x are quantised first, 32 elements (a block) at a time, to whole numbers in [-127, 127].
 * Then each block of an inner product is a sum of whole numbers, which is exact. Only the sum over
 * blocks rounds, in this order: lane l of 8 adds up the blocks l, l + 8, l + 16, ..., and lanes are
 * added in halves. So every instruction set computes the same bits, since the compiler does not
 * fuse multiplications and additions (-ffp-contract=off in meson.build), and a row has the same
 * bits whatever the other rows are.
 *
 * Weights lie in rows of k elements, in 4 bits the even one of a pair in the low half of its byte.
 * The sums read a chunk of 8 blocks of one row at a time, once for up to eight rows of x. For many
 * rows of x there are panels (quantized_panel.h). */
#ifndef WEFT_OPS_KERNELS_QUANTIZED_KERNEL_H
#define WEFT_OPS_KERNELS_QUANTIZED_KERNEL_H

#include "simd.h"

#define QUANTIZED_BLOCK 32                       /* elements */
#define QUANTIZED_LANES 8                        /* blocks of a chunk */
#define QUANTIZED_CHUNK (32 * (QUANTIZED_LANES)) /* elements */
#define QUANTIZED_ROWS  8                        /* the most rows of x at once */

/* Bytes of weights that are prefetched before their use: rows follow each other. */
#define QUANTIZED_AHEAD 4096

/* The largest number that a row of x is quantised to. */
#define QUANTIZED_MAX 127

static inline int64_t quantized_chunks(int64_t k)
{
    return ceil_div(k, QUANTIZED_CHUNK);
}

/* Bytes of the scales and zero points, or minima, of a row of weights, one for each block. */
static inline int64_t quantized_row_bytes(int64_t k, int64_t element, bool minima)
{
    const int64_t each = element + (minima ? element : 1);
    return ceil_div(quantized_chunks(k) * QUANTIZED_LANES * each, 64) * 64;
}

/* Bytes of as many of m rows of x as are multiplied at once, in 16 bits. */
static inline int64_t quantized_words_bytes(int64_t m, int64_t k, int bits)
{
    const int64_t rows = m < QUANTIZED_ROWS ? m : QUANTIZED_ROWS;
    return bits == 8 ? rows * quantized_chunks(k) * QUANTIZED_CHUNK * (int64_t)sizeof(int16_t) : 0;
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
    /* Adding and subtracting it rounds a small number to the nearest integer, ties to even. */
    const T rounder = sizeof(T) == 4 ? (T)0x1.8p23 : (T)0x1.8p52;
    int8_t block[QUANTIZED_BLOCK];
    int32_t whole[QUANTIZED_BLOCK];
    T max = 0, bad = 0;
    int32_t total = 0;
#pragma omp simd reduction(max : max) reduction(+ : bad)
    for (int i = 0; i < QUANTIZED_BLOCK; i++) {
        const T size = x[i] <= 0 ? 0 - x[i] : x[i]; /* of -0: 0, since maxima of 0 and -0 differ */
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
 * b with a row of x, or to 0 from `blocks` on. `bits` and `vnni` are constants at every call. */

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

/* Whether rows of x are multiplied in 16 bits, as quantized_widen leaves them: with weights of 8
 * bits, where the products of pairs of bytes would saturate. */
#define QUANTIZED_WIDE(bits, vnni) ((bits) == 8 && !(vnni))

/* Widens `n` numbers of x, whole blocks: the even ones of a block first, then the odd ones, as masks
 * and shifts unpack the weights. */
static inline void quantized_widen(const int8_t *q, int64_t n, int16_t *to)
{
    for (int64_t i = 0; i < n; i += QUANTIZED_BLOCK) {
        const __m256i pairs = _mm256_loadu_si256((const __m256i_u *)(const void *)(q + i));
        _mm256_storeu_si256((__m256i_u *)(void *)(to + i),
                            _mm256_srai_epi16(_mm256_slli_epi16(pairs, 8), 8));
        _mm256_storeu_si256((__m256i_u *)(void *)(to + i + 16), _mm256_srai_epi16(pairs, 8));
    }
}

/* Sums of a block of 8 bits, in 32 bits. */
SIMD_INLINE __m256i quantized_bytes(const uint8_t *w, const int16_t *x)
{
    const __m256i pairs = _mm256_loadu_si256((const __m256i_u *)(const void *)w);
    const __m256i even = _mm256_loadu_si256((const __m256i_u *)(const void *)x);
    const __m256i odd = _mm256_loadu_si256((const __m256i_u *)(const void *)(x + 16));
    return _mm256_add_epi32(
        _mm256_madd_epi16(_mm256_and_si256(pairs, _mm256_set1_epi16(255)), even),
        _mm256_madd_epi16(_mm256_srli_epi16(pairs, 8), odd));
}

/* Sums of blocks b and b + 1 of 4 bits, in 16 bits, in a half of the vector each. Each is at most
 * 4 x 15 x 128, and the sum of four of them is below 2^15. */
SIMD_INLINE __m256i quantized_nibbles(const uint8_t *w, const int8_t *x, const int b)
{
    const __m256i pairs = _mm256_loadu_si256((const __m256i_u *)(w + 16 * b));
    const __m256i low = _mm256_set1_epi8(15);
    const int8_t *even = x + 4 * QUANTIZED_BLOCK * (b / 4) + 16 * (b % 4);
    const __m256i x0 = _mm256_loadu_si256((const __m256i_u *)even);
    const __m256i x1 = _mm256_loadu_si256((const __m256i_u *)(even + 64));
    return _mm256_add_epi16(
        _mm256_maddubs_epi16(_mm256_and_si256(pairs, low), x0),
        _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(pairs, 4), low), x1));
}

/* Adds the halves of each half of a and b: those of a and then those of b in each half, which is
 * numbers of `size` bits. */
#define QUANTIZED_HALVE(a, b, size)                                                                \
    _mm256_add_epi##size(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b))

/* Joins the results of two QUANTIZED_HALVE: 32 bits for each of the four vectors in each half. */
#define QUANTIZED_QUARTER(a, b, size)                                                              \
    _mm256_add_epi##size(quantized_shuffle(a, b, 0x88), quantized_shuffle(a, b, 0xdd))
#define quantized_shuffle(a, b, which)                                                             \
    _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), which))

/* part[0 .. 3] added up, in 4 lanes for each half of a vector. */
SIMD_INLINE __m128i quantized_add_four(const __m256i *part)
{
    const __m256i a = QUANTIZED_HALVE(part[0], part[1], 32);
    const __m256i b = QUANTIZED_HALVE(part[2], part[3], 32);
    const __m256i sums = QUANTIZED_QUARTER(a, b, 32);
    return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

/* The sums of the first `blocks` blocks of a chunk; those of the others are zeros. */
SIMD_INLINE __m256i quantized_eight(const int bits, const uint8_t *w, const void *x, int blocks)
{
    __m256i part[8];
    if (bits == 8) {
        SIMD_UNROLL(8)
        for (int i = 0; i < 8; i++)
            part[i] = i < blocks ? quantized_bytes(w + QUANTIZED_BLOCK * i,
                                                   (const int16_t *)x + QUANTIZED_BLOCK * i)
                                 : _mm256_setzero_si256();
        return _mm256_set_m128i(quantized_add_four(part + 4), quantized_add_four(part));
    }
    SIMD_UNROLL(4)
    for (int i = 0; i < 4; i++)
        part[i] = 2 * i < blocks ? quantized_nibbles(w, x, 2 * i) : _mm256_setzero_si256();
    const __m256i a = QUANTIZED_HALVE(part[0], part[1], 16);
    const __m256i b = QUANTIZED_HALVE(part[2], part[3], 16);
    const __m256i sums = _mm256_madd_epi16(QUANTIZED_QUARTER(a, b, 16), _mm256_set1_epi16(1));
    return _mm256_permutevar8x32_epi32(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

SIMD_INLINE void quantized_dots(const int bits, const bool vnni, const quantized_weights *w,
                                const void *x, int blocks, quantized_ints *dot)
{
#if defined(__AVX512F__)
    if (vnni) {
        quantized_dots_vnni(bits, w, x, dot);
        return;
    }
#else
    (void)vnni;
#endif
    *dot = (quantized_ints)quantized_eight(bits, w->at, x, blocks);
}

#else

#define QUANTIZED_WIDE(bits, vnni) false

static inline void quantized_widen(const int8_t *q, int64_t n, int16_t *to)
{
    (void)q, (void)n, (void)to;
}

SIMD_INLINE void quantized_dots(const int bits, const bool vnni, const quantized_weights *given,
                                const void *x, int blocks, quantized_ints *dot)
{
    (void)vnni;
    *dot = (quantized_ints){0};
    for (int b = 0; b < blocks; b++) {
        const uint8_t *w = given->at + b * QUANTIZED_BLOCK * bits / 8;
        const int8_t *even = (const int8_t *)x + b * QUANTIZED_BLOCK;
        int32_t sum = 0;
        if (bits == 8) {
#pragma omp simd reduction(+ : sum)
            for (int i = 0; i < QUANTIZED_BLOCK; i++) sum += w[i] * even[i];
        } else {
            even = (const int8_t *)x + 4 * QUANTIZED_BLOCK * (b / 4) + 16 * (b % 4);
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
    const uint8_t *zero;  /* likewise; NULL if there are minima */
    const T *minimum;     /* likewise; NULL if there are zero points */
    int64_t blocks, each; /* of a row; of a group */
    /* Room for a row's scales and zero points or minima, one for each block, with those of one
     * chunk more. */
    T *scales, *minima;
    uint8_t *zeros;
    int16_t *words; /* room for QUANTIZED_ROWS rows of x in 16 bits */
} quantized_matrix;

/* A row of weights, with a scale and a zero point or minimum for each block. The last chunk, unless it is
 * whole, lies elsewhere and is padded with zeros. */
typedef struct quantized_weight_row {
    const uint8_t *q, *zero;
    const T *scale, *minimum;
    uint8_t last_q[QUANTIZED_CHUNK], last_zero[QUANTIZED_LANES];
    T last_scale[QUANTIZED_LANES], last_minimum[QUANTIZED_LANES];
} quantized_weight_row;

/* Fills in row `row` of m, in a record of zeros or of another row of m. */
SIMD_INLINE void quantized_open(const int bits, const bool minima, const quantized_matrix *m,
                                int64_t row, quantized_weight_row *w)
{
    const int64_t groups = m->blocks / m->each, rest = m->blocks % QUANTIZED_LANES;
    const int64_t whole = m->blocks - rest, bytes = QUANTIZED_BLOCK * bits / 8;
    w->q = m->q + row * m->blocks * bytes;
    w->scale = m->scale + row * groups;
    if (minima)
        w->minimum = m->minimum + row * groups;
    else
        w->zero = m->zero + row * groups;
    if (m->each > 1) {
        for (int64_t g = 0, b = 0; g < groups; g++)
            for (int64_t i = 0; i < m->each; i++, b++) {
                m->scales[b] = w->scale[g];
                if (minima)
                    m->minima[b] = w->minimum[g];
                else
                    m->zeros[b] = w->zero[g];
            }
        w->scale = m->scales;
        w->minimum = m->minima;
        w->zero = m->zeros;
    }
    for (int64_t i = 0; i < rest; i++) {
        memcpy(w->last_q + i * bytes, w->q + (whole + i) * bytes, (size_t)bytes);
        w->last_scale[i] = w->scale[whole + i];
        if (minima)
            w->last_minimum[i] = w->minimum[whole + i];
        else
            w->last_zero[i] = w->zero[whole + i];
    }
}

/* How weights are stored, and whether the processor has AVX512_VNNI: constants at every call. */
typedef struct quantized_form {
    int bits;
    bool vnni, minima;
} quantized_form;

/* A chunk of a row of weights, or its first blocks, padded with zeros. */
typedef struct quantized_part {
    const uint8_t *q;
    const T *scale, *minimum;
    const uint8_t *zero;
    int blocks;
} quantized_part;

/* sum[r] += the products of chunk c of a row of weights with those of rows of x. */
SIMD_INLINE void quantized_chunk(const int rows, const quantized_form form, const quantized_rows *x,
                                 int64_t c, quantized_part w, quantized_floats *sum)
{
    const int64_t each = QUANTIZED_CHUNK * (QUANTIZED_WIDE(form.bits, form.vnni) ? 2 : 1);
    const quantized_floats scale = *(const quantized_floats *)w.scale;
    quantized_floats minimum = {0};
    quantized_ints zero = {0};
    quantized_weights part;
    if (form.minima)
        minimum = *(const quantized_floats *)w.minimum;
    else
        zero = __builtin_convertvector(*(const quantized_zeros *)w.zero, quantized_ints);
    quantized_load(form.bits, form.vnni, w.q, &part);
    SIMD_UNROLL(QUANTIZED_ROWS)
    for (int r = 0; r < rows; r++) {
        const int64_t at = c + r * x->chunks;
        quantized_ints dot;
        quantized_dots(form.bits, form.vnni, &part, x->q + at * each, w.blocks, &dot);
        const quantized_floats of_x = *(const quantized_floats *)(x->scale + at * QUANTIZED_LANES);
        const quantized_ints *total = (const quantized_ints *)(x->sum + at * QUANTIZED_LANES);
        dot -= zero * *total;
        quantized_floats term = of_x * scale * __builtin_convertvector(dot, quantized_floats);
        if (form.minima) term += of_x * minimum * __builtin_convertvector(*total, quantized_floats);
        sum[r] += term;
    }
}

/* y[r * y_row + j] = x[r] w[j] for rows of x from `first` on and the rows of `m` in
 * [begin, begin + count). */
typedef struct quantized_product {
    const quantized_rows *x;
    int64_t first;
    const quantized_matrix *m;
    int64_t begin, count;
    T *y;
    int64_t y_row;
} quantized_product;

SIMD_INLINE T quantized_total(const quantized_floats *lane)
{
    const simd_four halves = __builtin_shufflevector(*lane, *lane, 0, 1, 2, 3) +
                             __builtin_shufflevector(*lane, *lane, 4, 5, 6, 7);
    return (halves[0] + halves[2]) + (halves[1] + halves[3]);
}

SIMD_INLINE void quantized_products(const int rows, const quantized_form form,
                                    const quantized_product o)
{
    const quantized_matrix *m = o.m;
    const int64_t whole = m->blocks / QUANTIZED_LANES, bytes = QUANTIZED_CHUNK * form.bits / 8;
    const int64_t before = o.first * o.x->chunks;
    quantized_rows x = {o.x->q + before * QUANTIZED_CHUNK, o.x->scale + before * QUANTIZED_LANES,
                        o.x->sum + before * QUANTIZED_LANES, o.x->chunks};
    if (QUANTIZED_WIDE(form.bits, form.vnni)) {
        quantized_widen(x.q, rows * x.chunks * QUANTIZED_CHUNK, m->words);
        x.q = (int8_t *)m->words;
    }
    quantized_weight_row w;
    memset(&w, 0, sizeof w);
    for (int64_t j = 0; j < o.count; j++) {
        quantized_floats sum[QUANTIZED_ROWS];
        quantized_open(form.bits, form.minima, m, o.begin + j, &w);
        SIMD_UNROLL(QUANTIZED_ROWS)
        for (int r = 0; r < rows; r++) sum[r] = (quantized_floats){0};
        for (int64_t c = 0; c < whole; c++) {
            const int64_t at = c * QUANTIZED_LANES;
            for (int i = 0; i < bytes; i += 64)
                __builtin_prefetch(w.q + c * bytes + i + QUANTIZED_AHEAD);
            quantized_part part = {.q = w.q + c * bytes, .scale = w.scale + at, .blocks = 8};
            if (form.minima)
                part.minimum = w.minimum + at;
            else
                part.zero = w.zero + at;
            quantized_chunk(rows, form, &x, c, part, sum);
        }
        if (x.chunks > whole)
            quantized_chunk(rows, form, &x, whole,
                            (quantized_part){w.last_q, w.last_scale, w.last_minimum, w.last_zero,
                                             (int)(m->blocks % QUANTIZED_LANES)},
                            sum);
        SIMD_UNROLL(QUANTIZED_ROWS)
        for (int r = 0; r < rows; r++) o.y[r * o.y_row + j] = quantized_total(&sum[r]);
    }
}

typedef void quantized_function(const quantized_rows *x, int64_t first, const quantized_matrix *m,
                                int64_t begin, int64_t count, T *y, int64_t y_row);

#define QUANTIZED_EACH_FORM(X, rows, bits, vnni) X(rows, bits, vnni, 0) X(rows, bits, vnni, 1)
#define QUANTIZED_EACH_ROWS(X, bits, vnni)                                                         \
    QUANTIZED_EACH_FORM(X, 1, bits, vnni)                                                          \
    QUANTIZED_EACH_FORM(X, 2, bits, vnni)                                                          \
    QUANTIZED_EACH_FORM(X, 4, bits, vnni)                                                          \
    QUANTIZED_EACH_FORM(X, 8, bits, vnni)
#if defined(__AVX512F__)
#define QUANTIZED_EACH(X)                                                                          \
    QUANTIZED_EACH_ROWS(X, 8, 0)                                                                   \
    QUANTIZED_EACH_ROWS(X, 4, 0) QUANTIZED_EACH_ROWS(X, 8, 1) QUANTIZED_EACH_ROWS(X, 4, 1)
#else
#define QUANTIZED_EACH(X) QUANTIZED_EACH_ROWS(X, 8, 0) QUANTIZED_EACH_ROWS(X, 4, 0)
#endif

#define QUANTIZED_DEFINE(rows, bits, vnni, minima)                                                 \
    static __attribute__((noinline)) void quantized_##rows##_##bits##_##vnni##_##minima(           \
        const quantized_rows *x, int64_t first, const quantized_matrix *m, int64_t begin,          \
        int64_t count, T *y, int64_t y_row)                                                        \
    {                                                                                              \
        quantized_products(rows, (quantized_form){bits, vnni, minima},                             \
                           (quantized_product){x, first, m, begin, count, y, y_row});              \
    }
QUANTIZED_EACH(QUANTIZED_DEFINE)
#undef QUANTIZED_DEFINE

/* The function for `rows` rows, 1, 2, 4 or 8. `vnni`: the processor has AVX512_VNNI. */
static inline quantized_function *quantized_function_of(int rows, int bits, bool vnni, bool minima)
{
    static quantized_function *const functions[2][2][2][QUANTIZED_ROWS + 1] = {
#define QUANTIZED_ROW(rows, bits, vnni, minima)                                                    \
    [minima][vnni][bits == 8][rows] = quantized_##rows##_##bits##_##vnni##_##minima,
        QUANTIZED_EACH(QUANTIZED_ROW)
#undef QUANTIZED_ROW
    };
    return functions[minima][vnni][bits == 8][rows];
}

#endif
#endif
