/* What the files of graph/ share and nobody else sees. */
#ifndef WEFT_GRAPH_INTERNAL_H
#define WEFT_GRAPH_INTERNAL_H

#include <weft/op.h>

#include <stdarg.h>
#include <stdatomic.h>

/* ---- Arena: memory that lives as long as its owner (arena.c) ----------------------------------
 */

typedef struct arena_block arena_block;
typedef struct arena {
    arena_block *blocks;
} arena;

/* Zeroed, 64-byte aligned memory; NULL when memory is out. */
void *arena_alloc(arena *a, size_t bytes);
char *arena_text(arena *a, const char *text);
/* Takes back what was allocated last, `memory` and all after it. */
void arena_cut(arena *a, const void *memory);
void arena_free(arena *a);

/* ---- The graph (graph.c) ----------------------------------------------------------------------
 */

typedef struct value_record {
    weft_type type;
    weft_layout layout; /* over the storage of `root` */
    uint32_t node;
    uint32_t root;    /* the value whose storage it lies in: itself, or what it views or updates */
    uint32_t version; /* as root, but an updated state is a version of its own */
    const char *name; /* scoped; NULL if it has none of its own */
} value_record;

typedef struct node_record {
    const weft_op *op;
    const void *attr;
    uint32_t *in;
    uint32_t n_in, first_out;
    const char *scope;
} node_record;

#define SCOPE_BYTES 256
#define SCOPE_DEPTH 64

struct weft_graph {
    arena arena;
    uint32_t tag;
    node_record *nodes;
    size_t n_nodes, node_capacity;
    value_record *values; /* [0] is no value */
    size_t n_values, value_capacity;
    uint32_t *names; /* hash table of value ids by name, 0 where empty */
    size_t n_names, name_capacity;
    weft_type *types; /* room for the inputs of one node */
    const char **type_names;
    size_t type_capacity;
    char scope[SCOPE_BYTES];
    uint16_t scope_lengths[SCOPE_DEPTH]; /* what each pop goes back to */
    int scope_depth;
    const char *scope_text; /* the scope in the arena, NULL if not yet there */
    uint64_t random_keys;
    weft_error error;
};

typedef struct weft_input_attr {
    weft_dtype dtype;
    weft_shape shape;
    bool has_default;
    double value; /* of every element until it is fed, if it has a default */
} weft_input_attr;

typedef struct weft_state_attr {
    weft_dtype dtype;
    weft_shape shape;
    weft_init init;
    bool trainable;
} weft_state_attr;

typedef struct weft_constant_attr {
    weft_dtype dtype;
    weft_shape shape;
    const void *data; /* in the graph's arena */
} weft_constant_attr;

/* ---- Descriptors (descriptor.c) ---------------------------------------------------------------
 */

/* What is wrong with a descriptor, in `text`; WEFT_OK if nothing is. */
weft_status op_check(const weft_op *op, char *text, size_t size);
/* Whether a node can be computed whose kernel this dtype chooses: by a kernel of any instruction
 * set, or by an expansion. Likewise. */
weft_status op_check_dtype(const weft_op *op, weft_dtype dtype, char *text, size_t size);
/* Whether there is a kernel for the dtype in any instruction set. */
bool op_has_kernel(const weft_op *op, weft_dtype dtype);
/* An input, a state or a constant. */
bool op_is_leaf(const weft_op *op);

/* The first failing step of a run, in order of the schedule; see weft_call_fail. */
#define NO_FAULT UINT32_MAX
typedef struct fault {
    atomic_flag lock;
    atomic_uint step;
    int64_t index, limit; /* limit -1: input `index` is not finite */
} fault;

/* Before each thread's workspace; see weft_call_note. */
#define NOTE_BYTES 64

/* How many parts a call's stage has. */
static inline int64_t op_parts(const weft_op *op, const weft_call *call)
{
    return op->parts ? op->parts(call)
                     : (weft_shape_numel(call->out[0].shape) + WEFT_TILE - 1) / WEFT_TILE;
}

/* The work of a call. */
static inline weft_cost op_cost(const weft_op *op, const weft_call *call)
{
    weft_cost cost = {0, 0};
    if (op->cost) {
        op->cost(call, &cost);
        return cost;
    }
    for (size_t i = 0; i < call->n_in + call->n_out; i++) {
        const weft_tensor *t = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
        cost.bytes += (double)weft_shape_numel(t->shape) * (double)weft_dtype_bytes(t->dtype);
    }
    cost.flops = (double)weft_shape_numel(call->out[0].shape);
    return cost;
}

static inline unsigned node_rows(const node_record *node)
{
    return node->op->rowwise ? node->op->rowwise(node->attr) : 0;
}

