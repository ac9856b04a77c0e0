/* Writes parameter stores as folders of transformers. Tensors are converted one at a time, while
 * the file is written. O(bytes). */
#include "tables.h"

#include "base/file.h"
#include "base/json.h"
#include "base/platform.h"
#include "json/tree.h"
#include "base/text.h"
#include "quantize/quantize.h"

#include <weft/safetensors.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor of the file: the parameter that it begins with, and its name. */
typedef struct entry {
    hf_name name;
    const char *ours;
} entry;

typedef struct saver {
    const weft_params *params;
    const weft_model_config *config;
    const char *folder;
    const hf_architecture *a;
    weft_graph *graph;
    entry *entries;
    weft_file_tensor *tensors;
    size_t n;
    float *buffer; /* for the largest tensor */
    size_t buffer_bytes;
    weft_error *error;
} saver;

static weft_status no_memory(saver *s)
{
    return weft_error_set(s->error, WEFT_NO_MEMORY, s->folder, "no memory");
}

/* ---- Tensors ---- */

/* The name of a tensor in the file. */
static const char *written_name(const saver *s, const entry *e)
{
    return s->a->headless ? e->name.bare : e->name.full;
}

static weft_status add_tensor(saver *s, weft_value value)
{
    char has[128], want[128];
    const char *ours = weft_name_of(s->graph, value);
    const weft_shape shape = weft_shape_of(s->graph, value);
    entry *e = &s->entries[s->n];
    weft_tensor t;
    *e = (entry){weft__hf_name_of(s->a, ours), ours};
    if (!e->name.row)
        return weft_error_set(s->error, WEFT_BAD_ARGUMENT, s->config->model->name,
                              "has the parameter %s, but %s does not", ours, s->a->name);
    if (!weft_params_find(s->params, ours, &t))
        return weft_error_set(s->error, WEFT_NOT_FOUND, ours, "is not in the store");
    if (t.dtype != WEFT_F32 || !weft_shape_equal(t.shape, shape))
        return weft_error_set(s->error, WEFT_BAD_SHAPE, ours, "is %s %s, expected f32 %s",
                              weft_dtype_name(t.dtype), weft_shape_text(t.shape, has, sizeof has),
                              weft_shape_text(shape, want, sizeof want));
    const hf_place place = weft__hf_place_of(s->a, s->graph, ours);
    if (place.first > 0) return WEFT_OK; /* the first part has written it */
    weft_file_tensor *to = &s->tensors[s->n++];
    *to = (weft_file_tensor){written_name(s, e), WEFT_F32,
                             weft__hf_their_shape(e->name.row, place, shape), NULL};
    const size_t bytes = weft_tensor_bytes(WEFT_F32, to->shape);
    if (bytes > s->buffer_bytes) s->buffer_bytes = bytes;
    return WEFT_OK;
}

/* Copies all parameters that make up their tensor to the buffer. */
static void gather(saver *s, const entry *e)
{
    char ours[HF_NAME_BYTES];
    size_t at = 0;
    const hf_tensor *row;
    weft_tensor t;
    while ((row = weft__hf_param_of(s->a, written_name(s, e), &at, ours)))
        if (weft_params_find(s->params, ours, &t))
            weft__hf_copy(row, weft__hf_place_of(s->a, s->graph, ours), (hf_param){t.shape, t.data},
                          s->buffer, false);
}

static const void *data_of(void *context, size_t index, weft_error *error)
{
    saver *s = context;
    const entry *e = &s->entries[index];
    weft_tensor t;
    (void)error;
    if (e->name.row->layout == HF_SAME && weft_params_find(s->params, e->ours, &t)) return t.data;
    gather(s, e);
    return s->buffer;
}

static weft_status list_tensors(saver *s)
{
    weft_status status = WEFT_OK;
    s->graph = weft__hf_graph(s->config, s->error);
    if (!s->graph) return s->error->status;
    size_t n;
    const weft_value *values = weft_graph_params(s->graph, &n);
    s->entries = calloc(n + 1, sizeof *s->entries);
    s->tensors = calloc(n + 1, sizeof *s->tensors);
    if (!s->entries || !s->tensors) return no_memory(s);
    for (size_t i = 0; status == WEFT_OK && i < n; i++) status = add_tensor(s, values[i]);
    if (status != WEFT_OK) return status;
    s->buffer = malloc(s->buffer_bytes + 1);
    return s->buffer ? WEFT_OK : no_memory(s);
}

/* ---- The folder ---- */

static weft_status write_tensors(saver *s)
{
    char path[FILE_PATH_BYTES];
    weft_params *format = weft_params_new(); /* transformers wants to know who wrote the file */
    weft_status status = WEFT_OK;
    snprintf(path, sizeof path, "%s/model.safetensors", s->folder);
    if (!format || weft_params_set_meta(format, "format", "pt", NULL) != WEFT_OK)
        status = no_memory(s);
    if (status == WEFT_OK)
        status = weft_safetensors_write(path, s->tensors, s->n, format, data_of, s, s->error);
    weft_params_free(format);
    return status;
}

