/* The trainer: accumulation against one large batch, the moving average by hand, resumed against
 * uninterrupted trainings, steps that are not finite. */
#include "tests.h"
#include "token_batches.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The trainer ---- */

typedef struct rig {
    weft_corpus *corpus;
    weft_batches *batches;
    weft_params *params;
    weft_trainer *trainer;
} rig;

static const char *const tiny[] = {"vocab=40", "d_model=8",        "heads=2",
                                   "d_ff=12",  "encoder_layers=1", "decoder_layers=1",
                                   "f64=1",    "dropout=0.1"};
#define N_TINY (sizeof tiny / sizeof *tiny)

static weft_trainer_options trainer_options(void)
{
    return (weft_trainer_options){.builder = test_builder("transformer", tiny, N_TINY),
                                  .optimizer = WEFT_ADAM_DEFAULT,
                                  .schedule = {WEFT_SCHEDULE_INVERSE_SQRT, 1e-2, 0, 4, 0},
                                  .seed = 3};
}

/* A trainer on batches of `batch_rows` rows of one length. `load`: a checkpoint to resume, or NULL.
 */
static rig open_rig(const weft_trainer_options *o, int64_t batch_rows, size_t sequences,
                    const char *load)
{
    weft_error error = {0};
    rig r = {.corpus = make_corpus(sequences, 11, true, 2), .params = weft_params_new()};
    weft_batch_options b = batch_options(WEFT_BATCH_PAIRS, 12 * batch_rows);
    b.lengths[0] = 12;
    b.n_lengths = 1;
    r.batches = weft_batches_new(r.corpus, &b, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r.batches);
    if (load) CU_ASSERT_EQUAL_FATAL(weft_params_load(r.params, load, &error), WEFT_OK);
    r.trainer = test_new_trainer(o, r.batches, r.params, &error);
    if (!r.trainer) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r.trainer);
    return r;
}

static void close_rig(rig *r)
{
    weft_trainer_free(r->trainer);
    weft_batches_free(r->batches);
    weft_corpus_free(r->corpus);
    weft_params_free(r->params);
}

static void take_steps(rig *r, int n)
{
    for (int i = 0; i < n; i++)
        CU_ASSERT_EQUAL_FATAL(weft_trainer_update(r->trainer, 0, NULL, NULL), WEFT_OK);
}

/* The maximum difference of any element, over the tensors of `a` whose names do not begin with
 * `without`. */
static double difference(const weft_params *a, const weft_params *b, const char *without)
{
    double worst = 0;
    for (size_t i = 0; i < weft_params_count(a); i++) {
        weft_tensor x, y;
        const char *name = weft_params_name(a, i);
        if (without && !strncmp(name, without, strlen(without))) continue;
        weft_params_find(a, name, &x);
        if (!weft_params_find(b, name, &y)) return INFINITY;
        for (int64_t k = 0; k < weft_shape_numel(x.shape); k++)
            worst = fmax(worst, fabs(((double *)x.data)[k] - ((double *)y.data)[k]));
    }
    return worst;
}

static void test_accumulation(void)
{
    static const char *const still[] = {"vocab=40", "d_model=8",        "heads=2",
                                        "d_ff=12",  "encoder_layers=1", "decoder_layers=1",
                                        "f64=1",    "dropout=0"};
    weft_trainer_options o = trainer_options();
    o.builder = test_builder("transformer", still, N_TINY);
    for (int kind = 0; kind < 2; kind++) {
        weft_update_report whole, parts;
        o.optimizer.kind = kind ? WEFT_ADAMW : WEFT_SGD;
        o.optimizer.sgd.momentum = 0.9;
        o.accumulate = 0;
        rig once = open_rig(&o, 12, 12, NULL);
        o.accumulate = 4;
        rig often = open_rig(&o, 3, 12, NULL);
        CU_ASSERT_EQUAL(weft_batches_counts(once.batches).batches, 1);
        CU_ASSERT_EQUAL(weft_batches_counts(often.batches).batches, 4);
        for (int i = 0; i < 3; i++) {
            CU_ASSERT_EQUAL_FATAL(weft_trainer_update(once.trainer, 0, &whole, NULL), WEFT_OK);
            CU_ASSERT_EQUAL_FATAL(weft_trainer_update(often.trainer, 0, &parts, NULL), WEFT_OK);
            CU_ASSERT_EQUAL(whole.tokens, parts.tokens);
            CU_ASSERT_TRUE(fabs(whole.loss - parts.loss) < ROUNDING_F64);
            CU_ASSERT_TRUE(fabs(whole.norm - parts.norm) < ROUNDING_F64);
        }
        /* Where a gradient is rounding only, Adam divides it by eps = 1e-9: a step of at most 1e-2
         * changes by 1e-2 * 1e-15 / 1e-9 = 1e-8, and there are three steps. */
        double off = difference(once.params, often.params, NULL);
        CU_ASSERT_TRUE(off < (kind ? 3e-8 : ROUNDING_F64));
        CU_ASSERT_EQUAL(weft_trainer_progress_of(often.trainer).updates, 3);
        close_rig(&once);
        close_rig(&often);
    }
}

