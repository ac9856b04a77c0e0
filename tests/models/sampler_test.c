/* Choosing tokens one by one: candidates against a plain reference, and the sampler against the
 * searches. */
#include "made_up.h"
#include "tests.h"

#include <weft/decode.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Candidates ---- */

enum { MANY_IDS = 40 };

/* Whether id a ranks before id b. */
static bool before(const double *logs, int32_t a, int32_t b)
{
    return logs[a] > logs[b] || (logs[a] == logs[b] && a < b);
}

/* The candidates, each rule as it is defined: probs[id] is 0 for the others. */
static void candidates_by_hand(const double *logs, int32_t n, const weft_sampling_options *o,
                               double *probs)
{
    double weights[MANY_IDS], all = 0, best = 0, left = 0;
    bool in[MANY_IDS];
    for (int32_t i = 0; i < n; i++) {
        int64_t rank = 0;
        for (int32_t k = 0; k < n; k++) rank += before(logs, k, i);
        weights[i] = exp(logs[i] / o->temperature);
        in[i] = weights[i] > 0 && (!o->top_k || rank < o->top_k);
        if (in[i]) all += weights[i];
        if (weights[i] > best) best = weights[i];
    }
    for (int32_t i = 0; i < n; i++) {
        double more_likely = 0;
        for (int32_t k = 0; k < n; k++)
            if (in[k] && before(logs, k, i)) more_likely += weights[k];
        probs[i] = in[i] && (o->top_p == 0 || more_likely < o->top_p * all) &&
                           weights[i] >= o->min_p * best
                       ? weights[i]
                       : 0;
        left += probs[i];
    }
    for (int32_t i = 0; i < n; i++) probs[i] /= left;
}

static void test_candidates(void)
{
    static const int64_t top_ks[] = {0, 3, 17};
    static const double top_ps[] = {0, 0.4, 0.9}, min_ps[] = {0, 0.02, 0.3, 1};
    static const double temperatures[] = {0.5, 1, 1.7};
    uint64_t random = 9;
    double logs[MANY_IDS], want[MANY_IDS], probs[MANY_IDS];
    int32_t ids[MANY_IDS];
    size_t fewer = 0;
    for (int trial = 0; trial < 3 * 3 * 4 * 3 * 20; trial++) {
        const weft_sampling_options o = {.top_k = top_ks[trial % 3],
                                         .top_p = top_ps[trial / 3 % 3],
                                         .min_p = min_ps[trial / 9 % 4],
                                         .temperature = temperatures[trial / 36 % 3]};
        double sum = 0;
        for (int i = 0; i < MANY_IDS; i++) logs[i] = test_uniform(&random, -6, 0);
        logs[7] = logs[23]; /* equals */
        for (int i = 0; i < MANY_IDS; i++) sum += exp(logs[i]);
        for (int i = 0; i < MANY_IDS; i++) logs[i] -= log(sum);
        logs[trial % MANY_IDS] = -INFINITY;
        candidates_by_hand(logs, MANY_IDS, &o, want);
        const size_t n = weft_search_candidates(logs, MANY_IDS, &o, ids, probs);
        size_t expected = 0;
        for (int i = 0; i < MANY_IDS; i++) expected += want[i] > 0;
        CU_ASSERT_EQUAL(n, expected);
        for (size_t i = 0; i < n; i++) {
            CU_ASSERT_DOUBLE_EQUAL(probs[i], want[ids[i]], ROUNDING_F64);
            if (i)
                CU_ASSERT(o.top_k || o.top_p != 0 ? probs[i] <= probs[i - 1] : ids[i] > ids[i - 1]);
        }
        fewer += n < MANY_IDS - 1;
    }
    CU_ASSERT(fewer > 1000);
    /* Exactly at the bound: 0.2 is half of 0.4. Zeros are the defaults. */
    const double halves[3] = {log(0.4), log(0.4), log(0.2)};
    CU_ASSERT_EQUAL(weft_search_candidates(halves, 3, NULL, ids, probs), 3);
    CU_ASSERT_EQUAL(
        weft_search_candidates(halves, 3, &(weft_sampling_options){.min_p = 0.51}, ids, probs), 2);
    CU_ASSERT_EQUAL(
        weft_search_candidates(halves, 3, &(weft_sampling_options){.min_p = 0.49}, ids, probs), 3);
}

