/* adapter_config.json of PEFT: which adapters weft can represent. A key that weft does not know must
 * say nothing: null, false, or empty. O(keys). */
#include "adapters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONFIG (4 << 20) /* bytes */
#define MAX_ALPHA  1e9

/* Keys that do not change what trained adapters compute, whatever they are. */
static const char inert[] =
    "peft_type|base_model_name_or_path|revision|task_type|inference_mode|auto_mapping|*_version|"
    "target_modules|exclude_modules|layers_to_transform|layers_pattern|fan_in_fan_out|"
    "r|lora_alpha|lora_dropout|use_rslora|rank_pattern|alpha_pattern|bias|init_lora_weights|"
    "megatron_core|qalora_group_size|runtime_config|eva_config";

static weft_status bad(weft_error *error, const char *path, const char *key, const char *why)
{
    return weft_error_set(error, WEFT_BAD_ARGUMENT, path, "%s: %s", key, why);
}

/* Whether a value is null, false or empty. */
static bool says_nothing(const cJSON *item)
{
    const char *text = cJSON_GetStringValue(item);
    return cJSON_IsNull(item) || cJSON_IsFalse(item) || (text && !*text) ||
           ((cJSON_IsArray(item) || cJSON_IsObject(item)) && !item->child);
}

/* Other initialisations change the model as well: they subtract the first A B from it. */
static bool has_plain_init(const cJSON *item)
{
    const char *text = cJSON_GetStringValue(item);
    return !item || cJSON_IsBool(item) || cJSON_IsNull(item) ||
           (text && weft__hf_is_one_of("gaussian|eva|orthogonal", text));
}

/* False for NAN, which is the value of what is not a number. */
static bool is_alpha(double x)
{
    return x > 0 && x <= MAX_ALPHA;
}

/* Whether a key is a name, and not a regular expression. */
static bool is_plain(const char *name)
{
    return *name && !strpbrk(name, "^$*+?()[]{}|\\");
}

/* The factors of single modules, by their names. */
static weft_status check_patterns(const cJSON *patterns, const char *path, weft_error *error)
{
    const cJSON *item;
    bool good = !patterns || cJSON_IsNull(patterns) || cJSON_IsObject(patterns);
    for (item = good && patterns ? patterns->child : NULL; good && item; item = item->next)
        good = is_plain(item->string) && is_alpha(cJSON_GetNumberValue(item));
    return good ? WEFT_OK
                : bad(error, path, "alpha_pattern",
                      "expected an object with a number above 0 and at most 1e9 for each name of "
                      "modules; weft reads no regular expressions");
}

static weft_status check_keys(const cJSON *json, const char *path, weft_error *error)
{
    const cJSON *item, *bias = cJSON_GetObjectItemCaseSensitive(json, "bias");
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "peft_type"));
    const char *biases = cJSON_GetStringValue(bias);
    if (!type || strcmp(type, "LORA") != 0)
        return bad(error, path, "peft_type", "weft reads adapters of the type LORA only");
    if (bias && !cJSON_IsNull(bias) && (!biases || strcmp(biases, "none") != 0))
        return bad(error, path, "bias", "weft's adapters train no biases, expected \"none\"");
    if (!has_plain_init(cJSON_GetObjectItemCaseSensitive(json, "init_lora_weights")))
        return bad(error, path, "init_lora_weights",
                   "this initialisation also changes the base model; convert the adapters to plain "
                   "LoRA with PEFT first");
    cJSON_ArrayForEach(item, json)
    {
        if (weft__hf_is_one_of(inert, item->string) || says_nothing(item)) continue;
        return bad(error, path, item->string,
                   !strcmp(item->string, "use_dora")
                       ? "weft has no DoRA: its adapters also scale the columns of matrices"
                   : !strcmp(item->string, "modules_to_save")
                       ? "weft trains adapters only: merge them by PEFT, and convert the model"
                       : "weft's adapters have no such option");
    }
    return check_patterns(cJSON_GetObjectItemCaseSensitive(json, "alpha_pattern"), path, error);
}

/* The number of a key; `absent` if there is none, NAN if it is something else. */
static double number(const cJSON *json, const char *key, double absent)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return !item ? absent : cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

/* Reads use_rslora. */
static weft_status read_root(const cJSON *json, const char *path, bool *by_root, weft_error *error)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "use_rslora");
    *by_root = cJSON_IsTrue(item);
    return !item || cJSON_IsBool(item) || cJSON_IsNull(item)
               ? WEFT_OK
               : bad(error, path, "use_rslora", "expected true or false");
}

weft_status weft__peft_read_config(const char *path, peft_config *config, weft_error *error)
{
    char *text;
    *config = (peft_config){.json = NULL};
    weft_status status = weft__hf_read_object(path, MAX_CONFIG, &text, &config->json, error);
    free(text);
    const cJSON *json = config->json;
    if (status == WEFT_OK) status = check_keys(json, path, error);
    if (status == WEFT_OK) status = read_root(json, path, &config->by_root, error);
    if (status != WEFT_OK) return status;
    config->rank = number(json, "r", 8);
    config->alpha = number(json, "lora_alpha", 8);
    config->dropout = number(json, "lora_dropout", 0);
    if (!(config->rank >= 1 && config->rank <= 65536) || floor(config->rank) != config->rank)
        return bad(error, path, "r", "expected a whole number from 1 to 65536");
    if (!is_alpha(config->alpha))
        return bad(error, path, "lora_alpha", "expected a number above 0 and at most 1e9");
    if (!(config->dropout >= 0 && config->dropout < 1))
        return bad(error, path, "lora_dropout", "expected a number of at least 0 and below 1");
    return WEFT_OK;
}

/* Whether a name is that of a module, or of its last components. */
static bool names_module(const char *name, const char *module)
{
    const size_t n = strlen(name), m = strlen(module);
    return n <= m && !strcmp(module + m - n, name) && (n == m || module[m - n - 1] == '.');
}

double weft__peft_scale(const peft_config *config, const char *module, double rank)
{
    double alpha = config->alpha;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config->json, "alpha_pattern");
    for (item = item ? item->child : NULL; item; item = item->next) {
        if (!names_module(item->string, module)) continue;
        alpha = item->valuedouble;
        break;
    }
    return alpha / (config->by_root ? sqrt(rank) : rank);
}

bool weft__peft_module(const hf_architecture *a, const char *ours, char module[HF_NAME_BYTES])
{
    const hf_name name = weft__hf_name_of(a, ours);
    if (!name.row) return false;
    snprintf(module, HF_NAME_BYTES, "%s", a->headless ? name.bare : name.full);
    const size_t n = strlen(module), end = strlen(".weight");
    if (n <= end || strcmp(module + n - end, ".weight") != 0) return false;
    module[n - end] = 0;
    return true;
}

hf_place weft__peft_place(const hf_architecture *a, const weft_graph *graph, const char *ours)
{
    const hf_layout layout = weft__hf_name_of(a, ours).row->layout;
    const weft_shape w = weft_shape_of(graph, weft_graph_find(graph, ours));
    return layout == HF_COLUMNS || layout == HF_ROWS ? weft__hf_place_of(a, graph, ours)
                                                     : (hf_place){0, w.dim[1]};
}
