/* --before-after of weft plan and weft profile. */
#include "commands/before_after.h"

#include "plan_facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The change in percent, or "" if there is none or `without` is 0. */
static void print_change(const char *name, int width, double without, double with, int decimals)
{
    char change[32] = "";
    if (without != with && without != 0)
        snprintf(change, sizeof change, "%+.1f %%", 100 * (with - without) / without);
    printf("%-*s %16.*f %16.*f", width, name, decimals, without, decimals, with);
    printf(change[0] ? " %10s\n" : "%s\n", change);
}

static void print_header(const char *name, int width)
{
    printf("%-*s %16s %16s %10s\n", width, name, "without", "with", "change");
}

/* ---- The plan ---- */

int plan_before_after(const model_args *model, bool train, const char *pass, bool json)
{
    plan_fact facts[2][PLAN_FACTS];
    weft_error error = {0};
    built_model m;
    if (tool_build_args(model, train, &m, &error) != WEFT_OK) return tool_fail(&error);
    for (int i = 0; i < 2; i++) {
        m.plan.skip = i == 0 ? pass : NULL;
        weft_plan *plan = tool_plan(&m, &error);
        if (!plan) {
            tool_free_model(&m);
            return tool_fail(&error);
        }
        const weft_plan_stats stats = weft_plan_stats_of(plan);
        weft__plan_facts(&stats, facts[i]);
        weft_plan_free(plan);
    }
    tool_free_model(&m);
    if (json) {
        cJSON *document = cJSON_CreateObject();
        cJSON_AddStringToObject(document, "pass", pass);
        for (int i = 0; i < 2; i++) {
            cJSON *side = cJSON_AddObjectToObject(document, i == 0 ? "without" : "with");
            for (size_t j = 0; j < PLAN_FACTS; j++)
                cJSON_AddNumberToObject(side, facts[i][j].name, facts[i][j].value);
        }
        return tool_print_json(document);
    }
    print_header(pass, 18);
    for (size_t j = 0; j < PLAN_FACTS; j++) {
        const double without = facts[0][j].value, with = facts[1][j].value;
        const bool whole = without == floor(without) && with == floor(with);
        print_change(facts[0][j].name, 18, without, with, whole ? 0 : 3);
    }
    return EXIT_GOOD;
}

/* ---- The times ---- */

/* A row of either profile, or of both. */
typedef struct pair {
    const char *name;
    double seconds[2]; /* of a run: without the pass, with it */
} pair;

typedef struct both {
    trial trials[2];
    int open;
    weft_profile_table *tables[2];
    const weft_profile_row *rows[2];
    size_t n[2];
    double total[2]; /* seconds of a run */
    int threads;
    pair *pairs;
    size_t n_pairs;
} both;

static weft_status measure(both *b, const model_args *model, const profile_request *r,
                           const char *pass, weft_error *error)
{
    for (; b->open < 2; b->open++) {
        model_args args = *model;
        args.plan.skip = b->open == 0 ? pass : NULL;
        if (trial_open(&b->trials[b->open], &args, r->train, (int)r->threads, error) != WEFT_OK)
            return error->status;
    }
    for (int i = 0; i < 2; i++) {
        double seconds;
        if (trial_profile(&b->trials[i], r->runs, 0, &seconds, error) != WEFT_OK)
            return error->status;
        const weft_profile *profile = weft_profile_of(b->trials[i].session);
        b->tables[i] = weft_profile_table_new(profile, r->by, (int)r->depth, NULL, error);
        b->rows[i] = weft_profile_table_rows(b->tables[i], &b->n[i]);
        if (!b->tables[i]) return error->status;
        b->threads = weft_profile_totals_of(profile).threads;
        b->total[i] = seconds / (double)r->runs;
    }
    return WEFT_OK;
}

/* The slowest first, in whichever profile that is; equal ones by name. */
static int compare_pairs(const void *x, const void *y)
{
    const pair *a = x, *b = y;
    const double p = a->seconds[0] > a->seconds[1] ? a->seconds[0] : a->seconds[1];
    const double q = b->seconds[0] > b->seconds[1] ? b->seconds[0] : b->seconds[1];
    return p > q ? -1 : p < q ? 1 : strcmp(a->name, b->name);
}

static int compare_names(const void *x, const void *y)
{
    return strcmp(((const pair *)x)->name, ((const pair *)y)->name);
}

