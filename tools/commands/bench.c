/* weft bench: times the workloads, or a model, and compares their rate with that of large matrix
 * products. */
#include "bench/bench.h"

#include "machine.h"
#include "base/platform.h"
#include "system.h"

#include <stdlib.h>
#include <string.h>

#define MAX_WORKLOADS 32

typedef struct arguments {
    const workload *workloads[MAX_WORKLOADS];
    size_t n;
    model_args model; /* in place of workloads */
    workload given;   /* the one of this model */
    bool train, json, growth;
    long runs, rounds, threads;
    const char *dump;
} arguments;

static void take_argument(void *into, char *text, const tool_parser *parser)
{
    arguments *a = into;
    const bool model = tool_model_name(&a->model) != NULL;
    const workload *w = model ? NULL : workload_find(text);
    if (!model && !w && (a->n || (!tool_ends_with(text, ".onnx") && !weft_model_find(text))))
        tool_usage_error(parser, "no workload%s \"%s\" (see `weft bench --help`)",
                         a->n ? "" : " or model", text);
    if (w && a->n == MAX_WORKLOADS) tool_usage_error(parser, "too many workloads");
    if (w)
        a->workloads[a->n++] = w;
    else
        tool_take_model_arg(&a->model, text, parser);
}

/* What is measured: the named workloads, the model, or all workloads. */
static void choose(void *into, const tool_parser *parser)
{
    arguments *a = into;
    const char *name = tool_model_name(&a->model);
    if (a->growth && (a->n || name || a->threads || a->dump || a->model.plan.precision))
        tool_usage_error(parser, "--growth chooses workloads, threads and precision itself");
    if (a->dump && a->n != 1) tool_usage_error(parser, "--dump takes one workload");
    if (a->train && !name) tool_usage_error(parser, "--train needs MODEL or FILE.onnx");
    if (name) {
        a->given = (workload){.name = weft__os_name(name),
                              .doc = a->train ? "whole Adam step" : "the outputs",
                              .kind = a->train ? BENCH_STEP : BENCH_FORWARD};
        a->workloads[a->n++] = &a->given;
    }
    for (size_t i = 0; !a->n && i < workload_count(); i++) a->workloads[i] = workload_at(i);
    if (!a->n) a->n = workload_count();
}

typedef struct result {
    bench_times times;
    weft_plan_stats plan;
    double gemm; /* flops per second: the best of those measured around and between the runs */
    double tokens, peak_bytes;
    int threads;
} result;

static weft_status measure_gemm(const arguments *a, result *r, weft_error *error)
{
    double rate;
    weft_status status = weft_measure_gemm(WEFT_F32, (int)a->threads, &rate, error);
    if (status == WEFT_OK && rate > r->gemm) r->gemm = rate;
    return status;
}

/* Rounds of runs. Matrix products are measured before, between and after them, so both see the same
 * state of the machine. The memory peak covers building, planning and the first runs. */
static weft_status measure(const arguments *a, const workload *w, result *r, weft_error *error)
{
    bench b;
    double *samples = NULL;
    size_t n = 0;
    *r = (result){0};
    weft_status status = measure_gemm(a, r, error);
    if (status != WEFT_OK) return status;
    system_forget_peak();
    const bench_request request = {.precision = a->model.plan.precision,
                                   .threads = (int)a->threads,
                                   .given = w == &a->given ? &a->model : NULL};
    status = bench_open(&b, w, &request, error);
    if (status != WEFT_OK) return status;
    for (long round = 0; round < a->rounds && status == WEFT_OK; round++) {
        bench_progress("%s: round %ld of %ld", w->name, round + 1, a->rounds);
        status = bench_row(&b, a->runs, &samples, &n, error);
        if (round == 0) r->peak_bytes = system_memory_peak();
        if (status == WEFT_OK) status = measure_gemm(a, r, error);
    }
    bench_progress(NULL);
    r->times = bench_summary(samples, n);
    r->plan = weft_plan_stats_of(b.trial.plan);
    r->tokens = b.tokens;
    free(samples);
    bench_close(&b);
    return status;
}

/* Arena, states and the threads' workspaces. */
static double plan_bytes(const result *r)
{
    return (double)r->plan.arena_bytes + (double)r->plan.state_bytes +
           (double)r->plan.workspace_bytes * r->threads;
}

static cJSON *to_json(const workload *w, const result *r)
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
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "workload", w->name);
    cJSON_AddStringToObject(json, "doc", w->doc);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (r->tokens > 0 || strcmp(numbers[i].name, "tokens_per_second") != 0)
            cJSON_AddNumberToObject(json, numbers[i].name, numbers[i].value);
    return json;
}

static void print_head(void)
{
    printf("%-18s %10s %10s %8s %7s %9s %9s %9s %8s %6s %7s\n", "workload", "median ms", "min ms",
           "GFLOP/s", "of GEMM", "tokens/s", "plan MB", "peak MB", "barriers", "nodes", "fused");
}

