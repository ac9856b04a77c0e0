/* The library's passes, as described in the list of passes (passes.c). */
#ifndef WEFT_GRAPH_REWRITE_H
#define WEFT_GRAPH_REWRITE_H

#include "passes.h"

#include <weft/pass.h>

/* There are two kinds of pass. Most rewrite the graph node by node, by rule->visit. Those with
 * `schedule` run after them and change the order in which the nodes of the rewritten graph run;
 * their rule has a name and no visit. */
typedef struct pass {
    const weft_pass *rule;
    bool own;      /* of the program: see weft_plan_options.passes */
    bool required; /* it cannot be skipped */
    bool joined; /* it shares the walk of the pass before it, and sees what that one leaves alone */
    bool repeats; /* it runs until rule->needed says no */
    /* Whether the options ask for the pass; NULL: always. */
    bool (*wanted)(const weft_plan_options *options);
    /* Called once the new graph is written; NULL: nothing is. Errors are the graph's. */
    void (*finish)(weft_graph *graph, plan_target *targets, size_t n_targets);
    /* Make and free the context of the rule; NULL: it has none. open returns NULL if there is no
     * memory. */
    void *(*open)(const weft_graph *graph, const plan_target *targets, size_t n_targets,
                  const weft_plan_options *options);
    void (*close)(void *context);
    /* False if there is no memory. */
    bool (*schedule)(const weft_graph *graph, schedule *s);
} pass;

/* Those that know ops by their identity are in ops/passes/. */
extern const weft_pass weft__pass_join_slices, weft__pass_join_products, weft__pass_reuse_dropout,
    weft__pass_fold_conv;
extern const weft_pass weft__pass_attention, weft__pass_pack_weights, weft__pass_channels_last;
extern const weft_pass weft__pass_expand, weft__pass_cse, weft__pass_fold, weft__pass_layout,
    weft__pass_precision;
extern const weft_pass weft__pass_recompute, weft__pass_fuse;

/* Whether a node can run on one block of its outputs after another: an elementwise or row-wise one
 * whose operands are matrices. */
bool weft__fuse_runs_by_blocks(const weft_graph *graph, uint32_t node);
/* Sets which values of a graph, in which every reader of such a value can read it, are stored as
 * bf16. False if there is no memory. */
bool weft__precision_mark(weft_graph *graph, const plan_target *targets, size_t n_targets,
                          const weft_plan_options *options);

void weft__layout_finish(weft_graph *graph, plan_target *targets, size_t n_targets);
void *weft__precision_open(const weft_graph *graph, const plan_target *targets, size_t n_targets,
                           const weft_plan_options *options);
void *weft__recompute_open(const weft_graph *graph, const plan_target *targets, size_t n_targets,
                           const weft_plan_options *options);
void weft__recompute_close(void *opened);
bool weft__fuse_schedule(const weft_graph *graph, schedule *s);

/* Copies the node on the inputs rewrite->in. */
void weft__rewrite_copy(weft_rewrite *rewrite);

#endif
