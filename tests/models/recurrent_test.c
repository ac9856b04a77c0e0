/* Recurrent layers and models: every gradient against PyTorch (golden/make_recurrent.py), in f32
 * and f64, and against central differences; 200 steps, padding, any number of threads;
 * weft_matmul_shared. */
#include "golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARAMS 64
#define MAX_IDS    1024

/* ---- Layers as PyTorch's ---- */

static const char *const kinds[] = {[WEFT_RNN] = "rnn", [WEFT_LSTM] = "lstm", [WEFT_GRU] = "gru"};

/* Compares every CASE.grad.NAME of the file with the gradient of CASE.NAME. */
typedef struct layer_case {
    const char *name; /* of the case, "lstm.reverse" */
    weft_graph *g;
    weft_params *store;
    weft_value wrt[MAX_PARAMS], targets[MAX_PARAMS + 3];
    char names[MAX_PARAMS + 3][96];
    size_t n_wrt, n_out;
} layer_case;

static bool case_state(layer_case *c, const char *name, weft_value *value)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", c->name, name);
    return golden_state(c->g, c->store, full, value);
}

static void build_case(layer_case *c, weft_recurrent_kind kind)
{
    weft_value x, mask, cotangents[3], *out = c->targets;
    weft_nn_recurrent_options o = {.reverse = strstr(c->name, "reverse") != NULL};
    weft_recurrent_state last;
    c->n_out = kind == WEFT_LSTM ? 3 : 2;
    CU_ASSERT_TRUE_FATAL(case_state(c, "x", &x) && case_state(c, "mask", &mask) &&
                         case_state(c, "s0", &o.initial.h));
    if (kind == WEFT_LSTM) CU_ASSERT_TRUE_FATAL(case_state(c, "s1", &o.initial.c));
    if (strstr(c->name, "masked")) o.mask = weft_cast(c->g, mask, WEFT_BOOL);
    weft_graph_push_scope(c->g, "%s", c->name);
    out[0] = weft_contiguous(c->g, weft_nn_recurrent(c->g, "l", kind, x, 4, &o, &last));
    weft_graph_pop_scope(c->g);
    out[1] = weft_contiguous(c->g, last.h);
    if (kind == WEFT_LSTM) out[2] = weft_contiguous(c->g, last.c);
    for (size_t i = 0; i < c->n_out; i++) {
        char name[32];
        snprintf(name, sizeof name, "cotangent%zu", i);
        CU_ASSERT_TRUE_FATAL(case_state(c, name, &cotangents[i]));
        snprintf(c->names[i], sizeof c->names[i], "%s.out%zu", c->name, i);
    }
    c->n_wrt = test_params(c->g, c->wrt, MAX_PARAMS);
    CU_ASSERT_TRUE_FATAL(c->n_wrt + 3 <= MAX_PARAMS);
    c->wrt[c->n_wrt++] = x;
    c->wrt[c->n_wrt++] = o.initial.h;
    if (kind == WEFT_LSTM) c->wrt[c->n_wrt++] = o.initial.c;
    weft_grad_of(c->g, out, cotangents, c->n_out, c->wrt, c->n_wrt, out + c->n_out);
    for (size_t i = 0; i < c->n_wrt; i++) {
        const char *name = weft_name_of(c->g, c->wrt[i]) + strlen(c->name) + 1;
        out[c->n_out + i] = weft_contiguous(c->g, out[c->n_out + i]);
        snprintf(c->names[c->n_out + i], sizeof c->names[0], "%s.grad.%s", c->name, name);
    }
}

