/* The graphs of a trainer, each of which is run for a batch.
 *
 * Each shape of batch has its own graph, plan and session, made when the shape first occurs. All
 * use one parameter store and one arena. A run depends only on its feeds, the states, its number
 * and the seed. A checkpoint holds all of these, so a resumed training is bit-identical to an
 * uninterrupted one. */
#include "trainer.h"

#include <weft/op.h>

#include "ir/state_key.h"

#include <stdlib.h>
#include <string.h>

/* ---- Graphs ---- */

/* The state of a parameter, or of this process's piece of it if `pieces` is not NULL. */
static weft_value state_for(const weft_trainer *pieces, weft_graph *g, weft_state_kind kind,
                            int slot, weft_value param)
{
    const char *name = weft_name_of(g, param);
    weft_state_key key = {.param = name, .param_bytes = strlen(name)};
    if (pieces) key = pieces->hooks->key(pieces, name);
    weft_shape shape = weft_shape_of(g, param);
    key.kind = kind;
    key.slot = slot;
    if (key.is_piece) shape = WEFT_SHAPE(key.piece.end - key.piece.first);
    return weft__state_of_key(g, &key, weft_dtype_of(g, param), shape);
}

/* What training must not change, for the graph; the optimiser's groups name it. */
static bool is_frozen(void *context, const char *name)
{
    const weft_trainer *t = context;
    return weft_optimizer_freezes(&t->o.optimizer, name);
}

/* A sum of gradients: the running one, or that stored in a slot. */
static weft_value sum_state(const weft_trainer *t, weft_graph *g, int slot, weft_value param)
{
    return state_for(t->place.in_turn ? t : NULL, g, WEFT_STATE_SUM, slot, param);
}

static void no_memory_in(weft_graph *g)
{
    weft_graph_fail_in(g, "trainer", WEFT_NO_MEMORY, "out of memory");
}

static void add_averages(weft_trainer *t, trainer_graph *s, graph_lists *l)
{
    weft_graph *g = s->plan.graph;
    s->ema_decay = weft_input(g, "ema_decay", s->dtype, WEFT_SCALAR);
    weft_value new_weight = weft_sub(g, l->one, s->ema_decay);
    for (size_t i = 0; i < l->n; i++) {
        weft_value value = l->updated[i];
        weft_value average = state_for(t->hooks ? t : NULL, g, WEFT_STATE_AVERAGE, 0, l->params[i]);
        if (t->hooks) value = t->hooks->own(t, s, l->params[i], value);
        l->group[i + 1] = weft_blend(g, average, value, s->ema_decay, new_weight);
    }
    s->target = weft_group(g, l->group, l->n + 1);
}

/* The update by l->grads, those of the whole update or this process's pieces of them. */
static void add_update(weft_trainer *t, trainer_graph *s, graph_lists *l)
{
    weft_graph *g = s->plan.graph;
    weft_optimizer optimizer = t->o.optimizer;
    if (t->hooks) t->hooks->share_update(t, l, &optimizer);
    s->lr = weft_input(g, "lr", s->dtype, WEFT_SCALAR);
    const weft_gradients gradients = {l->owned, l->grads, l->n, s->built.loss};
    l->group[0] = weft_apply_gradients(g, &gradients, s->lr, &optimizer, &s->norm, l->updated);
    s->target = l->group[0];
    if (t->o.ema > 0) add_averages(t, s, l);
}

/* ---- Sums ---- */

int weft__graph_last_sums(const graph_lists *l, size_t i, weft_value gradient, weft_value *values)
{
    weft_graph *g = l->s->plan.graph;
    const sum_action *a = &l->t->sums.actions[l->t->sums.n - 1];
    weft_value running = gradient;
    int stored = a->slots;
    if (a->adds)
        running = weft_add(g, sum_state(l->t, g, WEFT_RUNNING_SUM, l->params[i]), gradient);
    for (; stored > a->slots - a->pops; stored--)
        running = weft_add(g, sum_state(l->t, g, stored - 1, l->params[i]), running);
    for (int k = 0; k < stored; k++) values[k] = sum_state(l->t, g, k, l->params[i]);
    values[stored] = running;
    return stored;
}

