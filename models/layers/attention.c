/* The attention layer, over whole sequences or over cached states. */
#include "shared.h"
#include "split.h"

#include <weft/models.h>

#include <math.h>
#include <stdlib.h>

/* ---- Attention ---- */

typedef struct heads {
    weft_value q, k, v; /* [batch, length, heads or kv_heads of this rank, head_dim] */
} heads;

static bool is_split(const weft_nn_attention_options *o)
{
    return o->tensor.size > 1;
}

/* This rank's part of the heads, or of their elements. */
static int64_t own(const weft_nn_attention_options *o, int64_t n)
{
    return is_split(o) ? n / o->tensor.size : n;
}

/* The width of a head, of inputs [batch, length, d_model]. */
static int64_t head_width(const weft_nn_attention_options *o, int64_t d_model)
{
    return o->head_dim ? o->head_dim : d_model / o->heads;
}

/* Reshapes [batch, length, n * width] to [batch, length, n, width]. */
static weft_value split(weft_graph *g, weft_value x, int64_t n)
{
    int64_t width = weft_dim_of(g, x, 2);
    return weft_reshape(
        g, x, WEFT_SHAPE(weft_dim_of(g, x, 0), weft_dim_of(g, x, 1), n, n ? width / n : 0));
}

/* Transposes [batch, length, heads, width] to [batch, heads, length, width], or back. */
static weft_value swap_heads(weft_graph *g, weft_value x)
{
    return weft_permute(g, x, WEFT_AXES(0, 2, 1, 3));
}

/* Heads of q or k after their norm, if they have one. */
static weft_value norm_heads(weft_graph *g, const char *name, weft_value x,
                             const weft_nn_attention_options *o)
{
    if (!o->norm_qk) return x;
    return weft__rms_norm(g, name, x, weft_option(o->norm_eps, WEFT_NORM_EPS), o->gamma_plus_one,
                          o->tensor);
}

/* Sets the keys and values of h. Not for a fused projection. */
static void project_memory(weft_graph *g, weft_value memory, const weft_nn_attention_options *o,
                           int64_t kv_heads, heads *h)
{
    const int64_t head_dim = head_width(o, weft_dim_of(g, memory, 2));
    if (o->projection == WEFT_PROJECT_SEPARATE) {
        const int64_t width = kv_heads * head_dim;
        h->k = weft_nn_linear_columns(g, "k", memory, width, o->bias, o->tensor);
        h->v = weft_nn_linear_columns(g, "v", memory, width, o->bias, o->tensor);
        h->k = split(g, h->k, own(o, kv_heads));
        h->v = split(g, h->v, own(o, kv_heads));
    } else {
        h->k = h->v = split(g, memory, o->heads);
    }
    if (o->projection == WEFT_PROJECT_SHARED) {
        h->k = weft_nn_linear(g, "k", h->k, head_dim, o->bias);
        h->v = weft_nn_linear(g, "v", h->v, head_dim, o->bias);
    }
    h->k = norm_heads(g, "norm_k", h->k, o);
}

static void project_query(weft_graph *g, weft_value query, const weft_nn_attention_options *o,
                          heads *h)
{
    const int64_t head_dim = head_width(o, weft_dim_of(g, query, 2));
    if (o->projection == WEFT_PROJECT_SEPARATE) {
        const int64_t width = o->heads * head_dim;
        h->q = weft_nn_linear_columns(g, "q", query, width, o->bias, o->tensor);
        h->q = split(g, h->q, own(o, o->heads));
    } else {
        h->q = split(g, query, o->heads);
    }
    if (o->projection == WEFT_PROJECT_SHARED)
        h->q = weft_nn_linear(g, "q", h->q, head_dim, o->bias);
    h->q = norm_heads(g, "norm_q", h->q, o);
}

/* The memory of split attention, whose gradient the ranks sum. */
static weft_value copied_memory(weft_graph *g, weft_value memory,
                                const weft_nn_attention_options *o)
{
    return is_split(o) && !o->copied_memory ? weft_copy_to_ranks(g, o->tensor, memory) : memory;
}

