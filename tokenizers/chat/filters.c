/* Filters that make a text or a number of one value. */
#include "chat/template.h"

#include "base/text.h"
#include "unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ct_value in_case(ct_render *r, const ct_value *self, ct_case to)
{
    const ct_value text = weft__ct_text(r, self);
    ct_buffer b = weft__ct_buffer();
    if (weft__ct_work(r, 8 * text.n)) weft__ct_put_case(&b, text.as.text, text.n, to);
    return weft__ct_take(r, &b);
}

static ct_value to_upper(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return in_case(r, self, CT_UPPER);
}

static ct_value to_lower(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return in_case(r, self, CT_LOWER);
}

static ct_value capitalize(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return in_case(r, self, CT_CAPITALIZE);
}

/* Words begin after white space and brackets, not as for str.title. */
static ct_value title(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value text = weft__ct_text(r, self);
    ct_buffer b = weft__ct_buffer();
    size_t at = 0, n;
    (void)args;
    if (!weft__ct_work(r, 8 * text.n)) return text;
    while (at < text.n) {
        size_t end = at;
        for (; end < text.n; end += n) {
            const uint32_t c = weft__tk_decode(text.as.text + end, &n);
            if (weft__ct_is_space(c) || (c < 0x80 && strchr("-({[<", (int)c))) break;
        }
        const size_t first =
            end > at ? weft__tk_character_bytes((unsigned char)text.as.text[at]) : 0;
        weft__ct_put_case(&b, text.as.text + at, first, CT_UPPER);
        weft__ct_put_case(&b, text.as.text + at + first, end - at - first, CT_LOWER);
        n = end < text.n ? weft__tk_character_bytes((unsigned char)text.as.text[end]) : 0;
        weft__ct_put(&b, text.as.text + end, n);
        at = end + n;
    }
    return weft__ct_take(r, &b);
}

static ct_value apply_method(ct_render *r, const ct_value *self, const char *name,
                             const ct_args *args)
{
    const ct_value text = weft__ct_text(r, self), method = ct_string(name, strlen(name));
    return weft__ct_apply(r, weft__ct_find_method(&text, &method), &text, args);
}

static ct_value trim(ct_render *r, const ct_value *self, const ct_args *args)
{
    return apply_method(r, self, "strip", args);
}

static ct_value replace(ct_render *r, const ct_value *self, const ct_args *args)
{
    ct_value passed[3] = {weft__ct_arg(args, 0, "old"), weft__ct_arg(args, 1, "new"),
                          weft__ct_arg(args, 2, "count")};
    if (passed[0].type == CT_MISSING || passed[1].type == CT_MISSING)
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "replace needs two texts");
    passed[0] = weft__ct_text(r, &passed[0]);
    passed[1] = weft__ct_text(r, &passed[1]);
    const bool all = passed[2].type == CT_MISSING || passed[2].type == CT_NONE;
    const ct_args texts = {passed, all ? 2 : 3, NULL, 0};
    return apply_method(r, self, "replace", &texts);
}

static ct_value string(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return weft__ct_text(r, self);
}

static ct_value safe(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return weft__ct_text(r, self);
}

static ct_value length(ct_render *r, const ct_value *self, const ct_args *args)
{
    (void)args;
    return ct_int((int64_t)weft__ct_length(r, self));
}

static ct_value fall_back(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value other = weft__ct_arg(args, 0, "default_value");
    (void)r;
    if (self->type != CT_UNDEFINED &&
        (!weft__ct_bool_arg(args, 1, "boolean", false) || weft__ct_truth(self)))
        return *self;
    return other.type == CT_MISSING ? ct_string("", 0) : other;
}

/* ---- Numbers ---- */

/* Python's numbers do not have the separators U+1C to U+1F around them, unless the text has
 * characters outside of ASCII. */
static bool has_separators(const ct_value *v)
{
    bool found = false, ascii = true;
    for (size_t i = 0; i < v->n; i++) {
        found |= v->as.text[i] >= 0x1C && v->as.text[i] <= 0x1F;
        ascii &= !(v->as.text[i] & 0x80);
    }
    return found && ascii;
}

