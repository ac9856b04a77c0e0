/* Documents that were written before. */
#include "parts.h"

#include "base/file.h"
#include "json/tree.h"

#include <stdlib.h>

weft_report *weft_report_load(const char *path, weft_error *error)
{
    size_t bytes;
    json_failure why;
    weft_error_clear(error);
    if (!path) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "report", "the path is NULL");
        return NULL;
    }
    char *text = weft__file_read(path, &bytes, error);
    if (!text) return NULL;
    weft_report *report = calloc(1, sizeof *report);
    if (report) report->document = weft__json_parse(text, bytes, &why);
    free(text);
    const report_check check = {path, WEFT_BAD_FILE};
    if (!report || (!report->document && why.no_memory))
        weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    else if (!report->document)
        weft_error_set(error, WEFT_BAD_FILE, path, "is not JSON");
    else if (weft__report_check_document(&check, report->document, error) == WEFT_OK)
        return report;
    weft_report_free(report);
    return NULL;
}

weft_status weft_report_add_saved(weft_report *report, const char *path, weft_error *error)
{
    weft_error_clear(error);
    weft_status status = weft__report_check(report, error);
    if (status != WEFT_OK) return status;
    weft_error why = WEFT_NO_ERROR;
    weft_report *saved = weft_report_load(path, &why);
    if (!saved) return weft_error_copy(error, &why);
    cJSON *from = weft__report_subjects(saved);
    if (cJSON_GetArraySize(from) == 1) {
        cJSON *subject = cJSON_DetachItemFromArray(from, 0);
        cJSON *machine = cJSON_DetachItemFromObjectCaseSensitive(saved->document, "machine");
        if (machine) weft__json_add(&report->maker, subject, "machine", machine);
        weft__json_add(&report->maker, weft__report_subjects(report), NULL, subject);
        status = weft__report_check(report, error);
    } else {
        status = weft_error_set(error, WEFT_BAD_ARGUMENT, path,
                                "has %d subjects: a comparison needs a document of one",
                                cJSON_GetArraySize(from));
    }
    weft_report_free(saved);
    return status;
}
