/* weft export: writes a model of the list, a trained run or an ONNX file as an ONNX file. */
#include "quantize/quantize.h"
#include "tool.h"

#include "base/text.h"
#include "base/platform.h"

#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    source_args from;
    const char *out;
    weft_onnx_save_options save;
    bool loss;
} arguments;

/* ---- Arguments ---- */

static void check(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    if (a->loss && a->from.model.onnx.path) tool_usage_error(parser, "FILE.onnx has no loss");
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option options[] = {
    {NULL, "FILE.onnx", FIELD(out), "the file to write", .letter = 'o', .required = true,
     .group = 1},
    {"opset", "N", FIELD(save.opset), "ONNX's version of operators, 17 to 23", 17, 23, .group = 1},
    {"external", NULL, FIELD(save.external),
     "write the parameters to FILE.onnx.data; always done above 2 GB", .group = 1},
    {"loss", NULL, FIELD(loss), "export the loss too, with the targets as an input", .group = 1},
    {TOOL_INCLUDED(arguments, from, tool_source_options), .group = 2},
    {0}};

static const tool_command command = {
    .options = options,
    .usage = "MODEL [KEY=VALUE...] -o FILE.onnx\nRUN [KEY=VALUE...] -o FILE.onnx\nFILE.onnx -o "
             "FILE.onnx",
    .doc = "Writes a model as an ONNX file: a model of the list with its first parameters, a "
           "trained run (the folder of `weft train` or `weft fit`) or an ONNX file.",
    .notes = "Shapes are fixed in the file: give the sizes of the batch as KEY=VALUE (see `weft "
             "models`), or --batch and --dim for a FILE. Dropout is left out.",
    .check = check};

/* ---- Models ---- */

static weft_status save(const arguments *a, const weft_graph *g, const weft_value *outputs,
                        const char *const *names, size_t n, const weft_params *params,
                        weft_error *error)
{
    os_facts facts;
    weft_onnx_save_options o = a->save;
    o.output_names = names;
    if (weft_onnx_save(g, outputs, n, params, a->out, &o, error) != WEFT_OK) return error->status;
    size_t parameters = 0;
    for (size_t i = 0; i < weft_params_count(params); i++) {
        weft_tensor t;
        const char *name = weft_params_name(params, i);
        if (weft_params_find(params, name, &t) && weft_is_value(weft_graph_find(g, name)))
            parameters += (size_t)weft_shape_numel(t.shape);
    }
    const double bytes = weft__os_facts(a->out, &facts) ? (double)facts.bytes : 0;
    char size[TEXT_SIZE_BYTES];
    tool_print_line(stdout, "%s: opset %d, %zu parameters, %s", a->out, a->save.opset, parameters,
                    weft__text_from_bytes(bytes, size));
    return WEFT_OK;
}

/* A model of the list: its output, and the loss if that is wanted. */
static weft_status save_listed(const arguments *a, const weft_graph *g, const weft_built *built,
                               const weft_params *params, weft_error *error)
{
    static const char *const names[2] = {NULL, "loss"};
    const weft_value outputs[2] = {built->outputs[0], built->loss};
    if (a->loss && !weft_is_value(built->loss))
        return weft_error_set(error, WEFT_NOT_FOUND, "--loss", "the model has no loss");
    return save(a, g, outputs, names, a->loss ? 2 : 1, params, error);
}

static weft_status save_file(const arguments *a, const built_model *m, const weft_params *params,
                             weft_error *error)
{
    size_t n;
    const weft_onnx_value *outputs = weft_onnx_outputs(m->file, &n);
    const char **names = calloc(n + 1, sizeof *names);
    if (!names) return weft_error_set(error, WEFT_NO_MEMORY, "export", "out of memory");
    for (size_t i = 0; i < n; i++) names[i] = outputs[i].name;
    const weft_status status = save(a, m->graph, m->outputs, names, n, params, error);
    free(names);
    return status;
}

/* MODEL with its first parameters, or FILE.onnx with its weights or those of a run. */
static weft_status export_model(const arguments *a, weft_error *error)
{
    built_model m;
    const source_args *from = &a->from;
    weft_params *params = weft_params_new();
    if (!params) return weft_error_set(error, WEFT_NO_MEMORY, "export", "out of memory");
    weft_status status = tool_build_args(&from->model, false, &m, error);
    if (status == WEFT_OK) {
        if (m.file) status = weft_onnx_share_weights(m.file, params, error);
        if (status == WEFT_OK && from->model.evaluated)
            status = tool_load_states(params, m.graph, tool_source_weights(from), error);
        if (status == WEFT_OK) status = weft_params_init(params, m.graph, from->seed, error);
        if (status == WEFT_OK)
            status = m.file ? save_file(a, &m, params, error)
                            : save_listed(a, m.graph, &m.built, params, error);
        tool_free_model(&m);
    }
    weft_params_free(params);
    return status;
}

static weft_status export_run(const arguments *a, weft_error *error)
{
    weft_graph *g = weft_graph_new();
    if (!g) return weft_error_set(error, WEFT_NO_MEMORY, "export", "out of memory");
    weft_saved_model *run = weft_saved_open(a->from.run, a->from.checkpoint, error);
    if (run && weft__quantized_refuse(run->params, a->from.run, error) == WEFT_OK &&
        tool_take_run_sizes(&a->from, &run->config, error) == WEFT_OK) {
        const weft_built built = weft_model_build(g, &run->config);
        if (tool_take_error(weft_graph_error(g), error) == WEFT_OK)
            save_listed(a, g, &built, run->params, error);
    }
    weft_saved_close(run);
    weft_graph_free(g);
    return error->status;
}

/* ---- The command ---- */

int cmd_export(int argc, char **argv)
{
    arguments a = {.from.seed = 1, .save = {.opset = 17}};
    weft_error error = {0};
    tool_parse(&command, argc, argv, &a);
    a.from.model.onnx.out = a.out;
    weft_status status = tool_check_source_output(a.out, &a.from, &error);
    if (status == WEFT_OK) status = a.from.run ? export_run(&a, &error) : export_model(&a, &error);
    return status == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
}
