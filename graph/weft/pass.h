/* weft/pass.h - passes of a program's own: they rewrite the graph before it is planned.
 *
 * A pass is one function. The planner walks the graph in topological order and writes a new one;
 * for each node the function may add other nodes instead; nodes that it leaves alone are copied.
 * Nodes that no target needs are never copied, so a pass does not remove what it replaced. The
 * library's passes have the same form. */
#ifndef WEFT_PASS_H
#define WEFT_PASS_H

#include <weft/op.h>

struct weft_plan_options; /* <weft/plan.h> */

#ifdef __cplusplus
extern "C" {
#endif

/* A node that is being rewritten. */
typedef struct weft_rewrite {
    const weft_graph *source; /* the graph that is read */
    size_t index;             /* of the node in it */
    weft_node_info node;      /* weft_graph_node(source, index): its value ids are of `source` */
    weft_graph *graph;        /* the new graph: builders and weft_apply add nodes to it */
    weft_value *in;           /* the node's inputs in the new graph, node.n_in of them. A pass may
                                 put others there, or lower node.n_in: a copy reads what it leaves */
    weft_value *out;          /* node.n_out values of the new graph, for the pass to fill */
    const uint8_t *fixed;     /* by node of `source`: it is computed in a session's first run only;
                                 NULL without weft_plan_options.fixed_states */
    void *memory;             /* of weft_pass.memory_bytes */
    void *context;            /* of the pass */
    const struct weft_plan_options *options; /* of the plan; NULL in weft_graph_rewrite */
} weft_rewrite;

struct weft_pass {
    const char *name; /* for weft_plan_options.skip and messages; without commas */
    const char *doc;  /* one line; may be NULL */
    /* Fills rewrite->out and returns true, or returns false: then the node is copied. Each output
     * must have the dtype and the shape of the output that it replaces; else weft_plan_new fails
     * with WEFT_BAD_DTYPE or WEFT_BAD_SHAPE, and with WEFT_BAD_ARGUMENT if it does not belong to
     * the new graph. Errors of builders and weft_graph_fail end the pass; weft_plan_new returns
     * them. A program's own pass is not called for inputs, states, constants, groups and
     * updates. */
    bool (*visit)(weft_rewrite *rewrite);
    void *context; /* the program's; may be NULL */
    /* Whether the pass has anything to do in the graph; if not, it is left out. NULL: it always
     * runs. */
    bool (*needed)(const weft_graph *source);
    /* The size of rewrite->memory, which is zero at the first node and freed after the last. NULL:
     * the pass needs none. */
    size_t (*memory_bytes)(const weft_graph *source);
    bool required; /* results depend on it: neither options nor WEFT_SKIP leave it out */
    /* Whether the options of the plan (weft/plan.h) ask for the pass. NULL: always. */
    bool (*wanted)(const struct weft_plan_options *options);
    bool
        unrolls; /* loops (weft/scan.h) are replaced by their steps before the pass runs, which then
                     sees the nodes of their bodies. Of a program's own pass and weft_graph_rewrite */
};

/* Copies into `graph` the nodes of another graph that the values need, as the pass `rule` rewrites them,
 * and replaces values[i] by that of `graph`; WEFT_NO_VALUE stays.
 * Nodes that no value needs any more are left out. For builders that change what
 * another builder has made. The pass is called for inputs, states, constants, groups and updates as
 * well, whatever its `wanted` and `needed` say. Returns the graph's status: WEFT_BAD_ARGUMENT for a
 * value of a third graph, or the first error of either graph. */
WEFT_API weft_status weft_graph_rewrite(weft_graph *graph, const weft_graph *source,
                                        const weft_pass *rule, weft_value *values, size_t n);
/* Declares a state in the new graph by its scoped name, whatever the scope of the node is, or finds
 * the one of that name: see weft_state. */
WEFT_API weft_value weft_rewrite_state(weft_rewrite *rewrite, const char *scoped_name,
                                       weft_dtype dtype, weft_shape shape, weft_init init);
/* weft_param (weft_state if `trainable` is false) by its whole name, whatever the current scope:
 * the node lies in the current scope, and the store holds the tensor under `whole_name`. For
 * importers, whose files name parameters. */
WEFT_API weft_value weft_state_named(weft_graph *graph, const char *whole_name, weft_dtype dtype,
                                     weft_shape shape, weft_init init, bool trainable);

#ifdef __cplusplus
}
#endif
#endif
