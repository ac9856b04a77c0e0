/* Reading an image at positions between its pixels (sample.c), for mappings that do. */
#ifndef WEFT_ONNX_SAMPLE_H
#define WEFT_ONNX_SAMPLE_H

#include "onnx/import.h"

#define SAMPLE_MAX_SPATIAL 3

typedef enum padding { PAD_ZEROS, PAD_BORDER, PAD_REFLECTION } padding;

typedef struct sampler {
    weft_value image; /* [images, channels, spatial...] */
    weft_shape shape;
    int taps; /* along an axis: 1, 2 or 4 */
    padding padding;
    bool align_corners; /* reflect at the centres of the outer pixels, not at their edges */
} sampler;

/* Whether the input is an image [images, channels, spatial...] with pixels. */
bool weft__sample_check(onnx_node *n, weft_shape s);
/* Samples as weighted sums of pixels: the operands of weft_embedding_bag. */
typedef struct sample_terms {
    weft_value table;   /* [pixels, channels] */
    weft_value rows;    /* i32 [..., terms] */
    weft_value weights; /* [..., terms] */
} sample_terms;

/* Samples the image at coordinates at[spatial axis], in pixels, whose shapes broadcast together to
 * the shape of the result without its last dimension, the channels. `image` (f64) is the number of
 * the image and broadcasts likewise. */
weft_value weft__sample(onnx_node *n, const sampler *s, weft_value image, const weft_value *at);
/* The terms of these samples. */
sample_terms weft__sample_terms(onnx_node *n, const sampler *s, weft_value image,
                                const weft_value *at);
/* [count, 1, ...]: 0, 1, ... */
weft_value weft__sample_numbers(weft_graph *g, int64_t count, int rank);
/* The sizes of a list attribute with one number for each of `rank` dimensions, or `value`. */
bool weft__sample_sizes(onnx_node *n, const char *name, int rank, int64_t value, int64_t least,
                        int64_t *sizes);

#endif