static heads project(weft_graph *g, weft_value query, weft_value memory,
                     const weft_nn_attention_options *o, int64_t kv_heads)
{
    heads h = {WEFT_NO_VALUE, WEFT_NO_VALUE, WEFT_NO_VALUE};
    const bool self = memory.id == query.id;
    if (is_split(o)) query = weft_copy_to_ranks(g, o->tensor, query);
    memory = self ? query : copied_memory(g, memory, o);
    if (o->projection == WEFT_PROJECT_FUSED) {
        weft_value parts[3];
        weft_value all = weft_nn_linear_columns(g, "qkv", query, 3 * weft_dim_of(g, query, 2),
                                                o->bias, o->tensor);
        weft_name(g, all, "qkv");
        weft_chunk(g, split(g, all, own(o, o->heads)), -1, 3, parts);
        parts[0] = norm_heads(g, "norm_q", parts[0], o);
        parts[1] = norm_heads(g, "norm_k", parts[1], o);
        return (heads){parts[0], parts[1], parts[2]};
    }
    project_query(g, query, o, &h);
    project_memory(g, memory, o, kv_heads, &h);
    return h;
}

/* Repeats each head of [batch, kv_heads, ...] for `repeat` adjacent query heads. */
static weft_value repeat_heads(weft_graph *g, weft_value x, int64_t repeat)
{
    if (repeat == 1) return x;
    weft_shape s = weft_shape_of(g, x);
    x = weft_expand_dims(g, x, 2);
    x = weft_broadcast_to(g, x, WEFT_SHAPE(s.dim[0], s.dim[1], repeat, s.dim[2], s.dim[3]));
    return weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1] * repeat, s.dim[2], s.dim[3]));
}

/* True where either mask is; a mask may be WEFT_NO_VALUE. */
static weft_value either(weft_graph *g, weft_value a, weft_value b)
{
    if (!weft_is_value(a)) return b;
    return weft_is_value(b) ? weft_logical_or(g, a, b) : a;
}

/* The mask with what `causal` and `window` hide. */
static weft_value whole_mask(weft_graph *g, const weft_nn_attention_options *o, int64_t query_len,
                             int64_t key_len)
{
    weft_value mask = o->mask;
    const int64_t own = key_len - query_len;
    if (o->causal)
        mask = either(g, mask, weft_logical_not(g, weft_tril_mask(g, query_len, key_len, own)));
    if (o->window) mask = either(g, mask, weft_tril_mask(g, query_len, key_len, own - o->window));
    return mask;
}

/* Keys or values in the dtype of the queries; states may hold them in fewer bits. */
static weft_value widened(weft_graph *g, weft_value x, weft_value q)
{
    const weft_dtype dtype = weft_dtype_of(g, x);
    return dtype == WEFT_BF16 || dtype == WEFT_U8 ? weft_widen_rows(g, x, weft_dtype_of(g, q)) : x;
}

/* softmax(scale q k^T) v from plain ops: [batch, heads, query_len, head_dim]. */
static weft_value attend_by_plain_ops(weft_graph *g, const heads *h,
                                      const weft_nn_attention_options *o, double scale,
                                      weft_nn_attention_parts *parts)
{
    const weft_value q = swap_heads(g, h->q), k = swap_heads(g, widened(g, h->k, h->q));
    const weft_value v = swap_heads(g, widened(g, h->v, h->q)), none = WEFT_NO_VALUE;
    weft_nn_attention_parts p = {q, k, v, none, none, none, none, none};
    /* kv_heads is 0 in a graph that has already failed. */
    int64_t kv_heads = weft_dim_of(g, p.k, 1), repeat = kv_heads ? own(o, o->heads) / kv_heads : 1;
    weft_value mask = whole_mask(g, o, weft_dim_of(g, p.q, 2), weft_dim_of(g, p.k, 2));
    weft_value keys = weft_transpose(g, repeat_heads(g, p.k, repeat), -1, -2);
    p.scores = weft_matmul(g, p.q, keys);
    p.scaled = weft__soft_cap(g, weft_mul_scalar(g, p.scores, scale), o->soft_cap);
    if (weft_is_value(mask)) p.scaled = weft_masked_fill(g, p.scaled, mask, -INFINITY);
    p.weights = weft_name(g, weft_softmax(g, p.scaled, -1), "weights");
    p.dropped = weft_dropout(g, p.weights, o->dropout);
    p.context = weft_matmul(g, p.dropped, repeat_heads(g, p.v, repeat));
    if (parts) *parts = p;
    if (o->weights) *o->weights = p.weights;
    return p.context;
}

