/* precision: which values of f32 are stored as bf16, in half the bytes.
 *
 * The type of a value stays f32; only its storage changes. So the rules and gradients of ops do not
 * depend on it. A value is stored as bf16 if the node that computes it can write bf16 and all that
 * read it can read it: matrix products and attention have kernels for that, and elementwise and
 * row-wise nodes run on blocks that the executor widens and rounds (run/execute.c). The pass
 * inserts a copy in f32 before any other reader. `mark` then sets the storage of the values of the
 * graph that it has written, and of what later passes make of it. O(operands). */
#include "fuse.h"
#include "rewrite.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static bool can_write(const weft_graph *g, uint32_t node, size_t output)
{
    const weft_op *op = g->nodes[node].op;
    const bool allowed = op->narrow_out >> output & 1;
    if (weft__op_has_kernel(op, WEFT_BF16)) return allowed;
    return (op->elementwise || allowed) && weft__fuse_runs_by_blocks(g, node);
}

static bool can_read(const weft_graph *g, uint32_t node, size_t input)
{
    const node_record *n = &g->nodes[node];
    if (weft__op_has_kernel(n->op, WEFT_BF16))
        return n->op->narrow_in == WEFT_NARROW_ALL || (input < 8 && n->op->narrow_in >> input & 1);
    return (n->op->elementwise || node_rows(n) >> input & 1) && weft__fuse_runs_by_blocks(g, node);
}

/* Whether a node may compute a value that is stored as bf16, as far as its readers agree. */
static bool may_compute(const weft_graph *g, uint32_t id, const weft_plan_options *options)
{
    const value_record *v = &g->values[id];
    const node_record *node = &g->nodes[v->node];
    const int64_t least = options->min_narrow ? options->min_narrow : WEFT_MIN_NARROW;
    return v->root == id && v->type.dtype == WEFT_F32 && weft_shape_numel(v->type.shape) >= least &&
           weft__graph_node_runs(g, node) && node->role.direction != WEFT_UPDATE &&
           !weft__text_in_scopes(options->keep_f32, node->scope) &&
           can_write(g, v->node, id - node->first_out);
}

/* Whether a node leaves the storage of its inputs alone. */
static bool only_passes_on(const weft_op *op)
{
    return op->alias || op == &weft_op_group;
}

/* Fills in narrow[value id] for values that own storage: 1 if they are stored as bf16, provided
 * that copies in f32 serve the nodes that cannot read it, and 2 if there are no such nodes. */
static void choose(const weft_graph *g, const plan_target *targets, size_t n_targets,
                   const weft_plan_options *options, uint8_t *narrow)
{
    enum { SERVED = 4 }; /* some reader takes bf16 */
    for (uint32_t v = 1; v < g->n_values; v++) narrow[v] = may_compute(g, v, options) ? 2 : 0;
    for (size_t i = 0; i < n_targets; i++) narrow[g->values[targets[i].value.id].root] = 0;
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const node_record *node = &g->nodes[n];
        if (only_passes_on(node->op)) continue;
        for (size_t i = 0; i < node->n_in; i++) {
            const uint32_t root = g->values[node->in[i]].root;
            if (!narrow[root]) continue;
            if (node->role.direction == WEFT_UPDATE || !weft__graph_node_runs(g, node))
                narrow[root] = 0;
            else if (can_read(g, n, i))
                narrow[root] |= SERVED;
            else
                narrow[root] = (uint8_t)((narrow[root] & SERVED) | 1);
        }
    }
    for (uint32_t v = 1; v < g->n_values; v++) narrow[v] = narrow[v] & SERVED ? narrow[v] & 3 : 0;
}

static void *open_choice(const weft_graph *graph, const plan_target *targets, size_t n_targets,
                         const weft_plan_options *options)
{
    uint8_t *narrow = calloc(graph->n_values, 1);
    if (narrow) choose(graph, targets, n_targets, options, narrow);
    return narrow;
}

static bool visit(weft_rewrite *r)
{
    const uint8_t *narrow = r->context;
    const weft_graph *g = r->source;
    if (only_passes_on(r->node.op)) return false;
    for (size_t i = 0; i < r->node.n_in; i++)
        if (narrow[g->values[r->node.in[i]].root] && !can_read(g, (uint32_t)r->index, i))
            r->in[i] = weft_apply(r->graph, &weft_op_contiguous, NULL, &r->in[i], 1, NULL);
    return false;
}

static bool mark(weft_graph *graph, const plan_target *targets, size_t n_targets,
                 const weft_plan_options *options)
{
    uint8_t *narrow = open_choice(graph, targets, n_targets, options);
    if (!narrow) return false;
    for (uint32_t v = 1; v < graph->n_values; v++)
        if (narrow[graph->values[v].root] == 2) graph->values[v].stored = WEFT_BF16;
    free(narrow);
    return true;
}

static bool wanted(const weft_plan_options *options)
{
    return options->precision != WEFT_PRECISION_F32;
}

const pass weft__pass_precision = {
    .rule = {.name = "precision",
             .doc = "values are stored as bf16, and matrix products multiply bf16",
             .visit = visit,
             .wanted = wanted},
    .open = open_choice,
    .close = free,
    .settle = mark};
