/* Paired bootstrap resampling. The definitions of interval and p value are those of sacreBLEU 2. */
#include <weft/op.h>
#include <weft/text.h>

#include <math.h>
#include <stdlib.h>

enum { BLEU, CHRF, N_SCORES };

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
static void score_set(const weft_sentence_counts *counts, const size_t *drawn, size_t n,
                      double scores[N_SCORES])
{
    weft_bleu b = {.length = 0};
    weft_chrf c = {.words = counts[0].chrf.words};
    for (size_t i = 0; i < n; i++) {
        const weft_sentence_counts *one = &counts[drawn ? drawn[i] : i];
        weft_bleu_sum(&b, &one->bleu);
        weft_chrf_sum(&c, &one->chrf);
    }
    scores[BLEU] = weft_bleu_score(&b).score;
    scores[CHRF] = weft_chrf_score(&c);
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
                      double *scratch, weft_resampled *r)
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

/* Fills all[system][score][sample]. `drawn` has room for the sentences of a resample. */
static void score_samples(const weft_resampling *o, size_t *drawn, double *all)
{
    double scores[N_SCORES];
    for (size_t k = 0; k < o->samples; k++) {
        draw_sentences(drawn, o->n_sentences, k, o->seed);
        for (size_t s = 0; s < o->n_systems; s++) {
            score_set(o->counts[s], drawn, o->n_sentences, scores);
            for (size_t m = 0; m < N_SCORES; m++)
                all[(s * N_SCORES + m) * o->samples + k] = scores[m];
        }
    }
}

static void summarize_all(const weft_resampling *o, const double *all, double *scratch,
                          weft_system_scores *results)
{
    double scores[N_SCORES], first[N_SCORES] = {0};
    for (size_t s = 0; s < o->n_systems; s++) {
        weft_resampled *const of[N_SCORES] = {&results[s].bleu, &results[s].chrf};
        score_set(o->counts[s], NULL, o->n_sentences, scores);
        for (size_t m = 0; m < N_SCORES; m++) {
            if (s == 0) first[m] = scores[m];
            of[m]->score = scores[m];
            summarize(all + (s * N_SCORES + m) * o->samples, s ? all + m * o->samples : NULL,
                      first[m], o->samples, scratch, of[m]);
        }
    }
}

static bool is_complete(const weft_resampling *o)
{
    if (!o || !o->counts || !o->n_systems || !o->n_sentences || !o->samples) return false;
    for (size_t s = 0; s < o->n_systems; s++)
        if (!o->counts[s]) return false;
    return true;
}

weft_status weft_score_resample(const weft_resampling *resampling, weft_system_scores *results,
                                weft_error *error)
{
    const weft_resampling *o = resampling;
    weft_error_clear(error);
    if (!is_complete(o) || !results)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "resampling",
                              "needs counts of at least one system and sentence, and one resample");
    size_t *drawn = calloc(o->n_sentences, sizeof *drawn);
    double *all = calloc(o->n_systems * N_SCORES + 1, o->samples * sizeof *all);
    const bool good = drawn && all;
    if (good) {
        score_samples(o, drawn, all);
        summarize_all(o, all, all + o->n_systems * N_SCORES * o->samples, results);
    }
    free(drawn);
    free(all);
    return good ? WEFT_OK : weft_error_set(error, WEFT_NO_MEMORY, "resampling", "out of memory");
}
