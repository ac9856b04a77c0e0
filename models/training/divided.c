/* The graphs of a divided model: this process's stage, and parameters that other processes
 * share. */
#include "trainer.h"

#include <weft/op.h>

#include <stdlib.h>
#include <string.h>

weft_status weft__divided_begin(weft_trainer *t, weft_batch_shape shape)
{
    weft_built built;
    if (t->mesh.stages == 1 || t->stage) return WEFT_OK;
    weft_graph *whole =
        weft__trainer_build_model(t, shape, true, weft__mesh_ranks(&t->mesh, MESH_TENSOR), &built);
    if (!whole) return t->error.status;
    t->stage = weft_stage_new(whole, &built.loss, 1, true, weft__mesh_ranks(&t->mesh, MESH_STAGES),
                              &t->error);
    weft_graph_free(whole);
    return t->error.status;
}

weft_status weft__divided_cut(weft_trainer *t, trainer_graph *s)
{
    weft_built *b = &s->built;
    const weft_value whole_metric = weft_is_value(b->metric) ? b->metric : b->loss;
    const weft_value targets[3] = {b->loss, whole_metric, b->accuracy};
    const bool training = s->kind != GRAPH_EVALUATE;
    const size_t n = training ? 1 : weft_is_value(b->accuracy) ? 3 : 2;
    s->loss = b->loss;
    if (t->mesh.stages == 1) return WEFT_OK;
    if (weft__divided_begin(t, s->shape) != WEFT_OK) return t->error.status;
    s->stage = weft_stage_new_like(s->plan.graph, targets, n, training, t->stage, &t->error);
    if (!s->stage) return t->error.status;
    for (size_t i = 0; i < b->n_inputs; i++)
        b->inputs[i] = weft_stage_value(s->stage, b->inputs[i]);
    b->loss = weft_stage_value(s->stage, b->loss);
    b->metric = weft_stage_value(s->stage, b->metric);
    b->accuracy = weft_stage_value(s->stage, b->accuracy);
    weft_graph_free(s->plan.graph);
    s->plan.graph = weft_stage_graph(s->stage);
    return WEFT_OK;
}

bool weft__divided_has_parts(const weft_trainer *t)
{
    return weft__mesh_divides(&t->mesh) || (t->communicator && t->o.zero == 3);
}

/* Adds this process's piece of a parameter to the store: of the whole that was loaded, or of the
 * first contents of one. */
static weft_status begin_piece(weft_trainer *t, const weft_graph *g, weft_value param)
{
    const char *name = weft_name_of(g, param);
    char piece[STATE_NAME];
    int64_t first, end;
    weft_tensor whole, own;
    if (!weft_shards_piece(t->shards, name, weft__ranks_own(t), &first, &end)) return WEFT_OK;
    weft_params *made = weft_params_new();
    weft_graph *alone = weft_graph_new();
    weft_status status = made && alone ? WEFT_OK : weft__trainer_no_memory(t);
    if (status == WEFT_OK && !weft_params_find(t->params, name, &whole)) {
        weft_graph_copy_node(alone, g, weft_producer_of(g, param), NULL, (weft_value[1]){{0, 0}});
        const weft_params_filter anew = {weft__trainer_may_begin, t};
        status = weft_params_init_some(made, alone, &anew, t->o.seed, &t->error);
        if (status == WEFT_OK) weft_params_find(made, name, &whole);
    }
    if (status == WEFT_OK)
        status = weft_params_add(t->params, weft_piece_name(name, first, end, piece, sizeof piece),
                                 weft_dtype_of(g, param), WEFT_SHAPE(end - first), &own, &t->error);
    const size_t bytes = weft_dtype_bytes(weft_dtype_of(g, param));
    if (status == WEFT_OK)
        memcpy(own.data, (const char *)whole.data + (size_t)first * bytes,
               (size_t)(end - first) * bytes);
    weft_params_free(made);
    weft_graph_free(alone);
    return status;
}

weft_status weft__divided_shard(weft_trainer *t, const weft_graph *g, const weft_value *params,
                                const bool *tied, size_t n)
{
    if (!t->communicator || t->shards) return WEFT_OK;
    t->shards =
        weft_shards_new(g, params, tied, n, &t->o.optimizer, weft__mesh_ranks(&t->mesh, MESH_DATA),
                        t->o.bucket_bytes, &t->error);
    return t->error.status;
}

/* Cuts the parameters and running averages of the first graph, and takes this process's pieces. */
static weft_status take_pieces(weft_trainer *t, const weft_graph *g)
{
    if (t->shards) return WEFT_OK;
    const size_t n = weft_graph_params(g, NULL, 0), n_tracked = weft_graph_tracked(g, NULL, 0);
    weft_value *params = calloc(n + n_tracked + 1, sizeof *params);
    weft_tracked *tracked = calloc(n_tracked + 1, sizeof *tracked);
    weft_status status = params && tracked ? WEFT_OK : weft__trainer_no_memory(t);
    if (status == WEFT_OK) {
        weft_graph_params(g, params, n);
        weft_graph_tracked(g, tracked, n_tracked);
        for (size_t i = 0; i < n_tracked; i++) params[n + i] = tracked[i].state;
        status = weft__divided_shard(t, g, params, NULL, n + n_tracked);
    }
    for (size_t i = 0; t->params && status == WEFT_OK && i < n + n_tracked; i++)
        status = begin_piece(t, g, params[i]);
    free(params);
    free(tracked);
    return status;
}

