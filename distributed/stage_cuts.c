/* Where a graph is cut into stages. The placed nodes, in order of declaration, are cut where few
 * bytes cross: at local minima. Of these places, dynamic programming chooses those whose most
 * expensive stage is the cheapest,
 *
 *     best(k, j) = min over i < j of max(best(k - 1, i), cost(i, j)),
 *
 * where cost(i, j) is that of a stage with the nodes [i, j). A value that several stages read
 * counts once for the stage that sends it, so that the cost depends on no other cut. O(places x
 * (operands + places x stages)). */
#include "stages.h"

#include <math.h>
#include <stdlib.h>

/* The flops that one byte of an exchange costs. */
#define FLOPS_PER_BYTE 100.0
/* If there are more places than MAX_PLACES and PLACES_PER_STAGE for each stage, only every k-th is
 * considered. */
#define MAX_PLACES       1024
#define PLACES_PER_STAGE 4

typedef struct cutter {
    stage_division *d;
    size_t n;          /* placed nodes; a position counts them */
    uint32_t *node;    /* by position */
    double *flops;     /* by position */
    uint32_t *made;    /* by value: position + 1 of the placed node that computes it; 0: none */
    uint32_t *last;    /* by value: position + 1 of its last reader; 0: none */
    uint32_t *counted; /* by value: start + 1 of the last sweep that counted it */
    double *bytes;     /* by value */
    double *crossing;  /* [n + 1] by position: bytes that cross a cut before it */
    size_t n_places;
    uint32_t *place; /* [n_places]: positions; the first is 0, the last n */
    double *best;    /* [size + 1][n_places] */
    uint32_t *from;  /* the same: the place where the last stage begins */
} cutter;

/* A stage that grows node by node. */
typedef struct growing_stage {
    uint32_t start; /* position */
    double flops, received, sent;
} growing_stage;

static double stage_cost(const growing_stage *s)
{
    return s->flops + FLOPS_PER_BYTE * (s->received + s->sent);
}

/* Adds the node at a position to the end of the stage. */
static void grow(cutter *c, growing_stage *s, uint32_t at)
{
    const weft_node_info node = weft_graph_node(c->d->whole, c->node[at]);
    s->flops += c->flops[at];
    for (size_t i = 0; i < node.n_in; i++) {
        const uint32_t v = node.in[i];
        const bool own = c->made[v] > s->start;
        if (!c->made[v] || c->counted[v] == s->start + 1 || (own && c->last[v] != at + 1)) continue;
        c->counted[v] = s->start + 1;
        if (own)
            s->sent -= c->bytes[v];
        else
            s->received += c->bytes[v];
    }
    for (size_t i = 0; i < node.n_out; i++)
        if (c->last[node.first_out + i]) s->sent += c->bytes[node.first_out + i];
}

/* ---- Positions, values and their bytes ---- */

static void list_positions(cutter *c)
{
    const weft_graph *g = c->d->whole;
    for (size_t k = 0; k < c->d->n_nodes; k++) {
        if (c->d->kind[k] != NODE_PLACED) continue;
        const weft_node_info node = weft_graph_node(g, k);
        c->node[c->n++] = (uint32_t)k;
        for (size_t i = 0; i < node.n_in; i++) c->last[node.in[i]] = (uint32_t)c->n;
        for (size_t i = 0; i < node.n_out; i++) {
            const uint32_t id = node.first_out + (uint32_t)i;
            const weft_value v = weft_value_from_id(g, id);
            c->made[id] = (uint32_t)c->n;
            c->bytes[id] = (double)weft_tensor_bytes(weft_dtype_of(g, v), weft_shape_of(g, v));
        }
    }
}

static bool weigh_nodes(cutter *c)
{
    for (size_t i = 0; i < c->n; i++) {
        weft_cost cost;
        if (weft_graph_node_cost(c->d->whole, c->node[i], &cost, NULL) != WEFT_OK) return false;
        c->flops[i] = cost.flops;
    }
    growing_stage all = {.start = 0};
    for (size_t i = 0; i < c->n; i++) {
        c->crossing[i] = all.sent;
        grow(c, &all, (uint32_t)i);
    }
    /* Nothing is cut at the ends. */
    c->crossing[0] = c->crossing[c->n] = INFINITY;
    for (size_t v = 0; v < c->d->n_values; v++) c->counted[v] = 0;
    return true;
}

