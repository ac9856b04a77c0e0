/* Tokenisers: weft's own of bytes, a kind of the program's, and what is refused; texts that are
 * cleaned. */
#include "tests.h"

#include <weft/text.h>

#include <stdlib.h>
#include <string.h>

static void test_bytes(void)
{
    weft_tokenizer *t = weft_tokenizer_new_bytes(NULL);
    const char text[] = "c\xc3\xb1 \xff";
    int32_t ids[8] = {0}, id;
    weft_text_span spans[8];
    size_t n, characters;
    char *back;
    const weft_tokenizer_info info = weft_tokenizer_info_of(t);
    CU_ASSERT(info.size == 260 && info.pad == 0 && info.unk == 1 && info.bos == 2 && info.eos == 3);
    CU_ASSERT_STRING_EQUAL(info.type, "byte");
    CU_ASSERT_EQUAL(weft_tokenizer_encode(t, text, NULL, NULL, 0, &n, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(n, 5);
    CU_ASSERT_EQUAL(weft_tokenizer_encode(t, text, ids, spans, 3, &n, NULL), WEFT_OK);
    CU_ASSERT(n == 5 && ids[0] == 'c' + 4 && ids[2] == 0xb1 + 4 && ids[3] == 0);
    CU_ASSERT(spans[2].begin == 2 && spans[2].end == 3);
    CU_ASSERT_EQUAL(weft_tokenizer_encode(t, text, ids, NULL, 8, &n, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_tokenizer_decode(t, ids, n, &back, NULL, NULL), WEFT_OK);
    CU_ASSERT_STRING_EQUAL(back, text);
    free(back);
    CU_ASSERT_EQUAL(weft_tokenizer_characters(t, "c\xc3\xb1 x", &characters, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(characters, 4);
    CU_ASSERT_EQUAL(weft_tokenizer_find(t, "<0x0A>", &id, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(id, 14);
    CU_ASSERT_EQUAL(weft_tokenizer_find(t, "a", &id, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(id, -1);
    CU_ASSERT_STRING_EQUAL(weft_tokenizer_piece(t, 259), "<0xFF>");
    CU_ASSERT_STRING_EQUAL(weft_tokenizer_piece(t, 3), "</s>");
    CU_ASSERT_STRING_EQUAL(weft_tokenizer_piece(t, 260), "");
    CU_ASSERT_EQUAL(weft_tokenizer_role(t, 4), WEFT_PIECE_BYTE);
    CU_ASSERT_EQUAL(weft_tokenizer_role(t, 3), WEFT_PIECE_SPECIAL);
    CU_ASSERT_EQUAL(weft_tokenizer_role(t, -1), WEFT_PIECE_SPECIAL);
    weft_tokenizer_free(t);
}

/* Special ids, ids outside the vocabulary and zero bytes when decoding, with spans. */
static void test_ids_without_text(void)
{
    weft_tokenizer *t = weft_tokenizer_new_bytes(NULL);
    const int32_t ids[] = {2, 'a' + 4, 1, -7, 4, 'b' + 4, 300, 3};
    const size_t expected[8][2] = {{0, 0}, {0, 1}, {1, 1}, {1, 1}, {1, 2}, {2, 3}, {3, 3}, {3, 3}};
    weft_text_span spans[8];
    char *text;
    CU_ASSERT_EQUAL(weft_tokenizer_decode(t, ids, 8, &text, spans, NULL), WEFT_OK);
    CU_ASSERT_STRING_EQUAL(text, "a b");
    for (int i = 0; i < 8; i++)
        CU_ASSERT(spans[i].begin == expected[i][0] && spans[i].end == expected[i][1]);
    free(text);
    CU_ASSERT_EQUAL(weft_tokenizer_decode(t, NULL, 0, &text, NULL, NULL), WEFT_OK);
    CU_ASSERT_STRING_EQUAL(text, "");
    free(text);
    weft_tokenizer_free(t);
}

/* A kind of the program's: the words "yes" and "no". */
static weft_status encode_word(void *state, const char *text, int32_t *ids, weft_text_span *spans,
                               size_t capacity, size_t *n, weft_error *error)
{
    (void)state, (void)spans;
    if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
        return weft_error_set(error, WEFT_NOT_FOUND, "words", "no such word");
    if (ids && capacity) ids[0] = text[0] == 'y';
    *n = 1;
    return WEFT_OK;
}

static weft_status decode_word(void *state, const int32_t *ids, size_t n, char **text,
                               weft_text_span *spans, weft_error *error)
{
    (void)state, (void)spans, (void)error;
    *text = strdup(n && ids[0] ? "yes" : "no");
    return WEFT_OK;
}

static weft_status find_word(void *state, const char *piece, int32_t *id, weft_error *error)
{
    (void)state, (void)error;
    *id = !strcmp(piece, "yes") ? 1 : !strcmp(piece, "no") ? 0 : -1;
    return WEFT_OK;
}

static const char *word(void *state, int32_t id)
{
    (void)state;
    return id ? "yes" : "no";
}

static weft_piece_role word_role(void *state, int32_t id)
{
    (void)state, (void)id;
    return WEFT_PIECE_TEXT;
}

static void count_freed(void *state)
{
    ++*(int *)state;
}

static void test_a_kind(void)
{
    const weft_tokenizer_kind kind = {.name = "words",
                                      .encode = encode_word,
                                      .decode = decode_word,
                                      .find = find_word,
                                      .piece = word,
                                      .role = word_role,
                                      .free = count_freed};
    weft_tokenizer_info info = {"word", "identity", 2, -1, -1, -1, 2};
    weft_error error = {.status = WEFT_OK};
    int freed = 0;
    int32_t id = 7;
    size_t n;
    CU_ASSERT_PTR_NULL(weft_tokenizer_new(&kind, &freed, &info, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.message, "special id 2 is not in [-1, 2)");
    info.eos = -1;
    weft_tokenizer *t = weft_tokenizer_new(&kind, &freed, &info, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT_EQUAL(weft_tokenizer_encode(t, "yes", &id, NULL, 1, &n, &error), WEFT_OK);
    CU_ASSERT(n == 1 && id == 1);
    CU_ASSERT_EQUAL(weft_tokenizer_encode(t, "perhaps", &id, NULL, 1, &n, &error), WEFT_NOT_FOUND);
    CU_ASSERT(n == 0 && !strcmp(error.message, "no such word"));
    CU_ASSERT_EQUAL(weft_tokenizer_encode(t, NULL, &id, NULL, 1, &n, &error), WEFT_BAD_ARGUMENT);
    weft_tokenizer_free(t);
    CU_ASSERT_EQUAL(freed, 1);
    weft_tokenizer_kind without = kind;
    without.decode = NULL;
    CU_ASSERT_PTR_NULL(weft_tokenizer_new(&without, &freed, &info, &error));
    CU_ASSERT_EQUAL(freed, 1);
}

static void test_clean(void)
{
    static const char *const cases[][3] = {
        /* text, as one line, as several */
        {"", "", ""},
        {"a\nb\rc\vd\fe", "a b c d e", "a\nb c d e"},
        {"a\tb", "a\tb", "a\tb"},
        {"\x1b[1m\x7f", " [1m ", " [1m "},
        {"caf\xc3\xa9\xc2\x85\xc2\xa0", "caf\xc3\xa9 \xc2\xa0", "caf\xc3\xa9 \xc2\xa0"},
        {"a\xe2\x80\xa8"
         "b\xe2\x80\xa9"
         "c\xe2\x80\xaa",
         "a b c\xe2\x80\xaa", "a b c\xe2\x80\xaa"},
        {"cut \xe2\x80", "cut \xe2\x80", "cut \xe2\x80"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int lines = 0; lines < 2; lines++) {
            char text[64];
            snprintf(text, sizeof text, "%s", cases[i][0]);
            weft_text_clean(text, lines);
            CU_ASSERT_STRING_EQUAL(text, cases[i][1 + lines]);
        }
}

static void test_utf8(void)
{
    static const char *const good[] = {
        "", "a", "\xc3\xb1", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"};
    /* Cut, overlong, a surrogate, above U+10FFFF, a byte that begins nothing. */
    static const char *const bad[] = {"\xc3",         "a\xe2\x82",    "\xc0\x80",
                                      "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\x80"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CU_ASSERT_TRUE(weft_text_is_utf8(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CU_ASSERT_FALSE(weft_text_is_utf8(bad[i], strlen(bad[i])));
    CU_ASSERT_FALSE(weft_text_is_utf8("a\0b", 3));
    CU_ASSERT_TRUE(weft_text_is_utf8("\xc3\xb1\xff", 2));
}

void tokenizer_tests(void)
{
    CU_pSuite suite = CU_add_suite("tokenizer", NULL, NULL);
    CU_add_test(suite, "bytes", test_bytes);
    CU_add_test(suite, "ids without text", test_ids_without_text);
    CU_add_test(suite, "a kind of the program's", test_a_kind);
    CU_add_test(suite, "clean texts", test_clean);
    CU_add_test(suite, "UTF-8", test_utf8);
}