/* By falling probability, of equals the lower id first: random ones, few different ones, all equal,
 * rising, falling, and rising and falling. */
static void test_order(void)
{
    enum { N = 3000, KINDS = 6 };
    static double logs[N], probs[N];
    static int32_t ids[N];
    uint64_t random = 3;
    for (int kind = 0; kind < KINDS; kind++) {
        for (int top_k = 0; top_k < 600; top_k += 299) {
            const weft_sampling_options o = {.top_k = top_k, .top_p = 1 - 1e-12};
            for (int i = 0; i < N; i++) {
                const double kinds[KINDS] = {test_uniform(&random, -9, 0),
                                             -(double)(test_random(&random) % 5),
                                             -1,
                                             -9 + i * 0.003,
                                             -i * 0.003,
                                             -fabs(i - N / 2.0) * 0.006};
                logs[i] = kinds[kind];
            }
            const size_t n = weft_search_candidates(logs, N, &o, ids, probs);
            size_t wrong = 0, before = 0;
            CU_ASSERT_EQUAL(n, top_k ? (size_t)top_k : N);
            for (size_t i = 1; i < n; i++) {
                const double p = logs[ids[i - 1]], q = logs[ids[i]];
                wrong += !(p > q || (p == q && ids[i - 1] < ids[i]));
            }
            for (int i = 0; i < N; i++)
                before +=
                    logs[i] > logs[ids[n - 1]] || (logs[i] == logs[ids[n - 1]] && i < ids[n - 1]);
            CU_ASSERT_EQUAL(wrong, 0);
            CU_ASSERT_EQUAL(before, n - 1);
        }
    }
}

/* ---- Against the searches ---- */

enum { SAMPLES = 3, IDS = 90, TOKENS = 8 };

typedef struct stepwise {
    int32_t tokens[MAX_LEN + 1];
    size_t length;
    double log_prob, penalised;
    bool ended;
} stepwise;

