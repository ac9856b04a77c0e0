/* weft/op.h - the descriptor of an op, for authors of ops inside and outside of the library.
 *
 * An op is one constant weft_op, its descriptor. weft_apply adds a node of the op to a graph. The
 * graph, the planner, the executor, autodiff and the generated tests know an op only by its
 * descriptor, so a program's own op is as good as a built-in one.
 *
 * A descriptor needs a name, a shape rule (infer), 1 to WEFT_MAX_OUTPUTS outputs, and one of three
 * ways to compute them: kernels, an expansion into other ops (expand), or, for a view, alias. All
 * other fields may be zero. weft_apply refuses an incomplete or contradictory descriptor.
 */
#ifndef WEFT_OP_H
#define WEFT_OP_H

#include <weft/call.h>
#include <weft/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_op weft_op;
typedef struct weft_export weft_export; /* <weft/export.h> */
typedef struct weft_pass weft_pass;     /* <weft/pass.h> */
typedef struct weft_source weft_source; /* <weft/source.h> */

/* The type of a value. */
typedef struct weft_type {
    weft_dtype dtype;
    weft_shape shape;
} weft_type;

/* Where a value's elements lie in its storage. Strides and offset count elements. */
typedef struct weft_layout {
    int64_t stride[WEFT_MAX_RANK];
    int64_t offset; /* of element [0, ..., 0] */
} weft_layout;

/* The argument of a shape rule. The rule reads attr and in[], fills out[], and returns true; or
 * calls weft_infer_fail and returns false. It changes nothing else. */
typedef struct weft_infer {
    const weft_op *op;
    const void *attr;
    size_t n_in, n_out;
    const weft_type *in;      /* [n_in] */
    weft_type *out;           /* [n_out] */
    weft_error *error;        /* for weft_infer_fail */
    const char *const *names; /* [n_in], NULL for a value without one; may itself be NULL */
} weft_infer;

/* Sets status and message; the caller of the rule adds where. Returns false, so that a rule can end
 * with `return weft_infer_fail(...)`. The format is printf's. */
WEFT_API bool weft_infer_fail(weft_infer *infer, weft_status status, const char *format, ...)
    WEFT_PRINTF(3, 4);
/* Writes the name of input i for messages, and returns `buffer`: the op's word for it or its
 * number, and the name of the value if it has one: `lr "schedule.rate"`, `input 2`. */
WEFT_API const char *weft_infer_input(const weft_infer *infer, size_t i, char *buffer, size_t size);
/* Checks for shape rules. Each returns true, or fails with a message that names the inputs: that i
 * and j have the same dtype; that i is f32 or f64; that i has this dtype; that i has at least this
 * rank. */
WEFT_API bool weft_infer_same_dtype(weft_infer *infer, size_t i, size_t j);
WEFT_API bool weft_infer_float(weft_infer *infer, size_t i);
WEFT_API bool weft_infer_dtype(weft_infer *infer, size_t i, weft_dtype dtype);
WEFT_API bool weft_infer_min_rank(weft_infer *infer, size_t i, int rank);
/* Checks that `dtype` can represent the number of an attribute, which kernels convert: bool takes 0
 * and 1, i32 whole numbers from -2^31 to 2^31 - 1, f32 and f64 any number, infinity or NaN, except
 * that f32 refuses a finite number that would round to an infinity. Fails with WEFT_BAD_ARGUMENT
 * and the attribute's `name`. After it, `(T)value` is defined, and exact but for rounding. */
WEFT_API bool weft_infer_scalar(weft_infer *infer, const char *name, double value,
                                weft_dtype dtype);
/* Sets *out to `axis`, or fails if it is outside [0, rank). Builders convert axes that count from
 * the end before they make the attribute, so kernels never see a negative axis. */
WEFT_API bool weft_infer_axis(weft_infer *infer, int rank, int axis, int *out);

/* The work of a node, for plans, profiles and rooflines. */
typedef struct weft_cost {
    double flops; /* additions and multiplications; a transcendental function counts 10 */
    double bytes; /* that must be read or written at least once */
} weft_cost;

/* The argument of a vector-Jacobian product, which builds the gradients of the inputs from those of
 * the outputs, as nodes. grad_out[i] is WEFT_NO_VALUE if the gradient of output i is zero. The rule
 * fills grad_in[i] where wanted[i] is true, and leaves WEFT_NO_VALUE where the gradient is zero. If
 * the op sets `broadcasts`, grad_in[i] may have the shape that input i is broadcast to; autodiff
 * sums it back. */
