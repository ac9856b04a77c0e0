/* weft bench --growth: workloads at growing sizes, and the exponents of their growth. */
#include "bench.h"

#include "base/openmp.h"
#include "machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_POINTS 8

typedef struct series {
    const char *workload;
    const char *axis; /* an option of the model, or "threads" */
    const char *options[4];
    long at[MAX_POINTS]; /* 0 at the end */
} series;

static const series all[] = {
    {"attention-forward", "length", {NULL}, {256, 512, 1024, 2048, 4096}},
    {"attention-step", "length", {NULL}, {256, 512, 1024, 2048, 4096}},
    {"encoder-forward", "batch", {"length=64", "layers=2"}, {2, 4, 8, 16, 32}},
    {"encoder-train", "batch", {"length=64", "layers=2"}, {2, 4, 8, 16, 32}},
    {"encoder-forward", "length", {"batch=2", "layers=2"}, {64, 128, 256, 512, 1024}},
    {"encoder-train", "length", {"batch=2", "layers=2"}, {64, 128, 256, 512, 1024}},
    {"encoder-forward", "layers", {"batch=8", "length=64"}, {1, 2, 4, 8}},
    {"encoder-train", "layers", {"batch=8", "length=64"}, {1, 2, 4, 8}},
    {"encoder-forward", "threads", {"batch=8", "length=128", "layers=2"}, {1, 2, 4, 8, 16, 32}},
    {"encoder-train", "threads", {"batch=8", "length=128", "layers=2"}, {1, 2, 4, 8, 16, 32}},
};

/* Training steps of these models are planned but not run. (Recurrent models have one size of graph.) */
static const series planned[] = {
    {"gpt", "layers", {"batch=2", "length=16", "d_model=32", "vocab=50"}, {25, 50, 100, 200, 400}},
};

typedef struct point {
    double x, seconds, arena_bytes;
} point;

/* The slope of log y over log x by least squares: y grows as x to this power. */
static double exponent(const point *p, size_t n, bool arena)
{
    double sx = 0, sy = 0, sxx = 0, sxy = 0, count = (double)n;
    for (size_t i = 0; i < n; i++) {
        double x = log(p[i].x), y = log(arena ? p[i].arena_bytes : p[i].seconds);
        sx += x;
        sy += y;
        sxx += x * x;
        sxy += x * y;
    }
    double below = count * sxx - sx * sx;
    return below > 0 ? (count * sxy - sx * sy) / below : 0;
}

static weft_status measure_point(const series *s, long at, long runs, point *p, weft_error *error)
{
    char text[64];
    const char *options[5];
    size_t n = 0;
    bool threads = !strcmp(s->axis, "threads");
    while (n < 4 && s->options[n]) {
        options[n] = s->options[n];
        n++;
    }
    snprintf(text, sizeof text, "%s=%ld", s->axis, at);
    if (!threads) options[n++] = text;
    bench b;
    bench_request request = {.options = options, .n_options = n, .threads = threads ? (int)at : 0};
    weft_status status = bench_open(&b, workload_find(s->workload), &request, error);
    if (status != WEFT_OK) return status;
    double *samples = NULL;
    size_t n_samples = 0;
    bench_progress("%s, %s %ld", s->workload, s->axis, at);
    status = bench_row(&b, runs, &samples, &n_samples, error);
    *p = (point){(double)at, bench_summary(samples, n_samples).min,
                 (double)weft_plan_stats_of(b.trial.plan).arena_bytes};
    free(samples);
    bench_close(&b);
    return status;
}

