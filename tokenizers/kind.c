/* Tokenisers of Hugging Face as a kind of weft's. */
#include "kind.h"

#include "decode.h"
#include "encode.h"
#include "unicode.h"

#include <stdlib.h>
#include <string.h>

static weft_status no_memory(weft_error *error)
{
    return weft_error_set(error, WEFT_NO_MEMORY, "tokenizer", "out of memory");
}

/* ---- Encoding ---- */

static weft_status encode(void *state, const char *text, int32_t *ids, weft_text_span *spans,
                          size_t capacity, size_t *n, weft_error *error)
{
    tk_state *s = state;
    tk_work *w = weft__tk_take_work(s, error);
    if (!w) return WEFT_NO_MEMORY;
    const weft_status status = weft__tk_encode_text(s, w, text, false);
    if (status == WEFT_OK && spans && !w->failed) weft__tk_trim(s, text, w->tokens, w->n_tokens);
    *n = w->n_tokens;
    for (size_t i = 0; i < w->n_tokens && i < capacity; i++) {
        if (ids) ids[i] = w->tokens[i].id;
        if (spans) spans[i] = w->tokens[i].span;
    }
    return weft__tk_return_work(s, w, status);
}

static weft_status encode_input(void *state, const weft_encode_input *input,
                                weft_encoding *encoding, weft_error *error)
{
    tk_state *s = state;
    tk_tokens texts[2] = {{NULL, 0}, {NULL, 0}};
    tk_work *w = weft__tk_take_work(s, error);
    if (!w) return WEFT_NO_MEMORY;
    weft_status status = WEFT_OK;
    for (int i = 0; i < (input->pair ? 2 : 1) && status == WEFT_OK; i++) {
        status = weft__tk_encode_text(s, w, i ? input->pair : input->text, input->parse_special);
        if (status != WEFT_OK || w->failed) break;
        weft__tk_trim(s, i ? input->pair : input->text, w->tokens, w->n_tokens);
        texts[i] = (tk_tokens){malloc((w->n_tokens + 1) * sizeof *w->tokens), w->n_tokens};
        if (!texts[i].tokens)
            status = no_memory(error);
        else if (w->n_tokens)
            memcpy(texts[i].tokens, w->tokens, w->n_tokens * sizeof *w->tokens);
    }
    status = weft__tk_return_work(s, w, status);
    if (status == WEFT_OK) status = weft__tk_assemble(s, input, texts, encoding, error);
    free(texts[0].tokens);
    free(texts[1].tokens);
    return status;
}

static weft_status characters(void *state, const char *text, size_t *n, weft_error *error)
{
    tk_state *s = state;
    tk_work *w = weft__tk_take_work(s, error);
    if (!w) return WEFT_NO_MEMORY;
    const weft_status status = weft__tk_normalized_text(s, w, text);
    for (size_t i = 0; i < w->text.n; i++) *n += ((unsigned char)w->text.bytes[i] & 0xC0) != 0x80;
    return weft__tk_return_work(s, w, status);
}

/* ---- Decoding ---- */

static void decode_chain(const tk_state *s, tk_work *w, const int32_t *ids, size_t n, bool raw)
{
    w->raw = raw;
    weft__tk_begin_chain(s, w, ids, n);
    for (size_t i = 0; i < s->n_decoders && !w->failed; i++) {
        s->decoders[i].apply(&s->decoders[i], w);
        weft__tk_swap_chains(w);
    }
}

/* The range of the bytes of each id, an empty one after the last for an id without. */
static void find_spans(const tk_chain *c, size_t n, weft_text_span *spans)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t end = at;
        while (end < c->n && c->owners[end] <= i) end++;
        spans[i] = (weft_text_span){at, end};
        at = end;
    }
}

typedef struct decoding {
    bool raw;              /* bytes that are not UTF-8 stay */
    weft_text_span *spans; /* [n], of each id; may be NULL */
} decoding;

static weft_status decode_as(tk_state *s, decoding how, const int32_t *ids, size_t n, char **text,
                             size_t *length, weft_error *error)
{
    tk_work *w = weft__tk_take_work(s, error);
    if (!w) return WEFT_NO_MEMORY;
    decode_chain(s, w, ids, n, how.raw);
    char *out = w->failed ? NULL : malloc(w->chain.n + 1);
    if (!out) {
        w->failed = true;
        return weft__tk_return_work(s, w, WEFT_NO_MEMORY);
    }
    for (size_t i = 0; i < w->chain.n; i++) out[i] = w->chain.bytes[i] ? w->chain.bytes[i] : ' ';
    out[w->chain.n] = 0;
    *length = w->chain.n;
    if (how.spans) find_spans(&w->chain, n, how.spans);
    const weft_status status = weft__tk_return_work(s, w, WEFT_OK);
    if (status == WEFT_OK)
        *text = out;
    else
        free(out);
    return status;
}

static weft_status decode(void *state, const int32_t *ids, size_t n, char **text,
                          weft_text_span *spans, weft_error *error)
{
    size_t length;
    return decode_as(state, (decoding){false, spans}, ids, n, text, &length, error);
}

static weft_status decode_bytes(void *state, const int32_t *ids, size_t n, char **bytes,
                                size_t *length, weft_error *error)
{
    return decode_as(state, (decoding){true, NULL}, ids, n, bytes, length, error);
}

/* ---- Pieces ---- */

static weft_status find(void *state, const char *piece, int32_t *id, weft_error *error)
{
    const tk_state *s = state;
    (void)error;
    *id = weft__tk_vocabulary_find(&s->model.vocabulary, piece, strlen(piece));
    return WEFT_OK;
}

static const char *piece(void *state, int32_t id)
{
    const tk_state *s = state;
    return weft__tk_vocabulary_piece(&s->model.vocabulary, id);
}

static weft_piece_role role(void *state, int32_t id)
{
    const tk_state *s = state;
    return (weft_piece_role)s->roles[id];
}

static void free_state(void *state)
{
    weft__tk_state_free(state);
}

const weft_tokenizer_kind weft__tk_kind = {.name = "tokenizer.json",
                                           .encode = encode,
                                           .decode = decode,
                                           .decode_bytes = decode_bytes,
                                           .find = find,
                                           .piece = piece,
                                           .role = role,
                                           .characters = characters,
                                           .encode_input = encode_input,
                                           .free = free_state};
