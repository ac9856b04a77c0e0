/* Attention and RotaryEmbedding of ONNX (opset 23 on). Queries, keys and values are [batch, heads,
 * length, head_dim], or [batch, length, heads head_dim] with the numbers of heads as attributes.
 * Attention with a mask of bools becomes weft_sdpa, which never stores the scores. A mask of
 * numbers, a soft cap or an output of the scores needs all of them. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <math.h>

/* Inputs of Attention. */
enum { QUERY, KEY, VALUE, MASK, PAST_KEY, PAST_VALUE, KEY_LENGTHS };

typedef struct attention {
    weft_value q, k, v; /* [batch, heads, length, head_dim], past keys and values included */
    int64_t batch, heads, query_len, key_len, past_len;
    bool joined; /* heads and head_dim are one dimension of the result */
    double scale, softcap;
    weft_value bias;   /* numbers to add to the scores, or none */
    weft_value hidden; /* bools, true where a query does not attend to a key, or none */
} attention;

/* Input i as [batch, heads, length, head_dim]. */
static weft_value split_heads(onnx_node *n, size_t i, const char *heads_attr)
{
    const weft_shape s = weft__in_shape(n, i);
    const int64_t heads = weft__attr_int(n, heads_attr, 0);
    if (weft__node_failed(n) || s.rank == 4) return weft__in_value(n, i);
    if (s.rank != 3 || heads < 1 || s.dim[2] % heads)
        return weft__node_fail(n, WEFT_BAD_SHAPE,
                               "input %zu is neither [batch, heads, length, head_dim] "
                               "nor [batch, length, %s head_dim]",
                               i, heads_attr);
    const weft_shape split = WEFT_SHAPE(s.dim[0], s.dim[1], heads, s.dim[2] / heads);
    return weft_permute(n->graph, weft_reshape(n->graph, weft__in_value(n, i), split),
                        WEFT_AXES(0, 2, 1, 3));
}

/* Appends to the past keys or values, which are an input. */
static weft_value behind_past(onnx_node *n, size_t past, weft_value x)
{
    const weft_value parts[2] = {weft__in_value(n, past), x};
    return has_in(n, past) ? weft_concat(n->graph, parts, 2, 2) : x;
}

/* a and b, of which a may be none. */
static weft_value or_hidden(weft_graph *g, weft_value a, weft_value b)
{
    return weft_is_value(a) ? weft_logical_or(g, a, b) : b;
}

/* Adds input MASK; keys that it lacks at the end are masked. */
static void add_mask(onnx_node *n, attention *a)
{
    weft_graph *g = n->graph;
    if (!has_in(n, MASK)) return;
    weft_value mask = weft__in_value(n, MASK);
    const int rank = weft_rank_of(g, mask);
    const bool bools = weft_dtype_of(g, mask) == WEFT_BOOL;
    if (weft__node_failed(n)) return;
    if (rank < 1 || rank > 4 || weft_dim_of(g, mask, -1) > a->key_len) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "its mask does not fit [query_len, key_len]");
        return;
    }
    int64_t before[WEFT_MAX_RANK] = {0}, after[WEFT_MAX_RANK] = {0};
    const int64_t size = weft_dim_of(g, mask, -1);
    if (size != 1) after[rank - 1] = a->key_len - size;
    mask = weft_pad(g, mask, before, after, bools ? 0 : -INFINITY);
    if (bools)
        a->hidden = weft_logical_not(g, mask);
    else
        a->bias = mask;
}

/* Masks keys by their distance from the query (causal attention, sliding windows), and keys after
 * the length of each row of the batch. Query i is at position i + offset. */