/* An update of plain SGD moves each parameter by the learning rate times the gradient that is
 * retained. Retaining it, and a budget of memory, change nothing else. */
static void test_gradients(void)
{
    weft_trainer_options o = trainer_options();
    o.optimizer = (weft_optimizer){.kind = WEFT_SGD};
    o.accumulate = 2;
    rig plain = open_rig(&o, 3, 12, NULL);
    o.retain_gradients = true;
    o.memory_budget = 10000000;
    rig r = open_rig(&o, 3, 12, NULL);
    weft_tensor g, x;
    size_t seen = 0;
    CU_ASSERT_FALSE(weft_trainer_gradient(r.trainer, "enc.0.ffn.in.weight", &g));
    take_steps(&plain, 2);
    take_steps(&r, 1);
    weft_params *before = weft_params_new();
    for (size_t i = 0; i < weft_params_count(r.params); i++) {
        const char *name = weft_params_name(r.params, i);
        weft_tensor copy;
        weft_params_find(r.params, name, &x);
        CU_ASSERT_EQUAL_FATAL(weft_params_add(before, name, x.dtype, x.shape, &copy, NULL),
                              WEFT_OK);
        memcpy(copy.data, x.data, weft_tensor_bytes(x.dtype, x.shape));
    }
    weft_update_report report;
    CU_ASSERT_EQUAL(weft_trainer_update(r.trainer, 0, &report, NULL), WEFT_OK);
    for (size_t i = 0; i < weft_params_count(before); i++) {
        const char *name = weft_params_name(before, i);
        weft_tensor old;
        double off = 0;
        if (!weft_trainer_gradient(r.trainer, name, &g)) continue;
        weft_params_find(before, name, &old);
        weft_params_find(r.params, name, &x);
        CU_ASSERT_TRUE_FATAL(weft_shape_equal(g.shape, x.shape) && g.dtype == WEFT_F64);
        for (int64_t k = 0; k < weft_shape_numel(x.shape); k++)
            off = fmax(off, fabs(((double *)old.data)[k] - report.lr * ((double *)g.data)[k] -
                                 ((double *)x.data)[k]));
        /* A product and two differences of numbers below 2: 3 * 2^-52 = 7e-16. */
        CU_ASSERT_TRUE(off < 1e-15);
        seen++;
    }
    CU_ASSERT_TRUE(seen > 20);
    CU_ASSERT_EQUAL(difference(plain.params, r.params, NULL), 0);
    CU_ASSERT_FALSE(weft_trainer_gradient(plain.trainer, "enc.0.ffn.in.weight", &g));
    CU_ASSERT_FALSE(weft_trainer_gradient(r.trainer, "nothing", &g));
    CU_ASSERT_FALSE(weft_trainer_gradient(NULL, "enc.0.ffn.in.weight", &g));
    weft_params_free(before);
    close_rig(&plain);
    close_rig(&r);
}

