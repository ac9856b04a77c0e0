/* Values of expressions. */
#include "chat/template.h"

#include <string.h>

static ct_value evaluate_const(ct_render *r, const ct_node *n)
{
    (void)r;
    return n->constant;
}

static ct_value evaluate_name(ct_render *r, const ct_node *n)
{
    const char *name = r->of->names[n->name];
    for (const ct_scope *s = r->scope; s; s = s->parent)
        for (const ct_binding *b = s->first; b; b = b->next)
            if (b->name == n->name) return b->value;
    const ct_value *value = &r->context[n->name];
    return value->type == CT_MISSING ? ct_undefined(CT_MISSING, name, strlen(name)) : *value;
}

static ct_items evaluate_list(ct_render *r, const ct_node *list)
{
    ct_items items = {NULL, 0, 0};
    for (const ct_node *at = list; at && r->status == WEFT_OK; at = at->next)
        weft__ct_add(r, &items, weft__ct_evaluate(r, at));
    return items;
}

static ct_value evaluate_sequence(ct_render *r, const ct_node *n)
{
    const ct_items items = evaluate_list(r, n->list);
    return ct_sequence(n->kind == CT_K_LIST ? CT_LIST : CT_TUPLE, items.items, items.n);
}

static ct_value evaluate_dict(ct_render *r, const ct_node *n)
{
    const ct_items items = evaluate_list(r, n->list);
    for (size_t i = 0; i < items.n; i += 2)
        if (!weft__ct_can_be_key(r, &items.items[i])) return ct_none();
    return weft__ct_dict(r, &items);
}

static ct_value evaluate_condition(ct_render *r, const ct_node *n)
{
    static const char none[] = "the value of an 'if' without 'else'";
    const ct_value test = weft__ct_evaluate(r, n->a);
    if (weft__ct_truth(&test)) return weft__ct_evaluate(r, n->b);
    return n->c ? weft__ct_evaluate(r, n->c) : ct_undefined(CT_MISSING, none, strlen(none));
}

static ct_value evaluate_logic(ct_render *r, const ct_node *n)
{
    const ct_value left = weft__ct_evaluate(r, n->a);
    return weft__ct_truth(&left) == (n->kind == CT_K_OR) ? left : weft__ct_evaluate(r, n->b);
}

static ct_value evaluate_not(ct_render *r, const ct_node *n)
{
    const ct_value v = weft__ct_evaluate(r, n->a);
    return ct_bool(!weft__ct_truth(&v));
}

static bool holds(ct_render *r, int op, const ct_value *a, const ct_value *b)
{
    switch (op) {
    case CT_TWO('=', '='):
        return weft__ct_equal(r, a, b);
    case CT_TWO('!', '='):
        return !weft__ct_equal(r, a, b);
    case 'i':
        return weft__ct_contains(r, b, a);
    case 'n':
        return !weft__ct_contains(r, b, a);
    case '<':
        return weft__ct_compare(r, a, b, "<") < 0;
    case '>':
        return weft__ct_compare(r, a, b, ">") > 0;
    case CT_TWO('<', '='):
        return weft__ct_compare(r, a, b, "<=") <= 0;
    default:
        return weft__ct_compare(r, a, b, ">=") >= 0;
    }
}

/* a < b < c compares neighbours, up to the first pair that does not hold. */
static ct_value evaluate_compare(ct_render *r, const ct_node *n)
{
    ct_value left = weft__ct_evaluate(r, n->a);
    for (const ct_node *operand = n->list; operand && r->status == WEFT_OK;
         operand = operand->next) {
        const ct_value right = weft__ct_evaluate(r, operand->a);
        r->line = operand->line;
        if (r->status != WEFT_OK || !holds(r, operand->op, &left, &right)) return ct_bool(false);
        left = right;
    }
    return ct_bool(true);
}

static ct_value evaluate_binary(ct_render *r, const ct_node *n)
{
    const ct_value a = weft__ct_evaluate(r, n->a), b = weft__ct_evaluate(r, n->b);
    r->line = n->line;
    return r->status == WEFT_OK ? weft__ct_binary(r, n->op, &a, &b) : a;
}

