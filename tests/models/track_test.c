/* Running averages: what training steps and the trainer make of weft_track, alone and on several
 * processes, and what freezing them does. */
#include "ranks.h"
#include "tests.h"

#include <weft/fit.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 3, HIDDEN = 4, WIDE = 512, LAYERS = 6, ROWS = 5, TOTAL = 18, BATCHES = 4 };
#define MOMENTUM 0.1

/* ---- A model with a batch normalisation ---- */

/* Subtracts the mean and divides by the deviation: those of the batch, or the running ones. */
static weft_value normalise(weft_graph *g, weft_value h, bool training)
{
    const weft_shape shape = WEFT_SHAPE(HIDDEN);
    const weft_value running[2] = {weft_state(g, "norm.mean", WEFT_F64, shape, WEFT_INIT_ZEROS),
                                   weft_state(g, "norm.variance", WEFT_F64, shape, WEFT_INIT_ONES)};
    weft_value used[2] = {running[0], running[1]};
    const weft_value batch[2] = {weft_mean(g, h, WEFT_AXES(0), false),
                                 weft_variance(g, h, WEFT_AXES(0), false, 0)};
    for (int i = 0; training && i < 2; i++)
        if (weft_track(g, running[i], batch[i], MOMENTUM)) used[i] = batch[i];
    return weft_mul(g, weft_sub(g, h, used[0]), weft_rsqrt(g, weft_add_scalar(g, used[1], 1e-5)));
}

static weft_status build(void *context, weft_graph *g, const weft_build_options *options,
                         weft_built *built)
{
    (void)context;
    *built = (weft_built){.n_inputs = 1, .n_outputs = 1};
    built->inputs[0] = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(options->shape.rows, IN));
    const weft_value w = weft_param(g, "w", WEFT_F64, WEFT_SHAPE(IN, HIDDEN), WEFT_INIT_XAVIER);
    const weft_value v = weft_param(g, "v", WEFT_F64, WEFT_SHAPE(HIDDEN, 1), WEFT_INIT_XAVIER);
    weft_value h = weft_matmul(g, built->inputs[0], w);
    h = weft_tanh(g, normalise(g, h, options->training));
    /* Stages are cut where few bytes cross. */
    for (int i = 0; i < LAYERS; i++) {
        char name[8];
        snprintf(name, sizeof name, "u.%d", i);
        const weft_shape shape = i % 2 ? WEFT_SHAPE(WIDE, HIDDEN) : WEFT_SHAPE(HIDDEN, WIDE);
        h = weft_tanh(g, weft_matmul(g, h, weft_param(g, name, WEFT_F64, shape, WEFT_INIT_XAVIER)));
    }
    built->outputs[0] = weft_matmul(g, h, v);
    return weft_graph_status(g);
}

static const weft_fit fit = {.model = {.name = "normalised", .build = build},
                             .loss = WEFT_LOSS_MSE};

typedef struct data {
    double x[TOTAL][IN], y[TOTAL];
    weft_arrays *arrays;
} data;

static void make_data(data *d)
{
    uint64_t random = 5;
    weft_error error = {0};
    for (int r = 0; r < TOTAL; r++) {
        for (int i = 0; i < IN; i++) d->x[r][i] = test_uniform(&random, -1, 2);
        d->y[r] = test_uniform(&random, -1, 1);
    }
    const weft_array arrays[2] = {{"x", weft_tensor_dense(d->x, WEFT_F64, WEFT_SHAPE(TOTAL, IN))},
                                  {"y", weft_tensor_dense(d->y, WEFT_F64, WEFT_SHAPE(TOTAL))}};
    const weft_array_options o = {.rows = ROWS, .in_order = true};
    d->arrays = weft_arrays_new(&fit, arrays, 2, &o, &error);
    if (!d->arrays) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d->arrays);
}

static weft_trainer_options trainer_options(uint32_t accumulate)
{
    return (weft_trainer_options){
        .builder = weft_fit_builder(&fit),
        .optimizer = {.kind = WEFT_ADAMW, .adam = {.weight_decay = 0.1}, .max_norm = 0.01},
        .schedule = {.peak = 0.05},
        .accumulate = accumulate,
        .seed = 3,
        .session.threads = 1};
}

