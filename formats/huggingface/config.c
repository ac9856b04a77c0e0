/* Configurations of transformers as options of models. config_write.c is the way back; both read the
 * same rows (tables.c). O(keys x rows). */
#include "config.h"

#include "json/tree.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WHY_BYTES 384

/* ---- Keys ---- */

/* Whether a path is of an object whose keys the rows have one by one. */
static bool is_object(const hf_architecture *a, const char *path)
{
    const size_t n = strlen(path);
    char key[KEY_BYTES];
    for (int t = 0; t < HF_TABLES && a->keys[t]; t++)
        for (const hf_key *row = a->keys[t]; row->key; row++)
            for (int i = 0; weft__hf_alternative(row->key, i, key); i++)
                if (!strncmp(key, path, n) && key[n] == '.') return true;
    return false;
}

static bool is_known(const hf_architecture *a, const char *path)
{
    for (int t = 0; t < HF_TABLES && a->keys[t]; t++)
        for (const hf_key *row = a->keys[t]; row->key; row++)
            if (weft__hf_is_key(row, path)) return true;
    const char *dot = strrchr(path, '.'), *name = dot ? dot + 1 : path;
    return weft__hf_is_one_of(weft__hf_inert, name) ||
           (a->inert && weft__hf_is_one_of(a->inert, name));
}

/* ---- Values ---- */

/* A value as text, cut if it is long. */
static const char *value_text(const cJSON *item, char text[WORD_BYTES])
{
    char *whole = weft__json_print(item, false);
    snprintf(text, WORD_BYTES, "%.100s%s", whole ? whole : "?",
             whole && strlen(whole) > 100 ? "..." : "");
    cJSON_free(whole);
    return text;
}

typedef struct config_reader {
    const hf_architecture *a;
    const cJSON *json;
    const char *path;
    weft_model_config *config;
    hf_longrope longrope;
    bool set[WEFT_MODEL_OPTIONS];
    weft_error *error;
} config_reader;

static weft_status refuse(config_reader *r, const hf_key *row, const cJSON *item, const char *why)
{
    char text[WORD_BYTES];
    return weft_error_set(r->error, WEFT_BAD_ARGUMENT, r->path, "%s is %s: %s", row->key,
                          item ? value_text(item, text) : "missing", why);
}

/* Sets the option of a row, which another row may have set. */
static weft_status set_option(config_reader *r, const hf_key *row, const cJSON *item,
                              const char *text)
{
    char word[WORD_BYTES], why[WHY_BYTES];
    const char *const words[] = {word};
    weft_model_config one;
    weft_error error = {0};
    const size_t i = weft__hf_option_index(r->config->model, row->option);
    snprintf(word, sizeof word, "%s=%s", row->option, text);
    if (weft_model_parse(r->config->model, words, 1, &one, &error) != WEFT_OK) {
        snprintf(why, sizeof why, "%s", error.message);
        return refuse(r, row, item, why);
    }
    const double value = weft_model_value(&one, i);
    if (r->set[i] && weft_model_value(r->config, i) != value) {
        weft__text_format(why, sizeof why, "weft's %s has one %s, and another key says %.9g",
                          r->config->model->name, row->option, weft_model_value(r->config, i));
        return refuse(r, row, item, why);
    }
    r->set[i] = true;
    weft_model_set_value(r->config, i, value);
    return WEFT_OK;
}

static weft_status set_number(config_reader *r, const hf_key *row, const cJSON *item, double x)
{
    char number[TEXT_NUMBER_BYTES];
    return set_option(r, row, item, weft__text_from_double(x, number));
}

static weft_status read_activation(config_reader *r, const hf_key *row, const cJSON *item)
{
    const char *ours = weft__hf_ours(weft__hf_activations, cJSON_GetStringValue(item));
    return ours ? set_option(r, row, item, ours) : refuse(r, row, item, "unsupported activation");
}

static bool is_id(const config_reader *r, const cJSON *item)
{
    return cJSON_IsNumber(item) && item->valuedouble >= 0 &&
           item->valuedouble < weft__hf_option(r->config, "vocab");
}

static weft_status read_pad(config_reader *r, const hf_key *row, const cJSON *item)
{
    const cJSON *eos = weft__hf_find_value(r->json, "eos_token_id");
    if (!item && !row->value) return refuse(r, row, item, "it masks padding of the source");
    const cJSON *id = is_id(r, item) ? item : eos;
    return set_number(r, row, item, is_id(r, id) ? id->valuedouble : 0);
}

