/* The graph as passes, planner and executor see it: its records, and what descriptors say of ops.
 */
#ifndef WEFT_GRAPH_IR_H
#define WEFT_GRAPH_IR_H

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
/* Bytes that a field of this kind takes at least; 0 for an unknown kind. */
size_t attr_field_bytes(weft_attr_kind kind);
/* One field as `name=value`; all fields of a node, separated by spaces. Both return `text`. */
const char *attr_field_text(const weft_attr_field *field, const void *attr, char *text,
                            size_t size);
const char *attr_text(const weft_op *op, const void *attr, char *text, size_t size);
/* An input, a state or a constant. */
bool op_is_leaf(const weft_op *op);

/* The first failing step of a run, in order of the schedule; see weft_call_fail. */
#define NO_FAULT UINT32_MAX
typedef struct fault {
    atomic_flag lock;
    atomic_uint step;
    int64_t index, limit; /* limit -1: input `index` is not finite */
} fault;

/* Before each thread's workspace; see weft_call_panel_tag. */
#define PANEL_TAG_BYTES 64

/* How many tiles a call's phase has. */
static inline int64_t op_tiles(const weft_op *op, const weft_call *call)
{
    return op->tiles ? op->tiles(call)
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

#endif
