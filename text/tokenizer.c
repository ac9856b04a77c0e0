/* Tokenisers: what all kinds have in common. */
#include "byte_piece.h"

#include <weft/text.h>

#include <stdlib.h>
#include <string.h>

struct weft_tokenizer {
    const weft_tokenizer_kind *kind;
    void *state;
    weft_tokenizer_info info;
};

static weft_status bad(weft_error *error, const char *what)
{
    return weft_error_set(error, WEFT_BAD_ARGUMENT, "tokenizer", "%s", what);
}

static weft_status no_memory(weft_error *error)
{
    return weft_error_set(error, WEFT_NO_MEMORY, "tokenizer", "out of memory");
}

static weft_status check(const weft_tokenizer_kind *kind, const weft_tokenizer_info *info,
                         weft_error *error)
{
    if (!kind || !info || !kind->encode || !kind->decode || !kind->find || !kind->piece ||
        !kind->role)
        return bad(error, "a kind needs encode, decode, find, piece and role");
    const int32_t special[] = {info->pad, info->unk, info->bos, info->eos};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (special[i] < -1 || special[i] >= info->size)
            return weft_error_set(error, WEFT_BAD_ARGUMENT, kind->name,
                                  "special id %d is not in [-1, %d)", special[i], info->size);
    return WEFT_OK;
}

weft_tokenizer *weft_tokenizer_new(const weft_tokenizer_kind *kind, void *state,
                                   const weft_tokenizer_info *info, weft_error *error)
{
    weft_error_clear(error);
    if (check(kind, info, error) != WEFT_OK) return NULL;
    weft_tokenizer *t = malloc(sizeof *t);
    if (!t) {
        no_memory(error);
        return NULL;
    }
    *t = (weft_tokenizer){kind, state, *info};
    return t;
}

void weft_tokenizer_free(weft_tokenizer *tokenizer)
{
    if (!tokenizer) return;
    if (tokenizer->kind->free) tokenizer->kind->free(tokenizer->state);
    free(tokenizer);
}

weft_tokenizer_info weft_tokenizer_info_of(const weft_tokenizer *tokenizer)
{
    return tokenizer
               ? tokenizer->info
               : (weft_tokenizer_info){
                     .type = "", .normalization = "", .pad = -1, .unk = -1, .bos = -1, .eos = -1};
}

weft_status weft_tokenizer_encode(const weft_tokenizer *tokenizer, const char *text, int32_t *ids,
                                  weft_text_span *spans, size_t capacity, size_t *n,
                                  weft_error *error)
{
    const weft_tokenizer *t = tokenizer;
    weft_error_clear(error);
    if (!t || !text || !n) return bad(error, "encoding needs a tokeniser, a text and a count");
    *n = 0;
    return t->kind->encode(t->state, text, ids, spans, capacity, n, error);
}

void weft_encoding_free(weft_encoding *encoding)
{
    if (!encoding) return;
    free(encoding->ids);
    free(encoding->spans);
    free(encoding->types);
    free(encoding->sources);
    *encoding = (weft_encoding){.n = 0};
}

/* The ids of one text, with bos and eos if the input asks for them. */
static weft_status encode_one(const weft_tokenizer *t, const weft_encode_input *input,
                              weft_encoding *e, weft_error *error)
{
    const int32_t bos = input->add_special ? t->info.bos : -1;
    const int32_t eos = input->add_special ? t->info.eos : -1;
    const size_t before = bos >= 0;
    size_t n = 0, found = 0;
    weft_status status = t->kind->encode(t->state, input->text, NULL, NULL, 0, &n, error);
    if (status != WEFT_OK) return status;
    e->ids = calloc(n + 2, sizeof *e->ids);
    e->spans = calloc(n + 2, sizeof *e->spans);
    e->types = calloc(n + 2, sizeof *e->types);
    e->sources = calloc(n + 2, sizeof *e->sources);
    if (!e->ids || !e->spans || !e->types || !e->sources) return no_memory(error);
    status = t->kind->encode(t->state, input->text, e->ids + before, e->spans + before, n, &found,
                             error);
    e->n = before + n + (eos >= 0);
    if (before) e->ids[0] = bos, e->sources[0] = -1;
    if (eos >= 0) e->ids[e->n - 1] = eos, e->sources[e->n - 1] = -1;
    return status;
}

weft_status weft_tokenizer_encode_input(const weft_tokenizer *tokenizer,
                                        const weft_encode_input *input, weft_encoding *encoding,
                                        weft_error *error)
{
    const weft_tokenizer *t = tokenizer;
    weft_error_clear(error);
    if (encoding) *encoding = (weft_encoding){.n = 0};
    if (!t || !input || !input->text || !encoding)
        return bad(error, "encoding needs a tokeniser, an input with a text, and an encoding");
    if (!t->kind->encode_input && input->pair)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, t->kind->name,
                              "this tokeniser does not encode pairs of texts");
    const weft_status status = t->kind->encode_input
                                   ? t->kind->encode_input(t->state, input, encoding, error)
                                   : encode_one(t, input, encoding, error);
    if (status != WEFT_OK) weft_encoding_free(encoding);
    return status;
}

static bool has_text(const weft_tokenizer *t, int32_t id)
{
    return weft_tokenizer_role(t, id) != WEFT_PIECE_SPECIAL;
}

/* Moves the spans of the ids with text, at the front, to the places of all n ids. From the last to
 * the first, so that none is overwritten before it is read. */
