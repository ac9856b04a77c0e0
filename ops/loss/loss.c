/* Losses that are plain compositions. mse and bce_with_logits are ops without kernels, which are
 * always expanded; the others consist of simpler ops from the start. */
#include "samples.h"

#include <weft/ops.h>

#include <math.h>
#include <string.h>

typedef struct loss_attr {
    int32_t reduction; /* weft_reduction */
} loss_attr;

static bool infer_loss(weft_infer *infer)
{
    char a[128], b[128];
    if (!weft_infer_float(infer, 0) || !weft_infer_same_dtype(infer, 0, 1)) return false;
    infer->out[0] = infer->in[0];
    if (((const loss_attr *)infer->attr)->reduction != WEFT_REDUCE_NONE)
        infer->out[0].shape = WEFT_SCALAR;
    return weft_shape_equal(infer->in[0].shape, infer->in[1].shape) ||
           weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s and %s must be equal",
                           weft_shape_text(infer->in[0].shape, a, sizeof a),
                           weft_shape_text(infer->in[1].shape, b, sizeof b));
}

static weft_value reduced(weft_graph *graph, weft_value x, weft_reduction reduction)
{
    return reduction == WEFT_REDUCE_NONE  ? x
           : reduction == WEFT_REDUCE_SUM ? weft_sum(graph, x, WEFT_ALL_AXES, false)
                                          : weft_mean(graph, x, WEFT_ALL_AXES, false);
}

static weft_reduction reduction_of(const weft_expand *e)
{
    return (weft_reduction)((const loss_attr *)e->attr)->reduction;
}

static void expand_mse(weft_expand *e)
{
    weft_value square = weft_square(e->graph, weft_sub(e->graph, e->in[0], e->in[1]));
    e->out[0] = reduced(e->graph, square, reduction_of(e));
}

/* softplus(x) - x t = max(x, 0) - x t + ln(1 + e^-|x|) */
static void expand_bce(weft_expand *e)
{
    weft_value product = weft_mul(e->graph, e->in[0], e->in[1]);
    weft_value loss = weft_sub(e->graph, weft_softplus(e->graph, e->in[0]), product);
    e->out[0] = reduced(e->graph, loss, reduction_of(e));
}

#define UNIT(...)                                                                                  \
    {                                                                                              \
        WEFT_FLOAT, __VA_ARGS__, 0, 1, false                                                       \
    }
static const loss_attr loss_mean = {WEFT_REDUCE_MEAN}, loss_sum = {WEFT_REDUCE_SUM},
                       loss_none = {WEFT_REDUCE_NONE};
static const weft_sample samples_mse[] = {
    {&loss_mean, 2, {FLOATS({2, {3, 4}}), FLOATS({2, {3, 4}})}},
    {&loss_sum, 2, {FLOATS({1, {5}}), FLOATS({1, {5}})}},
    {&loss_none, 2, {FLOATS({1, {5}}), FLOATS({1, {5}})}},
    {&loss_sum, 2, {FLOATS({2, {0, 3}}), FLOATS({2, {0, 3}})}},
};
static const weft_sample samples_bce[] = {
    {&loss_mean, 2, {FLOATS({2, {3, 4}}), UNIT({2, {3, 4}})}},
    {&loss_sum, 2, {FLOATS({1, {5}}), UNIT({1, {5}})}},
    {&loss_none, 2, {FLOATS({1, {5}}), UNIT({1, {5}})}},
    {&loss_sum, 2, {FLOATS({2, {0, 3}}), UNIT({2, {0, 3}})}},
};
static const weft_attr_field loss_fields[] = {
    {"reduction", WEFT_ATTR_INT, offsetof(loss_attr, reduction)},
    {NULL, WEFT_ATTR_INT, 0},
};

#define LOSS_OP(op, text, expansion, sample_list)                                                  \
    extern const weft_op weft_op_##op;                                                             \
    const weft_op weft_op_##op = {                                                                 \
        .name = #op,                                                                               \
        .doc = text,                                                                               \
        .min_in = 2,                                                                               \
        .max_in = 2,                                                                               \
        .n_out = 1,                                                                                \
        .attr_size = sizeof(loss_attr),                                                            \
        .attrs = loss_fields,                                                                      \
        .infer = infer_loss,                                                                       \
        .expand = expansion,                                                                       \
        .samples = sample_list,                                                                    \
        .n_samples = sizeof sample_list / sizeof *sample_list,                                     \
    };
LOSS_OP(mse, "loss = mean (or sum, or each) of (a - b)^2.", expand_mse, samples_mse)
LOSS_OP(bce_with_logits, "loss = mean (or sum, or each) of max(x, 0) - x t + ln(1 + e^-|x|).",
        expand_bce, samples_bce)

