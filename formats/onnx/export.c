/* Records a graph as nodes of ONNX: see export.h. O(nodes), and the bytes of constants. */
#include "onnx/export.h"

#include "base/text.h"
#include "ir/scan.h"

#include <weft/ops.h>
#include <weft/session.h>

#include <stdlib.h>
#include <string.h>

/* The most expansions and bodies within each other, with the graph itself. */
#define MAX_DEPTH 32

/* ---- Nodes of the graph ---- */

static size_t value_count(const weft_graph *g)
{
    const size_t n = weft_graph_node_count(g);
    const weft_node_info last = weft_graph_node(g, n ? n - 1 : 0);
    return n ? last.first_out + last.n_out : 1;
}

static void mark_needed(export_frame *f, const bool *is_output)
{
    const size_t n = value_count(f->graph);
    memcpy(f->needed, is_output, n * sizeof *f->needed);
    for (size_t i = weft_graph_node_count(f->graph); i-- > 0;) {
        const weft_node_info node = weft_graph_node(f->graph, i);
        const bool needed = export_is_needed(f, &node);
        if (needed && weft__export_is_branch(&node))
            weft__export_need_branch(f, i);
        else
            for (size_t k = 0; needed && k < node.n_in; k++) f->needed[node.in[k]] = true;
    }
}

bool weft__export_open_frame(export_record *r, export_frame *f, const weft_graph *g, bool named,
                             const weft_value *outputs, size_t n_outputs)
{
    const size_t n = value_count(g);
    bool *is_output = weft__arena_alloc(&r->memory, n * sizeof *is_output);
    *f = (export_frame){.graph = g, .named = named, .n_values = n};
    f->of_value = weft__arena_alloc(&r->memory, n * sizeof *f->of_value);
    f->needed = weft__arena_alloc(&r->memory, n * sizeof *f->needed);
    if (!f->of_value || !f->needed || !is_output) return weft__export_no_memory(r), false;
    for (size_t i = 0; i < n_outputs; i++)
        if (weft_is_value(outputs[i])) is_output[outputs[i].id] = true;
    mark_needed(f, is_output);
    if (!weft__export_find_partners(r, f, is_output)) return false;
    if (f->partner) mark_needed(f, is_output);
    return true;
}

/* Records the expansion of a node as nodes of a graph of its own. */
static bool record_expansion(export_record *r, const weft_node_info *node, const weft_type *in_type,
                             weft_export *e)
{
    weft_graph *g = weft_graph_new();
    weft_value *in = weft__arena_alloc(&r->memory, (node->n_in + 1) * sizeof *in);
    weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}}, wanted[WEFT_MAX_OUTPUTS];
    export_frame f;
    char name[24];
    size_t n_wanted = 0;
    if (!g || !in) return weft_graph_free(g), weft__export_no_memory(r), false;
    for (size_t i = 0; i < node->n_in; i++) {
        snprintf(name, sizeof name, "%zu", i);
        in[i] = weft_input(g, name, in_type[i].dtype, in_type[i].shape);
    }
    node->op->expand(&(weft_expand){g, node->attr, node->n_in, node->n_out, in, out});
    for (size_t k = 0; k < node->n_out; k++)
        if (e->wanted[k]) wanted[n_wanted++] = out[k];
    if (weft_graph_status(g) != WEFT_OK)
        weft__export_fail(r, weft_graph_status(g), weft_graph_error(g)->message);
    else if (weft__export_open_frame(r, &f, g, false, wanted, n_wanted)) {
        for (size_t i = 0; i < node->n_in; i++) f.of_value[in[i].id] = e->in[i];
        if (weft__export_frame_nodes(r, &f))
            for (size_t k = 0; k < node->n_out; k++)
                if (e->wanted[k]) e->out[k] = f.of_value[out[k].id];
    }
    weft_graph_free(g);
    return !export_failed(r);
}

