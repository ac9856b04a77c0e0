/* The graphs of a divided model: this process's stage, and parameters that other processes
 * share. */
#include "ranks.h"

#include <weft/op.h>

#include <stdlib.h>
#include <string.h>

weft_status weft__divided_begin(weft_trainer *t, weft_batch_shape shape)
{
    trainer_processes *p = t->processes;
    weft_built built;
    if (p->mesh.stages == 1 || p->stage) return WEFT_OK;
    weft_graph *whole = weft__trainer_build_model(t, shape, true, t->place.tensor, &built);
    if (!whole) return t->error.status;
    p->stage = weft__stage_new(whole, &built.loss, 1, true, weft__mesh_ranks(&p->mesh, MESH_STAGES),
                               &t->error);
    weft_graph_free(whole);
    return t->error.status;
}

/* Replaces the whole model in a graph by this process's stage. */
static weft_status cut_stage(weft_trainer *t, trainer_graph *s)
{
    weft_built *b = &s->built;
    const weft_value whole_metric = weft_is_value(b->metric) ? b->metric : b->loss;
    const weft_value targets[3] = {b->loss, whole_metric, b->accuracy};
    const bool training = s->kind != GRAPH_EVALUATE;
    const size_t n = training ? 1 : weft_is_value(b->accuracy) ? 3 : 2;
    s->loss = b->loss;
    if (t->processes->mesh.stages == 1) return WEFT_OK;
    if (weft__divided_begin(t, s->shape) != WEFT_OK) return t->error.status;
    s->stage =
        weft__stage_new_like(s->plan.graph, targets, n, training, t->processes->stage, &t->error);
    if (!s->stage) return t->error.status;
    for (size_t i = 0; i < b->n_inputs; i++)
        b->inputs[i] = weft__stage_value(s->stage, b->inputs[i]);
    b->loss = weft__stage_value(s->stage, b->loss);
    b->metric = weft__stage_value(s->stage, b->metric);
    b->accuracy = weft__stage_value(s->stage, b->accuracy);
    weft_graph_free(s->plan.graph);
    s->plan.graph = weft__stage_graph(s->stage);
    if (!training) s->sent = weft__stage_sent(s->stage);
    return WEFT_OK;
}

/* Adds this process's piece of a parameter to the store: of the whole that was loaded, or of the
 * first contents of one. */
static weft_status begin_piece(weft_trainer *t, const weft_graph *g, weft_value param)
{
    const char *name = weft_name_of(g, param);
    char piece[WEFT_STATE_KEY_BYTES];
    weft_tensor whole, own;
    const weft_state_key key = weft__shards_key(t->processes->shards, name);
    const int64_t first = key.piece.first, end = key.piece.end;
    if (!key.is_piece) return WEFT_OK;
    weft_params *made = weft__trainer_store(t);
    weft_graph *alone = weft_graph_new();
    weft_status status = made && alone ? WEFT_OK : weft__trainer_no_memory(t);
    if (status == WEFT_OK && !weft_params_find(t->params, name, &whole)) {
        weft_graph_copy_node(alone, g, weft_producer_of(g, param), NULL, (weft_value[1]){{0, 0}});
        const weft_params_filter anew = {weft__trainer_may_begin, t};
        status = weft_params_init_some(made, alone, &anew, t->o.seed, &t->error);
        if (status == WEFT_OK) weft_params_find(made, name, &whole);
    }
    if (status == WEFT_OK)
        status = weft_params_add(t->params, weft_state_key_write(&key, piece, sizeof piece),
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
    trainer_processes *p = t->processes;
    if (p->shards) return WEFT_OK;
    const weft_shards_options o = {
        .alone = tied, .optimizer = &t->o.optimizer, .bucket_bytes = p->o.bucket_bytes};
    p->shards =
        weft__shards_new(g, params, n, weft__mesh_ranks(&p->mesh, MESH_DATA), &o, &t->error);
    return t->error.status;
}

/* Cuts the parameters and running averages of the first graph, and takes this process's pieces. */
static weft_status take_pieces(weft_trainer *t, const weft_graph *g)
{
    if (t->processes->shards) return WEFT_OK;
    size_t n, n_tracked;
    const weft_value *all = weft_graph_params(g, &n);
    const weft_tracked *tracked = weft_graph_tracked(g, &n_tracked);
    weft_value *params = calloc(n + n_tracked + 1, sizeof *params);
    weft_status status = params ? WEFT_OK : weft__trainer_no_memory(t);
    if (status == WEFT_OK) {
        if (n) memcpy(params, all, n * sizeof *params);
        for (size_t i = 0; i < n_tracked; i++) params[n + i] = tracked[i].state;
        status = weft__divided_shard(t, g, params, NULL, n + n_tracked);
    }
    for (size_t i = 0; t->params && status == WEFT_OK && i < n + n_tracked; i++)
        status = begin_piece(t, g, params[i]);
    free(params);
    return status;
}

/* With zero 3, replaces the parameters in a graph by this process's pieces. */
static weft_status gather_params(weft_trainer *t, trainer_graph *s)
{
    weft_built *b = &s->built;
    if (t->processes->o.zero < 3) return WEFT_OK;
    if (take_pieces(t, s->plan.graph) != WEFT_OK) return t->error.status;
    s->gathered = weft__gathered_new(s->plan.graph, t->processes->shards, &t->error);
    if (!s->gathered) return t->error.status;
    for (size_t i = 0; i < b->n_inputs; i++)
        b->inputs[i] = weft__gathered_value(s->gathered, b->inputs[i]);
    b->loss = weft__gathered_value(s->gathered, b->loss);
    b->metric = weft__gathered_value(s->gathered, b->metric);
    b->accuracy = weft__gathered_value(s->gathered, b->accuracy);
    s->loss = b->loss;
    weft_graph_free(s->plan.graph);
    s->plan.graph = weft__gathered_graph(s->gathered);
    return WEFT_OK;
}

weft_status weft__divided_cut(weft_trainer *t, trainer_graph *s)
{
    return cut_stage(t, s) == WEFT_OK ? gather_params(t, s) : t->error.status;
}
