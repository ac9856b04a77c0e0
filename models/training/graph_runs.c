/* Plans and sessions of a trainer's graphs: see graphs.c. */
#include "trainer.h"

#include "base/arena.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Plans ---- */

/* The value that name_gradients (graphs.c) named, if it did. */
static weft_value gradient_of(const weft_graph *g, const char *param)
{
    char name[TRAINER_GRADIENT_BYTES];
    return trainer_gradient_name(param, name) ? weft_graph_find(g, name) : WEFT_NO_VALUE;
}

bool weft_trainer_gradient(const weft_trainer *trainer, const char *name, weft_tensor *gradient)
{
    weft_tensor param;
    const trainer_graph *s = trainer ? trainer->updated : NULL;
    if (!s || !name || !gradient || !weft_params_find(trainer->params, name, &param)) return false;
    const weft_value value = gradient_of(s->plan.graph, name);
    if (!weft_is_value(value) ||
        weft_session_tensor(s->plan.session, value, gradient, NULL) != WEFT_OK)
        return false;
    *gradient = weft_tensor_dense(gradient->data, gradient->dtype, param.shape);
    return true;
}

weft_status weft__trainer_graph_plan(weft_trainer *t, trainer_graph *s)
{
    const bool computes = s->kind == GRAPH_UPDATE || s->kind == GRAPH_SUM;
    const weft_plan_options o = {.memory_budget = t->o.memory_budget,
                                 .precision = t->o.precision,
                                 .keep_f32 = t->o.keep_f32};
    const weft_graph *g = s->plan.graph;
    size_t n_params, n = 0;
    const weft_value *params = weft_graph_params(g, &n_params);
    weft_value *targets = calloc(n_params + 5, sizeof *targets);
    if (!targets) return weft__trainer_no_memory(t);
    targets[n++] = s->target;
    if (computes && weft_is_value(s->built.loss)) targets[n++] = s->built.loss;
    if (s->kind == GRAPH_UPDATE) targets[n++] = s->norm;
    if (s->kind == GRAPH_EVALUATE && weft_is_value(s->metric)) targets[n++] = s->metric;
    if (s->kind == GRAPH_EVALUATE && weft_is_value(s->accuracy)) targets[n++] = s->accuracy;
    for (size_t i = 0; i < n_params && s->kind == GRAPH_UPDATE; i++) {
        targets[n] = gradient_of(g, weft_name_of(g, params[i]));
        n += weft_is_value(targets[n]);
    }
    s->plan.plan = weft_plan_new(g, targets, n, &o, &t->error);
    free(targets);
    return s->plan.plan ? WEFT_OK : t->error.status;
}

void weft__trainer_graph_free(weft_trainer *t, trainer_graph *s)
{
    if (!s) return;
    weft_plan_free(s->plan.plan);
    weft_graph_free(s->plan.graph);
    if (t->hooks) t->hooks->built(s);
    free(s);
}

/* The graph in a lane; any lane if it is -1. */
static trainer_graph *find_graph(const weft_trainer *t, graph_kind kind, weft_batch_shape shape,
                                 int slot, int lane)
{
    for (plan_entry *e = t->plans.first; e; e = e->next) {
        trainer_graph *s = (trainer_graph *)(void *)e;
        if (s->kind == kind && s->slot == slot && (lane < 0 || e->lane == lane) &&
            !memcmp(&s->shape, &shape, sizeof shape))
            return s;
    }
    return NULL;
}

/* The same graph for another lane. */
static trainer_graph *borrow_graph(weft_trainer *t, const trainer_graph *from)
{
    trainer_graph *s = malloc(sizeof *s);
    if (!s) {
        weft__trainer_no_memory(t);
        return NULL;
    }
    *s = *from;
    s->plan.session = NULL;
    s->plan.borrowed = true;
    weft__plans_add(&t->plans, &s->plan);
    return s;
}

bool weft__trainer_may_begin(void *context, const char *name)
{
    const weft_trainer *t = context;
    const weft_state_key key = weft_state_key_read(name);
    if (key.kind == WEFT_STATE_MODEL) return !t->resumed && !weft_params_source(t->params);
    if (key.kind == WEFT_STATE_AVERAGE && !t->averages) return true;
    return !t->progress.updates || key.kind == WEFT_STATE_SUM || weft__pieces_follow(t, &key);
}

/* Adds to the store what the graph declares. */
static weft_status begin_states(weft_trainer *t, const trainer_graph *s)
{
    const weft_params_filter anew = {weft__trainer_may_begin, t};
    return weft_params_init_some(s->plan.store, s->plan.graph,
                                 s->plan.store == t->params ? &anew : NULL, t->o.seed, &t->error);
}

