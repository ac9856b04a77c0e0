/* All options of `weft train` and `weft fit` in one table. The JSON files of recipes, the command
 * line (which overrides them), and the printed and stored options all follow from it. */
#ifndef WEFT_TOOLS_RECIPE_H
#define WEFT_TOOLS_RECIPE_H

#include "tool.h"

#define RECIPE_MODES                "auto|pairs|blocks|lines|masked"
#define RECIPE_VOCABS               "bpe|unigram|char"
#define RECIPE_NORMS                "nfkc|identity"
#define RECIPE_UNITS                "line|document"
#define RECIPE_OPTIMIZERS           "sgd|adam|adamw|adagrad|rmsprop|lamb"
#define RECIPE_PRECISION            "f32|bf16|bf16-tiles" /* as TOOL_PRECISIONS */
#define RECIPE_BEST                 "loss|bleu|accuracy"
#define RECIPE_LOSSES               "model|cross-entropy|mse|bce|l1|huber" /* as weft_loss_kind */
#define RECIPE_SCHEDULE(name, text) "|" text
#define RECIPE_SCHEDULES            (&("" WEFT_SCHEDULE_MAP(RECIPE_SCHEDULE))[1])

/* section, key, commands, kind, default, min, max, choices, name on the command line,
 * documentation. TRAIN, FIT, BOTH: the commands that have it; PLACE: both, and it depends on the
 * machine. FILE: a text that names a file, FILES: one or several of them, WHOLE: a whole number,
 * LIST: lengths, CHOICE: an index. */
