/* The order of the nodes: topological, by rank among the nodes that are ready (a heap); an update of
 * a state comes after every reader of the old version. But a node that frees more bytes than it
 * writes runs as soon as it can: the mask of a clamp, which the backward pass reads, is computed in
 * the forward pass, where it replaces a tensor four times its size. O(n log n) for n operands.
 *
 * The rank is that of the node's id, except in forward mode (autograd/transform.c): a derivative
 * follows the node that it belongs to, so that what both read is needed no longer than for one of
 * them.
 */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct edges {
    uint32_t *first, *next, *to; /* lists by node; entries from 1 */
    uint32_t *waits;             /* by node: edges that come in */
    uint32_t n, capacity;
} edges;

static void add_edge(edges *e, uint32_t from, uint32_t to)
{
    if (from == to || e->n + 1 >= e->capacity) return;
    uint32_t k = ++e->n;
    e->to[k] = to;
    e->next[k] = e->first[from];
    e->first[from] = k;
    e->waits[to]++;
}

/* Adds an edge from each producer to its readers, and one from each reader of a version of a state
 * to the update that overwrites it. */
static bool collect_edges(const weft_graph *g, edges *e, weft_error *error)
{
    uint32_t *overwriter = /* by version: node + 1 of the update */
        calloc(g->n_values, sizeof *overwriter);
    if (!overwriter) return plan_no_memory(error);
    bool good = true;
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const node_record *node = &g->nodes[n];
        for (size_t i = 0; i < node->op->updates && i < node->n_in; i++) {
            uint32_t version = g->values[node->in[i]].version;
            if (overwriter[version]) {
                char where[256];
                weft_error_set(error, WEFT_BAD_ARGUMENT,
                               weft__graph_node_where(g, n, where, sizeof where),
                               "two updates of the same state \"%s\" in one plan",
                               weft_name_of(g, weft__graph_value(g, g->values[version].root)));
                good = false;
            }
            overwriter[version] = n + 1;
        }
    }
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const node_record *node = &g->nodes[n];
        for (size_t i = 0; i < node->n_in; i++) {
            const value_record *in = &g->values[node->in[i]];
            add_edge(e, in->node, n);
            /* A view reads nothing itself, and a node "group" only waits. */
            bool reads = !node->op->alias && node->op != &weft_op_group;
            if (reads && overwriter[in->version]) add_edge(e, n, overwriter[in->version] - 1);
        }
    }
    free(overwriter);
    return good;
}

/* ---- Ranks ---- */

/* The node after which a node of forward mode runs: the last one of the origin that its role names,
 * or of the nearest earlier origin that has one. Any other node runs at its own place. */
static uint32_t leader(const weft_graph *g, const uint32_t *last, const uint32_t *leaders,
                       uint32_t n)
{
    const weft_role role = g->nodes[n].role;
    if (role.direction != WEFT_FORWARD || !role.gradient_of || role.gradient_of > g->origins)
        return n;
    const uint32_t of = last[role.gradient_of];
    return of < n ? leaders[of] : n;
}

/* Fills rank[node] and node_of[rank]: nodes with the same leader follow it in the order of ids.
 * `count` has room for n_nodes + 1, and is zero. */
static bool rank_nodes(const weft_graph *g, uint32_t *rank, uint32_t *node_of, uint32_t *count)
{
    uint32_t *last = malloc(((size_t)g->origins + 1) * sizeof *last); /* by origin */
    if (!last) return false;
    memset(last, 0xff, ((size_t)g->origins + 1) * sizeof *last);
    for (uint32_t n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].origin <= g->origins) last[g->nodes[n].origin] = n;
    for (uint32_t origin = 1; origin <= g->origins; origin++)
        if (last[origin] == UINT32_MAX) last[origin] = last[origin - 1];
    uint32_t *leaders = node_of; /* until the ranks are known */
    for (uint32_t n = 0; n < g->n_nodes; n++) leaders[n] = leader(g, last, leaders, n);
    free(last);
    for (uint32_t n = 0; n < g->n_nodes; n++) count[leaders[n] + 1]++;
    for (size_t n = 1; n <= g->n_nodes; n++) count[n] += count[n - 1];
    for (uint32_t n = 0; n < g->n_nodes; n++) rank[n] = count[leaders[n]]++;
    for (uint32_t n = 0; n < g->n_nodes; n++) node_of[rank[n]] = n;
    return true;
}

