/* The plan checker. It shares no code with the planner and trusts none of its lifetimes. It replays
 * the schedule interval by interval over a picture of the arena, in which each range of bytes holds
 * one version of one value. It proves that
 * - every node reads what its producer wrote;
 * - no node writes what another node of its interval reads or writes, unless both are fused;
 * - what can be read after a run is still there: in the arena, or in a state of the right version;
 * - all this also holds for later runs, which leave out what only the first run computes; what that
 *   computes is the same in every run;
 * - the same of the plans of bodies (weft_scan), whose given buffers are ranges beyond the arena.
 *
 *     bytes  |  a a a a  |  b b b b b b  |  c c c  |      after interval 1
 *     bytes  |  a a a a  |  d d d d d d  |  c c c  |      after interval 2, which wrote d over b
 *
 * The ranges are in a treap, ordered by their begin (Seidel and Aragon 1996). O(n log n) for n
 * operands. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct range {
    size_t begin, end;
    uint32_t owner; /* value id that wrote it; UINT32_MAX for scratch */
} range;

/* A node of the treap; 0 means none. No node has a smaller priority than its parent. */
typedef struct held {
    range s;
    uint32_t left, right, priority;
} held;

/* An access of a step of an interval to the arena. */
typedef struct access {
    range s;
    size_t reach; /* the greatest end of this and those sorted before it */
    uint32_t step;
} access;

/* An update of a state, or a read of one, by a step of an interval. */
typedef struct state_access {
    uint32_t root, step;
    bool update;
} state_access;

typedef struct checker {
    const weft_plan *plan;
    held *held;
    uint32_t n_held, root;
    access *writes, *reads;
    state_access *states;
    uint32_t *head; /* by step of an interval: the head of its fused group, or itself */
    size_t n_writes, n_reads, n_states;
    uint32_t *state_version; /* by root of a state: the version that the store holds */
    uint8_t *updated;        /* by root of a state: a node updates it */
    weft_error *error;
} checker;

static bool wrong(checker *c, uint32_t node, const char *what)
{
    char where[256];
    weft_error_set(c->error, WEFT_INTERNAL,
                   weft__graph_node_where(c->plan->graph, node, where, sizeof where), "plan: %s",
                   what);
    return false;
}

/* The value whose producer wrote the bytes of `id`: the root of its views. */
static uint32_t writer_of(const weft_graph *g, uint32_t id)
{
    while (g->nodes[g->values[id].node].op->alias && g->values[id].root != id)
        id = g->nodes[g->values[id].node].in[0];
    return id;
}

static size_t dense_bytes(const weft_graph *g, uint32_t id)
{
    return weft__graph_value_bytes(g, id);
}

/* The bytes that an operand can touch, from its offset and strides. */
static range extent(const weft_tensor *t, size_t offset)
{
    int64_t low = 0, high = 0;
    if (weft_shape_numel(t->shape) == 0) return (range){offset, offset, 0};
    for (int d = 0; d < t->shape.rank; d++) {
        int64_t reach = (t->shape.dim[d] - 1) * t->stride[d];
        *(reach < 0 ? &low : &high) += reach;
    }
    int64_t bytes = (int64_t)weft_dtype_bytes(t->dtype);
    return (range){(size_t)((int64_t)offset + low * bytes),
                   (size_t)((int64_t)offset + (high + 1) * bytes), 0};
}

static bool meets(range a, range b)
{
    return a.begin < b.end && b.begin < a.end;
}

/* Splits a treap into the ranges that begin before `begin` and the others. */
static void split(checker *c, uint32_t tree, size_t begin, uint32_t *before, uint32_t *after)
{
    while (tree) {
        held *h = &c->held[tree];
        if (h->s.begin < begin) {
            *before = tree;
            before = &h->right;
            tree = h->right;
        } else {
            *after = tree;
            after = &h->left;
            tree = h->left;
        }
    }
    *before = *after = 0;
}