static void check_layer(weft_params *store, weft_recurrent_kind kind, const char *variant,
                        double limit)
{
    char name[64], prefix[80];
    snprintf(name, sizeof name, "%s.%s", kinds[kind], variant);
    layer_case c = {.name = name, .g = weft_graph_new(), .store = store};
    weft_error error = {0};
    weft_plan_options check = {.verify = true};
    build_case(&c, kind);
    size_t n = c.n_out + c.n_wrt, in_file = 0;
    weft_plan *plan = weft_plan_new(c.g, c.targets, n, &check, &error);
    weft_session *s = weft_session_new(plan, store, NULL, &error);
    if (!s) printf("\n    %s: %s: %s\n", name, error.where, error.message);
    CU_ASSERT_TRUE_FATAL(s && weft_session_run(s, NULL) == WEFT_OK);
    for (size_t i = 0; i < n; i++) golden_target(s, store, c.targets[i], c.names[i], limit, 0);
    snprintf(prefix, sizeof prefix, "%s.grad.", name);
    for (size_t i = 0; i < weft_params_count(store); i++)
        in_file += !strncmp(weft_params_name(store, i), prefix, strlen(prefix));
    CU_ASSERT_EQUAL(in_file, c.n_wrt);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(c.g);
}

static void test_layers(void)
{
    static const char *const variants[] = {"plain", "reverse", "masked", "reverse_masked"};
    for (size_t p = 0; p < GOLDEN_PRECISIONS; p++) {
        weft_params *store =
            golden_load(GOLDEN("recurrent.safetensors"), "", golden_precisions[p].dtype);
        for (int kind = WEFT_RNN; kind <= WEFT_GRU; kind++)
            for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
                check_layer(store, (weft_recurrent_kind)kind, variants[v],
                            golden_precisions[p].limit);
        weft_params_free(store);
    }
}

/* ---- Models ---- */

typedef struct rig {
    weft_graph *g;
    weft_built built;
    weft_value params[MAX_PARAMS], attention, norm, step;
    size_t n;
    weft_params *store;
    weft_plan *plan;
    weft_session *session;
} rig;

/* Builds "MODEL key=value ...", as test_build_model. */
static void rig_build(rig *r, const char *text, bool training)
{
    *r = (rig){.g = weft_graph_new(), .store = weft_params_new()};
    test_build_model(r->g, text, training, &r->built);
    r->attention = weft_graph_find(r->g, "attention");
    r->n = test_params(r->g, r->params, MAX_PARAMS);
    CU_ASSERT_TRUE_FATAL(r->n > 0 && r->n <= MAX_PARAMS);
}

static void rig_open(rig *r, const weft_value *targets, size_t n, int threads)
{
    weft_error error = {0};
    weft_session_options o = {.threads = threads, .seed = 3};
    r->plan = weft_plan_new(r->g, targets, n, NULL, &error);
    if (r->plan && weft_params_init(r->store, r->g, 11, &error) == WEFT_OK)
        r->session = weft_session_new(r->plan, r->store, &o, &error);
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

static void fill_ids(int32_t *ids, int64_t n, int32_t vocab, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        ids[i] = 1 + (int32_t)(test_random(&seed) % (uint64_t)(vocab - 1));
}

/* Random tokens for every input. */
static void feed_random(rig *r)
{
    int32_t ids[MAX_IDS];
    const weft_value inputs[] = {weft_built_input(&r->built, "source"),
                                 weft_built_input(&r->built, "target_in"),
                                 weft_built_input(&r->built, "target_out")};
    for (uint64_t i = 0; i < 3; i++) {
        if (!weft_is_value(inputs[i])) continue;
        int64_t n = weft_shape_numel(weft_shape_of(r->g, inputs[i]));
        CU_ASSERT_TRUE_FATAL(n <= MAX_IDS);
        fill_ids(ids, n, (int32_t)r->built.vocab, i + 1);
        feed(r, inputs[i], ids);
    }
}

static double scalar_of(const rig *r, weft_value value)
{
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(r->session, value, &t, NULL) == WEFT_OK);
    return golden_element(&t, 0);
}

/* ---- Encoder and decoder as restated in PyTorch ---- */

