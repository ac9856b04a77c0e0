/* Filters of lists. Those that Python evaluates lazily return a generator, which can be read once
 * and has no length. */
#include "chat/template.h"

#include <string.h>

/* An attribute of an item: "a.b.0" goes from one to the next, by keys first. */
ct_value weft__ct_attribute_of(ct_render *r, const ct_value *item, const ct_value *path)
{
    ct_value v = *item;
    if (path->type != CT_STRING) return weft__ct_item(r, &v, path);
    for (size_t at = 0; at <= path->n && r->status == WEFT_OK;) {
        const char *begin = path->as.text + at, *dot = memchr(begin, '.', path->n - at);
        const size_t n = dot ? (size_t)(dot - begin) : path->n - at;
        ct_value key = ct_string(begin, n);
        if (n && n < 10 && strspn(begin, "0123456789") >= n) {
            int64_t index = 0;
            for (size_t i = 0; i < n; i++) index = 10 * index + (begin[i] - '0');
            key = ct_int(index);
        }
        v = weft__ct_item(r, &v, &key);
        at += n + 1;
    }
    return v;
}

/* The value by which items are compared: an attribute, texts in lower case. */
static ct_value key_of(ct_render *r, const ct_value *item, const ct_value *attribute,
                       bool case_sensitive)
{
    ct_value v = *item;
    if (attribute->type != CT_MISSING && attribute->type != CT_NONE)
        v = weft__ct_attribute_of(r, item, attribute);
    if (v.type != CT_STRING || case_sensitive || !weft__ct_work(r, 8 * v.n)) return v;
    ct_buffer lower = weft__ct_buffer();
    weft__ct_put_case(&lower, v.as.text, v.n, CT_LOWER);
    return weft__ct_take(r, &lower);
}

static ct_value first(ct_render *r, const ct_value *self, const ct_args *args)
{
    size_t n;
    const ct_value *items = weft__ct_items_of(r, self, &n);
    (void)args;
    return n ? items[0] : ct_undefined(CT_MISSING, "the first item", 14);
}

static ct_value last(ct_render *r, const ct_value *self, const ct_args *args)
{
    size_t n;
    (void)args;
    if (self->type == CT_GENERATOR)
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "a generator has no last item; use | list");
    const ct_value *items = weft__ct_items_of(r, self, &n);
    return n ? items[n - 1] : ct_undefined(CT_MISSING, "the last item", 13);
}

static ct_value list(ct_render *r, const ct_value *self, const ct_args *args)
{
    size_t n;
    const ct_value *items = weft__ct_items_of(r, self, &n);
    (void)args;
    return ct_sequence(CT_LIST, items, n);
}

static ct_value items(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value name = ct_string("items", 5);
    size_t n;
    if (self->type == CT_UNDEFINED) return weft__ct_generator(r, NULL, 0);
    if (self->type != CT_DICT)
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "items expects a dict, not a %s",
                             weft__ct_type_name(self));
    const ct_value all = weft__ct_apply(r, weft__ct_find_method(self, &name), self, args);
    const ct_value *pairs = weft__ct_items_of(r, &all, &n);
    return weft__ct_generator(r, pairs, n);
}

static ct_value join(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value passed = weft__ct_arg(args, 0, "d"),
                   attribute = weft__ct_arg(args, 1, "attribute");
    const ct_value between =
        passed.type == CT_MISSING ? ct_string("", 0) : weft__ct_text(r, &passed);
    ct_buffer b = weft__ct_buffer();
    size_t n;
    const ct_value *all = weft__ct_items_of(r, self, &n);
    for (size_t i = 0; i < n && r->status == WEFT_OK; i++) {
        const ct_value item = key_of(r, &all[i], &attribute, true);
        if (i) weft__ct_print(r, &b, &between);
        weft__ct_print(r, &b, &item);
    }
    return weft__ct_take(r, &b);
}

static ct_value reverse(ct_render *r, const ct_value *self, const ct_args *args)
{
    static const ct_value bounds[3] = {
        {.type = CT_NONE}, {.type = CT_NONE}, {.type = CT_INT, .as.whole = -1}};
    size_t n;
    (void)args;
    if (self->type == CT_STRING) return weft__ct_slice(r, self, bounds);
    const ct_value *all = weft__ct_items_of(r, self, &n);
    const ct_value forward = ct_sequence(CT_LIST, all, n),
                   backward = weft__ct_slice(r, &forward, bounds);
    return self->type == CT_GENERATOR ? backward : weft__ct_generator(r, backward.as.items, n);
}

static ct_value unique(ct_render *r, const ct_value *self, const ct_args *args)
{
    const bool case_sensitive = weft__ct_bool_arg(args, 0, "case_sensitive", false);
    const ct_value attribute = weft__ct_arg(args, 1, "attribute");
    ct_items keys = {NULL, 0, 0}, found = {NULL, 0, 0};
    size_t n;
    const ct_value *all = weft__ct_items_of(r, self, &n);
    for (size_t i = 0; i < n && weft__ct_work(r, 0); i++) {
        const ct_value key = key_of(r, &all[i], &attribute, case_sensitive),
                       seen = ct_sequence(CT_LIST, keys.items, keys.n);
        if (!weft__ct_can_be_key(r, &key) || weft__ct_contains(r, &seen, &key)) continue;
        weft__ct_add(r, &keys, key);
        weft__ct_add(r, &found, all[i]);
    }
    return weft__ct_generator(r, found.items, found.n);
}

