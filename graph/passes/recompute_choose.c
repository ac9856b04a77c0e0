/* Chooses which values of the forward pass are retained for the backward pass.
 *
 * At first it retains all that the backward pass reads. A simulation walks through the nodes in the
 * order in which they will run, with the copies of dropped values where they are first read, and
 * sums up by how many bytes the arena exceeds the target at each of them: the excess. Values are
 * then dropped one after another, starting with those that save most bytes for the time of
 * computing them again; a value stays dropped if that lowers the excess. (Checkpointing: Chen et
 * al. 2016; by cost: Jain et al. 2020, "Checkmate".) Finally, values whose bytes turn out not to be
 * needed are retained again.
 *
 * O(candidates x operands); where that is much, candidates are tried in batches. */
#include "recompute.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The maximum number of values that all simulations visit together: about a second. */
#define MAX_WALKED 3e7

/* The lifetime of a buffer in positions; from 1, 0 if there is none. */
typedef struct lifetime {
    uint32_t first, last;
} lifetime;

typedef struct candidate {
    uint32_t root;
    double cost; /* nanoseconds for a byte */
} candidate;

typedef struct chooser {
    recompute *r;
    const weft_graph *g;
    lifetime *own, *again; /* by root: of the value, and of its copy */
    double *change;        /* by position: bytes that begin or end there */
    double *node_cost;     /* nanoseconds */
    uint8_t *is_target;    /* by root */
    candidate *candidates;
    size_t n_candidates;
    double target; /* bytes */
    double walked; /* values, by all simulations */
    uint8_t *undo; /* by root: what was retained before a change */
} chooser;

static int compare_nodes(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Adds the node of a value to the list, unless the value is retained or the copy exists. */
static size_t add_missing(recompute *r, uint32_t value, size_t n)
{
    const value_record *v = &r->graph->values[value];
    if (!recompute_is_copied(r, value) || r->done[v->node]) return n;
    r->done[v->node] = 1;
    r->list[n] = v->node;
    return n + 1;
}

size_t weft__recompute_missing(recompute *r, uint32_t value)
{
    size_t n = add_missing(r, value, 0);
    for (size_t at = 0; at < n; at++) {
        const node_record *node = &r->graph->nodes[r->list[at]];
        for (uint32_t i = 0; i < node->n_in; i++) n = add_missing(r, node->in[i], n);
    }
    if (n > 1) qsort(r->list, n, sizeof *r->list, compare_nodes);
    return n;
}

static double bytes_of(const weft_graph *g, uint32_t root)
{
    const value_record *v = &g->values[root];
    return (double)weft_tensor_bytes(v->type.dtype, v->type.shape);
}

static bool has_buffer(const weft_graph *g, uint32_t root)
{
    const weft_op *op = g->nodes[g->values[root].node].op;
    return !weft__op_is_leaf(op) && op != &weft_op_group;
}

static void touch(lifetime *l, uint32_t position)
{
    if (!l->first) l->first = position;
    l->last = position;
}

/* One node runs: a node of the graph, or the copy of one. */
static void run_node(chooser *c, uint32_t n, bool copied, uint32_t position)
{
    const node_record *node = &c->g->nodes[n];
    const bool reads_copies = copied || !recompute_is_forward(c->g, n);
    for (uint32_t i = 0; i < node->n_in; i++) {
        const uint32_t root = c->g->values[node->in[i]].root;
        touch(reads_copies && !c->r->retained[root] ? &c->again[root] : &c->own[root], position);
    }
    for (uint32_t i = 0; i < node->op->n_out; i++) {
        const uint32_t root = c->g->values[node->first_out + i].root;
        touch(copied ? &c->again[root] : &c->own[root], position);
    }
}

/* Walks through the nodes and fills in the lifetimes; returns the last position. */
static uint32_t walk(chooser *c)
{
    const weft_graph *g = c->g;
    uint32_t position = 0;
    c->walked += (double)g->n_values;
    memset(c->own, 0, g->n_values * sizeof *c->own);
    memset(c->again, 0, g->n_values * sizeof *c->again);
    memset(c->r->done, 0, g->n_nodes);
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const node_record *node = &g->nodes[n];
        for (uint32_t i = 0; i < node->n_in && !recompute_is_forward(g, n); i++) {
            const size_t n_copies = weft__recompute_missing(c->r, node->in[i]);
            for (size_t k = 0; k < n_copies; k++)
                if (weft__graph_node_runs(g, &g->nodes[c->r->list[k]]))
                    run_node(c, c->r->list[k], true, ++position);
        }
        if (weft__graph_node_runs(g, node)) run_node(c, n, false, ++position);
    }
    return position;
}

static void add_lifetime(chooser *c, uint32_t root, const lifetime *l, uint32_t end)
{
    if (!l->first) return;
    const double bytes = bytes_of(c->g, root);
    c->change[l->first] += bytes;
    c->change[end + 1] -= bytes;
}

