/* The page that shows a report. */
#include "parts.h"

#include "json/tree.h"

#include <errno.h>
#include <string.h>

#ifdef WEFT_HAVE_REPORT

bool weft_report_has_page(void)
{
    return true;
}

extern const char weft__report_page[]; /* the page, written by bundle.py */

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

static weft_status write_page(const char *text, FILE *file, weft_error *error)
{
    const char *place = strstr(weft__report_page, PLACE);
    if (!place)
        return weft_error_set(error, WEFT_INTERNAL, "report", "the page has no place for its data");
    fwrite(weft__report_page, 1, (size_t)(place - weft__report_page), file);
    write_escaped(file, text);
    fputs(place + strlen(PLACE), file);
    if (fflush(file) != 0 || ferror(file))
        return weft_error_set(error, WEFT_IO, "report", "cannot be written: %s", strerror(errno));
    return WEFT_OK;
}

#else

bool weft_report_has_page(void)
{
    return false;
}

static weft_status write_page(const char *text, FILE *file, weft_error *error)
{
    (void)text;
    (void)file;
    return weft_error_set(error, WEFT_NOT_FOUND, "report",
                          "weft was built without the page (meson option report)");
}

#endif

weft_status weft_report_write_page(const weft_report *report, FILE *file, weft_error *error)
{
    weft_error_clear(error);
    weft_status status = weft__report_check(report, error);
    if (status != WEFT_OK) return status;
    if (!file) return weft_error_set(error, WEFT_BAD_ARGUMENT, "report", "the file is NULL");
    char *text = weft__json_print(report->document, false);
    if (!text) return weft__report_no_memory(error);
    status = write_page(text, file, error);
    cJSON_free(text);
    return status;
}
