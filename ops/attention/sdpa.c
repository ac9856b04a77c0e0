/* Scaled dot-product attention that never stores the score matrix, and its backward pass.
 *
 *     S = scale Q K^T, -inf where masked out
 *     lse = ln sum e^S over keys
 *     P = e^(S - lse - lse_low)
 *     O = drop(P) V
 *
 *     D = rowsum(dO O) - dlse
 *     dS = P (drop(dO V^T) - D)
 *     dQ = scale dS K
 *     dK = scale dS^T Q
 *     dV = drop(P)^T dO
 *
 * Forward goes through the keys in blocks for each block of queries, with a running maximum and sum
 * (Milakov & Gimelshein 2018). Backward recomputes the weights from lse (Dao et al. 2022) and
 * lse_low = ln sum e^(S - lse), the part that rounding removed from lse. With it, adding a large
 * constant to all scores loses no precision. lse_low is nearly constant and has no gradient (as in
 * cross_entropy). A block of scores is stored transposed, [keys, queries]: queries lie in the lanes
 * of vectors, so that maxima, sums and the causal bound need no step across lanes, and every matrix
 * product reads K and V where they lie (ops/kernels/tile.h). Time is O(queries keys), memory
 * O(queries + keys).
 *
 * Q, K, V and dO may be stored as bf16. O may not: D = rowsum(dO O) must agree with dO V^T to more
 * digits, since dS depends on their difference, which is small where the weights are nearly
 * equal. */
#include "attention.h"

#include "attention_expand.h"
#include "batch.h"
#include "kernels/kernel.h"

#include <weft/ops.h>
#include <weft/source.h>

#include <math.h>

extern const weft_op weft_op_sdpa, weft_op_sdpa_grad;

/* ---- Shapes and sizes ---- */

static bool check_shape(weft_infer *infer, size_t i, const char *what, weft_shape want)
{
    char a[128], b[128];
    if (!weft_infer_same_dtype(infer, 0, i)) return false;
    return weft_shape_equal(infer->in[i].shape, want) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s must be %s, got %s", what,
                           weft_shape_text(want, a, sizeof a),
                           weft_shape_text(infer->in[i].shape, b, sizeof b));
}

static bool check_mask(weft_infer *infer, size_t i, weft_shape full)
{
    char a[128], b[128];
    weft_shape joint;
    if (!weft_infer_dtype(infer, i, WEFT_BOOL)) return false;
    return (weft_shape_broadcast(infer->in[i].shape, full, &joint) &&
            weft_shape_equal(joint, full)) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "the mask %s does not broadcast to %s",
                           weft_shape_text(infer->in[i].shape, b, sizeof b),
                           weft_shape_text(full, a, sizeof a));
}

/* The scores are never stored, but their number must not overflow, nor that of the dq of all
 * chunks. */
static bool check_sizes(weft_infer *infer, weft_shape q, int64_t keys, int64_t value_dim)
{
    char text[128];
    const weft_shape all = WEFT_SHAPE(q.dim[0], q.dim[2], q.dim[1], keys);
    const weft_shape partial = WEFT_SHAPE(WANTED_CHUNKS, q.dim[0], q.dim[1], q.dim[2], q.dim[3]);
    if (q.dim[3] > INT32_MAX || value_dim > INT32_MAX)
        return weft_infer_fail(infer, WEFT_TOO_LARGE, "head_dim or value_dim is over 2^31 - 1");
    return (weft_shape_numel(all) >= 0 && weft_shape_numel(partial) >= 0) ||
           weft_infer_fail(infer, WEFT_TOO_LARGE, "too many scores: %s",
                           weft_shape_text(all, text, sizeof text));
}

/* Whether these are keys or values as narrow_rows makes them. */
static bool is_narrow(const weft_infer *infer, size_t i)
{
    const weft_dtype dtype = infer->in[i].dtype;
    return infer->in[Q].dtype == WEFT_F32 && (dtype == WEFT_BF16 || dtype == WEFT_U8);
}

/* Checks q, k, v, and the mask; sets the shapes of out and lse. Only the forward op takes narrow
 * keys and values. */
