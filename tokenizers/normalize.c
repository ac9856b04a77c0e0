/* Normalisers: each makes a text of a text, character by character, and says which characters are
 * new and which are gone, so that tokens find the bytes that they stand for. Each is O(n). */
#include "state.h"
#include "unicode.h"

#include <string.h>

/* Puts the bytes [begin, end) of the text through a function that returns the character that
 * replaces one, or 0 to drop it. */
static void map(tk_work *w, size_t begin, size_t end, uint32_t (*of)(uint32_t c))
{
    size_t n, skipped = 0;
    for (size_t at = begin; at < end; at += n) {
        const uint32_t c = of(weft__tk_decode(w->text.bytes + at, &n));
        if (c)
            weft__tk_change(w, c, 0);
        else if (w->n_changes > 0)
            w->changes[w->n_changes - 1].change--;
        else
            skipped++;
    }
    weft__tk_transform(w, begin, end, skipped);
}

static uint32_t clean(uint32_t c)
{
    if (weft__tk_is_space(c) && (c == '\t' || c == '\n' || c == '\r' || !weft__tk_is_other(c)))
        return ' ';
    return c == 0xFFFD || weft__tk_is_other(c) ? 0 : c;
}

void weft__tk_clean(const tk_normalizer *self, tk_work *w, size_t begin, size_t end)
{
    (void)self;
    map(w, begin, end, clean);
}

static uint32_t without_nonspacing(uint32_t c)
{
    return weft__tk_is_nonspacing(c) ? 0 : c;
}

void weft__tk_drop_nonspacing(const tk_normalizer *self, tk_work *w, size_t begin, size_t end)
{
    (void)self;
    map(w, begin, end, without_nonspacing);
}

static uint32_t without_marks(uint32_t c)
{
    return weft__tk_is_mark(c) ? 0 : c;
}

void weft__tk_drop_marks(const tk_normalizer *self, tk_work *w, size_t begin, size_t end)
{
    (void)self;
    map(w, begin, end, without_marks);
}

/* SentencePiece's rules for neural translation. */
static uint32_t nmt(uint32_t c)
{
    if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
        c == 0x9F)
        return 0;
    if (c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
        c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD)
        return ' ';
    return c;
}

void weft__tk_nmt(const tk_normalizer *self, tk_work *w, size_t begin, size_t end)
{
    (void)self;
    map(w, begin, end, nmt);
}

void weft__tk_space_ideographs(const tk_normalizer *self, tk_work *w, size_t begin, size_t end)
{
    (void)self;
    size_t n;
    for (size_t at = begin; at < end; at += n) {
        const uint32_t c = weft__tk_decode(w->text.bytes + at, &n);
        const bool spaced = c >= 0x3400 && weft__tk_is_ideograph(c);
        if (spaced) weft__tk_change(w, ' ', 1);
        weft__tk_change(w, c, 0);
        if (spaced) weft__tk_change(w, ' ', 1);
    }
    weft__tk_transform(w, begin, end, 0);
}

void weft__tk_lower(const tk_normalizer *self, tk_work *w, size_t begin, size_t end)
{
    (void)self;
    size_t n;
    for (size_t at = begin; at < end; at += n) {
        uint32_t lower[2];
        const size_t k = weft__tk_lowercase(weft__tk_decode(w->text.bytes + at, &n), lower);
        for (size_t i = 0; i < k; i++) weft__tk_change(w, lower[i], i > 0);
    }
    weft__tk_transform(w, begin, end, 0);
}

void weft__tk_strip(const tk_normalizer *self, tk_work *w, size_t begin, size_t end)
{
    size_t n, skipped = 0, kept = 0; /* kept: changes up to the last that is not a space */
    for (size_t at = begin; at < end; at += n) {
        const uint32_t c = weft__tk_decode(w->text.bytes + at, &n);
        const bool space = weft__tk_is_space(c);
        if (self->left && space && w->n_changes == 0) {
            skipped++;
            continue;
        }
        weft__tk_change(w, c, 0);
        if (!space || !self->right) kept = w->n_changes;
    }
    if (kept > 0 && !w->failed) w->changes[kept - 1].change -= (int32_t)(w->n_changes - kept);
    w->n_changes = kept;
    weft__tk_transform(w, begin, end, skipped);
}

void weft__tk_replace(const tk_normalizer *self, tk_work *w, size_t begin, size_t end)
{
    const size_t n = strlen(self->content);
    w->n_matches = 0;
    weft__tk_regex_match(self->pattern, w, w->text.bytes + begin, end - begin, begin);
    for (size_t i = 0; i < w->n_matches; i++) {
        const tk_match m = w->matches[i];
        weft_text_span span = {0, 0};
        if (m.end > begin) span = w->text.spans[m.end - 1];
        if (m.is_match)
            weft__tk_put(w, &w->next_text, self->content, n, span);
        else
            weft__tk_copy(w, &w->next_text, &w->text, m.begin, m.end);
    }
}

void weft__tk_prepend(const tk_normalizer *self, tk_work *w, size_t begin, size_t end)
{
    if (begin < end)
        weft__tk_put(w, &w->next_text, self->content, strlen(self->content), w->text.spans[begin]);
    weft__tk_copy(w, &w->next_text, &w->text, begin, end);
}

void weft__tk_level(const tk_normalizer *self, tk_work *w, size_t begin, size_t end)
{
    (void)self;
    for (size_t at = begin; at < end; at++) {
        char bytes[4];
        const uint32_t c = weft__tk_byte_character((unsigned char)w->text.bytes[at]);
        weft__tk_put(w, &w->next_text, bytes, weft__tk_encode(c, bytes), w->text.spans[at]);
    }
}

static void normalize(const void *self, tk_work *w, tk_piece p)
{
    const tk_normalizer *step = self;
    step->apply(step, w, p.begin, p.end);
    w->n_changes = 0;
}

void weft__tk_normalize_pieces(const tk_state *s, tk_work *w)
{
    for (size_t k = 0; k < s->n_normalizers && !w->failed; k++)
        weft__tk_rewrite(w, normalize, &s->normalizers[k]);
}
