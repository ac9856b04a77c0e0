/* GGUF files: blocks against what the Python package `gguf` computes (golden/make_gguf.py), a model
 * against the same one from transformers, metadata, and files that must be refused. */
#include "gguf_maker.h"
#include "golden.h"

#include <weft/gguf.h>
#include <weft/huggingface.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Golden files ---- */

static void test_types(void)
{
    weft_error error;
    weft_params *wanted = weft_params_new();
    weft_gguf *file = weft_gguf_open(GOLDEN("gguf/types.gguf"), &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL_FATAL(weft_params_load(wanted, GOLDEN("gguf/types.safetensors"), &error),
                          WEFT_OK);
    CU_ASSERT_EQUAL(weft_gguf_count(file), 11);
    CU_ASSERT_EQUAL(weft_params_count(wanted), 11);
    for (size_t i = 0; i < weft_gguf_count(file); i++) {
        const weft_gguf_tensor *t = weft_gguf_at(file, i);
        weft_tensor want;
        CU_ASSERT_STRING_EQUAL(t->name, t->type);
        CU_ASSERT_TRUE(t->readable);
        CU_ASSERT_PTR_EQUAL(weft_gguf_find(file, t->name), t);
        CU_ASSERT_TRUE_FATAL(weft_params_find(wanted, t->name, &want));
        float *data = malloc(weft_tensor_bytes(WEFT_F32, t->shape));
        CU_ASSERT_PTR_NOT_NULL_FATAL(data);
        CU_ASSERT_EQUAL(weft_gguf_read(file, t, data, &error), WEFT_OK);
        const weft_tensor got = weft_tensor_dense(data, WEFT_F32, t->shape);
        CU_ASSERT_TRUE(test_same_tensors(t->name, &got, &want));
        free(data);
    }
    CU_ASSERT_PTR_NULL(weft_gguf_find(file, "none"));
    CU_ASSERT_PTR_NULL(weft_gguf_at(file, 11));
    weft_params_free(wanted);
    weft_gguf_close(file);
}

static void expect_number(const weft_gguf *file, const char *key, weft_gguf_kind kind,
                          double number, int64_t integer)
{
    const weft_gguf_value *value = weft_gguf_meta_find(file, key);
    CU_ASSERT_PTR_NOT_NULL_FATAL(value);
    CU_ASSERT_EQUAL(value->kind, kind);
    CU_ASSERT_EQUAL(value->number, number);
    CU_ASSERT_EQUAL(value->integer, integer);
    CU_ASSERT_STRING_EQUAL(value->key, key);
}

static void test_metadata(void)
{
    weft_gguf *file = weft_gguf_open(GOLDEN("gguf/types.gguf"), NULL);
    weft_gguf_value item, inner;
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(weft_gguf_version(file), 3);
    expect_number(file, "kinds.u8", WEFT_GGUF_U8, 200, 200);
    expect_number(file, "kinds.i8", WEFT_GGUF_I8, -100, -100);
    expect_number(file, "kinds.u16", WEFT_GGUF_U16, 60000, 60000);
    expect_number(file, "kinds.i16", WEFT_GGUF_I16, -30000, -30000);
    expect_number(file, "kinds.u32", WEFT_GGUF_U32, 4e9, 4000000000);
    expect_number(file, "kinds.i32", WEFT_GGUF_I32, -2e9, -2000000000);
    expect_number(file, "kinds.f32", WEFT_GGUF_F32, (double)0.1f, 0);
    expect_number(file, "kinds.bool", WEFT_GGUF_BOOL, 1, 1);
    expect_number(file, "kinds.u64", WEFT_GGUF_U64, 18446744073709551615.0, INT64_MAX);
    expect_number(file, "kinds.i64", WEFT_GGUF_I64, -9223372036854775808.0, INT64_MIN);
    expect_number(file, "kinds.f64", WEFT_GGUF_F64, 0.1, 0);
    const weft_gguf_value *text = weft_gguf_meta_find(file, "kinds.text");
    CU_ASSERT_TRUE(text && text->text_bytes == 5 && !memcmp(text->text, "\xC3\xA9t\xC3\xA9", 5));

    const weft_gguf_value *numbers = weft_gguf_meta_find(file, "kinds.numbers");
    CU_ASSERT_TRUE(weft_gguf_value_item(numbers, 1, &item));
    CU_ASSERT_EQUAL(item.integer, -1);
    CU_ASSERT_STRING_EQUAL(item.key, "");
    CU_ASSERT_FALSE(weft_gguf_value_item(numbers, 3, &item));
    const weft_gguf_value *texts = weft_gguf_meta_find(file, "kinds.texts");
    CU_ASSERT_TRUE(weft_gguf_value_item(texts, 2, &item));
    CU_ASSERT_TRUE(item.text_bytes == 3 && !memcmp(item.text, "def", 3));
    const weft_gguf_value *arrays = weft_gguf_meta_find(file, "kinds.arrays");
    CU_ASSERT_TRUE(weft_gguf_value_item(arrays, 0, &item) && item.n_items == 2);
    CU_ASSERT_TRUE(weft_gguf_value_item(&item, 1, &inner) && inner.integer == 2);
    CU_ASSERT_FALSE(weft_gguf_value_item(text, 0, &item));

    CU_ASSERT_PTR_NULL(weft_gguf_meta_find(file, "kinds"));
    CU_ASSERT_PTR_NULL(weft_gguf_meta_at(file, weft_gguf_meta_count(file)));
    CU_ASSERT_STRING_EQUAL(weft_gguf_kind_name(WEFT_GGUF_I64), "i64");
    CU_ASSERT_STRING_EQUAL(weft_gguf_kind_name((weft_gguf_kind)99), "?");
    weft_gguf_close(file);
}

/* The model of a file; false on failure. */
static bool load_model(weft_gguf *file, weft_params *params, weft_model_config *config)
{
    const weft_gguf_options f32 = {.widen = true};
    weft_error error = WEFT_NO_ERROR;
    const bool good = file && weft_gguf_load(file, &f32, params, config, &error) == WEFT_OK;
    if (!good) printf("\n    %s: %s\n", error.where, error.message);
    return good;
}

static void expect_same_store(const weft_params *got, const weft_params *wanted)
{
    CU_ASSERT_EQUAL(weft_params_count(got), weft_params_count(wanted));
    for (size_t i = 0; i < weft_params_count(wanted); i++) {
        weft_tensor x = {.data = NULL}, y = {.data = NULL};
        const char *name = weft_params_name(wanted, i);
        CU_ASSERT_TRUE_FATAL(weft_params_find(wanted, name, &y));
        CU_ASSERT_TRUE_FATAL(weft_params_find(got, name, &x));
        CU_ASSERT_TRUE(test_same_tensors(name, &x, &y));
    }
}

/* The model and the options are those of the folder of which the file was made. */
static void test_llama(void)
{
    char got_options[WEFT_OPTIONS_TEXT], options[WEFT_OPTIONS_TEXT];
    weft_model_config got_config, config;
    weft_params *got = weft_params_new(), *wanted = weft_params_new();
    weft_gguf *file = weft_gguf_open(GOLDEN("gguf/llama.gguf"), NULL);
    CU_ASSERT_TRUE_FATAL(load_model(file, got, &got_config));
    CU_ASSERT_EQUAL_FATAL(weft_huggingface_load(wanted, &config, GOLDEN("huggingface/llama"), NULL),
                          WEFT_OK);
    expect_same_store(got, wanted);
    CU_ASSERT_PTR_NOT_NULL(weft_model_options_text(&got_config, got_options, sizeof got_options));
    CU_ASSERT_PTR_NOT_NULL(weft_model_options_text(&config, options, sizeof options));
    CU_ASSERT_STRING_EQUAL(got_options, options);
    CU_ASSERT_STRING_EQUAL(weft_params_meta(got, "model"), "llama");
    CU_ASSERT_STRING_EQUAL(weft_params_meta(got, "model_options"), options);
    CU_ASSERT_STRING_EQUAL(weft_params_meta(got, WEFT_GGUF_ARCHITECTURE), "llama");
    weft_gguf_close(file);
    weft_params_free(got);
    weft_params_free(wanted);
}

/* A file in memory that begins at an odd address. */
static void test_memory(void)
{
    size_t bytes = 0;
    weft_model_config config;
    weft_params *got = weft_params_new(), *wanted = weft_params_new();
    char *data = malloc(1 << 17);
    FILE *from = fopen(GOLDEN("gguf/llama.gguf"), "rb");
    CU_ASSERT_TRUE_FATAL(data && from);
    bytes = fread(data + 1, 1, (1 << 17) - 1, from);
    fclose(from);
    weft_gguf *file = weft_gguf_open(GOLDEN("gguf/llama.gguf"), NULL);
    weft_gguf *memory = weft_gguf_from_memory((weft_memory_file){data + 1, bytes, NULL}, NULL);
    CU_ASSERT_TRUE_FATAL(load_model(file, wanted, &config));
    CU_ASSERT_TRUE_FATAL(load_model(memory, got, &config));
    expect_same_store(got, wanted);
    weft_gguf_close(memory);
    weft_gguf_close(file);
    weft_params_free(got);
    weft_params_free(wanted);
    free(data);
}

/* ---- A small model ---- */

enum { VOCAB = 5, WIDTH = 8, INNER = 4 };

/* What a test changes in the small model. */
typedef struct change {
    const char *without; /* a key */
    const char *key;     /* another one, with a text or a number */
    const char *text;
    double number;
    const char *extra;        /* a tensor, the last one */
    uint64_t extra_rows;      /* 0: 5 */
    const char *architecture; /* NULL: llama */
    uint64_t key_rows;        /* of the projection to keys; 0: 4 */
} change;

/* One layer with two heads of size 4, one of keys, tied, with biases of q, k and v. Number i of a
 * tensor is i. */
static void make_model(gguf_maker *m, const change *c)
{
    static const struct {
        const char *key;
        uint32_t number;
    } numbers[] = {{"block_count", 1},          {"context_length", 16},
                   {"embedding_length", WIDTH}, {"feed_forward_length", INNER},
                   {"attention.head_count", 2}, {"attention.head_count_kv", 1}};
    const size_t n = sizeof numbers / sizeof *numbers;
    const char *architecture = c->architecture ? c->architecture : "llama";
    char key[64];
    size_t offset = 0, left = 0;
    *m = (gguf_maker){.n = 0};
    for (size_t i = 0; c->without && i < n; i++) left += !strcmp(c->without, numbers[i].key);
    gguf_put(m, "GGUF", 4);
    gguf_put_number(m, 3, 4);
    gguf_put_number(m, 14 + (c->extra != NULL), 8);
    gguf_put_number(m, n - left + 3 + (c->key != NULL), 8);
    gguf_put_string(m, "general.architecture", architecture);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", architecture);
    gguf_put_f32(m, key, 1e-5f);
    gguf_put_u32(m, "tokenizer.ggml.padding_token_id", 3);
    for (size_t i = 0; i < n; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, numbers[i].key);
        if (!c->without || strcmp(c->without, numbers[i].key) != 0)
            gguf_put_u32(m, key, numbers[i].number);
    }
    if (c->key && c->text) gguf_put_string(m, c->key, c->text);
    if (c->key && !c->text) gguf_put_f32(m, c->key, (float)c->number);
    gguf_put_tensor(m, "token_embd.weight", VOCAB, WIDTH, &offset);
    gguf_put_tensor(m, "blk.0.attn_norm.weight", WIDTH, 0, &offset);
    gguf_put_tensor(m, "blk.0.attn_q.weight", 8, WIDTH, &offset);
    gguf_put_tensor(m, "blk.0.attn_q.bias", 8, 0, &offset);
    gguf_put_tensor(m, "blk.0.attn_k.weight", c->key_rows ? c->key_rows : 4, WIDTH, &offset);
    gguf_put_tensor(m, "blk.0.attn_k.bias", 4, 0, &offset);
    gguf_put_tensor(m, "blk.0.attn_v.weight", 4, WIDTH, &offset);
    gguf_put_tensor(m, "blk.0.attn_v.bias", 4, 0, &offset);
    gguf_put_tensor(m, "blk.0.attn_output.weight", WIDTH, 8, &offset);
    gguf_put_tensor(m, "blk.0.ffn_norm.weight", WIDTH, 0, &offset);
    gguf_put_tensor(m, "blk.0.ffn_gate.weight", INNER, WIDTH, &offset);
    gguf_put_tensor(m, "blk.0.ffn_up.weight", INNER, WIDTH, &offset);
    gguf_put_tensor(m, "blk.0.ffn_down.weight", WIDTH, INNER, &offset);
    gguf_put_tensor(m, "output_norm.weight", WIDTH, 0, &offset);
    if (c->extra) gguf_put_tensor(m, c->extra, c->extra_rows ? c->extra_rows : 5, 0, &offset);
    while (m->n % 32) gguf_put_number(m, 0, 1);
    for (size_t i = 0; i < offset / 4; i++) {
        const float x = (float)i;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        gguf_put_number(m, bits, 4);
    }
}

