/* What the passes share. */
#ifndef WEFT_OPS_PASSES_TERMS_H
#define WEFT_OPS_PASSES_TERMS_H

#include <weft/pass.h>

static inline weft_node_info terms_producer(const weft_graph *graph, weft_value value)
{
    return weft_graph_node(graph, weft_producer(graph, value));
}

/* Is an operand of a node of the source computed in a session's first run only? */
static inline bool terms_fixed(const weft_rewrite *r, uint32_t id)
{
    return r->fixed && r->fixed[weft_producer(r->source, weft_value_from_id(r->source, id))];
}

/* Removes terms that are no values, in order; returns how many stay. */
static inline size_t terms_compact(weft_value *terms, size_t n)
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++)
        if (weft_is_value(terms[i])) terms[used++] = terms[i];
    return used;
}

/* Whether a sum of the graph has two terms or more that the op computes. */
static inline bool terms_any(const weft_graph *graph, const weft_op *sum, const weft_op *op)
{
    for (size_t n = 0; n < weft_graph_node_count(graph); n++) {
        const weft_node_info node = weft_graph_node(graph, n);
        size_t found = 0;
        if (node.op != sum) continue;
        for (size_t i = 0; i < node.n_in; i++) {
            weft_value term = weft_value_from_id(graph, node.in[i]);
            if (terms_producer(graph, term).op == op && ++found == 2) return true;
        }
    }
    return false;
}

#endif