static void hide_keys(onnx_node *n, attention *a)
{
    weft_graph *g = n->graph;
    const bool causal = weft__attr_int(n, "is_causal", 0), lengths = has_in(n, KEY_LENGTHS);
    const int64_t left = weft__attr_int(n, "left_window_size", -1);
    const int64_t right = causal ? 0 : weft__attr_int(n, "right_window_size", -1);
    weft_value key = weft_arange(g, WEFT_F64, a->key_len, 0, 1);
    weft_value query =
        weft_reshape(g, weft_arange(g, WEFT_F64, a->query_len, (double)a->past_len, 1),
                     WEFT_SHAPE(a->query_len, 1));
    if (lengths) {
        weft_value length = weft_reshape(g, weft_cast(g, weft__in_value(n, KEY_LENGTHS), WEFT_F64),
                                         WEFT_SHAPE(a->batch, 1, 1, 1));
        weft_value beyond = weft_logical_not(g, weft_less(g, key, length));
        a->hidden = or_hidden(g, a->hidden, beyond);
        query = weft_add(g, query, weft_add_scalar(g, length, -(double)a->query_len));
    }
    weft_value ahead = weft_sub(g, key, query);
    if (right >= 0) {
        weft_value far = weft_greater(g, ahead, weft_scalar(g, WEFT_F64, (double)right));
        a->hidden = or_hidden(g, a->hidden, far);
    }
    if (left >= 0) {
        weft_value far = weft_less(g, ahead, weft_scalar(g, WEFT_F64, -(double)left));
        a->hidden = or_hidden(g, a->hidden, far);
    }
}

static bool read_attention(onnx_node *n, attention *a)
{
    weft_graph *g = n->graph;
    a->joined = weft__in_shape(n, QUERY).rank == 3;
    a->q = split_heads(n, QUERY, "q_num_heads");
    a->k = behind_past(n, PAST_KEY, split_heads(n, KEY, "kv_num_heads"));
    a->v = behind_past(n, PAST_VALUE, split_heads(n, VALUE, "kv_num_heads"));
    if (weft__node_failed(n)) return false;
    a->batch = weft_dim_of(g, a->q, 0);
    a->heads = weft_dim_of(g, a->q, 1);
    a->query_len = weft_dim_of(g, a->q, 2);
    a->key_len = weft_dim_of(g, a->k, 2);
    a->past_len = has_in(n, PAST_KEY) ? weft__in_shape(n, PAST_KEY).dim[2] : 0;
    a->scale = weft__attr_float(n, "scale", 1 / sqrt((double)weft_dim_of(g, a->q, 3)));
    a->softcap = weft__attr_float(n, "softcap", 0);
    const int64_t kv_heads = weft_dim_of(g, a->k, 1);
    if (kv_heads < 1 || a->heads % kv_heads || weft_dim_of(g, a->v, 1) != kv_heads ||
        weft_dim_of(g, a->v, 2) != a->key_len) {
        weft__node_fail(n, WEFT_BAD_SHAPE,
                        "its keys and values do not fit its queries or each other");
        return false;
    }
    add_mask(n, a);
    hide_keys(n, a);
    return !weft__node_failed(n);
}

/* Heads of keys or values as often as queries share them. */
static weft_value repeat_heads(weft_graph *g, weft_value x, int64_t heads)
{
    const weft_shape s = weft_shape_of(g, x);
    const int64_t times = heads / s.dim[1];
    if (times == 1) return x;
    x = weft_broadcast_to(g, weft_expand_dims(g, x, 2),
                          WEFT_SHAPE(s.dim[0], s.dim[1], times, s.dim[2], s.dim[3]));
    return weft_reshape(g, x, WEFT_SHAPE(s.dim[0], heads, s.dim[2], s.dim[3]));
}

/* With all scores, of which output 3 is one stage. */
static weft_value attend_with_scores(onnx_node *n, const attention *a)
{
    weft_graph *g = n->graph;
    const int64_t mode = weft__attr_int(n, "qk_matmul_output_mode", 0);
    weft_value keys = weft_transpose(g, repeat_heads(g, a->k, a->heads), 2, 3), stage[4];
    stage[0] = weft_mul_scalar(g, weft_matmul(g, a->q, keys), a->scale);
    stage[1] = stage[0];
    if (a->softcap > 0) {
        weft_value bounded = weft_tanh(g, weft_mul_scalar(g, stage[0], 1 / a->softcap));
        stage[1] = weft_mul_scalar(g, bounded, a->softcap);
    }
    stage[2] = weft_is_value(a->bias) ? weft_add(g, stage[1], a->bias) : stage[1];
    if (weft_is_value(a->hidden)) stage[2] = weft_masked_fill(g, stage[2], a->hidden, -INFINITY);
    stage[3] = weft_softmax(g, stage[2], -1);
    if (has_out(n, 3) && mode >= 0 && mode < 4) weft__set_out(n, 3, stage[mode]);
    return weft_matmul(g, stage[3], repeat_heads(g, a->v, a->heads));
}

