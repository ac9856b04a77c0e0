/* From a text to tokens: added tokens, normalisers, added tokens of normalised texts,
 * pre-tokenisers, the model, post-processors. */
#include "encode.h"

#include "unicode.h"

#include <stdlib.h>
#include <string.h>

/* Longer texts are refused. */
#define MAX_BYTES ((size_t)1 << 28)

static weft_status read_text(tk_work *w, const char *text)
{
    const size_t n = strlen(text);
    w->text.n = 0;
    if (n > MAX_BYTES)
        return weft_error_set(w->error, WEFT_TOO_LARGE, "tokenizer",
                              "a text has %zu bytes, but at most %zu are encoded at once", n,
                              MAX_BYTES);
    for (size_t at = 0, length; at < n && !w->failed; at += length) {
        bool valid;
        length = weft__tk_part(text + at, n - at, &valid);
        if (valid)
            weft__tk_put(w, &w->text, text + at, length, (weft_text_span){at, at + length});
        else
            weft__tk_put(w, &w->text, "\xEF\xBF\xBD", 3, (weft_text_span){at, at + length});
    }
    weft__tk_piece(w, 0, w->text.n, -1);
    weft__tk_swap_pieces(w);
    return WEFT_OK;
}

/* The characters at one end of n bytes that stand for spaces. */
static int32_t count_spaces(const char *text, size_t n, bool at_end)
{
    size_t length;
    int32_t run = 0;
    for (size_t at = 0; at < n; at += length) {
        const uint32_t c = weft__tk_decode(text + at, &length);
        const bool space = c == weft__tk_byte_character(' ') || weft__tk_is_space(c);
        if (!space && !at_end) return run;
        run = space ? run + 1 : 0;
    }
    return run;
}

/* An added token, which may have spaces around it. */
static void add_added(tk_work *w, tk_piece p)
{
    const char *text = w->text.bytes + p.begin;
    weft__tk_token(w, p.id, p.begin, p.end);
    if (w->failed) return;
    w->tokens[w->n_tokens - 1].leading = count_spaces(text, p.end - p.begin, false);
    w->tokens[w->n_tokens - 1].trailing = count_spaces(text, p.end - p.begin, true);
}

weft_status weft__tk_normalized_text(const tk_state *s, tk_work *w, const char *text)
{
    w->n_pieces = w->n_next = w->n_tokens = 0;
    const weft_status status = read_text(w, text);
    if (status == WEFT_OK) weft__tk_normalize_pieces(s, w);
    return status;
}

weft_status weft__tk_encode_text(const tk_state *s, tk_work *w, const char *text, bool with_special)
{
    w->n_pieces = w->n_next = w->n_tokens = 0;
    w->mapped = false;
    weft_status status = read_text(w, text);
    if (status != WEFT_OK) return status;
    weft__tk_find_added(s, &s->raw, w, with_special);
    weft__tk_normalize_pieces(s, w);
    weft__tk_find_added(s, &s->normalized, w, with_special);
    weft__tk_split_pieces(s, w);
    for (size_t i = 0; i < w->n_pieces && status == WEFT_OK && !w->failed; i++) {
        const tk_piece p = w->pieces[i];
        if (p.id >= 0)
            add_added(w, p);
        else if (p.begin < p.end)
            status = s->model.encode(&s->model, w, p.begin, p.end);
    }
    return status;
}

/* ---- Post-processors ---- */

/* The position n characters after `at`, or `end`. */
static size_t forward(const char *text, size_t at, size_t end, size_t n)
{
    bool valid;
    for (; n > 0 && at < end; n--) at += weft__tk_part(text + at, end - at, &valid);
    return at;
}

/* The position n characters before `end`, or `begin`. */
static size_t backward(const char *text, size_t begin, size_t end, size_t n)
{
    bool valid;
    size_t characters = 0;
    for (size_t at = begin; at < end; characters++)
        at += weft__tk_part(text + at, end - at, &valid);
    return forward(text, begin, end, characters > n ? characters - n : 0);
}

/* Leaves the spaces at the ends of a token out of its span. */
static void trim(const tk_state *s, const tk_processor *p, const char *text, tk_token *tokens,
                 size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *piece = weft__tk_vocabulary_piece(&s->model.vocabulary, tokens[i].id);
        weft_text_span *span = &tokens[i].span;
        int32_t leading = tokens[i].leading, trailing = tokens[i].trailing;
        if (leading < 0) leading = count_spaces(piece, strlen(piece), false);
        if (trailing < 0) trailing = count_spaces(piece, strlen(piece), true);
        const bool first = i == 0 || span->begin == 0;
        if (leading == 1 && first && p->prefix_space) leading = 0;
        if (leading > 0) span->begin = forward(text, span->begin, span->end, (size_t)leading);
        if (trailing > 0) span->end = backward(text, span->begin, span->end, (size_t)trailing);
    }
}

void weft__tk_trim(const tk_state *s, const char *text, tk_token *tokens, size_t n)
{
    for (size_t i = 0; i < s->n_processors; i++)
        if (s->processors[i].trims) trim(s, &s->processors[i], text, tokens, n);
}

static const tk_processor *template_of(const tk_state *s)
{
    for (size_t i = 0; i < s->n_processors; i++)
        if (s->processors[i].has_template) return &s->processors[i];
    return NULL;
}

static void add(weft_encoding *e, int32_t id, weft_text_span span, int32_t type, int32_t source)
{
    e->ids[e->n] = id;
    e->spans[e->n] = span;
    e->types[e->n] = type;
    e->sources[e->n++] = source;
}

static void add_tokens(weft_encoding *e, const tk_tokens *of, int32_t type, int32_t source)
{
    for (size_t i = 0; i < of->n; i++) add(e, of->tokens[i].id, of->tokens[i].span, type, source);
}

/* Without special tokens, a template still says which types texts have. */
static void fill(weft_encoding *e, const tk_template *t, const tk_tokens texts[2], bool special)
{
    for (size_t i = 0; i < t->n; i++) {
        const tk_part *part = &t->parts[i];
        if (part->source >= 0) add_tokens(e, &texts[part->source], part->type, part->source);
        for (size_t k = 0; special && part->source < 0 && k < part->n_ids; k++)
            add(e, part->ids[k], (weft_text_span){0, 0}, part->type, -1);
    }
}

static size_t length(const tk_template *t, const tk_tokens texts[2])
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        n += t->parts[i].source < 0 ? t->parts[i].n_ids : texts[t->parts[i].source].n;
    return n;
}

weft_status weft__tk_assemble(const tk_state *s, const weft_encode_input *input,
                              const tk_tokens texts[2], weft_encoding *e, weft_error *error)
{
    tk_part sources[2] = {{.source = 0}, {.source = 1, .type = 1}};
    const tk_template plain = {sources, input->pair ? 2 : 1}, *t = &plain;
    const tk_processor *p = template_of(s);
    if (p) t = input->pair ? &p->pair : &p->single;
    const size_t n = length(t, texts) + 1;
    *e = (weft_encoding){0, calloc(n, sizeof *e->ids), calloc(n, sizeof *e->spans),
                         calloc(n, sizeof *e->types), calloc(n, sizeof *e->sources)};
    if (!e->ids || !e->spans || !e->types || !e->sources)
        return weft_error_set(error, WEFT_NO_MEMORY, "tokenizer", "out of memory");
    fill(e, t, texts, input->add_special);
    return WEFT_OK;
}
