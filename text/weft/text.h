/* weft/text.h - texts as token ids, and scores of translations: all of the library weft-text.
 *
 * Texts are UTF-8 and end with a zero byte. A function that returns a new text allocates it by
 * malloc; the caller frees it by free().
 */
#ifndef WEFT_TEXT_H
#define WEFT_TEXT_H

#include <weft/graph.h>

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Texts ---------------------------------------------------------------------------------- */

/* Whether `bytes` bytes are UTF-8 (RFC 3629: no overlong form, no surrogate, nothing over U+10FFFF)
 * without a zero byte. */
WEFT_API bool weft_text_is_utf8(const char *text, size_t bytes);
/* Makes UTF-8 one line that a terminal shows as it is, or several if `lines`: control characters
 * other than tabs, and the separators U+2028 and U+2029, become spaces. */
WEFT_API void weft_text_clean(char *text, bool lines);
/* A new text: `text` in lower case, one character for one. NULL if out of memory. */
WEFT_API char *weft_text_lowercase(const char *text);

/* ---- Tokenisers ----------------------------------------------------------------------------- */

/* Turns texts into ids and ids into texts. Its kind does the work: weft's own or the program's. A
 * tokeniser does not change, so threads may share it if its kind allows that. */
typedef struct weft_tokenizer weft_tokenizer;

/* What a tokeniser is. `type` and `normalization` are for people; they must live as long as it. */
typedef struct weft_tokenizer_info {
    const char *type;           /* how its pieces were found: "bpe", "unigram", "byte", ... */
    const char *normalization;  /* what happens to a text first: "identity", "nfkc", ... */
    int32_t size;               /* its ids are 0 .. size - 1 */
    int32_t pad, unk, bos, eos; /* ids of special pieces; -1: none */
} weft_tokenizer_info;

/* Bytes [begin, end) of a text. */
typedef struct weft_text_span {
    size_t begin, end;
} weft_text_span;

/* What the id of a piece is for. */
typedef enum weft_piece_role {
    WEFT_PIECE_TEXT,    /* characters, or bytes of characters together */
    WEFT_PIECE_BYTE,    /* a single byte of a text */
    WEFT_PIECE_SPECIAL, /* no text: padding, the unknown piece, the ends of texts, the mask, ... */
} weft_piece_role;

/* What to encode, and how. */
typedef struct weft_encode_input {
    const char *text;
    const char *pair; /* a second text, for models that read two; NULL: none */
    bool add_special; /* with the ids that the tokeniser puts around texts: [CLS] ... [SEP], bos */
    bool parse_special; /* special pieces in the texts become their ids. False for texts that others
                           wrote: then they are characters */
} weft_encode_input;

/* Ids of an input; weft_encoding_free frees its arrays, [n]. */
typedef struct weft_encoding {
    size_t n;
    int32_t *ids;
    weft_text_span *spans; /* bytes of the text, or of the pair; empty for an id that was added */
    int32_t *types;        /* of segments, for BERT: 0 or 1 */
    int32_t *sources;      /* 0: of the text, 1: of the pair, -1: added */
} weft_encoding;

/* A kind of tokeniser. The functions get the `state` of weft_tokenizer_new; those that fail return
 * a status and set *error, which may be NULL. weft checks what a program passes: pointers that are
 * not optional are not NULL, and an id is in [0, size). */
typedef struct weft_tokenizer_kind {
    const char *name; /* for messages */
    /* *n becomes the number of ids of a text, without bos and eos. The first `capacity` of them are
     * written to `ids` and their bytes to `spans`, each of which may be NULL. */
    weft_status (*encode)(void *state, const char *text, int32_t *ids, weft_text_span *spans,
                          size_t capacity, size_t *n, weft_error *error);
    /* *text becomes a new text of n ids, none of which is special, with zero bytes as spaces.
     * `spans`, [n], may be NULL. */
    weft_status (*decode)(void *state, const int32_t *ids, size_t n, char **text,
                          weft_text_span *spans, weft_error *error);
    /* *id becomes that of a piece, as `piece` writes it; -1 if there is none. */
    weft_status (*find)(void *state, const char *piece, int32_t *id, weft_error *error);
    /* The piece of an id as the vocabulary writes it; it lives as long as the tokeniser. */
    const char *(*piece)(void *state, int32_t id);
    weft_piece_role (*role)(void *state, int32_t id);
    /* *n becomes the number of code points of a text after normalisation. NULL: of the text. */
    weft_status (*characters)(void *state, const char *text, size_t *n, weft_error *error);
    /* Fills *encoding, which is empty. NULL: add_special puts bos before a text and eos after it,
     * pairs are refused, and no special piece is found in a text. */
    weft_status (*encode_input)(void *state, const weft_encode_input *input,
                                weft_encoding *encoding, weft_error *error);
    void (*free)(void *state); /* NULL: nothing to free */
    /* As `decode`, but bytes that are not UTF-8 stay as they are. *length becomes their number. NULL:
     * what `decode` and its spans say, and the bytes of pieces <0xNN> whose role is
     * WEFT_PIECE_BYTE. */
    weft_status (*decode_bytes)(void *state, const int32_t *ids, size_t n, char **bytes,
                                size_t *length, weft_error *error);
} weft_tokenizer_kind;

