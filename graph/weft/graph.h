/* weft/graph.h - more of the graph than <weft/weft.h> has: errors and memory for those who write
 * layers and hooks, shared weights, running averages, parts of parameters, lists of what a graph
 * declares.
 *
 * Errors: no function of weft aborts, exits or prints; for OpenMP, see "Threads" in
 * <weft/session.h>. Errors of a graph are sticky: the first is recorded, and every later call on
 * the graph returns WEFT_NO_VALUE at once. The record lives as long as the graph; for a NULL graph
 * it says that it is NULL. All other functions return a weft_status, fill a weft_error, or do both.
 *
 * Notation: shapes in comments read [batch, heads, query_len, key_len], and `...` is any number of
 * leading dimensions. Strides and offsets count elements; sizes named `bytes` count bytes.
 *
 * Options: a function that takes a struct of options treats NULL as a struct of zeros. A zero field
 * means the default that the field's comment names; without one it means zero, false or no value. A
 * field marked `required` has no default: zero is an error that names it. To set a field to zero
 * where zero is not the default, write WEFT_ZERO.
 *
 * Languages: the headers are C11 and C++17. A program that must compile as both avoids compound
 * literals and designated initialisers. It starts a struct of options with WEFT_DEFAULTS(type), and
 * passes a list of values as WEFT_VALUES(a, b).
 */
#ifndef WEFT_GRAPH_H
#define WEFT_GRAPH_H

#include <weft/weft.h>

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Empties a record; `error` may be NULL. Every function of weft that takes a record, except the two
 * below, does this first. So after a call the record holds the error of that call, whatever it held
 * before, and none if the call succeeded. */
static inline void weft_error_clear(weft_error *error)
{
    if (!error) return;
    error->status = WEFT_OK;
    error->where[0] = error->message[0] = '\0';
}
/* Fills *error unless it already holds an error: within one call the first error is the cause.
 * `error` may be NULL. Returns `status`. An empty or NULL `where` becomes "weft"; the format is
 * printf's. */
WEFT_API weft_status weft_error_set(weft_error *error, weft_status status, const char *where,
                                    const char *format, ...) WEFT_PRINTF(4, 5);
/* Copies *from to *error unless that already holds an error. Either may be NULL. Returns the status
 * of *from, WEFT_OK for NULL. */
WEFT_API weft_status weft_error_copy(weft_error *error, const weft_error *from);

/* Allocates zeroed memory for tensors, 64-byte aligned. Large blocks are on huge pages where the
 * system has them, since these are faster to access. The caller frees it with weft_free; except on
 * Windows, free() does the same. NULL when out of memory. */
WEFT_API void *weft_alloc(size_t bytes);
/* Frees memory of weft_alloc; NULL is accepted. */
WEFT_API void weft_free(void *memory);

/* Where the large memory of a session (weft_session_options) or a parameter store
 * (weft_params_options) comes from. A struct of zeros is weft's own allocator, which uses huge
 * pages; otherwise both functions are needed. Memory must be 64-byte aligned: if it is not, it is
 * released and the call fails with WEFT_BAD_ARGUMENT. Its contents may be anything.
 *
 * Threads: the functions are called on the thread that calls weft, and never during a run. They
 * must be safe for threads if the objects that use them live on several. They must not call
 * functions of weft on the same object. */
typedef struct weft_allocator {
    void *(*allocate)(void *context, size_t bytes); /* NULL: out of memory, WEFT_NO_MEMORY */
    void (*release)(void *context, void *memory, size_t bytes); /* bytes: as allocated */
    void *context; /* must live as long as the objects */
} weft_allocator;

/* ---- The graph ------------------------------------------------------------------------------ */

/* The largest number of nodes of a graph, including those that gradients and passes add. Adding one
 * more is the error WEFT_TOO_LARGE. */
#define WEFT_MAX_NODES 1048576
/* The status of weft_graph_error. */
WEFT_API weft_status weft_graph_status(const weft_graph *graph);
/* Records an error of the caller, such as a layer that refuses its options, unless there is one
 * already. `where` becomes the current name scope, or "graph" outside of all scopes. */
WEFT_API void weft_graph_fail(weft_graph *graph, weft_status status, const char *format, ...)
    WEFT_PRINTF(3, 4);
/* The same for a named function or layer: `where` becomes "SCOPE/NAME", or NAME outside of all
 * scopes. */
