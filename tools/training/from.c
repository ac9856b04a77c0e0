/* Training that begins with the model of another run (run.from). It takes model, options,
 * vocabulary and parameters, but not texts, optimiser and length. */
#include "recipe_table.h"
#include "decoding/run.h"
#include "training.h"

#include "json/tree.h"
#include "quantize/quantize.h"

#include <stdlib.h>
#include <string.h>

bool training_open_from(training *t)
{
    t->from = calloc(1, sizeof *t->from);
    if (!t->from) return training_fail(t, WEFT_NO_MEMORY, "train", "out of memory");
    if (!trained_open(t->from, t->r.run_from, NULL, &t->error)) return false;
    t->from_len = (size_t)t->from->trained_len;
    return true;
}

/* Options of the model that the new texts determine. A model may have more ids than a published
 * vocabulary. */
static bool is_of_data(const training *t, const char *name)
{
    return !strcmp(name, "pad_id") || (!t->from->published && !strcmp(name, "vocab"));
}

static bool has_option(const recipe *r, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < r->n_model_options; i++)
        if (!strncmp(r->model_options[i], name, length) && r->model_options[i][length] == '=')
            return true;
    return false;
}

static bool take_model(training *t)
{
    recipe *r = &t->r;
    const weft_model *m = t->from->model;
    if (!r->model) r->model = m;
    if (r->model != m) {
        weft_error_set(&t->error, WEFT_BAD_ARGUMENT, r->run_from, "is of the model %s, not %s",
                       m->name, r->model->name);
        return false;
    }
    for (size_t i = 0; i < m->n_options; i++) {
        char text[WEFT_OPTIONS_TEXT + 64], value[WEFT_OPTIONS_TEXT];
        if (is_of_data(t, m->options[i].name) || has_option(r, m->options[i].name)) continue;
        snprintf(text, sizeof text, "%s=%s", m->options[i].name,
                 weft_model_config_option_text(&t->from->config, i, value, sizeof value));
        if (!recipe_take_model_option(r, text))
            return training_fail(t, WEFT_NO_MEMORY, "train", "out of memory");
    }
    return true;
}

/* Takes a vocabulary of the run, as if --vocab-file had named it. */
static bool take_vocabulary(training *t, char **file, const char *path, const char *option)
{
    if ((*file)[0] && strcmp(*file, path) != 0) {
        weft_error_set(&t->error, WEFT_BAD_ARGUMENT, "train",
                       "--%s cannot be chosen: the parameters of %s belong to its own vocabulary",
                       option, t->r.run_from);
        return false;
    }
    return recipe_set_text(file, path) ||
           training_fail(t, WEFT_NO_MEMORY, "train", "out of memory");
}

static bool take_vocabularies(training *t)
{
    recipe *r = &t->r;
    const trained_run *from = t->from;
    if (from->published && (from->traits.source_vocab || !from->traits.causal)) {
        weft_error_set(
            &t->error, WEFT_BAD_ARGUMENT, from->vocabulary_path[1],
            "weft train reads vocabularies of this kind for models that predict the next "
            "token only");
        return false;
    }
    int source = spm_size(from->source), target = spm_size(from->target);
    r->vocabulary_shared = from->shared;
    r->vocabulary_size = source > target ? source : target;
    if (from->published) r->vocabulary_size = from->traits.vocab;
    if (from->shared)
        return take_vocabulary(t, &r->vocabulary_file, from->vocabulary_path[1], "vocab-file");
    return take_vocabulary(t, &r->vocabulary_source_file, from->vocabulary_path[0],
                           "source-vocab-file") &&
           take_vocabulary(t, &r->vocabulary_target_file, from->vocabulary_path[1],
                           "target-vocab-file");
}

