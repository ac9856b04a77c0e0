/* Import of an ONNX model: what its parts share.
 *
 * An import walks through the nodes of a graph in their order. A node's mapping, a function of
 * ops.h, builds it from operations of weft. If the contents of all its inputs are known, the
 * mapping builds a graph of constants instead, which runs at once; so constants are computed by the
 * same mappings and kernels as data. Control flow (control.c) walks through the bodies of its
 * nodes. */
#ifndef WEFT_ONNX_IMPORT_H
#define WEFT_ONNX_IMPORT_H

#include <weft/onnx.h>
#include <weft/ops.h>

#include "base/name_table.h"

#include "onnx/tensor.h"

#include <string.h>

/* The maximum number of nodes of an import, before and after they become operations of weft; and
 * the maximum number of elements of an input or output of a node that is computed during it. */
#define ONNX_MAX_NODES       262144
#define ONNX_MAX_GRAPH_NODES (4 * ONNX_MAX_NODES)
#define ONNX_MAX_FOLDED      65536
/* The memory that an import may take, besides its nodes: a constant, and so much for each byte of
 * the file and its external data. */
#define ONNX_MEMORY       ((size_t)256 << 20)
#define ONNX_MEMORY_RATIO 16

/* The bytes of a scope, with its NUL: less than weft_graph_push_scope takes, since the scopes of
 * gradients of gradients begin with "grad.grad.". */
#define ONNX_SCOPE_BYTES 245

/* An initializer of the main graph that becomes a parameter. */
typedef struct onnx_weight {
    const WeftOnnx__TensorProto *proto; /* an initializer, or the value of a node Constant */
    const char *output;                 /* its name in the file */
    const char *name;                   /* weft's */
    onnx_tensor tensor;
    bool used;
    bool statistic; /* a running mean or variance: a state, which is not trained */
} onnx_weight;

/* A value of the model. Contents that are known and values in the graph follow from each other. */
typedef struct onnx_value {
    const char *name;
    int type;                   /* enum onnx_type, for integers of few bits */
    weft_value value;           /* in the graph that is being built; none before a node needs it */
    struct onnx_region *region; /* that this graph belongs to; NULL: the model's */
    bool known;                 /* during the import */
    bool absent; /* an optional value without an element, or an input that the call of a
                         function leaves out */
    const struct onnx_sequence *sequence; /* the values of a sequence, or NULL */
    onnx_tensor tensor;
    const WeftOnnx__TensorProto *initializer; /* that has not been read yet */
    onnx_weight *weight;
    /* It follows from parameters: its contents serve as shapes, but where data depend on it, this
     * output of this node is computed in the graph. The same holds for sizes that data decide. */
    bool trainable;
    const char *output;
    const WeftOnnx__NodeProto *node;
    struct onnx_scope *scope;
    weft_value whole; /* of quantized numbers: the same in f32; or none */
    /* Of an output of DequantizeLinear: what it was computed from. The zero point may be NULL. */
    struct onnx_value *quantized, *scale, *zero;
    int axis;
    /* Of an output of QuantizeLinear with numbers as scale and zero point: its input in f32. */
    weft_value exact;
    double step, offset;
    /* Of quantized numbers: a u8, of an i8 with 128 added, whose channels are innermost in memory; or
     * none. */
    weft_value bytes;
    /* Of floats: the op on quantized numbers that they are the result of; or NULL. */
    const struct onnx_byte_op *byte_op;
    /* How many positions along `sized_axis` count in a run, an i32 scalar; no value: all. */
    weft_value size;
    int sized_axis;
    /* Of known contents that follow from such sizes: `tensor` has the largest sizes, and these are
     * the contents if each size were 0. Data decide the elements that differ. NULL: none does. */
    const void *least;
} onnx_value;

/* A function that the model defines. */
typedef struct onnx_function {
    const WeftOnnx__FunctionProto *proto;
    name_table opsets;   /* versions by domain */
    name_table defaults; /* of attributes that a call leaves out, addresses of their messages */
} onnx_function;