/* ---- Order ---- */

/* Sorts items by their keys, equal ones in the order that they had. */
static void sort_by(ct_render *r, ct_value *all, ct_value *keys, size_t n, bool reverse)
{
    for (size_t i = 1; i < n && weft__ct_work(r, 0); i++) {
        const ct_value item = all[i], key = keys[i];
        size_t at = i;
        for (; at > 0 && weft__ct_work(r, 0); at--) {
            const int order = weft__ct_compare(r, &key, &keys[at - 1], "<");
            if (reverse ? order <= 0 : order >= 0) break;
            all[at] = all[at - 1];
            keys[at] = keys[at - 1];
        }
        all[at] = item;
        keys[at] = key;
    }
}

static ct_value sort_with(ct_render *r, const ct_value *self, const ct_value *attribute,
                          bool case_sensitive, bool reverse)
{
    size_t n;
    const ct_value *from = weft__ct_items_of(r, self, &n);
    ct_value *all = weft__ct_alloc(r, n, sizeof *all), *keys = weft__ct_alloc(r, n, sizeof *keys);
    if (!all || !keys) return ct_none();
    for (size_t i = 0; i < n && weft__ct_work(r, 0); i++) {
        all[i] = from[i];
        keys[i] = key_of(r, &from[i], attribute, case_sensitive);
    }
    if (r->status == WEFT_OK) sort_by(r, all, keys, n, reverse);
    return ct_sequence(CT_LIST, all, n);
}

static ct_value sort(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value attribute = weft__ct_arg(args, 2, "attribute");
    return sort_with(r, self, &attribute, weft__ct_bool_arg(args, 1, "case_sensitive", false),
                     weft__ct_bool_arg(args, 0, "reverse", false));
}

static ct_value dictsort(ct_render *r, const ct_value *self, const ct_args *args)
{
    static const ct_args none = {NULL, 0, NULL, 0};
    const ct_value by = weft__ct_text_arg(r, args, 1, "by", "key");
    const ct_value side = ct_int(weft__ct_is(&by, "value"));
    const ct_value pairs = items(r, self, &none);
    return sort_with(r, &pairs, &side, weft__ct_bool_arg(args, 0, "case_sensitive", false),
                     weft__ct_bool_arg(args, 2, "reverse", false));
}

/* The item with the largest key, or the smallest: the first of equal ones. */
static ct_value extreme(ct_render *r, const ct_value *self, const ct_args *args, int sign)
{
    const bool case_sensitive = weft__ct_bool_arg(args, 0, "case_sensitive", false);
    const ct_value attribute = weft__ct_arg(args, 1, "attribute");
    size_t n, best = 0;
    const ct_value *all = weft__ct_items_of(r, self, &n);
    if (!n) return ct_undefined(CT_MISSING, "the extreme of no items", 23);
    ct_value best_key = key_of(r, &all[0], &attribute, case_sensitive);
    for (size_t i = 1; i < n && weft__ct_work(r, 0); i++) {
        const ct_value key = key_of(r, &all[i], &attribute, case_sensitive);
        if (sign * weft__ct_compare(r, &key, &best_key, sign > 0 ? ">" : "<") <= 0) continue;
        best = i;
        best_key = key;
    }
    return all[best];
}

static ct_value max(ct_render *r, const ct_value *self, const ct_args *args)
{
    return extreme(r, self, args, 1);
}

static ct_value min(ct_render *r, const ct_value *self, const ct_args *args)
{
    return extreme(r, self, args, -1);
}

static ct_value sum(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value attribute = weft__ct_arg(args, 0, "attribute");
    ct_value total = weft__ct_arg(args, 1, "start");
    size_t n;
    const ct_value *all = weft__ct_items_of(r, self, &n);
    if (total.type == CT_MISSING) total = ct_int(0);
    for (size_t i = 0; i < n && weft__ct_work(r, 0); i++) {
        const ct_value item = key_of(r, &all[i], &attribute, true);
        total = weft__ct_binary(r, '+', &total, &item);
    }
    return total;
}

const ct_function *weft__ct_find_list_filter(const ct_value *name)
{
    static const ct_function filters[] = {
        {"dictsort", "case_sensitive by reverse", dictsort},
        {"first", "", first},
        {"items", "", items},
        {"join", "d attribute", join},
        {"last", "", last},
        {"list", "", list},
        {"max", "case_sensitive attribute", max},
        {"min", "case_sensitive attribute", min},
        {"reverse", "", reverse},
        {"sort", "reverse case_sensitive attribute", sort},
        {"sum", "attribute start", sum},
        {"unique", "case_sensitive attribute", unique},
    };
    return weft__ct_find_function(filters, sizeof filters / sizeof *filters, name);
}
