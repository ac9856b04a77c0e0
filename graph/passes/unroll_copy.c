/* A graph with the steps of its loops as nodes. O(nodes of the result). */
#include "unroll.h"

#include "ir/ir.h"

#include <stdlib.h>

/* Lists the values that no node reads. */
static size_t list_ends(const weft_graph *graph, uint8_t *read, weft_value *ends)
{
    size_t n_ends = 0;
    for (size_t n = 0; n < graph->n_nodes; n++)
        for (size_t i = 0; i < graph->nodes[n].n_in; i++) read[graph->nodes[n].in[i]] = 1;
    for (uint32_t v = 1; v < graph->n_values; v++)
        if (!read[v]) ends[n_ends++] = weft__graph_value(graph, v);
    return n_ends;
}

weft_graph *weft__unroll_copy(const weft_graph *graph, weft_error *error)
{
    if (!weft__unroll_needed(graph)) return NULL;
    uint8_t *read = calloc(graph->n_values, 1);
    weft_value *ends = calloc(graph->n_values, sizeof *ends);
    weft_graph *copy = weft_graph_new();
    weft_status status = WEFT_NO_MEMORY;
    if (read && ends && copy) {
        status = weft_graph_rewrite(copy, graph, &weft__unroll, ends, list_ends(graph, read, ends));
        if (status != WEFT_OK) weft_error_copy(error, weft_graph_error(copy));
    } else {
        weft_error_set(error, status, "weft_graph_rewrite", "no memory");
    }
    free(read);
    free(ends);
    if (status == WEFT_OK) return copy;
    weft_graph_free(copy);
    return NULL;
}
