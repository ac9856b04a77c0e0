/* Layer normalisation and RMS normalisation over the last dimension, and their backward passes.
 *
 *     xhat = (x - mean) rstd,  y = xhat gamma + beta;    RMS: mean = 0, no beta
 *     dx = rstd (g - mean(g) - xhat mean(g xhat)), g = dy gamma;    RMS: without mean(g)
 *     dgamma = sum over rows of dy xhat,  dbeta = sum over rows of dy
 *
 * The sums over rows run in two phases. First each tile of rows writes its own sums to scratch,
 * SUM_ROWS rows at a time in the thread's workspace. Then tiles of columns add these in order. Time
 * O(elements). */
#include "kernels/kernel.h"
#include "kernels/moments.h"
#include "kernels/narrow.h"

typedef struct norm_attr {
    double eps;
    bool rms, gamma, beta;
} norm_attr;

#define MAX_TILES 32

static inline int64_t features_of(const weft_call *call)
{
    return call->in[0].shape.dim[call->in[0].shape.rank - 1];
}

static inline int64_t rows_of(const weft_call *call)
{
    int64_t features = features_of(call);
    return features ? numel_of(&call->in[0].shape) / features : 0;
}

static inline int64_t rows_per_tile(const weft_call *call)
{
    int64_t features = features_of(call), by_size = TILE / (features ? features : 1) + 1;
    int64_t by_count = ceil_div(rows_of(call), MAX_TILES);
    return by_size > by_count ? by_size : by_count;
}

#ifdef WEFT_KERNEL_ISA

/* Writes x - mean - low, which has the mean 0, to y, and returns it. Rare: moments.h. */
__attribute__((noinline)) static const T *centre_row(const T *x, int64_t n, T mean, double low,
                                                     T *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) - (T)low;
    return y;
}

/* Normalises tile `tile` of the rows. mean_out is NULL for RMS. */
static inline void normalise(const weft_call *call, int64_t tile, T *mean_out, T *rstd_out)
{
    const norm_attr *attr = call->attr;
    const int64_t n = features_of(call), rows = rows_of(call), each = rows_per_tile(call);
    const T *gamma = attr->gamma ? call->in[1].data : NULL;
    const T *beta = attr->beta ? call->in[attr->gamma ? 2 : 1].data : NULL;
    const double fraction = 1 / (double)n;
    for (int64_t r = tile * each; r < rows && r < (tile + 1) * each; r++) {
        const T *x = (const T *)call->in[0].data + r * n;
        T *y = (T *)call->out[0].data + r * n;
        T mean = mean_out ? (T)(sum_of(x, n) * fraction) : 0;
        double square = squares_of(x, n, mean);
        const bool far = mean_out && mean_is_far(mean, square, n);
        const double low = far ? moments_correct(x, n, &mean, &square) : 0;
        if (mean_out) mean_out[r] = mean;
        if (far) {
            x = centre_row(x, n, mean, low, y);
            mean = 0;
        }
        const T rstd = (T)(1 / sqrt(square * fraction + attr->eps));
        rstd_out[r] = rstd;
        if (gamma && beta)
            for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * gamma[i] + beta[i];
        else if (gamma)
            for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * gamma[i];
        else
            for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd + (beta ? beta[i] : 0);
    }
}

KERNEL(layer_norm)
{
    normalise(call, tile, call->out[1].data, call->out[2].data);
}

KERNEL(rms_norm)
{
    normalise(call, tile, NULL, call->out[1].data);
}

typedef struct row_gradients {
    T *x, *gamma, *beta;
} row_gradients;