static ct_value evaluate_join(ct_render *r, const ct_node *n)
{
    ct_buffer b = weft__ct_buffer();
    for (const ct_node *at = n->list; at && r->status == WEFT_OK; at = at->next) {
        const ct_value v = weft__ct_evaluate(r, at);
        weft__ct_print(r, &b, &v);
    }
    return weft__ct_take(r, &b);
}

static ct_value evaluate_sign(ct_render *r, const ct_node *n)
{
    const ct_value v = weft__ct_evaluate(r, n->a);
    if (v.type == CT_UNDEFINED) return weft__ct_fail_undefined(r, &v);
    if (!ct_is_number(&v))
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "a %s has no sign", weft__ct_type_name(&v));
    if (v.type == CT_FLOAT) return ct_float(n->op == '-' ? -v.as.number : v.as.number);
    const ct_value zero = ct_int(0), whole = ct_int(ct_whole(&v));
    return n->op == '-' ? weft__ct_binary(r, '-', &zero, &whole) : whole;
}

static ct_value evaluate_attribute(ct_render *r, const ct_node *n)
{
    const ct_value of = weft__ct_evaluate(r, n->a);
    r->line = n->line;
    return r->status == WEFT_OK ? weft__ct_attribute(r, &of, &n->constant) : of;
}

static ct_value evaluate_item(ct_render *r, const ct_node *n)
{
    const ct_value of = weft__ct_evaluate(r, n->a), key = weft__ct_evaluate(r, n->b);
    r->line = n->line;
    return r->status == WEFT_OK ? weft__ct_item(r, &of, &key) : of;
}

static ct_value evaluate_slice(ct_render *r, const ct_node *n)
{
    const ct_node *const nodes[] = {n->b, n->c, n->other};
    const ct_value of = weft__ct_evaluate(r, n->a);
    ct_value bounds[3];
    for (int i = 0; i < 3; i++) bounds[i] = nodes[i] ? weft__ct_evaluate(r, nodes[i]) : ct_none();
    r->line = n->line;
    return r->status == WEFT_OK ? weft__ct_slice(r, &of, bounds) : of;
}

/* ---- Calls ---- */

/* Adds the items of *list, or the pairs of **dict. */
static void add_many(ct_render *r, const ct_node *n, const ct_value *v, ct_items *items,
                     ct_items *named)
{
    size_t count;
    if (n->op == '*') {
        const ct_value *all = weft__ct_items_of(r, v, &count);
        for (size_t i = 0; i < count && r->status == WEFT_OK; i++) weft__ct_add(r, items, all[i]);
    } else if (v->type != CT_DICT) {
        weft__ct_fail(r, WEFT_BAD_ARGUMENT, "'**' expects a dict, not a %s", weft__ct_type_name(v));
    } else {
        for (size_t i = 0; i < v->n && r->status == WEFT_OK; i++) {
            weft__ct_add(r, named, v->as.pairs[i].key);
            weft__ct_add(r, named, v->as.pairs[i].value);
        }
    }
}

static ct_args evaluate_arguments(ct_render *r, const ct_node *list)
{
    ct_items items = {NULL, 0, 0}, names = {NULL, 0, 0};
    for (const ct_node *at = list; at && r->status == WEFT_OK; at = at->next) {
        const ct_value v = weft__ct_evaluate(r, at->a);
        if (at->op) {
            add_many(r, at, &v, &items, &names);
        } else if (at->constant.type == CT_STRING) {
            weft__ct_add(r, &names, at->constant);
            weft__ct_add(r, &names, v);
        } else {
            weft__ct_add(r, &items, v);
        }
    }
    /* A repeated name is an error. */
    const ct_value named = weft__ct_dict(r, &names);
    for (size_t i = 0; i < named.n; i++)
        if (named.as.pairs[i].key.type != CT_STRING)
            weft__ct_fail(r, WEFT_BAD_ARGUMENT, "the name of an argument is not a text");
    if (r->status == WEFT_OK && 2 * named.n < names.n)
        weft__ct_fail(r, WEFT_BAD_ARGUMENT, "an argument is passed twice");
    return (ct_args){items.items, items.n, named.as.pairs, named.n};
}

