/* DOT export: nodes with their attributes and shapes, name scopes as nested clusters, or whole
 * scopes as boxes (dot_boxes.c). */
#include "dot_boxes.h"

#include "base/text.h"
#include "ir/scan.h"

#include <errno.h>
#include <string.h>

/* The first n bytes of a text, for inside a quoted string. */
static void quoted_part(FILE *file, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (text[i] == '"' || text[i] == '\\') fputc('\\', file);
        if (text[i] != '\n') {
            i += weft__text_put_character(file, text + i);
            continue;
        }
        fputs("\\n", file);
        i++;
    }
}

static void quoted(FILE *file, const char *text)
{
    quoted_part(file, text, strlen(text));
}

/* ---- Colours ---- */

/* How nodes look: a light area, in which text can be read, and a dark line around it. The hues of
 * the roles, blue, orange and green, also differ in brightness, so that they can be distinguished
 * by colour-blind readers and in black and white. The page of weft report has the same
 * (inspect/report/page/page.css). */
typedef struct node_style {
    const char *shape, *fill, *line;
} node_style;

static const node_style look_of_direction[] = {
    [WEFT_FORWARD] = {"box", "#e8f0f9", "#2f74c0"},
    [WEFT_BACKWARD] = {"box", "#fbefdf", "#d07a1a"},
    [WEFT_UPDATE] = {"box", "#e2f3ed", "#1d8a6b"},
};
static const node_style look_of_input = {"ellipse", "#ffffff", "#2f74c0"};
static const node_style look_of_state = {"box3d", "#f4f1ea", "#8a7f6a"};
static const node_style look_of_constant = {"note", "#f4f1ea", "#8a7f6a"};

static const node_style *look_of(const node_record *node)
{
    return node->op == &weft_op_input      ? &look_of_input
           : node->op == &weft_op_state    ? &look_of_state
           : node->op == &weft_op_constant ? &look_of_constant
           : node->op->updates             ? &look_of_direction[WEFT_UPDATE]
                                           : &look_of_direction[node->role.direction];
}

/* ---- Nodes and boxes ---- */

/* `prefix` and the index are the node's name in the picture. */
static void draw_node(FILE *file, const weft_graph *g, const char *prefix, size_t index,
                      const weft_dot_options *options)
{
    weft_dot_node extra = {"", ""};
    const node_record *node = &g->nodes[index];
    const value_record *value = &g->values[node->first_out];
    const node_style *look = look_of(node);
    /* Those of a leaf are its type. */
    const weft_attr_field *attrs =
        weft__op_is_leaf(node->op) || options->depth > 0 ? NULL : node->op->attrs;
    char text[192];
    if (options->decorate) options->decorate(options->user, g, index, &extra);
    fprintf(file, "%s%zu [shape=%s, color=\"%s\", fillcolor=\"", prefix, index, look->shape,
            look->line);
    quoted(file, extra.color[0] ? extra.color : look->fill);
    fputs("\", label=\"", file);
    if (value->name) {
        quoted(file, value->name);
        if (!weft__op_is_leaf(node->op)) fprintf(file, "\\n%s", node->op->name);
    } else {
        quoted(file, node->op->name);
    }
    for (const weft_attr_field *f = attrs; f && f->name; f++) {
        fputs("\\n", file);
        quoted(file, weft__attr_field_text(f, node->attr, text, sizeof text));
    }
    for (int k = 0; k < node->op->n_out; k++)
        fprintf(file, "\\n%s %s", weft_dtype_name(value[k].stored),
                weft_shape_text(value[k].type.shape, text, sizeof text));
    if (extra.line[0]) {
        fputs("\\n", file);
        quoted(file, extra.line);
    }
    fputs("\"];\n", file);
}

static void draw_box(FILE *file, const weft_graph *g, size_t index, const dot_box *box)
{
    const weft_direction direction = g->nodes[index].role.direction;
    const node_style *look = &look_of_direction[direction];
    fprintf(file,
            "n%zu [shape=box, style=\"filled,rounded\", penwidth=1.5, color=\"%s\", "
            "fillcolor=\"%s\", label=\"",
            index, look->line, look->fill);
    quoted_part(file, box->scope, box->length);
    fprintf(file, "\\n%s%u %s", direction == WEFT_BACKWARD ? "gradient, " : "", box->nodes,
            box->nodes == 1 ? "node" : "nodes");
    if (box->parameters > 0) fprintf(file, "\\n%.0f parameters", box->parameters);
    fputs("\"];\n", file);
}