/* The minimum time of planning, over the number of nodes. */
static weft_status plan_point(const series *s, long at, long runs, point *p, weft_error *error)
{
    char text[64];
    const char *options[5];
    size_t n = 0;
    built_model m;
    weft_value targets[2];
    for (; n < 4 && s->options[n]; n++) options[n] = s->options[n];
    snprintf(text, sizeof text, "%s=%ld", s->axis, at);
    options[n++] = text;
    bench_progress("planning %s, %s %ld", s->workload, s->axis, at);
    weft_status status = tool_build(weft_model_find(s->workload), options, n, true, &m, error);
    if (status != WEFT_OK) return status;
    *p = (point){(double)weft_graph_node_count(m.graph), INFINITY, 0};
    size_t n_targets = tool_targets(&m, targets);
    for (long i = 0; status == WEFT_OK && i < runs; i++) {
        double begin = tool_seconds();
        weft_plan *plan = weft_plan_new(m.graph, targets, n_targets, NULL, error);
        p->seconds = fmin(p->seconds, tool_seconds() - begin);
        if (plan)
            p->arena_bytes = (double)weft_plan_stats_of(plan).arena_bytes;
        else
            status = error->status;
        weft_plan_free(plan);
    }
    weft_graph_free(m.graph);
    return status;
}

static cJSON *to_json(const series *s, const char *axis, const point *p, size_t n)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, axis == s->axis ? "workload" : "planning", s->workload);
    cJSON_AddStringToObject(json, "axis", s->axis);
    cJSON *fixed = cJSON_AddArrayToObject(json, "options");
    for (size_t i = 0; i < 4 && s->options[i]; i++)
        cJSON_AddItemToArray(fixed, cJSON_CreateString(s->options[i]));
    cJSON *points = cJSON_AddArrayToObject(json, "points");
    for (size_t i = 0; i < n; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddNumberToObject(item, axis, p[i].x);
        cJSON_AddNumberToObject(item, "min_ms", 1e3 * p[i].seconds);
        cJSON_AddNumberToObject(item, "arena_bytes", p[i].arena_bytes);
        cJSON_AddItemToArray(points, item);
    }
    cJSON_AddNumberToObject(json, "time_exponent", exponent(p, n, false));
    cJSON_AddNumberToObject(json, "arena_exponent", exponent(p, n, true));
    return json;
}

static void print_series(const series *s, const char *axis, const point *p, size_t n)
{
    printf("%s%s over %s", axis == s->axis ? "" : "planning a training step of ", s->workload,
           s->axis);
    for (size_t i = 0; i < 4 && s->options[i]; i++) printf(" %s", s->options[i]);
    printf("\n  %10s %12s %12s\n", axis, "min ms", "arena MB");
    for (size_t i = 0; i < n; i++)
        printf("  %10.0f %12.3f %12.3f\n", p[i].x, 1e3 * p[i].seconds, 1e-6 * p[i].arena_bytes);
    printf("  %10s %12.2f %12.2f\n\n", "exponent", exponent(p, n, false), exponent(p, n, true));
    fflush(stdout);
}

/* Measures the points of a series, adds them to the list, and prints them unless `quiet`. The
 * exponents are over `axis`. */
static weft_status measure_series(const series *s, const char *axis,
                                  weft_status (*measure)(const series *, long, long, point *,
                                                         weft_error *),
                                  long runs, bool quiet, cJSON *list, weft_error *error)
{
    point points[MAX_POINTS];
    size_t n = 0;
    weft_status status = WEFT_OK;
    for (size_t k = 0; k < MAX_POINTS && s->at[k] && status == WEFT_OK; k++) {
        /* More threads than processors would measure nothing. */
        if (!strcmp(s->axis, "threads") && s->at[k] > omp_get_num_procs()) break;
        status = measure(s, s->at[k], runs, &points[n], error);
        n += status == WEFT_OK;
    }
    bench_progress(NULL);
    if (status != WEFT_OK) return status;
    cJSON_AddItemToArray(list, to_json(s, axis, points, n));
    if (!quiet) print_series(s, axis, points, n);
    return WEFT_OK;
}

int bench_growth(long runs, bool json)
{
    weft_error error = {0};
    cJSON *out = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(out, "growth");
    weft_status status = weft__add_machine(out, &error);
    for (size_t i = 0; i < sizeof planned / sizeof *planned && status == WEFT_OK; i++)
        status = measure_series(&planned[i], "nodes", plan_point, runs, json, list, &error);
    for (size_t i = 0; i < sizeof all / sizeof *all && status == WEFT_OK; i++)
        status = measure_series(&all[i], all[i].axis, measure_point, runs, json, list, &error);
    if (status == WEFT_OK && json) return tool_print_json(out);
    cJSON_Delete(out);
    return status == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
}
