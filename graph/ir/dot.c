/* DOT export: nodes with their attributes and shapes, name scopes as nested clusters. */
#include "ir/ir.h"

#include <errno.h>
#include <string.h>

/* The first n bytes of a text, for inside a quoted string. */
static void quoted_part(FILE *file, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"' || text[i] == '\\') fputc('\\', file);
        if (text[i] == '\n')
            fputs("\\n", file);
        else
            fputc(text[i], file);
    }
}

static void quoted(FILE *file, const char *text)
{
    quoted_part(file, text, strlen(text));
}

static void draw_node(FILE *file, const weft_graph *g, size_t index,
                      const weft_dot_options *options)
{
    weft_dot_node extra = {"", ""};
    const node_record *node = &g->nodes[index];
    const value_record *value = &g->values[node->first_out];
    const char *shape = node->op == &weft_op_input      ? "ellipse"
                        : node->op == &weft_op_state    ? "box3d"
                        : node->op == &weft_op_constant ? "note"
                                                        : "box";
    const char *color = node->op == &weft_op_input      ? "#cfe3f5"
                        : node->op == &weft_op_state    ? "#f3e2c0"
                        : node->op == &weft_op_constant ? "#e6dff0"
                        : node->op->updates             ? "#f5d0cc"
                        : node->op->alias               ? "#f2f2f2"
                                                        : "#dcefd8";
    char text[192];
    if (options && options->decorate) options->decorate(options->user, g, index, &extra);
    fprintf(file, "n%zu [shape=%s, fillcolor=\"", index, shape);
    quoted(file, extra.color[0] ? extra.color : color);
    fputs("\", label=\"", file);
    if (value->name) {
        quoted(file, value->name);
        if (!op_is_leaf(node->op)) fprintf(file, "\\n%s", node->op->name);
    } else {
        quoted(file, node->op->name);
    }
    for (const weft_attr_field *f = node->op->attrs; f && f->name && !op_is_leaf(node->op); f++) {
        fputs("\\n", file);
        quoted(file, attr_field_text(f, node->attr, text, sizeof text));
    }
    for (int k = 0; k < node->op->n_out; k++)
        fprintf(file, "\\n%s %s", weft_dtype_name(value[k].type.dtype),
                weft_shape_text(value[k].type.shape, text, sizeof text));
    if (extra.line[0]) {
        fputs("\\n", file);
        quoted(file, extra.line);
    }
    fputs("\"];\n", file);
}

/* Goes from the cluster of one scope to that of the next: closes what ends, opens what begins. A
 * cluster is known by its whole scope, so that a scope entered again goes on with its cluster. */
static void change_scope(FILE *file, const char *from, const char *to)
{
    const char *whole = to;
    /* Past the components that both have. */
    for (;;) {
        size_t n = strcspn(from, "."), m = strcspn(to, ".");
        if (n == 0 || n != m || strncmp(from, to, n) != 0) break;
        from += n + (from[n] == '.');
        to += n + (to[n] == '.');
    }
    for (; *from; from += *from == '.') {
        fputs("}\n", file);
        from += strcspn(from, ".");
    }
    for (; *to; to += *to == '.') {
        size_t n = strcspn(to, ".");
        fputs("subgraph \"cluster_", file);
        quoted_part(file, whole, (size_t)(to - whole) + n);
        fputs("\" { color=\"#999999\"; label=\"", file);
        quoted_part(file, to, n);
        fputs("\";\n", file);
        to += n;
    }
}

weft_status weft_graph_dot(const weft_graph *graph, FILE *file, const weft_dot_options *options,
                           weft_error *error)
{
    const weft_error *e = weft_graph_error(graph);
    if (e->status != WEFT_OK) return weft_error_copy(error, e);
    if (!file) return weft_error_set(error, WEFT_BAD_ARGUMENT, "dot", "the file is NULL");
    const char *scope = "";
    fputs("digraph weft {\nrankdir=TB;\nnode [style=filled, fontname=\"Helvetica\", fontsize=10];\n"
          "edge [color=\"#666666\"];\n",
          file);
    for (size_t n = 0; n < graph->n_nodes; n++) {
        change_scope(file, scope, graph->nodes[n].scope);
        scope = graph->nodes[n].scope;
        draw_node(file, graph, n, options);
    }
    change_scope(file, scope, "");
    for (size_t n = 0; n < graph->n_nodes; n++)
        for (size_t i = 0; i < graph->nodes[n].n_in; i++)
            fprintf(file, "n%u -> n%zu;\n", graph->values[graph->nodes[n].in[i]].node, n);
    fputs("}\n", file);
    /* A full disk is noticed only when the file is flushed. */
    if (fflush(file) != 0 || ferror(file))
        return weft_error_set(error, WEFT_IO, "dot", "the file cannot be written: %s",
                              strerror(errno));
    return WEFT_OK;
}
