/* The arenas of the zoo's training steps are at most 1.1 times what any order of their nodes needs.
 *
 * When a node runs, its ancestors have run and its descendants have not. Of the other nodes any
 * could have run, as long as their own ancestors have. Each such set of nodes leaves values alive:
 * those that it computed and that a node outside of it reads. The least bytes that any set leaves
 * alive are a minimum cut. With the node's own outputs and scratch they are a lower bound of the
 * arena for every order, and so is the largest bound of several nodes. */
#include "tests.h"

#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- Minimum cut (Edmonds & Karp, 1972) ---- */

typedef struct edge {
    uint32_t to, next; /* next: in the list of the vertex it leaves; 0 ends the list */
    int64_t capacity;
} edge;

/* Edge k and its reverse k ^ 1 are neighbours; edges count from 2. */
typedef struct network {
    edge *edges;
    uint32_t *first, *reached, *queue; /* by vertex; reached: the edge that led there */
    uint32_t n_vertices, n_edges, capacity;
} network;

static void add_edge(network *w, uint32_t from, uint32_t to, int64_t capacity)
{
    if (w->n_edges + 2 > w->capacity) {
        w->capacity = w->capacity * 2 + 1024;
        w->edges = realloc(w->edges, w->capacity * sizeof *w->edges);
    }
    w->edges[w->n_edges] = (edge){to, w->first[from], capacity};
    w->first[from] = w->n_edges++;
    w->edges[w->n_edges] = (edge){from, w->first[to], 0};
    w->first[to] = w->n_edges++;
}

/* A shortest path over edges with capacity left; false if there is none. */
static bool find_path(network *w, uint32_t source, uint32_t sink)
{
    uint32_t head = 0, tail = 0;
    memset(w->reached, 0, w->n_vertices * sizeof *w->reached);
    w->reached[source] = 1;
    w->queue[tail++] = source;
    while (head < tail && !w->reached[sink]) {
        const uint32_t vertex = w->queue[head++];
        for (uint32_t k = w->first[vertex]; k; k = w->edges[k].next) {
            const uint32_t to = w->edges[k].to;
            if (w->edges[k].capacity <= 0 || w->reached[to]) continue;
            w->reached[to] = k;
            w->queue[tail++] = to;
        }
    }
    return w->reached[sink] != 0;
}

static int64_t minimum_cut(network *w, uint32_t source, uint32_t sink)
{
    int64_t total = 0;
    while (find_path(w, source, sink)) {
        int64_t flow = INT64_MAX;
        for (uint32_t v = sink; v != source; v = w->edges[w->reached[v] ^ 1].to)
            if (w->edges[w->reached[v]].capacity < flow) flow = w->edges[w->reached[v]].capacity;
        for (uint32_t v = sink; v != source; v = w->edges[w->reached[v] ^ 1].to) {
            w->edges[w->reached[v]].capacity -= flow;
            w->edges[w->reached[v] ^ 1].capacity += flow;
        }
        total += flow;
    }
    return total;
}

/* ---- The bound ---- */

#define FOREVER (INT64_MAX / 4)

typedef struct bounds {
    const weft_plan *plan;
    uint8_t *runs;   /* by node: it is a step */
    size_t *scratch; /* by node */
    uint8_t *place;  /* by node: ANCESTOR or DESCENDANT of the node in question */
    network net;     /* vertices: nodes, values, source, sink */
} bounds;

enum { ANCESTOR = 1, DESCENDANT = 2 };

static void open_bounds(bounds *b, const weft_plan *plan)
{
    const weft_graph *g = plan->graph;
    const size_t n = g->n_nodes + g->n_values + 2;
    *b = (bounds){.plan = plan,
                  .runs = calloc(g->n_nodes, 1),
                  .scratch = calloc(g->n_nodes, sizeof *b->scratch),
                  .place = calloc(g->n_nodes, 1),
                  .net = {.first = calloc(n, sizeof(uint32_t)),
                          .reached = calloc(n, sizeof(uint32_t)),
                          .queue = calloc(n, sizeof(uint32_t)),
                          .n_vertices = (uint32_t)n}};
    for (size_t i = 0; i < plan->n_steps; i++) {
        const plan_step *step = &plan->steps[i];
        b->runs[step->node] = 1;
        if (step->scratch_buffer)
            b->scratch[step->node] = plan->buffers[step->scratch_buffer - 1].bytes;
    }
}

static void close_bounds(bounds *b)
{
    free(b->runs);
    free(b->scratch);
    free(b->place);
    free(b->net.edges);
    free(b->net.first);
    free(b->net.reached);
    free(b->net.queue);
}

/* Marks ancestors and descendants. A node's inputs have lower indices than the node. */
static void mark_places(bounds *b, uint32_t node)
{
    const weft_graph *g = b->plan->graph;
    memset(b->place, 0, g->n_nodes);
    for (uint32_t k = node + 1; k-- > 0;)
        for (uint32_t i = 0; i < g->nodes[k].n_in && (k == node || b->place[k]); i++)
            b->place[g->values[g->nodes[k].in[i]].node] = ANCESTOR;
    for (uint32_t k = node + 1; k < g->n_nodes; k++)
        for (uint32_t i = 0; i < g->nodes[k].n_in; i++) {
            const uint32_t from = g->values[g->nodes[k].in[i]].node;
            if (from == node || b->place[from] == DESCENDANT) b->place[k] = DESCENDANT;
        }
}

