/* How sentence-transformers makes one vector of a text: modules.json lists modules, each with a
 * config.json in its own folder. */
#include <weft/huggingface.h>

#include "base/file.h"
#include "json/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const char *folder;
    char path[FILE_PATH_BYTES]; /* of the file that is read */
    weft_huggingface_embedding *found;
    weft_error *error;
} reader;

static weft_status refuse(reader *r, const char *key, const char *why)
{
    return weft_error_set(r->error, WEFT_BAD_ARGUMENT, r->path, "%s %s", key, why);
}

/* Parses FOLDER/MODULE/NAME; *json becomes NULL if the file is missing. */
static weft_status read_file(reader *r, const char *module, const char *name, cJSON **json)
{
    size_t bytes;
    json_failure why;
    *json = NULL;
    if (snprintf(r->path, sizeof r->path, "%s/%s%s%s", r->folder, module, *module ? "/" : "",
                 name) >= (int)sizeof r->path)
        return weft_error_set(r->error, WEFT_TOO_LARGE, r->folder, "the path is too long");
    if (!weft__file_exists(r->path)) return WEFT_OK;
    char *text = weft__file_read(r->path, &bytes, r->error);
    if (!text) return r->error->status;
    *json = weft__json_parse(text, bytes, &why);
    free(text);
    if (*json) return WEFT_OK;
    if (why.no_memory) return weft_error_set(r->error, WEFT_NO_MEMORY, r->path, "out of memory");
    return weft_error_set(r->error, WEFT_BAD_FILE, r->path, "is not JSON, near byte %zu",
                          why.position);
}

static const cJSON *find(const cJSON *json, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(json, key);
}

/* ---- Modules ---- */

/* The keys of old files, and the values of pooling_mode in new ones. */
static const struct {
    const char *key, *value;
    weft_pooling pooling;
} poolings[] = {
    {"pooling_mode_mean_tokens", "mean", WEFT_POOL_MEAN},
    {"pooling_mode_cls_token", "cls", WEFT_POOL_FIRST},
    {"pooling_mode_max_tokens", "max", WEFT_POOL_MAX},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", WEFT_POOL_ROOT},
};
#define N_POOLINGS (sizeof poolings / sizeof *poolings)

static weft_status take_pooling(reader *r, const cJSON *json)
{
    const cJSON *item, *mode = find(json, "pooling_mode");
    size_t modes = 0, known = 0;
    cJSON_ArrayForEach(item, json) modes +=
        cJSON_IsTrue(item) && !strncmp(item->string, "pooling_mode_", strlen("pooling_mode_"));
    for (size_t i = 0; i < N_POOLINGS; i++) {
        const char *value = cJSON_GetStringValue(mode);
        if (mode ? !value || strcmp(value, poolings[i].value) != 0
                 : !cJSON_IsTrue(find(json, poolings[i].key)))
            continue;
        r->found->pooling = poolings[i].pooling;
        known++;
    }
    if (known == 1 && (mode || modes == 1)) return WEFT_OK;
    return refuse(r, "pooling_mode", "must be one of mean, cls, max and mean_sqrt_len_tokens");
}

static weft_status take_module(reader *r, const char *type, const char *path)
{
    const char *dot = strrchr(type, '.'), *kind = dot ? dot + 1 : type;
    cJSON *json = NULL;
    if (!strcmp(kind, "Transformer")) return WEFT_OK;
    if (!strcmp(kind, "Normalize")) {
        r->found->normalize = true;
        return WEFT_OK;
    }
    if (strcmp(kind, "Pooling") != 0) {
        char named[128];
        snprintf(named, sizeof named, "the module %.64s", kind);
        return refuse(r, named, "is not supported; expected Transformer, Pooling and Normalize");
    }
    if (strchr(path, '/') || *path == '.') return refuse(r, "path", "is not a folder of the model");
    weft_status status = read_file(r, path, "config.json", &json);
    if (status == WEFT_OK && !json)
        status = weft_error_set(r->error, WEFT_NOT_FOUND, r->path, "is missing");
    if (status == WEFT_OK) status = take_pooling(r, json);
    cJSON_Delete(json);
    return status;
}

static weft_status read_modules(reader *r)
{
    cJSON *json;
    const cJSON *module;
    weft_status status = read_file(r, "", "modules.json", &json);
    if (status == WEFT_OK && json && !cJSON_IsArray(json))
        status = weft_error_set(r->error, WEFT_BAD_FILE, r->path, "is not a list of modules");
    cJSON_ArrayForEach(module, json)
    {
        const char *type = cJSON_GetStringValue(find(module, "type"));
        const char *path = cJSON_GetStringValue(find(module, "path"));
        if (status != WEFT_OK) break;
        status = type && path ? take_module(r, type, path)
                              : weft_error_set(r->error, WEFT_BAD_FILE, r->path,
                                               "a module has no type or no path");
    }
    cJSON_Delete(json);
    return status;
}

/* ---- Texts ---- */

static weft_status read_limits(reader *r)
{
    cJSON *json;
    weft_status status = read_file(r, "", "sentence_bert_config.json", &json);
    const cJSON *most = find(json, "max_seq_length");
    if (status == WEFT_OK && cJSON_IsNumber(most) && most->valuedouble >= 1)
        r->found->max_len = (int64_t)most->valuedouble;
    if (status == WEFT_OK && cJSON_IsTrue(find(json, "do_lower_case")))
        status = refuse(r, "do_lower_case", "is true: weft leaves the case to the tokeniser");
    cJSON_Delete(json);
    return status;
}

static weft_status read_prompts(reader *r)
{
    cJSON *json;
    weft_status status = read_file(r, "", "config_sentence_transformers.json", &json);
    if (status == WEFT_OK && cJSON_IsString(find(json, "default_prompt_name")))
        status = refuse(r, "default_prompt_name",
                        "is not supported: remove it, and put the prompt before the texts");
    cJSON_Delete(json);
    return status;
}

weft_status weft_huggingface_read_embedding(const char *folder,
                                            weft_huggingface_embedding *embedding,
                                            weft_error *error)
{
    weft_error problem = WEFT_NO_ERROR;
    weft_error_clear(error);
    if (!folder || !folder[0] || !embedding)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "embedding",
                              "needs a folder, and a place for what it says");
    weft_huggingface_embedding found = {.pooling = WEFT_POOL_MEAN};
    reader r = {.folder = folder, .found = &found, .error = &problem};
    if (read_modules(&r) == WEFT_OK && read_limits(&r) == WEFT_OK && read_prompts(&r) == WEFT_OK)
        *embedding = found;
    return weft_error_copy(error, &problem);
}
