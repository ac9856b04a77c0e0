/* The loop of `weft train`: steps, progress, validations, and saving. */
#include "training.h"

#include "base/platform.h"
#include "base/text.h"
#include "system.h"

#include <weft/measure.h>

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* The signal that ends the run; 0: none. */
static volatile sig_atomic_t interrupted;

#define STDERR 2 /* the descriptor of stderr */

static void on_signal(int signal_number)
{
    static const char text[] = "\nweft: ending after this step; press again to end at once\n";
    interrupted = signal_number;
    /* Only Ctrl-C comes from a user who waits. If the message cannot be written, nothing is lost.
     */
    if (signal_number == SIGINT && weft__os_write(STDERR, text, sizeof text - 1) < 0) return;
}

bool training_interrupted(void *unused)
{
    (void)unused;
    return interrupted != 0;
}

/* Decisions that are the same on all processes: they follow rank 0's clock, and a signal to any
 * process. */
typedef struct decisions {
    double share; /* of the time */
    int signal;
    bool validates, saves;
} decisions;

typedef struct loop {
    training *t;
    decisions now;
    bool terminal, warned;
    FILE *out;
    double gemm;                /* flops per second of large matrix products; 0: not measured */
    double begin, spent_before; /* seconds */
    uint64_t shown_step;        /* of the last line */
    uint64_t first_step;        /* of this run */
    double computing, flops;    /* of steps, since the last line */
    size_t tokens, since;       /* the same; and in all; or rows */
    double all_computing;
    double planning; /* seconds of steps that had to be planned first */
    uint64_t planned_steps;
    double last_line, last_valid, last_save;
    bool stepped;           /* a step was made since the last decision */
    double validating;      /* seconds of the last validation */
    double rate, share;     /* of the last line: tokens/s, share of the GEMM rate */
    double valid, accuracy; /* of the last validation; NAN if there is none */
    training_scores scores; /* of the translations; NAN if there are none */
    weft_update_report report;
    const char *end; /* why it ended */
} loop;

static double elapsed(const loop *l)
{
    return tool_seconds() - l->begin;
}

/* Seconds that the whole training may take; 0: any. */
static double time_limit(const recipe *r)
{
    return 60 * (r->schedule_steps ? r->schedule_max_minutes : r->schedule_minutes);
}

/* The share of the time that is spent; 0 if only steps limit the training. */
static double share_of_time(const loop *l)
{
    double limit = time_limit(&l->t->r);
    if (!training_is_timed(&l->t->r)) return 0;
    return fmin((l->spent_before + elapsed(l)) / limit, 1);
}

/* Seconds of a step, with its share of validations and checkpoints. Until a step needs no new plan,
 * the flops at the measured rate are the best estimate. */
static double seconds_per_step(const loop *l, uint64_t done)
{
    if (done > l->planned_steps)
        return (elapsed(l) - l->planning) / (double)(done - l->planned_steps);
    return l->gemm > 0 ? l->t->estimate.flops / l->gemm : elapsed(l) / fmax((double)done, 1);
}

static double seconds_left(const loop *l)
{
    const recipe *r = &l->t->r;
    uint64_t step = weft_trainer_progress_of(l->t->trainer).updates,
             steps = (uint64_t)r->schedule_steps;
    double left = HUGE_VAL;
    if (steps)
        left =
            steps > step ? (double)(steps - step) * seconds_per_step(l, step - l->first_step) : 0;
    if (training_is_timed(r))
        left = fmin(left, fmax(time_limit(r) - l->spent_before - elapsed(l), 0));
    return left;
}

/* Columns of the terminal without the last one, which a line that updates itself must leave free.
 */
static int columns(const loop *l)
{
    const int columns = system_columns(l->out);
    return columns > 1 ? columns - 1 : 400;
}

/* A line of fields with two blanks between them. On a terminal, fields that do not fit are left
 * out, from the first of them on. */
typedef struct progress_line {
    char text[400];
    int columns; /* that are free */
    bool full;
} progress_line;

__attribute__((format(printf, 2, 3))) static void add_field(progress_line *to, const char *format,
                                                            ...)
{
    char field[128];
    va_list arguments;
    va_start(arguments, format);
    weft__text_vformat(field, sizeof field, format, arguments);
    va_end(arguments);
    const char *gap = to->text[0] ? "  " : "";
    const int needed = weft__text_length(gap) + weft__text_length(field);
    to->full = to->full || needed > to->columns;
    if (to->full) return;
    to->columns -= needed;
    tool_append(to->text, sizeof to->text, "%s%s", gap, field);
}

