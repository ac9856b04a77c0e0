/* Patterns of constraints: regular expressions of a program, or of a schema, compiled by PCRE2. */
#include "pattern.h"

#include "base/sort.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Characters beyond ASCII that a pattern names: each may be tried for the bytes of a token. */
#define MAX_NAMED 4096

/* The character at `at`, or that of an escape \x{...}; 0 for ASCII. Moves *at past it. */
static uint32_t named_character(const char **at)
{
    const unsigned char *s = (const unsigned char *)*at;
    if (s[0] == '\\' && s[1] == 'x' && s[2] == '{') {
        char *end;
        const unsigned long value = strtoul(*at + 3, &end, 16);
        *at = end;
        return value > 0x7F && value <= 0x10FFFF ? (uint32_t)value : 0;
    }
    const int more = s[0] >= 0xF0 ? 3 : s[0] >= 0xE0 ? 2 : s[0] >= 0xC0 ? 1 : 0;
    uint32_t c = more ? s[0] & (0x3FU >> more) : 0;
    for (int i = 1; i <= more; i++) c = c << 6 | (s[i] & 0x3F);
    *at += 1 + more;
    return c;
}

static int by_number(const void *first, const void *second, void *context)
{
    const uint32_t a = *(const uint32_t *)first, b = *(const uint32_t *)second;
    (void)context;
    return (a > b) - (a < b);
}

/* Lists the different characters beyond ASCII of the pattern, by their numbers. */
static weft_status find_named(weft_constraint *c, const char *where, weft_error *error)
{
    size_t n = 0;
    c->named = calloc(strlen(c->pattern) + 1, sizeof *c->named);
    if (!c->named) return weft__constraint_no_memory(error);
    for (const char *at = c->pattern; *at;) {
        const uint32_t character = named_character(&at);
        if (character) c->named[n++] = character;
    }
    weft__sort(c->named, n, sizeof *c->named, by_number, NULL);
    for (size_t i = 0; i < n; i++)
        if (!c->n_named || c->named[c->n_named - 1] != c->named[i])
            c->named[c->n_named++] = c->named[i];
    if (c->n_named <= MAX_NAMED) return WEFT_OK;
    return weft_error_set(error, WEFT_TOO_LARGE, where,
                          "names %zu different characters beyond ASCII, at most %d are supported",
                          c->n_named, MAX_NAMED);
}

/* Whether (?R), (?0), \g<0> or \g'0' is at `at`. */
static bool calls_whole(const char *at)
{
    const bool group = !strncmp(at, "(?", 2);
    if (!group && strncmp(at, "\\g<", 3) != 0 && strncmp(at, "\\g'", 3) != 0) return false;
    if (group && at[2] == 'R') return true;
    const char *number = at + (group ? 2 : 3), *end = number + strspn(number, "0");
    return end > number && *end && strchr(group ? ")" : ">'", *end);
}

/* Fails for (*ACCEPT), which ends a match anywhere, and for a pattern that calls itself, with the ends
 * of the text. PCRE2 has found the pattern well-formed. */
static weft_status check_supported(const char *pattern, const char *where, weft_error *error)
{
    for (const char *at = pattern; *at; at++) {
        const size_t place = (size_t)(at - pattern);
        if (!strncmp(at, "(*ACCEPT", 8))
            return weft_error_set(error, WEFT_BAD_ARGUMENT, where,
                                  "(*ACCEPT) is unsupported, at byte %zu", place);
        if (calls_whole(at))
            return weft_error_set(error, WEFT_BAD_ARGUMENT, where,
                                  "a pattern that calls itself is unsupported, at byte %zu: name a "
                                  "group and call it, (?<name>...(?&name)...)",
                                  place);
        if (*at == '\\' && at[1]) at++;
    }
    return WEFT_OK;
}

/* Compiles bytes [begin, end) for whole texts: PCRE2 adds ^(?: and )$ after it has read the pattern.
 * (PCRE2_ENDANCHORED excludes partial matches.) If PCRE2 refuses the pattern, WEFT_BAD_ARGUMENT and
 * the reason. */
static weft_status compile_text(const char *text, size_t begin, size_t end, pcre2_code **code,
                                char why[PATTERN_WHY])
{
    int number = PCRE2_ERROR_HEAP_FAILED;
    size_t at = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    *code = NULL;
    if (context && pcre2_set_compile_extra_options(context, PCRE2_EXTRA_MATCH_LINE) == 0)
        *code = pcre2_compile((PCRE2_SPTR)(text + begin), end - begin,
                              PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_DOLLAR_ENDONLY |
                                  PCRE2_NEVER_BACKSLASH_C,
                              &number, &at, context);
    pcre2_compile_context_free(context);
    if (*code) return WEFT_OK;
    if (number == PCRE2_ERROR_HEAP_FAILED) return WEFT_NO_MEMORY;
    pcre2_get_error_message(number, (PCRE2_UCHAR *)why, PATTERN_WHY - 32);
    snprintf(why + strlen(why), 32, ", at byte %zu", begin + at);
    return WEFT_BAD_ARGUMENT;
}

weft_status weft__constraint_check(const char *pattern, size_t begin, size_t end,
                                   char why[PATTERN_WHY])
{
    pcre2_code *code;
    const weft_status status = compile_text(pattern, begin, end, &code, why);
    pcre2_code_free(code);
    return status;
}

static weft_status compile(weft_constraint *c, bool is_json, weft_error *error)
{
    const char *where = is_json ? "schema" : "regular expression";
    const size_t n = strlen(c->pattern);
    char why[PATTERN_WHY];
    const weft_status status = compile_text(c->pattern, 0, n, &c->code, why);
    if (status == WEFT_NO_MEMORY) return weft__constraint_no_memory(error);
    if (status != WEFT_OK && is_json)
        return weft_error_set(error, WEFT_TOO_LARGE, where,
                              "its regular expression of %zu bytes is refused: %s", n, why);
    if (status != WEFT_OK) return weft_error_set(error, status, where, "%s", why);
    pcre2_jit_compile(c->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    if (!is_json && check_supported(c->pattern, where, error) != WEFT_OK) return WEFT_BAD_ARGUMENT;
    return find_named(c, where, error);
}

weft_constraint *weft__constraint_make(char *pattern, bool is_json, weft_error *error)
{
    weft_constraint *c = calloc(1, sizeof *c);
    if (c && pattern) {
        c->pattern = pattern;
        if (compile(c, is_json, error) == WEFT_OK) return c;
        weft_constraint_free(c);
        return NULL;
    }
    weft__constraint_no_memory(error);
    free(pattern);
    free(c);
    return NULL;
}

weft_constraint *weft_constraint_new_regex(const char *pattern, weft_error *error)
{
    weft_error_clear(error);
    if (pattern && weft_text_is_utf8(pattern, strlen(pattern)))
        return weft__constraint_make(strdup(pattern), false, error);
    weft_error_set(error, WEFT_BAD_ARGUMENT, "regular expression",
                   pattern ? "is not UTF-8" : "is NULL");
    return NULL;
}

void weft_constraint_free(weft_constraint *constraint)
{
    if (!constraint) return;
    pcre2_code_free(constraint->code);
    free(constraint->named);
    free(constraint->pattern);
    free(constraint);
}

const char *weft_constraint_pattern(const weft_constraint *constraint)
{
    return constraint ? constraint->pattern : "";
}
