/* Schedules against closed forms, batches row by row, unigram entropy. */
#include "tests.h"
#include "token_batches.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Schedules ---- */

static void test_schedules(void)
{
    const double pi = 3.14159265358979323846;
    weft_schedule s = {WEFT_SCHEDULE_CONSTANT, 2, 0.5, 10, 110};
    for (uint64_t n = 0; n < 130; n++) {
        double warm = 2 * (double)(n + 1) / 10;
        double p = n < 10 ? 0 : n > 110 ? 1 : (double)(n - 10) / 100;
        s.kind = WEFT_SCHEDULE_CONSTANT;
        CU_ASSERT_TRUE(test_near(weft_schedule_rate(&s, n, 0), n < 10 ? warm : 2));
        s.kind = WEFT_SCHEDULE_LINEAR;
        CU_ASSERT_TRUE(test_near(weft_schedule_rate(&s, n, 0), n < 10 ? warm : 2 - 1.5 * p));
        s.kind = WEFT_SCHEDULE_COSINE;
        CU_ASSERT_TRUE(test_near(weft_schedule_rate(&s, n, 0),
                                 n < 10 ? warm : 0.5 + 0.75 * (1 + cos(pi * p))));
        s.kind = WEFT_SCHEDULE_INVERSE_SQRT;
        CU_ASSERT_TRUE(test_near(weft_schedule_rate(&s, n, 0),
                                 n < 10 ? warm : fmax(0.5, 2 * sqrt(10.0 / (double)(n + 1)))));
    }
    for (uint64_t n = 0; n < 130; n++) {
        const double warm = 2 * (double)(n + 1) / 10, rise = 0.5 * (1 - cos(pi * (double)n / 9));
        const double p = n < 10 ? 0 : n > 110 ? 1 : (double)(n - 10) / 100;
        s.kind = WEFT_SCHEDULE_STEP;
        s.floor = 0.005;
        const double step = p == 1 ? 0.005 : p * 3 >= 2 ? 0.02 : p * 3 >= 1 ? 0.2 : 2;
        CU_ASSERT_TRUE(test_near(weft_schedule_rate(&s, n, 0), n < 10 ? warm : step));
        s.kind = WEFT_SCHEDULE_EXPONENTIAL;
        CU_ASSERT_TRUE(test_near(weft_schedule_rate(&s, n, 0), n < 10 ? warm : 2 * pow(0.0025, p)));
        s.kind = WEFT_SCHEDULE_ONE_CYCLE;
        s.floor = 0.5;
        CU_ASSERT_TRUE(test_near(weft_schedule_rate(&s, n, 0),
                                 n < 10 ? 0.08 + 1.92 * rise : 0.5 + 0.75 * (1 + cos(pi * p))));
    }
    /* The paper's formula: d^-0.5 min(step^-0.5, step warmup^-1.5). */
    weft_schedule paper = {WEFT_SCHEDULE_INVERSE_SQRT, weft_noam_peak(512, 4000), 0, 4000, 0};
    for (uint64_t n = 1; n < 100000; n = n * 3 / 2 + 1) {
        double step = (double)n;
        double wanted = pow(512, -0.5) * fmin(pow(step, -0.5), step * pow(4000, -1.5));
        CU_ASSERT_TRUE(test_near(weft_schedule_rate(&paper, n - 1, 0.7), wanted));
    }
    /* By time: the share is the progress of the decay. */
    weft_schedule timed = {WEFT_SCHEDULE_LINEAR, 1, 0, 4, 0};
    CU_ASSERT_TRUE(test_near(weft_schedule_rate(&timed, 100, 0.25), 0.75));
    CU_ASSERT_TRUE(test_near(weft_schedule_rate(&timed, 1, 0), 0.5));
    CU_ASSERT_TRUE(test_near(weft_schedule_rate(&timed, 1, 0.9), 0.1));
    /* A warm-up that the time does not allow ends after a quarter of it. */
    const weft_schedule hurried = {WEFT_SCHEDULE_CONSTANT, 1, 0, 1000, 0};
    CU_ASSERT_TRUE(test_near(weft_schedule_rate(&hurried, 9, 0.001), 0.01));
    CU_ASSERT_TRUE(test_near(weft_schedule_rate(&hurried, 9, 0.125), 0.5));
    CU_ASSERT_TRUE(test_near(weft_schedule_rate(&hurried, 9, 0.25), 1));
    /* By steps and by time: the larger share counts. A smaller share of time changes no bit. */
    s.kind = WEFT_SCHEDULE_LINEAR;
    for (uint64_t n = 0; n < 110; n++)
        CU_ASSERT_EQUAL(weft_schedule_rate(&s, n, (double)n / 110), weft_schedule_rate(&s, n, 0));
    CU_ASSERT_TRUE(
        test_near(weft_schedule_rate(&s, 30, 60.0 / 110), weft_schedule_rate(&s, 60, 0)));
    CU_ASSERT_TRUE(test_near(weft_schedule_rate(&s, 30, 1), 0.5));
    CU_ASSERT_TRUE(test_near(weft_schedule_rate(&s, 3, 0), 0.8)); /* still warming up */
    CU_ASSERT_TRUE(test_near(weft_schedule_rate(&s, 3, 0.5), weft_schedule_rate(&s, 55, 0)));
    CU_ASSERT_STRING_EQUAL(weft_schedule_kind_name(WEFT_SCHEDULE_COSINE), "cosine");
    CU_ASSERT_PTR_NULL(weft_schedule_kind_name((weft_schedule_kind)99));
    CU_ASSERT_EQUAL(weft_schedule_rate(NULL, 1, 0), 0);
}

