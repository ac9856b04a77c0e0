/* weft/autograd.h - reverse-mode differentiation of graphs, gradient checks, optimisers.
 *
 * The backward pass consists of ordinary nodes of the same graph. It is planned, fused, run, drawn
 * and differentiated again like all others.
 */
#ifndef WEFT_AUTOGRAD_H
#define WEFT_AUTOGRAD_H

#include <weft/ops.h>
#include <weft/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the nodes that compute d loss / d wrt[i], and sets grads[0..n-1] to their outputs. grads[i]
 * has the shape and dtype of wrt[i]; it is zero where the loss does not depend on wrt[i]. The loss
 * must be a scalar (rank 0) of f32 or f64. A loss computed from gradients yields the second order.
 * Errors are the graph's. */
WEFT_API void weft_grad(weft_graph *graph, weft_value loss, const weft_value *wrt, size_t n,
                        weft_value *grads);

/* The vector-Jacobian product of several outputs: grads[i] is the sum over k of cotangents[k] times
 * d outputs[k] / d wrt[i]. cotangents[k] has the shape and dtype of outputs[k]. Errors are the
 * graph's. */
WEFT_API void weft_grad_of(weft_graph *graph, const weft_value *outputs,
                           const weft_value *cotangents, size_t n_outputs, const weft_value *wrt,
                           size_t n, weft_value *grads);

/* Callbacks: `ready` gets each gradient as soon as it is complete, `again` chooses what the
 * backward pass reads. */
typedef struct weft_grad_hooks {
    void (*ready)(void *context, size_t i, weft_value gradient); /* NULL: not called */
    void *context;
    /* Returns what the backward pass reads instead of a value of the forward pass: a value with the
     * same contents, such as the same nodes once more, so that the first need not live that long;
     * or the value itself. Called where the reader is differentiated. NULL: always the value
     * itself. */
    weft_value (*again)(void *context, weft_value value);
} weft_grad_hooks;
/* As weft_grad_of. `ready` is called for each i, in the order in which gradients are complete.
 * Nodes that it adds come right after those that compute gradient i, and so run before the rest of
 * the backward pass. */
WEFT_API void weft_grad_each(weft_graph *graph, const weft_value *outputs,
                             const weft_value *cotangents, size_t n_outputs, const weft_value *wrt,
                             size_t n, weft_value *grads, const weft_grad_hooks *ready);

/* ---- Gradient checks ------------------------------------------------------------------------ */

typedef struct weft_check_result {
    double worst_error; /* largest |analytic - numeric| / max(1, largest |numeric| of that input) */
    size_t checked;     /* derivatives compared */
    char where[160];    /* name and index of the worst one, and both numbers */
} weft_check_result;

/* The contents of an input during a gradient check. */
typedef struct weft_check_feed {
    weft_value input;
    const void *data; /* contiguous */
    size_t bytes;
} weft_check_feed;

/* Compares the gradients of `loss` that weft_grad computes with central differences, in f64, at the
 * contents of `params` and `feeds`. wrt[0..n-1] are f64 parameters or inputs; NULL and 0 mean all
 * trainable parameters declared so far. At most `per_value` elements of each are checked, chosen by
 * the seed (0: all). The check passes if result->worst_error is small; the status only says whether
 * it could be made. */
WEFT_API weft_status weft_check_gradient(weft_graph *graph, weft_value loss, const weft_value *wrt,
                                         size_t n, weft_params *params,
                                         const weft_check_feed *feeds, size_t n_feeds,
                                         size_t per_value, uint64_t seed, weft_check_result *result,
                                         weft_error *error);

/* Checks an op on one of its samples, in f64. First, of order 1, its outputs for transposed,
 * stepped, reversed and broadcast views of the inputs, and for large inputs on whose blocks it may
 * run, against those for dense inputs: if they differ, result->worst_error is infinite, and the
 * gradient is not checked. Then order 1 checks the gradient of sum(output * cotangent) with a
 * random cotangent; order 2 checks the gradient of such a sum of those gradients. result->checked
 * is 0 if the op has no floating input or no gradient. `flip`, the index of a sample input or -1,
 * negates the analytic gradient of that input, to prove that the check notices. */
