/* The list of models, with options as "key=value" texts. */
#include "registry.h"

#include "base/guess.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const weft_model *const models[] = {
#define ROW(name) &weft__model_##name,
    MODELS(ROW)
#undef ROW
};

size_t weft__options_split(char *text, const char **words, size_t capacity)
{
    size_t n = 0;
    while (*text && n < capacity) {
        words[n++] = text;
        text += strcspn(text, " ");
        if (*text) *text++ = 0;
    }
    return n;
}

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

/* The i-th choice of "one|other", and its length; NULL if there is none. */
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
        return weft__text_to_double(text, value) && *value >= 0 && *value <= (o->flag ? 1 : 1e9) &&
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

/* Sets the numbers of a list from "1,2.5"; false if one is not above 0, or they are too many. */
static bool parse_list(const weft_model_option *o, const char *text, void *into)
{
    float *items = (float *)(void *)((char *)into + o->offset);
    const size_t most = o->size / sizeof *items;
    memset(items, 0, o->size);
    if (!strcmp(text, "0")) return true;
    for (size_t n = 0; n < most; n++) {
        double x;
        const char *end = weft__text_read_double(text, &x);
        if (!end || !(x <= 1e9) || !((float)x > 0)) return false;
        items[n] = (float)x;
        if (!*end) return true;
        if (*end != ',') return false;
        text = end + 1;
    }
    return false;
}

static weft_status refuse(const char *model, const weft_model_option *o, const char *text,
                          weft_error *error)
{
    if (o->list)
        return weft_error_set(
            error, WEFT_BAD_ARGUMENT, model,
            "invalid %s \"%.40s%s\"; expected 0, or at most %zu numbers from above 0 to 1e9",
            o->name, text, strlen(text) > 40 ? "..." : "", o->size / sizeof(float));
    if (o->flag)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, model, "invalid %s=%s; expected 0 or 1",
                              o->name, text);
    return weft_error_set(error, WEFT_BAD_ARGUMENT, model, "invalid %s \"%s\"; expected %s%s",
                          o->name, text,
                          o->choices ? "one of "
                          : o->real  ? "a number from 0 to 1e9"
                                     : "a whole number from 0 to 1e9",
                          o->choices ? o->choices : "");
}

double weft_model_option_value(const weft_model_option *o, const void *from)
{
    if (!o || !from) return 0;
    const void *field = (const char *)from + o->offset;
    if (o->list) return *(const float *)field;
    if (o->real) return *(const double *)field;
    if (o->size == sizeof(bool)) return *(const bool *)field;
    return o->size == sizeof(int) ? *(const int *)field : (double)*(const int64_t *)field;
}

void weft_model_option_set_value(const weft_model_option *o, void *into, double value)
{
    if (!o || !into) return;
    void *field = (char *)into + o->offset;
    if (o->list) {
        memset(field, 0, o->size);
        *(float *)field = (float)value;
    } else if (o->real)
        *(double *)field = value;
    else if (o->size == sizeof(bool))
        *(bool *)field = value != 0;
    else if (o->size == sizeof(int))
        *(int *)field = (int)value;
    else
        *(int64_t *)field = (int64_t)value;
}

void weft__option_copy(const weft_model_option *o, void *into, const void *from)
{
    memcpy((char *)into + o->offset, (const char *)from + o->offset, o->size);
}

double weft_model_value(const weft_model_config *config, size_t i)
{
    const weft_model *m = config ? config->model : NULL;
    return m && i < m->n_options ? weft_model_option_value(&m->options[i], &config->options) : 0;
}

void weft_model_set_value(weft_model_config *config, size_t i, double value)
{
    const weft_model *m = config ? config->model : NULL;
    if (m && i < m->n_options) weft_model_option_set_value(&m->options[i], &config->options, value);
}

/* Names of earlier versions, which old checkpoints have, and the current names. */
static const char *const renamed[][2] = {
    {"most_positions", "max_positions"}, {"keep_weights", "weights"}, {"memory_len", "source_len"}};

