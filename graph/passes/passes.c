/* The order of the passes, and what runs them: the program's own, then the library's. A pass that
 * knows ops by their identity comes with these ops (weft_op.passes); here it has a name and a place
 * in the order. O(nodes) for each pass. */
#include "rewrite.h"
#include "unroll.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* A place in the order. */
typedef struct slot {
    const char *name; /* of a pass that comes with ops; NULL: that of the rule */
    const pass *rule; /* of this folder */
    bool joined; /* it shares the walk of the pass before it, and sees what that one leaves alone */
} slot;

static const slot slots[] = {
    {.rule = &weft__pass_prune},
    {.name = "join_slices"},
    {.name = "join_products", .joined = true},
    {.name = "reuse_dropout", .joined = true},
    {.rule = &weft__pass_expand},
    {.rule = &weft__pass_cse},
    {.name = "fold_conv"},
    {.rule = &weft__pass_fold},
    {.name = "attention"},
    {.name = "winograd"},
    {.name = "channels_last", .joined = true},
    {.name = "tiles"},
    {.name = "pack_weights"},
    {.rule = &weft__pass_layout},
    {.rule = &weft__pass_precision},
    {.rule = &weft__pass_recompute},
    {.rule = &weft__pass_fuse},
};
#define N_SLOTS (sizeof slots / sizeof *slots)
#define ALL     "all"
/* The maximum rounds of a pass that repeats: deeper expansions count as endless. */
#define MAX_ROUNDS 17

static const char *slot_name(const slot *s)
{
    return s->rule ? s->rule->rule.name : s->name;
}

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

static bool is_skipped(const weft_pass *p, const weft_plan_options *options)
{
    if (p->wanted && !p->wanted(options)) return true;
    return !p->required && (listed(options->skip, p->name) || listed(getenv("WEFT_SKIP"), p->name));
}

static void report_skipped(void)
{
    const char *list = getenv("WEFT_SKIP");
    if (list && *list)
        weft__log(WEFT_LOG_INFO, "weft_plan_new", "WEFT_SKIP is set: these passes do not run: %s",
                  list);
}

/* The name of an optional pass of the order, then of the program; NULL for one that is required. */
static const char *optional_name(const weft_plan_options *options, size_t i)
{
    if (i < N_SLOTS)
        return slots[i].rule && slots[i].rule->rule.required ? NULL : slot_name(&slots[i]);
    const weft_pass *own = &options->passes[i - N_SLOTS];
    return own->required ? NULL : own->name;
}

static bool is_optional(const weft_plan_options *options, const char *word, size_t length)
{
    for (size_t i = 0; i < N_SLOTS + options->n_passes; i++) {
        const char *name = optional_name(options, i);
        if (name && is_word(word, length, name)) return true;
    }
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
            for (size_t p = 0; p < N_SLOTS + options->n_passes && used < sizeof names; p++)
                if (optional_name(options, p))
                    used += (size_t)snprintf(names + used, sizeof names - used, "%s, ",
                                             optional_name(options, p));
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
    for (size_t i = 0; i < N_SLOTS; i++)
        if (!strcmp(rule->name, slot_name(&slots[i]))) return "has a name that is taken";
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
    if ((unsigned)options->precision > WEFT_PRECISION_BF16_TILES) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_plan_options.precision",
                       "invalid precision %d; expected WEFT_PRECISION_F32, WEFT_PRECISION_BF16 or "
                       "WEFT_PRECISION_BF16_TILES",
                       (int)options->precision);
        return false;
    }
    if (!check_names(options, options->skip, "weft_plan_options.skip", error) ||
        !check_names(options, getenv("WEFT_SKIP"), "WEFT_SKIP", error))
        return false;
    report_skipped();
    return true;
}

/* ---- Running them all ---- */

typedef struct compilation {
    const weft_graph *graph, *source; /* the program's; what the passes so far made of it */
    weft_graph *owned;                /* the source, unless it is the program's */
    plan_target *targets;
    size_t n_targets;
    uint32_t *map;
    const weft_plan_options *options;
    const body_storage *storage; /* NULL: the graph is not a body */
    weft_error *error;
} compilation;

static bool no_memory(compilation *c)
{
    weft_error_set(c->error, WEFT_NO_MEMORY, "plan", "no memory for the passes");
    return false;
}

static bool run_once(compilation *c, walk *w)
{
    uint32_t *step = calloc(c->source->n_values, sizeof *step);
    weft_graph *next = NULL;
    if (step)
        next = weft__walk_run(w, c->source, c->targets, c->n_targets, c->options, step, c->error);
    else
        no_memory(c);
    for (size_t i = 0; next && i < c->graph->n_values; i++) c->map[i] = step[c->map[i]];
    free(step);
    weft_graph_free(c->owned);
    c->source = c->owned = next;
    return next && (!c->options->verify || weft_graph_verify(next, c->error) == WEFT_OK);
}

