/* weft/inspect.h - what a graph, a plan and a profile look like: DOT, summaries, tables, pictures.
 *
 * Of the library weft-inspect. Every function writes to a FILE that the caller opens and closes; to
 * a string: give a FILE of open_memstream.
 */
#ifndef WEFT_INSPECT_H
#define WEFT_INSPECT_H

#include <weft/measure.h>
#include <weft/op.h>
#include <weft/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Graphs --------------------------------------------------------------------------------- */

/* How one node is drawn. An empty field leaves the usual drawing. */
typedef struct weft_dot_node {
    char color[16]; /* of its area, "#rrggbb" */
    char line[96];  /* an additional line of its label */
} weft_dot_node;

typedef struct weft_dot_options {
    /* Called for each node, by index, with a zeroed *node; may be NULL. */
    void (*decorate)(void *user, const weft_graph *graph, size_t index, weft_dot_node *node);
    void *user;
    /* More than 0: the nodes of one role whose scopes begin with the same `depth` components are
     * drawn as one box ("enc.0" of "enc.0.attn.q" for 2), with the number of nodes and of
     * parameters, and with shapes on the edges between boxes. 0: every node is drawn. */
    int depth;
    bool no_update;   /* omits the optimiser: nodes of role WEFT_UPDATE */
    bool no_backward; /* omits gradients and the optimiser */
} weft_dot_options;

/* Writes the graph as DOT text for Graphviz, with name scopes as clusters. Colours distinguish
 * forward, backward and update nodes, inputs and states. `options` may be NULL. WEFT_IO if the file
 * cannot be written. */
WEFT_API weft_status weft_graph_write_dot(const weft_graph *graph, const weft_dot_options *options,
                                          FILE *file, weft_error *error);

/* A scope of the forward pass. Its sums include those of its inner scopes. */
typedef struct weft_layer {
    const char *scope; /* "enc.0.attn"; "" for what has no scope */
    int depth;         /* of inner scopes around it: 2 for "enc.0.attn" */
    size_t parent;     /* the index of the scope around it; SIZE_MAX if there is none */
    weft_value input;  /* the first value of another scope that it reads, not a state or constant */
    /* The last value that another scope reads; if none does, the last that it computes. */
    weft_value output;
    double parameters; /* numbers of its trainable states */
    weft_cost cost;    /* of one run of its nodes: weft_graph_node_cost */
} weft_layer;

typedef struct weft_layers {
    weft_layer *layer; /* the outer before the inner, in the order of the graph */
    size_t n;
    size_t *of; /* by node of the graph: its innermost layer; SIZE_MAX: not of the forward pass */
} weft_layers;

/* Finds the layers of a graph; weft_layers_free frees what it allocates, and accepts zeros. Scopes
 * are those of the layers; the graph must outlive them. The graph's error, or WEFT_NO_MEMORY, on
 * failure. */
WEFT_API weft_status weft_layers_find(const weft_graph *graph, weft_layers *layers,
                                      weft_error *error);
WEFT_API void weft_layers_free(weft_layers *layers);

typedef struct weft_summary_options {
    int depth; /* rows are for scopes of at most this many components; 0: all */
    int width; /* columns of a line, at least 48; 0: 80 */
} weft_summary_options;

/* Prints the layers as a table, with the type of what each computes, its parameters and its work;
 * and then the parameters, their bytes, and the work of the forward pass, the backward pass and the
 * updates. A long name or type is shortened in its middle. To a string: give a FILE of
 * open_memstream. WEFT_IO if the file cannot be written; nothing is printed elsewhere. `options`
 * may be NULL. */
WEFT_API weft_status weft_graph_print_summary(const weft_graph *graph,
                                              const weft_summary_options *options, FILE *file,
                                              weft_error *error);

/* ---- Plans ---------------------------------------------------------------------------------- */

/* Writes a picture of the arena as SVG: intervals across, bytes up, a rectangle for each buffer in
 * the colour of the scope whose node writes it, the lower bound and the interval with most live
 * bytes. WEFT_IO if the file cannot be written, WEFT_NO_MEMORY. */
WEFT_API weft_status weft_plan_write_svg(const weft_plan *plan, FILE *file, weft_error *error);

/* ---- Profiles ------------------------------------------------------------------------------- */

typedef enum weft_profile_by {
    WEFT_PROFILE_BY_NODE, /* a row for each node of weft_plan_graph that computes */
    WEFT_PROFILE_BY_OP,
    WEFT_PROFILE_BY_SCOPE
} weft_profile_by;

