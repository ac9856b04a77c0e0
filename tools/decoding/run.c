/* See run.h. */
#include "special.h"
#include "text/vocabulary.h"

#include "base/platform.h"

#include <stdlib.h>
#include <string.h>

static bool no_vocabulary(const char *folder, weft_error *error)
{
    weft_error_set(error, WEFT_NOT_FOUND, folder,
                   "has neither a vocab.model nor a tokenizer.json: text cannot become ids");
    return false;
}

/* Fails unless the model has an id for each piece, and no others. */
static bool check_size(const trained_run *r, weft_error *error)
{
    const int source = spm_size(r->source), target = spm_size(r->target);
    const int size = source > target ? source : target;
    if (r->published || r->traits.vocab == size) return true;
    weft_error_set(error, WEFT_BAD_ARGUMENT, r->vocabulary_path[1],
                   "has %d pieces, but the model of %s has %lld ids", size, r->saved->path,
                   (long long)r->traits.vocab);
    return false;
}

static bool load_vocabularies(trained_run *r, const char *folder, weft_error *error)
{
    const char *const *path = r->saved->vocabulary;
    if (!path[1]) return no_vocabulary(folder, error);
    memcpy(r->vocabulary_path, path, sizeof r->vocabulary_path);
    r->shared = !path[0];
    r->published = vocabulary_is_json(path[1]);
    r->target = vocabulary_open(path[1], error);
    r->source = r->shared || !r->target ? r->target : vocabulary_open(path[0], error);
    return r->source && check_size(r, error) && special_find(r, error);
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

/* The positions that a published model says that it was made for; 0: it does not. */
static int64_t published_length(const trained_run *run)
{
    for (size_t i = 0; i < run->model->n_options; i++)
        if (!strcmp(run->model->options[i].name, "max_positions"))
            return (int64_t)weft_model_value(&run->config, i);
    return 0;
}

bool trained_open(trained_run *run, const char *folder, const char *checkpoint, weft_error *error)
{
    *run = (trained_run){.saved = weft_saved_open(folder, checkpoint, error)};
    if (!run->saved) return false;
    run->params = run->saved->params;
    run->config = run->saved->config;
    run->model = run->config.model;
    run->traits = weft_model_traits_of(&run->config);
    run->documents = of_documents(run->params);
    run->trained_len = run->saved->trained_length;
    if (!load_vocabularies(run, folder, error)) return false;
    if (run->published && !run->trained_len) run->trained_len = published_length(run);
    return true;
}

void trained_close(trained_run *run)
{
    if (run->target != run->source) weft_tokenizer_free(run->target);
    weft_tokenizer_free(run->source);
    weft_saved_close(run->saved);
}

bool trained_folder(const trained_run *run, char folder[FILE_PATH_BYTES], weft_error *error)
{
    const char *path = run->vocabulary_path[1];
    const int n = (int)(weft__os_name(path) - path);
    if (snprintf(folder, FILE_PATH_BYTES, "%.*s.", n, path) < FILE_PATH_BYTES) return true;
    weft_error_set(error, WEFT_TOO_LARGE, path, "the path is too long");
    return false;
}

bool trained_ends_with(const trained_run *run, int32_t id)
{
    for (size_t i = 0; i < run->n_ends; i++)
        if (run->ends[i] == id) return true;
    return false;
}

/* ---- Positions ---- */

bool trained_has_positions(const trained_run *run, int64_t context, weft_error *error)
{
    const int64_t limit = run->traits.max_positions;
    if (context <= limit) return true;
    weft_error_set(error, WEFT_BAD_ARGUMENT, "--context",
                   "%s has %lld learned positions, fewer than %lld", run->model->name,
                   (long long)limit, (long long)context);
    return false;
}

int64_t trained_context(const trained_run *run, int64_t context, int64_t most, weft_error *error)
{
    const int64_t limit = run->traits.max_positions, trained = run->trained_len;
    if (context) return trained_has_positions(run, context, error) ? context : 0;
    if (trained && trained < most) most = trained;
    return most < limit ? most : limit;
}
