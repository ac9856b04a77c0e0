/* The list of models, with options as "key=value" texts. */
#include "registry.h"

#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const weft_model *const models[] = {
#define ROW(name) &model_##name,
    MODELS(ROW)
#undef ROW
};

size_t weft_model_count(void)
{
    return sizeof models / sizeof *models;
}

const weft_model *weft_model_at(size_t index)
{
    return index < weft_model_count() ? models[index] : NULL;
}

const weft_model *weft_model_find(const char *name)
{
    for (size_t i = 0; name && i < weft_model_count(); i++)
        if (!strcmp(models[i]->name, name)) return models[i];
    return NULL;
}

/* The i-th of "one|other"; NULL beyond the last. */
static const char *choice_at(const char *choices, double i, size_t *length)
{
    for (; i >= 1; i--) {
        choices = strchr(choices, '|');
        if (!choices) return NULL;
        choices++;
    }
    *length = strcspn(choices, "|");
    return choices;
}

static bool parse_value(const weft_model_option *o, const char *text, double *value)
{
    if (!o->choices)
        return text_to_double(text, value) && *value >= 0 && *value <= (o->flag ? 1 : 1e9) &&
               (o->real || floor(*value) == *value);
    size_t length;
    const char *choice;
    for (double i = 0; (choice = choice_at(o->choices, i, &length)); i++)
        if (strlen(text) == length && !strncmp(text, choice, length)) {
            *value = i;
            return true;
        }
    return false;
}

static weft_status refuse(const weft_model *model, const weft_model_option *o, const char *text,
                          weft_error *error)
{
    if (o->flag)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, model->name, "%s is 0 or 1, not %s",
                              o->name, text);
    return weft_error_set(error, WEFT_BAD_ARGUMENT, model->name, "option %s: \"%s\" is not %s%s",
                          o->name, text,
                          o->choices ? "one of "
                          : o->real  ? "a number from 0 to 1e9"
                                     : "a whole number from 0 to 1e9",
                          o->choices ? o->choices : "");
}

weft_status weft_model_parse(const weft_model *model, const char *const *texts, size_t n,
                             double *values, weft_error *error)
{
    if (!model || !values || (n && !texts) || model->n_options > WEFT_MODEL_OPTIONS)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "model", "the model or a list is NULL");
    for (size_t i = 0; i < model->n_options; i++) values[i] = model->options[i].value;
    for (size_t t = 0; t < n; t++) {
        const char *equals = strchr(texts[t], '=');
        size_t length = equals ? (size_t)(equals - texts[t]) : 0, i = 0;
        if (!length)
            return weft_error_set(error, WEFT_BAD_ARGUMENT, model->name,
                                  "\"%s\" is not of the form option=value", texts[t]);
        while (i < model->n_options && (strlen(model->options[i].name) != length ||
                                        strncmp(model->options[i].name, texts[t], length) != 0))
            i++;
        if (i == model->n_options)
            return weft_error_set(error, WEFT_NOT_FOUND, model->name, "has no option \"%.*s\"",
                                  (int)length, texts[t]);
        const weft_model_option *o = &model->options[i];
        if (!parse_value(o, equals + 1, &values[i])) return refuse(model, o, equals + 1, error);
    }
    return WEFT_OK;
}

const char *weft_model_value_text(const weft_model *model, size_t i, double value, char *text,
                                  size_t capacity)
{
    char number[TEXT_NUMBER_BYTES];
    size_t length = 0;
    const char *choices = model && i < model->n_options ? model->options[i].choices : NULL;
    const char *choice = choices && value >= 0 ? choice_at(choices, value, &length) : NULL;
    if (choice)
        snprintf(text, capacity, "%.*s", (int)length, choice);
    else
        snprintf(text, capacity, "%s", text_from_double(value, number));
    return text;
}

weft_status weft_model_build_text(weft_graph *graph, const weft_model *model,
                                  const char *const *texts, size_t n, bool training,
                                  weft_model_io *io, weft_error *error)
{
    double values[WEFT_MODEL_OPTIONS];
    weft_status status = weft_model_parse(model, texts, n, values, error);
    if (status != WEFT_OK) return status;
    model->build(graph, values, training, io);
    const weft_error *e = weft_graph_error(graph);
    return e->status == WEFT_OK ? WEFT_OK
                                : weft_error_set(error, e->status, e->where, "%s", e->message);
}