/* The text of a number as Python's int() and float() accept it: without white space around it and
 * single underscores between digits; false for others. */
static bool plain_number(const ct_value *v, bool whole, char text[64])
{
    const size_t skipped = weft__ct_leading_spaces(v->as.text, v->n);
    const char *at = v->as.text + skipped;
    const size_t n = v->n - skipped - weft__ct_trailing_spaces(at, v->n - skipped);
    size_t count = 0;
    if (has_separators(v)) return false;
    bool digit = false, any = false;
    for (size_t i = 0; i < n; i++) {
        const bool is_digit = at[i] >= '0' && at[i] <= '9';
        if (at[i] == '_') {
            if (!digit || i + 1 == n || at[i + 1] < '0' || at[i + 1] > '9') return false;
            continue;
        }
        if (!is_digit && !(at[i] && strchr(whole ? "+-" : "+-.eE", at[i]))) return false;
        if (whole && !is_digit && i > 0) return false;
        if (count == 63) return false;
        text[count++] = at[i];
        digit = is_digit;
        any |= is_digit;
    }
    text[count] = 0;
    return any;
}

/* float() of a value; false if it is not a number. */
static bool to_double(const ct_value *v, double *x)
{
    static const char *const words[] = {"inf", "infinity", "nan"};
    char text[64];
    if (ct_is_number(v)) {
        *x = ct_number(v);
        return true;
    }
    if (v->type != CT_STRING) return false;
    if (plain_number(v, false, text)) {
        const bool plus = text[0] == '+' && text[1] != '-';
        return weft__text_to_double(text + plus, x);
    }
    const bool negative = v->n && v->as.text[0] == '-';
    for (int i = 0; i < 3; i++) {
        if (v->n != strlen(words[i]) + negative) continue;
        if (strncasecmp(v->as.text + negative, words[i], strlen(words[i])) != 0) continue;
        *x = i == 2 ? NAN : negative ? -INFINITY : INFINITY;
        return true;
    }
    return false;
}

static ct_value from_double(ct_render *r, double x)
{
    if (fabs(x) < 0x1p63) return ct_int((int64_t)x);
    return weft__ct_fail(r, WEFT_BAD_FILE, "an integer of more than 64 bits");
}

static ct_value to_int(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value other = weft__ct_arg(args, 0, "default");
    char text[64];
    double x;
    if (weft__ct_int_arg(r, args, 1, "base", 10) != 10)
        return weft__ct_fail(r, WEFT_BAD_FILE, "int supports the base 10 only");
    if (self->type == CT_UNDEFINED) return weft__ct_fail_undefined(r, self);
    if (ct_is_whole(self)) return ct_int(ct_whole(self));
    if (self->type == CT_STRING && plain_number(self, true, text)) {
        if (strlen(text) < 19) return ct_int(strtoll(text, NULL, 10));
        return weft__ct_fail(r, WEFT_BAD_FILE, "an integer of more than 18 digits");
    }
    if (self->type == CT_FLOAT && isinf(self->as.number)) return from_double(r, self->as.number);
    if (to_double(self, &x) && isfinite(x)) return from_double(r, x);
    return other.type == CT_MISSING ? ct_int(0) : other;
}

static ct_value to_float(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value other = weft__ct_arg(args, 0, "default");
    double x;
    if (self->type == CT_UNDEFINED) return weft__ct_fail_undefined(r, self);
    if (to_double(self, &x)) return ct_float(x);
    return other.type == CT_MISSING ? ct_float(0) : other;
}

static ct_value absolute(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value zero = ct_int(0);
    (void)args;
    if (self->type == CT_UNDEFINED) return weft__ct_fail_undefined(r, self);
    if (!ct_is_number(self))
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "abs expects a number, not a %s",
                             weft__ct_type_name(self));
    if (self->type == CT_FLOAT) return ct_float(fabs(self->as.number));
    const ct_value whole = ct_int(ct_whole(self));
    return whole.as.whole < 0 ? weft__ct_binary(r, '-', &zero, &whole) : whole;
}

/* ---- Layout ---- */

