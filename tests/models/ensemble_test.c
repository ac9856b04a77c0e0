/* Ensembles of synthetic models against means by hand. */
#include "made_up.h"
#include "tests.h"

#include <weft/decode.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEMBERS 3

/* A model of an ensemble. It may have `read` and `retain`, return f32, return one row per sentence
 * in the first step, and have an id of probability 0. */
typedef struct member {
    made_up m;
    int64_t beams;
    bool narrow, f32;
    int32_t none; /* id of probability 0; -1: none */
    int reads, retains;
    float logs[1024];
} member;

static weft_status member_step(void *context, const int32_t *tokens, const int32_t *parents,
                               weft_tensor *log_probs, weft_error *error)
{
    member *m = context;
    bool first = m->m.position == 0;
    weft_status status = made_up_step(&m->m, tokens, parents, log_probs, error);
    if (status != WEFT_OK) return status;
    int64_t rows = m->m.rows, vocab = m->m.vocab;
    for (int64_t row = 0; row < rows && m->none >= 0; row++)
        m->m.logs[row * vocab + m->none] = -INFINITY;
    for (int64_t i = 0; i < rows * vocab && i < 1024; i++) m->logs[i] = (float)m->m.logs[i];
    int64_t step = m->narrow && first ? m->beams : 1; /* the first tokens are equal */
    *log_probs = m->f32 ? weft_tensor_dense(m->logs, WEFT_F32, WEFT_SHAPE(rows, vocab))
                        : weft_tensor_dense(m->m.logs, WEFT_F64, WEFT_SHAPE(rows, vocab));
    log_probs->shape.dim[0] /= step;
    log_probs->stride[0] *= step;
    return WEFT_OK;
}

static weft_status member_read(void *context, const int32_t *tokens, size_t length,
                               weft_error *error)
{
    member *m = context;
    weft_tensor ignored;
    int32_t row[MAX_ROWS], self[MAX_ROWS];
    m->reads++;
    for (size_t at = 0; at < length; at++) {
        for (int64_t i = 0; i < m->m.rows; i++) {
            row[i] = tokens[(size_t)(i / m->beams) * length + at];
            self[i] = (int32_t)i;
        }
        weft_status status = made_up_step(&m->m, row, self, &ignored, error);
        if (status != WEFT_OK) return status;
    }
    return WEFT_OK;
}

static weft_status member_retain(void *context, const int32_t *sentences, size_t n,
                                 weft_error *error)
{
    member *m = context;
    (void)error;
    m->retains++;
    for (size_t i = 0; i < n; i++)
        memmove(m->m.before + (int64_t)i * m->beams, m->m.before + sentences[i] * m->beams,
                (size_t)m->beams * sizeof *m->m.before);
    m->m.rows = (int64_t)n * m->beams;
    return WEFT_OK;
}

static weft_search_model member_model(member *m, int64_t sentences, int64_t beams, uint64_t seed)
{
    memset(m, 0, sizeof *m);
    weft_search_model model = made_up_model(&m->m, sentences, beams, 6, seed);
    m->beams = beams;
    m->none = -1;
    model.step = member_step;
    model.context = m;
    return model;
}

/* The log of the weighted mean of probabilities, by hand. */
static double mean_by_hand(const member *members, const uint64_t *hash, const double *weights,
                           int32_t id)
{
    double sum = 0, all = 0, logs[6];
    for (int i = 0; i < MEMBERS; i++) {
        made_up_row(&members[i].m, hash[i], logs);
        sum += weights[i] * (members[i].none == id ? 0 : exp(logs[id]));
        all += weights[i];
    }
    return log(sum / all);
}

