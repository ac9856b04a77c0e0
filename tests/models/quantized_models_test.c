/* Stores with quantised matrices: which these are, the pass, files, and models that are scored and
 * decoded with them. */
#include "tests.h"

#include <weft/decode.h>
#include <weft/models.h>
#include <weft/quantize.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VOCAB  50
#define LENGTH 12

typedef struct subject {
    weft_model_config config;
    weft_graph *graph;
    weft_params *params;
} subject;

static void make_subject(subject *s, const char *name, const char *const *texts, size_t n)
{
    weft_error error = {0};
    if (weft_model_parse(weft_model_find(name), texts, n, &s->config, &error) != WEFT_OK)
        printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_EQUAL_FATAL(error.status, WEFT_OK);
    s->graph = weft_graph_new();
    s->params = weft_params_new();
    weft_model_build(s->graph, &s->config);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(s->params, s->graph, 7, &error), WEFT_OK);
}

static void free_subject(subject *s)
{
    weft_graph_free(s->graph);
    weft_params_free(s->params);
}

/* ---- Models ---- */

static const char *const attending[] = {"vocab=50", "d_model=64", "heads=4", "d_ff=96"};
static const char *const untied[] = {"vocab=50", "d_model=64", "heads=4", "d_ff=96", "tied=0"};
static const char *const recurrent[] = {"vocab=50", "width=64", "hidden=64"};
static const struct {
    const char *name;
    const char *const *texts;
    size_t n;
} models[] = {
    {"gpt", attending, 4},         {"gpt", untied, 5},         {"llama", attending, 4},
    {"transformer", attending, 4}, {"transformer", untied, 5}, {"lstm", recurrent, 3},
    {"seq2seq", recurrent, 3},
};
#define MODELS (sizeof models / sizeof *models)

static weft_params *quantized(const subject *s, int bits)
{
    weft_error error = {0};
    weft_quantize_report report;
    weft_params *small = weft_params_quantize(
        s->params, s->graph, &(weft_quantize_options){.bits = bits}, &report, &error);
    if (!small) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(small);
    CU_ASSERT_TRUE(report.matrices > 2 && report.bytes_after < report.bytes_before);
    /* The largest errors of a matrix that were seen: 0.0055 and 0.079 of its norm. */
    CU_ASSERT_TRUE(report.max_error > 0 && report.max_error < (bits == 8 ? 0.01 : 0.12));
    CU_ASSERT_TRUE(weft_params_are_quantized(small) && !weft_params_are_quantized(s->params));
    return small;
}

static void score(const subject *s, const weft_params *params, double scores[LENGTH - 1])
{
    static const int32_t source[] = {5, 9, 2, 30};
    int32_t tokens[LENGTH];
    weft_error error = {0};
    for (int i = 0; i < LENGTH; i++) tokens[i] = 1 + (i * 17 + 3) % (VOCAB - 1);
    weft_scorer *scorer = weft_scorer_new(&s->config, params, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(scorer);
    const weft_scorer_row row = {source, 4, tokens, LENGTH, scores};
    weft_status status = weft_scorer_run(scorer, &row, 1, &error);
    if (status != WEFT_OK) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
    weft_scorer_free(scorer);
}

/* The logits after the tokens of `score`, with beams, one token at a time. */
static void decode(const subject *s, const weft_params *params, double logits[VOCAB])
{
    static const int32_t source[] = {5, 9, 2, 30};
    const int32_t *const sources[] = {source};
    const size_t lengths[] = {4};
    weft_error error = {0};
    weft_decoder *d = weft_decoder_new(&s->config, params,
                                       &(weft_decoder_options){.beams = 2, .max_len = 40}, &error);
    if (!d) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    const bool has_source = weft_decoder_info_of(d).has_source;
    CU_ASSERT_EQUAL(weft_decoder_start(d, sources, lengths, has_source, NULL), WEFT_OK);
    for (int i = 0; i < LENGTH; i++) {
        const int32_t token = 1 + (i * 17 + 3) % (VOCAB - 1), both[2] = {token, token};
        CU_ASSERT_EQUAL_FATAL(weft_decoder_step(d, both, NULL, NULL), WEFT_OK);
    }
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_decoder_logits(d, &t));
    for (int i = 0; i < VOCAB; i++) logits[i] = weft_tensor_element(&t, i);
    weft_decoder_free(d);
}

