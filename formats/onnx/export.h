/* Export of a graph to ONNX: what its parts share.
 *
 * weft__export_graph walks through the nodes of a graph that the outputs need, and records nodes of
 * ONNX: those that the op writes (weft_op.onnx), else those of its expansion, else, for an op
 * without inputs, its computed value. A scan becomes a node with bodies (export_scan.c,
 * export_branch.c). export_file.c writes a record as a file. An import records single ops again, to
 * recognise them (recognise.c). */
#ifndef WEFT_ONNX_EXPORT_H
#define WEFT_ONNX_EXPORT_H

#include <weft/export.h>

#include "base/arena.h"

/* What an operand is. */
typedef enum export_kind {
    EXPORT_LEAF,     /* an input or a state of the graph */
    EXPORT_CONSTANT, /* constants[index] */
    EXPORT_OUTPUT,   /* an output of nodes[index] */
    EXPORT_BODY_IN   /* an input of bodies[index] */
} export_kind;

typedef struct export_operand {
    export_kind kind;
    uint32_t index;   /* a leaf's value id; the constant; the node; the body */
    uint32_t output;  /* of the node */
    bool named;       /* it is a value of the graph or of a body */
    const char *name; /* of that value; NULL: it has none */
} export_operand;

typedef struct export_constant {
    weft_onnx_type type;
    weft_shape shape;
    const void *data;
    size_t bytes;
    weft_operand operand;
} export_constant;

/* What nodes are named after: a node of the graph or of a body. */
typedef struct export_label {
    const char *text; /* "SCOPE/OP_NUMBER" */
    size_t n_nodes;   /* that it became */
} export_label;

typedef struct export_node {
    const char *type;
    weft_operand *in;
    size_t n_in;
    weft_operand first_out;
    size_t n_out;
    weft_onnx_attr *attrs;
    size_t n_attrs;
    uint32_t body; /* that it lies in */
    uint32_t bodies
        [2]; /* its own: that of a Loop or Scan, or those of an If for true and false; 0: none */
    export_label *label; /* that it is named after */
    size_t number;       /* among the nodes of the label */
    const char *note;    /* of the first node of an op; may be NULL */
} export_node;

/* An input or output of a body. */
typedef struct export_tensor {
    weft_onnx_type type;
    weft_shape shape;
    weft_operand operand;
} export_tensor;

/* A graph within the file. It sees all operands of those around it. */
typedef struct export_body {
    uint32_t outer;
    export_tensor *in, *out;
    size_t n_in, n_out;
    size_t first, end; /* nodes[first..end) are its own and those of bodies in it */
} export_body;

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
    export_body *bodies; /* [0] is the file's graph, and has no lists */
    size_t n_bodies, body_capacity;
    uint32_t body; /* that nodes are added to */
    export_constant *constants;
    size_t n_constants, constant_capacity;
    uint32_t *slots; /* hash table of constants by contents: index + 1 */
    size_t n_slots;
    weft_operand *of_value; /* [values of the graph] */
    size_t n_values;
    size_t source;       /* the graph's node that is being recorded */
    const char *inner;   /* the op of the body's node that is being recorded; NULL: none */
    export_label *label; /* of the node that is being recorded */
    int depth;           /* of expansions and bodies */
    bool inexact, noted;
} export_record;

/* A graph whose nodes are being recorded: the exported one, an expansion, or the body of a scan. */
typedef struct export_frame {
    const weft_graph *graph;
    weft_operand *of_value; /* by value; those that are set before are not recorded */
    bool *needed;           /* by value */
    bool named;             /* not an expansion */
    uint32_t *partner;      /* by node: the other one of a pair + 1, or 0; NULL: there are none */
    size_t n_values;
} export_frame;

/* Whether an output of the node is needed. */
static inline bool export_is_needed(const export_frame *f, const weft_node_info *node)
{
    bool needed = false;
    for (size_t k = 0; k < node->n_out; k++) needed |= f->needed[node->first_out + k];
    return needed;
}

/* The longest generated name, without its NUL. */
#define EXPORT_NAME_BYTES 400

/* Element types and opsets. The IR version of a file of that opset. */
#define EXPORT_MIN_OPSET 17
#define EXPORT_MAX_OPSET 23
int weft__export_ir_version(int opset);

/* Records the nodes that the outputs need. On failure the error says which node; the record must be
 * freed in any case. */
weft_status weft__export_graph(export_record *r, const weft_graph *graph, const weft_value *outputs,
                               size_t n_outputs, int opset, size_t max_bytes, weft_error *error);
void weft__export_free(export_record *r);
/* Marks the values that the outputs need. False after a failure. */
bool weft__export_open_frame(export_record *r, export_frame *f, const weft_graph *g, bool named,
                             const weft_value *outputs, size_t n_outputs);
/* Records the nodes that are needed. False after a failure. */
bool weft__export_frame_nodes(export_record *r, export_frame *f);

/* ---- Records (export_record.c) ---- */

extern const weft_export_receiver weft__export_receiver;
static inline bool export_failed(const export_record *r)
{
    return r->error->status != WEFT_OK;
}
/* Both set the record's error; the second one names the node that is being recorded. */
weft_status weft__export_no_memory(export_record *r);
void weft__export_fail(export_record *r, weft_status status, const char *reason);
weft_operand weft__export_add_operand(export_record *r, export_operand operand);
/* Appends a node without attributes, or returns none with the record's error. */
weft_operand weft__export_add_node(export_record *r, const char *type, const weft_operand *in,
                                   size_t n_in, size_t n_out);
/* Equal constants are one. */
weft_operand weft__export_add_constant(export_record *r, weft_onnx_type type, weft_shape shape,
                                       const void *data);
/* Adds an attribute to the last node. */
void weft__export_add_int(export_record *r, const char *name, int64_t value);
void weft__export_add_ints(export_record *r, const char *name, const int64_t *values, size_t n);

/* Begins a body with room for inputs and outputs, to which nodes are added until its end. Returns its
 * number, 0 after a failure. Its inputs come first. */
uint32_t weft__export_begin_body(export_record *r, size_t max_in, size_t max_out);
weft_operand weft__export_body_in(export_record *r, weft_onnx_type type, weft_shape shape,
                                  const char *name);
/* Adds a node Identity if the operand is not that of a node in the body, or is an output already. */
void weft__export_body_out(export_record *r, weft_onnx_type type, weft_shape shape,
                           weft_operand operand);
void weft__export_end_body(export_record *r);

/* ---- Scans (export_scan.c, export_branch.c; export_scan.h) ---- */

/* Whether it is a scan of one step that may not run. */
bool weft__export_is_branch(const weft_node_info *node);
/* Finds pairs of such scans that are one choice, as weft_cond makes them: the second one continues
 * with the results of the first, and runs if that does not. Only the second of a pair is recorded. False
 * out of memory. */
bool weft__export_find_partners(export_record *r, export_frame *f, const bool *is_output);
/* Marks what such a scan, or the pair that it is the second one of, reads. */
void weft__export_need_branch(export_frame *f, size_t index);
/* Each records a scan, in e->out. */
void weft__export_branch(export_record *r, export_frame *f, size_t index, weft_export *e);
void weft__export_scan(export_record *r, weft_export *e);

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