/* ---- Batches ---- */

typedef struct rows {
    int32_t source[4096], in[4096], out[4096];
} rows;

/* How often each first target token appears in an epoch, and a hash of the epoch's order. */
static uint64_t walk_epoch(weft_batches *b, uint64_t epoch, size_t count[VOCAB], rows *r)
{
    uint64_t hash = 0;
    size_t tokens = 0;
    weft_batches_start(b, epoch);
    for (size_t i = 0; i < weft_batches_counts(b).batches; i++) {
        weft_batch_shape s = weft_batches_shape(b, i);
        tokens += weft_batches_fill(b, i, r->source, r->in, r->out);
        for (int64_t row = 0; row < s.rows; row++) {
            const int32_t *source = r->source + row * s.target_len;
            const int32_t *in = r->in + row * s.target_len, *out = r->out + row * s.target_len;
            if (in[0] == PAD) {
                CU_ASSERT_EQUAL(out[0], PAD);
                CU_ASSERT_EQUAL(source[0], PAD);
                continue;
            }
            CU_ASSERT_EQUAL(in[0], BOS);
            count[out[0]]++;
            hash = hash * 31 + (uint64_t)out[0];
            bool ended = false;
            for (int64_t k = 0; k < s.target_len; k++) {
                CU_ASSERT_TRUE(!ended || (out[k] == PAD && in[k] == PAD));
                if (k && !ended) CU_ASSERT_EQUAL(in[k], out[k - 1]);
                if (out[k] == EOS) ended = true;
            }
            CU_ASSERT_TRUE(ended);
            size_t ends = 0;
            for (int64_t k = 0; k < s.source_len; k++) ends += source[k] == EOS;
            CU_ASSERT_EQUAL(ends, 1);
        }
    }
    CU_ASSERT_EQUAL(tokens, weft_batches_counts(b).tokens);
    return hash;
}

static void test_batches_of_pairs(void)
{
    rows *r = malloc(sizeof *r);
    weft_corpus *c = make_corpus(350, 15, true, 1);
    weft_batch_options o = batch_options(WEFT_BATCH_PAIRS, 64);
    weft_error error;
    weft_batches *b = weft_batches_new(c, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(b);
    CU_ASSERT_EQUAL(weft_batches_counts(b).rows, 350);
    CU_ASSERT_TRUE(weft_batches_max_elements(b) <= 64);
    uint64_t hashes[3];
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        size_t count[VOCAB] = {0};
        hashes[epoch] = walk_epoch(b, epoch, count, r);
        for (int id = FIRST; id < VOCAB; id++) CU_ASSERT_EQUAL(count[id], 10);
    }
    CU_ASSERT_TRUE(hashes[0] != hashes[1] && hashes[1] != hashes[2]);
    size_t count[VOCAB] = {0};
    CU_ASSERT_EQUAL(walk_epoch(b, 1, count, r), hashes[1]);
    o.seed = 8;
    weft_batches *other = weft_batches_new(c, &o, &error);
    CU_ASSERT_TRUE(walk_epoch(other, 1, count, r) != hashes[1]);
    weft_batches_free(b);
    weft_batches_free(other);
    weft_corpus_free(c);
    free(r);
}

