/* Adapters in the format of PEFT: written and read again, in fused modules and others; folders that
 * must be refused; and quantised stores in f32 again. What PEFT itself computes is compared by
 * tests/real/peft_test.sh. */
#include "golden.h"

#include <weft/huggingface.h>
#include <weft/lora.h>
#include <weft/quantize.h>
#include <weft/safetensors.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch[64];

static int make_scratch(void)
{
    snprintf(scratch, sizeof scratch, "/tmp/weft-peft-XXXXXX");
    return mkdtemp(scratch) == NULL;
}

static const char *path_of(const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", scratch, name);
    return path;
}

static int remove_scratch(void)
{
    char path[256];
    unlink(path_of("adapter_config.json", path));
    unlink(path_of("adapter_model.safetensors", path));
    return rmdir(scratch);
}

static void write_text(const char *name, const char *text)
{
    char path[256];
    FILE *file = fopen(path_of(name, path), "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    fclose(file);
}

static bool config_has(const char *text)
{
    char path[256], all[8192] = "";
    FILE *file = fopen(path_of("adapter_config.json", path), "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    all[fread(all, 1, sizeof all - 1, file)] = 0;
    fclose(file);
    return strstr(all, text) != NULL;
}

/* A model of tests/golden/huggingface, and random adapters for it. */
typedef struct rig {
    weft_model_config config;
    weft_params *base, *adapters;
    weft_graph *graph;
} rig;

static void open_rig(rig *r, const char *name, const char *on)
{
    char folder[512];
    weft_error error = {0};
    weft_built built;
    size_t n;
    snprintf(folder, sizeof folder, GOLDEN("huggingface") "/%s", name);
    r->base = weft_params_new();
    CU_ASSERT_EQUAL_FATAL(weft_huggingface_load(r->base, &r->config, folder, &error), WEFT_OK);
    const weft_lora lora = {
        .model = weft_model_builder(&r->config), .rank = 3, .alpha = 6, .on = on};
    const weft_builder builder = weft_lora_builder(&lora);
    const bool source = weft_model_traits_of(&r->config).source_vocab != 0;
    const weft_build_options o = {.shape = {1, source ? 2 : 0, 2}};
    weft_graph *g = weft_graph_new();
    CU_ASSERT_EQUAL_FATAL(builder.build(builder.context, g, &o, &built), WEFT_OK);
    r->adapters = weft_params_new();
    weft_lora_note(&lora, r->adapters, NULL);
    const weft_value *params = weft_graph_params(g, &n);
    uint32_t x = 7;
    for (size_t i = 0; i < n; i++) {
        weft_tensor t;
        weft_params_add(r->adapters, weft_name_of(g, params[i]), WEFT_F32,
                        weft_shape_of(g, params[i]), &t, NULL);
        for (int64_t k = 0; k < weft_shape_numel(t.shape); k++)
            ((float *)t.data)[k] = (float)((x = x * 1664525 + 1013904223) >> 8) / 0x1p24f - 0.5f;
    }
    weft_graph_free(g);
    r->graph = weft_graph_new();
    r->config.build.shape = o.shape;
    weft_model_build(r->graph, &r->config);
}

static void close_rig(rig *r)
{
    weft_graph_free(r->graph);
    weft_params_free(r->base);
    weft_params_free(r->adapters);
}

static weft_status save(const rig *r, const char *as)
{
    weft_error error = {0};
    const weft_status status =
        weft_huggingface_save_adapters(r->adapters, r->base, &r->config, scratch, as, &error);
    if (status != WEFT_OK && !as) printf("\n    %s: %s\n", error.where, error.message);
    return status;
}

static weft_status load(const rig *r, weft_params *into, weft_error *error)
{
    return weft_huggingface_load_adapters(into, r->base, &r->config, scratch, NULL, error);
}

static weft_params *load_good(const rig *r)
{
    weft_error error = {0};
    weft_params *again = weft_params_new();
    if (load(r, again, &error) != WEFT_OK) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_EQUAL_FATAL(error.status, WEFT_OK);
    return again;
}

/* Whether two stores have the same tensors; zeros may differ in their sign. */
static bool same(const weft_params *a, const weft_params *b)
{
    bool equal = weft_params_count(a) == weft_params_count(b);
    for (size_t i = 0; equal && i < weft_params_count(a); i++) {
        weft_tensor x, y;
        weft_params_find(a, weft_params_name(a, i), &x);
        equal =
            weft_params_find(b, weft_params_name(a, i), &y) && weft_shape_equal(x.shape, y.shape);
        for (int64_t k = 0; equal && k < weft_shape_numel(x.shape); k++)
            equal = ((const float *)x.data)[k] == ((const float *)y.data)[k];
    }
    return equal;
}

static weft_params *merged(const rig *r, const weft_params *adapters)
{
    weft_error error = {0};
    weft_params *all = weft_params_dequantize(r->base, r->graph, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(all);
    CU_ASSERT_EQUAL(weft_params_add_adapters(all, adapters, r->graph, &error), WEFT_OK);
    return all;
}

/* Merged weights are the same bits: blocks of zeros add nothing. What was read from a fused module
 * is written with the rank that it was read with. */
static void check_round_trip(const char *name, const char *on)
{
    rig r;
    open_rig(&r, name, on);
    CU_ASSERT_EQUAL_FATAL(save(&r, NULL), WEFT_OK);
    weft_params *again = load_good(&r);
    weft_params *before = merged(&r, r.adapters), *after = merged(&r, again);
    if (!same(before, after)) printf("\n    %s: other weights\n", name);
    CU_ASSERT_TRUE(same(before, after));
    CU_ASSERT_FALSE(same(before, r.base));
    weft_params_free(r.adapters);
    r.adapters = again;
    CU_ASSERT_EQUAL_FATAL(save(&r, NULL), WEFT_OK);
    again = load_good(&r);
    CU_ASSERT_TRUE(same(again, r.adapters));
    weft_params_free(again);
    weft_params_free(before);
    weft_params_free(after);
    close_rig(&r);
}

static void test_round_trips(void)
{
    static const char *const names[] = {"llama", "llama-tied",  "qwen3", "gemma2", "gemma3", "phi3",
                                        "gpt2",  "gpt2-untied", "bert",  "marian", "bart"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check_round_trip(names[i], NULL);
    check_round_trip("phi3", "*.v.*");
    check_round_trip("gpt2", "*.0.attn.k.*,*.ffn.in.*");
}

static bool has_shape(const char *name, int64_t rows, int64_t columns)
{
    char path[256];
    weft_safetensors *file =
        weft_safetensors_open(path_of("adapter_model.safetensors", path), NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    const weft_file_tensor *t = weft_safetensors_find(file, name);
    const bool good = t && weft_shape_equal(t->shape, WEFT_SHAPE(rows, columns));
    weft_safetensors_close(file);
    return good;
}

/* Names, ranks and targets are those of PEFT. */
static void test_names(void)
{
    rig r;
    open_rig(&r, "llama", NULL);
    CU_ASSERT_EQUAL(save(&r, NULL), WEFT_OK);
    CU_ASSERT_TRUE(has_shape("base_model.model.model.layers.1.mlp.down_proj.lora_A.weight", 3, 40));
    CU_ASSERT_TRUE(has_shape("base_model.model.model.layers.1.mlp.down_proj.lora_B.weight", 24, 3));
    CU_ASSERT_TRUE(has_shape("base_model.model.lm_head.lora_B.weight", 61, 3));
    CU_ASSERT_TRUE(config_has("\"down_proj\"") && config_has("\"CAUSAL_LM\""));
    CU_ASSERT_FALSE(config_has("layers.1"));
    CU_ASSERT_EQUAL(save(&r, "GPT2LMHeadModel"), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(save(&r, "NoModel"), WEFT_NOT_FOUND);
    close_rig(&r);
    open_rig(&r, "llama", "*.1.attn.q.*");
    CU_ASSERT_EQUAL(save(&r, NULL), WEFT_OK);
    CU_ASSERT_TRUE(config_has("\"model.layers.1.self_attn.q_proj\""));
    close_rig(&r);
    open_rig(&r, "gpt2", NULL);
    CU_ASSERT_EQUAL(save(&r, NULL), WEFT_OK);
    CU_ASSERT_TRUE(has_shape("base_model.model.transformer.h.0.attn.c_attn.lora_A.weight", 9, 24));
    CU_ASSERT_TRUE(has_shape("base_model.model.transformer.h.0.attn.c_attn.lora_B.weight", 72, 9));
    CU_ASSERT_TRUE(config_has("\"fan_in_fan_out\":\ttrue") && config_has("\"c_attn\":\t18"));
    close_rig(&r);
}

/* ---- Errors ---- */

static void test_configurations(void)
{
    static const struct {
        const char *text, *message;
        weft_status status;
    } cases[] = {
        {"[]", "not a JSON object", WEFT_BAD_FILE},
        {"{", "not a JSON object", WEFT_BAD_FILE},
        {"{}", "peft_type", WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"IA3\"}", "peft_type", WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"use_dora\": true}", "DoRA", WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"bias\": \"all\"}", "biases", WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"modules_to_save\": [\"lm_head\"]}", "modules_to_save",
         WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"init_lora_weights\": \"pissa\"}", "init_lora_weights",
         WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"future\": 1}", "future", WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"r\": 0}", "r:", WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"r\": \"8\"}", "r:", WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"lora_alpha\": -1}", "lora_alpha", WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"lora_dropout\": 1}", "lora_dropout", WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"alpha_pattern\": {\"^q.*\": 2}}", "alpha_pattern",
         WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"alpha_pattern\": [1]}", "alpha_pattern", WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"alpha_pattern\": \"x\"}", "alpha_pattern", WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"alpha_pattern\": 2}", "alpha_pattern", WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"alpha_pattern\": {\"q_proj\": 1e999}}", "alpha_pattern",
         WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"alpha_pattern\": {\"q_proj\": \"1\"}}", "alpha_pattern",
         WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"use_rslora\": 1}", "use_rslora", WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"use_rslora\": \"true\"}", "use_rslora", WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"bias\": true}", "bias", WEFT_BAD_ARGUMENT},
        {"{\"peft_type\": \"LORA\", \"alpha_pattern\": null, \"use_rslora\": null, \"bias\": null}",
         NULL, WEFT_OK},
        {"{\"peft_type\": \"LORA\", \"future\": null, \"use_dora\": false, \"x\": {}}", NULL,
         WEFT_OK}};
    rig r;
    open_rig(&r, "llama", NULL);
    CU_ASSERT_EQUAL_FATAL(save(&r, NULL), WEFT_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_error error = {0};
        weft_params *into = weft_params_new();
        write_text("adapter_config.json", cases[i].text);
        CU_ASSERT_EQUAL(load(&r, into, &error), cases[i].status);
        const bool named = !cases[i].message || strstr(error.message, cases[i].message);
        if (!named) printf("\n    %s: %s\n", cases[i].text, error.message);
        CU_ASSERT_TRUE(named);
        weft_params_free(into);
    }
    close_rig(&r);
}

/* The scale of a module: alpha / rank, alpha / sqrt(rank), or by alpha_pattern, in B. */
static void test_scales(void)
{
    static const char rslora[] =
        "{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 6, \"use_rslora\": true}";
    static const char patterns[] =
        "{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 6, \"alpha_pattern\": "
        "{\"layers.0.self_attn.q_proj\": 12, \"_proj\": 5}}";
    static const char *const names[] = {"layer.0.attn.q.weight.lora_b",
                                        "layer.1.attn.q.weight.lora_b"};
    rig r;
    weft_tensor x, y;
    open_rig(&r, "llama", NULL);
    save(&r, NULL);
    write_text("adapter_config.json", rslora);
    weft_params *again = load_good(&r);
    CU_ASSERT_TRUE(same(again, r.adapters));
    CU_ASSERT_STRING_EQUAL(weft_params_meta(again, "lora"),
                           "rank=3 alpha=10.392304845413264 dropout=0 on=");
    weft_params_free(again);
    write_text("adapter_config.json", patterns);
    again = load_good(&r);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_TRUE_FATAL(weft_params_find(again, names[i], &x));
        CU_ASSERT_TRUE_FATAL(weft_params_find(r.adapters, names[i], &y));
        for (int k = 0; k < 24; k++)
            CU_ASSERT_EQUAL(((const float *)x.data)[k], (i ? 1 : 2) * ((const float *)y.data)[k]);
    }
    weft_params_free(again);
    close_rig(&r);
}

static const void *one_tensor(void *context, size_t index, weft_error *error)
{
    static const float zeros[4096];
    (void)context, (void)index, (void)error;
    return zeros;
}

static void test_tensors(void)
{
#define Q "base_model.model.model.layers.0.self_attn.q_proj.lora_"
#define E "base_model.model.model.embed_tokens.lora_"
    static const struct {
        weft_file_tensor tensors[2];
        size_t n;
        weft_status status;
    } cases[] = {
        {{{Q "A.weight", WEFT_F32, {2, {2, 24}}, NULL},
          {Q "B.weight", WEFT_F32, {2, {24, 2}}, NULL}},
         2,
         WEFT_OK},
        {{{Q "A.weight", WEFT_F32, {2, {2, 24}}, NULL}}, 1, WEFT_BAD_FILE},
        {{{Q "B.weight", WEFT_F32, {2, {24, 2}}, NULL}}, 1, WEFT_BAD_FILE},
        {{{Q "A.weight", WEFT_F32, {2, {2, 23}}, NULL},
          {Q "B.weight", WEFT_F32, {2, {24, 2}}, NULL}},
         2,
         WEFT_BAD_SHAPE},
        {{{Q "A.weight", WEFT_F32, {2, {2, 24}}, NULL},
          {Q "B.weight", WEFT_F32, {2, {24, 3}}, NULL}},
         2,
         WEFT_BAD_SHAPE},
        {{{Q "A.weight", WEFT_F32, {1, {24}}, NULL}, {Q "B.weight", WEFT_F32, {2, {24, 2}}, NULL}},
         2,
         WEFT_BAD_SHAPE},
        {{{E "A.weight", WEFT_F32, {2, {2, 61}}, NULL},
          {E "B.weight", WEFT_F32, {2, {24, 2}}, NULL}},
         2,
         WEFT_BAD_ARGUMENT},
        {{{"base_model.model.lm_head.weight", WEFT_F32, {2, {61, 24}}, NULL}}, 1, WEFT_BAD_FILE},
        {{{NULL, WEFT_F32, {0, {0}}, NULL}}, 0, WEFT_BAD_FILE}};
    char path[256];
    rig r;
    open_rig(&r, "llama", NULL);
    save(&r, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_error error = {0};
        weft_params *into = weft_params_new();
        CU_ASSERT_EQUAL_FATAL(weft_safetensors_write(path_of("adapter_model.safetensors", path),
                                                     cases[i].tensors, cases[i].n, NULL, one_tensor,
                                                     NULL, &error),
                              WEFT_OK);
        const weft_status status = load(&r, into, &error);
        if (status != cases[i].status)
            printf("\n    case %zu: %s: %s\n", i, error.where, error.message);
        CU_ASSERT_EQUAL(status, cases[i].status);
        weft_params_free(into);
    }
    weft_params *into = weft_params_new();
    unlink(path_of("adapter_model.safetensors", path));
    CU_ASSERT_EQUAL(load(&r, into, NULL), WEFT_NOT_FOUND);
    unlink(path_of("adapter_config.json", path));
    CU_ASSERT_EQUAL(load(&r, into, NULL), WEFT_NOT_FOUND);
    CU_ASSERT_EQUAL(load(&r, NULL, NULL), WEFT_BAD_ARGUMENT);
    weft_error error = {0};
    weft_params_add(r.adapters, "other.lora_a", WEFT_F32, WEFT_SHAPE(2, 2), NULL, NULL);
    CU_ASSERT_EQUAL(weft_huggingface_save_adapters(r.adapters, r.base, &r.config, scratch,
                                                   "LlamaForCausalLM", &error),
                    WEFT_BAD_FILE);
    CU_ASSERT_STRING_EQUAL(error.where, "other.lora_a");
    CU_ASSERT_EQUAL(weft_params_add_adapters(r.base, r.adapters, r.graph, &error), WEFT_BAD_FILE);
    CU_ASSERT_STRING_EQUAL(error.where, "other.lora_a");
    CU_ASSERT_EQUAL(weft_huggingface_save_adapters(r.base, r.base, &r.config, scratch, NULL, NULL),
                    WEFT_BAD_FILE);
    weft_params_free(into);
    close_rig(&r);
}

/* ---- Quantised stores in f32 again ---- */

/* A quantised model, and adapters for its first layer. */
typedef struct small {
    weft_graph *graph;
    weft_params *base, *quantized, *adapters;
} small;

static void open_small(small *s)
{
    weft_model_config config;
    weft_error error = {0};
    weft_built built;
    size_t n;
    static const char *const texts[] = {"vocab=40", "d_model=32", "heads=2", "d_ff=64", "layers=2"};
    CU_ASSERT_EQUAL_FATAL(weft_model_parse(weft_model_find("gpt"), texts, 5, &config, &error),
                          WEFT_OK);
    config.build.shape = (weft_batch_shape){1, 0, 2};
    s->graph = weft_graph_new();
    s->base = weft_params_new();
    s->adapters = weft_params_new();
    weft_model_build(s->graph, &config);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(s->base, s->graph, 1, &error), WEFT_OK);
    const weft_quantize_options options = {.bits = 4};
    s->quantized = weft_params_quantize(s->base, s->graph, &options, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s->quantized);
    const weft_lora lora = {
        .model = weft_model_builder(&config), .rank = 2, .alpha = 2, .on = "layer.0.*"};
    const weft_builder builder = weft_lora_builder(&lora);
    weft_graph *g = weft_graph_new();
    CU_ASSERT_EQUAL_FATAL(builder.build(builder.context, g, &config.build, &built), WEFT_OK);
    const weft_value *params = weft_graph_params(g, &n);
    weft_lora_note(&lora, s->adapters, NULL);
    for (size_t i = 0; i < n; i++)
        weft_params_add(s->adapters, weft_name_of(g, params[i]), WEFT_F32,
                        weft_shape_of(g, params[i]), NULL, NULL);
    weft_graph_free(g);
}

static void close_small(small *s)
{
    weft_graph_free(s->graph);
    weft_params_free(s->base);
    weft_params_free(s->quantized);
    weft_params_free(s->adapters);
}

static bool is_of_layer_0(void *context, const char *name)
{
    (void)context;
    return !strncmp(name, "layer.0.", 8);
}

static bool is_of_layer_1(void *context, const char *name)
{
    (void)context;
    return !strncmp(name, "layer.1.", 8);
}

/* A filter widens the matrices of its names alone; those that have adapters already are refused. */
static void test_dequantize(void)
{
    static const weft_params_filter first = {is_of_layer_0, NULL}, second = {is_of_layer_1, NULL};
    weft_error error = {0};
    small s;
    open_small(&s);
    weft_params *some = weft_params_dequantize(s.quantized, s.graph, &first, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(some);
    CU_ASSERT_TRUE(weft_params_find(some, "layer.0.ffn.in.weight", NULL));
    CU_ASSERT_FALSE(weft_params_find(some, "layer.0.ffn.in.weight.q", NULL));
    CU_ASSERT_FALSE(weft_params_find(some, "layer.1.ffn.in.weight", NULL));
    CU_ASSERT_TRUE(weft_params_find(some, "layer.1.ffn.in.weight.scale", NULL));
    CU_ASSERT_STRING_EQUAL(weft_params_meta(some, "quantization"), "bits=4 group=32");
    weft_params_free(some);
    CU_ASSERT_EQUAL_FATAL(weft_params_add_adapters(s.quantized, s.adapters, s.graph, &error),
                          WEFT_OK);
    CU_ASSERT_PTR_NULL(weft_params_dequantize(s.quantized, s.graph, NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(strncmp(error.where, "layer.0.", 8), 0);
    some = weft_params_dequantize(s.quantized, s.graph, &second, &error);
    CU_ASSERT_PTR_NOT_NULL(some);
    CU_ASSERT_TRUE(weft_params_find(some, "layer.0.ffn.in.weight.lora_a", NULL));
    weft_params_free(some);
    close_small(&s);
}

/* A copy of a store in which one tensor has a row less. */
static weft_params *truncated(const weft_params *from, const char *name)
{
    weft_params *to = weft_params_new();
    for (size_t i = 0; i < weft_params_count(from); i++) {
        weft_tensor t;
        weft_params_find(from, weft_params_name(from, i), &t);
        t.shape.dim[0] -= !strcmp(weft_params_name(from, i), name);
        weft_params_add(to, weft_params_name(from, i), t.dtype, t.shape, NULL, NULL);
    }
    return to;
}

static void test_damaged_forms(void)
{
    static const char *const names[] = {"layer.0.ffn.in.weight.q", "layer.0.ffn.in.weight.scale",
                                        "layer.0.ffn.in.weight.zero"};
    small s;
    open_small(&s);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        weft_error error = {0};
        weft_params *bad = truncated(s.quantized, names[i]);
        CU_ASSERT_PTR_NULL(weft_params_dequantize(bad, s.graph, NULL, &error));
        CU_ASSERT_EQUAL(error.status, WEFT_BAD_SHAPE);
        CU_ASSERT_STRING_EQUAL(error.where, "layer.0.ffn.in.weight");
        weft_params_free(bad);
    }
    close_small(&s);
}

/* Every allocation made to fail in turn. */
static void test_dequantize_memory(void)
{
    bool pending = false;
    small s;
    open_small(&s);
    for (long n = 1; !pending; n++) {
        weft_error error = {0};
        test_fail_allocation(n);
        weft_params *wide = weft_params_dequantize(s.quantized, s.graph, NULL, &error);
        pending = test_allocation_pending();
        test_fail_allocation(0);
        CU_ASSERT_TRUE(pending == (wide != NULL));
        CU_ASSERT_TRUE(pending == (error.status == WEFT_OK));
        weft_params_free(wide);
    }
    close_small(&s);
}

/* Every fifth allocation made to fail. */
static void test_memory(void)
{
    rig r;
    open_rig(&r, "phi3", NULL);
    bool pending = false;
    for (long n = 1; !pending; n += 5) {
        weft_error error = {0};
        test_fail_allocation(n);
        const weft_status status =
            weft_huggingface_save_adapters(r.adapters, r.base, &r.config, scratch, NULL, &error);
        pending = test_allocation_pending();
        test_fail_allocation(0);
        CU_ASSERT_TRUE(pending == (status == WEFT_OK));
    }
    pending = false;
    for (long n = 1; !pending; n += 5) {
        weft_params *into = weft_params_new();
        weft_error error = {0};
        test_fail_allocation(n);
        const weft_status status = load(&r, into, &error);
        pending = test_allocation_pending();
        test_fail_allocation(0);
        CU_ASSERT_TRUE(pending == (status == WEFT_OK));
        weft_params_free(into);
    }
    close_rig(&r);
}

void peft_tests(void)
{
    CU_pSuite suite = CU_add_suite("peft", make_scratch, remove_scratch);
    CU_add_test(suite, "adapters written and read", test_round_trips);
    CU_add_test(suite, "names, ranks and targets", test_names);
    CU_add_test(suite, "configurations", test_configurations);
    CU_add_test(suite, "scales", test_scales);
    CU_add_test(suite, "files of tensors", test_tensors);
    CU_add_test(suite, "quantised stores in f32", test_dequantize);
    CU_add_test(suite, "damaged quantised forms", test_damaged_forms);
    CU_add_test(suite, "allocations that fail", test_memory);
    CU_add_test(suite, "allocations that fail while widening", test_dequantize_memory);
}
