/* What the systems of the worked examples must keep: exact zeros under masks, rows that sum to 1,
 * dropout that keeps the mean, masks of every shape, who may see whom; and, of every model of the
 * list, gradients, a run and a training step at its small size. examples/reproduce/ has the
 * documents' numbers. */
#include "tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- A model of the list with data ---- */

#define MAX_FEEDS  8
#define MAX_PARAMS 256

typedef struct rig {
    weft_graph *g;
    weft_built built;
    weft_check_feed feed[MAX_FEEDS];
    size_t n_feeds, n_params;
    weft_value params[MAX_PARAMS];
    weft_value lr, step;
    weft_params *store;
    weft_plan *plan;
    weft_session *session;
} rig;

static void fill(void *data, weft_dtype dtype, int64_t n, int64_t vocab, uint64_t *state)
{
    for (int64_t i = 0; i < n; i++) {
        double x = test_uniform(state, -1, 1);
        if (dtype == WEFT_F32) ((float *)data)[i] = (float)x;
        if (dtype == WEFT_F64) ((double *)data)[i] = x;
        if (dtype == WEFT_BOOL) ((uint8_t *)data)[i] = i % 5 == 3;
        if (dtype == WEFT_I32)
            ((int32_t *)data)[i] =
                i == n - 1 ? 0 : 1 + (int32_t)(test_random(state) % (uint64_t)(vocab - 1));
    }
}

/* Random contents for each input of the graph: vectors, ids with one padded place, truth values. */
static void make_feeds(rig *r)
{
    uint64_t state = 3;
    for (size_t i = 0; i < weft_graph_node_count(r->g); i++) {
        weft_node_info node = weft_graph_node(r->g, i);
        if (node.op != &weft_op_input) continue;
        weft_value input = weft_value_from_id(r->g, node.first_out);
        weft_dtype dtype = weft_dtype_of(r->g, input);
        int64_t n = weft_shape_numel(weft_shape_of(r->g, input));
        size_t bytes = weft_tensor_bytes(dtype, weft_shape_of(r->g, input));
        void *data = calloc(1, bytes);
        CU_ASSERT_TRUE_FATAL(data && r->n_feeds < MAX_FEEDS);
        fill(data, dtype, n, r->built.vocab, &state);
        r->feed[r->n_feeds++] = (weft_check_feed){input, data, bytes};
    }
}

/* `text` is "key=value key=value", options of the model. */
static void rig_build(rig *r, const char *name, const char *text, const char *more, bool training)
{
    char all[512];
    *r = (rig){.g = weft_graph_new(), .store = weft_params_new()};
    snprintf(all, sizeof all, "%s %s %s", name, text, more);
    test_build_model(r->g, all, training, &r->built);
    make_feeds(r);
    r->n_params = test_params(r->g, r->params, MAX_PARAMS);
    CU_ASSERT_TRUE_FATAL(r->n_params <= MAX_PARAMS);
}

static void rig_open(rig *r, const weft_value *targets, size_t n)
{
    weft_error error = {0};
    weft_plan_options verify = {.verify = true};
    r->plan = weft_plan_new(r->g, targets, n, &verify, &error);
    if (r->plan && weft_params_init(r->store, r->g, 1, &error) == WEFT_OK)
        r->session = weft_session_new(r->plan, r->store, NULL, &error);
    if (!r->session) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->session);
    for (size_t i = 0; i < r->n_feeds; i++)
        CU_ASSERT_EQUAL_FATAL(weft_session_feed(r->session, r->feed[i].input, r->feed[i].data,
                                                r->feed[i].bytes, NULL),
                              WEFT_OK);
}

/* Opens with the step of Adam: targets are the loss and the step. */
static void rig_train(rig *r, float rate)
{
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    r->lr = weft_scalar(r->g, weft_dtype_of(r->g, r->built.loss), (double)rate);
    r->step = weft_train_update(r->g, r->built.loss, r->params, r->n_params, r->lr, &adam, NULL);
    const weft_value targets[] = {r->built.loss, r->step};
    rig_open(r, targets, 2);
}

