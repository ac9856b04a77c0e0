/* Vocabularies of GGUF files as tokenizer.json: the ids of the tokenisers that the files were made of. */
#include "gguf_maker.h"
#include "golden.h"

#include <weft/gguf.h>
#include <weft/models.h>
#ifdef WEFT_HAVE_TOKENIZERS
#include <weft/tokenizers.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* ---- Vocabularies that are written ---- */

/* A file of a process of tests. */
static const char *saved_path(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/weft-gguf-vocabulary-%ld.gguf", (long)getpid());
    return path;
}

/* What a vocabulary is written with: the number of the model's ids, and its pad_id. */
typedef struct written {
    const char *tokenizer, *config;
    int ids, pad;
} written;

/* Writes a small model with a vocabulary. */
static weft_status save_texts(const char *path, written w, weft_error *error)
{
    char vocab[32], pad[32];
    const char *words[] = {vocab,        pad,      "d_model=8", "heads=1",
                           "kv_heads=1", "d_ff=8", "layers=1",  "tied=1"};
    weft_model_config c;
    snprintf(vocab, sizeof vocab, "vocab=%d", w.ids);
    snprintf(pad, sizeof pad, "pad_id=%d", w.pad);
    weft_params *params = weft_params_new();
    if (!params) return WEFT_NO_MEMORY;
    weft_status status =
        weft_model_parse(weft_model_find("llama"), words, sizeof words / sizeof *words, &c, error);
    weft_graph *g = status == WEFT_OK ? weft_graph_new() : NULL;
    if (status == WEFT_OK && !g) status = WEFT_NO_MEMORY;
    weft_model_config one = c;
    one.build = (weft_build_options){.shape = {.rows = 1, .target_len = 1}};
    weft_model_build(g, &one);
    if (status == WEFT_OK) status = weft_params_init(params, g, 1, error);
    const weft_save_gguf_options options = {
        .name = "small", .tokenizer_json = w.tokenizer, .tokenizer_config = w.config};
    if (status == WEFT_OK) status = weft_params_save_gguf(params, &c, path, &options, error);
    weft_graph_free(g);
    weft_params_free(params);
    return status;
}

/* The text of a file, which the caller frees. */
static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 17);
    CU_ASSERT_TRUE_FATAL(file && text);
    CU_ASSERT_TRUE(fread(text, 1, (1 << 17) - 1, file) > 0);
    fclose(file);
    return text;
}

/* What weft makes of a vocabulary, and what it makes of the same one that is written and read. */
static void test_saved_texts(void)
{
    static const char *const paths[] = {GOLDEN("gguf/vocab_gpt2.gguf"),
                                        GOLDEN("gguf/vocab_llama.gguf")};
    for (size_t i = 0; i < 2; i++) {
        weft_error error = WEFT_NO_ERROR;
        char *config, *json = vocabulary_of(paths[i], &config), *again, *again_config;
        CU_ASSERT_TRUE_FATAL(json && config);
        weft_gguf *file = weft_gguf_open(paths[i], NULL);
        const weft_gguf_value *tokens = weft_gguf_meta_find(file, "tokenizer.ggml.tokens");
        const weft_gguf_value *end = weft_gguf_meta_find(file, "tokenizer.ggml.eos_token_id");
        const written w = {json, config, (int)tokens->n_items, end ? (int)end->integer : 0};
        weft_gguf_close(file);
        const weft_status status = save_texts(saved_path(), w, &error);
        if (status != WEFT_OK) printf("\n    %s: %s\n", error.where, error.message);
        CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
        again = vocabulary_of(saved_path(), &again_config);
        CU_ASSERT_TRUE_FATAL(again && again_config);
        CU_ASSERT_STRING_EQUAL(again, json);
        CU_ASSERT_STRING_EQUAL(again_config, config);
        free(again);
        free(again_config);
        free(json);
        free(config);
        unlink(saved_path());
    }
}

