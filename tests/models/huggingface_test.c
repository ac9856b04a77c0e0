/* Models of transformers against what transformers computed (golden/make_huggingface.py), and the way
 * back. huggingface_folders_test.c has folders that must be refused. */
#include "golden.h"
#include "huggingface_folders.h"

#include <weft/gguf.h>
#include <weft/huggingface.h>
#include <weft/numpy.h>
#include <weft/safetensors.h>

#include "json/tree.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Norm-wise: 170 roundings of f32, of 2^-24 each. The largest error seen is below 2e-6. */
#define LIMIT 1e-5

static const char *const names[] = {"gpt2",  "gpt2-untied",  "llama",  "llama-tied",
                                    "qwen3", "gemma2",       "gemma3", "phi3",
                                    "bert",  "bert-encoder", "marian", "bart"};
#define N_NAMES (sizeof names / sizeof *names)

/* A model of a folder as files in memory. */
typedef struct in_memory {
    weft_memory_file config, files[8];
    size_t n;
} in_memory;

static char *read_bytes(const char *path, size_t *bytes)
{
    struct stat info;
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    char *data = fstat(fileno(file), &info) == 0 ? malloc((size_t)info.st_size + 1) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(data);
    *bytes = fread(data, 1, (size_t)info.st_size, file);
    CU_ASSERT_EQUAL_FATAL(*bytes, (size_t)info.st_size);
    fclose(file);
    return data;
}

static void read_folder(const char *folder, in_memory *m)
{
    char path[600];
    *m = (in_memory){.config.name = "config"};
    snprintf(path, sizeof path, "%s/config.json", folder);
    m->config.data = read_bytes(path, &m->config.bytes);
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof path,
                 i ? "%s/model-%05d-of-00004.safetensors" : "%s/model.safetensors", folder, i);
        weft_memory_file *file = &m->files[m->n];
        file->data = read_bytes(path, &file->bytes);
        file->name = "tensors";
        m->n += file->data != NULL;
    }
    CU_ASSERT_TRUE_FATAL(m->config.data && m->n > 0);
}

static void free_memory(in_memory *m)
{
    free((void *)(uintptr_t)m->config.data);
    for (size_t i = 0; i < m->n; i++) free((void *)(uintptr_t)m->files[i].data);
}

/* ---- Outputs ---- */

static void feed(weft_session *s, weft_value input, const weft_params *arrays, const char *name)
{
    weft_tensor t;
    if (!weft_is_value(input)) return;
    CU_ASSERT_TRUE_FATAL(weft_params_find(arrays, name, &t));
    CU_ASSERT_EQUAL(weft_session_feed(s, input, t.data, weft_tensor_bytes(t.dtype, t.shape), NULL),
                    WEFT_OK);
}

/* Reads the arrays of a folder that are there, as inputs/target_in, outputs/logits, ... */
static weft_params *load_arrays(const char *folder)
{
    static const char *const arrays[] = {"inputs/target_in", "inputs/source",  "inputs/token_types",
                                         "outputs/logits",   "outputs/hidden", "outputs/pooled"};
    weft_params *p = weft_params_new();
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s.npy", folder, arrays[i]);
        weft_status status = weft_npy_load(p, arrays[i], path, NULL);
        CU_ASSERT_TRUE(status == WEFT_OK || status == WEFT_NOT_FOUND);
    }
    return p;
}

