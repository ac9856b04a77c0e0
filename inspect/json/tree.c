/* cJSON in the C locale. All of it takes O(length). */
#include "tree.h"

#include "base/platform.h"
#include "base/text.h"

#include <errno.h>
#include <string.h>

/* The white space of JSON; cJSON accepts every control character as such. */
static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Levels of brackets; cJSON recurses, with about 100 bytes of stack a level. */
#define MAX_DEPTH 100

/* Position of the first byte that cJSON would accept and JSON, or weft, does not: a control
 * character other than white space between values, an escaped zero, which would end a C string, or
 * a bracket that opens one level too many. `length` if there is none. */
static size_t find_forbidden(const char *text, size_t length)
{
    bool quoted = false;
    int depth = 0;
    for (size_t i = 0; i < length; i++) {
        if (!quoted && (text[i] == '[' || text[i] == '{') && ++depth > MAX_DEPTH) return i;
        if (!quoted && (text[i] == ']' || text[i] == '}')) depth--;
        if ((unsigned char)text[i] < ' ' && (quoted || !is_blank(text[i]))) return i;
        if (text[i] == '"') quoted = !quoted;
        if (!quoted || text[i] != '\\') continue;
        if (length - i >= 6 && !memcmp(text + i, "\\u0000", 6)) return i;
        i++; /* the escaped character */
    }
    return length;
}

cJSON *weft__json_parse(const char *text, size_t length, json_failure *why)
{
    json_failure unused;
    if (!why) why = &unused;
    *why = (json_failure){false, find_forbidden(text, length)};
    if (why->position < length) return NULL;
    const char *end = text;
    os_locale locale = weft__os_enter_c_locale();
    int before = errno;
    errno = 0;
    cJSON *json = cJSON_ParseWithLengthOpts(text, length, &end, false);
    /* cJSON does not report it, but allocators of POSIX set errno. */
    why->no_memory = !json && errno == ENOMEM;
    errno = before;
    weft__os_leave_c_locale(locale);
    why->position = end ? (size_t)(end - text) : 0;
    while (json && why->position < length && is_blank(text[why->position])) why->position++;
    if (!json || why->position == length) return json;
    cJSON_Delete(json);
    return NULL;
}

/* The text with U+FFFD instead of each byte that is not UTF-8. It is outside strings plain ASCII.
 */
static char *as_utf8(char *text)
{
    if (!text || weft__text_is_utf8(text)) return text;
    const size_t longest = strlen(TEXT_REPLACEMENT);
    char *valid = cJSON_malloc(longest * strlen(text) + 1), *to = valid;
    for (const char *at = text; valid && *at;) {
        const size_t n = weft__text_character_bytes(at);
        memcpy(to, n ? at : TEXT_REPLACEMENT, n ? n : longest);
        to += n ? n : longest;
        at += n ? n : 1;
    }
    if (valid) *to = 0;
    cJSON_free(text);
    return valid;
}

char *weft__json_print(const cJSON *json, bool lines)
{
    os_locale locale = weft__os_enter_c_locale();
    char *text = lines ? cJSON_Print(json) : cJSON_PrintUnformatted(json);
    weft__os_leave_c_locale(locale);
    return as_utf8(text);
}
