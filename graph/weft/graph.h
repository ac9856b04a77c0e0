/* weft/graph.h - the static graph of tensor operations, its plan, its sessions and its parameters.
 *
 * The way of a model: build a weft_graph with the functions of <weft/ops.h>; let weft_plan_new
 * give every buffer its place; open a weft_session on the plan and a parameter store; feed, run
 * and read results as often as wanted. Nothing is computed before weft_run, and weft_run
 * allocates nothing.
 *
 * Nothing here aborts, exits or prints. Functions that build a graph report through the graph
 * (see weft_graph_error); all others return a weft_status or fill a weft_error.
 *
 * Shapes in comments read [batch, heads, query_len, key_len]; `...` stands for any number of
 * leading dimensions. Strides and offsets count elements, sizes named `bytes` count bytes.
 */
#ifndef WEFT_GRAPH_H
#define WEFT_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WEFT_API          __attribute__((visibility("default")))
#define WEFT_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define WEFT_API
#define WEFT_PRINTF(f, a)
#endif

/* ---- Status and errors ---------------------------------------------------------------------- */

#define WEFT_STATUS_MAP(X)                                                                         \
    X(OK, "success")                                                                               \
    X(BAD_ARGUMENT, "bad argument")                                                                \
    X(BAD_SHAPE, "shapes do not fit")                                                              \
    X(BAD_DTYPE, "dtypes do not fit")                                                              \
    X(TOO_LARGE, "a size overflows")                                                               \
    X(NO_MEMORY, "out of memory")                                                                  \
    X(NO_GRADIENT, "no gradient exists")                                                           \
    X(NO_KERNEL, "no kernel for this dtype")                                                       \
    X(NO_BACKEND, "a shared library could not be loaded")                                          \
    X(BAD_INDEX, "an index is out of range")                                                       \
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

/* What went wrong, and where. `where` names the node by scope and op, the file, or the function;
 * `message` is one line without newline that says what was found and what was expected. */
typedef struct weft_error {
    weft_status status;
    char where[128];
    char message[384];
} weft_error;

/* Fills *error (which may be NULL) if it holds no error yet; returns `status`. */
WEFT_API weft_status weft_error_set(weft_error *error, weft_status status, const char *where,
                                    const char *format, ...) WEFT_PRINTF(4, 5);

/* ---- Types ---------------------------------------------------------------------------------- */

/* name, bytes per element, safetensors name */
#define WEFT_DTYPE_MAP(X)                                                                          \
    X(F32, f32, 4, "F32")                                                                          \
    X(F64, f64, 8, "F64")                                                                          \
    X(I32, i32, 4, "I32")                                                                          \
    X(BOOL, bool, 1, "BOOL")

typedef enum weft_dtype {
#define WEFT_DTYPE_ENUM(upper, lower, bytes, file) WEFT_##upper,
    WEFT_DTYPE_MAP(WEFT_DTYPE_ENUM)
#undef WEFT_DTYPE_ENUM
        WEFT_DTYPES
} weft_dtype;

WEFT_API const char *weft_dtype_name(weft_dtype dtype); /* "f32"; "?" if there is none such */
WEFT_API size_t weft_dtype_bytes(weft_dtype dtype);     /* 0 if there is none such */
static inline bool weft_dtype_is_float(weft_dtype d)
{
    return d == WEFT_F32 || d == WEFT_F64;
}

#define WEFT_MAX_RANK 8

typedef struct weft_shape {
    int32_t rank; /* 0: a scalar */
    int64_t dim[WEFT_MAX_RANK];
} weft_shape;

