/* weft/train.h - training: schedules, batches of token sequences, and a trainer of any graph, which
 * updates and evaluates it, and saves and resumes the training bit for bit.
 *
 * A program makes a weft_corpus of token ids, weft_batches from it, a parameter store and a
 * weft_trainer, and then calls weft_trainer_update for each update. See docs/training.md.
 */
#ifndef WEFT_TRAIN_H
#define WEFT_TRAIN_H

#include <weft/autograd.h>
#include <weft/communicator.h>
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
    X(INVERSE_SQRT, "inverse-sqrt")                                                                \
    X(STEP, "step")                                                                                \
    X(EXPONENTIAL, "exponential")                                                                  \
    X(ONE_CYCLE, "one-cycle")

typedef enum weft_schedule_kind {
#define WEFT_SCHEDULE_ENUM(name, text) WEFT_SCHEDULE_##name,
    WEFT_SCHEDULE_MAP(WEFT_SCHEDULE_ENUM)
#undef WEFT_SCHEDULE_ENUM
} weft_schedule_kind;

/* With s = 1, 2, ... the number of the update, w = warmup, and p in [0, 1] the progress of the
 * decay:
 *
 *     warm-up:      lr = peak max(s / w, spent / WEFT_WARMUP_BUDGET), while s < w
 *                   (inverse-sqrt: peak s / w)
 *     constant:     lr = peak
 *     linear:       lr = floor + (peak - floor) (1 - p)
 *     cosine:       lr = floor + (peak - floor) (1 + cos(pi p)) / 2
 *     inverse-sqrt: lr = max(floor, peak sqrt(w / s))
 *     step:         lr = max(floor, peak / 10^k), where k is 3 p, rounded down
 *     exponential:  lr = peak (floor / peak)^p, with floor > 0
 *     one-cycle:    lr = floor + (peak - floor) (1 + cos(pi p)) / 2; its warm-up is
 *                   lr = peak / 25 + (peak - peak / 25) (1 - cos(pi q)) / 2, where
 *                   q = min(1, max((s - 1) / (w - 1), spent / WEFT_WARMUP_BUDGET))
 *
 * A schedule is a value: a program without a trainer calls weft_schedule_rate before each update,
 * and feeds the rate to its training update.
 *
 * The cosine is that of Loshchilov & Hutter 2017, the inverse square root that of "Attention Is All
 * You Need", 5.3. One cycle is that of Smith & Topin 2018, with cosines. The rate is the minimum of
 * warm-up and decay.
 *
 * `spent` is the spent fraction of the caller's time budget, in [0, 1]; 0 without a budget. If
 * total is 0, p = spent. Else p = (max(s - 1, spent total) - w) / (total - w), clamped to [0, 1]:
 * the decay ends with the updates or with the time, whichever is first. */
#define WEFT_WARMUP_BUDGET 0.25 /* of a time budget, at most, is warm-up */
typedef struct weft_schedule {
    weft_schedule_kind kind; /* 0: constant */
    double peak;             /* required by a trainer: with 0, nothing would be trained */
    double floor;
    uint64_t warmup; /* updates; 0: none (inverse-sqrt: 1) */
    uint64_t total;  /* updates; 0: the decay follows the time */
} weft_schedule;

/* The rate of the update after `updates` updates. */
WEFT_API double weft_schedule_rate(const weft_schedule *schedule, uint64_t updates, double spent);
/* d_model^(-1/2) warmup^(-1/2): the peak of the schedule in "Attention Is All You Need". */
WEFT_API double weft_noam_peak(int64_t d_model, uint64_t warmup);
/* The kind's name; NULL for an invalid kind. */
WEFT_API const char *weft_schedule_kind_name(weft_schedule_kind kind);

/* ---- Corpora -------------------------------------------------------------------------------- */

/* Token sequences, or pairs of them, without special tokens. */
typedef struct weft_corpus weft_corpus;
WEFT_API weft_corpus *weft_corpus_new(void); /* NULL if out of memory */
WEFT_API void weft_corpus_free(weft_corpus *corpus);
/* Appends a copy of a pair, or of a sequence: then source is NULL and n_source 0. */
WEFT_API weft_status weft_corpus_add(weft_corpus *corpus, const int32_t *source, size_t n_source,
                                     const int32_t *target, size_t n_target, weft_error *error);
