/* Models of GGUF files whose matrices stay quantised: the same numbers as in f32, and results that
 * are close. */
#include "gguf_maker.h"
#include "tests.h"

#include <weft/models.h>
#include <weft/quantize.h>
#include <weft/saved.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 256, INNER = 32, VOCAB = 40, KEYS = 128 };

/* A matrix of random blocks. Its halves lie at two bytes of each block, or at one. */
typedef struct block_matrix {
    const char *name;
    uint64_t dims[2];
    uint32_t type;
    size_t weights, bytes, half[2];
    const char *ours; /* the quantised form without ".q"; NULL: stays f32 */
} block_matrix;

static const block_matrix matrices[] = {
    {"token_embd.weight", {VOCAB, WIDTH}, 8, 32, 34, {0, 0}, "embedding.rows"},
    {"blk.0.attn_q.weight", {WIDTH, WIDTH}, 12, 256, 144, {0, 2}, "layer.0.attn.q.weight"},
    {"blk.0.attn_k.weight", {KEYS, WIDTH}, 13, 256, 176, {0, 2}, "layer.0.attn.k.weight"},
    {"blk.0.attn_v.weight", {KEYS, WIDTH}, 3, 32, 20, {0, 2}, "layer.0.attn.v.weight"},
    {"blk.0.attn_output.weight", {WIDTH, WIDTH}, 2, 32, 18, {0, 0}, "layer.0.attn.out.weight"},
    {"blk.0.ffn_gate.weight", {INNER, WIDTH}, 6, 32, 22, {0, 0}, "layer.0.ffn.gate.weight"},
    {"blk.0.ffn_up.weight", {INNER, WIDTH}, 14, 256, 210, {208, 208}, NULL},
    {"blk.0.ffn_down.weight", {WIDTH, INNER}, 7, 32, 24, {0, 2}, "layer.0.ffn.out.weight"},
};
#define MATRICES (sizeof matrices / sizeof *matrices)

/* Fused matrices, and the parts that become parameters. */
static const block_matrix fused[] = {
    {"token_embd.weight", {VOCAB, WIDTH}, 8, 32, 34, {0, 0}, NULL},
    {"blk.0.attn_qkv.weight", {WIDTH + 2 * KEYS, WIDTH}, 12, 256, 144, {0, 2}, NULL},
    {"blk.0.attn_output.weight", {WIDTH, WIDTH}, 2, 32, 18, {0, 0}, NULL},
    {"blk.0.ffn_up.weight", {2 * INNER, WIDTH}, 6, 32, 22, {0, 0}, NULL},
    {"blk.0.ffn_down.weight", {WIDTH, INNER}, 7, 32, 24, {0, 2}, NULL},
};
#define FUSED (sizeof fused / sizeof *fused)
static const block_matrix parts[] = {
    {NULL, {WIDTH, WIDTH}, 0, 0, 0, {0, 0}, "layer.0.attn.q.weight"},
    {NULL, {KEYS, WIDTH}, 0, 0, 0, {0, 0}, "layer.0.attn.k.weight"},
    {NULL, {KEYS, WIDTH}, 0, 0, 0, {0, 0}, "layer.0.attn.v.weight"},
    {NULL, {INNER, WIDTH}, 0, 0, 0, {0, 0}, "layer.0.ffn.gate.weight"},
    {NULL, {INNER, WIDTH}, 0, 0, 0, {0, 0}, "layer.0.ffn.in.weight"},
};

static size_t bytes_of(const block_matrix *b)
{
    return (size_t)(b->dims[0] * b->dims[1]) / b->weights * b->bytes;
}

static void put_random_blocks(gguf_maker *m, const block_matrix *b, uint64_t *random)
{
    for (size_t i = 0; i < bytes_of(b) / b->bytes; i++) {
        uint8_t block[256];
        for (size_t k = 0; k < b->bytes; k++) block[k] = (uint8_t)test_random(random);
        for (int h = 0; h < 2; h++) {
            /* A half of either sign, in size 2^-11 to 2^-9. */
            block[b->half[h] + 1] =
                (uint8_t)((block[b->half[h] + 1] & 0x80) | 0x10 | (block[b->half[h] + 1] & 7));
        }
        gguf_put(m, block, b->bytes);
    }
}

