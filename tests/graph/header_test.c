/* Headers of safetensors files: large and hostile ones, all forms of JSON, and running out of
 * memory while they are read or written. */
#include "tests.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[128];

static int make_path(void)
{
    snprintf(path, sizeof path, "/tmp/weft-header-%ld.safetensors", (long)getpid());
    return 0;
}

static int remove_path(void)
{
    unlink(path);
    return 0;
}

/* ---- Large ones ---- */

/* With a linear search for each key, this many would take minutes. */
static void test_many_metas(void)
{
    enum { N = 200000 };
    weft_params *p = weft_params_new(), *q = weft_params_new();
    char key[32], text[32];
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "key %d", i);
        snprintf(text, sizeof text, "text %d", i);
        if (weft_params_set_meta(p, key, text, NULL) != WEFT_OK) CU_FAIL_FATAL("set_meta");
    }
    CU_ASSERT_EQUAL(weft_params_set_meta(p, "key 77", "another", NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_save(p, path, NULL, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_set_meta(q, "key 78", "old", NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_set_meta(q, "own", "kept", NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_load(q, path, NULL), WEFT_OK);
    CU_ASSERT_STRING_EQUAL(weft_params_meta(q, "key 77"), "another");
    CU_ASSERT_STRING_EQUAL(weft_params_meta(q, "key 78"), "text 78");
    CU_ASSERT_STRING_EQUAL(weft_params_meta(q, "key 199999"), "text 199999");
    CU_ASSERT_STRING_EQUAL(weft_params_meta(q, "own"), "kept");
    CU_ASSERT_PTR_NULL(weft_params_meta(q, "key 200000"));
    weft_params_free(p);
    weft_params_free(q);
}

static void test_many_tensors(void)
{
    enum { N = 100000 };
    weft_params *p = weft_params_new(), *q = weft_params_new();
    weft_tensor t;
    char name[64];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "model.layers.%d.self_attn.q_proj.weight", i);
        if (weft_params_add(p, name, WEFT_I32, WEFT_SHAPE(1, 1), &t, NULL) != WEFT_OK)
            CU_FAIL_FATAL("add");
        *(int32_t *)t.data = i;
    }
    CU_ASSERT_EQUAL(weft_params_save(p, path, NULL, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_load(q, path, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_count(q), N);
    CU_ASSERT_TRUE(weft_params_find(q, name, &t) && *(int32_t *)t.data == N - 1);
    weft_params_free(p);
    weft_params_free(q);
}

/* ---- Files by hand ---- */

static void write_header(const char *header, size_t length, size_t data_bytes)
{
    uint64_t bytes = length;
    FILE *file = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fwrite(&bytes, 8, 1, file);
    fwrite(header, 1, length, file);
    for (size_t i = 0; i < data_bytes; i++) fputc(0, file);
    fclose(file);
}

/* Loads the file, which must fail with this status and a message that contains `part`. */
static void refuse(weft_status status, const char *part)
{
    weft_error error = {0};
    weft_params *p = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_load(p, path, &error), status);
    if (!strstr(error.message, part)) {
        fprintf(stderr, "\n    got \"%s\", expected \"%s\"\n", error.message, part);
        CU_FAIL("another message");
    }
    CU_ASSERT_EQUAL(weft_params_count(p), 0);
    weft_params_free(p);
}

/* `begin`, then `bytes` of repetitions of `middle`, then `end`; the caller frees it. */
static char *repeated(const char *begin, const char *middle, size_t bytes, const char *end,
                      size_t *length)
{
    size_t n = strlen(middle);
    char *text = malloc(strlen(begin) + bytes + strlen(end) + n + 1), *at = text;
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    at = stpcpy(at, begin);
    for (size_t i = 0; i < bytes; i += n) at = stpcpy(at, middle);
    at = stpcpy(at, end);
    *length = (size_t)(at - text);
    return text;
}

/* Headers of 20 MB of brackets and numbers are loaded in 200 MB of address space. */
static void test_little_memory(void)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    test_skip("large headers in little memory", "sanitizers need address space of their own");
#else
    static const struct {
        const char *begin, *middle, *end, *message;
    } files[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[", "0,", "0],\"data_offsets\":[0,0]}}", "64 KiB"},
        {"{\"__metadata__\":{\"k\":[", "0,", "0]}}", "not text"},
        {"{\"__metadata__\":", "[", "", "not JSON"},
        {"{\"a\":", "[", "", "not JSON"},
        {"{\"__metadata__\":[", "{},", "0]}", "is not an object"},
        {"[", "0,", "0]", "not a JSON object"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t length;
        int status = -1;
        char *header = repeated(files[i].begin, files[i].middle, 20000000, files[i].end, &length);
        write_header(header, length, 0);
        free(header);
        fflush(NULL);
        pid_t pid = fork();
        CU_ASSERT_TRUE_FATAL(pid >= 0);
        if (pid == 0) {
            FILE *statm = fopen("/proc/self/statm", "r");
            unsigned long pages = 0;
            if (!statm || fscanf(statm, "%lu", &pages) != 1) test_exit(2);
            rlim_t limit = pages * (rlim_t)sysconf(_SC_PAGESIZE) + 200000000;
            setrlimit(RLIMIT_AS, &(struct rlimit){limit, limit});
            weft_error error = {0};
            weft_status was = weft_params_load(weft_params_new(), path, &error);
            bool good = was == WEFT_BAD_FILE && strstr(error.message, files[i].message);
            if (!good) fprintf(stderr, "\n    %s: %s\n", weft_status_text(was), error.message);
            test_exit(!good);
        }
        waitpid(pid, &status, 0);
        CU_ASSERT_EQUAL(status, 0);
    }
#endif
}

static void test_limits(void)
{
    enum { N = 1 << 20 };
    weft_error error = {0};
    weft_params *p = weft_params_new();
    size_t length;
    char key[32], *at, *header = malloc(N * (size_t)16 + 64);
    CU_ASSERT_PTR_NOT_NULL_FATAL(header);
    at = stpcpy(header, "{\"__metadata__\":{");
    for (int i = 0; i <= N; i++) at += sprintf(at, "%s\"%d\":\"\"", i ? "," : "", i);
    at = stpcpy(at, "}}");
    write_header(header, (size_t)(at - header), 0);
    refuse(WEFT_TOO_LARGE, "__metadata__: has more than 1048576 entries");
    free(header);

    for (int i = 0; i <= N; i++) {
        snprintf(key, sizeof key, "%d", i);
        if (weft_params_set_meta(p, key, "", NULL) != WEFT_OK) CU_FAIL_FATAL("set_meta");
    }
    CU_ASSERT_EQUAL(weft_params_save(p, path, NULL, &error), WEFT_TOO_LARGE);
    CU_ASSERT_STRING_EQUAL(error.message,
                           "has 1048577 entries of metadata, at most 1048576 fit in a file");
    weft_params_free(p);

    p = weft_params_new();
    char *text = repeated("", "x", 100000000, "", &length);
    memset(&error, 0, sizeof error);
    CU_ASSERT_EQUAL(weft_params_set_meta(p, "k", text, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_save(p, path, NULL, &error), WEFT_TOO_LARGE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "at most 100000000 fit"));
    free(text);
    weft_params_free(p);
}

/* ---- JSON in every form ---- */

#define ENTRY "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"

static void test_valid_json(void)
{
    static const char *const headers[] = {
        "{\"a\":" ENTRY "}",
        "{\"a\":" ENTRY "}      ",
        " \n{ \"a\"\t:\r\n" ENTRY " ,\"__metadata__\" : { } } ",
        "{\"\\u0061\":" ENTRY ",\"__metadata__\":{\"k\\n\":\"\\\"}]\\\\\",\"l\":\"\"}}",
        "{\"__metadata__\":{},\"a\":{\"more\":[[],{\"x\":\"]}\"},null,true,-1.5e3],\"dtype\":"
        "\"F32\","
        "\"shape\":[ 1 ],\"data_offsets\":[0, 4e0]}}",
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        weft_error error = {0};
        weft_params *p = weft_params_new();
        write_header(headers[i], strlen(headers[i]), 4);
        CU_ASSERT_EQUAL(weft_params_load(p, path, &error), WEFT_OK);
        if (error.status != WEFT_OK) fprintf(stderr, "\n    %s: %s\n", headers[i], error.message);
        CU_ASSERT_TRUE(weft_params_find(p, "a", NULL));
        weft_params_free(p);
    }
}

static void test_no_json(void)
{
    static const char *const headers[] = {
        "",
        "{",
        "}",
        "null",
        "{\"a\":" ENTRY,
        "{\"a\":" ENTRY ",}",
        "{,\"a\":" ENTRY "}",
        "{\"a\":" ENTRY "}}",
        "{\"a\":" ENTRY "} x",
        "{\"a\" " ENTRY "}",
        "{\"a\":" ENTRY " \"b\":1}",
        "{a:" ENTRY "}",
        "{\"a\":\"open}",
        "{\"a\":\"open\\\"}",
        "{\"a\":[1,2}}",
        "{\"a\":{\"dtype\":\"F32\"]}",
        "{\"a\":tru\"e\"}",
        "{\"a\":}",
        "{\"\\uD800\":" ENTRY "}",
        "{\"a\x01\":" ENTRY "}",
        "{\"__metadata__\":{\"k\":\"v\",}}",
        "{\"__metadata__\":{\"k\":\"\\x\"}}",
        "{\"__metadata__\":{\"k\":\"v\"}",
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        write_header(headers[i], strlen(headers[i]), 4);
        refuse(WEFT_BAD_FILE, "the header is not JSON");
    }
    /* A zero byte does not end a file. */
    write_header("{\"a\":" ENTRY "}\0garbage", sizeof ENTRY + 13, 4);
    refuse(WEFT_BAD_FILE, "the header is not JSON");
}

/* Messages show the names of tensors in printable form. */
static void test_names(void)
{
    const char *header = "{\"a\\n\\u001b[31m\":{\"shape\":[1]}}";
    write_header(header, strlen(header), 0);
    refuse(WEFT_BAD_FILE, "a\\n\\x1b[31m: its dtype is missing");
    /* No file could be written with such names. */
    header = "{\"\xff\xe6\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    write_header(header, strlen(header), 0);
    refuse(WEFT_BAD_FILE, "the header is not UTF-8");
}

void header_tests(void)
{
    CU_pSuite suite = CU_add_suite("header", make_path, remove_path);
    CU_add_test(suite, "many metadata", test_many_metas);
    CU_add_test(suite, "many tensors", test_many_tensors);
    CU_add_test(suite, "large headers in little memory", test_little_memory);
    CU_add_test(suite, "limits", test_limits);
    CU_add_test(suite, "JSON", test_valid_json);
    CU_add_test(suite, "no JSON", test_no_json);
    CU_add_test(suite, "names", test_names);
}