/* The values of a graph or of a body, by name; a body sees those of the graph around it. The body
 * of a function sees none, but its nodes refer to attributes of the node that calls it. */
typedef struct onnx_scope {
    struct onnx_scope *outer;
    const onnx_function *function;   /* NULL: a graph */
    name_table attributes;           /* of the call, addresses of their messages */
    const struct onnx_scope *caller; /* of the call */
    name_table values;               /* addresses of onnx_value */
} onnx_scope;

/* Whether normalisations and dropouts compute what the file says, or what the caller chose. */
typedef enum onnx_mode { ONNX_AS_FILE, ONNX_EVALUATION, ONNX_TRAINING } onnx_mode;

typedef struct onnx_mappings onnx_mappings;

typedef struct onnx_import {
    const onnx_mappings *mappings;
    const weft_onnx *model;
    onnx_mode mode;
    weft_graph *graph;          /* that is being built: the region's, or the model's */
    struct onnx_region *region; /* NULL: none */
    weft_error error;
    arena memory;
    size_t nodes;  /* mapped so far */
    size_t budget; /* bytes that may still be computed to recognise ops */
    int depth;     /* of bodies and of nodes that are computed again */
    int choices;   /* branches around the node that data choose */
    int convolves; /* whether the model has convolutions: 1 or -1; 0 is not known yet */
    /* [2, outputs], or NULL: the outputs whose sizes data decide, and their axes. */
    size_t *sized;
    size_t n_sized;
    /* The innermost such branch that could not be built, and the node that has it. */
    const WeftOnnx__GraphProto *failed_branch;
    const WeftOnnx__NodeProto *failed_choice;
    /* The scope of the node that is being built, "" outside. */
    char label[ONNX_SCOPE_BYTES];
} onnx_import;

typedef struct onnx_op onnx_op;

/* One node while its mapping runs. */
typedef struct onnx_node {
    onnx_import *import;
    onnx_scope *scope;
    const WeftOnnx__NodeProto *proto;
    const onnx_op *op;
    const onnx_function *function; /* that the node calls, or NULL */
    int64_t opset;
    weft_graph *graph; /* to build in: the model's, or one of constants */
    bool folding;
    bool random;     /* set by the mapping: results are new in each run, so they are not folded */
    bool trainable;  /* read the contents of an input that follows from parameters */
    bool read_open;  /* read contents of which data decide some elements */
    onnx_value **in; /* NULL where the node has no such input */
    size_t n_in, n_out;
    onnx_value *out;
} onnx_node;

typedef void onnx_mapping(onnx_node *node);

struct onnx_op {
    const char *domain, *name;
    onnx_mapping *map;
    size_t min_in, max_in, max_out;
    bool controls;          /* works on values of the model; its body may have known contents */
    size_t first_statistic; /* its inputs from this one on are running statistics; 0: none is */
};

/* Branches that data choose, but that do not fit the sizes of the inputs: the graph does not have
 * them, and a run that chooses one fails. */
#define ONNX_MAX_LEFT_OUT 8

/* What an import knows about ops, so that the walk through the nodes calls no mapping by name. */
struct onnx_mappings {
    /* The mapping of an op; NULL if there is none. */
    const onnx_op *(*find)(const char *domain, const char *name);
    const onnx_op *call; /* of a function of the model */
    /* weft__import_noted. */
    size_t (*noted)(onnx_import *import, onnx_scope *scope, WeftOnnx__NodeProto *const *nodes,
                    size_t count);
    /* weft__spread_sizes. */
    void (*sizes)(onnx_node *node);
};

/* ---- The model (model.c) ---- */

struct weft_onnx {
    WeftOnnx__ModelProto *proto;
    size_t bytes; /* of the file */
    char *path;
    arena memory;
    onnx_texts texts;
    onnx_files files;
    name_table opsets; /* versions by domain */
    onnx_function *functions;
    name_table function_index; /* in functions */
    weft_onnx_options options;
    onnx_weight *weights; /* in the order of the file */
    size_t n_weights;
    name_table weight_index; /* in weights, by their names in the file */
    weft_onnx_value *inputs, *outputs, *params;
    size_t n_inputs, n_outputs, n_params;
    const char **output_names; /* of the file, and then those of the options */
    size_t n_output_names;
    const WeftOnnx__GraphProto *left_out[ONNX_MAX_LEFT_OUT];
    size_t n_left_out;
};

