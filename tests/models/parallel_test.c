/* Training on several processes, which are threads here: the same bits on any number of them, the
 * optimiser's states in pieces, failures that all of them notice. */
#include "ranks.h"
#include "tests.h"
#include "token_batches.h"

#include <weft/parallel.h>
#include "sharding.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Training ---- */

typedef struct job {
    weft_trainer_options o;
    weft_trainer_processes processes;
    int steps, threads;
    const char *load, *save; /* checkpoints; NULL: none */
    bool load_all; /* also loads states of a training, which the trainer would read itself */
    int odd_rank;  /* is changed by `change` before its trainer is made; -1: none */
    void (*change)(weft_trainer_options *o, weft_batch_source *source, weft_params *params);
    uint64_t hash[MAX_RANKS];  /* of the parameters, by rank; 0 if ranks have pieces of them */
    uint64_t model[MAX_RANKS]; /* of the averaged parameters */
    double loss[MAX_RANKS], norm[MAX_RANKS], metric[MAX_RANKS];
    size_t state_bytes[MAX_RANKS], sum_bytes[MAX_RANKS]; /* of moments and averages; of sums */
    rank_batches batches;
} job;

/* Adds the bytes of the states of training to state_bytes[0], those of sums to [1]. */
static uint64_t hash_store(const weft_params *params, bool averaged, size_t state_bytes[2])
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < weft_params_count(params); i++) {
        const char *name = weft_params_name(params, i);
        weft_tensor t;
        weft_params_find(params, name, &t);
        const size_t bytes = weft_tensor_bytes(t.dtype, t.shape);
        if (weft_params_key(params, i).kind != WEFT_STATE_MODEL && !averaged) {
            state_bytes[weft_params_key(params, i).kind == WEFT_STATE_SUM] += bytes;
            continue;
        }
        for (size_t k = 0; k < bytes; k++)
            hash = (hash ^ ((unsigned char *)t.data)[k]) * 0x100000001b3u;
    }
    return hash;
}

static void train(rank *r)
{
    job *j = r->shared;
    const int me = r->communicator ? r->communicator->rank : 0;
    weft_trainer_options o = j->o;
    weft_trainer_processes processes = j->processes;
    processes.communicator = r->communicator;
    o.processes = &processes;
    o.session.threads = j->threads;
    weft_params *params = weft_params_new();
    weft_batch_source source = weft_batches_source(j->batches.of[me]);
    const weft_params_filter *only = j->load_all ? NULL : &weft_model_states;
    if (me == j->odd_rank) j->change(&o, &source, params);
    o.checkpoint = j->load;
    if (j->load) weft_params_load_some(params, j->load, only, &r->error);
    weft_trainer *t = weft_trainer_new(&o, &source, params, &r->error);
    weft_update_report report = {0};
    for (int i = 0; t && i < j->steps && r->error.status == WEFT_OK; i++)
        weft_trainer_update(t, 0, &report, &r->error);
    if (t && j->save && r->error.status == WEFT_OK) weft_trainer_save(t, j->save, &r->error);
    if (t && r->error.status == WEFT_OK) {
        j->loss[me] = report.loss;
        j->norm[me] = report.norm;
        size_t bytes[2] = {0, 0};
        j->hash[me] = hash_store(params, false, bytes);
        if (processes.zero == 3 && r->communicator && r->communicator->size > 1) j->hash[me] = 0;
        j->state_bytes[me] = bytes[0];
        j->sum_bytes[me] = bytes[1];
        weft_trainer_evaluate(t, &source, 0, &j->metric[me], NULL, &r->error);
        const weft_params *model = weft_trainer_model(t, NULL);
        if (model) j->model[me] = hash_store(model, true, NULL);
    }
    weft_trainer_free(t);
    weft_params_free(params);
}

/* Some parameters have several tiles, so that ranks own pieces of them. */
static const char *const sizes[] = {"vocab=2000", "d_model=24",       "heads=2",
                                    "d_ff=40",    "encoder_layers=1", "decoder_layers=1"};

static job make_job(weft_optimizer optimizer, uint32_t accumulate)
{
    job j = {.o = {.builder = test_builder("transformer", sizes, 6),
                   .optimizer = optimizer,
                   .schedule = {.peak = 0.01},
                   .accumulate = accumulate,
                   .ema = 0.9,
                   .seed = 7},
             .processes = weft_trainer_processes_of(NULL),
             .steps = 3,
             .threads = 1,
             .odd_rank = -1,
             .batches = make_rank_batches(true)};
    j.processes.bucket_bytes = 100000;
    return j;
}

