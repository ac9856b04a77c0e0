/* Distinct names of all nodes of a graph (node_names.c). */
#ifndef WEFT_GRAPH_NODE_NAMES_H
#define WEFT_GRAPH_NODE_NAMES_H

#include "ir/ir.h"

typedef struct node_names {
    const char **at; /* by node */
    arena texts;
} node_names;

/* False if out of memory. weft__node_names_free accepts what it left. */
bool weft__node_names_make(node_names *names, const weft_graph *g);
void weft__node_names_free(node_names *names);

#endif
