/* What the files of `weft train` share. */
#ifndef WEFT_TOOLS_TRAINING_H
#define WEFT_TOOLS_TRAINING_H

#include "recipe.h"
#include "decoding/run.h"
#include "text/texts.h"

/* A sentence of the validation text that is translated. */
typedef struct training_sentence {
    char *source, *reference;
    int32_t *ids; /* of the source, with its end */
    size_t n_ids, number;
    char *translation; /* of the last validation; NULL before */
} training_sentence;

typedef struct training_scores {
    double bleu, chrf; /* 0 .. 100 */
} training_scores;

typedef struct training {
    recipe r;
    bool resume, json;
    const char *validate; /* a checkpoint to validate, and nothing else; NULL: train */
    weft_batch_mode mode;
    spm *vocabulary[2]; /* of source and target; source NULL or the same if there is one only */
    int32_t mask;       /* the token that hides others; SPM_UNK if the target's has none */
    weft_corpus *train_text, *valid_text;
    weft_batches *train, *valid; /* valid NULL: no validation */
    weft_batch_options batch_options;
    training_sentence *sentences;
    size_t n_sentences;
    size_t valid_characters; /* of the lines that `valid` has, their ends included */
    trained_run *from;       /* whose model it begins with, until its parameters are copied */
    weft_param_group frozen;
    weft_params *params;
    weft_trainer_estimate estimate; /* with as many pieces as a new vocabulary is to have */
    weft_trainer *trainer;
    FILE *metrics;
    char vocabulary_path[2][4096], model_path[4096];
    bool made_vocabulary[2]; /* by this process */
    uint64_t *kept;          /* steps of the run's checkpoints step-N, ascending */
    size_t n_kept;
    int lock;     /* the open folder, by which it is this process's; 0: not yet */
    int signal;   /* by which the run was ended; 0: none */
    bool saved;   /* since then the trainer has not changed */
    double spent; /* seconds of this run and those that it goes on with */
    weft_error error;
} training;

static inline bool training_fail(training *t, weft_status status, const char *where,
                                 const char *what)
{
    weft_error_set(&t->error, status, where, "%s", what);
    return false;
}

/* Hands on the trainer's error. */
static inline bool training_take_error(training *t)
{
    t->error = *weft_trainer_error(t->trainer);
    return false;
}

/* from.c: takes model, vocabulary and ways of text from the run that run.from names. */
bool training_take_from(training *t);
/* Copies its parameters, after the model's options are fixed. */
bool training_begin_with(training *t);

/* check.c: refuses, before anything is made, what could not be trained: options that the data
 * determine, a model that cannot be built, texts that cannot be read. */
bool training_check(training *t);
/* The same for an option `vocab`, once the vocabulary is there. */
bool training_check_vocab(training *t);

/* data.c: vocabularies, corpora, batches; each false after an error in t->error. */
bool training_choose_mode(training *t);
/* Fills batches.lengths if it is empty. */
void training_choose_lengths(training *t);
bool training_vocabularies(training *t, bool make);
/* Removes those that this process has made, before anything refers to them. */
void training_forget_vocabulary(training *t);
bool training_texts(training *t);
/* Notes in the checkpoints which text validates the run; false if one names another. */
bool training_note_validation(training *t);
/* The value of an option of the model; `otherwise` if it has none such. */
double training_model_option(const recipe *r, const char *name, double otherwise);
int64_t training_vocab_size(const training *t);
/* A next-token model's bits a character of the validation text, from nats a token: those of all
 * its tokens over the code points of its lines and one for the end of each. NAN for other models
 * and where lines were cut or not all batches are validated with. */
double training_bits_per_character(const training *t, double nll);

/* translate.c: reads the sentences to translate at validations, run.valid_bleu of them. */
bool training_read_sentences(training *t);
void training_free_sentences(training *t);
/* Translates them with the model as it is evaluated, into their `translation`. */
bool training_translate(training *t, training_scores *scores);

/* files.c: the folder of a run. A path in it, in a buffer of its own. */
bool training_path(training *t, char *path, size_t size, const char *name);
/* Makes it, or loads its checkpoint if t->resume, which becomes false if there is none yet. A
 * folder with anything of another run is refused. */
bool training_prepare_folder(training *t);
bool training_write_recipe(training *t);
/* Opens the metrics, without the lines of steps after `step`; t->spent becomes the last one's. */
bool training_open_metrics(training *t, uint64_t step);
/* Writes a line and frees it. */
bool training_write_metrics(training *t, cJSON *line);
/* Saves the checkpoint, and keeps it as step-N if it is one of those to keep. */
bool training_save(training *t);
bool training_save_best(training *t);

/* kept.c: the checkpoints step-N, and what may not be overwritten. Whether a run can begin in
 * the folder, which has no model.safetensors. */
bool training_may_begin(training *t);
/* Finds the checkpoints of the run that is resumed, into t->kept. False if one of another run would
 * be overwritten. */
bool training_find_kept(training *t);
/* Removes those of the list after `step`: the run has gone back. */
void training_go_back(training *t, uint64_t step);
/* Keeps the checkpoint just written as step-N, and removes the oldest beyond those to keep. */
bool training_keep(training *t, uint64_t step);

/* Whether the time spent decides when the training ends. */
static inline bool training_is_timed(const recipe *r)
{
    return !r->schedule_steps || r->schedule_max_minutes > 0;
}

/* loop.c: whether a signal asked for the end. */
bool training_interrupted(void *unused);
/* Steps until the end, and tells what came of it. Everything above is ready. */
bool training_loop(training *t);
/* "validation loss ... nats a token", and bits a character where there are, without a line's end.
 */
void training_print_validation(const training *t, double nll);

#endif