static bool check_inputs(weft_infer *infer, bool backward, weft_shape *out, weft_shape *lse)
{
    const size_t mask = backward ? REST : 3;
    const sdpa_attr *attr = infer->attr;
    char a[128], b[128], c[128];
    if (!weft_infer_float(infer, Q)) return false;
    for (size_t i = K; i <= V; i++)
        if ((backward || !is_narrow(infer, i)) && !weft_infer_same_dtype(infer, Q, i)) return false;
    weft_shape q = infer->in[Q].shape, k = infer->in[K].shape, v = infer->in[V].shape;
    const bool fits = q.rank == 4 && k.rank == 4 && v.rank == 4 && q.dim[0] == k.dim[0] &&
                      k.dim[0] == v.dim[0] && k.dim[1] == v.dim[1] && k.dim[2] == v.dim[2] &&
                      q.dim[3] == elements_of_row(infer->in[K].dtype, k) &&
                      elements_of_row(infer->in[V].dtype, v) >= 0 && k.dim[2] > 0 &&
                      q.dim[2] % k.dim[2] == 0;
    if (!fits)
        return weft_infer_fail(
            infer, WEFT_BAD_SHAPE,
            "q %s, k %s, v %s are not [batch, query_len, heads, head_dim], [batch, key_len, "
            "kv_heads, head_dim], [batch, key_len, kv_heads, value_dim] with kv_heads dividing "
            "heads",
            weft_shape_text(q, a, sizeof a), weft_shape_text(k, b, sizeof b),
            weft_shape_text(v, c, sizeof c));
    if (!(attr->p >= 0 && attr->p < 1) || !isfinite(attr->scale))
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                               "dropout must be in [0, 1) and scale finite, got %g and %g", attr->p,
                               attr->scale);
    if (attr->window < 0)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                               "a window of %lld keys, expected 0 or more",
                               (long long)attr->window);
    v.dim[3] = elements_of_row(infer->in[V].dtype, v);
    if (!weft_infer_scalar(infer, "scale", attr->scale, infer->in[Q].dtype) ||
        !check_sizes(infer, q, k.dim[1], v.dim[3]))
        return false;
    if (attr->mask && !check_mask(infer, mask, WEFT_SHAPE(q.dim[0], q.dim[2], q.dim[1], k.dim[1])))
        return false;
    *out = WEFT_SHAPE(q.dim[0], q.dim[1], q.dim[2], v.dim[3]);
    *lse = WEFT_SHAPE(q.dim[0], q.dim[2], q.dim[1]);
    return true;
}

static bool check_count(weft_infer *infer, size_t want)
{
    return infer->n_in == want || weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                                                  "takes %zu inputs, got %zu", want, infer->n_in);
}

static bool infer_sdpa(weft_infer *infer)
{
    const sdpa_attr *attr = infer->attr;
    weft_shape out, lse;
    if (!check_count(infer, 3u + attr->mask) || !check_inputs(infer, false, &out, &lse))
        return false;
    infer->out[0] = (weft_type){infer->in[Q].dtype, out};
    infer->out[1] = infer->out[2] = (weft_type){infer->in[Q].dtype, lse};
    return true;
}

static bool infer_sdpa_grad(weft_infer *infer)
{
    const sdpa_attr *attr = infer->attr;
    weft_shape out, lse;
    if (!check_count(infer, (size_t)REST + attr->mask + attr->dlse) ||
        !check_inputs(infer, true, &out, &lse) || !check_shape(infer, OUT, "out", out) ||
        !check_shape(infer, LSE, "lse", lse) || !check_shape(infer, LSE_LOW, "lse_low", lse) ||
        !check_shape(infer, DOUT, "dout", out) ||
        (attr->dlse && !check_shape(infer, (size_t)REST + attr->mask, "dlse", lse)))
        return false;
    for (size_t i = Q; i <= V; i++) infer->out[i] = infer->in[i];
    return true;
}

static int64_t tiles_sdpa(const weft_call *call)
{
    sizes z = sizes_of(call);
    return tiles_forward(&z);
}

