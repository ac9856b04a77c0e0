/* Attention and its backward pass in simpler ops: tests compare the kernels with them, and
 * gradients of second order come from them. Stores the scores: memory O(queries keys). */
#include "attention_expand.h"

#include "attention.h"
#include "random/dropout.h"

#include <weft/ops.h>

#include <math.h>
#include <string.h>

extern const weft_op weft_op_dropout;

/* [batch, len, heads, dim] as [batch, kv_heads, heads / kv_heads, len, dim]. */
static weft_value grouped(weft_graph *g, weft_value x, int64_t kv_heads)
{
    weft_shape s = weft_shape_of(g, x);
    if (s.rank != 4 || kv_heads < 1) return WEFT_NO_VALUE;
    x = weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1], kv_heads, s.dim[2] / kv_heads, s.dim[3]));
    return weft_permute(g, x, WEFT_AXES(0, 2, 3, 1, 4));
}

/* And back; sums over the group if that many heads read one head of keys. */
static weft_value ungrouped(weft_graph *g, weft_value x, weft_shape shape)
{
    if (shape.rank == 4 && weft_dim_of(g, x, 1) == shape.dim[2] && weft_dim_of(g, x, 2) != 1)
        x = weft_sum(g, x, WEFT_AXES(2), true);
    return weft_reshape(g, weft_permute(g, x, WEFT_AXES(0, 3, 1, 2, 4)), shape);
}

/* [batch, heads, ...] as [batch, kv_heads, heads / kv_heads, ...], or the reverse. */
static weft_value split(weft_graph *g, weft_value x, weft_value like)
{
    weft_shape s = weft_shape_of(g, x), l = weft_shape_of(g, like);
    if (s.rank != 4 || l.rank != 5) return WEFT_NO_VALUE;
    return weft_reshape(g, x, WEFT_SHAPE(l.dim[0], l.dim[1], l.dim[2], s.dim[2], s.dim[3]));
}

static weft_value joined(weft_graph *g, weft_value x)
{
    weft_shape s = weft_shape_of(g, x);
    if (s.rank != 5) return WEFT_NO_VALUE;
    return weft_reshape(g, x, WEFT_SHAPE(s.dim[0], s.dim[1] * s.dim[2], s.dim[3], s.dim[4]));
}

/* A dropout of the op's own key. */
static weft_value dropped(weft_graph *g, weft_value x, const sdpa_attr *attr)
{
    dropout_attr drop;
    if (attr->p == 0) return x;
    memset(&drop, 0, sizeof drop);
    drop.p = attr->p;
    drop.key = attr->key;
    return weft_apply(g, &weft_op_dropout, &drop, &x, 1, NULL);
}

/* S [batch, heads, query_len, key_len], -inf where attention is masked out. */
static weft_value masked_scores(weft_graph *g, const sdpa_attr *attr, weft_value q5, weft_value k5,
                                weft_value mask)
{
    const weft_value scaled = weft_mul_scalar(g, q5, attr->scale);
    weft_value s = joined(g, weft_matmul(g, scaled, weft_transpose(g, k5, -1, -2)));
    if (attr->mask) s = weft_masked_fill(g, s, mask, -INFINITY);
    int64_t queries = weft_dim_of(g, s, 2), keys = weft_dim_of(g, s, 3);
    if (attr->window) {
        weft_value past = weft_tril_mask(g, queries, keys, keys - queries - attr->window);
        s = weft_masked_fill(g, s, past, -INFINITY);
    }
    if (!attr->causal) return s;
    weft_value seen = weft_tril_mask(g, queries, keys, keys - queries);
    return weft_masked_fill(g, s, weft_logical_not(g, seen), -INFINITY);
}

/* x [batch, query_len, heads, ...] with zeros for the queries whose lse [batch, heads, query_len]
 * is -inf: those that attend to no key, which a causal mask alone leaves only with fewer keys. */
static weft_value without_blind(weft_graph *g, const sdpa_attr *attr, weft_value x, weft_value lse,
                                int64_t keys)
{
    if (!attr->mask && (!attr->causal || keys >= weft_dim_of(g, x, 1))) return x;
    weft_value none = weft_scalar(g, weft_dtype_of(g, lse), -INFINITY);
    weft_value blind = weft_transpose(g, weft_equal(g, lse, none), 1, 2);
    return weft_masked_fill(g, x, weft_expand_dims(g, blind, -1), 0.0);
}

/* e^(S - lse - lse_low), zero in a row that is hidden everywhere (lse -inf). */
static weft_value weights_from(weft_graph *g, weft_value s, weft_value lse, weft_value low)
{
    weft_value none = weft_scalar(g, weft_dtype_of(g, lse), -INFINITY);
    lse = weft_masked_fill(g, lse, weft_equal(g, lse, none), 0.0);
    s = weft_sub(g, s, weft_expand_dims(g, lse, -1));
    return weft_exp(g, weft_is_value(low) ? weft_sub(g, s, weft_expand_dims(g, low, -1)) : s);
}

