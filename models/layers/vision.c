/* Layers of images: convolution, upsampling, batch norm, group norm, and the linear layer that
 * follows them. Parameters have PyTorch's names and layouts, so that its files can be loaded as
 * they are. */
#include <weft/models.h>

#include <math.h>

/* ---- Convolution ---- */

static weft_status check_conv(weft_graph *g, const char *layer, const char *name, weft_value x,
                              const weft_nn_conv_options *o)
{
    const int64_t groups = o && o->conv.groups ? o->conv.groups : 1;
    if (weft_graph_status(g) != WEFT_OK) return weft_graph_status(g);
    if (!o || o->channels < 1)
        weft_graph_fail_in(g, layer, WEFT_BAD_ARGUMENT,
                           "\"%s\": channels is required: 1 or more, got %lld", name,
                           o ? (long long)o->channels : 0);
    else if (weft_rank_of(g, x) < 3 || weft_rank_of(g, x) > 5)
        weft_graph_fail_in(g, layer, WEFT_BAD_SHAPE,
                           "\"%s\": x must be [images, channels, 1 to 3 spatial dimensions], its "
                           "rank is %d",
                           name, weft_rank_of(g, x));
    else if (groups < 1 || weft_dim_of(g, x, 1) % groups || o->channels % groups)
        weft_graph_fail_in(g, layer, WEFT_BAD_ARGUMENT,
                           "\"%s\": %lld groups must divide %lld channels in and %lld out", name,
                           (long long)groups, (long long)weft_dim_of(g, x, 1),
                           (long long)o->channels);
    return weft_graph_status(g);
}

/* Adds the dimensions of the kernel to the shape of a weight, and returns its elements. */
static double add_kernel(weft_shape *shape, const weft_nn_conv_options *o)
{
    double elements = 1;
    for (int d = 2; d < shape->rank; d++) {
        shape->dim[d] = o->kernel[d - 2] ? o->kernel[d - 2] : 1;
        elements *= (double)shape->dim[d];
    }
    return elements;
}

weft_value weft_nn_conv(weft_graph *graph, const char *name, weft_value x,
                        const weft_nn_conv_options *options)
{
    weft_graph *g = graph;
    const weft_nn_conv_options *o = options;
    if (check_conv(g, "weft_nn_conv", name, x, o) != WEFT_OK) return WEFT_NO_VALUE;
    const int64_t groups = o->conv.groups ? o->conv.groups : 1;
    const weft_dtype dtype = weft_dtype_of(g, x);
    weft_shape shape = {.rank = weft_rank_of(g, x),
                        .dim = {o->channels, weft_dim_of(g, x, 1) / groups}};
    const double fan_out = (double)(o->channels / groups) * add_kernel(&shape, o);
    const weft_init he = {WEFT_INIT_NORMAL, 0, fan_out > 0 ? sqrt(2 / fan_out) : 0};
    weft_graph_push_scope(g, "%s", name);
    weft_value weight = weft_param(g, "weight", dtype, shape, he), bias = WEFT_NO_VALUE;
    if (o->bias) bias = weft_param(g, "bias", dtype, WEFT_SHAPE(o->channels), WEFT_INIT_ZEROS);
    weft_value y = weft_conv(g, x, weight, bias, &o->conv);
    weft_graph_pop_scope(g);
    return y;
}

weft_value weft_nn_conv_transpose(weft_graph *graph, const char *name, weft_value x,
                                  const weft_nn_conv_options *options)
{
    weft_graph *g = graph;
    const weft_nn_conv_options *o = options;
    if (check_conv(g, "weft_nn_conv_transpose", name, x, o) != WEFT_OK) return WEFT_NO_VALUE;
    const int64_t groups = o->conv.groups ? o->conv.groups : 1;
    const weft_dtype dtype = weft_dtype_of(g, x);
    weft_shape shape = {.rank = weft_rank_of(g, x),
                        .dim = {weft_dim_of(g, x, 1), o->channels / groups}};
    const double fan = (double)(o->channels / groups) * add_kernel(&shape, o);
    const double bound = fan > 0 ? 1 / sqrt(fan) : 0;
    const weft_init init = {WEFT_INIT_UNIFORM, -bound, bound};
    weft_graph_push_scope(g, "%s", name);
    weft_value weight = weft_param(g, "weight", dtype, shape, init), bias = WEFT_NO_VALUE;
    if (o->bias) bias = weft_param(g, "bias", dtype, WEFT_SHAPE(o->channels), init);
    weft_value y = weft_conv_transpose(g, x, weight, bias, &o->conv);
    weft_graph_pop_scope(g);
    return y;
}