/* The sum over all positions of the bytes above the target. */
static double excess(chooser *c)
{
    const weft_graph *g = c->g;
    const uint32_t last = walk(c);
    double sum = 0, alive = 0;
    memset(c->change, 0, (last + 2) * sizeof *c->change);
    for (uint32_t v = 1; v < g->n_values; v++) {
        if (g->values[v].root != v || !has_buffer(g, v)) continue;
        add_lifetime(c, v, &c->own[v], c->is_target[v] ? last : c->own[v].last);
        add_lifetime(c, v, &c->again[v], c->again[v].last);
    }
    for (uint32_t i = 1; i <= last; i++) {
        alive += c->change[i];
        if (alive > c->target) sum += alive - c->target;
    }
    return sum;
}

/* ---- What may be dropped ---- */

static bool can_copy(const node_record *node)
{
    return !weft__op_is_leaf(node->op) && !node->op->updates && !node->op->exchanges &&
           node->op != &weft_op_group && node->op != &weft_op_track;
}

/* Retains what the backward pass reads and what cannot be computed again. */
static void retain_first(chooser *c)
{
    const weft_graph *g = c->g;
    recompute *r = c->r;
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        const node_record *node = &g->nodes[n];
        for (uint32_t i = 0; i < node->n_in && !recompute_is_forward(g, n); i++)
            r->retained[g->values[node->in[i]].root] = 1;
        for (uint32_t i = 0; i < node->op->n_out; i++) {
            const uint32_t root = g->values[node->first_out + i].root;
            if (!node->op->alias && (!can_copy(node) || !recompute_is_forward(g, n)))
                r->fixed[root] = 1;
        }
    }
    for (uint32_t v = 1; v < g->n_values; v++) {
        if (c->is_target[v]) r->fixed[v] = 1;
        if (r->fixed[v]) r->retained[v] = 1;
    }
}

/* Drops what lies within one of the scopes, apart from what others read, and retains what comes in. */
static bool drop_scopes(chooser *c, const char *scopes)
{
    const weft_graph *g = c->g;
    recompute *r = c->r;
    size_t *of =
        calloc(g->n_nodes + 1, sizeof *of); /* the scope of each node of the forward pass */
    for (uint32_t n = 0; of && n < g->n_nodes; n++) {
        const node_record *node = &g->nodes[n];
        if (!recompute_is_forward(g, n)) continue;
        of[n] = weft__text_in_scopes(scopes, node->scope);
        for (uint32_t k = 0; of[n] && k < node->op->n_out; k++) {
            const uint32_t value = node->first_out + k;
            r->dropped[value] = g->values[value].root == value && !r->fixed[value];
        }
        for (uint32_t i = 0; i < node->n_in; i++) {
            const uint32_t root = g->values[node->in[i]].root;
            if (of[g->values[root].node] == of[n]) continue;
            r->dropped[root] = 0;
            if (of[n]) r->retained[root] = r->fixed[root] = 1;
        }
    }
    for (uint32_t v = 1; of && v < g->n_values; v++)
        if (r->dropped[v]) r->retained[v] = 0;
    free(of);
    return of != NULL;
}

/* The time to recompute a value in the current state: its node, and the dropped values before it
 * that are not recomputed yet. */
static double cost_of(chooser *c, uint32_t root)
{
    double cost = 0;
    c->r->retained[root] = 0;
    const size_t n = weft__recompute_missing(c->r, root);
    for (size_t k = 0; k < n; k++) {
        cost += c->node_cost[c->r->list[k]];
        c->r->done[c->r->list[k]] = 0;
    }
    c->r->retained[root] = 1;
    return cost;
}

static int compare_candidates(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->cost != y->cost) return x->cost < y->cost ? -1 : 1;
    return x->root < y->root ? -1 : x->root > y->root;
}

/* Lists the values that are retained for the backward pass and can be dropped, the cheapest first.
 * Uses what the last walk left in `done`. */
static void list_candidates(chooser *c)
{
    c->n_candidates = 0;
    for (uint32_t v = 1; v < c->g->n_values; v++) {
        if (c->g->values[v].root != v || !c->r->retained[v] || c->r->fixed[v]) continue;
        if (!bytes_of(c->g, v)) continue;
        c->candidates[c->n_candidates++] = (candidate){v, cost_of(c, v) / bytes_of(c->g, v)};
    }
    qsort(c->candidates, c->n_candidates, sizeof *c->candidates, compare_candidates);
}

static void set_retained(const chooser *c, size_t first, size_t n, uint8_t retained)
{
    for (size_t i = first; i < first + n; i++) c->r->retained[c->candidates[i].root] = retained;
}

/* How many candidates are tried together. */
static size_t batch_size(const chooser *c)
{
    return 1 + (size_t)((double)c->n_candidates * (double)c->g->n_values / MAX_WALKED);
}

/* Tries to drop the candidates, or to retain them, batch by batch, and undoes what does not lower
 * the excess; without excess, what adds some. Returns the excess. */
