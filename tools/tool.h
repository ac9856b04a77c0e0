/* What the commands of the program share. */
#ifndef WEFT_TOOLS_TOOL_H
#define WEFT_TOOLS_TOOL_H

#include <weft/weft.h>

#include <argp.h>
#include <stdarg.h>
#include <cjson/cJSON.h>

/* TOOL_VERSION, a text, is defined by meson.build. */

enum { EXIT_GOOD = 0, EXIT_ERROR = 1, EXIT_USAGE = 2 };

/* Each command: its arguments are argv[0] = "weft NAME", argv[1 ..]. Returns the exit status. */
int cmd_ops(int argc, char **argv);
int cmd_models(int argc, char **argv);
int cmd_dot(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_profile(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_reproduce(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_average(int argc, char **argv);
int cmd_plot(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_translate(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_logprob(int argc, char **argv);
int cmd_score(int argc, char **argv);
int cmd_vocab(int argc, char **argv);

/* Room for a name of any length that is worth printing, with every byte as an escape. */
#define TOOL_NAME_BYTES 16384
/* The text as it may be shown on a terminal (text_printable); returns `buffer`. */
const char *tool_printable(const char *text, char buffer[TOOL_NAME_BYTES]);
/* Prints one line, which must not end with \n, as it may be shown on a terminal. For all that holds
 * a name from a file or the command line. The program never calls setlocale, so that what holds
 * none can be left to printf: its decimal point is a point. */
void tool_print_line(FILE *file, const char *format, ...) WEFT_PRINTF(2, 3);
/* The same for "weft: WHERE: MESSAGE" on stderr; return EXIT_ERROR. */
int tool_fail(const weft_error *error);
int tool_fail_text(const char *where, const char *format, ...) WEFT_PRINTF(2, 3);
/* printf behind what the text already holds; what has no room is cut. */
void tool_append(char *text, size_t size, const char *format, ...) WEFT_PRINTF(3, 4);
/* argp_error for what holds a name: ends the program with EXIT_USAGE. */
void tool_usage_error(struct argp_state *state, const char *format, ...) WEFT_PRINTF(2, 3);
/* argp_parse, where -h is --help; ends the program if it fails. `argp` has at most 4 children. */
void tool_parse(const struct argp *argp, int argc, char **argv, void *input);
/* Hands on the error of a graph or session, if it has one. Returns its status. */
weft_status tool_take_error(const weft_error *from, weft_error *error);
/* To be called before cJSON is used. From then on a tree may be built without a look at what each
 * call of cJSON returns: once cJSON was refused memory, the functions below print no JSON and say
 * that memory is out. */
void tool_watch_json(void);
/* Prints JSON on stdout and frees it; returns the exit status. */
int tool_print_json(cJSON *json);
/* Writes JSON, NULL if memory is out, as one line of the file that messages call `where`, and frees
 * it. */
bool tool_write_json_line(cJSON *json, FILE *file, const char *where, weft_error *error);

/* The bytes of a file, with a zero behind them; the caller frees them. NULL after an error. */
char *tool_read_file(const char *path, size_t *bytes, weft_error *error);
/* Writes a file whole or leaves it as it was; a pipe or device gets the bytes (base/file.h). */
bool tool_replace_file(const char *path, const char *data, size_t bytes, weft_error *error);

/* Adds what weft uses on this machine: version, processor, threads, caches, instruction set, and
 * the backends of products (an error if WEFT_GEMM's cannot be had). */
weft_status tool_machine_json(cJSON *json, weft_error *error);

/* A model of the list with its "key=value" options, as a command line names it. */
typedef struct model_args {
    const weft_model *model;
    const char *options[WEFT_MODEL_OPTIONS];
    size_t n_options;
} model_args;
/* Cuts "key=value key=value ..." in place into its words, at most WEFT_MODEL_OPTIONS; returns how
 * many. */
size_t tool_split_options(char *text, const char **options);
/* Takes MODEL, then options; for the key ARGP_KEY_ARG. Ends the program on a usage error. */
void tool_take_model_arg(model_args *args, const char *text, struct argp_state *state);

/* Packs every NAME.CAPACITY.csv of a folder (columns lower, upper, size); prints a row for each.
 * 0 seconds: no limit of time. EXIT_GOOD only if all fit. */
int tool_pack_instances(const char *folder, double seconds, bool json);

/* Room for the options of a model as a checkpoint keeps them: all of them, "key=value ...". */
#define TOOL_OPTIONS_TEXT (WEFT_MODEL_OPTIONS * 64)

/* Builds the model and, for training, its whole Adam step over all parameters. */
typedef struct built_model {
    weft_graph *graph;
    weft_model_io io;
    weft_value lr, step, norm; /* WEFT_NO_VALUE unless training */
} built_model;
weft_status tool_build(const weft_model *model, const char *const *options, size_t n_options,
                       bool training, built_model *out, weft_error *error);
/* What a run of it is to compute: the loss and the step if training, else the output. Returns how
 * many. */
size_t tool_targets(const built_model *model, weft_value targets[2]);

/* Made-up data for every input of a model's graph; the caller frees them. */
typedef struct examples {
    weft_check_feed *feed;
    size_t n;
} examples;
weft_status tool_examples(const built_model *m, examples *out, weft_error *error);
weft_status examples_feed(const examples *e, weft_session *session, weft_error *error);
void examples_free(examples *e);

/* A model with its first parameters and made-up inputs, ready to run. */
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
/* Plans the targets of trial->m, which is built, and makes the rest ready to run. On an error what
 * was made is left for trial_close. */
weft_status trial_start(trial *trial, const weft_value *targets, size_t n, int threads,
                        weft_error *error);
/* Runs it once, then `runs` times with the session's profile on; *seconds is the time around these.
 * Shows its progress on stderr when that takes long. */
weft_status trial_profile(trial *trial, long runs, long trace_runs, double *seconds,
                          weft_error *error);

bool tool_ends_with(const char *text, const char *end);
/* The place of a text in "one|other|..."; -1 if it is none of them. */
int tool_choice(const char *choices, const char *text);

/* Seconds of a clock that only goes forward. */
double tool_seconds(void);
/* Bytes that this process may still take (machine, control groups, limits); NAN if unknown. */
double tool_memory_available(void);

/* A whole number of [least, most] from an argument of the command line; ends the program with a
 * usage error if it is none. */
long tool_number(const char *text, const char *what, long least, long most,
                 struct argp_state *state);
/* The same for a number of any kind. */
double tool_real(const char *text, const char *what, double least, double most,
                 struct argp_state *state);

#endif
