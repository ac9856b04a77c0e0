/* The GEMM kernel of one thread, C = A B. Time O(m n k).
 *
 * After Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008. A block of
 * rows of A is packed into the second-level cache, columns of B into panels as wide as two vectors,
 * and the micro-kernel holds GEMM_ROWS x GEMM_COLUMNS sums in registers: per step of k it reads two
 * vectors of B and one element for each row of A. The sums of chains of k (SIMD_CHAIN) are added in
 * C in order, so that the result does not depend on how C is cut into tiles, nor on the pieces of
 * GEMM_DEPTH in which k is packed. */
#ifndef WEFT_OPS_KERNELS_GEMM_KERNEL_H
#define WEFT_OPS_KERNELS_GEMM_KERNEL_H

#include "simd.h"

/* Rows of a tile that fill the second-level cache with GEMM_DEPTH columns of A. */
#define GEMM_TILE_ROWS 84
#define GEMM_DEEP_ROWS 168
/* The rows of a tile are a multiple of this, the height of the kernel with the widest vectors. */
#define GEMM_EVEN_ROWS 14
#define GEMM_DEPTH     768
/* With the widest vectors: elements of a row of a panel of B, of a step of a packed block of A, and
 * of a corner of C. */
#define GEMM_MAX_WIDTH 32
#define GEMM_MAX_STEP  16
#define GEMM_CORNER    (14 * GEMM_MAX_WIDTH)
/* Elements of packed rows of A that stay in a workspace for the next tile, at most. */
#define GEMM_PACKED ((GEMM_DEEP_ROWS * 3 / 2 / 6 + 1) * 8 * GEMM_DEPTH)

/* Elements of the workspace of gemm_tile for `rows` rows of A, which it packs, and k steps, with
 * any instruction set: a corner of C, a panel of B, and the rows. It grows with both numbers. */
static inline int64_t gemm_workspace(int64_t rows, int64_t k)
{
    const int64_t low = ceil_div(rows, 6) * 8, high = ceil_div(rows, 14) * GEMM_MAX_STEP;
    const int64_t packed = (low > high ? low : high) * k;
    const int64_t elements = GEMM_CORNER + GEMM_MAX_WIDTH * (k < GEMM_DEPTH ? k : GEMM_DEPTH) +
                             (packed < GEMM_PACKED ? packed : GEMM_PACKED);
    return ceil_div(elements, 16) * 16;
}

/* Elements that `rows` rows of A take for each step of k, packed at the height that wastes most. */
static inline int64_t gemm_packed_rows(int64_t rows)
{
    return (rows / 6 + 1) * 8;
}

#ifdef WEFT_KERNEL_ISA

/* A file that defines GEMM_BF16 multiplies bf16: f32 that hold it, or, on a processor that has dot
 * products of it, pairs, each packed as one T, which are a step of k. */
#ifdef GEMM_BF16
#include "pairs.h"
#endif
#if defined(GEMM_BF16) && defined(__AVX512BF16__)
#define GEMM_PAIRS
#define gemm_add_product pairs_add_pairs
#define GEMM_CHAIN       SIMD_CHAIN /* steps */
#elif defined(GEMM_BF16)
#define gemm_add_product pairs_add_numbers
#define GEMM_CHAIN       PAIRS_CHAIN
#else
#define gemm_add_product simd_add_product
#define GEMM_CHAIN       SIMD_CHAIN
#endif

/* Rows of the block of sums in registers, which is two vectors wide; the heights that have a
 * kernel; rows and columns whose dot products are summed side by side. */
#if SIMD_REGISTERS == 32
#define GEMM_ROWS    14
#define GEMM_EACH(X) X(1) X(2) X(4) X(6) X(8) X(10) X(12) X(14)
#else
#define GEMM_ROWS    6
#define GEMM_EACH(X) X(1) X(2) X(4) X(6)
#endif
/* Each dot product takes SIMD_PARTS registers. */
#define GEMM_DOTS    (SIMD_BYTES == 64 ? 4 : 2)
#define GEMM_COLUMNS (2 * SIMD_LANES)
/* Columns that a product of one row computes together, in half of the registers at most. */
#define GEMM_WIDE (8 * SIMD_LANES)
/* Rows of B that are prefetched ahead of their use: where rows lie pages apart, as those of an
 * unpacked matrix do, the processor does not prefetch them itself. */
