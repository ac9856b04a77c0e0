/* Texts from outside: whether they are UTF-8, and without characters that move a cursor. */
#include <weft/text.h>

bool weft_text_is_utf8(const char *text, size_t bytes)
{
    if (!text) return false;
    const unsigned char *s = (const unsigned char *)text, *end = s + bytes;
    while (s < end) {
        size_t more = *s >= 0xF0 ? 3 : *s >= 0xE0 ? 2 : *s >= 0xC0 ? 1 : 0;
        if (!*s || (*s >= 0x80 && *s < 0xC2) || *s > 0xF4 || (size_t)(end - s) <= more)
            return false;
        for (size_t i = 1; i <= more; i++)
            if ((s[i] & 0xC0) != 0x80) return false;
        if ((*s == 0xE0 && s[1] < 0xA0) || (*s == 0xED && s[1] > 0x9F) ||
            (*s == 0xF0 && s[1] < 0x90) || (*s == 0xF4 && s[1] > 0x8F))
            return false;
        s += more + 1;
    }
    return true;
}

void weft_text_clean(char *text, bool lines)
{
    if (!text) return;
    char *to = text;
    for (const char *at = text; *at; to++) {
        const unsigned char *c = (const unsigned char *)at;
        size_t bytes = 0; /* bytes of a character that becomes a space */
        if ((c[0] < ' ' && c[0] != '\t' && !(lines && c[0] == '\n')) || c[0] == 0x7F) bytes = 1;
        if (c[0] == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0) bytes = 2;
        if (c[0] == 0xE2 && c[1] == 0x80 && (c[2] == 0xA8 || c[2] == 0xA9)) bytes = 3;
        *to = bytes ? ' ' : *at;
        at += bytes ? bytes : 1;
    }
    *to = 0;
}
