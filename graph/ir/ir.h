/* The graph as passes, planner and executor see it: its records, and functions on them. */
#ifndef WEFT_GRAPH_IR_H
#define WEFT_GRAPH_IR_H

#include "base/arena.h"
#include "base/name_table.h"

#include <weft/op.h>

#include <stdarg.h>

#include "base/private.h"

/* ---- The graph (graph.c) ---- */

typedef struct value_record {
    weft_type type;
    weft_layout layout; /* over the storage of `root` */
    uint32_t node;
    uint32_t root;    /* the value that owns the storage: itself, or what it views or updates */
    uint32_t version; /* the value that wrote the storage last: its root, or an update of it */
    weft_dtype
        stored;       /* the dtype in memory: the type's, or bf16 for an f32 (passes/precision.c) */
    const char *name; /* scoped; NULL if it was not named */
} value_record;

typedef struct node_record {
    const weft_op *op;
    const void *attr;
    uint32_t *in;
    uint32_t n_in, first_out;
    uint32_t origin; /* see weft_node_info */
    weft_role role;
    const char *scope;
} node_record;

#define SCOPE_BYTES 256
#define SCOPE_DEPTH 64

/* A list of a graph for its readers. It grows in the graph's arena, so that arrays that a program
 * has been given stay as they are. */
typedef struct graph_list {
    void *at;
    size_t n, capacity;
} graph_list;

struct weft_graph {
    arena arena;
    uint32_t tag;
    node_record *nodes;
    size_t n_nodes, node_capacity;
    value_record *values; /* [0] is WEFT_NO_VALUE */
    size_t n_values, value_capacity;
    name_table names;          /* value ids */
    graph_list params, states; /* weft_value */
    graph_list tracked;        /* weft_tracked */
    weft_type *types;          /* of the inputs of one node, for its shape rule; and their names */
    const char **type_names;
    size_t type_capacity;
    char scope[SCOPE_BYTES];
    uint16_t scope_lengths[SCOPE_DEPTH]; /* the length that each pop restores */
    int scope_depth;
    const char *scope_text; /* a copy of `scope` in the arena, NULL if there is none yet */
    uint64_t random_keys;
    weft_role role;   /* of the following nodes */
    uint32_t origins; /* numbered so far */
    uint32_t copied;  /* the origin of the following nodes; 0: each has a new one */
    bool shares;      /* a parameter may be declared again: see weft_graph_share */
    bool (*frozen)(void *context, const char *name); /* see weft_graph_freeze; NULL: none */
    void *frozen_context;
    weft_error error;
};

typedef struct weft_input_attr {
    weft_dtype dtype;
    weft_shape shape;
    bool has_default;
    double value; /* the default of every element */
} weft_input_attr;

typedef struct weft_state_attr {
    weft_dtype dtype;
    weft_shape shape;
    weft_init init;
    weft_part part;
    bool trainable;
} weft_state_attr;

typedef struct weft_constant_attr {
    weft_dtype dtype;
    weft_shape shape;
    const void *data; /* in the graph's arena */
} weft_constant_attr;

/* Makes room for one more element of `size` bytes; false if out of memory. */
bool weft__graph_reserve(weft_graph *graph, graph_list *list, size_t size);
/* Adds the output of a new node of weft_op_track to the running averages (track.c). */
void weft__graph_list_tracked(weft_graph *graph, weft_value node);

/* ---- Descriptors (descriptor.c) ---- */

/* WEFT_OK if a descriptor is complete; else writes what is wrong with it to `text`. */
weft_status weft__op_check(const weft_op *op, char *text, size_t size);
/* WEFT_OK if a node whose kernel is chosen by this dtype can be computed, by a kernel of some
 * instruction set or by an expansion; else writes what is missing to `text`. */