/* Whether weft wrote the file. */
static inline bool onnx_is_own(const weft_onnx *m)
{
    return !strcmp(onnx_text(m->proto->producer_name), "weft");
}

/* ---- Weights (weights.c) ---- */

/* The weights of a model are its initializers, or, if none of them is one, as in files of
 * paddle2onnx, the tensors of its nodes Constant. weft writes parameters as initializers. */
weft_status weft__onnx_find_weights(weft_onnx *m, const onnx_mappings *mappings, weft_error *error);
/* The weight that a tensor with this name in the file is; NULL: it is none. */
onnx_weight *weft__onnx_weight(const weft_onnx *m, const char *output,
                               const WeftOnnx__TensorProto *proto);

/* ---- Functions and op sets (functions.c) ---- */

/* The domain, "" for "ai.onnx". */
const char *weft__onnx_domain(const char *domain);
/* Finds the functions and op sets of a model. False if out of memory. */
bool weft__onnx_index_functions(weft_onnx *m);
/* Adds attributes by name; the first of a name counts. False if out of memory. */
bool weft__onnx_add_attributes(arena *memory, name_table *attributes,
                               WeftOnnx__AttributeProto *const *list, size_t n);
/* The version of a domain that the model, or the function whose body this is, imports. */
int64_t weft__import_opset(const onnx_import *import, const onnx_scope *scope, const char *domain);
/* The function of the model for an op; NULL if there is none, or after a failure. */
const onnx_function *weft__import_function(onnx_import *import, const char *domain,
                                           const char *name);

/* ---- Scopes of names (labels.c) ---- */

/* The scope in weft's graph of a node: of its metadata, else of its name, else of its op. */
void weft__onnx_node_scope(const weft_onnx *m, const WeftOnnx__NodeProto *node,
                           char scope[ONNX_SCOPE_BYTES]);
/* The scope of an initializer: its name up to the last dot or slash. */
void weft__onnx_weight_scope(const char *name, char scope[ONNX_SCOPE_BYTES]);
/* Makes `label` the only name scope of the model's graph, "" for none. */
void weft__import_label(onnx_import *import, const char *label);

/* ---- Options (options.c) ---- */

/* Checks and copies the options of an import, which may be NULL. */
weft_status weft__onnx_set_options(weft_onnx *m, const weft_onnx_options *o, weft_error *error);
/* Fails if a size is given for a dimension that no input has. */
weft_status weft__onnx_check_dims(const weft_onnx *m, weft_error *error);

/* Lists the names of all outputs. False if out of memory. */
bool weft__onnx_list_outputs(weft_onnx *m);

/* ---- Strings (texts.c) ---- */

/* Whether an op may have strings among its inputs. */
bool weft__texts_allowed(const char *op);
/* Copies the texts of a constant input to *numbers, in `memory`. False if out of memory. */
bool weft__texts_constant(const weft_onnx *m, arena *memory, const weft_onnx_constant *constant,
                          const void **numbers);

/* ---- Values and scopes (scope.c) ---- */

/* A new value of that name; an error (NULL) if the scope has one, or out of memory. */
onnx_value *weft__scope_add(onnx_import *import, onnx_scope *scope, const char *name);
/* The value of that name in the scope or around it; NULL if there is none. */
onnx_value *weft__scope_find(const onnx_scope *scope, const char *name);
/* The innermost body of a function around a scope; NULL if there is none. */
const onnx_scope *weft__scope_function(const onnx_scope *scope);

/* ---- The walk (import.c) ---- */

/* Records an error; the first one counts. */
void weft__import_fail(onnx_import *import, weft_status status, const char *where,
                       const char *format, ...) WEFT_PRINTF(4, 5);
