/* The planner: from a graph and its targets to a schedule with a place for every buffer.
 *
 * 1. the passes (pass.c) give a smaller graph;
 * 2. order (order.c); fusion (fuse.c);
 * 3. storages: views lie in their root's storage; an op may take over the storage of an input of
 *    which it is the last reader;
 * 4. groups that run side by side (order.c);
 * 5. lifetimes in groups, offsets (pack.c).
 * O(nodes log nodes), but for the packing. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* Of the search for offsets: a node takes about a quarter of a nanosecond for each buffer and group
 * in which it is alive, and never less than about a microsecond. */
#define PACK_WORK  200e6
#define PACK_NODES 20000

typedef struct planner {
    weft_plan *plan;
    const weft_graph *g;
    schedule schedule;
    uint32_t *storage;   /* by value: the value id that stands for its storage */
    uint32_t *last_read; /* by storage: position + 1 of its last reader so far */
    uint8_t *pinned;     /* by storage: never taken over */
    bool no_reuse;
    weft_error *error;
} planner;

bool plan_no_memory(weft_error *error)
{
    weft_error_set(error, WEFT_NO_MEMORY, "plan", "no memory for the plan");
    return false;
}

static bool no_memory(planner *p)
{
    return plan_no_memory(p->error);
}

/* ---- Storages ---- */

/* The storage of a value while unite_storages is at work: a view's is its root's. */
static uint32_t storage_of(const planner *p, uint32_t id)
{
    return p->storage[p->g->values[id].root];
}

static size_t storage_bytes(const weft_graph *g, uint32_t id)
{
    const value_record *v = &g->values[id];
    size_t bytes = (size_t)weft_shape_numel(v->type.shape) * weft_dtype_bytes(v->type.dtype);
    return (bytes + 63) / 64 * 64;
}

/* The input whose storage output 0 takes over, or -1. `head` is the position of the head
 * of its fused group, or its own. */
static int inplace_input(const planner *p, uint32_t head, uint32_t position)
{
    const weft_graph *g = p->g;
    const node_record *node = &g->nodes[p->schedule.order[position]];
    const value_record *out = &g->values[node->first_out];
    if (node->op->updates) return -1;
    for (size_t i = 0; i < node->n_in && i < 8; i++) {
        const value_record *in = &g->values[node->in[i]];
        uint32_t s = storage_of(p, node->in[i]);
        if (!(node->op->inplace >> i & 1) || p->pinned[s] || p->last_read[s] > position + 1)
            continue;
        if (in->type.dtype != out->type.dtype || in->layout.offset != 0 ||
            !weft_shape_equal(in->type.shape, out->type.shape) ||
            !weft_layout_is_dense(in->type.shape, &in->layout) ||
            storage_bytes(g, s) != storage_bytes(g, node->first_out))
            continue;
        bool elsewhere = false; /* does another input read the same storage? */
        for (size_t k = 0; k < node->n_in; k++)
            if (k != i && storage_of(p, node->in[k]) == s) elsewhere = true;
        if (!elsewhere && fused_may_overwrite(g, &p->schedule, head, position, p->storage, s))
            return (int)i;
    }
    return -1;
}

static void unite_storages(planner *p)
{
    const weft_graph *g = p->g;
    for (uint32_t v = 1; v < g->n_values; v++) {
        p->storage[v] = g->values[v].root;
        const weft_op *op = g->nodes[g->values[g->values[v].root].node].op;
        if (op == &weft_op_input || op == &weft_op_state || op == &weft_op_constant)
            p->pinned[p->storage[v]] = 1;
    }
    for (size_t i = 0; i < p->plan->n_targets; i++)
        p->pinned[g->values[p->plan->targets[i].value.id].root] = 1;
    for (uint32_t at = 0; at < p->schedule.n; at++) {
        const node_record *node = &g->nodes[p->schedule.order[at]];
        for (size_t i = 0; i < node->n_in; i++) p->last_read[g->values[node->in[i]].root] = at + 1;
    }
    for (uint32_t at = 0, head = 0; at < p->schedule.n && !p->no_reuse; at++) {
        const node_record *node = &g->nodes[p->schedule.order[at]];
        if (at > head + p->schedule.n_fused[head]) head = at;
        int i = inplace_input(p, head, at);
        if (i < 0) continue;
        uint32_t out = node->first_out, s = storage_of(p, node->in[i]);
        /* The output, and all that view it, lie where the input lay. A target pins its storage from
         * before its contents are there: then it must not be taken over later either. */
        if (p->pinned[out]) p->pinned[s] = 1;
        p->last_read[s] = p->last_read[out];
        p->storage[out] = s;
    }
    for (uint32_t v = 1; v < g->n_values; v++) p->storage[v] = storage_of(p, v);
}

