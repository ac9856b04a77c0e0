/* Patches of images as panels of a matrix product, without a matrix of all patches in memory
 * ("im2col", Chellapilla et al. 2006; packed panel by panel as in Georganas et al. 2018).
 *
 * A column of the matrix is a pixel of a grid, a row is one tap of the kernel in one channel. In
 * each dimension the pixel that grid point i reads at tap t is start + i grid_step + t tap_step;
 * outside of the image it is zero. Rows have the order [tap, channel], so that neighbouring rows
 * read at the same places: these are found once for a panel and tap, as a few segments, and copied
 * vector by vector for all channels. */
#ifndef WEFT_OPS_KERNELS_PATCHES_H
#define WEFT_OPS_KERNELS_PATCHES_H

#include "simd.h"

/* Spatial dimensions; an image of fewer has leading dimensions of size 1. */
#define PATCH_DIMS 3

typedef struct patches {
    int64_t images, channels;
    int64_t image_step; /* from image to image; channels lie behind each other */
    int64_t source[PATCH_DIMS], grid[PATCH_DIMS], taps[PATCH_DIMS];
    int64_t start[PATCH_DIMS], grid_step[PATCH_DIMS], tap_step[PATCH_DIMS];
} patches;

static inline int64_t patch_volume(const int64_t size[PATCH_DIMS])
{
    return size[0] * size[1] * size[2];
}

/* The coordinates of element `index` of a volume. */
static inline void patch_coordinates(int64_t index, const int64_t size[PATCH_DIMS],
                                     int64_t at[PATCH_DIMS])
{
    for (int d = PATCH_DIMS - 1; d >= 0; d--) {
        at[d] = index % size[d];
        index /= size[d];
    }
}

#ifdef WEFT_KERNEL_ISA

/* Columns that are packed together. */
#define PATCH_COLUMNS 32

/* `count` columns from `column` on, `step` elements apart in the source; zeros if from is NULL. */
typedef struct patch_segment {
    const T *from; /* in the first channel */
    int64_t column, count;
} patch_segment;

/* Each column is alone in the worst case. */
typedef struct patch_segments {
    int64_t n, step;
    patch_segment at[PATCH_COLUMNS];
} patch_segments;

static inline void patch_add(patch_segments *s, const T *from, int64_t column, int64_t count)
{
    if (count > 0) s->at[s->n++] = (patch_segment){from, column, count};
}

/* Splits a run of grid points along the last dimension into padding, pixels and padding. `row` is
 * the row of the image, NULL outside of it. */
static inline void patch_split(patch_segments *s, const T *row, int64_t width, int64_t first,
                               int64_t column, int64_t count)
{
    const int64_t step = s->step;
    int64_t before = first < 0 ? ceil_div(-first, step) : 0;
    int64_t end = first < width ? ceil_div(width - first, step) : 0;
    if (before > count || !row) before = count;
    if (end > count) end = count;
    if (end < before) end = before;
    patch_add(s, NULL, column, before);
    if (row) patch_add(s, row + (first + before * step), column + before, end - before);
    patch_add(s, NULL, column + end, count - end);
}

/* Where columns [first, first + width) read at a tap. x is the group's first channel. */
static inline void patch_find(const patches *p, const T *x, int64_t first, int64_t width,
                              int64_t tap, patch_segments *s)
{
    int64_t at[PATCH_DIMS], taps[PATCH_DIMS], pixel[PATCH_DIMS];
    const int64_t points = patch_volume(p->grid);
    int64_t image = first / points;
    patch_coordinates(first % points, p->grid, at);
    patch_coordinates(tap, p->taps, taps);
    s->n = 0;
    s->step = p->grid_step[2];
    for (int64_t column = 0; column < width;) {
        int64_t count = p->grid[2] - at[2];
        if (count > width - column) count = width - column;
        for (int d = 0; d < PATCH_DIMS; d++)
            pixel[d] = p->start[d] + at[d] * p->grid_step[d] + taps[d] * p->tap_step[d];
        const bool inside =
            pixel[0] >= 0 && pixel[0] < p->source[0] && pixel[1] >= 0 && pixel[1] < p->source[1];
        const int64_t row = (pixel[0] * p->source[1] + pixel[1]) * p->source[2];
        patch_split(s, inside ? x + image * p->image_step + row : NULL, p->source[2], pixel[2],
                    column, count);
        column += count;
        at[2] = 0;
        for (int d = 1; d >= 0 && ++at[d] == p->grid[d]; d--) {
            at[d] = 0;
            image += d == 0;
        }
    }
}

#define PATCH_EVEN(lane, unused) (2 * (lane))

/* to[i] = from[i step], a whole vector at a time: up to a vector less one element is written beyond
 * `count`, and `step` times as much is read. */
SIMD_INLINE void patch_copy(const T *from, const int64_t step, int64_t count, T *to)
{
    for (int64_t i = 0; i < count; i += SIMD_LANES) {
        simd_vector *out = (simd_vector *)(to + i);
        if (!from) {
            *out = (simd_vector){0};
        } else if (step == 1) {
            *out = *(const simd_vector *)(from + i);
        } else {
            const simd_vector low = *(const simd_vector *)(from + 2 * i);
            const simd_vector high = *(const simd_vector *)(from + 2 * i + SIMD_LANES);
            *out = __builtin_shufflevector(low, high, SIMD_EACH(PATCH_EVEN, 0));
        }
    }
}

/* One row of a panel. Vectors are read where they end before `end`, the end of the source. */
SIMD_INLINE void patch_row(const patch_segments *s, const int64_t step, int64_t channel,
                           const T *end, T *to)
{
    for (int64_t i = 0; i < s->n; i++) {
        const patch_segment g = s->at[i];
        const T *from = g.from ? g.from + channel : NULL;
        const int64_t reach = (g.count + SIMD_LANES) * step;
        if (!from || ((step == 1 || step == 2) && reach <= end - from))
            patch_copy(from, step, g.count, to + g.column);
        else
            for (int64_t q = 0; q < g.count; q++) to[g.column + q] = from[q * s->step];
    }
}

/* What is packed: x is the group's first channel of the first image, `end` the end of its tensor.
 */
typedef struct patch_source {
    const patches *p;
    const T *x, *end;
} patch_source;

/* Rows [k, k + depth) of columns [first, first + width), width <= PATCH_COLUMNS, go to rows of
 * `out`, `out_row` apart. Up to a vector is written beyond the end of each row, which the next row
 * or the next panel must overwrite. */
static inline void patch_pack(const patch_source *o, int64_t first, int64_t width, int64_t k,
                              int64_t depth, T *out, int64_t out_row)
{
    const int64_t channels = o->p->channels, area = patch_volume(o->p->source);
    patch_segments s;
    for (int64_t row = 0; row < depth;) {
        const int64_t tap = (k + row) / channels, channel = (k + row) % channels;
        int64_t end = row + channels - channel;
        if (end > depth) end = depth;
        patch_find(o->p, o->x, first, width, tap, &s);
        T *to = out + row * out_row;
        int64_t at = channel * area;
        for (; row < end; row++, at += area, to += out_row) {
            if (s.step == 1)
                patch_row(&s, 1, at, o->end, to);
            else if (s.step == 2)
                patch_row(&s, 2, at, o->end, to);
            else
                patch_row(&s, 0, at, o->end, to);
        }
    }
}

#endif
#endif
