/* weft/plan.h - the plan: which nodes run when, and where every buffer lies in one arena; and the
 * packing of buffers on its own. */
#ifndef WEFT_PLAN_H
#define WEFT_PLAN_H

#include <weft/pass.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Packing -------------------------------------------------------------------------------- */

/* Something that needs `size` bytes while time is in [lower, upper). */
typedef struct weft_pack_item {
    int64_t lower, upper;
    size_t size;
    size_t offset; /* from weft_pack */
} weft_pack_item;

typedef struct weft_pack_options {
    size_t capacity;      /* an arena of this size will do; 0: the smallest is wanted */
    size_t alignment;     /* of the offsets; sizes are rounded up to it; 0: 1 */
    uint64_t node_budget; /* of the search, whose nodes take from 1 us for some hundred items to
                             some 100 us for thousands; 0: 100,000 */
    double seconds;       /* of the search; 0: no limit. With one, the result depends on the speed
                             of the machine */
    bool best_fit_only;   /* no search */
} weft_pack_options;

/* How the search ended, and its text. */
#define WEFT_PACK_END_MAP(X)                                                                       \
    X(OPTIMAL, "proved optimal")                                                                   \
    X(CAPACITY, "within capacity")                                                                 \
    X(BUDGET, "budget spent")

typedef enum weft_pack_end {
#define WEFT_PACK_ENUM(name, text) WEFT_PACK_##name,
    WEFT_PACK_END_MAP(WEFT_PACK_ENUM)
#undef WEFT_PACK_ENUM
} weft_pack_end;

WEFT_API const char *weft_pack_end_text(weft_pack_end end);

typedef struct weft_pack_result {
    size_t arena_bytes;       /* where the highest item ends */
    size_t lower_bound_bytes; /* the largest sum of sizes alive at one time */
    weft_pack_end end;
    uint64_t nodes; /* of the search; 0 if best fit was good enough */
} weft_pack_result;

/* Gives every item an offset so that no two that live at the same time overlap: best fit in a few
 * orders, then a search for less. `options` and `error` may be NULL. Without a limit in seconds the
 * same items get the same offsets on every machine. */
WEFT_API weft_status weft_pack(weft_pack_item *items, size_t n, const weft_pack_options *options,
                               weft_pack_result *result, weft_error *error);

/* ---- The plan ------------------------------------------------------------------------------- */

typedef struct weft_plan weft_plan;

typedef struct weft_plan_options {
    bool no_reuse; /* every buffer gets its own place (to test the planner) */
    /* Names of optional passes to leave out, comma separated; may be NULL: cse (equal nodes become
     * one), fold (what constants give is computed in the plan), fuse (nodes run on the tiles of
     * another while these are in the cache), or all, for every optional pass. The environment
     * variable WEFT_SKIP adds to them. Another name is an error. */
    const char *skip;
    bool verify; /* run weft_graph_verify after each pass and weft_plan_check at the end */
    /* Passes of the program's own (weft/pass.h), n_passes of them; they need not outlive the call.
     * They run in their order before all of the library's, on the graph as it was built. `skip` and
     * WEFT_SKIP may name them, too. A name that is empty, "all" or that of another pass is an
     * error. */
    const weft_pass *passes;
    size_t n_passes;
} weft_plan_options;

typedef struct weft_plan_stats {
    size_t nodes;             /* after the passes */
    size_t groups;            /* sets of nodes that run side by side */
    size_t barriers;          /* of one run */
    size_t fused;             /* nodes that run on the tiles of another, right after each tile */
    size_t buffers;           /* placed in the arena */
    size_t sum_bytes;         /* of all buffers: the arena without reuse */
    size_t arena_bytes;       /* with reuse */
    size_t lower_bound_bytes; /* peak of live bytes: no arena for this schedule is smaller */
    size_t state_bytes;       /* parameters and other state that the plan uses */
    size_t workspace_bytes;   /* that a session has for each thread, beside the arena */
    double ratio;             /* arena_bytes / lower_bound_bytes; 1 if there are no buffers */
    weft_pack_end packed;     /* how the search for the smallest arena ended */
    double flops;             /* of one run */
    double bytes;             /* that one run must move between memory and processor */
} weft_plan_stats;

/* Plans the computation of the targets and of nothing else. Targets can be read after a run: a
 * computed value, or a state as an update left it, is what the node computed, whatever a later
 * update of the same run wrote; a state itself is what the parameter store holds. The graph is read
 * only, and may be freed before the plan. `options` and `error` may be NULL. Returns
 * NULL on failure. A plan is immutable: threads may share it. */
WEFT_API weft_plan *weft_plan_new(const weft_graph *graph, const weft_value *targets, size_t count,
                                  const weft_plan_options *options, weft_error *error);
WEFT_API void weft_plan_free(weft_plan *plan);
WEFT_API weft_plan_stats weft_plan_get_stats(const weft_plan *plan);
/* The graph that the plan runs, after all passes; it lives as long as the plan. */
WEFT_API const weft_graph *weft_plan_graph(const weft_plan *plan);

/* One buffer of the arena: its bytes are its own while groups first..last run. */
typedef struct weft_plan_buffer {
    size_t offset, bytes;
    uint32_t first, last;
} weft_plan_buffer;
WEFT_API size_t weft_plan_buffers(const weft_plan *plan, const weft_plan_buffer **buffers);

/* Proves without the planner's code that no two live buffers overlap, that every node reads what
 * its producer wrote, that every target is still what its node computed when the run has ended, and
 * that the groups respect every dependency. */
WEFT_API weft_status weft_plan_check(const weft_plan *plan, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
