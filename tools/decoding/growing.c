/* See growing.h. A weft_text_decoder makes the text of each token; it waits where a character is
 * incomplete. */
#include "growing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
    *g = (growing_text){.stops = stops, .given = given};
    g->text = calloc(1, 1);
    if (!g->text) return no_memory(error);
    weft_status status = weft_tokenizer_decode(vocabulary, ids, n, &g->prompt, NULL, error);
    if (status != WEFT_OK) return status;
    g->left = strlen(g->prompt);
    g->decoder = weft_text_decoder_new(vocabulary, error);
    if (!g->decoder) return WEFT_NO_MEMORY;
    for (size_t i = 0; i < n && status == WEFT_OK; i++) {
        const char *known;
        status = weft_text_decoder_add(g->decoder, ids[i], &known, error);
        const size_t bytes = status == WEFT_OK ? strlen(known) : 0;
        g->left -= bytes < g->left ? bytes : g->left;
    }
    return status;
}

void growing_close(growing_text *g)
{
    weft_text_decoder_free(g->decoder);
    free(g->prompt);
    free(g->text);
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

/* Adds what the decoder has returned, without the bytes of the prompt. */
static weft_status add_fresh(growing_text *g, const char *fresh, weft_error *error)
{
    const size_t bytes = strlen(fresh), given = bytes < g->left ? bytes : g->left;
    g->left -= given;
    const weft_status status = append_text(g, fresh + given, error);
    if (status == WEFT_OK) look_for_stops(g);
    return status;
}

weft_status growing_add(growing_text *g, int32_t id, weft_error *error)
{
    const char *fresh;
    const weft_status status = weft_text_decoder_add(g->decoder, id, &fresh, error);
    return status == WEFT_OK && *fresh ? add_fresh(g, fresh, error) : status;
}

weft_status growing_finish(growing_text *g, weft_error *error)
{
    const char *fresh;
    weft_status status = weft_text_decoder_end(g->decoder, &fresh, error);
    if (status == WEFT_OK) status = add_fresh(g, fresh, error);
    if (status != WEFT_OK) return status;
    g->clear = stop_texts_cut(g->stops, g->text);
    g->stopped = g->clear < g->length;
    return WEFT_OK;
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
