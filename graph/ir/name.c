/* Scopes and names: a value's name is its scope and its own name, joined by a dot. O(length) a
 * name. */
#include "ir/ir.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- Scopes ---- */

void weft_graph_push_scope(weft_graph *graph, const char *format, ...)
{
    if (!graph || graph->error.status != WEFT_OK) return;
    size_t used = strlen(graph->scope);
    char name[SCOPE_BYTES] = "";
    va_list arguments;
    va_start(arguments, format);
    int length = weft__text_vformat(name, sizeof name, format, arguments);
    va_end(arguments);
    if (length < 0 || used + (size_t)length + 2 > SCOPE_BYTES ||
        graph->scope_depth == SCOPE_DEPTH) {
        weft_graph_fail_in(graph, "weft_graph_push_scope", WEFT_BAD_ARGUMENT,
                           "name scopes are longer than %d bytes or over %d deep", SCOPE_BYTES - 2,
                           SCOPE_DEPTH);
        return;
    }
    graph->scope_lengths[graph->scope_depth++] = (uint16_t)used;
    if (!length) return;
    snprintf(graph->scope + used, SCOPE_BYTES - used, "%s%s", used ? "." : "", name);
    graph->scope_text = NULL;
}

void weft_graph_pop_scope(weft_graph *graph)
{
    if (!graph || graph->error.status != WEFT_OK) return;
    if (graph->scope_depth == 0) {
        weft_graph_fail_in(graph, "weft_graph_pop_scope", WEFT_BAD_ARGUMENT,
                           "no scope is open: expected a weft_graph_push_scope before");
        return;
    }
    graph->scope[graph->scope_lengths[--graph->scope_depth]] = 0;
    graph->scope_text = NULL;
}

void weft__graph_set_scope(weft_graph *graph, const char *scope)
{
    if (!strcmp(graph->scope, scope)) return;
    snprintf(graph->scope, sizeof graph->scope, "%s", scope);
    graph->scope_text = NULL;
}

const char *weft__graph_scope(weft_graph *graph)
{
    if (!graph->scope_text) graph->scope_text = weft__arena_text(&graph->arena, graph->scope);
    return graph->scope_text;
}

/* ---- Names ---- */

bool weft__graph_name_value(weft_graph *graph, uint32_t id, const char *full_name,
                            const char *function)
{
    if (graph->error.status != WEFT_OK) return false;
    char *name = weft__arena_text(&graph->arena, full_name);
    const size_t *own = name ? weft__name_table_put(&graph->names, name, id) : NULL;
    if (!own) {
        weft_graph_fail_in(graph, function, WEFT_NO_MEMORY, "no memory for the name \"%s\"",
                           full_name);
        return false;
    }
    if (*own != id) {
        weft_graph_fail_in(graph, function, WEFT_BAD_ARGUMENT,
                           "the name \"%s\" is taken by another value", full_name);
        return false;
    }
    if (!graph->values[id].name) graph->values[id].name = name;
    return true;
}

weft_value weft_graph_find(const weft_graph *graph, const char *scoped_name)
{
    const size_t *id =
        graph && scoped_name ? weft__name_table_find(&graph->names, scoped_name) : NULL;
    return id ? weft__graph_value(graph, (uint32_t)*id) : WEFT_NO_VALUE;
}

const char *weft__graph_full_name(weft_graph *graph, const char *name, const char *function)
{
    if (!name || !name[0]) {
        weft_graph_fail_in(graph, function, WEFT_BAD_ARGUMENT, "the name is NULL or empty");
        return NULL;
    }
    const size_t room = strlen(graph->scope) + strlen(name) + 2;
    char *text = weft__arena_alloc(&graph->arena, room);
    if (!text) {
        weft_graph_fail_in(graph, function, WEFT_NO_MEMORY, "no memory for the name \"%s\"", name);
        return NULL;
    }
    snprintf(text, room, "%s%s%s", graph->scope, graph->scope[0] ? "." : "", name);
    return text;
}

weft_value weft_name(weft_graph *graph, weft_value value, const char *name)
{
    if (!graph || graph->error.status != WEFT_OK) return WEFT_NO_VALUE;
    if (!weft__graph_owns(graph, value)) {
        weft_graph_fail_in(graph, "weft_name", WEFT_BAD_ARGUMENT, "not a value of this graph");
        return WEFT_NO_VALUE;
    }
    const char *text = weft__graph_full_name(graph, name, "weft_name");
    if (!text) return WEFT_NO_VALUE;
    const char *own = graph->values[value.id].name;
    if (own && strcmp(own, text) != 0) {
        weft_graph_fail_in(graph, "weft_name", WEFT_BAD_ARGUMENT,
                           "\"%s\" has a name already, it cannot become \"%s\"", own, text);
        return WEFT_NO_VALUE;
    }
    return weft__graph_name_value(graph, value.id, text, "weft_name") ? value : WEFT_NO_VALUE;
}