static bool is_key(const char *text, size_t length, const char *name)
{
    if (strlen(name) == length && !strncmp(name, text, length)) return true;
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (!strcmp(renamed[i][1], name) && strlen(renamed[i][0]) == length &&
            !strncmp(renamed[i][0], text, length))
            return true;
    return false;
}

/* Sets the row that "key=value" names in the struct of the rows; false if there is no such row. */
static bool parse_row(const weft_model *m, const weft_model_option *rows, size_t n, void *into,
                      const char *text, size_t length, weft_error *error)
{
    double value;
    size_t i = 0;
    while (i < n && rows[i].name && !is_key(text, length, rows[i].name)) i++;
    if (i == n || !rows[i].name) return false;
    if (rows[i].list) {
        if (!parse_list(&rows[i], text + length + 1, into))
            refuse(m->name, &rows[i], text + length + 1, error);
    } else if (parse_value(&rows[i], text + length + 1, &value))
        weft_model_option_set_value(&rows[i], into, value);
    else
        refuse(m->name, &rows[i], text + length + 1, error);
    return true;
}

static weft_status refuse_name(const weft_model *m, const char *text, size_t length,
                               weft_error *error)
{
    char meant[GUESS_BYTES];
    guess g = weft__guess_of(text, length);
    for (size_t i = 0; i < m->n_options; i++) weft__guess_try(&g, m->options[i].name);
    for (int i = 0; i < WEFT_MODEL_SIZES && m->sizes[i].name; i++)
        weft__guess_try(&g, m->sizes[i].name);
    return weft_error_set(error, WEFT_NOT_FOUND, m->name, "has no option \"%.*s\"%s", (int)length,
                          text, weft__guess_text(&g, meant));
}

static weft_status parse_text(weft_model_config *config, const char *text, weft_error *error)
{
    static const weft_model_option weights =
        MODEL_OPTION(weft_build_options, weights, expose_weights, 0, FLAG, "");
    const weft_model *m = config->model;
    weft_build_options *build = &config->build;
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : 0;
    if (!length)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, m->name,
                              "\"%s\" is not of the form option=value", text);
    if (parse_row(m, m->options, m->n_options, &config->options, text, length, error) ||
        parse_row(m, m->sizes, WEFT_MODEL_SIZES, &build->shape, text, length, error) ||
        parse_row(m, &weights, m->exposes_weights, build, text, length, error))
        return error->status;
    return refuse_name(m, text, length, error);
}

/* Sets the sizes that no text has set: lengths to at most the positions of the model. */
static void fill_sizes(weft_model_config *config)
{
    const weft_model *m = config->model;
    const double positions = (double)weft_model_traits_of(config).max_positions;
    for (int i = 0; i < WEFT_MODEL_SIZES && m->sizes[i].name; i++) {
        const weft_model_option *o = &m->sizes[i];
        const bool is_length = o->offset != offsetof(weft_batch_shape, rows);
        if (weft_model_option_value(o, &config->build.shape) >= 0) continue;
        weft_model_option_set_value(o, &config->build.shape,
                                    is_length && positions > 0 && positions < o->value ? positions
                                                                                       : o->value);
    }
}

weft_status weft_model_parse(const weft_model *model, const char *const *texts, size_t n,
                             weft_model_config *config, weft_error *error)
{
    weft_error own;
    if (!error) error = &own;
    weft_error_clear(error);
    if (!model || !config || (n && !texts) || model->n_options > WEFT_MODEL_OPTIONS)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "model", "the model or a list is NULL");
    *config = (weft_model_config){.model = model};
    for (size_t i = 0; i < model->n_options; i++)
        weft_model_set_value(config, i, model->options[i].value);
    for (int i = 0; i < WEFT_MODEL_SIZES && model->sizes[i].name; i++)
        weft_model_option_set_value(&model->sizes[i], &config->build.shape, -1);
    weft_status status = WEFT_OK;
    for (size_t t = 0; t < n && status == WEFT_OK; t++)
        status = parse_text(config, texts[t], error);
    fill_sizes(config);
    return status;
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
        snprintf(text, capacity, "%s", weft__text_from_double(value, number));
    return text;
}

