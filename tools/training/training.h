/* The state of `weft train` and `weft fit`, and the functions that their files share. */
#ifndef WEFT_TOOLS_TRAINING_H
#define WEFT_TOOLS_TRAINING_H

#include "recipe.h"
#include "parallel.h"
#include "decoding/run.h"
#include "watch.h"

#include <weft/lora.h>

/* The label of what is not predicted, with a published vocabulary: any of its ids may be predicted. */
#define TRAINING_NO_LABEL 1000000000

/* A sentence of the validation text that is translated. */
typedef struct training_sentence {
    char *source, *reference;
    int32_t *ids; /* of the source, with its end */
    size_t n_ids, number;
    char *translation; /* of the last validation; NULL before */
    int rank;          /* of the process that translates it */
} training_sentence;

typedef struct training_scores {
    double bleu, chrf; /* 0 .. 100 */
} training_scores;

typedef struct training {
    recipe r;
    bool resume, json;
    bool schema; /* print the JSON schema of recipes, and end */
    watch_args watch_args;
    watch *watch;         /* NULL: not watched */
    const char *validate; /* a checkpoint to validate, and nothing else; NULL: train */
    weft_batch_mode mode;
    bool examples; /* its text has examples in JSON Lines (examples.c) */
    weft_tokenizer
        *vocabulary[2]; /* of source and target; source is NULL or the same if there is only one */
    int32_t mask;       /* the mask token; SPM_UNK if the target's vocabulary has none */
    weft_corpus *train_text, *valid_text;
    weft_batches *train, *valid; /* valid NULL: no validation */
    weft_batch_options batch_options;
    training_sentence *sentences;
    size_t n_sentences;
    size_t valid_characters;  /* of the lines that `valid` has, their ends included */
    struct training_fit *fit; /* of `weft fit` (fit.h); else NULL */
    /* The run of run.from, until its parameters are copied; with adapters as long as the training. */
    trained_run *from;
    size_t from_len; /* tokens of the longest row that it was trained on; 0: unknown */
    weft_lora lora;  /* rank 0: none */
    bool published;  /* the vocabulary is a tokenizer.json */
    int32_t *begins; /* of whole sequences, before each text; and the end, -1: none */
    size_t n_begins;
    int32_t end;
    weft_param_group groups[3]; /* of the optimiser */
    size_t n_groups;
    weft_model_config config; /* of the model, with the vocabulary's size; the trainer reads it */
    weft_builder builder;     /* what is trained */
    /* The training and validation data; made of `train` and `valid`, or of arrays. */
    weft_batch_source train_source, valid_source;
    bool validates;
    const char *unit; /* what the weights of batches count: "tokens" or "rows" */
    weft_params *params;
    weft_trainer_estimate estimate;   /* for a vocabulary of the requested size */
    weft_trainer_processes processes; /* that train together */
    weft_trainer *trainer;
    FILE *metrics, *histograms; /* NULL: none */
    char vocabulary_path[2][4096], model_path[4096];
    bool made_vocabulary[2]; /* by this process */
    uint64_t *kept;          /* steps of the run's checkpoints step-N, ascending */
    size_t n_kept;
    int lock;     /* the locked folder's descriptor; 0: not yet open */
    int signal;   /* that ended the run; 0: none */
    bool saved;   /* the trainer has not changed since it was saved */
    double spent; /* seconds of training, over all resumed parts of the run */
    weft_error error;
} training;

static inline bool training_fail(training *t, weft_status status, const char *where,
                                 const char *what)
{
    weft_error_set(&t->error, status, where, "%s", what);
    return false;
}

/* Spreads the failure of one process to all: `good`, or an error in t->error. */
static inline bool training_agree(training *t, bool good)
{
    const weft_error own = good ? WEFT_NO_ERROR : t->error;
    t->error = WEFT_NO_ERROR;
    return weft_communicator_agree(tool_world(), &own, &t->error) == WEFT_OK;
}

/* trainer_options.c. Steps of warm-up: those of the recipe, but at most WEFT_WARMUP_BUDGET of a training by
 * steps. */
uint64_t training_warmup(const recipe *r);
/* The options of a trainer from the recipe. The groups of the optimiser are t->groups, and the
 * processes become t->processes. */
weft_trainer_options training_trainer_options(training *t);
/* Makes the trainer of t->builder and t->train_source. */
bool training_make_trainer(training *t);
/* Prints the memory that steps of `builder` with such a batch need, and fails if less is free: the
 * system would kill the process without a message. `advice`: what to choose smaller. */
bool training_check_memory(training *t, const weft_builder *builder, weft_batch_shape shape,
                           const char *advice);
/* Prints the recipe, as JSON with --json. */
bool training_print_recipe(training *t);
/* Opens the server of --watch, if it is wanted, before anything is written: a port that is in use
 * is an error then. */
bool training_open_watch(training *t);
/* Opens the files that a run writes, and begins to serve them, if `ready` says that the trainer is
 * made. True if all processes are ready; each must call it. */
