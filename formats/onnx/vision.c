/* Ops of ONNX for images: convolution, pooling and batch normalisation. Images are [batch,
 * channels, spatial...]. */
#include "onnx/import.h"
#include "onnx/ops.h"
#include "onnx/quantized.h"

#include <string.h>

#define MAX_SPATIAL 3

/* ---- Windows ---- */

/* What the attributes of a convolution or pooling say. */
typedef struct window {
    int rank; /* spatial dimensions */
    int64_t kernel[MAX_SPATIAL], stride[MAX_SPATIAL], dilation[MAX_SPATIAL];
    int64_t begin[MAX_SPATIAL], end[MAX_SPATIAL]; /* padding */
} window;

/* Reads a list with `per` numbers for each spatial dimension; they keep their values without it. */
static bool read_list(onnx_node *n, const char *name, int rank, int per, int64_t *values)
{
    int64_t list[2 * MAX_SPATIAL];
    if (!weft__has_attr(n, name)) return true;
    const int count = weft__attr_ints(n, name, list, 2 * MAX_SPATIAL);
    if (count == rank * per) {
        memcpy(values, list, (size_t)count * sizeof *list);
        return true;
    }
    if (count >= 0)
        weft__node_fail(n, WEFT_BAD_ARGUMENT, "%s has %d numbers for %d spatial dimensions", name,
                        count, rank);
    return false;
}

