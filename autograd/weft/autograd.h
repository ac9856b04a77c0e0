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
/* The values that weft_grad_of takes. */
typedef struct weft_grad_values {
    const weft_value *outputs, *cotangents; /* [n_outputs] */
    size_t n_outputs;
    const weft_value *wrt; /* [n] */
    size_t n;
} weft_grad_values;
/* As weft_grad_of. `ready` (may be NULL) is called for each i, in the order in which gradients are
 * complete. Nodes that it adds come right after those that compute gradient i, and so run before
 * the rest of the backward pass. */
WEFT_API void weft_grad_each(weft_graph *graph, const weft_grad_values *values, weft_value *grads,
                             const weft_grad_hooks *ready);

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

/* Which gradients to check, and where. */
typedef struct weft_gradient_check {
    weft_value loss;
    const weft_value *wrt; /* [n], f64 parameters or inputs; NULL and 0: all trainable parameters
                              declared so far */
    size_t n;
    weft_params *params;          /* NULL: the graph has no state */
    const weft_check_feed *feeds; /* NULL: the graph has no input */
    size_t n_feeds;
    size_t per_value; /* at most this many elements of each are checked; 0: all */
    uint64_t seed;    /* chooses these */
    /* Called after each of wrt, with how many of them are done; NULL: none. */
    void (*progress)(void *context, size_t done, size_t n);
    void *context; /* of `progress` */
} weft_gradient_check;
/* Compares the gradients of the loss that weft_grad computes with central differences, in f64, at
 * the contents of the parameters and feeds. The check passes if result->worst_error is small; the
 * status only says whether it could be made. Adds the backward pass to the graph. */
WEFT_API weft_status weft_check_gradient(weft_graph *graph, const weft_gradient_check *check,
                                         weft_check_result *result, weft_error *error);

/* Checks an op on one of its samples, in f64. First, of order 1, its outputs for transposed,
 * stepped, reversed and broadcast views of the inputs, and for large inputs on whose blocks it may
 * run, against those for dense inputs: if they differ, result->worst_error is infinite, and the
 * gradient is not checked. Then order 1 checks the gradient of sum(output * cotangent) with a
 * random cotangent; order 2 checks the gradient of such a sum of those gradients. result->checked
 * is 0 if the op has no floating input or no gradient. `flip`, the index of a sample input or -1,
 * negates the analytic gradient of that input, to prove that the check notices. */
WEFT_API weft_status weft_check_op(const weft_op *op, size_t sample, int order, int flip,
                                   uint64_t seed, weft_check_result *result, weft_error *error);

/* How a program checks that a machine computes the bits that docs/arithmetic.md specifies: sets *hash
 * to a hash of what the op computes from all of its samples, in f32 and in f64. An op without
 * samples, such as one that exchanges data with other processes, has the same hash as any other
 * without. */
WEFT_API weft_status weft_op_bits(const weft_op *op, uint64_t *hash, weft_error *error);
/* The hash of an op of the list (weft_op_at) on every processor, whatever compiled weft; 0 if none
 * is recorded. */
WEFT_API uint64_t weft_op_specified_bits(const weft_op *op);

/* Fills contiguous `data` with random values as the sample input describes; `dtype` replaces
 * WEFT_FLOAT. */
WEFT_API void weft_sample_input_fill(const weft_sample_input *input, weft_dtype dtype,
                                     uint64_t seed, void *data);

/* ---- Optimisers ----------------------------------------------------------------------------- */

#define WEFT_MAX_TRAINED_NAME   384
#define WEFT_MAX_OPTIMIZER_NAME 128

/* What weft_train_update (<weft/weft.h>) does beyond one update of all parameters:
 *
 * A parameter that the loss does not depend on has a gradient of zeros: decay and moments still act
 * on it. A name that is longer than these limits is WEFT_TOO_LARGE.
 *
 * Running averages (weft_track) move in the same update, without a part in norm, clipping and
 * decay: all of the graph if params are NULL, else those whose states follow the parameters in the
 * list.
 *
 * A graph may have several updates with different names and parameters, such as the two sides of a
 * GAN. One plan of both computes both from the old parameters; a plan of each lets them
 * alternate. */

/* Gradients that weft_apply_gradients takes. */
typedef struct weft_gradients {
    const weft_value *params, *grads; /* [n] */
    size_t n;                         /* at least 1 */
    weft_value loss;                  /* the guard also watches it; WEFT_NO_VALUE: none */
} weft_gradients;
/* Adds a training update that takes gradients, such as sums over several batches: clipping and the
 * updates of the parameters. `lr`, `optimizer` and `norm` are those of weft_train_update.
 * updated[0..n-1] (may be NULL) become the updated parameters, for further computation; a frozen
 * parameter's is the parameter itself. Running averages come after the parameters; their gradients
 * are the values that they move towards. With optimizer->shards, grads are those of this rank's
 * pieces (weft__reducer_finish), and every rank must add the same update. */
WEFT_API weft_value weft_apply_gradients(weft_graph *graph, const weft_gradients *gradients,
                                         weft_value lr, const weft_optimizer *optimizer,
                                         weft_value *norm, weft_value *updated);
/* Whether the optimiser (may be NULL) does not train the parameter of that name. */
WEFT_API bool weft_optimizer_freezes(const weft_optimizer *optimizer, const char *name);
/* Whether one of the comma-separated patterns matches the whole name. Takes at most
 * length of the pattern x length of the name comparisons. */
WEFT_API bool weft_name_matches(const char *patterns, const char *name);

#ifdef __cplusplus
}
#endif
#endif
