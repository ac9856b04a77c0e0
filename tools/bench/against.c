/* See against.h. The file may come from anywhere: each member that is used is checked first. */
#include "against.h"

#include "base/file.h"
#include "json/tree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 1024

/* ---- Members ---- */

static const cJSON *member(const cJSON *row, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(row, key);
}

/* "" if it is missing or not a text. */
static const char *text_of(const cJSON *row, const char *key)
{
    const char *text = cJSON_GetStringValue(member(row, key));
    return text ? text : "";
}

/* -1 if it is missing or not a number. */
static double number_of(const cJSON *row, const char *key)
{
    const cJSON *item = member(row, key);
    return cJSON_IsNumber(item) ? item->valuedouble : -1;
}

static bool is_list_of_texts(const cJSON *list)
{
    const cJSON *item;
    if (!cJSON_IsArray(list)) return false;
    cJSON_ArrayForEach(item, list) if (!cJSON_IsString(item)) return false;
    return true;
}

/* ---- Reading ---- */

/* The numbers of a row that are compared, with bounds that keep their products finite. */
static const struct {
    const char *key, *expected;
    double min, max;
} numbers[] = {
    {"min_ms", "a number from 1e-9 to 1e12", 1e-9, 1e12},
    {"gemm_gflops", "a number from 1e-9 to 1e12", 1e-9, 1e12},
    {"arena_bytes", "a number from 0 to 1e18", 0, 1e18},
    {"state_bytes", "a number from 0 to 1e18", 0, 1e18},
    {"workspace_bytes", "a number from 0 to 1e18", 0, 1e18},
};

/* Finds the first member that is missing or wrong; NULL if there is none. *expected is what it
 * should be. */
static const char *wrong_member(const cJSON *row, const char **expected)
{
    *expected = "a text";
    if (!text_of(row, "workload")[0]) return "workload";
    if (member(row, "model") && !text_of(row, "model")[0]) return "model";
    *expected = "a list of texts";
    if (!is_list_of_texts(member(row, "options"))) return "options";
    *expected = "true or false";
    if (!cJSON_IsBool(member(row, "train"))) return "train";
    *expected = TOOL_PRECISIONS;
    if (tool_choice(TOOL_PRECISIONS, text_of(row, "precision")) < 0) return "precision";
    *expected = "a whole number from 1 to 1024";
    const double threads = number_of(row, "threads");
    if (!(threads >= 1 && threads <= MAX_THREADS && threads == floor(threads))) return "threads";
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const double x = number_of(row, numbers[i].key);
        *expected = numbers[i].expected;
        if (!(x >= numbers[i].min && x <= numbers[i].max)) return numbers[i].key;
    }
    return NULL;
}

static weft_status check_rows(const against_file *old, weft_error *error)
{
    const cJSON *row;
    const char *expected;
    size_t i = 0;
    if (!cJSON_IsArray(old->rows) || !old->rows->child)
        return weft_error_set(error, WEFT_BAD_FILE, old->path,
                              "has no workloads; expected the output of `weft bench --json`");
    cJSON_ArrayForEach(row, old->rows)
    {
        const char *wrong = wrong_member(row, &expected);
        if (wrong)
            return weft_error_set(error, WEFT_BAD_FILE, old->path,
                                  "workloads[%zu]: \"%s\" is missing or invalid; expected %s", i,
                                  wrong, expected);
        i++;
    }
    return WEFT_OK;
}

weft_status against_open(against_file *old, const char *path, weft_error *error)
{
    size_t bytes;
    json_failure why;
    *old = (against_file){.path = path};
    char *text = weft__file_read(path, &bytes, error);
    if (!text) return error->status;
    old->json = weft__json_parse(text, bytes, &why);
    free(text);
    if (!old->json && why.no_memory)
        return weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    if (!old->json)
        return weft_error_set(error, WEFT_BAD_FILE, path,
                              "is not JSON, near byte %zu; expected the output of `weft bench "
                              "--json`",
                              why.position);
    old->rows = member(old->json, "workloads");
    return check_rows(old, error);
}

void against_close(against_file *old)
{
    cJSON_Delete(old->json);
    *old = (against_file){.path = NULL};
}

void against_warn(const against_file *old, const cJSON *machine)
{
    static const char *const keys[] = {"processor", "isa", "gemm_f32"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *was = text_of(old->json, keys[i]), *is = text_of(machine, keys[i]);
        if (strcmp(was, is) != 0)
            tool_print_line(stderr,
                            "weft: warning: %s: %s is \"%s\", here \"%s\": times relative to GEMM "
                            "may differ",
                            old->path, keys[i], was, is);
    }
}

/* ---- Finding ---- */

static bool has_text(const cJSON *list, const char *text)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list) if (!strcmp(cJSON_GetStringValue(item), text)) return true;
    return false;
}

