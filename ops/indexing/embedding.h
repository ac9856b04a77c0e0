/* The gradient of an embedding matrix, for the ops that read rows of one. */
#ifndef WEFT_OPS_INDEXING_EMBEDDING_H
#define WEFT_OPS_INDEXING_EMBEDDING_H

#include <weft/graph.h>

/* The sums [rows, features] of the rows of dy [..., features] that have the same index in `indices`
 * [...], added in order. Rows of padding_index are left out (-1: none). */
weft_value weft__embedding_grad(weft_graph *graph, weft_value indices, weft_value dy, int64_t rows,
                                int64_t padding_index);

#endif
