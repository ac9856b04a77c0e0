/* The training update as nodes: gradients, clipping by their global norm, updates. */
#include "update.h"

#include <weft/op.h>

#include "base/text.h"
#include "ir/state_key.h"

#include <stdlib.h>
#include <string.h>

static void fail(const train_update *s, weft_status status, const char *what, const char *detail)
{
    weft_graph_fail_in(s->g, "weft_train_update", status, "update \"%s\": %s%s", s->name, what,
                       detail);
}

/* ---- Groups ---- */

/* Every group must match some state of the graph, unless another process may have it. */
static bool check_groups(const train_update *s, const weft_value *all, size_t n)
{
    const weft_optimizer *o = s->o;
    if (o->n_groups && !o->groups) fail(s, WEFT_BAD_ARGUMENT, "the groups are NULL", "");
    for (size_t i = 0; i < o->n_groups && weft_graph_status(s->g) == WEFT_OK; i++) {
        const weft_param_group *group = &o->groups[i];
        bool used = o->model;
        for (size_t k = 0; k < n && !used; k++)
            used = weft_name_matches(group->names, weft_name_of(s->g, all[k]));
        for (size_t k = 0; k < s->n && !used; k++)
            used = weft_name_matches(group->names, weft__update_param_name(s, s->params[k]));
        if (!group->names || !*group->names)
            fail(s, WEFT_BAD_ARGUMENT, "a group needs patterns of names", "");
        else if (!used)
            fail(s, WEFT_BAD_ARGUMENT, "no parameter matches the group ", group->names);
        else if (!(weft_option(group->lr_scale, 1) >= 0))
            fail(s, WEFT_BAD_ARGUMENT, "lr_scale must not be negative in the group ", group->names);
    }
    return weft_graph_status(s->g) == WEFT_OK;
}

/* ---- Arguments ---- */

/* Marks the values that update nodes of the graph write. */
static bool find_written(train_update *s)
{
    size_t nodes = weft_graph_node_count(s->g);
    for (size_t k = 0; k < nodes; k++) {
        weft_node_info node = weft_graph_node(s->g, k);
        s->n_written = node.first_out + node.n_out;
    }
    s->written = calloc(s->n_written + 1, 1);
    for (size_t k = 0; s->written && k < nodes; k++) {
        weft_node_info node = weft_graph_node(s->g, k);
        for (size_t i = 0; i < node.op->updates; i++) s->written[node.in[i]] = 1;
    }
    if (!s->written) fail(s, WEFT_NO_MEMORY, "no memory", "");
    return s->written;
}

/* Refuses a second update of the same parameters: a graph may update a state only once. Planning
 * would also fail, but far from the cause. */
static bool check_written(train_update *s)
{
    for (size_t i = 0; i < s->n; i++) {
        uint8_t *written = &s->written[s->params[i].id];
        if (*written) {
            fail(s, WEFT_BAD_ARGUMENT, "the graph already updates ",
                 weft_name_of(s->g, s->params[i]));
            return false;
        }
        *written = 1;
    }
    return true;
}

/* The learning rate must be a scalar of the parameters' dtype. */
static bool check_rate(const train_update *s)
{
    weft_graph *g = s->g;
    const weft_dtype rate = weft_dtype_of(g, s->lr);
    const char *name = weft_name_of(g, s->lr);
    if (!weft_is_value(s->lr) || weft_value_from_id(g, s->lr.id).graph != s->lr.graph)
        fail(s, WEFT_BAD_ARGUMENT, "the learning rate does not belong to this graph", "");
    for (size_t i = 0; i < s->n && weft_graph_status(g) == WEFT_OK; i++) {
        const weft_dtype dtype = weft_dtype_of(g, s->params[i]);
        char text[128];
        if (dtype == rate && weft_rank_of(g, s->lr) == 0) continue;
        weft_graph_fail_in(
            g, "weft_train_update", dtype == rate ? WEFT_BAD_SHAPE : WEFT_BAD_DTYPE,
            "update \"%s\": the learning rate%s%s%s is %s %s, expected %s [] for the "
            "parameter %s",
            s->name, name[0] ? " \"" : "", name, name[0] ? "\"" : "", weft_dtype_name(rate),
            weft_shape_text(weft_shape_of(g, s->lr), text, sizeof text), weft_dtype_name(dtype),
            weft_name_of(g, s->params[i]));
    }
    return weft_graph_status(g) == WEFT_OK;
}

