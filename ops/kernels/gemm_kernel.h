/* Products of matrices, on one thread: C = A B, with what follows done while C is in the cache.
 *
 * After Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008. A block of
 * rows of A is packed into the second-level cache, columns of B into panels as wide as two vectors,
 * and a kernel keeps GEMM_ROWS x GEMM_COLUMNS sums in registers: per step of k it reads two vectors
 * of B and one element for each row of A. k is cut into pieces of GEMM_DEPTH, whose sums meet in C
 * in their order, so that the result does not depend on how C is cut into tiles. */
#ifndef WEFT_OPS_KERNELS_GEMM_KERNEL_H
#define WEFT_OPS_KERNELS_GEMM_KERNEL_H

#include "kernel.h"

/* Rows of a tile that fill the second-level cache with GEMM_DEPTH columns of A. */
#define GEMM_TILE_ROWS 84
#define GEMM_DEEP_ROWS 168
/* Tiles have multiples of so many rows, which the kernels of the widest vectors take whole. */
#define GEMM_EVEN_ROWS 14
#define GEMM_DEPTH     768
/* Elements that gemm_tile works in: the packed block of A, at the least efficient height, a panel
 * of B, and a corner of C. */
#define GEMM_PACKED    ((GEMM_DEEP_ROWS * 3 / 2 / 6 + 1) * 8 * GEMM_DEPTH)
#define GEMM_WORKSPACE (GEMM_PACKED + 32 * GEMM_DEPTH + 14 * 32)

#ifdef WEFT_KERNEL_ISA

#if defined(__AVX512F__)
#define GEMM_BYTES   64
#define GEMM_ROWS    14
#define GEMM_EACH(X) X(1) X(2) X(4) X(6) X(8) X(10) X(12) X(14)
#elif defined(__AVX2__)
#define GEMM_BYTES   32
#define GEMM_ROWS    6
#define GEMM_EACH(X) X(1) X(2) X(4) X(6)
#else
#define GEMM_BYTES   16
#define GEMM_ROWS    6
#define GEMM_EACH(X) X(1) X(2) X(4) X(6)
#endif
/* Rows and columns whose dot products are summed side by side. */
#if defined(__AVX512F__)
#define GEMM_DOTS 4
#else
#define GEMM_DOTS 2
#endif
#define GEMM_VECTOR  ((int)(GEMM_BYTES / sizeof(T)))
#define GEMM_COLUMNS (2 * GEMM_VECTOR)
/* Steps of k that B is fetched ahead of its use: rows that lie pages apart, as those of an unpacked
 * matrix do, are fetched by nobody else. */
#define GEMM_AHEAD 32
/* The same, where rows are copied. */
#define GEMM_COPY_AHEAD 16
/* From one step of k to the next in a packed block of A. */
#define GEMM_STEP ((GEMM_ROWS + 3) / 4 * 4)

typedef T gemm_vector __attribute__((vector_size(GEMM_BYTES), aligned(sizeof(T)), may_alias));
typedef T gemm_four __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));

/* Element (i, j) lies at data[i row + j column]; one of the two is 1. */
typedef struct gemm_matrix {
    const T *data;
    int64_t row, column;
} gemm_matrix;

/* C[0 .. height-1][0 .. GEMM_COLUMNS-1] (+)= a block of A times a panel of B. */
static inline __attribute__((always_inline)) void gemm_sums(const int height, int64_t k, const T *a,
                                                            const T *b, int64_t b_step, T *c,
                                                            int64_t c_row, bool add)
{
    gemm_vector sum[GEMM_ROWS][2];
#pragma GCC unroll 16
    for (int i = 0; i < height; i++) sum[i][0] = sum[i][1] = (gemm_vector){0};
    for (int64_t p = 0; p < k; p++) {
        gemm_vector b0 = *(const gemm_vector *)b, b1 = *(const gemm_vector *)(b + GEMM_VECTOR);
        __builtin_prefetch(b + GEMM_AHEAD * b_step);
        __builtin_prefetch(b + GEMM_AHEAD * b_step + GEMM_VECTOR);
#pragma GCC unroll 16
        for (int i = 0; i < height; i++) {
            gemm_vector x = a[i] - (gemm_vector){0};
            sum[i][0] += x * b0;
            sum[i][1] += x * b1;
        }
        a += GEMM_STEP;
        b += b_step;
    }
#pragma GCC unroll 16
    for (int i = 0; i < height; i++) {
        gemm_vector *out = (gemm_vector *)(c + i * c_row);
        gemm_vector *next = (gemm_vector *)(c + i * c_row + GEMM_VECTOR);
        if (add) {
            sum[i][0] += *out;
            sum[i][1] += *next;
        }
        *out = sum[i][0];
        *next = sum[i][1];
    }
}