/* Element [row, column] of a parameter, less the first number of its tensor. */
static float element(const weft_params *p, const char *name, int64_t row, int64_t column)
{
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_params_find(p, name, &t));
    const float *x = t.data;
    const int64_t columns = t.shape.dim[t.shape.rank - 1];
    return x[row * columns + column] - x[0];
}

static double option(const weft_model_config *config, const char *name)
{
    for (size_t i = 0; i < config->model->n_options; i++)
        if (!strcmp(config->model->options[i].name, name)) return weft_model_value(config, i);
    CU_FAIL("unknown option");
    return 0;
}

/* Options that the tensors determine, and the order of the rows of queries and keys. */
static void check_small_model(const char *architecture, const int64_t order[8])
{
    static gguf_maker m;
    weft_model_config config;
    weft_params *p = weft_params_new();
    make_model(&m, &(change){.architecture = architecture});
    weft_gguf *file = gguf_open_made(&m, NULL);
    CU_ASSERT_TRUE_FATAL(load_model(file, p, &config));
    CU_ASSERT_EQUAL(weft_params_count(p), 14);
    CU_ASSERT_EQUAL(option(&config, "vocab"), VOCAB);
    CU_ASSERT_EQUAL(option(&config, "tied"), 1);
    CU_ASSERT_EQUAL(option(&config, "qkv_bias"), 1);
    CU_ASSERT_EQUAL(option(&config, "out_bias"), 0);
    CU_ASSERT_EQUAL(option(&config, "ffn_bias"), 0);
    CU_ASSERT_EQUAL(option(&config, "rotary_base"), 10000);
    CU_ASSERT_EQUAL(option(&config, "eps"), 1e-5);
    CU_ASSERT_EQUAL(option(&config, "pad_id"), 3);
    for (int64_t i = 0; i < 8; i++) {
        CU_ASSERT_EQUAL(element(p, "layer.0.attn.q.weight", 3, i), (float)(WIDTH * order[i] + 3));
        CU_ASSERT_EQUAL(element(p, "layer.0.attn.q.bias", 0, i), (float)order[i]);
        if (i >= 4) continue;
        CU_ASSERT_EQUAL(element(p, "layer.0.attn.k.weight", 2, i), (float)(WIDTH * order[i] + 2));
        CU_ASSERT_EQUAL(element(p, "layer.0.attn.k.bias", 0, i), (float)order[i]);
        CU_ASSERT_EQUAL(element(p, "layer.0.attn.v.weight", 2, i), (float)(WIDTH * i + 2));
    }
    CU_ASSERT_EQUAL(element(p, "embedding", 2, 5), (float)(2 * WIDTH + 5));
    weft_gguf_close(file);
    weft_params_free(p);
}