/* Chooses the tokens of one row one by one. */
static void choose_all(const made_up *m, const weft_search_input *in,
                       const weft_sampling_options *o, int64_t sample, stepwise *out)
{
    double logs[2 * IDS];
    const weft_tensor t = weft_tensor_dense(logs, WEFT_F64, WEFT_SHAPE(2, m->vocab));
    weft_sampler *sampler = weft_sampler_new(m->vocab, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(sampler);
    uint64_t hash = m->seed;
    *out = (stepwise){.length = 0};
    memcpy(out->tokens, in->prefix, in->prefix_len * sizeof *out->tokens);
    for (size_t i = 0; i < in->prefix_len; i++) hash = hash_on(hash, in->prefix[i]);
    while (!out->ended && (int64_t)out->length < in->max_len) {
        const weft_sampling_row row = {
            &t, 1, out->tokens, in->prefix_len + out->length, out->length, in->key, sample};
        weft_sampled_token chosen;
        weft_error error;
        made_up_row(m, hash, logs + m->vocab);
        CU_ASSERT_EQUAL_FATAL(weft_sampler_choose(sampler, o, &row, &chosen, &error), WEFT_OK);
        if (chosen.id < 0) break;
        out->log_prob += chosen.log_prob;
        out->penalised += chosen.penalised;
        for (size_t i = 0; i < o->n_ends; i++) out->ended |= o->ends[i] == chosen.id;
        if (!out->ended) out->tokens[in->prefix_len + out->length++] = chosen.id;
        hash = hash_on(hash, chosen.id);
    }
    weft_sampler_free(sampler);
}

static void test_against_searches(void)
{
    static made_up m;
    static const int32_t prefix[2] = {70, 5}, ends[2] = {3, 11}, banned[2] = {1, 80};
    int drawn = 0, ended = 0;
    for (uint64_t seed = 1; seed <= 48; seed++) {
        const bool greedy = seed % 3 == 0;
        const weft_search_options o = {.eos = 3,
                                       .has_eos = true,
                                       .ends = ends + 1,
                                       .n_ends = 1,
                                       .banned = banned,
                                       .n_banned = 2,
                                       .min_len = (int64_t)(seed % 4),
                                       .no_repeat_ngram = (int64_t)(seed % 3),
                                       .repetition_penalty =
                                           seed % 5 ? 1 + 0.2 * (double)(seed % 3) : 0,
                                       .nbest = greedy ? 1 : SAMPLES,
                                       .temperature = seed % 2 ? 0.6 : 0,
                                       .top_k = seed % 4 == 1 ? 9 : 0,
                                       .top_p = seed % 5 == 2 ? 0.8 : 0,
                                       .min_p = seed % 3 == 1 ? 0.1 : 0,
                                       .seed = seed};
        const weft_sampling_options same = {.greedy = greedy,
                                            .ends = ends,
                                            .n_ends = 2,
                                            .banned = banned,
                                            .n_banned = 2,
                                            .min_len = o.min_len,
                                            .no_repeat_ngram = o.no_repeat_ngram,
                                            .repetition_penalty = o.repetition_penalty,
                                            .temperature = o.temperature,
                                            .top_k = o.top_k,
                                            .top_p = o.top_p,
                                            .min_p = o.min_p,
                                            .seed = o.seed};
        const weft_search_input in = {prefix, 2, TOKENS, seed << 33 | seed};
        const weft_search_model model = made_up_model(&m, 1, SAMPLES, IDS, seed);
        weft_search_result *r = greedy ? weft_search_greedy(&model, &in, 1, &o, NULL)
                                       : weft_search_sample(&model, &in, 1, &o, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(r);
        for (size_t i = 0; i < r->first[1]; i++) {
            const weft_hypothesis *h = &r->hypotheses[i];
            stepwise s;
            choose_all(&m, &in, &same, (int64_t)i, &s);
            CU_ASSERT_EQUAL_FATAL(s.length, h->length);
            EXPECT_SAME_BITS(WEFT_I32, h->tokens, s.tokens + 2, h->length);
            EXPECT_SAME_BITS(WEFT_F64, &h->log_prob, &s.log_prob, 1);
            EXPECT_SAME_BITS(WEFT_F64, &h->score, &s.penalised, 1);
            CU_ASSERT_EQUAL(h->ended, s.ended);
            ended += s.ended;
            drawn += h->length && i && h->tokens[0] != r->hypotheses[0].tokens[0];
        }
        weft_search_result_free(r);
        free(m.logs);
    }
    CU_ASSERT(drawn > 10 && ended > 3);
}

/* A hypothesis has the model's log probability of each token and of the end. */
static void test_log_probs(void)
{
    static made_up m;
    static const int32_t prefix[3] = {2, 0, 4};
    int ended = 0, cut = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        const weft_search_input in = {prefix, 1 + seed % 3, 4, seed};
        weft_search_options o = {.eos = 3,
                                 .has_eos = true,
                                 .nbest = SAMPLES,
                                 .repetition_penalty = seed % 2 ? 1.5 : 0,
                                 .no_repeat_ngram = seed % 4 == 2,
                                 .stop = seed % 5 ? WEFT_STOP_FIRST : WEFT_STOP_BOUND};
        const weft_search_model model = made_up_model(&m, 1, SAMPLES, 7, seed);
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
                double logs[7], sum = 0;
                uint64_t hash = seed;
                for (size_t k = 0; k < in.prefix_len; k++) hash = hash_on(hash, prefix[k]);
                for (size_t k = 0; k < h->length + h->ended; k++) {
                    const int32_t token = k < h->length ? h->tokens[k] : 3;
                    made_up_row(&m, hash, logs);
                    EXPECT_SAME_BITS(WEFT_F64, &h->log_probs[k], &logs[token], 1);
                    sum += logs[token];
                    hash = hash_on(hash, token);
                }
                EXPECT_SAME_BITS(WEFT_F64, &h->log_prob, &sum, 1);
                ended += h->ended;
                cut += !h->ended;
            }
            weft_search_result_free(r[way]);
        }
        free(m.logs);
    }
    CU_ASSERT(ended > 50 && cut > 20);
}

/* With min_p 1 only the most likely token remains. */
static void test_min_p_of_one(void)
{
    static made_up m;
    const int32_t begin = 2;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        const weft_search_input in = {&begin, 1, TOKENS, seed};
        const weft_search_options o = {.min_p = 1, .temperature = 3, .seed = seed};
        const weft_search_model model = made_up_model(&m, 1, 1, IDS, seed);
        weft_search_result *sample = weft_search_sample(&model, &in, 1, &o, NULL);
        m.position = 0;
        weft_search_result *greedy = weft_search_greedy(&model, &in, 1, NULL, NULL);
        CU_ASSERT_TRUE_FATAL(sample && greedy);
        CU_ASSERT_TRUE(same_hypothesis(sample->hypotheses, greedy->hypotheses));
        weft_search_result_free(sample);
        weft_search_result_free(greedy);
        free(m.logs);
    }
}