/* Takes over a scope, as text, for the nodes that follow. */
void graph_set_scope(weft_graph *graph, const char *scope);
/* Writes a name with the scope in front of it; false, with the graph's error, if it is none. */
bool graph_full_name(weft_graph *graph, const char *name, const char *function, char *buffer,
                     size_t size);
/* Names a value by its full name, for `function`; fails if another value has it. */
bool graph_name_value(weft_graph *graph, uint32_t id, const char *full_name, const char *function);
/* "scope/op" for messages and pictures. */
const char *graph_node_where(const weft_graph *graph, size_t node, char *buffer, size_t size);
weft_value graph_value(const weft_graph *graph, uint32_t id);
bool graph_owns(const weft_graph *graph, weft_value value);
/* The dtype that chooses a node's kernel. */
weft_dtype graph_key_dtype(const weft_graph *graph, const node_record *node);
/* Whether the node runs a kernel: others are leaves, views, groups, or expand into other nodes. */
bool graph_node_runs(const weft_graph *graph, const node_record *node);
weft_layout layout_dense(weft_shape shape);
/* NULL if a dtype holds a number; else what it takes, for a message. */
const char *dtype_takes(weft_dtype dtype, double value);
/* Of elements that came from outside: in bools any byte but 0 becomes 1. */
void normalise_bools(weft_dtype dtype, void *data, size_t n);
/* The value as an operand, without data. */
weft_tensor graph_tensor(const weft_graph *graph, uint32_t id);
bool layout_taken(weft_takes takes, weft_shape shape, const weft_layout *layout);

void weft_init_fill(const weft_init *init, weft_dtype dtype, weft_shape shape, uint64_t seed,
                    const char *name, void *data);

/* ---- Passes (pass.c) --------------------------------------------------------------------------
 */

/* What a value is to the program that built the graph. */
enum {
    VALUE_INPUT = 1,
    VALUE_STATE = 2, /* lies in a state: the state itself, or what an update made of it */
    VALUE_TARGET = 4
};

/* A value that the program can read when a run has ended. */
typedef struct plan_target {
    weft_value value; /* in the graph that is being compiled, then in the plan's */
    uint32_t user;    /* its id in the program's graph */
    bool is_state;    /* the program asked for a state itself: what the store holds at the end */
} plan_target;

/* Runs every pass but those named in `skip`; gives a new graph, and in map[id of `graph`] the ids
 * of its values there (0: not needed). Everything that the targets do not need is left out. */
weft_graph *passes_run(const weft_graph *graph, plan_target *targets, size_t n_targets,
                       const char *skip, bool verify, uint32_t *map, weft_error *error);

/* ---- Offsets (pack.c, pack_online.c, pack_search.c) ---- */

/* An item that takes room, alive in the sections first..last. */
typedef struct pack_item {
    size_t size, offset;
    uint32_t first, last;
    uint32_t id; /* among the caller's */
} pack_item;

typedef enum pack_outcome { PACK_FOUND, PACK_IMPOSSIBLE, PACK_SPENT, PACK_NO_MEMORY } pack_outcome;

typedef struct pack_limits {
    uint64_t nodes;
    double deadline; /* in seconds of pack_clock(), or 0 */
} pack_limits;

double pack_clock(void); /* seconds since some moment */

/* Sets offsets in the order of birth (pack_online.c); false when memory is out. */
bool pack_online(pack_item *items, size_t n);
/* Looks for offsets with which no item ends above `height`, and sets them when it found some.
 * *nodes: how many it has searched. */
pack_outcome pack_search(pack_item *items, size_t n, uint32_t sections, size_t height,
                         const pack_limits *limits, uint64_t *nodes);

/* Whether a comma-separated list of names, which may be NULL, or the environment variable WEFT_SKIP
 * has this one, or "all". */
bool passes_skip(const char *list, const char *name);
/* Whether `list` and WEFT_SKIP name optional passes only. */
bool passes_known(const char *list, weft_error *error);

/* Computes a node whose inputs in[] of `graph` are constants, and gives its outputs, of these
 * types, as constants; false if it is not to be folded (fold.c). */
bool fold_node(weft_graph *graph, const node_record *node, const weft_type *types,
               const weft_value *in, weft_value *out);

/* ---- Chains (chain.c) -------------------------------------------------------------------------
 */

/* An operand of a chained step as a matrix: element [r, c] lies at r row + c column. */
typedef struct plan_matrix {
    int64_t row, column;
} plan_matrix;

/* Moves nodes that can run on the blocks of a node before them up behind it. links[i] becomes the
 * number of nodes behind order[i] that are chained to it. False when memory is out. */
