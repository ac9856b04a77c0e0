/* Reads models of transformers, from folders or from memory, into parameter stores. Tensors are
 * found by name and read one at a time. O(bytes). */
#include "tables.h"

#include "base/file.h"
#include "base/log.h"
#include "base/platform.h"

#include <weft/safetensors.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096
#define MAX_JSON   (64 << 20) /* bytes of config.json, or of an index */
#define MAX_SHARDS 1024

typedef struct loader {
    const char *folder;    /* or the name of the first file of tensors in memory */
    char path[PATH_BYTES]; /* of config.json, or its name */
    char *text;            /* its contents */
    cJSON *json;
    const hf_architecture *a;
    weft_safetensors *files[MAX_SHARDS];
    char names[MAX_SHARDS][256];
    size_t n_files;
    weft_params *params;
    weft_model_config *config;
    int64_t context;
    weft_error *error;
} loader;

static weft_status no_memory(loader *l)
{
    return weft_error_set(l->error, WEFT_NO_MEMORY, l->folder, "no memory");
}

/* FOLDER/NAME; false if it is too long. */
static bool join(const loader *l, const char *name, char path[PATH_BYTES])
{
    const int n = snprintf(path, PATH_BYTES, "%s/%s", l->folder, name);
    return n > 0 && n < PATH_BYTES;
}

/* ---- JSON files ---- */

static const char *name_of(const weft_memory_file *file)
{
    return file->name ? file->name : "memory";
}

/* Reads a configuration in memory. */
static weft_status copy_config(loader *l, const weft_memory_file *config)
{
    snprintf(l->path, sizeof l->path, "%s", name_of(config));
    if (!config->data)
        return weft_error_set(l->error, WEFT_BAD_ARGUMENT, l->path, "the data are NULL");
    if (config->bytes > MAX_JSON)
        return weft_error_set(l->error, WEFT_BAD_FILE, l->path, "is not a file of at most %d bytes",
                              MAX_JSON);
    l->text = malloc(config->bytes + 1);
    if (!l->text) return no_memory(l);
    memcpy(l->text, config->data, config->bytes);
    l->text[config->bytes] = 0;
    return weft__hf_parse_object(l->text, config->bytes, l->path, &l->json, l->error);
}

/* ---- Files of tensors ---- */

static weft_status open_file(loader *l, const char *name)
{
    char path[PATH_BYTES];
    if (!join(l, name, path))
        return weft_error_set(l->error, WEFT_BAD_ARGUMENT, l->folder, "the path is too long");
    l->files[l->n_files] = weft_safetensors_open(path, l->error);
    if (!l->files[l->n_files]) return l->error->status;
    snprintf(l->names[l->n_files++], sizeof l->names[0], "%s", name);
    return WEFT_OK;
}

/* The open file of that name; opens it if need be. */
static weft_status shard_of(loader *l, const char *index, const char *name,
                            const weft_safetensors **file)
{
    size_t i = 0;
    if (!*name || weft__os_name(name) != name || !strcmp(name, "..") || !strcmp(name, ".") ||
        strlen(name) >= sizeof l->names[0])
        return weft_error_set(l->error, WEFT_BAD_FILE, index,
                              "weight_map: \"%.64s\" is not the name of a file in the folder",
                              name);
    while (i < l->n_files && strcmp(l->names[i], name) != 0) i++;
    if (i == MAX_SHARDS)
        return weft_error_set(l->error, WEFT_TOO_LARGE, index, "names more than %d files",
                              MAX_SHARDS);
    weft_status status = i == l->n_files ? open_file(l, name) : WEFT_OK;
    *file = status == WEFT_OK ? l->files[i] : NULL;
    return status;
}

/* Opens the files that an index names, and checks that each has its tensors. */
static weft_status open_shards(loader *l, const char *index)
{
    char *text = NULL;
    cJSON *json = NULL;
    weft_status status = weft__hf_read_object(index, MAX_JSON, &text, &json, l->error);
    const cJSON *item, *map = cJSON_GetObjectItemCaseSensitive(json, "weight_map");
    if (status == WEFT_OK && !cJSON_IsObject(map))
        status = weft_error_set(l->error, WEFT_BAD_FILE, index, "has no object weight_map");
    cJSON_ArrayForEach(item, map)
    {
        const weft_safetensors *file = NULL;
        const char *name = cJSON_GetStringValue(item);
        if (status != WEFT_OK) break;
        status = shard_of(l, index, name ? name : "", &file);
        if (status == WEFT_OK && !weft_safetensors_find(file, item->string))
            status = weft_error_set(l->error, WEFT_BAD_FILE, index, "%s is not in %s", item->string,
                                    name);
    }
    cJSON_Delete(json);
    free(text);
    return status;
}

