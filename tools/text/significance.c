/* See significance.h. The definitions of interval and p value are those of sacreBLEU 2. */
#include "significance.h"

#include <weft/op.h>

#include <math.h>
#include <stdlib.h>

/* Draws the sentences of one resample. Draw j of sample k is word j % 4 of Philox at the counter
 * (j / 4, k), scaled to [0, n). */
static void draw_sentences(size_t *drawn, size_t n, size_t sample, uint64_t seed)
{
    uint32_t words[4] = {0};
    for (size_t j = 0; j < n; j++) {
        const uint64_t block = j / 4;
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)sample,
                                     (uint32_t)((uint64_t)sample >> 32)};
        if (j % 4 == 0) weft_philox(counter, seed, words);
        drawn[j] = (size_t)(((uint64_t)words[j % 4] * n) >> 32);
    }
}

/* The scores of a system on the sentences `drawn`; NULL: on all sentences once. */
static void score_set(const sentence_counts *counts, const size_t *drawn, size_t n,
                      double scores[N_SCORES])
{
    bleu b = {.length = 0};
    chrf c = {.words = counts[0].chrf.words};
    for (size_t i = 0; i < n; i++) {
        const sentence_counts *one = &counts[drawn ? drawn[i] : i];
        bleu_sum(&b, &one->bleu);
        chrf_sum(&c, &one->chrf);
    }
    scores[SCORE_BLEU] = bleu_of(&b).score;
    scores[SCORE_CHRF] = chrf_of(&c);
}

static double mean_of(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    return sum / (double)n;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double p_value(double *differences, size_t n, double observed)
{
    size_t beyond = 0;
    double mean = mean_of(differences, n);
    for (size_t i = 0; i < n; i++) beyond += differences[i] - mean >= observed;
    return (double)(beyond + 1) / (double)(n + 1);
}

/* Summarises one score of one system; `first` is that of the first system, or NULL for the first
 * itself. `scratch` has one number for each sample. */
static void summarize(const double *samples, const double *first, double first_score, size_t n,
                      double *scratch, resampled *r)
{
    r->p = NAN;
    r->mean = mean_of(samples, n);
    if (first) {
        for (size_t k = 0; k < n; k++) scratch[k] = fabs(samples[k] - first[k]);
        r->p = p_value(scratch, n, fabs(r->score - first_score));
    }
    for (size_t k = 0; k < n; k++) scratch[k] = samples[k];
    qsort(scratch, n, sizeof *scratch, ascending);
    r->low = scratch[n / 40];
    r->high = scratch[n - n / 40 - 1];
}

bool score_resample(const sentence_counts *const *counts, size_t n_systems, size_t n_sentences,
                    size_t samples, uint64_t seed, system_scores *results)
{
    size_t *drawn = malloc(n_sentences * sizeof *drawn);
    double *all = calloc(n_systems * N_SCORES + 1, samples * sizeof *all); /* [system][score] */
    double *scratch = all ? all + n_systems * N_SCORES * samples : NULL;
    double scores[N_SCORES];
    for (size_t k = 0; drawn && all && k < samples; k++) {
        draw_sentences(drawn, n_sentences, k, seed);
        for (size_t s = 0; s < n_systems; s++) {
            score_set(counts[s], drawn, n_sentences, scores);
            for (size_t m = 0; m < N_SCORES; m++) all[(s * N_SCORES + m) * samples + k] = scores[m];
        }
    }
    for (size_t s = 0; drawn && all && s < n_systems; s++) {
        score_set(counts[s], NULL, n_sentences, scores);
        for (size_t m = 0; m < N_SCORES; m++) {
            results[s].of[m].score = scores[m];
            summarize(all + (s * N_SCORES + m) * samples, s ? all + m * samples : NULL,
                      results[0].of[m].score, samples, scratch, &results[s].of[m]);
        }
    }
    bool good = drawn && all;
    free(drawn);
    free(all);
    return good;
}
