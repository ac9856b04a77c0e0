/* The passes of the library: what the list of passes (passes.c) says of each. */
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
    bool fixed;   /* it runs only with weft_plan_options.fixed_states */
    /* Called once the new graph is written; NULL: nothing is. Errors are the graph's. */
    void (*finish)(weft_graph *graph, plan_target *targets, size_t n_targets);
    /* Make and free the context of the rule from the graph and the budget of memory, without which
     * the pass does not run; NULL: it has none. open returns NULL if there is no memory. */
    void *(*open)(const weft_graph *graph, const plan_target *targets, size_t n_targets,
                  size_t budget);
    void (*close)(void *context);
    /* False if there is no memory. */
    bool (*schedule)(const weft_graph *graph, schedule *s);
} pass;

/* Those that know ops by their identity are in ops/passes/. */
extern const weft_pass pass_join_slices, pass_join_products, pass_reuse_dropout, pass_fold_conv;
extern const weft_pass pass_attention, pass_pack_weights, pass_channels_last;
extern const weft_pass pass_expand, pass_cse, pass_fold, pass_layout, pass_recompute, pass_fuse;

void layout_finish(weft_graph *graph, plan_target *targets, size_t n_targets);
void *recompute_open(const weft_graph *graph, const plan_target *targets, size_t n_targets,
                     size_t budget);
void recompute_close(void *opened);
bool fuse_schedule(const weft_graph *graph, schedule *s);

/* Copies the node on the inputs rewrite->in. */
void rewrite_copy(weft_rewrite *rewrite);

#endif