weft_status weft__op_check_dtype(const weft_op *op, weft_dtype dtype, char *text, size_t size);
/* Whether some instruction set has a kernel for the dtype. */
bool weft__op_has_kernel(const weft_op *op, weft_dtype dtype);
/* Bytes that a field of this kind takes at least; 0 for an unknown kind. */
size_t weft__attr_field_bytes(weft_attr_kind kind);
/* One field as `name=value`; all fields of a node, separated by spaces. Both return `text`. */
WEFT_PRIVATE_API const char *weft__attr_field_text(const weft_attr_field *field, const void *attr,
                                                   char *text, size_t size);
const char *weft__attr_text(const weft_op *op, const void *attr, char *text, size_t size);
/* Whether the op is an input, a state or a constant. */
WEFT_PRIVATE_API bool weft__op_is_leaf(const weft_op *op);

/* Bit i: rows of the outputs need only those of input i; see weft_op.rowwise. */
static inline unsigned node_rows(const node_record *node)
{
    return node->op->rowwise ? node->op->rowwise(node->attr) : 0;
}

/* ---- Nodes and values (graph.c, copy.c, name.c, infer.c, type.c) ---- */

/* The scope as a text in the graph's arena; NULL if out of memory. */
const char *weft__graph_scope(weft_graph *graph);
/* Sets the scope of the following nodes, as a text. */
void weft__graph_set_scope(weft_graph *graph, const char *scope);
/* The following nodes of the graph come from a node of another one: they have its scope, its role
 * and its origin. NULL: they have origins of their own again. */
void weft__graph_set_origin(weft_graph *graph, const node_record *node);
/* Numbers that the graph makes from now on, of random keys and of origins, differ from those of
 * the other graph. */
void weft__graph_count_on(weft_graph *graph, const weft_graph *other);
/* "SCOPE.NAME", of any length, in the graph's arena. NULL, with the graph's error, if the name is
 * empty, or out of memory. */
const char *weft__graph_full_name(weft_graph *graph, const char *name, const char *function);
/* Names a value by a copy of its full name; an error, in the name of `function`, if another value
 * has it. */
bool weft__graph_name_value(weft_graph *graph, uint32_t id, const char *full_name,
                            const char *function);
/* Writes "name (op)", or "scope/op" if output 0 has no name, and returns `buffer`. */
const char *weft__graph_node_where(const weft_graph *graph, size_t node, char *buffer, size_t size);
/* Adds a copy of a node of any graph on the inputs `in`, in the current scope and without names. */
void weft__graph_copy_node(weft_graph *graph, const weft_node_info *node, const weft_value *in,
                           weft_value *out);
/* The value of an id; WEFT_NO_VALUE if there is none. */
WEFT_PRIVATE_API weft_value weft__graph_value(const weft_graph *graph, uint32_t id);
bool weft__graph_owns(const weft_graph *graph, weft_value value);
/* The bytes of a value in memory, if it is dense. */
size_t weft__graph_value_bytes(const weft_graph *graph, uint32_t id);
/* Whether an operand of the node is an f32 that is stored as bf16. */
bool weft__graph_node_is_narrow(const weft_graph *graph, const node_record *node);
/* The dtype that chooses a node's kernel. */
weft_dtype weft__graph_key_dtype(const weft_graph *graph, const node_record *node);
/* Whether the node runs a kernel; others are leaves, views, groups, or expand into other nodes. */
bool weft__graph_node_runs(const weft_graph *graph, const node_record *node);
weft_layout weft__layout_dense(weft_shape shape);
/* NULL if a dtype can represent a number; else the numbers that it can, for a message. */
const char *weft__dtype_range(weft_dtype dtype, double value);
/* Makes `n` elements from outside valid: in bools every byte other than 0 becomes 1. */
void weft__normalise_bools(weft_dtype dtype, void *data, size_t n);
/* The value as an operand; data is NULL. */
weft_tensor weft__graph_tensor(const weft_graph *graph, uint32_t id);
/* Whether an op that takes such layouts takes this one. */
bool weft__layout_taken(weft_takes takes, weft_shape shape, const weft_layout *layout);

#endif
