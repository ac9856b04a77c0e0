/* See growing.h.
 *
 * The text of a token depends on the tokens before it: the first blank of a text is left out, and
 * several tokens may make one character. So the text that a token adds is the difference of two
 * decoded texts, which begin at the same earlier id. Incomplete characters are decoded as U+FFFD; a
 * text that ends in one waits for the next token. */
#include "growing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* ---- Stop texts ---- */

const char *stop_text_read(char *text)
{
    static const char escapes[] = "n\nt\t\\\\";
    char *to = text;
    if (!*text) return "is empty";
    if (!weft_text_is_utf8(text, strlen(text))) return "is not UTF-8";
    for (const char *at = text; *at; at++, to++) {
        *to = *at;
        if (*at != '\\') continue;
        const char *escape = escapes;
        at++;
        while (*escape && *escape != *at) escape += 2;
        if (!*at || !*escape) return "has an escape other than \\n, \\t and \\\\";
        *to = escape[1];
    }
    *to = 0;
    return NULL;
}

size_t stop_texts_cut(const stop_texts *stops, const char *text)
{
    size_t cut = strlen(text);
    for (size_t i = 0; i < stops->n; i++) {
        const char *at = strstr(text, stops->text[i]);
        if (at && (size_t)(at - text) < cut) cut = (size_t)(at - text);
    }
    return cut;
}

/* Whether a stop text is at text[n], or may be once more text follows. */
typedef enum stop_state { STOP_NONE, STOP_MAYBE, STOP_HERE } stop_state;
static stop_state stop_at(const stop_texts *stops, const char *text, size_t n)
{
    stop_state state = STOP_NONE;
    for (size_t i = 0; i < stops->n; i++) {
        const size_t length = strlen(stops->text[i]);
        if (memcmp(stops->text[i], text, length < n ? length : n) != 0) continue;
        if (length <= n) return STOP_HERE;
        state = STOP_MAYBE;
    }
    return state;
}

/* Advances `clear` to the first position where a stop text may begin. It waits there, even if a
 * stop text that begins later is already complete. */
static void look_for_stops(growing_text *g)
{
    stop_state state = STOP_NONE;
    while (g->clear < g->length) {
        state = stop_at(g->stops, g->text + g->clear, g->length - g->clear);
        if (state != STOP_NONE) break;
        g->clear++;
    }
    g->stopped = state == STOP_HERE;
}

/* ---- The text ---- */

size_t prompt_bytes(const char *given, const char *decoded, const char *found)
{
    size_t n = strlen(given);
    if (!strcmp(decoded, given)) return n;
    while (n && *found == ' ' && given[n - 1] == ' ') n--;
    return n;
}

static weft_status no_memory(weft_error *error)
{
    return weft_error_set(error, WEFT_NO_MEMORY, "text", "out of memory");
}

weft_status growing_open(growing_text *g, const weft_tokenizer *vocabulary, const stop_texts *stops,
                         const char *given, const int32_t *ids, size_t n, weft_error *error)
{
    *g = (growing_text){.vocabulary = vocabulary,
                        .stops = stops,
                        .given = given,
                        .n = n,
                        .capacity = n + 64,
                        .known = n};
    g->ids = calloc(g->capacity, sizeof *g->ids);
    g->text = calloc(1, 1);
    if (!g->ids || !g->text) return no_memory(error);
    memcpy(g->ids, ids, n * sizeof *ids);
    return weft_tokenizer_decode(vocabulary, ids, n, &g->prompt, NULL, error);
}

void growing_close(growing_text *g)
{
    free(g->prompt);
    free(g->ids);
    free(g->text);
}

static weft_status append_id(growing_text *g, int32_t id, weft_error *error)
{
    if (g->n == g->capacity) {
        int32_t *grown = realloc(g->ids, 2 * g->capacity * sizeof *grown);
        if (!grown) return no_memory(error);
        g->ids = grown;
        g->capacity *= 2;
    }
    g->ids[g->n++] = id;
    return WEFT_OK;
}

static weft_status append_text(growing_text *g, const char *fresh, weft_error *error)
{
    const size_t n = strlen(fresh);
    char *grown = realloc(g->text, g->length + n + 1);
    if (!grown) return no_memory(error);
    memcpy(grown + g->length, fresh, n + 1);
    g->text = grown;
    g->length += n;
    return WEFT_OK;
}

/* Decodes the ids from `known` on: the text *all from *fresh on, empty if it is not certain yet. */
static weft_status decode_fresh(const growing_text *g, char **all, const char **fresh,
                                weft_error *error)
{
    char *before = NULL;
    const size_t mark = strlen(REPLACEMENT);
    weft_status status = weft_tokenizer_decode(g->vocabulary, g->ids + g->anchor,
                                               g->known - g->anchor, &before, NULL, error);
    if (status == WEFT_OK)
        status = weft_tokenizer_decode(g->vocabulary, g->ids + g->anchor, g->n - g->anchor, all,
                                       NULL, error);
    if (status == WEFT_OK) {
        const size_t length = strlen(*all), old = strlen(before);
        bool waits = strncmp(*all, before, old) != 0 ||
                     (length >= mark && !strcmp(*all + length - mark, REPLACEMENT));
        *fresh = *all + (waits ? length : old);
    }
    free(before);
    return status;
}

/* Makes all ids known. The last of them become the anchor, unless their text is a single blank,
 * which would be left out at the beginning of a decoded text. */
static weft_status move_on(growing_text *g, weft_error *error)
{
    char *alone;
    weft_status status = weft_tokenizer_decode(g->vocabulary, g->ids + g->known, g->n - g->known,
                                               &alone, NULL, error);
    if (status == WEFT_OK && *alone) g->anchor = g->known;
    g->known = g->n;
    free(alone);
    return status;
}

weft_status growing_add(growing_text *g, int32_t id, weft_error *error)
{
    char *all = NULL;
    const char *fresh = "";
    weft_status status = append_id(g, id, error);
    if (status == WEFT_OK) status = decode_fresh(g, &all, &fresh, error);
    if (status == WEFT_OK && *fresh) {
        status = append_text(g, fresh, error);
        if (status == WEFT_OK) status = move_on(g, error);
        if (status == WEFT_OK) look_for_stops(g);
    }
    free(all);
    return status;
}

/* ---- Printing ---- */

weft_status growing_print(growing_text *g, bool lines, weft_error *error)
{
    if (g->clear == g->shown) return WEFT_OK;
    size_t before = g->shown ? 0 : prompt_bytes(g->given, g->prompt, g->text);
    size_t n = g->clear - g->shown;
    char *piece = malloc(before + n + 1);
    if (!piece) return no_memory(error);
    memcpy(piece, g->given, before);
    memcpy(piece + before, g->text + g->shown, n);
    piece[before + n] = 0;
    weft_text_clean(piece, lines);
    g->shown = g->clear;
    g->printed += strlen(piece);
    bool good = fputs(piece, stdout) != EOF && fflush(stdout) == 0;
    free(piece);
    return good ? WEFT_OK : weft_error_set(error, WEFT_IO, "output", "%s", strerror(errno));
}
