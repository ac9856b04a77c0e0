/* A C interface to SentencePiece. */
#ifndef WEFT_TOOLS_SPM_H
#define WEFT_TOOLS_SPM_H

#include <weft/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SPM_PAD = 0, SPM_UNK = 1, SPM_BOS = 2, SPM_EOS = 3 };

typedef struct spm spm;

/* The mask token in vocabularies of masked language models. */
#define SPM_MASK "<mask>"

typedef struct spm_options {
    const char *type; /* "bpe", "unigram" or "char" */
    int size;         /* maximum number of pieces, special ones included */
    bool mask;        /* with SPM_MASK */
    /* Decoding returns exactly the encoded text, with its blanks, line ends and rare characters
     * (256 of the pieces are bytes). Otherwise texts are normalised by NFKC, with runs of blanks
     * made one. */
    bool identity;
} spm_options;

/* No C++ exception leaves these functions. Each that can fail returns a status and sets *error,
 * which may be NULL: WEFT_NO_MEMORY, WEFT_IO or WEFT_BAD_FILE for a file, WEFT_INTERNAL for
 * any other error of the library. One failure cannot be caught: the protobuf within SentencePiece
 * ends the process if some of its own allocations fail. */

/* Counts of the lines that spm_train read. */
typedef struct spm_counts {
    size_t lines;
    size_t invalid; /* lines that are not UTF-8, which are left out */
    size_t split;   /* lines longer than SPM_LINE_BYTES, which are read in pieces */
} spm_counts;
/* The longest line that SentencePiece accepts. */
#define SPM_LINE_BYTES 4192

/* Trains a vocabulary on `n` text files; *model becomes the bytes of its file, which the caller
 * frees. */
weft_status spm_train(const char *const *files, size_t n, const spm_options *options,
                      spm_counts *counts, char **model, size_t *bytes, weft_error *error);
/* Loads a vocabulary from such bytes, which messages call `where`. NULL on failure. */
spm *spm_parse(const char *model, size_t bytes, const char *where, weft_error *error);
/* Loads a vocabulary from a file. */
spm *spm_load(const char *path, weft_error *error);
void spm_free(spm *s);
int spm_size(const spm *s);
/* Are pad, unk, bos and eos the ids above? */
bool spm_has_specials(const spm *s);
typedef struct spm_specials {
    int32_t pad, unk, bos, eos; /* -1: none */
} spm_specials;
spm_specials spm_special_ids(const spm *s);
/* How it was made: bpe, unigram, char or word; nmt_nfkc (that of `weft train`), identity, or
 * another of SentencePiece; "unknown" if the file names neither. */
typedef struct spm_kind {
    const char *type, *normalization;
} spm_kind;
spm_kind spm_get_kind(const spm *s);
/* Whether an id below spm_size has no text, such as the unknown piece. */
bool spm_is_special(const spm *s, int32_t id);
/* Whether an id is a byte of text; vocabularies that keep every character have 256 of them. */
bool spm_is_byte(const spm *s, int32_t id);
/* *id becomes the id of a piece, or that of the unknown piece. */
weft_status spm_id(const spm *s, const char *piece, int32_t *id, weft_error *error);
/* The ids of a text, without BOS and EOS; at most `capacity` are written. *n becomes their number,
 * which may be larger. */
weft_status spm_encode(const spm *s, const char *text, int32_t *ids, size_t capacity, size_t *n,
                       weft_error *error);
/* *n becomes the number of Unicode code points of the text after the vocabulary's normalisation,
 * which is the text that its ids decode to. */
weft_status spm_characters(const spm *s, const char *text, size_t *n, weft_error *error);
/* *text becomes the text of ids, without special ids and with zero bytes as spaces; the caller
 * frees it. NULL after an error. */
weft_status spm_decode(const spm *s, const int32_t *ids, size_t n, char **text, weft_error *error);

/* The same, with the span of each piece in the text: its first byte and the one after its last.
 * When encoding, for at most `capacity` pieces; when decoding, for each id, with empty spans for
 * special ids. */
weft_status spm_encode_spans(const spm *s, const char *text, size_t (*spans)[2], size_t capacity,
                             size_t *n, weft_error *error);
weft_status spm_decode_spans(const spm *s, const int32_t *ids, size_t n, char **text,
                             size_t (*spans)[2], weft_error *error);

/* The piece of an id, as long as `s` lives; "" if there is none. */
const char *spm_piece(const spm *s, int32_t id);

#ifdef __cplusplus
}
#endif
#endif
