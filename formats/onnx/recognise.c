/* Finds ops of weft again in nodes that weft exported (note.c). A note is a hint only. The op is
 * built from it on a graph of its own and exported again; it is used if the export has the same
 * nodes, attributes and constants as the file. So results are bit-identical to those of the op, and
 * a file that a tool has changed means what its nodes say. O(nodes of the op). */
#include "onnx/export.h"
#include "onnx/ops.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* The nodes that a note is about. */
typedef struct noted {
    onnx_import *import;
    onnx_scope *scope;
    WeftOnnx__NodeProto *const *nodes;
    export_note note;
    onnx_value *in[EXPORT_NOTE_INPUTS];
    const char *names[EXPORT_NOTE_INPUTS];
} noted;

static void no_memory(onnx_import *import)
{
    weft__import_fail(import, WEFT_NO_MEMORY, "weft_onnx", "no memory for an op of weft");
}

/* ---- Inputs ---- */

static bool input_type(noted *n, onnx_value *v, weft_type *type)
{
    if (!weft__import_contents(n->import, v)) return false;
    if (v->known || v->weight) {
        *type = (weft_type){v->tensor.dtype, v->tensor.shape};
        return true;
    }
    if (!weft_is_value(v->value)) return false;
    const weft_value x = weft__import_value(n->import, v);
    *type = (weft_type){weft_dtype_of(n->import->graph, x), weft_shape_of(n->import->graph, x)};
    return true;
}

static bool find_inputs(noted *n, weft_type *types)
{
    for (size_t i = 0; i < n->note.n_in; i++) {
        const uint32_t node = n->note.node[i], slot = n->note.slot[i];
        if (node >= n->note.n_nodes || slot >= n->nodes[node]->n_input) return false;
        n->names[i] = n->nodes[node]->input[slot];
        n->in[i] = weft__scope_find(n->scope, n->names[i]);
        if (!n->in[i] || !input_type(n, n->in[i], &types[i])) return false;
    }
    return true;
}

/* ---- Comparison ---- */

/* Whether a value of the file is a constant with these contents. */
static bool same_constant(noted *n, const char *name, const export_constant *c)
{
    onnx_value *v = weft__scope_find(n->scope, name);
    if (!v || v->weight || v->trainable || !weft__import_contents(n->import, v) || !v->known)
        return false;
    const onnx_tensor *t = &v->tensor;
    if (v->type != (int)c->type || !weft_shape_equal(t->shape, c->shape)) return false;
    if (c->type != WEFT_ONNX_INT64) return !c->bytes || !memcmp(t->data, c->data, c->bytes);
    const int64_t *wanted = c->data;
    for (int64_t i = 0, count = weft_shape_numel(c->shape); i < count; i++)
        if (onnx_tensor_element(t, i) != (double)wanted[i]) return false;
    return true;
}

static bool same_operand(noted *n, const export_record *r, weft_operand operand, const char *name)
{
    const export_operand *o = &r->operands[operand.id];
    if (!operand.id) return !name[0];
    if (o->kind == EXPORT_CONSTANT) return same_constant(n, name, &r->constants[o->index]);
    if (o->kind == EXPORT_OUTPUT) {
        const WeftOnnx__NodeProto *from = n->nodes[o->index];
        return o->output < from->n_output && !strcmp(from->output[o->output], name);
    }
    /* an input of the op: leaves are declared in their order */
    const weft_value v = weft_value_from_id(r->graph, o->index);
    return !strcmp(n->names[weft_producer_of(r->graph, v)], name);
}

static bool same_attribute(const weft_onnx_attr *a, const WeftOnnx__AttributeProto *b)
{
    if (strcmp(a->name, onnx_text(b->name)) != 0) return false;
    switch (a->kind) {
    case WEFT_ONNX_ATTR_FLOAT:
        return b->has_f && !memcmp(&a->number, &b->f, sizeof b->f);
    case WEFT_ONNX_ATTR_INT:
        return b->has_i && a->integer == b->i;
    case WEFT_ONNX_ATTR_INTS:
        return a->n_integers == b->n_ints &&
               (!b->n_ints || !memcmp(a->integers, b->ints, b->n_ints * sizeof *b->ints));
    default:
        return b->has_s && b->s.len == strlen(a->text) && !memcmp(a->text, b->s.data, b->s.len);
    }
}

static bool same_node(noted *n, const export_record *r, size_t index)
{
    const export_node *a = &r->nodes[index];
    const WeftOnnx__NodeProto *b = n->nodes[index];
    bool same = !strcmp(a->type, onnx_text(b->op_type)) && !onnx_text(b->domain)[0] &&
                a->n_in == b->n_input && a->n_out == b->n_output && a->n_attrs == b->n_attribute;
    for (size_t i = 0; same && i < a->n_in; i++) same = same_operand(n, r, a->in[i], b->input[i]);
    for (size_t i = 0; same && i < a->n_attrs; i++)
        same = same_attribute(&a->attrs[i], b->attribute[i]);
    return same;
}

/* ---- The op ---- */

