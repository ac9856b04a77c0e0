/* The decoder: steps over caches against whole passes, what a step costs, sentences that do not
 * depend on each other. */
#include "made_up.h"
#include "subject.h"
#include "tests.h"

#include <weft/decode.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double real_at(const weft_tensor *t, int64_t i)
{
    return t->dtype == WEFT_F64 ? ((const double *)t->data)[i] : ((const float *)t->data)[i];
}

/* Logits [rows, length, vocab] of a whole pass, in double precision. */
static double *whole_pass(subject *s, const int32_t *source, int64_t source_len,
                          const int32_t *tokens, int64_t rows, int64_t length)
{
    weft_graph *g = weft_graph_new();
    weft_built built;
    weft_error error = {0};
    s->config.build.shape = (weft_batch_shape){rows, source ? source_len : 0, length};
    built = weft_model_build(g, &s->config);
    weft_plan *plan = weft_plan_new(g, &built.outputs[0], 1, NULL, &error);
    weft_session *run = plan ? weft_session_new(plan, s->params, NULL, &error) : NULL;
    weft_tensor t;
    double *out = NULL;
    if (run) {
        weft_session_feed(run, weft_built_input(&built, "target_in"), tokens,
                          (size_t)(rows * length) * sizeof *tokens, NULL);
        if (weft_is_value(weft_built_input(&built, "source")))
            weft_session_feed(run, weft_built_input(&built, "source"), source,
                              (size_t)(rows * source_len) * sizeof *source, NULL);
        if (weft_session_run(run, NULL) == WEFT_OK &&
            weft_session_tensor(run, built.outputs[0], &t, NULL) == WEFT_OK) {
            int64_t n = weft_shape_numel(t.shape);
            out = malloc((size_t)n * sizeof *out);
            for (int64_t i = 0; i < n; i++) out[i] = real_at(&t, i);
        }
    }
    if (!out) CU_FAIL(error.message);
    weft_session_free(run);
    weft_plan_free(plan);
    weft_graph_free(g);
    return out;
}

/* ---- Steps against whole passes ---- */

#define SENTENCES  2
#define BEAMS      3
#define ROWS       (SENTENCES * BEAMS)
#define LENGTH     40
#define SOURCE_LEN 9
#define VOCAB      13

static double worst_step_error(subject *s, bool recompute, weft_dtype cache)
{
    uint64_t random = 5;
    weft_error error = {0};
    weft_decoder_options o = {.sentences = SENTENCES,
                              .beams = BEAMS,
                              .max_len = LENGTH,
                              .max_source_len = SOURCE_LEN,
                              .session.threads = 2,
                              .recompute = recompute,
                              .cache = cache};
    weft_decoder *d = weft_decoder_new(&s->config, s->params, &o, &error);
    if (!d) {
        CU_FAIL(error.message);
        return INFINITY;
    }
    int32_t sources[SENTENCES][SOURCE_LEN], repeated[ROWS * SOURCE_LEN];
    const int32_t *starts[SENTENCES];
    size_t lengths[SENTENCES];
    for (int i = 0; i < SENTENCES; i++) {
        starts[i] = sources[i];
        lengths[i] = (size_t)(SOURCE_LEN - 3 * i);
        for (int j = 0; j < SOURCE_LEN; j++)
            sources[i][j] =
                j < SOURCE_LEN - 3 * i ? 1 + (int32_t)(test_random(&random) % (VOCAB - 1)) : 0;
    }
    for (int row = 0; row < ROWS; row++)
        memcpy(repeated + row * SOURCE_LEN, sources[row / BEAMS], sizeof sources[0]);
    static int32_t tokens[ROWS][LENGTH], old_tokens[ROWS][LENGTH];
    static double logits[ROWS][LENGTH][VOCAB], old_logits[ROWS][LENGTH][VOCAB];
    bool good = weft_decoder_start(d, starts, lengths, SENTENCES, NULL) == WEFT_OK;
    for (int at = 0; good && at < LENGTH; at++) {
        int32_t fed[ROWS], parents[ROWS];
        weft_tensor t;
        memcpy(old_tokens, tokens, sizeof tokens);
        memcpy(old_logits, logits, sizeof logits);
        for (int row = 0; row < ROWS; row++) {
            parents[row] = (int32_t)(row / BEAMS * BEAMS + (int)(test_random(&random) % BEAMS));
            memcpy(tokens[row], old_tokens[parents[row]], sizeof tokens[row]);
            memcpy(logits[row], old_logits[parents[row]], sizeof logits[row]);
            tokens[row][at] = fed[row] = 1 + (int32_t)(test_random(&random) % (VOCAB - 1));
        }
        good = weft_decoder_step(d, fed, at ? parents : NULL, &error) == WEFT_OK &&
               weft_decoder_logits(d, &t);
        if (!at) /* without parents each row continues itself */
            for (int row = 0; row < ROWS; row++) tokens[row][0] = fed[row];
        for (int row = 0; good && row < ROWS; row++)
            for (int i = 0; i < VOCAB; i++) logits[row][at][i] = real_at(&t, row * VOCAB + i);
    }
    CU_ASSERT_TRUE(good);
    if (!good) CU_FAIL(error.message);
    CU_ASSERT_EQUAL(weft_decoder_info_of(d).has_steps, !recompute && s->config.model->step != NULL);
    weft_decoder_free(d);
    double *whole = whole_pass(s, repeated, SOURCE_LEN, &tokens[0][0], ROWS, LENGTH), worst = 0;
    for (int64_t i = 0; whole && i < ROWS * LENGTH * VOCAB; i++) {
        double e = fabs(whole[i] - (&logits[0][0][0])[i]);
        if (!(e <= worst)) worst = e;
    }
    free(whole);
    return good ? worst : INFINITY;
}

