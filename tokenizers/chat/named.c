/* Filters by their names, and those of lists that take a filter or a test by its name. */
#include "chat/template.h"

/* The arguments from the i-th on. */
static ct_args rest_of(const ct_args *args, size_t i)
{
    return (ct_args){args->n > i ? args->items + i : NULL, args->n > i ? args->n - i : 0,
                     args->named, args->n_named};
}

/* The items for which a test holds, or does not; without a test, those that are true. With
 * `by_attribute`, the first argument says what of an item to test. */
static ct_value filter_items(ct_render *r, const ct_value *self, const ct_args *args,
                             bool by_attribute, bool holds)
{
    const size_t skipped = by_attribute;
    ct_items found = {NULL, 0, 0};
    size_t n;
    if (!weft__ct_truth(self)) return weft__ct_generator(r, NULL, 0);
    if (args->n < skipped)
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "the filter needs an attribute");
    const ct_args rest = rest_of(args, skipped + 1);
    const ct_value *all = weft__ct_items_of(r, self, &n);
    for (size_t i = 0; i < n && weft__ct_work(r, 0); i++) {
        const ct_value v =
            by_attribute ? weft__ct_attribute_of(r, &all[i], &args->items[0]) : all[i];
        if (r->status != WEFT_OK) break;
        const bool passes = args->n > skipped ? weft__ct_test(r, &args->items[skipped], &v, &rest)
                                              : weft__ct_truth(&v);
        if (passes == holds) weft__ct_add(r, &found, all[i]);
    }
    return weft__ct_generator(r, found.items, found.n);
}

static ct_value select_items(ct_render *r, const ct_value *self, const ct_args *args)
{
    return filter_items(r, self, args, false, true);
}

static ct_value reject(ct_render *r, const ct_value *self, const ct_args *args)
{
    return filter_items(r, self, args, false, false);
}

static ct_value selectattr(ct_render *r, const ct_value *self, const ct_args *args)
{
    return filter_items(r, self, args, true, true);
}

static ct_value rejectattr(ct_render *r, const ct_value *self, const ct_args *args)
{
    return filter_items(r, self, args, true, false);
}

static ct_value map(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value attribute = weft__ct_arg(args, args->n, "attribute"),
                   other = weft__ct_arg(args, args->n, "default");
    ct_items found = {NULL, 0, 0};
    size_t n;
    if (!weft__ct_truth(self)) return weft__ct_generator(r, NULL, 0);
    if (!args->n && attribute.type == CT_MISSING)
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "map needs a filter or an attribute");
    const ct_args rest = rest_of(args, 1);
    const ct_value *all = weft__ct_items_of(r, self, &n);
    for (size_t i = 0; i < n && weft__ct_work(r, 0); i++) {
        ct_value v = args->n ? weft__ct_filter(r, &args->items[0], &all[i], &rest)
                             : weft__ct_attribute_of(r, &all[i], &attribute);
        if (!args->n && v.type == CT_UNDEFINED && other.type != CT_MISSING) v = other;
        weft__ct_add(r, &found, v);
    }
    return weft__ct_generator(r, found.items, found.n);
}

static const ct_function *find_filter(const ct_value *name)
{
    static const ct_function filters[] = {
        {"map", "*", map},
        {"reject", "*", reject},
        {"rejectattr", "*", rejectattr},
        {"select", "*", select_items},
        {"selectattr", "*", selectattr},
    };
    const ct_function *found = weft__ct_find_text_filter(name);
    if (!found) found = weft__ct_find_list_filter(name);
    return found ? found : weft__ct_find_function(filters, sizeof filters / sizeof *filters, name);
}

ct_value weft__ct_filter(ct_render *r, const ct_value *name, const ct_value *in,
                         const ct_args *args)
{
    const ct_function *filter = find_filter(name);
    if (filter) return weft__ct_apply(r, filter, in, args);
    const int n = (int)(name->type == CT_STRING ? name->n < 60 ? name->n : 60 : 0);
    return weft__ct_fail(r, WEFT_BAD_FILE, "filter '%.*s' is not known", n, n ? name->as.text : "");
}