/* Rows of one name become one pair. */
static weft_status join(both *b, const profile_request *r, weft_error *error)
{
    const double share = 1 / ((double)r->runs * b->threads);
    b->pairs = calloc(b->n[0] + b->n[1] + 1, sizeof *b->pairs);
    if (!b->pairs) return weft_error_set(error, WEFT_NO_MEMORY, "profile", "no memory for rows");
    size_t n = 0, kept = 0;
    for (int i = 0; i < 2; i++)
        for (size_t j = 0; j < b->n[i]; j++, n++) {
            const weft_profile_row *row = &b->rows[i][j];
            b->pairs[n].name = row->name;
            b->pairs[n].seconds[i] = share * (row->compute_seconds + row->waiting_seconds);
        }
    qsort(b->pairs, n, sizeof *b->pairs, compare_names);
    for (size_t j = 0; j < n; j++) {
        pair *last = kept ? &b->pairs[kept - 1] : NULL;
        if (last && !strcmp(last->name, b->pairs[j].name))
            for (int i = 0; i < 2; i++) last->seconds[i] += b->pairs[j].seconds[i];
        else
            b->pairs[kept++] = b->pairs[j];
    }
    b->n_pairs = kept;
    qsort(b->pairs, kept, sizeof *b->pairs, compare_pairs);
    return WEFT_OK;
}

static int print_json(const both *b, const model_args *model, const profile_request *r,
                      const char *pass)
{
    cJSON *json = cJSON_CreateObject(), *rows;
    cJSON_AddStringToObject(json, "model", tool_model_name(model));
    cJSON_AddStringToObject(json, "pass", pass);
    cJSON_AddBoolToObject(json, "train", r->train);
    cJSON_AddStringToObject(json, "by", r->by_name);
    cJSON_AddNumberToObject(json, "runs", (double)r->runs);
    cJSON_AddNumberToObject(json, "threads", b->threads);
    cJSON_AddNumberToObject(json, "without_seconds", b->total[0]);
    cJSON_AddNumberToObject(json, "with_seconds", b->total[1]);
    rows = cJSON_AddArrayToObject(json, "rows");
    for (size_t i = 0; i < b->n_pairs; i++) {
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "name", b->pairs[i].name);
        cJSON_AddNumberToObject(row, "without_seconds", b->pairs[i].seconds[0]);
        cJSON_AddNumberToObject(row, "with_seconds", b->pairs[i].seconds[1]);
        cJSON_AddItemToArray(rows, row);
    }
    return tool_print_json(json);
}

static void print_text(const both *b, const profile_request *r, const char *pass)
{
    char title[64];
    double rest[2] = {b->total[0], b->total[1]};
    const size_t shown = r->rows && (size_t)r->rows < b->n_pairs ? (size_t)r->rows : b->n_pairs;
    size_t width = 18;
    for (size_t i = 0; i < shown; i++) {
        const size_t length = strlen(b->pairs[i].name);
        if (length > width) width = length;
    }
    snprintf(title, sizeof title, "%s, ms of a run", pass);
    if (strlen(title) > width) width = strlen(title);
    print_header(title, (int)width);
    for (size_t i = 0; i < shown; i++) {
        const pair *p = &b->pairs[i];
        print_change(p->name, (int)width, 1e3 * p->seconds[0], 1e3 * p->seconds[1], 3);
        for (int j = 0; j < 2; j++) rest[j] -= p->seconds[j];
    }
    print_change("(the rest)", (int)width, 1e3 * rest[0], 1e3 * rest[1], 3);
    print_change("total", (int)width, 1e3 * b->total[0], 1e3 * b->total[1], 3);
}

int profile_before_after(const model_args *model, const profile_request *request, const char *pass)
{
    both b = {0};
    weft_error error = {0};
    int status = EXIT_GOOD;
    if (measure(&b, model, request, pass, &error) != WEFT_OK ||
        join(&b, request, &error) != WEFT_OK)
        status = tool_fail(&error);
    else if (request->json)
        status = print_json(&b, model, request, pass);
    else
        print_text(&b, request, pass);
    free(b.pairs);
    for (int i = 0; i < 2; i++) weft_profile_table_free(b.tables[i]);
    while (b.open > 0) trial_close(&b.trials[--b.open]);
    return status;
}