static int64_t tiles_sdpa_grad(const weft_call *call)
{
    sizes z = sizes_of(call);
    if (call->phase == 1)
        return z.chunks > 1 ? ceil_div(z.batch * z.queries * z.heads * z.dim, TILE) : 0;
    return tiles_backward(&z);
}

static size_t scratch_sdpa_grad(const weft_call *call)
{
    sizes z = sizes_of(call);
    return (size_t)partial_elements(&z) * weft_dtype_bytes(call->out[0].dtype);
}

static size_t workspace_of(const weft_call *call, bool backward)
{
    const sizes z = sizes_of(call);
    int64_t rows = rows_of_work(&z, call->attr, backward);
    if (call->in[Q].dtype != WEFT_F64) rows += wide_rows(&z, backward);
    return (size_t)rows * LANE_BYTES;
}

static size_t workspace_sdpa(const weft_call *call)
{
    return workspace_of(call, false);
}

static size_t workspace_sdpa_grad(const weft_call *call)
{
    return workspace_of(call, true);
}

/* Of `flops` for each score, and all operands. */
static weft_cost cost_of(const weft_call *call, const sizes *z, double flops)
{
    const sdpa_attr *attr = call->attr;
    double scores = (double)z->batch * (double)z->heads * (double)z->queries * (double)z->keys;
    if (attr->causal) scores /= 2;
    if (attr->window && 2 * attr->window < z->keys)
        scores *= (double)attr->window / (double)z->keys * (attr->causal ? 2 : 1);
    weft_cost cost = {.flops = scores * flops};
    for (size_t i = 0; i < call->n_in + call->n_out; i++) {
        const weft_tensor *t = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
        cost.bytes += (double)weft_tensor_bytes(t->dtype, t->shape);
    }
    return cost;
}

static void cost_sdpa(const weft_call *call, weft_cost *cost)
{
    const sizes z = sizes_of(call);
    *cost = cost_of(call, &z, 2.0 * (double)z.dim + 2.0 * (double)z.value_dim + 14);
}

static void cost_sdpa_grad(const weft_call *call, weft_cost *cost)
{
    const sizes z = sizes_of(call);
    *cost = cost_of(call, &z, 6.0 * (double)z.dim + 4.0 * (double)z.value_dim + 18);
}

/* ---- Gradient ---- */

static void vjp_sdpa(weft_vjp *v)
{
    weft_graph *g = v->graph;
    sdpa_attr attr = *(const sdpa_attr *)v->attr;
    weft_value in[REST + 2], out[3] = {WEFT_NO_VALUE, WEFT_NO_VALUE, WEFT_NO_VALUE};
    weft_value dout = v->grad_out[0], dlse = v->grad_out[1];
    size_t n = REST;
    for (int i = Q; i <= V; i++) in[i] = v->in[i];
    in[OUT] = v->out[0];
    in[LSE] = v->out[1];
    in[LSE_LOW] = v->out[2];
    in[DOUT] = weft_is_value(dout)
                   ? dout
                   : weft_fill(g, weft_dtype_of(g, v->out[0]), weft_shape_of(g, v->out[0]), 0.0);
    if (attr.mask) in[n++] = v->in[3];
    attr.dlse = weft_is_value(dlse);
    if (attr.dlse) in[n++] = dlse;
    weft_apply(g, &weft_op_sdpa_grad, &attr, in, n, out);
    for (int i = Q; i <= V; i++) v->grad_in[i] = out[i];
}

/* ---- Descriptors and builder ---- */

#define F(...)                                                                                     \
    {                                                                                              \
        WEFT_FLOAT, {4, {__VA_ARGS__}}, -1, 1, false                                               \
    }
#define ROWS(...)                                                                                  \
    {                                                                                              \
        WEFT_FLOAT, {3, {__VA_ARGS__}}, 0.5, 1.5, false                                            \
    }
#define MASK(rank, chance, ...)                                                                    \
    {                                                                                              \
        WEFT_BOOL, {rank, {__VA_ARGS__}}, 0, chance, false                                         \
    }
