/* The plan checker. It shares no code with the planner and believes none of its lifetimes: it plays
 * the schedule group by group over a picture of the arena, in which each stretch of bytes holds one
 * version of one value, and proves that every node reads what its producer wrote, that no node
 * writes what another of its group reads or writes, and that what a run leaves to be read is still
 * there at its end: in the arena, and in a state in the version that is meant.
 *
 *     bytes  |  a a a a  |  b b b b b b  |  c c c  |      after group 1
 *     bytes  |  a a a a  |  d d d d d d  |  c c c  |      after group 2, which wrote d over b
 *
 * O(operands x stretches). */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct stretch {
    size_t begin, end;
    uint32_t owner; /* value id that wrote it; UINT32_MAX for scratch */
} stretch;

typedef struct checker {
    const weft_plan *plan;
    stretch *held;
    size_t n_held;
    uint32_t *state_version; /* by root of a state: the version that the store holds */
    weft_error *error;
} checker;

static bool wrong(checker *c, uint32_t node, const char *what)
{
    char where[256];
    weft_error_set(c->error, WEFT_INTERNAL,
                   graph_node_where(c->plan->graph, node, where, sizeof where), "plan: %s", what);
    return false;
}

/* The value that wrote the bytes of `id`: its producer's output, past all views. */
static uint32_t writer_of(const weft_graph *g, uint32_t id)
{
    while (g->nodes[g->values[id].node].op->alias && g->values[id].root != id)
        id = g->nodes[g->values[id].node].in[0];
    return id;
}

static size_t dense_bytes(const weft_graph *g, uint32_t id)
{
    return (size_t)weft_shape_numel(g->values[id].type.shape) *
           weft_dtype_bytes(g->values[id].type.dtype);
}

/* The bytes that an operand can touch, from its offset and strides. */
static stretch extent(const weft_tensor *t, size_t offset)
{
    int64_t low = 0, high = 0;
    if (weft_shape_numel(t->shape) == 0) return (stretch){offset, offset, 0};
    for (int d = 0; d < t->shape.rank; d++) {
        int64_t reach = (t->shape.dim[d] - 1) * t->stride[d];
        *(reach < 0 ? &low : &high) += reach;
    }
    int64_t bytes = (int64_t)weft_dtype_bytes(t->dtype);
    return (stretch){(size_t)((int64_t)offset + low * bytes),
                     (size_t)((int64_t)offset + (high + 1) * bytes), 0};
}

static bool meets(stretch a, stretch b)
{
    return a.begin < b.end && b.begin < a.end;
}

static void write_stretch(checker *c, stretch s)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->n_held; i++)
        if (!meets(c->held[i], s)) c->held[kept++] = c->held[i];
    c->n_held = kept;
    if (s.begin < s.end) c->held[c->n_held++] = s;
}

static bool holds(const checker *c, stretch s, uint32_t owner)
{
    if (s.begin == s.end) return true;
    for (size_t i = 0; i < c->n_held; i++)
        if (c->held[i].begin <= s.begin && s.end <= c->held[i].end)
            return c->held[i].owner == owner;
    return false;
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
                return wrong(c, step->node, "reads a state before or after the version it means");
            continue;
        }
        stretch s = extent(&c->plan->tensors[step->first_operand + i], at->offset);
        if (s.end > c->plan->stats.arena_bytes) return wrong(c, step->node, "reads past the arena");
        if (!holds(c, s, writer))
            return wrong(c, step->node, "reads an input that is not (or no longer) there");
    }
    return true;
}

/* Stretches that a step writes: its outputs in the arena and its scratch. */
static size_t step_writes(const checker *c, const plan_step *step, stretch *out)
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
    if (node->op->scratch) {
        weft_call call = {.attr = node->attr,
                          .in = plan->tensors + step->first_operand,
                          .out = plan->tensors + step->first_operand + node->n_in,
                          .n_in = node->n_in,
                          .n_out = node->op->n_out};
        size_t bytes = node->op->scratch(&call);
        if (bytes) out[n++] = (stretch){step->scratch, step->scratch + bytes, UINT32_MAX};
    }
    return n;
}

