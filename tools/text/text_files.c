/* See text_files.h. */
#include "text_files.h"

#include "base/file.h"
#include "base/platform.h"
#include "json/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* weft's, then those of Hugging Face's libraries. */
static const char *const names[] = {
    "vocab.model",
    "vocab.source.model",
    "vocab.target.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
    "target.spm",
    "generation_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
};

static bool fail(weft_error *error, weft_status status, const char *where, const char *message)
{
    weft_error_set(error, status, where, "%s", message);
    return false;
}

static bool join(const char *folder, const char *name, char path[FILE_PATH_BYTES],
                 weft_error *error)
{
    const int n = snprintf(path, FILE_PATH_BYTES, "%s/%s", folder, name);
    return (n > 0 && n < FILE_PATH_BYTES) ||
           fail(error, WEFT_TOO_LARGE, folder, "the path is too long");
}

/* Copies a file, if it is there. */
static bool copy(const char *from, const char *to, const char *name, weft_error *error)
{
    char source[FILE_PATH_BYTES], target[FILE_PATH_BYTES];
    return join(from, name, source, error) && join(to, name, target, error) &&
           (!weft__file_exists(source) || tool_copy_file(source, target, error));
}

/* Copies the configuration of a module of sentence-transformers, in a folder of its own. */
static bool copy_module(const char *from, const char *to, const char *module, weft_error *error)
{
    char name[FILE_PATH_BYTES], source[FILE_PATH_BYTES], folder[FILE_PATH_BYTES];
    if (!join(module, "config.json", name, error) || !join(from, name, source, error) ||
        !join(to, module, folder, error))
        return false;
    if (!weft__file_exists(source)) return true;
    if (!weft__os_make_folder(folder) && errno != EEXIST) {
        weft_error_set(error, WEFT_IO, folder, "cannot be made: %s", strerror(errno));
        return false;
    }
    return copy(from, to, name, error);
}

/* Whether a name is that of a folder within the model's, and not a path out of it. */
static bool is_folder_name(const char *name)
{
    return name && *name && *name != '.' && !strchr(name, '/') && strlen(name) < 256;
}

static bool copy_modules(const char *from, const char *to, weft_error *error)
{
    char path[FILE_PATH_BYTES];
    size_t bytes;
    if (!join(from, "modules.json", path, error)) return false;
    if (!weft__file_exists(path)) return true;
    char *text = weft__file_read(path, &bytes, error);
    json_failure why = {.no_memory = false};
    cJSON *json = text ? weft__json_parse(text, bytes, &why) : NULL;
    const cJSON *module;
    bool good = text != NULL;
    if (text && !json && why.no_memory)
        good = fail(error, WEFT_NO_MEMORY, path, "out of memory");
    else if (text && !json)
        good = fail(error, WEFT_BAD_FILE, path, "is not JSON");
    cJSON_ArrayForEach(module, json)
    {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(module, "path"));
        if (good && is_folder_name(name)) good = copy_module(from, to, name, error);
    }
    cJSON_Delete(json);
    free(text);
    return good;
}

bool text_files_folder(const char *run, char folder[FILE_PATH_BYTES], weft_error *error)
{
    os_facts facts;
    if (snprintf(folder, FILE_PATH_BYTES, "%s", run) >= FILE_PATH_BYTES)
        return fail(error, WEFT_TOO_LARGE, run, "the path is too long");
    if (!weft__os_facts(run, &facts) || facts.kind != OS_FOLDER) {
        const size_t length = (size_t)(weft__os_name(folder) - folder);
        snprintf(folder + length, 2, ".");
    }
    return true;
}

bool text_files_copy(const char *from, const char *to, weft_error *error)
{
    char folder[FILE_PATH_BYTES];
    if (!text_files_folder(from, folder, error)) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!copy(folder, to, names[i], error)) return false;
    return copy_modules(folder, to, error);
}
