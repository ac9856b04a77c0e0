/* Decoders: each makes a chain of tokens from one, whose bytes remember the id that they come from.
 * All are O(n). */
#include "decode.h"

#include "unicode.h"

#include "text/byte_piece.h"

#include <string.h>

static void put(tk_work *w, const char *bytes, size_t n, uint32_t owner)
{
    tk_chain *c = &w->next_chain;
    size_t capacity = c->capacity;
    if (!weft__tk_reserve(w, &c->owners, &capacity, c->n + n + 1, sizeof *c->owners)) return;
    capacity = c->capacity;
    if (!weft__tk_reserve(w, &c->bytes, &capacity, c->n + n + 1, 1)) return;
    c->capacity = capacity;
    memcpy(c->bytes + c->n, bytes, n);
    for (size_t i = 0; i < n; i++) c->owners[c->n + i] = owner;
    c->n += n;
}

/* Ends a token. */
static void end_token(tk_work *w)
{
    tk_chain *c = &w->next_chain;
    if (!weft__tk_reserve(w, &c->ends, &c->tokens_capacity, c->n_tokens + 1, sizeof *c->ends))
        return;
    c->ends[c->n_tokens++] = c->n;
}

void weft__tk_swap_chains(tk_work *w)
{
    const tk_chain chain = w->chain;
    w->chain = w->next_chain;
    w->next_chain = chain;
    w->next_chain.n = w->next_chain.n_tokens = 0;
}

static size_t begin_of(const tk_chain *c, size_t token)
{
    return token ? c->ends[token - 1] : 0;
}

/* What the bytes of a cut character are; no character has this number. */
#define NO_CHARACTER UINT32_MAX

/* The character of bytes [at, end), which may be no UTF-8 if w->raw. *n becomes its bytes. */
static uint32_t character_at(const tk_chain *c, size_t at, size_t end, size_t *n)
{
    bool valid;
    *n = weft__tk_part(c->bytes + at, end - at, &valid);
    return valid ? weft__tk_decode(c->bytes + at, n) : NO_CHARACTER;
}

/* Copies bytes [begin, end) of the chain. */
static void copy(tk_work *w, size_t begin, size_t end)
{
    for (size_t next; begin < end && !w->failed; begin = next) {
        const uint32_t owner = w->chain.owners[begin];
        for (next = begin; next < end && w->chain.owners[next] == owner;) next++;
        put(w, w->chain.bytes + begin, next - begin, owner);
    }
}

void weft__tk_begin_chain(const tk_state *s, tk_work *w, const int32_t *ids, size_t n)
{
    w->next_chain.n = w->next_chain.n_tokens = 0;
    for (size_t i = 0; i < n; i++) {
        const char *piece = s->decoded[ids[i]];
        if (!piece) piece = weft__tk_vocabulary_piece(&s->model.vocabulary, ids[i]);
        put(w, piece, strlen(piece), (uint32_t)i);
        end_token(w);
    }
    weft__tk_swap_chains(w);
}

/* ---- Decoders ---- */

/* Ends a token of bytes that begins at `begin` in the next chain: U+FFFD for each byte if they are
 * not UTF-8. */
static void end_bytes(tk_work *w, size_t begin)
{
    tk_chain *c = &w->next_chain;
    bool valid = true;
    if (w->failed || c->n == begin) return;
    for (size_t at = begin; at < c->n && valid;)
        at += weft__tk_part(c->bytes + at, c->n - at, &valid);
    if (valid || w->raw) {
        end_token(w);
        return;
    }
    const size_t n = c->n - begin;
    const uint32_t first = c->owners[begin];
    c->n = begin;
    /* The bytes come from as many ids, one after the other. */
    for (size_t i = 0; i < n; i++) {
        put(w, "\xEF\xBF\xBD", 3, first + (uint32_t)i);
        end_token(w);
    }
}