static void check_seq2seq(const char *file, const char *options, weft_dtype dtype, double limit)
{
    rig r;
    char text[256], name[128];
    weft_value grads[MAX_PARAMS], targets[MAX_PARAMS + 3];
    snprintf(text, sizeof text,
             "seq2seq vocab=17 width=8 hidden=8 layers=2 batch=3 source_len=6 target_len=5 "
             "dropout=0.4 %s f64=%d",
             options, dtype == WEFT_F64);
    rig_build(&r, text, false);
    weft_params_free(r.store);
    r.store = golden_load(file, "", dtype);
    weft_grad(r.g, r.built.loss, r.params, r.n, grads);
    const weft_value results[] = {r.built.outputs[0], r.built.loss, r.attention};
    static const char *const result_names[] = {"logits", "loss", "attention"};
    memcpy(targets, results, sizeof results);
    for (size_t i = 0; i < r.n; i++) targets[i + 3] = weft_contiguous(r.g, grads[i]);
    rig_open(&r, targets, r.n + 3, 0);
    const weft_value inputs[] = {weft_built_input(&r.built, "source"),
                                 weft_built_input(&r.built, "target_in"),
                                 weft_built_input(&r.built, "target_out")};
    for (int i = 0; i < 3; i++) {
        weft_tensor t;
        CU_ASSERT_TRUE_FATAL(weft_params_find(r.store, weft_name_of(r.g, inputs[i]), &t));
        feed(&r, inputs[i], t.data);
    }
    CU_ASSERT_EQUAL_FATAL(weft_session_run(r.session, NULL), WEFT_OK);
    for (int i = 0; i < 3; i++)
        golden_target(r.session, r.store, results[i], result_names[i], limit, 0);
    double floor = GOLDEN_FLOOR * limit * golden_gradient_norm(r.store, r.n);
    for (size_t i = 0; i < r.n; i++) {
        snprintf(name, sizeof name, "grad.%s", weft_name_of(r.g, r.params[i]));
        golden_target(r.session, r.store, targets[i + 3], name, limit, floor);
    }
    rig_close(&r);
}

static void test_seq2seq(void)
{
    for (size_t p = 0; p < GOLDEN_PRECISIONS; p++) {
        weft_dtype dtype = golden_precisions[p].dtype;
        double limit = golden_precisions[p].limit;
        check_seq2seq(GOLDEN("seq2seq_additive.safetensors"),
                      "cell=gru attention=additive bidirectional=1", dtype, limit);
        check_seq2seq(GOLDEN("seq2seq_dot.safetensors"), "cell=lstm attention=dot bidirectional=0",
                      dtype, limit);
        check_seq2seq(GOLDEN("seq2seq_general.safetensors"),
                      "cell=lstm attention=general bidirectional=1", dtype, limit);
    }
}

/* ---- Gradients against central differences ---- */

static void check_gradients(const char *text)
{
    rig r;
    weft_error error = {0};
    weft_check_result result;
    weft_check_feed feeds[3];
    int32_t ids[3][MAX_IDS];
    size_t n = 0;
    rig_build(&r, text, true);
    const weft_value inputs[] = {weft_built_input(&r.built, "source"),
                                 weft_built_input(&r.built, "target_in"),
                                 weft_built_input(&r.built, "target_out")};
    for (size_t i = 0; i < 3; i++) {
        if (!weft_is_value(inputs[i])) continue;
        int64_t numel = weft_shape_numel(weft_shape_of(r.g, inputs[i]));
        fill_ids(ids[i], numel, (int32_t)r.built.vocab, i + 1);
        ids[i][numel - 1] = 0; /* padding */
        feeds[n++] = (weft_check_feed){inputs[i], ids[i], (size_t)numel * sizeof **ids};
    }
    CU_ASSERT_EQUAL_FATAL(weft_params_init(r.store, r.g, 1, &error), WEFT_OK);
    weft_status status = weft_check_gradient(r.g,
                                             &(weft_gradient_check){.loss = r.built.loss,
                                                                    .wrt = r.params,
                                                                    .n = r.n,
                                                                    .params = r.store,
                                                                    .feeds = feeds,
                                                                    .n_feeds = n,
                                                                    .per_value = 8,
                                                                    .seed = 1},
                                             &result, &error);
    if (status != WEFT_OK) printf("\n    %s: %s: %s\n", text, error.where, error.message);
    CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
    if (!(result.worst_error <= SMOOTH_DIFFERENCES))
        printf("\n    %s: %g at %s\n", text, result.worst_error, result.where);
    CU_ASSERT_TRUE(result.worst_error <= SMOOTH_DIFFERENCES && result.checked >= 3 * r.n);
    rig_close(&r);
}