void weft__graph_add_tracked(const trainer_graph *s, const graph_lists *l, weft_value weight,
                             weft_value *grads, const weft_grad_hooks *ready)
{
    for (size_t i = l->n_trained; i < l->n; i++) {
        grads[i] = l->tracked[i - l->n_trained].value;
        if (l->t->o.accumulate > 1) grads[i] = weft_mul(s->plan.graph, grads[i], weight);
        if (ready) ready->ready(ready->context, i, grads[i]);
    }
}

void weft__graph_differentiate(const trainer_graph *s, const graph_lists *l, weft_value weight,
                               weft_value *grads, const weft_grad_hooks *ready)
{
    /* The values of running averages are there before the backward pass. */
    weft__graph_add_tracked(s, l, weight, grads, ready);
    const weft_grad_values values = {&s->built.loss, &weight, 1, l->params, l->n_trained};
    weft_grad_each(s->plan.graph, &values, grads, ready);
}

/* The gradients of a batch, or if `reduces` the sums of those of all processes. */
static void add_gradients(weft_trainer *t, trainer_graph *s, graph_lists *l, bool reduces)
{
    const weft_value weight = t->o.accumulate > 1 ? s->weight : l->one;
    if (t->hooks)
        t->hooks->differentiate(t, s, l, weight, reduces);
    else
        weft__graph_differentiate(s, l, weight, l->grads, NULL);
}

static void add_sum(weft_trainer *t, trainer_graph *s, graph_lists *l)
{
    weft_graph *g = s->plan.graph;
    weft_value one = l->one;
    add_gradients(t, s, l, t->place.in_turn);
    /* Of several processes all must see that one is not finite: the norm of the update shows it. */
    if (!t->place.in_turn && !t->place.divided) {
        weft_value watched[2] = {weft_global_norm(g, l->grads, l->n_trained), s->built.loss};
        weft_name(g, watched[0], "gradient_norm");
        one = weft_require_finite(g, l->one, watched, 2);
    }
    for (size_t i = 0; i < l->n; i++)
        l->group[i] = weft_blend(g, sum_state(t, g, WEFT_RUNNING_SUM, l->params[i]), l->grads[i],
                                 s->old_weight, one);
    s->target = weft_group(g, l->group, l->n);
}

static void add_moves(const weft_trainer *t, trainer_graph *s, graph_lists *l)
{
    weft_graph *g = s->plan.graph;
    for (size_t i = 0; i < l->n; i++) {
        weft_value running = sum_state(t, g, WEFT_RUNNING_SUM, l->params[i]);
        weft_value stored = sum_state(t, g, s->slot, l->params[i]);
        l->group[i] = s->kind == GRAPH_STORE ? weft_assign(g, stored, running)
                                             : weft_blend(g, running, stored, l->one, l->one);
    }
    s->target = weft_group(g, l->group, l->n);
}

/* Names views of the gradients, so that they become targets (weft__trainer_graph_plan). One value
 * may be the gradient of two parameters, so it cannot have the name itself. */
static void name_gradients(const trainer_graph *s, const graph_lists *l)
{
    weft_graph *g = s->plan.graph;
    if (l->t->hooks) return;
    for (size_t i = 0; i < l->n_trained; i++) {
        char name[TRAINER_GRADIENT_BYTES];
        const weft_shape flat =
            weft_rank_of(g, l->grads[i]) == 1 ? WEFT_SHAPE(1, -1) : WEFT_SHAPE(-1);
        const weft_value view = weft_reshape(g, l->grads[i], flat);
        if (trainer_gradient_name(weft_name_of(g, l->params[i]), name)) weft_name(g, view, name);
    }
}

static void add_last(weft_trainer *t, trainer_graph *s, graph_lists *l)
{
    weft_graph *g = s->plan.graph;
    weft_value values[WEFT_SUM_NODES];
    add_gradients(t, s, l, t->hooks != NULL);
    if (t->o.accumulate > 1) {
        const bool sums = !t->hooks || t->place.in_turn;
        s->inverse = weft_input(g, "inverse", s->dtype, WEFT_SCALAR);
        for (size_t i = 0; i < l->n; i++) {
            const weft_value sum =
                sums ? values[weft__graph_last_sums(l, i, l->grads[i], values)] : l->grads[i];
            l->grads[i] = weft_mul(g, sum, s->inverse);
        }
    }
    if (t->o.retain_gradients) name_gradients(s, l);
    const weft_value tied = t->hooks ? t->hooks->sum_tied(t, s, l) : WEFT_NO_VALUE;
    add_update(t, s, l);
    if (weft_is_value(tied)) s->target = weft_group(g, (weft_value[]){s->target, tied}, 2);
}

