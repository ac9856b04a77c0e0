/* JSON read value by value, and written character by character. All of it takes O(length). */
#include "json.h"

#include "text.h"

#include <math.h>
#include <string.h>

/* ---- Members and items ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_blanks(json_span *rest)
{
    while (rest->length && is_blank(*rest->at)) {
        rest->at++;
        rest->length--;
    }
}

/* Skips white space and one character, if that is the expected one. */
static bool skip(json_span *rest, char expected)
{
    skip_blanks(rest);
    if (!rest->length || *rest->at != expected) return false;
    rest->at++;
    rest->length--;
    return true;
}

/* Length of the string at the beginning of a text, with its quotes; 0 if it is not closed. */
static size_t string_bytes(const char *text, size_t length)
{
    for (size_t i = 1; i < length; i++) {
        if (text[i] == '"') return i + 1;
        if (text[i] == '\\') i++;
    }
    return 0;
}

/* Length of the value at the beginning of a text, up to its closing bracket if it has one; 0 if
 * none begins there, or if it does not end. */
static size_t value_bytes(const char *text, size_t length)
{
    size_t i = 0, depth = 0;
    while (i < length) {
        char c = text[i];
        bool closes = c == '}' || c == ']';
        if (!depth && (closes || c == ',' || is_blank(c))) return i;
        size_t bytes = c == '"' ? string_bytes(text + i, length - i) : 1;
        if (!bytes) return 0;
        depth += c == '{' || c == '[';
        depth -= closes;
        i += bytes;
        if (!depth && (closes || c == '"')) return i;
    }
    return 0;
}

/* Moves the next value from `rest` to `value`. */
static bool take(json_span *rest, json_span *value)
{
    skip_blanks(rest);
    *value = (json_span){rest->at, value_bytes(rest->at, rest->length)};
    rest->at += value->length;
    rest->length -= value->length;
    return value->length > 0;
}

/* Moves to the next value of an object or array: JSON_MEMBER if there is one. */
static json_step step_on(json_members *m, char opening, char closing)
{
    json_span *rest = &m->rest;
    if (!m->begun && !skip(rest, opening)) return JSON_MALFORMED;
    if (skip(rest, closing)) {
        skip_blanks(rest);
        return rest->length ? JSON_MALFORMED : JSON_END;
    }
    if (m->begun && !skip(rest, ',')) return JSON_MALFORMED;
    m->begun = true;
    skip_blanks(rest);
    return JSON_MEMBER;
}

json_step weft__json_next(json_members *members, json_span *key, json_span *value)
{
    json_span *rest = &members->rest;
    const json_step step = step_on(members, '{', '}');
    if (step != JSON_MEMBER) return step;
    const bool good = rest->length && *rest->at == '"' && take(rest, key) && skip(rest, ':');
    return good && take(rest, value) ? JSON_MEMBER : JSON_MALFORMED;
}

json_step weft__json_item(json_members *items, json_span *value)
{
    const json_step step = step_on(items, '[', ']');
    if (step != JSON_MEMBER) return step;
    return take(&items->rest, value) ? JSON_MEMBER : JSON_MALFORMED;
}

/* ---- Values ---- */

/* The code of \uXXXX at a text of `length` bytes; -1 if there is none. */
static int32_t read_code(const char *at, size_t length)
{
    int32_t code = 0;
    if (length < 6 || at[0] != '\\' || at[1] != 'u') return -1;
    for (int i = 2; i < 6; i++) {
        const char c = at[i];
        const bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
        if (!letter && !(c >= '0' && c <= '9')) return -1;
        code = 16 * code + (letter ? (c | 0x20) - 'a' + 10 : c - '0');
    }
    return code;
}

static bool is_half(int32_t code, int32_t first)
{
    return code >= first && code < first + 0x400;
}

/* Reads an escaped code point, or a pair of halves; returns the bytes of the escape, 0 if it is
 * wrong. */
static size_t read_point(const char *at, size_t length, int32_t *point)
{
    const int32_t high = read_code(at, length);
    *point = high;
    if (high <= 0 || is_half(high, 0xDC00)) return 0;
    if (!is_half(high, 0xD800)) return 6;
    const int32_t low = read_code(at + 6, length - 6);
    *point = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    return is_half(low, 0xDC00) ? 12 : 0;
}

/* Writes a code point as UTF-8, and returns its bytes. */
static size_t put_point(int32_t point, char *to)
{
    const int more = point < 0x80 ? 0 : point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xC0, 0xE0, 0xF0};
    to[0] = (char)(lead[more] | (point >> (6 * more)));
    for (int i = 1; i <= more; i++) to[i] = (char)(0x80 | ((point >> (6 * (more - i))) & 0x3F));
    return (size_t)more + 1;
}

