/* See run.h. */
#include "run.h"

#include "base/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool hash_file(const char *path, char *text, weft_error *error)
{
    size_t bytes;
    char *data = tool_read_file(path, &bytes, error);
    if (data) snprintf(text, 17, "%016" PRIx64, hash_bytes(HASH_START, data, bytes));
    free(data);
    return data != NULL;
}

bool vocabulary_text(const char *source, const char *target, char text[VOCABULARY_TEXT],
                     weft_error *error)
{
    size_t used = source ? 17 : 0;
    if (source && !hash_file(source, text, error)) return false;
    if (source) text[16] = ' ';
    return hash_file(target, text + used, error);
}

bool vocabulary_fits(const weft_params *params, const char *source, const char *target,
                     const char *checkpoint, weft_error *error)
{
    char text[VOCABULARY_TEXT];
    const char *was = weft_params_meta(params, "vocabulary");
    if (!was) return true;
    if (!vocabulary_text(source, target, text, error)) return false;
    if (!strcmp(was, text)) return true;
    bool other_source = source && strncmp(was, text, 17) != 0;
    weft_error_set(error, WEFT_BAD_ARGUMENT, other_source ? source : target,
                   "is not the vocabulary that %s was trained with", checkpoint);
    return false;
}

static bool there(const char *folder, const char *file, char *path, size_t capacity)
{
    snprintf(path, capacity, "%s/%s", folder, file);
    return access(path, F_OK) == 0;
}

static bool load_vocabularies(trained_run *r, const char *folder, weft_error *error)
{
    char(*path)[4096] = r->vocabulary_path;
    r->shared = there(folder, "vocab.model", path[1], sizeof *path) ||
                !there(folder, "vocab.source.model", path[0], sizeof *path);
    if (r->shared) {
        r->source = r->target = spm_load(path[1], error);
        return r->source != NULL;
    }
    there(folder, "vocab.target.model", path[1], sizeof *path);
    r->source = spm_load(path[0], error);
    if (r->source) r->target = spm_load(path[1], error);
    return r->target != NULL;
}

/* Finds the model, with the options of the checkpoint and the size of the larger vocabulary, as in
 * `weft train`. */
static bool find_model(trained_run *r, const char *path, weft_error *error)
{
    char vocab[32];
    int source = spm_size(r->source), target = spm_size(r->target);
    snprintf(vocab, sizeof vocab, "vocab=%d", source > target ? source : target);
    r->model = weft_model_find(weft_params_meta(r->params, "model"));
    if (tool_checkpoint_model(r->params, path, vocab, &r->config, error) != WEFT_OK) return false;
    r->traits = weft_model_traits_of(&r->config);
    return true;
}

/* Whether the recipe sets the unit to documents. */
static bool of_documents(const weft_params *params)
{
    const char *text = weft_params_meta(params, "recipe");
    cJSON *recipe = text ? cJSON_Parse(text) : NULL;
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(recipe, "data");
    const cJSON *unit = cJSON_GetObjectItemCaseSensitive(data, "unit");
    bool documents = cJSON_IsString(unit) && !strcmp(unit->valuestring, "document");
    cJSON_Delete(recipe);
    return documents;
}

bool trained_open(trained_run *run, const char *folder, const char *checkpoint, weft_error *error)
{
    char path[4096];
    *run = (trained_run){.params = weft_params_new()};
    if (!run->params) {
        weft_error_set(error, WEFT_NO_MEMORY, folder, "out of memory");
        return false;
    }
    if (checkpoint)
        snprintf(path, sizeof path, "%s", checkpoint);
    else if (!there(folder, "best.safetensors", path, sizeof path))
        there(folder, "model.safetensors", path, sizeof path);
    if (weft_params_load(run->params, path, error) != WEFT_OK ||
        !load_vocabularies(run, folder, error) ||
        !vocabulary_fits(run->params, run->shared ? NULL : run->vocabulary_path[0],
                         run->vocabulary_path[1], path, error) ||
        !find_model(run, path, error))
        return false;
    if (tool_check_model(run->params, &run->config, path, error) != WEFT_OK) return false;
    const char *trained = weft_params_meta(run->params, "trained_length");
    run->documents = of_documents(run->params);
    run->trained_len = trained ? strtoll(trained, NULL, 10) : 0;
    return true;
}

void trained_close(trained_run *run)
{
    weft_params_free(run->params);
    if (run->target != run->source) weft_tokenizer_free(run->target);
    weft_tokenizer_free(run->source);
}
