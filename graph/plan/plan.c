/* The planner: from a graph and its targets to a schedule, and an offset for every buffer.
 *
 * 1. the passes rewrite the graph (passes/passes.c);
 * 2. its nodes are put in an order (order.c), and fused (fuse.c, a pass);
 * 3. views and ops in place share storage (storage.c);
 * 4. nodes become steps with kernels and tiles (steps.c), steps become intervals (intervals.c);
 * 5. buffers have lifetimes in intervals, and offsets (buffers.c, pack.c).
 * O(n log n) for n operands, except best fit, which is quadratic in the buffers and left out where
 * they are many, and the search for a smaller arena, which has a budget (pack.c). */
#include "plan/plan.h"

#include "ir/isa.h"

#include <stdlib.h>
#include <string.h>

/* Saturating sums: sizes may overflow, as those of states that no store holds yet. */
static void add_bytes(size_t *sum, size_t bytes)
{
    *sum = bytes > SIZE_MAX - *sum ? SIZE_MAX : *sum + bytes;
}

/* Counts the nodes of the forward pass that run again: those of the backward pass that are not
 * gradients and share the origin of a node of the forward pass. False if out of memory. */
static bool count_recomputed(weft_plan *plan)
{
    const weft_graph *g = plan->graph;
    weft_plan_stats *s = &plan->stats;
    uint8_t *forward = calloc((size_t)g->origins + 1, 1);
    double all = 0, again = 0; /* nanoseconds */
    if (!forward) return false;
    for (size_t i = 0; i < plan->n_steps; i++) {
        const node_record *node = &g->nodes[plan->steps[i].node];
        if (node->role.direction == WEFT_FORWARD) forward[node->origin] = 1;
    }
    for (size_t i = 0; i < plan->n_steps; i++) {
        const node_record *node = &g->nodes[plan->steps[i].node];
        const weft_cost cost = weft__plan_step_cost(plan, &plan->steps[i]);
        all += passes_nanoseconds(cost);
        if (node->role.direction != WEFT_BACKWARD || node->role.gradient_of ||
            !forward[node->origin])
            continue;
        again += passes_nanoseconds(cost);
        s->recomputed++;
        s->recomputed_flops += cost.flops;
        s->recomputed_bytes += cost.bytes;
    }
    s->recomputed_time = all > again ? again / (all - again) : 0;
    free(forward);
    return true;
}

static void fill_stats(weft_plan *plan)
{
    const weft_graph *g = plan->graph;
    weft_plan_stats *s = &plan->stats;
    s->nodes = g->n_nodes;
    for (uint32_t i = 0; i < plan->fixed_intervals; i++) s->fixed += plan->intervals[i].n_steps;
    s->intervals = plan->n_intervals;
    s->buffers = plan->n_buffers;
    for (size_t v = 1; v < g->n_values; v++)
        s->narrow += g->values[v].root == v && g->values[v].stored != g->values[v].type.dtype;
    s->ratio = s->lower_bound_bytes ? (double)s->arena_bytes / (double)s->lower_bound_bytes : 1.0;
    for (size_t n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].op == &weft_op_state)
            add_bytes(&s->state_bytes, weft__storage_bytes(g, g->nodes[n].first_out));
}

/* Records the targets, each once, and what each value of the program's graph is to the program: the
 * plan's graph no longer has this information. */