/* Runs a model in f32 on the inputs of the folder, and compares its outputs with those there. */
static void check_outputs(const char *folder, const weft_params *params, weft_model_config *config)
{
    weft_error error = {0};
    weft_built built;
    weft_tensor ids;
    weft_params *expected = load_arrays(folder);
    weft_batch_shape *shape = &config->build.shape;
    CU_ASSERT_TRUE_FATAL(weft_params_find(expected, "inputs/target_in", &ids));
    shape->rows = ids.shape.dim[0];
    shape->target_len = ids.shape.dim[1];
    if (weft_params_find(expected, "inputs/source", &ids)) shape->source_len = ids.shape.dim[1];
    weft_graph *g = weft_graph_new();
    built = weft_model_build(g, config);
    CU_ASSERT_EQUAL_FATAL(weft_graph_status(g), WEFT_OK);
    const struct {
        const char *name;
        weft_value value;
    } outputs[] = {{"outputs/logits", built.outputs[0]},
                   {"outputs/hidden", weft_built_output(&built, "hidden")},
                   {"outputs/pooled", weft_built_output(&built, "pooled")}};
    weft_value targets[3];
    size_t n = 0;
    for (size_t i = 0; i < 3; i++)
        if (weft_is_value(outputs[i].value)) targets[n++] = outputs[i].value;
    weft_plan *plan = weft_plan_new(g, targets, n, NULL, &error);
    weft_session *s =
        plan ? weft_session_new(plan, (weft_params *)(uintptr_t)params, NULL, &error) : NULL;
    if (!s) printf("\n    %s: %s: %s\n", folder, error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    feed(s, weft_built_input(&built, "source"), expected, "inputs/source");
    feed(s, weft_built_input(&built, "target_in"), expected, "inputs/target_in");
    feed(s, weft_built_input(&built, "token_types"), expected, "inputs/token_types");
    CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
    size_t compared = 0;
    for (size_t i = 0; i < 3; i++) {
        if (!weft_params_find(expected, outputs[i].name, NULL)) continue;
        golden_target(s, expected, outputs[i].value, outputs[i].name, LIMIT, 0);
        compared++;
    }
    CU_ASSERT_EQUAL(compared, 2);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    weft_params_free(expected);
}

static void test_outputs(void)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        char folder[512];
        weft_model_config config;
        hf_golden_folder(names[i], folder);
        int failures = (int)CU_get_number_of_failures();
        weft_params *p = hf_load_good(folder, &config);
        CU_ASSERT_STRING_EQUAL(weft_params_meta(p, "model"), config.model->name);
        CU_ASSERT_PTR_NOT_NULL(weft_params_meta(p, "model_options"));
        CU_ASSERT_PTR_NULL(weft_params_meta(p, WEFT_HUGGINGFACE_LEFT_OUT));
        check_outputs(folder, p, &config);
        if ((int)CU_get_number_of_failures() != failures) printf("    %s\n", names[i]);
        weft_params_free(p);
    }
}

/* LongRoPE: of 7 tokens, where the model was trained with 5 and then extended to 64. */
static void test_longrope(void)
{
    static const struct {
        int64_t context;
        const char *options; /* NULL: refused */
    } cases[] = {{0, " rotary_factors=1.25,2,3 "},
                 {5, " rotary_factors=1.25,2,3 "},
                 {7, " rotary_factors=1.5,4,8 "},
                 {65, NULL}};
    const char *folder = FOLDER("phi3-long");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const weft_huggingface_options options = {.context = cases[i].context};
        char text[WEFT_OPTIONS_TEXT];
        weft_error error = {0};
        weft_model_config config;
        weft_params *p = weft_params_new();
        const weft_status status = weft_huggingface_load_with(p, &config, folder, &options, &error);
        CU_ASSERT_EQUAL(status, cases[i].options ? WEFT_OK : WEFT_BAD_ARGUMENT);
        if (status == WEFT_OK) {
            const int64_t most = cases[i].context == 7 ? 64 : 5;
            CU_ASSERT_EQUAL(weft_model_traits_of(&config).max_positions, most);
            weft_model_options_text(&config, text, sizeof text);
            /* sqrt(1 + ln(64 / 5) / ln 5). */
            char *magnitude = strstr(text, "rotary_magnitude=");
            CU_ASSERT_PTR_NOT_NULL_FATAL(magnitude);
            CU_ASSERT_TRUE(fabs(strtod(magnitude + 17, NULL) - 1.6075009637447681) < 1e-12);
            CU_ASSERT_PTR_NOT_NULL(strstr(text, cases[i].options));
        }
        if (cases[i].context == 7) {
            check_outputs(folder, p, &config);
        } else if (status == WEFT_OK) {
            weft_graph *g = weft_graph_new();
            config.build.shape.target_len = 6;
            weft_model_build(g, &config);
            CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, "the length is above"));
            weft_graph_free(g);
        } else {
            CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "a context of 65 is too long"));
        }
        weft_params_free(p);
    }
}

/* ---- The way back ---- */

/* Whether each tensor of a file has the same bits in another one, as f32. */
static bool same_tensors(const weft_safetensors *a, const weft_safetensors *b)
{
    bool same = true;
    for (size_t i = 0; i < weft_safetensors_count(a); i++) {
        const weft_file_tensor *s = weft_safetensors_at(a, i),
                               *t = weft_safetensors_find(b, s->name);
        if (strstr(s->name, "embed_positions") && strstr(s->name, "coder.") && !t) continue;
        if (!t || !weft_shape_equal(s->shape, t->shape)) {
            printf("\n    %s is missing, or of another shape\n", s->name);
            same = false;
            continue;
        }
        size_t bytes = weft_tensor_bytes(s->dtype, s->shape);
        char *x = malloc(bytes), *y = malloc(bytes);
        same = same && x && y && weft_safetensors_read(a, s, x, NULL) == WEFT_OK &&
               weft_safetensors_read(b, t, y, NULL) == WEFT_OK && !memcmp(x, y, bytes);
        free(x);
        free(y);
    }
    return same;
}