/* ---- Steps ---- */

static void fill_call(const weft_plan *plan, const plan_step *step, weft_call *call)
{
    const node_record *node = &plan->graph->nodes[step->node];
    memset(call, 0, sizeof *call);
    call->attr = node->attr;
    call->in = plan->tensors + step->first_operand;
    call->out = call->in + node->n_in;
    call->n_in = node->n_in;
    call->n_out = node->op->n_out;
    call->node = (uint32_t)(step - plan->steps);
}

weft_tensor graph_tensor(const weft_graph *g, uint32_t id)
{
    const value_record *v = &g->values[id];
    weft_tensor t = {NULL, v->type.dtype, v->type.shape, {0}};
    memcpy(t.stride, v->layout.stride, sizeof t.stride);
    return t;
}

static bool make_steps(planner *p)
{
    weft_plan *plan = p->plan;
    const weft_graph *g = p->g;
    for (size_t i = 0; i < p->schedule.n; i++)
        plan->n_operands +=
            g->nodes[p->schedule.order[i]].n_in + g->nodes[p->schedule.order[i]].op->n_out;
    plan->n_steps = p->schedule.n;
    plan->steps = arena_alloc(&plan->arena, (p->schedule.n + 1) * sizeof *plan->steps);
    plan->tensors = arena_alloc(&plan->arena, (plan->n_operands + 1) * sizeof *plan->tensors);
    plan->places = arena_alloc(&plan->arena, (plan->n_operands + 1) * sizeof *plan->places);
    plan->matrices = arena_alloc(&plan->arena, (plan->n_operands + 1) * sizeof *plan->matrices);
    if (!plan->steps || !plan->tensors || !plan->places || !plan->matrices) return no_memory(p);
    uint32_t operand = 0;
    weft_isa isa = weft_isa_best();
    for (size_t i = 0; i < p->schedule.n; i++) {
        const node_record *node = &g->nodes[p->schedule.order[i]];
        plan_step *step = &plan->steps[i];
        *step = (plan_step){.node = p->schedule.order[i], .first_operand = operand};
        for (size_t k = 0; k < node->n_in; k++)
            plan->tensors[operand++] = graph_tensor(g, node->in[k]);
        for (size_t k = 0; k < node->op->n_out; k++)
            plan->tensors[operand++] = graph_tensor(g, node->first_out + (uint32_t)k);
        step->kernel = weft_op_kernel(node->op, isa, graph_key_dtype(g, node));
        step->phases = node->op->phases ? node->op->phases : 1;
        if (!step->kernel) {
            char where[256];
            weft_error_set(p->error, WEFT_NO_KERNEL,
                           graph_node_where(g, step->node, where, sizeof where),
                           "no kernel for %s on this processor, or below WEFT_ISA: %s",
                           weft_dtype_name(graph_key_dtype(g, node)), weft_isa_name(isa));
            return false;
        }
        weft_call call;
        fill_call(plan, step, &call);
        for (call.phase = 0; call.phase < step->phases; call.phase++)
            step->tiles[call.phase] = op_tiles(node->op, &call);
        call.phase = 0;
        if (node->op->scratch) step->scratch = node->op->scratch(&call); /* bytes, until placed */
        size_t workspace = 0;
        if (node->op->workspace)
            workspace = (node->op->workspace(&call) + 63) / 64 * 64 + PANEL_TAG_BYTES;
        if (workspace > plan->stats.workspace_bytes) plan->stats.workspace_bytes = workspace;
    }
    for (uint32_t i = 0; i < p->schedule.n; i += p->schedule.n_fused[i] + 1)
        fused_set_steps(plan, i, p->schedule.n_fused[i]);
    return true;
}

weft_cost plan_step_cost(const weft_plan *plan, const plan_step *step)
{
    const weft_op *op = plan->graph->nodes[step->node].op;
    weft_call call;
    fill_call(plan, step, &call);
    return op_cost(op, &call);
}