/* Joins two treaps; the first has the earlier ranges. */
static uint32_t join(checker *c, uint32_t first, uint32_t second)
{
    uint32_t tree, *to = &tree;
    while (first && second) {
        if (c->held[first].priority < c->held[second].priority) {
            *to = first;
            to = &c->held[first].right;
            first = *to;
        } else {
            *to = second;
            to = &c->held[second].left;
            second = *to;
        }
    }
    *to = first ? first : second;
    return tree;
}

static uint32_t last_of(const checker *c, uint32_t tree)
{
    while (tree && c->held[tree].right) tree = c->held[tree].right;
    return tree;
}

/* Writes a range, which replaces those that it overlaps. Ranges of the treap never overlap. */
static void write_range(checker *c, range s)
{
    uint32_t before, within, after, last;
    if (s.begin == s.end) return;
    split(c, c->root, s.begin, &before, &after);
    split(c, after, s.end, &within, &after);
    last = last_of(c, before);
    if (last && c->held[last].s.end > s.begin)
        split(c, before, c->held[last].s.begin, &before, &within);
    uint32_t new = ++c->n_held, priority = new * 2654435761u;
    priority = (priority ^ priority >> 15) * 2246822519u;
    c->held[new] = (held){s, 0, 0, priority ^ priority >> 13};
    c->root = join(c, join(c, before, new), after);
}

static bool holds(const checker *c, range s, uint32_t owner)
{
    uint32_t at = 0;
    if (s.begin == s.end) return true;
    for (uint32_t tree = c->root; tree;) {
        const held *h = &c->held[tree];
        bool left = h->s.begin > s.begin;
        if (!left) at = tree;
        tree = left ? h->left : h->right;
    }
    return at && s.end <= c->held[at].s.end && c->held[at].s.owner == owner;
}

static bool check_reads(checker *c, const plan_step *step)
{
    const weft_graph *g = c->plan->graph;
    const node_record *node = &g->nodes[step->node];
    for (size_t i = 0; i < node->n_in; i++) {
        const place *at = &c->plan->places[step->first_operand + i];
        uint32_t writer = writer_of(g, node->in[i]);
        if (at->kind == STORAGE_CONSTANT) continue;
        if (at->kind == STORAGE_STATE) {
            if (c->state_version[at->root] != g->values[writer].version)
                return wrong(c, step->node, "reads the wrong version of a state");
            continue;
        }
        range s = extent(&c->plan->tensors[step->first_operand + i], at->offset);
        if (s.end > c->plan->stats.arena_bytes + c->plan->given_bytes)
            return wrong(c, step->node, "reads beyond the arena");
        if (!holds(c, s, writer))
            return wrong(c, step->node,
                         "reads an input before it is written, or after it is overwritten");
    }
    return true;
}

/* The scratch of a loop: the arena of its body, and the buffers after it. */
static size_t loop_scratch(const plan_loop *l)
{
    size_t end = l->body->stats.arena_bytes;
    for (uint32_t i = 0; i < l->scan->body->n_carry; i++) {
        const size_t bytes = l->stacked[i] ? 0 : dense_bytes(l->body->graph, l->value[i]);
        if (end < l->spare[i] + bytes) end = l->spare[i] + bytes;
    }
    return end;
}

/* Ranges that a step writes: its outputs in the arena and its scratch. */
static size_t step_writes(const checker *c, const plan_step *step, range *out)
{
    const weft_plan *plan = c->plan;
    const node_record *node = &plan->graph->nodes[step->node];
    size_t n = 0;
    for (size_t i = 0; i < node->op->n_out; i++) {
        uint32_t operand = step->first_operand + node->n_in + (uint32_t)i;
        if (plan->places[operand].kind != STORAGE_ARENA) continue;
        out[n] = extent(&plan->tensors[operand], plan->places[operand].offset);
        out[n++].owner = node->first_out + (uint32_t)i;
    }
    if (step->loop) {
        const size_t bytes = loop_scratch(step->loop);
        if (bytes) out[n++] = (range){step->scratch, step->scratch + bytes, UINT32_MAX};
    } else if (node->op->scratch) {
        weft_call call = {.attr = node->attr,
                          .in = plan->tensors + step->first_operand,
                          .out = plan->tensors + step->first_operand + node->n_in,
                          .n_in = node->n_in,
                          .n_out = node->op->n_out};
        size_t bytes = node->op->scratch(&call);
        if (bytes) out[n++] = (range){step->scratch, step->scratch + bytes, UINT32_MAX};
    }
    return n;
}