static weft_trainer *open_trainer(const weft_trainer_options *o, data *d, weft_params *params)
{
    weft_error error = {0};
    const weft_batch_source source = weft_arrays_source(d->arrays);
    weft_trainer *t = weft_trainer_new(o, &source, params, &error);
    if (!t) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

static const double *state(const weft_params *params, const char *name)
{
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_params_find(params, name, &t));
    return t.data;
}

/* ---- By hand ---- */

/* Mean and variance of hidden unit k over the rows [first, end). */
static void moments(const data *d, const double *w, int k, int first, int end, double *mean,
                    double *variance)
{
    double h[TOTAL];
    *mean = *variance = 0;
    for (int r = first; r < end; r++) {
        h[r] = 0;
        for (int i = 0; i < IN; i++) h[r] += d->x[r][i] * w[i * HIDDEN + k];
        *mean += h[r] / (end - first);
    }
    for (int r = first; r < end; r++) *variance += (h[r] - *mean) * (h[r] - *mean) / (end - first);
}

/* The averages after an update of all rows, in batches. */
static void expected(const data *d, const weft_params *before, double mean[HIDDEN],
                     double variance[HIDDEN])
{
    for (int k = 0; k < HIDDEN; k++) {
        double sums[2] = {0, 0};
        for (int first = 0; first < TOTAL; first += ROWS) {
            const int end = first + ROWS < TOTAL ? first + ROWS : TOTAL;
            double m, v;
            moments(d, state(before, "w"), k, first, end, &m, &v);
            sums[0] += (end - first) * m / TOTAL;
            sums[1] += (end - first) * v / TOTAL;
        }
        mean[k] = (1 - MOMENTUM) * state(before, "norm.mean")[k] + MOMENTUM * sums[0];
        variance[k] = (1 - MOMENTUM) * state(before, "norm.variance")[k] + MOMENTUM * sums[1];
    }
}

/* Weighted means of four batches, the last one smaller; and no part in norm, clipping or decay. */
static void test_by_hand(void)
{
    data d;
    make_data(&d);
    weft_params *params = weft_params_new();
    const weft_trainer_options o = trainer_options(BATCHES);
    weft_trainer *t = open_trainer(&o, &d, params);
    for (int step = 0; step < 3; step++) {
        double mean[HIDDEN], variance[HIDDEN];
        expected(&d, params, mean, variance);
        CU_ASSERT_EQUAL_FATAL(weft_trainer_update(t, 0, NULL, NULL), WEFT_OK);
        for (int k = 0; k < HIDDEN; k++) {
            CU_ASSERT_TRUE(test_near(state(params, "norm.mean")[k], mean[k]));
            CU_ASSERT_TRUE(test_near(state(params, "norm.variance")[k], variance[k]));
        }
    }
    CU_ASSERT_FALSE(weft_params_find(params, "opt.m.norm.mean", NULL));
    CU_ASSERT_TRUE(weft_params_find(params, "opt.m.w", NULL));
    weft_trainer_free(t);
    weft_params_free(params);
    weft_arrays_free(d.arrays);
}

