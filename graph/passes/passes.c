/* The list of passes, and what runs them. A pass walks a graph in topological order and writes a
 * new one, node by node; what it leaves alone is copied. Nodes that no target needs are never
 * copied, so every pass removes dead code. O(nodes) each. */
#include "rewrite.h"

#include <stdlib.h>
#include <string.h>

static bool with_fixed_states(const weft_plan_options *options)
{
    return options->fixed_states;
}

/* Panels are of f32. */
static bool with_panels(const weft_plan_options *options)
{
    return options->fixed_states && options->precision == WEFT_PRECISION_F32;
}

static bool in_bf16(const weft_plan_options *options)
{
    return options->precision == WEFT_PRECISION_BF16;
}

static bool within_budget(const weft_plan_options *options)
{
    return options->memory_budget > 0;
}

/* In this order, after the program's own passes. */
static const pass passes[] = {
    {.rule = &weft__pass_join_slices},
    {.rule = &weft__pass_join_products, .joined = true},
    {.rule = &weft__pass_reuse_dropout, .joined = true},
    {.rule = &weft__pass_expand, .required = true, .repeats = true},
    {.rule = &weft__pass_cse},
    {.rule = &weft__pass_fold_conv},
    {.rule = &weft__pass_fold},
    {.rule = &weft__pass_attention},
    {.rule = &weft__pass_channels_last, .wanted = with_fixed_states},
    {.rule = &weft__pass_pack_weights, .wanted = with_panels},
    {.rule = &weft__pass_layout, .required = true, .finish = weft__layout_finish},
    {.rule = &weft__pass_precision, .wanted = in_bf16, .open = weft__precision_open, .close = free},
    {.rule = &weft__pass_recompute,
     .wanted = within_budget,
     .open = weft__recompute_open,
     .close = weft__recompute_close},
    {.rule = &weft__pass_fuse, .schedule = weft__fuse_schedule},
};
#define N_PASSES (sizeof passes / sizeof *passes)
#define ALL      "all"
/* The most rounds of a pass that repeats: deeper expansions count as endless. */
#define MAX_ROUNDS 17

/* ---- Skipping ---- */

static bool is_word(const char *word, size_t length, const char *name)
{
    return strlen(name) == length && !strncmp(word, name, length);
}

static bool listed(const char *list, const char *name)
{
    for (const char *at = list; at && *at; at += *at == ',') {
        size_t n = strcspn(at, ",");
        if (is_word(at, n, name) || is_word(at, n, ALL)) return true;
        at += n;
    }
    return false;
}

static bool is_skipped(const pass *p, const weft_plan_options *options)
{
    if (p->wanted && !p->wanted(options)) return true;
    return !p->required && !p->rule->required &&
           (listed(options->skip, p->rule->name) || listed(getenv("WEFT_SKIP"), p->rule->name));
}

static bool is_optional(const weft_plan_options *options, const char *word, size_t length)
{
    for (size_t p = 0; p < N_PASSES; p++)
        if (!passes[p].required && is_word(word, length, passes[p].rule->name)) return true;
    for (size_t p = 0; p < options->n_passes; p++)
        if (!options->passes[p].required && is_word(word, length, options->passes[p].name))
            return true;
    return is_word(word, length, ALL);
}

/* Whether a list has names of optional passes only; `where` names it in the message. */
static bool check_names(const weft_plan_options *options, const char *list, const char *where,
                        weft_error *error)
{
    for (const char *at = list; at && *at; at += *at == ',') {
        size_t n = strcspn(at, ","), used = 0;
        if (n && !is_optional(options, at, n)) {
            char names[256] = "";
            for (size_t p = 0; p < N_PASSES + options->n_passes && used < sizeof names; p++) {
                if (p < N_PASSES ? passes[p].required : options->passes[p - N_PASSES].required)
                    continue;
                used += (size_t)snprintf(names + used, sizeof names - used, "%s, ",
                                         p < N_PASSES ? passes[p].rule->name
                                                      : options->passes[p - N_PASSES].name);
            }
            weft_error_set(error, WEFT_BAD_ARGUMENT, where,
                           "unknown optional pass \"%.*s\"; expected %s" ALL, (int)n, at, names);
            return false;
        }
        at += n;
    }
    return true;
}

static const char *wrong_pass(const weft_plan_options *options, size_t index)
{
    const weft_pass *rule = &options->passes[index];
    if (!rule->name || !*rule->name) return "needs a name";
    if (!rule->visit) return "needs a visit function";
    if (strchr(rule->name, ',') || !strcmp(rule->name, ALL))
        return "has a name that is reserved or contains a comma";
    for (size_t p = 0; p < N_PASSES; p++)
        if (!strcmp(rule->name, passes[p].rule->name)) return "has a name that is taken";
    for (size_t p = 0; p < index; p++)
        if (!strcmp(rule->name, options->passes[p].name)) return "has a name that is taken";
    return NULL;
}

