/* Making the body of a scan: a copy of the part of a graph that its values need, unless a node of it
 * cannot be repeated. O(nodes). */
#include "ir/scan.h"

#include <stdlib.h>
#include <string.h>

/* Why a node cannot be in a body; NULL if it can. */
static const char *refusal(const node_record *node)
{
    const weft_op *op = node->op;
    if (op == &weft_op_state)
        return "a body declares no parameters or states: pass it as a shared input";
    if (op == &weft_op_input)
        return "is an input of the body, but neither a carry, a sequence nor shared";
    if (op == &weft_op_track || op == &weft_op_group) return "can only run once in a run";
    if (op->random)
        return "random numbers would repeat in each step: draw them outside, as a sequence";
    if (op->updates) return "a body cannot update a state";
    if (op->exchanges) return "a body cannot exchange data with other processes";
    return NULL;
}

/* A body that is being made. */
typedef struct maker {
    weft_graph *graph; /* for errors */
    const weft_graph *source;
    const scan_body *like;
    uint8_t *alive; /* by node of the source */
    uint32_t *map;  /* by value of the source: the id in the body */
    weft_value *in; /* room for the inputs of one node */
    scan_body *body;
} maker;

/* Marks what the values of the body need. False, with an error, if some of it cannot be in one. */
static bool mark_alive(maker *m)
{
    const weft_graph *g = m->source;
    const scan_body *b = m->like;
    for (uint32_t k = 0; k < b->n_carry + b->n_out; k++) m->alive[g->values[b->out[k]].node] = 1;
    for (size_t n = g->n_nodes; n-- > 0;)
        for (size_t i = 0; m->alive[n] && i < g->nodes[n].n_in; i++)
            m->alive[g->values[g->nodes[n].in[i]].node] = 1;
    for (uint32_t i = 0; i < scan_inputs(b); i++) m->map[b->in[i]] = UINT32_MAX;
    for (size_t n = 0; n < g->n_nodes; n++) {
        const node_record *node = &g->nodes[n];
        if (!m->alive[n] || m->map[node->first_out] == UINT32_MAX) continue;
        const char *reason = refusal(node);
        if (!reason) continue;
        char where[256];
        weft_graph_fail_in(m->graph, "weft_scan", WEFT_BAD_ARGUMENT, "%s in the body: %s",
                           weft__graph_node_where(g, n, where, sizeof where), reason);
        return false;
    }
    return true;
}

static void copy_node(maker *m, size_t n)
{
    const node_record *node = &m->source->nodes[n];
    weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}};
    for (size_t i = 0; i < node->n_in; i++)
        m->in[i] = weft__graph_value(m->body->graph, m->map[node->in[i]]);
    weft_graph_copy_node(m->body->graph, m->source, n, m->in, out);
    for (size_t k = 0; k < node->op->n_out; k++) m->map[node->first_out + k] = out[k].id;
}

/* Copies the carries, the other inputs that are needed, at least one, and what lies between. */
static void copy_all(maker *m, bool *used)
{
    const scan_body *from = m->like;
    scan_body *to = m->body;
    const weft_graph *g = m->source;
    bool reads = from->n_carry;
    for (uint32_t i = 0; i < from->n_carry; i++) m->alive[g->values[from->in[i]].node] = 1;
    if (from->when) m->alive[g->values[from->in[from->when - 1]].node] = 1;
    for (uint32_t i = 0; i < scan_inputs(from); i++) reads |= m->alive[g->values[from->in[i]].node];
    if (!reads) m->alive[g->values[from->in[0]].node] = 1;
    for (size_t n = 0; n < g->n_nodes && weft_graph_status(to->graph) == WEFT_OK; n++)
        if (m->alive[n]) copy_node(m, n);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < scan_inputs(from); i++) {
        used[i] = m->alive[g->values[from->in[i]].node];
        if (!used[i]) continue;
        if (from->when == i + 1) to->when = kept + 1;
        to->in[kept++] = m->map[from->in[i]];
        to->n_each += i >= from->n_carry && i < from->n_carry + from->n_each;
        to->n_shared += i >= from->n_carry + from->n_each;
    }
    to->n_carry = from->n_carry;
    to->n_out = from->n_out;
    for (uint32_t k = 0; k < to->n_carry + to->n_out; k++) to->out[k] = m->map[from->out[k]];
}

/* Adds up the work of one step; false if out of memory. */
static bool count_cost(scan_body *b)
{
    for (size_t n = 0; n < b->graph->n_nodes; n++) {
        weft_cost cost;
        if (weft_graph_node_cost(b->graph, n, &cost, NULL) != WEFT_OK) return false;
        b->cost.flops += cost.flops;
        b->cost.bytes += cost.bytes;
    }
    return true;
}

static bool open_maker(maker *m)
{
    const weft_graph *g = m->source;
    const scan_body *like = m->like;
    size_t max_in = 1;
    for (size_t n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].n_in > max_in) max_in = g->nodes[n].n_in;
    m->alive = calloc(g->n_nodes + 1, 1);
    m->map = calloc(g->n_values + 1, sizeof *m->map);
    m->in = calloc(max_in, sizeof *m->in);
    m->body = calloc(1, sizeof *m->body);
    if (!m->alive || !m->map || !m->in || !m->body) return false;
    atomic_init(&m->body->references, 1);
    m->body->graph = weft_graph_new();
    m->body->in = calloc(scan_inputs(like) + 1, sizeof *m->body->in);
    m->body->out = calloc(like->n_carry + like->n_out + 1, sizeof *m->body->out);
    return m->body->graph && m->body->in && m->body->out;
}

scan_body *weft__scan_body_new(weft_graph *graph, const weft_graph *source, const scan_body *like,
                               bool *used)
{
    maker m = {.graph = graph, .source = source, .like = like};
    bool good = open_maker(&m);
    if (good && mark_alive(&m)) {
        copy_all(&m, used);
        const weft_error *error = &m.body->graph->error;
        if (error->status != WEFT_OK)
            weft_graph_fail_in(graph, error->where, error->status, "%s", error->message);
        else
            good = count_cost(m.body);
    }
    if (!good) weft_graph_fail_in(graph, "weft_scan", WEFT_NO_MEMORY, "no memory");
    free(m.alive);
    free(m.map);
    free(m.in);
    if (weft_graph_status(graph) == WEFT_OK) return m.body;
    weft__scan_body_release(m.body);
    return NULL;
}
