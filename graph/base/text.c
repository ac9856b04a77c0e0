/* Numbers, printable names and patterns, independent of the locale. */
#include "text.h"
#include "platform.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- Numbers ---- */

const char *weft__text_read_double(const char *text, double *value)
{
    char *end;
    if (isspace((unsigned char)*text)) return NULL;
    os_locale c = weft__os_enter_c_locale();
    double x = strtod(text, &end);
    weft__os_leave_c_locale(c);
    if (end == text) return NULL;
    *value = x;
    return end;
}

bool weft__text_to_double(const char *text, double *value)
{
    double x;
    const char *end = weft__text_read_double(text, &x);
    if (!end || *end) return false;
    *value = x;
    return true;
}

const char *weft__text_from_double(double value, char buffer[TEXT_NUMBER_BYTES])
{
    double back;
    for (int digits = 15; digits <= 17; digits++) {
        weft__text_format(buffer, TEXT_NUMBER_BYTES, "%.*g", digits, value);
        if (weft__text_to_double(buffer, &back) && back == value) break;
    }
    return buffer;
}

/* ---- Formats ---- */

/* Removes an incomplete UTF-8 character from the end of a truncated text. */
static void trim_cut_character(char *text)
{
    size_t n = strlen(text), begin = n;
    while (begin > 0 && n - begin < 3 && ((unsigned char)text[begin - 1] & 0xC0) == 0x80) begin--;
    if (!begin) return;
    unsigned char lead = (unsigned char)text[begin - 1];
    size_t needed = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (n - (begin - 1) < needed) text[begin - 1] = 0;
}

int weft__text_vformat(char *buffer, size_t size, const char *format, va_list arguments)
{
    os_locale c = weft__os_enter_c_locale();
    int n = vsnprintf(buffer, size, format, arguments);
    weft__os_leave_c_locale(c);
    if (size && n >= 0 && (size_t)n >= size) trim_cut_character(buffer);
    return n;
}

int weft__text_format(char *buffer, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = weft__text_vformat(buffer, size, format, arguments);
    va_end(arguments);
    return n;
}

int weft__text_vprint(FILE *file, const char *format, va_list arguments)
{
    os_locale c = weft__os_enter_c_locale();
    int n = vfprintf(file, format, arguments);
    weft__os_leave_c_locale(c);
    return n;
}

int weft__text_print(FILE *file, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = weft__text_vprint(file, format, arguments);
    va_end(arguments);
    return n;
}

/* ---- Names in messages ---- */

/* Reads the character at the beginning of a text; returns its bytes, 0 if they are not UTF-8. */
static size_t read_character(const char *text, uint32_t *character)
{
    const unsigned char *at = (const unsigned char *)text;
    uint32_t c = at[0];
    size_t n = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
    if (n > 1) c &= 0x7Fu >> n;
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (at[i] & 0x3F);
    }
    *character = c;
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const bool bad = c < smallest[n] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000);
    return bad ? 0 : n;
}

size_t weft__text_character_bytes(const char *text)
{
    uint32_t c;
    return *text ? read_character(text, &c) : 0;
}

size_t weft__text_put_character(FILE *file, const char *text)
{
    const size_t n = weft__text_character_bytes(text);
    fwrite(n ? text : TEXT_REPLACEMENT, 1, n ? n : strlen(TEXT_REPLACEMENT), file);
    return n ? n : 1;
}

bool weft__text_is_utf8(const char *text)
{
    for (size_t n; *text; text += n)
        if (!(n = weft__text_character_bytes(text))) return false;
    return true;
}

/* Length of the character at the beginning of `text`; 0 if it is a control character or not UTF-8.
 */
static size_t printable_bytes(const char *text)
{
    uint32_t c;
    const size_t n = read_character(text, &c);
    if (n < 2) return n && c >= ' ' && c != 0x7F ? 1 : 0;
    /* C1 controls, line and paragraph separators, marks that change the direction of writing. */
    bool control = c < 0xA0 || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
    return control ? 0 : n;
}

const char *weft__text_printable(char *buffer, size_t size, const char *text)
{
    static const char hex[] = "0123456789abcdef";
    size_t used = 0;
    if (!size) return buffer;
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        char escape[5] = {'\\', 'x', hex[*at >> 4], hex[*at & 15], 0};
        size_t n = printable_bytes((const char *)at), length = n;
        if (!n) {
            const char *known = *at == '\n'   ? "\\n"
                                : *at == '\t' ? "\\t"
                                : *at == '\r' ? "\\r"
                                              : NULL;
            if (known) memcpy(escape, known, 3);
            length = strlen(escape);
        }
        if (used + length >= size) break;
        memcpy(buffer + used, n ? (const char *)at : escape, length);
        used += length;
        at += n ? n : 1;
    }
    buffer[used] = 0;
    return buffer;
}

/* ---- Patterns ---- */

bool weft__text_match(const char *pattern, size_t pattern_length, const char *text)
{
    /* After a mismatch the search resumes at the last star, which then matches one more character.
     */
    size_t p = 0, t = 0, star = pattern_length, star_text = 0;
    while (text[t]) {
        if (p < pattern_length && pattern[p] == '*') {
            star = p++;
            star_text = t;
        } else if (p < pattern_length && (pattern[p] == '?' || pattern[p] == text[t])) {
            p++, t++;
        } else if (star < pattern_length) {
            p = star + 1;
            t = ++star_text;
        } else {
            return false;
        }
    }
    while (p < pattern_length && pattern[p] == '*') p++;
    return p == pattern_length;
}

/* ---- Tables ---- */

const char *weft__text_from_bytes(double bytes, char buffer[TEXT_SIZE_BYTES])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    size_t unit = 0;
    /* 999.5 is written as 1.00 of the next unit. */
    for (; bytes >= 999.5 && unit < 4; unit++) bytes /= 1000;
    weft__text_format(buffer, TEXT_SIZE_BYTES, "%.*f %s", unit ? weft__text_decimals(bytes) : 0,
                      bytes, units[unit]);
    return buffer;
}

int weft__text_decimals(double x)
{
    return x >= 99.95 ? 0 : x >= 9.995 ? 1 : x >= 0.9995 ? 2 : 3;
}

static bool continues(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

int weft__text_length(const char *text)
{
    int n = 0;
    for (; *text; text++) n += !continues(*text);
    return n;
}

/* The byte at which character n begins. */
static size_t byte_of(const char *text, int n)
{
    size_t at = 0;
    for (; text[at]; at++)
        if (!continues(text[at]) && n-- == 0) break;
    return at;
}

void weft__text_print_left(FILE *file, const char *text, int width)
{
    char shown[2048];
    weft__text_printable(shown, sizeof shown, text);
    const int n = weft__text_length(shown);
    if (n <= width) {
        fprintf(file, "%s%*s", shown, width - n, "");
        return;
    }
    const int head = (width - 3) / 2, tail = width - 3 - head;
    fprintf(file, "%.*s...%s", (int)byte_of(shown, head), shown, shown + byte_of(shown, n - tail));
}

size_t weft__text_component(const char *scope)
{
    size_t n = strspn(scope, ".");
    n += strcspn(scope + n, ".");
    const size_t dots = strspn(scope + n, ".");
    return scope[n + dots] ? n : n + dots;
}

size_t weft__text_in_scopes(const char *list, const char *name)
{
    size_t number = 1;
    for (const char *at = list; at && *at; at += *at == ',', number++) {
        const size_t n = strcspn(at, ",");
        if (n && !strncmp(at, name, n) && (!name[n] || name[n] == '.')) return number;
        at += n;
    }
    return 0;
}
