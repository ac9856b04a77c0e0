/* The tokeniser whose ids are bytes. A piece is written <0x0A>, as SentencePiece writes one. */
#include <weft/text.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPECIALS = 4, BYTES = 256, SIZE = SPECIALS + BYTES };

typedef struct byte_pieces {
    char piece[SIZE][8];
} byte_pieces;

static weft_status encode(void *state, const char *text, int32_t *ids, weft_text_span *spans,
                          size_t capacity, size_t *n, weft_error *error)
{
    (void)state, (void)error;
    for (*n = 0; text[*n]; ++*n) {
        if (*n >= capacity) continue;
        if (ids) ids[*n] = SPECIALS + (unsigned char)text[*n];
        if (spans) spans[*n] = (weft_text_span){*n, *n + 1};
    }
    return WEFT_OK;
}

static weft_status decode(void *state, const int32_t *ids, size_t n, char **text,
                          weft_text_span *spans, weft_error *error)
{
    (void)state;
    char *out = malloc(n + 1);
    if (!out) return weft_error_set(error, WEFT_NO_MEMORY, "tokenizer", "out of memory");
    for (size_t i = 0; i < n; i++) {
        out[i] = (char)(ids[i] - SPECIALS ? ids[i] - SPECIALS : ' ');
        if (spans) spans[i] = (weft_text_span){i, i + 1};
    }
    out[n] = 0;
    *text = out;
    return WEFT_OK;
}

static weft_status find(void *state, const char *piece, int32_t *id, weft_error *error)
{
    const byte_pieces *p = state;
    (void)error;
    for (int32_t i = 0; i < SIZE; i++)
        if (!strcmp(p->piece[i], piece)) *id = i;
    return WEFT_OK;
}

static const char *piece(void *state, int32_t id)
{
    const byte_pieces *p = state;
    return p->piece[id];
}

static weft_piece_role role(void *state, int32_t id)
{
    (void)state;
    return id < SPECIALS ? WEFT_PIECE_SPECIAL : WEFT_PIECE_BYTE;
}

weft_tokenizer *weft_tokenizer_new_bytes(weft_error *error)
{
    static const weft_tokenizer_kind kind = {.name = "bytes",
                                             .encode = encode,
                                             .decode = decode,
                                             .find = find,
                                             .piece = piece,
                                             .role = role,
                                             .free = free};
    static const weft_tokenizer_info info = {.type = "byte",
                                             .normalization = "identity",
                                             .size = SIZE,
                                             .pad = 0,
                                             .unk = 1,
                                             .bos = 2,
                                             .eos = 3};
    static const char *const special[SPECIALS] = {"<pad>", "<unk>", "<s>", "</s>"};
    weft_error_clear(error);
    byte_pieces *p = malloc(sizeof *p);
    if (!p) {
        weft_error_set(error, WEFT_NO_MEMORY, "tokenizer", "out of memory");
        return NULL;
    }
    for (int i = 0; i < SPECIALS; i++) snprintf(p->piece[i], sizeof p->piece[i], "%s", special[i]);
    for (unsigned i = 0; i < BYTES; i++)
        snprintf(p->piece[SPECIALS + i], sizeof *p->piece, "<0x%02X>", i);
    weft_tokenizer *t = weft_tokenizer_new(&kind, p, &info, error);
    if (!t) free(p);
    return t;
}