static weft_status read_fixed(config_reader *r, const hf_key *row, const cJSON *item,
                              const cJSON *wanted)
{
    char why[WHY_BYTES];
    bool good = cJSON_Compare(item, wanted, true);
    if (row->kind == HF_EACH) {
        const cJSON *element;
        good = cJSON_IsArray(item);
        cJSON_ArrayForEach(element, item) good = good && cJSON_Compare(element, wanted, true);
    }
    if (good) return WEFT_OK;
    snprintf(why, sizeof why, "weft's %s needs %s", r->config->model->name, row->value);
    return refuse(r, row, item, why);
}

static weft_status read_head_dim(config_reader *r, const hf_key *row, const cJSON *item)
{
    if (!cJSON_IsNumber(item)) return refuse(r, row, item, "expected a number");
    const double heads = weft__hf_option(r->config, "heads"),
                 usual = weft__hf_option(r->config, "d_model") / heads;
    return set_number(r, row, item, item->valuedouble == usual ? 0 : item->valuedouble);
}

/* The number of elements, rounded down as in transformers. */
static weft_status read_rotary_dim(config_reader *r, const hf_key *row, const cJSON *item)
{
    if (!cJSON_IsNumber(item)) return refuse(r, row, item, "expected a number");
    const double width = weft__hf_head_width(r->config), rotated = floor(width * item->valuedouble);
    return set_number(r, row, item, rotated == width ? 0 : rotated);
}

static weft_status read_rope_type(config_reader *r, const hf_key *row, const cJSON *item)
{
    const char *ours = weft__hf_ours(weft__hf_rope_types, cJSON_GetStringValue(item));
    return ours ? set_option(r, row, item, ours)
                : refuse(r, row, item, "expected default, linear, llama3, yarn or longrope");
}

/* How many layers of a list are as if every n-th were global, and the first global one, counted from
 * 1, or 0; -1 if an item is neither. */
static int count_layers(const cJSON *list, double every, int *first)
{
    const cJSON *item;
    int i = 0, same = 0;
    *first = 0;
    cJSON_ArrayForEach(item, list)
    {
        const char *type = cJSON_GetStringValue(item);
        const bool global = type && !strcmp(type, weft__hf_layer_types[1]);
        if (!global && (!type || strcmp(type, weft__hf_layer_types[0]) != 0)) return -1;
        same += global == weft__hf_is_global(every, i++);
        if (global && !*first) *first = i;
    }
    return same;
}

/* The list replaces what another key says of every n-th layer. */
static weft_status read_layers(config_reader *r, const hf_key *row, const cJSON *item)
{
    const int n = cJSON_GetArraySize(item);
    const size_t option = weft__hf_option_index(r->config->model, row->option);
    int first, same;
    if (!cJSON_IsArray(item) || n != weft__hf_option(r->config, "layers"))
        return refuse(r, row, item, "expected an item for each layer");
    same = count_layers(item, weft_model_value(r->config, option), &first);
    if (same < 0) return refuse(r, row, item, "expected sliding_attention and full_attention");
    if (same == n) return WEFT_OK;
    if (count_layers(item, first, &first) < n)
        return refuse(r, row, item,
                      "weft needs full_attention in every n-th layer, and only there");
    weft_model_set_value(r->config, option, first);
    return WEFT_OK;
}

/* Reads the value of a row, which is not absent. */
static weft_status read_value(config_reader *r, const hf_key *row, const cJSON *item,
                              const cJSON *wanted)
{
    switch (row->kind) {
    case HF_NUMBER:
    case HF_NULLABLE:
        return cJSON_IsNumber(item) ? set_number(r, row, item, item->valuedouble - row->plus)
                                    : refuse(r, row, item, "expected a number");
    case HF_FLAG:
        return cJSON_IsBool(item) ? set_number(r, row, item, cJSON_IsTrue(item))
                                  : refuse(r, row, item, "expected true or false");
    case HF_ACTIVATION:
        return read_activation(r, row, item);
    case HF_PAD:
        return read_pad(r, row, item);
    case HF_FIXED:
    case HF_EACH:
        return read_fixed(r, row, item, wanted);
    case HF_HEAD_DIM:
        return read_head_dim(r, row, item);
    case HF_LAYERS:
        return read_layers(r, row, item);
    case HF_ROTARY_DIM:
        return read_rotary_dim(r, row, item);
    case HF_ROPE_TYPE:
        return read_rope_type(r, row, item);
    case HF_ROPE_FACTORS:
        r->longrope.factors[strstr(row->key, "long_factor") != NULL] = item;
        return WEFT_OK;
    case HF_ROPE_NUMBER:
        if (!weft__hf_is_of_rule(row, r->config)) return WEFT_OK;
        if (!row->option) r->longrope.factor = item;
        if (!row->option) return WEFT_OK;
        return cJSON_IsNumber(item) ? set_number(r, row, item, item->valuedouble)
                                    : refuse(r, row, item, "expected a number");
    }
    return WEFT_OK;
}

