/* weft report: one page about a model, a file or runs, or the comparison of two. */
#include "subject.h"

#include "base/file.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct arguments {
    report_side sides[2];
    size_t side; /* that is being read */
    const char *output;
    bool json, no_time;
    long runs, threads; /* runs 0: not chosen */
} arguments;

#define DEFAULT_RUNS 10

enum {
    KEY_TRAIN = 256,
    KEY_FIXED,
    KEY_SKIP,
    KEY_AGAINST,
    KEY_JSON,
    KEY_RUNS,
    KEY_NO_TIME,
    KEY_THREADS
};

static void check_side(const arguments *a, struct argp_state *state)
{
    const report_side *s = &a->sides[a->side];
    if (!report_has_subject(s))
        argp_error(state, a->side ? "--against needs a MODEL, FILE.onnx, RUN or FILE.json"
                                  : "MODEL, FILE.onnx, RUN or FILE.json is missing");
    if (s->train && s->model.plan.fixed_states)
        argp_error(state,
                   "--fixed and --train exclude each other: training changes the parameters");
    if (a->side && (s->n_runs > 1 || a->sides[0].n_runs > 1))
        argp_error(state, "--against compares one run with another");
    if (a->no_time && a->runs) argp_error(state, "--runs and --no-time exclude each other");
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    arguments *a = state->input;
    report_side *side = &a->sides[a->side];
    switch (key) {
    case KEY_TRAIN:
        side->train = true;
        return 0;
    case KEY_FIXED:
        side->model.plan.fixed_states = true;
        return 0;
    case KEY_SKIP:
        side->model.plan.skip = text;
        return 0;
    case KEY_AGAINST:
        argp_error(state, "write --against once, as a word of its own before its subject");
        return 0;
    case 'o':
        a->output = text;
        return 0;
    case KEY_JSON:
        a->json = true;
        return 0;
    case KEY_RUNS:
        a->runs = tool_number(text, "--runs", 1, 1000000, state);
        return 0;
    case KEY_NO_TIME:
        a->no_time = true;
        return 0;
    case KEY_THREADS:
        a->threads = tool_number(text, "--threads", 0, WEFT_MAX_THREADS, state);
        return 0;
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &side->model.onnx;
        return 0;
    case ARGP_KEY_ARG:
        report_take_arg(side, text, state);
        return 0;
    case ARGP_KEY_END:
        check_side(a, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"train", KEY_TRAIN, NULL, 0, "the whole training step: gradients, clipping, Adam", 0},
    {"fixed", KEY_FIXED, NULL, 0, TOOL_FIXED, 0},
    {"skip", KEY_SKIP, "PASS,...", 0, "passes of the planner that are not run; all: every one", 0},
    {"against", KEY_AGAINST, "SUBJECT", 0,
     "compare with another MODEL, FILE.onnx, RUN or FILE.json. Its own options follow it; --train "
     "before it is for both",
     0},
    {"output", 'o', "FILE.html", 0,
     "the page (default: NAME.report.html in this folder); - prints it", 0},
    {"json", KEY_JSON, NULL, 0,
     "write the data of the page as JSON instead, to FILE of -o or standard output", 0},
    {"runs", KEY_RUNS, "N", 0,
     "runs to measure, after one for warm-up (10; the model of a RUN is measured only with --runs)",
     0},
    {"no-time", KEY_NO_TIME, NULL, 0, "plan the model, but do not run it", 0},
    {"threads", KEY_THREADS, "N", 0, "threads (0: OpenMP's default)", 0},
    {0}};

static const struct argp_child onnx_options[] = {{&onnx_argp, 0, "Of FILE.onnx:", 1}, {0}};

static const struct argp report_argp = {
    options,
    parse,
    "MODEL [OPTION=VALUE...]\nFILE.onnx\nRUN...\nFILE.json",
    "Writes one HTML page, which needs no network: a summary with the layers; the graph after the "
    "passes, by scopes; where the time goes, measured on synthetic inputs, by op, scope and node, "
    "with a timeline and the roofline; the buffers of the arena; and of RUN, the folder of `weft "
    "train` or `weft fit`, the curves, histograms, samples and attention weights, next to the plan "
    "of a training step of its model. Several runs are drawn over each other. FILE.json is what "
    "--json has written before.\v" TOOL_FILE_LOSS,
    onnx_options,
    NULL,
    NULL};

/* Reads the command line. What follows the word --against is of the second side. */
static void read_arguments(int argc, char **argv, arguments *a)
{
    int split = 1;
    while (split < argc && strcmp(argv[split], "--against") != 0) split++;
    tool_parse(&report_argp, split, argv, a);
    if (split == argc) return;
    a->side = 1;
    a->sides[1].train = a->sides[0].train;
    argv[split] = argv[0];
    tool_parse(&report_argp, argc - split, argv + split, a);
}

/* ---- Output ---- */

/* NAME.report.html, where NAME is the last part of the subject's path, without .onnx or .json. */
static const char *output_name(const report_side *side, char text[4096])
{
    const char *name = tool_model_name(&side->model);
    if (!name) name = side->saved ? side->saved : side->runs[0];
    size_t length = strlen(name), first;
    while (length > 1 && name[length - 1] == '/') length--;
    for (first = length; first > 0 && name[first - 1] != '/'; first--) {
    }
    if (tool_ends_with(name, ".onnx") || tool_ends_with(name, ".json")) length -= 5;
    snprintf(text, 4096, "%.*s.report.html", (int)(length - first), name + first);
    return text;
}

/* Writes the document to a stream, and frees it. */
static bool write_document(const arguments *a, FILE *file, const char *where, cJSON *document,
                           weft_error *error)
{
    return a->json ? tool_write_json_line(document, file, where, error)
                   : report_write_page(file, document, error);
}

static int write_output(const arguments *a, cJSON *document)
{
    char size[TEXT_SIZE_BYTES], *text = NULL;
    const char *path = a->output;
    size_t bytes = 0;
    weft_error error = {0};
    if (!strcmp(path, "-"))
        return write_document(a, stdout, "output", document, &error) ? EXIT_GOOD
                                                                     : tool_fail(&error);
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory) {
        cJSON_Delete(document);
        return tool_fail_text(path, "out of memory");
    }
    bool good = write_document(a, memory, path, document, &error);
    if (fclose(memory) != 0 && good) {
        weft_error_set(&error, WEFT_NO_MEMORY, path, "out of memory");
        good = false;
    }
    good = good && tool_write_output(path, text, bytes, &error);
    free(text);
    if (!good) return tool_fail(&error);
    tool_print_line(stdout, "%s: %s", path, weft__text_from_bytes((double)bytes, size));
    return EXIT_GOOD;
}

