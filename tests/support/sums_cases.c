/* Graphs of one op each, over sizes and layouts at which a sum in f32, one term after the other,
 * would be off by far more than the bound of the case. */
#include "sums_cases.h"

#include <math.h>

#define MANY 50000 /* terms */
/* The bounds of the header, in these units: of sums, of products over 2 MANY, of attention over
 * 16,000 keys or queries. */
#define SUM           150
#define PRODUCT_BOUND (768 + 2 * MANY / 768 + 1)
#define ATTENTION     (256 + 64 + 16000 / 64)
#define TERMS         4000 /* of add_n */
#define ADD_BOUND     (32 + TERMS / 32)
#define IMAGES        (768 + TERMS)    /* of weights of a convolution */
#define INDEX_BOUND   (32 + MANY / 32) /* of terms at one index */

static weft_value input(weft_graph *g, weft_dtype dtype, const char *name, weft_shape shape)
{
    return weft_input(g, name, dtype, shape);
}

static outcome plain(weft_value y)
{
    return (outcome){y, WEFT_NO_VALUE};
}

/* x of `shape` whose strides are not those of a dense tensor. */
typedef enum layout { DENSE, STRIDED, REPEATED } layout;

static weft_value laid_out(weft_graph *g, weft_dtype dtype, weft_shape shape, layout how)
{
    weft_shape wide = shape;
    switch (how) {
    case STRIDED: /* every second element of the last dimension */
        wide.dim[wide.rank - 1] *= 2;
        return weft_slice(g, input(g, dtype, "x", wide), -1, 0, WEFT_END, 2);
    case REPEATED: /* one element everywhere */
        for (int d = 0; d < wide.rank; d++) wide.dim[d] = 1;
        return weft_broadcast_to(g, input(g, dtype, "x", wide), shape);
    default:
        return input(g, dtype, "x", shape);
    }
}

/* ---- Reductions: over the last axis, the first, the middle, all ---- */