static weft_status open_tensors(loader *l)
{
    char path[PATH_BYTES], index[PATH_BYTES];
    if (!join(l, "model.safetensors", path) || !join(l, "model.safetensors.index.json", index))
        return weft_error_set(l->error, WEFT_BAD_ARGUMENT, l->folder, "the path is too long");
    if (weft__file_exists(path)) return open_file(l, "model.safetensors");
    if (weft__file_exists(index)) return open_shards(l, index);
    return weft_error_set(l->error, WEFT_NOT_FOUND, l->folder,
                          "has neither model.safetensors nor model.safetensors.index.json; "
                          "save_pretrained of transformers writes them");
}

/* The same for files in memory. */
static weft_status open_memory(loader *l, const weft_memory_file *files, size_t n)
{
    if (n > MAX_SHARDS)
        return weft_error_set(l->error, WEFT_TOO_LARGE, l->folder, "has more than %d files",
                              MAX_SHARDS);
    for (size_t i = 0; i < n; i++) {
        l->files[l->n_files] = weft_safetensors_from_memory(files[i], l->error);
        if (!l->files[l->n_files]) return l->error->status;
        l->n_files++;
    }
    return WEFT_OK;
}

/* ---- Tensors ---- */

static const weft_file_tensor *find(const loader *l, const char *name,
                                    const weft_safetensors **file)
{
    const weft_file_tensor *t = NULL;
    for (size_t i = 0; i < l->n_files && !t; i++) {
        *file = l->files[i];
        t = weft_safetensors_find(*file, name);
    }
    return t;
}

/* Writes the name that old BERT files use for the weight or bias of a norm; false for other
 * tensors. */
static bool old_name(const char *name, char old[HF_NAME_BYTES])
{
    static const char *const ends[][2] = {{".LayerNorm.weight", ".LayerNorm.gamma"},
                                          {".LayerNorm.bias", ".LayerNorm.beta"}};
    for (size_t i = 0; i < 2; i++) {
        const size_t n = strlen(name), m = strlen(ends[i][0]);
        if (n < m || strcmp(name + n - m, ends[i][0]) != 0) continue;
        snprintf(old, HF_NAME_BYTES, "%.*s%s", (int)(n - m), name, ends[i][1]);
        return true;
    }
    return false;
}

/* Finds their tensor by any of its names. */
static const weft_file_tensor *find_any(const loader *l, const hf_name *name,
                                        const weft_safetensors **file)
{
    char old[HF_NAME_BYTES];
    const char *const names[] = {name->full, name->bare};
    for (int i = 0; i < 2; i++) {
        const weft_file_tensor *t = find(l, names[i], file);
        if (!t && old_name(names[i], old)) t = find(l, old, file);
        if (t) return t;
    }
    return NULL;
}

static weft_status check_tensor(loader *l, const weft_file_tensor *t, weft_shape want)
{
    char has[128], wants[128];
    if (!weft_shape_equal(t->shape, want))
        return weft_error_set(
            l->error, WEFT_BAD_SHAPE, l->folder, "%s is %s, but config.json makes it %s", t->name,
            weft_shape_text(t->shape, has, sizeof has), weft_shape_text(want, wants, sizeof wants));
    if (t->dtype != WEFT_F32)
        return weft_error_set(l->error, WEFT_BAD_FILE, l->folder, "%s is %s, not F32, F16 or BF16",
                              t->name, t->stored);
    return WEFT_OK;
}

