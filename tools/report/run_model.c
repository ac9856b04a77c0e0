/* The model of a run, in the shape, precision and memory of its training steps. See run_model.h. */
#include "run_model.h"

#include "zoo/registry.h"

#include <weft/saved.h>

#include <stddef.h>
#include <string.h>

static bool find_model(run_model *m, const char *folder, weft_error *error)
{
    if (tool_find_fit(folder, m->onnx, m->checkpoint)) {
        m->args.onnx.path = m->onnx;
        return true;
    }
    if (weft_saved_path(folder, m->checkpoint, sizeof m->checkpoint, NULL) != WEFT_OK ||
        weft_params_load_some(m->meta, m->checkpoint, &weft_model_states, error) != WEFT_OK)
        return false;
    const char *options = weft_params_meta(m->meta, "model_options");
    m->args.model = weft_model_find(weft_params_meta(m->meta, "model"));
    if (!m->args.model) return false; /* a folder of another program's checkpoint */
    snprintf(m->options, sizeof m->options, "%s", options ? options : "");
    m->args.n_options = weft__options_split(m->options, m->args.options, WEFT_MODEL_OPTIONS);
    weft_model_config config;
    return weft_saved_config(m->meta, m->checkpoint, &config, error) == WEFT_OK;
}

/* Adds the sizes of the shape to the options of a listed model, and clears those that the model
 * does not have. */
static void take_sizes(run_model *m)
{
    const weft_batch_shape wanted = m->shape;
    m->shape = (weft_batch_shape){0};
    for (int i = 0; i < WEFT_MODEL_SIZES && m->args.model->sizes[i].name; i++) {
        const weft_model_option *size = &m->args.model->sizes[i];
        const double value = weft_model_option_value(size, &wanted);
        if (value == 0 || m->args.n_options == WEFT_MODEL_OPTIONS) continue;
        weft_model_option_set_value(size, &m->shape, value);
        snprintf(m->sizes[i], sizeof *m->sizes, "%s=%.0f", size->name, value);
        m->args.options[m->args.n_options++] = m->sizes[i];
    }
}

static const cJSON *get(const cJSON *recipe, const char *section, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(recipe, section), key);
}

/* A text of the recipe; "" if there is none. */
static const char *get_text(const cJSON *recipe, const char *section, const char *key)
{
    const cJSON *item = get(recipe, section, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

/* A positive whole number of the recipe; 0 if there is none. */
static int64_t whole(const cJSON *item)
{
    const double x = cJSON_IsNumber(item) ? item->valuedouble : 0;
    return x >= 1 && x <= 1e9 ? (int64_t)x : 0;
}

/* Takes what the plan of a training step depends on. */
static void take_recipe(run_model *m, const cJSON *recipe)
{
    const cJSON *lengths = get(recipe, "batches", "lengths");
    const int64_t tokens = whole(get(recipe, "batches", "tokens")),
                  longest = whole(cJSON_GetArrayItem(lengths, cJSON_GetArraySize(lengths) - 1));
    m->shape.rows = whole(get(recipe, "fit", "rows"));
    if (tokens && longest) m->shape = tool_largest_batch(tokens, longest);
    if (m->args.model)
        take_sizes(m);
    else
        m->args.onnx.batch = m->shape.rows;
    const int precision = tool_choice(TOOL_PRECISIONS, get_text(recipe, "run", "precision"));
    m->args.plan.precision = precision < 0 ? WEFT_PRECISION_F32 : (weft_precision)precision;
    m->args.plan.keep_f32 = get_text(recipe, "run", "keep_f32");
    tool_read_bytes(get_text(recipe, "run", "memory"), &m->args.plan.memory_budget);
}

bool run_model_open(run_model *m, const char *folder, const cJSON *recipe, weft_error *error)
{
    *m = (run_model){.meta = weft_params_new()};
    if (!m->meta) {
        weft_error_set(error, WEFT_NO_MEMORY, folder, "out of memory");
        return false;
    }
    if (!find_model(m, folder, error)) return false;
    if (recipe) take_recipe(m, recipe);
    return true;
}

void run_model_close(run_model *m)
{
    weft_params_free(m->meta);
}
