/* Text with statements in it: {% if %}, {% for %}, {% set %}, {% macro %} and the others. */
#include "chat/parse.h"

#include <string.h>

/* ---- Text with statements ---- */

static ct_node *parse_statement(ct_parser *p);

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
        weft__ct_refuse_token(p, kind == CT_CLOSE_BLOCK ? "'%}'" : "'}}'");
}

/* Up to a statement of `ends`, whose name is current then; NULL: up to the end. */
ct_node *weft__ct_parse_text(ct_parser *p, const char *ends)
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
            ct_append(&end, parse_statement(p));
            close_tag(p, CT_CLOSE_BLOCK);
        }
    }
    if (ends && p->status == WEFT_OK)
        weft__ct_refuse(p, WEFT_BAD_FILE, "the end of the template before {%% %s %%}",
                        strrchr(ends, '|') ? strrchr(ends, '|') + 1 : ends);
    return first;
}

static ct_node *parse_body(ct_parser *p, const char *ends)
{
    weft__ct_skip(p, ':');
    close_tag(p, CT_CLOSE_BLOCK);
    if (!weft__ct_enter(p)) return NULL;
    ct_node *body = weft__ct_parse_text(p, ends);
    weft__ct_leave(p);
    return body;
}

/* ---- Targets of assignments ---- */

/* A name, an attribute of a namespace if it may be, or targets in brackets. */
static ct_node *parse_target_item(ct_parser *p, bool with_attribute);

static ct_node *parse_targets(ct_parser *p, bool with_attribute, bool in_brackets)
{
    ct_node *first = parse_target_item(p, with_attribute);
    if (!weft__ct_at(p, ',')) return first;
    ct_node *n = weft__ct_node(p, CT_K_TUPLE), **end = &n->list;
    ct_append(&end, first);
    while (weft__ct_skip(p, ',')) {
        const bool ends = in_brackets ? weft__ct_at(p, ')')
                                      : weft__ct_at_name(p, "in") || weft__ct_at(p, '=') ||
                                            p->current.kind == CT_CLOSE_BLOCK;
        if (ends || p->status != WEFT_OK) break;
        ct_append(&end, parse_target_item(p, with_attribute));
    }
    return n;
}

static ct_node *parse_target_item(ct_parser *p, bool with_attribute)
{
    if (!weft__ct_enter(p)) return weft__ct_node(p, CT_K_NAME);
    ct_node *n;
    if (weft__ct_skip(p, '(')) {
        n = parse_targets(p, false, true);
        weft__ct_expect(p, ')');
    } else if (p->current.kind == CT_NAME) {
        n = weft__ct_parse_primary(p);
        if (n->kind == CT_K_NAME && with_attribute && weft__ct_skip(p, '.')) {
            n->kind = CT_K_MEMBER;
            n->constant = weft__ct_take_name(p);
        }
    } else {
        n = weft__ct_node(p, CT_K_CONST);
    }
    if (n->kind == CT_K_CONST) weft__ct_refuse(p, WEFT_BAD_FILE, "expected a name to assign to");
    weft__ct_leave(p);
    return n;
}

/* ---- Statements ---- */

static ct_node *parse_if(ct_parser *p)
{
    ct_node *first = NULL, **end = &first;
    for (;;) {
        ct_node *n = weft__ct_node(p, CT_K_IF);
        *end = n;
        end = &n->other;
        if (!weft__ct_skip_name(p, "else")) {
            weft__ct_advance(p); /* if, elif */
            n->a = weft__ct_parse_tuple(p, false, NULL);
            n->list = parse_body(p, "elif|else|endif");
        } else {
            n->list = parse_body(p, "endif");
        }
        if (p->status != WEFT_OK || weft__ct_skip_name(p, "endif")) return first;
    }
}

static ct_node *parse_for(ct_parser *p)
{
    ct_node *n = weft__ct_node(p, CT_K_FOR);
    weft__ct_advance(p);
    n->a = parse_targets(p, false, false);
    if (!weft__ct_skip_name(p, "in")) weft__ct_refuse(p, WEFT_BAD_FILE, "expected 'in'");
    n->b = weft__ct_parse_tuple(p, false, "recursive");
    if (weft__ct_skip_name(p, "if")) n->c = weft__ct_parse_expression(p, true);
    if (weft__ct_at_name(p, "recursive"))
        weft__ct_refuse(p, WEFT_BAD_FILE, "recursive loops are not supported");
    p->loops++;
    n->list = parse_body(p, "else|endfor");
    p->loops--;
    if (weft__ct_skip_name(p, "else")) n->other = parse_body(p, "endfor");
    weft__ct_advance(p);
    return n;
}

static ct_node *parse_set(ct_parser *p)
{
    ct_node *n = weft__ct_node(p, CT_K_SET);
    weft__ct_advance(p);
    n->a = parse_targets(p, true, false);
    if (weft__ct_skip(p, '=')) {
        n->b = weft__ct_parse_tuple(p, true, NULL);
        return n;
    }
    n->kind = CT_K_SET_BLOCK;
    n->b = weft__ct_parse_filters(p, NULL, false);
    n->list = parse_body(p, "endset");
    weft__ct_advance(p);
    return n;
}

