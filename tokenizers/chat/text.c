/* Texts in UTF-8, counted in characters as Python does, and buffers. */
#include "chat/text.h"

#include "unicode.h"

#include <stdlib.h>
#include <string.h>

bool weft__ct_is_space(uint32_t c)
{
    return weft__tk_is_space(c) || (c >= 0x1C && c <= 0x1F);
}

size_t weft__ct_leading_spaces(const char *text, size_t bytes)
{
    size_t at = 0, n;
    while (at < bytes && weft__ct_is_space(weft__tk_decode(text + at, &n))) at += n;
    return at;
}

size_t weft__ct_last_character(const char *text, size_t bytes)
{
    size_t n = 1;
    while (n < bytes && (text[bytes - n] & 0xC0) == 0x80) n++;
    return n;
}

size_t weft__ct_trailing_spaces(const char *text, size_t bytes)
{
    size_t end = bytes, n;
    while (end > 0) {
        const size_t last = weft__ct_last_character(text, end);
        if (!weft__ct_is_space(weft__tk_decode(text + end - last, &n))) break;
        end -= last;
    }
    return bytes - end;
}

size_t weft__ct_characters(const char *text, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) n += (text[i] & 0xC0) != 0x80;
    return n;
}

size_t weft__ct_offset(const char *text, size_t bytes, size_t character)
{
    size_t at = 0;
    for (; at < bytes && character > 0; character--)
        at += weft__tk_character_bytes((unsigned char)text[at]);
    return at;
}

size_t weft__ct_find(const char *text, size_t bytes, const char *part, size_t part_bytes)
{
    if (!part_bytes) return 0;
    const char *found = memmem(text, bytes, part, part_bytes);
    return found ? (size_t)(found - text) : SIZE_MAX;
}

size_t weft__ct_line_end(const char *text, size_t bytes)
{
    size_t n;
    if (!bytes) return 0;
    const uint32_t c = weft__tk_decode(text, &n);
    if (c == '\r') return bytes > 1 && text[1] == '\n' ? 2 : 1;
    const bool ends = c == '\n' || c == '\v' || c == '\f' || (c >= 0x1C && c <= 0x1E) ||
                      c == 0x85 || c == 0x2028 || c == 0x2029;
    return ends ? n : 0;
}

/* ---- Buffers ---- */

void weft__ct_put(ct_buffer *b, const char *text, size_t bytes)
{
    if (b->failed || !bytes) return;
    if (bytes > b->limit - b->n) {
        b->failed = b->too_large = true;
        return;
    }
    if (b->n + bytes > b->capacity) {
        size_t capacity = b->capacity ? 2 * b->capacity : 256;
        if (capacity < b->n + bytes) capacity = b->n + bytes;
        char *grown = realloc(b->text, capacity);
        if (!grown) {
            b->failed = true;
            return;
        }
        b->text = grown;
        b->capacity = capacity;
    }
    memcpy(b->text + b->n, text, bytes);
    b->n += bytes;
}

void weft__ct_put_text(ct_buffer *b, const char *text)
{
    weft__ct_put(b, text, strlen(text));
}

void weft__ct_put_character(ct_buffer *b, uint32_t c)
{
    char bytes[4];
    weft__ct_put(b, bytes, weft__tk_encode(c, bytes));
}

void weft__ct_buffer_free(ct_buffer *b)
{
    free(b->text);
    *b = (ct_buffer){.limit = b->limit};
}