/* The escapes of one letter, and what they stand for. */
static const char letters[] = "\"\\/bfnrt", characters[] = "\"\\/\b\f\n\r\t";

const char *weft__json_text(json_span string, char *text)
{
    const char *at = string.at + 1, *end = string.at + string.length - 1;
    char character[JSON_CHARACTER];
    if (string.length < 2 || *string.at != '"' || *end != '"') return string.at;
    while (at < end) {
        const char *letter = NULL;
        size_t taken = 1, n = 1;
        int32_t point;
        if ((unsigned char)*at < ' ') return at;
        if (*at == '\\') {
            letter = at + 1 < end ? strchr(letters, at[1]) : NULL;
            taken = letter ? 2 : read_point(at, (size_t)(end - at), &point);
            if (!taken) return at;
            if (!letter) n = put_point(point, character);
        }
        if (letter || taken == 1) character[0] = letter ? characters[letter - letters] : *at;
        if (text) {
            memcpy(text, character, n);
            text += n;
        }
        at += taken;
    }
    if (text) *text = 0;
    return NULL;
}

/* The bytes of the digits at the beginning of a text. */
static size_t digits(const char *at, const char *end)
{
    size_t n = 0;
    while (at + n < end && at[n] >= '0' && at[n] <= '9') n++;
    return n;
}

/* Whether a span is a number: -? (0 | [1-9] digits) (. digits)? ([eE] [+-]? digits)? */
static bool is_number(json_span s)
{
    const char *at = s.at, *end = s.at + s.length;
    at += at < end && *at == '-';
    size_t n = digits(at, end);
    if (!n || (n > 1 && *at == '0')) return false;
    at += n;
    if (at < end && *at == '.') {
        n = digits(++at, end);
        if (!n) return false;
        at += n;
    }
    if (at < end && (*at | 0x20) == 'e') {
        at++;
        at += at < end && (*at == '+' || *at == '-');
        n = digits(at, end);
        if (!n) return false;
        at += n;
    }
    return at == end;
}

bool weft__json_whole(json_span number, uint64_t *value)
{
    double x;
    if (!is_number(number) || !weft__text_read_double(number.at, &x)) return false;
    if (!(x >= 0 && x < 9007199254740992.0) || floor(x) != x) return false;
    *value = (uint64_t)x;
    return true;
}

#define MAX_DEPTH 100

static const char *check_value(json_span value, int depth)
{
    json_members members = {.rest = value};
    const bool object = *value.at == '{';
    if (*value.at == '"') return weft__json_text(value, NULL);
    if (!object && *value.at != '[') {
        static const char *const words[] = {"true", "false", "null"};
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (value.length == strlen(words[i]) && !memcmp(value.at, words[i], value.length))
                return NULL;
        return is_number(value) ? NULL : value.at;
    }
    if (depth == MAX_DEPTH) return value.at;
    for (;;) {
        json_span key = {NULL, 0}, item;
        const json_step step =
            object ? weft__json_next(&members, &key, &item) : weft__json_item(&members, &item);
        if (step == JSON_MALFORMED) return members.rest.at;
        if (step == JSON_END) return NULL;
        const char *wrong = object ? weft__json_text(key, NULL) : NULL;
        if (!wrong) wrong = check_value(item, depth + 1);
        if (wrong) return wrong;
    }
}

const char *weft__json_check(json_span value)
{
    return check_value(value, 0);
}

/* ---- Writing ---- */

size_t weft__json_put(const char **text, char to[JSON_CHARACTER])
{
    static const char digits[] = "0123456789abcdef";
    const char *at = *text, *special = *at == '/' ? NULL : strchr(characters, *at);
    const size_t bytes = weft__text_character_bytes(at), longest = strlen(TEXT_REPLACEMENT);
    *text += bytes ? bytes : 1;
    if (special) {
        to[0] = '\\';
        to[1] = letters[special - characters];
        return 2;
    }
    if ((unsigned char)*at < ' ') {
        to[0] = '\\';
        to[1] = 'u';
        to[2] = to[3] = '0';
        to[4] = digits[*at >> 4];
        to[5] = digits[*at & 15];
        return 6;
    }
    memcpy(to, bytes ? at : TEXT_REPLACEMENT, bytes ? bytes : longest);
    return bytes ? bytes : longest;
}