/* dx of a row; adds the row's terms to dgamma and dbeta. Without a mean x is not centred. */
static inline void backward_row(int64_t n, const T *x, const T *dy, const T *gamma,
                                const T *row_mean, T rstd, row_gradients d)
{
    const bool centred = row_mean != NULL;
    T mean = centred ? *row_mean : 0;
    T *dx = d.x, *dgamma = d.gamma, *dbeta = d.beta;
    double sum = 0, product = 0;
    if (centred && mean_is_far(mean, 1 / ((double)rstd * (double)rstd), 1)) {
        x = centre_row(x, n, mean, mean_rounding(mean, deviation_of(x, n, mean)), dx);
        mean = 0;
    }
    EACH_RANGE(from, to, n)
    {
        T partial[SUM_LANES] = {0}, partial_product[SUM_LANES] = {0};
        EACH_LANE(i, c, from, to, const T xhat = (x[i] - mean) * rstd;
                  const T g = gamma ? dy[i] * gamma[i] : dy[i]; partial[c] += g;
                  partial_product[c] += g * xhat; dgamma[i] += dy[i] * xhat; dbeta[i] += dy[i])
        sum += (double)sum_of_lanes(partial);
        product += (double)sum_of_lanes(partial_product);
    }
    const T g_mean = centred ? (T)(sum / (double)n) : 0, along = (T)(product / (double)n);
    for (int64_t i = 0; i < n; i++) {
        const T xhat = (x[i] - mean) * rstd, g = gamma ? dy[i] * gamma[i] : dy[i];
        dx[i] = rstd * (g - g_mean - xhat * along);
    }
}

/* Phase 0 of backward: dx of the tile's rows, and the tile's sums [dgamma | dbeta] in scratch. */
static inline void backward_rows(const weft_call *call, int64_t tile, const T *means,
                                 const T *rstds, const weft_tensor *dys, const T *gamma)
{
    const int64_t n = features_of(call), rows = rows_of(call), each = rows_per_tile(call);
    const int64_t end = (tile + 1) * each < rows ? (tile + 1) * each : rows;
    double *total = (double *)call->scratch + tile * 2 * n;
    T *some = weft_call_workspace(call), *space = some + 2 * n;
    for (int64_t i = 0; i < 2 * n; i++) total[i] = 0;
    for (int64_t first = tile * each; first < end; first += SUM_ROWS) {
        const int64_t last = first + SUM_ROWS < end ? first + SUM_ROWS : end;
        memset(some, 0, (size_t)(2 * n) * sizeof *some);
        for (int64_t r = first; r < last; r++) {
            T *dx = narrow_target(&call->out[0], r * n, space + 2 * n);
            backward_row(n, narrow_row(&call->in[0], r * n, n, space),
                         narrow_row(dys, r * n, n, space + n), gamma, means ? &means[r] : NULL,
                         rstds[r], (row_gradients){dx, some, some + n});
            narrow_store(&call->out[0], r * n, n, dx);
        }
        for (int64_t i = 0; i < 2 * n; i++) total[i] += (double)some[i];
    }
}

/* Phase 1: adds up the tiles of columns of [dgamma | dbeta]. */
static inline void add_tiles(const weft_call *call, int64_t tile, int64_t tiles, T *out, T *second)
{
    const int64_t n = features_of(call), begin = tile * 64, end = begin + 64 < n ? begin + 64 : n;
    for (int half = 0; half < (second ? 2 : 1); half++) {
        T *to = half ? second : out;
        double sum[64] = {0};
        for (int64_t p = 0; p < tiles; p++) {
            const double *from = (const double *)call->scratch + (p * 2 + half) * n + begin;
            for (int64_t i = 0; i < end - begin; i++) sum[i] += from[i];
        }
        for (int64_t i = begin; i < end; i++) to[i] = (T)sum[i - begin];
    }
}

KERNEL(layer_norm_grad)
{
    const norm_attr *attr = call->attr;
    if (call->phase == 0)
        backward_rows(call, tile, call->in[1].data, call->in[2].data, &call->in[3],
                      attr->gamma ? call->in[4].data : NULL);
    else
        add_tiles(call, tile, ceil_div(rows_of(call), rows_per_tile(call)), call->out[1].data,
                  call->out[2].data);
}

KERNEL(rms_norm_grad)
{
    const norm_attr *attr = call->attr;
    if (call->phase == 0)
        backward_rows(call, tile, NULL, call->in[1].data, &call->in[2],
                      attr->gamma ? call->in[3].data : NULL);
    else
        add_tiles(call, tile, ceil_div(rows_of(call), rows_per_tile(call)), call->out[1].data,
                  NULL);
}

#else

#include "samples.h"

#include "batch.h"
#include "onnx.h"
#include "source_bits.h"

#include <weft/ops.h>
#include <weft/source.h>

extern const weft_op weft_op_layer_norm, weft_op_rms_norm, weft_op_layer_norm_grad,
    weft_op_rms_norm_grad;