static void test_moving_average(void)
{
    weft_trainer_options o = trainer_options();
    o.ema = 0.25;
    rig r = open_rig(&o, 4, 20, NULL);
    const char *name = "enc.0.ffn.in.weight";
    weft_tensor p, ema;
    double mine = 0;
    for (int i = 0; i < 8; i++) {
        take_steps(&r, 1);
        weft_params_find(r.params, name, &p);
        CU_ASSERT_TRUE_FATAL(weft_params_find(r.params, "ema.enc.0.ffn.in.weight", &ema));
        double decay = fmin(0.25, (double)i / (i + 10));
        mine = decay * mine + (1 - decay) * ((double *)p.data)[5];
        CU_ASSERT_TRUE(test_near(((double *)ema.data)[5], mine));
    }
    /* What is evaluated and saved to be used is the average. */
    char path[64];
    snprintf(path, sizeof path, "/tmp/weft-train-%ld.safetensors", (long)getpid());
    CU_ASSERT_EQUAL(weft_trainer_save_model(r.trainer, path, NULL), WEFT_OK);
    weft_params *model = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_load(model, path, NULL), WEFT_OK);
    weft_tensor saved;
    CU_ASSERT_TRUE_FATAL(weft_params_find(model, name, &saved));
    CU_ASSERT_EQUAL(((double *)saved.data)[5], ((double *)ema.data)[5]);
    CU_ASSERT_FALSE(weft_params_find(model, "opt.step", NULL));
    CU_ASSERT_PTR_NULL(weft_params_meta(model, "train.state"));
    CU_ASSERT_STRING_EQUAL(weft_params_meta(model, "model"), "transformer");
    CU_ASSERT_STRING_EQUAL(weft_params_meta(model, "step"), "8");
    double averaged, raw, tokens_of_raw;
    size_t tokens;
    CU_ASSERT_EQUAL(test_evaluate(r.trainer, r.batches, 0, &averaged, &tokens), WEFT_OK);
    CU_ASSERT_EQUAL(tokens, weft_batches_counts(r.batches).tokens);
    weft_trainer_options plain = trainer_options();
    rig other = open_rig(&plain, 4, 20, path);
    CU_ASSERT_EQUAL(test_evaluate(other.trainer, other.batches, 0, &raw, &tokens), WEFT_OK);
    tokens_of_raw = (double)tokens;
    CU_ASSERT_TRUE(tokens_of_raw > 0 && test_near(raw, averaged));
    unlink(path);
    weft_params_free(model);
    close_rig(&other);
    close_rig(&r);
}

/* An average that is new in a resumed training begins with the parameters. */
static void test_late_average(void)
{
    const char *name = "enc.0.ffn.in.weight";
    char path[64];
    snprintf(path, sizeof path, "/tmp/weft-late-%ld.safetensors", (long)getpid());
    for (uint32_t accumulate = 1; accumulate <= 2; accumulate++) {
        weft_trainer_options o = trainer_options();
        o.accumulate = accumulate;
        rig r = open_rig(&o, 4, 20, NULL);
        take_steps(&r, 6);
        weft_tensor p, ema;
        CU_ASSERT_EQUAL(weft_trainer_save(r.trainer, path, NULL), WEFT_OK);
        close_rig(&r);
        o.ema = 0.25;
        r = open_rig(&o, 4, 20, path);
        CU_ASSERT_TRUE_FATAL(weft_params_find(r.params, name, &p));
        double before = ((double *)p.data)[5];
        take_steps(&r, 1);
        CU_ASSERT_TRUE_FATAL(weft_params_find(r.params, "ema.enc.0.ffn.in.weight", &ema));
        CU_ASSERT_TRUE(
            test_near(((double *)ema.data)[5], 0.25 * before + 0.75 * ((double *)p.data)[5]));
        unlink(path);
        close_rig(&r);
    }
}

static bool same_files(const char *a, const char *b)
{
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    bool same = x && y;
    size_t n = 0;
    while (same) {
        int c = getc(x), d = getc(y);
        same = c == d;
        if (c == EOF || d == EOF) break;
        n++;
    }
    if (x) fclose(x);
    if (y) fclose(y);
    return same && n > 1000;
}