/* May steps a and b run at the same time? */
static bool independent(checker *c, const plan_step *a, const plan_step *b)
{
    const weft_graph *g = c->plan->graph;
    stretch writes[WEFT_MAX_OUTPUTS + 1], others[WEFT_MAX_OUTPUTS + 1];
    size_t n = step_writes(c, a, writes), m = step_writes(c, b, others);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < m; k++)
            if (meets(writes[i], others[k])) return false;
        for (size_t k = 0; k < g->nodes[b->node].n_in; k++) {
            uint32_t operand = b->first_operand + (uint32_t)k;
            if (c->plan->places[operand].kind == STORAGE_ARENA &&
                meets(writes[i],
                      extent(&c->plan->tensors[operand], c->plan->places[operand].offset)))
                return false;
        }
    }
    for (size_t i = 0; i < g->nodes[a->node].op->updates; i++) {
        uint32_t root = g->values[g->nodes[a->node].in[i]].root;
        for (size_t k = 0; k < g->nodes[b->node].n_in; k++)
            if (g->values[g->nodes[b->node].in[k]].root == root) return false;
    }
    return true;
}

/* Whether the elements of an operand lie one behind the other, but for dimensions of 1. */
static bool lies_dense(const weft_tensor *t)
{
    int64_t expected = 1;
    for (int d = t->shape.rank - 1; d >= 0; d--) {
        if (t->shape.dim[d] != 1 && t->stride[d] != expected) return false;
        expected *= t->shape.dim[d];
    }
    return true;
}

/* What a block of a chain touches of an operand. */
typedef enum reach { ANYWHERE, BY_ELEMENT, BY_ROW } reach;

