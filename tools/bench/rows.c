/* The rows of weft bench: lines of text, and objects of JSON. */
#include "bench.h"

#include <inttypes.h>
#include <string.h>

double bench_plan_bytes(const bench_result *r)
{
    return (double)r->plan.arena_bytes + (double)r->plan.state_bytes +
           (double)r->plan.workspace_bytes * r->threads;
}

/* The sizes of FILE.onnx as --dim has them, its batch, and the files of its constants. */
static void add_file_options(cJSON *list, const onnx_args *o)
{
    char text[TOOL_NAME_BYTES];
    for (size_t i = 0; i < o->n_dims; i++) {
        const weft_onnx_dim *d = &o->dims[i];
        if (d->name)
            snprintf(text, sizeof text, "%s=%" PRId64, d->name, d->size);
        else
            snprintf(text, sizeof text, "%s:%d=%" PRId64, d->input, d->axis, d->size);
        cJSON_AddItemToArray(list, cJSON_CreateString(text));
    }
    snprintf(text, sizeof text, "batch=%" PRId64, o->batch);
    if (o->batch) cJSON_AddItemToArray(list, cJSON_CreateString(text));
    for (size_t i = 0; i < o->constants.n; i++) {
        snprintf(text, sizeof text, "%s=%s", o->constants.at[i].name, o->constants.at[i].path);
        cJSON_AddItemToArray(list, cJSON_CreateString(text));
    }
}

cJSON *bench_describe(const workload *w, const model_args *given)
{
    const char *model = given && given->model ? given->model->name : w->model;
    const char *const *options = given ? given->options : w->options;
    const size_t n = given ? given->n_options : BENCH_OPTIONS;
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "workload", w->name);
    cJSON_AddStringToObject(row, "doc", w->doc);
    if (model) cJSON_AddStringToObject(row, "model", model);
    cJSON *list = cJSON_AddArrayToObject(row, "options");
    for (size_t i = 0; i < n && options[i]; i++)
        cJSON_AddItemToArray(list, cJSON_CreateString(options[i]));
    if (given) add_file_options(list, &given->onnx);
    cJSON_AddBoolToObject(row, "train", w->kind != BENCH_FORWARD);
    return row;
}

void bench_add_result(cJSON *row, const bench_result *r)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"runs", (double)r->times.n},
        {"median_ms", 1e3 * r->times.median},
        {"min_ms", 1e3 * r->times.min},
        {"flops", r->plan.flops},
        {"gflops", 1e-9 * r->plan.flops / r->times.min},
        {"gemm_gflops", 1e-9 * r->gemm},
        {"gemm_fraction", r->plan.flops / r->times.min / r->gemm},
        {"tokens_per_second", r->tokens / r->times.min},
        {"arena_bytes", (double)r->plan.arena_bytes},
        {"state_bytes", (double)r->plan.state_bytes},
        {"workspace_bytes", (double)r->plan.workspace_bytes * r->threads},
        {"peak_bytes", r->peak_bytes},
        {"barriers", (double)r->plan.barriers},
        {"nodes", (double)r->plan.nodes},
        {"fused", (double)r->plan.fused},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (r->tokens > 0 || strcmp(numbers[i].name, "tokens_per_second") != 0)
            cJSON_AddNumberToObject(row, numbers[i].name, numbers[i].value);
}

void bench_print_head(void)
{
    printf("%-18s %10s %10s %8s %7s %9s %9s %9s %8s %6s %7s\n", "workload", "median ms", "min ms",
           "GFLOP/s", "of GEMM", "tokens/s", "plan MB", "peak MB", "barriers", "nodes", "fused");
}

void bench_print_result(const workload *w, const bench_result *r)
{
    char tokens[32] = "-";
    if (r->tokens > 0) snprintf(tokens, sizeof tokens, "%.0f", r->tokens / r->times.min);
    tool_print_line(stdout, "%-18s %10.3f %10.3f %8.1f %7.2f %9s %9.1f %9.1f %8zu %6zu %7zu",
                    w->name, 1e3 * r->times.median, 1e3 * r->times.min,
                    1e-9 * r->plan.flops / r->times.min, r->plan.flops / r->times.min / r->gemm,
                    tokens, 1e-6 * bench_plan_bytes(r), 1e-6 * r->peak_bytes, r->plan.barriers,
                    r->plan.nodes, r->plan.fused);
    fflush(stdout);
}
