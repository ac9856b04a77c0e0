/* The graphs of a trainer, each of which is run for a batch.
 *
 * Each shape of batch has its own graph, plan and session, made when the shape first occurs. All
 * use one parameter store and one arena. A run depends only on its feeds, the states, its number
 * and the seed. A checkpoint holds all of these, so a resumed training is bit-identical to an
 * uninterrupted one. */
#include "trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Graphs ---- */

/* The state PREFIX.NAME of a parameter NAME, or of this process's piece of it. */
static weft_value state_for(const weft_trainer *t, weft_graph *g, const char *prefix,
                            weft_value param, bool piece)
{
    char name[512];
    const char *of = weft_name_of(g, param);
    weft_shape shape = weft_shape_of(g, param);
    int64_t first, end;
    snprintf(name, sizeof name, "%s.%s", prefix, of);
    if (piece && weft_shards_piece(t->shards, of, weft__ranks_own(t), &first, &end)) {
        weft_shards_state(t->shards, prefix, of, name, sizeof name);
        shape = WEFT_SHAPE(end - first);
    }
    return weft_state(g, name, weft_dtype_of(g, param), shape, WEFT_INIT_ZEROS);
}

/* What training must not change, for the graph; the optimiser's groups name it. */
static bool is_frozen(void *context, const char *name)
{
    const weft_trainer *t = context;
    return weft_optimizer_freezes(&t->o.optimizer, name);
}

/* Whether sums are of this process's pieces of the parameters. */
static bool sums_pieces(const weft_trainer *t)
{
    return t->shards && t->o.zero >= 2;
}

/* A sum of gradients: `sum.NAME` is the running one, `sum@k.NAME` is stored in slot k. */
static weft_value sum_state(const weft_trainer *t, weft_graph *g, int slot, weft_value param)
{
    char prefix[32] = WEFT_SUM_STATES;
    if (slot >= 0) snprintf(prefix, sizeof prefix, "%s@%d", WEFT_SUM_STATES, slot);
    return state_for(t, g, prefix, param, sums_pieces(t));
}
#define RUNNING (-1)

/* Lists of one value per trained parameter, and then per running average (weft_track): gradients,
 * new values, and updates to group. The gradient of an average is the value that it follows. */
typedef struct lists {
    weft_trainer *t;
    trainer_graph *s;
    weft_value *params, *grads, *updated, *group;
    weft_tracked *tracked;
    size_t n_tracked;
    weft_value *owned;     /* what the update changes: params, or this process's pieces of them */
    bool *tied, *counted;  /* of a divided model: see divided.c */
    size_t n, n_trained;   /* without the averages */
    weft_value one;        /* of the loss's dtype */
    weft_reducer *reducer; /* NULL for one process */
} lists;

static void no_memory_in(weft_graph *g)
{
    weft_graph_fail_in(g, "trainer", WEFT_NO_MEMORY, "out of memory");
}

static void add_averages(weft_trainer *t, trainer_graph *s, lists *l)
{
    weft_graph *g = s->plan.graph;
    s->ema_decay = weft_input(g, "ema_decay", s->dtype, WEFT_SCALAR);
    weft_value new_weight = weft_sub(g, l->one, s->ema_decay);
    for (size_t i = 0; i < l->n; i++) {
        weft_value value = l->updated[i];
        weft_value average = state_for(t, g, WEFT_AVERAGE_STATES, l->params[i], t->shards != NULL);
        if (t->shards && !s->gathered)
            value = weft_shards_slice(g, t->shards, weft_name_of(g, l->params[i]), value);
        l->group[i + 1] = weft_blend(g, average, value, s->ema_decay, new_weight);
    }
    s->target = weft_group(g, l->group, l->n + 1);
}

/* The update by l->grads, those of the whole update or this process's pieces of them. */
static void add_update(weft_trainer *t, trainer_graph *s, lists *l)
{
    weft_graph *g = s->plan.graph;
    weft_optimizer optimizer = t->o.optimizer;
    const weft_model_split split =
        weft_model_split_of(weft__mesh_ranks(&t->mesh, MESH_MODEL), l->counted);
    optimizer.shards = t->shards;
    if (weft__mesh_divides(&t->mesh)) optimizer.model = &split;
    s->lr = weft_input(g, "lr", s->dtype, WEFT_SCALAR);
    l->group[0] = weft_apply_gradients(g, l->owned, l->grads, l->n, s->built.loss, s->lr,
                                       &optimizer, &s->norm, l->updated);
    s->target = l->group[0];
    if (t->o.ema > 0) add_averages(t, s, l);
}