#define REDUCTION(op, place, shape_, axes, how)                                                    \
    static outcome op##_##place(weft_graph *g, weft_dtype d)                                       \
    {                                                                                              \
        return plain(weft_##op(g, laid_out(g, d, shape_, how), axes, false));                      \
    }
#define REDUCTIONS(op)                                                                             \
    REDUCTION(op, last, WEFT_SHAPE(3, MANY), WEFT_AXES(1), DENSE)                                  \
    REDUCTION(op, last_strided, WEFT_SHAPE(3, MANY), WEFT_AXES(1), STRIDED)                        \
    REDUCTION(op, last_repeated, WEFT_SHAPE(3, MANY), WEFT_AXES(1), REPEATED)                      \
    REDUCTION(op, short, WEFT_SHAPE(3, 4096), WEFT_AXES(1), DENSE)                                 \
    REDUCTION(op, short_repeated, WEFT_SHAPE(3, 4096), WEFT_AXES(1), REPEATED)                     \
    REDUCTION(op, first, WEFT_SHAPE(MANY, 5), WEFT_AXES(0), DENSE)                                 \
    REDUCTION(op, first_wide, WEFT_SHAPE(4000, 300), WEFT_AXES(0), DENSE)                          \
    REDUCTION(op, first_strided, WEFT_SHAPE(MANY, 5), WEFT_AXES(0), STRIDED)                       \
    REDUCTION(op, middle, WEFT_SHAPE(2, MANY, 7), WEFT_AXES(1), DENSE)                             \
    REDUCTION(op, outer, WEFT_SHAPE(200, 3, 400), WEFT_AXES(0, 2), DENSE)                          \
    REDUCTION(op, all, WEFT_SHAPE(300, 400), WEFT_ALL_AXES, DENSE)                                 \
    REDUCTION(op, all_strided, WEFT_SHAPE(300, 400), WEFT_ALL_AXES, STRIDED)

REDUCTIONS(sum)
REDUCTIONS(mean)
REDUCTIONS(logsumexp)
/* Of 0.1 everywhere it is 0: a thousandth of the squares' mean also counts as magnitude. */
static outcome variance_of(weft_graph *g, weft_value x, weft_axes axes)
{
    weft_value y = weft_variance(g, x, axes, false, 0);
    weft_value squares = weft_mean(g, weft_square(g, x), axes, false);
    return (outcome){y, weft_add(g, y, weft_mul_scalar(g, squares, 1e-3))};
}
static outcome variance_last(weft_graph *g, weft_dtype d)
{
    return variance_of(g, laid_out(g, d, WEFT_SHAPE(3, MANY), DENSE), WEFT_AXES(1));
}
static outcome variance_strided(weft_graph *g, weft_dtype d)
{
    return variance_of(g, laid_out(g, d, WEFT_SHAPE(3, MANY), STRIDED), WEFT_AXES(1));
}
static outcome variance_first(weft_graph *g, weft_dtype d)
{
    return variance_of(g, laid_out(g, d, WEFT_SHAPE(MANY, 5), DENSE), WEFT_AXES(0));
}
static outcome variance_repeated(weft_graph *g, weft_dtype d)
{
    return variance_of(g, laid_out(g, d, WEFT_SHAPE(3, MANY), REPEATED), WEFT_AXES(1));
}

static outcome sum_transposed(weft_graph *g, weft_dtype d)
{
    weft_value x = input(g, d, "x", WEFT_SHAPE(20, MANY));
    return plain(weft_sum(g, weft_transpose(g, x, 0, 1), WEFT_AXES(0), false));
}
static outcome sum_to(weft_graph *g, weft_dtype d)
{
    return plain(weft_sum_to(g, input(g, d, "x", WEFT_SHAPE(40, 300, 7)), WEFT_SHAPE(7)));
}
static outcome cumsum(weft_graph *g, weft_dtype d)
{
    return plain(weft_cumsum(g, input(g, d, "x", WEFT_SHAPE(2, MANY)), 1, false));
}
static outcome cumsum_first(weft_graph *g, weft_dtype d)
{
    return plain(weft_cumsum(g, input(g, d, "x", WEFT_SHAPE(MANY, 4)), 0, true));
}
static outcome global_norm(weft_graph *g, weft_dtype d)
{
    weft_value x[2] = {input(g, d, "x", WEFT_SHAPE(MANY)), input(g, d, "y", WEFT_SHAPE(9))};
    return plain(weft_global_norm(g, x, 2));
}
static outcome add_n(weft_graph *g, weft_dtype d)
{
    static weft_value terms[TERMS];
    weft_value x = input(g, d, "x", WEFT_SHAPE(300));
    for (int i = 0; i < TERMS; i++) terms[i] = x;
    return plain(weft_add_n(g, terms, TERMS));
}
static outcome embedding_grad(weft_graph *g, weft_dtype d)
{
    weft_value indices = weft_fill(g, WEFT_I32, WEFT_SHAPE(MANY), 1), dtable;
    weft_value table = input(g, d, "table", WEFT_SHAPE(3, 70));
    weft_value dy = input(g, d, "dy", WEFT_SHAPE(MANY, 70));
    weft_value y = weft_embedding(g, table, indices, -1);
    weft_grad_of(g, &y, &dy, 1, &table, 1, &dtable);
    return plain(dtable);
}
static outcome scatter_add(weft_graph *g, weft_dtype d)
{
    weft_value indices = weft_fill(g, WEFT_I32, WEFT_SHAPE(2, MANY, 3), 1);
    weft_value x = input(g, d, "x", WEFT_SHAPE(2, 4, 3));
    weft_value updates = input(g, d, "updates", WEFT_SHAPE(2, MANY, 3));
    return plain(weft_scatter_add(g, x, indices, updates, 1));
}
static outcome mse(weft_graph *g, weft_dtype d)
{
    weft_value x = input(g, d, "x", WEFT_SHAPE(MANY));
    return plain(weft_mse_loss(g, x, weft_mul_scalar(g, x, 3), WEFT_REDUCE_SUM));
}

/* ---- Softmax and its relatives ---- */

static outcome softmax_last(weft_graph *g, weft_dtype d)
{
    return plain(weft_softmax(g, input(g, d, "x", WEFT_SHAPE(2, MANY)), -1));
}
static outcome softmax_first(weft_graph *g, weft_dtype d)
{
    return plain(weft_softmax(g, input(g, d, "x", WEFT_SHAPE(MANY, 4)), 0));
}
static outcome softmax_strided(weft_graph *g, weft_dtype d)
{
    return plain(weft_softmax(g, laid_out(g, d, WEFT_SHAPE(3, MANY), STRIDED), -1));
}
static outcome log_softmax_last(weft_graph *g, weft_dtype d)
{
    return plain(weft_log_softmax(g, input(g, d, "x", WEFT_SHAPE(2, MANY)), -1));
}
static outcome log_softmax_first(weft_graph *g, weft_dtype d)
{
    return plain(weft_log_softmax(g, input(g, d, "x", WEFT_SHAPE(MANY, 4)), 0));
}

typedef weft_value along(weft_graph *g, weft_value x, int axis);

/* dx = y (dy - sum y dy), or dy - y sum dy: the two terms' magnitudes. */
static outcome softmax_grad_along(weft_graph *g, weft_dtype d, weft_shape shape, int axis,
                                  along *op)
{
    weft_value x = input(g, d, "x", shape), dy = input(g, d, "dy", shape), y = op(g, x, axis), dx;
    weft_grad_of(g, &y, &dy, 1, &x, 1, &dx);
    weft_value p = weft_softmax(g, x, axis), sum;
    if (op == weft_softmax) {
        sum = weft_sum(g, weft_mul(g, p, dy), WEFT_AXES(axis), true);
        return (outcome){dx, weft_mul(g, p, weft_add(g, dy, sum))};
    }
    sum = weft_sum(g, dy, WEFT_AXES(axis), true);
    return (outcome){dx, weft_add(g, dy, weft_mul(g, p, sum))};
}
static outcome softmax_grad_last(weft_graph *g, weft_dtype d)
{
    return softmax_grad_along(g, d, WEFT_SHAPE(2, MANY), 1, weft_softmax);
}
static outcome softmax_grad_first(weft_graph *g, weft_dtype d)
{
    return softmax_grad_along(g, d, WEFT_SHAPE(MANY, 4), 0, weft_softmax);
}
static outcome log_softmax_grad_last(weft_graph *g, weft_dtype d)
{
    return softmax_grad_along(g, d, WEFT_SHAPE(2, MANY), 1, weft_log_softmax);
}
static outcome log_softmax_grad_first(weft_graph *g, weft_dtype d)
{
    return softmax_grad_along(g, d, WEFT_SHAPE(MANY, 4), 0, weft_log_softmax);
}

static outcome cross_entropy_of(weft_graph *g, weft_dtype d, weft_shape shape, double smoothing,
                                bool gradient)
{
    weft_cross_entropy_loss_options o = {.ignore_index = -1, .label_smoothing = smoothing};
    weft_value x = input(g, d, "x", shape), dx;
    weft_value targets = weft_fill(g, WEFT_I32, WEFT_SHAPE(shape.dim[0]), 1);
    weft_value loss = weft_cross_entropy_loss(g, x, targets, &o);
    if (!gradient) return plain(loss);
    weft_grad(g, loss, &x, 1, &dx);
    return (outcome){dx, weft_fill(g, d, shape, 1.0 / (double)shape.dim[0])};
}
static outcome cross_entropy_classes(weft_graph *g, weft_dtype d)
{
    return cross_entropy_of(g, d, WEFT_SHAPE(3, MANY), 0, false);
}
static outcome cross_entropy_smooth(weft_graph *g, weft_dtype d)
{
    return cross_entropy_of(g, d, WEFT_SHAPE(3, MANY), 0.1, false);
}
static outcome cross_entropy_rows(weft_graph *g, weft_dtype d)
{
    return cross_entropy_of(g, d, WEFT_SHAPE(MANY, 3), 0, false);
}
static outcome cross_entropy_grad(weft_graph *g, weft_dtype d)
{
    return cross_entropy_of(g, d, WEFT_SHAPE(3, MANY), 0, true);
}

/* ---- Norms ---- */

static outcome rms_norm(weft_graph *g, weft_dtype d)
{
    return plain(weft_rms_norm(g, input(g, d, "x", WEFT_SHAPE(2, 2 * MANY)), WEFT_NO_VALUE, 1e-6));
}
/* (x - mean) rstd: of numbers in [0, 1). */
static outcome layer_norm(weft_graph *g, weft_dtype d)
{
    weft_value x = input(g, d, "x", WEFT_SHAPE(2, 2 * MANY));
    weft_value y = weft_layer_norm(g, x, WEFT_NO_VALUE, WEFT_NO_VALUE, 1);
    return (outcome){y, weft_add_scalar(g, weft_abs(g, y), 1)};
}
static outcome norm_grad(weft_graph *g, weft_dtype d, bool rms, weft_shape shape, int which)
{
    weft_value x = input(g, d, "x", shape), dy = input(g, d, "dy", shape), y, grads[2];
    weft_value gamma = input(g, d, "gamma", WEFT_SHAPE(shape.dim[1]));
    y = rms ? weft_rms_norm(g, x, gamma, 1) : weft_layer_norm(g, x, gamma, WEFT_NO_VALUE, 1);
    weft_grad_of(g, &y, &dy, 1, (weft_value[]){x, gamma}, 2, grads);
    if (which == 0) return (outcome){grads[0], weft_fill(g, d, shape, 0.3)};
    weft_value parts = weft_mul(g, dy, weft_div(g, weft_abs(g, y), gamma));
    return (outcome){grads[1], weft_sum(g, parts, WEFT_AXES(0), false)};
}
static outcome rms_norm_dx(weft_graph *g, weft_dtype d)
{
    return norm_grad(g, d, true, WEFT_SHAPE(2, 2 * MANY), 0);
}
static outcome rms_norm_dgamma(weft_graph *g, weft_dtype d)
{
    return norm_grad(g, d, true, WEFT_SHAPE(MANY, 5), 1);
}
static outcome layer_norm_dx(weft_graph *g, weft_dtype d)
{
    return norm_grad(g, d, false, WEFT_SHAPE(2, 2 * MANY), 0);
}
static outcome layer_norm_dbeta(weft_graph *g, weft_dtype d)
{
    weft_shape shape = WEFT_SHAPE(MANY, 5);
    weft_value x = input(g, d, "x", shape), dy = input(g, d, "dy", shape), dbeta;
    weft_value beta = input(g, d, "beta", WEFT_SHAPE(5));
    weft_value y = weft_layer_norm(g, x, WEFT_NO_VALUE, beta, 1);
    weft_grad_of(g, &y, &dy, 1, &beta, 1, &dbeta);
    return plain(dbeta);
}

/* ---- Products ---- */

#define PRODUCT(name, m, n, a_turned, b_turned)                                                    \
    static outcome matmul_##name(weft_graph *g, weft_dtype d)                                      \
    {                                                                                              \
        const int64_t k = 2 * MANY;                                                                \
        weft_value a = input(g, d, "a", a_turned ? WEFT_SHAPE(k, m) : WEFT_SHAPE(m, k));           \
        weft_value b = input(g, d, "b", b_turned ? WEFT_SHAPE(n, k) : WEFT_SHAPE(k, n));           \
        if (a_turned) a = weft_transpose(g, a, 0, 1);                                              \
        if (b_turned) b = weft_transpose(g, b, 0, 1);                                              \
        return plain(weft_matmul(g, a, b));                                                        \
    }
PRODUCT(small, 3, 5, false, false)
PRODUCT(wide, 3, 64, false, false)
PRODUCT(tall, 60, 5, false, false)
PRODUCT(square, 60, 70, false, false)
PRODUCT(dots, 3, 5, false, true)
PRODUCT(left, 60, 5, true, false)
static outcome matmul_shared(weft_graph *g, weft_dtype d)
{
    return plain(weft_matmul_shared(g, input(g, d, "a", WEFT_SHAPE(5, 2 * MANY)),
                                    input(g, d, "b", WEFT_SHAPE(2 * MANY, 40))));
}
static outcome einsum(weft_graph *g, weft_dtype d)
{
    return plain(weft_einsum(g, "abc,abd->cd", input(g, d, "a", WEFT_SHAPE(300, 300, 3)),
                             input(g, d, "b", WEFT_SHAPE(300, 300, 4))));
}

/* ---- Attention: v, and so the result, is positive ---- */

static outcome sdpa_of(weft_graph *g, weft_dtype d, int64_t queries, int64_t keys, int64_t dim,
                       int which)
{
    weft_value q = input(g, d, "q", WEFT_SHAPE(1, queries, 1, dim)), grads[3];
    weft_value k = input(g, d, "k", WEFT_SHAPE(1, keys, 1, dim));
    weft_value v = input(g, d, "v", WEFT_SHAPE(1, keys, 1, 3));
    weft_value y = weft_sdpa(g, q, k, v, NULL);
    if (which == 0) return plain(y);
    weft_value dy = input(g, d, "dy", weft_shape_of(g, y));
    weft_grad_of(g, &y, &dy, 1, (weft_value[]){q, k, v}, 3, grads);
    if (which == 3) return plain(grads[2]);
    return (outcome){grads[which - 1], weft_fill(g, d, weft_shape_of(g, grads[which - 1]),
                                                 which == 1 ? 1 : (double)queries / (double)keys)};
}
static outcome sdpa_keys(weft_graph *g, weft_dtype d)
{
    return sdpa_of(g, d, 70, 16000, 4, 0);
}
static outcome sdpa_dim(weft_graph *g, weft_dtype d)
{
    return sdpa_of(g, d, 3, 5, 20000, 0);
}
static outcome sdpa_dq(weft_graph *g, weft_dtype d)
{
    return sdpa_of(g, d, 70, 16000, 4, 1);
}
static outcome sdpa_dk(weft_graph *g, weft_dtype d)
{
    return sdpa_of(g, d, 16000, 70, 4, 2);
}
static outcome sdpa_dv(weft_graph *g, weft_dtype d)
{
    return sdpa_of(g, d, 16000, 70, 4, 3);
}

/* ---- Convolution: over channels, taps, channels of dy; pixels and images ---- */

static outcome conv_of(weft_graph *g, weft_dtype d, weft_shape image, weft_shape kernel,
                       int64_t groups, int gradient)
{
    weft_value in[3] = {input(g, d, "x", image), input(g, d, "w", kernel)}, grads[2];
    weft_value y =
        weft_conv(g, in[0], in[1], WEFT_NO_VALUE, &(weft_conv_options){.groups = groups});
    if (gradient == 0) return plain(y);
    in[2] = input(g, d, "dy", weft_shape_of(g, y));
    weft_grad_of(g, &y, &in[2], 1, in, 2, grads);
    return plain(grads[gradient - 1]);
}
static outcome conv_channels(weft_graph *g, weft_dtype d)
{
    return conv_of(g, d, WEFT_SHAPE(2, MANY, 5), WEFT_SHAPE(3, MANY, 2), 1, 0);
}
static outcome conv_planes(weft_graph *g, weft_dtype d)
{
    return conv_of(g, d, WEFT_SHAPE(1, 2, MANY + 3), WEFT_SHAPE(2, 1, MANY), 2, 0);
}
static outcome conv_dx(weft_graph *g, weft_dtype d)
{
    return conv_of(g, d, WEFT_SHAPE(2, 3, 6), WEFT_SHAPE(MANY, 3, 2), 1, 1);
}
static outcome conv_dw_pixels(weft_graph *g, weft_dtype d)
{
    return conv_of(g, d, WEFT_SHAPE(2, 2, MANY), WEFT_SHAPE(3, 2, 3), 1, 2);
}
static outcome conv_dw_images(weft_graph *g, weft_dtype d)
{
    return conv_of(g, d, WEFT_SHAPE(TERMS, 2, 9), WEFT_SHAPE(3, 2, 3), 1, 2);
}
static outcome conv_dw_planes(weft_graph *g, weft_dtype d)
{
    return conv_of(g, d, WEFT_SHAPE(2, 2, 200, 250), WEFT_SHAPE(2, 1, 3, 3), 2, 2);
}

/* ---- The table ---- */

#define REDUCTION_ROWS(X, op, bound)                                                               \
    X(op##_last, bound)                                                                            \
    X(op##_last_strided, bound)                                                                    \
    X(op##_last_repeated, bound)                                                                   \
    X(op##_short, bound)                                                                           \
    X(op##_short_repeated, bound)                                                                  \
    X(op##_first, bound)                                                                           \
    X(op##_first_wide, bound)                                                                      \
    X(op##_first_strided, bound)                                                                   \
    X(op##_middle, bound)                                                                          \
    X(op##_outer, bound)                                                                           \
    X(op##_all, bound)                                                                             \
    X(op##_all_strided, bound)
#define CASES(X)                                                                                   \
    REDUCTION_ROWS(X, sum, SUM)                                                                    \
    REDUCTION_ROWS(X, mean, SUM)                                                                   \
    X(variance_last, SUM)                                                                          \
    X(variance_strided, SUM)                                                                       \
    X(variance_first, SUM)                                                                         \
    X(variance_repeated, SUM)                                                                      \
    REDUCTION_ROWS(X, logsumexp, SUM)                                                              \
    X(sum_transposed, SUM)                                                                         \
    X(sum_to, SUM)                                                                                 \
    X(cumsum, SUM)                                                                                 \
    X(cumsum_first, SUM)                                                                           \
    X(global_norm, SUM)                                                                            \
    X(add_n, ADD_BOUND)                                                                            \
    X(embedding_grad, INDEX_BOUND)                                                                 \
    X(scatter_add, INDEX_BOUND)                                                                    \
    X(mse, SUM)                                                                                    \
    X(softmax_last, SUM)                                                                           \
    X(softmax_first, SUM)                                                                          \
    X(softmax_strided, SUM)                                                                        \
    X(log_softmax_last, SUM)                                                                       \
    X(log_softmax_first, SUM)                                                                      \
    X(softmax_grad_last, SUM)                                                                      \
    X(softmax_grad_first, SUM)                                                                     \
    X(log_softmax_grad_last, SUM)                                                                  \
    X(log_softmax_grad_first, SUM)                                                                 \
    X(cross_entropy_classes, SUM)                                                                  \
    X(cross_entropy_smooth, SUM)                                                                   \
    X(cross_entropy_rows, SUM)                                                                     \
    X(cross_entropy_grad, SUM)                                                                     \
    X(rms_norm, SUM)                                                                               \
    X(layer_norm, SUM)                                                                             \
    X(rms_norm_dx, SUM)                                                                            \
    X(rms_norm_dgamma, SUM)                                                                        \
    X(layer_norm_dx, SUM)                                                                          \
    X(layer_norm_dbeta, SUM)                                                                       \
    X(matmul_small, PRODUCT_BOUND)                                                                 \
    X(matmul_wide, PRODUCT_BOUND)                                                                  \
    X(matmul_tall, PRODUCT_BOUND)                                                                  \
    X(matmul_square, PRODUCT_BOUND)                                                                \
    X(matmul_dots, PRODUCT_BOUND)                                                                  \
    X(matmul_left, PRODUCT_BOUND)                                                                  \
    X(matmul_shared, PRODUCT_BOUND)                                                                \
    X(einsum, PRODUCT_BOUND)                                                                       \
    X(conv_channels, PRODUCT_BOUND)                                                                \
    X(conv_planes, PRODUCT_BOUND)                                                                  \
    X(conv_dx, PRODUCT_BOUND)                                                                      \
    X(conv_dw_pixels, PRODUCT_BOUND)                                                               \
    X(conv_dw_images, IMAGES)                                                                      \
    X(conv_dw_planes, PRODUCT_BOUND)                                                               \
    X(sdpa_keys, ATTENTION)                                                                        \
    X(sdpa_dim, SUM)                                                                               \
    X(sdpa_dq, ATTENTION)                                                                          \
    X(sdpa_dk, ATTENTION)                                                                          \
    X(sdpa_dv, ATTENTION)

#define CASE_ROW(name, bound) {#name, name, bound},
const sums_case sums_cases[] = {CASES(CASE_ROW)};
const size_t sums_n_cases = sizeof sums_cases / sizeof *sums_cases;