void weft__tk_decode_fallback(const tk_decoder *self, tk_work *w)
{
    (void)self;
    const tk_chain *c = &w->chain;
    size_t begin = 0;
    for (size_t i = 0; i < c->n_tokens && !w->failed; i++) {
        const size_t from = begin_of(c, i);
        const int byte = byte_of_piece(c->bytes + from, c->ends[i] - from);
        if (byte >= 0) {
            const char text = (char)byte;
            put(w, &text, 1, c->owners[from]);
            continue;
        }
        end_bytes(w, begin);
        copy(w, from, c->ends[i]);
        end_token(w);
        begin = w->next_chain.n;
    }
    end_bytes(w, begin);
}

void weft__tk_decode_join(const tk_decoder *self, tk_work *w)
{
    (void)self;
    const tk_chain *c = &w->chain;
    for (size_t i = 0; i < c->n_tokens && !w->failed; i++) {
        const size_t begin = begin_of(c, i);
        if (i > 0) put(w, " ", 1, begin < c->n ? c->owners[begin] : (uint32_t)i);
        copy(w, begin, c->ends[i]);
        end_token(w);
    }
}

void weft__tk_decode_fuse(const tk_decoder *self, tk_work *w)
{
    (void)self;
    copy(w, 0, w->chain.n);
    end_token(w);
}

/* The bytes of a token of byte level, if all of its characters are such, and else its own. */
static void put_level(tk_work *w, size_t begin, size_t end)
{
    const tk_chain *c = &w->chain;
    size_t n;
    bool mapped = true;
    for (size_t at = begin; at < end && mapped; at += n)
        mapped = weft__tk_character_byte(character_at(c, at, end, &n)) >= 0;
    if (!mapped) {
        copy(w, begin, end);
        return;
    }
    for (size_t at = begin; at < end; at += n) {
        const char byte = (char)weft__tk_character_byte(weft__tk_decode(c->bytes + at, &n));
        put(w, &byte, 1, c->owners[at]);
    }
}

void weft__tk_decode_level(const tk_decoder *self, tk_work *w)
{
    (void)self;
    for (size_t i = 0; i < w->chain.n_tokens && !w->failed; i++)
        put_level(w, begin_of(&w->chain, i), w->chain.ends[i]);
    weft__tk_swap_chains(w);
    /* What is not UTF-8 becomes U+FFFD. */
    const tk_chain *c = &w->chain;
    for (size_t at = 0, n; at < c->n && !w->failed; at += n) {
        bool valid;
        n = weft__tk_part(c->bytes + at, c->n - at, &valid);
        if (valid || w->raw)
            copy(w, at, at + n);
        else
            put(w, "\xEF\xBF\xBD", 3, c->owners[at]);
    }
    end_token(w);
}

/* Copies bytes [begin, end) with `to` in place of each `from`; an inserted text belongs to the id
 * where it begins. */
static void copy_replacing(tk_work *w, size_t begin, size_t end, const char *from, const char *to)
{
    const tk_chain *c = &w->chain;
    const size_t n = strlen(from);
    for (size_t at = begin; at < end && !w->failed;) {
        const char *found = n ? memmem(c->bytes + at, end - at, from, n) : NULL;
        const size_t next = found ? (size_t)(found - c->bytes) : end;
        copy(w, at, next);
        if (found) put(w, to, strlen(to), c->owners[next]);
        at = found ? next + n : end;
    }
}

/* Copies bytes [begin, end), which are UTF-8, with the text of a decoder in place of its matches. */
static void replace(const tk_decoder *self, tk_work *w, size_t begin, size_t end)
{
    const tk_chain *c = &w->chain;
    w->n_matches = 0;
    if (end > begin) weft__tk_regex_match(self->pattern, w, c->bytes + begin, end - begin, begin);
    for (size_t k = 0; k < w->n_matches && !w->failed; k++) {
        const tk_match m = w->matches[k];
        if (m.is_match)
            put(w, self->prefix, strlen(self->prefix),
                c->owners[m.begin < end ? m.begin : end - 1]);
        else
            copy(w, m.begin, m.end);
    }
}