/* ---- Upsampling ---- */

weft_value weft_nn_upsample(weft_graph *graph, weft_value x, double factor, weft_resize_mode mode)
{
    const int rank = weft_rank_of(graph, x);
    const bool picks = mode == WEFT_RESIZE_NEAREST;
    weft_resize_options o = {
        .mode = mode,
        .coordinates = picks ? WEFT_RESIZE_ASYMMETRIC : WEFT_RESIZE_HALF_PIXEL,
        .rounding = WEFT_RESIZE_FLOOR,
    };
    if (rank < 3 || rank > 5) {
        weft_graph_fail_in(graph, "weft_nn_upsample", WEFT_BAD_SHAPE,
                           "x must be [images, channels, 1 to 3 spatial dimensions], its rank is "
                           "%d",
                           rank);
        return WEFT_NO_VALUE;
    }
    for (int d = 0; d < rank - 2; d++) o.scale[d] = factor;
    return weft_resize(graph, x, &o);
}

/* ---- Norms over channels ---- */

/* v [channels] as [1, channels, 1, ...], to broadcast over x. */
static weft_value per_channel(weft_graph *g, weft_value v, weft_value x)
{
    weft_shape shape = {.rank = weft_rank_of(g, x)};
    for (int d = 0; d < shape.rank; d++) shape.dim[d] = d == 1 ? weft_dim_of(g, x, 1) : 1;
    return weft_reshape(g, v, shape);
}

/* A state of each channel of x. */
static weft_value channel_state(weft_graph *g, const char *name, weft_value x, weft_init init,
                                bool trainable)
{
    const weft_shape shape = WEFT_SHAPE(weft_dim_of(g, x, 1));
    return trainable ? weft_param(g, name, weft_dtype_of(g, x), shape, init)
                     : weft_state(g, name, weft_dtype_of(g, x), shape, init);
}

static bool has_channels(weft_graph *g, const char *layer, const char *name, weft_value x)
{
    if (weft_graph_status(g) == WEFT_OK && weft_rank_of(g, x) < 2)
        weft_graph_fail_in(g, layer, WEFT_BAD_SHAPE,
                           "\"%s\": x must be [images, channels, ...], its rank is %d", name,
                           weft_rank_of(g, x));
    return weft_graph_status(g) == WEFT_OK;
}

/* Lets the running statistics follow those of the batch; false if they are frozen. As in PyTorch,
 * the running variance follows the sample variance. */
static bool track_batch(weft_graph *g, weft_value x, double momentum, const weft_value running[2],
                        const weft_value batch[2])
{
    const int64_t channels = weft_dim_of(g, x, 1);
    const int64_t n = channels ? weft_shape_numel(weft_shape_of(g, x)) / channels : 0;
    weft_value sample = batch[1];
    if (n > 1) sample = weft_mul_scalar(g, sample, (double)n / (double)(n - 1));
    const bool tracks_mean = weft_track(g, running[0], batch[0], momentum);
    const bool tracks_variance = weft_track(g, running[1], sample, momentum);
    return tracks_mean || tracks_variance;
}

