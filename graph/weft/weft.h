/* weft/weft.h - the core of weft on one page.
 *
 * A program declares tensors and operations in a graph; nothing is computed yet. Gradients and
 * updates are further nodes of the graph. A plan says how to compute the values that the program
 * wants, and a session runs it on the parameters of a store, as often as needed:
 *
 *     weft_graph -> weft_grad, weft_train_update -> weft_plan -> weft_session: feed, run, fetch
 *
 * Errors: weft never aborts, exits or prints. A function that adds to a graph and fails records the
 * error in the graph and returns WEFT_NO_VALUE, and so does every later call on that graph: one
 * look at weft_graph_error, or at the result of weft_plan_new, is enough. The other functions
 * return a weft_status or NULL, and fill *error, which may be NULL.
 *
 * Options: a pointer to a struct of options may be NULL, and a zero field means its default.
 *
 * Ownership: who creates an object with _new frees it with _free, which accepts NULL. Names and
 * data that are passed in are copied unless a comment says otherwise.
 *
 * <weft/types.h> has dtypes, shapes (WEFT_SHAPE(2, 3), WEFT_SCALAR), values, axes (WEFT_AXES(0, 1))
 * and errors. More of this library:
 *
 *     <weft/graph.h>     parts of parameters, running averages, properties of values
 *     <weft/ops.h>       accuracy; products of few bits, convolutions, pooling, resizing, sorting,
 *                        random numbers, caches, single updates
 *     <weft/losses.h>    more losses                 <weft/quantize.h>  8 and 4 bits
 *     <weft/autograd.h>  several outputs, checks     <weft/store.h>     parameters, their files
 *     <weft/plan.h>      options, statistics, steps  <weft/session.h>   threads, watches, profiles
 *     <weft/op.h>        writing an op               <weft/pass.h>      writing a pass
 *     <weft/parallel.h>  several processes           <weft/measure.h>   rates of this machine
 *     <weft/kernel.h>    writing a kernel            <weft/log.h>       what weft decides
 *     <weft/transform.h>  forward mode, Hessians    <weft/scan.h>      loops
 *     <weft/safetensors.h>  files tensor by tensor   <weft/export.h>    an op as nodes of ONNX
 *
 * The other libraries have <weft/inspect.h>, <weft/text.h>, <weft/models.h>, <weft/train.h>,
 * <weft/fit.h>, <weft/decode.h>, <weft/distributed.h>, <weft/mpi.h> and <weft/formats.h>. */
#ifndef WEFT_H
#define WEFT_H

#include <weft/types.h>
#include <weft/version.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The graph ------------------------------------------------------------------------------ */

typedef struct weft_graph weft_graph;

/* An empty graph; NULL if out of memory. Freeing it invalidates its values, names and error. */
WEFT_API weft_graph *weft_graph_new(void);
WEFT_API void weft_graph_free(weft_graph *graph);
/* The first error of the graph, with status WEFT_OK if there is none. */
WEFT_API const weft_error *weft_graph_error(const weft_graph *graph);

/* Inside the scopes "enc" and "0" (printf's format), NAME becomes `enc.0.NAME`: in errors, pictures
 * and profiles, and in files of parameters. */
WEFT_API void weft_graph_push_scope(weft_graph *graph, const char *format, ...) WEFT_PRINTF(2, 3);
WEFT_API void weft_graph_pop_scope(weft_graph *graph);

/* A tensor that the program feeds. It keeps its contents from run to run. */
WEFT_API weft_value weft_input(weft_graph *graph, const char *name, weft_dtype dtype,
                               weft_shape shape);
/* A trainable tensor, which the store holds under its scoped name. Declaring a scoped name twice is
 * WEFT_BAD_ARGUMENT, unless weft_graph_share (<weft/graph.h>) is on. */
WEFT_API weft_value weft_param(weft_graph *graph, const char *name, weft_dtype dtype,
                               weft_shape shape, weft_init init);
/* A tensor of the store that is not trained: a running statistic, a counter, a cache. */
WEFT_API weft_value weft_state(weft_graph *graph, const char *name, weft_dtype dtype,
                               weft_shape shape, weft_init init);