/* The same by weft_train_update, which finds the averages itself. */
static void test_train_step(void)
{
    data d;
    make_data(&d);
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    weft_built built;
    const weft_build_options options = {.shape = {.rows = ROWS}, .training = true};
    const weft_builder builder = weft_fit_builder(&fit);
    builder.build(builder.context, g, &options, &built);
    const weft_value step =
        weft_train_update(g, built.loss, NULL, 0, weft_scalar(g, WEFT_F64, 0.1), NULL, NULL);
    weft_plan *plan = weft_plan_new(g, &step, 1, &(weft_plan_options){.verify = true}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(params, g, 1, &error), WEFT_OK);
    weft_session *s = weft_session_new(plan, params, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    double mean[HIDDEN], variance[HIDDEN];
    for (int k = 0; k < HIDDEN; k++)
        moments(&d, state(params, "w"), k, 0, ROWS, &mean[k], &variance[k]);
    weft_session_feed(s, built.inputs[0], d.x, ROWS * sizeof *d.x, NULL);
    weft_session_feed(s, built.inputs[1], d.y, ROWS * sizeof *d.y, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    for (int k = 0; k < HIDDEN; k++) {
        CU_ASSERT_TRUE(test_near(state(params, "norm.mean")[k], MOMENTUM * mean[k]));
        CU_ASSERT_TRUE(
            test_near(state(params, "norm.variance")[k], 1 - MOMENTUM + MOMENTUM * variance[k]));
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    weft_params_free(params);
    weft_arrays_free(d.arrays);
}

/* A plan of the record computes the value and leaves the state as it is. */
static void test_record(void)
{
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    const weft_shape two = WEFT_SHAPE(2);
    const weft_value s = weft_state(g, "s", WEFT_F32, two, WEFT_INIT_ONES);
    const weft_value value = weft_mul_scalar(g, weft_add_scalar(g, s, 2), 3);
    size_t n_tracked;
    CU_ASSERT_TRUE(weft_track(g, s, value, 0.5));
    const weft_tracked *list = weft_graph_tracked(g, &n_tracked);
    CU_ASSERT_EQUAL_FATAL(n_tracked, 1);
    const weft_tracked tracked = *list;
    CU_ASSERT_TRUE(tracked.state.id == s.id && tracked.value.id == value.id);
    CU_ASSERT_EQUAL(tracked.momentum, 0.5);
    CU_ASSERT_EQUAL(weft_graph_verify(g, &error), WEFT_OK);
    const weft_value targets[2] = {tracked.node, value};
    weft_plan *plan = weft_plan_new(g, targets, 2, &(weft_plan_options){.verify = true}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    CU_ASSERT_EQUAL(weft_params_init(params, g, 1, &error), WEFT_OK);
    weft_session *session = weft_session_new(plan, params, NULL, &error);
    float got[2];
    CU_ASSERT_EQUAL(weft_session_run(session, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(session, value, got, sizeof got, NULL), WEFT_OK);
    CU_ASSERT_TRUE(got[0] == 9 && got[1] == 9);
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_params_find(params, "s", &t));
    CU_ASSERT_EQUAL(*(const float *)t.data, 1);
    weft_session_free(session);
    weft_plan_free(plan);
    weft_graph_free(g);
    weft_params_free(params);
}

/* ---- Frozen ---- */

/* Frozen averages keep their contents and are what the layer uses. */
static void test_frozen(void)
{
    data d;
    make_data(&d);
    weft_params *params = weft_params_new();
    const weft_param_group frozen = {.names = "norm.*,w", .frozen = true};
    weft_trainer_options o = trainer_options(BATCHES);
    o.optimizer.groups = &frozen;
    o.optimizer.n_groups = 1;
    weft_trainer *t = open_trainer(&o, &d, params);
    const weft_batch_source source = weft_arrays_source(d.arrays);
    weft_update_report report;
    double loss;
    CU_ASSERT_EQUAL(weft_trainer_evaluate(t, &source, 0, &loss, NULL, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_trainer_update(t, 0, &report, NULL), WEFT_OK);
    CU_ASSERT_TRUE(test_near(report.loss, loss));
    for (int k = 0; k < HIDDEN; k++) {
        CU_ASSERT_EQUAL(state(params, "norm.mean")[k], 0);
        CU_ASSERT_EQUAL(state(params, "norm.variance")[k], 1);
    }
    CU_ASSERT_FALSE(weft_params_find(params, "opt.m.w", NULL));
    CU_ASSERT_TRUE(weft_params_find(params, "opt.m.v", NULL));
    weft_trainer_free(t);
    weft_params_free(params);
    weft_arrays_free(d.arrays);
}

/* ---- Several processes ---- */

typedef struct job {
    weft_trainer_options o;
    weft_trainer_processes processes;
    data d[MAX_RANKS];
    double states[MAX_RANKS][2][HIDDEN], w[MAX_RANKS], metric[MAX_RANKS];
} job;

static void train(rank *r)
{
    job *j = r->shared;
    const int me = r->communicator ? r->communicator->rank : 0;
    weft_trainer_options o = j->o;
    weft_trainer_processes processes = j->processes;
    weft_params *params = weft_params_new();
    const weft_batch_source source = weft_arrays_source(j->d[me].arrays);
    processes.communicator = r->communicator;
    o.processes = &processes;
    weft_trainer *t = weft_trainer_new(&o, &source, params, &r->error);
    for (int i = 0; t && i < 3 && r->error.status == WEFT_OK; i++)
        weft_trainer_update(t, 0, NULL, &r->error);
    if (t && r->error.status == WEFT_OK)
        weft_trainer_evaluate(t, &source, 0, &j->metric[me], NULL, &r->error);
    const weft_params *model =
        t && r->error.status == WEFT_OK ? weft_trainer_model(t, &r->error) : NULL;
    weft_tensor x;
    if (model && weft_params_find(model, "norm.mean", &x))
        memcpy(j->states[me][0], x.data, sizeof j->states[me][0]);
    if (model && weft_params_find(model, "norm.variance", &x))
        memcpy(j->states[me][1], x.data, sizeof j->states[me][1]);
    if (model && weft_params_find(model, "w", &x)) j->w[me] = *(const double *)x.data;
    weft_trainer_free(t);
    weft_params_free(params);
}

static void train_on(int size, int zero, int stages, double ema, job *j)
{
    rank ranks[MAX_RANKS];
    memset(j, 0, sizeof *j);
    for (int r = 0; r < size; r++) make_data(&j->d[r]);
    j->o = trainer_options(BATCHES);
    j->o.ema = ema;
    j->processes = weft_trainer_processes_of(NULL);
    j->processes.zero = zero;
    j->processes.stages = stages;
    j->processes.bucket_bytes = 64;
    run_ranks(size, train, j, ranks);
    expect_good(ranks, size);
    for (int r = 0; r < size; r++) weft_arrays_free(j->d[r].arrays);
}

/* The bits of one process, with everything that processes can divide among them. */
static void test_processes(void)
{
    static job alone, several;
    for (int ema = 0; ema < 2; ema++) {
        train_on(1, 1, 1, 0.9 * ema, &alone);
        CU_ASSERT_TRUE(alone.states[0][0][0] != 0);
        for (int zero = 1; zero <= 3; zero++)
            for (int size = 2; size <= 4; size += 2) {
                train_on(size, zero, 1, 0.9 * ema, &several);
                for (int r = 0; r < size; r++) {
                    CU_ASSERT_EQUAL(
                        memcmp(alone.states[0], several.states[r], sizeof *alone.states), 0);
                    CU_ASSERT_EQUAL(alone.w[0], several.w[r]);
                    CU_ASSERT_EQUAL(alone.metric[0], several.metric[r]);
                }
            }
    }
}

/* A stage has the averages of its layers. */
static void test_stages(void)
{
    static job alone, several;
    train_on(1, 1, 1, 0, &alone);
    for (int size = 2; size <= 4; size += 2) {
        train_on(size, 1, 2, 0, &several);
        for (int r = 0; r < size; r++)
            for (int i = 0; i < 2; i++)
                for (int k = 0; k < HIDDEN; k++)
                    CU_ASSERT_DOUBLE_EQUAL(several.states[r][i][k], alone.states[0][i][k],
                                           ROUNDING_F64);
    }
}

/* ---- Errors ---- */

static void refused(weft_graph *g, weft_status status, const char *message)
{
    CU_ASSERT_EQUAL(weft_graph_status(g), status);
    if (!strstr(weft_graph_error(g)->message, message))
        printf("\n    \"%s\", not \"%s\"\n", weft_graph_error(g)->message, message);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, message));
    weft_graph_free(g);
}

static void test_errors(void)
{
    const weft_shape two = WEFT_SHAPE(2), three = WEFT_SHAPE(3);
    weft_graph *g;
    weft_value s;
#define BEGIN                                                                                      \
    g = weft_graph_new();                                                                          \
    s = weft_state(g, "s", WEFT_F32, two, WEFT_INIT_ZEROS)
    BEGIN;
    CU_ASSERT_FALSE(weft_track(g, s, weft_fill(g, WEFT_F32, two, 1), 1.5));
    refused(g, WEFT_BAD_ARGUMENT, "the momentum must be in [0, 1]");
    BEGIN;
    CU_ASSERT_FALSE(weft_track(g, s, weft_fill(g, WEFT_F32, three, 1), 0.5));
    refused(g, WEFT_BAD_SHAPE, "the state is f32 [2], the value f32 [3]");
    BEGIN;
    CU_ASSERT_FALSE(weft_track(g, s, weft_fill(g, WEFT_F64, two, 1), 0.5));
    refused(g, WEFT_BAD_DTYPE, "the value f64 [2]");
    BEGIN;
    CU_ASSERT_TRUE(weft_track(g, s, weft_fill(g, WEFT_F32, two, 1), 0.5));
    CU_ASSERT_FALSE(weft_track(g, s, weft_fill(g, WEFT_F32, two, 1), 0.5));
    refused(g, WEFT_BAD_ARGUMENT, "the state is tracked already");
    BEGIN;
    s = weft_param(g, "p", WEFT_F32, two, WEFT_INIT_ZEROS);
    CU_ASSERT_FALSE(weft_track(g, s, weft_fill(g, WEFT_F32, two, 1), 0.5));
    refused(g, WEFT_BAD_ARGUMENT, "is a trainable parameter");
    BEGIN;
    s = weft_input(g, "x", WEFT_F32, two);
    CU_ASSERT_FALSE(weft_track(g, s, s, 0.5));
    refused(g, WEFT_BAD_ARGUMENT, "the value is not a state of this graph");
    CU_ASSERT_FALSE(weft_track(NULL, s, s, 0.5));
    CU_ASSERT_EQUAL(test_count_tracked(NULL), 0);
#undef BEGIN
}

static void test_order(void)
{
    weft_graph *g = weft_graph_new();
    const weft_shape two = WEFT_SHAPE(2);
    const weft_value s = weft_state(g, "s", WEFT_F32, two, WEFT_INIT_ZEROS);
    const weft_value p = weft_param(g, "p", WEFT_F32, two, WEFT_INIT_ZEROS);
    const weft_value one = weft_fill(g, WEFT_F32, two, 1), lr = weft_scalar(g, WEFT_F32, 1);
    CU_ASSERT_TRUE(weft_track(g, s, one, 0.5));
    weft_apply_gradients(
        g, &(weft_gradients){(weft_value[2]){s, p}, (weft_value[2]){one, one}, 2, WEFT_NO_VALUE},
        lr, NULL, NULL, NULL);
    refused(g, WEFT_BAD_ARGUMENT,
            "running averages must come after all parameters, got one before p");
}

/* A training with a running average: every allocation fails once. */
static weft_status train_once(const char *path)
{
    weft_error error = {0};
    double x[2][IN] = {{1, 2, 3}, {0, 1, -1}}, y[2] = {1, 0};
    const weft_array arrays[2] = {{"x", weft_tensor_dense(x, WEFT_F64, WEFT_SHAPE(2, IN))},
                                  {"y", weft_tensor_dense(y, WEFT_F64, WEFT_SHAPE(2))}};
    const weft_array_options o = {.rows = 1};
    const weft_param_group frozen = {.names = "*.variance,u.*", .frozen = true};
    weft_trainer_options options = trainer_options(2);
    weft_params *params = weft_params_new();
    weft_trainer *t = NULL;
    (void)path;
    options.optimizer.groups = &frozen;
    options.optimizer.n_groups = 1;
    weft_arrays *a = weft_arrays_new(&fit, arrays, 2, &o, &error);
    if (!params) error.status = WEFT_NO_MEMORY;
    if (a && params) {
        const weft_batch_source source = weft_arrays_source(a);
        t = weft_trainer_new(&options, &source, params, &error);
        double loss;
        if (t && weft_trainer_update(t, 0, NULL, &error) == WEFT_OK)
            weft_trainer_evaluate(t, &source, 0, &loss, NULL, &error);
    }
    weft_trainer_free(t);
    weft_params_free(params);
    weft_arrays_free(a);
    return error.status;
}

static void test_no_memory(void)
{
    test_fail_all(train_once);
}

void track_tests(void)
{
    CU_pSuite s = CU_add_suite("track", NULL, NULL);
    CU_add_test(s, "averages of batches equal those by hand", test_by_hand);
    CU_add_test(s, "weft_train_update", test_train_step);
    CU_add_test(s, "a plan of the record", test_record);
    CU_add_test(s, "frozen", test_frozen);
    CU_add_test(s, "several processes", test_processes);
    CU_add_test(s, "stages", test_stages);
    CU_add_test(s, "errors", test_errors);
    CU_add_test(s, "order of the lists", test_order);
    CU_add_test(s, "no memory", test_no_memory);
}
