/* The one attention layer, and the Transformer blocks around it. */
#include <weft/models.h>

#include <math.h>

/* ---- Attention ---- */

typedef struct heads {
    weft_value q, k, v; /* [batch, length, heads or kv_heads, head_dim] */
} heads;

/* [batch, length, n * width] as [batch, length, n, width]. */
static weft_value split(weft_graph *g, weft_value x, int64_t n)
{
    int64_t width = weft_dim(g, x, 2);
    return weft_reshape(g, x,
                        WEFT_SHAPE(weft_dim(g, x, 0), weft_dim(g, x, 1), n, n ? width / n : 0));
}

/* [batch, length, heads, width] to [batch, heads, length, width], or back. */
static weft_value swap_heads(weft_graph *g, weft_value x)
{
    return weft_permute(g, x, WEFT_AXES(0, 2, 1, 3));
}

static heads project(weft_graph *g, weft_value query, weft_value memory,
                     const weft_attention_options *o, int64_t kv_heads)
{
    int64_t d_model = weft_dim(g, query, 2), head_dim = d_model / o->heads;
    if (o->projection == WEFT_PROJECT_FUSED) {
        weft_value parts[3];
        weft_value all =
            weft_name(g, weft_layer_linear(g, "qkv", query, 3 * d_model, o->bias), "qkv");
        weft_chunk(g, split(g, all, o->heads), -1, 3, parts);
        return (heads){parts[0], parts[1], parts[2]};
    }
    if (o->projection == WEFT_PROJECT_SEPARATE)
        return (heads){
            split(g, weft_layer_linear(g, "q", query, d_model, o->bias), o->heads),
            split(g, weft_layer_linear(g, "k", memory, kv_heads * head_dim, o->bias), kv_heads),
            split(g, weft_layer_linear(g, "v", memory, kv_heads * head_dim, o->bias), kv_heads)};
    weft_value q = split(g, query, o->heads), m = split(g, memory, o->heads);
    if (o->projection == WEFT_PROJECT_NONE) return (heads){q, m, m};
    return (heads){weft_layer_linear(g, "q", q, head_dim, o->bias),
                   weft_layer_linear(g, "k", m, head_dim, o->bias),
                   weft_layer_linear(g, "v", m, head_dim, o->bias)};
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

static weft_value causal_and(weft_graph *g, const weft_attention_options *o, int64_t query_len,
                             int64_t key_len)
{
    if (!o->causal) return o->mask;
    weft_value seen = weft_tril_mask(g, query_len, key_len, key_len - query_len);
    weft_value causal = weft_logical_not(g, seen);
    return weft_is_value(o->mask) ? weft_logical_or(g, o->mask, causal) : causal;
}

/* softmax(scale q k^T) v of plain ops: [batch, heads, query_len, head_dim]. */
static weft_value attend(weft_graph *g, const heads *h, const weft_attention_options *o,
                         double scale, weft_attention_parts *parts)
{
    weft_attention_parts p = {swap_heads(g, h->q), swap_heads(g, h->k), swap_heads(g, h->v),
                              WEFT_NO_VALUE,       WEFT_NO_VALUE,       WEFT_NO_VALUE,
                              WEFT_NO_VALUE,       WEFT_NO_VALUE};
    int64_t repeat = o->heads / weft_dim(g, p.k, 1);
    weft_value mask = causal_and(g, o, weft_dim(g, p.q, 2), weft_dim(g, p.k, 2));
    weft_value keys = weft_transpose(g, repeat_heads(g, p.k, repeat), -1, -2);
    p.scores = weft_matmul(g, p.q, keys);
    p.scaled = weft_scale(g, p.scores, scale);
    if (weft_is_value(mask)) p.scaled = weft_masked_fill(g, p.scaled, mask, -INFINITY);
    p.weights = weft_name(g, weft_softmax(g, p.scaled, -1), "weights");
    p.dropped = weft_dropout(g, p.weights, o->dropout);
    p.context = weft_matmul(g, p.dropped, repeat_heads(g, p.v, repeat));
    if (parts) *parts = p;
    return p.context;
}

static bool good_options(weft_graph *g, const char *name, weft_value query, weft_value memory,
                         const weft_attention_options *o)
{
    const char *problem = NULL;
    int64_t d_model = weft_dim(g, query, -1);
    if (weft_graph_status(g) != WEFT_OK) return false;
    if (weft_rank(g, query) != 3 || weft_rank(g, memory) != 3)
        problem = "query and memory must be [batch, length, d_model]";
    else if (o->heads < 1 || o->kv_heads < 0 || d_model % o->heads)
        problem = "the number of heads must divide d_model";
    else if (o->kv_heads && o->heads % o->kv_heads)
        problem = "the number of key heads must divide the number of heads";
    else if (o->projection == WEFT_PROJECT_FUSED && query.id != memory.id)
        problem = "a fused projection is for self-attention only";
    else if (o->projection != WEFT_PROJECT_SEPARATE && o->kv_heads && o->kv_heads != o->heads)
        problem = "fewer key heads need separate projections";
    if (problem)
        weft_graph_fail(g, WEFT_BAD_ARGUMENT,
                        "attention \"%s\": %s (%lld heads, %lld of keys, "
                        "d_model %lld)",
                        name, problem, (long long)o->heads, (long long)o->kv_heads,
                        (long long)d_model);
    return !problem;
}

weft_value weft_layer_attention(weft_graph *graph, const char *name, weft_value query,
                                weft_value memory, const weft_attention_options *options,
                                weft_attention_parts *parts)
{
    weft_graph *g = graph;
    const weft_attention_options *o = options;
    if (!o) {
        weft_graph_fail(g, WEFT_BAD_ARGUMENT, "attention \"%s\": the options are NULL", name);
        return WEFT_NO_VALUE;
    }
    if (!good_options(g, name, query, memory, o)) return WEFT_NO_VALUE;
    weft_shape shape = weft_shape_of(g, query);
    double head_dim = (double)(shape.dim[2] / o->heads);
    double scale = o->scale != 0 ? o->scale : 1 / sqrt(head_dim);
    weft_scope_push(g, "%s", name);
    heads h = project(g, query, memory, o, o->kv_heads ? o->kv_heads : o->heads);
    if (o->rotary_base != 0) {
        h.q = weft_layer_rotary(g, h.q, o->rotary_base);
        h.k = weft_layer_rotary(g, h.k, o->rotary_base);
    }
    weft_value y; /* [batch, query_len, heads, head_dim] */
    if (parts) {
        y = swap_heads(g, attend(g, &h, o, scale, parts));
    } else {
        const weft_sdpa_options fused = {scale, o->dropout, o->causal, o->mask};
        y = weft_sdpa(g, h.q, h.k, h.v, &fused);
    }
    y = weft_reshape(g, o->merge_as_rows ? swap_heads(g, y) : y, shape);
    if (!o->no_out)
        y = weft_layer_linear(g, "out", weft_name(g, y, "merged"), shape.dim[2], o->out_bias);
    weft_scope_pop(g);
    return y;
}

/* ---- Blocks ---- */

static weft_value norm(weft_graph *g, const char *name, weft_value x, const weft_block_options *o)
{
    return o->norm == WEFT_RMS_NORM ? weft_layer_rms_norm(g, name, x, o->eps)
                                    : weft_layer_layer_norm(g, name, x, o->eps);
}

/* What a sub-layer reads. */
static weft_value before(weft_graph *g, const char *name, weft_value x, const weft_block_options *o)
{
    return o->place == WEFT_PRE_NORM ? norm(g, name, x, o) : x;
}

/* What comes of its input x and its result y. */
static weft_value after(weft_graph *g, const char *name, weft_value x, weft_value y,
                        const weft_block_options *o)
{
    if (o->place == WEFT_POST_NORM_DROPPED)
        return weft_dropout(g, norm(g, name, weft_add(g, x, y), o), o->dropout);
    weft_value sum = weft_add(g, x, weft_dropout(g, y, o->dropout));
    return o->place == WEFT_PRE_NORM ? sum : norm(g, name, sum, o);
}

weft_value weft_layer_block(weft_graph *graph, weft_value x, weft_value memory,
                            weft_value memory_mask, const weft_block_options *options)
{
    weft_graph *g = graph;
    const weft_block_options *o = options;
    if (!o) {
        weft_graph_fail(g, WEFT_BAD_ARGUMENT, "block: the options are NULL");
        return WEFT_NO_VALUE;
    }
    weft_value y = before(g, "norm_attn", x, o);
    y = weft_layer_attention(g, "attn", y, y, &o->attention, NULL);
    x = after(g, "norm_attn", x, y, o);
    if (weft_is_value(memory)) {
        weft_attention_options cross = o->attention;
        cross.causal = false;
        if (cross.projection == WEFT_PROJECT_FUSED) cross.projection = WEFT_PROJECT_SEPARATE;
        cross.mask = memory_mask;
        y = before(g, "norm_cross", x, o);
        y = weft_layer_attention(g, "cross", y, memory, &cross, NULL);
        x = after(g, "norm_cross", x, y, o);
    }
    y = weft_layer_feed_forward(g, "ffn", before(g, "norm_ffn", x, o), &o->feed_forward);
    return after(g, "norm_ffn", x, y, o);
}

weft_value weft_layer_stack(weft_graph *graph, const char *scope, int64_t layers, weft_value x,
                            weft_value memory, weft_value memory_mask,
                            const weft_block_options *options)
{
    for (int64_t i = 0; i < layers; i++) {
        weft_scope_push(graph, "%s.%lld", scope, (long long)i);
        x = weft_layer_block(graph, x, memory, memory_mask, options);
        weft_scope_pop(graph);
    }
    if (!options || options->place != WEFT_PRE_NORM) return x;
    weft_scope_push(graph, "%s", scope);
    x = norm(graph, "norm", x, options);
    weft_scope_pop(graph);
    return x;
}
