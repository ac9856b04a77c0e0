/* Chains: nodes that run on each block of a node's output as soon as it is made, while it is in the
 * cache, instead of in a sweep over memory of their own.
 *
 *     matmul    [tile][tile][tile] ...
 *     + bias      \[tile]\[tile] ...        each tile: product, bias, ReLU, dropout
 *     relu          \[tile]\[tile] ...
 *
 * A chain begins with an op that tells which block each of its tiles writes, or with an elementwise
 * or row-wise op. To it are linked elementwise ops of the same number of rows and columns, and
 * row-wise ones where the blocks are whole rows. All of a chain is in one group; what its nodes
 * write is planned as ever, so that an output that others need, too, is simply kept. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#define MAX_LINKS 12
/* A node is moved up past so many others at most: what is made early lives long. */
#define REACH 48

void chain_size(const weft_graph *g, uint32_t node, int64_t *rows, int64_t *columns)
{
    const weft_shape *s = &g->values[g->nodes[node].first_out].type.shape;
    *rows = 1;
    *columns = s->rank ? s->dim[s->rank - 1] : 1;
    for (int d = 0; d < s->rank - 1; d++) *rows *= s->dim[d];
}

bool chain_matrix(const weft_graph *g, uint32_t id, weft_shape out, plan_matrix *matrix)
{
    const value_record *v = &g->values[id];
    const weft_shape *s = &v->type.shape;
    int64_t count = 1;
    *matrix = (plan_matrix){0, 0};
    if (s->rank > out.rank) return false;
    for (int d = out.rank - 1; d >= 0; d--) {
        int axis = d - (out.rank - s->rank);
        if (out.dim[d] == 1) continue;
        if (axis >= 0 && s->dim[axis] != 1 && s->dim[axis] != out.dim[d]) return false;
        int64_t stride = axis < 0 || s->dim[axis] == 1 ? 0 : v->layout.stride[axis];
        if (d == out.rank - 1) {
            matrix->column = stride;
            continue;
        }
        if (count == 1) matrix->row = stride;
        if (stride != matrix->row * count) return false;
        count *= out.dim[d];
    }
    return true;
}

bool chain_is_dense(const plan_matrix *matrix, int64_t rows, int64_t columns)
{
    return (rows == 1 || matrix->row == columns) && (columns == 1 || matrix->column == 1);
}

typedef struct chain {
    uint32_t node[MAX_LINKS + 1];
    size_t n;
    int64_t rows, columns;
    bool whole_rows; /* its blocks are */
} chain;

typedef struct maker {
    const weft_graph *g;
    const uint32_t *order; /* as it was */
    uint32_t *first_use;   /* by storage: the first entry of `use` + 1 */
    uint32_t *use, *next;  /* positions of the readers of a storage, in order */
    uint8_t *placed;       /* by node */
} maker;

static bool single_stage(const weft_op *op)
{
    return op->phases < 2 && !op->updates && !op->scratch;
}

/* Is every operand a matrix that a block of can be shown? */
static bool shows_blocks(const weft_graph *g, uint32_t index)
{
    const node_record *node = &g->nodes[index];
    weft_shape out = g->values[node->first_out].type.shape;
    if (node->n_in + node->op->n_out > CHAIN_OPERANDS) return false;
    for (size_t i = 0; i < node->n_in; i++) {
        plan_matrix m;
        if (node->op->elementwise || node_rows(node) >> i & 1)
            if (!chain_matrix(g, node->in[i], out, &m)) return false;
    }
    return weft_shape_numel(out) > 0;
}

/* Where output k of a member of the chain lies: a dense matrix, or one number a row. */
static bool output_matrix(const weft_graph *g, const chain *c, uint32_t node, size_t k,
                          plan_matrix *out)
{
    int64_t n = weft_shape_numel(g->values[g->nodes[node].first_out + k].type.shape);
    *out = n == c->rows * c->columns ? (plan_matrix){c->columns, 1} : (plan_matrix){1, 0};
    return n == c->rows * c->columns || n == c->rows;
}

static bool outputs_fit(const weft_graph *g, const chain *c, uint32_t node)
{
    plan_matrix out;
    for (size_t k = 0; k < g->nodes[node].op->n_out; k++)
        if (!output_matrix(g, c, node, k, &out)) return false;
    return true;
}

static bool begins_chain(const weft_graph *g, uint32_t index, chain *c)
{
    const node_record *node = &g->nodes[index];
    const weft_op *op = node->op;
    *c = (chain){.node = {index}, .n = 1};
    chain_size(g, index, &c->rows, &c->columns);
    if (c->rows * c->columns == 0 || op->updates) return false;
    if (op->block) {
        /* Whether the first tile writes whole rows; all are alike. */
        weft_tensor t[CHAIN_OPERANDS];
        if (node->n_in + op->n_out > CHAIN_OPERANDS) return false;
        weft_call call = {.attr = node->attr,
                          .in = t,
                          .out = t + node->n_in,
                          .n_in = node->n_in,
                          .n_out = op->n_out,
                          .phase = op->phases ? op->phases - 1 : 0};
        for (size_t i = 0; i < node->n_in + op->n_out; i++)
            t[i] = graph_tensor(g, i < node->n_in ? node->in[i]
                                                  : node->first_out + (uint32_t)(i - node->n_in));
        weft_block b = {0, 0, 0, 0};
        op->block(&call, 0, &b);
        c->whole_rows = b.columns == c->columns;
        return b.rows > 0;
    }
    c->whole_rows = true;
    return (op->elementwise || node_rows(node)) && single_stage(op) && shows_blocks(g, index) &&
           outputs_fit(g, c, index);
}