static weft_status read_row(config_reader *r, const hf_key *row)
{
    const cJSON *item = weft__hf_find_value(r->json, row->key);
    if (!item && row->kind == HF_NULLABLE && cJSON_HasObjectItem(r->json, row->key))
        return set_number(r, row, NULL, 0);
    if (row->kind == HF_ROPE_TYPE && weft__hf_find_value(r->json, "rope_scaling") &&
        (!item || weft__hf_find_value(r->json, "rope_parameters")))
        return refuse(r, row, item, "rope_scaling needs it, and no rope_parameters next to it");
    if (!item && row->of && row->kind != HF_ROPE_NUMBER)
        return set_number(r, row, NULL, row->times * weft__hf_option(r->config, row->of));
    if (!item && row->value && !*row->value && row->kind != HF_PAD) return WEFT_OK;
    if (!item && !row->value && row->kind != HF_PAD)
        return weft_error_set(r->error, WEFT_NOT_FOUND, r->path, "has no %s", row->key);
    cJSON *usual =
        row->value && *row->value ? weft__json_parse(row->value, strlen(row->value), NULL) : NULL;
    if (row->value && *row->value && !usual)
        return weft_error_set(r->error, WEFT_NO_MEMORY, r->path, "no memory");
    weft_status status = WEFT_OK;
    if (item || row->kind == HF_PAD || (row->kind != HF_FIXED && row->kind != HF_EACH))
        status = read_value(r, row, item ? item : usual, usual);
    cJSON_Delete(usual);
    return status;
}

/* Checks the keys of an object that has the path `in`, "" on top. */
static weft_status refuse_unknown(config_reader *r, const cJSON *object, const char *in)
{
    char text[WORD_BYTES], path[KEY_BYTES];
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        snprintf(path, sizeof path, "%s%s%s", in, *in ? "." : "", item->string);
        if (cJSON_IsNull(item)) continue;
        if (!is_known(r->a, path))
            return weft_error_set(r->error, WEFT_BAD_ARGUMENT, r->path,
                                  "%s is %s: unsupported key for %s; remove it if "
                                  "results do not depend on it",
                                  path, value_text(item, text), r->a->name);
        if (!cJSON_IsObject(item) || !is_object(r->a, path)) continue;
        const weft_status status = refuse_unknown(r, item, path);
        if (status != WEFT_OK) return status;
    }
    return WEFT_OK;
}

/* Sets the options that the architecture determines. */
static weft_status start_options(const hf_architecture *a, weft_model_config *config,
                                 weft_error *error)
{
    char copy[WEFT_OPTIONS_TEXT], *rest = NULL;
    const char *words[WEFT_MODEL_OPTIONS];
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", a->fixed);
    for (char *w = strtok_r(copy, " ", &rest); w && n < WEFT_MODEL_OPTIONS;
         w = strtok_r(NULL, " ", &rest))
        words[n++] = w;
    return weft_model_parse(weft_model_find(a->model), words, n, config, error);
}

weft_status weft__hf_read_config(const hf_architecture *a, const hf_source *source,
                                 weft_model_config *config, weft_error *error)
{
    config_reader r = {
        .a = a, .json = source->json, .path = source->path, .config = config, .error = error};
    weft_status status = start_options(a, config, error);
    for (int t = 0; t < HF_TABLES && a->keys[t]; t++)
        for (const hf_key *row = a->keys[t]; row->key && status == WEFT_OK; row++)
            status = read_row(&r, row);
    if (status == WEFT_OK) status = weft__hf_choose_factors(source, &r.longrope, config, error);
    return status == WEFT_OK ? refuse_unknown(&r, source->json, "") : status;
}

/* ---- Architectures ---- */

const hf_architecture *weft__hf_find_architecture(const cJSON *json, const char *path,
                                                  weft_error *error)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "architectures");
    const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(list, 0));
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "model_type"));
    const hf_architecture *a;
    for (size_t i = 0; (a = weft__hf_architecture_at(i)); i++) {
        if (name ? !strcmp(a->name, name) || (a->aliases && weft__hf_is_one_of(a->aliases, name))
                 : type && !strcmp(a->type, type))
            return a;
    }
    weft_error_set(error, WEFT_BAD_ARGUMENT, path,
                   name || type ? "unsupported architecture %s (see `weft convert --list`)"
                                : "names no architecture%s",
                   name   ? name
                   : type ? type
                          : "");
    return NULL;
}
