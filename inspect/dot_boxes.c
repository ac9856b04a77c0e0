/* The boxes of a picture. Nodes of a role that the picture leaves out are hidden, and with them the
 * leaves that only they read. Nodes of one role whose scopes begin with the same `depth` components
 * are one box, which a hash table finds. O(edges log edges). */
#include "dot_boxes.h"

#include "base/hash.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* ---- What is shown ---- */

/* False if out of memory. */
static bool hide_nodes(const weft_graph *g, const weft_dot_options *o, uint32_t *of)
{
    enum { BY_HIDDEN = 1, BY_SHOWN = 2 };
    uint8_t *read = calloc(g->n_nodes + 1, sizeof *read);
    for (size_t i = g->n_nodes; read && i-- > 0;) {
        const node_record *node = &g->nodes[i];
        const weft_direction direction = node->role.direction;
        const bool updates = direction == WEFT_UPDATE || node->op->updates;
        of[i] = (uint32_t)i;
        if ((updates && (o->no_update || o->no_backward)) ||
            (direction == WEFT_BACKWARD && o->no_backward))
            of[i] = DOT_HIDDEN;
        /* Readers follow what they read. */
        if (read[i] == BY_HIDDEN && weft__op_is_leaf(node->op)) of[i] = DOT_HIDDEN;
        for (size_t k = 0; k < node->n_in; k++)
            read[g->values[node->in[k]].node] |= of[i] == DOT_HIDDEN ? BY_HIDDEN : BY_SHOWN;
    }
    free(read);
    return read;
}

/* Hides what depends on neither inputs nor states: numbers that would clutter a picture of boxes.
 */
static void hide_constants(const weft_graph *g, uint32_t *of)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const node_record *node = &g->nodes[i];
        bool constant = node->op != &weft_op_input && node->op != &weft_op_state;
        for (size_t k = 0; k < node->n_in && constant; k++)
            constant = of[g->values[node->in[k]].node] == DOT_HIDDEN;
        if (constant) of[i] = DOT_HIDDEN;
    }
}

/* ---- Boxes ---- */

/* The bytes of the first `depth` components of a scope; 0 if it has fewer. */
static size_t box_length(const char *scope, int depth)
{
    const char *at = scope;
    for (int i = 0; i < depth; i++) {
        const size_t n = weft__text_component(at);
        if (!n) return 0;
        at += n;
        if (i + 1 < depth && *at == '.') at++;
    }
    return (size_t)(at - scope);
}

/* The scope in whose box a node belongs: for a backward node, that of the node whose gradient it is
 * part of, which is the first of its origin. */
static const char *scope_for_box(const weft_graph *g, const node_record *node,
                                 const uint32_t *first, uint32_t n_origins)
{
    const uint32_t origin = node->role.gradient_of;
    if (node->role.direction != WEFT_BACKWARD || !origin || origin >= n_origins || !first[origin])
        return node->scope;
    return g->nodes[first[origin] - 1].scope;
}

/* By origin: its first node + 1; 0: none. NULL if out of memory. */
static uint32_t *first_of_origins(const weft_graph *g, uint32_t *n_origins)
{
    *n_origins = 1;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].origin >= *n_origins) *n_origins = g->nodes[i].origin + 1;
    uint32_t *first = calloc(*n_origins, sizeof *first);
    for (size_t i = g->n_nodes; first && i-- > 0;) first[g->nodes[i].origin] = (uint32_t)i + 1;
    return first;
}

static double parameters_of(const weft_graph *g, const node_record *node)
{
    if (node->op != &weft_op_state || !((const weft_state_attr *)node->attr)->trainable) return 0;
    return (double)weft_shape_numel(g->values[node->first_out].type.shape);
}

/* Finds the box of each node. False if out of memory. */
static bool find_boxes(dot_boxes *b, const weft_graph *g, int depth)
{
    size_t slots = 64;
    uint32_t n_origins, *first = first_of_origins(g, &n_origins);
    while (slots < 2 * g->n_nodes) slots *= 2;
    uint32_t *table = calloc(slots, sizeof *table); /* nodes + 1 */
    for (size_t i = 0; first && table && i < g->n_nodes; i++) {
        const node_record *node = &g->nodes[i];
        const char *scope = scope_for_box(g, node, first, n_origins);
        const size_t length = b->of[i] == DOT_HIDDEN ? 0 : box_length(scope, depth);
        if (!length) continue;
        const uint64_t key = hash_number(HASH_START, node->role.direction);
        size_t slot = hash_bytes(key, scope, length) & (slots - 1);
        for (; table[slot]; slot = (slot + 1) & (slots - 1)) {
            const dot_box *box = &b->box[table[slot] - 1];
            if (g->nodes[table[slot] - 1].role.direction == node->role.direction &&
                box->length == length && !memcmp(box->scope, scope, length))
                break;
        }
        if (!table[slot]) table[slot] = (uint32_t)i + 1;
        b->of[i] = table[slot] - 1;
        dot_box *box = &b->box[b->of[i]];
        box->nodes++;
        box->scope = scope;
        box->length = length;
        box->parameters += parameters_of(g, node);
    }
    const bool good = first && table;
    free(first);
    free(table);
    return good;
}

/* ---- Edges ---- */

static int compare_edges(const void *one, const void *other)
{
    const dot_edge *a = one, *b = other;
    if (a->to != b->to) return a->to < b->to ? -1 : 1;
    if (a->from != b->from) return a->from < b->from ? -1 : 1;
    return (a->value > b->value) - (a->value < b->value);
}

/* Adds an edge for each input of a node that is shown and lies outside its box. */
static void find_edges(dot_boxes *b, const weft_graph *g, bool join)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const node_record *node = &g->nodes[i];
        for (size_t k = 0; k < node->n_in && b->of[i] != DOT_HIDDEN; k++) {
            const uint32_t from = b->of[g->values[node->in[k]].node];
            if (from != DOT_HIDDEN && from != b->of[i])
                b->edges[n++] = (dot_edge){from, b->of[i], node->in[k]};
        }
    }
    b->n_edges = join ? 0 : n;
    if (!join) return;
    qsort(b->edges, n, sizeof *b->edges, compare_edges);
    for (size_t i = 0; i < n; i++)
        if (!i || compare_edges(&b->edges[i], &b->edges[b->n_edges - 1]) != 0)
            b->edges[b->n_edges++] = b->edges[i];
}

bool weft__dot_boxes_make(dot_boxes *b, const weft_graph *g, const weft_dot_options *o)
{
    size_t n_edges = 0;
    for (size_t i = 0; i < g->n_nodes; i++) n_edges += g->nodes[i].n_in;
    b->of = calloc(g->n_nodes + 1, sizeof *b->of);
    b->box = calloc(g->n_nodes + 1, sizeof *b->box);
    b->edges = calloc(n_edges + 1, sizeof *b->edges);
    if (!b->of || !b->box || !b->edges || !hide_nodes(g, o, b->of)) return false;
    if (o->depth > 0) hide_constants(g, b->of);
    if (o->depth > 0 && !find_boxes(b, g, o->depth)) return false;
    find_edges(b, g, o->depth > 0);
    return true;
}

void weft__dot_boxes_free(dot_boxes *b)
{
    free(b->of);
    free(b->box);
    free(b->edges);
}