static void check_files(const char *folder)
{
    char path[600], written[256];
    size_t files = 0;
    weft_safetensors *b =
        weft_safetensors_open(hf_scratch_path("model.safetensors", written), NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(b);
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof path,
                 i ? "%s/model-%05d-of-00004.safetensors" : "%s/model.safetensors", folder, i);
        weft_safetensors *a = weft_safetensors_open(path, NULL);
        if (!a) continue;
        files++;
        CU_ASSERT_TRUE(same_tensors(a, b));
        weft_safetensors_close(a);
    }
    CU_ASSERT_TRUE(files == 1 || files == 4);
    weft_safetensors_close(b);
}

/* Writes each model with the configuration that it came with, and without. */
static void test_back(void)
{
    for (size_t i = 0; i < 2 * N_NAMES; i++) {
        char folder[512];
        weft_error error = {0};
        weft_model_config config, again;
        hf_golden_folder(names[i / 2], folder);
        weft_params *p = hf_load_good(folder, &config);
        if (i % 2) weft_params_set_meta(p, WEFT_HUGGINGFACE_CONFIG, "", NULL);
        /* Mistral has all options of Phi 3 as well, but other tensors. */
        const char *as = !strcmp(names[i / 2], "phi3") ? "Phi3ForCausalLM" : NULL;
        weft_status status = weft_huggingface_save(p, &config, hf_scratch, as, &error);
        if (status != WEFT_OK) printf("\n    %s: %s: %s\n", folder, error.where, error.message);
        CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
        check_files(folder);
        weft_params *q = hf_load_good(hf_scratch, &again);
        CU_ASSERT_PTR_EQUAL(config.model, again.model);
        hf_check_equal(p, q);
        check_outputs(folder, q, &again);
        weft_params_free(q);
        weft_params_free(p);
    }
}

/* The store of a folder, and that of the same files in memory, metadata included. */
static void test_from_memory(void)
{
    for (size_t i = 0; i < N_NAMES; i++) {
        char folder[512];
        in_memory m;
        weft_error error = {0};
        weft_model_config config, again;
        hf_golden_folder(names[i], folder);
        weft_params *p = hf_load_good(folder, &config), *q = weft_params_new();
        read_folder(folder, &m);
        CU_ASSERT_EQUAL_FATAL(
            weft_huggingface_load_from_memory(q, &again, m.config, m.files, m.n, &error), WEFT_OK);
        free_memory(&m);
        CU_ASSERT_PTR_EQUAL(config.model, again.model);
        hf_check_equal(p, q);
        CU_ASSERT_STRING_EQUAL(weft_params_meta(p, "model_options"),
                               weft_params_meta(q, "model_options"));
        CU_ASSERT_STRING_EQUAL(weft_params_meta(p, WEFT_HUGGINGFACE_CONFIG),
                               weft_params_meta(q, WEFT_HUGGINGFACE_CONFIG));
        weft_params_free(p);
        weft_params_free(q);
    }
}

/* GGUF files of the same models (golden/make_gguf_models.py). Those of Gemma have 1 + gamma. */
static void test_gguf(void)
{
    static const char *const files[] = {"gpt2", "qwen3", "phi3", "gemma3"};
    const weft_gguf_options f32 = {.widen = true};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char folder[512], path[512];
        weft_error error = {0};
        weft_model_config config, theirs;
        hf_golden_folder(files[i], folder);
        snprintf(path, sizeof path, GOLDEN("gguf") "/%s.gguf", files[i]);
        weft_gguf *file = weft_gguf_open(path, &error);
        weft_params *p = hf_load_good(folder, &theirs), *q = weft_params_new();
        const weft_status status = weft_gguf_load(file, &f32, q, &config, &error);
        if (status != WEFT_OK) printf("\n    %s: %s\n", path, error.message);
        CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
        CU_ASSERT_PTR_EQUAL(config.model, theirs.model);
        if (strcmp(files[i], "gemma3") != 0) hf_check_equal(p, q);
        check_outputs(folder, q, &config);
        weft_gguf_close(file);
        weft_params_free(p);
        weft_params_free(q);
    }
}