static weft_value attend(weft_graph *g, const attention *a)
{
    const weft_axes swap = WEFT_AXES(0, 2, 1, 3);
    const weft_sdpa_options o = {.scale = a->scale, .mask = a->hidden};
    const weft_value q = weft_permute(g, a->q, swap), k = weft_permute(g, a->k, swap);
    const weft_value v = weft_permute(g, a->v, swap);
    return weft_permute(g, weft_sdpa(g, q, k, v, &o), swap);
}

/* Outputs: the result, keys and values with the past ones, and scores. (Vaswani et al. 2017.) */
void weft__map_Attention(onnx_node *n)
{
    weft_graph *g = n->graph;
    attention a = {.bias = WEFT_NO_VALUE, .hidden = WEFT_NO_VALUE};
    if (!read_attention(n, &a)) return;
    const bool plain = !weft_is_value(a.bias) && a.softcap <= 0 && !has_out(n, 3) && a.scale != 0;
    weft_value y = plain ? attend(g, &a) : attend_with_scores(n, &a);
    if (a.joined)
        y = weft_reshape(g, weft_permute(g, y, WEFT_AXES(0, 2, 1, 3)),
                         WEFT_SHAPE(a.batch, a.query_len, -1));
    weft__set_out(n, 0, y);
    if (has_out(n, 1)) weft__set_out(n, 1, a.k);
    if (has_out(n, 2)) weft__set_out(n, 2, a.v);
}

/* ---- FlexAttention ---- */

/* x as a body of the node, which may be missing, changes it. */
static weft_value modified(onnx_node *n, const char *name, weft_value x)
{
    weft_graph *g = n->graph;
    if (!weft__has_attr(n, name) || weft__node_failed(n)) return x;
    const WeftOnnx__GraphProto *body = weft__body_of(n, name);
    const int type = weft_dtype_of(g, x) == WEFT_F64 ? ONNX_DOUBLE : ONNX_FLOAT;
    const onnx_value in = {.name = "", .type = type, .value = x, .region = n->import->region};
    const onnx_scope *scope = body ? weft__run_body(n, body, &in, 1) : NULL;
    onnx_value *out = scope ? weft__body_output(n, scope, body, 0) : NULL;
    const weft_value y = out ? weft__import_value(n->import, out) : WEFT_NO_VALUE;
    if (weft__node_failed(n)) return WEFT_NO_VALUE;
    if (weft_dtype_of(g, y) != weft_dtype_of(g, x) ||
        !weft_shape_equal(weft_shape_of(g, y), weft_shape_of(g, x)))
        return weft__node_fail(n, WEFT_BAD_SHAPE,
                               "its body \"%s\" changes the shape or dtype of its input", name);
    return y;
}

/* Attention whose scores and probabilities bodies change, as in PyTorch's flex_attention. */
void weft__map_FlexAttention(onnx_node *n)
{
    weft_graph *g = n->graph;
    attention a = {.bias = WEFT_NO_VALUE, .hidden = WEFT_NO_VALUE};
    for (size_t i = QUERY; i <= VALUE; i++)
        if (weft__in_shape(n, i).rank != 4 && !weft__node_failed(n))
            weft__node_fail(n, WEFT_BAD_SHAPE, "input %zu is not [batch, heads, length, head_dim]",
                            i);
    if (weft__node_failed(n) || !read_attention(n, &a)) return;
    const weft_dtype dtype = weft_dtype_of(g, a.q);
    const bool wide = weft__attr_int(n, "softmax_precision", ONNX_FLOAT) == ONNX_DOUBLE;
    const weft_dtype precision = wide ? WEFT_F64 : dtype;
    if (!weft__has_attr(n, "score_mod") && !weft__has_attr(n, "prob_mod") && precision == dtype &&
        a.scale != 0) {
        weft__set_out(n, 0, attend(g, &a));
        return;
    }
    const weft_value keys = weft_transpose(g, repeat_heads(g, a.k, a.heads), 2, 3);
    weft_value x = weft_mul_scalar(g, weft_matmul(g, a.q, keys), a.scale);
    x = modified(n, "score_mod", weft_cast(g, x, precision));
    if (weft__node_failed(n)) return;
    x = modified(n, "prob_mod", weft_softmax(g, x, -1));
    if (weft__node_failed(n)) return;
    const weft_value values = weft_cast(g, repeat_heads(g, a.v, a.heads), precision);
    weft__set_out(n, 0, weft_cast(g, weft_matmul(g, x, values), dtype));
}

