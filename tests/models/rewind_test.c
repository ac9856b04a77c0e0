/* Decoders that read at any time and are rewound: the same bits as token steps of a new decoder. */
#include "subject.h"
#include "tests.h"

#include <weft/decode.h>

#include <stdlib.h>
#include <string.h>

enum { SENTENCES = 2, LENGTH = 40, VOCAB = 13, SOURCE_LEN = 5 };

/* A small model, with one more option or NULL; false after a failed check. */
static bool make_small(subject *s, const char *name, const char *option)
{
    const bool attends = strcmp(name, "lstm") != 0 && strcmp(name, "seq2seq") != 0;
    const char *const options[] = {"vocab=13", attends ? "d_model=64" : "width=8",
                                   attends ? "heads=4" : "hidden=8", option};
    return make_subject(s, name, options, option ? 4 : 3);
}

typedef float logits[LENGTH][SENTENCES][VOCAB];

typedef struct reader {
    weft_decoder *d;
    int32_t tokens[SENTENCES][LENGTH];
    int64_t beams;
    logits got; /* of the positions that were steps */
    bool stepped[LENGTH];
} reader;

static void start(reader *r)
{
    static const int32_t source[SENTENCES][SOURCE_LEN] = {{3, 1, 4, 1, 5}, {9, 2, 6, 5, 3}};
    const int32_t *const sources[SENTENCES] = {source[0], source[1]};
    const size_t lengths[SENTENCES] = {SOURCE_LEN, SOURCE_LEN - 2};
    CU_ASSERT_EQUAL_FATAL(weft_decoder_start(r->d, sources, lengths, SENTENCES, NULL), WEFT_OK);
    memset(r->stepped, 0, sizeof r->stepped);
}

static void open_reader(reader *r, const subject *s, int64_t beams, weft_dtype cache,
                        bool recompute)
{
    const weft_decoder_options o = {.sentences = SENTENCES,
                                    .beams = beams,
                                    .max_len = LENGTH,
                                    .max_source_len = SOURCE_LEN,
                                    .cache = cache,
                                    .recompute = recompute,
                                    .session.threads = 2};
    weft_error error;
    r->beams = beams;
    r->d = weft_decoder_new(&s->config, s->params, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->d);
    start(r);
}

static void draw_tokens(reader *r, uint64_t seed, int from)
{
    for (int i = 0; i < SENTENCES; i++)
        for (int at = from; at < LENGTH; at++)
            r->tokens[i][at] = 1 + (int32_t)(test_random(&seed) % (VOCAB - 1));
}

/* Steps to a position. */
static void step_to(reader *r, int64_t end)
{
    for (int64_t at = weft_decoder_info_of(r->d).position; at < end; at++) {
        int32_t fed[2 * SENTENCES];
        weft_tensor t;
        for (int64_t i = 0; i < SENTENCES * r->beams; i++) fed[i] = r->tokens[i / r->beams][at];
        CU_ASSERT_EQUAL_FATAL(weft_decoder_step(r->d, fed, NULL, NULL), WEFT_OK);
        CU_ASSERT_TRUE_FATAL(weft_decoder_logits(r->d, &t));
        for (int64_t i = 0; i < SENTENCES; i++)
            memcpy(r->got[at][i], (const float *)t.data + i * r->beams * t.stride[0],
                   sizeof r->got[at][i]);
        r->stepped[at] = true;
    }
}

static weft_status read_to(reader *r, int64_t end, weft_error *error)
{
    const int64_t at = weft_decoder_info_of(r->d).position, n = end - at;
    int32_t chunk[SENTENCES * LENGTH];
    for (int i = 0; i < SENTENCES; i++)
        for (int64_t k = 0; k < n; k++) chunk[i * n + k] = r->tokens[i][at + k];
    const weft_status status = weft_decoder_read(r->d, chunk, (size_t)n, error);
    weft_tensor t;
    CU_ASSERT_FALSE(status == WEFT_OK && weft_decoder_logits(r->d, &t));
    return status;
}

