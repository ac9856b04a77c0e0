/* Statements, scopes and macros. A loop's iteration, a macro and a block that is captured have
 * scopes of their own: what they set ends with them. */
#include "chat/template.h"

#include <string.h>

static void set_variable(ct_render *r, uint32_t name, const ct_value *value)
{
    for (ct_binding *b = r->scope->first; b; b = b->next) {
        if (b->name != name) continue;
        b->value = *value;
        return;
    }
    ct_binding *b = weft__ct_alloc(r, 1, sizeof *b);
    if (!b) return;
    *b = (ct_binding){r->scope->first, name, *value};
    r->scope->first = b;
}

/* Begins a scope within `parent`; the one before is returned. */
static ct_scope *enter(ct_render *r, ct_scope *parent)
{
    ct_scope *before = r->scope, *s = weft__ct_alloc(r, 1, sizeof *s);
    if (s) {
        s->parent = parent;
        r->scope = s;
    }
    return before;
}

static void set_member(ct_render *r, const ct_node *target, const ct_value *value)
{
    const ct_node name = {.kind = CT_K_NAME, .line = target->line, .name = target->name};
    const ct_value space = weft__ct_evaluate(r, &name);
    if (r->status != WEFT_OK) return;
    if (space.type != CT_NAMESPACE) {
        weft__ct_fail(r, WEFT_BAD_ARGUMENT, "only attributes of a namespace can be set");
        return;
    }
    for (ct_attribute *at = *space.as.attributes; at && weft__ct_work(r, 0); at = at->next) {
        if (!weft__ct_equal(r, &at->name, &target->constant)) continue;
        at->value = *value;
        return;
    }
    ct_attribute *added = weft__ct_alloc(r, 1, sizeof *added);
    if (!added) return;
    *added = (ct_attribute){*space.as.attributes, target->constant, *value};
    *space.as.attributes = added;
}

static void assign(ct_render *r, const ct_node *target, const ct_value *value)
{
    size_t n, i = 0;
    if (r->status != WEFT_OK) return;
    if (target->kind == CT_K_NAME) {
        set_variable(r, target->name, value);
    } else if (target->kind == CT_K_MEMBER) {
        set_member(r, target, value);
    } else {
        const ct_value *items = weft__ct_items_of(r, value, &n);
        const ct_node *at = target->list;
        for (; at && i < n; at = at->next) assign(r, at, &items[i++]);
        if (at || i < n)
            weft__ct_fail(r, WEFT_BAD_ARGUMENT, "%zu values are assigned to %s names", n,
                          at ? "more" : "fewer");
    }
}

static ct_value filtered(ct_render *r, const ct_node *filters, const ct_value *text)
{
    if (!filters || r->status != WEFT_OK) return *text;
    const ct_value before = r->captured;
    r->captured = *text;
    const ct_value v = weft__ct_evaluate(r, filters);
    r->captured = before;
    return v;
}

static ct_value capture_in(ct_render *r, const ct_node *list)
{
    ct_buffer b = weft__ct_buffer(), *before = r->out;
    r->out = &b;
    weft__ct_run(r, list);
    r->out = before;
    return weft__ct_take(r, &b);
}

static ct_value capture(ct_render *r, const ct_node *list)
{
    ct_scope *before = enter(r, r->scope);
    const ct_value text = capture_in(r, list);
    r->scope = before;
    return text;
}

/* ---- Macros ---- */

/* The value of a parameter: that of its position, its name, or its default. */
static void set_parameter(ct_render *r, const ct_node *parameter, size_t i, const ct_args *args,
                          bool *is_used)
{
    ct_value value = ct_missing();
    if (i < args->n) value = args->items[i];
    for (size_t k = 0; k < args->n_named; k++) {
        if (!weft__ct_equal(r, &args->named[k].key, &parameter->constant) || i < args->n) continue;
        value = args->named[k].value;
        is_used[k] = true;
    }
    if (value.type == CT_MISSING && parameter->a) value = weft__ct_evaluate(r, parameter->a);
    if (value.type == CT_MISSING)
        value = ct_undefined(CT_MISSING, parameter->constant.as.text, parameter->constant.n);
    if (r->status == WEFT_OK) set_variable(r, parameter->name, &value);
}