/* Whether the elements of an operand are contiguous; dimensions of 1 do not count. */
static bool lies_dense(const weft_tensor *t)
{
    int64_t expected = 1;
    for (int d = t->shape.rank - 1; d >= 0; d--) {
        if (t->shape.dim[d] != 1 && t->stride[d] != expected) return false;
        expected *= t->shape.dim[d];
    }
    return true;
}

/* What a step of a fused group touches of an operand when it runs on one tile. */
typedef enum reach { ANYWHERE, BY_ELEMENT, BY_ROW } reach;

static reach reach_of(const checker *c, const plan_step *step, size_t operand)
{
    const node_record *node = &c->plan->graph->nodes[step->node];
    const weft_op *op = node->op;
    const weft_tensor *t = &c->plan->tensors[step->first_operand + operand];
    const weft_shape *out = &c->plan->tensors[step->first_operand + node->n_in].shape;
    const bool written = operand >= node->n_in;
    /* A head with blocks of its own also reads outside them, and describes only those of output
     * 0. */
    if (op->block ? operand != node->n_in
                  : !written && !op->elementwise &&
                        !(op->rowwise && op->rowwise(node->attr) >> operand & 1))
        return ANYWHERE;
    int64_t n = weft_shape_numel(t->shape), all = weft_shape_numel(*out);
    if (!lies_dense(t) || !all) return ANYWHERE;
    if (n == all) return BY_ELEMENT;
    bool one_a_row = written || !t->shape.rank || t->shape.dim[t->shape.rank - 1] == 1;
    return one_a_row && n == all / out->dim[out->rank - 1] ? BY_ROW : ANYWHERE;
}

/* Fused steps run tile by tile. If one writes what an earlier one reads or writes, or reads what it
 * writes, both must have their elements in the same places. */
static bool in_step(const checker *c, const plan_step *earlier, const plan_step *later)
{
    const weft_plan *plan = c->plan;
    const node_record *a = &plan->graph->nodes[earlier->node];
    const node_record *b = &plan->graph->nodes[later->node];
    for (size_t i = 0; i < a->n_in + a->op->n_out; i++)
        for (size_t k = 0; k < b->n_in + b->op->n_out; k++) {
            size_t x = earlier->first_operand + i, y = later->first_operand + k;
            if (i < a->n_in && k < b->n_in) continue;
            if (plan->places[x].kind != STORAGE_ARENA || plan->places[y].kind != STORAGE_ARENA)
                continue;
            const weft_tensor *t = &plan->tensors[x], *u = &plan->tensors[y];
            if (!meets(extent(t, plan->places[x].offset), extent(u, plan->places[y].offset)))
                continue;
            reach first = reach_of(c, earlier, i);
            if (first == ANYWHERE || first != reach_of(c, later, k) ||
                plan->places[x].offset != plan->places[y].offset ||
                weft_dtype_bytes(t->dtype) != weft_dtype_bytes(u->dtype))
                return false;
        }
    return true;
}

/* Checks two steps that touch the same bytes, one of which writes them. Fused steps run tile by
 * tile; others may run at the same time. */
static bool check_pair(checker *c, const plan_step *steps, uint32_t i, uint32_t k)
{
    if (i == k) return true;
    if (c->head[i] != c->head[k])
        return wrong(c, steps[i].node, "accesses data that another node of its interval writes");
    uint32_t earlier = i < k ? i : k, later = i < k ? k : i;
    return in_step(c, &steps[earlier], &steps[later]) ||
           wrong(c, steps[later].node, "does not follow the tiles of its fused group");
}