static void same_bits(weft_optimizer optimizer, uint32_t accumulate, int zero)
{
    job one = make_job(optimizer, accumulate);
    rank alone = {.shared = &one}, ranks[MAX_RANKS];
    train(&alone);
    CU_ASSERT_EQUAL_FATAL(alone.error.status, WEFT_OK);
    for (int size = 1; size <= MAX_RANKS && size <= (int)accumulate; size += size < 4 ? 1 : 4) {
        if (zero >= 2 && (size == 3 || accumulate % (uint32_t)size)) continue;
        job j = make_job(optimizer, accumulate);
        j.threads = 1 + size % 2;
        j.processes.zero = zero;
        run_ranks(size, train, &j, ranks);
        size_t states = 0;
        expect_good(ranks, size);
        for (int r = 0; r < size; r++) {
            CU_ASSERT_EQUAL(j.hash[r], zero < 3 || size == 1 ? one.hash[0] : 0);
            CU_ASSERT_EQUAL(j.model[r], one.model[0]);
            CU_ASSERT_TRUE(j.loss[r] == one.loss[0] && j.norm[r] == one.norm[0] &&
                           j.metric[r] == one.metric[0]);
            states += j.state_bytes[r];
        }
        /* Together they have the states once, but for the counter of steps. */
        CU_ASSERT_TRUE(states <= one.state_bytes[0] + (size_t)size * sizeof(float));
        /* So have the sums, if the gradients are also in pieces. */
        if (zero == 2) CU_ASSERT_TRUE(j.sum_bytes[0] * (size_t)size <= 2 * one.sum_bytes[0]);
        free_rank_batches(&j.batches);
    }
    free_rank_batches(&one.batches);
}

static void test_rank_bits(void)
{
    weft_optimizer adam = WEFT_ADAMW_DEFAULT;
    weft_optimizer momentum = {.kind = WEFT_SGD, .sgd = {.momentum = 0.9, .nesterov = true}};
    static weft_param_group frozen = {.names = "*.bias", .frozen = true};
    same_bits(adam, 8, 1);
    same_bits(adam, 8, 2);
    same_bits(adam, 8, 3);
    same_bits(adam, 3, 0);
    momentum.groups = &frozen;
    momentum.n_groups = 1;
    same_bits(momentum, 5, 1);
    same_bits(momentum, 12, 2);
    same_bits((weft_optimizer){.max_norm = 0.5}, 6, 2);
    const weft_rms_options rms = {.momentum = 0.5, .weight_decay = 0.01, .centered = true};
    same_bits((weft_optimizer){.kind = WEFT_RMSPROP, .rms = rms, .max_norm = 0.5}, 4, 1);
    same_bits((weft_optimizer){.kind = WEFT_ADAGRAD, .rms = rms, .max_norm = 0.5}, 4, 3);
    job lamb = make_job((weft_optimizer){.kind = WEFT_LAMB}, 4);
    rank ranks[MAX_RANKS];
    run_ranks(2, train, &lamb, ranks);
    CU_ASSERT_EQUAL(ranks[0].error.status, WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(ranks[0].error.message, "on one process, for the norms of its trust ratio"));
    free_rank_batches(&lamb.batches);
}

/* Counts the files in `folder`, and removes them and it. */
static int remove_folder(const char *folder)
{
    char path[512];
    int n = 0;
    DIR *entries = opendir(folder);
    for (const struct dirent *e; entries && (e = readdir(entries));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        unlink(path);
        n++;
    }
    if (entries) closedir(entries);
    rmdir(folder);
    return n;
}

/* One update on some ranks, the rest on others, each with its stage of ZeRO: the bits of an
 * uninterrupted training. */
static void resume_on(const job *whole, int before, int zero_before, int after, int zero_after,
                      bool load_all)
{
    char folder[] = "/tmp/weft-parallel-XXXXXX", path[64];
    rank ranks[MAX_RANKS];
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    job j = make_job(whole->o.optimizer, whole->o.accumulate);
    j.steps = 1;
    j.save = path;
    j.processes.zero = zero_before;
    run_ranks(before, train, &j, ranks);
    expect_good(ranks, before);
    j.load = path;
    j.processes.zero = zero_after;
    j.load_all = load_all;
    j.steps = whole->steps - 1;
    run_ranks(after, train, &j, ranks);
    expect_good(ranks, after);
    for (int r = 0; r < after; r++) CU_ASSERT_EQUAL(j.model[r], whole->model[0]);
    if (zero_after < 3)
        for (int r = 0; r < after; r++) CU_ASSERT_EQUAL(j.hash[r], whole->hash[0]);
    free_rank_batches(&j.batches);
    /* The files of the first ranks are gone, except those of the same name. */
    CU_ASSERT_EQUAL(remove_folder(folder), after > 1 ? 1 + after : 1);
}

