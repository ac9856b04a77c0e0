/* channels_last: convolutions by weights that stay the same in all runs become conv_rows and
 * conv_rows_depthwise, whose images have the channels innermost. There the patch of a pixel is a
 * few contiguous runs of the image, so that only the weights are packed, in the first run.
 *
 *     conv(x, w)    [images, channels, height, width]
 *         = permute(conv_rows(permute(x), panels(w)))
 *
 * permute is a view. Elementwise nodes, max_pool and concat between such convolutions are moved
 * inside the permutations, so that no data are moved. A node with an image of the other layout is
 * left alone. A relu or clamp of a convolution becomes its bounds. O(nodes). */
#include "conv/conv_path.h"
#include "conv/winograd.h"
#include "matmul/gemm.h"
#include "matmul/panels.h"
#include "../passes.h"
#include "images.h"
#include "terms.h"

#include <weft/ops.h>
#include <weft/plan.h>

#include <math.h>

extern const weft_op weft_op_conv, weft_op_max_pool, weft_op_concat, weft_op_relu, weft_op_clamp;

/* Products that are added one after the other: SIMD_CHAIN, which only kernels see. */
#define CHAIN 128

/* ---- Layouts ---- */

/* Do the channels of an image lie innermost? */
static bool is_last(const weft_graph *g, weft_value x)
{
    const weft_shape s = weft_shape_of(g, x);
    const weft_layout l = weft_layout_of(g, x);
    if (s.rank != 4) return false;
    const weft_shape shape = {4, {s.dim[0], s.dim[2], s.dim[3], s.dim[1]}};
    const weft_layout layout = {{l.stride[0], l.stride[2], l.stride[3], l.stride[1]}, 0};
    return weft_layout_is_dense(&layout, shape);
}

/* ---- Convolutions ---- */

/* The weights without the taps that lie in the padding in all windows; `a` becomes the attribute of
 * the smaller kernel. */
static weft_value used_weights(const weft_rewrite *r, conv_rows_attr *a)
{
    const conv_sizes z = images_conv_sizes(r);
    weft_value w = r->in[1];
    for (int d = 0; d < 2; d++) {
        int64_t first, n;
        conv_used_taps(&z, d + 1, &first, &n);
        const int64_t after = a->kernel.dim[d] - first - n;
        const int64_t begin = a->pad_begin.dim[d] - first * a->dilation.dim[d];
        const int64_t end = a->pad_end.dim[d] - after * a->dilation.dim[d];
        if (first + after == 0 || begin < 0 || end < 0) continue;
        w = weft_slice(r->graph, w, 2 + d, first, first + n, 1);
        a->kernel.dim[d] = n;
        a->pad_begin.dim[d] = begin;
        a->pad_end.dim[d] = end;
    }
    return w;
}

/* Whether the sums stay the same: those over planes are not cut, those of products are. */
static bool keeps_sums(const weft_rewrite *r, bool depthwise)
{
    const conv_sizes z = images_conv_sizes(r);
    const bool planes = weft__conv_path_of(&z, false) == CONV_BY_PLANES;
    return planes == depthwise || z.in_channels * z.taps <= CHAIN;
}

static bool visit_conv(weft_rewrite *r)
{
    weft_graph *g = r->graph;
    const conv_attr *a = r->node.attr;
    const weft_shape x = weft_shape_of(g, r->in[0]), w = weft_shape_of(g, r->in[1]);
    if (x.rank != 4 || !terms_fixed(r, r->node.in[1]) ||
        !weft__gemm_is_own(weft_dtype_of(g, r->in[0])))
        return false;
    const bool depthwise = a->groups == x.dim[1] && a->groups == w.dim[0] && a->groups > 1;
    if ((a->groups != 1 && !depthwise) || !keeps_sums(r, depthwise)) return false;
    conv_rows_attr attr = images_conv_attr(a, w);
    weft_value in[3] = {images_to_last(g, r->in[0]), WEFT_NO_VALUE,
                        r->node.n_in > 2 ? r->in[2] : r->in[0]};
    if (depthwise) {
        in[1] = weft_reshape(g, weft_permute(g, r->in[1], (weft_axes){4, {2, 3, 0, 1}}),
                             WEFT_SHAPE(w.dim[2], w.dim[3], w.dim[0]));
    } else {
        const weft_value taps =
            weft_permute(g, used_weights(r, &attr), (weft_axes){4, {2, 3, 1, 0}});
        const weft_value matrix = weft_reshape(
            g, taps, WEFT_SHAPE(attr.kernel.dim[0] * attr.kernel.dim[1] * w.dim[1], w.dim[0]));
        in[1] = weft_apply(g, &weft_op_panels, NULL, &matrix, 1, NULL);
    }
    r->out[0] = images_to_first(
        g, weft_apply(g, depthwise ? &weft_op_conv_rows_depthwise : &weft_op_conv_rows, &attr, in,
                      r->node.n_in, NULL));
    return true;
}