/* Constants: contiguous row-major `data`; the same number everywhere; a scalar; start + i step for
 * i = 0 .. count-1. */
WEFT_API weft_value weft_constant(weft_graph *graph, weft_dtype dtype, weft_shape shape,
                                  const void *data);
WEFT_API weft_value weft_fill(weft_graph *graph, weft_dtype dtype, weft_shape shape, double value);
WEFT_API weft_value weft_scalar(weft_graph *graph, weft_dtype dtype, double value);
WEFT_API weft_value weft_arange(weft_graph *graph, weft_dtype dtype, int64_t count, double start,
                                double step);

/* Names a value inside the current scope, and returns it. A value has one name, and a name one
 * value. */
WEFT_API weft_value weft_name(weft_graph *graph, weft_value value, const char *name);
/* The value of a scoped name; WEFT_NO_VALUE if there is none. */
WEFT_API weft_value weft_graph_find(const weft_graph *graph, const char *scoped_name);
/* The shape, one dimension of it (a negative axis counts from the end), and the dtype of a value.
 * For WEFT_NO_VALUE: rank 0, 0, WEFT_F32. */
WEFT_API weft_shape weft_shape_of(const weft_graph *graph, weft_value value);
WEFT_API int64_t weft_dim_of(const weft_graph *graph, weft_value value, int axis);
WEFT_API weft_dtype weft_dtype_of(const weft_graph *graph, weft_value value);

/* ---- Operations -----------------------------------------------------------------------------
 *
 * Each adds a node to the graph and returns its value. Unless a comment says otherwise, x, a and b
 * are f32 or f64 of one dtype, of any shape and layout, and so is the result; two operands
 * broadcast as in NumPy; a negative axis counts from the end; NaN yields NaN. A shape that does not
 * fit is WEFT_BAD_SHAPE, a dtype WEFT_BAD_DTYPE, another number WEFT_BAD_ARGUMENT. All results have
 * the same bits at any number of threads and with every instruction set. <weft/ops.h> says more,
 * also about accuracy. */

/* Elementwise, of one operand. */
WEFT_API weft_value weft_neg(weft_graph *graph, weft_value x);    /* -x */
WEFT_API weft_value weft_abs(weft_graph *graph, weft_value x);    /* |x|; gradient 0 at 0, NaN */
WEFT_API weft_value weft_sign(weft_graph *graph, weft_value x);   /* -1, 0 or 1; 0 of NaN */
WEFT_API weft_value weft_floor(weft_graph *graph, weft_value x);  /* largest integer <= x */
WEFT_API weft_value weft_ceil(weft_graph *graph, weft_value x);   /* smallest integer >= x */
WEFT_API weft_value weft_round(weft_graph *graph, weft_value x);  /* ties to even */
WEFT_API weft_value weft_exp(weft_graph *graph, weft_value x);    /* e^x */
WEFT_API weft_value weft_log(weft_graph *graph, weft_value x);    /* ln x */
WEFT_API weft_value weft_expm1(weft_graph *graph, weft_value x);  /* e^x - 1, within 2 ulp */
WEFT_API weft_value weft_log1p(weft_graph *graph, weft_value x);  /* ln(1 + x), 1.5 ulp */
WEFT_API weft_value weft_sqrt(weft_graph *graph, weft_value x);   /* x^(1/2) */
WEFT_API weft_value weft_rsqrt(weft_graph *graph, weft_value x);  /* x^(-1/2) */
WEFT_API weft_value weft_square(weft_graph *graph, weft_value x); /* x^2 */
WEFT_API weft_value weft_reciprocal(weft_graph *graph, weft_value x); /* 1 / x */
WEFT_API weft_value weft_sin(weft_graph *graph, weft_value x);        /* of radians */
WEFT_API weft_value weft_cos(weft_graph *graph, weft_value x);        /* of radians */
WEFT_API weft_value weft_atan(weft_graph *graph, weft_value x);       /* radians */
WEFT_API weft_value weft_erf(weft_graph *graph, weft_value x); /* 2/sqrt(pi) int_0^x e^-t^2 dt */
WEFT_API weft_value weft_tanh(weft_graph *graph, weft_value x);
WEFT_API weft_value weft_sigmoid(weft_graph *graph, weft_value x);  /* 1 / (1 + e^-x) */
WEFT_API weft_value weft_softplus(weft_graph *graph, weft_value x); /* ln(1 + e^x) */
WEFT_API weft_value weft_silu(weft_graph *graph, weft_value x);     /* x sigmoid(x) */
/* max(x, 0). The gradient is 0 at 0, and passes at NaN. */
WEFT_API weft_value weft_relu(weft_graph *graph, weft_value x);
/* x > 0 ? x : slope x */
WEFT_API weft_value weft_leaky_relu(weft_graph *graph, weft_value x, double slope);
/* x (1 + erf(x / sqrt 2)) / 2, and x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 (Hendrycks &
 * Gimpel 2016). At -inf gelu is 0, its limit; gelu_tanh and silu are NaN there, and so are the
 * gradients of all three at both infinities. */