WEFT_API weft_status weft_check_op(const weft_op *op, size_t sample, int order, int flip,
                                   uint64_t seed, weft_check_result *result, weft_error *error);

/* Fills contiguous `data` with random values as the sample input describes; `dtype` replaces
 * WEFT_FLOAT. */
WEFT_API void weft_sample_fill(const weft_sample_input *input, weft_dtype dtype, uint64_t seed,
                               void *data);

/* ---- Optimisers ----------------------------------------------------------------------------- */

/* States of an optimiser are named PREFIX.NAME after the parameter; the prefix by default: */
#define WEFT_OPTIMIZER_STATES "opt"

typedef enum weft_optimizer_kind {
    WEFT_SGD,
    WEFT_ADAM,
    WEFT_ADAMW,
    WEFT_ADAGRAD,
    WEFT_RMSPROP,
    WEFT_LAMB
} weft_optimizer_kind;

/* With g = scale grad + weight_decay param, where scale clips the norm:
 *
 *     Adagrad (Duchi et al. 2011):
 *         v += g^2;  param -= lr g / (sqrt(v) + eps)
 *     RMSprop (Tieleman & Hinton 2012):
 *         v = alpha v + (1 - alpha) g^2;  d = g / (sqrt(v) + eps);  param -= lr d
 *     centered (Graves 2013), the variance replaces v:
 *         m = alpha m + (1 - alpha) g;  d = g / (sqrt(v - m^2) + eps)
 *     with momentum:
 *         buf = momentum buf + d;  param -= lr buf
 *
 * LAMB (You et al. 2019) has the moments m and v of Adam, of scale grad, and for each parameter a
 * trust ratio, 1 if one of the norms is 0:
 *
 *         d = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay param
 *         param -= lr (|param| / |d|) d
 *
 * It needs the whole of each parameter: shards and split models are an error. */
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
                            split */
    double lr_scale;     /* a factor of the learning rate; 0: 1 */
    double weight_decay; /* 0: the optimiser's; WEFT_ZERO: none */
    bool frozen;         /* not trained: no gradient, no update, no part in the norm; a running
                            average does not move */
} weft_param_group;

/* All zeros are plain SGD: no momentum, no decay, no clipping, no guard. Texts and groups are read
 * while the graph is built, and need not live longer. */
typedef struct weft_optimizer {
    weft_optimizer_kind kind; /* 0: WEFT_SGD */
    weft_sgd_options sgd;     /* for WEFT_SGD */
    weft_adam_options adam;   /* for Adam, AdamW and LAMB, whose defaults are beta2 0.999 and eps
                                 1e-6; `decoupled` is set by the kind */
    double max_norm;          /* clips the global norm of the gradients to this; 0: no clipping */
    bool guard;               /* an update whose loss or gradient norm is not finite ends with
                                 WEFT_NOT_FINITE before any update */
    /* Patterns of names, as in a group, without weight decay; NULL: none. */
    const char *no_decay;
    const weft_param_group *groups; /* NULL: none */
    size_t n_groups;
    /* Not NULL: the training runs on several processes, each of which has pieces of the gradients
     * and updates these (weft/sharding.h). */
    const struct weft_shards *shards;
    /* Not NULL: each of several processes has some parameters of one model (weft/sharding.h). */
    const struct weft_model_split *model;
    const char *name;     /* prefix of the states and of the norm; NULL: WEFT_OPTIMIZER_STATES. Two
                             updates of one graph need different names */
    weft_rms_options rms; /* for Adagrad and RMSprop */
} weft_optimizer;

/* Biases, gamma and beta of norms, embedding tables and learned positions. */
#define WEFT_NO_DECAY_DEFAULT "*.bias,*.gamma,*.beta,*embedding,*positions"

/* Adam, beta 0.9, 0.98, eps 1e-9 as in "Attention Is All You Need", no decay, clipping at 1,
 * guarded. */
