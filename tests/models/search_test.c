/* Searches over synthetic models, whose best hypotheses are found by trying every sequence. */
#include "made_up.h"
#include "tests.h"

#include <weft/decode.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct sequence {
    int32_t token[8];
    size_t length;
    double log_prob, score;
} sequence;

/* All sequences that end by a token whose bit is in `ends`, or have max_len tokens. */
static size_t try_all(const made_up *m, uint64_t h, const sequence *begin, unsigned ends,
                      size_t max_len, const weft_search_options *o, sequence *out)
{
    double logs[8];
    size_t n = 0;
    made_up_row(m, h, logs);
    for (int32_t t = 0; t < m->vocab; t++) {
        sequence s = *begin;
        s.log_prob += logs[t];
        s.score = s.log_prob / weft_length_penalty_value(o->penalty, o->alpha, s.length + 1);
        const bool ended = ends >> t & 1;
        if (!ended) s.token[s.length++] = t;
        if (ended || s.length == max_len)
            out[n++] = s;
        else
            n += try_all(m, hash_on(h, t), &s, ends, max_len, o, out + n);
    }
    return n;
}

static int by_score(const void *a, const void *b)
{
    const sequence *x = a, *y = b;
    return (x->score < y->score) - (x->score > y->score);
}

static void test_exhaustive(void)
{
    static const struct {
        weft_length_penalty penalty;
        double alpha;
    } penalties[] = {{WEFT_PENALTY_WU, 0},    {WEFT_PENALTY_WU, 0.6},  {WEFT_PENALTY_WU, 2},
                     {WEFT_PENALTY_POWER, 1}, {WEFT_PENALTY_POWER, 2}, {WEFT_PENALTY_POWER, -0.5}};
    static made_up m;
    static sequence all[1024];
    int found_by_four = 0, trials = 0;
    for (uint64_t seed = 1; seed <= 8; seed++)
        for (size_t p = 0; p < sizeof penalties / sizeof *penalties; p++) {
            const int32_t begin = 2;
            weft_error error = {0};
            weft_search_input in = {.prefix = &begin, .prefix_len = 1, .max_len = 5};
            weft_search_options o = {.eos = 3,
                                     .has_eos = true,
                                     .nbest = 20,
                                     .penalty = penalties[p].penalty,
                                     .alpha = penalties[p].alpha,
                                     .stop = WEFT_STOP_BOUND};
            weft_search_model model = made_up_model(&m, 1, 243, 4, seed);
            sequence none = {.length = 0};
            size_t n = try_all(&m, hash_on(seed, begin), &none, 1U << 3, 5, &o, all);
            CU_ASSERT_EQUAL(n, 1 + 3 + 9 + 27 + 81 + 243);
            qsort(all, n, sizeof *all, by_score);
            weft_search_result *r = weft_search_beam(&model, &in, 1, &o, &error);
            CU_ASSERT_PTR_NOT_NULL_FATAL(r);
            CU_ASSERT_EQUAL(r->first[1], 20);
            for (size_t i = 0; i < r->first[1]; i++) {
                const weft_hypothesis *h = &r->hypotheses[i];
                CU_ASSERT_DOUBLE_EQUAL(h->score, all[i].score, ROUNDING_F64);
                CU_ASSERT_DOUBLE_EQUAL(h->log_prob, all[i].log_prob, ROUNDING_F64);
                CU_ASSERT_EQUAL(h->length, all[i].length);
                EXPECT_SAME_BITS(WEFT_I32, h->tokens, all[i].token, h->length);
                CU_ASSERT_EQUAL(h->ended, h->length < 5);
            }
            weft_search_result_free(r);
            free(m.logs);
            /* A narrow beam finds none better, in order, and none twice. */
            model = made_up_model(&m, 1, 4, 4, seed);
            o.nbest = 4;
            o.stop = WEFT_STOP_FIRST;
            r = weft_search_beam(&model, &in, 1, &o, &error);
            CU_ASSERT_PTR_NOT_NULL_FATAL(r);
            CU_ASSERT(r->first[1] >= 1 && r->first[1] <= 4);
            CU_ASSERT(r->hypotheses[0].score <= all[0].score + ROUNDING_F64);
            found_by_four += r->hypotheses[0].score > all[0].score - ROUNDING_F64;
            trials++;
            for (size_t i = 1; i < r->first[1]; i++) {
                const weft_hypothesis *h = &r->hypotheses[i];
                CU_ASSERT(h[-1].score >= h->score);
                for (size_t k = 0; k < i; k++)
                    CU_ASSERT(r->hypotheses[k].length != h->length ||
                              r->hypotheses[k].ended != h->ended ||
                              memcmp(r->hypotheses[k].tokens, h->tokens,
                                     h->length * sizeof(int32_t)) != 0);
            }
            weft_search_result_free(r);
            free(m.logs);
        }
    CU_ASSERT(found_by_four > trials / 2);
}

