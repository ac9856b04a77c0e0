/* Tokens and nodes for the parser, text with statements in it, and whole templates. */
#include "chat/parse.h"

#include "base/hash.h"
#include "base/text.h"

#include <weft/text.h>

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SOURCE ((size_t)1 << 20)

void weft__ct_refuse(ct_parser *p, weft_status status, const char *format, ...)
{
    char what[300], safe[400];
    va_list arguments;
    if (p->status == WEFT_OK) {
        va_start(arguments, format);
        weft__text_vformat(what, sizeof what, format, arguments);
        va_end(arguments);
        weft__text_printable(safe, sizeof safe, what);
        p->status =
            weft_error_set(p->error, status, "chat template", "line %u: %s", p->current.line, safe);
    }
    p->current.kind = CT_END;
    p->has_ahead = false;
}

static ct_token next_token(ct_parser *p)
{
    ct_token t = weft__ct_next_token(&p->lexer);
    if (p->status == WEFT_OK && t.kind != CT_WRONG) return t;
    if (t.kind == CT_WRONG) {
        p->current.line = t.line;
        weft__ct_refuse(p, WEFT_BAD_FILE, "%s", t.text);
    }
    t.kind = CT_END;
    return t;
}

void weft__ct_advance(ct_parser *p)
{
    if (p->status != WEFT_OK) return;
    const ct_token next = p->has_ahead ? p->ahead : next_token(p);
    if (p->status != WEFT_OK) return;
    p->has_ahead = false;
    p->current = next;
}

const ct_token *weft__ct_ahead(ct_parser *p)
{
    if (!p->has_ahead) {
        p->ahead = next_token(p);
        p->has_ahead = true;
    }
    return &p->ahead;
}

static bool is_name(const ct_token *t, const char *name)
{
    return t->kind == CT_NAME && t->bytes == strlen(name) && !memcmp(t->text, name, t->bytes);
}

bool weft__ct_at_name(const ct_parser *p, const char *name)
{
    return is_name(&p->current, name);
}

bool weft__ct_at(const ct_parser *p, int op)
{
    return p->current.kind == CT_OPERATOR && p->current.op == op;
}

bool weft__ct_skip_name(ct_parser *p, const char *name)
{
    if (!weft__ct_at_name(p, name)) return false;
    weft__ct_advance(p);
    return true;
}

bool weft__ct_skip(ct_parser *p, int op)
{
    if (!weft__ct_at(p, op)) return false;
    weft__ct_advance(p);
    return true;
}

static void refuse_token(ct_parser *p, const char *expected)
{
    const ct_token *t = &p->current;
    if (t->kind == CT_END)
        weft__ct_refuse(p, WEFT_BAD_FILE, "expected %s, found the end", expected);
    else
        weft__ct_refuse(p, WEFT_BAD_FILE, "expected %s, found '%.*s'", expected,
                        (int)(t->bytes < 40 ? t->bytes : 40), t->text);
}

void weft__ct_expect(ct_parser *p, int op)
{
    const char expected[] = {'\'', (char)op, '\'', 0};
    if (!weft__ct_skip(p, op)) refuse_token(p, expected);
}

ct_node *weft__ct_node(ct_parser *p, ct_kind kind)
{
    static const ct_node none = {.kind = CT_K_CONST, .constant = {.type = CT_NONE}};
    ct_node *n = p->status == WEFT_OK ? weft__arena_alloc(p->memory, sizeof *n) : NULL;
    if (!n && p->status == WEFT_OK) weft__ct_refuse(p, WEFT_NO_MEMORY, "out of memory");
    /* After a failure, nodes are written to and never read. */
    if (!n) n = &p->spare;
    *n = none;
    n->kind = kind;
    n->line = p->current.line;
    return n;
}

ct_value weft__ct_take_name(ct_parser *p)
{
    const ct_value name = ct_string(p->current.text, p->current.bytes);
    if (p->current.kind != CT_NAME)
        refuse_token(p, "a name");
    else
        weft__ct_advance(p);
    return p->status == WEFT_OK ? name : ct_string("", 0);
}

