/* Products with a matrix B [k, n] whose columns lie in panels (ops/matmul/panels.c), C = A B, by
 * one thread. Time O(m n k).
 *
 * A is not packed: its rows lie at equal distances, and the micro-kernel reads an element of each
 * row where it lies. k may run over several places of A, as it does over the taps of a kernel in an
 * image. The sums of chains of k are added in C in order, as in gemm_kernel.h: both kernels compute
 * the same bits. A piece of a panel stays in the second-level
 * cache while all rows of a tile pass over it. */
#ifndef WEFT_OPS_KERNELS_PANEL_KERNEL_H
#define WEFT_OPS_KERNELS_PANEL_KERNEL_H

#include "gemm_kernel.h"
#include "panel.h"

/* ---- Tiles, from shapes alone ---- */

#define PANEL_TILES     16  /* wanted */
#define PANEL_ROWS      200 /* of a tile: GEMM_DEPTH columns of them fit the second-level cache */
#define PANEL_MIN_FLOPS 1e6 /* of a tile */

typedef struct panel_tiles {
    int64_t tiles_m, tiles_n, tile_n;
} panel_tiles;

/* How many tiles A [m, k] B [k, n] is cut into. Tall tiles read B less often, so columns are cut
 * first where there are too few of them. m and n are not 0. */
static inline panel_tiles panel_tiles_of(int64_t m, int64_t k, int64_t n)
{
    const double row = 2.0 * (double)k * (double)n, affordable = (double)m * row / PANEL_MIN_FLOPS;
    const int64_t panels = panel_count(n);
    int64_t wanted = affordable < PANEL_TILES ? (int64_t)affordable : PANEL_TILES;
    int64_t rows = row * PANEL_ROWS < PANEL_MIN_FLOPS && row > 0 ? (int64_t)(PANEL_MIN_FLOPS / row)
                                                                 : PANEL_ROWS;
    if (wanted < 1) wanted = 1;
    panel_tiles t = {.tiles_m = ceil_div(m, rows)};
    t.tiles_n = ceil_div(wanted, t.tiles_m);
    if (t.tiles_n > panels) t.tiles_n = panels;
    t.tile_n = ceil_div(panels, t.tiles_n) * PANEL;
    t.tiles_n = ceil_div(n, t.tile_n);
    if (t.tiles_m * t.tiles_n < wanted) t.tiles_m = ceil_div(wanted, t.tiles_n);
    return t;
}

#ifdef WEFT_KERNEL_ISA

/* ---- The micro-kernel ---- */

/* Where the elements of a row of A lie: for each line and tap, a run of dense elements. */
typedef struct panel_runs {
    int64_t run, taps;           /* elements of a run; runs of a line */
    int64_t tap_step, line_step; /* from one to the next */
} panel_runs;

/* A piece of k: it begins with the last `first` elements or fewer of a run. */
typedef struct panel_piece {
    panel_runs runs;
    int64_t depth, line, tap, skip, first;
} panel_piece;

static inline panel_piece panel_piece_at(const panel_runs *r, int64_t k, int64_t depth)
{
    const int64_t run = r->run ? k / r->run : 0, skip = k - run * r->run;
    return (panel_piece){.runs = *r,
                         .depth = depth,
                         .line = run / r->taps,
                         .tap = run % r->taps,
                         .skip = skip,
                         .first = depth < r->run - skip ? depth : r->run - skip};
}

/* C [height, vectors] (+)= rows of A times columns of a panel. */
typedef struct panel_block {
    const panel_piece *piece;
    const T *a, *b;
    int64_t a_row;
    T *c;
    int64_t c_row;
    bool add;         /* to what C holds */
    const T *first;   /* the columns' first terms, if nothing is added to C; NULL: zeros */
    const T *bounds;  /* of the sums: the least and the greatest; NULL: none */
    const char *next; /* prefetched into the second-level cache, next_step bytes a step of k */
    int64_t next_step;
} panel_block;

/* The sums that fit the registers: of all vectors of a panel for a few rows, else of two. */
#define PANEL_SUMS            (GEMM_ROWS * 2)
#define PANEL_VECTORS         ((int)(PANEL / SIMD_LANES))
#define PANEL_WIDTH(height)   ((height)*PANEL_VECTORS <= PANEL_SUMS ? PANEL_VECTORS : 2)
#define PANEL_COLUMNS(height) (PANEL_WIDTH(height) * SIMD_LANES)

/* A run of k. */
typedef struct panel_operands {
    const T *a, *b;
    int64_t a_row, depth;
    const char *next;
    int64_t next_step;
} panel_operands;