#define GEMM_AHEAD 32
/* The same, where rows are copied. */
#define GEMM_COPY_AHEAD 16
/* From one step of k to the next in a packed block of A. */
#define GEMM_STEP ((GEMM_ROWS + 3) / 4 * 4)

/* Element (i, j) lies at data[i * row + j * column]; one of the two strides is 1. */
typedef struct gemm_matrix {
    const T *data;
    int64_t row, column;
} gemm_matrix;

/* ---- The micro-kernel ---- */

/* C [height, GEMM_COLUMNS] (+)= a packed block of A times a panel of B, over k steps. */
typedef struct gemm_block {
    int64_t k;
    const T *a, *b;
    int64_t b_step; /* from row to row of B */
    T *c;
    int64_t c_row;
    bool add;       /* to what C holds */
    const T *first; /* that many rows' first terms, if nothing is added to C; NULL: zeros */
} gemm_block;

/* Height and vectors are constants at every call. */
SIMD_INLINE void gemm_sums(const int height, const int vectors, gemm_block o)
{
    do { /* also once for a depth of 0 */
        const int64_t chain = o.k < GEMM_CHAIN ? o.k : GEMM_CHAIN;
        simd_vector sum[GEMM_ROWS * 2];
        SIMD_UNROLL(32)
        for (int i = 0; i < vectors * height; i++) sum[i] = (simd_vector){0};
        if (o.first) {
            SIMD_UNROLL(32)
            for (int i = 0; i < vectors * height; i++) sum[i] += o.first[i / vectors];
        }
#ifdef GEMM_BF16
        o.b_step = GEMM_COLUMNS; /* B is always packed */
#endif
        gemm_add_product(height, vectors, GEMM_AHEAD,
                         (simd_operands){o.a, o.b, 1, GEMM_STEP, o.b_step, chain}, sum);
        SIMD_UNROLL(16)
        for (int i = 0; i < height; i++) {
            SIMD_UNROLL(2)
            for (int v = 0; v < vectors; v++) {
                simd_vector *out = (simd_vector *)(o.c + i * o.c_row + v * SIMD_LANES);
                if (o.add) sum[vectors * i + v] += *out;
#ifdef GEMM_BF16
                sum[vectors * i + v] = simd_flush(sum[vectors * i + v]);
#endif
                *out = sum[vectors * i + v];
            }
        }
        o.a += chain * GEMM_STEP;
        o.b += chain * o.b_step;
        o.k -= chain;
        o.add = true;
        o.first = NULL;
    } while (o.k > 0);
}

/* The fields of gemm_block as arguments, so that they stay in registers: where k is small a call
 * through memory costs several per cent. */
typedef void gemm_function(int64_t k, const T *a, const T *b, int64_t b_step, T *c, int64_t c_row,
                           bool add, const T *first);
#define GEMM_DEFINE(height)                                                                        \
    static __attribute__((noinline)) void gemm_sums_##height(int64_t k, const T *a, const T *b,    \
                                                             int64_t b_step, T *c, int64_t c_row,  \
                                                             bool add, const T *first)             \
    {                                                                                              \
        gemm_sums(height, 2, (gemm_block){k, a, b, b_step, c, c_row, add, first});                 \
    }                                                                                              \
    static __attribute__((noinline)) void gemm_narrow_##height(                                    \
        int64_t k, const T *a, const T *b, int64_t b_step, T *c, int64_t c_row, bool add,          \
        const T *first)                                                                            \
    {                                                                                              \
        gemm_sums(height, 1, (gemm_block){k, a, b, b_step, c, c_row, add, first});                 \
    }
GEMM_EACH(GEMM_DEFINE)
#undef GEMM_DEFINE

/* The kernels of one height: of a whole panel, and of its first vector alone. */
typedef struct gemm_kernels {
    gemm_function *whole, *narrow;
} gemm_kernels;

