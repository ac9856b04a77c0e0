/* What the files of convolution share: the attribute, the sizes of an image and its convolution,
 * and how the products of conv, conv_grad_input and conv_grad_weight are cut, from shapes alone.
 * All have three spatial dimensions inside; those that an image lacks come first, with size 1. */
#ifndef WEFT_OPS_CONV_H
#define WEFT_OPS_CONV_H

#include "kernels/gemm_kernel.h"
#include "kernels/patches.h"

#include <weft/export.h>

typedef struct conv_attr {
    weft_shape stride, dilation, pad_begin, pad_end; /* rank: the spatial dimensions */
    weft_shape size; /* spatial, of the result: conv_grad_input, conv_grad_weight; else rank 0 */
    int64_t groups;
} conv_attr;

/* Of max_pool and average_pool (pool.c). */
typedef struct pool_attr {
    conv_attr window; /* one group, no size */
    weft_shape kernel;
    bool ceil_mode, count_pad;
} pool_attr;

/* Adds the window of a convolution or a pooling to the last node of ONNX, with this padding at the
 * end (conv.c). */
void weft__conv_export_window(weft_export *e, const conv_attr *a, const int64_t *pad_end);

/* conv_shape.c */
/* Sets *y to the shape of the result, from those of the image x and the weights w. */
bool weft__conv_infer_output(weft_infer *infer, const conv_attr *a, weft_shape x, weft_shape w,
                             weft_shape *y);
/* Is input 2 a bias of this many channels? */
bool weft__conv_infer_bias(weft_infer *infer, int64_t channels);
bool weft__conv_infer_conv(weft_infer *infer);
bool weft__conv_infer_conv_grad_input(weft_infer *infer);
bool weft__conv_infer_conv_grad_weight(weft_infer *infer);

typedef struct conv_sizes {
    int64_t images, groups;
    int64_t in_channels, out_channels; /* of a group */
    int64_t in[PATCH_DIMS], out[PATCH_DIMS], kernel[PATCH_DIMS];
    int64_t stride[PATCH_DIMS], dilation[PATCH_DIMS], begin[PATCH_DIMS];
    int64_t in_volume, out_volume, taps;
    bool pointwise; /* each pixel of the result reads its own alone; an image is one long row */
} conv_sizes;

/* x [images, channels, in...], w [out channels, channels / groups, kernel...], y [images, out
 * channels, out...]. */
static inline conv_sizes conv_sizes_of(const conv_attr *a, const weft_shape *x, const weft_shape *w,
                                       const weft_shape *y)
{
    conv_sizes z = {.images = x->dim[0],
                    .groups = a->groups,
                    .in_channels = w->dim[1],
                    .out_channels = w->dim[0] / a->groups};
    const int missing = PATCH_DIMS - a->stride.rank;
    z.pointwise = true;
    for (int d = 0; d < PATCH_DIMS; d++) {
        const int s = d - missing;
        z.in[d] = s < 0 ? 1 : x->dim[s + 2];
        z.out[d] = s < 0 ? 1 : y->dim[s + 2];
        z.kernel[d] = s < 0 ? 1 : w->dim[s + 2];
        z.stride[d] = s < 0 ? 1 : a->stride.dim[s];
        z.dilation[d] = s < 0 ? 1 : a->dilation.dim[s];
        z.begin[d] = s < 0 ? 0 : a->pad_begin.dim[s];
        /* A stride of one step and a dilation of one tap have no effect. */
        if (z.out[d] == 1) z.stride[d] = 1;
        if (z.kernel[d] == 1) z.dilation[d] = 1;
        if (z.kernel[d] != 1 || z.stride[d] != 1 || z.begin[d] || z.in[d] != z.out[d])
            z.pointwise = false;
    }
    z.in_volume = patch_volume(z.in);
    z.out_volume = patch_volume(z.out);
    z.taps = patch_volume(z.kernel);
    if (z.pointwise)
        for (int d = 0; d < PATCH_DIMS; d++)
            z.in[d] = z.out[d] = d == PATCH_DIMS - 1 ? z.in_volume : 1;
    return z;
}