/* A tokeniser of a kind, which must outlive it. Owns `state` if it succeeds. NULL on failure:
 * WEFT_BAD_ARGUMENT if the kind lacks a function or an id of *info is not in [-1, size). */
WEFT_API weft_tokenizer *weft_tokenizer_new(const weft_tokenizer_kind *kind, void *state,
                                            const weft_tokenizer_info *info, weft_error *error);
/* A tokeniser that needs no vocabulary: the id of a byte is the byte + 4, after pad, unk, bos and
 * eos, 0 to 3 (Xue et al. 2022, ByT5, with other special ids). Decoding returns the text that was
 * encoded. */
WEFT_API weft_tokenizer *weft_tokenizer_new_bytes(weft_error *error);
WEFT_API void weft_tokenizer_free(weft_tokenizer *tokenizer);

WEFT_API weft_tokenizer_info weft_tokenizer_info_of(const weft_tokenizer *tokenizer);
/* The ids of a text, without bos and eos. *n becomes their number; the first `capacity` are written
 * to `ids` and the bytes of the text that each stands for to `spans`. Either may be NULL. */
WEFT_API weft_status weft_tokenizer_encode(const weft_tokenizer *tokenizer, const char *text,
                                           int32_t *ids, weft_text_span *spans, size_t capacity,
                                           size_t *n, weft_error *error);
/* Fills *encoding with the ids of an input. With neither flag they are those of
 * weft_tokenizer_encode. WEFT_BAD_ARGUMENT for a pair if the tokeniser has no pairs. */
WEFT_API weft_status weft_tokenizer_encode_input(const weft_tokenizer *tokenizer,
                                                 const weft_encode_input *input,
                                                 weft_encoding *encoding, weft_error *error);
/* Frees the arrays and empties the encoding. */
WEFT_API void weft_encoding_free(weft_encoding *encoding);
/* *text becomes a new text of n ids, without special ids and ids outside the vocabulary, and with
 * zero bytes as spaces; NULL after an error. `spans`, [n], may be NULL: the bytes of *text of each
 * id, an empty span for an id without text. */
WEFT_API weft_status weft_tokenizer_decode(const weft_tokenizer *tokenizer, const int32_t *ids,
                                           size_t n, char **text, weft_text_span *spans,
                                           weft_error *error);
/* *bytes becomes a new array of what n ids stand for, *length bytes and a zero byte: the text of
 * weft_tokenizer_decode, but a part of a character stays as it is, where the text has U+FFFD. */
WEFT_API weft_status weft_tokenizer_decode_bytes(const weft_tokenizer *tokenizer,
                                                 const int32_t *ids, size_t n, char **bytes,
                                                 size_t *length, weft_error *error);
/* *characters becomes the number of code points of a text after the tokeniser's normalisation,
 * which is the text that its ids decode to. */
WEFT_API weft_status weft_tokenizer_characters(const weft_tokenizer *tokenizer, const char *text,
                                               size_t *characters, weft_error *error);
/* *id becomes the id of a piece; -1 if there is none. */
WEFT_API weft_status weft_tokenizer_find(const weft_tokenizer *tokenizer, const char *piece,
                                         int32_t *id, weft_error *error);
