/* Documents of reports, and the page that shows them. */
#include "report.h"

#include <errno.h>
#include <string.h>

cJSON *report_new(const char *title, weft_error *error)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "format", REPORT_FORMAT);
    cJSON_AddStringToObject(json, "weft", WEFT_VERSION);
    cJSON_AddStringToObject(json, "title", title);
    cJSON *machine = cJSON_AddObjectToObject(json, "machine");
    cJSON_AddArrayToObject(json, "subjects");
    if (tool_machine_json(machine, error) == WEFT_OK) return json;
    cJSON_Delete(json);
    return NULL;
}

cJSON *report_add_subject(cJSON *document, const char *name, const char *kind, const char *command)
{
    cJSON *subject = cJSON_CreateObject();
    cJSON_AddStringToObject(subject, "name", name);
    cJSON_AddStringToObject(subject, "kind", kind);
    cJSON_AddStringToObject(subject, "command", command);
    cJSON_AddItemToArray(cJSON_GetObjectItemCaseSensitive(document, "subjects"), subject);
    return subject;
}

cJSON *report_of_run(const char *folder, weft_error *error)
{
    char command[4096];
    cJSON *document = report_new(folder, error);
    if (!document) return NULL;
    snprintf(command, sizeof command, "weft report %s", folder);
    cJSON *subject = report_add_subject(document, folder, "run", command);
    cJSON_AddTrueToObject(subject, "train");
    if (report_add_run(folder, subject, error) == WEFT_OK) return document;
    cJSON_Delete(document);
    return NULL;
}

/* ---- The page ---- */

#ifdef WEFT_HAVE_REPORT

bool report_has_page(weft_error *error)
{
    (void)error;
    return true;
}

extern const char report_page[]; /* the page, embedded by embed.c */

/* The page has its data at this text. */
#define PLACE "@WEFT_DATA@"

/* Writes JSON for inside of a <script>: no "</script>" may end it. All `<` are within strings. */
static void write_escaped(FILE *file, const char *text)
{
    for (const char *end; (end = strchr(text, '<')); text = end + 1) {
        fwrite(text, 1, (size_t)(end - text), file);
        fputs("\\u003c", file);
    }
    fputs(text, file);
}

bool report_write_page(FILE *file, cJSON *document, weft_error *error)
{
    const char *place = strstr(report_page, PLACE);
    char *text = tool_json_text(document, false);
    if (!text) {
        weft_error_set(error, WEFT_NO_MEMORY, "report", "out of memory");
    } else if (!place) {
        weft_error_set(error, WEFT_INTERNAL, "report", "the page has no place for its data");
    } else {
        fwrite(report_page, 1, (size_t)(place - report_page), file);
        write_escaped(file, text);
        fputs(place + strlen(PLACE), file);
        if (fflush(file) != 0 || ferror(file))
            weft_error_set(error, WEFT_IO, "report", "cannot be written: %s", strerror(errno));
    }
    const bool good = text && place && !ferror(file);
    cJSON_free(text);
    return good;
}

#else

bool report_has_page(weft_error *error)
{
    weft_error_set(error, WEFT_NOT_FOUND, "report",
                   "weft was built without the page (meson option report): --json prints its data");
    return false;
}

bool report_write_page(FILE *file, cJSON *document, weft_error *error)
{
    (void)file;
    cJSON_Delete(document);
    return report_has_page(error);
}

#endif
