/* weft/op.h - what an op is: for those who write one, inside the library or outside.
 *
 * An op is one constant descriptor. weft_apply puts a node of it into a graph; a program's own op
 * needs nothing more than a descriptor of its own. The graph, the planner, the executor, autodiff
 * and the generated tests know an op by its descriptor only.
 *
 * An op needs a name, a shape rule (infer), one to WEFT_MAX_OUTPUTS outputs, and something that
 * computes it: a kernel, an expansion into other ops, or, of a view, alias. Everything else may
 * stay zero. weft_apply refuses an incomplete or contradictory descriptor.
 */
#ifndef WEFT_OP_H
#define WEFT_OP_H

#include <weft/call.h>
#include <weft/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_op weft_op;

/* What is known of a value before it has data. */
typedef struct weft_type {
    weft_dtype dtype;
    weft_shape shape;
} weft_type;

/* Where a value's elements lie in its storage; in elements. */
typedef struct weft_layout {
    int64_t stride[WEFT_MAX_RANK];
    int64_t offset; /* of element [0, ..., 0] */
} weft_layout;

/* The shape rule's view of a node: reads attr and in[], fills out[]. Returns true, or false after
 * weft_infer_fail. May adjust nothing else. */
typedef struct weft_infer {
    const weft_op *op;
    const void *attr;
    size_t n_in, n_out;
    const weft_type *in;
    weft_type *out;
    weft_error *error;
    const char *const
        *names; /* of the inputs' values, NULL for one without; NULL if all have none */
} weft_infer;

/* Sets the message (the caller adds where); returns false, for `return weft_infer_fail(...)`. */
WEFT_API bool weft_infer_fail(weft_infer *infer, weft_status status, const char *format, ...)
    WEFT_PRINTF(3, 4);
/* Writes what messages call input i, and returns `buffer`: the op's word for it or its number, and
 * the name of the value: `lr "schedule.rate"`, `input 2`. */
WEFT_API const char *weft_infer_input(const weft_infer *infer, size_t i, char *buffer, size_t size);
/* Common checks of shape rules: each returns true or fails with a message that names both. */
WEFT_API bool weft_infer_same_dtype(weft_infer *infer, size_t i, size_t j);
WEFT_API bool weft_infer_float(weft_infer *infer, size_t i);
WEFT_API bool weft_infer_dtype(weft_infer *infer, size_t i, weft_dtype dtype);
WEFT_API bool weft_infer_min_rank(weft_infer *infer, size_t i, int rank);
/* A number that an attribute has as a double and kernels use as an element of `dtype`: fails with
 * WEFT_BAD_ARGUMENT where it does not fit. Bool takes 0 and 1; i32 whole numbers that it has; f32
 * and f64 any number, NaN and infinities, but f32 no finite one that would round to an infinity.
 * After that `(T)value` is exact but for rounding. `name` is the attribute's, for the message. */
WEFT_API bool weft_infer_scalar(weft_infer *infer, const char *name, double value,
                                weft_dtype dtype);
/* Fails outside [0, rank). Builders convert axes that count from the end before they make the
 * attribute, so that kernels never see a negative axis. */
WEFT_API bool weft_infer_axis(weft_infer *infer, int rank, int axis, int *out);

/* For code that opens a parallel region; kernels must not. Sets *team to the threads that
 * the calling thread's next region may ask for, `threads` at most, so that OpenMP neither ends the
 * process nor waits for ever: see "Threads" in <weft/graph.h>. WEFT_NO_MEMORY if their stacks are
 * too small; *team is 1 then. */
WEFT_API weft_status weft_team(int threads, int *team, weft_error *error);

/* The work of a node, for plans, profiles and rooflines. */
typedef struct weft_cost {
    double flops; /* additions and multiplications; a transcendental function counts 10 */
    double bytes; /* that must be read and written */
} weft_cost;

/* Vector-Jacobian product: from the gradients of the outputs to those of the inputs, as nodes.
 * grad_out[i] is WEFT_NO_VALUE where no gradient arrives (zero). Fill grad_in[i] where wanted[i];
 * leave WEFT_NO_VALUE where it is zero. A grad_in may still have the shape that its input
 * broadcasts to: autodiff sums it back if `broadcasts` is set. */
typedef struct weft_vjp {
    weft_graph *graph;
    const void *attr;
    size_t n_in, n_out;
    const weft_value *in, *out, *grad_out;
    const bool *wanted;
    weft_value *grad_in;
} weft_vjp;

