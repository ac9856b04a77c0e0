/* recompute: the backward pass computes values of the forward pass again, instead of reading those
 * that were retained, so that the arena fits a budget (weft_plan_options.memory_budget).
 *
 * recompute_choose.c decides which. The copy of a node is made before the first node that reads it,
 * so it runs then. It has the same bits, because it has the attributes and inputs of the original,
 * and random numbers come from counters. O(nodes), after the choice. */
#include "recompute.h"

#include "rewrite.h"

#include <stdlib.h>
#include <string.h>

/* What else the rewriting knows: ids of the new graph by ids of the old. */
typedef struct rewriting {
    recompute r;
    uint32_t *original, *copy;
} rewriting;

/* The value of the new graph that a node of the backward pass reads. */
static weft_value read_value(const rewriting *w, const weft_graph *to, uint32_t value)
{
    const bool copied = recompute_is_copied(&w->r, value);
    return weft__graph_value(to, copied ? w->copy[value] : w->original[value]);
}

static void copy_node(rewriting *w, weft_graph *to, uint32_t index, weft_value *in)
{
    const weft_graph *g = w->r.graph;
    const weft_node_info node = weft_graph_node(g, index);
    weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}};
    weft__graph_set_origin(to, &g->nodes[index]);
    weft_graph_set_role(to, (weft_role){WEFT_BACKWARD, 0});
    for (size_t i = 0; i < node.n_in; i++) in[i] = read_value(w, to, node.in[i]);
    weft__graph_copy_node(to, &node, in, out);
    for (size_t i = 0; i < node.n_out; i++) w->copy[node.first_out + i] = out[i].id;
}

static bool visit(weft_rewrite *rewrite)
{
    rewriting *w = rewrite->context;
    const weft_graph *g = w->r.graph;
    weft_value *in = rewrite->in;
    if (!recompute_is_forward(g, (uint32_t)rewrite->index)) {
        for (size_t i = 0; i < rewrite->node.n_in; i++) {
            const size_t n = weft__recompute_missing(&w->r, rewrite->node.in[i]);
            for (size_t k = 0; k < n; k++) copy_node(w, rewrite->graph, w->r.list[k], in);
        }
        weft__graph_set_origin(rewrite->graph, &g->nodes[rewrite->index]);
        for (size_t i = 0; i < rewrite->node.n_in; i++)
            in[i] = read_value(w, rewrite->graph, rewrite->node.in[i]);
    }
    weft__rewrite_copy(rewrite);
    for (size_t i = 0; i < rewrite->node.n_out; i++)
        w->original[rewrite->node.first_out + i] = rewrite->out[i].id;
    return true;
}

static void close_rewriting(void *opened)
{
    rewriting *w = opened;
    if (!w) return;
    free(w->r.retained);
    free(w->r.fixed);
    free(w->r.dropped);
    free(w->r.done);
    free(w->r.list);
    free(w->original);
    free(w->copy);
    free(w);
}

static void *open_rewriting(const weft_graph *graph, const plan_target *targets, size_t n_targets,
                            const weft_plan_options *options, const body_storage *storage)
{
    (void)storage;
    rewriting *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->r = (recompute){.graph = graph,
                       .retained = calloc(graph->n_values, 1),
                       .fixed = calloc(graph->n_values, 1),
                       .dropped = calloc(graph->n_values, 1),
                       .done = calloc(graph->n_nodes + 1, 1),
                       .list = calloc(graph->n_nodes + 1, sizeof(uint32_t))};
    w->original = calloc(graph->n_values, sizeof *w->original);
    w->copy = calloc(graph->n_values, sizeof *w->copy);
    if (w->r.retained && w->r.fixed && w->r.dropped && w->r.done && w->r.list && w->original &&
        w->copy &&
        weft__recompute_choose(&w->r, targets, n_targets, options->memory_budget,
                               options->recompute)) {
        memset(w->r.done, 0, graph->n_nodes);
        return w;
    }
    close_rewriting(w);
    return NULL;
}

static bool wanted(const weft_plan_options *options)
{
    return options->memory_budget > 0 || options->recompute;
}

const pass weft__pass_recompute = {
    .rule = {.name = "recompute",
             .doc = "the backward pass recomputes values, to fit a memory budget or as asked for",
             .visit = visit,
             .wanted = wanted},
    .open = open_rewriting,
    .close = close_rewriting};
