/* Methods of texts that search, split and classify them. */
#include "chat/methods.h"

#include "unicode.h"

#include <string.h>

/* ---- Splitting ---- */

static ct_value part_of(const ct_value *text, size_t begin, size_t end)
{
    return ct_string(text->as.text + begin, end - begin);
}

static void reverse_items(ct_items *list)
{
    for (size_t i = 0; i < list->n / 2; i++) {
        const ct_value item = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = item;
    }
}

/* Parts between white space, of which `left` may be split off. */
static void split_spaces(ct_render *r, const ct_value *text, int64_t left, ct_items *found)
{
    const char *at = text->as.text;
    size_t begin = weft__ct_leading_spaces(at, text->n), n;
    while (begin < text->n && left-- != 0 && weft__ct_work(r, 0)) {
        size_t end = begin;
        for (; end < text->n; end += n)
            if (weft__ct_is_space(weft__tk_decode(at + end, &n))) break;
        weft__ct_add(r, found, part_of(text, begin, end));
        begin = end + weft__ct_leading_spaces(at + end, text->n - end);
    }
    if (begin < text->n && r->status == WEFT_OK)
        weft__ct_add(r, found, part_of(text, begin, text->n));
}

static void rsplit_spaces(ct_render *r, const ct_value *text, int64_t left, ct_items *found)
{
    const char *at = text->as.text;
    size_t end = text->n - weft__ct_trailing_spaces(at, text->n), n;
    while (end > 0 && left-- != 0 && weft__ct_work(r, 0)) {
        size_t begin = end;
        while (begin > 0) {
            const size_t last = weft__ct_last_character(at, begin);
            if (weft__ct_is_space(weft__tk_decode(at + begin - last, &n))) break;
            begin -= last;
        }
        weft__ct_add(r, found, part_of(text, begin, end));
        end = begin - weft__ct_trailing_spaces(at, begin);
    }
    if (end > 0) weft__ct_add(r, found, part_of(text, 0, end));
    reverse_items(found);
}

/* Where the last `part` of bytes [0, end) of a text begins; SIZE_MAX if there is none. */
static size_t find_last(ct_render *r, const ct_value *text, size_t end, const ct_value *part)
{
    if (part->n > end || !weft__ct_work(r, 0)) return SIZE_MAX;
    for (size_t at = end - part->n + 1; at-- > 0;) {
        if (at % 64 == 0 && !weft__ct_work(r, part->n)) break;
        if (!memcmp(text->as.text + at, part->as.text, part->n)) return at;
    }
    return SIZE_MAX;
}

static void split_parts(ct_render *r, const ct_value *text, const ct_value *by, int64_t left,
                        ct_items *found)
{
    size_t begin = 0;
    while (left-- != 0 && weft__ct_work(r, 0)) {
        const size_t next =
            weft__ct_find(text->as.text + begin, text->n - begin, by->as.text, by->n);
        if (next == SIZE_MAX) break;
        weft__ct_add(r, found, part_of(text, begin, begin + next));
        begin += next + by->n;
    }
    weft__ct_add(r, found, part_of(text, begin, text->n));
}

static void rsplit_parts(ct_render *r, const ct_value *text, const ct_value *by, int64_t left,
                         ct_items *found)
{
    size_t end = text->n;
    while (left-- != 0 && weft__ct_work(r, 0)) {
        const size_t last = find_last(r, text, end, by);
        if (last == SIZE_MAX) break;
        weft__ct_add(r, found, part_of(text, last + by->n, end));
        end = last;
    }
    weft__ct_add(r, found, part_of(text, 0, end));
    reverse_items(found);
}

static ct_value split_with(ct_render *r, const ct_value *self, const ct_args *args, bool from_right)
{
    const ct_value passed = weft__ct_arg(args, 0, "sep");
    const int64_t max = weft__ct_int_arg(r, args, 1, "maxsplit", -1);
    ct_items found = {NULL, 0, 0};
    weft__ct_work(r, self->n);
    if (passed.type == CT_MISSING || passed.type == CT_NONE) {
        (from_right ? rsplit_spaces : split_spaces)(r, self, max, &found);
        return ct_sequence(CT_LIST, found.items, found.n);
    }
    const ct_value by = weft__ct_text_arg(r, args, 0, "sep", NULL);
    if (r->status == WEFT_OK && !by.n)
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "split needs a text that is not empty");
    if (r->status == WEFT_OK) (from_right ? rsplit_parts : split_parts)(r, self, &by, max, &found);
    return ct_sequence(CT_LIST, found.items, found.n);
}

static ct_value split(ct_render *r, const ct_value *self, const ct_args *args)
{
    return split_with(r, self, args, false);
}

static ct_value rsplit(ct_render *r, const ct_value *self, const ct_args *args)
{
    return split_with(r, self, args, true);
}

static ct_value splitlines(ct_render *r, const ct_value *self, const ct_args *args)
{
    const bool keeps = weft__ct_bool_arg(args, 0, "keepends", false);
    ct_items found = {NULL, 0, 0};
    size_t begin = 0, n;
    for (size_t end = 0; end < self->n && weft__ct_work(r, 0);) {
        n = weft__ct_line_end(self->as.text + end, self->n - end);
        if (n) {
            weft__ct_add(r, &found, part_of(self, begin, keeps ? end + n : end));
            begin = end + n;
        }
        end += n ? n : 1;
    }
    if (begin < self->n) weft__ct_add(r, &found, part_of(self, begin, self->n));
    return ct_sequence(CT_LIST, found.items, found.n);
}

