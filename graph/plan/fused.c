/* Fused groups in the plan: what their nodes may overwrite, and their steps. */
#include "plan.h"

static bool is_dense(const operand_matrix *matrix, int64_t rows, int64_t columns)
{
    return (rows == 1 || matrix->row == columns) && (columns == 1 || matrix->column == 1);
}

/* A tile may overwrite only data that the same tile has already read. */
bool weft__fused_may_overwrite(const weft_graph *g, const schedule *s, uint32_t head,
                               uint32_t position, const uint32_t *storage, uint32_t overwritten)
{
    int64_t rows, columns;
    weft__fuse_size(g, s->order[head], &rows, &columns);
    for (uint32_t at = head; at < position; at++) {
        const node_record *node = &g->nodes[s->order[at]];
        weft_shape out = g->values[node->first_out].type.shape;
        for (size_t i = 0; i < node->n_in; i++) {
            operand_matrix m;
            if (storage[g->values[node->in[i]].root] != overwritten) continue;
            if (node->op->block || !(fuse_by_tile(node) >> i & 1) ||
                g->values[node->in[i]].layout.offset != 0 ||
                !weft__fuse_matrix(g, node->in[i], out, &m) || !is_dense(&m, rows, columns))
                return false;
        }
    }
    return true;
}

/* Records each operand of a step as a matrix, from which the executor cuts blocks. */
static void set_matrices(weft_plan *plan, const plan_step *step, int64_t columns)
{
    const weft_graph *g = plan->graph;
    const node_record *node = &g->nodes[step->node];
    weft_shape out = g->values[node->first_out].type.shape;
    operand_matrix *m = plan->matrices + step->first_operand;
    for (size_t i = 0; i < node->n_in; i++, m++) weft__fuse_matrix(g, node->in[i], out, m);
    for (size_t k = 0; k < node->op->n_out; k++, m++) {
        weft_shape shape = g->values[node->first_out + k].type.shape;
        bool whole = weft_shape_numel(shape) == weft_shape_numel(out);
        *m = whole ? (operand_matrix){columns, 1} : (operand_matrix){1, 0};
    }
}

void weft__fused_set_steps(weft_plan *plan, uint32_t head, uint32_t n_fused)
{
    plan_step *steps = plan->steps, *first = &steps[head];
    const weft_graph *g = plan->graph;
    const weft_op *op = g->nodes[first->node].op;
    first->n_fused = n_fused;
    first->by_block = n_fused || first->widens;
    if (!first->by_block) return;
    weft__fuse_size(g, first->node, &first->rows, &first->columns);
    for (uint32_t i = head; i <= head + n_fused; i++) {
        if (i > head || !op->block || steps[i].widens)
            set_matrices(plan, &steps[i], first->columns);
        if (i == head) continue;
        steps[i].fused = true;
        plan->stats.fused++;
        steps[i].tiles[0] = 0;
        if (node_rows(&g->nodes[steps[i].node])) first->whole_rows = true;
    }
    if (op->block) return;
    bool wide =
        !node_rows(&g->nodes[first->node]) && !first->whole_rows && first->columns > WEFT_TILE;
    first->block_columns = wide ? WEFT_TILE : first->columns;
    first->block_rows = first->columns < WEFT_TILE ? WEFT_TILE / first->columns : 1;
    first->tiles[0] = (first->rows + first->block_rows - 1) / first->block_rows *
                      ((first->columns + first->block_columns - 1) / first->block_columns);
}