/* The op in terms of plainer ops: builds them from in[] and fills out[]. */
typedef struct weft_expand {
    weft_graph *graph;
    const void *attr;
    size_t n_in, n_out;
    const weft_value *in;
    weft_value *out;
} weft_expand;

/* Attribute structs are plain data without pointers, zero where unused (they are compared
 * bytewise); this table describes their fields for DOT and messages, which print `name=value`. */
typedef enum weft_attr_kind {
    WEFT_ATTR_INT,   /* int32_t */
    WEFT_ATTR_INT64, /* int64_t */
    WEFT_ATTR_BOOL,  /* bool */
    WEFT_ATTR_DOUBLE,
    WEFT_ATTR_TEXT,  /* char array, NUL terminated */
    WEFT_ATTR_SHAPE, /* weft_shape */
    WEFT_ATTR_DTYPE, /* weft_dtype */
    WEFT_ATTR_INTS,  /* an array: int32_t count, then int32_t[WEFT_MAX_RANK], as weft_axes */
    WEFT_ATTR_INT64S /* an array: int32_t count, then int64_t[WEFT_MAX_RANK], as weft_shape */
} weft_attr_kind;

typedef struct weft_attr_field {
    const char *name;
    weft_attr_kind kind;
    size_t offset;
} weft_attr_field;

/* One input of a sample. `dtype` WEFT_DTYPES stands for the floating type under test. Values are
 * drawn uniformly from [low, high) (an integer type: whole numbers; bool: high is the probability
 * of true); `distinct` keeps them at least 0.05 apart (so that max, relu and such are smooth
 * around them) and away from zero. */
typedef struct weft_sample_input {
    weft_dtype dtype;
    weft_shape shape;
    double low, high;
    bool distinct;
} weft_sample_input;
#define WEFT_FLOAT WEFT_DTYPES

#define WEFT_SAMPLE_INPUTS 8
/* One node to test the op with: small, so that gradients can be checked element by element. */
typedef struct weft_sample {
    const void *attr;
    size_t n_in;
    weft_sample_input in[WEFT_SAMPLE_INPUTS];
} weft_sample;

/* The layouts of inputs that kernels take; for any other layout a pass inserts a copy. */
typedef enum weft_takes {
    WEFT_TAKES_DENSE,  /* contiguous row-major */
    WEFT_TAKES_ROWS,   /* last dimension of stride 1 (or of size 1), the others any */
    WEFT_TAKES_MATRIX, /* one of the last two dimensions of stride 1, the other of a stride at
                          least its extent: what BLAS takes, transposed or not */
    WEFT_TAKES_ANY
} weft_takes;

typedef enum weft_gradient {
    WEFT_GRADIENT_VJP = 0, /* from vjp or expand; without both, differentiating is an error */
    WEFT_GRADIENT_ZERO,    /* zero almost everywhere: comparisons, argmax, integer results */
    WEFT_GRADIENT_NONE     /* none by design: differentiating through it is an error */
} weft_gradient;

#define WEFT_VARIADIC    255
#define WEFT_MAX_OUTPUTS 4

/* Kernels are indexed by instruction set: x86-64 baseline (or the portable build), v3 (AVX2, FMA)
 * and v4 (AVX-512); where one is NULL the next lower one serves. */
typedef enum weft_isa { WEFT_ISA_BASE, WEFT_ISA_V3, WEFT_ISA_V4, WEFT_ISAS } weft_isa;

struct weft_op {
    const char *name;
    const char *doc;               /* one paragraph with the formula */
    uint8_t min_in, max_in, n_out; /* max_in WEFT_VARIADIC: no upper limit */
    const char *inputs;            /* what they are, for messages: "param grad lr"; may be NULL */
    size_t attr_size;
    const weft_attr_field *attrs; /* ends with a NULL name; may be NULL */

    bool (*infer)(weft_infer *infer);

    weft_kernel kernel[WEFT_ISAS][WEFT_DTYPES];
    bool key_output; /* the kernel is chosen by output 0's dtype instead of input 0's */
    weft_takes takes;
    uint8_t phases;                             /* 0 means 1; a barrier between two phases */
    int64_t (*tiles)(const weft_call *call);    /* of call->phase; NULL: WEFT_TILEs of output 0 */
    size_t (*scratch)(const weft_call *call);   /* NULL: none */
    size_t (*workspace)(const weft_call *call); /* bytes for each thread; NULL: none */
    void (*cost)(const weft_call *call, weft_cost *cost); /* NULL: one flop an output element */

