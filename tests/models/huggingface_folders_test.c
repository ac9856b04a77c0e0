/* Folders of transformers that must be refused, and what a folder may have that no model needs: keys,
 * names of old files, dtypes. */
#include "huggingface_folders.h"

#include "golden.h"

#include <weft/huggingface.h>
#include <weft/safetensors.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Folders that are refused ---- */

/* Copies a folder of one file to the scratch folder, with `was` in its configuration replaced. */
static void copy_folder(const char *name, const char *was, const char *is)
{
    char folder[512], path[600], link[256];
    hf_golden_folder(name, folder);
    snprintf(path, sizeof path, "%s/config.json", folder);
    char *text = hf_read_text(path), *at = strstr(text, was);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    char *changed = calloc(1, strlen(text) + strlen(is) + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(changed);
    memcpy(changed, text, (size_t)(at - text));
    strcat(changed, is);
    strcat(changed, at + strlen(was));
    hf_write_bytes("config.json", changed, strlen(changed));
    free(changed);
    free(text);
    unlink(hf_scratch_path("model.safetensors", link));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CU_ASSERT_EQUAL(symlink(path, link), 0);
}

static void refuse(weft_status status, const char *message)
{
    weft_error error = {0};
    weft_model_config config;
    weft_params *p = weft_params_new();
    CU_ASSERT_EQUAL(weft_huggingface_load(p, &config, hf_scratch, &error), status);
    if (!strstr(error.message, message) || error.status != status)
        printf("\n    expected \"%s\" (%d): %s: %s (%d)\n", message, status, error.where,
               error.message, error.status);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, message));
    CU_ASSERT_PTR_NULL(strchr(error.message, '\n'));
    CU_ASSERT_EQUAL(weft_huggingface_load(p, &config, hf_scratch, NULL),
                    weft_params_count(p) ? WEFT_BAD_ARGUMENT : status);
    weft_params_free(p);
}

