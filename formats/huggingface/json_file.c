/* Files of JSON that come with a model. O(bytes). */
#include "tables.h"

#include "base/file.h"
#include "base/platform.h"
#include "json/tree.h"

#include <errno.h>
#include <stdlib.h>

static weft_status no_memory(const char *path, weft_error *error)
{
    return weft_error_set(error, WEFT_NO_MEMORY, path, "no memory");
}

weft_status weft__hf_parse_object(const char *text, size_t length, const char *path, cJSON **json,
                                  weft_error *error)
{
    json_failure why;
    *json = weft__json_parse(text, length, &why);
    if (!*json && why.no_memory) return no_memory(path, error);
    if (!cJSON_IsObject(*json))
        return weft_error_set(error, WEFT_BAD_FILE, path, "is not a JSON object, near byte %zu",
                              *json ? 0 : why.position);
    return WEFT_OK;
}

/* The whole file, followed by a zero byte. */
static weft_status read_text(const char *path, size_t max_bytes, char **text, size_t *bytes,
                             weft_error *error)
{
    os_facts facts;
    FILE *file = weft__file_open_stdio(path);
    if (!file)
        return weft_error_set(error, weft__file_status(errno), path, "cannot be opened: %s",
                              weft__file_error(errno));
    weft_status status = WEFT_OK;
    if (!weft__os_facts_of(fileno(file), &facts) || facts.bytes > max_bytes)
        status = weft_error_set(error, WEFT_BAD_FILE, path, "is not a file of at most %zu bytes",
                                max_bytes);
    else if (!(*text = calloc(1, (*bytes = (size_t)facts.bytes) + 1)))
        status = no_memory(path, error);
    else if (fread(*text, 1, *bytes, file) != *bytes)
        status = weft_error_set(error, WEFT_IO, path, "cannot be read");
    fclose(file);
    return status;
}

weft_status weft__hf_read_object(const char *path, size_t max_bytes, char **text, cJSON **json,
                                 weft_error *error)
{
    size_t bytes = 0;
    *text = NULL;
    *json = NULL;
    const weft_status status = read_text(path, max_bytes, text, &bytes, error);
    return status == WEFT_OK ? weft__hf_parse_object(*text, bytes, path, json, error) : status;
}
