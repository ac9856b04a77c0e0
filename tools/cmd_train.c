/* weft train: a translation model on a pair of text files. One graph, plan and session for each
 * class of length, all on one parameter store and one arena. */
#include "corpus.h"
#include "tool.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct settings {
    model_args model;
    const char *source, *target, *valid_source, *valid_target, *out;
    double minutes, lr;
    long steps, warmup, vocab, batch_tokens, threads, seed;
    bool json, resume;
} settings;

enum {
    KEY_SOURCE = 256,
    KEY_TARGET,
    KEY_VALID_SOURCE,
    KEY_VALID_TARGET,
    KEY_OUT,
    KEY_MINUTES,
    KEY_STEPS,
    KEY_LR,
    KEY_WARMUP,
    KEY_VOCAB,
    KEY_BATCH_TOKENS,
    KEY_THREADS,
    KEY_SEED,
    KEY_RESUME,
    KEY_JSON
};

static const struct argp_option options[] = {
    {"source", KEY_SOURCE, "FILE", 0, "training sentences, one a line", 0},
    {"target", KEY_TARGET, "FILE", 0, "their translations", 0},
    {"valid-source", KEY_VALID_SOURCE, "FILE", 0, "validation sentences", 0},
    {"valid-target", KEY_VALID_TARGET, "FILE", 0, "their translations", 0},
    {"out", KEY_OUT, "FOLDER", 0, "where the checkpoint and the vocabulary go", 0},
    {"minutes", KEY_MINUTES, "M", 0, "train for so long (default 5)", 0},
    {"steps", KEY_STEPS, "N", 0, "train for so many steps instead", 0},
    {"lr", KEY_LR, "X", 0, "peak learning rate (default 1.5e-3)", 0},
    {"warmup", KEY_WARMUP, "N", 0, "steps up to the peak (default 200)", 0},
    {"vocab", KEY_VOCAB, "N", 0, "pieces of a new vocabulary (default 4000)", 0},
    {"batch-tokens", KEY_BATCH_TOKENS, "N", 0, "target tokens of a batch (default 1536)", 0},
    {"threads", KEY_THREADS, "N", 0, "threads (default: all)", 0},
    {"seed", KEY_SEED, "N", 0, "of parameters, shuffling and dropout (default 1)", 0},
    {"resume", KEY_RESUME, NULL, 0, "go on from the checkpoint in the folder", 0},
    {"json", KEY_JSON, NULL, 0, "print the result as JSON, progress on stderr", 0},
    {0}};

