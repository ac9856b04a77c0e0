/* Configurations of transformers as options of models, and back. Both directions read the same rows
 * (tables.c). After writing, the configuration is read again and compared with the options, so any
 * option that an architecture lacks is found. O(keys x rows). */
#include "tables.h"

#include "json/tree.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define KEY_BYTES  128
#define WORD_BYTES 128
#define WHY_BYTES  384

/* ---- Keys ---- */

/* Copies the i-th of "a|b|c"; false if there is none. */
static bool alternative(const char *keys, int i, char key[KEY_BYTES])
{
    for (; keys && i > 0; i--) {
        keys = strchr(keys, '|');
        if (keys) keys++;
    }
    if (!keys) return false;
    snprintf(key, KEY_BYTES, "%.*s", (int)strcspn(keys, "|"), keys);
    return true;
}

/* The object that has the last component of "a.b", which *last becomes; NULL if there is none. */
static cJSON *holder(const cJSON *json, char *key, char **last)
{
    char *dot = strchr(key, '.');
    *last = dot ? dot + 1 : key;
    if (dot) *dot = 0;
    cJSON *in = dot ? cJSON_GetObjectItemCaseSensitive(json, key) : (cJSON *)(uintptr_t)json;
    return cJSON_IsObject(in) ? in : NULL;
}

/* The value of a key; NULL if it is absent or null. */
static cJSON *find_value(const cJSON *json, const char *keys)
{
    char key[KEY_BYTES], *last;
    for (int i = 0; alternative(keys, i, key); i++) {
        const cJSON *in = holder(json, key, &last);
        cJSON *item = in ? cJSON_GetObjectItemCaseSensitive(in, last) : NULL;
        if (item && !cJSON_IsNull(item)) return item;
    }
    return NULL;
}

/* Whether `name`, in the object `in` (NULL: on top), is a key of a row. */
static bool is_key(const hf_key *row, const char *in, const char *name)
{
    char key[KEY_BYTES];
    for (int i = 0; alternative(row->key, i, key); i++) {
        char *dot = strchr(key, '.');
        if (dot) *dot = 0;
        if (!in && !strcmp(key, name)) return true;
        if (in && dot && !strcmp(key, in) && !strcmp(dot + 1, name)) return true;
    }
    return false;
}

static bool is_known(const hf_architecture *a, const char *in, const char *name)
{
    for (int t = 0; t < HF_TABLES && a->keys[t]; t++)
        for (const hf_key *row = a->keys[t]; row->key; row++)
            if (is_key(row, in, name)) return true;
    return weft__hf_is_one_of(weft__hf_inert, name) ||
           (a->inert && weft__hf_is_one_of(a->inert, name));
}

/* ---- Values ---- */

static const struct {
    const char *theirs, *ours;
} activations[] = {
    {"relu", "relu"},           {"gelu", "gelu"},        {"gelu_new", "gelu-tanh"},
    {"silu", "silu"},           {"swish", "silu"},       {"gelu_pytorch_tanh", "gelu-tanh"},
    {"gelu_fast", "gelu-tanh"}, {"gelu_python", "gelu"},
};
#define N_ACTIVATIONS (sizeof activations / sizeof *activations)

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
    bool set[WEFT_MODEL_OPTIONS];
    weft_error *error;
} config_reader;

static weft_status refuse(config_reader *r, const hf_key *row, const cJSON *item, const char *why)
{
    char text[WORD_BYTES];
    return weft_error_set(r->error, WEFT_BAD_ARGUMENT, r->path, "%s is %s: %s", row->key,
                          item ? value_text(item, text) : "missing", why);
}

static size_t option_index(const weft_model *m, const char *name)
{
    size_t i = 0;
    while (i < m->n_options && strcmp(m->options[i].name, name) != 0) i++;
    return i;
}

static double option_value(const weft_model_config *c, const char *name)
{
    return weft_model_value(c, option_index(c->model, name));
}

/* Sets the option of a row, which another row may have set. */
static weft_status set_option(config_reader *r, const hf_key *row, const cJSON *item,
                              const char *text)
{
    char word[WORD_BYTES], why[WHY_BYTES];
    const char *const words[] = {word};
    weft_model_config one;
    weft_error error = {0};
    const size_t i = option_index(r->config->model, row->option);
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
    const char *name = cJSON_GetStringValue(item);
    for (size_t i = 0; name && i < N_ACTIVATIONS; i++)
        if (!strcmp(activations[i].theirs, name))
            return set_option(r, row, item, activations[i].ours);
    return refuse(r, row, item, "unsupported activation");
}

