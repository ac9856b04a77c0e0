/* Products of small blocks that stay in the cache, for kernels that do more to a block than
 * multiply it, and the transposes that feed them. Written with the vector types of GCC and Clang,
 * so that one source serves every instruction set and both floating types.
 *
 * C [m, n] = A [m, depth] B [depth, n]: the elements of A are broadcast one by one and may lie at
 * any strides, so that a transposed A costs nothing; rows of B and C are contiguous. The tile of C
 * under way stays in registers over the depth, up to TILE_DEPTH of it (Goto & van de Geijn 2008,
 * the inner kernel), and is then added to what C has, so that rounding errors do not pile up. */
#ifndef WEFT_OPS_KERNELS_TILE_H
#define WEFT_OPS_KERNELS_TILE_H

#include "kernel.h"

#ifdef WEFT_KERNEL_ISA

#if defined __AVX512F__
#define TILE_BYTES   64 /* of a vector */
#define TILE_VECTORS 4  /* vectors in a row of the register tile */
#elif defined __AVX__
#define TILE_BYTES   32
#define TILE_VECTORS 2
#else
#define TILE_BYTES   16
#define TILE_VECTORS 2
#endif
#define TILE_ROWS  6
#define TILE_DEPTH 256
#define TILE_LANES ((int64_t)(TILE_BYTES / sizeof(T)))

typedef T tile_vector __attribute__((vector_size(TILE_BYTES), aligned(sizeof(T)), may_alias));

#define TILE_INLINE static inline __attribute__((always_inline))

/* Rows and vectors are constants at every call: the loops over them unroll into registers. */
TILE_INLINE void tile_block(const int rows, const int vectors, int64_t depth, const T *a,
                            int64_t a_row, int64_t a_step, const T *b, int64_t b_step, T *c,
                            int64_t c_row, bool add)
{
    tile_vector sum[TILE_ROWS][TILE_VECTORS];
    for (int r = 0; r < rows; r++) {
        if (add) __builtin_prefetch(c + r * c_row, 1);
        for (int v = 0; v < vectors; v++) sum[r][v] = (tile_vector){0};
    }
    for (int64_t k = 0; k < depth; k++) {
        tile_vector row[TILE_VECTORS];
        for (int v = 0; v < vectors; v++)
            row[v] = *(const tile_vector *)(b + k * b_step + v * TILE_LANES);
        for (int r = 0; r < rows; r++) {
            const T x = a[r * a_row + k * a_step];
            for (int v = 0; v < vectors; v++) sum[r][v] += x * row[v];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            tile_vector *out = (tile_vector *)(c + r * c_row + v * TILE_LANES);
            if (add) sum[r][v] += *out;
            *out = sum[r][v];
        }
}

/* A strip of `vectors` vectors of columns, all m rows. */
TILE_INLINE void tile_strip(const int vectors, int64_t m, int64_t depth, const T *a, int64_t a_row,
                            int64_t a_step, const T *b, int64_t b_step, T *c, int64_t c_row,
                            bool add)
{
    for (; m >= TILE_ROWS; m -= TILE_ROWS, a += TILE_ROWS * a_row, c += TILE_ROWS * c_row)
        tile_block(TILE_ROWS, vectors, depth, a, a_row, a_step, b, b_step, c, c_row, add);
    switch (m) {
    case 5:
        tile_block(5, vectors, depth, a, a_row, a_step, b, b_step, c, c_row, add);
        break;
    case 4:
        tile_block(4, vectors, depth, a, a_row, a_step, b, b_step, c, c_row, add);
        break;
    case 3:
        tile_block(3, vectors, depth, a, a_row, a_step, b, b_step, c, c_row, add);
        break;
    case 2:
        tile_block(2, vectors, depth, a, a_row, a_step, b, b_step, c, c_row, add);
        break;
    case 1:
        tile_block(1, vectors, depth, a, a_row, a_step, b, b_step, c, c_row, add);
        break;
    default:
        break;
    }
}

/* C [m, n] = A [m, depth] B [depth, n], or C += where `add` is set; depth <= TILE_DEPTH. */
static inline void tile_piece(int64_t m, int64_t n, int64_t depth, const T *a, int64_t a_row,
                              int64_t a_step, const T *b, int64_t b_step, T *c, int64_t c_row,
                              bool add)
{
    int64_t j = 0;
    for (; n - j >= TILE_VECTORS * TILE_LANES; j += TILE_VECTORS * TILE_LANES)
        tile_strip(TILE_VECTORS, m, depth, a, a_row, a_step, b + j, b_step, c + j, c_row, add);
#if TILE_VECTORS == 4
    if (n - j >= 3 * TILE_LANES) {
        tile_strip(3, m, depth, a, a_row, a_step, b + j, b_step, c + j, c_row, add);
        j += 3 * TILE_LANES;
    } else if (n - j >= 2 * TILE_LANES) {
        tile_strip(2, m, depth, a, a_row, a_step, b + j, b_step, c + j, c_row, add);
        j += 2 * TILE_LANES;
    }
#endif
    if (n - j >= TILE_LANES) {
        tile_strip(1, m, depth, a, a_row, a_step, b + j, b_step, c + j, c_row, add);
        j += TILE_LANES;
    }
    for (int64_t i = 0; i < m && j < n; i++)
        for (int64_t x = j; x < n; x++) {
            T sum = 0;
            for (int64_t k = 0; k < depth; k++)
                sum += a[i * a_row + k * a_step] * b[k * b_step + x];
            c[i * c_row + x] = add ? c[i * c_row + x] + sum : sum;
        }
}

/* C [m, n] = A [m, depth] B [depth, n], or C += where `add` is set. Element (i, k) of A lies at
 * a[i a_row + k a_step]; rows of B at b_step, rows of C at c_row. */
static inline void tile_product(int64_t m, int64_t n, int64_t depth, const T *a, int64_t a_row,
                                int64_t a_step, const T *b, int64_t b_step, T *c, int64_t c_row,
                                bool add)
{
    int64_t k = 0;
    do {
        const int64_t piece = depth - k < TILE_DEPTH ? depth - k : TILE_DEPTH;
        tile_piece(m, n, piece, a + k * a_step, a_row, a_step, b + k * b_step, b_step, c, c_row,
                   add || k > 0);
        k += piece;
    } while (k < depth);
}

/* TILE_LANES x TILE_LANES elements transposed in registers: log2 steps, each of which swaps the
 * squares of size s that lie across the diagonal from each other. */
#define TILE_LOW(l, s)    ((l) & (s) ? (int)TILE_LANES + (l) - (s) : (l))
#define TILE_HIGH(l, s)   ((l) & (s) ? (int)TILE_LANES + (l) : (l) + (s))
#define TILE_EACH_2(f, s) f(0, s), f(1, s)
#define TILE_EACH_4(f, s) TILE_EACH_2(f, s), f(2, s), f(3, s)
#define TILE_EACH_8(f, s) TILE_EACH_4(f, s), f(4, s), f(5, s), f(6, s), f(7, s)
#define TILE_EACH_16(f, s)                                                                         \
    TILE_EACH_8(f, s), f(8, s), f(9, s), f(10, s), f(11, s), f(12, s), f(13, s), f(14, s), f(15, s)
#if KERNEL_IS(f32)
#define TILE_WIDTH (TILE_BYTES / 4)
#else
#define TILE_WIDTH (TILE_BYTES / 8)
#endif
#if TILE_WIDTH == 16
#define TILE_EACH TILE_EACH_16
#elif TILE_WIDTH == 8
#define TILE_EACH TILE_EACH_8
#elif TILE_WIDTH == 4
#define TILE_EACH TILE_EACH_4
#else
#define TILE_EACH TILE_EACH_2
#endif
#define TILE_SWAP(s)                                                                               \
    for (int i = 0; i < TILE_LANES; i++) {                                                         \
        if (i & (s)) continue;                                                                     \
        const tile_vector low = row[i], high = row[i + (s)];                                       \
        row[i] = __builtin_shufflevector(low, high, TILE_EACH(TILE_LOW, s));                       \
        row[i + (s)] = __builtin_shufflevector(low, high, TILE_EACH(TILE_HIGH, s));                \
    }

TILE_INLINE void tile_transpose_square(const T *x, int64_t x_row, T *y, int64_t y_row)
{
    tile_vector row[TILE_LANES];
    for (int i = 0; i < TILE_LANES; i++) row[i] = *(const tile_vector *)(x + i * x_row);
#if TILE_WIDTH > 8
    TILE_SWAP(8)
#endif
#if TILE_WIDTH > 4
    TILE_SWAP(4)
#endif
#if TILE_WIDTH > 2
    TILE_SWAP(2)
#endif
    TILE_SWAP(1)
    for (int i = 0; i < TILE_LANES; i++) *(tile_vector *)(y + i * y_row) = row[i];
}

/* Y [n, m] = X [m, n] transposed; rows contiguous. */
static inline void tile_transpose(int64_t m, int64_t n, const T *x, int64_t x_row, T *y,
                                  int64_t y_row)
{
    const int64_t whole_m = m - m % TILE_LANES, whole_n = n - n % TILE_LANES;
    for (int64_t i = 0; i < whole_m; i += TILE_LANES)
        for (int64_t j = 0; j < whole_n; j += TILE_LANES)
            tile_transpose_square(x + i * x_row + j, x_row, y + j * y_row + i, y_row);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = i < whole_m ? whole_n : 0; j < n; j++) y[j * y_row + i] = x[i * x_row + j];
}

