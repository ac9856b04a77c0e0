/* BLEU and chrF: numbers of other programs (tests/golden/make_scores.py prints them), counts by
 * hand, edges. */
#include "tests.h"

#include <weft/text.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Scores up to 100 are quoted with ten decimals: rounded by up to 5e-11, of which this is four
 * times. */
#define QUOTED 2e-10

static void expect_tokens(const char *line, const char *expected)
{
    char *got = weft_text_tokens_13a(line);
    CU_ASSERT_PTR_NOT_NULL_FATAL(got);
    CU_ASSERT_STRING_EQUAL(got, expected);
    free(got);
}

static void test_tokens(void)
{
    expect_tokens("Hello, world! It's 3.5, or 1,000.", "Hello , world ! It's 3.5 , or 1,000 .");
    expect_tokens("a.,b 5- -5 x-y 7-8", "a . , b 5 - -5 x-y 7 - 8");
    expect_tokens("(see &quot;A/B&quot; &amp; c.)", "( see \" A / B \" & c . )");
    expect_tokens("¿Qué? «Así», dijo.", "¿Qué ? «Así» , dijo .");
    expect_tokens("U.S. $5.00 50%", "U . S . $ 5.00 50 %");
    expect_tokens("..,,1.2.a", ". . , ,1.2 . a");
    expect_tokens("  a\t\xc2\xa0 b\xe3\x80\x80", "a b"); /* no-break and ideographic spaces */
    expect_tokens("&lt;skipped&gt; <skipped>x &amp;quot;", "< skipped > x & quot ;");
    expect_tokens("", "");
    expect_tokens("\xff.\xc3", "\xff . \xc3"); /* not UTF-8 */
}

static void test_lowercase(void)
{
    char *got = weft_text_lowercase("ÁRBOL Ñandú ΣΟΦΙΑ 1\xff");
    CU_ASSERT_STRING_EQUAL(got, "árbol ñandú σοφια 1\xff");
    free(got);
}

typedef struct corpus {
    const char *lines[3], *references[3][2];
    size_t n_lines, n_references;
    double bleu, chrf, chrf_words;
} corpus;

static weft_bleu bleu_of_corpus(const corpus *c)
{
    weft_bleu b = {.length = 0};
    for (size_t i = 0; i < c->n_lines; i++)
        CU_ASSERT_EQUAL(weft_bleu_add(&b, c->lines[i], c->references[i], c->n_references, NULL),
                        WEFT_OK);
    return b;
}

static double chrf_of_corpus(const corpus *c, int words)
{
    weft_chrf f = {.words = words};
    for (size_t i = 0; i < c->n_lines; i++)
        CU_ASSERT_EQUAL(weft_chrf_add(&f, c->lines[i], c->references[i], c->n_references, NULL),
                        WEFT_OK);
    return weft_chrf_score(&f);
}

static const corpus english = {
    {"The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."},
    {{"The dog bit the man.", "The dog had bit the man."},
     {"It was not unexpected.", "No one was surprised."},
     {"The man bit him first.", "The man had bitten the dog."}},
    3,
    2,
    48.5308270099,
    59.7275178268,
    59.1531044440};
static const corpus spanish = {{"En el principio creó Dios los cielos y la tierra.",
                                "Y dijo Dios: Sea la luz; y fué la luz (1,234.5 - 7-8)."},
                               {{"En el principio crió Dios los cielos y la tierra."},
                                {"Y dijo Dios: Sea la luz: y fue la luz (1,234.5 - 7-8)."}},
                               2,
                               1,
                               74.1595038703,
                               86.7287311751,
                               85.8226472825};
static const corpus no_four = {{"a b c x d e", "f g h i"},
                               {{"a b c y d e"}, {"f h j k"}},
                               2,
                               1,
                               27.1939326484,
                               20.6944444444,
                               28.9583333333};

static void test_references(void)
{
    const corpus *const all[] = {&english, &spanish, &no_four};
    for (size_t i = 0; i < 3; i++) {
        weft_bleu b = bleu_of_corpus(all[i]);
        CU_ASSERT_DOUBLE_EQUAL(weft_bleu_score(&b).score, all[i]->bleu, QUOTED);
        CU_ASSERT_DOUBLE_EQUAL(chrf_of_corpus(all[i], 0), all[i]->chrf, QUOTED);
        CU_ASSERT_DOUBLE_EQUAL(chrf_of_corpus(all[i], 2), all[i]->chrf_words, QUOTED);
    }
}

