/* Tokens of mteval-v13a, the tokeniser of BLEU that Post 2018 made the standard. O(n). */
#include "characters.h"

#include <weft/text.h>

#include <stdlib.h>
#include <string.h>

/* Copies the text and replaces every `from` by `to`, which is not longer. */
static void replace_all(char *text, const char *from, const char *to)
{
    size_t length = strlen(from), other = strlen(to);
    char *out = text;
    while (*text) {
        if (!strncmp(text, from, length)) {
            memcpy(out, to, other);
            out += other;
            text += length;
        } else {
            *out++ = *text++;
        }
    }
    *out = 0;
}

static bool stands_apart(unsigned char c)
{
    return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
           (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

static bool is_point(char c)
{
    return c == '.' || c == ',';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The four rules of mteval-v13a. Each is applied to the result of the one before, from left to
 * right, to matches that do not overlap. They separate: 0, punctuation other than . , - '; 1, a
 * point after a character that is not a digit; 2, a point before one; 3, a hyphen after a digit. */
static size_t apply_rule(int rule, const char *x, size_t n, char *out)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        bool two = i + 1 < n;
        if (rule == 0 && stands_apart((unsigned char)x[i])) {
            out[at++] = ' ';
            out[at++] = x[i];
            out[at++] = ' ';
        } else if ((rule == 1 && two && !is_digit(x[i]) && is_point(x[i + 1])) ||
                   (rule == 3 && two && is_digit(x[i]) && x[i + 1] == '-')) {
            out[at++] = x[i++];
            out[at++] = ' ';
            out[at++] = x[i];
            out[at++] = ' ';
        } else if (rule == 2 && two && is_point(x[i]) && !is_digit(x[i + 1])) {
            out[at++] = ' ';
            out[at++] = x[i++];
            out[at++] = ' ';
            out[at++] = x[i];
        } else {
            out[at++] = x[i];
        }
    }
    return at;
}

/* Leaves one space between words, and none around them. */
static void squeeze(char *text)
{
    const char *from = text;
    char *to = text;
    bool pending = false;
    while (*from) {
        const char *begin = from;
        if (weft__text_is_space(weft__text_next(&from))) {
            pending = to != text;
            continue;
        }
        if (pending) *to++ = ' ';
        pending = false;
        memmove(to, begin, (size_t)(from - begin));
        to += from - begin;
    }
    *to = 0;
}

char *weft_text_tokens_13a(const char *line)
{
    if (!line) return NULL;
    static const char *const entities[][2] = {
        {"<skipped>", ""}, {"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}};
    size_t room = 3 * (strlen(line) + 2) * 2 + 1, n;
    char *a = malloc(room), *b = malloc(room);
    if (!a || !b) {
        free(a);
        free(b);
        return NULL;
    }
    a[0] = ' ';
    strcpy(a + 1, line);
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        replace_all(a + 1, entities[i][0], entities[i][1]);
    strcat(a, " ");
    n = strlen(a);
    for (int rule = 0; rule < 4; rule++) {
        n = apply_rule(rule, a, n, b);
        char *swap = a;
        a = b;
        b = swap;
    }
    a[n] = 0;
    free(b);
    squeeze(a);
    return a;
}
