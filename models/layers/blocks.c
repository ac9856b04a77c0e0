/* Transformer blocks, and stacks of them. */
#include <weft/models.h>

static const weft_nn_block_options block_defaults = {0};

static weft_value norm(weft_graph *g, const char *name, weft_value x,
                       const weft_nn_block_options *o)
{
    double eps = weft_option(o->eps, WEFT_NORM_EPS);
    return o->norm == WEFT_RMS_NORM ? weft_nn_rms_norm(g, name, x, eps)
                                    : weft_nn_layer_norm(g, name, x, eps);
}

/* The input of a sub-layer. */
static weft_value before(weft_graph *g, const char *name, weft_value x,
                         const weft_nn_block_options *o)
{
    return o->norm_position == WEFT_PRE_NORM ? norm(g, name, x, o) : x;
}

/* The output of a sub-layer, from its input x and its result y. */
static weft_value after(weft_graph *g, const char *name, weft_value x, weft_value y,
                        const weft_nn_block_options *o)
{
    if (o->norm_position == WEFT_POST_NORM_DROPPED)
        return weft_dropout(g, norm(g, name, weft_add(g, x, y), o), o->dropout);
    weft_value sum = weft_add(g, x, weft_dropout(g, y, o->dropout));
    return o->norm_position == WEFT_PRE_NORM ? sum : norm(g, name, sum, o);
}

/* The self-attention of a block, or one step of it. */
static weft_value self_attention(weft_graph *g, weft_value x, const weft_nn_block_options *o)
{
    return o->cache ? weft_nn_attention_step(g, "attn", x, &o->attention, o->cache)
                    : weft_nn_attention(g, "attn", x, x, &o->attention, NULL);
}

static weft_nn_attention_options cross_options(const weft_nn_block_options *o,
                                               weft_value memory_mask)
{
    weft_nn_attention_options cross = o->attention;
    cross.causal = false;
    if (cross.projection == WEFT_PROJECT_FUSED) cross.projection = WEFT_PROJECT_SEPARATE;
    cross.mask = memory_mask;
    cross.weights = o->cross_weights;
    return cross;
}

weft_value weft_nn_block(weft_graph *graph, weft_value x, weft_value memory, weft_value memory_mask,
                         const weft_nn_block_options *options)
{
    weft_graph *g = graph;
    const weft_nn_block_options *o = options ? options : &block_defaults;
    bool cached = o->cache && o->cache->sources > 0;
    weft_value y = self_attention(g, before(g, "norm_attn", x, o), o);
    x = after(g, "norm_attn", x, y, o);
    if (weft_is_value(memory) || cached) {
        weft_nn_attention_options cross = cross_options(o, memory_mask);
        y = before(g, "norm_cross", x, o);
        y = cached ? weft_nn_cross_attention_step(g, "cross", y, &cross, o->cache)
                   : weft_nn_attention(g, "cross", y, memory, &cross, NULL);
        x = after(g, "norm_cross", x, y, o);
    }
    y = weft_nn_feed_forward(g, "ffn", before(g, "norm_ffn", x, o), &o->feed_forward);
    return after(g, "norm_ffn", x, y, o);
}

static bool layers_fit(weft_graph *g, const char *scope, int64_t layers)
{
    if (layers > WEFT_MAX_LAYERS)
        weft_graph_fail_in(g, "weft_nn_stack", WEFT_TOO_LARGE,
                           "\"%s\": %lld layers, expected at most %d", scope, (long long)layers,
                           WEFT_MAX_LAYERS);
    return weft_graph_status(g) == WEFT_OK;
}

/* Returns the options with rotary angles for positions below `limit`, which all layers share. x is
 * [batch, length, d_model]. */
static weft_nn_block_options share_angles(weft_graph *g, const weft_nn_block_options *options,
                                          weft_value x, int64_t limit)
{
    weft_nn_block_options o = *options;
    weft_nn_attention_options *a = &o.attention;
    int64_t d_model = weft_dim_of(g, x, -1);
    /* The first layer reports invalid options. */
    if (a->rotary_base != 0 && !weft_is_value(a->rotary.cosines) && a->heads > 0 &&
        d_model % a->heads == 0)
        a->rotary = weft_nn_rotary_angles(g, weft_dtype_of(g, x), limit, d_model / a->heads,
                                          a->rotary_base);
    return o;
}

weft_value weft_nn_stack(weft_graph *graph, const char *scope, int64_t layers, weft_value x,
                         weft_value memory, weft_value memory_mask,
                         const weft_nn_block_options *options)
{
    if (!options) options = &block_defaults;
    if (!layers_fit(graph, scope, layers)) return WEFT_NO_VALUE;
    int64_t limit = weft_dim_of(graph, x, 1), memory_len = weft_dim_of(graph, memory, 1);
    if (memory_len > limit) limit = memory_len;
    if (options->cache) limit = options->cache->key_len;
    weft_nn_block_options o = share_angles(graph, options, x, limit);
    if (weft_is_value(memory) && o.attention.tensor.size > 1 && !o.attention.copied_memory) {
        memory = weft_copy_to_ranks(graph, o.attention.tensor, memory);
        o.attention.copied_memory = true;
    }
    for (int64_t i = 0; i < layers && weft_graph_status(graph) == WEFT_OK; i++) {
        weft_graph_push_scope(graph, "%s.%lld", scope, (long long)i);
        if (options->cross_weights) o.cross_weights = options->cross_weights + i;
        x = weft_nn_block(graph, x, memory, memory_mask, &o);
        weft_graph_pop_scope(graph);
    }
    if (o.norm_position != WEFT_PRE_NORM) return x;
    weft_graph_push_scope(graph, "%s", scope);
    x = norm(graph, "norm", x, &o);
    weft_graph_pop_scope(graph);
    return x;
}

weft_value weft_nn_stack_prefill_cross_cache(weft_graph *graph, const char *scope, int64_t layers,
                                             weft_value memory,
                                             const weft_nn_block_options *options)
{
    weft_graph *g = graph;
    weft_value done[WEFT_MAX_LAYERS] = {WEFT_NO_VALUE};
    if (!options) options = &block_defaults;
    if (layers < 1) {
        weft_graph_fail_in(g, "weft_nn_stack", WEFT_BAD_ARGUMENT,
                           "\"%s\": 0 layers, expected at least 1", scope);
        return WEFT_NO_VALUE;
    }
    if (!layers_fit(g, scope, layers)) return WEFT_NO_VALUE;
    const weft_nn_block_options o = share_angles(g, options, memory, weft_dim_of(g, memory, 1));
    weft_nn_attention_options cross = cross_options(&o, WEFT_NO_VALUE);
    for (int64_t i = 0; i < layers && weft_graph_status(g) == WEFT_OK; i++) {
        weft_graph_push_scope(g, "%s.%lld", scope, (long long)i);
        done[i] = weft_nn_prefill_cross_cache(g, "cross", memory, &cross, o.cache);
        weft_graph_pop_scope(g);
    }
    return weft_group(g, done, (size_t)layers);
}
