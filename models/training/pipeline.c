/* The update of a divided model.
 *
 * Several forward passes are pending, each in a lane of its own; each stops where the gradients of
 * the next stage arrive. The process of stage p of S runs S - 1 - p forward passes ahead, and then
 * alternates forward and backward passes, "one forward, one backward" (Narayanan et al. 2021). So
 * it retains the activations of at most S - p batches. The last batch needs the weights of all
 * batches, so the processes exchange weights first. */
#include "trainer.h"

#include <stdlib.h>

typedef struct pipeline {
    weft_trainer *t;
    double *numbers;
    weft_step_report *report;
    weft_trainer_state state; /* walks over the batches */
    uint32_t batch;           /* the next of the update */
    double share;
    int lanes;
} pipeline;

/* The index of this process's k-th batch, which is the next one. */
static size_t walk_to(pipeline *p, uint32_t k)
{
    const uint32_t number =
        weft__ranks_batch(p->t, weft__ranks_share(p->t), weft__ranks_own(p->t), k);
    size_t index = 0;
    for (; p->batch <= number; p->batch++) index = weft__trainer_next_batch(p->t, &p->state);
    return index;
}

static void walk_to_end(pipeline *p)
{
    for (; p->batch < p->t->o.accumulate; p->batch++) weft__trainer_next_batch(p->t, &p->state);
}

static double *numbers_of(const pipeline *p, uint32_t k)
{
    const uint32_t number =
        weft__ranks_batch(p->t, weft__ranks_share(p->t), weft__ranks_own(p->t), k);
    return &p->numbers[BATCH_NUMBERS * (size_t)number];
}

static train_step *step_of(const pipeline *p, uint32_t k, size_t index)
{
    weft_trainer *t = p->t;
    const step_kind kind = k + 1 == t->sums.n ? STEP_UPDATE : STEP_SUM;
    return weft__step_in_lane(t, kind, shape_at(&t->batches, index), 0,
                              (int)(k % (uint32_t)p->lanes));
}

/* Learns the weights of this process's batches, and plans what they need. */
static weft_status weigh_batches(pipeline *p)
{
    weft_trainer *t = p->t;
    const weft_trainer_state begin = p->state;
    weft_status status = WEFT_OK;
    for (uint32_t k = 0; status == WEFT_OK && k < t->sums.n; k++) {
        const size_t index = walk_to(p, k);
        const train_step *s = step_of(p, k, index);
        size_t weight = 0;
        status = s ? weft__step_fill(t, s, &t->batches, index, &weight) : t->error.status;
        numbers_of(p, k)[BATCH_WEIGHT] = (double)weight;
    }
    walk_to_end(p);
    if (p->state.epoch != begin.epoch) start_epoch(&t->batches, begin.epoch);
    p->state = begin;
    p->batch = 0;
    return status;
}

static weft_status run_forward(pipeline *p, uint32_t k, train_step **running)
{
    weft_trainer *t = p->t;
    const size_t index = walk_to(p, k);
    train_step *s = step_of(p, k, index);
    size_t weight = 0;
    running[k % (uint32_t)p->lanes] = s;
    if (!s) return t->error.status;
    weft_status status = weft__step_feed(t, s, &t->batches, index, &weight);
    if (status == WEFT_OK)
        status = weft__step_feed_scalar(t, s, s->old_share, t->sums.actions[k].adds ? 1 : 0);
    if (status == WEFT_OK) status = weft__step_feed_scalar(t, s, s->weight, (double)weight);
    if (status == WEFT_OK && s->kind == STEP_UPDATE)
        status = weft__trainer_feed_update(t, s, p->share, p->numbers, p->report);
    p->report->flops += weft_plan_get_stats(s->plan.plan).flops;
    return status == WEFT_OK ? weft__step_run_forward(t, s, weft__trainer_batch_number(t, k))
                             : status;
}

static weft_status run_backward(pipeline *p, uint32_t k, train_step *const *running)
{
    weft_trainer *t = p->t;
    const sum_action *a = &t->sums.actions[k];
    train_step *s = running[k % (uint32_t)p->lanes];
    weft_status status =
        a->store >= 0 ? weft__trainer_move_sums(t, STEP_STORE, a->store, p->lanes) : WEFT_OK;
    if (status == WEFT_OK) status = weft__step_run(t, s, weft__trainer_batch_number(t, k));
    for (int pop = 1; status == WEFT_OK && s->kind == STEP_SUM && pop <= a->pops; pop++)
        status = weft__trainer_move_sums(t, STEP_ADD, a->slots - pop, p->lanes);
    if (status == WEFT_OK) numbers_of(p, k)[BATCH_LOSS] = weft__step_fetch_scalar(s, s->built.loss);
    return status;
}

static weft_status run_batches(pipeline *p, train_step **last)
{
    weft_trainer *t = p->t;
    const uint32_t n = t->sums.n, ahead = (uint32_t)p->lanes - 1;
    train_step **running = calloc((size_t)p->lanes, sizeof *running);
    if (!running) return weft__trainer_no_memory(t);
    weft_status status = WEFT_OK;
    for (uint32_t k = 0; status == WEFT_OK && k < n + ahead; k++) {
        if (k < n) status = run_forward(p, k, running);
        if (status == WEFT_OK && k >= ahead) status = run_backward(p, k - ahead, running);
    }
    walk_to_end(p);
    *last = running[(n - 1) % (uint32_t)p->lanes];
    free(running);
    return status;
}

weft_status weft__pipeline_update(weft_trainer *t, weft_trainer_state *state, rank_report *r,
                                  double *numbers, weft_step_report *report, train_step **last)
{
    const weft_ranks stage = weft__mesh_ranks(&t->mesh, MESH_STAGES);
    pipeline p = {.t = t, .numbers = numbers, .report = report, .state = *state};
    const uint32_t ahead = (uint32_t)(stage.size - 1 - stage.rank);
    p.lanes = 1 + (int)(ahead < t->sums.n ? ahead : t->sums.n - 1);
    if (!weft__trainer_stopped(t)) weigh_batches(&p);
    weft_status status = weft__ranks_agree(t, r, numbers, weft__ranks_share(t), BATCH_NUMBERS);
    if (status != WEFT_OK) return status;
    p.share = r->share;
    status = run_batches(&p, last);
    *state = p.state;
    /* The others wait for this process in the middle of their passes, unless all of them have found
     * that the norm or the loss of the update is not finite. */
    if (status != WEFT_OK && status != WEFT_NOT_FINITE) weft__mesh_fail(&t->mesh, &t->error);
    return status;
}
