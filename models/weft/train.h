/* weft/train.h - training: schedules, batches of token sequences, and a trainer that steps a model
 * of the list over them, evaluates it, and saves and resumes it bit for bit.
 *
 * A program makes a weft_corpus of token ids, weft_batches of it, a parameter store and a
 * weft_trainer; then calls weft_trainer_step as often as it likes. See docs/training.md.
 */
#ifndef WEFT_TRAIN_H
#define WEFT_TRAIN_H

#include <weft/autograd.h>
#include <weft/models.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Schedules of the learning rate --------------------------------------------------------- */

/* name */
#define WEFT_SCHEDULE_MAP(X)                                                                       \
    X(CONSTANT, "constant")                                                                        \
    X(LINEAR, "linear")                                                                            \
    X(COSINE, "cosine")                                                                            \
    X(INVERSE_SQRT, "inverse-sqrt")

typedef enum weft_schedule_kind {
#define WEFT_SCHEDULE_ENUM(name, text) WEFT_SCHEDULE_##name,
    WEFT_SCHEDULE_MAP(WEFT_SCHEDULE_ENUM)
#undef WEFT_SCHEDULE_ENUM
} weft_schedule_kind;

/* With s = 1, 2, ... the number of the update, w = warmup and p the share of the decay done:
 *
 *     warm-up:      lr = peak s / w, while s < w
 *     constant:     lr = peak
 *     linear:       lr = floor + (peak - floor) (1 - p)
 *     cosine:       lr = floor + (peak - floor) (1 + cos(pi p)) / 2
 *     inverse-sqrt: lr = max(floor, peak sqrt(w / s))
 *
 * The cosine is that of Loshchilov & Hutter 2017, the inverse square root that of "Attention Is All
 * You Need", 5.3. The rate is the lesser of warm-up and decay.
 *
 * The caller passes the share of its time budget that is spent, from 0 (also if it has none) to 1.
 * Without total steps, p is that share. With them, p = (max(s - 1, share total) - w) / (total - w)
 * within [0, 1]: the decay ends with the steps or with the time, whichever ends first. */
typedef struct weft_schedule {
    weft_schedule_kind kind; /* 0: constant */
    double peak;             /* for a trainer required: 0 would train nothing */
    double floor;
    uint64_t warmup; /* 0: none (inverse-sqrt: 1) */
    uint64_t total;  /* 0: by time */
} weft_schedule;

/* The rate of the update that follows `steps` others; `share` of the time budget, in [0, 1]. */
WEFT_API double weft_schedule_rate(const weft_schedule *schedule, uint64_t steps, double share);
/* d_model^(-1/2) warmup^(-1/2): the peak that gives the paper's schedule. */
WEFT_API double weft_schedule_paper_peak(int64_t d_model, uint64_t warmup);
/* The kind's name; NULL if there is none such. */
WEFT_API const char *weft_schedule_name(weft_schedule_kind kind);

/* ---- Corpora -------------------------------------------------------------------------------- */

/* Token sequences without special tokens, or pairs of them. */
typedef struct weft_corpus weft_corpus;
WEFT_API weft_corpus *weft_corpus_new(void); /* NULL only when memory is out */
WEFT_API void weft_corpus_free(weft_corpus *corpus);
/* Copies a sequence; for a pair, with its source in front (otherwise source NULL, n_source 0). */
WEFT_API weft_status weft_corpus_add(weft_corpus *corpus, const int32_t *source, size_t n_source,
                                     const int32_t *target, size_t n_target);
WEFT_API size_t weft_corpus_count(const weft_corpus *corpus);
/* Entropy in nats a token, of the unigram distribution of the targets of `counted` (add-one
 * smoothing over `vocab` ids, an end of sequence after each) on those of `measured`: what a model
 * without any context reaches. */
WEFT_API double weft_unigram_entropy(const weft_corpus *counted, const weft_corpus *measured,
                                     int64_t vocab, int32_t eos);

/* ---- Batches -------------------------------------------------------------------------------- */