static void make_model(gguf_maker *m, const char *architecture, const block_matrix *list, size_t n)
{
    static const struct {
        const char *key;
        uint32_t number;
    } keys[] = {{"block_count", 1},          {"context_length", 16},
                {"embedding_length", WIDTH}, {"feed_forward_length", INNER},
                {"attention.head_count", 2}, {"attention.head_count_kv", 1}};
    char key[128];
    static const char *const norms[] = {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight",
                                        "output_norm.weight"};
    uint64_t random = 7;
    size_t offset = 0;
    m->n = 0;
    gguf_put(m, "GGUF", 4);
    gguf_put_number(m, 3, 4);
    gguf_put_number(m, n + 3, 8);
    gguf_put_number(m, 9, 8);
    gguf_put_string(m, "general.architecture", architecture);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", architecture);
    gguf_put_f32(m, key, 1e-5f);
    gguf_put_u32(m, "tokenizer.ggml.padding_token_id", 3);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, keys[i].key);
        gguf_put_u32(m, key, keys[i].number);
    }
    for (size_t i = 0; i < n; i++)
        gguf_put_blocks(m, list[i].name, list[i].dims, list[i].type, bytes_of(&list[i]), &offset);
    for (size_t i = 0; i < 3; i++) gguf_put_tensor(m, norms[i], WIDTH, 0, &offset);
    while (m->n % 32) gguf_put_number(m, 0, 1);
    for (size_t i = 0; i < n; i++) {
        put_random_blocks(m, &list[i], &random);
        while (m->n % 32) gguf_put_number(m, 0, 1);
    }
    for (int i = 0; i < 3 * WIDTH; i++) {
        const float x = 1 + (float)(i % 5) / 8;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        gguf_put_number(m, bits, 4);
    }
}

static const void *tensor(const weft_params *p, const char *name, const char *which, weft_tensor *t)
{
    char full[128];
    snprintf(full, sizeof full, "%s%s", name, which);
    return weft_params_find(p, full, t) ? t->data : NULL;
}

/* Row `row`, element `k` of a quantised form. */
static float number(const weft_params *p, const char *form, int64_t row, int64_t k)
{
    weft_tensor q, scale, other;
    const uint8_t *numbers = tensor(p, form, ".q", &q);
    const float *scales = tensor(p, form, ".scale", &scale);
    CU_ASSERT_TRUE_FATAL(numbers && scales);
    const int64_t columns = scale.shape.dim[1] * 32, at = row * columns + k;
    const bool half = q.shape.dim[1] < columns;
    const int n = half ? numbers[at / 2] >> at % 2 * 4 & 15 : numbers[at];
    const float *minima = tensor(p, form, ".min", &other);
    if (minima) return scales[at / 32] * (float)n + minima[at / 32];
    const uint8_t *zeros = tensor(p, form, ".zero", &other);
    CU_ASSERT_PTR_NOT_NULL_FATAL(zeros);
    return scales[at / 32] * (float)(n - zeros[at / 32]);
}

static void expect_same_numbers(const weft_params *quantized, const weft_params *wide,
                                const block_matrix *b)
{
    weft_tensor t;
    char name[128];
    size_t differ = 0;
    const bool rows = strstr(b->ours, ".rows") != NULL;
    snprintf(name, sizeof name, "%.*s", (int)(strlen(b->ours) - (rows ? 5 : 0)), b->ours);
    CU_ASSERT_FALSE(weft_params_find(quantized, name, NULL));
    CU_ASSERT_TRUE_FATAL(weft_params_find(wide, name, &t));
    const int64_t n = (int64_t)b->dims[0], k = (int64_t)b->dims[1];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++) {
            const float want = ((const float *)t.data)[rows ? i * k + j : j * n + i];
            const float got = number(quantized, b->ours, i, j);
            differ += memcmp(&want, &got, sizeof want) != 0;
        }
    CU_ASSERT_EQUAL(differ, 0);
}

