/* Hostile files of every kind that weft reads, without a fuzzer: the inputs of tests/fuzz/corpus,
 * files that end early, and files with a few other bytes. */
#include "fuzz/kinds.h"
#include "tests.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many files of each kind are made from the corpus, each way. */
#define MAX_CHANGED (TEST_SANITIZED ? 5000 : 20000)
#define MAX_BYTES   65536

static char folder[64];

static int make_folder(void)
{
    return fuzz_make_folder(folder, sizeof folder);
}

static int remove_folder(void)
{
    fuzz_remove_folder(folder);
    return 0;
}

/* One kind, its corpus and the file that is read. */
typedef struct corpus {
    const fuzz_kind *kind;
    const char *name;
    struct dirent **entries;
    int n;
    uint8_t data[MAX_BYTES];
    size_t bytes;
} corpus;

static void check(const corpus *c, int input, const uint8_t *data, size_t bytes, const char *how)
{
    const char *broken = c->kind->check(folder, data, bytes);
    if (broken)
        fprintf(stderr, "\n    %s/%s, %s: %s\n", c->name, c->entries[input]->d_name, how, broken);
    CU_ASSERT_PTR_NULL(broken);
}

static int is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void read_input(corpus *c, int input)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s/%s", WEFT_SOURCE_DIR, c->name,
             c->entries[input]->d_name);
    FILE *file = fopen(path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    c->bytes = fread(c->data, 1, sizeof c->data, file);
    fclose(file);
    CU_ASSERT_TRUE_FATAL(c->bytes < sizeof c->data);
}

/* Every length of some of the inputs. */
static void check_cut(corpus *c)
{
    long total = 0;
    for (int i = 0; i < c->n; i++) {
        read_input(c, i);
        total += (long)c->bytes;
    }
    const int step = 1 + (int)(total / MAX_CHANGED);
    for (int i = 0; i < c->n; i += step) {
        read_input(c, i);
        for (size_t n = 0; n < c->bytes; n++) check(c, i, c->data, n, "cut off");
    }
}

/* Overwrites, removes or repeats some bytes. */
static void change(corpus *c, uint64_t *random)
{
    const size_t at = test_random(random) % c->bytes, rest = c->bytes - at;
    const size_t n = 1 + test_random(random) % (rest < 8 ? rest : 8);
    switch (test_random(random) % 4) {
    case 0:
        c->data[at] ^= (uint8_t)(1 << test_random(random) % 8);
        break;
    case 1:
        for (size_t i = 0; i < n; i++) c->data[at + i] = (uint8_t)test_random(random);
        break;
    case 2:
        memmove(c->data + at, c->data + at + n, rest - n);
        c->bytes -= n;
        break;
    default:
        if (c->bytes + n >= sizeof c->data) break;
        memmove(c->data + at + n, c->data + at, rest);
        c->bytes += n;
    }
}

static void check_changed(corpus *c)
{
    uint64_t random = 1;
    for (int k = 0; k < MAX_CHANGED; k++) {
        const int input = (int)(test_random(&random) % (uint64_t)c->n);
        read_input(c, input);
        for (uint64_t times = 1 + test_random(&random) % 3; times && c->bytes; times--)
            change(c, &random);
        check(c, input, c->data, c->bytes, "changed");
    }
}

static void check_kind(const char *name)
{
    static corpus c;
    char path[1024];
    c = (corpus){.kind = fuzz_kind_find(name), .name = name};
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s", WEFT_SOURCE_DIR, name);
    c.n = scandir(path, &c.entries, is_input, alphasort);
    CU_ASSERT_TRUE_FATAL(c.kind && c.n > 0);
    for (int i = 0; i < c.n; i++) {
        read_input(&c, i);
        check(&c, i, c.data, c.bytes, "as it is");
    }
    check_cut(&c);
    check_changed(&c);
    for (int i = 0; i < c.n; i++) free(c.entries[i]);
    free(c.entries);
}

static void test_npy(void)
{
    check_kind("npy");
}

static void test_npz(void)
{
    check_kind("npz");
}

static void test_safetensors(void)
{
    check_kind("safetensors");
}

static void test_gguf(void)
{
    check_kind("gguf");
}

static void test_peft(void)
{
    check_kind("peft");
}

static void test_recipe(void)
{
    check_kind("recipe");
}

static void test_tokenizer(void)
{
    if (fuzz_kind_find("tokenizer")) check_kind("tokenizer");
}

static void test_chat(void)
{
    if (fuzz_kind_find("chat")) check_kind("chat");
}

static void test_schema(void)
{
    if (fuzz_kind_find("schema")) check_kind("schema");
}

static void test_onnx(void)
{
    check_kind("onnx");
}

void hostile_tests(void)
{
    CU_pSuite suite = CU_add_suite("hostile", make_folder, remove_folder);
    CU_add_test(suite, "NumPy arrays", test_npy);
    CU_add_test(suite, "archives of arrays", test_npz);
    CU_add_test(suite, "safetensors", test_safetensors);
    CU_add_test(suite, "GGUF models", test_gguf);
    CU_add_test(suite, "configurations of adapters", test_peft);
    CU_add_test(suite, "recipes", test_recipe);
    CU_add_test(suite, "tokenisers", test_tokenizer);
    CU_add_test(suite, "chat templates", test_chat);
    CU_add_test(suite, "JSON Schemas", test_schema);
    CU_add_test(suite, "ONNX models", test_onnx);
}