static void heap_push(uint32_t *heap, size_t *n, uint32_t item)
{
    size_t i = (*n)++;
    while (i && heap[(i - 1) / 2] > item) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = item;
}

static uint32_t heap_pop(uint32_t *heap, size_t *n)
{
    uint32_t top = heap[0], item = heap[--*n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *n) break;
        if (child + 1 < *n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= item) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = item;
    return top;
}

/* ---- What a node frees ---- */

/* The nodes that have not run yet and read a storage: how many, and their sum, so that the last one
 * is known without a search. */
typedef struct readers {
    uint64_t sum;
    uint32_t n;
    uint32_t seen; /* node + 1: the last one that a loop over operands has counted here */
    bool stays;    /* not in the arena, or alive after the run */
} readers;

typedef struct ordering {
    const weft_graph *g;
    edges e;
    readers *readers;         /* by value id of the owner of a storage */
    size_t *freed;            /* by node: bytes of the storages that it alone has yet to read */
    uint32_t *rank, *node_of; /* by node, by rank */
    uint32_t *heap, *urgent;  /* of ranks */
    size_t n_heap, n_urgent;
    uint8_t *state; /* by node: READY | DONE */
} ordering;

enum { READY = 1, DONE = 2, URGENT = 4 };

/* Counts the bytes of a storage whose last reader is known. */
static void count_freed(ordering *o, uint32_t root)
{
    const readers *r = &o->readers[root];
    if (r->n == 1 && !r->stays) o->freed[r->sum] += weft__storage_bytes(o->g, root);
}

static void count_readers(ordering *o, const plan_target *targets, size_t n_targets)
{
    const weft_graph *g = o->g;
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const node_record *node = &g->nodes[n];
        for (uint32_t i = 0; i < node->op->n_out; i++) {
            const uint32_t v = node->first_out + i;
            o->readers[v].stays = weft__op_is_leaf(node->op) || g->values[v].root != v;
        }
        if (!weft__graph_node_runs(g, node)) continue;
        for (uint32_t i = 0; i < node->n_in; i++) {
            readers *r = &o->readers[g->values[node->in[i]].root];
            if (r->seen == n + 1) continue;
            r->seen = n + 1;
            r->n++;
            r->sum += n;
        }
    }
    for (size_t i = 0; i < n_targets; i++)
        o->readers[g->values[targets[i].value.id].root].stays = true;
    for (uint32_t v = 1; v < g->n_values; v++) {
        o->readers[v].seen = 0;
        count_freed(o, v);
    }
}

/* Whether the node would free more bytes than it writes. Nodes that order processes, or change a
 * state, are not moved. */
static bool frees_more(const ordering *o, uint32_t n)
{
    const weft_graph *g = o->g;
    const node_record *node = &g->nodes[n];
    size_t written = 0;
    if (node->op->updates || node->op->exchanges || !weft__graph_node_runs(g, node)) return false;
    for (uint32_t i = 0; i < node->op->n_out && o->freed[n]; i++)
        written += weft__storage_bytes(g, node->first_out + i);
    return o->freed[n] > written;
}

static void consider(ordering *o, uint32_t n)
{
    if (o->state[n] != READY || !frees_more(o, n)) return;
    o->state[n] |= URGENT;
    heap_push(o->urgent, &o->n_urgent, o->rank[n]);
}

/* Takes the node off the lists of readers of its operands. */
static void finish_reading(ordering *o, uint32_t n)
{
    const weft_graph *g = o->g;
    const node_record *node = &g->nodes[n];
    if (!weft__graph_node_runs(g, node)) return;
    for (uint32_t i = 0; i < node->n_in; i++) {
        const uint32_t root = g->values[node->in[i]].root;
        readers *r = &o->readers[root];
        if (r->seen == n + 1) continue;
        r->seen = n + 1;
        r->n--;
        r->sum -= n;
        count_freed(o, root);
        if (r->n == 1) consider(o, (uint32_t)r->sum);
    }
}