/* The piece of an id, which lives as long as the tokeniser; "" for an id outside the vocabulary. */
WEFT_API const char *weft_tokenizer_piece(const weft_tokenizer *tokenizer, int32_t id);
/* WEFT_PIECE_SPECIAL for an id outside the vocabulary. */
WEFT_API weft_piece_role weft_tokenizer_role(const weft_tokenizer *tokenizer, int32_t id);

/* Decodes ids one by one, as a model generates them. The texts that it returns are whole characters
 * and make together, in order, the text of all ids. A character that spans several ids comes with
 * the last of them. Where an id shows that bytes
 * which were returned are not a character, the text with U+FFFD instead follows what was returned. */
typedef struct weft_text_decoder weft_text_decoder;

/* The tokeniser must outlive it. NULL on failure. */
WEFT_API weft_text_decoder *weft_text_decoder_new(const weft_tokenizer *tokenizer,
                                                  weft_error *error);
WEFT_API void weft_text_decoder_free(weft_text_decoder *decoder);
/* *text becomes the text that one more id completes, "" if there is none. It is valid until the
 * next call. */
WEFT_API weft_status weft_text_decoder_add(weft_text_decoder *decoder, int32_t id,
                                           const char **text, weft_error *error);
/* *text becomes the characters that no id completed, as the tokeniser decodes them. The
 * next id begins a new text. */
WEFT_API weft_status weft_text_decoder_end(weft_text_decoder *decoder, const char **text,
                                           weft_error *error);

/* ---- Files of texts ------------------------------------------------------------------------- */

/* The part of a file that becomes one sequence of ids: a line, or the lines up to an empty one with
 * the line ends between them. */
typedef enum weft_text_unit { WEFT_TEXT_LINE, WEFT_TEXT_DOCUMENT } weft_text_unit;

typedef struct weft_text_input {
    const char *path; /* NULL: no such input. Messages call the input so */
    FILE *file;       /* NULL: weft opens `path`. Else what is read; it stays the caller's */
    const weft_tokenizer *tokenizer;
} weft_text_input;

/* What to read: pairs of units, or units of `target` alone. */
typedef struct weft_text_files {
    weft_text_input source, target;
    weft_text_unit unit;
    size_t max_tokens; /* for weft_text_counts.characters */
} weft_text_files;

/* Takes the ids of a pair, or of a unit: then source is NULL and n_source 0. The ids are weft's.
 * weft_text_read ends with a status that is not WEFT_OK. */
typedef weft_status weft_text_take(void *context, const int32_t *source, size_t n_source,
                                   const int32_t *target, size_t n_target);

/* Numbers of lines, from 1: how many, and the first of them. */
#define WEFT_TEXT_LISTED 8
typedef struct weft_text_lines {
    size_t n, first[WEFT_TEXT_LISTED];
} weft_text_lines;

typedef struct weft_text_counts {
    size_t units; /* that were read from each file */
    /* Left out, because they are not UTF-8 or have a zero byte; of pairs, in either file. */
    weft_text_lines invalid;
    /* Code points, as the tokeniser normalises them, of the targets that have 1 to max_tokens ids,
     * and one for the end of each of them. */
    size_t characters;
} weft_text_counts;

/* Calls `take` with the ids of each unit, without the line's end (LF or CRLF) and a byte order
 * mark. Errors: WEFT_NOT_FOUND or WEFT_IO for a file that cannot be read; WEFT_BAD_FILE for a file
 * that has no line, of which most is not UTF-8, or that has fewer units than its pair; the status
 * of `take`. *counts, which may be NULL, has what was read so far. Memory: a unit and its ids. */
WEFT_API weft_status weft_text_read(const weft_text_files *files, weft_text_take *take,
                                    void *context, weft_text_counts *counts, weft_error *error);

/* ---- Scores of translations ----------------------------------------------------------------- */

/* BLEU and chrF count n-grams of a line and of its references. Counts of lines are added to those
 * of a text, whose score follows from the sums. A byte that is not UTF-8 counts as a character. The
 * numbers are those of sacreBLEU 2 (Post 2018). */

/* A new text: the tokens of a line with a space between them, by mteval-v13a, which resolves
 * entities and separates punctuation except within numbers. NULL if out of memory. */
WEFT_API char *weft_text_tokens_13a(const char *line);

