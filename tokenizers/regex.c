/* Regular expressions by PCRE2, which matches what Oniguruma does after some of the pattern is
 * rewritten: classes that differ, and the numbers of characters. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "regex.h"

#include "unicode.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

struct tk_regex {
    tk_scan *scan;
    char *text; /* found as it is */
    size_t n_text;
    pcre2_code *code;
};

#define SPACES                                                                                     \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
/* Oniguruma counts superscript and vulgar digits of Latin-1 as parts of words. */
#define WORDS                                                                                      \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}"     \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

static const struct {
    char escape;
    const char *alone, *in_class; /* NULL: cannot be written so */
} rewritten[] = {
    {'s', "[" SPACES "]", SPACES}, {'S', "[^" SPACES "]", NULL},      {'w', "[" WORDS "]", WORDS},
    {'W', "[^" WORDS "]", NULL},   {'h', "[0-9a-fA-F]", "0-9a-fA-F"}, {'H', "[^0-9a-fA-F]", NULL},
    {'v', "\\x{b}", "\\x{b}"},
};

typedef struct rewriting {
    const char *from;
    char *to;
    bool in_class;
    char *why; /* [160]; "" without an error */
} rewriting;

static void append(rewriting *r, const char *text, size_t n)
{
    memcpy(r->to, text, n);
    r->to += n;
}

static void complain(rewriting *r, const char *what)
{
    snprintf(r->why, 160, "%s is unsupported", what);
}

static void rewrite_escape(rewriting *r)
{
    const char c = r->from[1];
    for (size_t i = 0; i < sizeof rewritten / sizeof *rewritten; i++) {
        if (rewritten[i].escape != c) continue;
        const char *text = r->in_class ? rewritten[i].in_class : rewritten[i].alone;
        /* In a class, PCRE2's own meaning differs in characters of no consequence. */
        if (!text) break;
        append(r, text, strlen(text));
        r->from += 2;
        return;
    }
    if (c == 'u' && strspn(r->from + 2, "0123456789abcdefABCDEF") >= 4) {
        append(r, "\\x{", 3);
        append(r, r->from + 2, 4);
        append(r, "}", 1);
        r->from += 6;
        return;
    }
    append(r, r->from, c ? 2 : 1);
    r->from += c ? 2 : 1;
}

/* A count such as {1,3}, after which + repeats it again in Oniguruma and is possessive in PCRE2. */
static bool is_count(const char *at)
{
    const size_t n = strspn(at + 1, "0123456789,");
    return n > 0 && at[1 + n] == '}' && at[2 + n] == '+';
}

/* A count without a lower bound, such as {,3}, which PCRE2 reads as characters. */
static bool is_open_count(const char *at)
{
    const size_t n = at[1] == ',' ? strspn(at + 2, "0123456789") : 0;
    return n > 0 && at[2 + n] == '}';
}

/* The option m, by which a dot matches a line's end in Oniguruma, and ^ a line's beginning in PCRE2. */
static bool is_option_m(const char *at)
{
    const size_t n = !strncmp(at, "(?", 2) ? strspn(at + 2, "imsx-") : 0;
    return n > 0 && memchr(at + 2, 'm', n) && (at[2 + n] == ')' || at[2 + n] == ':');
}

static void rewrite(rewriting *r)
{
    while (*r->from && !r->why[0]) {
        const char c = *r->from;
        if (c == '\\') {
            rewrite_escape(r);
            continue;
        }
        if (r->in_class && c == '[') complain(r, "a class within a class");
        if (r->in_class && !strncmp(r->from, "&&", 2)) complain(r, "an intersection of classes");
        if (!r->in_class && c == '{' && is_count(r->from)) complain(r, "a repeated count");
        if (!r->in_class && c == '(' && is_option_m(r->from)) complain(r, "the option m");
        if (!r->in_class && c == '{' && is_open_count(r->from)) {
            append(r, "{0", 2);
            r->from++;
            continue;
        }
        if (c == '[') r->in_class = true;
        if (c == ']') r->in_class = false;
        append(r, r->from++, 1);
    }
    *r->to = 0;
}

