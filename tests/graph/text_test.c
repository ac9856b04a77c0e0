/* Numbers, printable names and patterns (base/text.h); guesses at names (base/guess.h); tables of
 * names (base/name_table.h). */
#include "tests.h"

#include <base/guess.h>
#include <base/name_table.h>
#include <base/text.h>

#include <float.h>
#include <math.h>
#include <string.h>

static void test_numbers(void)
{
    char text[TEXT_NUMBER_BYTES];
    double x = -1;
    CU_ASSERT_STRING_EQUAL(weft__text_from_double(0.1, text), "0.1");
    CU_ASSERT_STRING_EQUAL(weft__text_from_double(-3, text), "-3");
    CU_ASSERT_STRING_EQUAL(weft__text_from_double(1e-9, text), "1e-09");
    CU_ASSERT_STRING_EQUAL(weft__text_from_double(-INFINITY, text), "-inf");
    const double hard[] = {0.1 + 0.2, 1.0 / 3, DBL_MAX, DBL_MIN, 4.9e-324, -0.0};
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++) {
        CU_ASSERT_TRUE(weft__text_to_double(weft__text_from_double(hard[i], text), &x));
        CU_ASSERT_EQUAL(memcmp(&x, &hard[i], sizeof x), 0);
    }
    CU_ASSERT_TRUE(weft__text_to_double("0x1.8p1", &x) && x == 3);
    const char *const none[] = {"", " 1", "1 ", "1,5", "one", "0.1x", "."};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        CU_ASSERT_FALSE(weft__text_to_double(none[i], &x));
    const char *list = "1.5,2";
    CU_ASSERT_PTR_EQUAL(weft__text_read_double(list, &x), list + 3);
    CU_ASSERT_EQUAL(x, 1.5);
}

static void expect_printable(const char *text, const char *expected)
{
    char buffer[128];
    CU_ASSERT_STRING_EQUAL(weft__text_printable(buffer, sizeof buffer, text), expected);
}

/* Three digits and a decimal unit; what rounds to 1000 has the next unit. */
static void test_sizes(void)
{
    static const struct {
        double bytes;
        const char *text;
    } cases[] = {{0, "0 B"},           {999, "999 B"},     {999.5, "1.00 kB"},
                 {1024, "1.02 kB"},    {14000, "14.0 kB"}, {120896640, "121 MB"},
                 {99950000, "100 MB"}, {999499, "999 kB"}, {999500, "1.00 MB"},
                 {2.5e9, "2.50 GB"},   {1e12, "1.00 TB"},  {1.5e15, "1500 TB"}};
    char text[TEXT_SIZE_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CU_ASSERT_STRING_EQUAL(weft__text_from_bytes(cases[i].bytes, text), cases[i].text);
}

static void test_printable(void)
{
    char small[8];
    expect_printable("enc.0 größe 日本 😀", "enc.0 größe 日本 😀");
    expect_printable("two\nlines\r\t\x1b[31m\x7f", "two\\nlines\\r\\t\\x1b[31m\\x7f");
    expect_printable("\xff\xc3(\xc0\xaf\xed\xa0\x80", "\\xff\\xc3(\\xc0\\xaf\\xed\\xa0\\x80");
    expect_printable("\xc2\x9b"
                     "1m\xe2\x80\xae",
                     "\\xc2\\x9b1m\\xe2\\x80\\xae");
    expect_printable("cut \xe6\x97", "cut \\xe6\\x97");
    CU_ASSERT_STRING_EQUAL(weft__text_printable(small, sizeof small, "1234567890"), "1234567");
    CU_ASSERT_STRING_EQUAL(weft__text_printable(small, sizeof small, "12345日"), "12345");
    CU_ASSERT_STRING_EQUAL(weft__text_printable(small, sizeof small, "12345\n678"), "12345\\n");
}

static bool match(const char *pattern, const char *text)
{
    return weft__text_match(pattern, strlen(pattern), text);
}

static void test_patterns(void)
{
    CU_ASSERT_TRUE(match("*.bias", "enc.0.bias"));
    CU_ASSERT_FALSE(match("*.bias", "enc.0.bias2"));
    CU_ASSERT_TRUE(match("*norm*", "enc.norm.gamma"));
    CU_ASSERT_TRUE(match("a?c*", "abc"));
    CU_ASSERT_TRUE(match("**", ""));
    CU_ASSERT_TRUE(match("*ab*ab", "ababab"));
    CU_ASSERT_FALSE(match("?", ""));
    CU_ASSERT_FALSE(match("", "a"));
    CU_ASSERT_FALSE(weft__text_match("abc", 2, "abc"));
    /* Thirty stars took for ever when each tried every rest of the text. */
    char pattern[64], text[5000];
    for (int i = 0; i < 30; i++) memcpy(pattern + 2 * i, "*a", 3);
    memset(text, 'a', sizeof text - 2);
    memcpy(text + sizeof text - 2, "b", 2);
    CU_ASSERT_FALSE(match(pattern, text));
}

/* A status, a name and a message, of which no byte reaches a terminal as it is if it should not;
 * what is cut is cut between characters. */
static void test_messages(void)
{
    weft_error error = {0};
    weft_error_set(&error, WEFT_IO, "a\nb\x1b[31m", "%s and %s", "x\r", "\xffy");
    CU_ASSERT_STRING_EQUAL(error.where, "a\\nb\\x1b[31m");
    CU_ASSERT_STRING_EQUAL(error.message, "x\\r and \\xffy");
    weft_graph *g = weft_graph_new();
    weft_graph_fail(g, WEFT_BAD_ARGUMENT, "no \"%s\"", "\x1b]0;title\x07");
    CU_ASSERT_STRING_EQUAL(weft_graph_error(g)->message, "no \"\\x1b]0;title\\x07\"");
    weft_graph_free(g);

    static const char *const characters[] = {"ö", "日", "😀", "\n"};
    char text[2000], shown[sizeof error.message + 8];
    for (size_t c = 0; c < 4; c++)
        for (size_t before = 0; before < 4; before++) {
            memset(text, 'x', before);
            text[before] = 0;
            while (strlen(text) < 1000) strcat(text, characters[c]);
            memset(&error, 0, sizeof error);
            weft_error_set(&error, WEFT_IO, text, "%s", text);
            CU_ASSERT_TRUE(strlen(error.where) >= sizeof error.where - 4);
            CU_ASSERT_TRUE(strlen(error.message) >= sizeof error.message - 4);
            CU_ASSERT_STRING_EQUAL(weft__text_printable(shown, sizeof shown, error.where),
                                   error.where);
            CU_ASSERT_STRING_EQUAL(weft__text_printable(shown, sizeof shown, error.message),
                                   error.message);
            if (c < 3) CU_ASSERT_PTR_NULL(strchr(error.message, '\\'));
            weft__text_format(shown, 100, "%s", text);
            CU_ASSERT_TRUE(strlen(shown) >= 96 && !strncmp(shown, text, strlen(shown)));
            if (c < 3) CU_ASSERT_TRUE((text[strlen(shown)] & 0xC0) != 0x80);
        }
}

static void expect_guess(const char *text, const char *expected)
{
    static const char *const names[] = {"train", "translate", "transformer", "run", "beam"};
    char meant[GUESS_BYTES];
    guess g = weft__guess_of(text, strlen(text));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) weft__guess_try(&g, names[i]);
    CU_ASSERT_STRING_EQUAL(weft__guess_text(&g, meant), expected);
}