WEFT_API weft_value weft_gelu(weft_graph *graph, weft_value x);
WEFT_API weft_value weft_gelu_tanh(weft_graph *graph, weft_value x);
/* min(max(x, low), high), low <= high. The gradient passes where low <= x <= high, else it is 0. */
WEFT_API weft_value weft_clamp(weft_graph *graph, weft_value x, double low, double high);
/* x factor, x + addend, x^exponent. */
WEFT_API weft_value weft_mul_scalar(weft_graph *graph, weft_value x, double factor);
WEFT_API weft_value weft_add_scalar(weft_graph *graph, weft_value x, double addend);
WEFT_API weft_value weft_pow_scalar(weft_graph *graph, weft_value x, double exponent);
/* Any dtype as any other. To i32: towards zero, saturating, NaN becomes 0; to bool: x != 0. The
 * gradient passes between floating types only. */
WEFT_API weft_value weft_cast(weft_graph *graph, weft_value x, weft_dtype dtype);
/* x, where each element is 0 with probability p in [0, 1), and the others are multiplied by
 * 1 / (1 - p) (Srivastava et al. 2014). The seed and number of the run choose the elements. */
WEFT_API weft_value weft_dropout(weft_graph *graph, weft_value x, double p);

/* Elementwise, of two operands or more. */
WEFT_API weft_value weft_add(weft_graph *graph, weft_value a, weft_value b); /* a + b */
WEFT_API weft_value weft_sub(weft_graph *graph, weft_value a, weft_value b); /* a - b */
WEFT_API weft_value weft_mul(weft_graph *graph, weft_value a, weft_value b); /* a b */
WEFT_API weft_value weft_div(weft_graph *graph, weft_value a, weft_value b); /* a / b */
WEFT_API weft_value weft_pow(weft_graph *graph, weft_value a, weft_value b); /* a^b, a > 0 */
/* The larger and the smaller operand, NaN if either is NaN. At a tie each operand gets half of the
 * gradient; if either is NaN, both get all of it. */
WEFT_API weft_value weft_maximum(weft_graph *graph, weft_value a, weft_value b);
WEFT_API weft_value weft_minimum(weft_graph *graph, weft_value a, weft_value b);
/* The sum of n >= 1 values of one shape, added in this order. */
WEFT_API weft_value weft_add_n(weft_graph *graph, const weft_value *x, size_t n);
/* Comparisons of f32, f64 or i32 (equal and not_equal: also of bool) return bool, and logic takes
 * and returns bool. With a NaN not_equal is true, and the others are false. No gradient. */
WEFT_API weft_value weft_equal(weft_graph *graph, weft_value a, weft_value b);         /* a == b */
WEFT_API weft_value weft_not_equal(weft_graph *graph, weft_value a, weft_value b);     /* a != b */
WEFT_API weft_value weft_less(weft_graph *graph, weft_value a, weft_value b);          /* a < b */
WEFT_API weft_value weft_less_equal(weft_graph *graph, weft_value a, weft_value b);    /* a <= b */
WEFT_API weft_value weft_greater(weft_graph *graph, weft_value a, weft_value b);       /* a > b */
WEFT_API weft_value weft_greater_equal(weft_graph *graph, weft_value a, weft_value b); /* a >= b */
WEFT_API weft_value weft_logical_and(weft_graph *graph, weft_value a, weft_value b);
WEFT_API weft_value weft_logical_or(weft_graph *graph, weft_value a, weft_value b);
WEFT_API weft_value weft_logical_not(weft_graph *graph, weft_value a);
/* condition (bool) ? a : b, of any dtype. The three broadcast together. */
WEFT_API weft_value weft_where(weft_graph *graph, weft_value condition, weft_value a, weft_value b);
/* mask (bool, broadcasts to the shape of x) ? value : x, of any dtype. */
WEFT_API weft_value weft_masked_fill(weft_graph *graph, weft_value x, weft_value mask,
                                     double value);

