/* weft/plan.h - plans: which nodes run when, and where each buffer lies in one arena. The packing
 * of buffers can be used on its own. */
#ifndef WEFT_PLAN_H
#define WEFT_PLAN_H

#include <weft/pass.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Packing -------------------------------------------------------------------------------- */

/* An item that needs `size` bytes while time is in [lower, upper). */
typedef struct weft_pack_item {
    int64_t lower, upper;
    size_t size;
    size_t offset; /* set by weft_pack */
} weft_pack_item;

typedef struct weft_pack_options {
    size_t capacity;      /* bytes of an arena that is small enough; 0: the smallest is wanted */
    size_t alignment;     /* of the offsets, in bytes; sizes are rounded up to it; 0: 1 */
    uint64_t node_budget; /* the most nodes that the search visits, at 1 us each for hundreds of
                             items, up to 100 us for thousands; 0: 100,000 */
    double seconds;       /* the longest that the search takes; 0: no limit. With a limit, the
                             result depends on the speed of the machine */
    bool best_fit_only;   /* leaves out the search */
} weft_pack_options;

/* How the packing ended, and its text. */
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
    size_t arena_bytes;       /* the end of the highest item */
    size_t lower_bound_bytes; /* the largest sum of sizes that are alive at one time */
    weft_pack_end end;
    uint64_t nodes; /* visited by the search; 0 if best fit was good enough */
} weft_pack_result;

/* Sets the offset of each item so that no two items overlap that are alive at one time. Tries best
 * fit in a few orders, then searches for a smaller arena. Without a limit in seconds the offsets
 * are the same on every machine. `options` and `error` may be NULL. Fails with WEFT_BAD_ARGUMENT if
 * an item ends before it begins, WEFT_TOO_LARGE if the sum of the sizes overflows, or
 * WEFT_NO_MEMORY. */
WEFT_API weft_status weft_pack(weft_pack_item *items, size_t n, const weft_pack_options *options,
                               weft_pack_result *result, weft_error *error);

/* ---- The plan ------------------------------------------------------------------------------- */

/* Storing smaller values as bf16 saves too little. */
#define WEFT_MIN_NARROW 1024

typedef enum weft_precision {
    WEFT_PRECISION_F32,       /* everything as the graph declares it */
    WEFT_PRECISION_BF16,      /* values stored as bf16; products by pairs */
    WEFT_PRECISION_BF16_TILES /* the same; products by tiles, as matrix units compute them */
} weft_precision;

struct weft_plan_options {
    bool no_reuse; /* no two buffers share memory (to test the planner) */
    /* Names of optional passes to skip, comma separated; may be NULL. The environment variable
     * WEFT_SKIP adds to them. A name that is not listed here, nor in `passes`, is an error.
     *     join_slices     a sum of slices put back among zeros becomes one concat
     *     join_products   a sum of thin matrix products becomes one product
     *     reuse_dropout   relu's gradient reads the output of a dropout that follows relu
     *     cse             equal ops on equal inputs are computed once
     *     fold_conv       scales and shifts of channels move into the convolution before them
     *     fold            what depends on constants only is computed when planning
     *     attention       matrix products and a softmax that form attention become sdpa
     *     tiles           with WEFT_PRECISION_BF16_TILES, matmul becomes matmul_tiles
     *     precision       see precision
     *     recompute       see memory_budget
     *     fuse            nodes run on the tiles of another, while these are in the cache
     *     all             every optional pass */
    const char *skip;
    bool verify; /* run weft_graph_verify after each pass and weft_plan_check at the end */
    /* The program's own passes (weft/pass.h), n_passes of them. They run first, in this order, on
     * the graph as it was built. Names must differ from each other and from those of the library's
     * passes. The array need not outlive the call; contexts are used during the call only. */
    const weft_pass *passes;
    size_t n_passes;
    /* Promises that no state changes after a session's first run, except those that the plan
     * updates. Values that depend on the other states alone (packed weights, batch norms folded
     * into convolutions) are then computed in that run only, and stay in the arena. A program that
     * does change such a state must call weft_session_renew. Two more passes then run:
     *     pack_weights    matrix products with a parameter pack its panels in the first run; not
     *                     with another precision than WEFT_PRECISION_F32
     *     channels_last   images of convolutions have their channels innermost, where that pays */
    bool fixed_states;
    /* The most bytes that the arena may take; 0: any number. If it would take more, the backward
     * pass computes values of the forward pass again instead of retaining them, starting with those
     * that save most bytes for their time. Results have the same bits. If that is not enough,
     * weft_plan_new fails with WEFT_TOO_LARGE, and the message says how many bytes would do. The
     * pass is called "recompute" in `skip`. */
    size_t memory_budget;
    /* Scopes, comma separated, such as "enc.0,enc.1": the backward pass computes what lies within one of
     * them again, from the values that come into it; only what comes in, and what nodes outside of it
     * read, is retained. Results have the same bits. NULL: none. With a budget, more is computed
     * again. */
    const char *recompute;
    /* WEFT_PRECISION_BF16: values of f32 that nodes compute are stored as bf16, in half the bytes,
     * and matrix products multiply bf16 and add in f32. Everything else computes in f32. These are
     * still stored as f32: inputs, states, constants and targets, so a program sees no difference
     * in types; results that an op needs whole, such as the sums of norms and softmaxes
     * (weft_op.narrow_out); gradients of parameters and all that updates compute; values of fewer
     * than `min_narrow` elements (0: WEFT_MIN_NARROW). An op that cannot read bf16 gets a copy in f32. The
     * pass is called "precision" in `skip`.
     * WEFT_PRECISION_BF16_TILES: the same, but each matrix product outside of `keep_f32`, of an
     * operand or a result of `min_narrow` elements, is matmul_tiles (weft/ops.h). On a processor
     * with AMX it takes a fraction of the time; on one that has dot products of bf16 but no AMX, it
     * takes longer than with WEFT_PRECISION_BF16. The bits are the same everywhere. */
    weft_precision precision;
    int64_t min_narrow;
    /* Scopes and names of nodes whose outputs are stored as they are declared, comma separated,
     * such as "dec.out,enc.0.attn": all nodes in these scopes. NULL: none. */
    const char *keep_f32;
};

