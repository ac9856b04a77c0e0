/* What the kernels of batch norm and their descriptors share: the attribute, and how the work is
 * cut into tiles, from the shapes alone.
 *
 * The sums of a channel run over its elements, image by image. Tiles of this phase are some
 * channels, or a piece of one where channels are few and large. Tiles that write elements are
 * blocks of x as a matrix, whose rows are its last dimension. */
#ifndef WEFT_OPS_BATCH_NORM_H
#define WEFT_OPS_BATCH_NORM_H

#include "kernels/kernel.h"

typedef struct batch_norm_attr {
    double eps;
} batch_norm_attr;

#define WANTED_TILES 32   /* channels are cut into pieces to reach this number */
#define BLOCK        4096 /* elements of a channel that are added up together */
#define NUMBERS      3    /* of a piece of a channel, in scratch */
#define MIN_VOLUME   16   /* of a channel of an image, to be read by channels */

typedef struct batch_norm_sizes {
    int64_t channels, volume, count; /* positions of an image; elements of a channel */
    int64_t each, pieces;            /* channels of a tile of sums, pieces of each of them */
    int64_t rows, width;             /* of the matrix */
    int64_t height;                  /* rows of a channel of an image; 0: columns are channels */
    int64_t tile_rows, tile_columns, across; /* of a block; blocks side by side */
    bool whole; /* a tile of sums has all elements of its channels, and also writes dx */
} batch_norm_sizes;

static inline batch_norm_sizes batch_norm_sizes_of(const weft_shape *x)
{
    batch_norm_sizes z = {.channels = x->dim[1], .volume = 1, .rows = 1};
    for (int d = 2; d < x->rank; d++) z.volume *= x->dim[d];
    for (int d = 0; d < x->rank - 1; d++) z.rows *= x->dim[d];
    z.width = x->dim[x->rank - 1];
    z.height = x->rank > 2 && z.width ? z.volume / z.width : 0;
    z.count = x->dim[0] * z.volume;
    if (z.volume == 1) { /* a row for an image */
        z.rows = x->dim[0];
        z.width = z.channels;
        z.height = 0;
    }

    z.each = TILE / (z.count ? z.count : 1);
    if (z.each < 1) z.each = 1;
    const int64_t together = z.volume == 1 ? 64 : z.volume < MIN_VOLUME ? 16 : 1;
    if (z.each < together) z.each = together; /* they share lines of the cache */
    const int64_t groups = ceil_div(z.channels, z.each), by_size = z.count / TILE;
    z.pieces = groups ? ceil_div(WANTED_TILES, groups) : 1;
    if (z.pieces > by_size) z.pieces = by_size;
    if (z.pieces < 1) z.pieces = 1;
    z.whole = z.pieces == 1 && z.volume >= MIN_VOLUME;

    /* Where columns are channels, many rows share the computation of a channel's numbers. */
    const int64_t max_columns = z.height ? TILE : TILE / 64;
    z.tile_columns = z.width < max_columns ? z.width : max_columns;
    z.tile_rows = z.tile_columns ? TILE / z.tile_columns : 1;
    if (z.height && z.tile_rows > z.height) z.tile_rows -= z.tile_rows % z.height;
    z.across = z.tile_columns ? ceil_div(z.width, z.tile_columns) : 0;
    return z;
}

/* Elements of a channel that are added up together, at most. */
static inline int64_t batch_norm_run(const batch_norm_sizes *z)
{
    return z->count < BLOCK ? z->count : BLOCK;
}

static inline int64_t batch_norm_sum_tiles(const batch_norm_sizes *z)
{
    return ceil_div(z->channels, z->each) * z->pieces;
}

static inline int64_t batch_norm_blocks(const batch_norm_sizes *z)
{
    return ceil_div(z->rows, z->tile_rows) * z->across;
}

static inline weft_block batch_norm_block(const batch_norm_sizes *z, int64_t tile)
{
    const int64_t row = tile / z->across * z->tile_rows,
                  column = tile % z->across * z->tile_columns;
    const int64_t rows = z->rows - row, columns = z->width - column;
    return (weft_block){row, rows < z->tile_rows ? rows : z->tile_rows, column,
                        columns < z->tile_columns ? columns : z->tile_columns};
}

/* Channels that a block has elements of, at most. */
static inline int64_t batch_norm_block_channels(const batch_norm_sizes *z)
{
    if (!z->height) return z->tile_columns;
    const int64_t most = ceil_div(z->tile_rows, z->height) + 1;
    return most < z->channels ? most : z->channels;
}

#endif