weft_value weft_nn_batch_norm(weft_graph *graph, const char *name, weft_value x,
                              const weft_nn_batch_norm_options *options)
{
    static const weft_nn_batch_norm_options defaults = {0};
    const weft_nn_batch_norm_options *o = options ? options : &defaults;
    weft_graph *g = graph;
    const double eps = weft_option(o->eps, WEFT_NORM_EPS);
    weft_value y = WEFT_NO_VALUE, batch[2];
    bool by_batch = false;
    if (!has_channels(g, "weft_nn_batch_norm", name, x)) return WEFT_NO_VALUE;
    weft_graph_push_scope(g, "%s", name);
    weft_value weight = channel_state(g, "weight", x, WEFT_INIT_ONES, true);
    weft_value bias = channel_state(g, "bias", x, WEFT_INIT_ZEROS, true);
    const weft_value mean = channel_state(g, "running_mean", x, WEFT_INIT_ZEROS, false);
    const weft_value variance = channel_state(g, "running_var", x, WEFT_INIT_ONES, false);
    const weft_value running[2] = {mean, variance};
    if (o->training) {
        y = weft_batch_norm(g, x, weight, bias, eps, &batch[0], &batch[1]);
        by_batch = track_batch(g, x, weft_option(o->momentum, 0.1), running, batch);
    }
    if (!by_batch) {
        weft_value rstd = weft_rsqrt(g, weft_add_scalar(g, running[1], eps));
        y = weft_sub(g, x, per_channel(g, running[0], x));
        y = weft_mul(g, y, per_channel(g, weft_mul(g, weight, rstd), x));
        y = weft_add(g, y, per_channel(g, bias, x));
    }
    weft_graph_pop_scope(g);
    return y;
}

weft_value weft_nn_group_norm(weft_graph *graph, const char *name, weft_value x, int64_t groups,
                              double eps)
{
    weft_graph *g = graph;
    if (!has_channels(g, "weft_nn_group_norm", name, x)) return WEFT_NO_VALUE;
    const weft_shape shape = weft_shape_of(g, x);
    const int64_t channels = shape.dim[1], features = weft_shape_numel(shape);
    if (groups < 1 || channels % groups || !features) {
        weft_graph_fail_in(g, "weft_nn_group_norm", WEFT_BAD_ARGUMENT,
                           "\"%s\": %lld groups must divide %lld channels, and x have elements",
                           name, (long long)groups, (long long)channels);
        return WEFT_NO_VALUE;
    }
    weft_graph_push_scope(g, "%s", name);
    weft_value weight = channel_state(g, "weight", x, WEFT_INIT_ONES, true);
    weft_value bias = channel_state(g, "bias", x, WEFT_INIT_ZEROS, true);
    weft_value flat = weft_reshape(g, x, WEFT_SHAPE(shape.dim[0] * groups, -1));
    weft_value y = weft_layer_norm(g, flat, WEFT_NO_VALUE, WEFT_NO_VALUE, eps);
    y = weft_reshape(g, y, shape);
    y = weft_mul(g, y, per_channel(g, weight, x));
    y = weft_add(g, y, per_channel(g, bias, x));
    weft_graph_pop_scope(g);
    return y;
}

/* ---- From images to classes ---- */

weft_value weft_nn_global_average_pool(weft_graph *graph, weft_value x)
{
    weft_axes axes = {0, {0}};
    if (!has_channels(graph, "weft_nn_global_average_pool", "x", x)) return WEFT_NO_VALUE;
    for (int d = 2; d < weft_rank_of(graph, x); d++) axes.axis[axes.count++] = d;
    return axes.count ? weft_mean(graph, x, axes, false) : x;
}

weft_value weft_nn_linear_transposed(weft_graph *graph, const char *name, weft_value x,
                                     int64_t features, bool bias)
{
    weft_graph *g = graph;
    const weft_dtype dtype = weft_dtype_of(g, x);
    const int64_t in = weft_dim_of(g, x, -1);
    const double bound = in > 0 ? 1 / sqrt((double)in) : 0;
    const weft_init uniform = {WEFT_INIT_UNIFORM, -bound, bound};
    weft_graph_push_scope(g, "%s", name);
    weft_value weight = weft_param(g, "weight", dtype, WEFT_SHAPE(features, in), uniform);
    weft_value y = weft_matmul(g, x, weft_transpose(g, weight, 0, 1));
    if (bias) y = weft_add(g, y, weft_param(g, "bias", dtype, WEFT_SHAPE(features), uniform));
    weft_graph_pop_scope(g);
    return y;
}