static void test_gradients(void)
{
#define SIZE "vocab=11 width=5 hidden=6 tied=0 layers=2 batch=2 dropout=0.2 f64=1"
    check_gradients("rnn " SIZE " length=6");
    check_gradients("lstm " SIZE " length=6 label_smoothing=0.1");
    check_gradients("gru " SIZE " length=6");
    check_gradients("seq2seq " SIZE " source_len=5 target_len=4 cell=lstm attention=additive");
    check_gradients("seq2seq " SIZE " source_len=5 target_len=4 cell=gru attention=general");
    check_gradients("seq2seq " SIZE
                    " source_len=5 target_len=4 cell=rnn attention=dot bidirectional=0");
    check_gradients("seq2seq " SIZE " source_len=5 target_len=4 cell=gru attention=none");
#undef SIZE
}

/* ---- Long sequences ---- */

static const struct {
    const char *text;
    bool translates; /* its lengths are source_len and target_len */
} long_models[] = {
    {"rnn vocab=12 width=8 hidden=16 tied=0 layers=1 batch=2 dropout=0", false},
    {"lstm vocab=12 width=8 hidden=16 tied=0 layers=2 batch=2 dropout=0", false},
    {"gru vocab=12 width=8 hidden=16 tied=0 layers=1 batch=2 dropout=0", false},
    {"seq2seq vocab=12 width=8 hidden=8 layers=1 batch=2 dropout=0 attention=dot", true},
    {"seq2seq vocab=12 width=8 hidden=8 layers=1 batch=2 dropout=0", true},
};
#define N_LONG (sizeof long_models / sizeof *long_models)

static void build_training(rig *r, size_t model, int length)
{
    char text[256];
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    if (long_models[model].translates)
        snprintf(text, sizeof text, "%s source_len=%d target_len=%d", long_models[model].text,
                 length, length);
    else
        snprintf(text, sizeof text, "%s length=%d", long_models[model].text, length);
    rig_build(r, text, true);
    weft_value rate = weft_scalar(r->g, WEFT_F32, 0.01);
    r->step = weft_train_update(r->g, r->built.loss, r->params, r->n, rate, &adam, &r->norm);
}

/* 200 steps, trained a little. */
static void test_training(void)
{
    for (size_t m = 0; m < N_LONG; m++) {
        rig r;
        build_training(&r, m, 200);
        const weft_value targets[] = {r.built.loss, r.norm, r.step};
        rig_open(&r, targets, 3, 0);
        feed_random(&r);
        double first = 0, last = 0;
        for (int i = 0; i < 12; i++) {
            CU_ASSERT_EQUAL_FATAL(weft_session_run(r.session, NULL), WEFT_OK);
            last = scalar_of(&r, r.built.loss);
            if (i == 0) first = last;
            CU_ASSERT_TRUE(isfinite(last) && scalar_of(&r, r.norm) > 0);
        }
        if (!(last < 0.98 * first))
            printf("\n    %s: %g to %g\n", long_models[m].text, first, last);
        CU_ASSERT_TRUE(last < 0.98 * first);
        rig_close(&r);
    }
}

/* Nodes and memory are linear in the number of steps: no step's gradient has the size of all steps.
 * Additive attention attends to a source that also doubles, so its memory is quadratic. */
