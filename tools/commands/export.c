/* weft export: writes a model of the list, a trained run or an ONNX file as an ONNX file. */
#include "decoding/run.h"
#include "quantize/quantize.h"
#include "tool.h"

#include "base/text.h"
#include "base/platform.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SIZES 8

typedef struct arguments {
    model_args model;
    const char *run;               /* a folder of weft train; NULL: the model */
    char onnx[4096], fitted[4096]; /* the file and the checkpoint of a run of weft fit; "" */
    const char *sizes[MAX_SIZES];
    size_t n_sizes;
    const char *out, *checkpoint;
    weft_onnx_save_options save;
    uint64_t seed;
    bool loss;
} arguments;

/* ---- Arguments ---- */

static bool is_folder(const char *path)
{
    os_facts facts;
    return weft__os_facts(path, &facts) && facts.kind == OS_FOLDER;
}

static void take_argument(void *into, char *text, const tool_parser *parser)
{
    arguments *a = into;
    if (a->run) {
        if (a->n_sizes == MAX_SIZES) tool_usage_error(parser, "more than %d sizes", MAX_SIZES);
        a->sizes[a->n_sizes++] = text;
    } else if (!tool_model_name(&a->model) && !weft_model_find(text) && is_folder(text)) {
        if (tool_find_fit(text, a->onnx, a->fitted)) {
            a->model.onnx.path = a->onnx;
            a->model.evaluated = true;
        } else {
            a->run = text;
        }
    } else {
        tool_take_model_arg(&a->model, text, parser);
    }
}

static void check(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    if (!a->run && !tool_model_name(&a->model))
        tool_usage_error(parser, "MODEL, RUN or FILE is missing");
    if (a->checkpoint && !a->run && !a->model.evaluated)
        tool_usage_error(parser, "--checkpoint needs RUN");
    if (a->loss && a->model.onnx.path) tool_usage_error(parser, "FILE.onnx has no loss");
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option options[] = {
    {NULL, "FILE.onnx", FIELD(out), "the file to write", .letter = 'o', .required = true,
     .group = 1},
    {"opset", "N", FIELD(save.opset), "ONNX's version of operators, 17 to 23", 17, 23, .group = 1},
    {"external", NULL, FIELD(save.external),
     "write the parameters to FILE.onnx.data; always done above 2 GB", .group = 1},
    {"loss", NULL, FIELD(loss), "export the loss too, with the targets as an input", .group = 1},
    {"checkpoint", "FILE", FIELD(checkpoint),
     "parameters of RUN (default: RUN/best.safetensors if it exists, else RUN/model.safetensors)",
     .group = 2},
    {"seed", "N", FIELD(seed), "of the first parameters of MODEL", 0, 0x1p60, .group = 2},
    {TOOL_INCLUDED(arguments, model, tool_model_options), .group = 2},
    {0}};

static const tool_command command = {
    .options = options,
    .usage = "MODEL [KEY=VALUE...] -o FILE.onnx\nRUN [KEY=VALUE...] -o FILE.onnx\nFILE.onnx -o "
             "FILE.onnx",
    .doc = "Writes a model as an ONNX file: a model of the list with its first parameters, a "
           "trained run (the folder of `weft train` or `weft fit`) or an ONNX file.",
    .notes = "Shapes are fixed in the file: give the sizes of the batch as KEY=VALUE (see `weft "
             "models`), or --batch and --dim for a FILE. Dropout is left out.",
    .argument = take_argument,
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
    weft_params *params = weft_params_new();
    if (!params) return weft_error_set(error, WEFT_NO_MEMORY, "export", "out of memory");
    weft_status status = tool_build_args(&a->model, false, &m, error);
    if (status == WEFT_OK) {
        if (m.file) status = weft_onnx_copy_weights(m.file, params, error);
        if (status == WEFT_OK && a->model.evaluated)
            status =
                tool_load_states(params, m.graph, a->checkpoint ? a->checkpoint : a->fitted, error);
        if (status == WEFT_OK) status = weft_params_init(params, m.graph, a->seed, error);
        if (status == WEFT_OK)
            status = m.file ? save_file(a, &m, params, error)
                            : save_listed(a, m.graph, &m.built, params, error);
        tool_free_model(&m);
    }
    weft_params_free(params);
    return status;
}

/* The sizes of the batch, "key=value"; all other options are the run's. */
static weft_status take_sizes(const arguments *a, trained_run *run, weft_error *error)
{
    weft_model_config sizes;
    for (size_t i = 0; i < a->n_sizes; i++) {
        const size_t length = strcspn(a->sizes[i], "=");
        bool found = false;
        for (const weft_model_option *s = run->model->sizes;
             s < run->model->sizes + WEFT_MODEL_SIZES && s->name; s++)
            found |= strlen(s->name) == length && !strncmp(s->name, a->sizes[i], length);
        if (!found)
            return weft_error_set(
                error, WEFT_NOT_FOUND, a->sizes[i],
                "is not a batch size of \"%s\"; all other options are those of the run",
                run->model->name);
    }
    if (weft_model_parse(run->model, a->sizes, a->n_sizes, &sizes, error) == WEFT_OK)
        run->config.build.shape = sizes.build.shape;
    return error->status;
}

static weft_status export_run(const arguments *a, weft_error *error)
{
    trained_run run;
    weft_built built;
    weft_graph *g = weft_graph_new();
    if (!g) return weft_error_set(error, WEFT_NO_MEMORY, "export", "out of memory");
    if (trained_open(&run, a->run, a->checkpoint, error) &&
        weft__quantized_refuse(run.params, a->run, error) == WEFT_OK &&
        take_sizes(a, &run, error) == WEFT_OK) {
        built = weft_model_build(g, &run.config);
        if (tool_take_error(weft_graph_error(g), error) == WEFT_OK)
            save_listed(a, g, &built, run.params, error);
    }
    trained_close(&run);
    weft_graph_free(g);
    return error->status;
}

/* ---- The command ---- */

/* Fails if -o names a file that is read. */
static weft_status check_output(const arguments *a, weft_error *error)
{
    char of_run[4096] = "";
    const char *inputs[] = {a->fitted, a->checkpoint, of_run};
    if (a->run) weft_saved_path(a->run, of_run, sizeof of_run, NULL);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (inputs[i] && tool_check_output(a->out, inputs[i], error) != WEFT_OK) break;
    return error->status;
}

int cmd_export(int argc, char **argv)
{
    arguments a = {.seed = 1, .save = {.opset = 17}};
    weft_error error = {0};
    tool_parse(&command, argc, argv, &a);
    a.model.onnx.out = a.out;
    weft_status status = check_output(&a, &error);
    if (status == WEFT_OK) status = a.run ? export_run(&a, &error) : export_model(&a, &error);
    return status == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
}
