/* Everything that a training can be told, in one table: the JSON file of a recipe, the command line
 * (which wins), and what is printed and stored are all made from it. */
#ifndef WEFT_TOOLS_RECIPE_H
#define WEFT_TOOLS_RECIPE_H

#include "tool.h"

#define RECIPE_MODES      "auto|pairs|blocks|lines|masked"
#define RECIPE_VOCABS     "bpe|unigram|char"
#define RECIPE_NORMS      "nfkc|identity"
#define RECIPE_UNITS      "line|document"
#define RECIPE_OPTIMIZERS "sgd|adam|adamw"
#define RECIPE_BEST       "loss|bleu"
#define RECIPE_SCHEDULES  "constant|linear|cosine|inverse-sqrt"

/* section, key, kind, default, least, most, choices, name on the command line, documentation.
 * FILE: a text that names a file, FILES: one or several of them, WHOLE: a whole number, LIST:
 * lengths, CHOICE: an index. */
#define RECIPE_MAP(X)                                                                              \
    X(data, folder, TEXT, "", 0, 0, "", "data", "folder that the recipe's files lie in")           \
    X(data, source, FILES, 0, 0, 0, "", "source", "sentences of a pair, one a line")               \
    X(data, target, FILES, 0, 0, 0, "", "target", "their translations")                            \
    X(data, text, FILES, 0, 0, 0, "", "text", "lines to model")                                    \
    X(data, valid_source, FILES, 0, 0, 0, "", "valid-source", "sentences to validate with")        \
    X(data, valid_target, FILES, 0, 0, 0, "", "valid-target", "their translations")                \
    X(data, valid_text, FILES, 0, 0, 0, "", "valid-text", "lines to validate with")                \
    X(data, unit, CHOICE, 0, 0, 0, RECIPE_UNITS, "unit",                                           \
      "a sequence of a text to model; documents end with an empty line")                           \
    X(vocabulary, type, CHOICE, 0, 0, 0, RECIPE_VOCABS, "vocab-type", "of a new vocabulary")       \
    X(vocabulary, size, WHOLE, 4000, 10, 1e6, "", "vocab", "pieces of a new vocabulary")           \
    X(vocabulary, normalization, CHOICE, 0, 0, 0, RECIPE_NORMS, "normalization",                   \
      "of text by a new vocabulary; identity keeps every character")                               \
    X(vocabulary, shared, FLAG, true, 0, 0, "", "shared-vocab", "one for source and target")       \
    X(vocabulary, file, FILE, "", 0, 0, "", "vocab-file", "SentencePiece model to use instead")    \
    X(vocabulary, source_file, FILE, "", 0, 0, "", "source-vocab-file", "the same, of the source") \
    X(vocabulary, target_file, FILE, "", 0, 0, "", "target-vocab-file", "the same, of the target") \
    X(batches, mode, CHOICE, 0, 0, 0, RECIPE_MODES, "mode",                                        \
      "how text becomes rows; auto: what the model is made for")                                   \
    X(batches, tokens, WHOLE, 1536, 1, 1e7, "", "batch-tokens",                                    \
      "rows times length of a batch at most")                                                      \
    X(batches, lengths, LIST, 0, 0, 0, "", "lengths", "classes of length, as 16,32,64")            \
    X(batches, truncate, FLAG, false, 0, 0, "", "truncate",                                        \
      "cut what is longer than the last length, instead of leaving it out")                        \
    X(batches, accumulate, WHOLE, 1, 1, 1e4, "", "accumulate", "batches summed for one update")    \
    X(batches, mask_share, REAL, 0.15, 0.001, 1, "", "mask-share", "of tokens that are hidden")    \
    X(optimizer, kind, CHOICE, 1, 0, 0, RECIPE_OPTIMIZERS, "optimizer", "of the updates")          \
    X(optimizer, beta1, REAL, 0.9, 0, 0.999999, "", "beta1", "of Adam")                            \
    X(optimizer, beta2, REAL, 0.98, 0, 0.999999, "", "beta2", "of Adam")                           \
    X(optimizer, eps, REAL, 1e-9, 0, 1, "", "eps", "of Adam")                                      \
    X(optimizer, momentum, REAL, 0, 0, 0.999999, "", "momentum", "of SGD")                         \
    X(optimizer, nesterov, FLAG, false, 0, 0, "", "nesterov", "Nesterov's momentum")               \
    X(optimizer, weight_decay, REAL, 0, 0, 1, "", "weight-decay", "of all but no_decay")           \
    X(optimizer, no_decay, TEXT, WEFT_NO_DECAY_DEFAULT, 0, 0, "", "no-decay",                      \
      "patterns of parameters without weight decay")                                               \
    X(optimizer, clip, REAL, 1, 0, 1e9, "", "clip", "most norm of the gradient; 0: any")           \
    X(optimizer, frozen, TEXT, "", 0, 0, "", "frozen",                                             \
      "patterns of parameters that are not trained, as embedding,enc.*")                           \
    X(optimizer, ema, REAL, 0, 0, 0.9999999, "", "ema", "decay of averaged parameters; 0: none")   \
    X(schedule, kind, CHOICE, 1, 0, 0, RECIPE_SCHEDULES, "schedule", "of the learning rate")       \
    X(schedule, lr, REAL, 1.5e-3, 0, 100, "", "lr",                                                \
      "peak of the learning rate; 0: that of the paper, (d_model warmup)^-1/2")                    \
    X(schedule, floor, REAL, 3e-5, 0, 100, "", "floor", "learning rate that a decay ends at")      \
    X(schedule, warmup, WHOLE, 200, 0, 1e9, "", "warmup", "steps up to the peak")                  \
    X(schedule, steps, WHOLE, 0, 0, 1e9, "", "steps", "in all; 0: by time")                        \
    X(schedule, minutes, REAL, 5, 0, 1e6, "", "minutes", "time for training, instead of steps")    \
    X(schedule, max_minutes, REAL, 0, 0, 1e6, "", "max-minutes",                                   \
      "time limit of a training by steps; 0: none")                                                \
    X(run, out, TEXT, "", 0, 0, "", "out", "folder of the run")                                    \
    X(run, from, FILE, "", 0, 0, "", "from",                                                       \
      "run, or checkpoint, whose model, vocabulary and parameters to begin with")                  \
    X(run, seed, WHOLE, 1, 0, 1e15, "", "seed", "of parameters, order, dropout and masks")         \
    X(run, threads, WHOLE, 0, 0, 1024, "", "threads", "0: all")                                    \
    X(run, valid_every, WHOLE, 0, 0, 1e9, "", "valid-every",                                       \
      "steps between validations; 0: a twentieth of the steps, or by valid_seconds")               \
    X(run, valid_seconds, REAL, 30, 0.1, 1e9, "", "valid-seconds", "the same in a run by time")    \
    X(run, valid_batches, WHOLE, 0, 0, 1e9, "", "valid-batches", "to validate with; 0: all")       \
    X(run, valid_bleu, WHOLE, 0, 0, 1e6, "", "valid-bleu",                                         \
      "sentences that each validation translates and scores; 0: none")                             \
    X(run, valid_samples, WHOLE, 2, 0, 1e6, "", "valid-samples", "of these are printed")           \
    X(run, best_by, CHOICE, 0, 0, 0, RECIPE_BEST, "best-by",                                       \
      "what makes a validation the best one")                                                      \
    X(run, save_every, WHOLE, 0, 0, 1e9, "", "save-every",                                         \
      "steps between checkpoints; 0: by save_seconds")                                             \
    X(run, save_seconds, REAL, 120, 0.1, 1e9, "", "save-seconds", "between checkpoints")           \
    X(run, keep, WHOLE, 0, 0, 1e6, "", "keep", "checkpoints kept as step-N.safetensors")           \
    X(run, patience, WHOLE, 0, 0, 1e9, "", "patience",                                             \
      "validations in a row without a better one that end the run; 0: never")                      \
    X(run, log_every, WHOLE, 10, 1, 1e9, "", "log-every", "steps between lines of the metrics")    \
    X(run, log_seconds, REAL, 10, 0, 1e9, "", "log-seconds", "between lines of progress")          \
    X(run, measure, FLAG, true, 0, 0, "", "measure", "measure the machine's GEMM rate first")