/* Reductions over the given axes (WEFT_ALL_AXES: to a scalar); with `keepdims` the axes stay, of
 * size 1. Over no elements: sum 0, prod 1, max -inf, min inf, logsumexp -inf, the others NaN. */
WEFT_API weft_value weft_sum(weft_graph *graph, weft_value x, weft_axes axes, bool keepdims);
WEFT_API weft_value weft_mean(weft_graph *graph, weft_value x, weft_axes axes, bool keepdims);
/* Multiplied in f64. The gradient is exact where elements are 0. */
WEFT_API weft_value weft_prod(weft_graph *graph, weft_value x, weft_axes axes, bool keepdims);
/* The largest and the smallest element. Ties share the gradient evenly. */
WEFT_API weft_value weft_max(weft_graph *graph, weft_value x, weft_axes axes, bool keepdims);
WEFT_API weft_value weft_min(weft_graph *graph, weft_value x, weft_axes axes, bool keepdims);
/* sum (x - mean)^2 / max(n - correction, 0), with correction 0 (population) or 1 (sample); inf or
 * NaN where n is at most the correction. */
WEFT_API weft_value weft_variance(weft_graph *graph, weft_value x, weft_axes axes, bool keepdims,
                                  int correction);
/* ln sum e^x, which cannot overflow. Where every x is -inf: -inf, and a gradient of zero. */
WEFT_API weft_value weft_logsumexp(weft_graph *graph, weft_value x, weft_axes axes, bool keepdims);
/* i32: the index of the first largest or smallest element along an axis; of the first NaN if there
 * is one. */
WEFT_API weft_value weft_argmax(weft_graph *graph, weft_value x, int axis, bool keepdims);
WEFT_API weft_value weft_argmin(weft_graph *graph, weft_value x, int axis, bool keepdims);
/* y[i] = x[0] + ... + x[i] along an axis; `reverse`: from the end. */
WEFT_API weft_value weft_cumsum(weft_graph *graph, weft_value x, int axis, bool reverse);

/* a [..., m, k] times b [..., k, n]: [..., m, n]. Leading dimensions broadcast; a transposed
 * operand costs nothing. */
WEFT_API weft_value weft_matmul(weft_graph *graph, weft_value a, weft_value b);
/* Einstein summation of two operands in NumPy's notation, without ellipsis and without a letter
 * twice in one operand: "nqhd,nkhd->nhqk". */
WEFT_API weft_value weft_einsum(weft_graph *graph, const char *subscripts, weft_value a,
                                weft_value b);

/* e^x / sum e^x along an axis. Where every element is -inf, result and gradient are zero. */
WEFT_API weft_value weft_softmax(weft_graph *graph, weft_value x, int axis);
/* x - ln sum e^x along an axis. */
WEFT_API weft_value weft_log_softmax(weft_graph *graph, weft_value x, int axis);
/* (x - mean) / sqrt(variance + eps) gamma + beta over the last dimension (Ba et al. 2016), with the
 * population variance; gamma and beta are [features] or WEFT_NO_VALUE. */
WEFT_API weft_value weft_layer_norm(weft_graph *graph, weft_value x, weft_value gamma,
                                    weft_value beta, double eps);
/* x / sqrt(mean x^2 + eps) gamma over the last dimension (Zhang & Sennrich 2019). */
WEFT_API weft_value weft_rms_norm(weft_graph *graph, weft_value x, weft_value gamma, double eps);

