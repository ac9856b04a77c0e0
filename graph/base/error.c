/* Statuses and error records. */
#include "text.h"

#include <weft/graph.h>

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
    weft__text_printable(error->where, sizeof error->where, where && where[0] ? where : "weft");
    /* Names from files may contain any bytes; the message stays one printable line. */
    char message[sizeof error->message];
    va_list arguments;
    va_start(arguments, format);
    weft__text_vformat(message, sizeof message, format, arguments);
    va_end(arguments);
    weft__text_printable(error->message, sizeof error->message, message);
    return status;
}

weft_status weft_error_copy(weft_error *error, const weft_error *from)
{
    if (!from) return WEFT_OK;
    if (error && error->status == WEFT_OK) *error = *from;
    return from->status;
}
