/* weft bench: times the workloads, or a model, and compares their rate with that of large matrix
 * products, and with an earlier run. */
#include "bench/against.h"
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
    const char *dump, *against;
    double limit; /* per cent */
    bool threads_given, precision_given, limit_given;
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

/* Makes the model the only workload. */
static void take_model(arguments *a)
{
    a->given = (workload){.name = weft__os_name(tool_model_name(&a->model)),
                          .doc = a->train ? "whole Adam step" : "the outputs",
                          .kind = a->train ? BENCH_STEP : BENCH_FORWARD};
    a->workloads[a->n++] = &a->given;
}

/* What is measured: the named workloads, the model, those of --against, or all workloads. */
static void choose(void *into, const tool_parser *parser)
{
    arguments *a = into;
    const char *name = tool_model_name(&a->model);
    if (a->growth && (a->n || name || a->threads || a->dump || a->model.plan.precision))
        tool_usage_error(parser, "--growth chooses workloads, threads and precision itself");
    if (a->against && (a->growth || a->dump))
        tool_usage_error(parser, "--against excludes --growth and --dump");
    if (a->limit_given && !a->against) tool_usage_error(parser, "--limit needs --against");
    if (a->dump && a->n != 1) tool_usage_error(parser, "--dump takes one workload");
    if (a->train && !name) tool_usage_error(parser, "--train needs MODEL or FILE.onnx");
    if (name) take_model(a);
    if (a->n || a->against) return;
    while (a->n < workload_count()) {
        a->workloads[a->n] = workload_at(a->n);
        a->n++;
    }
}

/* Takes a model and its options from a row of --against. */
static weft_status take_old_model(arguments *a, const cJSON *row, weft_error *error)
{
    const cJSON *option, *options = cJSON_GetObjectItemCaseSensitive(row, "options");
    a->model.model =
        weft_model_find(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "workload")));
    cJSON_ArrayForEach(option, options)
    {
        if (a->model.n_options == WEFT_MODEL_OPTIONS)
            return weft_error_set(error, WEFT_TOO_LARGE, a->against, "has too many model options");
        a->model.options[a->model.n_options++] = cJSON_GetStringValue(option);
    }
    a->train = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(row, "train"));
    take_model(a);
    return WEFT_OK;
}

/* Without names, --against measures what its file did: workloads, or one model. */
static weft_status choose_old(arguments *a, const against_file *old, weft_error *error)
{
    const cJSON *row;
    cJSON_ArrayForEach(row, old->rows)
    {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(row, "workload"));
        const workload *w = workload_find(name);
        if (!w && tool_ends_with(name, ".onnx"))
            return weft_error_set(error, WEFT_BAD_ARGUMENT, old->path,
                                  "measured a file: name it, and its options, on the command line");
        if (!w && weft_model_find(name) && !a->n && !row->next)
            return take_old_model(a, row, error);
        if (!w)
            return weft_error_set(error, WEFT_NOT_FOUND, old->path, "unknown workload \"%s\"",
                                  name);
        if (a->n == MAX_WORKLOADS)
            return weft_error_set(error, WEFT_TOO_LARGE, old->path, "has more than %d workloads",
                                  MAX_WORKLOADS);
        a->workloads[a->n++] = w;
    }
    return WEFT_OK;
}

/* A workload to measure. */
typedef struct task {
    const workload *workload;
    cJSON *row;      /* its results; owned by the list that is printed */
    against_row old; /* with --against */
    weft_precision precision;
    int threads;
    bool slower;
} task;

static weft_status measure_gemm(bench_result *r, weft_error *error)
{
    double rate;
    weft_status status = weft_measure_gemm(WEFT_F32, r->threads, &rate, error);
    if (status == WEFT_OK && rate > r->gemm) r->gemm = rate;
    return status;
}

/* Rounds of runs. Matrix products are measured before, between and after them, so both see the same
 * state of the machine. The memory peak covers building, planning and the first runs. */
