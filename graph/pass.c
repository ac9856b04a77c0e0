/* Passes: each walks a graph in topological order and writes a new one, node by node. A pass is one
 * function that may put something else in a node's place; what it leaves alone is copied. Nodes
 * that no target needs are never copied, so every pass removes dead code. O(nodes) each. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct rewrite {
    const weft_graph *src;
    weft_graph *dst;
    uint32_t *map;     /* by id in src: id in dst, 0 if not there */
    weft_value *in;    /* the node's inputs in dst */
    uint32_t *table;   /* common subexpressions: nodes of dst + 1 by hash */
    size_t table_size; /* a power of two */
} rewrite;

typedef struct pass {
    const char *name;
    bool required;
    /* Fills out[] in dst and returns true, or returns false for a plain copy. NULL: no rewriting,
     * but a part of the planner that can be left out (chain.c). */
    bool (*visit)(rewrite *r, const node_record *node, weft_value *out);
} pass;

static void copy_node(rewrite *r, const node_record *node, weft_value *out)
{
    if (node->op == &weft_op_constant) {
        const weft_constant_attr *attr = node->attr;
        out[0] = weft_constant_data(r->dst, attr->dtype, attr->shape, attr->data);
        return;
    }
    weft_apply(r->dst, node->op, node->attr, r->in, node->n_in, out);
}

/* ---- expand: ops without kernels of their own, or none for the dtype, become plainer ones ---- */

static bool is_expanded(const weft_graph *graph, const node_record *node)
{
    return node->op->expand && !node->op->alias && !graph_node_runs(graph, node);
}

static bool visit_expand(rewrite *r, const node_record *node, weft_value *out)
{
    const weft_op *op = node->op;
    if (!is_expanded(r->src, node)) return false;
    weft_expand expand = {r->dst, node->attr, node->n_in, op->n_out, r->in, out};
    op->expand(&expand);
    for (size_t i = 0; i < op->n_out; i++) {
        const value_record *old = &r->src->values[node->first_out + i];
        if (weft_graph_status(r->dst) != WEFT_OK) break;
        if (!graph_owns(r->dst, out[i]) ||
            !weft_shape_equal(weft_shape_of(r->dst, out[i]), old->type.shape) ||
            weft_dtype_of(r->dst, out[i]) != old->type.dtype)
            weft_graph_fail_in(r->dst, op->name, WEFT_INTERNAL,
                               "the expansion has another type than the op");
    }
    return true;
}

static bool needs_expansion(const weft_graph *graph)
{
    for (size_t i = 0; i < graph->n_nodes; i++)
        if (is_expanded(graph, &graph->nodes[i])) return true;
    return false;
}

/* ---- cse: equal ops on equal inputs are computed once ---- */

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return hash;
}

static bool same_node(const rewrite *r, const node_record *a, const node_record *b)
{
    if (a->op != b->op || a->n_in != b->n_in || memcmp(a->attr, b->attr, a->op->attr_size) != 0)
        return false;
    for (size_t i = 0; i < a->n_in; i++)
        if (b->in[i] != r->in[i].id) return false;
    return true;
}

static bool visit_cse(rewrite *r, const node_record *node, weft_value *out)
{
    const weft_op *op = node->op;
    if (op == &weft_op_input || op == &weft_op_state || op == &weft_op_constant || op->updates)
        return false;
    uint64_t hash = hash_bytes(weft_hash_text(op->name), node->attr, op->attr_size);
    for (size_t i = 0; i < node->n_in; i++) hash = hash_bytes(hash, &r->in[i].id, 4);
    size_t slot = hash & (r->table_size - 1);
    for (; r->table[slot]; slot = (slot + 1) & (r->table_size - 1)) {
        const node_record *other = &r->dst->nodes[r->table[slot] - 1];
        if (!same_node(r, node, other)) continue;
        for (size_t i = 0; i < op->n_out; i++)
            out[i] = graph_value(r->dst, other->first_out + (uint32_t)i);
        return true;
    }
    copy_node(r, node, out);
    if (weft_graph_status(r->dst) == WEFT_OK) r->table[slot] = (uint32_t)r->dst->n_nodes;
    return true;
}

/* ---- fold: what depends on constants only is computed now ---- */

static bool visit_fold(rewrite *r, const node_record *node, weft_value *out)
{
    weft_type types[WEFT_MAX_OUTPUTS];
    for (size_t i = 0; i < node->op->n_out; i++)
        types[i] = r->src->values[node->first_out + i].type;
    return fold_node(r->dst, node, types, r->in, out);
}

/* ---- layout: a dense copy goes in front of an op that cannot take a view ---- */

static weft_value dense(weft_graph *graph, weft_value value)
{
    return weft_apply(graph, &weft_op_contiguous, NULL, &value, 1, NULL);
}

static bool visit_layout(rewrite *r, const node_record *node, weft_value *out)
{
    const weft_op *op = node->op;
    if (op->alias) {
        const value_record *in = &r->dst->values[r->in[0].id];
        weft_layout layout = {{0}, 0};
        const weft_type *type = &r->src->values[node->first_out].type;
        if (!op->alias(node->attr, &in->type, &in->layout, type, &layout))
            r->in[0] = dense(r->dst, r->in[0]);
    } else if (op != &weft_op_group) {
        for (size_t i = 0; i < node->n_in; i++) {
            const value_record *in = &r->dst->values[r->in[i].id];
            if (!layout_taken(op->takes, in->type.shape, &in->layout))
                r->in[i] = dense(r->dst, r->in[i]);
            if (!graph_owns(r->dst, r->in[i])) break;
        }
    }
    copy_node(r, node, out);
    return true;
}

