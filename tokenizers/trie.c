/* A trie whose edges are in one hash table: a step takes O(1), whatever the number of edges of a
 * node. */
#include "trie.h"

#include <stdlib.h>
#include <string.h>

static size_t find_edge(const tk_trie *t, uint32_t node, uint32_t byte)
{
    uint64_t h = ((uint64_t)node << 8 | byte) * 0x9E3779B97F4A7C15u;
    size_t at = (size_t)(h >> 32 ^ h >> 11) & (t->capacity - 1);
    while (t->edges[at].node != UINT32_MAX &&
           (t->edges[at].node != node || t->edges[at].byte != byte))
        at = (at + 1) & (t->capacity - 1);
    return at;
}

static bool grow_edges(tk_trie *t)
{
    const tk_trie old = *t;
    t->capacity = old.capacity ? 2 * old.capacity : 256;
    t->edges = malloc(t->capacity * sizeof *t->edges);
    if (!t->edges) {
        *t = old;
        return false;
    }
    for (size_t i = 0; i < t->capacity; i++) t->edges[i].node = UINT32_MAX;
    for (size_t i = 0; i < old.capacity; i++)
        if (old.edges[i].node != UINT32_MAX)
            t->edges[find_edge(t, old.edges[i].node, old.edges[i].byte)] = old.edges[i];
    free(old.edges);
    return true;
}

/* A new node; 0 if out of memory. */
static uint32_t add_node(tk_trie *t)
{
    if (t->n_nodes == 0) t->n_nodes = 1; /* the root, which has no value */
    if (t->n_nodes >= t->nodes_capacity) {
        const size_t capacity = t->nodes_capacity ? 2 * t->nodes_capacity : 256;
        int32_t *values = realloc(t->values, capacity * sizeof *values);
        if (!values) return 0;
        t->values = values;
        t->nodes_capacity = capacity;
        values[0] = -1;
    }
    t->values[t->n_nodes] = -1;
    return (uint32_t)t->n_nodes++;
}

bool weft__tk_trie_add(tk_trie *t, const char *text, size_t n, int32_t value)
{
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)text[i];
        uint32_t to = weft__tk_trie_next(t, node, byte);
        if (!to) {
            if (2 * (t->n_edges + 1) > t->capacity && !grow_edges(t)) return false;
            to = add_node(t);
            if (!to) return false;
            t->edges[find_edge(t, node, byte)] = (tk_edge){node, to, byte};
            t->n_edges++;
            if (node == 0) t->first[byte] = to;
        }
        node = to;
    }
    if (node) t->values[node] = value;
    return true;
}

uint32_t weft__tk_trie_next(const tk_trie *t, uint32_t node, unsigned char byte)
{
    if (node == 0) return t->first[byte];
    const tk_edge *e = &t->edges[find_edge(t, node, byte)];
    return e->node == node ? e->to : 0;
}

void weft__tk_trie_free(tk_trie *t)
{
    free(t->edges);
    free(t->values);
}
