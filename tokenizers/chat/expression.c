/* Expressions, with Jinja's precedence. The operator that binds least is first: `if`, or, and, not,
 * comparisons, + and -, ~, * / // %, **, signs, then what follows a value: subscripts, calls, filters
 * and tests. */
#include "chat/parse.h"

#include <string.h>

/* A name, or a constant that looks like one. */
static ct_node *parse_name(ct_parser *p)
{
    ct_node *n = weft__ct_node(p, CT_K_NAME);
    const ct_value name = weft__ct_take_name(p);
    const bool truth = weft__ct_is(&name, "true") || weft__ct_is(&name, "True");
    if (truth || weft__ct_is(&name, "false") || weft__ct_is(&name, "False")) {
        n->kind = CT_K_CONST;
        n->constant = ct_bool(truth);
    } else if (weft__ct_is(&name, "none") || weft__ct_is(&name, "None")) {
        n->kind = CT_K_CONST;
    } else {
        if (weft__ct_is(&name, "varargs")) p->macro_flags |= CT_HAS_VARARGS;
        if (weft__ct_is(&name, "kwargs")) p->macro_flags |= CT_HAS_KWARGS;
        n->name = weft__ct_intern(p, &name);
    }
    return n;
}

/* Items up to a closing bracket; a dict has colons between them. */
static ct_node *parse_items(ct_parser *p, ct_kind kind, char close)
{
    ct_node *n = weft__ct_node(p, kind), **end = &n->list;
    weft__ct_advance(p);
    while (p->status == WEFT_OK && !weft__ct_at(p, close)) {
        if (n->list) weft__ct_expect(p, ',');
        if (weft__ct_at(p, close)) break;
        ct_append(&end, weft__ct_parse_expression(p, true));
        if (kind != CT_K_DICT) continue;
        weft__ct_expect(p, ':');
        ct_append(&end, weft__ct_parse_expression(p, true));
    }
    weft__ct_expect(p, close);
    return n;
}

ct_node *weft__ct_parse_primary(ct_parser *p)
{
    switch (p->current.kind) {
    case CT_NAME:
        return parse_name(p);
    case CT_QUOTED:
        return weft__ct_parse_string(p);
    case CT_WHOLE:
    case CT_NUMBER:
        return weft__ct_parse_number(p);
    default:
        break;
    }
    if (weft__ct_at(p, '[')) return parse_items(p, CT_K_LIST, ']');
    if (weft__ct_at(p, '{')) return parse_items(p, CT_K_DICT, '}');
    if (weft__ct_skip(p, '(')) {
        ct_node *n = weft__ct_parse_tuple(p, true, "(");
        weft__ct_expect(p, ')');
        return n;
    }
    weft__ct_refuse_token(p, "an expression");
    return weft__ct_node(p, CT_K_CONST);
}

/* ---- Subscripts, calls, filters, tests ---- */

static ct_node *parse_arguments(ct_parser *p)
{
    ct_node *list = NULL, **end = &list;
    bool only_named = false;
    weft__ct_expect(p, '(');
    while (p->status == WEFT_OK && !weft__ct_at(p, ')')) {
        if (list) weft__ct_expect(p, ',');
        if (weft__ct_at(p, ')')) break;
        ct_node *n = weft__ct_node(p, CT_K_ARGUMENT);
        if (weft__ct_at(p, '*') || weft__ct_at(p, CT_TWO('*', '*'))) {
            n->op = p->current.op;
            weft__ct_advance(p);
        } else if (p->current.kind == CT_NAME && weft__ct_ahead(p)->kind == CT_OPERATOR &&
                   weft__ct_ahead(p)->op == '=') {
            n->constant = weft__ct_take_name(p);
            weft__ct_advance(p);
        } else if (only_named) {
            weft__ct_refuse(p, WEFT_BAD_FILE, "an argument without a name after one with");
        }
        only_named |= n->op || n->constant.type == CT_STRING;
        n->a = weft__ct_parse_expression(p, true);
        ct_append(&end, n);
    }
    weft__ct_expect(p, ')');
    return list;
}

/* [a], [a:b], [a:b:c] or [a, b] after the value `of`. */
static ct_node *parse_brackets(ct_parser *p, ct_node *of)
{
    ct_node *n = weft__ct_node(p, CT_K_ITEM);
    n->a = of;
    weft__ct_advance(p);
    if (!weft__ct_at(p, ':')) n->b = weft__ct_parse_tuple(p, true, ":");
    if (weft__ct_skip(p, ':')) {
        n->kind = CT_K_SLICE;
        if (!weft__ct_at(p, ':') && !weft__ct_at(p, ']')) n->c = weft__ct_parse_expression(p, true);
        if (weft__ct_skip(p, ':') && !weft__ct_at(p, ']'))
            n->other = weft__ct_parse_expression(p, true);
    }
    weft__ct_expect(p, ']');
    return n;
}

static ct_node *parse_dot(ct_parser *p, ct_node *of)
{
    ct_node *n = weft__ct_node(p, CT_K_ATTRIBUTE);
    n->a = of;
    weft__ct_advance(p);
    if (p->current.kind == CT_WHOLE) {
        n->kind = CT_K_ITEM;
        n->b = weft__ct_parse_number(p);
    } else {
        n->constant = weft__ct_take_name(p);
    }
    return n;
}

