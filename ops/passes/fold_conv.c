/* fold_conv: what scales or shifts each channel of a convolution moves into its weights and bias,
 * as batch norm does that evaluates by running statistics:
 *
 *     conv(x, w, b) + t = conv(x, w, b + t)        conv(x, w, b) s = conv(x, s w, s b)
 *
 * for s and t with one number a channel, if nothing else reads the convolution. Scaling moves only
 * if the convolution has no more weights than results, or if s w is computed in a session's first
 * run only. It rounds differently. O(nodes). */
#include "../passes.h"
#include "terms.h"

#include <weft/ops.h>

extern const weft_op weft_op_conv, weft_op_add, weft_op_sub, weft_op_mul;

/* Has t one number for each channel of y, and broadcasts to y? */
static bool is_per_channel(const weft_graph *g, weft_value t, weft_value y)
{
    const weft_shape from = weft_shape_of(g, t), to = weft_shape_of(g, y);
    const int channels = 1 - (to.rank - from.rank);
    return from.rank <= to.rank && channels >= 0 && from.dim[channels] == to.dim[1] &&
           weft_shape_numel(from) == to.dim[1];
}

static double numel(const weft_graph *g, weft_value value)
{
    return (double)weft_shape_numel(weft_shape_of(g, value));
}

/* A convolution with its operands taken apart. */
typedef struct conv_node {
    const void *attr;
    weft_value x, w, bias; /* bias: WEFT_NO_VALUE if there is none */
} conv_node;

/* Are the weights of a convolution of the source fixed? Scales and shifts that have been folded
 * into it may lie between the value and the convolution. */
static bool has_fixed_weights(const weft_rewrite *r, uint32_t id)
{
    for (;;) {
        const weft_value value = weft_value_from_id(r->source, id);
        const weft_node_info node = terms_producer(r->source, value);
        if (node.op == &weft_op_conv) return terms_fixed(r, node.in[1]);
        if (node.op != &weft_op_add && node.op != &weft_op_sub && node.op != &weft_op_mul)
            return false;
        const weft_value first = weft_value_from_id(r->source, node.in[0]);
        id = node.in[numel(r->source, first) == numel(r->source, value) ? 0 : 1];
    }
}

/* Does the node scale or shift the channels of its input i, a convolution that only it reads? */
static bool follows_conv(weft_rewrite *r, size_t i, conv_node *conv)
{
    const weft_graph *g = r->graph;
    const weft_node_info node = terms_producer(g, r->in[i]);
    if (node.op != &weft_op_conv || !is_per_channel(g, r->in[1 - i], r->in[i]) ||
        !terms_one_reader(r, r->node.in[i]))
        return false;
    *conv =
        (conv_node){node.attr, weft_value_from_id(g, node.in[0]), weft_value_from_id(g, node.in[1]),
                    node.n_in > 2 ? weft_value_from_id(g, node.in[2]) : WEFT_NO_VALUE};
    if (r->node.op != &weft_op_mul) return true;
    if (has_fixed_weights(r, r->node.in[i])) return terms_fixed(r, r->node.in[1 - i]);
    return numel(g, conv->w) <= numel(g, r->in[i]);
}

static void scale(weft_graph *g, conv_node *conv, weft_value s)
{
    weft_shape shape = {.rank = weft_rank_of(g, conv->w), .dim = {weft_dim_of(g, s, 0)}};
    for (int d = 1; d < shape.rank; d++) shape.dim[d] = 1;
    conv->w = weft_mul(g, conv->w, weft_reshape(g, s, shape));
    if (weft_is_value(conv->bias)) conv->bias = weft_mul(g, conv->bias, s);
}

static void shift(weft_graph *g, conv_node *conv, weft_value t, bool negative)
{
    if (weft_is_value(conv->bias))
        conv->bias = negative ? weft_sub(g, conv->bias, t) : weft_add(g, conv->bias, t);
    else
        conv->bias = negative ? weft_neg(g, t) : t;
}

static bool visit(weft_rewrite *r)
{
    const weft_op *op = r->node.op;
    weft_graph *g = r->graph;
    conv_node conv;
    if (op != &weft_op_add && op != &weft_op_sub && op != &weft_op_mul) return false;
    size_t i = 0;
    while (i < 2 && !follows_conv(r, i, &conv)) i++;
    if (i == 2 || (op == &weft_op_sub && i == 1)) return false;
    weft_value t = weft_reshape(g, r->in[1 - i], WEFT_SHAPE(weft_dim_of(g, r->in[i], 1)));
    if (op == &weft_op_mul)
        scale(g, &conv, t);
    else
        shift(g, &conv, t, op == &weft_op_sub);
    const weft_value in[3] = {conv.x, conv.w, conv.bias};
    r->out[0] = weft_apply(g, &weft_op_conv, conv.attr, in, weft_is_value(conv.bias) ? 3 : 2, NULL);
    return true;
}

const weft_pass weft__pass_fold_conv = {
    .name = "fold_conv",
    .doc = "scales and shifts of channels are folded into the preceding convolution",
    .visit = visit,
    .memory_bytes = terms_readers_bytes,
};
