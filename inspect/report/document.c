/* Documents of reports, their subjects, and what programs add to them. */
#include "parts.h"

#include "json/tree.h"
#include "machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Checks ---- */

static weft_status fail(weft_error *error, const char *message)
{
    return weft_error_set(error, WEFT_BAD_ARGUMENT, "report", "%s", message);
}

weft_status weft__report_no_memory(weft_error *error)
{
    return weft_error_set(error, WEFT_NO_MEMORY, "report", "out of memory");
}

weft_status weft__report_check(const weft_report *report, weft_error *error)
{
    if (!report) return fail(error, "the report is NULL");
    return report->maker.no_memory ? weft__report_no_memory(error) : WEFT_OK;
}

cJSON *weft__report_subjects(const weft_report *report)
{
    return cJSON_GetObjectItemCaseSensitive(report->document, "subjects");
}

weft_status weft__report_subject(const weft_report *report, cJSON **subject, weft_error *error)
{
    const weft_status status = weft__report_check(report, error);
    if (status != WEFT_OK) return status;
    const cJSON *subjects = weft__report_subjects(report);
    *subject = cJSON_GetArrayItem(subjects, cJSON_GetArraySize(subjects) - 1);
    return *subject ? WEFT_OK : fail(error, "has no subject yet");
}

/* ---- Documents ---- */

static weft_status fill(weft_report *report, const char *title, bool compare, weft_error *error)
{
    json_maker *m = &report->maker;
    cJSON *json = report->document = cJSON_CreateObject();
    json_add_text(m, json, "format", REPORT_FORMAT);
    json_add_text(m, json, "weft", weft_version());
    json_add_text(m, json, "title", title);
    cJSON *machine = json_add_object(m, json, "machine");
    json_add_array(m, json, "subjects");
    if (compare) json_add_bool(m, json, "compare", true);
    const weft_status status = weft__report_check(report, error);
    return status == WEFT_OK ? weft__add_machine(machine, error) : status;
}

weft_report *weft_report_new(const char *title, const weft_report_options *options,
                             weft_error *error)
{
    weft_error_clear(error);
    if (!title) {
        fail(error, "the title is NULL");
        return NULL;
    }
    weft_report *report = calloc(1, sizeof *report);
    if (!report)
        weft__report_no_memory(error);
    else if (fill(report, title, options && options->compare, error) == WEFT_OK)
        return report;
    weft_report_free(report);
    return NULL;
}

void weft_report_free(weft_report *report)
{
    if (!report) return;
    cJSON_Delete(report->document);
    free(report);
}

weft_status weft_report_write_json(const weft_report *report, FILE *file, weft_error *error)
{
    weft_error_clear(error);
    const weft_status status = weft__report_check(report, error);
    if (status != WEFT_OK) return status;
    if (!file) return fail(error, "the file is NULL");
    char *text = weft__json_print(report->document, false);
    if (!text) return weft__report_no_memory(error);
    fprintf(file, "%s\n", text);
    cJSON_free(text);
    if (fflush(file) != 0 || ferror(file))
        return weft_error_set(error, WEFT_IO, "report", "cannot be written: %s", strerror(errno));
    return WEFT_OK;
}

/* ---- Subjects ---- */

weft_status weft_report_add_subject(weft_report *report, const weft_report_subject *subject,
                                    weft_error *error)
{
    static const char *const kinds[] = {
        [WEFT_REPORT_MODEL] = "model", [WEFT_REPORT_ONNX] = "onnx", [WEFT_REPORT_RUN] = "run"};
    weft_error_clear(error);
    const weft_status status = weft__report_check(report, error);
    if (status != WEFT_OK) return status;
    if (!subject || !subject->name) return fail(error, "the subject or its name is NULL");
    if ((unsigned)subject->kind > WEFT_REPORT_RUN) return fail(error, "invalid kind of subject");
    json_maker *m = &report->maker;
    cJSON *json = json_add_object(m, weft__report_subjects(report), NULL);
    json_add_text(m, json, "name", subject->name);
    json_add_text(m, json, "kind", kinds[subject->kind]);
    json_add_text(m, json, "command", subject->command ? subject->command : "");
    json_add_bool(m, json, "train", subject->train);
    return weft__report_check(report, error);
}

/* ---- Members of programs ---- */

/* Adds an item, which the report owns then, whether that fails or not. */
static weft_status add_item(weft_report *report, cJSON *subject, const char *name, cJSON *item,
                            weft_error *error)
{
    const bool of_run = !strncmp(name, "run.", 4);
    const char *key = of_run ? name + 4 : name;
    cJSON *to = of_run ? cJSON_GetObjectItemCaseSensitive(subject, "run") : subject;
    if (!to || cJSON_GetObjectItemCaseSensitive(to, key)) {
        cJSON_Delete(item);
        return weft_error_set(error, WEFT_BAD_ARGUMENT, name,
                              to ? "the subject has this member already"
                                 : "the subject has no run yet");
    }
    weft__json_add(&report->maker, to, key, item);
    weft_status status = weft__report_check(report, error);
    if (status != WEFT_OK) return status;
    const report_check check = {name, WEFT_BAD_ARGUMENT};
    const int index = cJSON_GetArraySize(weft__report_subjects(report)) - 1;
    status = weft__report_check_subject(&check, subject, index, error);
    if (status != WEFT_OK) cJSON_DeleteItemFromObjectCaseSensitive(to, key);
    return status;
}

weft_status weft_report_add_json(weft_report *report, const char *name, const char *text,
                                 weft_error *error)
{
    cJSON *subject;
    json_failure why;
    weft_error_clear(error);
    const weft_status status = weft__report_subject(report, &subject, error);
    if (status != WEFT_OK) return status;
    if (!name || !text) return fail(error, "the name or the text is NULL");
    cJSON *item = weft__json_parse(text, strlen(text), &why);
    if (item) return add_item(report, subject, name, item, error);
    if (why.no_memory) return weft__report_no_memory(error);
    return weft_error_set(error, WEFT_BAD_ARGUMENT, name, "is not JSON at byte %zu", why.position);
}
