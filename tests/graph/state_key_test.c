/* Keys of states: their texts, hostile texts, and the kinds that optimisers declare. */
#include "tests.h"

#include <limits.h>
#include <string.h>

#define WHOLE                                                                                      \
    {                                                                                              \
        0, INT64_MAX, INT64_MAX, INT64_MAX, 0                                                      \
    }
#define CUT(a, b)                                                                                  \
    true,                                                                                          \
    {                                                                                              \
        a, b, INT64_MAX, INT64_MAX, 0                                                              \
    }
#define PARAM(name) NULL, name, sizeof name - 1

static bool same_piece(const weft_piece *a, const weft_piece *b)
{
    return a->first == b->first && a->end == b->end && a->length == b->length &&
           a->stride == b->stride && a->offset == b->offset;
}

/* The texts of keys. Files have them, so they do not change. */
static void test_texts(void)
{
    static const struct {
        const char *text;
        weft_state_key key;
    } cases[] = {
        {"w", {WEFT_STATE_MODEL, PARAM("w"), 0, false, WHOLE}},
        {"layer.0.w[3]", {WEFT_STATE_MODEL, PARAM("layer.0.w[3]"), 0, false, WHOLE}},
        {"w[5:12]", {WEFT_STATE_MODEL, PARAM("w"), 0, CUT(5, 12)}},
        {"opt.m.a.b", {WEFT_STATE_MOMENT_1, PARAM("a.b"), 0, false, WHOLE}},
        {"opt.v.m.a", {WEFT_STATE_MOMENT_2, PARAM("m.a"), 0, false, WHOLE}},
        {"opt.buf.a", {WEFT_STATE_MOMENTUM, PARAM("a"), 0, false, WHOLE}},
        {"opt.m.a[3][16384:20000]", {WEFT_STATE_MOMENT_1, PARAM("a[3]"), 0, CUT(16384, 20000)}},
        {"opt.v.a[3:9]@4,8,2", {WEFT_STATE_MOMENT_2, PARAM("a"), 0, true, {3, 9, 4, 8, 2}}},
        {"opt.step", {WEFT_STATE_COUNTER, NULL, "", 0, 0, false, WHOLE}},
        {"sum.a", {WEFT_STATE_SUM, PARAM("a"), WEFT_RUNNING_SUM, false, WHOLE}},
        {"sum@0.a", {WEFT_STATE_SUM, PARAM("a"), 0, false, WHOLE}},
        {"sum@12.a[0:0]", {WEFT_STATE_SUM, PARAM("a"), 12, CUT(0, 0)}},
        {"ema.opt.m.a", {WEFT_STATE_AVERAGE, PARAM("opt.m.a"), 0, false, WHOLE}},
    };
    char text[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const weft_state_key key = weft_state_key_read(cases[i].text), *want = &cases[i].key;
        CU_ASSERT_STRING_EQUAL(weft_state_key_write(want, text, sizeof text), cases[i].text);
        CU_ASSERT_TRUE(weft_state_key_same(&key, want) && key.slot == want->slot);
        CU_ASSERT_EQUAL(key.is_piece, want->is_piece);
        CU_ASSERT_TRUE(same_piece(&key.piece, &want->piece));
    }
}

/* Whether a key that was read makes the same text again. */
static bool is_same_again(const char *text)
{
    char again[256];
    const weft_state_key key = weft_state_key_read(text);
    return !strcmp(weft_state_key_write(&key, again, sizeof again), text);
}

/* Texts that are nearly those of keys: the model's, or of unknown kind. */
static void test_hostile_texts(void)
{
    static const char *const pieces[] = {
        "a[3]",
        "a[3:2]",
        "a[3:9]x",
        "a[3:9]@",
        "a[3:9]@4,8",
        "a[3:9]@0,8,0",
        "a[3:9]@4,8,5",
        "a[3:9]@4,3,0",
        "a[-3:9]",
        "a[3:9]@4,8,-1",
        "a[3:9]@4,8,0,",
        "a[3:9]@4,8,0,1",
        "a[ 3:9]",
        "a[+3:9]",
        "a[03:9]",
        "a[3:9]@4,8,0 x",
        "a[3:9] ",
        "a[0x3:9]",
        "[3:9]",
        "a[99999999999999999999:9]",
        "a[3:9]@4,8,02",
        "a[3:9]@4, 8,0",
        "a[:9]",
        "a[3:]",
        "[",
        "a[0:9]@1,9223372036854775807,0",
        "a[0:9]@9223372036854775807,9223372036854775807,0",
    };
    static const char *const unknown[] = {
        "opt.",      "opt.m",  "opt.m.",  "opt.q.a",  "opt.steps", "opt.step[0:1]",
        "sum.",      "sum@",   "sum@.a",  "sum@-1.a", "sum@01.a",  "sum@2147483648.a",
        "sum@3",     "sum@3.", "sum@x.a", "sum@ 1.a", "ema.",      "sum@4294967296.a",
        "opt.m[0:3]"};
    static const char *const model[] = {"",           "opt", "sum",   "ema",     "optimizer.m.w",
                                        "sums.a",     ".",   "emb.a", "OPT.m.a", "critic.m.a",
                                        "critic.step"};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        const weft_state_key key = weft_state_key_read(pieces[i]);
        CU_ASSERT_TRUE(!key.is_piece && key.piece.end == INT64_MAX);
        CU_ASSERT_EQUAL(key.kind, WEFT_STATE_MODEL);
        CU_ASSERT_TRUE(is_same_again(pieces[i]));
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        CU_ASSERT_EQUAL(weft_state_key_read(unknown[i]).kind, WEFT_STATE_UNKNOWN);
        CU_ASSERT_TRUE(is_same_again(unknown[i]));
    }
    for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
        CU_ASSERT_EQUAL(weft_state_key_read(model[i]).kind, WEFT_STATE_MODEL);
        CU_ASSERT_TRUE(is_same_again(model[i]));
    }
    CU_ASSERT_EQUAL(weft_state_key_read(NULL).kind, WEFT_STATE_MODEL);
}