/* log_prob must be the sum of the logs of means, and greedy search must take the best token. */
static void test_ensemble(void)
{
    static member members[MEMBERS];
    static const double equal[MEMBERS] = {1, 1, 1}, weights[MEMBERS] = {0.5, 3, 1e-3};
    const int32_t prefix[4] = {1, 0, 2, 4};
    for (uint64_t seed = 1; seed <= 24; seed++) {
        bool weighted = seed % 2, all_retain = seed % 3 == 0, beam = seed % 4 < 2;
        weft_search_model models[MEMBERS];
        weft_search_input in[3];
        for (int i = 0; i < MEMBERS; i++) {
            models[i] = member_model(&members[i], 3, 3, 100 * seed + (uint64_t)i);
            members[i].narrow = i != 1;
            members[i].f32 = i == 2;
            members[i].none = i == 0 ? 5 : -1;
            if (all_retain || i == 1) models[i].retain = member_retain;
            if (all_retain || i == 2) models[i].read = member_read;
        }
        for (size_t i = 0; i < 3; i++)
            in[i] = (weft_search_input){prefix, 2 + i % 2, 3 + (int64_t)(2 * i), seed + i};
        weft_error error = {0};
        weft_ensemble *e = weft_ensemble_new(models, MEMBERS, weighted ? weights : NULL, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(e);
        weft_search_model model = weft_ensemble_search_model(e);
        CU_ASSERT_EQUAL(model.retain != NULL, all_retain);
        CU_ASSERT_EQUAL(model.read != NULL, all_retain);
        weft_search_options o = {.eos = 3, .has_eos = true, .nbest = beam ? 3 : 1};
        weft_search_result *r = beam ? weft_search_beam(&model, in, 3, &o, &error)
                                     : weft_search_greedy(&model, in, 3, &o, &error);
        if (!r) CU_FAIL(error.message);
        for (size_t s = 0; r && s < 3; s++)
            for (size_t k = r->first[s]; k < r->first[s + 1]; k++) {
                const weft_hypothesis *h = &r->hypotheses[k];
                uint64_t hash[MEMBERS];
                double sum = 0;
                for (int i = 0; i < MEMBERS; i++) {
                    hash[i] = members[i].m.seed;
                    for (size_t p = 0; p < in[s].prefix_len; p++)
                        hash[i] = hash_on(hash[i], prefix[p]);
                }
                for (size_t at = 0; at < h->length + h->ended; at++) {
                    int32_t token = at < h->length ? h->tokens[at] : 3;
                    double own = mean_by_hand(members, hash, weighted ? weights : equal, token);
                    for (int32_t t = 0; t < 6 && !beam; t++)
                        CU_ASSERT(mean_by_hand(members, hash, weighted ? weights : equal, t) <=
                                  own + ROUNDING_F32); /* one member returns f32 */
                    sum += own;
                    for (int i = 0; i < MEMBERS; i++) hash[i] = hash_on(hash[i], token);
                }
                /* f32 rounds a log probability above -16 by 16 * 2^-24 = 1e-6 at most, and there
                 * are up to eight tokens. */
                CU_ASSERT_DOUBLE_EQUAL(h->log_prob, sum, 1e-5);
            }
        for (int i = 0; i < MEMBERS; i++) {
            CU_ASSERT_EQUAL(members[i].reads > 0, all_retain);
            CU_ASSERT_EQUAL(members[i].retains > 0, all_retain);
        }
        weft_search_result_free(r);
        weft_ensemble_free(e);
        for (int i = 0; i < MEMBERS; i++) free(members[i].m.logs);
    }
}

/* An ensemble of a model with itself has the model's bits. NaN and errors are passed on. */
static void test_ensemble_of_one(void)
{
    static member members[3];
    static const double no_weights[] = {0, -1, INFINITY, NAN};
    const int32_t begin = 1;
    weft_search_input in = {&begin, 1, 8, 1};
    weft_search_model models[3];
    weft_error error = {0};
    for (uint64_t seed = 1; seed <= 10; seed++) {
        for (int i = 0; i < 3; i++) models[i] = member_model(&members[i], 1, 2, seed);
        weft_search_options o = {.nbest = 2, .alpha = 0.6};
        weft_ensemble *e = weft_ensemble_new(models, 2, NULL, &error);
        weft_search_model both = weft_ensemble_search_model(e);
        weft_search_result *one = weft_search_beam(&models[2], &in, 1, &o, &error);
        weft_search_result *two = weft_search_beam(&both, &in, 1, &o, &error);
        CU_ASSERT_TRUE_FATAL(e && one && two);
        for (int i = 0; i < 2; i++)
            CU_ASSERT(same_hypothesis(&one->hypotheses[i], &two->hypotheses[i]));
        weft_search_result_free(one);
        weft_search_result_free(two);
        weft_ensemble_free(e);
        for (int i = 0; i < 3; i++) free(members[i].m.logs);
    }
    for (int i = 0; i < 3; i++) models[i] = member_model(&members[i], 1, 2, 5);
    for (int i = 0; i < 4; i++)
        CU_ASSERT_PTR_NULL(weft_ensemble_new(models, 2, (double[]){1, no_weights[i]}, NULL));
    CU_ASSERT_PTR_NULL(weft_ensemble_new(models, 0, NULL, NULL));
    CU_ASSERT_PTR_NULL(weft_ensemble_new(NULL, 1, NULL, NULL));
    for (long n = 1; n <= 6; n++) { /* it makes six allocations */
        error = (weft_error){0};
        test_fail_allocation(n);
        CU_ASSERT_PTR_NULL(weft_ensemble_new(models, 2, NULL, &error));
        CU_ASSERT_EQUAL(error.status, WEFT_NO_MEMORY);
        test_fail_allocation(0);
    }
    models[1].max_len = 11;
    error = (weft_error){0};
    CU_ASSERT_PTR_NULL(weft_ensemble_new(models, 2, NULL, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "model 1 has 1 sentences"));
    weft_ensemble_free(NULL);
    models[1].max_len = MAX_LEN;
    weft_ensemble *e = weft_ensemble_new(models, 2, (double[]){1e308, 1e308}, NULL);
    weft_search_model both = weft_ensemble_search_model(e);
    members[1].m.spread = NAN;
    error = (weft_error){0};
    CU_ASSERT_PTR_NULL(weft_search_beam(&both, &in, 1, NULL, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "nan"));
    members[1].m.spread = 3;
    members[1].m.broken = true;
    for (int i = 0; i < 2; i++) members[i].m.position = 0;
    error = (weft_error){0};
    CU_ASSERT_PTR_NULL(weft_search_beam(&both, &in, 1, NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_IO);
    weft_ensemble_free(e);
    for (int i = 0; i < 3; i++) free(members[i].m.logs);
}

void ensemble_tests(void)
{
    CU_pSuite suite = CU_add_suite("ensemble", NULL, NULL);
    CU_add_test(suite, "an ensemble equals means by hand", test_ensemble);
    CU_add_test(suite, "an ensemble of a model with itself", test_ensemble_of_one);
}
