/* Fusion: nodes run on each tile of another node right after it, while the tile is in the cache,
 * instead of in a sweep of their own over memory.
 *
 *     matmul    [tile][tile][tile] ...
 *     + bias      \[tile]\[tile] ...        each tile: product, bias, ReLU, dropout
 *     relu          \[tile]\[tile] ...
 *
 * A fused group is a head and the nodes that run on each of its tiles. A head is an op that says
 * which block of its output a tile writes, or an elementwise or row-wise op. Elementwise ops with
 * as many rows and columns can follow it, and row-wise ones if the tiles are whole rows. A fused
 * group lies within one interval of the schedule. The outputs of its nodes are planned like any
 * other, so an output that other nodes also need is simply retained.
 *
 * Greedy, in the order of the schedule: each head takes the nearest reader that may follow, until
 * there is none. O(nodes x MAX_FUSED). */
#include "fuse.h"

#include "rewrite.h"

#include <stdlib.h>
#include <string.h>

#define MAX_FUSED 12
/* The farthest that a node moves up, in nodes: a value that is computed early is alive for
 * longer. */
#define MAX_MOVE 48

/* ---- Operands as matrices ---- */

void weft__fuse_size(const weft_graph *g, uint32_t node, int64_t *rows, int64_t *columns)
{
    const weft_shape *s = &g->values[g->nodes[node].first_out].type.shape;
    *rows = 1;
    *columns = s->rank ? s->dim[s->rank - 1] : 1;
    for (int d = 0; d < s->rank - 1; d++) *rows *= s->dim[d];
}

