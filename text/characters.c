/* The characters of a text, and a text in lower case. */
#include "characters.h"

#include "base/platform.h"

#include <weft/text.h>

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

int32_t weft__text_next(const char **text)
{
    const unsigned char *s = (const unsigned char *)*text;
    int length = s[0] < 0x80       ? 1
                 : s[0] >> 5 == 6  ? 2
                 : s[0] >> 4 == 14 ? 3
                 : s[0] >> 3 == 30 ? 4
                                   : 0;
    static const int32_t min[5] = {0, 0, 0x80, 0x800, 0x10000};
    int32_t c = length == 1 ? s[0] : s[0] & (0xff >> (length + 1));
    for (int i = 1; i < length; i++) {
        if (s[i] >> 6 != 2)
            length = 0;
        else
            c = c << 6 | (s[i] & 0x3f);
    }
    if (!length || c < min[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
        (*text)++;
        return 0x110000 + s[0];
    }
    *text += length;
    return c;
}

bool weft__text_is_space(int32_t c)
{
    return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

static size_t put_character(char *to, int32_t c)
{
    if (c >= 0x110000 || c < 0x80) {
        to[0] = (char)(c >= 0x110000 ? c - 0x110000 : c);
        return 1;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const int first[4] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (char)(first[more] | c >> (6 * more));
    for (int i = 1; i <= more; i++) to[i] = (char)(0x80 | (c >> (6 * (more - i)) & 0x3f));
    return (size_t)more + 1;
}

char *weft_text_lowercase(const char *text)
{
    if (!text) return NULL;
    char *out = malloc(4 * strlen(text) + 1);
    size_t n = 0;
    while (out && *text) {
        int32_t c = weft__text_next(&text);
        if (c < 0x80)
            c = tolower(c);
        else if (c < 0x110000)
            c = weft__os_lowercase(c);
        n += put_character(out + n, c);
    }
    if (out) out[n] = 0;
    return out;
}