/* The kernels of the smallest height that takes `rows` rows, and its height. */
static inline gemm_kernels gemm_of_height(int64_t rows)
{
#define GEMM_FIND(height)                                                                          \
    if (rows <= height) return (gemm_kernels){gemm_sums_##height, gemm_narrow_##height};
    GEMM_EACH(GEMM_FIND)
#undef GEMM_FIND
    return (gemm_kernels){NULL, NULL};
}

static inline int64_t gemm_height(int64_t rows)
{
#define GEMM_FIND(height)                                                                          \
    if (rows <= height) return height;
    GEMM_EACH(GEMM_FIND)
#undef GEMM_FIND
    return 0;
}

/* The height of blocks of about equal height that cover `rows` rows. It has a kernel, so that
 * blocks are written straight to C. */
static inline int64_t gemm_even_height(int64_t rows)
{
    return rows ? gemm_height(ceil_div(rows, ceil_div(rows, GEMM_ROWS))) : 1;
}

/* ---- Packing ---- */

/* Blocks of `height` rows of x [rows, k], whose element (i, p) lies at x[i * inner + p * outer], go
 * to out[i / height * block + p * step + i % height]. What lies between height and step is not
 * written. */
typedef struct gemm_packing {
    const T *x;
    int64_t inner, outer;
    int64_t rows, height, k;
    T *out;
    int64_t block, step;
} gemm_packing;

/* out[p * step + i] = x[i * row + p] for `rows` rows, four by four, so that both sides are vectors.
 * The step is a constant at every call. */
SIMD_INLINE void gemm_transpose(const T *x, int64_t row, int64_t rows, int64_t k, T *out,
                                const int64_t step)
{
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
            /* A cache line of one of the next four rows. */
            __builtin_prefetch(from + (4 + p / 4 % 4) * row + p / LINE * LINE);
            simd_transpose_four(from + p, row, out + p * step + i, step);
        }
        for (; p < k; p++)
            for (int64_t q = 0; q < 4; q++) out[p * step + i + q] = from[q * row + p];
    }
}

/* Where inner is 1, all blocks at once, so that a cache line is read once. */
SIMD_INLINE void gemm_copy(const int64_t height, const gemm_packing *o)
{
    for (int64_t p = 0; p < o->k; p++) {
        const T *from = o->x + p * o->outer, *ahead = from + GEMM_COPY_AHEAD * o->outer;
        for (int64_t i = 0; i < o->rows + LINE - 1; i += LINE) __builtin_prefetch(ahead + i);
        int64_t i = 0;
        T *to = o->out + p * o->step;
        for (; i + height <= o->rows; i += height, to += o->block)
            memcpy(to, from + i, (size_t)height * sizeof *to);
        if (i < o->rows) memcpy(to, from + i, (size_t)(o->rows - i) * sizeof *to);
    }
}

static inline void gemm_pack(const gemm_packing *o)
{
    if (o->inner == 1 && o->height == GEMM_ROWS)
        gemm_copy(GEMM_ROWS, o);
    else if (o->inner == 1 && o->height == GEMM_COLUMNS)
        gemm_copy(GEMM_COLUMNS, o);
    else if (o->inner == 1)
        gemm_copy(o->height, o);
    else
        for (int64_t i = 0; i < o->rows; i += o->height) {
            const T *x = o->x + i * o->inner;
            T *out = o->out + i / o->height * o->block;
            const int64_t rows = o->rows - i < o->height ? o->rows - i : o->height;
            if (o->step == GEMM_COLUMNS)
                gemm_transpose(x, o->inner, rows, o->k, out, GEMM_COLUMNS);
            else
                gemm_transpose(x, o->inner, rows, o->k, out, GEMM_STEP);
        }
}

/* Columns [first, last) of b, [k, *], as panels of GEMM_COLUMNS. */
static inline void gemm_pack_panels(const gemm_matrix *b, int64_t first, int64_t last, int64_t k,
                                    T *out)
{
    gemm_pack(&(gemm_packing){.x = b->data + first * b->column,
                              .inner = b->column,
                              .outer = b->row,
                              .rows = last - first,
                              .height = GEMM_COLUMNS,
                              .k = k,
                              .out = out,
                              .block = GEMM_COLUMNS * k,
                              .step = GEMM_COLUMNS});
}

/* A block of a matrix that is packed next. */
typedef struct gemm_region {
    int64_t row, rows, column, columns;
} gemm_region;

/* Prefetches the part [from, to) of `all` of `lists` lists of `bytes` bytes, `apart` bytes apart,
 * so that they arrive while sums are computed. */
static inline void gemm_prefetch_lists(const char *data, int64_t lists, int64_t apart,
                                       int64_t bytes, int64_t from, int64_t to, int64_t all)
{
    const int64_t across = ceil_div(bytes, 64);
    int64_t at = lists * across * from / all, end = lists * across * to / all;
    int64_t i = at / across, j = at % across;
    for (; at < end; at++) {
        __builtin_prefetch(data + i * apart + j * 64, 0, 2);
        if (++j < across) continue;
        j = 0;
        i++;
    }
}