static void test_small_model(void)
{
    check_small_model("llama", (const int64_t[]){0, 2, 1, 3, 4, 6, 5, 7});
    check_small_model("qwen2", (const int64_t[]){0, 1, 2, 3, 4, 5, 6, 7});
}

static void expect_message(const weft_error *error, const char *message)
{
    const bool found = strstr(error->message, message) != NULL;
    CU_ASSERT_TRUE(found);
    if (found) return;
    printf("\n    %s\n    expected ", error->message);
    puts(message);
}

/* By what convert_hf_to_gguf.py divides the frequencies of Llama 3: of 1303 turns by 1, of 0.04 by the
 * factor. */
static void test_rope_freqs(void)
{
    static const struct {
        float divisors[2];
        const char *rule, *message;
        double factor;
    } cases[] = {
        {{1, 8}, "llama3", NULL, 8},
        {{1, 1}, "none", NULL, 0},
        {{2, 8}, NULL, "rope_freqs.weight are not those of Llama 3's rule with 8192 positions", 0},
    };
    static gguf_maker m;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_error error = WEFT_NO_ERROR;
        weft_model_config config;
        weft_params *p = weft_params_new();
        make_model(&m, &(change){.extra = "rope_freqs.weight",
                                 .extra_rows = 2,
                                 .key = "llama.rope.freq_base",
                                 .number = 1e9});
        memcpy(m.data + m.n - 32, cases[i].divisors, sizeof cases[i].divisors);
        weft_gguf *file = gguf_open_made(&m, &error);
        const weft_status status = weft_gguf_load(file, NULL, p, &config, &error);
        CU_ASSERT_EQUAL(status, cases[i].message ? WEFT_BAD_FILE : WEFT_OK);
        if (cases[i].message) {
            expect_message(&error, cases[i].message);
        } else {
            CU_ASSERT_EQUAL(option(&config, "rotary_scaling"),
                            strcmp(cases[i].rule, "none") ? WEFT_ROTARY_LLAMA3 : WEFT_ROTARY_PLAIN);
            CU_ASSERT_EQUAL(option(&config, "rotary_factor"), cases[i].factor);
            CU_ASSERT_EQUAL(option(&config, "rotary_positions"), cases[i].factor ? 8192 : 0);
        }
        weft_gguf_close(file);
        weft_params_free(p);
    }
}

