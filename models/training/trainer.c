/* The trainer: setup, updates, and the progress of a training. */
#include "trainer.h"

#include "base/arena.h"
#include "quantize/quantize.h"
#include "base/vmath_pow.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_averages(const weft_params *params)
{
    for (size_t i = 0; i < weft_params_count(params); i++)
        if (weft_params_key(params, i).kind == WEFT_STATE_AVERAGE) return true;
    return false;
}

/* Finds the parameter of an average: the same piece of it (ZeRO, stage 3), or all that this process
 * has of it. Sets *first to the element of it with which the average begins. */
static bool find_param(const weft_params *params, weft_state_key key, weft_tensor *param,
                       int64_t *first)
{
    char name[WEFT_STATE_KEY_BYTES];
    key.kind = WEFT_STATE_MODEL;
    *first = 0;
    if (weft_params_find(params, weft_state_key_write(&key, name, sizeof name), param)) return true;
    *first = key.piece.first;
    key.is_piece = false;
    return weft_params_find(params, weft_state_key_write(&key, name, sizeof name), param);
}

/* Averages that are new in a resumed training begin with its parameters. */
static void begin_averages(weft_trainer *t)
{
    for (size_t i = 0; i < weft_params_count(t->params); i++) {
        const weft_state_key key = weft_params_key(t->params, i);
        weft_tensor from, into;
        int64_t first;
        if (key.kind != WEFT_STATE_AVERAGE || !find_param(t->params, key, &from, &first)) continue;
        weft_params_find(t->params, weft_params_name(t->params, i), &into);
        memcpy(into.data, (char *)from.data + (size_t)first * weft_dtype_bytes(from.dtype),
               weft_tensor_bytes(into.dtype, into.shape));
    }
}

/* Plans the first batch, so that errors of the model show before the first update. */
static weft_status plan_first(weft_trainer *t)
{
    weft_batch_shape shape = shape_at(&t->batches, 0);
    if (t->sums.n > 1 && !weft__trainer_graph_for(t, GRAPH_SUM, shape, 0)) return t->error.status;
    return weft__trainer_graph_for(t, GRAPH_UPDATE, shape, 0) ? WEFT_OK : t->error.status;
}

/* Copies the optimiser's groups and texts, since every later graph reads them. */
static weft_status copy_optimizer(weft_trainer *t)
{
    weft_optimizer *o = &t->o.optimizer;
    size_t n = o->groups ? o->n_groups : 0, bytes = o->no_decay ? strlen(o->no_decay) + 1 : 0;
    for (size_t i = 0; i < n; i++) bytes += o->groups[i].names ? strlen(o->groups[i].names) + 1 : 0;
    t->groups = malloc(n * sizeof *t->groups + bytes + 1);
    if (!t->groups) return weft__trainer_no_memory(t);
    char *text = (char *)(t->groups + n);
    if (o->no_decay) {
        size_t length = strlen(o->no_decay) + 1;
        o->no_decay = memcpy(text, o->no_decay, length);
        text += length;
    }
    for (size_t i = 0; i < n; i++) {
        t->groups[i] = o->groups[i];
        if (!t->groups[i].names) continue;
        size_t length = strlen(t->groups[i].names) + 1;
        t->groups[i].names = memcpy(text, t->groups[i].names, length);
        text += length;
    }
    if (o->groups) o->groups = t->groups;
    o->name = NULL; /* WEFT_OPTIMIZER_STATES */
    o->guard = true;
    return WEFT_OK;
}

static weft_status open_processes(weft_trainer *t)
{
    const struct weft_trainer_processes *processes = t->o.processes;
    t->place = (trainer_place){.size = 1, .world = {0, 0, 1}, .tensor = {0, 0, 1}};
    if (!processes) return WEFT_OK;
    if (!hooks_of(processes))
        return weft__trainer_fail(t, WEFT_BAD_ARGUMENT, "trainer",
                                  "its processes must be those of weft_trainer_processes_of");
    const weft_status status = hooks_of(processes)->open(t);
    t->o.processes = NULL;
    return status;
}

