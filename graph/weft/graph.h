/* weft/graph.h - the static graph of tensor operations, its plan, its sessions and its parameters.
 *
 * The way of a model: build a weft_graph with the functions of <weft/ops.h>; let weft_plan_new
 * give every buffer its place; open a weft_session on the plan and a parameter store; feed, run
 * and read results as often as wanted. Nothing is computed before weft_run, and weft_run
 * allocates nothing.
 *
 * Nothing here aborts, exits or prints; for OpenMP, see "Threads". Functions that build a graph
 * report through the graph (see weft_graph_error); all others return a weft_status or fill a
 * weft_error.
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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
#include <initializer_list>
extern "C" {
#endif

#if defined(__GNUC__)
#define WEFT_API          __attribute__((visibility("default")))
#define WEFT_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define WEFT_API
#define WEFT_PRINTF(f, a)
#endif

/* A struct as an expression, WEFT_LITERAL(weft_init){WEFT_INIT_CONSTANT, 1, 0}, with all its fields
 * in their order; and one of zeros, WEFT_DEFAULTS(weft_plan_options). */
#ifdef __cplusplus
#define WEFT_LITERAL(type)  type
#define WEFT_DEFAULTS(type) (type{})
#else
#define WEFT_LITERAL(type)  (type)
#define WEFT_DEFAULTS(type) ((type){0})
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

/* Memory for tensors: zero, 64-byte aligned, and if it is large on huge pages where the system has
 * them, which are faster to reach. NULL if there is none; the caller gives it to free(). */
WEFT_API void *weft_alloc(size_t bytes);

/* ---- Types ---------------------------------------------------------------------------------- */

