/* The tokens of a template, as Jinja 3 finds them with trim_blocks and lstrip_blocks: a newline
 * after a block is dropped, and so are spaces of a line before one. A minus within a tag drops
 * white space on its side, a plus keeps it. O(n). */
#include "chat/lex.h"

#include "chat/text.h"

#include <string.h>

static ct_token token(const ct_lexer *l, ct_token_kind kind, size_t begin, size_t end)
{
    return (ct_token){kind, l->line, 0, l->source + begin, end - begin};
}

static ct_token wrong(const ct_lexer *l, const char *what)
{
    return (ct_token){CT_WRONG, l->line, 0, what, strlen(what)};
}

/* Moves to `end`, and counts lines. */
static void move_to(ct_lexer *l, size_t end)
{
    for (; l->at < end; l->at++) l->line += l->source[l->at] == '\n';
}

static bool is_at(const ct_lexer *l, size_t at, const char *text)
{
    const size_t n = strlen(text);
    return l->bytes - at >= n && !memcmp(l->source + at, text, n);
}

static size_t skip_spaces(const ct_lexer *l, size_t at)
{
    return at + weft__ct_leading_spaces(l->source + at, l->bytes - at);
}

/* The end of a block or comment that `close` ends, of which trim_blocks drops a newline. */
static size_t trim_after(const ct_lexer *l, size_t at)
{
    return at < l->bytes && l->source[at] == '\n' ? at + 1 : at;
}

/* The end of `{% NAME %}` at `at`, whose sign *sign becomes; 0 if there is none. The first block of
 * a raw one keeps the newline after it. */
static size_t word_block(const ct_lexer *l, size_t at, const char *name, char *sign)
{
    const bool opens = !strcmp(name, "raw");
    if (!is_at(l, at, "{%")) return 0;
    at += 2;
    *sign = at < l->bytes && (l->source[at] == '-' || l->source[at] == '+') ? l->source[at] : 0;
    at = skip_spaces(l, at + (*sign != 0));
    if (!is_at(l, at, name)) return 0;
    at = skip_spaces(l, at + strlen(name));
    if (is_at(l, at, "-%}")) return skip_spaces(l, at + 3);
    if (!opens && is_at(l, at, "+%}")) return at + 3;
    if (!is_at(l, at, "%}")) return 0;
    return opens ? at + 2 : trim_after(l, at + 2);
}

/* The end of the text [begin, end) before a tag with that sign. */
static size_t strip_before(const ct_lexer *l, size_t begin, size_t end, char sign, bool is_output)
{
    if (sign == '-') return end - weft__ct_trailing_spaces(l->source + begin, end - begin);
    if (sign == '+' || is_output) return end;
    size_t line = end;
    while (line > begin && l->source[line - 1] != '\n') line--;
    const bool starts = line > begin || begin == 0 || l->source[begin - 1] == '\n';
    return starts && skip_spaces(l, line) >= end ? line : end;
}

/* The text of {% raw %}, whose body begins here. */
static ct_token raw_text(ct_lexer *l, size_t body)
{
    char sign;
    for (size_t at = body; at < l->bytes; at++) {
        const size_t end = l->source[at] == '{' ? word_block(l, at, "endraw", &sign) : 0;
        if (!end) continue;
        move_to(l, body);
        const ct_token text = token(l, CT_DATA, body, strip_before(l, body, at, sign, false));
        move_to(l, end);
        return text;
    }
    /* Jinja accepts one that nothing follows. */
    if (body < l->bytes) return wrong(l, "{% raw %} without {% endraw %}");
    move_to(l, body);
    return token(l, CT_DATA, body, body);
}

/* Moves after a comment that begins at `at`, its sign included. */
static bool skip_comment(ct_lexer *l, size_t at)
{
    for (size_t end = at; end + 1 < l->bytes; end++) {
        if (l->source[end] != '#' || l->source[end + 1] != '}') continue;
        const char sign = end > at ? l->source[end - 1] : 0;
        move_to(l, sign == '-'   ? skip_spaces(l, end + 2)
                   : sign == '+' ? end + 2
                                 : trim_after(l, end + 2));
        return true;
    }
    move_to(l, at);
    return at == l->bytes; /* as for {% raw %} */
}

/* Text up to the next tag, and that tag's beginning. An empty text is left out. */
static ct_token outside(ct_lexer *l)
{
    while (l->at < l->bytes) {
        const size_t begin = l->at;
        size_t at = begin;
        while (at < l->bytes && !is_at(l, at, "{%") && !is_at(l, at, "{{") && !is_at(l, at, "{#"))
            at++;
        if (at == l->bytes) {
            const ct_token rest = token(l, CT_DATA, begin, at);
            move_to(l, at);
            return rest;
        }
        const char kind = l->source[at + 1];
        char sign = at + 2 < l->bytes ? l->source[at + 2] : 0;
        if (sign != '-' && sign != '+') sign = 0;
        const size_t inside = at + 2 + (sign != 0);
        const ct_token text =
            token(l, CT_DATA, begin, strip_before(l, begin, at, sign, kind == '{'));
        move_to(l, at);
        const size_t raw = word_block(l, at, "raw", &sign);
        if (raw) {
            l->pending = raw_text(l, raw);
            l->has_pending = true;
        } else if (kind == '#') {
            if (!skip_comment(l, inside)) return wrong(l, "{# without #}");
        } else {
            l->inside = kind == '{' ? CT_OPEN_OUTPUT : CT_OPEN_BLOCK;
            l->pending = token(l, l->inside, at, inside);
            l->has_pending = true;
            move_to(l, inside);
        }
        if (text.bytes) return text;
        if (l->has_pending) {
            l->has_pending = false;
            return l->pending;
        }
    }
    return token(l, CT_END, l->bytes, l->bytes);
}

