/* Decoding: steps over caches against whole passes, searches over made-up models whose answers are
 * known by trying everything. */
#include "tests.h"

#include <weft/decode.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- A model with random parameters ---- */

typedef struct subject {
    weft_model_config config;
    weft_params *params;
} subject;

/* Every parameter random, biases and gains too. */
static void randomize(weft_params *params, uint64_t seed)
{
    for (size_t i = 0; i < weft_params_count(params); i++) {
        weft_tensor t;
        const char *name = weft_params_name(params, i);
        weft_params_get(params, name, &t);
        bool gain = strstr(name, "gamma") != NULL;
        for (int64_t k = 0; k < weft_shape_numel(t.shape); k++) {
            double x = test_uniform(&seed, -0.5, 0.5) + (gain ? 1 : 0);
            if (t.dtype == WEFT_F64)
                ((double *)t.data)[k] = x;
            else if (t.dtype == WEFT_F32)
                ((float *)t.data)[k] = (float)x;
        }
    }
}

static bool make_subject(subject *s, const char *name, const char *const *texts, size_t n)
{
    weft_error error = {0};
    memset(s, 0, sizeof *s);
    if (weft_model_parse(weft_model_find(name), texts, n, &s->config, &error) != WEFT_OK) {
        CU_FAIL(error.message);
        return false;
    }
    weft_graph *g = weft_graph_new();
    weft_model_io io;
    s->params = weft_params_new();
    s->config.build.shape.target_len = 8;
    if (s->config.build.shape.source_len) s->config.build.shape.source_len = 8;
    weft_model_build(g, &s->config, &io);
    bool good = weft_params_init(s->params, g, 7, &error) == WEFT_OK;
    weft_graph_free(g);
    randomize(s->params, 11);
    CU_ASSERT_TRUE(good);
    return good;
}

static double real_at(const weft_tensor *t, int64_t i)
{
    return t->dtype == WEFT_F64 ? ((const double *)t->data)[i] : ((const float *)t->data)[i];
}

/* Logits [rows, length, vocab] of a whole pass, in double precision. */
static double *whole_pass(subject *s, const int32_t *source, int64_t source_len,
                          const int32_t *tokens, int64_t rows, int64_t length)
{
    weft_graph *g = weft_graph_new();
    weft_model_io io;
    weft_error error = {0};
    s->config.build.shape = (weft_batch_shape){rows, source ? source_len : 0, length};
    weft_model_build(g, &s->config, &io);
    weft_plan *plan = weft_plan_new(g, &io.output, 1, NULL, &error);
    weft_session *run = plan ? weft_session_new(plan, s->params, NULL, &error) : NULL;
    weft_tensor t;
    double *out = NULL;
    if (run) {
        weft_feed(run, io.target_in, tokens, (size_t)(rows * length) * sizeof *tokens);
        if (weft_is_value(io.source))
            weft_feed(run, io.source, source, (size_t)(rows * source_len) * sizeof *source);
        if (weft_run(run) == WEFT_OK && weft_session_tensor(run, io.output, &t)) {
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

static double worst_step_error(subject *s, bool recompute)
{
    uint64_t random = 5;
    weft_error error = {0};
    weft_decoder_options o = {.sentences = SENTENCES,
                              .beams = BEAMS,
                              .max_len = LENGTH,
                              .max_source_len = SOURCE_LEN,
                              .threads = 2,
                              .recompute = recompute};
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
    bool good = weft_decoder_start(d, starts, lengths, SENTENCES) == WEFT_OK;
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
        good =
            weft_decoder_step(d, fed, at ? parents : NULL) == WEFT_OK && weft_decoder_logits(d, &t);
        if (!at) /* without parents each row is its own */
            for (int row = 0; row < ROWS; row++) tokens[row][0] = fed[row];
        for (int row = 0; good && row < ROWS; row++)
            for (int i = 0; i < VOCAB; i++) logits[row][at][i] = real_at(&t, row * VOCAB + i);
    }
    CU_ASSERT_TRUE(good);
    if (!good) CU_FAIL(weft_decoder_error(d)->message);
    CU_ASSERT_EQUAL(weft_decoder_get_info(d).has_steps,
                    !recompute && s->config.model->step != NULL);
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
        const char *model, *options[6];
    } cases[] = {
        {"transformer", {"norm=pre"}},
        {"transformer", {"norm=post", "tied=0"}},
        {"transformer", {"norm=post-dropped", "positions=learned"}},
        {"transformer", {"projection=shared", "positions=none", "attention_bias=0"}},
        {"transformer-base", {"encoder_layers=2", "decoder_layers=2"}},
        {"transformer-shared", {"decoder_layers=2"}},
        {"gpt", {"layers=2"}},
        {"gpt", {"norm=post", "positions=sinusoidal"}},
        {"llama", {"layers=2", "kv_heads=2"}},
        {"llama", {"heads=4", "kv_heads=1"}},
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
            for (size_t k = 0; k < 6 && cases[i].options[k]; k++) texts[n++] = cases[i].options[k];
            subject s;
            if (make_subject(&s, cases[i].model, texts, n)) {
                double e = worst_step_error(&s, false);
                if (!(e < (wide ? 1e-12 : 2e-4))) {
                    char text[128];
                    snprintf(text, sizeof text, "case %zu, f64 %d: %g", i, wide, e);
                    CU_FAIL(text);
                }
            }
            weft_params_free(s.params);
        }
}

/* Models without steps, and others when asked, run as a whole each time. */
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
        if (make_subject(&s, names[i], texts, 5)) CU_ASSERT(worst_step_error(&s, true) < 1e-12);
        weft_params_free(s.params);
    }
}

/* Logits of `at` steps of some sentences, whose tokens a hash tells. `ahead` tokens are read before
 * the first step; if `drops`, sentences leave on the way. All that are kept must be the bits of
 * `want`, [LENGTH][MANY][VOCAB], if it is not NULL; else they are put there. */
#define MANY 33