/* Records the op on inputs of these types. The outputs become operands[k] of the record. */
static bool record_op(noted *n, const weft_type *types, weft_graph *g, export_record *r,
                      weft_operand operands[WEFT_MAX_OUTPUTS])
{
    weft_value in[EXPORT_NOTE_INPUTS], out[WEFT_MAX_OUTPUTS], wanted[WEFT_MAX_OUTPUTS];
    weft_error ignored = {0};
    size_t n_wanted = 0;
    char name[24];
    for (size_t i = 0; i < n->note.n_in; i++) {
        snprintf(name, sizeof name, "%zu", i);
        in[i] = weft_input(g, name, types[i].dtype, types[i].shape);
    }
    weft_apply(g, n->note.op, n->note.attr, in, n->note.n_in, out);
    for (size_t k = 0; k < n->note.op->n_out; k++)
        if (n->note.wanted[k]) wanted[n_wanted++] = out[k];
    const int64_t opset = weft__import_opset(n->import, n->scope, "");
    if (weft_graph_status(g) == WEFT_NO_MEMORY) no_memory(n->import);
    if (weft_graph_status(g) != WEFT_OK || !n_wanted || opset < EXPORT_MIN_OPSET ||
        opset > EXPORT_MAX_OPSET)
        return false;
    size_t *budget = &n->import->budget;
    const weft_status status =
        weft__export_graph(r, g, wanted, n_wanted, (int)opset, *budget, &ignored);
    *budget -= r->computed < *budget ? r->computed : *budget;
    if (status == WEFT_NO_MEMORY) no_memory(n->import);
    for (size_t k = 0; status == WEFT_OK && k < n->note.op->n_out; k++)
        operands[k] = n->note.wanted[k] ? r->of_value[out[k].id] : WEFT_NO_OPERAND;
    return status == WEFT_OK && r->n_nodes == n->note.n_nodes;
}

/* Adds the outputs of the nodes to the scope: the op's as values, all others as what is computed
 * only when another node reads it. */
static void add_outputs(noted *n, const export_record *r, const weft_operand *operands,
                        const weft_value *values)
{
    for (size_t i = 0; i < n->note.n_nodes; i++) {
        WeftOnnx__NodeProto *node = n->nodes[i];
        for (size_t k = 0; k < node->n_output; k++) {
            if (!node->output[k][0]) continue;
            onnx_value *v = weft__scope_add(n->import, n->scope, node->output[k]);
            if (!v) return;
            v->trainable = true;
            v->output = v->name;
            v->node = node;
            v->scope = n->scope;
            for (size_t out = 0; out < n->note.op->n_out; out++) {
                const export_operand *o = &r->operands[operands[out].id];
                if (!operands[out].id || o->kind != EXPORT_OUTPUT || o->index != i ||
                    o->output != k)
                    continue;
                v->value = values[out];
                v->type = (int)weft_export_type(weft_dtype_of(n->import->graph, values[out]));
            }
        }
    }
}

static bool build(noted *n, const export_record *r, const weft_operand *operands)
{
    onnx_import *import = n->import;
    weft_value in[EXPORT_NOTE_INPUTS], out[WEFT_MAX_OUTPUTS] = {{0, 0}};
    char label[ONNX_SCOPE_BYTES], own[ONNX_SCOPE_BYTES];
    memcpy(label, import->label, sizeof label);
    weft__onnx_node_scope(import->model, n->nodes[0], own);
    weft__import_label(import, own);
    for (size_t i = 0; i < n->note.n_in; i++) in[i] = weft__import_value(import, n->in[i]);
    if (!weft__import_failed(import))
        weft_apply(import->graph, n->note.op, n->note.attr, in, n->note.n_in, out);
    weft__import_label(import, label);
    if (!weft__import_failed(import)) add_outputs(n, r, operands, out);
    return !weft__import_failed(import);
}

size_t weft__import_noted(onnx_import *import, onnx_scope *scope, WeftOnnx__NodeProto *const *nodes,
                          size_t count)
{
    noted n = {.import = import, .scope = scope, .nodes = nodes};
    weft_type types[EXPORT_NOTE_INPUTS];
    weft_operand operands[WEFT_MAX_OUTPUTS] = {{0}};
    const char *text = nodes[0]->doc_string;
    if (!text) return 0;
    const bool is_note = weft__export_read_note(text, &import->memory, &n.note);
    if (n.note.no_memory) no_memory(import);
    if (!is_note || n.note.n_nodes > count || !find_inputs(&n, types)) return 0;
    weft_graph *g = weft_graph_new();
    if (!g) no_memory(import);
    export_record r = {.graph = NULL};
    bool same = g && record_op(&n, types, g, &r, operands);
    for (size_t i = 0; same && i < n.note.n_nodes; i++) same = same_node(&n, &r, i);
    if (same) same = build(&n, &r, operands);
    import->nodes += n.note.n_nodes;
    if (!same && !weft__import_failed(import))
        weft__log(WEFT_LOG_INFO, onnx_text(nodes[0]->name),
                  "its note of weft's op %s is not used: the nodes differ from those of the op",
                  n.note.op->name);
    weft__export_free(&r);
    weft_graph_free(g);
    return same ? n.note.n_nodes : 0;
}