/* The shortest decimal that becomes the float. */
static void float_text(float x, char text[TEXT_NUMBER_BYTES])
{
    for (int digits = 1; digits <= 9; digits++) {
        double again;
        weft__text_format(text, TEXT_NUMBER_BYTES, "%.*g", digits, (double)x);
        if (weft__text_to_double(text, &again) && (float)again == x) return;
    }
}

static const char *list_text(const weft_model_option *o, const float *items, char *text,
                             size_t capacity)
{
    char number[TEXT_NUMBER_BYTES] = "0";
    size_t used = 0;
    for (size_t i = 0; i == 0 || (i < o->size / sizeof *items && items[i] != 0); i++) {
        float_text(items[i], number);
        const int n = snprintf(text + used, capacity - used, "%s%s", i ? "," : "", number);
        if (n < 0 || (size_t)n >= capacity - used) return NULL;
        used += (size_t)n;
    }
    return text;
}

const char *weft_model_config_option_text(const weft_model_config *config, size_t i, char *text,
                                          size_t capacity)
{
    const weft_model *m = config ? config->model : NULL;
    if (!m || i >= m->n_options || !text || !capacity) return NULL;
    const weft_model_option *o = &m->options[i];
    if (o->list) {
        const unsigned char *field = config->options.bytes + o->offset;
        return list_text(o, (const float *)(const void *)field, text, capacity);
    }
    char value[64];
    weft_model_value_text(m, i, weft_model_value(config, i), value, sizeof value);
    const int n = snprintf(text, capacity, "%s", value);
    return n >= 0 && (size_t)n < capacity ? text : NULL;
}

const char *weft_model_options_text(const weft_model_config *config, char *text, size_t capacity)
{
    const weft_model *m = config ? config->model : NULL;
    size_t used = 0;
    if (capacity) text[0] = 0;
    if (!m) return NULL;
    for (size_t i = 0; i < m->n_options; i++) {
        int n = snprintf(text + used, capacity - used, "%s%s=", i ? " " : "", m->options[i].name);
        if (n < 0 || (size_t)n >= capacity - used) return NULL;
        used += (size_t)n;
        if (!weft_model_config_option_text(config, i, text + used, capacity - used)) return NULL;
        used += strlen(text + used);
    }
    return text;
}

weft_model_traits weft_model_traits_of(const weft_model_config *config)
{
    weft_model_traits t = {.vocab = 0};
    if (!config || !config->model) return t;
    config->model->traits(&config->options, &t);
    t.decodable = t.causal && t.vocab > 0;
    return t;
}

weft_built weft_model_build(weft_graph *graph, const weft_model_config *config)
{
    if (config && config->model)
        return config->model->build(graph, &config->options, &config->build);
    weft_graph_fail_in(graph, "weft_model_build", WEFT_BAD_ARGUMENT,
                       "the configuration or its model is NULL");
    return (weft_built){.n_inputs = 0};
}

weft_status weft_model_build_text(weft_graph *graph, const weft_model *model,
                                  const char *const *texts, size_t n, bool training,
                                  weft_built *built, weft_error *error)
{
    weft_error_clear(error);
    weft_model_config config;
    if (!built)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_model_build_text",
                              "the values to fill are NULL");
    weft_status status = weft_model_parse(model, texts, n, &config, error);
    if (status != WEFT_OK) return status;
    config.build.training = training;
    *built = weft_model_build(graph, &config);
    const weft_error *e = weft_graph_error(graph);
    return e->status == WEFT_OK ? WEFT_OK : weft_error_copy(error, e);
}
