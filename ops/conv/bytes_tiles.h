/* Products of rows of bytes with panels of weights (bytes_kernel.h) by the tiles of AMX: 16 rows of up
 * to 64 bytes times 16 columns, in one instruction. The sums are those of the other kernels, in i32.
 *
 * A block is two tiles of rows, of any lines, times the two of a panel, which lies in memory as the
 * processor reads it. All tiles have one shape: the rows of a line and the bytes of a run are cut into
 * equal parts, except that the last rows of a line may be computed twice. The weights of the next panel
 * are prefetched, since few rows read each. */
#ifndef WEFT_OPS_CONV_BYTES_TILES_H
#define WEFT_OPS_CONV_BYTES_TILES_H

#include "bytes_kernel.h"

#ifdef WEFT_KERNEL_ISA
#ifdef __AMX_INT8__

#include "kernels/tiles_shape.h"

/* Rows and bytes of a tile at most; bytes of a run's part from which tiles are faster than
 * AVX512_VNNI. */
#define TILE_ROWS  16
#define TILE_DEPTH 64
#define MIN_DEPTH  16

/* The largest part of a run, a multiple of four, of which it consists; 0 of an empty one. */
static inline int64_t bytes_tile_depth(int64_t run)
{
    const int64_t words = run / BYTES_EACH;
    if (!words) return 0;
    int64_t parts = ceil_div(run, TILE_DEPTH);
    while (words % parts) parts++;
    return run / parts;
}

/* Tiles 0 to 3 are sums, 4 and 5 rows, and 6 and 7 weights. */
static inline void bytes_tiles_open(int64_t rows, int64_t depth)
{
    tiles_shape shape = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shape.bytes[i] = (uint16_t)(i == 4 || i == 5 ? depth : 64);
        shape.rows[i] = (uint8_t)(i < 6 ? rows : depth / BYTES_EACH);
    }
    tiles_configure(&shape);
}

/* What a block reads: two tiles of rows, of which the second may be the first again. */
typedef struct bytes_tiles_block {
    const bytes_runs *runs;
    const uint8_t *x[2], *w;
    int64_t depth;
    const int32_t *first; /* what the sums of the panel begin with */
    const uint8_t *next;  /* the panel that follows in memory, or NULL */
    int64_t begin, end;   /* rows of each of its tiles that this block prefetches */
} bytes_tiles_block;

static inline void bytes_prefetch(const uint8_t *tile, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++) {
        __builtin_prefetch(tile + r * BYTES_STEP, 0, 2);
        __builtin_prefetch(tile + r * BYTES_STEP + 64, 0, 2);
    }
}

/* The sums of a block; `both` halves of a panel, or the first one. */
SIMD_INLINE void bytes_tiles_sums(const bool both, const bytes_tiles_block *o,
                                  int32_t (*sums)[TILE_ROWS][BYTES_PANEL])
{
    const bytes_runs runs = *o->runs;
    const size_t row = (size_t)runs.row, panel = BYTES_STEP;
    const uint8_t *w = o->w, *next = o->next;
    _tile_loadd(0, o->first, 0);
    _tile_loadd(2, o->first, 0);
    if (both) {
        _tile_loadd(1, o->first + 16, 0);
        _tile_loadd(3, o->first + 16, 0);
    }
    for (int64_t i = 0; i < runs.lines; i++)
        for (int64_t j = 0; j < runs.taps; j++) {
            const int64_t at = i * runs.line_step + j * runs.tap_step;
            for (int64_t k = at; k < at + runs.run; k += o->depth) {
                _tile_loadd(4, o->x[0] + k, row);
                _tile_loadd(6, w, panel);
                _tile_dpbusd(0, 4, 6);
                _tile_loadd(5, o->x[1] + k, row);
                _tile_dpbusd(2, 5, 6);
                if (both) {
                    _tile_loadd(7, w + 64, panel);
                    _tile_dpbusd(1, 4, 7);
                    _tile_dpbusd(3, 5, 7);
                }
                w += o->depth / BYTES_EACH * BYTES_STEP;
                if (!next) continue;
                bytes_prefetch(next, o->begin, o->end);
                next += o->depth / BYTES_EACH * BYTES_STEP;
            }
        }
    _tile_stored(0, sums[0], BYTES_STEP);
    _tile_stored(2, sums[1], BYTES_STEP);
    if (both) {
        _tile_stored(1, &sums[0][0][16], BYTES_STEP);
        _tile_stored(3, &sums[1][0][16], BYTES_STEP);
    }
}