/* ---- Training ---- */

/* Whether a value is the state of a running average. */
static bool is_tracked(const graph_lists *l, weft_value value)
{
    for (size_t i = 0; i < l->n_tracked; i++)
        if (l->tracked[i].state.id == value.id) return true;
    return false;
}

/* Allocates the lists, for `most` parameters and running averages. */
static bool allocate_lists(graph_lists *l, size_t most)
{
    l->params = calloc(5 * most + 2, sizeof *l->params);
    if (!l->params) {
        no_memory_in(l->s->plan.graph);
        return false;
    }
    l->grads = l->params + most;
    l->updated = l->grads + most;
    l->group = l->updated + most;
    l->pieces = l->group + most + 1;
    l->owned = l->params;
    return true;
}

/* Lists the parameters that are trained, and for a gathered graph their running averages. */
static void list_trained(const weft_trainer *t, const trainer_graph *s, graph_lists *l,
                         const weft_value *all, size_t n)
{
    weft_graph *g = s->plan.graph;
    for (size_t i = 0; i < n; i++)
        if (!weft_optimizer_freezes(&t->o.optimizer, weft_name_of(g, all[i])) &&
            !is_tracked(l, all[i]))
            l->params[l->n++] = all[i];
    l->n_trained = l->n;
}

/* Lists what the update changes. */
static bool list_params(weft_trainer *t, trainer_graph *s, graph_lists *l)
{
    weft_graph *g = s->plan.graph;
    size_t n;
    const weft_value *all =
        t->hooks ? t->hooks->params(s, &n) : weft_graph_params(s->plan.graph, &n);
    l->tracked = weft_graph_tracked(g, &l->n_tracked);
    if (!allocate_lists(l, n + l->n_tracked)) return false;
    list_trained(t, s, l, all, n);
    for (size_t i = 0; i < l->n_tracked; i++) l->params[l->n++] = l->tracked[i].state;
    if (!l->n_trained)
        weft_graph_fail_in(g, "trainer", WEFT_BAD_ARGUMENT,
                           s->stage ? "a stage has no parameters to train: set fewer stages"
                           : weft_graph_params(g, NULL) ? "every parameter is frozen"
                                                        : "the model has no parameters");
    return l->n_trained > 0;
}

static void add_training(weft_trainer *t, trainer_graph *s)
{
    weft_graph *g = s->plan.graph;
    graph_lists l = {.t = t, .s = s};
    const weft_role role = weft_graph_set_role(g, (weft_role){WEFT_UPDATE, 0});
    if (list_params(t, s, &l) && (!t->hooks || t->hooks->list(t, s, &l) == WEFT_OK)) {
        l.one = weft_scalar(g, s->dtype, 1);
        if (s->kind == GRAPH_SUM)
            s->old_weight = weft_input(g, "old_weight", s->dtype, WEFT_SCALAR);
        if ((s->kind == GRAPH_SUM || s->kind == GRAPH_UPDATE) && t->o.accumulate > 1)
            s->weight = weft_input(g, "weight", s->dtype, WEFT_SCALAR);
        if (s->kind == GRAPH_SUM) add_sum(t, s, &l);
        if (s->kind == GRAPH_UPDATE) add_last(t, s, &l);
        if (s->kind == GRAPH_STORE || s->kind == GRAPH_ADD) add_moves(t, s, &l);
        if (weft_is_value(s->sent))
            s->target = weft_group(g, (weft_value[]){s->target, s->sent}, 2);
    }
    weft_graph_set_role(g, role);
    free(l.params);
    free(l.counted);
}

static void add_evaluation(trainer_graph *s)
{
    s->metric = weft_is_value(s->built.metric) ? s->built.metric : s->built.loss;
    s->accuracy = s->built.accuracy;
    s->target = weft_is_value(s->sent) ? s->sent : s->metric;
}

