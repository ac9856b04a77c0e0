/* Values of JSON texts (RFC 8259), at most 100 levels deep. Numbers with a point or an exponent are
 * floats and others integers, a difference that cJSON does not keep. Of equal keys the last one
 * counts, at the place of the first. */
#include "chat/value.h"

#include "base/text.h"
#include "unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LEVELS 100

typedef struct reader {
    ct_render *r;
    const char *what, *text, *at;
} reader;

static ct_value malformed(reader *j)
{
    return weft__ct_fail(j->r, WEFT_BAD_ARGUMENT, "%s are not JSON at byte %zu", j->what,
                         (size_t)(j->at - j->text));
}

static void skip_spaces(reader *j)
{
    j->at += strspn(j->at, " \t\n\r");
}

static bool take(reader *j, char c)
{
    skip_spaces(j);
    if (*j->at != c) return false;
    j->at++;
    return true;
}

/* Four hexadecimal digits; -1 if there are fewer. */
static int32_t read_hex(const char *at)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        const char *found = at[i] ? strchr("0123456789abcdef0123456789ABCDEF", at[i]) : NULL;
        if (!found) return -1;
        value = value * 16 + (int32_t)(found - "0123456789abcdef0123456789ABCDEF") % 16;
    }
    return value;
}

/* Reads an escape after its backslash. */
static bool read_escape(reader *j, ct_buffer *b)
{
    static const char pairs[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    for (const char *pair = pairs; *pair; pair += 2) {
        if (*pair != *j->at) continue;
        weft__ct_put(b, pair + 1, 1);
        j->at++;
        return true;
    }
    int32_t c = *j->at == 'u' ? read_hex(j->at + 1) : -1;
    if (c <= 0 || (c >= 0xDC00 && c <= 0xDFFF)) return false;
    j->at += 5;
    if (c >= 0xD800 && c <= 0xDBFF) {
        const int32_t low = j->at[0] == '\\' && j->at[1] == 'u' ? read_hex(j->at + 2) : -1;
        if (low < 0xDC00 || low > 0xDFFF) return false;
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        j->at += 6;
    }
    weft__ct_put_character(b, (uint32_t)c);
    return true;
}

static ct_value read_string(reader *j)
{
    ct_buffer b = weft__ct_buffer();
    bool good = take(j, '"');
    while (good && *j->at != '"') {
        const size_t plain = strcspn(j->at, "\"\\");
        for (size_t i = 0; i < plain; i++) good &= (unsigned char)j->at[i] >= 0x20;
        weft__ct_put(&b, j->at, plain);
        j->at += plain;
        if (!*j->at || !good) good = false;
        if (good && *j->at == '\\') {
            j->at++;
            good = read_escape(j, &b);
        }
    }
    if (good) j->at++;
    const ct_value text = weft__ct_take(j->r, &b);
    return good ? text : malformed(j);
}

static ct_value read_number(reader *j)
{
    const char *begin = j->at, *digits = begin + (*begin == '-');
    size_t n = strspn(digits, "0123456789");
    double number;
    if (!n || (n > 1 && *digits == '0')) return malformed(j);
    const char *end = digits + n;
    if (*end == '.' && strspn(end + 1, "0123456789")) end += 1 + strspn(end + 1, "0123456789");
    if ((*end | 32) == 'e') {
        const size_t sign = end[1] == '+' || end[1] == '-';
        n = strspn(end + 1 + sign, "0123456789");
        if (n) end += 1 + sign + n;
    }
    j->at = end;
    const bool whole = strspn(digits, "0123456789") == (size_t)(end - digits);
    if (whole && end - digits <= 18) return ct_int(strtoll(begin, NULL, 10));
    if (whole)
        return weft__ct_fail(j->r, WEFT_BAD_FILE, "%s have an integer of more than 18 digits",
                             j->what);
    if (!weft__text_read_double(begin, &number)) return malformed(j);
    return ct_float(number);
}

static ct_value read_value(reader *j, int level);

static ct_value read_array(reader *j, int level)
{
    ct_items list = {NULL, 0, 0};
    j->at++;
    while (!take(j, ']')) {
        if (list.n && !take(j, ',')) return malformed(j);
        const ct_value item = read_value(j, level + 1);
        if (j->r->status != WEFT_OK) return item;
        weft__ct_add(j->r, &list, item);
    }
    return ct_sequence(CT_LIST, list.items, list.n);
}

/* The pairs are made of a list of keys and values. */
static ct_value read_object(reader *j, int level)
{
    ct_items list = {NULL, 0, 0};
    j->at++;
    while (!take(j, '}')) {
        if (list.n && !take(j, ',')) return malformed(j);
        const ct_value key = read_string(j);
        if (j->r->status == WEFT_OK && !take(j, ':')) return malformed(j);
        const ct_value value = read_value(j, level + 1);
        if (j->r->status != WEFT_OK) return value;
        weft__ct_add(j->r, &list, key);
        weft__ct_add(j->r, &list, value);
    }
    return weft__ct_dict(j->r, &list);
}

static ct_value read_value(reader *j, int level)
{
    static const char *const words[] = {"null", "true", "false"};
    if (level > MAX_LEVELS)
        return weft__ct_fail(j->r, WEFT_TOO_LARGE, "%s are nested too deeply", j->what);
    if (!weft__ct_work(j->r, 0)) return ct_none();
    skip_spaces(j);
    for (size_t i = 0; i < 3; i++) {
        if (strncmp(j->at, words[i], strlen(words[i])) != 0) continue;
        j->at += strlen(words[i]);
        return i ? ct_bool(i == 1) : ct_none();
    }
    if (*j->at == '"') return read_string(j);
    if (*j->at == '[') return read_array(j, level);
    return *j->at == '{' ? read_object(j, level) : read_number(j);
}

ct_value weft__ct_parse_json(ct_render *r, const char *text, const char *what)
{
    reader j = {r, what, text, text};
    const ct_value value = read_value(&j, 0);
    skip_spaces(&j);
    return r->status == WEFT_OK && *j.at ? malformed(&j) : value;
}