static bool record_user_values(weft_plan *plan, const weft_graph *graph, const weft_value *targets,
                               size_t count)
{
    plan->kinds = weft__arena_alloc(&plan->arena, graph->n_values);
    plan->targets = weft__arena_alloc(&plan->arena, graph->n_values * sizeof *plan->targets);
    if (!plan->kinds || !plan->targets) return false;
    for (size_t v = 1; v < graph->n_values; v++) {
        const value_record *value = &graph->values[v];
        const node_record *node = &graph->nodes[value->node];
        const weft_op *root = graph->nodes[graph->values[value->root].node].op;
        if (node->op == &weft_op_input) plan->kinds[v] |= VALUE_INPUT;
        if (root == &weft_op_state && !node->op->alias) plan->kinds[v] |= VALUE_STATE;
        if (node->op == &weft_op_state || node->op == &weft_op_constant)
            plan->kinds[v] |= VALUE_STORED;
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

static weft_plan *make_plan(const weft_graph *graph, const weft_value *targets, size_t count,
                            const weft_plan_options *options, body_storage *storage,
                            weft_error *error);

/* Lists how the operands of a scan are stored. False, with an error, if a carry changes its storage. */
static bool list_storage(const weft_graph *g, const node_record *node, const scan_body *b,
                         bool *narrow, weft_error *error)
{
    for (size_t i = 0; i < node->n_in + node->op->n_out; i++) {
        const uint32_t v =
            i < node->n_in ? node->in[i] : node->first_out + (uint32_t)(i - node->n_in);
        narrow[i] = g->values[v].stored != g->values[v].type.dtype;
    }
    for (uint32_t c = 0; c < b->n_carry; c++)
        if (narrow[c] != narrow[node->n_in + c]) {
            weft_error_set(error, WEFT_INTERNAL, "scan", "carry %u changes its storage", c);
            return false;
        }
    return true;
}

/* Plans the body of a scan. */
static bool plan_body(weft_plan *plan, uint32_t node, const weft_plan_options *options,
                      weft_error *error)
{
    plan_loop *loop = &plan->loops[plan->n_loops];
    const node_record *record = &plan->graph->nodes[node];
    *loop = (plan_loop){.node = node, .scan = scan_of(record->op, record->attr)};
    const scan_body *b = loop->scan->body;
    weft_value targets[WEFT_MAX_OUTPUTS];
    bool *narrow = calloc((size_t)scan_inputs(b) + b->n_carry + b->n_out, sizeof *narrow);
    body_storage storage = {.body = b, .narrow = narrow};
    for (uint32_t k = 0; k < b->n_carry + b->n_out; k++)
        targets[k] = weft__graph_value(b->graph, b->out[k]);
    if (!narrow)
        plan_no_memory(error);
    else if (list_storage(plan->graph, record, b, narrow, error))
        loop->body = make_plan(b->graph, targets, b->n_carry + b->n_out, options, &storage, error);
    free(narrow);
    if (!loop->body) return false;
    plan->n_loops++;
    return weft__loop_finish(plan, loop, error);
}

/* Plans the bodies of all scans, without the program's own passes. */
static bool plan_bodies(weft_plan *plan, const schedule *s, const weft_plan_options *options,
                        weft_error *error)
{
    const weft_graph *g = plan->graph;
    const weft_plan_options own = {.no_reuse = options->no_reuse,
                                   .skip = options->skip,
                                   .verify = options->verify,
                                   .precision = options->precision,
                                   .min_narrow = options->min_narrow,
                                   .keep_f32 = options->keep_f32};
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += scan_of(g->nodes[s->order[i]].op, g->nodes[s->order[i]].attr) != NULL;
    plan->loops = weft__arena_alloc(&plan->arena, (n + 1) * sizeof *plan->loops);
    if (!plan->loops) return plan_no_memory(error);
    for (size_t i = 0; n && i < s->n; i++)
        if (scan_of(g->nodes[s->order[i]].op, g->nodes[s->order[i]].attr) &&
            !plan_body(plan, s->order[i], &own, error))
            return false;
    return true;
}

/* Schedules the plan's graph; the arrays of *s and storage[value id] are the caller's to free. */
static bool schedule_nodes(weft_plan *plan, schedule *s, uint32_t **storage,
                           const weft_plan_options *options, weft_error *error)
{
    const weft_graph *g = plan->graph;
    s->order = calloc(g->n_nodes + 1, sizeof *s->order);
    s->n_fused = calloc(g->n_nodes + 1, sizeof *s->n_fused);
    *storage = calloc(g->n_values, sizeof **storage);
    if (!s->order || !s->n_fused || !*storage) return plan_no_memory(error);
    if (!weft__order_nodes(g, plan->targets, plan->n_targets, s, error)) return false;
    if (((options->fixed_states || plan->body) && !weft__order_fixed(plan, s)) ||
        !weft__passes_schedule(g, s, options) ||
        !weft__storage_assign(g, s, plan->targets, plan->n_targets, options->no_reuse, *storage))
        return plan_no_memory(error);
    return plan_bodies(plan, s, options, error) && weft__steps_make(plan, s, error);
}

/* The outputs and scratch of all steps of an interval are alive at the same time. Where that causes
 * the peak of live bytes, the steps run one after another, at the cost of a barrier. */
#define MAX_SPLITS 64

/* Marks the nodes of an interval that can be split; false if it cannot. */
static bool mark_alone(const weft_plan *plan, uint32_t interval, uint8_t *alone)
{
    const plan_interval *g = &plan->intervals[interval];
    uint32_t units = 0;
    for (uint32_t i = g->first_step; i < g->first_step + g->n_steps; i++)
        units += !plan->steps[i].fused;
    for (uint32_t i = g->first_step; units > 1 && i < g->first_step + g->n_steps; i++)
        if (!plan->steps[i].fused) alone[plan->steps[i].node] = 1;
    return units > 1;
}

/* Intervals and lifetimes of buffers. */
static bool cut_intervals(weft_plan *plan, const schedule *s, const uint32_t *storage,
                          bool no_reuse, weft_error *error)
{
    uint8_t *alone = calloc(plan->graph->n_nodes + 1, 1);
    size_t first = 0, bytes = 0;
    bool good = alone || plan_no_memory(error), split = true;
    for (int i = 0; good && split && i <= MAX_SPLITS; i++) {
        uint32_t peak = 0;
        good = weft__intervals_cut(plan, storage, s->n_fixed, alone, error) &&
               weft__buffers_make(plan, storage, no_reuse, error) &&
               (weft__buffers_peak(plan, &peak, &bytes) || plan_no_memory(error));
        if (!i) first = bytes;
        split = good && !no_reuse && plan->n_intervals && mark_alone(plan, peak, alone);
    }
    /* Barriers that save almost nothing are not worth their time. */
    if (good && (double)bytes > 0.99 * (double)first)
        good = weft__intervals_cut(plan, storage, s->n_fixed, NULL, error) &&
               weft__buffers_make(plan, storage, no_reuse, error);
    free(alone);
    return good && weft__intervals_finish(plan, error);
}

static bool compile(weft_plan *plan, const weft_graph *graph, const weft_value *targets,
                    size_t count, const weft_plan_options *options, body_storage *storage,
                    weft_error *error)
{
    plan->n_map = graph->n_values;
    plan->user_tag = graph->tag;
    plan->map = weft__arena_alloc(&plan->arena, graph->n_values * sizeof *plan->map);
    if (!plan->map || !record_user_values(plan, graph, targets, count))
        return plan_no_memory(error);
    if (storage) storage->map = plan->map;
    plan->graph = weft__passes_rewrite(graph, plan->targets, plan->n_targets, options, plan->map,
                                       storage, error);
    if (!plan->graph) return false;
    /* A pass may have made a copy of a target: then reading the target reads that. In a body, where a
     * target may be an input, the loop knows. */
    for (size_t i = 0; !storage && i < plan->n_targets; i++)
        plan->map[plan->targets[i].user] = plan->targets[i].value.id;
    schedule s = {0};
    uint32_t *lies_in = NULL;
    bool good = schedule_nodes(plan, &s, &lies_in, options, error) &&
                cut_intervals(plan, &s, lies_in, options->no_reuse, error) &&
                weft__buffers_place(plan, error);
    free(s.order);
    free(s.n_fused);
    free(lies_in);
    if (good) fill_stats(plan);
    if (good && !count_recomputed(plan)) good = plan_no_memory(error);
    return good;
}

static bool check_targets(const weft_graph *graph, const weft_value *targets, size_t count,
                          weft_error *error)
{
    if (weft_error_copy(error, weft_graph_error(graph)) != WEFT_OK) return false;
    if (!targets || !count) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_plan_new",
                       "there are no targets, expected at least one value to compute");
        return false;
    }
    for (size_t i = 0; i < count; i++)
        if (!weft__graph_owns(graph, targets[i])) {
            weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_plan_new",
                           "target %zu does not belong to this graph", i);
            return false;
        }
    return true;
}