static void rig_close(rig *r)
{
    for (size_t i = 0; i < r->n_feeds; i++) free((void *)(uintptr_t)r->feed[i].data);
    weft_session_free(r->session);
    weft_plan_free(r->plan);
    weft_params_free(r->store);
    weft_graph_free(r->g);
}

static float run_loss(rig *r)
{
    float loss = NAN;
    CU_ASSERT_EQUAL_FATAL(weft_session_run(r->session, NULL), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_session_fetch(r->session, r->built.loss, &loss, sizeof loss, NULL),
                          WEFT_OK);
    return loss;
}

/* ---- Every model of the list ---- */

static weft_check_result check_at(const weft_model *model, uint64_t seed)
{
    rig r;
    weft_error error = {0};
    weft_check_result result = {.worst_error = NAN};
    weft_value wrt[MAX_PARAMS + 2];
    rig_build(&r, model->name, model->small, "f64=1", true);
    size_t n = test_params(r.g, wrt, MAX_PARAMS);
    CU_ASSERT_TRUE_FATAL(n <= MAX_PARAMS);
    const weft_value vectors[] = {weft_built_input(&r.built, "input"),
                                  weft_built_input(&r.built, "memory")};
    for (size_t i = 0; i < 2; i++)
        if (weft_is_value(vectors[i])) wrt[n++] = vectors[i];
    CU_ASSERT_EQUAL_FATAL(weft_params_init(r.store, r.g, seed, &error), WEFT_OK);
    weft_status status = weft_check_gradient(r.g,
                                             &(weft_gradient_check){.loss = r.built.loss,
                                                                    .wrt = wrt,
                                                                    .n = n,
                                                                    .params = r.store,
                                                                    .feeds = r.feed,
                                                                    .n_feeds = r.n_feeds,
                                                                    .per_value = 5,
                                                                    .seed = 1},
                                             &result, &error);
    if (status != WEFT_OK) printf("\n    %s: %s: %s\n", model->name, error.where, error.message);
    CU_ASSERT_EQUAL(status, WEFT_OK);
    CU_ASSERT_TRUE(result.checked >= n);
    rig_close(&r);
    return result;
}

/* A kink of ReLU within a step of the differences spoils them at some parameters; a wrong gradient
 * spoils them at all. */
static void test_gradients(void)
{
    for (size_t i = 0; i < weft_model_count(); i++) {
        const weft_model *model = weft_model_at(i);
        weft_check_result result = check_at(model, 1);
        for (uint64_t seed = 2; seed <= 5 && !(result.worst_error <= DIFFERENCES); seed++)
            result = check_at(model, seed);
        if (!(result.worst_error <= DIFFERENCES))
            printf("\n    %s: off by %g at %s\n", model->name, result.worst_error, result.where);
        CU_ASSERT_TRUE(result.worst_error <= DIFFERENCES);
    }
}

static bool has_dropout(const weft_model *model)
{
    for (size_t i = 0; i < model->n_options; i++)
        if (!strcmp(model->options[i].name, "dropout")) return true;
    return false;
}

/* Forward alone, then twenty steps with dropout off: the loss is finite and falls, if not in each
 * step. */
static void test_runs(void)
{
    for (size_t i = 0; i < weft_model_count(); i++) {
        const weft_model *model = weft_model_at(i);
        rig r;
        rig_build(&r, model->name, model->small, "", false);
        const weft_value targets[] = {r.built.outputs[0], r.built.loss};
        weft_tensor output;
        rig_open(&r, targets, 2);
        float forward = run_loss(&r);
        CU_ASSERT_TRUE(isfinite(forward));
        CU_ASSERT_TRUE(weft_session_tensor(r.session, r.built.outputs[0], &output, NULL) ==
                       WEFT_OK);
        CU_ASSERT_EQUAL(output.shape.rank,
                        weft_rank_of(r.g, weft_built_input(&r.built, "input")) == 4 ? 2 : 3);
        rig_close(&r);

        rig_build(&r, model->name, model->small, has_dropout(model) ? "dropout=0" : "", true);
        rig_train(&r, 1e-2f);
        const float first = run_loss(&r);
        float last = first, least = first;
        for (int step = 0; step < 20; step++) {
            last = run_loss(&r);
            least = fminf(least, last);
        }
        if (!(isfinite(last) && least < 0.95f * first))
            printf("\n    %s: from %g to %g\n", model->name, (double)first, (double)least);
        CU_ASSERT_TRUE(isfinite(first) && isfinite(last) && least < 0.95f * first);
        rig_close(&r);
    }
}