static void test_refused_models(void)
{
    static const struct {
        change change;
        weft_status status;
        const char *message;
    } cases[] = {
        {{.without = "block_count"}, WEFT_NOT_FOUND, "has no llama.block_count"},
        {{.key = "llama.rope.scaling.type", .text = "longrope"},
         WEFT_BAD_FILE,
         "rope_factors_short.weight must be there and have a number for each of 2 pairs"},
        {{.key = "llama.rope.scaling.type", .text = "dynamic"},
         WEFT_BAD_ARGUMENT,
         "llama.rope.scaling.type is \"dynamic\"; expected none, linear, yarn or longrope"},
        {{.key = "llama.rope.scaling.type", .number = 1},
         WEFT_BAD_ARGUMENT,
         "llama.rope.scaling.type is 1; expected none, linear, yarn or longrope"},
        {{.key = "llama.rope.scaling.attn_factor", .number = 1.25},
         WEFT_BAD_ARGUMENT,
         "attn_factor is 1.25; expected 1"},
        {{.key = "llama.rope.scaling.yarn_log_multiplier", .number = 0.5},
         WEFT_BAD_ARGUMENT,
         "yarn_log_multiplier is 0.5; expected 0"},
        {{.key = "llama.expert_count", .number = 8},
         WEFT_BAD_ARGUMENT,
         "llama.expert_count is 8; expected 0"},
        {{.key = "llama.attention.key_length", .number = 16},
         WEFT_BAD_SHAPE,
         "blk.0.attn_q.weight is [8, 8], but the metadata make it [32, 8]"},
        {{.key = "llama.attention.value_length", .number = 16},
         WEFT_BAD_ARGUMENT,
         "llama.attention.value_length is 16; expected 4"},
        {{.key = "llama.vocab_size", .number = 6},
         WEFT_BAD_ARGUMENT,
         "llama.vocab_size is 6; expected 5"},
        {{.key = "llama.logit_scale", .number = 2},
         WEFT_BAD_ARGUMENT,
         "llama.logit_scale is 2: unsupported key for llama"},
        {{.key = "llama.rope.freq_base", .text = "x"},
         WEFT_BAD_ARGUMENT,
         "llama.rope.freq_base is \"x\"; expected a number"},
        {{.key = "llama.rope.freq_base", .number = -1}, WEFT_BAD_ARGUMENT, "rotary_base"},
        {{.architecture = "gemma"}, WEFT_BAD_ARGUMENT, "has the architecture \"gemma\""},
        {{.extra = "rope_freqs.weight"}, WEFT_BAD_FILE, "must be one number for each of 2 pairs"},
        {{.extra = "rope_factors_long.weight"},
         WEFT_BAD_FILE,
         "rope_factors_short.weight must be there and have a number"},
        {{.extra = "blk.1.attn_norm.weight"},
         WEFT_BAD_FILE,
         "unexpected tensor blk.1.attn_norm.weight"},
        {{.key_rows = 8},
         WEFT_BAD_SHAPE,
         "blk.0.attn_k.weight is [8, 8], but the metadata make it [4, 8]"},
    };
    static gguf_maker m;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_error error = WEFT_NO_ERROR;
        weft_model_config config;
        weft_params *p = weft_params_new();
        make_model(&m, &cases[i].change);
        weft_gguf *file = gguf_open_made(&m, &error);
        CU_ASSERT_PTR_NOT_NULL(file);
        CU_ASSERT_EQUAL(weft_gguf_load(file, NULL, p, &config, &error), cases[i].status);
        expect_message(&error, cases[i].message);
        weft_gguf_close(file);
        weft_params_free(p);
    }
}