/* ---- Sums ---- */

/* Adds this process's last gradient, or its sum over a round, to the sums before: values[] become
 * the stored ones, and then the running one. Returns how many are stored. */
static int last_sums(const lists *l, size_t i, weft_value gradient, weft_value *values)
{
    weft_graph *g = l->s->plan.graph;
    const sum_action *a = &l->t->sums.actions[l->t->sums.n - 1];
    weft_value running = gradient;
    int stored = a->slots;
    if (a->adds) running = weft_add(g, sum_state(l->t, g, RUNNING, l->params[i]), gradient);
    for (; stored > a->slots - a->pops; stored--)
        running = weft_add(g, sum_state(l->t, g, stored - 1, l->params[i]), running);
    for (int k = 0; k < stored; k++) values[k] = sum_state(l->t, g, k, l->params[i]);
    values[stored] = running;
    return stored;
}

/* A gradient of the process's last batch, or of one of a round, is complete: it goes to the owners
 * of its pieces. */
static void gradient_ready(void *context, size_t i, weft_value gradient)
{
    lists *l = context;
    weft_value values[WEFT_SUM_NODES] = {gradient};
    if (!sums_pieces(l->t)) last_sums(l, i, gradient, values);
    weft_reducer_add(l->reducer, l->params[i], values);
}

/* The backward pass gathers parameters again. */
static weft_value read_again(void *context, weft_value value)
{
    const lists *l = context;
    return weft_gathered_again(l->s->gathered, value);
}

/* The gradients of running averages. */
static void add_tracked(const trainer_graph *s, const lists *l, weft_value weight,
                        weft_value *grads, const weft_grad_hooks *ready)
{
    for (size_t i = l->n_trained; i < l->n; i++) {
        grads[i] = l->tracked[i - l->n_trained].value;
        if (l->t->o.accumulate > 1) grads[i] = weft_mul(s->plan.graph, grads[i], weight);
        if (ready) ready->ready(ready->context, i, grads[i]);
    }
}

/* x, in a node that runs after the backward pass of a stage. Fusion must not move a sum into the
 * forward pass, which runs ahead for other batches. */
static weft_value behind_backward(weft_graph *g, weft_value x, weft_value gradient)
{
    const weft_value flat = weft_reshape(g, gradient, WEFT_SHAPE(-1));
    const weft_value first = weft_squeeze(g, weft_slice(g, flat, 0, 0, 1, 1), 0);
    return weft_add(g, x, weft_mul_scalar(g, first, 0));
}

/* Adds the backward pass. The values of running averages are there before it. */
static void differentiate(trainer_graph *s, const lists *l, weft_value weight, weft_value *grads,
                          const weft_grad_hooks *ready)
{
    const size_t n = l->n_trained;
    weft_graph *g = s->plan.graph;
    if (!s->stage) {
        add_tracked(s, l, weight, grads, ready);
        weft_grad_each(g, &s->built.loss, &weight, 1, l->params, n, grads, ready);
        return;
    }
    s->sent = weft_stage_grad(s->stage, s->loss, weight, l->params, n, grads, ready, &s->pause);
    if (l->n > n) add_tracked(s, l, behind_backward(g, weight, grads[0]), grads, ready);
}

/* The gradients of a batch. On several processes, if `reduces`: of this process's pieces, summed
 * over all batches of the update, or over those of a round. */
static void add_gradients(weft_trainer *t, trainer_graph *s, lists *l, bool reduces)
{
    weft_graph *g = s->plan.graph;
    const weft_value weight = t->o.accumulate > 1 ? s->weight : l->one;
    if (!reduces) {
        differentiate(s, l, weight, l->grads, NULL);
        return;
    }
    const weft_grad_hooks ready = {
        .ready = gradient_ready, .context = l, .again = s->gathered ? read_again : NULL};
    weft_value *whole = calloc(l->n, sizeof *whole);
    if (!whole) no_memory_in(g);
    l->reducer = weft_reducer_new(g, t->shards,
                                  sums_pieces(t) ? (uint32_t)weft__ranks_size(t) : t->o.accumulate);
    if (whole && l->reducer) {
        differentiate(s, l, weight, whole, &ready);
        weft_reducer_finish(l->reducer, l->params, l->n, l->grads);
    }
    weft_reducer_free(l->reducer);
    free(whole);
}