/* A training that is resumed by a new trainer at every step, with evaluations in between. */
static void test_resume(void)
{
    char whole[64], parts[64];
    double nll;
    snprintf(whole, sizeof whole, "/tmp/weft-whole-%ld.safetensors", (long)getpid());
    snprintf(parts, sizeof parts, "/tmp/weft-parts-%ld.safetensors", (long)getpid());
    for (uint32_t accumulate = 1; accumulate <= 3; accumulate += 2) {
        weft_trainer_options o = trainer_options();
        o.accumulate = accumulate;
        o.ema = 0.9;
        o.session.threads = 1;
        rig r = open_rig(&o, 4, 30, NULL);
        take_steps(&r, 9);
        weft_trainer_judge(r.trainer, 1.5);
        CU_ASSERT_EQUAL(weft_trainer_save(r.trainer, whole, NULL), WEFT_OK);
        weft_trainer_progress wanted = weft_trainer_progress_of(r.trainer);
        CU_ASSERT_TRUE(wanted.epoch > 0);
        close_rig(&r);
        for (int i = 0; i < 9; i++) {
            o.session.threads = 1 + i % 3;
            r = open_rig(&o, 4, 30, i ? parts : NULL);
            CU_ASSERT_EQUAL(test_evaluate(r.trainer, r.batches, 2, &nll, NULL), WEFT_OK);
            take_steps(&r, 1);
            CU_ASSERT_EQUAL(test_evaluate(r.trainer, r.batches, 0, &nll, NULL), WEFT_OK);
            if (i == 8) weft_trainer_judge(r.trainer, 1.5);
            CU_ASSERT_EQUAL(weft_trainer_save(r.trainer, parts, NULL), WEFT_OK);
            close_rig(&r);
        }
        CU_ASSERT_TRUE(same_files(whole, parts));
        /* What it was trained with holds. */
        weft_error error;
        weft_params *params = weft_params_new();
        weft_corpus *c = make_corpus(30, 11, true, 2);
        weft_batch_options b = batch_options(WEFT_BATCH_PAIRS, 48);
        b.lengths[0] = 12;
        b.n_lengths = 1;
        weft_batches *batches = weft_batches_new(c, &b, &error);
        CU_ASSERT_EQUAL(weft_params_load(params, whole, &error), WEFT_OK);
        o.seed = 4;
        CU_ASSERT_PTR_NULL(test_new_trainer(&o, batches, params, &error));
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "with seed 3, not 4"));
        o.seed = 3;
        static const char *const wider[] = {"vocab=40", "d_model=16"};
        o.builder = test_builder("transformer", wider, 2);
        CU_ASSERT_PTR_NULL(test_new_trainer(&o, batches, params, &error));
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "with d_model=8, not 16"));
        weft_batches_free(batches);
        weft_corpus_free(c);
        weft_params_free(params);
    }
    unlink(whole);
    unlink(parts);
}

/* The mean of 31 losses, against its definition: weights 0.98^(n - i), divided by their sum. The
 * sums of both are of 31 terms near 4, so rounding is below 31 x 4 x 2^-53 = 1.4e-14. */
static void test_smoothed(void)
{
    weft_trainer_options o = trainer_options();
    rig r = open_rig(&o, 4, 30, NULL);
    double sum = 0, weights = 0;
    for (int i = 0; i < 31; i++) {
        weft_update_report report;
        CU_ASSERT_EQUAL_FATAL(weft_trainer_update(r.trainer, 0, &report, NULL), WEFT_OK);
        sum = 0.98 * sum + report.loss;
        weights = 0.98 * weights + 1;
        const double smoothed = weft_trainer_progress_of(r.trainer).smoothed;
        CU_ASSERT_DOUBLE_EQUAL(smoothed, sum / weights, 1e-13);
        if (i == 0) CU_ASSERT_EQUAL(smoothed, report.loss);
    }
    close_rig(&r);
}

static void test_judging(void)
{
    weft_trainer_options o = trainer_options();
    rig r = open_rig(&o, 4, 20, NULL);
    CU_ASSERT_TRUE(isnan(weft_trainer_progress_of(r.trainer).best));
    CU_ASSERT_FALSE(weft_trainer_judge(r.trainer, NAN));
    CU_ASSERT_TRUE(weft_trainer_judge(r.trainer, 2));
    CU_ASSERT_FALSE(weft_trainer_judge(r.trainer, 2));
    CU_ASSERT_FALSE(weft_trainer_judge(r.trainer, 3));
    CU_ASSERT_EQUAL(weft_trainer_progress_of(r.trainer).stale, 2);
    CU_ASSERT_TRUE(weft_trainer_judge(r.trainer, 1));
    CU_ASSERT_EQUAL(weft_trainer_progress_of(r.trainer).stale, 0);
    CU_ASSERT_EQUAL(weft_trainer_progress_of(r.trainer).best, 1);
    close_rig(&r);
}

/* ---- What is not finite ---- */

static weft_params *copy_store(const weft_params *params)
{
    weft_params *copy = weft_params_new();
    for (size_t i = 0; i < weft_params_count(params); i++) {
        weft_tensor from, to;
        weft_params_find(params, weft_params_name(params, i), &from);
        weft_params_add(copy, weft_params_name(params, i), from.dtype, from.shape, &to, NULL);
        memcpy(to.data, from.data, weft_tensor_bytes(from.dtype, from.shape));
    }
    return copy;
}

