/* precision: which values of f32 are stored as bf16, in half the bytes.
 *
 * The type of a value stays f32; only its storage changes. So the rules and gradients of ops do not
 * depend on it. A value is stored as bf16 if the node that computes it can write bf16 and all that
 * read it can read it: matrix products and attention have kernels for that, and elementwise and
 * row-wise nodes run on blocks that the executor widens and rounds (run/execute.c). The pass
 * inserts a copy in f32 before any other reader. `mark` then sets the storage of the values of the
 * graph that it has written, and of what later passes make of it.
 *
 * A scan reads a sequence or a shared value as bf16 if a node of its body can. Its carries and
 * stacks are stored as its body computes them (precision_body.c). Where the graph of the scan asks
 * for another storage, or the body has another one, a copy converts. O(operands). */
#include "precision.h"

#include "rewrite.h"

#include <stdlib.h>
#include <string.h>

/* ---- The choice for a graph ---- */

/* What is chosen for the values and targets of a graph. */
typedef struct choice {
    const weft_graph *g; /* may be freed before the choice is */
    size_t n_nodes;      /* of it */
    const weft_plan_options *options;
    const body_storage *storage; /* NULL: the graph is not a body */
    /* By value that owns storage: 1 if it is stored as bf16, provided that copies in f32 serve the
     * nodes that cannot read it, and 2 if there are no such nodes. */
    uint8_t *narrow;
    uint8_t **forms;   /* by node; of scans */
    uint8_t *converts; /* by value: a result of a scan that is copied to be stored as is chosen */
    uint8_t *copied;   /* by target: it is copied to be stored as the scan has it */
} choice;

static void close_choice(void *context)
{
    choice *c = context;
    if (!c) return;
    for (size_t n = 0; c->forms && n < c->n_nodes; n++) free(c->forms[n]);
    free(c->narrow);
    free(c->forms);
    free(c->converts);
    free(c->copied);
    free(c);
}

static bool find_forms(choice *c)
{
    for (size_t n = 0; n < c->g->n_nodes; n++)
        if (scan_of(c->g->nodes[n].op, c->g->nodes[n].attr) &&
            !(c->forms[n] = weft__precision_scan_forms(c->g, n, c->options)))
            return false;
    return true;
}

/* Whether a node leaves the storage of its inputs alone. */
static bool only_passes_on(const weft_op *op)
{
    return op->alias || op == &weft_op_group;
}

static bool can_read(const choice *c, uint32_t node, size_t input)
{
    if (c->forms[node]) return c->forms[node][input];
    return weft__precision_can_read(c->g, node, input);
}

/* The scan's storage of a target of a body. */
static bool is_given_narrow(const body_storage *s, const plan_target *target)
{
    const scan_body *b = s->body;
    for (uint32_t k = 0; k < b->n_carry + b->n_out; k++)
        if (b->out[k] == target->user) return s->narrow[scan_inputs(b) + k];
    return false;
}

/* The values that a scan of this graph has computed are stored as its body leaves them. */
static void settle_scans(choice *c)
{
    for (uint32_t n = 0; n < c->g->n_nodes; n++) {
        const node_record *node = &c->g->nodes[n];
        for (size_t k = 0; c->forms[n] && k < node->op->n_out; k++) {
            const uint32_t v = node->first_out + (uint32_t)k;
            const bool given = c->forms[n][node->n_in + k];
            c->converts[v] = given != (c->narrow[v] != 0);
            c->narrow[v] = given ? 2 : 0;
        }
    }
}

/* The inputs of a body are stored as the scan has them; a target that cannot be is copied. */
static void settle_body(choice *c, const plan_target *targets, size_t n_targets)
{
    const scan_body *b = c->storage->body;
    for (uint32_t i = 0; i < scan_inputs(b); i++)
        c->narrow[c->storage->map[b->in[i]]] = c->storage->narrow[i] ? 2 : 0;
    c->narrow[0] = 0;
    for (size_t i = 0; i < n_targets; i++)
        c->copied[i] = is_given_narrow(c->storage, &targets[i]) !=
                       (c->narrow[c->g->values[targets[i].value.id].root] != 0);
}

