/* Training a model that several processes, which are threads here, have in parts and stages: the
 * results of the whole model except for rounding, and the same bits for any number of shares. */
#include "ranks.h"
#include "tests.h"
#include "token_batches.h"

#include <weft/parallel.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 4

typedef struct job {
    weft_trainer_options o;
    weft_trainer_processes processes;
    rank_batches batches;
    double loss[MAX_RANKS][STEPS], norm[MAX_RANKS][STEPS], metric[MAX_RANKS];
    double flops[MAX_RANKS]; /* of the last update */
    size_t state_bytes[MAX_RANKS];
} job;

static void train(rank *r)
{
    job *j = r->shared;
    const int me = r->communicator ? r->communicator->rank : 0;
    weft_trainer_options o = j->o;
    weft_trainer_processes processes = j->processes;
    weft_params *params = weft_params_new();
    weft_batch_source source = weft_batches_source(j->batches.of[me]);
    processes.communicator = r->communicator;
    o.processes = &processes;
    o.session.threads = 1;
    weft_trainer *t = weft_trainer_new(&o, &source, params, &r->error);
    for (int i = 0; t && i < STEPS && r->error.status == WEFT_OK; i++) {
        weft_update_report report = {0};
        weft_trainer_update(t, 0, &report, &r->error);
        j->loss[me][i] = report.loss;
        j->norm[me][i] = report.norm;
        j->flops[me] = report.flops;
    }
    if (t && r->error.status == WEFT_OK)
        weft_trainer_evaluate(t, &source, 0, &j->metric[me], NULL, &r->error);
    for (size_t i = 0; t && i < weft_params_count(params); i++) {
        weft_tensor x;
        weft_params_find(params, weft_params_name(params, i), &x);
        j->state_bytes[me] += weft_tensor_bytes(x.dtype, x.shape);
    }
    weft_trainer_free(t);
    weft_params_free(params);
}

static const char *const transformer[] = {"vocab=60", "d_model=16",       "heads=4",
                                          "d_ff=32",  "encoder_layers=2", "decoder_layers=2",
                                          "dropout=0"};
/* Parts of layers draw different numbers from the whole, stages draw the same. */
static const char *const dropout[] = {"vocab=60",   "d_model=16",       "heads=4",
                                      "d_ff=32",    "encoder_layers=2", "decoder_layers=2",
                                      "dropout=0.1"};
static const char *const gpt[] = {"vocab=60", "d_model=16", "heads=4", "layers=4", "dropout=0"};
static const char *const llama[] = {"vocab=60", "d_model=16", "heads=4", "layers=3"};
static const char *const seq2seq[] = {"vocab=60", "width=16", "hidden=16", "layers=1"};

typedef struct model {
    const char *name;
    const char *const *options;
    size_t n_options;
    bool pairs;
} model;

static const model models[] = {
    {"transformer", transformer, sizeof transformer / sizeof *transformer, true},
    {"gpt", gpt, sizeof gpt / sizeof *gpt, false},
    {"llama", llama, sizeof llama / sizeof *llama, false},
    {"transformer", dropout, sizeof dropout / sizeof *dropout, true},
    {"seq2seq", seq2seq, sizeof seq2seq / sizeof *seq2seq, true},
};

static job make_job(const model *m, int tensor, int stages, uint32_t accumulate)
{
    job j = {.o = {.builder = test_builder(m->name, m->options, m->n_options),
                   .optimizer = WEFT_ADAMW_DEFAULT,
                   .schedule = {.peak = 0.01},
                   .accumulate = accumulate,
                   .seed = 7},
             .processes = weft_trainer_processes_of(NULL),
             .batches = make_rank_batches(m->pairs)};
    j.processes.tensor = tensor;
    j.processes.stages = stages;
    j.processes.bucket_bytes = 4000;
    return j;
}

/* Relative. Four steps magnify the roundings of f32, 6e-8 each: the largest difference seen
 * is 1.3e-7 of a loss and 1.4e-6 of a norm. These are more than ten times as much. */
#define LOSS_OFF 2e-6
#define NORM_OFF 5e-5

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b));
}

/* Trains on T x S x D processes, and expects what one process finds. */
static void expect_whole(const model *m, const job *whole, int tensor, int stages, int shares,
                         job *j)
{
    const int size = tensor * stages * shares;
    rank ranks[MAX_RANKS];
    *j = make_job(m, tensor, stages, whole->o.accumulate);
    run_ranks(size, train, j, ranks);
    expect_good(ranks, size);
    for (int r = 0; r < size; r++) {
        for (int i = 0; i < STEPS; i++) {
            CU_ASSERT_TRUE(near(j->loss[r][i], whole->loss[0][i], LOSS_OFF));
            CU_ASSERT_TRUE(near(j->norm[r][i], whole->norm[0][i], NORM_OFF));
            CU_ASSERT_TRUE(j->loss[r][i] == j->loss[0][i] && j->norm[r][i] == j->norm[0][i]);
        }
        CU_ASSERT_TRUE(near(j->metric[r], whole->metric[0], LOSS_OFF));
        CU_ASSERT_TRUE(j->metric[r] == j->metric[0]);
    }
}