static bool same_stores(const weft_params *a, const weft_params *b, const char *without)
{
    for (size_t i = 0; i < weft_params_count(a); i++) {
        weft_tensor x, y;
        const char *name = weft_params_name(a, i);
        if (!strncmp(name, without, strlen(without))) continue;
        weft_params_find(a, name, &x);
        if (!weft_params_find(b, name, &y)) return false;
        if (!test_same_tensors("x", &x, &y)) return false;
    }
    return true;
}

/* Stops the training at call number limit + 1. */
typedef struct patience {
    int asked, limit;
} patience;

static bool ask(void *context)
{
    patience *p = context;
    return ++p->asked > p->limit;
}

/* A stopped call changes nothing, even if an epoch ends within the step. */
static void test_stop(void)
{
    for (int limit = 0; limit < 3; limit++) {
        patience p = {.asked = INT_MIN / 2, .limit = limit};
        weft_trainer_options o = trainer_options(), plain = o;
        o.accumulate = plain.accumulate = 3;
        o.ema = plain.ema = 0.5;
        o.stop = ask;
        o.stop_context = &p;
        rig r = open_rig(&o, 4, 20, NULL), straight = open_rig(&plain, 4, 20, NULL);
        take_steps(&r, 1);
        weft_params *before = copy_store(r.params);
        p.asked = 0;
        weft_error error;
        CU_ASSERT_EQUAL(weft_trainer_update(r.trainer, 0, NULL, &error), WEFT_CANCELLED);
        CU_ASSERT_EQUAL(p.asked, limit + 1);
        CU_ASSERT_EQUAL(error.status, WEFT_CANCELLED);
        CU_ASSERT_TRUE(same_stores(before, r.params, "sum."));
        CU_ASSERT_EQUAL(weft_trainer_progress_of(r.trainer).updates, 1);
        p.asked = 0;
        double nll = 0;
        CU_ASSERT_EQUAL(test_evaluate(r.trainer, r.batches, 0, &nll, NULL), WEFT_CANCELLED);
        CU_ASSERT_TRUE(isnan(nll));
        p.asked = INT_MIN / 2;
        take_steps(&r, 4);
        take_steps(&straight, 5);
        CU_ASSERT_TRUE(same_stores(straight.params, r.params, "none."));
        weft_params_free(before);
        close_rig(&straight);
        close_rig(&r);
    }
}

