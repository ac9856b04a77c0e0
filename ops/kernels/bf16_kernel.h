/* Products of bf16 with sums in f32, by one thread: C = A B. Time O(m n k).
 *
 * The loops are those of gemm_kernel.h; packing and the steps of k (pairs.h) differ. Where the processor
 * has dot products of bf16 (GEMM_PAIRS), an element of a packed operand is a pair of neighbours in
 * k. Elsewhere it is an f32 that holds a bf16. An operand in memory is bf16 or f32, which packing
 * rounds, so that a parameter in f32 needs no copy in bf16. */
#ifndef WEFT_OPS_KERNELS_BF16_KERNEL_H
#define WEFT_OPS_KERNELS_BF16_KERNEL_H

#include "gemm_kernel.h"

#include "base/half.h"

/* Elements of packed operands for k numbers, where an element is a pair or not. */
static inline int64_t bf16_steps(int64_t k, bool pairs)
{
    return pairs ? ceil_div(k, 2) : k;
}

/* Elements of the workspace of bf16_tile for `rows` rows of A, which it packs. A tile of C follows
 * if C is bf16. */
static inline int64_t bf16_workspace(int64_t rows, int64_t k, bool pairs)
{
    return gemm_workspace(rows, bf16_steps(k, pairs));
}

#ifdef WEFT_KERNEL_ISA

#ifdef GEMM_PAIRS
#define BF16_EACH 2 /* numbers of an element */
#else
#define BF16_EACH 1
#endif

/* Element (i, j) lies at data[i * row + j * column], bf16 or f32; one of the two strides is 1. */
typedef struct bf16_matrix {
    const void *data;
    bool wide; /* f32 */
    int64_t row, column;
} bf16_matrix;

/* The matrix from element (row, column) on. */
static inline bf16_matrix bf16_at(bf16_matrix m, int64_t row, int64_t column)
{
    const int64_t at = row * m.row + column * m.column;
    m.data = (const char *)m.data + at * (m.wide ? 4 : 2);
    return m;
}

typedef uint32_t bf16_word __attribute__((may_alias));

static inline uint32_t bf16_rounded(uint32_t wide)
{
    const uint32_t nearest = (wide + 0x7fff + (wide >> 16 & 1)) >> 16, nan = wide >> 16 | 64;
    return (wide & 0x7fffffff) > 0x7f800000 ? nan : nearest;
}

/* out[i] = elements (i, k) for n elements that lie side by side: `x` of the first number of the
 * element and `y` of the second one; NULL: zeros. */
static inline void bf16_pack_across(const void *x, const void *y, bool wide, int64_t n, T *out)
{
    bf16_word *to = (bf16_word *)out;
#if BF16_EACH == 2
    if (wide) {
        const bf16_word *a = x, *b = y;
        if (b)
            for (int64_t i = 0; i < n; i++) to[i] = bf16_rounded(a[i]) | bf16_rounded(b[i]) << 16;
        else
            for (int64_t i = 0; i < n; i++) to[i] = bf16_rounded(a[i]);
    } else {
        const uint16_t *a = x, *b = y;
        if (b)
            for (int64_t i = 0; i < n; i++) to[i] = a[i] | (uint32_t)b[i] << 16;
        else
            for (int64_t i = 0; i < n; i++) to[i] = a[i];
    }
#else
    (void)y;
    if (wide)
        for (int64_t i = 0; i < n; i++) to[i] = bf16_rounded(((const bf16_word *)x)[i]) << 16;
    else
        for (int64_t i = 0; i < n; i++) to[i] = (uint32_t)((const uint16_t *)x)[i] << 16;
#endif
}

/* out[s] = element s of `k` numbers that lie side by side. */
static inline void bf16_pack_along(const void *x, bool wide, int64_t k, T *out)
{
    bf16_word *to = (bf16_word *)out;
#if BF16_EACH == 2
    const int64_t whole = k / 2;
    if (wide) {
        const bf16_word *a = x;
        for (int64_t s = 0; s < whole; s++)
            to[s] = bf16_rounded(a[2 * s]) | bf16_rounded(a[2 * s + 1]) << 16;
        if (k % 2) to[whole] = bf16_rounded(a[k - 1]);
    } else {
        memcpy(to, x, (size_t)whole * sizeof *to);
        if (k % 2) to[whole] = ((const uint16_t *)x)[k - 1];
    }
#else
    bf16_pack_across(x, NULL, wide, k, (T *)to);
#endif
}

#define BF16_CHUNK 64 /* elements of a row that are converted before they are transposed */
#define BF16_ROWS  (GEMM_DEEP_ROWS * 3 / 2) /* rows that are packed together, at most */
/* Rows of a block: of A, or columns of B. */
#define BF16_HEIGHT (GEMM_ROWS > GEMM_COLUMNS ? GEMM_ROWS : GEMM_COLUMNS)

/* How rows are packed: blocks of `height` rows, `block` elements apart, whose steps lie `step`
 * elements apart, as gemm_packing has it. */
