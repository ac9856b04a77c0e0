/* SentencePiece as a kind of tokeniser (weft/text.h), and the training of its vocabularies. */
#ifndef WEFT_TOOLS_SPM_H
#define WEFT_TOOLS_SPM_H

#include <weft/text.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SPM_PAD = 0, SPM_UNK = 1, SPM_BOS = 2, SPM_EOS = 3 };

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
/* A tokeniser from such bytes, which messages call `where`. NULL on failure. */
weft_tokenizer *spm_parse(const char *model, size_t bytes, const char *where, weft_error *error);
/* A tokeniser from a file. */
weft_tokenizer *spm_load(const char *path, weft_error *error);

/* How many ids there are. */
static inline int32_t spm_size(const weft_tokenizer *t)
{
    return weft_tokenizer_info_of(t).size;
}
/* Are pad, unk, bos and eos the ids above? */
static inline bool spm_has_specials(const weft_tokenizer *t)
{
    const weft_tokenizer_info i = weft_tokenizer_info_of(t);
    return i.pad == SPM_PAD && i.unk == SPM_UNK && i.bos == SPM_BOS && i.eos == SPM_EOS;
}

#ifdef __cplusplus
}
#endif
#endif
