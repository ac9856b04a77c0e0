/* weft/graph.h - the static graph of tensor operations: statuses and errors, values, DOT. Dtypes,
 * shapes and tensors are in <weft/tensor.h>.
 *
 * A program builds a weft_graph with the functions of <weft/ops.h>, plans it (<weft/plan.h>), keeps
 * its parameters in a store (<weft/store.h>), and opens a weft_session on both (<weft/session.h>),
 * which it feeds, runs and reads as often as it wants. Nothing is computed before weft_run, and
 * weft_run allocates nothing. <weft/weft.h> includes everything.
 *
 * Nothing in weft aborts, exits or prints; for OpenMP, see "Threads" in <weft/session.h>. Functions
 * that build a graph report through the graph (see weft_graph_error); all others return a
 * weft_status or fill a weft_error.
 *
 * Shapes in comments read [batch, heads, query_len, key_len]; `...` stands for any number of
 * leading dimensions. Strides and offsets count elements, sizes named `bytes` count bytes.
 *
 * Options: a function that takes a struct of options treats NULL as a struct of zeros, and a zero
 * field as the default that the field's comment names. Where it names none, zero is simply zero,
 * false or no value. A field marked `required` has no default: zero is an error that names it.
 * Where zero makes sense but is not the default, WEFT_ZERO asks for it.
 *
 * The headers are C11 and C++17. A program that is to compile as both avoids compound literals and
 * designated initialisers: WEFT_DEFAULTS(type) begins a struct of options, WEFT_VALUES(a, b) passes
 * a list of values.
 */
#ifndef WEFT_GRAPH_H
#define WEFT_GRAPH_H

#include <weft/tensor.h>

#include <stdio.h>