typedef struct bf16_blocks {
    int64_t rows, k, height, block;
    T *out;
} bf16_blocks;

/* Where the rows of an element of k lie side by side: all blocks at once, so that a cache line is
 * read once. The height and the step are constants at every call. */
SIMD_INLINE void bf16_pack_rows(bf16_matrix x, const bf16_blocks *o, const int64_t height,
                                const int64_t step)
{
    const int64_t steps = bf16_steps(o->k, BF16_EACH == 2), line = x.wide ? 16 : 32;
    for (int64_t s = 0; s < steps; s++) {
        T row[BF16_ROWS];
        const bool both = BF16_EACH * s + 1 < o->k;
        const char *ahead = bf16_at(x, 0, BF16_EACH * (s + GEMM_COPY_AHEAD)).data;
        for (int64_t i = 0; i < o->rows + line - 1; i += line)
            for (int64_t p = 0; p < BF16_EACH; p++)
                __builtin_prefetch(ahead + (i + p * x.column) * (x.wide ? 4 : 2));
        bf16_pack_across(bf16_at(x, 0, BF16_EACH * s).data,
                         both ? bf16_at(x, 0, BF16_EACH * s + 1).data : NULL, x.wide, o->rows, row);
        int64_t i = 0;
        T *to = o->out + s * step;
        for (; i + height <= o->rows; i += height, to += o->block)
            memcpy(to, row + i, (size_t)height * sizeof *to);
        if (i < o->rows) memcpy(to, row + i, (size_t)(o->rows - i) * sizeof *to);
    }
}

/* Where the elements of a row lie side by side. The step is a constant at every call. */
SIMD_INLINE void bf16_pack_columns(bf16_matrix x, const bf16_blocks *o, const int64_t step)
{
    const int64_t steps = bf16_steps(o->k, BF16_EACH == 2);
    /* Pairs of bf16 lie as they are needed. */
    const bool pairs = BF16_EACH == 2 && !x.wide && (uintptr_t)x.data % sizeof(T) == 0 &&
                       x.row % 2 == 0 && o->k % 2 == 0;
    for (int64_t i = 0; i < o->rows; i += o->height) {
        const int64_t n = o->rows - i < o->height ? o->rows - i : o->height;
        T *out = o->out + i / o->height * o->block;
        if (pairs) {
            gemm_transpose(bf16_at(x, i, 0).data, x.row / 2, n, steps, out, step);
            continue;
        }
        for (int64_t s = 0; s < steps; s += BF16_CHUNK) {
            T chunk[BF16_HEIGHT * BF16_CHUNK];
            const int64_t count = steps - s < BF16_CHUNK ? steps - s : BF16_CHUNK;
            const int64_t left = o->k - BF16_EACH * s;
            const int64_t numbers = left < BF16_EACH * count ? left : BF16_EACH * count;
            for (int64_t r = 0; r < n; r++)
                bf16_pack_along(bf16_at(x, i + r, BF16_EACH * s).data, x.wide, numbers,
                                chunk + r * BF16_CHUNK);
            gemm_transpose(chunk, BF16_CHUNK, n, count, out + s * step, step);
        }
    }
}

/* Packs rows of x (row i, number p of k at strides row, column) into blocks of a step. */
SIMD_INLINE void bf16_pack(bf16_matrix x, const bf16_blocks *o, const int64_t step)
{
    const int64_t full = step == GEMM_COLUMNS ? GEMM_COLUMNS : GEMM_ROWS;
    if (x.row != 1)
        bf16_pack_columns(x, o, step);
    else if (o->height == full)
        bf16_pack_rows(x, o, full, step);
    else
        bf16_pack_rows(x, o, o->height, step);
}

/* Columns [first, last) of b, [k, *], as panels of GEMM_COLUMNS. */
static inline void bf16_pack_panels(bf16_matrix b, int64_t first, int64_t last, int64_t k, T *out)
{
    const bf16_matrix x = bf16_at(b, 0, first), transposed = {x.data, x.wide, x.column, x.row};
    bf16_pack(transposed,
              &(bf16_blocks){last - first, k, GEMM_COLUMNS,
                             GEMM_COLUMNS * bf16_steps(k, BF16_EACH == 2), out},
              GEMM_COLUMNS);
}

/* As gemm_pack_blocks. */
static inline void bf16_pack_blocks(bf16_matrix a, int64_t all_rows, int64_t row, int64_t rows,
                                    int64_t k, T *out)
{
    const int64_t steps = bf16_steps(k, BF16_EACH == 2);
    for (int64_t s = 0; s < steps; s += GEMM_DEPTH) {
        const int64_t depth = steps - s < GEMM_DEPTH ? steps - s : GEMM_DEPTH;
        const int64_t p = BF16_EACH * s, left = k - p;
        bf16_pack(bf16_at(a, row, p),
                  &(bf16_blocks){rows, left < BF16_EACH * depth ? left : BF16_EACH * depth,
                                 GEMM_ROWS, GEMM_STEP * depth,
                                 out + gemm_block_at(all_rows, row, s, depth)},
                  GEMM_STEP);
    }
}