/* Every order of three rows is as likely as the others. */
static void test_shuffle_is_even(void)
{
    weft_corpus *c = weft_corpus_new();
    rows *r = malloc(sizeof *r);
    size_t seen[3][3] = {{0}};
    for (int32_t i = 0; i < 3; i++) weft_corpus_add(c, NULL, 0, (int32_t[]){FIRST + i}, 1, NULL);
    weft_batch_options o = batch_options(WEFT_BATCH_LINES, 24);
    weft_batches *b = weft_batches_new(c, &o, NULL);
    for (uint64_t epoch = 0; epoch < 3000; epoch++) {
        weft_batches_start(b, epoch);
        weft_batches_fill(b, 0, NULL, r->in, r->out);
        for (int i = 0; i < 3; i++) seen[i][r->out[8 * i] - FIRST]++;
    }
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) CU_ASSERT_TRUE(seen[i][k] > 900 && seen[i][k] < 1100);
    weft_batches_free(b);
    weft_corpus_free(c);
    free(r);
}

static void test_long_and_empty(void)
{
    rows *r = malloc(sizeof *r);
    weft_corpus *c = weft_corpus_new();
    int32_t ids[20];
    for (int32_t i = 0; i < 20; i++) ids[i] = FIRST + i;
    weft_corpus_add(c, NULL, 0, ids, 20, NULL);
    weft_corpus_add(c, NULL, 0, ids, 0, NULL);
    weft_corpus_add(c, NULL, 0, ids, 15, NULL);
    weft_batch_options o = batch_options(WEFT_BATCH_LINES, 16);
    weft_batches *b = weft_batches_new(c, &o, NULL);
    weft_batch_counts n = weft_batches_counts(b);
    CU_ASSERT_EQUAL(n.rows, 1);
    CU_ASSERT_EQUAL(n.left_out, 1);
    CU_ASSERT_EQUAL(n.empty, 1);
    CU_ASSERT_EQUAL(n.cut, 0);
    weft_batches_free(b);
    o.truncate = true;
    b = weft_batches_new(c, &o, NULL);
    n = weft_batches_counts(b);
    CU_ASSERT_EQUAL(n.rows, 2);
    CU_ASSERT_EQUAL(n.cut, 1);
    CU_ASSERT_EQUAL(n.tokens, 32);
    size_t ends = 0;
    for (size_t i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(weft_batches_fill(b, i, NULL, r->in, r->out), 16);
        ends += r->out[15] == EOS; /* the one that was cut has no end */
    }
    CU_ASSERT_EQUAL(ends, 1);
    weft_batches_free(b);
    weft_error error;
    o.truncate = false;
    o.n_lengths = 1;
    CU_ASSERT_PTR_NULL(weft_batches_new(c, &o, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "2 are longer, 1 empty"));
    o.vocab = 10;
    CU_ASSERT_PTR_NULL(weft_batches_new(c, &o, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_INDEX);
    weft_corpus_free(c);
    free(r);
}

/* Lengths ascend from 3 to 2^20. */
static void test_lengths(void)
{
    static const struct {
        int32_t length[2];
        bool good;
    } cases[] = {{{2, 8}, false},
                 {{3, 8}, true},
                 {{8, 8}, false},
                 {{8, 9}, true},
                 {{9, 8}, false},
                 {{8, 1 << 20}, true},
                 {{8, (1 << 20) + 1}, false}};
    weft_corpus *c = make_corpus(40, 20, false, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_error error = {0};
        weft_batch_options o = batch_options(WEFT_BATCH_LINES, 64);
        o.n_lengths = 2;
        for (int k = 0; k < 2; k++) o.lengths[k] = cases[i].length[k];
        o.truncate = true;
        weft_batches *b = weft_batches_new(c, &o, &error);
        CU_ASSERT_EQUAL(b != NULL, cases[i].good);
        if (!cases[i].good) CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "lie from 3 to 1048576"));
        weft_batches_free(b);
    }
    weft_corpus_free(c);
}

/* Blocks laid in their order are the whole text. */
static void test_blocks(void)
{
    rows *r = malloc(sizeof *r);
    weft_corpus *c = make_corpus(40, 20, false, 3);
    weft_batch_options o = batch_options(WEFT_BATCH_BLOCKS, 16);
    weft_batches *b = weft_batches_new(c, &o, NULL);
    weft_batch_counts n = weft_batches_counts(b);
    size_t ends = 0, begins = 0, tokens = 0;
    CU_ASSERT_EQUAL(n.rows, (n.tokens + 15) / 16);
    for (size_t i = 0; i < n.batches; i++) {
        tokens += weft_batches_fill(b, i, NULL, r->in, r->out);
        for (int k = 0; k < 16; k++) {
            ends += r->out[k] == EOS;
            begins += r->in[k] == BOS;
            if (k && r->in[k] != BOS && r->in[k] != PAD) CU_ASSERT_EQUAL(r->in[k], r->out[k - 1]);
        }
    }
    CU_ASSERT_EQUAL(tokens, n.tokens);
    CU_ASSERT_EQUAL(ends, 40);
    CU_ASSERT_EQUAL(begins, 40);
    weft_batches_free(b);
    weft_corpus_free(c);
    free(r);
}