static void test_resume(void)
{
    weft_optimizer adam = WEFT_ADAMW_DEFAULT;
    job whole = make_job(adam, 6);
    rank alone = {.shared = &whole};
    train(&alone);
    resume_on(&whole, 1, 1, 3, 1, false);
    resume_on(&whole, 1, 1, 2, 1, true);
    resume_on(&whole, 3, 1, 1, 1, false);
    resume_on(&whole, 2, 1, 5, 1, false);
    resume_on(&whole, 4, 1, 4, 1, true);
    resume_on(&whole, 2, 3, 3, 1, false);
    resume_on(&whole, 3, 1, 2, 3, true);
    resume_on(&whole, 2, 3, 1, 1, true);
    free_rank_batches(&whole.batches);
}

/* A checkpoint without averages is resumed with them: they begin with its parameters, however many
 * processes have them. */
static void test_new_averages(void)
{
    static const int runs[][2] = {{1, 1}, {2, 1}, {2, 2}, {2, 3}, {4, 3}}; /* processes, zero */
    char folder[] = "/tmp/weft-parallel-XXXXXX", path[64];
    rank ranks[MAX_RANKS];
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    job j = make_job(WEFT_ADAM_DEFAULT, 4);
    j.o.ema = 0;
    j.save = path;
    run_ranks(2, train, &j, ranks);
    expect_good(ranks, 2);
    const uint64_t before = j.model[0];
    j.o.ema = 0.9;
    j.load = path;
    j.save = NULL;
    j.steps = 1;
    uint64_t averaged = 0;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        j.processes.zero = runs[i][1];
        run_ranks(runs[i][0], train, &j, ranks);
        expect_good(ranks, runs[i][0]);
        if (!i) averaged = j.model[0];
        CU_ASSERT_EQUAL(j.model[0], averaged);
        CU_ASSERT_NOT_EQUAL(j.model[0], before);
    }
    free_rank_batches(&j.batches);
    remove_folder(folder);
}

/* A set of files from which one is missing, or has another step. */
static void test_damaged_set(void)
{
    char folder[] = "/tmp/weft-parallel-XXXXXX", path[64], part[128], other[128];
    rank ranks[MAX_RANKS];
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    snprintf(part, sizeof part, "%s/model.step-1.rank-1-of-2.safetensors", folder);
    snprintf(other, sizeof other, "%s/model.step-2.rank-1-of-2.safetensors", folder);
    job j = make_job(WEFT_ADAM_DEFAULT, 2);
    j.steps = 1;
    j.save = path;
    run_ranks(2, train, &j, ranks);
    expect_good(ranks, 2);
    j.save = NULL;
    j.load = path;
    CU_ASSERT_EQUAL(rename(part, other), 0);
    run_ranks(2, train, &j, ranks);
    CU_ASSERT_EQUAL(ranks[0].error.status, WEFT_NOT_FOUND);
    CU_ASSERT_PTR_NOT_NULL(strstr(ranks[0].error.where, "rank-1-of-2"));
    CU_ASSERT_EQUAL(rename(other, part), 0);
    run_ranks(1, train, &j, ranks);
    expect_good(ranks, 1);
    j.save = path; /* of step 2, by one process */
    run_ranks(1, train, &j, ranks);
    expect_good(ranks, 1);
    CU_ASSERT_EQUAL(access(part, F_OK), -1);
    j.save = NULL;
    j.load_all = true; /* from that file alone */
    run_ranks(1, train, &j, ranks);
    expect_good(ranks, 1);
    free_rank_batches(&j.batches);
    remove_folder(folder);
}

/* ---- Failures ---- */

static void change_rate(weft_trainer_options *o, weft_batch_source *source, weft_params *params)
{
    (void)params;
    (void)source;
    o->schedule.peak = 0.02;
}

static void change_seed(weft_trainer_options *o, weft_batch_source *source, weft_params *params)
{
    (void)params;
    (void)source;
    o->seed++;
}

static void change_params(weft_trainer_options *o, weft_batch_source *source, weft_params *params)
{
    (void)o;
    (void)source;
    weft_params_add(params, "more", WEFT_F32, WEFT_SHAPE(1), NULL, NULL);
}

static void change_data(weft_trainer_options *o, weft_batch_source *source, weft_params *params)
{
    (void)params;
    (void)o;
    source->hashes.source++;
}