static void walk(subject *s, int64_t ahead, bool drops, float *want, bool compare)
{
    weft_error error = {0};
    weft_decoder_options o = {.sentences = MANY,
                              .beams = 2,
                              .max_len = LENGTH,
                              .max_source_len = SOURCE_LEN,
                              .threads = 2};
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
    int32_t there[MANY], n = MANY;
    for (int i = 0; i < MANY; i++) there[i] = i;
    CU_ASSERT_EQUAL(weft_decoder_start(d, starts, lengths, MANY), WEFT_OK);
    if (ahead) {
        int32_t *first = calloc((size_t)(MANY * ahead), sizeof *first);
        for (int i = 0; i < MANY; i++)
            memcpy(first + i * ahead, tokens[i], (size_t)ahead * sizeof *first);
        CU_ASSERT_EQUAL(weft_decoder_read(d, first, (size_t)ahead), WEFT_OK);
        free(first);
    }
    bool same = true;
    for (int64_t at = ahead; at < LENGTH; at++) {
        int32_t fed[2 * MANY], stay[MANY];
        weft_tensor t;
        if (drops && at % 3 == 2 && n > 1) { /* one of them leaves, the last takes its place */
            for (int i = 0; i < n; i++) stay[i] = i;
            stay[at % n] = n - 1;
            there[at % n] = there[n - 1];
            n--;
            CU_ASSERT_EQUAL(weft_decoder_retain(d, stay, (size_t)n), WEFT_OK);
        }
        for (int i = 0; i < 2 * n; i++) fed[i] = tokens[there[i / 2]][at];
        CU_ASSERT_EQUAL(weft_decoder_step(d, fed, NULL), WEFT_OK);
        CU_ASSERT_TRUE_FATAL(weft_decoder_logits(d, &t));
        CU_ASSERT_EQUAL(t.shape.dim[0], 2 * n);
        for (int i = 0; i < 2 * n; i++) {
            float *to = want + (at * MANY + there[i / 2]) * VOCAB;
            const float *got = (const float *)t.data + i * t.stride[0];
            if (compare)
                same &= !memcmp(to, got, VOCAB * sizeof *to);
            else
                memcpy(to, got, VOCAB * sizeof *to);
        }
    }
    CU_ASSERT_TRUE(same);
    CU_ASSERT_EQUAL(weft_decoder_read(d, tokens[0], 1), WEFT_BAD_ARGUMENT); /* after steps */
    weft_decoder_free(d);
}