/* Lists the steps for programs. */
static bool list_steps(weft_plan *plan, weft_error *error)
{
    weft_plan_step *to = weft__arena_alloc(&plan->arena, (plan->n_steps + 1) * sizeof *to);
    plan->listed = to;
    if (!to) return plan_no_memory(error);
    for (uint32_t g = 0; g < plan->n_intervals; g++) {
        const plan_interval *interval = &plan->intervals[g];
        size_t head = 0, n_fused = 0; /* of the fused group: steps that are still to come */
        for (size_t i = interval->first_step; i < interval->first_step + interval->n_steps; i++) {
            const plan_step *step = &plan->steps[i];
            if (!n_fused) head = step->node;
            n_fused = n_fused ? n_fused - 1 : step->n_fused;
            to[i] = (weft_plan_step){.node = step->node,
                                     .head = head,
                                     .interval = g,
                                     .superstep = interval->superstep,
                                     .fixed = g < plan->fixed_intervals,
                                     .scratch = step->scratch_buffer ? step->scratch_buffer - 1
                                                                     : SIZE_MAX};
        }
    }
    return true;
}

/* A plan that is complete, or NULL. */
static weft_plan *make_plan(const weft_graph *graph, const weft_value *targets, size_t count,
                            const weft_plan_options *options, body_storage *storage,
                            weft_error *error)
{
    weft_plan *plan = calloc(1, sizeof *plan);
    if (plan && storage) plan->body = storage->body;
    bool good = plan ? compile(plan, graph, targets, count, options, storage, error)
                     : plan_no_memory(error);
    good = good && list_steps(plan, error);
    if (good && options->verify) good = weft_plan_check(plan, error) == WEFT_OK;
    if (good) return plan;
    weft_plan_free(plan);
    return NULL;
}