static ct_value call_value(ct_render *r, const ct_value *callee, const ct_args *args)
{
    switch (callee->type) {
    case CT_MACRO:
        for (size_t i = 0; i < args->n_named; i++)
            if (weft__ct_is(&args->named[i].key, "caller"))
                return weft__ct_fail(r, WEFT_BAD_FILE, "'caller' cannot be an argument");
        return callee->as.macro->call(r, callee->as.macro, args, NULL);
    case CT_FUNCTION:
        return weft__ct_apply(r, callee->as.function, NULL, args);
    case CT_METHOD:
        return weft__ct_apply(r, callee->as.method->function, &callee->as.method->self, args);
    case CT_UNDEFINED:
        return weft__ct_fail_undefined(r, callee);
    default:
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "a %s cannot be called",
                             weft__ct_type_name(callee));
    }
}

static ct_value evaluate_call(ct_render *r, const ct_node *n)
{
    const ct_value callee = weft__ct_evaluate(r, n->a);
    const ct_args args = evaluate_arguments(r, n->list);
    r->line = n->line;
    return r->status == WEFT_OK ? call_value(r, &callee, &args) : callee;
}

static ct_value evaluate_filter(ct_render *r, const ct_node *n)
{
    const ct_value in = n->a ? weft__ct_evaluate(r, n->a) : r->captured;
    const ct_args args = evaluate_arguments(r, n->list);
    r->line = n->line;
    return r->status == WEFT_OK ? weft__ct_filter(r, &n->constant, &in, &args) : in;
}

static ct_value evaluate_test(ct_render *r, const ct_node *n)
{
    const ct_value in = weft__ct_evaluate(r, n->a);
    const ct_args args = evaluate_arguments(r, n->list);
    r->line = n->line;
    return r->status == WEFT_OK ? ct_bool(weft__ct_test(r, &n->constant, &in, &args)) : in;
}

ct_value weft__ct_call_block(ct_render *r, const ct_node *call, const ct_value *caller)
{
    const ct_value callee = weft__ct_evaluate(r, call->a);
    const ct_args args = evaluate_arguments(r, call->list);
    r->line = call->line;
    if (r->status != WEFT_OK) return callee;
    if (callee.type != CT_MACRO)
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "{%% call %%} expects a macro, not a %s",
                             weft__ct_type_name(&callee));
    return callee.as.macro->call(r, callee.as.macro, &args, caller);
}

ct_value weft__ct_evaluate(ct_render *r, const ct_node *n)
{
    static ct_value (*const evaluate[])(ct_render * r, const ct_node *n) = {
        [CT_K_CONST] = evaluate_const,   [CT_K_NAME] = evaluate_name,
        [CT_K_LIST] = evaluate_sequence, [CT_K_TUPLE] = evaluate_sequence,
        [CT_K_DICT] = evaluate_dict,     [CT_K_CONDITION] = evaluate_condition,
        [CT_K_OR] = evaluate_logic,      [CT_K_AND] = evaluate_logic,
        [CT_K_NOT] = evaluate_not,       [CT_K_COMPARE] = evaluate_compare,
        [CT_K_BINARY] = evaluate_binary, [CT_K_JOIN] = evaluate_join,
        [CT_K_SIGN] = evaluate_sign,     [CT_K_ATTRIBUTE] = evaluate_attribute,
        [CT_K_ITEM] = evaluate_item,     [CT_K_SLICE] = evaluate_slice,
        [CT_K_CALL] = evaluate_call,     [CT_K_FILTER] = evaluate_filter,
        [CT_K_TEST] = evaluate_test,
    };
    ct_value v = {.type = CT_UNDEFINED};
    if (!weft__ct_work(r, 0)) return v;
    r->line = n->line;
    if (r->depth >= CT_MAX_DEPTH)
        return weft__ct_fail(r, WEFT_TOO_LARGE, "more than %d expressions within each other",
                             CT_MAX_DEPTH);
    r->depth++;
    v = evaluate[n->kind](r, n);
    r->depth--;
    return v;
}
