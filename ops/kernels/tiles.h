/* Products of bf16 by parts of k, by one thread, as matrix units multiply tiles (docs/arithmetic.md):
 * the tiles of AMX, or the same bits from fused multiply-adds of f32. The caller has set
 * float_env_flush and called tiles_open.
 *
 * A packed row of A and a packed column of B have an element for each number of k, an f32 that holds
 * a bf16, or, with AMX, for each pair of neighbours, with zeros up to a whole part. */
#ifndef WEFT_OPS_KERNELS_TILES_H
#define WEFT_OPS_KERNELS_TILES_H

#include "gemm_kernel.h"

/* Numbers of k in a part, whose sum is added to C. */
#define TILES_PART 32
/* The rows and columns of a block of C divide this. */
#define TILES_EVEN 32

/* Elements of a packed row or column of k numbers: a number each, or, where a processor multiplies
 * tiles, pairs of whole parts. */
static inline int64_t tiles_words(int64_t k, bool pairs)
{
    return pairs ? ceil_div(k, TILES_PART) * (TILES_PART / 2) : k;
}

/* For a file that defines GEMM_BF16. */
#if defined(WEFT_KERNEL_ISA) && defined(GEMM_BF16)

#include "bf16_kernel.h"

/* C [rows, GEMM_COLUMNS] (+)= packed rows of A times a panel of B, over k numbers; `columns` of C are
 * used. With AMX, C and A have memory for whole tiles of rows. */
typedef struct tiles_block {
    const T *a, *b;
    int64_t a_row, k;
    int64_t rows, columns;
    T *c;
    bool add;
} tiles_block;

#ifdef __AMX_BF16__

#include "tiles_shape.h"

/* Rows and columns of a block: two tiles by two. */
#define TILES_HEIGHT 32

static inline void tiles_open(void)
{
    tiles_shape shape = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shape.bytes[i] = 64;
        shape.rows[i] = 16;
    }
    tiles_configure(&shape);
}

static inline void tiles_close(void)
{
    _tile_release();
}

