/* What reading and writing configurations of transformers share: keys, names of values, and options
 * by name. O(rows). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- Keys ---- */

bool weft__hf_alternative(const char *keys, int i, char key[KEY_BYTES])
{
    for (; keys && i > 0; i--) {
        keys = strchr(keys, '|');
        if (keys) keys++;
    }
    if (!keys) return false;
    snprintf(key, KEY_BYTES, "%.*s", (int)strcspn(keys, "|"), keys);
    return true;
}

cJSON *weft__hf_holder(const cJSON *json, char *key, char **last)
{
    cJSON *in = (cJSON *)(uintptr_t)json;
    *last = key;
    for (char *dot; (dot = strchr(*last, '.')); *last = dot + 1) {
        *dot = 0;
        in = in ? cJSON_GetObjectItemCaseSensitive(in, *last) : NULL;
    }
    return cJSON_IsObject(in) ? in : NULL;
}

cJSON *weft__hf_find_value(const cJSON *json, const char *keys)
{
    char key[KEY_BYTES], *last;
    for (int i = 0; weft__hf_alternative(keys, i, key); i++) {
        const cJSON *in = weft__hf_holder(json, key, &last);
        cJSON *item = in ? cJSON_GetObjectItemCaseSensitive(in, last) : NULL;
        if (item && !cJSON_IsNull(item)) return item;
    }
    return NULL;
}

bool weft__hf_is_key(const hf_key *row, const char *path)
{
    const size_t n = strlen(path);
    char key[KEY_BYTES];
    for (int i = 0; weft__hf_alternative(row->key, i, key); i++)
        if (!strncmp(key, path, n) && (!key[n] || key[n] == '.')) return true;
    return false;
}

/* ---- Names of values ---- */

const hf_word weft__hf_activations[] = {
    {"relu", "relu"},           {"gelu", "gelu"},        {"gelu_new", "gelu-tanh"},
    {"silu", "silu"},           {"swish", "silu"},       {"gelu_pytorch_tanh", "gelu-tanh"},
    {"gelu_fast", "gelu-tanh"}, {"gelu_python", "gelu"}, {NULL, NULL},
};
const hf_word weft__hf_rope_types[] = {
    {"default", "none"},      {"linear", "linear"}, {"llama3", "llama3"}, {"yarn", "yarn"},
    {"longrope", "longrope"}, {"su", "longrope"},   {NULL, NULL},
};
const char *const weft__hf_layer_types[2] = {"sliding_attention", "full_attention"};

const char *weft__hf_ours(const hf_word *words, const char *theirs)
{
    while (theirs && words->theirs && strcmp(words->theirs, theirs) != 0) words++;
    return theirs ? words->ours : NULL;
}

const char *weft__hf_theirs(const hf_word *words, const char *ours)
{
    while (words->ours && strcmp(words->ours, ours) != 0) words++;
    return words->theirs;
}

/* ---- Options ---- */

size_t weft__hf_option_index(const weft_model *m, const char *name)
{
    size_t i = 0;
    while (i < m->n_options && strcmp(m->options[i].name, name) != 0) i++;
    return i;
}

double weft__hf_option(const weft_model_config *c, const char *name)
{
    return weft_model_value(c, weft__hf_option_index(c->model, name));
}

double weft__hf_head_width(const weft_model_config *c)
{
    const double width = weft__hf_option(c, "head_dim"), heads = weft__hf_option(c, "heads");
    return width != 0 || heads == 0 ? width : floor(weft__hf_option(c, "d_model") / heads);
}

bool weft__hf_is_global(double every, int i)
{
    return every > 0 && fmod(i + 1, every) == 0;
}

bool weft__hf_is_of_rule(const hf_key *row, const weft_model_config *c)
{
    return row->times >> (int)weft__hf_option(c, "rotary_scaling") & 1;
}
