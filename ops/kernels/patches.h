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
    int64_t image_step; /* from image to image; channels are contiguous */
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

/* Advances to the beginning of the next row of a volume; returns 1 if that is in the next
 * volume. */
static inline int64_t patch_next_row(const int64_t size[PATCH_DIMS], int64_t at[PATCH_DIMS])
{
    at[PATCH_DIMS - 1] = 0;
    for (int d = PATCH_DIMS - 2; d >= 0; d--) {
        if (++at[d] < size[d]) return 0;
        at[d] = 0;
    }
    return 1;
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
        image += patch_next_row(p->grid, at);
    }
}

/* The columns of a panel at one tap as copies of whole vectors, in the order of the columns: each
 * writes up to a vector less one element beyond its segment, which the next one overwrites. */
typedef struct patch_copies {
    int64_t n;
    struct {
        const T *from;       /* in the first channel */
        int64_t channel, to; /* channel: 1, or 0 for zeros */
    } at[PATCH_COLUMNS + PATCH_COLUMNS / SIMD_LANES];
} patch_copies;

static inline void patch_list(const patch_segments *s, patch_copies *c)
{
    static const T zeros[2 * SIMD_LANES];
    c->n = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const patch_segment *g = &s->at[i];
        for (int64_t q = 0; q < g->count; q += SIMD_LANES) {
            c->at[c->n].from = g->from ? g->from + q * s->step : zeros;
            c->at[c->n].channel = g->from != NULL;
            c->at[c->n++].to = g->column + q;
        }
    }
}

#define PATCH_EVEN(lane, unused) (2 * (lane))

/* Rows of a panel, `channels` of them, whose channels are `area` apart. The step is a constant at
 * every call: 1 or 2 vectors are read for each one written. */
SIMD_INLINE void patch_rows(const patch_copies *c, const int step, int64_t area, int64_t channels,
                            T *to, int64_t to_row)
{
    for (int64_t r = 0, at = 0; r < channels; r++, at += area, to += to_row)
        for (int64_t i = 0; i < c->n; i++) {
            const T *from = c->at[i].from + at * c->at[i].channel;
            const simd_vector low = *(const simd_vector *)from;
            simd_vector *out = (simd_vector *)(to + c->at[i].to);
            if (step == 1)
                *out = low;
            else
                *out = __builtin_shufflevector(low, *(const simd_vector *)(from + SIMD_LANES),
                                               SIMD_EACH(PATCH_EVEN, 0));
        }
}

/* One row of a panel, element by element. */
static inline void patch_row(const patch_segments *s, int64_t at, T *to)
{
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t q = 0; q < s->at[i].count; q++)
            to[s->at[i].column + q] = s->at[i].from ? s->at[i].from[at + q * s->step] : 0;
}

/* How many channels from `first` on can be read by whole vectors, which must end before `end`, the
 * end of the source. */
static inline int64_t patch_channels(const patch_segments *s, int64_t first, int64_t channels,
                                     int64_t area, const T *end)
{
    if (s->step != 1 && s->step != 2) return 0;
    for (int64_t i = 0; i < s->n; i++) {
        const patch_segment *g = &s->at[i];
        if (!g->from) continue;
        const int64_t left = end - g->from - (g->count + SIMD_LANES) * s->step - first * area;
        const int64_t most = left < 0 ? 0 : left / area + 1;
        if (most < channels) channels = most;
    }
    return channels;
}

/* The source of the patches of one group. */
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
    patch_copies c;
    for (int64_t row = 0, n; row < depth; row += n) {
        const int64_t tap = (k + row) / channels, channel = (k + row) % channels;
        T *to = out + row * out_row;
        n = channels - channel < depth - row ? channels - channel : depth - row;
        patch_find(o->p, o->x, first, width, tap, &s);
        const int64_t fast = patch_channels(&s, channel, n, area, o->end);
        if (fast > 0) {
            patch_list(&s, &c);
            for (int64_t i = 0; i < c.n; i++) c.at[i].from += channel * area * c.at[i].channel;
            if (s.step == 1)
                patch_rows(&c, 1, area, fast, to, out_row);
            else
                patch_rows(&c, 2, area, fast, to, out_row);
        }
        for (int64_t i = fast; i < n; i++) patch_row(&s, (channel + i) * area, to + i * out_row);
    }
}

#endif
#endif