static weft_status check_options(weft_trainer *t)
{
    weft_trainer_options *o = &t->o;
    if (!o->accumulate) o->accumulate = 1;
    if (copy_optimizer(t) != WEFT_OK) return t->error.status;
    if (!(o->schedule.peak > 0))
        return weft__trainer_fail(t, WEFT_BAD_ARGUMENT, "trainer",
                                  "schedule.peak, the learning rate, is required");
    if (o->schedule.kind == WEFT_SCHEDULE_EXPONENTIAL && !(o->schedule.floor > 0))
        return weft__trainer_fail(t, WEFT_BAD_ARGUMENT, "trainer",
                                  "schedule.floor must be above 0 for an exponential decay");
    if (!(o->ema >= 0 && o->ema < 1))
        return weft__trainer_fail(t, WEFT_BAD_ARGUMENT, "trainer",
                                  "the decay of the average must be at least 0 and below 1");
    if (open_processes(t) != WEFT_OK) return t->error.status;
    const rank_batches all = weft__ranks_batches(t);
    const uint32_t count = weft__ranks_count(t, all, t->place.rank);
    const weft_sum_node own = weft__rank_batches(all.total, t->place.rank, t->place.size);
    /* If batches are dealt in turn, each round is summed among the processes first, so a process
     * sums rounds. */
    if (!(all.in_turn ? weft__sums_schedule(&t->sums, count, (weft_sum_node){0, count})
                      : weft__sums_schedule(&t->sums, all.total, own)))
        return weft__trainer_no_memory(t);
    t->numbers = calloc(o->accumulate, BATCH_NUMBERS * sizeof *t->numbers);
    if (!t->numbers) return weft__trainer_no_memory(t);
    return weft__checkpoint_describe(t);
}

weft_trainer *weft__trainer_unbound(const weft_trainer_options *options, weft_error *error)
{
    weft_error local;
    if (!error) error = &local;
    memset(error, 0, sizeof *error);
    if (!options || !options->builder.build || !options->builder.name) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "trainer",
                       "a trainer needs a model, batches and a parameter store");
        return NULL;
    }
    weft_trainer *t = calloc(1, sizeof *t);
    if (!t) {
        weft_error_set(error, WEFT_NO_MEMORY, "trainer", "out of memory");
        return NULL;
    }
    t->o = *options;
    t->accuracy = NAN;
    if (weft__plans_init(&t->plans, &options->session, "trainer", &t->error) == WEFT_OK) {
        t->plans.session.seed = options->seed;
        if (check_options(t) == WEFT_OK) return t;
    }
    *error = t->error;
    weft_trainer_free(t);
    return NULL;
}

/* Resumes the training from the store's metadata. */
static weft_status bind_store(weft_trainer *t)
{
    weft_trainer_options *o = &t->o;
    weft__checkpoint_resume(t);
    if (t->error.status == WEFT_OK) weft__quantized_refuse(t->params, "the checkpoint", &t->error);
    if (t->error.status == WEFT_OK && o->base) weft_params_share(t->params, o->base, &t->error);
    o->source_name = o->target_name = NULL;
    if (weft__checkpoint_agree(t) != WEFT_OK || (t->hooks && t->hooks->join(t) != WEFT_OK))
        return t->error.status;
    if (o->base && t->place.has_parts)
        return weft__trainer_fail(t, WEFT_BAD_ARGUMENT, "trainer",
                                  "a model next to which adapters are trained cannot be divided "
                                  "among processes");
    if (o->ema > 0) t->averaged = weft__trainer_model_store(t);
    t->averages = has_averages(t->params);
    bool averages = t->averages;
    if (t->hooks)
        t->hooks->divide(t);
    else
        start_epoch(&t->batches, t->progress.epoch);
    if (t->error.status == WEFT_OK && plan_first(t) == WEFT_OK &&
        weft__pieces_load(t, &averages) == WEFT_OK && t->progress.updates && !averages)
        begin_averages(t);
    o->checkpoint = NULL;
    return weft__checkpoint_agree(t);
}

