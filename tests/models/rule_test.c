/* Rules for tokens: choices among allowed tokens against renormalised probabilities, how often a rule
 * is asked, errors, and the contexts of a search's rows. */
#include "made_up.h"
#include "tests.h"

#include <weft/decode.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IDS = 300 };

/* Allows ids whose remainder by `of` is `rest`. */
typedef struct remainder_rule {
    int32_t of, rest;
    size_t asked;
    int32_t fails; /* at this id; -1: never */
    size_t n;      /* of the last call */
} remainder_rule;

static weft_status allow_remainder(void *context, const int32_t *tokens, size_t n, int32_t id,
                                   bool *allowed, weft_error *error)
{
    remainder_rule *r = context;
    (void)tokens;
    r->asked++;
    r->n = n;
    *allowed = id % r->of == r->rest;
    return id == r->fails ? weft_error_set(error, WEFT_TOO_LARGE, "rule", "fails at %d", id)
                          : WEFT_OK;
}

/* Log probabilities that fall steeply or gently, and add up to 1. */
static void draw_logs(float *logs, double spread, uint64_t *random)
{
    double sum = 0;
    for (int i = 0; i < IDS; i++) logs[i] = (float)test_uniform(random, -spread, 0);
    for (int i = 0; i < IDS; i++) sum += exp((double)logs[i]);
    for (int i = 0; i < IDS; i++) logs[i] -= (float)log(sum);
}

static weft_sampled_token choose(weft_sampler *s, const weft_sampling_options *o, const float *logs,
                                 uint64_t key)
{
    const weft_tensor t = weft_tensor_dense((void *)(uintptr_t)logs, WEFT_F32, WEFT_SHAPE(1, IDS));
    const int32_t tokens[] = {1, 2, 3};
    const weft_sampling_row row = {
        .log_probs = &t, .tokens = tokens, .length = 3, .found = 2, .key = key};
    weft_sampled_token chosen;
    CU_ASSERT_EQUAL(weft_sampler_choose(s, o, &row, &chosen, NULL), WEFT_OK);
    return chosen;
}