bool weft_optimizer_freezes(const weft_optimizer *optimizer, const char *name)
{
    return optimizer && optimizer->groups && weft__update_group(optimizer, name)->frozen;
}

/* The running average of a state; NULL if it is not tracked. */
static const weft_tracked *tracked_as(const train_update *s, weft_value state)
{
    const char *name = weft__update_param_name(s, state);
    for (size_t i = 0; i < s->n_tracked; i++)
        if (!strcmp(weft_name_of(s->g, s->tracked[i].state), name)) return &s->tracked[i];
    return NULL;
}

/* Counts the parameters before the running averages. */
static void count_trained(train_update *s)
{
    for (size_t i = 0; i < s->n; i++) {
        if (tracked_as(s, s->params[i])) continue;
        if (s->n_trained++ < i)
            fail(s, WEFT_BAD_ARGUMENT,
                 "running averages must come after all parameters, got one before ",
                 weft_name_of(s->g, s->params[i]));
    }
    if (!s->n_trained) fail(s, WEFT_BAD_ARGUMENT, "every parameter is frozen", "");
}

/* Removes frozen parameters, and what belongs to them, from the lists. */
static void drop_frozen(train_update *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (weft__update_group(s->o, weft__update_param_name(s, s->params[i]))->frozen) continue;
        s->params[n] = s->params[i];
        if (s->counted) s->counted[n] = s->counted[i];
        s->grads[n++] = s->grads[i];
    }
    s->n = n;
}

/* Copies what a split model counts. */
static bool copy_counted(train_update *s)
{
    const struct weft_model_split *model = s->o->model;
    if (!model) return true;
    if (!processes_of(model)) {
        fail(s, WEFT_BAD_ARGUMENT, "expected a split model from weft__model_split_of", "");
        return false;
    }
    const bool *counted = processes_of(model)->counted(model);
    s->counted = malloc(s->n);
    if (!counted) fail(s, WEFT_BAD_ARGUMENT, "the list of a split model is NULL", "");
    if (!s->counted) fail(s, WEFT_NO_MEMORY, "no memory", "");
    if (weft_graph_status(s->g) != WEFT_OK) return false;
    memcpy(s->counted, counted, s->n);
    return true;
}

/* Allocates the lists for `most` parameters. */
static bool allocate(train_update *s, size_t most)
{
    weft_graph *g = s->g;
    s->tracked = weft_graph_tracked(g, &s->n_tracked);
    s->params = calloc(3 * most + 1, sizeof *s->params);
    if (!s->params) {
        fail(s, WEFT_NO_MEMORY, "no memory", "");
        return false;
    }
    s->grads = s->params + most;
    s->updates = s->grads + most;
    return true;
}

/* Fills the lists with the caller's parameters, or with all and the running averages. */
static void fill_lists(train_update *s, const weft_value *params, const weft_value *grads)
{
    if (params) {
        memcpy(s->params, params, s->n * sizeof *s->params);
    } else {
        memcpy(s->params, weft_graph_params(s->g, NULL), s->n * sizeof *s->params);
        for (size_t i = 0; i < s->n_tracked; i++) {
            s->params[s->n] = s->tracked[i].state;
            s->grads[s->n++] = s->tracked[i].value;
        }
    }
    if (grads) memcpy(s->grads, grads, s->n * sizeof *s->grads);
}

/* Compares the groups with all states of the graph. */
static bool check_names(const train_update *s)
{
    size_t n;
    const weft_value *all = weft_graph_states(s->g, &n);
    return !s->o->n_groups || check_groups(s, all, n);
}

/* The states of an update are named after it and its parameters, so names have a limit. */
static bool check_lengths(const train_update *s)
{
    if (strlen(s->name) > WEFT_MAX_OPTIMIZER_NAME)
        fail(s, WEFT_TOO_LARGE, "its name is longer than WEFT_MAX_OPTIMIZER_NAME bytes", "");
    for (size_t i = 0; i < s->n; i++) {
        const char *name = weft_name_of(s->g, s->params[i]);
        if (name && strlen(name) > WEFT_MAX_TRAINED_NAME)
            fail(s, WEFT_TOO_LARGE, "a name is longer than WEFT_MAX_TRAINED_NAME bytes: ", name);
    }
    return weft_graph_status(s->g) == WEFT_OK;
}

/* Opens an update of n parameters, or on all if the list is NULL. False after failing; close_update
 * frees the lists in either case. */
