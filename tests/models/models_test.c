/* Models: causality, padding, training, the list of models and its options; results do not depend on the
 * number of threads. */
#include "tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARAMS 256
#define MAX_IDS    128

/* A small model with its graph, plan and session. Later options override earlier ones. */
typedef struct rig {
    weft_graph *g;
    weft_built built;
    weft_value params[MAX_PARAMS], norm, step;
    size_t n;
    weft_params *store;
    weft_plan *plan;
    weft_session *session;
} rig;

static const char *const tiny[] = {"vocab=20",          "d_model=16",       "heads=2",
                                   "d_ff=24",           "encoder_layers=2", "decoder_layers=2",
                                   "batch=2",           "source_len=5",     "target_len=6",
                                   "label_smoothing=0", "dropout=0"};
#define N_TINY (sizeof tiny / sizeof *tiny)

static void rig_build(rig *r, const char *const *options, size_t n, bool training)
{
    const char *all[WEFT_MODEL_OPTIONS * 2];
    weft_error error = {0};
    CU_ASSERT_TRUE_FATAL(n + N_TINY <= sizeof all / sizeof *all);
    memcpy(all, tiny, sizeof tiny);
    if (n) memcpy(all + N_TINY, options, n * sizeof *options);
    *r = (rig){.g = weft_graph_new(), .store = weft_params_new()};
    weft_status status = weft_model_build_text(r->g, weft_model_find("transformer"), all,
                                               n + N_TINY, training, &r->built, &error);
    if (status != WEFT_OK) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
    r->n = test_params(r->g, r->params, MAX_PARAMS);
    CU_ASSERT_TRUE_FATAL(r->n > 0 && r->n <= MAX_PARAMS);
}

/* Adds the step of Adam with a fixed learning rate. */
static void rig_train(rig *r, double lr)
{
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value rate = weft_scalar(r->g, weft_dtype_of(r->g, r->built.loss), lr);
    r->step = weft_train_update(r->g, r->built.loss, r->params, r->n, rate, &adam, &r->norm);
}

static void rig_open(rig *r, const weft_value *targets, size_t n, weft_params *store, int threads)
{
    weft_error error = {0};
    weft_session_options o = {.threads = threads, .seed = 7};
    weft_plan_options check = {.verify = true};
    r->plan = weft_plan_new(r->g, targets, n, &check, &error);
    if (weft_params_init(store, r->g, 11, &error) == WEFT_OK)
        r->session = weft_session_new(r->plan, store, &o, &error);
    if (!r->session) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->session);
}

static void rig_close(rig *r)
{
    weft_session_free(r->session);
    weft_plan_free(r->plan);
    weft_params_free(r->store);
    weft_graph_free(r->g);
}

static void feed(rig *r, weft_value input, const int32_t *ids)
{
    size_t bytes = (size_t)weft_shape_numel(weft_shape_of(r->g, input)) * sizeof *ids;
    CU_ASSERT_EQUAL_FATAL(weft_session_feed(r->session, input, ids, bytes, NULL), WEFT_OK);
}

/* n random tokens in [1, vocab). */
static void fill_ids(int32_t *ids, size_t n, int32_t vocab, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = 1 + (int32_t)(test_random(&seed) % (uint64_t)(vocab - 1));
}

static void feed_random(rig *r, int32_t vocab)
{
    int32_t ids[MAX_IDS];
    const weft_value inputs[] = {weft_built_input(&r->built, "source"),
                                 weft_built_input(&r->built, "target_in"),
                                 weft_built_input(&r->built, "target_out")};
    for (uint64_t i = 0; i < 3; i++) {
        fill_ids(ids, MAX_IDS, vocab, i + 1);
        feed(r, inputs[i], ids);
    }
}

static float scalar_of(const rig *r, weft_value value)
{
    float x = NAN;
    CU_ASSERT_EQUAL(weft_session_fetch(r->session, value, &x, sizeof x, NULL), WEFT_OK);
    return x;
}

