/* The program `weft`: the table of commands, and small functions that the commands share. */
#include "parallel.h"
#include "system.h"
#include "tool.h"

#include "base/platform.h"
#include "base/guess.h"

#include <stdlib.h>
#include <string.h>

typedef enum command_group { LOOK, TRAIN, USE, TEXTS, FILES, SELF } command_group;

static const char *const headings[] = {
    [LOOK] = "Look at models",           [TRAIN] = "Train",
    [USE] = "Use what was trained",      [TEXTS] = "Texts",
    [FILES] = "Files of other programs", [SELF] = "weft itself",
};

/* In the order of their groups. */
static const struct {
    command_group group;
    const char *name, *doc;
    int (*run)(int argc, char **argv);
    bool parallel; /* runs on several processes */
} commands[] = {
    {LOOK, "models", "list the models and their options", cmd_models, false},
    {LOOK, "ops", "list the ops", cmd_ops, false},
    {LOOK, "dot", "draw a model's graph", cmd_dot, false},
    {LOOK, "plan", "plan a model and print its memory", cmd_plan, false},
    {LOOK, "profile", "show where the time of a model goes", cmd_profile, false},
    {LOOK, "report", "write a page about a model, a file or runs", cmd_report, false},
    {TRAIN, "train", "train a model on text files", cmd_train, true},
    {TRAIN, "fit", "train an ONNX model on arrays", cmd_fit, true},
    {TRAIN, "average", "average the parameters of checkpoints", cmd_average, false},
    {TRAIN, "plot", "draw the losses of training runs", cmd_plot, false},
    {USE, "run", "run an ONNX model or a checkpoint on arrays", cmd_run, false},
    {USE, "translate", "translate lines from standard input", cmd_translate, true},
    {USE, "generate", "continue prompts with a language model", cmd_generate, false},
    {USE, "chat", "converse with a language model", cmd_chat, false},
    {USE, "logprob", "print log probabilities of lines, and their perplexity", cmd_logprob, false},
    {USE, "embed", "print embeddings of lines, or the nearest lines", cmd_embed, false},
    {USE, "serve", "answer requests over HTTP, as OpenAI's API", cmd_serve, false},
    {USE, "quantize", "write a model with matrices of 8 or 4 bits", cmd_quantize, false},
    {TEXTS, "vocab", "make vocabularies, and convert text to ids and back", cmd_vocab, false},
    {TEXTS, "score", "compute BLEU and chrF of translations", cmd_score, false},
    {FILES, "emit", "write a model, or its training step, as one C file", cmd_emit, false},
    {FILES, "export", "write a model as an ONNX file", cmd_export, false},
    {FILES, "convert", "convert models from and to Hugging Face", cmd_convert, false},
    {SELF, "info", "print what weft uses on this machine", cmd_info, false},
    {SELF, "check", "check gradients of ops or of a model", cmd_check, false},
    {SELF, "bench", "time the benchmark workloads, or a model", cmd_bench, false},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static const char exit_statuses[] = "Exit status: 0 success, 1 error, 2 usage.";

static void usage(FILE *file)
{
    fprintf(file, "Usage: weft COMMAND [OPTION...]\n");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (!i || commands[i].group != commands[i - 1].group)
            fprintf(file, "\n%s:\n", headings[commands[i].group]);
        fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].doc);
    }
    fprintf(file, "\n`weft COMMAND --help` describes a command. %s\n", exit_statuses);
}

/* The same as JSON: {"version", "status", "commands": [{"name", "doc", "group"}]}. */
static int usage_json(void)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "version", WEFT_VERSION);
    cJSON_AddStringToObject(json, "status", exit_statuses);
    cJSON *list = cJSON_AddArrayToObject(json, "commands");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        cJSON *command = cJSON_CreateObject();
        cJSON_AddStringToObject(command, "name", commands[i].name);
        cJSON_AddStringToObject(command, "doc", commands[i].doc);
        cJSON_AddStringToObject(command, "group", headings[commands[i].group]);
        cJSON_AddItemToArray(list, command);
    }
    return tool_print_json(json);
}

static int no_command(const char *name)
{
    char meant[GUESS_BYTES];
    guess g = weft__guess_of(name, strlen(name));
    for (size_t i = 0; i < N_COMMANDS; i++) weft__guess_try(&g, commands[i].name);
    tool_print_line(stderr, "weft: no command \"%s\" (see `weft --help`)%s", name,
                    weft__guess_text(&g, meant));
    return EXIT_USAGE;
}

bool tool_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

bool tool_is_rank_file(const char *path)
{
    const char *at = strstr(weft__os_name(path), ".rank-");
    int read = 0;
    if (at) (void)sscanf(at, ".rank-%*d-of-%*d%n", &read);
    return read > 0 && tool_ends_with(path, ".safetensors");
}

double tool_seconds(void)
{
    return clock_seconds();
}

/* Whether what was printed no longer decides the exit status: it is known to be good, or the status
 * is that of another error. */
static bool output_judged;

static int judge_output(int status)
{
    const bool good = fflush(stdout) == 0 && !ferror(stdout);
    output_judged = true;
    return good || status != EXIT_GOOD ? status : tool_fail_text("output", "cannot be written");
}

/* Runs at every exit: a command line with --help ends the program. */
static void judge_at_exit(void)
{
    if (!output_judged && judge_output(EXIT_GOOD) != EXIT_GOOD) _Exit(EXIT_ERROR);
}

/* Prints what weft decided on its own, if it is less than what was asked for. */
static void print_warning(void *context, weft_log_level level, const char *where, const char *text)
{
    (void)context;
    if (level == WEFT_LOG_WARNING) tool_print_line(stderr, "weft: warning: %s: %s", where, text);
}

/* Runs a command and returns the exit status. */
static int run_command(size_t command, int argc, char **argv)
{
    char name[64];
    snprintf(name, sizeof name, "weft %s", commands[command].name);
    if (tool_world() && !commands[command].parallel) {
        tool_print_line(stderr, "%s: runs in one process only, not under mpirun", name);
        return EXIT_USAGE;
    }
    argv[0] = name;
    weft_log_set(print_warning, NULL);
    weft_error error = {0};
    if (tool_check_environment(&error) != WEFT_OK) return judge_output(tool_fail(&error));
    return judge_output(commands[command].run(argc, argv));
}

static int run_program(int argc, char **argv)
{
    if (!system_open_streams()) return tool_fail_text("standard streams", "cannot be opened");
    if (atexit(judge_at_exit) != 0) return tool_fail_text("weft", "out of memory");
    tool_watch_json();
    if (!tool_world_begin()) return EXIT_ERROR;
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return EXIT_GOOD;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("weft %s\n", WEFT_VERSION);
        return EXIT_GOOD;
    }
    if (!strcmp(argv[1], TOOL_HELP_JSON)) return usage_json();
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name)) return run_command(i, argc - 1, argv + 1);
    return no_command(argv[1]);
}

int main(int argc, char **argv)
{
    return system_run(run_program, argc, argv);
}
