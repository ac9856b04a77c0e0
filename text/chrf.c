/* chrF: counts of n-grams of characters and words, and the score of their sums. */
#include "ngrams.h"

#include <weft/text.h>

#include <stdlib.h>

void weft_chrf_sum(weft_chrf *chrf, const weft_chrf *other)
{
    if (!chrf || !other) return;
    for (int k = 0; k < WEFT_CHRF_CHARACTERS + WEFT_CHRF_MAX_WORDS; k++) {
        chrf->matches[k] += other->matches[k];
        chrf->ngrams[k] += other->ngrams[k];
        chrf->reference_ngrams[k] += other->reference_ngrams[k];
    }
}

/* False if memory is out. */
static bool count(weft_chrf *c, const char *line, const char *const *references, size_t n)
{
    words w = {NULL, 0, 0};
    symbols mine[2] = {{NULL, 0}, {NULL, 0}};
    bool good = weft__symbols_of_characters(line, &mine[0]) &&
                weft__symbols_of_words(&w, line, true, &mine[1]);
    weft_chrf best = {.words = c->words};
    double best_score = -1;
    for (size_t r = 0; good && r < n; r++) {
        symbols theirs[2] = {{NULL, 0}, {NULL, 0}};
        weft_chrf one = {.words = c->words};
        good = weft__symbols_of_characters(references[r], &theirs[0]) &&
               weft__symbols_of_words(&w, references[r], true, &theirs[1]);
        for (int k = 0; good && k < WEFT_CHRF_CHARACTERS + c->words; k++) {
            int kind = k >= WEFT_CHRF_CHARACTERS;
            size_t order = (size_t)(kind ? k - WEFT_CHRF_CHARACTERS : k) + 1;
            good = weft__ngram_matches(&mine[kind], &theirs[kind], 1, order, &one.matches[k]);
            one.reference_ngrams[k] = weft__ngram_count(&theirs[kind], order);
            if (one.reference_ngrams[k]) one.ngrams[k] = weft__ngram_count(&mine[kind], order);
        }
        double score = weft_chrf_score(&one);
        if (score > best_score) {
            best_score = score;
            best = one;
        }
        free(theirs[0].ids);
        free(theirs[1].ids);
    }
    weft_chrf_sum(c, &best);
    free(mine[0].ids);
    free(mine[1].ids);
    weft__words_free(&w);
    return good;
}

weft_status weft_chrf_add(weft_chrf *chrf, const char *line, const char *const *references,
                          size_t n, weft_error *error)
{
    weft_error_clear(error);
    if (!chrf || !line || !references || chrf->words < 0 || chrf->words > WEFT_CHRF_MAX_WORDS)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "chrF",
                              "needs a line, its references and n-grams of at most %d words",
                              WEFT_CHRF_MAX_WORDS);
    return count(chrf, line, references, n)
               ? WEFT_OK
               : weft_error_set(error, WEFT_NO_MEMORY, "chrF", "out of memory");
}

double weft_chrf_score(const weft_chrf *chrf)
{
    const double beta_squared = 4;
    double precision = 0, recall = 0, orders = 0;
    if (!chrf) return 0;
    for (int k = 0; k < WEFT_CHRF_CHARACTERS + chrf->words; k++) {
        if (!chrf->ngrams[k] || !chrf->reference_ngrams[k]) continue;
        precision += (double)chrf->matches[k] / (double)chrf->ngrams[k];
        recall += (double)chrf->matches[k] / (double)chrf->reference_ngrams[k];
        orders++;
    }
    if (precision + recall == 0) return 0;
    precision /= orders;
    recall /= orders;
    return 100 * (1 + beta_squared) * precision * recall / (beta_squared * precision + recall);
}
