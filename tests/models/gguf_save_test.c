/* Models that are written as GGUF files: what is read again is the same model, and numbers are rounded
 * as the rules of the format say. */
#include "golden.h"
#include "tests.h"

#include <weft/gguf.h>
#include <weft/huggingface.h>
#include <weft/models.h>
#include <weft/quantize.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TINY        "vocab=40 d_model=64 heads=2 kv_heads=0 d_ff=32 layers=1 output_bias=none"
#define TRANSLATION "vocab=20 d_model=8 heads=2 encoder_layers=1 output_bias=none"
#define LLAMA3      "rotary_base=500000 rotary_scaling=llama3 rotary_factor=8 rotary_positions=8192"

/* The path of a file of this process. */
static const char *path_of(const char *name)
{
    static char paths[4][96];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "/tmp/weft-gguf-save-%ld-%s.gguf", (long)getpid(), name);
    return path;
}

/* A model and its parameters. */
typedef struct model {
    weft_params *params;
    weft_model_config config;
} model;

static void free_model(model *m)
{
    weft_params_free(m->params);
    m->params = NULL;
}

/* A graph of a model, for inference. */
static weft_graph *graph_of(const weft_model_config *config)
{
    weft_model_config one = *config;
    weft_graph *g = weft_graph_new();
    one.build = (weft_build_options){.shape = {.rows = 1, .source_len = 1, .target_len = 1}};
    weft_model_build(g, &one);
    return g;
}

/* A listed model with the options "key=value key=value" and random parameters. */
static model make_model(const char *name, const char *options)
{
    char copy[512];
    const char *words[32];
    size_t n = 0;
    model m = {weft_params_new(), {.model = NULL}};
    weft_error error = WEFT_NO_ERROR;
    snprintf(copy, sizeof copy, "%s", options);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) words[n++] = word;
    weft_model_parse(weft_model_find(name), words, n, &m.config, &error);
    if (error.status != WEFT_OK) printf("\n    %s\n", error.message);
    CU_ASSERT_EQUAL_FATAL(error.status, WEFT_OK);
    weft_graph *g = graph_of(&m.config);
    weft_params_init(m.params, g, 1, &error);
    if (error.status != WEFT_OK) printf("\n    %s\n", error.message);
    CU_ASSERT_EQUAL_FATAL(error.status, WEFT_OK);
    weft_graph_free(g);
    return m;
}

static model load(const char *path)
{
    weft_error error = WEFT_NO_ERROR;
    model m = {weft_params_new(), {.model = NULL}};
    weft_gguf *file = weft_gguf_open(path, &error);
    if (file) weft_gguf_load(file, NULL, m.params, &m.config, &error);
    if (error.status != WEFT_OK) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_EQUAL_FATAL(error.status, WEFT_OK);
    weft_gguf_close(file);
    return m;
}

static void save(const model *m, const char *path, const char *type)
{
    weft_error error = WEFT_NO_ERROR;
    const weft_save_gguf_options options = {.type = type};
    const weft_status status = weft_params_save_gguf(m->params, &m->config, path, &options, &error);
    if (status != WEFT_OK) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
}

static void expect_same(const model *got, const model *wanted)
{
    char got_options[WEFT_OPTIONS_TEXT], options[WEFT_OPTIONS_TEXT];
    CU_ASSERT_EQUAL(weft_params_count(got->params), weft_params_count(wanted->params));
    for (size_t i = 0; i < weft_params_count(wanted->params); i++) {
        weft_tensor x, y;
        const char *name = weft_params_name(wanted->params, i);
        CU_ASSERT_TRUE_FATAL(weft_params_find(wanted->params, name, &y));
        CU_ASSERT_TRUE_FATAL(weft_params_find(got->params, name, &x));
        CU_ASSERT_TRUE(test_same_tensors(name, &x, &y));
    }
    weft_model_options_text(&got->config, got_options, sizeof got_options);
    weft_model_options_text(&wanted->config, options, sizeof options);
    CU_ASSERT_STRING_EQUAL(got_options, options);
}

/* ---- Round trips ---- */