static weft_shape stats_shape(weft_shape shape)
{
    shape.dim[shape.rank - 1] = 1;
    return shape;
}

static bool check_vector(weft_infer *infer, size_t i, const char *what, weft_shape want)
{
    char a[128], b[128];
    if (!weft_infer_same_dtype(infer, 0, i)) return false;
    return weft_shape_equal(infer->in[i].shape, want) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s must be %s, got %s", what,
                           weft_shape_text(want, a, sizeof a),
                           weft_shape_text(infer->in[i].shape, b, sizeof b));
}

static bool infer_norm(weft_infer *infer)
{
    const norm_attr *attr = infer->attr;
    if (!weft_infer_float(infer, 0) || !weft_infer_min_rank(infer, 0, 1)) return false;
    if (infer->n_in != 1u + attr->gamma + attr->beta)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "takes %d inputs, got %zu",
                               1 + attr->gamma + attr->beta, infer->n_in);
    weft_type x = infer->in[0];
    weft_shape features = WEFT_SHAPE(x.shape.dim[x.shape.rank - 1]);
    for (size_t i = 1; i < infer->n_in; i++)
        if (!check_vector(infer, i, i == 1 && attr->gamma ? "gamma" : "beta", features))
            return false;
    infer->out[0] = x;
    for (size_t i = 1; i < infer->n_out; i++)
        infer->out[i] = (weft_type){x.dtype, stats_shape(x.shape)};
    return true;
}

static bool infer_norm_grad(weft_infer *infer)
{
    const norm_attr *attr = infer->attr;
    size_t stats = attr->rms ? 1 : 2;
    if (!weft_infer_float(infer, 0) || !weft_infer_min_rank(infer, 0, 1)) return false;
    if (infer->n_in != 2 + stats + attr->gamma)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "takes %zu inputs, got %zu",
                               2 + stats + attr->gamma, infer->n_in);
    weft_type x = infer->in[0];
    weft_shape features = WEFT_SHAPE(x.shape.dim[x.shape.rank - 1]);
    for (size_t i = 1; i <= stats; i++)
        if (!check_vector(infer, i, "a statistic", stats_shape(x.shape))) return false;
    if (!check_vector(infer, 1 + stats, "dy", x.shape)) return false;
    if (attr->gamma && !check_vector(infer, 2 + stats, "gamma", features)) return false;
    infer->out[0] = x;
    for (size_t i = 1; i < infer->n_out; i++) infer->out[i] = (weft_type){x.dtype, features};
    return true;
}

static int64_t tiles_norm(const weft_call *call)
{
    if (call->phase == 1) return ceil_div(features_of(call), 64);
    return ceil_div(rows_of(call), rows_per_tile(call));
}

static size_t scratch_norm(const weft_call *call)
{
    return (size_t)(ceil_div(rows_of(call), rows_per_tile(call)) * 2 * features_of(call)) *
           sizeof(double);
}

/* Sums of dgamma and dbeta, and rows of x, dy and dx that are stored as bf16. */
static size_t workspace_norm(const weft_call *call)
{
    return (size_t)(5 * features_of(call)) * weft_dtype_bytes(call->out[1].dtype);
}

/* Of `flops` for each element of x, and `tensors` as large as x that are read or written. */
static weft_cost cost_of(const weft_call *call, int flops, int tensors)
{
    const double n = (double)numel_of(&call->in[0].shape);
    return (weft_cost){flops * n, tensors * n * (double)weft_dtype_bytes(call->in[0].dtype)};
}

static void cost_norm(const weft_call *call, weft_cost *cost)
{
    *cost = cost_of(call, 8, 2);
}

static void cost_norm_grad(const weft_call *call, weft_cost *cost)
{
    *cost = cost_of(call, 16, 3);
}

/* ---- Gradients ---- */

static weft_value row_mean(weft_graph *g, weft_value x)
{
    return weft_mean(g, x, WEFT_AXES(-1), true);
}

static weft_value row_sums(weft_graph *g, weft_value x)
{
    int rank = weft_rank_of(g, x);
    weft_axes axes = {rank - 1, {0}};
    for (int i = 0; i < rank - 1; i++) axes.axis[i] = i;
    return rank > 1 ? weft_sum(g, x, axes, false) : x;
}

