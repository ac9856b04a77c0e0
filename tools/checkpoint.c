/* Checkpoints: the states of a graph, and the graph of a saved model with inputs and outputs. */
#include "tool.h"

#include "passes/lora.h"
#include "training/saved.h"

#include <weft/lora.h>

#include <stdlib.h>
#include <string.h>

/* Makes rows no longer than the model has positions. */
static void cap_lengths(weft_model_config *config)
{
    weft_batch_shape *shape = &config->build.shape;
    const int64_t longest = weft_model_traits_of(config).max_positions;
    if (shape->source_len > longest) shape->source_len = longest;
    if (shape->target_len > longest) shape->target_len = longest;
}

/* Adds the adapters of a checkpoint to the weights of a file, which the store has. */
static weft_status add_adapters(weft_params *params, const weft_graph *graph, const char *path,
                                weft_error *error)
{
    weft_params *adapters = weft_params_new();
    if (!adapters) return weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    if (weft_params_load_some(adapters, path, &weft_model_states, error) == WEFT_OK)
        weft_params_add_adapters(params, adapters, graph, error);
    weft_params_free(adapters);
    return error->status;
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
    if (status == WEFT_OK && weft_params_meta(params, LORA_META))
        status = add_adapters(params, graph, path, error);
    else if (status == WEFT_OK)
        status = weft__saved_judge(&match, path, error);
    weft_load_report_free(&r);
    return status;
}

/* ---- Inputs and outputs ---- */

/* Removes the inputs that a run does not feed: that of the loss, the last one, and token types if
 * there is no array of them. */
static void drop_inputs(weft_built *b, const weft_params *arrays)
{
    size_t n = 0;
    for (size_t i = 0; i + 1 < b->n_inputs; i++) {
        const char *name = b->input_names[i];
        if (!strcmp(name, "token_types") && !weft_params_find(arrays, name, NULL)) continue;
        b->inputs[n] = b->inputs[i];
        b->input_names[n++] = name;
    }
    b->n_inputs = n;
}

static weft_onnx_value describe(const weft_graph *g, const char *name, weft_value value)
{
    return (weft_onnx_value){
        .name = name, .dtype = weft_dtype_of(g, value), .shape = weft_shape_of(g, value)};
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
    weft_built *b = &out->built;
    *out = (checkpoint_graph){.graph = weft_graph_new()};
    cap_lengths(config);
    if (set_sizes(config, sizes, error) != WEFT_OK) return error->status;
    if (traits.source_vocab) take_sizes(arrays, "source", &shape->rows, &shape->source_len);
    take_sizes(arrays, "memory", &shape->rows, &shape->source_len);
    take_sizes(arrays, "input", &shape->rows, &shape->target_len);
    take_sizes(arrays, "target_in", &shape->rows, &shape->target_len);
    weft_graph *g = out->graph;
    if (!g) return weft_error_set(error, WEFT_NO_MEMORY, "run", "out of memory");
    *b = weft_model_build(g, config);
    if (weft_graph_status(g) != WEFT_OK) return tool_take_error(weft_graph_error(g), error);
    drop_inputs(b, arrays);
    for (size_t i = 0; i < b->n_inputs; i++)
        out->inputs_of[i] = describe(g, b->input_names[i], b->inputs[i]);
    for (size_t i = 0; i < b->n_outputs; i++)
        out->outputs_of[i] = describe(g, b->output_names[i], b->outputs[i]);
    return WEFT_OK;
}
