/* Byte pair encoding (Sennrich et al. 2016): merges the pair of the lowest rank, the leftmost of
 * several, until none is left. Short pieces search all pairs, O(n^2); long ones have a heap,
 * O(n log n). Words that were read before are looked up. */
#include "pairs.h"
#include "unicode.h"

#include <stdlib.h>
#include <string.h>

enum { SHORT_WORD = 24, CACHED_BYTES = 48, CACHED_WORDS = 1 << 14, CACHE_UNITS = 1 << 20 };

bool weft__tk_pairs_new(tk_model *m, size_t n)
{
    for (m->n_pairs = 16; m->n_pairs < 2 * n + 2;) m->n_pairs *= 2;
    m->pairs = calloc(m->n_pairs, sizeof *m->pairs);
    return m->pairs != NULL;
}

void weft__tk_pairs_add(tk_model *m, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    const uint64_t key = weft__tk_pair_key(left, right);
    size_t at = weft__tk_pair_slot(m, key);
    while (m->pairs[at].key && m->pairs[at].key != key) at = (at + 1) & (m->n_pairs - 1);
    m->pairs[at] = (tk_pair){key, rank, id};
}

/* ---- Symbols ---- */

static void add_symbol(tk_work *w, int32_t id, size_t bytes)
{
    if (!weft__tk_reserve(w, &w->symbols, &w->symbols_capacity, w->n_symbols + 1,
                          sizeof *w->symbols))
        return;
    const int32_t at = (int32_t)w->n_symbols++;
    w->symbols[at] = (tk_symbol){id, at - 1, at + 1, (uint32_t)bytes};
}

/* An unknown piece that grows as long as its neighbours are also unknown. */
typedef struct unknown {
    bool any;
    size_t bytes;
} unknown;

static bool add_bytes(const tk_model *m, tk_work *w, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (m->byte_ids[(unsigned char)bytes[i]] < 0) return false;
    for (size_t i = 0; i < n; i++) add_symbol(w, m->byte_ids[(unsigned char)bytes[i]], 1);
    return true;
}

/* A character with what the model adds to it at its place in a word: in w->buffer, *n bytes. */
static const char *dress(const tk_model *m, tk_work *w, const char *bytes, size_t *n,
                         const char *prefix, const char *suffix)
{
    (void)m;
    const size_t before = prefix ? strlen(prefix) : 0, after = suffix ? strlen(suffix) : 0;
    if (before + after == 0) return bytes;
    if (!weft__tk_reserve(w, &w->buffer, &w->buffer_capacity, before + *n + after, 1)) return NULL;
    if (before) memcpy(w->buffer, prefix, before);
    memcpy(w->buffer + before, bytes, *n);
    if (after) memcpy(w->buffer + before + *n, suffix, after);
    *n += before + after;
    return w->buffer;
}

static void add_characters(const tk_model *m, tk_work *w, const char *bytes, size_t n)
{
    unknown unk = {false, 0};
    size_t length;
    for (size_t at = 0; at < n && !w->failed; at += length) {
        length = weft__tk_character_bytes((unsigned char)bytes[at]);
        size_t dressed = length;
        const char *text = dress(m, w, bytes + at, &dressed, at > 0 ? m->prefix : NULL,
                                 at + length == n ? m->suffix : NULL);
        if (!text) return;
        const int32_t id = weft__tk_vocabulary_find(&m->vocabulary, text, dressed);
        if (id >= 0 && id < m->own_size) {
            if (unk.any) add_symbol(w, m->unk, unk.bytes);
            unk.any = false;
            add_symbol(w, id, length);
            continue;
        }
        if (m->byte_fallback && add_bytes(m, w, text, dressed)) continue;
        if (m->unk < 0) continue;
        if (unk.any && !m->fuse_unk) add_symbol(w, m->unk, unk.bytes);
        unk.bytes = (unk.any && m->fuse_unk ? unk.bytes : 0) + length;
        unk.any = true;
    }
    if (unk.any) add_symbol(w, m->unk, unk.bytes);
}