WEFT_API size_t weft_corpus_count(const weft_corpus *corpus);
/* Cross-entropy in nats per token of the targets of `measured` under the unigram distribution of
 * those of `counted`: the loss of a model without context. Each sequence ends with `eos`; counts
 * have add-one smoothing over `vocab` ids. NAN if an argument is invalid, there are no tokens, or
 * out of memory. */
WEFT_API double weft_corpus_unigram_entropy(const weft_corpus *counted, const weft_corpus *measured,
                                            int64_t vocab, int32_t eos);

/* ---- Batches -------------------------------------------------------------------------------- */

typedef enum weft_batch_mode {
    WEFT_BATCH_PAIRS,  /* source + EOS; BOS + target predicts target + EOS */
    WEFT_BATCH_LINES,  /* BOS + sequence predicts sequence + EOS, one a row */
    WEFT_BATCH_BLOCKS, /* the same, all sequences concatenated and cut into rows of one length */
    WEFT_BATCH_MASKED /* BOS + sequence + EOS with hidden tokens predicts the hidden ones (Devlin et
                         al. 2019). Of the chosen tokens, 80 % become the mask token, 10 % a random
                         token, and 10 % are unchanged. Every row has at least one chosen token */
} weft_batch_mode;

#define WEFT_MAX_LENGTHS 32
typedef struct weft_batch_options {
    weft_batch_mode mode; /* 0: pairs */
    int64_t tokens;       /* required: maximum per batch, padding included; 1 row always fits */
    /* Required: ascending lengths of rows, special tokens included. Each sequence (for pairs, the
     * longer side) has the class of the smallest length that holds it; a batch has rows of one
     * class. Blocks have the last length. */
    int32_t lengths[WEFT_MAX_LENGTHS];
    size_t n_lengths;
    bool truncate; /* sequences longer than the last length are cut; false: they are left out */
    /* Of lines and blocks: sequences have special tokens of their own, so none are added, and each
     * token is predicted from those before it. An id x < 0 stands for the token -1 - x, which is
     * read but not predicted. `pad` is the label of what is not predicted, outside of [0, vocab),
     * `bos` fills rows, and `eos` is not used. */
    bool whole;
    int32_t pad, bos, eos;  /* special tokens; eos must differ from pad, which losses ignore */
    int32_t mask, first_id; /* masked: the mask token; random tokens are first_id .. vocab-1 */
    int64_t vocab;          /* required: all ids are in [0, vocab) */
    double mask_fraction;   /* of the tokens, which are chosen, in [0, 1]; 0: 0.15 */
    uint64_t seed;          /* of order and masks */
} weft_batch_options;

typedef struct weft_batch_counts {
    size_t rows;     /* of an epoch */
    size_t batches;  /* of an epoch */
    size_t tokens;   /* target tokens of an epoch; masked: the tokens of the sequences */
    size_t left_out; /* sequences over the last length */
    size_t cut;      /* the same, with `truncate` */
    size_t empty;    /* left out: empty sequences, pairs with an empty side */
    size_t longest;  /* tokens of the longest row, of either side, special tokens included */
} weft_batch_counts;

typedef struct weft_batches weft_batches;
/* The corpus must outlive the batches. `options` are required. Returns NULL on failure: an invalid
 * option, an id outside the vocabulary, no sequence to use, or no memory. */
WEFT_API weft_batches *weft_batches_new(const weft_corpus *corpus,
                                        const weft_batch_options *options, weft_error *error);
WEFT_API void weft_batches_free(weft_batches *batches);
WEFT_API weft_batch_counts weft_batches_counts(const weft_batches *batches);
/* The maximum of rows * length over all batches: the elements that each buffer of weft_batches_fill
 * needs. */
