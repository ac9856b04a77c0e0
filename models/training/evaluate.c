/* Evaluations of a trainer, and the model that they read. */
#include "trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Brings the store of averages, if there is one, up to date. Its states are those of an evaluation.
 */
static weft_status update_averages(weft_trainer *t, weft_batch_shape shape)
{
    if (!t->averaged) return WEFT_OK;
    weft__trainer_graph_for(t, GRAPH_EVALUATE, shape, 0);
    if (weft__checkpoint_agree(t) != WEFT_OK) return t->error.status;
    return weft__checkpoint_copy_model(t, t->averaged);
}

/* Evaluates one batch. `numbers` NULL: the result does not count. */
static weft_status evaluate_batch(weft_trainer *t, const weft_batch_source *batches, uint32_t i,
                                  double *numbers)
{
    size_t weight = 0;
    trainer_graph *s = weft__trainer_graph_for(t, GRAPH_EVALUATE, shape_at(batches, i), 0);
    weft_status status = s ? weft__trainer_graph_feed(t, s, batches, i, &weight) : t->error.status;
    if (status == WEFT_OK) status = weft__trainer_graph_run(t, s, 0);
    if (status != WEFT_OK || !numbers) return status;
    numbers += (size_t)EVALUATED_NUMBERS * i;
    numbers[BATCH_WEIGHT] = (double)weight;
    numbers[BATCH_LOSS] = weft__trainer_graph_fetch_scalar(s, s->metric);
    numbers[BATCH_ACCURACY] =
        weft_is_value(s->accuracy) ? weft__trainer_graph_fetch_scalar(s, s->accuracy) : NAN;
    return WEFT_OK;
}

/* Evaluates this process's batches of n. If the processes gather parameters for it, all evaluate
 * the same number of batches, some of them the first one again. */
static weft_status evaluate_own(weft_trainer *t, const weft_batch_source *batches, uint32_t n,
                                double *numbers)
{
    const uint32_t size = (uint32_t)t->place.size;
    const weft_sum_node own = weft__rank_batches(n, t->place.rank, t->place.size);
    const uint32_t most = t->place.has_parts ? (n + size - 1) / size : own.end - own.first;
    weft_status status = WEFT_OK;
    for (uint32_t k = 0; status == WEFT_OK && k < most; k++) {
        const bool counts = own.first + k < own.end;
        if (!t->place.has_parts && weft__trainer_stopped(t)) return t->error.status;
        status = evaluate_batch(t, batches, counts ? own.first + k : 0, counts ? numbers : NULL);
    }
    if (status != WEFT_OK && t->place.has_parts) t->hooks->fail(t);
    return status;
}

static weft_status evaluate_all(weft_trainer *t, const weft_batch_source *batches, size_t limit,
                                double *metric, size_t *weight)
{
    const size_t count = limit && limit < batches->batches ? limit : batches->batches;
    const uint32_t n = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
    rank_report r = {.checks = n};
    double sum = 0, right = 0;
    double *numbers = calloc((size_t)n + 1, EVALUATED_NUMBERS * sizeof *numbers);
    if (!numbers) return weft__ranks_no_memory(t);
    if (n && update_averages(t, shape_at(batches, 0)) == WEFT_OK)
        evaluate_own(t, batches, n, numbers);
    weft_status status =
        weft__ranks_agree(t, &r, numbers, (rank_batches){n, false}, EVALUATED_NUMBERS);
    for (uint32_t i = 0; status == WEFT_OK && i < n; i++) {
        const double *batch = &numbers[EVALUATED_NUMBERS * (size_t)i];
        sum += batch[BATCH_WEIGHT] * batch[BATCH_LOSS];
        right += batch[BATCH_WEIGHT] * batch[BATCH_ACCURACY];
        *weight += (size_t)batch[BATCH_WEIGHT];
    }
    free(numbers);
    if (status == WEFT_OK) *metric = *weight ? sum / (double)*weight : NAN;
    t->accuracy = status == WEFT_OK && *weight ? right / (double)*weight : NAN;
    return status;
}

weft_status weft_trainer_evaluate(weft_trainer *trainer, const weft_batch_source *batches,
                                  size_t limit, double *metric, size_t *weight, weft_error *error)
{
    weft_trainer *t = trainer;
    double mean = NAN;
    size_t sum = 0;
    if (!weft__trainer_begin(t, error)) return WEFT_BAD_ARGUMENT;
    t->updated = NULL;
    if (!batches || !batches->shape || !batches->fill || !metric)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_trainer_evaluate",
                              "the batches or the metric are NULL");
    if (batches->n_inputs != t->batches.n_inputs ||
        memcmp(batches->input_dtypes, t->batches.input_dtypes,
               batches->n_inputs * sizeof *batches->input_dtypes) != 0)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_trainer_evaluate",
                              "the batches fill inputs other than those in training");
    start_epoch(batches, 0);
    const weft_status status = evaluate_all(t, batches, limit, &mean, &sum);
    if (batches->context == t->batches.context) start_epoch(&t->batches, t->progress.epoch);
    *metric = mean;
    if (weight) *weight = sum;
    return weft__trainer_end(t, status, error);
}

double weft_trainer_accuracy(const weft_trainer *trainer)
{
    return trainer ? trainer->accuracy : NAN;
}

static const weft_params *current_model(weft_trainer *t)
{
    if (t->place.has_parts) {
        if (!t->whole_store) t->whole_store = weft__trainer_store(t);
        return t->hooks->gather_averaged(t, t->whole_store, true) == WEFT_OK ? t->whole_store
                                                                             : NULL;
    }
    if (!t->averaged) return t->params;
    return update_averages(t, shape_at(&t->batches, 0)) == WEFT_OK ? t->averaged : NULL;
}

const weft_params *weft_trainer_model(weft_trainer *trainer, weft_error *error)
{
    if (!weft__trainer_begin(trainer, error)) return NULL;
    const weft_params *model = current_model(trainer);
    weft_error_copy(error, &trainer->error);
    return model;
}

bool weft_trainer_judge(weft_trainer *trainer, double nll)
{
    if (!trainer) return false;
    weft_trainer_progress *s = &trainer->progress;
    s->judged_update = s->updates;
    bool best = nll < s->best || (isnan(s->best) && !isnan(nll));
    if (best) {
        s->best = nll;
        s->best_update = s->updates;
        s->stale = 0;
    } else {
        s->stale++;
    }
    return best;
}