typedef struct weft_sdpa_options {
    double scale;    /* of the scores; 0: 1 / sqrt(head_dim) */
    double dropout;  /* of the weights, as weft_dropout; in [0, 1) */
    bool causal;     /* query i attends to keys j <= i + key_len - query_len */
    weft_value mask; /* bool, broadcasts to [batch, heads, query_len, key_len]: true where attention
                        is masked out; or WEFT_NO_VALUE */
    int64_t window;  /* query i attends to no key j <= i + key_len - query_len - window; 0: no such
                        limit. With `causal`, time is O(query_len window) */
} weft_sdpa_options;
/* Attention, softmax(scale q k^T) v for each head (Vaswani et al. 2017), without storing the
 * scores. q [batch, query_len, heads, head_dim], k [batch, key_len, kv_heads, head_dim] and v
 * [batch, key_len, kv_heads, value_dim]: [batch, query_len, heads, value_dim]. kv_heads divides
 * heads; head h of the queries reads head h kv_heads / heads of keys and values. `options` may be
 * NULL.
 *
 * A query that attends to no key gets zeros, as result and as gradient. For any other query the
 * masked keys must be finite too: a NaN or an infinity in their v may reach its result, and one in
 * their k its gradient. k and v may be rows of weft_narrow_rows (<weft/ops.h>) if q is f32. */
WEFT_API weft_value weft_sdpa(weft_graph *graph, weft_value q, weft_value k, weft_value v,
                              const weft_sdpa_options *options);
/* Bool: true where column <= row + diagonal. Bool: true where `causal` masks attention out. */
WEFT_API weft_value weft_tril_mask(weft_graph *graph, int64_t rows, int64_t columns,
                                   int64_t diagonal);
WEFT_API weft_value weft_causal_mask(weft_graph *graph, int64_t query_len, int64_t key_len);

/* Shapes, of any dtype: views where the layout allows them.
 *
 * The same elements in row-major order; one dimension may be -1 and follows from the others. */
WEFT_API weft_value weft_reshape(weft_graph *graph, weft_value x, weft_shape shape);
/* Dimension i of the result is dimension axes[i] of x. */
WEFT_API weft_value weft_permute(weft_graph *graph, weft_value x, weft_axes axes);
WEFT_API weft_value weft_transpose(weft_graph *graph, weft_value x, int axis_a, int axis_b);
/* x[begin : end : step] along an axis as in Python; WEFT_END is its absent bound. */
#define WEFT_END INT64_MAX
WEFT_API weft_value weft_slice(weft_graph *graph, weft_value x, int axis, int64_t begin,
                               int64_t end, int64_t step);
WEFT_API weft_value weft_flip(weft_graph *graph, weft_value x, int axis);
WEFT_API weft_value weft_broadcast_to(weft_graph *graph, weft_value x, weft_shape shape);
WEFT_API weft_value weft_expand_dims(weft_graph *graph, weft_value x, int axis);
WEFT_API weft_value weft_squeeze(weft_graph *graph, weft_value x, int axis);
/* Consecutive pieces of the given sizes, which add up to the dimension; or `count` equal ones. They
 * fill pieces[count]. */
WEFT_API void weft_split(weft_graph *graph, weft_value x, int axis, const int64_t *sizes,
                         size_t count, weft_value *pieces);
WEFT_API void weft_chunk(weft_graph *graph, weft_value x, int axis, size_t count,
                         weft_value *pieces);
/* Joins n values along an axis, or along a new one. */
WEFT_API weft_value weft_concat(weft_graph *graph, const weft_value *x, size_t n, int axis);
WEFT_API weft_value weft_stack(weft_graph *graph, const weft_value *x, size_t n, int axis);
/* Adds before[i] and after[i] elements of `value` around dimension i, for every dimension. */
WEFT_API weft_value weft_pad(weft_graph *graph, weft_value x, const int64_t *before,
                             const int64_t *after, double value);

/* Indices are i32. One that is out of range ends the run with WEFT_BAD_INDEX, unless said
 * otherwise.
 *
 * Rows of a table [rows, features] at indices [...]: [..., features]. Row padding_index gets no
 * gradient (-1: all rows do). Gradients of equal indices add up in a fixed order. */
WEFT_API weft_value weft_embedding(weft_graph *graph, weft_value table, weft_value indices,
                                   int64_t padding_index);
