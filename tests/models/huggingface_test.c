/* Models of transformers against what transformers computed (golden/make_huggingface.py), the way
 * back, and folders that must be refused. */
#include "golden.h"

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

#define FOLDER(name) GOLDEN("huggingface/" name)
/* Norm-wise: 170 roundings of f32, of 2^-24 each. The largest error seen is below 2e-6. */
#define LIMIT 1e-5

static const char *const names[] = {"gpt2",  "gpt2-untied",  "llama",  "llama-tied",
                                    "qwen3", "gemma2",       "gemma3", "phi3",
                                    "bert",  "bert-encoder", "marian", "bart"};
#define N_NAMES (sizeof names / sizeof *names)

static char scratch[64];

static int make_scratch(void)
{
    snprintf(scratch, sizeof scratch, "/tmp/weft-huggingface-XXXXXX");
    return mkdtemp(scratch) == NULL;
}

static const char *scratch_path(const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", scratch, name);
    return path;
}

static int remove_scratch(void)
{
    static const char *const files[] = {"config.json", "model.safetensors",
                                        "model.safetensors.index.json", "a.safetensors"};
    char path[256];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) unlink(scratch_path(files[i], path));
    return rmdir(scratch);
}

static void golden_folder(const char *name, char path[512])
{
    snprintf(path, 512, GOLDEN("huggingface") "/%s", name);
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    char *text = calloc(1, 1 << 16);
    CU_ASSERT_TRUE_FATAL(text && fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

static void write_bytes(const char *name, const void *data, size_t n)
{
    char path[256];
    FILE *file = fopen(scratch_path(name, path), "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(fwrite(data, 1, n, file), n);
    fclose(file);
}

static weft_params *load_good(const char *folder, weft_model_config *config)
{
    weft_error error = {0};
    weft_params *p = weft_params_new();
    weft_status status = weft_huggingface_load(p, config, folder, &error);
    if (status != WEFT_OK) printf("\n    %s: %s: %s\n", folder, error.where, error.message);
    CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
    return p;
}

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
        golden_folder(names[i], folder);
        int failures = (int)CU_get_number_of_failures();
        weft_params *p = load_good(folder, &config);
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
    weft_safetensors *b = weft_safetensors_open(scratch_path("model.safetensors", written), NULL);
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

static void check_equal(const weft_params *a, const weft_params *b)
{
    CU_ASSERT_EQUAL(weft_params_count(a), weft_params_count(b));
    for (size_t i = 0; i < weft_params_count(a); i++) {
        weft_tensor s, t;
        const char *name = weft_params_name(a, i);
        weft_params_find(a, name, &s);
        CU_ASSERT_TRUE_FATAL(weft_params_find(b, name, &t));
        CU_ASSERT_TRUE_FATAL(weft_shape_equal(s.shape, t.shape));
        CU_ASSERT_TRUE(test_same_tensors("s", &s, &t));
    }
}

/* Writes each model with the configuration that it came with, and without. */
static void test_back(void)
{
    for (size_t i = 0; i < 2 * N_NAMES; i++) {
        char folder[512];
        weft_error error = {0};
        weft_model_config config, again;
        golden_folder(names[i / 2], folder);
        weft_params *p = load_good(folder, &config);
        if (i % 2) weft_params_set_meta(p, WEFT_HUGGINGFACE_CONFIG, "", NULL);
        /* Mistral has all options of Phi 3 as well, but other tensors. */
        const char *as = !strcmp(names[i / 2], "phi3") ? "Phi3ForCausalLM" : NULL;
        weft_status status = weft_huggingface_save(p, &config, scratch, as, &error);
        if (status != WEFT_OK) printf("\n    %s: %s: %s\n", folder, error.where, error.message);
        CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
        check_files(folder);
        weft_params *q = load_good(scratch, &again);
        CU_ASSERT_PTR_EQUAL(config.model, again.model);
        check_equal(p, q);
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
        golden_folder(names[i], folder);
        weft_params *p = load_good(folder, &config), *q = weft_params_new();
        read_folder(folder, &m);
        CU_ASSERT_EQUAL_FATAL(
            weft_huggingface_load_from_memory(q, &again, m.config, m.files, m.n, &error), WEFT_OK);
        free_memory(&m);
        CU_ASSERT_PTR_EQUAL(config.model, again.model);
        check_equal(p, q);
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
        golden_folder(files[i], folder);
        snprintf(path, sizeof path, GOLDEN("gguf") "/%s.gguf", files[i]);
        weft_gguf *file = weft_gguf_open(path, &error);
        weft_params *p = load_good(folder, &theirs), *q = weft_params_new();
        const weft_status status = weft_gguf_load(file, &f32, q, &config, &error);
        if (status != WEFT_OK) printf("\n    %s: %s\n", path, error.message);
        CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
        CU_ASSERT_PTR_EQUAL(config.model, theirs.model);
        if (strcmp(files[i], "gemma3") != 0) check_equal(p, q);
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
    golden_folder("gpt2", folder);
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
            weft_huggingface_save(p, &config, scratch, cases[i].architecture, &error);
        bool good = cases[i].message ? status != WEFT_OK && strstr(error.message, cases[i].message)
                                     : status == WEFT_OK;
        if (!good) printf("\n    %s: %s: %s\n", cases[i].model, error.where, error.message);
        CU_ASSERT_TRUE(good);
        if (status == WEFT_OK) {
            weft_params *q = load_good(scratch, &again);
            check_equal(p, q);
            weft_params_free(q);
        }
        weft_params_free(p);
    }
}

/* ---- Folders that are refused ---- */

/* Copies a folder of one file to the scratch folder, with `was` in its configuration replaced. */
static void copy_folder(const char *name, const char *was, const char *is)
{
    char folder[512], path[600], link[256];
    golden_folder(name, folder);
    snprintf(path, sizeof path, "%s/config.json", folder);
    char *text = read_text(path), *at = strstr(text, was);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    char *changed = calloc(1, strlen(text) + strlen(is) + 1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(changed);
    memcpy(changed, text, (size_t)(at - text));
    strcat(changed, is);
    strcat(changed, at + strlen(was));
    write_bytes("config.json", changed, strlen(changed));
    free(changed);
    free(text);
    unlink(scratch_path("model.safetensors", link));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CU_ASSERT_EQUAL(symlink(path, link), 0);
}

static void refuse(weft_status status, const char *message)
{
    weft_error error = {0};
    weft_model_config config;
    weft_params *p = weft_params_new();
    CU_ASSERT_EQUAL(weft_huggingface_load(p, &config, scratch, &error), status);
    if (!strstr(error.message, message) || error.status != status)
        printf("\n    expected \"%s\" (%d): %s: %s (%d)\n", message, status, error.where,
               error.message, error.status);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, message));
    CU_ASSERT_PTR_NULL(strchr(error.message, '\n'));
    CU_ASSERT_EQUAL(weft_huggingface_load(p, &config, scratch, NULL),
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
        weft_params_free(load_good(scratch, &config));
    }
}

/* Every beginning of a configuration, and one with every byte changed. */
static void test_damaged_configurations(void)
{
    char folder[512], path[600];
    copy_folder("gpt2", "{", "{");
    golden_folder("gpt2", folder);
    snprintf(path, sizeof path, "%s/config.json", folder);
    char *text = read_text(path);
    const size_t n = strlen(text);
    for (size_t i = 0; i < 2 * n; i++) {
        weft_error error = {0};
        weft_model_config config;
        weft_params *p = weft_params_new();
        char *copy = strdup(text);
        CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
        if (i >= n) copy[i - n] = (char)(copy[i - n] ^ 5);
        write_bytes("config.json", copy, i < n ? i : n);
        weft_status status = weft_huggingface_load(p, &config, scratch, &error);
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
    unlink(scratch_path("model.safetensors", link));
    refuse(WEFT_NOT_FOUND, "has neither model.safetensors nor model.safetensors.index.json");
    golden_folder("gpt2", folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CU_ASSERT_EQUAL(symlink(path, scratch_path("a.safetensors", link)), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_bytes("model.safetensors.index.json", cases[i].index, strlen(cases[i].index));
        refuse(cases[i].status, cases[i].message);
    }
    unlink(scratch_path("model.safetensors.index.json", link));
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
    unlink(scratch_path("model.safetensors", path));
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
    weft_params *p = load_good(scratch, &config), *q = load_good(FOLDER("bert"), &again);
    check_equal(p, q);
    CU_ASSERT_STRING_EQUAL(weft_params_meta(p, WEFT_HUGGINGFACE_LEFT_OUT),
                           "cls.seq_relationship.bias");
    test_log_to(NULL);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(log.text, "the model does not use these tensors: cls.seq_relationship.bias\n"));
    weft_params_free(p);
    weft_params_free(q);
    write_old_bert("embeddings.position_ids");
    p = load_good(scratch, &config);
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
    unlink(scratch_path("model.safetensors", path));
    CU_ASSERT_EQUAL(weft_params_load(file, FOLDER("bart") "/model.safetensors", &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_save(file, path, &filter, &error), WEFT_OK);
    weft_params_free(file);
    weft_params *p = load_good(scratch, &config);
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
    write_bytes("a.safetensors.new", bytes, 8 + length + sizeof data);
    weft_safetensors *f = weft_safetensors_open(scratch_path("a.safetensors.new", path), &error);
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

/* ---- Memory ---- */

static weft_status load_and_save(const char *name)
{
    char folder[512];
    weft_error error = {0};
    weft_model_config config;
    golden_folder(name, folder);
    weft_params *p = weft_params_new();
    weft_status status = p ? weft_huggingface_load(p, &config, folder, &error) : WEFT_NO_MEMORY;
    if (status == WEFT_OK) status = weft_huggingface_save(p, &config, scratch, NULL, &error);
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
    unlink(scratch_path("model.safetensors", link));
    golden_folder("gpt2", folder);
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
    CU_pSuite suite = CU_add_suite("huggingface", make_scratch, remove_scratch);
    CU_add_test(suite, "memory that runs out in cJSON", test_json_memory);
    CU_add_test(suite, "outputs as transformers has them", test_outputs);
    CU_add_test(suite, "factors of LongRoPE for a context", test_longrope);
    CU_add_test(suite, "back, bit for bit", test_back);
    CU_add_test(suite, "GGUF files of the same models", test_gguf);
    CU_add_test(suite, "from memory", test_from_memory);
    CU_add_test(suite, "damaged files in memory", test_damaged_memory);
    CU_add_test(suite, "models of weft's own", test_own_models);
    CU_add_test(suite, "configurations that are refused", test_configurations);
    CU_add_test(suite, "keys that no result depends on", test_harmless_keys);
    CU_add_test(suite, "damaged configurations", test_damaged_configurations);
    CU_add_test(suite, "indices of several files", test_indices);
    CU_add_test(suite, "names of old files", test_names);
    CU_add_test(suite, "a bias that is missing", test_missing_bias);
    CU_add_test(suite, "dtypes of files", test_dtypes);
    CU_add_test(suite, "every allocation fails once", test_memory);
}