/* Backward in plain ops; mean and rstd are inputs like any other. */
static void expand_grad(weft_expand *e)
{
    const norm_attr *attr = e->attr;
    weft_graph *g = e->graph;
    size_t stats = attr->rms ? 1 : 2;
    weft_value x = e->in[0], rstd = e->in[stats], dy = e->in[1 + stats];
    weft_value xhat = weft_mul(g, attr->rms ? x : weft_sub(g, x, e->in[1]), rstd);
    weft_value gy = attr->gamma ? weft_mul(g, dy, e->in[2 + stats]) : dy;
    weft_value inner = attr->rms ? gy : weft_sub(g, gy, row_mean(g, gy));
    weft_value along = weft_mul(g, xhat, row_mean(g, weft_mul(g, gy, xhat)));
    e->out[0] = weft_mul(g, rstd, weft_sub(g, inner, along));
    e->out[1] = row_sums(g, weft_mul(g, dy, xhat));
    if (!attr->rms) e->out[2] = row_sums(g, dy);
}

static weft_value plus(weft_graph *g, weft_value a, weft_value b)
{
    return weft_is_value(a) ? weft_add(g, a, b) : b;
}

/* What reaches x through the statistics themselves, when something used them. */
static void add_statistics(weft_vjp *v)
{
    const norm_attr *attr = v->attr;
    weft_graph *g = v->graph;
    weft_value x = v->in[0], rstd = v->out[attr->rms ? 1 : 2];
    weft_value dmean = attr->rms ? WEFT_NO_VALUE : v->grad_out[1];
    weft_value drstd = v->grad_out[attr->rms ? 1 : 2];
    double n = (double)weft_dim_of(g, x, -1);
    weft_shape shape = weft_shape_of(g, x);
    if (weft_is_value(dmean))
        v->grad_in[0] =
            plus(g, v->grad_in[0], weft_broadcast_to(g, weft_mul_scalar(g, dmean, 1.0 / n), shape));
    if (weft_is_value(drstd)) {
        weft_value centred = attr->rms ? x : weft_sub(g, x, v->out[1]);
        weft_value cube = weft_mul(g, weft_square(g, rstd), rstd);
        weft_value slope = weft_mul_scalar(g, weft_mul(g, drstd, cube), -1.0 / n);
        v->grad_in[0] = plus(g, v->grad_in[0], weft_mul(g, slope, centred));
    }
}

static void vjp_norm(weft_vjp *v)
{
    const norm_attr *attr = v->attr;
    if (weft_is_value(v->grad_out[0])) {
        weft_value in[5] = {v->in[0]}, out[3];
        size_t n = 1, stats = attr->rms ? 1 : 2;
        for (size_t i = 1; i <= stats; i++) in[n++] = v->out[i];
        in[n++] = v->grad_out[0];
        if (attr->gamma) in[n++] = v->in[1];
        weft_apply(v->graph, attr->rms ? &weft_op_rms_norm_grad : &weft_op_layer_norm_grad, attr,
                   in, n, out);
        v->grad_in[0] = out[0];
        if (attr->gamma) v->grad_in[1] = out[1];
        if (attr->beta) v->grad_in[attr->gamma ? 2 : 1] = out[2];
    }
    if (v->wanted[0]) add_statistics(v);
}

/* ---- Descriptors and builders ---- */

#define POSITIVE(...)                                                                              \
    {                                                                                              \
        WEFT_FLOAT, __VA_ARGS__, 0.5, 1.5, false                                                   \
    }
static const norm_attr ln_full = {1e-5, false, true, true}, ln_plain = {1e-5, false, false, false},
                       rms_full = {1e-6, true, true, false}, rms_plain = {1e-6, true, false, false};
