/* Values of a tokenizer.json, with one error that says where a wrong one is. */
#include "load.h"

#include "base/text.h"
#include "unicode.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Writes "a.b[3]" and returns its length. */
static size_t write_place(const tk_place *at, char *text, size_t size)
{
    if (!at || (!at->name && !at->in)) return 0;
    size_t n = write_place(at->in, text, size);
    if (n >= size) return n;
    if (!at->name)
        n += (size_t)snprintf(text + n, size - n, "[%zu]", at->index);
    else
        n += (size_t)snprintf(text + n, size - n, "%s%.60s", n ? "." : "", at->name);
    return n;
}

void weft__tk_refuse(tk_loader *l, const tk_place *at, const char *format, ...)
{
    char place[160] = "", what[200], safe[400], whole[400];
    va_list arguments;
    if (l->status != WEFT_OK) return;
    va_start(arguments, format);
    weft__text_vformat(what, sizeof what, format, arguments);
    va_end(arguments);
    write_place(at, place, sizeof place);
    weft__text_format(whole, sizeof whole, "%s%s%s", place, *place ? " " : "", what);
    weft__text_printable(safe, sizeof safe, whole);
    l->status = weft_error_set(l->error, WEFT_BAD_FILE, l->file, "%s", safe);
}

void weft__tk_no_memory(tk_loader *l)
{
    if (l->status == WEFT_OK)
        l->status = weft_error_set(l->error, WEFT_NO_MEMORY, l->file, "out of memory");
}

void *weft__tk_alloc(tk_loader *l, size_t n, size_t size)
{
    void *memory = l->status == WEFT_OK ? calloc(n ? n : 1, size) : NULL;
    if (!memory) weft__tk_no_memory(l);
    return memory;
}

/* Arrays have a capacity of a power of two, so they are full when n is one. */
bool weft__tk_grow(tk_loader *l, void *array, size_t n, size_t size)
{
    void *old, *grown;
    if (l->status != WEFT_OK) return false;
    memcpy(&old, array, sizeof old);
    if (n == 0 || (n & (n - 1)) != 0) {
        if (n > 0) return true;
    }
    grown = realloc(old, (n ? 2 * n : 1) * size);
    if (!grown) {
        weft__tk_no_memory(l);
        return false;
    }
    memcpy(array, &grown, sizeof grown);
    return true;
}

tk_place weft__tk_member(const tk_place *in, const char *name)
{
    const cJSON *json = in->json ? cJSON_GetObjectItemCaseSensitive(in->json, name) : NULL;
    return (tk_place){in, name, 0, cJSON_IsNull(json) ? NULL : json};
}

const cJSON *weft__tk_array(tk_loader *l, const tk_place *at, bool needed, size_t *n)
{
    *n = 0;
    if (!at->json && !needed) return NULL;
    if (!cJSON_IsArray(at->json)) {
        weft__tk_refuse(l, at, "must be an array");
        return NULL;
    }
    for (const cJSON *c = at->json->child; c; c = c->next) ++*n;
    return at->json->child;
}

bool weft__tk_bool(tk_loader *l, const tk_place *in, const char *name, bool fallback)
{
    const tk_place at = weft__tk_member(in, name);
    if (!at.json) return fallback;
    if (!cJSON_IsBool(at.json)) weft__tk_refuse(l, &at, "must be true or false");
    return cJSON_IsTrue(at.json);
}

const char *weft__tk_string(tk_loader *l, const tk_place *in, const char *name,
                            const char *fallback)
{
    const tk_place at = weft__tk_member(in, name);
    if (cJSON_IsString(at.json)) return at.json->valuestring;
    if (at.json)
        weft__tk_refuse(l, &at, "must be a text");
    else if (!fallback)
        weft__tk_refuse(l, &at, "is missing");
    return fallback ? fallback : "";
}

char *weft__tk_string_copy(tk_loader *l, const tk_place *in, const char *name, const char *fallback)
{
    const char *text = weft__tk_string(l, in, name, fallback);
    char *copy = weft__tk_alloc(l, strlen(text) + 1, 1);
    return copy ? memcpy(copy, text, strlen(text) + 1) : NULL;
}

int64_t weft__tk_integer(tk_loader *l, const tk_place *at, int64_t most)
{
    const double x = cJSON_IsNumber(at->json) ? at->json->valuedouble : -1;
    if (x >= 0 && x <= (double)most && x == (double)(int64_t)x) return (int64_t)x;
    weft__tk_refuse(l, at, "must be an integer in [0, %lld]", (long long)most);
    return 0;
}

const char *weft__tk_type(tk_loader *l, const tk_place *at)
{
    if (cJSON_IsObject(at->json)) return weft__tk_string(l, at, "type", NULL);
    weft__tk_refuse(l, at, "must be an object with a type");
    return "";
}

tk_regex *weft__tk_pattern(tk_loader *l, const tk_place *in)
{
    const tk_place at = weft__tk_member(in, "pattern"), text = weft__tk_member(&at, "String"),
                   regex = weft__tk_member(&at, "Regex");
    const tk_place *one = cJSON_IsString(text.json) ? &text : &regex;
    char why[160];
    if (l->status != WEFT_OK) return NULL;
    if (!cJSON_IsString(one->json)) {
        weft__tk_refuse(l, &at, "must be a String or a Regex");
        return NULL;
    }
    tk_regex *r = weft__tk_regex_new(one->json->valuestring, one == &regex, why);
    if (!r && why[0])
        weft__tk_refuse(l, one, "is a pattern that weft cannot use: %s", why);
    else if (!r)
        weft__tk_no_memory(l);
    return r;
}

uint32_t weft__tk_character(tk_loader *l, const tk_place *in, const char *name,
                            const char *fallback)
{
    const char *text = weft__tk_string(l, in, name, fallback);
    size_t n;
    const uint32_t c = weft__tk_decode(text, &n);
    const tk_place at = weft__tk_member(in, name);
    if (l->status == WEFT_OK && (!text[0] || text[n]))
        weft__tk_refuse(l, &at, "must be one character");
    return c;
}