typedef void gemm_function(int64_t k, const T *a, const T *b, int64_t b_step, T *c, int64_t c_row,
                           bool add);
#define GEMM_DEFINE(height)                                                                        \
    static __attribute__((noinline)) void gemm_sums_##height(                                      \
        int64_t k, const T *a, const T *b, int64_t b_step, T *c, int64_t c_row, bool add)          \
    {                                                                                              \
        gemm_sums(height, k, a, b, b_step, c, c_row, add);                                         \
    }
GEMM_EACH(GEMM_DEFINE)
#undef GEMM_DEFINE

/* The lowest kernel of at least so many rows, and its height. */
static inline gemm_function *gemm_of_height(int64_t rows)
{
#define GEMM_FIND(height)                                                                          \
    if (rows <= height) return gemm_sums_##height;
    GEMM_EACH(GEMM_FIND)
#undef GEMM_FIND
    return NULL;
}

static inline int64_t gemm_height(int64_t rows)
{
#define GEMM_FIND(height)                                                                          \
    if (rows <= height) return height;
    GEMM_EACH(GEMM_FIND)
#undef GEMM_FIND
    return 0;
}

/* out[p][i] = x[i][p] for `rows` rows of stride `row`: four by four, so that both are vectors. */
static inline void gemm_transpose(const T *x, int64_t row, int64_t rows, int64_t k, T *out,
                                  int64_t step)
{
    const int64_t line = 64 / (int64_t)sizeof(T);
    for (int64_t next = 0; next < rows; next += 4) {
        /* The last four overlap those before. */
        int64_t i = rows >= 4 && rows - next < 4 ? rows - 4 : next;
        if (rows < 4) {
            for (; i < rows; i++)
                for (int64_t p = 0; p < k; p++) out[p * step + i] = x[i * row + p];
            return;
        }
        const T *from = x + i * row;
        int64_t p = 0;
        for (; p + 4 <= k; p += 4) {
            /* A line of one of the next four rows. */
            __builtin_prefetch(from + (4 + p / 4 % 4) * row + p / line * line);
            gemm_four a = *(const gemm_four *)(from + p), b = *(const gemm_four *)(from + row + p);
            gemm_four c = *(const gemm_four *)(from + 2 * row + p);
            gemm_four d = *(const gemm_four *)(from + 3 * row + p);
            gemm_four ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5);
            gemm_four ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            gemm_four cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5);
            gemm_four cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
            T *to = out + p * step + i;
            *(gemm_four *)to = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
            *(gemm_four *)(to + step) = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
            *(gemm_four *)(to + 2 * step) = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
            *(gemm_four *)(to + 3 * step) = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
        }
        for (; p < k; p++)
            for (int64_t q = 0; q < 4; q++) out[p * step + i + q] = from[q * row + p];
    }
}

/* The same for x[p outer + i], blocks of `height` at once, so that a line of memory is read once.
 */
static inline __attribute__((always_inline)) void gemm_copy(const T *x, int64_t outer, int64_t rows,
                                                            int64_t height, int64_t k, T *out,
                                                            int64_t block, int64_t step)
{
    const int64_t line = 64 / (int64_t)sizeof(T);
    for (int64_t p = 0; p < k; p++) {
        const T *from = x + p * outer, *ahead = from + GEMM_COPY_AHEAD * outer;
        /* Rows that lie pages apart are fetched by nobody else. */
        for (int64_t i = 0; i < rows + line - 1; i += line) __builtin_prefetch(ahead + i);
        int64_t i = 0;
        T *to = out + p * step;
        for (; i + height <= rows; i += height, to += block)
            memcpy(to, from + i, (size_t)height * sizeof *to);
        if (i < rows) memcpy(to, from + i, (size_t)(rows - i) * sizeof *to);
    }
}

/* out[i / height][p][i % height] = x[i inner + p outer] for i < rows; blocks lie `block` apart, and
 * what lies between height and step is not written. */