static void test_refused_texts(void)
{
    static const struct {
        const char *name;
        const char *message;
    } cases[] = {
        {"gpt2", "has the id 899, but the model only 899 ids"},
        {"bert", "its model is WordPiece; weft writes BPE to GGUF files"},
        {"unigram", "its model is Unigram"},
        {"clip", "marks pieces by a prefix or a suffix"},
        {"roberta", "GGUF has no name for its normaliser and pre-tokeniser (ByteLevel)"},
        {"llama3", "GGUF has no name for its normaliser and pre-tokeniser (Sequence)"},
        {"llama2", "its merges do not follow from scores of its pieces"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[256];
        weft_error error = WEFT_NO_ERROR;
        snprintf(path, sizeof path, "%s/%s.json", GOLDEN("tokenizers"), cases[i].name);
        char *json = read_text(path);
        CU_ASSERT_EQUAL(save_texts(saved_path(), (written){json, NULL, i ? 1000 : 899, 0}, &error),
                        WEFT_BAD_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, cases[i].message));
        if (!strstr(error.message, cases[i].message)) printf("\n    %s\n", error.message);
        free(json);
    }
    weft_error error = WEFT_NO_ERROR;
    CU_ASSERT_EQUAL(save_texts(saved_path(), (written){"{", NULL, 9, 0}, &error), WEFT_BAD_FILE);
    CU_ASSERT_EQUAL(save_texts(saved_path(), (written){"[]", NULL, 9, 0}, &error),
                    WEFT_BAD_ARGUMENT);
    CU_ASSERT_NOT_EQUAL(access(saved_path(), F_OK), 0);
}

static const char *failing_text, *failing_config;

static weft_status save_failing(const char *path)
{
    weft_error error = WEFT_NO_ERROR;
    return save_texts(path, (written){failing_text, failing_config, 300, 0}, &error);
}

static void test_no_memory(void)
{
    static const char small[] =
        "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true}],\"normalizer\":null,"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"post_processor\":"
        "null,"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":2,\"ab\":3},\"merges\":[\"a b\"]}}";
    static const char spm[] =
        "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" "
        "\"},\"content\":\"\xE2\x96\x81\"},"
        "\"pre_tokenizer\":null,\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
        "{\"SpecialToken\":{\"id\":\"a\"}},{\"Sequence\":{\"id\":\"A\"}}]},"
        "\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"a\":1,\"b\":2,\"ab\":3},"
        "\"merges\":[[\"a\",\"b\"]]}}";
    static const char config[] =
        "{\"eos_token\":{\"content\":\"b\"},\"chat_template\":[{\"name\":\"default\","
        "\"template\":\"x\"}]}";
    failing_config = config;
    failing_text = small;
    test_fail_all(save_failing);
    failing_text = spm;
    test_fail_all(save_failing);
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

/* Published forms of tokenizer.json: the same ids after a way through a file. */
static void check_saved_ids(const char *path, const char *normalizer)
{
    static char line[MAX_LINE];
    int32_t got[MAX_IDS], want[MAX_IDS];
    weft_error error = WEFT_NO_ERROR;
    char *json = read_text(path);
    if (normalizer) { /* in place of the file's, as long */
        char *at = strstr(json, "\"normalizer\":{") + 13;
        memcpy(at, normalizer, strlen(normalizer));
    }
    weft_tokenizer *wanted = weft_tokenizer_load_json_from_memory(json, strlen(json), &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(wanted);
    const weft_status status = save_texts(saved_path(), (written){json, NULL, 1000, 0}, &error);
    if (status != WEFT_OK) printf("\n    %s: %s\n", path, error.message);
    CU_ASSERT_EQUAL_FATAL(status, WEFT_OK);
    weft_tokenizer *t = tokenizer_of(saved_path());
    FILE *file = fopen(GOLDEN("tokenizers/texts.txt"), "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    while (read_line(file, line)) {
        const size_t n = encode(t, line, got);
        CU_ASSERT_EQUAL_FATAL(encode(wanted, line, want), n);
        CU_ASSERT_TRUE(!n || !memcmp(got, want, n * sizeof *got));
    }
    fclose(file);
    weft_tokenizer_free(t);
    weft_tokenizer_free(wanted);
    free(json);
    unlink(saved_path());
}

static void test_saved_ids(void)
{
    check_saved_ids(GOLDEN("tokenizers/gpt2.json"), NULL);
    check_saved_ids(GOLDEN("tokenizers/llama3.json"), "null          ");
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
    CU_add_test(suite, "vocabularies that are written", test_saved_texts);
    CU_add_test(suite, "vocabularies that are not written", test_refused_texts);
    CU_add_test(suite, "out of memory", test_no_memory);
#ifdef WEFT_HAVE_TOKENIZERS
    CU_add_test(suite, "ids of vocabularies that are written", test_saved_ids);
    CU_add_test(suite, "a byte-level vocabulary", test_gpt2_vocabulary);
    CU_add_test(suite, "a vocabulary of SentencePiece", test_llama_vocabulary);
#endif
}