/* 16 x 16 bytes transposed: four times over, row i is interleaved with row i + 8. */
typedef uint8_t tile_bytes __attribute__((vector_size(16), aligned(1), may_alias));

TILE_INLINE void tile_transpose_square_bytes(const uint8_t *x, int64_t x_row, uint8_t *y,
                                             int64_t y_row)
{
    tile_bytes row[16], next[16];
    for (int i = 0; i < 16; i++) row[i] = *(const tile_bytes *)(x + i * x_row);
    for (int time = 0; time < 4; time++) {
        for (int i = 0; i < 8; i++) {
            next[2 * i] = __builtin_shufflevector(row[i], row[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4,
                                                  20, 5, 21, 6, 22, 7, 23);
            next[2 * i + 1] = __builtin_shufflevector(row[i], row[i + 8], 8, 24, 9, 25, 10, 26, 11,
                                                      27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        for (int i = 0; i < 16; i++) row[i] = next[i];
    }
    for (int i = 0; i < 16; i++) *(tile_bytes *)(y + i * y_row) = row[i];
}

/* As tile_transpose, of bytes. */
static inline void tile_transpose_bytes(int64_t m, int64_t n, const uint8_t *x, int64_t x_row,
                                        uint8_t *y, int64_t y_row)
{
    const int64_t whole_m = m - m % 16, whole_n = n - n % 16;
    for (int64_t i = 0; i < whole_m; i += 16)
        for (int64_t j = 0; j < whole_n; j += 16)
            tile_transpose_square_bytes(x + i * x_row + j, x_row, y + j * y_row + i, y_row);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = i < whole_m ? whole_n : 0; j < n; j++) y[j * y_row + i] = x[i * x_row + j];
}

#endif
#endif
