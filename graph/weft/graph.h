/* weft/graph.h - the static graph of tensor operations: errors, values, DOT. Dtypes, shapes and
 * tensors are in <weft/tensor.h>.
 *
 * A program builds a weft_graph with the functions of <weft/ops.h>, plans it (<weft/plan.h>), holds
 * its parameters in a store (<weft/store.h>), and opens a weft_session on plan and store
 * (<weft/session.h>). It can feed, run and read the session any number of times. Nothing is
 * computed before weft_run, and weft_run allocates nothing. <weft/weft.h> includes all headers.
 *
 * Errors: no function of weft aborts, exits or prints; for OpenMP, see "Threads" in
 * <weft/session.h>. Functions that build a graph record their errors in the graph (see
 * weft_graph_error). All others return a weft_status, fill a weft_error, or do both.
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

#include <weft/tensor.h>

#include <math.h>
#include <stdio.h>

#ifdef __cplusplus
#include <initializer_list>
extern "C" {
#endif

/* Sets a field to zero whose default is another number: `options.beta1 = WEFT_ZERO`. It is the
 * negative zero, which no field needs for itself. */
#define WEFT_ZERO (-0.0)
/* The number that such a field means: the default for 0, 0 for WEFT_ZERO, else its own value. */
static inline double weft_option(double value, double default_value)
{
    return value != 0.0 ? value : copysign(1.0, value) < 0 ? 0.0 : default_value;
}

/* ---- Status and errors ---------------------------------------------------------------------- */

#define WEFT_STATUS_MAP(X)                                                                         \
    X(OK, "success")                                                                               \
    X(BAD_ARGUMENT, "bad argument")                                                                \
    X(BAD_SHAPE, "shapes do not fit")                                                              \
    X(BAD_DTYPE, "dtypes do not fit")                                                              \
    X(TOO_LARGE, "a size overflows")                                                               \
    X(NO_MEMORY, "out of memory")                                                                  \
    X(NO_GRADIENT, "no gradient exists")                                                           \
    X(NO_KERNEL, "no kernel")                                                                      \
    X(NO_BACKEND, "a shared library could not be loaded")                                          \
    X(BAD_INDEX, "an index is out of range")                                                       \
    X(CANCELLED, "stopped on request")                                                             \
    X(NOT_FINITE, "a number is not finite")                                                        \
    X(NOT_FOUND, "not found")                                                                      \
    X(BAD_FILE, "malformed file")                                                                  \
    X(IO, "input or output failed")                                                                \
    X(PEER, "another process failed or does not answer")                                           \
    X(INTERNAL, "weft's own check failed")

typedef enum weft_status {
#define WEFT_STATUS_ENUM(name, text) WEFT_##name,
    WEFT_STATUS_MAP(WEFT_STATUS_ENUM)
#undef WEFT_STATUS_ENUM
} weft_status;

/* The text of a status from WEFT_STATUS_MAP; "unknown status" for any other number. */
WEFT_API const char *weft_status_text(weft_status status);

/* What went wrong, and where. `where` names the node (scope and op), the file, or the function, and
 * is never empty. `message` is one line, without a newline, that says what was found and what was
 * expected. A record of zeros holds no error. */
typedef struct weft_error {
    weft_status status;
    char where[128];
    char message[384];
} weft_error;

#define WEFT_NO_ERROR (WEFT_LITERAL(weft_error){WEFT_OK, "", ""})

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
 * system has them, since these are faster to access. The caller frees it with free(). NULL when
 * memory is out. */
WEFT_API void *weft_alloc(size_t bytes);

/* Where the large memory of a session (weft_session_options) or a parameter store
 * (weft_params_options) comes from. A struct of zeros is weft's own allocator, which uses huge
 * pages; otherwise both functions are needed. Memory must be 64-byte aligned: if it is not, it is
 * released and the call fails with WEFT_BAD_ARGUMENT. Its contents may be anything.
 *
 * Threads: the functions are called on the thread that calls weft, and never during a run. They
 * must be safe for threads if the objects that use them live on several. They must not call
 * functions of weft on the same object. */
typedef struct weft_allocator {
    void *(*allocate)(void *context, size_t bytes); /* NULL: memory is out, WEFT_NO_MEMORY */
    void (*release)(void *context, void *memory, size_t bytes); /* bytes: as allocated */
    void *context; /* must live as long as the objects */
} weft_allocator;

/* ---- The graph ------------------------------------------------------------------------------ */

typedef struct weft_graph weft_graph;

/* A value of a graph: the output of a node. Pass it by value. The tag of its graph lets other
 * graphs refuse it, even those created after its own was freed. Tags repeat after 2^32 graphs of a
 * process; each plan creates about five. */
typedef struct weft_value {
    uint32_t id;    /* 0: no value */
    uint32_t graph; /* the tag */
} weft_value;

