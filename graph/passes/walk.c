/* One walk of a pass, or of some that share it: it reads a graph in topological order and writes a
 * new one, node by node; what the passes leave alone is copied. Nodes that no target needs are
 * never copied, so every pass removes dead code. O(nodes). */
#include "rewrite.h"
#include "unroll.h"

#include <stdlib.h>
#include <string.h>

/* ---- What is fixed ---- */

void weft__passes_mark_fixed(const weft_graph *graph, uint8_t *fixed)
{
    for (size_t n = 0; n < graph->n_nodes; n++) {
        const weft_op *op = graph->nodes[n].op;
        fixed[n] = fixed[n] || op == &weft_op_state || op == &weft_op_constant ||
                   (!weft__op_is_leaf(op) && op != &weft_op_group && !op->updates && !op->random &&
                    !op->can_fail && !op->exchanges);
    }
    for (size_t n = 0; n < graph->n_nodes; n++)
        for (size_t i = 0; i < graph->nodes[n].op->updates; i++)
            fixed[graph->values[graph->values[graph->nodes[n].in[i]].root].node] = 0;
    for (size_t n = 0; n < graph->n_nodes; n++)
        for (size_t i = 0; i < graph->nodes[n].n_in; i++)
            fixed[n] &= fixed[graph->values[graph->nodes[n].in[i]].node];
}

/* ---- The walk ---- */

void weft__rewrite_copy(weft_rewrite *r)
{
    weft__graph_copy_node(r->graph, &r->node, r->in, r->out);
}

/* Marks in alive[] the nodes that the targets need, by walking back through them all. */
static void mark_alive(const weft_graph *graph, const plan_target *targets, size_t n_targets,
                       uint8_t *alive)
{
    for (size_t i = 0; i < n_targets; i++) alive[graph->values[targets[i].value.id].node] = 1;
    for (size_t n = graph->n_nodes; n-- > 0;)
        for (size_t i = 0; alive[n] && i < graph->nodes[n].n_in; i++)
            alive[graph->values[graph->nodes[n].in[i]].node] = 1;
}

/* A program's own pass may not replace nodes that the planner or the session relies on. */
static bool may_visit(const walk *w, const weft_op *op)
{
    return !w->own || (!weft__op_is_leaf(op) && op != &weft_op_group && !op->updates);
}

/* Fails unless output i of the node has been replaced by a value of the same type. */
static void check_output(const weft_pass *p, weft_rewrite *r, size_t i)
{
    char have[128], want[128];
    if (weft_graph_status(r->graph) != WEFT_OK) return;
    const weft_type *old = &r->source->values[r->node.first_out + i].type;
    if (!weft__graph_owns(r->graph, r->out[i])) {
        weft_graph_fail_in(
            r->graph, r->node.op->name, WEFT_BAD_ARGUMENT,
            "the pass \"%s\" returned a value for output %zu that does not belong to the new graph",
            p->name, i);
        return;
    }
    const weft_type *new = &r->graph->values[r->out[i].id].type;
    const bool same_dtype = new->dtype == old->dtype;
    if (same_dtype && weft_shape_equal(new->shape, old->shape)) return;
    weft_graph_fail_in(r->graph, r->node.op->name, same_dtype ? WEFT_BAD_SHAPE : WEFT_BAD_DTYPE,
                       "the pass \"%s\" returned %s %s for output %zu, expected %s %s", p->name,
                       weft_dtype_name(new->dtype), weft_shape_text(new->shape, have, sizeof have),
                       i, weft_dtype_name(old->dtype),
                       weft_shape_text(old->shape, want, sizeof want));
}

