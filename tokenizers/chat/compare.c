/* Equality, order and membership of values. Values nest as deep as a template makes them, so the
 * functions count levels. */
#include "chat/value.h"

#include <string.h>

#define MAX_LEVELS 200

static bool equal(ct_render *r, const ct_value *a, const ct_value *b, int level);

static bool equal_items(ct_render *r, const ct_value *a, const ct_value *b, int level)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n && r->status == WEFT_OK; i++)
        if (!equal(r, &a->as.items[i], &b->as.items[i], level + 1)) return false;
    return true;
}

static const ct_value *find_key(ct_render *r, const ct_value *dict, const ct_value *key, int level)
{
    weft__ct_work(r, 8 * dict->n);
    for (size_t i = 0; i < dict->n && r->status == WEFT_OK; i++) {
        const ct_value *own = &dict->as.pairs[i].key;
        if (own->type == CT_STRING && key->type == CT_STRING) {
            if (own->n == key->n && !memcmp(own->as.text, key->as.text, own->n))
                return &dict->as.pairs[i].value;
        } else if (equal(r, own, key, level + 1)) {
            return &dict->as.pairs[i].value;
        }
    }
    return NULL;
}

static bool equal_dicts(ct_render *r, const ct_value *a, const ct_value *b, int level)
{
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n && r->status == WEFT_OK; i++) {
        const ct_value *other = find_key(r, b, &a->as.pairs[i].key, level);
        if (!other || !equal(r, &a->as.pairs[i].value, other, level + 1)) return false;
    }
    return true;
}

static bool equal(ct_render *r, const ct_value *a, const ct_value *b, int level)
{
    if (level > MAX_LEVELS)
        return weft__ct_fail(r, WEFT_TOO_LARGE, "values that are nested too deeply"), false;
    if (!weft__ct_work(r, 0)) return false;
    if (ct_is_number(a) && ct_is_number(b))
        return ct_is_whole(a) && ct_is_whole(b) ? ct_whole(a) == ct_whole(b)
                                                : ct_number(a) == ct_number(b);
    if (a->type != b->type) return false;
    switch (a->type) {
    case CT_STRING:
        return a->n == b->n && weft__ct_work(r, a->n) && !memcmp(a->as.text, b->as.text, a->n);
    case CT_LIST:
    case CT_TUPLE:
    case CT_RANGE:
        return equal_items(r, a, b, level);
    case CT_DICT:
        return equal_dicts(r, a, b, level);
    case CT_UNDEFINED:
    case CT_NONE:
        return true;
    default: /* objects: the same one */
        return !memcmp(&a->as, &b->as, sizeof a->as) && a->n == b->n;
    }
}

bool weft__ct_equal(ct_render *r, const ct_value *a, const ct_value *b)
{
    return equal(r, a, b, 0);
}

const ct_value *weft__ct_find_key(ct_render *r, const ct_value *dict, const ct_value *key)
{
    return find_key(r, dict, key, 0);
}

static int compare(ct_render *r, const ct_value *a, const ct_value *b, const char *what, int level)
{
    if (level > MAX_LEVELS)
        return weft__ct_fail(r, WEFT_TOO_LARGE, "values that are nested too deeply"), 0;
    if (ct_is_whole(a) && ct_is_whole(b))
        return (ct_whole(a) > ct_whole(b)) - (ct_whole(a) < ct_whole(b));
    if (ct_is_number(a) && ct_is_number(b))
        return (ct_number(a) > ct_number(b)) - (ct_number(a) < ct_number(b));
    if (a->type == CT_STRING && b->type == CT_STRING) {
        const size_t n = a->n < b->n ? a->n : b->n;
        const int order = weft__ct_work(r, n) && n ? memcmp(a->as.text, b->as.text, n) : 0;
        return order ? order : (a->n > b->n) - (a->n < b->n);
    }
    if (a->type == b->type && (a->type == CT_LIST || a->type == CT_TUPLE)) {
        for (size_t i = 0; i < a->n && i < b->n && weft__ct_work(r, 0); i++)
            if (!equal(r, &a->as.items[i], &b->as.items[i], level + 1))
                return compare(r, &a->as.items[i], &b->as.items[i], what, level + 1);
        return (a->n > b->n) - (a->n < b->n);
    }
    if (a->type == CT_UNDEFINED || b->type == CT_UNDEFINED)
        weft__ct_fail_undefined(r, a->type == CT_UNDEFINED ? a : b);
    else
        weft__ct_fail(r, WEFT_BAD_ARGUMENT, "'%s' cannot compare a %s and a %s", what,
                      weft__ct_type_name(a), weft__ct_type_name(b));
    return 0;
}

int weft__ct_compare(ct_render *r, const ct_value *a, const ct_value *b, const char *what)
{
    return compare(r, a, b, what, 0);
}

static const ct_value *find_unhashable(ct_render *r, const ct_value *v, int level)
{
    if (v->type == CT_LIST || v->type == CT_DICT || v->type == CT_KEYS || v->type == CT_ITEMS ||
        level > MAX_LEVELS || !weft__ct_work(r, 0))
        return v;
    for (size_t i = 0; v->type == CT_TUPLE && i < v->n; i++) {
        const ct_value *found = find_unhashable(r, &v->as.items[i], level + 1);
        if (found) return found;
    }
    return NULL;
}

bool weft__ct_can_be_key(ct_render *r, const ct_value *v)
{
    const ct_value *wrong = find_unhashable(r, v, 0);
    if (wrong)
        weft__ct_fail(r, WEFT_BAD_ARGUMENT, "a %s cannot be a key", weft__ct_type_name(wrong));
    return !wrong;
}

bool weft__ct_contains(ct_render *r, const ct_value *in, const ct_value *item)
{
    size_t n;
    if (in->type == CT_STRING) {
        if (item->type != CT_STRING) {
            weft__ct_fail(r, WEFT_BAD_ARGUMENT, "'in' expects a text in a text, not a %s",
                          weft__ct_type_name(item));
            return false;
        }
        weft__ct_work(r, in->n);
        return weft__ct_find(in->as.text, in->n, item->as.text, item->n) != SIZE_MAX;
    }
    if (in->type == CT_DICT)
        return weft__ct_can_be_key(r, item) && weft__ct_find_key(r, in, item) != NULL;
    const ct_value *items = weft__ct_items_of(r, in, &n);
    for (size_t i = 0; i < n && r->status == WEFT_OK; i++)
        if (weft__ct_equal(r, item, &items[i])) return true;
    return false;
}

ct_value weft__ct_dict(ct_render *r, const ct_items *list)
{
    ct_pair *pairs = weft__ct_alloc(r, list->n / 2, sizeof *pairs);
    ct_value dict = {.type = CT_DICT, .as.pairs = pairs};
    if (!pairs) return dict;
    for (size_t i = 0; i + 1 < list->n; i += 2) {
        const ct_value *same = weft__ct_find_key(r, &dict, &list->items[i]);
        if (same) {
            for (size_t k = 0; k < dict.n; k++)
                if (&pairs[k].value == same) pairs[k].value = list->items[i + 1];
        } else {
            pairs[dict.n++] = (ct_pair){list->items[i], list->items[i + 1]};
        }
    }
    return dict;
}