/* ---- Malformed files ---- */

/* A file with one value and two tensors of 32 numbers, and where its parts begin. */
enum {
    VERSION = 4,
    N_TENSORS = 8,
    N_META = 16,
    KEY = 24,          /* its length, "general.alignment" */
    KIND = KEY + 25,   /* u32 */
    VALUE = KIND + 4,  /* 32 */
    FIRST = VALUE + 4, /* its length, "a" */
    RANK = FIRST + 9,  /* 1 */
    DIM = RANK + 4,    /* 32 */
    TYPE = DIM + 8,    /* 0: F32 */
    OFFSET = TYPE + 4, /* 0 */
    SECOND = OFFSET + 8,
    SECOND_NAME = SECOND + 8,
    END = SECOND + OFFSET + 8 - FIRST
};

static void make_pair(gguf_maker *m)
{
    size_t offset = 0;
    *m = (gguf_maker){.n = 0};
    gguf_put(m, "GGUF", 4);
    gguf_put_number(m, 2, 4);
    gguf_put_number(m, 2, 8);
    gguf_put_number(m, 1, 8);
    gguf_put_u32(m, "general.alignment", 32);
    CU_ASSERT_EQUAL(m->n, FIRST);
    gguf_put_tensor(m, "a", 32, 0, &offset);
    CU_ASSERT_EQUAL(m->n, SECOND);
    gguf_put_tensor(m, "b", 32, 0, &offset);
    CU_ASSERT_EQUAL(m->n, END);
    while (m->n % 32) gguf_put_number(m, 0, 1);
    for (size_t i = 0; i < offset; i++) gguf_put_number(m, 0, 1);
}

