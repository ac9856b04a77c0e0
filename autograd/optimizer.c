/* The training step as nodes: gradients, clipping by their global norm, updates. */
#include <weft/autograd.h>

#include <stdlib.h>

/* A zeroed state beside a parameter, named PREFIX.NAME whatever the scope it is asked for in. */
static weft_value moment(weft_graph *g, const char *prefix, weft_value param)
{
    char name[512];
    snprintf(name, sizeof name, "%s.%s", prefix, weft_name_of(g, param));
    return weft_state(g, name, weft_dtype_of(g, param), weft_shape_of(g, param), WEFT_INIT_ZEROS);
}

/* min(1, max_norm / (norm + 1e-6)) */
static weft_value clip_scale(weft_graph *g, weft_value norm, double max_norm)
{
    weft_dtype dtype = weft_dtype_of(g, norm);
    weft_value ratio = weft_div(g, weft_scalar(g, dtype, max_norm), weft_add_scalar(g, norm, 1e-6));
    return weft_minimum(g, ratio, weft_scalar(g, dtype, 1.0));
}

static weft_value update(weft_graph *g, const weft_optimizer *o, weft_value param, weft_value grad,
                         weft_value lr, weft_value t, weft_value scale)
{
    if (o->kind == WEFT_SGD) {
        weft_value buf = o->sgd.momentum != 0 ? moment(g, "opt.buf", param) : WEFT_NO_VALUE;
        return weft_sgd_update(g, param, buf, grad, lr, scale, &o->sgd);
    }
    weft_adam_options adam = o->adam;
    adam.decoupled = o->kind == WEFT_ADAMW;
    weft_value m = moment(g, "opt.m", param), v = moment(g, "opt.v", param);
    return weft_adam_update(g, param, m, v, grad, lr, t, scale, &adam);
}

static weft_value build_step(weft_graph *g, weft_value loss, const weft_value *params, size_t n,
                             weft_value lr, const weft_optimizer *o, weft_value *norm,
                             weft_value *lists)
{
    weft_value *grads = lists, *updates = lists + n;
    weft_value scale = WEFT_NO_VALUE, t = WEFT_NO_VALUE;
    weft_dtype dtype = weft_dtype_of(g, params[0]);
    size_t n_updates = n;
    weft_grad(g, loss, params, n, grads);
    if (o->max_norm > 0) {
        weft_value total = weft_global_norm(g, grads, n);
        scale = clip_scale(g, total, o->max_norm);
        if (norm) *norm = total;
    }
    if (o->kind != WEFT_SGD) {
        weft_value step = weft_state(g, "opt.step", dtype, WEFT_SCALAR, WEFT_INIT_ZEROS);
        t = weft_add_scalar(g, step, 1.0);
        updates[n_updates++] = weft_assign(g, step, t);
    }
    for (size_t i = 0; i < n; i++) updates[i] = update(g, o, params[i], grads[i], lr, t, scale);
    return weft_group(g, updates, n_updates);
}

weft_value weft_train_step(weft_graph *graph, weft_value loss, const weft_value *params, size_t n,
                           weft_value lr, const weft_optimizer *optimizer, weft_value *norm)
{
    if (norm) *norm = WEFT_NO_VALUE;
    if (weft_graph_status(graph) != WEFT_OK) return WEFT_NO_VALUE;
    if (!params || !n || !optimizer) {
        weft_graph_fail(graph, WEFT_BAD_ARGUMENT, "weft_train_step: no parameters or no optimiser");
        return WEFT_NO_VALUE;
    }
    weft_value *lists = calloc(2 * n + 1, sizeof *lists);
    if (!lists) {
        weft_graph_fail(graph, WEFT_NO_MEMORY, "weft_train_step: no memory");
        return WEFT_NO_VALUE;
    }
    weft_value step = build_step(graph, loss, params, n, lr, optimizer, norm, lists);
    free(lists);
    return step;
}
