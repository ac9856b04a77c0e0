/* SentencePiece behind a C interface. */
#ifndef WEFT_TOOLS_SPM_H
#define WEFT_TOOLS_SPM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SPM_PAD = 0, SPM_UNK = 1, SPM_BOS = 2, SPM_EOS = 3 };

typedef struct spm spm;

/* What stands for a hidden token in vocabularies of masked language models. */
#define SPM_MASK "<mask>"

typedef struct spm_options {
    const char *type; /* "bpe", "unigram" or "char" */
    int size;         /* pieces, special ones included; fewer if the text gives no more */
    bool mask;        /* with SPM_MASK */
    /* Texts come out of their ids as they went in, blanks, line ends and rare characters included
     * (256 of the pieces are bytes); otherwise NFKC, with runs of blanks made one. */
    bool identity;
} spm_options;

/* What spm_train read. */
typedef struct spm_counts {
    size_t lines;
    size_t invalid; /* lines that are not UTF-8, which are left out */
    size_t split;   /* lines that are longer than SPM_LINE_BYTES, which are read in pieces */
} spm_counts;
/* SentencePiece takes no longer ones. */
#define SPM_LINE_BYTES 4192

/* Trains a vocabulary on `n` text files and writes it to `path`, which is either a whole file or
 * not touched. False, and one line in `message`, on failure. */
bool spm_train(const char *const *files, size_t n, const char *path, const spm_options *options,
               spm_counts *counts, char *message, size_t capacity);
/* NULL, and one line in `message`, on failure. */
spm *spm_load(const char *path, char *message, size_t capacity);
void spm_free(spm *s);
int spm_size(const spm *s);
/* Are pad, unk, bos and eos the ids above? */
bool spm_has_specials(const spm *s);
/* The id of a piece; that of the unknown piece if there is none such. */
int32_t spm_id(const spm *s, const char *piece);
/* The ids of a text, without BOS and EOS; at most `capacity` are written. Returns their number. */
size_t spm_encode(const spm *s, const char *text, int32_t *ids, size_t capacity);
/* The Unicode code points of a text as the vocabulary normalises it, that is of what its ids say.
 */
size_t spm_characters(const spm *s, const char *text);
/* The text of ids; specials are left out. Always terminated. */
void spm_decode(const spm *s, const int32_t *ids, size_t n, char *text, size_t capacity);

/* The piece of an id, as long as `s` lives; "" if there is none. */
const char *spm_piece(const spm *s, int32_t id);

#ifdef __cplusplus
}
#endif
#endif