static weft_status measure(const arguments *a, const task *t, bench_result *r, weft_error *error)
{
    bench b;
    double *samples = NULL;
    size_t n = 0;
    const workload *w = t->workload;
    *r = (bench_result){.threads = t->threads};
    weft_status status = measure_gemm(r, error);
    if (status != WEFT_OK) return status;
    system_forget_peak();
    const bench_request request = {.precision = t->precision,
                                   .threads = t->threads,
                                   .given = w == &a->given ? &a->model : NULL};
    status = bench_open(&b, w, &request, error);
    if (status != WEFT_OK) return status;
    for (long round = 0; round < a->rounds && status == WEFT_OK; round++) {
        bench_progress("%s: round %ld of %ld", w->name, round + 1, a->rounds);
        status = bench_row(&b, a->runs, &samples, &n, error);
        if (round == 0) r->peak_bytes = system_memory_peak();
        if (status == WEFT_OK) status = measure_gemm(r, error);
    }
    bench_progress(NULL);
    r->times = bench_summary(samples, n);
    r->plan = weft_plan_stats_of(b.trial.plan);
    r->tokens = b.tokens;
    free(samples);
    bench_close(&b);
    return status;
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

static against_figures figures_of(const bench_result *r)
{
    return (against_figures){.min_ms = 1e3 * r->times.min,
                             .gemm_gflops = 1e-9 * r->gemm,
                             .arena_bytes = (double)r->plan.arena_bytes,
                             .plan_bytes = bench_plan_bytes(r)};
}

/* Describes a workload, and with --against finds its earlier row, whose threads and precision are
 * the defaults. */
static weft_status prepare(const arguments *a, const against_file *old, task *t, weft_error *error)
{
    char precision[8];
    int length;
    t->row = bench_describe(t->workload, t->workload == &a->given ? &a->model : NULL);
    t->precision = a->model.plan.precision;
    t->threads = (int)a->threads;
    if (a->against) {
        if (against_find(old, t->row, &t->old, error) != WEFT_OK) return error->status;
        if (!a->threads_given) t->threads = t->old.threads;
        if (!a->precision_given) t->precision = t->old.precision;
    }
    if (!t->threads) t->threads = weft_default_threads();
    if (a->against && (t->threads != t->old.threads || t->precision != t->old.precision))
        tool_print_line(stderr, "weft: warning: %s: \"%s\" had other threads or precision",
                        old->path, t->workload->name);
    const char *choice = tool_choice_at(TOOL_PRECISIONS, (int)t->precision, &length);
    snprintf(precision, sizeof precision, "%.*s", length, choice);
    cJSON_AddStringToObject(t->row, "precision", precision);
    cJSON_AddNumberToObject(t->row, "threads", t->threads);
    return WEFT_OK;
}

/* Measures a workload and compares it with its earlier row. One that seems slower is measured a
 * second time, and the better result counts, because other programs may have disturbed the first. */
static weft_status measure_against(const arguments *a, const task *t, bench_result *r,
                                   against_result *found, weft_error *error)
{
    const double limit = 1e-2 * a->limit;
    weft_status status = measure(a, t, r, error);
    if (status != WEFT_OK) return status;
    against_figures now = figures_of(r);
    *found = against_compare(&t->old.figures, &now, limit);
    if (!found->slower) return WEFT_OK;
    bench_result again;
    status = measure(a, t, &again, error);
    if (status != WEFT_OK) return status;
    now = figures_of(&again);
    const against_result other = against_compare(&t->old.figures, &now, limit);
    if (other.time < found->time) {
        *r = again;
        *found = other;
    }
    return WEFT_OK;
}

/* Measures a workload, and prints it unless JSON is wanted. */
static weft_status run_task(const arguments *a, task *t, double *gemm, weft_error *error)
{
    bench_result r;
    against_result found = {.slower = false};
    const weft_status status =
        a->against ? measure_against(a, t, &r, &found, error) : measure(a, t, &r, error);
    if (status != WEFT_OK) return status;
    if (r.gemm > *gemm) *gemm = r.gemm;
    t->slower = found.slower;
    bench_add_result(t->row, &r);
    if (a->against) against_add(t->row, &found);
    if (!a->json && a->against) against_print(t->workload->name, &found);
    if (!a->json && !a->against) bench_print_result(t->workload, &r);
    return WEFT_OK;
}

#define GEMM "C [6000, 2048] = A [6000, 512] B [512, 2048]"

static void print_notes(const arguments *a, double gemm, size_t slower)
{
    if (!a->against) {
        printf("\nRates are of the fastest run. GEMM: the best rate of " GEMM
               "\nbefore, between and after the runs, %.1f GFLOP/s. plan: arena, states and "
               "workspaces.\n",
               1e-9 * gemm);
        return;
    }
    printf("\nGFLOP: what GEMM, " GEMM ",\ncomputes in the time of the fastest run. change: of "
           "this number. plan: arena, states and workspaces.\n");
    tool_print_line(stdout, "Slower than in %s by more than %g %%: %zu of %zu.", a->against,
                    a->limit, slower, a->n);
}

static void add_summary(cJSON *json, const arguments *a, size_t slower)
{
    cJSON *summary = cJSON_AddObjectToObject(json, "against");
    cJSON_AddStringToObject(summary, "file", a->against);
    cJSON_AddNumberToObject(summary, "limit", 1e-2 * a->limit);
    cJSON_AddNumberToObject(summary, "slower", (double)slower);
}

/* Reads the file of --against and chooses its workloads, unless some are named. */
static weft_status open_old(arguments *a, against_file *old, const cJSON *machine,
                            weft_error *error)
{
    weft_status status = against_open(old, a->against, error);
    if (status == WEFT_OK && !a->n) status = choose_old(a, old, error);
    if (status == WEFT_OK) against_warn(old, machine);
    return status;
}

static int run(arguments *a)
{
    weft_error error = {0};
    against_file old = {.path = NULL};
    task tasks[MAX_WORKLOADS] = {{.workload = NULL}};
    double gemm = 0;
    size_t slower = 0;
    cJSON *json = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(json, "workloads");
    weft_status status = weft__add_machine(json, &error);
    if (status == WEFT_OK && a->against) status = open_old(a, &old, json, &error);
    for (size_t i = 0; i < a->n && status == WEFT_OK; i++) {
        tasks[i].workload = a->workloads[i];
        status = prepare(a, &old, &tasks[i], &error);
        cJSON_AddItemToArray(list, tasks[i].row);
    }
    if (status == WEFT_OK && !a->json && a->against) against_print_head();
    if (status == WEFT_OK && !a->json && !a->against) bench_print_head();
    for (size_t i = 0; i < a->n && status == WEFT_OK; i++) {
        status = run_task(a, &tasks[i], &gemm, &error);
        slower += tasks[i].slower;
    }
    if (status == WEFT_OK && !a->json) print_notes(a, gemm, slower);
    if (a->against) add_summary(json, a, slower);
    against_close(&old);
    if (status != WEFT_OK || !a->json) cJSON_Delete(json);
    if (status != WEFT_OK) return tool_fail(&error);
    const int printed = a->json ? tool_print_json(json) : EXIT_GOOD;
    return slower ? EXIT_ERROR : printed;
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
    {"precision", TOOL_PRECISIONS, FIELD(model.plan.precision), TOOL_PRECISION,
     TOOL_ALSO(arguments, precision_given)},
    {"runs", "N", FIELD(runs), "runs in a round, after one for warm-up; more if they are short", 1,
     1e5},
    {"rounds", "N", FIELD(rounds), "rounds, with matrix products measured between them", 1, 1000},
    {"threads", "N", FIELD(threads), "threads (0: OpenMP's default)", 0, 1024,
     TOOL_ALSO(arguments, threads_given)},
    {"growth", NULL, FIELD(growth),
     "measure how time and arena grow with batch, length, layers and threads"},
    {"dump", "FILE", FIELD(dump),
     "instead of timing, write parameters, inputs, outputs and gradients of one run, without "
     "dropout, as a safetensors file"},
    {"against", "FILE", FIELD(against),
     "compare with FILE, an earlier output of --json: measure its workloads, or those named, with "
     "its "
     "threads and precision; exit status 1 if one is slower by more than --limit, or after an "
     "error"},
    {"limit", "PERCENT", FIELD(limit),
     "with --against: growth, in per cent, of the time relative to that of matrix products in the "
     "same run",
     0, 1e12, TOOL_ALSO(arguments, limit_given)},
    {"json", NULL, FIELD(json), "print JSON"},
    {TOOL_INCLUDED(arguments, model, tool_model_options)},
    {0}};

int cmd_bench(int argc, char **argv)
{
    char *workloads = list_workloads();
    arguments a = {.runs = 3, .rounds = 3, .limit = 3};
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