static void test_linear_size(void)
{
    for (size_t m = 0; m < N_LONG; m++) {
        weft_plan_stats stats[2];
        for (int i = 0; i < 2; i++) {
            rig r;
            build_training(&r, m, 100 << i);
            const weft_value targets[] = {r.built.loss, r.step};
            rig_open(&r, targets, 2, 0);
            stats[i] = weft_plan_stats_of(r.plan);
            rig_close(&r);
        }
        CU_ASSERT_TRUE(stats[1].nodes <= 2 * stats[0].nodes);
        if (!long_models[m].translates)
            CU_ASSERT_TRUE(stats[1].sum_bytes <= 2 * stats[0].sum_bytes);
    }
}

/* The bits do not depend on the threads: losses of training and every parameter after it. */
static void test_threads(void)
{
    for (size_t m = 0; m < N_LONG; m++) {
        rig one = {0};
        for (int threads = 1; threads <= 4; threads++) {
            rig r;
            build_training(&r, m, 9);
            const weft_value targets[] = {r.built.loss, r.norm, r.step};
            rig_open(&r, targets, 3, threads);
            feed_random(&r);
            for (int i = 0; i < 3; i++)
                CU_ASSERT_EQUAL_FATAL(weft_session_run(r.session, NULL), WEFT_OK);
            if (threads == 1) {
                one = r;
                continue;
            }
            CU_ASSERT_EQUAL(scalar_of(&r, r.built.loss), scalar_of(&one, one.built.loss));
            for (size_t i = 0; i < r.n; i++) {
                weft_tensor a, b;
                const char *name = weft_name_of(r.g, r.params[i]);
                CU_ASSERT_TRUE_FATAL(weft_params_find(r.store, name, &a) &&
                                     weft_params_find(one.store, name, &b));
                size_t bytes = weft_tensor_bytes(a.dtype, a.shape);
                CU_ASSERT_EQUAL(memcmp(a.data, b.data, bytes), 0);
            }
            rig_close(&r);
        }
        rig_close(&one);
    }
}

/* ---- Padding and causality ---- */

/* A padded source has the results of the shorter one, and attention weights of padding are zero. */
static void test_source_padding(void)
{
    enum { BATCH = 2, SHORT = 4, LONG = 7, TARGET = 3, VOCAB = 11 };
    static const char *const kinds_of[] = {"cell=gru attention=additive", "cell=lstm attention=dot",
                                           "cell=rnn attention=none"};
    int32_t source[BATCH * SHORT], padded[BATCH * LONG] = {0};
    fill_ids(source, BATCH * SHORT, VOCAB, 1);
    for (size_t i = 0; i < BATCH; i++)
        memcpy(padded + i * LONG, source + i * SHORT, SHORT * sizeof *source);
    for (size_t k = 0; k < 3; k++) {
        double logits[2][BATCH * TARGET * VOCAB];
        for (int is_long = 0; is_long < 2; is_long++) {
            rig r;
            char text[256];
            snprintf(text, sizeof text,
                     "seq2seq vocab=11 width=6 hidden=6 layers=2 batch=2 f64=1 target_len=3 "
                     "source_len=%d %s",
                     is_long ? LONG : SHORT, kinds_of[k]);
            rig_build(&r, text, false);
            const weft_value targets[] = {r.built.outputs[0], r.attention};
            bool attends = weft_is_value(r.attention);
            rig_open(&r, targets, attends ? 2 : 1, 0);
            feed_random(&r);
            feed(&r, weft_built_input(&r.built, "source"), is_long ? padded : source);
            CU_ASSERT_EQUAL_FATAL(weft_session_run(r.session, NULL), WEFT_OK);
            CU_ASSERT_EQUAL_FATAL(weft_session_fetch(r.session, r.built.outputs[0], logits[is_long],
                                                     sizeof logits[0], NULL),
                                  WEFT_OK);
            weft_tensor t = {0};
            if (attends)
                CU_ASSERT_TRUE_FATAL(weft_session_tensor(r.session, r.attention, &t, NULL) ==
                                     WEFT_OK);
            for (int64_t i = 0; attends && i < BATCH * TARGET; i++) {
                double sum = 0;
                for (int64_t at = 0; at < t.shape.dim[2]; at++) {
                    double weight = golden_element(&t, i * t.shape.dim[2] + at);
                    CU_ASSERT_TRUE(at < SHORT ? weight > 0 : weight == 0);
                    sum += weight;
                }
                CU_ASSERT_DOUBLE_EQUAL(sum, 1, ROUNDING_F64);
            }
            rig_close(&r);
        }
        for (int i = 0; i < BATCH * TARGET * VOCAB; i++)
            CU_ASSERT_DOUBLE_EQUAL(logits[0][i], logits[1][i], ROUNDING_F64);
    }
}