/* Whether two files have the same tensors. */
static void expect_same_files(const char *got_path, const char *wanted_path)
{
    weft_gguf *x = weft_gguf_open(got_path, NULL), *y = weft_gguf_open(wanted_path, NULL);
    CU_ASSERT_EQUAL(weft_gguf_count(x), weft_gguf_count(y));
    for (size_t k = 0; k < weft_gguf_count(y); k++) {
        const weft_gguf_tensor *want = weft_gguf_at(y, k), *got = weft_gguf_find(x, want->name);
        CU_ASSERT_TRUE_FATAL(got && got->bytes == want->bytes);
        CU_ASSERT_TRUE(weft_shape_equal(got->shape, want->shape));
        CU_ASSERT_TRUE(!memcmp(got->data, want->data, want->bytes));
    }
    weft_gguf_close(x);
    weft_gguf_close(y);
}

/* Files of other programs: the same tensors with the same bytes. */
static void test_golden(void)
{
    static const char *const names[] = {"llama", "gpt2", "qwen3", "phi3", "gemma3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char golden[256];
        const char *path = path_of(names[i]);
        snprintf(golden, sizeof golden, "%s/%s.gguf", GOLDEN("gguf"), names[i]);
        model m = load(golden);
        save(&m, path, NULL);
        model again = load(path);
        expect_same(&again, &m);
        expect_same_files(path, golden);
        free_model(&again);
        free_model(&m);
        unlink(path);
    }
}

/* The norms of Gemma get their 1: the file is the one that was made of the same folder. */
static void test_plus_one(void)
{
    const char *path = path_of("gemma");
    weft_error error = WEFT_NO_ERROR;
    model m = {weft_params_new(), {.model = NULL}};
    CU_ASSERT_EQUAL_FATAL(
        weft_huggingface_load(m.params, &m.config, GOLDEN("huggingface/gemma3"), &error), WEFT_OK);
    save(&m, path, NULL);
    expect_same_files(path, GOLDEN("gguf/gemma3.gguf"));
    free_model(&m);
    unlink(path);
}

/* Options of models that were not read from GGUF files, the architecture that is chosen, and some of
 * the options that are read again. */
