/* What the trainer calls if several processes train together: see models/training/hooks.h. */
#include "ranks.h"

#include <stdlib.h>

/* ---- The processes ---- */

/* Whether the processes can share the batches of an update. */
static weft_status check_batches(weft_trainer *t, const weft_trainer_processes *o, uint32_t size,
                                 bool divided)
{
    const uint32_t n = t->o.accumulate;
    if (o->zero >= 2 && divided)
        return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "trainer",
                              "zero %d requires a whole model, not one in parts or stages",
                              o->zero);
    if (o->zero < 1 || o->zero > 3)
        return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "trainer",
                              "invalid zero %d; expected 1, 2 or 3", o->zero);
    if (size > n)
        return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "trainer",
                              "an update has %u batch%s, which %u processes cannot share: set "
                              "accumulate to %u or more",
                              n, n == 1 ? "" : "es", size, size);
    if (o->zero >= 2 && ((size & (size - 1)) || n % size))
        return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "trainer",
                              "with zero %d the processes must be a power of two that divides the "
                              "%u batches of an update; there are %u",
                              o->zero, n, size);
    return WEFT_OK;
}

static weft_status check_options(weft_trainer *t, trainer_processes *p)
{
    weft_trainer_processes *o = &p->o;
    const weft_communicator *c = o->communicator;
    if (!o->zero) o->zero = 1;
    if (!o->tensor) o->tensor = 1;
    if (!o->stages) o->stages = 1;
    if (!weft__mesh_init(&p->mesh, o->communicator, o->tensor, o->stages))
        return weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "trainer",
                              "%d processes cannot divide a model into %d stages of %d parts",
                              c ? c->size : 1, o->stages, o->tensor);
    return check_batches(t, o, (uint32_t)p->mesh.replicas, weft__mesh_divides(&p->mesh));
}

static const trainer_hooks hooks;

static weft_status open_processes(weft_trainer *t)
{
    trainer_processes p = {.o = *t->o.processes};
    if (check_options(t, &p) != WEFT_OK || !p.mesh.groups[MESH_WORLD]) return t->error.status;
    t->processes = malloc(sizeof *t->processes);
    if (!t->processes) return weft__trainer_no_memory(t);
    *t->processes = p;
    const mesh *m = &t->processes->mesh;
    const weft_ranks data = weft__mesh_ranks(m, MESH_DATA);
    t->hooks = &hooks;
    t->place = (trainer_place){.rank = data.rank,
                               .size = data.size,
                               .in_turn = p.o.zero >= 2,
                               .world = weft__mesh_ranks(m, MESH_WORLD),
                               .tensor = weft__mesh_ranks(m, MESH_TENSOR),
                               .divided = weft__mesh_divides(m),
                               .has_parts = weft__mesh_divides(m) || p.o.zero == 3};
    t->plans.session.communicators = t->processes->mesh.groups;
    t->plans.session.n_communicators = MESH_GROUPS;
    return WEFT_OK;
}

static void close_processes(weft_trainer *t)
{
    trainer_processes *p = t->processes;
    weft__mesh_close(&p->mesh);
    weft__shards_free(p->shards);
    weft__stage_free(p->stage);
    weft__whole_free(p->whole);
    free(p);
}

static void refuse(const weft_trainer_processes *processes)
{
    const weft_communicator *c = processes->communicator;
    weft_error error = WEFT_NO_ERROR;
    if (!c || c->size == 1) return;
    weft_error_set(&error, WEFT_BAD_ARGUMENT, "trainer", "its options are invalid");
    c->fail(c->context, &error);
}

static weft_status join(weft_trainer *t)
{
    return weft__ranks_compare(t) == WEFT_OK ? weft__mesh_open(&t->processes->mesh, &t->error)
                                             : t->error.status;
}

static weft_status divide(weft_trainer *t)
{
    start_epoch(&t->batches, 0);
    if (t->error.status == WEFT_OK) weft__divided_begin(t, shape_at(&t->batches, 0));
    start_epoch(&t->batches, t->progress.epoch);
    return weft__whole_split_store(t);
}

static void fail(weft_trainer *t)
{
    weft__mesh_fail(&t->processes->mesh, &t->error);
}

static weft_traffic traffic_of(const weft_trainer *t)
{
    return weft__mesh_traffic(&t->processes->mesh);
}

/* ---- Graphs ---- */

static void free_parts(trainer_graph *s)
{
    weft__stage_free(s->stage);
    weft__gathered_free(s->gathered);
    s->stage = NULL;
    s->gathered = NULL;
}

static const weft_value *params_of(const trainer_graph *s, size_t *count)
{
    return s->gathered ? weft__gathered_params(s->gathered, count)
                       : weft_graph_params(s->plan.graph, count);
}

static weft_state_key key_of(const weft_trainer *t, const char *param)
{
    return weft__shards_key(t->processes->shards, param);
}

static void share_update(weft_trainer *t, const graph_lists *l, weft_optimizer *optimizer)
{
    trainer_processes *p = t->processes;
    p->split = weft__model_split_of(weft__mesh_ranks(&p->mesh, MESH_MODEL), l->counted);
    optimizer->shards = p->shards;
    if (t->place.divided) optimizer->model = &p->split;
}

static weft_value own_piece(const weft_trainer *t, const trainer_graph *s, weft_value param,
                            weft_value value)
{
    weft_graph *g = s->plan.graph;
    if (s->gathered) return value; /* is a piece */
    return weft__shards_slice(g, t->processes->shards, weft_name_of(g, param), value);
}

static const trainer_hooks hooks = {
    .open = open_processes,
    .close = close_processes,
    .refuse = refuse,
    .join = join,
    .divide = divide,
    .agree = weft__ranks_exchange,
    .fail = fail,
    .traffic = traffic_of,
    .update = weft__pipeline_update,
    .cut = weft__divided_cut,
    .built = free_parts,
    .params = params_of,
    .list = weft__gradients_list,
    .key = key_of,
    .differentiate = weft__gradients_add,
    .sum_tied = weft__gradients_sum_tied,
    .share_update = share_update,
    .own = own_piece,
    .saves = weft__whole_saves,
    .gather = weft__whole_gather,
    .gather_averaged = weft__whole_averaged,
    .gather_average = weft__whole_average,
};

weft_trainer_processes weft_trainer_processes_of(weft_communicator *communicator)
{
    return (weft_trainer_processes){.functions = &hooks, .communicator = communicator};
}
