/* The layers of a report: a row for each scope of the forward pass, the outer before the inner, in
 * the order of the graph. Sums of a scope include its inner scopes. What has no scope is in a row
 * of its own, named "", so that the rows of depth 0 add up to the whole.
 *
 * Scopes are found by a hash table of their texts. O(edges x depth of scopes). */
#include "report.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

/* Layers are numbered from 1; 0 is none. Layer 0 is the parent of those of depth 0. */
typedef struct layer {
    const char *scope; /* of one of its nodes; the first `length` bytes */
    size_t length, parent, first_child, last_child, next;
    int depth;
    weft_value input, output, last_value;
    double parameters, seconds;
    bool timed;
    weft_cost cost;
    char ops[96]; /* of the nodes directly in the scope: "matmul, add" */
} layer;

typedef struct layers {
    const report_plan *p;
    layer *at; /* [n + 1] */
    size_t n, *table, slots;
    size_t *of; /* by node: its innermost layer; 0: not of the forward pass */
} layers;

/* ---- The tree ---- */

static size_t add_layer(layers *l, size_t parent, const char *scope, size_t length)
{
    const size_t index = ++l->n;
    layer *up = &l->at[parent];
    l->at[index] = (layer){
        .scope = scope, .length = length, .parent = parent, .depth = parent ? up->depth + 1 : 0};
    if (up->last_child)
        l->at[up->last_child].next = index;
    else
        up->first_child = index;
    up->last_child = index;
    return index;
}

/* The layer of the first `length` bytes of a scope, which is added if it is new. */
static size_t layer_of(layers *l, size_t parent, const char *scope, size_t length)
{
    size_t slot = hash_bytes(HASH_START, scope, length) & (l->slots - 1);
    for (; l->table[slot]; slot = (slot + 1) & (l->slots - 1)) {
        const layer *other = &l->at[l->table[slot]];
        if (other->length == length && !memcmp(other->scope, scope, length)) return l->table[slot];
    }
    return l->table[slot] = add_layer(l, parent, scope, length);
}

/* The innermost layer of a scope. */
static size_t layers_of_scope(layers *l, const char *scope)
{
    size_t index = 0, length = 0;
    do {
        length += length > 0; /* the dot */
        length += strcspn(scope + length, ".");
        index = layer_of(l, index, scope, length);
    } while (scope[length]);
    return index;
}

static bool make_layers(layers *l, const report_plan *p)
{
    size_t most = 1;
    *l = (layers){.p = p, .slots = 64};
    for (size_t i = 0; i < p->n_nodes; i++) {
        const weft_node_info node = weft_graph_node(p->graph, i);
        if (node.role.phase != WEFT_FORWARD) continue;
        most++;
        for (const char *c = node.scope; *c; c++) most += *c == '.';
    }
    while (l->slots < 2 * most) l->slots *= 2;
    l->at = calloc(most + 1, sizeof *l->at);
    l->table = calloc(l->slots, sizeof *l->table);
    l->of = calloc(p->n_nodes + 1, sizeof *l->of);
    if (!l->at || !l->table || !l->of) return false;
    for (size_t i = 0; i < p->n_nodes; i++) {
        const weft_node_info node = weft_graph_node(p->graph, i);
        if (node.role.phase == WEFT_FORWARD) l->of[i] = layers_of_scope(l, node.scope);
    }
    return true;
}

/* ---- Sums and edges ---- */

static bool names_op(const char *ops, const char *op)
{
    const size_t n = strlen(op);
    for (const char *at = ops; (at = strstr(at, op)); at += n)
        if ((at == ops || at[-1] == ' ') && (!at[n] || at[n] == ',')) return true;
    return false;
}

static void add_op(layer *of, const weft_op *op)
{
    const size_t used = strlen(of->ops);
    if (names_op(of->ops, op->name) || used + strlen(op->name) + 6 > sizeof of->ops) return;
    tool_append(of->ops, sizeof of->ops, "%s%s", used ? ", " : "", op->name);
}

