/* Layers of language models that carry a state from token to token (opset 27): LinearAttention and
 * CausalConvWithState. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <math.h>

/* ---- LinearAttention ----
 *
 * The state S [key_dim, value_dim] of a head changes with each token t, of key k, value v, log
 * decay g and rate b:
 *
 *     S_t = e^g_t S_t-1 + k_t u_t',   u_t = v_t, or b_t (v_t - (e^g_t S_t-1)' k_t)   ("delta")
 *     o_t = scale S_t' q_t
 *
 * A chunk of tokens that begins with the state S is computed at once (Yang et al. 2024). With the
 * sums G_t = g_1 + ... + g_t, and P(x)_ts = sum over d of x_td k_sd e^(G_td - G_sd):
 *
 *     U = V, or (I + A)^-1 b (V - (K e^G) S) with A = b P(K) below the diagonal   ("delta")
 *     O = scale ((Q e^G) S + P(Q) U) with P(Q) up to the diagonal
 *     S of the next chunk = e^G_last S + (K e^(G_last - G))' U
 *
 * No exponent is positive unless a decay is, so nothing overflows. */

enum { QUERY, KEY, VALUE, PAST, DECAY, RATE };

/* Tokens of a chunk. The inverse of I + A is a sum of powers of A, which grow as 2^SHORT_CHUNK at
 * most if keys are normalised and rates are at most 1: f64 has the digits. Decays of single
 * features need chunk^2 key_dim numbers. */
#define SHORT_CHUNK 16
#define LONG_CHUNK  64
/* e^LOWEST is 0 in f64. Sums of such numbers in f64 keep 10 digits after the point. */
#define LOWEST (-1000)

/* Values are [batch, kv_heads, queries of a head, tokens, features]. */
typedef struct linear {
    weft_value q, k, v, decay, rate; /* of all tokens, and then of a chunk; or none */
    weft_value state;                /* [batch, kv_heads, 1, key_dim, value_dim] */
    int64_t batch, heads, group, length, key_dim, value_dim;
    double scale;
} linear;

/* Input i [batch, tokens, heads group features]. */
static weft_value split_groups(onnx_node *n, size_t i, const linear *l, int64_t heads,
                               int64_t group)
{
    const weft_shape s = weft__in_shape(n, i);
    const int64_t all = heads * group;
    if (!has_in(n, i) || weft__node_failed(n)) return WEFT_NO_VALUE;
    if (s.rank != 3 || s.dim[0] != l->batch || s.dim[1] != l->length || s.dim[2] % all)
        return weft__node_fail(n, WEFT_BAD_SHAPE,
                               "input %zu is not [%lld, %lld, features of %lld heads]", i,
                               (long long)l->batch, (long long)l->length, (long long)all);
    const weft_shape split = WEFT_SHAPE(s.dim[0], s.dim[1], heads, group, s.dim[2] / all);
    return weft_permute(n->graph, weft_reshape(n->graph, weft__in_value(n, i), split),
                        WEFT_AXES(0, 2, 3, 1, 4));
}

/* Whether the rule has the inputs that it needs, and no others. */
static bool check_rule(onnx_node *n)
{
    const char *const rule = "update_rule", *const usual = "gated_delta";
    const bool both = weft__attr_is(n, rule, usual, usual);
    const bool gated = both || weft__attr_is(n, rule, "gated", usual);
    const bool delta = both || weft__attr_is(n, rule, "delta", usual);
    if (!gated && !delta && !weft__attr_is(n, rule, "linear", usual))
        weft__node_fail(n, WEFT_NO_KERNEL,
                        "its update_rule is not linear, gated, delta or gated_delta");
    else if (gated != has_in(n, DECAY) || delta != has_in(n, RATE))
        weft__node_fail(n, WEFT_BAD_FILE, "its update_rule does not fit its inputs decay and beta");
    return !weft__node_failed(n);
}

static weft_value first_state(onnx_node *n, const linear *l)
{
    const weft_shape shape = WEFT_SHAPE(l->batch, l->heads, 1, l->key_dim, l->value_dim);
    const weft_shape s = weft__in_shape(n, PAST);
    if (!has_in(n, PAST)) return weft_fill(n->graph, weft_dtype_of(n->graph, l->q), shape, 0);
    if (s.rank != 4 || s.dim[0] != l->batch || s.dim[1] != l->heads || s.dim[2] != l->key_dim ||
        s.dim[3] != l->value_dim)
        return weft__node_fail(n, WEFT_BAD_SHAPE, "its past state is not [%lld, %lld, %lld, %lld]",
                               (long long)l->batch, (long long)l->heads, (long long)l->key_dim,
                               (long long)l->value_dim);
    return weft_reshape(n->graph, weft__in_value(n, PAST), shape);
}

