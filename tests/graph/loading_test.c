/* Loading finds what a file lacks and what it has besides, is strict unless the caller asks
 * otherwise, and no store makes up what its file should have. */
#include "tests.h"

#include "base/match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

/* A graph with the parameters of a list that ends with NULL, each [2]. */
static weft_graph *graph_of(const char *const *names)
{
    weft_graph *g = weft_graph_new();
    for (; *names; names++)
        weft_param(g, *names, WEFT_F32, WEFT_SHAPE(2), (weft_init){WEFT_INIT_CONSTANT, 3, 0});
    return g;
}

static float first(const weft_params *params, const char *name)
{
    weft_tensor t;
    return weft_params_find(params, name, &t) ? *(const float *)t.data : -1;
}

/* Writes a file of the tensors a.weight, a.bias and old, all 7. */
static void write_file(void)
{
    static const char *const names[] = {"a.weight", "a.bias", "old"};
    weft_params *p = weft_params_new();
    for (int i = 0; i < 3; i++) {
        weft_tensor t;
        weft_params_add(p, names[i], WEFT_F32, WEFT_SHAPE(2), &t, NULL);
        ((float *)t.data)[0] = ((float *)t.data)[1] = 7;
    }
    CU_ASSERT_EQUAL(weft_params_save(p, path, NULL, NULL), WEFT_OK);
    weft_params_free(p);
}

static const char *const wanted[] = {"a.weigth", "a.bias", "head", NULL};

/* A store that has its first contents before a file is loaded. */
static void test_other_names(void)
{
    weft_error error = {0};
    weft_graph *g = graph_of(wanted);
    weft_params *p = weft_params_new();
    write_file();
    CU_ASSERT_EQUAL(weft_params_init(p, g, 1, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_load(p, path, &error), WEFT_BAD_FILE);
    CU_ASSERT_STRING_EQUAL(error.where, path);
    CU_ASSERT_STRING_EQUAL(error.message,
                           "2 of 3 tensors are missing: \"a.weigth\", \"head\"; 2 are unexpected: "
                           "\"a.weight\", \"old\"; is \"a.weight\" meant to be \"a.weigth\"? "
                           "(weft_load_options.allow_missing)");
    CU_ASSERT_EQUAL(weft_params_count(p), 3);
    CU_ASSERT_EQUAL(first(p, "a.bias"), 3);
    weft_params_free(p);
    weft_graph_free(g);
}

static bool is_list(char *const *names, size_t n, const char *first_name, const char *second)
{
    return n == (second ? 2 : 1) && !strcmp(names[0], first_name) &&
           (!second || !strcmp(names[1], second));
}

/* What is allowed is reported; a failure reports it too. */
static void test_report(void)
{
    weft_graph *g = graph_of(wanted);
    for (int i = 0; i < 4; i++) {
        weft_error error = {0};
        weft_load_report r;
        weft_params *p = weft_params_new();
        const weft_load_options o = {g, NULL, i & 1, i & 2};
        weft_status status = weft_params_load_with(p, path, &o, &r, &error);
        CU_ASSERT_EQUAL(status, i == 3 ? WEFT_OK : WEFT_BAD_FILE);
        CU_ASSERT_TRUE(is_list(r.loaded, r.n_loaded, "a.bias", NULL));
        CU_ASSERT_TRUE(is_list(r.missing, r.n_missing, "a.weigth", "head"));
        CU_ASSERT_TRUE(is_list(r.unexpected, r.n_unexpected, "a.weight", "old"));
        CU_ASSERT_EQUAL(weft_params_count(p), i == 3 ? 1 : 0);
        const char *allows = i == 1 ? "allow_unexpected)" : "allow_missing)";
        if (i < 3) CU_ASSERT_PTR_NOT_NULL(strstr(error.message, allows));
        weft_load_report_free(&r);
        CU_ASSERT_PTR_NULL(r.loaded);
        CU_ASSERT_PTR_NULL(weft_params_source(p));
        if (i == 3) CU_ASSERT_EQUAL(weft_params_init(p, g, 1, &error), WEFT_OK);
        if (i == 3) CU_ASSERT_TRUE(first(p, "a.bias") == 7 && first(p, "head") == 3);
        weft_params_free(p);
    }
    weft_graph_free(g);
}

static bool is_head(void *context, const char *name)
{
    (void)context;
    return !strcmp(name, "head");
}

/* A store that was loaded gets new states only where the caller asks for them. */
static void test_init_after_load(void)
{
    static const char *const with_head[] = {"a.weight", "a.bias", "head", NULL};
    static const char *const with_two[] = {"a.weight", "b", "head", NULL};
    const weft_params_filter head = {.selects = is_head};
    weft_error error = {0};
    weft_graph *g = graph_of(with_head), *h = graph_of(with_two);
    weft_params *p = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_load(p, path, &error), WEFT_OK);
    CU_ASSERT_STRING_EQUAL(weft_params_source(p), path);
    CU_ASSERT_EQUAL(weft_params_init(p, g, 1, &error), WEFT_NOT_FOUND);
    CU_ASSERT_STRING_EQUAL(error.where, path);
    CU_ASSERT_STRING_EQUAL(error.message, "1 of 3 states are missing: \"head\"");
    error = WEFT_NO_ERROR;
    CU_ASSERT_EQUAL(weft_params_init_some(p, h, &head, 1, &error), WEFT_NOT_FOUND);
    CU_ASSERT_STRING_EQUAL(error.message, "1 of 2 states are missing: \"b\"");
    CU_ASSERT_EQUAL(weft_params_count(p), 3);
    CU_ASSERT_EQUAL(weft_params_init_some(p, g, &head, 1, NULL), WEFT_OK);
    CU_ASSERT_TRUE(first(p, "a.bias") == 7 && first(p, "head") == 3);
    CU_ASSERT_EQUAL(weft_params_init(p, g, 1, NULL), WEFT_OK);
    weft_params_free(p);
    weft_graph_free(g);
    weft_graph_free(h);
}