/* The counts of lines, added up, are those of the corpus. */
static void test_sums(void)
{
    weft_bleu sum = {.length = 0}, whole = bleu_of_corpus(&english);
    weft_chrf characters = {.words = 2};
    for (size_t i = 0; i < english.n_lines; i++) {
        weft_bleu one = {.length = 0};
        weft_chrf of_line = {.words = 2};
        weft_bleu_add(&one, english.lines[i], english.references[i], 2, NULL);
        weft_chrf_add(&of_line, english.lines[i], english.references[i], 2, NULL);
        weft_bleu_sum(&sum, &one);
        weft_chrf_sum(&characters, &of_line);
    }
    CU_ASSERT_EQUAL(memcmp(&sum, &whole, sizeof sum), 0);
    CU_ASSERT_EQUAL(weft_chrf_score(&characters), chrf_of_corpus(&english, 2));
}

/* The parts of two of them, counted by hand. */
static void test_parts(void)
{
    weft_bleu b = bleu_of_corpus(&english);
    const size_t ngrams[4] = {17, 14, 11, 8}, matches[4] = {14, 7, 5, 3};
    for (int k = 0; k < 4; k++) {
        CU_ASSERT_EQUAL(b.ngrams[k], ngrams[k]);
        CU_ASSERT_EQUAL(b.matches[k], matches[k]);
    }
    CU_ASSERT(b.length == 17 && b.reference_length == 18);
    CU_ASSERT_DOUBLE_EQUAL(weft_bleu_score(&b).brevity, exp(1 - 18.0 / 17), ROUNDING_F64);
    b = bleu_of_corpus(&no_four);
    /* 7 of 10, 3 of 8, 1 of 6, and 0 of 4 counts as 1/2. */
    weft_bleu_result r = weft_bleu_score(&b);
    CU_ASSERT_DOUBLE_EQUAL(r.precisions[0], 70, 100 * ROUNDING_F64);
    CU_ASSERT_DOUBLE_EQUAL(r.precisions[1], 37.5, 100 * ROUNDING_F64);
    CU_ASSERT_DOUBLE_EQUAL(r.precisions[2], 100.0 / 6, 100 * ROUNDING_F64);
    CU_ASSERT_DOUBLE_EQUAL(r.precisions[3], 12.5, 100 * ROUNDING_F64);
    CU_ASSERT_EQUAL(r.brevity, 1);
    /* Clipping: "the" seven times, twice in the reference (Papineni et al. 2002). */
    const corpus the = {
        {"the the the the the the the"}, {{"The cat is on the mat the"}}, 1, 1, 0, 0, 0};
    b = bleu_of_corpus(&the);
    CU_ASSERT_EQUAL(b.matches[0], 2);
    /* The closest reference's length; of two as close, the shorter. */
    const corpus closest = {{"a b c d"}, {{"a b c d e f", "a b"}}, 1, 2, 0, 0, 0};
    b = bleu_of_corpus(&closest);
    CU_ASSERT_EQUAL(b.reference_length, 2);
}

static void test_edges(void)
{
    const corpus same = {{"one two three four five"}, {{"one two three four five"}}, 1, 1, 0, 0, 0};
    const corpus empty = {{""}, {{"one two"}}, 1, 1, 0, 0, 0};
    const corpus blank = {{""}, {{""}}, 1, 1, 0, 0, 0};
    const corpus other = {{"a b c d e"}, {{"v w x y z"}}, 1, 1, 0, 0, 0};
    const corpus brief = {{"one two"}, {{"one two"}}, 1, 1, 0, 0, 0};
    weft_bleu b = bleu_of_corpus(&same);
    CU_ASSERT_DOUBLE_EQUAL(weft_bleu_score(&b).score, 100, QUOTED);
    CU_ASSERT_DOUBLE_EQUAL(chrf_of_corpus(&same, 0), 100, QUOTED);
    CU_ASSERT_DOUBLE_EQUAL(chrf_of_corpus(&same, 2), 100, QUOTED);
    const corpus *const zeros[] = {&empty, &blank, &other};
    for (size_t i = 0; i < 3; i++) {
        b = bleu_of_corpus(zeros[i]);
        CU_ASSERT_EQUAL(weft_bleu_score(&b).score, 0);
        CU_ASSERT_EQUAL(chrf_of_corpus(zeros[i], 0), 0);
        CU_ASSERT_EQUAL(chrf_of_corpus(zeros[i], 2), 0);
    }
    b = bleu_of_corpus(&brief); /* there are no four tokens in a row to count */
    CU_ASSERT_EQUAL(weft_bleu_score(&b).score, 0);
    CU_ASSERT_DOUBLE_EQUAL(chrf_of_corpus(&brief, 0), 100, QUOTED);
    b = (weft_bleu){.length = 0};
    CU_ASSERT_EQUAL(weft_bleu_score(&b).score, 0);
}

