/* weft ops and weft models: lists of the ops and of the models. */
#include "tool.h"

#include <stdlib.h>
#include <string.h>

/* ---- ops ---- */

static const char *gradient_text(const weft_op *op)
{
    static const char *const texts[] = {[WEFT_GRADIENT_VJP] = "yes",
                                        [WEFT_GRADIENT_ZERO] = "zero",
                                        [WEFT_GRADIENT_NONE] = "none by design",
                                        [WEFT_GRADIENT_STRAIGHT] = "of a surrogate"};
    return texts[op->gradient];
}

static const tool_option ops_options[] = {{"json", NULL, .kind = TOOL_FLAG, .doc = "print JSON"},
                                          {0}};

int cmd_ops(int argc, char **argv)
{
    static const tool_command command = {
        .options = ops_options, .doc = "Lists the ops: name, inputs, gradient, what they compute."};
    bool json = false;
    tool_parse(&command, argc, argv, &json);
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        char inputs[16];
        snprintf(inputs, sizeof inputs, op->max_in == op->min_in ? "%d" : "%d+", op->min_in);
        if (!json) {
            printf("%-20s %-3s gradient: %-16s %s\n", op->name, inputs, gradient_text(op), op->doc);
            continue;
        }
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "name", op->name);
        cJSON_AddStringToObject(item, "inputs", inputs);
        cJSON_AddNumberToObject(item, "outputs", op->n_out);
        cJSON_AddStringToObject(item, "gradient", gradient_text(op));
        cJSON_AddStringToObject(item, "doc", op->doc);
        cJSON_AddItemToArray(list, item);
    }
    return json ? tool_print_json(list) : EXIT_GOOD;
}

/* ---- models ---- */

/* Facts about a model, from the graph of its default size. */
typedef struct model_facts {
    double parameters;
    weft_model_traits traits;
} model_facts;

static bool is_masked(const weft_model_traits *t)
{
    return t->vocab && !t->causal;
}

static weft_status find_facts(const weft_model *model, model_facts *facts, weft_error *error)
{
    built_model m;
    weft_model_config config;
    *facts = (model_facts){.parameters = 0};
    if (weft_model_parse(model, NULL, 0, &config, error) != WEFT_OK) return error->status;
    facts->traits = weft_model_traits_of(&config);
    if (tool_build(model, NULL, 0, false, &m, error) != WEFT_OK) return error->status;
    size_t n;
    const weft_value *params = weft_graph_params(m.graph, &n);
    for (size_t i = 0; i < n; i++)
        facts->parameters += (double)weft_shape_numel(weft_shape_of(m.graph, params[i]));
    weft_graph_free(m.graph);
    return error->status;
}

/* Row k of the options, and then of the sizes, of a model; NULL beyond the last. */
static const weft_model_option *row_at(const weft_model *model, size_t k)
{
    if (k < model->n_options) return &model->options[k];
    k -= model->n_options;
    return k < WEFT_MODEL_SIZES && model->sizes[k].name ? &model->sizes[k] : NULL;
}

/* Adds the default of row k. */
static void add_default(cJSON *json, const char *key, const weft_model *model, size_t k)
{
    const weft_model_option *o = row_at(model, k);
    char value[64];
    if (o->choices)
        cJSON_AddStringToObject(json, key,
                                weft_model_value_text(model, k, o->value, value, sizeof value));
    else
        cJSON_AddNumberToObject(json, key, o->value);
}

static void add_model(cJSON *list, const weft_model *model, double parameters)
{
    cJSON *item = cJSON_CreateObject(), *options = cJSON_AddObjectToObject(item, "options");
    cJSON_AddStringToObject(item, "name", model->name);
    cJSON_AddStringToObject(item, "doc", model->doc);
    cJSON_AddNumberToObject(item, "parameters", parameters);
    for (size_t k = 0; row_at(model, k); k++)
        add_default(options, row_at(model, k)->name, model, k);
    cJSON_AddItemToArray(list, item);
}

static void print_options(const weft_model *model)
{
    const weft_model_option *o;
    for (size_t k = 0; (o = row_at(model, k)); k++) {
        char value[64];
        weft_model_value_text(model, k, o->value, value, sizeof value);
        printf("    %-18s %-12s %s%s%s%s\n", o->name, value, o->doc, o->choices ? " (" : "",
               o->choices ? o->choices : "", o->choices ? ")" : "");
    }
    if (model->exposes_weights)
        printf("    %-18s %-12d %s\n", "weights", 0,
               "1: attention weights are values of their own, NAME.weights");
}