/* As gemm_prefetch. */
static inline void bf16_prefetch(bf16_matrix x, gemm_region region, int64_t from, int64_t to,
                                 int64_t all)
{
    const char *data = bf16_at(x, region.row, region.column).data;
    const int64_t size = x.wide ? 4 : 2;
    if (x.column == 1)
        gemm_prefetch_lists(data, region.rows, x.row * size, region.columns * size, from, to, all);
    else
        gemm_prefetch_lists(data, region.columns, x.column * size, region.rows * size, from, to,
                            all);
}

/* A tile of a product: as gemm_task. */
typedef struct bf16_task {
    int64_t m, n, k;
    bf16_matrix a, b;
    const T *panels;       /* all of B packed by bf16_pack_panels, or NULL */
    const T *blocks;       /* all rows of A packed by bf16_pack_blocks, or NULL */
    int64_t all_rows, row; /* with blocks: how many there are, and the first of this tile */
    void *c;
    bool wide; /* C is f32 */
    int64_t c_row;
    T *workspace; /* bf16_workspace elements, for no rows with blocks; and m n if C is bf16 */
    int64_t name;
    int64_t *panel_tag;
} bf16_task;

/* The tile with C in f32. */
static inline void bf16_tile_wide(const bf16_task *o, T *c, int64_t c_row)
{
    const int64_t steps = bf16_steps(o->k, BF16_EACH == 2);
    const int64_t height = o->blocks ? GEMM_ROWS : gemm_even_height(o->m);
    const int64_t blocks = ceil_div(o->m, height);
    T *corner = o->workspace, *panel = corner + GEMM_ROWS * GEMM_COLUMNS;
    T *packed_a = panel + GEMM_COLUMNS * (steps < GEMM_DEPTH ? steps : GEMM_DEPTH);
    const gemm_kernels whole = gemm_of_height(height),
                       last = gemm_of_height(o->m - (blocks - 1) * height);
    const bool fits = !o->blocks && blocks * GEMM_STEP * steps <= GEMM_PACKED;
    const bool packed = o->blocks || (fits && *o->panel_tag == o->name);
    if (!o->blocks) *o->panel_tag = fits ? o->name : 0;
    for (int64_t s = 0; s < steps; s += GEMM_DEPTH) {
        const int64_t depth = steps - s < GEMM_DEPTH ? steps - s : GEMM_DEPTH;
        const int64_t p = BF16_EACH * s, left = o->k - p;
        const int64_t numbers = left < BF16_EACH * depth ? left : BF16_EACH * depth;
        const T *piece = packed_a + (fits ? s * blocks * GEMM_STEP : 0);
        if (o->blocks) piece = o->blocks + gemm_block_at(o->all_rows, o->row, s, depth);
        if (!packed)
            bf16_pack(bf16_at(o->a, 0, p),
                      &(bf16_blocks){o->m, numbers, height, GEMM_STEP * depth, (T *)piece},
                      GEMM_STEP);
        for (int64_t j = 0; j < o->n; j += GEMM_COLUMNS) {
            const int64_t width = o->n - j < GEMM_COLUMNS ? o->n - j : GEMM_COLUMNS;
            const T *columns = panel;
            if (o->panels)
                columns = o->panels + j * steps + s * GEMM_COLUMNS;
            else
                bf16_pack_panels(bf16_at(o->b, p, 0), j, j + width, numbers, panel);
            gemm_region coming_b = {p, numbers, j + width, columns == panel ? o->n - j - width : 0};
            if (coming_b.columns > GEMM_COLUMNS) coming_b.columns = GEMM_COLUMNS;
            for (int64_t i = 0; i < o->m; i += height) {
                const int64_t rows = o->m - i < height ? o->m - i : height;
                if (coming_b.columns) bf16_prefetch(o->b, coming_b, i, i + rows, o->m);
                const gemm_block block = {.k = depth,
                                          .a = piece + i / height * GEMM_STEP * depth,
                                          .b = columns,
                                          .b_step = GEMM_COLUMNS,
                                          .c = c + i * c_row + j,
                                          .c_row = c_row,
                                          .add = s > 0};
                gemm_write_block(rows == height ? whole : last, block, rows, width, corner);
            }
        }
    }
}

static inline void bf16_tile(const bf16_task *o)
{
    if (o->wide) {
        bf16_tile_wide(o, o->c, o->c_row);
        return;
    }
    T *c = o->workspace + bf16_workspace(o->blocks ? 0 : o->m, o->k, BF16_EACH == 2);
    bf16_tile_wide(o, c, o->n);
    for (int64_t i = 0; i < o->m; i++)
        half_narrow(c + i * o->n, (uint16_t *)o->c + i * o->c_row, o->n);
}

#endif
#endif