static const weft_sample samples_layer_norm[] = {
    {&ln_full, 3, {FLOATS({2, {4, 6}}), FLOATS({1, {6}}), FLOATS({1, {6}})}},
    {&ln_plain, 1, {FLOATS({3, {2, 2, 5}})}},
    {&ln_plain, 1, {FLOATS({2, {0, 5}})}},
};
static const weft_sample samples_rms_norm[] = {
    {&rms_full, 2, {FLOATS({2, {4, 6}}), FLOATS({1, {6}})}},
    {&rms_plain, 1, {FLOATS({3, {2, 2, 5}})}},
};
static const weft_sample samples_layer_norm_grad[] = {
    {&ln_full,
     5,
     {FLOATS({2, {4, 6}}), FLOATS({2, {4, 1}}), POSITIVE({2, {4, 1}}), FLOATS({2, {4, 6}}),
      FLOATS({1, {6}})}},
    {&ln_plain, 4, {FLOATS({1, {5}}), FLOATS({1, {1}}), POSITIVE({1, {1}}), FLOATS({1, {5}})}},
};
static const weft_sample samples_rms_norm_grad[] = {
    {&rms_full,
     4,
     {FLOATS({2, {4, 6}}), POSITIVE({2, {4, 1}}), FLOATS({2, {4, 6}}), FLOATS({1, {6}})}},
    {&rms_plain, 3, {FLOATS({1, {5}}), POSITIVE({1, {1}}), FLOATS({1, {5}})}},
};
static const weft_attr_field norm_fields[] = {
    {"eps", WEFT_ATTR_DOUBLE, offsetof(norm_attr, eps)},
    {"rms", WEFT_ATTR_BOOL, offsetof(norm_attr, rms)},
    {"gamma", WEFT_ATTR_BOOL, offsetof(norm_attr, gamma)},
    {"beta", WEFT_ATTR_BOOL, offsetof(norm_attr, beta)},
    {NULL, WEFT_ATTR_INT, 0},
};

static unsigned rowwise_norm(const void *attr)
{
    (void)attr;
    return 1;
}

/* ---- Batches ---- */

/* The attribute without gamma and beta. */
static norm_attr plain_attr(const weft_batch *b)
{
    norm_attr attr;
    memcpy(&attr, b->attr, sizeof attr);
    attr.gamma = attr.beta = false;
    return attr;
}

/* Input i, a vector of features, so that it broadcasts with the batch of x. */
static weft_value batch_features(const weft_batch *b, size_t i)
{
    const int rank = weft_rank_of(b->graph, b->one_in[0]);
    return b->batched[i] ? weft__batch_align(b->graph, b->in[i], rank) : b->in[i];
}

static void batch_rows(weft_batch *b)
{
    const norm_attr *attr = b->attr;
    bool shared = true;
    for (size_t i = 1; i < b->n_in; i++) shared = shared && !b->batched[i];
    if (shared) {
        weft__batch_leading(b, 1);
        return;
    }
    const norm_attr plain = plain_attr(b);
    const weft_value x = weft__batch_in(b, 0);
    weft_apply(b->graph, b->op, &plain, &x, 1, b->out);
    if (attr->gamma) b->out[0] = weft_mul(b->graph, b->out[0], batch_features(b, 1));
    if (attr->beta) b->out[0] = weft_add(b->graph, b->out[0], batch_features(b, 1u + attr->gamma));
}

/* Sums over the rows of each example. */
static weft_value batch_row_sums(weft_graph *g, weft_value x)
{
    weft_axes axes = {0, {0}};
    for (int d = 1; d < weft_rank_of(g, x) - 1; d++) axes.axis[axes.count++] = d;
    return axes.count ? weft_sum(g, x, axes, false) : x;
}

/* dx by the op; dgamma and dbeta, which it would sum over all examples, by simpler ops. */
static void batch_rows_grad(weft_batch *b)
{
    const norm_attr *attr = b->attr;
    const norm_attr plain = plain_attr(b);
    weft_graph *g = b->graph;
    const size_t stats = attr->rms ? 1 : 2, at = 1 + stats, n = b->n_in;
    const bool own = attr->gamma && b->batched[n - 1];
    weft_value in[5], out[3];
    for (size_t i = 0; i <= at; i++) in[i] = weft__batch_in(b, i);
    const weft_value dy = in[at];
    if (attr->gamma) in[n - 1] = b->in[n - 1];
    if (own) in[at] = weft_mul(g, dy, batch_features(b, n - 1));
    weft_apply(g, b->op, own ? &plain : attr, in, own ? n - 1 : n, out);
    const weft_value centred = attr->rms ? in[0] : weft_sub(g, in[0], in[1]);
    const weft_value xhat = weft_mul(g, centred, in[stats]);
    b->out[0] = out[0];
    b->out[1] = batch_row_sums(g, weft_mul(g, dy, xhat));
    if (!attr->rms) b->out[2] = batch_row_sums(g, dy);
}

