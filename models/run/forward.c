/* Forward passes of a builder for any shape: one plan per shape, all on one store. Plans are found
 * by a linear search. */
#include <weft/build.h>

#include "run/plans.h"

#include <weft/quantize.h>

#include <stdlib.h>
#include <string.h>

typedef struct pass {
    plan_entry plan; /* first member: the list frees it */
    weft_build_options options;
    weft_built built;
    size_t input_bytes[WEFT_BUILT_VALUES];
    bool fed[WEFT_BUILT_VALUES]; /* in any pass so far: a missing feed would silently reuse old data
                                  */
} pass;

struct weft_forward {
    weft_builder builder;
    weft_params *store; /* shares the program's parameters */
    bool quantized;     /* some of them are */
    plan_list plans;
    pass *last; /* NULL: the last pass failed, or there was none */
};

weft_forward *weft_forward_new(const weft_builder *builder, const weft_params *params,
                               const weft_session_options *options, weft_error *error)
{
    static const char function[] = "weft_forward_new";
    weft_error_clear(error);
    if (!builder || !builder->build || !params) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, function, "needs a builder and parameters");
        return NULL;
    }
    weft_forward *f = calloc(1, sizeof *f);
    if (!f) {
        weft_error_set(error, WEFT_NO_MEMORY, function, "out of memory");
        return NULL;
    }
    if (weft__plans_init(&f->plans, options, function, error) == WEFT_OK &&
        (f->store = weft__plans_store(&f->plans, error)) &&
        weft_params_share(f->store, params, error) == WEFT_OK) {
        f->builder = *builder;
        f->quantized = weft_params_are_quantized(params);
        return f;
    }
    weft_forward_free(f);
    return NULL;
}

void weft_forward_free(weft_forward *forward)
{
    if (!forward) return;
    weft__plans_free(&forward->plans);
    weft_params_free(forward->store);
    free(forward);
}

static bool same_options(const weft_build_options *a, const weft_build_options *b)
{
    return a->shape.rows == b->shape.rows && a->shape.source_len == b->shape.source_len &&
           a->shape.target_len == b->shape.target_len && a->training == b->training &&
           a->expose_weights == b->expose_weights && a->layer == b->layer &&
           a->tensor.group == b->tensor.group && a->tensor.rank == b->tensor.rank &&
           a->tensor.size == b->tensor.size;
}

static weft_status build(weft_forward *f, weft_graph *g, pass *p, weft_error *error)
{
    f->builder.build(f->builder.context, g, &p->options, &p->built);
    const weft_built *b = &p->built;
    if (weft_graph_status(g) == WEFT_OK &&
        (b->n_inputs > WEFT_BUILT_VALUES || !b->n_outputs || b->n_outputs > WEFT_BUILT_VALUES))
        weft_graph_fail_in(g, f->builder.name, WEFT_BAD_ARGUMENT,
                           "a builder needs 1 to %d outputs and at most %d inputs, got %zu and %zu",
                           WEFT_BUILT_VALUES, WEFT_BUILT_VALUES, b->n_outputs, b->n_inputs);
    const weft_error *e = weft_graph_error(g);
    if (e->status != WEFT_OK) return weft_error_copy(error, e);
    for (size_t i = 0; i < b->n_inputs; i++)
        p->input_bytes[i] =
            weft_tensor_bytes(weft_dtype_of(g, b->inputs[i]), weft_shape_of(g, b->inputs[i]));
    const weft_pass quantized = weft_quantized_pass(f->store);
    const weft_plan_options options = {.passes = &quantized, .n_passes = f->quantized};
    p->plan.plan = weft_plan_new(g, b->outputs, b->n_outputs, &options, error);
    return p->plan.plan ? WEFT_OK : error->status;
}

/* Finds or makes the pass of these options; NULL on failure. */
static pass *pass_for(weft_forward *f, const weft_build_options *options, weft_error *error)
{
    for (plan_entry *e = f->plans.first; e; e = e->next)
        if (same_options(&((pass *)(void *)e)->options, options)) return (pass *)(void *)e;
    weft_graph *g = weft_graph_new();
    pass *p = g ? calloc(1, sizeof *p) : NULL;
    if (!p) {
        weft_graph_free(g);
        weft_error_set(error, WEFT_NO_MEMORY, "weft_forward_run", "out of memory");
        return NULL;
    }
    p->options = *options;
    p->plan.store = f->store;
    weft_status status = build(f, g, p, error);
    weft_graph_free(g);
    if (status != WEFT_OK) {
        free(p);
        return NULL;
    }
    weft__plans_add(&f->plans, &p->plan);
    return p;
}

weft_status weft_forward_run(weft_forward *forward, const weft_build_options *options,
                             const void *const *inputs, weft_error *error)
{
    weft_error local;
    if (!error) error = &local;
    memset(error, 0, sizeof *error);
    if (!forward || !options)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_forward_run",
                              "the runner or the options are NULL");
    forward->last = NULL;
    pass *p = pass_for(forward, options, error);
    if (!p) return error->status;
    weft_status status = weft__plans_open(&forward->plans, &p->plan, error);
    for (size_t i = 0; status == WEFT_OK && i < p->built.n_inputs; i++) {
        const void *data = inputs ? inputs[i] : NULL;
        if (data)
            status = weft__plan_feed(&p->plan, p->built.inputs[i], data, p->input_bytes[i], error);
        else if (p->fed[i])
            status = weft_error_set(error, WEFT_BAD_ARGUMENT, forward->builder.name,
                                    "the data of input %zu are NULL, in an earlier pass of this "
                                    "shape they were not",
                                    i);
        p->fed[i] = p->fed[i] || data;
    }
    if (status == WEFT_OK) status = weft__plan_run(&p->plan, error);
    if (status == WEFT_OK) forward->last = p;
    return status;
}

bool weft_forward_output(const weft_forward *forward, size_t i, weft_tensor *output)
{
    const pass *p = forward ? forward->last : NULL;
    return p && output && i < p->built.n_outputs &&
           weft_session_tensor(p->plan.session, p->built.outputs[i], output, NULL) == WEFT_OK;
}

size_t weft_forward_plan_count(const weft_forward *forward, size_t *arena_bytes)
{
    if (arena_bytes) *arena_bytes = forward ? weft__plans_arena_bytes(&forward->plans) : 0;
    return forward ? forward->plans.count : 0;
}