static int compare_accesses(const void *a, const void *b)
{
    const access *x = a, *y = b;
    if (x->s.begin != y->s.begin) return x->s.begin < y->s.begin ? -1 : 1;
    return x->step < y->step ? -1 : x->step > y->step;
}

static int compare_states(const void *a, const void *b)
{
    const state_access *x = a, *y = b;
    if (x->root != y->root) return x->root < y->root ? -1 : 1;
    if (x->update != y->update) return x->update ? -1 : 1;
    return x->step < y->step ? -1 : x->step > y->step;
}

/* Collects what the steps of an interval read and write. */
static void collect(checker *c, const plan_step *steps, uint32_t n)
{
    const weft_plan *plan = c->plan;
    const weft_graph *g = plan->graph;
    c->n_writes = c->n_reads = c->n_states = 0;
    for (uint32_t i = 0; i < n; i++) {
        const node_record *node = &g->nodes[steps[i].node];
        range writes[WEFT_MAX_OUTPUTS + 1];
        size_t n_writes = step_writes(c, &steps[i], writes);
        for (size_t k = 0; k < n_writes; k++)
            if (writes[k].begin < writes[k].end)
                c->writes[c->n_writes++] = (access){writes[k], 0, i};
        for (size_t k = 0; k < node->n_in; k++) {
            const uint32_t operand = steps[i].first_operand + (uint32_t)k;
            const place *at = &plan->places[operand];
            if (at->kind == STORAGE_ARENA)
                c->reads[c->n_reads++] =
                    (access){extent(&plan->tensors[operand], at->offset), 0, i};
            if (at->kind == STORAGE_STATE || k < node->op->updates)
                c->states[c->n_states++] =
                    (state_access){g->values[node->in[k]].root, i, k < node->op->updates};
        }
    }
}

/* Compares an access with the sorted writes; those from `first_later` on begin after it. */
static bool check_access(checker *c, const plan_step *steps, const access *a, size_t first_later)
{
    for (size_t k = first_later; k > 0 && c->writes[k - 1].reach > a->s.begin; k--)
        if (meets(c->writes[k - 1].s, a->s) &&
            !check_pair(c, steps, c->writes[k - 1].step, a->step))
            return false;
    return true;
}

/* No step touches what another one writes, unless both are fused. */
static bool check_apart(checker *c, const plan_step *steps, uint32_t n)
{
    size_t end = 0;
    collect(c, steps, n);
    qsort(c->writes, c->n_writes, sizeof *c->writes, compare_accesses);
    qsort(c->reads, c->n_reads, sizeof *c->reads, compare_accesses);
    qsort(c->states, c->n_states, sizeof *c->states, compare_states);
    for (size_t k = 0; k < c->n_writes; k++) {
        if (!check_access(c, steps, &c->writes[k], k)) return false;
        if (c->writes[k].s.end > end) end = c->writes[k].s.end;
        c->writes[k].reach = end;
    }
    for (size_t i = 0, k = 0; i < c->n_reads; i++) {
        while (k < c->n_writes && c->writes[k].s.begin < c->reads[i].s.end) k++;
        if (!check_access(c, steps, &c->reads[i], k)) return false;
    }
    /* Only one step, or fused ones, may touch a state that is updated. */
    for (size_t k = 1; k < c->n_states; k++) {
        const state_access *first = &c->states[k - 1], *then = &c->states[k];
        if (first->root != then->root || !first->update) continue;
        if (then->step != first->step && c->head[then->step] != c->head[first->step])
            return wrong(c, steps[then->step].node,
                         "accesses data that another node of its interval writes");
        c->states[k].update = true;
    }
    return true;
}

/* Every fused step has its head within the interval. */
static bool check_fused(checker *c, const plan_step *steps, uint32_t n)
{
    uint32_t begin = 0, end = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!steps[i].fused) {
            begin = i;
            end = i + steps[i].n_fused;
        }
        if (i > end || end >= n)
            return wrong(c, steps[i].node, "is fused with a node outside its interval");
        c->head[i] = begin;
    }
    return true;
}