static void test_malformed(void)
{
    static const struct {
        size_t at, bytes;
        uint64_t number;
        const char *message;
    } cases[] = {
        {0, 1, 'X', "does not begin with GGUF"},
        {VERSION, 4, 1, "has version 1 of the format; expected 2 or 3"},
        {VERSION, 4, 0x03000000, "its numbers have the highest byte first"},
        {N_TENSORS, 8, UINT64_MAX, "the number of tensors is 18446744073709551615, too many"},
        {N_META, 8, 1000, "the number of values is 1000, too many"},
        {KEY, 8, 0, "value 0 of 1: its name has 0 bytes"},
        {KEY, 8, UINT64_MAX, "value 0 of 1: the name needs 18446744073709551615 bytes at byte 32"},
        {KEY + 8, 1, 0, "its name has 17 bytes; expected 1 to 65535, none of them zero"},
        {KIND, 4, 13, "general.alignment: has the kind 13; expected 0 to 12"},
        {KIND, 4, WEFT_GGUF_I32, "general.alignment: is 32, a i32; expected a power of two"},
        {KIND, 4, WEFT_GGUF_BOOL, "general.alignment: is a bool of 32; expected 0 or 1"},
        {KIND, 4, WEFT_GGUF_TEXT, "general.alignment: the text needs"},
        {KIND, 4, WEFT_GGUF_ARRAY, "general.alignment: its items have the kind 32"},
        {VALUE, 4, 0, "general.alignment: is 0"},
        {VALUE, 4, 24, "general.alignment: is 24"},
        {RANK, 4, 5, "a: has 5 dimensions; expected at most 4"},
        {DIM, 8, UINT64_MAX, "a: a dimension is 18446744073709551615, which is too large"},
        {DIM, 8, INT64_MAX, "a: its shape overflows"},
        {DIM, 8, 1000, "a: has 4000 bytes, but the file only"},
        {DIM, 8, 64, "b: its data overlap those of a"},
        {TYPE, 4, 4, "a: has the type 4, which weft does not know"},
        {TYPE, 4, 12, "a: its rows have 32 numbers, but a block of Q4_K has 256"},
        {OFFSET, 8, 16, "a: its offset 16 is not a multiple of the alignment 32"},
        {OFFSET, 8, 256, "a: its data, 128 bytes at offset 256, lie outside the 256 bytes of data"},
        {SECOND_NAME, 1, 'a', "a: appears twice, as number 0 and 1"},
    };
    static gguf_maker m;
    weft_error error;
    make_pair(&m);
    weft_gguf *file = gguf_open_made(&m, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(weft_gguf_version(file), 2);
    weft_gguf_close(file);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_maker part = {.n = 0};
        make_pair(&m);
        gguf_put_number(&part, cases[i].number, cases[i].bytes);
        memcpy(m.data + cases[i].at, part.data, part.n);
        file = gguf_open_made(&m, &error);
        CU_ASSERT_PTR_NULL(file);
        CU_ASSERT_EQUAL(error.status, WEFT_BAD_FILE);
        expect_message(&error, cases[i].message);
        weft_gguf_close(file);
    }
}

