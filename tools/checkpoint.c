/* Checkpoints: finds the file of a run and the model that it names, and builds that model's graph
 * with inputs and outputs. */
#include "tool.h"

#include "base/match.h"
#include "quantize/quantize.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

weft_status tool_checkpoint_path(const char *run, char path[4096], weft_error *error)
{
    static const char *const names[] = {"best.safetensors", "model.safetensors"};
    struct stat info;
    int n = snprintf(path, 4096, "%s", run);
    bool found = stat(run, &info) == 0 && !S_ISDIR(info.st_mode);
    for (size_t i = 0; !found && i < sizeof names / sizeof *names; i++) {
        n = snprintf(path, 4096, "%s/%s", run, names[i]);
        found = n < 4096 && access(path, F_OK) == 0;
    }
    if (found && n < 4096) return WEFT_OK;
    return weft_error_set(error, WEFT_NOT_FOUND, run,
                          "is neither a checkpoint nor a folder with a model.safetensors");
}

weft_status tool_checkpoint_model(const weft_params *params, const char *path, const char *more,
                                  weft_model_config *config, weft_error *error)
{
    const char *stored = weft_params_meta(params, "model_options");
    const weft_model *model = weft_model_find(weft_params_meta(params, "model"));
    char texts[TOOL_OPTIONS_TEXT];
    const char *options[WEFT_MODEL_OPTIONS + 1];
    if (!model || !stored)
        return weft_error_set(error, WEFT_BAD_FILE, path, "does not name its model");
    snprintf(texts, sizeof texts, "%s", stored);
    size_t n = tool_split_options(texts, options);
    if (more) options[n++] = more;
    return weft_model_parse(model, options, n, config, error);
}

/* ---- The tensors of a model ---- */

/* Makes rows no longer than the model has positions. */
static void cap_lengths(weft_model_config *config)
{
    weft_batch_shape *shape = &config->build.shape;
    const int64_t longest = weft_model_traits_of(config).max_positions;
    if (shape->source_len > longest) shape->source_len = longest;
    if (shape->target_len > longest) shape->target_len = longest;
}

/* Names of tensors. */
typedef struct name_list {
    const char **at;
    char (*forms)[QUANTIZED_NAME]; /* those of quantised forms */
    size_t n, n_forms;
} name_list;

/* Adds the three names of a state's quantised form if the store has one of them; false if it has
 * none. */
static bool add_form(name_list *l, const weft_params *params, const char *state, bool by_rows)
{
    static const char *const tensors[] = {"q", "scale", "zero"};
    bool has = false;
    for (size_t i = 0; i < 3; i++)
        has |= weft__quantized_name(l->forms[l->n_forms + i], state, by_rows, tensors[i]) &&
               weft_params_find(params, l->forms[l->n_forms + i], NULL);
    if (!has) return false;
    for (size_t i = 0; i < 3; i++) l->at[l->n++] = l->forms[l->n_forms++];
    return true;
}

/* Lists the tensors that a store with the model's parameters has: a state may be quantised, by
 * columns, by rows or both. */
static void list_wanted(name_list *l, const weft_params *params, const weft_graph *g,
                        const weft_value *states, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *name = weft_name_of(g, states[i]);
        bool has = weft_params_find(params, name, NULL);
        if (has) l->at[l->n++] = name;
        has |= add_form(l, params, name, false);
        has |= add_form(l, params, name, true);
        if (!has) l->at[l->n++] = name;
    }
}

static void list_found(name_list *l, const weft_params *params)
{
    for (size_t i = 0; i < weft_params_count(params); i++)
        if (weft_params_key(params, i).kind == WEFT_STATE_MODEL)
            l->at[l->n++] = weft_params_name(params, i);
}

static weft_status judge(const name_match *match, const char *path, weft_error *error)
{
    char text[300];
    if (!match->n_missing && !match->n_unexpected) return WEFT_OK;
    weft__match_text(match, "tensors of the model", text, sizeof text);
    return weft_error_set(error, WEFT_BAD_FILE, path, "%s", text);
}

weft_status tool_check_states(const weft_params *params, const weft_graph *graph, const char *path,
                              weft_error *error)
{
    name_match match = {NULL, NULL, NULL, 0, 0, 0};
    if (tool_take_error(weft_graph_error(graph), error) != WEFT_OK) return error->status;
    size_t n;
    const weft_value *states = weft_graph_states(graph, &n);
    name_list wanted = {.at = calloc(7 * n + 1, sizeof *wanted.at),
                        .forms = calloc(6 * n + 6, QUANTIZED_NAME)};
    name_list found = {.at = calloc(weft_params_count(params) + 1, sizeof *found.at)};
    bool good = wanted.at && wanted.forms && found.at;
    if (good) {
        list_wanted(&wanted, params, graph, states, n);
        list_found(&found, params);
        good = weft__match_names(&match, wanted.at, wanted.n, found.at, found.n);
    }
    if (!good) weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    if (good) judge(&match, path, error);
    weft__match_free(&match);
    free(wanted.at);
    free(wanted.forms);
    free(found.at);
    return error->status;
}

