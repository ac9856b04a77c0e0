/* Texts made of a format and values: text % values, and text.format(...) without specifications. */
#include "chat/methods.h"

#include "base/text.h"
#include "unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- text % values ---- */

/* A conversion such as %-8.3f. */
typedef struct conversion {
    char flags[8];
    int width, precision; /* precision -1: none */
    char kind;
} conversion;

#define MAX_WIDTH 1000

/* Reads a number of at most MAX_WIDTH; -1 for a larger one. */
static int read_width(const char **at, const char *end)
{
    int n = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at)
        n = n < 0 || 10 * n + (**at - '0') > MAX_WIDTH ? -1 : 10 * n + (**at - '0');
    return n;
}

static bool read_conversion(const char **at, const char *end, conversion *c)
{
    size_t n = 0;
    *c = (conversion){.precision = -1};
    for (; *at < end && strchr("-+ #0", **at) && n + 1 < sizeof c->flags; ++*at)
        c->flags[n++] = **at;
    c->width = read_width(at, end);
    if (*at < end && **at == '.') {
        ++*at;
        c->precision = read_width(at, end);
        if (c->precision < 0) return false;
    }
    if (*at == end || c->width < 0) return false;
    c->kind = *(*at)++;
    return true;
}

/* Writes a text of at most `precision` characters in `width` of them. */
static void put_text(ct_render *r, ct_buffer *b, const conversion *c, const ct_value *text)
{
    ct_value v = *text;
    if (c->precision >= 0) v.n = weft__ct_offset(v.as.text, v.n, (size_t)c->precision);
    const int length = (int)weft__ct_length(r, &v),
              more = c->width > length ? c->width - length : 0;
    const bool left = strchr(c->flags, '-');
    for (int i = 0; i < more && !left; i++) weft__ct_put_text(b, " ");
    weft__ct_print(r, b, &v);
    for (int i = 0; i < more && left; i++) weft__ct_put_text(b, " ");
}

static void put_number(ct_render *r, ct_buffer *b, const conversion *c, const ct_value *v)
{
    char format[64], text[2 * MAX_WIDTH + 400];
    const bool whole = strchr("diuxXo", c->kind);
    if (v->type == CT_UNDEFINED) {
        weft__ct_fail_undefined(r, v);
    } else if (!ct_is_number(v) || (v->type == CT_FLOAT && strchr("xXo", c->kind))) {
        weft__ct_fail(r, WEFT_BAD_ARGUMENT, "%%%c expects a number, not a %s", c->kind,
                      weft__ct_type_name(v));
    } else if (whole) {
        const double x = ct_number(v);
        if (!(fabs(x) < 0x1p63) || (strchr("xXo", c->kind) && x < 0)) {
            weft__ct_fail(r, WEFT_BAD_FILE, "%%%c of this number", c->kind);
            return;
        }
        const long long n = v->type == CT_FLOAT ? (long long)x : (long long)ct_whole(v);
        snprintf(format, sizeof format, "%%%s*.*ll%c", c->flags, c->kind == 'u' ? 'd' : c->kind);
        snprintf(text, sizeof text, format, c->width, c->precision, n);
        weft__ct_put_text(b, text);
    } else {
        snprintf(format, sizeof format, "%%%s*.*%c", c->flags, c->kind);
        weft__text_format(text, sizeof text, format, c->width, c->precision, ct_number(v));
        weft__ct_put_text(b, text);
    }
}

static void put_value(ct_render *r, ct_buffer *b, const conversion *c, const ct_value *v)
{
    if (c->kind == 's' || c->kind == 'r') {
        ct_buffer own = weft__ct_buffer();
        (c->kind == 's' ? weft__ct_print : weft__ct_print_repr)(r, &own, v);
        const ct_value text = weft__ct_take(r, &own);
        if (r->status == WEFT_OK) put_text(r, b, c, &text);
    } else if (strchr("diuxXofFeEgG", c->kind)) {
        put_number(r, b, c, v);
    } else {
        weft__ct_fail(r, WEFT_BAD_FILE, "the format %%%c is not supported",
                      c->kind & 0x80 ? '?' : c->kind);
    }
}

