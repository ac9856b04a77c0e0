/* Parts of expressions: literals, and the subscripts, calls, filters and tests that follow a value.
 */
#include "chat/parse.h"

#include "base/text.h"
#include "unicode.h"

#include <stdlib.h>
#include <string.h>

/* ---- Literals ---- */

/* Writes the character of an escape that has from `min` to `max` digits of a base; their number. */
static size_t put_digits(ct_parser *p, ct_buffer *b, const char *at, const char *end, int base,
                         int min, int max)
{
    static const char all[] = "0123456789abcdef";
    uint32_t c = 0;
    int n = 0;
    for (; n < max && at + n < end; n++) {
        const char letter = (char)(at[n] >= 'A' && at[n] <= 'F' ? at[n] | 32 : at[n]);
        const char *digit = letter ? memchr(all, letter, (size_t)base) : NULL;
        if (!digit) break;
        c = c * (uint32_t)base + (uint32_t)(digit - all);
    }
    if (n < min || !c || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        weft__ct_refuse(p, WEFT_BAD_FILE, "an escape that is not a character");
    else
        weft__ct_put_character(b, c);
    return (size_t)n;
}

/* Writes what follows a backslash, and returns its bytes. */
static size_t put_escape(ct_parser *p, ct_buffer *b, const char *at, const char *end)
{
    static const char pairs[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    for (const char *pair = pairs; *pair; pair += 2) {
        if (*pair != *at) continue;
        weft__ct_put(b, pair + 1, 1);
        return 1;
    }
    if (*at == '\n') return 1;
    if (*at == 'x') return 1 + put_digits(p, b, at + 1, end, 16, 2, 2);
    if (*at == 'u') return 1 + put_digits(p, b, at + 1, end, 16, 4, 4);
    if (*at == 'U') return 1 + put_digits(p, b, at + 1, end, 16, 8, 8);
    if (*at >= '0' && *at <= '7') return put_digits(p, b, at, end, 8, 1, 3);
    if (*at == 'N')
        weft__ct_refuse(p, WEFT_BAD_FILE, "the names of characters (\\N) are not supported");
    weft__ct_put_text(b, "\\"); /* it is none, and the backslash stays */
    return 0;
}

/* A text literal, and those that follow it. */
static ct_node *parse_string(ct_parser *p)
{
    ct_node *n = weft__ct_node(p, CT_K_CONST);
    ct_buffer b = weft__ct_buffer();
    while (p->current.kind == CT_QUOTED) {
        const char *at = p->current.text + 1, *end = p->current.text + p->current.bytes - 1;
        while (at < end && p->status == WEFT_OK) {
            const char *slash = memchr(at, '\\', (size_t)(end - at));
            weft__ct_put(&b, at, (size_t)((slash ? slash : end) - at));
            at = slash ? slash + 1 + put_escape(p, &b, slash + 1, end) : end;
        }
        weft__ct_advance(p);
    }
    char *copy = weft__arena_alloc(p->memory, b.n + 1);
    if (!copy || b.failed)
        weft__ct_refuse(p, WEFT_NO_MEMORY, "out of memory");
    else if (b.n)
        memcpy(copy, b.text, b.n);
    n->constant = ct_string(copy ? copy : "", copy ? b.n : 0);
    weft__ct_buffer_free(&b);
    return n;
}

static ct_node *parse_number(ct_parser *p)
{
    ct_node *n = weft__ct_node(p, CT_K_CONST);
    char digits[64];
    size_t count = 0;
    for (size_t i = 0; i < p->current.bytes && count + 1 < sizeof digits; i++)
        if (p->current.text[i] != '_') digits[count++] = p->current.text[i];
    digits[count] = 0;
    const bool whole = p->current.kind == CT_WHOLE;
    double number = 0;
    if (count > (whole ? 18 : 60))
        weft__ct_refuse(p, WEFT_BAD_FILE, "a number with %zu digits", count);
    else if (!whole && !weft__text_to_double(digits, &number))
        weft__ct_refuse(p, WEFT_BAD_FILE, "'%s' is not a number", digits);
    n->constant = whole ? ct_int(strtoll(digits, NULL, 10)) : ct_float(number);
    weft__ct_advance(p);
    return n;
}

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
        return parse_string(p);
    case CT_WHOLE:
    case CT_NUMBER:
        return parse_number(p);
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
    const ct_token *t = &p->current;
    if (t->kind == CT_END)
        weft__ct_refuse(p, WEFT_BAD_FILE, "expected an expression, found the end");
    else
        weft__ct_refuse(p, WEFT_BAD_FILE, "expected an expression, found '%.*s'",
                        (int)(t->bytes < 40 ? t->bytes : 40), t->text);
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
        n->b = parse_number(p);
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
        n->list = weft__ct_node(p, CT_K_ARGUMENT);
        n->list->a = parse_postfix(p, weft__ct_parse_primary(p));
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

ct_node *weft__ct_parse_unary(ct_parser *p, bool with_filters)
{
    ct_node *n;
    if (!weft__ct_enter(p)) return weft__ct_node(p, CT_K_CONST);
    if (weft__ct_at(p, '-') || weft__ct_at(p, '+')) {
        n = weft__ct_node(p, CT_K_SIGN);
        n->op = p->current.op;
        weft__ct_advance(p);
        n->a = weft__ct_parse_unary(p, false);
    } else {
        n = weft__ct_parse_primary(p);
    }
    n = parse_postfix(p, n);
    weft__ct_leave(p);
    return with_filters ? parse_filters_and_tests(p, n) : n;
}