typedef enum weft_batch_mode {
    WEFT_BATCH_PAIRS,  /* source + EOS; BOS + target predicts target + EOS */
    WEFT_BATCH_LINES,  /* BOS + sequence predicts sequence + EOS, one a row */
    WEFT_BATCH_BLOCKS, /* the same, all sequences laid end to end and cut into rows of one length */
    WEFT_BATCH_MASKED  /* BOS + sequence + EOS with hidden tokens predicts those (Devlin et al.
                          2019):  of the share that is chosen 80 % become the mask token, 10 % a
                          random  token, 10 % stay; a row without a chosen one gets one */
} weft_batch_mode;

#define WEFT_MAX_LENGTHS 32
typedef struct weft_batch_options {
    weft_batch_mode mode; /* 0: pairs */
    int64_t tokens; /* required: of a batch at most, padding included (but one row there always is)
                     */
    /* Required: ascending lengths of rows, special tokens included. Each sequence (for pairs, the
     * longer side) goes with others of its class into rows of the least length that takes it.
     * Blocks have the last length. */
    int32_t lengths[WEFT_MAX_LENGTHS];
    size_t n_lengths;
    bool truncate;          /* what is longer than the last length is cut, else left out */
    int32_t pad, bos, eos;  /* special tokens; 0 is token 0, but the end must not be the padding,
                               which no loss counts */
    int32_t mask, first_id; /* masked: the mask token; random tokens are first_id .. vocab-1 */
    int64_t vocab;          /* required: ids must be below it */
    double mask_share;      /* 0: 0.15 */
    uint64_t seed;          /* of order and masks */
} weft_batch_options;

typedef struct weft_batch_counts {
    size_t rows;     /* of an epoch */
    size_t batches;  /* of an epoch */
    size_t tokens;   /* target tokens of an epoch; masked: those that are shown */
    size_t left_out; /* sequences over the limit */
    size_t cut;      /* sequences over the limit, with `truncate` */
    size_t empty;    /* sequences, or pairs with a side, without a token: left out */
    size_t longest;  /* tokens of the longest row, of either side, special tokens included */
} weft_batch_counts;

typedef struct weft_batches weft_batches;
/* The corpus must outlive the batches. Fails if no row is left, with a line that says why. */
WEFT_API weft_batches *weft_batches_new(const weft_corpus *corpus,
                                        const weft_batch_options *options, weft_error *error);
WEFT_API void weft_batches_free(weft_batches *batches);
WEFT_API weft_batch_counts weft_batches_counts(const weft_batches *batches);
/* The largest rows * length of any batch: elements that weft_batches_fill may write. */
WEFT_API size_t weft_batches_most(const weft_batches *batches);
/* Puts rows and batches in the order of an epoch, which depends on (seed, epoch) only: a
 * Fisher-Yates shuffle of each class, and one of the batches, by Philox. Allocates nothing. */
WEFT_API void weft_batches_start(weft_batches *batches, uint64_t epoch);
/* What the batches are made of, as 64-bit hashes (FNV-1a): equal ones are, but for odds of 2^-64,
 * the same token sequences in the same order, cut into the same batches. */
typedef struct weft_data_hashes {
    uint64_t source, target; /* of the corpus; source is a constant without pairs */
    uint64_t batches;        /* of how they are cut, filled and shuffled */
} weft_data_hashes;
WEFT_API weft_data_hashes weft_batches_hashes(const weft_batches *batches);
/* The shape of batch `index` of the epoch; source_len is 0 unless they are pairs. */
WEFT_API weft_batch_shape weft_batches_shape(const weft_batches *batches, size_t index);
/* Fills source [rows, source_len] (may be NULL without pairs), target_in and target_out
 * [rows, target_len] with ids, the rest with padding. Returns how many targets are not padding. */
WEFT_API size_t weft_batches_fill(const weft_batches *batches, size_t index, int32_t *source,
                                  int32_t *target_in, int32_t *target_out);

/* ---- Sources of batches --------------------------------------------------------------------- */

