/* Whether a store has the tensors of a model, some of them quantised. */
#include "saved.h"

#include "quantize/quantize.h"

#include <weft/train.h>

#include <stdlib.h>

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

static void list_found(name_list *l, const weft_params *params)
{
    for (size_t i = 0; i < weft_params_count(params); i++)
        if (weft_params_key(params, i).kind == WEFT_STATE_MODEL)
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