static void test_configurations(void)
{
    static const struct {
        const char *model, *was, *is;
        weft_status status;
        const char *message;
    } cases[] = {
        {"gpt2", "\"GPT2LMHeadModel\"", "\"T5ForConditionalGeneration\"", WEFT_BAD_ARGUMENT,
         "unsupported architecture T5ForConditionalGeneration"},
        {"gpt2", "\"gelu_new\"", "\"quick_gelu\"", WEFT_BAD_ARGUMENT,
         "activation_function is \"quick_gelu\": unsupported activation"},
        {"gpt2", "\"scale_attn_by_inverse_layer_idx\": false",
         "\"scale_attn_by_inverse_layer_idx\": true", WEFT_BAD_ARGUMENT,
         "scale_attn_by_inverse_layer_idx is true: weft's gpt needs false"},
        {"gpt2", "\"use_cache\": true", "\"attn_logit_softcapping\": 50.0", WEFT_BAD_ARGUMENT,
         "attn_logit_softcapping is 50: unsupported key for GPT2LMHeadModel"},
        {"gpt2", "\"use_cache\": true", "\"quantization_config\": {\"bits\": 4}", WEFT_BAD_ARGUMENT,
         "quantization_config is {\"bits\":4}: weft's gpt needs null"},
        {"gpt2", "\"n_head\": 3", "\"n_head\": \"3\"", WEFT_BAD_ARGUMENT,
         "n_head is \"3\": expected a number"},
        {"gpt2", "\"n_head\": 3", "\"n_head\": 2.5", WEFT_BAD_ARGUMENT,
         "n_head is 2.5: invalid heads"},
        {"gpt2", "\"n_head\": 3", "\"n_head\": -3", WEFT_BAD_ARGUMENT,
         "n_head is -3: invalid heads"},
        {"gpt2", "\"n_head\": 3", "\"n_head\": 5", WEFT_BAD_ARGUMENT,
         "the number of heads must divide d_model"},
        {"gpt2", "\"n_layer\": 2", "\"n_layer\": 3", WEFT_NOT_FOUND,
         "has no tensor transformer.h.2.ln_1.weight, for layer.2.norm_attn.gamma"},
        {"gpt2", "\"n_layer\": 2", "\"n_layer\": 1", WEFT_BAD_FILE,
         "GPT2LMHeadModel with this config.json does not have it"},
        {"gpt2", "\"n_layer\": 2", "\"n_layer\": 1000000", WEFT_TOO_LARGE,
         "layers, expected at most 1000"},
        {"gpt2", "\"n_embd\": 24", "\"n_embd\": 27", WEFT_BAD_SHAPE,
         "transformer.wte.weight is [59, 24], but config.json makes it [59, 27]"},
        {"gpt2", "\"vocab_size\": 59", "\"vocab_size\": 1000000000", WEFT_BAD_SHAPE,
         "transformer.wte.weight is [59, 24]"},
        {"gpt2", "{", "[", WEFT_BAD_FILE, "is not a JSON object"},
        {"bert", "\"gelu\"", "\"relu\"", WEFT_BAD_ARGUMENT, "hidden_act is \"relu\""},
        {"bert", "\"is_decoder\": false", "\"is_decoder\": true", WEFT_BAD_ARGUMENT,
         "is_decoder is true"},
        {"llama-tied", "\"rope_type\": \"default\"", "\"rope_type\": \"dynamic\"",
         WEFT_BAD_ARGUMENT, "is \"dynamic\": expected default, linear, llama3, yarn or longrope"},
        {"llama-tied", "\"rope_type\": \"default\"", "\"rope_type\": \"longrope\"", WEFT_NOT_FOUND,
         "has no short_factor, which longrope needs"},
        {"llama-tied", "\"rope_type\": \"default\"",
         "\"rope_type\": \"longrope\", \"short_factor\": [1, 2], \"long_factor\": [1, 2, 3]",
         WEFT_BAD_ARGUMENT, "short_factor has 2 numbers; expected 3, one for each pair"},
        {"llama-tied", "\"rope_type\": \"default\"",
         "\"rope_type\": \"longrope\", \"short_factor\": [1, \"2\", 3], \"long_factor\": [1]",
         WEFT_BAD_ARGUMENT, "short_factor: invalid rotary_factors"},
        {"llama-tied", "\"rope_type\": \"default\"", "\"rope_type\": \"yarn\", \"mscale\": 2",
         WEFT_BAD_ARGUMENT, "rope_parameters.mscale is 2: unsupported key"},
        {"llama-tied", "\"rope_type\": \"default\"", "\"rope_type\": \"linear\", \"factor\": \"2\"",
         WEFT_BAD_ARGUMENT, "factor is \"2\": expected a number"},
        {"llama-tied", "\"rope_type\": \"default\"", "\"rope_type\": \"yarn\", \"truncate\": false",
         WEFT_BAD_ARGUMENT, "truncate is false: weft's llama needs true"},
        {"llama-tied", "\"rope_type\": \"default\"",
         "\"rope_type\": \"llama3\", \"low_freq_factor\": 4, \"high_freq_factor\": 1",
         WEFT_BAD_ARGUMENT, "the fast turns of scaling must be more than the slow ones"},
        {"llama-tied", "\"head_dim\": 6", "\"head_dim\": 8", WEFT_BAD_SHAPE,
         "self_attn.q_proj.weight is [24, 24], but config.json makes it [32, 24]"},
        {"llama-tied", "\"use_cache\": true", "\"rope_scaling\": {\"factor\": 8.0}",
         WEFT_BAD_ARGUMENT, "rope_scaling needs it, and no rope_parameters next to it"},
        {"llama-tied", "\"LlamaForCausalLM\"\n  ],",
         "\"MistralForCausalLM\"\n  ], \"sliding_window\": true,", WEFT_BAD_ARGUMENT,
         "sliding_window is true: expected a number"},
        {"gemma3", "\"full_attention\"\n  ]", "\"chunked_attention\"\n  ]", WEFT_BAD_ARGUMENT,
         "expected sliding_attention and full_attention"},
        {"gemma3", "\"full_attention\"\n  ]", "\"full_attention\", \"full_attention\"\n  ]",
         WEFT_BAD_ARGUMENT, "expected an item for each layer"},
        {"gemma3", "\"sliding_attention\",\n    \"full_attention\"",
         "\"full_attention\",\n    \"sliding_attention\"", WEFT_BAD_ARGUMENT,
         "weft needs full_attention in every n-th layer, and only there"},
        {"gemma3", "\"rope_type\": \"default\"", "\"rope_type\": \"linear\"", WEFT_BAD_ARGUMENT,
         "rope_parameters.sliding_attention.rope_type is \"linear\": weft's llama needs"},
        {"gemma3", "\"factor\": 8.0", "\"factors\": 8.0", WEFT_BAD_ARGUMENT,
         "rope_parameters.full_attention.factors is 8: unsupported key for Gemma3ForCausalLM"},
        {"marian", "\"decoder_ffn_dim\": 24", "\"decoder_ffn_dim\": 32", WEFT_BAD_ARGUMENT,
         "weft's transformer has one d_ff, and another key says 24"},
        {"marian", "\"pad_token_id\": 46", "\"pad_token_id\": null", WEFT_BAD_ARGUMENT,
         "pad_token_id is missing: it masks padding of the source"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        copy_folder(cases[i].model, cases[i].was, cases[i].is);
        refuse(cases[i].status, cases[i].message);
    }
}

/* Keys that no result depends on, of each kind that docs/convert.md lists. */
static void test_harmless_keys(void)
{
    static const char *const keys[] = {"_model_name_or_path\": \"a",
                                       "unk_token_id\": 3, \"a_version\": \"1",
                                       "eos_token_ids\": [1, 2], \"unsloth_fixed\": \"true",
                                       "auto_map\": {\"AutoConfig\": \"a\"}, \"dtype\": \"x",
                                       "max_new_tokens\": 20, \"prefix\": \""};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char with[256];
        weft_model_config config;
        snprintf(with, sizeof with, "{\"%s\",", keys[i]);
        copy_folder("gpt2", "{", with);
        weft_params_free(hf_load_good(hf_scratch, &config));
    }
}