weft_trainer *weft_trainer_new(const weft_trainer_options *options,
                               const weft_batch_source *batches, weft_params *params,
                               weft_error *error)
{
    weft_error_clear(error);
    if (!options || !batches || !batches->batches || !batches->shape || !batches->fill || !params) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "trainer",
                       "a trainer needs a model, batches and a parameter store");
        return NULL;
    }
    weft_trainer *t = weft__trainer_unbound(options, error);
    if (!t) {
        /* Options may be wrong on this process only; the others wait for it. */
        const struct weft_trainer_processes *processes = options->processes;
        if (processes && hooks_of(processes)) hooks_of(processes)->refuse(processes);
        return NULL;
    }
    t->batches = *batches;
    t->params = params;
    if (bind_store(t) == WEFT_OK) return t;
    weft_error_copy(error, &t->error);
    weft_trainer_free(t);
    return NULL;
}

void weft_trainer_free(weft_trainer *trainer)
{
    if (!trainer) return;
    for (size_t i = 0; i < WEFT_BUILT_VALUES; i++)
        weft__allocator_give(&trainer->plans.allocator, trainer->inputs[i],
                             trainer->input_capacity[i]);
    weft__plans_free(&trainer->plans);
    if (trainer->hooks) trainer->hooks->close(trainer);
    weft__sums_free(&trainer->sums);
    free(trainer->numbers);
    free(trainer->groups);
    weft_params_free(trainer->averaged);
    weft_params_free(trainer->whole_store);
    free(trainer);
}

weft_trainer_progress weft_trainer_progress_of(const weft_trainer *trainer)
{
    return trainer ? trainer->progress : (weft_trainer_progress){0};
}

size_t weft__trainer_next_batch(weft_trainer *t, weft_trainer_progress *s)
{
    if (s->batch >= t->batches.batches) {
        s->batch = 0;
        start_epoch(&t->batches, ++s->epoch);
    }
    return (size_t)s->batch++;
}

static weft_status feed_rates(weft_trainer *t, trainer_graph *s, double spent,
                              weft_update_report *report)
{
    double steps = (double)t->progress.updates;
    report->lr = weft_schedule_rate(&t->o.schedule, t->progress.updates, spent);
    weft_status status = weft__trainer_graph_feed_scalar(t, s, s->lr, report->lr);
    if (status == WEFT_OK)
        status = weft__trainer_graph_feed_scalar(t, s, s->ema_decay,
                                                 fmin(t->o.ema, steps / (steps + 10)));
    return status;
}

bool weft__trainer_stopped(weft_trainer *t)
{
    if (!t->o.stop || !t->o.stop(t->o.stop_context)) return false;
    weft__trainer_fail(t, WEFT_CANCELLED, "trainer", "stopped on request");
    return true;
}

uint64_t weft__trainer_batch_number(const weft_trainer *t, uint32_t k)
{
    return t->progress.updates * t->o.accumulate +
           weft__ranks_batch(t, weft__ranks_batches(t), t->place.rank, k);
}

weft_status weft__trainer_move_sums(weft_trainer *t, graph_kind kind, int slot, int lane)
{
    trainer_graph *s = weft__trainer_graph_in_lane(t, kind, shape_at(&t->batches, 0), slot, lane);
    return s ? weft__trainer_graph_run(t, s, 0) : t->error.status;
}

