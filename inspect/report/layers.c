/* The layers of a report: a row for each scope of the forward pass, with its ops and its time. What
 * has no scope is in a row of its own, named "", so that the rows of depth 0 add up to the whole.
 */
#include "parts.h"

#include <weft/inspect.h>

#include <stdlib.h>
#include <string.h>

/* What a report adds to a layer. */
typedef struct layer {
    double seconds;
    bool timed;
    char ops[96]; /* of the nodes directly in the scope: "matmul, add" */
} layer;

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
    snprintf(of->ops + used, sizeof of->ops - used, "%s%s", used ? ", " : "", op->name);
}

static void add_node(const report_plan *p, const weft_layers *all, layer *layers, size_t index)
{
    const report_node *facts = &p->nodes[index];
    if (all->of[index] == SIZE_MAX) return;
    if (facts->step) add_op(&layers[all->of[index]], weft_graph_node(p->graph, index).op);
    for (size_t i = all->of[index]; i != SIZE_MAX; i = all->layer[i].parent) {
        layers[i].seconds += facts->compute;
        layers[i].timed |= facts->timed;
    }
}

static void add_type(const report_plan *p, cJSON *json, const char *name, weft_value value)
{
    char text[REPORT_TYPE_BYTES];
    if (weft_is_value(value))
        json_add_text(p->maker, json, name, weft__report_type(p->graph, value, text));
}

static void add_layer(const report_plan *p, const weft_layer *row, const layer *more, cJSON *json)
{
    json_add_text(p->maker, json, "scope", row->scope);
    json_add_number(p->maker, json, "depth", row->depth);
    if (more->ops[0]) json_add_text(p->maker, json, "ops", more->ops);
    add_type(p, json, "input", row->input);
    add_type(p, json, "output", row->output);
    json_add_number(p->maker, json, "parameters", row->parameters);
    json_add_number(p->maker, json, "flops", row->cost.flops);
    json_add_number(p->maker, json, "bytes", row->cost.bytes);
    if (more->timed) json_add_number(p->maker, json, "seconds", more->seconds);
}

bool weft__report_add_layers(const report_plan *p, cJSON *subject)
{
    weft_layers all;
    if (weft_layers_find(p->graph, &all, NULL) != WEFT_OK) return false;
    layer *layers = calloc(all.n + 1, sizeof *layers);
    for (size_t i = 0; layers && i < p->n_nodes; i++) add_node(p, &all, layers, i);
    cJSON *json = json_add_array(p->maker, subject, "layers");
    for (size_t i = 0; layers && i < all.n; i++)
        add_layer(p, &all.layer[i], &layers[i], json_add_object(p->maker, json, NULL));
    const bool good = layers != NULL;
    free(layers);
    weft_layers_free(&all);
    return good;
}