/* Whatever pieces of texts are put together. */
static void test_random_texts(void)
{
    static const char *const parts[] = {"opt.",
                                        "m.",
                                        "v.",
                                        "buf.",
                                        "step",
                                        "sum",
                                        "@",
                                        "ema.",
                                        ".",
                                        "[0",
                                        ":7]",
                                        "[",
                                        "]",
                                        ":",
                                        "@4,8,",
                                        ",",
                                        "0",
                                        "7",
                                        "12",
                                        "-",
                                        " ",
                                        "w",
                                        "9223372036854775807"};
    uint64_t seed = 1;
    size_t n_kinds[WEFT_STATE_UNKNOWN + 1] = {0}, n_pieces = 0;
    for (int i = 0; i < 200000; i++) {
        char text[256] = "";
        const size_t n = test_random(&seed) % 12;
        for (size_t k = 0; k < n; k++)
            strcat(text, parts[test_random(&seed) % (sizeof parts / sizeof *parts)]);
        const weft_state_key key = weft_state_key_read(text);
        n_kinds[key.kind]++;
        n_pieces += key.is_piece;
        if (!is_same_again(text)) CU_FAIL_FATAL("a text is not the same again");
    }
    for (int k = 0; k <= WEFT_STATE_UNKNOWN; k++) CU_ASSERT_TRUE(n_kinds[k] > 0);
    CU_ASSERT_TRUE(n_pieces > 0);
}

static void test_writing(void)
{
    weft_state_key key = {WEFT_STATE_MOMENT_1, "critic", "abc", 2, 0, false, WHOLE};
    char text[12] = "before";
    CU_ASSERT_STRING_EQUAL(weft_state_key_write(&key, text, sizeof text), "critic.m.ab");
    CU_ASSERT_EQUAL(weft_state_key_read(text).kind, WEFT_STATE_MODEL);
    key.param_bytes = 3;
    CU_ASSERT_STRING_EQUAL(weft_state_key_write(&key, text, sizeof text), "");
    key.kind = (weft_state_kind)99;
    CU_ASSERT_STRING_EQUAL(weft_state_key_write(&key, text, sizeof text), "");
    CU_ASSERT_STRING_EQUAL(weft_state_key_write(NULL, text, sizeof text), "");
    CU_ASSERT_PTR_NULL(weft_state_key_write(&key, NULL, 0));
}

static void test_comparing(void)
{
    static const char *const texts[] = {"w",     "v",       "opt.m.w", "opt.v.w", "opt.m.w.x",
                                        "sum.w", "sum@0.w", "sum@1.w", "ema.w",   "opt.step"};
    enum { N = sizeof texts / sizeof *texts };
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < N; k++) {
            const weft_state_key a = weft_state_key_read(texts[i]),
                                 b = weft_state_key_read(texts[k]);
            CU_ASSERT_EQUAL(weft_state_key_same(&a, &b), i == k);
        }
    const weft_state_key a = weft_state_key_read("opt.m.w[0:4]"),
                         b = weft_state_key_read("opt.m.w");
    CU_ASSERT_TRUE(weft_state_key_same(&a, &b));
    CU_ASSERT_FALSE(weft_state_key_same(&a, NULL));
}

