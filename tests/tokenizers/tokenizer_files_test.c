/* Files of tokenisers: the names of special tokens next to them, and what is refused. */
#include "tests.h"

#include <weft/tokenizers.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Names of special tokens in tokenizer_config.json count, and a damaged one is refused. */
static void test_config(void)
{
    char folder[] = "/tmp/weft-tokenizers-XXXXXX", path[256], config[256];
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    snprintf(config, sizeof config, "%s/tokenizer_config.json", folder);
    FILE *file = fopen(path, "w");
    fputs("{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0,\"<s>\":1,\"end\":2}}}", file);
    fclose(file);
    weft_tokenizer *t = weft_tokenizer_load_json(path, NULL);
    CU_ASSERT(weft_tokenizer_info_of(t).bos == 1 && weft_tokenizer_info_of(t).eos == -1);
    weft_tokenizer_free(t);
    file = fopen(config, "w");
    fputs("{\"bos_token\":null,\"eos_token\":{\"content\":\"end\"},\"pad_token\":\"a\"}", file);
    fclose(file);
    t = weft_tokenizer_load_json(path, NULL);
    const weft_tokenizer_info info = weft_tokenizer_info_of(t);
    CU_ASSERT(info.bos == -1 && info.eos == 2 && info.pad == 0);
    weft_tokenizer_free(t);
    file = fopen(config, "w");
    fputs("{\"bos_token\":", file);
    fclose(file);
    weft_error error;
    CU_ASSERT_PTR_NULL(weft_tokenizer_load_json(path, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_FILE);
    CU_ASSERT_STRING_EQUAL(error.message, "is not JSON at byte 12");
    unlink(path);
    unlink(config);
    rmdir(folder);
}

#define MODEL                                                                                      \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

static void test_refused_files(void)
{
    static const char *const cases[][2] = {
        {"", "is not JSON at byte 0"},
        {"[1]", "expected an object"},
        {"{\"model\":3}", "model must be an object with a type"},
        {"{\"model\":{\"type\":\"Magic\"}}", "model is an unsupported model: Magic"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "model has no pieces"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "model.merges must be an array"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}",
         "model.merges[0] must be two pieces"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"b\"]]}}",
         "model.merges[0] has a piece that is not in the vocabulary"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}",
         "model.dropout makes the ids random"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":1e99}}}", "model.vocab.a must be an"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":-1}}}", "model.vocab.a must be an"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":1,\"b\":1}}}", "has the id 1 twice"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":1,\"a\":2}}}", "piece 'a' twice"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "model.vocab[0] must be ["},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":1}}",
         "model.unk_id must be an integer in [0, 0]"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"X\"}]}}",
         "normalizer.normalizers[0] is an unsupported normaliser: X"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AA==\"}}",
         "normalizer.precompiled_charsmap is not a map of characters"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"X\"}}",
         "pre_tokenizer is an unsupported pre-tokeniser: X"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
         "\"behavior\":\"Removed\"}}",
         "pre_tokenizer.pattern.Regex is a pattern that weft cannot use: missing"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},"
         "\"behavior\":\"Removed\"}}",
         "an intersection of classes"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?im:.)\"},"
         "\"behavior\":\"Removed\"}}",
         "the option m"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
         "\"SpecialToken\":{\"id\":\"x\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{}}}",
         "post_processor.special_tokens.x.ids must be an array"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"b\",1],"
         "\"cls\":[\"c\",9]}}",
         "post_processor.cls[1] must be an integer in [0, 2]"},
        {"{" MODEL ",\"decoder\":{\"type\":\"CTC\"}}", "decoder is an unsupported decoder: CTC"},
        {"{" MODEL ",\"added_tokens\":[{\"id\":7,\"content\":\"c\"}]}",
         "added_tokens[0].id is 7, but 'c' has the id 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_error error;
        weft_tokenizer *t =
            weft_tokenizer_load_json_from_memory(cases[i][0], strlen(cases[i][0]), &error);
        CU_ASSERT_PTR_NULL(t);
        CU_ASSERT_EQUAL(error.status, WEFT_BAD_FILE);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, cases[i][1]));
        if (!strstr(error.message, cases[i][1]))
            printf("%zu: %s, expected %s\n", i, error.message, cases[i][1]);
        weft_tokenizer_free(t);
    }
}

