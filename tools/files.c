/* Whole files, and JSON on its way into one or out of one. */
#include "tool.h"

#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int tool_print_json(cJSON *json)
{
    char *text = json ? cJSON_Print(json) : NULL;
    cJSON_Delete(json);
    if (!text) return tool_fail_text("json", "out of memory");
    bool good = printf("%s\n", text) > 0 && fflush(stdout) == 0;
    cJSON_free(text);
    return good ? EXIT_GOOD : tool_fail_text("output", "cannot be written");
}

bool tool_write_json_line(cJSON *json, FILE *file, const char *where, weft_error *error)
{
    char *text = json ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    bool good = text && fprintf(file, "%s\n", text) > 0 && fflush(file) == 0;
    if (!text)
        weft_error_set(error, WEFT_NO_MEMORY, where, "out of memory");
    else if (!good)
        weft_error_set(error, WEFT_IO, where, "cannot be written: %s", strerror(errno));
    cJSON_free(text);
    return good;
}

/* The first byte that JSON has no place for wherever it stands: a control character that is no
 * white space between values, or an escape that would end a C string. NULL if there is none. */
static const char *stray_byte(const char *text, size_t bytes)
{
    bool quoted = false;
    for (const char *at = text, *end = text + bytes; at < end; at++) {
        if ((unsigned char)*at < ' ' && (quoted || !*at || !strchr("\t\n\r", *at))) return at;
        if (*at == '"') quoted = !quoted;
        if (!quoted || *at != '\\') continue;
        if (end - at >= 6 && !memcmp(at, "\\u0000", 6)) return at;
        at++; /* the escaped character */
    }
    return NULL;
}

cJSON *tool_parse_json(const char *text, size_t bytes, const char **wrong)
{
    const char *end = stray_byte(text, bytes);
    cJSON *json = end ? NULL : cJSON_ParseWithLengthOpts(text, bytes + 1, &end, true);
    if (wrong) *wrong = json ? NULL : end;
    return json;
}

char *tool_read_file(const char *path, size_t *bytes, weft_error *error)
{
    FILE *file = fopen(path, "rb");
    char *data = NULL;
    size_t capacity = 0;
    *bytes = 0;
    if (!file) {
        weft_error_set(error, WEFT_IO, path, "cannot be opened: %s", strerror(errno));
        return NULL;
    }
    while (!feof(file) && !ferror(file)) {
        if (capacity - *bytes < 2) {
            capacity = capacity ? 2 * capacity : 65536;
            char *grown = realloc(data, capacity);
            if (!grown) break;
            data = grown;
        }
        *bytes += fread(data + *bytes, 1, capacity - *bytes - 1, file);
    }
    bool good = feof(file) && !ferror(file);
    if (ferror(file))
        weft_error_set(error, WEFT_IO, path, "cannot be read: %s", strerror(errno));
    else if (!good)
        weft_error_set(error, WEFT_NO_MEMORY, path, "out of memory");
    fclose(file);
    if (good) {
        data[*bytes] = 0;
        return data;
    }
    free(data);
    return NULL;
}

bool tool_replace_file(const char *path, const char *data, size_t bytes, weft_error *error)
{
    if (file_replace(path, data, bytes)) return true;
    weft_error_set(error, WEFT_IO, path, "cannot be written: %s", strerror(errno));
    return false;
}