static void test_masks(void)
{
    rows *r = malloc(sizeof *r), *again = malloc(sizeof *again);
    weft_corpus *c = make_corpus(2000, 14, false, 5);
    weft_batch_options o = batch_options(WEFT_BATCH_MASKED, 256);
    weft_batches *b = weft_batches_new(c, &o, NULL);
    double shown = 0, hidden = 0, masked = 0, same = 0;
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        weft_batches_start(b, epoch);
        for (size_t i = 0; i < weft_batches_counts(b).batches; i++) {
            weft_batch_shape s = weft_batches_shape(b, i);
            size_t n = weft_batches_fill(b, i, NULL, r->in, r->out);
            size_t bytes = (size_t)(s.rows * s.target_len) * sizeof *r->in;
            weft_batches_fill(b, i, NULL, again->in, again->out);
            CU_ASSERT_EQUAL(memcmp(r->in, again->in, bytes), 0);
            hidden += (double)n;
            for (int64_t row = 0; row < s.rows; row++) {
                size_t in_row = 0;
                const int32_t *in = r->in + row * s.target_len, *out = r->out + row * s.target_len;
                for (int64_t k = 0; k < s.target_len; k++) {
                    shown += in[k] >= MASK;
                    in_row += out[k] != PAD;
                    if (out[k] == PAD) continue;
                    CU_ASSERT_TRUE(out[k] >= FIRST && in[k] >= MASK);
                    masked += in[k] == MASK;
                    same += in[k] == out[k];
                }
                CU_ASSERT_TRUE(in[0] == PAD || in_row > 0);
            }
        }
    }
    /* Short rows without a chosen token get one, so it is a little over 15 %. */
    CU_ASSERT_TRUE(hidden / shown > 0.15 && hidden / shown < 0.21);
    /* Five standard errors of shares of 6000 tokens: 5 sqrt(0.8 0.2 / 6000) = 0.026, and
     * 5 sqrt(0.1 0.9 / 6000) = 0.019. */
    CU_ASSERT_TRUE(fabs(masked / hidden - 0.8) < 0.03);
    CU_ASSERT_TRUE(fabs(same / hidden - (0.1 + 0.1 / (VOCAB - FIRST))) < 0.02);
    weft_batches_free(b);
    weft_corpus_free(c);
    free(r);
    free(again);
}

/* Sequences with their own special tokens, some of which are not predicted, as rows and as blocks.
 */
