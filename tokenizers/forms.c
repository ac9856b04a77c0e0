/* The forms NFC, NFD, NFKC and NFKD (Unicode Standard Annex 15): decomposition, canonical order and
 * composition. O(n log n). utf8proc has them too, but does not say which characters become which. */
#include "state.h"
#include "unicode.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const tk_change *x = a, *y = b;
    const int order =
        weft__tk_combining_class(x->character) - weft__tk_combining_class(y->character);
    return order ? order : (x->order > y->order) - (x->order < y->order);
}

/* Sorts each run of marks by combining class. */
static void put_in_order(tk_work *w)
{
    size_t begin = 0;
    int last = 0;
    bool sorted = true;
    for (size_t i = 0; i <= w->n_changes; i++) {
        const int ccc = i < w->n_changes ? weft__tk_combining_class(w->changes[i].character) : 0;
        if (ccc == 0) {
            if (!sorted) qsort(w->changes + begin, i - begin, sizeof *w->changes, compare);
            begin = i + 1;
            sorted = true;
        } else if (ccc < last) {
            sorted = false;
        }
        last = ccc;
    }
}

/* Joins each starter with the marks, or the starter, that follow and are not blocked. */
static void compose(tk_work *w)
{
    tk_change *out = w->changes, *starter = NULL;
    size_t n = 0;
    int last = 0; /* combining class of the last mark after the starter; 0: none */
    for (size_t i = 0; i < w->n_changes; i++) {
        const tk_change c = w->changes[i];
        const int ccc = weft__tk_combining_class(c.character);
        if (starter && (last == 0 || last < ccc)) {
            const uint32_t both = weft__tk_compose(starter->character, c.character);
            if (both) {
                starter->character = both;
                starter->change += c.change - 1;
                continue;
            }
        }
        if (ccc == 0) starter = &out[n];
        last = ccc;
        out[n++] = c;
    }
    w->n_changes = n;
}

void weft__tk_form(const tk_normalizer *self, tk_work *w, size_t begin, size_t end)
{
    /* What is below is the same in this form. */
    const uint32_t simple = self->compose && !self->compatible ? 0x300 : 0x80;
    bool changes = false;
    size_t n;
    for (size_t at = begin; at < end && !changes; at += n)
        changes = weft__tk_decode(w->text.bytes + at, &n) >= simple;
    if (!changes) {
        weft__tk_copy(w, &w->next_text, &w->text, begin, end);
        return;
    }
    for (size_t at = begin; at < end; at += n) {
        int32_t parts[TK_DECOMPOSED];
        const uint32_t c = weft__tk_decode(w->text.bytes + at, &n);
        const size_t k = weft__tk_decompose(c, self->compatible, parts);
        for (size_t i = 0; i < k; i++) weft__tk_change(w, (uint32_t)parts[i], i > 0);
    }
    if (w->failed) return;
    put_in_order(w);
    if (self->compose) compose(w);
    weft__tk_transform(w, begin, end, 0);
}