static pcre2_code *compile(const char *pattern, char why[160])
{
    int number;
    PCRE2_SIZE at;
    /* The longest replacement has less than 200 bytes. */
    char *text = malloc(200 * strlen(pattern) + 1);
    if (!text) return NULL;
    rewriting r = {pattern, text, false, why};
    rewrite(&r);
    pcre2_code *code = NULL;
    if (!why[0]) {
        code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &number, &at, NULL);
        if (!code && number != PCRE2_ERROR_HEAP_FAILED)
            pcre2_get_error_message(number, (PCRE2_UCHAR *)why, 160);
    }
    free(text);
    if (code) pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    return code;
}

tk_regex *weft__tk_regex_new(const char *pattern, bool is_regex, char why[160])
{
    why[0] = 0;
    tk_regex *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    if (is_regex) {
        r->scan = weft__tk_scanner_of(pattern);
        if (r->scan || (r->code = compile(pattern, why))) return r;
    } else {
        r->n_text = strlen(pattern);
        r->text = malloc(r->n_text + 1);
        if (r->text) {
            memcpy(r->text, pattern, r->n_text + 1);
            return r;
        }
    }
    free(r);
    return NULL;
}

void weft__tk_regex_free(tk_regex *r)
{
    if (!r) return;
    free(r->text);
    pcre2_code_free(r->code);
    free(r);
}

void weft__tk_match_data_free(void *match_data)
{
    pcre2_match_data_free(match_data);
}

static void scan_all(const tk_regex *r, tk_work *w, const char *text, size_t n, size_t base)
{
    for (size_t at = 0; at < n && !w->failed;) {
        const size_t end = r->scan(text, at, n);
        weft__tk_match(w, base + at, base + end, true);
        at = end;
    }
}

/* A range that did not match, if it is not empty, and one that did. */
static size_t push(tk_work *w, size_t base, size_t last, size_t begin, size_t end)
{
    if (begin > last) weft__tk_match(w, base + last, base + begin, false);
    weft__tk_match(w, base + begin, base + end, true);
    return end;
}

static size_t find_text(const tk_regex *r, tk_work *w, const char *text, size_t n, size_t base)
{
    size_t last = 0;
    const char *at = text;
    if (r->n_text == 0) return 0;
    while ((at = memmem(at, n - (size_t)(at - text), r->text, r->n_text)) != NULL && !w->failed) {
        const size_t begin = (size_t)(at - text);
        last = push(w, base, last, begin, begin + r->n_text);
        at += r->n_text;
    }
    return last;
}

static size_t find_code(const tk_regex *r, tk_work *w, const char *text, size_t n, size_t base)
{
    size_t last = 0, from = 0;
    if (!w->match_data) w->match_data = pcre2_match_data_create(1, NULL);
    if (!w->match_data) w->failed = true;
    while (from <= n && !w->failed) {
        int found = pcre2_match(r->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK,
                                w->match_data, NULL);
        if (found == PCRE2_ERROR_JIT_STACKLIMIT)
            found = pcre2_match(r->code, (PCRE2_SPTR)text, n, from,
                                PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w->match_data, NULL);
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found < 0) {
            w->failed = true;
            if (found != PCRE2_ERROR_NOMEMORY)
                w->too_large = "a regular expression takes too many steps on this text";
            break;
        }
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(w->match_data);
        const size_t begin = at[0], end = at[1];
        if (end < begin || begin < last) break; /* \K in a lookahead */
        last = push(w, base, last, begin, end);
        from = end;
        if (begin == end) from += end < n ? weft__tk_character_bytes((unsigned char)text[end]) : 1;
    }
    return last;
}

void weft__tk_regex_match(const tk_regex *r, tk_work *w, const char *text, size_t n, size_t base)
{
    if (r->scan) {
        scan_all(r, w, text, n, base);
        return;
    }
    const size_t last = r->code ? find_code(r, w, text, n, base) : find_text(r, w, text, n, base);
    if (last < n) weft__tk_match(w, base + last, base + n, false);
}