/* ---- conv and conv_grad_input: products of packed weights and patches ----
 *
 * The result is cut into blocks of rows (channels) and columns (pixels of all images). Phase 0
 * packs the weights of each block of rows once, unless one tile needs them only; phase 1 computes
 * the tiles. Each tile packs the patches of its columns; of a small image, whose tiles are blocks
 * of rows that share their columns, phase 0 also packs them. The patches of conv_grad_input read dy
 * at (pixel + pad - tap dilation) / stride where that is whole. Pixels of one remainder of the
 * division read at the same taps, so each remainder is a class with a grid and a product of its
 * own; a pixel in no class gets zero. conv has one class. */
#define CONV_COLUMNS   128 /* of a tile: panels of GEMM_DEPTH rows stay in the second-level cache */
#define CONV_TILES     16  /* wanted */
#define CONV_MIN_FLOPS 1e6 /* of a tile */
#define CONV_PACKS     8   /* tiles that pack a large block of rows */
#define CONV_LARGE     65536
#define CONV_WASTE     16        /* columns of an image for each one that only pads a panel */
#define CONV_SHARED    (1 << 20) /* elements of patches that phase 0 packs at most */
/* Weights are transposed a few channels at a time, while they stay in the first-level cache, and
 * then sorted by taps. One step of the depth is one tap of one channel. */
#define CONV_PACK_CHANNELS 16
#define CONV_PACK_STEPS    512

typedef struct conv_product {
    conv_sizes z;
    bool transposed;                             /* conv_grad_input */
    int64_t rows;                                /* of a group: channels of the result */
    int64_t channels;                            /* of a group, of the source */
    int64_t source, result;                      /* volumes */
    int64_t first[PATCH_DIMS], taps[PATCH_DIMS]; /* those that any window reads in the image */
    int64_t every[PATCH_DIMS];                   /* the distance of the taps of a class */
    int64_t classes[PATCH_DIMS], n_classes;
    int64_t columns, depth; /* of the largest class */
    int64_t tile_m, tiles_m, tile_n, tiles_n, packs;
    int64_t area;          /* elements of a packed block of rows */
    int64_t pieces, patch; /* of the depth; elements of the patches of a tile and piece */
    bool shared;           /* phase 0 packs the patches */
    bool own_weights;      /* a tile packs its weights, which no other tile needs */
    bool padded;           /* some windows reach outside of the source */
    bool few_weights;      /* fewer than results */
    bool whole;            /* a tile is a group of one image, block of columns by block */
} conv_product;

static inline int64_t conv_gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Taps [*first, *first + *n) of dimension d: those before lie in the padding in all windows, as do
 * those after, as where the dilation is larger than the image. At least one. */
static inline void conv_used_taps(const conv_sizes *z, int d, int64_t *first, int64_t *n)
{
    const int64_t before = z->begin[d] - (z->out[d] - 1) * z->stride[d];
    int64_t end = ceil_div(z->in[d] + z->begin[d], z->dilation[d]);
    *first = before > 0 ? ceil_div(before, z->dilation[d]) : 0;
    if (*first >= z->kernel[d]) *first = z->kernel[d] - 1;
    if (end > z->kernel[d]) end = z->kernel[d];
    *n = end > *first ? end - *first : 1;
}