static void add_sum(weft_trainer *t, trainer_graph *s, lists *l)
{
    weft_graph *g = s->plan.graph;
    weft_value one = l->one;
    add_gradients(t, s, l, sums_pieces(t));
    /* Of several processes all must see that one is not finite: the norm of the update shows it. */
    if (!sums_pieces(t) && !weft__mesh_divides(&t->mesh)) {
        weft_value watched[2] = {weft_global_norm(g, l->grads, l->n_trained), s->built.loss};
        weft_name(g, watched[0], "gradient_norm");
        one = weft_require_finite(g, l->one, watched, 2);
    }
    for (size_t i = 0; i < l->n; i++)
        l->group[i] =
            weft_blend(g, sum_state(t, g, RUNNING, l->params[i]), l->grads[i], s->old_weight, one);
    s->target = weft_group(g, l->group, l->n);
}

static void add_moves(const weft_trainer *t, trainer_graph *s, lists *l)
{
    weft_graph *g = s->plan.graph;
    for (size_t i = 0; i < l->n; i++) {
        weft_value running = sum_state(t, g, RUNNING, l->params[i]);
        weft_value stored = sum_state(t, g, s->slot, l->params[i]);
        l->group[i] = s->kind == GRAPH_STORE ? weft_assign(g, stored, running)
                                             : weft_blend(g, running, stored, l->one, l->one);
    }
    s->target = weft_group(g, l->group, l->n);
}

/* Names views of the gradients, so that they become targets (weft__trainer_graph_plan). One value
 * may be the gradient of two parameters, so it cannot have the name itself. */
static void name_gradients(const trainer_graph *s, const lists *l)
{
    weft_graph *g = s->plan.graph;
    if (l->t->shards || s->stage) return;
    for (size_t i = 0; i < l->n_trained; i++) {
        char name[TRAINER_GRADIENT_BYTES];
        const weft_shape flat =
            weft_rank_of(g, l->grads[i]) == 1 ? WEFT_SHAPE(1, -1) : WEFT_SHAPE(-1);
        const weft_value view = weft_reshape(g, l->grads[i], flat);
        if (trainer_gradient_name(weft_name_of(g, l->params[i]), name)) weft_name(g, view, name);
    }
}

static void add_last(weft_trainer *t, trainer_graph *s, lists *l)
{
    weft_graph *g = s->plan.graph;
    weft_value values[WEFT_SUM_NODES];
    add_gradients(t, s, l, t->shards != NULL);
    if (t->o.accumulate > 1) {
        const bool sums = !t->shards || sums_pieces(t);
        s->inverse = weft_input(g, "inverse", s->dtype, WEFT_SCALAR);
        for (size_t i = 0; i < l->n; i++) {
            const weft_value sum =
                sums ? values[last_sums(l, i, l->grads[i], values)] : l->grads[i];
            l->grads[i] = weft_mul(g, sum, s->inverse);
        }
    }
    if (t->o.retain_gradients) name_gradients(s, l);
    const weft_value tied =
        s->stage ? weft__divided_sum_tied(t, s, l->params, l->n, l->grads) : WEFT_NO_VALUE;
    add_update(t, s, l);
    if (weft_is_value(tied)) s->target = weft_group(g, (weft_value[]){s->target, tied}, 2);
}

/* ---- Training ---- */

/* Whether a value is the state of a running average. */
static bool is_tracked(const lists *l, weft_value value)
{
    for (size_t i = 0; i < l->n_tracked; i++)
        if (l->tracked[i].state.id == value.id) return true;
    return false;
}