static void test_whole(void)
{
    enum { NO = 99 };
    weft_error error;
    weft_corpus *c = weft_corpus_new();
    weft_corpus_add(c, NULL, 0, (int32_t[]){2, -1 - 7, 8, 9}, 4, NULL);
    weft_corpus_add(c, NULL, 0, (int32_t[]){5, -1 - 6}, 2, NULL); /* nothing is predicted */
    weft_corpus_add(c, NULL, 0, (int32_t[]){4}, 1, NULL);
    weft_corpus_add(c, NULL, 0, (int32_t[]){6, 0}, 2, NULL);
    weft_batch_options o = {.mode = WEFT_BATCH_LINES,
                            .tokens = 8,
                            .lengths = {4},
                            .n_lengths = 1,
                            .pad = NO,
                            .bos = 1,
                            .vocab = 10,
                            .whole = true};
    int32_t in[8], out[8];
    weft_batches *b = weft_batches_new(c, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(b);
    CU_ASSERT_EQUAL(weft_batches_counts(b).rows, 2);
    CU_ASSERT_EQUAL(weft_batches_counts(b).empty, 2);
    CU_ASSERT_EQUAL(weft_batches_counts(b).tokens, 3);
    CU_ASSERT_EQUAL(weft_batches_fill(b, 0, NULL, in, out), 3);
    const int first = in[0] == 2 ? 0 : 4;
    const int32_t expected[2][2][4] = {{{2, 7, 8, 1}, {NO, 8, 9, NO}},
                                       {{6, 1, 1, 1}, {0, NO, NO, NO}}};
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(memcmp(in + (i ? 4 - first : first), expected[i][0], sizeof expected[i][0]),
                        0);
        CU_ASSERT_EQUAL(
            memcmp(out + (i ? 4 - first : first), expected[i][1], sizeof expected[i][1]), 0);
    }
    const weft_data_hashes hashes = weft_batches_hashes(b);
    weft_batches_free(b);
    o.mode = WEFT_BATCH_BLOCKS;
    b = weft_batches_new(c, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(b);
    CU_ASSERT_EQUAL(weft_batches_fill(b, 0, NULL, in, out), 3);
    const int32_t block_in[4] = {2, 7, 8, 6}, block_out[4] = {NO, 8, 9, 0};
    CU_ASSERT_EQUAL(memcmp(in, block_in, sizeof block_in), 0);
    CU_ASSERT_EQUAL(memcmp(out, block_out, sizeof block_out), 0);
    CU_ASSERT_NOT_EQUAL(weft_batches_hashes(b).batches, hashes.batches);
    weft_batches_free(b);
    o.pad = 3;
    CU_ASSERT_PTR_NULL(weft_batches_new(c, &o, &error));
    o.pad = NO;
    o.mode = WEFT_BATCH_MASKED;
    CU_ASSERT_PTR_NULL(weft_batches_new(c, &o, &error));
    o.mode = WEFT_BATCH_LINES;
    o.vocab = 9;
    CU_ASSERT_PTR_NULL(weft_batches_new(c, &o, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_INDEX);
    weft_corpus_free(c);
}

/* A sequence that is cut keeps what is predicted before the cut; if that is nothing, it is empty. */
static void test_whole_cut(void)
{
    enum { NO = 99 };
    weft_corpus *c = weft_corpus_new();
    weft_corpus_add(c, NULL, 0, (int32_t[]){-1 - 2, -1 - 7, 8, 9, 6}, 5, NULL);
    weft_corpus_add(c, NULL, 0, (int32_t[]){-1 - 5, -1 - 6, -1 - 7, -1 - 8, 9}, 5, NULL);
    weft_batch_options o = {.mode = WEFT_BATCH_LINES,
                            .tokens = 3,
                            .lengths = {3},
                            .n_lengths = 1,
                            .pad = NO,
                            .bos = 1,
                            .vocab = 10,
                            .whole = true,
                            .truncate = true};
    int32_t in[3], out[3];
    weft_batches *b = weft_batches_new(c, &o, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(b);
    const weft_batch_counts counts = weft_batches_counts(b);
    CU_ASSERT(counts.rows == 1 && counts.cut == 1 && counts.empty == 1 && counts.tokens == 2);
    CU_ASSERT_EQUAL(weft_batches_fill(b, 0, NULL, in, out), 2);
    const int32_t wanted_in[3] = {2, 7, 8}, wanted_out[3] = {NO, 8, 9};
    CU_ASSERT_EQUAL(memcmp(in, wanted_in, sizeof in), 0);
    CU_ASSERT_EQUAL(memcmp(out, wanted_out, sizeof out), 0);
    weft_batches_free(b);
    weft_corpus_free(c);
}

static void test_entropy(void)
{
    weft_corpus *c = weft_corpus_new();
    weft_corpus_add(c, NULL, 0, (int32_t[]){5, 5, 6}, 3, NULL);
    /* Counts with one added: 5: 3, 6: 2, EOS: 2, seven others 1 each, of 14. */
    double wanted = -(2 * log(3 / 14.0) + log(2 / 14.0) + log(2 / 14.0)) / 4;
    CU_ASSERT_TRUE(test_near(weft_corpus_unigram_entropy(c, c, 10, EOS), wanted));
    CU_ASSERT_TRUE(isnan(weft_corpus_unigram_entropy(NULL, c, 10, EOS)));
    weft_corpus_free(c);
}

void batches_tests(void)
{
    CU_pSuite suite = CU_add_suite("batches", NULL, NULL);
    CU_add_test(suite, "lengths", test_lengths);
    CU_add_test(suite, "schedules equal their formulas", test_schedules);
    CU_add_test(suite, "an epoch has every pair once, in its own order", test_batches_of_pairs);
    CU_add_test(suite, "shuffling is even", test_shuffle_is_even);
    CU_add_test(suite, "long and empty sequences are counted", test_long_and_empty);
    CU_add_test(suite, "blocks are the whole text", test_blocks);
    CU_add_test(suite, "hidden tokens", test_masks);
    CU_add_test(suite, "sequences with their own special tokens", test_whole);
    CU_add_test(suite, "cut sequences with their own special tokens", test_whole_cut);
    CU_add_test(suite, "unigram entropy", test_entropy);
}
