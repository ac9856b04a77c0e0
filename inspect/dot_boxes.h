/* Which nodes a picture of a graph shows, and which of them it draws as one box (dot_boxes.c). */
#ifndef WEFT_GRAPH_DOT_BOXES_H
#define WEFT_GRAPH_DOT_BOXES_H

#include <weft/inspect.h>

#include "ir/ir.h"

#define DOT_HIDDEN UINT32_MAX

/* A box: the nodes of one role in one scope, under the name of the first of them. */
typedef struct dot_box {
    uint32_t nodes;    /* 0: the node is drawn by itself, or in the box of another */
    const char *scope; /* its first `length` bytes */
    size_t length;
    double parameters; /* numbers of the trainable states among the nodes */
} dot_box;

/* Data that flows from one box or node to another; `value` is one of its kinds. */
typedef struct dot_edge {
    uint32_t from, to, value;
} dot_edge;

typedef struct dot_boxes {
    uint32_t *of;    /* by node: itself, the first node of its box, or DOT_HIDDEN */
    dot_box *box;    /* by node */
    dot_edge *edges; /* in order, each once */
    size_t n_edges;
} dot_boxes;

/* False if out of memory. weft__dot_boxes_free accepts what it left. */
bool weft__dot_boxes_make(dot_boxes *boxes, const weft_graph *g, const weft_dot_options *options);
void weft__dot_boxes_free(dot_boxes *boxes);

#endif
