/* What the files of scans share. */
#ifndef WEFT_AUTOGRAD_SCAN_H
#define WEFT_AUTOGRAD_SCAN_H

#include <weft/autograd.h>
#include <weft/scan.h>

#include "ir/scan.h"

/* The reverse rule. (scan_gradient.c) */
void weft__scan_vjp(weft_vjp *v);
/* Whether the lists are there and their numbers are possible; if not, with an error. (scan_build.c) */
bool weft__scan_check(weft_graph *graph, const weft_scan_body *body,
                      const weft_scan_inputs *inputs);
/* Adds a scan that has been checked. out[0..WEFT_MAX_OUTPUTS-1] become its outputs: the last carries, the
 * stacks of body->out, and what it stores for a gradient. `ops` are the scans of 1, 2, .. outputs.
 * (scan_build.c) */
void weft__scan_build(weft_graph *graph, const weft_op *ops, const weft_scan_body *body, int64_t n,
                      const weft_scan_inputs *inputs, weft_value *out);
/* The same in segments of body->segment steps, of which there is at least one. (scan_segments.c) */
void weft__scan_segments(weft_graph *graph, const weft_op *ops, const weft_scan_body *body,
                         int64_t n, const weft_scan_inputs *inputs, weft_value *out);
/* n copies of the body. (scan_expand.c) */
void weft__scan_expand(weft_expand *e);

/* Marks in stored[], by value of the body and 0 at first, what a gradient reads from stacks if the
 * scan has them: values that differ from step to step and need more than elementwise ops.
 * (scan_stored.c) */
void weft__scan_mark_stored(const scan_body *body, uint8_t *stored);
/* Appends to body->out, which has room for WEFT_MAX_OUTPUTS, the carries that come in and then,
 * unless `recompute`, what weft__scan_mark_stored marks: all of it, or else what products and the like
 * result in, or else nothing; and only what may be stacked for n steps. False if out of memory.
 * (scan_stored.c) */
bool weft__scan_list_stored(scan_body *body, int64_t n, bool recompute);

/* Marks in depends[], by value of the graph, what depends on the marked inputs of node `index`: the
 * outputs of a scan one by one. False if out of memory. (scan_depend.c) */
bool weft__scan_mark_dependent(const weft_graph *graph, size_t index, uint8_t *depends);

/* An input of a type in a body, without a name. (scan_build.c) */
weft_value weft__scan_input(weft_graph *body, const weft_type *type);

/* Takes over the error of a graph that is to become a part of another one; whether it has none. */
static inline bool scan_is_good(weft_graph *g, const weft_graph *part)
{
    const weft_error *error = weft_graph_error(part);
    if (error->status != WEFT_OK)
        weft_graph_fail_in(g, error->where, error->status, "%s", error->message);
    return error->status == WEFT_OK;
}

static inline void scan_no_memory(weft_graph *g)
{
    weft_graph_fail_in(g, "weft_scan", WEFT_NO_MEMORY, "no memory");
}

/* The most inputs of a node of the graph, at least 1. */
static inline size_t scan_max_inputs(const weft_graph *g)
{
    size_t most = 1;
    for (size_t k = 0; k < weft_graph_node_count(g); k++) {
        const size_t n = weft_graph_node(g, k).n_in;
        if (n > most) most = n;
    }
    return most;
}

#endif
