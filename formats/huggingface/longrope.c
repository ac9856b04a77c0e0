/* LongRoPE (Ding et al. 2024) in configurations of transformers: which list of factors a model takes,
 * and its magnitude. O(pairs). */
#include "config.h"

#include "base/text.h"
#include "base/vmath.h"
#include "zoo/registry.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void set(weft_model_config *config, const char *option, double value)
{
    weft_model_set_value(config, weft__hf_option_index(config->model, option), value);
}

/* transformers' rule: by the ratio of the positions, or `factor` if the configuration has one. */
static double magnitude_of(const hf_longrope *l, double positions, double most)
{
    const double ratio = cJSON_IsNumber(l->factor) ? l->factor->valuedouble : most / positions;
    return ratio > 1 && positions > 1 ? sqrt(1 + vm_log_f64(ratio) / vm_log_f64(positions)) : 1;
}

/* Sets the option rotary_factors to a list, which must have a number for each pair. */
static weft_status set_factors(const hf_source *source, const cJSON *list, const char *name,
                               weft_model_config *config, weft_error *error)
{
    char text[WEFT_OPTIONS_TEXT] = "rotary_factors=", number[TEXT_NUMBER_BYTES];
    const char *const words[] = {text};
    const double rotated = weft__hf_option(config, "rotary_dim"),
                 pairs = (rotated != 0 ? rotated : weft__hf_head_width(config)) / 2;
    const int n = cJSON_GetArraySize(list);
    size_t used = strlen(text);
    weft_model_config one;
    weft_error problem = WEFT_NO_ERROR;
    if (!cJSON_IsArray(list) || n != pairs || n > WEFT_ROTARY_FACTORS)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, source->path,
                              "%s has %d numbers; expected %.9g, one for each pair of the rotated "
                              "elements of a head, and at most %d",
                              name, n, pairs, WEFT_ROTARY_FACTORS);
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        weft__text_from_double(cJSON_IsNumber(item) ? item->valuedouble : 0, number);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                                 item == list->child ? "" : ",", number);
    }
    if (weft_model_parse(config->model, words, 1, &one, &problem) != WEFT_OK || n == 0)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, source->path, "%s: %s", name,
                              n ? problem.message : "is empty");
    const size_t i = weft__hf_option_index(config->model, "rotary_factors");
    weft__option_copy(&config->model->options[i], config->options.bytes, one.options.bytes);
    return WEFT_OK;
}

weft_status weft__hf_choose_factors(const hf_source *source, const hf_longrope *longrope,
                                    weft_model_config *config, weft_error *error)
{
    static const char *const names[] = {"short_factor", "long_factor"};
    if ((int)weft__hf_option(config, "rotary_scaling") != WEFT_ROTARY_LONGROPE) return WEFT_OK;
    const double most = weft__hf_option(config, "max_positions");
    double positions = weft__hf_option(config, "rotary_positions");
    if (positions == 0 || positions > most) positions = most;
    for (int i = 0; i < 2; i++)
        if (!longrope->factors[i])
            return weft_error_set(error, WEFT_NOT_FOUND, source->path,
                                  "has no %s, which longrope needs", names[i]);
    if ((double)source->context > most)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, source->path,
                              "max_position_embeddings is %.9g: a context of %lld is too long",
                              most, (long long)source->context);
    if (weft__hf_option(config, "rotary_magnitude") == 0)
        set(config, "rotary_magnitude", magnitude_of(longrope, positions, most));
    const bool is_long = (double)source->context > positions;
    set(config, "max_positions", is_long ? most : positions);
    set(config, "rotary_positions", 0);
    set(config, "rotary_factor", 0);
    return set_factors(source, longrope->factors[is_long], names[is_long], config, error);
}
