/* SentencePiece's precompiled map of characters: a double array (Aoe 1989, as darts-clone writes
 * it) from characters, and clusters of them, to offsets of the texts that replace them. */
#include "state.h"
#include "unicode.h"

#include <string.h>
#include <utf8proc.h>

/* The text that replaces the beginning of n bytes; NULL if nothing does. The shortest beginning
 * counts, as in the package `tokenizers`. */
static const char *find(const tk_charsmap *m, const char *bytes, size_t n)
{
    if (m->n_units == 0) return NULL;
    uint32_t unit = m->units[0];
    size_t node = (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
    for (size_t i = 0; i < n; i++) {
        const unsigned char b = (unsigned char)bytes[i];
        node ^= b;
        if (node >= m->n_units) return NULL;
        unit = m->units[node];
        if ((unit & (1u << 31 | 0xFF)) != b) return NULL;
        node ^= (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
        if (node >= m->n_units) return NULL;
        if (!(unit >> 8 & 1)) continue;
        const size_t at = m->units[node] & 0x7FFFFFFFu;
        /* The texts end with a zero byte, and each begins with a whole character. */
        return at <= m->n_texts && ((unsigned char)m->texts[at] & 0xC0) != 0x80 ? m->texts + at
                                                                                : NULL;
    }
    return NULL;
}

static size_t count(const char *text, size_t n)
{
    size_t characters = 0;
    for (size_t i = 0; i < n; i++) characters += ((unsigned char)text[i] & 0xC0) != 0x80;
    return characters;
}

/* Replaces n bytes, if the map does. Characters that are dropped belong to the one before, or to
 * *skipped. */
static bool replace(const tk_charsmap *m, tk_work *w, const char *bytes, size_t n, size_t *skipped)
{
    const char *text = find(m, bytes, n);
    if (!text) return false;
    const size_t old = count(bytes, n);
    if (!*text && w->n_changes > 0)
        w->changes[w->n_changes - 1].change -= (int32_t)old;
    else if (!*text)
        *skipped += old;
    size_t length;
    for (int32_t change = 1 - (int32_t)old; *text; change = 1, text += length)
        weft__tk_change(w, weft__tk_decode(text, &length), change);
    return true;
}

/* The end of the grapheme cluster at `at`. */
static size_t cluster(const char *bytes, size_t at, size_t end)
{
    size_t n;
    utf8proc_int32_t state = 0;
    uint32_t c = weft__tk_decode(bytes + at, &n);
    for (at += n; at < end; at += n) {
        if (c >= ' ' && c < 0x7F && (unsigned char)bytes[at] < 0x80) break;
        const uint32_t next = weft__tk_decode(bytes + at, &n);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next, &state))
            break;
        c = next;
    }
    return at;
}

void weft__tk_map_characters(const tk_normalizer *self, tk_work *w, size_t begin, size_t end)
{
    const char *bytes = w->text.bytes;
    size_t n, next, skipped = 0;
    for (size_t at = begin; at < end; at = next) {
        next = cluster(bytes, at, end);
        if (next - at < 6 && replace(&self->charsmap, w, bytes + at, next - at, &skipped)) continue;
        for (size_t i = at; i < next; i += n) {
            const uint32_t c = weft__tk_decode(bytes + i, &n);
            if (!replace(&self->charsmap, w, bytes + i, n, &skipped)) weft__tk_change(w, c, 0);
        }
    }
    weft__tk_transform(w, begin, end, skipped);
}
