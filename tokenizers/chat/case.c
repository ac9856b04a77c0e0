/* Upper, lower and title case as Python's str has them: with characters that become several
 * (Unicode's SpecialCasing) and the final sigma, without rules of languages. */
#include "chat/text.h"

#include "unicode.h"

#include <string.h>
#include <utf8proc.h>

#define IOTA_SUBSCRIPT 0x345

/* What has more than one character in upper case and no canonical decomposition: in upper and in
 * title case. */
static const struct {
    uint32_t character;
    const char *upper, *title;
} specials[] = {
    {0xDF, "SS", "Ss"},
    {0x149, "\xCA\xBCN", "\xCA\xBCN"},
    {0x587, "\xD4\xB5\xD5\x92", "\xD4\xB5\xD6\x82"},
    {0x1E9A, "A\xCA\xBE", "A\xCA\xBE"},
    {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
    {0xFB13, "\xD5\x84\xD5\x86", "\xD5\x84\xD5\xB6"},
    {0xFB14, "\xD5\x84\xD4\xB5", "\xD5\x84\xD5\xA5"},
    {0xFB15, "\xD5\x84\xD4\xBB", "\xD5\x84\xD5\xAB"},
    {0xFB16, "\xD5\x8E\xD5\x86", "\xD5\x8E\xD5\xB6"},
    {0xFB17, "\xD5\x84\xD4\xBD", "\xD5\x84\xD5\xAD"},
};

static uint32_t simple_upper(uint32_t c)
{
    return (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
}

static utf8proc_category_t category(uint32_t c)
{
    return (utf8proc_category_t)utf8proc_get_property((utf8proc_int32_t)c)->category;
}

/* The character without an iota below it; 0 if it has none. */
static uint32_t without_iota(const int32_t *parts, size_t n)
{
    if (n < 2 || parts[n - 1] != IOTA_SUBSCRIPT) return 0;
    uint32_t whole = (uint32_t)parts[0];
    for (size_t i = 1; i + 1 < n; i++) whole = weft__tk_compose(whole, (uint32_t)parts[i]);
    return whole;
}

/* Upper case, or title case. */
static void put_upper(ct_buffer *b, uint32_t c, bool title)
{
    int32_t parts[TK_DECOMPOSED];
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
        if (specials[i].character != c) continue;
        weft__ct_put_text(b, title ? specials[i].title : specials[i].upper);
        return;
    }
    const uint32_t simple =
        title ? (uint32_t)utf8proc_totitle((utf8proc_int32_t)c) : simple_upper(c);
    const size_t n = c < 0x80 ? 1 : weft__tk_decompose(c, false, parts);
    const uint32_t base = without_iota(parts, n);
    const bool greek = base && c >= 0x1F00 && c < 0x2000;
    if (greek && (!title || (simple == c && category(c) == UTF8PROC_CATEGORY_LL))) {
        put_upper(b, base, false);
        weft__ct_put_character(b, title ? IOTA_SUBSCRIPT : 0x399);
    } else if (n > 1 && simple == c && category(c) == UTF8PROC_CATEGORY_LL) {
        for (size_t i = 0; i < n; i++) weft__ct_put_character(b, simple_upper((uint32_t)parts[i]));
    } else {
        weft__ct_put_character(b, simple);
    }
}

static bool is_cased(uint32_t c)
{
    const utf8proc_category_t k = category(c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT ||
           simple_upper(c) != c || (uint32_t)utf8proc_tolower((utf8proc_int32_t)c) != c;
}

/* Whether a final sigma does not see a character. */
static bool is_ignored(uint32_t c)
{
    const utf8proc_category_t k = category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' ||
           c == ':' || c == 0xB7 || c == 0x2019 || c == 0x2018 || c == 0x2024 || c == 0x2027;
}

/* Whether the sigma at `at` ends a word. */
static bool is_final(const char *text, size_t bytes, size_t at)
{
    size_t n, before = at, after = at + 2;
    bool cased = false;
    while (before > 0) {
        before -= weft__ct_last_character(text, before);
        const uint32_t c = weft__tk_decode(text + before, &n);
        cased = is_cased(c);
        if (!is_ignored(c)) break;
    }
    if (!cased) return false;
    for (; after < bytes; after += n) {
        const uint32_t c = weft__tk_decode(text + after, &n);
        if (!is_ignored(c)) return !is_cased(c);
    }
    return true;
}

static void put_lower(ct_buffer *b, const char *text, size_t bytes, size_t at)
{
    size_t n;
    const uint32_t c = weft__tk_decode(text + at, &n);
    if (c == 0x3A3)
        weft__ct_put_character(b, is_final(text, bytes, at) ? 0x3C2 : 0x3C3);
    else if (c == 0x130)
        weft__ct_put_text(b, "i\xCC\x87");
    else
        weft__ct_put_character(b, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

void weft__ct_put_case(ct_buffer *b, const char *text, size_t bytes, ct_case to)
{
    bool after_cased = false;
    for (size_t at = 0, n; at < bytes && !b->failed; at += n) {
        const uint32_t c = weft__tk_decode(text + at, &n);
        const bool first = to == CT_TITLE ? !after_cased : at == 0;
        if (to == CT_UPPER || (to != CT_LOWER && first))
            put_upper(b, c, to != CT_UPPER);
        else
            put_lower(b, text, bytes, at);
        after_cased = is_cased(c);
    }
}

bool weft__ct_is_case(const char *text, size_t bytes, ct_case of)
{
    bool found = false;
    for (size_t at = 0, n; at < bytes; at += n) {
        const uint32_t c = weft__tk_decode(text + at, &n);
        if (!is_cased(c)) continue;
        const bool is_lower = category(c) == UTF8PROC_CATEGORY_LL;
        if (is_lower != (of == CT_LOWER)) return false;
        found = true;
    }
    return found;
}

bool weft__ct_is_printable(uint32_t c)
{
    const utf8proc_category_t k = category(c);
    return c == ' ' || (k != UTF8PROC_CATEGORY_CN && k < UTF8PROC_CATEGORY_ZS);
}

bool weft__ct_is_digit(uint32_t c)
{
    return category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 ||
           c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
           (c >= 0x2460 && c <= 0x2468);
}
