/* Convolutions of planes, which the kernels of conv and of its gradients call where that is less
 * work than a matrix product: how they are cut. */
#ifndef WEFT_OPS_CONV_PLANES_H
#define WEFT_OPS_CONV_PLANES_H

#include "conv.h"

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

/* Whether the sums over taps alone can compute the result; sets *p to how it is cut. */
static inline bool conv_planes_fit(const conv_sizes *z, bool transposed, conv_planes *p)
{
    if (z->in_channels != 1 || (transposed && z->out_channels != 1) || z->in[0] != 1 ||
        z->out[0] != 1 || z->kernel[0] != 1 || z->begin[0] != 0 || z->taps > CONV_PLANE_TAPS)
        return false;
    *p = conv_planes_of(z, transposed);
    return (double)p->slab_rows * (double)p->slab_width <= CONV_PLANE_SLAB;
}

#ifdef WEFT_KERNEL_ISA

/* A tile of conv or conv_grad_input: conv_planes.each blocks. */
void KERNEL_NAME(conv_planes)(const weft_call *call, int64_t tile);
/* A tile of conv_grad_weight: one channel of dy. */
void KERNEL_NAME(conv_planes_weight)(const weft_call *call, int64_t tile);

#endif
#endif