static void progress(loop *l, bool end)
{
    weft_trainer_progress s = weft_trainer_progress_of(l->t->trainer);
    int left = (int)fmin(seconds_left(l), 1e8);
    if (end && !l->terminal && l->shown_step == s.updates) return;
    l->shown_step = s.updates;
    progress_line to = {.columns = l->terminal ? columns(l) : INT_MAX};
    if (l->computing > 0) {
        l->rate = (double)l->since / l->computing;
        l->share = l->gemm > 0 ? l->flops / l->computing / l->gemm : 0;
    }
    l->computing = l->flops = 0;
    l->since = 0;
    add_field(&to, "step %" PRIu64, s.updates);
    add_field(&to, "loss %.3f (%.3f)", l->report.loss, s.smoothed);
    if (isfinite(l->valid)) add_field(&to, "validation %.3f", l->valid);
    if (isfinite(l->accuracy)) add_field(&to, "accuracy %.2f %%", 100 * l->accuracy);
    if (isfinite(l->scores.bleu)) add_field(&to, "BLEU %.2f", l->scores.bleu);
    add_field(&to, "%d:%02d:%02d left", left / 3600, left / 60 % 60, left % 60);
    if (l->rate > 0 && l->gemm > 0)
        add_field(&to, "%.0f %s/s (%.0f %% of GEMM)", l->rate, l->t->unit, 100 * l->share);
    else if (l->rate > 0)
        add_field(&to, "%.0f %s/s", l->rate, l->t->unit);
    add_field(&to, "lr %.2e", l->report.lr);
    add_field(&to, "norm %.2f", l->report.norm);
    if (l->terminal)
        fprintf(l->out, "\r\033[K%s%s", to.text, end ? "\n" : "");
    else
        fprintf(l->out, "%s\n", to.text);
    fflush(l->out);
    l->last_line = elapsed(l);
}

static bool add(cJSON *json, const char *key, double x)
{
    return cJSON_AddNumberToObject(json, key, x) != NULL;
}

static const char *rate_key(const loop *l)
{
    return l->t->r.fits ? "rows_per_second" : "tokens_per_second";
}

static bool log_step(loop *l, double seconds)
{
    weft_trainer_progress s = weft_trainer_progress_of(l->t->trainer);
    const weft_update_report *r = &l->report;
    if (s.updates % (uint64_t)l->t->r.run_log_every) return true;
    cJSON *line = cJSON_CreateObject();
    bool good = line && add(line, "step", (double)s.updates) &&
                add(line, "epoch", (double)s.epoch) && add(line, "loss", r->loss) &&
                add(line, "smoothed", s.smoothed) && add(line, "lr", r->lr) &&
                add(line, "norm", r->norm) && add(line, l->t->unit, (double)r->tokens) &&
                add(line, "seconds", l->spent_before + elapsed(l)) &&
                add(line, rate_key(l), (double)r->tokens / fmax(seconds, 1e-9));
    if (good && tool_world())
        good = add(line, "step_seconds", seconds) &&
               add(line, "sent_bytes", (double)r->traffic.sent_bytes) &&
               add(line, "exchange_seconds", r->traffic.in_flight) &&
               add(line, "waiting_seconds", r->traffic.waited);
    if (!good) {
        cJSON_Delete(line);
        line = NULL;
    }
    return training_write_metrics(l->t, line);
}

static bool record_histograms(const loop *l)
{
    const int64_t every = l->t->r.run_histograms;
    const uint64_t step = weft_trainer_progress_of(l->t->trainer).updates;
    return !every || step % (uint64_t)every != 0 || training_write_histograms(l->t);
}

/* The parameters' hash, every N steps: the same on every machine, so that runs can be compared. */
static bool log_hash(const loop *l)
{
    const int64_t every = l->t->r.run_hash_every;
    const uint64_t step = weft_trainer_progress_of(l->t->trainer).updates;
    if (!every || step % (uint64_t)every != 0 || !tool_is_first()) return true;
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, weft_params_hash(l->t->params));
    cJSON *line = cJSON_CreateObject();
    if (!line || !add(line, "step", (double)step) ||
        !cJSON_AddStringToObject(line, "parameters", text)) {
        cJSON_Delete(line);
        line = NULL;
    }
    return training_write_metrics(l->t, line);
}

static size_t samples(const training *t)
{
    size_t max = (size_t)t->r.run_valid_samples;
    return max < t->n_sentences ? max : t->n_sentences;
}