static void add_node(layers *l, size_t index, const weft_node_info *node)
{
    const report_node *facts = &l->p->nodes[index];
    const weft_value value = weft_value_from_id(l->p->graph, node->first_out);
    const double numel = (double)weft_shape_numel(weft_shape_of(l->p->graph, value));
    if (facts->step) add_op(&l->at[l->of[index]], node->op);
    for (size_t i = l->of[index]; i; i = l->at[i].parent) {
        layer *of = &l->at[i];
        if (facts->trainable) of->parameters += numel;
        if (facts->step || node->op->alias) of->last_value = value;
        of->cost.flops += facts->cost.flops;
        of->cost.bytes += facts->cost.bytes;
        of->seconds += facts->compute;
        of->timed |= facts->timed;
    }
}

/* A value that goes from one layer to another is an output of the scopes that it leaves, and an
 * input of those that it enters. */
static void add_edge(layers *l, size_t from, size_t to, weft_value value)
{
    while (from != to) {
        const bool enters = to && (!from || l->at[to].depth >= l->at[from].depth);
        layer *of = &l->at[enters ? to : from];
        if (enters && !of->input.id) of->input = value;
        if (!enters && value.id > of->output.id) of->output = value;
        *(enters ? &to : &from) = of->parent;
    }
}

static void add_edges(layers *l, size_t index, const weft_node_info *node)
{
    for (size_t i = 0; i < node->n_in; i++) {
        const weft_value value = weft_value_from_id(l->p->graph, node->in[i]);
        const size_t producer = weft_producer(l->p->graph, value);
        const weft_op *op = weft_graph_node(l->p->graph, producer).op;
        if (l->of[producer] && op != &weft_op_state && op != &weft_op_constant)
            add_edge(l, l->of[producer], l->of[index], value);
    }
}

/* ---- JSON ---- */

static void add_type(const layers *l, cJSON *json, const char *name, weft_value value)
{
    char text[REPORT_TYPE_BYTES];
    if (weft_is_value(value))
        cJSON_AddStringToObject(json, name, report_type(l->p->graph, value, text));
}

static cJSON *layer_json(const layers *l, const layer *of)
{
    char scope[TOOL_NAME_BYTES];
    cJSON *json = cJSON_CreateObject();
    snprintf(scope, sizeof scope, "%.*s", (int)of->length, of->scope);
    cJSON_AddStringToObject(json, "scope", scope);
    cJSON_AddNumberToObject(json, "depth", of->depth);
    if (of->ops[0]) cJSON_AddStringToObject(json, "ops", of->ops);
    add_type(l, json, "input", of->input);
    add_type(l, json, "output", weft_is_value(of->output) ? of->output : of->last_value);
    cJSON_AddNumberToObject(json, "parameters", of->parameters);
    cJSON_AddNumberToObject(json, "flops", of->cost.flops);
    cJSON_AddNumberToObject(json, "bytes", of->cost.bytes);
    if (of->timed) cJSON_AddNumberToObject(json, "seconds", of->seconds);
    return json;
}

/* The first inner layer, or the next one of the nearest layer around that has one; 0 at the end. */
static size_t next_layer(const layers *l, size_t i)
{
    if (l->at[i].first_child) return l->at[i].first_child;
    while (i && !l->at[i].next) i = l->at[i].parent;
    return l->at[i].next;
}

weft_status report_add_layers(const report_plan *p, cJSON *subject, weft_error *error)
{
    layers l;
    const bool good = make_layers(&l, p);
    for (size_t i = 0; good && i < p->n_nodes; i++) {
        if (!l.of[i]) continue;
        const weft_node_info node = weft_graph_node(p->graph, i);
        add_node(&l, i, &node);
        add_edges(&l, i, &node);
    }
    cJSON *json = cJSON_AddArrayToObject(subject, "layers");
    for (size_t i = good ? l.at[0].first_child : 0; i; i = next_layer(&l, i))
        cJSON_AddItemToArray(json, layer_json(&l, &l.at[i]));
    free(l.at);
    free(l.table);
    free(l.of);
    return good ? WEFT_OK : weft_error_set(error, WEFT_NO_MEMORY, "report", "out of memory");
}