/* ---- Merging ---- */

/* The symbols move together when two merge, so that those of a word stay side by side. */
static void merge_short(const tk_model *m, tk_work *w)
{
    const tk_pair *pairs[SHORT_WORD];
    tk_symbol *s = w->symbols;
    size_t n = w->n_symbols;
    for (size_t i = 0; i + 1 < n; i++) pairs[i] = weft__tk_pair_find(m, s[i].id, s[i + 1].id);
    while (n > 1) {
        size_t best = n;
        uint32_t rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < n; i++)
            if (pairs[i] && pairs[i]->rank < rank) best = i, rank = pairs[i]->rank;
        if (best == n) break;
        s[best].id = pairs[best]->id;
        s[best].bytes += s[best + 1].bytes;
        n--;
        for (size_t i = best + 1; i < n; i++) {
            s[i] = s[i + 1];
            pairs[i - 1] = pairs[i];
        }
        if (best > 0) pairs[best - 1] = weft__tk_pair_find(m, s[best - 1].id, s[best].id);
        if (best + 1 < n) pairs[best] = weft__tk_pair_find(m, s[best].id, s[best + 1].id);
    }
    w->n_symbols = n;
}

static bool is_before(tk_merge a, tk_merge b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.position < b.position;
}

static void push(const tk_model *m, tk_work *w, int32_t left, int32_t right)
{
    const tk_pair *p = weft__tk_pair_find(m, w->symbols[left].id, w->symbols[right].id);
    if (!p || !weft__tk_reserve(w, &w->heap, &w->heap_capacity, w->n_heap + 1, sizeof *w->heap))
        return;
    const tk_merge added = {p->rank, left, p->id};
    size_t at = w->n_heap++;
    for (; at > 0 && is_before(added, w->heap[(at - 1) / 2]); at = (at - 1) / 2)
        w->heap[at] = w->heap[(at - 1) / 2];
    w->heap[at] = added;
}

static tk_merge pop(tk_work *w)
{
    const tk_merge top = w->heap[0], last = w->heap[--w->n_heap];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < w->n_heap; at = child) {
        if (child + 1 < w->n_heap && is_before(w->heap[child + 1], w->heap[child])) child++;
        if (!is_before(w->heap[child], last)) break;
        w->heap[at] = w->heap[child];
    }
    if (w->n_heap > 0) w->heap[at] = last;
    return top;
}

static void merge_long(const tk_model *m, tk_work *w)
{
    tk_symbol *s = w->symbols;
    const int32_t n = (int32_t)w->n_symbols;
    s[n - 1].next = -1;
    w->n_heap = 0;
    for (int32_t i = 0; i + 1 < n; i++) push(m, w, i, i + 1);
    while (w->n_heap > 0 && !w->failed) {
        const tk_merge top = pop(w);
        const int32_t at = top.position, right = s[at].next;
        if (s[at].bytes == 0 || right < 0) continue;
        const tk_pair *p = weft__tk_pair_find(m, s[at].id, s[right].id);
        if (!p || p->id != top.id) continue; /* one of them has changed */
        s[at].id = top.id;
        s[at].bytes += s[right].bytes;
        s[at].next = s[right].next;
        s[right].bytes = 0;
        if (s[at].next >= 0) s[s[at].next].previous = at;
        if (s[at].previous >= 0) push(m, w, s[at].previous, at);
        if (s[at].next >= 0) push(m, w, at, s[at].next);
    }
    size_t kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (s[i].bytes) s[kept++] = s[i];
    w->n_symbols = kept;
}

/* ---- Words that were read before ---- */

static const tk_cached *find_cached(const tk_work *w, uint64_t hash, const char *bytes, size_t n)
{
    const tk_cache *c = &w->cache;
    if (!c->words) return NULL;
    const tk_cached *word = &c->words[hash & (CACHED_WORDS - 1)];
    if (!word->tokens || word->hash != hash || word->bytes != n) return NULL;
    return memcmp(c->memory + word->offset + 2 * word->tokens, bytes, n) ? NULL : word;
}