/* sentence_bleu, and CHRF().sentence_score without and with word_order=2, of sacreBLEU 2.6.0. */
static void test_sentences(void)
{
    static const corpus sentences[] = {
        {{"The dog bit the man."},
         {{"The dog bit the man.", "The dog had bit the man."}},
         1,
         2,
         100,
         100,
         100},
        {{"It wasn't surprising."},
         {{"It was not unexpected.", "No one was surprised."}},
         1,
         2,
         14.7940156748,
         35.3463530143,
         29.1451388080},
        {{"a b c x d e"}, {{"a b c y d e"}}, 1, 1, 37.9917842826, 28.0555555556, 38.9583333333},
        {{"Amen"}, {{"Amen, amen."}}, 1, 1, 4.9787068368, 32.8791880995, 32.1897972822},
        {{"la luz"}, {{"la luz"}}, 1, 1, 100, 100, 100},
        {{""}, {{"Sea la luz."}}, 1, 1, 0, 0, 0},
        {{"uno dos"}, {{"tres cuatro"}}, 1, 1, 0, 5.4347826087, 4.0760869565},
        {{"Y dijo Dios: Sea la luz; y fué la luz (1,234.5 - 7-8)."},
         {{"Y dijo Dios: Sea la luz: y fue la luz (1,234.5 - 7-8)."}},
         1,
         1,
         75.9099481236,
         83.2096566018,
         82.8116542161}};
    for (size_t i = 0; i < sizeof sentences / sizeof *sentences; i++) {
        weft_bleu b = bleu_of_corpus(&sentences[i]);
        CU_ASSERT_DOUBLE_EQUAL(weft_bleu_score_sentence(&b).score, sentences[i].bleu, QUOTED);
        CU_ASSERT_DOUBLE_EQUAL(chrf_of_corpus(&sentences[i], 0), sentences[i].chrf, QUOTED);
        CU_ASSERT_DOUBLE_EQUAL(chrf_of_corpus(&sentences[i], 2), sentences[i].chrf_words, QUOTED);
    }
}

enum { VERSES = 5, RESAMPLES = 200 };
static const char *const verses[3][VERSES] = {
    {"En el principio creó Dios los cielos y la tierra.", "Y la tierra estaba vacía y sin orden.",
     "Y dijo Dios: Sea la luz y fué la luz.", "Y Dios vió que era buena la luz.",
     "Y llamó Dios á la luz Día."},
    {"En el principio Dios hizo cielos y la tierra.", "La tierra estaba desordenada.",
     "Dijo Dios: Sea la luz: y la luz fué.", "Y vió Dios que la luz era buena.",
     "Dios llamó á la luz Día, y amen."},
    {"En el principio crió Dios los cielos y la tierra.", "Y la tierra estaba desordenada y vacía.",
     "Y dijo Dios: Sea la luz: y fué la luz.", "Y vió Dios que la luz era buena.",
     "Y llamó Dios á la luz Día."}}; /* the reference */

static void expect_resampled(const weft_resampled *r, double score, double mean, double low,
                             double high)
{
    CU_ASSERT_DOUBLE_EQUAL(r->score, score, QUOTED);
    CU_ASSERT_DOUBLE_EQUAL(r->mean, mean, QUOTED);
    CU_ASSERT_DOUBLE_EQUAL(r->low, low, QUOTED);
    CU_ASSERT_DOUBLE_EQUAL(r->high, high, QUOTED);
}

/* The figures are of sacreBLEU 2.6.0's counts, scores, interval and p value, on sentences drawn by
 * a Philox written in Python. */