/* Adds the products of a run to the sums. Each pointer serves three rows, as far as an address of
 * x86 can reach with one register for the distance; the compiler must not know that they lie at
 * equal distances, or it keeps an address for each row, for which there are too few registers. */
SIMD_INLINE void panel_add(const int height, const int vectors, const panel_operands *given,
                           simd_vector *sum)
{
    const panel_operands o = *given;
    const T *a[(GEMM_ROWS + 2) / 3], *b = o.b;
    const char *next = o.next;
    SIMD_UNROLL(5)
    for (int g = 0; 3 * g < height; g++) {
        a[g] = o.a + 3 * g * o.a_row;
        __asm__("" : "+r"(a[g]));
    }
    for (int64_t k = 0; k < o.depth; k++, b += PANEL) {
        simd_vector row[PANEL_VECTORS];
        __builtin_prefetch(next, 0, 2);
        next += o.next_step;
        SIMD_UNROLL(16)
        for (int v = 0; v < vectors; v++) row[v] = *(const simd_vector *)(b + v * SIMD_LANES);
        SIMD_UNROLL(16)
        for (int r = 0; r < height; r++) {
            /* Broadcast once: otherwise each vector of the row loads the element again. */
            const simd_vector x = a[r / 3][r % 3 * o.a_row + k] - (simd_vector){0};
            SIMD_UNROLL(16)
            for (int v = 0; v < vectors; v++)
                sum[r * vectors + v] = simd_fma(x, row[v], sum[r * vectors + v]);
        }
    }
}

/* Height and vectors are constants at every call. */
SIMD_INLINE void panel_sums(const int height, const int vectors, const panel_block *given)
{
    const panel_block o = *given;
    const panel_piece p = *o.piece;
    const T *line = o.a + p.line * p.runs.line_step;
    const T *a = line + p.tap * p.runs.tap_step + p.skip, *b = o.b;
    const char *next = o.next;
    int64_t left = p.depth, run = p.first, tap = p.tap; /* run: the rest of this one */
    bool add = o.add;
    do { /* also once for a depth of 0 */
        int64_t chain = left < SIMD_CHAIN ? left : SIMD_CHAIN;
        simd_vector sum[PANEL_SUMS];
        SIMD_UNROLL(32)
        for (int i = 0; i < vectors * height; i++) sum[i] = (simd_vector){0};
        if (o.first && left == p.depth) {
            SIMD_UNROLL(32)
            for (int i = 0; i < vectors * height; i++)
                sum[i] += *(const simd_vector *)(o.first + i % vectors * SIMD_LANES);
        }
        left -= chain;
        for (;;) {
            const int64_t n = run < chain ? run : chain;
            panel_add(height, vectors, &(panel_operands){a, b, o.a_row, n, next, o.next_step}, sum);
            chain -= n;
            run -= n;
            next += n * o.next_step;
            b += n * PANEL;
            a += n;
            if (run == 0) {
                run = p.runs.run;
                if (++tap == p.runs.taps) {
                    tap = 0;
                    line += p.runs.line_step;
                }
                a = line + tap * p.runs.tap_step;
            }
            if (chain == 0) break;
        }
        SIMD_UNROLL(16)
        for (int i = 0; i < height; i++) {
            SIMD_UNROLL(16)
            for (int v = 0; v < vectors; v++) {
                simd_vector *out = (simd_vector *)(o.c + i * o.c_row + v * SIMD_LANES);
                simd_vector *x = &sum[vectors * i + v];
                if (add) *x += *out;
                if (o.bounds && left == 0) *x = simd_bound(*x, o.bounds[0], o.bounds[1]);
                *out = *x;
            }
        }
        add = true;
    } while (left > 0);
}

#if SIMD_REGISTERS == 32
#define PANEL_EACH(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#else
#define PANEL_EACH(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

#define PANEL_DEFINE(height)                                                                       \
    static __attribute__((noinline)) void panel_sums_##height(const panel_block *o)                \
    {                                                                                              \
        panel_sums(height, PANEL_WIDTH(height), o);                                                \
    }                                                                                              \
    static __attribute__((noinline)) void panel_narrow_##height(const panel_block *o)              \
    {                                                                                              \
        panel_sums(height, 1, o);                                                                  \
    }
PANEL_EACH(PANEL_DEFINE)
#undef PANEL_DEFINE

/* The kernels of one height: of `columns` columns, and of one vector. */
typedef void panel_function(const panel_block *o);
typedef struct panel_kernels {
    panel_function *whole, *narrow;
    int64_t columns;
} panel_kernels;