/* Reads and steps by turns, up to the end. */
static void read_and_step(reader *r)
{
    static const int turns[] = {1, 2, 7, 3, 5, 1, 9, 4};
    for (size_t i = 0;; i++) {
        const int64_t at = weft_decoder_info_of(r->d).position;
        if (at >= LENGTH - 10) break;
        if (i % 2)
            step_to(r, at + turns[i % 8]);
        else
            CU_ASSERT_EQUAL(read_to(r, at + turns[i % 8], NULL), WEFT_OK);
    }
    step_to(r, LENGTH);
}

/* Every step of r has the bits of those of a new decoder that steps all tokens. */
static void expect_as_new(const reader *r, const subject *s, weft_dtype cache, bool recompute)
{
    static reader fresh;
    int compared = 0;
    memset(&fresh, 0, sizeof fresh);
    memcpy(fresh.tokens, r->tokens, sizeof fresh.tokens);
    open_reader(&fresh, s, 1, cache, recompute);
    step_to(&fresh, LENGTH);
    for (int at = 0; at < LENGTH; at++)
        if (r->stepped[at]) {
            CU_ASSERT_EQUAL(memcmp(r->got[at], fresh.got[at], sizeof fresh.got[at]), 0);
            compared++;
        }
    CU_ASSERT(compared >= 10);
    weft_decoder_free(fresh.d);
}

static const struct {
    const char *model, *option;
    weft_dtype cache;
    bool recompute;
} cases[] = {
    {"gpt", NULL, WEFT_F32, false},           {"gpt", NULL, WEFT_F32, true},
    {"gpt", NULL, WEFT_BF16, false},          {"llama", "kv_heads=2", WEFT_U8, false},
    {"llama", "kv_heads=1", WEFT_F32, false}, {"llama", "window=3", WEFT_F32, false},
    {"transformer", NULL, WEFT_F32, false},   {"transformer", NULL, WEFT_BF16, false},
};

static void test_rewinding(void)
{
    static reader r;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool whole = cases[i].recompute;
        subject s;
        if (!make_small(&s, cases[i].model, cases[i].option)) continue;
        memset(&r, 0, sizeof r);
        draw_tokens(&r, 3 + i, 0);
        open_reader(&r, &s, 1, cases[i].cache, whole);
        read_and_step(&r);
        expect_as_new(&r, &s, cases[i].cache, whole);
        /* Other tokens from some position on; 33 is beyond the first length of keys. */
        static const int positions[] = {33, 17, 1, 0};
        for (int k = 0; k < 4; k++) {
            weft_tensor t;
            CU_ASSERT_EQUAL(weft_decoder_rewind(r.d, LENGTH, NULL), WEFT_OK);
            CU_ASSERT_TRUE(weft_decoder_logits(r.d, &t)); /* nothing was forgotten */
            CU_ASSERT_EQUAL(weft_decoder_rewind(r.d, positions[k], NULL), WEFT_OK);
            CU_ASSERT_FALSE(weft_decoder_logits(r.d, &t));
            CU_ASSERT_EQUAL(weft_decoder_info_of(r.d).position, positions[k]);
            for (int at = positions[k]; at < LENGTH; at++) r.stepped[at] = false;
            draw_tokens(&r, 50 + (uint64_t)k, positions[k]);
            if (k % 2) step_to(&r, LENGTH - 2);
            read_and_step(&r);
            step_to(&r, LENGTH);
            expect_as_new(&r, &s, cases[i].cache, whole);
        }
        weft_error error;
        CU_ASSERT_EQUAL(weft_decoder_rewind(r.d, LENGTH + 1, &error), WEFT_BAD_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "it has read 40 tokens"));
        CU_ASSERT_EQUAL(weft_decoder_rewind(r.d, 0, NULL), WEFT_BAD_ARGUMENT); /* until a start */
        start(&r);
        CU_ASSERT_EQUAL(weft_decoder_rewind(r.d, -1, NULL), WEFT_BAD_ARGUMENT);
        weft_decoder_free(r.d);
        weft_params_free(s.params);
    }
    CU_ASSERT_EQUAL(weft_decoder_rewind(NULL, 0, NULL), WEFT_BAD_ARGUMENT);
}