/* A store whose matrices are in f32 again has those that the file widens to, except a tied table's
 * name, and the other tensors. */
static void expect_widened(const weft_params *quantized, const weft_params *wide,
                           const weft_model_config *config)
{
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    weft_model_build(g, config);
    weft_params *again = weft_params_dequantize(quantized, g, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(again);
    CU_ASSERT_FALSE(weft_params_are_quantized(again));
    CU_ASSERT_STRING_EQUAL(weft_params_meta(again, "quantization"), "none");
    CU_ASSERT_EQUAL(weft_params_count(again), weft_params_count(wide));
    for (size_t i = 0; i < weft_params_count(wide); i++) {
        weft_tensor x, y;
        const char *name = weft_params_name(wide, i);
        CU_ASSERT_TRUE_FATAL(weft_params_find(wide, name, &x));
        CU_ASSERT_TRUE_FATAL(weft_params_find(again, name, &y));
        CU_ASSERT_TRUE(weft_shape_equal(x.shape, y.shape) &&
                       !memcmp(x.data, y.data, weft_tensor_bytes(x.dtype, x.shape)));
    }
    CU_ASSERT_PTR_NULL(weft_params_dequantize(quantized, NULL, NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    weft_params_free(again);
    weft_graph_free(g);
}

/* The logits of a text. */
static void run_model(const weft_model_config *config, const weft_params *params, float *logits)
{
    static const int32_t tokens[16] = {5, 7, 39, 1, 4, 4, 30, 22, 11, 9, 8, 17, 6, 2, 28, 10};
    weft_error error = WEFT_NO_ERROR;
    const weft_builder builder = weft_model_builder(config);
    weft_forward *f = weft_forward_new(&builder, params, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    const weft_build_options options = {.shape = {.rows = 1, .target_len = 16}};
    const void *inputs[8] = {NULL};
    weft_tensor y;
    weft_graph *g = weft_graph_new();
    weft_model_config one = *config;
    one.build = options;
    const weft_built built = weft_model_build(g, &one);
    for (size_t i = 0; i < built.n_inputs; i++)
        if (weft_shape_numel(weft_shape_of(g, built.inputs[i])) == 16) inputs[i] = tokens;
    CU_ASSERT_EQUAL_FATAL(weft_forward_run(f, &options, inputs, &error), WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_forward_output(f, 0, &y));
    CU_ASSERT_EQUAL_FATAL(weft_shape_numel(y.shape), 16 * VOCAB);
    memcpy(logits, y.data, 16 * VOCAB * sizeof *logits);
    weft_graph_free(g);
    weft_forward_free(f);
}

static void test_numbers(void)
{
    static gguf_maker m;
    static float a[16 * VOCAB], b[16 * VOCAB];
    weft_error error = WEFT_NO_ERROR;
    weft_model_config config;
    weft_params *quantized = weft_params_new(), *wide = weft_params_new();
    make_model(&m, "llama", matrices, MATRICES);
    weft_gguf *file = gguf_open_made(&m, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL_FATAL(
        weft_gguf_load(file, &(weft_gguf_options){.widen = true}, wide, &config, &error), WEFT_OK);
    CU_ASSERT_FALSE(weft_params_are_quantized(wide));
    CU_ASSERT_PTR_NULL(weft_params_meta(wide, "quantization"));
    CU_ASSERT_EQUAL_FATAL(weft_gguf_load(file, NULL, quantized, &config, &error), WEFT_OK);
    CU_ASSERT_TRUE(weft_params_are_quantized(quantized));
    CU_ASSERT_STRING_EQUAL(weft_params_meta(quantized, "quantization"), "gguf group=32");
    CU_ASSERT_EQUAL(weft_saved_config(quantized, "made", &config, &error), WEFT_OK);
    for (size_t i = 0; i < MATRICES; i++)
        if (matrices[i].ours) expect_same_numbers(quantized, wide, &matrices[i]);
    expect_widened(quantized, wide, &config);
    CU_ASSERT_TRUE(weft_params_find(quantized, "layer.0.ffn.in.weight", NULL));
    run_model(&config, wide, a);
    run_model(&config, quantized, b);
    /* Only the rounding of rows to 8 bits separates them: a relative error of about 1 / 256 a
     * product, and there are eight products in a row. */
    double off = 0, all = 0;
    for (int i = 0; i < 16 * VOCAB; i++) {
        off += pow((double)a[i] - (double)b[i], 2);
        all += pow((double)a[i], 2);
    }
    CU_ASSERT_TRUE(all > 0 && sqrt(off / all) < 8.0 / 256);
    CU_ASSERT_TRUE(off > 0);
    weft_gguf_close(file);
    weft_params_free(quantized);
    weft_params_free(wide);
}

/* Parts of fused matrices are rows of them, with their groups. */
static void test_fused(void)
{
    static gguf_maker m;
    weft_error error = WEFT_NO_ERROR;
    weft_model_config config;
    weft_params *quantized = weft_params_new(), *wide = weft_params_new();
    make_model(&m, "phi3", fused, FUSED);
    weft_gguf *file = gguf_open_made(&m, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL_FATAL(
        weft_gguf_load(file, &(weft_gguf_options){.widen = true}, wide, &config, &error), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_gguf_load(file, NULL, quantized, &config, &error), WEFT_OK);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        expect_same_numbers(quantized, wide, &parts[i]);
    weft_gguf_close(file);
    weft_params_free(quantized);
    weft_params_free(wide);
}

/* Writes the quantised model of a file, and reads it again. Blocks of types whose scales are halves
 * have the same bits; matrices of others are f32, with the same numbers. */
static void check_saved(const char *architecture, const block_matrix *list, size_t n,
                        const char *f32)
{
    static gguf_maker m;
    char path[64];
    weft_error error = WEFT_NO_ERROR;
    weft_model_config config, again;
    weft_params *quantized = weft_params_new(), *wide = weft_params_new(), *got = weft_params_new();
    snprintf(path, sizeof path, "/tmp/weft-gguf-quantized-%ld.gguf", (long)getpid());
    make_model(&m, architecture, list, n);
    weft_gguf *from = gguf_open_made(&m, &error);
    weft_gguf_load(from, &(weft_gguf_options){.widen = true}, wide, &config, NULL);
    CU_ASSERT_EQUAL_FATAL(weft_gguf_load(from, NULL, quantized, &config, &error), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_params_save_gguf(quantized, &config, path, NULL, &error), WEFT_OK);
    weft_gguf *file = weft_gguf_open(path, &error);
    CU_ASSERT_EQUAL_FATAL(weft_gguf_load(file, NULL, got, &again, &error), WEFT_OK);
    for (size_t i = 0; i < weft_gguf_count(from); i++) {
        const weft_gguf_tensor *want = weft_gguf_at(from, i), *t = weft_gguf_find(file, want->name);
        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        const bool is_wide = strstr(f32, want->name) != NULL;
        CU_ASSERT_STRING_EQUAL(t->type, is_wide ? "F32" : want->type);
        if (!is_wide) CU_ASSERT_TRUE(!memcmp(t->data, want->data, want->bytes));
    }
    for (size_t i = 0; i < weft_params_count(got); i++) {
        weft_tensor x, y;
        const char *name = weft_params_name(got, i);
        CU_ASSERT_TRUE_FATAL(weft_params_find(got, name, &x));
        CU_ASSERT_TRUE_FATAL(weft_params_find(quantized, name, &y) ||
                             weft_params_find(wide, name, &y));
        CU_ASSERT_TRUE(test_same_tensors(name, &x, &y));
    }
    weft_gguf_close(file);
    weft_gguf_close(from);
    weft_params_free(quantized);
    weft_params_free(wide);
    weft_params_free(got);
    unlink(path);
}

static void test_saved(void)
{
    check_saved("llama", matrices, MATRICES,
                "blk.0.attn_q.weight blk.0.attn_k.weight blk.0.ffn_up.weight");
    check_saved("phi3", fused, FUSED, "blk.0.attn_qkv.weight");
}

/* Parts of different forms, which one fused matrix of blocks cannot have: it is f32. */
static void test_mixed(void)
{
    static const block_matrix mixed[] = {
        {"token_embd.weight", {VOCAB, WIDTH}, 8, 32, 34, {0, 0}, NULL},
        {"blk.0.attn_q.weight", {WIDTH, WIDTH}, 3, 32, 20, {0, 2}, NULL},
        {"blk.0.attn_k.weight", {KEYS, WIDTH}, 2, 32, 18, {0, 0}, NULL},
        {"blk.0.attn_v.weight", {KEYS, WIDTH}, 2, 32, 18, {0, 0}, NULL},
        {"blk.0.attn_output.weight", {WIDTH, WIDTH}, 2, 32, 18, {0, 0}, NULL},
        {"blk.0.ffn_gate.weight", {INNER, WIDTH}, 7, 32, 24, {0, 2}, NULL},
        {"blk.0.ffn_up.weight", {INNER, WIDTH}, 6, 32, 22, {0, 0}, NULL},
        {"blk.0.ffn_down.weight", {WIDTH, INNER}, 7, 32, 24, {0, 2}, NULL},
    };
    static gguf_maker m;
    char path[64];
    weft_error error = WEFT_NO_ERROR;
    weft_model_config config;
    const weft_gguf_options widen = {.widen = true};
    const weft_save_gguf_options phi3 = {.architecture = "phi3"};
    weft_params *quantized = weft_params_new(), *wide = weft_params_new(), *got = weft_params_new();
    snprintf(path, sizeof path, "/tmp/weft-gguf-mixed-%ld.gguf", (long)getpid());
    make_model(&m, "llama", mixed, sizeof mixed / sizeof *mixed);
    weft_gguf *from = gguf_open_made(&m, &error);
    CU_ASSERT_EQUAL_FATAL(weft_gguf_load(from, &widen, wide, &config, &error), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_gguf_load(from, NULL, quantized, &config, &error), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_params_save_gguf(quantized, &config, path, &phi3, &error), WEFT_OK);
    weft_gguf *file = weft_gguf_open(path, &error);
    const weft_gguf_tensor *qkv = weft_gguf_find(file, "blk.0.attn_qkv.weight");
    const weft_gguf_tensor *up = weft_gguf_find(file, "blk.0.ffn_up.weight");
    CU_ASSERT_FATAL(qkv && up);
    CU_ASSERT_STRING_EQUAL(qkv->type, "F32");
    CU_ASSERT_STRING_EQUAL(up->type, "F32");
    CU_ASSERT_EQUAL_FATAL(weft_gguf_load(file, &widen, got, &config, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_count(got), weft_params_count(wide));
    for (size_t i = 0; i < weft_params_count(got); i++) {
        weft_tensor x, y;
        const char *name = weft_params_name(got, i);
        CU_ASSERT_TRUE_FATAL(weft_params_find(got, name, &x) && weft_params_find(wide, name, &y));
        CU_ASSERT_TRUE(test_same_tensors(name, &x, &y));
    }
    weft_gguf_close(file);
    weft_gguf_close(from);
    weft_params_free(quantized);
    weft_params_free(wide);
    weft_params_free(got);
    unlink(path);
}

void gguf_quantized_tests(void)
{
    CU_pSuite suite = CU_add_suite("gguf_quantized", NULL, NULL);
    CU_add_test(suite, "numbers and results", test_numbers);
    CU_add_test(suite, "fused matrices", test_fused);
    CU_add_test(suite, "files that are written", test_saved);
    CU_add_test(suite, "parts of different forms", test_mixed);
}
