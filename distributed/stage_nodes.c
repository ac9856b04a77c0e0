/* Which nodes are part of which stage of a graph, and which values cross from one to another.
 *
 * Nodes that depend on no trainable parameter are cheap (masks, positions), and leaves and views of
 * them need no data of another stage. All these are copied into every stage that needs them. Each
 * other node is placed in one stage (stage_cuts.c). O(stages x operands). */
#include "stages.h"

#include <stdlib.h>
#include <string.h>

static size_t producer(const stage_division *d, uint32_t id)
{
    return weft_producer_of(d->whole, weft_value_from_id(d->whole, id));
}

static bool is_float(const stage_division *d, uint32_t id)
{
    return weft_dtype_is_float(weft_dtype_of(d->whole, weft_value_from_id(d->whole, id)));
}

/* ---- Copied and placed nodes ---- */

/* Marks the nodes that depend on a trainable parameter. */
static void mark_trained(const stage_division *d, uint8_t *trained)
{
    size_t n;
    const weft_value *params = weft_graph_params(d->whole, &n);
    for (size_t i = 0; i < n; i++) trained[weft_producer_of(d->whole, params[i])] = 1;
    for (size_t k = 0; k < d->n_nodes; k++) {
        const weft_node_info node = weft_graph_node(d->whole, k);
        for (size_t i = 0; i < node.n_in; i++) trained[k] |= trained[producer(d, node.in[i])];
    }
}

/* Whether the node records a running average, which training needs in addition to the targets. */
static bool is_record(const stage_division *d, size_t k)
{
    return weft_graph_node(d->whole, k).op == &weft_op_track;
}

static void mark_needed(const stage_division *d, uint8_t *needed)
{
    for (size_t k = 0; k < d->n_nodes; k++) needed[k] = is_record(d, k);
    for (size_t i = 0; i < d->n_targets; i++) needed[weft_producer_of(d->whole, d->targets[i])] = 1;
    for (size_t k = d->n_nodes; k-- > 0;) {
        const weft_node_info node = weft_graph_node(d->whole, k);
        for (size_t i = 0; needed[k] && i < node.n_in; i++) needed[producer(d, node.in[i])] = 1;
    }
}

static bool sort_nodes(stage_division *d)
{
    uint8_t *needed = calloc(d->n_nodes, 1), *trained = calloc(d->n_nodes, 1);
    const bool good = needed && trained;
    if (good) mark_trained(d, trained);
    if (good) mark_needed(d, needed);
    for (size_t k = 0; good && k < d->n_nodes; k++) {
        const weft_node_info node = weft_graph_node(d->whole, k);
        const bool view = node.op->alias && d->kind[producer(d, node.in[0])] == NODE_COPIED;
        d->stage[k] = -1;
        const bool copied = (!trained[k] && !is_record(d, k)) || !node.n_in || view;
        if (needed[k]) d->kind[k] = copied ? NODE_COPIED : NODE_PLACED;
    }
    free(needed);
    free(trained);
    return good;
}

/* ---- Where states begin ---- */

/* The state that a copied node declares or views; -1 if there is none. */
static ptrdiff_t state_of(const stage_division *d, uint32_t id)
{
    for (size_t k = producer(d, id);; k = producer(d, id)) {
        const weft_node_info node = weft_graph_node(d->whole, k);
        if (node.op == &weft_op_state) return (ptrdiff_t)k;
        if (d->kind[k] != NODE_COPIED || !node.op->alias) return -1;
        id = node.in[0];
    }
}

static int32_t begins_like(const weft_stage *like, const char *state)
{
    for (size_t i = 0; i < like->n_states; i++)
        if (!strcmp(like->states[i], state)) return like->begins[i];
    return -1;
}

/* Records the stage of the first reader of each state, by the cuts or as in `like`. */
static void note_begins(stage_division *d, const weft_stage *like)
{
    for (size_t k = 0; k < d->n_nodes; k++) {
        const weft_node_info node = weft_graph_node(d->whole, k);
        d->begins[k] = -1;
        if (like && node.op == &weft_op_state)
            d->begins[k] = begins_like(
                like, weft_name_of(d->whole, weft_value_from_id(d->whole, node.first_out)));
    }
    for (size_t k = 0; !like && k < d->n_nodes; k++) {
        const weft_node_info node = weft_graph_node(d->whole, k);
        for (size_t i = 0; d->kind[k] == NODE_PLACED && i < node.n_in; i++) {
            const ptrdiff_t state = state_of(d, node.in[i]);
            if (state >= 0 && d->begins[state] < 0) d->begins[state] = d->stage[k];
        }
    }
}

/* Cuts where states begin. */
static bool cut_at_states(stage_division *d, weft_error *error)
{
    int32_t stage = 0;
    for (size_t k = 0; k < d->n_nodes; k++) {
        const weft_node_info node = weft_graph_node(d->whole, k);
        if (d->kind[k] != NODE_PLACED) continue;
        for (size_t i = 0; i < node.n_in; i++) {
            const ptrdiff_t state = state_of(d, node.in[i]);
            if (state >= 0 && d->begins[state] > stage) stage = d->begins[state];
        }
        d->stage[k] = stage;
    }
    if (stage == d->size - 1) return true;
    weft_error_set(error, WEFT_BAD_ARGUMENT, "weft__stage_new",
                   "the last of %d stages has no parameters of its own: set fewer stages", d->size);
    return false;
}