/* Returns the options with defaults for zeros; NULL is all zeros. A mask that differs from head to
 * head is reduced to this rank's heads. */
static weft_nn_attention_options filled(weft_graph *g, const weft_nn_attention_options *options)
{
    weft_nn_attention_options o = options ? *options : (weft_nn_attention_options){0};
    if (!o.heads) o.heads = 1;
    if (is_split(&o) && weft_rank_of(g, o.mask) > 2 && weft_dim_of(g, o.mask, -3) == o.heads) {
        const int64_t n = own(&o, o.heads), first = o.tensor.rank * n;
        o.mask = weft_slice(g, o.mask, -3, first, first + n, 1);
    }
    return o;
}

/* NULL, or why attention cannot be split among ranks. */
static const char *split_problem(const weft_nn_attention_options *o)
{
    if (!is_split(o)) return NULL;
    if (o->heads % o->tensor.size || o->kv_heads % o->tensor.size)
        return "the number of ranks must divide the heads, and those of keys";
    if (o->projection != WEFT_PROJECT_SEPARATE && o->projection != WEFT_PROJECT_FUSED)
        return "heads that are split among ranks need separate or fused projections";
    if (o->no_out || o->merge_as_rows)
        return "heads that are split among ranks need the projection \"out\", and cannot be merged "
               "as rows";
    return NULL;
}

static bool good_options(weft_graph *g, const char *name, weft_value query, weft_value memory,
                         const weft_nn_attention_options *o)
{
    const char *problem = NULL;
    int64_t d_model = weft_dim_of(g, query, -1);
    if (weft_graph_status(g) != WEFT_OK) return false;
    if (weft_rank_of(g, query) != 3 || weft_rank_of(g, memory) != 3)
        problem = "query and memory must be [batch, length, d_model]";
    else if (o->heads < 1 || o->kv_heads < 0 || (!o->head_dim && d_model % o->heads))
        problem = "the number of heads must divide d_model";
    else if (o->head_dim < 0 || o->rotary_dim < 0)
        problem = "head_dim and rotary_dim must be 0 or more";
    else if (o->head_dim && o->projection != WEFT_PROJECT_SEPARATE &&
             o->head_dim != (double)d_model / (double)o->heads)
        problem = "a head_dim other than d_model / heads needs separate projections";
    else if (o->kv_heads && o->heads % o->kv_heads)
        problem = "the number of key heads must divide the number of heads";
    else if (o->projection == WEFT_PROJECT_FUSED && query.id != memory.id)
        problem = "a fused projection is for self-attention only";
    else if (o->projection != WEFT_PROJECT_SEPARATE && o->kv_heads && o->kv_heads != o->heads)
        problem = "fewer key heads need separate projections";
    else
        problem = split_problem(o);
    if (problem)
        weft_graph_fail_in(g, "weft_nn_attention", WEFT_BAD_ARGUMENT,
                           "\"%s\": %s (%lld heads, %lld of keys, d_model %lld, %d ranks)", name,
                           problem, (long long)o->heads, (long long)o->kv_heads, (long long)d_model,
                           is_split(o) ? o->tensor.size : 1);
    return !problem;
}

/* softmax(scale q k^T) v: [batch, query_len, heads, head_dim]. One node, or plain ops if
 * intermediate values are wanted or scores are capped. */
