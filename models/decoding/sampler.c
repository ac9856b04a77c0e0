/* Rules for the next token of a row, which choose.c chooses: barred tokens, candidates, random
 * numbers. O(vocab) per token, O(vocab log vocab) where candidates are sorted. Sums are in double
 * precision and in order, so a choice depends on the log probabilities only. */
#include "sampler.h"
#include "base/sort.h"
#include "base/vmath.h"

#include <weft/op.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Options ---- */

weft_sampling_options weft__sampling_filled(const weft_sampling_options *options)
{
    weft_sampling_options o = options ? *options : (weft_sampling_options){0};
    if (o.temperature == 0) o.temperature = 1;
    if (o.top_p == 0) o.top_p = 1;
    if (o.repetition_penalty == 0) o.repetition_penalty = 1;
    return o;
}

bool weft__sampling_check(const weft_sampling_options *o, int64_t vocab, const char *where,
                          weft_error *error)
{
    if (o->n_banned && !o->banned) return sampling_refuse(where, "the banned ids are NULL", error);
    if (o->n_ends && !o->ends) return sampling_refuse(where, "the ends are NULL", error);
    if (!sampling_are_ids(o->ends, o->n_ends, vocab))
        return sampling_refuse(where, "an end is outside the vocabulary", error);
    if (!sampling_are_ids(o->banned, o->n_banned, vocab))
        return sampling_refuse(where, "a banned id is outside the vocabulary", error);
    if (o->min_len < 0 || o->no_repeat_ngram < 0)
        return sampling_refuse(where, "min_len or no_repeat_ngram is negative", error);
    if (o->repetition_penalty > 0 && isfinite(o->repetition_penalty)) return true;
    weft_error_set(error, WEFT_BAD_ARGUMENT, where,
                   "the repetition penalty must be finite and above 0, got %g",
                   o->repetition_penalty);
    return false;
}

bool weft__sampling_check_draws(const weft_sampling_options *o, const char *where,
                                weft_error *error)
{
    if (o->temperature > 0 && isfinite(o->temperature) && o->top_p > 0 && o->top_p <= 1 &&
        o->min_p >= 0 && o->min_p <= 1 && o->top_k >= 0)
        return true;
    return sampling_refuse(
        where,
        "sampling needs a temperature above 0, top_p in (0, 1], min_p in [0, 1] and top_k "
        "of 0 or more",
        error);
}

/* ---- The sampler ---- */

weft_sampler *weft_sampler_new(int64_t vocab, weft_error *error)
{
    weft_error_clear(error);
    if (vocab < 1 || vocab > INT32_MAX) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "sampler",
                       "a vocabulary of %lld ids, expected 1 to 2^31 - 1", (long long)vocab);
        return NULL;
    }
    const size_t n = (size_t)vocab;
    weft_sampler *s = calloc(1, sizeof *s);
    if (s) {
        s->vocab = vocab;
        s->barred = calloc(n, sizeof *s->barred);
        s->held = calloc(n, sizeof *s->held);
        s->log_probs = calloc(n, sizeof *s->log_probs);
        s->top = calloc(n / BLOCK + 1, sizeof *s->top);
        s->ids = calloc(n, sizeof *s->ids);
        s->probs = calloc(n, sizeof *s->probs);
    }
    if (s && s->barred && s->held && s->log_probs && s->top && s->ids && s->probs) return s;
    weft_error_set(error, WEFT_NO_MEMORY, "sampler", "no memory");
    weft_sampler_free(s);
    return NULL;
}

void weft_sampler_free(weft_sampler *sampler)
{
    if (!sampler) return;
    free(sampler->barred);
    free(sampler->held);
    free(sampler->log_probs);
    free(sampler->top);
    free(sampler->ids);
    free(sampler->probs);
    free(sampler);
}

/* ---- Rules on tokens ---- */

/* Bars each token that followed an earlier occurrence of the last n - 1 tokens. */
static void bar_repeats(weft_sampler *s, int64_t n, const weft_sampling_row *row)
{
    const int64_t length = (int64_t)row->length;
    const int32_t *x = row->tokens;
    for (int64_t i = 0; n > 0 && i < length && n <= length - i; i++)
        if (!memcmp(x + i, x + length - n + 1, (size_t)(n - 1) * sizeof *x))
            s->barred[x[i + n - 1]] = 1;
}