/* ln sum e^(S - lse), zero in a row that is hidden everywhere. */
static weft_value low_of(weft_graph *g, weft_value s, weft_value lse)
{
    weft_value sum = weft_sum(g, weights_from(g, s, lse, WEFT_NO_VALUE), WEFT_AXES(-1), false);
    weft_value none = weft_scalar(g, weft_dtype_of(g, lse), 0.0);
    return weft_log(g, weft_masked_fill(g, sum, weft_equal(g, sum, none), 1.0));
}

/* Keys or values in the dtype of `like`. */
static weft_value widened(weft_graph *g, weft_value x, weft_value like)
{
    const weft_dtype dtype = weft_dtype_of(g, like);
    return weft_dtype_of(g, x) == dtype ? x : weft_widen_rows(g, x, dtype);
}

void weft__expand_sdpa(weft_expand *e)
{
    const sdpa_attr *attr = e->attr;
    weft_graph *g = e->graph;
    weft_value keys = widened(g, e->in[K], e->in[Q]), values = widened(g, e->in[V], e->in[Q]);
    weft_shape q = weft_shape_of(g, e->in[Q]), k = weft_shape_of(g, keys);
    weft_value q5 = grouped(g, e->in[Q], k.dim[2]), k5 = grouped(g, keys, k.dim[2]);
    weft_value v5 = grouped(g, values, k.dim[2]);
    weft_value s = masked_scores(g, attr, q5, k5, attr->mask ? e->in[3] : WEFT_NO_VALUE);
    weft_value p = dropped(g, weft_softmax(g, s, -1), attr);
    weft_shape out = q;
    out.dim[3] = weft_dim_of(g, values, -1);
    weft_value y = weft_matmul(g, split(g, p, q5), v5);
    y = weft_reshape(g, weft_permute(g, y, WEFT_AXES(0, 3, 1, 2, 4)), out);
    e->out[1] = weft_logsumexp(g, s, WEFT_AXES(-1), false);
    e->out[2] = low_of(g, s, e->out[1]);
    e->out[0] = without_blind(g, attr, y, e->out[1], k.dim[1]);
}

void weft__expand_sdpa_grad(weft_expand *e)
{
    const sdpa_attr *attr = e->attr;
    weft_graph *g = e->graph;
    weft_shape q = weft_shape_of(g, e->in[Q]), k = weft_shape_of(g, e->in[K]);
    weft_value q5 = grouped(g, e->in[Q], k.dim[2]), k5 = grouped(g, e->in[K], k.dim[2]);
    weft_value v5 = grouped(g, e->in[V], k.dim[2]), dy5 = grouped(g, e->in[DOUT], k.dim[2]);
    weft_value s = masked_scores(g, attr, q5, k5, attr->mask ? e->in[REST] : WEFT_NO_VALUE);
    weft_value p = weights_from(g, s, e->in[LSE], e->in[LSE_LOW]);
    weft_value d = weft_sum(g, weft_mul(g, e->in[DOUT], e->in[OUT]), WEFT_AXES(-1), false);
    d = weft_transpose(g, d, 1, 2); /* [batch, heads, query_len] */
    if (attr->dlse) d = weft_sub(g, d, e->in[REST + attr->mask]);
    weft_value dp = joined(g, weft_matmul(g, dy5, weft_transpose(g, v5, -1, -2)));
    dp = dropped(g, dp, attr);
    dp = weft_sub(g, dp, weft_expand_dims(g, d, -1));
    weft_value ds = weft_mul_scalar(g, weft_mul(g, p, dp), attr->scale);
    if (attr->mask || attr->causal) /* whatever V holds where masked out */
        ds = weft_masked_fill(g, ds, weft_equal(g, p, weft_scalar(g, weft_dtype_of(g, p), 0.0)),
                              0.0);
    ds = split(g, ds, q5);
    weft_value weights = split(g, dropped(g, p, attr), q5);
    weft_value dq = weft_permute(g, weft_matmul(g, ds, k5), WEFT_AXES(0, 3, 1, 2, 4));
    e->out[0] = without_blind(g, attr, weft_reshape(g, dq, q), e->in[LSE], k.dim[1]);
    e->out[1] = ungrouped(g, weft_matmul(g, weft_transpose(g, ds, -1, -2), q5), k);
    e->out[2] = ungrouped(g, weft_matmul(g, weft_transpose(g, weights, -1, -2), dy5),
                          weft_shape_of(g, e->in[V]));
}