/* ---- Places ---- */

static bool is_minimum(const cutter *c, size_t at)
{
    return c->crossing[at] <= c->crossing[at - 1] && c->crossing[at] <= c->crossing[at + 1];
}

/* Lists local minima, or every position if these are too few. */
static void list_places(cutter *c)
{
    const size_t needed = (size_t)c->d->size - 1;
    const size_t limit = MAX_PLACES + PLACES_PER_STAGE * (size_t)c->d->size;
    size_t minima = 0, seen = 0;
    for (size_t i = 1; i < c->n; i++) minima += is_minimum(c, i);
    const bool all = minima < needed;
    const size_t each = (all ? c->n : minima) / limit + 1;
    c->place[c->n_places++] = 0;
    for (size_t i = 1; i < c->n; i++)
        if ((all || is_minimum(c, i)) && seen++ % each == 0) c->place[c->n_places++] = (uint32_t)i;
    c->place[c->n_places++] = (uint32_t)c->n;
}

/* Stages that begin at a place and end at any later one. */
static void sweep(cutter *c, size_t from)
{
    growing_stage s = {.start = c->place[from]};
    uint32_t at = s.start;
    for (size_t to = from + 1; to < c->n_places; to++) {
        while (at < c->place[to]) grow(c, &s, at++);
        const double cost = stage_cost(&s);
        for (size_t k = 1; k <= (size_t)c->d->size; k++) {
            const double most = fmax(c->best[(k - 1) * c->n_places + from], cost);
            double *best = &c->best[k * c->n_places + to];
            if (!(most < *best)) continue;
            *best = most;
            c->from[k * c->n_places + to] = (uint32_t)from;
        }
    }
}

static bool choose(cutter *c)
{
    const size_t cells = ((size_t)c->d->size + 1) * c->n_places;
    c->best = malloc(cells * sizeof *c->best);
    c->from = calloc(cells, sizeof *c->from);
    if (!c->best || !c->from) return false;
    for (size_t i = 1; i < cells; i++) c->best[i] = INFINITY;
    c->best[0] = 0;
    for (size_t from = 0; from + 1 < c->n_places; from++) sweep(c, from);
    size_t end = c->n_places - 1;
    for (int32_t k = c->d->size; k > 0; k--) {
        const size_t begin = c->from[(size_t)k * c->n_places + end];
        for (uint32_t i = c->place[begin]; i < c->place[end]; i++) c->d->stage[c->node[i]] = k - 1;
        end = begin;
    }
    return true;
}

static bool allocate(cutter *c)
{
    const size_t nodes = c->d->n_nodes + 1, values = c->d->n_values + 1;
    c->node = calloc(nodes, sizeof *c->node);
    c->flops = calloc(nodes, sizeof *c->flops);
    c->crossing = calloc(nodes, sizeof *c->crossing);
    c->place = calloc(nodes + 1, sizeof *c->place);
    c->made = calloc(values, sizeof *c->made);
    c->last = calloc(values, sizeof *c->last);
    c->counted = calloc(values, sizeof *c->counted);
    c->bytes = calloc(values, sizeof *c->bytes);
    return c->node && c->flops && c->crossing && c->place && c->made && c->last && c->counted &&
           c->bytes;
}

bool weft__stages_cut(stage_division *d, weft_error *error)
{
    cutter c = {.d = d};
    bool good = allocate(&c);
    if (good) list_positions(&c);
    const bool few = good && d->size > 1 && c.n < (size_t)d->size;
    if (few)
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft__stage_new",
                       "the graph has %zu nodes that depend on parameters, fewer than %d stages",
                       c.n, d->size);
    good = good && !few && weigh_nodes(&c);
    if (good && c.n) {
        list_places(&c);
        good = choose(&c);
    }
    if (!good && !few)
        weft_error_set(error, WEFT_NO_MEMORY, "weft__stage_new", "no memory to cut the graph");
    free(c.node);
    free(c.flops);
    free(c.crossing);
    free(c.place);
    free(c.made);
    free(c.last);
    free(c.counted);
    free(c.bytes);
    free(c.best);
    free(c.from);
    return good;
}