static void test_options(void)
{
    static const struct {
        const char *model, *options, *architecture, *again;
    } cases[] = {
        {"llama", TINY, "llama", "rotary_base=10000"},
        {"llama", TINY " kv_heads=1 tied=1 eps=0.001 pad_id=7", "llama", "eps=0.001"},
        {"llama", TINY " head_dim=16 rotary_dim=8 qkv_bias=1", "llama", "rotary_dim=8"},
        {"llama", TINY " rotary_scaling=linear rotary_factor=2.5", "llama", "rotary_factor=2.5"},
        {"llama", TINY " rotary_scaling=yarn rotary_factor=4 rotary_positions=256 rotary_fast=16",
         "llama", "rotary_positions=256"},
        {"llama", TINY " head_dim=32 " LLAMA3, "llama", "rotary_scaling=llama3"},
        {"llama",
         TINY " rotary_scaling=longrope rotary_dim=6 rotary_factors=1.05,2.5,64 "
              "rotary_magnitude=1.19",
         "llama", "rotary_factors=1.05,2.5,64 "},
        {"llama", TINY " norm_qk=1", "qwen3", "norm_qk=1"},
        {"llama",
         TINY " norm=both scaled_embeddings=1 activation=gelu-tanh global_every=2 window=8 "
              "score_cap=20 logit_cap=10",
         "gemma2", "score_cap=20"},
        {"gpt",
         TINY " norm=pre activation=gelu-tanh tied=1 positions=learned qkv_bias=1 "
              "out_bias=1 ffn_bias=1 eps=1e-6",
         "gpt2", "eps=1e-06"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char options[WEFT_OPTIONS_TEXT];
        const char *first = path_of("first"), *second = path_of("second");
        model m = make_model(cases[i].model, cases[i].options);
        save(&m, first, NULL);
        model again = load(first);
        weft_model_options_text(&again.config, options, sizeof options);
        CU_ASSERT_PTR_NOT_NULL(strstr(options, cases[i].again));
        CU_ASSERT_STRING_EQUAL(weft_params_meta(again.params, WEFT_GGUF_ARCHITECTURE),
                               cases[i].architecture);
        save(&again, second, NULL);
        model last = load(second);
        expect_same(&last, &again);
        again.config = m.config; /* options of 0 may have become what they mean */
        last.config = m.config;
        expect_same(&again, &m);
        free_model(&last);
        free_model(&again);
        free_model(&m);
        unlink(first);
        unlink(second);
    }
}

/* ---- Types ---- */

/* The numbers of a tensor of a file. */
static const weft_gguf_tensor *read_tensor(const weft_gguf *file, const char *name, float *to)
{
    const weft_gguf_tensor *t = weft_gguf_find(file, name);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT_EQUAL_FATAL(weft_gguf_read(file, t, to, NULL), WEFT_OK);
    return t;
}

/* Matrices have the type, norms have not; what is read again is written with the same bits. */
static void test_types(void)
{
    static const char *const types[][2] = {{"f32", "F32"},   {"f16", "F16"},   {"bf16", "BF16"},
                                           {"q8_0", "Q8_0"}, {"q4_0", "Q4_0"}, {"q4_1", "Q4_1"}};
    static const double limits[] = {0, 0.001, 0.005, 0.006, 0.15, 0.1};
    static float x[40 * 64], y[40 * 64];
    model m = make_model("llama", TINY);
    const char *wide = path_of("wide"), *path = path_of("typed"), *second = path_of("again");
    save(&m, wide, NULL);
    for (size_t i = 0; i < 6; i++) {
        save(&m, path, types[i][0]);
        weft_gguf *from = weft_gguf_open(wide, NULL), *to = weft_gguf_open(path, NULL);
        CU_ASSERT_STRING_EQUAL(weft_gguf_find(to, "blk.0.attn_norm.weight")->type, "F32");
        CU_ASSERT_STRING_EQUAL(read_tensor(to, "blk.0.ffn_down.weight", y)->type, types[i][1]);
        read_tensor(to, "token_embd.weight", y);
        const weft_gguf_tensor *t = read_tensor(from, "token_embd.weight", x);
        double most = 0, off = 0;
        for (int64_t k = 0; k < weft_shape_numel(t->shape); k++) {
            most = fmax(most, fabs((double)x[k]));
            off = fmax(off, fabs((double)x[k] - (double)y[k]));
        }
        CU_ASSERT_TRUE(off <= limits[i] * most && (off > 0) == (i > 0));
        model again = load(path);
        save(&again, second, i < 3 ? types[i][0] : NULL);
        weft_gguf *twice = weft_gguf_open(second, NULL);
        for (size_t k = 0; k < weft_gguf_count(to); k++) {
            const weft_gguf_tensor *a = weft_gguf_at(to, k), *b = weft_gguf_find(twice, a->name);
            CU_ASSERT_TRUE(a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes));
        }
        weft_gguf_close(twice);
        weft_gguf_close(to);
        weft_gguf_close(from);
        free_model(&again);
    }
    free_model(&m);
    unlink(wide);
    unlink(path);
    unlink(second);
}

/* Groups whose scale is 1, so that the rules can be read off. */
static void test_rules(void)
{
    static const struct {
        const char *type;
        float x[4], want[4]; /* the first numbers of a group; the others are 0 */
    } cases[] = {
        {"q8_0", {127, 0.5f, -0.5f, 2.4375f}, {127, 1, -1, 2}},
        {"q4_0", {-8, 7, 0.5f, -0.5625f}, {-8, 7, 1, -1}},
        {"q4_0", {8, -7.5f, 0.5f, 0.4375f}, {8, -7, 0, 0}},
        {"q4_1", {15, 0.5f, 0.4375f, 14.5f}, {15, 1, 0, 15}},
        {"f16",
         {1.00048828125f, 1.00146484375f, -65504, 5.9604645e-8f},
         {1, 1.001953125f, -65504, 5.9604645e-8f}},
    };
    static float got[40 * 64];
    const char *path = path_of("rules");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model m = make_model("llama", TINY);
        weft_tensor t;
        CU_ASSERT_TRUE_FATAL(weft_params_find(m.params, "embedding", &t));
        memset(t.data, 0, 64 * sizeof(float));
        memcpy(t.data, cases[i].x, sizeof cases[i].x);
        save(&m, path, cases[i].type);
        weft_gguf *file = weft_gguf_open(path, NULL);
        read_tensor(file, "token_embd.weight", got);
        for (int k = 0; k < 4; k++) CU_ASSERT_EQUAL(got[k], cases[i].want[k]);
        CU_ASSERT_EQUAL(got[4], 0);
        weft_gguf_close(file);
        free_model(&m);
    }
    unlink(path);
}