typedef struct recipe_list {
    int32_t at[WEFT_MOST_LENGTHS];
    size_t n;
} recipe_list;

/* Text files; several are read one after another. */
typedef struct recipe_files {
    char **at;
    size_t n;
    bool chosen; /* on the command line, where the first replaces those of a recipe */
} recipe_files;

#define RECIPE_TYPE_TEXT   char *
#define RECIPE_TYPE_FILE   char *
#define RECIPE_TYPE_FILES  recipe_files
#define RECIPE_TYPE_WHOLE  int64_t
#define RECIPE_TYPE_REAL   double
#define RECIPE_TYPE_FLAG   bool
#define RECIPE_TYPE_CHOICE int
#define RECIPE_TYPE_LIST   recipe_list

/* The first of the files, for messages; "" if there is none. */
static inline const char *recipe_files_name(const recipe_files *files)
{
    return files->n ? files->at[0] : "";
}

/* Keys of the table, as RECIPE_data_source. */
typedef enum recipe_key {
#define RECIPE_KEY(section, key, ...) RECIPE_##section##_##key,
    RECIPE_MAP(RECIPE_KEY)
#undef RECIPE_KEY
} recipe_key;

typedef struct recipe {
    const weft_model *model;
    char *model_options[2 * WEFT_MODEL_OPTIONS]; /* "key=value", each key once */
    size_t n_model_options;
    bool minutes_chosen, max_minutes_chosen; /* on the command line */
#define RECIPE_FIELD(section, key, kind, ...) RECIPE_TYPE_##kind section##_##key;
    RECIPE_MAP(RECIPE_FIELD)
#undef RECIPE_FIELD
} recipe;