static weft_status load_param(loader *l, const weft_graph *g, weft_value value)
{
    const char *ours = weft_name_of(g, value);
    const weft_safetensors *file = NULL;
    const hf_name name = weft__hf_name_of(l->a, ours);
    const weft_file_tensor *t = name.row ? find_any(l, &name, &file) : NULL;
    weft_tensor to;
    if (!t && name.row && name.row->layout == HF_ROW)
        return weft_params_add(l->params, ours, WEFT_F32, weft_shape_of(g, value), NULL, l->error);
    if (!t)
        return weft_error_set(l->error, WEFT_NOT_FOUND, l->folder, "has no tensor %s, for %s",
                              name.row ? name.full : "", ours);
    const hf_place place = weft__hf_place_of(l->a, g, ours);
    weft_status status =
        check_tensor(l, t, weft__hf_their_shape(name.row, place, weft_shape_of(g, value)));
    if (status == WEFT_OK)
        status = weft_params_add(l->params, ours, WEFT_F32, weft_shape_of(g, value), &to, l->error);
    if (status != WEFT_OK) return status;
    if (name.row->layout == HF_SAME || name.row->layout == HF_ROW)
        return weft_safetensors_read(file, t, to.data, l->error);
    float *theirs = malloc(weft_tensor_bytes(t->dtype, t->shape) + 1);
    if (!theirs) return no_memory(l);
    status = weft_safetensors_read(file, t, theirs, l->error);
    if (status == WEFT_OK)
        weft__hf_copy(name.row, place, (hf_param){to.shape, to.data}, theirs, true);
    free(theirs);
    return status;
}

static weft_status load_params(loader *l)
{
    size_t n;
    weft_graph *g = weft__hf_graph(l->config, l->error);
    const weft_value *values = weft_graph_params(g, &n);
    weft_status status = g ? WEFT_OK : l->error->status;
    for (size_t i = 0; status == WEFT_OK && i < n; i++) status = load_param(l, g, values[i]);
    weft_graph_free(g);
    return status;
}

/* ---- Tensors that no parameter needs ---- */

/* Whether a parameter of the model is read from their tensor. */
static bool is_used(const loader *l, const char *theirs)
{
    char ours[HF_NAME_BYTES];
    size_t at = 0;
    while (weft__hf_param_of(l->a, theirs, &at, ours))
        if (weft_params_find(l->params, ours, NULL)) return true;
    return false;
}

static bool is_expected(const loader *l, const char *name)
{
    char copy[HF_NAME_BYTES], *dot;
    snprintf(copy, sizeof copy, "%s", name);
    if (is_used(l, name) || weft__hf_is_one_of(l->a->computed, name)) return true;
    dot = strrchr(copy, '.');
    if (!dot || (strcmp(dot, ".gamma") != 0 && strcmp(dot, ".beta") != 0)) return false;
    snprintf(dot, sizeof copy - (size_t)(dot - copy), "%s",
             !strcmp(dot, ".gamma") ? ".weight" : ".bias");
    return is_used(l, copy);
}

/* Appends a word to a text, which the caller frees; NULL if out of memory. */
static char *append_word(char *text, const char *word)
{
    const size_t n = text ? strlen(text) : 0, m = strlen(word);
    char *grown = realloc(text, n + m + 2);
    if (!grown) {
        free(text);
        return NULL;
    }
    snprintf(grown + n, m + 2, "%s%s", n ? " " : "", word);
    return grown;
}

/* Refuses tensors that the architecture does not have, and lists those that no model of weft has.
 */
static weft_status check_rest(loader *l)
{
    char *left = NULL;
    weft_status status = WEFT_OK;
    for (size_t f = 0; f < l->n_files; f++)
        for (size_t i = 0; status == WEFT_OK && i < weft_safetensors_count(l->files[f]); i++) {
            const char *name = weft_safetensors_at(l->files[f], i)->name;
            if (is_expected(l, name)) continue;
            if (!l->a->left_out || !weft__hf_is_one_of(l->a->left_out, name))
                status = weft_error_set(
                    l->error, WEFT_BAD_FILE, l->folder,
                    "unexpected tensor %s: %s with this config.json does not have it", name,
                    l->a->name);
            else if (!(left = append_word(left, name)))
                status = no_memory(l);
        }
    if (left) weft__log(WEFT_LOG_INFO, l->folder, "the model does not use these tensors: %s", left);
    if (status == WEFT_OK && left &&
        weft_params_set_meta(l->params, WEFT_HUGGINGFACE_LEFT_OUT, left, NULL) != WEFT_OK)
        status = no_memory(l);
    free(left);
    return status;
}

/* ---- The whole model ---- */

static weft_status set_metadata(loader *l)
{
    char options[WEFT_OPTIONS_TEXT];
    return weft_model_options_text(l->config, options, sizeof options) &&
                   weft_params_set_meta(l->params, "model", l->config->model->name, NULL) ==
                       WEFT_OK &&
                   weft_params_set_meta(l->params, "model_options", options, NULL) == WEFT_OK &&
                   weft_params_set_meta(l->params, WEFT_HUGGINGFACE_CONFIG, l->text, NULL) ==
                       WEFT_OK
               ? WEFT_OK
               : no_memory(l);
}