/* Every length but the whole one. */
static void test_cut(void)
{
    static gguf_maker m;
    weft_error error;
    make_pair(&m);
    const size_t whole = m.n;
    for (m.n = 0; m.n < whole; m.n++) {
        uint8_t *copy = malloc(m.n + !m.n); /* so that sanitizers see what lies outside */
        CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
        memcpy(copy, m.data, m.n);
        CU_ASSERT_PTR_NULL(weft_gguf_from_memory((weft_memory_file){copy, m.n, NULL}, &error));
        CU_ASSERT_EQUAL(error.status, WEFT_BAD_FILE);
        free(copy);
    }
}

/* Arrays in arrays, one in each, eight of them, and one more. */
static void test_deep_arrays(void)
{
    static gguf_maker m;
    weft_error error;
    for (int depth = 8; depth <= 9; depth++) {
        m = (gguf_maker){.n = 0};
        gguf_put(&m, "GGUF", 4);
        gguf_put_number(&m, 3, 4);
        gguf_put_number(&m, 0, 8);
        gguf_put_number(&m, 1, 8);
        gguf_put_text(&m, "deep");
        gguf_put_number(&m, WEFT_GGUF_ARRAY, 4);
        for (int i = 0; i < depth; i++) {
            gguf_put_number(&m, WEFT_GGUF_ARRAY, 4);
            gguf_put_number(&m, 1, 8);
        }
        gguf_put_number(&m, WEFT_GGUF_U8, 4);
        gguf_put_number(&m, 0, 8);
        weft_gguf *file = gguf_open_made(&m, &error);
        CU_ASSERT_EQUAL(file != NULL, depth == 8);
        if (!file) CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "more than 8 deep"));
        weft_gguf_close(file);
    }
}