typedef struct weft_plan_stats {
    size_t nodes;      /* after the passes */
    size_t intervals;  /* of nodes that run side by side */
    size_t barriers;   /* of one run */
    size_t fused;      /* nodes that run on the tiles of another, right after each tile */
    size_t recomputed; /* nodes that run a second time in the backward pass: memory_budget */
    double recomputed_flops, recomputed_bytes; /* of these, as in `flops` and `bytes` */
    double recomputed_time;   /* estimated: their time over that of all other nodes of a run */
    size_t narrow;            /* values of f32 that are stored as bf16: precision */
    size_t fixed;             /* nodes that run in a session's first run only: fixed_states */
    size_t buffers;           /* placed in the arena */
    size_t sum_bytes;         /* of all buffers: the arena without reuse */
    size_t arena_bytes;       /* with reuse */
    size_t lower_bound_bytes; /* peak of live bytes: no arena for this schedule is smaller */
    size_t state_bytes;       /* parameters and other state that the plan uses */
    size_t workspace_bytes;   /* of each thread of a session, in addition to the arena */
    double ratio;             /* arena_bytes / lower_bound_bytes; 1 if there are no buffers */
    weft_pack_end packed;     /* how the packing of the arena ended */
    double flops;             /* of one run, without what only the first run computes */
    double bytes;             /* read and written by one run, at least; likewise */
} weft_plan_stats;

/* weft_plan_new (<weft/weft.h>) in full: after a run each target can be read. A computed value, and
 * the output of an update, is what its node computed, even if a later update of the same run has
 * overwritten the state. A state itself is what the parameter store holds. The graph is not
 * changed. Threads may share a plan.
 *
 * Errors: the graph's own; WEFT_BAD_ARGUMENT for no targets, a target of another graph, two updates
 * of one state, or an unknown name in `skip`; WEFT_NO_KERNEL; WEFT_TOO_LARGE; WEFT_NO_MEMORY; or
 * the error of a pass. */

WEFT_API weft_plan_stats weft_plan_stats_of(const weft_plan *plan);
/* The graph that the plan runs, after all passes. It belongs to the plan. */
WEFT_API const weft_graph *weft_plan_graph(const weft_plan *plan);

/* The value of weft_plan_graph that a program can read or feed as `value` of its graph: a target, an
 * input, or a state. WEFT_NO_VALUE if the plan has none. */
WEFT_API weft_value weft_plan_value(const weft_plan *plan, weft_value value);

/* One buffer of the arena: no other uses its bytes while intervals first..last run. `last` is the
 * number of intervals if the contents outlive the run: an input, a target, what later runs read. */
typedef struct weft_plan_buffer {
    size_t offset, bytes;
    uint32_t first, last;
} weft_plan_buffer;
/* The plan's array of *count buffers; `count` may be NULL. */
WEFT_API const weft_plan_buffer *weft_plan_buffers(const weft_plan *plan, size_t *count);

/* The index of the buffer in which a value of weft_plan_graph lies, also if it is a view; SIZE_MAX
 * if it lies in a state or constant, or nowhere. */
WEFT_API size_t weft_plan_buffer_of(const weft_plan *plan, weft_value value);

/* A step runs a node of weft_plan_graph. Intervals run one after another; the steps of an interval
 * may run side by side. Those of a fused group run on each tile of its head, right after it. */
typedef struct weft_plan_step {
    size_t node;
    size_t head; /* the node of the head of its fused group; the step's own node if it has none */
    uint32_t interval;
    uint32_t superstep; /* no barrier separates the intervals of one superstep */
    bool fixed;         /* runs in a session's first run only */
    size_t scratch;     /* the index of the buffer that only the step itself uses; SIZE_MAX: none */
} weft_plan_step;
/* The plan's array of *count steps, in the order in which they run; `count` may be NULL. */
WEFT_API const weft_plan_step *weft_plan_steps(const weft_plan *plan, size_t *count);

/* Proves, without code shared with the planner, that every node reads what its producer wrote, that
 * no node of an interval writes what another one touches, and that after a run every target is what
 * its node computed. WEFT_INTERNAL, with the node's name, if that does not hold. */
WEFT_API weft_status weft_plan_check(const weft_plan *plan, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