/* Options of a small model; returns how many. */
static size_t sizes_of(const char *name, const char **texts)
{
    static const char *const of_attention[] = {"d_model=16", "heads=4", "d_ff=24",
                                               "max_positions=48"};
    static const char *const recurrent[] = {"width=8", "hidden=8"};
    bool attends = weft_model_find(name)->n_options &&
                   strcmp(weft_model_find(name)->options[1].name, "d_model") == 0;
    memcpy(texts, attends ? of_attention : recurrent,
           attends ? sizeof of_attention : sizeof recurrent);
    return attends ? 4 : 2;
}

static void test_steps(void)
{
    static const struct {
        const char *model, *options[8];
    } cases[] = {
        {"transformer", {"norm=pre"}},
        {"transformer", {"norm=post", "tied=0"}},
        {"transformer", {"norm=post-dropped", "positions=learned"}},
        {"transformer", {"projection=shared", "positions=none", "attention_bias=0"}},
        {"transformer", {"positions=sinusoidal-halves", "norm_embeddings=1", "output_bias=always"}},
        {"transformer", {"positions=learned", "position_offset=2", "activation=silu"}},
        {"transformer-base", {"encoder_layers=2", "decoder_layers=2"}},
        {"transformer-shared", {"decoder_layers=2"}},
        {"gpt", {"layers=2"}},
        {"gpt", {"norm=post", "positions=sinusoidal"}},
        {"llama", {"layers=2", "kv_heads=2"}},
        {"llama", {"heads=4", "kv_heads=1"}},
        {"llama", {"window=3"}},
        {"gpt", {"window=1", "layers=1"}},
        {"llama", {"head_dim=6", "kv_heads=2", "norm_qk=1"}},
        {"gpt", {"head_dim=2", "norm_qk=1", "rotary_base=100", "rotary_dim=2", "positions=none"}},
        {"llama",
         {"kv_heads=1", "head_dim=8", "rotary_dim=4", "rotary_scaling=linear", "rotary_factor=4"}},
        {"llama",
         {"rotary_scaling=llama3", "rotary_factor=8", "rotary_positions=32", "head_dim=8",
          "kv_heads=2"}},
        {"llama",
         {"norm=both", "gamma_plus_one=1", "norm_qk=1", "kv_heads=2", "window=3", "layers=3",
          "global_every=2", "local_rotary_base=100"}},
        {"llama",
         {"score_cap=2", "logit_cap=3", "kv_heads=2", "window=3", "score_width=9", "global_every=1",
          "scaled_embeddings=1"}},
        {"llama",
         {"rotary_scaling=yarn", "rotary_factor=4", "rotary_fast=3", "head_dim=8", "kv_heads=2"}},
        {"llama",
         {"rotary_scaling=longrope", "rotary_factors=1.5,2,9", "rotary_magnitude=1.3", "head_dim=8",
          "rotary_dim=6", "kv_heads=2"}},
        {"llama", {"output_bias=none", "qkv_bias=1", "eps=1e-6"}},
        {"gpt", {"position_offset=3", "output_bias=always", "token_types=2"}},
        {"rnn", {"layers=1"}},
        {"lstm", {"tied=0"}},
        {"gru", {"layers=3"}},
        {"seq2seq", {"attention=none", "cell=lstm"}},
        {"seq2seq", {"attention=additive"}},
        {"seq2seq", {"attention=additive", "cell=rnn", "layers=1", "tied=0"}},
        {"seq2seq", {"attention=dot", "bidirectional=0"}},
        {"seq2seq", {"attention=general", "cell=lstm"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int wide = 0; wide < 2; wide++) {
            const char *texts[16] = {"vocab=13", wide ? "f64=1" : "f64=0"};
            size_t n = 2 + sizes_of(cases[i].model, texts + 2);
            for (size_t k = 0; k < 8 && cases[i].options[k]; k++) texts[n++] = cases[i].options[k];
            subject s;
            if (make_subject(&s, cases[i].model, texts, n)) {
                double e = worst_step_error(&s, false, WEFT_F32);
                /* Logits near 1, after some 300 roundings of f32: 300 * 2^-24 = 2e-5. */
                if (!(e < (wide ? ROUNDING_F64 : 2e-5))) {
                    char text[128];
                    snprintf(text, sizeof text, "case %zu, f64 %d: %g", i, wide, e);
                    CU_FAIL(text);
                }
            }
            weft_params_free(s.params);
        }
}

/* Keys and values in fewer bits: close to f32, and fewer bytes. */
static void test_narrow_caches(void)
{
    static const char *const names[] = {"transformer", "gpt", "llama"};
    static const weft_dtype dtypes[] = {WEFT_BF16, WEFT_U8};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *const texts[] = {"vocab=13", "d_model=64", "heads=4", "d_ff=24",
                                     i ? "layers=2" : "decoder_layers=2"};
        subject s;
        if (!make_subject(&s, names[i], texts, 5)) continue;
        size_t bytes[3] = {0};
        for (int k = 0; k < 3; k++) {
            const weft_decoder_options o = {.max_len = 200, .cache = k ? dtypes[k - 1] : WEFT_F32};
            weft_decoder *d = weft_decoder_new(&s.config, s.params, &o, NULL);
            CU_ASSERT_PTR_NOT_NULL_FATAL(d);
            if (s.config.build.shape.source_len)
                CU_ASSERT_EQUAL(weft_decoder_start(d, NULL, NULL, 0, NULL), WEFT_OK);
            CU_ASSERT_EQUAL(weft_decoder_step(d, (int32_t[]){1}, NULL, NULL), WEFT_OK);
            bytes[k] = weft_decoder_info_of(d).state_bytes;
            weft_decoder_free(d);
        }
        /* Of two layers' self-attention alone: keys and values at 200 positions. */
        const size_t numbers = (size_t)2 * 2 * 200 * 64;
        CU_ASSERT_TRUE(bytes[0] - bytes[1] >= 2 * numbers);
        CU_ASSERT_TRUE(bytes[0] - bytes[2] >= 3 * numbers - numbers / 4);
        for (int k = 0; k < 2; k++) {
            const double e = worst_step_error(&s, false, dtypes[k]);
            /* The largest error seen is 0.38, of bytes, which round by up to 0.4 %, in logits
             * of 20. */
            CU_ASSERT_TRUE(e > 1e-4 && e < 0.6);
        }
        weft_params_free(s.params);
    }
}

/* Models without steps, and any model with `recompute`, run as a whole for each token. */
static void test_whole_passes(void)
{
    static const char *const names[] = {"gpt", "transformer", "lstm", "gru", "rnn", "seq2seq"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bool recurrent = i >= 2;
        const char *const texts[] = {"vocab=13", recurrent ? "width=8" : "d_model=8", "f64=1",
                                     recurrent ? "hidden=8" : "d_ff=12",
                                     recurrent ? "layers=2" : "heads=2"};
        subject s;
        if (!weft_model_find(names[i])) continue;
        if (make_subject(&s, names[i], texts, 5))
            CU_ASSERT(worst_step_error(&s, true, WEFT_F32) < ROUNDING_F64);
        weft_params_free(s.params);
    }
}

/* Decodes MANY sentences of pseudo-random tokens. `ahead` tokens are read before the first step; if
 * `drops`, sentences are removed on the way. With `compare`, the logits of all steps must have the
 * bits of `want`, [LENGTH][MANY][VOCAB]; else they are stored there. */
#define MANY 33

static void walk(subject *s, int64_t ahead, bool drops, float *want, bool compare)
{
    weft_error error = {0};
    weft_decoder_options o = {.sentences = MANY,
                              .beams = 2,
                              .max_len = LENGTH,
                              .max_source_len = SOURCE_LEN,
                              .session.threads = 2};
    weft_decoder *d = weft_decoder_new(&s->config, s->params, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    int32_t sources[MANY][SOURCE_LEN], tokens[MANY][LENGTH];
    const int32_t *starts[MANY];
    size_t lengths[MANY];
    uint64_t random = 3;
    for (int i = 0; i < MANY; i++) {
        starts[i] = sources[i];
        lengths[i] = (size_t)(SOURCE_LEN - i % 3);
        for (int j = 0; j < SOURCE_LEN; j++)
            sources[i][j] = 1 + (int32_t)(test_random(&random) % (VOCAB - 1));
        for (int j = 0; j < LENGTH; j++)
            tokens[i][j] = 1 + (int32_t)(test_random(&random) % (VOCAB - 1));
    }
    int32_t in_slot[MANY], n = MANY;
    for (int i = 0; i < MANY; i++) in_slot[i] = i;
    CU_ASSERT_EQUAL(weft_decoder_start(d, starts, lengths, MANY, NULL), WEFT_OK);
    if (ahead) {
        int32_t *first = calloc((size_t)(MANY * ahead), sizeof *first);
        for (int i = 0; i < MANY; i++)
            memcpy(first + i * ahead, tokens[i], (size_t)ahead * sizeof *first);
        CU_ASSERT_EQUAL(weft_decoder_read(d, first, (size_t)ahead, NULL), WEFT_OK);
        free(first);
    }
    bool same = true;
    for (int64_t at = ahead; at < LENGTH; at++) {
        int32_t fed[2 * MANY], stay[MANY];
        weft_tensor t;
        if (drops && at % 3 == 2 && n > 1) { /* remove one sentence; the last moves to its slot */
            for (int i = 0; i < n; i++) stay[i] = i;
            stay[at % n] = n - 1;
            in_slot[at % n] = in_slot[n - 1];
            n--;
            CU_ASSERT_EQUAL(weft_decoder_retain(d, stay, (size_t)n, NULL), WEFT_OK);
        }
        for (int i = 0; i < 2 * n; i++) fed[i] = tokens[in_slot[i / 2]][at];
        CU_ASSERT_EQUAL(weft_decoder_step(d, fed, NULL, NULL), WEFT_OK);
        CU_ASSERT_TRUE_FATAL(weft_decoder_logits(d, &t));
        CU_ASSERT_EQUAL(t.shape.dim[0], 2 * n);
        for (int i = 0; i < 2 * n; i++) {
            float *to = want + (at * MANY + in_slot[i / 2]) * VOCAB;
            const float *got = (const float *)t.data + i * t.stride[0];
            if (compare)
                same &= !memcmp(to, got, VOCAB * sizeof *to);
            else
                memcpy(to, got, VOCAB * sizeof *to);
        }
    }
    CU_ASSERT_TRUE(same);
    CU_ASSERT_EQUAL(weft_decoder_read(d, tokens[0], 1, NULL), WEFT_BAD_ARGUMENT); /* after steps */
    weft_decoder_free(d);
}

/* Reading ahead and removing sentences change no bit of the other sentences' logits. */
static void test_reading_and_removing(void)
{
    static const char *const names[] = {"gpt",  "llama", "transformer", "rnn",
                                        "lstm", "gru",   "seq2seq"};
    for (size_t i = 0; i < 3 + sizeof names / sizeof *names; i++) {
        const char *name = names[i < 3 ? i : i - 3], *texts[8] = {"vocab=13"};
        size_t n = 1 + sizes_of(name, texts + 1);
        if (i < 3) texts[1] = "d_model=64"; /* heads of whole vectors */
        subject s;
        float *want = calloc((size_t)LENGTH * MANY * VOCAB, sizeof *want);
        if (make_subject(&s, name, texts, n)) {
            walk(&s, 0, false, want, false);
            walk(&s, 0, true, want, true);
            walk(&s, 1, false, want, true);
            walk(&s, 26, false, want, true);
            walk(&s, 21, true, want, true);
        }
        free(want);
        weft_params_free(s.params);
    }
}

/* A step's cost depends only on the length that it attends to. */
static void test_step_cost(void)
{
    const char *const texts[] = {"vocab=13", "d_model=16", "heads=4", "d_ff=24"};
    subject s;
    weft_error error = {0};
    if (!make_subject(&s, "transformer", texts, 4)) return;
    weft_decoder_options o = {.sentences = 1, .beams = 2, .max_len = 128, .max_source_len = 5};
    weft_decoder *d = weft_decoder_new(&s.config, s.params, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    double flops[128];
    for (int round = 0; round < 2; round++) {
        const int32_t source[2] = {3, 4}, *sources[1] = {source};
        const size_t length = 2;
        CU_ASSERT_EQUAL(weft_decoder_start(d, sources, &length, 1, NULL), WEFT_OK);
        for (int at = 0; at < 128; at++) {
            CU_ASSERT_EQUAL(weft_decoder_step(d, (int32_t[]){1, 2}, NULL, NULL), WEFT_OK);
            double f = weft_decoder_info_of(d).step.flops;
            if (round) CU_ASSERT_EQUAL(f, flops[at]);
            flops[at] = f;
        }
    }
    /* Lengths of 32, 48, 64, 96, 128: flat within each, and a straight line over them. */
    for (int at = 1; at < 128; at++)
        if (at != 32 && at != 48 && at != 64 && at != 96) CU_ASSERT_EQUAL(flops[at], flops[at - 1]);
    CU_ASSERT_EQUAL(flops[127] - flops[95], flops[95] - flops[63]);
    CU_ASSERT_EQUAL(flops[63] - flops[47], flops[47] - flops[31]);
    CU_ASSERT_EQUAL(flops[127] - flops[63], 2 * (flops[63] - flops[31]));
    CU_ASSERT(flops[127] < 4 * flops[0]);
    CU_ASSERT(weft_decoder_info_of(d).plans ==
              7); /* five lengths, the encoder, the transposed embedding matrix */
    CU_ASSERT_NOT_EQUAL(weft_decoder_step(d, (int32_t[]){1, 2}, NULL, &error), WEFT_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "128 positions"));
    weft_decoder_free(d);
    weft_params_free(s.params);
}

/* A step that fails has no results, and the last step is still the one before it. The 33rd step is
 * the first with a larger plan, for which the memory that the plans share grows. */
static void test_failed_step(void)
{
    const char *const texts[] = {"vocab=13", "d_model=8", "heads=2", "d_ff=12"};
    subject s;
    if (!make_subject(&s, "gpt", texts, 4)) return;
    for (int i = 0; i < 4; i++) {
        const weft_decoder_options o = {.sentences = 1, .max_len = 64, .recompute = i % 2};
        weft_decoder *d = weft_decoder_new(&s.config, s.params, &o, NULL);
        weft_tensor t;
        CU_ASSERT_PTR_NOT_NULL_FATAL(d);
        for (int at = 0; at < (i < 2 ? 1 : 32); at++)
            CU_ASSERT_EQUAL(weft_decoder_step(d, (int32_t[]){1}, NULL, NULL), WEFT_OK);
        CU_ASSERT_TRUE(weft_decoder_logits(d, &t));
        const double flops = weft_decoder_info_of(d).step.flops;
        CU_ASSERT_EQUAL(weft_decoder_step(d, (int32_t[]){13}, NULL, NULL), WEFT_BAD_INDEX);
        CU_ASSERT_FALSE(weft_decoder_logits(d, &t));
        CU_ASSERT_EQUAL(weft_decoder_info_of(d).step.flops, flops);
        weft_decoder_free(d);
    }
    weft_params_free(s.params);
}

static void test_refusals(void)
{
    const char *const texts[] = {"vocab=13", "d_model=8", "heads=2", "d_ff=12"};
    subject s, bert;
    weft_error error = {0};
    if (!make_subject(&s, "transformer", texts, 4) || !make_subject(&bert, "bert", texts, 4))
        return;
    weft_decoder_options o = {.sentences = 1, .beams = 2, .max_len = 8, .max_source_len = 5};
    CU_ASSERT_PTR_NULL(weft_decoder_new(&bert.config, bert.params, &o, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "not autoregressive"));
    error = (weft_error){0};
    CU_ASSERT_PTR_NULL(weft_decoder_new(&s.config, bert.params, &o, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_NOT_FOUND);
    error = (weft_error){0};
    o.cache = WEFT_I32;
    CU_ASSERT_PTR_NULL(weft_decoder_new(&s.config, s.params, &o, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_DTYPE);
    o.cache = WEFT_F32;
    weft_decoder *d = weft_decoder_new(&s.config, s.params, &o, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    CU_ASSERT_EQUAL(weft_decoder_step(d, (int32_t[]){1, 1}, NULL, NULL), WEFT_BAD_ARGUMENT);
    const int32_t source[6] = {1, 2, 3, 4, 5, 6}, *sources[1] = {source};
    size_t length = 6;
    CU_ASSERT_EQUAL(weft_decoder_start(d, sources, &length, 1, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "6 tokens, at most 5"));
    length = 5;
    CU_ASSERT_EQUAL(weft_decoder_start(d, sources, &length, 1, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_decoder_step(d, (int32_t[]){1, 1}, (int32_t[]){0, 2}, NULL),
                    WEFT_BAD_INDEX);
    CU_ASSERT_EQUAL(weft_decoder_start(d, sources, &length, 1, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_decoder_step(d, (int32_t[]){1, 13}, NULL, NULL), WEFT_BAD_INDEX);
    weft_decoder_free(d);
    const char *const learned[] = {
        texts[0], texts[1], texts[2], texts[3], "positions=learned", "max_positions=6"};
    CU_ASSERT_EQUAL(weft_model_parse(weft_model_find("transformer"), learned, 6, &s.config, &error),
                    WEFT_OK);
    error = (weft_error){0};
    CU_ASSERT_PTR_NULL(weft_decoder_new(&s.config, s.params, &o, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "6 learned positions"));
    weft_params_free(s.params);
    weft_params_free(bert.params);
}

/* ---- Sentences do not depend on each other ---- */

#define LINES 7

static weft_search_result *decode_lines(subject *s, const int *lines, size_t n, int64_t sentences,
                                        int threads, bool sample, weft_error *error)
{
    static const int32_t begin = 2;
    static const int32_t banned[3] = {0, 1, 2};
    int32_t sources[LINES][SOURCE_LEN];
    const int32_t *starts[LINES];
    size_t lengths[LINES];
    weft_search_input in[LINES];
    for (size_t i = 0; i < n; i++) {
        uint64_t random = (uint64_t)lines[i] + 77;
        lengths[i] = 3 + test_random(&random) % (SOURCE_LEN - 2);
        for (size_t j = 0; j < lengths[i]; j++)
            sources[i][j] = 3 + (int32_t)(test_random(&random) % 26);
        starts[i] = sources[i];
        in[i] = (weft_search_input){&begin, 1, 12 + lines[i] % 3, (uint64_t)lines[i]};
    }
    weft_decoder_options o = {.sentences = sentences,
                              .beams = 4,
                              .max_len = 20,
                              .max_source_len = SOURCE_LEN,
                              .session.threads = threads};
    weft_decoder *d = weft_decoder_new(&s->config, s->params, &o, error);
    if (!d) return NULL;
    weft_search_options options = {.eos = 3,
                                   .has_eos = true,
                                   .banned = banned,
                                   .n_banned = 3,
                                   .nbest = 4,
                                   .alpha = 0.6,
                                   .temperature = 1.2,
                                   .top_k = 20,
                                   .top_p = 0.9,
                                   .seed = 5};
    weft_search_result *r = NULL;
    if (weft_decoder_start(d, starts, lengths, n, NULL) == WEFT_OK) {
        weft_search_model model = weft_decoder_search_model(d);
        r = sample ? weft_search_sample(&model, in, n, &options, error)
                   : weft_search_beam(&model, in, n, &options, error);
    }
    weft_decoder_free(d);
    return r;
}

static void test_independence(void)
{
    const char *const texts[] = {"vocab=29", "d_model=32", "heads=4", "d_ff=40"};
    static const int all[LINES] = {0, 1, 2, 3, 4, 5, 6};
    static const int mixed[4] = {6, 2, 5, 0};
    static const char *const names[] = {"transformer", "gpt", "llama"};
    for (size_t k = 0; k < 3; k++)
        for (int sample = 0; sample < 2; sample++) {
            subject s;
            weft_error error = {0};
            if (!make_subject(&s, names[k], texts, 4)) return;
            weft_search_result *one = decode_lines(&s, all, LINES, LINES, 1, sample, &error);
            weft_search_result *two = decode_lines(&s, mixed, 4, 5, 3, sample, &error);
            CU_ASSERT_PTR_NOT_NULL_FATAL(one);
            CU_ASSERT_PTR_NOT_NULL_FATAL(two);
            for (size_t i = 0; i < 4; i++) {
                size_t a = one->first[mixed[i]], b = two->first[i];
                size_t n = two->first[i + 1] - b;
                CU_ASSERT_EQUAL(one->first[mixed[i] + 1] - a, n);
                CU_ASSERT_EQUAL(n, 4);
                for (size_t h = 0; h < n; h++)
                    CU_ASSERT(same_hypothesis(&one->hypotheses[a + h], &two->hypotheses[b + h]));
            }
            weft_search_result_free(one);
            weft_search_result_free(two);
            weft_params_free(s.params);
        }
}

static void test_nan(void)
{
    const char *const texts[] = {"vocab=29", "d_model=32", "heads=4", "d_ff=40"};
    subject s;
    weft_tensor t;
    if (!make_subject(&s, "transformer", texts, 4)) return;
    weft_params_find(s.params, "dec.norm.beta", &t);
    ((float *)t.data)[3] = NAN;
    for (int sample = 0; sample < 2; sample++) {
        weft_error error = {0};
        weft_search_result *r = decode_lines(&s, (int[]){0, 1}, 2, 2, 1, sample, &error);
        CU_ASSERT_PTR_NULL(r);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "nan"));
        weft_search_result_free(r);
    }
    weft_params_free(s.params);
}

/* ---- The store ---- */

static void test_share(void)
{
    weft_params *a = weft_params_new(), *b = weft_params_new();
    weft_tensor of_a, of_b;
    CU_ASSERT_EQUAL(weft_params_add(a, "x", WEFT_F32, WEFT_SHAPE(3), &of_a, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_add(b, "y", WEFT_F32, WEFT_SHAPE(2), NULL, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_share(b, a, NULL), WEFT_OK);
    CU_ASSERT_TRUE(weft_params_find(b, "x", &of_b));
    CU_ASSERT_PTR_EQUAL(of_a.data, of_b.data);
    CU_ASSERT_EQUAL(weft_params_count(b), 2);
    weft_error error = {0};
    CU_ASSERT_EQUAL(weft_params_share(b, a, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.where, "x");
    CU_ASSERT_EQUAL(weft_params_count(b), 2);
    weft_params_free(b);
    CU_ASSERT_EQUAL(((float *)of_a.data)[2], 0);
    weft_params_free(a);
}

void decode_tests(void)
{
    CU_pSuite suite = CU_add_suite("decode", NULL, NULL);
    CU_add_test(suite, "steps equal whole passes", test_steps);
    CU_add_test(suite, "keys and values in fewer bits", test_narrow_caches);
    CU_add_test(suite, "models without steps", test_whole_passes);
    CU_add_test(suite, "reading ahead and removing sentences change no bit",
                test_reading_and_removing);
    CU_add_test(suite, "a step's cost", test_step_cost);
    CU_add_test(suite, "a step that fails", test_failed_step);
    CU_add_test(suite, "decoders refuse what does not fit", test_refusals);
    CU_add_test(suite, "a text does not depend on the others", test_independence);
    CU_add_test(suite, "a model whose probabilities are NaN", test_nan);
    CU_add_test(suite, "stores share tensors", test_share);
}
