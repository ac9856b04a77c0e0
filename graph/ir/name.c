/* Scopes and names: a value's name is its scope and its own name, joined by a dot. Names are found
 * through a hash table with linear probing, which doubles when half full. O(length) a name. */
#include "ir/ir.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- Scopes ---- */

void weft_scope_push(weft_graph *graph, const char *format, ...)
{
    if (!graph || graph->error.status != WEFT_OK) return;
    size_t used = strlen(graph->scope);
    char name[SCOPE_BYTES] = "";
    va_list arguments;
    va_start(arguments, format);
    int length = text_vformat(name, sizeof name, format, arguments);
    va_end(arguments);
    if (length < 0 || used + (size_t)length + 2 > SCOPE_BYTES ||
        graph->scope_depth == SCOPE_DEPTH) {
        weft_graph_fail_in(graph, "weft_scope_push", WEFT_BAD_ARGUMENT,
                           "name scopes are longer than %d bytes or over %d deep", SCOPE_BYTES - 2,
                           SCOPE_DEPTH);
        return;
    }
    graph->scope_lengths[graph->scope_depth++] = (uint16_t)used;
    if (!length) return;
    snprintf(graph->scope + used, SCOPE_BYTES - used, "%s%s", used ? "." : "", name);
    graph->scope_text = NULL;
}

void weft_scope_pop(weft_graph *graph)
{
    if (!graph || graph->error.status != WEFT_OK) return;
    if (graph->scope_depth == 0) {
        weft_graph_fail_in(graph, "weft_scope_pop", WEFT_BAD_ARGUMENT,
                           "no scope is open: expected a weft_scope_push before");
        return;
    }
    graph->scope[graph->scope_lengths[--graph->scope_depth]] = 0;
    graph->scope_text = NULL;
}

void graph_set_scope(weft_graph *graph, const char *scope)
{
    if (!strcmp(graph->scope, scope)) return;
    snprintf(graph->scope, sizeof graph->scope, "%s", scope);
    graph->scope_text = NULL;
}

const char *graph_scope(weft_graph *graph)
{
    if (!graph->scope_text) graph->scope_text = arena_text(&graph->arena, graph->scope);
    return graph->scope_text;
}

/* ---- Names ---- */

/* Where the id of the value of that name is, or would be; the table must not be empty. */
static uint32_t *name_slot(const weft_graph *graph, const char *name)
{
    size_t mask = graph->name_capacity - 1, i = weft_hash_text(name) & mask;
    while (graph->names[i] && strcmp(graph->values[graph->names[i]].name, name) != 0)
        i = (i + 1) & mask;
    return &graph->names[i];
}

/* Makes room for one more name; false when memory is out. */
static bool names_grow(weft_graph *graph)
{
    if (2 * (graph->n_names + 1) <= graph->name_capacity) return true;
    size_t old_capacity = graph->name_capacity, capacity = old_capacity ? 2 * old_capacity : 64;
    uint32_t *old = graph->names, *grown = calloc(capacity, sizeof *grown);
    if (!grown) return false;
    graph->names = grown;
    graph->name_capacity = capacity;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i]) *name_slot(graph, graph->values[old[i]].name) = old[i];
    free(old);
    return true;
}

bool graph_name_value(weft_graph *graph, uint32_t id, const char *full_name, const char *function)
{
    if (graph->error.status != WEFT_OK) return false;
    char *name = names_grow(graph) ? arena_text(&graph->arena, full_name) : NULL;
    if (!name) {
        weft_graph_fail_in(graph, function, WEFT_NO_MEMORY, "no memory for the name \"%s\"",
                           full_name);
        return false;
    }
    uint32_t *slot = name_slot(graph, name);
    if (*slot && *slot != id) {
        weft_graph_fail_in(graph, function, WEFT_BAD_ARGUMENT,
                           "the name \"%s\" is taken by another value", full_name);
        return false;
    }
    if (*slot == id) return true;
    graph->values[id].name = name;
    *slot = id;
    graph->n_names++;
    return true;
}

weft_value weft_find(const weft_graph *graph, const char *scoped_name)
{
    if (!graph || !scoped_name || !graph->name_capacity) return WEFT_NO_VALUE;
    return graph_value(graph, *name_slot(graph, scoped_name));
}

bool graph_full_name(weft_graph *graph, const char *name, const char *function, char *buffer,
                     size_t size)
{
    if (!name || !name[0]) {
        weft_graph_fail_in(graph, function, WEFT_BAD_ARGUMENT, "the name is NULL or empty");
        return false;
    }
    int n = snprintf(buffer, size, "%s%s%s", graph->scope, graph->scope[0] ? "." : "", name);
    if (n < 0 || (size_t)n >= size) {
        weft_graph_fail_in(graph, function, WEFT_BAD_ARGUMENT,
                           "the name has %d bytes with its scope, expected less than %zu", n, size);
        return false;
    }
    return true;
}

weft_value weft_name(weft_graph *graph, weft_value value, const char *name)
{
    char text[2 * SCOPE_BYTES];
    if (!graph || graph->error.status != WEFT_OK) return WEFT_NO_VALUE;
    if (!graph_owns(graph, value)) {
        weft_graph_fail_in(graph, "weft_name", WEFT_BAD_ARGUMENT, "not a value of this graph");
        return WEFT_NO_VALUE;
    }
    if (!graph_full_name(graph, name, "weft_name", text, sizeof text)) return WEFT_NO_VALUE;
    const char *own = graph->values[value.id].name;
    if (own && strcmp(own, text) != 0) {
        weft_graph_fail_in(graph, "weft_name", WEFT_BAD_ARGUMENT,
                           "\"%s\" has a name already, it cannot become \"%s\"", own, text);
        return WEFT_NO_VALUE;
    }
    return graph_name_value(graph, value.id, text, "weft_name") ? value : WEFT_NO_VALUE;
}