bool weft__fuse_matrix(const weft_graph *g, uint32_t id, weft_shape out, operand_matrix *matrix)
{
    const value_record *v = &g->values[id];
    const weft_shape *s = &v->type.shape;
    int64_t count = 1;
    *matrix = (operand_matrix){0, 0};
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

/* ---- Legality: which nodes may be fused, and what they may overwrite ---- */

typedef struct fusion {
    uint32_t node[MAX_FUSED + 1]; /* the head first */
    size_t n;
    int64_t rows, columns; /* of output 0 of each node */
    bool whole_rows;       /* a tile is some whole rows */
} fusion;

typedef struct fuser {
    const weft_graph *g;
    const uint32_t *order; /* before fusion */
    uint32_t *first_use;   /* by storage: the first entry of `use` + 1 */
    uint32_t *use, *next;  /* positions of the readers of a storage, in order */
    uint8_t *placed;       /* by node */
} fuser;

static bool one_phase(const weft_op *op)
{
    return op->phases < 2 && !op->updates && !op->scratch;
}

/* Is every input that is read by tiles a matrix of the output's size? */
static bool inputs_fit(const weft_graph *g, uint32_t index)
{
    const node_record *node = &g->nodes[index];
    weft_shape out = g->values[node->first_out].type.shape;
    if (node->n_in + node->op->n_out > MAX_FUSED_OPERANDS) return false;
    for (size_t i = 0; i < node->n_in; i++) {
        operand_matrix m;
        if (fuse_by_tile(node) >> i & 1 && !weft__fuse_matrix(g, node->in[i], out, &m))
            return false;
    }
    return weft_shape_numel(out) > 0;
}

/* Where output k of a fused node lies: a dense matrix, or one number a row. */
static bool output_matrix(const weft_graph *g, const fusion *f, uint32_t node, size_t k,
                          operand_matrix *out)
{
    int64_t n = weft_shape_numel(g->values[g->nodes[node].first_out + k].type.shape);
    *out = n == f->rows * f->columns ? (operand_matrix){f->columns, 1} : (operand_matrix){1, 0};
    return n == f->rows * f->columns || n == f->rows;
}

static bool outputs_fit(const weft_graph *g, const fusion *f, uint32_t node)
{
    operand_matrix out;
    for (size_t k = 0; k < g->nodes[node].op->n_out; k++)
        if (!output_matrix(g, f, node, k, &out)) return false;
    return true;
}

bool weft__fuse_runs_by_blocks(const weft_graph *g, uint32_t index)
{
    const node_record *node = &g->nodes[index];
    fusion f = {.node = {index}, .n = 1};
    if (!(node->op->elementwise || node_rows(node)) || !one_phase(node->op)) return false;
    weft__fuse_size(g, index, &f.rows, &f.columns);
    return inputs_fit(g, index) && outputs_fit(g, &f, index);
}

/* The block that the first tile of an op with blocks writes; all tiles are alike. */
static bool first_block(const weft_graph *g, const node_record *node, weft_block *block)
{
    weft_tensor t[MAX_FUSED_OPERANDS];
    const size_t n = node->n_in + node->op->n_out;
    if (n > MAX_FUSED_OPERANDS) return false;
    weft_call call = {.attr = node->attr,
                      .in = t,
                      .out = t + node->n_in,
                      .n_in = node->n_in,
                      .n_out = node->op->n_out,
                      .phase = node->op->phases ? node->op->phases - 1 : 0};
    for (size_t i = 0; i < n; i++)
        t[i] = weft__graph_tensor(g, i < node->n_in ? node->in[i]
                                                    : node->first_out + (uint32_t)(i - node->n_in));
    node->op->block(&call, 0, block);
    return block->rows > 0;
}

/* May the node be a head? Begins its fused group. */
static bool may_lead(const weft_graph *g, uint32_t index, fusion *f)
{
    const node_record *node = &g->nodes[index];
    const weft_op *op = node->op;
    *f = (fusion){.node = {index}, .n = 1, .whole_rows = true};
    weft__fuse_size(g, index, &f->rows, &f->columns);
    if (f->rows * f->columns == 0 || op->updates) return false;
    if (op->block) {
        weft_block b = {0, 0, 0, 0};
        if (!first_block(g, node, &b)) return false;
        f->whole_rows = b.columns == f->columns;
        return true;
    }
    return (op->elementwise || node_rows(node)) && one_phase(op) && inputs_fit(g, index) &&
           outputs_fit(g, f, index);
}

/* May the node read input i when it runs on a tile? The input must have been computed before the
 * fused group, or by the group in the same tile. */
static bool may_read(const fuser *m, const fusion *f, const node_record *node, size_t i)
{
    const weft_graph *g = m->g;
    const value_record *v = &g->values[node->in[i]];
    uint32_t producer = g->values[v->version].node;
    if (!weft__graph_node_runs(g, &g->nodes[producer])) return true;
    if (!m->placed[producer]) return false;
    for (size_t k = 0; k < f->n; k++) {
        if (f->node[k] != producer) continue;
        operand_matrix written, read;
        uint32_t output = v->version - g->nodes[producer].first_out;
        if (!(fuse_by_tile(node) >> i & 1)) return false;
        /* An op describes the blocks of its first output only. */
        if (g->nodes[producer].op->block && output > 0) return false;
        return v->layout.offset == 0 && output_matrix(g, f, producer, output, &written) &&
               weft__fuse_matrix(g, node->in[i], g->values[node->first_out].type.shape, &read) &&
               (f->rows == 1 || written.row == read.row) &&
               (f->columns == 1 || written.column == read.column);
    }
    return true;
}

/* May the node run on the tiles of the fused group? */
static bool may_follow(const fuser *m, const fusion *f, uint32_t index)
{
    const weft_graph *g = m->g;
    const node_record *node = &g->nodes[index];
    int64_t rows, columns;
    if (m->placed[index] || !weft__graph_node_runs(g, node) || !one_phase(node->op)) return false;
    if (!node->op->elementwise && !(node_rows(node) && f->whole_rows)) return false;
    weft__fuse_size(g, index, &rows, &columns);
    if (rows != f->rows || columns != f->columns) return false;
    if (!inputs_fit(g, index) || !outputs_fit(g, f, index)) return false;
    for (size_t i = 0; i < node->n_in; i++)
        if (!may_read(m, f, node, i)) return false;
    return true;
}

/* ---- The pass ---- */

/* Finds the first reader of a fused group's outputs that may follow: up to `last`. */
static bool find_follower(const fuser *m, const fusion *f, size_t last, uint32_t *found)
{
    const weft_graph *g = m->g;
    uint32_t best = UINT32_MAX;
    for (size_t k = 0; k < f->n; k++) {
        const node_record *node = &g->nodes[f->node[k]];
        for (size_t o = 0; o < node->op->n_out; o++)
            for (uint32_t e = m->first_use[node->first_out + o]; e; e = m->next[e]) {
                uint32_t at = m->use[e];
                if (at >= best || at > last) break;
                if (may_follow(m, f, m->order[at])) best = at;
            }
    }
    if (best != UINT32_MAX) *found = m->order[best];
    return best != UINT32_MAX;
}

static void fuse_all(fuser *m, schedule *s)
{
    size_t done = 0;
    for (size_t i = 0; i < s->n; i++) {
        fusion f;
        uint32_t next;
        if (m->placed[m->order[i]]) continue;
        size_t head = done;
        s->order[done++] = m->order[i];
        m->placed[m->order[i]] = 1;
        s->n_fused[head] = 0;
        if (!may_lead(m->g, m->order[i], &f)) continue;
        /* What only the first run computes is fused with its like. */
        const size_t last =
            i < s->n_fixed && i + MAX_MOVE >= s->n_fixed ? s->n_fixed - 1 : i + MAX_MOVE;
        while (f.n <= MAX_FUSED && find_follower(m, &f, last, &next)) {
            f.node[f.n++] = next;
            m->placed[next] = 1;
            s->n_fused[done] = 0;
            s->order[done++] = next;
            s->n_fused[head]++;
        }
    }
}

static bool fuse_schedule(const weft_graph *g, schedule *s)
{
    size_t n_uses = 1;
    for (size_t i = 0; i < s->n; i++) n_uses += g->nodes[s->order[i]].n_in;
    uint32_t *old = malloc((s->n + 1) * sizeof *old);
    fuser m = {g,
               old,
               calloc(g->n_values, sizeof(uint32_t)),
               malloc(n_uses * sizeof(uint32_t)),
               malloc(n_uses * sizeof(uint32_t)),
               calloc(g->n_nodes + 1, 1)};
    bool good = old && m.first_use && m.use && m.next && m.placed;
    if (good) {
        uint32_t n = 0;
        memcpy(old, s->order, s->n * sizeof *old);
        /* From the last position to the first, so that each list begins with the first. */
        for (size_t i = s->n; i-- > 0;) {
            const node_record *node = &g->nodes[old[i]];
            for (size_t k = 0; k < node->n_in; k++) {
                uint32_t storage = g->values[node->in[k]].version;
                m.use[++n] = (uint32_t)i;
                m.next[n] = m.first_use[storage];
                m.first_use[storage] = n;
            }
        }
        fuse_all(&m, s);
    }
    free(old);
    free(m.first_use);
    free(m.use);
    free(m.next);
    free(m.placed);
    return good;
}

const pass weft__pass_fuse = {
    .rule = {.name = "fuse",
             .doc = "nodes run on another node's tiles while these are in the cache"},
    .schedule = fuse_schedule,
};