weft_status weft__divided_gather(weft_trainer *t, trainer_graph *s)
{
    weft_built *b = &s->built;
    if (t->o.zero < 3 || !t->communicator) return WEFT_OK;
    if (take_pieces(t, s->plan.graph) != WEFT_OK) return t->error.status;
    s->gathered = weft_gathered_new(s->plan.graph, t->shards, &t->error);
    if (!s->gathered) return t->error.status;
    for (size_t i = 0; i < b->n_inputs; i++)
        b->inputs[i] = weft_gathered_value(s->gathered, b->inputs[i]);
    b->loss = weft_gathered_value(s->gathered, b->loss);
    b->metric = weft_gathered_value(s->gathered, b->metric);
    b->accuracy = weft_gathered_value(s->gathered, b->accuracy);
    s->loss = b->loss;
    weft_graph_free(s->plan.graph);
    s->plan.graph = weft_gathered_graph(s->gathered);
    return WEFT_OK;
}

/* The stages that read a parameter, from `from` on; the number of stages if none does. */
static int next_holder(const trainer_graph *s, const mesh *m, const char *param, int from)
{
    while (from < m->stages && s->stage && !weft_stage_holds(s->stage, param, from)) from++;
    return from;
}

bool weft__divided_is_tied(const weft_trainer *t, const trainer_graph *s, const char *param)
{
    const int first = s->stage ? next_holder(s, &t->mesh, param, 0) : t->mesh.stages;
    return first < t->mesh.stages && next_holder(s, &t->mesh, param, first + 1) < t->mesh.stages;
}

bool weft__divided_counts(const weft_trainer *t, const trainer_graph *s, weft_value param)
{
    const weft_graph *g = s->plan.graph;
    const weft_ranks part = weft__mesh_ranks(&t->mesh, MESH_TENSOR);
    const weft_ranks stage = weft__mesh_ranks(&t->mesh, MESH_STAGES);
    return (!part.rank || weft_part_of(g, param).whole) &&
           (!s->stage || next_holder(s, &t->mesh, weft_name_of(g, param), 0) == stage.rank);
}

#define TIED_TAG WEFT_MAX_TAG

/* A tied gradient among the stages that have the parameter. */
typedef struct tied_sum {
    weft_graph *g;
    weft_ranks stages;
    weft_value own;
    int64_t elements;
} tied_sum;

static weft_flight tied_send(const tied_sum *x, int peer)
{
    const weft_exchange_sizes sizes = {.peer = peer, .tag = TIED_TAG};
    return weft_exchange_begin(x->g, x->stages, WEFT_SEND, &sizes, &x->own, 1);
}

static weft_flight tied_receive(const tied_sum *x, int peer, int64_t *counts)
{
    const weft_exchange_sizes sizes = {.receive = counts, .peer = peer, .tag = TIED_TAG};
    const weft_value none = weft_fill(x->g, weft_dtype_of(x->g, x->own), WEFT_SHAPE(0), 0);
    counts[peer] = x->elements;
    const weft_flight flight = weft_exchange_begin(x->g, x->stages, WEFT_RECEIVE, &sizes, &none, 1);
    counts[peer] = 0;
    return flight;
}

/* Adds the gradients of all holders in the order of the stages, so that the sums are bit-identical
 * on all. */
static weft_value add_tied(const weft_trainer *t, const trainer_graph *s, const tied_sum *x,
                           const char *param, weft_flight *flights, int64_t *counts,
                           weft_value *sent, size_t *n_sent)
{
    const int n = t->mesh.stages;
    weft_value sum = WEFT_NO_VALUE;
    for (int r = next_holder(s, &t->mesh, param, 0); r < n;
         r = next_holder(s, &t->mesh, param, r + 1)) {
        if (r == x->stages.rank) continue;
        flights[r] = tied_receive(x, r, counts);
        flights[n + r] = tied_send(x, r);
    }
    for (int r = next_holder(s, &t->mesh, param, 0); r < n;
         r = next_holder(s, &t->mesh, param, r + 1)) {
        weft_value one = x->own;
        if (r != x->stages.rank) {
            one = weft_reshape(x->g, weft_exchange_end(x->g, flights[r]),
                               weft_shape_of(x->g, x->own));
            sent[(*n_sent)++] = weft_exchange_end(x->g, flights[n + r]);
        }
        sum = weft_is_value(sum) ? weft_add(x->g, sum, one) : one;
    }
    return sum;
}

weft_value weft__divided_sum_tied(weft_trainer *t, trainer_graph *s, const weft_value *params,
                                  size_t n, weft_value *grads)
{
    weft_graph *g = s->plan.graph;
    const size_t stages = (size_t)t->mesh.stages;
    weft_value *sent = calloc(n * stages + 1, sizeof *sent);
    weft_flight *flights = calloc(2 * stages, sizeof *flights);
    int64_t *counts = calloc(stages, sizeof *counts);
    size_t n_sent = 0;
    if (!sent || !flights || !counts)
        weft_graph_fail_in(g, "trainer", WEFT_NO_MEMORY, "out of memory");
    for (size_t i = 0; sent && flights && counts && i < n; i++) {
        const char *name = weft_name_of(g, params[i]);
        if (!weft__divided_is_tied(t, s, name)) continue;
        const tied_sum x = {g, weft__mesh_ranks(&t->mesh, MESH_STAGES), grads[i],
                            weft_shape_numel(weft_shape_of(g, grads[i]))};
        grads[i] = add_tied(t, s, &x, name, flights, counts, sent, &n_sent);
    }
    const weft_value all = n_sent ? weft_group(g, sent, n_sent) : WEFT_NO_VALUE;
    free(sent);
    free(flights);
    free(counts);
    return all;
}