WEFT_API size_t weft_batches_max_elements(const weft_batches *batches);
/* Shuffles the rows of each class, and then the batches, for an epoch (Fisher-Yates, by Philox).
 * The order depends on (seed, epoch) only. Does not allocate. */
WEFT_API void weft_batches_start(weft_batches *batches, uint64_t epoch);
/* 64-bit hashes (FNV-1a) that identify data: equal hashes mean, except with probability 2^-64, the
 * same sequences in the same order, cut into the same batches. */
typedef struct weft_data_hashes {
    uint64_t source, target; /* of the corpus; source is a constant unless the mode is pairs */
    uint64_t batches;        /* of how rows are cut, filled and shuffled */
} weft_data_hashes;
WEFT_API weft_data_hashes weft_batches_hashes(const weft_batches *batches);
/* The shape of batch `index` of the epoch; source_len is 0 unless the mode is pairs. */
WEFT_API weft_batch_shape weft_batches_shape(const weft_batches *batches, size_t index);
/* Fills source [rows, source_len] (NULL unless the mode is pairs), target_in and target_out [rows,
 * target_len] with ids, and the rest with padding. Returns the number of targets that are not
 * padding. */
WEFT_API size_t weft_batches_fill(const weft_batches *batches, size_t index, int32_t *source,
                                  int32_t *target_in, int32_t *target_out);

/* ---- Sources of batches --------------------------------------------------------------------- */

/* Batches of any data, as the trainer reads them. */
typedef struct weft_batch_source {
    size_t batches; /* per epoch, at least 1 */
    /* The buffers that `fill` writes: one for each input of the builder, of its dtype. */
    size_t n_inputs;
    weft_dtype input_dtypes[WEFT_BUILT_VALUES];
    /* The shape of batch `index` of the epoch. */
    weft_batch_shape (*shape)(void *context, size_t index);
    /* Writes batch `index` into inputs[i], contiguous data of input i of the builder. Sets *weight
     * to the weight of this batch's loss, such as its number of targets or rows. The data must
     * depend on epoch and index only, or a resumed training differs. */
    weft_status (*fill)(void *context, size_t index, void *const *inputs, size_t *weight,
                        weft_error *error);
    /* Begins an epoch, such as by shuffling. NULL: all epochs are the same. */
    void (*start)(void *context, uint64_t epoch);
    weft_data_hashes
        hashes;     /* of the data, compared when a training is resumed; zeros: not compared */
    size_t longest; /* tokens of the longest row, stored in checkpoints; 0: unknown */
    void *context;  /* passed to the functions */
} weft_batch_source;
/* A source of these batches, which must outlive it. Inputs: source (for pairs), target_in,
 * target_out. */
WEFT_API weft_batch_source weft_batches_source(weft_batches *batches);

/* ---- The trainer ---------------------------------------------------------------------------- */