/* The same of a region of a matrix. */
static inline void gemm_prefetch(const gemm_matrix *x, gemm_region region, int64_t from, int64_t to,
                                 int64_t all)
{
    const T *data = x->data + region.row * x->row + region.column * x->column;
    const int64_t size = sizeof *data;
    if (x->column == 1)
        gemm_prefetch_lists((const char *)data, region.rows, x->row * size, region.columns * size,
                            from, to, all);
    else
        gemm_prefetch_lists((const char *)data, region.columns, x->column * size,
                            region.rows * size, from, to, all);
}

/* ---- Products ---- */

/* C [m, n] = A [m, k] B [k, n] where rows of A and columns of B are dense: each element is a dot
 * product of two of them, also summed over pieces of GEMM_DEPTH. For so few rows that packing B
 * would cost more than it gains. Not inlined: inside a larger function the sums do not stay in
 * registers. */
static __attribute__((noinline, unused)) void gemm_dots(int64_t m, int64_t n, int64_t k,
                                                        const gemm_matrix *a, const gemm_matrix *b,
                                                        T *c, int64_t c_row)
{
    for (int64_t j = 0; j < n; j += GEMM_DOTS)
        for (int64_t i = 0; i < m; i += GEMM_DOTS) {
            const T *rows[GEMM_DOTS], *columns[GEMM_DOTS];
            simd_vector total[GEMM_DOTS][GEMM_DOTS][SIMD_PARTS];
            const int64_t whole = k - k % SIMD_SPAN;
            /* At the edges the last row or column replaces missing ones. */
            for (int q = 0; q < GEMM_DOTS; q++) {
                rows[q] = a->data + (i + q < m ? i + q : m - 1) * a->row;
                columns[q] = b->data + (j + q < n ? j + q : n - 1) * b->column;
                for (int r = 0; r < GEMM_DOTS * SIMD_PARTS; r++)
                    total[q][r / SIMD_PARTS][r % SIMD_PARTS] = (simd_vector){0};
            }
            for (int64_t p = 0; p < whole;) {
                const int64_t end = whole - p < GEMM_DEPTH ? whole : p + GEMM_DEPTH;
                simd_vector sum[GEMM_DOTS][GEMM_DOTS][SIMD_PARTS];
                for (int q = 0; q < GEMM_DOTS; q++)
                    for (int r = 0; r < GEMM_DOTS; r++)
                        for (int v = 0; v < SIMD_PARTS; v++) sum[q][r][v] = (simd_vector){0};
                for (; p < end; p += SIMD_SPAN) {
                    SIMD_UNROLL(4)
                    for (int v = 0; v < SIMD_PARTS; v++) {
                        const int64_t at = p + v * SIMD_LANES;
                        simd_vector y[GEMM_DOTS];
                        SIMD_UNROLL(4)
                        for (int r = 0; r < GEMM_DOTS; r++)
                            y[r] = *(const simd_vector *)(columns[r] + at);
                        SIMD_UNROLL(4)
                        for (int q = 0; q < GEMM_DOTS; q++) {
                            const simd_vector x = *(const simd_vector *)(rows[q] + at);
                            SIMD_UNROLL(4)
                            for (int r = 0; r < GEMM_DOTS; r++)
                                sum[q][r][v] = simd_fma(x, y[r], sum[q][r][v]);
                        }
                    }
                }
                for (int q = 0; q < GEMM_DOTS; q++)
                    for (int r = 0; r < GEMM_DOTS; r++)
                        for (int v = 0; v < SIMD_PARTS; v++) total[q][r][v] += sum[q][r][v];
            }
            for (int64_t q = 0; q < GEMM_DOTS && i + q < m; q++)
                for (int64_t r = 0; r < GEMM_DOTS && j + r < n; r++) {
                    T dot = simd_sum(total[q][r]);
                    for (int64_t t = whole; t < k; t++) dot = FMA(rows[q][t], columns[r][t], dot);
                    c[(i + q) * c_row + j + r] = dot;
                }
        }
}

#ifndef GEMM_BF16
/* One row: c [GEMM_WIDE] (+)= a B, in the order of the micro-kernel. B is read only once, so memory
 * bandwidth is the limit: wide rows of it are read faster. */