typedef struct weft_vjp {
    weft_graph *graph;
    const void *attr;
    size_t n_in, n_out;
    const weft_value *in, *out, *grad_out;
    const bool *wanted;
    weft_value *grad_in;
} weft_vjp;

/* The argument of an expansion, which builds the op from simpler ops on in[] and fills out[]. */
typedef struct weft_expand {
    weft_graph *graph;
    const void *attr;
    size_t n_in, n_out;
    const weft_value *in;
    weft_value *out;
} weft_expand;

/* The argument of a batching rule (weft_vmap), which builds the op for a batch of `size` examples as
 * nodes. Where batched[i], in[i] holds input i of all examples, [size, ...]; elsewhere all examples
 * share in[i]. At least one input is batched. The rule fills out[k] with output k of all examples,
 * [size, ...]. one_in[i] and one_out[k] are the values of one example, for their shapes only. */
typedef struct weft_batch {
    weft_graph *graph;
    const weft_op *op;
    const void *attr;
    size_t n_in, n_out;
    int64_t size;
    const weft_value *in, *one_in, *one_out;
    const bool *batched;
    weft_value *out;
} weft_batch;

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

/* Writes the field of the attributes `attr` as text, and returns `buffer`: a bool is "yes" or "no",
 * an array "[0,2,1]". Text that does not fit is cut; `size` is at least 1. */
WEFT_API const char *weft_attr_text(const weft_attr_field *field, const void *attr, char *buffer,
                                    size_t size);

/* One input of a sample. `dtype` WEFT_FLOAT is the floating-point type under test. Values are
 * uniform in [low, high): whole numbers for an integer type; for bool, `high` is the probability of
 * true. With `distinct` they are at least 0.05 apart and away from zero, so that ops such as max
 * and relu are smooth around them. */
typedef struct weft_sample_input {
    weft_dtype dtype;
    weft_shape shape;
    double low, high;
    bool distinct;
} weft_sample_input;
#define WEFT_FLOAT WEFT_DTYPES

#define WEFT_SAMPLE_INPUTS 8
/* A node for tests of the op, small enough to check gradients element by element. */
typedef struct weft_sample {
    const void *attr;
    size_t n_in;
    weft_sample_input in[WEFT_SAMPLE_INPUTS];
} weft_sample;

/* The layouts that an op accepts for its inputs; for others, a pass inserts a copy. */
typedef enum weft_takes {
    WEFT_TAKES_DENSE,  /* contiguous row-major */
    WEFT_TAKES_ROWS,   /* the last dimension has stride 1 or size 1; the others are arbitrary */
    WEFT_TAKES_MATRIX, /* a matrix as BLAS takes it, transposed or not: one of the last two
                          dimensions has stride 1, and the other's stride is at least that one's
                          size */
    WEFT_TAKES_ANY
} weft_takes;

typedef enum weft_gradient {
    WEFT_GRADIENT_VJP = 0, /* from vjp, or from expand; without both, differentiating is an error */
    WEFT_GRADIENT_ZERO,    /* zero almost everywhere: comparisons, argmax, integer results */
    WEFT_GRADIENT_NONE,    /* none by design: differentiating through the op is an error */
    WEFT_GRADIENT_STRAIGHT /* from vjp, which differentiates a surrogate, such as the op without its
                              rounding: gradient checks leave it out */
} weft_gradient;

#define WEFT_VARIADIC    255
#define WEFT_NARROW_ALL  255
#define WEFT_MAX_OUTPUTS 32

/* Instruction sets of kernels: the x86-64 baseline or the portable build, v3 (AVX2, FMA), v4
 * (AVX-512), v4_bf16 (AVX-512 with dot products of bf16) and v4_amx (with products of tiles of
 * bf16), if these are those that docs/arithmetic.md specifies. weft's kernels compute the same bits with all of them. Where a
 * kernel is NULL, the next lower instruction set's is used. */
typedef enum weft_isa {
    WEFT_ISA_BASE,
    WEFT_ISA_V3,
    WEFT_ISA_V4,
    WEFT_ISA_V4_BF16,
    WEFT_ISA_V4_AMX,
    WEFT_ISAS
} weft_isa;