static void test_greedy(void)
{
    uint64_t random = 3;
    float logs[IDS];
    weft_sampler *s = weft_sampler_new(IDS, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (int trial = 0; trial < 50; trial++) {
        remainder_rule r = {.of = trial % 2 ? 3 : 150, .rest = trial % 3, .fails = -1};
        const weft_sampling_options o = {
            .greedy = true, .allows = allow_remainder, .allows_context = &r};
        int32_t best = -1;
        size_t better = 0;
        draw_logs(logs, 6, &random);
        for (int32_t i = 0; i < IDS; i++)
            if (i % r.of == r.rest && (best < 0 || logs[i] > logs[best])) best = i;
        for (int32_t i = 0; i < IDS; i++) better += logs[i] > logs[best];
        const weft_sampled_token chosen = choose(s, &o, logs, 0);
        CU_ASSERT_EQUAL(chosen.id, best);
        CU_ASSERT_EQUAL(chosen.log_prob, (double)logs[best]);
        CU_ASSERT_EQUAL(r.n, 2);
        /* After 64 tries all are checked. */
        CU_ASSERT_EQUAL(r.asked, better < 64 ? better + 1 : IDS);
    }
    weft_sampler_free(s);
}

/* Frequencies of choices are within five standard deviations of renormalised probabilities. */
static void check_frequencies(double spread, const weft_sampling_options *o, remainder_rule r)
{
    enum { DRAWS = 20000 };
    uint64_t random = 5;
    float logs[IDS];
    double wanted[IDS], sum = 0;
    size_t found[IDS] = {0};
    weft_sampler *s = weft_sampler_new(IDS, NULL);
    weft_sampling_options with = *o;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    with.allows = allow_remainder;
    with.allows_context = &r;
    draw_logs(logs, spread, &random);
    for (int i = 0; i < IDS; i++)
        sum += wanted[i] = i % r.of == r.rest ? exp((double)logs[i] / o->temperature) : 0;
    for (uint64_t key = 0; key < DRAWS; key++) {
        const weft_sampled_token chosen = choose(s, &with, logs, key);
        CU_ASSERT_FATAL(chosen.id >= 0);
        found[chosen.id]++;
    }
    for (int i = 0; i < IDS; i++) {
        const double p = wanted[i] / sum, deviation = sqrt(DRAWS * p * (1 - p));
        if (fabs((double)found[i] - DRAWS * p) > 5 * deviation + 1)
            printf("id %d: %zu of %d, expected %g\n", i, found[i], DRAWS, DRAWS * p);
        CU_ASSERT_TRUE(fabs((double)found[i] - DRAWS * p) <= 5 * deviation + 1);
    }
    weft_sampler_free(s);
}

static void test_frequencies(void)
{
    const weft_sampling_options warm = {.temperature = 1.5}, plain = {.temperature = 1};
    check_frequencies(8, &plain, (remainder_rule){.of = 2, .fails = -1});
    check_frequencies(8, &warm, (remainder_rule){.of = 7, .rest = 3, .fails = -1});
    /* Few are allowed: after 64 tries all are checked. */
    check_frequencies(3, &plain, (remainder_rule){.of = 100, .rest = 42, .fails = -1});
}

/* A rule that allows everything changes nothing. */
static void test_everything(void)
{
    uint64_t random = 8;
    float logs[IDS];
    weft_sampler *s = weft_sampler_new(IDS, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (int trial = 0; trial < 200; trial++) {
        remainder_rule r = {.of = 1, .fails = -1};
        weft_sampling_options o = {.greedy = trial % 5 == 0,
                                   .temperature = trial % 2 ? 1 : 0.7,
                                   .top_k = trial % 3 ? 0 : 9,
                                   .top_p = trial % 4 ? 0 : 0.8,
                                   .seed = (uint64_t)trial};
        draw_logs(logs, 5, &random);
        const weft_sampled_token alone = choose(s, &o, logs, 1);
        o.allows = allow_remainder;
        o.allows_context = &r;
        const weft_sampled_token chosen = choose(s, &o, logs, 1);
        CU_ASSERT_EQUAL(chosen.id, alone.id);
        CU_ASSERT_EQUAL(r.asked, 1);
    }
    weft_sampler_free(s);
}

/* Where no candidate is allowed, the candidates are those of the allowed tokens. */
static void test_no_candidate(void)
{
    uint64_t random = 4;
    float logs[IDS];
    weft_sampler *s = weft_sampler_new(IDS, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    draw_logs(logs, 6, &random);
    int32_t best = 0;
    for (int32_t i = 0; i < IDS; i++)
        if (logs[i] > logs[best]) best = i;
    remainder_rule r = {.of = 50, .rest = (best + 1) % 50, .fails = -1};
    weft_sampling_options o = {.top_k = 1, .allows = allow_remainder, .allows_context = &r};
    int32_t allowed = r.rest;
    for (int32_t i = r.rest; i < IDS; i += 50)
        if (logs[i] > logs[allowed]) allowed = i;
    CU_ASSERT_EQUAL(choose(s, &o, logs, 0).id, allowed);
    r.rest = 50; /* none */
    CU_ASSERT_EQUAL(choose(s, &o, logs, 0).id, -1);
    o.greedy = true;
    CU_ASSERT_EQUAL(choose(s, &o, logs, 0).id, -1);
    weft_sampler_free(s);
}

static void test_errors(void)
{
    uint64_t random = 4;
    float logs[IDS];
    weft_error error;
    weft_sampled_token chosen;
    weft_sampler *s = weft_sampler_new(IDS, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    draw_logs(logs, 6, &random);
    const weft_tensor t = weft_tensor_dense(logs, WEFT_F32, WEFT_SHAPE(1, IDS));
    for (int greedy = 0; greedy < 2; greedy++) {
        remainder_rule r = {.of = IDS + 1, .rest = IDS, .fails = 17};
        const weft_sampling_options o = {
            .greedy = greedy, .allows = allow_remainder, .allows_context = &r};
        weft_sampling_row row = {.log_probs = &t};
        CU_ASSERT_EQUAL(weft_sampler_choose(s, &o, &row, &chosen, &error), WEFT_TOO_LARGE);
        CU_ASSERT_STRING_EQUAL(error.message, "fails at 17");
        CU_ASSERT_EQUAL(chosen.id, -1);
        row.found = 1;
        CU_ASSERT_EQUAL(weft_sampler_choose(s, &o, &row, &chosen, &error), WEFT_BAD_ARGUMENT);
    }
    weft_sampler_free(s);
}

/* ---- Searches ---- */

static weft_status step_flat(void *context, const int32_t *tokens, const int32_t *parents,
                             weft_tensor *log_probs, weft_error *error)
{
    static float logs[4 * IDS];
    (void)context, (void)tokens, (void)parents, (void)error;
    for (int i = 0; i < 4 * IDS; i++) logs[i] = -6;
    *log_probs = weft_tensor_dense(logs, WEFT_F32, WEFT_SHAPE(4, IDS));
    return WEFT_OK;
}

/* Each row has a rule of its own. */
static void test_searches(void)
{
    const weft_search_model model = {
        .step = step_flat, .sentences = 2, .beams = 2, .vocab = IDS, .max_len = 10};
    const int32_t bos = 0;
    const weft_search_input inputs[] = {{&bos, 1, 5, 0}, {&bos, 1, 5, 1}};
    remainder_rule rules[4];
    void *contexts[4];
    for (int32_t i = 0; i < 4; i++) {
        rules[i] = (remainder_rule){.of = IDS, .rest = 10 + i, .fails = -1};
        contexts[i] = &rules[i];
    }
    weft_search_options o = {.nbest = 2, .allows = allow_remainder, .allows_contexts = contexts};
    weft_error error;
    weft_search_result *r = weft_search_sample(&model, inputs, 2, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    for (size_t i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(r->hypotheses[i].length, 5);
        for (size_t k = 0; k < 5; k++) CU_ASSERT_EQUAL(r->hypotheses[i].tokens[k], 10 + (int)i);
    }
    weft_search_result_free(r);
    o.nbest = 1;
    r = weft_search_greedy(&model, inputs, 2, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    for (size_t i = 0; i < 2; i++) CU_ASSERT_EQUAL(r->hypotheses[i].tokens[4], 10 + (int)i);
    weft_search_result_free(r);
    rules[1].fails = 5;
    CU_ASSERT_PTR_NULL(weft_search_greedy(&model, inputs, 2, &o, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_TOO_LARGE);
    CU_ASSERT_PTR_NULL(weft_search_beam(&model, inputs, 2, &o, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    o.allows_contexts = NULL;
    CU_ASSERT_PTR_NULL(weft_search_greedy(&model, inputs, 2, &o, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
}

void rule_tests(void)
{
    CU_pSuite suite = CU_add_suite("rule", NULL, NULL);
    CU_add_test(suite, "the most likely allowed token", test_greedy);
    CU_add_test(suite, "probabilities are renormalised", test_frequencies);
    CU_add_test(suite, "a rule that allows everything", test_everything);
    CU_add_test(suite, "no candidate is allowed", test_no_candidate);
    CU_add_test(suite, "errors of a rule", test_errors);
    CU_add_test(suite, "rules of a search's rows", test_searches);
}
