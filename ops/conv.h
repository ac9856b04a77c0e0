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
void conv_export_window(weft_export *e, const conv_attr *a, const int64_t *pad_end);

/* conv_shape.c */
/* Sets *y to the shape of the result, from those of the image x and the weights w. */
bool conv_infer_output(weft_infer *infer, const conv_attr *a, weft_shape x, weft_shape w,
                       weft_shape *y);
/* Is input 2 a bias of so many channels? */
bool conv_infer_bias(weft_infer *infer, int64_t channels);
bool conv_infer_conv(weft_infer *infer);
bool conv_infer_conv_grad_input(weft_infer *infer);
bool conv_infer_conv_grad_weight(weft_infer *infer);

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

/* ---- Sums over taps alone, block by block of a plane (one channel of one image) ----
 *
 * conv_grad_input is the same with the flipped kernel, and with dy spread out by the stride. */
#define CONV_PLANE_COLUMNS 1024 /* of a block at most */
#define CONV_PLANE_BLOCK   3072 /* elements of a tile, about */
#define CONV_PLANE_TAPS    768  /* whose products are added one after the other, at most */
#define CONV_PLANE_SLAB    1e6  /* elements that a block may read */

typedef struct conv_planes {
    int64_t planes, height, width; /* of the result */
    int64_t step[2], taps[2], dilation[2], begin[2];
    int64_t source[2], spread[2];
    int64_t rows, columns;                 /* of a block */
    int64_t down, across;                  /* blocks of a plane */
    int64_t each, tiles;                   /* blocks of a tile */
    int64_t slab_rows, slab_width, padded; /* what a block reads; columns in whole vectors */
} conv_planes;

static inline conv_planes conv_planes_of(const conv_sizes *z, bool transposed)
{
    const int64_t *result = transposed ? z->in : z->out, *source = transposed ? z->out : z->in;
    conv_planes p = {.planes = z->images * z->groups * (transposed ? 1 : z->out_channels),
                     .height = result[1],
                     .width = result[2]};
    for (int d = 0; d < 2; d++) {
        p.taps[d] = z->kernel[d + 1];
        p.dilation[d] = z->dilation[d + 1];
        p.step[d] = transposed ? 1 : z->stride[d + 1];
        p.spread[d] = transposed ? z->stride[d + 1] : 1;
        p.begin[d] =
            transposed ? (p.taps[d] - 1) * p.dilation[d] - z->begin[d + 1] : z->begin[d + 1];
        p.source[d] = source[d + 1];
    }
    if (p.planes == 0 || p.height == 0 || p.width == 0) return p;
    p.across = ceil_div(p.width, CONV_PLANE_COLUMNS);
    p.columns = ceil_div(p.width, p.across);
    p.rows = CONV_PLANE_BLOCK / p.columns;
    if (p.rows > p.height) p.rows = p.height;
    p.down = ceil_div(p.height, p.rows);
    p.each = CONV_PLANE_BLOCK / (p.rows * p.columns);
    p.tiles = ceil_div(p.planes * p.down * p.across, p.each);
    p.padded = ceil_div(p.columns, 16) * 16;
    p.slab_rows = (p.rows - 1) * p.step[0] + (p.taps[0] - 1) * p.dilation[0] + 1;
    p.slab_width = p.padded * p.step[1] + (p.taps[1] - 1) * p.dilation[1];
    return p;
}

/* Whether one channel of the image and one of the result belong together: for a product of matrices
 * such sums are too short. */
static inline bool conv_is_direct(const conv_sizes *z, bool transposed)
{
    if (z->in_channels != 1 || (transposed && z->out_channels != 1) || z->in[0] != 1 ||
        z->out[0] != 1 || z->kernel[0] != 1 || z->taps > CONV_PLANE_TAPS)
        return false;
    const conv_planes p = conv_planes_of(z, transposed);
    return (double)p.slab_rows * (double)p.slab_width <= CONV_PLANE_SLAB;
}