/* What is read ahead, and who leaves, changes no bit of what the others get. */
static void test_reading_and_leaving(void)
{
    static const char *const names[] = {"gpt",  "llama", "transformer", "rnn",
                                        "lstm", "gru",   "seq2seq"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *texts[8] = {"vocab=13"};
        size_t n = 1 + sizes_of(names[i], texts + 1);
        subject s;
        float *want = calloc((size_t)LENGTH * MANY * VOCAB, sizeof *want);
        if (make_subject(&s, names[i], texts, n)) {
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

/* What a step costs depends on the length that it looks at, and on nothing else. */
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
        CU_ASSERT_EQUAL(weft_decoder_start(d, sources, &length, 1), WEFT_OK);
        for (int at = 0; at < 128; at++) {
            CU_ASSERT_EQUAL(weft_decoder_step(d, (int32_t[]){1, 2}, NULL), WEFT_OK);
            double f = weft_decoder_get_info(d).step.flops;
            if (round) CU_ASSERT_EQUAL(f, flops[at]);
            flops[at] = f;
        }
    }
    /* Lengths of 32, 48, 64, 96, 128: flat within each, and a straight line over them. */
    for (int at = 1; at < 128; at++)
        if (at != 32 && at != 48 && at != 64 && at != 96) CU_ASSERT_EQUAL(flops[at], flops[at - 1]);
    CU_ASSERT_DOUBLE_EQUAL(flops[127] - flops[95], flops[95] - flops[63], 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(flops[63] - flops[47], flops[47] - flops[31], 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(flops[127] - flops[63], 2 * (flops[63] - flops[31]), 1e-6);
    CU_ASSERT(flops[127] < 4 * flops[0]);
    CU_ASSERT(weft_decoder_get_info(d).plans == 7); /* five lengths, the encoder, the table */
    CU_ASSERT_NOT_EQUAL(weft_decoder_step(d, (int32_t[]){1, 2}, NULL), WEFT_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_decoder_error(d)->message, "128 positions"));
    weft_decoder_free(d);
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
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "one token after another"));
    error = (weft_error){0};
    CU_ASSERT_PTR_NULL(weft_decoder_new(&s.config, bert.params, &o, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_NOT_FOUND);
    weft_decoder *d = weft_decoder_new(&s.config, s.params, &o, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    CU_ASSERT_EQUAL(weft_decoder_step(d, (int32_t[]){1, 1}, NULL), WEFT_BAD_ARGUMENT);
    const int32_t source[6] = {1, 2, 3, 4, 5, 6}, *sources[1] = {source};
    size_t length = 6;
    CU_ASSERT_EQUAL(weft_decoder_start(d, sources, &length, 1), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_decoder_error(d)->message, "6 tokens, at most 5"));
    length = 5;
    CU_ASSERT_EQUAL(weft_decoder_start(d, sources, &length, 1), WEFT_OK);
    CU_ASSERT_EQUAL(weft_decoder_step(d, (int32_t[]){1, 1}, (int32_t[]){0, 2}), WEFT_BAD_INDEX);
    CU_ASSERT_EQUAL(weft_decoder_start(d, sources, &length, 1), WEFT_OK);
    CU_ASSERT_EQUAL(weft_decoder_step(d, (int32_t[]){1, 13}, NULL), WEFT_BAD_INDEX);
    weft_decoder_free(d);
    const char *const learned[] = {
        texts[0], texts[1], texts[2], texts[3], "positions=learned", "max_positions=6"};
    CU_ASSERT_EQUAL(weft_model_parse(weft_model_find("transformer"), learned, 6, &s.config, &error),
                    WEFT_OK);
    error = (weft_error){0};
    CU_ASSERT_PTR_NULL(weft_decoder_new(&s.config, s.params, &o, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "learned 6 positions"));
    weft_params_free(s.params);
    weft_params_free(bert.params);
}

/* ---- Searches over a made-up model ---- */

#define MAX_ROWS 4096
#define MAX_LEN  12

/* Probabilities that depend on all tokens before, by a hash. */
typedef struct made_up {
    int64_t rows, vocab, position;
    uint64_t seed, before[MAX_ROWS];
    double spread;
    double *logs;
    bool broken;
} made_up;

static uint64_t hash_on(uint64_t h, int32_t token)
{
    uint64_t state = h * 31 + (uint64_t)token + 1;
    return test_random(&state);
}

/* log softmax of pseudo-random numbers */
static void made_up_row(const made_up *m, uint64_t h, double *logs)
{
    double sum = 0;
    for (int64_t i = 0; i < m->vocab; i++) {
        logs[i] = test_uniform(&h, 0, m->spread);
        sum += exp(logs[i]);
    }
    for (int64_t i = 0; i < m->vocab; i++) logs[i] -= log(sum);
}

static weft_status made_up_step(void *context, const int32_t *tokens, const int32_t *parents,
                                weft_tensor *log_probs, weft_error *error)
{
    made_up *m = context;
    static uint64_t old[MAX_ROWS];
    if (m->broken && m->position == 2)
        return weft_error_set(error, WEFT_IO, "made up", "does not go on");
    for (int64_t i = 0; i < m->rows; i++) old[i] = m->position ? m->before[i] : m->seed;
    for (int64_t i = 0; i < m->rows; i++) {
        m->before[i] = hash_on(old[m->position ? parents[i] : i], tokens[i]);
        made_up_row(m, m->before[i], m->logs + i * m->vocab);
    }
    m->position++;
    *log_probs = weft_tensor_dense(m->logs, WEFT_F64, WEFT_SHAPE(m->rows, m->vocab));
    return WEFT_OK;
}

static weft_search_model made_up_model(made_up *m, int64_t sentences, int64_t beams, int64_t vocab,
                                       uint64_t seed)
{
    memset(m, 0, sizeof *m);
    m->rows = sentences * beams;
    m->vocab = vocab;
    m->seed = seed;
    m->spread = 3;
    m->logs = calloc((size_t)(m->rows * vocab), sizeof *m->logs);
    return (weft_search_model){.step = made_up_step,
                               .context = m,
                               .sentences = sentences,
                               .beams = beams,
                               .vocab = vocab,
                               .max_len = MAX_LEN};
}

typedef struct sequence {
    int32_t token[8];
    size_t length;
    double log_prob, score;
} sequence;

/* All sequences that end by `eos` or are `most` long. */
static size_t try_all(const made_up *m, uint64_t h, const sequence *begin, int32_t eos, size_t most,
                      const weft_search_options *o, sequence *out)
{
    double logs[8];
    size_t n = 0;
    made_up_row(m, h, logs);
    for (int32_t t = 0; t < m->vocab; t++) {
        sequence s = *begin;
        s.log_prob += logs[t];
        s.score = s.log_prob / weft_length_penalty_value(o->penalty, o->alpha, s.length + 1);
        if (t != eos) s.token[s.length++] = t;
        if (t == eos || s.length == most)
            out[n++] = s;
        else
            n += try_all(m, hash_on(h, t), &s, eos, most, o, out + n);
    }
    return n;
}

static int by_score(const void *a, const void *b)
{
    const sequence *x = a, *y = b;
    return (x->score < y->score) - (x->score > y->score);
}

static void test_exhaustive(void)
{
    static const struct {
        weft_length_penalty penalty;
        double alpha;
    } penalties[] = {{WEFT_PENALTY_WU, 0},    {WEFT_PENALTY_WU, 0.6},  {WEFT_PENALTY_WU, 2},
                     {WEFT_PENALTY_POWER, 1}, {WEFT_PENALTY_POWER, 2}, {WEFT_PENALTY_POWER, -0.5}};
    static made_up m;
    static sequence all[1024];
    int found_by_four = 0, trials = 0;
    for (uint64_t seed = 1; seed <= 8; seed++)
        for (size_t p = 0; p < sizeof penalties / sizeof *penalties; p++) {
            const int32_t begin = 2;
            weft_error error = {0};
            weft_search_input in = {.prefix = &begin, .prefix_len = 1, .max_len = 5};
            weft_search_options o = {.eos = 3,
                                     .has_eos = true,
                                     .nbest = 20,
                                     .penalty = penalties[p].penalty,
                                     .alpha = penalties[p].alpha,
                                     .stop = WEFT_STOP_BOUND};
            weft_search_model model = made_up_model(&m, 1, 243, 4, seed);
            sequence none = {.length = 0};
            size_t n = try_all(&m, hash_on(seed, begin), &none, 3, 5, &o, all);
            CU_ASSERT_EQUAL(n, 1 + 3 + 9 + 27 + 81 + 243);
            qsort(all, n, sizeof *all, by_score);
            weft_search_result *r = weft_search_beam(&model, &in, 1, &o, &error);
            CU_ASSERT_PTR_NOT_NULL_FATAL(r);
            CU_ASSERT_EQUAL(r->first[1], 20);
            for (size_t i = 0; i < r->first[1]; i++) {
                const weft_hypothesis *h = &r->hypotheses[i];
                CU_ASSERT_DOUBLE_EQUAL(h->score, all[i].score, 1e-12);
                CU_ASSERT_DOUBLE_EQUAL(h->log_prob, all[i].log_prob, 1e-12);
                CU_ASSERT_EQUAL(h->length, all[i].length);
                CU_ASSERT_EQUAL(memcmp(h->tokens, all[i].token, h->length * sizeof(int32_t)), 0);
                CU_ASSERT_EQUAL(h->ended, h->length < 5);
            }
            weft_search_result_free(r);
            free(m.logs);
            /* A narrow beam finds no better, in order, and no hypothesis twice. */
            model = made_up_model(&m, 1, 4, 4, seed);
            o.nbest = 4;
            o.stop = WEFT_STOP_FIRST;
            r = weft_search_beam(&model, &in, 1, &o, &error);
            CU_ASSERT_PTR_NOT_NULL_FATAL(r);
            CU_ASSERT(r->first[1] >= 1 && r->first[1] <= 4);
            CU_ASSERT(r->hypotheses[0].score <= all[0].score + 1e-12);
            found_by_four += r->hypotheses[0].score > all[0].score - 1e-12;
            trials++;
            for (size_t i = 1; i < r->first[1]; i++) {
                const weft_hypothesis *h = &r->hypotheses[i];
                CU_ASSERT(h[-1].score >= h->score);
                for (size_t k = 0; k < i; k++)
                    CU_ASSERT(r->hypotheses[k].length != h->length ||
                              r->hypotheses[k].ended != h->ended ||
                              memcmp(r->hypotheses[k].tokens, h->tokens,
                                     h->length * sizeof(int32_t)) != 0);
            }
            weft_search_result_free(r);
            free(m.logs);
        }
    CU_ASSERT(found_by_four > trials / 2);
}

static bool same_hypothesis(const weft_hypothesis *a, const weft_hypothesis *b)
{
    return a->length == b->length && a->ended == b->ended && a->log_prob == b->log_prob &&
           a->score == b->score && !memcmp(a->tokens, b->tokens, a->length * sizeof(int32_t));
}

static void test_beam_of_one(void)
{
    static made_up m;
    const int32_t prefix[3] = {1, 0, 2}, banned[1] = {4};
    for (uint64_t seed = 1; seed <= 40; seed++) {
        weft_search_input in[3];
        weft_error error = {0};
        weft_search_options o = {.eos = 3,
                                 .has_eos = true,
                                 .alpha = 0.6,
                                 .banned = banned,
                                 .n_banned = seed % 2,
                                 .min_len = (int64_t)(seed % 4),
                                 .no_repeat_ngram = (int64_t)(seed % 3)};
        for (size_t i = 0; i < 3; i++)
            in[i] = (weft_search_input){prefix, i + 1, (int64_t)(7 - 2 * i), i};
        weft_search_model model = made_up_model(&m, 3, 1, 9, seed);
        weft_search_result *beam = weft_search_beam(&model, in, 3, &o, &error);
        m.position = 0;
        weft_search_result *greedy = weft_search_greedy(&model, in, 3, &o, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(beam);
        CU_ASSERT_PTR_NOT_NULL_FATAL(greedy);
        for (size_t i = 0; i < 3; i++) {
            const weft_hypothesis *h = &greedy->hypotheses[i];
            CU_ASSERT_EQUAL(greedy->first[i + 1], i + 1);
            CU_ASSERT(same_hypothesis(h, &beam->hypotheses[i]));
            CU_ASSERT(h->length + h->ended <= (size_t)in[i].max_len);
            CU_ASSERT(h->ended || h->length == (size_t)in[i].max_len);
            CU_ASSERT(!h->ended || h->length >= (size_t)o.min_len);
            for (size_t k = 0; k < h->length; k++) {
                CU_ASSERT_NOT_EQUAL(h->tokens[k], 3);
                if (seed % 2) CU_ASSERT_NOT_EQUAL(h->tokens[k], 4);
                for (size_t j = 0; j < k && o.no_repeat_ngram == 1; j++)
                    CU_ASSERT_NOT_EQUAL(h->tokens[k], h->tokens[j]);
                for (size_t j = 1; j < k && o.no_repeat_ngram == 2; j++)
                    CU_ASSERT(h->tokens[k] != h->tokens[j] || h->tokens[k - 1] != h->tokens[j - 1]);
            }
        }
        /* Greedy takes the most likely token: the first, by hand. */
        if (o.no_repeat_ngram == 0 && !o.n_banned && !o.min_len) {
            double logs[9];
            made_up_row(&m, hash_on(seed, prefix[0]), logs);
            int best = 0;
            for (int i = 1; i < 9; i++)
                if (logs[i] > logs[best]) best = i;
            CU_ASSERT(best == 3 ? greedy->hypotheses[0].length == 0
                                : greedy->hypotheses[0].tokens[0] == best);
        }
        weft_search_result_free(beam);
        weft_search_result_free(greedy);
        free(m.logs);
    }
}

/* ---- The repetition penalty ---- */

/* Penalises the log probabilities of the tokens that are there. */
static void penalise(double *logs, const int32_t *tokens, size_t n, double penalty, int64_t vocab)
{
    for (int64_t i = 0; i < vocab; i++) {
        bool there = false;
        for (size_t k = 0; k < n; k++) there |= tokens[k] == i;
        if (there) logs[i] *= penalty;
    }
}

/* The sums of a hypothesis by hand, of the model's log probabilities and of penalised ones. */
static void sums_by_hand(const made_up *m, uint64_t seed, int32_t begin, const weft_hypothesis *h,
                         int32_t eos, double penalty, double *own, double *penalised)
{
    int32_t tokens[16] = {begin};
    double logs[256], less[256];
    uint64_t hash = hash_on(seed, begin);
    *own = *penalised = 0;
    for (size_t i = 0; i < h->length + h->ended; i++) {
        int32_t token = i < h->length ? h->tokens[i] : eos;
        made_up_row(m, hash, logs);
        memcpy(less, logs, sizeof logs);
        penalise(less, tokens, i + 1, penalty, m->vocab);
        *own += logs[token];
        *penalised += less[token];
        tokens[i + 1] = token;
        hash = hash_on(hash, token);
    }
}

/* The best penalised sum of all sequences that end by `eos` or are `most` long. */
static double best_sum(const made_up *m, uint64_t h, int32_t *tokens, size_t n, double sum,
                       size_t most, int32_t eos, double penalty)
{
    double logs[8], best = -INFINITY;
    made_up_row(m, h, logs);
    penalise(logs, tokens, n, penalty, m->vocab);
    for (int32_t t = 0; t < m->vocab; t++) {
        tokens[n] = t;
        double x = sum + logs[t];
        if (t != eos && n < most)
            x = best_sum(m, hash_on(h, t), tokens, n + 1, x, most, eos, penalty);
        if (x > best) best = x;
    }
    return best;
}

static void test_repetition_penalty(void)
{
    static const double penalties[] = {1.4, 0.6, 3};
    static made_up m;
    const int32_t begin = 2;
    int changed = 0;
    for (uint64_t seed = 1; seed <= 12; seed++)
        for (int p = 0; p < 3; p++) {
            weft_search_input in = {.prefix = &begin, .prefix_len = 1, .max_len = 5, .key = seed};
            weft_search_options o = {
                .eos = 3, .has_eos = true, .nbest = 9, .repetition_penalty = penalties[p]};
            weft_search_model model = made_up_model(&m, 1, 243, 4, seed);
            int32_t tokens[8] = {begin};
            double own, penalised,
                best = best_sum(&m, hash_on(seed, begin), tokens, 1, 0, 5, 3, penalties[p]);
            weft_search_result *r[3];
            r[0] = weft_search_beam(&model, &in, 1, &o, NULL);
            m.position = 0;
            r[1] = weft_search_sample(&model, &in, 1, &o, NULL);
            m.position = 0;
            o.nbest = 1;
            r[2] = weft_search_greedy(&model, &in, 1, &o, NULL);
            for (int way = 0; way < 3; way++) {
                CU_ASSERT_PTR_NOT_NULL_FATAL(r[way]);
                for (size_t i = 0; i < r[way]->first[1]; i++) {
                    const weft_hypothesis *h = &r[way]->hypotheses[i];
                    sums_by_hand(&m, seed, begin, h, 3, penalties[p], &own, &penalised);
                    CU_ASSERT_DOUBLE_EQUAL(h->log_prob, own, 1e-12);
                    CU_ASSERT_DOUBLE_EQUAL(h->score, penalised, 1e-12);
                    changed += fabs(own - penalised) > 1e-3;
                }
            }
            CU_ASSERT_DOUBLE_EQUAL(r[0]->hypotheses[0].score, best, 1e-12);
            for (int way = 0; way < 3; way++) weft_search_result_free(r[way]);
            free(m.logs);
        }
    CU_ASSERT(changed > 100);
}

/* Beam search skips parts of a large vocabulary by their maxima; with and without a penalty it
 * finds what greedy search finds, and a large penalty lets nothing come twice. */
static void test_penalty_of_many(void)
{
    static made_up m;
    const int32_t prefix[3] = {70, 5, 130};
    for (uint64_t seed = 1; seed <= 30; seed++) {
        weft_search_input in = {.prefix = prefix, .prefix_len = 3, .max_len = 9, .key = seed};
        weft_search_options o = {.repetition_penalty = seed % 2 ? 1e-3 : 1e6};
        weft_search_model model = made_up_model(&m, 1, 1, 200, seed);
        weft_search_result *beam = weft_search_beam(&model, &in, 1, &o, NULL);
        m.position = 0;
        weft_search_result *greedy = weft_search_greedy(&model, &in, 1, &o, NULL);
        m.position = 0;
        weft_search_result *sample = weft_search_sample(&model, &in, 1, &o, NULL);
        CU_ASSERT_TRUE_FATAL(beam && greedy && sample);
        CU_ASSERT(same_hypothesis(greedy->hypotheses, beam->hypotheses));
        for (int way = 0; way < 2; way++) {
            const int32_t *tokens = (way ? sample : greedy)->hypotheses[0].tokens;
            for (int i = 0; i < 9; i++) {
                bool there = tokens[i] == 70 || tokens[i] == 5 || tokens[i] == 130;
                for (int k = 0; k < i; k++) there |= tokens[k] == tokens[i];
                if (seed % 2 == 0) CU_ASSERT_FALSE(there);
                if (seed % 2 == 1 && !way) CU_ASSERT_TRUE(there);
            }
        }
        weft_search_result_free(beam);
        weft_search_result_free(greedy);
        weft_search_result_free(sample);
        free(m.logs);
    }
}

/* ---- The caller sees each token ---- */

#define WATCHED 3

typedef struct watched {
    int32_t tokens[WATCHED][2][MAX_LEN];
    size_t n[WATCHED][2];
    size_t most;
    bool in_order;
} watched;

/* Row 0 of sentence i may find most - i tokens, row 1 one more. */
static bool watch(void *context, size_t sentence, size_t row, const int32_t *tokens, size_t n)
{
    watched *w = context;
    w->in_order &= sentence < WATCHED && row < 2 && n == w->n[sentence][row] + 1 && n <= MAX_LEN &&
                   !memcmp(w->tokens[sentence][row], tokens, (n - 1) * sizeof *tokens);
    if (!w->in_order) return false;
    memcpy(w->tokens[sentence][row], tokens, n * sizeof *tokens);
    w->n[sentence][row] = n;
    return n < w->most - sentence + row;
}

static void test_found(void)
{
    static made_up m;
    const int32_t prefix[4] = {1, 0, 2, 4};
    for (uint64_t seed = 1; seed <= 20; seed++)
        for (size_t rows = 1; rows <= 2; rows++) {
            weft_search_input in[WATCHED];
            for (size_t i = 0; i < WATCHED; i++)
                in[i] = (weft_search_input){prefix, 2 + i, 8, seed + i};
            weft_search_options o = {.eos = 3, .has_eos = true, .nbest = (int64_t)rows};
            weft_search_model model = made_up_model(&m, WATCHED, 2, 6, seed);
            weft_search_result *(*search)(const weft_search_model *, const weft_search_input *,
                                          size_t, const weft_search_options *, weft_error *) =
                rows == 1 ? weft_search_greedy : weft_search_sample;
            weft_search_result *whole = search(&model, in, WATCHED, &o, NULL);
            watched w = {.most = 4, .in_order = true};
            o.found = watch;
            o.found_context = &w;
            m.position = 0;
            weft_search_result *cut = search(&model, in, WATCHED, &o, NULL);
            CU_ASSERT_TRUE_FATAL(whole && cut && whole->first[WATCHED] == WATCHED * rows);
            CU_ASSERT_TRUE(w.in_order);
            for (size_t i = 0; i < WATCHED * rows; i++) {
                const weft_hypothesis *a = &whole->hypotheses[i], *b = &cut->hypotheses[i];
                size_t most = 4 - i / rows + i % rows;
                CU_ASSERT_EQUAL(b->length, a->length < most ? a->length : most);
                CU_ASSERT_EQUAL(b->ended, a->ended && a->length < most);
                CU_ASSERT_EQUAL(w.n[i / rows][i % rows], b->length);
                CU_ASSERT(!memcmp(a->tokens, b->tokens, b->length * sizeof *b->tokens));
                CU_ASSERT(!memcmp(w.tokens[i / rows][i % rows], b->tokens,
                                  b->length * sizeof *b->tokens));
            }
            weft_search_result_free(whole);
            weft_search_result_free(cut);
            weft_error error = {0};
            CU_ASSERT_PTR_NULL(weft_search_beam(&model, in, 1, &o, &error));
            CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "beam search has no `found`"));
            free(m.logs);
        }
}

