/* Templates of Hugging Face's files, and the special tokens in tokenizer_config.json. */
#include "chat/template.h"

#include "base/file.h"
#include "json/tree.h"

#include <stdlib.h>
#include <string.h>

typedef struct loader {
    weft_chat_template *t;
    const char *path;           /* as the caller wrote it */
    char file[FILE_PATH_BYTES]; /* of what is read */
    weft_error *error;
} loader;

static weft_status no_memory(loader *l)
{
    return weft_error_set(l->error, WEFT_NO_MEMORY, l->path, "out of memory");
}

/* Sets l->file to a file of a folder; or, without a name, to that path. */
static weft_status choose_file(loader *l, const char *folder, size_t bytes, const char *name)
{
    const char *slash = bytes && folder[bytes - 1] != '/' && *name ? "/" : "";
    const int n = snprintf(l->file, sizeof l->file, "%.*s%s%s", (int)bytes, folder, slash, name);
    if (n >= 0 && (size_t)n < sizeof l->file) return WEFT_OK;
    return weft_error_set(l->error, WEFT_BAD_ARGUMENT, "chat template", "the path is too long");
}

static weft_status add_file(loader *l, const char *name)
{
    size_t bytes;
    char *source = weft__file_read(l->file, &bytes, l->error);
    if (!source) return l->error->status;
    const weft_status status = weft__ct_add_template(l->t, name, source, bytes, l->error);
    free(source);
    return status;
}

static weft_status read_json(loader *l, cJSON **json)
{
    size_t bytes;
    json_failure why;
    char *text = weft__file_read(l->file, &bytes, l->error);
    if (!text) return l->error->status;
    *json = weft__json_parse(text, bytes, &why);
    free(text);
    if (*json) return WEFT_OK;
    if (why.no_memory) return no_memory(l);
    return weft_error_set(l->error, WEFT_BAD_FILE, l->file, "is not JSON at byte %zu",
                          why.position);
}

static weft_status add_text(loader *l, const char *name, const char *source)
{
    return weft__ct_add_template(l->t, name, source, strlen(source), l->error);
}

/* Adds `chat_template`: a text, or an array of {"name", "template"}. */
static weft_status add_templates(loader *l, const cJSON *json)
{
    const cJSON *templates = cJSON_GetObjectItemCaseSensitive(json, "chat_template"), *item;
    weft_status status = WEFT_OK;
    if (cJSON_IsString(templates)) return add_text(l, "default", templates->valuestring);
    if (!templates || cJSON_IsNull(templates))
        return weft_error_set(l->error, WEFT_NOT_FOUND, l->file, "has no chat_template");
    if (!cJSON_IsArray(templates))
        return weft_error_set(l->error, WEFT_BAD_FILE, l->file,
                              "chat_template must be a text or an array");
    cJSON_ArrayForEach(item, templates)
    {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(item, "name"),
                    *source = cJSON_GetObjectItemCaseSensitive(item, "template");
        if (status != WEFT_OK) break;
        if (!cJSON_IsString(name) || !cJSON_IsString(source))
            return weft_error_set(l->error, WEFT_BAD_FILE, l->file,
                                  "chat_template must be of objects with a name and a template");
        status = add_text(l, name->valuestring, source->valuestring);
    }
    if (status == WEFT_OK && !l->t->templates)
        return weft_error_set(l->error, WEFT_NOT_FOUND, l->file, "has no chat_template");
    return status;
}

/* Adds the texts of bos_token and others. */
static weft_status add_tokens(loader *l, const cJSON *json)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, json)
    {
        const size_t n = item->string ? strlen(item->string) : 0;
        const cJSON *text =
            cJSON_IsObject(item) ? cJSON_GetObjectItemCaseSensitive(item, "content") : item;
        if (n < 6 || strcmp(item->string + n - 6, "_token") != 0 || !cJSON_IsString(text)) continue;
        ct_token_text *token = weft__arena_alloc(&l->t->memory, sizeof *token);
        if (!token) return no_memory(l);
        token->name = weft__arena_text(&l->t->memory, item->string);
        token->text = weft__arena_text(&l->t->memory, text->valuestring);
        if (!token->name || !token->text) return no_memory(l);
        token->next = l->t->tokens;
        l->t->tokens = token;
    }
    return WEFT_OK;
}

static weft_status add_json(loader *l, bool templates, bool tokens)
{
    cJSON *json = NULL;
    weft_status status = read_json(l, &json);
    if (status == WEFT_OK && templates) status = add_templates(l, json);
    if (status == WEFT_OK && tokens) status = add_tokens(l, json);
    cJSON_Delete(json);
    return status;
}

static bool has_end(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end);
    return n >= m && !strcmp(path + n - m, end);
}

/* The templates of a folder: those of the newest kind of file that it has. */
static weft_status load_folder(loader *l)
{
    static const char *const others[][2] = {
        {"additional_chat_templates/tool_use.jinja", "tool_use"},
        {"additional_chat_templates/rag.jinja", "rag"}};
    const size_t n = strlen(l->path);
    weft_status status = choose_file(l, l->path, n, "chat_template.jinja");
    if (status != WEFT_OK) return status;
    if (weft__file_exists(l->file)) {
        status = add_file(l, "default");
        for (size_t i = 0; i < 2 && status == WEFT_OK; i++) {
            status = choose_file(l, l->path, n, others[i][0]);
            if (status == WEFT_OK && weft__file_exists(l->file)) status = add_file(l, others[i][1]);
        }
        return status;
    }
    status = choose_file(l, l->path, n, "chat_template.json");
    if (status == WEFT_OK && weft__file_exists(l->file)) return add_json(l, true, false);
    status = choose_file(l, l->path, n, "tokenizer_config.json");
    return status == WEFT_OK ? add_json(l, true, false) : status;
}

static weft_status load(loader *l)
{
    const bool is_source = has_end(l->path, ".jinja"), is_json = has_end(l->path, ".json");
    const char *slash = strrchr(l->path, '/');
    size_t folder = strlen(l->path);
    weft_status status;
    if (is_source || is_json) {
        folder = slash ? (size_t)(slash - l->path) + 1 : 0;
        status = choose_file(l, l->path, strlen(l->path), "");
        if (status == WEFT_OK)
            status = is_source ? add_file(l, "default") : add_json(l, true, false);
    } else {
        status = load_folder(l);
    }
    if (status == WEFT_OK) status = choose_file(l, l->path, folder, "tokenizer_config.json");
    if (status == WEFT_OK && weft__file_exists(l->file)) status = add_json(l, false, true);
    return status;
}

weft_chat_template *weft_chat_template_load(const char *path, weft_error *error)
{
    weft_error own = WEFT_NO_ERROR;
    weft_error_clear(error);
    if (!path) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "chat template", "loading needs a path");
        return NULL;
    }
    loader *l = calloc(1, sizeof *l);
    if (l) l->t = calloc(1, sizeof *l->t);
    if (!l || !l->t) {
        free(l);
        weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
        return NULL;
    }
    l->path = path;
    l->error = &own;
    weft_chat_template *t = l->t;
    if (load(l) != WEFT_OK) {
        weft_chat_template_free(t);
        t = NULL;
    }
    weft_error_copy(error, &own);
    free(l);
    return t;
}