/* The types of a graph are checked before anything is read. */
static void test_types(void)
{
    static const char *const names[] = {"a.weight", "old", NULL};
    weft_error error = {0};
    weft_graph *g = graph_of(names);
    weft_params *p = weft_params_new();
    const weft_load_options o = {.graph = g};
    weft_param(g, "a.bias", WEFT_F64, WEFT_SHAPE(2), WEFT_INIT_ZEROS);
    CU_ASSERT_EQUAL(weft_params_load_with(p, path, &o, NULL, &error), WEFT_BAD_SHAPE);
    CU_ASSERT_STRING_EQUAL(error.message, "a.bias is F32 [2] in the file, f64 [2] in the graph");
    CU_ASSERT_EQUAL(weft_params_count(p), 0);
    weft_params_free(p);
    weft_graph_free(g);
}

/* The file as bytes, which the caller frees. */
static char *file_bytes(size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    char *data = malloc(4096);
    CU_ASSERT_TRUE_FATAL(file && data);
    *bytes = fread(data, 1, 4096, file);
    CU_ASSERT_TRUE_FATAL(*bytes > 64 && *bytes < 4096);
    fclose(file);
    return data;
}

/* The store has its own copies, and the caller's name. */
static void test_from_memory(void)
{
    weft_error error = {0};
    weft_memory_file from = {.name = "built in"};
    weft_params *p = weft_params_new();
    write_file();
    char *data = file_bytes(&from.bytes);
    from.data = data;
    CU_ASSERT_EQUAL(weft_params_load_from_memory(p, from, NULL, NULL, &error), WEFT_OK);
    memset(data, 0, from.bytes);
    CU_ASSERT_EQUAL(weft_params_count(p), 3);
    CU_ASSERT_TRUE(first(p, "a.weight") == 7 && first(p, "a.bias") == 7 && first(p, "old") == 7);
    CU_ASSERT_STRING_EQUAL(weft_params_source(p), "built in");
    CU_ASSERT_EQUAL(weft_params_load_from_memory(p, from, NULL, NULL, &error), WEFT_BAD_FILE);
    CU_ASSERT_STRING_EQUAL(error.where, "built in");
    CU_ASSERT_EQUAL(first(p, "old"), 7);
    from = (weft_memory_file){.data = data};
    CU_ASSERT_EQUAL(weft_params_load_from_memory(p, from, NULL, NULL, &error), WEFT_BAD_FILE);
    CU_ASSERT_STRING_EQUAL(error.where, "memory");
    CU_ASSERT_STRING_EQUAL(error.message, "is too short for a safetensors file");
    weft_params_free(p);
    free(data);
}