/* Batches of any kind, as the trainer reads them: epochs of `batches` each. */
typedef struct weft_batch_source {
    size_t batches; /* of an epoch, at least 1 */
    /* The inputs that `fill` fills: as many as the builder has, of the same dtypes. */
    size_t n_inputs;
    weft_dtype input_dtypes[WEFT_BUILT_VALUES];
    /* The shape of batch `index` of the epoch. */
    weft_batch_shape (*shape)(void *context, size_t index);
    /* Fills inputs[i], contiguous data for input i of the builder, for batch `index`; *weight
     * becomes the weight of its loss among others, such as its number of targets or rows. The same
     * epoch and index must always give the same data, or a resumed training differs. */
    weft_status (*fill)(void *context, size_t index, void *const *inputs, size_t *weight,
                        weft_error *error);
    /* Puts the batches in the order of an epoch. NULL: all epochs are the same. */
    void (*start)(void *context, uint64_t epoch);
    weft_data_hashes hashes; /* of the data, for checkpoints; zeros: they are not compared */
    size_t longest;          /* tokens of the longest row, for checkpoints; 0: unknown */
    void *context;           /* of the functions */
} weft_batch_source;
/* The batches must outlive the source. Inputs: source (of pairs), target_in, target_out. */
WEFT_API weft_batch_source weft_batches_source(weft_batches *batches);

/* ---- The trainer ---------------------------------------------------------------------------- */

typedef struct weft_trainer_options {
    weft_builder builder;     /* required, with a loss: weft_model_builder, or the program's own */
    weft_optimizer optimizer; /* the guard is always on, the name always "opt"; 0: plain SGD */
    weft_schedule schedule;
    /* Batches whose gradients are summed for one update, by their weights: the update of all their
     * rows in one batch, but for rounding. 0 is 1. */
    uint32_t accumulate;
    /* Decay of an exponential moving average of the parameters, kept as states `ema.NAME`
     * (WEFT_AVERAGE_STATES) and used to evaluate and in snapshots; 0: none. The decay of update s
     * is min(ema, (s-1) / (s+9)), so that the start is forgotten soon. */
    double ema;
    uint64_t seed; /* of parameters and dropout */
    int threads;   /* 0: OpenMP's default. The results do not depend on it. */
    /* Asked before each batch of an update or an evaluation, if not NULL: true ends the call with
     * WEFT_CANCELLED and leaves the training as it was before it. A step over one batch is not
     * asked for. */
    bool (*stop)(void *context);
    void *stop_context;
    /* Names of the data in messages, such as their files; NULL: "sources" and "targets". */
    const char *source_name, *target_name;
} weft_trainer_options;

/* Where a training stands. All of it is kept in checkpoints. */
typedef struct weft_trainer_state {
    uint64_t step;             /* updates done */
    uint64_t epoch, batch;     /* the next batch */
    double smoothed;           /* loss, an exponential mean of 0.98; NAN at first */
    double best;               /* evaluation so far; NAN if none */
    uint64_t best_step, stale; /* stale: evaluations since the best */
    uint64_t judged_step;      /* of the last evaluation that was judged; 0 if none was */
} weft_trainer_state;

typedef struct weft_step_report {
    double loss; /* the mean over all weights; of tokens: nats a target token */
    double norm; /* of the gradient before clipping */
    double lr;
    size_t tokens; /* the sum of the batches' weights: target tokens */
    double flops;  /* of the plans that ran */
    bool planned;  /* a plan had to be made first, so that the step took longer than others */
} weft_step_report;

/* What training with batches of one shape takes. */
typedef struct weft_trainer_estimate {
    size_t parameters;      /* trainable numbers */
    size_t state_bytes;     /* parameters, optimiser, sums, averages */
    size_t arena_bytes;     /* what steps compute in */
    size_t workspace_bytes; /* of all threads */
    double flops;           /* of a step, all of its `accumulate` batches included */
} weft_trainer_estimate;
/* Plans the steps of a trainer without allocating their memory. Errors are those of
 * weft_trainer_new. */
