/* Estimates a training's memory and work: plans its graphs without allocating their memory. */
#include "trainer.h"

#include <stdlib.h>
#include <string.h>

/* Adds a graph that runs `times` in an update. */
static weft_status add_graph(weft_trainer *t, graph_kind kind, weft_batch_shape shape, double times,
                             weft_trainer_estimate *e)
{
    trainer_graph *s = calloc(1, sizeof *s);
    if (!s) return weft__trainer_no_memory(t);
    s->kind = kind;
    s->shape = shape;
    weft_status status = weft__trainer_graph_build(t, s);
    if (status == WEFT_OK) status = weft__trainer_graph_plan(t, s);
    if (status == WEFT_OK) {
        weft_plan_stats stats = weft_plan_stats_of(s->plan.plan);
        size_t workspace = weft_plan_workspace_bytes(s->plan.plan, t->plans.session.threads);
        if (stats.state_bytes > e->state_bytes) e->state_bytes = stats.state_bytes;
        if (stats.arena_bytes > e->arena_bytes) e->arena_bytes = stats.arena_bytes;
        if (workspace > e->workspace_bytes) e->workspace_bytes = workspace;
        e->flops += times * stats.flops;
    }
    weft__trainer_graph_free(t, s);
    return status;
}

/* Counts the parameters of the whole model. */
static weft_status add_parameters(weft_trainer *t, weft_batch_shape shape, weft_trainer_estimate *e)
{
    weft_built built;
    weft_graph *g = weft__trainer_build_model(t, shape, false, (weft_ranks){0, 0, 1}, &built);
    if (!g) return t->error.status;
    size_t n;
    const weft_value *params = weft_graph_params(g, &n);
    for (size_t i = 0; i < n; i++)
        e->parameters += (size_t)weft_shape_numel(weft_shape_of(g, params[i]));
    weft_graph_free(g);
    return t->error.status;
}

/* With an average, evaluation has a second copy of this process's parameters. */
static weft_status add_average(weft_trainer *t, weft_batch_shape shape, weft_trainer_estimate *e)
{
    weft_trainer_estimate evaluation = {0};
    if (!(t->o.ema > 0)) return WEFT_OK;
    const weft_status status = add_graph(t, GRAPH_EVALUATE, shape, 0, &evaluation);
    e->state_bytes += evaluation.state_bytes;
    return status;
}

weft_status weft_trainer_estimate_of(const weft_trainer_options *options, weft_batch_shape shape,
                                     weft_trainer_estimate *estimate, weft_error *error)
{
    weft_error_clear(error);
    if (!estimate)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "trainer",
                              "an estimate needs a model and room for the result");
    *estimate = (weft_trainer_estimate){0};
    weft_trainer *t = weft__trainer_unbound(options, error);
    if (!t) return error ? error->status : WEFT_BAD_ARGUMENT;
    weft_status status = WEFT_OK;
    if (t->sums.n > 1) status = add_graph(t, GRAPH_SUM, shape, t->sums.n - 1, estimate);
    if (status == WEFT_OK) status = add_graph(t, GRAPH_UPDATE, shape, 1, estimate);
    if (status == WEFT_OK) status = add_parameters(t, shape, estimate);
    if (status == WEFT_OK) status = add_average(t, shape, estimate);
    if (status != WEFT_OK) weft_error_set(error, status, t->error.where, "%s", t->error.message);
    weft_trainer_free(t);
    return status;
}
