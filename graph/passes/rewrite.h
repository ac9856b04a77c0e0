/* What a pass is: one function that may put something else in the place of a node, while a graph is
 * written anew, node by node, in topological order. */
#ifndef WEFT_GRAPH_REWRITE_H
#define WEFT_GRAPH_REWRITE_H

#include "passes.h"

typedef struct rewrite {
    const weft_graph *src;
    weft_graph *dst;
    uint32_t *map;     /* by id in src: id in dst, 0 if not there */
    weft_value *in;    /* the node's inputs in dst */
    uint32_t *table;   /* common subexpressions: nodes of dst + 1 by hash */
    size_t table_size; /* a power of two */
} rewrite;

typedef struct pass {
    const char *name, *doc;
    bool required; /* it cannot be skipped */
    /* There are two kinds of pass; exactly one of `visit` and `schedule` is set. One rewrites the
     * graph node by node: visit fills out[] in dst and returns true, or returns false for a plain
     * copy. The other changes the schedule of the rewritten graph; false if there is no memory. */
    bool (*visit)(rewrite *r, const node_record *node, weft_value *out);
    bool (*schedule)(const weft_graph *graph, schedule *s);
    /* NULL: the pass runs once; else as often as the graph needs it. */
    bool (*needed)(const weft_graph *graph);
    /* What is left to do once the graph is written; NULL: nothing. Errors are the graph's. */
    void (*finish)(weft_graph *graph, plan_target *targets, size_t n_targets);
} pass;

extern const pass pass_expand, pass_cse, pass_fold, pass_layout, pass_fuse;

/* Writes the node as it is, on the inputs that the rewrite has for it. */
void rewrite_copy(rewrite *r, const node_record *node, weft_value *out);

#endif