static void divide(const model *m, uint32_t accumulate, int tensor, int stages)
{
    job whole = make_job(m, 1, 1, accumulate), first, again, shared;
    rank alone = {.shared = &whole};
    train(&alone);
    CU_ASSERT_EQUAL_FATAL(alone.error.status, WEFT_OK);
    expect_whole(m, &whole, tensor, stages, 1, &first);
    expect_whole(m, &whole, tensor, stages, 1, &again);
    CU_ASSERT_EQUAL(memcmp(first.loss, again.loss, sizeof first.loss), 0);
    /* Every process has less than the whole, and does a part of its work. Together they were seen
     * to do 0.995 to 1.14 times as much as one process. */
    double flops = 0;
    for (int r = 0; r < tensor * stages; r++) {
        CU_ASSERT_TRUE(first.state_bytes[r] < whole.state_bytes[0]);
        CU_ASSERT_TRUE(first.flops[r] > 0 && first.flops[r] < whole.flops[0]);
        flops += first.flops[r];
    }
    CU_ASSERT_TRUE(flops > 0.95 * whole.flops[0]);
    if (accumulate > 1 && 2 * tensor * stages <= MAX_RANKS) {
        expect_whole(m, &whole, tensor, stages, 2, &shared);
        CU_ASSERT_TRUE(shared.metric[0] == first.metric[0]);
        CU_ASSERT_EQUAL(memcmp(shared.norm[0], first.norm[0], sizeof first.norm[0]), 0);
        free_rank_batches(&shared.batches);
    }
    free_rank_batches(&again.batches);
    free_rank_batches(&first.batches);
    free_rank_batches(&whole.batches);
}

static void test_parts(void)
{
    divide(&models[0], 1, 2, 1);
    divide(&models[0], 4, 2, 1);
    divide(&models[1], 3, 4, 1);
}

static void test_stages(void)
{
    divide(&models[3], 1, 1, 2);
    divide(&models[3], 6, 1, 2);
    divide(&models[0], 5, 1, 3);
    divide(&models[1], 8, 1, 4);
    divide(&models[2], 4, 1, 2);
}

static void test_both(void)
{
    divide(&models[0], 4, 2, 2);
    divide(&models[1], 3, 2, 2);
}

static void test_refusals(void)
{
    static const struct {
        int size, tensor, stages, zero;
        const char *message;
    } cases[] = {
        {2, 3, 1, 0, "2 processes cannot divide a model into 1 stages of 3 parts"},
        {3, 1, 2, 0, "3 processes cannot divide a model into 2 stages of 1 parts"},
        {2, 1, 2, 2, "zero 2 requires a whole model, not one in parts or stages"},
    };
    rank ranks[MAX_RANKS];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job j = make_job(&models[1], cases[i].tensor, cases[i].stages, 4);
        j.processes.zero = cases[i].zero;
        run_ranks(cases[i].size, train, &j, ranks);
        for (int r = 0; r < cases[i].size; r++) {
            CU_ASSERT_EQUAL(ranks[r].error.status, WEFT_BAD_ARGUMENT);
            CU_ASSERT_STRING_EQUAL(ranks[r].error.message, cases[i].message);
        }
        free_rank_batches(&j.batches);
    }
    job j = make_job(&models[4], 2, 1, 1);
    run_ranks(2, train, &j, ranks);
    CU_ASSERT_STRING_EQUAL(ranks[0].error.where, "seq2seq");
    CU_ASSERT_STRING_EQUAL(ranks[0].error.message,
                           "has no layers that 2 processes could divide among them: only attention "
                           "and feed-forward layers can");
    free_rank_batches(&j.batches);
    static const weft_param_group frozen = {.names = "*", .frozen = true};
    j = make_job(&models[1], 1, 1, 2);
    j.processes.zero = 3;
    j.o.optimizer.groups = &frozen;
    j.o.optimizer.n_groups = 1;
    run_ranks(2, train, &j, ranks);
    CU_ASSERT_STRING_EQUAL(ranks[0].error.message, "every parameter is frozen");
    free_rank_batches(&j.batches);
}

/* ---- Failures of one process ---- */

