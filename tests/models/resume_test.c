/* What a training may go on with: the data, batches and metadata of its checkpoint, and nothing
 * else.
 */
#include "tests.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAD = 0, BOS = 2, EOS = 3, FIRST = 5, VOCAB = 20, SEQUENCES = 12 };

/* Sequences of 1 to 9 tokens by two generators, so that one side can change alone. */
static weft_corpus *make_corpus(uint64_t sources, uint64_t targets, bool swapped)
{
    weft_corpus *c = weft_corpus_new();
    int32_t ids[SEQUENCES][2][9];
    size_t length[SEQUENCES][2];
    for (size_t i = 0; i < SEQUENCES; i++)
        for (int side = 0; side < 2; side++) {
            uint64_t *seed = side ? &targets : &sources;
            length[i][side] = 1 + test_random(seed) % 9;
            for (size_t k = 0; k < length[i][side]; k++)
                ids[i][side][k] = FIRST + (int32_t)(test_random(seed) % (VOCAB - FIRST));
        }
    for (size_t i = 0; i < SEQUENCES; i++) {
        size_t at = swapped && i < 2 ? 1 - i : i;
        weft_corpus_add(c, ids[at][0], length[at][0], ids[at][1], length[at][1], NULL);
    }
    return c;
}

typedef struct rig {
    const char *dropout; /* as an option of the model */
    weft_corpus *corpus;
    weft_batches *batches;
    weft_params *params;
    weft_error error;
} rig;

static weft_batch_options batch_options(void)
{
    return (weft_batch_options){.tokens = 40,
                                .lengths = {10},
                                .n_lengths = 1,
                                .pad = PAD,
                                .bos = BOS,
                                .eos = EOS,
                                .vocab = VOCAB,
                                .seed = 7};
}

static rig open_rig(weft_corpus *corpus, const weft_batch_options *options, const char *load)
{
    rig r = {.dropout = "dropout=0.1", .corpus = corpus, .params = weft_params_new()};
    r.batches = weft_batches_new(corpus, options, &r.error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r.batches);
    if (load) CU_ASSERT_EQUAL_FATAL(weft_params_load(r.params, load, &r.error), WEFT_OK);
    return r;
}

static weft_trainer *new_trainer(rig *r, const char *source_name, const char *target_name)
{
    const char *const sizes[] = {"vocab=20",         "d_model=8",        "heads=2", "d_ff=8",
                                 "encoder_layers=1", "decoder_layers=1", r->dropout};
    weft_trainer_options o = {.builder =
                                  test_builder("transformer", sizes, sizeof sizes / sizeof *sizes),
                              .optimizer = WEFT_ADAM_DEFAULT,
                              .schedule = {WEFT_SCHEDULE_CONSTANT, 1e-2, 0, 0, 0},
                              .seed = 3,
                              .session.threads = 1,
                              .source_name = source_name,
                              .target_name = target_name};
    return test_new_trainer(&o, r->batches, r->params, &r->error);
}

static void close_rig(rig *r)
{
    weft_batches_free(r->batches);
    weft_corpus_free(r->corpus);
    weft_params_free(r->params);
}

