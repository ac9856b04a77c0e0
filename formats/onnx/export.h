/* Export of a graph to ONNX: what its parts share.
 *
 * weft__export_graph walks through the nodes of a graph that the outputs need, and records nodes of
 * ONNX: those that the op writes (weft_op.onnx), else those of its expansion, else, for an op
 * without inputs, its computed value. export_file.c writes a record as a file. An import records
 * single ops again, to recognise them (recognise.c). */
#ifndef WEFT_ONNX_EXPORT_H
#define WEFT_ONNX_EXPORT_H

#include <weft/export.h>

#include "base/arena.h"

/* What an operand is. */
typedef enum export_kind {
    EXPORT_LEAF,     /* an input or a state of the graph */
    EXPORT_CONSTANT, /* constants[index] */
    EXPORT_OUTPUT    /* an output of nodes[index] */
} export_kind;

typedef struct export_operand {
    export_kind kind;
    uint32_t index;  /* a leaf's value id; the constant; the node */
    uint32_t output; /* of the node */
    uint32_t value;  /* the value of the graph that it is; 0: an intermediate result */
} export_operand;

typedef struct export_constant {
    weft_onnx_type type;
    weft_shape shape;
    const void *data;
    size_t bytes;
    weft_operand operand;
} export_constant;

typedef struct export_node {
    const char *type;
    weft_operand *in;
    size_t n_in;
    weft_operand first_out;
    size_t n_out;
    weft_onnx_attr *attrs;
    size_t n_attrs;
    size_t source;    /* the graph's node */
    const char *note; /* of the first node of an op; may be NULL */
} export_node;

typedef struct export_record {
    arena memory;
    const weft_graph *graph;
    int opset;
    size_t max_bytes, computed; /* of constants that are computed */
    weft_error *error;
    export_operand *operands; /* [0] is none */
    size_t n_operands, operand_capacity;
    export_node *nodes;
    size_t n_nodes, node_capacity;
    export_constant *constants;
    size_t n_constants, constant_capacity;
    uint32_t *slots; /* hash table of constants by contents: index + 1 */
    size_t n_slots;
    weft_operand *of_value; /* [values of the graph] */
    size_t n_values;
    size_t source; /* the graph's node that is being recorded */
    int depth;     /* of expansions */
    bool inexact, noted;
} export_record;

/* Element types and opsets. The IR version of a file of that opset. */
#define EXPORT_MIN_OPSET 17
#define EXPORT_MAX_OPSET 23
int weft__export_ir_version(int opset);

/* Records the nodes that the outputs need. On failure the error says which node; the record must be
 * freed in any case. */
weft_status weft__export_graph(export_record *r, const weft_graph *graph, const weft_value *outputs,
                               size_t n_outputs, int opset, size_t max_bytes, weft_error *error);
/* Appends a node without attributes, or returns none with the record's error. */
weft_operand weft__export_add_node(export_record *r, const char *type, const weft_operand *in,
                                   size_t n_in, size_t n_out);
void weft__export_free(export_record *r);

/* ---- Notes (note.c) ---- */

/* What the text on the first node of an op says. */
#define EXPORT_NOTE_INPUTS 16
typedef struct export_note {
    const weft_op *op;
    void *attr;
    size_t n_nodes, n_in;
    uint32_t node[EXPORT_NOTE_INPUTS], slot[EXPORT_NOTE_INPUTS]; /* where an input is read */
    bool wanted[WEFT_MAX_OUTPUTS];
    bool no_memory; /* for the attribute: it was not read */
} export_note;

/* Writes the note of nodes [first, r->n_nodes), which represent one node of the graph. Omits a note
 * that cannot describe the op completely. False if out of memory. */
bool weft__export_write_note(export_record *r, size_t first, const weft_node_info *node,
                             const weft_operand *in, const bool *wanted);
/* Reads a note into *note, which is all zeros; false if the text is not a note. Attributes are in
 * `memory`. */
bool weft__export_read_note(const char *text, arena *memory, export_note *note);

/* ---- Names (export_names.c) ---- */

/* A name for each operand that a file names, and one for each node, in r->memory. */
typedef struct export_names {
    const char **operand; /* [r->n_operands] */
    const char **node;    /* [r->n_nodes] */
} export_names;

/* Adds nodes Identity for outputs that no node of their own computes, and names everything. Sets
 * operands[i], the operand of output i. */
weft_status weft__export_name(export_record *r, const weft_value *outputs, size_t n_outputs,
                              const char *const *output_names, weft_operand *operands,
                              export_names *names);

#endif
