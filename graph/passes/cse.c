/* cse: equal ops on equal inputs are computed once (common subexpressions). Nodes are found by a
 * hash of op, attributes and inputs; O(nodes) expected. */
#include "rewrite.h"

#include "base/hash.h"

#include <string.h>

static bool same_node(const rewrite *r, const node_record *a, const node_record *b)
{
    if (a->op != b->op || a->n_in != b->n_in || memcmp(a->attr, b->attr, a->op->attr_size) != 0)
        return false;
    for (size_t i = 0; i < a->n_in; i++)
        if (b->in[i] != r->in[i].id) return false;
    return true;
}

static bool visit_cse(rewrite *r, const node_record *node, weft_value *out)
{
    const weft_op *op = node->op;
    if (op == &weft_op_input || op == &weft_op_state || op == &weft_op_constant || op->updates)
        return false;
    uint64_t hash = hash_bytes(weft_hash_text(op->name), node->attr, op->attr_size);
    for (size_t i = 0; i < node->n_in; i++) hash = hash_bytes(hash, &r->in[i].id, 4);
    size_t slot = hash & (r->table_size - 1);
    for (; r->table[slot]; slot = (slot + 1) & (r->table_size - 1)) {
        const node_record *other = &r->dst->nodes[r->table[slot] - 1];
        if (!same_node(r, node, other)) continue;
        for (size_t i = 0; i < op->n_out; i++)
            out[i] = graph_value(r->dst, other->first_out + (uint32_t)i);
        return true;
    }
    rewrite_copy(r, node, out);
    if (weft_graph_status(r->dst) == WEFT_OK) r->table[slot] = (uint32_t)r->dst->n_nodes;
    return true;
}

const pass pass_cse = {
    .name = "cse", .doc = "equal ops on equal inputs are computed once", .visit = visit_cse};
