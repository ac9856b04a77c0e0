/* What a command that writes a model reads: MODEL, FILE.onnx, or RUN, the folder or a checkpoint of
 * a run. */
#include "tool.h"

#include "base/platform.h"

#include <string.h>

static bool is_run(const char *text)
{
    os_facts facts;
    return tool_ends_with(text, ".safetensors") ||
           (!weft_model_find(text) && weft__os_facts(text, &facts) && facts.kind == OS_FOLDER);
}

static void take_argument(void *into, char *text, const tool_parser *parser)
{
    source_args *a = into;
    if (a->run) {
        if (a->n_sizes == TOOL_MAX_SIZES)
            tool_usage_error(parser, "more than %d sizes", TOOL_MAX_SIZES);
        a->sizes[a->n_sizes++] = text;
    } else if (tool_model_name(&a->model) || !is_run(text)) {
        tool_take_model_arg(&a->model, text, parser);
    } else if (tool_find_fit(text, a->onnx, a->fitted)) {
        a->model.onnx.path = a->onnx;
        a->model.evaluated = true;
    } else {
        a->run = text;
    }
}

static void check(void *into, const tool_parser *parser)
{
    const source_args *a = into;
    if (!a->run && !tool_model_name(&a->model))
        tool_usage_error(parser, "MODEL, RUN or FILE.onnx is missing");
    if (a->checkpoint && !a->run && !a->model.evaluated)
        tool_usage_error(parser, "--checkpoint needs RUN");
}

static const tool_option options[] = {
    {"checkpoint", "FILE", TOOL_FIELD(source_args, checkpoint),
     "parameters of RUN (default: RUN/best.safetensors if it exists, else RUN/model.safetensors)"},
    {"seed", "N", TOOL_FIELD(source_args, seed), "of the first parameters of MODEL", 0, 0x1p60},
    {TOOL_INCLUDED(source_args, model, tool_model_options)},
    {0}};

const tool_command tool_source_options = {
    .options = options, .argument = take_argument, .check = check};

const char *tool_source_weights(const source_args *a)
{
    return a->checkpoint ? a->checkpoint : a->fitted;
}

weft_status tool_take_run_sizes(const source_args *a, weft_model_config *config, weft_error *error)
{
    const weft_model *model = config->model;
    weft_model_config sizes;
    for (size_t i = 0; i < a->n_sizes; i++) {
        const size_t length = strcspn(a->sizes[i], "=");
        bool found = false;
        for (const weft_model_option *s = model->sizes;
             s < model->sizes + WEFT_MODEL_SIZES && s->name; s++)
            found |= strlen(s->name) == length && !strncmp(s->name, a->sizes[i], length);
        if (!found)
            return weft_error_set(
                error, WEFT_NOT_FOUND, a->sizes[i],
                "is not a batch size of \"%s\"; all other options are those of the run",
                model->name);
    }
    if (weft_model_parse(model, a->sizes, a->n_sizes, &sizes, error) == WEFT_OK)
        config->build.shape = sizes.build.shape;
    return error->status;
}

weft_status tool_check_source_output(const char *out, const source_args *a, weft_error *error)
{
    char of_run[4096] = "";
    const char *inputs[] = {a->fitted, a->checkpoint, of_run};
    if (a->run) weft_saved_path(a->run, of_run, sizeof of_run, NULL);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (inputs[i] && *inputs[i] && tool_check_output(out, inputs[i], error) != WEFT_OK)
            return error->status;
    return WEFT_OK;
}