/* y[.., i, ..] = x[.., indices[.., i, ..], ..] along an axis, of any dtype; `indices` has the shape
 * of x outside of the axis. */
WEFT_API weft_value weft_gather(weft_graph *graph, weft_value x, weft_value indices, int axis);
/* A copy of x with y[.., indices[.., i, ..], ..] += updates[.., i, ..], which add up in order. */
WEFT_API weft_value weft_scatter_add(weft_graph *graph, weft_value x, weft_value indices,
                                     weft_value updates, int axis);
/* indices [...]: [..., classes], 1 at the index, else 0; all zeros for an index out of range. */
WEFT_API weft_value weft_one_hot(weft_graph *graph, weft_value indices, int64_t classes,
                                 weft_dtype dtype);

/* ---- Losses --------------------------------------------------------------------------------- */

typedef enum weft_reduction {
    WEFT_REDUCE_MEAN,
    WEFT_REDUCE_SUM,
    WEFT_REDUCE_NONE /* one loss for each element, row or sequence */
} weft_reduction;

/* (a - b)^2 of two values of one shape. */
WEFT_API weft_value weft_mse_loss(weft_graph *graph, weft_value a, weft_value b,
                                  weft_reduction reduction);
/* max(x, 0) - x t + ln(1 + e^-|x|) of a logit x and its target t in [0, 1]. */
WEFT_API weft_value weft_bce_with_logits_loss(weft_graph *graph, weft_value logits,
                                              weft_value targets, weft_reduction reduction);
typedef struct weft_cross_entropy_loss_options {
    int64_t ignore_index;     /* targets of this value are ignored if has_ignore_index is set;
                                 without it no target is, and this must not be above 0 */
    double label_smoothing;   /* e: target (1-e) one_hot + e/classes (Szegedy et al. 2016) */
    weft_reduction reduction; /* mean: over the targets that are not ignored (none: 0) */
    bool has_ignore_index;
} weft_cross_entropy_loss_options;
/* -ln softmax(logits)[target], in nats, of logits [..., classes] and targets i32 [...]: a scalar,
 * or [...] with WEFT_REDUCE_NONE. A row with a NaN has a loss and a gradient of NaN; a row of -inf
 * has an infinite loss and a gradient of 0; an ignored one has 0 and 0. Any other target outside of
 * [0, classes) ends the run with WEFT_BAD_INDEX. */
WEFT_API weft_value weft_cross_entropy_loss(weft_graph *graph, weft_value logits,
                                            weft_value targets,
                                            const weft_cross_entropy_loss_options *options);

/* ---- Gradients and training ----------------------------------------------------------------- */

/* Sets grads[i] to d loss / d wrt[i], of the shape and dtype of wrt[i]; zeros where the loss does
 * not depend on it. The loss is a scalar of f32 or f64. Gradients can be differentiated again. */
WEFT_API void weft_grad(weft_graph *graph, weft_value loss, const weft_value *wrt, size_t n,
                        weft_value *grads);

typedef enum weft_optimizer_kind {
    WEFT_SGD,
    WEFT_ADAM,
    WEFT_ADAMW,
    WEFT_ADAGRAD,
    WEFT_RMSPROP,
    WEFT_LAMB
} weft_optimizer_kind;

/* SGD with momentum (Sutskever et al. 2013), of a gradient `grad` that was multiplied by `scale` to
 * clip its norm:
 *
 *     g = scale grad + weight_decay param
 *     buf = momentum buf + (1 - dampening) g
 *     param -= lr (nesterov ? g + momentum buf : buf) */
typedef struct weft_sgd_options {
    double momentum, weight_decay; /* not negative */
    bool nesterov;
    int64_t first;    /* for weft_sgd_update (<weft/ops.h>) only: where the piece begins */
    double dampening; /* in [0, 1); without momentum it has no effect. It applies to the first
                         gradient as well, while torch.optim.SGD begins with buf = g */
} weft_sgd_options;
/* Adam (Kingma & Ba 2015), in update t = 1, 2, ...:
 *
 *     g = scale grad + weight_decay param
 *     m = beta1 m + (1 - beta1) g
 *     v = beta2 v + (1 - beta2) g^2
 *     param -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
 *
 * AdamW (`decoupled`; Loshchilov & Hutter 2019) has g = scale grad, and first
 * param -= lr weight_decay param. */
