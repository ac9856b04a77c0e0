/* Vocabularies of GGUF files as tokenizer.json: the ids of the tokenisers that the files were made of. */
#include "gguf_maker.h"
#include "golden.h"

#include <weft/gguf.h>
#ifdef WEFT_HAVE_TOKENIZERS
#include <weft/tokenizers.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tokenizer.json and the configuration of a golden file; NULL on failure. */
static char *vocabulary_of(const char *path, char **config)
{
    weft_error error;
    weft_gguf *file = weft_gguf_open(path, &error);
    char *json = weft_gguf_tokenizer_json(file, &error);
    *config = weft_gguf_tokenizer_config(file, NULL);
    if (!json) printf("\n    %s: %s\n", error.where, error.message);
    weft_gguf_close(file);
    return json;
}

static void test_vocabulary_config(void)
{
    char *config, *json = vocabulary_of(GOLDEN("gguf/vocab_gpt2.gguf"), &config);
    CU_ASSERT_TRUE_FATAL(json && config);
    CU_ASSERT_STRING_EQUAL(config, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\""
                                   ",\n  \"bos_token\": \"<|endoftext|>\""
                                   ",\n  \"eos_token\": \"<|endoftext|>\""
                                   ",\n  \"chat_template\": \"{{ \\\"a\\\\n\\\" }}\\n\""
                                   ",\n  \"clean_up_tokenization_spaces\": false\n}\n");
    free(json);
    free(config);
}

static void test_refused_vocabularies(void)
{
    static const struct {
        const char *model, *pre;
        weft_status status;
        const char *message;
    } cases[] = {
        {NULL, NULL, WEFT_NOT_FOUND, "has no tokenizer.ggml.model"},
        {"bert", NULL, WEFT_BAD_ARGUMENT, "its model is not supported; expected gpt2 or llama"},
        {"gpt2", NULL, WEFT_BAD_ARGUMENT, "tokenizer.ggml.pre \"missing\" is not supported"},
        {"gpt2", "other", WEFT_BAD_ARGUMENT, "tokenizer.ggml.pre \"other\" is not supported"},
        {"gpt2", "gpt-2", WEFT_NOT_FOUND, "has no tokenizer.ggml.tokens"},
    };
    static gguf_maker m;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_error error;
        m = (gguf_maker){.n = 0};
        gguf_put(&m, "GGUF", 4);
        gguf_put_number(&m, 3, 4);
        gguf_put_number(&m, 0, 8);
        gguf_put_number(&m, (cases[i].model != NULL) + (cases[i].pre != NULL), 8);
        if (cases[i].model) gguf_put_string(&m, "tokenizer.ggml.model", cases[i].model);
        if (cases[i].pre) gguf_put_string(&m, "tokenizer.ggml.pre", cases[i].pre);
        weft_gguf *file = gguf_open_made(&m, &error);
        CU_ASSERT_PTR_NOT_NULL(file);
        CU_ASSERT_PTR_NULL(weft_gguf_tokenizer_json(file, &error));
        CU_ASSERT_EQUAL(error.status, cases[i].status);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, cases[i].message));
        weft_gguf_close(file);
    }
}

#ifdef WEFT_HAVE_TOKENIZERS
enum { MAX_IDS = 1024, MAX_LINE = 4096 };

static weft_tokenizer *tokenizer_of(const char *path)
{
    weft_error error = WEFT_NO_ERROR;
    char *config, *json = vocabulary_of(path, &config);
    weft_tokenizer *t =
        json ? weft_tokenizer_load_json_from_memory(json, strlen(json), &error) : NULL;
    if (!t) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    free(json);
    free(config);
    return t;
}

/* The ids of a line, with those of special pieces in it. */
static size_t encode(const weft_tokenizer *t, const char *line, int32_t ids[MAX_IDS])
{
    const weft_encode_input input = {line, NULL, false, true};
    weft_encoding e;
    CU_ASSERT_EQUAL_FATAL(weft_tokenizer_encode_input(t, &input, &e, NULL), WEFT_OK);
    const size_t n = e.n;
    CU_ASSERT_TRUE_FATAL(n <= MAX_IDS);
    if (n) memcpy(ids, e.ids, n * sizeof *ids);
    weft_encoding_free(&e);
    return n;
}

static bool read_line(FILE *file, char line[MAX_LINE])
{
    if (!fgets(line, MAX_LINE, file)) return false;
    line[strcspn(line, "\n")] = 0;
    return true;
}

/* The ids are those of the tokenizer.json of which the file was made. */
static void test_gpt2_vocabulary(void)
{
    static char line[MAX_LINE];
    int32_t got[MAX_IDS], want[MAX_IDS];
    weft_tokenizer *t = tokenizer_of(GOLDEN("gguf/vocab_gpt2.gguf"));
    weft_tokenizer *wanted = weft_tokenizer_load_json(GOLDEN("tokenizers/gpt2.json"), NULL);
    FILE *file = fopen(GOLDEN("tokenizers/texts.txt"), "rb");
    int lines = 0;
    CU_ASSERT_TRUE_FATAL(wanted && file);
    while (read_line(file, line)) {
        if (++lines % 10 == 0) strcpy(line, "a<|endoftext|> b");
        const size_t n = encode(t, line, got);
        CU_ASSERT_EQUAL_FATAL(encode(wanted, line, want), n);
        CU_ASSERT_TRUE(!n || !memcmp(got, want, n * sizeof *got));
    }
    CU_ASSERT_TRUE(lines > 10);
    fclose(file);
    weft_tokenizer_free(t);
    weft_tokenizer_free(wanted);
}

/* The ids are those of SentencePiece. */
static void test_llama_vocabulary(void)
{
    static char line[MAX_LINE], numbers[MAX_LINE];
    int32_t ids[MAX_IDS];
    weft_tokenizer *t = tokenizer_of(GOLDEN("gguf/vocab_llama.gguf"));
    FILE *file = fopen(GOLDEN("gguf/vocab_llama.txt"), "rb");
    int lines = 0, differ = 0;
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    for (; read_line(file, line) && read_line(file, numbers); lines++) {
        const size_t n = encode(t, line, ids);
        char *at = numbers;
        for (size_t i = 0; i < n; i++) differ += strtol(at, &at, 10) != ids[i];
        differ += *at != 0;
    }
    CU_ASSERT_EQUAL(differ, 0);
    CU_ASSERT_EQUAL(lines, 123);
    const weft_encode_input input = {"a", NULL, true, true};
    weft_encoding e;
    CU_ASSERT_EQUAL(weft_tokenizer_encode_input(t, &input, &e, NULL), WEFT_OK);
    CU_ASSERT_TRUE(e.n == 2 && e.ids[0] == 1); /* <s>, which is added if the file does not say */
    weft_encoding_free(&e);
    fclose(file);
    weft_tokenizer_free(t);
}
#endif

void gguf_vocabulary_tests(void)
{
    CU_pSuite suite = CU_add_suite("gguf_vocabulary", NULL, NULL);
    CU_add_test(suite, "names of special pieces", test_vocabulary_config);
    CU_add_test(suite, "vocabularies that are refused", test_refused_vocabularies);
#ifdef WEFT_HAVE_TOKENIZERS
    CU_add_test(suite, "a byte-level vocabulary", test_gpt2_vocabulary);
    CU_add_test(suite, "a vocabulary of SentencePiece", test_llama_vocabulary);
#endif
}