/* The results of a tile's sums. */
static inline void bytes_tiles_write(const bytes_target *t, int64_t rows,
                                     int32_t (*sums)[BYTES_PANEL])
{
    const bool bytes = t->result->dtype == WEFT_U8;
    const bytes_finish f = bytes_finish_of(t);
    for (int64_t r = 0; r < rows; r += 2) {
        const int64_t next = r + 1 < rows ? r + 1 : r;
        char *y = t->y + r * t->y_row, *below = t->y + next * t->y_row;
        const __m512i four[4] = {_mm512_loadu_si512(&sums[r][0]), _mm512_loadu_si512(&sums[r][16]),
                                 _mm512_loadu_si512(&sums[next][0]),
                                 _mm512_loadu_si512(&sums[next][16])};
        if (bytes) {
            bytes_finish_rows(&f, four, y, below);
        } else {
            bytes_finish_wide(t->result, &f, four, y);
            bytes_finish_wide(t->result, &f, four + 2, below);
        }
    }
}

/* Rows of a line that a tile has; tiles of a line, and of all lines; bytes of a row. */
typedef struct bytes_tiling {
    int64_t rows, across, count, depth;
} bytes_tiling;

/* The rows and columns of one panel, from `t` on. */
static void bytes_tiles_panel(const bytes_block *o, const bytes_tiling *tiling, const uint8_t *w,
                              const bytes_target *t)
{
    int32_t first[BYTES_PANEL], sums[2][TILE_ROWS][BYTES_PANEL];
    for (int h = 0; h < 2; h++) _mm512_storeu_si512(first + 16 * h, bytes_first(t, h));
    __asm__ volatile("" : : "r"(first) : "memory");
    for (int64_t q = 0; q < tiling->count; q += 2) {
        const int64_t words = tiling->depth / BYTES_EACH;
        bytes_tiles_block block = {.runs = &o->runs,
                                   .w = w,
                                   .depth = tiling->depth,
                                   .first = first,
                                   .next = w + o->panel_bytes < o->panels_end ? w + o->panel_bytes
                                                                              : NULL,
                                   .begin = words * q / tiling->count,
                                   .end = words * (q + 2) / tiling->count};
        if (block.end > words) block.end = words;
        bytes_target at[2] = {*t, *t};
        const int64_t n = q + 1 < tiling->count ? 2 : 1;
        for (int64_t p = 0; p < 2; p++) {
            const int64_t tile = p < n ? q + p : q, line = tile / tiling->across;
            int64_t pixel = tile % tiling->across * tiling->rows;
            if (pixel > o->width - tiling->rows) pixel = o->width - tiling->rows;
            block.x[p] = o->x + line * o->line_step + pixel * o->runs.row;
            at[p].y = t->y + line * o->y_line + pixel * o->y_row;
        }
        if (t->columns > 16)
            bytes_tiles_sums(true, &block, sums);
        else
            bytes_tiles_sums(false, &block, sums);
        for (int64_t p = 0; p < n; p++) bytes_tiles_write(&at[p], tiling->rows, sums[p]);
    }
}

/* As bytes_task; false if tiles would take longer. */
static bool bytes_tiles_task(const bytes_block *o)
{
    bytes_tiling t = {.depth = bytes_tile_depth(o->runs.run)};
    if (t.depth < MIN_DEPTH) return false;
    t.rows = ceil_div(o->width, ceil_div(o->width, TILE_ROWS));
    t.across = ceil_div(o->width, t.rows);
    t.count = o->lines * t.across;
    bytes_tiles_open(t.rows, t.depth);
    for (int64_t c = 0; c < o->columns; c += BYTES_PANEL) {
        const int64_t left = o->columns - c;
        const bytes_target target = {.result = &o->result,
                                     .column = o->column + c,
                                     .columns = left < BYTES_PANEL ? left : BYTES_PANEL,
                                     .y = o->y + c * bytes_size(o->result.dtype),
                                     .y_row = o->y_row};
        bytes_tiles_panel(o, &t, o->panels + c / BYTES_PANEL * o->panel_bytes, &target);
    }
    _tile_release();
    return true;
}

#else

static inline bool bytes_tiles_task(const bytes_block *o)
{
    (void)o;
    return false;
}

#endif
#endif
#endif