static double number(const char *text, double low, double high, struct argp_state *state)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !(x >= low && x <= high))
        argp_error(state, "\"%s\" is not a number from %g to %g", text, low, high);
    return x;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    settings *s = state->input;
    switch (key) {
    case KEY_SOURCE:
        s->source = text;
        return 0;
    case KEY_TARGET:
        s->target = text;
        return 0;
    case KEY_VALID_SOURCE:
        s->valid_source = text;
        return 0;
    case KEY_VALID_TARGET:
        s->valid_target = text;
        return 0;
    case KEY_OUT:
        s->out = text;
        return 0;
    case KEY_MINUTES:
        s->minutes = number(text, 0, 1e6, state);
        return 0;
    case KEY_STEPS:
        s->steps = (long)number(text, 1, 1e9, state);
        return 0;
    case KEY_LR:
        s->lr = number(text, 0, 10, state);
        return 0;
    case KEY_WARMUP:
        s->warmup = (long)number(text, 1, 1e9, state);
        return 0;
    case KEY_VOCAB:
        s->vocab = (long)number(text, 10, 1e6, state);
        return 0;
    case KEY_BATCH_TOKENS:
        s->batch_tokens = (long)number(text, 1, 1e6, state);
        return 0;
    case KEY_THREADS:
        s->threads = (long)number(text, 0, 1024, state);
        return 0;
    case KEY_SEED:
        s->seed = (long)number(text, 0, 1e15, state);
        return 0;
    case KEY_RESUME:
        s->resume = true;
        return 0;
    case KEY_JSON:
        s->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (!s->model.model && strchr(text, '=')) s->model.model = weft_model_find("transformer");
        tool_take_model_arg(&s->model, text, state);
        return 0;
    case ARGP_KEY_END:
        if (!s->source || !s->target || !s->valid_source || !s->valid_target || !s->out)
            argp_error(state,
                       "--source, --target, --valid-source, --valid-target and --out are needed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- The trainer ---- */

/* A class of length: the training step, and the loss alone without dropout. */
typedef struct bucket {
    built_model train, eval;
    weft_plan *train_plan, *eval_plan;
    weft_session *train_session, *eval_session;
} bucket;

typedef struct trainer {
    settings *s;
    spm *vocabulary;
    corpus train, valid;
    bucket buckets[BUCKETS];
    bool used[BUCKETS];
    weft_params *params;
    void *arena;
    size_t arena_bytes;
    int32_t *ids[3];
    long step, first_step;
    size_t target_tokens;
    double start, spent_before, smooth_loss, valid_loss;
    bool terminal;
    char model_path[4096], vocabulary_path[4096];
    char options[TOOL_OPTIONS_TEXT]; /* of the model: what the checkpoint tells */
    char stored[TOOL_OPTIONS_TEXT];  /* those of the checkpoint resumed, cut into words */
    bool made_vocabulary;
    weft_error error;
} trainer;

static volatile sig_atomic_t interrupted;

static void on_signal(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool plan_bucket(trainer *t, int b)
{
    bucket *k = &t->buckets[b];
    char texts[4][48];
    const char *model_options[WEFT_MODEL_OPTIONS + 4];
    size_t n = 0;
    for (; n < t->s->model.n_options; n++) model_options[n] = t->s->model.options[n];
    snprintf(texts[0], 48, "batch=%lld", (long long)bucket_batch(b, t->s->batch_tokens));
    snprintf(texts[1], 48, "source_len=%d", bucket_lengths[b]);
    snprintf(texts[2], 48, "target_len=%d", bucket_lengths[b]);
    snprintf(texts[3], 48, "vocab=%d", spm_size(t->vocabulary));
    for (int i = 0; i < 4; i++) model_options[n++] = texts[i];
    if (tool_build(t->s->model.model, model_options, n, true, &k->train, &t->error) != WEFT_OK ||
        tool_build(t->s->model.model, model_options, n, false, &k->eval, &t->error) != WEFT_OK)
        return false;
    weft_value targets[2] = {k->train.io.loss, k->train.step};
    k->train_plan = weft_plan_new(k->train.graph, targets, 2, NULL, &t->error);
    if (!k->train_plan) return false;
    k->eval_plan = weft_plan_new(k->eval.graph, &k->eval.io.nll, 1, NULL, &t->error);
    if (!k->eval_plan) return false;
    size_t bytes = weft_plan_get_stats(k->train_plan).arena_bytes;
    size_t eval_bytes = weft_plan_get_stats(k->eval_plan).arena_bytes;
    if (bytes > t->arena_bytes) t->arena_bytes = bytes;
    if (eval_bytes > t->arena_bytes) t->arena_bytes = eval_bytes;
    return weft_params_init(t->params, k->train.graph, (uint64_t)t->s->seed, &t->error) == WEFT_OK;
}

static bool open_sessions(trainer *t)
{
    t->arena_bytes = (t->arena_bytes + 63) / 64 * 64;
    t->arena = aligned_alloc(64, t->arena_bytes);
    if (!t->arena) {
        weft_error_set(&t->error, WEFT_NO_MEMORY, "train", "no memory for an arena of %zu bytes",
                       t->arena_bytes);
        return false;
    }
    weft_session_options o = {.threads = (int)t->s->threads,
                              .seed = (uint64_t)t->s->seed,
                              .arena = t->arena,
                              .arena_bytes = t->arena_bytes};
    for (int b = 0; b < BUCKETS; b++) {
        bucket *k = &t->buckets[b];
        if (!t->used[b]) continue;
        k->train_session = weft_session_new(k->train_plan, t->params, &o, &t->error);
        if (!k->train_session) return false;
        k->eval_session = weft_session_new(k->eval_plan, t->params, &o, &t->error);
        if (!k->eval_session) return false;
    }
    return true;
}

static bool take_session_error(trainer *t, const weft_session *session)
{
    t->error = *weft_session_error(session);
    return false;
}

static bool feed_ids(trainer *t, weft_session *session, const weft_model_io *io, size_t numel)
{
    weft_value inputs[3] = {io->source, io->target_in, io->target_out};
    for (int i = 0; i < 3; i++)
        if (weft_feed(session, inputs[i], t->ids[i], numel * sizeof **t->ids) != WEFT_OK)
            return take_session_error(t, session);
    return true;
}

/* Linear warm-up to the peak, then linear decay to nothing at the end of the time or the steps. */
static double learning_rate(const trainer *t, double share)
{
    double warm = (double)(t->step + 1) / (double)t->s->warmup;
    double rest = 1 - share;
    return t->s->lr * fmin(fmin(warm, 1), fmax(rest, 0.02));
}

static bool train_batch(trainer *t, const corpus *c, const epoch *e, const batch *batch_info,
                        double share, float *loss)
{
    bucket *k = &t->buckets[batch_info->bucket];
    int32_t len = bucket_lengths[batch_info->bucket];
    int64_t size = bucket_batch(batch_info->bucket, t->s->batch_tokens);
    float lr = (float)learning_rate(t, share);
    t->target_tokens += batch_fill(c, e->order + batch_info->first, size, size, len, t->ids[0],
                                   t->ids[1], t->ids[2]);
    weft_session_set_step(k->train_session, (uint64_t)t->step);
    if (!feed_ids(t, k->train_session, &k->train.io, (size_t)(size * len))) return false;
    if (weft_feed(k->train_session, k->train.lr, &lr, sizeof lr) != WEFT_OK ||
        weft_run(k->train_session) != WEFT_OK)
        return take_session_error(t, k->train_session);
    weft_fetch(k->train_session, k->train.io.loss, loss, sizeof *loss);
    if (isfinite(*loss)) return true;
    weft_error_set(&t->error, WEFT_INTERNAL, "train", "the loss of step %ld is not finite",
                   t->step);
    return false;
}

/* Mean loss a target token, in nats, over the validation set (at most `most` batches). */
static bool validate(trainer *t, size_t most, double *out)
{
    epoch e = {0};
    double sum = 0, tokens = 0;
    if (epoch_make(&e, &t->valid, t->s->batch_tokens, 1) != WEFT_OK) {
        weft_error_set(&t->error, WEFT_NO_MEMORY, "train", "no memory to validate");
        return false;
    }
    bool good = true;
    for (size_t i = 0; i < e.n_batches && i < most && good; i++) {
        bucket *k = &t->buckets[e.batches[i].bucket];
        int32_t len = bucket_lengths[e.batches[i].bucket];
        int64_t size = bucket_batch(e.batches[i].bucket, t->s->batch_tokens);
        double n = (double)batch_fill(&t->valid, e.order + e.batches[i].first, e.batches[i].unique,
                                      size, len, t->ids[0], t->ids[1], t->ids[2]);
        float nll = 0;
        good = feed_ids(t, k->eval_session, &k->eval.io, (size_t)(size * len));
        if (good && weft_run(k->eval_session) != WEFT_OK)
            good = take_session_error(t, k->eval_session);
        weft_fetch(k->eval_session, k->eval.io.nll, &nll, sizeof nll);
        sum += n * (double)nll;
        tokens += n;
    }
    epoch_free(&e);
    *out = tokens ? sum / tokens : NAN;
    return good;
}

static bool save(trainer *t)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", t->step);
    weft_status status = weft_params_set_meta(t->params, "step", text);
    if (status == WEFT_OK) status = weft_params_set_meta(t->params, "model_options", t->options);
    if (status == WEFT_OK)
        status = weft_params_set_meta(t->params, "model", t->s->model.model->name);
    if (status != WEFT_OK) {
        weft_error_set(&t->error, status, t->model_path, "no memory");
        return false;
    }
    return weft_params_save(t->params, t->model_path, &t->error) == WEFT_OK;
}

static void progress(trainer *t, double share, double elapsed, bool end)
{
    FILE *file = t->s->json ? stderr : stdout;
    double left = share > 0 ? elapsed * (1 - share) / share : 0;
    fprintf(file, "%sstep %ld  loss %.3f  validation %.3f  %.0f tokens/s  %d:%02d left%s",
            t->terminal ? "\r\033[K" : "", t->step, t->smooth_loss, t->valid_loss,
            (double)t->target_tokens / fmax(elapsed, 1e-9), (int)left / 60, (int)left % 60,
            t->terminal && !end ? "" : "\n");
    fflush(file);
}

static double share_done(const trainer *t, double elapsed)
{
    if (t->s->steps) return (double)(t->step - t->first_step) / (double)t->s->steps;
    return fmin(elapsed / (60 * t->s->minutes), 1);
}

static bool train_loop(trainer *t)
{
    double last_print = -100, last_valid = 0, last_save = 0;
    uint64_t pass = 0;
    bool good = true, done = false;
    t->start = now_seconds();
    t->valid_loss = NAN;
    while (good && !done) {
        epoch e = {0};
        if (epoch_make(&e, &t->train, t->s->batch_tokens,
                       (uint64_t)t->s->seed * 1000 + pass++ + (uint64_t)t->first_step) != WEFT_OK) {
            weft_error_set(&t->error, WEFT_NO_MEMORY, "train", "no memory for the batches");
            return false;
        }
        for (size_t i = 0; i < e.n_batches && good && !done; i++) {
            float loss = 0;
            double elapsed = now_seconds() - t->start, share = share_done(t, elapsed);
            if (share >= 1 || interrupted) {
                done = true;
                break;
            }
            good = train_batch(t, &t->train, &e, &e.batches[i], share, &loss);
            if (!good) break;
            t->smooth_loss = t->step == t->first_step ? (double)loss
                                                      : 0.98 * t->smooth_loss + 0.02 * (double)loss;
            t->step++;
            elapsed = now_seconds() - t->start;
            if (elapsed - last_valid > 30 || t->step == t->first_step + 1) {
                good = validate(t, 8, &t->valid_loss);
                last_valid = elapsed;
            }
            if (good && elapsed - last_save > 120) {
                good = save(t);
                last_save = elapsed;
            }
            if (good && elapsed - last_print > (t->terminal ? 0.5 : 10)) {
                progress(t, share_done(t, elapsed), elapsed, false);
                last_print = elapsed;
            }
        }
        epoch_free(&e);
    }
    return good;
}

static int finish(trainer *t)
{
    double elapsed = now_seconds() - t->start;
    double entropy = unigram_entropy(&t->train, &t->valid, spm_size(t->vocabulary));
    if (!validate(t, SIZE_MAX, &t->valid_loss) || !save(t)) return tool_fail(&t->error);
    progress(t, 1, elapsed, true);
    if (t->s->json) {
        cJSON *json = cJSON_CreateObject();
        cJSON_AddNumberToObject(json, "steps", (double)t->step);
        cJSON_AddNumberToObject(json, "seconds", elapsed);
        cJSON_AddNumberToObject(json, "tokens_per_second", (double)t->target_tokens / elapsed);
        cJSON_AddNumberToObject(json, "loss", t->smooth_loss);
        cJSON_AddNumberToObject(json, "validation_loss", t->valid_loss);
        cJSON_AddNumberToObject(json, "unigram_entropy", entropy);
        cJSON_AddStringToObject(json, "checkpoint", t->model_path);
        return tool_print_json(json);
    }
    printf("%s after %ld steps: validation loss %.3f nats a token (unigram entropy of the target "
           "text: %.3f)\nsaved %s\n",
           interrupted ? "stopped" : "finished", t->step, t->valid_loss, entropy, t->model_path);
    return EXIT_GOOD;
}

/* ---- Setting up ---- */

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* The options of the checkpoint hold; the command line may repeat them, not change them. */
static bool resume_options(trainer *t)
{
    model_args *given = &t->s->model;
    const char *name = weft_params_meta(t->params, "model");
    const char *text = weft_params_meta(t->params, "model_options");
    const weft_model *model = weft_model_find(name);
    const char *texts[2 * WEFT_MODEL_OPTIONS];
    double was[WEFT_MODEL_OPTIONS], wanted[WEFT_MODEL_OPTIONS];
    size_t n = 0;
    if (!model || !text || strlen(text) >= sizeof t->stored) {
        weft_error_set(&t->error, WEFT_BAD_FILE, t->model_path,
                       "does not say which model it is of");
        return false;
    }
    if (given->model && given->model != model) {
        weft_error_set(&t->error, WEFT_BAD_ARGUMENT, t->model_path, "is of the model %s, not of %s",
                       model->name, given->model->name);
        return false;
    }
    strcpy(t->stored, text);
    char *rest = NULL;
    for (char *o = strtok_r(t->stored, " ", &rest); o && n < WEFT_MODEL_OPTIONS;
         o = strtok_r(NULL, " ", &rest))
        texts[n++] = o;
    if (weft_model_parse(model, texts, n, was, &t->error) != WEFT_OK) return false;
    size_t n_stored = n;
    for (size_t i = 0; i < given->n_options; i++) texts[n++] = given->options[i];
    if (weft_model_parse(model, texts, n, wanted, &t->error) != WEFT_OK) return false;
    for (size_t i = 0; i < model->n_options; i++) {
        if (was[i] == wanted[i]) continue;
        weft_error_set(&t->error, WEFT_BAD_ARGUMENT, t->model_path, "was made with %s=%g, not %g",
                       model->options[i].name, was[i], wanted[i]);
        return false;
    }
    given->model = model;
    given->n_options = n_stored;
    memcpy(given->options, texts, n_stored * sizeof *texts);
    return true;
}

/* What --resume goes on with: parameters and optimiser state, and the vocabulary beside them. */
static bool open_checkpoint(trainer *t)
{
    if (!exists(t->vocabulary_path)) {
        weft_error_set(&t->error, WEFT_IO, t->vocabulary_path, "cannot be opened: %s",
                       strerror(errno));
        return false;
    }
    t->params = weft_params_new();
    return weft_params_load(t->params, t->model_path, &t->error) == WEFT_OK && resume_options(t);
}

/* The model, and every option of it by name and value, so that a checkpoint does not depend on
 * defaults. */
static bool choose_model(trainer *t)
{
    if (!t->s->model.model) t->s->model.model = weft_model_find("transformer");
    const model_args *m = &t->s->model;
    double values[WEFT_MODEL_OPTIONS];
    size_t used = 0;
    if (weft_model_parse(m->model, m->options, m->n_options, values, &t->error) != WEFT_OK)
        return false;
    for (size_t i = 0; i < m->model->n_options; i++) {
        size_t room = sizeof t->options - used;
        char value[64];
        int n =
            snprintf(t->options + used, room, "%s%s=%s", i ? " " : "", m->model->options[i].name,
                     weft_model_value_text(m->model, i, values[i], value, sizeof value));
        if (n < 0 || (size_t)n >= room) {
            weft_error_set(&t->error, WEFT_TOO_LARGE, m->model->name, "its options are too long");
            return false;
        }
        used += (size_t)n;
    }
    return true;
}

static bool prepare_folder(trainer *t)
{
    if (mkdir(t->s->out, 0777) != 0 && errno != EEXIST) {
        weft_error_set(&t->error, WEFT_IO, t->s->out, "cannot be made: %s", strerror(errno));
        return false;
    }
    snprintf(t->model_path, sizeof t->model_path, "%s/model.safetensors", t->s->out);
    snprintf(t->vocabulary_path, sizeof t->vocabulary_path, "%s/vocab.model", t->s->out);
    if (t->s->resume) return open_checkpoint(t);
    if (!exists(t->model_path)) return true;
    weft_error_set(&t->error, WEFT_BAD_ARGUMENT, t->model_path,
                   "is there already: --resume goes on with it, another --out keeps it");
    return false;
}

static bool prepare_vocabulary(trainer *t)
{
    char message[256] = "";
    const char *texts[4] = {t->s->source, t->s->target, t->s->valid_source, t->s->valid_target};
    for (int i = 0; i < 4; i++)
        if (access(texts[i], R_OK) != 0) {
            weft_error_set(&t->error, WEFT_IO, texts[i], "cannot be read: %s", strerror(errno));
            return false;
        }
    if (!exists(t->vocabulary_path)) {
        fprintf(stderr, "making a vocabulary of %ld pieces ...\n", t->s->vocab);
        if (!spm_train(texts, 2, t->vocabulary_path, (int)t->s->vocab, message, sizeof message)) {
            weft_error_set(&t->error, WEFT_BAD_FILE, "vocabulary", "%s", message);
            return false;
        }
        t->made_vocabulary = true;
    }
    t->vocabulary = spm_load(t->vocabulary_path, message, sizeof message);
    if (!t->vocabulary) weft_error_set(&t->error, WEFT_BAD_FILE, t->vocabulary_path, "%s", message);
    return t->vocabulary != NULL;
}

static bool prepare_corpus(trainer *t)
{
    int32_t most = bucket_lengths[BUCKETS - 1];
    const settings *s = t->s;
    if (corpus_load(&t->train, s->source, s->target, t->vocabulary, most, &t->error) != WEFT_OK ||
        corpus_load(&t->valid, s->valid_source, s->valid_target, t->vocabulary, most, &t->error) !=
            WEFT_OK) {
        /* It would be taken for good when the corpus has been put right. */
        if (t->made_vocabulary) unlink(t->vocabulary_path);
        return false;
    }
    fprintf(stderr,
            "%zu training pairs, %zu for validation; left out: %zu over %d tokens, %zu empty\n",
            t->train.n, t->valid.n, t->train.too_long + t->valid.too_long, most - 1,
            t->train.empty + t->valid.empty);
    for (size_t i = 0; i < t->train.n; i++) t->used[bucket_of(&t->train.pairs[i])] = true;
    for (size_t i = 0; i < t->valid.n; i++) t->used[bucket_of(&t->valid.pairs[i])] = true;
    return true;
}

static bool prepare_model(trainer *t)
{
    size_t most = (size_t)t->s->batch_tokens + (size_t)bucket_lengths[BUCKETS - 1];
    if (!t->params) t->params = weft_params_new();
    const char *step = weft_params_meta(t->params, "step");
    t->step = t->first_step = step ? strtol(step, NULL, 10) : 0;
    for (int i = 0; i < 3; i++) t->ids[i] = malloc(most * sizeof **t->ids);
    if (!t->params || !t->ids[0] || !t->ids[1] || !t->ids[2]) {
        weft_error_set(&t->error, WEFT_NO_MEMORY, "train", "out of memory");
        return false;
    }
    for (int b = 0; b < BUCKETS; b++)
        if (t->used[b] && !plan_bucket(t, b)) return false;
    return open_sessions(t);
}

static void free_trainer(trainer *t)
{
    for (int b = 0; b < BUCKETS; b++) {
        bucket *k = &t->buckets[b];
        weft_session_free(k->train_session);
        weft_session_free(k->eval_session);
        weft_plan_free(k->train_plan);
        weft_plan_free(k->eval_plan);
        weft_graph_free(k->train.graph);
        weft_graph_free(k->eval.graph);
    }
    for (int i = 0; i < 3; i++) free(t->ids[i]);
    free(t->arena);
    weft_params_free(t->params);
    corpus_free(&t->train);
    corpus_free(&t->valid);
    spm_free(t->vocabulary);
}

int cmd_train(int argc, char **argv)
{
    settings s = {
        .minutes = 5, .lr = 1.5e-3, .warmup = 200, .vocab = 4000, .batch_tokens = 1536, .seed = 1};
    struct argp argp = {options,
                        parse,
                        "[MODEL] [OPTION=VALUE...]",
                        "Trains a translation model (default: transformer) with Adam; the learning "
                        "rate rises to its peak and falls linearly to the end. Ctrl-C finishes the "
                        "step, saves and leaves.",
                        NULL,
                        NULL,
                        NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &s);
    trainer t = {.s = &s, .terminal = isatty(s.json ? STDERR_FILENO : STDOUT_FILENO) == 1};
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    bool good = prepare_folder(&t) && choose_model(&t) && prepare_vocabulary(&t) &&
                prepare_corpus(&t) && prepare_model(&t) && train_loop(&t);
    int status = good ? finish(&t) : tool_fail(&t.error);
    free_trainer(&t);
    return status;
}