static reach reach_of(const checker *c, const plan_step *step, size_t operand)
{
    const node_record *node = &c->plan->graph->nodes[step->node];
    const weft_op *op = node->op;
    const weft_tensor *t = &c->plan->tensors[step->first_operand + operand];
    const weft_shape *out = &c->plan->tensors[step->first_operand + node->n_in].shape;
    const bool written = operand >= node->n_in;
    /* A head with blocks of its own reads beyond them, and tells of its first output only. */
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

/* Steps of a chain run block by block: where one writes what an earlier one reads or writes, or
 * reads what it writes, both must have their elements in the same places. */
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

static bool check_pair(checker *c, const plan_step *steps, uint32_t i, uint32_t k, bool same_chain)
{
    if (!same_chain)
        return independent(c, &steps[i], &steps[k]) ||
               wrong(c, steps[i].node, "touches what another node of its group writes");
    return i > k || in_step(c, &steps[i], &steps[k]) ||
           wrong(c, steps[k].node, "does not follow the blocks of its chain");
}

static bool check_group(checker *c, const plan_group *group)
{
    const weft_plan *plan = c->plan;
    const plan_step *steps = plan->steps + group->first_step;
    uint32_t chain_end = 0, chain_begin = 0;
    for (uint32_t i = 0; i < group->n_steps; i++) {
        if (!steps[i].linked) {
            chain_begin = i;
            chain_end = i + steps[i].links;
        }
        if (i > chain_end || chain_end >= group->n_steps)
            return wrong(c, steps[i].node, "is linked to no chain of its group");
        if (!check_reads(c, &steps[i])) return false;
        for (uint32_t k = 0; k < group->n_steps; k++)
            if (k != i && !check_pair(c, steps, i, k, k >= chain_begin && k <= chain_end))
                return false;
        const node_record *node = &plan->graph->nodes[steps[i].node];
        stretch writes[WEFT_MAX_OUTPUTS + 1];
        size_t n = step_writes(c, &steps[i], writes);
        for (size_t k = 0; k < n; k++) {
            if (writes[k].end > plan->stats.arena_bytes)
                return wrong(c, steps[i].node, "writes past the arena");
            for (size_t j = 0; j < k; j++)
                if (meets(writes[j], writes[k]))
                    return wrong(c, steps[i].node, "two of its outputs overlap");
            write_stretch(c, writes[k]);
        }
        for (size_t k = 0; k < node->op->updates; k++)
            c->state_version[plan->graph->values[node->in[k]].root] = node->first_out + (uint32_t)k;
    }
    return true;
}

/* A target that lies in a state is read from it when the run has ended: then the state must still
 * be the version that the target means, unless the program asked for the state as it then is. */
static bool check_targets(checker *c)
{
    const weft_plan *plan = c->plan;
    const weft_graph *g = plan->graph;
    for (size_t i = 0; i < plan->n_targets; i++) {
        const plan_target *t = &plan->targets[i];
        const value_record *v = &g->values[t->value.id];
        if (plan->map[t->user] != t->value.id)
            return wrong(c, v->node, "a target is read elsewhere than it lies");
        if (g->nodes[g->values[v->root].node].op != &weft_op_state) continue;
        if (t->is_state ? g->nodes[v->node].op != &weft_op_state
                        : c->state_version[v->root] != v->version)
            return wrong(c, v->node, "is read as a target after an update of the state");
    }
    return true;
}

static bool check_all(checker *c)
{
    const weft_plan *plan = c->plan;
    const weft_graph *g = plan->graph;
    for (uint32_t v = 1; v < g->n_values; v++) {
        c->state_version[v] = v;
        if (g->nodes[g->values[v].node].op != &weft_op_input) continue;
        size_t begin = plan->buffers[plan->buffer_of[v] - 1].offset;
        write_stretch(c, (stretch){begin, begin + dense_bytes(g, v), v});
    }
    uint32_t next = 0;
    for (size_t i = 0; i < plan->n_groups; i++) {
        if (plan->groups[i].first_step != next) return wrong(c, 0, "a step is in no group");
        next += plan->groups[i].n_steps;
        if (i && plan->groups[i].segment == plan->groups[i - 1].segment &&
            !(plan->groups[i].serial && plan->groups[i - 1].serial))
            return wrong(c, plan->steps[next - 1].node, "no barrier in front of its group");
        if (!check_group(c, &plan->groups[i])) return false;
    }
    if (next != plan->n_steps) return wrong(c, 0, "a step is in no group");
    if (!check_targets(c)) return false;
    for (uint32_t v = 1; v < g->n_values; v++) {
        if (!plan->readable[v] || !plan->buffer_of[v]) continue;
        size_t begin =
            plan->buffers[plan->buffer_of[v] - 1].offset +
            (size_t)g->values[v].layout.offset * weft_dtype_bytes(g->values[v].type.dtype);
        if (!holds(c, (stretch){begin, begin + dense_bytes(g, v), 0}, writer_of(g, v)))
            return wrong(c, g->values[v].node, "is overwritten before it can be fetched");
    }
    return true;
}

weft_status weft_plan_check(const weft_plan *plan, weft_error *error)
{
    if (!plan) return weft_error_set(error, WEFT_BAD_ARGUMENT, "plan", "the plan is NULL");
    const weft_graph *g = plan->graph;
    checker c = {plan, calloc(g->n_values + plan->n_steps + 1, sizeof(stretch)), 0,
                 calloc(g->n_values + 1, sizeof(uint32_t)), error};
    weft_status status = WEFT_OK;
    if (!c.held || !c.state_version)
        status = weft_error_set(error, WEFT_NO_MEMORY, "plan", "no memory for the checker");
    else if (!check_all(&c))
        status = WEFT_INTERNAL;
    free(c.held);
    free(c.state_version);
    return status;
}