/* Every beginning of a configuration, and one with every byte changed. */
static void test_damaged_configurations(void)
{
    char folder[512], path[600];
    copy_folder("gpt2", "{", "{");
    hf_golden_folder("gpt2", folder);
    snprintf(path, sizeof path, "%s/config.json", folder);
    char *text = hf_read_text(path);
    const size_t n = strlen(text);
    for (size_t i = 0; i < 2 * n; i++) {
        weft_error error = {0};
        weft_model_config config;
        weft_params *p = weft_params_new();
        char *copy = strdup(text);
        CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
        if (i >= n) copy[i - n] = (char)(copy[i - n] ^ 5);
        hf_write_bytes("config.json", copy, i < n ? i : n);
        weft_status status = weft_huggingface_load(p, &config, hf_scratch, &error);
        if (i + 2 < n) CU_ASSERT_EQUAL(status, WEFT_BAD_FILE);
        CU_ASSERT_EQUAL(status, error.status);
        free(copy);
        weft_params_free(p);
    }
    free(text);
}

static void test_indices(void)
{
    static const struct {
        const char *index;
        weft_status status;
        const char *message;
    } cases[] = {
        {"{\"weight_map\": {\"a\": \"../a.safetensors\"}}", WEFT_BAD_FILE,
         "weight_map: \"../a.safetensors\" is not the name of a file in the folder"},
        {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", WEFT_BAD_FILE, "is not the name of a file"},
        {"{\"weight_map\": {\"a\": \"..\"}}", WEFT_BAD_FILE, "is not the name of a file"},
        {"{\"weight_map\": {\"a\": 1}}", WEFT_BAD_FILE, "is not the name of a file"},
        {"{\"weight_map\": [1]}", WEFT_BAD_FILE, "has no object weight_map"},
        {"{", WEFT_BAD_FILE, "is not a JSON object"},
        {"{\"weight_map\": {\"a\": \"none.safetensors\"}}", WEFT_NOT_FOUND, "cannot be opened"},
        {"{\"weight_map\": {\"nothing\": \"a.safetensors\"}}", WEFT_BAD_FILE,
         "nothing is not in a.safetensors"},
        {"{\"weight_map\": {}}", WEFT_NOT_FOUND, "has no tensor transformer.wte.weight"},
    };
    char link[256], path[600], folder[512];
    copy_folder("gpt2", "{", "{");
    unlink(hf_scratch_path("model.safetensors", link));
    refuse(WEFT_NOT_FOUND, "has neither model.safetensors nor model.safetensors.index.json");
    hf_golden_folder("gpt2", folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CU_ASSERT_EQUAL(symlink(path, hf_scratch_path("a.safetensors", link)), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_write_bytes("model.safetensors.index.json", cases[i].index, strlen(cases[i].index));
        refuse(cases[i].status, cases[i].message);
    }
    unlink(hf_scratch_path("model.safetensors.index.json", link));
}

/* ---- Names in files ---- */

typedef struct renamed {
    const weft_params *params;
    const char *extra; /* a tensor of one element after the others; NULL: none */
} renamed;

static const void *renamed_data(void *context, size_t i, weft_error *error)
{
    static const float zero;
    const renamed *r = context;
    weft_tensor t;
    (void)error;
    const char *name = weft_params_name(r->params, i);
    return name && weft_params_find(r->params, name, &t) ? t.data : &zero;
}

/* Writes bert's tensors without prefix, and norms as gamma and beta, as old files have them, with
 * one more tensor. */
static void write_old_bert(const char *extra)
{
    static char old[64][128];
    weft_file_tensor tensors[64];
    char path[256];
    weft_error error = {0};
    weft_params *p = weft_params_new();
    CU_ASSERT_EQUAL_FATAL(weft_params_load(p, FOLDER("bert") "/model.safetensors", &error),
                          WEFT_OK);
    size_t n = weft_params_count(p);
    CU_ASSERT_TRUE_FATAL(n < 64);
    for (size_t i = 0; i < n; i++) {
        const char *name = weft_params_name(p, i);
        weft_tensor t;
        weft_params_find(p, name, &t);
        snprintf(old[i], sizeof old[i], "%s", name + (strncmp(name, "bert.", 5) ? 0 : 5));
        char *norm = strstr(old[i], "LayerNorm.");
        if (norm) strcpy(norm + 10, strstr(norm, "weight") ? "gamma" : "beta");
        tensors[i] = (weft_file_tensor){old[i], t.dtype, t.shape, NULL};
    }
    tensors[n] = (weft_file_tensor){extra, WEFT_F32, WEFT_SHAPE(1), NULL};
    renamed r = {p, extra};
    unlink(hf_scratch_path("model.safetensors", path));
    CU_ASSERT_EQUAL(weft_safetensors_write(path, tensors, n + 1, NULL, renamed_data, &r, &error),
                    WEFT_OK);
    weft_params_free(p);
}

static void test_names(void)
{
    weft_model_config config, again;
    static test_log log;
    copy_folder("bert", "{", "{");
    write_old_bert("cls.seq_relationship.bias");
    test_log_to(&log);
    weft_params *p = hf_load_good(hf_scratch, &config), *q = hf_load_good(FOLDER("bert"), &again);
    hf_check_equal(p, q);
    CU_ASSERT_STRING_EQUAL(weft_params_meta(p, WEFT_HUGGINGFACE_LEFT_OUT),
                           "cls.seq_relationship.bias");
    test_log_to(NULL);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(log.text, "the model does not use these tensors: cls.seq_relationship.bias\n"));
    weft_params_free(p);
    weft_params_free(q);
    write_old_bert("embeddings.position_ids");
    p = hf_load_good(hf_scratch, &config);
    CU_ASSERT_PTR_NULL(weft_params_meta(p, WEFT_HUGGINGFACE_LEFT_OUT));
    weft_params_free(p);
    write_old_bert("classifier.bias");
    refuse(WEFT_BAD_FILE, "unexpected tensor classifier.bias: BertForMaskedLM");
}

static bool is_no_bias(void *context, const char *name)
{
    (void)context;
    return strcmp(name, "final_logits_bias") != 0;
}

/* BartModel has no bias of the logits; transformers takes zeros. */
static void test_missing_bias(void)
{
    char path[256];
    weft_error error = {0};
    weft_model_config config;
    weft_tensor t;
    const weft_params_filter filter = {is_no_bias, NULL};
    copy_folder("bart", "BartForConditionalGeneration", "BartModel");
    weft_params *file = weft_params_new();
    unlink(hf_scratch_path("model.safetensors", path));
    CU_ASSERT_EQUAL(weft_params_load(file, FOLDER("bart") "/model.safetensors", &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_save(file, path, &filter, &error), WEFT_OK);
    weft_params_free(file);
    weft_params *p = hf_load_good(hf_scratch, &config);
    CU_ASSERT_TRUE_FATAL(weft_params_find(p, "output.bias", &t));
    for (int64_t i = 0; i < weft_shape_numel(t.shape); i++)
        CU_ASSERT_EQUAL(((const float *)t.data)[i], 0);
    weft_params_free(p);
}

/* ---- Dtypes of files ---- */

static void test_dtypes(void)
{
    /* 1, -0.5, the smallest subnormal and infinity in F16; 1, -2.5 and 0 in BF16; an I64. */
    static const char header[] =
        "{\"h\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[8,14]},"
        "\"i\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[14,22]}}  ";
    static const uint16_t data[11] = {0x3C00, 0xB800, 1, 0x7C00, 0x3F80, 0xC020, 0};
    static const float halves[4] = {1, -0.5f, 0x1p-24f, INFINITY}, others[3] = {1, -2.5f, 0};
    char path[256], bytes[512];
    float got[4];
    weft_error error = {0};
    const uint64_t length = sizeof header - 1;
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    memcpy(bytes + 8 + length, data, sizeof data);
    hf_write_bytes("a.safetensors.new", bytes, 8 + length + sizeof data);
    weft_safetensors *f = weft_safetensors_open(hf_scratch_path("a.safetensors.new", path), &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    const weft_file_tensor *h = weft_safetensors_find(f, "h"), *b = weft_safetensors_find(f, "b"),
                           *i = weft_safetensors_find(f, "i");
    CU_ASSERT_TRUE_FATAL(h && b && i && weft_safetensors_count(f) == 3);
    CU_ASSERT_PTR_EQUAL(weft_safetensors_at(f, 1), b);
    CU_ASSERT_PTR_NULL(weft_safetensors_find(f, "c"));
    CU_ASSERT_PTR_NULL(weft_safetensors_at(f, 3));
    CU_ASSERT_TRUE(h->dtype == WEFT_F32 && i->dtype == WEFT_DTYPES);
    CU_ASSERT_STRING_EQUAL(b->stored, "BF16");
    CU_ASSERT_EQUAL(weft_safetensors_read(f, h, got, &error), WEFT_OK);
    CU_ASSERT_EQUAL(memcmp(got, halves, sizeof halves), 0);
    CU_ASSERT_EQUAL(weft_safetensors_read(f, b, got, &error), WEFT_OK);
    CU_ASSERT_EQUAL(memcmp(got, others, sizeof others), 0);
    CU_ASSERT_EQUAL(weft_safetensors_read(f, i, got, &error), WEFT_BAD_FILE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "i: its dtype is not supported"));
    weft_safetensors_close(f);
    unlink(path);
}

void huggingface_folders_tests(void)
{
    CU_pSuite suite = CU_add_suite("huggingface_folders", hf_make_scratch, hf_remove_scratch);
    CU_add_test(suite, "configurations that are refused", test_configurations);
    CU_add_test(suite, "keys that no result depends on", test_harmless_keys);
    CU_add_test(suite, "damaged configurations", test_damaged_configurations);
    CU_add_test(suite, "indices of several files", test_indices);
    CU_add_test(suite, "names of old files", test_names);
    CU_add_test(suite, "a bias that is missing", test_missing_bias);
    CU_add_test(suite, "dtypes of files", test_dtypes);
}
