/* Embeddings: pooling against plain sums, rows in any company, what is refused. */
#include "tests.h"

#include <weft/embed.h>
#include <weft/huggingface.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROWS   3
#define LENGTH 5
#define WIDTH  4
#define VOCAB  13
#define TEXTS  25
#define LONG   40

/* ---- Pooling ---- */

/* The vector of row r, in double precision. */
static void pool_row(double x[ROWS][LENGTH][WIDTH], const bool padding[ROWS][LENGTH], int r,
                     weft_pooling pooling, double out[WIDTH])
{
    for (int k = 0; k < WIDTH; k++) {
        double sum = 0, largest = -INFINITY, n = 0;
        for (int i = 0; i < LENGTH; i++) {
            if (padding[r][i]) continue;
            sum += x[r][i][k];
            largest = fmax(largest, x[r][i][k]);
            n++;
        }
        out[k] = pooling == WEFT_POOL_MEAN    ? sum / n
                 : pooling == WEFT_POOL_FIRST ? x[r][0][k]
                 : pooling == WEFT_POOL_MAX   ? largest
                                              : sum / sqrt(n);
    }
}

static void test_pooling(void)
{
    static const bool padding[ROWS][LENGTH] = {{false, false, false, false, false},
                                               {false, false, true, true, true},
                                               {false, true, true, true, true}};
    double x[ROWS][LENGTH][WIDTH], want[WIDTH];
    uint64_t random = 3;
    for (int i = 0; i < ROWS * LENGTH * WIDTH; i++)
        ((double *)x)[i] = (double)(test_random(&random) % 2001) / 1000 - 1;
    for (weft_pooling pooling = WEFT_POOL_MEAN; pooling <= WEFT_POOL_ROOT; pooling++) {
        weft_error error = {0};
        weft_graph *g = weft_graph_new();
        const weft_value in = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(ROWS, LENGTH, WIDTH));
        const weft_value mask = weft_input(g, "padding", WEFT_BOOL, WEFT_SHAPE(ROWS, LENGTH));
        weft_value targets[2];
        targets[0] = weft_pool_tokens(g, in, mask, pooling);
        targets[1] = weft_unit_norm(g, targets[0]);
        weft_plan *plan = weft_plan_new(g, targets, 2, NULL, &error);
        weft_session *s = weft_session_new(plan, NULL, NULL, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        weft_session_feed(s, in, x, sizeof x, &error);
        weft_session_feed(s, mask, padding, sizeof padding, &error);
        CU_ASSERT_EQUAL_FATAL(weft_session_run(s, &error), WEFT_OK);
        weft_tensor pooled, unit;
        weft_session_tensor(s, targets[0], &pooled, &error);
        weft_session_tensor(s, targets[1], &unit, &error);
        for (int r = 0; r < ROWS; r++) {
            double norm = 0;
            pool_row(x, padding, r, pooling, want);
            for (int k = 0; k < WIDTH; k++) norm += want[k] * want[k];
            for (int k = 0; k < WIDTH; k++) {
                CU_ASSERT_DOUBLE_EQUAL(weft_tensor_element(&pooled, r * WIDTH + k), want[k], 1e-14);
                CU_ASSERT_DOUBLE_EQUAL(weft_tensor_element(&unit, r * WIDTH + k),
                                       want[k] / sqrt(norm), 1e-14);
            }
        }
        weft_session_free(s);
        weft_plan_free(plan);
        weft_graph_free(g);
    }
}

/* ---- The embedder ---- */

typedef struct subject {
    weft_model_config config;
    weft_params *params;
    int32_t tokens[TEXTS][LONG];
    float embeddings[TEXTS][16];
    weft_embedder_row rows[TEXTS];
} subject;

