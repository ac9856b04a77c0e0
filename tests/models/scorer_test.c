/* Scores of given texts: against the decoder's token steps, in windows, in any company. */
#include "tests.h"

#include <weft/decode.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VOCAB      13
#define LENGTH     40 /* tokens of a text, the first included */
#define SOURCE_LEN 9
#define TEXTS      21

typedef struct subject {
    weft_model_config config;
    weft_params *params;
    int32_t sources[TEXTS][SOURCE_LEN], tokens[TEXTS][LENGTH];
    double scores[TEXTS][LENGTH * SOURCE_LEN];
    weft_scorer_row rows[TEXTS];
} subject;

/* A model with its first parameters, and texts of many lengths. */
static subject *make_subject(const char *name, const char *const *texts, size_t n)
{
    subject *s = calloc(1, sizeof *s);
    weft_error error = {0};
    weft_built built;
    uint64_t random = 5;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL_FATAL(weft_model_parse(weft_model_find(name), texts, n, &s->config, &error),
                          WEFT_OK);
    weft_graph *g = weft_graph_new();
    s->params = weft_params_new();
    built = weft_model_build(g, &s->config);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(s->params, g, 7, &error), WEFT_OK);
    bool has_source = weft_is_value(weft_built_input(&built, "source"));
    weft_graph_free(g);
    for (int i = 0; i < TEXTS; i++) {
        for (int k = 0; k < SOURCE_LEN; k++)
            s->sources[i][k] = 1 + (int32_t)(test_random(&random) % (VOCAB - 1));
        for (int k = 0; k < LENGTH; k++)
            s->tokens[i][k] = 1 + (int32_t)(test_random(&random) % (VOCAB - 1));
        s->rows[i] = (weft_scorer_row){has_source ? s->sources[i] : NULL,
                                       has_source ? 1 + (size_t)(i % SOURCE_LEN) : 0, s->tokens[i],
                                       i == 3   ? 1
                                       : i == 4 ? LENGTH
                                                : 2 + test_random(&random) % (LENGTH - 1),
                                       s->scores[i]};
    }
    return s;
}

static void free_subject(subject *s)
{
    weft_params_free(s->params);
    free(s);
}

static bool score(subject *s, const weft_scorer_options *o, size_t first, size_t n,
                  weft_error *error)
{
    *error = (weft_error){.status = WEFT_OK};
    weft_scorer *scorer = weft_scorer_new(&s->config, s->params, o, error);
    if (!scorer) return false;
    bool good = weft_scorer_run(scorer, s->rows + first, n, error) == WEFT_OK;
    weft_scorer_free(scorer);
    return good;
}

/* Options of a small model in double precision, and one more. */
static size_t small(const char *name, const char *one, const char **texts)
{
    static const char *const of_attention[] = {"d_model=16", "heads=4", "d_ff=24"};
    static const char *const recurrent[] = {"width=8", "hidden=8"};
    bool attends = !strcmp(name, "gpt") || !strcmp(name, "llama") || name[0] == 't';
    size_t n = attends ? 3 : 2;
    texts[0] = "vocab=13";
    texts[1] = one;
    memcpy(texts + 2, attends ? of_attention : recurrent, n * sizeof *texts);
    return n + 2;
}

static double real_at(const weft_tensor *t, int64_t i)
{
    return t->dtype == WEFT_F64 ? ((const double *)t->data)[i] : ((const float *)t->data)[i];
}

/* How far the scores of a row are from a decoder that reads tokens first .. first + count - 1, from
 * token first + skip on. */