WEFT_API weft_status weft_trainer_get_estimate(const weft_trainer_options *options,
                                               weft_batch_shape shape,
                                               weft_trainer_estimate *estimate, weft_error *error);

typedef struct weft_trainer weft_trainer;
/* Trains `params`, which may be new or what weft_params_load read from a checkpoint of the same
 * model: then training continues where it stopped, with the same bits as an uninterrupted run.
 * WEFT_BAD_ARGUMENT if the checkpoint is of another model, seed, data or batches than these
 * (without hashes of its data: of another number of batches), WEFT_BAD_FILE if its training state
 * is damaged. The contexts of the builder and of `batches`, and `params`, must outlive the trainer;
 * everything else is copied. A plan is made for each shape of batch when it is first met; all share
 * one arena. NULL on failure. */
WEFT_API weft_trainer *weft_trainer_new(const weft_trainer_options *options,
                                        const weft_batch_source *batches, weft_params *params,
                                        weft_error *error);
WEFT_API void weft_trainer_free(weft_trainer *trainer);
WEFT_API const weft_error *weft_trainer_error(const weft_trainer *trainer);
WEFT_API weft_trainer_state weft_trainer_get_state(const weft_trainer *trainer);

/* One update. `share` is that of the time budget (see weft_schedule_rate). If a loss or a gradient
 * is not finite no parameter is touched, and the error (WEFT_NOT_FINITE) names the first node whose
 * result was not. */
WEFT_API weft_status weft_trainer_step(weft_trainer *trainer, double share,
                                       weft_step_report *report);
/* The mean of the builder's metric (of token models: nll in nats a target token) over the first
 * `limit` batches (0: all) of another set, without dropout, with the averaged parameters if there
 * are any. Changes nothing of the training. *weight, if not NULL, becomes the sum of the weights.
 */
WEFT_API weft_status weft_trainer_evaluate(weft_trainer *trainer, const weft_batch_source *batches,
                                           size_t limit, double *metric, size_t *weight);
/* The store that weft_trainer_evaluate reads: the trained one, or that of the averaged parameters
 * as they are now. It may be read until the next call that is given the trainer. NULL on failure.
 */
WEFT_API const weft_params *weft_trainer_model(weft_trainer *trainer);
/* Counts an evaluation for `best` and `stale`; true if it is the best so far. */
WEFT_API bool weft_trainer_judge(weft_trainer *trainer, double nll);

/* Saves everything that training goes on with (weft_params_save). Metadata: "model",
 * "model_options" (all of them), "step", "trained_length" (the tokens of the longest row that it
 * was trained on), "train.state", "train.data" (the hashes of the batches),
 * "run" (a hash of what makes checkpoints those of one run: model, seed, accumulate, data), and
 * what the program has set. */
WEFT_API weft_status weft_trainer_save(weft_trainer *trainer, const char *path);
/* Saves what is needed to use the model: its states, averaged ones if there are, and the metadata
 * "model", "model_options", "step", "run", "trained_length", and if the program has set them
 * "recipe" and "vocabulary". */
WEFT_API weft_status weft_trainer_save_model(weft_trainer *trainer, const char *path);

/* States of training are named PREFIX.NAME after the parameter that they belong to: those of the
 * optimiser (WEFT_OPTIMIZER_STATES), sums of gradients, and averages of parameters. */
#define WEFT_SUM_STATES     "sum"
#define WEFT_AVERAGE_STATES "ema"
/* Whether a tensor of a checkpoint is such a state, and not of the model. */
WEFT_API bool weft_is_training_state(const char *name);
/* A filter for weft_params_save: the model without states of training. */
WEFT_API extern const weft_params_filter weft_model_states;
/* The mean of the models of several checkpoints, computed in f64: states of training are left out,
 * metadata are those of the last. Files of different models are refused. Adds to `params`, which
 * should be new. */
WEFT_API weft_status weft_params_average(weft_params *params, const char *const *paths, size_t n,
                                         weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
