/* What may be fused: see fuse.c. */
#ifndef WEFT_GRAPH_FUSE_H
#define WEFT_GRAPH_FUSE_H

#include "ir/ir.h"

/* An operand of a fused node as a matrix: element [r, c] lies at r row + c column. */
typedef struct operand_matrix {
    int64_t row, column;
} operand_matrix;

/* The most inputs and outputs of a fused node together. */
#define MAX_FUSED_OPERANDS 8

/* Bit i: a tile of the node needs only the same tile of input i; without it, the whole input. */
static inline unsigned fuse_by_tile(const node_record *node)
{
    return node->op->elementwise ? ~0u : node_rows(node);
}

/* Output 0 of a node as a matrix: its last dimension has the columns. */
void weft__fuse_size(const weft_graph *g, uint32_t node, int64_t *rows, int64_t *columns);
/* A value as an operand of a node with an output of shape `out`, to which it broadcasts. False if
 * its layout is not that of a matrix. */
bool weft__fuse_matrix(const weft_graph *g, uint32_t id, weft_shape out, operand_matrix *matrix);
/* Whether a node can run on one block of its outputs after another: an elementwise or row-wise one
 * whose operands are matrices. */
bool weft__fuse_runs_by_blocks(const weft_graph *graph, uint32_t node);

#endif