static weft_status fail_to_fill(void *context, size_t index, void *const *inputs, size_t *weight,
                                weft_error *error)
{
    (void)context;
    (void)inputs;
    (void)weight;
    return weft_error_set(error, WEFT_IO, "disk", "batch %zu cannot be read", index);
}

static void change_fill(weft_trainer_options *o, weft_batch_source *source, weft_params *params)
{
    (void)params;
    (void)o;
    source->fill = fail_to_fill;
}

/* A token that no vocabulary has: the run itself fails. */
static weft_status fill_badly(void *context, size_t index, void *const *inputs, size_t *weight,
                              weft_error *error)
{
    const weft_batch_source good = weft_batches_source(context);
    const weft_status status = good.fill(context, index, inputs, weight, error);
    ((int32_t *)inputs[0])[0] = 1000000;
    return status;
}

static void change_token(weft_trainer_options *o, weft_batch_source *source, weft_params *params)
{
    (void)params;
    (void)o;
    source->fill = fill_badly;
}

static bool stop_now(void *context)
{
    (void)context;
    return true;
}

static void change_stop(weft_trainer_options *o, weft_batch_source *source, weft_params *params)
{
    (void)params;
    (void)source;
    o->stop = stop_now;
}

/* One of some ranks is changed. Rank 0 and the changed one end with these statuses, and their
 * messages have the texts. */
static void fails_with(uint32_t accumulate,
                       void (*change)(weft_trainer_options *, weft_batch_source *, weft_params *),
                       weft_status status, const char *text, weft_status odd_status,
                       const char *odd_text)
{
    rank ranks[MAX_RANKS];
    for (int size = 3; size <= 4; size++) {
        job j = make_job(WEFT_ADAM_DEFAULT, size == 4 ? 8 : accumulate);
        j.odd_rank = 1;
        j.change = change;
        j.processes.zero = size == 4 ? 2 : 1;
        run_ranks(size, train, &j, ranks);
        for (int r = 0; r < size; r++) {
            const weft_error *e = &ranks[r].error;
            const bool odd = r == 1, good = e->status == (odd ? odd_status : status) &&
                                            strstr(e->message, odd ? odd_text : text);
            if (!good) printf("\n    rank %d: %s: %s\n", r, e->where, e->message);
            CU_ASSERT_TRUE(good);
        }
        free_rank_batches(&j.batches);
    }
}

/* Each rank has one batch, or several. */
static void fails(void (*change)(weft_trainer_options *, weft_batch_source *, weft_params *),
                  weft_status status, const char *text, weft_status odd_status,
                  const char *odd_text)
{
    fails_with(3, change, status, text, odd_status, odd_text);
    fails_with(8, change, status, text, odd_status, odd_text);
}

static void test_failures(void)
{
    const char *options = "rank 1 has different training options than rank 0";
    const char *params = "rank 1 has different parameters or a different step than rank 0";
    const char *data = "rank 1 has different data than rank 0";
    fails(change_rate, WEFT_BAD_ARGUMENT, options, WEFT_BAD_ARGUMENT, options);
    fails(change_seed, WEFT_BAD_ARGUMENT, options, WEFT_BAD_ARGUMENT, options);
    fails(change_params, WEFT_BAD_ARGUMENT, params, WEFT_BAD_ARGUMENT, params);
    fails(change_data, WEFT_BAD_ARGUMENT, data, WEFT_BAD_ARGUMENT, data);
    fails(change_fill, WEFT_PEER, "rank 1: disk: batch ", WEFT_IO, "cannot be read");
    fails(change_token, WEFT_PEER, "rank 1: ", WEFT_BAD_INDEX, "index 1000000");
    fails(change_stop, WEFT_CANCELLED, "stopped", WEFT_CANCELLED, "stopped");
}

/* Evaluates batches that no rank can read. */
static void evaluate_unreadable(rank *r)
{
    job *j = r->shared;
    weft_trainer_options o = j->o;
    weft_trainer_processes processes = j->processes;
    processes.communicator = r->communicator;
    o.processes = &processes;
    o.session.threads = 1;
    weft_params *params = weft_params_new();
    weft_batch_source source = weft_batches_source(j->batches.of[r->communicator->rank]);
    weft_trainer *t = weft_trainer_new(&o, &source, params, &r->error);
    double metric;
    source.fill = fail_to_fill;
    if (t) weft_trainer_evaluate(t, &source, 0, &metric, NULL, &r->error);
    weft_trainer_free(t);
    weft_params_free(params);
}