/* An encoder with its first parameters, and texts of many lengths. */
static subject *make_subject(void)
{
    static const char *const texts[] = {"vocab=13", "d_model=16",       "heads=2", "d_ff=24",
                                        "layers=2", "max_positions=64", "tied=0",  "token_types=2"};
    subject *s = calloc(1, sizeof *s);
    weft_error error = {0};
    uint64_t random = 5;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL_FATAL(weft_model_parse(weft_model_find("bert"), texts,
                                           sizeof texts / sizeof *texts, &s->config, &error),
                          WEFT_OK);
    weft_graph *g = weft_graph_new();
    s->params = weft_params_new();
    weft_model_build(g, &s->config);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(s->params, g, 7, &error), WEFT_OK);
    weft_graph_free(g);
    for (int i = 0; i < TEXTS; i++) {
        for (int k = 0; k < LONG; k++)
            s->tokens[i][k] = 1 + (int32_t)(test_random(&random) % (VOCAB - 1));
        s->rows[i] =
            (weft_embedder_row){s->tokens[i], 1 + test_random(&random) % LONG, s->embeddings[i]};
    }
    return s;
}

static void free_subject(subject *s)
{
    weft_params_free(s->params);
    free(s);
}

/* The mean of the model's hidden states of one text without padding, as weft_model_build has it. */
static void embed_plainly(const subject *s, int text, double out[16])
{
    weft_error error = {0};
    weft_model_config config = s->config;
    const int64_t n = (int64_t)s->rows[text].length;
    config.build.shape = (weft_batch_shape){.rows = 1, .target_len = n};
    weft_graph *g = weft_graph_new();
    const weft_built built = weft_model_build(g, &config);
    const weft_value hidden = weft_built_output(&built, "hidden");
    weft_plan *plan = weft_plan_new(g, &hidden, 1, NULL, &error);
    weft_session *session = weft_session_new(plan, s->params, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(session);
    weft_session_feed(session, weft_built_input(&built, "target_in"), s->tokens[text],
                      (size_t)n * sizeof(int32_t), &error);
    CU_ASSERT_EQUAL_FATAL(weft_session_run(session, &error), WEFT_OK);
    weft_tensor t;
    weft_session_tensor(session, hidden, &t, &error);
    for (int k = 0; k < 16; k++) {
        out[k] = 0;
        for (int64_t i = 0; i < n; i++) out[k] += weft_tensor_element(&t, i * 16 + k) / (double)n;
    }
    weft_session_free(session);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_embedder(void)
{
    subject *s = make_subject();
    static float alone[16];
    weft_error error = {0};
    const weft_embedder_options few = {.rows = 3, .session.threads = 1};
    weft_embedder *e = weft_embedder_new(&s->config, s->params, NULL, &error);
    weft_embedder *small = weft_embedder_new(&s->config, s->params, &few, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(e);
    CU_ASSERT_EQUAL(weft_embedder_width(e), 16);
    CU_ASSERT_EQUAL(weft_embedder_max_len(e), 64);
    CU_ASSERT_EQUAL(weft_embedder_run(e, s->rows, TEXTS, &error), WEFT_OK);
    for (int i = 0; i < TEXTS; i++) {
        double want[16];
        const weft_embedder_row row = {s->tokens[i], s->rows[i].length, alone};
        embed_plainly(s, i, want);
        for (int k = 0; k < 16; k++) CU_ASSERT_DOUBLE_EQUAL(s->embeddings[i][k], want[k], 2e-6);
        CU_ASSERT_EQUAL(weft_embedder_run(small, &row, 1, &error), WEFT_OK);
        EXPECT_SAME_BITS(WEFT_F32, s->embeddings[i], alone, 16);
    }
    /* In other batches, without the first text. */
    static float again[TEXTS][16];
    for (int i = 0; i < TEXTS; i++) s->rows[i].embedding = again[i];
    CU_ASSERT_EQUAL(weft_embedder_run(small, s->rows + 1, TEXTS - 1, &error), WEFT_OK);
    EXPECT_SAME_BITS(WEFT_F32, s->embeddings[1], again[1], (TEXTS - 1) * 16);
    CU_ASSERT_EQUAL(weft_embedder_run(small, NULL, 0, &error), WEFT_OK);
    weft_embedder_free(small);
    weft_embedder_free(e);
    free_subject(s);
}

/* The parameters of the logits are not read, so they need not be there. */
static void test_no_logits(void)
{
    subject *s = make_subject();
    float embedding[16];
    weft_error error;
    weft_params *some = weft_params_new();
    for (size_t i = 0; i < weft_params_count(s->params); i++) {
        const char *name = weft_params_name(s->params, i);
        weft_tensor from, to;
        weft_params_find(s->params, name, &from);
        if (!strncmp(name, "output", 6) || !strncmp(name, "head", 4)) continue;
        CU_ASSERT_EQUAL(weft_params_add(some, name, from.dtype, from.shape, &to, &error), WEFT_OK);
        memcpy(to.data, from.data, weft_tensor_bytes(from.dtype, from.shape));
    }
    CU_ASSERT(weft_params_count(some) < weft_params_count(s->params));
    weft_embedder *e = weft_embedder_new(&s->config, s->params, NULL, &error);
    weft_embedder *without = weft_embedder_new(&s->config, some, NULL, &error);
    weft_embedder_row row = {s->tokens[0], 9, embedding};
    CU_ASSERT_EQUAL(weft_embedder_run(without, &row, 1, &error), WEFT_OK);
    row.embedding = s->embeddings[0];
    CU_ASSERT_EQUAL(weft_embedder_run(e, &row, 1, &error), WEFT_OK);
    EXPECT_SAME_BITS(WEFT_F32, embedding, s->embeddings[0], 16);
    weft_embedder_free(e);
    weft_embedder_free(without);
    weft_params_free(some);
    free_subject(s);
}

static void test_refusals(void)
{
    static const char *const causal[] = {"vocab=13", "d_model=16", "heads=2"};
    subject *s = make_subject();
    weft_error error;
    weft_model_config other;
    weft_embedder_options o = {.max_len = 65};
    CU_ASSERT_PTR_NULL(weft_embedder_new(&s->config, s->params, &o, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "has 64 learned positions, fewer than 65"));
    o.max_len = -1;
    CU_ASSERT_PTR_NULL(weft_embedder_new(&s->config, s->params, &o, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    weft_model_parse(weft_model_find("gpt"), causal, 3, &other, &error);
    CU_ASSERT_PTR_NULL(weft_embedder_new(&other, s->params, NULL, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "expected an encoder such as bert"));
    o.max_len = 10;
    weft_embedder *e = weft_embedder_new(&s->config, s->params, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(e);
    const int32_t padding[2] = {0, 0}, outside = VOCAB;
    weft_embedder_row row = {s->tokens[0], 11, s->embeddings[0]};
    CU_ASSERT_EQUAL(weft_embedder_run(e, &row, 1, &error), WEFT_TOO_LARGE);
    row = (weft_embedder_row){padding, 2, s->embeddings[0]};
    CU_ASSERT_EQUAL(weft_embedder_run(e, &row, 1, &error), WEFT_BAD_ARGUMENT);
    row = (weft_embedder_row){&outside, 1, s->embeddings[0]};
    CU_ASSERT_EQUAL(weft_embedder_run(e, &row, 1, &error), WEFT_BAD_INDEX);
    row.length = 0;
    CU_ASSERT_EQUAL(weft_embedder_run(e, &row, 1, NULL), WEFT_BAD_ARGUMENT);
    row = (weft_embedder_row){s->tokens[0], 10, s->embeddings[0]};
    CU_ASSERT_EQUAL(weft_embedder_run(e, &row, 1, &error), WEFT_OK);
    weft_embedder_free(e);
    free_subject(s);
}

/* ---- The configuration of sentence-transformers ---- */

static char folder[] = "/tmp/weft-embed-XXXXXX";

static int make_folder(void)
{
    char path[64];
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/1_Pooling", folder);
    return mkdir(path, 0700);
}

static const char *const files[] = {"modules.json", "1_Pooling/config.json",
                                    "sentence_bert_config.json",
                                    "config_sentence_transformers.json"};

static int remove_folder(void)
{
    char path[96];
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/1_Pooling", folder);
    return rmdir(path) || rmdir(folder);
}

static void write_file(int which, const char *text)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", folder, files[which]);
    FILE *file = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    fclose(file);
}

#define POOLING "{\"path\": \"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"}"

static void test_published_configurations(void)
{
    static const struct {
        const char *texts[4];
        weft_status status;
        weft_huggingface_embedding want;
        const char *message;
    } cases[] = {
        {{"[]", "", "{}", "{}"}, WEFT_OK, {.max_len = 0}, NULL},
        {{"[{\"path\": \"\", \"type\": \"a.Transformer\"}, " POOLING
          ", {\"path\": \"2\", \"type\": \"b.Normalize\"}]",
          "{\"pooling_mode_cls_token\": false, \"pooling_mode_mean_tokens\": true}",
          "{\"max_seq_length\": 256, \"do_lower_case\": false}", "{\"default_prompt_name\": null}"},
         WEFT_OK,
         {.pooling = WEFT_POOL_MEAN, .normalize = true, .max_len = 256},
         NULL},
        {{"[" POOLING "]", "{\"pooling_mode\": \"cls\", \"include_prompt\": true}", "{}", "{}"},
         WEFT_OK,
         {.pooling = WEFT_POOL_FIRST},
         NULL},
        {{"[" POOLING "]", "{\"pooling_mode_mean_sqrt_len_tokens\": true}", "{}", "{}"},
         WEFT_OK,
         {.pooling = WEFT_POOL_ROOT},
         NULL},
        {{"[" POOLING "]",
          "{\"pooling_mode_max_tokens\": true, \"pooling_mode_mean_tokens\": true}", "{}", "{}"},
         WEFT_BAD_ARGUMENT,
         {.pooling = WEFT_POOL_MAX, .max_len = 9},
         "pooling_mode must be one of"},
        {{"[" POOLING "]", "{\"pooling_mode_lasttoken\": true, \"pooling_mode_mean_tokens\": true}",
          "{}", "{}"},
         WEFT_BAD_ARGUMENT,
         {.pooling = WEFT_POOL_MAX, .max_len = 9},
         "pooling_mode must be one of"},
        {{"[{\"path\": \"2_Dense\", \"type\": \"sentence_transformers.models.Dense\"}]", "{}", "{}",
          "{}"},
         WEFT_BAD_ARGUMENT,
         {.pooling = WEFT_POOL_MAX, .max_len = 9},
         "the module Dense is not supported"},
        {{"[{\"path\": \"../a\", \"type\": \"Pooling\"}]", "{}", "{}", "{}"},
         WEFT_BAD_ARGUMENT,
         {.pooling = WEFT_POOL_MAX, .max_len = 9},
         "path is not a folder of the model"},
        {{"[]", "", "{\"do_lower_case\": true}", "{}"},
         WEFT_BAD_ARGUMENT,
         {.pooling = WEFT_POOL_MAX, .max_len = 9},
         "do_lower_case is true"},
        {{"[]", "", "{}", "{\"default_prompt_name\": \"query\"}"},
         WEFT_BAD_ARGUMENT,
         {.pooling = WEFT_POOL_MAX, .max_len = 9},
         "default_prompt_name is not supported"},
        {{"[3]", "", "{}", "{}"},
         WEFT_BAD_FILE,
         {.pooling = WEFT_POOL_MAX, .max_len = 9},
         "no type or no path"},
        {{"{}", "", "{}", "{}"},
         WEFT_BAD_FILE,
         {.pooling = WEFT_POOL_MAX, .max_len = 9},
         "is not a list of modules"},
        {{"[]", "", "[", "{}"},
         WEFT_BAD_FILE,
         {.pooling = WEFT_POOL_MAX, .max_len = 9},
         "is not JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_huggingface_embedding o = {.pooling = WEFT_POOL_MAX, .max_len = 9};
        weft_error error;
        for (int k = 0; k < 4; k++) write_file(k, cases[i].texts[k]);
        CU_ASSERT_EQUAL(weft_huggingface_read_embedding(folder, &o, &error), cases[i].status);
        CU_ASSERT_EQUAL(o.pooling, cases[i].want.pooling);
        CU_ASSERT_EQUAL(o.normalize, cases[i].want.normalize);
        CU_ASSERT_EQUAL(o.max_len, cases[i].want.max_len);
        if (cases[i].message) CU_ASSERT_PTR_NOT_NULL(strstr(error.message, cases[i].message));
    }
}

void embed_tests(void)
{
    CU_pSuite suite = CU_add_suite("embed", make_folder, remove_folder);
    CU_add_test(suite, "pooling", test_pooling);
    CU_add_test(suite, "rows in any company", test_embedder);
    CU_add_test(suite, "no logits", test_no_logits);
    CU_add_test(suite, "what is refused", test_refusals);
    CU_add_test(suite, "configurations of sentence-transformers", test_published_configurations);
}