static int list_models(bool json)
{
    weft_error error = {0};
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    for (size_t i = 0; i < weft_model_count(); i++) {
        const weft_model *model = weft_model_at(i);
        model_facts facts;
        if (find_facts(model, &facts, &error) != WEFT_OK) {
            cJSON_Delete(list);
            return tool_fail(&error);
        }
        if (json) {
            add_model(list, model, facts.parameters);
            continue;
        }
        printf("%s: %s; %.0f parameters\n", model->name, model->doc, facts.parameters);
        print_options(model);
    }
    return json ? tool_print_json(list) : EXIT_GOOD;
}

/* ---- models NAME ---- */

#define MAX_USES 16

/* The commands that take the model or a run of it; returns how many. */
static size_t find_uses(const weft_model_traits *t, const char *uses[MAX_USES])
{
    size_t n = 0;
    uses[n++] = "dot";
    uses[n++] = "plan";
    uses[n++] = "profile";
    uses[n++] = "bench";
    uses[n++] = "check";
    uses[n++] = "export";
    if (t->vocab) uses[n++] = "train";
    if (t->classes) uses[n++] = "fit";
    if (t->decodable) uses[n++] = t->source_vocab ? "translate" : "generate";
    return n;
}

static cJSON *row_json(const weft_model *model, size_t k)
{
    const weft_model_option *o = row_at(model, k);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", o->name);
    add_default(json, "default", model, k);
    cJSON_AddStringToObject(json, "kind",
                            k >= model->n_options ? "size"
                            : o->choices          ? "choice"
                            : o->flag             ? "flag"
                            : o->real             ? "number"
                                                  : "whole number");
    cJSON *choices = o->choices ? cJSON_AddArrayToObject(json, "choices") : NULL;
    for (const char *at = o->choices; at;) {
        char value[64];
        size_t length = strcspn(at, "|");
        snprintf(value, sizeof value, "%.*s", (int)length, at);
        cJSON_AddItemToArray(choices, cJSON_CreateString(value));
        at = at[length] ? at + length + 1 : NULL;
    }
    cJSON_AddStringToObject(json, "doc", o->doc);
    return json;
}

static int print_model_json(const weft_model *model, const model_facts *facts,
                            const char *const *uses, size_t n)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", model->name);
    cJSON_AddStringToObject(json, "doc", model->doc);
    cJSON_AddNumberToObject(json, "parameters", facts->parameters);
    cJSON_AddBoolToObject(json, "masked", is_masked(&facts->traits));
    cJSON *commands = cJSON_AddArrayToObject(json, "commands");
    for (size_t i = 0; i < n; i++) cJSON_AddItemToArray(commands, cJSON_CreateString(uses[i]));
    cJSON *options = cJSON_AddArrayToObject(json, "options");
    for (size_t k = 0; row_at(model, k); k++) cJSON_AddItemToArray(options, row_json(model, k));
    return tool_print_json(json);
}

static int print_model(const weft_model *model, bool json)
{
    weft_error error = {0};
    model_facts facts;
    const char *uses[MAX_USES];
    if (find_facts(model, &facts, &error) != WEFT_OK) return tool_fail(&error);
    size_t n = find_uses(&facts.traits, uses);
    if (json) return print_model_json(model, &facts, uses, n);
    printf("%s: %s\n%.0f parameters\ncommands:", model->name, model->doc, facts.parameters);
    for (size_t i = 0; i < n; i++) printf("%s %s", i ? "," : "", uses[i]);
    printf("%s\noptions, with their defaults:\n",
           is_masked(&facts.traits) ? " (a masked language model)" : "");
    print_options(model);
    return EXIT_GOOD;
}

/* ---- A file ---- */

typedef const weft_onnx_value *file_list(const weft_onnx *model, size_t *count);