/* A bool is a byte, 0 or 1. In what comes from outside - weft_feed, weft_constant_data,
 * weft_params_load - any other byte is true, too, and becomes 1. Who writes through a pointer to a
 * tensor writes 0 or 1. */
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
#ifdef __cplusplus
#define WEFT_SHAPE(...) weft_shape_from(__VA_ARGS__)
extern "C++" {
template <typename... Dim> inline weft_shape weft_shape_from(Dim... dim)
{
    static_assert(sizeof...(dim) <= WEFT_MAX_RANK, "a shape has at most 8 dimensions");
    return weft_shape{static_cast<int32_t>(sizeof...(dim)), {static_cast<int64_t>(dim)...}};
}
}
#else
#define WEFT_SHAPE(...)                                                                            \
    ((weft_shape){(int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#endif
#define WEFT_SCALAR (WEFT_LITERAL(weft_shape){0, {0}})

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
/* Adds all tensors of `from` without a copy: both stores then name the same data, which stay those
 * of `from`; it must outlive `params`. A name that is in both is an error, and then nothing is
 * added. For a store with states of its own (caches) beside the parameters of another. */
WEFT_API weft_status weft_params_share(weft_params *params, const weft_params *from,
                                       weft_error *error);
/* False if there is none. The data stay the store's, at the same address while it lives. */
WEFT_API bool weft_params_get(const weft_params *params, const char *name, weft_tensor *tensor);
WEFT_API size_t weft_params_count(const weft_params *params);
/* In order of addition. */
WEFT_API const char *weft_params_name(const weft_params *params, size_t index);

/* Metadata: short strings that travel with the store in its files. NULL if there is none. */
WEFT_API weft_status weft_params_set_meta(weft_params *params, const char *key, const char *text);
WEFT_API const char *weft_params_meta(const weft_params *params, const char *key);

/* Saves the store as a safetensors file. PATH is always a whole file, also while several threads or
 * processes save to it: a new file of a unique name, PATH.XXXXXXXXXXXX.tmp (hexadecimal digits), is
 * written, synced and renamed to PATH. On failure PATH is as it was and nothing is left. A symbolic
 * link PATH is replaced, its target is not touched; a folder, pipe or device is refused. A process
 * that is killed while it saves leaves its temporary file, which may be removed. */
WEFT_API weft_status weft_params_save(const weft_params *params, const char *path,
                                      weft_error *error);
/* Loads a safetensors file. Its tensors replace those of the same name (dtype and shape must be
 * equal), the others are added. Every number of the header is checked against the file before it is
 * believed; on failure the store is unchanged. The header has at most 100,000,000 bytes, as with
 * other readers of the format, of which the description of one tensor takes at most 65,536
 * (WEFT_BAD_FILE), and at most 1,048,576 entries of metadata (WEFT_TOO_LARGE). */
WEFT_API weft_status weft_params_load(weft_params *params, const char *path, weft_error *error);

/* ---- Packing -------------------------------------------------------------------------------- */

/* Something that needs `size` bytes while time is in [lower, upper). */
typedef struct weft_pack_item {
    int64_t lower, upper;
    size_t size;
    size_t offset; /* from weft_pack */
} weft_pack_item;

typedef struct weft_pack_options {
    size_t capacity;      /* an arena of this size will do; 0: the smallest is wanted */
    size_t alignment;     /* of the offsets; sizes are rounded up to it; 0: 1 */
    uint64_t node_budget; /* of the search, whose nodes take from 1 us for some hundred items to
                             some 100 us for thousands; 0: 100,000 */
    double seconds;       /* of the search; 0: no limit. With one, the result depends on the speed
                             of the machine */
    bool best_fit_only;   /* no search */
} weft_pack_options;

/* How the search ended, and its text. */
#define WEFT_PACK_END_MAP(X)                                                                       \
    X(OPTIMAL, "proved optimal")                                                                   \
    X(CAPACITY, "within capacity")                                                                 \
    X(BUDGET, "budget spent")

typedef enum weft_pack_end {
#define WEFT_PACK_ENUM(name, text) WEFT_PACK_##name,
    WEFT_PACK_END_MAP(WEFT_PACK_ENUM)
#undef WEFT_PACK_ENUM
} weft_pack_end;

WEFT_API const char *weft_pack_end_text(weft_pack_end end);

typedef struct weft_pack_result {
    size_t arena_bytes;       /* where the highest item ends */
    size_t lower_bound_bytes; /* the largest sum of sizes alive at one time */
    weft_pack_end end;
    uint64_t nodes; /* of the search; 0 if best fit was good enough */
} weft_pack_result;

/* Gives every item an offset so that no two that live at the same time overlap: best fit in a few
 * orders, then a search for less. `options` and `error` may be NULL. Without a limit in seconds the
 * same items get the same offsets on every machine. */
WEFT_API weft_status weft_pack(weft_pack_item *items, size_t n, const weft_pack_options *options,
                               weft_pack_result *result, weft_error *error);

/* ---- The plan ------------------------------------------------------------------------------- */

typedef struct weft_plan weft_plan;

typedef struct weft_plan_options {
    bool no_reuse; /* every buffer gets its own place (to test the planner) */
    /* Names of optional passes to leave out, comma separated; may be NULL: cse (equal nodes become
     * one), fold (what constants give is computed in the plan), chain (nodes follow others block by
     * block), or all, for every optional pass. The environment variable WEFT_SKIP adds to them.
     * Another name is an error. */
    const char *skip;
    bool verify; /* run weft_graph_verify after each pass and weft_plan_check at the end */
} weft_plan_options;

typedef struct weft_plan_stats {
    size_t nodes;             /* after the passes */
    size_t groups;            /* sets of nodes that run side by side */
    size_t barriers;          /* of one run */
    size_t chained;           /* nodes that follow another block by block */
    size_t buffers;           /* placed in the arena */
    size_t sum_bytes;         /* of all buffers: the arena without reuse */
    size_t arena_bytes;       /* with reuse */
    size_t lower_bound_bytes; /* peak of live bytes: no arena for this schedule is smaller */
    size_t state_bytes;       /* parameters and other state that the plan uses */
    size_t workspace_bytes;   /* that a session has for each thread, beside the arena */
    double ratio;             /* arena_bytes / lower_bound_bytes; 1 if there are no buffers */
    weft_pack_end packed;     /* how the search for the smallest arena ended */
    double flops;             /* of one run */
    double bytes;             /* that one run must move between memory and processor */
} weft_plan_stats;

/* Plans the computation of the targets and of nothing else. Targets can be read after a run: a
 * computed value, or a state as an update left it, is what the node computed, whatever a later
 * update of the same run wrote; a state itself is what the parameter store holds. The graph is read
 * only, and may be freed before the plan. `options` and `error` may be NULL. Returns
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
 * its producer wrote, that every target is still what its node computed when the run has ended, and
 * that the groups respect every dependency. */
WEFT_API weft_status weft_plan_check(const weft_plan *plan, weft_error *error);

/* ---- Threads -------------------------------------------------------------------------------- */

/* Sessions run on OpenMP's threads; results never depend on how many there are.
 *
 * A session may have up to WEFT_MAX_THREADS, more than there are processors too, as far as the plan
 * has work to share out. weft_session_new makes the threads, and so does the first weft_run of
 * another thread of the program, which has OpenMP threads of its own. If the system refuses some,
 * the calling thread's sessions run on fewer from then on. A run has one thread if the plan is
 * tiny, and inside a parallel region of the program, unless OMP_MAX_ACTIVE_LEVELS allows more.
 *
 * Stack: every function here works in WEFT_STACK_BYTES, called from whichever thread; making the
 * threads takes up to 256 bytes more for each. OpenMP's threads need as much: with a smaller
 * OMP_STACKSIZE, weft_session_new and weft_run return WEFT_NO_MEMORY.
 *
 * fork: in the child, the thread that forked runs sessions, those of the parent and new ones, on
 * itself alone if the parent had other threads, since OpenMP's are gone. Other threads of the child
 * run sessions on as many as in any process. A session that another thread was running at the fork
 * must not be used in the child.
 *
 * What OpenMP itself may still do: print a line about an environment variable that it does not
 * understand; and end the process when memory, or the permitted number of threads, runs out between
 * weft's trial and the use. The program's own parallel regions are not protected. */
#define WEFT_MAX_THREADS 1024
#define WEFT_STACK_BYTES 65536

/* The threads that a session has if it is not told: OpenMP's default (omp_get_max_threads), but no
 * more than the processors that the process may use. */
WEFT_API int weft_default_threads(void);

/* ---- The session ---------------------------------------------------------------------------- */

typedef struct weft_session weft_session;

typedef struct weft_session_options {
    int threads;   /* 0: weft_default_threads(); at most WEFT_MAX_THREADS */
    uint64_t seed; /* of dropout and other random ops */
    void *arena;   /* NULL: the session allocates its own. 64-byte aligned; sessions may share one
                      arena if they do not run at the same time and fetch before the next; a feed
                      then lasts until another of them is fed or runs */
    size_t arena_bytes;
    void *workspace; /* what the kernels work in, likewise; nothing in it lasts from run to run */
    size_t workspace_bytes; /* at least weft_session_workspace */
    bool poison; /* fill buffers with 0xFF before their first writer: finds stale reads */
} weft_session_options;

/* Binds a plan to an arena and to the states of `params` (all must be there: weft_params_init).
 * The plan and the parameters must outlive the session. Returns NULL on failure. */
WEFT_API weft_session *weft_session_new(const weft_plan *plan, weft_params *params,
                                        const weft_session_options *options, weft_error *error);
WEFT_API void weft_session_free(weft_session *session);
/* The bytes of workspace that a session with `threads` of weft_session_options needs. */
WEFT_API size_t weft_session_workspace(const weft_plan *plan, int threads);

/* Copies contiguous data into an input; `bytes` must be its size. An input that the targets do not
 * need is accepted and ignored. A failing call of this section sets weft_session_error. */
WEFT_API weft_status weft_feed(weft_session *session, weft_value input, const void *data,
                               size_t bytes);
/* Runs the plan once. WEFT_NOT_FOUND, with the name of an input that was never fed and has no
 * default, before anything ran. On another failure (an index out of range in the data) nothing
 * later than the failing group has run: states are as before if no update came earlier. Adds one to
 * the step, unless an input was not fed. */
WEFT_API weft_status weft_run(weft_session *session);
/* Copies a target, an input, or a state as the store holds it out as contiguous data; `bytes` must
 * be its size. WEFT_NOT_FOUND if the value is none of them. */
WEFT_API weft_status weft_fetch(weft_session *session, weft_value target, void *data, size_t bytes);
/* The same without a copy: valid until the next run. False if the value is none of them. What is
 * written to the tensor of an input is its feed: the input counts as fed. */
WEFT_API bool weft_session_tensor(weft_session *session, weft_value value, weft_tensor *tensor);
/* Finds out where numbers stop being finite: runs the plan again on the same feeds and step, node
 * by node and without its updates, and looks at what each node reads of states and what it writes.
 * WEFT_OK if all is finite; WEFT_NOT_FINITE, and in *found (may be NULL) the first node's name and
 * the element, or the state's; WEFT_NOT_FOUND if an input was never fed. Infinities that an
 * attribute asks for, and what comes of them, are allowed; NaN never. What targets held is lost.
 * For use after a run that went wrong: it is slow.
 */
WEFT_API weft_status weft_session_find_nonfinite(weft_session *session, weft_error *found);
/* The number that random ops take their stream from: 0 at first, one more after each run. */
WEFT_API void weft_session_set_step(weft_session *session, uint64_t step);
WEFT_API const weft_error *weft_session_error(const weft_session *session);

/* ---- The profile ---------------------------------------------------------------------------- */

/* Where the time of a session's runs went. A thread reads the clock at the end of each stretch of a
 * step that it computed and after each barrier, so that all its time from the beginning of weft_run
 * to its end is one of
 *   compute: inside the kernels of a step;
 *   waiting: at the barrier behind a step (the end of the run is one), until the last thread came.
 *            Steps with no barrier between them share it in proportion to their compute time;
 *   start:   from the call of weft_run until the thread came to the first step.
 * Added up over the threads the three are exactly threads x duration, run by run. */
typedef struct weft_profile weft_profile;

typedef struct weft_profile_options {
    size_t trace_runs; /* runs, the latest ones, of which each stretch is kept for the trace */
} weft_profile_options;

/* Switches measuring on, from zero, or off. All memory is taken here and none in a run; switched
 * off a run does nothing for it. The results of runs are the same bits. `options` may be NULL. Not
 * while the session runs. WEFT_NO_MEMORY leaves all as it was; weft_session_error tells more. */
WEFT_API weft_status weft_session_profile(weft_session *session, bool on,
                                          const weft_profile_options *options);
/* What was measured; NULL if it was never switched on. It is the session's, until that is freed or
 * measuring is switched on again; read it between runs. */
WEFT_API const weft_profile *weft_session_get_profile(const weft_session *session);

/* Sums over all runs. compute + waiting + start = thread_seconds. */
typedef struct weft_profile_totals {
    size_t runs;           /* failed ones included */
    int threads;           /* of the last run */
    double wall_seconds;   /* of the runs, from the call of weft_run to its end */
    double thread_seconds; /* the same times the threads */
    double compute_seconds, waiting_seconds, start_seconds; /* over all threads */
    double flops, bytes;                                    /* as the ops count them */
} weft_profile_totals;
WEFT_API weft_profile_totals weft_profile_get_totals(const weft_profile *profile);

/* What the machine reaches at best on all threads: see <weft/measure.h>. */
typedef struct weft_peaks {
    double flops_per_second, bytes_per_second;
} weft_peaks;

typedef enum weft_profile_by {
    WEFT_PROFILE_BY_NODE, /* a row for each node of weft_plan_graph that computes */
    WEFT_PROFILE_BY_OP,
    WEFT_PROFILE_BY_SCOPE
} weft_profile_by;

typedef struct weft_profile_row {
    const char
        *name; /* of the node's value, or scope/op; of the op; of the scope, which may be "" */
    const char *op, *scope; /* of a node; "" in other rows, but for the one that gives the name */
    const char *shape;      /* of a node: of its first output, "f32 [2, 3]"; else "" */
    size_t node;            /* of a node: its index in weft_plan_graph; else SIZE_MAX */
    size_t nodes;           /* in this row */
    uint64_t calls;         /* runs of its nodes */
    double compute_seconds, waiting_seconds; /* over all threads */
    double flops, bytes;                     /* of all calls, as the ops count them */
    /* What all calls would take with all threads at the peaks: of each the longer of flops and
     * bytes over its rate (the roofline, Williams et al. 2009). 0 without peaks. */
    double roofline_seconds;
} weft_profile_row;

/* Rows in order of first appearance in the schedule. `depth` > 0 keeps that many components of a
 * scope ("enc.0" of "enc.0.attn.q" for 2). `peaks` may be NULL. The rows and their texts are one
 * block of memory, the caller's, to be given back to weft_profile_free_rows; they do not need the
 * profile any more. */
WEFT_API weft_status weft_profile_rows(const weft_profile *profile, weft_profile_by by, int depth,
                                       const weft_peaks *peaks, weft_profile_row **rows,
                                       size_t *count, weft_error *error);
WEFT_API void weft_profile_free_rows(weft_profile_row *rows);

/* Writes the kept runs as a trace for Perfetto or chrome://tracing: JSON of the Trace Event Format,
 * a track for each thread, an event for each stretch of a step. Gaps are waiting. */
WEFT_API weft_status weft_profile_trace(const weft_profile *profile, FILE *file, weft_error *error);

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
/* Draws the graph that was run: nodes that compute are the redder the larger their share of the
 * time (compute and waiting), and say time a run and share. */
WEFT_API weft_status weft_profile_dot(const weft_profile *profile, FILE *file, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
