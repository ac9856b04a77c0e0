/* weft plot: the training and validation curves of runs, from their metrics. */
#include "picture.h"
#include "tool.h"

#include "json/lines.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RUNS 8

typedef struct arguments {
    const char *runs[MAX_RUNS], *out;
    size_t n;
} arguments;

static void take_run(void *into, char *text, const tool_parser *parser)
{
    arguments *a = into;
    if (a->n == MAX_RUNS) tool_usage_error(parser, "%d runs at most", MAX_RUNS);
    a->runs[a->n++] = text;
}

static void check(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    if (a->out) plot_check_name(a->out, "-o", parser);
    if (!a->n) tool_usage_error(parser, "RUN is missing");
}

static const tool_option options[] = {{"output", "FILE", TOOL_FIELD(arguments, out),
                                       "the picture, FILE.svg or FILE.png; - prints SVG",
                                       .letter = 'o', .required = true},
                                      {0}};

static const tool_command command = {
    .options = options,
    .usage = "RUN...",
    .doc = "Draws the losses of training runs, from RUN/metrics.jsonl, with gnuplot.",
    .argument = take_run,
    .check = check};

/* A growing list of points. */
typedef struct curve {
    char name[512];
    double *x, *y;
    size_t n, capacity;
} curve;

static bool add_point(curve *c, double x, double y)
{
    if (c->n == c->capacity) {
        size_t grown = c->capacity ? 2 * c->capacity : 256;
        double *xs = realloc(c->x, grown * sizeof *xs);
        if (xs) c->x = xs;
        double *ys = xs ? realloc(c->y, grown * sizeof *ys) : NULL;
        if (!ys) return false;
        c->y = ys;
        c->capacity = grown;
    }
    c->x[c->n] = x;
    c->y[c->n++] = y;
    return true;
}

typedef struct run_curves {
    curve *training, *validation;
} run_curves;

static bool take_line(void *context, cJSON *line)
{
    const run_curves *c = context;
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(line, "step");
    const cJSON *loss = cJSON_GetObjectItemCaseSensitive(line, "smoothed");
    const cJSON *valid = cJSON_GetObjectItemCaseSensitive(line, "validation_loss");
    bool good = true;
    if (cJSON_IsNumber(step) && cJSON_IsNumber(loss))
        good = add_point(c->training, step->valuedouble, loss->valuedouble);
    if (good && cJSON_IsNumber(step) && cJSON_IsNumber(valid))
        good = add_point(c->validation, step->valuedouble, valid->valuedouble);
    cJSON_Delete(line);
    return good;
}

static int read_run(const char *run, curve *training, curve *validation)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    snprintf(training->name, sizeof training->name, "%s: training, smoothed", run);
    snprintf(validation->name, sizeof validation->name, "%s: validation", run);
    weft_error error = {0};
    if (weft__json_read_lines(path, take_line, &(run_curves){training, validation}, &error) !=
        WEFT_OK)
        return tool_fail(&error);
    if (training->n + validation->n == 0) return tool_fail_text(path, "has no losses yet");
    return EXIT_GOOD;
}

int cmd_plot(int argc, char **argv)
{
    arguments a = {.n = 0};
    tool_parse(&command, argc, argv, &a);
    curve *curves = calloc(2 * a.n, sizeof *curves);
    plot_series series[2 * MAX_RUNS];
    size_t n = 0;
    int status = curves ? EXIT_GOOD : tool_fail_text("plot", "out of memory");
    for (size_t i = 0; i < a.n && status == EXIT_GOOD; i++) {
        weft_error error = {0};
        if (tool_check_output(a.out, a.runs[i], &error) != WEFT_OK) status = tool_fail(&error);
    }
    for (size_t i = 0; i < a.n && status == EXIT_GOOD; i++)
        status = read_run(a.runs[i], &curves[2 * i], &curves[2 * i + 1]);
    for (size_t i = 0; i < 2 * a.n && status == EXIT_GOOD; i++)
        if (curves[i].n)
            series[n++] = (plot_series){curves[i].name, curves[i].x, curves[i].y, curves[i].n};
    if (status == EXIT_GOOD) {
        plot p = {.title = "Loss",
                  .x_label = "step",
                  .y_label = "nats a token",
                  .series = series,
                  .n_series = n};
        status = plot_write(&p, a.out);
    }
    for (size_t i = 0; curves && i < 2 * a.n; i++) {
        free(curves[i].x);
        free(curves[i].y);
    }
    free(curves);
    return status;
}