/* What no parameter takes: an error, unless the macro's body names varargs and kwargs. */
static void set_others(ct_render *r, const ct_node *n, const ct_args *args, size_t n_parameters,
                       const bool *is_used)
{
    ct_items rest = {NULL, 0, 0};
    for (size_t k = 0; k < args->n_named; k++) {
        if (is_used[k]) continue;
        weft__ct_add(r, &rest, args->named[k].key);
        weft__ct_add(r, &rest, args->named[k].value);
    }
    const size_t more = args->n > n_parameters ? args->n - n_parameters : 0;
    if (rest.n && !(n->op & CT_HAS_KWARGS))
        weft__ct_fail(r, WEFT_BAD_ARGUMENT, "the macro has no parameter '%.*s'",
                      (int)(rest.items->n < 60 ? rest.items->n : 60), rest.items->as.text);
    if (more && !(n->op & CT_HAS_VARARGS))
        weft__ct_fail(r, WEFT_BAD_ARGUMENT, "the macro has %zu parameters, but is called with %zu",
                      n_parameters, args->n);
    if (r->status != WEFT_OK) return;
    const ct_value many = ct_sequence(CT_TUPLE, more ? args->items + n_parameters : NULL, more);
    const ct_value named = weft__ct_dict(r, &rest);
    if (n->op & CT_HAS_VARARGS) set_variable(r, r->of->specials[CT_N_VARARGS], &many);
    if (n->op & CT_HAS_KWARGS) set_variable(r, r->of->specials[CT_N_KWARGS], &named);
}

static ct_value call_macro(ct_render *r, const ct_macro *macro, const ct_args *args,
                           const ct_value *caller)
{
    static const char no_caller[] = "caller";
    const ct_value none = ct_undefined(CT_MISSING, no_caller, strlen(no_caller));
    bool *is_used = weft__ct_alloc(r, args->n_named + 1, sizeof *is_used);
    ct_value text = ct_string("", 0);
    size_t n = 0;
    if (!is_used) return text;
    ct_scope *before = enter(r, macro->scope);
    set_variable(r, r->of->specials[CT_N_CALLER], caller ? caller : &none);
    for (const ct_node *at = macro->node->list; at && r->status == WEFT_OK; at = at->next)
        set_parameter(r, at, n++, args, is_used);
    if (r->status == WEFT_OK) set_others(r, macro->node, args, n, is_used);
    if (r->status == WEFT_OK) text = capture_in(r, macro->node->other);
    r->scope = before;
    return text;
}

static ct_value make_macro(ct_render *r, const ct_node *n)
{
    ct_macro *macro = weft__ct_alloc(r, 1, sizeof *macro);
    if (!macro) return ct_none();
    *macro = (ct_macro){n, r->scope, call_macro};
    return (ct_value){.type = CT_MACRO, .as.macro = macro};
}

/* ---- Statements ---- */

static void run_text(ct_render *r, const ct_node *n)
{
    weft__ct_put(r->out, n->constant.as.text, n->constant.n);
}

static void run_output(ct_render *r, const ct_node *n)
{
    const ct_value v = weft__ct_evaluate(r, n->a);
    if (r->status == WEFT_OK) weft__ct_print(r, r->out, &v);
}

static void run_if(ct_render *r, const ct_node *n)
{
    for (; n && r->status == WEFT_OK; n = n->other) {
        const ct_value test = n->a ? weft__ct_evaluate(r, n->a) : ct_bool(true);
        if (r->status != WEFT_OK || !weft__ct_truth(&test)) continue;
        weft__ct_run(r, n->list);
        return;
    }
}

/* Whether an item passes the loop's `if`, which sees the targets in a scope of its own. */
static bool passes(ct_render *r, const ct_loop *loop, const ct_value *item)
{
    ct_scope *before = r->scope, *own = weft__ct_alloc(r, 1, sizeof *own);
    if (!own) return false;
    own->parent = loop->scope;
    r->scope = own;
    assign(r, loop->node->a, item);
    const ct_value v = r->status == WEFT_OK ? weft__ct_evaluate(r, loop->node->c) : ct_none();
    r->scope = before;
    return weft__ct_truth(&v);
}

