/* weft/autograd.h - reverse-mode differentiation of graphs, gradient checks, optimisers.
 *
 * The backward pass is made of ordinary nodes of the same graph: it is planned, fused, run,
 * drawn and differentiated again like any other.
 */
#ifndef WEFT_AUTOGRAD_H
#define WEFT_AUTOGRAD_H

#include <weft/ops.h>
#include <weft/store.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the nodes of d loss / d wrt[i] and fills grads[i], each of the shape and dtype of wrt[i]; a
 * zero tensor where the loss does not depend on it. The loss must be a floating scalar (rank 0).
 * Calling it on a loss made of gradients gives the second order. Errors are the graph's. */
WEFT_API void weft_grad(weft_graph *graph, weft_value loss, const weft_value *wrt, size_t n,
                        weft_value *grads);

/* The vector-Jacobian product of several outputs: `cotangents[i]` has the shape of outputs[i]. */
WEFT_API void weft_grad_of(weft_graph *graph, const weft_value *outputs,
                           const weft_value *cotangents, size_t n_outputs, const weft_value *wrt,
                           size_t n, weft_value *grads);

/* ---- Gradient checks ------------------------------------------------------------------------ */

typedef struct weft_check_result {
    double worst_error; /* largest |analytic - numeric| / max(1, largest |numeric| of that input) */
    size_t checked;     /* derivatives compared */
    char where[160];    /* of the worst: name, index, both numbers */
} weft_check_result;

/* Compares the gradients that weft_grad gives of `loss` with central differences in f64 at the
 * contents of `params` and the feeds below. wrt[i] must be f64 parameters or inputs; NULL and 0 are
 * all trainable parameters declared so far. At most `per_value` elements of each are checked (0:
 * all), chosen by seed. */
typedef struct weft_check_feed {
    weft_value input;
    const void *data; /* contiguous */
    size_t bytes;
} weft_check_feed;
WEFT_API weft_status weft_check_gradient(weft_graph *graph, weft_value loss, const weft_value *wrt,
                                         size_t n, weft_params *params,
                                         const weft_check_feed *feeds, size_t n_feeds,
                                         size_t per_value, uint64_t seed, weft_check_result *result,
                                         weft_error *error);

/* Checks one op on one of its samples in f64: the gradient of sum(output * random cotangent) of
 * order 1, or the gradient of such a sum of those gradients (order 2). `checked` is 0 where the op
 * has no floating input or no gradient. `flip` (the index of a sample input, or -1) turns the sign
 * of that input's analytic gradient, to prove that the check sees it. */
WEFT_API weft_status weft_check_op(const weft_op *op, size_t sample, int order, int flip,
                                   uint64_t seed, weft_check_result *result, weft_error *error);

/* Fills contiguous `data` as the sample input says; `dtype` stands for WEFT_FLOAT. */
WEFT_API void weft_sample_fill(const weft_sample_input *input, weft_dtype dtype, uint64_t seed,
                               void *data);

/* ---- Optimisers ----------------------------------------------------------------------------- */

/* States of an optimiser are named PREFIX.NAME after the parameter; the prefix by default: */
#define WEFT_OPTIMIZER_STATES "opt"

typedef enum weft_optimizer_kind { WEFT_SGD, WEFT_ADAM, WEFT_ADAMW } weft_optimizer_kind;

/* Settings of the parameters whose names match one of the comma-separated patterns, in place of
 * the optimiser's: `*` stands for any text, `?` for one byte ("embedding,enc.*.bias"). A parameter
 * takes the first group that matches it, and that group only. */
typedef struct weft_param_group {
    const char *names;   /* required; an error if no trainable parameter of the graph matches */
    double lr_scale;     /* times the learning rate; 0: 1 */
    double weight_decay; /* 0: the optimiser's; WEFT_ZERO: none */
    bool frozen;         /* not trained: no gradient, no update, no part in the norm */
} weft_param_group;

/* Zeros are plain SGD: no momentum, no decay, no clipping, no guard. Texts and groups are read
 * while the graph is built. */
