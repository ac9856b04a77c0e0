/* The summary of a graph: its layers as a table, and totals. O(nodes + layers). */
#include "ir/ir.h"

#include "base/text.h"

#include <weft/inspect.h>

#include <errno.h>
#include <string.h>

#define DEFAULT_WIDTH 80
#define MIN_WIDTH     48

/* Widths of the columns after the name. */
#define OUTPUT_WIDTH     24
#define PARAMETERS_WIDTH 14
#define WORK_WIDTH       11

/* The name of a layer: the last component of its scope, indented by its depth. */
static void layer_name(const weft_layers *all, const weft_layer *layer, char *name, size_t size)
{
    const char *own = layer->scope;
    if (layer->parent != SIZE_MAX) own += strlen(all->layer[layer->parent].scope) + 1;
    snprintf(name, size, "%*s%s", 2 * layer->depth, "", own[0] ? own : "(no scope)");
}

static void print_layer(FILE *file, const weft_graph *g, const weft_layers *all, size_t index,
                        int name_width)
{
    const weft_layer *layer = &all->layer[index];
    char text[SCOPE_BYTES + 64], shape[128];
    layer_name(all, layer, text, sizeof text);
    weft__text_print_left(file, text, name_width);
    snprintf(text, sizeof text, "%s", "");
    if (weft_is_value(layer->output))
        snprintf(text, sizeof text, "%s %s", weft_dtype_name(weft_dtype_of(g, layer->output)),
                 weft_shape_text(weft_shape_of(g, layer->output), shape, sizeof shape));
    fputs("  ", file);
    weft__text_print_left(file, text, OUTPUT_WIDTH - 2);
    weft__text_print(file, "%*.0f%*.*f\n", PARAMETERS_WIDTH, layer->parameters, WORK_WIDTH,
                     weft__text_decimals(1e-6 * layer->cost.flops), 1e-6 * layer->cost.flops);
}

static void print_table(FILE *file, const weft_graph *g, const weft_layers *layers,
                        const weft_summary_options *o)
{
    const int width = o->width ? o->width : DEFAULT_WIDTH,
              rest = OUTPUT_WIDTH + PARAMETERS_WIDTH + WORK_WIDTH;
    int longest = 12;
    for (size_t i = 0; i < layers->n; i++) {
        char name[SCOPE_BYTES + 64];
        if (o->depth && layers->layer[i].depth >= o->depth) continue;
        layer_name(layers, &layers->layer[i], name, sizeof name);
        if (weft__text_length(name) > longest) longest = weft__text_length(name);
    }
    if (longest > width - rest) longest = width - rest;
    weft__text_print_left(file, "layer", longest);
    fprintf(file, "  %-*s%*s%*s\n", OUTPUT_WIDTH - 2, "output", PARAMETERS_WIDTH, "parameters",
            WORK_WIDTH, "MFLOP");
    for (size_t i = 0; i < layers->n; i++)
        if (!o->depth || layers->layer[i].depth < o->depth)
            print_layer(file, g, layers, i, longest);
}

/* Of the whole graph. */
typedef struct totals {
    double parameters, parameter_bytes, states, state_bytes; /* states: that are not trainable */
    double flops[WEFT_UPDATE + 1];
} totals;

static weft_status add_totals(const weft_graph *g, totals *t)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < g->n_nodes && status == WEFT_OK; i++) {
        const node_record *node = &g->nodes[i];
        weft_cost cost;
        status = weft_graph_node_cost(g, i, &cost, NULL);
        t->flops[node->role.direction] += cost.flops;
        if (node->op != &weft_op_state) continue;
        const weft_type *type = &g->values[node->first_out].type;
        const bool trainable = ((const weft_state_attr *)node->attr)->trainable;
        *(trainable ? &t->parameters : &t->states) += (double)weft_shape_numel(type->shape);
        *(trainable ? &t->parameter_bytes : &t->state_bytes) +=
            (double)weft_tensor_bytes(type->dtype, type->shape);
    }
    return status;
}

static void print_totals(FILE *file, const totals *t)
{
    static const char *const directions[] = {"forward pass", "backward pass", "updates"};
    char size[TEXT_SIZE_BYTES];
    weft__text_print(file, "\n%-16s%14.0f   %s\n", "parameters", t->parameters,
                     weft__text_from_bytes(t->parameter_bytes, size));
    if (t->states > 0)
        weft__text_print(file, "%-16s%14.0f   %s, not trainable\n", "other states", t->states,
                         weft__text_from_bytes(t->state_bytes, size));
    for (int i = 0; i <= WEFT_UPDATE; i++)
        if (t->flops[i] > 0)
            weft__text_print(file, "%-16s%14.*f MFLOP\n", directions[i],
                             weft__text_decimals(1e-6 * t->flops[i]), 1e-6 * t->flops[i]);
}

weft_status weft_graph_print_summary(const weft_graph *graph, const weft_summary_options *options,
                                     FILE *file, weft_error *error)
{
    weft_error_clear(error);
    static const weft_summary_options defaults = {0};
    const weft_summary_options *o = options ? options : &defaults;
    weft_layers layers;
    totals t = {0};
    if (!file || o->depth < 0 || (o->width && o->width < MIN_WIDTH))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "summary",
                              !file          ? "the file is NULL"
                              : o->depth < 0 ? "the depth is negative"
                                             : "a summary has at least %d columns",
                              MIN_WIDTH);
    weft_status status = weft_layers_find(graph, &layers, error);
    if (status != WEFT_OK) return status;
    status = add_totals(graph, &t);
    if (status == WEFT_OK) {
        print_table(file, graph, &layers, o);
        print_totals(file, &t);
    }
    weft_layers_free(&layers);
    if (status != WEFT_OK) return weft_error_set(error, status, "summary", "out of memory");
    /* A full disk shows only when the stream is flushed. */
    if (fflush(file) != 0 || ferror(file))
        return weft_error_set(error, WEFT_IO, "summary", "the file cannot be written: %s",
                              strerror(errno));
    return WEFT_OK;
}
