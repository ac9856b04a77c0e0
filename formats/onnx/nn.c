/* Ops of ONNX for layers of networks: softmax, normalisation, dropout and losses. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <math.h>

/* ---- Softmax ---- */

/* Before opset 13 all axes from `axis` on are one. */
static void map_softmax(onnx_node *n, weft_value (*f)(weft_graph *, weft_value, int))
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    const weft_shape s = weft__in_shape(n, 0);
    const int64_t axis = weft__attr_int(n, "axis", n->opset >= 13 ? -1 : 1);
    if (n->opset >= 13) {
        weft__set_out(n, 0, f(g, x, weft__node_axis(n, axis, s.rank)));
        return;
    }
    int64_t rows = 1, columns = 1;
    const int at = axis == s.rank ? s.rank : weft__node_axis(n, axis, s.rank);
    for (int i = 0; i < s.rank; i++) *(i < at ? &rows : &columns) *= s.dim[i];
    weft__set_out(n, 0, weft_reshape(g, f(g, weft_reshape(g, x, WEFT_SHAPE(rows, columns)), 1), s));
}

void weft__map_Softmax(onnx_node *n)
{
    map_softmax(n, weft_softmax);
}

void weft__map_LogSoftmax(onnx_node *n)
{
    map_softmax(n, weft_log_softmax);
}

/* ---- Normalisation ---- */

/* Scales and shifts by inputs 1 and 2 of a shape. */
static weft_value affine(onnx_node *n, weft_value x, weft_shape shape)
{
    weft_graph *g = n->graph;
    x = weft_mul(g, x, weft_reshape(g, weft__in_value(n, 1), shape));
    return has_in(n, 2) ? weft_add(g, x, weft_reshape(g, weft__in_value(n, 2), shape)) : x;
}

/* Over the axes from `axis` on. Outputs 1 and 2 are the mean and the inverse deviation. */
void weft__map_LayerNormalization(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    const weft_shape s = weft__in_shape(n, 0);
    const int axis = weft__attr_axis(n, "axis", -1, s.rank);
    const double eps = weft__attr_float(n, "epsilon", 1e-5);
    int64_t rows = 1, features = 1;
    weft_shape one = s;
    for (int i = 0; i < s.rank; i++) *(i < axis ? &rows : &features) *= s.dim[i];
    for (int i = axis; i < s.rank; i++) one.dim[i] = 1;
    if (weft__node_failed(n)) return;
    weft_value flat = weft_reshape(g, x, WEFT_SHAPE(rows, features));
    const weft_value none = WEFT_NO_VALUE;
    if (weft_shape_numel(weft__in_shape(n, 1)) == features &&
        (!has_in(n, 2) || weft_shape_numel(weft__in_shape(n, 2)) == features)) {
        weft_value gamma = weft_reshape(g, weft__in_value(n, 1), WEFT_SHAPE(features));
        weft_value beta =
            has_in(n, 2) ? weft_reshape(g, weft__in_value(n, 2), WEFT_SHAPE(features)) : none;
        weft__set_out(n, 0, weft_reshape(g, weft_layer_norm(g, flat, gamma, beta, eps), s));
    } else {
        weft_value y = weft_reshape(g, weft_layer_norm(g, flat, none, none, eps), s);
        y = weft_mul(g, y, weft__in_value(n, 1));
        weft__set_out(n, 0, has_in(n, 2) ? weft_add(g, y, weft__in_value(n, 2)) : y);
    }
    if (has_out(n, 1))
        weft__set_out(n, 1, weft_reshape(g, weft_mean(g, flat, WEFT_AXES(1), true), one));
    if (has_out(n, 2)) {
        weft_value variance = weft_variance(g, flat, WEFT_AXES(1), true, 0);
        weft__set_out(n, 2, weft_reshape(g, weft_rsqrt(g, weft_add_scalar(g, variance, eps)), one));
    }
}