/* ---- Other failures ---- */

static void test_files(void)
{
    weft_error error;
    static gguf_maker m;
    float number;
    CU_ASSERT_PTR_NULL(weft_gguf_open("/nonexistent/x.gguf", &error));
    CU_ASSERT_EQUAL(error.status, WEFT_NOT_FOUND);
    CU_ASSERT_PTR_NULL(weft_gguf_open("/dev/null", &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_FILE);
    make_pair(&m);
    memset(m.data + TYPE, 24, 1); /* I8 */
    weft_gguf *file = gguf_open_made(&m, &error);
    const weft_gguf_tensor *t = weft_gguf_find(file, "a");
    CU_ASSERT_TRUE_FATAL(t && !t->readable);
    CU_ASSERT_EQUAL(weft_gguf_read(file, t, &number, &error), WEFT_BAD_DTYPE);
    CU_ASSERT_STRING_EQUAL(error.message, "a: its type I8 is not supported");
    weft_gguf_close(file);
}

static weft_status load_golden(const char *path)
{
    (void)path;
    weft_error error = WEFT_NO_ERROR;
    weft_model_config config;
    weft_params *p = weft_params_new();
    weft_gguf *file = p ? weft_gguf_open(GOLDEN("gguf/llama.gguf"), &error) : NULL;
    if (file) weft_gguf_load(file, NULL, p, &config, &error);
    weft_gguf_close(file);
    weft_params_free(p);
    if (!p || error.status != WEFT_OK) return p ? error.status : WEFT_NO_MEMORY;
    file = weft_gguf_open(GOLDEN("gguf/vocab_llama.gguf"), &error);
    if (file) free(weft_gguf_tokenizer_json(file, &error));
    weft_gguf_close(file);
    return error.status;
}

static void test_no_memory(void)
{
    test_fail_all(load_golden);
}

void gguf_tests(void)
{
    CU_pSuite suite = CU_add_suite("gguf", NULL, NULL);
    CU_add_test(suite, "types of blocks", test_types);
    CU_add_test(suite, "metadata", test_metadata);
    CU_add_test(suite, "a model equals that of transformers", test_llama);
    CU_add_test(suite, "files in memory", test_memory);
    CU_add_test(suite, "a small model", test_small_model);
    CU_add_test(suite, "rotary frequencies of Llama 3", test_rope_freqs);
    CU_add_test(suite, "models that are refused", test_refused_models);
    CU_add_test(suite, "malformed files", test_malformed);
    CU_add_test(suite, "files that end early", test_cut);
    CU_add_test(suite, "arrays in arrays", test_deep_arrays);
    CU_add_test(suite, "other failures", test_files);
    CU_add_test(suite, "out of memory", test_no_memory);
}
