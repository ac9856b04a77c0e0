/* Reads bytes as a file of a kind, and uses what was read. */
#include "kinds.h"

#include "training/recipe.h"

#include "json/tree.h"

#include <weft/gguf.h>
#include <weft/huggingface.h>
#include <weft/lora.h>
#include <weft/numpy.h>
#include <weft/onnx.h>
#include <weft/weft.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Files ---- */

static bool write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file) return false;
    const bool good = bytes == 0 || fwrite(data, 1, bytes, file) == bytes;
    return fclose(file) == 0 && good;
}

const char *fuzz_put(const char *folder, const char *name, const void *data, size_t bytes,
                     char path[256])
{
    snprintf(path, 256, "%s/%s", folder, name);
    if (!write_file(path, data, bytes)) perror(path), abort();
    return path;
}

int fuzz_make_folder(char *folder, size_t capacity)
{
    static const char data[64] = "the external data of a tensor of an ONNX model";
    char path[256];
    const char *root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    if ((size_t)snprintf(folder, capacity, "%s/weft-fuzz-XXXXXX", root) >= capacity) return 1;
    if (!mkdtemp(folder)) return 1;
    fuzz_put(folder, "external", data, sizeof data, path);
    return 0;
}

void fuzz_remove_folder(const char *folder)
{
    char path[512];
    DIR *entries = opendir(folder);
    for (const struct dirent *e; entries && (e = readdir(entries));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        unlink(path);
    }
    if (entries) closedir(entries);
    rmdir(folder);
}

/* ---- What all readers promise ---- */

const char *fuzz_check_error(const weft_error *error, bool good)
{
    if (good != (error->status == WEFT_OK)) return "the status contradicts the result";
    if (good) return NULL;
    if (!error->message[0] || !error->where[0]) return "a failure without a message";
    return strpbrk(error->message, "\n\r\x1b") ? "a message of several lines" : NULL;
}

static const char *same_tensors(const weft_params *a, const weft_params *b)
{
    if (weft_params_count(a) != weft_params_count(b)) return "other tensors are read again";
    for (size_t i = 0; i < weft_params_count(a); i++) {
        weft_tensor x = {.data = NULL}, y = {.data = NULL};
        const char *name = weft_params_name(a, i);
        if (!weft_params_find(a, name, &x) || !weft_params_find(b, name, &y) ||
            x.dtype != y.dtype || !weft_shape_equal(x.shape, y.shape) ||
            memcmp(x.data, y.data, weft_tensor_bytes(x.dtype, x.shape)) != 0)
            return "a tensor is read again as another";
    }
    return NULL;
}

/* ---- Stores ---- */

typedef weft_status load_store(weft_params *params, const char *path, weft_error *error);
typedef weft_status save_store(const weft_params *params, const char *path, weft_error *error);

static weft_status load_npy(weft_params *params, const char *path, weft_error *error)
{
    return weft_npy_load(params, "x", path, error);
}

static weft_status save_npy(const weft_params *params, const char *path, weft_error *error)
{
    weft_tensor x;
    if (!weft_params_find(params, "x", &x)) return WEFT_INTERNAL;
    return weft_npy_save(&x, path, error);
}

static weft_status save_npz(const weft_params *params, const char *path, weft_error *error)
{
    return weft_npz_save(params, path, NULL, error);
}

static weft_status save_safetensors(const weft_params *params, const char *path, weft_error *error)
{
    return weft_params_save(params, path, NULL, error);
}

static const char *save_and_load(const weft_params *read, const char *folder, load_store *load,
                                 save_store *save)
{
    char path[256];
    weft_error error = WEFT_NO_ERROR;
    snprintf(path, sizeof path, "%s/again", folder);
    if (save(read, path, &error) != WEFT_OK) return "what was read cannot be saved";
    weft_params *again = weft_params_new();
    const char *broken = again && load(again, path, &error) == WEFT_OK
                             ? same_tensors(read, again)
                             : "what was saved cannot be read";
    weft_params_free(again);
    return broken;
}

