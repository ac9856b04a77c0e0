/* Whole templates. */
#include "chat/parse.h"

#include <weft/text.h>

#include <stdlib.h>
#include <string.h>

#define MAX_SOURCE ((size_t)1 << 20)

/* Line ends become \n, and one at the end is dropped. */
static size_t normalize(const char *source, size_t bytes, char *text)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (source[i] == '\r' && i + 1 < bytes && source[i + 1] == '\n') continue;
        text[n++] = source[i];
        if (source[i] == '\r') text[n - 1] = '\n';
    }
    return n && text[n - 1] == '\n' ? n - 1 : n;
}

static ct_template *parse_template(ct_parser *p, const char *name, const char *source, size_t bytes)
{
    static const char *const specials[CT_N_SPECIALS] = {"loop", "caller", "varargs", "kwargs"};
    char *text = weft__arena_alloc(p->memory, bytes + 1);
    ct_template *t = weft__arena_alloc(p->memory, sizeof *t);
    if (!text || !t || !(t->name = weft__arena_text(p->memory, name))) return NULL;
    p->lexer = (ct_lexer){.source = text, .bytes = normalize(source, bytes, text), .line = 1};
    p->lexer.inside = CT_DATA;
    weft__ct_advance(p);
    for (int i = 0; i < CT_N_SPECIALS; i++) {
        const ct_value special = ct_string(specials[i], strlen(specials[i]));
        t->specials[i] = weft__ct_intern(p, &special);
    }
    t->body = weft__ct_parse_text(p, NULL);
    t->names = weft__arena_alloc(p->memory, (p->n_names + 1) * sizeof *t->names);
    if (!t->names) return NULL;
    t->n_names = p->n_names;
    memcpy(t->names, p->names, p->n_names * sizeof *t->names);
    return t;
}

weft_status weft__ct_add_template(weft_chat_template *t, const char *name, const char *source,
                                  size_t bytes, weft_error *error)
{
    static const char where[] = "chat template";
    if (bytes > MAX_SOURCE)
        return weft_error_set(error, WEFT_TOO_LARGE, where, "has %zu bytes; expected at most %zu",
                              bytes, MAX_SOURCE);
    if (!weft_text_is_utf8(source, bytes))
        return weft_error_set(error, WEFT_BAD_FILE, where, "is not UTF-8");
    ct_parser *p = calloc(1, sizeof *p);
    if (!p) return weft_error_set(error, WEFT_NO_MEMORY, where, "out of memory");
    p->memory = &t->memory;
    p->error = error;
    ct_template *made = parse_template(p, name, source, bytes);
    weft_status status = p->status;
    free(p);
    if (status == WEFT_OK && !made)
        status = weft_error_set(error, WEFT_NO_MEMORY, where, "out of memory");
    if (status != WEFT_OK) return status;
    made->next = t->templates;
    t->templates = made;
    return WEFT_OK;
}