/* Over the axes from `axis` on, by the root of the mean square. */
void weft__map_RMSNormalization(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_shape s = weft__in_shape(n, 0);
    const int axis = weft__attr_axis(n, "axis", -1, s.rank);
    int64_t rows = 1, features = 1;
    for (int i = 0; i < s.rank; i++) *(i < axis ? &rows : &features) *= s.dim[i];
    if (weft__node_failed(n)) return;
    weft_value flat = weft_reshape(g, weft__in_value(n, 0), WEFT_SHAPE(rows, features));
    weft_value ones = weft_fill(g, weft_dtype_of(g, flat), WEFT_SHAPE(features), 1);
    const bool whole = weft_shape_numel(weft__in_shape(n, 1)) == features;
    weft_value gamma = whole ? weft_reshape(g, weft__in_value(n, 1), WEFT_SHAPE(features)) : ones;
    weft_value y = weft_rms_norm(g, flat, gamma, weft__attr_float(n, "epsilon", 1e-5));
    y = weft_reshape(g, y, s);
    weft__set_out(n, 0, whole ? y : weft_mul(g, y, weft__in_value(n, 1)));
}

/* Normalises x in `groups` groups of channels of each image. */
static weft_value normalise_groups(onnx_node *n, weft_value x, int64_t groups)
{
    weft_graph *g = n->graph;
    const weft_shape s = weft_shape_of(g, x);
    const weft_value none = WEFT_NO_VALUE;
    weft_value flat = weft_reshape(g, x, WEFT_SHAPE(s.dim[0] * groups, -1));
    return weft_reshape(
        g, weft_layer_norm(g, flat, none, none, weft__attr_float(n, "epsilon", 1e-5)), s);
}

/* [1, channels, 1, ...] */
static weft_shape per_channel(weft_shape s)
{
    weft_shape shape = {.rank = s.rank};
    for (int i = 0; i < s.rank; i++) shape.dim[i] = i == 1 ? s.dim[1] : 1;
    return shape;
}

static bool has_channels(onnx_node *n)
{
    const weft_shape s = weft__in_shape(n, 0);
    if (s.rank >= 2 && weft_shape_numel(s) > 0) return true;
    weft__node_fail(n, WEFT_BAD_SHAPE, "needs an input [batch, channels, ...] with elements");
    return false;
}

void weft__map_InstanceNormalization(onnx_node *n)
{
    if (!has_channels(n)) return;
    const weft_shape s = weft__in_shape(n, 0);
    weft__set_out(n, 0,
                  affine(n, normalise_groups(n, weft__in_value(n, 0), s.dim[1]), per_channel(s)));
}

/* Scale and bias are of groups before opset 21, then of channels. */
void weft__map_GroupNormalization(onnx_node *n)
{
    const int64_t groups = weft__attr_int(n, "num_groups", 0);
    if (!has_channels(n)) return;
    const weft_shape s = weft__in_shape(n, 0);
    if (groups < 1 || s.dim[1] % groups) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "%lld channels are not a multiple of %lld groups",
                        (long long)s.dim[1], (long long)groups);
        return;
    }
    weft_value y = normalise_groups(n, weft__in_value(n, 0), groups);
    if (n->opset >= 21) {
        weft__set_out(n, 0, affine(n, y, per_channel(s)));
        return;
    }
    y = weft_reshape(n->graph, y, WEFT_SHAPE(s.dim[0], groups, -1));
    y = affine(n, y, WEFT_SHAPE(1, groups, 1));
    weft__set_out(n, 0, weft_reshape(n->graph, y, s));
}

void weft__map_MeanVarianceNormalization(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    const int rank = weft__in_shape(n, 0).rank;
    int64_t list[WEFT_MAX_RANK] = {0, 2, 3};
    const int count =
        weft__has_attr(n, "axes") ? weft__attr_ints(n, "axes", list, WEFT_MAX_RANK) : 3;
    weft_axes axes = {.count = count > 0 ? count : 0};
    for (int i = 0; i < axes.count; i++) axes.axis[i] = weft__node_axis(n, list[i], rank);
    if (weft__node_failed(n)) return;
    /* The second mean is the rounding error of the first one. */
    weft_value centered = weft_sub(g, x, weft_mean(g, x, axes, true));
    centered = weft_sub(g, centered, weft_mean(g, centered, axes, true));
    weft_value deviation = weft_sqrt(g, weft_variance(g, x, axes, true, 0));
    weft__set_out(n, 0, weft_div(g, centered, weft_add_scalar(g, deviation, 1e-9)));
}

void weft__map_LpNormalization(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    const weft_axes axis = WEFT_AXES(weft__attr_axis(n, "axis", -1, weft__in_shape(n, 0).rank));
    weft_value norm = weft__attr_int(n, "p", 2) == 1
                          ? weft_sum(g, weft_abs(g, x), axis, true)
                          : weft_sqrt(g, weft_sum(g, weft_square(g, x), axis, true));
    /* Elements that are all zero stay zero. */
    weft_value none = weft_equal(g, norm, weft_scalar(g, weft_dtype_of(g, x), 0));
    weft__set_out(n, 0, weft_div(g, x, weft_masked_fill(g, norm, none, 1)));
}