/* ---- conv and conv_grad_input: products of packed weights and patches ----
 *
 * The result is cut into blocks of rows (channels) and columns (pixels of all images). Phase 0
 * packs the weights of each block of rows once, unless one tile needs them only; phase 1 computes
 * the tiles. Each tile packs the
 * patches of its columns; of a small image, whose tiles are blocks of rows that share their
 * columns, phase 0 packs them, too. conv_grad_input reads dy at (pixel + pad - tap dilation) /
 * stride where that is whole. Pixels of one remainder of the division read at the same taps, so
 * each remainder is a class with a grid and a product of its own; a pixel in no class gets zero.
 * conv has one class. */
#define CONV_COLUMNS   128 /* of a tile: panels of GEMM_DEPTH rows stay in the second-level cache */
#define CONV_TILES     16  /* wanted */
#define CONV_MIN_FLOPS 1e6 /* of a tile */
#define CONV_PACKS     8   /* tiles that pack a large block of rows */
#define CONV_LARGE     65536
#define CONV_WASTE     16        /* columns of an image for each one that only pads a panel */
#define CONV_SHARED    (1 << 20) /* elements of patches that phase 0 packs at most */

typedef struct conv_product {
    conv_sizes z;
    bool transposed;           /* conv_grad_input */
    int64_t rows;              /* of a group: channels of the result */
    int64_t channels;          /* of a group, of the source */
    int64_t source, result;    /* volumes */
    int64_t every[PATCH_DIMS]; /* taps of a class are so far apart */
    int64_t classes[PATCH_DIMS], n_classes;
    int64_t columns, depth; /* of the largest class */
    int64_t tile_m, tiles_m, tile_n, tiles_n, packs;
    int64_t area;          /* elements of a packed block of rows */
    int64_t pieces, patch; /* of the depth; elements of the patches of a tile and piece */
    bool shared;           /* phase 0 packs the patches */
    bool own_weights;      /* a tile packs its weights, which no other tile needs */
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
                      .depth = transposed ? z.out_channels : z.in_channels};
    for (int d = 0; d < PATCH_DIMS; d++) {
        p.every[d] = transposed ? z.stride[d] / conv_gcd(z.stride[d], z.dilation[d]) : 1;
        p.classes[d] = !transposed ? 1 : z.kernel[d] < p.every[d] ? z.kernel[d] : p.every[d];
        p.n_classes *= p.classes[d];
        p.columns *= transposed ? ceil_div(z.in[d], z.stride[d]) : z.out[d];
        p.depth *= ceil_div(z.kernel[d], p.every[d]);
    }
    if (p.rows == 0 || p.columns == 0 || z.groups == 0) return p;
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

/* Elements of the packed weights in the scratch memory; the shared patches lie behind them. */
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
        if (!p->transposed) {
            g->source[d] = z->in[d];
            g->grid[d] = z->out[d];
            g->taps[d] = z->kernel[d];
            g->start[d] = -z->begin[d];
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
        g->taps[d] = ceil_div(z->kernel[d] - c.first[d], p->every[d]);
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
 * zeros of the padding are left out. The columns are dy's channels; where the kernel is one point,
 * they can be the image's, too. They are, if dy has more channels, or so many that packing pays:
 * then the sums have the order of the weights.
 *
 * A tile is a block of the weights of a group and a chunk of the pixels, which it reads piece by
 * piece; its sums stay in the second-level cache. Where the weights alone make few tiles, chunks
 * are summed apart, and phase 1 adds them in order. */
#define CONV_PIECE       512    /* pixels of a piece, at most */
#define CONV_SUMS        147456 /* weights of a tile, about, at most: 9 taps of 128 by 128 channels */
#define CONV_SHORT_ROWS  128    /* rows of images that are not longer are not cut */
#define CONV_PIXELS_EVEN 16     /* other pieces have a multiple of so many pixels */

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

#endif
