/* Checkpoints: the states of a graph, and the graph of a saved model with inputs and outputs. */
#include "tool.h"

#include "training/saved.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Makes rows no longer than the model has positions. */
static void cap_lengths(weft_model_config *config)
{
    weft_batch_shape *shape = &config->build.shape;
    const int64_t longest = weft_model_traits_of(config).max_positions;
    if (shape->source_len > longest) shape->source_len = longest;
    if (shape->target_len > longest) shape->target_len = longest;
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
    if (status == WEFT_OK) status = weft__saved_judge(&match, path, error);
    weft_load_report_free(&r);
    return status;
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