static bool read_linear(onnx_node *n, linear *l)
{
    weft_graph *g = n->graph;
    const weft_shape s = weft__in_shape(n, QUERY);
    const int64_t heads = weft__attr_int(n, "q_num_heads", 0);
    *l = (linear){.batch = s.dim[0], .heads = weft__attr_int(n, "kv_num_heads", 0)};
    l->length = s.rank == 3 ? s.dim[1] : 0;
    if (weft__node_failed(n) || !check_rule(n)) return false;
    if (l->heads < 1 || heads < 1 || heads % l->heads || l->length < 1) {
        weft__node_fail(n, WEFT_BAD_SHAPE,
                        "needs queries [batch, tokens, features], and q_num_heads that are a "
                        "multiple of kv_num_heads");
        return false;
    }
    l->group = heads / l->heads;
    l->q = split_groups(n, QUERY, l, l->heads, l->group);
    l->k = split_groups(n, KEY, l, l->heads, 1);
    l->v = split_groups(n, VALUE, l, l->heads, 1);
    l->decay = split_groups(n, DECAY, l, l->heads, 1);
    const bool shared = has_in(n, RATE) && weft__in_shape(n, RATE).dim[2] == 1;
    l->rate = split_groups(n, RATE, l, shared ? 1 : l->heads, 1);
    if (weft__node_failed(n)) return false;
    l->key_dim = weft_dim_of(g, l->k, 4);
    l->value_dim = weft_dim_of(g, l->v, 4);
    const double scale = weft__attr_float(n, "scale", 0);
    l->scale = scale != 0 ? scale : 1 / sqrt((double)l->key_dim);
    l->state = first_state(n, l);
    const int64_t decays = has_in(n, DECAY) ? weft_dim_of(g, l->decay, 4) : 1;
    if (weft__node_failed(n)) return false;
    if (weft_dim_of(g, l->q, 4) != l->key_dim || (decays != 1 && decays != l->key_dim) ||
        (has_in(n, RATE) && weft_dim_of(g, l->rate, 4) != 1))
        weft__node_fail(n, WEFT_BAD_SHAPE, "its queries, decay or beta do not fit its keys");
    return !weft__node_failed(n);
}

/* e^x in the dtype of the keys; x is f64. */
static weft_value decayed(weft_graph *g, const linear *c, weft_value x)
{
    return weft_exp(g, weft_cast(g, x, weft_dtype_of(g, c->k)));
}

/* P(x) [..., tokens, tokens] up to a diagonal. `sums`: G in f64, or none. */
static weft_value products(weft_graph *g, const linear *c, weft_value x, weft_value sums,
                           int diagonal)
{
    const int64_t size = weft_dim_of(g, x, 3);
    const weft_value later = weft_logical_not(g, weft_tril_mask(g, size, size, diagonal));
    if (!weft_is_value(sums) || weft_dim_of(g, sums, 4) == 1) {
        const weft_value dots = weft_matmul(g, x, weft_transpose(g, c->k, 3, 4));
        if (!weft_is_value(sums)) return weft_masked_fill(g, dots, later, 0);
        weft_value from = weft_sub(g, sums, weft_transpose(g, sums, 3, 4));
        return weft_mul(g, dots, decayed(g, c, weft_masked_fill(g, from, later, -INFINITY)));
    }
    weft_value from = weft_expand_dims(g, sums, 4), keys = weft_expand_dims(g, c->k, 3);
    from = weft_sub(g, from, weft_expand_dims(g, sums, 3));
    from = weft_masked_fill(g, from, weft_expand_dims(g, later, 2), -INFINITY);
    keys = weft_mul(g, decayed(g, c, from), keys);
    return weft_sum(g, weft_mul(g, keys, weft_expand_dims(g, x, 4)), WEFT_AXES(5), false);
}

/* (I + a)^-1 x for a below the diagonal: the product of I + (-a)^(2^i), in f64. */
static weft_value solve(weft_graph *g, weft_value a, weft_value x)
{
    const weft_dtype dtype = weft_dtype_of(g, x);
    const int64_t size = weft_dim_of(g, a, 3);
    weft_value power = weft_neg(g, weft_cast(g, a, WEFT_F64));
    x = weft_cast(g, x, WEFT_F64);
    for (int64_t reach = 1; reach < size; reach *= 2) {
        x = weft_add(g, x, weft_matmul(g, power, x));
        if (2 * reach < size) power = weft_matmul(g, power, power);
    }
    return weft_cast(g, x, dtype);
}

