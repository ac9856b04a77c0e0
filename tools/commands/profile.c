/* weft profile: where the time of a model's runs goes, compared with the machine's peaks. */
#include "commands/before_after.h"
#include "tool.h"

#include "base/file.h"
#include "base/platform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The maximum in a trace: 50 runs of a large model are hundreds of megabytes of text. */
#define MAX_TRACED 50

typedef struct arguments {
    model_args model;
    bool train, json;
    long runs, threads, depth, rows;
    weft_profile_by by;
    const char *by_name;
    const char *trace;
    const char *pass; /* of --before-after */
} arguments;

/* In the order of weft_profile_by. */
#define BY "node|op|scope"

static void check(void *into, const tool_parser *parser)
{
    const arguments *a = into;
    if (!tool_model_name(&a->model)) tool_usage_error(parser, "MODEL is missing");
    tool_check_fixed(a->train, &a->model, parser);
    if (a->depth && a->by != WEFT_PROFILE_BY_SCOPE)
        tool_usage_error(parser, "--depth needs --by scope");
    if (a->trace && a->pass)
        tool_usage_error(parser, "--trace writes one profile, so it excludes --before-after");
}

#define FIELD(field) TOOL_FIELD(arguments, field)
static const tool_option options[] = {
    {"train", NULL, FIELD(train), "the whole training step: gradients, clipping, Adam"},
    {TOOL_INCLUDED(arguments, model.plan, tool_plan_options)},
    {"runs", "N", FIELD(runs), "runs to measure, after one for warm-up", 1, 1e6},
    {"threads", "N", FIELD(threads), "threads (0: OpenMP's default)", 0, 1024},
    {"by", BY, FIELD(by), "a row for each op, scope or node"},
    {"depth", "N", FIELD(depth), "scope components in a row (0: all)", 0, 64},
    {"rows", "N", FIELD(rows), "print the N longest rows, and the sum of the others (0: all)", 0,
     1e6},
    {"json", NULL, FIELD(json), "print JSON"},
    {"trace", "FILE", FIELD(trace),
     "write a trace of the last runs, 50 at most, for Perfetto or chrome://tracing"},
    {"before-after", "PASS", FIELD(pass), BEFORE_AFTER},
    {TOOL_INCLUDED(arguments, model, tool_model_options)},
    {0}};

static const tool_command command = {
    .options = options,
    .usage = "MODEL [OPTION=VALUE...]\nFILE.onnx",
    .doc =
        "Runs a model on synthetic inputs and shows where the time goes. Milliseconds are for one "
        "run, averaged over the threads, so the rows add up to the duration of a run. "
        "compute is time in kernels, waiting is time at the barrier after a row's nodes, and "
        "start is the time to wake the threads. Rates are the work over the compute time. roofline "
        "is the minimum time of that work, at peaks measured first, over the compute time. The "
        "table is as wide as the terminal or COLUMNS; else 80 columns.",
    .notes = TOOL_FILE_LOSS,
    .check = check};

typedef struct report {
    const arguments *a;
    weft_profile_table *table;
    const weft_profile_row **rows; /* [n], the longest first */
    size_t n;
    weft_profile_totals total;
    weft_peaks peaks;
    double measured_seconds; /* around the runs, by this program */
} report;

static double row_seconds(const weft_profile_row *row)
{
    return row->compute_seconds + row->waiting_seconds;
}

/* The longest first; equal ones in the order of the schedule. */
static int compare_rows(const void *one, const void *other)
{
    const weft_profile_row *a = *(const weft_profile_row *const *)one,
                           *b = *(const weft_profile_row *const *)other;
    const double x = row_seconds(a), y = row_seconds(b);
    return x > y ? -1 : x < y ? 1 : (a > b) - (a < b);
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* Share of the roofline: the time that all threads would need at the peaks over their actual time.
 */
static double roofline(const report *r, double roofline_seconds, double compute_seconds)
{
    return ratio(roofline_seconds * r->total.threads, compute_seconds);
}

static int print_text(const report *r, const weft_profile *profile)
{
    weft_error error = {0};
    const weft_profile_print_options o = {.by = r->a->by,
                                          .depth = (int)r->a->depth,
                                          .peaks = &r->peaks,
                                          .width = tool_width(),
                                          .max_rows = (size_t)r->a->rows};
    if (weft_profile_print(profile, &o, stdout, &error) != WEFT_OK) return tool_fail(&error);
    printf("\n%zu runs on %d threads took %.3f ms each, by the clock; the rows are\n"
           "%.2f %% of it. Peaks measured on these threads: %.1f GFLOP/s in matrix\n"
           "products, %.1f GB/s of memory.\n",
           r->total.runs, r->total.threads, 1e3 * r->measured_seconds / (double)r->total.runs,
           100 * ratio(r->total.thread_seconds, r->measured_seconds * r->total.threads),
           1e-9 * r->peaks.flops_per_second, 1e-9 * r->peaks.bytes_per_second);
    return EXIT_GOOD;
}

static cJSON *row_json(const report *r, const weft_profile_row *row)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "name", row->name);
    if (row->shape[0]) {
        cJSON_AddStringToObject(item, "op", row->op);
        cJSON_AddStringToObject(item, "scope", row->scope);
        cJSON_AddStringToObject(item, "shape", row->shape);
    }
    cJSON_AddNumberToObject(item, "nodes", (double)row->nodes);
    cJSON_AddNumberToObject(item, "calls", (double)row->calls);
    cJSON_AddNumberToObject(item, "compute_seconds", row->compute_seconds);
    cJSON_AddNumberToObject(item, "waiting_seconds", row->waiting_seconds);
    cJSON_AddNumberToObject(item, "fraction", ratio(row_seconds(row), r->total.thread_seconds));
    cJSON_AddNumberToObject(item, "flops", row->flops);
    cJSON_AddNumberToObject(item, "bytes", row->bytes);
    cJSON_AddNumberToObject(item, "roofline",
                            roofline(r, row->roofline_seconds, row->compute_seconds));
    return item;
}