/* Sets options that the tensors determine. */
static void look_at_tensors(loader *l)
{
    const weft_safetensors *file;
    hf_name pooler = {.bare = HF_POOLER};
    const weft_model *m = l->config->model;
    snprintf(pooler.full, sizeof pooler.full, "%s" HF_POOLER, l->a->prefix);
    for (size_t i = 0; i < m->n_options; i++)
        if (!strcmp(m->options[i].name, "pooler") && weft__hf_name_of(l->a, "pooler.weight").row)
            weft_model_set_value(l->config, i, find_any(l, &pooler, &file) != NULL);
}

/* The architecture and its options, from the configuration. */
static weft_status read_config(loader *l)
{
    l->a = weft__hf_find_architecture(l->json, l->path, l->error);
    if (!l->a) return WEFT_BAD_ARGUMENT;
    const hf_source source = {l->json, l->path, l->context};
    return weft__hf_read_config(l->a, &source, l->config, l->error);
}

/* Fills the store from the open files. */
static weft_status read_tensors(loader *l)
{
    look_at_tensors(l);
    weft_status status = load_params(l);
    if (status == WEFT_OK) status = check_rest(l);
    return status == WEFT_OK ? set_metadata(l) : status;
}

/* A model in memory. */
typedef struct memory_model {
    const weft_memory_file *config, *files;
    size_t n_files;
} memory_model;

static weft_status load_memory(loader *l, const memory_model *from)
{
    weft_status status = copy_config(l, from->config);
    if (status == WEFT_OK) status = read_config(l);
    if (status == WEFT_OK) status = open_memory(l, from->files, from->n_files);
    return status == WEFT_OK ? read_tensors(l) : status;
}

static weft_status load_folder(loader *l)
{
    if (!join(l, "config.json", l->path))
        return weft_error_set(l->error, WEFT_BAD_ARGUMENT, l->folder, "the path is too long");
    weft_status status = weft__hf_read_object(l->path, MAX_JSON, &l->text, &l->json, l->error);
    if (status == WEFT_OK) status = read_config(l);
    if (status == WEFT_OK) status = open_tensors(l);
    return status == WEFT_OK ? read_tensors(l) : status;
}

/* Loads `from` or, if that is NULL, the folder. */
static weft_status load(weft_params *params, weft_model_config *config, const char *folder,
                        const memory_model *from, const weft_huggingface_options *options,
                        weft_error *error)
{
    weft_error problem = {0};
    loader *l = calloc(1, sizeof *l);
    if (!l) return weft_error_set(error, WEFT_NO_MEMORY, folder, "no memory");
    l->folder = folder;
    l->context = options ? options->context : 0;
    l->params = params;
    l->config = config;
    l->error = &problem;
    if (from)
        load_memory(l, from);
    else
        load_folder(l);
    for (size_t i = 0; i < l->n_files; i++) weft_safetensors_close(l->files[i]);
    cJSON_Delete(l->json);
    free(l->text);
    free(l);
    return weft_error_copy(error, &problem);
}

weft_status weft_huggingface_load(weft_params *params, weft_model_config *config,
                                  const char *folder, weft_error *error)
{
    return weft_huggingface_load_with(params, config, folder, NULL, error);
}

weft_status weft_huggingface_load_with(weft_params *params, weft_model_config *config,
                                       const char *folder, const weft_huggingface_options *options,
                                       weft_error *error)
{
    weft_error_clear(error);
    if (!params || !config || !folder || !folder[0] || weft_params_count(params))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "convert",
                              "needs an empty store, a configuration to fill and a folder");
    return load(params, config, folder, NULL, options, error);
}

weft_status weft_huggingface_load_from_memory(weft_params *params, weft_model_config *config,
                                              weft_memory_file config_json,
                                              const weft_memory_file *tensors, size_t n,
                                              weft_error *error)
{
    const memory_model from = {&config_json, tensors, n};
    weft_error_clear(error);
    if (!params || !config || !tensors || !n || weft_params_count(params))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "convert",
                              "needs an empty store, a configuration to fill and files of tensors");
    return load(params, config, name_of(tensors), &from, NULL, error);
}