bool weft__import_failed(onnx_import *import);
/* Adds a graph's initializers to a scope, and maps its nodes. False on failure. */
bool weft__import_graph(onnx_import *import, onnx_scope *scope, const WeftOnnx__GraphProto *graph);
/* Maps nodes in their order. False on failure. */
bool weft__import_nodes(onnx_import *import, onnx_scope *scope, WeftOnnx__NodeProto *const *nodes,
                        size_t count);
/* Maps a node that is not part of the file, on values, to out[0..n_out-1]. False on failure. */
bool weft__import_node(onnx_import *import, onnx_scope *scope, const WeftOnnx__NodeProto *proto,
                       onnx_value **in, size_t n_in, onnx_value *out, size_t n_out);
/* Makes a value the tensor of an initializer or of a node Constant: a weight, or known contents. */
void weft__set_tensor(onnx_import *import, onnx_value *value, const WeftOnnx__TensorProto *proto);
/* Reads a tensor whose contents are needed; false if it cannot be read. */
bool weft__import_contents(onnx_import *import, onnx_value *value);
/* The value in the model's graph. */
weft_value weft__import_value(onnx_import *import, onnx_value *value);

/* ---- Bodies (bodies.c) ---- */

/* The attribute of that name; NULL after a failure. */
const WeftOnnx__GraphProto *weft__body_of(onnx_node *n, const char *name);
/* A scope within that of the node; NULL after a failure. */
onnx_scope *weft__body_scope(onnx_node *n);
/* Gives input i of a body a value. False after a failure. */
bool weft__body_input(onnx_node *n, onnx_scope *scope, const WeftOnnx__GraphProto *body, size_t i,
                      const onnx_value *value);
/* Output i of a body; NULL after a failure. */
onnx_value *weft__body_output(onnx_node *n, const onnx_scope *scope,
                              const WeftOnnx__GraphProto *body, size_t i);
/* Maps the nodes of a body on inputs, of which it must have `count`; its scope, or NULL after a
 * failure. */
onnx_scope *weft__run_body(onnx_node *n, const WeftOnnx__GraphProto *body, const onnx_value *inputs,
                           size_t count);
/* A known integer or bool without dimensions. */
onnx_value weft__known_number(onnx_node *n, weft_dtype dtype, int64_t number);
/* Makes `to` the same value under another name. */
void weft__copy_value(onnx_value *to, const onnx_value *from);

/* ---- Bodies that become graphs of their own (region.c) ---- */

/* The body of a loop that stays one, while its nodes are mapped. Values from outside are inputs of its graph. */
typedef struct onnx_region {
    struct onnx_region *outer;
    weft_graph *graph, *around;      /* of the body, and the one that it is for */
    char label[ONNX_SCOPE_BYTES];    /* that of the import outside */
    weft_value *captured, *captures; /* values of `around`, and the inputs that stand for them */
    size_t n, capacity;
} onnx_region;

/* What is mapped from now on is part of the region's graph, which this creates. False after a
 * failure. */
bool weft__region_enter(onnx_import *import, onnx_region *region);
/* Goes on outside of the region, and in it again. The graph is the caller's to free. */
void weft__region_leave(onnx_import *import, onnx_region *region);
void weft__region_resume(onnx_import *import, onnx_region *region);
/* Whether a node of the region's graph draws random numbers. */
bool weft__region_is_random(const onnx_region *region);
/* An input of the region's graph. */
weft_value weft__region_input(const onnx_region *region, weft_dtype dtype, weft_shape shape);
/* The input of the region's graph that stands for a value of the graph around it. */
weft_value weft__region_capture(onnx_import *import, weft_value from);

/* ---- Loops (loop.c) ---- */

/* Where a Loop or Scan has more iterations, its body is tried as one node before it is unrolled. */
#define ONNX_UNROLLED 16

/* Adds a Loop as one node. `trips` is its trip count, -1 if data decide it. */
void weft__keep_loop(onnx_node *n, int64_t trips);
/* The same of a Scan of `length` iterations. */
void weft__keep_scan(onnx_node *n, size_t n_states, int64_t length);
/* Runs one of the two. False if it failed because of the body, and nothing has changed. */
bool weft__try_kept(onnx_node *n, bool scan, size_t n_states, int64_t trips);

