/* BLEU and chrF: numbers of other programs (tests/golden/make_scores.py prints them), counts by
 * hand, edges. */
#include "score.h"
#include "tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void expect_tokens(const char *line, const char *expected)
{
    char *got = score_tokens_13a(line);
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
    char *got = score_lowercase("ÁRBOL Ñandú ΣΟΦΙΑ 1\xff");
    CU_ASSERT_STRING_EQUAL(got, "árbol ñandú σοφια 1\xff");
    free(got);
}

typedef struct corpus {
    const char *lines[3], *references[3][2];
    size_t n_lines, n_references;
    double bleu, chrf, chrf_words;
} corpus;

static bleu bleu_of_corpus(const corpus *c)
{
    bleu b = {.length = 0};
    for (size_t i = 0; i < c->n_lines; i++)
        CU_ASSERT_TRUE(bleu_add(&b, c->lines[i], c->references[i], c->n_references));
    return b;
}

static double chrf_of_corpus(const corpus *c, int words)
{
    chrf f = {.words = words};
    for (size_t i = 0; i < c->n_lines; i++)
        CU_ASSERT_TRUE(chrf_add(&f, c->lines[i], c->references[i], c->n_references));
    return chrf_of(&f);
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
        bleu b = bleu_of_corpus(all[i]);
        CU_ASSERT_DOUBLE_EQUAL(bleu_of(&b).score, all[i]->bleu, 1e-9);
        CU_ASSERT_DOUBLE_EQUAL(chrf_of_corpus(all[i], 0), all[i]->chrf, 1e-9);
        CU_ASSERT_DOUBLE_EQUAL(chrf_of_corpus(all[i], 2), all[i]->chrf_words, 1e-9);
    }
}

/* The parts of two of them, counted by hand. */
static void test_parts(void)
{
    bleu b = bleu_of_corpus(&english);
    const size_t ngrams[4] = {17, 14, 11, 8}, matches[4] = {14, 7, 5, 3};
    for (int k = 0; k < 4; k++) {
        CU_ASSERT_EQUAL(b.ngrams[k], ngrams[k]);
        CU_ASSERT_EQUAL(b.matches[k], matches[k]);
    }
    CU_ASSERT(b.length == 17 && b.reference_length == 18);
    CU_ASSERT_DOUBLE_EQUAL(bleu_of(&b).brevity, exp(1 - 18.0 / 17), 1e-12);
    b = bleu_of_corpus(&no_four);
    /* 7 of 10, 3 of 8, 1 of 6, and 0 of 4 counts as 1/2. */
    bleu_result r = bleu_of(&b);
    CU_ASSERT_DOUBLE_EQUAL(r.precisions[0], 70, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(r.precisions[1], 37.5, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(r.precisions[2], 100.0 / 6, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(r.precisions[3], 12.5, 1e-12);
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
    bleu b = bleu_of_corpus(&same);
    CU_ASSERT_DOUBLE_EQUAL(bleu_of(&b).score, 100, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(chrf_of_corpus(&same, 0), 100, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(chrf_of_corpus(&same, 2), 100, 1e-9);
    const corpus *const zeros[] = {&empty, &blank, &other};
    for (size_t i = 0; i < 3; i++) {
        b = bleu_of_corpus(zeros[i]);
        CU_ASSERT_EQUAL(bleu_of(&b).score, 0);
        CU_ASSERT_EQUAL(chrf_of_corpus(zeros[i], 0), 0);
        CU_ASSERT_EQUAL(chrf_of_corpus(zeros[i], 2), 0);
    }
    b = bleu_of_corpus(&brief); /* there are no four tokens in a row to count */
    CU_ASSERT_EQUAL(bleu_of(&b).score, 0);
    CU_ASSERT_DOUBLE_EQUAL(chrf_of_corpus(&brief, 0), 100, 1e-9);
    b = (bleu){.length = 0};
    CU_ASSERT_EQUAL(bleu_of(&b).score, 0);
}

void score_tests(void)
{
    CU_pSuite suite = CU_add_suite("score", NULL, NULL);
    CU_add_test(suite, "tokens of 13a", test_tokens);
    CU_add_test(suite, "lower case", test_lowercase);
    CU_add_test(suite, "numbers of other programs", test_references);
    CU_add_test(suite, "counts by hand", test_parts);
    CU_add_test(suite, "edges", test_edges);
}