/* A token changes no logit before its position, and all from its position on. */
static void test_causality(void)
{
    enum { BATCH = 2, LENGTH = 5, VOCAB = 9, N = BATCH * LENGTH * VOCAB };
    static const char *const models[] = {
        "lstm vocab=9 width=6 hidden=6 layers=2 batch=2 length=5 f64=1",
        "gru vocab=9 width=6 hidden=6 layers=2 batch=2 length=5 f64=1",
        "seq2seq vocab=9 width=6 hidden=6 layers=2 batch=2 source_len=4 target_len=5 f64=1"};
    for (size_t m = 0; m < 3; m++) {
        rig r;
        double before[N], after[N];
        int32_t ids[BATCH * LENGTH];
        rig_build(&r, models[m], false);
        rig_open(&r, &r.built.outputs[0], 1, 0);
        feed_random(&r);
        fill_ids(ids, BATCH * LENGTH, VOCAB, 2);
        feed(&r, weft_built_input(&r.built, "target_in"), ids);
        CU_ASSERT_EQUAL_FATAL(weft_session_run(r.session, NULL), WEFT_OK);
        CU_ASSERT_EQUAL_FATAL(
            weft_session_fetch(r.session, r.built.outputs[0], before, sizeof before, NULL),
            WEFT_OK);
        for (int position = 0; position < LENGTH; position++) {
            int32_t old = ids[LENGTH + position]; /* of the second sequence */
            ids[LENGTH + position] = old % (VOCAB - 1) + 1;
            feed(&r, weft_built_input(&r.built, "target_in"), ids);
            CU_ASSERT_EQUAL_FATAL(weft_session_run(r.session, NULL), WEFT_OK);
            CU_ASSERT_EQUAL_FATAL(
                weft_session_fetch(r.session, r.built.outputs[0], after, sizeof after, NULL),
                WEFT_OK);
            size_t same = (size_t)(LENGTH + position) * VOCAB;
            CU_ASSERT_EQUAL(memcmp(before, after, same * sizeof *before), 0);
            for (size_t at = same; at < N; at += VOCAB)
                CU_ASSERT_NOT_EQUAL(memcmp(before + at, after + at, VOCAB * sizeof *before), 0);
            ids[LENGTH + position] = old;
        }
        rig_close(&r);
    }
}

/* ---- Refusals ---- */

static void refused(const char *model, const char *option, const char *text)
{
    weft_error error = {0};
    weft_built built;
    weft_graph *g = weft_graph_new();
    CU_ASSERT_NOT_EQUAL(
        weft_model_build_text(g, weft_model_find(model), &option, 1, true, &built, &error),
        WEFT_OK);
    if (!strstr(error.message, text)) printf("\n    %s %s: %s\n", model, option, error.message);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, text));
    weft_graph_free(g);
}

static void test_refusals(void)
{
    refused("lstm", "hidden=100", "the width of the states");
    refused("lstm", "layers=0", "1 to 16 layers");
    refused("gru", "layers=17", "1 to 16 layers");
    refused("rnn", "length=0", "expected [batch, len, in]");
    refused("seq2seq", "layers=99", "1 to 16 layers");
    refused("seq2seq", "layers=0", "1 to 16 layers");
    refused("seq2seq", "target_len=0", "must be 1 to 1048576, got 0");
    refused("seq2seq", "attention=sideways", "expected one of none|additive|dot|general");
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3));
    weft_nn_recurrent(g, "l", WEFT_LSTM, x, 4, NULL, NULL);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_SHAPE);
    weft_graph_free(g);
    g = weft_graph_new();
    x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3, 4));
    weft_nn_recurrent_stack_options none = {.layers = -1};
    CU_ASSERT_FALSE(weft_is_value(weft_nn_recurrent_stack(g, "s", WEFT_GRU, x, 4, &none, NULL)));
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
    weft_graph_free(g);
}