static void print_result(const workload *w, const result *r)
{
    char tokens[32] = "-";
    if (r->tokens > 0) snprintf(tokens, sizeof tokens, "%.0f", r->tokens / r->times.min);
    tool_print_line(stdout, "%-18s %10.3f %10.3f %8.1f %7.2f %9s %9.1f %9.1f %8zu %6zu %7zu",
                    w->name, 1e3 * r->times.median, 1e3 * r->times.min,
                    1e-9 * r->plan.flops / r->times.min, r->plan.flops / r->times.min / r->gemm,
                    tokens, 1e-6 * plan_bytes(r), 1e-6 * r->peak_bytes, r->plan.barriers,
                    r->plan.nodes, r->plan.fused);
    fflush(stdout);
}

static int dump(const arguments *a)
{
    bench b;
    weft_error error = {0};
    const bench_request request = {
        .precision = a->model.plan.precision, .threads = (int)a->threads, .exact = true};
    weft_status status = bench_open(&b, a->workloads[0], &request, &error);
    if (status != WEFT_OK) return tool_fail(&error);
    status = bench_dump(&b, a->dump, &error);
    bench_close(&b);
    return status == WEFT_OK ? EXIT_GOOD : tool_fail(&error);
}

static int run(const arguments *a)
{
    weft_error error = {0};
    double gemm = 0;
    cJSON *json = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(json, "workloads");
    weft_status status = weft__add_machine(json, &error);
    if (status == WEFT_OK && !a->json) print_head();
    for (size_t i = 0; i < a->n && status == WEFT_OK; i++) {
        result r;
        status = measure(a, a->workloads[i], &r, &error);
        if (status != WEFT_OK) break;
        r.threads = a->threads ? (int)a->threads
                               : (int)cJSON_GetNumberValue(cJSON_GetObjectItem(json, "threads"));
        if (r.gemm > gemm) gemm = r.gemm;
        cJSON_AddItemToArray(list, to_json(a->workloads[i], &r));
        if (!a->json) print_result(a->workloads[i], &r);
    }
    if (status == WEFT_OK && a->json) return tool_print_json(json);
    cJSON_Delete(json);
    if (status != WEFT_OK) return tool_fail(&error);
    printf(
        "\nRates are of the fastest run. GEMM: the best rate of C [6000, 2048] = A [6000, 512] B "
        "[512, 2048]\nbefore, between and after the runs, %.1f GFLOP/s. plan: arena, "
        "states and workspaces.\n",
        1e-9 * gemm);
    return EXIT_GOOD;
}

/* The list of workloads, at the end of the help; the caller frees it. NULL if out of memory. */
static char *list_workloads(void)
{
    text_stream out;
    if (!text_stream_open(&out)) return NULL;
    fprintf(out.file, "Workloads (all of them if nothing is named):\n");
    for (size_t i = 0; i < workload_count(); i++)
        fprintf(out.file, "  %-18s %s\n", workload_at(i)->name, workload_at(i)->doc);
    fprintf(out.file, "\n%s\n", TOOL_FILE_LOSS);
    return text_stream_close(&out) ? out.text : NULL;
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option options[] = {
    {"train", NULL, FIELD(train),
     "with MODEL or FILE.onnx: the whole training step (gradients, clipping, Adam)"},
    {"precision", TOOL_PRECISIONS, FIELD(model.plan.precision), TOOL_PRECISION},
    {"runs", "N", FIELD(runs), "runs in a round, after one for warm-up; more if they are short", 1,
     1e5},
    {"rounds", "N", FIELD(rounds), "rounds, with matrix products measured between them", 1, 1000},
    {"threads", "N", FIELD(threads), "threads (0: OpenMP's default)", 0, 1024},
    {"growth", NULL, FIELD(growth),
     "measure how time and arena grow with batch, length, layers and threads"},
    {"dump", "FILE", FIELD(dump),
     "instead of timing, write parameters, inputs, outputs and gradients of one run, without "
     "dropout, as a safetensors file"},
    {"json", NULL, FIELD(json), "print JSON"},
    {TOOL_INCLUDED(arguments, model, tool_model_options)},
    {0}};

int cmd_bench(int argc, char **argv)
{
    char *workloads = list_workloads();
    arguments a = {.runs = 3, .rounds = 3};
    const tool_command command = {
        .options = options,
        .usage = "[WORKLOAD...]\nMODEL [OPTION=VALUE...]\nFILE.onnx",
        .doc = "Times weft's benchmark workloads, or a model, on synthetic inputs. Prints "
               "the median and the minimum time of a run, its rate, also as a share of "
               "the rate of matrix products on the same threads, memory, and the size of "
               "the plan. Models of images count images as tokens.",
        .notes = workloads,
        .argument = take_argument,
        .check = choose};
    tool_parse(&command, argc, argv, &a);
    free(workloads);
    if (a.growth) return bench_growth(a.runs, a.json);
    return a.dump ? dump(&a) : run(&a);
}
