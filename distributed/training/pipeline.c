/* The update of a divided model.
 *
 * Several forward passes are pending, each in a lane of its own; each stops where the gradients of
 * the next stage arrive. The process of stage p of S runs S - 1 - p forward passes ahead, and then
 * alternates forward and backward passes, "one forward, one backward" (Narayanan et al. 2021). So
 * it retains the activations of at most S - p batches. The last batch needs the weights of all
 * batches, so the processes exchange weights first. */
#include "ranks.h"

#include <stdlib.h>

typedef struct pipeline {
    weft_trainer *t;
    double *numbers;
    weft_update_report *report;
    weft_trainer_progress progress; /* over the batches */
    uint32_t batch;                 /* the next of the update */
    double spent;
    int lanes;
} pipeline;

/* The index of this process's k-th batch, which is the next one. */
static size_t advance_to(pipeline *p, uint32_t k)
{
    const uint32_t number = weft__ranks_batch(p->t, weft__ranks_batches(p->t), p->t->place.rank, k);
    size_t index = 0;
    for (; p->batch <= number; p->batch++) index = weft__trainer_next_batch(p->t, &p->progress);
    return index;
}

static void finish_batches(pipeline *p)
{
    for (; p->batch < p->t->o.accumulate; p->batch++) weft__trainer_next_batch(p->t, &p->progress);
}

static double *numbers_of(const pipeline *p, uint32_t k)
{
    const uint32_t number = weft__ranks_batch(p->t, weft__ranks_batches(p->t), p->t->place.rank, k);
    return &p->numbers[BATCH_NUMBERS * (size_t)number];
}

static trainer_graph *graph_of(const pipeline *p, uint32_t k, size_t index)
{
    weft_trainer *t = p->t;
    const graph_kind kind = k + 1 == t->sums.n ? GRAPH_UPDATE : GRAPH_SUM;
    return weft__trainer_graph_in_lane(t, kind, shape_at(&t->batches, index), 0,
                                       (int)(k % (uint32_t)p->lanes));
}

/* Learns the weights of this process's batches, and plans what they need. */
static weft_status weigh_batches(pipeline *p)
{
    weft_trainer *t = p->t;
    const weft_trainer_progress begin = p->progress;
    weft_status status = WEFT_OK;
    for (uint32_t k = 0; status == WEFT_OK && k < t->sums.n; k++) {
        const size_t index = advance_to(p, k);
        const trainer_graph *s = graph_of(p, k, index);
        size_t weight = 0;
        status = s ? weft__trainer_graph_fill(t, s, &t->batches, index, &weight) : t->error.status;
        numbers_of(p, k)[BATCH_WEIGHT] = (double)weight;
    }
    finish_batches(p);
    if (p->progress.epoch != begin.epoch) start_epoch(&t->batches, begin.epoch);
    p->progress = begin;
    p->batch = 0;
    return status;
}

static weft_status run_forward(pipeline *p, uint32_t k, trainer_graph **running)
{
    weft_trainer *t = p->t;
    const size_t index = advance_to(p, k);
    trainer_graph *s = graph_of(p, k, index);
    size_t weight = 0;
    running[k % (uint32_t)p->lanes] = s;
    if (!s) return t->error.status;
    weft_status status = weft__trainer_graph_feed(t, s, &t->batches, index, &weight);
    if (status == WEFT_OK)
        status =
            weft__trainer_graph_feed_scalar(t, s, s->old_weight, t->sums.actions[k].adds ? 1 : 0);
    if (status == WEFT_OK)
        status = weft__trainer_graph_feed_scalar(t, s, s->weight, (double)weight);
    if (status == WEFT_OK && s->kind == GRAPH_UPDATE)
        status = weft__trainer_feed_update(t, s, p->spent, p->numbers, p->report);
    p->report->flops += weft_plan_stats_of(s->plan.plan).flops;
    return status == WEFT_OK
               ? weft__trainer_graph_run_forward(t, s, weft__trainer_batch_number(t, k))
               : status;
}

static weft_status run_backward(pipeline *p, uint32_t k, trainer_graph *const *running)
{
    weft_trainer *t = p->t;
    const sum_action *a = &t->sums.actions[k];
    trainer_graph *s = running[k % (uint32_t)p->lanes];
    weft_status status =
        a->store >= 0 ? weft__trainer_move_sums(t, GRAPH_STORE, a->store, p->lanes) : WEFT_OK;
    if (status == WEFT_OK) status = weft__trainer_graph_run(t, s, weft__trainer_batch_number(t, k));
    for (int pop = 1; status == WEFT_OK && s->kind == GRAPH_SUM && pop <= a->pops; pop++)
        status = weft__trainer_move_sums(t, GRAPH_ADD, a->slots - pop, p->lanes);
    if (status == WEFT_OK)
        numbers_of(p, k)[BATCH_LOSS] = weft__trainer_graph_fetch_scalar(s, s->built.loss);
    return status;
}

static weft_status run_batches(pipeline *p, trainer_graph **last)
{
    weft_trainer *t = p->t;
    const uint32_t n = t->sums.n, ahead = (uint32_t)p->lanes - 1;
    trainer_graph **running = calloc((size_t)p->lanes, sizeof *running);
    if (!running) return weft__trainer_no_memory(t);
    weft_status status = WEFT_OK;
    for (uint32_t k = 0; status == WEFT_OK && k < n + ahead; k++) {
        if (k < n) status = run_forward(p, k, running);
        if (status == WEFT_OK && k >= ahead) status = run_backward(p, k - ahead, running);
    }
    finish_batches(p);
    *last = running[(n - 1) % (uint32_t)p->lanes];
    free(running);
    return status;
}

weft_status weft__pipeline_update(weft_trainer *t, weft_trainer_progress *progress, rank_report *r,
                                  double *numbers, weft_update_report *report, trainer_graph **last)
{
    const weft_ranks stage = weft__mesh_ranks(&t->processes->mesh, MESH_STAGES);
    pipeline p = {.t = t, .numbers = numbers, .report = report, .progress = *progress};
    const uint32_t ahead = (uint32_t)(stage.size - 1 - stage.rank);
    p.lanes = 1 + (int)(ahead < t->sums.n ? ahead : t->sums.n - 1);
    if (!weft__trainer_stopped(t)) weigh_batches(&p);
    weft_status status = weft__ranks_agree(t, r, numbers, weft__ranks_batches(t), BATCH_NUMBERS);
    if (status != WEFT_OK) return status;
    p.spent = r->spent;
    status = run_batches(&p, last);
    *progress = p.progress;
    /* The others wait for this process in the middle of their passes, unless all of them have found
     * that the norm or the loss of the update is not finite. */
    if (status != WEFT_OK && status != WEFT_NOT_FINITE) {
        weft__mesh_fail(&t->processes->mesh, &t->error);
        return status;
    }
    return weft__ranks_agree(t, r, numbers, weft__ranks_batches(t), BATCH_NUMBERS);
}