static double try_candidates(chooser *c, uint8_t retained, double before)
{
    const bool has_excess = before > 0;
    const size_t batch = batch_size(c);
    for (size_t i = 0; i < c->n_candidates && (before > 0) == has_excess; i += batch) {
        const size_t n = c->n_candidates - i < batch ? c->n_candidates - i : batch;
        set_retained(c, i, n, retained);
        const double now = excess(c);
        if (has_excess ? now < before : now <= 0)
            before = now;
        else
            set_retained(c, i, n, !retained);
    }
    return before;
}

/* Lists the values that are computed again, the most expensive first. */
static void list_dropped(chooser *c)
{
    const weft_graph *g = c->g;
    c->n_candidates = 0;
    for (uint32_t v = 1; v < g->n_values; v++)
        if (g->values[v].root == v && !c->r->retained[v] && !c->r->dropped[v] && c->again[v].first)
            c->candidates[c->n_candidates++] = (candidate){v, -c->node_cost[g->values[v].node]};
    qsort(c->candidates, c->n_candidates, sizeof *c->candidates, compare_candidates);
}

/* Drops values while that lowers the excess. */
static double drop(chooser *c, double now)
{
    for (double before = INFINITY; now > 0 && now < before;) {
        before = now;
        list_candidates(c);
        now = try_candidates(c, 0, now);
    }
    return now;
}

/* Retains one of the values that were dropped and drops others instead, if that lowers the excess:
 * too much may be recomputed at one time. Ends when nothing helps, or after MAX_WALKED. */
static double exchange(chooser *c, double now)
{
    const size_t n = c->g->n_values;
    for (uint32_t v = 1, failed = 0; now > 0 && failed < n && c->walked < MAX_WALKED;
         v = v + 1 < n ? v + 1 : 1, failed++) {
        if (c->g->values[v].root != v || c->r->retained[v] || !c->again[v].first) continue;
        if (c->r->dropped[v]) continue;
        memcpy(c->undo, c->r->retained, n);
        c->r->retained[v] = c->r->fixed[v] = 1;
        const double other = drop(c, excess(c));
        c->r->fixed[v] = 0;
        if (other < now) {
            now = other;
            failed = 0;
        } else {
            memcpy(c->r->retained, c->undo, n);
            excess(c);
        }
    }
    return now;
}

static bool measure_costs(chooser *c)
{
    weft_cost cost;
    for (size_t n = 0; n < c->g->n_nodes; n++) {
        if (weft_graph_node_cost(c->g, n, &cost, NULL) != WEFT_OK) return false;
        c->node_cost[n] = passes_nanoseconds(cost);
    }
    return true;
}

static bool open_chooser(chooser *c, recompute *r, const plan_target *targets, size_t n_targets,
                         size_t target)
{
    const weft_graph *g = r->graph;
    *c = (chooser){.r = r,
                   .g = g,
                   .own = calloc(g->n_values, sizeof *c->own),
                   .again = calloc(g->n_values, sizeof *c->again),
                   .change = calloc(2 * g->n_nodes + 2, sizeof *c->change),
                   .node_cost = calloc(g->n_nodes + 1, sizeof *c->node_cost),
                   .is_target = calloc(g->n_values, 1),
                   .undo = calloc(g->n_values, 1),
                   .candidates = calloc(g->n_values, sizeof *c->candidates),
                   .target = (double)target};
    if (!c->own || !c->again || !c->change || !c->node_cost || !c->is_target || !c->undo ||
        !c->candidates || !measure_costs(c))
        return false;
    for (size_t i = 0; i < n_targets; i++) c->is_target[g->values[targets[i].value.id].root] = 1;
    for (uint32_t v = 1; v < g->n_values; v++) /* inputs are alive throughout */
        if (g->nodes[g->values[v].node].op == &weft_op_input) c->target -= bytes_of(g, v);
    return true;
}

static void close_chooser(chooser *c)
{
    free(c->own);
    free(c->again);
    free(c->change);
    free(c->node_cost);
    free(c->is_target);
    free(c->undo);
    free(c->candidates);
}

bool weft__recompute_choose(recompute *r, const plan_target *targets, size_t n_targets,
                            size_t target, const char *scopes)
{
    chooser c;
    bool good = open_chooser(&c, r, targets, n_targets, target);
    if (good) retain_first(&c);
    good = good && (!scopes || drop_scopes(&c, scopes));
    if (good && target) {
        const double remaining = exchange(&c, drop(&c, excess(&c)));
        excess(&c);
        list_dropped(&c);
        if (!(remaining > 0)) try_candidates(&c, 1, 0);
    }
    close_chooser(&c);
    return good;
}

bool weft__recompute_measure(recompute *r, const plan_target *targets, size_t n_targets,
                             size_t target, double *excess_bytes, double *nanoseconds)
{
    chooser c;
    const bool good = open_chooser(&c, r, targets, n_targets, target);
    *nanoseconds = 0;
    if (good) {
        *excess_bytes = excess(&c);
        for (size_t n = 0; n < r->graph->n_nodes; n++)
            if (r->done[n]) *nanoseconds += c.node_cost[n];
    }
    close_chooser(&c);
    return good;
}