/* Two end tokens: the first of them as `eos` or not. */
static void test_several_ends(void)
{
    static made_up m;
    static sequence all[256];
    static const int32_t ends[] = {0, 3};
    for (uint64_t seed = 1; seed <= 16; seed++) {
        const int32_t begin = 2;
        const bool has_eos = seed % 2;
        weft_error error = {0};
        weft_search_input in = {.prefix = &begin, .prefix_len = 1, .max_len = 5};
        weft_search_options o = {.eos = has_eos ? 3 : 0,
                                 .has_eos = has_eos,
                                 .ends = ends,
                                 .n_ends = has_eos ? 1 : 2,
                                 .nbest = 20,
                                 .stop = WEFT_STOP_BOUND};
        weft_search_model model = made_up_model(&m, 1, 32, 4, seed);
        sequence none = {.length = 0};
        size_t n = try_all(&m, hash_on(seed, begin), &none, 9, 5, &o, all);
        CU_ASSERT_EQUAL(n, 2 + 4 + 8 + 16 + 32 + 32);
        qsort(all, n, sizeof *all, by_score);
        weft_search_result *r = weft_search_beam(&model, &in, 1, &o, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(r);
        CU_ASSERT_EQUAL(r->first[1], 20);
        for (size_t i = 0; i < r->first[1]; i++) {
            CU_ASSERT_DOUBLE_EQUAL(r->hypotheses[i].score, all[i].score, ROUNDING_F64);
            CU_ASSERT_EQUAL(r->hypotheses[i].length, all[i].length);
        }
        weft_search_result_free(r);
        free(m.logs);
        /* Neither is chosen before min_len, and a row ends by whichever comes. */
        model = made_up_model(&m, 1, 1, 4, seed);
        o.nbest = 1;
        o.min_len = 3;
        r = weft_search_greedy(&model, &in, 1, &o, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(r);
        const weft_hypothesis *h = &r->hypotheses[0];
        CU_ASSERT(h->length >= 3 && h->ended == (h->length < 5));
        for (size_t i = 0; i < h->length; i++) CU_ASSERT(h->tokens[i] == 1 || h->tokens[i] == 2);
        weft_search_result_free(r);
        free(m.logs);
    }
}

static void test_beam_of_one(void)
{
    static made_up m;
    const int32_t prefix[3] = {1, 0, 2}, banned[1] = {4};
    for (uint64_t seed = 1; seed <= 40; seed++) {
        weft_search_input in[3];
        weft_error error = {0};
        weft_search_options o = {.eos = 3,
                                 .has_eos = true,
                                 .alpha = 0.6,
                                 .banned = banned,
                                 .n_banned = seed % 2,
                                 .min_len = (int64_t)(seed % 4),
                                 .no_repeat_ngram = (int64_t)(seed % 3)};
        for (size_t i = 0; i < 3; i++)
            in[i] = (weft_search_input){prefix, i + 1, (int64_t)(7 - 2 * i), i};
        weft_search_model model = made_up_model(&m, 3, 1, 9, seed);
        weft_search_result *beam = weft_search_beam(&model, in, 3, &o, &error);
        m.position = 0;
        weft_search_result *greedy = weft_search_greedy(&model, in, 3, &o, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(beam);
        CU_ASSERT_PTR_NOT_NULL_FATAL(greedy);
        for (size_t i = 0; i < 3; i++) {
            const weft_hypothesis *h = &greedy->hypotheses[i];
            CU_ASSERT_EQUAL(greedy->first[i + 1], i + 1);
            CU_ASSERT(same_hypothesis(h, &beam->hypotheses[i]));
            CU_ASSERT(h->length + h->ended <= (size_t)in[i].max_len);
            CU_ASSERT(h->ended || h->length == (size_t)in[i].max_len);
            CU_ASSERT(!h->ended || h->length >= (size_t)o.min_len);
            for (size_t k = 0; k < h->length; k++) {
                CU_ASSERT_NOT_EQUAL(h->tokens[k], 3);
                if (seed % 2) CU_ASSERT_NOT_EQUAL(h->tokens[k], 4);
                for (size_t j = 0; j < k && o.no_repeat_ngram == 1; j++)
                    CU_ASSERT_NOT_EQUAL(h->tokens[k], h->tokens[j]);
                for (size_t j = 1; j < k && o.no_repeat_ngram == 2; j++)
                    CU_ASSERT(h->tokens[k] != h->tokens[j] || h->tokens[k - 1] != h->tokens[j - 1]);
            }
        }
        /* Greedy takes the most likely token: the first, by hand. */
        if (o.no_repeat_ngram == 0 && !o.n_banned && !o.min_len) {
            double logs[9];
            made_up_row(&m, hash_on(seed, prefix[0]), logs);
            int best = 0;
            for (int i = 1; i < 9; i++)
                if (logs[i] > logs[best]) best = i;
            CU_ASSERT(best == 3 ? greedy->hypotheses[0].length == 0
                                : greedy->hypotheses[0].tokens[0] == best);
        }
        weft_search_result_free(beam);
        weft_search_result_free(greedy);
        free(m.logs);
    }
}

/* ---- The repetition penalty ---- */

/* Penalises the log probabilities of tokens[n]. */
static void penalise(double *logs, const int32_t *tokens, size_t n, double penalty, int64_t vocab)
{
    for (int64_t i = 0; i < vocab; i++) {
        bool held = false;
        for (size_t k = 0; k < n; k++) held |= tokens[k] == i;
        if (held) logs[i] *= penalty;
    }
}

enum { PENALTY_LEN = 5 }; /* max_len */

typedef struct penalty_case {
    uint64_t seed;
    int32_t begin, eos; /* tokens */
    double penalty;
} penalty_case;

/* Computes the sums of a hypothesis by hand: of the model's log probabilities, and of penalised
 * ones. */
static void sums_by_hand(const made_up *m, const penalty_case *c, const weft_hypothesis *h,
                         double *own, double *penalised)
{
    int32_t tokens[16] = {c->begin};
    double logs[256], less[256];
    uint64_t hash = hash_on(c->seed, c->begin);
    *own = *penalised = 0;
    for (size_t i = 0; i < h->length + h->ended; i++) {
        int32_t token = i < h->length ? h->tokens[i] : c->eos;
        made_up_row(m, hash, logs);
        memcpy(less, logs, sizeof logs);
        penalise(less, tokens, i + 1, c->penalty, m->vocab);
        *own += logs[token];
        *penalised += less[token];
        tokens[i + 1] = token;
        hash = hash_on(hash, token);
    }
}

/* The best penalised sum of all sequences that end by `eos` or have PENALTY_LEN tokens. */
static double best_sum(const made_up *m, const penalty_case *c, uint64_t h, int32_t *tokens,
                       size_t n, double sum)
{
    double logs[8], best = -INFINITY;
    made_up_row(m, h, logs);
    penalise(logs, tokens, n, c->penalty, m->vocab);
    for (int32_t t = 0; t < m->vocab; t++) {
        tokens[n] = t;
        double x = sum + logs[t];
        if (t != c->eos && n < PENALTY_LEN) x = best_sum(m, c, hash_on(h, t), tokens, n + 1, x);
        if (x > best) best = x;
    }
    return best;
}

static void test_repetition_penalty(void)
{
    static const double penalties[] = {1.4, 0.6, 3};
    static made_up m;
    const int32_t begin = 2;
    int changed = 0;
    for (uint64_t seed = 1; seed <= 12; seed++)
        for (int p = 0; p < 3; p++) {
            const penalty_case c = {seed, begin, 3, penalties[p]};
            weft_search_input in = {
                .prefix = &begin, .prefix_len = 1, .max_len = PENALTY_LEN, .key = seed};
            weft_search_options o = {
                .eos = c.eos, .has_eos = true, .nbest = 9, .repetition_penalty = penalties[p]};
            weft_search_model model = made_up_model(&m, 1, 243, 4, seed);
            int32_t tokens[8] = {begin};
            double own, penalised, best = best_sum(&m, &c, hash_on(seed, begin), tokens, 1, 0);
            weft_search_result *r[3];
            r[0] = weft_search_beam(&model, &in, 1, &o, NULL);
            m.position = 0;
            r[1] = weft_search_sample(&model, &in, 1, &o, NULL);
            m.position = 0;
            o.nbest = 1;
            r[2] = weft_search_greedy(&model, &in, 1, &o, NULL);
            for (int way = 0; way < 3; way++) {
                CU_ASSERT_PTR_NOT_NULL_FATAL(r[way]);
                for (size_t i = 0; i < r[way]->first[1]; i++) {
                    const weft_hypothesis *h = &r[way]->hypotheses[i];
                    sums_by_hand(&m, &c, h, &own, &penalised);
                    CU_ASSERT_DOUBLE_EQUAL(h->log_prob, own, ROUNDING_F64);
                    CU_ASSERT_DOUBLE_EQUAL(h->score, penalised, ROUNDING_F64);
                    changed += fabs(own - penalised) > 1e-3;
                }
            }
            CU_ASSERT_DOUBLE_EQUAL(r[0]->hypotheses[0].score, best, ROUNDING_F64);
            for (int way = 0; way < 3; way++) weft_search_result_free(r[way]);
            free(m.logs);
        }
    CU_ASSERT(changed > 100);
}

/* Beam search skips blocks of a large vocabulary by their maxima. A beam of one equals greedy
 * search with any penalty, and a large penalty prevents all repetition. */
static void test_penalty_of_many(void)
{
    static made_up m;
    const int32_t prefix[3] = {70, 5, 130};
    for (uint64_t seed = 1; seed <= 30; seed++) {
        weft_search_input in = {.prefix = prefix, .prefix_len = 3, .max_len = 9, .key = seed};
        weft_search_options o = {.repetition_penalty = seed % 2 ? 1e-3 : 1e6};
        weft_search_model model = made_up_model(&m, 1, 1, 200, seed);
        weft_search_result *beam = weft_search_beam(&model, &in, 1, &o, NULL);
        m.position = 0;
        weft_search_result *greedy = weft_search_greedy(&model, &in, 1, &o, NULL);
        m.position = 0;
        weft_search_result *sample = weft_search_sample(&model, &in, 1, &o, NULL);
        CU_ASSERT_TRUE_FATAL(beam && greedy && sample);
        CU_ASSERT(same_hypothesis(greedy->hypotheses, beam->hypotheses));
        for (int way = 0; way < 2; way++) {
            const int32_t *tokens = (way ? sample : greedy)->hypotheses[0].tokens;
            for (int i = 0; i < 9; i++) {
                bool held = tokens[i] == 70 || tokens[i] == 5 || tokens[i] == 130;
                for (int k = 0; k < i; k++) held |= tokens[k] == tokens[i];
                if (seed % 2 == 0) CU_ASSERT_FALSE(held);
                if (seed % 2 == 1 && !way) CU_ASSERT_TRUE(held);
            }
        }
        weft_search_result_free(beam);
        weft_search_result_free(greedy);
        weft_search_result_free(sample);
        free(m.logs);
    }
}

/* ---- The caller sees each token ---- */

#define WATCHED 3

typedef struct watched {
    int32_t tokens[WATCHED][2][MAX_LEN];
    size_t n[WATCHED][2];
    size_t limit;
    bool in_order;
} watched;

/* Row 0 of sentence i may have limit - i tokens, row 1 one more. */
static bool watch(void *context, size_t sentence, size_t row, const int32_t *tokens, size_t n)
{
    watched *w = context;
    w->in_order &= sentence < WATCHED && row < 2 && n == w->n[sentence][row] + 1 && n <= MAX_LEN &&
                   !memcmp(w->tokens[sentence][row], tokens, (n - 1) * sizeof *tokens);
    if (!w->in_order) return false;
    memcpy(w->tokens[sentence][row], tokens, n * sizeof *tokens);
    w->n[sentence][row] = n;
    return n < w->limit - sentence + row;
}

static void test_found(void)
{
    static made_up m;
    const int32_t prefix[4] = {1, 0, 2, 4};
    for (uint64_t seed = 1; seed <= 20; seed++)
        for (size_t rows = 1; rows <= 2; rows++) {
            weft_search_input in[WATCHED];
            for (size_t i = 0; i < WATCHED; i++)
                in[i] = (weft_search_input){prefix, 2 + i, 8, seed + i};
            weft_search_options o = {.eos = 3, .has_eos = true, .nbest = (int64_t)rows};
            weft_search_model model = made_up_model(&m, WATCHED, 2, 6, seed);
            weft_search_result *(*search)(const weft_search_model *, const weft_search_input *,
                                          size_t, const weft_search_options *, weft_error *) =
                rows == 1 ? weft_search_greedy : weft_search_sample;
            weft_search_result *whole = search(&model, in, WATCHED, &o, NULL);
            watched w = {.limit = 4, .in_order = true};
            o.found = watch;
            o.found_context = &w;
            m.position = 0;
            weft_search_result *cut = search(&model, in, WATCHED, &o, NULL);
            CU_ASSERT_TRUE_FATAL(whole && cut && whole->first[WATCHED] == WATCHED * rows);
            CU_ASSERT_TRUE(w.in_order);
            for (size_t i = 0; i < WATCHED * rows; i++) {
                const weft_hypothesis *a = &whole->hypotheses[i], *b = &cut->hypotheses[i];
                size_t limit = 4 - i / rows + i % rows;
                CU_ASSERT_EQUAL(b->length, a->length < limit ? a->length : limit);
                CU_ASSERT_EQUAL(b->ended, a->ended && a->length < limit);
                CU_ASSERT_EQUAL(w.n[i / rows][i % rows], b->length);
                CU_ASSERT(!memcmp(a->tokens, b->tokens, b->length * sizeof *b->tokens));
                CU_ASSERT(!memcmp(w.tokens[i / rows][i % rows], b->tokens,
                                  b->length * sizeof *b->tokens));
            }
            weft_search_result_free(whole);
            weft_search_result_free(cut);
            weft_error error = {0};
            CU_ASSERT_PTR_NULL(weft_search_beam(&model, in, 1, &o, &error));
            CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "beam search has no `found`"));
            free(m.logs);
        }
}

static void test_search_refusals(void)
{
    static made_up m;
    const int32_t begin = 1;
    weft_search_model model = made_up_model(&m, 1, 2, 5, 3);
    weft_search_input in = {.prefix = &begin, .prefix_len = 1, .max_len = MAX_LEN + 1};
    weft_search_options o = {.eos = 4, .has_eos = true};
    weft_error error = {0};
    CU_ASSERT_PTR_NULL(weft_search_beam(&model, &in, 1, &o, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "the model has 12 positions"));
    in.max_len = 6;
    o.nbest = 3;
    CU_ASSERT_PTR_NULL(weft_search_beam(&model, &in, 1, &o, NULL));
    o.nbest = 0;
    o.temperature = -0.5;
    CU_ASSERT_PTR_NULL(weft_search_sample(&model, &in, 1, &o, NULL));
    o.temperature = 0;
    static const double no_penalties[] = {-1, INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        error = (weft_error){0};
        o.repetition_penalty = no_penalties[i];
        CU_ASSERT_PTR_NULL(weft_search_greedy(&model, &in, 1, &o, &error));
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "repetition penalty must be finite"));
    }
    o.repetition_penalty = 0;
    CU_ASSERT_PTR_NULL(weft_search_greedy(&model, &in, 2, &o, NULL)); /* two inputs, one sentence */
    const int32_t outside = 5;
    in.prefix = &outside;
    CU_ASSERT_PTR_NULL(weft_search_greedy(&model, &in, 1, &o, NULL));
    in.prefix = &begin;
    m.broken = true;
    o.has_eos = false;
    CU_ASSERT_PTR_NULL(weft_search_greedy(&model, &in, 1, &o, NULL)); /* eos without has_eos */
    o.eos = 0;
    error = (weft_error){0};
    CU_ASSERT_PTR_NULL(weft_search_beam(&model, &in, 1, &o, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_IO);
    o.ends = NULL;
    o.n_ends = 1;
    CU_ASSERT_PTR_NULL(weft_search_greedy(&model, &in, 1, &o, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "the ends are NULL"));
    o.ends = &outside;
    CU_ASSERT_PTR_NULL(weft_search_greedy(&model, &in, 1, &o, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "an end is outside the vocabulary"));
    o.n_ends = 0;
    /* Everything barred: what there is comes back, cut. */
    m.broken = false;
    m.position = 0;
    const int32_t all[5] = {0, 1, 2, 3, 4};
    o.banned = all;
    o.n_banned = 5;
    o.penalty = WEFT_PENALTY_POWER;
    o.alpha = 1;
    weft_search_result *r = weft_search_beam(&model, &in, 1, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    CU_ASSERT(r->first[1] == 1 && r->hypotheses[0].length == 0 && !r->hypotheses[0].ended);
    CU_ASSERT_EQUAL(r->hypotheses[0].score, 0);
    weft_search_result_free(r);
    free(m.logs);
}

/* ---- Sampling ---- */

static void test_candidates(void)
{
    const double logs[6] = {log(0.1), log(0.3), -INFINITY, log(0.3), log(0.2), log(0.1)};
    int32_t ids[6];
    double probs[6];
    CU_ASSERT_EQUAL(weft_search_candidates(logs, 6, NULL, ids, probs), 5);
    CU_ASSERT(ids[0] == 0 && ids[1] == 1 && ids[2] == 3 && ids[3] == 4 && ids[4] == 5);
    CU_ASSERT_DOUBLE_EQUAL(probs[3], 0.2, ROUNDING_F64);
    /* The three most likely, ties to the lower id. */
    CU_ASSERT_EQUAL(
        weft_search_candidates(logs, 6, &(weft_sampling_options){.top_k = 3}, ids, probs), 3);
    CU_ASSERT(ids[0] == 1 && ids[1] == 3 && ids[2] == 4);
    CU_ASSERT_DOUBLE_EQUAL(probs[0], 0.375, ROUNDING_F64);
    CU_ASSERT_EQUAL(
        weft_search_candidates(logs, 6, &(weft_sampling_options){.top_k = 4}, ids, probs), 4);
    CU_ASSERT_EQUAL(ids[3], 0);
    /* 0.3 + 0.3 is 0.6: 0.59 needs two, 0.61 three, 0.29 one. */
    CU_ASSERT_EQUAL(
        weft_search_candidates(logs, 6, &(weft_sampling_options){.top_p = 0.59}, ids, probs), 2);
    CU_ASSERT_EQUAL(
        weft_search_candidates(logs, 6, &(weft_sampling_options){.top_p = 0.61}, ids, probs), 3);
    CU_ASSERT_EQUAL(
        weft_search_candidates(logs, 6, &(weft_sampling_options){.top_p = 0.29}, ids, probs), 1);
    CU_ASSERT_DOUBLE_EQUAL(probs[0], 1, ROUNDING_F64);
    /* After top_k: of three, 0.375 + 0.375 reaches 0.7. */
    CU_ASSERT_EQUAL(weft_search_candidates(
                        logs, 6, &(weft_sampling_options){.top_k = 3, .top_p = 0.7}, ids, probs),
                    2);
    CU_ASSERT_EQUAL(weft_search_candidates(
                        logs, 6, &(weft_sampling_options){.top_k = 3, .top_p = 0.76}, ids, probs),
                    3);
    /* A temperature of 1/2 squares: 0.09 of 0.24. */
    CU_ASSERT_EQUAL(
        weft_search_candidates(logs, 6, &(weft_sampling_options){.temperature = 0.5}, ids, probs),
        5);
    CU_ASSERT_DOUBLE_EQUAL(probs[1], 0.09 / 0.24, ROUNDING_F64);
}

/* Counts of 16,384 draws against their probabilities: sum (n - e)^2 / e stays below the value that
 * chi-square with 4 degrees of freedom exceeds once in a thousand. */
static void test_frequencies(void)
{
    static made_up m;
    static weft_search_input in[64];
    static const double temperatures[2] = {1, 0.5};
    const int32_t begin = 1;
    for (int t = 0; t < 2; t++) {
        double logs[5], probs[5], counts[5] = {0}, sum = 0;
        int32_t ids[5];
        weft_search_options o = {.eos = 4,
                                 .has_eos = true,
                                 .nbest = 64,
                                 .temperature = temperatures[t],
                                 .top_p = 1,
                                 .seed = 99};
        made_up_row(&(made_up){.vocab = 5, .spread = 3}, hash_on(3, begin), logs);
        weft_search_candidates(logs, 5, &(weft_sampling_options){.temperature = o.temperature}, ids,
                               probs);
        for (int round = 0; round < 4; round++) {
            weft_search_model model = made_up_model(&m, 64, 64, 5, 3);
            for (size_t i = 0; i < 64; i++)
                in[i] = (weft_search_input){&begin, 1, 1, (uint64_t)(round * 64) + i};
            weft_search_result *r = weft_search_sample(&model, in, 64, &o, NULL);
            CU_ASSERT_PTR_NOT_NULL_FATAL(r);
            CU_ASSERT_EQUAL(r->first[64], 4096);
            for (size_t i = 0; i < r->first[64]; i++)
                counts[r->hypotheses[i].ended ? 4 : r->hypotheses[i].tokens[0]]++;
            weft_search_result_free(r);
            free(m.logs);
        }
        for (int i = 0; i < 5; i++) {
            double expected = 16384 * probs[i];
            sum += (counts[i] - expected) * (counts[i] - expected) / expected;
        }
        CU_ASSERT(sum < 18.47);
    }
}

void search_tests(void)
{
    CU_pSuite suite = CU_add_suite("search", NULL, NULL);
    CU_add_test(suite, "beam search equals an exhaustive search", test_exhaustive);
    CU_add_test(suite, "several end tokens", test_several_ends);
    CU_add_test(suite, "a beam of one is greedy", test_beam_of_one);
    CU_add_test(suite, "a repetition penalty", test_repetition_penalty);
    CU_add_test(suite, "a repetition penalty of many tokens", test_penalty_of_many);
    CU_add_test(suite, "the caller sees each token and ends rows", test_found);
    CU_add_test(suite, "searches refuse what does not fit", test_search_refusals);
    CU_add_test(suite, "candidates of sampling", test_candidates);
    CU_add_test(suite, "frequencies of sampling", test_frequencies);
}