static inline void gemm_pack(const T *x, int64_t inner, int64_t outer, int64_t rows, int64_t height,
                             int64_t k, T *out, int64_t block, int64_t step)
{
    if (inner == 1 && height == GEMM_ROWS)
        gemm_copy(x, outer, rows, GEMM_ROWS, k, out, block, step);
    else if (inner == 1 && height == GEMM_COLUMNS)
        gemm_copy(x, outer, rows, GEMM_COLUMNS, k, out, block, step);
    else if (inner == 1)
        gemm_copy(x, outer, rows, height, k, out, block, step);
    else
        for (int64_t i = 0; i < rows; i += height, out += block)
            gemm_transpose(x + i * inner, inner, rows - i < height ? rows - i : height, k, out,
                           step);
}

/* Columns [first, last) of b, [k, *], as panels of GEMM_COLUMNS. */
static inline void gemm_pack_panels(const gemm_matrix *b, int64_t first, int64_t last, int64_t k,
                                    T *out)
{
    gemm_pack(b->data + first * b->column, b->column, b->row, last - first, GEMM_COLUMNS, k, out,
              GEMM_COLUMNS * k, GEMM_COLUMNS);
}

/* C [m, n] = A [m, k] B [k, n] where rows of A and columns of B are dense: each element is a dot
 * product of two of them, summed over pieces of GEMM_DEPTH, too. For so few rows that packing B
 * would cost more than it gains. */
static inline void gemm_dots(int64_t m, int64_t n, int64_t k, const gemm_matrix *a,
                             const gemm_matrix *b, T *c, int64_t c_row)
{
    for (int64_t j = 0; j < n; j += GEMM_DOTS)
        for (int64_t i = 0; i < m; i += GEMM_DOTS) {
            const T *rows[GEMM_DOTS], *columns[GEMM_DOTS];
            gemm_vector total[GEMM_DOTS][GEMM_DOTS];
            const int64_t whole = k - k % GEMM_VECTOR;
            /* At the edges the last row or column stands in for those that are not there. */
            for (int q = 0; q < GEMM_DOTS; q++) {
                rows[q] = a->data + (i + q < m ? i + q : m - 1) * a->row;
                columns[q] = b->data + (j + q < n ? j + q : n - 1) * b->column;
                for (int r = 0; r < GEMM_DOTS; r++) total[q][r] = (gemm_vector){0};
            }
            for (int64_t p = 0; p < whole;) {
                const int64_t end = whole - p < GEMM_DEPTH ? whole : p + GEMM_DEPTH;
                gemm_vector sum[GEMM_DOTS][GEMM_DOTS];
                for (int q = 0; q < GEMM_DOTS; q++)
                    for (int r = 0; r < GEMM_DOTS; r++) sum[q][r] = (gemm_vector){0};
                for (; p < end; p += GEMM_VECTOR) {
                    gemm_vector y[GEMM_DOTS];
#pragma GCC unroll 4
                    for (int r = 0; r < GEMM_DOTS; r++)
                        y[r] = *(const gemm_vector *)(columns[r] + p);
#pragma GCC unroll 4
                    for (int q = 0; q < GEMM_DOTS; q++) {
                        const gemm_vector x = *(const gemm_vector *)(rows[q] + p);
#pragma GCC unroll 4
                        for (int r = 0; r < GEMM_DOTS; r++) sum[q][r] += x * y[r];
                    }
                }
                for (int q = 0; q < GEMM_DOTS; q++)
                    for (int r = 0; r < GEMM_DOTS; r++) total[q][r] += sum[q][r];
            }
            for (int64_t q = 0; q < GEMM_DOTS && i + q < m; q++)
                for (int64_t r = 0; r < GEMM_DOTS && j + r < n; r++) {
                    T dot = 0;
                    for (int lane = 0; lane < GEMM_VECTOR; lane++) dot += total[q][r][lane];
                    for (int64_t t = whole; t < k; t++) dot += rows[q][t] * columns[r][t];
                    c[(i + q) * c_row + j + r] = dot;
                }
        }
}

/* Asks for the share [from, to) of `all` of a block that is to be packed soon, so that it comes
 * while sums are made. */
static inline void gemm_fetch(const gemm_matrix *x, int64_t row, int64_t rows, int64_t column,
                              int64_t columns, int64_t from, int64_t to, int64_t all)
{
    const T *data = x->data + row * x->row + column * x->column;
    bool dense_rows = x->column == 1;
    int64_t lists = dense_rows ? rows : columns, length = dense_rows ? columns : rows;
    int64_t apart = dense_rows ? x->row : x->column;
    const int64_t line = 64 / (int64_t)sizeof(T), across = ceil_div(length, line);
    int64_t at = lists * across * from / all, end = lists * across * to / all;
    int64_t i = at / across, j = at % across;
    for (; at < end; at++) {
        __builtin_prefetch(data + i * apart + j * line, 0, 2);
        if (++j < across) continue;
        j = 0;
        i++;
    }
}