uint32_t weft__ct_intern(ct_parser *p, const ct_value *name)
{
    enum { MASK = 2 * CT_MAX_NAMES - 1 };
    size_t at = hash_bytes(HASH_START, name->as.text, name->n) & MASK;
    if (p->status != WEFT_OK) return 0;
    for (; p->table[at]; at = (at + 1) & MASK) {
        const char *own = p->names[p->table[at] - 1];
        if (strlen(own) == name->n && !memcmp(own, name->as.text, name->n))
            return p->table[at] - 1u;
    }
    char *copy = p->n_names < CT_MAX_NAMES ? weft__arena_alloc(p->memory, name->n + 1) : NULL;
    if (!copy) {
        weft__ct_refuse(p, p->n_names < CT_MAX_NAMES ? WEFT_NO_MEMORY : WEFT_TOO_LARGE,
                        p->n_names < CT_MAX_NAMES ? "out of memory" : "more than %d names",
                        CT_MAX_NAMES);
        return 0;
    }
    memcpy(copy, name->as.text, name->n);
    p->names[p->n_names++] = copy;
    p->table[at] = (uint16_t)p->n_names;
    return (uint32_t)p->n_names - 1;
}

bool weft__ct_enter(ct_parser *p)
{
    p->depth++;
    if (p->depth > CT_MAX_NESTING)
        weft__ct_refuse(p, WEFT_TOO_LARGE, "more than %d levels of nesting", CT_MAX_NESTING);
    return p->status == WEFT_OK;
}

void weft__ct_leave(ct_parser *p)
{
    p->depth--;
}

/* ---- Text with statements ---- */

/* Whether the current token is one of "else|endif". */
static bool is_one_of(const ct_parser *p, const char *names)
{
    const ct_token *t = &p->current;
    for (const char *at = names; t->kind == CT_NAME && *at;) {
        const size_t n = strcspn(at, "|");
        if (n == t->bytes && !memcmp(at, t->text, n)) return true;
        at += n + (at[n] != 0);
    }
    return false;
}

static void close_tag(ct_parser *p, ct_token_kind kind)
{
    if (p->current.kind == kind)
        weft__ct_advance(p);
    else
        refuse_token(p, kind == CT_CLOSE_BLOCK ? "'%}'" : "'}}'");
}

/* Up to a statement of `ends`, whose name is current then; NULL: up to the end. */
static ct_node *parse_text(ct_parser *p, const char *ends)
{
    ct_node *first = NULL, **end = &first;
    while (p->status == WEFT_OK && p->current.kind != CT_END) {
        if (p->current.kind == CT_DATA) {
            ct_node *text = weft__ct_node(p, CT_K_TEXT);
            text->constant = ct_string(p->current.text, p->current.bytes);
            weft__ct_advance(p);
            ct_append(&end, text);
        } else if (p->current.kind == CT_OPEN_OUTPUT) {
            weft__ct_advance(p);
            ct_node *output = weft__ct_node(p, CT_K_OUTPUT);
            output->a = weft__ct_parse_tuple(p, true, NULL);
            close_tag(p, CT_CLOSE_OUTPUT);
            ct_append(&end, output);
        } else {
            weft__ct_advance(p);
            if (ends && is_one_of(p, ends)) return first;
            ct_append(&end, weft__ct_parse_statement(p));
            close_tag(p, CT_CLOSE_BLOCK);
        }
    }
    if (ends && p->status == WEFT_OK)
        weft__ct_refuse(p, WEFT_BAD_FILE, "the end of the template before {%% %s %%}",
                        strrchr(ends, '|') ? strrchr(ends, '|') + 1 : ends);
    return first;
}

ct_node *weft__ct_parse_body(ct_parser *p, const char *ends)
{
    weft__ct_skip(p, ':');
    close_tag(p, CT_CLOSE_BLOCK);
    if (!weft__ct_enter(p)) return NULL;
    ct_node *body = parse_text(p, ends);
    weft__ct_leave(p);
    return body;
}

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
    t->body = parse_text(p, NULL);
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