/* May the node read value `id`, which is ready or made by the chain, on the chain's blocks? */
static bool may_read(const maker *m, const chain *c, const node_record *node, size_t i)
{
    const weft_graph *g = m->g;
    const value_record *v = &g->values[node->in[i]];
    uint32_t maker_node = g->values[v->version].node;
    if (!graph_node_runs(g, &g->nodes[maker_node])) return true;
    if (!m->placed[maker_node]) return false;
    for (size_t k = 0; k < c->n; k++) {
        if (c->node[k] != maker_node) continue;
        plan_matrix made, read;
        uint32_t output = v->version - g->nodes[maker_node].first_out;
        if (!node->op->elementwise && !(node_rows(node) >> i & 1)) return false;
        /* An op tells of the blocks of its first output only. */
        if (g->nodes[maker_node].op->block && output > 0) return false;
        return v->layout.offset == 0 && output_matrix(g, c, maker_node, output, &made) &&
               chain_matrix(g, node->in[i], g->values[node->first_out].type.shape, &read) &&
               (c->rows == 1 || made.row == read.row) &&
               (c->columns == 1 || made.column == read.column);
    }
    return true;
}

static bool may_link(const maker *m, const chain *c, uint32_t index)
{
    const weft_graph *g = m->g;
    const node_record *node = &g->nodes[index];
    int64_t rows, columns;
    if (m->placed[index] || !graph_node_runs(g, node) || !single_stage(node->op)) return false;
    if (!node->op->elementwise && !(node_rows(node) && c->whole_rows)) return false;
    chain_size(g, index, &rows, &columns);
    if (rows != c->rows || columns != c->columns) return false;
    if (!shows_blocks(g, index) || !outputs_fit(g, c, index)) return false;
    for (size_t i = 0; i < node->n_in; i++)
        if (!may_read(m, c, node, i)) return false;
    return true;
}

/* The first reader of what the chain makes that can be linked; false if there is none. */
static bool find_link(const maker *m, const chain *c, size_t position, uint32_t *found)
{
    const weft_graph *g = m->g;
    uint32_t best = UINT32_MAX;
    for (size_t k = 0; k < c->n; k++) {
        const node_record *node = &g->nodes[c->node[k]];
        for (size_t o = 0; o < node->op->n_out; o++)
            for (uint32_t e = m->first_use[node->first_out + o]; e; e = m->next[e]) {
                uint32_t at = m->use[e];
                if (at >= best || at > position + REACH) break;
                if (may_link(m, c, m->order[at])) best = at;
            }
    }
    if (best != UINT32_MAX) *found = m->order[best];
    return best != UINT32_MAX;
}

static void link_all(maker *m, size_t n, uint32_t *order, uint32_t *links)
{
    size_t done = 0;
    for (size_t i = 0; i < n; i++) {
        chain c;
        uint32_t next;
        if (m->placed[m->order[i]]) continue;
        size_t head = done;
        order[done++] = m->order[i];
        m->placed[m->order[i]] = 1;
        links[head] = 0;
        if (!begins_chain(m->g, m->order[i], &c)) continue;
        while (c.n <= MAX_LINKS && find_link(m, &c, i, &next)) {
            c.node[c.n++] = next;
            m->placed[next] = 1;
            links[done] = 0;
            order[done++] = next;
            links[head]++;
        }
    }
}

bool chains_make(const weft_graph *g, uint32_t *order, size_t n_order, uint32_t *links)
{
    size_t n_uses = 1;
    for (size_t i = 0; i < n_order; i++) n_uses += g->nodes[order[i]].n_in;
    uint32_t *old = malloc((n_order + 1) * sizeof *old);
    maker m = {g,
               old,
               calloc(g->n_values, sizeof(uint32_t)),
               malloc(n_uses * sizeof(uint32_t)),
               malloc(n_uses * sizeof(uint32_t)),
               calloc(g->n_nodes + 1, 1)};
    bool good = old && m.first_use && m.use && m.next && m.placed;
    if (good) {
        uint32_t n = 0;
        memcpy(old, order, n_order * sizeof *old);
        /* From the last position to the first, so that each list begins with the first. */
        for (size_t i = n_order; i-- > 0;) {
            const node_record *node = &g->nodes[old[i]];
            for (size_t k = 0; k < node->n_in; k++) {
                uint32_t storage = g->values[node->in[k]].version;
                m.use[++n] = (uint32_t)i;
                m.next[n] = m.first_use[storage];
                m.first_use[storage] = n;
            }
        }
        link_all(&m, n_order, order, links);
    }
    free(old);
    free(m.first_use);
    free(m.use);
    free(m.next);
    free(m.placed);
    return good;
}
