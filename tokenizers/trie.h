/* trie.h - texts of which those that begin another are found. Not installed. */
#ifndef WEFT_TOKENIZERS_TRIE_H
#define WEFT_TOKENIZERS_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tk_edge {
    uint32_t node; /* where it begins; the key with `byte`. UINT32_MAX: none */
    uint32_t to;
    uint32_t byte;
} tk_edge;

/* Zeros are an empty trie. */
typedef struct tk_trie {
    tk_edge *edges; /* a hash table */
    size_t n_edges, capacity;
    int32_t *values; /* of nodes; -1: none ends here */
    size_t n_nodes, nodes_capacity;
    uint32_t first[256]; /* the nodes after the first byte; 0: none */
} tk_trie;

/* Gives a text a value, in place of an older one. False if out of memory. */
bool weft__tk_trie_add(tk_trie *t, const char *text, size_t n, int32_t value);
/* The node that follows `node` (0 at first) after a byte; 0 if there is none. */
uint32_t weft__tk_trie_next(const tk_trie *t, uint32_t node, unsigned char byte);
void weft__tk_trie_free(tk_trie *t);

#endif