static inline conv_product conv_product_of(conv_sizes z, bool transposed)
{
    conv_product p = {.z = z,
                      .transposed = transposed,
                      .rows = transposed ? z.in_channels : z.out_channels,
                      .channels = transposed ? z.out_channels : z.in_channels,
                      .source = transposed ? z.out_volume : z.in_volume,
                      .result = transposed ? z.in_volume : z.out_volume,
                      .n_classes = 1,
                      .columns = z.images,
                      .depth = transposed ? z.out_channels : z.in_channels,
                      .padded = transposed && !z.pointwise};
    for (int d = 0; d < PATCH_DIMS; d++) {
        p.every[d] = transposed ? z.stride[d] / conv_gcd(z.stride[d], z.dilation[d]) : 1;
        conv_used_taps(&z, d, &p.first[d], &p.taps[d]);
        p.classes[d] = !transposed ? 1 : p.taps[d] < p.every[d] ? p.taps[d] : p.every[d];
        p.n_classes *= p.classes[d];
        p.columns *= transposed ? ceil_div(z.in[d], z.stride[d]) : z.out[d];
        p.depth *= ceil_div(p.taps[d], p.every[d]);
        const int64_t last = (z.out[d] - 1) * z.stride[d] + (z.kernel[d] - 1) * z.dilation[d];
        p.padded |= z.begin[d] > 0 || last - z.begin[d] >= z.in[d];
    }
    if (p.rows == 0 || p.columns == 0 || z.groups == 0) return p;
    p.few_weights = p.channels * z.taps < z.images * p.result;
    p.tiles_n = ceil_div(p.columns, CONV_COLUMNS);
    p.tile_n = ceil_div(ceil_div(p.columns, p.tiles_n), 32) * 32;
    /* Many images: then other nodes can run on the tiles. Panels end with the image. */
    const int64_t panels = ceil_div(z.out_volume, 32) * 32;
    p.whole = !transposed && z.images * z.groups >= CONV_TILES &&
              z.out_volume >= panels - panels / CONV_WASTE;
    if (p.whole) p.tiles_n = z.images;
    const int64_t others = p.n_classes * z.groups * p.tiles_n;
    int64_t tiles_m = others < CONV_TILES ? ceil_div(CONV_TILES, others) : 1;
    const double flops = 2.0 * (double)p.rows * (double)p.tile_n * (double)p.depth;
    if ((double)tiles_m > flops / CONV_MIN_FLOPS) tiles_m = (int64_t)(flops / CONV_MIN_FLOPS);
    if (tiles_m < 1) tiles_m = 1;
    p.tile_m = ceil_div(ceil_div(p.rows, tiles_m), GEMM_EVEN_ROWS) * GEMM_EVEN_ROWS;
    p.tiles_m = ceil_div(p.rows, p.tile_m);
    p.packs = p.tile_m * p.depth > CONV_LARGE ? CONV_PACKS : 1;
    p.area = (p.tile_m / 6 + 1) * 8 * p.depth;
    p.pieces = ceil_div(p.depth, GEMM_DEPTH);
    /* With room for what the packing of a row writes beyond it. */
    p.patch = p.tile_n * (p.depth < GEMM_DEPTH ? p.depth : GEMM_DEPTH) + 32;
    p.own_weights = !transposed && others == z.groups;
    p.shared = p.tiles_m > 1 && others * p.pieces <= CONV_SHARED / p.patch;
    return p;
}

/* Whether the weights of a class, which has `some` of all taps, are transposed at all taps to be
 * packed, instead of read one by one. */
static inline bool conv_packs_dense(int64_t taps, int64_t some)
{
    return taps <= 4 * some;
}

/* Elements of the packed weights in the scratch memory; the shared patches follow, then the
 * findings. */
static inline int64_t conv_weight_area(const conv_product *p)
{
    return p->n_classes * p->z.groups * p->tiles_m * p->area;
}

/* Tiles of phase 0 that pack weights. */
static inline int64_t conv_weight_packs(const conv_product *p)
{
    return p->own_weights ? 0 : p->n_classes * p->z.groups * p->tiles_m * p->packs;
}

/* Blocks of shared patches: one for each class, group, tile of columns and piece. */
static inline int64_t conv_shared_patches(const conv_product *p)
{
    return p->shared ? p->n_classes * p->z.groups * p->tiles_n * p->pieces : 0;
}

/* Findings: whether a tile of phase 0 that packs weights has found one that is not finite, in its
 * part of all weights. Without them each tile of phase 1 searches its own weights. */
static inline int64_t conv_findings(const conv_product *p)
{
    return p->padded && p->few_weights ? conv_weight_packs(p) : 0;
}

/* Channels whose weights are transposed together. */
static inline int64_t conv_pack_channels(const conv_product *p)
{
    const int64_t n = CONV_PACK_STEPS / (p->z.taps ? p->z.taps : 1);
    const int64_t most = n < 1 || n > CONV_PACK_CHANNELS ? CONV_PACK_CHANNELS : n;
    return p->channels < most ? p->channels : most;
}

