/* JSON of values, as Python's json.dumps writes it. */
#include "chat/value.h"

#include "base/text.h"
#include "unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LEVELS 200

/* ---- Writing ---- */

static void put_json_string(ct_buffer *b, const char *text, size_t n, bool ascii)
{
    static const char letters[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    char escape[16];
    weft__ct_put_text(b, "\"");
    for (size_t at = 0, bytes; at < n; at += bytes) {
        const uint32_t c = weft__tk_decode(text + at, &bytes);
        const char *letter = NULL;
        for (const char *pair = letters; *pair && !letter; pair += 2)
            if ((unsigned char)*pair == c) letter = pair + 1;
        if (letter) {
            weft__ct_put_text(b, "\\");
            weft__ct_put(b, letter, 1);
        } else if (c >= 0x20 && (c < 0x7F || !ascii)) {
            weft__ct_put(b, text + at, bytes);
        } else if (c < 0x10000) {
            snprintf(escape, sizeof escape, ascii && c == 0x7F ? "%c" : "\\u%04x", c);
            weft__ct_put_text(b, escape);
        } else {
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
                     0xDC00 + ((c - 0x10000) & 0x3FF));
            weft__ct_put_text(b, escape);
        }
    }
    weft__ct_put_text(b, "\"");
}

static void put_break(ct_buffer *b, const ct_json_style *style, int level)
{
    if (!style->indent) return;
    weft__ct_put_text(b, "\n");
    for (; level > 0 && !b->failed; level--) weft__ct_put_text(b, style->indent);
}

static void put_json(ct_render *r, ct_buffer *b, const ct_value *v, const ct_json_style *style,
                     int level);

static void put_scalar(ct_render *r, ct_buffer *b, const ct_value *v, const ct_json_style *style)
{
    if (v->type == CT_STRING)
        put_json_string(b, v->as.text, v->n, style->ascii);
    else if (v->type == CT_NONE)
        weft__ct_put_text(b, "null");
    else if (v->type == CT_BOOL)
        weft__ct_put_text(b, v->as.truth ? "true" : "false");
    else if (v->type == CT_FLOAT && !isfinite(v->as.number))
        weft__ct_put_text(b, isnan(v->as.number) ? "NaN"
                             : v->as.number < 0  ? "-Infinity"
                                                 : "Infinity");
    else if (v->type == CT_INT || v->type == CT_FLOAT)
        weft__ct_print(r, b, v);
    else
        weft__ct_fail(r, WEFT_BAD_ARGUMENT, "a %s cannot become JSON", weft__ct_type_name(v));
}

/* A key becomes a text. */
static void put_key(ct_render *r, ct_buffer *b, const ct_value *key, const ct_json_style *style)
{
    const bool is_text = key->type == CT_STRING;
    if (!is_text && key->type != CT_NONE && !ct_is_number(key))
        weft__ct_fail(r, WEFT_BAD_ARGUMENT, "a %s cannot be a key of JSON",
                      weft__ct_type_name(key));
    if (!is_text) weft__ct_put_text(b, "\"");
    put_scalar(r, b, key, style);
    if (!is_text) weft__ct_put_text(b, "\"");
}

static void sort_pairs(ct_render *r, ct_pair *pairs, size_t n)
{
    for (size_t i = 1; i < n && weft__ct_work(r, 0); i++) {
        const ct_pair pair = pairs[i];
        size_t at = i;
        for (; at > 0 && weft__ct_work(r, 0) &&
               weft__ct_compare(r, &pairs[at - 1].key, &pair.key, "<") > 0;
             at--)
            pairs[at] = pairs[at - 1];
        pairs[at] = pair;
    }
}

static void put_dict(ct_render *r, ct_buffer *b, const ct_value *v, const ct_json_style *style,
                     int level)
{
    const ct_pair *pairs = v->as.pairs;
    if (style->sort) {
        ct_pair *sorted = weft__ct_alloc(r, v->n, sizeof *sorted);
        if (!sorted) return;
        memcpy(sorted, pairs, v->n * sizeof *sorted);
        sort_pairs(r, sorted, v->n);
        pairs = sorted;
    }
    weft__ct_put_text(b, "{");
    for (size_t i = 0; i < v->n && r->status == WEFT_OK; i++) {
        if (i) weft__ct_put_text(b, style->item);
        put_break(b, style, level + 1);
        put_key(r, b, &pairs[i].key, style);
        weft__ct_put_text(b, style->key);
        put_json(r, b, &pairs[i].value, style, level + 1);
    }
    put_break(b, style, level);
    weft__ct_put_text(b, "}");
}

static void put_json(ct_render *r, ct_buffer *b, const ct_value *v, const ct_json_style *style,
                     int level)
{
    if (level > MAX_LEVELS) {
        weft__ct_fail(r, WEFT_TOO_LARGE, "values that are nested too deeply");
        return;
    }
    if (!weft__ct_work(r, v->type == CT_STRING ? v->n : 0)) return;
    const bool is_list = v->type == CT_LIST || v->type == CT_TUPLE;
    if (!is_list && v->type != CT_DICT) {
        put_scalar(r, b, v, style);
    } else if (v->n == 0) {
        weft__ct_put_text(b, is_list ? "[]" : "{}");
    } else if (v->type == CT_DICT) {
        put_dict(r, b, v, style, level);
    } else {
        weft__ct_put_text(b, "[");
        for (size_t i = 0; i < v->n && r->status == WEFT_OK; i++) {
            if (i) weft__ct_put_text(b, style->item);
            put_break(b, style, level + 1);
            put_json(r, b, &v->as.items[i], style, level + 1);
        }
        put_break(b, style, level);
        weft__ct_put_text(b, "]");
    }
}

void weft__ct_print_json(ct_render *r, ct_buffer *b, const ct_value *v, const ct_json_style *style)
{
    put_json(r, b, v, style, 0);
}
