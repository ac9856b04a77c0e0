/* The body of a scan: a graph of its own, which the nodes of all graphs that copy the scan share. A
 * node is a scan if its op has the shape rule of scans; the ops themselves are in autograd/scan.c,
 * since their expansions and gradients consist of other ops. */
#ifndef WEFT_GRAPH_SCAN_H
#define WEFT_GRAPH_SCAN_H

#include "ir/ir.h"

#include <stdatomic.h>

/* Never changed once it is made, except for `references`. */
typedef struct scan_body {
    weft_graph *graph;
    uint32_t n_carry, n_each, n_shared, n_out;
    uint32_t *in;   /* [n_carry + n_each + n_shared]: ids of inputs of the graph */
    uint32_t *out;  /* [n_carry + n_out]: ids of its values; first those that become the carries */
    uint32_t when;  /* index + 1 in in[] of a carry or sequence of bools, which says whether a step
                       runs; 0: all do */
    weft_cost cost; /* of one step */
    atomic_uint references;
} scan_body;

/* The inputs of a node are carries, sequences [n, ...] of which each step reads a slice, and what
 * all steps share; its outputs the last carries, then the stacks [n, ...] of out. A step that does
 * not run passes the carries on, and its rows of the stacks are zeros. */
typedef struct scan_attr {
    scan_body *body;
    const weft_op *ops; /* the scans of 1, 2, .. outputs (autograd/scan.c) */
    int64_t n;
    int64_t nodes;    /* of the body, for pictures */
    bool reverse;     /* the steps run from n - 1 down to 0 */
    bool recompute;   /* the gradient stores no more than the carries */
    bool conditional; /* the body has `when`; for pictures */
} scan_attr;

extern const weft_attr_field weft__scan_attrs[];
WEFT_PRIVATE_API bool weft__scan_infer(weft_infer *infer);
void weft__scan_cost(const weft_call *call, weft_cost *cost);

/* The attributes of a scan; NULL for another node. */
static inline const scan_attr *scan_of(const weft_op *op, const void *attr)
{
    return op->infer == weft__scan_infer ? attr : NULL;
}

static inline uint32_t scan_inputs(const scan_body *b)
{
    return b->n_carry + b->n_each + b->n_shared;
}

/* The shape of n values along a new first dimension. Beyond WEFT_MAX_RANK it is invalid, as
 * weft_shape_numel says. */
static inline weft_shape scan_stack_shape(weft_shape one, int64_t n)
{
    weft_shape all = {one.rank + 1, {n}};
    for (int d = 0; d < one.rank && d + 1 < WEFT_MAX_RANK; d++) all.dim[d + 1] = one.dim[d];
    return all;
}

/* Whether the loop ends with the first step that does not run. */
static inline bool scan_is_while(const scan_body *b)
{
    return b->when && b->when <= b->n_carry;
}

/* Copies from `source` what the values out[] of `like` need, and returns a body with one reference.
 * Ids of `like` are those of `source`; sequences and shared inputs that no value needs are left
 * out, unless it would be all inputs, and used[i] says if input i is not. NULL, with the error of `graph`, if a node cannot be in a
 * body. (scan_body.c) */
scan_body *weft__scan_body_new(weft_graph *graph, const weft_graph *source, const scan_body *like,
                               bool *used);
/* Gives up a reference; NULL is accepted. (graph.c) */
void weft__scan_body_release(scan_body *body);

#endif
