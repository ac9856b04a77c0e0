/* Tokenisers of Hugging Face: what the package `tokenizers` does with the same files and texts
 * (tests/golden/make_tokenizers.py), pairs, special pieces, decoding id by id, and
 * threads. */
#include "tests.h"

#include "base/hash.h"

#include <weft/tokenizers.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER WEFT_GOLDEN_DIR "/tokenizers/"

static const char *const names[] = {"gpt2",   "roberta", "llama3",  "llama2",        "clip",
                                    "prefix", "bert",    "unigram", "unigram_bytes", "words"};
#define N_NAMES (sizeof names / sizeof *names)

static weft_tokenizer *load(const char *name)
{
    char path[512];
    weft_error error;
    snprintf(path, sizeof path, FOLDER "%s.json", name);
    weft_tokenizer *t = weft_tokenizer_load_json(path, &error);
    if (!t) printf("%s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

static FILE *open_golden(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, FOLDER "%s.txt", name);
    FILE *file = fopen(path, "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    return file;
}

/* Reads a line of hexadecimal digits as a text; false at the end. */
static bool read_text(FILE *file, char **line, size_t *capacity)
{
    const ssize_t n = getline(line, capacity, file);
    if (n <= 0) return false;
    for (ssize_t i = 0; i < n / 2; i++) {
        unsigned byte = 0;
        sscanf(*line + 2 * i, "%2x", &byte);
        (*line)[i] = (char)byte;
    }
    (*line)[n / 2] = 0;
    return true;
}

/* ---- What was recorded ---- */

static uint64_t hash_encoding(uint64_t hash, const weft_encoding *e)
{
    for (size_t i = 0; i < e->n; i++) {
        hash = hash_number(hash, (uint64_t)e->ids[i]);
        hash = hash_number(hash, e->spans[i].begin);
        hash = hash_number(hash, e->spans[i].end);
        hash = hash_number(hash, (uint64_t)e->types[i]);
    }
    return hash;
}

static weft_encoding encode(const weft_tokenizer *t, const char *text, const char *pair,
                            bool special)
{
    const weft_encode_input input = {text, pair, special, special};
    weft_encoding e;
    CU_ASSERT_EQUAL_FATAL(weft_tokenizer_encode_input(t, &input, &e, NULL), WEFT_OK);
    return e;
}

/* The line of NAME.txt for a text. */
static void write_record(const weft_tokenizer *t, const char *text, char *out, size_t size)
{
    weft_encoding plain = encode(t, text, NULL, false), special = encode(t, text, NULL, true);
    char *decoded;
    size_t at = 0;
    uint64_t hash = hash_encoding(hash_encoding(HASH_START, &plain), &special);
    CU_ASSERT_EQUAL_FATAL(weft_tokenizer_decode(t, plain.ids, plain.n, &decoded, NULL, NULL),
                          WEFT_OK);
    hash = hash_bytes(hash, decoded, strlen(decoded));
    for (size_t i = 0; i < plain.n && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%d", i ? " " : "", plain.ids[i]);
    if (at < size) snprintf(out + at, size - at, " #%016llx\n", (unsigned long long)hash);
    free(decoded);
    weft_encoding_free(&plain);
    weft_encoding_free(&special);
}

static void test_golden(void)
{
    char *text = NULL, *expected = NULL, *record = malloc(1 << 20);
    size_t capacity = 0, expected_capacity = 0;
    for (size_t k = 0; k < N_NAMES; k++) {
        weft_tokenizer *t = load(names[k]);
        FILE *texts = open_golden("texts"), *records = open_golden(names[k]);
        int different = 0, n = 0;
        for (; read_text(texts, &text, &capacity); n++) {
            CU_ASSERT_FATAL(getline(&expected, &expected_capacity, records) > 0);
            write_record(t, text, record, 1 << 20);
            if (strcmp(record, expected) != 0 && different++ == 0)
                printf("%s, text %d, '%s':\n%sinstead of\n%s", names[k], n + 1, text, record,
                       expected);
        }
        CU_ASSERT_EQUAL(different, 0);
        CU_ASSERT_EQUAL(n, 251);
        fclose(texts);
        fclose(records);
        weft_tokenizer_free(t);
    }
    free(text);
    free(expected);
    free(record);
}

/* ---- Decoding id by id ---- */

static void check_stream(const weft_tokenizer *t, const char *text, int *different)
{
    weft_encoding e = encode(t, text, NULL, false);
    weft_text_decoder *d = weft_text_decoder_new(t, NULL);
    weft_text_span *spans = malloc((e.n + 1) * sizeof *spans);
    char *whole;
    const char *part;
    CU_ASSERT_EQUAL_FATAL(weft_tokenizer_decode(t, e.ids, e.n, &whole, spans, NULL), WEFT_OK);
    const size_t length = strlen(whole);
    size_t at = 0;
    bool good = true;
    for (size_t i = 0; i <= e.n && good; i++) {
        const weft_status status = i < e.n ? weft_text_decoder_add(d, e.ids[i], &part, NULL)
                                           : weft_text_decoder_end(d, &part, NULL);
        const size_t n = strlen(part);
        good = status == WEFT_OK && weft_text_is_utf8(part, n) && n <= length - at &&
               !memcmp(whole + at, part, n);
        at += n;
    }
    /* The spans of the ids follow each other, to the end of the text. */
    for (size_t i = 0; i < e.n; i++)
        good &= spans[i].begin <= spans[i].end && (i ? spans[i - 1].end : 0) == spans[i].begin;
    good &= e.n == 0 || spans[e.n - 1].end == length;
    if (!good || at != length) ++*different;
    free(whole);
    free(spans);
    weft_text_decoder_free(d);
    weft_encoding_free(&e);
}

static void test_text_decoder(void)
{
    char *text = NULL;
    size_t capacity = 0;
    for (size_t k = 0; k < N_NAMES; k++) {
        weft_tokenizer *t = load(names[k]);
        FILE *texts = open_golden("texts");
        int different = 0;
        while (read_text(texts, &text, &capacity)) check_stream(t, text, &different);
        CU_ASSERT_EQUAL(different, 0);
        if (different) printf("%s: %d texts differ\n", names[k], different);
        fclose(texts);
        weft_tokenizer_free(t);
    }
    free(text);
}

/* A character of four ids, special ids between texts, and a text that ends within a character. */
static void test_characters_of_several_ids(void)
{
    weft_tokenizer *t = weft_tokenizer_new_bytes(NULL);
    weft_text_decoder *d = weft_text_decoder_new(t, NULL);
    const char *text;
    static const unsigned char bytes[] = {'a', 0xF0, 0x9F, 0x91, 0x8D, 'b', 0xE2, 0x82};
    static const char *const expected[] = {"a", "", "", "", "\xF0\x9F\x91\x8D", "b", "", ""};
    for (size_t i = 0; i < sizeof bytes; i++) {
        CU_ASSERT_EQUAL(weft_text_decoder_add(d, bytes[i] + 4, &text, NULL), WEFT_OK);
        CU_ASSERT_STRING_EQUAL(text, expected[i]);
        CU_ASSERT_EQUAL(weft_text_decoder_add(d, 2, &text, NULL), WEFT_OK);
        CU_ASSERT_STRING_EQUAL(text, "");
    }
    CU_ASSERT_EQUAL(weft_text_decoder_end(d, &text, NULL), WEFT_OK);
    CU_ASSERT_STRING_EQUAL(text, "\xE2\x82");
    CU_ASSERT_EQUAL(weft_text_decoder_end(d, &text, NULL), WEFT_OK);
    CU_ASSERT_STRING_EQUAL(text, "");
    weft_text_decoder_free(d);
    weft_tokenizer_free(t);
}

static weft_tokenizer *load_bytes_with_suffix(void)
{
    weft_error error = {0};
    weft_tokenizer *t = weft_tokenizer_load_json(
        WEFT_SOURCE_DIR "/tests/fuzz/corpus/tokenizer/affixed_bytes.json", &error);
    if (!t) printf("%s\n", error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

/* Bytes that turn out to be no character after their text was returned: what follows is UTF-8. */
static void test_changed_text(void)
{
    weft_tokenizer *t = load_bytes_with_suffix();
    weft_text_decoder *d = weft_text_decoder_new(t, NULL);
    static const int32_t ids[] = {2 + 0xC3, 2 + 0xA9, 2 + 0xFF, 0};
    static const char *const expected[] = {"", "\xC3\xA9", "",
                                           "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\141"};
    const char *text;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        CU_ASSERT_EQUAL(weft_text_decoder_add(d, ids[i], &text, NULL), WEFT_OK);
        CU_ASSERT_STRING_EQUAL(text, expected[i]);
    }
    weft_text_decoder_free(d);
    weft_tokenizer_free(t);
}

/* Decoders after a part of a character, which decode_bytes leaves as it is. */
static void test_cut_characters(void)
{
    enum { X, E2, C3, A9 };
#define MADE(decoders)                                                                             \
    "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"}," decoders      \
    "]},\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"x\":0,\"<0xE2>\":1,\"<0xC3>\":2,\"<0xA9>"   \
    "\":3},"                                                                                       \
    "\"unk_token\":\"x\"}}"
#define METASPACE                                                                                  \
    "{\"type\":\"Metaspace\",\"replacement\":\"\xC3\xA9\",\"prepend_scheme\":\"never\"}"
#define REPLACE                                                                                    \
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(?<!\xC3\xA9)x|.$\"},\"content\":\"y\"}"
#define STRIP "{\"type\":\"Strip\",\"content\":\"\xC3\xA9\",\"start\":1,\"stop\":1}"
#define FUSE  "{\"type\":\"Fuse\"},"
    static const struct {
        const char *json, *bytes;
        int32_t ids[4];
        size_t n;
    } cases[] = {
        {MADE(METASPACE), "\xE2", {E2}, 1},
        {MADE(METASPACE), "x \xE2", {X, C3, A9, E2}, 4},
        {MADE(FUSE REPLACE), "\xE2", {E2}, 1},
        {MADE(FUSE REPLACE), "y\xE2y", {X, E2, X}, 3},
        {MADE(FUSE STRIP), "\xE2", {E2}, 1},
        {MADE(FUSE STRIP), "", {C3, A9}, 2},
        {MADE(FUSE STRIP), "x\xC3\xA9\xA9", {X, C3, A9, A9}, 4},
        {MADE(FUSE "{\"type\":\"ByteLevel\"}"), "x\xE2", {X, E2}, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_error error = {0};
        char *bytes = NULL;
        size_t n;
        weft_tokenizer *t =
            weft_tokenizer_load_json_from_memory(cases[i].json, strlen(cases[i].json), &error);
        if (!t) printf("%s\n", error.message);
        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        CU_ASSERT_EQUAL(weft_tokenizer_decode_bytes(t, cases[i].ids, cases[i].n, &bytes, &n, NULL),
                        WEFT_OK);
        CU_ASSERT_EQUAL(n, strlen(cases[i].bytes));
        CU_ASSERT_STRING_EQUAL(bytes, cases[i].bytes);
        free(bytes);
        weft_tokenizer_free(t);
    }
}

/* Bytes of a suffix have an empty span, also where the word was seen before. */
static void test_bytes_of_a_suffix(void)
{
    weft_tokenizer *t = load_bytes_with_suffix();
    int32_t ids[16];
    weft_text_span spans[16];
    size_t n;
    CU_ASSERT_EQUAL(weft_tokenizer_encode(t, "\xC3\xA9 \xC3\xA9", ids, spans, 16, &n, NULL),
                    WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(n, 12);
    for (size_t i = 0; i < n; i++) {
        const size_t at = i / 6 * 3, k = i % 6;
        CU_ASSERT_EQUAL(ids[i], 2 + (unsigned char)"\xC3\xA9</w>"[k]);
        CU_ASSERT_EQUAL(spans[i].begin, k < 2 ? at : 0);
        CU_ASSERT_EQUAL(spans[i].end, k < 2 ? at + 2 : 0);
    }
    weft_tokenizer_free(t);
}

/* ---- Inputs ---- */

static void check_rows(const weft_encoding *e, size_t n, const int32_t (*rows)[3])
{
    CU_ASSERT_EQUAL_FATAL(e->n, n);
    for (size_t i = 0; i < n; i++) {
        CU_ASSERT_EQUAL(e->ids[i], rows[i][0]);
        CU_ASSERT_EQUAL(e->types[i], rows[i][1]);
        CU_ASSERT_EQUAL(e->sources[i], rows[i][2]);
    }
}

static void test_pairs(void)
{
    weft_tokenizer *t = load("bert");
    int32_t the, and;
    weft_tokenizer_find(t, "the", &the, NULL);
    weft_tokenizer_find(t, "and", &and, NULL);
    weft_encoding e = encode(t, "the", "and the", true);
    const int32_t rows[][3] = {{2, 0, -1},  {the, 0, 0}, {3, 0, -1},
                               {and, 1, 1}, {the, 1, 1}, {3, 1, -1}};
    check_rows(&e, 6, rows);
    CU_ASSERT(e.spans[4].begin == 4 && e.spans[4].end == 7);
    CU_ASSERT(e.spans[0].begin == 0 && e.spans[0].end == 0);
    weft_encoding_free(&e);
    CU_ASSERT(e.n == 0 && !e.ids);
    e = encode(t, "the", "and the", false);
    const int32_t plain[][3] = {{the, 0, 0}, {and, 1, 1}, {the, 1, 1}};
    check_rows(&e, 3, plain);
    weft_encoding_free(&e);
    weft_tokenizer_free(t);
}

/* Special pieces in a text are ids only where the program says so. */
static void test_special_pieces(void)
{
    weft_tokenizer *t = load("gpt2");
    const char text[] = "x<|endoftext|>";
    weft_encoding e = encode(t, text, NULL, true);
    CU_ASSERT(e.n == 2 && e.ids[1] == 0 && e.spans[1].begin == 1 && e.spans[1].end == 14);
    weft_encoding_free(&e);
    e = encode(t, text, NULL, false);
    CU_ASSERT(e.n > 2);
    for (size_t i = 0; i < e.n; i++) CU_ASSERT_NOT_EQUAL(e.ids[i], 0);
    weft_encoding_free(&e);
    CU_ASSERT_EQUAL(weft_tokenizer_role(t, 0), WEFT_PIECE_SPECIAL);
    CU_ASSERT_EQUAL(weft_tokenizer_role(t, 40), WEFT_PIECE_TEXT);
    const weft_tokenizer_info info = weft_tokenizer_info_of(t);
    CU_ASSERT(info.size == 900 && info.eos == 0 && info.bos == -1 && info.unk == -1);
    CU_ASSERT_STRING_EQUAL(info.type, "bpe");
    weft_tokenizer_free(t);
}

/* Inputs of a kind without a function for them. */
static void test_inputs_of_bytes(void)
{
    weft_tokenizer *t = weft_tokenizer_new_bytes(NULL);
    weft_encode_input input = {"a", NULL, true, true};
    weft_encoding e;
    weft_error error;
    CU_ASSERT_EQUAL_FATAL(weft_tokenizer_encode_input(t, &input, &e, NULL), WEFT_OK);
    const int32_t rows[][3] = {{2, 0, -1}, {'a' + 4, 0, 0}, {3, 0, -1}};
    check_rows(&e, 3, rows);
    CU_ASSERT(e.spans[1].begin == 0 && e.spans[1].end == 1);
    weft_encoding_free(&e);
    input.pair = "b";
    CU_ASSERT_EQUAL(weft_tokenizer_encode_input(t, &input, &e, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "pairs"));
    weft_tokenizer_free(t);
}

static void test_characters(void)
{
    weft_tokenizer *t = load("unigram");
    size_t n;
    /* The map makes three dots of an ellipsis. */
    CU_ASSERT_EQUAL(weft_tokenizer_characters(t, "a\xE2\x80\xA6", &n, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(n, 4);
    weft_tokenizer_free(t);
}

/* Texts without a boundary, which take a heap, and more words than are kept. */
static void test_long_texts(void)
{
    static const char *const units[] = {"a", "ab ", "\xC3\xA9", " ", "\xF0\x9F\x91\x8D", "x\n"};
    for (size_t k = 0; k < N_NAMES; k++) {
        weft_tokenizer *t = load(names[k]);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            const size_t length = strlen(units[u]), n = 30000 * length;
            char *text = malloc(n + 1);
            size_t once, again;
            for (size_t i = 0; i < n; i++) text[i] = units[u][i % length];
            text[n] = 0;
            CU_ASSERT_EQUAL(weft_tokenizer_encode(t, text, NULL, NULL, 0, &once, NULL), WEFT_OK);
            CU_ASSERT_EQUAL(weft_tokenizer_encode(t, text, NULL, NULL, 0, &again, NULL), WEFT_OK);
            CU_ASSERT_EQUAL(once, again);
            free(text);
        }
        weft_tokenizer_free(t);
    }
}

static void test_threads(void)
{
    weft_tokenizer *t = load("llama3");
    FILE *texts = open_golden("texts");
    char *text[250] = {NULL};
    size_t n[250], capacity = 0;
    int different = 0;
    for (int i = 0; i < 250; i++, capacity = 0) {
        CU_ASSERT_FATAL(read_text(texts, &text[i], &capacity));
        weft_tokenizer_encode(t, text[i], NULL, NULL, 0, &n[i], NULL);
    }
#pragma omp parallel for num_threads(4) reduction(+ : different) schedule(dynamic)
    for (int i = 0; i < 1000; i++) {
        size_t found;
        different +=
            weft_tokenizer_encode(t, text[i % 250], NULL, NULL, 0, &found, NULL) != WEFT_OK ||
            found != n[i % 250];
    }
    CU_ASSERT_EQUAL(different, 0);
    for (int i = 0; i < 250; i++) free(text[i]);
    fclose(texts);
    weft_tokenizer_free(t);
}

void tokenizers_tests(void)
{
    CU_pSuite suite = CU_add_suite("tokenizers", NULL, NULL);
    CU_add_test(suite, "what was recorded of the package tokenizers", test_golden);
    CU_add_test(suite, "decoding id by id", test_text_decoder);
    CU_add_test(suite, "characters of several ids", test_characters_of_several_ids);
    CU_add_test(suite, "text that later ids change", test_changed_text);
    CU_add_test(suite, "decoders after parts of characters", test_cut_characters);
    CU_add_test(suite, "bytes of a suffix", test_bytes_of_a_suffix);
    CU_add_test(suite, "pairs", test_pairs);
    CU_add_test(suite, "special pieces", test_special_pieces);
    CU_add_test(suite, "inputs of bytes", test_inputs_of_bytes);
    CU_add_test(suite, "characters after normalisation", test_characters);
    CU_add_test(suite, "long texts", test_long_texts);
    CU_add_test(suite, "threads", test_threads);
}
