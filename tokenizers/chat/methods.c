/* Methods of texts that return a text, and of dicts and lists; the names that are refused. */
#include "chat/methods.h"

#include "unicode.h"

#include <string.h>

static ct_value in_case(ct_render *r, const ct_value *self, ct_case to)
{
    ct_buffer b = weft__ct_buffer();
    if (weft__ct_work(r, 8 * self->n)) weft__ct_put_case(&b, self->as.text, self->n, to);
    return weft__ct_take(r, &b);
}

static ct_value upper(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return in_case(r, self, CT_UPPER);
}

static ct_value lower(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return in_case(r, self, CT_LOWER);
}

static ct_value title(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return in_case(r, self, CT_TITLE);
}

static ct_value capitalize(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return in_case(r, self, CT_CAPITALIZE);
}

/* ---- Ends ---- */

/* Whether strip drops a character: white space, or one of `set`. */
static bool is_stripped(const ct_value *set, const char *character, size_t n)
{
    size_t bytes;
    if (set->type != CT_STRING) return weft__ct_is_space(weft__tk_decode(character, &bytes));
    return weft__ct_find(set->as.text, set->n, character, n) != SIZE_MAX;
}

static ct_value strip_ends(ct_render *r, const ct_value *self, const ct_args *args, bool left,
                           bool right)
{
    const ct_value passed = weft__ct_arg(args, 0, "chars");
    const ct_value set = passed.type == CT_MISSING || passed.type == CT_NONE
                             ? ct_none()
                             : weft__ct_text_arg(r, args, 0, "chars", NULL);
    const char *text = self->as.text;
    size_t begin = 0, end = self->n, n;
    while (left && begin < end && weft__ct_work(r, set.n)) {
        n = weft__tk_character_bytes((unsigned char)text[begin]);
        if (!is_stripped(&set, text + begin, n)) break;
        begin += n;
    }
    while (right && begin < end && weft__ct_work(r, set.n)) {
        n = weft__ct_last_character(text + begin, end - begin);
        if (!is_stripped(&set, text + end - n, n)) break;
        end -= n;
    }
    return ct_string(text + begin, end - begin);
}

static ct_value strip(ct_render *r, const ct_value *self, const ct_args *args)
{
    return strip_ends(r, self, args, true, true);
}

static ct_value lstrip(ct_render *r, const ct_value *self, const ct_args *args)
{
    return strip_ends(r, self, args, true, false);
}

static ct_value rstrip(ct_render *r, const ct_value *self, const ct_args *args)
{
    return strip_ends(r, self, args, false, true);
}

static bool begins(const ct_value *text, const ct_value *part)
{
    return part->n <= text->n && !memcmp(text->as.text, part->as.text, part->n);
}

static bool ends(const ct_value *text, const ct_value *part)
{
    return part->n <= text->n && !memcmp(text->as.text + text->n - part->n, part->as.text, part->n);
}

/* Whether the text begins, or ends, with the argument or with one of a tuple. */
static ct_value has_end(ct_render *r, const ct_value *self, const ct_args *args,
                        bool (*has)(const ct_value *text, const ct_value *part))
{
    const ct_value passed = weft__ct_arg(args, 0, "");
    const ct_value *parts = passed.type == CT_TUPLE ? passed.as.items : &passed;
    const size_t n = passed.type == CT_TUPLE ? passed.n : 1;
    for (size_t i = 0; i < n; i++) {
        if (parts[i].type != CT_STRING)
            return weft__ct_fail(r, WEFT_BAD_ARGUMENT,
                                 "startswith and endswith expect a text, not a %s",
                                 weft__ct_type_name(&parts[i]));
        if (weft__ct_work(r, parts[i].n) && has(self, &parts[i])) return ct_bool(true);
    }
    return ct_bool(false);
}

static ct_value startswith(ct_render *r, const ct_value *self, const ct_args *args)
{
    return has_end(r, self, args, begins);
}

static ct_value endswith(ct_render *r, const ct_value *self, const ct_args *args)
{
    return has_end(r, self, args, ends);
}

static ct_value removeprefix(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value part = weft__ct_text_arg(r, args, 0, "prefix", NULL);
    return begins(self, &part) ? ct_string(self->as.text + part.n, self->n - part.n) : *self;
}

