/* Threads and memory of the program, in all that runs plans of a model: a forward runner, a scorer,
 * a decoder and a trainer. */
#include "lent.h"
#include "tests.h"
#include "token_batches.h"

#include <weft/decode.h>

#include <stdlib.h>
#include <string.h>

/* Large enough that the runs have work for several threads. */
static const char *const small[] = {"vocab=40", "d_model=64", "heads=2", "d_ff=256", "layers=2"};
enum { N_SMALL = sizeof small / sizeof *small, ROWS = 8, LENGTH = 16, STEPS = 40, UPDATES = 2 };

/* The numbers that a runner computed. */
typedef struct numbers {
    double x[1 << 15];
    size_t n;
} numbers;

static void add_number(numbers *to, double x)
{
    CU_ASSERT_FATAL(to->n < sizeof to->x / sizeof *to->x);
    to->x[to->n++] = x;
}

static void add_tensor(numbers *to, const weft_tensor *t)
{
    const int64_t n = weft_shape_numel(t->shape);
    CU_ASSERT_EQUAL_FATAL(t->dtype, WEFT_F32);
    for (int64_t i = 0; i < n; i++) add_number(to, (double)((const float *)t->data)[i]);
}

static const int32_t *tokens(void)
{
    static int32_t ids[ROWS * LENGTH];
    uint64_t random = 3;
    for (int i = 0; i < ROWS * LENGTH; i++)
        ids[i] = FIRST + (int32_t)(test_random(&random) % (VOCAB - FIRST));
    return ids;
}

/* ---- What runs plans ---- */

/* A model of its own, with its first parameters; fails the test fatally. */
static weft_model_config model_of(weft_params *params)
{
    weft_model_config config;
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    CU_ASSERT_EQUAL_FATAL(weft_model_parse(weft_model_find("gpt"), small, N_SMALL, &config, &error),
                          WEFT_OK);
    weft_model_build(g, &config);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(params, g, 7, &error), WEFT_OK);
    weft_graph_free(g);
    return config;
}

/* Two shapes, of which the second needs more memory. */
static weft_status forward(const weft_session_options *session, numbers *to, weft_error *error)
{
    weft_params *params = weft_params_new();
    weft_model_config config = model_of(params);
    const weft_builder builder = weft_model_builder(&config);
    const void *inputs[WEFT_BUILT_VALUES] = {tokens(), tokens()};
    weft_forward *f = weft_forward_new(&builder, params, session, error);
    weft_status status = f ? WEFT_OK : error->status;
    for (int rows = ROWS / 2; status == WEFT_OK && rows <= ROWS; rows *= 2) {
        const weft_build_options o = {.shape = {.rows = rows, .target_len = LENGTH}};
        weft_tensor t;
        status = weft_forward_run(f, &o, inputs, error);
        if (status != WEFT_OK) break;
        CU_ASSERT_TRUE_FATAL(weft_forward_output(f, 0, &t));
        add_tensor(to, &t);
    }
    weft_forward_free(f);
    weft_params_free(params);
    return status;
}

static weft_status score(const weft_session_options *session, numbers *to, weft_error *error)
{
    weft_params *params = weft_params_new();
    const weft_model_config config = model_of(params);
    const weft_scorer_options o = {.session = *session};
    double scores[ROWS][LENGTH];
    weft_scorer_row rows[ROWS];
    for (size_t i = 0; i < ROWS; i++)
        rows[i] = (weft_scorer_row){
            .tokens = tokens() + i * LENGTH, .length = LENGTH - i, .scores = scores[i]};
    weft_scorer *s = weft_scorer_new(&config, params, &o, error);
    const weft_status status = s ? weft_scorer_run(s, rows, ROWS, error) : error->status;
    for (size_t i = 0; status == WEFT_OK && i < ROWS; i++)
        for (size_t k = 0; k + 1 < rows[i].length; k++) add_number(to, scores[i][k]);
    weft_scorer_free(s);
    weft_params_free(params);
    return status;
}