static void test_guesses(void)
{
    char longest[200] = "";
    expect_guess("trian", "; did you mean \"train\"?");
    expect_guess("trai", "; did you mean \"train\"?");
    expect_guess("ru", "; did you mean \"run\"?");
    expect_guess("rnu", "; did you mean \"run\"?");
    expect_guess("transformr", "; did you mean \"transformer\"?");
    expect_guess("trasnlaet", "; did you mean \"translate\"?");
    expect_guess("tensor", ""); /* four letters differ */
    expect_guess("", "");
    expect_guess("r", "");
    expect_guess("\xff\xfe\xfd", "");
    memset(longest, 'a', sizeof longest - 1);
    expect_guess(longest, "");
    guess g = weft__guess_of(&"--beem=3"[2], 4); /* only 4 bytes */
    weft__guess_try(&g, "beam");
    CU_ASSERT_STRING_EQUAL(g.name, "beam");
    g = weft__guess_of("layers", 6);
    weft__guess_try(&g, "layer");
    weft__guess_try(&g, "lawyer"); /* two letters differ */
    CU_ASSERT_STRING_EQUAL(g.name, "layer");
}

/* A table has what was put into it first, through growth and clearing, on the heap and in an arena.
 */
static void test_name_table(void)
{
    static char texts[3000][16];
    arena memory = {.blocks = NULL};
    name_table tables[] = {{.memory = NULL}, {.memory = &memory}};
    for (size_t i = 0; i < 3000; i++) snprintf(texts[i], sizeof texts[i], "%zu", i * i);
    for (size_t k = 0; k < 2; k++) {
        name_table *t = &tables[k];
        CU_ASSERT_PTR_NULL(weft__name_table_find(t, "0"));
        for (size_t i = 0; i < 3000; i++) CU_ASSERT_EQUAL(*weft__name_table_put(t, texts[i], i), i);
        CU_ASSERT_EQUAL(*weft__name_table_put(t, "4", 77), 2);
        CU_ASSERT_EQUAL(*weft__name_table_put(t, "", 78), 78);
        CU_ASSERT_EQUAL(t->count, 3001);
        for (size_t i = 0; i < 3000; i++) CU_ASSERT_EQUAL(*weft__name_table_find(t, texts[i]), i);
        CU_ASSERT_PTR_NULL(weft__name_table_find(t, "2"));
        CU_ASSERT_FALSE(weft__name_table_reserve(t, SIZE_MAX / 2));
        weft__name_table_clear(t);
        CU_ASSERT_PTR_NULL(weft__name_table_find(t, "4"));
        CU_ASSERT_EQUAL(*weft__name_table_put(t, "4", 5), 5);
        weft__name_table_free(t);
    }
    weft__arena_free(&memory);
}

void text_tests(void)
{
    CU_pSuite suite = CU_add_suite("text", NULL, NULL);
    CU_add_test(suite, "numbers", test_numbers);
    CU_add_test(suite, "sizes", test_sizes);
    CU_add_test(suite, "printable names", test_printable);
    CU_add_test(suite, "patterns", test_patterns);
    CU_add_test(suite, "messages", test_messages);
    CU_add_test(suite, "guesses", test_guesses);
    CU_add_test(suite, "table of names", test_name_table);
}