int cmd_report(int argc, char **argv)
{
    char title[2 * REPORT_LABEL_BYTES + 16], label[REPORT_LABEL_BYTES], name[4096];
    arguments a = {.runs = 0};
    weft_error error = {0};
    read_arguments(argc, argv, &a);
    const bool compares = a.side == 1;
    const report_options o = {.timed = !a.no_time,
                              .runs_timed = a.runs > 0,
                              .runs = a.runs ? a.runs : DEFAULT_RUNS,
                              .threads = (int)a.threads};
    snprintf(title, sizeof title, "%s", report_label(&a.sides[0], label));
    if (compares) tool_append(title, sizeof title, " against %s", report_label(&a.sides[1], label));
    if (!a.output) a.output = a.json ? "-" : output_name(&a.sides[0], name);
    for (size_t i = 0; i <= a.side; i++)
        if (report_check_output(&a.sides[i], a.output, &error) != WEFT_OK) return tool_fail(&error);
    if (!a.json && !report_has_page(&error)) return tool_fail(&error);
    if (a.sides[0].saved && !compares) {
        cJSON *saved = report_load(a.sides[0].saved, &error);
        return saved ? write_output(&a, saved) : tool_fail(&error);
    }
    cJSON *document = report_new(title, &error);
    weft_status status = document ? WEFT_OK : error.status;
    if (compares) cJSON_AddTrueToObject(document, "compare");
    for (size_t i = 0; i <= a.side && status == WEFT_OK; i++)
        status = report_add_side(&a.sides[i], &o, document, &error);
    if (status == WEFT_OK) return write_output(&a, document);
    cJSON_Delete(document);
    return tool_fail(&error);
}