/* The results of a chunk; replaces the state. */
static weft_value chunk(weft_graph *g, linear *c)
{
    weft_value sums = WEFT_NO_VALUE, q = c->q, k = c->k, u = c->v, rest = c->k, old = c->state;
    if (weft_is_value(c->decay)) {
        const weft_value finite = weft_clamp(g, weft_cast(g, c->decay, WEFT_F64), LOWEST, INFINITY);
        sums = weft_cumsum(g, finite, 3, false);
        const weft_value so_far = decayed(g, c, sums),
                         last = weft_slice(g, sums, 3, -1, WEFT_END, 1);
        q = weft_mul(g, q, so_far);
        k = weft_mul(g, k, so_far);
        rest = weft_mul(g, rest, decayed(g, c, weft_sub(g, last, sums)));
        old = weft_mul(g, old, weft_transpose(g, decayed(g, c, last), 3, 4));
    }
    if (weft_is_value(c->rate)) {
        const weft_value a = weft_mul(g, c->rate, products(g, c, c->k, sums, -1));
        const weft_value error = weft_sub(g, c->v, weft_matmul(g, k, c->state));
        u = solve(g, a, weft_mul(g, c->rate, error));
    }
    const weft_value of_state = weft_matmul(g, q, c->state);
    const weft_value y = weft_add(g, of_state, weft_matmul(g, products(g, c, c->q, sums, 0), u));
    c->state = weft_add(g, old, weft_matmul(g, weft_transpose(g, rest, 3, 4), u));
    return weft_mul_scalar(g, y, c->scale);
}

/* Outputs: the result, and the state after the last token. */
void weft__map_LinearAttention(onnx_node *n)
{
    weft_graph *g = n->graph;
    linear l;
    if (!read_linear(n, &l)) return;
    const bool decays = has_in(n, DECAY) && weft_dim_of(g, l.decay, 4) > 1;
    const int64_t size = decays || has_in(n, RATE) ? SHORT_CHUNK : LONG_CHUNK;
    const int64_t count = (l.length + size - 1) / size;
    weft_value *parts = weft__arena_alloc(&n->import->memory, (size_t)count * sizeof *parts);
    if (!parts) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for %lld chunks", (long long)count);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const weft_value *const whole[] = {&l.q, &l.k, &l.v, &l.decay, &l.rate};
        linear c = l;
        weft_value *const part[] = {&c.q, &c.k, &c.v, &c.decay, &c.rate};
        for (int k = 0; k < 5 && count > 1; k++)
            if (weft_is_value(*whole[k]))
                *part[k] = weft_slice(g, *whole[k], 3, i * size, (i + 1) * size, 1);
        parts[i] = chunk(g, &c);
        l.state = c.state;
        if (weft_graph_node_count(g) > ONNX_MAX_GRAPH_NODES) {
            weft__node_fail(n, WEFT_TOO_LARGE, "%lld tokens need more than %d nodes",
                            (long long)l.length, ONNX_MAX_GRAPH_NODES);
            return;
        }
    }
    weft_value y = count > 1 ? weft_concat(g, parts, (size_t)count, 3) : parts[0];
    y = weft_permute(g, y, WEFT_AXES(0, 3, 1, 2, 4));
    weft__set_out(n, 0, weft_reshape(g, y, WEFT_SHAPE(l.batch, l.length, -1)));
    weft__set_out(n, 1, weft_squeeze(g, l.state, 2));
}

/* ---- CausalConvWithState ---- */

/* A convolution of each channel of input 0 [batch, channels, tokens] over the tokens so far, of
 * which input 3 has those before. Output 1: the last ones, for the next call. */
void weft__map_CausalConvWithState(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_shape s = weft__in_shape(n, 0), k = weft__in_shape(n, 1),
                     past = weft__in_shape(n, 3);
    const bool none = weft__attr_is(n, "activation", "none", "none");
    if (weft__node_failed(n)) return;
    if (s.rank != 3 || k.rank != 3 || k.dim[0] != s.dim[1] || k.dim[1] != 1 || k.dim[2] < 1) {
        weft__node_fail(n, WEFT_BAD_SHAPE,
                        "needs an input [batch, channels, tokens] and a weight [channels, 1, k]");
        return;
    }
    const int64_t before[WEFT_MAX_RANK] = {0, 0, k.dim[2] - 1}, after[WEFT_MAX_RANK] = {0};
    if (has_in(n, 3) && (past.rank != 3 || past.dim[0] != s.dim[0] || past.dim[1] != s.dim[1] ||
                         past.dim[2] != before[2])) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "its past state is not [%lld, %lld, %lld]",
                        (long long)s.dim[0], (long long)s.dim[1], (long long)before[2]);
        return;
    }
    if (!none && !weft__attr_is(n, "activation", "silu", "none") &&
        !weft__attr_is(n, "activation", "swish", "none")) {
        weft__node_fail(n, WEFT_NO_KERNEL, "its activation is not silu, swish or none");
        return;
    }
    const weft_value x = weft__in_value(n, 0), w = weft__in_value(n, 1), b = weft__in_value(n, 2);
    const weft_value parts[2] = {weft__in_value(n, 3), x};
    const weft_value all =
        has_in(n, 3) ? weft_concat(g, parts, 2, 2) : weft_pad(g, x, before, after, 0);
    const weft_conv_options o = {.groups = s.dim[1]};
    const weft_value y = weft_conv(g, all, w, b, &o);
    weft__set_out(n, 0, none ? y : weft_silu(g, y));
    weft__set_out(n, 1, weft_slice(g, all, 2, s.dim[2], WEFT_END, 1));
}
