/* The gradients of several processes: which of them a process has and counts, their exchanges
 * during the backward pass, and the sums of those of tied parameters. */
#include "ranks.h"

#include <stdlib.h>

static void no_memory_in(weft_graph *g)
{
    weft_graph_fail_in(g, "trainer", WEFT_NO_MEMORY, "out of memory");
}

/* ---- Whose parameters ---- */

/* The stages that read a parameter, from `from` on; the number of stages if none does. */
static int next_holder(const trainer_graph *s, const mesh *m, const char *param, int from)
{
    while (from < m->stages && s->stage && !weft__stage_holds(s->stage, param, from)) from++;
    return from;
}

/* Whether several stages read the parameter of that name. */
static bool is_tied(const weft_trainer *t, const trainer_graph *s, const char *param)
{
    const mesh *m = &t->processes->mesh;
    const int first = s->stage ? next_holder(s, m, param, 0) : m->stages;
    return first < m->stages && next_holder(s, m, param, first + 1) < m->stages;
}

/* Whether this process counts the gradient of a parameter, which others may have too, in the norm.
 */
static bool counts(const weft_trainer *t, const trainer_graph *s, weft_value param)
{
    const weft_graph *g = s->plan.graph;
    const mesh *m = &t->processes->mesh;
    const weft_ranks stage = weft__mesh_ranks(m, MESH_STAGES);
    return (!t->place.tensor.rank || weft_part_of(g, param).whole) &&
           (!s->stage || next_holder(s, m, weft_name_of(g, param), 0) == stage.rank);
}

weft_status weft__gradients_list(weft_trainer *t, trainer_graph *s, graph_lists *l)
{
    weft_graph *g = s->plan.graph;
    bool *tied = calloc(l->n + 1, sizeof *tied);
    l->counted = calloc(l->n + 1, sizeof *l->counted);
    if (s->gathered) l->owned = l->pieces;
    if (!tied || !l->counted) no_memory_in(g);
    for (size_t i = 0; tied && l->counted && i < l->n; i++) {
        const char *name = weft_name_of(g, l->params[i]);
        tied[i] = is_tied(t, s, name);
        l->counted[i] = counts(t, s, l->params[i]);
        if (s->gathered) l->owned[i] = weft__gathered_piece(s->gathered, name);
    }
    weft_status status = weft_graph_status(g);
    if (status == WEFT_OK) status = weft__divided_shard(t, g, l->params, tied, l->n);
    free(tied);
    return status;
}

/* ---- The backward pass ---- */

/* The exchanges of a graph's gradients. */
typedef struct reduction {
    const graph_lists *l;
    weft_reducer *reducer;
} reduction;

/* A gradient of the process's last batch, or of one of a round, is complete: it goes to the owners
 * of its pieces. */
static void gradient_ready(void *context, size_t i, weft_value gradient)
{
    const reduction *r = context;
    weft_value values[WEFT_SUM_NODES] = {gradient};
    if (!r->l->t->place.in_turn) weft__graph_last_sums(r->l, i, gradient, values);
    weft__reducer_add(r->reducer, r->l->params[i], values);
}

/* The backward pass gathers parameters again. */
static weft_value read_again(void *context, weft_value value)
{
    const reduction *r = context;
    return weft__gathered_again(r->l->s->gathered, value);
}

/* x, in a node that runs after the backward pass of a stage. Fusion must not move a sum into the
 * forward pass, which runs ahead for other batches. */
static weft_value behind_backward(weft_graph *g, weft_value x, weft_value gradient)
{
    const weft_value flat = weft_reshape(g, gradient, WEFT_SHAPE(-1));
    const weft_value first = weft_squeeze(g, weft_slice(g, flat, 0, 0, 1, 1), 0);
    return weft_add(g, x, weft_mul_scalar(g, first, 0));
}

/* Adds the backward pass, of the stage if there is one. */
static void differentiate(trainer_graph *s, const graph_lists *l, weft_value weight,
                          weft_value *grads, const weft_grad_hooks *ready)
{
    const size_t n = l->n_trained;
    weft_graph *g = s->plan.graph;
    if (!s->stage) {
        weft__graph_differentiate(s, l, weight, grads, ready);
        return;
    }
    const weft_grad_values values = {&s->loss, &weight, 1, l->params, n};
    s->sent = weft__stage_grad(s->stage, &values, grads, ready, &s->pause);
    if (l->n > n) weft__graph_add_tracked(s, l, behind_backward(g, weight, grads[0]), grads, ready);
}

