/* The graph of one stage: its nodes, and exchanges of the values that cross. The backward pass is
 * in stage_grad.c.
 *
 * Exchanges advance while other nodes run, so each begins as early as it can. All receives of
 * values begin at the start of the graph, and end before their first reader. A send begins right
 * after the node that computes its value; then the receive of its gradient begins. No send ends
 * before the backward pass, because the receiving stage may still work on an earlier batch. */
#include "stages.h"

#include <stdlib.h>
#include <string.h>

/* While the graph is built. */
typedef struct builder {
    weft_stage *s;
    stage_division d;
    uint8_t *is_member; /* by node */
    int32_t *tags;      /* by value of the whole */
    int32_t n_tags;
    weft_value *in; /* of one node */
    weft_error *error;
} builder;

static bool no_memory(weft_error *error)
{
    weft_error_set(error, WEFT_NO_MEMORY, "weft__stage_new", "out of memory");
    return false;
}

/* ---- Exchanges ---- */

weft_flight weft__stage_send(weft_stage *s, weft_value value, int32_t peer, int32_t tag)
{
    const weft_exchange_sizes sizes = {.peer = peer, .tag = tag};
    return weft_exchange_begin(s->graph, s->ranks, WEFT_SEND, &sizes, &value, 1);
}

static weft_flight receive(weft_stage *s, weft_dtype dtype, weft_shape shape, int32_t peer,
                           int32_t tag)
{
    const weft_flight none = {WEFT_NO_VALUE, WEFT_NO_VALUE, WEFT_NO_VALUE};
    int64_t *counts = calloc((size_t)s->ranks.size, sizeof *counts);
    if (!counts) {
        weft_graph_fail_in(s->graph, "weft__stage_new", WEFT_NO_MEMORY, "out of memory");
        return none;
    }
    counts[peer] = weft_shape_numel(shape);
    const weft_exchange_sizes sizes = {.receive = counts, .peer = peer, .tag = tag};
    const weft_value nothing = weft_constant(s->graph, dtype, WEFT_SHAPE(0), NULL);
    weft_flight flight = weft_exchange_begin(s->graph, s->ranks, WEFT_RECEIVE, &sizes, &nothing, 1);
    free(counts);
    return flight;
}

/* ---- What crosses ---- */

static bool reads(const stage_division *d, int32_t stage, uint32_t id)
{
    return d->reads[(size_t)stage * d->n_values + id];
}

/* Numbers the values that cross: stages agree on them without communication. */
static bool number_tags(builder *b)
{
    for (uint32_t id = 1; id < b->d.n_values; id++) {
        bool crosses = false;
        for (int32_t r = 1; r < b->d.size && !crosses; r++) crosses = reads(&b->d, r, id);
        if (crosses) b->tags[id] = b->n_tags++;
    }
    if (b->n_tags <= (WEFT_MAX_TAG + 1) / 2) return true;
    weft_error_set(b->error, WEFT_TOO_LARGE, "weft__stage_new",
                   "%d values cross from stage to stage, at most %d can", b->n_tags,
                   (WEFT_MAX_TAG + 1) / 2);
    return false;
}

static stage_crossing crossing_of(const builder *b, uint32_t id, int32_t peer)
{
    return (stage_crossing){.id = id,
                            .peer = peer,
                            .tag = b->tags[id],
                            .returns = b->s->training && b->d.differentiable[id]};
}

/* Begins the receives of all values of lower stages. */
static bool begin_receives(builder *b)
{
    weft_stage *s = b->s;
    const weft_graph *whole = b->d.whole;
    const uint8_t *read = b->d.reads + (size_t)s->ranks.rank * b->d.n_values;
    size_t n = 0;
    for (size_t id = 1; id < b->d.n_values; id++) n += read[id];
    s->received = calloc(n + 1, sizeof *s->received);
    if (!s->received) return no_memory(b->error);
    for (uint32_t id = 1; id < b->d.n_values; id++) {
        if (!read[id]) continue;
        const weft_value value = weft_value_from_id(whole, id);
        stage_crossing *c = &s->received[s->n_received++];
        *c = crossing_of(b, id, b->d.stage[weft_producer_of(whole, value)]);
        c->flight =
            receive(s, weft_dtype_of(whole, value), weft_shape_of(whole, value), c->peer, c->tag);
    }
    return true;
}

/* Waits for a value of a lower stage, unless an earlier reader did. */
static void end_receive(builder *b, uint32_t id)
{
    weft_stage *s = b->s;
    const weft_value old = weft_value_from_id(b->d.whole, id);
    const char *name = weft_name_of(b->d.whole, old);
    stage_crossing *c = s->received;
    if (!reads(&b->d, s->ranks.rank, id) || s->map[id]) return;
    while (c->id != id) c++;
    weft_graph_push_scope(s->graph, "pipeline");
    c->value = weft_reshape(s->graph, weft_exchange_end(s->graph, c->flight),
                            weft_shape_of(b->d.whole, old));
    weft_graph_pop_scope(s->graph);
    if (name[0]) weft_name(s->graph, c->value, name);
    s->map[id] = c->value.id;
}