#define WEFT_NO_VALUE (WEFT_LITERAL(weft_value){0, 0})
static inline bool weft_is_value(weft_value v)
{
    return v.id != 0;
}

/* Expands to two arguments, a list of values and their number, for functions that take `const
 * weft_value *values, size_t count`: weft_plan_new(graph, WEFT_VALUES(loss, update), NULL, &error).
 * The list lives until the end of the call. */
#ifdef __cplusplus
#define WEFT_VALUES(...) weft_value_list({__VA_ARGS__}), sizeof(weft_value_count(__VA_ARGS__))
extern "C++" {
inline const weft_value *weft_value_list(std::initializer_list<weft_value> values)
{
    return values.begin();
}
template <typename... Value> char (&weft_value_count(Value...))[sizeof...(Value)];
}
#else
#define WEFT_VALUES(...)                                                                           \
    (const weft_value[]){__VA_ARGS__}, sizeof((weft_value[]){__VA_ARGS__}) / sizeof(weft_value)
#endif

/* The largest number of nodes of a graph, including those that gradients and passes add. Adding one
 * more is the error WEFT_TOO_LARGE. */
#define WEFT_MAX_NODES 1048576
/* Creates an empty graph; NULL only when memory is out. Freeing it invalidates all its values,
 * texts and error records. weft_graph_free accepts NULL. */
WEFT_API weft_graph *weft_graph_new(void);
WEFT_API void weft_graph_free(weft_graph *graph);

/* Errors are sticky: the first call that fails records its error and returns WEFT_NO_VALUE, and so
 * does every later call on the graph, at once. So one check after the model is built is enough. The
 * record lives as long as the graph. For a NULL graph the record says that it is NULL. */
WEFT_API const weft_error *weft_graph_error(const weft_graph *graph);
WEFT_API weft_status weft_graph_status(const weft_graph *graph);
/* Records an error of the caller, such as a layer that refuses its options, unless there is one
 * already. `where` becomes the current name scope, or "graph" outside of all scopes. */
WEFT_API void weft_graph_fail(weft_graph *graph, weft_status status, const char *format, ...)
    WEFT_PRINTF(3, 4);
/* The same for a named function or layer: `where` becomes "SCOPE/NAME", or NAME outside of all
 * scopes. */
WEFT_API void weft_graph_fail_in(weft_graph *graph, const char *name, weft_status status,
                                 const char *format, ...) WEFT_PRINTF(4, 5);

/* Opens and closes a name scope. Inside the scopes "enc" and "0", NAME becomes `enc.0.NAME`. Scoped
 * names are the same in errors, DOT, profiles and parameter files. The format is printf's. */
WEFT_API void weft_scope_push(weft_graph *graph, const char *format, ...) WEFT_PRINTF(2, 3);
WEFT_API void weft_scope_pop(weft_graph *graph);

/* Declares a tensor that the program feeds. It retains its contents from run to run. If a plan
 * needs an input that was never fed and has no default, its run fails. */
WEFT_API weft_value weft_input(weft_graph *graph, const char *name, weft_dtype dtype,
                               weft_shape shape);
/* Gives an input a default: every element is `value` until it is fed. The dtype must be able to
 * represent the value: for i32 a whole number in its range, for bool 0 or 1. */
WEFT_API void weft_input_default(weft_graph *graph, weft_value input, double value);

/* The initial contents of a state. The kind says how the weights lie, from which the fans follow:
 *
 *   XAVIER_*, KAIMING_*            [in, out], as of weft_layer_linear: fan_in = in, fan_out = out.
 *                                  A vector [n] counts as [1, n]; a rank above 2 is WEFT_BAD_SHAPE
 *   CONV_XAVIER_*, CONV_KAIMING_*  [out, in / groups, kernel...], as of weft_conv:
 *                                  fan_in = in / groups x kernel, fan_out = out x kernel, where
 *                                  `kernel` is the number of its elements. A rank below 2 is
 *                                  WEFT_BAD_SHAPE
 *
 * The second row has the fans of PyTorch, also for matrices [out, in], embeddings [vocabulary,
 * features], and weights [in, out / groups, kernel...] of weft_conv_transpose: PyTorch too computes
 * fan_in from dimension 1 of any weight, and fan_out from dimension 0. */
