/* Checkpoints of models that several processes, which are threads here, have in parts and stages:
 * the model in them is whole, and any division resumes. */
#include "ranks.h"
#include "tests.h"
#include "token_batches.h"

#include "sharding.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 4, HALF = 2 };

/* A model of tensor x stages processes, and `shares` such models. */
typedef struct division {
    int tensor, stages, shares;
} division;

typedef struct job {
    weft_trainer_options o;
    weft_trainer_processes processes;
    int first, end; /* steps */
    const char *load, *save, *save_model;
    bool load_all; /* also the states of training */
    rank_batches batches;
    double loss[STEPS], metric; /* of the first rank */
    uint64_t model[MAX_RANKS];  /* hashes of the whole model, by rank */
} job;

/* Each process has parts of attention and feed-forward layers, and the stages share the embedding
 * matrix. */
static const char *const sizes[] = {"vocab=60",         "d_model=16",       "heads=4",  "d_ff=32",
                                    "encoder_layers=2", "decoder_layers=2", "dropout=0"};

/* Of a store's tensors but for states of training, in any order. */
static uint64_t hash_model(const weft_params *params)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < weft_params_count(params); i++) {
        const char *name = weft_params_name(params, i);
        weft_tensor t;
        if (weft_params_key(params, i).kind != WEFT_STATE_MODEL ||
            !weft_params_find(params, name, &t))
            continue;
        uint64_t hash = 0xcbf29ce484222325u;
        for (const char *c = name; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
        const size_t bytes = weft_tensor_bytes(t.dtype, t.shape);
        for (size_t k = 0; k < bytes; k++)
            hash = (hash ^ ((unsigned char *)t.data)[k]) * 0x100000001b3u;
        sum += hash + (uint64_t)t.shape.dim[0];
    }
    return sum;
}

static bool run_steps(job *j, weft_trainer *t, const weft_batch_source *source, int me,
                      weft_error *error)
{
    weft_update_report report = {0};
    bool good = true;
    for (int i = j->first; good && i < j->end; i++) {
        good = weft_trainer_update(t, 0, &report, error) == WEFT_OK;
        if (me == 0) j->loss[i] = report.loss;
    }
    if (good && j->save) good = weft_trainer_save(t, j->save, error) == WEFT_OK;
    if (good && j->save_model) good = weft_trainer_save_model(t, j->save_model, error) == WEFT_OK;
    const weft_params *model = good ? weft_trainer_model(t, error) : NULL;
    if (!model) return false;
    j->model[me] = hash_model(model);
    double metric = 0;
    good = weft_trainer_evaluate(t, source, 0, &metric, NULL, error) == WEFT_OK;
    if (me == 0) j->metric = metric;
    return good;
}

static void train(rank *r)
{
    job *j = r->shared;
    const int me = r->communicator ? r->communicator->rank : 0;
    weft_trainer_options o = j->o;
    weft_trainer_processes processes = j->processes;
    weft_params *params = weft_params_new();
    const weft_batch_source source = weft_batches_source(j->batches.of[me]);
    const weft_params_filter *only = j->load_all ? NULL : &weft_model_states;
    processes.communicator = r->communicator;
    o.processes = &processes;
    o.session.threads = 1;
    o.checkpoint = j->load_all ? NULL : j->load;
    if (j->load) weft_params_load_some(params, j->load, only, &r->error);
    weft_trainer *t = weft_trainer_new(&o, &source, params, &r->error);
    if (t) run_steps(j, t, &source, me, &r->error);
    weft_trainer_free(t);
    weft_params_free(params);
}

static job make_job(double ema)
{
    job j = {.o = {.builder = test_builder("transformer", sizes, sizeof sizes / sizeof *sizes),
                   .optimizer = WEFT_ADAMW_DEFAULT,
                   .schedule = {.peak = 0.01},
                   .accumulate = 4,
                   .ema = ema,
                   .seed = 7},
             .processes = weft_trainer_processes_of(NULL),
             .batches = make_rank_batches(true)};
    j.processes.bucket_bytes = 4000;
    return j;
}

/* Runs the steps [first, end) of a job. */
static void run_job(job *j, division d, int first, int end)
{
    const int size = d.tensor * d.stages * d.shares;
    rank ranks[MAX_RANKS];
    j->first = first;
    j->end = end;
    j->processes.tensor = d.tensor;
    j->processes.stages = d.stages;
    run_ranks(size, train, j, ranks);
    expect_good(ranks, size);
    for (int r = 1; r < size; r++) CU_ASSERT_EQUAL(j->model[r], j->model[0]);
}

/* ---- What is in the files ---- */

static void remove_folder(const char *folder)
{
    char path[512];
    DIR *entries = opendir(folder);
    for (const struct dirent *e; entries && (e = readdir(entries));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        unlink(path);
    }
    if (entries) closedir(entries);
    rmdir(folder);
}

static uint64_t hash_file(const char *path)
{
    weft_params *params = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_load(params, path, NULL), WEFT_OK);
    const uint64_t hash = hash_model(params);
    weft_params_free(params);
    return hash;
}