/* Sends a value to all higher stages that read it. */
static void begin_sends(builder *b, uint32_t id)
{
    weft_stage *s = b->s;
    const weft_value value = weft_value_from_id(s->graph, s->map[id]);
    for (int32_t peer = s->ranks.rank + 1; peer < s->ranks.size; peer++) {
        if (!reads(&b->d, peer, id)) continue;
        stage_crossing *c = &s->sent[s->n_sent++];
        *c = crossing_of(b, id, peer);
        c->value = value;
        c->flight = weft__stage_send(s, value, peer, c->tag);
        if (c->returns)
            c->gradient = receive(s, weft_dtype_of(s->graph, value), weft_shape_of(s->graph, value),
                                  peer, b->n_tags + c->tag);
    }
}

/* ---- The stage's graph ---- */

static void copy_node(builder *b, size_t k)
{
    weft_stage *s = b->s;
    const weft_node_info node = weft_graph_node(b->d.whole, k);
    weft_value out[WEFT_MAX_OUTPUTS];
    for (size_t i = 0; i < node.n_in; i++) {
        end_receive(b, node.in[i]);
        b->in[i] = weft_value_from_id(s->graph, s->map[node.in[i]]);
    }
    weft_graph_copy_node(s->graph, b->d.whole, k, b->in, out);
    for (size_t i = 0; i < node.n_out; i++) s->map[node.first_out + i] = out[i].id;
    weft_graph_push_scope(s->graph, "pipeline");
    for (size_t i = 0; b->d.kind[k] == NODE_PLACED && i < node.n_out; i++)
        begin_sends(b, node.first_out + (uint32_t)i);
    weft_graph_pop_scope(s->graph);
}

static bool build_graph(builder *b)
{
    weft_stage *s = b->s;
    size_t n_in = 1, n_sent = 1;
    for (size_t k = 0; k < b->d.n_nodes; k++) {
        const weft_node_info node = weft_graph_node(b->d.whole, k);
        if (node.n_in > n_in) n_in = node.n_in;
        for (size_t i = 0; b->d.stage[k] == s->ranks.rank && i < node.n_out; i++)
            for (int32_t r = s->ranks.rank + 1; r < s->ranks.size; r++)
                n_sent += reads(&b->d, r, node.first_out + (uint32_t)i);
    }
    s->graph = weft_graph_new();
    s->sent = calloc(n_sent, sizeof *s->sent);
    b->in = calloc(n_in, sizeof *b->in);
    if (!s->graph || !s->sent || !b->in) return no_memory(b->error);
    weft_graph_push_scope(s->graph, "pipeline");
    if (!begin_receives(b)) return false;
    weft_graph_pop_scope(s->graph);
    weft__stages_members(&b->d, s->ranks.rank, b->is_member);
    for (size_t k = 0; k < b->d.n_nodes && weft_graph_status(s->graph) == WEFT_OK; k++)
        if (b->is_member[k]) copy_node(b, k);
    return weft_error_copy(b->error, weft_graph_error(s->graph)) == WEFT_OK;
}

/* ---- What every stage has ---- */

/* Fails if a stage reads a state that only other stages update. */
static bool check_updates(const builder *b, int32_t stage)
{
    for (size_t k = 0; k < b->d.n_nodes; k++) {
        const weft_node_info node = weft_graph_node(b->d.whole, k);
        if (b->d.kind[k] == NODE_UNUSED || b->is_member[k]) continue;
        for (size_t i = 0; i < node.op->updates && i < node.n_in; i++) {
            uint32_t id = node.in[i]; /* the state, or what a view or an update made of it */
            size_t from = weft_producer_of(b->d.whole, weft_value_from_id(b->d.whole, id));
            weft_node_info n = weft_graph_node(b->d.whole, from);
            while (n.op != &weft_op_state) {
                id = n.in[n.op->updates ? id - n.first_out : 0];
                from = weft_producer_of(b->d.whole, weft_value_from_id(b->d.whole, id));
                n = weft_graph_node(b->d.whole, from);
            }
            if (!b->is_member[from]) continue;
            weft_error_set(b->error, WEFT_BAD_ARGUMENT,
                           weft_name_of(b->d.whole, weft_value_from_id(b->d.whole, id)),
                           "stage %d reads this state, but does not compute its update (%s)", stage,
                           node.op->name);
            return false;
        }
    }
    return true;
}

/* Records where values are computed and states are read. */
static bool record_stage(builder *b, int32_t stage)
{
    weft_stage *s = b->s;
    size_t state = 0;
    weft__stages_members(&b->d, stage, b->is_member);
    for (size_t k = 0; k < b->d.n_nodes; k++) {
        const weft_node_info node = weft_graph_node(b->d.whole, k);
        for (size_t i = 0; b->is_member[k] && i < node.n_out; i++)
            if (s->stage_of[node.first_out + i] < 0) s->stage_of[node.first_out + i] = stage;
        if (node.op == &weft_op_state)
            s->holds[state++ * (size_t)b->d.size + (size_t)stage] = b->is_member[k];
    }
    return check_updates(b, stage);
}

