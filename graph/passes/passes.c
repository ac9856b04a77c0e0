/* Passes: each walks a graph in topological order and writes a new one, node by node. A pass is one
 * function that may put something else in a node's place; what it leaves alone is copied. Nodes
 * that no target needs are never copied, so every pass removes dead code. O(nodes) each. */
#include "rewrite.h"

#include <stdlib.h>
#include <string.h>

/* In this order: those that rewrite the graph, then those that change its schedule. */
static const pass *const passes[] = {&pass_expand, &pass_cse, &pass_fold, &pass_layout, &pass_fuse};
#define N_PASSES (sizeof passes / sizeof *passes)
#define ALL      "all"

/* ---- Running them ---- */

void rewrite_copy(rewrite *r, const node_record *node, weft_value *out)
{
    if (node->op == &weft_op_constant) {
        const weft_constant_attr *attr = node->attr;
        out[0] = weft_constant_data(r->dst, attr->dtype, attr->shape, attr->data);
        return;
    }
    weft_apply(r->dst, node->op, node->attr, r->in, node->n_in, out);
}

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

static bool is_skipped(const pass *p, const char *list)
{
    return !p->required && (listed(list, p->name) || listed(getenv("WEFT_SKIP"), p->name));
}

static bool is_optional(const char *word, size_t length)
{
    for (size_t p = 0; p < N_PASSES; p++)
        if (!passes[p]->required && is_word(word, length, passes[p]->name)) return true;
    return is_word(word, length, ALL);
}

static bool names_passes(const char *list, const char *where, weft_error *error)
{
    for (const char *at = list; at && *at; at += *at == ',') {
        size_t n = strcspn(at, ",");
        if (n && !is_optional(at, n)) {
            char names[256] = "";
            for (size_t p = 0; p < N_PASSES; p++)
                if (!passes[p]->required)
                    snprintf(names + strlen(names), sizeof names - strlen(names), "%s, ",
                             passes[p]->name);
            weft_error_set(error, WEFT_BAD_ARGUMENT, where,
                           "\"%.*s\" is no optional pass, expected %s" ALL, (int)n, at, names);
            return false;
        }
        at += n;
    }
    return true;
}

bool passes_known(const char *list, weft_error *error)
{
    return names_passes(list, "weft_plan_options.skip", error) &&
           names_passes(getenv("WEFT_SKIP"), "WEFT_SKIP", error);
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

static void rewrite_nodes(rewrite *r, const pass *p, const uint8_t *alive)
{
    for (size_t n = 0; n < r->src->n_nodes && weft_graph_status(r->dst) == WEFT_OK; n++) {
        const node_record *node = &r->src->nodes[n];
        if (!alive[n]) continue;
        for (size_t i = 0; i < node->n_in; i++) r->in[i] = graph_value(r->dst, r->map[node->in[i]]);
        graph_set_scope(r->dst, node->scope);
        weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}};
        if (!p->visit(r, node, out)) rewrite_copy(r, node, out);
        for (size_t i = 0; i < node->op->n_out; i++) {
            const value_record *old = &r->src->values[node->first_out + i];
            r->map[node->first_out + i] = out[i].id;
            if (old->name && out[i].id && !r->dst->values[out[i].id].name)
                graph_name_value(r->dst, out[i].id, old->name, "weft_plan_new");
        }
    }
}

static weft_graph *run_pass(const pass *p, const weft_graph *src, plan_target *targets,
                            size_t n_targets, uint32_t *map, weft_error *error)
{
    size_t most = 1, table = 64;
    for (size_t i = 0; i < src->n_nodes; i++)
        if (src->nodes[i].n_in > most) most = src->nodes[i].n_in;
    while (table < 4 * src->n_nodes) table *= 2;
    rewrite r = {src,
                 weft_graph_new(),
                 map,
                 calloc(most, sizeof(weft_value)),
                 calloc(table, sizeof(uint32_t)),
                 table};
    uint8_t *alive = calloc(src->n_nodes + 1, 1);
    if (!r.dst || !r.in || !r.table || !alive) {
        weft_error_set(error, WEFT_NO_MEMORY, "plan", "no memory for the pass \"%s\"", p->name);
    } else {
        mark_alive(src, targets, n_targets, alive);
        rewrite_nodes(&r, p, alive);
        r.dst->random_keys = src->random_keys;
        for (size_t i = 0; i < n_targets; i++)
            targets[i].value = graph_value(r.dst, map[targets[i].value.id]);
        if (p->finish && weft_graph_status(r.dst) == WEFT_OK) p->finish(r.dst, targets, n_targets);
        const weft_error *e = &r.dst->error;
        if (e->status != WEFT_OK) weft_error_set(error, e->status, e->where, "%s", e->message);
    }
    bool good = r.dst && r.in && r.table && alive && weft_graph_status(r.dst) == WEFT_OK;
    free(r.in);
    free(r.table);
    free(alive);
    if (good) return r.dst;
    weft_graph_free(r.dst);
    return NULL;
}

weft_graph *passes_rewrite(const weft_graph *graph, plan_target *targets, size_t n_targets,
                           const char *skip, bool verify, uint32_t *map, weft_error *error)
{
    const weft_graph *src = graph;
    weft_graph *owned = NULL;
    for (size_t i = 0; i < graph->n_values; i++) map[i] = (uint32_t)i;
    for (size_t p = 0; p < N_PASSES; p++) {
        if (!passes[p]->visit || is_skipped(passes[p], skip)) continue;
        int rounds = 0;
        do {
            if (passes[p]->needed && !passes[p]->needed(src)) break;
            uint32_t *step = calloc(src->n_values, sizeof *step);
            weft_graph *next =
                step ? run_pass(passes[p], src, targets, n_targets, step, error) : NULL;
            if (!step) weft_error_set(error, WEFT_NO_MEMORY, "plan", "no memory for the passes");
            for (size_t i = 0; next && i < graph->n_values; i++) map[i] = step[map[i]];
            free(step);
            weft_graph_free(owned);
            owned = next;
            src = next;
            if (!next || (verify && weft_graph_verify(next, error) != WEFT_OK) || ++rounds > 16) {
                weft_error_set(error, WEFT_INTERNAL, "plan", "an expansion never ends");
                weft_graph_free(owned);
                return NULL;
            }
        } while (passes[p]->needed);
    }
    return owned;
}

bool passes_schedule(const weft_graph *graph, schedule *s, const char *skip)
{
    for (size_t p = 0; p < N_PASSES; p++)
        if (passes[p]->schedule && !is_skipped(passes[p], skip) && !passes[p]->schedule(graph, s))
            return false;
    return true;
}
