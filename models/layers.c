/* The layers that models are composed of. */
#include <weft/models.h>

#include <math.h>
#include <stdlib.h>

weft_value weft_layer_linear(weft_graph *graph, const char *name, weft_value x, int64_t features,
                             bool bias)
{
    weft_dtype dtype = weft_dtype_of(graph, x);
    weft_scope_push(graph, "%s", name);
    weft_value weight = weft_param(graph, "weight", dtype,
                                   WEFT_SHAPE(weft_dim(graph, x, -1), features), WEFT_INIT_XAVIER);
    weft_value y = weft_matmul(graph, x, weight);
    if (bias)
        y = weft_add(graph, y,
                     weft_param(graph, "bias", dtype, WEFT_SHAPE(features), WEFT_INIT_ZEROS));
    weft_scope_pop(graph);
    return y;
}

weft_value weft_layer_layer_norm(weft_graph *graph, const char *name, weft_value x)
{
    weft_dtype dtype = weft_dtype_of(graph, x);
    weft_shape features = WEFT_SHAPE(weft_dim(graph, x, -1));
    weft_scope_push(graph, "%s", name);
    weft_value gamma = weft_param(graph, "gamma", dtype, features, WEFT_INIT_ONES);
    weft_value beta = weft_param(graph, "beta", dtype, features, WEFT_INIT_ZEROS);
    weft_value y = weft_layer_norm(graph, x, gamma, beta, 1e-5);
    weft_scope_pop(graph);
    return y;
}

weft_value weft_layer_feed_forward(weft_graph *graph, const char *name, weft_value x, int64_t d_ff,
                                   double dropout)
{
    weft_scope_push(graph, "%s", name);
    weft_value h = weft_relu(graph, weft_layer_linear(graph, "in", x, d_ff, true));
    h = weft_dropout(graph, h, dropout);
    weft_value y = weft_layer_linear(graph, "out", h, weft_dim(graph, x, -1), true);
    weft_scope_pop(graph);
    return y;
}

/* [batch, length, heads * head_dim] as [batch, heads, length, head_dim]. */
static weft_value split_heads(weft_graph *g, weft_value x, int64_t heads)
{
    int64_t batch = weft_dim(g, x, 0), length = weft_dim(g, x, 1), width = weft_dim(g, x, 2);
    x = weft_reshape(g, x, WEFT_SHAPE(batch, length, heads, width / heads));
    return weft_permute(g, x, WEFT_AXES(0, 2, 1, 3));
}

/* Each of the [batch, kv_heads, ...] heads stands for `repeat` neighbouring query heads. */
static weft_value repeat_heads(weft_graph *g, weft_value x, int64_t repeat)
{
    if (repeat == 1) return x;
    weft_shape s = weft_shape_of(g, x);
    x = weft_expand_dims(g, x, 2);
    x = weft_broadcast_to(g, x, WEFT_SHAPE(s.dim[0], s.dim[1], repeat, s.dim[2], s.dim[3]));
    return weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1] * repeat, s.dim[2], s.dim[3]));
}

weft_value weft_layer_attention(weft_graph *graph, const char *name, weft_value query,
                                weft_value memory, const weft_attention_options *o)
{
    weft_graph *g = graph;
    int64_t d_model = weft_dim(g, query, -1), kv_heads = o->kv_heads ? o->kv_heads : o->heads;
    if (o->heads < 1 || kv_heads < 1 || d_model % o->heads || o->heads % kv_heads) {
        weft_graph_fail(g, WEFT_BAD_ARGUMENT,
                        "attention \"%s\": %lld heads (%lld for keys) do not divide d_model %lld",
                        name, (long long)o->heads, (long long)kv_heads, (long long)d_model);
        return WEFT_NO_VALUE;
    }
    int64_t head_dim = d_model / o->heads, repeat = o->heads / kv_heads;
    weft_scope_push(g, "%s", name);
    weft_value q = weft_layer_linear(g, "q", query, d_model, o->bias);
    weft_value k = weft_layer_linear(g, "k", memory, kv_heads * head_dim, o->bias);
    weft_value v = weft_layer_linear(g, "v", memory, kv_heads * head_dim, o->bias);
    q = split_heads(g, weft_scale(g, q, 1 / sqrt((double)head_dim)), o->heads);
    k = repeat_heads(g, split_heads(g, k, kv_heads), repeat);
    v = repeat_heads(g, split_heads(g, v, kv_heads), repeat);
    /* [batch, heads, query_len, key_len] */
    weft_value scores = weft_matmul(g, q, weft_transpose(g, k, -1, -2));
    if (weft_is_value(o->mask)) scores = weft_masked_fill(g, scores, o->mask, -INFINITY);
    weft_value weights = weft_name(g, weft_softmax(g, scores, -1), "weights");
    weft_value context = weft_matmul(g, weft_dropout(g, weights, o->dropout), v);
    context =
        weft_reshape(g, weft_permute(g, context, WEFT_AXES(0, 2, 1, 3)), weft_shape_of(g, query));
    weft_value y = weft_layer_linear(g, "out", context, d_model, o->bias);
    weft_scope_pop(g);
    return y;
}

weft_value weft_layer_sinusoids(weft_graph *graph, weft_dtype dtype, int64_t length,
                                int64_t features)
{
    if (length < 0 || features < 2 || features % 2 || length > INT32_MAX / features) {
        weft_graph_fail(graph, WEFT_BAD_ARGUMENT, "sinusoids: no [%lld, %lld] of an even width",
                        (long long)length, (long long)features);
        return WEFT_NO_VALUE;
    }
    size_t n = (size_t)(length * features);
    double *table = malloc((n + 1) * sizeof *table);
    if (!table) {
        weft_graph_fail(graph, WEFT_NO_MEMORY, "sinusoids: no memory");
        return WEFT_NO_VALUE;
    }
    for (int64_t at = 0; at < length; at++)
        for (int64_t i = 0; i < features; i += 2) {
            double angle = (double)at / pow(10000, (double)i / (double)features);
            table[at * features + i] = sin(angle);
            table[at * features + i + 1] = cos(angle);
        }
    weft_value value = weft_constant_data(graph, WEFT_F64, WEFT_SHAPE(length, features), table);
    free(table);
    return weft_cast(graph, value, dtype);
}
