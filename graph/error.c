/* Statuses and error records. */
#include "internal.h"

#include <string.h>

const char *weft_status_text(weft_status status)
{
    static const char *const texts[] = {
#define TEXT(name, text) text,
        WEFT_STATUS_MAP(TEXT)
#undef TEXT
    };
    size_t i = (size_t)status;
    return i < sizeof texts / sizeof *texts ? texts[i] : "unknown status";
}

weft_status weft_error_set(weft_error *error, weft_status status, const char *where,
                           const char *format, ...)
{
    if (!error || error->status != WEFT_OK) return status;
    error->status = status;
    snprintf(error->where, sizeof error->where, "%s", where && where[0] ? where : "weft");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return status;
}