static double distance(const double *a, const double *b, int n)
{
    double off = 0, all = 0;
    for (int i = 0; i < n; i++) {
        off += (a[i] - b[i]) * (a[i] - b[i]);
        all += b[i] * b[i];
    }
    return sqrt(off / all);
}

static void test_models(void)
{
    for (size_t i = 0; i < 2 * MODELS; i++) {
        const int bits = i % 2 ? 4 : 8;
        subject s;
        double scores[2][LENGTH - 1], logits[2][VOCAB];
        make_subject(&s, models[i / 2].name, models[i / 2].texts, models[i / 2].n);
        weft_params *small = quantized(&s, bits);
        score(&s, s.params, scores[0]);
        score(&s, small, scores[1]);
        decode(&s, s.params, logits[0]);
        decode(&s, small, logits[1]);
        const double of_scores = distance(scores[1], scores[0], LENGTH - 1);
        const double of_logits = distance(logits[1], logits[0], VOCAB);
        /* The largest differences seen: 0.0084 and 0.064 of the scores, 0.020 and 0.20 of the
         * logits. */
        const bool good = of_scores < (bits == 8 ? 0.01 : 0.1) && of_scores > 0 &&
                          of_logits < (bits == 8 ? 0.03 : 0.3) && of_logits > 0;
        if (!good)
            printf("\n    %s, %d bits: %g, %g\n", models[i / 2].name, bits, of_scores, of_logits);
        CU_ASSERT_TRUE(good);
        weft_params_free(small);
        free_subject(&s);
    }
}

/* A tied matrix has one form for both uses; a table that is looked up only has 8 bits. */
static void test_names(void)
{
    subject s;
    weft_tensor t;
    make_subject(&s, "gpt", attending, 4);
    weft_params *small = quantized(&s, 4);
    CU_ASSERT_FALSE(weft_params_find(small, "embedding", &t));
    CU_ASSERT_TRUE(weft_params_find(small, "embedding.rows.q", &t));
    CU_ASSERT_TRUE(t.dtype == WEFT_U8 && weft_shape_equal(t.shape, WEFT_SHAPE(VOCAB, 32)));
    CU_ASSERT_TRUE(weft_params_find(small, "embedding.rows.scale", &t));
    CU_ASSERT_TRUE(t.dtype == WEFT_F32 && weft_shape_equal(t.shape, WEFT_SHAPE(VOCAB, 2)));
    size_t replaced = 0;
    for (size_t i = 0; i < weft_params_count(s.params); i++)
        replaced += !weft_params_find(small, weft_params_name(s.params, i), NULL);
    CU_ASSERT_EQUAL(weft_params_count(small),
                    weft_params_count(s.params) - replaced + 3 * replaced);
    CU_ASSERT_STRING_EQUAL(weft_params_meta(small, "quantization"), "bits=4 group=32");
    weft_params_free(small);
    free_subject(&s);
    make_subject(&s, "gpt", untied, 5);
    small = quantized(&s, 4);
    CU_ASSERT_TRUE(weft_params_find(small, "embedding.rows.q", &t));
    CU_ASSERT_TRUE(weft_shape_equal(t.shape, WEFT_SHAPE(VOCAB, 64)));
    CU_ASSERT_TRUE(weft_params_find(small, "output.weight.q", &t));
    weft_params_free(small);
    free_subject(&s);
}

/* A state that another node reads stays, in addition to its quantised form. */
static void test_kept(void)
{
    weft_error error = {0};
    weft_quantize_report report;
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 32));
    const weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(32, 32), WEFT_INIT_XAVIER);
    weft_name(g, weft_add(g, weft_matmul(g, x, w), weft_sum(g, w, WEFT_AXES(0), false)), "y");
    CU_ASSERT_EQUAL(weft_params_init(params, g, 3, &error), WEFT_OK);
    weft_params *small = weft_params_quantize(params, g, NULL, &report, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(small);
    CU_ASSERT_EQUAL(report.kept, 1);
    CU_ASSERT_TRUE(weft_params_find(small, "w", NULL) && weft_params_find(small, "w.q", NULL));
    weft_params_free(small);
    weft_params_free(params);
    weft_graph_free(g);
}