/* Computes an output of a node without inputs. */
static weft_operand compute(export_record *r, const weft_graph *from, size_t index, size_t k)
{
    weft_session_options one = {.threads = 1};
    weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}};
    weft_operand operand = WEFT_NO_OPERAND;
    weft_tensor t;
    weft_graph *g = weft_graph_new();
    if (!g) return weft__export_no_memory(r), operand;
    weft_graph_copy_node(g, from, index, NULL, out);
    const size_t bytes = weft_tensor_bytes(weft_dtype_of(g, out[k]), weft_shape_of(g, out[k]));
    if (bytes > r->max_bytes - r->computed) {
        weft__export_fail(r, WEFT_TOO_LARGE, "its contents are too large");
        return weft_graph_free(g), operand;
    }
    r->computed += bytes;
    weft_plan *plan = weft_plan_new(g, &out[k], 1, NULL, r->error);
    weft_session *s = plan ? weft_session_new(plan, NULL, &one, r->error) : NULL;
    if (s) weft_session_run(s, r->error);
    if (s && !export_failed(r) && weft_session_tensor(s, out[k], &t, NULL) == WEFT_OK)
        operand = weft__export_add_constant(r, weft_export_type(t.dtype), t.shape, t.data);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    return operand;
}

/* Whether the op wrote its own nodes; an op that adds none is written as its expansion. */
static bool wrote_itself(const export_record *r, const weft_op *op, weft_export *e)
{
    const size_t before = r->n_nodes;
    if (!op->onnx) return false;
    op->onnx(e);
    bool some = export_failed(r) || r->n_nodes != before;
    for (size_t k = 0; k < e->n_out; k++) some |= e->out[k].id != 0;
    return some;
}

/* An operand for each wanted output of a node, in e->out. */
static bool record_op(export_record *r, export_frame *f, size_t index, const weft_node_info *node,
                      weft_export *e)
{
    const weft_op *op = node->op;
    if (scan_of(op, node->attr)) {
        if (weft__export_is_branch(node))
            weft__export_branch(r, f, index, e);
        else
            weft__export_scan(r, e);
        e->inexact = true; /* a note cannot describe a body */
    } else if (op->updates) {
        weft__export_fail(r, WEFT_NO_KERNEL, "it updates a state");
    } else if (!wrote_itself(r, op, e)) {
        if (op->expand)
            record_expansion(r, node, e->in_type, e);
        else if (!node->n_in && !op->random && !op->can_fail)
            for (size_t k = 0; k < node->n_out; k++)
                e->out[k] = e->wanted[k] ? compute(r, f->graph, index, k) : WEFT_NO_OPERAND;
        else
            weft__export_fail(r, WEFT_NO_KERNEL, "the op has no form in ONNX");
    }
    for (size_t k = 0; !export_failed(r) && k < node->n_out; k++)
        if (e->wanted[k] && !e->out[k].id)
            weft__export_fail(r, WEFT_NO_KERNEL, "one of its outputs has no form in ONNX");
    r->inexact |= e->inexact;
    r->noted |= e->note;
    return !export_failed(r);
}

static weft_operand record_leaf(export_record *r, const export_frame *f, size_t index,
                                const weft_node_info *node)
{
    if (node->op == &weft_op_constant) return compute(r, f->graph, index, 0);
    return weft__export_add_operand(
        r, (export_operand){.kind = EXPORT_LEAF, .index = node->first_out});
}

static bool has_double(const weft_op *op)
{
    for (const weft_attr_field *field = op->attrs; field && field->name; field++)
        if (field->kind == WEFT_ATTR_DOUBLE) return true;
    return false;
}

static void write_label(export_record *r, const export_frame *f, size_t index)
{
    const weft_node_info node = weft_graph_node(f->graph, index);
    char text[EXPORT_NAME_BYTES + 1];
    weft__text_format(text, sizeof text, "%s%s%s_%zu", node.scope, node.scope[0] ? "/" : "",
                      node.op->name, index);
    r->label = weft__arena_alloc(&r->memory, sizeof *r->label);
    if (r->label) r->label->text = weft__arena_text(&r->memory, text);
    if (!r->label || !r->label->text) weft__export_no_memory(r);
}

/* Hands out the operands of a node's outputs, which get the names of the values. */
static void take_outputs(export_record *r, export_frame *f, const weft_node_info *node,
                         const weft_export *e)
{
    for (size_t k = 0; k < node->n_out; k++) {
        const weft_value v = weft_value_from_id(f->graph, node->first_out + (uint32_t)k);
        const char *name = weft_name_of(f->graph, v);
        export_operand *operand = &r->operands[e->out[k].id];
        f->of_value[v.id] = e->out[k];
        if (!f->named || !e->wanted[k] || operand->kind != EXPORT_OUTPUT || operand->named)
            continue;
        operand->named = true;
        if (!name[0]) continue;
        operand->name = weft__arena_text(&r->memory, name);
        if (!operand->name) weft__export_no_memory(r);
    }
}