/* JSON that prints a span as it is; NULL if out of memory. */
static cJSON *raw(json_span span)
{
    char *text = malloc(span.length + 1);
    if (!text) return NULL;
    memcpy(text, span.at, span.length);
    text[span.length] = 0;
    cJSON *json = cJSON_CreateRaw(text);
    free(text);
    return json;
}

/* Finds the text of the value that a key has in an object; length 0 if there is none. */
static json_span find_text(const char *object, const char *wanted)
{
    json_members members = {.rest = {object, strlen(object)}};
    json_span key, value;
    while (weft__json_next(&members, &key, &value) == JSON_MEMBER) {
        cJSON *name = weft__json_parse(key.at, key.length, NULL);
        const bool found = name && !strcmp(cJSON_GetStringValue(name), wanted);
        cJSON_Delete(name);
        if (found) return value;
    }
    return (json_span){NULL, 0};
}

/* Whether a text is that of this value. */
static bool is_text_of(json_span text, const cJSON *item)
{
    cJSON *json = text.length ? weft__json_parse(text.at, text.length, NULL) : NULL;
    const bool same = json && cJSON_Compare(json, item, true);
    cJSON_Delete(json);
    return same;
}

/* Replaces a value by its text. */
static weft_status replace(saver *s, cJSON *in, const cJSON *item, json_span text)
{
    cJSON *kept = raw(text);
    if (!kept) return no_memory(s);
    if (cJSON_ReplaceItemInObjectCaseSensitive(in, item->string, kept)) return WEFT_OK;
    cJSON_Delete(kept);
    return no_memory(s);
}

/* Writes numbers of options that may be fractions as 0.0, not 0, since transformers distinguishes
 * floats from integers; `in` is the path of the object, "" on top. Values that are as they were
 * before keep their text; `before` may be NULL. */
static weft_status keep_texts(saver *s, cJSON *json, const char *in, const char *before)
{
    weft_status status = WEFT_OK;
    for (cJSON *item = json->child, *next; item && status == WEFT_OK; item = next) {
        char number[TEXT_NUMBER_BYTES + 2], path[128];
        json_span text = before ? find_text(before, item->string) : (json_span){NULL, 0};
        next = item->next;
        snprintf(path, sizeof path, "%s%s%s", in, *in ? "." : "", item->string);
        if (is_text_of(text, item)) {
            status = replace(s, json, item, text);
        } else if (cJSON_IsObject(item)) {
            status = keep_texts(s, item, path, NULL);
        } else if (cJSON_IsNumber(item) && weft__hf_is_real(s->a, s->config->model, path)) {
            weft__text_from_double(item->valuedouble, number);
            if (!strpbrk(number, ".e")) memcpy(number + strlen(number), ".0", 3);
            status = replace(s, json, item, (json_span){number, strlen(number)});
        }
    }
    return status;
}

static weft_status write_config(saver *s, cJSON *json)
{
    char path[FILE_PATH_BYTES];
    const char *before = weft_params_meta(s->params, WEFT_HUGGINGFACE_CONFIG);
    if (keep_texts(s, json, "", before) != WEFT_OK) return WEFT_NO_MEMORY;
    char *text = weft__json_print(json, true);
    if (!text) return no_memory(s);
    snprintf(path, sizeof path, "%s/config.json", s->folder);
    const bool good = weft__file_replace(path, text, strlen(text));
    const int problem = errno;
    cJSON_free(text);
    return good ? WEFT_OK
                : weft_error_set(s->error, WEFT_IO, path, "cannot be written: %s",
                                 weft__file_error(problem));
}

static weft_status save(saver *s, cJSON *json)
{
    weft_status status = list_tensors(s);
    if (status != WEFT_OK) return status;
    if (!weft__os_make_folder(s->folder) && errno != EEXIST)
        return weft_error_set(s->error, WEFT_IO, s->folder, "cannot be made: %s", strerror(errno));
    status = write_tensors(s);
    return status == WEFT_OK ? write_config(s, json) : status;
}

weft_status weft_huggingface_save(const weft_params *params, const weft_model_config *config,
                                  const char *folder, const char *architecture, weft_error *error)
{
    weft_error_clear(error);
    if (!params || !config || !config->model || !folder || !folder[0])
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "convert",
                              "needs a store, a configured model and a folder");
    if (strlen(folder) > FILE_PATH_BYTES - 32)
        return weft_error_set(error, WEFT_TOO_LARGE, folder, "the path is too long");
    weft_error problem = {0};
    if (weft__quantized_refuse(params, "the run", &problem) != WEFT_OK)
        return weft_error_copy(error, &problem);
    saver s = {.params = params, .config = config, .folder = folder, .error = &problem};
    cJSON *json = weft__hf_choose(params, config, architecture, &s.a, &problem);
    if (json) save(&s, json);
    cJSON_Delete(json);
    weft_graph_free(s.graph);
    free(s.entries);
    free(s.tensors);
    free(s.buffer);
    return weft_error_copy(error, &problem);
}
