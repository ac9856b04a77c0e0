/* The architecture of transformers that a model of weft is written as. O(architectures x keys). */
#include "tables.h"

#include "json/tree.h"

#include <string.h>

/* Whether the model's name begins with that of the architecture's model: all transformer* have the
 * same options. */
static bool fits(const hf_architecture *a, const weft_model *m)
{
    return !strncmp(a->model, m->name, strlen(a->model));
}

/* Finds the architecture of that name, and its configuration. */
static cJSON *write_as(const weft_model_config *config, const char *name, const cJSON *before,
                       const hf_architecture **found, weft_error *error)
{
    const hf_architecture *a;
    for (size_t i = 0; (a = weft__hf_architecture_at(i)); i++) {
        if (strcmp(a->name, name) != 0) continue;
        *found = a;
        if (fits(a, config->model)) return weft__hf_write_config(a, config, before, error);
        weft_error_set(error, WEFT_BAD_ARGUMENT, config->model->name,
                       "cannot be written as %s, which is a %s", name, a->model);
        return NULL;
    }
    weft_error_set(error, WEFT_NOT_FOUND, name,
                   "unsupported architecture (see `weft convert --list`)");
    return NULL;
}

/* Finds the first architecture that has all options of the model. */
static cJSON *write_first(const weft_model_config *config, const hf_architecture **found,
                          weft_error *error)
{
    const hf_architecture *a;
    weft_error first = {0};
    for (size_t i = 0; (a = weft__hf_architecture_at(i)); i++) {
        weft_error *why = first.status == WEFT_OK ? &first : NULL;
        if (!fits(a, config->model)) continue;
        *found = a;
        cJSON *json = weft__hf_write_config(a, config, NULL, why);
        if (json) return json;
    }
    if (first.status == WEFT_OK)
        weft_error_set(error, WEFT_BAD_ARGUMENT, config->model->name,
                       "cannot be converted: no architecture of transformers has all its options");
    else
        weft_error_copy(error, &first);
    return NULL;
}

cJSON *weft__hf_choose(const weft_params *params, const weft_model_config *config,
                       const char *architecture, const hf_architecture **found, weft_error *error)
{
    const char *text = weft_params_meta(params, WEFT_HUGGINGFACE_CONFIG);
    cJSON *before = text ? weft__json_parse(text, strlen(text), NULL) : NULL, *json;
    const hf_architecture *was = before ? weft__hf_find_architecture(before, "", NULL) : NULL;
    if (!architecture && was) architecture = was->name;
    const bool same = was && architecture && !strcmp(was->name, architecture);
    json = architecture ? write_as(config, architecture, same ? before : NULL, found, error)
                        : write_first(config, found, error);
    cJSON_Delete(before);
    return json;
}
