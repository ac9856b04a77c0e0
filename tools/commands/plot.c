/* weft plot: the training and validation curves of runs, from their metrics. */
#include "picture.h"
#include "text/streams.h"
#include "tool.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RUNS 8

typedef struct arguments {
    const char *runs[MAX_RUNS], *out;
    size_t n;
} arguments;

static error_t parse(int key, char *text, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case 'o':
        plot_check_name(text, "-o", state);
        a->out = text;
        return 0;
    case ARGP_KEY_ARG:
        if (a->n == MAX_RUNS) argp_error(state, "%d runs at most", MAX_RUNS);
        a->runs[a->n++] = text;
        return 0;
    case ARGP_KEY_END:
        if (!a->n || !a->out) argp_error(state, "name the folder of a run and -o FILE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

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

static bool take_line(const cJSON *line, curve *training, curve *validation)
{
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(line, "step");
    const cJSON *loss = cJSON_GetObjectItemCaseSensitive(line, "smoothed");
    const cJSON *valid = cJSON_GetObjectItemCaseSensitive(line, "validation_loss");
    if (!cJSON_IsNumber(step)) return true;
    if (cJSON_IsNumber(loss) && !add_point(training, step->valuedouble, loss->valuedouble))
        return false;
    return !cJSON_IsNumber(valid) || add_point(validation, step->valuedouble, valid->valuedouble);
}

static int read_run(const char *run, curve *training, curve *validation)
{
    char path[4096], *line = NULL;
    size_t size = 0, number = 0;
    ssize_t n;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    snprintf(training->name, sizeof training->name, "%s: training, smoothed", run);
    snprintf(validation->name, sizeof validation->name, "%s: validation", run);
    weft_error error = {0};
    FILE *file = stream_open(path, &error);
    if (!file) return tool_fail(&error);
    bool good = true, is_json = true;
    while (good && is_json && (n = getline(&line, &size, file)) > 0) {
        json_failure why;
        number++;
        if (line[n - 1] != '\n') break; /* the run is still writing it */
        cJSON *json = json_parse(line, (size_t)n, &why);
        is_json = json || why.no_memory;
        good = json ? take_line(json, training, validation) : !why.no_memory;
        cJSON_Delete(json);
    }
    bool ended = !good || stream_at_end(file, path, &error);
    free(line);
    stream_close(file);
    if (!is_json) return tool_fail_text(path, "line %zu is not JSON", number);
    if (!good) return tool_fail_text(path, "out of memory");
    if (!ended) return tool_fail(&error);
    if (training->n + validation->n == 0) return tool_fail_text(path, "has no losses yet");
    return EXIT_GOOD;
}

int cmd_plot(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"output", 'o', "FILE", 0, "the picture, FILE.svg or FILE.png; - prints SVG", 0}, {0}};
    struct argp argp = {
        options,  parse,
        "RUN...", "Draws the losses of training runs, from RUN/metrics.jsonl, with gnuplot.",
        NULL,     NULL,
        NULL};
    arguments a = {.n = 0};
    tool_parse(&argp, argc, argv, &a);
    curve *curves = calloc(2 * a.n, sizeof *curves);
    plot_series series[2 * MAX_RUNS];
    size_t n = 0;
    int status = curves ? EXIT_GOOD : tool_fail_text("plot", "out of memory");
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