static void test_resampling(void)
{
    weft_sentence_counts counts[2][VERSES] = {{{.chrf = {.words = 0}}}};
    const weft_sentence_counts *const systems[] = {counts[0], counts[1], counts[0]};
    weft_system_scores results[3], again[3];
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < VERSES; i++) {
            CU_ASSERT_EQUAL(weft_bleu_add(&counts[s][i].bleu, verses[s][i], &verses[2][i], 1, NULL),
                            WEFT_OK);
            CU_ASSERT_EQUAL(weft_chrf_add(&counts[s][i].chrf, verses[s][i], &verses[2][i], 1, NULL),
                            WEFT_OK);
        }
    weft_resampling o = {systems, 3, VERSES, RESAMPLES, 7};
    CU_ASSERT_EQUAL_FATAL(weft_score_resample(&o, results, NULL), WEFT_OK);
    expect_resampled(&results[0].bleu, 64.2033024068, 62.8767597643, 40.9546471501, 82.2778893741);
    expect_resampled(&results[1].bleu, 55.3742107444, 54.5748365522, 34.3966388124, 76.2870392301);
    expect_resampled(&results[0].chrf, 77.5507809610, 78.0106215686, 62.3241803580, 91.6067252737);
    expect_resampled(&results[1].chrf, 74.7823793287, 74.7479298494, 66.0728300378, 85.9307822304);
    CU_ASSERT(isnan(results[0].bleu.p) && isnan(results[0].chrf.p));
    CU_ASSERT_DOUBLE_EQUAL(results[1].bleu.p, 0.2885572139303483, ROUNDING_F64);
    CU_ASSERT_DOUBLE_EQUAL(results[1].chrf.p, 0.31343283582089554, ROUNDING_F64);
    /* A system does not differ from itself. */
    CU_ASSERT_EQUAL(results[2].bleu.p, 1);
    CU_ASSERT_EQUAL(results[2].bleu.mean, results[0].bleu.mean);
    CU_ASSERT_EQUAL(weft_score_resample(&o, again, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(again[1].bleu.mean, results[1].bleu.mean);
    o.seed = 8;
    CU_ASSERT_EQUAL(weft_score_resample(&o, again, NULL), WEFT_OK);
    CU_ASSERT_NOT_EQUAL(again[1].bleu.mean, results[1].bleu.mean);
}

static weft_status score_a_line(weft_error *error)
{
    weft_sentence_counts one = {.chrf = {.words = 2}};
    const weft_sentence_counts *const systems[] = {&one};
    const weft_resampling o = {systems, 1, 1, 3, 7};
    weft_system_scores results;
    const char *const references[] = {"the dog, a cat", "a dog and the cat"};
    weft_status status = weft_bleu_add(&one.bleu, "the dog and a cat.", references, 2, error);
    if (status == WEFT_OK)
        status = weft_chrf_add(&one.chrf, "the dog and a cat.", references, 2, error);
    return status == WEFT_OK ? weft_score_resample(&o, &results, error) : status;
}

static void test_no_memory(void)
{
    test_every_allocation_fails(score_a_line, 50);
}

static void test_refusals(void)
{
    weft_error error = {.status = WEFT_OK};
    weft_bleu b = {.length = 0};
    weft_chrf c = {.words = WEFT_CHRF_MAX_WORDS + 1};
    const char *const reference = "a";
    const weft_sentence_counts counts[1] = {{.chrf = {.words = 0}}};
    const weft_sentence_counts *const systems[] = {counts, NULL};
    weft_resampling o = {systems, 2, 1, 10, 7};
    weft_system_scores results[2];
    CU_ASSERT_EQUAL(weft_bleu_add(&b, "a", NULL, 1, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.where, "BLEU");
    CU_ASSERT_EQUAL(weft_chrf_add(&c, "a", &reference, 1, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "at most 2 words"));
    CU_ASSERT_EQUAL(weft_score_resample(&o, results, &error), WEFT_BAD_ARGUMENT);
    o.n_systems = 1;
    CU_ASSERT_EQUAL(weft_score_resample(&o, results, &error), WEFT_OK);
    o.samples = 0;
    CU_ASSERT_EQUAL(weft_score_resample(&o, results, &error), WEFT_BAD_ARGUMENT);
}

void score_tests(void)
{
    CU_pSuite suite = CU_add_suite("score", NULL, NULL);
    CU_add_test(suite, "tokens of 13a", test_tokens);
    CU_add_test(suite, "lower case", test_lowercase);
    CU_add_test(suite, "numbers of other programs", test_references);
    CU_add_test(suite, "sums of counts", test_sums);
    CU_add_test(suite, "counts by hand", test_parts);
    CU_add_test(suite, "edges", test_edges);
    CU_add_test(suite, "single sentences", test_sentences);
    CU_add_test(suite, "paired bootstrap", test_resampling);
    CU_add_test(suite, "refused arguments", test_refusals);
    CU_add_test(suite, "no memory", test_no_memory);
}
