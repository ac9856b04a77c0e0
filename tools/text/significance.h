/* Paired bootstrap resampling (Koehn 2004): how much a score depends on the choice of test
 * sentences, and whether the difference of two systems could be chance. */
#ifndef WEFT_TOOLS_SIGNIFICANCE_H
#define WEFT_TOOLS_SIGNIFICANCE_H

#include "score.h"

/* Counts of one sentence. The score of a set is the score of the sum of its counts. */
typedef struct sentence_counts {
    bleu bleu;
    chrf chrf;
} sentence_counts;

enum { SCORE_BLEU, SCORE_CHRF, N_SCORES };

typedef struct resampled {
    double score;     /* of all sentences, 0 .. 100 */
    double mean;      /* over the resamples */
    double low, high; /* 95 % of the resamples are between them */
    /* Of the difference to the first system, two-sided: (1 + resamples in which the absolute
     * difference is above its mean by the observed one or more) / (1 + resamples). NAN for the
     * first system. */
    double p;
} resampled;

typedef struct system_scores {
    resampled of[N_SCORES];
} system_scores;

/* Each resample draws n_sentences of the sentences, with repetition, the same for every system.
 * counts[s][i] is of system s and sentence i; results[s].of[SCORE_...] are filled in. The same seed
 * draws the same resamples. Time: samples x n_sentences x n_systems additions of counts. False if
 * memory is out. */
bool score_resample(const sentence_counts *const *counts, size_t n_systems, size_t n_sentences,
                    size_t samples, uint64_t seed, system_scores *results);

#endif
