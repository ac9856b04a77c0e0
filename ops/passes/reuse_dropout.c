/* reuse_dropout: relu's gradient reads the output of a dropout that follows relu instead of relu's
 * own, so that the latter need not be retained until the backward pass.
 *
 *     y = relu(x), d = dropout(y):   relu_grad(y, dropout(g)) = relu_grad(d, dropout(g))
 *
 * if both dropouts have the same mask: where it retains an element, d is positive if y is;
 * elsewhere the gradient is 0 either way. The bits are the same. Dropouts are found by a hash of
 * input and attributes; O(nodes) expected. */
#include "random/dropout.h"
#include "../passes.h"
#include "terms.h"

#include "base/hash.h"

#include <string.h>

extern const weft_op weft_op_dropout, weft_op_relu_grad;

/* Ids of the outputs of dropouts by hash, 0 where empty; open addressing. */
typedef struct dropout_table {
    size_t size; /* a power of two; 0 before the first node */
    uint32_t slot[];
} dropout_table;

static size_t table_size(const weft_graph *source)
{
    size_t n = 0, size = 16;
    for (size_t i = 0; i < weft_graph_node_count(source); i++)
        n += weft_graph_node(source, i).op == &weft_op_dropout;
    while (size < 2 * n) size *= 2;
    return size;
}

static size_t table_bytes(const weft_graph *source)
{
    return sizeof(dropout_table) + table_size(source) * sizeof(uint32_t);
}

/* The slot of dropout(x) with these attributes: it holds its output, or 0 if there is none. */
static uint32_t *find(weft_rewrite *r, uint32_t x, const dropout_attr *attr)
{
    dropout_table *table = r->memory;
    if (!table->size) table->size = table_size(r->source);
    size_t at = hash_bytes(hash_bytes(HASH_START, &x, sizeof x), attr, sizeof *attr);
    for (;; at++) {
        uint32_t *slot = &table->slot[at & (table->size - 1)];
        if (!*slot) return slot;
        const weft_node_info node = terms_producer(r->graph, weft_value_from_id(r->graph, *slot));
        if (node.in[0] == x && !memcmp(node.attr, attr, sizeof *attr)) return slot;
    }
}

static bool visit(weft_rewrite *r)
{
    if (r->node.op == &weft_op_dropout) {
        r->out[0] = weft_apply(r->graph, r->node.op, r->node.attr, r->in, 1, NULL);
        uint32_t *slot = find(r, r->in[0].id, r->node.attr);
        if (!*slot) *slot = r->out[0].id;
        return true;
    }
    if (r->node.op != &weft_op_relu_grad) return false;
    const weft_node_info g = terms_producer(r->graph, r->in[1]);
    if (g.op != &weft_op_dropout) return false;
    const uint32_t alike = *find(r, r->in[0].id, g.attr);
    if (alike) r->in[0] = weft_value_from_id(r->graph, alike);
    return false;
}

static bool needed(const weft_graph *graph)
{
    for (size_t n = 0; n < weft_graph_node_count(graph); n++) {
        const weft_node_info node = weft_graph_node(graph, n);
        if (node.op == &weft_op_relu_grad &&
            terms_producer(graph, weft_value_from_id(graph, node.in[1])).op == &weft_op_dropout)
            return true;
    }
    return false;
}

const weft_pass weft__pass_reuse_dropout = {
    .name = "reuse_dropout",
    .doc = "relu's gradient reads the output of a dropout that follows relu",
    .visit = visit,
    .memory_bytes = table_bytes,
    .needed = needed,
};
