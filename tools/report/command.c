/* weft report: one page about a model, a file or runs, or the comparison of two. */
#include "subject.h"

#include "base/file.h"
#include "base/text.h"
#include "base/platform.h"
#include "system.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    report_side sides[2]; /* the first is being read; the other one follows it */
    bool against;         /* there are two */
    const char *output;
    bool json, no_time;
    long runs, threads; /* runs 0: not chosen */
} arguments;

#define DEFAULT_RUNS 10

static void check_side(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    const report_side *s = &a->sides[0];
    if (!report_has_subject(s))
        tool_usage_error(parser, a->against ? "--against needs a MODEL, FILE.onnx, RUN or FILE.json"
                                            : "MODEL, FILE.onnx, RUN or FILE.json is missing");
    tool_check_fixed(s->train, &s->model, parser);
    if (a->against && (s->n_runs > 1 || a->sides[1].n_runs > 1))
        tool_usage_error(parser, "--against compares one run with another");
    if (a->no_time && a->runs) tool_usage_error(parser, "--runs and --no-time exclude each other");
}

static void take_argument(void *into, char *text, const tool_parser *parser)
{
    arguments *a = into;
    report_take_arg(&a->sides[0], text, parser);
}

static void refuse_against(const tool_option *option, void *into, char *text,
                           const tool_parser *parser)
{
    (void)option;
    (void)into;
    (void)text;
    tool_usage_error(parser, "write --against once, as a word of its own before its subject");
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option options[] = {
    {"train", NULL, FIELD(sides[0].train), "the whole training step: gradients, clipping, Adam"},
    {"fixed", NULL, FIELD(sides[0].model.plan.fixed_states), TOOL_FIXED},
    {"skip", "PASS,...", FIELD(sides[0].model.plan.skip),
     "passes of the planner that are not run; all: every one"},
    {"against", "SUBJECT", TOOL_BY(refuse_against),
     "compare with another MODEL, FILE.onnx, RUN or FILE.json. Its own options follow it; --train "
     "before it is for both"},
    {"output", "FILE.html", FIELD(output),
     "the page (default: NAME.report.html in this folder); - prints it", .letter = 'o'},
    {"json", NULL, FIELD(json),
     "write the data of the page as JSON instead, to FILE of -o or standard output"},
    {"runs", "N", FIELD(runs),
     "runs to measure, after one for warm-up (10; the model of a RUN is measured only with --runs)",
     1, 1e6},
    {"no-time", NULL, FIELD(no_time), "plan the model, but do not run it"},
    {"threads", "N", FIELD(threads), "threads (0: OpenMP's default)", 0, WEFT_MAX_THREADS},
    {TOOL_INCLUDED(arguments, sides[0].model, tool_model_options)},
    {0}};

static const tool_command command = {
    .options = options,
    .usage = "MODEL [OPTION=VALUE...]\nFILE.onnx\nRUN...\nFILE.json",
    .doc =
        "Writes one HTML page, which needs no network: a summary with the layers; the graph after "
        "the passes, by scopes; where the time goes, measured on synthetic inputs, by op, scope "
        "and node, with a timeline and the roofline; the buffers of the arena; and of RUN, the "
        "folder of `weft train` or `weft fit`, the curves, histograms, samples and attention "
        "weights, next to the plan of a training step of its model. Several runs are drawn over "
        "each other. FILE.json is what --json has written before.",
    .notes = TOOL_FILE_LOSS,
    .argument = take_argument,
    .check = check_side};

/* Reads the command line. What follows the word --against is of the second side. */
static void read_arguments(int argc, char **argv, arguments *a)
{
    int split = 1;
    while (split < argc && strcmp(argv[split], "--against") != 0) split++;
    tool_parse(&command, split, argv, a);
    if (split == argc) return;
    const report_side first = a->sides[0];
    a->against = true;
    a->sides[1] = first;
    a->sides[0] = (report_side){.train = first.train};
    argv[split] = argv[0];
    tool_parse(&command, argc - split, argv + split, a);
    a->sides[1] = a->sides[0];
    a->sides[0] = first;
}

/* ---- Output ---- */

/* NAME.report.html, where NAME is the last part of the subject's path, without .onnx or .json. */
static const char *output_name(const report_side *side, char text[4096])
{
    const char *name = tool_model_name(&side->model);
    if (!name) name = side->saved ? side->saved : side->runs[0];
    size_t length = strlen(name), first;
    while (length > 1 && weft__os_is_separator(name[length - 1])) length--;
    for (first = length; first > 0 && !weft__os_is_separator(name[first - 1]); first--) {
    }
    if (tool_ends_with(name, ".onnx") || tool_ends_with(name, ".json")) length -= 5;
    snprintf(text, 4096, "%.*s.report.html", (int)(length - first), name + first);
    return text;
}

static weft_status write_report(const arguments *a, FILE *file, const weft_report *report,
                                weft_error *error)
{
    return a->json ? weft_report_write_json(report, file, error)
                   : weft_report_write_page(report, file, error);
}

static int write_output(const arguments *a, const weft_report *report)
{
    char size[TEXT_SIZE_BYTES];
    const char *path = a->output;
    text_stream out;
    weft_error error = {0};
    if (!strcmp(path, "-"))
        return write_report(a, stdout, report, &error) == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
    if (!text_stream_open(&out)) return tool_fail_text(path, "out of memory");
    bool good = write_report(a, out.file, report, &error) == WEFT_OK;
    if (!text_stream_close(&out) && good) {
        weft_error_set(&error, WEFT_NO_MEMORY, path, "out of memory");
        good = false;
    }
    good = good && tool_write_output(path, out.text, out.bytes, &error);
    free(out.text);
    if (!good) return tool_fail(&error);
    tool_print_line(stdout, "%s: %s", path, weft__text_from_bytes((double)out.bytes, size));
    return EXIT_GOOD;
}

/* The report of the sides; NULL after an error. */
static weft_report *make_report(const arguments *a, weft_error *error)
{
    char title[2 * REPORT_LABEL_BYTES + 16], label[REPORT_LABEL_BYTES];
    const report_options o = {.timed = !a->no_time,
                              .runs_timed = a->runs > 0,
                              .runs = a->runs ? a->runs : DEFAULT_RUNS,
                              .threads = (int)a->threads};
    if (a->sides[0].saved && !a->against) return weft_report_load(a->sides[0].saved, error);
    snprintf(title, sizeof title, "%s", report_label(&a->sides[0], label));
    if (a->against)
        tool_append(title, sizeof title, " against %s", report_label(&a->sides[1], label));
    weft_report *report =
        weft_report_new(title, &(weft_report_options){.compare = a->against}, error);
    weft_status status = report ? WEFT_OK : error->status;
    for (size_t i = 0; i < (a->against ? 2 : 1) && status == WEFT_OK; i++)
        status = report_add_side(&a->sides[i], &o, report, error);
    if (status == WEFT_OK) return report;
    weft_report_free(report);
    return NULL;
}

int cmd_report(int argc, char **argv)
{
    char name[4096];
    arguments a = {.runs = 0};
    weft_error error = {0};
    read_arguments(argc, argv, &a);
    if (!a.output) a.output = a.json ? "-" : output_name(&a.sides[0], name);
    for (size_t i = 0; i < (a.against ? 2 : 1); i++)
        if (report_check_output(&a.sides[i], a.output, &error) != WEFT_OK) return tool_fail(&error);
    if (!a.json && !weft_report_has_page())
        return tool_fail_text("report", "weft was built without the page (meson option report): "
                                        "--json prints its data");
    weft_report *report = make_report(&a, &error);
    if (!report) return tool_fail(&error);
    const int status = write_output(&a, report);
    weft_report_free(report);
    return status;
}