/* Sums of a block, in tiles 0 to 3; more_rows and more_columns: also of the second ones. */
SIMD_INLINE void tiles_whole(const bool more_rows, const bool more_columns, const tiles_block *o)
{
    const size_t a_row = (size_t)o->a_row * sizeof(T), b_row = GEMM_COLUMNS * sizeof(T);
    T *c = o->c, *below = c + 16 * GEMM_COLUMNS;
    if (o->add) {
        _tile_loadd(0, c, b_row);
        if (more_columns) _tile_loadd(1, c + 16, b_row);
        if (more_rows) _tile_loadd(2, below, b_row);
        if (more_rows && more_columns) _tile_loadd(3, below + 16, b_row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    const T *a = o->a, *low = a + 16 * o->a_row, *b = o->b;
    for (int64_t k = 0; k < o->k; k += TILES_PART) {
        _tile_loadd(6, b, b_row);
        _tile_loadd(4, a, a_row);
        _tile_dpbf16ps(0, 4, 6);
        if (more_columns) {
            _tile_loadd(7, b + 16, b_row);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (more_rows) {
            _tile_loadd(5, low, a_row);
            _tile_dpbf16ps(2, 5, 6);
            if (more_columns) _tile_dpbf16ps(3, 5, 7);
        }
        a += TILES_PART / 2;
        low += TILES_PART / 2;
        b += TILES_PART / 2 * GEMM_COLUMNS;
    }
    _tile_stored(0, c, b_row);
    if (more_columns) _tile_stored(1, c + 16, b_row);
    if (more_rows) _tile_stored(2, below, b_row);
    if (more_rows && more_columns) _tile_stored(3, below + 16, b_row);
}

static inline void tiles_sums(const tiles_block *o)
{
    if (o->rows > 16 && o->columns > 16)
        tiles_whole(true, true, o);
    else if (o->rows > 16)
        tiles_whole(true, false, o);
    else if (o->columns > 16)
        tiles_whole(false, true, o);
    else
        tiles_whole(false, false, o);
}

#else

/* Rows of a block, whose two chains of two vectors stay in registers. */
#if SIMD_REGISTERS == 32
#define TILES_HEIGHT  7
#define TILES_EACH(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#else
#define TILES_HEIGHT  3
#define TILES_EACH(X) X(1) X(2) X(3)
#endif

static inline void tiles_open(void) {}

static inline void tiles_close(void) {}

/* The chains of a part: those of the first numbers of pairs and those of the second ones. */
SIMD_INLINE void tiles_part(const int height, simd_operands o, simd_vector *sum)
{
    simd_vector *first = sum, *second = sum + 2 * height;
    SIMD_UNROLL(32)
    for (int i = 0; i < 4 * height; i++) sum[i] = (simd_vector){0};
    for (int64_t k = 0; k + 1 < o.depth; k += 2) {
        simd_add_step(height, 2, GEMM_AHEAD, true, o, first);
        o.a++;
        o.b += o.b_step;
        simd_add_step(height, 2, GEMM_AHEAD, true, o, second);
        o.a++;
        o.b += o.b_step;
    }
    if (o.depth % 2) simd_add_step(height, 2, 0, true, o, first);
    /* Zeros follow, which make -0 to 0. */
    if (o.depth < TILES_PART) {
        SIMD_UNROLL(32)
        for (int i = 0; i < 4 * height; i++) sum[i] += (simd_vector){0};
    }
}

/* The height is a constant at every call. */
SIMD_INLINE void tiles_rows(const int height, const tiles_block *o)
{
    bool add = o->add;
    for (int64_t k = 0; k < o->k; k += TILES_PART) {
        const int64_t depth = o->k - k < TILES_PART ? o->k - k : TILES_PART;
        simd_vector sum[4 * TILES_HEIGHT];
        tiles_part(
            height,
            (simd_operands){o->a + k, o->b + k * GEMM_COLUMNS, o->a_row, 1, GEMM_COLUMNS, depth},
            sum);
        SIMD_UNROLL(16)
        for (int i = 0; i < height; i++) {
            SIMD_UNROLL(2)
            for (int v = 0; v < 2; v++) {
                simd_vector *out = (simd_vector *)(o->c + i * GEMM_COLUMNS + v * SIMD_LANES);
                const simd_vector part = simd_flush(sum[2 * i + v] + sum[2 * (height + i) + v]);
                *out = simd_flush((add ? *out : (simd_vector){0}) + part);
            }
        }
        add = true;
    }
}

#define TILES_DEFINE(height)                                                                       \
    static __attribute__((noinline)) void tiles_rows_##height(const tiles_block *o)                \
    {                                                                                              \
        tiles_rows(height, o);                                                                     \
    }
TILES_EACH(TILES_DEFINE)
#undef TILES_DEFINE

static inline void tiles_sums(const tiles_block *o)
{
#define TILES_CASE(height)                                                                         \
    if (o->rows == (height)) tiles_rows_##height(o);
    TILES_EACH(TILES_CASE)
#undef TILES_CASE
}

#endif

/* ---- Packing ---- */

/* Zeros from k numbers to whole parts: in `n` rows, `row` apart. */
static inline void tiles_fill_rows(T *out, int64_t row, int64_t n, int64_t k)
{
    const int64_t steps = bf16_steps(k, BF16_EACH == 2), words = tiles_words(k, BF16_EACH == 2);
    for (int64_t i = 0; i < n && steps < words; i++)
        memset(out + i * row + steps, 0, (size_t)(words - steps) * sizeof *out);
}

/* Packs rows of A, `row` elements apart. The first step of k is a whole part. */
static inline void tiles_pack_rows(bf16_matrix a, int64_t rows, int64_t k, T *out, int64_t row)
{
    const int64_t steps = bf16_steps(k, BF16_EACH == 2);
    tiles_fill_rows(out, row, rows, k);
    if (a.column == 1) {
        for (int64_t i = 0; i < rows; i++)
            bf16_pack_along(bf16_at(a, i, 0).data, a.wide, k, out + i * row);
        return;
    }
    for (int64_t i = 0; i < rows; i += TILES_EVEN) {
        const int64_t n = rows - i < TILES_EVEN ? rows - i : TILES_EVEN;
        for (int64_t s = 0; s < steps; s += BF16_CHUNK) {
            T chunk[BF16_CHUNK * TILES_EVEN];
            const int64_t count = steps - s < BF16_CHUNK ? steps - s : BF16_CHUNK;
            for (int64_t p = 0; p < count; p++) {
                const int64_t at = BF16_EACH * (s + p);
                const bool both = BF16_EACH == 2 && at + 1 < k;
                bf16_pack_across(bf16_at(a, i, at).data, both ? bf16_at(a, i, at + 1).data : NULL,
                                 a.wide, n, chunk + p * TILES_EVEN);
            }
            gemm_transpose(chunk, TILES_EVEN, count, n, out + i * row + s, row);
        }
    }
}

/* Elements of a panel of k numbers, of GEMM_COLUMNS columns. */
static inline int64_t tiles_panel(int64_t k)
{
    return GEMM_COLUMNS * tiles_words(k, BF16_EACH == 2);
}

/* Packs columns [0, columns) of b, [k, *], as panels. */
static inline void tiles_pack_panels(bf16_matrix b, int64_t columns, int64_t k, T *out)
{
    const bf16_matrix transposed = {b.data, b.wide, b.column, b.row};
    const int64_t panel = tiles_panel(k), used = GEMM_COLUMNS * bf16_steps(k, BF16_EACH == 2);
    bf16_pack(transposed, &(bf16_blocks){columns, k, GEMM_COLUMNS, panel, out}, GEMM_COLUMNS);
    for (int64_t j = 0; j < columns && used < panel; j += GEMM_COLUMNS)
        memset(out + j / GEMM_COLUMNS * panel + used, 0, (size_t)(panel - used) * sizeof *out);
}

#endif
#endif