/* weft_trainer_model returns the trained store, or the current averages. */
static void test_model(void)
{
    weft_trainer_options o = trainer_options();
    rig plain = open_rig(&o, 4, 20, NULL);
    CU_ASSERT_PTR_EQUAL(weft_trainer_model(plain.trainer, NULL), plain.params);
    CU_ASSERT_PTR_NULL(weft_trainer_model(NULL, NULL));
    close_rig(&plain);
    o.ema = 0.5;
    rig r = open_rig(&o, 4, 20, NULL);
    for (int step = 1; step <= 2; step++) {
        weft_tensor mean, averaged;
        take_steps(&r, 1);
        const weft_params *model = weft_trainer_model(r.trainer, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(model);
        CU_ASSERT_TRUE_FATAL(weft_params_find(model, "enc.0.ffn.in.weight", &mean));
        CU_ASSERT_TRUE_FATAL(weft_params_find(r.params, "ema.enc.0.ffn.in.weight", &averaged));
        CU_ASSERT_EQUAL(((double *)mean.data)[3], ((double *)averaged.data)[3]);
    }
    close_rig(&r);
}

static void test_infinite_parameter(void)
{
    for (uint32_t accumulate = 1; accumulate <= 2; accumulate++) {
        weft_trainer_options o = trainer_options();
        o.accumulate = accumulate;
        o.ema = 0.5;
        rig r = open_rig(&o, 4, 20, NULL);
        weft_tensor w;
        take_steps(&r, 3);
        CU_ASSERT_TRUE_FATAL(weft_params_find(r.params, "enc.0.ffn.in.weight", &w));
        double was = ((double *)w.data)[17];
        ((double *)w.data)[17] = INFINITY;
        weft_params *before = copy_store(r.params);
        weft_trainer_progress state = weft_trainer_progress_of(r.trainer);
        weft_error e;
        CU_ASSERT_EQUAL(weft_trainer_update(r.trainer, 0, NULL, &e), WEFT_NOT_FINITE);
        CU_ASSERT_STRING_EQUAL(e.where, "enc.0.ffn.in.weight");
        CU_ASSERT_PTR_NOT_NULL(strstr(e.message, "holds an infinity at [1, 5] of [8, 12]"));
        CU_ASSERT_PTR_NOT_NULL(strstr(e.message, "step 4 was not made"));
        CU_ASSERT_TRUE(same_stores(before, r.params, accumulate > 1 ? "sum." : "none."));
        CU_ASSERT_EQUAL(weft_trainer_progress_of(r.trainer).updates, state.updates);
        CU_ASSERT_EQUAL(weft_trainer_progress_of(r.trainer).batch, state.batch);
        /* With the parameter restored, training continues with the bits of an undisturbed run. */
        ((double *)w.data)[17] = was;
        take_steps(&r, 5);
        rig straight = open_rig(&o, 4, 20, NULL);
        take_steps(&straight, 8);
        CU_ASSERT_TRUE(same_stores(straight.params, r.params, "none."));
        weft_params_free(before);
        close_rig(&straight);
        close_rig(&r);
    }
}

/* The error names the first node that is not finite, not one that passes it on, nor a masked score.
 */
static void test_first_node(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3));
    weft_value mask = weft_input(g, "mask", WEFT_BOOL, WEFT_SHAPE(2, 3));
    weft_value hidden = weft_softmax(g, weft_masked_fill(g, x, mask, -INFINITY), -1);
    weft_graph_push_scope(g, "enc.0.ffn");
    weft_value root = weft_sqrt(g, weft_add_scalar(g, x, -1.5));
    weft_graph_pop_scope(g);
    weft_value y = weft_sum(g, weft_mul(g, weft_exp(g, root), hidden), WEFT_AXES(0, 1), false);
    weft_value counter = weft_state(g, "counter", WEFT_F32, WEFT_SCALAR, WEFT_INIT_ZEROS);
    weft_value more = weft_require_finite(g, weft_add_scalar(g, counter, 1), &y, 1);
    weft_value counted = weft_assign(g, counter, more);
    weft_error error = {0};
    weft_params *params = weft_params_new();
    weft_plan *plan = weft_plan_new(g, (weft_value[]){y, counted}, 2, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    weft_params_init(params, g, 1, &error);
    weft_session *s = weft_session_new(plan, params, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    float good[6] = {2, 3, 4, 5, 6, 7}, bad[6] = {2, 3, 4, 5, 1, 0}, count = -1;
    const uint8_t masked[6] = {0, 1, 0, 1, 1, 0};
    weft_session_feed(s, mask, masked, sizeof masked, NULL);
    weft_session_feed(s, x, good, sizeof good, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_find_nonfinite(s, &error), WEFT_OK);
    weft_session_feed(s, x, bad, sizeof bad, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, &error), WEFT_NOT_FINITE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "is not finite"));
    CU_ASSERT_EQUAL(weft_session_find_nonfinite(s, &error), WEFT_NOT_FINITE);
    CU_ASSERT_STRING_EQUAL(error.where, "enc.0.ffn/sqrt");
    CU_ASSERT_STRING_EQUAL(error.message, "produced NaN at [1, 1] of [2, 3]");
    weft_session_fetch(s, counter, &count, sizeof count, NULL);
    CU_ASSERT_EQUAL(count, 1); /* the one good run */
    good[2] = 1e4f;            /* overflows in exp */
    weft_session_feed(s, x, good, sizeof good, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_NOT_FINITE);
    CU_ASSERT_EQUAL(weft_session_find_nonfinite(s, &error), WEFT_NOT_FINITE);
    CU_ASSERT_STRING_EQUAL(error.where, "exp");
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "an infinity at [0, 2]"));
    CU_ASSERT_EQUAL(weft_session_find_nonfinite(NULL, &error), WEFT_BAD_ARGUMENT);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
}

/* ---- Decay, averages ---- */

