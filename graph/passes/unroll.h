/* Graphs without loops, for what looks for the nodes that read a value (weft_pass.unrolls). */
#ifndef WEFT_GRAPH_UNROLL_H
#define WEFT_GRAPH_UNROLL_H

#include <weft/pass.h>

#include "base/private.h"

/* Replaces a scan by its expansion. */
WEFT_PRIVATE_API bool weft__unroll_visit(weft_rewrite *rewrite);
/* The pass that does so: weft_pass_unroll (weft/scan.h). */
extern const weft_pass weft__unroll;
/* Whether the graph has scans. */
WEFT_PRIVATE_API bool weft__unroll_needed(const weft_graph *graph);
/* A copy of the graph in which scans are replaced by their steps, which the caller frees; NULL, and no
 * error, if it has none. NULL with an error if the graph has one, or the copy. */
WEFT_PRIVATE_API weft_graph *weft__unroll_copy(const weft_graph *graph, weft_error *error);

#endif