static const pass passes[] = {
    {"expand", true, visit_expand}, /* ops without a kernel become others */
    {"cse", false, visit_cse},      /* equal nodes become one */
    {"fold", false, visit_fold},    /* what depends on constants is computed */
    {"layout", true, visit_layout}, /* copies in front of ops that take no view */
    {"chain", false, NULL},         /* nodes follow others block by block */
};
#define N_PASSES (sizeof passes / sizeof *passes)
#define ALL      "all"

/* ---- Running them ---- */

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

bool passes_skip(const char *list, const char *name)
{
    return listed(list, name) || listed(getenv("WEFT_SKIP"), name);
}

static bool is_optional(const char *word, size_t length)
{
    for (size_t p = 0; p < N_PASSES; p++)
        if (!passes[p].required && is_word(word, length, passes[p].name)) return true;
    return is_word(word, length, ALL);
}

static bool names_passes(const char *list, const char *where, weft_error *error)
{
    for (const char *at = list; at && *at; at += *at == ',') {
        size_t n = strcspn(at, ",");
        if (n && !is_optional(at, n)) {
            char names[256] = "";
            for (size_t p = 0; p < N_PASSES; p++)
                if (!passes[p].required)
                    snprintf(names + strlen(names), sizeof names - strlen(names), "%s, ",
                             passes[p].name);
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
        if (!p->visit(r, node, out)) copy_node(r, node, out);
        for (size_t i = 0; i < node->op->n_out; i++) {
            const value_record *old = &r->src->values[node->first_out + i];
            r->map[node->first_out + i] = out[i].id;
            if (old->name && out[i].id && !r->dst->values[out[i].id].name)
                graph_name_value(r->dst, out[i].id, old->name, "weft_plan_new");
        }
    }
}

/* A target must be dense, and must not be a view of a state or of a constant, which have no buffer.
 * Of a state, only the version that no update of the plan overwrites can be read when the run has
 * ended: another is copied, unless the program asked for the state itself. overwritten[version]. */
static void settle_targets(weft_graph *graph, plan_target *targets, size_t n_targets,
                           const uint8_t *overwritten)
{
    for (size_t i = 0; i < n_targets && weft_graph_status(graph) == WEFT_OK; i++) {
        const value_record *v = &graph->values[targets[i].value.id];
        const node_record *node = &graph->nodes[v->node];
        const weft_op *root = graph->nodes[graph->values[v->root].node].op;
        bool outside = root == &weft_op_state || root == &weft_op_constant;
        graph_set_scope(graph, node->scope);
        if (!weft_layout_is_dense(v->type.shape, &v->layout) || (outside && node->op->alias) ||
            (overwritten[v->version] && !targets[i].is_state))
            targets[i].value = dense(graph, targets[i].value);
    }
}

/* Marks the versions of states that an update of the graph overwrites. */
static void mark_overwritten(const weft_graph *graph, uint8_t *overwritten)
{
    for (size_t n = 0; n < graph->n_nodes; n++)
        for (size_t i = 0; i < graph->nodes[n].op->updates; i++)
            overwritten[graph->values[graph->nodes[n].in[i]].version] = 1;
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
    uint8_t *alive = calloc(src->n_nodes + 1, 1), *overwritten = NULL;
    if (!r.dst || !r.in || !r.table || !alive) {
        weft_error_set(error, WEFT_NO_MEMORY, "plan", "no memory for the pass \"%s\"", p->name);
    } else {
        mark_alive(src, targets, n_targets, alive);
        rewrite_nodes(&r, p, alive);
        r.dst->random_keys = src->random_keys;
        for (size_t i = 0; i < n_targets; i++)
            targets[i].value = graph_value(r.dst, map[targets[i].value.id]);
        if (p->visit == visit_layout && weft_graph_status(r.dst) == WEFT_OK) {
            overwritten = calloc(r.dst->n_values, 1);
            if (!overwritten)
                weft_graph_fail_in(r.dst, "weft_plan_new", WEFT_NO_MEMORY, "no memory for a pass");
            else
                mark_overwritten(r.dst, overwritten);
            settle_targets(r.dst, targets, n_targets, overwritten);
        }
        const weft_error *e = &r.dst->error;
        if (e->status != WEFT_OK) weft_error_set(error, e->status, e->where, "%s", e->message);
    }
    bool good = r.dst && r.in && r.table && alive && weft_graph_status(r.dst) == WEFT_OK;
    free(r.in);
    free(r.table);
    free(alive);
    free(overwritten);
    if (good) return r.dst;
    weft_graph_free(r.dst);
    return NULL;
}

weft_graph *passes_run(const weft_graph *graph, plan_target *targets, size_t n_targets,
                       const char *skip, bool verify, uint32_t *map, weft_error *error)
{
    const weft_graph *src = graph;
    weft_graph *owned = NULL;
    for (size_t i = 0; i < graph->n_values; i++) map[i] = (uint32_t)i;
    for (size_t p = 0; p < N_PASSES; p++) {
        if (!passes[p].visit || (!passes[p].required && passes_skip(skip, passes[p].name)))
            continue;
        int rounds = 0;
        do {
            if (passes[p].visit == visit_expand && !needs_expansion(src)) break;
            uint32_t *step = calloc(src->n_values, sizeof *step);
            weft_graph *next =
                step ? run_pass(&passes[p], src, targets, n_targets, step, error) : NULL;
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
        } while (passes[p].visit == visit_expand);
    }
    return owned;
}
