/* Messages between the processes of a training, besides the exchanges of their graphs. All
 * processes take the same decisions, so that none waits for another that has left. */
#include "ranks.h"

#include "base/hash.h"

#include <weft/op.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes the error of a rank this one's. */
static weft_status take_error(weft_trainer *t, int r, const weft_error *e)
{
    if (r == t->place.world.rank) return weft_error_copy(&t->error, e);
    if (e->status == WEFT_CANCELLED)
        return weft_error_set(&t->error, WEFT_CANCELLED, e->where, "%s", e->message);
    return weft_error_set(&t->error, WEFT_PEER, "trainer", "rank %d: %s: %s", r, e->where,
                          e->message);
}

/* The first error of a rank, or a difference between ranks. An error that is not WEFT_PEER comes
 * first: others may already know of it. */
static weft_status judge(weft_trainer *t, const char *all, size_t bytes)
{
    const rank_report *first = (const rank_report *)(const void *)all;
    const int size = t->place.world.size;
    rank_report report;
    for (int peers = 0; peers < 2; peers++)
        for (int r = 0; r < size; r++) {
            memcpy(&report, all + (size_t)r * bytes, sizeof report);
            const weft_status status = report.error.status;
            if (status != WEFT_OK && (status == WEFT_PEER) == peers)
                return take_error(t, r, &report.error);
        }
    for (int r = 0; r < size; r++) {
        memcpy(&report, all + (size_t)r * bytes, sizeof report);
        if (report.checks != first->checks)
            return weft_error_set(&t->error, WEFT_PEER, "trainer",
                                  "rank %d is not at the same step as rank 0", r);
    }
    return WEFT_OK;
}

/* Copies the numbers of a rank's batches into its message, or out of it. */
static void move_numbers(const weft_trainer *t, rank_batches dealt, int rank, double *numbers,
                         size_t n, char *message, bool out)
{
    const size_t bytes = n * sizeof *numbers;
    for (uint32_t k = 0; k < weft__ranks_count(t, dealt, rank); k++) {
        double *own = numbers + n * weft__ranks_batch(t, dealt, rank, k);
        char *there = message + sizeof(rank_report) + k * bytes;
        memcpy(out ? (char *)own : there, out ? there : (char *)own, bytes);
    }
}

weft_status weft__ranks_exchange(weft_trainer *t, rank_report *report, double *numbers,
                                 rank_batches dealt, size_t n)
{
    const int size = t->place.world.size;
    report->error = t->error;
    const size_t replicas = (size_t)t->place.size, most = (dealt.total + replicas - 1) / replicas;
    const size_t bytes = sizeof *report + n * most * sizeof *numbers;
    char *sent = calloc((size_t)size + 1, bytes), *all = sent ? sent + bytes : NULL;
    if (!sent) return weft__ranks_no_memory(t);
    memcpy(sent, report, sizeof *report);
    if (n) move_numbers(t, dealt, t->place.rank, numbers, n, sent, false);
    weft_status status =
        weft_communicator_gather(t->processes->o.communicator, sent, bytes, all, &t->error);
    if (status != WEFT_OK && report->error.status != WEFT_OK)
        t->error = report->error; /* which is why the others do not answer */
    if (status == WEFT_OK) status = judge(t, all, bytes);
    /* The last process of a model has its loss. */
    const int model = size / (int)replicas;
    for (int r = model - 1; status == WEFT_OK && n && r < size; r += model)
        move_numbers(t, dealt, r / model, numbers, n, all + (size_t)r * bytes, true);
    if (status == WEFT_OK) report->spent = ((rank_report *)(void *)all)->spent;
    free(sent);
    return t->error.status;
}

/* ---- The same training everywhere ---- */

/* Counts the changes of the arithmetic (docs/arithmetic.md). Ranks of one version and arithmetic
 * compute the same bits on any processor, by any compiler. */
enum { ARITHMETIC = 2 };

/* What must be equal on all ranks, as hashes, and its words in messages. */
enum { SAME_VERSION, SAME_MODEL, SAME_OPTIONS, SAME_DATA, SAME_STATE, SAMES };
static const char *const same_words[SAMES] = {
    "a different version of weft", "a different model or model options",
    "different training options", "different data", "different parameters or a different step"};

