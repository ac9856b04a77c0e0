/* weft ops, models: what there is. */
#include "tool.h"

#include <stdlib.h>

enum { KEY_JSON = 256 };

static error_t parse(int key, char *text, struct argp_state *state)
{
    (void)text;
    if (key != KEY_JSON) return ARGP_ERR_UNKNOWN;
    *(bool *)state->input = true;
    return 0;
}

static const struct argp_option json_option[] = {{"json", KEY_JSON, NULL, 0, "print JSON", 0}, {0}};

/* ---- ops ---- */

static const char *gradient_text(const weft_op *op)
{
    static const char *const texts[] = {"yes", "zero", "none by design"};
    return texts[op->gradient];
}

int cmd_ops(int argc, char **argv)
{
    bool json = false;
    struct argp argp = {
        json_option, parse, NULL, "Lists the ops: name, inputs, gradient, what they compute.",
        NULL,        NULL,  NULL};
    tool_parse(&argp, argc, argv, &json);
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        char inputs[16];
        snprintf(inputs, sizeof inputs, op->max_in == op->min_in ? "%d" : "%d+", op->min_in);
        if (!json) {
            printf("%-20s %-3s gradient: %-15s %s\n", op->name, inputs, gradient_text(op), op->doc);
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

static weft_status count_parameters(const weft_model *model, double *total, weft_error *error)
{
    built_model m;
    *total = 0;
    if (tool_build(model, NULL, 0, false, &m, error) != WEFT_OK) return error->status;
    size_t n = weft_graph_params(m.graph, NULL, 0);
    weft_value *params = calloc(n + 1, sizeof *params);
    if (params) weft_graph_params(m.graph, params, n);
    for (size_t i = 0; params && i < n; i++)
        *total += (double)weft_shape_numel(weft_shape_of(m.graph, params[i]));
    if (!params) weft_error_set(error, WEFT_NO_MEMORY, model->name, "out of memory");
    free(params);
    weft_graph_free(m.graph);
    return error->status;
}

static void add_model(cJSON *list, const weft_model *model, double parameters)
{
    cJSON *item = cJSON_CreateObject(), *options = cJSON_AddObjectToObject(item, "options");
    cJSON_AddStringToObject(item, "name", model->name);
    cJSON_AddStringToObject(item, "doc", model->doc);
    cJSON_AddNumberToObject(item, "parameters", parameters);
    for (size_t k = 0; k < model->n_options; k++) {
        const weft_model_option *o = &model->options[k];
        char value[64];
        if (o->choices)
            cJSON_AddStringToObject(options, o->name,
                                    weft_model_value_text(model, k, o->value, value, sizeof value));
        else
            cJSON_AddNumberToObject(options, o->name, o->value);
    }
    cJSON_AddItemToArray(list, item);
}

static void print_model(const weft_model *model, double parameters)
{
    printf("%s: %s; %.0f parameters\n", model->name, model->doc, parameters);
    for (size_t k = 0; k < model->n_options; k++) {
        const weft_model_option *o = &model->options[k];
        char value[64];
        weft_model_value_text(model, k, o->value, value, sizeof value);
        printf("    %-18s %-12s %s%s%s%s\n", o->name, value, o->doc, o->choices ? " (" : "",
               o->choices ? o->choices : "", o->choices ? ")" : "");
    }
}

int cmd_models(int argc, char **argv)
{
    bool json = false;
    weft_error error = {0};
    struct argp argp = {
        json_option, parse,
        NULL,        "Lists the models, their parameters and their options with the defaults.",
        NULL,        NULL,
        NULL};
    tool_parse(&argp, argc, argv, &json);
    cJSON *list = json ? cJSON_CreateArray() : NULL;
    for (size_t i = 0; i < weft_model_count(); i++) {
        const weft_model *model = weft_model_at(i);
        double parameters;
        if (count_parameters(model, &parameters, &error) != WEFT_OK) {
            cJSON_Delete(list);
            return tool_fail(&error);
        }
        if (json)
            add_model(list, model, parameters);
        else
            print_model(model, parameters);
    }
    return json ? tool_print_json(list) : EXIT_GOOD;
}