static const char *check_store(const char *folder, const uint8_t *data, size_t bytes,
                               load_store *load, save_store *save)
{
    char path[256];
    weft_error error = WEFT_NO_ERROR;
    weft_params *read = weft_params_new();
    if (!read) return NULL;
    const bool good = load(read, fuzz_put(folder, "x", data, bytes, path), &error) == WEFT_OK;
    const char *broken = fuzz_check_error(&error, good);
    if (!broken && !good && weft_params_count(read) > 0) broken = "a failure changes the store";
    if (!broken && good) broken = save_and_load(read, folder, load, save);
    weft_params_free(read);
    return broken;
}

static const char *check_npy(const char *folder, const uint8_t *data, size_t bytes)
{
    return check_store(folder, data, bytes, load_npy, save_npy);
}

static const char *check_npz(const char *folder, const uint8_t *data, size_t bytes)
{
    return check_store(folder, data, bytes, weft_npz_load, save_npz);
}

static const char *same_error(const weft_error *a, const weft_error *b)
{
    return a->status == b->status && !strcmp(a->message, b->message) && !strcmp(a->where, b->where)
               ? NULL
               : "the file and its bytes in memory have different errors";
}

/* A file and its bytes in memory become the same store, or fail alike. */
static const char *check_safetensors(const char *folder, const uint8_t *data, size_t bytes)
{
    const char *broken = check_store(folder, data, bytes, weft_params_load, save_safetensors);
    char path[256];
    weft_error error = WEFT_NO_ERROR, memory_error = WEFT_NO_ERROR;
    snprintf(path, sizeof path, "%s/x", folder);
    const weft_memory_file from = {data, bytes, path};
    weft_params *file = weft_params_new(), *memory = weft_params_new();
    if (!broken && data && file && memory) {
        weft_params_load(file, path, &error);
        weft_params_load_from_memory(memory, from, NULL, NULL, &memory_error);
        broken = same_error(&error, &memory_error);
        if (!broken) broken = same_tensors(file, memory);
    }
    weft_params_free(file);
    weft_params_free(memory);
    return broken;
}

/* ---- GGUF ---- */

/* All values, as deep as they go. */
static const char *check_value(const weft_gguf_value *value)
{
    weft_gguf_value item;
    const char *broken = NULL;
    uint8_t sum = 0;
    for (size_t i = 0; i < value->text_bytes; i++) sum ^= (uint8_t)value->text[i];
    (void)*(volatile uint8_t *)&sum;
    for (size_t i = 0; i < value->n_items && !broken; i++)
        broken =
            weft_gguf_value_item(value, i, &item) ? check_value(&item) : "an item cannot be read";
    return broken;
}

/* Tensors of up to MAX_NUMBERS are read. */
static const char *check_tensor(const weft_gguf *file, const weft_gguf_tensor *t)
{
    enum { MAX_NUMBERS = 1 << 20 };
    const int64_t n = weft_shape_numel(t->shape);
    weft_error error;
    if (n < 0 || n > MAX_NUMBERS) return n < 0 ? "a tensor has a shape that overflows" : NULL;
    float *data = malloc(sizeof(float) * ((size_t)n + 1));
    if (!data) abort();
    const bool good = weft_gguf_read(file, t, data, &error) == WEFT_OK;
    const char *broken = good != t->readable ? "a tensor is not as readable as it says"
                                             : fuzz_check_error(&error, good);
    free(data);
    return broken;
}

static const char *check_gguf(const char *folder, const uint8_t *data, size_t bytes)
{
    char path[256];
    weft_error error = WEFT_NO_ERROR, memory_error = WEFT_NO_ERROR;
    weft_model_config config;
    weft_gguf *file = weft_gguf_open(fuzz_put(folder, "x.gguf", data, bytes, path), &error);
    const char *broken = fuzz_check_error(&error, file != NULL);
    if (data && !broken) {
        weft_gguf *memory =
            weft_gguf_from_memory((weft_memory_file){data, bytes, path}, &memory_error);
        broken = same_error(&error, &memory_error);
        weft_gguf_close(memory);
    }
    for (size_t i = 0; i < weft_gguf_meta_count(file) && !broken; i++)
        broken = check_value(weft_gguf_meta_at(file, i));
    for (size_t i = 0; i < weft_gguf_count(file) && !broken; i++)
        broken = check_tensor(file, weft_gguf_at(file, i));
    if (file && !broken) {
        char *json = weft_gguf_tokenizer_json(file, &error);
        broken = fuzz_check_error(&error, json != NULL);
        free(json);
    }
    weft_params *params = weft_params_new();
    if (file && params && !broken) {
        const bool good = weft_gguf_load(file, NULL, params, &config, &error) == WEFT_OK;
        broken = fuzz_check_error(&error, good);
    }
    weft_params_free(params);
    weft_gguf_close(file);
    return broken;
}