static ct_value removesuffix(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value part = weft__ct_text_arg(r, args, 0, "suffix", NULL);
    return ends(self, &part) ? ct_string(self->as.text, self->n - part.n) : *self;
}

/* ---- Parts ---- */

/* Every part becomes another; an empty one is before every character and at the end. */
static ct_value replace(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value old = weft__ct_text_arg(r, args, 0, "old", NULL),
                   new = weft__ct_text_arg(r, args, 1, "new", NULL);
    int64_t left = weft__ct_int_arg(r, args, 2, "count", -1);
    ct_buffer b = weft__ct_buffer();
    size_t at = 0;
    weft__ct_work(r, self->n);
    for (; left != 0 && weft__ct_work(r, 0); left--) {
        const size_t found = weft__ct_find(self->as.text + at, self->n - at, old.as.text, old.n);
        if (found == SIZE_MAX) break;
        weft__ct_put(&b, self->as.text + at, found);
        weft__ct_put(&b, new.as.text, new.n);
        at += found + old.n;
        if (old.n) continue;
        if (at == self->n) break;
        const size_t next = weft__tk_character_bytes((unsigned char)self->as.text[at]);
        weft__ct_put(&b, self->as.text + at, next);
        at += next;
    }
    weft__ct_put(&b, self->as.text + at, self->n - at);
    return weft__ct_take(r, &b);
}

static ct_value join(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value of = weft__ct_arg(args, 0, "");
    ct_buffer b = weft__ct_buffer();
    size_t n;
    const ct_value *items = weft__ct_items_of(r, &of, &n);
    for (size_t i = 0; i < n && r->status == WEFT_OK; i++) {
        if (items[i].type != CT_STRING)
            weft__ct_fail(r, WEFT_BAD_ARGUMENT, "join expects texts, not a %s",
                          weft__ct_type_name(&items[i]));
        if (i) weft__ct_print(r, &b, self);
        weft__ct_print(r, &b, &items[i]);
    }
    return weft__ct_take(r, &b);
}

/* Spaces, or another character, around a text up to a width; `left` of them in 2 are before it. */
static ct_value pad(ct_render *r, const ct_value *self, const ct_args *args, int left)
{
    const int64_t width = weft__ct_int_arg(r, args, 0, "width", 0);
    const ct_value fill = weft__ct_text_arg(r, args, 1, "fillchar", " ");
    const int64_t length = (int64_t)weft__ct_length(r, self);
    const int64_t n = width > length ? width - length : 0;
    const int64_t before = left == 1 ? n / 2 + (n & width & 1) : left ? n : 0;
    ct_buffer b = weft__ct_buffer();
    if (weft__ct_length(r, &fill) != 1)
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "the fill is not one character");
    for (int64_t i = 0; i < before && !b.failed; i++) weft__ct_print(r, &b, &fill);
    weft__ct_print(r, &b, self);
    for (int64_t i = before; i < n && !b.failed; i++) weft__ct_print(r, &b, &fill);
    return weft__ct_take(r, &b);
}

static ct_value center(ct_render *r, const ct_value *self, const ct_args *args)
{
    return pad(r, self, args, 1);
}

static ct_value ljust(ct_render *r, const ct_value *self, const ct_args *args)
{
    return pad(r, self, args, 0);
}

static ct_value rjust(ct_render *r, const ct_value *self, const ct_args *args)
{
    return pad(r, self, args, 2);
}

/* ---- Dicts and lists ---- */

static ct_value sides(ct_render *r, const ct_value *self, ct_type type)
{
    ct_value *items = weft__ct_alloc(r, self->n, sizeof *items);
    ct_value *both = type == CT_ITEMS ? weft__ct_alloc(r, self->n, 2 * sizeof *both) : NULL;
    if (!items || !weft__ct_work(r, 64 * self->n)) return ct_none();
    if (type == CT_ITEMS && !both) return ct_none();
    for (size_t i = 0; i < self->n; i++) {
        const ct_pair *pair = &self->as.pairs[i];
        items[i] = type == CT_KEYS ? pair->key : pair->value;
        if (type != CT_ITEMS) continue;
        both[2 * i] = pair->key;
        both[2 * i + 1] = pair->value;
        items[i] = ct_sequence(CT_TUPLE, both + 2 * i, 2);
    }
    return ct_sequence(type, items, self->n);
}

