/* Matching the beginnings of texts: PCRE2 reports a partial match where it reaches the end of a text
 * and could go on.
 *
 * A text that ends within a character begins a match if one of the characters that its last bytes
 * may become continues it. Trying all of them would take too long where one byte of four is known, so
 * these are tried: all where two bytes of three or three of four are known, and of others every 16th
 * or 256th and those that the pattern names. Characters that are tried for some bytes are also tried
 * for more of their bytes, so a text that was accepted can be continued. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "constraint.h"

#include "base/sort.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits of a match. Patterns that match in one way take a few steps for each byte. */
#define BASE_STEPS 20000
#define BYTE_STEPS 200
#define CHEAP      32 /* a match that takes more than 1/32 of them counts as 33 */
#define HEAP_KB    (64 * 1024)
#define STACK_MAX  (1024 * 1024)

/* Characters beyond ASCII that a pattern names: each may be tried for the bytes of a token. */
#define MAX_NAMED 4096

struct weft_constraint {
    char *pattern;
    pcre2_code *code;
    uint32_t *named; /* [n_named], increasing: characters beyond ASCII in the pattern */
    size_t n_named;
};

/* ---- Patterns ---- */

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

/* Takes the pattern, which free() frees; NULL: there was no memory for it. */
static weft_constraint *make(char *pattern, bool is_json, weft_error *error)
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
        return make(strdup(pattern), false, error);
    weft_error_set(error, WEFT_BAD_ARGUMENT, "regular expression",
                   pattern ? "is not UTF-8" : "is NULL");
    return NULL;
}

weft_constraint *weft_constraint_new_json(const char *schema, weft_error *error)
{
    weft_error_clear(error);
    if (schema && !weft_text_is_utf8(schema, strlen(schema))) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "schema", "is not UTF-8");
        return NULL;
    }
    char *pattern = weft__schema_pattern(schema, error);
    return pattern ? make(pattern, true, error) : NULL;
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

/* ---- Matching ---- */

bool weft__constraint_open(constraint_matcher *m, const weft_constraint *constraint,
                           weft_error *error)
{
    *m = (constraint_matcher){.constraint = constraint};
    m->data = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(32 * 1024, STACK_MAX, NULL); /* NULL without JIT */
    if (m->data && m->context) {
        pcre2_set_heap_limit(m->context, HEAP_KB);
        if (m->stack) pcre2_jit_stack_assign(m->context, NULL, m->stack);
        return true;
    }
    weft__constraint_close(m);
    weft__constraint_no_memory(error);
    return false;
}

void weft__constraint_close(constraint_matcher *m)
{
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    *m = (constraint_matcher){.constraint = NULL};
}

/* Matches with 1 / `part` of the steps that a match may take. */
static int run(constraint_matcher *m, const char *bytes, size_t length, uint32_t options, int part)
{
    const pcre2_code *code = m->constraint->code;
    const size_t most = (UINT32_MAX - BASE_STEPS) / BYTE_STEPS;
    const uint32_t steps = BASE_STEPS + BYTE_STEPS * (uint32_t)(length < most ? length : most);
    pcre2_set_match_limit(m->context, steps / (uint32_t)part);
    int n = pcre2_match(code, (PCRE2_SPTR)bytes, length, 0, options, m->data, m->context);
    if (n == PCRE2_ERROR_JIT_STACKLIMIT)
        n = pcre2_match(code, (PCRE2_SPTR)bytes, length, 0, options | PCRE2_NO_JIT, m->data,
                        m->context);
    return n;
}

/* Sets *found to whether whole characters match, or with PCRE2_PARTIAL_HARD may. */
static weft_status match(constraint_matcher *m, const char *bytes, size_t length, uint32_t options,
                         bool *found, weft_error *error)
{
    /* PCRE2 has no partial matches without a byte. */
    *found = !length && options;
    if (*found) return WEFT_OK;
    if (m->matches >= MAX_MATCHES)
        return weft_error_set(error, WEFT_TOO_LARGE, "constraint",
                              "the regular expression takes more than %d matches for the tokens "
                              "that may follow a text",
                              MAX_MATCHES);
    int n = run(m, bytes, length, options, CHEAP);
    m->matches++;
    if (n == PCRE2_ERROR_MATCHLIMIT) {
        n = run(m, bytes, length, options, 1);
        m->matches += CHEAP;
    }
    *found =
        n == PCRE2_ERROR_PARTIAL || (n >= 0 && pcre2_get_ovector_pointer(m->data)[1] == length);
    if (n >= 0 || n == PCRE2_ERROR_PARTIAL || n == PCRE2_ERROR_NOMATCH ||
        (n <= PCRE2_ERROR_UTF8_ERR1 && n >= PCRE2_ERROR_UTF8_ERR21))
        return WEFT_OK;
    if (n == PCRE2_ERROR_NOMEMORY) return weft__constraint_no_memory(error);
    return weft_error_set(error, WEFT_TOO_LARGE, "constraint",
                          "the regular expression takes too many steps on a text of %zu bytes: it "
                          "can match in too many ways",
                          length);
}