/* Files that are cut, or of which a byte is another, are refused or can be used. */
static void test_damaged_files(void)
{
    static const char *const names[] = {"gpt2", "llama3", "clip", "bert", "unigram"};
    char path[512];
    size_t bytes;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        snprintf(path, sizeof path, WEFT_GOLDEN_DIR "/tokenizers/%s.json", names[k]);
        FILE *file = fopen(path, "r");
        char *json = malloc(1 << 17);
        CU_ASSERT_PTR_NOT_NULL_FATAL(file);
        bytes = fread(json, 1, 1 << 17, file);
        fclose(file);
        for (size_t i = 0; i < 40; i++) {
            const size_t at = (i * 2654435761u + k) % bytes;
            const char before = json[at];
            weft_error error;
            size_t n;
            CU_ASSERT_PTR_NULL(weft_tokenizer_load_json_from_memory(json, at, &error));
            CU_ASSERT_EQUAL(error.status, WEFT_BAD_FILE);
            json[at] = "0\"]}-,9x"[i % 8];
            weft_tokenizer *t = weft_tokenizer_load_json_from_memory(json, bytes, &error);
            CU_ASSERT_EQUAL(error.status, t ? WEFT_OK : WEFT_BAD_FILE);
            if (t)
                weft_tokenizer_encode(t, "In the beginning, 1 \xC3\xA9", NULL, NULL, 0, &n, NULL);
            weft_tokenizer_free(t);
            json[at] = before;
        }
        free(json);
    }
}

/* A pattern that needs more steps than PCRE2 allows ends with an error. */
static void test_slow_pattern(void)
{
    static const char json[] = "{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{"
                               "\"Regex\":\"(a+)+(a+)+(a+)+[^a][cd]\"},\"behavior\":\"Isolated\"}}";
    weft_tokenizer *t = weft_tokenizer_load_json_from_memory(json, strlen(json), NULL);
    char text[3000];
    weft_error error;
    size_t n;
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    memset(text, 'a', sizeof text);
    text[sizeof text - 2] = 'b';
    text[sizeof text - 1] = 0;
    CU_ASSERT_EQUAL(weft_tokenizer_encode(t, text, NULL, NULL, 0, &n, &error), WEFT_TOO_LARGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "too many steps"));
    CU_ASSERT_EQUAL(weft_tokenizer_encode(t, "ab", NULL, NULL, 0, &n, &error), WEFT_OK);
    weft_tokenizer_free(t);
}

static weft_status load_and_use(const char *path)
{
    static const char json[] =
        "{\"added_tokens\":[{\"id\":3,\"content\":\"C\",\"special\":true},"
        "{\"id\":4,\"content\":\"D\",\"normalized\":true}],"
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},"
        "{\"type\":\"Prepend\",\"prepend\":\"a\"},{\"type\":\"Replace\",\"pattern\":"
        "{\"String\":\"x\"},\"content\":\"b\"}]},"
        "\"pre_tokenizer\":{\"type\":\"Metaspace\"},"
        "\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"a\",0],\"cls\":[\"b\",1]},"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},"
        "{\"type\":\"Metaspace\"},{\"type\":\"Fuse\"}]}," MODEL "}";
    const weft_encode_input input = {"ab \xEF\xAC\x81x C abababababababababababababababab", "aD",
                                     true, true};
    weft_error error;
    weft_encoding e = {.n = 0};
    weft_text_decoder *d = NULL;
    const char *part;
    (void)path;
    weft_tokenizer *t = weft_tokenizer_load_json_from_memory(json, strlen(json), &error);
    if (!t) return error.status;
    weft_status status = weft_tokenizer_encode_input(t, &input, &e, NULL);
    if (status == WEFT_OK) d = weft_text_decoder_new(t, &error);
    if (status == WEFT_OK && !d) status = error.status;
    for (size_t i = 0; i < e.n && status == WEFT_OK; i++)
        status = weft_text_decoder_add(d, e.ids[i], &part, NULL);
    weft_text_decoder_free(d);
    weft_encoding_free(&e);
    weft_tokenizer_free(t);
    return status;
}

static void test_failing_allocations(void)
{
    test_fail_all(load_and_use);
}

void tokenizer_files_tests(void)
{
    CU_pSuite suite = CU_add_suite("tokenizer_files", NULL, NULL);
    CU_add_test(suite, "names of special tokens", test_config);
    CU_add_test(suite, "refused files", test_refused_files);
    CU_add_test(suite, "damaged files", test_damaged_files);
    CU_add_test(suite, "every allocation fails once", test_failing_allocations);
    CU_add_test(suite, "a slow pattern", test_slow_pattern);
}