/* Blocks do not divide rows of 24 numbers: f16. */
static void test_other_rows(void)
{
    const char *path = path_of("rows");
    model m = load(GOLDEN("gguf/llama.gguf"));
    save(&m, path, "q8_0");
    weft_gguf *file = weft_gguf_open(path, NULL);
    CU_ASSERT_STRING_EQUAL(weft_gguf_find(file, "blk.0.attn_q.weight")->type, "F16");
    weft_gguf_close(file);
    free_model(&m);
    unlink(path);
}

/* The forms of `weft quantize` have scales in f32: the numbers are those of weft_dequantize. */
static void test_quantized_store(void)
{
    static float got[64 * 64], want[64 * 64];
    const char *path = path_of("quantized");
    model m = make_model("llama", TINY);
    weft_graph *g = graph_of(&m.config);
    weft_params *small = weft_params_quantize(m.params, g, NULL, NULL, NULL);
    model q = {small, m.config};
    weft_tensor codes, scale, zero;
    CU_ASSERT_TRUE_FATAL(weft_params_find(small, "layer.0.attn.v.weight.q", &codes));
    CU_ASSERT_TRUE_FATAL(weft_params_find(small, "layer.0.attn.v.weight.scale", &scale));
    CU_ASSERT_TRUE_FATAL(weft_params_find(small, "layer.0.attn.v.weight.zero", &zero));
    const weft_quantized_matrix matrix = {64, 64, 8, 32, codes.data, scale.data, zero.data};
    CU_ASSERT_EQUAL(weft_dequantize(&matrix, want, NULL), WEFT_OK);
    save(&q, path, NULL);
    weft_gguf *file = weft_gguf_open(path, NULL);
    CU_ASSERT_STRING_EQUAL(read_tensor(file, "blk.0.attn_v.weight", got)->type, "F32");
    CU_ASSERT_TRUE(!memcmp(got, want, sizeof got));
    weft_gguf_close(file);
    weft_graph_free(g);
    weft_params_free(small);
    free_model(&m);
    unlink(path);
}

/* ---- Failures ---- */

static void expect_refused(const model *m, const weft_save_gguf_options *options,
                           weft_status wanted, const char *message)
{
    weft_error error = WEFT_NO_ERROR;
    char text[8] = "";
    const char *path = path_of("refused");
    FILE *file = fopen(path, "wb");
    CU_ASSERT_TRUE_FATAL(file && fputs("before", file) >= 0 && !fclose(file));
    CU_ASSERT_EQUAL(weft_params_save_gguf(m->params, &m->config, path, options, &error), wanted);
    const bool found = strstr(error.message, message) != NULL;
    CU_ASSERT_TRUE(found);
    if (!found) printf("\n    %s\n    expected %s\n", error.message, message);
    file = fopen(path, "rb"); /* what was there is still there */
    CU_ASSERT_TRUE_FATAL(file && fread(text, 1, 7, file) == 6 && !fclose(file));
    CU_ASSERT_STRING_EQUAL(text, "before");
    unlink(path);
}

static void refuse_model(const char *name, const char *options, const char *message)
{
    model m = make_model(name, options);
    expect_refused(&m, NULL, WEFT_BAD_ARGUMENT, message);
    free_model(&m);
}