/* ---- Adapters of PEFT ---- */

/* The adapters of one module, next to a configuration that is replaced. */
static bool write_adapters(const weft_params *base, const weft_model_config *config,
                           const char *folder)
{
    const weft_lora lora = {.rank = 2, .alpha = 2};
    weft_params *adapters = weft_params_new();
    const bool good =
        adapters && weft_lora_note(&lora, adapters, NULL) == WEFT_OK &&
        weft_params_add(adapters, "layer.0.attn.q.weight.lora_a", WEFT_F32, WEFT_SHAPE(8, 2), NULL,
                        NULL) == WEFT_OK &&
        weft_params_add(adapters, "layer.0.attn.q.weight.lora_b", WEFT_F32, WEFT_SHAPE(2, 8), NULL,
                        NULL) == WEFT_OK &&
        weft_huggingface_save_adapters(adapters, base, config, folder, NULL, NULL) == WEFT_OK;
    weft_params_free(adapters);
    return good;
}

/* The bytes are adapter_config.json. */
static const char *check_peft(const char *folder, const uint8_t *data, size_t bytes)
{
    static const char *const options[] = {"vocab=8", "d_model=8", "heads=2",         "kv_heads=2",
                                          "d_ff=8",  "layers=1",  "output_bias=none"};
    char path[256];
    weft_error error = WEFT_NO_ERROR;
    weft_model_config config;
    weft_params *base = weft_params_new(), *read = weft_params_new();
    if (!base || !read ||
        weft_model_parse(weft_model_find("llama"), options, 7, &config, NULL) != WEFT_OK ||
        !write_adapters(base, &config, folder))
        abort();
    fuzz_put(folder, "adapter_config.json", data, bytes, path);
    const bool good =
        weft_huggingface_load_adapters(read, base, &config, folder, NULL, &error) == WEFT_OK;
    const char *broken = fuzz_check_error(&error, good);
    if (good && !broken &&
        weft_huggingface_save_adapters(read, base, &config, folder, NULL, &error) != WEFT_OK)
        broken = "what was read cannot be saved";
    weft_params_free(base);
    weft_params_free(read);
    return broken;
}

/* ---- Recipes ---- */

/* The text of a recipe that was read, which the caller frees. */
static char *recipe_text(const char *path, weft_error *error)
{
    recipe r;
    char *text = NULL;
    if (!recipe_init(&r)) return NULL;
    if (recipe_load(&r, path, NULL, error)) {
        cJSON *json = recipe_json(&r, true);
        text = weft__json_print(json, true);
        cJSON_Delete(json);
        if (!text) weft_error_set(error, WEFT_BAD_FILE, "recipe", "cannot be written");
    }
    recipe_free(&r);
    return text;
}

/* A recipe that was read and written is read again as the same, and what depends on the model's
 * options alone is one error. */
static const char *check_recipe(const char *folder, const uint8_t *data, size_t bytes)
{
    char path[256];
    weft_error error = WEFT_NO_ERROR, again_error = WEFT_NO_ERROR;
    char *text = recipe_text(fuzz_put(folder, "recipe.json", data, bytes, path), &error);
    const char *broken = fuzz_check_error(&error, text != NULL);
    if (text && !broken) {
        char *again =
            recipe_text(fuzz_put(folder, "again.json", text, strlen(text), path), &again_error);
        if (!again || strcmp(text, again) != 0) broken = "a recipe is read again as another";
        cJSON_free(again);
    }
    cJSON_free(text);
    return broken;
}

/* ---- ONNX ---- */

/* A model is run if it takes no more than this. Counted work leaves out products with padding, of
 * which a transposed convolution with a large kernel may have a thousand times as many. */
#define MAX_ARENA ((size_t)16 << 20)
#define MAX_WORK  2e5

static const char *feed_zeros(weft_session *s, const weft_value *inputs,
                              const weft_onnx_value *described, size_t n)
{
    static const char zeros[65536];
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = weft_tensor_bytes(described[i].dtype, described[i].shape);
        if (bytes > sizeof zeros) return NULL;
        if (weft_session_feed(s, inputs[i], zeros, bytes, NULL) != WEFT_OK)
            return "an input cannot be fed";
    }
    weft_error error;
    const bool good = weft_session_run(s, &error) == WEFT_OK;
    return fuzz_check_error(&error, good);
}

