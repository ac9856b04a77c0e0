/* Properties of characters, by utf8proc and by tables of what the package `tokenizers` treats by
 * older versions of Unicode (older.c). */
#include "unicode.h"

#include "older.h"

#include <utf8proc.h>

size_t weft__tk_part(const char *text, size_t n, bool *valid)
{
    const unsigned char *b = (const unsigned char *)text;
    *valid = true;
    if (b[0] < 0x80) return 1;
    *valid = false;
    if (b[0] < 0xC2 || b[0] > 0xF4) return 1;
    const size_t whole = weft__tk_character_bytes(b[0]);
    for (size_t i = 1; i < whole; i++) {
        unsigned char low = 0x80, high = 0xBF;
        if (i == 1 && b[0] == 0xE0) low = 0xA0;
        if (i == 1 && b[0] == 0xED) high = 0x9F;
        if (i == 1 && b[0] == 0xF0) low = 0x90;
        if (i == 1 && b[0] == 0xF4) high = 0x8F;
        if (i >= n || b[i] < low || b[i] > high) return i;
    }
    *valid = true;
    return whole;
}

static utf8proc_category_t category(uint32_t c)
{
    return (utf8proc_category_t)utf8proc_get_property((utf8proc_int32_t)c)->category;
}

static bool in_table(const tk_range *table, size_t n, uint32_t c)
{
    size_t low = 0;
    while (n > 0) {
        const size_t half = n / 2;
        if (c > table[low + half].last) {
            low += half + 1;
            n -= half + 1;
        } else {
            if (c >= table[low + half].first) return true;
            n = half;
        }
    }
    return false;
}

bool weft__tk_is_letter(uint32_t c)
{
    const int k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool weft__tk_is_number(uint32_t c)
{
    const int k = category(c);
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

bool weft__tk_is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_any_mark(uint32_t c)
{
    const int k = category(c);
    return k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
}

/* Circled and squared letters, which are alphabetic symbols. */
static bool is_alphabetic_symbol(uint32_t c)
{
    return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
           (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool weft__tk_is_word(uint32_t c)
{
    if (c < 0x80)
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               c == '_';
    const int k = category(c);
    return weft__tk_is_letter(c) || is_any_mark(c) || k == UTF8PROC_CATEGORY_ND ||
           k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D ||
           is_alphabetic_symbol(c);
}

bool weft__tk_is_mark(uint32_t c)
{
    if (c == 0x1CF2 || c == 0x1CF3) return true; /* Lo since Unicode 12 */
    return c >= 0x300 && is_any_mark(c) &&
           !in_table(weft__tk_newer_marks, weft__tk_newer_marks_count, c);
}

bool weft__tk_is_nonspacing(uint32_t c)
{
    if (c < 0x300) return false;
    if (c == 0x1734) return true; /* Mc since Unicode 14 */
    return category(c) == UTF8PROC_CATEGORY_MN &&
           !in_table(weft__tk_newer_nonspacing, weft__tk_newer_nonspacing_count, c);
}

bool weft__tk_is_punctuation(uint32_t c)
{
    if (c < 0x80)
        return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
               (c >= '{' && c <= '~');
    if (c == 0x166D || c == 0x111C9) return true; /* no longer P */
    const int k = category(c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO &&
           !in_table(weft__tk_newer_punctuation, weft__tk_newer_punctuation_count, c);
}

bool weft__tk_is_other(uint32_t c)
{
    if (c < 0x80) return c < ' ' || c == 0x7F;
    /* Cf since Unicode 9. */
    if (c == 0x890 || c == 0x891 || c == 0x8E2 || c == 0x110CD || (c >= 0x13430 && c <= 0x1343F))
        return false;
    const int k = category(c);
    return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO;
}

bool weft__tk_is_ideograph(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
           (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
}

size_t weft__tk_decompose(uint32_t c, bool compatible, int32_t out[TK_DECOMPOSED])
{
    const int options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
    out[0] = (int32_t)c;
    if (c < 0xA0 || in_table(weft__tk_newer_decompositions, weft__tk_newer_decompositions_count, c))
        return 1;
    const utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)c, out, TK_DECOMPOSED, options, NULL);
    if (n > 0 && n <= TK_DECOMPOSED) return (size_t)n;
    out[0] = (int32_t)c;
    return 1;
}

int weft__tk_combining_class(uint32_t c)
{
    if (c < 0x300) return 0;
    const int ccc = utf8proc_get_property((utf8proc_int32_t)c)->combining_class;
    return ccc && in_table(weft__tk_newer_marks, weft__tk_newer_marks_count, c) ? 0 : ccc;
}

uint32_t weft__tk_compose(uint32_t a, uint32_t b)
{
    utf8proc_int32_t pair[2] = {(utf8proc_int32_t)a, (utf8proc_int32_t)b};
    if (a < ' ' || b < 0x300) return 0;
    if (b == 0x11930) return 0; /* newer than Unicode 9 */
    return utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE) == 1
               ? (uint32_t)pair[0]
               : 0;
}

size_t weft__tk_lowercase(uint32_t c, uint32_t out[2])
{
    if (c == 0x130) {
        out[0] = 'i', out[1] = 0x307;
        return 2;
    }
    out[0] = c < 0x80 ? (c >= 'A' && c <= 'Z' ? c + 32 : c)
                      : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    return 1;
}

uint32_t weft__tk_byte_character(unsigned char byte)
{
    if ((byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD)) return byte;
    if (byte <= ' ') return 0x100u + byte;
    if (byte <= 0xA0) return 0x100u + 33 + (byte - 0x7Fu);
    return 0x100u + 67;
}

int weft__tk_character_byte(uint32_t c)
{
    if (c >= 0x100 && c <= 0x120) return (int)(c - 0x100);
    if (c >= 0x121 && c <= 0x142) return (int)(c - 0x121 + 0x7F);
    if (c == 0x143) return 0xAD;
    return c < 0x100 && weft__tk_byte_character((unsigned char)c) == c ? (int)c : -1;
}