#define STATISTICS(...)                                                                            \
    ROWS(__VA_ARGS__),                                                                             \
    {                                                                                              \
        WEFT_FLOAT, {3, {__VA_ARGS__}}, -0.1, 0.1, false                                           \
    }
static const sdpa_attr plain = {.scale = 0.7}, causal = {.scale = 0.5, .causal = true},
                       masked = {.scale = 0.8, .mask = true},
                       dropping = {.scale = 0.6, .p = 0.4, .key = 21},
                       everything = {.scale = -0.6,
                                     .p = 0.3,
                                     .key = 22,
                                     .causal = true,
                                     .mask = true},
                       sliding = {.scale = 0.7, .causal = true, .window = 2},
                       one_sided = {.scale = 0.6, .mask = true, .window = 3},
                       with_dlse = {.scale = 0.7, .dlse = true};
static const weft_sample samples_sdpa[] = {
    {&plain, 3, {F(2, 3, 2, 4), F(2, 5, 2, 4), F(2, 5, 2, 3)}},
    {&masked, 4, {F(2, 3, 2, 2), F(2, 6, 2, 2), F(2, 6, 2, 2), MASK(4, 0.2, 2, 1, 1, 6)}},
    {&masked, 4, {F(1, 4, 2, 3), F(1, 6, 1, 3), F(1, 6, 1, 2), MASK(4, 0.2, 1, 2, 4, 6)}},
    {&masked, 4, {F(2, 3, 1, 2), F(2, 5, 1, 2), F(2, 5, 1, 2), MASK(2, 0.2, 3, 5)}},
    {&causal, 3, {F(1, 4, 2, 3), F(1, 4, 2, 3), F(1, 4, 2, 3)}},
    {&causal, 3, {F(1, 3, 1, 2), F(1, 5, 1, 2), F(1, 5, 1, 2)}},
    {&sliding, 3, {F(1, 5, 2, 3), F(1, 5, 1, 3), F(1, 5, 1, 3)}},
    {&sliding, 3, {F(1, 150, 1, 2), F(1, 170, 1, 2), F(1, 170, 1, 2)}},
    {&one_sided, 4, {F(1, 4, 2, 3), F(1, 6, 1, 3), F(1, 6, 1, 2), MASK(4, 0.2, 1, 1, 1, 6)}},
    {&dropping, 3, {F(1, 3, 4, 3), F(1, 5, 2, 3), F(1, 5, 2, 2)}},
    {&dropping, 3, {F(1, 3, 2, 2), F(1, 8, 2, 2), F(1, 8, 2, 2)}},
    {&everything, 4, {F(1, 3, 2, 2), F(1, 8, 1, 2), F(1, 8, 1, 2), MASK(4, 0.2, 1, 1, 3, 8)}},
    {&plain, 3, {F(0, 3, 1, 2), F(0, 2, 1, 2), F(0, 2, 1, 2)}},
    {&plain, 3, {F(1, 0, 1, 2), F(1, 2, 1, 2), F(1, 2, 1, 2)}},
};
static const weft_sample samples_sdpa_grad[] = {
    {&plain,
     7,
     {F(2, 3, 2, 4), F(2, 5, 2, 4), F(2, 5, 2, 3), F(2, 3, 2, 3), STATISTICS(2, 2, 3),
      F(2, 3, 2, 3)}},
    {&masked,
     8,
     {F(1, 3, 2, 2), F(1, 6, 1, 2), F(1, 6, 1, 2), F(1, 3, 2, 2), STATISTICS(1, 2, 3),
      F(1, 3, 2, 2), MASK(4, 0.2, 1, 1, 1, 6)}},
    {&causal,
     7,
     {F(1, 3, 1, 2), F(1, 5, 1, 2), F(1, 5, 1, 2), F(1, 3, 1, 2), STATISTICS(1, 1, 3),
      F(1, 3, 1, 2)}},
    {&sliding,
     7,
     {F(1, 3, 1, 2), F(1, 5, 1, 2), F(1, 5, 1, 2), F(1, 3, 1, 2), STATISTICS(1, 1, 3),
      F(1, 3, 1, 2)}},
    {&everything,
     8,
     {F(1, 3, 2, 2), F(1, 5, 1, 2), F(1, 5, 1, 2), F(1, 3, 2, 2), STATISTICS(1, 2, 3),
      F(1, 3, 2, 2), MASK(4, 0.2, 1, 2, 3, 5)}},
    {&dropping,
     7,
     {F(1, 3, 1, 2), F(1, 5, 1, 2), F(1, 5, 1, 2), F(1, 3, 1, 2), STATISTICS(1, 1, 3),
      F(1, 3, 1, 2)}},
    {&with_dlse,
     8,
     {F(1, 3, 1, 2), F(1, 4, 1, 2), F(1, 4, 1, 2), F(1, 3, 1, 2), STATISTICS(1, 1, 3),
      F(1, 3, 1, 2), ROWS(1, 1, 3)}},
};
static const weft_attr_field sdpa_fields[] = {
    {"scale", WEFT_ATTR_DOUBLE, offsetof(sdpa_attr, scale)},
    {"dropout", WEFT_ATTR_DOUBLE, offsetof(sdpa_attr, p)},
    {"window", WEFT_ATTR_INT64, offsetof(sdpa_attr, window)},
    {"causal", WEFT_ATTR_BOOL, offsetof(sdpa_attr, causal)},
    {"mask", WEFT_ATTR_BOOL, offsetof(sdpa_attr, mask)},
    {"dlse", WEFT_ATTR_BOOL, offsetof(sdpa_attr, dlse)},
    {NULL, WEFT_ATTR_INT, 0},
};