/* ---- Clusters ---- */

/* Goes from the cluster of one scope to that of the next: closes what ends, opens what begins. A
 * cluster is known by its whole scope, so that a scope that is entered again continues its
 * cluster. */
static void change_scope(FILE *file, const char *from, const char *to)
{
    const char *whole = to;
    /* Past the components that both have. */
    for (;;) {
        size_t n = weft__text_component(from), m = weft__text_component(to);
        if (n == 0 || n != m || strncmp(from, to, n) != 0) break;
        from += n + (from[n] == '.');
        to += n + (to[n] == '.');
    }
    for (; *from; from += *from == '.') {
        fputs("}\n", file);
        from += weft__text_component(from);
    }
    for (; *to; to += *to == '.') {
        size_t n = weft__text_component(to);
        fputs("subgraph \"cluster_", file);
        quoted_part(file, whole, (size_t)(to - whole) + n);
        fputs("\" { color=\"#999999\"; label=\"", file);
        quoted_part(file, to, n);
        fputs("\";\n", file);
        to += n;
    }
}

/* ---- Edges ---- */

/* The shapes of the values that flow along an edge, the first two kinds of them; returns how many
 * records of the edge there are. */
static size_t draw_shapes(FILE *file, const weft_graph *g, const dot_edge *edge, size_t n)
{
    char text[2][128], next[128];
    size_t count = 0, shown = 0;
    for (; count < n && edge[count].from == edge->from && edge[count].to == edge->to; count++) {
        weft_shape_text(g->values[edge[count].value].type.shape, next, sizeof next);
        bool known = shown == 2;
        for (size_t i = 0; i < shown; i++) known |= !strcmp(next, text[i]);
        if (!known) strcpy(text[shown++], next);
    }
    fputs("label=\"", file);
    for (size_t i = 0; i < shown; i++) fprintf(file, "%s%s", i ? "\\n" : "", text[i]);
    fputs("\"", file);
    return count;
}

/* Edges of boxes. What the backward pass reads of the forward pass is drawn thin and does not count
 * in the layout; edges of the backward pass point upwards. So the two passes stand side by side. */
static void draw_joined(FILE *file, const weft_graph *g, const dot_boxes *b)
{
    for (size_t i = 0; i < b->n_edges;) {
        const dot_edge *e = &b->edges[i];
        const weft_direction from = g->nodes[e->from].role.direction,
                             to = g->nodes[e->to].role.direction;
        if (from == WEFT_BACKWARD && to == WEFT_BACKWARD)
            fprintf(file, "n%u -> n%u [dir=back, color=\"%s\", ", e->to, e->from,
                    look_of_direction[to].line);
        else
            fprintf(file, "n%u -> n%u [", e->from, e->to);
        if (from != to) {
            fputs("style=dashed, color=\"#bbbbbb\", constraint=false];\n", file);
            while (i < b->n_edges && b->edges[i].from == e->from && b->edges[i].to == e->to) i++;
        } else {
            i += draw_shapes(file, g, e, b->n_edges - i);
            fputs("];\n", file);
        }
    }
}

/* ---- Bodies of loops ---- */

static const char *input_kind(const scan_body *b, uint32_t i)
{
    if (i + 1 == b->when) return "whether the step runs";
    return i < b->n_carry ? "carry" : i < b->n_carry + b->n_each ? "slice" : "shared";
}

static void draw_body(FILE *file, const weft_graph *g, const char *prefix, size_t index);

/* The nodes of a body, whose names begin with `inner`, and the edges between them. */
static void draw_body_nodes(FILE *file, const weft_graph *g, const char *inner)
{
    static const weft_dot_options plain = {0};
    for (size_t n = 0; n < g->n_nodes; n++) {
        const node_record *node = &g->nodes[n];
        const bool has_body = scan_of(node->op, node->attr) != NULL;
        draw_node(file, g, inner, n, &plain);
        if (has_body) draw_body(file, g, inner, n);
        for (size_t i = 0; i < node->n_in && !has_body; i++)
            fprintf(file, "%s%u -> %s%zu;\n", inner, g->values[node->in[i]].node, inner, n);
    }
}

/* The body of a loop as a box: its inputs are connected with what the loop reads, and what a step computes
 * with the loop, and with the inputs that it becomes in the next step. */
