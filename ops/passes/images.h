/* What the passes that put the channels of images innermost share. */
#ifndef WEFT_OPS_PASSES_IMAGES_H
#define WEFT_OPS_PASSES_IMAGES_H

#include "conv/conv_rows.h"

#include <weft/ops.h>
#include <weft/pass.h>
#include <weft/plan.h>

/* As a view: [images, height, width, channels] from [images, channels, height, width], and back. */
static inline weft_value images_to_last(weft_graph *g, weft_value x)
{
    return weft_permute(g, x, (weft_axes){4, {0, 2, 3, 1}});
}

static inline weft_value images_to_first(weft_graph *g, weft_value x)
{
    return weft_permute(g, x, (weft_axes){4, {0, 3, 1, 2}});
}

/* The attribute of a convolution of such images, of rank 2, by weights of shape w. */
static inline conv_rows_attr images_conv_attr(const conv_attr *a, weft_shape w)
{
    return (conv_rows_attr){.kernel = {2, {w.dim[2], w.dim[3]}},
                            .stride = a->stride,
                            .dilation = a->dilation,
                            .pad_begin = a->pad_begin,
                            .pad_end = a->pad_end,
                            .columns = w.dim[0]};
}

/* The sizes of the convolution that a pass visits. */
static inline conv_sizes images_conv_sizes(const weft_rewrite *r)
{
    const weft_shape x = weft_shape_of(r->graph, r->in[0]), w = weft_shape_of(r->graph, r->in[1]);
    const weft_shape y = weft_shape_of(r->source, weft_value_from_id(r->source, r->node.first_out));
    return conv_sizes_of(r->node.attr, &x, &w, &y);
}

/* For `wanted`: such weights are packed once, by the first run, which takes fixed states. */
static inline bool images_wanted(const weft_plan_options *options)
{
    return options->fixed_states;
}

#endif