static void run_logits(rig *r, float *logits, size_t n)
{
    CU_ASSERT_EQUAL_FATAL(weft_session_run(r->session, NULL), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(
        weft_session_fetch(r->session, r->built.outputs[0], logits, n * sizeof *logits, NULL),
        WEFT_OK);
}

/* ---- Causality and padding ---- */

/* Another target token at a position changes the logits from there on, and no bit before. */
static void test_causality(void)
{
    enum { BATCH = 2, LENGTH = 6, VOCAB = 20, N = BATCH * LENGTH * VOCAB };
    rig r;
    float before[N], after[N];
    int32_t ids[BATCH * LENGTH];
    rig_build(&r, NULL, 0, false);
    rig_open(&r, &r.built.outputs[0], 1, r.store, 0);
    feed_random(&r, VOCAB);
    fill_ids(ids, BATCH * LENGTH, VOCAB, 2);
    feed(&r, weft_built_input(&r.built, "target_in"), ids);
    run_logits(&r, before, N);
    for (int position = 0; position < LENGTH; position++) {
        int32_t old = ids[LENGTH + position]; /* of the second sentence */
        ids[LENGTH + position] = old % (VOCAB - 1) + 1;
        feed(&r, weft_built_input(&r.built, "target_in"), ids);
        run_logits(&r, after, N);
        size_t same = (size_t)(LENGTH + position) * VOCAB;
        CU_ASSERT_EQUAL(memcmp(before, after, same * sizeof *before), 0);
        for (int later = position; later < LENGTH; later++)
            CU_ASSERT_NOT_EQUAL(memcmp(before + same + (later - position) * VOCAB,
                                       after + same + (later - position) * VOCAB,
                                       VOCAB * sizeof *before),
                                0);
        ids[LENGTH + position] = old;
    }
    rig_close(&r);
}

/* A padded source has the results of the shorter one, and a padded target the loss of the shorter
 * one. */
static void test_padding(void)
{
    enum { BATCH = 2, LONG = 9, SHORT = 5, VOCAB = 20, N = BATCH * 6 * VOCAB };
    static const char *const wide[] = {"source_len=9"};
    rig a, b;
    float short_logits[N], long_logits[N];
    int32_t source[BATCH * SHORT], padded[BATCH * LONG] = {0}, target[BATCH * 6];
    rig_build(&a, NULL, 0, false);
    rig_build(&b, wide, 1, false);
    fill_ids(source, BATCH * SHORT, VOCAB, 1);
    for (int i = 0; i < BATCH; i++)
        memcpy(padded + (size_t)i * LONG, source + (size_t)i * SHORT, SHORT * sizeof *source);
    const weft_value a_targets[] = {a.built.outputs[0], a.built.metric},
                     b_targets[] = {b.built.outputs[0], b.built.metric};
    rig_open(&a, a_targets, 2, a.store, 0);
    rig_open(&b, b_targets, 2, a.store, 0);
    feed_random(&a, VOCAB);
    feed_random(&b, VOCAB);
    feed(&a, weft_built_input(&a.built, "source"), source);
    feed(&b, weft_built_input(&b.built, "source"), padded);
    run_logits(&a, short_logits, N);
    run_logits(&b, long_logits, N);
    /* Logits near 1, after some 150 roundings of f32: 150 * 2^-24 = 9e-6. */
    for (int i = 0; i < N; i++) CU_ASSERT_DOUBLE_EQUAL(short_logits[i], long_logits[i], 1e-5);

    /* The mean negative log likelihood of the first 4 of 6 positions, computed from the logits. */
    double sum = 0;
    fill_ids(target, BATCH * 6, VOCAB, 3);
    for (int i = 0; i < BATCH * 6; i++) {
        if (i % 6 >= 4) {
            target[i] = 0;
            continue;
        }
        double total = 0;
        for (int k = 0; k < VOCAB; k++) total += exp((double)short_logits[i * VOCAB + k]);
        sum += log(total) - (double)short_logits[i * VOCAB + target[i]];
    }
    feed(&a, weft_built_input(&a.built, "target_out"), target);
    CU_ASSERT_EQUAL(weft_session_run(a.session, NULL), WEFT_OK);
    CU_ASSERT_DOUBLE_EQUAL(scalar_of(&a, a.built.metric), sum / (BATCH * 4), 3 * ROUNDING_F32);
    rig_close(&b);
    rig_close(&a);
}

/* ---- Training ---- */

static void test_overfit(void)
{
    static const char *const options[] = {"d_model=32", "d_ff=64", "batch=4"};
    rig r;
    rig_build(&r, options, 3, true);
    rig_train(&r, 3e-3);
    const weft_value targets[] = {r.built.loss, r.norm, r.step};
    rig_open(&r, targets, 3, r.store, 0);
    feed_random(&r, 20);
    CU_ASSERT_EQUAL_FATAL(weft_session_run(r.session, NULL), WEFT_OK);
    float first = scalar_of(&r, r.built.loss);
    for (int i = 0; i < 199; i++) CU_ASSERT_EQUAL_FATAL(weft_session_run(r.session, NULL), WEFT_OK);
    float last = scalar_of(&r, r.built.loss);
    if (!(last < 0.05f)) printf("\n    the loss went from %g to %g\n", (double)first, (double)last);
    CU_ASSERT_TRUE(first > 2 && last < 0.05f);
    CU_ASSERT_TRUE(isfinite(scalar_of(&r, r.norm)));
    rig_close(&r);
}

static void check_gradient(const char *norm, const char *tied)
{
    const char *const options[] = {norm,
                                   tied,
                                   "f64=1",
                                   "d_model=8",
                                   "d_ff=12",
                                   "vocab=11",
                                   "target_len=4",
                                   "encoder_layers=1",
                                   "decoder_layers=1",
                                   "dropout=0.1",
                                   "label_smoothing=0.1"};
    rig r;
    weft_error error = {0};
    weft_check_result result;
    int32_t ids[3][MAX_IDS];
    rig_build(&r, options, sizeof options / sizeof *options, true);
    for (uint64_t i = 0; i < 3; i++) fill_ids(ids[i], MAX_IDS, 11, i + 1);
    ids[0][4] = ids[0][8] = ids[0][9] = ids[2][3] = 0;
    const weft_check_feed feeds[] = {
        {weft_built_input(&r.built, "source"), ids[0], 2 * 5 * sizeof(int32_t)},
        {weft_built_input(&r.built, "target_in"), ids[1], 2 * 4 * sizeof(int32_t)},
        {weft_built_input(&r.built, "target_out"), ids[2], 2 * 4 * sizeof(int32_t)}};
    CU_ASSERT_EQUAL_FATAL(weft_params_init(r.store, r.g, 3, &error), WEFT_OK);
    weft_status status = weft_check_gradient(r.g,
                                             &(weft_gradient_check){.loss = r.built.loss,
                                                                    .wrt = r.params,
                                                                    .n = r.n,
                                                                    .params = r.store,
                                                                    .feeds = feeds,
                                                                    .n_feeds = 3,
                                                                    .per_value = 6,
                                                                    .seed = 1},
                                             &result, &error);
    if (status != WEFT_OK) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_EQUAL(status, WEFT_OK);
    CU_ASSERT_TRUE(result.checked >= r.n * 5);
    if (!(result.worst_error < SMOOTH_DIFFERENCES))
        printf("\n    %s %s: off by %g at %s\n", norm, tied, result.worst_error, result.where);
    CU_ASSERT_TRUE(result.worst_error < SMOOTH_DIFFERENCES);
    rig_close(&r);
}

/* With dropout, whose mask is the same in each run of the check. */
static void test_gradient(void)
{
    check_gradient("norm=pre", "tied=1");
    check_gradient("norm=post", "tied=0");
}

static bool same_stores(const weft_params *a, const weft_params *b)
{
    if (weft_params_count(a) != weft_params_count(b)) return false;
    for (size_t i = 0; i < weft_params_count(a); i++) {
        weft_tensor x, y;
        const char *name = weft_params_name(a, i);
        if (!weft_params_find(a, name, &x) || !weft_params_find(b, name, &y)) return false;
        size_t bytes = weft_tensor_bytes(x.dtype, x.shape);
        if (!weft_shape_equal(x.shape, y.shape) || memcmp(x.data, y.data, bytes)) return false;
    }
    return true;
}

/* Weights, moments and losses after three steps with dropout: the same bits at any thread count. */
static void test_threads(void)
{
    static const char *const options[] = {"d_model=64",          "d_ff=160",      "heads=4",
                                          "vocab=300",           "dropout=0.1",   "batch=7",
                                          "label_smoothing=0.1", "source_len=18", "target_len=17"};
    static const int threads[] = {1, 2, 3, 4, 8};
    rig r[5];
    float loss[5];
    for (int i = 0; i < 5; i++) {
        rig_build(&r[i], options, sizeof options / sizeof *options, true);
        rig_train(&r[i], 1e-2);
        const weft_value targets[] = {r[i].built.loss, r[i].step};
        rig_open(&r[i], targets, 2, r[i].store, threads[i]);
        feed_random(&r[i], 300);
        for (int step = 0; step < 3; step++)
            CU_ASSERT_EQUAL_FATAL(weft_session_run(r[i].session, NULL), WEFT_OK);
        loss[i] = scalar_of(&r[i], r[i].built.loss);
        CU_ASSERT_EQUAL(memcmp(&loss[i], &loss[0], sizeof *loss), 0);
        CU_ASSERT_TRUE(same_stores(r[0].store, r[i].store));
    }
    for (int i = 0; i < 5; i++) rig_close(&r[i]);
}

/* ---- The list of models ---- */

static void test_list(void)
{
    CU_ASSERT_TRUE(weft_model_count() >= 2);
    CU_ASSERT_PTR_NULL(weft_model_at(weft_model_count()));
    CU_ASSERT_PTR_NULL(weft_model_find("no such model"));
    CU_ASSERT_PTR_NULL(weft_model_find(NULL));
    for (size_t i = 0; i < weft_model_count(); i++) {
        const weft_model *m = weft_model_at(i);
        CU_ASSERT_PTR_EQUAL(weft_model_find(m->name), m);
        CU_ASSERT_TRUE(m->doc && m->n_options <= WEFT_MODEL_OPTIONS);
        for (size_t k = 0; k < m->n_options; k++) {
            const weft_model_option *o = &m->options[k];
            CU_ASSERT_TRUE(o->name && o->doc);
            CU_ASSERT_TRUE(o->real || floor(o->value) == o->value);
            /* Options that are only switched on are flags, and no others are. */
            CU_ASSERT_EQUAL(o->flag, !strncmp(o->doc, "1: ", 3));
            CU_ASSERT_TRUE(!o->flag || (!o->choices && (o->value == 0 || o->value == 1)));
        }
    }
}

/* Every option of every model can be set and read, and changes no other option. */
static void test_values(void)
{
    CU_ASSERT_EQUAL(weft_model_value(NULL, 0), 0);
    for (size_t i = 0; i < weft_model_count(); i++) {
        const weft_model *m = weft_model_at(i);
        weft_model_config config;
        CU_ASSERT_EQUAL(weft_model_parse(m, NULL, 0, &config, NULL), WEFT_OK);
        for (size_t k = 0; k < m->n_options; k++) {
            const double wanted = m->options[k].real ? 0.375 : !m->options[k].value;
            weft_model_set_value(&config, k, wanted);
            for (size_t other = 0; other < m->n_options; other++)
                CU_ASSERT_EQUAL(weft_model_value(&config, other),
                                other == k ? wanted : m->options[other].value);
            weft_model_set_value(&config, k, m->options[k].value);
        }
        for (int k = 0; k < WEFT_MODEL_SIZES && m->sizes[k].name; k++) {
            const weft_model_option *size = &m->sizes[k];
            CU_ASSERT_EQUAL(weft_model_option_value(size, &config.build.shape), size->value);
            weft_model_option_set_value(size, &config.build.shape, 7);
            CU_ASSERT_EQUAL(weft_model_option_value(size, &config.build.shape), 7);
        }
        weft_model_set_value(&config, m->n_options, 1);
        CU_ASSERT_EQUAL(weft_model_value(&config, m->n_options), 0);
    }
}

/* Lists of numbers: as texts, and as one number. */
static void test_lists(void)
{
    static const char *const bad[] = {"",   ",",     "1,",    "1,,2", "0,1",   "1 2",
                                      "-1", "1e300", "1,nan", "x",    "1e-300"};
    const weft_model *m = weft_model_find("llama");
    weft_model_config config;
    weft_error error = {0};
    char text[WEFT_OPTIONS_TEXT], word[WEFT_OPTIONS_TEXT] = "rotary_factors=1";
    size_t i = 0;
    while (strcmp(m->options[i].name, "rotary_factors") != 0) i++;
    CU_ASSERT_EQUAL(weft_model_parse(m, NULL, 0, &config, NULL), WEFT_OK);
    CU_ASSERT_STRING_EQUAL(weft_model_config_option_text(&config, i, text, sizeof text), "0");
    const char *words[] = {"rotary_factors=1.05,2,1e3"};
    CU_ASSERT_EQUAL(weft_model_parse(m, words, 1, &config, NULL), WEFT_OK);
    CU_ASSERT_STRING_EQUAL(weft_model_config_option_text(&config, i, text, sizeof text),
                           "1.05,2,1e+03");
    CU_ASSERT_PTR_NULL(weft_model_config_option_text(&config, i, text, 12));
    CU_ASSERT_PTR_NULL(weft_model_config_option_text(&config, m->n_options, text, sizeof text));
    CU_ASSERT_PTR_NULL(weft_model_config_option_text(NULL, 0, text, sizeof text));
    CU_ASSERT_EQUAL(weft_model_value(&config, i), (double)1.05f);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_model_options_text(&config, text, sizeof text),
                                  " rotary_factors=1.05,2,1e+03 "));
    weft_model_set_value(&config, i, 3);
    CU_ASSERT_STRING_EQUAL(weft_model_config_option_text(&config, i, text, sizeof text), "3");
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        snprintf(text, sizeof text, "rotary_factors=%s", bad[k]);
        words[0] = text;
        CU_ASSERT_EQUAL(weft_model_parse(m, words, 1, &config, &error), WEFT_BAD_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "expected 0, or at most 64 numbers"));
    }
    for (int k = 1; k < WEFT_ROTARY_FACTORS; k++) strcat(word, ",1");
    words[0] = word;
    CU_ASSERT_EQUAL(weft_model_parse(m, words, 1, &config, &error), WEFT_OK);
    CU_ASSERT_STRING_EQUAL(weft_model_config_option_text(&config, i, text, sizeof text), word + 15);
    strcat(word, ",1");
    CU_ASSERT_EQUAL(weft_model_parse(m, words, 1, &config, &error), WEFT_BAD_ARGUMENT);
}