static bool record_node(export_record *r, export_frame *f, size_t index)
{
    const weft_node_info node = weft_graph_node(f->graph, index);
    const size_t first = r->n_nodes;
    weft_type *types = weft__arena_alloc(&r->memory, (node.n_in + node.n_out) * sizeof *types);
    weft_operand *in = weft__arena_alloc(&r->memory, (node.n_in + 1) * sizeof *in);
    if (!types || !in) return weft__export_no_memory(r), false;
    for (size_t i = 0; i < node.n_in + node.n_out; i++) {
        const uint32_t id = i < node.n_in ? node.in[i] : node.first_out + (uint32_t)(i - node.n_in);
        const weft_value v = weft_value_from_id(f->graph, id);
        types[i] = (weft_type){weft_dtype_of(f->graph, v), weft_shape_of(f->graph, v)};
        if (i < node.n_in) in[i] = f->of_value[id];
    }
    weft_export e = {
        .receiver = &weft__export_receiver, .context = r, .attr = node.attr, .opset = r->opset};
    e.n_in = node.n_in;
    e.n_out = node.n_out;
    e.in = in;
    e.in_type = types;
    e.out_type = types + node.n_in;
    e.wanted = f->needed + node.first_out;
    if (f->named) r->inexact = r->noted = false;
    if (!record_op(r, f, index, &node, &e)) return false;
    take_outputs(r, f, &node, &e);
    const size_t n = r->n_nodes - first;
    if (!f->named || r->inexact || n == 0 || (n == 1 && !has_double(node.op) && !r->noted))
        return !export_failed(r);
    return weft__export_write_note(r, first, &node, in, e.wanted);
}

/* Records a node of a graph or a body, after which those that it becomes are named. */
static void record_named(export_record *r, export_frame *f, size_t index)
{
    const weft_node_info node = weft_graph_node(f->graph, index);
    export_label *label = r->label;
    const char *inner = r->inner;
    if (f->graph == r->graph)
        r->source = index;
    else
        r->inner = node.op->name;
    write_label(r, f, index);
    if (export_failed(r)) return;
    if (node.op == &weft_op_input || node.op == &weft_op_state || node.op == &weft_op_constant)
        f->of_value[node.first_out] = record_leaf(r, f, index, &node);
    else
        record_node(r, f, index);
    if (f->graph == r->graph) return;
    r->label = label;
    r->inner = inner;
}

bool weft__export_frame_nodes(export_record *r, export_frame *f)
{
    const size_t n = weft_graph_node_count(f->graph);
    if (r->depth++ == MAX_DEPTH)
        weft__export_fail(r, WEFT_TOO_LARGE, "it has too many expansions and bodies in each other");
    for (size_t i = 0; i < n && !export_failed(r); i++) {
        const weft_node_info node = weft_graph_node(f->graph, i);
        if (!export_is_needed(f, &node) || f->of_value[node.first_out].id)
            continue; /* or an expansion's input */
        if (f->named)
            record_named(r, f, i);
        else if (node.op == &weft_op_constant)
            f->of_value[node.first_out] = record_leaf(r, f, i, &node);
        else
            record_node(r, f, i);
    }
    r->depth--;
    return !export_failed(r);
}

/* ---- Graphs ---- */

int weft__export_ir_version(int opset)
{
    return opset < 19 ? 8 : opset < 21 ? 9 : opset < 23 ? 10 : 11;
}

weft_status weft__export_graph(export_record *r, const weft_graph *graph, const weft_value *outputs,
                               size_t n_outputs, int opset, size_t max_bytes, weft_error *error)
{
    export_frame f;
    *r = (export_record){.graph = graph, .opset = opset, .max_bytes = max_bytes, .error = error};
    weft__export_add_operand(r, (export_operand){.kind = EXPORT_LEAF});
    weft__export_begin_body(r, 0, 0); /* the file's graph */
    if (!export_failed(r) && weft__export_open_frame(r, &f, graph, true, outputs, n_outputs) &&
        weft__export_frame_nodes(r, &f)) {
        r->of_value = f.of_value;
        r->n_values = value_count(graph);
    }
    return error->status;
}

void weft__export_free(export_record *r)
{
    weft__arena_free(&r->memory);
    *r = (export_record){.graph = NULL};
}