static void choose(choice *c, const plan_target *targets, size_t n_targets)
{
    enum { SERVED = 4 }; /* some reader takes bf16 */
    const weft_graph *g = c->g;
    uint8_t *narrow = c->narrow;
    for (uint32_t v = 1; v < g->n_values; v++) {
        const bool of_scan = c->forms[g->values[v].node];
        narrow[v] = (of_scan ? weft__precision_may_narrow(g, v, c->options)
                             : weft__precision_may_compute(g, v, c->options))
                        ? 2
                        : 0;
    }
    for (size_t i = 0; i < n_targets; i++) {
        const uint32_t v = targets[i].value.id, root = g->values[v].root, node = g->values[v].node;
        const bool given = c->storage && v == root && is_given_narrow(c->storage, &targets[i]) &&
                           weft__precision_can_write(g, node, v - g->nodes[node].first_out);
        narrow[root] = given ? 2 | SERVED : 0;
    }
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const node_record *node = &g->nodes[n];
        if (only_passes_on(node->op)) continue;
        for (size_t i = 0; i < node->n_in; i++) {
            const uint32_t root = g->values[node->in[i]].root;
            if (!narrow[root]) continue;
            if (node->role.direction == WEFT_UPDATE || !weft__graph_node_runs(g, node))
                narrow[root] = 0;
            else if (can_read(c, n, i))
                narrow[root] |= SERVED;
            else
                narrow[root] = (uint8_t)((narrow[root] & SERVED) | 1);
        }
    }
    for (uint32_t v = 1; v < g->n_values; v++) narrow[v] = narrow[v] & SERVED ? narrow[v] & 3 : 0;
    settle_scans(c);
    if (c->storage) settle_body(c, targets, n_targets);
}

static void *open_choice(const weft_graph *graph, const plan_target *targets, size_t n_targets,
                         const weft_plan_options *options, const body_storage *storage)
{
    choice *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    *c = (choice){.g = graph,
                  .n_nodes = graph->n_nodes,
                  .options = options,
                  .storage = storage,
                  .narrow = calloc(graph->n_values, 1),
                  .forms = calloc(graph->n_nodes + 1, sizeof *c->forms),
                  .converts = calloc(graph->n_values, 1),
                  .copied = calloc(n_targets + 1, 1)};
    if (!c->narrow || !c->forms || !c->converts || !c->copied || !find_forms(c)) {
        close_choice(c);
        return NULL;
    }
    choose(c, targets, n_targets);
    return c;
}

/* ---- The pass ---- */

static weft_value copy_of(weft_graph *graph, weft_value value)
{
    return weft_apply(graph, &weft_op_contiguous, NULL, &value, 1, NULL);
}

/* Copies a scan, whose carries all have the storage that the first ones get here. */
static bool visit_scan(weft_rewrite *r, const choice *c)
{
    const scan_body *b = scan_of(r->node.op, r->node.attr)->body;
    for (uint32_t i = 0; i < scan_inputs(b); i++) {
        const bool narrow = c->narrow[c->g->values[r->node.in[i]].root],
                   reads = can_read(c, (uint32_t)r->index, i);
        if (i < b->n_carry ? narrow != reads : narrow && !reads)
            r->in[i] = copy_of(r->graph, r->in[i]);
    }
    weft__rewrite_copy(r);
    for (uint32_t k = 0; k < r->node.n_out; k++)
        if (c->converts[r->node.first_out + k]) r->out[k] = copy_of(r->graph, r->out[k]);
    return true;
}

static bool visit(weft_rewrite *r)
{
    const choice *c = r->context;
    if (c->forms[r->index]) return visit_scan(r, c);
    if (only_passes_on(r->node.op)) return false;
    for (size_t i = 0; i < r->node.n_in; i++)
        if (c->narrow[c->g->values[r->node.in[i]].root] && !can_read(c, (uint32_t)r->index, i))
            r->in[i] = copy_of(r->graph, r->in[i]);
    return false;
}

static void finish(weft_graph *graph, plan_target *targets, size_t n_targets, const void *context)
{
    const choice *c = context;
    for (size_t i = 0; i < n_targets; i++)
        if (c->copied[i]) targets[i].value = copy_of(graph, targets[i].value);
}

static bool mark(weft_graph *graph, const plan_target *targets, size_t n_targets,
                 const weft_plan_options *options, const body_storage *storage)
{
    choice *c = open_choice(graph, targets, n_targets, options, storage);
    if (!c) return false;
    for (uint32_t v = 1; v < graph->n_values; v++)
        if (c->narrow[graph->values[v].root] == 2) graph->values[v].stored = WEFT_BF16;
    close_choice(c);
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
    .finish = finish,
    .open = open_choice,
    .close = close_choice,
    .settle = mark};
