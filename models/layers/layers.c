/* Linear, norm, embedding and feed-forward layers, and positions: sinusoidal, learned. */
#include "shared.h"
#include "split.h"
#include "base/vmath_pow.h"
#include "base/vmath_sin.h"

#include <weft/models.h>

#include <math.h>
#include <stdlib.h>

/* Parts of a linear layer, and whether its product is summed over ranks. */
typedef struct linear_split {
    weft_part weight, bias;
    bool sum;
    weft_ranks ranks;
} linear_split;

static weft_value linear(weft_graph *g, const char *name, weft_value x, int64_t features, bool bias,
                         const linear_split *split)
{
    weft_dtype dtype = weft_dtype_of(g, x);
    weft_graph_push_scope(g, "%s", name);
    weft_shape shape = WEFT_SHAPE(weft_dim_of(g, x, -1), features);
    weft_value weight = weft_param_part(g, "weight", dtype, shape, WEFT_INIT_XAVIER, split->weight);
    weft_value y = weft_matmul(g, x, weight);
    if (split->sum) y = weft_sum_over_ranks(g, split->ranks, y);
    if (bias)
        y = weft_add(
            g, y,
            weft_param_part(g, "bias", dtype, WEFT_SHAPE(features), WEFT_INIT_ZEROS, split->bias));
    weft_graph_pop_scope(g);
    return y;
}

weft_value weft_nn_linear(weft_graph *graph, const char *name, weft_value x, int64_t features,
                          bool bias)
{
    return linear(graph, name, x, features, bias, &(linear_split){.sum = false});
}

weft_value weft_nn_linear_columns(weft_graph *graph, const char *name, weft_value x,
                                  int64_t features, bool bias, weft_ranks ranks)
{
    if (ranks.size <= 1) return weft_nn_linear(graph, name, x, features, bias);
    if (features % ranks.size) {
        weft_graph_fail_in(graph, "weft_nn_linear_columns", WEFT_BAD_ARGUMENT,
                           "\"%s\": %d ranks do not divide %lld features", name, ranks.size,
                           (long long)features);
        return WEFT_NO_VALUE;
    }
    const int64_t own = features / ranks.size, first = own * ranks.rank;
    const linear_split split = {
        .weight = {1, first, features}, .bias = {0, first, features}, .ranks = ranks};
    return linear(graph, name, x, own, bias, &split);
}

weft_value weft_nn_linear_rows(weft_graph *graph, const char *name, weft_value x, int64_t features,
                               bool bias, weft_ranks ranks)
{
    if (ranks.size <= 1) return weft_nn_linear(graph, name, x, features, bias);
    const int64_t own = weft_dim_of(graph, x, -1);
    const linear_split split = {
        .weight = {0, own * ranks.rank, own * ranks.size}, .sum = true, .ranks = ranks};
    return linear(graph, name, x, features, bias, &split);
}

weft_value weft_nn_layer_norm(weft_graph *graph, const char *name, weft_value x, double eps)
{
    weft_dtype dtype = weft_dtype_of(graph, x);
    weft_shape features = WEFT_SHAPE(weft_dim_of(graph, x, -1));
    weft_graph_push_scope(graph, "%s", name);
    weft_value gamma = weft_param(graph, "gamma", dtype, features, WEFT_INIT_ONES);
    weft_value beta = weft_param(graph, "beta", dtype, features, WEFT_INIT_ZEROS);
    weft_value y = weft_layer_norm(graph, x, gamma, beta, eps);
    weft_graph_pop_scope(graph);
    return y;
}

weft_value weft__soft_cap(weft_graph *g, weft_value x, double cap)
{
    return cap == 0 ? x : weft_mul_scalar(g, weft_tanh(g, weft_mul_scalar(g, x, 1 / cap)), cap);
}

weft_value weft__rms_norm(weft_graph *g, const char *name, weft_value x, double eps, bool plus_one,
                          weft_ranks ranks)
{
    const weft_init ones = WEFT_INIT_ONES, zeros = WEFT_INIT_ZEROS;
    weft_graph_push_scope(g, "%s", name);
    weft_value gamma = weft_param(g, "gamma", weft_dtype_of(g, x),
                                  WEFT_SHAPE(weft_dim_of(g, x, -1)), plus_one ? zeros : ones);
    if (plus_one) gamma = weft_add_scalar(g, gamma, 1);
    if (ranks.size > 1) gamma = weft_copy_to_ranks(g, ranks, gamma);
    weft_value y = weft_rms_norm(g, x, gamma, eps);
    weft_graph_pop_scope(g);
    return y;
}

weft_value weft_nn_rms_norm(weft_graph *graph, const char *name, weft_value x, double eps)
{
    return weft__rms_norm(graph, name, x, eps, false, (weft_ranks){.size = 0});
}

weft_value weft_nn_embedding_table(weft_graph *graph, const char *name, weft_dtype dtype,
                                   int64_t vocab, int64_t width)
{
    weft_init init = {WEFT_INIT_NORMAL, 0, width > 0 ? 1 / sqrt((double)width) : 0};
    return weft_param(graph, name, dtype, WEFT_SHAPE(vocab, width), init);
}

static weft_value activate(weft_graph *g, weft_value x, weft_activation activation)
{
    switch (activation) {
    case WEFT_RELU:
        return weft_relu(g, x);
    case WEFT_GELU:
        return weft_gelu(g, x);
    case WEFT_GELU_TANH:
        return weft_gelu_tanh(g, x);
    case WEFT_SILU:
        return weft_silu(g, x);
    case WEFT_TANH:
        return weft_tanh(g, x);
    }
    weft_graph_fail_in(g, "weft_nn_feed_forward", WEFT_BAD_ARGUMENT, "invalid weft_activation %d",
                       (int)activation);
    return WEFT_NO_VALUE;
}