void weft__sampler_bar(weft_sampler *s, const weft_sampling_options *o,
                       const weft_sampling_row *row)
{
    memset(s->barred, 0, (size_t)s->vocab);
    for (size_t i = 0; i < o->n_banned; i++) s->barred[o->banned[i]] = 1;
    bar_repeats(s, o->no_repeat_ngram, row);
    if (o->repetition_penalty != 1) {
        memset(s->held, 0, (size_t)s->vocab);
        for (size_t i = 0; i < row->length; i++) s->held[row->tokens[i]] = 1;
    }
    if ((int64_t)row->found >= o->min_len) return;
    for (size_t i = 0; i < o->n_ends; i++) s->barred[o->ends[i]] = 1;
}

/* ---- Log probabilities ---- */

/* Sets *top to the maximum of x[n]; false if one is NaN or more than rounding above 0. LANES
 * independent maxima let the compiler use vectors. */
#define LANES 8
#define DEFINE_TOP(T, integer)                                                                     \
    static bool top_of_##T(const T *x, int64_t n, double *top)                                     \
    {                                                                                              \
        const T limit = (T)1e-3;                                                                   \
        T tops[LANES];                                                                             \
        integer bad[LANES] = {0};                                                                  \
        int64_t i = 0;                                                                             \
        for (int k = 0; k < LANES; k++) tops[k] = (T)-INFINITY;                                    \
        for (; i + LANES <= n; i += LANES)                                                         \
            for (int k = 0; k < LANES; k++) {                                                      \
                tops[k] = x[i + k] > tops[k] ? x[i + k] : tops[k];                                 \
                bad[k] |= x[i + k] <= limit ? 0 : -1;                                              \
            }                                                                                      \
        for (; i < n; i++) {                                                                       \
            tops[0] = x[i] > tops[0] ? x[i] : tops[0];                                             \
            bad[0] |= x[i] <= limit ? 0 : -1;                                                      \
        }                                                                                          \
        for (int k = 1; k < LANES; k++) {                                                          \
            tops[0] = tops[k] > tops[0] ? tops[k] : tops[0];                                       \
            bad[0] |= bad[k];                                                                      \
        }                                                                                          \
        *top = (double)tops[0];                                                                    \
        return !bad[0];                                                                            \
    }
DEFINE_TOP(float, int32_t)
DEFINE_TOP(double, int64_t)

bool weft__sampler_scan(weft_sampler *s, const weft_sampling_row *row, int64_t *bad)
{
    const weft_tensor *t = row->log_probs;
    const int64_t first = row->row * t->stride[0];
    const float *narrow = (const float *)t->data + first;
    const double *wide = (const double *)t->data + first;
    bool good = true;
    for (int64_t from = 0; from < s->vocab; from += BLOCK) {
        const int64_t n = s->vocab - from < BLOCK ? s->vocab - from : BLOCK;
        double *top = &s->top[from / BLOCK];
        good &= t->dtype == WEFT_F64 ? top_of_double(wide + from, n, top)
                                     : top_of_float(narrow + from, n, top);
    }
    *bad = 0;
    while (!good && *bad + 1 < s->vocab && sampling_log_prob(row, *bad) <= 1e-3) ++*bad;
    return good;
}

/* ---- Choosing ---- */

int64_t weft__sampler_argmax(const double *log_probs, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (log_probs[i] > log_probs[best]) best = i;
    return log_probs[best] > -INFINITY ? best : -1;
}

/* By falling log probability; of equals the lower id is first. */
static int by_probability(const void *a, const void *b, void *log_probs)
{
    const double *p = log_probs;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (p[x] != p[y]) return p[x] > p[y] ? -1 : 1;
    return (x > y) - (x < y);
}

#define FEW 16 /* candidates that are sorted by insertion */

static inline bool is_before(double p, int32_t id, double q, int32_t other)
{
    return (p > q) | ((p == q) & (id < other)); /* without a branch */
}

/* Sorts a few candidates by insertion. */
static void sort_few(int32_t *ids, double *p, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const double x = p[i];
        const int32_t id = ids[i];
        size_t at = i;
        for (; at > 0 && is_before(x, id, p[at - 1], ids[at - 1]); at--) {
            p[at] = p[at - 1];
            ids[at] = ids[at - 1];
        }
        p[at] = x;
        ids[at] = id;
    }
}

/* Divides candidates by the median of three of them, without branches that a processor would have to
 * predict. Returns the place of that one: those before it come first. */
