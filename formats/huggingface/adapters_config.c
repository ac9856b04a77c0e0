/* adapter_config.json of PEFT: which adapters weft can represent. A key that weft does not know must
 * say nothing: null, false, or empty. O(keys). */
#include "adapters.h"

#include "json/tree.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* Other ways to begin change the model as well, from which they subtract the first A B. */
static bool begins_plainly(const cJSON *item)
{
    const char *text = cJSON_GetStringValue(item);
    return !item || cJSON_IsBool(item) || cJSON_IsNull(item) ||
           (text && weft__hf_is_one_of("gaussian|eva|orthogonal", text));
}

/* Whether a key is a name, and not a regular expression. */
static bool is_plain(const char *name)
{
    return *name && !strpbrk(name, "^$*+?()[]{}|\\");
}

static weft_status check_keys(const cJSON *json, const char *path, weft_error *error)
{
    const cJSON *item;
    const char *bias = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "bias"));
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "peft_type"));
    if (!type || strcmp(type, "LORA") != 0)
        return bad(error, path, "peft_type", "weft reads adapters of the type LORA only");
    if (bias && strcmp(bias, "none") != 0)
        return bad(error, path, "bias", "weft's adapters train no biases, expected \"none\"");
    if (!begins_plainly(cJSON_GetObjectItemCaseSensitive(json, "init_lora_weights")))
        return bad(error, path, "init_lora_weights",
                   "such adapters also change the model: convert them to plain ones by PEFT first");
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
    item = cJSON_GetObjectItemCaseSensitive(json, "alpha_pattern");
    for (item = item ? item->child : NULL; item; item = item->next)
        if (!is_plain(item->string) || !cJSON_IsNumber(item) || !(item->valuedouble > 0))
            return bad(error, path, "alpha_pattern",
                       "expected numbers above 0 for names of modules, not regular expressions");
    return WEFT_OK;
}

/* The number of a key; `absent` if there is none, NAN if it is something else. */
static double number(const cJSON *json, const char *key, double absent)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return !item ? absent : cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

weft_status weft__peft_read_config(const char *text, size_t length, const char *path,
                                   peft_config *config, weft_error *error)
{
    json_failure why;
    *config = (peft_config){.json = weft__json_parse(text, length, &why)};
    const cJSON *json = config->json;
    if (!json && why.no_memory) return weft_error_set(error, WEFT_NO_MEMORY, path, "no memory");
    if (!cJSON_IsObject(json))
        return weft_error_set(error, WEFT_BAD_FILE, path, "is not a JSON object, near byte %zu",
                              json ? 0 : why.position);
    const weft_status status = check_keys(json, path, error);
    if (status != WEFT_OK) return status;
    config->rank = number(json, "r", 8);
    config->alpha = number(json, "lora_alpha", 8);
    config->dropout = number(json, "lora_dropout", 0);
    config->by_root = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "use_rslora"));
    if (!(config->rank >= 1 && config->rank <= 65536) || floor(config->rank) != config->rank)
        return bad(error, path, "r", "expected a whole number from 1 to 65536");
    if (!(config->alpha > 0 && config->alpha <= 1e9))
        return bad(error, path, "lora_alpha", "expected a number above 0");
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