/* ---- Values ---- */

/* Marks the values that depend on a state or an input, and that a target depends on, through
 * differentiable ops. */
static bool mark_differentiable(stage_division *d)
{
    uint8_t *from_leaf = calloc(d->n_values, 1);
    if (!from_leaf) return false;
    for (size_t i = 0; i < d->n_targets; i++)
        if (is_float(d, d->targets[i].id)) d->differentiable[d->targets[i].id] = 1;
    for (size_t k = 0; k < d->n_nodes; k++) {
        const weft_node_info node = weft_graph_node(d->whole, k);
        bool depends = node.op == &weft_op_state || node.op == &weft_op_input;
        if (d->kind[k] == NODE_UNUSED) continue;
        for (size_t i = 0; node.op->gradient == WEFT_GRADIENT_VJP && i < node.n_in; i++)
            depends |= from_leaf[node.in[i]];
        for (size_t i = 0; depends && i < node.n_out; i++)
            from_leaf[node.first_out + i] = is_float(d, node.first_out + (uint32_t)i);
    }
    for (size_t k = d->n_nodes; k-- > 0;) {
        const weft_node_info node = weft_graph_node(d->whole, k);
        bool leads = false;
        for (size_t i = 0; i < node.n_out; i++) leads |= d->differentiable[node.first_out + i];
        if (!leads || d->kind[k] == NODE_UNUSED || node.op->gradient != WEFT_GRADIENT_VJP) continue;
        for (size_t i = 0; i < node.n_in; i++)
            d->differentiable[node.in[i]] |= is_float(d, node.in[i]);
    }
    for (size_t v = 0; v < d->n_values; v++) d->differentiable[v] &= from_leaf[v];
    free(from_leaf);
    return true;
}

static void mark_reads(stage_division *d)
{
    for (size_t k = 0; k < d->n_nodes; k++) {
        const weft_node_info node = weft_graph_node(d->whole, k);
        for (size_t i = 0; d->stage[k] > 0 && i < node.n_in; i++) {
            const int32_t from = d->stage[producer(d, node.in[i])];
            if (from >= 0 && from < d->stage[k])
                d->reads[(size_t)d->stage[k] * d->n_values + node.in[i]] = 1;
        }
    }
}

void weft__stages_members(const stage_division *d, int32_t stage, uint8_t *is_member)
{
    for (size_t k = 0; k < d->n_nodes; k++)
        is_member[k] = d->kind[k] == NODE_PLACED && d->stage[k] == stage;
    for (size_t i = 0; stage == d->size - 1 && i < d->n_targets; i++) {
        const size_t node = weft_producer_of(d->whole, d->targets[i]);
        if (d->kind[node] == NODE_COPIED) is_member[node] = 1;
    }
    for (size_t k = d->n_nodes; k-- > 0;) {
        const weft_node_info node = weft_graph_node(d->whole, k);
        for (size_t i = 0; is_member[k] && i < node.n_in; i++) {
            const size_t from = producer(d, node.in[i]);
            if (d->kind[from] == NODE_COPIED) is_member[from] = 1;
        }
    }
}

/* ---- The whole ---- */

static bool check_arguments(const weft_graph *whole, const weft_value *targets, size_t n,
                            weft_error *error)
{
    if (weft_graph_status(whole) != WEFT_OK) {
        weft_error_copy(error, weft_graph_error(whole));
        return false;
    }
    for (size_t i = 0; targets && i < n; i++)
        if (!targets[i].id || weft_value_from_id(whole, targets[i].id).graph != targets[i].graph) {
            weft_error_set(error, WEFT_BAD_ARGUMENT, "weft__stage_new",
                           "target %zu does not belong to the graph", i);
            return false;
        }
    if (targets && n) return true;
    weft_error_set(error, WEFT_BAD_ARGUMENT, "weft__stage_new", "there are no targets");
    return false;
}

bool weft__stages_divide(stage_division *d, const weft_graph *whole, const weft_value *targets,
                         size_t n, int32_t size, const weft_stage *like, weft_error *error)
{
    *d = (stage_division){.whole = whole, .targets = targets, .n_targets = n, .size = size};
    if (!check_arguments(whole, targets, n, error)) return false;
    d->n_nodes = weft_graph_node_count(whole);
    const weft_node_info node = weft_graph_node(whole, d->n_nodes - 1);
    d->n_values = node.first_out + node.n_out;
    d->kind = calloc(d->n_nodes, 1);
    d->stage = calloc(d->n_nodes, sizeof *d->stage);
    d->begins = calloc(d->n_nodes, sizeof *d->begins);
    d->reads = calloc((size_t)size, d->n_values);
    d->differentiable = calloc(d->n_values, 1);
    if (!d->kind || !d->stage || !d->begins || !d->reads || !d->differentiable || !sort_nodes(d) ||
        !mark_differentiable(d)) {
        weft_error_set(error, WEFT_NO_MEMORY, "weft__stage_new", "no memory to cut the graph");
        return false;
    }
    if (!like && !weft__stages_cut(d, error)) return false;
    note_begins(d, like);
    if (like && !cut_at_states(d, error)) return false;
    mark_reads(d);
    return true;
}

void weft__stages_free(stage_division *d)
{
    free(d->kind);
    free(d->stage);
    free(d->begins);
    free(d->reads);
    free(d->differentiable);
}
