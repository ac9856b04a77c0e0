/* The vectors of the instruction set that a kernel file is compiled for, and what every matrix
 * product does with them: transposes in registers, and a block of sums in registers. Written with
 * the vector types of GCC and Clang, so that one source serves every instruction set and both
 * floating types. */
#ifndef WEFT_OPS_KERNELS_SIMD_H
#define WEFT_OPS_KERNELS_SIMD_H

#include "kernel.h"

#include "base/float_env.h"

#ifdef WEFT_KERNEL_ISA

#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Bytes of a vector, and registers of that size. */
#if defined(__AVX512F__)
#define SIMD_BYTES     64
#define SIMD_REGISTERS 32
#elif defined(__AVX2__)
#define SIMD_BYTES     32
#define SIMD_REGISTERS 16
#elif defined(__aarch64__) || defined(__riscv_vector)
#define SIMD_BYTES     16
#define SIMD_REGISTERS 32
#else
#define SIMD_BYTES     16
#define SIMD_REGISTERS 16
#endif
#if KERNEL_IS(f32)
#define SIMD_WIDTH (SIMD_BYTES / 4) /* SIMD_LANES for #if */
#else
#define SIMD_WIDTH (SIMD_BYTES / 8)
#endif
#define SIMD_LANES  ((int64_t)(SIMD_BYTES / sizeof(T)))
#define SIMD_INLINE static inline __attribute__((always_inline))

/* Unrolls the loop that follows, whose count is a constant of at most n after inlining. Then an
 * array of vectors that it indexes can stay in registers: with clang only if it unrolls at once, so
 * the count is omitted. */
#ifdef __clang__
#define SIMD_UNROLL(n) _Pragma("clang loop unroll(full)")
#else
#define SIMD_PRAGMA(text) _Pragma(#text)
#define SIMD_UNROLL(n)    SIMD_PRAGMA(GCC unroll n)
#endif

typedef T simd_vector __attribute__((vector_size(SIMD_BYTES), aligned(sizeof(T)), may_alias));
typedef T simd_four __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));

#if !defined(__FMA__) && KERNEL_IS(f32)
typedef double simd_pair __attribute__((vector_size(16)));
typedef float simd_half __attribute__((vector_size(8)));

/* As fma_f32, of two. With `flush`, which is a constant at every call, a result that is subnormal
 * after rounding to 24 bits is a zero of its sign. */
SIMD_INLINE simd_half simd_fma_half(simd_half x, simd_half y, simd_half z, const bool flush)
{
    typedef __typeof__((simd_pair){0} < (simd_pair){0}) mask;
    const simd_pair wide = __builtin_convertvector(z, simd_pair);
    const simd_pair product =
        __builtin_convertvector(x, simd_pair) * __builtin_convertvector(y, simd_pair);
    const simd_pair sum = product + wide, added = sum - product;
    const simd_pair lost = (product - (sum - added)) + (wide - added);
    const mask below = lost < 0, inexact = (lost > 0) | below, smaller = below ^ (sum < 0);
    simd_pair odd = (simd_pair)(((mask)sum + (inexact & smaller)) | (inexact & 1));
    if (flush) {
        const mask tiny = (odd < 0x1.ffffffp-127) & (odd > -0x1.ffffffp-127);
        odd = (simd_pair)((mask)odd & (~tiny | INT64_MIN));
    }
    return __builtin_convertvector(odd, simd_half);
}

SIMD_INLINE simd_vector simd_fma_halves(simd_vector x, simd_vector y, simd_vector z,
                                        const bool flush)
{
    const simd_half low =
        simd_fma_half(__builtin_shufflevector(x, x, 0, 1), __builtin_shufflevector(y, y, 0, 1),
                      __builtin_shufflevector(z, z, 0, 1), flush);
    const simd_half high =
        simd_fma_half(__builtin_shufflevector(x, x, 2, 3), __builtin_shufflevector(y, y, 2, 3),
                      __builtin_shufflevector(z, z, 2, 3), flush);
    return __builtin_shufflevector(low, high, 0, 1, 2, 3);
}
#endif