#define RECIPE_MAP(X)                                                                              \
    X(data, folder, TRAIN, TEXT, "", 0, 0, "", "data", "folder of the recipe's files")             \
    X(data, source, TRAIN, FILES, 0, 0, 0, "", "source", "source sentences, one a line")           \
    X(data, target, TRAIN, FILES, 0, 0, 0, "", "target", "their translations, line by line")       \
    X(data, text, TRAIN, FILES, 0, 0, 0, "", "text",                                               \
      "text of a language model, or FILE.jsonl: prompts with completions, and conversations")      \
    X(data, valid_source, TRAIN, FILES, 0, 0, 0, "", "valid-source",                               \
      "source sentences for validation")                                                           \
    X(data, valid_target, TRAIN, FILES, 0, 0, 0, "", "valid-target",                               \
      "translations for validation")                                                               \
    X(data, valid_text, TRAIN, FILES, 0, 0, 0, "", "valid-text", "text for validation")            \
    X(data, unit, TRAIN, CHOICE, 0, 0, 0, RECIPE_UNITS, "unit",                                    \
      "unit of the text that becomes one sequence; documents end with an empty line")              \
    X(vocabulary, type, TRAIN, CHOICE, 0, 0, 0, RECIPE_VOCABS, "vocab-type",                       \
      "type of a new vocabulary")                                                                  \
    X(vocabulary, size, TRAIN, WHOLE, 4000, 10, 1e6, "", "vocab", "size of a new vocabulary")      \
    X(vocabulary, normalization, TRAIN, CHOICE, 0, 0, 0, RECIPE_NORMS, "normalization",            \
      "normalization of a new vocabulary; identity keeps every character")                         \
    X(vocabulary, shared, TRAIN, FLAG, true, 0, 0, "", "shared-vocab",                             \
      "one vocabulary for source and target")                                                      \
    X(vocabulary, file, TRAIN, FILE, "", 0, 0, "", "vocab-file",                                   \
      "SentencePiece model to use instead")                                                        \
    X(vocabulary, source_file, TRAIN, FILE, "", 0, 0, "", "source-vocab-file",                     \
      "SentencePiece model of the source")                                                         \
    X(vocabulary, target_file, TRAIN, FILE, "", 0, 0, "", "target-vocab-file",                     \
      "SentencePiece model of the target")                                                         \
    X(batches, mode, TRAIN, CHOICE, 0, 0, 0, RECIPE_MODES, "mode",                                 \
      "how text becomes rows; auto: as the model needs")                                           \
    X(batches, tokens, TRAIN, WHOLE, 1536, 1, 1e7, "", "batch-tokens",                             \
      "maximum of rows times length of a batch")                                                   \
    X(batches, lengths, TRAIN, LIST, 0, 0, 0, "", "lengths", "lengths of rows, such as 16,32,64")  \
    X(batches, truncate, TRAIN, FLAG, false, 0, 0, "", "truncate",                                 \
      "cut sequences over the last length, instead of leaving them out")                           \
    X(batches, accumulate, BOTH, WHOLE, 1, 1, 1e4, "", "accumulate",                               \
      "batches summed for one update")                                                             \
    X(batches, mask_share, TRAIN, REAL, 0.15, 0.001, 1, "", "mask-share",                          \
      "share of tokens to mask")                                                                   \
    X(optimizer, kind, BOTH, CHOICE, 1, 0, 0, RECIPE_OPTIMIZERS, "optimizer",                      \
      "rule of the updates")                                                                       \
    X(optimizer, beta1, BOTH, REAL, 0.9, 0, 0.999999, "", "beta1",                                 \
      "decay of the first moment of Adam and LAMB")                                                \
    X(optimizer, beta2, BOTH, REAL, 0.98, 0, 0.999999, "", "beta2",                                \
      "decay of the second moment of Adam and LAMB")                                               \
    X(optimizer, eps, BOTH, REAL, 1e-9, 0, 1, "", "eps", "epsilon of all optimizers but sgd")      \
    X(optimizer, momentum, BOTH, REAL, 0, 0, 0.999999, "", "momentum",                             \
      "momentum of SGD and RMSprop")                                                               \
    X(optimizer, nesterov, BOTH, FLAG, false, 0, 0, "", "nesterov", "use Nesterov's momentum")     \
    X(optimizer, dampening, BOTH, REAL, 0, 0, 0.999999, "", "dampening",                           \
      "share of each gradient that SGD's momentum leaves out")                                     \
    X(optimizer, alpha, BOTH, REAL, 0.99, 0, 0.999999, "", "alpha",                                \
      "decay of RMSprop's mean of squared gradients")                                              \
    X(optimizer, centered, BOTH, FLAG, false, 0, 0, "", "centered",                                \
      "RMSprop divides by the root of the variance, instead of the mean square")                   \
    X(optimizer, weight_decay, BOTH, REAL, 0, 0, 1, "", "weight-decay",                            \
      "for all parameters but no_decay")                                                           \
    X(optimizer, no_decay, BOTH, TEXT, WEFT_NO_DECAY_DEFAULT, 0, 0, "", "no-decay",                \
      "patterns of parameters without weight decay (default " WEFT_NO_DECAY_DEFAULT ")")           \
    X(optimizer, clip, BOTH, REAL, 1, 0, 1e9, "", "clip", "maximum norm of the gradient; 0: any")  \
    X(optimizer, frozen, BOTH, TEXT, "", 0, 0, "", "frozen",                                       \
      "patterns of parameters not to train, such as embedding,enc.*")                              \
    X(optimizer, ema, BOTH, REAL, 0, 0, 0.9999999, "", "ema",                                      \
      "decay of averaged parameters; 0: no average")                                               \
    X(schedule, kind, BOTH, CHOICE, 1, 0, 0, RECIPE_SCHEDULES, "schedule",                         \
      "shape of the learning rate over the steps")                                                 \
    X(schedule, lr, BOTH, REAL, 1.5e-3, 0, 100, "", "lr",                                          \
      "peak of the learning rate; 0: (d_model warmup)^-1/2, as in the paper")                      \
    X(schedule, floor, BOTH, REAL, 3e-5, 0, 100, "", "floor",                                      \
      "learning rate at the end of the decay")                                                     \
    X(schedule, warmup, BOTH, WHOLE, 200, 0, 1e9, "", "warmup", "steps up to the peak")            \
    X(schedule, steps, BOTH, WHOLE, 0, 0, 1e9, "", "steps", "length of the training; 0: by time")  \
    X(schedule, minutes, BOTH, REAL, 5, 0, 1e6, "", "minutes",                                     \
      "length of the training by time, instead of steps")                                          \
    X(schedule, max_minutes, BOTH, REAL, 0, 0, 1e6, "", "max-minutes",                             \
      "time limit of a training by steps; 0: none")                                                \
    X(lora, rank, BOTH, WHOLE, 0, 0, 65536, "", "lora",                                            \
      "train adapters of this rank next to the matrices of the model, which stay as they are")     \
    X(lora, alpha, BOTH, REAL, 0, 0, 1e9, "", "lora-alpha",                                        \
      "adapters count alpha / rank times; 0: once")                                                \
    X(lora, on, BOTH, TEXT, "", 0, 0, "", "lora-on",                                               \
      "patterns of the matrices, such as *.attn.*; default: all that only products read")          \
    X(lora, dropout, BOTH, REAL, 0, 0, 0.999999, "", "lora-dropout",                               \
      "probability of dropping inputs of adapters")                                                \
    X(run, out, PLACE, TEXT, "", 0, 0, "", "out", "folder of the run")                             \
    X(run, from, BOTH, FILE, "", 0, 0, "", "from",                                                 \
      "run or checkpoint to take model, vocabulary and parameters from")                           \
    X(run, seed, BOTH, WHOLE, 1, 0, 1e15, "", "seed",                                              \
      "seed of parameters, order, dropout and masks")                                              \
    X(run, threads, PLACE, WHOLE, 0, 0, 1024, "", "threads", "number of threads; 0: all")          \
    X(run, valid_every, BOTH, WHOLE, 0, 0, 1e9, "", "valid-every",                                 \
      "steps between validations; 0: a twentieth of the steps, or by valid_seconds")               \
    X(run, valid_seconds, BOTH, REAL, 30, 0.1, 1e9, "", "valid-seconds",                           \
      "seconds between validations of a training by time")                                         \
    X(run, valid_batches, BOTH, WHOLE, 0, 0, 1e9, "", "valid-batches",                             \
      "batches of a validation; 0: all")                                                           \
    X(run, valid_bleu, TRAIN, WHOLE, 0, 0, 1e6, "", "valid-bleu",                                  \
      "sentences that each validation translates and scores; 0: none")                             \
    X(run, valid_samples, TRAIN, WHOLE, 2, 0, 1e6, "", "valid-samples",                            \
      "translated sentences to print")                                                             \
    X(run, best_by, BOTH, CHOICE, 0, 0, 0, RECIPE_BEST, "best-by",                                 \
      "measure of the best validation")                                                            \
    X(run, save_every, BOTH, WHOLE, 0, 0, 1e9, "", "save-every",                                   \
      "steps between checkpoints; 0: by save_seconds")                                             \
    X(run, save_seconds, BOTH, REAL, 120, 0.1, 1e9, "", "save-seconds",                            \
      "seconds between checkpoints")                                                               \
    X(run, keep, BOTH, WHOLE, 0, 0, 1e6, "", "keep",                                               \
      "number of checkpoints step-N.safetensors to retain")                                        \
    X(run, patience, BOTH, WHOLE, 0, 0, 1e9, "", "patience",                                       \
      "end the run after N validations without a better one; 0: never")                            \
    X(run, log_every, BOTH, WHOLE, 10, 1, 1e9, "", "log-every",                                    \
      "steps between lines of the metrics")                                                        \
    X(run, log_seconds, BOTH, REAL, 10, 0, 1e9, "", "log-seconds",                                 \
      "seconds between lines of progress")                                                         \
    X(run, histograms, BOTH, WHOLE, 0, 0, 1e9, "", "histograms",                                   \
      "steps between histograms of weights and gradients (histograms.jsonl); 0: none")             \
    X(run, hash_every, BOTH, WHOLE, 0, 0, 1e9, "", "hash-every",                                   \
      "steps between hashes of the parameters, in metrics.jsonl; 0: none")                         \
    X(run, memory, PLACE, TEXT, "", 0, 0, "", "memory",                                            \
      "maximum of the arena, such as 500M or 2G bytes (10^9); the backward pass recomputes "       \
      "values to stay below it")                                                                   \
    X(run, precision, BOTH, CHOICE, 0, 0, 0, RECIPE_PRECISION, "precision",                        \
      "f32, or bf16: values of a step are stored as bf16, matrix products multiply bf16; "         \
      "parameters, moments and sums stay f32; bf16-tiles: the same, with products that AMX "       \
      "computes")                                                                                  \
    X(run, keep_f32, BOTH, TEXT, "", 0, 0, "", "keep-f32",                                         \
      "scopes of nodes that store f32 under precision bf16, comma separated")                      \
    X(run, zero, PLACE, WHOLE, 1, 1, 3, "", "zero",                                                \
      "what several processes shard: 1 states of the optimiser, 2 also sums of gradients, 3 also " \
      "parameters")                                                                                \
    X(run, tensor, PLACE, WHOLE, 1, 1, 1e6, "", "tensor",                                          \
      "processes that divide attention and feed-forward layers among them")                        \
    X(run, stages, PLACE, WHOLE, 1, 1, 1e6, "", "stages",                                          \
      "parts of the model, each with some of its layers, on "                                      \
      "processes of their own")                                                                    \
    X(run, measure, BOTH, FLAG, true, 0, 0, "", "measure",                                         \
      "measure the machine's GEMM rate first")                                                     \
    X(fit, file, FIT, FILE, "", 0, 0, "", "file", "ONNX file, also the argument of the command")   \
    X(fit, x, FIT, FILES, 0, 0, 0, "", "x",                                                        \
      "array of an input, FILE.npy or FILE.npz:ARRAY, a row for each example; several in the "     \
      "order of the inputs, or by INPUT=FILE")                                                     \
    X(fit, y, FIT, FILE, "", 0, 0, "", "y", "array of the targets")                                \
    X(fit, valid_x, FIT, FILES, 0, 0, 0, "", "valid-x", "inputs for validation")                   \
    X(fit, valid_y, FIT, FILE, "", 0, 0, "", "valid-y", "targets for validation")                  \
    X(fit, loss, FIT, CHOICE, 0, 0, 0, RECIPE_LOSSES, "loss", "loss; model: the model's own")      \
    X(fit, output, FIT, TEXT, "", 0, 0, "", "output",                                              \
      "output, or inner value of FILE.onnx, that the loss is of, instead of the first "            \
      "floating-point one")                                                                        \
    X(fit, class_axis, FIT, WHOLE, 0, 0, 7, "", "class-axis",                                      \
      "dimension of the output that counts the classes; 0: the last")                              \
    X(fit, label_smoothing, FIT, REAL, 0, 0, 1, "", "label-smoothing",                             \
      "share of a target that all classes get")                                                    \
    X(fit, dims, FIT, TEXT, "", 0, 0, "", "dim",                                                   \
      "sizes that the file leaves open, but for the batch: NAME=N,INPUT:AXIS=N")                   \
    X(fit, rows, FIT, WHOLE, 32, 1, 1e7, "", "batch", "rows of a batch")                           \
    X(fit, drop_last, FIT, FLAG, false, 0, 0, "", "drop-last",                                     \
      "leave out the last rows of an epoch if they do not fill a batch")                           \
    X(fit, epochs, FIT, WHOLE, 0, 0, 1e6, "", "epochs",                                            \
      "length of the training, instead of steps")                                                  \
    X(fit, partial, FIT, FLAG, false, 0, 0, "", "partial",                                         \
      "with --from: take the tensors that the checkpoint shares with the model, even if it lacks " \
      "some or has others")                                                                        \
    X(fit, train, FIT, TEXT, "", 0, 0, "", "train",                                                \
      "patterns of the only parameters and running statistics to train, such as classifier.*")