static void test_names(void)
{
    CU_ASSERT_TRUE(weft_name_matches(WEFT_NO_DECAY_DEFAULT, "enc.0.ffn.in.bias"));
    CU_ASSERT_TRUE(weft_name_matches(WEFT_NO_DECAY_DEFAULT, "enc.0.norm_ffn.gamma"));
    CU_ASSERT_TRUE(weft_name_matches(WEFT_NO_DECAY_DEFAULT, "target_embedding"));
    CU_ASSERT_FALSE(weft_name_matches(WEFT_NO_DECAY_DEFAULT, "enc.0.ffn.in.weight"));
    CU_ASSERT_TRUE(weft_name_matches("a*b*c", "a.b.b.c"));
    CU_ASSERT_FALSE(weft_name_matches("a*b*c", "a.b.b.cd"));
    CU_ASSERT_TRUE(weft_name_matches("x,*", ""));
    CU_ASSERT_FALSE(weft_name_matches("", "x"));
    CU_ASSERT_FALSE(weft_name_matches(NULL, "x"));
}

/* Without gradients AdamW only decays parameters, except those that no_decay names. */
static void test_decay(void)
{
    weft_graph *g = weft_graph_new();
    weft_value p[2] = {weft_param(g, "w.weight", WEFT_F64, WEFT_SHAPE(3), WEFT_INIT_ONES),
                       weft_param(g, "w.bias", WEFT_F64, WEFT_SHAPE(3), WEFT_INIT_ONES)};
    weft_value zero = weft_fill(g, WEFT_F64, WEFT_SHAPE(3), 0.0);
    weft_optimizer o = WEFT_ADAM_DEFAULT;
    o.kind = WEFT_ADAMW;
    o.adam.weight_decay = 0.5;
    o.no_decay = WEFT_NO_DECAY_DEFAULT;
    weft_value step =
        weft_apply_gradients(g, &(weft_gradients){p, (weft_value[]){zero, zero}, 2, WEFT_NO_VALUE},
                             weft_scalar(g, WEFT_F64, 0.1), &o, NULL, NULL);
    weft_error error = {0};
    weft_params *params = weft_params_new();
    weft_plan *plan = weft_plan_new(g, &step, 1, NULL, &error);
    weft_params_init(params, g, 1, &error);
    weft_session *s = weft_session_new(plan, params, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    double x[3];
    weft_session_fetch(s, p[0], x, sizeof x, NULL);
    CU_ASSERT_TRUE(test_near(x[1], 0.95));
    weft_session_fetch(s, p[1], x, sizeof x, NULL);
    CU_ASSERT_EQUAL(x[1], 1);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
}

static void test_checkpoint_average(void)
{
    char paths[2][64];
    weft_tensor a, b, mean;
    weft_trainer_options o = trainer_options();
    rig r = open_rig(&o, 4, 20, NULL);
    const char *list[2] = {paths[0], paths[1]};
    weft_params *stores[2];
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "/tmp/weft-mean%d-%ld.safetensors", i, (long)getpid());
        take_steps(&r, 2);
        CU_ASSERT_EQUAL(weft_trainer_save(r.trainer, paths[i], NULL), WEFT_OK);
        stores[i] = copy_store(r.params);
    }
    weft_error error = {0};
    weft_params *average = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_average(average, list, 2, &error), WEFT_OK);
    weft_params_find(stores[0], "embedding", &a);
    weft_params_find(stores[1], "embedding", &b);
    CU_ASSERT_TRUE_FATAL(weft_params_find(average, "embedding", &mean));
    for (int i = 0; i < 40 * 8; i++)
        CU_ASSERT_TRUE(test_near(((double *)mean.data)[i],
                                 (((double *)a.data)[i] + ((double *)b.data)[i]) / 2));
    CU_ASSERT_FALSE(weft_params_find(average, "opt.m.embedding", NULL));
    CU_ASSERT_STRING_EQUAL(weft_params_meta(average, "step"), "4");
    weft_params *other = weft_params_new(), *again = weft_params_new();
    /* The same option as an older version wrote it, then others. */
    char options[1024], stored[1024];
    snprintf(stored, sizeof stored, "%s", weft_params_meta(r.params, "model_options"));
    const char *dropout = strstr(stored, " dropout=0.1 ");
    CU_ASSERT_PTR_NOT_NULL_FATAL(dropout);
    snprintf(options, sizeof options, "%.*s dropout=0.10000000000000001 %s",
             (int)(dropout - stored), stored, dropout + strlen(" dropout=0.1 "));
    weft_params_set_meta(r.params, "model_options", options, NULL);
    CU_ASSERT_EQUAL(weft_params_save(r.params, paths[1], NULL, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_average(again, list, 2, &error), WEFT_OK);
    weft_params_free(again);
    /* An option under its old name, and without one that the model gained since. */
    again = weft_params_new();
    const char *positions = strstr(stored, " max_positions="), *pad = strstr(stored, " pad_id=0 ");
    CU_ASSERT_FATAL(positions != NULL && pad != NULL);
    snprintf(options, sizeof options, "%.*s most%s", (int)(positions - stored), stored,
             positions + strlen(" max"));
    char *old_pad = strstr(options, " pad_id=0 ");
    memmove(old_pad, old_pad + strlen(" pad_id=0"), strlen(pad + strlen(" pad_id=0")) + 1);
    weft_params_set_meta(r.params, "model_options", options, NULL);
    CU_ASSERT_EQUAL(weft_params_save(r.params, paths[1], NULL, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_average(again, list, 2, &error), WEFT_OK);
    weft_params_free(again);
    options[strlen(options) - 1] ^= 1;
    weft_params_set_meta(r.params, "model_options", options, NULL);
    CU_ASSERT_EQUAL(weft_params_save(r.params, paths[1], NULL, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_average(other, list, 2, NULL), WEFT_BAD_ARGUMENT);
    weft_params_set_meta(r.params, "model_options", "vocab=1", NULL);
    CU_ASSERT_EQUAL(weft_params_save(r.params, paths[1], NULL, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_average(other, list, 2, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.where, paths[0]);
    for (int i = 0; i < 2; i++) {
        unlink(paths[i]);
        weft_params_free(stores[i]);
    }
    weft_params_free(average);
    weft_params_free(other);
    close_rig(&r);
}

static void test_refusals(void)
{
    weft_error error;
    rig r = {.corpus = make_corpus(5, 5, false, 1), .params = weft_params_new()};
    weft_batch_options b = batch_options(WEFT_BATCH_LINES, 64);
    weft_trainer_options o = trainer_options();
    r.batches = weft_batches_new(r.corpus, &b, &error);
    CU_ASSERT_PTR_NULL(test_new_trainer(&o, r.batches, r.params, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "has a source"));
    o.builder = test_builder("attention", NULL, 0);
    CU_ASSERT_PTR_NULL(test_new_trainer(&o, r.batches, r.params, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "input 0 is f32, the batches have i32"));
    o.builder = test_builder("gpt", NULL, 0);
    o.ema = 1;
    CU_ASSERT_PTR_NULL(test_new_trainer(&o, r.batches, r.params, &error));
    CU_ASSERT_PTR_NULL(test_new_trainer(NULL, r.batches, r.params, &error));
    CU_ASSERT_EQUAL(weft_trainer_update(NULL, 0, NULL, NULL), WEFT_BAD_ARGUMENT);
    b.lengths[1] = 8;
    CU_ASSERT_PTR_NULL(weft_batches_new(r.corpus, &b, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "ascend"));
    CU_ASSERT_EQUAL(weft_corpus_add(NULL, NULL, 0, NULL, 0, NULL), WEFT_BAD_ARGUMENT);
    close_rig(&r);
}

void train_tests(void)
{
    CU_pSuite suite = CU_add_suite("train", NULL, NULL);
    CU_add_test(suite, "accumulated gradients equal one large batch", test_accumulation);
    CU_add_test(suite, "a call that is stopped", test_stop);
    CU_add_test(suite, "the model as it is evaluated", test_model);
    CU_add_test(suite, "gradients of an update", test_gradients);
    CU_add_test(suite, "moving average", test_moving_average);
    CU_add_test(suite, "a moving average that begins late", test_late_average);
    CU_add_test(suite, "a resumed training has the same bits", test_resume);
    CU_add_test(suite, "smoothed loss", test_smoothed);
    CU_add_test(suite, "best and stale evaluations", test_judging);
    CU_add_test(suite, "an infinite parameter stops the step", test_infinite_parameter);
    CU_add_test(suite, "the first node that is not finite", test_first_node);
    CU_add_test(suite, "patterns of names", test_names);
    CU_add_test(suite, "weight decay by name", test_decay);
    CU_add_test(suite, "average of checkpoints", test_checkpoint_average);
    CU_add_test(suite, "refusals", test_refusals);
}