static trainer_graph *new_graph(weft_trainer *t, graph_kind kind, weft_batch_shape shape, int slot)
{
    trainer_graph *s = calloc(1, sizeof *s);
    if (!s) {
        weft__trainer_no_memory(t);
        return NULL;
    }
    s->kind = kind;
    s->shape = shape;
    s->slot = slot;
    /* Evaluations read averaged parameters, if there are any. */
    s->plan.store = kind == GRAPH_EVALUATE && t->averaged ? t->averaged : t->params;
    weft_status status = weft__trainer_graph_build(t, s);
    if (status == WEFT_OK) status = weft__trainer_graph_plan(t, s);
    if (status == WEFT_OK) status = begin_states(t, s);
    if (status != WEFT_OK) {
        weft__trainer_graph_free(t, s);
        return NULL;
    }
    if (t->hooks) t->hooks->built(s);
    weft__plans_add(&t->plans, &s->plan);
    t->planned = true;
    return s;
}

trainer_graph *weft__trainer_graph_in_lane(weft_trainer *t, graph_kind kind, weft_batch_shape shape,
                                           int slot, int lane)
{
    trainer_graph *s = find_graph(t, kind, shape, slot, lane);
    if (!s) {
        const trainer_graph *other = find_graph(t, kind, shape, slot, -1);
        s = other ? borrow_graph(t, other) : new_graph(t, kind, shape, slot);
        if (s) s->plan.lane = lane;
    }
    return s && weft__plans_open(&t->plans, &s->plan, &t->error) == WEFT_OK ? s : NULL;
}

trainer_graph *weft__trainer_graph_for(weft_trainer *t, graph_kind kind, weft_batch_shape shape,
                                       int slot)
{
    return weft__trainer_graph_in_lane(t, kind, shape, slot, 0);
}

/* ---- Feeding and running ---- */

weft_status weft__trainer_graph_feed_scalar(weft_trainer *t, trainer_graph *s, weft_value input,
                                            double x)
{
    float narrow = (float)x;
    if (!weft_is_value(input)) return WEFT_OK;
    return s->dtype == WEFT_F64
               ? weft__plan_feed(&s->plan, input, &x, sizeof x, &t->error)
               : weft__plan_feed(&s->plan, input, &narrow, sizeof narrow, &t->error);
}

double weft__trainer_graph_fetch_scalar(const trainer_graph *s, weft_value value)
{
    float narrow = 0;
    double x = 0;
    if (s->dtype == WEFT_F64)
        weft_session_fetch(s->plan.session, value, &x, sizeof x, NULL);
    else if (weft_session_fetch(s->plan.session, value, &narrow, sizeof narrow, NULL) == WEFT_OK)
        x = (double)narrow;
    return x;
}

static weft_status reserve_input(weft_trainer *t, size_t i, size_t bytes)
{
    if (t->inputs[i] && bytes <= t->input_capacity[i]) return WEFT_OK;
    const weft_allocator *from = &t->plans.allocator;
    weft__allocator_give(from, t->inputs[i], t->input_capacity[i]);
    t->inputs[i] = weft__allocator_take_zeros(from, bytes, false, "trainer", "a batch", &t->error);
    t->input_capacity[i] = t->inputs[i] ? bytes : 0;
    return t->inputs[i] ? WEFT_OK : t->error.status;
}

weft_status weft__trainer_graph_fill(weft_trainer *t, const trainer_graph *s,
                                     const weft_batch_source *source, size_t index, size_t *weight)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < s->built.n_inputs; i++)
        status = reserve_input(t, i, s->input_bytes[i]);
    if (status == WEFT_OK)
        status = source->fill(source->context, index, t->inputs, weight, &t->error);
    return status == WEFT_OK ? status
                             : weft__trainer_fail(t, status, "trainer", "a batch cannot be filled");
}

weft_status weft__trainer_graph_feed(weft_trainer *t, trainer_graph *s,
                                     const weft_batch_source *source, size_t index, size_t *weight)
{
    weft_status status = weft__trainer_graph_fill(t, s, source, index, weight);
    for (size_t i = 0; status == WEFT_OK && i < s->built.n_inputs; i++)
        if (weft_is_value(s->built.inputs[i]))
            status = weft__plan_feed(&s->plan, s->built.inputs[i], t->inputs[i], s->input_bytes[i],
                                     &t->error);
    return status;
}

weft_status weft__trainer_graph_run_forward(weft_trainer *t, trainer_graph *s, uint64_t number)
{
    weft_session_set_run_number(s->plan.session, number);
    return weft_is_value(s->pause) ? weft__plan_run_before(&s->plan, s->pause, &t->error) : WEFT_OK;
}

weft_status weft__trainer_graph_run(weft_trainer *t, trainer_graph *s, uint64_t number)
{
    weft_error e = {.status = WEFT_OK}, first;
    weft_session_set_run_number(s->plan.session, number);
    if (weft__plan_run(&s->plan, &e) == WEFT_OK) return WEFT_OK;
    if (e.status != WEFT_NOT_FINITE ||
        weft_session_find_nonfinite(s->plan.session, &first) != WEFT_NOT_FINITE)
        return weft_error_copy(&t->error, &e);
    return weft_error_set(&t->error, WEFT_NOT_FINITE, first.where,
                          "%s, and step %" PRIu64 " was not made: %s", first.message,
                          t->progress.updates + 1, e.message);
}