/* ---- Refusals ---- */

static void test_refusals(void)
{
    static const int32_t outside[2] = {1, 4};
    static const struct {
        weft_sampling_options options;
        const char *message;
    } cases[] = {
        {{.temperature = -1}, "temperature above 0"},
        {{.temperature = NAN}, "temperature above 0"},
        {{.top_p = 1.5}, "top_p in (0, 1]"},
        {{.min_p = -0.1}, "min_p in [0, 1]"},
        {{.min_p = NAN}, "min_p in [0, 1]"},
        {{.top_k = -1}, "top_k of 0 or more"},
        {{.repetition_penalty = INFINITY}, "the repetition penalty must be finite"},
        {{.min_len = -1}, "is negative"},
        {{.no_repeat_ngram = -1}, "is negative"},
        {{.n_banned = 1}, "the banned ids are NULL"},
        {{.n_ends = 1}, "the ends are NULL"},
        {{.banned = outside, .n_banned = 2}, "a banned id is outside"},
        {{.ends = outside, .n_ends = 2}, "an end is outside"},
    };
    double logs[4] = {log(0.25), log(0.25), log(0.25), log(0.25)};
    weft_tensor t = weft_tensor_dense(logs, WEFT_F64, WEFT_SHAPE(1, 4));
    weft_sampling_row row = {.log_probs = &t};
    weft_sampled_token chosen;
    weft_error error;
    CU_ASSERT_PTR_NULL(weft_sampler_new(0, &error));
    CU_ASSERT_PTR_NULL(weft_sampler_new(INT64_MAX, &error));
    weft_sampler *s = weft_sampler_new(4, &error);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CU_ASSERT_EQUAL(weft_sampler_choose(s, &cases[i].options, &row, &chosen, &error),
                        WEFT_BAD_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, cases[i].message));
        CU_ASSERT_EQUAL(chosen.id, -1);
    }
    /* Greedy needs no temperature. */
    const weft_sampling_options greedy = {.greedy = true, .temperature = -1};
    CU_ASSERT_EQUAL(weft_sampler_choose(s, &greedy, &row, &chosen, &error), WEFT_OK);
    CU_ASSERT(chosen.id == 0 && chosen.log_prob == logs[0]);
    /* Nothing is allowed. */
    static const int32_t all[4] = {0, 1, 2, 3};
    const weft_sampling_options none = {.banned = all, .n_banned = 4};
    CU_ASSERT_EQUAL(weft_sampler_choose(s, &none, &row, &chosen, &error), WEFT_OK);
    CU_ASSERT_EQUAL(chosen.id, -1);
    row.row = 1;
    CU_ASSERT_EQUAL(weft_sampler_choose(s, NULL, &row, &chosen, &error), WEFT_BAD_ARGUMENT);
    row.row = 0;
    row.length = 2;
    CU_ASSERT_EQUAL(weft_sampler_choose(s, NULL, &row, &chosen, &error), WEFT_BAD_ARGUMENT);
    row.tokens = outside;
    CU_ASSERT_EQUAL(weft_sampler_choose(s, NULL, &row, &chosen, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "a token of the row is outside"));
    row.length = 0;
    logs[2] = NAN;
    CU_ASSERT_EQUAL(weft_sampler_choose(s, NULL, &row, &chosen, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "id 2 is nan"));
    t.shape.dim[1] = 3;
    CU_ASSERT_EQUAL(weft_sampler_choose(s, NULL, &row, &chosen, &error), WEFT_BAD_ARGUMENT);
    weft_sampler_free(s);
}

void sampler_tests(void)
{
    CU_pSuite suite = CU_add_suite("sampler", NULL, NULL);
    CU_add_test(suite, "candidates equal those by hand", test_candidates);
    CU_add_test(suite, "the order of many candidates", test_order);
    CU_add_test(suite, "tokens one by one equal those of searches", test_against_searches);
    CU_add_test(suite, "the log probability of each token", test_log_probs);
    CU_add_test(suite, "min_p of 1 is greedy", test_min_p_of_one);
    CU_add_test(suite, "refusals", test_refusals);
}
