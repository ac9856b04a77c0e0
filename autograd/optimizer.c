/* The training step as nodes: gradients, clipping by their global norm, updates. */
#include <weft/autograd.h>

#include <stdlib.h>
#include <string.h>

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

/* Matches `length` characters of a pattern against a whole name: where a star does not fit the
 * rest, it takes one character more. */
static bool matches(const char *pattern, size_t length, const char *name)
{
    if (!length) return !*name;
    if (*pattern == '*') {
        do {
            if (matches(pattern + 1, length - 1, name)) return true;
        } while (*name++);
        return false;
    }
    return *name == *pattern && *name && matches(pattern + 1, length - 1, name + 1);
}

bool weft_name_matches(const char *patterns, const char *name)
{
    if (!patterns || !name) return false;
    for (;; patterns++) {
        size_t length = strcspn(patterns, ",");
        if (length && matches(patterns, length, name)) return true;
        patterns += length;
        if (!*patterns) return false;
    }
}

static weft_value update(weft_graph *g, const weft_optimizer *o, weft_value param, weft_value grad,
                         weft_value lr, weft_value t, weft_value scale)
{
    bool decays = !weft_name_matches(o->no_decay, weft_name_of(g, param));
    if (o->kind == WEFT_SGD) {
        weft_sgd_options sgd = o->sgd;
        if (!decays) sgd.weight_decay = 0;
        weft_value buf = sgd.momentum != 0 ? moment(g, "opt.buf", param) : WEFT_NO_VALUE;
        return weft_sgd_update(g, param, buf, grad, lr, scale, &sgd);
    }
    weft_adam_options adam = o->adam;
    adam.decoupled = o->kind == WEFT_ADAMW;
    if (!decays) adam.weight_decay = 0;
    weft_value m = moment(g, "opt.m", param), v = moment(g, "opt.v", param);
    return weft_adam_update(g, param, m, v, grad, lr, t, scale, &adam);
}

/* x, which is to be had only if the norm and the loss are finite. */
static weft_value guarded(weft_graph *g, weft_value x, weft_value norm, weft_value loss)
{
    weft_value watched[2] = {norm, loss};
    return weft_require_finite(g, x, watched, weft_is_value(loss) ? 2 : 1);
}

/* Whether the learning rate is a scalar of the parameters' dtype. */
static bool is_rate(weft_graph *g, weft_value lr, weft_dtype dtype)
{
    char text[128];
    const char *name = weft_name_of(g, lr);
    if (weft_graph_status(g) != WEFT_OK) return false;
    if (!weft_is_value(lr) || weft_value_from_id(g, lr.id).graph != lr.graph)
        weft_graph_fail_in(g, "weft_train_step", WEFT_BAD_ARGUMENT,
                           "the learning rate is no value of this graph, expected %s []",
                           weft_dtype_name(dtype));
    else if (weft_dtype_of(g, lr) != dtype || weft_rank(g, lr) != 0)
        weft_graph_fail_in(
            g, "weft_train_step", weft_rank(g, lr) ? WEFT_BAD_SHAPE : WEFT_BAD_DTYPE,
            "the learning rate%s%s%s is %s %s, expected %s [] as the parameters are",
            name[0] ? " \"" : "", name, name[0] ? "\"" : "", weft_dtype_name(weft_dtype_of(g, lr)),
            weft_shape_text(weft_shape_of(g, lr), text, sizeof text), weft_dtype_name(dtype));
    return weft_graph_status(g) == WEFT_OK;
}

static weft_value apply(weft_graph *g, const weft_value *params, const weft_value *grads, size_t n,
                        weft_value loss, weft_value lr, const weft_optimizer *o, weft_value *norm,
                        weft_value *updated, weft_value *updates)
{
    weft_value scale = WEFT_NO_VALUE, t = WEFT_NO_VALUE, total = WEFT_NO_VALUE;
    weft_dtype dtype = weft_dtype_of(g, params[0]);
    size_t n_updates = n;
    if (!is_rate(g, lr, dtype)) return WEFT_NO_VALUE;
    if (o->max_norm > 0 || o->guard) total = weft_global_norm(g, grads, n);
    if (o->guard) {
        if (!weft_is_value(weft_find(g, "gradient_norm"))) weft_name(g, total, "gradient_norm");
        /* Every update reads the learning rate, so that none starts without it. */
        lr = guarded(g, lr, total, loss);
    }
    if (o->max_norm > 0) scale = clip_scale(g, total, o->max_norm);
    if (norm) *norm = total;
    if (o->kind != WEFT_SGD) {
        weft_value step = weft_state(g, "opt.step", dtype, WEFT_SCALAR, WEFT_INIT_ZEROS);
        t = weft_add_scalar(g, step, 1.0);
        if (o->guard) t = guarded(g, t, total, loss);
        updates[n_updates++] = weft_assign(g, step, t);
    }
    for (size_t i = 0; i < n; i++) updates[i] = update(g, o, params[i], grads[i], lr, t, scale);
    for (size_t i = 0; updated && i < n; i++) updated[i] = updates[i];
    return weft_group(g, updates, n_updates);
}

static weft_value *make_lists(weft_graph *g, const weft_value *params, size_t n,
                              const weft_optimizer *optimizer, weft_value *norm)
{
    if (norm) *norm = WEFT_NO_VALUE;
    if (weft_graph_status(g) != WEFT_OK) return NULL;
    if (!params || !n || !optimizer) {
        weft_graph_fail_in(g, "weft_train_step", WEFT_BAD_ARGUMENT,
                           "no parameters or no optimiser");
        return NULL;
    }
    weft_value *lists = calloc(2 * n + 1, sizeof *lists);
    if (!lists) weft_graph_fail_in(g, "weft_train_step", WEFT_NO_MEMORY, "no memory");
    return lists;
}

weft_value weft_apply_gradients(weft_graph *graph, const weft_value *params,
                                const weft_value *grads, size_t n, weft_value loss, weft_value lr,
                                const weft_optimizer *optimizer, weft_value *norm,
                                weft_value *updated)
{
    weft_value *updates = make_lists(graph, params, n, optimizer, norm);
    if (!updates) return WEFT_NO_VALUE;
    weft_value step = apply(graph, params, grads, n, loss, lr, optimizer, norm, updated, updates);
    free(updates);
    return step;
}

weft_value weft_train_step(weft_graph *graph, weft_value loss, const weft_value *params, size_t n,
                           weft_value lr, const weft_optimizer *optimizer, weft_value *norm)
{
    weft_value *grads = make_lists(graph, params, n, optimizer, norm);
    if (!grads) return WEFT_NO_VALUE;
    weft_grad(graph, loss, params, n, grads);
    weft_value step = apply(graph, params, grads, n, loss, lr, optimizer, norm, NULL, grads + n);
    free(grads);
    return step;
}