#define WEFT_ADAM_DEFAULT                                                                          \
    (WEFT_LITERAL(weft_optimizer){WEFT_ADAM,                                                       \
                                  {0, 0, false, 0, 0},                                             \
                                  {0.9, 0.98, 1e-9, 0, false, 0},                                  \
                                  1.0,                                                             \
                                  true,                                                            \
                                  NULL,                                                            \
                                  NULL,                                                            \
                                  0,                                                               \
                                  NULL,                                                            \
                                  NULL,                                                            \
                                  NULL,                                                            \
                                  {0, 0, 0, 0, false}})
/* The same with a decoupled weight decay of 0.01 for all but WEFT_NO_DECAY_DEFAULT. */
#define WEFT_ADAMW_DEFAULT                                                                         \
    (WEFT_LITERAL(weft_optimizer){WEFT_ADAMW,                                                      \
                                  {0, 0, false, 0, 0},                                             \
                                  {0.9, 0.98, 1e-9, 0.01, false, 0},                               \
                                  1.0,                                                             \
                                  true,                                                            \
                                  WEFT_NO_DECAY_DEFAULT,                                           \
                                  NULL,                                                            \
                                  0,                                                               \
                                  NULL,                                                            \
                                  NULL,                                                            \
                                  NULL,                                                            \
                                  {0, 0, 0, 0, false}})

#define WEFT_MAX_TRAINED_NAME   384
#define WEFT_MAX_OPTIMIZER_NAME 128
/* Adds a training update: the gradients of the loss, clipping, and the updates of params[0..n-1],
 * or of all trainable parameters declared so far if they are NULL and 0. Returns one target for the
 * whole update. A parameter that the loss does not depend on has a gradient of zeros: decay and
 * moments still act on it. `lr` is a scalar of the parameters' dtype, usually a weft_input.
 * `optimizer` may be NULL. *norm (may be NULL) becomes the norm of the gradients before clipping,
 * or WEFT_NO_VALUE if neither clipping nor the guard needs it. Errors are the graph's.
 *
 * Moments are states named `opt.m.NAME`, `opt.v.NAME` and `opt.buf.NAME`, the counter is
 * `opt.step`, where `opt` is the optimiser's name. A longer name than these is WEFT_TOO_LARGE:
 * WEFT_MAX_TRAINED_NAME bytes of a parameter, WEFT_MAX_OPTIMIZER_NAME of the optimiser.
 *
 * Running averages (weft_track) move in the same update, without a part in norm, clipping and
 * decay: all of the graph if params are NULL, else those whose states follow the parameters in the
 * list.
 *
 * A graph may have several updates with different names and parameters, such as the two sides of a
 * GAN. One plan of both computes both from the old parameters; a plan of each lets them
 * alternate. */
WEFT_API weft_value weft_train_update(weft_graph *graph, weft_value loss, const weft_value *params,
                                      size_t n, weft_value lr, const weft_optimizer *optimizer,
                                      weft_value *norm);
/* Adds a training update that takes gradients, such as sums over several batches: clipping and the
 * updates of params[0..n-1], n >= 1. The guard also watches `loss`, unless it is WEFT_NO_VALUE.
 * updated[0..n-1] (may be NULL) become the updated parameters, for further computation; a frozen
 * parameter's is the parameter itself. Running averages come after the parameters; their gradients
 * are the values that they move towards. With optimizer->shards, grads are those of this rank's
 * pieces (weft_reducer_finish), and every rank must add the same update. */
WEFT_API weft_value weft_apply_gradients(weft_graph *graph, const weft_value *params,
                                         const weft_value *grads, size_t n, weft_value loss,
                                         weft_value lr, const weft_optimizer *optimizer,
                                         weft_value *norm, weft_value *updated);
/* Whether the optimiser (may be NULL) does not train the parameter of that name. */
WEFT_API bool weft_is_frozen(const weft_optimizer *optimizer, const char *name);
/* Whether one of the comma-separated patterns matches the whole name. Takes at most
 * length of the pattern x length of the name comparisons. */
WEFT_API bool weft_name_matches(const char *patterns, const char *name);

#ifdef __cplusplus
}
#endif
#endif
