/* Reports: what the document says of a plan, its times and a run, and what is refused. The case
 * report_data (tests/tools) checks that the facts of documents agree. */
#include "profile_bench.h"

#include <weft/report.h>

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const weft_report_subject subject = {.name = "small", .command = "make", .train = true};

/* A report with a subject that has nothing yet. */
static weft_report *new_report(void)
{
    weft_error error = WEFT_NO_ERROR;
    weft_report *r = weft_report_new("title", NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r);
    CU_ASSERT_EQUAL(weft_report_add_subject(r, &subject, &error), WEFT_OK);
    return r;
}

/* The text of a report, which the caller frees. */
static char *text_of(const weft_report *r)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(weft_report_write_json(r, file, NULL), WEFT_OK);
    fclose(file);
    return text;
}

static cJSON *tree_of(const weft_report *r)
{
    char *text = text_of(r);
    cJSON *json = cJSON_Parse(text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(json);
    free(text);
    return json;
}

static const cJSON *get(const cJSON *json, const char *name)
{
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(json, name);
    if (!found) printf("no member %s\n", name);
    CU_ASSERT_PTR_NOT_NULL_FATAL(found);
    return found;
}

static double number(const cJSON *json, const char *name)
{
    return cJSON_GetNumberValue(get(json, name));
}

static const cJSON *subject_at(const cJSON *json, int index)
{
    const cJSON *found = cJSON_GetArrayItem(get(json, "subjects"), index);
    CU_ASSERT_PTR_NOT_NULL_FATAL(found);
    return found;
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    fputs(text, file);
    fclose(file);
}

/* Removes a folder with files of these names. */
static void remove_folder(const char *folder, const char *const *names, size_t n)
{
    char path[256];
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
    CU_ASSERT_EQUAL(rmdir(folder), 0);
}

/* ---- Plans ---- */

static void test_plan(void)
{
    bench b = bench_open(2);
    weft_report *r = new_report();
    const weft_plan_stats stats = weft_plan_stats_of(b.plan);
    CU_ASSERT_EQUAL(weft_report_add_plan(r, b.plan, NULL, NULL), WEFT_OK);
    cJSON *json = tree_of(r);
    const cJSON *of = subject_at(json, 0), *summary = get(of, "summary");
    CU_ASSERT_STRING_EQUAL(cJSON_GetStringValue(get(json, "title")), "title");
    CU_ASSERT_STRING_EQUAL(cJSON_GetStringValue(get(of, "kind")), "model");
    CU_ASSERT_TRUE(cJSON_IsTrue(get(of, "train")));
    CU_ASSERT_EQUAL((size_t)cJSON_GetArraySize(get(of, "nodes")), stats.nodes);
    CU_ASSERT_EQUAL(number(summary, "intervals"), (double)stats.intervals);
    CU_ASSERT_EQUAL(number(summary, "arena_bytes"), (double)stats.arena_bytes);
    CU_ASSERT_PTR_NULL(cJSON_GetObjectItem(of, "timeline"));
    CU_ASSERT_PTR_NULL(cJSON_GetObjectItem(summary, "seconds"));
    cJSON_Delete(json);
    weft_report_free(r);
    bench_close(&b);
}

/* Of several recorded runs the timeline has the last, from 0 on. */
static void test_times(void)
{
    bench b = bench_open(2);
    weft_report *r = new_report();
    const weft_peaks peaks = {.flops_per_second = 1e9, .bytes_per_second = 1e9};
    const weft_report_plan_options o = {
        .profile = profiled_runs(&b, 2), .peaks = &peaks, .seconds = 10};
    CU_ASSERT_EQUAL(weft_report_add_plan(r, b.plan, &o, NULL), WEFT_OK);
    cJSON *json = tree_of(r);
    const cJSON *of = subject_at(json, 0), *summary = get(of, "summary"), *event, *node;
    const cJSON *timeline = get(of, "timeline");
    double sum = 0, first = INFINITY, last = 0;
    CU_ASSERT_EQUAL(number(summary, "runs"), RUNS);
    CU_ASSERT_DOUBLE_EQUAL(number(summary, "seconds"), 10.0 / RUNS, 1e-12);
    CU_ASSERT_EQUAL(number(summary, "peak_flops"), 1e9);
    cJSON_ArrayForEach(node, get(of, "nodes"))
    {
        const cJSON *seconds = cJSON_GetObjectItem(node, "seconds");
        if (seconds) sum += seconds->valuedouble;
    }
    CU_ASSERT_DOUBLE_EQUAL(sum, number(summary, "compute_seconds"), 1e-9);
    cJSON_ArrayForEach(event, get(timeline, "events"))
    {
        const double begin = cJSON_GetArrayItem(event, 2)->valuedouble;
        first = fmin(first, begin);
        last = fmax(last, begin + cJSON_GetArrayItem(event, 3)->valuedouble);
    }
    CU_ASSERT_EQUAL(first, 0);
    CU_ASSERT_DOUBLE_EQUAL(1e-6 * last, number(timeline, "seconds"), 1e-9);
    CU_ASSERT_EQUAL((size_t)cJSON_GetArraySize(get(of, "interval_seconds")),
                    weft_plan_stats_of(b.plan).intervals);
    cJSON_Delete(json);
    weft_report_free(r);
    bench_close(&b);
}

/* Without recorded runs there is no timeline, without peaks no roofline; the time is the profile's.
 */
static void test_times_alone(void)
{
    bench b = bench_open(1);
    weft_report *r = new_report();
    const weft_report_plan_options o = {.profile = profiled_runs(&b, 0)};
    CU_ASSERT_EQUAL(weft_report_add_plan(r, b.plan, &o, NULL), WEFT_OK);
    cJSON *json = tree_of(r);
    const cJSON *of = subject_at(json, 0), *summary = get(of, "summary");
    CU_ASSERT_DOUBLE_EQUAL(number(summary, "seconds"),
                           weft_profile_totals_of(o.profile).wall_seconds / RUNS, 1e-12);
    CU_ASSERT_PTR_NULL(cJSON_GetObjectItem(of, "timeline"));
    CU_ASSERT_PTR_NULL(cJSON_GetObjectItem(of, "interval_seconds"));
    CU_ASSERT_PTR_NULL(cJSON_GetObjectItem(summary, "peak_flops"));
    cJSON_Delete(json);
    weft_report_free(r);
    bench_close(&b);
}

static void test_bad_plans(void)
{
    bench a = bench_open(1), b = bench_open(1);
    weft_error error = WEFT_NO_ERROR;
    weft_report *r = weft_report_new("title", NULL, NULL);
    const weft_report_subject unnamed = {.name = NULL}, odd = {"x", .kind = (weft_report_kind)9};
    CU_ASSERT_EQUAL(weft_report_add_plan(r, a.plan, NULL, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.message, "has no subject yet");
    CU_ASSERT_EQUAL(weft_report_add_subject(r, &unnamed, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_report_add_subject(r, &odd, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_report_add_subject(r, &subject, NULL), WEFT_OK);
    weft_report_plan_options o = {.profile = profiled_runs(&b, 0)};
    CU_ASSERT_EQUAL(weft_report_add_plan(r, a.plan, &o, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.message, "the profile is of another plan");
    weft_session_profile(a.session, true, NULL, NULL);
    o.profile = weft_profile_of(a.session);
    CU_ASSERT_EQUAL(weft_report_add_plan(r, a.plan, &o, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.message, "the profile has no run");
    CU_ASSERT_EQUAL(weft_report_add_plan(r, a.plan, NULL, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_report_add_plan(r, a.plan, NULL, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.message, "the subject has a plan already");
    weft_report_free(r);
    bench_close(&a);
    bench_close(&b);
}

/* ---- Files ---- */

static void test_saved(void)
{
    char path[] = "/tmp/weft-report-XXXXXX";
    weft_error error = WEFT_NO_ERROR;
    bench b = bench_open(1);
    weft_report *r = new_report();
    CU_ASSERT_EQUAL(weft_report_add_plan(r, b.plan, NULL, NULL), WEFT_OK);
    FILE *file = fdopen(mkstemp(path), "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(weft_report_write_json(r, file, &error), WEFT_OK);
    fclose(file);
    weft_report *loaded = weft_report_load(path, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(loaded);
    char *one = text_of(r), *two = text_of(loaded);
    CU_ASSERT_STRING_EQUAL(one, two);
    weft_report *both = weft_report_new("two", &(weft_report_options){.compare = true}, NULL);
    CU_ASSERT_EQUAL(weft_report_add_saved(both, path, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_report_add_subject(both, &subject, &error), WEFT_OK);
    cJSON *json = tree_of(both);
    CU_ASSERT_TRUE(cJSON_IsTrue(get(json, "compare")));
    CU_ASSERT_TRUE(cJSON_Compare(get(subject_at(json, 0), "machine"), get(json, "machine"), true));
    cJSON_Delete(json);
    file = fopen(path, "w");
    CU_ASSERT_EQUAL(weft_report_write_json(both, file, NULL), WEFT_OK);
    fclose(file);
    CU_ASSERT_EQUAL(weft_report_add_saved(r, path, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.message, "has 2 subjects: a comparison needs a document of one");
    remove(path);
    CU_ASSERT_EQUAL(weft_report_add_saved(r, path, &error), WEFT_NOT_FOUND);
    CU_ASSERT_PTR_NULL(weft_report_load(path, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_NOT_FOUND);
    free(one);
    free(two);
    weft_report_free(r);
    weft_report_free(loaded);
    weft_report_free(both);
    bench_close(&b);
}

static void test_unwritable(void)
{
    weft_error error = WEFT_NO_ERROR;
    weft_report *r = new_report();
    FILE *full = fopen("/dev/full", "w"), *nothing = fopen("/dev/null", "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(nothing);
    if (full) {
        CU_ASSERT_EQUAL(weft_report_write_json(r, full, &error), WEFT_IO);
        fclose(full);
    }
    const weft_status page = weft_report_write_page(r, nothing, &error);
    CU_ASSERT_EQUAL(page, weft_report_has_page() ? WEFT_OK : WEFT_NOT_FOUND);
    CU_ASSERT_EQUAL(weft_report_write_json(r, NULL, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_report_write_page(r, NULL, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_report_write_json(NULL, nothing, &error), WEFT_BAD_ARGUMENT);
    fclose(nothing);
    weft_report_free(r);
    CU_ASSERT_PTR_NULL(weft_report_new(NULL, NULL, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
}

/* ---- Runs and members of programs ---- */

static void test_run(void)
{
    static const char *const files[] = {"metrics.jsonl", "recipe.json"};
    char folder[] = "/tmp/weft-run-XXXXXX";
    weft_error error = WEFT_NO_ERROR;
    weft_report *r = new_report();
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    CU_ASSERT_EQUAL(weft_report_add_run(r, folder, &error), WEFT_NOT_FOUND);
    write_file(folder, "metrics.jsonl", "no JSON\n");
    CU_ASSERT_EQUAL(weft_report_add_run(r, folder, &error), WEFT_BAD_FILE);
    CU_ASSERT_STRING_EQUAL(error.message, "line 1 is not JSON");
    write_file(folder, "metrics.jsonl", "{\"step\":1,\"loss\":2}\n{\"step\":2,\"lo");
    write_file(folder, "recipe.json", "{");
    CU_ASSERT_EQUAL(weft_report_add_run(r, folder, &error), WEFT_BAD_FILE);
    write_file(folder, "recipe.json", "{\"model\": \"gpt\"}");
    CU_ASSERT_EQUAL(weft_report_add_run(r, folder, &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_report_add_run(r, folder, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_report_add_json(r, "run.updates", "1", &error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_report_add_json(r, "run.updates", "1", &error), WEFT_BAD_ARGUMENT);
    cJSON *json = tree_of(r);
    const cJSON *run = get(subject_at(json, 0), "run");
    CU_ASSERT_EQUAL(cJSON_GetArraySize(get(run, "log")), 1);
    CU_ASSERT_TRUE(cJSON_IsFalse(get(run, "running")));
    CU_ASSERT_EQUAL(number(run, "updates"), 1);
    cJSON_Delete(json);
    weft_report_free(r);
    remove_folder(folder, files, 2);
}

static void test_members(void)
{
    weft_error error = WEFT_NO_ERROR;
    weft_report *r = new_report();
    char *before = text_of(r);
    CU_ASSERT_EQUAL(weft_report_add_json(r, "own", "{\"a\": ", &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_report_add_json(r, "name", "\"other\"", &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.message, "the subject has this member already");
    CU_ASSERT_EQUAL(weft_report_add_json(r, "run.updates", "1", &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.message, "the subject has no run yet");
    CU_ASSERT_EQUAL(weft_report_add_json(r, "batch", "{\"rows\": 1}", &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.message, "subject 1: the batch has no \"source_len\"");
    char *after = text_of(r);
    CU_ASSERT_STRING_EQUAL(before, after);
    CU_ASSERT_EQUAL(weft_report_add_json(r, "own", "{\"a\": [1, 2]}", &error), WEFT_OK);
    cJSON *json = tree_of(r);
    CU_ASSERT_EQUAL(cJSON_GetArraySize(get(get(subject_at(json, 0), "own"), "a")), 2);
    cJSON_Delete(json);
    free(before);
    free(after);
    weft_report_free(r);
}

/* ---- Memory ---- */

static const weft_plan *described;

/* Describes the plan and a member, and writes the document. */
static weft_status describe(weft_error *error)
{
    weft_report *r = weft_report_new("title", NULL, error);
    weft_status status = r ? weft_report_add_subject(r, &subject, error) : error->status;
    if (status == WEFT_OK) status = weft_report_add_plan(r, described, NULL, error);
    if (status == WEFT_OK) status = weft_report_add_json(r, "own", "[1, {}]", error);
    FILE *nothing = status == WEFT_OK ? fopen("/dev/null", "w") : NULL;
    if (nothing) status = weft_report_write_json(r, nothing, error);
    if (nothing) fclose(nothing);
    weft_report_free(r);
    return status;
}

/* As malloc, which sets errno: by that a parser that is out of memory is recognised. */
static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory) errno = ENOMEM;
    return memory;
}

/* cJSON allocates through the suite's functions as well, so that each of its allocations fails. */
static void test_memory(void)
{
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2));
    const weft_value y = weft_exp(g, x);
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    described = plan;
    cJSON_InitHooks(&(cJSON_Hooks){allocate, free});
    test_every_allocation_fails(describe, 100);
    cJSON_InitHooks(NULL);
    weft_plan_free(plan);
    weft_graph_free(g);
}

void report_tests(void)
{
    CU_pSuite suite = CU_add_suite("report", NULL, NULL);
    CU_add_test(suite, "a plan", test_plan);
    CU_add_test(suite, "times of the last run", test_times);
    CU_add_test(suite, "times without a trace or peaks", test_times_alone);
    CU_add_test(suite, "plans that are refused", test_bad_plans);
    CU_add_test(suite, "documents that are saved", test_saved);
    CU_add_test(suite, "files that cannot be written", test_unwritable);
    CU_add_test(suite, "a run", test_run);
    CU_add_test(suite, "members of programs", test_members);
    CU_add_test(suite, "every allocation fails", test_memory);
}