/* Allocates the lists, for `all` parameters. */
static bool allocate_lists(lists *l, size_t all, size_t n_tracked)
{
    const size_t most = all + n_tracked;
    l->params = calloc(5 * most + 2, sizeof *l->params);
    l->tied = calloc(2 * most + 1, sizeof *l->tied);
    l->tracked = calloc(n_tracked + 1, sizeof *l->tracked);
    if (!l->params || !l->tied || !l->tracked) {
        no_memory_in(l->s->plan.graph);
        return false;
    }
    l->counted = l->tied + most;
    l->grads = l->params + most;
    l->updated = l->grads + most;
    l->group = l->updated + most;
    l->owned = l->s->gathered ? l->group + most + 1 : l->params;
    return true;
}

/* Lists the parameters that are trained, and for a gathered graph their running averages. */
static void list_trained(const weft_trainer *t, const trainer_graph *s, lists *l, size_t all)
{
    weft_graph *g = s->plan.graph;
    if (s->gathered)
        weft_gathered_params(s->gathered, l->params, all);
    else
        weft_graph_params(g, l->params, all);
    for (size_t i = 0; i < all; i++)
        if (!weft_optimizer_freezes(&t->o.optimizer, weft_name_of(g, l->params[i])) &&
            !is_tracked(l, l->params[i]))
            l->params[l->n++] = l->params[i];
    l->n_trained = l->n;
}

/* Lists what the update changes. */
static bool list_params(weft_trainer *t, trainer_graph *s, lists *l)
{
    weft_graph *g = s->plan.graph;
    const size_t all =
        s->gathered ? weft_gathered_params(s->gathered, NULL, 0) : weft_graph_params(g, NULL, 0);
    const size_t n_tracked = weft_graph_tracked(g, NULL, 0);
    if (!allocate_lists(l, all, n_tracked)) return false;
    l->n_tracked = weft_graph_tracked(g, l->tracked, n_tracked);
    list_trained(t, s, l, all);
    for (size_t i = 0; i < l->n_tracked; i++) l->params[l->n++] = l->tracked[i].state;
    for (size_t i = 0; i < l->n; i++) {
        l->tied[i] = weft__divided_is_tied(t, s, weft_name_of(g, l->params[i]));
        l->counted[i] = weft__divided_counts(t, s, l->params[i]);
        if (s->gathered)
            l->owned[i] = weft_gathered_piece(s->gathered, weft_name_of(g, l->params[i]));
    }
    if (!l->n_trained)
        weft_graph_fail_in(g, "trainer", WEFT_BAD_ARGUMENT,
                           s->stage ? "a stage has no parameters to train: set fewer stages"
                           : weft_graph_params(g, NULL, 0) ? "every parameter is frozen"
                                                           : "the model has no parameters");
    return l->n_trained > 0;
}

static void add_training(weft_trainer *t, trainer_graph *s)
{
    weft_graph *g = s->plan.graph;
    lists l = {.t = t, .s = s};
    const weft_role role = weft_graph_set_role(g, (weft_role){WEFT_UPDATE, 0});
    if (list_params(t, s, &l) && weft__divided_shard(t, g, l.params, l.tied, l.n) == WEFT_OK) {
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
    free(l.tied);
    free(l.tracked);
}

static void add_evaluation(trainer_graph *s)
{
    s->metric = weft_is_value(s->built.metric) ? s->built.metric : s->built.loss;
    s->accuracy = s->built.accuracy;
    s->target = s->stage ? weft_stage_sent(s->stage) : WEFT_NO_VALUE;
    if (!weft_is_value(s->target)) s->target = s->metric;
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
                                              weft__mesh_ranks(&t->mesh, MESH_TENSOR), &s->built);
    s->plan.graph = g;
    if (!g) return t->error.status;
    if (check_built(t, g, &s->built) == WEFT_OK) {
        s->dtype = weft_dtype_of(g, s->built.loss);
        for (size_t i = 0; i < s->built.n_inputs; i++)
            s->input_bytes[i] = weft_tensor_bytes(weft_dtype_of(g, s->built.inputs[i]),
                                                  weft_shape_of(g, s->built.inputs[i]));
        if (weft__divided_cut(t, s) != WEFT_OK || weft__divided_gather(t, s) != WEFT_OK)
            return t->error.status;
        if (s->kind != GRAPH_EVALUATE)
            add_training(t, s);
        else
            add_evaluation(s);
    }
    weft_error_copy(&t->error, weft_graph_error(s->plan.graph));
    return t->error.status;
}