static bool open_update(train_update *s, weft_graph *g, const weft_value *params,
                        const weft_value *grads, size_t n, weft_value lr,
                        const weft_optimizer *optimizer)
{
    static const weft_optimizer defaults = {0};
    const weft_optimizer *o = optimizer ? optimizer : &defaults;
    size_t n_params, n_tracked;
    weft_graph_params(g, &n_params);
    weft_graph_tracked(g, &n_tracked);
    *s = (train_update){.g = g, .o = o, .lr = lr, .n = params ? n : n_params};
    s->name = o->name && *o->name ? o->name : WEFT_OPTIMIZER_STATES;
    if (weft_graph_status(g) != WEFT_OK) return false;
    if ((unsigned)o->kind > WEFT_LAMB)
        fail(s, WEFT_BAD_ARGUMENT, "unknown kind of optimiser; expected a weft_optimizer_kind", "");
    if (o->kind == WEFT_LAMB && (o->shards || o->model))
        fail(s, WEFT_BAD_ARGUMENT, "LAMB needs the whole of each parameter on one process",
             ", for the norms of its trust ratio");
    if (!(o->max_norm >= 0)) fail(s, WEFT_BAD_ARGUMENT, "max_norm must not be negative", "");
    if (!s->n || (!params && n))
        fail(s, WEFT_BAD_ARGUMENT, "there are no parameters: ",
             n        ? "the list is NULL"
             : params ? "the list is empty"
                      : "the graph has none");
    if (weft_graph_status(g) != WEFT_OK || !allocate(s, s->n + (params ? 0 : n_tracked)))
        return false;
    fill_lists(s, params, grads);
    if (!copy_counted(s) || !check_lengths(s) || !check_names(s)) return false;
    drop_frozen(s);
    count_trained(s);
    if (o->shards && !grads)
        fail(s, WEFT_BAD_ARGUMENT, "with shards, expected the gradients of weft__reducer_finish",
             "");
    else if (o->shards && !processes_of(o->shards)->match(o->shards, g, s->params, s->n))
        fail(s, WEFT_BAD_ARGUMENT, "the parameters differ from those of the shards", "");
    return weft_graph_status(g) == WEFT_OK && check_rate(s) && find_written(s) && check_written(s);
}

static void close_update(train_update *s)
{
    free(s->params);
    free(s->counted);
    free(s->written);
}

/* ---- Its nodes ---- */

/* The number of updates done: updates that count have names of their own. */
static weft_value counter(const train_update *s, weft_dtype dtype)
{
    const weft_state_key key = {.kind = WEFT_STATE_COUNTER, .optimizer = s->name};
    weft_value step = weft__state_of_key(s->g, &key, dtype, WEFT_SCALAR);
    if (step.id < s->n_written && s->written[step.id])
        fail(s, WEFT_BAD_ARGUMENT, "the graph already has an update of this name",
             "; set weft_optimizer.name to another");
    return step;
}

/* min(1, max_norm / (norm + 1e-6)) */
static weft_value clip_scale(weft_graph *g, weft_value norm, double max_norm)
{
    weft_dtype dtype = weft_dtype_of(g, norm);
    const weft_value limit = weft_scalar(g, dtype, max_norm);
    const weft_value ratio = weft_div(g, limit, weft_add_scalar(g, norm, 1e-6));
    return weft_minimum(g, ratio, weft_scalar(g, dtype, 1.0));
}

/* x; the run fails unless the norm and the loss are finite. */
static weft_value guarded(weft_graph *g, weft_value x, weft_value norm, weft_value loss)
{
    weft_value watched[2] = {norm, loss};
    return weft_require_finite(g, x, watched, weft_is_value(loss) ? 2 : 1);
}

/* Moves a running average, or this rank's piece of it, towards a value. */
static weft_value update_average(const train_update *s, weft_value state, weft_value value,
                                 weft_value rate)
{
    const weft_sgd_options plain = {.first = weft__update_first(s, state)};
    const weft_value difference = weft_sub(s->g, weft__update_piece(s, state), value);
    return weft_sgd_update(s->g, state, WEFT_NO_VALUE, difference, rate, WEFT_NO_VALUE, &plain);
}

/* The norm of the gradients, named `gradient_norm`, or OPTIMIZER.gradient_norm. On several
 * processes *loss becomes the sum of their losses, so that all of them see the same. */