void weft__gradients_add(weft_trainer *t, trainer_graph *s, graph_lists *l, weft_value weight,
                         bool reduces)
{
    weft_graph *g = s->plan.graph;
    if (!reduces) {
        differentiate(s, l, weight, l->grads, NULL);
        return;
    }
    const uint32_t batches = t->place.in_turn ? (uint32_t)t->place.size : t->o.accumulate;
    reduction r = {l, weft__reducer_new(g, t->processes->shards, batches)};
    const weft_grad_hooks ready = {
        .ready = gradient_ready, .context = &r, .again = s->gathered ? read_again : NULL};
    weft_value *whole = calloc(l->n, sizeof *whole);
    if (!whole) no_memory_in(g);
    if (whole && r.reducer) {
        differentiate(s, l, weight, whole, &ready);
        weft__reducer_finish(r.reducer, l->params, l->n, l->grads);
    }
    weft__reducer_free(r.reducer);
    free(whole);
}

/* ---- Tied parameters ---- */

#define TIED_TAG WEFT_MAX_TAG

/* A tied gradient among the stages that have the parameter, and room for its exchanges. */
typedef struct tied_sum {
    weft_graph *g;
    weft_ranks stages;
    weft_value own;
    int64_t elements;
    weft_flight *flights; /* [2 * stages]: of receiving, and of sending */
    int64_t *counts;      /* [stages], zeros */
    weft_value *sent;     /* of all tied gradients so far, [n_sent] */
    size_t n_sent;
} tied_sum;

static weft_flight tied_send(const tied_sum *x, int peer)
{
    const weft_exchange_sizes sizes = {.peer = peer, .tag = TIED_TAG};
    return weft_exchange_begin(x->g, x->stages, WEFT_SEND, &sizes, &x->own, 1);
}

static weft_flight tied_receive(tied_sum *x, int peer)
{
    const weft_exchange_sizes sizes = {.receive = x->counts, .peer = peer, .tag = TIED_TAG};
    const weft_value none = weft_fill(x->g, weft_dtype_of(x->g, x->own), WEFT_SHAPE(0), 0);
    x->counts[peer] = x->elements;
    const weft_flight flight = weft_exchange_begin(x->g, x->stages, WEFT_RECEIVE, &sizes, &none, 1);
    x->counts[peer] = 0;
    return flight;
}

/* Adds the gradients of all holders in the order of the stages, so that the sums are bit-identical
 * on all. */
static weft_value add_tied(const weft_trainer *t, const trainer_graph *s, tied_sum *x,
                           const char *param)
{
    const int n = t->processes->mesh.stages;
    weft_value sum = WEFT_NO_VALUE;
    for (int r = next_holder(s, &t->processes->mesh, param, 0); r < n;
         r = next_holder(s, &t->processes->mesh, param, r + 1)) {
        if (r == x->stages.rank) continue;
        x->flights[r] = tied_receive(x, r);
        x->flights[n + r] = tied_send(x, r);
    }
    for (int r = next_holder(s, &t->processes->mesh, param, 0); r < n;
         r = next_holder(s, &t->processes->mesh, param, r + 1)) {
        weft_value one = x->own;
        if (r != x->stages.rank) {
            one = weft_reshape(x->g, weft_exchange_end(x->g, x->flights[r]),
                               weft_shape_of(x->g, x->own));
            x->sent[x->n_sent++] = weft_exchange_end(x->g, x->flights[n + r]);
        }
        sum = weft_is_value(sum) ? weft_add(x->g, sum, one) : one;
    }
    return sum;
}

weft_value weft__gradients_sum_tied(weft_trainer *t, trainer_graph *s, graph_lists *l)
{
    weft_graph *g = s->plan.graph;
    if (!s->stage) return WEFT_NO_VALUE;
    const size_t stages = (size_t)t->processes->mesh.stages;
    tied_sum x = {.g = g,
                  .stages = weft__mesh_ranks(&t->processes->mesh, MESH_STAGES),
                  .flights = calloc(2 * stages, sizeof *x.flights),
                  .counts = calloc(stages, sizeof *x.counts),
                  .sent = calloc(l->n * stages + 1, sizeof *x.sent)};
    const bool good = x.sent && x.flights && x.counts;
    if (!good) no_memory_in(g);
    for (size_t i = 0; good && i < l->n; i++) {
        const char *name = weft_name_of(g, l->params[i]);
        if (!is_tied(t, s, name)) continue;
        x.own = l->grads[i];
        x.elements = weft_shape_numel(weft_shape_of(g, x.own));
        l->grads[i] = add_tied(t, s, &x, name);
    }
    const weft_value all = x.n_sent ? weft_group(g, x.sent, x.n_sent) : WEFT_NO_VALUE;
    free(x.sent);
    free(x.flights);
    free(x.counts);
    return all;
}