/* Merges a relu or clamp into such a convolution, if it is the only reader. */
static bool visit_bounds(weft_rewrite *r)
{
    weft_graph *g = r->graph;
    const weft_node_info view = terms_producer(g, r->in[0]);
    if (view.n_in != 1 || !is_last(g, r->in[0]) || !terms_one_reader(r, r->node.in[0]))
        return false;
    const weft_node_info conv = terms_producer(g, weft_value_from_id(g, view.in[0]));
    if (conv.op != &weft_op_conv_rows && conv.op != &weft_op_conv_rows_depthwise &&
        conv.op != &weft_op_conv_winograd)
        return false;
    conv_rows_attr a = *(const conv_rows_attr *)conv.attr;
    const double *bounds = r->node.attr; /* of clamp: low, high */
    if (a.bounded) return false;
    a.bounded = true;
    a.low = r->node.op == &weft_op_relu ? 0 : bounds[0];
    a.high = r->node.op == &weft_op_relu ? INFINITY : bounds[1];
    weft_value in[3] = {WEFT_NO_VALUE};
    for (size_t i = 0; i < conv.n_in; i++) in[i] = weft_value_from_id(g, conv.in[i]);
    r->out[0] = images_to_first(g, weft_apply(g, conv.op, &a, in, conv.n_in, NULL));
    return true;
}

/* ---- What is moved inside the permutations ---- */

/* An operand of an elementwise node, which broadcasts to an image: as it broadcasts to the image
 * with its channels innermost. */
static weft_value operand_to_last(weft_graph *g, weft_value x)
{
    const weft_shape s = weft_shape_of(g, x);
    weft_shape whole = {4, {1, 1, 1, 1}};
    if (s.rank == 0) return x;
    for (int d = 0; d < s.rank; d++) whole.dim[4 - s.rank + d] = s.dim[d];
    return images_to_last(g, s.rank < 4 ? weft_reshape(g, x, whole) : x);
}

static bool visit_elementwise(weft_rewrite *r)
{
    weft_graph *g = r->graph;
    const weft_op *op = r->node.op;
    const weft_value old = weft_value_from_id(r->source, r->node.first_out);
    const weft_shape out = weft_shape_of(r->source, old);
    weft_value in[WEFT_SAMPLE_INPUTS];
    bool any = false;
    if (op->random || op->n_out != 1 || out.rank != 4 || r->node.n_in > WEFT_SAMPLE_INPUTS)
        return false;
    for (size_t i = 0; i < r->node.n_in; i++) {
        const weft_shape s = weft_shape_of(g, r->in[i]);
        const bool image = weft_shape_numel(s) == weft_shape_numel(out),
                   last = is_last(g, r->in[i]);
        if (image && !last) return false;
        any = any || image;
        in[i] = r->in[i];
    }
    if (!any) return false;
    for (size_t i = 0; i < r->node.n_in; i++) in[i] = operand_to_last(g, r->in[i]);
    r->out[0] = images_to_first(g, weft_apply(g, op, r->node.attr, in, r->node.n_in, NULL));
    return true;
}

/* Channels become the innermost dimension of a single channel's volume, over which the window does
 * not reach. A place in that volume, divided by the channels, is the place in the image. */
static bool visit_max_pool(weft_rewrite *r)
{
    weft_graph *g = r->graph;
    pool_attr a = *(const pool_attr *)r->node.attr;
    const weft_shape x = weft_shape_of(g, r->in[0]);
    const weft_shape y = weft_shape_of(r->source, weft_value_from_id(r->source, r->node.first_out));
    if (!is_last(g, r->in[0]) || weft_shape_numel(x) / x.dim[0] > INT32_MAX) return false;
    a.kernel.dim[a.kernel.rank++] = 1;
    a.window.stride.dim[a.window.stride.rank++] = 1;
    a.window.dilation.dim[a.window.dilation.rank++] = 1;
    a.window.pad_begin.rank++;
    a.window.pad_end.rank++;
    const weft_value image = weft_reshape(g, images_to_last(g, r->in[0]),
                                          WEFT_SHAPE(x.dim[0], 1, x.dim[2], x.dim[3], x.dim[1]));
    weft_value pooled[2];
    weft_apply(g, &weft_op_max_pool, &a, &image, 1, pooled);
    const weft_value place = weft_cast(g, pooled[1], WEFT_F64); /* quotients are exact */
    const weft_value channels = weft_scalar(g, WEFT_F64, (double)x.dim[1]);
    pooled[1] = weft_cast(g, weft_floor(g, weft_div(g, place, channels)), WEFT_I32);
    for (int i = 0; i < 2; i++)
        r->out[i] = images_to_first(
            g, weft_reshape(g, pooled[i], WEFT_SHAPE(y.dim[0], y.dim[2], y.dim[3], y.dim[1])));
    return true;
}

static bool visit_concat(weft_rewrite *r)
{
    weft_graph *g = r->graph;
    const weft_value old = weft_value_from_id(r->source, r->node.first_out);
    if (*(const int32_t *)r->node.attr != 1 || weft_rank_of(r->source, old) != 4) return false;
    for (size_t i = 0; i < r->node.n_in; i++)
        if (!is_last(g, r->in[i])) return false;
    for (size_t i = 0; i < r->node.n_in; i++) r->in[i] = images_to_last(g, r->in[i]);
    r->out[0] = images_to_first(g, weft_concat(g, r->in, r->node.n_in, 3));
    return true;
}

static bool visit(weft_rewrite *r)
{
    const weft_op *op = r->node.op;
    if (op == &weft_op_conv) return visit_conv(r);
    if (op == &weft_op_max_pool) return visit_max_pool(r);
    if (op == &weft_op_concat) return visit_concat(r);
    if ((op == &weft_op_relu || op == &weft_op_clamp) && visit_bounds(r)) return true;
    return op->elementwise && visit_elementwise(r);
}

const weft_pass weft__pass_channels_last = {
    .name = "channels_last",
    .doc = "convolutions by parameters read images with channels last",
    .visit = visit,
    .memory_bytes = terms_readers_bytes,
    .wanted = images_wanted,
};
