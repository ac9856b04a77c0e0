/* The library's passes, as described in the list of passes (passes.c). */
#ifndef WEFT_GRAPH_REWRITE_H
#define WEFT_GRAPH_REWRITE_H

#include "passes.h"

#include <weft/pass.h>

/* A pass of this folder. There are two kinds: most rewrite the graph node by node, by rule.visit.
 * Those with `schedule` run after them and change the order in which the nodes of the rewritten
 * graph run; their rule has a name and no visit. Passes that know ops by their identity are those
 * of the ops: weft_op.passes. */
typedef struct pass {
    weft_pass rule;
    bool repeats; /* it runs until rule.needed says no */
    bool drops;   /* outputs that nothing reads may become WEFT_NO_VALUE */
    /* Called once the new graph is written; NULL: nothing is. Errors are the graph's. */
    void (*finish)(weft_graph *graph, plan_target *targets, size_t n_targets, const void *context);
    /* Called after the pass, and again after each later one, which writes the graph again; NULL:
     * nothing is. False if out of memory. */
    bool (*settle)(weft_graph *graph, const plan_target *targets, size_t n_targets,
                   const weft_plan_options *options, const body_storage *storage);
    /* Make and free the context of the rule; NULL: it has none. open returns NULL if there is no
     * memory. `storage` is NULL, or that of the body that the graph is. */
    void *(*open)(const weft_graph *graph, const plan_target *targets, size_t n_targets,
                  const weft_plan_options *options, const body_storage *storage);
    void (*close)(void *context);
    /* False if out of memory. */
    bool (*schedule)(const weft_graph *graph, schedule *s);
} pass;

extern const pass weft__pass_prune, weft__pass_expand, weft__pass_cse, weft__pass_fold,
    weft__pass_layout, weft__pass_precision, weft__pass_recompute, weft__pass_fuse;

/* ---- A walk (walk.c) ---- */

#define MAX_JOINED 4
/* The passes that share a walk, nearly always one. */
typedef struct walk {
    const weft_pass *passes[MAX_JOINED];
    void *memory[MAX_JOINED];
    size_t n;
    bool own;   /* of the program: see weft_plan_options.passes */
    bool drops; /* see pass */
    /* May be NULL. The context is that of the first pass. */
    void (*finish)(weft_graph *graph, plan_target *targets, size_t n_targets, const void *context);
    weft_graph *into; /* the new graph, which the caller owns; NULL: the walk makes one */
} walk;

/* Rewrites `source`, and returns the new graph or NULL; map[id of source] becomes the id there.
 * `options` may be NULL. */
weft_graph *weft__walk_run(walk *w, const weft_graph *source, plan_target *targets,
                           size_t n_targets, const weft_plan_options *options, uint32_t *map,
                           weft_error *error);
/* Copies the node on the inputs rewrite->in. */
void weft__rewrite_copy(weft_rewrite *rewrite);

#endif