static void draw_body(FILE *file, const weft_graph *g, const char *prefix, size_t index)
{
    const node_record *node = &g->nodes[index];
    const scan_body *b = scan_of(node->op, node->attr)->body;
    const weft_graph *body = b->graph;
    char inner[64];
    if (weft__text_format(inner, sizeof inner, "%s%zu_", prefix, index) >= (int)sizeof inner)
        return;
    fprintf(file,
            "subgraph \"cluster_%s\" { color=\"#2f74c0\"; style=rounded; fontname=\"Helvetica\"; "
            "fontsize=10; label=\"a step of %s, "
            "%zu nodes\";\n",
            inner, node->op->name, body->n_nodes);
    draw_body_nodes(file, body, inner);
    fputs("}\n", file);
    for (uint32_t i = 0; i < scan_inputs(b); i++)
        fprintf(file, "%s%u -> %s%u [style=dashed, label=\"%s\"];\n", prefix,
                g->values[node->in[i]].node, inner, body->values[b->in[i]].node, input_kind(b, i));
    for (uint32_t k = 0; k < b->n_carry + b->n_out; k++) {
        const uint32_t from = body->values[b->out[k]].node;
        fprintf(file, "%s%u -> %s%zu [style=dashed, label=\"%s\"];\n", inner, from, prefix, index,
                k < b->n_carry ? "last" : "stack");
        if (k < b->n_carry)
            fprintf(file, "%s%u -> %s%u [style=dotted, constraint=false, label=\"next\"];\n", inner,
                    from, inner, body->values[b->in[k]].node);
    }
}

/* ---- The graph ---- */

static bool has_body(const weft_graph *g, size_t n)
{
    return scan_of(g->nodes[n].op, g->nodes[n].attr) != NULL;
}

/* Every node, in the clusters of its scopes, with the bodies of loops. */
static void draw_clusters(FILE *file, const weft_graph *g, const dot_boxes *b,
                          const weft_dot_options *options)
{
    const char *scope = "";
    for (size_t n = 0; n < g->n_nodes; n++) {
        if (b->of[n] == DOT_HIDDEN) continue;
        change_scope(file, scope, g->nodes[n].scope);
        scope = g->nodes[n].scope;
        draw_node(file, g, "n", n, options);
    }
    change_scope(file, scope, "");
    for (size_t n = 0; n < g->n_nodes; n++)
        if (b->of[n] != DOT_HIDDEN && has_body(g, n)) draw_body(file, g, "n", n);
    for (size_t i = 0; i < b->n_edges; i++)
        if (!has_body(g, b->edges[i].to))
            fprintf(file, "n%u -> n%u;\n", b->edges[i].from, b->edges[i].to);
}

/* Boxes, and the nodes outside of any, without clusters: the names of boxes are whole scopes, and
 * Graphviz 2.43 corrupts its memory where edges with labels cross clusters. */
static void draw_boxes(FILE *file, const weft_graph *g, const dot_boxes *b,
                       const weft_dot_options *options)
{
    for (size_t n = 0; n < g->n_nodes; n++) {
        if (b->of[n] != n) continue;
        if (b->box[n].nodes)
            draw_box(file, g, n, &b->box[n]);
        else
            draw_node(file, g, "n", n, options);
    }
    draw_joined(file, g, b);
}

weft_status weft_graph_write_dot(const weft_graph *graph, const weft_dot_options *options,
                                 FILE *file, weft_error *error)
{
    weft_error_clear(error);
    static const weft_dot_options defaults = {0};
    const weft_dot_options *o = options ? options : &defaults;
    const weft_error *e = weft_graph_error(graph);
    if (e->status != WEFT_OK) return weft_error_copy(error, e);
    if (!file || o->depth < 0)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "dot",
                              file ? "the depth is negative" : "the file is NULL");
    dot_boxes b = {0};
    fputs("digraph weft {\nrankdir=TB;\nnode [style=filled, fontname=\"Helvetica\", fontsize=10];\n"
          "edge [color=\"#666666\", fontname=\"Helvetica\", fontsize=8];\n",
          file);
    const bool good = weft__dot_boxes_make(&b, graph, o);
    if (good && o->depth > 0)
        draw_boxes(file, graph, &b, o);
    else if (good)
        draw_clusters(file, graph, &b, o);
    fputs("}\n", file);
    weft__dot_boxes_free(&b);
    if (!good) return weft_error_set(error, WEFT_NO_MEMORY, "dot", "out of memory");
    /* A full disk is noticed only when the file is flushed. */
    if (fflush(file) != 0 || ferror(file))
        return weft_error_set(error, WEFT_IO, "dot", "the file cannot be written: %s",
                              strerror(errno));
    return WEFT_OK;
}
