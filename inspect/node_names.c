/* The name of a node is that of its output 0, or else "scope/op". From the second node of a name
 * on, a number follows: "scope/op#2". The names follow from the graph alone. A hash table finds
 * names that are taken; O(nodes) expected. */
#include "node_names.h"

#include <stdlib.h>
#include <string.h>

static const char *value_name(const weft_graph *g, const node_record *node)
{
    return node->op->n_out ? g->values[node->first_out].name : NULL;
}

/* NULL if out of memory. */
static const char *distinct_name(arena *texts, name_table *table, const char *plain)
{
    const size_t room = strlen(plain) + 24;
    char *name = weft__arena_alloc(texts, room);
    if (!name || !weft__name_table_reserve(table, 1)) return NULL;
    snprintf(name, room, "%s", plain);
    size_t *last = weft__name_table_find(table, plain); /* the greatest number of this name */
    while (last && weft__name_table_find(table, name))
        snprintf(name, room, "%s#%zu", plain, ++*last);
    weft__name_table_put(table, name, 1);
    return name;
}

bool weft__node_names_make(node_names *names, const weft_graph *g)
{
    char text[SCOPE_BYTES + 64];
    size_t i = 0;
    name_table table = {.memory = NULL};
    *names = (node_names){.at = calloc(g->n_nodes + 1, sizeof *names->at)};
    bool good = names->at;
    /* Names of values first: the graph keeps them distinct, so they get no numbers. */
    for (; good && i < g->n_nodes; i++) {
        const char *name = value_name(g, &g->nodes[i]);
        if (!name) continue;
        names->at[i] = distinct_name(&names->texts, &table, name);
        good = names->at[i];
    }
    for (i = 0; good && i < g->n_nodes; i++) {
        const node_record *node = &g->nodes[i];
        if (names->at[i]) continue;
        snprintf(text, sizeof text, "%s%s%s", node->scope, node->scope[0] ? "/" : "",
                 node->op->name);
        names->at[i] = distinct_name(&names->texts, &table, text);
        good = names->at[i];
    }
    weft__name_table_free(&table);
    return good;
}

void weft__node_names_free(node_names *names)
{
    free(names->at);
    weft__arena_free(&names->texts);
}