static bool check_writes(checker *c, const plan_step *step)
{
    range writes[WEFT_MAX_OUTPUTS + 1];
    size_t n = step_writes(c, step, writes);
    for (size_t k = 0; k < n; k++) {
        if (writes[k].end > c->plan->stats.arena_bytes + c->plan->given_bytes)
            return wrong(c, step->node, "writes beyond the arena");
        for (size_t j = 0; j < k; j++)
            if (meets(writes[j], writes[k]))
                return wrong(c, step->node, "two of its outputs overlap");
        write_range(c, writes[k]);
    }
    return true;
}

/* Whether a node is an input that all steps of a loop share. */
static bool is_shared(const checker *c, uint32_t node)
{
    const weft_plan *plan = c->plan;
    const scan_body *b = plan->body;
    bool shared = false;
    for (uint32_t i = b ? b->n_carry + b->n_each : 0; b && i < scan_inputs(b); i++)
        shared |= plan->map[b->in[i]] && plan->graph->values[plan->map[b->in[i]]].node == node;
    return shared;
}

/* What only the first run computes, or the first step of a loop, must not depend on what changes: in its
 * operands there are only states that no node updates, constants, inputs that all steps share, and
 * what has been computed before. */
static bool check_fixed(checker *c, const plan_interval *interval)
{
    const weft_graph *g = c->plan->graph;
    for (uint32_t i = 0; i < interval->n_steps; i++) {
        const uint32_t n = c->plan->steps[interval->first_step + i].node;
        const node_record *node = &g->nodes[n];
        bool fixed = !node->op->updates && !node->op->random && !node->op->exchanges;
        for (size_t k = 0; k < node->n_in; k++) {
            const value_record *root = &g->values[g->values[node->in[k]].root];
            fixed = fixed &&
                    (g->nodes[root->node].op != &weft_op_input || is_shared(c, root->node)) &&
                    !c->updated[g->values[node->in[k]].root];
        }
        if (!fixed) return wrong(c, n, "runs in the first run only, but its inputs may change");
    }
    return true;
}

static bool check_interval(checker *c, const plan_interval *interval)
{
    const weft_graph *g = c->plan->graph;
    const plan_step *steps = c->plan->steps + interval->first_step;
    if (!check_fused(c, steps, interval->n_steps) || !check_apart(c, steps, interval->n_steps))
        return false;
    for (uint32_t i = 0; i < interval->n_steps; i++) {
        const node_record *node = &g->nodes[steps[i].node];
        if (!check_reads(c, &steps[i]) || !check_writes(c, &steps[i])) return false;
        for (size_t k = 0; k < node->op->updates; k++)
            c->state_version[g->values[node->in[k]].root] = node->first_out + (uint32_t)k;
    }
    return true;
}

/* A target in a state is read from it after the run. The state must then have the target's version,
 * unless the program asked for the state itself. */
static bool check_targets(checker *c)
{
    const weft_plan *plan = c->plan;
    const weft_graph *g = plan->graph;
    for (size_t i = 0; i < plan->n_targets; i++) {
        const plan_target *t = &plan->targets[i];
        const value_record *v = &g->values[t->value.id];
        if (!plan->body && plan->map[t->user] != t->value.id)
            return wrong(c, v->node, "a target is not stored where it is read");
        if (g->nodes[g->values[v->root].node].op != &weft_op_state) continue;
        if (t->is_state ? g->nodes[v->node].op != &weft_op_state
                        : c->state_version[v->root] != v->version)
            return wrong(c, v->node, "is read as a target after an update of the state");
    }
    return true;
}

/* Every step is in an interval, and a barrier separates intervals that need one. */
static bool check_cut(checker *c)
{
    const weft_plan *plan = c->plan;
    uint32_t next = 0;
    for (size_t i = 0; i < plan->n_intervals; i++) {
        if (plan->intervals[i].first_step != next) return wrong(c, 0, "a step is in no interval");
        next += plan->intervals[i].n_steps;
        if (i && plan->intervals[i].superstep == plan->intervals[i - 1].superstep &&
            !(plan->intervals[i].serial && plan->intervals[i - 1].serial))
            return wrong(c, plan->steps[next - 1].node, "no barrier before its interval");
    }
    return next == plan->n_steps || wrong(c, 0, "a step is in no interval");
}