/* ---- Buffers ---- */

static void touch(weft_plan_buffer *b, uint32_t group)
{
    if (group < b->first) b->first = group;
    if (group > b->last) b->last = group;
}

/* One buffer for each storage in the arena, alive from its first to its last touch; inputs and
 * targets always. Then one for each scratch. */
static bool make_buffers(planner *p)
{
    bool no_reuse = p->no_reuse;
    weft_plan *plan = p->plan;
    const weft_graph *g = p->g;
    uint32_t last_group = (uint32_t)plan->n_groups;
    plan->buffers =
        arena_alloc(&plan->arena, (g->n_values + plan->n_steps) * sizeof *plan->buffers);
    plan->buffer_of = arena_alloc(&plan->arena, g->n_values * sizeof *plan->buffer_of);
    plan->readable = arena_alloc(&plan->arena, g->n_values);
    if (!plan->buffers || !plan->buffer_of || !plan->readable) return no_memory(p);
    for (uint32_t v = 1; v < g->n_values; v++) {
        uint32_t s = p->storage[v];
        const weft_op *op = g->nodes[g->values[s].node].op;
        if (op == &weft_op_state || op == &weft_op_constant || op == &weft_op_group) continue;
        if (!plan->buffer_of[s]) {
            plan->buffers[plan->n_buffers++] =
                (weft_plan_buffer){0, storage_bytes(g, s), last_group, 0};
            plan->buffer_of[s] = (uint32_t)plan->n_buffers;
        }
        plan->buffer_of[v] = plan->buffer_of[s];
        weft_plan_buffer *b = &plan->buffers[plan->buffer_of[s] - 1];
        if (op == &weft_op_input) plan->readable[v] = g->nodes[g->values[v].node].op == op;
        if (op == &weft_op_input || no_reuse) *b = (weft_plan_buffer){0, b->bytes, 0, last_group};
    }
    for (size_t i = 0; i < plan->n_targets; i++) {
        uint32_t v = plan->targets[i].value.id;
        plan->readable[v] = 1;
        if (plan->buffer_of[v]) plan->buffers[plan->buffer_of[v] - 1].last = last_group;
    }
    for (uint32_t gi = 0; gi < plan->n_groups; gi++) {
        for (uint32_t k = 0; k < plan->groups[gi].n_steps; k++) {
            plan_step *step = &plan->steps[plan->groups[gi].first_step + k];
            const node_record *node = &g->nodes[step->node];
            for (size_t i = 0; i < node->n_in; i++)
                if (plan->buffer_of[node->in[i]])
                    touch(&plan->buffers[plan->buffer_of[node->in[i]] - 1], gi);
            for (size_t i = 0; i < node->op->n_out; i++)
                if (plan->buffer_of[node->first_out + i])
                    touch(&plan->buffers[plan->buffer_of[node->first_out + i] - 1], gi);
            if (!step->scratch) continue;
            plan->buffers[plan->n_buffers++] = (weft_plan_buffer){
                0, (step->scratch + 63) / 64 * 64, no_reuse ? 0 : gi, no_reuse ? last_group : gi};
            step->scratch = plan->n_buffers; /* index + 1, until placed */
        }
    }
    return true;
}

static place place_of(const planner *p, uint32_t id)
{
    const weft_plan *plan = p->plan;
    const value_record *v = &p->g->values[id];
    const weft_op *op = p->g->nodes[p->g->values[v->root].node].op;
    size_t offset = (size_t)v->layout.offset * weft_dtype_bytes(v->type.dtype);
    if (op == &weft_op_state) return (place){STORAGE_STATE, v->root, offset};
    if (op == &weft_op_constant) return (place){STORAGE_CONSTANT, v->root, offset};
    size_t base = plan->buffer_of[id] ? plan->buffers[plan->buffer_of[id] - 1].offset : 0;
    return (place){STORAGE_ARENA, v->root, base + offset};
}

/* Nodes for the search; none if they would not even do for one packing. */
static uint64_t pack_nodes(const weft_plan *plan)
{
    double alive = 1;
    for (size_t i = 0; i < plan->n_buffers; i++)
        alive += plan->buffers[i].last - plan->buffers[i].first + 1;
    double nodes = PACK_WORK / alive < PACK_NODES ? PACK_WORK / alive : PACK_NODES;
    return nodes < 1.5 * (double)plan->n_buffers ? 0 : (uint64_t)nodes;
}