/* ---- Matrix matrix products that share a matrix ---- */

/* weft_matmul_shared equals matmul, for every number of rows with its own kernel and on both sides
 * of a panel's edge. A row's bits do not depend on the other rows. */
static void check_shared(weft_dtype dtype, int64_t k, int64_t n)
{
    enum { MOST = 30 };
    weft_error error = {0};
    /* Up to 34 roundings, of terms whose sizes add up to some three times the norm of the result.
     */
    double limit = 100 * (dtype == WEFT_F32 ? 0x1p-24 : 0x1p-53);
    weft_tensor all = {0};
    weft_graph *g = weft_graph_new();
    const weft_init spread = {WEFT_INIT_UNIFORM, -1, 1};
    weft_value a = weft_param(g, "a", dtype, WEFT_SHAPE(MOST, k), spread), targets[2 * MOST];
    weft_value w = weft_param(g, "w", dtype, WEFT_SHAPE(k, n), spread);
    for (int64_t m = 1; m <= MOST; m++) {
        weft_value rows = weft_slice(g, a, 0, 0, m, 1);
        targets[2 * m - 2] = weft_matmul_shared(g, rows, w);
        targets[2 * m - 1] = weft_matmul(g, rows, w);
    }
    weft_params *params = weft_params_new();
    weft_plan *plan = weft_plan_new(g, targets, 2 * MOST, NULL, &error);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(params, g, 4, &error), WEFT_OK);
    weft_session *s = weft_session_new(plan, params, NULL, &error);
    CU_ASSERT_TRUE_FATAL(s && weft_session_run(s, NULL) == WEFT_OK);
    CU_ASSERT_EQUAL(test_count_nodes(plan, "panels"), 1);
    CU_ASSERT_TRUE(weft_session_tensor(s, targets[2 * MOST - 2], &all, NULL) == WEFT_OK);
    for (int64_t m = 1; m <= MOST; m++) {
        weft_tensor got, wanted;
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, targets[2 * m - 2], &got, NULL) == WEFT_OK &&
                             weft_session_tensor(s, targets[2 * m - 1], &wanted, NULL) == WEFT_OK);
        CU_ASSERT_TRUE(golden_agrees("shared", &got, &wanted, limit, 0));
        CU_ASSERT_EQUAL(memcmp(got.data, all.data, (size_t)(m * n) * weft_dtype_bytes(dtype)), 0);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
}

static void test_shared(void)
{
    static const int64_t widths[] = {1, 31, 32, 33, 100};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        check_shared(WEFT_F32, 17, widths[i]);
        check_shared(WEFT_F64, 17, widths[i]);
    }
    check_shared(WEFT_F32, 1, 40);
}

void recurrent_tests(void)
{
    CU_pSuite suite = CU_add_suite("recurrent", NULL, NULL);
    CU_add_test(suite, "RNN, LSTM and GRU as PyTorch's, every gradient", test_layers);
    CU_add_test(suite, "encoder and decoder with attention, every gradient", test_seq2seq);
    CU_add_test(suite, "gradients against central differences", test_gradients);
    CU_add_test(suite, "training over 200 steps", test_training);
    CU_add_test(suite, "nodes and memory grow with the steps", test_linear_size);
    CU_add_test(suite, "the same bits at 1 to 4 threads", test_threads);
    CU_add_test(suite, "padding of the source", test_source_padding);
    CU_add_test(suite, "a token changes no earlier logit", test_causality);
    CU_add_test(suite, "refusals", test_refusals);
    CU_add_test(suite, "matrix products that share a matrix", test_shared);
}