/* The value of %(name)s, whose name begins at *at. */
static ct_value named_value(ct_render *r, const ct_value *values, const char **at, const char *end)
{
    const char *close = memchr(*at, ')', (size_t)(end - *at));
    if (!close || values->type != CT_DICT)
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "a format with names needs a dict");
    const ct_value name = ct_string(*at, (size_t)(close - *at));
    const ct_value *found = weft__ct_find_key(r, values, &name);
    *at = close + 1;
    if (found) return *found;
    return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "the format has an unknown name");
}

ct_value weft__ct_format(ct_render *r, const ct_value *text, const ct_value *values)
{
    const ct_value *items = values->type == CT_TUPLE ? values->as.items : values;
    const size_t n = values->type == CT_TUPLE ? values->n : 1;
    const char *at = text->as.text, *end = at + text->n;
    ct_buffer b = weft__ct_buffer();
    size_t used = 0;
    bool named = false;
    while (at < end && weft__ct_work(r, 0)) {
        const char *percent = memchr(at, '%', (size_t)(end - at));
        weft__ct_put(&b, at, (size_t)((percent ? percent : end) - at));
        if (!percent) break;
        at = percent + 1;
        const bool has_name = at < end && *at == '(';
        ct_value v = ct_missing();
        conversion c;
        if (has_name) {
            at++;
            v = named_value(r, values, &at, end);
            named = true;
        }
        if (!read_conversion(&at, end, &c)) {
            weft__ct_fail(r, WEFT_BAD_ARGUMENT, "an incomplete format");
        } else if (c.kind == '%') {
            weft__ct_put_text(&b, "%");
        } else if (has_name || used < n) {
            if (!has_name) v = items[used++];
            put_value(r, &b, &c, &v);
        } else {
            weft__ct_fail(r, WEFT_BAD_ARGUMENT, "a format with more than %zu values", n);
        }
    }
    if (r->status == WEFT_OK && !named && used < n && values->type != CT_DICT &&
        values->type != CT_LIST)
        weft__ct_fail(r, WEFT_BAD_ARGUMENT, "a format with fewer than %zu values", n);
    return weft__ct_take(r, &b);
}

/* ---- text.format(...) ---- */

/* The value of a field: "" the next one, a position, or a name. */
static ct_value field(ct_render *r, const ct_value *name, const ct_args *args, size_t *next)
{
    size_t at = 0;
    for (size_t i = 0; i < name->n; i++)
        if (strchr("!:.[", name->as.text[i]))
            return weft__ct_fail(r, WEFT_BAD_FILE, "format supports plain fields only");
    if (name->n && (name->as.text[0] < '0' || name->as.text[0] > '9')) {
        for (size_t i = 0; i < args->n_named; i++)
            if (weft__ct_equal(r, &args->named[i].key, name)) return args->named[i].value;
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "format has no argument '%.*s'", (int)name->n,
                             name->as.text);
    }
    for (size_t i = 0; i < name->n && at < args->n; i++)
        at = 10 * at + (size_t)(name->as.text[i] - '0');
    if (!name->n) at = (*next)++;
    if (at < args->n) return args->items[at];
    return weft__ct_fail(r, WEFT_BAD_ARGUMENT, "format has too few arguments");
}

ct_value weft__ct_format_method(ct_render *r, const ct_value *self, const ct_args *args)
{
    const char *at = self->as.text, *end = at + self->n;
    ct_buffer b = weft__ct_buffer();
    size_t next = 0;
    for (; at < end && weft__ct_work(r, 0); at++) {
        const char *close = *at == '{' ? memchr(at, '}', (size_t)(end - at)) : NULL;
        if ((*at == '{' || *at == '}') && at + 1 < end && at[1] == *at) {
            weft__ct_put(&b, at++, 1);
        } else if (*at == '}' || (*at == '{' && !close)) {
            weft__ct_fail(r, WEFT_BAD_ARGUMENT, "format has a single bracket");
        } else if (*at == '{') {
            const ct_value name = ct_string(at + 1, (size_t)(close - at - 1));
            const ct_value v = field(r, &name, args, &next);
            weft__ct_print(r, &b, &v);
            at = close;
        } else {
            weft__ct_put(&b, at, 1);
        }
    }
    return weft__ct_take(r, &b);
}
