/* What the passes share. */
#ifndef WEFT_OPS_PASSES_TERMS_H
#define WEFT_OPS_PASSES_TERMS_H

#include <weft/pass.h>

static inline weft_node_info terms_producer(const weft_graph *graph, weft_value value)
{
    return weft_graph_node(graph, weft_producer_of(graph, value));
}

/* Is an operand of a node of the source computed in a session's first run only? */
static inline bool terms_fixed(const weft_rewrite *r, uint32_t id)
{
    return r->fixed && r->fixed[weft_producer_of(r->source, weft_value_from_id(r->source, id))];
}

/* The state of a pass that asks for readers: how many inputs of nodes a value of the source is, 2
 * for more, by id; counted when first asked. */
typedef struct terms_readers {
    bool counted;
    uint8_t of[];
} terms_readers;

static inline size_t terms_readers_bytes(const weft_graph *source)
{
    size_t values = 1;
    for (size_t i = 0; i < weft_graph_node_count(source); i++) {
        const weft_node_info node = weft_graph_node(source, i);
        if (node.first_out + node.n_out > values) values = node.first_out + node.n_out;
    }
    return sizeof(terms_readers) + values;
}

/* Whether one input of a node is all that reads a value of the source. */
static inline bool terms_one_reader(weft_rewrite *r, uint32_t id)
{
    terms_readers *counts = r->memory;
    for (size_t n = 0; !counts->counted && n < weft_graph_node_count(r->source); n++) {
        const weft_node_info node = weft_graph_node(r->source, n);
        for (size_t i = 0; i < node.n_in; i++)
            if (counts->of[node.in[i]] < 2) counts->of[node.in[i]]++;
    }
    counts->counted = true;
    return counts->of[id] == 1;
}

/* Removes terms that are WEFT_NO_VALUE, in order; returns how many stay. */
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
