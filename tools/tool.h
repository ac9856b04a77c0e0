/* Functions that the commands of the program share. */
#ifndef WEFT_TOOLS_TOOL_H
#define WEFT_TOOLS_TOOL_H

#include "options.h"

#include <weft/decode.h>
#include <weft/distributed.h>
#include <weft/emit.h>
#include <weft/fit.h>
#include <weft/formats.h>
#include <weft/inspect.h>
#include <weft/log.h>
#include <weft/measure.h>
#include <weft/quantize.h>
#include <weft/safetensors.h>
#include <weft/saved.h>

#include <stdarg.h>
#include <cjson/cJSON.h>

enum { EXIT_GOOD = 0, EXIT_ERROR = 1, EXIT_USAGE = 2 };

/* Each command: its arguments are argv[0] = "weft NAME", argv[1 ..]. Returns the exit status. */
int cmd_ops(int argc, char **argv);
int cmd_models(int argc, char **argv);
int cmd_dot(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_profile(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_emit(int argc, char **argv);
int cmd_average(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_quantize(int argc, char **argv);
int cmd_plot(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_fit(int argc, char **argv);
int cmd_translate(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_logprob(int argc, char **argv);
int cmd_embed(int argc, char **argv);
int cmd_score(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_vocab(int argc, char **argv);

/* Bytes for a name of any sensible length, with every byte written as an escape. */
#define TOOL_NAME_BYTES 16384
/* The text, made safe for a terminal (weft__text_printable); returns `buffer`. */
const char *tool_printable(const char *text, char buffer[TOOL_NAME_BYTES]);
/* Prints one line, made safe for a terminal; `format` must not end with \n. Every line with a name
 * from a file or the command line goes through it. printf serves for other lines: the program never
 * calls setlocale, so the decimal point is a point. */
void tool_print_line(FILE *file, const char *format, ...) WEFT_PRINTF(2, 3);
/* Columns of the lines on standard output: those that the environment variable COLUMNS gives, or of
 * the terminal; 80 if it is not a terminal. At least 32. */
int tool_width(void);
/* The same as tool_print_line for "weft: WHERE: MESSAGE" on stderr; return EXIT_ERROR. */
int tool_fail(const weft_error *error);
int tool_fail_text(const char *where, const char *format, ...) WEFT_PRINTF(2, 3);
/* From now on they print "weft: rank RANK: WHERE: MESSAGE" on `file`; rank 0 prints as usual. An
 * error of another rank ("rank 2: ...", WEFT_PEER) is not printed: that rank prints it. */
void tool_fail_as(int rank, FILE *file);
/* Whether the last failure is one that another rank prints. */
bool tool_failed_by_another(void);
/* Appends to the text, as printf; cuts what does not fit. */
void tool_append(char *text, size_t size, const char *format, ...) WEFT_PRINTF(3, 4);
/* Copies the error of a graph or session, if it has one. Returns its status. */
weft_status tool_take_error(const weft_error *from, weft_error *error);
/* Must be called before cJSON is used. From then on callers need not check what cJSON returns:
 * after any failed allocation, the functions below print no JSON of the same thread and report that
 * it is out of memory. */
void tool_watch_json(void);
/* The text of JSON (NULL if out of memory), which is freed; cJSON_free frees the text. NULL if
 * memory runs out now, or did when the JSON was made. */
char *tool_json_text(cJSON *json, bool lines);
/* Prints JSON on stdout and frees it; returns the exit status. */
int tool_print_json(cJSON *json);
/* Writes JSON (NULL if out of memory) as one line of the file and frees it. Messages call the file
 * `where`. */
bool tool_write_json_line(cJSON *json, FILE *file, const char *where, weft_error *error);

/* Writes a file whole or leaves it as it was (base/file.h). */
bool tool_replace_file(const char *path, const char *data, size_t bytes, weft_error *error);
/* The same for a path that the user names: a pipe or device gets the bytes. */
bool tool_write_output(const char *path, const char *data, size_t bytes, weft_error *error);
/* Fails if `out` is the file `input`, which a command reads, or a run's own file in the folder
 * `input`: no command writes over what it reads. */
weft_status tool_check_output(const char *out, const char *input, weft_error *error);
/* NULL after the last: the files that weft writes into the folder of each run. */
extern const char *const tool_run_files[];
/* Whether a run writes files of this name, in whatever folder. */
bool tool_is_run_file(const char *path);
/* Replaces the file `to` by a copy of `from`. */
bool tool_copy_file(const char *from, const char *to, weft_error *error);

/* The maximum number of --dim, --constant or --input. */
#define TOOL_MAX_NAMED 64

/* Files of NumPy arrays: NAME=FILE, or a whole archive, whose name is NULL. */
typedef struct named_file {
    const char *name, *path;
} named_file;
typedef struct named_files {
    named_file at[TOOL_MAX_NAMED];
    size_t n;
} named_files;
/* A tool_take of a field of named_files: adds "NAME=FILE". */
void tool_take_named_file(const tool_option *option, void *into, char *text,
                          const tool_parser *parser);
/* Adds an array to the store: of FILE.npy, or the one of an archive that FILE.npz:ARRAY names. */
weft_status tool_read_array(weft_params *into, const char *name, const char *path,
                            weft_error *error);
bool tool_read_arrays(weft_params *into, const named_files *files, weft_error *error);
/* Copies FILE.npz of "FILE.npz:ARRAY"; false if the path is not of this form. */
bool tool_array_archive(const char *path, char archive[4096]);
/* As tool_check_output, for inputs that are arrays. */
weft_status tool_check_array_output(const char *out, const named_files *files, weft_error *error);

/* An ONNX file, and what determines its shapes. */
typedef struct onnx_args {
    const char *path; /* NULL: none */
    weft_onnx_dim dims[TOOL_MAX_NAMED];
    size_t n_dims;
    int64_t batch;
    named_files constants;
    const char *outputs; /* names of more outputs, with commas; NULL: none */
    const char *out; /* that the command writes: tool_load_onnx refuses to read it; NULL: none */
} onnx_args;
/* Adds "NAME=N" or "INPUT:AXIS=N", which `text` becomes part of; false if the text is neither. */
bool tool_add_dim(onnx_args *args, char *text);
/* The options --dim, --batch and --constant of an onnx_args. */
extern const tool_command tool_onnx_options;
/* For the help of --train. */
#define TOOL_FILE_LOSS                                                                             \
    "The loss of FILE.onnx with --train is the mean of squares of its first floating-point "       \
    "output."
weft_onnx *tool_load_onnx(const onnx_args *args, weft_error *error);
/* As tool_check_output, for the file, its external data (`model` NULL: before they are known) and
 * the constants. */
weft_status tool_check_onnx_output(const char *out, const onnx_args *args, const weft_onnx *model,
                                   weft_error *error);
/* The folder of a run of `weft fit`: finds its model.onnx, and the checkpoint that weights are to
 * be read from, the best one if there is one, unless RUN names a checkpoint in it. False if it is
 * not such a folder. */
bool tool_find_fit(const char *run, char onnx[4096], char checkpoint[4096]);

/* ---- Checkpoints ---- */

/* Adds to the store the states of a graph, from a checkpoint that must have all of them and no
 * others but states of training. Adapters (weft/lora.h) are added to those that the store has. */
weft_status tool_load_states(weft_params *params, const weft_graph *graph, const char *path,
                             weft_error *error);
/* The graph of a checkpoint's model. */
typedef struct checkpoint_graph {
    weft_graph *graph; /* the caller frees it, after an error too */
    weft_built built;  /* its inputs are those that the outputs depend on */
    weft_onnx_value inputs_of[WEFT_BUILT_VALUES], outputs_of[WEFT_BUILT_VALUES];
} checkpoint_graph;
/* Builds it for the shapes of the arrays that will be its inputs. Sizes that they do not determine
 * are those of `sizes` (--dim length=7, --batch) or the model's defaults. */
weft_status tool_build_checkpoint(weft_model_config *config, const onnx_args *sizes,
                                  const weft_params *arrays, checkpoint_graph *out,
                                  weft_error *error);

/* A loss of the outputs of a file, as of weft fit. */
typedef struct file_loss {
    unsigned kind; /* weft_loss_kind; 0: the mean of squares of the first floating-point output */
    char output[256]; /* its name; "": the first floating-point one */
    int class_axis;
    double label_smoothing;
} file_loss;

/* A model of a command line: one of the list with its "key=value" options, or a file. */
typedef struct model_args {
    const weft_model *model; /* NULL: the file */
    const char *options[WEFT_MODEL_OPTIONS];
    size_t n_options;
    const weft_model_config *config; /* of a run: the model and its options; NULL: none */
    onnx_args onnx;
    bool evaluated;         /* the file belongs to a run of weft fit: build it for evaluation */
    weft_plan_options plan; /* fixed_states is not for training */
    const weft_optimizer *optimizer; /* of the training step; NULL: WEFT_ADAM_DEFAULT */
    file_loss loss;                  /* of a file's training step */
} model_args;
/* The help of --precision. */
#define TOOL_PRECISION                                                                             \
    "f32, or bf16: values are stored as bf16, in half the bytes; matrix products multiply bf16, "  \
    "everything else computes in f32; bf16-tiles: the same, with products that AMX computes"
#define TOOL_PRECISIONS "f32|bf16|bf16-tiles" /* in the order of weft_precision */
/* The help of --fixed. */
#define TOOL_FIXED                                                                                 \
    "parameters do not change between runs: values that depend only on them are computed once, "   \
    "in the first run (not with --train)"
/* The options --fixed, --memory, --precision and --keep-f32 of a weft_plan_options. */
extern const tool_command tool_plan_options;
/* Those of an onnx_args below a heading, and the arguments, of a model_args. */
extern const tool_command tool_model_options;
/* Refuses --fixed with --train. */
void tool_check_fixed(bool train, const model_args *args, const tool_parser *parser);
/* For messages: the model's name or the file's path; NULL if neither was given. */
const char *tool_model_name(const model_args *args);
/* Takes MODEL, then options, or FILE.onnx into a model_args, `into`. Ends the program on a usage
 * error. */
void tool_take_model_arg(void *into, char *text, const tool_parser *parser);

/* The maximum number of sizes of a batch on the command line. */
#define TOOL_MAX_SIZES 8

/* What a command that writes a model reads: MODEL or FILE.onnx, or RUN, which is the folder or a
 * checkpoint of a run, with sizes of the batch. */
typedef struct source_args {
    model_args model;              /* also that of a run of weft fit */
    const char *run;               /* any other; NULL: none */
    char onnx[4096], fitted[4096]; /* the file and the checkpoint of a run of weft fit; "" */
    const char *sizes[TOOL_MAX_SIZES];
    size_t n_sizes;
    const char *checkpoint; /* that the parameters of the run are read from; NULL: its own choice */
    uint64_t seed;          /* of a model's first parameters */
} source_args;
/* The options --checkpoint and --seed, those of a model_args, and the arguments, of a source_args. */
extern const tool_command tool_source_options;
/* Where the weights of a run of weft fit are read from. */
const char *tool_source_weights(const source_args *args);
/* Sets the sizes of the batch, "key=value": all other options are those of the run. */
weft_status tool_take_run_sizes(const source_args *args, weft_model_config *config,
                                weft_error *error);
/* As tool_check_output, for all that is read of a run. */
weft_status tool_check_source_output(const char *out, const source_args *args, weft_error *error);

/* The largest batch of a training on texts, of at most `tokens` tokens: rows of the longest length,
 * of source and target alike. */
static inline weft_batch_shape tool_largest_batch(int64_t tokens, int64_t longest)
{
    return (weft_batch_shape){tokens > longest ? tokens / longest : 1, longest, longest};
}

/* Packs every NAME.CAPACITY.csv of a folder (columns lower, upper, size); prints a row for each.
 * 0 seconds: no time limit. EXIT_GOOD only if all fit. */
int tool_pack_instances(const char *folder, double seconds, bool json);

/* Bytes for all options of a model as a checkpoint stores them: "key=value ...". */
#define TOOL_OPTIONS_TEXT (WEFT_MODEL_OPTIONS * 64)

/* A model's graph; for training, with an Adam step over all parameters. `built` of a file has one
 * output, its first floating-point output (or the first), `vocab` and, for training, `loss`. */
typedef struct built_model {
    weft_graph *graph;
    weft_built built;
    weft_value lr, step, norm; /* WEFT_NO_VALUE unless training */
    weft_onnx *file;           /* NULL: a model of the list */
    weft_value *outputs;       /* all of the file, of any number */
    size_t n_outputs;
    weft_plan_options plan; /* for tool_plan */
} built_model;
weft_status tool_build(const weft_model *model, const char *const *options, size_t n_options,
                       bool training, built_model *out, weft_error *error);
/* The same for a model of either kind; tool_free_model frees it. */
weft_status tool_build_args(const model_args *args, bool training, built_model *out,
                            weft_error *error);
void tool_free_model(built_model *model);
/* Adds a loss for a file, which has none of its own: the mean of squares of its output. */
weft_status tool_add_loss(built_model *model, weft_error *error);
/* Builds the graph of a file for training, with this loss, whose targets are its last input. */
weft_status tool_build_loss(built_model *model, const file_loss *loss, weft_error *error);
/* Makes constants, with the contents of `params`, of the floating-point states that the step does not
 * update; without a step, of all. `model` keeps the values that are planned, and the learning rate. */
weft_status tool_freeze_states(built_model *model, const weft_params *params, weft_error *error);
/* The targets of a run: loss and step if training, else the output. Returns how many. */
size_t tool_targets(const built_model *model, weft_value targets[2]);
/* A plan of the targets, and of all outputs of a file. */
weft_plan *tool_plan(const built_model *model, weft_error *error);
/* Copies a file's graph and weights, with f64 instead of f32. `out` has no file and is freed by
 * tool_free_model, whether that fails or not. */
weft_status tool_widen(const built_model *model, built_model *out, weft_params *weights,
                       weft_error *error);

/* Synthetic data for every input of a model's graph; the caller frees them. */
typedef struct sample_inputs {
    weft_check_feed *feed;
    size_t n;
} sample_inputs;
weft_status tool_sample_inputs(const built_model *m, sample_inputs *out, weft_error *error);
weft_status sample_inputs_feed(const sample_inputs *e, weft_session *session, weft_error *error);
void sample_inputs_free(sample_inputs *e);

/* A model with its first parameters (a file's weights) and synthetic inputs, ready to run. */
typedef struct trial {
    built_model m;
    weft_plan *plan;
    weft_params *params;
    weft_session *session;
} trial;
/* Must be closed if that was WEFT_OK. `threads` 0: OpenMP's default. */
weft_status trial_open(trial *trial, const model_args *model, bool training, int threads,
                       weft_error *error);
void trial_close(trial *trial);
/* Plans trial->m, which is already built, for these targets (NULL: tool_plan), and prepares the
 * run. After an error, trial_close frees what was made. */
weft_status trial_start(trial *trial, const weft_value *targets, size_t n, int threads,
                        weft_error *error);
/* Runs it once, then `runs` times with the session's profile on; *seconds is their duration. Shows
 * progress on stderr if that takes long. */
weft_status trial_profile(trial *trial, long runs, long trace_runs, double *seconds,
                          weft_error *error);

/* Measures the peaks of the machine, of products in the dtype of the model's output. */
weft_status trial_peaks(const trial *trial, int threads, weft_peaks *peaks, weft_error *error);

/* Checks the variables WEFT_* of the environment. */
weft_status tool_check_environment(weft_error *error);

bool tool_ends_with(const char *text, const char *end);
/* Whether a path names a rank's file of a checkpoint of several processes (weft_trainer_save). */
bool tool_is_rank_file(const char *path);
/* For the message about a name that no model has: "; did you mean \"NAME\"?", or "". */
#define TOOL_GUESS_BYTES 96
const char *tool_guess_model(const char *name, char text[TOOL_GUESS_BYTES]);

/* Seconds of the monotonic clock. */
double tool_seconds(void);

#endif