typedef struct recipe_list {
    int32_t at[WEFT_MAX_LENGTHS];
    size_t n;
} recipe_list;

/* Text files; several are read one after another. */
typedef struct recipe_files {
    char **at;
    size_t n;
    bool chosen; /* on the command line, whose first file replaces those of a recipe */
} recipe_files;

#define RECIPE_TYPE_TEXT   char *
#define RECIPE_TYPE_FILE   char *
#define RECIPE_TYPE_FILES  recipe_files
#define RECIPE_TYPE_WHOLE  int64_t
#define RECIPE_TYPE_REAL   double
#define RECIPE_TYPE_FLAG   bool
#define RECIPE_TYPE_CHOICE unsigned
#define RECIPE_TYPE_LIST   recipe_list

/* The first file, for messages; "" if there is none. */
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
    bool fits; /* of `weft fit`; false: of `weft train` */
    const weft_model *model;
    char *model_options[2 * WEFT_MODEL_OPTIONS]; /* "key=value", each key once */
    size_t n_model_options;
    bool minutes_chosen, max_minutes_chosen; /* on the command line */
#define RECIPE_FIELD(section, key, of, kind, ...) RECIPE_TYPE_##kind section##_##key;
    RECIPE_MAP(RECIPE_FIELD)
#undef RECIPE_FIELD
} recipe;