struct weft_op {
    const char *name;
    const char *doc;               /* one paragraph with the formula */
    uint8_t min_in, max_in, n_out; /* max_in WEFT_VARIADIC: no upper limit */
    const char *inputs;            /* their words in messages: "param grad lr"; may be NULL */
    size_t attr_size;
    const weft_attr_field *attrs; /* ends with a NULL name; may be NULL */

    bool (*infer)(weft_infer *infer);

    weft_kernel kernel[WEFT_ISAS][WEFT_DTYPES];
    bool key_output; /* the kernel is chosen by output 0's dtype instead of input 0's */
    weft_takes takes;
    uint8_t phases;                             /* 1 or 2, 0 means 1; a barrier separates two */
    int64_t (*tiles)(const weft_call *call);    /* of call->phase; NULL: WEFT_TILEs of output 0 */
    size_t (*scratch)(const weft_call *call);   /* NULL: none */
    size_t (*workspace)(const weft_call *call); /* bytes for each thread; NULL: none */
    /* NULL: a flop for each element of output 0, and the bytes of all inputs and outputs */
    void (*cost)(const weft_call *call, weft_cost *cost);

    /* For a view, which has no kernel: sets the layout of the output over the input's storage.
     * Returns false if the input's layout does not allow it; a copy is inserted then. It must allow
     * a contiguous input. */
    bool (*alias)(const void *attr, const weft_type *in, const weft_layout *in_layout,
                  const weft_type *out, weft_layout *out_layout);

    /* Fusion: the node may run on a block of its output right after the node before it has computed
     * that block of an input, while the block is in the cache. */
    /* An output element depends only on the same element of the inputs, which broadcast. The kernel
     * must accept inputs and an output of any layout: see <weft/kernel.h>. */
    bool elementwise;
    /* Bit i: a row of the outputs (their last dimension) depends on the same row of input i, and on
     * the whole of the inputs without a bit. NULL, or 0: the op does not work row by row. */
    unsigned (*rowwise)(const void *attr);
    /* Allows other nodes to follow this one: sets the block of output 0 that a tile of the last
     * phase writes. NULL: they cannot, unless the op is elementwise or rowwise. */
    void (*block)(const weft_call *call, int64_t tile, weft_block *block);

    /* Precision: which operands of f32 may be stored as bf16 (weft_plan_options.precision). Bit i
     * of narrow_out: output i. Bit i of narrow_in: input i, or WEFT_NARROW_ALL: every input, which
     * the kernels of the column WEFT_BF16 read; these take any mixture of both. An op without such
     * kernels works on blocks that the executor widens to f32 before it and rounds after it: all
     * operands of an elementwise op, and of a row-wise one the inputs that it reads row by row and
     * the outputs of narrow_out. */
    uint8_t narrow_in, narrow_out;

    uint8_t inplace; /* bit i: output 0 may overwrite input i, if shape and dtype are equal */
    uint8_t updates; /* the first `updates` inputs are states, and output i is the new state i */
    bool can_fail;   /* the kernel calls weft_call_fail or weft_call_not_finite on some data, so the
                        node is never computed before the run */
    bool exchanges;  /* exchanges data with other processes: nodes of such ops run one at a time, in
                        the plan's order. They need can_fail too */
    bool random;     /* results depend on the run's seed and number */
    bool broadcasts; /* inputs broadcast; autodiff sums their gradients back to their shapes */

    /* Passes of the library that need an op of this identity, ended by NULL: they run on graphs
     * that have such a node, at the place of their name in the order of passes. NULL: none. */
    const weft_pass *const *passes;

    weft_gradient gradient;
    void (*vjp)(weft_vjp *vjp);
    void (*expand)(weft_expand *expand); /* an op without kernels is always expanded */

    /* Writes the op as nodes of ONNX: see <weft/export.h>. NULL: its expansion is exported; without
     * one, what it computes if it has no inputs; otherwise it cannot be exported. */
    void (*onnx)(weft_export *e);

    /* Writes the op as C: see <weft/source.h>. NULL: it cannot be written (weft_emit). */
    void (*source)(weft_source *s);

    const weft_sample *samples;
    size_t n_samples;

