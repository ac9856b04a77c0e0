/* Checkpoints: the file of a run, the model that it names, and that model as inputs and outputs. */
#include "tool.h"

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
                          "is no checkpoint, and no folder with a model.safetensors");
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

weft_status tool_load_checkpoint(const char *run, weft_params *params, weft_model_config *config,
                                 weft_error *error)
{
    char path[4096];
    weft_status status = tool_checkpoint_path(run, path, error);
    if (status == WEFT_OK) status = weft_params_load_some(params, path, &weft_model_states, error);
    return status == WEFT_OK ? tool_checkpoint_model(params, path, NULL, config, error) : status;
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
    if (!weft_params_get(arrays, name, &t) || t.shape.rank < 2) return;
    *rows = t.shape.dim[0];
    *length = t.shape.dim[1];
}

/* Sets the sizes that the command line names. */
static weft_status set_sizes(weft_model_config *config, const onnx_args *sizes, weft_error *error)
{
    const char *model = config->model->name;
    const weft_model_size *known = config->model->sizes;
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
        *(int64_t *)(void *)((char *)&config->build.shape + known[i].offset) = sizes->dims[d].size;
    }
    return WEFT_OK;
}

weft_status tool_build_checkpoint(weft_model_config *config, const onnx_args *sizes,
                                  const weft_params *arrays, checkpoint_graph *out,
                                  weft_error *error)
{
    weft_batch_shape *shape = &config->build.shape;
    const weft_model_traits traits = weft_model_get_traits(config);
    weft_model_io io;
    *out = (checkpoint_graph){.graph = weft_graph_new()};
    if (shape->source_len > traits.max_positions) shape->source_len = traits.max_positions;
    if (shape->target_len > traits.max_positions) shape->target_len = traits.max_positions;
    if (set_sizes(config, sizes, error) != WEFT_OK) return error->status;
    if (traits.source_vocab) take_sizes(arrays, "source", &shape->rows, &shape->source_len);
    take_sizes(arrays, "memory", &shape->rows, &shape->source_len);
    take_sizes(arrays, "input", &shape->rows, &shape->target_len);
    take_sizes(arrays, "target_in", &shape->rows, &shape->target_len);
    weft_graph *g = out->graph;
    if (!g) return weft_error_set(error, WEFT_NO_MEMORY, "run", "out of memory");
    if (weft_model_build(g, config, &io) != WEFT_OK)
        return tool_take_error(weft_graph_error(g), error);
    add(g, io.source, "source", out->inputs_of, out->inputs, &out->n_inputs);
    add(g, io.input, "input", out->inputs_of, out->inputs, &out->n_inputs);
    add(g, io.memory, "memory", out->inputs_of, out->inputs, &out->n_inputs);
    add(g, io.target_in, "target_in", out->inputs_of, out->inputs, &out->n_inputs);
    if (weft_params_get(arrays, "token_types", NULL)) /* zeros if they are not given */
        add(g, io.token_types, "token_types", out->inputs_of, out->inputs, &out->n_inputs);
    add(g, io.output, io.vocab ? "logits" : "output", out->outputs_of, out->outputs,
        &out->n_outputs);
    add(g, io.hidden, "hidden", out->outputs_of, out->outputs, &out->n_outputs);
    add(g, io.pooled, "pooled", out->outputs_of, out->outputs, &out->n_outputs);
    return WEFT_OK;
}
