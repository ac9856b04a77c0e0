/* Functions that every template has. */
#include "chat/template.h"

#include <string.h>

#define MAX_RANGE 100000

/* range(stop), range(start, stop), range(start, stop, step) */
static ct_value range(ct_render *r, const ct_value *self, const ct_args *args)
{
    int64_t bounds[3] = {0, 0, 1};
    (void)self;
    if (!args->n) return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "range needs an integer");
    for (size_t i = 0; i < args->n; i++)
        if (!weft__ct_index(r, &args->items[i], "a bound of range", &bounds[args->n == 1 ? 1 : i]))
            return ct_none();
    const int64_t step = bounds[2];
    if (step == 0) return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "the step of range is 0");
    const double distance = (double)bounds[1] - (double)bounds[0];
    const double length = distance / (double)step;
    const size_t n = length <= 0 ? 0 : length > MAX_RANGE + 1 ? MAX_RANGE + 1 : (size_t)length + 1;
    ct_items items = {NULL, 0, 0};
    int64_t at = bounds[0];
    for (size_t i = 0; i < n && r->status == WEFT_OK; i++, at += step) {
        if (step > 0 ? at >= bounds[1] : at <= bounds[1]) break;
        if (i == MAX_RANGE)
            return weft__ct_fail(r, WEFT_TOO_LARGE, "a range of more than %d numbers", MAX_RANGE);
        weft__ct_add(r, &items, ct_int(at));
        weft__ct_work(r, 0);
    }
    return ct_sequence(CT_RANGE, items.items, items.n);
}

/* The pairs of a dict, or of a list of pairs, and the named arguments. */
static ct_value dict(ct_render *r, const ct_value *self, const ct_args *args)
{
    ct_items all = {NULL, 0, 0};
    size_t n = 0, two;
    (void)self;
    if (args->n > 1) return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "dict takes one value at most");
    const bool is_dict = args->n && args->items[0].type == CT_DICT;
    const ct_value *items = args->n && !is_dict ? weft__ct_items_of(r, args->items, &n) : NULL;
    for (size_t i = 0; i < (is_dict ? args->items[0].n : n) && weft__ct_work(r, 0); i++) {
        const ct_value *both = is_dict ? NULL : weft__ct_items_of(r, &items[i], &two);
        if (!is_dict && (r->status != WEFT_OK || two != 2))
            return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "dict expects pairs");
        const ct_value *key = is_dict ? &args->items[0].as.pairs[i].key : &both[0];
        if (!weft__ct_can_be_key(r, key)) return ct_none();
        weft__ct_add(r, &all, *key);
        weft__ct_add(r, &all, is_dict ? args->items[0].as.pairs[i].value : both[1]);
    }
    for (size_t i = 0; i < args->n_named; i++) {
        weft__ct_add(r, &all, args->named[i].key);
        weft__ct_add(r, &all, args->named[i].value);
    }
    return weft__ct_dict(r, &all);
}

static ct_value namespace(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value from = dict(r, self, args);
    ct_attribute **first = weft__ct_alloc(r, 1, sizeof *first);
    if (!first) return ct_none();
    for (size_t i = 0; i < from.n && r->status == WEFT_OK; i++) {
        ct_attribute *added = weft__ct_alloc(r, 1, sizeof *added);
        if (!added) break;
        *added = (ct_attribute){*first, from.as.pairs[i].key, from.as.pairs[i].value};
        *first = added;
    }
    return (ct_value){.type = CT_NAMESPACE, .as.attributes = first};
}

static ct_value raise_exception(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value message = weft__ct_arg(args, 0, "message");
    (void)self;
    const ct_value text =
        message.type == CT_MISSING ? ct_string("", 0) : weft__ct_text(r, &message);
    return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "%.*s", (int)(text.n < 300 ? text.n : 300),
                         text.as.text);
}

static ct_value strftime_now(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value format = weft__ct_text_arg(r, args, 0, "format", NULL);
    (void)self;
    return weft__ct_strftime(r, &format);
}

void weft__ct_define(ct_render *r, const ct_value *name, const ct_value *value)
{
    if (!weft__ct_work(r, 16 * r->of->n_names)) return;
    for (size_t i = 0; i < r->of->n_names; i++)
        if (weft__ct_is(name, r->of->names[i])) r->context[i] = *value;
}

void weft__ct_define_functions(ct_render *r)
{
    static const ct_function functions[] = {
        {"dict", "*", dict},
        {"namespace", "*", namespace},
        {"raise_exception", "message", raise_exception},
        {"range", "start stop step", range},
        {"strftime_now", "format", strftime_now},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        const ct_value name = ct_string(functions[i].name, strlen(functions[i].name));
        const ct_value f = {.type = CT_FUNCTION, .as.function = &functions[i]};
        weft__ct_define(r, &name, &f);
    }
}