/* ---- ONNX ---- */

/* Only y: the statistics are for the gradient. */
static bool wants_only_result(weft_export *e)
{
    bool wanted = false;
    for (size_t i = 1; i < e->n_out; i++) wanted |= e->wanted[i];
    if (wanted) weft_export_fail(e, "its statistics have no counterpart in ONNX");
    return !wanted;
}

/* LayerNormalization needs a scale. */
static void onnx_layer_norm(weft_export *e)
{
    const norm_attr *attr = e->attr;
    const weft_type *x = &e->in_type[0];
    const int64_t features = x->shape.dim[x->shape.rank - 1];
    weft_operand in[3] = {e->in[0], e->in[1]};
    size_t n = 1 + attr->gamma;
    if (!wants_only_result(e)) return;
    if (!attr->gamma) {
        const weft_operand sizes = weft_export_int64s(e, &features, 1);
        in[n++] = weft_export_binary(e, "Expand", weft_export_scalar(e, x->dtype, 1), sizes);
    }
    if (attr->beta) in[n++] = e->in[1 + attr->gamma];
    e->out[0] = weft_export_node(e, "LayerNormalization", in, n, 1);
    weft_export_float(e, "epsilon", attr->eps);
}

static void onnx_rms_norm(weft_export *e)
{
    const norm_attr *attr = e->attr;
    const weft_operand x = e->in[0];
    const int64_t last = -1;
    if (!wants_only_result(e)) return;
    weft_operand mean = weft_export_binary(e, "Mul", x, x);
    mean = onnx_reduce(e, "ReduceMean", mean, &last, 1, true, false);
    weft_operand eps = weft_export_scalar(e, e->in_type[0].dtype, attr->eps);
    weft_operand root = weft_export_unary(e, "Sqrt", weft_export_binary(e, "Add", mean, eps));
    e->out[0] = weft_export_binary(e, "Div", x, root);
    if (attr->gamma) e->out[0] = weft_export_binary(e, "Mul", e->out[0], e->in[1]);
}

/* ---- C ---- */

static weft_source_arg source_in_if(bool there, size_t i)
{
    return there ? WEFT_ARG_IN(i) : WEFT_ARG_NONE;
}

static void source_norm(weft_source *s)
{
    const norm_attr *attr = s->attr;
    const weft_call call = {.in = s->in};
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    source_in_if(attr->gamma, 1),
                                    source_in_if(attr->beta, 1 + attr->gamma),
                                    WEFT_ARG_OUT(0),
                                    attr->rms ? WEFT_ARG_NONE : WEFT_ARG_OUT_READ(1),
                                    WEFT_ARG_OUT_READ(attr->rms ? 1 : 2),
                                    WEFT_ARG_INT(rows_of(&call)),
                                    WEFT_ARG_INT(features_of(&call)),
                                    WEFT_ARG_INT(!attr->rms),
                                    WEFT_ARG_KEY(source_bits(attr->eps))};
    weft_source_call_of(s, "norm_rows", args, sizeof args / sizeof *args);
}

static void source_norm_grad(weft_source *s)
{
    const norm_attr *attr = s->attr;
    const weft_call call = {.in = s->in};
    const size_t stats = attr->rms ? 1 : 2;
    const weft_source_arg args[] = {WEFT_ARG_IN(0),
                                    source_in_if(!attr->rms, 1),
                                    WEFT_ARG_IN(stats),
                                    WEFT_ARG_IN(1 + stats),
                                    source_in_if(attr->gamma, 2 + stats),
                                    WEFT_ARG_OUT(0),
                                    WEFT_ARG_OUT(1),
                                    attr->rms ? WEFT_ARG_NONE : WEFT_ARG_OUT(2),
                                    rows_of(&call) ? WEFT_ARG_SCRATCH : WEFT_ARG_NONE,
                                    WEFT_ARG_INT(rows_of(&call)),
                                    WEFT_ARG_INT(features_of(&call)),
                                    WEFT_ARG_INT(rows_per_tile(&call)),
                                    WEFT_ARG_SPACE(5 * features_of(&call))};
    const bool narrow = s->in[0].dtype == WEFT_BF16 || s->in[1 + stats].dtype == WEFT_BF16 ||
                        s->out[0].dtype == WEFT_BF16;
    weft_source_call_of(s, "norm_rows_grad", args, sizeof args / sizeof *args - !narrow);
}