static weft_value attend(weft_graph *g, const heads *h, const weft_nn_attention_options *o,
                         weft_nn_attention_parts *parts)
{
    double scale = o->scale != 0 ? o->scale : 1 / sqrt((double)weft_dim_of(g, h->q, 3));
    const weft_sdpa_options fused = {scale, o->dropout, o->causal, o->mask, o->window};
    split_keys_before(g, o->tensor);
    weft_value y = parts || o->expose_weights || o->soft_cap != 0
                       ? swap_heads(g, attend_by_plain_ops(g, h, o, scale, parts))
                       : weft_sdpa(g, h->q, h->k, h->v, &fused);
    split_keys_after(g, o->tensor);
    return y;
}

/* Concatenates this rank's heads; `shape` is that of the query, [batch, query_len, d_model]. */
static weft_value merge(weft_graph *g, weft_value y, weft_shape shape,
                        const weft_nn_attention_options *o)
{
    const int64_t width = own(o, o->heads) * head_width(o, shape.dim[2]);
    return weft_reshape(g, y, WEFT_SHAPE(shape.dim[0], shape.dim[1], width));
}

static weft_value project_out(weft_graph *g, weft_value merged, int64_t d_model,
                              const weft_nn_attention_options *o)
{
    return weft_nn_linear_rows(g, "out", merged, d_model, o->out_bias, o->tensor);
}

weft_rotary weft__attention_angles(weft_graph *g, const weft_nn_attention_options *o,
                                   weft_dtype dtype, int64_t head_dim, int64_t limit)
{
    return weft_nn_scaled_rotary_angles(g, dtype, limit, o->rotary_dim ? o->rotary_dim : head_dim,
                                        o->rotary_base, &o->rotary_scaling);
}

/* Rotates heads by their positions, which begin at `position` or 0; all are below `limit`. */
static weft_value rotate(weft_graph *g, weft_value x, const weft_nn_attention_options *o,
                         weft_value position, int64_t limit)
{
    if (o->rotary_base == 0) return x;
    weft_rotary angles = o->rotary;
    if (!weft_is_value(angles.cosines))
        angles = weft__attention_angles(g, o, weft_dtype_of(g, x), weft_dim_of(g, x, -1), limit);
    return weft_nn_rotate(g, x, &angles, position);
}

weft_value weft_nn_attention(weft_graph *graph, const char *name, weft_value query,
                             weft_value memory, const weft_nn_attention_options *options,
                             weft_nn_attention_parts *parts)
{
    weft_graph *g = graph;
    const weft_nn_attention_options all = filled(g, options), *o = &all;
    if (!good_options(g, name, query, memory, o)) return WEFT_NO_VALUE;
    weft_shape shape = weft_shape_of(g, query);
    weft_graph_push_scope(g, "%s", name);
    heads h = project(g, query, memory, o, o->kv_heads ? o->kv_heads : o->heads);
    h.q = rotate(g, h.q, o, WEFT_NO_VALUE, weft_dim_of(g, h.q, 1));
    h.k = rotate(g, h.k, o, WEFT_NO_VALUE, weft_dim_of(g, h.k, 1));
    weft_value y = attend(g, &h, o, parts);
    y = merge(g, o->merge_as_rows ? swap_heads(g, y) : y, shape, o);
    if (!o->no_out) y = project_out(g, weft_name(g, y, "merged"), shape.dim[2], o);
    weft_graph_pop_scope(g);
    return y;
}

/* ---- Attention over states ---- */

static bool good_cached(weft_graph *g, const char *name, weft_value x,
                        const weft_nn_attention_options *o, const weft_cache *cache)
{
    if (!cache) {
        weft_graph_fail_in(g, "weft_nn_attention", WEFT_BAD_ARGUMENT, "\"%s\": the cache is NULL",
                           name);
        return false;
    }
    if (!good_options(g, name, x, x, o)) return false;
    const char *problem = NULL;
    if (o->merge_as_rows)
        problem = "heads merged as rows mix positions, which come one at a time";
    else if (cache->key_len < 0 || cache->key_len > cache->max_len)
        problem = "key_len must be 0 to max_len";
    else if (cache->sources < 0 || cache->source_len > cache->max_source_len)
        problem = "source_len must be at most max_source_len";
    else if (cache->dtype != WEFT_F32 && cache->dtype != WEFT_BF16 && cache->dtype != WEFT_U8)
        problem = "states have the dtype f32, bf16 or u8";
    if (problem)
        weft_graph_fail_in(g, "weft_nn_attention", WEFT_BAD_ARGUMENT, "\"%s\" over states: %s",
                           name, problem);
    return !problem;
}