/* Adds a pass to a walk if it is to run now; `p` may be NULL. */
static void add_pass(const compilation *c, const weft_pass *p, walk *w)
{
    if (p && p->visit && w->n < MAX_JOINED && !is_skipped(p, c->options) &&
        (!p->needed || p->needed(c->source)))
        w->passes[w->n++] = p;
}

/* The pass of that name of an op in the graph; NULL if there is none. */
static const weft_pass *pass_of_ops(const weft_graph *graph, const char *name)
{
    for (size_t n = 0; n < graph->n_nodes; n++)
        for (const weft_pass *const *p = graph->nodes[n].op->passes; p && *p; p++)
            if (!strcmp((*p)->name, name)) return *p;
    return NULL;
}

/* Runs those of n neighbours in the order that come with ops, in one walk. */
static bool run_joined(compilation *c, const slot *first, size_t n)
{
    walk w = {.n = 0};
    for (size_t i = 0; i < n; i++) add_pass(c, pass_of_ops(c->source, first[i].name), &w);
    return !w.n || run_once(c, &w);
}

/* Runs a pass of the library with its rule's context. */
static bool run_rule(compilation *c, const pass *p, const weft_pass *rule)
{
    for (int round = 0; round < MAX_ROUNDS; round++) {
        walk w = {.finish = p->finish, .drops = p->drops};
        add_pass(c, rule, &w);
        if (!w.n) return true;
        if (!run_once(c, &w)) return false;
        if (!p->repeats) return true;
    }
    weft_error_set(c->error, WEFT_INTERNAL, "plan", "an expansion never ends");
    return false;
}

/* Runs a pass of the library, whose context may have to be made from the graph. */
static bool run_pass(compilation *c, const pass *p)
{
    if (is_skipped(&p->rule, c->options)) return true;
    weft_pass rule = p->rule;
    if (!p->open) return run_rule(c, p, &rule);
    rule.context = p->open(c->source, c->targets, c->n_targets, c->options, c->storage);
    const bool good = rule.context && run_rule(c, p, &rule);
    if (!rule.context)
        weft_error_set(c->error, WEFT_NO_MEMORY, "plan", "no memory for the pass \"%s\"",
                       rule.name);
    p->close(rule.context);
    return good;
}

static bool run_own(compilation *c, const weft_pass *p)
{
    walk w = {.own = true};
    if (p->unrolls && !is_skipped(p, c->options) && !run_own(c, &weft__unroll)) return false;
    add_pass(c, p, &w);
    return !w.n || run_once(c, &w);
}

/* Lets each pass up to place `last` of the order settle the graph that it or a later one wrote. */
static bool settle(compilation *c, size_t last)
{
    for (size_t i = 0; i <= last; i++) {
        const pass *p = slots[i].rule;
        if (p && p->settle && !is_skipped(&p->rule, c->options) &&
            !p->settle(c->owned, c->targets, c->n_targets, c->options, c->storage))
            return no_memory(c);
    }
    return true;
}

weft_graph *weft__passes_rewrite(const weft_graph *graph, plan_target *targets, size_t n_targets,
                                 const weft_plan_options *options, uint32_t *map,
                                 const body_storage *storage, weft_error *error)
{
    compilation c = {.graph = graph,
                     .source = graph,
                     .targets = targets,
                     .n_targets = n_targets,
                     .map = map,
                     .options = options,
                     .storage = storage,
                     .error = error};
    bool good = true;
    for (size_t i = 0; i < graph->n_values; i++) map[i] = (uint32_t)i;
    for (size_t i = 0; good && i < options->n_passes; i++) good = run_own(&c, &options->passes[i]);
    for (size_t i = 0, n = 1; good && i < N_SLOTS; i += n, n = 1) {
        while (i + n < N_SLOTS && slots[i + n].joined) n++;
        good = (slots[i].rule ? run_pass(&c, slots[i].rule) : run_joined(&c, &slots[i], n)) &&
               settle(&c, i);
    }
    if (good) return c.owned;
    weft_graph_free(c.owned);
    return NULL;
}

bool weft__passes_schedule(const weft_graph *graph, schedule *s, const weft_plan_options *options)
{
    for (size_t i = 0; i < N_SLOTS; i++) {
        const pass *p = slots[i].rule;
        if (p && p->schedule && !is_skipped(&p->rule, options) && !p->schedule(graph, s))
            return false;
    }
    return true;
}
