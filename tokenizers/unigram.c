/* Unigram (Kudo 2018): the most probable sequence of pieces, by Viterbi's algorithm over the bytes
 * of a text. O(n x length of the longest piece). */
#include "state.h"
#include "unicode.h"

static void relax(tk_node *node, double score, size_t begin, int32_t id)
{
    if (node->id >= 0 && !(score > node->score)) return;
    *node = (tk_node){score, begin, id};
}

/* The best path to every character of n bytes. */
static weft_status search(const tk_model *m, tk_work *w, const char *bytes, size_t n)
{
    if (!weft__tk_reserve(w, &w->path, &w->path_capacity, n + 1, sizeof *w->path))
        return WEFT_NO_MEMORY;
    for (size_t i = 0; i <= n; i++) w->path[i] = (tk_node){0, 0, -1};
    for (size_t at = 0, length; at < n; at += length) {
        const double score = w->path[at].score;
        bool single = false;
        uint32_t node = 0;
        length = weft__tk_character_bytes((unsigned char)bytes[at]);
        for (size_t i = at; i < n; i++) {
            node = weft__tk_trie_next(&m->trie, node, (unsigned char)bytes[i]);
            if (!node) break;
            const int32_t id = m->trie.values[node];
            if (id < 0) continue;
            relax(&w->path[i + 1], score + m->scores[id], at, id);
            single |= i + 1 == at + length;
        }
        if (single) continue;
        if (m->unk < 0)
            return weft_error_set(w->error, WEFT_NOT_FOUND, "tokenizer",
                                  "a character is unknown, and the vocabulary has no piece for it");
        relax(&w->path[at + length], score + m->unk_score, at, m->unk);
    }
    return WEFT_OK;
}

/* The tokens of characters that are unknown together. */
static void add_unknown(const tk_model *m, tk_work *w, size_t begin, size_t end)
{
    const int32_t id = weft__tk_vocabulary_find(&m->vocabulary, w->text.bytes + begin, end - begin);
    bool bytes = m->byte_fallback && (id < 0 || id >= m->own_size);
    for (size_t i = begin; bytes && i < end; i++)
        bytes = m->byte_ids[(unsigned char)w->text.bytes[i]] >= 0;
    if (!bytes) {
        weft__tk_token(w, id >= 0 && id < m->own_size ? id : m->unk, begin, end);
        return;
    }
    for (size_t i = begin; i < end; i++)
        weft__tk_token(w, m->byte_ids[(unsigned char)w->text.bytes[i]], begin, end);
}

weft_status weft__tk_unigram_encode(const tk_model *m, tk_work *w, size_t begin, size_t end)
{
    const size_t n = end - begin;
    const weft_status status = search(m, w, w->text.bytes + begin, n);
    if (status != WEFT_OK) return status;
    /* Turns the links of the path around: path[i].score is no longer needed, so path[i].begin of a
     * node becomes the end of the piece that begins at i. */
    size_t next = n;
    int32_t id = w->path[n].id;
    for (size_t at = n; at > 0;) {
        const size_t from = w->path[at].begin;
        const int32_t before = w->path[from].id;
        w->path[from].id = id;
        w->path[at].begin = next;
        next = at;
        id = before;
        at = from;
    }
    w->path[0].begin = next;
    for (size_t at = 0; at < n && !w->failed;) {
        size_t last = w->path[at].begin;
        if (w->path[at].id != m->unk) {
            weft__tk_token(w, w->path[at].id, begin + at, begin + last);
        } else {
            while (last < n && w->path[last].id == m->unk) last = w->path[last].begin;
            add_unknown(m, w, begin + at, begin + last);
        }
        at = last;
    }
    return WEFT_OK;
}