static uint64_t hash_environment(uint64_t hash, const char *name)
{
    const char *text = getenv(name);
    return text ? hash_bytes(hash, text, strlen(text) + 1) : hash_number(hash, 0);
}

static uint64_t hash_options(const weft_trainer *t)
{
    const weft_trainer_options *o = &t->o;
    const weft_trainer_processes *processes = &t->processes->o;
    const weft_optimizer *p = &o->optimizer;
    const double numbers[] = {p->sgd.momentum,
                              p->sgd.dampening,
                              p->rms.alpha,
                              p->rms.eps,
                              p->rms.momentum,
                              p->rms.weight_decay,
                              p->rms.centered,
                              p->sgd.weight_decay,
                              p->sgd.nesterov,
                              p->adam.beta1,
                              p->adam.beta2,
                              p->adam.eps,
                              p->max_norm,
                              p->adam.weight_decay,
                              (double)p->kind,
                              o->schedule.peak,
                              o->schedule.floor,
                              (double)o->schedule.kind,
                              o->ema};
    uint64_t hash = hash_bytes(HASH_START, numbers, sizeof numbers);
    hash = hash_number(hash, o->schedule.warmup);
    hash = hash_number(hash, o->schedule.total);
    hash = hash_number(hash, o->accumulate);
    hash = hash_number(hash, processes->bucket_bytes);
    hash = hash_number(hash, (uint64_t)processes->zero);
    hash = hash_number(hash, (uint64_t)processes->tensor);
    hash = hash_number(hash, (uint64_t)processes->stages);
    hash = hash_environment(hash, "WEFT_GEMM");
    hash = hash_environment(hash, "WEFT_SKIP");
    hash = hash_number(hash, o->seed);
    if (p->no_decay) hash = hash_bytes(hash, p->no_decay, strlen(p->no_decay));
    for (size_t i = 0; p->groups && i < p->n_groups; i++) {
        const double group[] = {p->groups[i].lr_scale, p->groups[i].weight_decay,
                                p->groups[i].frozen};
        hash = hash_bytes(hash, group, sizeof group);
        const char *names = p->groups[i].names ? p->groups[i].names : "";
        hash = hash_bytes(hash, names, strlen(names));
    }
    return hash;
}

static uint64_t hash_state(const weft_trainer *t)
{
    uint64_t hash = hash_number(HASH_START, t->progress.updates);
    for (size_t i = 0; i < weft_params_count(t->params); i++) {
        const char *name = weft_params_name(t->params, i);
        weft_tensor tensor;
        if (weft_params_key(t->params, i).kind != WEFT_STATE_MODEL ||
            !weft_params_find(t->params, name, &tensor))
            continue;
        hash = hash_bytes(hash, name, strlen(name));
        hash = hash_bytes(hash, tensor.data, weft_tensor_bytes(tensor.dtype, tensor.shape));
    }
    return hash;
}

weft_status weft__ranks_compare(weft_trainer *t)
{
    weft_communicator *c = t->processes->o.communicator;
    const weft_data_hashes *data = &t->batches.hashes;
    const uint64_t batches[] = {data->source, data->target, data->batches, t->batches.batches};
    uint64_t own[SAMES], *all = malloc((size_t)c->size * sizeof own);
    if (!all) return weft__ranks_no_memory(t);
    own[SAME_VERSION] = hash_bytes(HASH_START, WEFT_VERSION, strlen(WEFT_VERSION));
    own[SAME_VERSION] = hash_number(own[SAME_VERSION], ARITHMETIC);
    own[SAME_MODEL] = hash_bytes(HASH_START, t->o.builder.name, strlen(t->o.builder.name) + 1);
    own[SAME_MODEL] = hash_bytes(own[SAME_MODEL], t->options, strlen(t->options));
    own[SAME_OPTIONS] = hash_options(t);
    own[SAME_DATA] = hash_bytes(HASH_START, batches, sizeof batches);
    own[SAME_STATE] = hash_state(t);
    weft_status status = weft_communicator_gather(c, own, sizeof own, all, &t->error);
    for (int r = 1; status == WEFT_OK && r < c->size; r++)
        for (int i = 0; status == WEFT_OK && i < SAMES; i++)
            if (all[r * SAMES + i] != all[i])
                status = weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "trainer",
                                        "rank %d has %s than rank 0", r, same_words[i]);
    free(all);
    return status;
}