static weft_value named_norm(const train_update *s, weft_value *loss)
{
    char name[WEFT_MAX_OPTIMIZER_NAME + 32] = "gradient_norm";
    const weft_optimizer *o = s->o;
    const update_gradients all = {
        o->shards, o->model, s->counted, {s->params, s->grads, s->n_trained, *loss}};
    weft_value norm = o->model    ? processes_of(o->model)->norm(s->g, &all, loss)
                      : o->shards ? processes_of(o->shards)->norm(s->g, &all, loss)
                                  : weft_global_norm(s->g, s->grads, s->n_trained);
    if (strcmp(s->name, WEFT_OPTIMIZER_STATES) != 0)
        snprintf(name, sizeof name, "%s.gradient_norm", s->name);
    if (s->o->guard && !weft_is_value(weft_graph_find(s->g, name))) weft_name(s->g, norm, name);
    return norm;
}

static weft_value apply(train_update *s, weft_value loss, weft_value *norm)
{
    weft_graph *g = s->g;
    const weft_role role = weft_graph_set_role(g, (weft_role){WEFT_UPDATE, 0});
    const weft_optimizer *o = s->o;
    weft_value total = WEFT_NO_VALUE;
    weft_dtype dtype = weft_dtype_of(g, s->params[0]);
    size_t n_updates = s->n;
    if (o->max_norm > 0 || o->guard) total = named_norm(s, &loss);
    /* Every update reads the learning rate, so none runs before the guard. */
    if (o->guard) s->lr = guarded(g, s->lr, total, loss);
    s->one = weft_scalar(g, dtype, 1.0);
    if (o->guard) s->one = guarded(g, s->one, total, loss);
    if (o->max_norm > 0) s->scale = clip_scale(g, total, o->max_norm);
    if (norm) *norm = total;
    if (weft__update_counts(o)) {
        weft_value step = counter(s, dtype);
        s->t = weft_add_scalar(g, step, 1.0);
        if (o->guard) s->t = guarded(g, s->t, total, loss);
        s->updates[n_updates++] = weft_assign(g, step, s->t);
    }
    for (size_t i = 0; i < s->n_trained; i++)
        s->updates[i] = weft__update_of(s, s->params[i], s->grads[i]);
    for (size_t i = s->n_trained; i < s->n; i++) {
        weft_value rate =
            weft_scalar(g, weft_dtype_of(g, s->params[i]), tracked_as(s, s->params[i])->momentum);
        if (o->guard) rate = guarded(g, rate, total, loss);
        s->updates[i] = update_average(s, s->params[i], s->grads[i], rate);
    }
    if (o->shards && !weft__update_has_piece(s, s->params[0]))
        processes_of(o->shards)->gather(g, o->shards, s->params, s->updates, s->n);
    const weft_value updated = weft_group(g, s->updates, n_updates);
    weft_graph_set_role(g, role);
    return updated;
}

weft_value weft_apply_gradients(weft_graph *graph, const weft_gradients *gradients, weft_value lr,
                                const weft_optimizer *optimizer, weft_value *norm,
                                weft_value *updated)
{
    const weft_gradients *x = gradients;
    train_update s;
    weft_value update = WEFT_NO_VALUE;
    if (norm) *norm = WEFT_NO_VALUE;
    if (!x || !x->params || !x->grads || !x->n) {
        weft_graph_fail_in(graph, "weft_apply_gradients", WEFT_BAD_ARGUMENT,
                           "a list is NULL or empty");
        return update;
    }
    if (open_update(&s, graph, x->params, x->grads, x->n, lr, optimizer))
        update = apply(&s, x->loss, norm);
    /* Parameters that are not frozen have the same order in both lists. */
    for (size_t i = 0, k = 0; updated && i < x->n; i++) {
        updated[i] = weft_is_value(update) ? x->params[i] : WEFT_NO_VALUE;
        if (weft_is_value(update) && k < s.n && s.params[k].id == x->params[i].id)
            updated[i] = s.updates[k++];
    }
    close_update(&s);
    return update;
}

weft_value weft_train_update(weft_graph *graph, weft_value loss, const weft_value *params, size_t n,
                             weft_value lr, const weft_optimizer *optimizer, weft_value *norm)
{
    train_update s;
    weft_value update = WEFT_NO_VALUE;
    if (norm) *norm = WEFT_NO_VALUE;
    if (open_update(&s, graph, params, NULL, n, lr, optimizer)) {
        weft_grad(graph, loss, s.params, s.n_trained, s.grads);
        update = apply(&s, loss, norm);
    }
    close_update(&s);
    return update;
}