/* ---- C ---- */

/* The first `n` strides of a tensor, after those of others; without one, zeros. */
static void add_strides(const weft_tensor *t, size_t count, int64_t *numbers, size_t *n)
{
    for (size_t d = 0; d < count; d++) numbers[(*n)++] = t ? t->stride[d] : 0;
}

/* Their products are sums of pairs. */
static bool both_narrow(const weft_tensor *a, const weft_tensor *b)
{
    return a->dtype == WEFT_BF16 && b->dtype == WEFT_BF16;
}

/* The sizes as an attention_sizes of emit/plain/attention.h; returns how many there are. */
static size_t source_sizes(const weft_source *s, bool backward, int64_t *numbers)
{
    const sdpa_attr *a = s->attr;
    const weft_shape q = s->in[Q].shape, k = s->in[K].shape;
    const weft_tensor *mask = a->mask ? &s->in[backward ? REST : OUT] : NULL;
    const int64_t pairs = q.dim[0] * k.dim[2], keys = k.dim[1];
    const int64_t first[] = {q.dim[0],
                             q.dim[1],
                             keys,
                             q.dim[2],
                             k.dim[2],
                             q.dim[3],
                             s->in[V].shape.dim[3],
                             a->causal,
                             a->window < keys ? a->window : 0};
    size_t n = sizeof first / sizeof *first;
    memcpy(numbers, first, sizeof first);
    for (size_t i = Q; i <= V; i++) add_strides(&s->in[i], 3, numbers, &n);
    const size_t mask_at = n;
    for (int d = 0; d < 4; d++) {
        const int axis = mask ? d - (4 - mask->shape.rank) : -1;
        numbers[n++] = axis < 0 || mask->shape.dim[axis] == 1 ? 0 : mask->stride[axis];
    }
    numbers[n++] = numbers[mask_at + 2] == 0;
    add_strides(backward ? &s->in[OUT] : NULL, 3, numbers, &n);
    add_strides(backward ? &s->in[DOUT] : NULL, 3, numbers, &n);
    add_strides(backward ? &s->in[LSE] : NULL, 3, numbers, &n);
    add_strides(backward ? &s->in[LSE_LOW] : NULL, 3, numbers, &n);
    add_strides(backward && a->dlse ? &s->in[REST + a->mask] : NULL, 3, numbers, &n);
    int64_t chunks = 1;
    if (pairs && pairs < 16 && keys >= 1024) {
        chunks = (32 + pairs - 1) / pairs;
        if (chunks > keys / 512) chunks = keys / 512;
    }
    const int64_t chunk = (keys + chunks - 1) / chunks;
    numbers[n++] = chunk ? (chunk + KEY_BLOCK - 1) / KEY_BLOCK * KEY_BLOCK : KEY_BLOCK;
    numbers[n++] = (int64_t)both_narrow(&s->in[Q], &s->in[K]) |
                   (int64_t)(backward && both_narrow(&s->in[V], &s->in[DOUT])) << 1;
    return n;
}