bool chains_make(const weft_graph *g, uint32_t *order, size_t n_order, uint32_t *links);
/* The rows and columns of a node's output 0. */
void chain_size(const weft_graph *g, uint32_t node, int64_t *rows, int64_t *columns);
/* Value `id` as an operand of a chain of that size; false if it is no such matrix. */
bool chain_matrix(const weft_graph *g, uint32_t id, weft_shape out, plan_matrix *matrix);
/* Inputs and outputs of a chained node at most. */
#define CHAIN_OPERANDS 8
/* Whether every element of a matrix of that size lies where it does in a dense one. */
bool chain_is_dense(const plan_matrix *matrix, int64_t rows, int64_t columns);

/* ---- The plan (plan.c) ------------------------------------------------------------------------
 */

typedef enum storage_kind { STORAGE_ARENA, STORAGE_STATE, STORAGE_CONSTANT } storage_kind;

/* Where an operand lies: bytes from the start of the arena, the state or the constant. */
typedef struct place {
    storage_kind kind;
    uint32_t root; /* value id of the state or constant */
    size_t offset; /* of element [0, ..., 0] */
} place;

typedef struct plan_step {
    uint32_t node; /* of the plan's graph */
    weft_kernel kernel;
    uint32_t segment; /* of its group */
    uint8_t stages;
    int64_t parts[2];
    int64_t part_work[2];   /* of one part, with all that is linked: about its nanoseconds */
    uint32_t first_operand; /* of plan->tensors and ->places: inputs, then outputs */
    size_t scratch;         /* offset in the arena */
    /* A chain: the steps after this one that run on each block of its output as soon as that is
     * made; they have no parts of their own. */
    uint32_t links;
    bool linked, whole_rows; /* linked to a step before; of a head: a link needs whole rows */
    int64_t rows, columns, block_rows, block_columns; /* of the chain, if blocks are not the op's */
} plan_step;

typedef struct plan_group {
    uint32_t first_step, n_steps;
    uint32_t segment; /* groups of one segment have no barrier between them */
    uint8_t stages;
    int64_t work[2]; /* of all parts of a stage; a barrier stands between two that both have some */
    bool serial;     /* so little work that one thread does it */
} plan_group;

/* Runs the steps again one by one, without the updates, until one makes a number that is not
 * finite, and tells which; `calls` are the session's, two a step (nonfinite.c). */
weft_status nonfinite_find(const weft_plan *plan, const weft_call *calls, weft_error *error);

struct weft_plan {
    weft_graph *graph;
    arena arena;
    plan_step *steps;
    size_t n_steps;
    plan_group *groups;
    size_t n_groups;
    weft_tensor *tensors; /* data NULL */
    place *places;
    plan_matrix *matrices; /* of the operands of chained steps */
    size_t n_operands;
    weft_plan_buffer *buffers;
    size_t n_buffers;
    uint32_t *buffer_of; /* by value id: index + 1 of the buffer of its storage, or 0 */
    uint32_t *map;       /* from value ids of the user's graph */
    uint8_t *kinds;      /* by value id of the user's graph: VALUE_INPUT | ... */
    size_t n_map;
    uint32_t user_tag;
    uint8_t *readable; /* by value id: a target or an input */
    plan_target *targets;
    size_t n_targets;
    weft_plan_stats stats;
};

/* The work of one call of a step. */
weft_cost plan_step_cost(const weft_plan *plan, const plan_step *step);
/* Sets the error that there is no memory; false. */
bool plan_no_memory(weft_error *error);

/* ---- What inputs hold (feeds.c) ----------------------------------------------------------------
 */

typedef struct feeds {
    uint8_t *state; /* by value id of the plan's graph, of inputs */
    size_t n_missing, n_default;
} feeds;

bool feeds_init(feeds *f, const weft_plan *plan); /* false when memory is out */
void feeds_fill_defaults(const feeds *f, const weft_plan *plan, char *base);
/* From now on the input holds what the program writes; until it does, the default if there is one.
 */
void feeds_give(feeds *f, const weft_plan *plan, uint32_t id, char *base);
/* WEFT_NOT_FOUND, with the name of an input, while one holds nothing. */
weft_status feeds_check(const feeds *f, const weft_plan *plan, weft_error *error);

/* ---- When nodes run (order.c) -----------------------------------------------------------------
 */

/* The nodes with kernels in an order in which they can run. */
bool order_nodes(const weft_graph *g, uint32_t *order, size_t *n_order, weft_error *error);
/* Cuts the plan's steps, whose parts are known, into groups and segments, and counts their work and
 * the barriers. storage[value id]: the value that stands for what the value lies in. */
bool groups_make(weft_plan *plan, const uint32_t *storage, weft_error *error);

#endif