/* Feeds the process's k-th batch of an update. */
static weft_status feed_batch(weft_trainer *t, uint32_t k, size_t index, double *numbers,
                              weft_update_report *report, trainer_graph **last)
{
    const sum_action *a = &t->sums.actions[k];
    const bool ends = k + 1 == t->sums.n;
    size_t weight = 0;
    if ((t->o.accumulate > 1 && weft__trainer_stopped(t)) ||
        (a->store >= 0 && weft__trainer_move_sums(t, GRAPH_STORE, a->store, 0) != WEFT_OK))
        return t->error.status;
    trainer_graph *s = weft__trainer_graph_for(t, ends ? GRAPH_UPDATE : GRAPH_SUM,
                                               shape_at(&t->batches, index), 0);
    if (!s) return t->error.status;
    weft_status status = weft__trainer_graph_feed(t, s, &t->batches, index, &weight);
    if (status == WEFT_OK)
        status = weft__trainer_graph_feed_scalar(t, s, s->old_weight, a->adds ? 1 : 0);
    if (status == WEFT_OK)
        status = weft__trainer_graph_feed_scalar(t, s, s->weight, (double)weight);
    numbers[BATCH_WEIGHT] = (double)weight;
    report->flops += weft_plan_stats_of(s->plan.plan).flops;
    if (ends) *last = s;
    return status;
}

/* Runs the process's k-th batch, which is fed, and adds it to the sums. */
static weft_status sum_batch(weft_trainer *t, uint32_t k, uint32_t i, size_t index, double *numbers)
{
    const sum_action *a = &t->sums.actions[k];
    trainer_graph *s = weft__trainer_graph_for(t, GRAPH_SUM, shape_at(&t->batches, index), 0);
    weft_status status =
        s ? weft__trainer_graph_run(t, s, t->progress.updates * t->o.accumulate + i)
          : t->error.status;
    /* Moving sums runs another session in the arena, so the loss is read before it. */
    if (status == WEFT_OK) numbers[BATCH_LOSS] = weft__trainer_graph_fetch_scalar(s, s->built.loss);
    for (int pop = 1; status == WEFT_OK && pop <= a->pops; pop++)
        status = weft__trainer_move_sums(t, GRAPH_ADD, a->slots - pop, 0);
    return status;
}

weft_status weft__trainer_feed_update(weft_trainer *t, trainer_graph *s, double spent,
                                      const double *numbers, weft_update_report *report)
{
    double weight = 0;
    for (uint32_t i = 0; i < t->o.accumulate; i++)
        weight += numbers[BATCH_NUMBERS * i + BATCH_WEIGHT];
    report->tokens = (size_t)weight;
    weft_status status = feed_rates(t, s, spent, report);
    if (status == WEFT_OK)
        status = weft__trainer_graph_feed_scalar(t, s, s->inverse, 1 / (weight ? weight : 1));
    return status;
}

/* Runs the process's last batch and the update, once the weights of all batches are known. */
static weft_status run_update(weft_trainer *t, trainer_graph *s, double spent,
                              const double *numbers, weft_update_report *report)
{
    const weft_status status = weft__trainer_feed_update(t, s, spent, numbers, report);
    return status == WEFT_OK
               ? weft__trainer_graph_run(t, s, weft__trainer_batch_number(t, t->sums.n - 1))
               : status;
}

/* Computes this process's batches of an update up to the last, which it feeds. All processes go
 * through all batches. False if they have agreed that one of them failed. */
static bool compute_batches(weft_trainer *t, weft_trainer_progress *progress, double *numbers,
                            weft_update_report *report, trainer_graph **last)
{
    const rank_batches all = weft__ranks_batches(t);
    uint32_t k = 0;
    for (uint32_t i = 0; i < t->o.accumulate; i++) {
        const size_t index = weft__trainer_next_batch(t, progress);
        if (k == t->sums.n || weft__ranks_batch(t, all, t->place.rank, k) != i) continue;
        double *own = &numbers[BATCH_NUMBERS * (size_t)i];
        if (t->error.status == WEFT_OK) feed_batch(t, k, index, own, report, last);
        const bool sums = ++k < t->sums.n;
        if (sums && all.in_turn && weft__checkpoint_agree(t) != WEFT_OK) return false;
        if (sums && t->error.status == WEFT_OK) sum_batch(t, k - 1, i, index, own);
    }
    return true;
}

