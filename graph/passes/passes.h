/* Rewriting a graph before it is planned, and its schedule. */
#ifndef WEFT_GRAPH_PASSES_H
#define WEFT_GRAPH_PASSES_H

#include "ir/scan.h"

#include <weft/plan.h>

/* What a value is to the program that built the graph. */
enum {
    VALUE_INPUT = 1,
    VALUE_STATE = 2, /* lies in a state: the state itself, or what an update made of it */
    VALUE_TARGET = 4,
    VALUE_STORED = 8 /* a state itself or a constant, which has contents before any run */
};

/* A value that the program can read when a run has ended. */
typedef struct plan_target {
    weft_value value; /* in the graph that is being compiled, then in the plan's */
    uint32_t user;    /* its id in the program's graph */
    bool is_state;    /* the program asked for a state itself: what the store holds at the end */
} plan_target;

/* How the operands of a scan are stored outside its body. The inputs and targets of the plan of the body are
 * stored so. */
typedef struct body_storage {
    const scan_body *body;
    const bool *narrow; /* by input, then by output: as bf16 */
    const uint32_t
        *map; /* by value of the body's graph: its id in the graph that the passes have made */
} body_storage;

/* The order in which nodes run, and what is fused. */
typedef struct schedule {
    uint32_t *order; /* nodes with kernels */
    size_t n;
    uint32_t *n_fused; /* by position of a head: how many of the next positions are fused with it */
    size_t n_fixed;    /* the first n_fixed positions run in the first run only */
} schedule;

/* About how long a core takes for some work, from the peak rates of one: it compares nodes with
 * each other, and underestimates small ones. */
static inline double passes_nanoseconds(weft_cost cost)
{
    return cost.flops / 150.0 + cost.bytes / 15.0;
}

/* Whether the options name only optional passes to skip, and their own passes are complete. */
bool weft__passes_check(const weft_plan_options *options, weft_error *error);
/* Runs all passes that rewrite graphs, except skipped ones. Returns a new graph, and in map[id of
 * `graph`] the ids of its values there (0: not needed). Nodes that no target needs are left out.
 * `storage` is NULL unless the graph is that of a body. */
weft_graph *weft__passes_rewrite(const weft_graph *graph, plan_target *targets, size_t n_targets,
                                 const weft_plan_options *options, uint32_t *map,
                                 const body_storage *storage, weft_error *error);
/* Marks by node what need not be computed again while states stay as they are: views and nodes that
 * depend on states and constants alone, none of which the graph updates, or on nothing, and that
 * cannot fail. Leaves that never change are also marked. O(nodes). */
void weft__passes_mark_fixed(const weft_graph *graph, uint8_t *fixed);
/* Runs the passes over the schedule of a rewritten graph. False if out of memory. */
bool weft__passes_schedule(const weft_graph *graph, schedule *s, const weft_plan_options *options);

#endif