typedef struct weft_optimizer {
    weft_optimizer_kind kind; /* 0: WEFT_SGD */
    weft_sgd_options sgd;     /* for WEFT_SGD */
    weft_adam_options adam;   /* for the others; `decoupled` is set by the kind */
    double max_norm;          /* clips the global norm of the gradients to this; 0: no clipping */
    bool guard;               /* a step whose loss or gradient norm is not finite ends with
                                 WEFT_NOT_FINITE before any update */
    /* Patterns of names that the weight decay above leaves alone, as in a group; NULL: none. */
    const char *no_decay;
    const weft_param_group *groups; /* NULL: none */
    size_t n_groups;
    const char *name; /* of the states and of the norm; NULL: WEFT_OPTIMIZER_STATES. Steps of one
                         graph need different ones */
} weft_optimizer;

/* Biases, gains and shifts of norms, and tables of embeddings and positions. */
#define WEFT_NO_DECAY_DEFAULT "*.bias,*.gamma,*.beta,*embedding,*positions"

/* Adam, beta 0.9, 0.98, eps 1e-9 as in "Attention Is All You Need", no decay, clipping at 1,
 * guarded. */
#define WEFT_ADAM_DEFAULT                                                                          \
    (WEFT_LITERAL(weft_optimizer){                                                                 \
        WEFT_ADAM, {0, 0, false}, {0.9, 0.98, 1e-9, 0, false}, 1.0, true, NULL, NULL, 0, NULL})
/* The same with a decay of 0.01 apart from the gradient, for all but WEFT_NO_DECAY_DEFAULT. */
#define WEFT_ADAMW_DEFAULT                                                                         \
    (WEFT_LITERAL(weft_optimizer){WEFT_ADAMW,                                                      \
                                  {0, 0, false},                                                   \
                                  {0.9, 0.98, 1e-9, 0.01, false},                                  \
                                  1.0,                                                             \
                                  true,                                                            \
                                  WEFT_NO_DECAY_DEFAULT,                                           \
                                  NULL,                                                            \
                                  0,                                                               \
                                  NULL})

/* Adds gradients of the loss, clipping and updates of params[0..n-1], or with NULL and 0 of all
 * trainable parameters declared so far; returns the target that stands for the whole step. A
 * parameter that the loss does not depend on has a gradient of zeros: decay and moments still act
 * on it. `lr` is a scalar of the parameters' dtype, usually a weft_input. `optimizer` may be NULL.
 * Moments are states named `opt.m.NAME`, `opt.v.NAME`, `opt.buf.NAME`, the counter `opt.step`, with
 * the optimiser's name for `opt`. *norm (may be NULL) becomes the norm of the gradients before
 * clipping, or WEFT_NO_VALUE if neither clipping nor the guard needs it.
 *
 * A graph may have several steps, of different names and parameters (the two sides of a GAN). A
 * plan of both updates both from the same old parameters; plans of one each take turns. */
WEFT_API weft_value weft_train_step(weft_graph *graph, weft_value loss, const weft_value *params,
                                    size_t n, weft_value lr, const weft_optimizer *optimizer,
                                    weft_value *norm);
/* The same from gradients that are there already, as sums over several batches are: clipping and
 * updates of params[0..n-1], n >= 1. `loss` (or WEFT_NO_VALUE) is only guarded; updated[0..n-1]
 * (may be NULL) become the new contents of the parameters, for what is computed from them: of a
 * frozen one the parameter itself. */
WEFT_API weft_value weft_apply_gradients(weft_graph *graph, const weft_value *params,
                                         const weft_value *grads, size_t n, weft_value loss,
                                         weft_value lr, const weft_optimizer *optimizer,
                                         weft_value *norm, weft_value *updated);
/* Does one of the comma-separated patterns match the whole name? Takes at most pattern x name
 * steps. */
WEFT_API bool weft_name_matches(const char *patterns, const char *name);

#ifdef __cplusplus
}
#endif
#endif