static double step_error(subject *s, const weft_scorer_row *row, size_t first, size_t count,
                         size_t skip)
{
    weft_error error = {0};
    weft_decoder_options o = {.max_len = LENGTH, .max_source_len = SOURCE_LEN};
    weft_decoder *d = weft_decoder_new(&s->config, s->params, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    bool good =
        weft_decoder_start(d, &row->source, &row->source_len, row->source != NULL, NULL) == WEFT_OK;
    double worst = 0;
    for (size_t i = 0; good && i < count; i++) {
        weft_tensor t;
        good = weft_decoder_step(d, &row->tokens[first + i], NULL, NULL) == WEFT_OK &&
               weft_decoder_log_probs(d, &t);
        if (!good || i < skip) continue;
        double e = fabs(real_at(&t, row->tokens[first + i + 1]) - row->scores[first + i]);
        if (!(e <= worst)) worst = e;
    }
    weft_decoder_free(d);
    return good ? worst : INFINITY;
}

static void test_against_steps(void)
{
    static const char *const names[] = {
        "transformer", "transformer-shared", "gpt", "llama", "rnn", "lstm", "gru", "seq2seq"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *texts[8];
        weft_error error = {0};
        subject *s = make_subject(names[i], texts, small(names[i], "f64=1", texts));
        CU_ASSERT_TRUE(score(s, NULL, 0, TEXTS, &error));
        double worst = 0;
        for (int k = 0; k < TEXTS; k++) {
            double e = step_error(s, &s->rows[k], 0, s->rows[k].length - 1, 0);
            if (!(e <= worst)) worst = e;
        }
        CU_ASSERT(worst < ROUNDING_F64);
        free_subject(s);
    }
}

/* A text of more tokens than the context, read in windows: those that a generated text has. */
static void test_windows(void)
{
    static const int64_t contexts[] = {1, 2, 7, 16, 38, 39};
    const char *texts[8];
    subject *s = make_subject("gpt", texts, small("gpt", "f64=1", texts));
    for (size_t c = 0; c < sizeof contexts / sizeof *contexts; c++) {
        weft_error error = {0};
        size_t context = (size_t)contexts[c], prefix = context > 1 ? context / 2 : 1;
        CU_ASSERT_TRUE(score(s, &(weft_scorer_options){.context = contexts[c]}, 0, TEXTS, &error));
        const weft_scorer_row *row = &s->rows[4];
        size_t done = 0;
        for (size_t skip = 0; done < LENGTH - 1; skip = prefix - 1) {
            size_t first = done - skip, count = LENGTH - 1 - first;
            if (count > context) count = context;
            CU_ASSERT(step_error(s, row, first, count, skip) < ROUNDING_F64);
            done = first + count;
        }
    }
    free_subject(s);
}

/* One row at a time, or all; one thread, or several: the same bits. */
static void test_company(void)
{
    static const char *const names[] = {"transformer", "gpt", "llama", "gru", "seq2seq"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int weights = 0; weights < 2; weights++) {
            const char *texts[8];
            weft_error error = {0};
            subject *s = make_subject(names[i], texts, small(names[i], "f64=0", texts));
            weft_scorer_options o = {.rows = 16, .session.threads = 2, .weights = weights};
            bool has_source = s->rows[0].source != NULL;
            if (!has_source) o.context = 24;
            if (weights && !has_source) {
                CU_ASSERT_FALSE(score(s, &o, 0, TEXTS, &error));
                CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
                free_subject(s);
                continue;
            }
            static double all[TEXTS][LENGTH * SOURCE_LEN];
            CU_ASSERT_TRUE(score(s, &o, 0, TEXTS, &error));
            memcpy(all, s->scores, sizeof all);
            memset(s->scores, 0, sizeof s->scores);
            o.rows = 3;
            o.session.threads = 1;
            for (size_t k = 0; k < TEXTS; k++) CU_ASSERT_TRUE(score(s, &o, k, 1, &error));
            CU_ASSERT_EQUAL(memcmp(all, s->scores, sizeof all), 0);
            memset(s->scores, 0, sizeof s->scores);
            CU_ASSERT_TRUE(score(s, &o, 0, TEXTS, &error));
            CU_ASSERT_EQUAL(memcmp(all, s->scores, sizeof all), 0);
            free_subject(s);
        }
}

/* Weights of each token add up to 1 over the source; heads average to their mean. */
static void test_weights(void)
{
    const char *texts[8];
    weft_error error = {0};
    subject *s = make_subject("transformer", texts, small("transformer", "f64=1", texts));
    weft_scorer_options o = {.weights = true, .layer = 2};
    static double mean[LENGTH * SOURCE_LEN], sum[LENGTH * SOURCE_LEN];
    const weft_scorer_row *row = &s->rows[4];
    const size_t n = (LENGTH - 1) * row->source_len;
    CU_ASSERT_TRUE(score(s, &o, 0, TEXTS, &error));
    memcpy(mean, row->scores, n * sizeof *mean);
    for (size_t i = 0; i < LENGTH - 1; i++) {
        double all = 0;
        for (size_t k = 0; k < row->source_len; k++) all += mean[i * row->source_len + k];
        CU_ASSERT_DOUBLE_EQUAL(all, 1, ROUNDING_F64);
    }
    for (o.head = 1; o.head <= 4; o.head++) {
        CU_ASSERT_TRUE(score(s, &o, 0, TEXTS, &error));
        for (size_t i = 0; i < n; i++) sum[i] += row->scores[i] / 4;
    }
    double worst = 0, change = 0;
    for (size_t i = 0; i < n; i++) worst = fmax(worst, fabs(sum[i] - mean[i]));
    CU_ASSERT(worst < ROUNDING_F64);
    o.head = 0;
    o.layer = 0; /* the last, which is another one */
    CU_ASSERT_TRUE(score(s, &o, 0, TEXTS, &error));
    for (size_t i = 0; i < n; i++) change = fmax(change, fabs(row->scores[i] - mean[i]));
    CU_ASSERT(change > 1e-6);
    free_subject(s);
}

static void test_refusals(void)
{
    const char *texts[8];
    weft_error error = {0};
    size_t n = small("transformer-shared", "f64=0", texts);
    texts[n++] = "max_positions=32"; /* fewer than LENGTH */
    subject *s = make_subject("transformer-shared", texts, n);
    weft_scorer_options o = {.weights = true};
    CU_ASSERT_FALSE(score(s, NULL, 0, TEXTS, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_TOO_LARGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "row 4 has 39 tokens"));
    s->rows[0].source_len = 0;
    CU_ASSERT_FALSE(score(s, NULL, 0, 1, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    s->rows[0].source_len = 3;
    s->tokens[0][1] = VOCAB;
    CU_ASSERT_FALSE(score(s, NULL, 0, 1, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_INDEX);
    s->tokens[0][1] = 1;
    o.layer = 7;
    CU_ASSERT_FALSE(score(s, &o, 0, 1, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_NOT_FOUND);
    o.layer = 1;
    o.head = 5;
    CU_ASSERT_FALSE(score(s, &o, 0, 1, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    o.head = -1;
    CU_ASSERT_FALSE(score(s, &o, 0, 1, &error));
    weft_params *none = weft_params_new(), *params = s->params;
    s->params = none;
    CU_ASSERT_FALSE(score(s, NULL, 0, 1, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_NOT_FOUND);
    s->params = params;
    weft_params_free(none);
    weft_tensor t;
    weft_params_find(s->params, "target_embedding", &t);
    for (int64_t i = 0; i < weft_shape_numel(t.shape); i++) ((float *)t.data)[i] = NAN;
    CU_ASSERT_FALSE(score(s, NULL, 0, 1, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_NOT_FINITE);
    free_subject(s);
    weft_model_config config;
    weft_params *empty = weft_params_new();
    static const char *const others[] = {"bert", "encoder"};
    for (int i = 0; i < 2; i++) {
        error = (weft_error){.status = WEFT_OK};
        weft_model_parse(weft_model_find(others[i]), NULL, 0, &config, NULL);
        CU_ASSERT_PTR_NULL(weft_scorer_new(&config, empty, NULL, &error));
        CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    }
    CU_ASSERT_PTR_NULL(weft_scorer_new(NULL, empty, NULL, &error));
    CU_ASSERT_EQUAL(weft_scorer_run(NULL, NULL, 0, &error), WEFT_BAD_ARGUMENT);
    weft_scorer_free(NULL);
    weft_params_free(empty);
}

void scorer_tests(void)
{
    CU_pSuite suite = CU_add_suite("scorer", NULL, NULL);
    CU_add_test(suite, "log probabilities are those of steps", test_against_steps);
    CU_add_test(suite, "windows of a long text", test_windows);
    CU_add_test(suite, "the same scores in any batch", test_company);
    CU_add_test(suite, "attention weights", test_weights);
    CU_add_test(suite, "scorers refuse what does not fit", test_refusals);
}
