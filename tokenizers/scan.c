/* Scanners that split texts as the patterns of GPT-2, Llama 3 and Qwen2 do: O(n), without a
 * regular expression. */
#include "regex.h"
#include "unicode.h"

#include <string.h>

const char weft__tk_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define OTHERS       "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

typedef enum class { OTHER, LETTER, NUMBER, SPACE } class;

/* The class of the character at `at`, whose end *end becomes. */
static class class_at(const char *text, size_t at, size_t *end)
{
    const unsigned char b = (unsigned char)text[at];
    if (b < 0x80) {
        *end = at + 1;
        if ((b | 32) >= 'a' && (b | 32) <= 'z') return LETTER;
        if (b >= '0' && b <= '9') return NUMBER;
        return b == ' ' || (b >= 9 && b <= 13) ? SPACE : OTHER;
    }
    size_t n;
    const uint32_t c = weft__tk_decode(text + at, &n);
    *end = at + n;
    if (weft__tk_is_letter(c)) return LETTER;
    if (weft__tk_is_number(c)) return NUMBER;
    return weft__tk_is_space(c) ? SPACE : OTHER;
}

/* The end of the characters of a class from `at` on, at most `most` of them. */
static size_t run(const char *text, size_t at, size_t n, class of, size_t most)
{
    size_t end;
    for (; at < n && most > 0 && class_at(text, at, &end) == of; most--) at = end;
    return at;
}

/* The end of 's, 't, 're, 've, 'm, 'll or 'd at an apostrophe; `at` if there is none. */
static size_t contraction(const char *text, size_t at, size_t n, bool any_case)
{
    if (at + 1 >= n) return at;
    const char mask = any_case ? 32 : 0;
    const char a = (char)(text[at + 1] | mask), b = at + 2 < n ? (char)(text[at + 2] | mask) : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
    /* The long s is a small s in another case. */
    if (any_case && n - at >= 3 && !memcmp(text + at + 1, "\xC5\xBF", 2)) return at + 3;
    return at;
}

/* The end of \s+(?!\S)|\s+ at a space. */
static size_t spaces(const char *text, size_t at, size_t n)
{
    size_t end, last = at, next = at;
    for (; next < n && class_at(text, next, &end) == SPACE; next = end) last = next;
    return next == n || last == at ? next : last;
}

static size_t scan_gpt2(const char *text, size_t at, size_t n)
{
    size_t end, found;
    if (text[at] == '\'' && (found = contraction(text, at, n, false)) > at) return found;
    class of = class_at(text, at, &end);
    if (of == SPACE) {
        size_t after;
        if (text[at] != ' ' || end == n) return spaces(text, at, n);
        of = class_at(text, end, &after);
        if (of == SPACE) return spaces(text, at, n);
        end = after;
    }
    return run(text, end, n, of, SIZE_MAX);
}

static size_t lines(const char *text, size_t at, size_t n)
{
    while (at < n && (text[at] == '\r' || text[at] == '\n')) at++;
    return at;
}

/* The end of \s*[\r\n]+|\s+(?!\S)|\s+ at a space. */
static size_t spaces_and_lines(const char *text, size_t at, size_t n)
{
    size_t end, newline = at;
    for (size_t next = at; next < n && class_at(text, next, &end) == SPACE; next = end)
        if (text[next] == '\r' || text[next] == '\n') newline = end;
    return newline > at ? newline : spaces(text, at, n);
}

static size_t scan_llama3(const char *text, size_t at, size_t n, size_t digits)
{
    size_t end, found, after;
    if (text[at] == '\'' && (found = contraction(text, at, n, true)) > at) return found;
    const class of = class_at(text, at, &end);
    if (of == LETTER) return run(text, end, n, LETTER, SIZE_MAX);
    if (of == NUMBER) return run(text, at, n, NUMBER, digits);
    const class next = end < n ? class_at(text, end, &after) : SPACE;
    if (next == LETTER && text[at] != '\r' && text[at] != '\n')
        return run(text, after, n, LETTER, SIZE_MAX);
    if (of == OTHER) return lines(text, run(text, end, n, OTHER, SIZE_MAX), n);
    if (text[at] == ' ' && end < n && next == OTHER)
        return lines(text, run(text, after, n, OTHER, SIZE_MAX), n);
    return spaces_and_lines(text, at, n);
}

static size_t scan_three_digits(const char *text, size_t at, size_t n)
{
    return scan_llama3(text, at, n, 3);
}

static size_t scan_one_digit(const char *text, size_t at, size_t n)
{
    return scan_llama3(text, at, n, 1);
}

tk_scan *weft__tk_scanner_of(const char *pattern)
{
    static const struct {
        const char *pattern;
        tk_scan *scan;
    } known[] = {
        {weft__tk_gpt2_pattern, scan_gpt2},
        {CONTRACTIONS "\\p{N}{1,3}" OTHERS, scan_three_digits},
        {CONTRACTIONS "\\p{N}" OTHERS, scan_one_digit},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].pattern, pattern)) return known[i].scan;
    return NULL;
}