/* One run, of the intervals from `first` on. */
static bool check_run(checker *c, uint32_t first)
{
    const weft_plan *plan = c->plan;
    const weft_graph *g = plan->graph;
    for (uint32_t v = 1; v < g->n_values; v++) c->state_version[v] = v;
    for (size_t i = first; i < plan->n_intervals; i++)
        if (!check_interval(c, &plan->intervals[i])) return false;
    if (!check_targets(c)) return false;
    for (uint32_t v = 1; v < g->n_values; v++) {
        if (!plan->readable[v] || !plan->buffer_of[v]) continue;
        size_t begin = plan->buffers[plan->buffer_of[v] - 1].offset +
                       (size_t)g->values[v].layout.offset * weft_dtype_bytes(g->values[v].stored);
        if (!holds(c, (range){begin, begin + dense_bytes(g, v), 0}, writer_of(g, v)))
            return wrong(c, g->values[v].node, "is overwritten before it can be fetched");
    }
    return true;
}

static bool check_all(checker *c)
{
    const weft_plan *plan = c->plan;
    const weft_graph *g = plan->graph;
    for (uint32_t v = 1; v < g->n_values; v++) {
        if (g->nodes[g->values[v].node].op != &weft_op_input) continue;
        size_t begin = plan->buffers[plan->buffer_of[v] - 1].offset;
        write_range(c, (range){begin, begin + dense_bytes(g, v), v});
    }
    for (size_t n = 0; n < g->n_nodes; n++)
        for (size_t k = 0; k < g->nodes[n].op->updates; k++)
            c->updated[g->values[g->nodes[n].in[k]].root] = 1;
    for (uint32_t i = 0; i < plan->fixed_intervals; i++)
        if (!check_fixed(c, &plan->intervals[i])) return false;
    if (!check_cut(c) || !check_run(c, 0)) return false;
    return !plan->fixed_intervals || check_run(c, plan->fixed_intervals);
}

/* Every operand is at most one access of an interval, and in each of two runs one range of the
 * treap. */
static bool make_room(checker *c)
{
    const weft_plan *plan = c->plan;
    size_t operands = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const node_record *node = &plan->graph->nodes[plan->steps[i].node];
        operands += node->n_in + node->op->n_out + 1;
    }
    c->held = calloc(2 * operands + plan->graph->n_values + 1, sizeof *c->held);
    c->writes = calloc(operands + 1, sizeof *c->writes);
    c->reads = calloc(operands + 1, sizeof *c->reads);
    c->states = calloc(operands + 1, sizeof *c->states);
    c->head = calloc(plan->n_steps + 1, sizeof *c->head);
    c->state_version = calloc(plan->graph->n_values + 1, sizeof *c->state_version);
    c->updated = calloc(plan->graph->n_values + 1, sizeof *c->updated);
    return c->held && c->writes && c->reads && c->states && c->head && c->state_version &&
           c->updated;
}

weft_status weft_plan_check(const weft_plan *plan, weft_error *error)
{
    weft_error_clear(error);
    if (!plan) return weft_error_set(error, WEFT_BAD_ARGUMENT, "plan", "the plan is NULL");
    for (size_t i = 0; i < plan->n_loops; i++)
        if (weft_plan_check(plan->loops[i].body, error) != WEFT_OK) return WEFT_INTERNAL;
    checker c = {.plan = plan, .error = error};
    weft_status status = WEFT_OK;
    if (!make_room(&c))
        status = weft_error_set(error, WEFT_NO_MEMORY, "plan", "no memory for the checker");
    else if (!check_all(&c))
        status = WEFT_INTERNAL;
    free(c.held);
    free(c.writes);
    free(c.reads);
    free(c.states);
    free(c.head);
    free(c.state_version);
    free(c.updated);
    return status;
}