static bool topological_order(ordering *o, schedule *s, weft_error *error)
{
    const weft_graph *g = o->g;
    size_t done = 0;
    for (uint32_t n = 0; n < g->n_nodes; n++)
        if (!o->e.waits[n]) {
            o->state[n] = READY;
            heap_push(o->heap, &o->n_heap, o->rank[n]);
        }
    while (o->n_urgent || o->n_heap) {
        const uint32_t first =
            o->n_urgent ? heap_pop(o->urgent, &o->n_urgent) : heap_pop(o->heap, &o->n_heap);
        const uint32_t n = o->node_of[first];
        if (o->state[n] & DONE) continue; /* it was urgent */
        o->state[n] = DONE;
        done++;
        if (weft__graph_node_runs(g, &g->nodes[n])) s->order[s->n++] = n;
        for (uint32_t k = o->e.first[n]; k; k = o->e.next[k]) {
            const uint32_t to = o->e.to[k];
            if (--o->e.waits[to]) continue;
            o->state[to] = READY;
            heap_push(o->heap, &o->n_heap, o->rank[to]);
            consider(o, to);
        }
        finish_reading(o, n);
    }
    if (done == g->n_nodes) return true;
    weft_error_set(error, WEFT_BAD_ARGUMENT, "plan",
                   "a node reads both the old and the new contents of a state; copy the old "
                   "(weft_contiguous) first");
    return false;
}

bool weft__order_nodes(const weft_graph *g, const plan_target *targets, size_t n_targets,
                       schedule *s, weft_error *error)
{
    size_t capacity = 2;
    for (size_t n = 0; n < g->n_nodes; n++) capacity += 2 * (size_t)g->nodes[n].n_in;
    ordering o = {.g = g,
                  .e = {calloc(g->n_nodes + 1, 4), calloc(capacity, 4), calloc(capacity, 4),
                        calloc(g->n_nodes + 1, 4), 0, (uint32_t)capacity},
                  .readers = calloc(g->n_values, sizeof *o.readers),
                  .freed = calloc(g->n_nodes + 1, sizeof *o.freed),
                  .rank = calloc(g->n_nodes + 1, sizeof *o.rank),
                  .node_of = calloc(g->n_nodes + 1, sizeof *o.node_of),
                  .heap = calloc((size_t)g->n_nodes + 2, sizeof *o.heap),
                  .urgent = calloc(g->n_nodes + 1, sizeof *o.urgent),
                  .state = calloc(g->n_nodes + 1, 1)};
    bool good = o.e.first && o.e.next && o.e.to && o.e.waits && o.readers && o.freed && o.rank &&
                        o.node_of && o.heap && o.urgent && o.state &&
                        rank_nodes(g, o.rank, o.node_of, o.heap)
                    ? true
                    : plan_no_memory(error);
    if (good) count_readers(&o, targets, n_targets);
    good = good && collect_edges(g, &o.e, error) && topological_order(&o, s, error);
    free(o.e.first);
    free(o.e.next);
    free(o.e.to);
    free(o.e.waits);
    free(o.readers);
    free(o.freed);
    free(o.rank);
    free(o.node_of);
    free(o.heap);
    free(o.urgent);
    free(o.state);
    return good;
}

bool weft__order_fixed(const weft_plan *plan, schedule *s)
{
    const weft_graph *g = plan->graph;
    const scan_body *b = plan->body;
    uint8_t *fixed = calloc(g->n_nodes + 1, 1);
    uint32_t *order = malloc((s->n + 1) * sizeof *order);
    const bool good = fixed && order;
    if (good) {
        for (uint32_t i = b ? b->n_carry + b->n_each : 0; b && i < scan_inputs(b); i++)
            if (plan->map[b->in[i]]) fixed[g->values[plan->map[b->in[i]]].node] = 1;
        weft__passes_mark_fixed(g, fixed);
        memcpy(order, s->order, s->n * sizeof *order);
        for (size_t i = 0; i < s->n; i++)
            if (fixed[order[i]]) s->order[s->n_fixed++] = order[i];
        for (size_t i = 0, at = s->n_fixed; i < s->n; i++)
            if (!fixed[order[i]]) s->order[at++] = order[i];
    }
    free(fixed);
    free(order);
    return good;
}