/* Computes the batches, agrees on their weights, and runs the last one with the update. */
static weft_status update_whole(weft_trainer *t, weft_trainer_progress *progress, rank_report *r,
                                double *numbers, weft_update_report *report, trainer_graph **last)
{
    const uint32_t own_last =
        weft__ranks_batch(t, weft__ranks_batches(t), t->place.rank, t->sums.n - 1);
    /* In turn, the sums of a batch are added up among the processes at once, so all must be there.
     */
    if (!compute_batches(t, progress, numbers, report, last)) return t->error.status;
    weft_status status = weft__ranks_agree(t, r, numbers, weft__ranks_batches(t), BATCH_NUMBERS);
    if (status != WEFT_OK) return status;
    if (run_update(t, *last, r->spent, numbers, report) == WEFT_OK)
        numbers[BATCH_NUMBERS * own_last + BATCH_LOSS] =
            weft__trainer_graph_fetch_scalar(*last, (*last)->built.loss);
    if (t->error.status == WEFT_PEER) return WEFT_PEER;
    return weft__ranks_agree(t, r, numbers, weft__ranks_batches(t), BATCH_NUMBERS);
}

/* One update. If one process fails, all fail. */
static weft_status make_update(weft_trainer *t, weft_trainer_progress *progress, double spent,
                               double *numbers, weft_update_report *report)
{
    rank_report r = {.spent = spent, .checks = progress->updates};
    trainer_graph *last = NULL;
    const weft_status status = t->place.divided
                                   ? t->hooks->update(t, progress, &r, numbers, report, &last)
                                   : update_whole(t, progress, &r, numbers, report, &last);
    if (status != WEFT_OK) return status;
    for (uint32_t i = 0; i < t->o.accumulate; i++) {
        const double *batch = &numbers[BATCH_NUMBERS * (size_t)i];
        report->loss +=
            t->o.accumulate > 1 ? batch[BATCH_LOSS] * batch[BATCH_WEIGHT] : batch[BATCH_LOSS];
    }
    if (t->o.accumulate > 1) report->loss /= report->tokens ? (double)report->tokens : 1;
    report->norm = weft__trainer_graph_fetch_scalar(last, last->norm);
    t->updated = last;
    return WEFT_OK;
}

static weft_traffic traffic_of(const weft_trainer *t)
{
    return t->hooks ? t->hooks->traffic(t) : (weft_traffic){0};
}

static void count_traffic(weft_traffic *step, const weft_traffic *before, const weft_traffic *now)
{
    *step = (weft_traffic){.exchanges = now->exchanges - before->exchanges,
                           .sent_bytes = now->sent_bytes - before->sent_bytes,
                           .in_flight = now->in_flight - before->in_flight,
                           .waited = now->waited - before->waited};
}

/* The exponential mean of n losses, given that of the first n - 1. It begins at zero and is divided
 * by 1 - decay^n, the sum of the weights (Kingma & Ba 2015, section 3); here both are one step. */
static double smooth(double mean, double loss, uint64_t n)
{
    const double decay = 0.98, weight = (1 - decay) / (1 - vm_pow_f64(decay, (double)n));
    return isnan(mean) ? loss : mean + weight * (loss - mean);
}

weft_status weft_trainer_update(weft_trainer *trainer, double spent, weft_update_report *report,
                                weft_error *error)
{
    weft_trainer *t = trainer;
    if (!weft__trainer_begin(t, error)) return WEFT_BAD_ARGUMENT;
    weft_update_report r = {0};
    weft_trainer_progress s = t->progress;
    t->planned = false;
    t->updated = NULL;
    memset(t->numbers, 0, (size_t)t->o.accumulate * BATCH_NUMBERS * sizeof *t->numbers);
    const weft_traffic before = traffic_of(t);
    weft_status status = make_update(t, &s, spent, t->numbers, &r);
    const weft_traffic after = traffic_of(t);
    count_traffic(&r.traffic, &before, &after);
    r.planned = t->planned;
    if (report) *report = r;
    if (status != WEFT_OK) {
        if (s.epoch != t->progress.epoch) start_epoch(&t->batches, t->progress.epoch);
        return weft__trainer_end(t, status, error);
    }
    s.updates++;
    s.smoothed = smooth(s.smoothed, r.loss, s.updates);
    t->progress = s;
    return WEFT_OK;
}