static void test_options(void)
{
    static const struct {
        const char *text, *said;
        weft_status status;
    } bad[] = {
        {"d_modell=3", "\"d_modell\"", WEFT_NOT_FOUND},
        {"d_mode=3", "\"d_mode\"", WEFT_NOT_FOUND},
        {"d_model", "option=value", WEFT_BAD_ARGUMENT},
        {"=3", "option=value", WEFT_BAD_ARGUMENT},
        {"d_model=", "expected a whole number", WEFT_BAD_ARGUMENT},
        {"heads=2.5", "invalid heads \"2.5\"; expected a whole number from 0 to 1e9",
         WEFT_BAD_ARGUMENT},
        {"f64=2", "invalid f64=2; expected 0 or 1", WEFT_BAD_ARGUMENT},
        {"f64=0.5", "invalid f64=0.5; expected 0 or 1", WEFT_BAD_ARGUMENT},
        {"tied=-1", "invalid tied=-1; expected 0 or 1", WEFT_BAD_ARGUMENT},
        {"tied=yes", "invalid tied=yes; expected 0 or 1", WEFT_BAD_ARGUMENT},
        {"dropout=half", "expected a number from 0 to 1e9", WEFT_BAD_ARGUMENT},
        {"d_model=3x", "\"3x\"", WEFT_BAD_ARGUMENT},
        {"d_model=-8", "\"-8\"", WEFT_BAD_ARGUMENT},
        {"d_model=nan", "\"nan\"", WEFT_BAD_ARGUMENT},
        {"d_model=1e300", "\"1e300\"", WEFT_BAD_ARGUMENT},
    };
    const weft_model *m = weft_model_find("transformer");
    weft_model_config config;
    static const char *const good[] = {"dropout=0.25", "heads=1", "heads=8.0", "f64=1", "tied=0"};
    CU_ASSERT_EQUAL(weft_model_parse(m, good, 5, &config, NULL), WEFT_OK);
    for (size_t i = 0; i < m->n_options; i++) {
        double wanted = m->options[i].value;
        if (!strcmp(m->options[i].name, "dropout")) wanted = 0.25;
        if (!strcmp(m->options[i].name, "heads")) wanted = 8;
        if (!strcmp(m->options[i].name, "f64")) wanted = 1;
        if (!strcmp(m->options[i].name, "tied")) wanted = 0;
        CU_ASSERT_EQUAL(weft_model_value(&config, i), wanted);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weft_error error = {0};
        CU_ASSERT_EQUAL(weft_model_parse(m, &bad[i].text, 1, &config, &error), bad[i].status);
        CU_ASSERT_EQUAL(error.status, bad[i].status);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, bad[i].said));
        CU_ASSERT_STRING_EQUAL(error.where, "transformer");
    }
    /* Numbers that no graph can be built from are the graph's errors. */
    static const char *const odd[] = {"heads=3", "d_model=0", "d_model=7", "vocab=1e9",
                                      "dropout=1"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        weft_graph *g = weft_graph_new();
        weft_built built;
        weft_error error = {0};
        weft_status status = weft_model_build_text(g, m, &odd[i], 1, true, &built, &error);
        if (i == 3) CU_ASSERT_EQUAL(status, WEFT_OK); /* large, but nothing is allocated yet */
        if (i != 3) {
            CU_ASSERT_NOT_EQUAL(status, WEFT_OK);
            CU_ASSERT_TRUE(error.status == status && error.message[0]);
        }
        weft_graph_free(g);
    }
}

