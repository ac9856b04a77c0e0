/* winograd: convolutions of 3 x 3 taps in f32 by weights that stay the same in all runs become
 * conv_winograd where that takes less time (ops/conv/winograd_choice.c). Their images have the
 * channels innermost, as those of channels_last, whose walk this pass shares:
 *
 *     conv(x, w) = permute(conv_winograd(permute(x), winograd_weights(w)))
 *
 * The first run transforms the weights. Rounds differently. O(nodes). */
#include "conv/winograd.h"
#include "matmul/gemm.h"
#include "../passes.h"
#include "images.h"
#include "terms.h"

#include <weft/ops.h>
#include <weft/plan.h>

extern const weft_op weft_op_conv;

/* The tile of a convolution; 0 if it stays. */
static int64_t tile_of(const weft_rewrite *r)
{
    const weft_graph *g = r->graph;
    const conv_attr *a = r->node.attr;
    const weft_shape x = weft_shape_of(g, r->in[0]), w = weft_shape_of(g, r->in[1]);
    if (x.rank != 4 || a->groups != 1 || weft_dtype_of(g, r->in[0]) != WEFT_F32 ||
        !terms_fixed(r, r->node.in[1]) || !weft__gemm_is_own(WEFT_F32))
        return 0;
    for (int d = 0; d < 2; d++)
        if (w.dim[2 + d] != 3 || a->stride.dim[d] != 1 || a->dilation.dim[d] != 1) return 0;
    const conv_sizes z = images_conv_sizes(r);
    return weft__winograd_choice(&z);
}

static bool visit(weft_rewrite *r)
{
    weft_graph *g = r->graph;
    if (r->node.op != &weft_op_conv) return false;
    const winograd_weights_attr tile = {tile_of(r)};
    if (!tile.tile) return false;
    const conv_rows_attr attr = images_conv_attr(r->node.attr, weft_shape_of(g, r->in[1]));
    const weft_value x = images_to_last(g, r->in[0]);
    const weft_value u = weft_apply(g, &weft_op_winograd_weights, &tile, &r->in[1], 1, NULL);
    const weft_value in[3] = {x, u, r->node.n_in > 2 ? r->in[2] : x};
    const weft_value out = weft_apply(g, &weft_op_conv_winograd, &attr, in, r->node.n_in, NULL);
    r->out[0] = images_to_first(g, out);
    return true;
}

const weft_pass weft__pass_winograd = {
    .name = "winograd",
    .doc = "convolutions of 3 x 3 taps by parameters need fewer multiplications",
    .visit = visit,
    .wanted = images_wanted,
};