/* Adds scores and samples to a line of the metrics. */
static bool add_translations(const loop *l, cJSON *line)
{
    const training *t = l->t;
    if (!t->n_sentences) return true;
    if (!add(line, "bleu", l->scores.bleu) || !add(line, "chrf2", l->scores.chrf)) return false;
    cJSON *list = cJSON_AddArrayToObject(line, "samples");
    for (size_t i = 0; list && i < samples(t); i++) {
        cJSON *sample = cJSON_CreateObject();
        if (!cJSON_AddItemToArray(list, sample) ||
            !cJSON_AddStringToObject(sample, "source", t->sentences[i].source) ||
            !cJSON_AddStringToObject(sample, "translation", t->sentences[i].translation) ||
            !cJSON_AddStringToObject(sample, "reference", t->sentences[i].reference))
            return false;
    }
    return list != NULL;
}

static void print_translations(const loop *l)
{
    const training *t = l->t;
    if (!t->n_sentences) return;
    fprintf(l->out, "%sstep %" PRIu64 ": %zu translations, BLEU %.2f, chrF2 %.2f\n",
            l->terminal ? "\r\033[K" : "", weft_trainer_progress_of(t->trainer).updates,
            t->n_sentences, l->scores.bleu, l->scores.chrf);
    for (size_t i = 0; i < samples(t); i++) {
        tool_print_line(l->out, "  source:      %s", t->sentences[i].source);
        tool_print_line(l->out, "  translation: %s", t->sentences[i].translation);
        tool_print_line(l->out, "  reference:   %s", t->sentences[i].reference);
    }
    fflush(l->out);
}

static bool write_validation(const loop *l, bool best)
{
    training *t = l->t;
    double bits = training_bits_per_character(t, l->valid);
    cJSON *line = cJSON_CreateObject();
    bool good = line && add(line, "step", (double)weft_trainer_progress_of(t->trainer).updates) &&
                add(line, "validation_loss", l->valid) &&
                (!isfinite(bits) || add(line, "bits_per_character", bits)) &&
                (!isfinite(l->accuracy) || add(line, "accuracy", l->accuracy)) &&
                add_translations(l, line) && cJSON_AddBoolToObject(line, "best", best) &&
                add(line, "seconds", l->spent_before + elapsed(l));
    if (!good) {
        cJSON_Delete(line);
        line = NULL;
    }
    return training_write_metrics(t, line);
}

static bool validate(loop *l)
{
    training *t = l->t;
    if (!t->validates) return true;
    double began = elapsed(l);
    double nll;
    weft_error error;
    weft_status status = weft_trainer_evaluate(t->trainer, &t->valid_source,
                                               (size_t)t->r.run_valid_batches, &nll, NULL, &error);
    if (status == WEFT_CANCELLED) return true;
    if (weft_error_copy(&t->error, &error) != WEFT_OK) return false;
    l->valid = nll;
    l->accuracy = weft_trainer_accuracy(t->trainer);
    if (t->n_sentences && !training_translate(t, &l->scores)) return false;
    /* weft_trainer_judge takes the minimum as the best. */
    const double measures[] = {l->valid, -l->scores.bleu, -l->accuracy}; /* as RECIPE_BEST */
    bool best = weft_trainer_judge(t->trainer, measures[t->r.run_best_by]);
    t->saved = false;
    print_translations(l);
    bool good = write_validation(l, best) && (!best || training_save_best(t));
    l->last_valid = elapsed(l);
    l->validating = l->last_valid - began;
    return good;
}

/* Whether something is due that happens every `steps` steps, or every `seconds` seconds if `steps`
 * is 0. */
static bool due(const loop *l, int64_t every, double seconds, double last)
{
    uint64_t step = weft_trainer_progress_of(l->t->trainer).updates;
    if (every) return step % (uint64_t)every == 0;
    return elapsed(l) - last >= seconds;
}

/* In a training limited by time, validations take at most a twentieth of it. */
static bool validation_due(const loop *l)
{
    const recipe *r = &l->t->r;
    int64_t every = r->run_valid_every;
    if (!every && r->schedule_steps) every = r->schedule_steps >= 20 ? r->schedule_steps / 20 : 1;
    return due(l, every, fmax(r->run_valid_seconds, 19 * l->validating), l->last_valid);
}

static bool save(loop *l)
{
    l->t->spent = l->spent_before + elapsed(l);
    l->last_save = elapsed(l);
    return training_save(l->t);
}

static decisions decide_alone(const loop *l)
{
    const recipe *r = &l->t->r;
    return (decisions){.share = share_of_time(l),
                       .signal = interrupted,
                       .validates = l->stepped && validation_due(l),
                       .saves = l->stepped &&
                                due(l, r->run_save_every, r->run_save_seconds, l->last_save)};
}