/* The pass recompute only estimates the arena. So its target is corrected by the arena that the
 * last target led to. */
#define MAX_TARGETS_TRIED 6

/* Replaces a plan that exceeds the budget by the cheapest one that does not, of those tried. */
static weft_plan *plan_within(weft_plan *plan, const weft_graph *graph, const weft_value *targets,
                              size_t count, const weft_plan_options *options, weft_error *error)
{
    const size_t budget = options->memory_budget, without = plan->stats.arena_bytes;
    weft_plan_options tried = *options;
    weft_plan *best = NULL;
    size_t smallest = without, low = 0, high = 0; /* targets that led below and above the budget */
    weft_plan_free(plan);
    for (int i = 0; i < MAX_TARGETS_TRIED; i++) {
        weft_plan *next = make_plan(graph, targets, count, &tried, NULL, error);
        if (!next) {
            weft_plan_free(best);
            return NULL;
        }
        const size_t bytes = next->stats.arena_bytes;
        const double ratio = (double)budget / (double)(bytes + 1);
        if (bytes < smallest) smallest = bytes;
        if (bytes <= budget && (!low || tried.memory_budget > low)) low = tried.memory_budget;
        if (bytes > budget && (!high || tried.memory_budget < high)) high = tried.memory_budget;
        if (bytes <= budget &&
            (!best || next->stats.recomputed_flops < best->stats.recomputed_flops)) {
            weft_plan_free(best);
            best = next;
        } else {
            weft_plan_free(next);
        }
        tried.memory_budget =
            low && high ? low + (high - low) / 2 : (size_t)((double)tried.memory_budget * ratio);
        if (!tried.memory_budget || tried.memory_budget == low || tried.memory_budget == high)
            break;
    }
    if (!best)
        weft_error_set(error, WEFT_TOO_LARGE, "weft_plan_options.memory_budget",
                       "the arena would take %zu bytes, the budget is %zu; without recomputation "
                       "it would take %zu",
                       smallest, budget, without);
    return best;
}

weft_plan *weft_plan_new(const weft_graph *graph, const weft_value *targets, size_t count,
                         const weft_plan_options *options, weft_error *error)
{
    static const weft_plan_options defaults = {0};
    weft_error_clear(error);
    if (!options) options = &defaults;
    if (!check_targets(graph, targets, count, error) || !weft__passes_check(options, error) ||
        weft__isa_check(error) != WEFT_OK)
        return NULL;
    weft_plan_options first = *options;
    first.memory_budget = 0;
    weft_plan *plan = make_plan(graph, targets, count, &first, NULL, error);
    if (!plan || !options->memory_budget || plan->stats.arena_bytes <= options->memory_budget)
        return plan;
    return plan_within(plan, graph, targets, count, options, error);
}

void weft_plan_free(weft_plan *plan)
{
    if (!plan) return;
    for (size_t i = 0; i < plan->n_loops; i++) weft_plan_free(plan->loops[i].body);
    weft_graph_free(plan->graph);
    weft__arena_free(&plan->arena);
    free(plan);
}

weft_plan_stats weft_plan_stats_of(const weft_plan *plan)
{
    return plan ? plan->stats : (weft_plan_stats){0};
}

const weft_graph *weft_plan_graph(const weft_plan *plan)
{
    return plan ? plan->graph : NULL;
}

weft_value weft_plan_value(const weft_plan *plan, weft_value value)
{
    if (!plan || value.graph != plan->user_tag || value.id >= plan->n_map) return WEFT_NO_VALUE;
    return weft__graph_value(plan->graph, plan->map[value.id]);
}

size_t weft_plan_buffer_of(const weft_plan *plan, weft_value value)
{
    const bool known = plan && weft__graph_owns(plan->graph, value);
    const uint32_t buffer = known ? plan->buffer_of[value.id] : 0;
    return buffer ? buffer - 1 : SIZE_MAX;
}

const weft_plan_step *weft_plan_steps(const weft_plan *plan, size_t *count)
{
    if (count) *count = plan ? plan->n_steps : 0;
    return plan ? plan->listed : NULL;
}

const weft_plan_buffer *weft_plan_buffers(const weft_plan *plan, size_t *count)
{
    if (count) *count = plan ? plan->n_buffers : 0;
    return plan ? plan->buffers : NULL;
}
