/* Strings and numbers of a schema: lengths, patterns, formats, and ranges of whole numbers. */
#include "schema.h"

#include <math.h>
#include <string.h>

/* ---- Strings ---- */

/* What a character of a JSON string cannot be without an escape. */
#define ESCAPED "(?![\"\\\\\\x00-\\x1f])"

/* The end of [:name:] at `at`; NULL for another text. */
static const char *end_of_posix(const char *at)
{
    if (strncmp(at, "[:", 2) != 0) return NULL;
    at += 2 + strspn(at + 2, "^abcdefghijklmnopqrstuvwxyz");
    return !strncmp(at, ":]", 2) ? at + 2 : NULL;
}

/* The end of a class [...] that begins at `at`; NULL if there is none, or for \Q and \E in it. */
static const char *end_of_class(const char *at)
{
    at++;
    if (*at == '^') at++;
    if (*at == ']') at++;
    for (; *at && *at != ']'; at++) {
        const char *posix = end_of_posix(at);
        if (posix) at = posix - 1;
        if (*at != '\\') continue;
        at++;
        if (!*at || *at == 'Q' || *at == 'E') return NULL;
    }
    return *at ? at + 1 : NULL;
}

/* The end of an escape that matches one character; NULL for another, such as \b or \1. */
static const char *end_of_escape(const char *at)
{
    const char c = at[1];
    if (strchr("pPxu", c ? c : '-') && at[2] == '{') {
        const char *end = strchr(at, '}');
        return c != 'u' && end ? end + 1 : NULL;
    }
    if (c == 'p' || c == 'P') return at[2] ? at + 3 : NULL;
    if (c == 'x') return strspn(at + 2, "0123456789abcdefABCDEF") >= 2 ? at + 4 : NULL;
    if (c && strchr("dDwWsSnrtfv", c)) return at + 2;
    return c && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z')
               ? at + 2
               : NULL;
}

/* Copies a pattern, in which what may match any character must not match one that needs an escape.
 * Returns where it is unsupported, or NULL. */
static const char *copy_pattern(schema_writer *w, const char *at, const char *end)
{
    for (const char *next; at < end; at = next) {
        next = at + 1;
        if (*at == '[')
            next = end_of_class(at);
        else if (*at == '\\')
            next = end_of_escape(at);
        else if (*at == '(' && at[1] == '?' && at[2] != ':')
            next = NULL;
        else if (strchr("^$\"", *at) || (unsigned char)*at < 0x20 || (*at == '(' && at[1] == '*'))
            next = NULL;
        if (!next || next > end) return at;
        if (*at == '\\' && (at[1] == '"' || at[1] == '\\')) return at;
        if (strchr("[\\.", *at))
            weft__schema_copy(w, "(?:" ESCAPED, at, next, ")");
        else if (*at == '(')
            weft__schema_put(w, at[1] == '?' ? "(" : "(?:");
        else
            weft__schema_copy(w, "", at, next, "");
    }
    return NULL;
}

static void write_pattern(schema_writer *w, const char *pattern, const schema_place *at)
{
    const schema_place place = {at, "pattern", 0};
    const size_t n = strlen(pattern);
    char why[PATTERN_WHY];
    const bool from_begin = n > 0 && pattern[0] == '^';
    const bool to_end =
        n > (size_t)from_begin && pattern[n - 1] == '$' && !(n > 1 && pattern[n - 2] == '\\');
    /* Alone, so that no bracket of it can close one around it. */
    const weft_status status = weft__constraint_check(pattern, from_begin, n - to_end, why);
    if (status == WEFT_NO_MEMORY) weft__schema_no_memory(w);
    if (status != WEFT_OK) weft__schema_refuse(w, &place, "%s", why);
    weft__schema_put(w, "\"%s(?:", from_begin ? "" : SCHEMA_PLAIN "*");
    /* An alternative that is not in brackets would have the anchors of the whole alone. */
    if (strchr(pattern, '|') && (from_begin || to_end)) {
        int depth = 0;
        for (const char *c = pattern; *c; c++) {
            const char *class_end = *c == '[' ? end_of_class(c) : NULL;
            if (class_end) c = class_end - 1;
            if (*c == '\\' && c[1]) c++;
            depth += (*c == '(') - (*c == ')');
            if (*c == '|' && depth == 0)
                weft__schema_refuse(w, &place,
                                    "alternatives with ^ or $ must be in brackets: ^(a|b)$");
        }
    }
    const char *wrong = copy_pattern(w, pattern + from_begin, pattern + n - to_end);
    if (wrong) weft__schema_refuse(w, &place, "\"%.20s\" is unsupported in a pattern", wrong);
    weft__schema_put(w, ")%s\"", to_end ? "" : SCHEMA_PLAIN "*");
}

/* Days of each month; 29 February in years that 4 divides, but 100 does not, or 400 does. */
#define LEAP "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29"
#define DATE                                                                                       \
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"                                 \
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP ")"
#define TIME                                                                                       \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"                                 \
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
static const char *const formats[][2] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"ipv4", BYTE "(?:\\." BYTE "){3}"},
    {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
    {"email", "[A-Za-z0-9_%+-]+(?:\\.[A-Za-z0-9_%+-]+)*@[A-Za-z0-9-]+(?:\\.[A-Za-z0-9-]+)+"},
};