static void spread_spans(const weft_tokenizer *t, const int32_t *ids, size_t n, size_t kept,
                         weft_text_span *spans)
{
    size_t begin = kept ? spans[kept - 1].end : 0;
    for (size_t i = n; i-- > 0;) {
        if (has_text(t, ids[i])) {
            spans[i] = spans[--kept];
            begin = spans[i].begin;
        } else {
            spans[i] = (weft_text_span){begin, begin};
        }
    }
}

weft_status weft_tokenizer_decode(const weft_tokenizer *tokenizer, const int32_t *ids, size_t n,
                                  char **text, weft_text_span *spans, weft_error *error)
{
    const weft_tokenizer *t = tokenizer;
    weft_error_clear(error);
    if (text) *text = NULL;
    if (!t || !text || (n && !ids)) return bad(error, "decoding needs a tokeniser, ids and a text");
    int32_t *kept = calloc(n + 1, sizeof *kept);
    size_t n_kept = 0;
    if (!kept) return no_memory(error);
    for (size_t i = 0; i < n; i++)
        if (has_text(t, ids[i])) kept[n_kept++] = ids[i];
    const weft_status status = t->kind->decode(t->state, kept, n_kept, text, spans, error);
    free(kept);
    if (status == WEFT_OK && spans) spread_spans(t, ids, n, n_kept, spans);
    return status;
}

/* The byte of a piece <0xNN>; -1 if it is another. */
static int byte_of(const weft_tokenizer *t, int32_t id)
{
    const char *piece = weft_tokenizer_piece(t, id);
    return weft_tokenizer_role(t, id) == WEFT_PIECE_BYTE ? byte_of_piece(piece, strlen(piece)) : -1;
}

/* The bytes of ids by the spans of their text, of which those of pieces <0xNN> are put back. */
static weft_status bytes_by_spans(const weft_tokenizer *t, const int32_t *ids, size_t n,
                                  char **bytes, size_t *length, weft_error *error)
{
    char *text = NULL, *out = NULL;
    weft_text_span *spans = calloc(n + 1, sizeof *spans);
    weft_status status =
        spans ? weft_tokenizer_decode(t, ids, n, &text, spans, error) : no_memory(error);
    if (status == WEFT_OK && !(out = malloc(strlen(text) + n + 1))) status = no_memory(error);
    for (size_t i = 0, at = 0; status == WEFT_OK && i <= n; i++) {
        const int byte = i < n ? byte_of(t, ids[i]) : -1;
        if (i == n) {
            out[at] = 0;
            *length = at;
        } else if (byte >= 0) {
            out[at++] = byte ? (char)byte : ' ';
        } else {
            memcpy(out + at, text + spans[i].begin, spans[i].end - spans[i].begin);
            at += spans[i].end - spans[i].begin;
        }
    }
    free(spans);
    free(text);
    *bytes = out;
    return status;
}

weft_status weft_tokenizer_decode_bytes(const weft_tokenizer *tokenizer, const int32_t *ids,
                                        size_t n, char **bytes, size_t *length, weft_error *error)
{
    const weft_tokenizer *t = tokenizer;
    weft_error_clear(error);
    if (bytes) *bytes = NULL;
    if (length) *length = 0;
    if (!t || !bytes || !length || (n && !ids))
        return bad(error, "decoding needs a tokeniser, ids, bytes and their length");
    if (!t->kind->decode_bytes) return bytes_by_spans(t, ids, n, bytes, length, error);
    int32_t *kept = calloc(n + 1, sizeof *kept);
    size_t n_kept = 0;
    if (!kept) return no_memory(error);
    for (size_t i = 0; i < n; i++)
        if (has_text(t, ids[i])) kept[n_kept++] = ids[i];
    const weft_status status = t->kind->decode_bytes(t->state, kept, n_kept, bytes, length, error);
    free(kept);
    return status;
}

weft_status weft_tokenizer_characters(const weft_tokenizer *tokenizer, const char *text,
                                      size_t *characters, weft_error *error)
{
    const weft_tokenizer *t = tokenizer;
    weft_error_clear(error);
    if (!t || !text || !characters)
        return bad(error, "counting needs a tokeniser, a text and a count");
    *characters = 0;
    if (t->kind->characters) return t->kind->characters(t->state, text, characters, error);
    for (; *text; text++) *characters += ((unsigned char)*text & 0xC0) != 0x80;
    return WEFT_OK;
}

weft_status weft_tokenizer_find(const weft_tokenizer *tokenizer, const char *piece, int32_t *id,
                                weft_error *error)
{
    weft_error_clear(error);
    if (!tokenizer || !piece || !id)
        return bad(error, "finding needs a tokeniser, a piece and an id");
    *id = -1;
    return tokenizer->kind->find(tokenizer->state, piece, id, error);
}

static bool is_inside(const weft_tokenizer *t, int32_t id)
{
    return t && id >= 0 && id < t->info.size;
}

const char *weft_tokenizer_piece(const weft_tokenizer *tokenizer, int32_t id)
{
    return is_inside(tokenizer, id) ? tokenizer->kind->piece(tokenizer->state, id) : "";
}

weft_piece_role weft_tokenizer_role(const weft_tokenizer *tokenizer, int32_t id)
{
    return is_inside(tokenizer, id) ? tokenizer->kind->role(tokenizer->state, id)
                                    : WEFT_PIECE_SPECIAL;
}