static int print_json(const report *r)
{
    cJSON *json = cJSON_CreateObject(), *rows;
    cJSON_AddStringToObject(json, "model", tool_model_name(&r->a->model));
    cJSON_AddBoolToObject(json, "train", r->a->train);
    cJSON_AddStringToObject(json, "by", r->a->by_name);
    cJSON_AddNumberToObject(json, "runs", (double)r->total.runs);
    cJSON_AddNumberToObject(json, "threads", r->total.threads);
    cJSON_AddNumberToObject(json, "measured_seconds", r->measured_seconds);
    cJSON_AddNumberToObject(json, "thread_seconds", r->total.thread_seconds);
    cJSON_AddNumberToObject(json, "compute_seconds", r->total.compute_seconds);
    cJSON_AddNumberToObject(json, "waiting_seconds", r->total.waiting_seconds);
    cJSON_AddNumberToObject(json, "start_seconds", r->total.start_seconds);
    cJSON_AddNumberToObject(json, "peak_flops_per_second", r->peaks.flops_per_second);
    cJSON_AddNumberToObject(json, "peak_bytes_per_second", r->peaks.bytes_per_second);
    rows = cJSON_AddArrayToObject(json, "rows");
    for (size_t i = 0; i < r->n; i++) cJSON_AddItemToArray(rows, row_json(r, r->rows[i]));
    return tool_print_json(json);
}

static int write_trace(const weft_profile *profile, const char *path)
{
    weft_error error = {0};
    file_writer writer;
    FILE *file = NULL;
    if (!weft__file_begin_stream(&writer, path))
        return tool_fail_text(path, "cannot be written: %s", strerror(errno));
    const int descriptor = weft__os_duplicate(writer.descriptor);
    if (descriptor >= 0) file = fdopen(descriptor, "wb");
    if (!file) weft_error_set(&error, WEFT_IO, path, "cannot be written: %s", strerror(errno));
    if (!file && descriptor >= 0) weft__os_close(descriptor);
    if (file) weft_profile_write_trace(profile, file, &error);
    if (file && fclose(file) != 0)
        weft_error_set(&error, WEFT_IO, path, "cannot be written: %s", strerror(errno));
    if (error.status != WEFT_OK) {
        weft__file_abandon(&writer);
        return tool_fail_text(path, "%s", error.message);
    }
    if (weft__file_commit(&writer)) return EXIT_GOOD;
    return tool_fail_text(path, "cannot be written: %s", strerror(errno));
}

static weft_status sort_rows(report *r, weft_error *error)
{
    const weft_profile_row *rows = weft_profile_table_rows(r->table, &r->n);
    r->rows = calloc(r->n + 1, sizeof *r->rows);
    if (!r->rows) return weft_error_set(error, WEFT_NO_MEMORY, "profile", "out of memory");
    for (size_t i = 0; i < r->n; i++) r->rows[i] = &rows[i];
    qsort(r->rows, r->n, sizeof *r->rows, compare_rows);
    return WEFT_OK;
}

/* Measures the peaks, then runs. The caller frees the rows in *r. */
static weft_status measure(trial *t, report *r, weft_error *error)
{
    const arguments *a = r->a;
    long traced = !a->trace ? 0 : a->runs < MAX_TRACED ? a->runs : MAX_TRACED;
    weft_status status = trial_peaks(t, (int)a->threads, &r->peaks, error);
    if (status == WEFT_OK) status = trial_profile(t, a->runs, traced, &r->measured_seconds, error);
    if (status != WEFT_OK) return status;
    const weft_profile *profile = weft_profile_of(t->session);
    r->total = weft_profile_totals_of(profile);
    r->table = weft_profile_table_new(profile, a->by, (int)a->depth, &r->peaks, error);
    return r->table ? sort_rows(r, error) : error->status;
}

int cmd_profile(int argc, char **argv)
{
    static const char *const names[] = {"node", "op", "scope"};
    arguments a = {.runs = 10, .by = WEFT_PROFILE_BY_OP};
    tool_parse(&command, argc, argv, &a);
    a.by_name = names[a.by];
    a.model.onnx.out = a.trace;
    if (a.pass) {
        const profile_request request = {a.train, a.json, a.runs, a.threads,
                                         a.depth, a.rows, a.by,   a.by_name};
        return profile_before_after(&a.model, &request, a.pass);
    }
    weft_error error = {0};
    report r = {.a = &a};
    trial t;
    if (trial_open(&t, &a.model, a.train, (int)a.threads, &error) != WEFT_OK)
        return tool_fail(&error);
    int status = EXIT_GOOD;
    if (measure(&t, &r, &error) != WEFT_OK)
        status = tool_fail(&error);
    else if (a.trace)
        status = write_trace(weft_profile_of(t.session), a.trace);
    if (status == EXIT_GOOD)
        status = a.json ? print_json(&r) : print_text(&r, weft_profile_of(t.session));
    free(r.rows);
    weft_profile_table_free(r.table);
    trial_close(&t);
    return status;
}