/* ---- Attention: its parts ---- */

enum { BATCH = 2, HEADS = 4, LENGTH = 6, KEYS = 7, WIDTH = 16 };
#define WEIGHTS (BATCH * HEADS * LENGTH * KEYS)

/* Runs values of a graph in f64 with parameters from a seed. */
static void evaluate(weft_graph *g, const weft_value *values, size_t n, double *const *out)
{
    weft_error error = {0};
    weft_params *store = weft_params_new();
    weft_value dense[8];
    for (size_t i = 0; i < n; i++) dense[i] = weft_contiguous(g, values[i]);
    weft_plan *plan = weft_plan_new(g, dense, n, NULL, &error);
    weft_session *s = NULL;
    if (plan && weft_params_init(store, g, 5, &error) == WEFT_OK)
        s = weft_session_new(plan, store, NULL, &error);
    if (!s) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = (size_t)weft_shape_numel(weft_shape_of(g, dense[i])) * sizeof(double);
        CU_ASSERT_EQUAL_FATAL(weft_session_fetch(s, dense[i], out[i], bytes, NULL), WEFT_OK);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(store);
}

static weft_value normal(weft_graph *g, const char *name, weft_shape shape)
{
    return weft_state(g, name, WEFT_F64, shape, (weft_init){WEFT_INIT_NORMAL, 0, 1});
}

static bool hidden_key(int b, int key)
{
    return key >= KEYS - 1 - b;
}

