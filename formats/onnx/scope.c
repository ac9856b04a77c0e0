/* Values by name, and the scopes in which they are found. */
#include "onnx/import.h"

onnx_value *weft__scope_add(onnx_import *import, onnx_scope *scope, const char *name)
{
    onnx_value *value = weft__arena_alloc(&import->memory, sizeof *value);
    scope->values.memory = &import->memory;
    const size_t *own = value ? weft__name_table_put(&scope->values, name, (uintptr_t)value) : NULL;
    if (!own) {
        weft__import_fail(import, WEFT_NO_MEMORY, name, "no memory for a value");
        return NULL;
    }
    if (*own != (uintptr_t)value) {
        weft__import_fail(import, WEFT_BAD_FILE, name, "two values of a graph have this name");
        return NULL;
    }
    value->name = name;
    value->region = import->region;
    return value;
}

onnx_value *weft__scope_find(const onnx_scope *scope, const char *name)
{
    for (; scope; scope = scope->outer) {
        const size_t *value = weft__name_table_find(&scope->values, name);
        if (value) return (onnx_value *)(uintptr_t)*value;
    }
    return NULL;
}

const onnx_scope *weft__scope_function(const onnx_scope *scope)
{
    while (scope && !scope->function) scope = scope->outer;
    return scope;
}