static void test_search_refusals(void)
{
    static made_up m;
    const int32_t begin = 1;
    weft_search_model model = made_up_model(&m, 1, 2, 5, 3);
    weft_search_input in = {.prefix = &begin, .prefix_len = 1, .max_len = MAX_LEN + 1};
    weft_search_options o = {.eos = 4, .has_eos = true};
    weft_error error = {0};
    CU_ASSERT_PTR_NULL(weft_search_beam(&model, &in, 1, &o, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "the model has 12 positions"));
    in.max_len = 6;
    o.nbest = 3;
    CU_ASSERT_PTR_NULL(weft_search_beam(&model, &in, 1, &o, NULL));
    o.nbest = 0;
    o.temperature = -0.5;
    CU_ASSERT_PTR_NULL(weft_search_sample(&model, &in, 1, &o, NULL));
    o.temperature = 0;
    static const double no_penalties[] = {-1, INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        error = (weft_error){0};
        o.repetition_penalty = no_penalties[i];
        CU_ASSERT_PTR_NULL(weft_search_greedy(&model, &in, 1, &o, &error));
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "repetition penalty must be finite"));
    }
    o.repetition_penalty = 0;
    CU_ASSERT_PTR_NULL(weft_search_greedy(&model, &in, 2, &o, NULL)); /* two of one */
    const int32_t outside = 5;
    in.prefix = &outside;
    CU_ASSERT_PTR_NULL(weft_search_greedy(&model, &in, 1, &o, NULL));
    in.prefix = &begin;
    m.broken = true;
    o.has_eos = false;
    CU_ASSERT_PTR_NULL(weft_search_greedy(&model, &in, 1, &o, NULL)); /* an end that is not read */
    o.eos = 0;
    error = (weft_error){0};
    CU_ASSERT_PTR_NULL(weft_search_beam(&model, &in, 1, &o, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_IO);
    /* Everything barred: what there is comes back, cut. */
    m.broken = false;
    m.position = 0;
    const int32_t all[5] = {0, 1, 2, 3, 4};
    o.banned = all;
    o.n_banned = 5;
    o.penalty = WEFT_PENALTY_POWER;
    o.alpha = 1;
    weft_search_result *r = weft_search_beam(&model, &in, 1, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    CU_ASSERT(r->first[1] == 1 && r->hypotheses[0].length == 0 && !r->hypotheses[0].ended);
    CU_ASSERT_EQUAL(r->hypotheses[0].score, 0);
    weft_search_result_free(r);
    free(m.logs);
}

/* ---- Ensembles ---- */

#define MEMBERS 3

/* A model of an ensemble, which may read at once and keep, gives f32, or one row a sentence before
 * they part, and of some ids the probability 0. */
typedef struct member {
    made_up m;
    int64_t beams;
    bool narrow, f32;
    int32_t none; /* id of probability 0; -1: none */
    int reads, keeps;
    float logs[1024];
} member;

static weft_status member_step(void *context, const int32_t *tokens, const int32_t *parents,
                               weft_tensor *log_probs, weft_error *error)
{
    member *m = context;
    bool first = m->m.position == 0;
    weft_status status = made_up_step(&m->m, tokens, parents, log_probs, error);
    if (status != WEFT_OK) return status;
    int64_t rows = m->m.rows, vocab = m->m.vocab;
    for (int64_t row = 0; row < rows && m->none >= 0; row++)
        m->m.logs[row * vocab + m->none] = -INFINITY;
    for (int64_t i = 0; i < rows * vocab && i < 1024; i++) m->logs[i] = (float)m->m.logs[i];
    int64_t step = m->narrow && first ? m->beams : 1; /* the first tokens are equal */
    *log_probs = m->f32 ? weft_tensor_dense(m->logs, WEFT_F32, WEFT_SHAPE(rows, vocab))
                        : weft_tensor_dense(m->m.logs, WEFT_F64, WEFT_SHAPE(rows, vocab));
    log_probs->shape.dim[0] /= step;
    log_probs->stride[0] *= step;
    return WEFT_OK;
}

static weft_status member_read(void *context, const int32_t *tokens, size_t length,
                               weft_error *error)
{
    member *m = context;
    weft_tensor ignored;
    int32_t row[MAX_ROWS], self[MAX_ROWS];
    m->reads++;
    for (size_t at = 0; at < length; at++) {
        for (int64_t i = 0; i < m->m.rows; i++) {
            row[i] = tokens[(size_t)(i / m->beams) * length + at];
            self[i] = (int32_t)i;
        }
        weft_status status = made_up_step(&m->m, row, self, &ignored, error);
        if (status != WEFT_OK) return status;
    }
    return WEFT_OK;
}

static weft_status member_retain(void *context, const int32_t *sentences, size_t n,
                                 weft_error *error)
{
    member *m = context;
    (void)error;
    m->keeps++;
    for (size_t i = 0; i < n; i++)
        memmove(m->m.before + (int64_t)i * m->beams, m->m.before + sentences[i] * m->beams,
                (size_t)m->beams * sizeof *m->m.before);
    m->m.rows = (int64_t)n * m->beams;
    return WEFT_OK;
}

static weft_search_model member_model(member *m, int64_t sentences, int64_t beams, uint64_t seed)
{
    memset(m, 0, sizeof *m);
    weft_search_model model = made_up_model(&m->m, sentences, beams, 6, seed);
    m->beams = beams;
    m->none = -1;
    model.step = member_step;
    model.context = m;
    return model;
}

/* The log of the mean of probabilities, plainly. */
static double mean_by_hand(const member *members, const uint64_t *hash, const double *weights,
                           int32_t id)
{
    double sum = 0, all = 0, logs[6];
    for (int i = 0; i < MEMBERS; i++) {
        made_up_row(&members[i].m, hash[i], logs);
        sum += weights[i] * (members[i].none == id ? 0 : exp(logs[id]));
        all += weights[i];
    }
    return log(sum / all);
}

/* Every hypothesis must have the sum of the logs of means, and greedy search take the best. */
static void test_ensemble(void)
{
    static member members[MEMBERS];
    static const double equal[MEMBERS] = {1, 1, 1}, weights[MEMBERS] = {0.5, 3, 1e-3};
    const int32_t prefix[4] = {1, 0, 2, 4};
    for (uint64_t seed = 1; seed <= 24; seed++) {
        bool weighted = seed % 2, all_retain = seed % 3 == 0, beam = seed % 4 < 2;
        weft_search_model models[MEMBERS];
        weft_search_input in[3];
        for (int i = 0; i < MEMBERS; i++) {
            models[i] = member_model(&members[i], 3, 3, 100 * seed + (uint64_t)i);
            members[i].narrow = i != 1;
            members[i].f32 = i == 2;
            members[i].none = i == 0 ? 5 : -1;
            if (all_retain || i == 1) models[i].retain = member_retain;
            if (all_retain || i == 2) models[i].read = member_read;
        }
        for (size_t i = 0; i < 3; i++)
            in[i] = (weft_search_input){prefix, 2 + i % 2, 3 + (int64_t)(2 * i), seed + i};
        weft_error error = {0};
        weft_ensemble *e = weft_ensemble_new(models, MEMBERS, weighted ? weights : NULL, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(e);
        weft_search_model model = weft_ensemble_search_model(e);
        CU_ASSERT_EQUAL(model.retain != NULL, all_retain);
        CU_ASSERT_EQUAL(model.read != NULL, all_retain);
        weft_search_options o = {.eos = 3, .has_eos = true, .nbest = beam ? 3 : 1};
        weft_search_result *r = beam ? weft_search_beam(&model, in, 3, &o, &error)
                                     : weft_search_greedy(&model, in, 3, &o, &error);
        if (!r) CU_FAIL(error.message);
        for (size_t s = 0; r && s < 3; s++)
            for (size_t k = r->first[s]; k < r->first[s + 1]; k++) {
                const weft_hypothesis *h = &r->hypotheses[k];
                uint64_t hash[MEMBERS];
                double sum = 0;
                for (int i = 0; i < MEMBERS; i++) {
                    hash[i] = members[i].m.seed;
                    for (size_t p = 0; p < in[s].prefix_len; p++)
                        hash[i] = hash_on(hash[i], prefix[p]);
                }
                for (size_t at = 0; at < h->length + h->ended; at++) {
                    int32_t token = at < h->length ? h->tokens[at] : 3;
                    double own = mean_by_hand(members, hash, weighted ? weights : equal, token);
                    for (int32_t t = 0; t < 6 && !beam; t++)
                        CU_ASSERT(mean_by_hand(members, hash, weighted ? weights : equal, t) <=
                                  own + 1e-6);
                    sum += own;
                    for (int i = 0; i < MEMBERS; i++) hash[i] = hash_on(hash[i], token);
                }
                CU_ASSERT_DOUBLE_EQUAL(h->log_prob, sum, 1e-5); /* one of them gives f32 */
            }
        for (int i = 0; i < MEMBERS; i++) {
            CU_ASSERT_EQUAL(members[i].reads > 0, all_retain);
            CU_ASSERT_EQUAL(members[i].keeps > 0, all_retain);
        }
        weft_search_result_free(r);
        weft_ensemble_free(e);
        for (int i = 0; i < MEMBERS; i++) free(members[i].m.logs);
    }
}

/* Of a model with itself an ensemble gives the same bits; NaN and errors come through. */
static void test_ensemble_of_one(void)
{
    static member members[3];
    static const double no_weights[] = {0, -1, INFINITY, NAN};
    const int32_t begin = 1;
    weft_search_input in = {&begin, 1, 8, 1};
    weft_search_model models[3];
    weft_error error = {0};
    for (uint64_t seed = 1; seed <= 10; seed++) {
        for (int i = 0; i < 3; i++) models[i] = member_model(&members[i], 1, 2, seed);
        weft_search_options o = {.nbest = 2, .alpha = 0.6};
        weft_ensemble *e = weft_ensemble_new(models, 2, NULL, &error);
        weft_search_model both = weft_ensemble_search_model(e);
        weft_search_result *one = weft_search_beam(&models[2], &in, 1, &o, &error);
        weft_search_result *two = weft_search_beam(&both, &in, 1, &o, &error);
        CU_ASSERT_TRUE_FATAL(e && one && two);
        for (int i = 0; i < 2; i++)
            CU_ASSERT(same_hypothesis(&one->hypotheses[i], &two->hypotheses[i]));
        weft_search_result_free(one);
        weft_search_result_free(two);
        weft_ensemble_free(e);
        for (int i = 0; i < 3; i++) free(members[i].m.logs);
    }
    for (int i = 0; i < 3; i++) models[i] = member_model(&members[i], 1, 2, 5);
    for (int i = 0; i < 4; i++)
        CU_ASSERT_PTR_NULL(weft_ensemble_new(models, 2, (double[]){1, no_weights[i]}, NULL));
    CU_ASSERT_PTR_NULL(weft_ensemble_new(models, 0, NULL, NULL));
    CU_ASSERT_PTR_NULL(weft_ensemble_new(NULL, 1, NULL, NULL));
    models[1].max_len = 11;
    CU_ASSERT_PTR_NULL(weft_ensemble_new(models, 2, NULL, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "model 1 has 1 sentences"));
    weft_ensemble_free(NULL);
    models[1].max_len = MAX_LEN;
    weft_ensemble *e = weft_ensemble_new(models, 2, (double[]){1e308, 1e308}, NULL);
    weft_search_model both = weft_ensemble_search_model(e);
    members[1].m.spread = NAN;
    error = (weft_error){0};
    CU_ASSERT_PTR_NULL(weft_search_beam(&both, &in, 1, NULL, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "nan"));
    members[1].m.spread = 3;
    members[1].m.broken = true;
    for (int i = 0; i < 2; i++) members[i].m.position = 0;
    error = (weft_error){0};
    CU_ASSERT_PTR_NULL(weft_search_beam(&both, &in, 1, NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_IO);
    weft_ensemble_free(e);
    for (int i = 0; i < 3; i++) free(members[i].m.logs);
}

/* ---- Sampling ---- */

static void test_candidates(void)
{
    const double logs[6] = {log(0.1), log(0.3), -INFINITY, log(0.3), log(0.2), log(0.1)};
    int32_t ids[6];
    double probs[6];
    CU_ASSERT_EQUAL(weft_sample_candidates(logs, 6, 1, 0, 1, ids, probs), 5);
    CU_ASSERT(ids[0] == 0 && ids[1] == 1 && ids[2] == 3 && ids[3] == 4 && ids[4] == 5);
    CU_ASSERT_DOUBLE_EQUAL(probs[3], 0.2, 1e-12);
    /* The three most likely, ties to the lower id. */
    CU_ASSERT_EQUAL(weft_sample_candidates(logs, 6, 1, 3, 1, ids, probs), 3);
    CU_ASSERT(ids[0] == 1 && ids[1] == 3 && ids[2] == 4);
    CU_ASSERT_DOUBLE_EQUAL(probs[0], 0.375, 1e-12);
    CU_ASSERT_EQUAL(weft_sample_candidates(logs, 6, 1, 4, 1, ids, probs), 4);
    CU_ASSERT_EQUAL(ids[3], 0);
    /* 0.3 + 0.3 is 0.6: 0.59 needs two, 0.61 three, 0.29 one. */
    CU_ASSERT_EQUAL(weft_sample_candidates(logs, 6, 1, 0, 0.59, ids, probs), 2);
    CU_ASSERT_EQUAL(weft_sample_candidates(logs, 6, 1, 0, 0.61, ids, probs), 3);
    CU_ASSERT_EQUAL(weft_sample_candidates(logs, 6, 1, 0, 0.29, ids, probs), 1);
    CU_ASSERT_DOUBLE_EQUAL(probs[0], 1, 1e-12);
    /* After top_k: of three, 0.375 + 0.375 reaches 0.7. */
    CU_ASSERT_EQUAL(weft_sample_candidates(logs, 6, 1, 3, 0.7, ids, probs), 2);
    CU_ASSERT_EQUAL(weft_sample_candidates(logs, 6, 1, 3, 0.76, ids, probs), 3);
    /* A temperature of 1/2 squares: 0.09 of 0.24. */
    CU_ASSERT_EQUAL(weft_sample_candidates(logs, 6, 0.5, 0, 1, ids, probs), 5);
    CU_ASSERT_DOUBLE_EQUAL(probs[1], 0.09 / 0.24, 1e-12);
}

/* Counts of 16,384 draws against their probabilities: sum (n - e)^2 / e stays below the value that
 * chi-square with 4 degrees of freedom exceeds once in a thousand. */
static void test_frequencies(void)
{
    static made_up m;
    static weft_search_input in[64];
    static const double temperatures[2] = {1, 0.5};
    const int32_t begin = 1;
    for (int t = 0; t < 2; t++) {
        double logs[5], probs[5], counts[5] = {0}, sum = 0;
        int32_t ids[5];
        weft_search_options o = {.eos = 4,
                                 .has_eos = true,
                                 .nbest = 64,
                                 .temperature = temperatures[t],
                                 .top_p = 1,
                                 .seed = 99};
        made_up_row(&(made_up){.vocab = 5, .spread = 3}, hash_on(3, begin), logs);
        weft_sample_candidates(logs, 5, o.temperature, 0, 1, ids, probs);
        for (int round = 0; round < 4; round++) {
            weft_search_model model = made_up_model(&m, 64, 64, 5, 3);
            for (size_t i = 0; i < 64; i++)
                in[i] = (weft_search_input){&begin, 1, 1, (uint64_t)(round * 64) + i};
            weft_search_result *r = weft_search_sample(&model, in, 64, &o, NULL);
            CU_ASSERT_PTR_NOT_NULL_FATAL(r);
            CU_ASSERT_EQUAL(r->first[64], 4096);
            for (size_t i = 0; i < r->first[64]; i++)
                counts[r->hypotheses[i].ended ? 4 : r->hypotheses[i].tokens[0]]++;
            weft_search_result_free(r);
            free(m.logs);
        }
        for (int i = 0; i < 5; i++) {
            double expected = 16384 * probs[i];
            sum += (counts[i] - expected) * (counts[i] - expected) / expected;
        }
        CU_ASSERT(sum < 18.47);
    }
}

/* ---- A model's text does not depend on its company ---- */

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
                              .threads = threads};
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
    if (weft_decoder_start(d, starts, lengths, n) == WEFT_OK) {
        weft_search_model model = weft_decoder_search_model(d);
        r = sample ? weft_search_sample(&model, in, n, &options, error)
                   : weft_search_beam(&model, in, n, &options, error);
    }
    weft_decoder_free(d);
    return r;
}

static void test_company(void)
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
    weft_params_get(s.params, "dec.norm.beta", &t);
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
    CU_ASSERT_TRUE(weft_params_get(b, "x", &of_b));
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
    CU_add_test(suite, "steps give what whole passes give", test_steps);
    CU_add_test(suite, "models without steps", test_whole_passes);
    CU_add_test(suite, "reading ahead and leaving change no bit", test_reading_and_leaving);
    CU_add_test(suite, "a step's cost", test_step_cost);
    CU_add_test(suite, "decoders refuse what does not fit", test_refusals);
    CU_add_test(suite, "beam search against trying everything", test_exhaustive);
    CU_add_test(suite, "a beam of one is greedy", test_beam_of_one);
    CU_add_test(suite, "a repetition penalty", test_repetition_penalty);
    CU_add_test(suite, "a repetition penalty of many tokens", test_penalty_of_many);
    CU_add_test(suite, "the caller sees each token and ends rows", test_found);
    CU_add_test(suite, "searches refuse what does not fit", test_search_refusals);
    CU_add_test(suite, "an ensemble against means by hand", test_ensemble);
    CU_add_test(suite, "an ensemble of a model with itself", test_ensemble_of_one);
    CU_add_test(suite, "candidates of sampling", test_candidates);
    CU_add_test(suite, "frequencies of sampling", test_frequencies);
    CU_add_test(suite, "the same text in any company", test_company);
    CU_add_test(suite, "a model that gives NaN", test_nan);
    CU_add_test(suite, "stores share tensors", test_share);
}