/* What precedes each line: a text, or a number of spaces. */
static ct_value indention(ct_render *r, const ct_value *width, const char *what)
{
    const ct_value space = ct_string(" ", 1);
    int64_t n = 0;
    if (width->type == CT_STRING) return *width;
    if (!weft__ct_index(r, width, what, &n)) return ct_string("", 0);
    const ct_value count = ct_int(n);
    return weft__ct_binary(r, '*', &space, &count);
}

static ct_value indent(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value text = *self;
    ct_value width = weft__ct_arg(args, 0, "width");
    if (text.type == CT_UNDEFINED) return weft__ct_fail_undefined(r, self);
    if (text.type != CT_STRING)
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "indent expects a text, not a %s",
                             weft__ct_type_name(self));
    if (width.type == CT_MISSING) width = ct_int(4);
    const ct_value space = indention(r, &width, "the width");
    const bool first = weft__ct_bool_arg(args, 1, "first", false);
    const bool blank = weft__ct_bool_arg(args, 2, "blank", false);
    ct_buffer b = weft__ct_buffer();
    if (!weft__ct_work(r, text.n)) return text;
    for (size_t at = 0, line = 0; at <= text.n && weft__ct_work(r, space.n); line++) {
        size_t end = at;
        while (end < text.n && !weft__ct_line_end(text.as.text + end, text.n - end)) end++;
        if (line) weft__ct_put_text(&b, "\n");
        if (line ? blank || end > at : first) weft__ct_put(&b, space.as.text, space.n);
        weft__ct_put(&b, text.as.text + at, end - at);
        if (end == text.n) break;
        at = end + weft__ct_line_end(text.as.text + end, text.n - end);
    }
    return weft__ct_take(r, &b);
}

static ct_value to_json(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value width = weft__ct_arg(args, 1, "indent"),
                   separators = weft__ct_arg(args, 2, "separators");
    ct_json_style style = {.item = ", ", .key = ": "};
    style.ascii = weft__ct_bool_arg(args, 0, "ensure_ascii", false);
    style.sort = weft__ct_bool_arg(args, 3, "sort_keys", false);
    if (width.type != CT_MISSING && width.type != CT_NONE) {
        const ct_value space = indention(r, &width, "the indent");
        style.indent = weft__ct_zero_ended(r, &space);
        style.item = ",";
    }
    if (separators.type != CT_MISSING && separators.type != CT_NONE) {
        size_t n;
        const ct_value *items = weft__ct_items_of(r, &separators, &n);
        if (n != 2 || items[0].type != CT_STRING || items[1].type != CT_STRING)
            return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "'separators' must be two texts");
        style.item = weft__ct_zero_ended(r, &items[0]);
        style.key = weft__ct_zero_ended(r, &items[1]);
    }
    ct_buffer b = weft__ct_buffer();
    if (r->status == WEFT_OK) weft__ct_print_json(r, &b, self, &style);
    return weft__ct_take(r, &b);
}

static ct_value format(ct_render *r, const ct_value *self, const ct_args *args)
{
    const ct_value text = weft__ct_text(r, self);
    const ct_value named = {.type = CT_DICT, .n = args->n_named, .as.pairs = args->named};
    const ct_value values = ct_sequence(CT_TUPLE, args->items, args->n);
    return weft__ct_format(r, &text, args->n_named ? &named : &values);
}

const ct_function *weft__ct_find_text_filter(const ct_value *name)
{
    static const ct_function filters[] = {
        {"abs", "", absolute},
        {"capitalize", "", capitalize},
        {"count", "", length},
        {"d", "default_value boolean", fall_back},
        {"default", "default_value boolean", fall_back},
        {"float", "default", to_float},
        {"format", "*", format},
        {"indent", "width first blank", indent},
        {"int", "default base", to_int},
        {"length", "", length},
        {"lower", "", to_lower},
        {"replace", "old new count", replace},
        {"safe", "", safe},
        {"string", "", string},
        {"title", "", title},
        {"tojson", "ensure_ascii indent separators sort_keys", to_json},
        {"trim", "chars", trim},
        {"upper", "", to_upper},
    };
    return weft__ct_find_function(filters, sizeof filters / sizeof *filters, name);
}
