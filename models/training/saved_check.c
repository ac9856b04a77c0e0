/* The model that a store names, and whether it has its tensors, some of them quantised. */
#include "saved.h"

#include "trainer.h"

#include "passes/lora.h"
#include "zoo/registry.h"

#include <weft/train.h>

#include <stdlib.h>
#include <string.h>

/* Names of tensors. */
typedef struct name_list {
    const char **at;
    char (*forms)[QUANTIZED_NAME]; /* those of quantised forms */
    size_t n, n_forms;
} name_list;

/* Adds the three names of a state's quantised form if the store has one of them; false if it has
 * none. */
static bool add_form(name_list *l, const weft_params *params, const char *state, bool by_rows)
{
    static const char *const tensors[] = {"q", "scale", "zero", "min"};
    bool has = false;
    /* "min" takes the place of "zero". */
    for (size_t i = 0; i < 4; i++) {
        char name[QUANTIZED_NAME];
        const bool found = weft__quantized_name(name, state, by_rows, tensors[i]) &&
                           weft_params_find(params, name, NULL);
        has |= found;
        if (i < 3 || found)
            snprintf(l->forms[l->n_forms + (i < 3 ? i : 2)], QUANTIZED_NAME, "%s", name);
    }
    if (!has) return false;
    for (size_t i = 0; i < 3; i++) l->at[l->n++] = l->forms[l->n_forms++];
    return true;
}

/* Lists the tensors that a store with the model's parameters has: a state may be quantised, by
 * columns, by rows or both. */
static void list_wanted(name_list *l, const weft_params *params, const weft_graph *g,
                        const weft_value *states, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *name = weft_name_of(g, states[i]);
        bool has = weft_params_find(params, name, NULL);
        if (has) l->at[l->n++] = name;
        has |= add_form(l, params, name, false);
        has |= add_form(l, params, name, true);
        if (!has) l->at[l->n++] = name;
    }
}

/* Whether a tensor is one of an adapter next to a quantised matrix. */
static bool is_adapter(const weft_params *params, const char *name)
{
    const size_t n = strlen(name), end = strlen(".lora_a");
    return n > end && weft_params_meta(params, LORA_META) &&
           (!strcmp(name + n - end, ".lora_a") || !strcmp(name + n - end, ".lora_b"));
}

static void list_found(name_list *l, const weft_params *params)
{
    for (size_t i = 0; i < weft_params_count(params); i++)
        if (weft_params_key(params, i).kind == WEFT_STATE_MODEL &&
            !is_adapter(params, weft_params_name(params, i)))
            l->at[l->n++] = weft_params_name(params, i);
}

weft_status weft__saved_judge(const name_match *match, const char *where, weft_error *error)
{
    char text[300];
    if (!match->n_missing && !match->n_unexpected) return WEFT_OK;
    weft__match_text(match, "tensors of the model", text, sizeof text);
    return weft_error_set(error, WEFT_BAD_FILE, where, "%s", text);
}

weft_status weft__saved_check(const weft_params *params, const weft_graph *graph, const char *where,
                              weft_error *error)
{
    name_match match = {NULL, NULL, NULL, 0, 0, 0};
    const weft_error *own = weft_graph_error(graph);
    if (own->status != WEFT_OK)
        return weft_error_set(error, own->status, own->where, "%s", own->message);
    size_t n;
    const weft_value *states = weft_graph_states(graph, &n);
    name_list wanted = {.at = calloc(7 * n + 1, sizeof *wanted.at),
                        .forms = calloc(6 * n + 6, QUANTIZED_NAME)};
    name_list found = {.at = calloc(weft_params_count(params) + 1, sizeof *found.at)};
    bool good = wanted.at && wanted.forms && found.at;
    if (good) {
        list_wanted(&wanted, params, graph, states, n);
        list_found(&found, params);
        good = weft__match_names(&match, wanted.at, wanted.n, found.at, found.n);
    }
    const weft_status status = good ? weft__saved_judge(&match, where, error)
                                    : weft_error_set(error, WEFT_NO_MEMORY, where, "out of memory");
    weft__match_free(&match);
    free(wanted.at);
    free(wanted.forms);
    free(found.at);
    return status;
}

/* ---- Models ---- */

static weft_status read_config(const weft_params *params, const char *where,
                               weft_model_config *config, weft_error *error)
{
    const char *stored = weft_params_meta(params, "model_options");
    const weft_model *model = weft_model_find(weft_params_meta(params, "model"));
    char texts[WEFT_OPTIONS_TEXT];
    const char *options[WEFT_OPTIONS_WORDS];
    if (!model || !stored || strlen(stored) >= sizeof texts)
        return weft_error_set(error, WEFT_BAD_FILE, where, "does not name its model");
    memcpy(texts, stored, strlen(stored) + 1);
    return weft_model_parse(model, options, weft__options_split(texts, options, WEFT_OPTIONS_WORDS),
                            config, error);
}

weft_graph *weft__saved_graph(const weft_model_config *config, const char *where, weft_error *error)
{
    weft_model_config any = *config;
    weft_batch_shape *shape = &any.build.shape;
    const int64_t longest = weft_model_traits_of(config).max_positions;
    if (shape->source_len > longest) shape->source_len = longest;
    if (shape->target_len > longest) shape->target_len = longest;
    weft_graph *g = weft_graph_new();
    if (g)
        weft_model_build(g, &any);
    else
        weft_error_set(error, WEFT_NO_MEMORY, where, "out of memory");
    return g;
}

weft_status weft_saved_config(const weft_params *params, const char *where,
                              weft_model_config *config, weft_error *error)
{
    weft_error_clear(error);
    if (!params || !where || !config)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "saved model", "has no parameters");
    weft_status status = read_config(params, where, config, error);
    if (status != WEFT_OK) return status;
    weft_graph *g = weft__saved_graph(config, where, error);
    if (!g) return WEFT_NO_MEMORY;
    status = weft__saved_check(params, g, where, error);
    weft_graph_free(g);
    return status;
}