static void test_refused(void)
{
    weft_tensor t;
    refuse_model("bert", TINY, "is not a language model");
    refuse_model("transformer", TRANSLATION, "is not a language model");
    refuse_model("llama", TINY " window=3", "has window=3, but llama has 0");
    refuse_model("llama", TINY " eps=1.00000001e-5", "has eps=1.00000001e-05, but llama has 1e-05");
    refuse_model("gpt",
                 TINY " norm=pre activation=relu tied=1 positions=learned qkv_bias=1 out_bias=1 "
                      "ffn_bias=1",
                 "has activation=relu, but gpt2 has gelu-tanh");
    model m = make_model("llama", TINY);
    expect_refused(&m, &(weft_save_gguf_options){.type = "q5_0"}, WEFT_BAD_ARGUMENT,
                   "weft cannot round to this type; expected f32, f16");
    expect_refused(&m, &(weft_save_gguf_options){.architecture = "bloom"}, WEFT_NOT_FOUND,
                   "is not an architecture of GGUF files");
    expect_refused(&m, &(weft_save_gguf_options){.architecture = "gpt2"}, WEFT_BAD_ARGUMENT,
                   "cannot be written as gpt2, which is a gpt");
    CU_ASSERT_TRUE_FATAL(weft_params_find(m.params, "layer.0.ffn.in.weight", &t));
    ((float *)t.data)[3] = 70000;
    expect_refused(&m, &(weft_save_gguf_options){.type = "f16"}, WEFT_BAD_ARGUMENT,
                   "has a number that f16 cannot hold");
    ((float *)t.data)[3] = 3e38F;
    ((float *)t.data)[4] = -3e38F;
    expect_refused(&m, &(weft_save_gguf_options){.type = "q4_1"}, WEFT_BAD_ARGUMENT,
                   "has a number that q4_1 cannot hold");
    ((float *)t.data)[4] = 0;
    ((float *)t.data)[3] = NAN;
    expect_refused(&m, &(weft_save_gguf_options){.type = "q4_1"}, WEFT_BAD_ARGUMENT,
                   "has a number that q4_1 cannot hold");
    CU_ASSERT_EQUAL(weft_params_add(m.params, "more", WEFT_F32, WEFT_SHAPE(2), &t, NULL), WEFT_OK);
    expect_refused(&m, NULL, WEFT_BAD_ARGUMENT, "has no parameter more");
    model none = {weft_params_new(), m.config};
    expect_refused(&none, NULL, WEFT_NOT_FOUND, "is not in the store");
    free_model(&none);
    CU_ASSERT_EQUAL(weft_params_save_gguf(m.params, &m.config, NULL, NULL, NULL),
                    WEFT_BAD_ARGUMENT);
    free_model(&m);
}

static weft_status save_golden(const char *path)
{
    weft_error error = WEFT_NO_ERROR;
    weft_model_config config;
    weft_params *p = weft_params_new();
    weft_gguf *file = p ? weft_gguf_open(GOLDEN("gguf/llama.gguf"), &error) : NULL;
    if (file) weft_gguf_load(file, NULL, p, &config, &error);
    weft_gguf_close(file);
    if (p && error.status == WEFT_OK)
        weft_params_save_gguf(p, &config, path, &(weft_save_gguf_options){.type = "f16"}, &error);
    weft_params_free(p);
    return p ? error.status : WEFT_NO_MEMORY;
}

static void test_no_memory(void)
{
    test_fail_all(save_golden);
}

void gguf_save_tests(void)
{
    CU_pSuite suite = CU_add_suite("gguf_save", NULL, NULL);
    CU_add_test(suite, "golden files", test_golden);
    CU_add_test(suite, "gammas that mean 1 + gamma", test_plus_one);
    CU_add_test(suite, "options", test_options);
    CU_add_test(suite, "types", test_types);
    CU_add_test(suite, "rules of rounding", test_rules);
    CU_add_test(suite, "rows that blocks do not divide", test_other_rows);
    CU_add_test(suite, "quantised stores", test_quantized_store);
    CU_add_test(suite, "models that are refused", test_refused);
    CU_add_test(suite, "out of memory", test_no_memory);
}