bool weft__passes_check(const weft_plan_options *options, weft_error *error)
{
    const char *where = "weft_plan_options.passes";
    if (options->n_passes && !options->passes) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, where, "the list is NULL, expected %zu passes",
                       options->n_passes);
        return false;
    }
    for (size_t p = 0; p < options->n_passes; p++) {
        const char *wrong = wrong_pass(options, p);
        if (!wrong) continue;
        const char *name = options->passes[p].name;
        weft_error_set(error, WEFT_BAD_ARGUMENT, where, "pass %zu%s%s%s %s", p, name ? " \"" : "",
                       name ? name : "", name ? "\"" : "", wrong);
        return false;
    }
    if ((unsigned)options->precision > WEFT_PRECISION_BF16) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_plan_options.precision",
                       "invalid precision %d; expected WEFT_PRECISION_F32 or WEFT_PRECISION_BF16",
                       (int)options->precision);
        return false;
    }
    return check_names(options, options->skip, "weft_plan_options.skip", error) &&
           check_names(options, getenv("WEFT_SKIP"), "WEFT_SKIP", error);
}

/* ---- What is fixed ---- */

void weft__passes_mark_fixed(const weft_graph *graph, uint8_t *fixed)
{
    for (size_t n = 0; n < graph->n_nodes; n++) {
        const weft_op *op = graph->nodes[n].op;
        fixed[n] = op == &weft_op_state || op == &weft_op_constant ||
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

/* ---- One walk over a graph ---- */

#define MAX_JOINED 4

/* The passes that share a walk, nearly always one. */
typedef struct walk {
    const pass *passes[MAX_JOINED];
    void *states[MAX_JOINED];
    size_t n;
} walk;

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
static bool may_visit(const pass *p, const weft_op *op)
{
    return !p->own || (!weft__op_is_leaf(op) && op != &weft_op_group && !op->updates);
}

/* Fails unless output i of the node has been replaced by a value of the same type. */
static void check_output(const pass *p, weft_rewrite *r, size_t i)
{
    char have[128], want[128];
    if (weft_graph_status(r->graph) != WEFT_OK) return;
    const weft_type *old = &r->source->values[r->node.first_out + i].type;
    if (!weft__graph_owns(r->graph, r->out[i])) {
        weft_graph_fail_in(
            r->graph, r->node.op->name, WEFT_BAD_ARGUMENT,
            "the pass \"%s\" returned a value for output %zu that does not belong to the new graph",
            p->rule->name, i);
        return;
    }
    const weft_type *new = &r->graph->values[r->out[i].id].type;
    const bool same_dtype = new->dtype == old->dtype;
    if (same_dtype && weft_shape_equal(new->shape, old->shape)) return;
    weft_graph_fail_in(r->graph, r->node.op->name, same_dtype ? WEFT_BAD_SHAPE : WEFT_BAD_DTYPE,
                       "the pass \"%s\" returned %s %s for output %zu, expected %s %s",
                       p->rule->name, weft_dtype_name(new->dtype),
                       weft_shape_text(new->shape, have, sizeof have), i,
                       weft_dtype_name(old->dtype), weft_shape_text(old->shape, want, sizeof want));
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
        r->state = w->states[p];
        r->context = w->passes[p]->rule->context;
        replaced = may_visit(w->passes[p], node->op) && w->passes[p]->rule->visit(r);
    }
    if (!replaced) weft__rewrite_copy(r);
    for (size_t i = 0; i < node->op->n_out; i++) {
        const value_record *old = &r->source->values[node->first_out + i];
        check_output(w->passes[0], r, i);
        if (weft_graph_status(r->graph) != WEFT_OK) return;
        map[node->first_out + i] = out[i].id;
        if (old->name && !r->graph->values[out[i].id].name)
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
    for (size_t p = 0; p < w->n && weft_graph_status(r->graph) == WEFT_OK; p++)
        if (w->passes[p]->finish) w->passes[p]->finish(r->graph, targets, n_targets);
}

static bool make_states(walk *w, const weft_graph *source)
{
    bool good = true;
    for (size_t p = 0; p < w->n; p++) {
        const weft_pass *rule = w->passes[p]->rule;
        w->states[p] = calloc(1, rule->state_bytes ? rule->state_bytes(source) + 1 : 1);
        good = good && w->states[p];
    }
    return good;
}

/* Rewrites `source`, and returns the new graph or NULL; map[id of source] becomes the id there. */
static weft_graph *run_walk(walk *w, const weft_graph *source, plan_target *targets,
                            size_t n_targets, bool fixed_states, uint32_t *map, weft_error *error)
{
    size_t max_in = 1;
    for (size_t i = 0; i < source->n_nodes; i++)
        if (source->nodes[i].n_in > max_in) max_in = source->nodes[i].n_in;
    weft_rewrite r = {
        .source = source, .graph = weft_graph_new(), .in = calloc(max_in, sizeof(weft_value))};
    uint8_t *alive = calloc(source->n_nodes + 1, 1), *fixed = calloc(source->n_nodes + 1, 1);
    bool good = make_states(w, source) && r.graph && r.in && alive && fixed;
    if (!good) {
        weft_error_set(error, WEFT_NO_MEMORY, "plan", "no memory for the pass \"%s\"",
                       w->passes[0]->rule->name);
    } else {
        mark_alive(source, targets, n_targets, alive);
        if (fixed_states) {
            weft__passes_mark_fixed(source, fixed);
            r.fixed = fixed;
        }
        rewrite_all(w, &r, targets, n_targets, alive, map);
        good = r.graph->error.status == WEFT_OK;
        if (!good) weft_error_copy(error, &r.graph->error);
    }
    for (size_t p = 0; p < w->n; p++) free(w->states[p]);
    free(r.in);
    free(alive);
    free(fixed);
    if (good) return r.graph;
    weft_graph_free(r.graph);
    return NULL;
}

/* ---- Running them all ---- */

typedef struct compilation {
    const weft_graph *graph, *source; /* the program's; what the passes so far made of it */
    weft_graph *owned;                /* the source, unless it is the program's */
    plan_target *targets;
    size_t n_targets;
    uint32_t *map;
    const weft_plan_options *options;
    weft_error *error;
} compilation;

static bool run_once(compilation *c, walk *w)
{
    uint32_t *step = calloc(c->source->n_values, sizeof *step);
    weft_graph *next = NULL;
    if (step)
        next = run_walk(w, c->source, c->targets, c->n_targets, c->options->fixed_states, step,
                        c->error);
    else
        weft_error_set(c->error, WEFT_NO_MEMORY, "plan", "no memory for the passes");
    for (size_t i = 0; next && i < c->graph->n_values; i++) c->map[i] = step[c->map[i]];
    free(step);
    weft_graph_free(c->owned);
    c->source = c->owned = next;
    return next && (!c->options->verify || weft_graph_verify(next, c->error) == WEFT_OK);
}

/* Those of n passes that are to run now. */
static walk make_walk(const compilation *c, const pass *first, size_t n)
{
    walk w = {.n = 0};
    for (const pass *p = first; p < first + n; p++)
        if (p->rule->visit && !is_skipped(p, c->options) &&
            (!p->rule->needed || p->rule->needed(c->source)))
            w.passes[w.n++] = p;
    return w;
}

/* Runs n passes that share a walk. */
static bool run(compilation *c, const pass *first, size_t n)
{
    for (int round = 0; round < MAX_ROUNDS; round++) {
        walk w = make_walk(c, first, n);
        if (!w.n) return true;
        if (!run_once(c, &w)) return false;
        if (!first->repeats) return true;
    }
    weft_error_set(c->error, WEFT_INTERNAL, "plan", "an expansion never ends");
    return false;
}

/* Runs a pass whose context is made from the graph. */
static bool run_opened(compilation *c, const pass *p)
{
    if (is_skipped(p, c->options)) return true;
    weft_pass rule = *p->rule;
    rule.context = p->open(c->source, c->targets, c->n_targets, c->options);
    const bool good = rule.context && run(c, &(pass){.rule = &rule}, 1);
    if (!rule.context)
        weft_error_set(c->error, WEFT_NO_MEMORY, "plan", "no memory for the pass \"%s\"",
                       rule.name);
    p->close(rule.context);
    return good;
}

weft_graph *weft__passes_rewrite(const weft_graph *graph, plan_target *targets, size_t n_targets,
                                 const weft_plan_options *options, uint32_t *map, weft_error *error)
{
    compilation c = {.graph = graph,
                     .source = graph,
                     .targets = targets,
                     .n_targets = n_targets,
                     .map = map,
                     .options = options,
                     .error = error};
    bool good = true, stores = false;
    for (size_t i = 0; i < graph->n_values; i++) map[i] = (uint32_t)i;
    for (size_t i = 0; good && i < options->n_passes; i++)
        good = run(&c, &(pass){.rule = &options->passes[i], .own = true}, 1);
    for (size_t i = 0, n = 1; good && i < N_PASSES; i += n, n = 1) {
        while (i + n < N_PASSES && passes[i + n].joined) n++;
        good = passes[i].open ? run_opened(&c, &passes[i]) : run(&c, &passes[i], n);
        if (passes[i].rule == &weft__pass_precision)
            stores = good && !is_skipped(&passes[i], options);
        /* Again after each pass that writes the graph again. */
        if (stores && !weft__precision_mark(c.owned, targets, n_targets, options)) {
            weft_error_set(error, WEFT_NO_MEMORY, "plan", "no memory for the passes");
            good = false;
        }
    }
    if (good) return c.owned;
    weft_graph_free(c.owned);
    return NULL;
}

bool weft__passes_schedule(const weft_graph *graph, schedule *s, const weft_plan_options *options)
{
    for (size_t i = 0; i < N_PASSES; i++)
        if (passes[i].schedule && !is_skipped(&passes[i], options) && !passes[i].schedule(graph, s))
            return false;
    return true;
}