    /* Computes the op for a batch of examples, each with values of its own for some inputs. NULL:
     * an elementwise op broadcasts, another one is batched by its expansion; without one, weft_vmap
     * refuses the op. */
    void (*batch)(weft_batch *batch);
};

/* Adds a node to the graph. `attr` is copied (op->attr_size bytes; NULL: zeros). Fills
 * outputs[0 .. n_out-1] if `outputs` is not NULL, and returns output 0; WEFT_NO_VALUE on failure.
 * The graph's error is WEFT_NO_KERNEL if nothing computes the op for these dtypes. */
WEFT_API weft_value weft_apply(weft_graph *graph, const weft_op *op, const void *attr,
                               const weft_value *inputs, size_t count, weft_value *outputs);

/* What a node is for: a pass over the model in one direction, or an update. The passes of the
 * planner retain it, so that pictures and profiles can show it. */
typedef enum weft_direction {
    WEFT_FORWARD,
    WEFT_BACKWARD, /* gradients */
    WEFT_UPDATE    /* what reads complete gradients: sums over batches, clipping, the optimiser */
} weft_direction;

typedef struct weft_role {
    weft_direction direction;
    uint32_t gradient_of; /* the origin of the node whose gradient rule made this node; 0: none */
} weft_role;

/* Sets the role of the nodes that are added from now on, and returns the one before. A graph begins
 * with WEFT_FORWARD; weft_grad and weft_train_update set and restore the others. */
WEFT_API weft_role weft_graph_set_role(weft_graph *graph, weft_role role);

/* A node of a graph. Nodes 0 .. weft_graph_node_count-1 are in topological order. */
typedef struct weft_node_info {
    const weft_op *op;
    const void *attr;
    const uint32_t *in; /* [n_in] ids of values */
    size_t n_in;
    uint32_t first_out; /* outputs have the ids first_out .. first_out + n_out - 1 */
    size_t n_out;
    const char *scope; /* "enc.0.attn" or "" */
    weft_role role;
    /* Nodes of one origin come from one node that the program declared: copies of the graph and
     * passes retain it, and a node that replaces another has its origin. From 1. */
    uint32_t origin;
} weft_node_info;
/* A record of zeros for an invalid index. The pointers live as long as the graph. */
WEFT_API weft_node_info weft_graph_node(const weft_graph *graph, size_t index);
/* Adds a copy of node `index` of another graph on the inputs in[], with its scope and the names of
 * its outputs. Fills `outputs` and returns output 0 as weft_apply does. Random keys that the graph
 * makes afterwards differ from those of the other graph. */
WEFT_API weft_value weft_graph_copy_node(weft_graph *graph, const weft_graph *other, size_t index,
                                         const weft_value *in, weft_value *outputs);
/* Sets *cost to the work of a node on dense inputs; zeros if nothing runs, as for leaves, views and
 * groups. An op without kernels counts a flop for each element of output 0. WEFT_NO_MEMORY when
 * out of memory. */
WEFT_API weft_status weft_graph_node_cost(const weft_graph *graph, size_t index, weft_cost *cost,
                                          weft_error *error);
/* Whether a value is a constant; *tensor then has its data, which belong to the graph and must not
 * be changed. */
WEFT_API bool weft_constant_of(const weft_graph *graph, weft_value value, weft_tensor *tensor);
/* WEFT_NO_VALUE if the graph has no value of that id. */
WEFT_API weft_value weft_value_from_id(const weft_graph *graph, uint32_t id);
/* The index of the node whose output the value is; 0 for a value of another graph. */
WEFT_API size_t weft_producer_of(const weft_graph *graph, weft_value value);
WEFT_API weft_layout weft_layout_of(const weft_graph *graph, weft_value value);
/* Whether a layout is contiguous and row-major, apart from its offset. */
WEFT_API bool weft_layout_is_dense(const weft_layout *layout, weft_shape shape);

/* A new key for a random op. It differs from call to call on one graph, and is the same each time
 * that a program builds the same model. */
WEFT_API uint64_t weft_graph_random_key(weft_graph *graph);

/* The ops of the graph itself: leaves, the group, the record of a running average, and the dense
 * copy. */
extern WEFT_API const weft_op weft_op_input, weft_op_state, weft_op_constant, weft_op_group,
    weft_op_track, weft_op_contiguous;

#ifdef __cplusplus
}
#endif
#endif
