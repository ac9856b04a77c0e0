/* The layers of a graph: a tree of the scopes of the forward pass. A hash table of their texts
 * finds scopes; rows are then numbered in the order of the tree. O(edges x depth of scopes). */
#include "ir/ir.h"

#include "base/hash.h"
#include "base/text.h"

#include <weft/inspect.h>

#include <stdlib.h>
#include <string.h>

/* Layers of the tree are numbered from 1; 0 is the root, which has no row. */
typedef struct branch {
    weft_layer row;
    const char *scope; /* of one of its nodes; the first `length` bytes */
    size_t length, parent, first_child, last_child, next;
    weft_value last; /* that it computes */
} branch;

typedef struct tree {
    const weft_graph *g;
    branch *at;
    size_t n, *table, slots;
    size_t *of; /* by node; 0: none */
} tree;

/* ---- The tree ---- */

static size_t add_branch(tree *t, size_t parent, const char *scope, size_t length)
{
    const size_t index = ++t->n;
    branch *up = &t->at[parent];
    t->at[index] = (branch){.scope = scope, .length = length, .parent = parent};
    t->at[index].row.depth = parent ? up->row.depth + 1 : 0;
    if (up->last_child)
        t->at[up->last_child].next = index;
    else
        up->first_child = index;
    up->last_child = index;
    return index;
}

/* The branch of the first `length` bytes of a scope, which is added if it is new. */
static size_t find_branch(tree *t, size_t parent, const char *scope, size_t length)
{
    size_t slot = hash_bytes(HASH_START, scope, length) & (t->slots - 1);
    for (; t->table[slot]; slot = (slot + 1) & (t->slots - 1)) {
        const branch *other = &t->at[t->table[slot]];
        if (other->length == length && !memcmp(other->scope, scope, length)) return t->table[slot];
    }
    return t->table[slot] = add_branch(t, parent, scope, length);
}

static size_t branch_of(tree *t, const char *scope)
{
    size_t index = 0, length = 0;
    do {
        length += length > 0; /* the dot */
        length += weft__text_component(scope + length);
        index = find_branch(t, index, scope, length);
    } while (scope[length]);
    return index;
}

/* False if out of memory. */
static bool make_tree(tree *t, const weft_graph *g)
{
    size_t most = 1;
    *t = (tree){.g = g, .slots = 64};
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].role.direction != WEFT_FORWARD) continue;
        most++;
        for (const char *c = g->nodes[i].scope; *c; c++) most += *c == '.';
    }
    while (t->slots < 2 * most) t->slots *= 2;
    t->at = calloc(most + 1, sizeof *t->at);
    t->table = calloc(t->slots, sizeof *t->table);
    t->of = calloc(g->n_nodes + 1, sizeof *t->of);
    if (!t->at || !t->table || !t->of) return false;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].role.direction == WEFT_FORWARD) t->of[i] = branch_of(t, g->nodes[i].scope);
    return true;
}

/* ---- Sums and edges ---- */

static double parameters_of(const weft_graph *g, const node_record *node)
{
    if (node->op != &weft_op_state || !((const weft_state_attr *)node->attr)->trainable) return 0;
    return (double)weft_shape_numel(g->values[node->first_out].type.shape);
}

static weft_status add_node(tree *t, size_t index)
{
    const node_record *node = &t->g->nodes[index];
    const double parameters = parameters_of(t->g, node);
    weft_cost cost;
    const weft_status status = weft_graph_node_cost(t->g, index, &cost, NULL);
    for (size_t i = t->of[index]; i; i = t->at[i].parent) {
        branch *b = &t->at[i];
        b->row.parameters += parameters;
        b->row.cost.flops += cost.flops;
        b->row.cost.bytes += cost.bytes;
        if (!weft__op_is_leaf(node->op) && node->op->n_out)
            b->last = weft__graph_value(t->g, node->first_out);
    }
    return status;
}

/* A value that goes from one branch to another is an output of the scopes that it leaves, and an
 * input of those that it enters. */
static void add_edge(tree *t, size_t from, size_t to, weft_value value)
{
    while (from != to) {
        const bool enters = to && (!from || t->at[to].row.depth >= t->at[from].row.depth);
        branch *b = &t->at[enters ? to : from];
        if (enters && !b->row.input.id) b->row.input = value;
        if (!enters && value.id > b->row.output.id) b->row.output = value;
        *(enters ? &to : &from) = b->parent;
    }
}

static void add_edges(tree *t, size_t index)
{
    const node_record *node = &t->g->nodes[index];
    for (size_t i = 0; i < node->n_in; i++) {
        const uint32_t producer = t->g->values[node->in[i]].node;
        const weft_op *op = t->g->nodes[producer].op;
        if (t->of[producer] && op != &weft_op_state && op != &weft_op_constant)
            add_edge(t, t->of[producer], t->of[index], weft__graph_value(t->g, node->in[i]));
    }
}

/* ---- Rows ---- */

/* The first inner branch, or the next one of the nearest branch around that has one; 0 at the end.
 */
static size_t next_branch(const tree *t, size_t i)
{
    if (t->at[i].first_child) return t->at[i].first_child;
    while (i && !t->at[i].next) i = t->at[i].parent;
    return t->at[i].next;
}

/* Rows and the texts of their scopes, in one block. False if out of memory. */
static bool make_rows(tree *t, weft_layers *layers)
{
    size_t bytes = 0, *number = calloc(t->n + 1, sizeof *number);
    for (size_t i = 1; i <= t->n; i++) bytes += t->at[i].length + 1;
    layers->layer = malloc((t->n + 1) * sizeof *layers->layer + bytes);
    const bool good = number && layers->layer;
    char *text = good ? (char *)(layers->layer + t->n + 1) : NULL;
    for (size_t i = t->at[0].first_child; good && i; i = next_branch(t, i)) {
        const branch *b = &t->at[i];
        weft_layer *row = &layers->layer[layers->n];
        *row = b->row;
        row->scope = memcpy(text, b->scope, b->length);
        row->parent = b->parent ? number[b->parent] : SIZE_MAX;
        if (!weft_is_value(row->output)) row->output = b->last;
        text[b->length] = 0;
        text += b->length + 1;
        number[i] = layers->n++;
    }
    for (size_t i = 0; good && i < t->g->n_nodes; i++)
        t->of[i] = t->of[i] ? number[t->of[i]] : SIZE_MAX;
    free(number);
    return good;
}

weft_status weft_layers_find(const weft_graph *graph, weft_layers *layers, weft_error *error)
{
    weft_error_clear(error);
    tree t;
    const weft_error *e = weft_graph_error(graph);
    if (!layers) return weft_error_set(error, WEFT_BAD_ARGUMENT, "layers", "the result is NULL");
    *layers = (weft_layers){.layer = NULL};
    if (e->status != WEFT_OK) return weft_error_copy(error, e);
    bool good = make_tree(&t, graph);
    for (size_t i = 0; good && i < graph->n_nodes; i++) {
        if (!t.of[i]) continue;
        good = add_node(&t, i) == WEFT_OK;
        add_edges(&t, i);
    }
    good = good && make_rows(&t, layers);
    layers->of = t.of;
    free(t.at);
    free(t.table);
    if (good) return WEFT_OK;
    weft_layers_free(layers);
    return weft_error_set(error, WEFT_NO_MEMORY, "layers", "out of memory");
}

void weft_layers_free(weft_layers *layers)
{
    if (!layers) return;
    free(layers->layer);
    free(layers->of);
    *layers = (weft_layers){.layer = NULL};
}