static bool is_digit(const ct_lexer *l, size_t at)
{
    return at < l->bytes && l->source[at] >= '0' && l->source[at] <= '9';
}

/* The end of digits with single underscores between them; `at` if there are none. */
static size_t digits(const ct_lexer *l, size_t at)
{
    while (is_digit(l, at)) {
        at++;
        if (at < l->bytes && l->source[at] == '_' && is_digit(l, at + 1)) at++;
    }
    return at;
}

static ct_token number(ct_lexer *l)
{
    const size_t begin = l->at, whole = digits(l, begin);
    size_t end = whole;
    const bool after_dot = begin > 0 && l->source[begin - 1] == '.';
    if (!after_dot && end < l->bytes && l->source[end] == '.' && is_digit(l, end + 1))
        end = digits(l, end + 1);
    if (!after_dot && end < l->bytes && (l->source[end] | 32) == 'e') {
        const bool sign = end + 1 < l->bytes && strchr("+-", l->source[end + 1]);
        if (is_digit(l, end + 1 + sign)) end = digits(l, end + 1 + sign);
    }
    ct_token found = token(l, end > whole ? CT_NUMBER : CT_WHOLE, begin, end);
    if (end == whole && whole - begin > 1 && l->source[begin] == '0' &&
        strspn(found.text, "0_") < whole - begin)
        return wrong(l, "a number begins with 0");
    l->at = end;
    return found;
}

static ct_token string(ct_lexer *l)
{
    const char quote = l->source[l->at];
    for (size_t end = l->at + 1; end < l->bytes; end++) {
        if (l->source[end] == '\\') {
            end++;
        } else if (l->source[end] == quote) {
            const ct_token found = token(l, CT_QUOTED, l->at, end + 1);
            move_to(l, end + 1);
            return found;
        }
    }
    return wrong(l, "a text without its closing quote");
}

static bool is_of_name(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
           (unsigned char)c >= 0x80;
}

/* Counts brackets, within which }} and %} do not end a tag. */
static const char *count_brackets(ct_lexer *l, char c)
{
    const char *pair = strchr("()[]{}", c);
    if (!pair) return NULL;
    if (c == '(' || c == '[' || c == '{') {
        if (l->n_opened == CT_MAX_NESTING) return "too many brackets";
        l->opened[l->n_opened++] = pair[1];
        return NULL;
    }
    return l->n_opened && l->opened[--l->n_opened] == c ? NULL : "a bracket that was not opened";
}

static ct_token operator(ct_lexer *l)
{
    static const char *const pairs[] = {"==", "!=", ">=", "<=", "//", "**"};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!is_at(l, l->at, pairs[i])) continue;
        ct_token found = token(l, CT_OPERATOR, l->at, l->at + 2);
        found.op = CT_TWO(pairs[i][0], pairs[i][1]);
        l->at += 2;
        return found;
    }
    const char c = l->source[l->at];
    if (!strchr("+-/*%~[](){}><=.:|,;", c)) return wrong(l, "an unexpected character");
    const char *problem = count_brackets(l, c);
    if (problem) return wrong(l, problem);
    ct_token found = token(l, CT_OPERATOR, l->at, l->at + 1);
    found.op = (unsigned char)c;
    l->at++;
    return found;
}

/* The end of the tag that is open, if it is here; 0 if it is not. */
static size_t tag_end(const ct_lexer *l)
{
    const bool is_block = l->inside == CT_OPEN_BLOCK;
    if (l->n_opened) return 0;
    if (is_at(l, l->at, is_block ? "-%}" : "-}}")) return skip_spaces(l, l->at + 3);
    if (is_block && is_at(l, l->at, "+%}")) return l->at + 3;
    if (!is_at(l, l->at, is_block ? "%}" : "}}")) return 0;
    return is_block ? trim_after(l, l->at + 2) : l->at + 2;
}

ct_token weft__ct_next_token(ct_lexer *l)
{
    if (l->has_pending) {
        l->has_pending = false;
        return l->pending;
    }
    if (l->inside == CT_DATA) return outside(l);
    for (;;) {
        const size_t end = tag_end(l);
        if (end) {
            const ct_token_kind kind =
                l->inside == CT_OPEN_BLOCK ? CT_CLOSE_BLOCK : CT_CLOSE_OUTPUT;
            const ct_token found = token(l, kind, l->at, end);
            move_to(l, end);
            l->inside = CT_DATA;
            return found;
        }
        const size_t spaces = skip_spaces(l, l->at);
        if (spaces == l->at) break;
        move_to(l, spaces);
    }
    if (l->at == l->bytes)
        return wrong(l, l->inside == CT_OPEN_BLOCK ? "{% without %}" : "{{ without }}");
    const char c = l->source[l->at];
    if (is_digit(l, l->at)) return number(l);
    if (c == '"' || c == '\'') return string(l);
    if (!is_of_name(c)) return operator(l);
    size_t end = l->at;
    while (end < l->bytes && is_of_name(l->source[end])) end++;
    const ct_token name = token(l, CT_NAME, l->at, end);
    l->at = end;
    return name;
}