static void rewrite_node(const walk *w, weft_rewrite *r, uint32_t *map)
{
    const node_record *node = &r->source->nodes[r->index];
    weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}};
    r->node = weft_graph_node(r->source, r->index);
    r->out = out;
    for (size_t i = 0; i < node->n_in; i++)
        r->in[i] = weft__graph_value(r->graph, map[node->in[i]]);
    weft__graph_set_origin(r->graph, node);
    bool replaced = false;
    for (size_t p = 0; p < w->n && !replaced; p++) {
        r->memory = w->memory[p];
        r->context = w->passes[p]->context;
        replaced = may_visit(w, node->op) && w->passes[p]->visit(r);
    }
    if (!replaced) weft__rewrite_copy(r);
    for (size_t i = 0; i < node->op->n_out; i++) {
        const value_record *old = &r->source->values[node->first_out + i];
        if (!w->drops || out[i].id) check_output(w->passes[0], r, i);
        if (weft_graph_status(r->graph) != WEFT_OK) return;
        map[node->first_out + i] = out[i].id;
        if (old->name && out[i].id && !r->graph->values[out[i].id].name)
            weft__graph_name_value(r->graph, out[i].id, old->name, "weft_plan_new");
    }
}

static void rewrite_all(const walk *w, weft_rewrite *r, plan_target *targets, size_t n_targets,
                        const uint8_t *alive, uint32_t *map)
{
    weft__graph_count_on(r->graph, r->source);
    for (; r->index < r->source->n_nodes && weft_graph_status(r->graph) == WEFT_OK; r->index++)
        if (alive[r->index]) rewrite_node(w, r, map);
    for (size_t i = 0; i < n_targets; i++)
        targets[i].value = weft__graph_value(r->graph, map[targets[i].value.id]);
    if (w->finish && weft_graph_status(r->graph) == WEFT_OK)
        w->finish(r->graph, targets, n_targets, w->passes[0]->context);
}

static bool allocate(walk *w, const weft_graph *source)
{
    bool good = true;
    for (size_t p = 0; p < w->n; p++) {
        const weft_pass *rule = w->passes[p];
        w->memory[p] = calloc(1, rule->memory_bytes ? rule->memory_bytes(source) + 1 : 1);
        good = good && w->memory[p];
    }
    return good;
}

weft_graph *weft__walk_run(walk *w, const weft_graph *source, plan_target *targets,
                           size_t n_targets, const weft_plan_options *options, uint32_t *map,
                           weft_error *error)
{
    size_t max_in = 1;
    for (size_t i = 0; i < source->n_nodes; i++)
        if (source->nodes[i].n_in > max_in) max_in = source->nodes[i].n_in;
    weft_rewrite r = {.source = source,
                      .graph = w->into ? w->into : weft_graph_new(),
                      .in = calloc(max_in, sizeof(weft_value)),
                      .options = options};
    uint8_t *alive = calloc(source->n_nodes + 1, 1), *fixed = calloc(source->n_nodes + 1, 1);
    bool good = allocate(w, source) && r.graph && r.in && alive && fixed;
    if (!good) {
        weft_error_set(error, WEFT_NO_MEMORY, "plan", "no memory for the pass \"%s\"",
                       w->passes[0]->name);
    } else {
        mark_alive(source, targets, n_targets, alive);
        if (options && options->fixed_states) {
            weft__passes_mark_fixed(source, fixed);
            r.fixed = fixed;
        }
        rewrite_all(w, &r, targets, n_targets, alive, map);
        good = r.graph->error.status == WEFT_OK;
        if (!good) weft_error_copy(error, &r.graph->error);
    }
    for (size_t p = 0; p < w->n; p++) free(w->memory[p]);
    free(r.in);
    free(alive);
    free(fixed);
    if (good) return r.graph;
    if (!w->into) weft_graph_free(r.graph);
    return NULL;
}

/* ---- For builders ---- */

/* The values that exist, as targets of a walk. */
static size_t list_targets(const weft_value *values, size_t n, plan_target *targets)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (weft_is_value(values[i])) targets[count++] = (plan_target){.value = values[i]};
    return count;
}

static bool visit_nothing(weft_rewrite *r)
{
    (void)r;
    return false;
}

/* Writes into `graph` what the pass makes of the source. A second walk leaves out what the pass has
 * replaced, such as states that no other node reads. */