/* x y + z with one rounding. */
SIMD_INLINE simd_vector simd_fma(simd_vector x, simd_vector y, simd_vector z)
{
#if defined(__AVX512F__) && KERNEL_IS(f32)
    return (simd_vector)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
#elif defined(__AVX512F__)
    return (simd_vector)_mm512_fmadd_pd((__m512d)x, (__m512d)y, (__m512d)z);
#elif defined(__FMA__) && KERNEL_IS(f32)
    return (simd_vector)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
#elif defined(__FMA__)
    return (simd_vector)_mm256_fmadd_pd((__m256d)x, (__m256d)y, (__m256d)z);
#elif defined(__aarch64__) && KERNEL_IS(f32)
    return (simd_vector)vfmaq_f32((float32x4_t)z, (float32x4_t)x, (float32x4_t)y);
#elif defined(__aarch64__)
    return (simd_vector)vfmaq_f64((float64x2_t)z, (float64x2_t)x, (float64x2_t)y);
#elif (defined(__SSE2__) || defined(__wasm_simd128__)) && KERNEL_IS(f32)
    return simd_fma_halves(x, y, z, false);
#else
    for (int lane = 0; lane < SIMD_WIDTH; lane++) z[lane] = FMA(x[lane], y[lane], z[lane]);
    return z;
#endif
}

/* x with zeros for subnormal numbers, where the environment does not flush them. */
SIMD_INLINE simd_vector simd_flush(simd_vector x)
{
#if KERNEL_IS(f32) && !FLOAT_ENV_FLUSHES
    typedef __typeof__(x < x) mask;
    const mask tiny = (x < 0x1p-126f) & (x > -0x1p-126f);
    x = (simd_vector)((mask)x & (~tiny | INT32_MIN));
#endif
    return x;
}

/* The step of products of bf16, in the environment of float_env_flush: as simd_fma, with subnormal
 * operands and results flushed to zero. */
SIMD_INLINE simd_vector simd_fma_flushed(simd_vector x, simd_vector y, simd_vector z)
{
#if KERNEL_IS(f32) && !FLOAT_ENV_FLUSHES
    return simd_fma_halves(simd_flush(x), simd_flush(y), simd_flush(z), true);
#else
    return simd_fma(x, y, z);
#endif
}

/* A dot product is summed in the lanes of SIMD_PARTS vectors: as many on every processor. */
#define SIMD_SPAN  (SIMD_PARTS * SIMD_LANES)
#define SIMD_PARTS (64 / SIMD_BYTES)

