/* The name of a node is that of its output 0, or else "scope/op". The second node of one name and
 * those behind it have a number: "scope/op#2". The names follow from the graph alone. A hash table
 * finds names that are taken; O(nodes) expected. */
#include "node_names.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const char *name; /* NULL: empty */
    size_t last;      /* the greatest number behind this name */
} entry;

static entry *find(entry *table, size_t slots, const char *name)
{
    size_t slot = weft_hash_text(name) & (slots - 1);
    while (table[slot].name && strcmp(table[slot].name, name) != 0) slot = (slot + 1) & (slots - 1);
    return &table[slot];
}

static const char *value_name(const weft_graph *g, const node_record *node)
{
    return node->op->n_out ? g->values[node->first_out].name : NULL;
}

/* NULL if there is no memory. */
static const char *distinct_name(arena *texts, entry *table, size_t slots, const char *plain)
{
    char numbered[SCOPE_BYTES + 96];
    entry *first = find(table, slots, plain), *own = first;
    while (own->name) {
        if (!first->last) first->last = 1;
        snprintf(numbered, sizeof numbered, "%s#%zu", plain, ++first->last);
        own = find(table, slots, numbered);
    }
    own->name = arena_text(texts, own == first ? plain : numbered);
    return own->name;
}

bool node_names_make(node_names *names, const weft_graph *g)
{
    char text[SCOPE_BYTES + 64];
    size_t slots = 64, i = 0;
    while (slots < 2 * g->n_nodes) slots *= 2;
    entry *table = calloc(slots, sizeof *table);
    *names = (node_names){.at = calloc(g->n_nodes + 1, sizeof *names->at)};
    bool good = table && names->at;
    /* Names of values first: the graph keeps them distinct, so they get no numbers. */
    for (; good && i < g->n_nodes; i++) {
        const char *name = value_name(g, &g->nodes[i]);
        if (!name) continue;
        names->at[i] = distinct_name(&names->texts, table, slots, name);
        good = names->at[i];
    }
    for (i = 0; good && i < g->n_nodes; i++) {
        const node_record *node = &g->nodes[i];
        if (names->at[i]) continue;
        snprintf(text, sizeof text, "%s%s%s", node->scope, node->scope[0] ? "/" : "",
                 node->op->name);
        names->at[i] = distinct_name(&names->texts, table, slots, text);
        good = names->at[i];
    }
    free(table);
    return good;
}

void node_names_free(node_names *names)
{
    free(names->at);
    arena_free(&names->texts);
}