static bool decide(loop *l)
{
    weft_communicator *world = tool_world();
    const decisions own = decide_alone(l);
    l->now = own;
    l->stepped = false;
    if (!world) return true;
    decisions *all = calloc((size_t)world->size, sizeof *all);
    if (!all) return training_fail(l->t, WEFT_NO_MEMORY, "train", "out of memory");
    const bool good =
        weft_communicator_gather(world, &own, sizeof own, all, &l->t->error) == WEFT_OK;
    if (good) l->now = all[0];
    for (int r = 1; good && r < world->size; r++)
        if (!l->now.signal) l->now.signal = all[r].signal;
    free(all);
    return good;
}

static void count_step(loop *l, double seconds)
{
    l->stepped = true;
    l->t->saved = false;
    if (!l->report.planned) {
        l->computing += seconds;
        l->all_computing += seconds;
        l->flops += l->report.flops;
        l->since += l->report.tokens;
        l->tokens += l->report.tokens;
    } else {
        l->planning += seconds;
        l->planned_steps++;
    }
}

/* The loss then does not depend on the parameters, or is flat where they are. */
static void warn_of_zero(loop *l)
{
    if (l->warned || l->report.norm != 0) return;
    l->warned = true;
    tool_print_line(stderr,
                    "%sweft: warning: the gradients of all parameters are exactly zero, so this "
                    "step changes nothing: see --loss and --output",
                    l->terminal ? "\r\033[K" : "");
}

static bool one_step(loop *l)
{
    training *t = l->t;
    double before = tool_seconds();
    weft_update_report report;
    weft_error error;
    weft_status status = weft_trainer_update(t->trainer, l->now.share, &report, &error);
    if (status == WEFT_CANCELLED) return decide(l);
    if (weft_error_copy(&t->error, &error) != WEFT_OK) return false;
    l->report = report;
    warn_of_zero(l);
    double seconds = tool_seconds() - before;
    count_step(l, seconds);
    if (!log_step(l, seconds) || !record_histograms(l) || !log_hash(l) || !decide(l)) return false;
    if ((l->now.validates && !validate(l)) || (l->now.saves && !save(l))) return false;
    if (elapsed(l) - l->last_line >= (l->terminal ? 0.5 : t->r.run_log_seconds) ||
        weft_trainer_progress_of(t->trainer).updates == l->first_step + 1)
        progress(l, false);
    return true;
}

/* Why the training ends; NULL if it continues. */
static const char *ended(loop *l)
{
    const recipe *r = &l->t->r;
    weft_trainer_progress s = weft_trainer_progress_of(l->t->trainer);
    if (!tool_world()) decide(l);
    if (l->now.signal) return "stopped by a signal";
    if (r->schedule_steps && s.updates >= (uint64_t)r->schedule_steps) return "finished";
    if (l->now.share >= 1) return r->schedule_steps ? "out of time" : "finished";
    if (r->run_patience && s.stale >= (uint64_t)r->run_patience) return "stopped early";
    return NULL;
}

static bool run_loop(loop *l)
{
    training *t = l->t;
    const char *spent = weft_params_meta(t->params, "train.seconds");
    weft_trainer_progress s = weft_trainer_progress_of(t->trainer);
    l->spent_before = t->spent;
    if (spent && training_is_timed(&t->r)) weft__text_read_double(spent, &l->spent_before);
    l->begin = tool_seconds();
    l->first_step = s.updates;
    l->valid = l->accuracy = NAN;
    l->scores = (training_scores){NAN, NAN};
    t->saved = t->resume;
    /* A signal saves the run before it ends. The training continues if nobody reads its progress. */
    system_take_signals(on_signal, tool_world() != NULL);
    if (!save(l) || !decide(l)) return false;
    while (!(l->end = ended(l)))
        if (!one_step(l)) return false;
    s = weft_trainer_progress_of(t->trainer);
    if (!l->now.signal && s.judged_update != s.updates && !validate(l)) return false;
    return save(l);
}

/* ---- The end ---- */

void training_print_validation(const training *t, double nll)
{
    double bits = training_bits_per_character(t, nll);
    if (t->r.fits) {
        printf("validation loss %.4f", nll);
        return;
    }
    printf("validation loss %.3f nats a token", nll);
    if (isfinite(bits)) printf(", %.3f bits a character", bits);
}

static const char *const best_names[] = {"best", "best BLEU", "best accuracy"};
static const char *const best_keys[] = {"best_validation_loss", "best_bleu", "best_accuracy"};

