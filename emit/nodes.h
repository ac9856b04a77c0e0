/* A node under way, for nodes.c, args.c, each.c, rows.c and loop.c. */
#ifndef WEFT_EMIT_NODES_H
#define WEFT_EMIT_NODES_H

#include "emit.h"

/* Operands of a loop over elements. */
#define EMIT_MAX_OPERANDS 64

/* An operand of a node that is called for one row after another. */
typedef struct emit_row {
    bool by_row, narrow;
    int64_t row, column; /* elements from one to the next */
    size_t wide;         /* of a narrow operand: where its row lies in f32, bytes in the arena */
} emit_row;

typedef struct emit_node {
    emit_file *f;
    weft_node_info node;
    weft_tensor *tensors; /* inputs, then outputs; without data */
    const emit_row *rows; /* of these; NULL: a call computes the whole node */
    size_t scratch_offset;
    emit_text text; /* with holes */
    bool has_scratch, called;
    char shape[64]; /* the struct that the call's array of ints is; "": none */
} emit_node;

static inline size_t emit_operands(const emit_node *w)
{
    return w->node.n_in + w->node.n_out;
}

/* Operand i of the inputs and outputs. */
static inline weft_value emit_operand(const emit_node *w, size_t i)
{
    return weft_value_from_id(w->f->g, i < w->node.n_in
                                           ? w->node.in[i]
                                           : w->node.first_out + (uint32_t)(i - w->node.n_in));
}

/* Whether the operand is an f32 that is stored as bf16. */
static inline bool emit_is_narrow(const emit_node *w, size_t i)
{
    const weft_value v = emit_operand(w, i);
    return weft__emit_stored(w->f, v) != weft_dtype_of(w->f->g, v);
}

/* args.c: the node's name, or its scope, for comments and errors. */
const char *weft__emit_node_name(const emit_node *w, char *buffer, size_t size);
/* Sets the error, which names the node. */
void weft__emit_fail(emit_node *w, weft_status status, const char *reason);
/* Writes the address of operand i. */
void weft__emit_operand(emit_node *w, size_t i, bool is_const, emit_text *to);
/* Writes the arguments of a call; `begun`: others stand before them. */
void weft__emit_args(emit_node *w, const weft_source_call *call, bool begun);
/* Memory for `floats` after the plan's arena, as an offset. Calls of different nodes share it. */
size_t weft__emit_space(emit_file *f, int64_t floats);
/* Writes the address of memory after the plan's arena, also in the body of a loop. */
void weft__emit_after(const emit_node *w, size_t offset, emit_text *to);

/* each.c: a loop over the elements of output 0. */
void weft__emit_each(emit_node *w, const weft_source_call *call, const char *function);

/* rows.c: a loop over the rows of output 0. `calls` writes what is done for each of them. */
void weft__emit_rows(emit_node *w, void (*calls)(emit_node *w));

/* loop.c: a scan as a loop, which calls the function of its body. */
void weft__emit_loop(emit_node *w, const struct plan_loop *loop);

#endif
