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
    argp_parse(&argp, argc, argv, 0, NULL, &json);
    cJSON *list = cJSON_CreateArray();
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
    if (json) return tool_print_json(list);
    cJSON_Delete(list);
    return EXIT_GOOD;
}

/* ---- models ---- */

static double count_parameters(const weft_model *model)
{
    built_model m;
    double total = 0;
    if (tool_build(model, NULL, 0, false, &m, NULL) != WEFT_OK) return -1;
    size_t n = weft_graph_params(m.graph, NULL, 0);
    weft_value *params = calloc(n + 1, sizeof *params);
    if (params) {
        weft_graph_params(m.graph, params, n);
        for (size_t i = 0; i < n; i++)
            total += (double)weft_shape_numel(weft_shape_of(m.graph, params[i]));
    }
    free(params);
    weft_graph_free(m.graph);
    return total;
}

int cmd_models(int argc, char **argv)
{
    bool json = false;
    struct argp argp = {
        json_option, parse,
        NULL,        "Lists the models, their parameters and their options with the defaults.",
        NULL,        NULL,
        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &json);
    cJSON *list = cJSON_CreateArray();
    for (size_t i = 0; i < weft_model_count(); i++) {
        const weft_model *model = weft_model_at(i);
        double parameters = count_parameters(model);
        cJSON *item = cJSON_CreateObject(), *options = cJSON_AddObjectToObject(item, "options");
        cJSON_AddStringToObject(item, "name", model->name);
        cJSON_AddStringToObject(item, "doc", model->doc);
        cJSON_AddNumberToObject(item, "parameters", parameters);
        if (!json) printf("%s: %s; %.0f parameters\n", model->name, model->doc, parameters);
        for (size_t k = 0; k < model->n_options; k++) {
            const weft_model_option *o = &model->options[k];
            char value[64];
            weft_model_value_text(model, k, o->value, value, sizeof value);
            if (o->choices)
                cJSON_AddStringToObject(options, o->name, value);
            else
                cJSON_AddNumberToObject(options, o->name, o->value);
            if (json) continue;
            snprintf(value, sizeof value, "%g", o->value);
            if (o->choices) weft_model_value_text(model, k, o->value, value, sizeof value);
            printf("    %-18s %-12s %s%s%s%s\n", o->name, value, o->doc, o->choices ? " (" : "",
                   o->choices ? o->choices : "", o->choices ? ")" : "");
        }
        cJSON_AddItemToArray(list, item);
    }
    if (json) return tool_print_json(list);
    cJSON_Delete(list);
    return EXIT_GOOD;
}
