/* Saved models: the checkpoint of a run, the model that its metadata name, and its vocabularies. */
#include "saved.h"

#include "trainer.h"

#include "base/file.h"
#include "base/platform.h"

#include <stdlib.h>
#include <string.h>

static weft_status no_memory(weft_error *error, const char *where)
{
    return weft_error_set(error, WEFT_NO_MEMORY, where, "out of memory");
}

/* ---- The checkpoint ---- */

static bool is_folder(const char *path)
{
    os_facts facts;
    return weft__os_facts(path, &facts) && facts.kind == OS_FOLDER;
}

weft_status weft_saved_path(const char *run, char *path, size_t capacity, weft_error *error)
{
    static const char *const names[] = {"best.safetensors", "model.safetensors"};
    weft_error_clear(error);
    if (!run || !path)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "saved model", "has no path");
    const bool is_file = weft__file_exists(run) && !is_folder(run);
    int n = snprintf(path, capacity, "%s", run);
    bool found = is_file;
    for (size_t i = 0; !found && i < sizeof names / sizeof *names; i++) {
        n = snprintf(path, capacity, "%s/%s", run, names[i]);
        found = (size_t)n < capacity && weft__file_exists(path);
    }
    if (n < 0 || (size_t)n >= capacity)
        return weft_error_set(error, WEFT_TOO_LARGE, run, "the path is too long");
    return found ? WEFT_OK
                 : weft_error_set(error, WEFT_NOT_FOUND, run,
                                  "is neither a checkpoint nor a folder with a model.safetensors");
}

/* ---- Vocabularies ---- */

weft_status weft__vocabulary_text(const char *source, const char *target,
                                  char text[VOCABULARY_TEXT], weft_error *error)
{
    const size_t used = source ? 17 : 0;
    const weft_status status = source ? weft__file_hash(source, text, error) : WEFT_OK;
    if (status != WEFT_OK) return status;
    if (source) text[16] = ' ';
    return weft__file_hash(target, text + used, error);
}

weft_status weft__vocabulary_check(const weft_params *params, const char *source,
                                   const char *target, const char *where, weft_error *error)
{
    char text[VOCABULARY_TEXT];
    const char *was = weft_params_meta(params, "vocabulary");
    if (!was) return WEFT_OK;
    const weft_status status = weft__vocabulary_text(source, target, text, error);
    if (status != WEFT_OK || !strcmp(was, text)) return status;
    const bool other_source = source && strncmp(was, text, 17) != 0;
    return weft_error_set(error, WEFT_BAD_ARGUMENT, other_source ? source : target,
                          "is not the vocabulary that %s was trained with", where);
}

/* A new text: the path of a file in a folder, "" if the file does not exist; NULL: no memory. */
static char *find_file(const char *folder, size_t length, const char *name)
{
    const size_t bytes = length + strlen(name) + 2;
    char *path = malloc(bytes);
    if (!path) return NULL;
    snprintf(path, bytes, "%.*s%s%s", (int)length, folder,
             length && *weft__os_name(folder) ? "/" : "", name);
    if (!weft__file_exists(path)) path[0] = 0;
    return path;
}

/* Sets the paths of the vocabularies; empty ones are none. */
static weft_status find_vocabularies(weft_saved_model *m, const char *run, weft_error *error)
{
    static const char *const names[] = {"vocab.source.model", "vocab.target.model", "vocab.model",
                                        "tokenizer.json"};
    enum { N = sizeof names / sizeof *names };
    const size_t length = is_folder(run) ? strlen(run) : (size_t)(weft__os_name(run) - run);
    char *found[N];
    bool good = true;
    for (int i = 0; i < N; i++) good = (found[i] = find_file(run, length, names[i])) && good;
    const bool apart = good && (found[0][0] || found[1][0]), shared = good && found[2][0];
    for (int i = 0; i < N; i++) {
        const bool chosen = i == 2 ? shared : i == 3 ? !shared && !apart : !shared;
        const bool wanted = good && found[i][0] && chosen;
        if (wanted)
            m->vocabulary[i == 0 ? 0 : 1] = found[i];
        else
            free(found[i]);
    }
    if (!good) return no_memory(error, run);
    return m->vocabulary[1] ? weft__vocabulary_check(m->params, m->vocabulary[0], m->vocabulary[1],
                                                     m->path, error)
                            : WEFT_OK;
}

/* ---- Models ---- */

static uint64_t number_of(const weft_params *params, const char *key)
{
    const char *text = weft_params_meta(params, key);
    return text ? strtoull(text, NULL, 10) : 0;
}

static weft_status open_model(weft_saved_model *m, const char *run, const char *checkpoint,
                              weft_error *error)
{
    char path[FILE_PATH_BYTES];
    weft_status status = weft_saved_path(checkpoint ? checkpoint : run, path, sizeof path, error);
    if (status != WEFT_OK) return status;
    m->path = strdup(path);
    m->params = weft_params_new();
    if (!m->path || !m->params) return no_memory(error, path);
    status = weft_params_load_some(m->params, path, &weft_model_states, error);
    if (status == WEFT_OK) status = find_vocabularies(m, run, error);
    if (status == WEFT_OK) status = weft__base_open(m, error);
    if (status == WEFT_OK) status = weft_saved_config(m->params, m->path, &m->config, error);
    m->updates = number_of(m->params, "step");
    m->trained_length = (int64_t)number_of(m->params, "trained_length");
    return status;
}

weft_saved_model *weft_saved_open(const char *run, const char *checkpoint, weft_error *error)
{
    weft_error_clear(error);
    weft_saved_model *m = run ? calloc(1, sizeof *m) : NULL;
    if (!run) weft_error_set(error, WEFT_BAD_ARGUMENT, "saved model", "has no path");
    if (run && !m) no_memory(error, run);
    if (!m || open_model(m, run, checkpoint, error) == WEFT_OK) return m;
    weft_saved_close(m);
    return NULL;
}

void weft_saved_close(weft_saved_model *model)
{
    if (!model) return;
    weft_params_free(model->params);
    free((void *)(uintptr_t)model->path);
    free((void *)(uintptr_t)model->base);
    for (int i = 0; i < 2; i++) free((void *)(uintptr_t)model->vocabulary[i]);
    free(model);
}
