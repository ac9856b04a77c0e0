/* Operators of expressions, the one that binds least first: `if`, or, and, not, comparisons, + and
 * -, ~, * / // %, **. */
#include "chat/parse.h"

#include <string.h>

static ct_node *binary(ct_parser *p, ct_kind kind, ct_node *left)
{
    ct_node *n = weft__ct_node(p, kind);
    n->a = left;
    if (kind == CT_K_BINARY) n->op = p->current.op;
    return n;
}

static ct_node *parse_power(ct_parser *p)
{
    ct_node *n = weft__ct_parse_unary(p, true);
    while (weft__ct_at(p, CT_TWO('*', '*'))) {
        n = binary(p, CT_K_BINARY, n);
        weft__ct_advance(p);
        n->b = weft__ct_parse_unary(p, true);
    }
    return n;
}

static ct_node *parse_product(ct_parser *p)
{
    ct_node *n = parse_power(p);
    while (weft__ct_at(p, '*') || weft__ct_at(p, '/') || weft__ct_at(p, '%') ||
           weft__ct_at(p, CT_TWO('/', '/'))) {
        n = binary(p, CT_K_BINARY, n);
        weft__ct_advance(p);
        n->b = parse_power(p);
    }
    return n;
}

static ct_node *parse_join(ct_parser *p)
{
    ct_node *first = parse_product(p), **end;
    if (!weft__ct_at(p, '~')) return first;
    ct_node *n = weft__ct_node(p, CT_K_JOIN);
    end = &n->list;
    ct_append(&end, first);
    while (weft__ct_skip(p, '~')) ct_append(&end, parse_product(p));
    return n;
}

static ct_node *parse_sum(ct_parser *p)
{
    ct_node *n = parse_join(p);
    while (weft__ct_at(p, '+') || weft__ct_at(p, '-')) {
        n = binary(p, CT_K_BINARY, n);
        weft__ct_advance(p);
        n->b = parse_join(p);
    }
    return n;
}

/* The comparison that is current, and moves after it; 0 if there is none. 'i' is `in`, 'n' is
 * `not in`. */
static int take_comparison(ct_parser *p)
{
    static const int comparisons[] = {
        '<', '>', CT_TWO('<', '='), CT_TWO('>', '='), CT_TWO('=', '='), CT_TWO('!', '=')};
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++)
        if (weft__ct_skip(p, comparisons[i])) return comparisons[i];
    if (weft__ct_skip_name(p, "in")) return 'i';
    if (!weft__ct_at_name(p, "not")) return 0;
    const ct_token *next = weft__ct_ahead(p);
    if (next->kind != CT_NAME || next->bytes != 2 || memcmp(next->text, "in", 2) != 0) return 0;
    weft__ct_advance(p);
    weft__ct_advance(p);
    return 'n';
}

static ct_node *parse_comparison(ct_parser *p)
{
    ct_node *first = parse_sum(p), *n = NULL, **end = NULL;
    for (int op; (op = take_comparison(p)) != 0;) {
        if (!n) {
            n = binary(p, CT_K_COMPARE, first);
            end = &n->list;
        }
        ct_node *operand = weft__ct_node(p, CT_K_OPERAND);
        operand->op = op;
        operand->a = parse_sum(p);
        ct_append(&end, operand);
    }
    return n ? n : first;
}

static ct_node *parse_not(ct_parser *p)
{
    if (!weft__ct_at_name(p, "not")) return parse_comparison(p);
    ct_node *n = weft__ct_node(p, CT_K_NOT);
    if (!weft__ct_enter(p)) return n;
    weft__ct_advance(p);
    n->a = parse_not(p);
    weft__ct_leave(p);
    return n;
}

static ct_node *parse_and(ct_parser *p)
{
    ct_node *n = parse_not(p);
    while (weft__ct_skip_name(p, "and")) {
        n = binary(p, CT_K_AND, n);
        n->b = parse_not(p);
    }
    return n;
}

static ct_node *parse_or(ct_parser *p)
{
    ct_node *n = parse_and(p);
    while (weft__ct_skip_name(p, "or")) {
        n = binary(p, CT_K_OR, n);
        n->b = parse_and(p);
    }
    return n;
}

ct_node *weft__ct_parse_expression(ct_parser *p, bool with_condition)
{
    if (!weft__ct_enter(p)) return weft__ct_node(p, CT_K_CONST);
    ct_node *n = parse_or(p);
    while (with_condition && weft__ct_skip_name(p, "if")) {
        ct_node *condition = weft__ct_node(p, CT_K_CONDITION);
        condition->b = n;
        condition->a = parse_or(p);
        if (weft__ct_skip_name(p, "else")) condition->c = weft__ct_parse_expression(p, true);
        n = condition;
    }
    weft__ct_leave(p);
    return n;
}

static bool is_tuple_end(const ct_parser *p, const char *stop)
{
    return p->current.kind == CT_CLOSE_OUTPUT || p->current.kind == CT_CLOSE_BLOCK ||
           weft__ct_at(p, ')') || weft__ct_at(p, ']') || (stop && weft__ct_at_name(p, stop));
}

ct_node *weft__ct_parse_tuple(ct_parser *p, bool with_condition, const char *stop)
{
    ct_node *n = weft__ct_node(p, CT_K_TUPLE), **end = &n->list;
    bool is_tuple = false;
    const bool may_be_empty = stop && *stop == '(';
    while (p->status == WEFT_OK) {
        if (n->list) weft__ct_expect(p, ',');
        if (is_tuple_end(p, stop)) break;
        ct_append(&end, weft__ct_parse_expression(p, with_condition));
        if (!weft__ct_at(p, ',')) break;
        is_tuple = true;
    }
    if (is_tuple || (may_be_empty && !n->list)) return n;
    if (!n->list) weft__ct_refuse(p, WEFT_BAD_FILE, "expected an expression");
    return n->list ? n->list : n;
}