weft_value weft_mse_loss(weft_graph *graph, weft_value a, weft_value b, weft_reduction reduction)
{
    return weft_apply(graph, &weft_op_mse, &(loss_attr){(int32_t)reduction}, (weft_value[]){a, b},
                      2, NULL);
}

weft_value weft_bce_with_logits_loss(weft_graph *graph, weft_value logits, weft_value targets,
                                     weft_reduction reduction)
{
    return weft_apply(graph, &weft_op_bce_with_logits, &(loss_attr){(int32_t)reduction},
                      (weft_value[]){logits, targets}, 2, NULL);
}

/* ---- Compositions ---- */

/* Whether a and b, arguments of the loss `name`, have one shape; broadcasting would hide a
 * mistake. */
static bool same_shape(weft_graph *graph, const char *name, weft_value a, weft_value b)
{
    char text[2][128];
    if (!weft_is_value(a) || !weft_is_value(b)) return false;
    const weft_shape x = weft_shape_of(graph, a), y = weft_shape_of(graph, b);
    if (weft_shape_equal(x, y)) return true;
    weft_graph_fail_in(graph, name, WEFT_BAD_SHAPE, "%s and %s must be equal",
                       weft_shape_text(x, text[0], sizeof *text),
                       weft_shape_text(y, text[1], sizeof *text));
    return false;
}

/* Whether a number of the loss `name` is as it must be. */
static bool is_good(weft_graph *graph, const char *name, bool good, const char *expected,
                    double value)
{
    if (!good) weft_graph_fail_in(graph, name, WEFT_BAD_ARGUMENT, "%s, got %g", expected, value);
    return good;
}

static weft_value distance(weft_graph *graph, weft_value a, weft_value b)
{
    return weft_abs(graph, weft_sub(graph, a, b));
}

weft_value weft_l1_loss(weft_graph *graph, weft_value a, weft_value b, weft_reduction reduction)
{
    if (!same_shape(graph, "l1_loss", a, b)) return WEFT_NO_VALUE;
    return reduced(graph, distance(graph, a, b), reduction);
}

/* With c = min(d, delta) it is c (d - c / 2). */
weft_value weft_huber_loss(weft_graph *graph, weft_value a, weft_value b, double delta,
                           weft_reduction reduction)
{
    if (!is_good(graph, "huber_loss", delta > 0, "delta must be positive", delta) ||
        !same_shape(graph, "huber_loss", a, b))
        return WEFT_NO_VALUE;
    weft_value d = distance(graph, a, b), c = weft_clamp(graph, d, 0, delta);
    weft_value slope = weft_sub(graph, d, weft_mul_scalar(graph, c, 0.5));
    return reduced(graph, weft_mul(graph, c, slope), reduction);
}

weft_value weft_smooth_l1_loss(weft_graph *graph, weft_value a, weft_value b, double beta,
                               weft_reduction reduction)
{
    if (!is_good(graph, "smooth_l1_loss", beta >= 0, "beta must not be negative", beta))
        return WEFT_NO_VALUE;
    if (beta == 0) return weft_l1_loss(graph, a, b, reduction);
    return weft_mul_scalar(graph, weft_huber_loss(graph, a, b, beta, reduction), 1 / beta);
}

/* Where p is 0, its terms are 1 ln 1 and 0 times 0, so that gradients are finite. */
weft_value weft_kl_divergence_loss(weft_graph *graph, weft_value log_q, weft_value p,
                                   weft_reduction reduction)
{
    if (!same_shape(graph, "kl_divergence", log_q, p)) return WEFT_NO_VALUE;
    weft_value none = weft_equal(graph, p, weft_scalar(graph, weft_dtype_of(graph, p), 0));
    weft_value safe = weft_masked_fill(graph, p, none, 1);
    weft_value entropy = weft_mul(graph, safe, weft_log(graph, safe));
    weft_value cross = weft_mul(graph, p, weft_masked_fill(graph, log_q, none, 0));
    return reduced(graph, weft_sub(graph, entropy, cross), reduction);
}

weft_value weft_hinge_loss(weft_graph *graph, weft_value scores, weft_value targets,
                           weft_reduction reduction)
{
    if (!same_shape(graph, "hinge_loss", scores, targets)) return WEFT_NO_VALUE;
    weft_value product = weft_mul(graph, scores, targets);
    weft_value gap = weft_add_scalar(graph, weft_neg(graph, product), 1);
    return reduced(graph, weft_relu(graph, gap), reduction);
}

