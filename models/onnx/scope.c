/* Values by name: a hash table with linear probing, which doubles when half full. */
#include "onnx/import.h"

#include <string.h>

static size_t slot_of(const onnx_scope *scope, const char *name)
{
    size_t i = weft_hash_text(name) & (scope->capacity - 1);
    while (scope->slots[i] && strcmp(scope->slots[i]->name, name) != 0)
        i = (i + 1) & (scope->capacity - 1);
    return i;
}

static bool grow(onnx_import *import, onnx_scope *scope)
{
    if (2 * (scope->count + 1) <= scope->capacity) return true;
    onnx_scope grown = *scope;
    grown.capacity = scope->capacity ? 2 * scope->capacity : 16;
    grown.slots = arena_alloc(&import->memory, grown.capacity * sizeof *grown.slots);
    if (!grown.slots) return false;
    for (size_t i = 0; i < scope->capacity; i++)
        if (scope->slots[i]) grown.slots[slot_of(&grown, scope->slots[i]->name)] = scope->slots[i];
    *scope = grown;
    return true;
}

onnx_value *scope_add(onnx_import *import, onnx_scope *scope, const char *name)
{
    onnx_value *value = grow(import, scope) ? arena_alloc(&import->memory, sizeof *value) : NULL;
    if (!value) {
        import_fail(import, WEFT_NO_MEMORY, name, "no memory for a value");
        return NULL;
    }
    const size_t slot = slot_of(scope, name);
    if (scope->slots[slot]) {
        import_fail(import, WEFT_BAD_FILE, name, "two values of a graph have this name");
        return NULL;
    }
    value->name = name;
    scope->slots[slot] = value;
    scope->count++;
    return value;
}

onnx_value *scope_find(const onnx_scope *scope, const char *name)
{
    for (; scope; scope = scope->outer) {
        onnx_value *value = scope->capacity ? scope->slots[slot_of(scope, name)] : NULL;
        if (value) return value;
    }
    return NULL;
}

const onnx_scope *scope_function(const onnx_scope *scope)
{
    while (scope && !scope->function) scope = scope->outer;
    return scope;
}