/* C [m, n] = A [m, k] B [k, n] for m <= 3/2 GEMM_DEEP_ROWS; rows of C lie c_row apart. `panels`, if
 * not NULL, is all of B in panels of k x GEMM_COLUMNS, as gemm_pack_panels makes them; if it is
 * NULL and B's rows are dense and `direct`, B is read as it lies. `name`, not 0, is that of the
 * rows of A in the packed form that `workspace` may still have, as `*panel_tag` tells; `next`:
 * behind these rows of A are as many more, likely to be multiplied next. */
static inline void gemm_tile(int64_t m, int64_t n, int64_t k, const gemm_matrix *a,
                             const gemm_matrix *b, const T *panels, bool direct, T *c,
                             int64_t c_row, T *workspace, int64_t name, int64_t *panel_tag,
                             bool next)
{
    int64_t blocks = ceil_div(m, GEMM_ROWS), height = ceil_div(m, blocks);
    T *panel = workspace, *corner = panel + GEMM_COLUMNS * GEMM_DEPTH;
    T *packed_a = corner + GEMM_ROWS * GEMM_COLUMNS;
    gemm_function *whole = gemm_of_height(height),
                  *last = gemm_of_height(m - (blocks - 1) * height);
    /* All pieces of A side by side where they fit, so that they last for the next tile. */
    const bool fits = blocks * GEMM_STEP * k <= GEMM_PACKED, packed = fits && *panel_tag == name;
    *panel_tag = fits ? name : 0;
    for (int64_t p = 0; p < k; p += GEMM_DEPTH) {
        int64_t depth = k - p < GEMM_DEPTH ? k - p : GEMM_DEPTH;
        /* What is packed next: the next piece of these rows, or the first one of the next. */
        bool more = !packed && p + GEMM_DEPTH < k, soon = more || (next && p + GEMM_DEPTH >= k);
        int64_t soon_row = more ? 0 : m, soon_p = more ? p + GEMM_DEPTH : 0;
        int64_t soon_depth = k - soon_p < GEMM_DEPTH ? k - soon_p : GEMM_DEPTH;
        T *piece = packed_a + (fits ? p * blocks * GEMM_STEP : 0);
        if (!packed)
            gemm_pack(a->data + p * a->column, a->row, a->column, m, height, depth, piece,
                      GEMM_STEP * depth, GEMM_STEP);
        for (int64_t j = 0; j < n; j += GEMM_COLUMNS) {
            int64_t width = n - j < GEMM_COLUMNS ? n - j : GEMM_COLUMNS, b_step = GEMM_COLUMNS;
            if (soon) gemm_fetch(a, soon_row, m, soon_p, soon_depth, j, j + width, n);
            const T *columns = panel;
            if (panels) {
                columns = panels + j * k + p * GEMM_COLUMNS;
            } else if (direct && width == GEMM_COLUMNS) {
                columns = b->data + p * b->row + j;
                b_step = b->row;
            } else {
                const gemm_matrix rest = {b->data + p * b->row, b->row, b->column};
                gemm_pack_panels(&rest, j, j + width, depth, panel);
            }
            int64_t coming = columns == panel ? n - j - width : 0;
            if (coming > GEMM_COLUMNS) coming = GEMM_COLUMNS;
            for (int64_t i = 0; i < m; i += height) {
                int64_t rows = m - i < height ? m - i : height;
                if (coming) gemm_fetch(b, p, depth, j + width, coming, i, i + rows, m);
                const T *block = piece + i / height * GEMM_STEP * depth;
                gemm_function *sums = rows == height ? whole : last;
                /* Kernels write whole panels, and as many rows as they have. */
                if (width == GEMM_COLUMNS && gemm_height(rows) == rows) {
                    sums(depth, block, columns, b_step, c + i * c_row + j, c_row, p > 0);
                    continue;
                }
                sums(depth, block, columns, b_step, corner, GEMM_COLUMNS, false);
                for (int64_t r = 0; r < rows; r++)
                    for (int64_t q = 0; q < width; q++) {
                        T *out = &c[(i + r) * c_row + j + q], x = corner[r * GEMM_COLUMNS + q];
                        *out = p > 0 ? *out + x : x;
                    }
            }
        }
    }
}

#endif
#endif
