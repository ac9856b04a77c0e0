/* What one call of a tokeniser works on. The alignment of changed texts is that of the package
 * `tokenizers`: an inserted character comes from where the one before it does. */
#include "work.h"

#include "unicode.h"

#include <stdlib.h>
#include <string.h>

bool weft__tk_reserve(tk_work *w, void *array, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity) return true;
    size_t more = *capacity < 16 ? 16 : *capacity + *capacity / 2;
    if (more < need) more = need;
    void *old, *grown = NULL;
    memcpy(&old, array, sizeof old);
    if (more <= SIZE_MAX / 2 / size) grown = realloc(old, more * size);
    if (!grown) {
        w->failed = true;
        return false;
    }
    memcpy(array, &grown, sizeof grown);
    *capacity = more;
    return true;
}

/* Positions fit 31 bits, also in a text that a normaliser makes longer. */
#define MAX_BYTES ((size_t)1 << 30)

/* Both arrays have one capacity; the spans grow first, so that it holds for both. */
static bool reserve_text(tk_work *w, tk_text *t, size_t more)
{
    size_t bytes = t->capacity;
    if (t->n + more <= bytes) return true;
    if (t->n + more > MAX_BYTES) {
        w->failed = true;
        w->too_large = "a text grows beyond 2^30 bytes";
        return false;
    }
    if (!weft__tk_reserve(w, &t->spans, &bytes, t->n + more, sizeof *t->spans)) return false;
    char *grown = realloc(t->bytes, bytes);
    if (!grown) {
        /* The spans have more room than is counted, which does no harm. */
        w->failed = true;
        return false;
    }
    t->bytes = grown;
    t->capacity = bytes;
    return true;
}

void weft__tk_put(tk_work *w, tk_text *t, const char *bytes, size_t n, weft_text_span span)
{
    if (!reserve_text(w, t, n)) return;
    memcpy(t->bytes + t->n, bytes, n);
    for (size_t i = 0; i < n; i++) t->spans[t->n + i] = span;
    t->n += n;
}

void weft__tk_copy(tk_work *w, tk_text *t, const tk_text *from, size_t begin, size_t end)
{
    const size_t n = end - begin;
    if (n == 0 || !reserve_text(w, t, n)) return;
    memcpy(t->bytes + t->n, from->bytes + begin, n);
    memcpy(t->spans + t->n, from->spans + begin, n * sizeof *t->spans);
    t->n += n;
}

void weft__tk_change(tk_work *w, uint32_t character, int32_t change)
{
    if (!weft__tk_reserve(w, &w->changes, &w->changes_capacity, w->n_changes + 1,
                          sizeof *w->changes))
        return;
    const uint32_t order = (uint32_t)w->n_changes;
    w->changes[w->n_changes++] = (tk_change){character, change, order};
}

/* The end of the character at `at`. */
static size_t step(const tk_text *t, size_t at, size_t end)
{
    const size_t n = weft__tk_character_bytes((unsigned char)t->bytes[at]);
    return n < end - at ? at + n : end;
}

void weft__tk_transform(tk_work *w, size_t begin, size_t end, size_t skipped)
{
    const tk_text *t = &w->text;
    const size_t start = begin < end ? t->spans[begin].begin : 0;
    size_t at = begin;
    for (; skipped > 0 && at < end; skipped--) at = step(t, at, end);
    for (size_t i = 0; i < w->n_changes; i++) {
        const tk_change c = w->changes[i];
        char bytes[4];
        const size_t n = weft__tk_encode(c.character, bytes);
        weft_text_span span = {start, start};
        if (c.change > 0 ? at > begin : at > begin || at < end)
            span = t->spans[c.change > 0 || at == end ? at - 1 : at];
        weft__tk_put(w, &w->next_text, bytes, n, span);
        for (int32_t k = c.change; k <= 0 && at < end; k++) at = step(t, at, end);
    }
    w->n_changes = 0;
}

void weft__tk_swap_texts(tk_work *w)
{
    const tk_text text = w->text;
    w->text = w->next_text;
    w->next_text = text;
    w->next_text.n = 0;
}

void weft__tk_piece(tk_work *w, size_t begin, size_t end, int32_t id)
{
    if (!weft__tk_reserve(w, &w->next_pieces, &w->next_capacity, w->n_next + 1,
                          sizeof *w->next_pieces))
        return;
    w->next_pieces[w->n_next++] = (tk_piece){begin, end, id};
}

void weft__tk_swap_pieces(tk_work *w)
{
    tk_piece *pieces = w->pieces;
    const size_t capacity = w->pieces_capacity;
    w->pieces = w->next_pieces;
    w->n_pieces = w->n_next;
    w->pieces_capacity = w->next_capacity;
    w->next_pieces = pieces;
    w->next_capacity = capacity;
    w->n_next = 0;
}

void weft__tk_rewrite(tk_work *w, tk_copy *copy, const void *self)
{
    w->next_text.n = 0;
    for (size_t i = 0; i < w->n_pieces; i++) {
        const tk_piece p = w->pieces[i];
        const size_t begin = w->next_text.n;
        if (p.id >= 0)
            weft__tk_copy(w, &w->next_text, &w->text, p.begin, p.end);
        else
            copy(self, w, p);
        weft__tk_piece(w, begin, w->next_text.n, p.id);
    }
    weft__tk_swap_pieces(w);
    weft__tk_swap_texts(w);
}

void weft__tk_match(tk_work *w, size_t begin, size_t end, bool is_match)
{
    if (!weft__tk_reserve(w, &w->matches, &w->matches_capacity, w->n_matches + 1,
                          sizeof *w->matches))
        return;
    w->matches[w->n_matches++] = (tk_match){begin, end, is_match};
}

void weft__tk_token(tk_work *w, int32_t id, size_t begin, size_t end)
{
    if (!weft__tk_reserve(w, &w->tokens, &w->tokens_capacity, w->n_tokens + 1, sizeof *w->tokens))
        return;
    weft_text_span span = {0, 0};
    if (begin < end)
        span = (weft_text_span){w->text.spans[begin].begin, w->text.spans[end - 1].end};
    w->tokens[w->n_tokens++] = (tk_token){id, span, -1, -1};
}