static inline panel_kernels panel_of_height(int64_t height)
{
    static const panel_kernels kernels[] = {
#define PANEL_ROW(height)                                                                          \
    [height] = {panel_sums_##height, panel_narrow_##height, PANEL_COLUMNS(height)},
        PANEL_EACH(PANEL_ROW)
#undef PANEL_ROW
    };
    return kernels[height];
}

/* ---- A tile ---- */

/* C [images * lines * width, columns] = A B; C is dense except for the distance of its rows. */
typedef struct panel_task {
    const T *a;
    int64_t images, lines, width;
    int64_t image_step, line_step, a_row; /* in A, from one to the next */
    panel_runs runs;
    int64_t depth;
    const T *panels;
    int64_t columns;
    bool more;       /* more panels follow, which are likely to be read next */
    const T *bias;   /* NULL: none */
    const T *bounds; /* of C: the least and the greatest; NULL: none */
    T *c;
    int64_t c_row;
} panel_task;

/* `rows` rows of one panel. Kernels write whole vectors: at the edge a block goes through `corner`.
 */
static inline void panel_write(panel_block o, int64_t rows, int64_t columns)
{
    T corner[GEMM_ROWS * PANEL];
    const panel_kernels kernels = panel_of_height(rows);
    for (int64_t j = 0; j < columns; j += kernels.columns) {
        const int64_t left = columns - j;
        const bool narrow = left <= SIMD_LANES;
        const int64_t width = narrow ? SIMD_LANES : kernels.columns;
        panel_block block = o;
        block.b += j;
        block.c += j;
        if (o.first) block.first += j;
        if (left < width) {
            block.c = corner;
            block.c_row = PANEL;
            for (int64_t r = 0; o.add && r < rows; r++)
                memcpy(corner + r * PANEL, o.c + r * o.c_row + j, (size_t)left * sizeof(T));
        }
        (narrow ? kernels.narrow : kernels.whole)(&block);
        for (int64_t r = 0; left < width && r < rows; r++)
            memcpy(o.c + r * o.c_row + j, corner + r * PANEL, (size_t)left * sizeof(T));
    }
}

/* All rows of a tile and one panel of which `columns` are in C. Each block of rows prefetches its
 * part of the piece of a panel that comes next. */
static void panel_multiply(const panel_task *o, panel_block block, int64_t columns, const T *next)
{
    const int64_t across = ceil_div(o->width, GEMM_ROWS), blocks = o->images * o->lines * across;
    block.next = (const char *)(next ? next : block.b);
    block.next_step = next ? ceil_div(PANEL * (int64_t)sizeof(T), blocks) : 0;
    for (int64_t i = 0; i < o->images; i++)
        for (int64_t l = 0; l < o->lines; l++)
            for (int64_t q = 0; q < across; q++) {
                const int64_t from = o->width * q / across, to = o->width * (q + 1) / across;
                block.a = o->a + i * o->image_step + l * o->line_step + from * o->a_row;
                panel_write(block, to - from, columns);
                block.c += (to - from) * block.c_row;
                block.next += block.piece->depth * block.next_step;
            }
}

static void panel_tile(const panel_task *o)
{
    int64_t k = 0;
    do { /* also once for a depth of 0 */
        const int64_t left = o->depth - k, depth = left < GEMM_DEPTH ? left : GEMM_DEPTH;
        const panel_piece piece = panel_piece_at(&o->runs, k, depth);
        for (int64_t j = 0; j < o->columns; j += PANEL) {
            const int64_t columns = o->columns - j < PANEL ? o->columns - j : PANEL;
            const T *b = o->panels + j * o->depth + k * PANEL, *next = b + o->depth * PANEL;
            if (columns == o->columns - j) { /* the next piece, or the next tile */
                next = o->panels + (k + depth) * PANEL;
                if (left == depth) next = o->more ? b + depth * PANEL : NULL;
            }
            T first[PANEL] = {0};
            if (o->bias && k == 0) memcpy(first, o->bias + j, (size_t)columns * sizeof *first);
            panel_multiply(o,
                           (panel_block){.piece = &piece,
                                         .b = b,
                                         .a_row = o->a_row,
                                         .c = o->c + j,
                                         .c_row = o->c_row,
                                         .add = k > 0,
                                         .first = o->bias && k == 0 ? first : NULL,
                                         .bounds = left == depth ? o->bounds : NULL},
                           columns, next);
        }
        k += GEMM_DEPTH;
    } while (k < o->depth);
}

#endif
#endif