/* The sum of these lanes, as a tree: lane i and lane i + SIMD_SPAN / 2, and so on. */
SIMD_INLINE T simd_sum(const simd_vector *parts)
{
    T lane[SIMD_SPAN];
    for (int v = 0; v < SIMD_PARTS; v++) *(simd_vector *)(lane + v * SIMD_LANES) = parts[v];
    for (int64_t half = SIMD_SPAN / 2; half; half /= 2)
        for (int64_t l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

/* min(max(x, low), high), NaN for NaN. */
SIMD_INLINE simd_vector simd_bound(simd_vector x, T low, T high)
{
    const simd_vector least = low - (simd_vector){0}, most = high - (simd_vector){0};
    typedef __typeof__(x < least) mask;
    mask m = x < least;
    x = (simd_vector)((m & (mask)least) | (~m & (mask)x));
    m = x > most;
    return (simd_vector)((m & (mask)most) | (~m & (mask)x));
}

/* ---- A block of sums ---- */

/* Products are added one after the other in chains of this many, whose sums are added in order. So
 * the error of k products grows with SIMD_CHAIN + k / SIMD_CHAIN. */
#define SIMD_CHAIN 128

/* A [rows, depth] and B [depth, vectors * SIMD_LANES]: element (r, k) of A lies at
 * a[r * a_row + k * a_step], rows of B lie b_step apart and are dense. */
typedef struct simd_operands {
    const T *a, *b;
    int64_t a_row, a_step, b_step;
    int64_t depth;
} simd_operands;

/* One step of the depth. `bf16`, also a constant, says whether subnormal numbers are flushed. */
SIMD_INLINE void simd_add_step(const int rows, const int vectors, const int ahead, const bool bf16,
                               simd_operands o, simd_vector *sum)
{
    simd_vector row[SIMD_REGISTERS];
    SIMD_UNROLL(16)
    for (int v = 0; v < vectors; v++) row[v] = *(const simd_vector *)(o.b + v * SIMD_LANES);
    SIMD_UNROLL(16)
    for (int v = 0; v < vectors; v++)
        if (ahead) __builtin_prefetch(o.b + ahead * o.b_step + v * SIMD_LANES);
    SIMD_UNROLL(16)
    for (int r = 0; r < rows; r++) {
        /* Broadcast once: otherwise each vector of the row loads the element again. */
        const simd_vector x = o.a[r * o.a_row] - (simd_vector){0};
        SIMD_UNROLL(16)
        for (int v = 0; v < vectors; v++) {
            simd_vector *s = sum + r * vectors + v;
            *s = bf16 ? simd_fma_flushed(x, row[v], *s) : simd_fma(x, row[v], *s);
        }
    }
}

/* sum[r * vectors + v] += A B. Rows, vectors and `ahead` are constants at every call, so that the
 * loops unroll and the sums stay in registers over the depth. Rows of B are prefetched `ahead` rows
 * before their use; 0: not at all. */
SIMD_INLINE void simd_add_product(const int rows, const int vectors, const int ahead,
                                  simd_operands o, simd_vector *sum)
{
    for (int64_t k = 0; k < o.depth; k++) {
        simd_add_step(rows, vectors, ahead, false, o, sum);
        o.a += o.a_step;
        o.b += o.b_step;
    }
}

/* ---- Transposes ---- */

/* out[p * step + i] = x[i * row + p] for four rows and columns. */
SIMD_INLINE void simd_transpose_four(const T *x, int64_t row, T *out, int64_t step)
{
    const simd_four a = *(const simd_four *)x, b = *(const simd_four *)(x + row);
    const simd_four c = *(const simd_four *)(x + 2 * row), d = *(const simd_four *)(x + 3 * row);
    const simd_four ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const simd_four ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const simd_four cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const simd_four cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(simd_four *)out = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
    *(simd_four *)(out + step) = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
    *(simd_four *)(out + 2 * step) = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
    *(simd_four *)(out + 3 * step) = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
}

/* A square of vectors takes log2(SIMD_LANES) steps, each of which swaps the squares of size s that
 * lie across the diagonal from each other. */
#define SIMD_LOW(l, s)    ((l) & (s) ? (int)SIMD_LANES + (l) - (s) : (l))
#define SIMD_HIGH(l, s)   ((l) & (s) ? (int)SIMD_LANES + (l) : (l) + (s))
#define SIMD_EACH_2(f, s) f(0, s), f(1, s)
#define SIMD_EACH_4(f, s) SIMD_EACH_2(f, s), f(2, s), f(3, s)
#define SIMD_EACH_8(f, s) SIMD_EACH_4(f, s), f(4, s), f(5, s), f(6, s), f(7, s)
#define SIMD_EACH_16(f, s)                                                                         \
    SIMD_EACH_8(f, s), f(8, s), f(9, s), f(10, s), f(11, s), f(12, s), f(13, s), f(14, s), f(15, s)
#if SIMD_WIDTH == 16
#define SIMD_EACH SIMD_EACH_16
#elif SIMD_WIDTH == 8
#define SIMD_EACH SIMD_EACH_8
#elif SIMD_WIDTH == 4
#define SIMD_EACH SIMD_EACH_4
#else
#define SIMD_EACH SIMD_EACH_2
#endif
/* Exchanges blocks of s elements between the vectors row[i] and row[i + s] of the function. */
#define SIMD_SWAP(s)                                                                               \
    for (int i = 0; i < SIMD_LANES; i++) {                                                         \
        if (i & (s)) continue;                                                                     \
        const simd_vector low = row[i], high = row[i + (s)];                                       \
        row[i] = __builtin_shufflevector(low, high, SIMD_EACH(SIMD_LOW, s));                       \
        row[i + (s)] = __builtin_shufflevector(low, high, SIMD_EACH(SIMD_HIGH, s));                \
    }

/* y[j * y_row + i] = x[i * x_row + j] for SIMD_LANES rows and columns. */
SIMD_INLINE void simd_transpose_square(const T *x, int64_t x_row, T *y, int64_t y_row)
{
    simd_vector row[SIMD_LANES];
    for (int i = 0; i < SIMD_LANES; i++) row[i] = *(const simd_vector *)(x + i * x_row);
#if SIMD_WIDTH > 8
    SIMD_SWAP(8)
#endif
#if SIMD_WIDTH > 4
    SIMD_SWAP(4)
#endif
#if SIMD_WIDTH > 2
    SIMD_SWAP(2)
#endif
    SIMD_SWAP(1)
    for (int i = 0; i < SIMD_LANES; i++) *(simd_vector *)(y + i * y_row) = row[i];
}

/* y [n, m] = x [m, n] transposed; rows are dense. */
static inline void simd_transpose(int64_t m, int64_t n, const T *x, int64_t x_row, T *y,
                                  int64_t y_row)
{
    const int64_t whole_m = m - m % SIMD_LANES, whole_n = n - n % SIMD_LANES;
    for (int64_t i = 0; i < whole_m; i += SIMD_LANES)
        for (int64_t j = 0; j < whole_n; j += SIMD_LANES)
            simd_transpose_square(x + i * x_row + j, x_row, y + j * y_row + i, y_row);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = i < whole_m ? whole_n : 0; j < n; j++) y[j * y_row + i] = x[i * x_row + j];
}

/* 16 x 16 bytes: four times over, row i is interleaved with row i + 8. */
typedef uint8_t simd_bytes __attribute__((vector_size(16), aligned(1), may_alias));

SIMD_INLINE void simd_transpose_square_bytes(const uint8_t *x, int64_t x_row, uint8_t *y,
                                             int64_t y_row)
{
    simd_bytes row[16], next[16];
    for (int i = 0; i < 16; i++) row[i] = *(const simd_bytes *)(x + i * x_row);
    for (int time = 0; time < 4; time++) {
        for (int i = 0; i < 8; i++) {
            next[2 * i] = __builtin_shufflevector(row[i], row[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4,
                                                  20, 5, 21, 6, 22, 7, 23);
            next[2 * i + 1] = __builtin_shufflevector(row[i], row[i + 8], 8, 24, 9, 25, 10, 26, 11,
                                                      27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        for (int i = 0; i < 16; i++) row[i] = next[i];
    }
    for (int i = 0; i < 16; i++) *(simd_bytes *)(y + i * y_row) = row[i];
}

/* As simd_transpose, of bytes. */
static inline void simd_transpose_bytes(int64_t m, int64_t n, const uint8_t *x, int64_t x_row,
                                        uint8_t *y, int64_t y_row)
{
    const int64_t whole_m = m - m % 16, whole_n = n - n % 16;
    for (int64_t i = 0; i < whole_m; i += 16)
        for (int64_t j = 0; j < whole_n; j += 16)
            simd_transpose_square_bytes(x + i * x_row + j, x_row, y + j * y_row + i, y_row);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = i < whole_m ? whole_n : 0; j < n; j++) y[j * y_row + i] = x[i * x_row + j];
}

#endif
#endif