typedef struct weft_adam_options {
    double beta1;        /* in [0, 1); 0: 0.9; WEFT_ZERO: 0 */
    double beta2;        /* in [0, 1); 0: 0.98; WEFT_ZERO: 0 */
    double eps;          /* not negative; 0: 1e-9; WEFT_ZERO: 0 */
    double weight_decay; /* not negative */
    bool decoupled;      /* set by the optimiser's kind */
    int64_t first;       /* for weft_adam_update only, as in weft_sgd_options */
} weft_adam_options;
/* Adagrad (Duchi et al. 2011), with g as in Adam:
 *
 *     v += g^2;  param -= lr g / (sqrt(v) + eps)
 *
 * RMSprop (Tieleman & Hinton 2012), `centered` with sqrt(v - m^2) (Graves 2013):
 *
 *     v = alpha v + (1 - alpha) g^2;  m = alpha m + (1 - alpha) g
 *     buf = momentum buf + g / (sqrt(v) + eps);  param -= lr buf
 *
 * LAMB (You et al. 2019) has the moments of Adam, of scale grad, and for each whole parameter a
 * trust ratio |param| / |d|, which is 1 if one of the norms is 0:
 *
 *     d = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay param
 *     param -= lr (|param| / |d|) d */
typedef struct weft_rms_options {
    double alpha;        /* RMSprop: in [0, 1); 0: 0.99; WEFT_ZERO: 0 */
    double eps;          /* not negative; 0: 1e-8, Adagrad 1e-10; WEFT_ZERO: 0 */
    double momentum;     /* RMSprop: not negative */
    double weight_decay; /* not negative */
    bool centered;       /* RMSprop */
} weft_rms_options;

/* Settings of the parameters whose names match one of the comma-separated patterns, such as
 * "embedding,enc.*.bias", instead of the optimiser's: `*` matches any text, `?` one byte. Of
 * several groups that match a parameter, the first applies. */
typedef struct weft_param_group {
    const char *names;   /* required; an error if no state of the graph matches, unless the model is
                            divided among processes */
    double lr_scale;     /* a factor of the learning rate; 0: 1 */
    double weight_decay; /* 0: the optimiser's; WEFT_ZERO: none */
    bool frozen;         /* not trained: no gradient, no update, no part in the norm; a running
                            average does not move */
} weft_param_group;

/* Zeros are plain SGD. The texts and groups are read while the update is declared. */
typedef struct weft_optimizer {
    weft_optimizer_kind kind;
    weft_sgd_options sgd;   /* for SGD */
    weft_adam_options adam; /* for Adam, AdamW and LAMB, where 0 is beta2 0.999 and eps 1e-6 */
    double max_norm;        /* the gradients are scaled to this global norm if theirs is larger; 0:
                              they are not */
    bool guard;             /* a loss or a norm that is not finite ends the run with WEFT_NOT_FINITE
                              before any update */
    const char *no_decay;   /* patterns of names, as in a group, without weight decay; NULL: none */
    const weft_param_group *groups; /* NULL: none */
    size_t n_groups;
    /* Several processes; NULL: one. Only trainers set them (<weft/distributed.h>). */
    const struct weft_shards *shards;
    const struct weft_model_split *model;
    const char *name; /* prefix of the names of its states; NULL: "opt". Two updates of one graph
                             need different names */
    weft_rms_options rms; /* for Adagrad and RMSprop */
} weft_optimizer;

/* Biases, gamma and beta of norms, tables of embeddings and learned positions. */
#define WEFT_NO_DECAY_DEFAULT "*.bias,*.gamma,*.beta,*embedding,*positions"
/* Adam with beta 0.9 and 0.98 and eps 1e-9, as in "Attention Is All You Need"; clipping at 1,
 * guarded. AdamW with the same, and a decay of 0.01 of all but WEFT_NO_DECAY_DEFAULT. */