static ct_node *parse_parameters(ct_parser *p)
{
    ct_node *list = NULL, **end = &list;
    bool has_default = false;
    weft__ct_expect(p, '(');
    while (p->status == WEFT_OK && !weft__ct_at(p, ')')) {
        if (list) weft__ct_expect(p, ',');
        ct_node *n = weft__ct_node(p, CT_K_PARAMETER);
        const ct_value name = weft__ct_take_name(p);
        n->name = weft__ct_intern(p, &name);
        n->constant = name;
        if (weft__ct_skip(p, '='))
            n->a = weft__ct_parse_expression(p, true);
        else if (has_default)
            weft__ct_refuse(p, WEFT_BAD_FILE, "a parameter without a default after one with");
        has_default = n->a;
        ct_append(&end, n);
    }
    weft__ct_expect(p, ')');
    return list;
}

/* The parameters and the body of a macro, in which loops around it cannot be left. */
static void parse_macro_parts(ct_parser *p, ct_node *n, const char *end)
{
    const int loops = p->loops, flags = p->macro_flags;
    p->loops = p->macro_flags = 0;
    n->other = parse_body(p, end);
    n->op = p->macro_flags;
    weft__ct_advance(p);
    p->loops = loops;
    p->macro_flags = flags;
}

static ct_node *parse_macro(ct_parser *p)
{
    ct_node *n = weft__ct_node(p, CT_K_MACRO);
    weft__ct_advance(p);
    n->constant = weft__ct_take_name(p);
    n->name = weft__ct_intern(p, &n->constant);
    n->list = parse_parameters(p);
    parse_macro_parts(p, n, "endmacro");
    return n;
}

static ct_node *parse_call_block(ct_parser *p)
{
    ct_node *n = weft__ct_node(p, CT_K_CALL_BLOCK), *macro = weft__ct_node(p, CT_K_MACRO);
    weft__ct_advance(p);
    if (weft__ct_at(p, '(')) macro->list = parse_parameters(p);
    n->a = weft__ct_parse_expression(p, true);
    if (n->a->kind != CT_K_CALL) weft__ct_refuse(p, WEFT_BAD_FILE, "expected a call");
    parse_macro_parts(p, macro, "endcall");
    n->b = macro;
    return n;
}

static ct_node *parse_filter_block(ct_parser *p)
{
    ct_node *n = weft__ct_node(p, CT_K_FILTER_BLOCK);
    weft__ct_advance(p);
    n->b = weft__ct_parse_filters(p, NULL, true);
    n->list = parse_body(p, "endfilter");
    weft__ct_advance(p);
    return n;
}

static ct_node *parse_with(ct_parser *p)
{
    ct_node *n = weft__ct_node(p, CT_K_WITH), **end = &n->other;
    weft__ct_advance(p);
    while (p->status == WEFT_OK && !weft__ct_at(p, ':') && p->current.kind != CT_CLOSE_BLOCK) {
        if (n->other) weft__ct_expect(p, ',');
        ct_node *set = weft__ct_node(p, CT_K_SET);
        set->a = parse_target_item(p, false);
        weft__ct_expect(p, '=');
        set->b = weft__ct_parse_expression(p, true);
        ct_append(&end, set);
    }
    n->list = parse_body(p, "endwith");
    weft__ct_advance(p);
    return n;
}

static ct_node *parse_generation(ct_parser *p)
{
    ct_node *n = weft__ct_node(p, CT_K_GENERATION);
    const int loops = p->loops;
    weft__ct_advance(p);
    p->loops = 0;
    n->list = parse_body(p, "endgeneration");
    weft__ct_advance(p);
    p->loops = loops;
    return n;
}

static ct_node *parse_jump(ct_parser *p)
{
    ct_node *n = weft__ct_node(p, weft__ct_at_name(p, "break") ? CT_K_BREAK : CT_K_CONTINUE);
    if (!p->loops) weft__ct_refuse(p, WEFT_BAD_FILE, "break or continue outside of a loop");
    weft__ct_advance(p);
    return n;
}

static ct_node *parse_statement(ct_parser *p)
{
    static const struct {
        const char *name;
        ct_node *(*parse)(ct_parser *p);
    } statements[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"macro", parse_macro},
        {"call", parse_call_block}, {"filter", parse_filter_block},
        {"with", parse_with},       {"generation", parse_generation},
        {"break", parse_jump},      {"continue", parse_jump},
    };
    static const char *const known[] = {"block", "extends", "include",    "import", "from",
                                        "print", "do",      "autoescape", "trans",  "debug"};
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (weft__ct_at_name(p, statements[i].name)) return statements[i].parse(p);
    const int n = (int)(p->current.bytes < 40 ? p->current.bytes : 40);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (weft__ct_at_name(p, known[i]))
            weft__ct_refuse(p, WEFT_BAD_FILE, "the statement '%s' is not supported", known[i]);
    weft__ct_refuse(p, WEFT_BAD_FILE, "'%.*s' is not a statement here", n, p->current.text);
    return weft__ct_node(p, CT_K_CONST);
}
