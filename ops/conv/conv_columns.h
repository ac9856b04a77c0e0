/* conv_grad_input as one matrix product that is added to the image ("col2im"): how it is cut.
 *
 * The product of the transposed weights [channels taps, channels of dy] and dy [channels of dy,
 * pixels] holds what each pixel of dy adds to the image, at each channel and tap. A tile is a slab
 * of an image and group, of all its channels: it computes the product for the pixels of dy that
 * reach it, a panel at a time, and adds each panel at once. So the product is never in memory as a
 * whole, and no two tiles write the same element. Neighbouring slabs share a few pixels of dy.
 * Nothing is computed for the padding, so that infinite weights need no care (conv.h). */
#ifndef WEFT_OPS_CONV_COLUMNS_H
#define WEFT_OPS_CONV_COLUMNS_H

#include "conv.h"

/* A slab is at least CONV_SLAB_REACH times as long as the part that two slabs share, and at least
 * CONV_SLAB_PIXELS pixels of dy reach it. */
#define CONV_SLAB_REACH  4
#define CONV_SLAB_PIXELS 32

typedef struct conv_columns {
    conv_sizes z;
    int64_t rows;        /* of the product: channels of a group times taps */
    int cut;             /* the dimension that is cut: those before it have size 1 */
    int64_t slab, slabs; /* elements of a slab along it; slabs of an image */
    int64_t packs;       /* tiles of phase 0 that pack the weights of a group */
} conv_columns;

/* Of sizes that are at least 1. */
static inline conv_columns conv_columns_of(const conv_sizes *z)
{
    conv_columns c = {.z = *z, .rows = z->in_channels * z->taps};
    while (c.cut < PATCH_DIMS - 1 && z->in[c.cut] == 1 && z->out[c.cut] == 1) c.cut++;
    const int64_t in = z->in[c.cut], stride = z->stride[c.cut];
    int64_t slabs = ceil_div(CONV_TILES, z->images * z->groups);
    const double flops =
        2.0 * (double)c.rows * (double)z->out_channels * (double)z->out_volume / CONV_MIN_FLOPS;
    if ((double)slabs > flops) slabs = flops < 1 ? 1 : (int64_t)flops;
    const int64_t reach = CONV_SLAB_REACH * (z->kernel[c.cut] - 1) * z->dilation[c.cut];
    const int64_t pixels =
        ceil_div(CONV_SLAB_PIXELS * z->out[c.cut] * stride, z->out_volume); /* of the image */
    c.slab = ceil_div(in, slabs);
    if (c.slab < reach) c.slab = reach;
    if (c.slab < pixels) c.slab = pixels;
    if (c.slab > in) c.slab = in;
    c.slabs = ceil_div(in, c.slab);
    c.packs = c.rows * z->out_channels > CONV_LARGE ? CONV_PACKS : 1;
    return c;
}

/* Elements of the packed weights of a group, at any height of the blocks. */
static inline int64_t conv_columns_area(const conv_columns *c)
{
    return gemm_packed_rows(conv_round_up(c->rows, GEMM_EVEN_ROWS)) * c->z.out_channels;
}

/* Tiles of a phase. */
static inline int64_t conv_columns_tiles(const conv_columns *c, int phase)
{
    return c->z.groups * (phase ? c->z.images * c->slabs : c->packs);
}

#ifdef WEFT_KERNEL_ISA
/* A tile of conv_grad_input. */
void KERNEL_NAME(conv_columns)(const weft_call *call, int64_t tile);
#endif

#endif