static void refuse_memory(const in_memory *m, weft_status status, const char *where,
                          const char *message)
{
    weft_error error = {0};
    weft_model_config config;
    weft_params *p = weft_params_new();
    CU_ASSERT_EQUAL(
        weft_huggingface_load_from_memory(p, &config, m->config, m->files, m->n, &error), status);
    CU_ASSERT_STRING_EQUAL(error.where, where);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, message));
    CU_ASSERT_PTR_NULL(strchr(error.message, '\n'));
    weft_params_free(p);
}

static void test_damaged_memory(void)
{
    char folder[512];
    in_memory m;
    hf_golden_folder("gpt2", folder);
    read_folder(folder, &m);
    in_memory changed = m;
    for (size_t n = m.config.bytes - 2; n < m.config.bytes; n--) {
        changed.config.bytes = n;
        refuse_memory(&changed, WEFT_BAD_FILE, "config", "is not a JSON object, near byte");
    }
    changed.config = (weft_memory_file){.name = "config"};
    refuse_memory(&changed, WEFT_BAD_ARGUMENT, "config", "the data are NULL");
    changed = m;
    changed.files[0].bytes--;
    refuse_memory(&changed, WEFT_BAD_FILE, "tensors", "its data lie outside the file");
    changed.files[0].bytes = 7;
    refuse_memory(&changed, WEFT_BAD_FILE, "tensors", "is too short for a safetensors file");
    changed.n = 0;
    refuse_memory(&changed, WEFT_BAD_ARGUMENT, "convert", "files of tensors");
    changed.n = 1025;
    refuse_memory(&changed, WEFT_TOO_LARGE, "tensors", "has more than 1024 files");
    free_memory(&m);
}

#define GEMMA                                                                                      \
    "llama output_bias=none norm=both gamma_plus_one=1 scaled_embeddings=1 activation=gelu-tanh"