/* Takes the way in which text becomes rows, unless the user chose another. Examples have their own. */
static bool take_rows(training *t)
{
    static const recipe_key keys[] = {RECIPE_data_unit, RECIPE_batches_mode,
                                      RECIPE_batches_lengths};
    const char *text = weft_params_meta(t->from->params, "recipe");
    if (!text || training_reads_examples(&t->r)) return true;
    cJSON *json = weft__json_parse(text, strlen(text), NULL);
    for (size_t i = 0; json && i < sizeof keys / sizeof *keys; i++)
        if (!recipe_is_set(&t->r, keys[i])) recipe_take_json(&t->r, keys[i], json);
    cJSON_Delete(json);
    return true;
}

bool training_take_from(training *t)
{
    recipe *r = &t->r;
    if (!r->run_from[0]) return true;
    return recipe_resolve(r, &t->error) && training_open_from(t) &&
           (r->lora_rank ||
            weft__quantized_refuse(t->from->params, r->run_from, &t->error) == WEFT_OK) &&
           take_model(t) && take_vocabularies(t) && take_rows(t);
}

/* ---- Parameters ---- */

/* The parameters of the model, new, in a store of their own. */
static weft_params *wanted_params(training *t)
{
    const recipe *r = &t->r;
    weft_built built;
    weft_params *params = weft_params_new();
    weft_graph *g = weft_graph_new();
    if (!params || !g) {
        training_fail(t, WEFT_NO_MEMORY, "train", "out of memory");
    } else if (weft_model_build_text(g, r->model, (const char *const *)r->model_options,
                                     r->n_model_options, true, &built, &t->error) == WEFT_OK) {
        weft_params_init(params, g, (uint64_t)r->run_seed, &t->error);
    }
    weft_graph_free(g);
    if (t->error.status == WEFT_OK) return params;
    weft_params_free(params);
    return NULL;
}

static bool copy_param(training *t, const char *name, const weft_tensor *model)
{
    char has[128], wants[128];
    weft_tensor from, to;
    weft_params_find(t->from->params, name, &from);
    if (from.dtype != model->dtype || !weft_shape_equal(from.shape, model->shape)) {
        weft_error_set(&t->error, WEFT_BAD_SHAPE, t->r.run_from,
                       "%s is %s %s there and %s %s in the model: only options that do not change "
                       "parameters can be changed",
                       name, weft_dtype_name(from.dtype),
                       weft_shape_text(from.shape, has, sizeof has), weft_dtype_name(model->dtype),
                       weft_shape_text(model->shape, wants, sizeof wants));
        return false;
    }
    if (weft_params_add(t->params, name, from.dtype, from.shape, &to, &t->error) != WEFT_OK)
        return false;
    memcpy(to.data, from.data, weft_tensor_bytes(from.dtype, from.shape));
    return true;
}

static size_t count_model(const weft_params *params)
{
    size_t n = 0;
    for (size_t i = 0; i < weft_params_count(params); i++)
        n += weft_params_key(params, i).kind == WEFT_STATE_MODEL;
    return n;
}

bool training_begin_with(training *t)
{
    if (!t->from || t->resume || t->r.lora_rank) return true;
    weft_params *wanted = wanted_params(t);
    weft_tensor model, from;
    size_t taken = 0;
    bool good = wanted != NULL;
    for (size_t i = 0; good && i < weft_params_count(wanted); i++) {
        const char *name = weft_params_name(wanted, i);
        weft_params_find(wanted, name, &model);
        if (!weft_params_find(t->from->params, name, &from)) continue;
        taken++;
        good = copy_param(t, name, &model);
    }
    if (good && !taken)
        good = training_fail(t, WEFT_BAD_ARGUMENT, t->r.run_from, "has no parameter of the model");
    if (good)
        tool_print_line(stderr, "%s: begins with %zu of its %zu tensors; %zu of the model are new",
                        t->r.run_from, taken, count_model(t->from->params),
                        weft_params_count(wanted) - taken);
    weft_params_free(wanted);
    trained_close(t->from);
    free(t->from);
    t->from = NULL;
    return good;
}