static void keep(tk_work *w, uint64_t hash, const char *bytes, size_t n)
{
    tk_cache *c = &w->cache;
    const size_t units = 2 * w->n_symbols + (n + 3) / 4;
    if (w->failed || w->n_symbols == 0 || w->n_symbols > UINT16_MAX) return;
    if (!c->words) c->words = calloc(CACHED_WORDS, sizeof *c->words);
    if (!c->words) {
        w->failed = true;
        return;
    }
    if (c->n + units > CACHE_UNITS) {
        memset(c->words, 0, CACHED_WORDS * sizeof *c->words);
        c->n = 0;
    }
    if (!weft__tk_reserve(w, &c->memory, &c->capacity, c->n + units, sizeof *c->memory)) return;
    tk_cached *word = &c->words[hash & (CACHED_WORDS - 1)];
    *word = (tk_cached){hash, (uint32_t)c->n, (uint16_t)n, (uint16_t)w->n_symbols};
    for (size_t i = 0; i < w->n_symbols; i++) {
        c->memory[c->n++] = w->symbols[i].id;
        c->memory[c->n++] = (int32_t)w->symbols[i].bytes;
    }
    memcpy(c->memory + c->n, bytes, n);
    c->n += (n + 3) / 4;
}

/* ---- The model ---- */

/* The id of a whole piece; -1 if the vocabulary has none. */
static int32_t find_whole(const tk_model *m, tk_work *w, const char *bytes, size_t n)
{
    if (!w->mapped) return weft__tk_vocabulary_find(&m->vocabulary, bytes, n);
    if (!weft__tk_reserve(w, &w->buffer, &w->buffer_capacity, 2 * n + 4, 1)) return -1;
    size_t length = 0;
    for (size_t i = 0; i < n; i++)
        length +=
            weft__tk_encode(weft__tk_byte_character((unsigned char)bytes[i]), w->buffer + length);
    return weft__tk_vocabulary_find(&m->vocabulary, w->buffer, length);
}

static void find_symbols(const tk_model *m, tk_work *w, const char *bytes, size_t n)
{
    w->n_symbols = 0;
    if (m->ignore_merges) {
        const int32_t id = find_whole(m, w, bytes, n);
        if (id >= 0 && id < m->own_size) {
            add_symbol(w, id, n);
            return;
        }
    }
    if (w->mapped)
        for (size_t i = 0; i < n; i++) add_symbol(w, m->level_ids[(unsigned char)bytes[i]], 1);
    else
        add_characters(m, w, bytes, n);
    if (w->failed || w->n_symbols < 2) return;
    if (w->n_symbols <= SHORT_WORD)
        merge_short(m, w);
    else
        merge_long(m, w);
}

weft_status weft__tk_bpe_encode(const tk_model *m, tk_work *w, size_t begin, size_t end)
{
    const char *bytes = w->text.bytes + begin;
    const size_t n = end - begin;
    const bool cached = n <= CACHED_BYTES;
    const uint64_t hash = cached ? weft__tk_hash(w->mapped, bytes, n) : 0;
    const tk_cached *word = cached ? find_cached(w, hash, bytes, n) : NULL;
    if (word) {
        const int32_t *at = w->cache.memory + word->offset;
        for (size_t i = 0; i < word->tokens; i++, at += 2) {
            weft__tk_token(w, at[0], begin, begin + (size_t)at[1]);
            begin += (size_t)at[1];
        }
        return WEFT_OK;
    }
    find_symbols(m, w, bytes, n);
    for (size_t i = 0; i < w->n_symbols; i++) {
        tk_symbol *s = &w->symbols[i];
        /* Symbols of bytes of an affix have no bytes of the piece left. */
        if (s->bytes > end - begin) s->bytes = end - begin;
        weft__tk_token(w, s->id, begin, begin + s->bytes);
        begin += s->bytes;
    }
    if (cached) keep(w, hash, bytes, n);
    return WEFT_OK;
}