weft_status tool_check_model(const weft_params *params, const weft_model_config *config,
                             const char *path, weft_error *error)
{
    weft_model_config any = *config;
    weft_graph *g = weft_graph_new();
    if (!g) return weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    cap_lengths(&any);
    weft_model_build(g, &any);
    const weft_status status = tool_check_states(params, g, path, error);
    weft_graph_free(g);
    return status;
}

weft_status tool_load_states(weft_params *params, const weft_graph *graph, const char *path,
                             weft_error *error)
{
    const weft_load_options o = {graph, &weft_model_states, true, true};
    weft_load_report r;
    weft_status status = weft_params_load_with(params, path, &o, &r, error);
    const name_match match = {(const char **)r.loaded,
                              (const char **)r.missing,
                              (const char **)r.unexpected,
                              r.n_loaded,
                              r.n_missing,
                              r.n_unexpected};
    if (status == WEFT_OK) status = judge(&match, path, error);
    weft_load_report_free(&r);
    return status;
}

weft_status tool_load_checkpoint(const char *run, weft_params *params, weft_model_config *config,
                                 weft_error *error)
{
    char path[4096];
    weft_status status = tool_checkpoint_path(run, path, error);
    if (status == WEFT_OK) status = weft_params_load_some(params, path, &weft_model_states, error);
    if (status == WEFT_OK) status = tool_checkpoint_model(params, path, NULL, config, error);
    return status == WEFT_OK ? tool_check_model(params, config, path, error) : status;
}

/* ---- Inputs and outputs ---- */

static void add(const weft_graph *g, weft_value value, const char *name, weft_onnx_value *of,
                weft_value *values, size_t *n)
{
    if (!weft_is_value(value)) return;
    of[*n] = (weft_onnx_value){name, weft_dtype_of(g, value), weft_shape_of(g, value)};
    values[(*n)++] = value;
}

/* Takes the sizes of a batch from the shape of an array, where it is one of token ids or vectors.
 */
static void take_sizes(const weft_params *arrays, const char *name, int64_t *rows, int64_t *length)
{
    weft_tensor t;
    if (!weft_params_find(arrays, name, &t) || t.shape.rank < 2) return;
    *rows = t.shape.dim[0];
    *length = t.shape.dim[1];
}

/* Sets the sizes that the command line names. */
static weft_status set_sizes(weft_model_config *config, const onnx_args *sizes, weft_error *error)
{
    const char *model = config->model->name;
    const weft_model_option *known = config->model->sizes;
    if (sizes->constants.n)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "--constant", "is for ONNX files");
    if (sizes->batch) config->build.shape.rows = sizes->batch;
    for (size_t d = 0; d < sizes->n_dims; d++) {
        const char *name = sizes->dims[d].name ? sizes->dims[d].name : sizes->dims[d].input;
        int i = 0;
        while (i < WEFT_MODEL_SIZES && known[i].name && strcmp(known[i].name, name) != 0) i++;
        if (i == WEFT_MODEL_SIZES || !known[i].name)
            return weft_error_set(error, WEFT_NOT_FOUND, model,
                                  "has no size \"%s\" (see `weft models %s`)", name, model);
        weft_model_option_set_value(&known[i], &config->build.shape, (double)sizes->dims[d].size);
    }
    return WEFT_OK;
}

weft_status tool_build_checkpoint(weft_model_config *config, const onnx_args *sizes,
                                  const weft_params *arrays, checkpoint_graph *out,
                                  weft_error *error)
{
    weft_batch_shape *shape = &config->build.shape;
    const weft_model_traits traits = weft_model_traits_of(config);
    weft_model_io io;
    *out = (checkpoint_graph){.graph = weft_graph_new()};
    cap_lengths(config);
    if (set_sizes(config, sizes, error) != WEFT_OK) return error->status;
    if (traits.source_vocab) take_sizes(arrays, "source", &shape->rows, &shape->source_len);
    take_sizes(arrays, "memory", &shape->rows, &shape->source_len);
    take_sizes(arrays, "input", &shape->rows, &shape->target_len);
    take_sizes(arrays, "target_in", &shape->rows, &shape->target_len);
    weft_graph *g = out->graph;
    if (!g) return weft_error_set(error, WEFT_NO_MEMORY, "run", "out of memory");
    io = weft_model_build(g, config);
    if (weft_graph_status(g) != WEFT_OK) return tool_take_error(weft_graph_error(g), error);
    add(g, io.source, "source", out->inputs_of, out->inputs, &out->n_inputs);
    add(g, io.input, "input", out->inputs_of, out->inputs, &out->n_inputs);
    add(g, io.memory, "memory", out->inputs_of, out->inputs, &out->n_inputs);
    add(g, io.target_in, "target_in", out->inputs_of, out->inputs, &out->n_inputs);
    if (weft_params_find(arrays, "token_types", NULL)) /* zeros if they are not given */
        add(g, io.token_types, "token_types", out->inputs_of, out->inputs, &out->n_inputs);
    add(g, io.output, io.vocab ? "logits" : "output", out->outputs_of, out->outputs,
        &out->n_outputs);
    add(g, io.hidden, "hidden", out->outputs_of, out->outputs, &out->n_outputs);
    add(g, io.pooled, "pooled", out->outputs_of, out->outputs, &out->n_outputs);
    return WEFT_OK;
}