/* Pads such that there is a window for each stride-th element (auto_pad SAME_...). */
static void pad_same(window *w, const weft_shape *x, bool upper)
{
    for (int i = 0; i < w->rank; i++) {
        const int64_t in = x->dim[2 + i], out = (in + w->stride[i] - 1) / w->stride[i];
        int64_t pad = (out - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1 - in;
        if (pad < 0) pad = 0;
        w->begin[i] = upper ? pad / 2 : pad - pad / 2;
        w->end[i] = pad - w->begin[i];
    }
}

/* Reads the attributes for an image; `kernel` NULL: kernel_shape has the sizes. */
static bool read_window(onnx_node *n, const weft_shape *x, const int64_t *kernel, window *w)
{
    int64_t pads[2 * MAX_SPATIAL] = {0};
    *w = (window){.rank = x->rank - 2};
    if (w->rank < 1 || w->rank > MAX_SPATIAL) {
        weft__node_fail(n, WEFT_BAD_SHAPE,
                        "needs an image [batch, channels, ...] with 1 to 3 spatial "
                        "dimensions, got %d dimensions",
                        x->rank);
        return false;
    }
    for (int i = 0; i < w->rank; i++) {
        w->stride[i] = w->dilation[i] = 1;
        w->kernel[i] = kernel ? kernel[i] : 0;
    }
    if (!read_list(n, "strides", w->rank, 1, w->stride) ||
        !read_list(n, "dilations", w->rank, 1, w->dilation) ||
        !read_list(n, "pads", w->rank, 2, pads) ||
        (!kernel && !read_list(n, "kernel_shape", w->rank, 1, w->kernel)))
        return false;
    for (int i = 0; i < w->rank; i++) {
        w->begin[i] = pads[i];
        w->end[i] = pads[w->rank + i];
        if (w->kernel[i] >= 1 && w->kernel[i] < 1 << 30 && w->stride[i] >= 1 &&
            w->stride[i] < 1 << 30 && w->dilation[i] >= 1 && w->dilation[i] < 1 << 30)
            continue;
        weft__node_fail(n, WEFT_BAD_ARGUMENT, "kernel, strides and dilations must be 1 or more");
        return false;
    }
    if (weft__attr_is(n, "auto_pad", "SAME_UPPER", "NOTSET")) pad_same(w, x, true);
    if (weft__attr_is(n, "auto_pad", "SAME_LOWER", "NOTSET")) pad_same(w, x, false);
    return !weft__node_failed(n);
}

/* ---- Convolution ---- */

static weft_conv_options conv_options(onnx_node *n, const window *w)
{
    weft_conv_options o = {.groups = weft__attr_int(n, "group", 1)};
    for (int i = 0; i < w->rank; i++) {
        o.stride[i] = w->stride[i];
        o.dilation[i] = w->dilation[i];
        o.pad_begin[i] = w->begin[i];
        o.pad_end[i] = w->end[i];
    }
    return o;
}

/* The kernel's sizes are those of input `i`, whose rank must be the image's. */
static bool read_conv(onnx_node *n, size_t i, window *w)
{
    const weft_shape x = weft__in_shape(n, 0), k = weft__in_shape(n, i);
    if (k.rank == x.rank) return read_window(n, &x, k.dim + 2, w);
    if (!weft__node_failed(n))
        weft__node_fail(n, WEFT_BAD_SHAPE, "the weight has %d dimensions, the image %d", k.rank,
                        x.rank);
    return false;
}

static weft_value convolve(onnx_node *n)
{
    window w;
    if (!read_conv(n, 1, &w)) return WEFT_NO_VALUE;
    const weft_conv_options o = conv_options(n, &w);
    const weft_value x = weft__in_value(n, 0), weight = weft__in_value(n, 1);
    return weft_conv(n->graph, x, weight, weft__in_value(n, 2), &o);
}

/* In bytes, if all inputs were dequantized; QuantizeLinear then reads the sums. */
void weft__map_Conv(onnx_node *n)
{
    window w;
    if (!read_conv(n, 1, &w)) return;
    const weft_conv_options o = conv_options(n, &w);
    const onnx_byte_op *c = weft__dequantized_conv(n, &o);
    weft__set_out(n, 0, c ? weft__byte_conv_sums(n, c, WEFT_F32) : convolve(n));
    if (n->n_out) n->out[0].byte_op = c;
}

/* Input 3 is added to the result before the activation. */
void weft__microsoft_FusedConv(onnx_node *n)
{
    const WeftOnnx__AttributeProto *list = weft__attr_find(n, "activation_params");
    double parameters[2] = {0};
    weft_value y = convolve(n);
    for (size_t i = 0; list && i < list->n_floats && i < 2; i++)
        parameters[i] = (double)list->floats[i];
    if (has_in(n, 3)) y = weft_add(n->graph, y, weft__in_value(n, 3));
    if (!weft__node_failed(n)) weft__set_out(n, 0, weft__fused_activation(n, y, parameters));
}

/* Padding such that the result has the sizes of output_shape, or stride times those of the image.
 */
static bool pad_transposed(onnx_node *n, window *w, int64_t *output_pad)
{
    int64_t wanted[MAX_SPATIAL];
    const weft_shape x = weft__in_shape(n, 0);
    const bool upper = weft__attr_is(n, "auto_pad", "SAME_UPPER", "NOTSET");
    const bool same = upper || weft__attr_is(n, "auto_pad", "SAME_LOWER", "NOTSET");
    if (!same && !weft__has_attr(n, "output_shape")) return true;
    for (int i = 0; i < w->rank; i++) wanted[i] = x.dim[2 + i] * w->stride[i];
    if (!read_list(n, "output_shape", w->rank, 1, wanted)) return false;
    for (int i = 0; i < w->rank; i++) {
        const int64_t pad = w->stride[i] * (x.dim[2 + i] - 1) + output_pad[i] +
                            (w->kernel[i] - 1) * w->dilation[i] + 1 - wanted[i];
        const int64_t most = pad > 0 ? pad : 0;
        if (pad < 0) output_pad[i] -= pad;
        w->begin[i] = upper ? most / 2 : most - most / 2;
        w->end[i] = most - w->begin[i];
    }
    return true;
}

void weft__map_ConvTranspose(onnx_node *n)
{
    window w;
    int64_t output_pad[MAX_SPATIAL] = {0};
    if (!read_conv(n, 1, &w) || !read_list(n, "output_padding", w.rank, 1, output_pad) ||
        !pad_transposed(n, &w, output_pad))
        return;
    weft_conv_options o = conv_options(n, &w);
    memcpy(o.output_pad, output_pad, sizeof output_pad);
    const weft_value x = weft__in_value(n, 0), weight = weft__in_value(n, 1);
    weft__set_out(n, 0, weft_conv_transpose(n->graph, x, weight, weft__in_value(n, 2), &o));
}

static onnx_value *in_or_null(onnx_node *n, size_t i)
{
    return has_in(n, i) ? n->in[i] : NULL;
}

void weft__map_ConvInteger(onnx_node *n)
{
    window w;
    if (!read_conv(n, 1, &w)) return;
    const weft_conv_options o = conv_options(n, &w);
    const onnx_byte_op *c = weft__byte_conv(
        n,
        &(byte_conv_inputs){
            .x = n->in[0], .x_zero = in_or_null(n, 2), .w = n->in[1], .w_zero = in_or_null(n, 3)},
        &o);
    if (c) {
        weft__set_typed(n, 0, weft__byte_conv_sums(n, c, WEFT_I32), ONNX_INT32);
        return;
    }
    const weft_value x = weft__quantized_centred(n, 0, 2, -1);
    const weft_value weight = weft__quantized_centred(n, 1, 3, -weft__in_shape(n, 1).rank);
    const weft_value y = weft_conv(n->graph, x, weight, WEFT_NO_VALUE, &o);
    weft__set_typed(n, 0, weft_cast(n->graph, y, WEFT_I32), ONNX_INT32);
}

/* Inputs: x, its scale and zero point, w, its scale and zero point, scale and zero point of y,
 * perhaps a bias in units of both scales. */
void weft__map_QLinearConv(onnx_node *n)
{
    window w;
    weft_graph *g = n->graph;
    if (!read_conv(n, 3, &w)) return;
    const weft_conv_options o = conv_options(n, &w);
    const int rank = weft__in_shape(n, 0).rank, type = weft__in_type(n, 7);
    const onnx_byte_op *c = weft__byte_conv(n,
                                            &(byte_conv_inputs){.x = n->in[0],
                                                                .x_scale = n->in[1],
                                                                .x_zero = in_or_null(n, 2),
                                                                .w = n->in[3],
                                                                .w_scale = n->in[4],
                                                                .w_zero = in_or_null(n, 5),
                                                                .bias = in_or_null(n, 8)},
                                            &o);
    if (c && weft__set_byte_op(n, c, 6, type)) return;
    const weft_value bias =
        has_in(n, 8) ? weft_cast(g, weft__in_value(n, 8), WEFT_F64) : WEFT_NO_VALUE;
    const weft_value x = weft__quantized_centred(n, 0, 2, -1);
    const weft_value weight = weft__quantized_centred(n, 3, 5, -rank);
    weft_value y = weft_conv(g, x, weight, bias, &o);
    const weft_value x_scale = weft__quantized_along(n, 1, 1, rank, 1);
    const weft_value weight_scale = weft__quantized_along(n, 4, 1, rank, 1);
    y = weft_mul(g, y, weft_mul(g, x_scale, weight_scale));
    y = weft_div(g, y, weft__quantized_along(n, 6, 1, rank, 1));
    weft__set_typed(
        n, 0, weft__quantized_round(n, y, weft__quantized_along(n, 7, 1, rank, 0), type), type);
}

/* ---- Pooling ---- */

static weft_pool_options pool_options(onnx_node *n, const window *w)
{
    weft_pool_options o = {.ceil_mode = weft__attr_int(n, "ceil_mode", 0) != 0,
                           .count_pad = weft__attr_int(n, "count_include_pad", 0) != 0};
    for (int i = 0; i < w->rank; i++) {
        o.kernel[i] = w->kernel[i];
        o.stride[i] = w->stride[i];
        o.dilation[i] = w->dilation[i];
        o.pad_begin[i] = w->begin[i];
        o.pad_end[i] = w->end[i];
    }
    return o;
}

/* Pads such that the windows are those of ceil_mode, and each lies inside of the padded image. Pads
 * out of range stay what they are; the pooling refuses them. */
static void pad_last_window(window *w, const weft_shape *x)
{
    for (int i = 0; i < w->rank; i++) {
        const int64_t in = x->dim[2 + i], reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
        if (w->begin[i] < 0 || w->end[i] < 0 || w->begin[i] > INT32_MAX || w->end[i] > INT32_MAX ||
            in + w->begin[i] + w->end[i] < reach)
            continue;
        const int64_t free = in + w->begin[i] + w->end[i] - reach;
        int64_t last = (free + w->stride[i] - 1) / w->stride[i] * w->stride[i];
        /* A last window that begins after the image is left out. */
        if (last >= in + w->begin[i]) last -= w->stride[i];
        const int64_t needed = last + reach - in - w->begin[i];
        w->end[i] = needed > 0 ? needed : 0;
    }
}

/* Places within a channel as places within the image, in f64: storage_order 1 counts columns
 * first. */
static weft_value places(onnx_node *n, weft_value indices, const weft_shape *x)
{
    weft_graph *g = n->graph;
    int64_t elements = 1;
    for (int d = 2; d < x->rank; d++) elements *= x->dim[d];
    weft_value at = weft_cast(g, indices, WEFT_F64), rest = at;
    if (weft__attr_int(n, "storage_order", 0)) {
        int64_t stride = 1, inner = elements;
        at = weft_scalar(g, WEFT_F64, 0);
        for (int d = 2; d < x->rank; d++) {
            inner /= x->dim[d];
            const weft_value index = weft_floor(g, weft_mul_scalar(g, rest, 1.0 / (double)inner));
            rest = weft_sub(g, rest, weft_mul_scalar(g, index, (double)inner));
            at = weft_add(g, at, weft_mul_scalar(g, index, (double)stride));
            stride *= x->dim[d];
        }
    }
    weft_shape channels = *x;
    for (int d = 2; d < x->rank; d++) channels.dim[d] = 1;
    const weft_value first = weft_arange(g, WEFT_F64, x->dim[0] * x->dim[1], 0, (double)elements);
    return weft_add(g, at, weft_reshape(g, first, channels));
}

/* The maxima in bytes, if input 0 is a quantised image. */
static bool pool_bytes(onnx_node *n, window w)
{
    const weft_shape x = weft__in_shape(n, 0);
    if (w.rank != 2 || has_out(n, 1)) return false;
    if (weft__attr_int(n, "ceil_mode", 0)) pad_last_window(&w, &x);
    const weft_conv_options o = conv_options(n, &w);
    return weft__byte_pool(n, &o, w.kernel);
}

void weft__map_MaxPool(onnx_node *n)
{
    window w;
    weft_value indices;
    const weft_shape x = weft__in_shape(n, 0);
    if (!read_window(n, &x, NULL, &w) || pool_bytes(n, w)) return;
    const weft_pool_options o = pool_options(n, &w);
    const weft_value y =
        weft_max_pool(n->graph, weft__widen(n, weft__in_value(n, 0)), &o, &indices);
    if (weft_dtype_is_float(weft_dtype_of(n->graph, weft__in_value(n, 0))))
        weft__set_out(n, 0, y);
    else
        weft__set_typed(
            n, 0, weft__narrow(n, weft__saturate(n, y, weft__in_type(n, 0)), weft__in_type(n, 0)),
            weft__in_type(n, 0));
    if (has_out(n, 1))
        weft__set_typed(n, 1, weft_cast(n->graph, places(n, indices, &x), WEFT_I32), ONNX_INT64);
}

void weft__map_AveragePool(onnx_node *n)
{
    window w;
    const weft_shape x = weft__in_shape(n, 0);
    if (!read_window(n, &x, NULL, &w)) return;
    const weft_pool_options o = pool_options(n, &w);
    weft__set_out(n, 0, weft_average_pool(n->graph, weft__in_value(n, 0), &o));
}

void weft__microsoft_QLinearAveragePool(onnx_node *n)
{
    window w;
    const weft_shape x = weft__in_shape(n, 0);
    if (weft__attr_int(n, "channels_last", 0)) {
        weft__node_fail(n, WEFT_NO_KERNEL, "channels_last is not supported");
        return;
    }
    if (!read_window(n, &x, NULL, &w)) return;
    const weft_pool_options o = pool_options(n, &w);
    const weft_value y = weft_average_pool(n->graph, weft__quantized_real(n, 0), &o);
    weft__set_quantized_real(n, y, 3, 0);
}

/* (sum |x|^p)^(1/p) of each window: a mean that counts the padding, times the window's size. */
void weft__map_LpPool(onnx_node *n)
{
    window w;
    weft_graph *g = n->graph;
    const weft_shape x = weft__in_shape(n, 0);
    const double p = (double)weft__attr_int(n, "p", 2);
    double size = 1;
    if (!read_window(n, &x, NULL, &w)) return;
    if (weft__attr_int(n, "ceil_mode", 0)) pad_last_window(&w, &x);
    weft_pool_options o = pool_options(n, &w);
    o.count_pad = true;
    o.ceil_mode = false; /* every window has all of its elements */
    for (int i = 0; i < w.rank; i++) size *= (double)w.kernel[i];
    const weft_value size_of_x = weft_abs(g, weft__in_value(n, 0));
    const weft_dtype dtype = weft_dtype_of(g, size_of_x);
    const weft_value power = weft_pow(g, size_of_x, weft_scalar(g, dtype, p));
    const weft_value sum = weft_mul_scalar(g, weft_average_pool(g, power, &o), size);
    weft__set_out(n, 0, weft_pow(g, sum, weft_scalar(g, dtype, 1 / p)));
}

static weft_axes spatial_axes(onnx_node *n)
{
    weft_axes axes = {.count = 0};
    for (int d = 2; d < weft__in_shape(n, 0).rank; d++) axes.axis[axes.count++] = d;
    if (!axes.count) weft__node_fail(n, WEFT_BAD_SHAPE, "needs an image with spatial dimensions");
    return axes;
}

void weft__map_GlobalAveragePool(onnx_node *n)
{
    const weft_axes axes = spatial_axes(n);
    if (!weft__node_failed(n))
        weft__set_out(n, 0, weft_mean(n->graph, weft__in_value(n, 0), axes, true));
}

void weft__map_GlobalMaxPool(onnx_node *n)
{
    const weft_axes axes = spatial_axes(n);
    if (!weft__node_failed(n))
        weft__set_out(n, 0, weft_max(n->graph, weft__in_value(n, 0), axes, true));
}

void weft__map_GlobalLpPool(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_axes axes = spatial_axes(n);
    const double p = (double)weft__attr_int(n, "p", 2);
    if (weft__node_failed(n)) return;
    const weft_value size = weft_abs(g, weft__in_value(n, 0));
    const weft_dtype dtype = weft_dtype_of(g, size);
    const weft_value power = weft_pow(g, size, weft_scalar(g, dtype, p));
    const weft_value sum = weft_sum(g, power, axes, true);
    weft__set_out(n, 0, weft_pow(g, sum, weft_scalar(g, dtype, 1 / p)));
}

/* ---- Batch normalisation ---- */

static onnx_mode mode_of(const onnx_node *n)
{
    return n->folding ? ONNX_AS_FILE : n->import->mode;
}

/* Whether the node computes its own mean and variance: as its use asks, or given by an attribute
 * from opset 14 on, by more than one output before. */
static bool normalises_by_batch(onnx_node *n)
{
    if (mode_of(n) != ONNX_AS_FILE) return mode_of(n) == ONNX_TRAINING;
    return n->opset >= 14 ? weft__attr_int(n, "training_mode", 0) != 0 : has_out(n, 1);
}

/* The running statistic: momentum old + (1 - momentum) of this batch. */
static weft_value running(onnx_node *n, size_t old, weft_value batch, double momentum)
{
    weft_graph *g = n->graph;
    const weft_value decayed = weft_mul_scalar(g, weft__in_value(n, old), momentum);
    batch = weft_reshape(g, batch, weft__in_shape(n, old));
    return weft_add(g, decayed, weft_mul_scalar(g, batch, 1 - momentum));
}

/* In training, tracks statistic i of the batch. False if it is frozen, so that it is used itself.
 */
static bool uses_batch(onnx_node *n, size_t i, weft_value batch, double momentum)
{
    const onnx_weight *w = n->in[i]->weight;
    if (mode_of(n) != ONNX_TRAINING) return true;
    if (n->import->choices) {
        weft__node_fail(
            n, WEFT_BAD_ARGUMENT,
            "its running statistics cannot be updated in a branch that data choose; fix "
            "the input that the condition depends on (--constant NAME=FILE)");
        return false;
    }
    if (w && w->statistic) {
        const weft_value tracked = weft__in_value(n, i);
        batch = weft_reshape(n->graph, batch, weft__in_shape(n, i));
        return weft_track(n->graph, tracked, batch, 1 - momentum);
    }
    weft__node_fail(n, WEFT_BAD_ARGUMENT,
                    "computes its running statistics from other values; training can only update "
                    "initializers");
    return false;
}

/* By mean and variance of the batch, unless they are frozen. Fills used[] with what y is normalised
 * by, and returns y, or no value if one of the two is frozen. */
static weft_value normalise_batch(onnx_node *n, weft_value used[2])
{
    weft_graph *g = n->graph;
    const double momentum = weft__attr_float(n, "momentum", 0.9),
                 eps = weft__attr_float(n, "epsilon", 1e-5);
    const weft_shape vector = WEFT_SHAPE(weft__in_shape(n, 0).dim[1]);
    const weft_value x = weft__in_value(n, 0);
    const weft_value scale = weft_reshape(g, weft__in_value(n, 1), vector);
    const weft_value bias = weft_reshape(g, weft__in_value(n, 2), vector);
    weft_value batch[2];
    const weft_value y = weft_batch_norm(g, x, scale, bias, eps, &batch[0], &batch[1]);
    bool fused = true;
    for (size_t i = 0; i < 2; i++) {
        if (uses_batch(n, 3 + i, batch[i], momentum))
            used[i] = batch[i];
        else
            fused = false;
        if (has_out(n, 1 + i)) weft__set_out(n, 1 + i, running(n, 3 + i, batch[i], momentum));
    }
    return fused ? y : WEFT_NO_VALUE;
}

/* Inputs: x, scale, bias, mean, variance, each of a channel. (Ioffe & Szegedy 2015.) */
void weft__map_BatchNormalization(onnx_node *n)
{
    weft_graph *g = n->graph;
    weft_shape shape = weft__in_shape(n, 0);
    weft_value used[2];
    for (size_t i = 0; i < 2; i++) used[i] = weft__in_value(n, 3 + i);
    if (shape.rank < 2) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "needs an input [batch, channels, ...]");
        return;
    }
    if (normalises_by_batch(n)) {
        const weft_value y = normalise_batch(n, used);
        if (weft_is_value(y)) {
            weft__set_out(n, 0, y);
            return;
        }
    }
    if (mode_of(n) == ONNX_EVALUATION) {
        if (has_out(n, 1)) weft__set_out(n, 1, weft__in_value(n, 3));
        if (has_out(n, 2)) weft__set_out(n, 2, weft__in_value(n, 4));
    }
    for (int d = 0; d < shape.rank; d++)
        if (d != 1) shape.dim[d] = 1;
    const double eps = weft__attr_float(n, "epsilon", 1e-5);
    const weft_value variance = weft_reshape(g, used[1], shape);
    const weft_value deviation = weft_rsqrt(g, weft_add_scalar(g, variance, eps));
    const weft_value scale = weft_mul(g, deviation, weft_reshape(g, weft__in_value(n, 1), shape));
    const weft_value shift = weft_mul(g, weft_reshape(g, used[0], shape), scale);
    const weft_value bias = weft_sub(g, weft_reshape(g, weft__in_value(n, 2), shape), shift);
    weft__set_out(n, 0, weft_add(g, weft_mul(g, weft__in_value(n, 0), scale), bias));
}