static __attribute__((noinline)) void gemm_row(int64_t k, const T *a, int64_t a_step, const T *b,
                                               int64_t b_step, T *c, bool add)
{
    for (; k > 0; k -= SIMD_CHAIN, a += SIMD_CHAIN * a_step, b += SIMD_CHAIN * b_step, add = true) {
        simd_vector sum[GEMM_WIDE / SIMD_LANES];
        SIMD_UNROLL(16)
        for (int v = 0; v < GEMM_WIDE / SIMD_LANES; v++) sum[v] = (simd_vector){0};
        simd_add_product(1, GEMM_WIDE / SIMD_LANES, GEMM_AHEAD / 4,
                         (simd_operands){a, b, 1, a_step, b_step, k < SIMD_CHAIN ? k : SIMD_CHAIN},
                         sum);
        SIMD_UNROLL(16)
        for (int v = 0; v < GEMM_WIDE / SIMD_LANES; v++) {
            simd_vector *out = (simd_vector *)(c + v * SIMD_LANES);
            if (add) sum[v] += *out;
            *out = sum[v];
        }
    }
}
#endif

/* A tile of a product: C [m, n] = A [m, k] B [k, n] for m <= 3/2 GEMM_DEEP_ROWS. */
typedef struct gemm_task {
    int64_t m, n, k;
    gemm_matrix a, b;
    const T *panels;       /* all of B packed by gemm_pack_panels, or NULL */
    const T *blocks;       /* all rows of A packed by gemm_pack_blocks, or NULL */
    int64_t all_rows, row; /* with blocks: how many there are, and the first of this tile */
    bool direct;           /* without panels: B, whose rows are dense, is read as it lies */
    T *c;
    int64_t c_row;
    bool add;     /* to what C holds */
    T *workspace; /* gemm_workspace elements, for no rows with blocks */
    int64_t name; /* of these rows of A; the packed-panel tag of a workspace that holds them */
    int64_t *panel_tag;
    bool next; /* as many rows of A follow these, and are likely to be multiplied next */
} gemm_task;

/* Packs rows [0, m) of columns [p, p + depth) of A. */
static inline void gemm_pack_rows(const gemm_task *o, int64_t p, int64_t depth, int64_t height,
                                  T *out)
{
    gemm_pack(&(gemm_packing){.x = o->a.data + p * o->a.column,
                              .inner = o->a.row,
                              .outer = o->a.column,
                              .rows = o->m,
                              .height = height,
                              .k = depth,
                              .out = out,
                              .block = GEMM_STEP * depth,
                              .step = GEMM_STEP});
}

/* Where blocks of GEMM_ROWS rows of A lie that are packed once for all tiles: those from `row` on,
 * of the piece of k that begins at p. The rows of a piece lie side by side. */
static inline int64_t gemm_block_at(int64_t all_rows, int64_t row, int64_t p, int64_t depth)
{
    return (ceil_div(all_rows, GEMM_ROWS) * p + row / GEMM_ROWS * depth) * GEMM_STEP;
}

/* Packs rows [row, row + rows) of a, [all_rows, k]; row is a multiple of GEMM_ROWS. */
static inline void gemm_pack_blocks(const gemm_matrix *a, int64_t all_rows, int64_t row,
                                    int64_t rows, int64_t k, T *out)
{
    for (int64_t p = 0; p < k; p += GEMM_DEPTH) {
        const int64_t depth = k - p < GEMM_DEPTH ? k - p : GEMM_DEPTH;
        const gemm_task task = {.m = rows,
                                .a = {a->data + row * a->row + p * a->column, a->row, a->column}};
        gemm_pack_rows(&task, 0, depth, GEMM_ROWS, out + gemm_block_at(all_rows, row, p, depth));
    }
}

/* One block of sums of `rows` rows, of which `width` columns are in C. Kernels write whole vectors
 * and as many rows as they have: at the edges the block goes through `corner`. */