bool training_open_run(training *t, bool ready);

/* compare.c: fail if another process has other options, or another text for validation. The
 * trainer compares the rest (weft_trainer_new). */
bool training_compare_recipes(training *t);
bool training_compare_validation(training *t, weft_data_hashes valid);

/* from.c: takes model, vocabulary and batch options from the run that run.from names. */
bool training_take_from(training *t);
/* Opens the run alone. */
bool training_open_from(training *t);
/* Copies its parameters, after the model's options are fixed. */
bool training_begin_with(training *t);

/* adapters.c: opens the run that adapters are for, if it is not yet open, and checks that it is the
 * one with which the training began. Does nothing without adapters. */
bool training_open_base(training *t);
/* Adds adapters to t->builder, if there are any; t->lora then points to the model's builder. */
void training_add_adapters(training *t);
/* Records in the checkpoints what the adapters are, and for what. */
bool training_note_adapters(training *t);

/* check.c: checks options, model and texts before anything is written. Refuses options that the
 * data determine, models that cannot be built, and texts that cannot be read. */
bool training_check(training *t);
/* The same for the option `vocab`, once the vocabulary exists. */
bool training_check_vocab(training *t);

/* data.c: vocabularies, corpora, batches; each false after an error in t->error. */
bool training_choose_mode(training *t);
/* Fills batches.lengths if it is empty. */
void training_choose_lengths(training *t);
bool training_vocabularies(training *t, bool make);
/* Removes vocabularies that this process made, if the training cannot begin. */
void training_forget_vocabulary(training *t);
bool training_texts(training *t);
/* Records the validation data in the checkpoints; false if they name others. */
bool training_note_validation(training *t, weft_data_hashes valid);
/* The recipe's model with its options; all zeros if they are wrong. */
weft_model_config training_config(const recipe *r);
weft_model_traits training_traits(const recipe *r);
int64_t training_vocab_size(const training *t);
/* Bits per character of the validation text, from nats per token: the bits of all tokens over the
 * code points of the lines and one for the end of each. NAN for models that do not predict the next
 * token, and if lines were cut or not all batches are used. */
double training_bits_per_character(const training *t, double nll);

/* examples.c: whether the first text has examples in JSON Lines, by its name. */
bool training_reads_examples(const recipe *r);
/* Checks that all of its texts are of one kind, and that examples have a vocabulary. */
bool training_check_examples(training *t);
void training_choose_example_lengths(training *t);
/* Adds the examples of a file to the corpus, and their number to *examples. */
bool training_read_examples(training *t, const char *path, weft_corpus *corpus, size_t *examples);
/* Reports how many are cut or left out. */
void training_tell_examples(const training *t, const char *path, weft_batch_counts counts);

/* translate.c: reads the run.valid_bleu sentences that validations translate. */
bool training_read_sentences(training *t);
void training_free_sentences(training *t);
/* Translates them with the evaluated model (averaged if there is an average). */
bool training_translate(training *t, training_scores *scores);

/* files.c: the folder of a run. A path in it, in a buffer of its own. */
bool training_path(training *t, char *path, size_t size, const char *name);
/* Makes the folders that a file is to be in. */
bool training_make_parents(training *t, const char *path);
/* Makes the folder, or loads its checkpoint if t->resume, which becomes false if there is none yet.
 * Refuses a folder with files of another run. */
bool training_prepare_folder(training *t);
bool training_write_recipe(training *t);
/* Opens the metrics, and the histograms if there will be any, without the lines of steps after
 * `step`; t->spent becomes the last one's of the metrics. */
bool training_open_metrics(training *t, uint64_t step);
/* Writes the histograms of the step that was made last. */
bool training_write_histograms(training *t);
/* Writes a line and frees it. */
bool training_write_metrics(training *t, cJSON *line);
/* Saves the checkpoint, also as step-N if run.keep is set. */
bool training_save(training *t);
bool training_save_best(training *t);

/* kept.c: the checkpoints step-N. Whether a run can begin in the folder, which has no
 * model.safetensors. */
bool training_may_begin(training *t);
/* Finds the checkpoints of the resumed run, into t->kept. False if the run would overwrite one of
 * another run. */
bool training_find_kept(training *t);
/* Removes the checkpoints after `step`: the run was resumed from an earlier one. */
void training_go_back(training *t, uint64_t step);
/* Retains the checkpoint just written as step-N, and removes the oldest beyond run.keep. */
bool training_keep(training *t, uint64_t step);

/* Whether the time spent decides when the training ends. */
static inline bool training_is_timed(const recipe *r)
{
    return !r->schedule_steps || r->schedule_max_minutes > 0;
}

/* loop.c: whether a signal asked for the end. */
bool training_interrupted(void *unused);
/* Trains to the end and prints the result. */
bool training_loop(training *t);
/* Prints "validation loss ... nats a token", and bits a character if known, without a line end. */
void training_print_validation(const training *t, double nll);

#endif