/* Elements of the workspace of a tile: weights that are transposed, or a corner of the result and
 * the patches of a piece. */
static inline int64_t conv_product_workspace(const conv_product *p)
{
    const bool transposes = p->z.taps > 1 && p->z.taps <= CONV_PACK_STEPS;
    const int64_t weights = transposes ? conv_pack_channels(p) * p->z.taps * GEMM_MAX_STEP : 0;
    const int64_t sums = GEMM_CORNER + (p->shared ? 0 : p->patch);
    return weights > sums ? weights : sums;
}

/* The grid of a class, and the places of its pixels in the result and of its taps in the kernel. */
typedef struct conv_class {
    patches grid;
    int64_t first[PATCH_DIMS]; /* tap */
    int64_t origin[PATCH_DIMS], spacing[PATCH_DIMS];
} conv_class;

static inline conv_class conv_class_at(const conv_product *p, int64_t index)
{
    const conv_sizes *z = &p->z;
    conv_class c = {.grid = {.images = z->images,
                             .channels = p->channels,
                             .image_step = z->groups * p->channels * p->source}};
    patches *g = &c.grid;
    patch_coordinates(index, p->classes, c.first);
    for (int d = 0; d < PATCH_DIMS; d++) {
        const int64_t stride = z->stride[d], dilation = z->dilation[d];
        c.first[d] += p->first[d];
        if (!p->transposed) {
            g->source[d] = z->in[d];
            g->grid[d] = z->out[d];
            g->taps[d] = p->taps[d];
            g->start[d] = c.first[d] * dilation - z->begin[d];
            g->grid_step[d] = stride;
            g->tap_step[d] = dilation;
            c.spacing[d] = 1;
            continue;
        }
        const int64_t shift = c.first[d] * dilation - z->begin[d];
        c.origin[d] = (shift % stride + stride) % stride;
        c.spacing[d] = stride;
        g->source[d] = z->out[d];
        g->grid[d] = c.origin[d] < z->in[d] ? ceil_div(z->in[d] - c.origin[d], stride) : 0;
        g->taps[d] = ceil_div(p->first[d] + p->taps[d] - c.first[d], p->every[d]);
        g->start[d] = (c.origin[d] - shift) / stride;
        g->grid_step[d] = 1;
        g->tap_step[d] = -(p->every[d] * dilation / stride);
    }
    return c;
}

/* ---- conv_grad_weight: products of one packed operand and one that is read where it lies ----
 *
 * At each tap the sum over pixels is a product of dy's channels and the image's. The pixels of one
 * operand, the columns, are transposed into panels; those of the other, the rows, are read where
 * they lie, as runs of pixels that dy and the image have in common. So no patch is ever copied, and
 * zeros of the padding are left out. The columns are dy's channels. Where the kernel is one point,
 * they are the image's channels if dy has more channels, or enough for packing to pay: then the
 * sums have the order of the weights.
 *
 * A tile is a block of the weights of a group and a chunk of the pixels, which it reads piece by
 * piece; its sums stay in the second-level cache. Where the weights alone make few tiles, chunks
 * are summed apart, and phase 1 adds them in order. */
#define CONV_PIECE       512    /* pixels of a piece, at most */
#define CONV_SUMS        147456 /* weights of a tile, about, at most: 9 taps of 128 by 128 channels */
#define CONV_SHORT_ROWS  128    /* rows of images that are not longer are not cut */
#define CONV_PIXELS_EVEN 16     /* other pieces have a multiple of this many pixels */

typedef struct conv_reduction {
    conv_sizes z;
    bool swapped;          /* the columns are the image's channels */
    int64_t rows, columns; /* channels of a group */
    int64_t tile_m, tiles_m, tile_n, tiles_n, tile_t, tiles_t; /* rows, columns, taps */
    int64_t pixels, chunk, chunks, piece;
} conv_reduction;

/* Pixels that follow each other in both operands: where they begin in a row and in a panel. */
typedef struct conv_run {
    int64_t row, panel, n;
} conv_run;

static inline int64_t conv_round_up(int64_t n, int64_t step)
{
    return ceil_div(n, step) * step;
}