#ifdef __cplusplus
#include <initializer_list>
extern "C" {
#endif

/* Zero itself, for a field whose 0 is another default: `options.beta1 = WEFT_ZERO`. */
#define WEFT_ZERO (-1.0)
/* The number that such a field means: `standard` for 0, 0 for WEFT_ZERO, else what was given. */
static inline double weft_option(double given, double standard)
{
    return given == WEFT_ZERO ? 0.0 : given != 0.0 ? given : standard;
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
    X(INTERNAL, "weft's own check failed")

typedef enum weft_status {
#define WEFT_STATUS_ENUM(name, text) WEFT_##name,
    WEFT_STATUS_MAP(WEFT_STATUS_ENUM)
#undef WEFT_STATUS_ENUM
} weft_status;

/* The status's text, one of WEFT_STATUS_MAP; "unknown status" for any other number. */
WEFT_API const char *weft_status_text(weft_status status);

/* What went wrong, and where. `where` names the node by scope and op, the file, or the function,
 * and is never empty; `message` is one line without newline that says what was found and what was
 * expected. */
typedef struct weft_error {
    weft_status status;
    char where[128];
    char message[384];
} weft_error;

#define WEFT_NO_ERROR (WEFT_LITERAL(weft_error){WEFT_OK, "", ""})

/* Fills *error (which may be NULL) if it holds no error yet; returns `status`. An empty or NULL
 * `where` becomes "weft". */
WEFT_API weft_status weft_error_set(weft_error *error, weft_status status, const char *where,
                                    const char *format, ...) WEFT_PRINTF(4, 5);
/* Copies *from, which may be NULL, into *error, which may be NULL, unless *error already holds an
 * error. Returns the status of *from; WEFT_OK for NULL. */
WEFT_API weft_status weft_error_copy(weft_error *error, const weft_error *from);

/* Memory for tensors: zero, 64-byte aligned, and if it is large on huge pages where the system has
 * them, which are faster to reach. NULL if there is none; the caller gives it to free(). */
WEFT_API void *weft_alloc(size_t bytes);

/* ---- The graph ------------------------------------------------------------------------------ */

typedef struct weft_graph weft_graph;

/* A value of a graph: an id, and the tag of the graph that it belongs to. Pass by value. Tags are
 * counted up in a process, so that a value of a freed graph is refused by later ones; after 2^32
 * graphs (each plan makes about five) they repeat. */
typedef struct weft_value {
    uint32_t id;
    uint32_t graph;
} weft_value;

#define WEFT_NO_VALUE (WEFT_LITERAL(weft_value){0, 0})
static inline bool weft_is_value(weft_value v)
{
    return v.id != 0;
}

/* Two arguments at once, a list of values and their number, for functions that take `const
 * weft_value *values, size_t count`: weft_plan_new(graph, WEFT_VALUES(loss, step), NULL, &error).
 * The list lasts as long as the call. */
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

/* Nodes that a graph may have, those that gradients and passes add included: planning takes time
 * with the square of their number. One more is WEFT_TOO_LARGE. */
#define WEFT_MAX_NODES 1048576
/* NULL only when memory is out. Freeing the graph frees all that it made; NULL is allowed. */
WEFT_API weft_graph *weft_graph_new(void);
WEFT_API void weft_graph_free(weft_graph *graph);

/* Errors are sticky: the first failing call is recorded, returns WEFT_NO_VALUE, and every later
 * call on the graph returns WEFT_NO_VALUE at once. Ask once, when the model is built. The record
 * lives as long as the graph; a NULL graph gives a record that says so. */
WEFT_API const weft_error *weft_graph_error(const weft_graph *graph);
WEFT_API weft_status weft_graph_status(const weft_graph *graph);
/* Records an error of the caller's own (a layer that refuses its options); the first one stays.
 * `where` becomes the name scope, or "graph" outside of all. */
WEFT_API void weft_graph_fail(weft_graph *graph, weft_status status, const char *format, ...)
    WEFT_PRINTF(3, 4);
/* The same of a named function or layer: `where` becomes "SCOPE/NAME", or NAME outside of all. */
WEFT_API void weft_graph_fail_in(weft_graph *graph, const char *name, weft_status status,
                                 const char *format, ...) WEFT_PRINTF(4, 5);

/* Name scopes: names given inside "enc", "0" read `enc.0.NAME`. They appear in errors, DOT,
 * profiles and parameter files alike. The format is printf's. */
WEFT_API void weft_scope_push(weft_graph *graph, const char *format, ...) WEFT_PRINTF(2, 3);
WEFT_API void weft_scope_pop(weft_graph *graph);

/* A tensor that the program feeds before a run; it keeps its contents over runs. A run of a plan
 * that needs it fails while it was never fed. */
WEFT_API weft_value weft_input(weft_graph *graph, const char *name, weft_dtype dtype,
                               weft_shape shape);
/* Every element of the input is `value` until it is fed, so that it need not be. The dtype must
 * hold the value: an i32 whole numbers of its range, a bool 0 and 1. */
WEFT_API void weft_input_default(weft_graph *graph, weft_value input, double value);

/* How a state tensor gets its first contents; fans are taken from the shape: fan_in = the
 * second-last dimension, fan_out = the last ([in, out] weights), receptive = the rest. */
typedef enum weft_init_kind {
    WEFT_INIT_CONSTANT,        /* a, which must fit the dtype: see <weft/ops.h> */
    WEFT_INIT_UNIFORM,         /* U[a, b) */
    WEFT_INIT_NORMAL,          /* N(mean a, standard deviation b) */
    WEFT_INIT_XAVIER_UNIFORM,  /* U(+-a sqrt(6 / (fan_in + fan_out))), Glorot & Bengio 2010 */
    WEFT_INIT_XAVIER_NORMAL,   /* N(0, a sqrt(2 / (fan_in + fan_out))) */
    WEFT_INIT_KAIMING_UNIFORM, /* U(+-a sqrt(3 / fan_in)), gain a, He et al. 2015 */
    WEFT_INIT_KAIMING_NORMAL   /* N(0, a / sqrt(fan_in)) */
} weft_init_kind;

typedef struct weft_init {
    weft_init_kind kind;
    double a, b;
} weft_init;

#define WEFT_INIT_ZEROS  (WEFT_LITERAL(weft_init){WEFT_INIT_CONSTANT, 0, 0})
#define WEFT_INIT_ONES   (WEFT_LITERAL(weft_init){WEFT_INIT_CONSTANT, 1, 0})
#define WEFT_INIT_XAVIER (WEFT_LITERAL(weft_init){WEFT_INIT_XAVIER_UNIFORM, 1, 0})

/* A trainable tensor of the parameter store, known there by its scoped name. Declaring the same
 * scoped name twice with equal dtype and shape gives the same value (shared weights); with others
 * it is an error. */
WEFT_API weft_value weft_param(weft_graph *graph, const char *name, weft_dtype dtype,
                               weft_shape shape, weft_init init);
/* The same, but not trainable: optimiser moments, step counters, caches, running statistics. */
WEFT_API weft_value weft_state(weft_graph *graph, const char *name, weft_dtype dtype,
                               weft_shape shape, weft_init init);
/* The trainable parameters declared so far, in order of declaration. Writes at most `capacity` of
 * them and returns how many there are, which may be more: ask with NULL and 0 first, or compare. A
 * training step or a gradient check of all parameters needs no list: pass it NULL and 0. */
WEFT_API size_t weft_graph_params(const weft_graph *graph, weft_value *params, size_t capacity);

/* A constant tensor; the contiguous `data` is copied. */
WEFT_API weft_value weft_constant_data(weft_graph *graph, weft_dtype dtype, weft_shape shape,
                                       const void *data);
/* Ties values together: a target that stands for all of them (the updates of a training step). */
WEFT_API weft_value weft_group(weft_graph *graph, const weft_value *values, size_t count);

/* Gives a value a scoped name of its own. Returns the value. */
WEFT_API weft_value weft_name(weft_graph *graph, weft_value value, const char *name);
/* The value that was named so (inputs, states, weft_name); WEFT_NO_VALUE if there is none. */
WEFT_API weft_value weft_find(const weft_graph *graph, const char *scoped_name);

/* Of a valid value; for any other: rank 0 and WEFT_F32, and "". */
WEFT_API weft_shape weft_shape_of(const weft_graph *graph, weft_value value);
WEFT_API weft_dtype weft_dtype_of(const weft_graph *graph, weft_value value);
WEFT_API int64_t weft_dim(const weft_graph *graph, weft_value value, int axis); /* axis may be <0 */
WEFT_API int weft_rank(const weft_graph *graph, weft_value value);
WEFT_API const char *weft_name_of(const weft_graph *graph, weft_value value);

WEFT_API size_t weft_graph_node_count(const weft_graph *graph);

/* Checks every invariant of the graph (ids, order, arities, shapes re-inferred). For tests. */
WEFT_API weft_status weft_graph_verify(const weft_graph *graph, weft_error *error);

/* ---- DOT export ----------------------------------------------------------------------------- */

/* How one node is drawn; what stays empty is drawn as usual. */
typedef struct weft_dot_node {
    char color[16]; /* to fill it with, "#rrggbb" */
    char line[96];  /* one more line of its label */
} weft_dot_node;

typedef struct weft_dot_options {
    /* Called for each node with a zeroed *node; may be NULL. */
    void (*decorate)(void *user, const weft_graph *graph, size_t index, weft_dot_node *node);
    void *user;
} weft_dot_options;

/* Writes the graph as Graphviz's DOT text, name scopes as clusters. `options` may be NULL. */
WEFT_API weft_status weft_graph_dot(const weft_graph *graph, FILE *file,
                                    const weft_dot_options *options, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