/* What goes wrong on one rank: the call of `fill`, of `stop` or the allocation of this number, from
 * 1, or a parameter that is not finite. */
typedef struct fault {
    int rank, fill, stop;
    long allocation;
    bool spoils, evaluates; /* an evaluation fails, not an update */
} fault;

/* Each rank makes an update, one that fails, and, if `goes_on`, the same again. */
typedef struct failing_job {
    job j;
    fault fault;
    bool goes_on;
    weft_status status[MAX_RANKS]; /* of what fails */
    bool kept[MAX_RANKS];          /* it left model and moments as they were */
    double loss[MAX_RANKS];        /* of the last update */
} failing_job;

static _Thread_local int calls_left; /* of this rank's faulty function */

static bool call_fails(void)
{
    return calls_left && !--calls_left;
}

static weft_status fill_or_fail(void *context, size_t index, void *const *inputs, size_t *weight,
                                weft_error *error)
{
    if (call_fails()) return weft_error_set(error, WEFT_IO, "disk", "batch %zu is lost", index);
    return weft_batches_source(context).fill(context, index, inputs, weight, error);
}

static bool stop_or_not(void *context)
{
    (void)context;
    return call_fails();
}

static uint64_t hash_states(const weft_params *params)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < weft_params_count(params); i++) {
        const char *name = weft_params_name(params, i);
        weft_tensor t;
        if (weft_params_key(params, i).kind == WEFT_STATE_SUM) continue;
        weft_params_find(params, name, &t);
        for (size_t k = 0; k < weft_tensor_bytes(t.dtype, t.shape); k++)
            hash = (hash ^ ((unsigned char *)t.data)[k]) * 0x100000001b3u;
    }
    return hash;
}

/* The first number of the model that this rank has; the model is f32. */
static float *first_number(const weft_params *params)
{
    weft_tensor t = {.data = NULL};
    for (size_t i = 0; i < weft_params_count(params) && !t.data; i++)
        if (weft_params_key(params, i).kind == WEFT_STATE_MODEL)
            weft_params_find(params, weft_params_name(params, i), &t);
    return t.data;
}

static void fail_once(failing_job *f, rank *r, weft_trainer *t, const weft_batch_source *source,
                      const weft_params *params)
{
    const int me = r->communicator->rank;
    const bool odd = me == f->fault.rank;
    const uint64_t before = hash_states(params);
    float *number = first_number(params), good = *number;
    const fault *what = &f->fault;
    double metric;
    if (odd) calls_left = what->fill + what->stop;
    if (odd && what->spoils) *number = NAN;
    if (odd) test_fail_allocation(what->allocation);
    f->status[me] = what->evaluates ? weft_trainer_evaluate(t, source, 0, &metric, NULL, &r->error)
                                    : weft_trainer_update(t, 0, NULL, &r->error);
    test_fail_allocation(0);
    calls_left = 0;
    *number = good;
    f->kept[me] = hash_states(params) == before && weft_trainer_progress_of(t).updates == 1;
}

static void train_and_fail(rank *r)
{
    failing_job *f = r->shared;
    const int me = r->communicator->rank;
    weft_trainer_options o = f->j.o;
    weft_trainer_processes processes = f->j.processes;
    weft_params *params = weft_params_new();
    weft_batch_source source = weft_batches_source(f->j.batches.of[me]);
    weft_update_report report = {0};
    source.fill = fill_or_fail;
    o.stop = stop_or_not;
    processes.communicator = r->communicator;
    o.processes = &processes;
    o.session.threads = 1;
    weft_trainer *t = weft_trainer_new(&o, &source, params, &r->error);
    if (t) weft_trainer_update(t, 0, NULL, &r->error);
    if (r->error.status == WEFT_OK) fail_once(f, r, t, &source, params);
    if (f->goes_on && weft_trainer_update(t, 0, &report, NULL) == WEFT_OK)
        f->loss[me] = report.loss;
    weft_trainer_free(t);
    weft_params_free(params);
}

/* A model in parts and stages, of 4 processes: the faulty one, or the first of all if all find the
 * fault, ends with a status, and the others with theirs. All report the same text. */