/* Whether both have the same texts, in any order. */
static bool same_texts(const cJSON *a, const cJSON *b)
{
    const cJSON *item;
    if (cJSON_GetArraySize(a) != cJSON_GetArraySize(b)) return false;
    cJSON_ArrayForEach(item, a) if (!has_text(b, cJSON_GetStringValue(item))) return false;
    cJSON_ArrayForEach(item, b) if (!has_text(a, cJSON_GetStringValue(item))) return false;
    return true;
}

/* Whether both rows measured the same model; otherwise *why says what the old one measured. */
static bool same_model(const cJSON *old, const cJSON *row, char *why, size_t size)
{
    const cJSON *item, *options = member(old, "options");
    why[0] = '\0';
    if (strcmp(text_of(old, "model"), text_of(row, "model")) != 0) {
        tool_append(why, size, "the model \"%s\"", text_of(old, "model"));
    } else if (!same_texts(options, member(row, "options"))) {
        tool_append(why, size, "%s", options->child ? "the options" : "no options");
        cJSON_ArrayForEach(item, options) tool_append(why, size, " %s", cJSON_GetStringValue(item));
    } else if (cJSON_IsTrue(member(old, "train")) != cJSON_IsTrue(member(row, "train"))) {
        tool_append(why, size, "%s", cJSON_IsTrue(member(old, "train")) ? "--train" : "no --train");
    }
    return !why[0];
}

static against_row read_row(const cJSON *row)
{
    const against_figures figures = {
        .min_ms = number_of(row, "min_ms"),
        .gemm_gflops = number_of(row, "gemm_gflops"),
        .arena_bytes = number_of(row, "arena_bytes"),
        .plan_bytes = number_of(row, "arena_bytes") + number_of(row, "state_bytes") +
                      number_of(row, "workspace_bytes"),
    };
    const int precision = tool_choice(TOOL_PRECISIONS, text_of(row, "precision"));
    return (against_row){.figures = figures,
                         .precision = (weft_precision)precision,
                         .threads = (int)number_of(row, "threads")};
}

weft_status against_find(const against_file *old, const cJSON *row, against_row *found,
                         weft_error *error)
{
    const char *name = text_of(row, "workload");
    char why[512] = "";
    const cJSON *other;
    cJSON_ArrayForEach(other, old->rows)
    {
        if (strcmp(text_of(other, "workload"), name) != 0) continue;
        if (!same_model(other, row, why, sizeof why)) continue;
        *found = read_row(other);
        return WEFT_OK;
    }
    if (!why[0])
        return weft_error_set(error, WEFT_NOT_FOUND, old->path, "did not measure \"%s\"", name);
    return weft_error_set(error, WEFT_BAD_ARGUMENT, old->path, "measured \"%s\" with %s", name,
                          why);
}

/* ---- Comparing ---- */

/* What matrix products would compute in the time of the run. */
static double gflop(const against_figures *f)
{
    return 1e-3 * f->min_ms * f->gemm_gflops;
}

static double growth(double old, double now)
{
    return old > 0 ? now / old - 1 : now > 0 ? 1 : 0;
}

against_result against_compare(const against_figures *old, const against_figures *now, double limit)
{
    const double time = growth(gflop(old), gflop(now));
    return (against_result){.old = *old,
                            .now = *now,
                            .time = time,
                            .arena = growth(old->arena_bytes, now->arena_bytes),
                            .plan = growth(old->plan_bytes, now->plan_bytes),
                            .slower = time > limit};
}

void against_print_head(void)
{
    printf("%-18s %10s %10s %10s %10s %8s %8s %8s\n", "workload", "old ms", "new ms", "old GFLOP",
           "new GFLOP", "change %", "arena %", "plan %");
}

void against_print(const char *name, const against_result *r)
{
    tool_print_line(stdout, "%-18s %10.3f %10.3f %10.4g %10.4g %+8.1f %+8.1f %+8.1f%s", name,
                    r->old.min_ms, r->now.min_ms, gflop(&r->old), gflop(&r->now), 1e2 * r->time,
                    1e2 * r->arena, 1e2 * r->plan, r->slower ? "  slower" : "");
    fflush(stdout);
}

void against_add(cJSON *row, const against_result *r)
{
    cJSON *json = cJSON_AddObjectToObject(row, "against");
    cJSON_AddNumberToObject(json, "min_ms", r->old.min_ms);
    cJSON_AddNumberToObject(json, "gemm_gflops", r->old.gemm_gflops);
    cJSON_AddNumberToObject(json, "arena_bytes", r->old.arena_bytes);
    cJSON_AddNumberToObject(json, "plan_bytes", r->old.plan_bytes);
    cJSON_AddNumberToObject(json, "time_change", r->time);
    cJSON_AddNumberToObject(json, "arena_change", r->arena);
    cJSON_AddNumberToObject(json, "plan_change", r->plan);
    cJSON_AddBoolToObject(json, "slower", r->slower);
}