    /* A view: sets the layout of the output over the input's storage. Returns false if only a
     * contiguous input can be viewed so; then a copy is inserted. Views have no kernel. */
    bool (*alias)(const void *attr, const weft_type *in, const weft_layout *in_layout,
                  const weft_type *out, weft_layout *out_layout);

    /* How the op can be fused: run on a block of its output while that is in the cache, right after
     * the node that computed its input. The kernel of an elementwise op takes inputs and output of
     * any layout: see <weft/kernel.h>. */
    bool elementwise; /* an element of the output needs that element of the inputs, which broadcast
                       */
    /* Bit i: a row of the last dimension of the outputs needs that row of input i, and the whole of
     * the inputs without a bit. NULL, or 0: the op does not work row by row. */
    unsigned (*rowwise)(const void *attr);
    /* For an op that can be the head of a fused group: the block of output 0 that a tile of the
     * last phase writes. */
    void (*block)(const weft_call *call, int64_t tile, weft_block *block);

    uint8_t inplace; /* bit i: output 0 may take input i's storage, if of equal shape and dtype */
    uint8_t updates; /* the first `updates` inputs are states; output i is the new state i */
    bool can_fail;   /* its kernel calls weft_call_fail or weft_call_not_finite on some data: the
                        node is a guard, never computed before the run */
    bool random;     /* depends on the run's seed and step */
    bool broadcasts; /* inputs broadcast: autodiff sums gradients back to their shapes */

    weft_gradient gradient;
    void (*vjp)(weft_vjp *vjp);
    void (*expand)(weft_expand *expand); /* an op without kernels is always expanded */

    const weft_sample *samples;
    size_t n_samples;
};

/* Puts a node into the graph. `attr` is copied (attr_size bytes; NULL: zeros). Fills
 * outputs[0 .. n_out-1] if not NULL, and returns output 0. The graph's error is WEFT_NO_KERNEL if
 * nothing computes the op, or not for these dtypes. */
WEFT_API weft_value weft_apply(weft_graph *graph, const weft_op *op, const void *attr,
                               const weft_value *inputs, size_t count, weft_value *outputs);

/* Reading a graph: nodes 0 .. weft_graph_node_count-1 are in topological order. */
typedef struct weft_node_info {
    const weft_op *op;
    const void *attr;
    const uint32_t *in; /* ids of values */
    size_t n_in;
    uint32_t first_out; /* outputs are n_out ids in a row */
    size_t n_out;
    const char *scope; /* "enc.0.attn" or "" */
} weft_node_info;
WEFT_API weft_node_info weft_graph_node(const weft_graph *graph, size_t index);
WEFT_API weft_value weft_value_from_id(const weft_graph *graph, uint32_t id);
/* The node that makes a value. */
WEFT_API size_t weft_producer(const weft_graph *graph, weft_value value);
WEFT_API weft_layout weft_layout_of(const weft_graph *graph, weft_value value);
WEFT_API bool weft_layout_is_dense(weft_shape shape, const weft_layout *layout);

/* A key for a random op: other in each call on the graph, the same in each build of the model. */
WEFT_API uint64_t weft_random_key(weft_graph *graph);

/* The ops that the graph itself knows: leaves, the group, the copy that layouts need. */
extern WEFT_API const weft_op weft_op_input, weft_op_state, weft_op_constant, weft_op_group,
    weft_op_contiguous;

/* The instruction set that kernels are chosen for: the processor's best, or the lower one that the
 * environment variable WEFT_ISA (base, v3, v4) asks for. */
WEFT_API weft_isa weft_isa_best(void);
/* WEFT_BAD_ARGUMENT if WEFT_ISA has another value; weft_plan_new fails with it. */
WEFT_API weft_status weft_isa_check(weft_error *error);
WEFT_API const char *weft_isa_name(weft_isa isa);
/* The kernel for a dtype, NULL if there is none. */
WEFT_API weft_kernel weft_op_kernel(const weft_op *op, weft_isa isa, weft_dtype dtype);

/* FNV-1a of a text: the key of a name. */
static inline uint64_t weft_hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

#ifdef __cplusplus
}
#endif
#endif
