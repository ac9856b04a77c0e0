/* cse: equal ops on equal inputs are computed once (common subexpressions). Nodes are found by a
 * hash of op, attributes and inputs; O(nodes) expected. */
#include "rewrite.h"

#include "base/hash.h"

#include <string.h>

/* Nodes of the new graph + 1 by hash, 0 where empty; open addressing. */
typedef struct node_table {
    size_t size; /* a power of two; 0 before the first node */
    uint32_t slot[];
} node_table;

static size_t table_size(const weft_graph *source)
{
    size_t size = 64;
    while (size < 4 * source->n_nodes) size *= 2;
    return size;
}

static size_t table_bytes(const weft_graph *source)
{
    return sizeof(node_table) + table_size(source) * sizeof(uint32_t);
}

static bool same_node(const weft_rewrite *r, const node_record *other)
{
    const weft_node_info *node = &r->node;
    if (node->op != other->op || node->n_in != other->n_in ||
        memcmp(node->attr, other->attr, node->op->attr_size) != 0)
        return false;
    for (size_t i = 0; i < node->n_in; i++)
        if (other->in[i] != r->in[i].id) return false;
    return true;
}

static bool visit(weft_rewrite *r)
{
    const weft_op *op = r->node.op;
    node_table *table = r->memory;
    if (op == &weft_op_input || op == &weft_op_state || op == &weft_op_constant || op->updates ||
        op->exchanges)
        return false;
    if (!table->size) table->size = table_size(r->source);
    uint64_t hash = hash_bytes(hash_text(op->name), r->node.attr, op->attr_size);
    for (size_t i = 0; i < r->node.n_in; i++) hash = hash_bytes(hash, &r->in[i].id, 4);
    size_t slot = hash & (table->size - 1);
    for (; table->slot[slot]; slot = (slot + 1) & (table->size - 1)) {
        const node_record *other = &r->graph->nodes[table->slot[slot] - 1];
        if (!same_node(r, other)) continue;
        for (size_t i = 0; i < op->n_out; i++)
            r->out[i] = weft__graph_value(r->graph, other->first_out + (uint32_t)i);
        return true;
    }
    weft__rewrite_copy(r);
    if (weft_graph_status(r->graph) == WEFT_OK) table->slot[slot] = (uint32_t)r->graph->n_nodes;
    return true;
}

const pass weft__pass_cse = {.rule = {.name = "cse",
                                      .doc = "equal ops on equal inputs are computed once",
                                      .visit = visit,
                                      .memory_bytes = table_bytes}};