static void run_for(ct_render *r, const ct_node *n)
{
    const ct_value over = weft__ct_evaluate(r, n->b);
    ct_loop *loop = weft__ct_alloc(r, 1, sizeof *loop);
    if (!loop) return;
    *loop = (ct_loop){.node = n, .scope = r->scope, .passes = n->c ? passes : NULL};
    loop->is_sized = !n->c && over.type != CT_GENERATOR;
    loop->items = weft__ct_items_of(r, &over, &loop->n);
    const ct_value own = {.type = CT_LOOP, .as.loop = loop};
    ct_scope *before = r->scope;
    bool any = false;
    while (r->status == WEFT_OK) {
        const ct_value item = weft__ct_loop_next(r, loop);
        if (item.type == CT_MISSING) break;
        enter(r, before);
        assign(r, n->a, &item);
        set_variable(r, r->of->specials[CT_N_LOOP], &own);
        weft__ct_run(r, n->list);
        r->scope = before;
        const ct_flow flow = r->flow;
        r->flow = CT_GO;
        if (flow == CT_BREAK) break;
        /* As in Jinja, an iteration that is left by break or continue does not prevent `else`. */
        any |= flow == CT_GO;
    }
    if (any || !n->other || r->status != WEFT_OK) return;
    enter(r, before);
    weft__ct_run(r, n->other);
    r->scope = before;
}

static void run_set(ct_render *r, const ct_node *n)
{
    const ct_value v = weft__ct_evaluate(r, n->b);
    assign(r, n->a, &v);
}

static void run_set_block(ct_render *r, const ct_node *n)
{
    const ct_value text = capture(r, n->list), v = filtered(r, n->b, &text);
    if (r->flow == CT_GO) assign(r, n->a, &v);
}

static void run_filter_block(ct_render *r, const ct_node *n)
{
    const ct_value text = capture(r, n->list), v = filtered(r, n->b, &text);
    if (r->status == WEFT_OK && r->flow == CT_GO) weft__ct_print(r, r->out, &v);
}

/* The values see the scope around. */
static void run_with(ct_render *r, const ct_node *n)
{
    ct_scope *before = enter(r, r->scope), *own = r->scope;
    for (const ct_node *at = n->other; at && r->status == WEFT_OK; at = at->next) {
        r->scope = before;
        const ct_value v = weft__ct_evaluate(r, at->b);
        r->scope = own;
        assign(r, at->a, &v);
    }
    if (r->status == WEFT_OK) weft__ct_run(r, n->list);
    r->scope = before;
}

static void run_macro(ct_render *r, const ct_node *n)
{
    const ct_value macro = make_macro(r, n);
    set_variable(r, n->name, &macro);
}

static void run_call_block(ct_render *r, const ct_node *n)
{
    const ct_value caller = make_macro(r, n->b), v = weft__ct_call_block(r, n->a, &caller);
    if (r->status == WEFT_OK) weft__ct_print(r, r->out, &v);
}

static void run_generation(ct_render *r, const ct_node *n)
{
    ct_scope *before = enter(r, r->scope);
    weft__ct_run(r, n->list);
    r->scope = before;
}

static void run_jump(ct_render *r, const ct_node *n)
{
    r->flow = n->kind == CT_K_BREAK ? CT_BREAK : CT_CONTINUE;
}

void weft__ct_run(ct_render *r, const ct_node *list)
{
    static void (*const run[])(ct_render * r, const ct_node *n) = {
        [CT_K_TEXT] = run_text,
        [CT_K_OUTPUT] = run_output,
        [CT_K_IF] = run_if,
        [CT_K_FOR] = run_for,
        [CT_K_SET] = run_set,
        [CT_K_SET_BLOCK] = run_set_block,
        [CT_K_FILTER_BLOCK] = run_filter_block,
        [CT_K_WITH] = run_with,
        [CT_K_MACRO] = run_macro,
        [CT_K_CALL_BLOCK] = run_call_block,
        [CT_K_GENERATION] = run_generation,
        [CT_K_BREAK] = run_jump,
        [CT_K_CONTINUE] = run_jump,
    };
    for (const ct_node *n = list; n && r->flow == CT_GO && weft__ct_work(r, 0); n = n->next) {
        r->line = n->line;
        if (r->depth >= CT_MAX_DEPTH) {
            weft__ct_fail(r, WEFT_TOO_LARGE, "more than %d statements within each other",
                          CT_MAX_DEPTH);
            return;
        }
        r->depth++;
        run[n->kind](r, n);
        r->depth--;
        if (r->out->failed) weft__ct_take(r, r->out);
    }
}
