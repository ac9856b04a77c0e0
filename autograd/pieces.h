/* What a training on one process has in common with one on several: the order in which the
 * gradients of an update are added, and pieces of tensors, in which several processes save states
 * that one can read. */
#ifndef WEFT_AUTOGRAD_PIECES_H
#define WEFT_AUTOGRAD_PIECES_H

#include <weft/graph.h>
#include <weft/state_key.h>

#include "base/private.h"

/* ---- The order of sums ---------------------------------------------------------------------- */

/* The n batches of an update are added as a binary tree over their numbers: 0 + 1, 2 + 3, ..., then
 * (0 + 1) + (2 + 3), .... A node of the tree is the sum of the batches [first, end). */
typedef struct weft_sum_node {
    uint32_t first, end;
} weft_sum_node;
#define WEFT_SUM_NODES 64
/* The batches of a rank: n / size of them, one more or less. */
WEFT_PRIVATE_API weft_sum_node weft__rank_batches(uint32_t n, int rank, int size);
/* Fills nodes[] with the fewest nodes that make up `batches`, in order, and returns their number.
 */
WEFT_PRIVATE_API size_t weft__sum_nodes(uint32_t n, weft_sum_node batches,
                                        weft_sum_node nodes[WEFT_SUM_NODES]);
/* Whether a and b are the two halves of a node. */
WEFT_PRIVATE_API bool weft__sum_joins(uint32_t n, weft_sum_node a, weft_sum_node b);

/* ---- Pieces of tensors ---------------------------------------------------------------------- */

/* The whole of a state, or the part of a whole that it is. */
WEFT_PRIVATE_API weft_piece weft__piece_of(const weft_graph *graph, weft_value state);
/* Copies the elements that both pieces have from the data of one to that of the other, and returns
 * how many they are. The data, of `bytes` bytes an element, begin with element `first`; with NULL
 * the elements are only counted. */
WEFT_PRIVATE_API int64_t weft__piece_copy(const weft_piece *to, void *to_data,
                                          const weft_piece *from, const void *from_data,
                                          size_t bytes);
#endif
