/* The program `weft`: a table of commands. */
#include "tool.h"

#include "base/clock.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name, *doc;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"ops", "list the ops", cmd_ops},
    {"models", "list the models and their options", cmd_models},
    {"dot", "draw a model's graph", cmd_dot},
    {"plan", "plan a model and print what it takes", cmd_plan},
    {"profile", "tell where the time of a model goes", cmd_profile},
    {"bench", "time the workloads that weft is measured by", cmd_bench},
    {"info", "tell what weft uses on this machine", cmd_info},
    {"check", "check gradients of ops or of a model", cmd_check},
    {"reproduce", "recompute the worked examples of five introductions", cmd_reproduce},
    {"demo", "show something, computed on the spot", cmd_demo},
    {"train", "train a model on text files", cmd_train},
    {"average", "average the parameters of checkpoints", cmd_average},
    {"plot", "draw the losses of training runs", cmd_plot},
    {"translate", "translate lines from standard input", cmd_translate},
    {"generate", "go on from a prompt with a language model", cmd_generate},
    {"logprob", "log probabilities of lines, and their perplexity", cmd_logprob},
    {"score", "BLEU and chrF of translations", cmd_score},
    {"vocab", "make vocabularies, and turn text into ids and back", cmd_vocab},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static void usage(FILE *file)
{
    fprintf(file, "Usage: weft COMMAND [OPTION...]\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].doc);
    fprintf(file, "\n`weft COMMAND --help` tells more. Exit status: 0 good, 1 error, 2 usage.\n");
}

int tool_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (int i = 0; choices; i++) {
        if (strcspn(choices, "|") == length && !strncmp(choices, text, length)) return i;
        choices = strchr(choices, '|');
        if (choices) choices++;
    }
    return -1;
}

size_t tool_split_options(char *text, const char **options)
{
    char *rest = NULL;
    size_t n = 0;
    for (char *o = strtok_r(text, " ", &rest); o && n < WEFT_MODEL_OPTIONS;
         o = strtok_r(NULL, " ", &rest))
        options[n++] = o;
    return n;
}

bool tool_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

double tool_seconds(void)
{
    return clock_seconds();
}

void tool_take_model_arg(model_args *args, const char *text, struct argp_state *state)
{
    if (!args->model) {
        args->model = weft_model_find(text);
        if (!args->model) tool_usage_error(state, "no model \"%s\" (see `weft models`)", text);
        return;
    }
    if (args->n_options == WEFT_MODEL_OPTIONS) argp_error(state, "too many model options");
    args->options[args->n_options++] = text;
}

long tool_number(const char *text, const char *what, long least, long most,
                 struct argp_state *state)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (errno || end == text || *end || number < least || number > most)
        tool_usage_error(state, "%s must be a whole number from %ld to %ld, not \"%s\"", what,
                         least, most, text);
    return number;
}

double tool_real(const char *text, const char *what, double least, double most,
                 struct argp_state *state)
{
    double x = 0;
    if (!text_to_double(text, &x) || !(x >= least && x <= most))
        tool_usage_error(state, "%s must be a number from %g to %g, not \"%s\"", what, least, most,
                         text);
    return x;
}

static weft_status build_step(built_model *m)
{
    weft_graph *g = m->graph;
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    m->lr = weft_input(g, "lr", weft_dtype_of(g, m->io.loss), WEFT_SCALAR);
    m->step = weft_train_step(g, m->io.loss, NULL, 0, m->lr, &adam, &m->norm);
    return weft_graph_status(g);
}

weft_status tool_build(const weft_model *model, const char *const *options, size_t n_options,
                       bool training, built_model *out, weft_error *error)
{
    memset(out, 0, sizeof *out);
    out->graph = weft_graph_new();
    weft_status status =
        weft_model_build_text(out->graph, model, options, n_options, training, &out->io, error);
    if (status == WEFT_OK && training && build_step(out) != WEFT_OK)
        status = tool_take_error(weft_graph_error(out->graph), error);
    if (status == WEFT_OK) return WEFT_OK;
    weft_graph_free(out->graph);
    out->graph = NULL;
    return status;
}

/* Descriptors 0 to 2 that the caller has closed are opened: a file that the program opens would get
 * one of them, and what is printed would be written into it. They are opened the wrong way round,
 * so that reading and printing fail as they do with a closed descriptor. */
static bool open_standard_streams(void)
{
    static const int modes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int i = 0; i < 3; i++)
        if (fcntl(i, F_GETFD) < 0 && errno == EBADF && open("/dev/null", modes[i]) != i)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    if (!open_standard_streams()) return tool_fail_text("/dev/null", "cannot be opened");
    argp_err_exit_status = EXIT_USAGE;
    tool_watch_json();
    argp_program_version = "weft " TOOL_VERSION;
    if (argc < 2) {
        usage(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return EXIT_GOOD;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("%s\n", argp_program_version);
        return EXIT_GOOD;
    }
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) != 0) continue;
        char name[64];
        snprintf(name, sizeof name, "weft %s", argv[1]);
        argv[1] = name;
        int status = commands[i].run(argc - 1, argv + 1);
        if ((fflush(stdout) != 0 || ferror(stdout)) && status == EXIT_GOOD)
            return tool_fail_text("output", "cannot be written");
        return status;
    }
    tool_print_line(stderr, "weft: no command \"%s\" (see `weft --help`)", argv[1]);
    return EXIT_USAGE;
}