static int64_t count_parameters(const char *tied)
{
    const char *const options[] = {tied};
    rig r;
    int64_t sum = 0;
    rig_build(&r, options, 1, false);
    for (size_t i = 0; i < r.n; i++) sum += weft_shape_numel(weft_shape_of(r.g, r.params[i]));
    rig_close(&r);
    return sum;
}

static void test_parameter_counts(void)
{
    const int64_t d = 16, ffn = 24, vocab = 20;
    int64_t attention = 4 * (d * d + d), norm = 2 * d, forward = 2 * d * ffn + ffn + d;
    int64_t encoder = 2 * (attention + forward + 2 * norm) + norm;
    int64_t decoder = 2 * (2 * attention + forward + 3 * norm) + norm;
    CU_ASSERT_EQUAL(count_parameters("tied=1"), encoder + decoder + vocab * d);
    CU_ASSERT_EQUAL(count_parameters("tied=0"), encoder + decoder + 3 * vocab * d + vocab);
}

void models_tests(void)
{
    CU_pSuite suite = CU_add_suite("models", NULL, NULL);
    CU_add_test(suite, "a later token changes no earlier logit", test_causality);
    CU_add_test(suite, "padding changes nothing", test_padding);
    CU_add_test(suite, "a small batch is memorised", test_overfit);
    CU_add_test(suite, "gradients of a Transformer", test_gradient);
    CU_add_test(suite, "the same bits at 1, 2, 3, 4, 8 threads", test_threads);
    CU_add_test(suite, "the list of models", test_list);
    CU_add_test(suite, "values of options", test_values);
    CU_add_test(suite, "options", test_options);
    CU_add_test(suite, "options that are lists", test_lists);
    CU_add_test(suite, "numbers of parameters", test_parameter_counts);
}