/* If each rank has a failure of its own, all report that of the first rank. */
static void test_several_failures(void)
{
    rank ranks[MAX_RANKS];
    job j = make_job(WEFT_ADAM_DEFAULT, 2);
    run_ranks(2, evaluate_unreadable, &j, ranks);
    CU_ASSERT_EQUAL(ranks[0].error.status, WEFT_IO);
    CU_ASSERT_STRING_EQUAL(ranks[0].error.message, "batch 0 cannot be read");
    CU_ASSERT_EQUAL(ranks[1].error.status, WEFT_PEER);
    CU_ASSERT_STRING_EQUAL(ranks[1].error.message, "rank 0: disk: batch 0 cannot be read");
    free_rank_batches(&j.batches);
}

/* Processes without the functions of the library. */
static void test_incomplete_processes(void)
{
    weft_error error;
    weft_params *params = weft_params_new();
    job j = make_job(WEFT_ADAM_DEFAULT, 2);
    const weft_batch_source source = weft_batches_source(j.batches.of[0]);
    j.processes.functions = NULL;
    j.o.processes = &j.processes;
    CU_ASSERT_PTR_NULL(weft_trainer_new(&j.o, &source, params, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.message,
                           "its processes must be those of weft_trainer_processes_of");
    weft_params_free(params);
    free_rank_batches(&j.batches);
}

static void count_failures(void *context, const weft_error *error)
{
    CU_ASSERT_EQUAL(error->status, WEFT_BAD_ARGUMENT);
    ++*(int *)context;
}

/* A process whose options are refused reports that to the others, if there are any. */
static void test_refused_options(void)
{
    for (int size = 1; size <= 2; size++) {
        int failures = 0;
        weft_communicator c = {.size = size, .context = &failures, .fail = count_failures};
        weft_params *params = weft_params_new();
        job j = make_job(WEFT_ADAM_DEFAULT, 2);
        const weft_batch_source source = weft_batches_source(j.batches.of[0]);
        j.o.ema = 1;
        j.processes.communicator = &c;
        j.o.processes = &j.processes;
        CU_ASSERT_PTR_NULL(weft_trainer_new(&j.o, &source, params, NULL));
        CU_ASSERT_EQUAL(failures, size - 1);
        weft_params_free(params);
        free_rank_batches(&j.batches);
    }
}

/* The norm of an update is not finite: all ranks have it and stop there, and none abandons the
 * others. / */
static void test_not_finite(void)
{
    rank ranks[MAX_RANKS];
    job j = make_job(WEFT_ADAM_DEFAULT, 3);
    j.o.schedule.peak = 1e30;
    run_ranks(3, train, &j, ranks);
    CU_ASSERT_EQUAL(ranks[0].error.status, WEFT_NOT_FINITE);
    for (int r = 1; r < 3; r++) {
        CU_ASSERT_EQUAL(ranks[r].error.status, WEFT_PEER);
        CU_ASSERT_PTR_NOT_NULL(strstr(ranks[r].error.message, "rank 0: "));
    }
    free_rank_batches(&j.batches);
}

static void test_too_many(void)
{
    job j = make_job((weft_optimizer){.max_norm = 1}, 2);
    rank ranks[MAX_RANKS];
    const char *power = "a power of two that divides the 6 batches";
    run_ranks(3, train, &j, ranks);
    for (int r = 0; r < 3; r++) {
        CU_ASSERT_EQUAL(ranks[r].error.status, WEFT_BAD_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(ranks[r].error.message, "accumulate to 3"));
    }
    free_rank_batches(&j.batches);
    j = make_job((weft_optimizer){.max_norm = 1}, 6);
    j.processes.zero = 2;
    run_ranks(3, train, &j, ranks);
    for (int r = 0; r < 3; r++)
        CU_ASSERT_TRUE(ranks[r].error.status == WEFT_BAD_ARGUMENT &&
                       strstr(ranks[r].error.message, power));
    free_rank_batches(&j.batches);
}

void parallel_tests(void)
{
    CU_pSuite suite = CU_add_suite("parallel", NULL, NULL);
    CU_add_test(suite, "the same bits on 1 to 8 ranks", test_rank_bits);
    CU_add_test(suite, "resumed on another number of ranks", test_resume);
    CU_add_test(suite, "averages that are new", test_new_averages);
    CU_add_test(suite, "a damaged set of files", test_damaged_set);
    CU_add_test(suite, "failures are those of all", test_failures);
    CU_add_test(suite, "failures of several processes", test_several_failures);
    CU_add_test(suite, "incomplete processes", test_incomplete_processes);
    CU_add_test(suite, "refused options", test_refused_options);
    CU_add_test(suite, "a norm that is not finite", test_not_finite);
    CU_add_test(suite, "more ranks than batches", test_too_many);
}