/* The bytes that live throughout, and those that the node needs for itself. */
static size_t own_bytes(const bounds *b, uint32_t node)
{
    const weft_graph *g = b->plan->graph;
    size_t bytes = b->scratch[node];
    for (size_t i = 0; i < b->plan->n_buffers; i++) {
        const weft_plan_buffer *buffer = &b->plan->buffers[i];
        if (!buffer->first && buffer->last == b->plan->n_intervals) bytes += buffer->bytes;
    }
    for (uint32_t i = 0; i < g->nodes[node].op->n_out && !g->nodes[node].op->inplace; i++) {
        const uint32_t v = g->nodes[node].first_out + i;
        if (g->values[v].root == v && b->plan->buffer_of[v]) bytes += weft__storage_bytes(g, v);
    }
    return bytes;
}

/* A bound of every arena, as far as it follows from this node. */
static size_t bound_of(bounds *b, uint32_t node)
{
    const weft_plan *plan = b->plan;
    const weft_graph *g = plan->graph;
    network *w = &b->net;
    const uint32_t values = (uint32_t)g->n_nodes, source = w->n_vertices - 2, sink = source + 1;
    memset(w->first, 0, w->n_vertices * sizeof *w->first);
    w->n_edges = 2;
    mark_places(b, node);
    for (uint32_t k = 0; k < g->n_nodes; k++) {
        const node_record *record = &g->nodes[k];
        if (b->place[k] == ANCESTOR) add_edge(w, source, k, FOREVER);
        if (b->place[k] == DESCENDANT || k == node) add_edge(w, k, sink, FOREVER);
        for (uint32_t i = 0; i < record->n_in; i++) {
            const value_record *in = &g->values[record->in[i]];
            add_edge(w, k, in->node, FOREVER); /* what has run has its inputs */
            /* A value that is dead has no reader left. */
            if (b->runs[k] && b->runs[g->values[in->root].node] && plan->buffer_of[record->in[i]])
                add_edge(w, values + in->root, k, FOREVER);
        }
        for (uint32_t v = record->first_out; v < record->first_out + record->op->n_out; v++)
            if (b->runs[k] && g->values[v].root == v && plan->buffer_of[v])
                add_edge(w, k, values + v, (int64_t)weft__storage_bytes(g, v));
    }
    for (size_t i = 0; i < plan->n_targets; i++)
        add_edge(w, values + g->values[plan->targets[i].value.id].root, sink, FOREVER);
    return own_bytes(b, node) + (size_t)minimum_cut(w, source, sink);
}

/* Groups whose nodes are asked, as they need most bytes: more of them can only raise the bound. */
#define GROUPS 6

/* The largest bound of the nodes of some intervals, those with most live bytes. */
static size_t bound_of_order(const weft_plan *plan)
{
    bounds b;
    size_t best = 0, *alive = calloc(plan->n_intervals + 1, sizeof *alive);
    open_bounds(&b, plan);
    for (size_t i = 0; i < plan->n_buffers; i++)
        for (uint32_t k = plan->buffers[i].first; k <= plan->buffers[i].last; k++)
            if (k < plan->n_intervals) alive[k] += plan->buffers[i].bytes;
    for (int i = 0; i < GROUPS; i++) {
        size_t most = 0;
        for (size_t k = 1; k < plan->n_intervals; k++)
            if (alive[k] > alive[most]) most = k;
        alive[most] = 0;
        const plan_interval *interval = &plan->intervals[most];
        for (uint32_t k = 0; k < interval->n_steps; k++) {
            const size_t bound = bound_of(&b, plan->steps[interval->first_step + k].node);
            if (bound > best) best = bound;
        }
    }
    free(alive);
    close_bounds(&b);
    return best;
}

/* ---- The zoo ---- */

static void check_model(const weft_model *model)
{
    const weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    weft_built built;
    test_build_model(g, model->name, true, &built);
    weft_value rate = weft_input(g, "rate", weft_dtype_of(g, built.loss), WEFT_SCALAR);
    weft_value step = weft_train_update(g, built.loss, NULL, 0, rate, &adam, NULL);
    weft_plan *plan = weft_plan_new(g, WEFT_VALUES(built.loss, step), NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    const size_t bound = bound_of_order(plan), bytes = weft_plan_stats_of(plan).arena_bytes;
    const bool good = bound <= bytes && (double)bytes <= 1.1 * (double)bound;
    if (!good)
        fprintf(stderr, "\n    %s: arena %zu, any order needs at least %zu\n", model->name, bytes,
                bound);
    CU_ASSERT_TRUE(good);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_zoo(void)
{
    const weft_model *model;
    if (getenv("WEFT_SKIP")) {
        test_skip("arenas compared with the bound of any order", "they are of all passes");
        return;
    }
    for (size_t i = 0; (model = weft_model_at(i)); i++) check_model(model);
}

void order_tests(void)
{
    CU_pSuite suite = CU_add_suite("order", NULL, NULL);
    CU_add_test(suite, "arenas compared with the bound of any order", test_zoo);
}