/* Options and report are those of a file. */
static void test_from_memory_with(void)
{
    weft_error error = {0};
    weft_load_report r;
    weft_memory_file from = {.name = NULL};
    weft_graph *g = graph_of(wanted);
    weft_params *p = weft_params_new();
    char *data = file_bytes(&from.bytes);
    const weft_load_options o = {.graph = g, .allow_missing = true, .allow_unexpected = true};
    from.data = data;
    CU_ASSERT_EQUAL(weft_params_load_from_memory(p, from, &o, &r, &error), WEFT_OK);
    CU_ASSERT_TRUE(is_list(r.loaded, r.n_loaded, "a.bias", NULL));
    CU_ASSERT_TRUE(is_list(r.missing, r.n_missing, "a.weigth", "head"));
    CU_ASSERT_EQUAL(first(p, "a.bias"), 7);
    weft_load_report_free(&r);
    weft_params_free(p);
    weft_graph_free(g);
    free(data);
}

/* Tensor by tensor: the bytes are read where they lie. */
static void test_open_memory(void)
{
    weft_error error = {0};
    weft_memory_file from = {.name = "built in"};
    float got[2] = {0};
    char *data = file_bytes(&from.bytes);
    from.data = data;
    weft_safetensors *file = weft_safetensors_from_memory(from, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    const weft_file_tensor *t = weft_safetensors_find(file, "old");
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT_EQUAL(weft_safetensors_read(file, t, got, &error), WEFT_OK);
    CU_ASSERT_TRUE(got[0] == 7 && got[1] == 7);
    memset(data + from.bytes - 8, 0, 8);
    CU_ASSERT_EQUAL(weft_safetensors_read(file, t, got, &error), WEFT_OK);
    CU_ASSERT_TRUE(got[0] == 0 && got[1] == 0);
    weft_safetensors_close(file);
    while (from.bytes--) {
        CU_ASSERT_PTR_NULL(weft_safetensors_from_memory(from, &error));
        CU_ASSERT_EQUAL(error.status, WEFT_BAD_FILE);
    }
    CU_ASSERT_PTR_NULL(weft_safetensors_from_memory((weft_memory_file){.bytes = 99}, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    free(data);
}

/* Lists of 200,000 names, the first half of which is common. */
static void test_many(void)
{
    enum { N = 200000, HALF = N / 2, BYTES = 12 };
    char *text = malloc((size_t)3 * HALF * BYTES);
    const char **names = malloc((size_t)3 * HALF * sizeof *names);
    name_match m;
    for (size_t i = 0; i < 3 * HALF; i++) {
        snprintf(text + i * BYTES, BYTES, "n%zu", i);
        names[i] = text + i * BYTES;
    }
    CU_ASSERT_TRUE_FATAL(weft__match_names(&m, names, N, names + HALF, N));
    CU_ASSERT_TRUE(m.n_matched == HALF && m.n_missing == HALF && m.n_unexpected == HALF);
    CU_ASSERT_TRUE(m.matched[0] == names[HALF] && m.missing[0] == names[0] &&
                   m.unexpected[0] == names[N]);
    weft__match_free(&m);
    free(names);
    free(text);
}

static int make_path(void)
{
    snprintf(path, sizeof path, "/tmp/weft-loading-%ld.safetensors", (long)getpid());
    return 0;
}

static int remove_path(void)
{
    unlink(path);
    return 0;
}

void loading_tests(void)
{
    CU_pSuite suite = CU_add_suite("loading", make_path, remove_path);
    CU_add_test(suite, "other names", test_other_names);
    CU_add_test(suite, "report", test_report);
    CU_add_test(suite, "first contents after loading", test_init_after_load);
    CU_add_test(suite, "types of a graph", test_types);
    CU_add_test(suite, "from memory", test_from_memory);
    CU_add_test(suite, "from memory, with options", test_from_memory_with);
    CU_add_test(suite, "tensors of a file in memory", test_open_memory);
    CU_add_test(suite, "many names", test_many);
}