/* The checkpoint of two steps on the data of generators 1 and 2. */
static const char *checkpoint(void)
{
    static char path[64];
    weft_batch_options o = batch_options();
    snprintf(path, sizeof path, "/tmp/weft-resume-%ld.safetensors", (long)getpid());
    rig r = open_rig(make_corpus(1, 2, false), &o, NULL);
    weft_trainer *t = new_trainer(&r, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    for (int i = 0; i < 2; i++) CU_ASSERT_EQUAL(weft_trainer_update(t, 0, NULL, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_trainer_save(t, path, NULL), WEFT_OK);
    weft_trainer_free(t);
    close_rig(&r);
    return path;
}

/* Resumes on a corpus, which it frees; a message is expected unless `text` is NULL. */
static void resume(const char *path, weft_corpus *corpus, const weft_batch_options *options,
                   const char *source_name, const char *target_name, const char *text)
{
    rig r = open_rig(corpus, options, path);
    weft_trainer *t = new_trainer(&r, source_name, target_name);
    if (!text) {
        CU_ASSERT_PTR_NOT_NULL(t);
        CU_ASSERT_EQUAL(weft_trainer_progress_of(t).updates, 2);
    } else {
        CU_ASSERT_PTR_NULL(t);
        CU_ASSERT_EQUAL(r.error.status, WEFT_BAD_ARGUMENT);
        if (!strstr(r.error.message, text)) printf("\n    %s\n", r.error.message);
        CU_ASSERT_PTR_NOT_NULL(strstr(r.error.message, text));
    }
    weft_trainer_free(t);
    close_rig(&r);
}

/* All corpora here make the same number of batches. */
static void test_other_data(void)
{
    const char *path = checkpoint();
    weft_batch_options o = batch_options();
    resume(path, make_corpus(1, 2, false), &o, "a.en", "a.es", NULL);
    resume(path, make_corpus(9, 2, false), &o, NULL, NULL, "on data other than these sources");
    resume(path, make_corpus(1, 9, false), &o, NULL, NULL, "on data other than these targets");
    resume(path, make_corpus(9, 2, false), &o, "a.en", "a.es", "on data other than a.en");
    resume(path, make_corpus(1, 9, false), &o, "a.en", "a.es", "on data other than a.es");
    resume(path, make_corpus(1, 2, true), &o, "a.en", "a.es", "on data other than a.en");
    o.tokens = 49; /* rows are as many */
    resume(path, make_corpus(1, 2, false), &o, NULL, NULL, NULL);
    o.tokens = 40;
    o.seed = 8;
    resume(path, make_corpus(1, 2, false), &o, NULL, NULL, "was trained with different batches");
    o.seed = 7;
    o.lengths[0] = 11;
    o.tokens = 44;
    resume(path, make_corpus(1, 2, false), &o, NULL, NULL, "was trained with different batches");
    o.tokens = 20;
    resume(path, make_corpus(1, 2, false), &o, NULL, NULL, "batches per epoch");
    unlink(path);
}

/* Parameters of the same shapes, but another model. */
static void test_other_options(void)
{
    const char *path = checkpoint();
    weft_batch_options o = batch_options();
    rig r = open_rig(make_corpus(1, 2, false), &o, path);
    r.dropout = "dropout=0.2";
    CU_ASSERT_PTR_NULL(new_trainer(&r, NULL, NULL));
    CU_ASSERT_EQUAL(r.error.status, WEFT_BAD_ARGUMENT);
    /* Nor is it the same run, whose checkpoints could be averaged. */
    rig other = open_rig(make_corpus(1, 2, false), &o, NULL);
    other.dropout = r.dropout;
    weft_trainer *t = new_trainer(&other, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT_EQUAL(weft_trainer_save(t, path, NULL), WEFT_OK);
    weft_trainer_free(t);
    close_rig(&other);
    other = open_rig(make_corpus(1, 2, false), &o, path);
    CU_ASSERT_STRING_NOT_EQUAL(weft_params_meta(other.params, "run"),
                               weft_params_meta(r.params, "run"));
    close_rig(&other);
    close_rig(&r);
    unlink(path);
}

static void test_hashes(void)
{
    weft_batch_options o = batch_options();
    rig a = open_rig(make_corpus(1, 2, false), &o, NULL);
    o.mask_fraction = 0.5; /* not of masked rows: changes nothing */
    rig b = open_rig(make_corpus(1, 2, false), &o, NULL);
    weft_data_hashes x = weft_batches_hashes(a.batches), y = weft_batches_hashes(b.batches);
    CU_ASSERT_EQUAL(x.source, y.source);
    CU_ASSERT_EQUAL(x.target, y.target);
    CU_ASSERT_EQUAL(x.batches, y.batches);
    CU_ASSERT_NOT_EQUAL(x.source, x.target);
    close_rig(&a);
    close_rig(&b);
    /* Where a sequence ends counts: [5 6][7] and [5][6 7]. */
    weft_corpus *c = weft_corpus_new(), *d = weft_corpus_new();
    weft_corpus_add(c, NULL, 0, (int32_t[]){5, 6}, 2, NULL);
    weft_corpus_add(c, NULL, 0, (int32_t[]){7}, 1, NULL);
    weft_corpus_add(d, NULL, 0, (int32_t[]){5}, 1, NULL);
    weft_corpus_add(d, NULL, 0, (int32_t[]){6, 7}, 2, NULL);
    o.mode = WEFT_BATCH_LINES;
    a = open_rig(c, &o, NULL);
    b = open_rig(d, &o, NULL);
    CU_ASSERT_NOT_EQUAL(weft_batches_hashes(a.batches).target,
                        weft_batches_hashes(b.batches).target);
    close_rig(&a);
    close_rig(&b);
    CU_ASSERT_EQUAL(weft_batches_hashes(NULL).target, 0);
}

/* A checkpoint of before there were hashes is resumed; a damaged one is not taken for such. */
static void test_metadata(void)
{
    static const struct {
        const char *key, *was, *is, *text;
    } cases[] = {{"train.data", "source=", "sauce=", "\"train.data\" is damaged"},
                 {"train.data", " target=", "x target=", "\"train.data\" is damaged"},
                 {"train.data", " batches=", " batches=f", "\"train.data\" is damaged"},
                 {"train.state", " batch=", " batch=-", "\"train.state\" is incomplete or damaged"},
                 {"train.state", " batch=", "x batch=", "\"train.state\" is incomplete or damaged"},
                 {"train.state", " best=", "* best=", "\"train.state\" is incomplete or damaged"},
                 {"train.state", " stale=", " stall=", "\"train.state\" is incomplete or damaged"},
                 {"step", "2", "2nd", "\"step\" is not a whole number"},
                 {"step", "2", " 2", "\"step\" is not a whole number"}};
    const char *path = checkpoint();
    weft_batch_options o = batch_options();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r = open_rig(make_corpus(1, 2, false), &o, path);
        char text[600];
        const char *old = weft_params_meta(r.params, cases[i].key);
        const char *at = old ? strstr(old, cases[i].was) : NULL;
        CU_ASSERT_PTR_NOT_NULL_FATAL(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - old), old, cases[i].is,
                 at + strlen(cases[i].was));
        weft_params_set_meta(r.params, cases[i].key, text, NULL);
        CU_ASSERT_PTR_NULL(new_trainer(&r, NULL, NULL));
        CU_ASSERT_EQUAL(r.error.status, WEFT_BAD_FILE);
        CU_ASSERT_STRING_EQUAL(r.error.message, cases[i].text);
        close_rig(&r);
    }
    /* A store like that file, without the newer metadata. */
    static const char *const kept[] = {"model", "model_options", "step", "train.state"};
    rig r = open_rig(make_corpus(1, 9, false), &o, path);
    weft_params *old = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_share(old, r.params, &r.error), WEFT_OK);
    for (size_t i = 0; i < 4; i++)
        weft_params_set_meta(old, kept[i], weft_params_meta(r.params, kept[i]), NULL);
    rig s = {r.dropout, r.corpus, r.batches, old, {0}};
    weft_trainer *t = new_trainer(&s, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL(t);
    CU_ASSERT_EQUAL(weft_trainer_progress_of(t).updates, 2);
    weft_trainer_free(t);
    weft_params_free(old);
    close_rig(&r);
    unlink(path);
}

void resume_tests(void)
{
    CU_pSuite suite = CU_add_suite("resume", NULL, NULL);
    CU_add_test(suite, "other data are refused, by name", test_other_data);
    CU_add_test(suite, "other options of the model are refused", test_other_options);
    CU_add_test(suite, "hashes of data", test_hashes);
    CU_add_test(suite, "old and damaged metadata", test_metadata);
}
