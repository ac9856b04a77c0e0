/* Replacing scans by their steps. O(nodes of the result). */
#include "unroll.h"

#include "ir/scan.h"

bool weft__unroll_visit(weft_rewrite *r)
{
    if (!scan_of(r->node.op, r->node.attr)) return false;
    weft_expand e = {r->graph, r->node.attr, r->node.n_in, r->node.n_out, r->in, r->out};
    r->node.op->expand(&e);
    return true;
}

bool weft__unroll_needed(const weft_graph *graph)
{
    for (size_t n = 0; n < graph->n_nodes; n++)
        if (scan_of(graph->nodes[n].op, graph->nodes[n].attr)) return true;
    return false;
}

const weft_pass weft__unroll = {
    .name = "unroll", .visit = weft__unroll_visit, .needed = weft__unroll_needed, .required = true};