static size_t divide(int32_t *ids, double *p, size_t n)
{
    const size_t places[3] = {0, n / 2, n - 1};
    size_t at = 0, median = places[1];
    for (int i = 0; i < 3; i++) {
        int before = 0;
        for (int k = 0; k < 3; k++)
            before += is_before(p[places[k]], ids[places[k]], p[places[i]], ids[places[i]]);
        if (before == 1) median = places[i];
    }
    const double pivot = p[median];
    const int32_t pivot_id = ids[median];
    p[median] = p[n - 1];
    ids[median] = ids[n - 1];
    for (size_t i = 0; i + 1 < n; i++) {
        const double x = p[i];
        const int32_t id = ids[i];
        p[i] = p[at];
        ids[i] = ids[at];
        p[at] = x;
        ids[at] = id;
        at += is_before(x, id, pivot, pivot_id);
    }
    p[n - 1] = p[at];
    ids[n - 1] = ids[at];
    p[at] = pivot;
    ids[at] = pivot_id;
    return at;
}

/* Sorts ids by their log probabilities, so that the first `wanted` are in order: quicksort (Hoare
 * 1961), and heapsort below `depth` divisions (Musser 1997). p[n] has the log probabilities of the
 * ids, and is changed. */
static void sort_candidates(const double *log_probs, int32_t *ids, double *p, size_t n,
                            size_t wanted, int depth)
{
    while (n > 1 && wanted > 0) {
        if (n <= FEW) {
            sort_few(ids, p, n);
            return;
        }
        if (depth-- == 0) {
            weft__sort(ids, n, sizeof *ids, by_probability, (void *)(uintptr_t)log_probs);
            return;
        }
        const size_t at = divide(ids, p, n);
        sort_candidates(log_probs, ids, p, at, wanted, depth);
        wanted = wanted > at ? wanted - at : 0;
        ids += at;
        p += at;
        n -= at;
        /* The median itself is in its place. */
        if (wanted) wanted--;
        ids++;
        p++;
        n--;
    }
}

/* Removes candidates below min_p of the most likely one, whose number is 1. */
static size_t remove_unlikely(double min_p, int32_t *ids, double *probs, size_t n, double *sum)
{
    size_t left = 0;
    *sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(probs[i] >= min_p)) continue;
        ids[left] = ids[i];
        *sum += probs[left++] = probs[i];
    }
    return left;
}

size_t weft_search_candidates(const double *log_probs, size_t n,
                              const weft_sampling_options *options, int32_t *ids, double *probs)
{
    const weft_sampling_options o = weft__sampling_filled(options);
    size_t count = 0, n_candidates = 0;
    double max = -INFINITY, sum = 0, reached = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(log_probs[i] > -INFINITY)) continue;
        ids[count++] = (int32_t)i;
        if (log_probs[i] > max) max = log_probs[i];
    }
    if (count > 1 && (o.top_k > 0 || o.top_p < 1)) {
        const size_t wanted = o.top_k > 0 && (size_t)o.top_k < count ? (size_t)o.top_k : count;
        for (size_t i = 0; i < count; i++) probs[i] = log_probs[ids[i]];
        sort_candidates(log_probs, ids, probs, count, wanted, 64);
    }
    if (o.top_k > 0 && count > (size_t)o.top_k) count = (size_t)o.top_k;
    for (size_t i = 0; i < count; i++)
        sum += probs[i] = vm_exp_f64((log_probs[ids[i]] - max) / o.temperature);
    while (n_candidates < count && (o.top_p >= 1 || n_candidates == 0 || reached < o.top_p * sum))
        reached += probs[n_candidates++];
    if (o.min_p > 0) n_candidates = remove_unlikely(o.min_p, ids, probs, n_candidates, &reached);
    for (size_t i = 0; i < n_candidates; i++) probs[i] /= reached;
    return n_candidates;
}

double weft__sampler_uniform(const weft_sampling_options *o, const weft_sampling_row *row,
                             uint64_t tries)
{
    uint32_t words[4];
    const uint32_t counter[4] = {(uint32_t)row->found, (uint32_t)row->sample, (uint32_t)row->key,
                                 (uint32_t)(row->key >> 32)};
    weft_philox(counter, o->seed + tries * 0x9E3779B97F4A7C15U, words); /* 2^64 / golden ratio */
    return weft_uniform(words);
}
