/* Attributes, items and slices. x.name is a method or attribute first and a key second, x["name"]
 * the other way, as in Jinja. What an object does not have is undefined. */
#include "chat/template.h"

#include "unicode.h"

#include <string.h>

/* A key of a dict or an item of a sequence; CT_MISSING if there is none. */
static ct_value own_item(ct_render *r, const ct_value *of, const ct_value *key)
{
    if (of->type == CT_DICT) {
        const ct_value *found = weft__ct_find_key(r, of, key);
        return found ? *found : ct_missing();
    }
    const bool is_list = of->type == CT_LIST || of->type == CT_TUPLE || of->type == CT_RANGE;
    if (!ct_is_whole(key) || (!is_list && of->type != CT_STRING)) return ct_missing();
    const int64_t n = (int64_t)weft__ct_length(r, of), index = ct_whole(key);
    const int64_t at = index < 0 ? index + n : index;
    if (at < 0 || at >= n) return ct_missing();
    if (is_list) return of->as.items[at];
    const size_t begin = weft__ct_offset(of->as.text, of->n, (size_t)at);
    return ct_string(of->as.text + begin,
                     weft__tk_character_bytes((unsigned char)of->as.text[begin]));
}

/* A method, or an attribute of a loop or a namespace; CT_MISSING if there is none. */
static ct_value own_attribute(ct_render *r, const ct_value *of, const ct_value *name)
{
    if (of->type == CT_LOOP) return weft__ct_loop_attribute(r, of, name);
    if (of->type == CT_NAMESPACE) {
        for (const ct_attribute *at = *of->as.attributes; at && weft__ct_work(r, 0); at = at->next)
            if (weft__ct_equal(r, &at->name, name)) return at->value;
        return ct_missing();
    }
    const ct_function *function = weft__ct_find_method(of, name);
    if (!function) {
        if (weft__ct_is_refused_method(of, name))
            weft__ct_fail(r, WEFT_BAD_FILE, "the method '%.*s' of a %s is not supported",
                          (int)name->n, name->as.text, weft__ct_type_name(of));
        return ct_missing();
    }
    ct_method *method = weft__ct_alloc(r, 1, sizeof *method);
    if (!method) return ct_missing();
    *method = (ct_method){function, *of};
    return (ct_value){.type = CT_METHOD, .as.method = method};
}

ct_value weft__ct_attribute(ct_render *r, const ct_value *of, const ct_value *name)
{
    if (of->type == CT_UNDEFINED) return weft__ct_fail_undefined(r, of);
    ct_value found = own_attribute(r, of, name);
    if (found.type == CT_MISSING) found = own_item(r, of, name);
    return found.type == CT_MISSING ? ct_undefined(of->type, name->as.text, name->n) : found;
}

ct_value weft__ct_item(ct_render *r, const ct_value *of, const ct_value *key)
{
    if (of->type == CT_UNDEFINED) return weft__ct_fail_undefined(r, of);
    ct_value found = own_item(r, of, key);
    if (found.type == CT_MISSING && key->type == CT_STRING) found = own_attribute(r, of, key);
    if (found.type != CT_MISSING) return found;
    return key->type == CT_STRING ? ct_undefined(of->type, key->as.text, key->n)
                                  : ct_undefined(of->type, "[...]", 5);
}

/* ---- Slices ---- */

/* A bound of n items, as Python clips it. */
static bool clip(ct_render *r, const ct_value *bound, int64_t n, int64_t step, int64_t *at)
{
    if (bound->type == CT_NONE) return true;
    if (!weft__ct_index(r, bound, "a bound of a slice", at)) return false;
    if (*at < 0) *at += n;
    if (*at < 0) *at = step < 0 ? -1 : 0;
    if (*at >= n) *at = step < 0 ? n - 1 : n;
    return true;
}

static ct_value slice_text(ct_render *r, const ct_value *of, int64_t begin, int64_t count,
                           int64_t step)
{
    const size_t from = weft__ct_offset(of->as.text, of->n, (size_t)begin);
    if (step == 1) {
        const char *text = of->as.text + from;
        return ct_string(text, weft__ct_offset(text, of->n - from, (size_t)count));
    }
    ct_value all = *of;
    size_t n;
    const ct_value *items = weft__ct_items_of(r, &all, &n);
    ct_buffer b = weft__ct_buffer();
    for (int64_t i = 0, at = begin; i < count && r->status == WEFT_OK; i++, at += step)
        weft__ct_print(r, &b, &items[at]);
    return weft__ct_take(r, &b);
}

ct_value weft__ct_slice(ct_render *r, const ct_value *of, const ct_value bounds[3])
{
    const bool is_list = of->type == CT_LIST || of->type == CT_TUPLE || of->type == CT_RANGE;
    if (of->type == CT_UNDEFINED) return weft__ct_fail_undefined(r, of);
    if (!is_list && of->type != CT_STRING)
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "a %s cannot be sliced", weft__ct_type_name(of));
    const int64_t n = (int64_t)weft__ct_length(r, of);
    int64_t step = 1;
    if (bounds[2].type != CT_NONE && !weft__ct_index(r, &bounds[2], "the step of a slice", &step))
        return ct_none();
    if (step == 0) return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "the step of a slice is 0");
    if (step > n) step = n + 1;
    if (step < -n) step = -n - 1;
    int64_t begin = step < 0 ? n - 1 : 0, end = step < 0 ? -1 : n;
    if (!clip(r, &bounds[0], n, step, &begin) || !clip(r, &bounds[1], n, step, &end))
        return ct_none();
    const int64_t distance = step < 0 ? begin - end : end - begin;
    const int64_t length = step < 0 ? -step : step;
    const int64_t count = distance > 0 ? (distance + length - 1) / length : 0;
    if (of->type == CT_STRING) return slice_text(r, of, count ? begin : 0, count, step);
    if (step == 1)
        return ct_sequence(of->type, of->as.items ? of->as.items + begin : NULL, (size_t)count);
    ct_value *items = weft__ct_alloc(r, (size_t)count, sizeof *items);
    if (!items || !weft__ct_work(r, 64 * (size_t)count)) return ct_none();
    for (int64_t i = 0; i < count; i++) items[i] = of->as.items[begin + i * step];
    return ct_sequence(of->type, items, (size_t)count);
}