typedef enum weft_init_kind {
    WEFT_INIT_CONSTANT,            /* a, which the dtype must be able to represent */
    WEFT_INIT_UNIFORM,             /* U[a, b) */
    WEFT_INIT_NORMAL,              /* N(mean a, standard deviation b) */
    WEFT_INIT_XAVIER_UNIFORM,      /* U(+-a sqrt(6 / (fan_in + fan_out))), Glorot & Bengio 2010 */
    WEFT_INIT_XAVIER_NORMAL,       /* N(0, a sqrt(2 / (fan_in + fan_out))) */
    WEFT_INIT_KAIMING_UNIFORM,     /* U(+-a sqrt(3 / fan_in)), gain a, He et al. 2015 */
    WEFT_INIT_KAIMING_NORMAL,      /* N(0, a / sqrt(fan_in)) */
    WEFT_INIT_CONV_XAVIER_UNIFORM, /* the same four of weights [out, in / groups, kernel...] */
    WEFT_INIT_CONV_XAVIER_NORMAL,
    WEFT_INIT_CONV_KAIMING_UNIFORM,
    WEFT_INIT_CONV_KAIMING_NORMAL
} weft_init_kind;

typedef struct weft_init {
    weft_init_kind kind;
    double a, b;
} weft_init;

#define WEFT_INIT_ZEROS  (WEFT_LITERAL(weft_init){WEFT_INIT_CONSTANT, 0, 0})
#define WEFT_INIT_ONES   (WEFT_LITERAL(weft_init){WEFT_INIT_CONSTANT, 1, 0})
#define WEFT_INIT_XAVIER (WEFT_LITERAL(weft_init){WEFT_INIT_XAVIER_UNIFORM, 1, 0})

/* Declares a trainable tensor, which the parameter store holds under its scoped name. Declaring a
 * scoped name again is WEFT_BAD_ARGUMENT, except while weft_share is on. */
WEFT_API weft_value weft_param(weft_graph *graph, const char *name, weft_dtype dtype,
                               weft_shape shape, weft_init init);
/* Shared weights: while sharing is on, declaring a parameter's scoped name again returns the value
 * declared before; another dtype or shape is an error. So a layer that is built again under its
 * name has the same weights. Returns whether sharing was on, false at first, so that a function can
 * restore it. */
WEFT_API bool weft_share(weft_graph *graph, bool on);
/* Declares a tensor of the store that is not trainable: an optimiser's moment, a step counter, a
 * cache, a running statistic. Declaring a scoped name again with the same dtype and shape returns
 * the same value. */
WEFT_API weft_value weft_state(weft_graph *graph, const char *name, weft_dtype dtype,
                               weft_shape shape, weft_init init);
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
/* Writes at most `capacity` of the graph's running averages, in order of declaration, and returns
 * how many there are. */
WEFT_API size_t weft_graph_tracked(const weft_graph *graph, weft_tracked *tracked, size_t capacity);
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
/* Writes at most `capacity` of the trainable parameters declared so far, in order of declaration,
 * and returns how many there are: call it with NULL and 0 to find out. Training updates and
 * gradient checks of all parameters need no list: pass NULL and 0 to them. */
WEFT_API size_t weft_graph_params(const weft_graph *graph, weft_value *params, size_t capacity);
/* The same for all states, trainable or not. */
WEFT_API size_t weft_graph_states(const weft_graph *graph, weft_value *states, size_t capacity);

/* Declares a constant tensor. `data`, contiguous in row-major order, is copied. */
WEFT_API weft_value weft_constant_data(weft_graph *graph, weft_dtype dtype, weft_shape shape,
                                       const void *data);
/* An empty value that depends on all of `values`: one target for many, such as all updates of a
 * training update. */
WEFT_API weft_value weft_group(weft_graph *graph, const weft_value *values, size_t count);

/* Names a value: `name` inside the current scope. Returns the value. It is an error if the value
 * has another name, or if another value has this one. */
WEFT_API weft_value weft_name(weft_graph *graph, weft_value value, const char *name);
/* The value of a scoped name, from weft_input, weft_param, weft_state or weft_name; WEFT_NO_VALUE
 * if there is none. */
WEFT_API weft_value weft_find(const weft_graph *graph, const char *scoped_name);

/* Properties of a value. For WEFT_NO_VALUE and values of other graphs: rank 0, dimension 0,
 * WEFT_F32 and "". `axis` counts from the end if it is negative. A value without a name has the
 * name "". */
WEFT_API weft_shape weft_shape_of(const weft_graph *graph, weft_value value);
WEFT_API weft_dtype weft_dtype_of(const weft_graph *graph, weft_value value);
WEFT_API int64_t weft_dim(const weft_graph *graph, weft_value value, int axis);
WEFT_API int weft_rank(const weft_graph *graph, weft_value value);
WEFT_API const char *weft_name_of(const weft_graph *graph, weft_value value);

WEFT_API size_t weft_graph_node_count(const weft_graph *graph);

/* Checks every invariant of the graph: ids, order, numbers of inputs, and types, storage and
 * versions derived again from the ops' descriptors. For tests. WEFT_INTERNAL if one is broken. */
WEFT_API weft_status weft_graph_verify(const weft_graph *graph, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
