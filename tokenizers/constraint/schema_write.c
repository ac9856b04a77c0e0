/* Writing the pattern of a schema, reading keywords, and errors that say where they are. */
#include "schema.h"

#include "base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a pattern: far more than PCRE2 compiles. */
#define MAX_PATTERN (1 << 20)

/* ---- Errors ---- */

size_t weft__schema_place(const schema_place *at, char *text, size_t size)
{
    if (!at) return (size_t)snprintf(text, size, "#");
    size_t n = weft__schema_place(at->in, text, size);
    if (n >= size) return n;
    return n + (size_t)(at->name ? snprintf(text + n, size - n, "/%.60s", at->name)
                                 : snprintf(text + n, size - n, "/%zu", at->index));
}

void weft__schema_refuse(schema_writer *w, const schema_place *at, const char *format, ...)
{
    char place[200], what[200], whole[420], safe[420];
    va_list arguments;
    if (w->status != WEFT_OK) return;
    va_start(arguments, format);
    weft__text_vformat(what, sizeof what, format, arguments);
    va_end(arguments);
    weft__schema_place(at, place, sizeof place);
    weft__text_format(whole, sizeof whole, "%s: %s", place, what);
    weft__text_printable(safe, sizeof safe, whole);
    w->status = weft_error_set(w->error, WEFT_BAD_ARGUMENT, "schema", "%s", safe);
}

void weft__schema_no_memory(schema_writer *w)
{
    if (w->status == WEFT_OK)
        w->status = weft_error_set(w->error, WEFT_NO_MEMORY, "schema", "out of memory");
}

/* ---- The pattern ---- */

static void put(schema_writer *w, const char *text, size_t n)
{
    if (w->status != WEFT_OK) return;
    if (w->n + n >= MAX_PATTERN) {
        w->status =
            weft_error_set(w->error, WEFT_TOO_LARGE, "schema",
                           "its regular expression would have more than %d bytes", MAX_PATTERN);
        return;
    }
    if (w->n + n >= w->capacity) {
        const size_t capacity = 2 * (w->n + n) + 1024;
        char *grown = realloc(w->text, capacity);
        if (!grown) {
            weft__schema_no_memory(w);
            return;
        }
        w->text = grown;
        w->capacity = capacity;
    }
    memcpy(w->text + w->n, text, n);
    w->n += n;
    w->text[w->n] = 0;
}

void weft__schema_put(schema_writer *w, const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    const int n = weft__text_vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    if (n > 0) put(w, text, (size_t)n);
}

void weft__schema_copy(schema_writer *w, const char *before, const char *at, const char *end,
                       const char *after)
{
    put(w, before, strlen(before));
    put(w, at, (size_t)(end - at));
    put(w, after, strlen(after));
}

void weft__schema_quote(schema_writer *w, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        char escaped[8];
        const bool plain = c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                           (c >= 'A' && c <= 'Z') || c == '_' || c == '"';
        if (!plain) snprintf(escaped, sizeof escaped, "\\x%02x", c);
        put(w, plain ? text + i : escaped, plain ? 1 : 4);
    }
}

/* A value other than a list or an object. */
static void put_scalar(schema_writer *w, const cJSON *value)
{
    char *text = weft__json_print(value, false);
    if (!text) weft__schema_no_memory(w);
    if (text) weft__schema_quote(w, text, strlen(text));
    cJSON_free(text);
}

void weft__schema_text(schema_writer *w, const char *text)
{
    cJSON *value = cJSON_CreateStringReference(text);
    if (!value) weft__schema_no_memory(w);
    if (value) put_scalar(w, value);
    cJSON_Delete(value);
}

void weft__schema_literal(schema_writer *w, const cJSON *value)
{
    const bool object = cJSON_IsObject(value);
    const cJSON *item;
    if (!object && !cJSON_IsArray(value)) {
        put_scalar(w, value);
        return;
    }
    weft__schema_put(w, object ? "\\{" : "\\[");
    cJSON_ArrayForEach(item, value)
    {
        if (w->status != WEFT_OK) return;
        if (item != value->child) weft__schema_put(w, ",\\x20?");
        if (object) {
            weft__schema_text(w, item->string);
            weft__schema_put(w, ":\\x20?");
        }
        weft__schema_literal(w, item);
    }
    weft__schema_put(w, object ? "\\}" : "\\]");
}

/* ---- Keywords ---- */

const cJSON *weft__schema_keyword(const cJSON *schema, const char *name)
{
    return cJSON_IsObject(schema) ? cJSON_GetObjectItemCaseSensitive(schema, name) : NULL;
}

long weft__schema_count(schema_writer *w, const cJSON *schema, const char *name, long none,
                        const schema_place *at)
{
    const cJSON *item = weft__schema_keyword(schema, name);
    if (!item) return none;
    const double x = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (x >= 0 && x <= 65534 && x == floor(x)) return (long)x;
    weft__schema_refuse(w, at, "%s must be a whole number from 0 to 65534", name);
    return none;
}