/* ---- Searching ---- */

/* The byte where the argument is, from the left or the right; SIZE_MAX if it is not there. */
static size_t search(ct_render *r, const ct_value *self, const ct_args *args, bool from_right)
{
    const ct_value part = weft__ct_text_arg(r, args, 0, "sub", NULL);
    if (!weft__ct_work(r, self->n)) return SIZE_MAX;
    return from_right ? find_last(r, self, self->n, &part)
                      : weft__ct_find(self->as.text, self->n, part.as.text, part.n);
}

static ct_value find_with(ct_render *r, const ct_value *self, const ct_args *args, bool from_right,
                          bool needed)
{
    const size_t at = search(r, self, args, from_right);
    if (at != SIZE_MAX) return ct_int((int64_t)weft__ct_characters(self->as.text, at));
    if (needed) return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "index: the text was not found");
    return ct_int(-1);
}

static ct_value find(ct_render *r, const ct_value *self, const ct_args *args)
{
    return find_with(r, self, args, false, false);
}

static ct_value rfind(ct_render *r, const ct_value *self, const ct_args *args)
{
    return find_with(r, self, args, true, false);
}

static ct_value index_of(ct_render *r, const ct_value *self, const ct_args *args)
{
    return find_with(r, self, args, false, true);
}

static ct_value rindex_of(ct_render *r, const ct_value *self, const ct_args *args)
{
    return find_with(r, self, args, true, true);
}

static ct_value count(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value part = weft__ct_text_arg(r, args, 0, "sub", NULL);
    int64_t n = 0;
    if (!weft__ct_work(r, self->n)) return ct_int(0);
    if (!part.n) return ct_int((int64_t)weft__ct_characters(self->as.text, self->n) + 1);
    for (size_t at = 0; weft__ct_work(r, 0); n++) {
        const size_t next = weft__ct_find(self->as.text + at, self->n - at, part.as.text, part.n);
        if (next == SIZE_MAX) break;
        at += next + part.n;
    }
    return ct_int(n);
}

static ct_value partition_with(ct_render *r, const ct_value *self, const ct_args *args,
                               bool from_right)
{
    const ct_value by = weft__ct_text_arg(r, args, 0, "sep", NULL), none = ct_string("", 0);
    const size_t at = search(r, self, args, from_right);
    ct_value *parts = weft__ct_alloc(r, 3, sizeof *parts);
    if (!parts) return ct_none();
    if (!by.n) return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "partition needs a text");
    if (at == SIZE_MAX) {
        parts[0] = from_right ? none : *self;
        parts[1] = none;
        parts[2] = from_right ? *self : none;
    } else {
        parts[0] = part_of(self, 0, at);
        parts[1] = by;
        parts[2] = part_of(self, at + by.n, self->n);
    }
    return ct_sequence(CT_TUPLE, parts, 3);
}

static ct_value partition(ct_render *r, const ct_value *self, const ct_args *args)
{
    return partition_with(r, self, args, false);
}

static ct_value rpartition(ct_render *r, const ct_value *self, const ct_args *args)
{
    return partition_with(r, self, args, true);
}

/* ---- Classes of characters ---- */

static bool is_letter_or_number(uint32_t c)
{
    return weft__tk_is_letter(c) || weft__tk_is_number(c);
}

static ct_value has_only(ct_render *r, const ct_value *self, bool (*is)(uint32_t c))
{
    if (!weft__ct_work(r, self->n)) return ct_none();
    for (size_t at = 0, n; at < self->n; at += n)
        if (!is(weft__tk_decode(self->as.text + at, &n))) return ct_bool(false);
    return ct_bool(self->n > 0);
}

static ct_value isalpha_text(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return has_only(r, self, weft__tk_is_letter);
}

static ct_value isalnum_text(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return has_only(r, self, is_letter_or_number);
}

static ct_value isdigit_text(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return has_only(r, self, weft__ct_is_digit);
}

static ct_value isnumeric_text(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return has_only(r, self, weft__tk_is_number);
}

static ct_value isspace_text(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return has_only(r, self, weft__ct_is_space);
}

static ct_value islower_text(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return ct_bool(weft__ct_work(r, self->n) && weft__ct_is_case(self->as.text, self->n, CT_LOWER));
}

static ct_value isupper_text(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return ct_bool(weft__ct_work(r, self->n) && weft__ct_is_case(self->as.text, self->n, CT_UPPER));
}

const ct_function *weft__ct_find_searching_method(const ct_value *name)
{
    static const ct_function methods[] = {
        {"count", "sub", count},
        {"find", "sub", find},
        {"format", "*", weft__ct_format_method},
        {"index", "sub", index_of},
        {"isalnum", "", isalnum_text},
        {"isalpha", "", isalpha_text},
        {"isdigit", "", isdigit_text},
        {"islower", "", islower_text},
        {"isnumeric", "", isnumeric_text},
        {"isspace", "", isspace_text},
        {"isupper", "", isupper_text},
        {"partition", "sep", partition},
        {"rfind", "sub", rfind},
        {"rindex", "sub", rindex_of},
        {"rpartition", "sep", rpartition},
        {"rsplit", "sep maxsplit", rsplit},
        {"split", "sep maxsplit", split},
        {"splitlines", "keepends", splitlines},
    };
    return weft__ct_find_function(methods, sizeof methods / sizeof *methods, name);
}