/* The batches, if the trainer has any yet, must fill the builder's inputs. */
static void check_inputs(const weft_trainer *t, weft_graph *g, const weft_built *b)
{
    const weft_batch_source *source = &t->batches;
    if (!source->batches) return;
    if (b->n_inputs != source->n_inputs) {
        weft_graph_fail_in(g, t->o.builder.name, WEFT_BAD_ARGUMENT,
                           "has %zu inputs, the batches fill %zu", b->n_inputs, source->n_inputs);
        return;
    }
    for (size_t i = 0; i < b->n_inputs; i++) {
        weft_dtype has = weft_dtype_of(g, b->inputs[i]);
        if (has == source->input_dtypes[i]) continue;
        weft_graph_fail_in(g, t->o.builder.name, WEFT_BAD_DTYPE,
                           "input %zu is %s, the batches have %s", i, weft_dtype_name(has),
                           weft_dtype_name(source->input_dtypes[i]));
        return;
    }
}

/* Names of the model's states must not read as those of other states: see weft/state_key.h. */
static void check_names(const weft_trainer *t, weft_graph *g)
{
    for (size_t i = 0; i < weft_graph_node_count(g); i++) {
        const weft_node_info node = weft_graph_node(g, i);
        const char *name = weft_name_of(g, weft_value_from_id(g, node.first_out));
        if (node.op != &weft_op_state || weft__names_model_state(name)) continue;
        weft_graph_fail_in(g, t->o.builder.name, WEFT_BAD_ARGUMENT,
                           "declares \"%s\", which names a state of training or a piece: expected "
                           "a name that does not begin with opt., sum. or ema. and does not end "
                           "with [first:end]",
                           name);
        return;
    }
}

static weft_status check_built(const weft_trainer *t, weft_graph *g, const weft_built *b)
{
    const weft_builder *builder = &t->o.builder;
    if (b->n_inputs > WEFT_BUILT_VALUES)
        weft_graph_fail_in(g, builder->name, WEFT_BAD_ARGUMENT, "has %zu inputs, at most %d",
                           b->n_inputs, WEFT_BUILT_VALUES);
    else if (!weft_is_value(b->loss))
        weft_graph_fail_in(g, builder->name, WEFT_BAD_ARGUMENT, "has no loss to train on");
    else if (weft_rank_of(g, b->loss) != 0 || !weft_dtype_is_float(weft_dtype_of(g, b->loss)))
        weft_graph_fail_in(g, builder->name, WEFT_BAD_ARGUMENT,
                           "the loss must be a scalar of f32 or f64");
    else
        check_inputs(t, g, b);
    if (weft_graph_status(g) == WEFT_OK) check_names(t, g);
    return weft_graph_status(g);
}

weft_graph *weft__trainer_build_model(weft_trainer *t, weft_batch_shape shape, bool training,
                                      weft_ranks tensor, weft_built *built)
{
    const weft_builder *builder = &t->o.builder;
    const weft_build_options options = {.shape = shape, .training = training, .tensor = tensor};
    weft_graph *g = weft_graph_new();
    *built = (weft_built){.n_inputs = 0};
    if (!g) {
        weft__trainer_no_memory(t);
        return NULL;
    }
    weft_graph_freeze(g, is_frozen, t);
    builder->build(builder->context, g, &options, built);
    weft_graph_freeze(g, NULL, NULL);
    if (weft_error_copy(&t->error, weft_graph_error(g)) == WEFT_OK) return g;
    weft_graph_free(g);
    return NULL;
}

weft_status weft__trainer_graph_build(weft_trainer *t, trainer_graph *s)
{
    weft_graph *g = weft__trainer_build_model(t, s->shape, s->kind != GRAPH_EVALUATE,
                                              t->place.tensor, &s->built);
    s->plan.graph = g;
    if (!g) return t->error.status;
    if (check_built(t, g, &s->built) == WEFT_OK) {
        s->dtype = weft_dtype_of(g, s->built.loss);
        for (size_t i = 0; i < s->built.n_inputs; i++)
            s->input_bytes[i] = weft_tensor_bytes(weft_dtype_of(g, s->built.inputs[i]),
                                                  weft_shape_of(g, s->built.inputs[i]));
        if (t->hooks && t->hooks->cut(t, s) != WEFT_OK) return t->error.status;
        if (s->kind != GRAPH_EVALUATE)
            add_training(t, s);
        else
            add_evaluation(s);
    }
    weft_error_copy(&t->error, weft_graph_error(s->plan.graph));
    return t->error.status;
}