/* A model that no one brought: the first architecture that has all its options, or none. */
static void test_own_models(void)
{
    static const struct {
        const char *model, *architecture, *message;
    } cases[] = {
        {"gpt", NULL, NULL},
        {"gpt activation=relu position_offset=2", NULL, NULL},
        {"gpt", "LlamaForCausalLM", "cannot be written as LlamaForCausalLM, which is a llama"},
        {"gpt", "Nobody", "unsupported architecture"},
        {"gpt qkv_bias=0", NULL, "has qkv_bias=0, but GPT2LMHeadModel has 1"},
        {"llama", NULL, "has output_bias=always, but LlamaForCausalLM has none"},
        {"llama output_bias=none", NULL, NULL},
        {"llama output_bias=none", "MistralForCausalLM", NULL},
        {"llama output_bias=none window=3", NULL, NULL},
        {"llama output_bias=none window=3", "LlamaForCausalLM",
         "has window=3, but LlamaForCausalLM has 0"},
        {"gpt window=2", NULL, "has window=2, but"},
        {"llama output_bias=none head_dim=6 rotary_scaling=yarn rotary_factor=2", NULL, NULL},
        {"llama output_bias=none head_dim=8 rotary_dim=4 rotary_scaling=llama3", NULL, NULL},
        {"llama output_bias=none norm_qk=1 rotary_scaling=linear rotary_factor=3", NULL, NULL},
        {"llama output_bias=none rotary_scaling=longrope rotary_factors=1.5,2", NULL, NULL},
        {"llama output_bias=none rotary_scaling=longrope rotary_factors=1.5,2 rotary_magnitude=1.2",
         "Phi3ForCausalLM", NULL},
        {GEMMA " window=2 global_every=2 norm_qk=1 local_rotary_base=100", NULL, NULL},
        {GEMMA " window=2 global_every=3 score_cap=5 logit_cap=4", NULL, NULL},
        {"llama output_bias=none score_cap=2", NULL, "has score_cap=2, but LlamaForCausalLM has 0"},
        {"bert output_bias=always", NULL, NULL},
        {"bert output_bias=always token_types=2 pooler=1", NULL, NULL},
        {"transformer", NULL, "has "},
        {"lstm", NULL, "cannot be converted: no architecture of transformers has all its options"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char copy[256], *rest = NULL;
        const char *words[20] = {"vocab=11", "d_model=8", "heads=2", "d_ff=6", "layers=1"};
        size_t n = 5;
        weft_model_config config, again;
        weft_error error = {0};
        snprintf(copy, sizeof copy, "%s", cases[i].model);
        const weft_model *model = weft_model_find(strtok_r(copy, " ", &rest));
        for (char *w; (w = strtok_r(NULL, " ", &rest));) words[n++] = w;
        if (model && (!strncmp(model->name, "transformer", 11) || !strcmp(model->name, "lstm")))
            n = 1;
        CU_ASSERT_EQUAL_FATAL(weft_model_parse(model, words, n, &config, &error), WEFT_OK);
        if (model == weft_model_find("llama")) weft_model_set_value(&config, 3, 1); /* kv_heads */
        weft_graph *g = weft_graph_new();
        weft_params *p = weft_params_new();
        weft_model_build(g, &config);
        CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
        CU_ASSERT_EQUAL(weft_params_init(p, g, 1, &error), WEFT_OK);
        weft_graph_free(g);
        weft_status status =
            weft_huggingface_save(p, &config, hf_scratch, cases[i].architecture, &error);
        bool good = cases[i].message ? status != WEFT_OK && strstr(error.message, cases[i].message)
                                     : status == WEFT_OK;
        if (!good) printf("\n    %s: %s: %s\n", cases[i].model, error.where, error.message);
        CU_ASSERT_TRUE(good);
        if (status == WEFT_OK) {
            weft_params *q = hf_load_good(hf_scratch, &again);
            hf_check_equal(p, q);
            weft_params_free(q);
        }
        weft_params_free(p);
    }
}

/* ---- Memory ---- */

static weft_status load_and_save(const char *name)
{
    char folder[512];
    weft_error error = {0};
    weft_model_config config;
    hf_golden_folder(name, folder);
    weft_params *p = weft_params_new();
    weft_status status = p ? weft_huggingface_load(p, &config, folder, &error) : WEFT_NO_MEMORY;
    if (status == WEFT_OK) status = weft_huggingface_save(p, &config, hf_scratch, NULL, &error);
    weft_params_free(p);
    return status;
}

static weft_status convert_gpt2(const char *path)
{
    (void)path;
    return load_and_save("gpt2");
}

static weft_status convert_llama(const char *path)
{
    (void)path;
    return load_and_save("llama");
}

static in_memory gpt2;

static weft_status load_from_memory(const char *path)
{
    (void)path;
    weft_error error = {0};
    weft_model_config config;
    weft_params *p = weft_params_new();
    const weft_status status =
        p ? weft_huggingface_load_from_memory(p, &config, gpt2.config, gpt2.files, gpt2.n, &error)
          : WEFT_NO_MEMORY;
    weft_params_free(p);
    return status;
}

static void test_memory(void)
{
    char link[256], folder[512];
    unlink(hf_scratch_path("model.safetensors", link));
    hf_golden_folder("gpt2", folder);
    read_folder(folder, &gpt2);
    test_fail_all(load_from_memory);
    free_memory(&gpt2);
    test_fail_all(convert_gpt2);
    test_fail_all(convert_llama);
}

/* ---- Memory that runs out in cJSON ---- */

static long allocations, fails_at, alive;

static void *failing_malloc(size_t bytes)
{
    if (++allocations == fails_at) {
        errno = ENOMEM;
        return NULL;
    }
    void *memory = malloc(bytes);
    if (memory) alive++;
    return memory;
}

static void counting_free(void *memory)
{
    if (memory) alive--;
    free(memory);
}

/* A failed allocation in cJSON is not reported as malformed JSON. */
static void test_json_memory(void)
{
    static const char text[] = "{\"a\": [1, 2, {\"b\": \"c\"}], \"d\": null}";
    cJSON *json = NULL;
    cJSON_InitHooks(&(cJSON_Hooks){failing_malloc, counting_free});
    for (fails_at = 1; !json && fails_at < 100; fails_at++) {
        json_failure why = {0};
        allocations = 0;
        json = weft__json_parse(text, sizeof text - 1, &why);
        if (json) break;
        CU_ASSERT_TRUE(why.no_memory);
        CU_ASSERT_EQUAL(alive, 0);
    }
    CU_ASSERT(fails_at > 10 && json);
    cJSON_Delete(json);
    CU_ASSERT_EQUAL(alive, 0);
    cJSON_InitHooks(NULL);
}

void huggingface_tests(void)
{
    CU_pSuite suite = CU_add_suite("huggingface", hf_make_scratch, hf_remove_scratch);
    CU_add_test(suite, "memory that runs out in cJSON", test_json_memory);
    CU_add_test(suite, "outputs as transformers has them", test_outputs);
    CU_add_test(suite, "factors of LongRoPE for a context", test_longrope);
    CU_add_test(suite, "back, bit for bit", test_back);
    CU_add_test(suite, "GGUF files of the same models", test_gguf);
    CU_add_test(suite, "from memory", test_from_memory);
    CU_add_test(suite, "damaged files in memory", test_damaged_memory);
    CU_add_test(suite, "models of weft's own", test_own_models);
    CU_add_test(suite, "every allocation fails once", test_memory);
}
