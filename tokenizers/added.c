/* Added tokens, which are found in a text before the model reads it: the leftmost, and the longest
 * of those. O(n x length of the longest token). */
#include "state.h"
#include "unicode.h"

static bool begins_with_word(const char *text, size_t at, size_t end)
{
    size_t n;
    return at < end && weft__tk_is_word(weft__tk_decode(text + at, &n));
}

static size_t before(const char *text, size_t begin, size_t at)
{
    do at--;
    while (at > begin && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

static bool ends_with_word(const char *text, size_t begin, size_t at)
{
    size_t n;
    return at > begin && weft__tk_is_word(weft__tk_decode(text + before(text, begin, at), &n));
}

static size_t skip_spaces(const char *text, size_t at, size_t end)
{
    size_t n;
    while (at < end && weft__tk_is_space(weft__tk_decode(text + at, &n))) at += n;
    return at;
}

static size_t skip_spaces_back(const char *text, size_t begin, size_t at)
{
    while (at > begin) {
        size_t n;
        const size_t last = before(text, begin, at);
        if (!weft__tk_is_space(weft__tk_decode(text + last, &n))) break;
        at = last;
    }
    return at;
}

/* The end of the longest token at `at`, whose index *index becomes; `at` if there is none. */
static size_t match(const tk_added_set *set, const char *text, size_t at, size_t end,
                    int32_t *index)
{
    size_t found = at;
    uint32_t node = 0;
    for (size_t i = at; i < end; i++) {
        node = weft__tk_trie_next(&set->trie, node, (unsigned char)text[i]);
        if (!node) break;
        if (set->trie.values[node] < 0) continue;
        *index = set->trie.values[node];
        found = i + 1;
    }
    return found;
}

static void find_in_piece(const tk_state *s, const tk_added_set *set, tk_work *w, tk_piece p,
                          bool with_special)
{
    const char *text = w->text.bytes;
    size_t last = p.begin;
    for (size_t at = p.begin; at < p.end;) {
        int32_t index = 0;
        const size_t end =
            set->first[(unsigned char)text[at]] ? match(set, text, at, p.end, &index) : at;
        if (end == at) {
            at++;
            continue;
        }
        const tk_added *a = &s->added[index];
        size_t from = at, to = end;
        at = end;
        if (a->special && !with_special) continue;
        if (a->single_word &&
            (ends_with_word(text, p.begin, from) || begins_with_word(text, to, p.end)))
            continue;
        if (a->left) {
            from = from > last ? skip_spaces_back(text, last, from) : last;
        }
        if (a->right) to = skip_spaces(text, to, p.end);
        if (last < from) weft__tk_piece(w, last, from, -1);
        weft__tk_piece(w, from, to, a->id);
        last = to;
    }
    if (last < p.end) weft__tk_piece(w, last, p.end, -1);
}

void weft__tk_find_added(const tk_state *s, const tk_added_set *set, tk_work *w, bool with_special)
{
    for (size_t i = 0; i < w->n_pieces; i++) {
        const tk_piece p = w->pieces[i];
        if (p.begin == p.end) continue;
        if (p.id >= 0 || !set->any)
            weft__tk_piece(w, p.begin, p.end, p.id);
        else
            find_in_piece(s, set, w, p, with_special);
    }
    weft__tk_swap_pieces(w);
}
