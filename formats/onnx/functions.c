/* What a model and its functions import and define, by name: versions of op sets, functions, and
 * the attributes that a function has by default. O(names). */
#include "onnx/import.h"

#include <stdio.h>
#include <string.h>

/* The domain of ops of ONNX itself has two names. */
const char *weft__onnx_domain(const char *domain)
{
    return strcmp(onnx_text(domain), "ai.onnx") ? onnx_text(domain) : "";
}

/* "LENGTH:DOMAIN NAME", which no other domain and name have; NULL if out of memory. */
static const char *function_key(arena *memory, const char *domain, const char *name)
{
    const size_t room = strlen(domain) + strlen(name) + 32;
    char *key = weft__arena_alloc(memory, room);
    if (key) snprintf(key, room, "%zu:%s %s", strlen(domain), domain, name);
    return key;
}

/* Versions by domain; the first one of a domain counts. */
static bool add_opsets(arena *memory, name_table *opsets, WeftOnnx__OperatorSetIdProto *const *list,
                       size_t n)
{
    opsets->memory = memory;
    for (size_t i = 0; i < n; i++)
        if (!weft__name_table_put(opsets, weft__onnx_domain(list[i]->domain),
                                  (size_t)list[i]->version))
            return false;
    return true;
}

bool weft__onnx_add_attributes(arena *memory, name_table *attributes,
                               WeftOnnx__AttributeProto *const *list, size_t n)
{
    attributes->memory = memory;
    for (size_t i = 0; i < n; i++)
        if (!weft__name_table_put(attributes, onnx_text(list[i]->name), (uintptr_t)list[i]))
            return false;
    return true;
}

bool weft__onnx_index_functions(weft_onnx *m)
{
    const WeftOnnx__ModelProto *proto = m->proto;
    m->functions = weft__arena_alloc(&m->memory, (proto->n_functions + 1) * sizeof *m->functions);
    m->function_index.memory = &m->memory;
    bool good = m->functions &&
                add_opsets(&m->memory, &m->opsets, proto->opset_import, proto->n_opset_import);
    for (size_t i = 0; good && i < proto->n_functions; i++) {
        onnx_function *f = &m->functions[i];
        f->proto = proto->functions[i];
        const char *key = function_key(&m->memory, weft__onnx_domain(f->proto->domain),
                                       onnx_text(f->proto->name));
        good =
            key && weft__name_table_put(&m->function_index, key, i) &&
            add_opsets(&m->memory, &f->opsets, f->proto->opset_import, f->proto->n_opset_import) &&
            weft__onnx_add_attributes(&m->memory, &f->defaults, f->proto->attribute_proto,
                                      f->proto->n_attribute_proto);
    }
    return good;
}

int64_t weft__import_opset(const onnx_import *import, const onnx_scope *scope, const char *domain)
{
    const onnx_scope *body = weft__scope_function(scope);
    const size_t *version =
        weft__name_table_find(body ? &body->function->opsets : &import->model->opsets, domain);
    return version ? (int64_t)*version : 1;
}

const onnx_function *weft__import_function(onnx_import *import, const char *domain,
                                           const char *name)
{
    const weft_onnx *m = import->model;
    if (!m->function_index.count) return NULL;
    const char *key = function_key(&import->memory, domain, name);
    if (!key)
        weft__import_fail(import, WEFT_NO_MEMORY, name, "no memory for the name of a function");
    const size_t *index = key ? weft__name_table_find(&m->function_index, key) : NULL;
    return index ? &m->functions[*index] : NULL;
}