/* The best validation by its measure. */
static double best_of(const training *t)
{
    const double best = weft_trainer_progress_of(t->trainer).best;
    return t->r.run_best_by ? -best : best;
}

static bool report_json(const loop *l, double entropy)
{
    training *t = l->t;
    const weft_trainer_progress s = weft_trainer_progress_of(t->trainer);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "steps", (double)s.updates);
    cJSON_AddStringToObject(json, "end", l->end);
    cJSON_AddNumberToObject(json, "seconds", l->spent_before + elapsed(l));
    cJSON_AddNumberToObject(json, rate_key(l), (double)l->tokens / fmax(l->all_computing, 1e-9));
    cJSON_AddNumberToObject(json, "loss", s.smoothed);
    cJSON_AddNumberToObject(json, "validation_loss", l->valid);
    if (t->r.fits)
        cJSON_AddNumberToObject(json, "accuracy", l->accuracy);
    else
        cJSON_AddNumberToObject(json, "bits_per_character",
                                training_bits_per_character(t, l->valid));
    if (t->n_sentences) {
        cJSON_AddNumberToObject(json, "bleu", l->scores.bleu);
        cJSON_AddNumberToObject(json, "chrf2", l->scores.chrf);
    }
    cJSON_AddNumberToObject(json, best_keys[t->r.run_best_by], best_of(t));
    cJSON_AddNumberToObject(json, "best_step", (double)s.best_update);
    if (!t->r.fits) cJSON_AddNumberToObject(json, "unigram_entropy", entropy);
    cJSON_AddStringToObject(json, "checkpoint", t->model_path);
    return tool_write_json_line(json, stdout, "output", &t->error);
}

static void print_best(const training *t, const char *name)
{
    printf("%s %.3f at step %" PRIu64, name, best_of(t),
           weft_trainer_progress_of(t->trainer).best_update);
}

static bool report(loop *l)
{
    const training *t = l->t;
    weft_trainer_progress s = weft_trainer_progress_of(t->trainer);
    const char *best = best_names[t->r.run_best_by];
    double entropy = t->valid ? weft_corpus_unigram_entropy(t->train_text, t->valid_text,
                                                            training_vocab_size(t), SPM_EOS)
                              : NAN;
    if (s.updates != l->first_step) progress(l, true);
    if (t->json) return report_json(l, entropy);
    printf("%s after %" PRIu64 " steps", l->end, s.updates);
    if (isfinite(s.smoothed)) printf(": loss %.3f", s.smoothed);
    if (t->validates && isfinite(l->valid)) {
        printf(", ");
        training_print_validation(t, l->valid);
        if (t->n_sentences) printf(", BLEU %.2f", l->scores.bleu);
        if (isfinite(l->accuracy)) printf(", accuracy %.2f %%", 100 * l->accuracy);
        printf(" (");
        print_best(t, best);
        if (t->valid) printf("; unigram entropy of the target text: %.3f", entropy);
        printf(")");
    } else if (isfinite(s.best)) {
        printf(", ");
        print_best(t, t->r.run_best_by ? best : "best validation loss");
    }
    putchar('\n');
    tool_print_line(stdout, "saved %s", t->model_path);
    return true;
}

/* Chooses where to print progress, and measures the machine's rate to compare with. */
static void prepare_progress(loop *l)
{
    l->out = l->t->json ? stderr : stdout;
    /* mpirun reads what its processes print from a terminal of its own. */
    l->terminal = !tool_world() && system_is_terminal(l->out);
    /* Without the rate, only a number of the progress line is missing. */
    if (l->t->r.run_measure && tool_is_first() &&
        weft_measure_gemm(WEFT_F32, (int)l->t->r.run_threads, &l->gemm, NULL) != WEFT_OK)
        l->gemm = 0;
    const recipe *r = &l->t->r;
    if (!(l->gemm > 0)) return;
    double seconds = l->t->estimate.flops / l->gemm;
    fprintf(l->out,
            "matrix products reach %.0f GFLOP/s here: a step of full batches takes %.3f s at "
            "best",
            1e-9 * l->gemm, seconds);
    if (r->schedule_steps)
        fprintf(l->out, ", %lld steps %.1f minutes", (long long)r->schedule_steps,
                seconds * (double)r->schedule_steps / 60);
    fprintf(l->out, "\n");
    fflush(l->out);
}

bool training_loop(training *t)
{
    loop l = {.t = t};
    prepare_progress(&l);
    if (run_loop(&l)) {
        t->signal = l.now.signal;
        return report(&l);
    }
    if (l.terminal && l.last_line > 0) fputc('\n', l.out);
    return false;
}
