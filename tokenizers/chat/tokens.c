/* Tokens and nodes for the parser. */
#include "chat/parse.h"

#include "base/hash.h"
#include "base/text.h"

#include <stdarg.h>
#include <string.h>

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

void weft__ct_refuse_token(ct_parser *p, const char *expected)
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
    if (!weft__ct_skip(p, op)) weft__ct_refuse_token(p, expected);
}

ct_node *weft__ct_node(ct_parser *p, ct_kind kind)
{
    static const ct_node none = {.kind = CT_K_CONST, .constant = {.type = CT_NONE}};
    ct_node *n = p->status == WEFT_OK ? weft__arena_alloc(p->memory, sizeof *n) : NULL;
    if (!n && p->status == WEFT_OK) weft__ct_refuse(p, WEFT_NO_MEMORY, "out of memory");
    /* After a failure all nodes are this one, which is cleared each time: no pointer of it lasts. */
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
        weft__ct_refuse_token(p, "a name");
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