/* The defaults. False when memory is out. */
bool recipe_init(recipe *r);
void recipe_free(recipe *r);
/* Takes what a JSON file says. Its files are relative to data.folder, that to the file's own
 * folder, or to `data` if that is not NULL; afterwards they are absolute and data.folder is empty.
 * An unknown key or a wrong type is an error that names it. */
bool recipe_load(recipe *r, const char *path, const char *data, weft_error *error);
/* All options as JSON, of which a recipe can be made again. `place`: with what depends on where it
 * runs (run.out, run.threads). NULL when memory is out. */
cJSON *recipe_json(const recipe *r, bool place);
/* Prints it, a line for each section. */
void recipe_print(const recipe *r, FILE *file);
/* Takes the value of one key from the JSON of a recipe, if it has a good one. */
void recipe_take_json(recipe *r, recipe_key key, const cJSON *recipe_json);
/* Whether a key has another value than its default. */
bool recipe_is_set(const recipe *r, recipe_key key);
/* The key as it is written on the command line, without its dashes. */
const char *recipe_option(recipe_key key);
/* Makes the files given on the command line absolute. */
bool recipe_resolve(recipe *r, weft_error *error);

/* The command line: argp options for the table, and what takes one of them. */
#define RECIPE_FIRST_KEY 1000
size_t recipe_argp(struct argp_option *options, size_t capacity);
/* A help filter for argp that adds the defaults. */
char *recipe_help(int key, const char *text, void *input);
/* False if the key is none of the table's. Ends the program on a usage error. */
bool recipe_take(recipe *r, int key, const char *text, struct argp_state *state);
/* Takes "key=value" in the place of an earlier one of that key; false if there are too many, or
 * memory is out. */
bool recipe_take_model_option(recipe *r, const char *text);

#endif