/* Keys or values as the states hold them. */
static weft_value stored(weft_graph *g, const weft_cache *cache, weft_value x)
{
    return cache->dtype == WEFT_F32 ? x : weft_narrow_rows(g, x, cache->dtype);
}

/* A state of keys or values, [rows, positions, kv_heads, head_dim]. */
static weft_value cache_state(weft_graph *g, const weft_cache *cache, const char *name,
                              weft_dtype dtype, weft_shape shape, weft_cache_layout layout)
{
    weft_value state = weft_state(g, name, dtype, shape, WEFT_INIT_ZEROS);
    if (cache->declare) cache->declare(cache->declare_context, g, state, layout);
    return state;
}

static const weft_cache_layout self_layout = {true, WEFT_CACHE_TARGET};
static const weft_cache_layout cross_layout = {false, WEFT_CACHE_SOURCE};

static int64_t max_sources(const weft_cache *cache)
{
    return cache->max_sources ? cache->max_sources : cache->sources;
}

/* A view of the first `rows` rows and `length` positions. */
static weft_value first_of(weft_graph *g, weft_value state, int64_t rows, int64_t length)
{
    return weft_slice(g, weft_slice(g, state, 0, 0, rows, 1), 1, 0, length, 1);
}

/* Writes x into the state at the cache's position; returns the first key_len positions of the
 * result. */
static weft_value append_to_cache(weft_graph *g, const char *name, weft_value x,
                                  const weft_cache *cache)
{
    x = stored(g, cache, x);
    weft_shape s = weft_shape_of(g, x);
    int64_t rows = cache->max_rows ? cache->max_rows : s.dim[0];
    weft_shape shape = WEFT_SHAPE(rows, cache->max_len, s.dim[2], s.dim[3]);
    weft_value state = cache_state(g, cache, name, weft_dtype_of(g, x), shape, self_layout);
    if (weft_is_value(cache->parents))
        state = weft_cache_reorder(g, state, cache->parents, cache->position);
    state = weft_cache_write(g, state, x, cache->position);
    return first_of(g, state, s.dim[0], cache->key_len);
}

/* True where a key lies after the position of the query, or before its window: bool
 * [count, key_len], or [batch, 1, count, key_len] for positions [batch]. */
static weft_value other_keys(weft_graph *g, const weft_cache *cache, int64_t count, int64_t window)
{
    weft_value at = weft_expand_dims(g, weft_nn_positions_at(g, cache->position, count), -1);
    if (weft_rank_of(g, at) == 3) at = weft_expand_dims(g, at, 1);
    weft_value later = weft_less(g, at, weft_arange(g, WEFT_I32, cache->key_len, 0, 1));
    if (!window || window >= cache->key_len) return later;
    /* Keys up to at - window. */
    weft_value last = weft_arange(g, WEFT_I32, cache->key_len, (double)(window - 1), 1);
    return either(g, later, weft_less(g, last, at));
}

weft_value weft_nn_attention_step(weft_graph *graph, const char *name, weft_value x,
                                  const weft_nn_attention_options *options, const weft_cache *cache)
{
    weft_graph *g = graph;
    weft_nn_attention_options o = filled(g, options);
    if (!good_cached(g, name, x, &o, cache)) return WEFT_NO_VALUE;
    weft_shape shape = weft_shape_of(g, x);
    int64_t kv_heads = o.kv_heads ? o.kv_heads : o.heads;
    o.causal = false;
    o.mask = other_keys(g, cache, shape.dim[1], o.window);
    o.window = 0;
    weft_graph_push_scope(g, "%s", name);
    heads h = project(g, x, x, &o, kv_heads);
    h.q = rotate(g, h.q, &o, cache->position, cache->key_len);
    h.k = rotate(g, h.k, &o, cache->position, cache->key_len);
    h.k = append_to_cache(g, "cache.k", h.k, cache);
    h.v = append_to_cache(g, "cache.v", h.v, cache);
    weft_value y = merge(g, attend(g, &h, &o, NULL), shape, &o);
    if (!o.no_out) y = project_out(g, y, shape.dim[2], &o);
    weft_graph_pop_scope(g);
    return y;
}

