/* Options of models as configurations of transformers. After writing, the configuration is read again
 * and compared with the options, so any option that an architecture lacks is found. O(keys x rows). */
#include "config.h"

#include "json/tree.h"

#include <stdio.h>
#include <string.h>

bool weft__hf_is_real(const hf_architecture *a, const weft_model *model, const char *path)
{
    for (int t = 0; t < HF_TABLES && a->keys[t]; t++)
        for (const hf_key *row = a->keys[t]; row->key; row++) {
            const size_t i =
                row->option ? weft__hf_option_index(model, row->option) : model->n_options;
            if (i < model->n_options && model->options[i].real && weft__hf_is_key(row, path))
                return true;
        }
    return false;
}

/* The number of a rule that scales rotary positions, with its default for 0. */
static double rope_number(const hf_key *row, const weft_model_config *c)
{
    const double x = weft__hf_option(c, row->option);
    return x != 0 ? x : row->of ? weft__hf_option(c, row->of) : row->plus;
}

/* Whether a row has nothing to say: another one has written the option, or the number is the one
 * that an absent key means. */
static bool is_silent(const hf_key *row, const weft_model_config *c)
{
    if (!row->option) return true;
    if (row->kind == HF_ROPE_NUMBER)
        return !weft__hf_is_of_rule(row, c) || rope_number(row, c) == 0;
    if (!row->value || *row->value || row->kind == HF_PAD) return false;
    return row->kind == HF_NUMBER || row->kind == HF_FLAG || weft__hf_option(c, row->option) == 0;
}

static cJSON *make_layers(const hf_key *row, const weft_model_config *c)
{
    cJSON *list = cJSON_CreateArray();
    const double every = weft__hf_option(c, row->option);
    for (int i = 0; list && i < weft__hf_option(c, "layers"); i++)
        cJSON_AddItemToArray(
            list, cJSON_CreateString(weft__hf_layer_types[weft__hf_is_global(every, i)]));
    return list;
}

static cJSON *make_factors(const weft_model_config *c)
{
    const weft_model_option *o =
        &c->model->options[weft__hf_option_index(c->model, "rotary_factors")];
    const float *factors = (const float *)(const void *)(c->options.bytes + o->offset);
    int n = 0;
    while ((size_t)n < o->size / sizeof *factors && factors[n] != 0) n++;
    return cJSON_CreateFloatArray(factors, n);
}

/* The JSON of a row's option; NULL if there is nothing to write, or no memory. */
static cJSON *make_value(const hf_key *row, const weft_model_config *c)
{
    char text[WORD_BYTES];
    const double x = row->option ? weft__hf_option(c, row->option) : 0;
    const hf_word *words = row->kind == HF_ROPE_TYPE ? weft__hf_rope_types : weft__hf_activations;
    const char *name;
    switch (row->kind) {
    case HF_NULLABLE:
        return x == 0 ? cJSON_CreateNull() : cJSON_CreateNumber(x);
    case HF_HEAD_DIM:
        return cJSON_CreateNumber(weft__hf_head_width(c));
    case HF_LAYERS:
        return make_layers(row, c);
    case HF_ROTARY_DIM:
        return cJSON_CreateNumber(x == 0 ? 1 : x / weft__hf_head_width(c));
    case HF_ROPE_NUMBER:
        return cJSON_CreateNumber(rope_number(row, c));
    case HF_ROPE_FACTORS:
        return make_factors(c);
    case HF_NUMBER:
    case HF_PAD:
        return cJSON_CreateNumber(
            (x == 0 && row->of ? row->times * weft__hf_option(c, row->of) : x) + row->plus);
    case HF_FLAG:
        return cJSON_CreateBool(x != 0);
    case HF_ACTIVATION:
    case HF_ROPE_TYPE:
        weft_model_value_text(c->model, weft__hf_option_index(c->model, row->option), x, text,
                              sizeof text);
        name = weft__hf_theirs(words, text);
        return name ? cJSON_CreateString(name) : NULL;
    case HF_FIXED:
    case HF_EACH:
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
    for (int i = 0; weft__hf_alternative(keys, i, key); i++) {
        in = weft__hf_holder(json, key, &last);
        if (in && cJSON_HasObjectItem(in, last)) break;
    }
    if (!in) {
        cJSON_DeleteItemFromObjectCaseSensitive(json, key);
        in = cJSON_AddObjectToObject(json, key);
    }
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

/* Whether an option of two configurations, of models that may differ, has the same value. */
static bool same_option(const weft_model_config *x, const weft_model_config *y, const char *name)
{
    char a[WEFT_OPTIONS_TEXT], b[WEFT_OPTIONS_TEXT];
    const char *const texts[] = {
        weft_model_config_option_text(x, weft__hf_option_index(x->model, name), a, sizeof a),
        weft_model_config_option_text(y, weft__hf_option_index(y->model, name), b, sizeof b)};
    return texts[0] && texts[1] && !strcmp(texts[0], texts[1]);
}

/* Writes a row, unless the configuration `before` (NULL: none) has the option's value already. */
static bool put_row(cJSON *json, const hf_key *row, const weft_model_config *c,
                    const weft_model_config *before)
{
    /* A second key of an option is written only where it adds information. */
    if (is_silent(row, c) && !weft__hf_find_value(json, row->key)) return true;
    const bool rope = row->kind == HF_ROPE_NUMBER || row->kind == HF_ROPE_FACTORS;
    if (!row->option || (rope && !weft__hf_is_of_rule(row, c))) return true;
    if (before && same_option(before, c, row->option)) return true;
    return put_value(json, row->key, make_value(row, c));
}

/* Brings options of rotary positions that mean the same into one form. */
static void normalise_rotary(weft_model_config *c)
{
    static const char *const options[] = {"rotary_factor", "rotary_slow", "rotary_fast",
                                          "rotary_positions", "rotary_magnitude"};
    const weft_model *m = c->model;
    const int rule = (int)weft__hf_option(c, "rotary_scaling");
    const bool longrope = rule == WEFT_ROTARY_LONGROPE;
    const double usual[] = {1, 1, rule == WEFT_ROTARY_YARN ? 32 : 4,
                            weft__hf_option(c, "max_positions"), longrope ? 1 : 0};
    const double head = weft__hf_head_width(c);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const bool used = longrope ? i > 2
                                   : rule && (rule != WEFT_ROTARY_LINEAR || i == 0) &&
                                         (rule == WEFT_ROTARY_YARN || i < 4);
        const double x = weft__hf_option(c, options[i]);
        weft_model_set_value(c, weft__hf_option_index(m, options[i]),
                             !used    ? 0
                             : x == 0 ? usual[i]
                                      : x);
    }
    weft_model_set_value(c, weft__hf_option_index(m, "head_dim"), head);
    if (weft__hf_option(c, "score_width") == 0)
        weft_model_set_value(c, weft__hf_option_index(m, "score_width"), head);
    if (weft__hf_option(c, "rotary_dim") == 0)
        weft_model_set_value(c, weft__hf_option_index(m, "rotary_dim"), head);
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
        const size_t at = weft__hf_option_index(m, derived[i].option);
        if (weft_model_value(c, at) == 0)
            weft_model_set_value(c, at, derived[i].times * weft__hf_option(c, derived[i].of));
    }
    normalise_rotary(c);
    const size_t every = weft__hf_option_index(m, "global_every"),
                 base = weft__hf_option_index(m, "local_rotary_base");
    if (weft__hf_option(c, "window") == 0) weft_model_set_value(c, base, 0);
    if (weft__hf_option(c, "window") == 0 ||
        weft_model_value(c, every) > weft__hf_option(c, "layers"))
        weft_model_set_value(c, every, 0);
    const size_t bias = weft__hf_option_index(m, "output_bias"),
                 offset = weft__hf_option_index(m, "position_offset");
    if (weft_model_value(c, bias) == WEFT_OUTPUT_BIAS_UNTIED)
        weft_model_set_value(c, bias,
                             weft__hf_option(c, "tied") != 0 ? WEFT_OUTPUT_BIAS_NONE
                                                             : WEFT_OUTPUT_BIAS_ALWAYS);
    if (weft__hf_option(c, "positions") != WEFT_POSITIONS_LEARNED)
        weft_model_set_value(c, offset, 0);
}