/* WEFT_SHAPE(30, 200, 512); a scalar is WEFT_SCALAR. */
#define WEFT_SHAPE(...)                                                                            \
    ((weft_shape){(int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#define WEFT_SCALAR ((weft_shape){0, {0}})

WEFT_API bool weft_shape_equal(weft_shape a, weft_shape b);
/* Number of elements; -1 if the rank or a dimension is invalid or the bytes of 8-byte elements
 * overflow. The one place where products of dimensions are checked. */
WEFT_API int64_t weft_shape_numel(weft_shape shape);
/* Writes "[2, 3]" and returns `buffer`. */
WEFT_API const char *weft_shape_text(weft_shape shape, char *buffer, size_t size);
/* NumPy's broadcasting of two shapes; false if they do not fit. */
WEFT_API bool weft_shape_broadcast(weft_shape a, weft_shape b, weft_shape *out);

/* A tensor in memory: what kernels, feeds, fetches and the parameter store exchange. */
typedef struct weft_tensor {
    void *data; /* element [0, ..., 0] */
    weft_dtype dtype;
    weft_shape shape;
    int64_t stride[WEFT_MAX_RANK]; /* in elements; 0 repeats, negative runs backwards */
} weft_tensor;

/* A contiguous row-major tensor over `data`, which stays the caller's. */
WEFT_API weft_tensor weft_tensor_dense(void *data, weft_dtype dtype, weft_shape shape);

/* ---- The graph ------------------------------------------------------------------------------ */

typedef struct weft_graph weft_graph;

/* A value of a graph: an id, and the tag of the graph that it belongs to. Pass by value. */
typedef struct weft_value {
    uint32_t id;
    uint32_t graph;
} weft_value;

#define WEFT_NO_VALUE ((weft_value){0, 0})
static inline bool weft_is_value(weft_value v)
{
    return v.id != 0;
}

/* NULL only when memory is out. Freeing the graph frees all that it made; NULL is allowed. */
WEFT_API weft_graph *weft_graph_new(void);
WEFT_API void weft_graph_free(weft_graph *graph);

/* Errors are sticky: the first failing call is recorded, returns WEFT_NO_VALUE, and every later
 * call on the graph returns WEFT_NO_VALUE at once. Ask once, when the model is built. The record
 * lives as long as the graph; a NULL graph gives a record that says so. */
WEFT_API const weft_error *weft_graph_error(const weft_graph *graph);
WEFT_API weft_status weft_graph_status(const weft_graph *graph);
/* Records an error of the caller's own (a layer that refuses its options); the first one stays. */
WEFT_API void weft_graph_fail(weft_graph *graph, weft_status status, const char *format, ...)
    WEFT_PRINTF(3, 4);

/* Name scopes: names given inside "enc", "0" read `enc.0.NAME`. They appear in errors, DOT,
 * profiles and parameter files alike. The format is printf's. */
WEFT_API void weft_scope_push(weft_graph *graph, const char *format, ...) WEFT_PRINTF(2, 3);
WEFT_API void weft_scope_pop(weft_graph *graph);

/* A tensor that the program feeds before a run; it keeps its contents over runs. */
WEFT_API weft_value weft_input(weft_graph *graph, const char *name, weft_dtype dtype,
                               weft_shape shape);

/* How a state tensor gets its first contents; fans are taken from the shape: fan_in = the
 * second-last dimension, fan_out = the last ([in, out] weights), receptive = the rest. */
typedef enum weft_init_kind {
    WEFT_INIT_CONSTANT,        /* a */
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

#define WEFT_INIT_ZEROS  ((weft_init){WEFT_INIT_CONSTANT, 0, 0})
#define WEFT_INIT_ONES   ((weft_init){WEFT_INIT_CONSTANT, 1, 0})
#define WEFT_INIT_XAVIER ((weft_init){WEFT_INIT_XAVIER_UNIFORM, 1, 0})

/* A trainable tensor of the parameter store, known there by its scoped name. Declaring the same
 * scoped name twice with equal dtype and shape gives the same value (shared weights); with others
 * it is an error. */
WEFT_API weft_value weft_param(weft_graph *graph, const char *name, weft_dtype dtype,
                               weft_shape shape, weft_init init);
/* The same, but not trainable: optimiser moments, step counters, caches, running statistics. */
WEFT_API weft_value weft_state(weft_graph *graph, const char *name, weft_dtype dtype,
                               weft_shape shape, weft_init init);
/* The trainable parameters declared so far, in order of declaration. Returns their number and
 * writes at most `capacity` of them. */
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

/* ---- The parameter store -------------------------------------------------------------------- */

typedef struct weft_params weft_params;

WEFT_API weft_params *weft_params_new(void); /* NULL only when memory is out */
WEFT_API void weft_params_free(weft_params *params);
/* Adds each state that the graph declares and the store lacks, with the contents that its
 * weft_init gives for this seed and name: the same whatever the order of declaration. One that
 * the store has in another dtype or shape is an error, and then nothing is added. */
WEFT_API weft_status weft_params_init(weft_params *params, const weft_graph *graph, uint64_t seed,
                                      weft_error *error);
/* Adds a zeroed tensor, or finds the one of that name if dtype and shape are equal. */
WEFT_API weft_status weft_params_add(weft_params *params, const char *name, weft_dtype dtype,
                                     weft_shape shape, weft_tensor *tensor, weft_error *error);
/* False if there is none. The data stay the store's, at the same address while it lives. */
WEFT_API bool weft_params_get(const weft_params *params, const char *name, weft_tensor *tensor);
WEFT_API size_t weft_params_count(const weft_params *params);
/* In order of addition. */
WEFT_API const char *weft_params_name(const weft_params *params, size_t index);

/* Metadata: short strings that travel with the store in its files. NULL if there is none. */
WEFT_API weft_status weft_params_set_meta(weft_params *params, const char *key, const char *text);
WEFT_API const char *weft_params_meta(const weft_params *params, const char *key);

/* safetensors files. Saving writes PATH.tmp, syncs it and renames it, so that PATH is always a
 * whole file; on failure PATH is as it was and PATH.tmp is removed. Loading checks every number of
 * the header against the file before it believes it; on failure the store is unchanged. Tensors of
 * the file replace those of the same name (dtype and shape must be equal) and add the others. */
WEFT_API weft_status weft_params_save(const weft_params *params, const char *path,
                                      weft_error *error);
WEFT_API weft_status weft_params_load(weft_params *params, const char *path, weft_error *error);

/* ---- The plan ------------------------------------------------------------------------------- */

typedef struct weft_plan weft_plan;

typedef struct weft_plan_options {
    bool no_reuse;    /* every buffer gets its own place (to test the planner) */
    const char *skip; /* names of optional passes to leave out, comma separated; may be NULL */
    bool verify;      /* run weft_graph_verify after each pass and weft_plan_check at the end */
} weft_plan_options;

typedef struct weft_plan_stats {
    size_t nodes;             /* after the passes */
    size_t groups;            /* sets of nodes that run side by side */
    size_t barriers;          /* of one run */
    size_t buffers;           /* placed in the arena */
    size_t sum_bytes;         /* of all buffers: the arena without reuse */
    size_t arena_bytes;       /* with reuse */
    size_t lower_bound_bytes; /* peak of live bytes: no arena for this schedule is smaller */
    size_t state_bytes;       /* parameters and other state that the plan uses */
    size_t workspace_bytes;   /* that a session has for each thread, beside the arena */
    double ratio;             /* arena_bytes / lower_bound_bytes; 1 if there are no buffers */
    double flops;             /* of one run */
    double bytes;             /* that one run must move between memory and processor */
} weft_plan_stats;

/* Plans the computation of the targets and of nothing else. Targets can be read after a run. The
 * graph is read only, and may be freed before the plan. `options` and `error` may be NULL. Returns
 * NULL on failure. A plan is immutable: threads may share it. */
WEFT_API weft_plan *weft_plan_new(const weft_graph *graph, const weft_value *targets, size_t count,
                                  const weft_plan_options *options, weft_error *error);
WEFT_API void weft_plan_free(weft_plan *plan);
WEFT_API weft_plan_stats weft_plan_get_stats(const weft_plan *plan);
/* The graph that the plan runs, after all passes; it lives as long as the plan. */
WEFT_API const weft_graph *weft_plan_graph(const weft_plan *plan);

/* One buffer of the arena: its bytes are its own while groups first..last run. */
typedef struct weft_plan_buffer {
    size_t offset, bytes;
    uint32_t first, last;
} weft_plan_buffer;
WEFT_API size_t weft_plan_buffers(const weft_plan *plan, const weft_plan_buffer **buffers);

/* Proves without the planner's code that no two live buffers overlap, that every node reads what
 * its producer wrote, and that the groups respect every dependency. */
WEFT_API weft_status weft_plan_check(const weft_plan *plan, weft_error *error);

/* ---- The session ---------------------------------------------------------------------------- */

typedef struct weft_session weft_session;

typedef struct weft_session_options {
    int threads;   /* 0: OpenMP's default. The results do not depend on it. */
    uint64_t seed; /* of dropout and other random ops */
    void *arena;   /* NULL: the session allocates its own. 64-byte aligned; sessions may share */
    size_t
        arena_bytes; /* one arena if they do not run at the same time and fetch before the next */
    bool poison;     /* fill buffers with 0xFF before their first writer: finds stale reads */
} weft_session_options;

/* Binds a plan to an arena and to the states of `params` (all must be there: weft_params_init).
 * The plan and the parameters must outlive the session. Returns NULL on failure. */
WEFT_API weft_session *weft_session_new(const weft_plan *plan, weft_params *params,
                                        const weft_session_options *options, weft_error *error);
WEFT_API void weft_session_free(weft_session *session);

/* Copies contiguous data into an input; `bytes` must be its size. An input that the targets do not
 * need is accepted and ignored. */
WEFT_API weft_status weft_feed(weft_session *session, weft_value input, const void *data,
                               size_t bytes);
/* Runs the plan once. On failure (an index out of range in the data) nothing later than the failing
 * group has run: states are as before if no update came earlier. Adds one to the step. */
WEFT_API weft_status weft_run(weft_session *session);
/* Copies a target or a state out as contiguous data; `bytes` must be its size. */
WEFT_API weft_status weft_fetch(const weft_session *session, weft_value target, void *data,
                                size_t bytes);
/* The same without a copy: valid until the next run. False if the value is none of them. */
WEFT_API bool weft_session_tensor(const weft_session *session, weft_value value,
                                  weft_tensor *tensor);
/* The number that random ops take their stream from: 0 at first, one more after each run. */
WEFT_API void weft_session_set_step(weft_session *session, uint64_t step);
WEFT_API const weft_error *weft_session_error(const weft_session *session);

/* ---- DOT export ----------------------------------------------------------------------------- */

/* Writes the graph as Graphviz's DOT text, name scopes as clusters. */
WEFT_API weft_status weft_graph_dot(const weft_graph *graph, FILE *file, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