weft_value weft_nn_prefill_cross_cache(weft_graph *graph, const char *name, weft_value memory,
                                       const weft_nn_attention_options *options,
                                       const weft_cache *cache)
{
    weft_graph *g = graph;
    const weft_nn_attention_options all = filled(g, options), *o = &all;
    if (!good_cached(g, name, memory, o, cache)) return WEFT_NO_VALUE;
    heads h = {WEFT_NO_VALUE, WEFT_NO_VALUE, WEFT_NO_VALUE};
    weft_graph_push_scope(g, "%s", name);
    memory = copied_memory(g, memory, o);
    project_memory(g, memory, o, o->kv_heads ? o->kv_heads : o->heads, &h);
    h.k = rotate(g, h.k, o, WEFT_NO_VALUE, weft_dim_of(g, h.k, 1));
    weft_value zero = weft_cast(g, weft_scalar(g, WEFT_F64, 0), WEFT_I32), done[2];
    const char *const names[2] = {"cache.k", "cache.v"};
    for (int i = 0; i < 2; i++) {
        weft_value x = stored(g, cache, i ? h.v : h.k);
        weft_shape shape = WEFT_SHAPE(max_sources(cache), cache->max_source_len,
                                      weft_dim_of(g, x, 2), weft_dim_of(g, x, 3));
        weft_value state =
            cache_state(g, cache, names[i], weft_dtype_of(g, x), shape, cross_layout);
        done[i] = weft_cache_write(g, state, x, zero);
    }
    weft_graph_pop_scope(g);
    return weft_group(g, done, 2);
}

weft_value weft_nn_cross_attention_step(weft_graph *graph, const char *name, weft_value x,
                                        const weft_nn_attention_options *options,
                                        const weft_cache *cache)
{
    weft_graph *g = graph;
    const weft_nn_attention_options all = filled(g, options), *o = &all;
    if (!good_cached(g, name, x, o, cache)) return WEFT_NO_VALUE;
    weft_shape shape = weft_shape_of(g, x);
    int64_t kv_heads = o->kv_heads ? o->kv_heads : o->heads;
    const int64_t head_dim = head_width(o, shape.dim[2]);
    int64_t queries = cache->sources ? shape.dim[0] / cache->sources * shape.dim[1] : 0;
    weft_shape cached =
        WEFT_SHAPE(max_sources(cache), cache->max_source_len, own(o, kv_heads), head_dim);
    weft_dtype dtype = cache->dtype == WEFT_F32 ? weft_dtype_of(g, x) : cache->dtype;
    if (dtype == WEFT_U8) cached.dim[3] += WEFT_NARROW_SCALE;
    heads h = {WEFT_NO_VALUE, WEFT_NO_VALUE, WEFT_NO_VALUE};
    weft_graph_push_scope(g, "%s", name);
    if (is_split(o)) x = weft_copy_to_ranks(g, o->tensor, x);
    project_query(g, x, o, &h);
    h.q = rotate(g, h.q, o, cache->position, cache->key_len);
    /* The beams of a sentence attend to the same source, so they are queries of one batch row. */
    h.q = weft_reshape(g, h.q, WEFT_SHAPE(cache->sources, queries, own(o, o->heads), head_dim));
    h.k = cache_state(g, cache, "cache.k", dtype, cached, cross_layout);
    h.v = cache_state(g, cache, "cache.v", dtype, cached, cross_layout);
    h.k = first_of(g, h.k, cache->sources, cache->source_len);
    h.v = first_of(g, h.v, cache->sources, cache->source_len);
    weft_value y = merge(g, attend(g, &h, o, NULL), shape, o);
    if (!o->no_out) y = project_out(g, y, shape.dim[2], o);
    weft_graph_pop_scope(g);
    return y;
}