static bool is_not_output(void *context, const char *name)
{
    (void)context;
    return !strstr(name, "output");
}

static void test_filter(void)
{
    subject s;
    const weft_params_filter filter = {.selects = is_not_output};
    const weft_quantize_options options = {.group = 64, .filter = &filter};
    weft_quantize_report report;
    make_subject(&s, "gpt", untied, 5);
    weft_params *small = weft_params_quantize(s.params, s.graph, &options, &report, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(small);
    CU_ASSERT_TRUE(weft_params_find(small, "output.weight", NULL));
    CU_ASSERT_FALSE(weft_params_find(small, "output.weight.q", NULL));
    CU_ASSERT_TRUE(report.left > 0); /* rows of 96 elements */
    CU_ASSERT_EQUAL(report.kept, 0);
    weft_params_free(small);
    free_subject(&s);
}

/* ---- Files ---- */

static void test_file(void)
{
    char path[64];
    subject s;
    weft_error error = {0};
    double logits[2][VOCAB];
    make_subject(&s, "gpt", attending, 4);
    weft_params *small = quantized(&s, 8), *read = weft_params_new();
    snprintf(path, sizeof path, "/tmp/weft-quantize-%ld.safetensors", (long)getpid());
    CU_ASSERT_EQUAL(weft_params_save(small, path, NULL, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_load(read, path, &error), WEFT_OK);
    unlink(path);
    CU_ASSERT_STRING_EQUAL(weft_params_meta(read, "quantization"), "bits=8 group=32");
    decode(&s, small, logits[0]);
    decode(&s, read, logits[1]);
    CU_ASSERT_TRUE(!memcmp(logits[0], logits[1], sizeof logits[0]));
    weft_params_free(small);
    weft_params_free(read);
    free_subject(&s);
}

/* ---- The pass ---- */

/* Products with W, with the transpose of V, and one that only looks like it. */
static void test_pass(void)
{
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3, 32));
    weft_graph_push_scope(g, "layer");
    const weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(32, 32), WEFT_INIT_XAVIER);
    const weft_value v = weft_param(g, "v", WEFT_F32, WEFT_SHAPE(32, 32), WEFT_INIT_XAVIER);
    weft_value y = weft_matmul(g, weft_matmul(g, x, w), weft_transpose(g, v, 0, 1));
    weft_graph_pop_scope(g);
    y = weft_matmul(g, y, w);
    CU_ASSERT_EQUAL(weft_params_init(params, g, 3, &error), WEFT_OK);
    weft_params *small = weft_params_quantize(params, g, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(small);
    CU_ASSERT_EQUAL(weft_params_count(small), 6);
    CU_ASSERT_TRUE(weft_params_find(small, "layer.w.q", NULL));
    CU_ASSERT_TRUE(weft_params_find(small, "layer.v.rows.zero", NULL));
    const weft_pass pass = weft_quantized_pass(small);
    const weft_plan_options options = {.verify = true, .passes = &pass, .n_passes = 1};
    weft_plan *plan = weft_plan_new(g, &y, 1, &options, &error);
    if (!plan) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    const weft_graph *planned = weft_plan_graph(plan);
    size_t products = 0;
    for (size_t i = 0; i < weft_graph_node_count(planned); i++) {
        const char *op = weft_graph_node(planned, i).op->name;
        products += !strcmp(op, "matmul_quantized");
        CU_ASSERT_STRING_NOT_EQUAL(op, "matmul");
    }
    CU_ASSERT_EQUAL(products, 3);
    CU_ASSERT_TRUE(weft_is_value(weft_graph_find(planned, "layer.w.q")));
    weft_session *session = weft_session_new(plan, small, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL(session);
    weft_session_free(session);
    weft_plan_free(plan);
    weft_params_free(small);
    weft_params_free(params);
    weft_graph_free(g);
}

/* The products in the steps of a loop. */
static void test_loop(void)
{
    enum { STEPS = 20 };
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, STEPS, 32));
    const weft_value y =
        weft_contiguous(g, weft_nn_recurrent(g, "layer", WEFT_LSTM, x, 32, NULL, NULL));
    CU_ASSERT_EQUAL(weft_params_init(params, g, 3, &error), WEFT_OK);
    weft_params *small = weft_params_quantize(params, g, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(small);
    CU_ASSERT_TRUE(weft_params_find(small, "layer.weight_h.q", NULL));
    const weft_pass pass = weft_quantized_pass(small);
    const weft_plan_options options = {.verify = true, .passes = &pass, .n_passes = 1};
    weft_plan *plan = weft_plan_new(g, &y, 1, &options, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    const weft_graph *planned = weft_plan_graph(plan);
    size_t products = 0;
    for (size_t i = 0; i < weft_graph_node_count(planned); i++)
        products += !strcmp(weft_graph_node(planned, i).op->name, "matmul_quantized");
    CU_ASSERT_EQUAL(products, STEPS + 1);
    weft_params *wide = weft_params_dequantize(small, g, NULL, &error);
    CU_ASSERT_TRUE(weft_params_find(wide, "layer.weight_h", NULL));
    weft_params_free(wide);
    weft_plan_free(plan);
    weft_params_free(small);
    weft_params_free(params);
    weft_graph_free(g);
}

static bool is_no_scale(void *context, const char *name)
{
    const char *missing = context;
    return !strstr(name, missing);
}

static void test_errors(void)
{
    char path[64];
    subject s;
    weft_error error = {0};
    make_subject(&s, "gpt", attending, 4);
    weft_params *small = quantized(&s, 8), *part = weft_params_new();
    CU_ASSERT_PTR_NULL(weft_params_quantize(small, s.graph, NULL, NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NULL(weft_params_quantize(NULL, s.graph, NULL, NULL, NULL));
    CU_ASSERT_PTR_NULL(weft_params_quantize(s.params, NULL, NULL, NULL, NULL));
    CU_ASSERT_PTR_NULL(weft_params_quantize(part, s.graph, NULL, NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_NOT_FOUND);
    for (int bad = 0; bad < 2; bad++) {
        const weft_quantize_options o = {.bits = bad ? 8 : 3, .group = bad ? 40 : 32};
        CU_ASSERT_PTR_NULL(weft_params_quantize(s.params, s.graph, &o, NULL, &error));
        CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    }
    /* A file without one tensor. */
    const weft_params_filter filter = {is_no_scale, (char[]){"layer.0.attn.q.weight.scale"}};
    const weft_params_filter query = {is_no_scale, (char[]){"layer.0.attn.q.weight"}};
    snprintf(path, sizeof path, "/tmp/weft-quantize-%ld.safetensors", (long)getpid());
    for (int k = 0; k < 2; k++) {
        weft_params *read = weft_params_new();
        CU_ASSERT_EQUAL(weft_params_save(small, path, k ? &query : &filter, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_params_load(read, path, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_params_count(read), weft_params_count(small) - (k ? 3 : 1));
        error = WEFT_NO_ERROR;
        CU_ASSERT_PTR_NULL(weft_decoder_new(&s.config, read, NULL, &error));
        CU_ASSERT_EQUAL(error.status, WEFT_NOT_FOUND);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.where, "layer.0.attn.q.weight"));
        weft_params_free(read);
        unlink(path);
    }
    weft_params_free(part);
    weft_params_free(small);
    free_subject(&s);
}

void quantized_models_tests(void)
{
    CU_pSuite suite = CU_add_suite("quantized_models", NULL, NULL);
    CU_add_test(suite, "scores and logits are near those of f32", test_models);
    CU_add_test(suite, "names of the tensors", test_names);
    CU_add_test(suite, "a matrix that is also read in f32", test_kept);
    CU_add_test(suite, "a filter, and rows that groups do not divide", test_filter);
    CU_add_test(suite, "a file", test_file);
    CU_add_test(suite, "the pass", test_pass);
    CU_add_test(suite, "a loop", test_loop);
    CU_add_test(suite, "errors", test_errors);
}
