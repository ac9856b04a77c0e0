/* Scores of translations against references: BLEU (Papineni et al. 2002, with the tokenisation
 * "13a" and the smoothing that Post 2018 made the standard) and chrF (Popovic 2015, 2017). Texts
 * are UTF-8; a byte that is not counts as a character of its own. */
#ifndef WEFT_TOOLS_SCORE_H
#define WEFT_TOOLS_SCORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BLEU_ORDER = 4, CHRF_CHARACTERS = 6, CHRF_MAX_WORDS = 2 };

/* The tokens of a line with a space between them; the caller frees the text. NULL if memory is out.
 * mteval-v13a: resolves entities and separates punctuation, except within numbers. */
char *score_tokens_13a(const char *line);
/* The line in lower case (one character for one); the caller frees it. */
char *score_lowercase(const char *line);

typedef struct bleu {
    size_t matches[BLEU_ORDER], ngrams[BLEU_ORDER]; /* of 1, 2, 3, 4 tokens */
    size_t length, reference_length; /* tokens; of the closest reference, the shorter of two */
} bleu;
/* Adds one line's counts; matches are clipped to the maximum count in any reference. False if
 * memory is out. */
bool bleu_add(bleu *b, const char *line, const char *const *references, size_t n);
typedef struct bleu_result {
    double score;                  /* 0 .. 100 */
    double precisions[BLEU_ORDER]; /* per cent; the k-th zero counts 1 / (2^k n-grams) */
    double brevity;                /* exp(1 - reference_length / length), at most 1 */
} bleu_result;
bleu_result bleu_of(const bleu *b);
/* BLEU of a single sentence: the mean over the orders for which the line is long enough, so a
 * correct line of three tokens scores 100 (sacreBLEU's effective order). */
bleu_result bleu_of_sentence(const bleu *b);
/* Adds the counts of another. */
void bleu_sum(bleu *b, const bleu *other);

typedef struct chrf {
    int words; /* longest n-grams of words: 0 for chrF, 2 for chrF++ */
    /* [k]: characters 1 .. 6, then words 1 .. 2 */
    size_t matches[CHRF_CHARACTERS + CHRF_MAX_WORDS];
    size_t ngrams[CHRF_CHARACTERS + CHRF_MAX_WORDS];
    size_t reference_ngrams[CHRF_CHARACTERS + CHRF_MAX_WORDS];
} chrf;
/* Adds one line's counts against the reference that scores best on this line. */
bool chrf_add(chrf *c, const char *line, const char *const *references, size_t n);
/* 0 .. 100: F with beta 2 of precision and recall, each averaged over the n-grams' lengths. */
double chrf_of(const chrf *c);
/* Adds the counts of another with as long n-grams of words. */
void chrf_sum(chrf *c, const chrf *other);

#endif