#define WEFT_ADAM_DEFAULT  WEFT_ADAM_WITH(WEFT_ADAM, 0, NULL)
#define WEFT_ADAMW_DEFAULT WEFT_ADAM_WITH(WEFT_ADAMW, 0.01, WEFT_NO_DECAY_DEFAULT)
#define WEFT_ADAM_WITH(kind, decay, no_decay)                                                      \
    (WEFT_LITERAL(weft_optimizer){kind,                                                            \
                                  {0, 0, false, 0, 0},                                             \
                                  {0.9, 0.98, 1e-9, decay, false, 0},                              \
                                  1.0,                                                             \
                                  true,                                                            \
                                  no_decay,                                                        \
                                  NULL,                                                            \
                                  0,                                                               \
                                  NULL,                                                            \
                                  NULL,                                                            \
                                  NULL,                                                            \
                                  {0, 0, 0, 0, false}})

/* One update of params[0..n-1], or of all trainable parameters declared so far (NULL and 0): the
 * gradients of the loss, clipping, and the optimiser (NULL: plain SGD). `lr` is a scalar, usually a
 * weft_input. Returns one target for the whole update. *norm (may be NULL) becomes the norm of the
 * gradients before clipping, or WEFT_NO_VALUE if nothing needs it. The states of the optimiser are
 * called `opt.m.NAME`, `opt.v.NAME`, `opt.buf.NAME` and `opt.step`. */
WEFT_API weft_value weft_train_update(weft_graph *graph, weft_value loss, const weft_value *params,
                                      size_t n, weft_value lr, const weft_optimizer *optimizer,
                                      weft_value *norm);

/* ---- Running -------------------------------------------------------------------------------- */

/* The store: tensors by name, which outlive graphs, plans and sessions. */
typedef struct weft_params weft_params;
WEFT_API weft_params *weft_params_new(void);
WEFT_API void weft_params_free(weft_params *params);
/* Adds every parameter and state that the graph declares and the store lacks. The weft_init, the
 * seed and the name determine the contents. */
WEFT_API weft_status weft_params_init(weft_params *params, const weft_graph *graph, uint64_t seed,
                                      weft_error *error);
/* Sets *tensor to the tensor of that name, whose data the store owns; false if there is none. */
WEFT_API bool weft_params_find(const weft_params *params, const char *name, weft_tensor *tensor);
typedef struct weft_params_filter weft_params_filter;
/* Writes and reads a safetensors file. `filter` (<weft/store.h>) chooses tensors; NULL: all. PATH
 * is a complete file at any time. The file must have the tensors that the store has, unless that is
 * empty; a failed load changes nothing. */
WEFT_API weft_status weft_params_save(const weft_params *params, const char *path,
                                      const weft_params_filter *filter, weft_error *error);
WEFT_API weft_status weft_params_load(weft_params *params, const char *path, weft_error *error);

/* A plan computes the targets and nothing else. It is immutable, and the graph may be freed before
 * it. `options`: <weft/plan.h>. */
typedef struct weft_plan weft_plan;
typedef struct weft_plan_options weft_plan_options;
WEFT_API weft_plan *weft_plan_new(const weft_graph *graph, const weft_value *targets, size_t count,
                                  const weft_plan_options *options, weft_error *error);
WEFT_API void weft_plan_free(weft_plan *plan);

/* A session: the memory and the threads of a plan that runs on a store (NULL if it has no states).
 * Both must outlive it. `options`: <weft/session.h>. */
typedef struct weft_session weft_session;
typedef struct weft_session_options weft_session_options;
WEFT_API weft_session *weft_session_new(const weft_plan *plan, weft_params *params,
                                        const weft_session_options *options, weft_error *error);
WEFT_API void weft_session_free(weft_session *session);
/* Copies contiguous row-major data into an input; runs the plan once; copies a target, an input or
 * a state out. `bytes` must be the size of the tensor. A run allocates nothing. It fails with
 * WEFT_NOT_FOUND if an input was never fed; updates that ran before an error stay. */
WEFT_API weft_status weft_session_feed(weft_session *session, weft_value input, const void *data,
                                       size_t bytes, weft_error *error);
WEFT_API weft_status weft_session_run(weft_session *session, weft_error *error);
WEFT_API weft_status weft_session_fetch(weft_session *session, weft_value target, void *data,
                                        size_t bytes, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
