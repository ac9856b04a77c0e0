/* Values: memory, failures, equality, order, items. */
#include "chat/value.h"

#include "base/text.h"
#include "unicode.h"

#include <stdarg.h>
#include <string.h>

/* ---- Memory and failures ---- */

ct_value weft__ct_fail(ct_render *r, weft_status status, const char *format, ...)
{
    char what[400], safe[500];
    va_list arguments;
    if (r->status == WEFT_OK) {
        va_start(arguments, format);
        weft__text_vformat(what, sizeof what, format, arguments);
        va_end(arguments);
        weft__text_printable(safe, sizeof safe, what);
        r->status = status;
        if (r->line)
            weft_error_set(r->error, status, "chat template", "line %u: %s", r->line, safe);
        else
            weft_error_set(r->error, status, "chat template", "%s", safe);
    }
    return (ct_value){.type = CT_UNDEFINED};
}

void *weft__ct_alloc(ct_render *r, size_t n, size_t size)
{
    /* What the arena takes for it. */
    const size_t bytes = (n * size + 64) / 64 * 64;
    if (r->status != WEFT_OK) return NULL;
    void *memory = n < CT_MAX_MEMORY / size ? weft__arena_alloc(&r->memory, bytes) : NULL;
    if (memory) return memory;
    if (n >= CT_MAX_MEMORY / size || r->memory.counted == r->memory.limit)
        weft__ct_fail(r, WEFT_TOO_LARGE, "the template needs more than %zu MiB",
                      CT_MAX_MEMORY >> 20);
    else
        weft__ct_fail(r, WEFT_NO_MEMORY, "out of memory");
    return NULL;
}

bool weft__ct_work(ct_render *r, size_t n)
{
    if (r->status != WEFT_OK) return false;
    r->steps += 1 + n / 64;
    if (r->steps <= CT_MAX_STEPS) return true;
    weft__ct_fail(r, WEFT_TOO_LARGE, "the template takes more than %zu steps", CT_MAX_STEPS);
    return false;
}

ct_buffer weft__ct_buffer(void)
{
    return (ct_buffer){.limit = CT_MAX_TEXT};
}

ct_value weft__ct_take(ct_render *r, ct_buffer *b)
{
    ct_value text = ct_string("", 0);
    if (b->too_large)
        weft__ct_fail(r, WEFT_TOO_LARGE, "a text of more than %zu MiB", CT_MAX_TEXT >> 20);
    else if (b->failed)
        weft__ct_fail(r, WEFT_NO_MEMORY, "out of memory");
    char *copy = weft__ct_work(r, b->n) ? weft__ct_alloc(r, b->n + 1, 1) : NULL;
    if (copy && b->n) text = ct_string(memcpy(copy, b->text, b->n), b->n);
    weft__ct_buffer_free(b);
    return text;
}

void weft__ct_add(ct_render *r, ct_items *list, ct_value item)
{
    if (list->n == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 4;
        ct_value *grown = weft__ct_alloc(r, capacity, sizeof *grown);
        if (!grown) return;
        if (list->n) memcpy(grown, list->items, list->n * sizeof *grown);
        list->items = grown;
        list->capacity = capacity;
    }
    list->items[list->n++] = item;
}

ct_value weft__ct_generator(ct_render *r, const ct_value *items, size_t n)
{
    ct_generator *g = weft__ct_alloc(r, 1, sizeof *g);
    if (!g) return ct_sequence(CT_LIST, NULL, 0);
    *g = (ct_generator){items, n, false};
    return (ct_value){.type = CT_GENERATOR, .as.generator = g};
}

/* ---- Reading ---- */

bool weft__ct_is(const ct_value *v, const char *text)
{
    return v->type == CT_STRING && v->n == strlen(text) && !memcmp(v->as.text, text, v->n);
}

bool weft__ct_truth(const ct_value *v)
{
    switch (v->type) {
    case CT_MISSING:
    case CT_UNDEFINED:
    case CT_NONE:
        return false;
    case CT_BOOL:
        return v->as.truth;
    case CT_INT:
        return v->as.whole != 0;
    case CT_FLOAT:
        return v->as.number != 0;
    case CT_STRING:
    case CT_DICT:
        return v->n > 0;
    default:
        return !ct_is_sequence(v) || v->n > 0;
    }
}

const char *weft__ct_type_name(const ct_value *v)
{
    static const char *const names[] = {
        "undefined", "undefined", "None",  "bool",      "int",         "float",      "str",
        "list",      "tuple",     "range", "dict_keys", "dict_values", "dict_items", "generator",
        "dict",      "namespace", "loop",  "macro",     "function",    "method"};
    return names[v->type];
}

ct_value weft__ct_fail_undefined(ct_render *r, const ct_value *v)
{
    const int n = (int)(v->n < 100 ? v->n : 100);
    const ct_value of = {.type = v->of};
    if (v->of == CT_MISSING)
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "'%.*s' is undefined", n,
                             v->n ? v->as.text : "");
    return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "a %s has no attribute '%.*s'",
                         weft__ct_type_name(&of), n, v->n ? v->as.text : "");
}

size_t weft__ct_length(ct_render *r, const ct_value *v)
{
    if (v->type == CT_STRING) {
        weft__ct_work(r, v->n);
        return weft__ct_characters(v->as.text, v->n);
    }
    if (v->type == CT_DICT || ct_is_sequence(v)) return v->n;
    if (v->type != CT_UNDEFINED)
        weft__ct_fail(r, WEFT_BAD_ARGUMENT, "a %s has no length", weft__ct_type_name(v));
    return 0;
}

static const ct_value *characters(ct_render *r, const ct_value *v, size_t *n)
{
    const size_t count = weft__ct_length(r, v);
    ct_value *items = weft__ct_work(r, 64 * count) ? weft__ct_alloc(r, count, sizeof *items) : NULL;
    size_t at = 0;
    if (!items) return NULL;
    for (*n = 0; *n < count; ++*n) {
        const size_t bytes = weft__tk_character_bytes((unsigned char)v->as.text[at]);
        items[*n] = ct_string(v->as.text + at, bytes);
        at += bytes;
    }
    return items;
}

const ct_value *weft__ct_items_of(ct_render *r, const ct_value *v, size_t *n)
{
    *n = 0;
    if (v->type == CT_STRING) return characters(r, v, n);
    if (v->type == CT_GENERATOR) {
        *n = v->as.generator->is_read ? 0 : v->as.generator->n;
        v->as.generator->is_read = true;
        return v->as.generator->items;
    }
    if (ct_is_sequence(v)) {
        *n = v->n;
        return v->as.items;
    }
    if (v->type == CT_DICT) {
        ct_value *keys = weft__ct_work(r, 64 * v->n) ? weft__ct_alloc(r, v->n, sizeof *keys) : NULL;
        if (!keys) return NULL;
        for (; *n < v->n; ++*n) keys[*n] = v->as.pairs[*n].key;
        return keys;
    }
    if (v->type != CT_UNDEFINED)
        weft__ct_fail(r, WEFT_BAD_ARGUMENT, "a %s cannot be iterated", weft__ct_type_name(v));
    return NULL;
}

bool weft__ct_index(ct_render *r, const ct_value *v, const char *what, int64_t *index)
{
    if (ct_is_whole(v)) {
        *index = ct_whole(v);
        return true;
    }
    weft__ct_fail(r, WEFT_BAD_ARGUMENT, "%s must be an integer, not a %s", what,
                  weft__ct_type_name(v));
    return false;
}
