/* Saved documents. */
#include "report.h"
cJSON *report_load(const char *path, weft_error *error)
{
    (void)path;
    weft_error_set(error, WEFT_NOT_FOUND, path, "TODO");
    return NULL;
}