static bool pack_buffers(planner *p)
{
    weft_plan *plan = p->plan;
    weft_plan_stats *stats = &plan->stats;
    weft_pack_item *items = calloc(plan->n_buffers + 1, sizeof *items);
    if (!items) return no_memory(p);
    for (size_t i = 0; i < plan->n_buffers; i++) {
        const weft_plan_buffer *b = &plan->buffers[i];
        items[i] = (weft_pack_item){b->first, (int64_t)b->last + 1, b->bytes, 0};
    }
    /* No limit in seconds: a plan is the same on every machine. */
    const uint64_t nodes = pack_nodes(plan);
    const weft_pack_options options = {
        .alignment = 64, .node_budget = nodes, .best_fit_only = !nodes};
    weft_pack_result result;
    bool good = weft_pack(items, plan->n_buffers, &options, &result, p->error) == WEFT_OK;
    for (size_t i = 0; good && i < plan->n_buffers; i++) plan->buffers[i].offset = items[i].offset;
    stats->arena_bytes = result.arena_bytes;
    stats->lower_bound_bytes = result.lower_bound_bytes;
    stats->packed = result.end;
    free(items);
    return good;
}

static bool place_buffers(planner *p)
{
    weft_plan *plan = p->plan;
    weft_plan_stats *stats = &plan->stats;
    for (size_t i = 0; i < plan->n_buffers; i++) {
        if (stats->sum_bytes > SIZE_MAX / 4 - plan->buffers[i].bytes) {
            weft_error_set(p->error, WEFT_TOO_LARGE, "plan", "the buffers overflow a size");
            return false;
        }
        stats->sum_bytes += plan->buffers[i].bytes;
    }
    if (!pack_buffers(p)) return false;
    for (size_t i = 0; i < plan->n_steps; i++) {
        plan_step *step = &plan->steps[i];
        const node_record *node = &p->g->nodes[step->node];
        if (step->scratch) step->scratch = plan->buffers[step->scratch - 1].offset;
        place *at = plan->places + step->first_operand;
        for (size_t k = 0; k < node->n_in; k++) *at++ = place_of(p, node->in[k]);
        for (size_t k = 0; k < node->op->n_out; k++)
            *at++ = place_of(p, node->first_out + (uint32_t)k);
    }
    return true;
}

/* States need not be there yet: their sum may be beyond all sizes. */
static void add_bytes(size_t *sum, size_t bytes)
{
    *sum = bytes > SIZE_MAX - *sum ? SIZE_MAX : *sum + bytes;
}

static void fill_stats(planner *p)
{
    weft_plan_stats *s = &p->plan->stats;
    s->nodes = p->g->n_nodes;
    s->groups = p->plan->n_groups;
    s->buffers = p->plan->n_buffers;
    s->ratio = s->lower_bound_bytes ? (double)s->arena_bytes / (double)s->lower_bound_bytes : 1.0;
    for (size_t n = 0; n < p->g->n_nodes; n++)
        if (p->g->nodes[n].op == &weft_op_state)
            add_bytes(&s->state_bytes, storage_bytes(p->g, p->g->nodes[n].first_out));
}

/* ---- The whole ---- */

/* The targets, each once, and what the values of the program's graph are to it: the plan's graph
 * does not tell. */
static bool note_user_values(weft_plan *plan, const weft_graph *graph, const weft_value *targets,
                             size_t count)
{
    plan->kinds = arena_alloc(&plan->arena, graph->n_values);
    plan->targets = arena_alloc(&plan->arena, graph->n_values * sizeof *plan->targets);
    if (!plan->kinds || !plan->targets) return false;
    for (size_t v = 1; v < graph->n_values; v++) {
        const value_record *value = &graph->values[v];
        const node_record *node = &graph->nodes[value->node];
        const weft_op *root = graph->nodes[graph->values[value->root].node].op;
        if (node->op == &weft_op_input) plan->kinds[v] |= VALUE_INPUT;
        if (root == &weft_op_state && !node->op->alias) plan->kinds[v] |= VALUE_STATE;
    }
    for (size_t i = 0; i < count; i++) {
        const uint32_t v = targets[i].id;
        const bool is_state = graph->nodes[graph->values[v].node].op == &weft_op_state;
        if (plan->kinds[v] & VALUE_TARGET) continue;
        plan->kinds[v] |= VALUE_TARGET;
        plan->targets[plan->n_targets++] = (plan_target){targets[i], v, is_state};
    }
    return true;
}

