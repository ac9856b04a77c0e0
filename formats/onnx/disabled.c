/* Replaces the import and export of ONNX files in a build without protobuf-c: every call fails. */
#include <weft/onnx.h>

#include <string.h>

static const char reason[] = "weft was built without protobuf-c (-Donnx)";

weft_onnx *weft_onnx_load(const char *path, const weft_onnx_options *options, weft_error *error)
{
    (void)options;
    weft_error_clear(error);
    weft_error_set(error, WEFT_NO_BACKEND, path, "%s", reason);
    return NULL;
}

weft_onnx *weft_onnx_load_from_memory(weft_memory_file from, const weft_onnx_options *options,
                                      weft_error *error)
{
    return weft_onnx_load(from.name ? from.name : "memory", options, error);
}

void weft_onnx_free(weft_onnx *model)
{
    (void)model;
}

int32_t weft_onnx_text_number(weft_onnx *model, const char *text)
{
    (void)model, (void)text;
    return -1;
}

const char *weft_onnx_text(const weft_onnx *model, int32_t number)
{
    (void)model, (void)number;
    return NULL;
}

const char *weft_onnx_data_file(const weft_onnx *model, size_t index)
{
    (void)model, (void)index;
    return NULL;
}

#define EMPTY_LIST(name)                                                                           \
    const weft_onnx_value *name(const weft_onnx *model, size_t *count)                             \
    {                                                                                              \
        (void)model;                                                                               \
        if (count) *count = 0;                                                                     \
        return NULL;                                                                               \
    }
EMPTY_LIST(weft_onnx_inputs)
EMPTY_LIST(weft_onnx_outputs)
EMPTY_LIST(weft_onnx_params)

weft_status weft_onnx_build(weft_graph *graph, const weft_onnx *model, int64_t batch,
                            weft_value *inputs, weft_value *outputs)
{
    (void)model, (void)batch, (void)inputs, (void)outputs;
    weft_graph_fail_in(graph, "weft_onnx_build", WEFT_NO_BACKEND, "%s", reason);
    return weft_graph_status(graph);
}

static weft_status build(void *context, weft_graph *graph, const weft_build_options *options,
                         weft_built *built)
{
    (void)options;
    return weft_onnx_build(graph, context, 0, built->inputs, built->outputs);
}

weft_builder weft_onnx_builder(const weft_onnx *model)
{
    (void)model;
    return (weft_builder){.name = "onnx", .build = build};
}

weft_status weft_onnx_output(const weft_onnx *model, weft_session *session,
                             const weft_value *outputs, size_t index, weft_tensor *tensor,
                             weft_error *error)
{
    (void)model, (void)session, (void)outputs, (void)index, (void)tensor;
    weft_error_clear(error);
    return weft_error_set(error, WEFT_NO_BACKEND, "weft_onnx_output", "%s", reason);
}

weft_status weft_onnx_copy_weights(const weft_onnx *model, weft_params *params, weft_error *error)
{
    (void)model, (void)params;
    weft_error_clear(error);
    return weft_error_set(error, WEFT_NO_BACKEND, "weft_onnx_copy_weights", "%s", reason);
}

weft_status weft_onnx_share_weights(weft_onnx *model, weft_params *params, weft_error *error)
{
    (void)model, (void)params;
    weft_error_clear(error);
    return weft_error_set(error, WEFT_NO_BACKEND, "weft_onnx_share_weights", "%s", reason);
}

weft_status weft_onnx_save(const weft_graph *graph, const weft_value *outputs, size_t n_outputs,
                           const weft_params *params, const char *path,
                           const weft_onnx_save_options *options, weft_error *error)
{
    (void)graph, (void)outputs, (void)n_outputs, (void)params, (void)options;
    weft_error_clear(error);
    return weft_error_set(error, WEFT_NO_BACKEND, path, "%s", reason);
}