/* The arguments from the sizes on; if some operand is stored as bf16, also room for the queries of a
 * head, its keys and its values, and in the backward pass for the gradients of the queries. */
static size_t source_rest(const weft_source *s, const int64_t *numbers, size_t n_numbers,
                          weft_source_arg *args, size_t n)
{
    const sdpa_attr *a = s->attr;
    const weft_shape *q = &s->in[Q].shape, *v = &s->in[V].shape;
    const int64_t gradients = s->n_in > DOUT ? q->dim[1] * v->dim[3] : 0;
    bool narrow = false;
    for (size_t i = 0; i < s->n_in; i++) narrow = narrow || s->in[i].dtype == WEFT_BF16;
    const weft_source_arg rest[] = {
        WEFT_ARG_INTS(numbers, n_numbers),
        WEFT_ARG_NUMBER(a->scale),
        WEFT_ARG_NUMBER(1 / (1 - a->p)),
        WEFT_ARG_KEY(a->key),
        WEFT_ARG_SEED,
        WEFT_ARG_KEY((uint32_t)(a->p * 0x1p32)),
        WEFT_ARG_SPACE(q->dim[1] * q->dim[3] + gradients + v->dim[1] * (q->dim[3] + v->dim[3]))};
    memcpy(args + n, rest, sizeof rest);
    return n + sizeof rest / sizeof *rest - !narrow;
}

static void source_sdpa(weft_source *s)
{
    int64_t numbers[64];
    const sdpa_attr *a = s->attr;
    const size_t n = source_sizes(s, false, numbers);
    weft_source_arg args[16] = {WEFT_ARG_IN(Q),      WEFT_ARG_IN(K),
                                WEFT_ARG_IN(V),      a->mask ? WEFT_ARG_IN(3) : WEFT_ARG_NONE,
                                WEFT_ARG_OUT(0),     WEFT_ARG_OUT_READ(1),
                                WEFT_ARG_OUT_READ(2)};
    if (s->in[K].dtype == WEFT_U8 || s->in[V].dtype == WEFT_U8) {
        s->receiver->fail(s, "its keys or values are stored in fewer bits");
        return;
    }
    weft_source_call_of(s, "sdpa", args, source_rest(s, numbers, n, args, 7));
}

static void source_sdpa_grad(weft_source *s)
{
    int64_t numbers[64];
    const sdpa_attr *a = s->attr;
    const size_t n = source_sizes(s, true, numbers);
    const int64_t chunk = numbers[n - 2];
    weft_source_arg args[24];
    size_t k = 0;
    for (size_t i = Q; i < REST; i++) args[k++] = WEFT_ARG_IN(i);
    args[k++] = a->mask ? WEFT_ARG_IN(REST) : WEFT_ARG_NONE;
    args[k++] = a->dlse ? WEFT_ARG_IN(REST + a->mask) : WEFT_ARG_NONE;
    for (size_t i = 0; i < 3; i++) args[k++] = WEFT_ARG_OUT(i);
    args[k++] = chunk < s->in[K].shape.dim[1] ? WEFT_ARG_SCRATCH : WEFT_ARG_NONE;
    weft_source_call_of(s, "sdpa_grad", args, source_rest(s, numbers, n, args, k));
}

/* ---- Batches ---- */

/* The mask of all examples, which broadcasts to [size batch, heads, query_len, key_len]. */
static weft_value batch_mask(const weft_batch *b, size_t i)
{
    weft_graph *g = b->graph;
    const int64_t sequences = weft_dim_of(g, b->one_in[Q], 0);
    if (!b->batched[i] && (weft_rank_of(g, b->in[i]) < 4 || weft_dim_of(g, b->in[i], 0) == 1))
        return b->in[i];
    weft_value mask = weft__batch_align(g, weft__batch_in(b, i), 4);
    weft_shape shape = weft_shape_of(g, mask);
    shape.dim[1] = sequences;
    mask = weft_broadcast_to(g, mask, shape);
    return weft__batch_fold(g, mask);
}