typedef struct weft_trainer_options {
    weft_builder builder;     /* required, with a loss: weft_model_builder, or the program's own */
    weft_optimizer optimizer; /* guard and name are ignored: always on, and "opt"; 0: plain SGD */
    weft_schedule schedule;
    /* Batches per update. Their gradients are averaged by weight, so the update equals that of one
     * batch of all their rows, except for rounding. 0: 1. */
    uint32_t accumulate;
    /* Decay of an exponential moving average of the parameters; 0: no average. Evaluations and
     * saved models use the average, which is in the states `ema.NAME` (WEFT_STATE_AVERAGE). The
     * decay of update s is min(ema, (s-1) / (s+9)), so that the first values fade quickly. */
    double ema;
    /* The processes that train together, as weft_trainer_processes_of (weft/distributed.h) makes
     * them; NULL: this one alone. Read by weft_trainer_new only. */
    const struct weft_trainer_processes *processes;
    /* The file that `params` was loaded from. Needed to resume a training of several processes,
     * whose optimiser's states are in files of the same folder. On several processes
     * weft_params_load_some with weft_model_states is enough: the trainer reads the rest. Read by
     * weft_trainer_new only. */
    const char *checkpoint;
    /* A store of tensors that the model reads and training does not change, such as the model that
     * adapters are trained for (weft/lora.h). The trainer shares it with `params`, which must not
     * have tensors of the same names, and does not save it. It must outlive trainer and `params`.
     * It may be quantised, but not with parameters divided among processes. NULL: none. */
    const struct weft_params *base;
    uint64_t seed; /* of parameters and dropout */
    /* Of all sessions; weft/session.h says what may be set. Its allocator also allocates batches,
     * averages and copies of the model; parameters come from that of `params`. Read by
     * weft_trainer_new only. Results do not depend on it. */
    weft_session_options session;
    /* The maximum bytes of the arena of an update (weft_plan_options.memory_budget); 0: no limit.
     * The backward pass then computes values again where needed; results are bit-identical. */
    size_t memory_budget;
    /* Of all values that an update computes (weft_plan_options.precision). Parameters, moments and
     * checkpoints stay f32. keep_f32 is read while the trainer lives; NULL: none. */
    weft_precision precision;
    const char *keep_f32;
    bool retain_gradients; /* for weft_trainer_gradient; results are bit-identical */
    /* If not NULL, called before each batch of an accumulated update or an evaluation. True ends
     * the call with WEFT_CANCELLED, and the training is as before the call. An update of one batch
     * does not call it. */
    bool (*stop)(void *context);
    void *stop_context;
    /* Names of the data in messages, such as file names; NULL: "these sources", "these targets".
     * Read by weft_trainer_new only. */
    const char *source_name, *target_name;
} weft_trainer_options;

/* The progress of a training. Checkpoints contain all of it. */
typedef struct weft_trainer_progress {
    uint64_t updates;      /* done */
    uint64_t epoch, batch; /* the next batch */
    double smoothed;       /* exponential mean of the loss, decay 0.98, whose weights are divided
                            * by their sum; NAN at first */
    double best;           /* metric of the best evaluation; NAN if there is none */
    uint64_t best_update, stale; /* stale: evaluations since the best */
    uint64_t judged_update;      /* that of the last call of weft_trainer_judge; 0: none */
} weft_trainer_progress;

typedef struct weft_update_report {
    double loss; /* weighted mean over the batches; token models: nats per target token */
    double norm; /* of the gradient before clipping */
    double lr;
    size_t tokens; /* the sum of the batches' weights: target tokens */
    double flops;  /* of all plans that ran, on this process */
    /* Of this process's exchanges with others: weft_traffic. What was in flight and did not wait
     * was hidden by computation. */
    weft_traffic traffic;
    bool planned; /* the update made a plan first, so it took longer than others */
} weft_update_report;

/* Memory and work of training with batches of one shape. */
typedef struct weft_trainer_estimate {
    size_t parameters;      /* trainable numbers */
    size_t state_bytes;     /* parameters, optimiser, sums, averages */
    size_t arena_bytes;     /* memory of intermediate values */
    size_t workspace_bytes; /* of all threads */
    double flops;           /* of an update, with all its batches on this process */
} weft_trainer_estimate;
/* Plans the graphs of a trainer without allocating their memory. Errors are those of
 * weft_trainer_new. */
WEFT_API weft_status weft_trainer_estimate_of(const weft_trainer_options *options,
                                              weft_batch_shape shape,
                                              weft_trainer_estimate *estimate, weft_error *error);

typedef struct weft_trainer weft_trainer;
/* Trains `params`: a new store, or one that weft_params_load filled from a checkpoint. From a
 * checkpoint the training continues bit-identically to an uninterrupted run. The trainer makes a
 * plan for each shape of batch at its first use; all share one arena.
 *
 * The contexts of the builder, of `batches`, and of the session's pool and allocator, and `params`,
 * must outlive the trainer; it copies everything else. Returns NULL on failure. WEFT_BAD_ARGUMENT:
 * an option is invalid, or the checkpoint has another model, seed, data or batches (without hashes:
 * another number of batches). WEFT_BAD_FILE: the checkpoint's training state is damaged, or it
 * lacks "step", "train.state" or some of the optimiser's states. WEFT_NOT_FOUND: it lacks a state;
 * the message has the first names. A file of a model alone begins a new training, if it has all
 * parameters. */