/* More steps than the first plan has positions. */
static weft_status decode(const weft_session_options *session, numbers *to, weft_error *error)
{
    weft_params *params = weft_params_new();
    const weft_model_config config = model_of(params);
    const weft_decoder_options o = {
        .sentences = ROWS, .beams = 2, .max_len = STEPS, .session = *session};
    weft_decoder *d = weft_decoder_new(&config, params, &o, error);
    weft_status status = d ? weft_decoder_start(d, NULL, NULL, ROWS, error) : error->status;
    for (int at = 0; status == WEFT_OK && at < STEPS; at++) {
        weft_tensor t;
        status = weft_decoder_step(d, tokens() + at, NULL, error);
        if (status != WEFT_OK) break;
        CU_ASSERT_TRUE_FATAL(weft_decoder_log_probs(d, &t));
        add_tensor(to, &t);
    }
    weft_decoder_free(d);
    weft_params_free(params);
    return status;
}

/* Updates of two batches with averages, an evaluation, and the averaged model. */
static weft_status train(const weft_session_options *session, numbers *to, weft_error *error)
{
    const weft_trainer_options o = {.builder = test_builder("gpt", small, N_SMALL),
                                    .optimizer = WEFT_ADAM_DEFAULT,
                                    .schedule = {.peak = 1e-2},
                                    .accumulate = 2,
                                    .ema = 0.9,
                                    .seed = 3,
                                    .session = *session};
    weft_batch_options rows = batch_options(WEFT_BATCH_LINES, ROWS * LENGTH);
    weft_corpus *corpus = make_corpus(4 * ROWS, LENGTH, false, 2);
    weft_batches *batches = weft_batches_new(corpus, &rows, error);
    weft_params *params = weft_params_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(batches);
    const weft_batch_source source = weft_batches_source(batches);
    weft_trainer *t = weft_trainer_new(&o, &source, params, error);
    weft_status status = t ? WEFT_OK : error->status;
    for (int i = 0; status == WEFT_OK && i < UPDATES; i++) {
        weft_update_report report;
        status = weft_trainer_update(t, 0, &report, error);
        if (status == WEFT_OK) add_number(to, report.loss);
    }
    double metric = 0;
    if (status == WEFT_OK) status = weft_trainer_evaluate(t, &source, 2, &metric, NULL, error);
    const weft_params *model = status == WEFT_OK ? weft_trainer_model(t, error) : NULL;
    if (status == WEFT_OK && !model) status = error->status;
    weft_tensor embedding;
    if (model && weft_params_find(model, "embedding", &embedding)) add_tensor(to, &embedding);
    add_number(to, metric);
    weft_trainer_free(t);
    weft_params_free(params);
    weft_batches_free(batches);
    weft_corpus_free(corpus);
    return status;
}

static const struct {
    const char *name;
    weft_status (*run)(const weft_session_options *session, numbers *to, weft_error *error);
    long memory; /* allocations of its own: arena, workspace, and when they grow */
} runners[] = {
    {"forward", forward, 3}, {"scorer", score, 2}, {"decoder", decode, 4}, {"trainer", train, 5}};
enum { N_RUNNERS = sizeof runners / sizeof *runners };

/* ---- Threads and memory ---- */

static bool same_numbers(const char *name, const numbers *got, const numbers *want)
{
    return want->n > 0 && got->n == want->n &&
           test_same_bits(name, WEFT_F64, got->x, want->x, (int64_t)want->n);
}

