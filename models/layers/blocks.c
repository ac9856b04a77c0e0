/* Transformer blocks, and stacks of them. */
#include "shared.h"

#include <weft/models.h>

#include <stdio.h>

static const weft_nn_block_options block_defaults = {0};

static weft_value norm(weft_graph *g, const char *name, weft_value x,
                       const weft_nn_block_options *o)
{
    double eps = weft_option(o->eps, WEFT_NORM_EPS);
    return o->norm == WEFT_RMS_NORM
               ? weft__rms_norm(g, name, x, eps, o->gamma_plus_one, (weft_ranks){.size = 0})
               : weft_nn_layer_norm(g, name, x, eps);
}

/* Whether sub-layers read a norm of their input; then the stack ends with a norm. */
static bool norms_before(const weft_nn_block_options *o)
{
    return o->norm_position == WEFT_PRE_NORM || o->norm_position == WEFT_BOTH_NORMS;
}

/* The input of a sub-layer. */
static weft_value before(weft_graph *g, const char *name, weft_value x,
                         const weft_nn_block_options *o)
{
    return norms_before(o) ? norm(g, name, x, o) : x;
}

/* The output of a sub-layer, from its input x and its result y. */
static weft_value after(weft_graph *g, const char *name, weft_value x, weft_value y,
                        const weft_nn_block_options *o)
{
    if (o->norm_position == WEFT_POST_NORM_DROPPED)
        return weft_dropout(g, norm(g, name, weft_add(g, x, y), o), o->dropout);
    if (o->norm_position == WEFT_BOTH_NORMS) {
        char out[32];
        snprintf(out, sizeof out, "%s_out", name);
        y = norm(g, out, y, o);
    }
    weft_value sum = weft_add(g, x, weft_dropout(g, y, o->dropout));
    return norms_before(o) ? sum : norm(g, name, sum, o);
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

/* Returns the options with rotary angles for positions below `limit`, which all layers share, and
 * sets those of layers with a window if they differ. x is [batch, length, d_model]. */
static weft_nn_block_options share_angles(weft_graph *g, const weft_nn_block_options *options,
                                          weft_value x, int64_t limit, weft_rotary *local)
{
    weft_nn_block_options o = *options;
    weft_nn_attention_options *a = &o.attention;
    const weft_dtype dtype = weft_dtype_of(g, x);
    const int64_t d_model = weft_dim_of(g, x, -1);
    *local = (weft_rotary){WEFT_NO_VALUE, WEFT_NO_VALUE};
    /* The first layer reports invalid options. */
    const bool good = a->head_dim > 0 || (a->heads > 0 && d_model % a->heads == 0);
    if (a->rotary_base == 0 || weft_is_value(a->rotary.cosines) || !good) return o;
    const int64_t width = a->head_dim ? a->head_dim : d_model / a->heads;
    a->rotary = weft__attention_angles(g, a, dtype, width, limit);
    if (o.local_rotary_base != 0 && a->window)
        *local = weft_nn_rotary_angles(g, dtype, limit, a->rotary_dim ? a->rotary_dim : width,
                                       o.local_rotary_base);
    return o;
}

/* The options of layer `i`. */
static weft_nn_block_options of_layer(const weft_nn_block_options *options, int64_t i,
                                      const weft_rotary *local)
{
    weft_nn_block_options o = *options;
    if (options->cross_weights) o.cross_weights += i;
    if (o.global_every > 0 && (i + 1) % o.global_every == 0)
        o.attention.window = 0;
    else if (weft_is_value(local->cosines))
        o.attention.rotary = *local;
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
    weft_rotary local;
    weft_nn_block_options o = share_angles(graph, options, x, limit, &local);
    if (weft_is_value(memory) && o.attention.tensor.size > 1 && !o.attention.copied_memory) {
        memory = weft_copy_to_ranks(graph, o.attention.tensor, memory);
        o.attention.copied_memory = true;
    }
    for (int64_t i = 0; i < layers && weft_graph_status(graph) == WEFT_OK; i++) {
        weft_graph_push_scope(graph, "%s.%lld", scope, (long long)i);
        const weft_nn_block_options layer = of_layer(&o, i, &local);
        x = weft_nn_block(graph, x, memory, memory_mask, &layer);
        weft_graph_pop_scope(graph);
    }
    if (!norms_before(&o)) return x;
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
    weft_rotary local;
    const weft_nn_block_options o =
        share_angles(g, options, memory, weft_dim_of(g, memory, 1), &local);
    weft_nn_attention_options cross = cross_options(&o, WEFT_NO_VALUE);
    for (int64_t i = 0; i < layers && weft_graph_status(g) == WEFT_OK; i++) {
        weft_graph_push_scope(g, "%s.%lld", scope, (long long)i);
        done[i] = weft_nn_prefill_cross_cache(g, "cross", memory, &cross, o.cache);
        weft_graph_pop_scope(g);
    }
    return weft_group(g, done, (size_t)layers);
}