/* 1 / max(|x|, eps), from squares, so that a norm of 0 has no gradient. */
static weft_value inverse_norm(weft_graph *graph, weft_value x, double eps)
{
    weft_value square = weft_sum(graph, weft_square(graph, x), WEFT_AXES(-1), false);
    weft_value smallest = weft_scalar(graph, weft_dtype_of(graph, x), eps * eps);
    return weft_rsqrt(graph, weft_maximum(graph, square, smallest));
}

weft_value weft_cosine_similarity(weft_graph *graph, weft_value a, weft_value b, double eps)
{
    if (!is_good(graph, "cosine_similarity", eps >= 1e-18, "eps must be at least 1e-18", eps))
        return WEFT_NO_VALUE;
    weft_value dot = weft_sum(graph, weft_mul(graph, a, b), WEFT_AXES(-1), false);
    weft_value scaled = weft_mul(graph, dot, inverse_norm(graph, a, eps));
    return weft_mul(graph, scaled, inverse_norm(graph, b, eps));
}

weft_value weft_cosine_embedding_loss(weft_graph *graph, weft_value a, weft_value b,
                                      weft_value targets, double margin, weft_reduction reduction)
{
    weft_value cosine = weft_cosine_similarity(graph, a, b, 1e-6);
    if (!same_shape(graph, "cosine_embedding_loss", cosine, targets)) return WEFT_NO_VALUE;
    weft_value zero = weft_scalar(graph, weft_dtype_of(graph, targets), 0);
    weft_value near = weft_add_scalar(graph, weft_neg(graph, cosine), 1);
    weft_value far = weft_relu(graph, weft_add_scalar(graph, cosine, -margin));
    return reduced(graph, weft_where(graph, weft_greater(graph, targets, zero), near, far),
                   reduction);
}

/* |a - b + eps|_p over the last dimension. */
static weft_value norm_of_difference(weft_graph *graph, weft_value a, weft_value b,
                                     const weft_triplet_margin_loss_options *o)
{
    const double p = o->p == 0 ? 2 : o->p, eps = weft_option(o->eps, 1e-6);
    weft_value d = weft_add_scalar(graph, weft_sub(graph, a, b), eps);
    if (p == 2)
        return weft_sqrt(graph, weft_sum(graph, weft_square(graph, d), WEFT_AXES(-1), false));
    d = weft_abs(graph, d);
    if (p == 1) return weft_sum(graph, d, WEFT_AXES(-1), false);
    d = weft_sum(graph, weft_pow_scalar(graph, d, p), WEFT_AXES(-1), false);
    return weft_pow_scalar(graph, d, 1 / p);
}

weft_value weft_triplet_margin_loss(weft_graph *graph, weft_value anchor, weft_value positive,
                                    weft_value negative,
                                    const weft_triplet_margin_loss_options *options)
{
    static const weft_triplet_margin_loss_options defaults = {0};
    const weft_triplet_margin_loss_options *o = options ? options : &defaults;
    if (!is_good(graph, "triplet_margin_loss", o->p >= 0, "p must be positive", o->p) ||
        !same_shape(graph, "triplet_margin_loss", anchor, positive) ||
        !same_shape(graph, "triplet_margin_loss", anchor, negative))
        return WEFT_NO_VALUE;
    const double margin = weft_option(o->margin, 1);
    weft_value near = norm_of_difference(graph, anchor, positive, o);
    weft_value far = norm_of_difference(graph, anchor, negative, o);
    if (o->swap) far = weft_minimum(graph, far, norm_of_difference(graph, positive, negative, o));
    weft_value gap = weft_add_scalar(graph, weft_sub(graph, near, far), margin);
    return reduced(graph, weft_relu(graph, gap), o->reduction);
}

weft_value weft_ctc_loss(weft_graph *graph, weft_value log_probs, weft_value targets,
                         weft_value frames, weft_value lengths,
                         const weft_ctc_loss_options *options)
{
    static const weft_ctc_loss_options defaults = {0};
    const weft_ctc_loss_options *o = options ? options : &defaults;
    weft_value loss = weft_ctc(graph, log_probs, targets, frames, lengths, o->blank);
    if (!weft_is_value(loss)) return loss;
    const weft_dtype dtype = weft_dtype_of(graph, loss);
    if (o->zero_infinity) {
        weft_value infinite = weft_equal(graph, loss, weft_scalar(graph, dtype, INFINITY));
        loss = weft_masked_fill(graph, loss, infinite, 0);
    }
    if (o->reduction == WEFT_REDUCE_MEAN) {
        weft_value labels = weft_cast(graph, lengths, dtype);
        loss = weft_div(graph, loss, weft_maximum(graph, labels, weft_scalar(graph, dtype, 1)));
    }
    return reduced(graph, loss, o->reduction);
}