static bool is_id(const config_reader *r, const cJSON *item)
{
    return cJSON_IsNumber(item) && item->valuedouble >= 0 &&
           item->valuedouble < option_value(r->config, "vocab");
}

static weft_status read_pad(config_reader *r, const hf_key *row, const cJSON *item)
{
    const cJSON *eos = find_value(r->json, "eos_token_id");
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
    const double width = option_value(r->config, "d_model"),
                 heads = option_value(r->config, "heads");
    if (cJSON_IsNumber(item) && item->valuedouble * heads == width) return WEFT_OK;
    return refuse(r, row, item, "weft needs the width divided by the heads");
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
    }
    return WEFT_OK;
}

static weft_status read_row(config_reader *r, const hf_key *row)
{
    const cJSON *item = find_value(r->json, row->key);
    if (!item && row->kind == HF_NULLABLE && cJSON_HasObjectItem(r->json, row->key))
        return set_number(r, row, NULL, 0);
    if (!item && row->of)
        return set_number(r, row, NULL, row->times * option_value(r->config, row->of));
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

static weft_status refuse_unknown(config_reader *r)
{
    char text[WORD_BYTES];
    const cJSON *item, *inner;
    cJSON_ArrayForEach(item, r->json)
    {
        if (!cJSON_IsNull(item) && !is_known(r->a, NULL, item->string))
            return weft_error_set(r->error, WEFT_BAD_ARGUMENT, r->path,
                                  "%s is %s: unsupported key for %s; remove it if "
                                  "results do not depend on it",
                                  item->string, value_text(item, text), r->a->name);
        if (!cJSON_IsObject(item) || strcmp(item->string, "rope_parameters") != 0) continue;
        cJSON_ArrayForEach(inner, item)
        {
            if (cJSON_IsNull(inner) || is_known(r->a, item->string, inner->string)) continue;
            return weft_error_set(r->error, WEFT_BAD_ARGUMENT, r->path,
                                  "%s.%s is %s: unsupported key", item->string, inner->string,
                                  value_text(inner, text));
        }
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

weft_status weft__hf_read_config(const hf_architecture *a, const cJSON *json, const char *path,
                                 weft_model_config *config, weft_error *error)
{
    config_reader r = {.a = a, .json = json, .path = path, .config = config, .error = error};
    weft_status status = start_options(a, config, error);
    for (int t = 0; t < HF_TABLES && a->keys[t]; t++)
        for (const hf_key *row = a->keys[t]; row->key && status == WEFT_OK; row++)
            status = read_row(&r, row);
    return status == WEFT_OK ? refuse_unknown(&r) : status;
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

/* ---- Writing ---- */

bool weft__hf_is_real(const hf_architecture *a, const weft_model *model, const char *key)
{
    for (int t = 0; t < HF_TABLES && a->keys[t]; t++)
        for (const hf_key *row = a->keys[t]; row->key; row++) {
            const size_t i = row->option ? option_index(model, row->option) : model->n_options;
            if (i < model->n_options && model->options[i].real && is_key(row, NULL, key))
                return true;
        }
    return false;
}

/* The JSON of a row's option; NULL if there is nothing to write, or no memory. */
static cJSON *make_value(const hf_key *row, const weft_model_config *c)
{
    char text[WORD_BYTES];
    const double x = row->option ? option_value(c, row->option) : 0;
    switch (row->kind) {
    case HF_NULLABLE:
        return x == 0 ? cJSON_CreateNull() : cJSON_CreateNumber(x);
    case HF_NUMBER:
    case HF_PAD:
        return cJSON_CreateNumber((x == 0 && row->of ? row->times * option_value(c, row->of) : x) +
                                  row->plus);
    case HF_FLAG:
        return cJSON_CreateBool(x != 0);
    case HF_ACTIVATION:
        weft_model_value_text(c->model, option_index(c->model, row->option), x, text, sizeof text);
        for (size_t i = 0; i < N_ACTIVATIONS; i++)
            if (!strcmp(activations[i].ours, text))
                return cJSON_CreateString(activations[i].theirs);
        return NULL;
    case HF_FIXED:
    case HF_EACH:
    case HF_HEAD_DIM:
        break;
    }
    return NULL;
}

/* Sets a key where the configuration has it, or else the last alternative. Takes the item. */
static bool put_value(cJSON *json, const char *keys, cJSON *item)
{
    char key[KEY_BYTES] = "", *last = key;
    cJSON *in = json;
    if (!item) return false;
    for (int i = 0; alternative(keys, i, key); i++) {
        in = holder(json, key, &last);
        if (in && cJSON_HasObjectItem(in, last)) break;
    }
    if (!in) in = json;
    cJSON_DeleteItemFromObjectCaseSensitive(in, last);
    if (cJSON_AddItemToObject(in, last, item)) return true;
    cJSON_Delete(item);
    return false;
}

static bool put_texts(cJSON *json, const hf_architecture *a)
{
    cJSON *list = cJSON_CreateArray();
    return put_value(json, "architectures", list) &&
           cJSON_AddItemToArray(list, cJSON_CreateString(a->name)) &&
           put_value(json, "model_type", cJSON_CreateString(a->type));
}

/* Writes a row, unless the configuration `before` (NULL: none) has the option's value already. */
static bool put_row(cJSON *json, const hf_key *row, const weft_model_config *c,
                    const weft_model_config *before)
{
    /* A second key of an option is written only where it adds information. */
    const bool silent = row->value && !*row->value && row->kind != HF_PAD;
    if (!row->option || (silent && !find_value(json, row->key))) return true;
    if (before && option_value(before, row->option) == option_value(c, row->option)) return true;
    return put_value(json, row->key, make_value(row, c));
}

/* Brings options that mean the same into one form. */
static void normalise(weft_model_config *c)
{
    static const struct {
        const char *option, *of;
        int times;
    } derived[] = {{"d_ff", "d_model", 4}, {"kv_heads", "heads", 1}};
    const weft_model *m = c->model;
    for (size_t i = 0; i < sizeof derived / sizeof *derived; i++) {
        const size_t at = option_index(m, derived[i].option);
        if (weft_model_value(c, at) == 0)
            weft_model_set_value(c, at, derived[i].times * option_value(c, derived[i].of));
    }
    const size_t bias = option_index(m, "output_bias"), offset = option_index(m, "position_offset");
    if (weft_model_value(c, bias) == WEFT_OUTPUT_BIAS_UNTIED)
        weft_model_set_value(c, bias,
                             option_value(c, "tied") != 0 ? WEFT_OUTPUT_BIAS_NONE
                                                          : WEFT_OUTPUT_BIAS_ALWAYS);
    if (option_value(c, "positions") != WEFT_POSITIONS_LEARNED) weft_model_set_value(c, offset, 0);
}

/* Compares a written configuration, as it is read, with the options. */
static weft_status compare(const hf_architecture *a, const weft_model_config *wanted,
                           const weft_model_config *got, weft_error *error)
{
    weft_model_config x = *wanted, y = *got;
    char theirs[64], ours[64];
    normalise(&x);
    normalise(&y);
    for (size_t i = 0; i < x.model->n_options; i++) {
        const char *name = x.model->options[i].name;
        const size_t k = option_index(y.model, name);
        /* Only training depends on these; the tensors show whether there is a pooler. */
        if (weft__hf_is_one_of("dropout|inner_dropout|label_smoothing|pooler", name)) continue;
        if (k < y.model->n_options && weft_model_value(&x, i) == weft_model_value(&y, k)) continue;
        return weft_error_set(
            error, WEFT_BAD_ARGUMENT, x.model->name, "has %s=%s, but %s has %s", name,
            weft_model_value_text(x.model, i, weft_model_value(&x, i), ours, sizeof ours), a->name,
            k < y.model->n_options
                ? weft_model_value_text(y.model, k, weft_model_value(&y, k), theirs, sizeof theirs)
                : "no such option");
    }
    return WEFT_OK;
}

cJSON *weft__hf_write_config(const hf_architecture *a, const weft_model_config *config,
                             const cJSON *before, weft_error *error)
{
    weft_model_config again, was;
    const bool had = before && weft__hf_read_config(a, before, a->name, &was, NULL) == WEFT_OK;
    cJSON *json = had ? cJSON_Duplicate(before, true) : cJSON_CreateObject();
    bool good = json && put_texts(json, a);
    for (int t = 0; good && t < HF_TABLES && a->keys[t]; t++)
        for (const hf_key *row = a->keys[t]; good && row->key; row++)
            good = put_row(json, row, config, had ? &was : NULL);
    weft_status status =
        good ? weft__hf_read_config(a, json, a->name, &again, error)
             : weft_error_set(error, WEFT_NO_MEMORY, a->name, "no memory for the configuration");
    if (status == WEFT_OK) status = compare(a, config, &again, error);
    if (status == WEFT_OK) return json;
    cJSON_Delete(json);
    return NULL;
}