WEFT_API weft_trainer *weft_trainer_new(const weft_trainer_options *options,
                                        const weft_batch_source *batches, weft_params *params,
                                        weft_error *error);
WEFT_API void weft_trainer_free(weft_trainer *trainer);
WEFT_API weft_trainer_progress weft_trainer_progress_of(const weft_trainer *trainer);

/* One update; `spent` as in weft_schedule_rate. If a loss or gradient is not finite, no parameter
 * changes, and the error (WEFT_NOT_FINITE) names the first node whose result was not finite. */
WEFT_API weft_status weft_trainer_update(weft_trainer *trainer, double spent,
                                         weft_update_report *report, weft_error *error);
/* Sets *gradient to the gradient of a parameter, by name, in the last update: that of the loss of
 * all its batches, before clipping. It belongs to the trainer, and its contents are valid until the
 * trainer's next call. False without retain_gradients, before the first update and after an
 * evaluation, for parameters that are not trained, and on several processes, which have pieces of
 * gradients. */
WEFT_API bool weft_trainer_gradient(const weft_trainer *trainer, const char *name,
                                    weft_tensor *gradient);

/* Computes the weighted mean of the builder's metric (token models: nll in nats per target token)
 * over the first `limit` batches (0: all), without dropout, with the averaged parameters if there
 * are any. Sets *weight, if not NULL, to the sum of the weights. Does not change the training. */
WEFT_API weft_status weft_trainer_evaluate(weft_trainer *trainer, const weft_batch_source *batches,
                                           size_t limit, double *metric, size_t *weight,
                                           weft_error *error);
/* The weighted mean of the builder's accuracy in the last evaluation; NAN if it has none, or
 * nothing was evaluated. */
WEFT_API double weft_trainer_accuracy(const weft_trainer *trainer);
/* The model that weft_trainer_evaluate reads: the trained parameters, or their current averages. A
 * divided model is gathered, so that every process has the whole. Owned by the trainer and valid
 * until its next call. NULL on failure. */
WEFT_API const weft_params *weft_trainer_model(weft_trainer *trainer, weft_error *error);
/* Updates `best` and `stale` with the metric of an evaluation. Returns true if it is the best so
 * far. */
WEFT_API bool weft_trainer_judge(weft_trainer *trainer, double nll);

/* Saves everything that training needs to continue (weft_params_save). Metadata: "model",
 * "model_options" (all of them), "step", "trained_length" (tokens of the longest row of this training
 * or, by weft train --from, of those before),
 * "train.state", "train.data" (hashes of the batches), "run" (a hash of model, seed, accumulate
 * and data, equal for all checkpoints of a run), and the program's own. On several processes
 * PATH has the whole model, and files of the same folder, STEM.step-S.rank-R-of-N.safetensors,
 * have the states of their pieces. The metadata "shards" list them; all are written before PATH
 * is replaced, and those of its predecessor are removed then. The folder must be the same one on
 * all machines. */
WEFT_API weft_status weft_trainer_save(weft_trainer *trainer, const char *path, weft_error *error);
/* Removes a checkpoint and the files of its processes. */
WEFT_API void weft_checkpoint_remove(const char *path);
/* Saves the model without the states of training: its parameters, averaged if there are averages,
 * and the metadata "model", "model_options", "step", "run", "trained_length", and "recipe",
 * "vocabulary", "lora" and "base" if the program has set them. */
WEFT_API weft_status weft_trainer_save_model(weft_trainer *trainer, const char *path,
                                             weft_error *error);

/* A filter for weft_params_save: the model without states of training, whose keys are of other
 * kinds than WEFT_STATE_MODEL (weft/state_key.h). */
WEFT_API extern const weft_params_filter weft_model_states;
/* Adds to `params`, which should be empty, the mean of the models of n checkpoints, computed in
 * f64. States of training are left out; metadata come from the last file. Fails if the files are of
 * different models. */
WEFT_API weft_status weft_params_average(weft_params *params, const char *const *paths, size_t n,
                                         weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