#define WEFT_BLEU_ORDER 4
/* Counts of BLEU (Papineni et al. 2002), by tokens of weft_text_tokens_13a. Begin with zeros. */
typedef struct weft_bleu {
    size_t matches[WEFT_BLEU_ORDER], ngrams[WEFT_BLEU_ORDER]; /* of 1, 2, 3, 4 tokens */
    size_t length, reference_length; /* tokens; of the closest reference, the shorter of two */
} weft_bleu;
/* score = brevity * exp(mean over k of log precision_k), 0 .. 100 */
typedef struct weft_bleu_result {
    double score;
    double precisions[WEFT_BLEU_ORDER]; /* per cent; the k-th zero counts 1 / (2^k n-grams) */
    double brevity;                     /* exp(1 - reference_length / length), at most 1 */
} weft_bleu_result;
/* Adds the counts of one line with n references; matches are clipped to the maximum count in any
 * reference. Sorts n-grams: O(m log m) for m tokens. */
WEFT_API weft_status weft_bleu_add(weft_bleu *bleu, const char *line, const char *const *references,
                                   size_t n, weft_error *error);
/* Adds the counts of another. */
WEFT_API void weft_bleu_sum(weft_bleu *bleu, const weft_bleu *other);
WEFT_API weft_bleu_result weft_bleu_score(const weft_bleu *bleu);
/* BLEU of a single sentence: the mean over the orders for which the line is long enough, so a
 * correct line of three tokens scores 100 (sacreBLEU's effective order). */
WEFT_API weft_bleu_result weft_bleu_score_sentence(const weft_bleu *bleu);

#define WEFT_CHRF_CHARACTERS 6
#define WEFT_CHRF_MAX_WORDS  2
/* Counts of chrF (Popovic 2015, 2017). Begin with zeros but for `words`, 0 to 2. */
typedef struct weft_chrf {
    int words; /* longest n-grams of words: 0 for chrF, 2 for chrF++ */
    /* [k]: characters 1 .. 6, then words 1 .. 2 */
    size_t matches[WEFT_CHRF_CHARACTERS + WEFT_CHRF_MAX_WORDS];
    size_t ngrams[WEFT_CHRF_CHARACTERS + WEFT_CHRF_MAX_WORDS];
    size_t reference_ngrams[WEFT_CHRF_CHARACTERS + WEFT_CHRF_MAX_WORDS];
} weft_chrf;
/* Adds the counts of one line, against the reference that scores best on it. */
WEFT_API weft_status weft_chrf_add(weft_chrf *chrf, const char *line, const char *const *references,
                                   size_t n, weft_error *error);
/* Adds the counts of another with as long n-grams of words. */
WEFT_API void weft_chrf_sum(weft_chrf *chrf, const weft_chrf *other);
/* 0 .. 100: 5 P R / (4 P + R) of precision P and recall R, each averaged over the n-grams' lengths,
 * which is F with beta 2. */
WEFT_API double weft_chrf_score(const weft_chrf *chrf);

/* ---- Significance --------------------------------------------------------------------------- */

/* Counts of one sentence. */
typedef struct weft_sentence_counts {
    weft_bleu bleu;
    weft_chrf chrf;
} weft_sentence_counts;

/* Systems that translated the same sentences, the first of which is compared with the others. */
typedef struct weft_resampling {
    const weft_sentence_counts *const *counts; /* [n_systems][n_sentences] */
    size_t n_systems, n_sentences;
    size_t samples; /* resamples, at least 1 */
    uint64_t seed;  /* the same seed draws the same resamples */
} weft_resampling;

typedef struct weft_resampled {
    double score;     /* of all sentences, 0 .. 100 */
    double mean;      /* over the resamples */
    double low, high; /* 95 % of the resamples are between them */
    /* Of the difference to the first system, two-sided: (1 + resamples in which the absolute
     * difference is above its mean by the observed one or more) / (1 + resamples). NAN for the
     * first system. */
    double p;
} weft_resampled;

typedef struct weft_system_scores {
    weft_resampled bleu, chrf;
} weft_system_scores;

/* Paired bootstrap resampling (Koehn 2004): how much a score depends on the choice of test
 * sentences, and whether the difference of two systems could be chance. Each resample draws
 * n_sentences of the sentences, with repetition, the same for every system. Fills
 * results[n_systems]. Time: samples x n_sentences x n_systems additions of counts. */
WEFT_API weft_status weft_score_resample(const weft_resampling *resampling,
                                         weft_system_scores *results, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