/* The bits of OpenMP's threads. */
static void test_pool(void)
{
    static numbers want, got;
    for (size_t i = 0; i < N_RUNNERS; i++) {
        weft_error error = WEFT_NO_ERROR;
        lent_workers w;
        lent_workers_begin(&w, 2);
        const weft_thread_pool pool = lent_pool(&w);
        const weft_session_options openmp = {.threads = 3};
        const weft_session_options lent = {.threads = 3, .pool = &pool, .poison = true};
        want.n = got.n = 0;
        CU_ASSERT_EQUAL(runners[i].run(&openmp, &want, &error), WEFT_OK);
        CU_ASSERT_EQUAL(w.runs, 0);
        CU_ASSERT_EQUAL(runners[i].run(&lent, &got, &error), WEFT_OK);
        CU_ASSERT_TRUE(same_numbers(runners[i].name, &got, &want));
        CU_ASSERT_TRUE(w.runs > 0);
        lent_workers_end(&w);
    }
}

static void test_counting(void)
{
    static numbers want, got;
    for (size_t i = 0; i < N_RUNNERS; i++) {
        weft_error error = WEFT_NO_ERROR;
        lent_counter c = {0};
        const weft_allocator from = lent_allocator(&c);
        want.n = got.n = 0;
        CU_ASSERT_EQUAL(runners[i].run(&(weft_session_options){0}, &want, &error), WEFT_OK);
        CU_ASSERT_EQUAL(runners[i].run(&(weft_session_options){.allocator = &from}, &got, &error),
                        WEFT_OK);
        CU_ASSERT_TRUE(same_numbers(runners[i].name, &got, &want));
        CU_ASSERT_TRUE(c.calls >= runners[i].memory);
        CU_ASSERT_TRUE(c.live == 0 && c.live_bytes == 0);
    }
}

static size_t failing; /* the runner whose memory fails */

static weft_status run_failing(const weft_allocator *from, weft_error *error)
{
    static numbers unused;
    unused.n = 0;
    return runners[failing].run(&(weft_session_options){.allocator = from}, &unused, error);
}

static void test_failing(void)
{
    for (failing = 0; failing < N_RUNNERS; failing++)
        test_each_lent_fails(run_failing, runners[failing].memory);
}

/* ---- Refusals ---- */

/* Options of a single session, and those that are wrong for every session. */
static void test_refused(void)
{
    static numbers unused;
    static char memory[64];
    static const void *user;
    weft_communicator *none = NULL;
    const weft_allocator half = {.allocate = lent_allocator(NULL).allocate};
    const struct {
        weft_session_options o;
        const char *message;
    } wrong[] = {
        {{.seed = 1}, "\"seed\" is not zero; expected threads, pool, allocator and poison"},
        {{.arena = memory}, "\"arena\" is not zero"},
        {{.arena_bytes = 64}, "\"arena\" is not zero"},
        {{.workspace = memory}, "\"workspace\" is not zero"},
        {{.workspace_bytes = 64}, "\"workspace\" is not zero"},
        {{.communicators = &none}, "\"communicators\" is not zero"},
        {{.n_communicators = 1}, "\"communicators\" is not zero"},
        {{.arena_user = &user}, "\"arena_user\" is not zero"},
        {{.threads = -1}, "-1 threads; expected 0"},
        {{.threads = WEFT_MAX_THREADS + 1}, "1025 threads; expected 0"},
        {{.allocator = &half}, "the allocator needs both"}};
    for (size_t i = 0; i < N_RUNNERS; i++)
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            weft_error error = WEFT_NO_ERROR;
            CU_ASSERT_EQUAL(runners[i].run(&wrong[k].o, &unused, &error), WEFT_BAD_ARGUMENT);
            CU_ASSERT_PTR_NOT_NULL(strstr(error.message, wrong[k].message));
        }
}

void lent_tests(void)
{
    CU_pSuite suite = CU_add_suite("lent", NULL, NULL);
    CU_add_test(suite, "threads of the program", test_pool);
    CU_add_test(suite, "memory of the program", test_counting);
    CU_add_test(suite, "memory of the program that fails", test_failing);
    CU_add_test(suite, "options of one session", test_refused);
}