/* Cross-attention with keys of padding masked and half of the weights dropped. */
static void test_parts(void)
{
    const double p = 0.5;
    static double weights[WEIGHTS], dropped[WEIGHTS], scores[WEIGHTS], scaled[WEIGHTS];
    uint8_t hidden[BATCH * KEYS];
    int gone = 0, seen = 0;
    for (int i = 0; i < BATCH * KEYS; i++) hidden[i] = hidden_key(i / KEYS, i % KEYS);
    weft_graph *g = weft_graph_new();
    weft_nn_attention_parts parts;
    weft_nn_attention_options o = {
        .heads = HEADS,
        .bias = true,
        .dropout = p,
        .mask = weft_constant(g, WEFT_BOOL, WEFT_SHAPE(BATCH, 1, 1, KEYS), hidden)};
    weft_value x = normal(g, "x", WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    weft_value memory = normal(g, "memory", WEFT_SHAPE(BATCH, KEYS, WIDTH));
    weft_nn_attention(g, "a", x, memory, &o, &parts);
    const weft_value values[] = {parts.weights, parts.dropped, parts.scores, parts.scaled};
    evaluate(g, values, 4, (double *const[]){weights, dropped, scores, scaled});
    for (int row = 0; row < WEIGHTS / KEYS; row++) {
        double sum = 0;
        for (int key = 0; key < KEYS; key++) {
            int i = row * KEYS + key;
            bool masked = hidden_key(row / (HEADS * LENGTH), key);
            sum += weights[i];
            CU_ASSERT_EQUAL(weights[i] == 0, masked);
            CU_ASSERT_TRUE(masked
                               ? scaled[i] == -INFINITY
                               : fabs(scaled[i] - scores[i] / 2) < ROUNDING_F64); /* head width 4 */
            /* Two roundings on either side of a number up to 2: 4 * 2^-53 * 2 = 9e-16. */
            CU_ASSERT_TRUE(dropped[i] == 0 || fabs(dropped[i] - weights[i] / (1 - p)) < 1e-15);
            seen += !masked;
            gone += !masked && dropped[i] == 0;
        }
        /* Twelve additions and five roundings of each weight: 17 * 2^-53 = 2e-15. */
        CU_ASSERT_DOUBLE_EQUAL(sum, 1, 1e-14);
    }
    CU_ASSERT_TRUE(gone > seen / 3 && gone < seen * 2 / 3);
    weft_graph_free(g);
}

/* Weights of self-attention and of a cross-attention whose queries end where its keys end. */
static void check_causal(int keys)
{
    static double weights[WEIGHTS];
    weft_graph *g = weft_graph_new();
    weft_nn_attention_parts parts;
    weft_nn_attention_options o = {.heads = HEADS, .causal = true};
    weft_value x = normal(g, "x", WEFT_SHAPE(BATCH, LENGTH, WIDTH));
    weft_value memory = keys == LENGTH ? x : normal(g, "memory", WEFT_SHAPE(BATCH, keys, WIDTH));
    weft_nn_attention(g, "a", x, memory, &o, &parts);
    evaluate(g, &parts.weights, 1, (double *const[]){weights});
    for (int i = 0; i < BATCH * HEADS * LENGTH * keys; i++)
        CU_ASSERT_EQUAL(weights[i] == 0, i % keys > i / keys % LENGTH + keys - LENGTH);
    weft_graph_free(g);
}

static void test_causal_weights(void)
{
    check_causal(LENGTH);
    check_causal(KEYS);
}

/* Each shape of mask gives the bits of the same mask written out. */
static void test_mask_shapes(void)
{
    static const weft_shape shapes[] = {{4, {BATCH, 1, 1, KEYS}},
                                        {4, {1, 1, LENGTH, KEYS}},
                                        {4, {BATCH, 1, LENGTH, KEYS}},
                                        {2, {LENGTH, KEYS}},
                                        {1, {KEYS}},
                                        {3, {HEADS, LENGTH, KEYS}},
                                        {4, {1, HEADS, 1, KEYS}},
                                        {4, {BATCH, HEADS, LENGTH, KEYS}},
                                        {4, {BATCH, 1, LENGTH, 1}}};
    enum { N = BATCH * LENGTH * WIDTH };
    static uint8_t pattern[WEIGHTS], whole[WEIGHTS];
    static double y[2][N];
    uint64_t state = 9;
    for (int i = 0; i < WEIGHTS; i++) pattern[i] = test_random(&state) % 3 == 0;
    const weft_shape full = {4, {BATCH, HEADS, LENGTH, KEYS}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        for (int i = 0; i < WEIGHTS; i++) {
            int64_t at = 0, rest = i, index[4];
            for (int a = 3; a >= 0; a--) {
                index[a] = rest % full.dim[a];
                rest /= full.dim[a];
            }
            for (int a = 0; a < shapes[k].rank; a++) {
                int64_t size = shapes[k].dim[a];
                at = at * size + (size == 1 ? 0 : index[a + 4 - shapes[k].rank]);
            }
            whole[i] = pattern[at];
        }
        for (int form = 0; form < 2; form++) {
            weft_graph *g = weft_graph_new();
            weft_nn_attention_options o = {
                .heads = HEADS,
                .out_bias = true,
                .mask = form ? weft_constant(g, WEFT_BOOL, full, whole)
                             : weft_constant(g, WEFT_BOOL, shapes[k], pattern)};
            weft_value x = normal(g, "x", WEFT_SHAPE(BATCH, LENGTH, WIDTH));
            weft_value memory = normal(g, "memory", WEFT_SHAPE(BATCH, KEYS, WIDTH));
            weft_value out = weft_nn_attention(g, "a", x, memory, &o, NULL);
            CU_ASSERT_EQUAL_FATAL(weft_graph_status(g), WEFT_OK);
            evaluate(g, &out, 1, (double *const[]){y[form]});
            weft_graph_free(g);
        }
        CU_ASSERT_EQUAL(memcmp(y[0], y[1], sizeof y[0]), 0);
        for (int i = 0; i < N; i++) CU_ASSERT_TRUE(isfinite(y[0][i]));
    }
}

/* ---- The Transformer whose heads share a projection, on the document's two pairs ---- */

enum { SOURCE = 9, TARGET = 7, VOCAB = 10, LOGITS = 2 * TARGET * VOCAB };
static const int32_t source[2 * SOURCE] = {1, 5, 6, 4, 3, 9, 5, 2, 0, 1, 8, 7, 3, 4, 5, 6, 7, 2};
static const int32_t target_in[2 * TARGET] = {1, 7, 4, 3, 5, 9, 2, 1, 5, 6, 2, 4, 7, 6};
static const int32_t target_out[2 * TARGET] = {7, 4, 3, 5, 9, 2, 0, 5, 6, 2, 4, 7, 6, 2};

#define NARROW "d_model=32 heads=4 d_ff=64 encoder_layers=2 decoder_layers=2"

static void feed_pairs(rig *r, const int32_t *in)
{
    CU_ASSERT_EQUAL(weft_session_feed(r->session, weft_built_input(&r->built, "source"), source,
                                      sizeof source, NULL),
                    WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(r->session, weft_built_input(&r->built, "target_in"), in,
                                      sizeof target_in, NULL),
                    WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(r->session, weft_built_input(&r->built, "target_out"),
                                      target_out, sizeof target_out, NULL),
                    WEFT_OK);
}

static void run_logits(rig *r, float *logits)
{
    CU_ASSERT_EQUAL_FATAL(weft_session_run(r->session, NULL), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(
        weft_session_fetch(r->session, r->built.outputs[0], logits, LOGITS * sizeof *logits, NULL),
        WEFT_OK);
}

static void test_shared(void)
{
    rig r;
    float before[LOGITS], after[LOGITS];
    rig_build(&r, "transformer-shared", NARROW, "", false);
    CU_ASSERT_TRUE(
        weft_shape_equal(weft_shape_of(r.g, r.built.outputs[0]), WEFT_SHAPE(2, TARGET, VOCAB)));
    rig_open(&r, &r.built.outputs[0], 1);
    feed_pairs(&r, target_in);
    run_logits(&r, before);
    for (int place = 0; place < TARGET; place++) {
        int32_t in[2 * TARGET];
        memcpy(in, target_in, sizeof in);
        in[place] = in[place] % 9 + 1; /* of the first pair */
        feed_pairs(&r, in);
        run_logits(&r, after);
        for (int i = 0; i < LOGITS; i++) {
            bool may = i / VOCAB < TARGET && i / VOCAB >= place;
            if (!may) CU_ASSERT_EQUAL(memcmp(&before[i], &after[i], sizeof *after), 0);
        }
        CU_ASSERT_NOT_EQUAL(
            memcmp(before + place * VOCAB, after + place * VOCAB, VOCAB * sizeof *after), 0);
    }
    /* What stands in the row of the padding changes nothing; in the row of a token, something. */
    weft_tensor table;
    feed_pairs(&r, target_in);
    CU_ASSERT_TRUE_FATAL(weft_params_find(r.store, "source_embedding", &table));
    int64_t width = table.shape.dim[1];
    for (int64_t i = 0; i < width; i++) ((float *)table.data)[i] += 1;
    run_logits(&r, after);
    CU_ASSERT_EQUAL(memcmp(before, after, sizeof after), 0);
    for (int64_t i = 0; i < width; i++) ((float *)table.data)[5 * width + i] *= -1;
    run_logits(&r, after);
    CU_ASSERT_NOT_EQUAL(memcmp(before, after, sizeof after), 0);
    rig_close(&r);
}

static void test_shared_by_heart(void)
{
    rig r;
    rig_build(&r, "transformer-shared", NARROW, "dropout=0", true);
    rig_train(&r, 3e-3f);
    feed_pairs(&r, target_in);
    float first = run_loss(&r), last = first;
    for (int step = 0; step < 300 && !(last < 0.01f); step++) last = run_loss(&r);
    if (!(last < 0.01f)) printf("\n    from %g to %g\n", (double)first, (double)last);
    CU_ASSERT_TRUE(first > 1 && last < 0.01f);
    rig_close(&r);
}

void worked_examples_tests(void)
{
    CU_pSuite suite = CU_add_suite("worked examples, and every model", NULL, NULL);
    CU_add_test(suite, "masked weights are zero, rows sum to 1, dropout divides by 1 - p",
                test_parts);
    CU_add_test(suite, "no weight above the diagonal", test_causal_weights);
    CU_add_test(suite, "masks of every shape", test_mask_shapes);
    CU_add_test(suite, "shared heads: which positions attend to which", test_shared);
    CU_add_test(suite, "shared heads: two pairs are memorised", test_shared_by_heart);
    CU_add_test(suite, "gradients of every model", test_gradients);
    CU_add_test(suite, "every model runs and learns", test_runs);
}