static void write_format(schema_writer *w, const char *name, const schema_place *at)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(formats[i][0], name) != 0) continue;
        weft__schema_put(w, "\"%s\"", formats[i][1]);
        return;
    }
    weft__schema_refuse(w, at, "the format \"%s\" is unsupported", name);
}

void weft__schema_string(schema_writer *w, const cJSON *schema, const schema_place *at)
{
    const cJSON *pattern = weft__schema_keyword(schema, "pattern");
    const cJSON *format = weft__schema_keyword(schema, "format");
    const long least = weft__schema_count(w, schema, "minLength", 0, at);
    const long most = weft__schema_count(w, schema, "maxLength", -1, at);
    if ((pattern && !cJSON_IsString(pattern)) || (format && !cJSON_IsString(format)))
        weft__schema_refuse(w, at, "pattern and format must be texts");
    else if ((pattern != NULL) + (format != NULL) + (least > 0 || most >= 0) > 1)
        weft__schema_refuse(w, at, "lengths, a pattern and a format together are unsupported");
    else if (pattern)
        write_pattern(w, pattern->valuestring, at);
    else if (format)
        write_format(w, format->valuestring, at);
    else if (most >= 0 && most < least)
        weft__schema_refuse(w, at, "maxLength is below minLength");
    else if (most >= 0)
        weft__schema_put(w, "\"(?&c){%ld,%ld}\"", least, most);
    else if (least > 0)
        weft__schema_put(w, "\"(?&c){%ld,}\"", least);
    else
        weft__schema_put(w, "(?&s)");
}

/* ---- Numbers ---- */

#define MOST 9999999999999999LL /* 16 digits */

/* Writes alternatives for the whole numbers from low to high, which are 0 or more: a digit from a
 * range between a fixed beginning and any digits. */
static void write_range(schema_writer *w, long long low, long long high)
{
    while (low <= high) {
        long long unit = 1;
        int free_digits = 0;
        while (low > 0 && low % (10 * unit) == 0 && low + 10 * unit - 1 <= high) {
            unit *= 10;
            free_digits++;
        }
        const int from = (int)(low / unit % 10);
        int to = from;
        while (to < 9 && low + (to - from + 2) * unit - 1 <= high) to++;
        if (low / unit >= 10) weft__schema_put(w, "%lld", low / unit / 10);
        weft__schema_put(w, "[%d-%d]", from, to);
        if (free_digits) weft__schema_put(w, "[0-9]{%d}", free_digits);
        low += (to - from + 1) * unit;
        if (low <= high) weft__schema_put(w, "|");
    }
}

/* A bound as a number; `none` without it. */
static double bound(schema_writer *w, const cJSON *schema, const char *name, double none,
                    const schema_place *at)
{
    const cJSON *item = weft__schema_keyword(schema, name);
    if (!item) return none;
    if (cJSON_IsNumber(item)) return item->valuedouble;
    weft__schema_refuse(w, at, "%s must be a number", name);
    return none;
}

static void write_whole(schema_writer *w, double low, double high, const schema_place *at)
{
    if (low > high || low > (double)MOST || high < (double)-MOST) {
        weft__schema_refuse(w, at, "there is no whole number within the bounds");
        return;
    }
    /* As doubles, 10^16 - 1 is 10^16. */
    const long long from = low <= (double)-MOST ? -MOST : (long long)low;
    const long long to = high >= (double)MOST ? MOST : (long long)high;
    if (from > to) weft__schema_refuse(w, at, "there is no whole number within the bounds");
    weft__schema_put(w, "(?:");
    if (from < 0) {
        weft__schema_put(w, "-(?:");
        write_range(w, to < 0 ? -to : 1, -from);
        weft__schema_put(w, to < 0 ? ")" : ")|");
    }
    if (to >= 0) write_range(w, from < 0 ? 0 : from, to);
    weft__schema_put(w, ")");
}

void weft__schema_number(schema_writer *w, const cJSON *schema, bool whole, const schema_place *at)
{
    const double low = bound(w, schema, "minimum", -INFINITY, at);
    const double high = bound(w, schema, "maximum", INFINITY, at);
    const double above = bound(w, schema, "exclusiveMinimum", -INFINITY, at);
    const double below = bound(w, schema, "exclusiveMaximum", INFINITY, at);
    const bool bounded = isfinite(low) || isfinite(high) || isfinite(above) || isfinite(below);
    if (!bounded)
        weft__schema_put(w, whole ? "(?&i)" : "(?&n)");
    else if (whole)
        write_whole(w, fmax(ceil(low), floor(above) + 1), fmin(floor(high), ceil(below) - 1), at);
    else if (low == 0 && !isfinite(high) && !isfinite(above) && !isfinite(below))
        weft__schema_put(w, "(?!-)(?&n)");
    else
        weft__schema_refuse(w, at,
                            "bounds of a number that need not be whole are unsupported, other than "
                            "\"minimum\": 0");
}