weft_value weft_nn_feed_forward(weft_graph *graph, const char *name, weft_value x,
                                const weft_nn_feed_forward_options *options)
{
    static const weft_nn_feed_forward_options defaults = {0};
    const weft_nn_feed_forward_options *o = options ? options : &defaults;
    weft_graph *g = graph;
    const weft_ranks ranks = o->tensor;
    int64_t width = weft_dim_of(g, x, -1), d_ff = o->d_ff ? o->d_ff : 4 * width;
    if (ranks.size > 1 && d_ff % ranks.size) {
        weft_graph_fail_in(g, "weft_nn_feed_forward", WEFT_BAD_ARGUMENT,
                           "\"%s\": %d ranks do not divide d_ff %lld", name, ranks.size,
                           (long long)d_ff);
        return WEFT_NO_VALUE;
    }
    if (ranks.size > 1) x = weft_copy_to_ranks(g, ranks, x);
    weft_graph_push_scope(g, "%s", name);
    weft_value h = weft_nn_linear_columns(g, o->gated ? "gate" : "in", x, d_ff, o->bias, ranks);
    h = activate(g, h, o->activation);
    if (o->gated) h = weft_mul(g, h, weft_nn_linear_columns(g, "in", x, d_ff, o->bias, ranks));
    split_keys_before(g, ranks);
    h = weft_dropout(g, weft_name(g, h, "hidden"), o->dropout);
    split_keys_after(g, ranks);
    weft_value y = weft_nn_linear_rows(g, "out", h, width, o->bias, ranks);
    weft_graph_pop_scope(g);
    return y;
}

/* ---- Positions ---- */

double *weft__table_new(weft_graph *g, const char *layer, int64_t rows, int64_t columns)
{
    double *data = NULL;
    if (weft_graph_status(g) != WEFT_OK) return NULL;
    if (rows < 0 || columns < 1)
        weft_graph_fail_in(g, layer, WEFT_BAD_ARGUMENT,
                           "needs 0 or more positions and a width of 1 or more, got %lld and %lld",
                           (long long)rows, (long long)columns);
    else if (rows > WEFT_MAX_TABLE / columns)
        weft_graph_fail_in(g, layer, WEFT_TOO_LARGE,
                           "a table of [%lld, %lld], at most %lld numbers", (long long)rows,
                           (long long)columns, (long long)WEFT_MAX_TABLE);
    else if (!(data = malloc((size_t)(rows * columns + 1) * sizeof *data)))
        weft_graph_fail_in(g, layer, WEFT_NO_MEMORY, "no memory");
    return data;
}

weft_value weft__table_value(weft_graph *g, weft_dtype dtype, weft_shape shape, double *data)
{
    weft_value value = weft_constant(g, WEFT_F64, shape, data);
    free(data);
    return weft_cast(g, value, dtype);
}

/* [length, features]. Sine and cosine of a frequency are neighbours, or half a row apart. */
static weft_value sinusoidal_positions(weft_graph *g, const char *layer, weft_dtype dtype,
                                       int64_t length, int64_t features, bool halves)
{
    if (features < 2 || features % 2) {
        weft_graph_fail_in(g, layer, WEFT_BAD_ARGUMENT,
                           "the width must be even and above 0, got %lld", (long long)features);
        return WEFT_NO_VALUE;
    }
    double *data = weft__table_new(g, layer, length, features);
    if (!data) return WEFT_NO_VALUE;
    const int64_t half = features / 2, step = halves ? 1 : 2, cosine = halves ? half : 1;
    for (int64_t at = 0; at < length; at++)
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)at / vm_pow_f64(10000, (double)(2 * i) / (double)features);
            data[at * features + step * i] = vm_sin_f64(angle);
            data[at * features + step * i + cosine] = vm_cos_f64(angle);
        }
    return weft__table_value(g, dtype, WEFT_SHAPE(length, features), data);
}

weft_value weft_nn_sinusoidal_positions(weft_graph *graph, weft_dtype dtype, int64_t length,
                                        int64_t features)
{
    return sinusoidal_positions(graph, "weft_nn_sinusoidal_positions", dtype, length, features,
                                false);
}

weft_value weft_nn_sinusoidal_halves(weft_graph *graph, weft_dtype dtype, int64_t length,
                                     int64_t features)
{
    return sinusoidal_positions(graph, "weft_nn_sinusoidal_halves", dtype, length, features, true);
}

weft_value weft_nn_positions(weft_graph *graph, const char *name, weft_dtype dtype, int64_t length,
                             int64_t max_positions, int64_t features)
{
    if (length > max_positions) {
        weft_graph_fail_in(graph, "weft_nn_positions", WEFT_BAD_SHAPE,
                           "\"%s\": a length of %lld, but max_positions is %lld", name,
                           (long long)length, (long long)max_positions);
        return WEFT_NO_VALUE;
    }
    weft_init init = {WEFT_INIT_NORMAL, 0, 0.02};
    weft_value positions =
        weft_param(graph, name, dtype, WEFT_SHAPE(max_positions, features), init);
    return weft_slice(graph, positions, 0, 0, length, 1);
}

weft_value weft_nn_positions_at(weft_graph *graph, weft_value position, int64_t count)
{
    weft_graph *g = graph;
    const bool own = weft_rank_of(g, position) > 0;
    weft_value first =
        own ? weft_expand_dims(g, position, 1) : weft_reshape(g, position, WEFT_SHAPE(1));
    if (count == 1) return first;
    /* weft_add has no integers; f64 is exact here. */
    const weft_value wide = weft_cast(g, first, WEFT_F64);
    return weft_cast(g, weft_add(g, wide, weft_arange(g, WEFT_F64, count, 0, 1)), WEFT_I32);
}