static bool compile(planner *p, const weft_graph *graph, const weft_value *targets, size_t count,
                    const weft_plan_options *options)
{
    weft_plan *plan = p->plan;
    plan->n_map = graph->n_values;
    plan->user_tag = graph->tag;
    plan->map = arena_alloc(&plan->arena, graph->n_values * sizeof *plan->map);
    if (!plan->map || !note_user_values(plan, graph, targets, count)) return no_memory(p);
    plan->graph =
        passes_rewrite(graph, plan->targets, plan->n_targets, options, plan->map, p->error);
    if (!plan->graph) return false;
    /* A target may have been given a dense copy: reading it reads the copy. */
    for (size_t i = 0; i < plan->n_targets; i++)
        plan->map[plan->targets[i].user] = plan->targets[i].value.id;
    const weft_graph *g = p->g = plan->graph;
    p->schedule.order = calloc(g->n_nodes + 1, 4);
    p->schedule.n_fused = calloc(g->n_nodes + 1, 4);
    p->storage = calloc(g->n_values, 4);
    p->last_read = calloc(g->n_values, 4);
    p->pinned = calloc(g->n_values, 1);
    if (!p->schedule.order || !p->schedule.n_fused || !p->storage || !p->last_read || !p->pinned)
        return no_memory(p);
    if (!order_nodes(g, &p->schedule, p->error)) return false;
    if (!passes_schedule(g, &p->schedule, options)) return no_memory(p);
    p->no_reuse = options->no_reuse;
    unite_storages(p);
    return make_steps(p) && groups_make(plan, p->storage, p->error) && make_buffers(p) &&
           place_buffers(p);
}

static bool check_targets(const weft_graph *graph, const weft_value *targets, size_t count,
                          weft_error *error)
{
    const weft_error *e = weft_graph_error(graph);
    if (e->status != WEFT_OK) {
        weft_error_set(error, e->status, e->where, "%s", e->message);
        return false;
    }
    if (!targets || !count) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_plan_new",
                       "there are no targets, expected at least one value to compute");
        return false;
    }
    for (size_t i = 0; i < count; i++)
        if (!graph_owns(graph, targets[i])) {
            weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_plan_new",
                           "target %zu is no value of this graph", i);
            return false;
        }
    return true;
}

weft_plan *weft_plan_new(const weft_graph *graph, const weft_value *targets, size_t count,
                         const weft_plan_options *options, weft_error *error)
{
    static const weft_plan_options defaults = {0};
    if (error) memset(error, 0, sizeof *error);
    if (!options) options = &defaults;
    if (!check_targets(graph, targets, count, error) || !passes_check(options, error) ||
        weft_isa_check(error) != WEFT_OK)
        return NULL;
    planner p = {.plan = calloc(1, sizeof(weft_plan)), .error = error};
    bool good = p.plan ? compile(&p, graph, targets, count, options) : no_memory(&p);
    if (good) fill_stats(&p);
    free(p.schedule.order);
    free(p.schedule.n_fused);
    free(p.storage);
    free(p.last_read);
    free(p.pinned);
    if (good && options->verify) good = weft_plan_check(p.plan, error) == WEFT_OK;
    if (good) return p.plan;
    weft_plan_free(p.plan);
    return NULL;
}

void weft_plan_free(weft_plan *plan)
{
    if (!plan) return;
    weft_graph_free(plan->graph);
    arena_free(&plan->arena);
    free(plan);
}

weft_plan_stats weft_plan_get_stats(const weft_plan *plan)
{
    return plan ? plan->stats : (weft_plan_stats){0};
}

const weft_graph *weft_plan_graph(const weft_plan *plan)
{
    return plan ? plan->graph : NULL;
}

size_t weft_plan_buffers(const weft_plan *plan, const weft_plan_buffer **buffers)
{
    if (buffers) *buffers = plan ? plan->buffers : NULL;
    return plan ? plan->n_buffers : 0;
}
