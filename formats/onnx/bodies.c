/* Bodies of nodes: their inputs, nodes and outputs, and values that are known in them. */
#include "onnx/import.h"

const WeftOnnx__GraphProto *weft__body_of(onnx_node *n, const char *name)
{
    const WeftOnnx__AttributeProto *a = weft__attr_find(n, name);
    if (!a || !a->g) weft__node_fail(n, WEFT_BAD_FILE, "has no body \"%s\"", name);
    return a ? a->g : NULL;
}

onnx_scope *weft__body_scope(onnx_node *n)
{
    onnx_scope *scope = weft__arena_alloc(&n->import->memory, sizeof *scope);
    if (!scope) weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a body");
    if (scope) scope->outer = n->scope;
    return scope;
}

onnx_value *weft__body_output(onnx_node *n, const onnx_scope *scope,
                              const WeftOnnx__GraphProto *body, size_t i)
{
    onnx_value *v =
        i < body->n_output ? weft__scope_find(scope, onnx_text(body->output[i]->name)) : NULL;
    if (!v) weft__node_fail(n, WEFT_BAD_FILE, "no node of its body computes output %zu", i);
    return v;
}

void weft__copy_value(onnx_value *to, const onnx_value *from)
{
    const char *name = to->name;
    *to = *from;
    to->name = name;
}

bool weft__body_input(onnx_node *n, onnx_scope *scope, const WeftOnnx__GraphProto *body, size_t i,
                      const onnx_value *value)
{
    onnx_value *v = weft__scope_add(n->import, scope, onnx_text(body->input[i]->name));
    if (v) weft__copy_value(v, value);
    return v != NULL;
}

onnx_scope *weft__run_body(onnx_node *n, const WeftOnnx__GraphProto *body, const onnx_value *inputs,
                           size_t count)
{
    onnx_scope *scope = weft__body_scope(n);
    if (body->n_input != count) {
        weft__node_fail(n, WEFT_BAD_FILE, "its body has %zu inputs, expected %zu", body->n_input,
                        count);
        return NULL;
    }
    for (size_t i = 0; scope && i < count; i++)
        if (!weft__body_input(n, scope, body, i, &inputs[i])) return NULL;
    return scope && weft__import_graph(n->import, scope, body) ? scope : NULL;
}

onnx_value weft__known_number(onnx_node *n, weft_dtype dtype, int64_t number)
{
    onnx_value v = {.name = "", .known = true, .type = dtype == WEFT_I32 ? ONNX_INT64 : ONNX_BOOL};
    int32_t *data = weft__arena_alloc(&n->import->memory, sizeof *data);
    v.tensor = (onnx_tensor){dtype, WEFT_SCALAR, data};
    if (!data)
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a number");
    else if (dtype == WEFT_I32)
        *data = (int32_t)number;
    else
        *(uint8_t *)data = number != 0;
    return v;
}
