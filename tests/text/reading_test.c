/* Files of texts: lines and documents, pairs, lines that are left out, and failures. */
#include "tests.h"

#include <weft/text.h>

#include <stdlib.h>
#include <string.h>

/* What was read: "source=target|" for each pair, "target|" for each unit. */
typedef struct taken {
    char text[256];
    size_t left; /* units that may still be taken */
} taken;

static void append(taken *t, const int32_t *ids, size_t n)
{
    size_t used = strlen(t->text);
    for (size_t i = 0; i < n; i++) t->text[used++] = (char)(ids[i] - 4);
    t->text[used] = 0;
}

static weft_status take(void *context, const int32_t *source, size_t n_source,
                        const int32_t *target, size_t n_target)
{
    taken *t = context;
    if (!t->left--) return WEFT_TOO_LARGE;
    append(t, source, n_source);
    if (source) strcat(t->text, "=");
    append(t, target, n_target);
    strcat(t->text, "|");
    return WEFT_OK;
}

static FILE *file_of(const char *text, size_t bytes)
{
    FILE *file = tmpfile();
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(fwrite(text, 1, bytes, file), bytes);
    rewind(file);
    return file;
}

typedef struct expected {
    const char *source, *target; /* the files; source may be NULL */
    weft_text_unit unit;
    const char *taken;
    weft_status status;
    const char *message; /* "": none */
    size_t units, invalid, characters;
} expected;

static void check(const expected *e)
{
    weft_tokenizer *bytes = weft_tokenizer_new_bytes(NULL);
    taken t = {.left = SIZE_MAX};
    weft_text_counts counts;
    weft_error error = {.status = WEFT_OK};
    weft_text_files files = {{.tokenizer = bytes},
                             {.path = "target", .tokenizer = bytes},
                             .unit = e->unit,
                             .max_tokens = 4};
    if (e->source) {
        files.source.path = "source";
        files.source.file = file_of(e->source, strlen(e->source));
    }
    files.target.file = file_of(e->target, strlen(e->target));
    CU_ASSERT_EQUAL(weft_text_read(&files, take, &t, &counts, &error), e->status);
    CU_ASSERT_STRING_EQUAL(t.text, e->taken);
    CU_ASSERT_STRING_EQUAL(error.message, e->message);
    CU_ASSERT_EQUAL(counts.units, e->units);
    CU_ASSERT_EQUAL(counts.invalid.n, e->invalid);
    CU_ASSERT_EQUAL(counts.characters, e->characters);
    if (e->source) fclose(files.source.file);
    fclose(files.target.file);
    weft_tokenizer_free(bytes);
}

static void test_units(void)
{
    const expected cases[] = {
        {NULL, "\xef\xbb\xbfone\r\n\ntwo", WEFT_TEXT_LINE, "one||two|", WEFT_OK, "", 3, 0, 8},
        {NULL, "ab\ncd\n\n\ne\n", WEFT_TEXT_DOCUMENT, "ab\ncd|e|", WEFT_OK, "", 2, 0, 2},
        {NULL, "a\n\xff\nb\n", WEFT_TEXT_LINE, "a|b|", WEFT_OK, "", 3, 1, 4},
        {"x\ny\n", "a\nb\n", WEFT_TEXT_LINE, "x=a|y=b|", WEFT_OK, "", 2, 0, 4},
        {"\xff\ny\n", "a\nb\n", WEFT_TEXT_LINE, "y=b|", WEFT_OK, "", 2, 1, 2},
        {NULL, "", WEFT_TEXT_LINE, "", WEFT_BAD_FILE, "has no line", 0, 0, 0},
        {"x\n", "a\nb\n", WEFT_TEXT_LINE, "x=a|", WEFT_BAD_FILE,
         "ends after 1 lines, but target continues", 1, 0, 2},
        {"x\ny\n", "a\n", WEFT_TEXT_LINE, "x=a|", WEFT_BAD_FILE,
         "ends after 1 lines, but source continues", 1, 0, 2},
        {NULL, "\xff\n\xfe\nb\n", WEFT_TEXT_LINE, "b|", WEFT_BAD_FILE,
         "is not a text in UTF-8: 2 of 3 lines are not", 3, 2, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&cases[i]);
}

static void test_numbers_of_lines(void)
{
    weft_tokenizer *bytes = weft_tokenizer_new_bytes(NULL);
    taken t = {.left = SIZE_MAX};
    weft_text_counts counts;
    weft_text_files files = {.target = {.path = "text", .tokenizer = bytes}};
    files.target.file = file_of("a\nb\0c\nd\n\xff\ne\nf\n", 14);
    CU_ASSERT_EQUAL(weft_text_read(&files, take, &t, &counts, NULL), WEFT_OK);
    CU_ASSERT_STRING_EQUAL(t.text, "a|d|e|f|");
    CU_ASSERT(counts.invalid.n == 2 && counts.invalid.first[0] == 2 &&
              counts.invalid.first[1] == 4);
    fclose(files.target.file);
    weft_tokenizer_free(bytes);
}

static void test_failures(void)
{
    weft_tokenizer *bytes = weft_tokenizer_new_bytes(NULL);
    taken t = {.left = 1};
    weft_error error = {.status = WEFT_OK};
    weft_text_files files = {.target = {.path = "/nowhere/text", .tokenizer = bytes}};
    CU_ASSERT_EQUAL(weft_text_read(&files, take, &t, NULL, &error), WEFT_NOT_FOUND);
    CU_ASSERT_STRING_EQUAL(error.message, "cannot be opened: No such file or directory");
    files.target.file = file_of("a\nb\n", 4);
    CU_ASSERT_EQUAL(weft_text_read(&files, take, &t, NULL, &error), WEFT_TOO_LARGE);
    CU_ASSERT_STRING_EQUAL(error.where, "/nowhere/text");
    CU_ASSERT_STRING_EQUAL(t.text, "a|");
    files.source = (weft_text_input){.path = "source"};
    CU_ASSERT_EQUAL(weft_text_read(&files, take, &t, NULL, &error), WEFT_BAD_ARGUMENT);
    fclose(files.target.file);
    weft_tokenizer_free(bytes);
}

static weft_status read_pair(weft_error *error)
{
    taken t = {.left = SIZE_MAX};
    weft_tokenizer *bytes = weft_tokenizer_new_bytes(error);
    if (!bytes) return error->status;
    weft_text_files files = {{.path = "source", .tokenizer = bytes},
                             {.path = "target", .tokenizer = bytes},
                             .unit = WEFT_TEXT_DOCUMENT,
                             .max_tokens = 9};
    files.source.file = fmemopen((char[]){"a\nb\n\nc\n"}, 7, "r");
    files.target.file = fmemopen((char[]){"d\n\ne\nf\n"}, 7, "r");
    const weft_status status = weft_text_read(&files, take, &t, NULL, error);
    fclose(files.source.file);
    fclose(files.target.file);
    weft_tokenizer_free(bytes);
    return status;
}

static void test_no_memory(void)
{
    test_every_allocation_fails(read_pair, 6);
}

void reading_tests(void)
{
    CU_pSuite suite = CU_add_suite("reading", NULL, NULL);
    CU_add_test(suite, "lines, documents and pairs", test_units);
    CU_add_test(suite, "numbers of lines", test_numbers_of_lines);
    CU_add_test(suite, "failures", test_failures);
    CU_add_test(suite, "no memory", test_no_memory);
}