static inline conv_reduction conv_reduction_of(conv_sizes z)
{
    conv_reduction r = {.z = z,
                        .swapped = z.pointwise && (z.in_channels < z.out_channels ||
                                                   z.out_channels >= CONV_COLUMNS),
                        .pixels = z.images * z.out_volume};
    r.rows = r.swapped ? z.out_channels : z.in_channels;
    r.columns = r.swapped ? z.in_channels : z.out_channels;
    if (z.groups == 0 || r.rows == 0 || r.columns == 0) return r;
    r.tiles_n = ceil_div(r.columns, CONV_COLUMNS);
    r.tile_n = conv_round_up(ceil_div(r.columns, r.tiles_n), 32);
    r.tiles_n = ceil_div(r.columns, r.tile_n);
    r.tiles_t = ceil_div(z.taps, CONV_SUMS / (GEMM_EVEN_ROWS * r.tile_n));
    r.tile_t = ceil_div(z.taps, r.tiles_t);
    r.tiles_t = ceil_div(z.taps, r.tile_t);
    r.tiles_m = ceil_div(r.rows, CONV_SUMS / (r.tile_t * r.tile_n));
    const double flops =
        2.0 * (double)(z.groups * r.rows) * (double)(r.columns * z.taps) * (double)r.pixels;
    int64_t tiles =
        flops < CONV_TILES * CONV_MIN_FLOPS ? (int64_t)(flops / CONV_MIN_FLOPS) : CONV_TILES;
    const int64_t others = z.groups * r.tiles_n * r.tiles_t;
    /* With few rows, the panels of a piece stay in the first-level cache from tap to tap. */
    const int64_t most = r.rows < GEMM_EVEN_ROWS ? CONV_PIECE / 4 : CONV_PIECE;
    const int64_t pieces = ceil_div(r.pixels, most);
    if (others * pieces * r.tiles_m < tiles) r.tiles_m = ceil_div(tiles, others * pieces);
    r.tile_m = conv_round_up(ceil_div(r.rows, r.tiles_m), GEMM_EVEN_ROWS);
    r.tiles_m = ceil_div(r.rows, r.tile_m);
    if (r.pixels == 0) return r;
    r.chunks = ceil_div(tiles, others * r.tiles_m);
    if (r.chunks > pieces) r.chunks = pieces;
    if (r.chunks < 1) r.chunks = 1;
    const int64_t row = z.pointwise || z.out[PATCH_DIMS - 1] > CONV_SHORT_ROWS
                            ? CONV_PIXELS_EVEN
                            : z.out[PATCH_DIMS - 1];
    r.chunk = conv_round_up(ceil_div(r.pixels, r.chunks), row);
    r.chunks = ceil_div(r.pixels, r.chunk);
    r.piece = conv_round_up(ceil_div(r.chunk, ceil_div(r.chunk, most)), row);
    if (r.piece > most) r.piece = most / row * row;
    return r;
}

#ifdef WEFT_KERNEL_ISA
/* ---- Padding ----
 *
 * Zeros of the padding are multiplied where that is faster than leaving them out. That adds
 * nothing, unless a weight is infinite or NaN: then the sum is NaN. So a kernel that multiplies
 * padding searches for such weights. Where there are fewer results, or some weights are not finite,
 * it searches for NaN in its results, and computes those sums of which a weight is not finite again
 * from what lies inside of the image. */
static inline bool conv_all_finite(const T *x, int64_t n)
{
    int found = 0;
    for (int64_t i = 0; i < n; i++) found |= !(x[i] - x[i] == 0);
    return !found;
}

static inline bool conv_has_nan(const T *x, int64_t n)
{
    int found = 0;
    for (int64_t i = 0; i < n; i++) found |= x[i] != x[i];
    return found;
}

/* Does a window along one dimension reach outside? It reads elements first, first + step, ... of
 * `size`. */
static inline bool conv_reaches_out(int64_t first, int64_t step, int64_t taps, int64_t size)
{
    const int64_t last = first + (taps - 1) * step;
    return first < 0 || first >= size || last < 0 || last >= size;
}
#endif

#endif