SIMD_INLINE void gemm_write_block(gemm_kernels sums, const gemm_block o, int64_t rows,
                                  int64_t width, T *corner)
{
    const bool narrow = width <= SIMD_LANES;
    gemm_function *kernel = narrow ? sums.narrow : sums.whole;
    if (width == (narrow ? SIMD_LANES : GEMM_COLUMNS) && gemm_height(rows) == rows) {
        kernel(o.k, o.a, o.b, o.b_step, o.c, o.c_row, o.add, o.first);
        return;
    }
    for (int64_t r = 0; o.add && r < rows; r++)
        memcpy(corner + r * GEMM_COLUMNS, o.c + r * o.c_row, (size_t)width * sizeof(T));
    kernel(o.k, o.a, o.b, o.b_step, corner, GEMM_COLUMNS, o.add, o.first);
    for (int64_t r = 0; r < rows; r++)
        memcpy(o.c + r * o.c_row, corner + r * GEMM_COLUMNS, (size_t)width * sizeof(T));
}

static inline void gemm_tile(const gemm_task *given)
{
    const gemm_task o = *given;
    const int64_t m = o.m, n = o.n, k = o.k;
    const int64_t height = o.blocks ? GEMM_ROWS : gemm_even_height(m);
    const int64_t blocks = ceil_div(m, height);
    T *corner = o.workspace, *panel = corner + GEMM_ROWS * GEMM_COLUMNS;
    T *packed_a = panel + GEMM_COLUMNS * (k < GEMM_DEPTH ? k : GEMM_DEPTH);
    const gemm_kernels whole = gemm_of_height(height),
                       last = gemm_of_height(m - (blocks - 1) * height);
    /* All pieces of A side by side where they fit, so that they last for the next tile. */
    const bool fits = !o.blocks && blocks * GEMM_STEP * k <= GEMM_PACKED;
    const bool packed = o.blocks || (fits && *o.panel_tag == o.name);
    if (!o.blocks) *o.panel_tag = fits ? o.name : 0;
    for (int64_t p = 0; p < k; p += GEMM_DEPTH) {
        const int64_t depth = k - p < GEMM_DEPTH ? k - p : GEMM_DEPTH;
        /* What is packed next: the next piece of these rows, or the first one of the next rows. */
        const bool more = !packed && p + GEMM_DEPTH < k;
        const bool soon = more || (o.next && p + GEMM_DEPTH >= k);
        gemm_region coming_a = {more ? 0 : m, m, more ? p + GEMM_DEPTH : 0, 0};
        coming_a.columns = k - coming_a.column < GEMM_DEPTH ? k - coming_a.column : GEMM_DEPTH;
        const T *piece = packed_a + (fits ? p * blocks * GEMM_STEP : 0);
        if (o.blocks) piece = o.blocks + gemm_block_at(o.all_rows, o.row, p, depth);
        if (!packed) gemm_pack_rows(&o, p, depth, height, (T *)piece);
        int64_t j = 0;
#ifndef GEMM_BF16
        for (; m == 1 && o.direct && n - j >= GEMM_WIDE; j += GEMM_WIDE)
            gemm_row(depth, piece, GEMM_STEP, o.b.data + p * o.b.row + j, o.b.row, o.c + j,
                     o.add || p > 0);
#endif
        for (; j < n; j += GEMM_COLUMNS) {
            int64_t width = n - j < GEMM_COLUMNS ? n - j : GEMM_COLUMNS, b_step = GEMM_COLUMNS;
            if (soon) gemm_prefetch(&o.a, coming_a, j, j + width, n);
            const T *columns = panel;
            if (o.panels) {
                columns = o.panels + j * k + p * GEMM_COLUMNS;
            } else if (o.direct && width == GEMM_COLUMNS) {
                columns = o.b.data + p * o.b.row + j;
                b_step = o.b.row;
            } else {
                const gemm_matrix rest = {o.b.data + p * o.b.row, o.b.row, o.b.column};
                gemm_pack_panels(&rest, j, j + width, depth, panel);
            }
            gemm_region coming_b = {p, depth, j + width, columns == panel ? n - j - width : 0};
            if (coming_b.columns > GEMM_COLUMNS) coming_b.columns = GEMM_COLUMNS;
            for (int64_t i = 0; i < m; i += height) {
                const int64_t rows = m - i < height ? m - i : height;
                if (coming_b.columns) gemm_prefetch(&o.b, coming_b, i, i + rows, m);
                const gemm_block block = {.k = depth,
                                          .a = piece + i / height * GEMM_STEP * depth,
                                          .b = columns,
                                          .b_step = b_step,
                                          .c = o.c + i * o.c_row + j,
                                          .c_row = o.c_row,
                                          .add = o.add || p > 0};
                gemm_write_block(rows == height ? whole : last, block, rows, width, corner);
            }
        }
    }
}

#endif
#endif