typedef struct weft_profile_row {
    /* By node: the name of output 0, or scope/op; from the second node of a name on followed by a
     * number, "enc.0.ffn/matmul#2", in the order of the nodes of weft_plan_graph. A node in the body of
     * a loop follows the loop, "scan/matmul"; the row of the loop is what its nodes leave. By op: the
     * op. By scope: the scope, or "". */
    const char *name;
    const char *op;    /* by node and by op; else "" */
    const char *scope; /* by node and by scope; else "" */
    const char *shape; /* by node: the type of output 0, "f32 [2, 3]"; else "" */
    size_t node;    /* by node: its index in weft_plan_graph, or that of its loop; else SIZE_MAX */
    size_t nodes;   /* nodes in this row */
    uint64_t calls; /* how often they ran, together */
    double compute_seconds, waiting_seconds; /* over all threads */
    double flops, bytes;                     /* of all calls, as the ops count them */
    /* The least time of all calls, by the roofline model (Williams et al. 2009): per call, the
     * larger of flops and bytes, each divided by its peak rate. 0 without peaks. */
    double roofline_seconds;
} weft_profile_row;

/* The rows of a profile, which do not depend on it any more. */
typedef struct weft_profile_table weft_profile_table;
/* By scope, `depth` > 0 groups by that many components ("enc.0" of "enc.0.attn.q" for 2), and 0 by
 * all of them. `peaks` may be NULL. NULL on failure: WEFT_BAD_ARGUMENT or WEFT_NO_MEMORY.
 * weft_profile_table_free accepts NULL. */
WEFT_API weft_profile_table *weft_profile_table_new(const weft_profile *profile, weft_profile_by by,
                                                    int depth, const weft_peaks *peaks,
                                                    weft_error *error);
WEFT_API void weft_profile_table_free(weft_profile_table *table);
/* The table's array of *count rows, in order of first appearance in the schedule; `count` may be
 * NULL. */
WEFT_API const weft_profile_row *weft_profile_table_rows(const weft_profile_table *table,
                                                         size_t *count);

typedef struct weft_profile_print_options {
    weft_profile_by by;
    int depth;               /* as in weft_profile_table_new */
    const weft_peaks *peaks; /* NULL: no column for the roofline */
    int width;               /* columns of a line, at least 32; 0: 80 */
    size_t max_rows;         /* the others are added up in one row; 0: all rows are printed */
    bool in_order;           /* rows are in the order of the schedule; else the longest are first */
} weft_profile_print_options;

/* Prints the rows as a table, with a row "(start)" for waking the threads and one for the total.
 * The second line has the units. Times are those of one run, averaged over the threads, so that
 * they add up to its duration: time = compute + waiting. Rates are the work over the compute time;
 * roofline is the least time of that work over the compute time. A column that does not fit is left
 * out, the least important first, and a long name is shortened in its middle. WEFT_IO if the file
 * cannot be written; nothing is printed elsewhere. */
WEFT_API weft_status weft_profile_print(const weft_profile *profile,
                                        const weft_profile_print_options *options, FILE *file,
                                        weft_error *error);

/* The time that a thread spent on a node, in a recorded run. Gaps are waiting time. */
typedef struct weft_profile_event {
    size_t node; /* of weft_plan_graph; of a fused group, its head */
    size_t run;  /* from 0: the first run since the profile was switched on */
    int thread;
    int phase; /* of the node's kernel */
    /* Nanoseconds since the first event of the recorded runs. */
    uint64_t begin_ns, end_ns;
} weft_profile_event;
/* The events of the recorded runs (trace_runs), which do not depend on the profile any more. NULL
 * on failure: WEFT_BAD_ARGUMENT or WEFT_NO_MEMORY. weft_profile_events_free accepts NULL. */
typedef struct weft_profile_events weft_profile_events;
WEFT_API weft_profile_events *weft_profile_events_new(const weft_profile *profile,
                                                      weft_error *error);
WEFT_API void weft_profile_events_free(weft_profile_events *events);
/* The array of *count events, run by run, thread by thread, in order of time; `count` may be NULL.
 */
WEFT_API const weft_profile_event *weft_profile_events_list(const weft_profile_events *events,
                                                            size_t *count);
/* Writes the recorded runs as a trace for Perfetto or chrome://tracing: JSON in the Trace Event
 * Format, with a track for each thread and an event for each time that it spent on a step. Gaps
 * are waiting time. WEFT_IO if the file cannot be written. */
WEFT_API weft_status weft_profile_write_trace(const weft_profile *profile, FILE *file,
                                              weft_error *error);
/* Writes the planned graph as DOT text. Nodes that compute are redder the larger their fraction of
 * the time (compute and waiting), and show that fraction and their time per run. */
WEFT_API weft_status weft_profile_write_dot(const weft_profile *profile, FILE *file,
                                            weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