/* Bytes at the end of a text that begin a character of *whole bytes; 0 if there are none. */
static size_t begun(const char *bytes, size_t length, size_t *whole)
{
    size_t n = 1;
    while (n < CHARACTER_BYTES && n <= length && ((unsigned char)bytes[length - n] & 0xC0) == 0x80)
        n++;
    if (n > length) return 0;
    const unsigned char first = (unsigned char)bytes[length - n];
    *whole = first < 0xC2 || first > 0xF4 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    return n < *whole ? n : 0;
}

static void write_character(uint32_t c, size_t bytes, char *to)
{
    static const unsigned char first[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = bytes; i-- > 1; c >>= 6) to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)(first[bytes] | c);
}

/* The range of characters of `whole` bytes that begin with n bytes. */
static void range_of(const char *bytes, size_t n, size_t whole, uint32_t *low, uint32_t *high)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t c = (unsigned char)bytes[0] & (0x7FU >> whole);
    for (size_t i = 1; i < n; i++) c = c << 6 | ((unsigned char)bytes[i] & 0x3F);
    const size_t shift = 6 * (whole - n);
    *low = c << shift;
    *high = *low + ((uint32_t)1 << shift) - 1;
    if (*low < smallest[whole]) *low = smallest[whole];
    if (*high > 0x10FFFF) *high = 0x10FFFF;
}

typedef struct completion {
    char *at; /* where the character begins */
    size_t whole, length;
} completion;

static weft_status try_character(constraint_matcher *m, const completion *k, uint32_t c,
                                 bool *begins, weft_error *error)
{
    write_character(c, k->whole, k->at);
    return match(m, k->at - k->length, k->length + k->whole, PCRE2_PARTIAL_HARD, begins, error);
}

static weft_status complete(constraint_matcher *m, const completion *k, size_t known, bool *begins,
                            weft_error *error)
{
    static const uint32_t steps[] = {1, 1, 16, 256};
    const weft_constraint *c = m->constraint;
    uint32_t low, high;
    char saved[CHARACTER_BYTES];
    weft_status status = WEFT_OK;
    memcpy(saved, k->at, known);
    range_of(k->at, known, k->whole, &low, &high);
    const uint32_t step = steps[k->whole - known];
    *begins = false;
    for (size_t i = 0; i < c->n_named && !*begins && status == WEFT_OK; i++)
        if (c->named[i] >= low && c->named[i] <= high)
            status = try_character(m, k, c->named[i], begins, error);
    for (uint32_t x = low; x <= high && !*begins && status == WEFT_OK; x += step)
        status = try_character(m, k, x, begins, error);
    memcpy(k->at, saved, known);
    return status;
}

weft_status weft__constraint_begins(constraint_matcher *m, char *bytes, size_t length, bool *begins,
                                    weft_error *error)
{
    size_t whole = 0;
    const size_t known = begun(bytes, length, &whole);
    const weft_status status = match(m, bytes, length - known, PCRE2_PARTIAL_HARD, begins, error);
    if (status != WEFT_OK || !*begins || !known) return status;
    const completion k = {bytes + length - known, whole, length - known};
    return complete(m, &k, known, begins, error);
}

weft_status weft__constraint_whole(constraint_matcher *m, const char *bytes, size_t length,
                                   bool *whole, weft_error *error)
{
    return match(m, bytes, length, 0, whole, error);
}

weft_status weft_constraint_match(const weft_constraint *constraint, const char *bytes,
                                  size_t length, weft_constraint_state *state, weft_error *error)
{
    constraint_matcher m;
    bool begins = false, whole = false;
    weft_error_clear(error);
    if (!constraint || (length && !bytes) || !state)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "constraint",
                              "matching needs a constraint, bytes and a state");
    *state = WEFT_CONSTRAINT_NEVER;
    if (!weft__constraint_open(&m, constraint, error)) return WEFT_NO_MEMORY;
    char *copy = malloc(length + CHARACTER_BYTES);
    weft_status status = WEFT_NO_MEMORY;
    if (copy) {
        if (length) memcpy(copy, bytes, length);
        status = weft__constraint_whole(&m, copy, length, &whole, error);
        if (status == WEFT_OK && !whole)
            status = weft__constraint_begins(&m, copy, length, &begins, error);
    } else {
        weft__constraint_no_memory(error);
    }
    if (status == WEFT_OK && (whole || begins))
        *state = whole ? WEFT_CONSTRAINT_WHOLE : WEFT_CONSTRAINT_MAYBE;
    free(copy);
    weft__constraint_close(&m);
    return status;
}
