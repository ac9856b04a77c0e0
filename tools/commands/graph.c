/* weft dot and weft plan: a model's graph, and the memory that its plan needs. */
#include "commands/before_after.h"
#include "commands/picture.h"
#include "tool.h"

#include "plan_facts.h"
#include "system.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef WEFT_HAVE_GRAPHVIZ
#include <graphviz/gvc.h>
#endif

typedef struct arguments {
    model_args model;
    bool json, train, planned, overlay;
    long runs;
    weft_dot_options drawing;
    const char *output;
    const char *instances; /* folder */
    const char *pass;      /* of --before-after */
    const char *svg;
    double seconds;
} arguments;

#define FIELD(field) TOOL_FIELD(arguments, field)

/* ---- dot ---- */

/* Returns the exit status. */
static int write_file(const char *path, const char *data, size_t bytes)
{
    weft_error error = {0};
    if (!strcmp(path, "-")) {
        fwrite(data, 1, bytes, stdout); /* main reports a failed flush */
        return EXIT_GOOD;
    }
    return tool_write_output(path, data, bytes, &error) ? EXIT_GOOD : tool_fail(&error);
}

/* Renders into memory, because libgvc ends the program if it cannot write a file. */
static int render(const char *text, const char *path)
{
#ifdef WEFT_HAVE_GRAPHVIZ
    text_stream out;
    const bool opened = text_stream_open(&out);
    GVC_t *gvc = gvContext();
    graph_t *graph = gvc ? agmemread(text) : NULL;
    bool failed =
        !opened || !graph || gvLayout(gvc, graph, "dot") != 0 ||
        gvRender(gvc, graph, picture_kind_of(path) == PICTURE_PNG ? "png" : "svg", out.file) != 0;
    if (graph) {
        gvFreeLayout(gvc, graph);
        agclose(graph);
    }
    if (gvc) gvFreeContext(gvc);
    if (opened && !text_stream_close(&out)) failed = true;
    int status = failed ? tool_fail_text(path, "Graphviz could not draw it")
                        : write_file(path, out.text, out.bytes);
    free(out.text);
    return status;
#else
    (void)text;
    return tool_fail_text(path, "this build has no Graphviz: write a .dot file instead");
#endif
}

/* Writes the planned graph with its times. */
static weft_status draw_times(const arguments *a, FILE *file, weft_error *error)
{
    trial t;
    double seconds;
    weft_status status = trial_open(&t, &a->model, a->train, 0, error);
    if (status != WEFT_OK) return status;
    status = trial_profile(&t, a->runs, 0, &seconds, error);
    if (status == WEFT_OK) status = weft_profile_write_dot(weft_profile_of(t.session), file, error);
    trial_close(&t);
    return status;
}

/* Writes the graph as it was built, or after the passes. */
static weft_status draw_graph(const arguments *a, FILE *file, weft_error *error)
{
    built_model m;
    weft_status status = tool_build_args(&a->model, a->train, &m, error);
    if (status != WEFT_OK) return status;
    weft_plan *plan = NULL;
    if (a->planned) plan = tool_plan(&m, error);
    if (a->planned && !plan)
        status = error->status;
    else
        status =
            weft_graph_write_dot(plan ? weft_plan_graph(plan) : m.graph, &a->drawing, file, error);
    weft_plan_free(plan);
    tool_free_model(&m);
    return status;
}

static void take_overlay(const tool_option *option, void *into, char *text,
                         const tool_parser *parser)
{
    if (strcmp(text, "time") != 0)
        tool_usage_error(parser, "unknown overlay \"%s\"; expected time", text);
    *(bool *)tool_field(option, into) = true;
}

static void check_dot(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    if (a->output && picture_kind_of(a->output) == PICTURE_OTHER)
        tool_usage_error(parser, "-o %s: graphs are DOT, SVG or PNG: name it .dot, .svg or .png",
                         a->output);
    tool_check_fixed(a->train, &a->model, parser);
    if (a->overlay && (a->drawing.depth || a->drawing.no_update || a->drawing.no_backward))
        tool_usage_error(parser,
                         "--overlay draws every node, so it excludes --depth, --no-update and "
                         "--no-backward");
    if (!tool_model_name(&a->model)) tool_usage_error(parser, "MODEL is missing");
}

static const tool_option dot_options[] = {
    {"output", "FILE", FIELD(output),
     "FILE.dot, or FILE.svg or FILE.png (with Graphviz); - prints DOT", .letter = 'o',
     .required = true},
    {"train", NULL, FIELD(train), "the whole training step"},
    {"depth", "N", FIELD(drawing.depth),
     "draw scopes of N components as one box each, with shapes on the edges", 1, 1000},
    {"no-update", NULL, FIELD(drawing.no_update), "leave out the optimiser"},
    {"no-backward", NULL, FIELD(drawing.no_backward), "leave out the gradients and the optimiser"},
    {TOOL_INCLUDED(arguments, model.plan, tool_plan_options)},
    {"planned", NULL, FIELD(planned), "draw the graph after the passes, as it is run"},
    {"overlay", "time", TOOL_INTO(arguments, overlay, take_overlay),
     "run it, and colour nodes by their share of the time (implies --planned)"},
    {"runs", "N", FIELD(runs), "runs to measure for the overlay, after one for warm-up", 1, 1e6},
    {TOOL_INCLUDED(arguments, model, tool_model_options)},
    {0}};

