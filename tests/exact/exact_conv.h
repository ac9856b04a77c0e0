/* What the references of convolutions share: sizes, and the choice of a path. See exact.h. Inside,
 * all have three spatial dimensions; those that an image lacks come first, with size 1. */
#ifndef WEFT_TESTS_EXACT_CONV_H
#define WEFT_TESTS_EXACT_CONV_H

#include "exact_math.h"

#define DIMS  3
#define CHAIN 128 /* terms of a product that are added to each other before others are */

typedef struct conv_attr {
    weft_shape stride, dilation, pad_begin, pad_end, size;
    int64_t groups;
} conv_attr;

/* As in ops/conv/conv.h. */
typedef struct conv_sizes {
    int64_t images, groups;
    int64_t in_channels, out_channels; /* of a group */
    int64_t in[DIMS], out[DIMS], kernel[DIMS], stride[DIMS], dilation[DIMS], begin[DIMS];
    int64_t in_volume, out_volume, taps;
    bool pointwise;
} conv_sizes;

/* Which sums a convolution has follows from an estimate of their work, which is the library's (see
 * ops/conv/conv_path.h): 0 a product with patches, 1 sums over taps, 2 a product that is added to
 * the image. */
int weft__conv_path_of(const conv_sizes *z, bool transposed);
bool weft__conv_weight_is_direct(const conv_sizes *z);

static inline int64_t volume_of(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

static inline int64_t up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline void coordinates(int64_t index, const int64_t *size, int64_t *at)
{
    for (int d = DIMS - 1; d >= 0; d--) {
        at[d] = index % size[d];
        index /= size[d];
    }
}

static inline conv_sizes sizes_of(const void *attr, const weft_shape *x, const weft_shape *w,
                                  const weft_shape *y)
{
    const conv_attr *a = attr;
    conv_sizes z = {.images = x->dim[0],
                    .groups = a->groups,
                    .in_channels = w->dim[1],
                    .out_channels = w->dim[0] / a->groups,
                    .pointwise = true};
    for (int d = 0; d < DIMS; d++) {
        const int s = d - (DIMS - a->stride.rank);
        z.in[d] = s < 0 ? 1 : x->dim[s + 2];
        z.out[d] = s < 0 ? 1 : y->dim[s + 2];
        z.kernel[d] = s < 0 ? 1 : w->dim[s + 2];
        z.stride[d] = s < 0 || z.out[d] == 1 ? 1 : a->stride.dim[s];
        z.dilation[d] = s < 0 || z.kernel[d] == 1 ? 1 : a->dilation.dim[s];
        z.begin[d] = s < 0 ? 0 : a->pad_begin.dim[s];
        z.pointwise &= z.kernel[d] == 1 && z.stride[d] == 1 && !z.begin[d] && z.in[d] == z.out[d];
    }
    z.in_volume = volume_of(z.in);
    z.out_volume = volume_of(z.out);
    z.taps = volume_of(z.kernel);
    for (int d = 0; z.pointwise && d < DIMS; d++)
        z.in[d] = z.out[d] = d == DIMS - 1 ? z.in_volume : 1;
    return z;
}

/* The element of the image that a pixel of the result reads at a tap, or -1 in the padding. */
static inline int64_t pixel_at(const conv_sizes *z, int64_t pixel, int64_t tap)
{
    int64_t at[DIMS], t[DIMS], place = 0;
    coordinates(pixel, z->out, at);
    coordinates(tap, z->kernel, t);
    for (int d = 0; d < DIMS; d++) {
        const int64_t i = at[d] * z->stride[d] + t[d] * z->dilation[d] - z->begin[d];
        if (i < 0 || i >= z->in[d]) return -1;
        place = place * z->in[d] + i;
    }
    return place;
}

/* The pixel of the result that reads element `element` of the image at a tap, or -1. */
static inline int64_t pixel_of(const conv_sizes *z, int64_t element, int64_t tap)
{
    int64_t at[DIMS], t[DIMS], place = 0;
    coordinates(element, z->in, at);
    coordinates(tap, z->kernel, t);
    for (int d = 0; d < DIMS; d++) {
        const int64_t i = at[d] + z->begin[d] - t[d] * z->dilation[d];
        if (i < 0 || i % z->stride[d] || i / z->stride[d] >= z->out[d]) return -1;
        place = place * z->out[d] + i / z->stride[d];
    }
    return place;
}

#endif
