/* Estimates a training's memory and work: plans its steps without allocating their memory. */
#include "trainer.h"

#include <stdlib.h>
#include <string.h>

/* Adds a step that runs `times` in an update. */
static weft_status add_step(weft_trainer *t, step_kind kind, weft_batch_shape shape, double times,
                            weft_trainer_estimate *e)
{
    train_step *s = calloc(1, sizeof *s);
    if (!s) return trainer_no_memory(t);
    s->kind = kind;
    s->shape = shape;
    weft_status status = step_build(t, s);
    if (status == WEFT_OK) status = step_plan(t, s);
    if (status == WEFT_OK) {
        weft_plan_stats stats = weft_plan_get_stats(s->plan.plan);
        size_t workspace = weft_session_workspace(s->plan.plan, t->o.threads);
        if (stats.state_bytes > e->state_bytes) e->state_bytes = stats.state_bytes;
        if (stats.arena_bytes > e->arena_bytes) e->arena_bytes = stats.arena_bytes;
        if (workspace > e->workspace_bytes) e->workspace_bytes = workspace;
        e->flops += times * stats.flops;
    }
    step_free(s);
    return status;
}

/* Adds the parameters; with an average, evaluation has a second copy. */
static weft_status add_parameters(weft_trainer *t, weft_batch_shape shape, weft_trainer_estimate *e)
{
    train_step s = {.kind = STEP_EVALUATE, .shape = shape};
    weft_status status = step_build(t, &s);
    const weft_graph *g = s.plan.graph;
    size_t n = status == WEFT_OK ? weft_graph_params(g, NULL, 0) : 0;
    weft_value *params = calloc(n + 1, sizeof *params);
    if (status == WEFT_OK && !params) status = trainer_no_memory(t);
    if (status == WEFT_OK) weft_graph_params(g, params, n);
    for (size_t i = 0; status == WEFT_OK && i < n; i++) {
        size_t count = (size_t)weft_shape_numel(weft_shape_of(g, params[i]));
        e->parameters += count;
        if (t->o.ema > 0) e->state_bytes += count * weft_dtype_bytes(weft_dtype_of(g, params[i]));
    }
    free(params);
    weft_graph_free(s.plan.graph);
    return status;
}

weft_status weft_trainer_get_estimate(const weft_trainer_options *options, weft_batch_shape shape,
                                      weft_trainer_estimate *estimate, weft_error *error)
{
    if (error) memset(error, 0, sizeof *error);
    if (!estimate)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "trainer",
                              "an estimate needs a model and room for the result");
    *estimate = (weft_trainer_estimate){0};
    weft_trainer *t = trainer_unbound(options, error);
    if (!t) return error ? error->status : WEFT_BAD_ARGUMENT;
    weft_status status = WEFT_OK;
    if (t->sums.n > 1) status = add_step(t, STEP_SUM, shape, t->sums.n - 1, estimate);
    if (status == WEFT_OK) status = add_step(t, STEP_UPDATE, shape, 1, estimate);
    if (status == WEFT_OK) status = add_parameters(t, shape, estimate);
    if (status != WEFT_OK) weft_error_set(error, status, t->error.where, "%s", t->error.message);
    weft_trainer_free(t);
    return status;
}