/* Bytes that are not UTF-8 are copied, and separate what is searched. */
void weft__tk_decode_replace(const tk_decoder *self, tk_work *w)
{
    const tk_chain *c = &w->chain;
    for (size_t i = 0; i < c->n_tokens && !w->failed; i++) {
        size_t begin = begin_of(c, i);
        for (size_t at = begin, n; at < c->ends[i]; at += n) {
            if (character_at(c, at, c->ends[i], &n) != NO_CHARACTER) continue;
            replace(self, w, begin, at);
            begin = at + n;
            copy(w, at, begin);
        }
        replace(self, w, begin, c->ends[i]);
        end_token(w);
    }
}

void weft__tk_decode_metaspace(const tk_decoder *self, tk_work *w)
{
    const tk_chain *c = &w->chain;
    size_t n;
    for (size_t i = 0; i < c->n_tokens && !w->failed; i++) {
        for (size_t at = begin_of(c, i); at < c->ends[i]; at += n) {
            if (character_at(c, at, c->ends[i], &n) != self->character)
                copy(w, at, at + n);
            else if (i > 0 || self->keeps_first)
                put(w, " ", 1, c->owners[at]);
        }
        end_token(w);
    }
}

void weft__tk_decode_strip(const tk_decoder *self, tk_work *w)
{
    const tk_chain *c = &w->chain;
    size_t n;
    for (size_t i = 0; i < c->n_tokens && !w->failed; i++) {
        size_t begin = begin_of(c, i), end = c->ends[i];
        for (size_t k = 0; k < self->start && begin < end; k++, begin += n)
            if (character_at(c, begin, end, &n) != self->character) break;
        for (size_t k = 0; k < self->stop && begin < end; k++, end = n) {
            size_t bytes;
            n = end - 1;
            while (n > begin && ((unsigned char)c->bytes[n] & 0xC0) == 0x80) n--;
            if (character_at(c, n, end, &bytes) != self->character || n + bytes != end) break;
        }
        copy(w, begin, end);
        end_token(w);
    }
}

void weft__tk_decode_bpe(const tk_decoder *self, tk_work *w)
{
    const tk_chain *c = &w->chain;
    for (size_t i = 0; i < c->n_tokens && !w->failed; i++) {
        copy_replacing(w, begin_of(c, i), c->ends[i], self->prefix,
                       i + 1 == c->n_tokens ? "" : " ");
        end_token(w);
    }
}

/* Replaces the text of the last token of the next chain. */
static void clean_up(tk_work *w)
{
    static const char *const rules[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    weft__tk_swap_chains(w);
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        const tk_chain *c = &w->chain;
        for (size_t i = 0; i < c->n_tokens && !w->failed; i++) {
            copy_replacing(w, begin_of(c, i), c->ends[i], rules[r][0], rules[r][1]);
            end_token(w);
        }
        weft__tk_swap_chains(w);
    }
    const tk_chain cleaned = w->chain;
    w->chain = w->next_chain;
    w->next_chain = cleaned;
}

void weft__tk_decode_wordpiece(const tk_decoder *self, tk_work *w)
{
    const tk_chain *c = &w->chain;
    const size_t n = strlen(self->prefix);
    for (size_t i = 0; i < c->n_tokens && !w->failed; i++) {
        size_t begin = begin_of(c, i);
        if (i > 0 && c->ends[i] - begin >= n && !memcmp(c->bytes + begin, self->prefix, n))
            begin += n;
        else if (i > 0)
            put(w, " ", 1, begin < c->n ? c->owners[begin] : (uint32_t)i);
        copy(w, begin, c->ends[i]);
        end_token(w);
    }
    if (self->cleanup) clean_up(w);
}