/* Plans a model's outputs and runs a small plan. */
static const char *plan_and_run(const weft_onnx *m, weft_graph *g, const weft_value *inputs,
                                const weft_value *outputs)
{
    size_t n_inputs, n_outputs;
    weft_error error = WEFT_NO_ERROR;
    const weft_onnx_value *described = weft_onnx_inputs(m, &n_inputs);
    weft_onnx_outputs(m, &n_outputs);
    if (!n_outputs) return NULL;
    const weft_plan_options verified = {.verify = true};
    weft_plan *plan = weft_plan_new(g, outputs, n_outputs, &verified, &error);
    const char *broken = fuzz_check_error(&error, plan != NULL);
    const weft_plan_stats stats = plan ? weft_plan_stats_of(plan) : (weft_plan_stats){0};
    if (plan && stats.arena_bytes <= MAX_ARENA && stats.state_bytes <= MAX_ARENA &&
        stats.flops + stats.bytes <= MAX_WORK) {
        const weft_session_options one = {.threads = 1};
        weft_params *store = weft_params_new();
        weft_session *s = NULL;
        if (weft_onnx_copy_weights(m, store, &error) == WEFT_OK)
            s = weft_session_new(plan, store, &one, &error);
        broken = fuzz_check_error(&error, s != NULL);
        if (s) broken = feed_zeros(s, inputs, described, n_inputs);
        weft_session_free(s);
        weft_params_free(store);
    }
    weft_plan_free(plan);
    return broken;
}

/* A file and its bytes in memory, where external data cannot be, load alike. */
static const char *check_onnx_memory(const char *path, const uint8_t *data, size_t bytes,
                                     const weft_error *file_error)
{
    weft_error error = WEFT_NO_ERROR;
    const weft_memory_file from = {data, bytes, path};
    weft_onnx *m = data ? weft_onnx_load_from_memory(from, NULL, &error) : NULL;
    const bool external = strstr(error.message, "a model in memory cannot have external data");
    const char *broken = fuzz_check_error(&error, m != NULL);
    weft_onnx_free(m);
    if (!data || external) return NULL;
    return broken ? broken : same_error(&error, file_error);
}

static const char *check_onnx(const char *folder, const uint8_t *data, size_t bytes)
{
    char path[256];
    weft_error error = WEFT_NO_ERROR;
    weft_onnx *m = weft_onnx_load(fuzz_put(folder, "model.onnx", data, bytes, path), NULL, &error);
    if (error.status == WEFT_NO_BACKEND) return NULL; /* built without protobuf-c */
    const char *broken = fuzz_check_error(&error, m != NULL);
    if (!broken) broken = check_onnx_memory(path, data, bytes, &error);
    if (m && !broken) {
        size_t n_inputs, n_outputs;
        weft_onnx_inputs(m, &n_inputs);
        weft_onnx_outputs(m, &n_outputs);
        weft_value *values = calloc(n_inputs + n_outputs + 1, sizeof *values);
        weft_graph *g = weft_graph_new();
        if (!values || !g) abort();
        broken = weft_onnx_build(g, m, 0, values, values + n_inputs) == WEFT_OK
                     ? plan_and_run(m, g, values, values + n_inputs)
                     : "a model that was loaded cannot be built";
        weft_graph_free(g);
        free(values);
    }
    weft_onnx_free(m);
    return broken;
}

/* ---- All kinds ---- */

const fuzz_kind *fuzz_kind_find(const char *name)
{
    static const fuzz_kind kinds[] = {{"gguf", check_gguf},
                                      {"onnx", check_onnx},
                                      {"npy", check_npy},
                                      {"npz", check_npz},
                                      {"safetensors", check_safetensors},
                                      {"peft", check_peft},
#ifdef WEFT_HAVE_TOKENIZERS
                                      {"chat", fuzz_check_chat},
                                      {"schema", fuzz_check_schema},
                                      {"tokenizer", fuzz_check_tokenizer},
#endif
                                      {"recipe", check_recipe}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, name)) return &kinds[i];
    return NULL;
}
