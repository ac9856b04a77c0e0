/* Vocabularies of GGUF files as tokenizer.json. Not installed. */
#ifndef WEFT_FORMATS_GGUF_TOKENIZER_H
#define WEFT_FORMATS_GGUF_TOKENIZER_H

#include "file.h"

/* Text that grows. After a failure, which is in *error, functions do nothing. */
typedef struct gguf_text {
    const weft_gguf *file;
    char *text;
    size_t n, capacity;
    weft_status status;
    weft_error *error;
} gguf_text;

void weft__gguf_put(gguf_text *t, const char *text);
void weft__gguf_put_number(gguf_text *t, size_t number);
/* Puts texts as one JSON string; they end with a zero. */
void weft__gguf_put_string(gguf_text *t, const char *first, const char *second);
/* Fails: "the vocabulary: ...". */
void weft__gguf_refuse(gguf_text *t, weft_status status, const char *format, ...) WEFT_PRINTF(3, 4);

/* Pieces, which are in the order of their ids and end with zeros, and their scores. */
typedef struct gguf_pieces {
    const char **at;
    size_t n;
    const weft_gguf_value *scores; /* numbers, or NULL */
    const weft_gguf_value *types;  /* integers, or NULL: all normal */
} gguf_pieces;

/* A component of a tokenizer.json. */
#define BYTE_LEVEL(regex)                                                                          \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_"              \
    "regex\":" regex "}"

/* Of SentencePiece, in whose pieces spaces are U+2581. */
#define SPM_SPACE   "\xE2\x96\x81"
#define SPM_PREPEND "{\"type\":\"Prepend\",\"prepend\":\"" SPM_SPACE "\"}"
#define SPM_REPLACE                                                                                \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" SPM_SPACE "\"}"
#define SPM_SEQUENCE(before) "{\"type\":\"Sequence\",\"normalizers\":[" before "]}"

/* How texts are split. */
typedef struct gguf_split {
    const char *names[6]; /* of tokenizer.ggml.pre */
    const char *normalizer, *pre_tokenizer;
    bool ignore_merges; /* a word that is a piece is not made by merges */
    bool add_bos;       /* where tokenizer.ggml.add_bos_token is missing */
} gguf_split;

/* Splits of byte-level vocabularies; NULL beyond the end. */
const gguf_split *weft__gguf_split_at(size_t index);

/* Special pieces: the key of the id, after tokenizer.ggml, and the key in tokenizer_config.json. The
 * end of a text comes before padding. */
typedef struct gguf_special {
    const char *key, *piece;
} gguf_special;
#define GGUF_SPECIALS 4
extern const gguf_special weft__gguf_specials[GGUF_SPECIALS];

/* tokenizer.ggml.model of files without a vocabulary. */
#define GGUF_NO_VOCABULARY "none"

/* A vocabulary. */
typedef struct gguf_vocabulary {
    gguf_pieces pieces;
    const weft_gguf_value *merges; /* NULL: they follow from the scores, as in SentencePiece */
    const gguf_split *split;       /* NULL: SentencePiece */
    bool add_bos, add_eos, add_space;
    arena memory; /* of the pieces */
} gguf_vocabulary;

/* Reads the vocabulary of the text's file, whose memory the caller frees. */
void weft__gguf_read_vocabulary(gguf_text *t, gguf_vocabulary *v);
/* The piece that a key, without tokenizer.ggml, names by its id; NULL if there is none. */
const char *weft__gguf_named(const gguf_text *t, const gguf_vocabulary *v, const char *name,
                             size_t *id);
/* A copy of text `i` of the file with a zero at its end; a text that contains one, or is not UTF-8,
 * is refused. */
const char *weft__gguf_copy_text(gguf_text *t, arena *memory, const weft_gguf_value *value,
                                 size_t i);

/* Puts the merges of a BPE that follow from the scores of its pieces, as items of a JSON array. */
void weft__gguf_put_merges(gguf_text *t, const gguf_pieces *pieces);

#endif
