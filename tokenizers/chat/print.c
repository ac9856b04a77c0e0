/* Values as Python prints them: str() and repr(). */
#include "chat/value.h"

#include "base/text.h"
#include "unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LEVELS 200

static void print_repr(ct_render *r, ct_buffer *b, const ct_value *v, int level);

/* The shortest digits that read back as the number: with an exponent below 1e-4 and from 1e16 on. */
static void print_float(ct_buffer *b, double x)
{
    char shortest[TEXT_NUMBER_BYTES], digits[TEXT_NUMBER_BYTES], text[64];
    int n = 0, point = 0, exponent = 0;
    bool after_point = false;
    if (isnan(x) || isinf(x)) {
        weft__ct_put_text(b, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    weft__text_from_double(fabs(x), shortest);
    for (const char *at = shortest; *at; at++) {
        if (*at == 'e') {
            exponent = (int)strtol(at + 1, NULL, 10);
            break;
        }
        if (*at == '.') {
            after_point = true;
            continue;
        }
        point += !after_point && (n || *at != '0');
        if (n || *at != '0')
            digits[n++] = *at;
        else
            point -= after_point; /* a zero after the point */
    }
    while (n > 1 && digits[n - 1] == '0') n--;
    if (!n) digits[n++] = '0', point = 1;
    point += exponent;
    if (signbit(x)) weft__ct_put_text(b, "-");
    if (point > 16 || point < -3) {
        weft__ct_put(b, digits, 1);
        if (n > 1) weft__ct_put_text(b, ".");
        weft__ct_put(b, digits + 1, (size_t)n - 1);
        snprintf(text, sizeof text, "e%c%02d", point - 1 < 0 ? '-' : '+', abs(point - 1));
        weft__ct_put_text(b, text);
        return;
    }
    if (point <= 0) weft__ct_put_text(b, "0.");
    for (int i = point; i < 0; i++) weft__ct_put_text(b, "0");
    for (int i = 0; i < n; i++) {
        if (i == point && i > 0) weft__ct_put_text(b, ".");
        weft__ct_put(b, digits + i, 1);
    }
    for (int i = n; i < point; i++) weft__ct_put_text(b, "0");
    if (point >= n) weft__ct_put_text(b, ".0");
}

static void print_number(ct_buffer *b, const ct_value *v)
{
    char text[32];
    if (v->type == CT_FLOAT) {
        print_float(b, v->as.number);
        return;
    }
    snprintf(text, sizeof text, "%lld", (long long)v->as.whole);
    weft__ct_put_text(b, v->type != CT_BOOL ? text : v->as.truth ? "True" : "False");
}

/* A text in quotes: single ones unless only the text has those. */
static void print_string(ct_buffer *b, const ct_value *v)
{
    const bool has_single = memchr(v->as.text, '\'', v->n),
               has_double = memchr(v->as.text, '"', v->n);
    const char quote[2] = {has_single && !has_double ? '"' : '\'', 0};
    char escape[16];
    weft__ct_put_text(b, quote);
    for (size_t at = 0, bytes; at < v->n; at += bytes) {
        const uint32_t c = weft__tk_decode(v->as.text + at, &bytes);
        const char *simple = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : NULL;
        if (simple) {
            weft__ct_put_text(b, simple);
        } else if (c == '\\' || c == (unsigned char)quote[0]) {
            weft__ct_put_text(b, "\\");
            weft__ct_put(b, v->as.text + at, 1);
        } else if (weft__ct_is_printable(c)) {
            weft__ct_put(b, v->as.text + at, bytes);
        } else {
            snprintf(escape, sizeof escape,
                     c < 0x100     ? "\\x%02x"
                     : c < 0x10000 ? "\\u%04x"
                                   : "\\U%08x",
                     c);
            weft__ct_put_text(b, escape);
        }
    }
    weft__ct_put_text(b, quote);
}

static void print_items(ct_render *r, ct_buffer *b, const ct_value *v, int level)
{
    static const char *const opens[] = {"[",           "(", NULL, "dict_keys([", "dict_values([",
                                        "dict_items(["};
    static const char *const closes[] = {"]", ")", NULL, "])", "])", "])"};
    weft__ct_put_text(b, opens[v->type - CT_LIST]);
    for (size_t i = 0; i < v->n && r->status == WEFT_OK; i++) {
        if (i) weft__ct_put_text(b, ", ");
        print_repr(r, b, &v->as.items[i], level + 1);
    }
    if (v->type == CT_TUPLE && v->n == 1) weft__ct_put_text(b, ",");
    weft__ct_put_text(b, closes[v->type - CT_LIST]);
}

static void print_dict(ct_render *r, ct_buffer *b, const ct_value *v, int level)
{
    weft__ct_put_text(b, "{");
    for (size_t i = 0; i < v->n && r->status == WEFT_OK; i++) {
        if (i) weft__ct_put_text(b, ", ");
        print_repr(r, b, &v->as.pairs[i].key, level + 1);
        weft__ct_put_text(b, ": ");
        print_repr(r, b, &v->as.pairs[i].value, level + 1);
    }
    weft__ct_put_text(b, "}");
}

static void print_repr(ct_render *r, ct_buffer *b, const ct_value *v, int level)
{
    if (level > MAX_LEVELS) {
        weft__ct_fail(r, WEFT_TOO_LARGE, "values that are nested too deeply");
        return;
    }
    if (!weft__ct_work(r, v->type == CT_STRING ? v->n : 0)) return;
    switch (v->type) {
    case CT_UNDEFINED:
        weft__ct_put_text(b, "Undefined");
        break;
    case CT_NONE:
        weft__ct_put_text(b, "None");
        break;
    case CT_BOOL:
    case CT_INT:
    case CT_FLOAT:
        print_number(b, v);
        break;
    case CT_STRING:
        print_string(b, v);
        break;
    case CT_LIST:
    case CT_TUPLE:
    case CT_KEYS:
    case CT_VALUES:
    case CT_ITEMS:
        print_items(r, b, v, level);
        break;
    case CT_DICT:
        print_dict(r, b, v, level);
        break;
    default:
        weft__ct_fail(r, WEFT_BAD_FILE, "a %s cannot become text", weft__ct_type_name(v));
    }
}

void weft__ct_print_repr(ct_render *r, ct_buffer *b, const ct_value *v)
{
    print_repr(r, b, v, 0);
}

void weft__ct_print(ct_render *r, ct_buffer *b, const ct_value *v)
{
    if (v->type == CT_UNDEFINED) return;
    if (v->type != CT_STRING)
        print_repr(r, b, v, 0);
    else if (weft__ct_work(r, v->n))
        weft__ct_put(b, v->as.text, v->n);
}

ct_value weft__ct_text(ct_render *r, const ct_value *v)
{
    if (v->type == CT_STRING) return *v;
    ct_buffer b = weft__ct_buffer();
    weft__ct_print(r, &b, v);
    return weft__ct_take(r, &b);
}

const char *weft__ct_zero_ended(ct_render *r, const ct_value *text)
{
    char *copy = weft__ct_alloc(r, text->n + 1, 1);
    if (!copy) return "";
    if (text->n) memcpy(copy, text->as.text, text->n);
    return copy;
}