/* Sets the defaults. False if out of memory. */
bool recipe_init(recipe *r);
void recipe_free(recipe *r);
/* Reads a JSON file. Its files are relative to data.folder, which is relative to the file's own
 * folder; `data`, if not NULL, replaces data.folder. Afterwards all files are absolute and
 * data.folder is empty. An unknown key or a wrong type is an error with the key's name. */
bool recipe_load(recipe *r, const char *path, const char *data, weft_error *error);
/* All options as JSON, which recipe_load accepts. `place`: with the options that depend on the
 * machine (run.out, run.threads). NULL if out of memory. */
cJSON *recipe_json(const recipe *r, bool place);
/* Prints the JSON schema of the recipes of `weft fit` or `weft train`; returns the exit status. */
int recipe_print_schema(bool fits);
/* Prints a recipe, a line for each section. */
void recipe_print(const recipe *r, FILE *file);
/* Takes the value of one key from the JSON of a recipe, if it has a valid one. */
void recipe_take_json(recipe *r, recipe_key key, const cJSON *recipe_json);
/* Whether the value of a key differs from its default. */
bool recipe_is_set(const recipe *r, recipe_key key);
/* The key's name on the command line, without dashes. */
const char *recipe_option(recipe_key key);
/* Makes the file names of the command line absolute. */
bool recipe_resolve(recipe *r, weft_error *error);

/* The command line: a table of options for a recipe. `rows` has room for RECIPE_ROWS; its last row
 * is TOOL_END. */
#define RECIPE_ROWS 104
void recipe_options(tool_option *rows, bool fits);
/* Of the command of such a table: checks a recipe, `into`. */
void recipe_check(void *into, const tool_parser *parser);
/* Replaces a text of a recipe by a copy; false if out of memory. */
bool recipe_set_text(char **to, const char *text);
/* Takes "key=value" and replaces an earlier value of that key; false if there are too many options,
 * or out of memory. */
bool recipe_take_model_option(recipe *r, const char *text);

#endif