int cmd_dot(int argc, char **argv)
{
    static const tool_command command = {.options = dot_options,
                                         .usage = "MODEL [OPTION=VALUE...]\nFILE.onnx",
                                         .doc = "Draws a model's graph.",
                                         .notes = TOOL_FILE_LOSS,
                                         .check = check_dot};
    arguments a = {.runs = 5};
    tool_parse(&command, argc, argv, &a);
    a.model.onnx.out = a.output;
    weft_error error = {0};
    bool picture = picture_kind_of(a.output) != PICTURE_NONE;
    text_stream out;
    if (!text_stream_open(&out)) return tool_fail_text("dot", "out of memory");
    weft_status drawn =
        a.overlay ? draw_times(&a, out.file, &error) : draw_graph(&a, out.file, &error);
    int status = drawn == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
    if (!text_stream_close(&out) && status == EXIT_GOOD)
        status = tool_fail_text("dot", "out of memory");
    if (status == EXIT_GOOD)
        status = picture ? render(out.text, a.output) : write_file(a.output, out.text, out.bytes);
    free(out.text);
    return status;
}

/* ---- plan ---- */

static int print_plan(const arguments *a, const weft_plan_stats *s)
{
    plan_fact rows[PLAN_FACTS];
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "model", tool_model_name(&a->model));
    cJSON_AddBoolToObject(json, "train", a->train);
    weft__plan_facts(s, rows);
    for (size_t i = 0; i < PLAN_FACTS; i++) {
        cJSON_AddNumberToObject(json, rows[i].name, rows[i].value);
        if (!a->json) printf("%-18s %.10g%s\n", rows[i].name, rows[i].value, rows[i].unit);
    }
    cJSON_AddStringToObject(json, "packing", weft_pack_end_text(s->packed));
    if (!a->json) printf("%-18s %s\n", "packing", weft_pack_end_text(s->packed));
    if (a->json) return tool_print_json(json);
    cJSON_Delete(json);
    return EXIT_GOOD;
}

static int draw_plan(const weft_plan *plan, const char *path)
{
    text_stream out;
    weft_error error = {0};
    if (!text_stream_open(&out)) return tool_fail_text("plan", "out of memory");
    int status =
        weft_plan_write_svg(plan, out.file, &error) == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
    if (!text_stream_close(&out) && status == EXIT_GOOD)
        status = tool_fail_text("plan", "out of memory");
    if (status == EXIT_GOOD) status = write_file(path, out.text, out.bytes);
    free(out.text);
    return status;
}

static void check_plan(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    if (a->instances && (tool_model_name(&a->model) || a->train || a->pass || a->svg))
        tool_usage_error(parser, "--instances excludes a model, --train, --before-after and --svg");
    if (a->pass && a->svg)
        tool_usage_error(parser, "--svg draws one plan, so it excludes --before-after");
    tool_check_fixed(a->train, &a->model, parser);
    if (a->seconds > 0 && !a->instances) tool_usage_error(parser, "--seconds needs --instances");
    if (!tool_model_name(&a->model) && !a->instances) tool_usage_error(parser, "MODEL is missing");
}

static const tool_option plan_options[] = {
    {"train", NULL, FIELD(train), "the whole training step: gradients, clipping, Adam"},
    {TOOL_INCLUDED(arguments, model.plan, tool_plan_options)},
    {"instances", "DIR", FIELD(instances),
     "pack the lists of buffers in DIR/NAME.CAPACITY.csv, with the columns lower, upper "
     "(exclusive) and size, instead of a model's"},
    {"before-after", "PASS", FIELD(pass), BEFORE_AFTER},
    {"svg", "FILE", FIELD(svg), "draw the arena: intervals across, bytes up"},
    {"seconds", "S", FIELD(seconds), "time limit of the search for each list", 1e-3, 1e9},
    {"json", NULL, FIELD(json), "print JSON"},
    {TOOL_INCLUDED(arguments, model, tool_model_options)},
    {0}};

int cmd_plan(int argc, char **argv)
{
    static const tool_command command = {
        .options = plan_options,
        .usage = "MODEL [OPTION=VALUE...]\nFILE.onnx\n--instances DIR",
        .doc =
            "Plans a model and prints the sum of its buffers, the arena that they share (arena), "
            "the peak of live bytes (a lower bound of the arena), and arena / peak.",
        .notes = TOOL_FILE_LOSS,
        .check = check_plan};
    arguments a = {0};
    tool_parse(&command, argc, argv, &a);
    a.model.onnx.out = a.svg;
    if (a.instances) return tool_pack_instances(a.instances, a.seconds, a.json);
    if (a.pass) return plan_before_after(&a.model, a.train, a.pass, a.json);
    weft_error error = {0};
    built_model m;
    if (tool_build_args(&a.model, a.train, &m, &error) != WEFT_OK) return tool_fail(&error);
    weft_plan *plan = tool_plan(&m, &error);
    int status = EXIT_ERROR;
    if (!plan || weft_plan_check(plan, &error) != WEFT_OK) {
        tool_fail(&error);
    } else {
        weft_plan_stats stats = weft_plan_stats_of(plan);
        status = print_plan(&a, &stats);
        if (status == EXIT_GOOD && a.svg) status = draw_plan(plan, a.svg);
    }
    weft_plan_free(plan);
    tool_free_model(&m);
    return status;
}