/* The sequences of all examples are one list. The random numbers of dropout would differ. */
static void batch_sdpa(weft_batch *b)
{
    const sdpa_attr *attr = b->attr;
    const size_t mask = !attr->mask ? b->n_in : b->n_in > 4 ? (size_t)REST : 3;
    weft_value in[REST + 2];
    if (attr->p != 0) {
        weft__batch_each(b);
        return;
    }
    for (size_t i = 0; i < b->n_in; i++)
        in[i] = i == mask ? batch_mask(b, i) : weft__batch_fold(b->graph, weft__batch_in(b, i));
    weft_apply(b->graph, b->op, attr, in, b->n_in, b->out);
    for (size_t k = 0; k < b->n_out; k++)
        b->out[k] = weft__batch_unfold(b, b->out[k], b->one_out[k]);
}

#define SDPA_OP(op, text, min_inputs, max_inputs, outputs, ...)                                    \
    DECLARE_KERNELS(op);                                                                           \
    DECLARE_DOTS_KERNEL(op);                                                                       \
    const weft_op weft_op_##op = {.name = #op,                                                     \
                                  .doc = text,                                                     \
                                  .min_in = min_inputs,                                            \
                                  .max_in = max_inputs,                                            \
                                  .n_out = outputs,                                                \
                                  .attr_size = sizeof(sdpa_attr),                                  \
                                  .attrs = sdpa_fields,                                            \
                                  .infer = infer_##op,                                             \
                                  .kernel = {NARROW_ROWS(op, op) DOTS_ROWS(op)},                   \
                                  .takes = WEFT_TAKES_ROWS,                                        \
                                  .tiles = tiles_##op,                                             \
                                  .workspace = workspace_##op,                                     \
                                  .cost = cost_##op,                                               \
                                  .random = true,                                                  \
                                  .expand = weft__expand_##op,                                     \
                                  .source = source_##op,                                           \
                                  .batch = batch_sdpa,                                             \
                                  .samples = samples_##op,                                         \
                                  .n_samples = sizeof samples_##op / sizeof *samples_##op,         \
                                  __VA_ARGS__};
SDPA_OP(sdpa,
        "out = dropout(softmax(scale q k^T)) v for each head, masked scores left out; also lse = "
        "ln sum e^(scale q k^T) of each query, and lse_low, the part that rounding removed. Scores "
        "are never stored.",
        3, 4, 3, .vjp = vjp_sdpa, .inputs = "query key value mask",
        .narrow_in = 1 << Q | 1 << K | 1 << V)
SDPA_OP(
    sdpa_grad,
    "dq, dk, dv from q, k, v, out, lse, lse_low, dout, the mask and dlse, the weights recomputed: "
    "sdpa backward.",
    7, 9, 3, .phases = 2, .scratch = scratch_sdpa_grad,
    .narrow_in = 1 << Q | 1 << K | 1 << V | 1 << DOUT)

weft_value weft_sdpa(weft_graph *graph, weft_value q, weft_value k, weft_value v,
                     const weft_sdpa_options *options)
{
    static const weft_sdpa_options defaults = {0};
    const weft_sdpa_options *o = options ? options : &defaults;
    weft_value in[4] = {q, k, v, o->mask};
    sdpa_attr attr;
    memset(&attr, 0, sizeof attr);
    int64_t dim = weft_rank_of(graph, q) == 4 ? weft_dim_of(graph, q, 3) : 1;
    attr.scale = o->scale != 0 ? o->scale : 1 / sqrt(dim > 0 ? (double)dim : 1);
    attr.p = o->dropout;
    if (attr.p != 0) attr.key = weft_graph_random_key(graph);
    attr.causal = o->causal;
    attr.window = o->window;
    attr.mask = weft_is_value(o->mask);
    return weft_apply(graph, &weft_op_sdpa, &attr, in, 3u + attr.mask, NULL);
}
