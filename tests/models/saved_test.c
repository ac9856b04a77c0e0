/* Models in files: which checkpoint of a run is read, what must agree with it, and what is refused. */
#include "tests.h"

#include <weft/quantize.h>
#include <weft/saved.h>
#include <weft/weft.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/weft-saved-XXXXXX";
static const char *const files[] = {"model.safetensors", "best.safetensors",   "other.safetensors",
                                    "vocab.model",       "vocab.source.model", "vocab.target.model",
                                    "tokenizer.json"};

static const char *in_folder(const char *name)
{
    static char path[4][64];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof *path, "%s/%s", folder, name);
    return path[next];
}

static void write_text(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    fclose(file);
}

static void remove_all(void)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) unlink(in_folder(files[i]));
}

static int make_folder(void)
{
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void)
{
    remove_all();
    return rmdir(folder);
}

#define OPTIONS "vocab=11 d_model=32 heads=2 layers=1 d_ff=32"

/* The parameters of a small model, with the metadata of a checkpoint. */
static weft_params *make_params(const char *vocabulary)
{
    static const char *const texts[] = {"vocab=11", "d_model=32", "heads=2", "layers=1", "d_ff=32"};
    weft_params *params = weft_params_new();
    weft_graph *g = weft_graph_new();
    weft_built built;
    CU_ASSERT_EQUAL_FATAL(
        weft_model_build_text(g, weft_model_find("gpt"), texts, 5, false, &built, NULL), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(params, g, 1, NULL), WEFT_OK);
    weft_params_set_meta(params, "model", "gpt", NULL);
    weft_params_set_meta(params, "model_options", OPTIONS, NULL);
    weft_params_set_meta(params, "step", "30", NULL);
    weft_params_set_meta(params, "trained_length", "24", NULL);
    if (vocabulary) weft_params_set_meta(params, "vocabulary", vocabulary, NULL);
    weft_graph_free(g);
    return params;
}

static void save(const char *name, const char *vocabulary)
{
    weft_params *params = make_params(vocabulary);
    CU_ASSERT_EQUAL(weft_params_save(params, in_folder(name), NULL, NULL), WEFT_OK);
    weft_params_free(params);
}

static void expect_opened(const char *run, const char *checkpoint, const char *path)
{
    weft_error error;
    weft_saved_model *m = weft_saved_open(run, checkpoint, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_STRING_EQUAL(m->path, path);
    CU_ASSERT_STRING_EQUAL(m->config.model->name, "gpt");
    CU_ASSERT_EQUAL(weft_model_traits_of(&m->config).vocab, 11);
    CU_ASSERT(m->updates == 30 && m->trained_length == 24);
    CU_ASSERT(weft_params_count(m->params) > 10);
    weft_saved_close(m);
}

static void expect_refused(const char *run, weft_status status, const char *where,
                           const char *message)
{
    weft_error error;
    CU_ASSERT_PTR_NULL(weft_saved_open(run, NULL, &error));
    CU_ASSERT_EQUAL(error.status, status);
    CU_ASSERT_STRING_EQUAL(error.where, where);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, message));
}

static void test_which_checkpoint(void)
{
    char path[64];
    expect_refused(folder, WEFT_NOT_FOUND, folder, "is neither a checkpoint nor a folder");
    save("model.safetensors", NULL);
    expect_opened(folder, NULL, in_folder("model.safetensors"));
    save("best.safetensors", NULL);
    expect_opened(folder, NULL, in_folder("best.safetensors"));
    expect_opened(in_folder("model.safetensors"), NULL, in_folder("model.safetensors"));
    save("other.safetensors", NULL);
    expect_opened(folder, in_folder("other.safetensors"), in_folder("other.safetensors"));
    CU_ASSERT_EQUAL(weft_saved_path(folder, path, sizeof path, NULL), WEFT_OK);
    CU_ASSERT_STRING_EQUAL(path, in_folder("best.safetensors"));
    CU_ASSERT_EQUAL(weft_saved_path(folder, path, 30, NULL), WEFT_TOO_LARGE);
    remove_all();
}