WEFT_API void weft_graph_fail_in(weft_graph *graph, const char *name, weft_status status,
                                 const char *format, ...) WEFT_PRINTF(4, 5);

/* Gives an input a default: every element is `value` until it is fed. The dtype must be able to
 * represent the value: for i32 a whole number in its range, for bool 0 or 1. */
WEFT_API void weft_input_default(weft_graph *graph, weft_value input, double value);

/* Shared weights: while sharing is on, declaring a parameter's scoped name again returns the value
 * declared before; another dtype or shape is an error. So a layer that is built again under its
 * name has the same weights. Returns whether sharing was on, false at first, so that a function can
 * restore it. */
WEFT_API bool weft_graph_share(weft_graph *graph, bool on);
/* Tracks a running average: a training update of the graph (<weft/autograd.h>) also sets `state` to
 * (1 - momentum) state + momentum value, for instance the running mean of a normalisation from the
 * mean of the batch. `state` comes from weft_state, `value` has its shape and dtype, f32 or f64,
 * and momentum is in [0, 1]. A layer calls this while it builds its part of a graph for training; a
 * plan without a training update does not change the state. If the trainer makes an update of
 * several batches (<weft/train.h>), `value` is their average, weighted as their losses are.
 *
 * Returns true if training will update the state; false if it is frozen (weft_graph_freeze), so
 * that the layer can use the state itself as in evaluation, and on errors, which are the graph's:
 * WEFT_BAD_ARGUMENT if the state is a parameter or tracked twice. */
WEFT_API bool weft_track(weft_graph *graph, weft_value state, weft_value value, double momentum);
/* A running average of a graph. */
typedef struct weft_tracked {
    weft_value state, value;
    weft_value node; /* empty; a target that needs `value` */
    double momentum;
} weft_tracked;
/* The graph's running averages, in order of declaration: see weft_graph_params. */
WEFT_API const weft_tracked *weft_graph_tracked(const weft_graph *graph, size_t *count);
/* Says which states, by scoped name, training must not change. Call it before weft_track; the
 * context must live until the graph is built. Parameters are frozen by the optimiser
 * (weft_param_group), and the trainer calls this function with its groups. */
WEFT_API void weft_graph_freeze(weft_graph *graph, bool (*frozen)(void *context, const char *name),
                                void *context);
/* Says that a state is a part of a larger one, the whole, which several processes share: elements
 * [first, first + n) along an axis, where n is the state's own size. */
typedef struct weft_part {
    int32_t axis;
    int64_t first, whole; /* whole: the size of the axis in the whole; 0: the state is the whole */
} weft_part;
/* Declares a trainable tensor that is such a part. It has the name of the whole. Its first contents
 * are those that the whole would have there, and `init` takes its fans from the whole. Errors:
 * WEFT_BAD_SHAPE if the part is outside of the whole. */
WEFT_API weft_value weft_param_part(weft_graph *graph, const char *name, weft_dtype dtype,
                                    weft_shape shape, weft_init init, weft_part part);
/* The part that a state was declared as; zeros for every other value. */
WEFT_API weft_part weft_part_of(const weft_graph *graph, weft_value value);
/* The trainable parameters declared so far, in order of declaration; sets *count (may be NULL) to
 * their number. The array lives as long as the graph, and later declarations do not change it.
 * Training updates and gradient checks of all parameters need no list: pass NULL and 0 to them. */
WEFT_API const weft_value *weft_graph_params(const weft_graph *graph, size_t *count);
/* The same for all states, trainable or not. */
WEFT_API const weft_value *weft_graph_states(const weft_graph *graph, size_t *count);

/* An empty value that depends on all of `values`: one target for many, such as all updates of a
 * training update. */
WEFT_API weft_value weft_group(weft_graph *graph, const weft_value *values, size_t count);

/* The number of dimensions of a value, 0 for WEFT_NO_VALUE; and its scoped name, "" if it has none.
 */
WEFT_API int weft_rank_of(const weft_graph *graph, weft_value value);
WEFT_API const char *weft_name_of(const weft_graph *graph, weft_value value);

WEFT_API size_t weft_graph_node_count(const weft_graph *graph);

/* Checks every invariant of the graph: ids, order, numbers of inputs, and types, storage and
 * versions derived again from the ops' descriptors. For tests. WEFT_INTERNAL if one is broken. */
WEFT_API weft_status weft_graph_verify(const weft_graph *graph, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