/* ---- Sizes that data decide (sizes.c) ---- */

/* After the mapping of a node: the sizes of its outputs that follow from those of its inputs. */
void weft__spread_sizes(onnx_node *n);
static inline bool has_size(const onnx_node *n, size_t i)
{
    return i < n->n_in && n->in[i] && weft_is_value(n->in[i]->size);
}
/* The first `size` positions along an axis of output i count, which is set already. An output has
 * only one such axis. */
void weft__add_size(onnx_node *n, size_t i, int axis, weft_value size);
/* Input i, or x, which follows from it element by element, with a number at positions that do not
 * count. */
weft_value weft__in_filled(onnx_node *n, size_t i, double value);
weft_value weft__filled(onnx_node *n, size_t i, weft_value x, double value);
/* The elements of input i, those that count first, and how many do; no value: all. */
weft_value weft__in_flat(onnx_node *n, size_t i, weft_value *size);
/* True at the first `size` of `dim` positions along an axis; the other dimensions are 1. */
weft_value weft__counted(weft_graph *g, weft_value size, int64_t dim, int axis, int rank);
/* The positions (i32) of the true elements of mask [n], in order, and then zeros; their number. */
weft_value weft__true_positions(weft_graph *g, weft_value mask, weft_value *size);
/* A size, where one outside of [0, bound], also an i32 scalar, ends a run with WEFT_BAD_INDEX. */
weft_value weft__size_checked(weft_graph *g, weft_value size, weft_value bound);
/* A size within bounds; plus a number; times a factor, of which the product is whole. */
weft_value weft__size_between(weft_graph *g, weft_value size, double low, double high);
weft_value weft__size_plus(weft_graph *g, weft_value size, double by);
weft_value weft__size_times(weft_graph *g, weft_value size, double factor);
/* Sets output 0, whose last dimensions are the contents of input `shape`, of which data may decide
 * one. */
void weft__set_shaped(onnx_node *n, weft_value value, int type, size_t shape);
/* Whether data decide this element of the known contents of input i; and what a run has there. */
bool weft__is_open(const onnx_node *n, size_t i, int64_t element);
weft_value weft__in_element(onnx_node *n, size_t i, int64_t element);

/* ---- For mappings (node.c) ---- */

weft_value weft__node_fail(onnx_node *n, weft_status status, const char *format, ...)
    WEFT_PRINTF(3, 4);
bool weft__node_failed(const onnx_node *n);

static inline bool has_in(const onnx_node *n, size_t i)
{
    return i < n->n_in && n->in[i];
}
static inline bool has_out(const onnx_node *n, size_t i)
{
    return i < n->n_out && n->out[i].name[0];
}
/* Input i in the graph; WEFT_NO_VALUE if the node does not have it. */
weft_value weft__in_value(onnx_node *n, size_t i);
weft_shape weft__in_shape(onnx_node *n, size_t i);
int weft__in_type(const onnx_node *n, size_t i);
/* The contents of input i, which must be known; NULL after a failure. `what` is its word. */
const onnx_tensor *weft__in_tensor(onnx_node *n, size_t i, const char *what);
/* Reads the integers of such an input; -1 after a failure, 0 without the input. */
int weft__in_ints(onnx_node *n, size_t i, const char *what, int64_t *values, int capacity);
/* The number of an input with one element, or the default if the node does not have it. */
double weft__in_number(onnx_node *n, size_t i, const char *what, double default_value);
/* Whether input i is one number in the file that adds no dimension to input 0. It is then not a
 * parameter, even as an initializer. */
bool weft__in_is_number(onnx_node *n, size_t i, double *number);

/* Attributes: their value, or the default. In the body of a function they may be the call's. */
bool weft__has_attr(const onnx_node *n, const char *name);
int64_t weft__attr_int(const onnx_node *n, const char *name, int64_t default_value);
double weft__attr_float(const onnx_node *n, const char *name, double default_value);
bool weft__attr_is(const onnx_node *n, const char *name, const char *text,
                   const char *default_text);