/* ---- Rotary positions ---- */

/* The sines or cosines [batch, length, 1, half] of input i, picked by the positions of input 3. */
static weft_value rotary_table(onnx_node *n, size_t i)
{
    weft_graph *g = n->graph;
    weft_value table = weft__in_value(n, i);
    if (has_in(n, 3)) table = weft_embedding(g, table, weft__in_value(n, 3), -1);
    return weft_expand_dims(g, table, 2);
}

/* Rotates pairs of features by angles with these cosines and sines. */
static void rotate(weft_graph *g, weft_value pair[2], weft_value cosine, weft_value sine)
{
    const weft_value x = pair[0], y = pair[1];
    const weft_value x_cosine = weft_mul(g, x, cosine), y_sine = weft_mul(g, y, sine);
    pair[0] = weft_sub(g, x_cosine, y_sine);
    const weft_value x_sine = weft_mul(g, x, sine), y_cosine = weft_mul(g, y, cosine);
    pair[1] = weft_add(g, x_sine, y_cosine);
}

/* Rotates pairs of features by angles that grow with the position (Su et al. 2021). Inputs: x,
 * cosines, sines [positions, half], or [batch, length, half] without input 3, the positions. */
void weft__map_RotaryEmbedding(onnx_node *n)
{
    weft_graph *g = n->graph;
    const bool four = weft__in_shape(n, 0).rank == 4,
               interleaved = weft__attr_int(n, "interleaved", 0);
    weft_value x = weft_permute(g, split_heads(n, 0, "num_heads"), WEFT_AXES(0, 2, 1, 3));
    if (weft__node_failed(n)) return;
    const weft_shape s = weft_shape_of(g, x); /* [batch, length, heads, head_dim] */
    const int64_t given = weft__attr_int(n, "rotary_embedding_dim", 0),
                  dim = given ? given : s.dim[3];
    const weft_shape table = weft__in_shape(n, 1);
    if (dim < 2 || dim % 2 || dim > s.dim[3] || table.rank != (has_in(n, 3) ? 2 : 3) ||
        table.dim[table.rank - 1] != dim / 2) {
        weft__node_fail(n, WEFT_BAD_SHAPE,
                        "its tables do not fit an even number of rotated features");
        return;
    }
    weft_value rotated = weft_slice(g, x, 3, 0, dim, 1), pair[2];
    for (int i = 0; i < 2; i++)
        pair[i] = interleaved ? weft_slice(g, rotated, 3, i, WEFT_END, 2)
                              : weft_slice(g, rotated, 3, i * dim / 2, (i + 1) * dim / 2, 1);
    const weft_value cosine = rotary_table(n, 1), sine = rotary_table(n, 2);
    rotate(g, pair, cosine, sine);
    rotated = interleaved ? weft_stack(g, pair, 2, 4) : weft_concat(g, pair, 2, 3);
    rotated = weft_reshape(g, rotated, WEFT_SHAPE(s.dim[0], s.dim[1], s.dim[2], dim));
    const weft_value rest = weft_slice(g, x, 3, dim, WEFT_END, 1);
    weft_value y = dim < s.dim[3] ? weft_concat(g, (weft_value[]){rotated, rest}, 2, 3) : rotated;
    weft__set_out(n, 0,
                  four ? weft_permute(g, y, WEFT_AXES(0, 2, 1, 3))
                       : weft_reshape(g, y, weft__in_shape(n, 0)));
}