#define NORM_OP(op, text, min_inputs, max_inputs, outputs, shape_rule, ...)                        \
    DECLARE_KERNELS(op);                                                                           \
    const weft_op weft_op_##op = {.name = #op,                                                     \
                                  .doc = text,                                                     \
                                  .min_in = min_inputs,                                            \
                                  .max_in = max_inputs,                                            \
                                  .n_out = outputs,                                                \
                                  .attr_size = sizeof(norm_attr),                                  \
                                  .attrs = norm_fields,                                            \
                                  .infer = shape_rule,                                             \
                                  .takes = WEFT_TAKES_DENSE,                                       \
                                  .tiles = tiles_norm,                                             \
                                  .samples = samples_##op,                                         \
                                  .n_samples = sizeof samples_##op / sizeof *samples_##op,         \
                                  __VA_ARGS__};
NORM_OP(layer_norm,
        "y = (x - mean) rstd gamma + beta over the last dimension, rstd = (variance + eps)^(-1/2); "
        "also returns mean and rstd.",
        1, 3, 3, infer_norm, .cost = cost_norm, .kernel = FLOAT_KERNELS(layer_norm),
        .narrow_out = 1, .onnx = onnx_layer_norm, .source = source_norm, .vjp = vjp_norm,
        .batch = batch_rows, .rowwise = rowwise_norm, .inputs = "x gamma beta")
NORM_OP(rms_norm,
        "y = x r gamma over the last dimension, r = (mean x^2 + eps)^(-1/2); also returns r.", 1, 2,
        2, infer_norm, .cost = cost_norm, .kernel = FLOAT_KERNELS(rms_norm), .narrow_out = 1,
        .onnx = onnx_rms_norm, .source = source_norm, .vjp = vjp_norm, .batch = batch_rows,
        .rowwise = rowwise_norm, .inputs = "x gamma")
NORM_OP(layer_norm_grad, "dx, dgamma, dbeta from x, mean, rstd, dy and gamma: layer_norm backward.",
        4, 5, 3, infer_norm_grad, .cost = cost_norm_grad, .phases = 2, .scratch = scratch_norm,
        .workspace = workspace_norm, .kernel = {NARROW_ROWS(layer_norm_grad, layer_norm_grad)},
        .narrow_in = 1 << 0 | 1 << 3, .narrow_out = 1, .source = source_norm_grad,
        .expand = expand_grad, .batch = batch_rows_grad)
NORM_OP(rms_norm_grad, "dx, dgamma from x, r, dy and gamma: rms_norm backward.", 3, 4, 2,
        infer_norm_grad, .cost = cost_norm_grad, .phases = 2, .scratch = scratch_norm,
        .workspace = workspace_norm, .kernel = {NARROW_ROWS(rms_norm_grad, rms_norm_grad)},
        .narrow_in = 1 << 0 | 1 << 2, .narrow_out = 1, .source = source_norm_grad,
        .expand = expand_grad, .batch = batch_rows_grad)

static weft_value norm(weft_graph *graph, const weft_op *op, weft_value x, weft_value gamma,
                       weft_value beta, double eps, bool rms)
{
    weft_value in[3] = {x};
    size_t n = 1;
    norm_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.eps = eps;
    attr.rms = rms;
    attr.gamma = weft_is_value(gamma);
    attr.beta = weft_is_value(beta);
    if (attr.gamma) in[n++] = gamma;
    if (attr.beta) in[n++] = beta;
    return weft_apply(graph, op, &attr, in, n, NULL);
}

weft_value weft_layer_norm(weft_graph *graph, weft_value x, weft_value gamma, weft_value beta,
                           double eps)
{
    return norm(graph, &weft_op_layer_norm, x, gamma, beta, eps, false);
}

weft_value weft_rms_norm(weft_graph *graph, weft_value x, weft_value gamma, double eps)
{
    return norm(graph, &weft_op_rms_norm, x, gamma, WEFT_NO_VALUE, eps, true);
}

#endif