static ct_value keys(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return sides(r, self, CT_KEYS);
}

static ct_value values(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return sides(r, self, CT_VALUES);
}

static ct_value items(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return sides(r, self, CT_ITEMS);
}

static ct_value get(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value key = weft__ct_arg(args, 0, "");
    if (key.type == CT_MISSING) return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "get needs a key");
    if (!weft__ct_can_be_key(r, &key)) return ct_none();
    const ct_value *found = weft__ct_find_key(r, self, &key);
    const ct_value other = weft__ct_arg(args, 1, "");
    return found ? *found : other.type == CT_MISSING ? ct_none() : other;
}

static ct_value copy(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)r, (void)args;
    return *self;
}

static ct_value count_item(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value item = weft__ct_arg(args, 0, "");
    int64_t n = 0;
    for (size_t i = 0; i < self->n && r->status == WEFT_OK; i++)
        n += weft__ct_equal(r, &self->as.items[i], &item);
    return ct_int(n);
}

static ct_value index_of_item(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value item = weft__ct_arg(args, 0, "");
    for (size_t i = 0; i < self->n && r->status == WEFT_OK; i++)
        if (weft__ct_equal(r, &self->as.items[i], &item)) return ct_int((int64_t)i);
    return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "index: the list does not have the value");
}

/* ---- Names ---- */

static const ct_function of_text[] = {
    {"capitalize", "", capitalize},
    {"center", "width fillchar", center},
    {"endswith", "suffix", endswith},
    {"join", "iterable", join},
    {"ljust", "width fillchar", ljust},
    {"lower", "", lower},
    {"lstrip", "chars", lstrip},
    {"removeprefix", "prefix", removeprefix},
    {"removesuffix", "suffix", removesuffix},
    {"replace", "old new count", replace},
    {"rjust", "width fillchar", rjust},
    {"rstrip", "chars", rstrip},
    {"startswith", "prefix", startswith},
    {"strip", "chars", strip},
    {"title", "", title},
    {"upper", "", upper},
};
static const ct_function of_dict[] = {
    {"copy", "", copy}, {"get", "key default", get}, {"items", "", items},
    {"keys", "", keys}, {"values", "", values},
};
static const ct_function of_list[] = {
    {"copy", "", copy}, {"count", "value", count_item}, {"index", "value", index_of_item}};

#define COUNT(list) (sizeof(list) / sizeof *(list))

const ct_function *weft__ct_find_method(const ct_value *of, const ct_value *name)
{
    const ct_function *found;
    switch (of->type) {
    case CT_STRING:
        found = weft__ct_find_function(of_text, COUNT(of_text), name);
        return found ? found : weft__ct_find_searching_method(name);
    case CT_DICT:
        return weft__ct_find_function(of_dict, COUNT(of_dict), name);
    case CT_LIST:
        return weft__ct_find_function(of_list, COUNT(of_list), name);
    case CT_TUPLE:
        return weft__ct_find_function(of_list + 1, COUNT(of_list) - 1, name);
    default:
        return NULL;
    }
}

bool weft__ct_is_refused_method(const ct_value *of, const ct_value *name)
{
    static const char texts[] =
        " casefold encode expandtabs format_map isascii isdecimal isidentifier isprintable istitle "
        "maketrans swapcase translate ";
    static const char dicts[] = " clear fromkeys pop popitem setdefault update ";
    static const char lists[] = " append clear extend insert pop remove reverse sort ";
    static const char numbers[] = " as_integer_ratio bit_count bit_length conjugate denominator "
                                  "from_bytes fromhex hex imag is_integer numerator real to_bytes ";
    const char *names = of->type == CT_STRING ? texts
                        : of->type == CT_DICT ? dicts
                        : of->type == CT_LIST ? lists
                        : ct_is_number(of)    ? numbers
                                              : "";
    for (const char *at = names; *at && (at = strchr(at, ' ')) && at[1]; at++) {
        const size_t n = strcspn(at + 1, " ");
        if (n == name->n && !memcmp(at + 1, name->as.text, n)) return true;
    }
    return false;
}