/* Recurrent models read at any time; only without their states can they be rewound. */
static void test_recurrent(void)
{
    static const char *const names[] = {"lstm", "seq2seq"};
    static reader r;
    for (int i = 0; i < 4; i++) {
        const bool whole = i / 2;
        weft_error error;
        subject s;
        if (!make_small(&s, names[i % 2], NULL)) continue;
        memset(&r, 0, sizeof r);
        draw_tokens(&r, 5, 0);
        open_reader(&r, &s, 1, WEFT_F32, whole);
        read_and_step(&r);
        expect_as_new(&r, &s, WEFT_F32, whole);
        CU_ASSERT_EQUAL(weft_decoder_rewind(r.d, LENGTH, NULL), WEFT_OK);
        if (whole) {
            CU_ASSERT_EQUAL(weft_decoder_rewind(r.d, 8, NULL), WEFT_OK);
            draw_tokens(&r, 6, 8);
            step_to(&r, LENGTH);
            expect_as_new(&r, &s, WEFT_F32, true);
        } else {
            CU_ASSERT_EQUAL(weft_decoder_rewind(r.d, 8, &error), WEFT_BAD_ARGUMENT);
            CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "recurrent states"));
        }
        weft_decoder_free(r.d);
        weft_params_free(s.params);
    }
}

/* With several beams, tokens are read at once while the rows of a sentence have read the same. */
static void test_beams(void)
{
    static reader r;
    for (int whole = 0; whole < 2; whole++) {
        weft_error error;
        weft_tensor t;
        subject s;
        if (!make_small(&s, "gpt", NULL)) return;
        memset(&r, 0, sizeof r);
        draw_tokens(&r, 8, 0);
        open_reader(&r, &s, 2, WEFT_F32, whole);
        const weft_search_model search = weft_decoder_search_model(r.d);
        const int32_t parents[4] = {0, 1, 2, 3};
        CU_ASSERT_EQUAL(read_to(&r, 5, NULL), WEFT_OK);
        if (!whole) { /* a step of a search, whose rows agree */
            const int32_t same[4] = {r.tokens[0][5], r.tokens[0][5], r.tokens[1][5],
                                     r.tokens[1][5]};
            CU_ASSERT_EQUAL(search.step(search.context, same, parents, &t, NULL), WEFT_OK);
            CU_ASSERT_EQUAL(read_to(&r, 9, NULL), WEFT_OK);
        }
        step_to(&r, 20);
        CU_ASSERT_EQUAL(weft_decoder_rewind(r.d, 12, NULL), WEFT_OK);
        step_to(&r, LENGTH);
        expect_as_new(&r, &s, WEFT_F32, whole);
        CU_ASSERT_EQUAL(weft_decoder_rewind(r.d, 0, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(read_to(&r, 9, NULL), WEFT_OK); /* all rows agree again */
        step_to(&r, 20);
        CU_ASSERT_EQUAL(read_to(&r, 21, &error), WEFT_BAD_ARGUMENT);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "several beams"));
        weft_decoder_free(r.d);
        weft_params_free(s.params);
    }
}

void rewind_tests(void)
{
    CU_pSuite suite = CU_add_suite("rewind", NULL, NULL);
    CU_add_test(suite, "reading at any time and rewinding change no bit", test_rewinding);
    CU_add_test(suite, "recurrent models", test_recurrent);
    CU_add_test(suite, "several beams", test_beams);
}
