/* Literals: texts with escapes, and numbers. */
#include "chat/parse.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* Writes the character of an escape that has from `min` to `max` digits of a base; their number. */
static size_t put_digits(ct_parser *p, ct_buffer *b, const char *at, const char *end, int base,
                         int min, int max)
{
    static const char all[] = "0123456789abcdef";
    uint32_t c = 0;
    int n = 0;
    for (; n < max && at + n < end; n++) {
        const char letter = (char)(at[n] >= 'A' && at[n] <= 'F' ? at[n] | 32 : at[n]);
        const char *digit = letter ? memchr(all, letter, (size_t)base) : NULL;
        if (!digit) break;
        c = c * (uint32_t)base + (uint32_t)(digit - all);
    }
    if (n < min || !c || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        weft__ct_refuse(p, WEFT_BAD_FILE, "an escape that is not a character");
    else
        weft__ct_put_character(b, c);
    return (size_t)n;
}

/* Writes what follows a backslash, and returns its bytes. */
static size_t put_escape(ct_parser *p, ct_buffer *b, const char *at, const char *end)
{
    static const char pairs[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    for (const char *pair = pairs; *pair; pair += 2) {
        if (*pair != *at) continue;
        weft__ct_put(b, pair + 1, 1);
        return 1;
    }
    if (*at == '\n') return 1;
    if (*at == 'x') return 1 + put_digits(p, b, at + 1, end, 16, 2, 2);
    if (*at == 'u') return 1 + put_digits(p, b, at + 1, end, 16, 4, 4);
    if (*at == 'U') return 1 + put_digits(p, b, at + 1, end, 16, 8, 8);
    if (*at >= '0' && *at <= '7') return put_digits(p, b, at, end, 8, 1, 3);
    if (*at == 'N')
        weft__ct_refuse(p, WEFT_BAD_FILE, "the names of characters (\\N) are not supported");
    weft__ct_put_text(b, "\\"); /* it is none, and the backslash stays */
    return 0;
}

/* A text literal, and those that follow it. */
ct_node *weft__ct_parse_string(ct_parser *p)
{
    ct_node *n = weft__ct_node(p, CT_K_CONST);
    ct_buffer b = weft__ct_buffer();
    while (p->current.kind == CT_QUOTED) {
        const char *at = p->current.text + 1, *end = p->current.text + p->current.bytes - 1;
        while (at < end && p->status == WEFT_OK) {
            const char *slash = memchr(at, '\\', (size_t)(end - at));
            weft__ct_put(&b, at, (size_t)((slash ? slash : end) - at));
            at = slash ? slash + 1 + put_escape(p, &b, slash + 1, end) : end;
        }
        weft__ct_advance(p);
    }
    char *copy = weft__arena_alloc(p->memory, b.n + 1);
    if (!copy || b.failed)
        weft__ct_refuse(p, WEFT_NO_MEMORY, "out of memory");
    else if (b.n)
        memcpy(copy, b.text, b.n);
    n->constant = ct_string(copy ? copy : "", copy ? b.n : 0);
    weft__ct_buffer_free(&b);
    return n;
}

ct_node *weft__ct_parse_number(ct_parser *p)
{
    ct_node *n = weft__ct_node(p, CT_K_CONST);
    char digits[64];
    size_t count = 0;
    for (size_t i = 0; i < p->current.bytes && count + 1 < sizeof digits; i++)
        if (p->current.text[i] != '_') digits[count++] = p->current.text[i];
    digits[count] = 0;
    const bool whole = p->current.kind == CT_WHOLE;
    double number = 0;
    if (count > (whole ? 18 : 60))
        weft__ct_refuse(p, WEFT_BAD_FILE, "a number with %zu digits", count);
    else if (!whole && !weft__text_to_double(digits, &number))
        weft__ct_refuse(p, WEFT_BAD_FILE, "'%s' is not a number", digits);
    n->constant = whole ? ct_int(strtoll(digits, NULL, 10)) : ct_float(number);
    weft__ct_advance(p);
    return n;
}
