/* Models that look words up: WordPiece (Schuster and Nakajima 2012), which takes the longest piece
 * that fits, O(n^2) for a word of n characters, and WordLevel. */
#include "state.h"
#include "unicode.h"

#include <string.h>

static weft_status add_unknown(const tk_model *m, tk_work *w, size_t begin, size_t end)
{
    if (m->unk < 0)
        return weft_error_set(w->error, WEFT_NOT_FOUND, "tokenizer",
                              "a word is unknown, and the vocabulary has no piece for these");
    weft__tk_token(w, m->unk, begin, end);
    return WEFT_OK;
}

static int32_t find(const tk_model *m, const char *bytes, size_t n)
{
    const int32_t id = weft__tk_vocabulary_find(&m->vocabulary, bytes, n);
    return id < m->own_size ? id : -1;
}

weft_status weft__tk_wordlevel_encode(const tk_model *m, tk_work *w, size_t begin, size_t end)
{
    const int32_t id = find(m, w->text.bytes + begin, end - begin);
    if (id < 0) return add_unknown(m, w, begin, end);
    weft__tk_token(w, id, begin, end);
    return WEFT_OK;
}

static size_t count(const char *bytes, size_t n)
{
    size_t characters = 0;
    for (size_t i = 0; i < n; i++) characters += ((unsigned char)bytes[i] & 0xC0) != 0x80;
    return characters;
}

/* The end of the longest piece that begins at `at`, whose id *id becomes; `at` if there is none. */
static size_t longest(const tk_model *m, tk_work *w, size_t at, size_t end, bool continues)
{
    const size_t before = continues && m->prefix ? strlen(m->prefix) : 0;
    const size_t n = end - at < m->longest ? end - at : m->longest;
    if (!weft__tk_reserve(w, &w->buffer, &w->buffer_capacity, before + n + 1, 1)) return at;
    if (before) memcpy(w->buffer, m->prefix, before);
    memcpy(w->buffer + before, w->text.bytes + at, n);
    for (size_t length = n; length > 0; length--) {
        if (at + length < end && ((unsigned char)w->text.bytes[at + length] & 0xC0) == 0x80)
            continue;
        const int32_t id = find(m, w->buffer, before + length);
        if (id < 0) continue;
        weft__tk_token(w, id, at, at + length);
        return at + length;
    }
    return at;
}

weft_status weft__tk_wordpiece_encode(const tk_model *m, tk_work *w, size_t begin, size_t end)
{
    const size_t before = w->n_tokens;
    if (count(w->text.bytes + begin, end - begin) > m->max_characters)
        return add_unknown(m, w, begin, end);
    for (size_t at = begin, next; at < end; at = next) {
        next = longest(m, w, at, end, at > begin);
        if (w->failed) return WEFT_NO_MEMORY;
        if (next > at) continue;
        w->n_tokens = before;
        return add_unknown(m, w, begin, end);
    }
    return WEFT_OK;
}