static void print_values(const weft_onnx *model, const char *title, file_list *list, cJSON *json)
{
    size_t n;
    const weft_onnx_value *values = list(model, &n);
    cJSON *array = cJSON_AddArrayToObject(json, title);
    if (!json && n) printf("%s:\n", title);
    for (size_t i = 0; i < n; i++) {
        const weft_onnx_value *v = &values[i];
        char shape[128];
        weft_shape_text(v->shape, shape, sizeof shape);
        cJSON *item = json ? cJSON_CreateObject() : NULL;
        cJSON_AddStringToObject(item, "name", v->name);
        cJSON_AddStringToObject(item, "dtype", weft_dtype_name(v->dtype));
        cJSON_AddStringToObject(item, "shape", shape);
        cJSON_AddItemToArray(array, item);
        if (!json)
            tool_print_line(stdout, "    %-30s %-4s %s", v->name, weft_dtype_name(v->dtype), shape);
    }
}

static int print_file(const onnx_args *args, bool json)
{
    weft_error error = {0};
    double numbers = 0;
    size_t n;
    weft_onnx *model = tool_load_onnx(args, &error);
    if (!model) return tool_fail(&error);
    const weft_onnx_value *params = weft_onnx_params(model, &n);
    for (size_t i = 0; i < n; i++) numbers += (double)weft_shape_numel(params[i].shape);
    cJSON *object = json ? cJSON_CreateObject() : NULL;
    cJSON_AddStringToObject(object, "name", args->path);
    cJSON_AddNumberToObject(object, "parameters", numbers);
    if (!json) tool_print_line(stdout, "%s: %.0f parameters", args->path, numbers);
    print_values(model, "inputs", weft_onnx_inputs, object);
    print_values(model, "outputs", weft_onnx_outputs, object);
    print_values(model, "weights", weft_onnx_params, object);
    weft_onnx_free(model);
    return json ? tool_print_json(object) : EXIT_GOOD;
}

/* ---- The command ---- */

typedef struct models_arguments {
    model_args model;
    bool json, summary, train;
    int depth;
} models_arguments;

static void take_model(void *into, char *text, const tool_parser *parser)
{
    models_arguments *a = into;
    if (tool_model_name(&a->model) && !strchr(text, '='))
        tool_usage_error(parser, "one model at a time");
    tool_take_model_arg(&a->model, text, parser);
}

static void check_models(void *into, const tool_parser *parser)
{
    const models_arguments *a = into;
    if (a->summary && (!tool_model_name(&a->model) || a->json))
        tool_usage_error(parser, "--summary takes a model, and is a text");
    if (!a->summary && (a->depth || a->train || a->model.n_options))
        tool_usage_error(parser, "--depth, --train and OPTION=VALUE need --summary");
}

#define FIELD(field) TOOL_FIELD(models_arguments, field)
static const tool_option models_options[] = {
    {"json", NULL, FIELD(json), "print JSON"},
    {"summary", NULL, FIELD(summary),
     "print the layers of the model: outputs, parameters and work"},
    {"depth", "N", FIELD(depth), "with --summary: layers of at most N components", 1, 1000},
    {"train", NULL, FIELD(train), "with --summary: of the whole training step"},
    {TOOL_INCLUDED(models_arguments, model, tool_model_options)},
    {0}};

static int print_summary(const models_arguments *a)
{
    weft_error error = {0};
    built_model m;
    const int width = tool_width();
    const weft_summary_options o = {.depth = a->depth, .width = width < 48 ? 48 : width};
    if (tool_build_args(&a->model, a->train, &m, &error) != WEFT_OK) return tool_fail(&error);
    const weft_status status = weft_graph_print_summary(m.graph, &o, stdout, &error);
    tool_free_model(&m);
    return status == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
}

int cmd_models(int argc, char **argv)
{
    static const tool_command command = {
        .options = models_options,
        .usage = "[MODEL]\nMODEL --summary [OPTION=VALUE...]\nFILE.onnx",
        .doc =
            "Lists the models, their parameters and their options with the defaults. With MODEL, "
            "also lists the commands that take the model. With FILE.onnx, lists its inputs, "
            "outputs and weights.",
        .argument = take_model,
        .check = check_models};
    models_arguments a = {.json = false};
    tool_parse(&command, argc, argv, &a);
    if (a.summary) return print_summary(&a);
    if (a.model.onnx.path) return print_file(&a.model.onnx, a.json);
    return a.model.model ? print_model(a.model.model, a.json) : list_models(a.json);
}