/* x / (bias + alpha / size sum x^2)^beta over `size` neighbouring channels (Krizhevsky et al.
 * 2012). */
void weft__map_LRN(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    const int64_t size = weft__attr_int(n, "size", 0);
    if (!has_channels(n)) return;
    if (size < 1 || size > 1024) {
        weft__node_fail(n, WEFT_BAD_ARGUMENT, "size %lld is outside of 1 to 1024", (long long)size);
        return;
    }
    int64_t before[WEFT_MAX_RANK] = {0}, after[WEFT_MAX_RANK] = {0};
    before[1] = (size - 1) / 2;
    after[1] = size / 2;
    const int64_t channels = weft__in_shape(n, 0).dim[1];
    weft_value padded = weft_pad(g, weft_square(g, x), before, after, 0);
    weft_value sum = weft_slice(g, padded, 1, 0, channels, 1);
    for (int64_t i = 1; i < size; i++)
        sum = weft_add(g, sum, weft_slice(g, padded, 1, i, i + channels, 1));
    sum = weft_mul_scalar(g, sum, weft__attr_float(n, "alpha", 1e-4) / (double)size);
    sum = weft_add_scalar(g, sum, weft__attr_float(n, "bias", 1));
    weft__set_out(n, 0, weft_div(g, x, weft_pow_scalar(g, sum, weft__attr_float(n, "beta", 0.75))));
}

/* ---- Losses ---- */

/* log_p [rows, classes, ...] to [rows, ..., classes] */
static weft_value classes_last(weft_graph *g, weft_value x)
{
    weft_axes axes = {.count = weft_rank_of(g, x)};
    if (axes.count < 2) return x; /* the error is the gather's */
    for (int i = 1; i + 1 < axes.count; i++) axes.axis[i] = i + 1;
    axes.axis[axes.count - 1] = 1;
    return weft_permute(g, x, axes);
}

/* Minus the weighted log probabilities of targets, input 1; their weights are input 2. */
static weft_value likelihood_loss(onnx_node *n, weft_value log_p)
{
    weft_graph *g = n->graph;
    const weft_dtype dtype = weft_dtype_of(g, log_p);
    const weft_value target = weft__in_value(n, 1);
    const weft_shape shape = weft__in_shape(n, 1);
    const int64_t ignored = weft__attr_int(n, "ignore_index", 0);
    weft_value valid = WEFT_NO_VALUE, safe = target, weight = weft_fill(g, dtype, shape, 1);
    if (weft__has_attr(n, "ignore_index")) {
        valid =
            weft_logical_not(g, weft_equal(g, target, weft_scalar(g, WEFT_I32, (double)ignored)));
        safe = weft_where(g, valid, target, weft_scalar(g, WEFT_I32, 0));
    }
    weft_value last = classes_last(g, log_p);
    weft_value picked = weft_gather(g, last, weft_expand_dims(g, safe, -1), -1);
    picked = weft_squeeze(g, picked, -1);
    if (has_in(n, 2)) {
        weft_value table = weft_expand_dims(g, weft__in_value(n, 2), 1);
        weight = weft_squeeze(g, weft_embedding(g, table, safe, -1), -1);
    }
    if (weft_is_value(valid)) weight = weft_mul(g, weight, weft_cast(g, valid, dtype));
    weft_value loss = weft_neg(g, weft_mul(g, picked, weight));
    if (weft__attr_is(n, "reduction", "none", "mean")) return loss;
    weft_value sum = weft_sum(g, loss, WEFT_ALL_AXES, false);
    if (weft__attr_is(n, "reduction", "sum", "mean")) return sum;
    return weft_div(g, sum, weft_sum(g, weight, WEFT_ALL_AXES, false));
}

void weft__map_NegativeLogLikelihoodLoss(onnx_node *n)
{
    weft__set_out(n, 0, likelihood_loss(n, weft__in_value(n, 0)));
}

void weft__map_SoftmaxCrossEntropyLoss(onnx_node *n)
{
    const weft_value log_p = weft_log_softmax(n->graph, weft__in_value(n, 0), 1);
    weft__set_out(n, 0, likelihood_loss(n, log_p));
    weft__set_out(n, 1, log_p);
}
