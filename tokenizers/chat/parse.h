/* parse.h - the parser of templates, by recursive descent. It remembers its first failure; after
 * it, the only token is the end. Not installed. */
#ifndef WEFT_CHAT_PARSE_H
#define WEFT_CHAT_PARSE_H

#include "chat/template.h"

#define CT_MAX_NAMES 4096

typedef struct ct_parser {
    ct_lexer lexer;
    ct_token current, ahead;
    bool has_ahead;
    arena *memory;
    const char *names[CT_MAX_NAMES];
    size_t n_names;
    uint16_t table[2 * CT_MAX_NAMES]; /* of indices + 1, by hash */
    ct_node spare;                    /* what nodes are after a failure */
    int depth, loops;
    int macro_flags; /* CT_HAS_VARARGS, CT_HAS_KWARGS of the macro around */
    weft_status status;
    weft_error *error;
} ct_parser;

void weft__ct_refuse(ct_parser *p, weft_status status, const char *format, ...) WEFT_PRINTF(3, 4);
/* Moves to the next token. */
void weft__ct_advance(ct_parser *p);
/* The token after the current one. */
const ct_token *weft__ct_ahead(ct_parser *p);
bool weft__ct_at_name(const ct_parser *p, const char *name);
bool weft__ct_at(const ct_parser *p, int op);
/* Moves on if the current token is that; whether it was. */
bool weft__ct_skip_name(ct_parser *p, const char *name);
bool weft__ct_skip(ct_parser *p, int op);
/* The same, and a failure if it is not. */
void weft__ct_expect(ct_parser *p, int op);
/* Fails: another token was expected. */
void weft__ct_refuse_token(ct_parser *p, const char *expected);
/* A node of a kind at the current line. Never NULL: after a failure it is one of its own. */
ct_node *weft__ct_node(ct_parser *p, ct_kind kind);
/* Takes a name: its text, and its index. */
ct_value weft__ct_take_name(ct_parser *p);
uint32_t weft__ct_intern(ct_parser *p, const ct_value *name);
/* Counts levels of nesting; false, and a failure, if there are too many. */
bool weft__ct_enter(ct_parser *p);
void weft__ct_leave(ct_parser *p);

/* Appends to a list. */
static inline void ct_append(ct_node ***end, ct_node *n)
{
    **end = n;
    *end = &n->next;
}

/* Expressions (expression.c, literal.c) */
ct_node *weft__ct_parse_expression(ct_parser *p, bool with_condition);
/* One, or several with commas, which are a tuple. `stop` is a name that ends it, or NULL. */
ct_node *weft__ct_parse_tuple(ct_parser *p, bool with_condition, const char *stop);
/* Without operators: what an assignment may have. */
ct_node *weft__ct_parse_primary(ct_parser *p);
/* A text and those that follow it; a number. */
ct_node *weft__ct_parse_string(ct_parser *p);
ct_node *weft__ct_parse_number(ct_parser *p);
/* Filters `| NAME(...)`, applied to `operand`, or to a block if that is NULL. With `begun`, the
 * first bar is missing. */
ct_node *weft__ct_parse_filters(ct_parser *p, ct_node *operand, bool begun);

/* Statements (statement.c): up to one that begins with a name of `ends`, "else|endif", whose name
 * is current then; NULL: up to the end. */
ct_node *weft__ct_parse_text(ct_parser *p, const char *ends);

#endif