static void fails_with(int tensor, int stages, fault what, bool goes_on, weft_status odd,
                       weft_status others, const char *text)
{
    rank ranks[MAX_RANKS];
    const int size = 4, first = what.spoils ? 0 : what.rank;
    failing_job f = {.fault = what, .goes_on = goes_on};
    f.j = make_job(&models[0], tensor, stages, 4 * (uint32_t)size / (uint32_t)(tensor * stages));
    job whole = make_job(&models[0], tensor, stages, f.j.o.accumulate);
    run_ranks(size, train_and_fail, &f, ranks);
    if (goes_on) {
        rank good[MAX_RANKS];
        run_ranks(size, train, &whole, good);
        expect_good(good, size);
    }
    for (int r = 0; r < size; r++) {
        const weft_error *e = &ranks[r].error;
        const bool good = f.status[r] == (r == first ? odd : others) && e->status == f.status[r] &&
                          strstr(e->message, text);
        if (!good) printf("\n    rank %d: %s: %s\n", r, e->where, e->message);
        CU_ASSERT_TRUE(good);
        CU_ASSERT_TRUE(f.kept[r]);
        if (goes_on) CU_ASSERT_EQUAL(f.loss[r], whole.loss[r][1]);
    }
    free_rank_batches(&whole.batches);
    free_rank_batches(&f.j.batches);
}

static void test_failures(void)
{
    static const int sizes[][2] = {{1, 4}, {2, 2}, {1, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int tensor = sizes[i][0], stages = sizes[i][1];
        for (int odd = 0; odd < 4; odd += 3) {
            fails_with(tensor, stages, (fault){odd, .stop = 1}, true, WEFT_CANCELLED,
                       WEFT_CANCELLED, "stopped");
            fails_with(tensor, stages, (fault){odd, .spoils = true}, true, WEFT_NOT_FINITE,
                       WEFT_PEER, "gradient_norm is not finite");
        }
        /* All batches are filled once to learn their weights, and again for the passes. */
        fails_with(tensor, stages, (fault){1, .fill = 2}, true, WEFT_IO, WEFT_PEER, "is lost");
        fails_with(tensor, stages, (fault){1, .fill = 5}, false, WEFT_IO, WEFT_PEER, "is lost");
        fails_with(tensor, stages, (fault){1, .fill = 2, .evaluates = true}, false, WEFT_IO,
                   WEFT_PEER, "is lost");
    }
}

/* ---- Allocations that fail on one process ---- */

static void open_and_fail(rank *r)
{
    failing_job *f = r->shared;
    const int me = r->communicator->rank;
    weft_trainer_options o = f->j.o;
    weft_trainer_processes processes = f->j.processes;
    weft_params *params = weft_params_new();
    weft_batch_source source = weft_batches_source(f->j.batches.of[me]);
    processes.communicator = r->communicator;
    o.processes = &processes;
    o.session.threads = 1;
    if (me == f->fault.rank) test_fail_allocation(f->fault.allocation);
    weft_trainer *t = weft_trainer_new(&o, &source, params, &r->error);
    if (t) weft_trainer_update(t, 0, NULL, &r->error);
    if (me == f->fault.rank) f->goes_on = test_allocation_pending();
    test_fail_allocation(0);
    weft_trainer_free(t);
    weft_params_free(params);
}

/* Makes some of the allocations of a trainer and its first update fail on one rank. The others get
 * its message: none waits until it is gone. */
static void fail_allocations(int tensor, int stages, int zero, int odd)
{
    const int size = zero ? 2 : tensor * stages;
    bool pending = false;
    long n = 1;
    for (; !pending && n < 1000000; n += 1 + n / 8) {
        rank ranks[MAX_RANKS];
        failing_job f = {.fault = {odd, .allocation = n}};
        f.j = make_job(&models[1], tensor, stages, 2);
        f.j.processes.zero = zero;
        run_ranks(size, open_and_fail, &f, ranks);
        pending = f.goes_on;
        for (int r = 0; r < size; r++) {
            const weft_error *e = &ranks[r].error;
            const weft_status expected = pending ? WEFT_OK : r == odd ? WEFT_NO_MEMORY : WEFT_PEER;
            const bool good = e->status == expected && !strstr(e->message, "has ended");
            if (!good)
                printf("\n    allocation %ld: rank %d: %s: %s\n", n, r, e->where, e->message);
            CU_ASSERT_TRUE(good);
        }
        free_rank_batches(&f.j.batches);
    }
    CU_ASSERT_TRUE(pending && n > 1000);
}

static void test_failing_allocations(void)
{
    fail_allocations(2, 1, 0, 0);
    fail_allocations(1, 2, 0, 1);
    fail_allocations(1, 1, 3, 1);
}

void divided_tests(void)
{
    CU_pSuite suite = CU_add_suite("divided", NULL, NULL);
    CU_add_test(suite, "layers in parts", test_parts);
    CU_add_test(suite, "a model in stages", test_stages);
    CU_add_test(suite, "parts of stages", test_both);
    CU_add_test(suite, "failures of one process are those of all", test_failures);
    CU_add_test(suite, "allocations that fail on one process", test_failing_allocations);
    CU_add_test(suite, "what cannot be divided is refused", test_refusals);
}