weft_status weft__hf_compare(const char *architecture, const weft_model_config *wanted,
                             const weft_model_config *got, weft_error *error)
{
    weft_model_config x = *wanted, y = *got;
    char theirs[WEFT_OPTIONS_TEXT], ours[WEFT_OPTIONS_TEXT];
    normalise(&x);
    normalise(&y);
    for (size_t i = 0; i < x.model->n_options; i++) {
        const char *name = x.model->options[i].name;
        const size_t k = weft__hf_option_index(y.model, name);
        /* Only training depends on these; the tensors show whether there is a pooler. */
        if (weft__hf_is_one_of("dropout|inner_dropout|label_smoothing|pooler", name)) continue;
        if (same_option(&x, &y, name)) continue;
        const char *mine = weft_model_config_option_text(&x, i, ours, sizeof ours),
                   *other = weft_model_config_option_text(&y, k, theirs, sizeof theirs);
        return weft_error_set(error, WEFT_BAD_ARGUMENT, x.model->name,
                              "has %s=%.40s, but %s has %.40s", name, mine ? mine : "?",
                              architecture,
                              k >= y.model->n_options ? "no such option"
                              : other                 ? other
                                                      : "?");
    }
    return WEFT_OK;
}

cJSON *weft__hf_write_config(const hf_architecture *a, const weft_model_config *config,
                             const cJSON *before, weft_error *error)
{
    weft_model_config again, was;
    const int64_t context = (int64_t)weft__hf_option(config, "max_positions");
    const hf_source old = {before, a->name, context};
    const bool had = before && weft__hf_read_config(a, &old, &was, NULL) == WEFT_OK;
    cJSON *json = had ? cJSON_Duplicate(before, true) : cJSON_CreateObject();
    bool good = json && put_texts(json, a);
    for (int t = 0; good && t < HF_TABLES && a->keys[t]; t++)
        for (const hf_key *row = a->keys[t]; good && row->key; row++)
            good = put_row(json, row, config, had ? &was : NULL);
    weft_status status =
        good ? weft__hf_read_config(a, &(hf_source){json, a->name, context}, &again, error)
             : weft_error_set(error, WEFT_NO_MEMORY, a->name, "no memory for the configuration");
    if (status == WEFT_OK) status = weft__hf_compare(a->name, config, &again, error);
    if (status == WEFT_OK) return json;
    cJSON_Delete(json);
    return NULL;
}