static void expect_vocabularies(const char *source, const char *target)
{
    weft_error error;
    weft_saved_model *m = weft_saved_open(folder, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    const char *const wanted[2] = {source, target};
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(m->vocabulary[i] != NULL, wanted[i] != NULL);
        if (wanted[i] && m->vocabulary[i])
            CU_ASSERT_STRING_EQUAL(m->vocabulary[i], in_folder(wanted[i]));
    }
    weft_saved_close(m);
}

/* The hashes are of FNV-1a, 64 bits: of "a" and of "foobar" (its authors' test vectors). */
static void test_vocabularies(void)
{
    save("model.safetensors", NULL);
    expect_vocabularies(NULL, NULL);
    write_text("vocab.model", "b");
    expect_vocabularies(NULL, "vocab.model"); /* without a hash any is accepted */
    save("model.safetensors", "af63dc4c8601ec8c");
    expect_refused(folder, WEFT_BAD_ARGUMENT, in_folder("vocab.model"),
                   "is not the vocabulary that");
    write_text("vocab.model", "a");
    expect_vocabularies(NULL, "vocab.model");
    write_text("tokenizer.json", "a");
    expect_vocabularies(NULL, "vocab.model"); /* weft's own comes first */
    unlink(in_folder("vocab.model"));
    expect_vocabularies(NULL, "tokenizer.json");
    unlink(in_folder("tokenizer.json"));
    expect_vocabularies(NULL, NULL);
    save("model.safetensors", "af63dc4c8601ec8c 85944171f73967e8");
    write_text("vocab.source.model", "a");
    write_text("vocab.target.model", "foobar");
    expect_vocabularies("vocab.source.model", "vocab.target.model");
    write_text("vocab.source.model", "b");
    expect_refused(folder, WEFT_BAD_ARGUMENT, in_folder("vocab.source.model"), "is not the");
    remove_all();
}

/* A store that differs from the model that it names. */
static void test_wrong_tensors(void)
{
    weft_params *params = make_params(NULL);
    weft_model_config config;
    weft_error error;
    weft_tensor t;
    CU_ASSERT_EQUAL(weft_saved_config(params, "store", &config, &error), WEFT_OK);
    CU_ASSERT_EQUAL(config.model, weft_model_find("gpt"));
    CU_ASSERT_EQUAL(weft_params_add(params, "more", WEFT_F32, WEFT_SHAPE(2), &t, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_saved_config(params, "store", &config, &error), WEFT_BAD_FILE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "more"));
    weft_params_set_meta(params, "model_options", OPTIONS " size=3", NULL);
    CU_ASSERT_EQUAL(weft_saved_config(params, "store", &config, &error), WEFT_NOT_FOUND);
    weft_params_set_meta(params, "model", "none", NULL);
    CU_ASSERT_EQUAL(weft_saved_config(params, "store", &config, &error), WEFT_BAD_FILE);
    CU_ASSERT_STRING_EQUAL(error.message, "does not name its model");
    weft_params_free(params);
    params = weft_params_new();
    weft_params_set_meta(params, "model", "gpt", NULL);
    weft_params_set_meta(params, "model_options", OPTIONS, NULL);
    CU_ASSERT_EQUAL(weft_saved_config(params, "store", &config, &error), WEFT_BAD_FILE);
    CU_ASSERT_STRING_EQUAL(error.where, "store");
    weft_params_free(params);
}

static void test_quantized(void)
{
    weft_params *params = make_params(NULL);
    weft_model_config config;
    weft_graph *g = weft_graph_new();
    const weft_quantize_options o = {.bits = 8, .group = 32};
    CU_ASSERT_EQUAL(weft_saved_config(params, "store", &config, NULL), WEFT_OK);
    weft_model_build(g, &config);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
    weft_params *small = weft_params_quantize(params, g, &o, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(small);
    CU_ASSERT_TRUE(weft_params_are_quantized(small));
    CU_ASSERT_EQUAL(weft_saved_config(small, "store", &config, NULL), WEFT_OK);
    weft_params_free(small);
    weft_params_free(params);
    weft_graph_free(g);
}

void saved_tests(void)
{
    CU_pSuite suite = CU_add_suite("saved", make_folder, remove_folder);
    CU_add_test(suite, "which checkpoint", test_which_checkpoint);
    CU_add_test(suite, "vocabularies", test_vocabularies);
    CU_add_test(suite, "wrong tensors", test_wrong_tensors);
    CU_add_test(suite, "quantised", test_quantized);
}