static bool record_states(builder *b)
{
    weft_stage *s = b->s;
    size_t n = 0;
    for (size_t k = 0; k < b->d.n_nodes; k++)
        n += weft_graph_node(b->d.whole, k).op == &weft_op_state;
    s->states = calloc(n + 1, sizeof *s->states);
    s->begins = calloc(n + 1, sizeof *s->begins);
    s->holds = calloc(n + 1, (size_t)b->d.size);
    if (!s->states || !s->begins || !s->holds) return no_memory(b->error);
    for (size_t k = 0; k < b->d.n_nodes; k++) {
        const weft_node_info node = weft_graph_node(b->d.whole, k);
        if (node.op != &weft_op_state) continue;
        const char *name = weft_name_of(b->d.whole, weft_value_from_id(b->d.whole, node.first_out));
        char *copy = malloc(strlen(name) + 1);
        if (!copy) return no_memory(b->error);
        s->begins[s->n_states] = b->d.begins[k];
        s->states[s->n_states++] = strcpy(copy, name);
    }
    return true;
}

static bool build_stage(builder *b)
{
    weft_stage *s = b->s;
    s->n_values = b->d.n_values;
    s->whole = weft_value_from_id(b->d.whole, 1).graph;
    s->map = calloc(s->n_values, sizeof *s->map);
    s->stage_of = malloc(s->n_values * sizeof *s->stage_of);
    b->is_member = calloc(b->d.n_nodes, 1);
    b->tags = calloc(s->n_values, sizeof *b->tags);
    if (!s->map || !s->stage_of || !b->is_member || !b->tags) return no_memory(b->error);
    for (size_t v = 0; v < s->n_values; v++) s->stage_of[v] = -1;
    if (!record_states(b)) return false;
    for (int32_t r = 0; r < b->d.size; r++)
        if (!record_stage(b, r)) return false;
    if (!number_tags(b) || !build_graph(b)) return false;
    s->first_gradient_tag = b->n_tags;
    return true;
}

static weft_stage *new_stage(const weft_graph *whole, const weft_value *targets, size_t n,
                             bool training, weft_ranks ranks, const weft_stage *like,
                             weft_error *error)
{
    if (error) *error = WEFT_NO_ERROR;
    if (ranks.size < 1 || ranks.rank < 0 || ranks.rank >= ranks.size) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft__stage_new", "rank %d is outside [0, %d)",
                       ranks.rank, ranks.size);
        return NULL;
    }
    builder b = {.s = calloc(1, sizeof *b.s), .error = error};
    bool good = b.s ? true : no_memory(error);
    if (good) {
        b.s->ranks = ranks;
        b.s->training = training;
        good = weft__stages_divide(&b.d, whole, targets, n, ranks.size, like, error) &&
               build_stage(&b);
    }
    weft__stages_free(&b.d);
    free(b.is_member);
    free(b.tags);
    free(b.in);
    if (good) return b.s;
    weft__stage_free(b.s);
    return NULL;
}

weft_stage *weft__stage_new(const weft_graph *whole, const weft_value *targets, size_t n,
                            bool training, weft_ranks ranks, weft_error *error)
{
    return new_stage(whole, targets, n, training, ranks, NULL, error);
}

weft_stage *weft__stage_new_like(const weft_graph *whole, const weft_value *targets, size_t n,
                                 bool training, const weft_stage *like, weft_error *error)
{
    weft_error_clear(error);
    if (like) return new_stage(whole, targets, n, training, like->ranks, like, error);
    weft_error_set(error, WEFT_BAD_ARGUMENT, "weft__stage_new_like", "the stage is NULL");
    return NULL;
}

void weft__stage_free(weft_stage *stage)
{
    if (!stage) return;
    if (!stage->graph_taken) weft_graph_free(stage->graph);
    for (size_t i = 0; i < stage->n_states; i++) free(stage->states[i]);
    free(stage->states);
    free(stage->begins);
    free(stage->holds);
    free(stage->map);
    free(stage->stage_of);
    free(stage->received);
    free(stage->sent);
    free(stage);
}

/* ---- Questions ---- */

weft_graph *weft__stage_graph(weft_stage *stage)
{
    if (!stage) return NULL;
    stage->graph_taken = true;
    return stage->graph;
}

static bool is_whole(const weft_stage *stage, weft_value value)
{
    return stage && value.graph == stage->whole && value.id < stage->n_values;
}

weft_value weft__stage_value(const weft_stage *stage, weft_value value)
{
    return is_whole(stage, value) ? weft_value_from_id(stage->graph, stage->map[value.id])
                                  : WEFT_NO_VALUE;
}

int weft__stage_of(const weft_stage *stage, weft_value value)
{
    return is_whole(stage, value) ? stage->stage_of[value.id] : -1;
}

bool weft__stage_holds(const weft_stage *stage, const char *param, int rank)
{
    if (!stage || !param || rank < 0 || rank >= stage->ranks.size) return false;
    for (size_t i = 0; i < stage->n_states; i++)
        if (!strcmp(stage->states[i], param))
            return stage->holds[i * (size_t)stage->ranks.size + (size_t)rank];
    return false;
}