/* Elements of the model, and of the states of training with a prefix, in all files of a folder. */
static void count_elements(const char *folder, const char *prefix, int64_t *model, int64_t *states)
{
    char path[512];
    DIR *entries = opendir(folder);
    *model = *states = 0;
    for (const struct dirent *e; entries && (e = readdir(entries));) {
        if (!strstr(e->d_name, ".safetensors")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        weft_params *params = weft_params_new();
        CU_ASSERT_EQUAL(weft_params_load(params, path, NULL), WEFT_OK);
        for (size_t i = 0; i < weft_params_count(params); i++) {
            const char *name = weft_params_name(params, i);
            weft_tensor t;
            weft_params_find(params, name, &t);
            if (weft_params_key(params, i).kind == WEFT_STATE_MODEL)
                *model += weft_shape_numel(t.shape);
            if (!strncmp(name, prefix, strlen(prefix))) *states += weft_shape_numel(t.shape);
        }
        weft_params_free(params);
    }
    if (entries) closedir(entries);
}

static const division divisions[] = {{2, 1, 1}, {1, 2, 1}, {2, 2, 1}, {2, 2, 2}, {4, 1, 2}};
enum { DIVISIONS = sizeof divisions / sizeof *divisions };

/* The model of a checkpoint is whole, and every moment is in one file. */
static void test_files(void)
{
    for (int k = 0; k < DIVISIONS; k++) {
        const bool ema = k % 2 == 0;
        char folder[] = "/tmp/weft-whole-XXXXXX", path[64], best[64];
        int64_t elements, states;
        CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
        snprintf(path, sizeof path, "%s/model.safetensors", folder);
        snprintf(best, sizeof best, "%s/best.safetensors", folder);
        job j = make_job(ema ? 0.9 : 0);
        j.save = path;
        j.save_model = best;
        run_job(&j, divisions[k], 0, HALF);
        CU_ASSERT_EQUAL(hash_file(best), j.model[0]);
        CU_ASSERT_TRUE(ema ? hash_file(path) != j.model[0] : hash_file(path) == j.model[0]);
        unlink(best);
        count_elements(folder, "opt.v.", &elements, &states);
        CU_ASSERT_TRUE(elements > 5000 && states == elements);
        count_elements(folder, "ema.", &elements, &states);
        CU_ASSERT_EQUAL(states, ema ? elements : 0);
        free_rank_batches(&j.batches);
        remove_folder(folder);
    }
}

/* ---- Resuming ---- */

/* Some steps magnify the roundings of f32, 6e-8 each: the largest difference seen is 5e-8. */
static bool near(double a, double b)
{
    return fabs(a - b) <= 2e-6 * fabs(b);
}

/* Half of the steps on one division, the rest on another. */
static void resume(const job *whole, division before, division after, bool load_all)
{
    char folder[] = "/tmp/weft-whole-XXXXXX", path[64];
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    job j = make_job(whole->o.ema);
    j.save = path;
    run_job(&j, before, 0, HALF);
    j.load = path;
    j.load_all = load_all;
    run_job(&j, after, HALF, STEPS);
    for (int i = 0; i < STEPS; i++) CU_ASSERT_TRUE(near(j.loss[i], whole->loss[i]));
    CU_ASSERT_TRUE(near(j.metric, whole->metric));
    /* Only the division of the model changes bits, not that of the batches. */
    if (before.tensor == whole->processes.tensor && before.stages == whole->processes.stages &&
        after.tensor == before.tensor && after.stages == before.stages) {
        CU_ASSERT_EQUAL(memcmp(j.loss, whole->loss, sizeof j.loss), 0);
        CU_ASSERT_EQUAL(j.model[0], whole->model[0]);
    }
    CU_ASSERT_EQUAL(hash_file(path) == j.model[0], whole->o.ema == 0);
    free_rank_batches(&j.batches);
    remove_folder(folder);
}

static void test_resume(void)
{
    static const division one = {1, 1, 1}, two = {1, 1, 2};
    for (int k = 0; k < DIVISIONS - 1; k++) {
        const division d = divisions[k], more = {d.tensor, d.stages, d.shares == 1 ? 2 : 1};
        const bool ema = k % 2;
        job whole = make_job(ema ? 0.9 : 0);
        run_job(&whole, d, 0, STEPS);
        resume(&whole, d, d, false);
        resume(&whole, d, more, false);
        resume(&whole, d, divisions[(k + 1) % DIVISIONS], false);
        resume(&whole, d, ema ? one : two, false);
        resume(&whole, ema ? two : one, d, false);
        if (ema) resume(&whole, one, d, true);
        free_rank_batches(&whole.batches);
    }
}

void whole_tests(void)
{
    CU_pSuite suite = CU_add_suite("whole", NULL, NULL);
    CU_add_test(suite, "checkpoints of divided models", test_files);
    CU_add_test(suite, "resumed in another division", test_resume);
}
