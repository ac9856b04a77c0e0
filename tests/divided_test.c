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
    weft_corpus *corpus;
    weft_batches *batches[MOST_RANKS]; /* made before, since only one thread may use CUnit */
    double loss[MOST_RANKS][STEPS], norm[MOST_RANKS][STEPS], metric[MOST_RANKS];
    size_t state_bytes[MOST_RANKS];
} job;

static void train(rank *r)
{
    job *j = r->shared;
    const int me = r->communicator ? r->communicator->rank : 0;
    weft_trainer_options o = j->o;
    weft_params *params = weft_params_new();
    weft_batch_source source = weft_batches_source(j->batches[me]);
    o.communicator = r->communicator;
    o.threads = 1;
    weft_trainer *t = weft_trainer_new(&o, &source, params, &r->error);
    for (int i = 0; t && i < STEPS && r->error.status == WEFT_OK; i++) {
        weft_step_report report = {0};
        if (weft_trainer_step(t, 0, &report) != WEFT_OK) r->error = *weft_trainer_error(t);
        j->loss[me][i] = report.loss;
        j->norm[me][i] = report.norm;
    }
    if (t && r->error.status == WEFT_OK &&
        weft_trainer_evaluate(t, &source, 0, &j->metric[me], NULL) != WEFT_OK)
        r->error = *weft_trainer_error(t);
    for (size_t i = 0; t && i < weft_params_count(params); i++) {
        weft_tensor x;
        weft_params_get(params, weft_params_name(params, i), &x);
        j->state_bytes[me] += weft_tensor_bytes(x.dtype, x.shape);
    }
    weft_trainer_free(t);
    weft_params_free(params);
}

static const char *const transformer[] = {"vocab=60", "d_model=16",       "heads=4",
                                          "d_ff=32",  "encoder_layers=2", "decoder_layers=2",
                                          "dropout=0"};
/* Parts of layers draw other numbers than the whole, stages draw the same. */
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
    const weft_batch_options rows =
        batch_options(m->pairs ? WEFT_BATCH_PAIRS : WEFT_BATCH_LINES, 64);
    job j = {.o = {.builder = test_builder(m->name, m->options, m->n_options),
                   .optimizer = WEFT_ADAMW_DEFAULT,
                   .schedule = {.peak = 0.01},
                   .accumulate = accumulate,
                   .seed = 7,
                   .tensor = tensor,
                   .stages = stages,
                   .bucket_bytes = 4000},
             .corpus = make_corpus(60, 14, m->pairs, 5)};
    for (int r = 0; r < MOST_RANKS; r++) {
        j.batches[r] = weft_batches_new(j.corpus, &rows, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(j.batches[r]);
    }
    return j;
}

static void free_job(job *j)
{
    for (int r = 0; r < MOST_RANKS; r++) weft_batches_free(j->batches[r]);
    weft_corpus_free(j->corpus);
}

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b));
}

/* Trains on T x S x D processes, and expects what one process finds. */
static void expect_whole(const model *m, const job *whole, int tensor, int stages, int shares,
                         job *j)
{
    const int size = tensor * stages * shares;
    rank ranks[MOST_RANKS];
    *j = make_job(m, tensor, stages, whole->o.accumulate);
    run_ranks(size, train, j, ranks);
    expect_good(ranks, size);
    for (int r = 0; r < size; r++) {
        for (int i = 0; i < STEPS; i++) {
            CU_ASSERT_TRUE(near(j->loss[r][i], whole->loss[0][i], 1e-5));
            CU_ASSERT_TRUE(near(j->norm[r][i], whole->norm[0][i], 1e-3));
            CU_ASSERT_TRUE(j->loss[r][i] == j->loss[0][i] && j->norm[r][i] == j->norm[0][i]);
        }
        CU_ASSERT_TRUE(near(j->metric[r], whole->metric[0], 1e-5));
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
    /* Every process has less than the whole. */
    for (int r = 0; r < tensor * stages; r++)
        CU_ASSERT_TRUE(first.state_bytes[r] < whole.state_bytes[0]);
    if (accumulate > 1 && 2 * tensor * stages <= MOST_RANKS) {
        expect_whole(m, &whole, tensor, stages, 2, &shared);
        CU_ASSERT_TRUE(shared.metric[0] == first.metric[0]);
        CU_ASSERT_EQUAL(memcmp(shared.norm[0], first.norm[0], sizeof first.norm[0]), 0);
        free_job(&shared);
    }
    free_job(&again);
    free_job(&first);
    free_job(&whole);
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
        {2, 1, 2, 2, "zero 2 is for whole models, not for one in parts or stages"},
    };
    rank ranks[MOST_RANKS];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job j = make_job(&models[1], cases[i].tensor, cases[i].stages, 4);
        j.o.zero = cases[i].zero;
        run_ranks(cases[i].size, train, &j, ranks);
        for (int r = 0; r < cases[i].size; r++) {
            CU_ASSERT_EQUAL(ranks[r].error.status, WEFT_BAD_ARGUMENT);
            CU_ASSERT_STRING_EQUAL(ranks[r].error.message, cases[i].message);
        }
        free_job(&j);
    }
    job j = make_job(&models[4], 2, 1, 1);
    run_ranks(2, train, &j, ranks);
    CU_ASSERT_STRING_EQUAL(ranks[0].error.where, "seq2seq");
    CU_ASSERT_STRING_EQUAL(ranks[0].error.message,
                           "has no layers that 2 processes could divide among them: only attention "
                           "and feed-forward layers can");
    free_job(&j);
}

void divided_tests(void)
{
    CU_pSuite suite = CU_add_suite("divided", NULL, NULL);
    CU_add_test(suite, "layers in parts", test_parts);
    CU_add_test(suite, "a model in stages", test_stages);
    CU_add_test(suite, "parts of stages", test_both);
    CU_add_test(suite, "what cannot be divided is refused", test_refusals);
}