const WeftOnnx__AttributeProto *weft__attr_find(const onnx_node *n, const char *name);
/* Copies at most `capacity` integers and returns their number; -1 after a failure. */
int weft__attr_ints(onnx_node *n, const char *name, int64_t *values, int capacity);
/* Number i of a list; 0 without it. */
int64_t weft__attr_listed(const onnx_node *n, const char *name, size_t i);
/* An axis of an attribute, from 0; fails outside of [-rank, rank). */
int weft__attr_axis(onnx_node *n, const char *name, int64_t default_value, int rank);
int weft__node_axis(onnx_node *n, int64_t axis, int rank);
/* Reads the tensor of an attribute, called `name` in errors. False after a failure. */
bool weft__attr_tensor(onnx_node *n, const WeftOnnx__AttributeProto *a, const char *name,
                       onnx_tensor *t);
/* Integers that are an attribute before opset `since` and input i from then on: axes, splits. */
int weft__in_or_attr_ints(onnx_node *n, int64_t since, size_t i, const char *name, int64_t *values,
                          int capacity);

void weft__set_out(onnx_node *n, size_t i, weft_value value);
/* The same for a type of ONNX that is not the default: that of the first integer input, or int64.
 */
void weft__set_typed(onnx_node *n, size_t i, weft_value value, int type);
/* An output whose contents are known; they are copied. */
void weft__set_known(onnx_node *n, size_t i, int type, weft_shape shape, const void *data);

/* An output of known texts, whose shape is given (strings.c). */
void weft__set_texts(onnx_node *n, size_t i, const ProtobufCBinaryData *texts, size_t count,
                     weft_shape shape);

/* Floats stay; integers and bools become f64, in which all arithmetic on i32 is exact. */
weft_value weft__widen(onnx_node *n, weft_value x);
/* Whole numbers: x without its fraction. */
weft_value weft__towards_zero(weft_graph *g, weft_value x);
/* f64 results within the bounds of an integer type. */
weft_value weft__saturate(onnx_node *n, weft_value x, int type);
/* Numbers as integers of a type: without their fraction, and then wrapped around if the type
 * has at most 16 bits. */
weft_value weft__narrow(onnx_node *n, weft_value x, int type);
/* x rounded to a float of at most 8 bits, in f32, as the attributes `saturate` and `round_mode` say
 * (minifloat_round.c). The gradient is zero. */
weft_value weft__round_minifloat(onnx_node *n, weft_value x, const onnx_minifloat *m);
/* Quantized numbers (quantized.c), in f64. Input i, a number or a vector along an axis of `rank`
 * dimensions; the default without it. */
weft_value weft__quantized_along(onnx_node *n, size_t i, int axis, int rank, double default_value);
/* Input i less its zero point; `axis` counts from the end. */
weft_value weft__quantized_centred(onnx_node *n, size_t i, size_t zero_point, int axis);
/* Rounds x, adds the zero point and clips to the type. */
weft_value weft__quantized_round(onnx_node *n, weft_value x, weft_value zero, int type);
/* x [.., n, ..] at indices [.. of any shape ..], not negative, along an axis: [.., indices.., ..]. */
weft_value weft__gather_rows(onnx_node *n, weft_value x, weft_value indices, int axis);
/* Indices of which negative ones count from the end of `size` elements. */
weft_value weft__wrap_index(onnx_node *n, weft_value index, int64_t size);
/* True without dimensions; a run in which `wrong`, a bool without dimensions, is true ends with
 * WEFT_BAD_INDEX in it. */
weft_value weft__unless(weft_graph *g, weft_value wrong);
/* A constant of small integers or of doubles, in a dtype. */
weft_value weft__ints_value(onnx_node *n, const int64_t *values, weft_shape shape);
weft_value weft__doubles_value(onnx_node *n, const double *values, weft_shape shape,
                               weft_dtype dtype);

#endif
