/* Which values of the forward pass the backward pass computes again. */
#ifndef WEFT_GRAPH_RECOMPUTE_H
#define WEFT_GRAPH_RECOMPUTE_H

#include "passes.h"

/* What the choice and the rewriting know of a graph's values and nodes. */
typedef struct recompute {
    const weft_graph *graph;
    uint8_t *retained; /* by root: readers in the backward pass read the value itself. If not set,
                          they read a copy, which is computed again */
    uint8_t *fixed;    /* by root: it must be retained */
    uint8_t *dropped;  /* by root: it must not */
    uint8_t *done;     /* by node: its copy has been made */
    uint32_t *list;    /* room for nodes */
} recompute;

/* Whether a node belongs to the forward pass. */
static inline bool recompute_is_forward(const weft_graph *g, uint32_t node)
{
    return g->nodes[node].role.direction == WEFT_FORWARD;
}

/* Whether the backward pass reads a copy of a value: of a dropped value of the forward pass, or of
 * a view of one. */
static inline bool recompute_is_copied(const recompute *r, uint32_t value)
{
    const value_record *v = &r->graph->values[value];
    return !r->retained[v->root] && recompute_is_forward(r->graph, v->node);
}

/* Lists in r->list, in ascending order, the nodes whose copies are missing for a copy of a value,
 * marks them as done, and returns how many there are: none if the value is retained. */
size_t weft__recompute_missing(recompute *r, uint32_t value);

/* Chooses r->retained: drops what lies in the scopes (weft_plan_options.recompute), and then so much that
 * about `target` bytes of the arena are alive at most, at little cost; 0: no more. False if out of
 * memory. */
bool weft__recompute_choose(recompute *r, const plan_target *targets, size_t n_targets,
                            size_t target, const char *scopes);

/* Measures r->retained as the choice does: the sum over all nodes that run of the bytes above the
 * target, and the time of all copies. For tests. */
bool weft__recompute_measure(recompute *r, const plan_target *targets, size_t n_targets,
                             size_t target, double *excess_bytes, double *nanoseconds);

#endif