static void rewrite_into(weft_graph *graph, const weft_graph *source, const weft_pass *rule,
                         plan_target *targets, size_t n_targets)
{
    static const weft_pass nothing = {.name = "copy", .visit = visit_nothing};
    weft_error error = {.status = WEFT_OK};
    walk first = {.passes = {rule}, .n = 1}, second = {.passes = {&nothing}, .n = 1, .into = graph};
    uint32_t *map = calloc(source->n_values + 1, sizeof *map);
    weft_graph *made = NULL;
    if (map) made = weft__walk_run(&first, source, targets, n_targets, NULL, map, &error);
    free(map);
    map = made ? calloc(made->n_values + 1, sizeof *map) : NULL;
    if (map)
        weft__walk_run(&second, made, targets, n_targets, NULL, map, &error);
    else if (error.status == WEFT_OK)
        weft_error_set(&error, WEFT_NO_MEMORY, rule->name, "no memory");
    if (error.status != WEFT_OK)
        weft_graph_fail_in(graph, error.where, error.status, "%s", error.message);
    free(map);
    weft_graph_free(made);
}

static const char where[] = "weft_graph_rewrite";

/* The graph that the rule reads, of which values[] become those: the source, or, if it has loops and the rule
 * needs their steps, a copy without them, which the caller frees. NULL, and the error is that of `graph`, on
 * failure. */
static const weft_graph *unrolled_source(weft_graph *graph, const weft_graph *source,
                                         const weft_pass *rule, weft_value *values, size_t n)
{
    if (!rule->unrolls || !weft__unroll_needed(source)) return source;
    weft_graph *steps = weft_graph_new();
    if (weft_graph_rewrite(steps, source, &weft__unroll, values, n) == WEFT_OK) return steps;
    weft_graph_fail_in(graph, where, weft_graph_status(steps), "%s",
                       weft_graph_error(steps)->message);
    weft_graph_free(steps);
    return NULL;
}

weft_status weft_graph_rewrite(weft_graph *graph, const weft_graph *source, const weft_pass *rule,
                               weft_value *values, size_t n)
{
    if (weft_graph_status(graph) != WEFT_OK) return weft_graph_status(graph);
    if (!source || !rule || !rule->visit || (!values && n) || source == graph)
        weft_graph_fail_in(graph, where, WEFT_BAD_ARGUMENT,
                           "needs another graph, a pass and values");
    else if (source->error.status != WEFT_OK)
        weft_graph_fail_in(graph, source->error.where, source->error.status, "%s",
                           source->error.message);
    for (size_t i = 0; i < n && weft_graph_status(graph) == WEFT_OK; i++)
        if (weft_is_value(values[i]) && !weft__graph_owns(source, values[i]))
            weft_graph_fail_in(graph, where, WEFT_BAD_ARGUMENT,
                               "value %zu does not belong to the other graph", i);
    if (weft_graph_status(graph) != WEFT_OK) return weft_graph_status(graph);
    const weft_graph *from = unrolled_source(graph, source, rule, values, n);
    if (!from) return weft_graph_status(graph);
    plan_target *targets = calloc(n + 1, sizeof *targets);
    const size_t n_targets = targets ? list_targets(values, n, targets) : 0;
    char scope[SCOPE_BYTES];
    memcpy(scope, graph->scope, sizeof scope);
    const weft_role role = graph->role;
    if (targets)
        rewrite_into(graph, from, rule, targets, n_targets);
    else
        weft_graph_fail_in(graph, where, WEFT_NO_MEMORY, "no memory");
    for (size_t i = 0, k = 0; i < n && weft_graph_status(graph) == WEFT_OK; i++)
        if (weft_is_value(values[i])) values[i] = targets[k++].value;
    weft__graph_set_origin(graph, NULL);
    weft__graph_set_scope(graph, scope);
    graph->role = role;
    free(targets);
    if (from != source) weft_graph_free((weft_graph *)(uintptr_t)from);
    return weft_graph_status(graph);
}