static ct_node *parse_call(ct_parser *p, ct_node *of)
{
    ct_node *n = weft__ct_node(p, CT_K_CALL);
    n->a = of;
    n->list = parse_arguments(p);
    return n;
}

static ct_node *parse_postfix(ct_parser *p, ct_node *n)
{
    for (;;) {
        if (weft__ct_at(p, '.'))
            n = parse_dot(p, n);
        else if (weft__ct_at(p, '['))
            n = parse_brackets(p, n);
        else if (weft__ct_at(p, '('))
            n = parse_call(p, n);
        else
            return n;
    }
}

ct_node *weft__ct_parse_filters(ct_parser *p, ct_node *operand, bool begun)
{
    while (begun || weft__ct_skip(p, '|')) {
        ct_node *n = weft__ct_node(p, CT_K_FILTER);
        n->a = operand;
        n->constant = weft__ct_take_name(p);
        if (weft__ct_at(p, '(')) n->list = parse_arguments(p);
        operand = n;
        begun = false;
    }
    return operand;
}

/* `is NAME`, `is not NAME`, with arguments in brackets or one without. */
static ct_node *parse_test(ct_parser *p, ct_node *of)
{
    weft__ct_advance(p);
    const bool negated = weft__ct_skip_name(p, "not");
    ct_node *n = weft__ct_node(p, CT_K_TEST);
    n->a = of;
    n->constant = weft__ct_take_name(p);
    const ct_token_kind kind = p->current.kind;
    if (weft__ct_at(p, '(')) {
        n->list = parse_arguments(p);
    } else if ((kind == CT_NAME && !weft__ct_at_name(p, "else") && !weft__ct_at_name(p, "or") &&
                !weft__ct_at_name(p, "and")) ||
               kind == CT_QUOTED || kind == CT_WHOLE || kind == CT_NUMBER || weft__ct_at(p, '[') ||
               weft__ct_at(p, '{')) {
        if (weft__ct_at_name(p, "is"))
            weft__ct_refuse(p, WEFT_BAD_FILE, "'is' after a test; put it into brackets");
        ct_node *argument = weft__ct_node(p, CT_K_ARGUMENT);
        argument->a = parse_postfix(p, weft__ct_parse_primary(p));
        n->list = argument;
    }
    if (!negated) return n;
    ct_node *not = weft__ct_node(p, CT_K_NOT);
    not ->a = n;
    return not ;
}

static ct_node *parse_filters_and_tests(ct_parser *p, ct_node *n)
{
    for (;;) {
        if (weft__ct_at(p, '|'))
            n = weft__ct_parse_filters(p, n, false);
        else if (weft__ct_at_name(p, "is"))
            n = parse_test(p, n);
        else if (weft__ct_at(p, '('))
            n = parse_call(p, n);
        else
            return n;
    }
}

static ct_node *parse_unary(ct_parser *p, bool with_filters)
{
    ct_node *n;
    if (!weft__ct_enter(p)) return weft__ct_node(p, CT_K_CONST);
    if (weft__ct_at(p, '-') || weft__ct_at(p, '+')) {
        n = weft__ct_node(p, CT_K_SIGN);
        n->op = p->current.op;
        weft__ct_advance(p);
        n->a = parse_unary(p, false);
    } else {
        n = weft__ct_parse_primary(p);
    }
    n = parse_postfix(p, n);
    weft__ct_leave(p);
    return with_filters ? parse_filters_and_tests(p, n) : n;
}

/* ---- Operators ---- */

/* The operator of a list, which ends with 0, that is current; 0 if it is another token. */
static int at_operator(const ct_parser *p, const int *operators)
{
    while (*operators && !weft__ct_at(p, *operators)) operators++;
    return *operators;
}

/* OPERAND op OPERAND op OPERAND ..., from the left on. */
static ct_node *parse_binary(ct_parser *p, const int *operators, ct_node *(*operand)(ct_parser *p))
{
    ct_node *left = operand(p);
    for (int op; (op = at_operator(p, operators)) != 0;) {
        ct_node *n = weft__ct_node(p, CT_K_BINARY);
        n->a = left;
        n->op = op;
        weft__ct_advance(p);
        n->b = operand(p);
        left = n;
    }
    return left;
}

/* The same of `and` or `or`. */
static ct_node *parse_logical(ct_parser *p, const char *word, ct_kind kind,
                              ct_node *(*operand)(ct_parser *p))
{
    ct_node *left = operand(p);
    while (weft__ct_skip_name(p, word)) {
        ct_node *n = weft__ct_node(p, kind);
        n->a = left;
        n->b = operand(p);
        left = n;
    }
    return left;
}

static ct_node *parse_operand(ct_parser *p)
{
    return parse_unary(p, true);
}

static ct_node *parse_power(ct_parser *p)
{
    return parse_binary(p, (const int[]){CT_TWO('*', '*'), 0}, parse_operand);
}

static ct_node *parse_product(ct_parser *p)
{
    return parse_binary(p, (const int[]){'*', '/', '%', CT_TWO('/', '/'), 0}, parse_power);
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
    return parse_binary(p, (const int[]){'+', '-', 0}, parse_join);
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
            n = weft__ct_node(p, CT_K_COMPARE);
            n->a = first;
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
    return parse_logical(p, "and", CT_K_AND, parse_not);
}

static ct_node *parse_or(ct_parser *p)
{
    return parse_logical(p, "or", CT_K_OR, parse_and);
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