/* A store knows the keys of its tensors, also when it shares them. */
static void test_stores(void)
{
    weft_params *store = weft_params_new(), *other = weft_params_new();
    weft_params_add(store, "w", WEFT_F32, WEFT_SHAPE(2), NULL, NULL);
    weft_params_add(store, "opt.v.w[0:1]", WEFT_F32, WEFT_SHAPE(1), NULL, NULL);
    CU_ASSERT_EQUAL(weft_params_share(other, store, NULL), WEFT_OK);
    weft_params_free(other);
    CU_ASSERT_EQUAL(weft_params_key(store, 0).kind, WEFT_STATE_MODEL);
    const weft_state_key key = weft_params_key(store, 1);
    CU_ASSERT_TRUE(key.kind == WEFT_STATE_MOMENT_2 && key.is_piece && key.param_bytes == 1);
    CU_ASSERT_PTR_NULL(weft_params_key(store, 2).param);
    weft_params_free(store);
}

/* A store's hash: FNV-1a of "w", 0, 1.5 and -0 as f32, "n", 0, and -7, computed outside. States of training and
 * payloads of NaN do not change it. */
static void test_hash(void)
{
    weft_params *store = weft_params_new();
    weft_tensor w, n, moment;
    weft_params_add(store, "w", WEFT_F32, WEFT_SHAPE(2), &w, NULL);
    weft_params_add(store, "opt.v.w", WEFT_F32, WEFT_SHAPE(2), &moment, NULL);
    weft_params_add(store, "n", WEFT_I32, WEFT_SCALAR, &n, NULL);
    memcpy(w.data, (const float[]){1.5f, -0.0f}, 8);
    memcpy(n.data, &(int32_t){-7}, 4);
    CU_ASSERT_EQUAL(weft_params_hash(store), 0xe751f62e70c0d5a7u);
    *(float *)moment.data = 1;
    CU_ASSERT_EQUAL(weft_params_hash(store), 0xe751f62e70c0d5a7u);
    ((float *)w.data)[1] = 0;
    CU_ASSERT_NOT_EQUAL(weft_params_hash(store), 0xe751f62e70c0d5a7u);
    memcpy(w.data, &(uint32_t){0x7fc00001}, 4);
    const uint64_t quiet = weft_params_hash(store);
    memcpy(w.data, &(uint32_t){0xffffffff}, 4);
    CU_ASSERT_EQUAL(weft_params_hash(store), quiet);
    weft_params_free(store);
}

/* The states that an optimiser declares for a parameter "w", as letters of their kinds. */
static const char *declared(const weft_optimizer *o, char letters[8])
{
    static const char of_kind[] = "-12bc";
    weft_graph *g = weft_graph_new();
    const weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ONES);
    const weft_value loss = weft_sum(g, weft_square(g, w), WEFT_ALL_AXES, false);
    weft_train_update(g, loss, NULL, 0, weft_input(g, "lr", WEFT_F32, WEFT_SCALAR), o, NULL);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
    size_t n;
    const weft_value *states = weft_graph_states(g, &n);
    CU_ASSERT_TRUE_FATAL(n <= 8);
    memset(letters, 0, 8);
    for (size_t i = 1; i < n; i++) {
        const weft_state_key key = weft_state_key_read(weft_name_of(g, states[i]));
        letters[i - 1] = of_kind[key.kind];
        CU_ASSERT_TRUE(key.kind == WEFT_STATE_COUNTER || !strcmp(key.param, "w"));
    }
    weft_graph_free(g);
    return letters;
}

static void test_optimizers(void)
{
    char letters[8];
    CU_ASSERT_STRING_EQUAL(declared(&(weft_optimizer){.kind = WEFT_SGD}, letters), "");
    CU_ASSERT_STRING_EQUAL(
        declared(&(weft_optimizer){.kind = WEFT_SGD, .sgd = {.momentum = 0.9}}, letters), "b");
    CU_ASSERT_STRING_EQUAL(declared(&(weft_optimizer){.kind = WEFT_ADAM}, letters), "c12");
    CU_ASSERT_STRING_EQUAL(declared(&(weft_optimizer){.kind = WEFT_ADAGRAD}, letters), "2");
    CU_ASSERT_STRING_EQUAL(declared(&(weft_optimizer){.kind = WEFT_RMSPROP,
                                                      .rms = {.momentum = 0.9, .centered = true}},
                                    letters),
                           "21b");
    CU_ASSERT_STRING_EQUAL(declared(&(weft_optimizer){.kind = WEFT_LAMB}, letters), "c12");
}

void state_key_tests(void)
{
    CU_pSuite suite = CU_add_suite("state_key", NULL, NULL);
    CU_add_test(suite, "texts of keys", test_texts);
    CU_add_test(suite, "hostile texts", test_hostile_texts);
    CU_add_test(suite, "random texts", test_random_texts);
    CU_add_test(suite, "writing", test_writing);
    CU_add_test(suite, "comparing", test_comparing);
    CU_add_test(suite, "keys of a store", test_stores);
    CU_add_test(suite, "hash of a store", test_hash);
    CU_add_test(suite, "states of optimisers", test_optimizers);
}
